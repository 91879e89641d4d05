/* SPDX-License-Identifier: Apache-2.0
 *
 * Building the gradients of a training step: their layout, the gradients of this device's examples, and their sum over
 * replicas. */
#include "core/graph/graph.h"
#include "core/model/shards.h"
#include "core/model/step.h"
#include "core/op/communication.h"

typedef strata_step_builder builder;
typedef strata_step_computed computed;

/* Parts [first, last) of the parameters, whose gradients are communicated together: elements [begin, end) of the block's
 * gradients. */
typedef struct bucket {
    int first, last;
    int64_t begin, end;
} bucket;

static bool has_sparse(const strata_model *model) {
    return model->parameters.dense_size < model->parameters.flat_size;
}

bool strata_step_needs_all_gradients(const strata_model *model) {
    return strata_optimizer_takes_norms(&model->optimizer) || model->scale.value > 0 || model->measures_norm ||
           model->strategy->workers.wire != STRATA_DTYPE_F32;
}

/* ---- the layout of gradients ---- */

static const strata_parameter_spec *parameter_of(const builder *b, int part) {
    return &b->model->parameters.items[b->model->parameters.parts[part].parameter];
}

/* The number of elements of the gradient of a sparse parameter's part, which has all rows or only those that the batch uses. */
static int64_t sparse_gradient_size(const builder *b, int part) {
    const strata_parameter_part *p = &b->model->parameters.parts[part];
    const strata_tensor *row = b->context.rows[p->parameter].row;
    return strata_parameter_aligned(strata_shape_elements(row ? strata_tensor_shape(row) : p->shape));
}

/* Whether the device counts how often each row of a sparse parameter's part is used. */
static bool counts_uses(const builder *b, int part) {
    const strata_sparse_rows *rows = &b->context.rows[b->model->parameters.parts[part].parameter];
    return parameter_of(b, part)->sparse && !rows->row && !(b->host_knows_rows && strata_step_input_of(b, rows->x) >= 0);
}

void strata_step_place_gradients(builder *b) {
    const strata_parameter_set *set = &b->model->parameters;
    b->places = strata_graph_alloc(b->graph, (size_t)set->n_blocks * sizeof *b->places);
    for (int k = 0; k < set->n_blocks && b->places; k++) {
        const strata_parameter_block *at = &set->blocks[k];
        int64_t gradients = at->dense_end - at->begin, uses = 0;
        for (int i = at->first_part; i < at->first_part + at->n_parts; i++) {
            if (!parameter_of(b, i)->sparse) continue;
            gradients += sparse_gradient_size(b, i);
            if (counts_uses(b, i)) uses += strata_parameter_aligned(set->parts[i].shape.dims[0]);
        }
        b->places[k] = (strata_step_place){gradients, gradients + uses};
    }
}

int64_t strata_step_gradient_place(const builder *b, int part) {
    const strata_parameter_set *set = &b->model->parameters;
    const strata_parameter_block *at = &set->blocks[set->parts[part].block];
    if (!parameter_of(b, part)->sparse) return set->parts[part].offset - at->begin;
    int64_t place = at->dense_end - at->begin;
    for (int i = at->first_part; i < part; i++)
        if (parameter_of(b, i)->sparse) place += sparse_gradient_size(b, i);
    return place;
}

static int64_t uses_place(const builder *b, int part) {
    const strata_parameter_set *set = &b->model->parameters;
    const int block = set->parts[part].block;
    int64_t place = b->places[block].n_gradients;
    for (int i = set->blocks[block].first_part; i < part; i++)
        if (counts_uses(b, i)) place += strata_parameter_aligned(set->parts[i].shape.dims[0]);
    return place;
}

