/* SPDX-License-Identifier: Apache-2.0
 *
 * A server's shards: setting and reading all values, the units that were applied, and pulls. The values are in the device's
 * memory. Rows are pulled from it if the host can read that memory, else from a copy of the tables on the host. */
#include "core/base/narrow.h"
#include "core/run/device.h"
#include "strategies/parameter_server/stock_parts.h"

strata_status strata_ps_stock_no_memory(const strata_ps_stock *stock, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for %lld elements of a server's shards",
                       (long long)(stock->bundle->dense_elements + stock->bundle->table_elements + stock->bundle->n_states));
}

static size_t value_bytes(const strata_ps_stock *stock) {
    return strata_dtype_bytes(stock->opts.wire);
}

void strata_ps_narrow(strata_dtype wire, const float *from, int64_t n, void *to) {
    if (wire == STRATA_DTYPE_BF16)
        strata_narrow_row(wire, from, (size_t)n, to);
    else
        memcpy(to, from, (size_t)n * sizeof *from);
}

void strata_ps_widen(strata_dtype wire, const void *from, int64_t n, float *to) {
    if (wire == STRATA_DTYPE_BF16)
        strata_widen_row(wire, from, (size_t)n, to);
    else
        memcpy(to, from, (size_t)n * sizeof *to);
}

static strata_status make_tables(strata_ps_stock *stock, strata_error *err) {
    stock->tables = strata_memory_take(&stock->memory, stock->bundle->n_tables, sizeof *stock->tables);
    if (!stock->tables) return strata_ps_stock_no_memory(stock, err);
    for (int k = 0; k < stock->bundle->n_tables; k++) {
        strata_ps_table *t = &stock->tables[k];
        t->shard = &stock->bundle->tables[k];
        STRATA_TRY(strata_ps_stock_make_variables(stock, t->shard->n, &t->parameters, t->slots, err));
        t->values = strata_variable_memory(t->parameters);
        t->copies = !t->values;
        if (t->copies) t->values = strata_memory_take(&stock->memory, t->shard->n, sizeof *t->values);
        if (!t->values) return strata_ps_stock_no_memory(stock, err);
    }
    return STRATA_OK;
}

static strata_status make(strata_ps_stock *stock, strata_error *err) {
    STRATA_TRY(strata_ps_stock_lay_out_dense(stock, err));
    stock->states = strata_memory_take(&stock->memory, stock->bundle->n_states, sizeof *stock->states);
    stock->kept = strata_memory_take(&stock->memory, stock->opts.n_shares, sizeof *stock->kept);
    stock->counted = strata_memory_take(&stock->memory, stock->opts.n_shares + 1, sizeof(*stock->counted));
    stock->operands = strata_memory_take(&stock->memory, stock->opts.n_shares + 1, sizeof(*stock->operands));
    if (stock->memory.failed) return strata_ps_stock_no_memory(stock, err);
    if (stock->bundle->n_dense) {
        STRATA_TRY(strata_ps_stock_make_variables(stock, stock->dense.size, &stock->dense.parameters, stock->dense.slots, err));
        STRATA_TRY(strata_ps_stock_compile_dense(stock, err));
    }
    return make_tables(stock, err);
}

strata_status strata_ps_stock_create(const strata_model *model, const strata_ps_plan *plan, int server, strata_device *device,
                                     const strata_ps_stock_options *opts, strata_ps_stock **out_stock, strata_error *err) {
    strata_ps_stock *stock = calloc(1, sizeof *stock);
    if (!stock) return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory");
    *stock = (strata_ps_stock){.opts = *opts,
                               .kind = model->optimizer_kind,
                               .optimizer = model->optimizer,
                               .device = device,
                               .n_slots = plan->n_slots,
                               .bundle = &plan->bundles[server],
                               .epoch = -1};
    /* in asynchronous training the worker clips by the norm, since only it has all gradients */
    stock->most_norm = opts->n_shares ? (double)stock->optimizer.clip_global_norm : 0;
    stock->optimizer.clip_global_norm = 0;
    stock->square.epoch = -1;
    strata_ps_stock_prepare_for_delay(stock);
    const strata_status status = make(stock, err);
    if (status)
        strata_ps_stock_destroy(stock);
    else
        *out_stock = stock;
    return status;
}

