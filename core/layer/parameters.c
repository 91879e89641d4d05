/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the position of each parameter in one flat range, and divides this range into blocks, so that a device can
 * bind each block as a buffer. */
#include "core/layer/context.h"

int64_t strata_parameter_aligned(int64_t elements) {
    return (elements + STRATA_PARAMETER_ALIGNMENT - 1) / STRATA_PARAMETER_ALIGNMENT * STRATA_PARAMETER_ALIGNMENT;
}

strata_tensor *strata_parameter_view(strata_tensor *range, int64_t first, strata_shape shape) {
    const int64_t size = strata_shape_elements(shape);
    return strata_reshape(strata_slice(range, &first, &size), shape);
}

strata_tensor *strata_parameter_rows_of(const strata_parameter_part *part, strata_tensor *indices) {
    if (!part->first_row) return indices;
    strata_graph *graph = strata_tensor_graph(indices);
    return strata_sub(indices, strata_scalar(graph, strata_tensor_dtype(indices), (double)part->first_row));
}

void strata_parameters_lay_out(strata_parameter_set *set) {
    for (int sparse = 0; sparse < 2; sparse++) {
        for (int i = 0; i < set->n; i++) {
            strata_parameter_spec *p = &set->items[i];
            int64_t *end = p->state ? &set->state_size : &set->flat_size;
            if (p->sparse != sparse) continue;
            p->offset = *end;
            *end += strata_parameter_aligned(strata_shape_elements(p->shape));
        }
        if (!sparse) set->dense_size = set->flat_size;
    }
}

void strata_parameters_finish(strata_parameter_set *set) {
    for (int i = 0; i < set->n; i++) free(set->items[i].name);
    free(set->items);
    free(set->blocks);
    free(set->parts);
    *set = (strata_parameter_set){0};
}

/* ---- blocks ---- */

/* The state of dividing the range into blocks. */
typedef struct cutter {
    strata_parameter_set *set;
    int64_t most;
    bool each;
    /* The elements that gradients need after those of the newest block: the number of uses of each row of its sparse
     * parameters. */
    int64_t beside;
    strata_status status;
    strata_error *err;
} cutter;

/* Makes room for item n. The capacity doubles whenever n is a power of two. */
static void *grown(void *items, int n, size_t bytes) {
    return n & (n - 1) ? items : realloc(items, (n ? 2 * (size_t)n : 1) * bytes);
}

static strata_parameter_block *newest(const cutter *c) {
    return c->set->n_blocks ? &c->set->blocks[c->set->n_blocks - 1] : NULL;
}

static void begin_block(cutter *c, int64_t at) {
    strata_parameter_set *set = c->set;
    strata_parameter_block *blocks = grown(set->blocks, set->n_blocks, sizeof *blocks);
    if (!blocks) {
        c->status = strata_fail(c->err, STRATA_OUT_OF_MEMORY, "model: no host memory for blocks of parameters");
        return;
    }
    set->blocks = blocks;
    set->blocks[set->n_blocks++] =
        (strata_parameter_block){.begin = at, .dense_end = at, .end = at, .first_part = set->n_parts};
    c->beside = 0;
}

static void add_part(cutter *c, int parameter, int64_t first_row, int64_t n_rows, int64_t row) {
    strata_parameter_set *set = c->set;
    strata_parameter_spec *p = &set->items[parameter];
    strata_parameter_part *parts = grown(set->parts, set->n_parts, sizeof *parts);
    if (!parts) {
        c->status = strata_fail(c->err, STRATA_OUT_OF_MEMORY, "model: no host memory for parts of parameters");
        return;
    }
    set->parts = parts;
    if (!p->n_parts) p->first_part = set->n_parts;
    p->n_parts++;
    strata_parameter_part *part = &set->parts[set->n_parts++];
    *part = (strata_parameter_part){parameter, set->n_blocks - 1, first_row, p->shape, p->offset + first_row * row};
    if (p->shape.rank) part->shape.dims[0] = n_rows;
    strata_parameter_block *block = newest(c);
    block->n_parts++;
    block->end = part->offset + strata_parameter_aligned(strata_shape_elements(part->shape));
    if (!p->sparse) block->dense_end = block->end;
    if (p->sparse) c->beside += strata_parameter_aligned(n_rows);
}

/* Whether the newest block has room for n elements of a parameter and for the `uses` elements that count uses of its
 * rows. */
static bool has_room(const cutter *c, int64_t n, int64_t uses) {
    const strata_parameter_block *block = newest(c);
    return block && block->end - block->begin + c->beside <= c->most - n - uses;
}

/* Divides the rows of a parameter that is larger than a block. The number of rows in a part makes its size a multiple of
 * the alignment, so that every part begins at an aligned element. */
static void cut_rows(cutter *c, int parameter, int64_t rows, int64_t row) {
    const strata_parameter_spec *p = &c->set->items[parameter];
    const int64_t align = STRATA_PARAMETER_ALIGNMENT, room = c->most / align * align;
    int64_t step = 1; /* the fewest rows whose size is a multiple of the alignment */
    while (step < align && step * row % align) step *= 2;
    const int64_t with_uses = row + (p->sparse ? 1 : 0);
    const int64_t most = (room - (p->sparse ? align : 0)) / with_uses / step * step;
    if (!p->splits || most < 1) {
        c->status =
            strata_fail(c->err, STRATA_UNSUPPORTED, "parameter %s %s needs %lld bytes in one buffer; the limit is %lld, and %s",
                        p->name, strata_shape_text(p->shape).text, (long long)(rows * row * (int64_t)sizeof(float)),
                        (long long)(c->most * (int64_t)sizeof(float)),
                        p->splits ? "its rows are too long to be put in several" : "its layer cannot compute with parts of it");
        return;
    }
    for (int64_t first = 0; first < rows && !c->status; first += most) {
        begin_block(c, p->offset + first * row);
        if (!c->status) add_part(c, parameter, first, rows - first < most ? rows - first : most, row);
    }
}

static void place(cutter *c, int parameter) {
    strata_parameter_spec *p = &c->set->items[parameter];
    const int64_t elements = strata_shape_elements(p->shape), size = strata_parameter_aligned(elements);
    const int64_t rows = p->shape.rank ? p->shape.dims[0] : 1, uses = p->sparse ? strata_parameter_aligned(rows) : 0;
    p->n_parts = 0;
    if (size > c->most - uses) {
        cut_rows(c, parameter, rows, elements / rows);
        return;
    }
    if (c->each || !has_room(c, size, uses)) begin_block(c, p->offset);
    if (!c->status) add_part(c, parameter, 0, rows, rows ? elements / rows : 0);
    if (!c->status) newest(c)->shaped = c->each && !p->sparse;
}

strata_shape strata_parameter_block_shape(const strata_parameter_set *set, int block) {
    const strata_parameter_block *at = &set->blocks[block];
    return at->shaped ? set->parts[at->first_part].shape : STRATA_SHAPE(at->end - at->begin);
}

strata_status strata_parameters_cut(strata_parameter_set *set, int64_t most, bool each, strata_error *err) {
    cutter c = {.set = set, .most = most, .each = each, .err = err};
    set->n_blocks = set->n_parts = 0;
    for (int sparse = 0; sparse < 2; sparse++)
        for (int i = 0; i < set->n && !c.status; i++)
            if (!set->items[i].state && set->items[i].sparse == sparse) place(&c, i);
    return c.status;
}
