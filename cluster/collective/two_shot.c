/* SPDX-License-Identifier: Apache-2.0
 *
 * Two-shot all_reduce: rank r owns slice r. All ranks send it that slice, it computes the fold, and sends the sum back. Two
 * steps, 2 S (P-1)/P bytes. reduce and reduce_scatter differ only in the ranks to which sums are sent. Round k transfers
 * segment k of the inputs, and the sums of segment k-1. */
#include "cluster/collective/algorithm.h"
#include "cluster/collective/fold.h"

typedef struct pass {
    const strata_operation *op;
    strata_recipients recipients;
    size_t segment, n_segments; /* elements per segment; number of segments of the longest slice */
    const void **operands;      /* [world] */
    /* sums of all segments of the own slice; NULL: they are written directly to their place in `out` */
    char *sum;
} pass;

/* Returns how many elements segment k of the rank's slice has; *out_first: its first element. */
static size_t segment_of(const pass *p, int rank, size_t k, size_t *out_first) {
    const strata_slice slice = strata_slice_of(p->op, rank);
    const size_t begin = k * p->segment;
    if (begin >= slice.count) {
        *out_first = slice.first + slice.count;
        return 0;
    }
    *out_first = slice.first + begin;
    return slice.count - begin < p->segment ? slice.count - begin : p->segment;
}

/* Where this rank writes the sum of segment k of its own slice. */
static char *sum_at(const pass *p, size_t k) {
    const size_t size = p->op->element_bytes;
    size_t first;
    segment_of(p, p->op->comm->rank, k, &first);
    const size_t own_first = strata_slice_of(p->op, p->op->comm->rank).first;
    if (p->sum) return p->sum;
    return (char *)p->op->out + (p->recipients == STRATA_TO_NONE ? first - own_first : first) * size;
}

/* Adds this rank's sends and receives for input segment k to the lists. */
static void add_raw(const pass *p, size_t k, int *n_sends, int *n_receives) {
    const strata_operation *op = p->op;
    strata_communicator *comm = op->comm;
    size_t first;
    const size_t own = segment_of(p, comm->rank, k, &first);
    /* each rank begins with its neighbour, so that not all ranks send to the same one */
    for (int i = 1; i < comm->world; i++) {
        const int to = (comm->rank + i) % comm->world, from = (comm->rank + comm->world - i) % comm->world;
        const size_t n = segment_of(p, to, k, &first);
        comm->scratch.sends[(*n_sends)++] =
            (strata_send){to, (const char *)op->in + first * op->element_bytes, n * op->element_bytes};
        comm->scratch.receives[(*n_receives)++] = (strata_receive){.peer = from, .bytes = own * op->element_bytes};
    }
}

static void add_sums(const pass *p, size_t k, int *n_sends, int *n_receives) {
    const strata_operation *op = p->op;
    strata_communicator *comm = op->comm;
    const bool to_root = p->recipients == STRATA_TO_ROOT;
    size_t first;
    const size_t own = segment_of(p, comm->rank, k, &first) * op->element_bytes;
    if (p->recipients == STRATA_TO_NONE) return;
    if (!to_root || comm->rank != op->root)
        comm->scratch.sends[(*n_sends)++] = (strata_send){to_root ? op->root : STRATA_ALL_PEERS, sum_at(p, k), own};
    for (int i = 1; i < comm->world && (!to_root || comm->rank == op->root); i++) {
        const int from = (comm->rank + comm->world - i) % comm->world;
        const size_t n = segment_of(p, from, k, &first);
        comm->scratch.receives[(*n_receives)++] =
            (strata_receive){.peer = from, .data = (char *)op->out + first * op->element_bytes, .bytes = n * op->element_bytes};
    }
}

static void fold_segment(const pass *p, size_t k) {
    const strata_operation *op = p->op;
    strata_communicator *comm = op->comm;
    size_t first;
    const size_t n = segment_of(p, comm->rank, k, &first);
    p->operands[comm->rank] = (const char *)op->in + first * op->element_bytes;
    for (int i = 0; i + 1 < comm->world; i++) p->operands[comm->scratch.receives[i].peer] = comm->scratch.receives[i].view;
    strata_fold_ranks(op->dtype, op->reducer, p->operands, comm->world, n, sum_at(p, k));
}

strata_status strata_fold_slices(const strata_operation *op, strata_recipients recipients, strata_error *err) {
    strata_communicator *comm = op->comm;
    const bool apart = recipients == STRATA_TO_ROOT && comm->rank != op->root; /* `out` of this rank must not be written */
    const size_t segment = comm->segment_bytes / op->element_bytes, list = (size_t)comm->world * sizeof(void *);
    size_t longest = 0;
    for (int r = 0; r < comm->world; r++) {
        const size_t n = strata_slice_of(op, r).count;
        longest = n > longest ? n : longest;
    }
    char *scratch = strata_communicator_scratch(comm, list + (apart ? comm->segment_bytes : 0), err);
    if (!scratch) return STRATA_OUT_OF_MEMORY;
    const pass p = {.op = op,
                    .recipients = recipients,
                    .segment = segment,
                    .n_segments = longest ? (longest - 1) / segment + 1 : 1,
                    .operands = (const void **)scratch,
                    .sum = apart ? scratch + list : NULL};
    for (size_t k = 0; k <= p.n_segments; k++) {
        int n_sends = 0, n_receives = 0;
        if (k < p.n_segments) add_raw(&p, k, &n_sends, &n_receives);
        if (k > 0) add_sums(&p, k - 1, &n_sends, &n_receives);
        if (n_sends + n_receives) STRATA_TRY(strata_operation_round(op, n_sends, n_receives, err));
        if (k < p.n_segments) fold_segment(&p, k);
    }
    return STRATA_OK;
}

strata_status strata_two_shot(const strata_operation *op, strata_error *err) {
    return strata_fold_slices(op, STRATA_TO_ALL, err);
}
