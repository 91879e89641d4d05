/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges on the host, one function for each kind. With several workers, a function first combines the values of this
 * worker's replicas, then calls the workers' communicator, and copies the result to this worker's replicas. */
#include "core/run/exchange.h"

#include <string.h>

#include "core/op/element.h"
#include "core/op/ops.h"

typedef strata_exchange_job job;

/* What the nodes of all members have in common. */
static const strata_communication_attrs *common_of(const job *j) {
    return j->members[0].node->attrs;
}

static size_t bytes_of(strata_dtype dtype, int64_t elements) {
    return (size_t)elements * strata_dtype_bytes(dtype);
}

static int64_t elements_of(const job *j) {
    return strata_shape_elements(common_of(j)->shape);
}

/* The bytes of a value of the exchange's shape. */
static size_t whole_bytes(const job *j) {
    return bytes_of(common_of(j)->dtype, elements_of(j));
}

static void copy(void *to, const void *from, size_t bytes) {
    if (bytes && to != from) memcpy(to, from, bytes);
}

/* Collects the operands that are not ignored and the results, and counts their bytes. */
static void collect(job *j, bool ignores) {
    j->n_operands = j->n_results = 0;
    for (int i = 0; i < j->n; i++) {
        const strata_exchange_member *m = &j->members[i];
        if (m->gives && (m->counts || !ignores)) {
            j->operands[j->n_operands++] = m->operand;
            j->read += (uint64_t)strata_tensor_bytes(m->node->inputs[0]);
        }
        if (m->takes) {
            j->results[j->n_results++] = m->result;
            j->written += (uint64_t)strata_tensor_bytes(m->node);
        }
    }
}

/* Divides a sum over all workers by the number of the operands of all of them, if the reduction is a mean. */
static strata_status divide(const job *j, int64_t reduction, void *values, int64_t n, strata_error *err) {
    const strata_dtype dtype = common_of(j)->dtype;
    float count = (float)j->n_operands;
    if (reduction != STRATA_REDUCE_MEAN) return STRATA_OK;
    STRATA_TRY(j->workers->sum(j->workers, STRATA_DTYPE_F32, STRATA_DTYPE_F32, &count, &count, 1, err));
    for (int64_t i = 0; i < n && dtype == STRATA_DTYPE_F32; i++)
        ((float *)values)[i] /= count; /* vectors: parameters are many */
    for (int64_t i = 0; i < n && dtype != STRATA_DTYPE_F32; i++)
        strata_element_set(dtype, values, i, (float)strata_element_get(dtype, values, i) / count);
    return STRATA_OK;
}

/* ---- all_reduce, reduce_to ---- */

/* Folds the values of the replicas of all workers and writes the sum to the results of this worker's replicas. If this worker
 * contributes a single value it is sent without a copy, and if possible the sum is computed directly in the first result: for
 * few parameters the copies take as long as the update. */
static strata_status fold_over_workers(job *j, const strata_all_reduce_attrs *attrs, strata_error *err) {
    const strata_dtype dtype = common_of(j)->dtype, wire = attrs->gradients ? j->workers->wire : STRATA_DTYPE_F32;
    const int64_t elements = elements_of(j);
    const bool in_place = j->n_results && j->reads_results;
    void *sum = in_place ? j->results[0] : j->scratch;
    const void *own = j->n_operands == 1 ? j->operands[0] : sum;
    if (j->n_operands != 1)
        STRATA_TRY(j->ops->reduce(j->plan, dtype, STRATA_REDUCE_SUM, j->operands, j->n_operands, elements, &sum, 1, err));
    STRATA_TRY(j->workers->sum(j->workers, dtype, wire, own, sum, elements, err));
    STRATA_TRY(divide(j, attrs->reduction, sum, elements, err));
    for (int r = in_place; r < j->n_results; r++) copy(j->results[r], sum, whole_bytes(j));
    return STRATA_OK;
}