void strata_ps_stock_destroy(strata_ps_stock *stock) {
    if (!stock) return;
    for (int k = 0; stock->tables && k < stock->bundle->n_tables; k++) {
        strata_ps_table *t = &stock->tables[k];
        for (int i = 0; i < STRATA_PS_SIZES; i++) strata_executable_destroy(t->updates[i]);
        strata_variable_destroy(t->parameters);
        for (int s = 0; s < stock->n_slots; s++) strata_variable_destroy(t->slots[s]);
    }
    strata_executable_destroy(stock->dense.update);
    strata_variable_destroy(stock->dense.parameters);
    for (int s = 0; s < stock->n_slots; s++) strata_variable_destroy(stock->dense.slots[s]);
    strata_ps_stock_drop_kept(stock);
    free(stock->applied);
    free(stock->before);
    strata_memory_finish(&stock->memory);
    free(stock);
}

typedef strata_status (*transfer)(strata_variable *variable, int64_t offset, float *values, int64_t n, strata_error *err);

static strata_status write_range(strata_variable *variable, int64_t offset, float *values, int64_t n, strata_error *err) {
    const strata_array part = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n), values);
    return strata_variable_set_range(variable, offset * (int64_t)sizeof(float), &part, err);
}

/* Moves every value of the server, in the order of strata_ps_plan_value. */
static strata_status move_all(strata_ps_stock *stock, transfer move, float *values, strata_error *err) {
    for (int j = 0; j <= stock->n_slots && stock->bundle->n_dense; j++) {
        strata_variable *variable = j ? stock->dense.slots[j - 1] : stock->dense.parameters;
        for (int i = 0; i < stock->bundle->n_dense; i++) {
            STRATA_TRY(move(variable, stock->dense.places[i], values, stock->bundle->shards[i].n, err));
            values += stock->bundle->shards[i].n;
        }
    }
    for (int k = 0; k < stock->bundle->n_tables; k++) {
        const strata_ps_table *t = &stock->tables[k];
        for (int j = 0; j <= stock->n_slots; j++, values += t->shard->n)
            STRATA_TRY(move(j ? t->slots[j - 1] : t->parameters, 0, values, t->shard->n, err));
    }
    return STRATA_OK;
}

strata_status strata_ps_stock_set(strata_ps_stock *stock, const float *values, int64_t t, int64_t epoch, strata_error *err) {
    const int64_t n_before = (stock->bundle->dense_elements + stock->bundle->table_elements) * (1 + stock->n_slots);
    strata_status status = move_all(stock, write_range, (float *)values, err); /* only read */
    memcpy(stock->states, values + n_before, (size_t)stock->bundle->n_states * sizeof *values);
    for (int k = 0; k < stock->bundle->n_tables && !status; k++) {
        const strata_ps_table *t = &stock->tables[k];
        if (t->copies) status = strata_ps_stock_read_range(t->parameters, 0, t->values, t->shard->n, err);
    }
    stock->t = stock->version = t;
    free(stock->before);
    stock->before = NULL;
    stock->epoch = epoch - 1; /* an epoch's first push or close begins it */
    stock->least_epoch = epoch;
    stock->step = 0;
    stock->square.epoch = -1;
    stock->filled = !status;
    strata_ps_stock_drop_kept(stock);
    return status;
}

strata_status strata_ps_stock_check_filled(const strata_ps_stock *stock, strata_error *err) {
    if (stock->filled) return STRATA_OK;
    return strata_fail(err, STRATA_PEER_LOST, "parameter_server: the server started again, and has no values yet");
}

strata_status strata_ps_stock_get(strata_ps_stock *stock, float *values, int64_t *out_t, strata_error *err) {
    const int64_t n_before = (stock->bundle->dense_elements + stock->bundle->table_elements) * (1 + stock->n_slots);
    STRATA_TRY(strata_ps_stock_check_filled(stock, err));
    STRATA_TRY(move_all(stock, strata_ps_stock_read_range, values, err));
    memcpy(values + n_before, stock->states, (size_t)stock->bundle->n_states * sizeof *values);
    *out_t = stock->t;
    return STRATA_OK;
}

static strata_status check_rows(const strata_ps_stock *stock, const strata_ps_rows *tables, strata_error *err) {
    for (int k = 0; k < stock->bundle->n_tables; k++) {
        const int32_t *ids = tables[k].ids;
        int32_t least = 0, most = -1;
        for (int64_t i = 0; i < tables[k].n; i++) {
            least = ids[i] < least ? ids[i] : least;
            most = ids[i] > most ? ids[i] : most;
        }
        if (least < 0 || most >= stock->tables[k].shard->n_rows)
            return strata_fail(err, STRATA_INVALID, "parameter_server: row %d of a table of %lld rows",
                               (int)(least < 0 ? least : most), (long long)stock->tables[k].shard->n_rows);
    }
    return STRATA_OK;
}

