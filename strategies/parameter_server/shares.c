/* SPDX-License-Identifier: Apache-2.0
 *
 * A server's updates from pushes. In synchronous training pushes are stored until their step is closed, and then the shares
 * that count are added in their order. Otherwise each push is an update. */
#include <math.h>

#include "core/run/fold.h"
#include "strategies/parameter_server/stock_parts.h"

void strata_ps_stock_drop_kept(const strata_ps_stock *stock) {
    for (int w = 0; stock->kept && w < stock->opts.n_shares; w++) {
        strata_memory_finish(&stock->kept[w].memory);
        stock->kept[w] = (strata_ps_kept){0};
    }
}

/* Copies n elements of the type `wire` as f32. borrows: values that are f32 are not copied. */
static const float *widened(const strata_ps_stock *stock, strata_memory *memory, const void *from, int64_t n, bool borrows) {
    if (borrows && stock->opts.wire == STRATA_DTYPE_F32) return from;
    float *values = strata_memory_take(memory, n, sizeof *values);
    if (values) strata_ps_widen(stock->opts.wire, from, n, values);
    return values;
}

/* borrows: *out is used only while the push's memory is valid. */
static strata_status keep(const strata_ps_stock *stock, const strata_ps_gradients *g, bool borrows, strata_ps_kept *out,
                          strata_error *err) {
    strata_ps_kept made = {0};
    strata_memory *memory = &made.memory;
    made.dense = widened(stock, memory, g->dense, stock->bundle->dense_elements, borrows);
    made.states = borrows ? g->states : strata_memory_copy(memory, g->states, (size_t)stock->bundle->n_states * sizeof(float));
    made.tables = strata_memory_take(memory, stock->bundle->n_tables, sizeof *made.tables);
    for (int k = 0; k < stock->bundle->n_tables && made.tables; k++) {
        const strata_ps_rows *rows = &g->tables[k];
        made.tables[k] = (strata_ps_rows){
            .n = rows->n,
            .ids = borrows ? rows->ids : strata_memory_copy(memory, rows->ids, (size_t)rows->n * sizeof *rows->ids),
            .values = widened(stock, memory, rows->values, rows->n * stock->bundle->tables[k].row, borrows)};
    }
    if (memory->failed) {
        strata_memory_finish(memory);
        return strata_ps_stock_no_memory(stock, err);
    }
    *out = made;
    return STRATA_OK;
}

strata_status strata_ps_stock_push_for_later(strata_ps_stock *stock, const strata_ps_gradients *g, int64_t *out_staleness,
                                             strata_error *err) {
    *out_staleness = -1;
    if (g->unit.share < 0 || g->unit.share >= stock->opts.n_shares)
        return strata_fail(err, STRATA_INVALID, "parameter_server: share %d of %d", (int)g->unit.share, stock->opts.n_shares);
    if (strata_ps_stock_is_over(stock, g->unit.epoch)) return STRATA_OK;
    if (g->unit.epoch > stock->epoch) {
        strata_ps_stock_start_epoch(stock, g->unit.epoch);
        stock->step = g->unit.index;
    }
    if (g->unit.index < stock->step) return STRATA_OK; /* the unit belongs to a step that is already closed */
    if (g->unit.index > stock->step)
        return strata_fail(err, STRATA_INTERNAL, "parameter_server: a push of step %lld, while step %lld is open",
                           (long long)g->unit.index, (long long)stock->step);
    strata_ps_kept *own = &stock->kept[g->unit.share];
    if (own->dense) return STRATA_OK;
    STRATA_TRY(keep(stock, g, false, own, err));
    *out_staleness = 0;
    return STRATA_OK;
}

/* The sum of the pushes that count, in their order. offset: of the values among those of a push. */
static void fold(const strata_ps_stock *stock, bool states, int64_t offset, int64_t n, float *out) {
    for (int i = 0; i < stock->n_counted; i++)
        stock->operands[i] = (states ? stock->counted[i]->states : stock->counted[i]->dense) + offset;
    void *const results[] = {out};
    strata_fold(STRATA_DTYPE_F32, STRATA_REDUCE_SUM, stock->operands, stock->n_counted, n, results, 1);
}

static void multiply(float *values, int64_t n, double factor) {
    const float by = (float)factor;
    for (int64_t i = 0; i < n && factor != 1; i++) values[i] *= by;
}

