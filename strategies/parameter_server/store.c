/* SPDX-License-Identifier: Apache-2.0
 *
 * A server's shards: setting and reading all values, the units that were applied, pulls, and pushes in asynchronous training
 * (each is an update). The values are in the device's memory. Rows are pulled from it if the host can read that memory, else
 * from a copy of the tables on the host. */
#include "core/base/narrow.h"
#include "core/run/device.h"
#include "strategies/parameter_server/store_parts.h"

strata_status strata_ps_store_no_memory(const strata_ps_store *store, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for %lld elements of a server's shards",
                       (long long)(store->group->dense_elements + store->group->table_elements + store->group->n_states));
}

static size_t value_bytes(const strata_ps_store *store) {
    return strata_dtype_bytes(store->opts.wire);
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

static strata_status make_tables(strata_ps_store *store, strata_error *err) {
    store->tables = strata_memory_take(&store->memory, store->group->n_tables, sizeof *store->tables);
    if (!store->tables) return strata_ps_store_no_memory(store, err);
    for (int k = 0; k < store->group->n_tables; k++) {
        strata_ps_table *t = &store->tables[k];
        t->shard = &store->group->tables[k];
        STRATA_TRY(strata_ps_store_make_variables(store, t->shard->n, &t->parameters, t->slots, err));
        t->values = strata_variable_memory(t->parameters);
        t->copies = !t->values;
        if (t->copies) t->values = strata_memory_take(&store->memory, t->shard->n, sizeof *t->values);
        if (!t->values) return strata_ps_store_no_memory(store, err);
    }
    return STRATA_OK;
}

static strata_status make(strata_ps_store *store, strata_error *err) {
    STRATA_TRY(strata_ps_store_lay_out_dense(store, err));
    store->states = strata_memory_take(&store->memory, store->group->n_states, sizeof *store->states);
    store->kept = strata_memory_take(&store->memory, store->opts.n_shares, sizeof *store->kept);
    store->operands = strata_memory_take(&store->memory, store->opts.n_shares, sizeof(*store->operands));
    if (store->memory.failed) return strata_ps_store_no_memory(store, err);
    if (store->group->n_dense) {
        STRATA_TRY(strata_ps_store_make_variables(store, store->dense.size, &store->dense.parameters, store->dense.slots, err));
        STRATA_TRY(strata_ps_store_compile_dense(store, err));
    }
    return make_tables(store, err);
}

strata_status strata_ps_store_create(const strata_model *model, const strata_ps_plan *plan, int server, strata_device *device,
                                     const strata_ps_store_options *opts, strata_ps_store **out_store, strata_error *err) {
    strata_ps_store *store = calloc(1, sizeof *store);
    if (!store) return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory");
    *store = (strata_ps_store){.opts = *opts,
                               .kind = model->optimizer_kind,
                               .optimizer = model->optimizer,
                               .device = device,
                               .n_slots = plan->n_slots,
                               .group = &plan->groups[server],
                               .epoch = -1};
    /* in asynchronous training the worker clips by the norm, since only it has all gradients */
    store->most_norm = opts->n_shares ? (double)store->optimizer.clip_global_norm : 0;
    store->optimizer.clip_global_norm = 0;
    store->square.epoch = -1;
    strata_ps_store_prepare_for_delay(store);
    const strata_status status = make(store, err);
    if (status)
        strata_ps_store_destroy(store);
    else
        *out_store = store;
    return status;
}

void strata_ps_store_destroy(strata_ps_store *store) {
    if (!store) return;
    for (int k = 0; store->tables && k < store->group->n_tables; k++) {
        strata_ps_table *t = &store->tables[k];
        for (int i = 0; i < STRATA_PS_SIZES; i++) strata_executable_destroy(t->updates[i]);
        strata_variable_destroy(t->parameters);
        for (int s = 0; s < store->n_slots; s++) strata_variable_destroy(t->slots[s]);
    }
    strata_executable_destroy(store->dense.update);
    strata_variable_destroy(store->dense.parameters);
    for (int s = 0; s < store->n_slots; s++) strata_variable_destroy(store->dense.slots[s]);
    strata_ps_store_drop_kept(store);
    free(store->applied);
    free(store->before);
    strata_memory_finish(&store->memory);
    free(store);
}

typedef strata_status (*transfer)(strata_variable *variable, int64_t offset, float *values, int64_t n, strata_error *err);

static strata_status write_range(strata_variable *variable, int64_t offset, float *values, int64_t n, strata_error *err) {
    const strata_array part = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n), values);
    return strata_variable_set_range(variable, offset * (int64_t)sizeof(float), &part, err);
}

