/* SPDX-License-Identifier: Apache-2.0
 *
 * How a model's parameters are divided into shards, and which server owns each shard.
 *
 * A *shard* is a range of rows of one parameter, or all states together. All *dense* shards of a server are updated and pulled
 * together. A *table* is a shard of a sparse parameter, of which single rows are updated and pulled. */
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
    /* For FIXED the number of shards, else the bytes of a shard. */
    int64_t amount;
} strata_partitioner;

/* "fixed:2", "min_size:256K", "max_size:4M" (K, M, G are powers of 1024); NULL or "none": parameters stay whole. INVALID with
 * what was expected. */
STRATA_MUST_USE strata_status strata_partitioner_parse(const char *text, strata_partitioner *out_partitioner,
                                                       strata_error *err);
/* How many shards a parameter with this number of rows becomes, 1 to rows. min_size: as many shards as possible of at least
 * `amount` bytes each, but no more than there are servers. max_size: as few as possible of at most `amount` bytes each. */
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
    /* The number of elements of the server's shards of this kind that come before this one. */
    int64_t before;
} strata_ps_shard;

/* All shards of one server. */
typedef struct strata_ps_bundle {
    /* [n_shards] First the dense shards, then the tables, then the states. */
    strata_ps_shard *shards;
    int n_shards, n_dense, n_tables;
    /* [n_tables] */
    const strata_ps_shard *tables;
    /* The number of elements of the dense shards, of the tables and of the states. */
    int64_t dense_elements, table_elements, n_states;
} strata_ps_bundle;

/* Which server owns which shards. All tasks make the same plan. */
typedef struct strata_ps_plan {
    int n_servers, n_shards, n_slots;
    /* Sorted by server. */
    strata_ps_shard *shards;
    /* [n_servers] */
    strata_ps_bundle *bundles;
} strata_ps_plan;

/* Fails: INVALID if fixed needs more rows than any parameter has, if a server would own nothing, or if a parameter is divided
 * although the optimizer or clipping needs the norm of the whole parameter. */
STRATA_MUST_USE strata_status strata_ps_plan_make(const strata_model *model, const strata_partitioner *partitioner,
                                                  int n_servers, strata_ps_plan *out_plan, strata_error *err);
void strata_ps_plan_finish(strata_ps_plan *plan);
/* The bytes of memory that a worker and a server on one machine share in each direction. With n for the bytes of the
 * parameters of the server that has the most of them: 2 n, so that they fit twice, if that is below 16 MiB; else 16 MiB or n,
 * whichever is larger, so that they fit once; but 16 MiB if n exceeds 128 MiB, and the parameters are then sent in segments.
 * A margin is added. */
size_t strata_ps_plan_shared_bytes(const strata_ps_plan *plan);

/* The values of a server are concatenated in this order: its dense shards, the slots of these, each table with its slots, and
 * its states. These functions return how many elements that is, and where value `slot` of a shard begins (0: the parameters, 1:
 * slot 0, ...). */
int64_t strata_ps_plan_elements(const strata_ps_plan *plan, int server);
int64_t strata_ps_plan_value(const strata_ps_plan *plan, const strata_ps_shard *shard, int slot);

#endif