bool strata_ps_stock_is_over(const strata_ps_stock *stock, int64_t epoch) {
    return epoch < stock->epoch || epoch < stock->least_epoch;
}

void strata_ps_stock_start_epoch(strata_ps_stock *stock, int64_t epoch) {
    if (stock->epoch == epoch) return;
    stock->epoch = epoch;
    stock->step = 0;
    if (stock->applied) memset(stock->applied, 0, (size_t)stock->applied_room);
    strata_ps_stock_drop_kept(stock);
}

/* Room for the mark of a unit. */
static strata_status grow_marks(strata_ps_stock *stock, int64_t index, strata_error *err) {
    if (index < 0 || index > INT64_C(1) << 40)
        return strata_fail(err, STRATA_INVALID, "parameter_server: batch %lld of an epoch", (long long)index);
    const int64_t need = index / 8 + 1;
    if (need <= stock->applied_room) return STRATA_OK;
    const int64_t room = 2 * need + 64;
    uint8_t *grown = realloc(stock->applied, (size_t)room);
    if (!grown) return strata_ps_stock_no_memory(stock, err);
    memset(grown + stock->applied_room, 0, (size_t)(room - stock->applied_room));
    stock->applied = grown;
    stock->applied_room = room;
    return STRATA_OK;
}

static strata_status push_now(strata_ps_stock *stock, const strata_ps_gradients *g, int64_t *out_staleness, strata_error *err) {
    const int64_t index = g->unit.index;
    *out_staleness = -1;
    if (strata_ps_stock_is_over(stock, g->unit.epoch)) return STRATA_OK;
    STRATA_TRY(grow_marks(stock, index, err));
    strata_ps_stock_start_epoch(stock, g->unit.epoch);
    if (stock->applied[index / 8] >> (index % 8) & 1) return STRATA_OK;
    const int64_t behind = stock->version - g->version, staleness = behind > 0 ? behind : 0;
    STRATA_TRY(strata_ps_stock_apply(stock, g, err));
    stock->applied[index / 8] |= (uint8_t)(1 << (index % 8));
    *out_staleness = staleness;
    return STRATA_OK;
}

strata_status strata_ps_stock_push(strata_ps_stock *stock, const strata_ps_gradients *gradients, int64_t *out_staleness,
                                   strata_error *err) {
    STRATA_TRY(check_rows(stock, gradients->tables, err));
    STRATA_TRY(strata_ps_stock_check_filled(stock, err));
    return (stock->opts.n_shares ? strata_ps_stock_push_for_later : push_now)(stock, gradients, out_staleness, err);
}

/* Writes the dense shards in the type `wire`, followed by the states. ahead: as in strata_ps_stock_pull. */
static strata_status write_values(strata_ps_stock *stock, bool ahead, unsigned char *to, strata_error *err) {
    const size_t dense = strata_ps_wire_bytes(stock->opts.wire, stock->bundle->dense_elements);
    const bool narrow = stock->opts.wire != STRATA_DTYPE_F32;
    STRATA_FREED float *own = narrow ? malloc((size_t)(stock->bundle->dense_elements + 1) * sizeof *own) : NULL;
    float *wide = narrow ? own : (float *)(void *)to;
    if (!wide) return strata_ps_stock_no_memory(stock, err);
    STRATA_TRY(strata_ps_stock_read_dense(stock, wide, err));
    if (ahead) strata_ps_stock_look_ahead(stock, wide);
    if (narrow) strata_ps_narrow(stock->opts.wire, wide, stock->bundle->dense_elements, to);
    memcpy(to + dense, stock->states, (size_t)stock->bundle->n_states * sizeof(float));
    return STRATA_OK;
}

static void copy_rows(const strata_ps_stock *stock, int k, const strata_ps_rows *rows) {
    const int64_t row = stock->tables[k].shard->row;
    unsigned char *to = (unsigned char *)rows->values; /* the caller's room */
    for (int64_t i = 0; i < rows->n; i++, to += (size_t)row * value_bytes(stock))
        strata_ps_narrow(stock->opts.wire, stock->tables[k].values + rows->ids[i] * row, row, to);
}

strata_status strata_ps_stock_pull(strata_ps_stock *stock, const strata_ps_rows *tables, bool ahead, void *room,
                                   int64_t *out_version, strata_error *err) {
    STRATA_TRY(check_rows(stock, tables, err));
    STRATA_TRY(strata_ps_stock_check_filled(stock, err));
    STRATA_TRY(write_values(stock, ahead, room, err));
    for (int k = 0; k < stock->bundle->n_tables; k++) copy_rows(stock, k, &tables[k]);
    *out_version = stock->version;
    return STRATA_OK;
}