/* Moves every value of the server, in the order of strata_ps_plan_value. */
static strata_status move_all(strata_ps_store *store, transfer move, float *values, strata_error *err) {
    for (int j = 0; j <= store->n_slots && store->group->n_dense; j++) {
        strata_variable *variable = j ? store->dense.slots[j - 1] : store->dense.parameters;
        for (int i = 0; i < store->group->n_dense; i++) {
            STRATA_TRY(move(variable, store->dense.places[i], values, store->group->shards[i].n, err));
            values += store->group->shards[i].n;
        }
    }
    for (int k = 0; k < store->group->n_tables; k++) {
        const strata_ps_table *t = &store->tables[k];
        for (int j = 0; j <= store->n_slots; j++, values += t->shard->n)
            STRATA_TRY(move(j ? t->slots[j - 1] : t->parameters, 0, values, t->shard->n, err));
    }
    return STRATA_OK;
}

strata_status strata_ps_store_set(strata_ps_store *store, const float *values, int64_t t, int64_t epoch, strata_error *err) {
    const int64_t n_before = (store->group->dense_elements + store->group->table_elements) * (1 + store->n_slots);
    strata_status status = move_all(store, write_range, (float *)values, err); /* only read */
    memcpy(store->states, values + n_before, (size_t)store->group->n_states * sizeof *values);
    for (int k = 0; k < store->group->n_tables && !status; k++) {
        const strata_ps_table *t = &store->tables[k];
        if (t->copies) status = strata_ps_store_read_range(t->parameters, 0, t->values, t->shard->n, err);
    }
    store->t = store->version = t;
    free(store->before);
    store->before = NULL;
    store->epoch = epoch - 1; /* an epoch's first push or close begins it */
    store->least_epoch = epoch;
    store->step = 0;
    store->square.epoch = -1;
    store->filled = !status;
    strata_ps_store_drop_kept(store);
    return status;
}

strata_status strata_ps_store_check_filled(const strata_ps_store *store, strata_error *err) {
    if (store->filled) return STRATA_OK;
    return strata_fail(err, STRATA_PEER_LOST, "parameter_server: the server started again, and has no values yet");
}

strata_status strata_ps_store_get(strata_ps_store *store, float *values, int64_t *out_t, strata_error *err) {
    const int64_t n_before = (store->group->dense_elements + store->group->table_elements) * (1 + store->n_slots);
    STRATA_TRY(strata_ps_store_check_filled(store, err));
    STRATA_TRY(move_all(store, strata_ps_store_read_range, values, err));
    memcpy(values + n_before, store->states, (size_t)store->group->n_states * sizeof *values);
    *out_t = store->t;
    return STRATA_OK;
}

static strata_status check_rows(const strata_ps_store *store, const strata_ps_rows *tables, strata_error *err) {
    for (int k = 0; k < store->group->n_tables; k++) {
        const int32_t *ids = tables[k].ids;
        int32_t least = 0, most = -1;
        for (int64_t i = 0; i < tables[k].n; i++) {
            least = ids[i] < least ? ids[i] : least;
            most = ids[i] > most ? ids[i] : most;
        }
        if (least < 0 || most >= store->tables[k].shard->n_rows)
            return strata_fail(err, STRATA_INVALID, "parameter_server: row %d of a table of %lld rows",
                               (int)(least < 0 ? least : most), (long long)store->tables[k].shard->n_rows);
    }
    return STRATA_OK;
}

bool strata_ps_store_is_over(const strata_ps_store *store, int64_t epoch) {
    return epoch < store->epoch || epoch < store->least_epoch;
}

void strata_ps_store_start_epoch(strata_ps_store *store, int64_t epoch) {
    if (store->epoch == epoch) return;
    store->epoch = epoch;
    store->step = 0;
    if (store->applied) memset(store->applied, 0, (size_t)store->applied_room);
    strata_ps_store_drop_kept(store);
}

/* Room for the mark of a unit. */
static strata_status grow_marks(strata_ps_store *store, int64_t index, strata_error *err) {
    if (index < 0 || index > INT64_C(1) << 40)
        return strata_fail(err, STRATA_INVALID, "parameter_server: batch %lld of an epoch", (long long)index);
    const int64_t need = index / 8 + 1;
    if (need <= store->applied_room) return STRATA_OK;
    const int64_t room = 2 * need + 64;
    uint8_t *grown = realloc(store->applied, (size_t)room);
    if (!grown) return strata_ps_store_no_memory(store, err);
    memset(grown + store->applied_room, 0, (size_t)(room - store->applied_room));
    store->applied = grown;
    store->applied_room = room;
    return STRATA_OK;
}