strata_tensor *strata_step_used_rows(const builder *b, int part, strata_tensor *gradients) {
    const int64_t n = b->model->parameters.parts[part].shape.dims[0];
    strata_tensor *zero = strata_scalar(b->graph, STRATA_DTYPE_F32, 0), *none = strata_scalar(b->graph, STRATA_DTYPE_I32, -1);
    strata_tensor *uses = strata_step_part(gradients, uses_place(b, part), n);
    return strata_where(strata_greater(uses, zero), strata_arange(b->graph, n), none);
}

/* Divides the `end` elements of a block's gradients into at most STRATA_MOST_BUCKETS buckets of about the strategy's size. The
 * last layers' gradients come first, since they are computed first. */
static int make_buckets(const strata_model *model, int block, int64_t end, bool whole, bucket buckets[STRATA_MOST_BUCKETS]) {
    const strata_parameter_set *set = &model->parameters;
    const strata_parameter_block *at = &set->blocks[block];
    const int64_t share = set->flat_size / STRATA_MOST_BUCKETS, asked = model->strategy->bucket_bytes / 4;
    const int64_t least = asked > share ? asked : share;
    int n = 0, last = at->first_part + at->n_parts;
    for (int i = last - 1; i > at->first_part && !whole && n < STRATA_MOST_BUCKETS - 1; i--) {
        const int64_t begin = set->parts[i].offset - at->begin;
        if (end - begin <= least) continue;
        buckets[n++] = (bucket){i, last, begin, end};
        last = i;
        end = begin;
    }
    buckets[n++] = (bucket){at->first_part, last, 0, end};
    return n;
}

/* There is only one bucket if computing gradients needs exchanges itself, which each bucket would repeat, and if there are
 * sparse parameters, which have another order. */
static int buckets_of(const builder *b, int block, bucket buckets[STRATA_MOST_BUCKETS]) {
    const bool whole = !b->exchanges || b->context.exchanges_inside || has_sparse(b->model);
    return make_buckets(b->model, block, b->places[block].n_all, whole, buckets);
}

int strata_model_list_buckets(const strata_model *model, struct strata_gradient_bucket out_buckets[STRATA_MOST_BUCKETS]) {
    bucket buckets[STRATA_MOST_BUCKETS];
    const strata_parameter_block *first = &model->parameters.blocks[0];
    if (model->parameters.n_blocks != 1 || first->begin || has_sparse(model)) return 0;
    const int n = make_buckets(model, 0, first->dense_end, false, buckets);
    for (int k = 0; k < n; k++) out_buckets[k] = (struct strata_gradient_bucket){buckets[k].begin, buckets[k].end};
    return n > 1 ? n : 0;
}

/* ---- gradients of this device's examples ---- */

/* Counts how often each of the row indices 0 .. n_rows - 1 occurs in x, as f32 (n_rows). */
static strata_tensor *count_uses(strata_tensor *x, int64_t n_rows) {
    const int64_t n = strata_shape_elements(strata_tensor_shape(x));
    strata_tensor *one = strata_scalar(strata_tensor_graph(x), STRATA_DTYPE_F32, 1);
    return strata_unsorted_segment_sum(strata_broadcast_to(one, STRATA_SHAPE(n, 1)), strata_reshape(x, STRATA_SHAPE(n)),
                                       n_rows);
}

/* The tensor with respect to which the part's gradient is computed: the gathered rows, or the part itself. */
static strata_tensor *source_of(const builder *b, int part) {
    strata_tensor *row = b->context.rows[b->model->parameters.parts[part].parameter].row;
    return row ? row : b->context.parts[part];
}

/* The gradients of y with respect to the bucket's parameters, in the layout of strata_step_place_gradients. dy is the
 * gradient of y. */
