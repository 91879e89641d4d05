/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of a stock share: stock.c, updates.c, shares.c and stale.c. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_STOCK_PARTS_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_STOCK_PARTS_H

#include "strata/executable.h"
#include "strategies/memory.h"
#include "strategies/parameter_server/stock.h"

/* The sizes for which updates of rows are compiled: STRATA_PS_SIZE_PARTS sizes from each power of two to the next. */
enum { STRATA_PS_SIZE_PARTS = 4, STRATA_PS_SIZES = 26 * STRATA_PS_SIZE_PARTS };

typedef struct strata_ps_table {
    const strata_ps_shard *shard;
    strata_variable *parameters, *slots[STRATA_MAX_OPTIMIZER_SLOTS];
    /* (n_rows, row) The parameters' memory if the host can read it; else a copy, which the table owns. */
    float *values;
    bool copies;
    /* The update of size_of(k) rows; NULL: not needed so far. */
    strata_executable *updates[STRATA_PS_SIZES];
} strata_ps_table;

/* A push that waits for its step's end; its values are f32. */
typedef struct strata_ps_kept {
    strata_memory memory;
    /* NULL: there is none. */
    const float *dense, *states;
    strata_ps_rows *tables;
} strata_ps_kept;

struct strata_ps_stock {
    strata_ps_stock_options opts;
    const strata_optimizer_kind *kind;
    strata_optimizer optimizer;
    strata_device *device;
    int n_slots;
    /* The shards of this server; borrowed. */
    const strata_ps_bundle *bundle;
    /* The arrays below that do not grow. */
    strata_memory memory;
    /* The dense shards, each of which begins at a multiple of STRATA_PARAMETER_ALIGNMENT. */
    struct {
        int64_t size;
        int64_t *places;
        strata_segments segments;
        strata_variable *parameters, *slots[STRATA_MAX_OPTIMIZER_SLOTS];
        strata_executable *update;
        /* The optimizer; the factor of its learning rate; and how many times the last update pulls are extrapolated by
         * (stale.c). */
        strata_optimizer optimizer;
        double rate_factor;
        float look_ahead;
    } dense;
    strata_ps_table *tables;
    float *states;
    /* The number of updates that were made here, and the optimizer's count, which continues when a server is started again. */
    int64_t version, t;
    /* If pulls are extrapolated: the dense shards before the last update, end to end; NULL: none was made since the values were
     * set. */
    float *before;
    /* The values were set. */
    bool filled;
    /* The epoch whose units are counted, and which of them were applied. */
    int64_t epoch;
    /* Units of epochs before this one are from before the values were set, and are ignored. */
    int64_t least_epoch;
    uint8_t *applied;
    int64_t applied_room;
    /* Synchronous: the step that is open, and its pushes [n_shares]. */
    int64_t step;
    strata_ps_kept *kept;
    /* [n_shares + 1] The pushes of the present update, and operands of a sum over them. */
    const strata_ps_kept **counted;
    int n_counted;
    const void **operands;
    /* The numbers of the next update: for the dense shards, and for rows. */
    float words[STRATA_STEP_WORDS], row_words[STRATA_STEP_WORDS];
    /* For synchronous training with clip_global_norm. most_norm: the norm to which gradients are clipped; 0: they are not.
     * Then the squared norm of this server's gradients of one step. */
    double most_norm;
    struct {
        int64_t epoch, index;
        double value;
    } square;
};

/* ---- stock.c ---- */

/* Each function fails with OUT_OF_MEMORY, or like a function of stock.h. */
STRATA_MUST_USE strata_status strata_ps_stock_no_memory(const strata_ps_stock *stock, strata_error *err);
STRATA_MUST_USE strata_status strata_ps_stock_check_filled(const strata_ps_stock *stock, strata_error *err);
/* Whether units of that epoch are ignored, because a later epoch has begun or the values were set since. */
bool strata_ps_stock_is_over(const strata_ps_stock *stock, int64_t epoch);
/* Begins an epoch, at its first push or close; none of its units has been applied. */
void strata_ps_stock_start_epoch(strata_ps_stock *stock, int64_t epoch);

/* ---- updates.c ---- */

/* Computes the place of each dense shard on the device, and its chunks, which are needed for norms of whole parameters. */
STRATA_MUST_USE strata_status strata_ps_stock_lay_out_dense(strata_ps_stock *stock, strata_error *err);
/* Creates variables of n elements for parameters and for each slot, filled with zeros. */
STRATA_MUST_USE strata_status strata_ps_stock_make_variables(strata_ps_stock *stock, int64_t n, strata_variable **parameters,
                                                             strata_variable **slots, strata_error *err);
STRATA_MUST_USE strata_status strata_ps_stock_compile_dense(strata_ps_stock *stock, strata_error *err);
/* Copies n elements of a variable, from element `offset` on, to the host. */
STRATA_MUST_USE strata_status strata_ps_stock_read_range(strata_variable *variable, int64_t offset, float *values, int64_t n,
                                                         strata_error *err);
/* Copies the dense shards to the host, end to end. */
STRATA_MUST_USE strata_status strata_ps_stock_read_dense(const strata_ps_stock *stock, float *values, strata_error *err);
/* Submits the slot with the step's numbers, and waits for it. */
STRATA_MUST_USE strata_status strata_ps_stock_run(strata_executable *exe, int slot, const float *words, strata_error *err);
/* Begins the update of the dense shards: returns the memory to which its gradients must be written. */
STRATA_MUST_USE strata_status strata_ps_stock_open_dense(strata_ps_stock *stock, int *out_slot, float **out_gradients,
                                                         strata_error *err);
/* Updates rows of a table, and its host copy; rows->values are f32 (n, row). */
STRATA_MUST_USE strata_status strata_ps_stock_update_rows(strata_ps_stock *stock, strata_ps_table *t,
                                                          const strata_ps_rows *rows, strata_error *err);
/* Computes the numbers of the next update; rate as in strata_ps_gradients. */
void strata_ps_stock_begin_update(strata_ps_stock *stock, double rate);

/* ---- stale.c ---- */

/* Sets how the dense shards are updated and extrapolated. */
void strata_ps_stock_prepare_for_delay(strata_ps_stock *stock);
/* Stores the dense shards before they are updated, if pulls are extrapolated. */
STRATA_MUST_USE strata_status strata_ps_stock_keep_before(strata_ps_stock *stock, strata_error *err);
/* values: (dense_elements) The dense shards, which are replaced by the extrapolated ones (stale.c). */
void strata_ps_stock_look_ahead(const strata_ps_stock *stock, float *values);

/* ---- shares.c ---- */

/* Forgets the pushes of the open step. */
void strata_ps_stock_drop_kept(const strata_ps_stock *stock);
/* Keeps a push until its step is closed. */
STRATA_MUST_USE strata_status strata_ps_stock_push_for_later(strata_ps_stock *stock, const strata_ps_gradients *g,
                                                             int64_t *out_staleness, strata_error *err);
/* In asynchronous training: makes the update of a push. */
STRATA_MUST_USE strata_status strata_ps_stock_apply(strata_ps_stock *stock, const strata_ps_gradients *g, strata_error *err);

#endif