static strata_status fold(job *j, strata_error *err) {
    const strata_all_reduce_attrs *attrs = j->members[0].node->attrs;
    if (j->over_workers) return fold_over_workers(j, attrs, err);
    if (!j->n_results && j->n_operands == 1 && j->receive) {
        j->receive(j->receiver, j->number, j->operands[0], whole_bytes(j));
        return STRATA_OK;
    }
    return j->ops->reduce(j->plan, common_of(j)->dtype, (strata_reduction)attrs->reduction, j->operands, j->n_operands,
                          elements_of(j), j->results, j->n_results, err);
}

/* ---- messages between workers ---- */

/* Sends the value of the job's only member to a worker, or receives it, also if nobody reads it, since it was sent. */
static strata_status send_message(job *j, int worker, strata_error *err) {
    const strata_exchange_member *m = &j->members[0];
    const size_t bytes = whole_bytes(j);
    const int64_t tag = common_of(j)->team.id;
    if (!m->gives) return j->workers->receive(j->workers, worker, tag, m->takes ? m->result : j->scratch, bytes, err);
    j->sent += bytes;
    return j->workers->send(j->workers, worker, tag, m->operand, bytes, err);
}

/* The worker of the other one of two devices. */
static int find_peer(const job *j) {
    const strata_team team = common_of(j)->team;
    const strata_workers *workers = j->workers;
    const int64_t first = workers->first_replica, end = workers->first_replicas[workers->rank + 1];
    const int64_t other = team.members[team.members[0] >= first && team.members[0] < end];
    int w = 0;
    while (w < workers->n - 1 && other >= workers->first_replicas[w + 1]) w++;
    return w;
}

/* ---- broadcast ---- */

static strata_status broadcast_value(job *j, strata_error *err) {
    const size_t bytes = whole_bytes(j);
    if (strata_exchange_is_message(j->members[0].node, j->workers)) return send_message(j, find_peer(j), err);
    const void *value = j->n_operands ? j->operands[0] : NULL;
    if (j->over_workers) {
        void *all = j->n_results && j->reads_results ? j->results[0] : j->scratch;
        if (value) copy(all, value, bytes);
        STRATA_TRY(j->workers->broadcast(j->workers, common_of(j)->dtype, all, elements_of(j), err));
        value = all;
    }
    for (int r = 0; r < j->n_results; r++) copy(j->results[r], value, bytes);
    return STRATA_OK;
}

/* ---- send and recv ---- */

