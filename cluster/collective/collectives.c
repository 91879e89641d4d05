/* SPDX-License-Identifier: Apache-2.0
 *
 * Each collective is a row of a table: the conditions for its arguments, and its implementation by folds and moves. */
#include <stdio.h>

#include "cluster/collective/algorithm.h"
#include "cluster/collective/fold.h"
#include "cluster/wire/crc32c.h"

static const char *const reducer_names[STRATA_REDUCER_COUNT] = {"sum", "mean", "max", "min", "prod"};

/* ---- running ---- */

static strata_status run_all_reduce(const strata_operation *op, strata_error *err) {
    return strata_algorithms[op->call.algorithm].all_reduce(op, err);
}

static strata_status run_reduce(const strata_operation *op, strata_error *err) {
    return strata_fold_slices(op, STRATA_TO_ROOT, err);
}

static strata_status run_reduce_scatter(const strata_operation *op, strata_error *err) {
    return strata_fold_slices(op, STRATA_TO_NONE, err);
}

/* Rank r's part of `whole`, if each rank has its own count. */
static strata_span part_of(const strata_operation *op, const void *whole, int r) {
    const size_t size = op->element_bytes;
    if (op->counts) {
        const strata_slice slice = strata_slice_of(op, r);
        return (strata_span){(const char *)whole + slice.first * size, slice.count * size, true};
    }
    return (strata_span){(const char *)whole + (size_t)r * op->count * size, op->count * size, true};
}

static void copy_own(const void *from, const strata_span *to) {
    if (to->bytes && from != to->data) memcpy((void *)(uintptr_t)to->data, from, to->bytes);
}

/* The root sends directly to all ranks while this costs less than a second step (in shared memory one copy serves all). For
 * more bytes, the root sends a slice to each rank, and each rank sends its slice to all. */
enum { BROADCAST_DIRECT_BYTES = 64 << 10 };

static strata_status run_broadcast(const strata_operation *op, strata_error *err) {
    strata_communicator *comm = op->comm;
    const size_t bytes = op->count * op->element_bytes;
    const bool is_root = comm->rank == op->root;
    strata_span *spans = strata_new_spans(comm), *from = spans + comm->world;
    if (bytes <= BROADCAST_DIRECT_BYTES || comm->world <= 2 || comm->transport->shares_memory) {
        const strata_span all = {op->out, bytes, is_root};
        from[op->root] = (strata_span){op->out, bytes, !is_root};
        return strata_move(op, &all, NULL, from, err);
    }
    for (int r = 0; r < comm->world; r++) {
        const strata_slice slice = strata_slice_of(op, r);
        spans[r] = (strata_span){(char *)op->out + slice.first * op->element_bytes, slice.count * op->element_bytes, true};
    }
    from[op->root] = spans[comm->rank];
    from[op->root].used = !is_root;
    STRATA_TRY(strata_move(op, NULL, is_root ? spans : NULL, from, err));
    const strata_span own = spans[comm->rank];
    return strata_move(op, &own, NULL, spans, err); /* the root gets its own slices back, with the same bytes */
}

static strata_status run_all_gather(const strata_operation *op, strata_error *err) {
    strata_communicator *comm = op->comm;
    strata_span *spans = strata_new_spans(comm);
    for (int r = 0; r < comm->world; r++) spans[r] = part_of(op, op->out, r);
    copy_own(op->in ? op->in : spans[comm->rank].data, &spans[comm->rank]);
    return strata_move(op, &spans[comm->rank], NULL, spans, err);
}

static strata_status run_all_to_all(const strata_operation *op, strata_error *err) {
    strata_communicator *comm = op->comm;
    strata_span *to = strata_new_spans(comm), *from = to + comm->world;
    for (int r = 0; r < comm->world; r++) {
        to[r] = part_of(op, op->in, r);
        from[r] = part_of(op, op->out, r);
    }
    copy_own(to[comm->rank].data, &from[comm->rank]);
    return strata_move(op, NULL, to, from, err);
}

static strata_status run_gather(const strata_operation *op, strata_error *err) {
    strata_communicator *comm = op->comm;
    strata_span *to = strata_new_spans(comm), *from = to + comm->world;
    to[op->root] = (strata_span){op->in, part_of(op, NULL, comm->rank).bytes, comm->rank != op->root};
    for (int r = 0; r < comm->world && comm->rank == op->root; r++) from[r] = part_of(op, op->out, r);
    if (comm->rank == op->root) copy_own(op->in, &from[op->root]);
    return strata_move(op, NULL, to, from, err);
}

static strata_status run_scatter(const strata_operation *op, strata_error *err) {
    strata_communicator *comm = op->comm;
    strata_span *to = strata_new_spans(comm), *from = to + comm->world;
    from[op->root] = (strata_span){op->out, part_of(op, NULL, comm->rank).bytes, true};
    for (int r = 0; r < comm->world && comm->rank == op->root; r++) to[r] = part_of(op, op->in, r);
    if (comm->rank == op->root) copy_own(to[op->root].data, &from[op->root]);
    from[op->root].used = comm->rank != op->root;
    return strata_move(op, NULL, to, from, err);
}

