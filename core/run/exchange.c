/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges on the host, one function for each kind. With several workers, a function first combines the values of this
 * worker's replicas, then calls the workers' communicator, and copies the result to this worker's replicas. */
#include "core/run/exchange.h"

#include <string.h>

#include "core/op/ops.h"

/* The state of an exchange that is being performed. */
typedef struct job {
    const strata_exchange_context *context;
    const strata_exchange_member *members;
    int n;
    const strata_communication_attrs *common;
    bool over_workers;
    uint64_t read, written;
} job;

static size_t bytes_of(strata_dtype dtype, int64_t elements) {
    return (size_t)elements * strata_dtype_bytes(dtype);
}

static void copy(void *to, const void *from, size_t bytes) {
    if (bytes && to != from) memcpy(to, from, bytes);
}

/* Collects the operands that are not ignored and the addresses of the results; returns the number of operands. */
static int collect(job *j, bool all, int *out_n_results) {
    int n = 0, n_results = 0;
    for (int i = 0; i < j->n; i++) {
        const strata_exchange_member *m = &j->members[i];
        if (m->takes) j->context->results[n_results++] = m->result;
        if (m->gives && (all || m->counts)) j->context->operands[n++] = m->operand;
    }
    *out_n_results = n_results;
    return n;
}

/* Divides a sum over all workers by the number of the operands of all of them, if the reduction is a mean. */
static strata_status divide(const job *j, int64_t reduction, int n_operands, float *values, int64_t n, strata_error *err) {
    const strata_workers *workers = j->context->workers;
    float count = (float)n_operands;
    if (reduction != STRATA_REDUCE_MEAN) return STRATA_OK;
    if (j->common->dtype != STRATA_DTYPE_F32)
        return strata_fail(err, STRATA_UNSUPPORTED, "a mean of %s over workers; f32 has one",
                           strata_dtype_name(j->common->dtype));
    STRATA_TRY(workers->sum(workers, STRATA_DTYPE_F32, STRATA_DTYPE_F32, &count, &count, 1, err));
    for (int64_t i = 0; i < n; i++) values[i] /= count;
    return STRATA_OK;
}

/* ---- all_reduce, reduce_to ---- */

/* Folds the values of the replicas of all workers and writes the sum to the results of this worker's replicas. If this worker
 * contributes a single value it is sent without a copy, and if possible the sum is computed directly in the first result: for
 * few parameters the copies take as long as the update. */
static strata_status fold_over_workers(job *j, const strata_all_reduce_attrs *attrs, int n_operands, int n_results,
                                       strata_error *err) {
    const strata_exchange_context *c = j->context;
    const strata_dtype dtype = j->common->dtype, wire = attrs->gradients ? c->workers->wire : STRATA_DTYPE_F32;
    const int64_t elements = strata_shape_elements(j->common->shape);
    const bool in_place = n_results && c->reads_results;
    void *sum = in_place ? c->results[0] : c->scratch;
    const void *own = n_operands == 1 ? c->operands[0] : sum;
    if (n_operands != 1)
        STRATA_TRY(c->ops->reduce(c->plan, dtype, STRATA_REDUCE_SUM, c->operands, n_operands, elements, &sum, 1, err));
    STRATA_TRY(c->workers->sum(c->workers, dtype, wire, own, sum, elements, err));
    STRATA_TRY(divide(j, attrs->reduction, n_operands, sum, elements, err));
    for (int r = in_place; r < n_results; r++) copy(c->results[r], sum, bytes_of(dtype, elements));
    return STRATA_OK;
}

static strata_status fold(job *j, strata_error *err) {
    const strata_exchange_context *c = j->context;
    const strata_all_reduce_attrs *attrs = (const strata_all_reduce_attrs *)j->common;
    const int64_t elements = strata_shape_elements(j->common->shape);
    int n_results, n = collect(j, false, &n_results);
    j->read = bytes_of(j->common->dtype, elements) * (uint64_t)n;
    j->written = bytes_of(j->common->dtype, elements) * (uint64_t)n_results;
    if (j->over_workers) return fold_over_workers(j, attrs, n, n_results, err);
    if (!n_results && n == 1 && c->receive) {
        c->receive(c->receiver, c->number, c->operands[0], j->read);
        return STRATA_OK;
    }
    return c->ops->reduce(c->plan, j->common->dtype, (strata_reduction)attrs->reduction, c->operands, n, elements, c->results,
                          n_results, err);
}