static strata_tensor *bucket_gradients(const builder *b, const bucket *range, strata_tensor *y, strata_tensor *dy) {
    const strata_parameter_set *set = &b->model->parameters;
    const size_t most = (size_t)(range->last - range->first);
    strata_tensor **sources = calloc(3 * most, sizeof *sources), **gradients = sources + most, *flat = NULL;
    int64_t *offsets = calloc(2 * most, sizeof *offsets);
    int n = 0, n_uses = 0;
    for (int i = range->first; i < range->last && sources && offsets && !flat; i++) {
        sources[n] = source_of(b, i);
        if (!sources[n] && !b->graph->status)
            flat = strata_graph_poison(b->graph, NULL, STRATA_INTERNAL, "parameter %s is not in the graph",
                                       parameter_of(b, i)->name);
        offsets[n++] = strata_step_gradient_place(b, i) - range->begin;
    }
    if (!sources || !offsets) {
        flat = strata_graph_poison(b->graph, NULL, STRATA_OUT_OF_MEMORY, "model: no host memory for gradients");
    } else if (!flat) {
        strata_gradients(y, dy, sources, n, gradients);
        for (int i = range->first; i < range->last; i++) {
            const strata_parameter_part *part = &set->parts[i];
            if (!counts_uses(b, i)) continue;
            strata_tensor *x = strata_parameter_rows_of(part, b->context.rows[part->parameter].x);
            offsets[n + n_uses] = uses_place(b, i);
            gradients[n + n_uses++] = count_uses(x, part->shape.dims[0]);
        }
        flat = strata_pack(gradients, offsets, n + n_uses, range->end - range->begin);
    }
    free(sources);
    free(offsets);
    return flat;
}

static strata_tensor *own_gradients(const builder *b, const computed *c, int block, const bucket *range) {
    if (c->gradients) return strata_step_part(c->gradients[block], range->begin, range->end - range->begin);
    return c->y ? bucket_gradients(b, range, c->y, c->dy) : NULL;
}

strata_tensor *strata_step_own_gradients(const builder *b, const computed *c, int block) {
    const strata_parameter_block *at = &b->model->parameters.blocks[block];
    const bucket all = {at->first_part, at->first_part + at->n_parts, 0, b->places[block].n_all};
    return own_gradients(b, c, block, &all);
}

/* ---- over replicas ---- */

/* Adds up x, f32 (n), over the replicas; devices that update get the result. Without other replicas x is returned. */
static strata_tensor *sum_over_replicas(builder *b, strata_tensor *x, int64_t n, strata_reduction reduction, bool gradients) {
    if (!b->exchanges) return x;
    const strata_all_reduce_attrs attrs = {
        .common = {.dtype = STRATA_DTYPE_F32, .shape = STRATA_SHAPE(n)}, .reduction = reduction, .gradients = gradients};
    return strata_all_reduce_among(b->graph, x, attrs);
}

static void reduce_sums(builder *b, computed *c) {
    const strata_model *model = b->model;
    c->reduced = true;
    c->sums = sum_over_replicas(b, c->sums, model->metrics.n_sums, STRATA_REDUCE_SUM, false);
    /* Accumulated states are parts of a mean already (strata_step_computed.rates). */
    const strata_reduction states = c->rates ? STRATA_REDUCE_SUM : STRATA_REDUCE_MEAN;
    if (model->parameters.state_size) c->state = sum_over_replicas(b, c->state, model->parameters.state_size, states, false);
}

strata_tensor *strata_step_reduce(builder *b, computed *c, int block) {
    bucket buckets[STRATA_MOST_BUCKETS];
    strata_tensor *parts[STRATA_MOST_BUCKETS] = {NULL};
    const int n = buckets_of(b, block, buckets);
    for (int k = 0; k < n; k++) {
        strata_tensor *own = own_gradients(b, c, block, &buckets[k]);
        if (k == n - 1 && !c->reduced) reduce_sums(b, c);
        /* In the order of the parameters: the last bucket has the first ones. */
        parts[n - 1 - k] = sum_over_replicas(b, own, buckets[k].end - buckets[k].begin, STRATA_REDUCE_SUM, true);
    }
    return n > 1 ? strata_concat(parts, n, 0) : parts[0];
}
