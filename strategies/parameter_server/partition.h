/* SPDX-License-Identifier: Apache-2.0
 *
 * How a model's parameters are cut into shards, and which server owns each.
 *
 * A *shard* is a run of rows of one parameter, or all states together. All *dense* shards of a server are updated and pulled
 * together. A *table* is a shard of a sparse parameter, which is updated and pulled by rows. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_PARTITION_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_PARTITION_H

#include "core/model/model.h"

typedef enum strata_partitioner_kind {
    STRATA_PARTITION_NONE,
    STRATA_PARTITION_FIXED,
    STRATA_PARTITION_MIN_SIZE,
    STRATA_PARTITION_MAX_SIZE
} strata_partitioner_kind;

typedef struct strata_partitioner {
    strata_partitioner_kind kind;
    /* Of FIXED the number of shards, else bytes of a shard. */
    int64_t amount;
} strata_partitioner;

/* "fixed:2", "min_size:256K", "max_size:4M" (K, M, G are powers of 1024); NULL or "none": parameters stay whole. INVALID with
 * what was expected. */
STRATA_MUST_USE strata_status strata_partitioner_parse(const char *text, strata_partitioner *out_partitioner,
                                                       strata_error *err);
/* Into how many shards a parameter of so many rows is cut, 1 to rows. min_size makes as many as have at least the bytes each,
 * but no more than there are servers; max_size as few as have at most the bytes each. */
int64_t strata_partitioner_count(const strata_partitioner *partitioner, int64_t rows, int64_t row_bytes, int n_servers);
/* Shard `index` of n: the first (rows mod n) shards have one row more than the others. */
void strata_partition_rows(int64_t rows, int64_t n, int64_t index, int64_t *out_first, int64_t *out_n);

typedef enum strata_shard_kind { STRATA_SHARD_DENSE, STRATA_SHARD_TABLE, STRATA_SHARD_STATE } strata_shard_kind;

typedef struct strata_ps_shard {
    strata_shard_kind kind;
    /* The parameter's index; -1: the states. */
    int parameter;
    int server;
    /* Rows [first_row, first_row + n_rows) of `row` elements each. */
    int64_t first_row, n_rows, row;
    /* Elements [first, first + n) of the parameters and states (strata_model_place). */
    int64_t first, n;
    /* Elements of the server's shards of this kind before it. */
    int64_t before;
} strata_ps_shard;

/* Who owns what. All tasks make the same plan. */
typedef struct strata_ps_plan {
    int n_servers, n_shards, n_slots;
    /* Server by server; of each the dense shards, then the tables, then the states. */
    strata_ps_shard *shards;
    /* [n_servers + 1] Server s owns shards [begins[s], begins[s + 1]). */
    int *begins;
    /* [n_servers] Elements of its dense shards, of its tables, of its states. */
    struct strata_ps_sizes {
        int64_t dense, tables, states;
        int n_dense, n_tables;
    } * sizes;
} strata_ps_plan;

/* Fails: INVALID when fixed asks for more rows than no parameter has, a server would own nothing, or a parameter is cut whose
 * optimizer or clipping takes its whole norm. */
STRATA_MUST_USE strata_status strata_ps_plan_make(const strata_model *model, const strata_partitioner *partitioner,
                                                  int n_servers, strata_ps_plan *out_plan, strata_error *err);
void strata_ps_plan_finish(strata_ps_plan *plan);
/* How much memory a worker and a server of one machine share in each direction: up to 16 MiB so much that all parameters of the
 * server with the most of them fit twice, else so much that they fit once. Larger ones than 128 MiB go through 16 MiB in
 * segments. */
size_t strata_ps_plan_shared_bytes(const strata_ps_plan *plan);

/* All values of a server lie end to end: its dense shards, their slots one after the other, each table with its slots, its
 * states. How many elements that is, and where value `slot` of a shard begins (0: the parameters, 1: slot 0, ...). */
int64_t strata_ps_plan_elements(const strata_ps_plan *plan, int server);
int64_t strata_ps_plan_value(const strata_ps_plan *plan, const strata_ps_shard *shard, int slot);

#endif