/* ---- broadcast ---- */

static strata_status broadcast_value(job *j, strata_error *err) {
    const strata_exchange_context *c = j->context;
    const size_t bytes = bytes_of(j->common->dtype, strata_shape_elements(j->common->shape));
    int n_results, n = collect(j, true, &n_results);
    const void *value = n ? c->operands[0] : NULL;
    if (j->over_workers) {
        void *all = n_results && c->reads_results ? c->results[0] : c->scratch;
        if (value) copy(all, value, bytes);
        STRATA_TRY(c->workers->broadcast(c->workers, j->common->dtype, all, strata_shape_elements(j->common->shape), err));
        value = all;
    }
    for (int r = 0; r < n_results; r++) copy(c->results[r], value, bytes);
    j->read = bytes;
    j->written = bytes * (uint64_t)n_results;
    return STRATA_OK;
}

/* ---- send and recv ---- */

/* The peer is a replica of this group, or of another worker. */
static strata_status send_and_receive(job *j, strata_error *err) {
    const strata_point_attrs *attrs = (const strata_point_attrs *)j->common;
    const strata_exchange_member *m = &j->members[0];
    const size_t bytes = bytes_of(j->common->dtype, strata_shape_elements(j->common->shape));
    const strata_workers *workers = j->context->workers;
    if (attrs->worker < 0) return broadcast_value(j, err);
    if (!workers || attrs->worker >= workers->n || attrs->worker == workers->rank)
        return strata_fail(err, STRATA_INVALID, "%s: worker %lld is none of the %d others", m->node->op->name,
                           (long long)attrs->worker, workers ? workers->n - 1 : 0);
    if (m->gives) j->read = bytes;
    if (m->takes) j->written = bytes;
    if (m->gives) return workers->send(workers, (int)attrs->worker, j->common->channel.id, m->operand, bytes, err);
    return m->takes ? workers->receive(workers, (int)attrs->worker, j->common->channel.id, m->result, bytes, err) : STRATA_OK;
}

/* Sets sizes[w] to `unit` times the lengths of the parts of worker w's replicas. */
static void sum_parts(const strata_workers *workers, const strata_parts_attrs *attrs, size_t unit, size_t *sizes) {
    for (int w = 0; w < workers->n; w++) {
        sizes[w] = 0;
        for (int r = workers->first_replicas[w]; r < workers->first_replicas[w + 1]; r++)
            sizes[w] += (size_t)attrs->lengths[r] * unit;
    }
}

/* ---- all_gather ---- */

/* Concatenates parts along an axis: the result has `outer` rows, each of which consists of the rows of all parts. Sizes are in
 * bytes. */
typedef struct layout {
    size_t outer, inner, row;
} layout;

static layout layout_of(const strata_parts_attrs *attrs) {
    layout l = {1, strata_dtype_bytes(attrs->common.dtype), 0};
    for (int d = 0; d < attrs->common.shape.rank; d++) {
        if (d < attrs->axis) l.outer *= (size_t)attrs->common.shape.dims[d];
        if (d > attrs->axis) l.inner *= (size_t)attrs->common.shape.dims[d];
    }
    for (int64_t i = 0; i < attrs->n; i++) l.row += (size_t)attrs->lengths[i] * l.inner;
    return l;
}

static size_t part_begin(const strata_parts_attrs *attrs, const layout *l, int64_t part) {
    size_t begin = 0;
    for (int64_t i = 0; i < part; i++) begin += (size_t)attrs->lengths[i] * l->inner;
    return begin;
}