/* After step k, a rank knows that 2^(k+1) ranks have reached the barrier. */
static strata_status run_barrier(const strata_operation *op, strata_error *err) {
    strata_communicator *comm = op->comm;
    for (int step = 1; step < comm->world; step *= 2)
        STRATA_TRY(strata_shift(op, (comm->rank + step) % comm->world, comm, 0, (comm->rank + comm->world - step) % comm->world,
                                comm, 0, err));
    return STRATA_OK;
}

static strata_status run_message(const strata_operation *op, bool sends, strata_error *err) {
    strata_span *peers = strata_new_spans(op->comm);
    peers[op->root] = (strata_span){sends ? op->in : op->out, op->count * op->element_bytes, true};
    return strata_move(op, NULL, sends ? peers : NULL, sends ? NULL : peers, err);
}

static strata_status run_send(const strata_operation *op, strata_error *err) {
    return run_message(op, true, err);
}

static strata_status run_recv(const strata_operation *op, strata_error *err) {
    return run_message(op, false, err);
}

/* ---- arguments ---- */

/* Properties of a collective. FOLDS: it reduces values. ROOTED: one rank is the root. COUNTED: ranks may have different counts.
 * PEER: it is a message to or from one rank, which is given as root. MOVES: it has data. */
enum { FOLDS = 1, ROOTED = 2, COUNTED = 4, PEER = 8, MOVES = 16 };

static const struct {
    const char *name;
    int traits;
    strata_status (*run)(const strata_operation *op, strata_error *err);
} rows[STRATA_COLLECTIVE_COUNT] = {
    [STRATA_ALL_REDUCE] = {"all_reduce", FOLDS | MOVES, run_all_reduce},
    [STRATA_REDUCE] = {"reduce", FOLDS | ROOTED | MOVES, run_reduce},
    [STRATA_BROADCAST] = {"broadcast", ROOTED | MOVES, run_broadcast},
    [STRATA_ALL_GATHER] = {"all_gather", COUNTED | MOVES, run_all_gather},
    [STRATA_REDUCE_SCATTER] = {"reduce_scatter", FOLDS | COUNTED | MOVES, run_reduce_scatter},
    [STRATA_ALL_TO_ALL] = {"all_to_all", MOVES, run_all_to_all},
    [STRATA_GATHER] = {"gather", ROOTED | COUNTED | MOVES, run_gather},
    [STRATA_SCATTER] = {"scatter", ROOTED | COUNTED | MOVES, run_scatter},
    [STRATA_BARRIER] = {"barrier", 0, run_barrier},
    [STRATA_SEND] = {"send", ROOTED | PEER | MOVES, run_send},
    [STRATA_RECV] = {"recv", ROOTED | PEER | MOVES, run_recv},
};

strata_call_string strata_call_text(const strata_call *call) {
    strata_call_string s;
    if (call->kind >= STRATA_COLLECTIVE_COUNT) {
        snprintf(s.text, sizeof s.text, "an unknown collective (%d)", call->kind);
        return s;
    }
    const int traits = rows[call->kind].traits;
    int n = snprintf(s.text, sizeof s.text, "%s", traits & PEER ? "send/recv" : rows[call->kind].name);
    if (!(traits & PEER)) n += snprintf(s.text + n, sizeof s.text - (size_t)n, " %llu", (unsigned long long)call->sequence);
    if (traits & MOVES)
        n += snprintf(s.text + n, sizeof s.text - (size_t)n, " of %llu %s", (unsigned long long)call->count,
                      strata_wire_dtype_name((strata_dtype)call->dtype));
    if (traits & FOLDS && call->reducer < STRATA_REDUCER_COUNT)
        n += snprintf(s.text + n, sizeof s.text - (size_t)n, " (%s)", reducer_names[call->reducer]);
    if (call->counts_crc) n += snprintf(s.text + n, sizeof s.text - (size_t)n, ", counts %08x", call->counts_crc);
    if (traits & ROOTED && !(traits & PEER)) snprintf(s.text + n, sizeof s.text - (size_t)n, ", root %d", call->root);
    return s;
}

static strata_status check_counts(const strata_communicator *comm, const strata_collective *what, size_t size,
                                  strata_error *err) {
    size_t sum = 0;
    for (int r = 0; r < comm->world; r++)
        if (__builtin_add_overflow(sum, what->counts ? what->counts[r] : what->count, &sum) || sum > SIZE_MAX / 2 / size)
            return strata_fail(err, STRATA_INVALID, "%s: the ranks' counts are too large together", rows[what->kind].name);
    return STRATA_OK;
}

