/* SPDX-License-Identifier: Apache-2.0
 *
 * Meshes, placements, and the rules of ops (placement.h). */
#include "core/graph/placement.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/locale.h"

/* ---- meshes ---- */

int strata_mesh_n_devices(const strata_mesh *mesh) {
    int n = 1;
    for (int a = 0; a < mesh->n_axes; a++) n *= mesh->axes[a].size;
    return n;
}

int strata_mesh_coordinate(const strata_mesh *mesh, int device, int axis) {
    for (int a = mesh->n_axes - 1; a > axis; a--) device /= mesh->axes[a].size;
    return device % mesh->axes[axis].size;
}

strata_status strata_mesh_check(const strata_mesh *mesh, strata_error *err) {
    int64_t n = 1;
    if (mesh->n_axes < 0 || mesh->n_axes > STRATA_MESH_MOST_AXES)
        return strata_fail(err, STRATA_INVALID, "the mesh has %d axes; it must have 0 to %d", mesh->n_axes,
                           STRATA_MESH_MOST_AXES);
    for (int a = 0; a < mesh->n_axes; a++) {
        const char *name = mesh->axes[a].name;
        if (!name[0]) return strata_fail(err, STRATA_INVALID, "axis %d of the mesh has no name", a);
        for (int b = 0; b < a; b++)
            if (!strcmp(name, mesh->axes[b].name))
                return strata_fail(err, STRATA_INVALID, "the mesh has two axes named %s", name);
        if (mesh->axes[a].size < 1)
            return strata_fail(err, STRATA_INVALID, "axis %s of the mesh has the size %d; it must be at least 1", name,
                               mesh->axes[a].size);
        n *= mesh->axes[a].size;
        if (n > STRATA_MESH_MOST_DEVICES)
            return strata_fail(err, STRATA_INVALID, "the mesh has more than %d devices", STRATA_MESH_MOST_DEVICES);
    }
    return STRATA_OK;
}

/* ---- placements ---- */

int strata_dim_split_n_pieces(const strata_mesh *mesh, const strata_dim_split *split) {
    int n = 1;
    for (int i = 0; i < split->n_axes; i++) n *= mesh->axes[split->axes[i]].size;
    return n;
}

int strata_dim_split_piece(const strata_mesh *mesh, const strata_dim_split *split, int device) {
    int piece = 0;
    for (int i = 0; i < split->n_axes; i++)
        piece = piece * mesh->axes[split->axes[i]].size + strata_mesh_coordinate(mesh, device, split->axes[i]);
    return piece;
}

bool strata_dim_split_equal(const strata_mesh *mesh, const strata_dim_split *a, const strata_dim_split *b) {
    if (a->n_axes != b->n_axes) return false;
    if (!a->n_axes) return true;
    return !memcmp(a->axes, b->axes, (size_t)a->n_axes * sizeof *a->axes) &&
           !memcmp(a->lengths, b->lengths, (size_t)strata_dim_split_n_pieces(mesh, a) * sizeof *a->lengths);
}

bool strata_placement_equal(const strata_mesh *mesh, int rank, const strata_placement *a, const strata_placement *b) {
    for (int d = 0; d < rank; d++)
        if (!strata_dim_split_equal(mesh, &a->dims[d], &b->dims[d])) return false;
    for (int x = 0; x < mesh->n_axes; x++)
        if (a->at >> x & b->at >> x & 1 && a->coordinates[x] != b->coordinates[x]) return false;
    return a->partial == b->partial && a->own == b->own && a->at == b->at;
}

strata_placement strata_placement_at(strata_placement placement, int axis, int coordinate) {
    placement.at |= 1u << axis;
    placement.coordinates[axis] = coordinate;
    return placement;
}

bool strata_placement_has(const strata_mesh *mesh, const strata_placement *placement, int device) {
    for (int a = 0; a < mesh->n_axes && placement->at; a++)
        if (placement->at >> a & 1 && strata_mesh_coordinate(mesh, device, a) != placement->coordinates[a]) return false;
    return true;
}

strata_shape strata_placement_part(const strata_mesh *mesh, const strata_placement *placement, strata_shape shape, int device,
                                   int64_t *out_begin) {
    for (int d = 0; d < shape.rank; d++) {
        const strata_dim_split *split = &placement->dims[d];
        const int piece = strata_dim_split_piece(mesh, split, device);
        int64_t begin = 0;
        for (int p = 0; p < piece; p++) begin += split->lengths[p];
        if (split->n_axes) shape.dims[d] = split->lengths[piece];
        if (out_begin) out_begin[d] = begin;
    }
    return shape;
}