static void put_part(const strata_parts_attrs *attrs, const layout *l, int64_t part, const char *from, char *whole) {
    const size_t begin = part_begin(attrs, l, part), bytes = (size_t)attrs->lengths[part] * l->inner;
    for (size_t o = 0; o < l->outer; o++) copy(whole + o * l->row + begin, from + o * bytes, bytes);
}

/* Gathers the parts of all workers in `scratch`, after this worker's own parts. Each part is contiguous. */
static strata_status gather_over_workers(job *j, const strata_parts_attrs *attrs, const layout *l, char **out_parts,
                                         strata_error *err) {
    const strata_exchange_context *c = j->context;
    const strata_workers *workers = c->workers;
    size_t *bytes = c->scratch, own = 0, at = 0;
    char *mine = (char *)(bytes + workers->n);
    sum_parts(workers, attrs, l->inner * l->outer, bytes);
    own = bytes[workers->rank];
    for (int i = 0; i < j->n; i++) {
        const strata_parts_attrs *a = j->members[i].node->attrs;
        const size_t part = (size_t)attrs->lengths[a->own] * l->inner * l->outer;
        copy(mine + at, j->members[i].operand, part);
        at += part;
    }
    *out_parts = mine + own;
    return workers->all_gather(workers, mine, *out_parts, bytes, err);
}

static strata_status gather(job *j, strata_error *err) {
    const strata_parts_attrs *attrs = (const strata_parts_attrs *)j->common;
    const layout l = layout_of(attrs);
    char *parts = NULL;
    if (j->over_workers) STRATA_TRY(gather_over_workers(j, attrs, &l, &parts, err));
    for (int t = 0; t < j->n; t++) {
        if (!j->members[t].takes) continue;
        size_t at = 0;
        for (int64_t k = 0; parts && k < attrs->n; at += (size_t)attrs->lengths[k++] * l.inner * l.outer)
            put_part(attrs, &l, k, parts + at, j->members[t].result);
        for (int i = 0; !parts && i < j->n; i++) {
            const strata_parts_attrs *a = j->members[i].node->attrs;
            put_part(attrs, &l, a->own, j->members[i].operand, j->members[t].result);
        }
        j->written += l.row * l.outer;
    }
    for (int i = 0; i < j->n; i++) {
        const strata_parts_attrs *a = j->members[i].node->attrs;
        j->read += (size_t)attrs->lengths[a->own] * l.inner * l.outer;
    }
    return STRATA_OK;
}

/* ---- reduce_scatter ---- */

/* The number of elements in one row of the whole tensor, and in all of it. */
static int64_t row_of(const strata_parts_attrs *attrs, int64_t *out_elements) {
    int64_t row = 1, rows = 0;
    for (int d = 1; d < attrs->common.shape.rank; d++) row *= attrs->common.shape.dims[d];
    for (int64_t i = 0; i < attrs->n; i++) rows += attrs->lengths[i];
    *out_elements = row * rows;
    return row;
}

/* Adds up the whole tensors of this worker's replicas. Then each worker gets its part of the sum over workers. */
static strata_status scatter_over_workers(job *j, const strata_parts_attrs *attrs, int n_operands, strata_error *err) {
    const strata_exchange_context *c = j->context;
    const strata_workers *workers = c->workers;
    const strata_dtype dtype = attrs->common.dtype;
    int64_t elements;
    const int64_t row = row_of(attrs, &elements);
    size_t *counts = c->scratch;
    char *whole = (char *)(counts + workers->n), *part = whole + bytes_of(dtype, elements);
    sum_parts(workers, attrs, (size_t)row, counts);
    const void *own = n_operands == 1 ? c->operands[0] : whole;
    void *sum = whole;
    if (n_operands != 1)
        STRATA_TRY(
            strata_cross_device_host.reduce(NULL, dtype, STRATA_REDUCE_SUM, c->operands, n_operands, elements, &sum, 1, err));
    STRATA_TRY(
        workers->reduce_scatter(workers, dtype, attrs->gradients ? workers->wire : STRATA_DTYPE_F32, own, part, counts, err));
    STRATA_TRY(divide(j, attrs->reduction, n_operands, (float *)(void *)part, (int64_t)counts[workers->rank], err));
    for (int i = 0; i < j->n; i++) {
        const strata_parts_attrs *a = j->members[i].node->attrs;
        const size_t bytes = bytes_of(dtype, attrs->lengths[a->own] * row);
        if (j->members[i].takes) copy(j->members[i].result, part, bytes);
        part += bytes;
    }
    return STRATA_OK;
}

