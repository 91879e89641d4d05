/* SPDX-License-Identifier: Apache-2.0
 *
 * One-shot all_reduce: each rank sends its whole input to all others, and each rank computes the fold. It needs one step and
 * (P-1) S bytes per rank, so it is for small messages. */
#include "cluster/collective/algorithm.h"
#include "cluster/collective/fold.h"

strata_status strata_one_shot(const strata_operation *op, strata_error *err) {
    strata_communicator *comm = op->comm;
    const size_t size = op->element_bytes, most = comm->segment_bytes / size;
    const void **operands = strata_communicator_scratch(comm, (size_t)comm->world * sizeof *operands, err);
    if (!operands) return STRATA_OUT_OF_MEMORY;
    size_t first = 0;
    do {
        const size_t n = op->count - first < most ? op->count - first : most;
        const char *own = (const char *)op->in + first * size;
        int n_receives = 0;
        comm->scratch.sends[0] = (strata_send){STRATA_ALL_PEERS, own, n * size};
        for (int r = 0; r < comm->world; r++)
            if (r != comm->rank) comm->scratch.receives[n_receives++] = (strata_receive){.peer = r, .bytes = n * size};
        STRATA_TRY(strata_operation_round(op, 1, n_receives, err));
        n_receives = 0;
        for (int r = 0; r < comm->world; r++) operands[r] = r == comm->rank ? own : comm->scratch.receives[n_receives++].view;
        strata_fold_ranks(op->dtype, op->reducer, operands, comm->world, n, (char *)op->out + first * size);
        first += n;
    } while (first < op->count);
    return STRATA_OK;
}
