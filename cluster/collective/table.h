/* SPDX-License-Identifier: Apache-2.0
 *
 * Measured choices of algorithms, from the user's file. All ranks use the table of rank 0. The file has lines such as "tcp 2
 * 16384 one_shot": transport, ranks, most bytes ("any": no limit), algorithm. Lines of one transport and number of ranks are in
 * ascending order of bytes. Invalid lines are ignored, as a damaged cache must not stop a training. */
#ifndef STRATA_CLUSTER_COLLECTIVE_TABLE_H
#define STRATA_CLUSTER_COLLECTIVE_TABLE_H

#include "strata/cluster.h"

enum { STRATA_TABLE_ROWS = 256, STRATA_TABLE_PATH = 1024 };

typedef struct strata_table_row {
    uint64_t most_bytes;
    int32_t ranks;
    char transport[8];
    /* An index of strata_algorithms. */
    uint32_t algorithm;
} strata_table_row;

typedef struct strata_algorithm_table {
    uint64_t n;
    strata_table_row rows[STRATA_TABLE_ROWS];
} strata_algorithm_table;

/* The algorithm for n_bytes; -1: the table has no row for it. */
int strata_table_find(const strata_algorithm_table *table, const char *transport, int ranks, size_t n_bytes);
/* Sends rank 0's table to every rank; the tables of other ranks are ignored. Called by all ranks. */
STRATA_MUST_USE strata_status strata_table_share(strata_communicator *comm, const char *path, strata_error *err);

#endif