static strata_status scatter(job *j, strata_error *err) {
    const strata_exchange_context *c = j->context;
    const strata_parts_attrs *attrs = (const strata_parts_attrs *)j->common;
    /* Cross-device ops that prepare for a size cannot be used here, so the fold is done on the host, with the same bits. */
    const strata_cross_device_ops *ops = c->ops->prepare ? &strata_cross_device_host : c->ops;
    int64_t elements;
    const int64_t row = row_of(attrs, &elements);
    int n_results;
    const int n = collect(j, false, &n_results);
    j->read = bytes_of(attrs->common.dtype, elements) * (uint64_t)n;
    j->written = bytes_of(attrs->common.dtype, elements);
    if (j->over_workers) return scatter_over_workers(j, attrs, n, err);
    for (int t = 0; t < j->n; t++) {
        const strata_parts_attrs *a = j->members[t].node->attrs;
        int64_t first = 0;
        for (int64_t k = 0; k < a->own; k++) first += attrs->lengths[k] * row;
        if (!j->members[t].takes || !attrs->lengths[a->own]) continue;
        collect(j, false, &n_results);
        for (int i = 0; i < n; i++) c->operands[i] = (const char *)c->operands[i] + bytes_of(attrs->common.dtype, first);
        void *result = j->members[t].result;
        STRATA_TRY(ops->reduce(NULL, attrs->common.dtype, (strata_reduction)attrs->reduction, c->operands, n,
                               attrs->lengths[a->own] * row, &result, 1, err));
    }
    return STRATA_OK;
}

/* ---- merge ---- */

static strata_status merge(job *j, strata_error *err) {
    const strata_merge_attrs *attrs = (const strata_merge_attrs *)j->common;
    int n_results, n = collect(j, false, &n_results);
    const size_t bytes = bytes_of(j->common->dtype, strata_shape_elements(j->common->shape));
    j->read = bytes * (uint64_t)n;
    j->written = bytes * (uint64_t)n_results;
    return attrs->merge->run(attrs->merge, j->context->operands, n, j->context->results, n_results, err);
}

/* ---- the table ---- */

typedef struct kind {
    const strata_op *op;
    strata_status (*run)(job *j, strata_error *err);
} kind;

static const kind kinds[] = {
    {&strata_op_all_reduce, fold},           {&strata_op_reduce_to, fold},
    {&strata_op_broadcast, broadcast_value}, {&strata_op_all_gather, gather},
    {&strata_op_reduce_scatter, scatter},    {&strata_op_send, send_and_receive},
    {&strata_op_recv, send_and_receive},     {&strata_op_merge, merge},
};

strata_status strata_exchange_run(const strata_exchange_context *context, const strata_exchange_member *members, int n_members,
                                  uint64_t *bytes_read, uint64_t *bytes_written, strata_error *err) {
    job j = {.context = context,
             .members = members,
             .n = n_members,
             .common = members[0].node->attrs,
             .over_workers = context->over_workers};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (kinds[k].op != members[0].node->op) continue;
        STRATA_TRY(kinds[k].run(&j, err));
        *bytes_read += j.read;
        *bytes_written += j.written;
        return STRATA_OK;
    }
    return strata_fail(err, STRATA_INTERNAL, "exchange: nobody carries out %s", members[0].node->op->name);
}

/* ---- properties of nodes ---- */

static bool is_fold(const strata_tensor *node) {
    return node->op == &strata_op_all_reduce || node->op == &strata_op_reduce_to;
}

static bool is_point(const strata_tensor *node) {
    return node->op == &strata_op_send || node->op == &strata_op_recv;
}

