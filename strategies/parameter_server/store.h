/* SPDX-License-Identifier: Apache-2.0
 *
 * What one server owns: its shards of the parameters, the optimizer's slots of these, and its part of the states; and the
 * updates that it makes with the gradients that workers push. Nothing here knows a network.
 *
 * A *unit* is what a worker computes gradients of: batch `index` of an epoch or, in synchronous training, one share of it. Each
 * unit is applied once: a push of a unit that came before is ignored. In synchronous training a push is only kept; when a step
 * is closed, the shares that count are added up in the order of their numbers, so the bits do not depend on which came first.
 *
 * A *version* counts the updates that the server made. Everything that a pull returns is of one version. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_STORE_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_STORE_H

#include "strategies/parameter_server/partition.h"

typedef struct strata_ps_store strata_ps_store;

enum { STRATA_PS_MOST_SHARES = 1024 };

typedef struct strata_ps_store_options {
    /* How many shares a step has in synchronous training, at most STRATA_PS_MOST_SHARES; 0: each push is an update. */
    int n_shares;
    /* The type in which parameters are pulled and gradients pushed: F32 or BF16. States are always f32. */
    strata_dtype wire;
    /* Where each push is an update: old gradients are corrected for (stale.c). */
    bool corrects;
} strata_ps_store_options;

/* The server's variables are on `device`, which is borrowed, as model and plan are during create. Values are zeros. Fails:
 * OUT_OF_MEMORY with the bytes of the server's shards. */
STRATA_MUST_USE strata_status strata_ps_store_create(const strata_model *model, const strata_ps_plan *plan, int server,
                                                     strata_device *device, const strata_ps_store_options *opts,
                                                     strata_ps_store **out_store, strata_error *err);
void strata_ps_store_destroy(strata_ps_store *store); /* NULL is fine */

/* All values, as strata_ps_plan_value says: (elements). t: the optimizer's count of updates, from which versions go on, so that
 * an owner and its copy have the same ones. set forgets what was pushed and
 * which units were applied; units of an epoch before `epoch` are ignored from then on. Before it the functions below fail with
 * PEER_LOST, as the server that had the values is gone. Threads: any; so of all functions below. */
STRATA_MUST_USE strata_status strata_ps_store_set(strata_ps_store *store, const float *values, int64_t t, int64_t epoch,
                                                  strata_error *err);
STRATA_MUST_USE strata_status strata_ps_store_get(strata_ps_store *store, float *values, int64_t *out_t, strata_error *err);

typedef struct strata_ps_unit {
    int64_t epoch, index;
    /* 0 where each push is an update. */
    int32_t share;
} strata_ps_unit;

/* Rows of a table, each at most once. */
typedef struct strata_ps_rows {
    int64_t n;
    /* [n] Rows of the shard, from 0. */
    const int32_t *ids;
    /* (n, row) In the type `wire`. */
    const void *values;
} strata_ps_rows;

typedef struct strata_ps_gradients {
    strata_ps_unit unit;
    /* The version that they were computed with. */
    int64_t version;
    /* The learning rate of the update, where it was set in place of the schedule's; below 0: the schedule's. */
    double rate;
    /* The gradients of the dense shards, end to end, in the type `wire`. */
    const void *dense;
    /* [tables of this server] */
    const strata_ps_rows *tables;
    /* What is added to the states. */
    const float *states;
} strata_ps_gradients;

/* Where each push is an update, *out_staleness is how many updates the server had made since the version that was pulled; -1:
 * the unit was applied before, and nothing is changed. Fails: INVALID for a row that the table has not. */
STRATA_MUST_USE strata_status strata_ps_store_push(strata_ps_store *store, const strata_ps_gradients *gradients,
                                                   int64_t *out_staleness, strata_error *err);

/* The end of a step of synchronous training. */
typedef struct strata_ps_close {
    int64_t epoch, index;
    /* What the sum of gradients is multiplied by: the examples of the step / those of the shares that count. */
    double scale;
    /* The learning rate of the update, as in strata_ps_gradients. */
    double rate;
    /* With clip_global_norm: the sum of the squares of all servers' gradients of the step; below 0: not known yet. */
    double square;
    /* Bit w % 8 of byte w / 8: share w counts. */
    uint8_t counted[STRATA_PS_MOST_SHARES / 8];
} strata_ps_close;
/* Makes the update. Closing a step again changes nothing. Fails: INTERNAL when a share that counts was not pushed. */
STRATA_MUST_USE strata_status strata_ps_store_close(strata_ps_store *store, const strata_ps_close *close, strata_error *err);
/* Whether the step was closed before. */
bool strata_ps_store_has_closed(strata_ps_store *store, const strata_ps_close *close);
/* Before a step is closed, or until the next one is: the sum of the squares of this server's gradients of the step. Fails: as
 * close; PEER_LOST for a step of a time before the values were set. */
STRATA_MUST_USE strata_status strata_ps_store_square(strata_ps_store *store, const strata_ps_close *close, double *out_square,
                                                     strata_error *err);

/* A copy of the dense shards (in the type `wire`, padded to a multiple of 4 bytes) and behind them the states, which several
 * pulls share. */
typedef struct strata_ps_snapshot strata_ps_snapshot;
const void *strata_ps_snapshot_data(const strata_ps_snapshot *snapshot);
size_t strata_ps_snapshot_bytes(const strata_ps_snapshot *snapshot);
void strata_ps_snapshot_release(void *snapshot);

/* tables: [tables of this server] whose `values` are the rooms for the rows, in the type `wire`. room: memory that gets what a
 * snapshot has; NULL: the caller gets a snapshot, which it releases. ahead: with `corrects`, the dense shards are those that
 * are expected when the gradients computed with them are pushed. Fails: INVALID for a row that the table has not. */
STRATA_MUST_USE strata_status strata_ps_store_pull(strata_ps_store *store, const strata_ps_rows *tables, bool ahead, void *room,
                                                   strata_ps_snapshot **out_snapshot, int64_t *out_version, strata_error *err);

/* Bytes of a tight run of n elements in this type, padded to a multiple of 4. */
static inline size_t strata_ps_wire_bytes(strata_dtype wire, int64_t n) {
    return ((size_t)n * strata_dtype_bytes(wire) + 3) / 4 * 4;
}
/* Copies n elements between f32 and the type `wire`. */
void strata_ps_narrow(strata_dtype wire, const float *from, int64_t n, void *to);
void strata_ps_widen(strata_dtype wire, const void *from, int64_t n, float *to);

#endif