/* A row of one share. */
typedef struct row_of_share {
    int32_t id;
    int share;
    const float *values;
} row_of_share;

static int by_row(const void *a, const void *b) {
    const row_of_share *x = a, *y = b;
    return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : x->share - y->share;
}

/* The factor of a sum of gradients: the step's scale, and with clip_global_norm the factor that limits the norm of all servers'
 * gradients. */
static double factor_of(const strata_ps_stock *stock, const strata_ps_close *close) {
    const double norm = stock->most_norm > 0 && close->square > 0 ? sqrt(close->square) : 0;
    return norm > stock->most_norm ? close->scale * (stock->most_norm / norm) : close->scale;
}

/* The rows of table k that any share has, each with the sum over the shares, in memory that is taken. */
static strata_status sum_rows(const strata_ps_stock *stock, int k, strata_memory *memory, strata_ps_rows *out,
                              strata_error *err) {
    const int64_t row = stock->tables[k].shard->row;
    int64_t n = 0, n_sums = 0;
    for (int w = 0; w < stock->n_counted; w++) n += stock->counted[w]->tables[k].n;
    row_of_share *rows = strata_memory_take(memory, n, sizeof *rows);
    int32_t *ids = strata_memory_take(memory, n, sizeof *ids);
    float *sums = strata_memory_take(memory, n * row, sizeof *sums);
    if (memory->failed) return strata_ps_stock_no_memory(stock, err);
    n = 0;
    for (int w = 0; w < stock->n_counted; w++) {
        const strata_ps_rows *own = &stock->counted[w]->tables[k];
        for (int64_t i = 0; i < own->n; i++) rows[n++] = (row_of_share){own->ids[i], w, (const float *)own->values + i * row};
    }
    qsort(rows, (size_t)n, sizeof *rows, by_row);
    for (int64_t i = 0; i < n; i++) {
        float *sum = sums + (n_sums ? n_sums - 1 : 0) * row;
        if (i && rows[i].id == rows[i - 1].id) {
            for (int64_t j = 0; j < row; j++) sum[j] += rows[i].values[j];
        } else {
            ids[n_sums] = rows[i].id;
            memcpy(sums + n_sums++ * row, rows[i].values, (size_t)row * sizeof *sums);
        }
    }
    *out = (strata_ps_rows){n_sums, ids, sums};
    return STRATA_OK;
}

static strata_status fold_rows(strata_ps_stock *stock, int k, double factor, strata_error *err) {
    strata_ps_table *t = &stock->tables[k];
    STRATA_FINISHED(strata_memory) memory = {0};
    strata_ps_rows sums = {0};
    if (stock->n_counted == 1 && factor == 1) return strata_ps_stock_update_rows(stock, t, &stock->counted[0]->tables[k], err);
    STRATA_TRY(sum_rows(stock, k, &memory, &sums, err));
    multiply((float *)sums.values, sums.n * t->shard->row, factor);
    return strata_ps_stock_update_rows(stock, t, &sums, err);
}

static strata_status fold_dense(strata_ps_stock *stock, double factor, strata_error *err) {
    float *gradients = NULL;
    int slot = 0;
    if (!stock->bundle->n_dense) return STRATA_OK;
    STRATA_TRY(strata_ps_stock_open_dense(stock, &slot, &gradients, err));
    for (int i = 0; i < stock->bundle->n_dense; i++) {
        const strata_ps_shard *shard = &stock->bundle->shards[i];
        fold(stock, false, shard->before, shard->n, gradients + stock->dense.places[i]);
        multiply(gradients + stock->dense.places[i], shard->n, factor);
    }
    return strata_ps_stock_run(stock->dense.update, slot, stock->words, err);
}

static strata_status fold_states(strata_ps_stock *stock, strata_error *err) {
    if (!stock->bundle->n_states) return STRATA_OK;
    STRATA_FREED float *sum = calloc((size_t)stock->bundle->n_states, sizeof *sum);
    if (!sum) return strata_ps_stock_no_memory(stock, err);
    fold(stock, true, 0, stock->bundle->n_states, sum);
    for (int64_t i = 0; i < stock->bundle->n_states; i++) stock->states[i] += sum[i] / (float)stock->n_counted;
    return STRATA_OK;
}