static bool is_parts(const strata_tensor *node) {
    return node->op == &strata_op_all_gather || node->op == &strata_op_reduce_scatter;
}

bool strata_exchange_spans_workers(const strata_tensor *node, const strata_workers *workers) {
    const strata_communication_attrs *common = node->attrs;
    if (!workers || workers->n < 2 || node->op == &strata_op_merge) return false;
    if (is_point(node)) return ((const strata_point_attrs *)node->attrs)->worker >= 0;
    return strata_channel_spans_workers(common->channel, workers->first_replica,
                                        workers->first_replicas[workers->rank + 1] - workers->first_replica);
}

bool strata_exchange_folds(const strata_tensor *node, int64_t *out_elements, strata_reduction *out_reduction) {
    const strata_all_reduce_attrs *attrs = node->attrs;
    if (!is_fold(node)) return false;
    *out_elements = strata_shape_elements(attrs->common.shape);
    *out_reduction = (strata_reduction)attrs->reduction;
    return true;
}

const char *strata_exchange_name(const strata_tensor *node) {
    if (!is_fold(node)) return node->op->name;
    return ((const strata_all_reduce_attrs *)node->attrs)->reduction == STRATA_REDUCE_MEAN ? "mean" : "sum";
}

int64_t strata_exchange_scratch_bytes(const strata_tensor *node, const strata_workers *workers) {
    const strata_communication_attrs *common = node->attrs;
    int64_t elements = strata_shape_elements(common->shape), bytes;
    if (!strata_exchange_spans_workers(node, workers) || is_point(node)) return 0;
    if (node->op == &strata_op_reduce_scatter) row_of(node->attrs, &elements);
    if (__builtin_mul_overflow(elements, (int64_t)strata_dtype_bytes(common->dtype), &bytes)) return -1;
    /* The parts are: the size of each worker's bytes, this worker's bytes, and the bytes of all workers. */
    if (is_parts(node) && (__builtin_mul_overflow(bytes, 2, &bytes) ||
                           __builtin_add_overflow(bytes, (int64_t)workers->n * (int64_t)sizeof(size_t), &bytes)))
        return -1;
    return bytes;
}

static strata_status differ(const strata_tensor *a, const strata_tensor *b, strata_error *err) {
    const strata_communication_attrs *x = a->attrs, *y = b->attrs;
    return strata_fail(err, STRATA_INVALID, "%s %s %s beside %s %s %s", strata_exchange_name(a), strata_dtype_name(x->dtype),
                       strata_shape_text(x->shape).text, strata_exchange_name(b), strata_dtype_name(y->dtype),
                       strata_shape_text(y->shape).text);
}

strata_status strata_exchange_check(const strata_tensor *a, const strata_tensor *b, strata_error *err) {
    const strata_communication_attrs *x = a->attrs, *y = b->attrs;
    const bool pair = is_point(a) && is_point(b) && a->op != b->op;
    if ((is_point(a) ? !pair : a->op != b->op) || x->dtype != y->dtype) return differ(a, b, err);
    if (is_parts(a)) {
        const strata_parts_attrs *p = a->attrs, *q = b->attrs;
        strata_shape whole_a = x->shape, whole_b = y->shape;
        if (whole_a.rank == whole_b.rank && a->op == &strata_op_reduce_scatter) whole_b.dims[0] = whole_a.dims[0];
        if (!strata_shape_equal(whole_a, whole_b) || p->axis != q->axis || p->n != q->n || p->reduction != q->reduction ||
            p->gradients != q->gradients || p->own == q->own ||
            memcmp(p->lengths, q->lengths, (size_t)p->n * sizeof *p->lengths))
            return differ(a, b, err);
        return STRATA_OK;
    }
    if (!strata_shape_equal(x->shape, y->shape)) return differ(a, b, err);
    if (is_fold(a)) {
        const strata_all_reduce_attrs *p = a->attrs, *q = b->attrs;
        if (p->reduction != q->reduction || p->gradients != q->gradients) return differ(a, b, err);
    }
    return STRATA_OK;
}