static strata_status check_split(const strata_mesh *mesh, const strata_dim_split *split, int d, int64_t size, unsigned *used,
                                 strata_error *err) {
    int64_t all = 0;
    if (split->n_axes < 0 || split->n_axes > STRATA_MESH_MOST_AXES)
        return strata_fail(err, STRATA_INVALID, "dimension %d is divided over %d axes", d, split->n_axes);
    for (int i = 0; i < split->n_axes; i++) {
        const int axis = split->axes[i];
        if (axis < 0 || axis >= mesh->n_axes)
            return strata_fail(err, STRATA_INVALID, "dimension %d is divided over axis %d; the mesh has %d axes", d, axis,
                               mesh->n_axes);
        if (*used >> axis & 1)
            return strata_fail(err, STRATA_INVALID, "axis %s of the mesh is used twice", mesh->axes[axis].name);
        *used |= 1u << axis;
    }
    if (!split->n_axes) return STRATA_OK;
    for (int p = 0, n = strata_dim_split_n_pieces(mesh, split); p < n; p++) {
        if (split->lengths[p] < 0)
            return strata_fail(err, STRATA_INVALID, "piece %d of dimension %d has the length %" PRId64, p, d,
                               split->lengths[p]);
        all += split->lengths[p];
    }
    if (all == size) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "the pieces of dimension %d have %" PRId64 " elements; it has %" PRId64, d, all,
                       size);
}

strata_status strata_placement_fits(const strata_mesh *mesh, const strata_placement *placement, strata_shape shape,
                                    strata_error *err) {
    const unsigned twice = (placement->partial & placement->own) | ((placement->partial | placement->own) & placement->at);
    unsigned used = placement->partial | placement->own | placement->at;
    if (used >> mesh->n_axes)
        return strata_fail(err, STRATA_INVALID,
                           "a value is partial over an axis that the mesh does not have, or at one of its "
                           "coordinates");
    for (int a = 0; a < mesh->n_axes; a++) {
        if (twice >> a & 1) return strata_fail(err, STRATA_INVALID, "axis %s of the mesh is used twice", mesh->axes[a].name);
        if (placement->at >> a & 1 && (placement->coordinates[a] < 0 || placement->coordinates[a] >= mesh->axes[a].size))
            return strata_fail(err, STRATA_INVALID, "a value is at coordinate %d of axis %s, whose size is %d",
                               placement->coordinates[a], mesh->axes[a].name, mesh->axes[a].size);
    }
    for (int d = 0; d < STRATA_MAX_RANK; d++) {
        if (d >= shape.rank && placement->dims[d].n_axes)
            return strata_fail(err, STRATA_INVALID, "dimension %d is divided; a value of shape %s does not have it", d,
                               strata_shape_text(shape).text);
        STRATA_TRY(check_split(mesh, &placement->dims[d], d, d < shape.rank ? shape.dims[d] : 0, &used, err));
    }
    return STRATA_OK;
}

/* ---- text ---- */

typedef struct writer {
    strata_placement_words *words;
    size_t used;
} writer;

STRATA_PRINTF(2, 3) static void write_text(writer *w, const char *format, ...) {
    const size_t room = sizeof w->words->text - w->used;
    va_list arguments;
    va_start(arguments, format);
    const int n = strata_format_v(w->words->text + w->used, room, format, arguments);
    va_end(arguments);
    if (n >= 0 && (size_t)n < room) {
        w->used += (size_t)n;
    } else {
        w->used = sizeof w->words->text - 1;
        memcpy(w->words->text + w->used - 3, "...", 4);
    }
}

static void write_split(writer *w, const strata_mesh *mesh, const strata_dim_split *split) {
    const int n = strata_dim_split_n_pieces(mesh, split);
    for (int i = 0; i < split->n_axes; i++) write_text(w, "%s%s", i ? ", " : " over ", mesh->axes[split->axes[i]].name);
    for (int p = 0; p < n; p++) write_text(w, "%s%" PRId64, p ? " " : ": ", split->lengths[p]);
}

static void write_axes(writer *w, const strata_mesh *mesh, unsigned axes, const char *before) {
    for (int a = 0, n = 0; a < mesh->n_axes; a++)
        if (axes >> a & 1) write_text(w, "%s%s", n++ ? ", " : before, mesh->axes[a].name);
}

strata_placement_words strata_placement_text(const strata_mesh *mesh, const strata_placement *placement, strata_shape shape) {
    strata_placement_words words = {""};
    writer w = {.words = &words};
    write_text(&w, "(");
    for (int d = 0; d < shape.rank; d++) {
        write_text(&w, "%s%" PRId64, d ? ", " : "", shape.dims[d]);
        if (placement->dims[d].n_axes) write_split(&w, mesh, &placement->dims[d]);
    }
    write_text(&w, ")");
    write_axes(&w, mesh, placement->partial, ", partial over ");
    write_axes(&w, mesh, placement->own, ", own over ");
    for (int a = 0; a < mesh->n_axes; a++)
        if (placement->at >> a & 1) write_text(&w, ", at coordinate %d of %s", placement->coordinates[a], mesh->axes[a].name);
    return words;
}

/* ---- rules ---- */

static strata_factor_dims *dims_of(strata_factors *factors, const strata_tensor *node, int operand) {
    return operand < node->n_inputs ? &factors->inputs[operand] : &factors->result;
}

static const strata_tensor *tensor_of(const strata_tensor *node, int operand) {
    return operand < node->n_inputs ? node->inputs[operand] : node;
}