static strata_status apply_rows(strata_ps_store *store, int k, const strata_ps_rows *rows, strata_error *err) {
    strata_ps_table *t = &store->tables[k];
    const int64_t n = rows->n * t->shard->row;
    if (store->opts.wire == STRATA_DTYPE_F32) return strata_ps_store_update_rows(store, t, rows, err);
    STRATA_FREED float *wide = malloc((size_t)(n + 1) * sizeof *wide);
    if (!wide) return strata_ps_store_no_memory(store, err);
    strata_ps_widen(store->opts.wire, rows->values, n, wide);
    return strata_ps_store_update_rows(store, t, &(strata_ps_rows){rows->n, rows->ids, wide}, err);
}

static strata_status apply(strata_ps_store *store, const strata_ps_gradients *g, strata_error *err) {
    strata_ps_store_begin_update(store, g->rate);
    STRATA_TRY(strata_ps_store_keep_before(store, err));
    if (store->group->n_dense) {
        const unsigned char *from = g->dense;
        float *gradients = NULL;
        int slot = 0;
        STRATA_TRY(strata_ps_store_open_dense(store, &slot, &gradients, err));
        for (int i = 0; i < store->group->n_dense; i++) {
            strata_ps_widen(store->opts.wire, from, store->group->shards[i].n, gradients + store->dense.places[i]);
            from += (size_t)store->group->shards[i].n * value_bytes(store);
        }
        STRATA_TRY(strata_ps_store_run(store->dense.update, slot, store->words, err));
    }
    for (int k = 0; k < store->group->n_tables; k++) STRATA_TRY(apply_rows(store, k, &g->tables[k], err));
    for (int64_t i = 0; i < store->group->n_states; i++) store->states[i] += g->states[i];
    store->version++;
    return STRATA_OK;
}

static strata_status push_now(strata_ps_store *store, const strata_ps_gradients *g, int64_t *out_staleness, strata_error *err) {
    const int64_t index = g->unit.index;
    *out_staleness = -1;
    if (strata_ps_store_is_over(store, g->unit.epoch)) return STRATA_OK;
    STRATA_TRY(grow_marks(store, index, err));
    strata_ps_store_start_epoch(store, g->unit.epoch);
    if (store->applied[index / 8] >> (index % 8) & 1) return STRATA_OK;
    const int64_t behind = store->version - g->version, staleness = behind > 0 ? behind : 0;
    STRATA_TRY(apply(store, g, err));
    store->applied[index / 8] |= (uint8_t)(1 << (index % 8));
    *out_staleness = staleness;
    return STRATA_OK;
}

strata_status strata_ps_store_push(strata_ps_store *store, const strata_ps_gradients *gradients, int64_t *out_staleness,
                                   strata_error *err) {
    STRATA_TRY(check_rows(store, gradients->tables, err));
    STRATA_TRY(strata_ps_store_check_filled(store, err));
    return (store->opts.n_shares ? strata_ps_store_push_for_later : push_now)(store, gradients, out_staleness, err);
}

/* Writes the dense shards in the type `wire`, followed by the states. ahead: as in strata_ps_store_pull. */
static strata_status write_values(strata_ps_store *store, bool ahead, unsigned char *to, strata_error *err) {
    const size_t dense = strata_ps_wire_bytes(store->opts.wire, store->group->dense_elements);
    const bool narrow = store->opts.wire != STRATA_DTYPE_F32;
    STRATA_FREED float *own = narrow ? malloc((size_t)(store->group->dense_elements + 1) * sizeof *own) : NULL;
    float *wide = narrow ? own : (float *)(void *)to;
    if (!wide) return strata_ps_store_no_memory(store, err);
    STRATA_TRY(strata_ps_store_read_dense(store, wide, err));
    if (ahead) strata_ps_store_look_ahead(store, wide);
    if (narrow) strata_ps_narrow(store->opts.wire, wide, store->group->dense_elements, to);
    memcpy(to + dense, store->states, (size_t)store->group->n_states * sizeof(float));
    return STRATA_OK;
}

static void copy_rows(const strata_ps_store *store, int k, const strata_ps_rows *rows) {
    const int64_t row = store->tables[k].shard->row;
    unsigned char *to = (unsigned char *)rows->values; /* the caller's room */
    for (int64_t i = 0; i < rows->n; i++, to += (size_t)row * value_bytes(store))
        strata_ps_narrow(store->opts.wire, store->tables[k].values + rows->ids[i] * row, row, to);
}

strata_status strata_ps_store_pull(strata_ps_store *store, const strata_ps_rows *tables, bool ahead, void *room,
                                   int64_t *out_version, strata_error *err) {
    STRATA_TRY(check_rows(store, tables, err));
    STRATA_TRY(strata_ps_store_check_filled(store, err));
    STRATA_TRY(write_values(store, ahead, room, err));
    for (int k = 0; k < store->group->n_tables; k++) copy_rows(store, k, &tables[k]);
    *out_version = store->version;
    return STRATA_OK;
}