/* The peer is a replica of this group, or of another worker. */
static strata_status send_and_receive(job *j, strata_error *err) {
    const strata_point_attrs *attrs = j->members[0].node->attrs;
    const strata_exchange_member *m = &j->members[0];
    const strata_workers *workers = j->workers;
    if (attrs->worker < 0) return broadcast_value(j, err);
    if (!workers || attrs->worker >= workers->n || attrs->worker == workers->rank)
        return strata_fail(err, STRATA_INVALID, "%s: worker %lld is none of the %d others", m->node->op->name,
                           (long long)attrs->worker, workers ? workers->n - 1 : 0);
    return send_message(j, (int)attrs->worker, err);
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

/* The bytes of a part of length 1 in each of the rows that precede the axis, of which there are `*out_outer`. */
static size_t inner_of(const strata_parts_attrs *attrs, size_t *out_outer) {
    size_t inner = strata_dtype_bytes(attrs->common.dtype);
    *out_outer = 1;
    for (int d = 0; d < attrs->common.shape.rank; d++) {
        if (d < attrs->axis) *out_outer *= (size_t)attrs->common.shape.dims[d];
        if (d > attrs->axis) inner *= (size_t)attrs->common.shape.dims[d];
    }
    return inner;
}

/* The sum of the lengths of the first n parts. */
static int64_t length_before(const strata_parts_attrs *attrs, int64_t n) {
    int64_t length = 0;
    for (int64_t i = 0; i < n; i++) length += attrs->lengths[i];
    return length;
}

/* Copies a contiguous part to its place in every row of the whole value. */
static void put_part(const strata_parts_attrs *attrs, int64_t part, const char *from, char *whole) {
    size_t outer;
    const size_t inner = inner_of(attrs, &outer), bytes = (size_t)attrs->lengths[part] * inner,
                 row = (size_t)length_before(attrs, attrs->n) * inner, begin = (size_t)length_before(attrs, part) * inner;
    for (size_t o = 0; o < outer; o++) copy(whole + o * row + begin, from + o * bytes, bytes);
}

/* Gathers the parts of all workers in `scratch`, after this worker's own parts. Each part is contiguous. */
static strata_status gather_over_workers(job *j, const strata_parts_attrs *attrs, size_t unit, char **out_parts,
                                         strata_error *err) {
    const strata_workers *workers = j->workers;
    size_t *bytes = j->scratch, at = 0;
    char *mine = (char *)(bytes + workers->n);
    sum_parts(workers, attrs, unit, bytes);
    for (int i = 0; i < j->n; i++) {
        const size_t part = (size_t)strata_tensor_bytes(j->members[i].node->inputs[0]);
        copy(mine + at, j->members[i].operand, part);
        at += part;
    }
    *out_parts = mine + bytes[workers->rank];
    return workers->all_gather(workers, mine, *out_parts, bytes, err);
}

static strata_status gather(job *j, strata_error *err) {
    const strata_parts_attrs *attrs = j->members[0].node->attrs;
    size_t outer;
    const size_t unit = inner_of(attrs, &outer) * outer;
    char *parts = NULL;
    if (j->over_workers) STRATA_TRY(gather_over_workers(j, attrs, unit, &parts, err));
    for (int t = 0; t < j->n; t++) {
        if (!j->members[t].takes) continue;
        for (int64_t k = 0; parts && k < attrs->n; k++)
            put_part(attrs, k, parts + (size_t)length_before(attrs, k) * unit, j->members[t].result);
        for (int i = 0; !parts && i < j->n; i++) {
            const strata_parts_attrs *a = j->members[i].node->attrs;
            put_part(attrs, a->own, j->members[i].operand, j->members[t].result);
        }
    }
    return STRATA_OK;
}

/* ---- reduce_scatter ---- */

/* The number of elements in one row of the whole tensor, and in all of it. */
static int64_t row_of(const strata_parts_attrs *attrs, int64_t *out_elements) {
    int64_t row = 1;
    for (int d = 1; d < attrs->common.shape.rank; d++) row *= attrs->common.shape.dims[d];
    *out_elements = row * length_before(attrs, attrs->n);
    return row;
}

/* Adds up the whole tensors of this worker's replicas. Then each worker gets its part of the sum over workers. */
static strata_status scatter_over_workers(job *j, const strata_parts_attrs *attrs, strata_error *err) {
    const strata_workers *workers = j->workers;
    const strata_dtype dtype = attrs->common.dtype;
    int64_t elements;
    const int64_t row = row_of(attrs, &elements);
    size_t *counts = j->scratch;
    char *whole = (char *)(counts + workers->n), *part = whole + bytes_of(dtype, elements);
    sum_parts(workers, attrs, (size_t)row, counts);
    const void *own = j->n_operands == 1 ? j->operands[0] : whole;
    void *sum = whole;
    if (j->n_operands != 1)
        STRATA_TRY(strata_cross_device_host->reduce(NULL, dtype, STRATA_REDUCE_SUM, j->operands, j->n_operands, elements, &sum,
                                                    1, err));
    STRATA_TRY(
        workers->reduce_scatter(workers, dtype, attrs->gradients ? workers->wire : STRATA_DTYPE_F32, own, part, counts, err));
    STRATA_TRY(divide(j, attrs->reduction, part, (int64_t)counts[workers->rank], err));
    for (int i = 0; i < j->n; i++) {
        const strata_parts_attrs *a = j->members[i].node->attrs;
        const size_t bytes = bytes_of(dtype, attrs->lengths[a->own] * row);
        if (j->members[i].takes) copy(j->members[i].result, part, bytes);
        part += bytes;
    }
    return STRATA_OK;
}

static strata_status scatter(job *j, strata_error *err) {
    const strata_parts_attrs *attrs = j->members[0].node->attrs;
    /* Cross-device ops that prepare for a size cannot be used here, so the fold is done on the host, with the same bits. */
    const strata_cross_device_ops *ops = j->ops->prepare ? strata_cross_device_host : j->ops;
    int64_t elements, at = 0;
    const int64_t row = row_of(attrs, &elements);
    if (j->over_workers) return scatter_over_workers(j, attrs, err);
    for (int t = 0; t < j->n; t++) {
        const strata_parts_attrs *a = j->members[t].node->attrs;
        const int64_t first = length_before(attrs, a->own) * row;
        if (!j->members[t].takes || !attrs->lengths[a->own]) continue;
        for (int i = 0; i < j->n_operands; i++)
            j->operands[i] = (const char *)j->operands[i] + (first - at) * (int64_t)strata_dtype_bytes(attrs->common.dtype);
        at = first;
        void *result = j->members[t].result;
        STRATA_TRY(ops->reduce(NULL, attrs->common.dtype, (strata_reduction)attrs->reduction, j->operands, j->n_operands,
                               attrs->lengths[a->own] * row, &result, 1, err));
    }
    return STRATA_OK;
}

/* ---- merge ---- */

static strata_status merge(job *j, strata_error *err) {
    const strata_merge_attrs *attrs = j->members[0].node->attrs;
    return attrs->merge->run(attrs->merge, j->operands, j->n_operands, j->results, j->n_results, err);
}

/* ---- the table ---- */

static const struct {
    const strata_op *op;
    strata_status (*run)(job *j, strata_error *err);
    /* Values of replicas without examples are ignored. */
    bool ignores;
} kinds[] = {
    {&strata_op_all_reduce, fold, true},
    {&strata_op_reduce_to, fold, true},
    {&strata_op_broadcast, broadcast_value, false},
    {&strata_op_all_gather, gather, false},
    {&strata_op_reduce_scatter, scatter, true},
    {&strata_op_send, send_and_receive, false},
    {&strata_op_recv, send_and_receive, false},
    {&strata_op_merge, merge, true},
};

strata_status strata_exchange_run(job *j, strata_error *err) {
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (kinds[k].op != j->members[0].node->op) continue;
        collect(j, kinds[k].ignores);
        return kinds[k].run(j, err);
    }
    return strata_fail(err, STRATA_INTERNAL, "exchange: nobody carries out %s", j->members[0].node->op->name);
}