static strata_status check(const strata_communicator *comm, const strata_collective *what, size_t size, strata_error *err) {
    const char *name = rows[what->kind].name;
    const int traits = rows[what->kind].traits;
    if (traits & MOVES && !size) return strata_fail(err, STRATA_INVALID, "%s: %d is not a dtype", name, (int)what->dtype);
    if (traits & FOLDS && strata_fold_check(what->dtype, what->reducer, err))
        return strata_fail_in(err, STRATA_INVALID, "%s", name);
    if (traits & ROOTED && (what->root < 0 || what->root >= comm->world))
        return strata_fail(err, STRATA_INVALID, "%s: the %s is %d; it must be a rank, 0 to %d", name,
                           traits & PEER ? "peer" : "root", what->root, comm->world - 1);
    if (traits & PEER && what->root == comm->rank)
        return strata_fail(err, STRATA_INVALID, "%s: rank %d is the calling rank itself", name, what->root);
    if (what->wire && (what->kind != STRATA_ALL_REDUCE || what->dtype != STRATA_DTYPE_F32 ||
                       (what->wire != STRATA_DTYPE_F16 && what->wire != STRATA_DTYPE_BF16)))
        return strata_fail(err, STRATA_INVALID, "%s of %s by way of %s; an all_reduce of f32 can travel as f16 or bf16", name,
                           strata_wire_dtype_name(what->dtype), strata_wire_dtype_name(what->wire));
    if (what->counts && !(traits & COUNTED)) return strata_fail(err, STRATA_INVALID, "%s takes no counts a rank", name);
    return traits & MOVES ? check_counts(comm, what, size, err) : STRATA_OK;
}

static strata_status run_as_it_is(strata_communicator *comm, const strata_collective *what, strata_error *err) {
    if ((unsigned)what->kind >= STRATA_COLLECTIVE_COUNT)
        return strata_fail(err, STRATA_INVALID, "%d is no collective", (int)what->kind);
    const size_t size = strata_wire_dtype_bytes(what->dtype), world = (size_t)comm->world;
    const int traits = rows[what->kind].traits;
    STRATA_TRY(check(comm, what, size, err));
    STRATA_TRY(strata_seat_verdict(comm->seat, err));
    const bool peer = traits & PEER;
    strata_operation op = {.comm = comm,
                           .in = what->in ? what->in : what->out,
                           .out = what->out,
                           .count = traits & MOVES ? what->count : 0,
                           .counts = what->counts,
                           .dtype = what->dtype,
                           .reducer = what->reducer,
                           .root = what->root,
                           .element_bytes = size};
    op.call = (strata_call){.kind = peer ? STRATA_SEND : (uint8_t)what->kind,
                            .dtype = traits & MOVES ? (uint8_t)what->dtype : 0,
                            .reducer = traits & FOLDS ? (uint8_t)what->reducer : 0,
                            .root = traits & ROOTED && !peer ? what->root : 0,
                            .counts_crc = what->counts ? strata_crc32c(0, what->counts, world * sizeof *what->counts) : 0,
                            .communicator = comm->id,
                            .sequence = peer ? 0 : comm->sequence,
                            .count = what->counts ? 0 : op.count};
    if (what->kind == STRATA_ALL_REDUCE) op.call.algorithm = (uint8_t)strata_algorithm_choose(comm, op.count * size);
    if (what->kind == STRATA_ALL_GATHER) op.in = what->in;
    if (what->kind == STRATA_REDUCE_SCATTER && !what->counts) op.count *= world; /* the count of all ranks together */
    if (!peer) atomic_store_explicit(&comm->member->collective, comm->sequence++, memory_order_relaxed);
    return rows[what->kind].run(&op, err);
}

/* Rounds the input to the narrower dtype and computes the collective in that. Folds of f16 and bf16 add in f32 in any case,
 * so the algorithms, their messages, tables and checks need no special case. */
static strata_status run_narrow(strata_communicator *comm, const strata_collective *what, strata_error *err) {
    const size_t size = strata_wire_dtype_bytes(what->wire);
    STRATA_TRY(check(comm, what, sizeof(float), err));
    void *narrow = strata_communicator_narrow(comm, (what->count + 1) * size, err);
    if (!narrow) return STRATA_OUT_OF_MEMORY;
    strata_collective instead = *what;
    instead.in = NULL;
    instead.out = narrow;
    instead.dtype = what->wire;
    instead.wire = STRATA_DTYPE_F32;
    strata_fold_finish(what->wire, STRATA_REDUCER_SUM, what->in ? what->in : what->out, 1, what->count, narrow);
    STRATA_TRY(run_as_it_is(comm, &instead, err));
    strata_fold_widen(what->wire, narrow, what->count, what->out);
    return STRATA_OK;
}

strata_status strata_operation_run(strata_communicator *comm, const strata_collective *what, strata_error *err) {
    const bool narrow = what->wire && what->kind == STRATA_ALL_REDUCE && what->dtype == STRATA_DTYPE_F32 && comm->world > 1;
    return (narrow ? run_narrow : run_as_it_is)(comm, what, err);
}