void strata_factors_set(strata_factors *factors, const strata_tensor *node, int operand, int dim, int factor) {
    strata_factor_dims *dims = dims_of(factors, node, operand);
    dims->factor[dim] = factor;
    dims->unit[dim] = 1;
    factors->sizes[factor] = tensor_of(node, operand)->shape.dims[dim];
    if (factor >= factors->n) factors->n = factor + 1;
}

/* The part of a row for one operand: "..." and the letters after it. */
typedef struct row_part {
    bool leading;
    const char *letters;
    int n;
} row_part;

/* Reads the part that begins at `text`, and returns the text after it. */
static const char *read_part(const char *text, row_part *out_part) {
    *out_part = (row_part){.leading = !strncmp(text, "...", 3)};
    out_part->letters = text + (out_part->leading ? 3 : 0);
    while (out_part->letters[out_part->n] && !strchr(",-", out_part->letters[out_part->n])) out_part->n++;
    return out_part->letters + out_part->n;
}

enum { LETTERS = 26 };

/* Letters have the factors 0..25; the leading dimensions have those after them, counted from the last. With `sizes_only` the
 * sizes of the leading dimensions are found first: a dimension of size 1 that is repeated has no factor. */
static void apply_part(strata_factors *factors, const strata_tensor *node, int operand, const row_part *part, bool sizes_only) {
    const strata_shape shape = tensor_of(node, operand)->shape;
    const int n_leading = shape.rank - part->n;
    for (int d = 0; d < n_leading && part->leading; d++) {
        int64_t *size = &factors->sizes[LETTERS + n_leading - 1 - d];
        if (sizes_only)
            *size = *size < 0 || shape.dims[d] != 1 ? shape.dims[d] : *size;
        else if (shape.dims[d] == *size)
            strata_factors_set(factors, node, operand, d, LETTERS + n_leading - 1 - d);
    }
    for (int i = 0; i < part->n && !sizes_only; i++)
        if (part->letters[i] >= 'a' && part->letters[i] <= 'z')
            strata_factors_set(factors, node, operand, n_leading + i, part->letters[i] - 'a');
}

void strata_factors_row(const char *row, const strata_tensor *node, strata_factors *factors) {
    for (int f = 0; f < STRATA_MOST_FACTORS; f++) factors->sizes[f] = -1;
    for (int pass = 0; pass < 2; pass++) {
        row_part part = {0};
        const char *at = row;
        for (int i = 0; i < node->n_inputs; i++) {
            if (*at != '-') at = read_part(at, &part);
            if (*at == ',') at++;
            apply_part(factors, node, i, &part, !pass);
        }
        read_part(strchr(row, '>') + 1, &part);
        apply_part(factors, node, node->n_inputs, &part, !pass);
    }
}

void strata_factors_of(const strata_tensor *node, bool own_statistics, strata_factors *factors) {
    factors->n = 0;
    factors->filled = factors->own = 0;
    factors->linear_operands = ~(uint64_t)0;
    factors->linearity = (strata_linearity)node->op->linearity;
    for (int i = 0; i <= node->n_inputs; i++) {
        strata_factor_dims *dims = dims_of(factors, node, i);
        for (int d = 0; d < STRATA_MAX_RANK; d++) {
            dims->factor[d] = STRATA_NO_FACTOR;
            dims->unit[d] = 1;
        }
    }
    memset(factors->sizes, 0, sizeof factors->sizes);
    if (own_statistics && node->op->own_dims) {
        strata_factors_row(node->op->own_dims, node, factors);
        factors->own = ~(uint64_t)0;
    } else if (node->op->factors) {
        node->op->factors(node, factors);
    } else if (node->op->dims) {
        strata_factors_row(node->op->dims, node, factors);
    } else if ((node->op->flags & STRATA_OP_ELEMENTWISE) && !node->op->whole) {
        strata_factors_row("...->...", node, factors);
    }
}

strata_tensor *strata_node_part_with(const strata_node_part *part, const void *attrs) {
    return strata_node(part->graph, part->node->op, part->node->n_inputs, part->inputs, attrs);
}

strata_tensor *strata_node_part_copy(const strata_node_part *part) {
    const strata_op *op = part->node->op;
    if (!op->attrs_bytes) return strata_node_part_with(part, NULL);
    char *attrs = strata_graph_alloc(part->graph, op->attrs_bytes);
    if (!attrs) return strata_graph_poison(part->graph, op, STRATA_OUT_OF_MEMORY, "no host memory for its part");
    memcpy(attrs, part->node->attrs, op->attrs_bytes);
    for (const strata_attr_field *field = op->attrs; field->name; field++) {
        strata_shape shape;
        if (field->kind != STRATA_ATTR_SHAPE) continue;
        memcpy(&shape, attrs + field->offset, sizeof shape);
        if (strata_shape_equal(shape, part->node->shape)) memcpy(attrs + field->offset, &part->shape, sizeof part->shape);
    }
    return strata_node_part_with(part, attrs);
}