/* Makes the update with the sum of the pushes that count. */
static strata_status update(strata_ps_stock *stock, double rate, double factor, strata_error *err) {
    strata_ps_stock_begin_update(stock, rate);
    STRATA_TRY(strata_ps_stock_keep_before(stock, err));
    STRATA_TRY(fold_dense(stock, factor, err));
    for (int k = 0; k < stock->bundle->n_tables; k++) STRATA_TRY(fold_rows(stock, k, factor, err));
    STRATA_TRY(fold_states(stock, err));
    stock->version++;
    return STRATA_OK;
}

strata_status strata_ps_stock_apply(strata_ps_stock *stock, const strata_ps_gradients *g, strata_error *err) {
    strata_ps_kept own;
    STRATA_TRY(keep(stock, g, true, &own, err));
    stock->counted[0] = &own;
    stock->n_counted = 1;
    const strata_status status = update(stock, g->rate, 1, err);
    strata_memory_finish(&own.memory);
    return status;
}

bool strata_ps_stock_has_closed(const strata_ps_stock *stock, const strata_ps_close *close) {
    return strata_ps_stock_is_over(stock, close->epoch) || (close->epoch == stock->epoch && close->index < stock->step);
}

/* Lists the shares of the step that count, all of which were pushed. */
static strata_status list_shares(strata_ps_stock *stock, const strata_ps_close *close, strata_error *err) {
    stock->n_counted = 0;
    if (close->epoch > stock->epoch) { /* no share of this epoch was pushed to this server so far */
        strata_ps_stock_start_epoch(stock, close->epoch);
        stock->step = close->index;
    }
    for (int w = 0; w < stock->opts.n_shares; w++) {
        if (!(close->counted[w / 8] >> (w % 8) & 1)) continue;
        if (close->index != stock->step || !stock->kept[w].dense)
            return strata_fail(err, STRATA_INTERNAL, "parameter_server: share %d of step %lld counts, and was not pushed", w,
                               (long long)close->index);
        stock->counted[stock->n_counted++] = &stock->kept[w];
    }
    return STRATA_OK;
}

static double square_of(const float *values, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)values[i] * (double)values[i];
    return sum;
}

/* The sum of the squares of the open step's gradients. */
static strata_status take_square(strata_ps_stock *stock, const strata_ps_close *close, strata_error *err) {
    const int64_t n = stock->bundle->dense_elements;
    STRATA_FINISHED(strata_memory) memory = {0};
    STRATA_TRY(list_shares(stock, close, err));
    float *folded = strata_memory_take(&memory, n, sizeof *folded);
    if (!folded) return strata_ps_stock_no_memory(stock, err);
    if (stock->n_counted) fold(stock, false, 0, n, folded);
    double sum = square_of(folded, n);
    for (int k = 0; k < stock->bundle->n_tables && stock->n_counted; k++) {
        strata_ps_rows rows = {0};
        STRATA_TRY(sum_rows(stock, k, &memory, &rows, err));
        sum += square_of(rows.values, rows.n * stock->tables[k].shard->row);
    }
    stock->square.epoch = close->epoch;
    stock->square.index = close->index;
    stock->square.value = sum * close->scale * close->scale;
    return STRATA_OK;
}

strata_status strata_ps_stock_square(strata_ps_stock *stock, const strata_ps_close *close, double *out_square,
                                     strata_error *err) {
    STRATA_TRY(strata_ps_stock_check_filled(stock, err));
    if (stock->square.epoch != close->epoch || stock->square.index != close->index) {
        if (strata_ps_stock_has_closed(stock, close))
            return strata_fail(err, STRATA_PEER_LOST, "parameter_server: the norm of step %lld, which is over",
                               (long long)close->index);
        STRATA_TRY(take_square(stock, close, err));
    }
    *out_square = stock->square.value;
    return STRATA_OK;
}

strata_status strata_ps_stock_close(strata_ps_stock *stock, const strata_ps_close *close, strata_error *err) {
    STRATA_TRY(strata_ps_stock_check_filled(stock, err));
    if (strata_ps_stock_has_closed(stock, close)) return STRATA_OK;
    STRATA_TRY(list_shares(stock, close, err));
    if (stock->n_counted) STRATA_TRY(update(stock, close->rate, factor_of(stock, close), err));
    strata_ps_stock_drop_kept(stock);
    stock->step = close->index + 1;
    return STRATA_OK;
}
