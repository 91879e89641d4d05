/* SPDX-License-Identifier: Apache-2.0
 *
 * Ring all_reduce, for many ranks: each rank communicates only with two neighbours. The usual ring starts each chunk's sum at a
 * different rank, so its bits depend on an element's position. Here sums are passed from rank 0 up to the last rank, which
 * finishes them, and the results are passed on around the ring. This is done in segments, so that all links are busy: 2 (P-1)
 * hops of latency, then S bytes of sums and S bytes of results on each link, P/(P-1) of the usual ring's bytes. Sums of f16 and
 * bf16 travel as f32.
 *
 * In round t, rank r receives the sum of segment t and the result of segment t-P from rank r-1, and sends to rank r+1 what
 * it received in the previous round. */
#include "cluster/collective/algorithm.h"
#include "cluster/collective/fold.h"

typedef struct chain {
    const strata_operation *op;
    size_t segment, n_segments; /* elements of a segment */
    size_t sum_bytes;           /* the size of one element of a sum */
    char *sum;                  /* one segment */
} chain;

static size_t elements_of(const chain *c, size_t k) {
    const size_t first = k * c->segment;
    return c->op->count - first < c->segment ? c->op->count - first : c->segment;
}

static char *out_at(const chain *c, size_t k) {
    return (char *)c->op->out + k * c->segment * c->op->element_bytes;
}

static void list_messages(const chain *c, size_t t, int *n_sends, int *n_receives) {
    strata_communicator *comm = c->op->comm;
    const int rank = comm->rank, last = comm->world - 1, next = (rank + 1) % comm->world, before = (rank + last) % comm->world;
    const size_t lag = (size_t)comm->world, size = c->op->element_bytes, n = c->n_segments;
    if (rank > 0 && t < n)
        comm->scratch.receives[(*n_receives)++] = (strata_receive){.peer = before, .bytes = elements_of(c, t) * c->sum_bytes};
    if (rank < last && t >= lag && t - lag < n)
        comm->scratch.receives[(*n_receives)++] =
            (strata_receive){.peer = before, .data = out_at(c, t - lag), .bytes = elements_of(c, t - lag) * size};
    if (rank < last && t >= 1 && t - 1 < n)
        comm->scratch.sends[(*n_sends)++] = (strata_send){next, c->sum, elements_of(c, t - 1) * c->sum_bytes};
    if (rank == last && t >= 1 && t - 1 < n)
        comm->scratch.sends[(*n_sends)++] = (strata_send){next, out_at(c, t - 1), elements_of(c, t - 1) * size};
    if (rank < last - 1 && t >= lag + 1 && t - lag - 1 < n)
        comm->scratch.sends[(*n_sends)++] = (strata_send){next, out_at(c, t - lag - 1), elements_of(c, t - lag - 1) * size};
}

/* Adds the own operand to the sum of segment k. */
static void add_own(const chain *c, size_t k) {
    const strata_operation *op = c->op;
    const size_t n = elements_of(c, k);
    const char *own = (const char *)op->in + k * c->segment * op->element_bytes;
    if (op->comm->rank == 0)
        strata_fold_widen(op->dtype, own, n, c->sum);
    else
        strata_fold_add(op->dtype, op->reducer, op->comm->scratch.receives[0].view, own, n, c->sum);
    if (op->comm->rank == op->comm->world - 1)
        strata_fold_finish(op->dtype, op->reducer, c->sum, op->comm->world, n, out_at(c, k));
}

strata_status strata_ring(const strata_operation *op, strata_error *err) {
    strata_communicator *comm = op->comm;
    const size_t sum_bytes = strata_wire_dtype_bytes(strata_fold_sum_type(op->dtype)),
                 segment = comm->segment_bytes / sum_bytes;
    chain c = {.op = op,
               .segment = segment,
               .n_segments = op->count ? (op->count - 1) / segment + 1 : 1,
               .sum_bytes = sum_bytes,
               .sum = strata_communicator_scratch(comm, comm->segment_bytes, err)};
    if (!c.sum) return STRATA_OUT_OF_MEMORY;
    for (size_t t = 0; t <= c.n_segments + (size_t)comm->world; t++) {
        int n_sends = 0, n_receives = 0;
        list_messages(&c, t, &n_sends, &n_receives);
        if (n_sends + n_receives) STRATA_TRY(strata_operation_round(op, n_sends, n_receives, err));
        if (t < c.n_segments) add_own(&c, t);
    }
    return STRATA_OK;
}
