/* SPDX-License-Identifier: Apache-2.0
 *
 * What one server owns: its shards of the parameters, the optimizer's slots of these, and its part of the states; and the
 * updates that it makes with the gradients that workers push. This file does not use the network.
 *
 * A *unit* is the work for which a worker computes gradients at once: batch `index` of an epoch or, in synchronous training,
 * one share of it. Each unit is applied once: a second push of the same unit is ignored. In synchronous training a push is only
 * stored; when a step is closed, the shares that count are added in the order of their numbers, so the bits do not depend on
 * the order in which they arrived.
 *
 * A *version* counts the updates that the server made. Everything that a pull returns is of one version. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_STOCK_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_STOCK_H

#include "strategies/parameter_server/partition.h"

typedef struct strata_ps_stock strata_ps_stock;

enum { STRATA_PS_MOST_SHARES = 1024 };

typedef struct strata_ps_stock_options {
    /* How many shares a step has in synchronous training, at most STRATA_PS_MOST_SHARES; 0: each push is an update. */
    int n_shares;
    /* The type in which parameters are pulled and gradients pushed: F32 or BF16. States are always f32. */
    strata_dtype wire;
    /* In asynchronous training: how many updates old a gradient is expected to be, which is corrected (stale.c); 0: nothing is
     * corrected. */
    int staleness;
} strata_ps_stock_options;

/* The server's variables are on `device`, with zeros. Plan and device are borrowed, and the model is during create. Fails:
 * OUT_OF_MEMORY with the bytes of the server's shards. */
STRATA_MUST_USE strata_status strata_ps_stock_create(const strata_model *model, const strata_ps_plan *plan, int server,
                                                     strata_device *device, const strata_ps_stock_options *opts,
                                                     strata_ps_stock **out_stock, strata_error *err);
void strata_ps_stock_destroy(strata_ps_stock *stock); /* NULL is fine */

/* Set and read all values, (elements) in the order of strata_ps_plan_value. t: the optimizer's count of updates, from which
 * versions continue, so that an owner and its copy have the same versions. set forgets stored pushes and which units were
 * applied; after it, units of an epoch before `epoch` are ignored. Before the first set, the functions below fail with
 * PEER_LOST, because the server that had the values is lost. Threads: one at a time uses a stock. */
STRATA_MUST_USE strata_status strata_ps_stock_set(strata_ps_stock *stock, const float *values, int64_t t, int64_t epoch,
                                                  strata_error *err);
STRATA_MUST_USE strata_status strata_ps_stock_get(strata_ps_stock *stock, float *values, int64_t *out_t, strata_error *err);

typedef struct strata_ps_unit {
    int64_t epoch, index;
    /* The number of the share; 0 in asynchronous training. */
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
    /* The learning rate of the update if it was set explicitly; below 0: that of the schedule. */
    double rate;
    /* The gradients of the dense shards, concatenated, in the type `wire`. */
    const void *dense;
    /* [tables of this server] */
    const strata_ps_rows *tables;
    /* The changes that are added to the states. */
    const float *states;
} strata_ps_gradients;

/* In asynchronous training *out_staleness is how many updates the server has made since the version that was pulled; -1: the
 * unit was applied before, and nothing changes. Fails: INVALID for a row that the table does not have. */
STRATA_MUST_USE strata_status strata_ps_stock_push(strata_ps_stock *stock, const strata_ps_gradients *gradients,
                                                   int64_t *out_staleness, strata_error *err);

/* The end of a step of synchronous training. */
typedef struct strata_ps_close {
    int64_t epoch, index;
    /* The factor of the sum of gradients: the examples of the step / the examples of the shares that count. */
    double scale;
    /* The learning rate of the update, as in strata_ps_gradients. */
    double rate;
    /* With clip_global_norm: the sum of the squares of all servers' gradients of the step; below 0: not known yet. */
    double square;
    /* Bit w % 8 of byte w / 8: share w counts. */
    uint8_t counted[STRATA_PS_MOST_SHARES / 8];
} strata_ps_close;
/* Makes the update. Closing a step again changes nothing. Fails: INTERNAL when a share that counts was not pushed. */
STRATA_MUST_USE strata_status strata_ps_stock_close(strata_ps_stock *stock, const strata_ps_close *close, strata_error *err);
/* Whether the step was closed before. */
bool strata_ps_stock_has_closed(const strata_ps_stock *stock, const strata_ps_close *close);
/* The sum of the squares of this server's gradients of a step. It can be called until the next step is closed. Fails: as close;
 * PEER_LOST for a step from before the values were set. */
STRATA_MUST_USE strata_status strata_ps_stock_square(strata_ps_stock *stock, const strata_ps_close *close, double *out_square,
                                                     strata_error *err);

/* Copies the dense shards (in the type `wire`, padded to a multiple of 4 bytes) and the states to `room`.
 *   tables  [tables of this server] whose `values` are the rooms for the rows, in the type `wire`
 *   ahead   the dense shards are extrapolated if the stock corrects old gradients (stale.c)
 * Fails: INVALID for a row that the table does not have. */
STRATA_MUST_USE strata_status strata_ps_stock_pull(strata_ps_stock *stock, const strata_ps_rows *tables, bool ahead, void *room,
                                                   int64_t *out_version, strata_error *err);

/* Bytes of n contiguous elements of this type, padded to a multiple of 4. */
static inline size_t strata_ps_wire_bytes(strata_dtype wire, int64_t n) {
    return ((size_t)n * strata_dtype_bytes(wire) + 3) / 4 * 4;
}
/* Copies n elements between f32 and the type `wire`. */
void strata_ps_narrow(strata_dtype wire, const float *from, int64_t n, void *to);
void strata_ps_widen(strata_dtype wire, const void *from, int64_t n, float *to);

#endif
