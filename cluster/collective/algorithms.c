/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the algorithm of an all_reduce if the user's table (table.h) has no entry. Measured with `strata bench allreduce
 * --algorithm`; cluster/README.md has the costs. */
#include <stdint.h>

#include "cluster/collective/algorithm.h"
#include "cluster/collective/table.h"

const strata_algorithm strata_algorithms[] = {
#define ALGORITHM(name) {#name, strata_##name},
#include "cluster/collective/algorithms.def"
};
const uint32_t strata_n_algorithms = sizeof strata_algorithms / sizeof *strata_algorithms;
const char *const strata_algorithm_names[] = {
#define ALGORITHM(name) #name,
#include "cluster/collective/algorithms.def"
    NULL};
enum {
#define ALGORITHM(name) ROW_##name,
#include "cluster/collective/algorithms.def"
};

/* The first row that fits is used. A slice is a rank's share of the sum, and the content of a message of two_shot. Rows for
 * several hosts come from the cost model, in which each rank has its own cores: above 4 KiB per slice, transferring the bytes
 * costs more than the fixed cost of a message. There a ring is never the fastest, not even with small segments. Ranks that
 * share the cores of one host profit from its small number of messages. */
static const struct {
    /* The row is only for ranks on several hosts. */
    bool several_hosts;
    /* The row is only for transports without shared memory. */
    bool sends_bytes;
    int most_ranks;
    size_t most_bytes, most_slice;
    int algorithm;
} choices[] = {
    {false, true, 2, 16 << 10, SIZE_MAX, ROW_one_shot},
    {false, true, 8, 8 << 10, SIZE_MAX, ROW_one_shot},
    {true, false, INT32_MAX, SIZE_MAX, 4 << 10, ROW_halving_doubling},
    {true, false, INT32_MAX, SIZE_MAX, SIZE_MAX, ROW_two_shot},
    {false, false, 8, 16 << 10, SIZE_MAX, ROW_one_shot},
    {false, false, 16, 2 << 10, SIZE_MAX, ROW_one_shot},
    {false, false, 16, SIZE_MAX, SIZE_MAX, ROW_two_shot},
    {false, false, INT32_MAX, 256 << 10, SIZE_MAX, ROW_halving_doubling},
    {false, false, INT32_MAX, SIZE_MAX, SIZE_MAX, ROW_ring},
};

strata_status strata_algorithm_find(const char *name, int *out_row, strata_error *err) {
    *out_row = -1;
    for (int i = 0; name && strata_algorithm_names[i]; i++)
        if (!strcmp(strata_algorithm_names[i], name)) *out_row = i;
    if (!name || *out_row >= 0) return STRATA_OK;
#define ALGORITHM(name) " " #name
    return strata_fail(err, STRATA_INVALID, "\"%s\" is no algorithm; there are:%s", name,
#include "cluster/collective/algorithms.def"
    );
}

int strata_algorithm_choose(const strata_communicator *comm, size_t n_bytes) {
    if (comm->algorithm >= 0) return comm->algorithm;
    const int tuned = strata_table_find(comm->table, comm->transport->name, comm->world, n_bytes);
    if (tuned >= 0) return tuned;
    size_t i = 0;
    while ((choices[i].several_hosts && !comm->several_hosts) || comm->world > choices[i].most_ranks ||
           n_bytes > choices[i].most_bytes || n_bytes / (size_t)comm->world > choices[i].most_slice ||
           (choices[i].sends_bytes && comm->transport->shares_memory))
        i++;
    return choices[i].algorithm;
}

strata_slice strata_slice_of(const strata_operation *op, int rank) {
    strata_slice slice = {0, 0};
    if (op->counts) {
        for (int r = 0; r < rank; r++) slice.first += op->counts[r];
        slice.count = op->counts[rank];
        return slice;
    }
    const size_t world = (size_t)op->comm->world, r = (size_t)rank, share = op->count / world, rest = op->count % world;
    slice.first = r * share + (r < rest ? r : rest);
    slice.count = share + (r < rest);
    return slice;
}

strata_status strata_operation_round(const strata_operation *op, int n_sends, int n_receives, strata_error *err) {
    strata_communicator *comm = op->comm;
    if (comm->world == 1) return STRATA_OK;
    for (int i = 0; i < n_sends; i++) {
        const int copies = comm->scratch.sends[i].peer == STRATA_ALL_PEERS ? comm->world - 1 : 1;
        atomic_fetch_add_explicit(&comm->bytes_sent, comm->scratch.sends[i].bytes * (size_t)copies, memory_order_relaxed);
    }
    return comm->transport->round(comm, &op->call, comm->scratch.sends, n_sends, comm->scratch.receives, n_receives, err);
}