/* ---- properties of nodes ---- */

static bool is_fold(const strata_tensor *node) {
    return node->op == &strata_op_all_reduce || node->op == &strata_op_reduce_to;
}

bool strata_exchange_is_point(const strata_tensor *node) {
    return node->op == &strata_op_send || node->op == &strata_op_recv;
}

bool strata_exchange_is_parts(const strata_tensor *node) {
    return node->op == &strata_op_all_gather || node->op == &strata_op_reduce_scatter;
}

bool strata_exchange_spans_workers(const strata_tensor *node, const strata_workers *workers) {
    const strata_communication_attrs *common = node->attrs;
    if (!workers || workers->n < 2 || node->op == &strata_op_merge) return false;
    if (strata_exchange_is_point(node)) return ((const strata_point_attrs *)node->attrs)->worker >= 0;
    return strata_team_spans_workers(common->team, workers->first_replica,
                                     workers->first_replicas[workers->rank + 1] - workers->first_replica);
}

bool strata_exchange_is_message(const strata_tensor *node, const strata_workers *workers) {
    const strata_communication_attrs *common = node->attrs;
    const bool pair = node->op == &strata_op_broadcast && common->team.n_members == 2;
    return (pair || strata_exchange_is_point(node)) && strata_exchange_spans_workers(node, workers);
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
    if (!strata_exchange_spans_workers(node, workers)) return 0;
    if (node->n_inputs && strata_exchange_is_message(node, workers)) return 0;
    if (node->op == &strata_op_reduce_scatter) row_of(node->attrs, &elements);
    if (__builtin_mul_overflow(elements, (int64_t)strata_dtype_bytes(common->dtype), &bytes)) return -1;
    /* The parts are: the size of each worker's bytes, this worker's bytes, and the bytes of all workers. */
    if (strata_exchange_is_parts(node) &&
        (__builtin_mul_overflow(bytes, 2, &bytes) ||
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
    const bool pair = strata_exchange_is_point(a) && strata_exchange_is_point(b) && a->op != b->op;
    if ((strata_exchange_is_point(a) ? !pair : a->op != b->op) || x->dtype != y->dtype) return differ(a, b, err);
    if (strata_exchange_is_parts(a)) {
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
