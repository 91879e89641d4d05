/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer's own update graphs, one over all dense shards of the server and one for each table and number of rows. The
 * device's memory has the truth; of tables the host has a copy besides, from which rows are pulled. */
#include "strategies/parameter_server/store.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/run/fold.h"
#include "strata/executable.h"
#include "strata/ops.h"
#include "strategies/parameter_server/rows.h"

/* Sizes of updates: LEAST_ROWS, and PARTS of them between each power of two and the next. */
enum { LEAST_ROWS = 64, PARTS = 4, MOST_SIZES = 26 * PARTS };

typedef struct table {
    const strata_ps_shard *shard;
    strata_variable *parameters, *slots[STRATA_MAX_OPTIMIZER_SLOTS];
    /* (n_rows, row) The parameters once more. */
    float *copy;
    /* The update of size_of(k) rows; NULL: not needed so far. */
    strata_executable *updates[MOST_SIZES];
} table;

/* A push that waits for its step's end; its values are f32. */
typedef struct kept {
    float *memory, *dense, *states;
    strata_ps_rows *tables;
} kept;

struct strata_ps_snapshot {
    atomic_int references;
    size_t bytes;
    _Alignas(64) unsigned char data[];
};

struct strata_ps_store {
    pthread_mutex_t lock;
    strata_ps_store_options opts;
    const strata_optimizer_kind *kind;
    strata_optimizer optimizer;
    strata_device *device;
    int n_slots;
    /* This server's own. */
    strata_ps_shard *shards;
    int n_shards, n_dense, n_tables;
    int64_t n_dense_elements, n_table_elements, n_states;
    /* The dense shards, each of which begins at a multiple of STRATA_PARAMETER_ALIGNMENT. */
    struct {
        int64_t size;
        int64_t *places;
        strata_segments segments;
        int32_t *ends, *owner;
        strata_variable *parameters, *slots[STRATA_MAX_OPTIMIZER_SLOTS];
        strata_executable *update;
    } dense;
    table *tables;
    float *states;
    /* Updates that were made here, and the optimizer's count, which goes on over starts. */
    int64_t version, t;
    strata_ps_snapshot *snapshot;
    /* The values were set. */
    bool filled;
    /* The epoch whose units are counted, and which of them were applied. */
    int64_t epoch;
    /* Units of epochs before this one are of a time before the values were set. */
    int64_t least_epoch;
    uint8_t *applied;
    int64_t applied_room;
    /* Synchronous: the step that is open, and its pushes [n_shares]. */
    int64_t step;
    kept *kept;
    const void **operands; /* of a sum over shares */
    /* Numbers of the update that is made next. */
    float words[STRATA_STEP_WORDS];
    /* Synchronous with clip_global_norm: the norm to which gradients are clipped (0: they are not), and the square of this
     * server's part of it, of one step. */
    double most_norm;
    struct {
        int64_t epoch, index;
        double value;
    } square;
};

static strata_status no_memory(const strata_ps_store *store, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for %lld elements of a server's shards",
                       (long long)(store->n_dense_elements + store->n_table_elements + store->n_states));
}

void strata_ps_narrow(strata_dtype wire, const float *from, int64_t n, void *to) {
    if (wire != STRATA_DTYPE_BF16) {
        memcpy(to, from, (size_t)n * sizeof *from);
        return;
    }
    uint16_t *bits = to;
    for (int64_t i = 0; i < n; i++) bits[i] = strata_bf16_from_f32(from[i]);
}

void strata_ps_widen(strata_dtype wire, const void *from, int64_t n, float *to) {
    if (wire != STRATA_DTYPE_BF16) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    const uint16_t *bits = from;
    for (int64_t i = 0; i < n; i++) to[i] = strata_bf16_to_f32(bits[i]);
}

static strata_array view(const float *values, int64_t n) {
    return strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n), (float *)values);
}

static size_t value_bytes(const strata_ps_store *store) {
    return strata_dtype_bytes(store->opts.wire);
}

/* ---- making it ---- */

static const strata_ps_shard *table_shard(const strata_ps_store *store, int k) {
    return &store->shards[store->n_dense + k];
}

/* Where each dense shard lies on the device, and in which chunks, for norms of whole parameters. */
static strata_status lay_out_dense(strata_ps_store *store, strata_error *err) {
    int64_t size = 0;
    store->dense.places = calloc((size_t)store->n_dense + 1, sizeof *store->dense.places);
    if (!store->dense.places) return no_memory(store, err);
    for (int i = 0; i < store->n_dense; i++) {
        store->dense.places[i] = size;
        size += strata_parameter_aligned(store->shards[i].n);
    }
    store->dense.size = size;
    const int64_t n_chunks = size / STRATA_SEGMENT_CHUNK;
    if (n_chunks > INT32_MAX)
        return strata_fail(err, STRATA_INVALID, "parameter_server: a server would own %lld elements; use more servers",
                           (long long)size);
    store->dense.ends = calloc((size_t)store->n_dense + 1, sizeof *store->dense.ends);
    store->dense.owner = calloc((size_t)n_chunks + 1, sizeof *store->dense.owner);
    if (!store->dense.ends || !store->dense.owner) return no_memory(store, err);
    for (int64_t i = 0, chunk = 0; i < store->n_dense; i++) {
        const int64_t end = (store->dense.places[i] + strata_parameter_aligned(store->shards[i].n)) / STRATA_SEGMENT_CHUNK;
        for (; chunk < end; chunk++) store->dense.owner[chunk] = (int32_t)i;
        store->dense.ends[i] = (int32_t)end;
    }
    store->dense.segments =
        (strata_segments){.n = store->n_dense, .n_chunks = n_chunks, .ends = store->dense.ends, .owner = store->dense.owner};
    return STRATA_OK;
}

static strata_status make_variables(strata_ps_store *store, int64_t n, strata_variable **parameters, strata_variable **slots,
                                    strata_error *err) {
    STRATA_TRY(strata_variable_create(store->device, "shards", STRATA_DTYPE_F32, STRATA_SHAPE(n), parameters, err));
    for (int s = 0; s < store->n_slots; s++)
        STRATA_TRY(strata_variable_create(store->device, "optimizer slots", STRATA_DTYPE_F32, STRATA_SHAPE(n), &slots[s], err));
    return STRATA_OK;
}

/* gradients (n), step -> the update of all dense shards. */
static strata_status build_dense(const strata_ps_store *store, strata_graph *graph, strata_tensor **out_update) {
    strata_update u = {.parameters = strata_variable_read(graph, store->dense.parameters),
                       .gradients = strata_input(graph, "gradients", STRATA_DTYPE_F32, STRATA_SHAPE(store->dense.size)),
                       .step = strata_input(graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS)),
                       .gate = strata_scalar(graph, STRATA_DTYPE_F32, 0),
                       .segments = &store->dense.segments};
    strata_tensor *square = NULL;
    for (int s = 0; s < store->n_slots; s++) u.slots[s] = strata_variable_read(graph, store->dense.slots[s]);
    strata_clip_gradients(&store->optimizer, &u.gradients, u.segments, 1, &square);
    *out_update = store->kind->build(&store->optimizer, &u);
    return STRATA_OK;
}

static strata_status compile_dense(strata_ps_store *store, strata_error *err) {
    const strata_executable_options opts = {.n_slots = 1};
    strata_graph *graph = NULL;
    strata_tensor *update = NULL;
    STRATA_TRY(strata_graph_create(&graph, err));
    strata_status status = build_dense(store, graph, &update);
    if (!status) status = strata_graph_check(graph, err);
    if (!status) status = strata_executable_create(store->device, NULL, 0, &update, 1, &opts, &store->dense.update, err);
    strata_graph_destroy(graph);
    return status;
}

/* ids (n), gradients (n, row), step -> the rows as they are after the update. */
static strata_status compile_rows(const strata_ps_store *store, const table *t, int64_t n, strata_executable **out_executable,
                                  strata_error *err) {
    const strata_executable_options opts = {.n_slots = 1};
    const int64_t rows = t->shard->n_rows, row = t->shard->row;
    const strata_shape all = STRATA_SHAPE(rows, row);
    strata_graph *graph = NULL;
    STRATA_TRY(strata_graph_create(&graph, err));
    strata_tensor *ids = strata_input(graph, "ids", STRATA_DTYPE_I32, STRATA_SHAPE(n)), *square = NULL;
    strata_tensor *parameters = strata_variable_read(graph, t->parameters), *slots[STRATA_MAX_OPTIMIZER_SLOTS] = {NULL};
    strata_update u = {.parameters = strata_gather(strata_parameter_view(parameters, 0, all), ids, 0),
                       .gradients = strata_input(graph, "gradients", STRATA_DTYPE_F32, STRATA_SHAPE(n, row)),
                       .step = strata_input(graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS)),
                       .gate = strata_scalar(graph, STRATA_DTYPE_F32, 0)};
    for (int s = 0; s < store->n_slots; s++) {
        slots[s] = strata_variable_read(graph, t->slots[s]);
        u.slots[s] = strata_gather(strata_parameter_view(slots[s], 0, all), ids, 0);
    }
    const strata_segments none = {0};
    if (store->optimizer.clip_value > 0) strata_clip_gradients(&store->optimizer, &u.gradients, &none, 1, &square);
    strata_tensor *changed = store->kind->build(&store->optimizer, &u), *updates[1 + STRATA_MAX_OPTIMIZER_SLOTS];
    updates[0] = strata_scatter_update(parameters, 0, rows, ids, changed, NULL);
    for (int s = 0; s < store->n_slots; s++)
        updates[1 + s] = strata_scatter_update(slots[s], 0, rows, ids, u.slots[s], changed);
    strata_status status = strata_graph_check(graph, err);
    if (!status)
        status = strata_executable_create(store->device, NULL, 0, updates, 1 + store->n_slots, &opts, out_executable, err);
    strata_graph_destroy(graph);
    return status;
}

static strata_status make_tables(strata_ps_store *store, strata_error *err) {
    store->tables = calloc((size_t)store->n_tables + 1, sizeof *store->tables);
    if (!store->tables) return no_memory(store, err);
    for (int k = 0; k < store->n_tables; k++) {
        table *t = &store->tables[k];
        t->shard = table_shard(store, k);
        t->copy = calloc((size_t)t->shard->n + 1, sizeof *t->copy);
        if (!t->copy) return no_memory(store, err);
        STRATA_TRY(make_variables(store, t->shard->n, &t->parameters, t->slots, err));
    }
    return STRATA_OK;
}

static strata_status make(strata_ps_store *store, strata_error *err) {
    STRATA_TRY(lay_out_dense(store, err));
    store->states = calloc((size_t)store->n_states + 1, sizeof *store->states);
    store->kept = calloc((size_t)store->opts.n_shares + 1, sizeof *store->kept);
    store->operands = calloc((size_t)store->opts.n_shares + 1, sizeof(*store->operands));
    if (!store->states || !store->kept || !store->operands) return no_memory(store, err);
    if (store->n_dense) {
        STRATA_TRY(make_variables(store, store->dense.size, &store->dense.parameters, store->dense.slots, err));
        STRATA_TRY(compile_dense(store, err));
    }
    return make_tables(store, err);
}

strata_status strata_ps_store_create(const strata_model *model, const strata_ps_plan *plan, int server, strata_device *device,
                                     const strata_ps_store_options *opts, strata_ps_store **out_store, strata_error *err) {
    const struct strata_ps_sizes *sizes = &plan->sizes[server];
    const int n = plan->begins[server + 1] - plan->begins[server];
    strata_ps_store *store = calloc(1, sizeof *store);
    if (!store) return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory");
    *store = (strata_ps_store){.opts = *opts,
                               .kind = model->optimizer_kind,
                               .optimizer = model->optimizer,
                               .device = device,
                               .n_slots = plan->n_slots,
                               .n_shards = n,
                               .n_dense = sizes->n_dense,
                               .n_tables = sizes->n_tables,
                               .n_dense_elements = sizes->dense,
                               .n_table_elements = sizes->tables,
                               .n_states = sizes->states,
                               .epoch = -1};
    /* Of a push that is an update by itself the worker clips the norm, as it has all gradients. */
    store->most_norm = opts->n_shares ? (double)store->optimizer.clip_global_norm : 0;
    store->optimizer.clip_global_norm = 0;
    store->square.epoch = -1;
    pthread_mutex_init(&store->lock, NULL);
    store->shards = calloc((size_t)n + 1, sizeof *store->shards);
    strata_status status = STRATA_OK;
    if (store->shards)
        memcpy(store->shards, plan->shards + plan->begins[server], (size_t)n * sizeof *store->shards);
    else
        status = no_memory(store, err);
    if (!status) status = make(store, err);
    if (status)
        strata_ps_store_destroy(store);
    else
        *out_store = store;
    return status;
}

static void drop_kept(const strata_ps_store *store) {
    for (int w = 0; store->kept && w < store->opts.n_shares; w++) {
        free(store->kept[w].memory);
        free(store->kept[w].tables);
        store->kept[w] = (kept){0};
    }
}

void strata_ps_store_destroy(strata_ps_store *store) {
    if (!store) return;
    for (int k = 0; store->tables && k < store->n_tables; k++) {
        table *t = &store->tables[k];
        for (int i = 0; i < MOST_SIZES; i++) strata_executable_destroy(t->updates[i]);
        strata_variable_destroy(t->parameters);
        for (int s = 0; s < store->n_slots; s++) strata_variable_destroy(t->slots[s]);
        free(t->copy);
    }
    strata_executable_destroy(store->dense.update);
    strata_variable_destroy(store->dense.parameters);
    for (int s = 0; s < store->n_slots; s++) strata_variable_destroy(store->dense.slots[s]);
    drop_kept(store);
    strata_ps_snapshot_release(store->snapshot);
    free(store->kept);
    free(store->operands);
    free(store->applied);
    free(store->tables);
    free(store->states);
    free(store->dense.places);
    free(store->dense.ends);
    free(store->dense.owner);
    free(store->shards);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

/* ---- all values ---- */

typedef strata_status (*transfer)(strata_variable *variable, int64_t offset, float *values, int64_t n, strata_error *err);

static strata_status write_range(strata_variable *variable, int64_t offset, float *values, int64_t n, strata_error *err) {
    const strata_array part = view(values, n);
    return strata_variable_set_range(variable, offset * (int64_t)sizeof(float), &part, err);
}

static strata_status read_range(strata_variable *variable, int64_t offset, float *values, int64_t n, strata_error *err) {
    strata_array part = view(values, n);
    return strata_variable_get_range(variable, offset * (int64_t)sizeof(float), &part, err);
}

/* Moves every value of the server, in the order of strata_ps_plan_value. */
static strata_status move_all(strata_ps_store *store, transfer move, float *values, strata_error *err) {
    for (int j = 0; j <= store->n_slots && store->n_dense; j++) {
        strata_variable *variable = j ? store->dense.slots[j - 1] : store->dense.parameters;
        for (int i = 0; i < store->n_dense; i++) {
            STRATA_TRY(move(variable, store->dense.places[i], values, store->shards[i].n, err));
            values += store->shards[i].n;
        }
    }
    for (int k = 0; k < store->n_tables; k++) {
        const table *t = &store->tables[k];
        for (int j = 0; j <= store->n_slots; j++, values += t->shard->n)
            STRATA_TRY(move(j ? t->slots[j - 1] : t->parameters, 0, values, t->shard->n, err));
    }
    return STRATA_OK;
}

static void changed(strata_ps_store *store) {
    strata_ps_snapshot_release(store->snapshot);
    store->snapshot = NULL;
}

strata_status strata_ps_store_set(strata_ps_store *store, const float *values, int64_t t, int64_t epoch, strata_error *err) {
    const int64_t n_before = (store->n_dense_elements + store->n_table_elements) * (1 + store->n_slots);
    pthread_mutex_lock(&store->lock);
    strata_status status = move_all(store, write_range, (float *)values, err); /* only read */
    memcpy(store->states, values + n_before, (size_t)store->n_states * sizeof *values);
    for (int k = 0; k < store->n_tables && !status; k++)
        status = read_range(store->tables[k].parameters, 0, store->tables[k].copy, store->tables[k].shard->n, err);
    store->t = t;
    store->epoch = epoch - 1; /* an epoch's first push or close begins it */
    store->least_epoch = epoch;
    store->step = 0;
    store->square.epoch = -1;
    store->filled = !status;
    drop_kept(store);
    changed(store);
    pthread_mutex_unlock(&store->lock);
    return status;
}

static strata_status check_filled(const strata_ps_store *store, strata_error *err) {
    if (store->filled) return STRATA_OK;
    return strata_fail(err, STRATA_PEER_LOST, "parameter_server: the server started again, and has no values yet");
}

strata_status strata_ps_store_get(strata_ps_store *store, float *values, int64_t *out_t, strata_error *err) {
    const int64_t n_before = (store->n_dense_elements + store->n_table_elements) * (1 + store->n_slots);
    pthread_mutex_lock(&store->lock);
    strata_status status = check_filled(store, err);
    if (!status) status = move_all(store, read_range, values, err);
    memcpy(values + n_before, store->states, (size_t)store->n_states * sizeof *values);
    *out_t = store->t;
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* ---- updates ---- */

static strata_status run(strata_executable *exe, int slot, const float *words, strata_error *err) {
    const int step = strata_executable_input_index(exe, "step");
    if (step >= 0) memcpy(strata_executable_input(exe, slot, step), words, STRATA_STEP_WORDS * sizeof *words);
    STRATA_TRY(strata_executable_submit(exe, slot, err));
    return strata_executable_wait(exe, slot, err);
}

/* Begins the update of the dense shards: where its gradients are to be written. */
static strata_status open_dense(strata_ps_store *store, int *out_slot, float **out_gradients, strata_error *err) {
    STRATA_TRY(strata_executable_acquire(store->dense.update, out_slot, err));
    const int index = strata_executable_input_index(store->dense.update, "gradients");
    *out_gradients = strata_executable_input(store->dense.update, *out_slot, index);
    for (int i = 0; i < store->n_dense; i++) {
        const int64_t n = store->shards[i].n, all = strata_parameter_aligned(n);
        memset(*out_gradients + store->dense.places[i] + n, 0, (size_t)(all - n) * sizeof(float));
    }
    return STRATA_OK;
}

static int64_t size_of(int k) {
    return (int64_t)LEAST_ROWS * (PARTS + k % PARTS) / PARTS << k / PARTS;
}

/* The executable for at least n rows. */
static strata_status rows_update(strata_ps_store *store, table *t, int64_t n, int64_t *out_room, strata_executable **out_exe,
                                 strata_error *err) {
    int k = 0;
    while (size_of(k) < n && k < MOST_SIZES - 1) k++;
    *out_room = size_of(k);
    if (!t->updates[k]) STRATA_TRY(compile_rows(store, t, *out_room, &t->updates[k], err));
    *out_exe = t->updates[k];
    return STRATA_OK;
}

/* rows->values are f32 (n, row). */
static strata_status update_rows(strata_ps_store *store, table *t, const strata_ps_rows *rows, strata_error *err) {
    enum { GAP_BYTES = 512 }; /* a call of a driver costs as much as a copy of so much, or more */
    const size_t row = (size_t)t->shard->row;
    strata_executable *exe = NULL;
    int64_t room = 0;
    int slot = 0;
    if (!rows->n || !row) return STRATA_OK;
    STRATA_TRY(rows_update(store, t, rows->n, &room, &exe, err));
    STRATA_TRY(strata_executable_acquire(exe, &slot, err));
    int32_t *ids = strata_executable_input(exe, slot, strata_executable_input_index(exe, "ids"));
    float *gradients = strata_executable_input(exe, slot, strata_executable_input_index(exe, "gradients"));
    memcpy(ids, rows->ids, (size_t)rows->n * sizeof *ids);
    memcpy(gradients, rows->values, (size_t)rows->n * row * sizeof *gradients);
    for (int64_t i = rows->n; i < room; i++) ids[i] = -1;
    memset(gradients + (size_t)rows->n * row, 0, (size_t)(room - rows->n) * row * sizeof *gradients);
    STRATA_TRY(run(exe, slot, store->words, err));
    /* Rows that lie close to each other are read together, with those between them, which did not change. */
    const int64_t reach = 1 + GAP_BYTES / (int64_t)(row * sizeof *gradients);
    for (int64_t i = 0, first = 0; i < rows->n; i++) {
        const int64_t step = i + 1 < rows->n ? (int64_t)rows->ids[i + 1] - rows->ids[i] : 0;
        if (step > 0 && step <= reach) continue;
        const int64_t begin = rows->ids[first] * (int64_t)row, end = (rows->ids[i] + 1) * (int64_t)row;
        STRATA_TRY(read_range(t->parameters, begin, t->copy + begin, end - begin, err));
        first = i + 1;
    }
    return STRATA_OK;
}

static void begin_update(strata_ps_store *store, double rate) {
    const strata_optimizer settings = strata_optimizer_with_rate(&store->optimizer, rate);
    store->t++;
    strata_optimizer_step(store->kind, &settings, store->t, store->words);
    store->words[STRATA_STEP_SCALE] = 1;
}

static strata_status check_rows(const strata_ps_store *store, const strata_ps_rows *tables, strata_error *err) {
    for (int k = 0; k < store->n_tables; k++)
        for (int64_t i = 0; i < tables[k].n; i++)
            if (tables[k].ids[i] < 0 || tables[k].ids[i] >= store->tables[k].shard->n_rows)
                return strata_fail(err, STRATA_INVALID, "parameter_server: row %d of a table of %lld rows",
                                   (int)tables[k].ids[i], (long long)store->tables[k].shard->n_rows);
    return STRATA_OK;
}

static bool is_over(const strata_ps_store *store, int64_t epoch) {
    return epoch < store->epoch || epoch < store->least_epoch;
}

static void start_epoch(strata_ps_store *store, int64_t epoch) {
    if (store->epoch == epoch) return;
    store->epoch = epoch;
    store->step = 0;
    if (store->applied) memset(store->applied, 0, (size_t)store->applied_room);
    drop_kept(store);
}

/* Room for the mark of a unit. */
static strata_status grow_marks(strata_ps_store *store, int64_t index, strata_error *err) {
    const int64_t need = index / 8 + 1;
    if (need <= store->applied_room) return STRATA_OK;
    if (index < 0 || index > INT64_C(1) << 40)
        return strata_fail(err, STRATA_INVALID, "parameter_server: batch %lld of an epoch", (long long)index);
    const int64_t room = 2 * need + 64;
    uint8_t *grown = realloc(store->applied, (size_t)room);
    if (!grown) return no_memory(store, err);
    memset(grown + store->applied_room, 0, (size_t)(room - store->applied_room));
    store->applied = grown;
    store->applied_room = room;
    return STRATA_OK;
}

/* ---- each push is an update ---- */

static strata_status apply_rows(strata_ps_store *store, int k, const strata_ps_rows *rows, strata_error *err) {
    table *t = &store->tables[k];
    const int64_t n = rows->n * t->shard->row;
    if (store->opts.wire == STRATA_DTYPE_F32) return update_rows(store, t, rows, err);
    float *wide = malloc((size_t)(n + 1) * sizeof *wide);
    if (!wide) return no_memory(store, err);
    strata_ps_widen(store->opts.wire, rows->values, n, wide);
    const strata_status status = update_rows(store, t, &(strata_ps_rows){rows->n, rows->ids, wide}, err);
    free(wide);
    return status;
}

static strata_status apply(strata_ps_store *store, const strata_ps_gradients *g, strata_error *err) {
    begin_update(store, g->rate);
    if (store->n_dense) {
        const unsigned char *from = g->dense;
        float *gradients = NULL;
        int slot = 0;
        STRATA_TRY(open_dense(store, &slot, &gradients, err));
        for (int i = 0; i < store->n_dense; i++) {
            strata_ps_widen(store->opts.wire, from, store->shards[i].n, gradients + store->dense.places[i]);
            from += (size_t)store->shards[i].n * value_bytes(store);
        }
        STRATA_TRY(run(store->dense.update, slot, store->words, err));
    }
    for (int k = 0; k < store->n_tables; k++) STRATA_TRY(apply_rows(store, k, &g->tables[k], err));
    for (int64_t i = 0; i < store->n_states; i++) store->states[i] += g->states[i];
    store->version++;
    changed(store);
    return STRATA_OK;
}

static strata_status push_now(strata_ps_store *store, const strata_ps_gradients *g, int64_t *out_staleness, strata_error *err) {
    const int64_t index = g->unit.index;
    *out_staleness = -1;
    if (is_over(store, g->unit.epoch)) return STRATA_OK;
    STRATA_TRY(grow_marks(store, index, err));
    start_epoch(store, g->unit.epoch);
    if (store->applied[index / 8] >> (index % 8) & 1) return STRATA_OK;
    const int64_t staleness = store->version - g->version;
    STRATA_TRY(apply(store, g, err));
    store->applied[index / 8] |= (uint8_t)(1 << (index % 8));
    *out_staleness = staleness > 0 ? staleness : 0;
    return STRATA_OK;
}

/* ---- synchronous ---- */

static strata_status keep(strata_ps_store *store, const strata_ps_gradients *g, kept *out, strata_error *err) {
    int64_t n_rows = 0, n_ids = 0;
    for (int k = 0; k < store->n_tables; k++) {
        n_rows += g->tables[k].n * store->tables[k].shard->row;
        n_ids += g->tables[k].n;
    }
    const int64_t n = store->n_dense_elements + store->n_states + n_rows + n_ids;
    kept made = {.memory = malloc((size_t)(n + 1) * sizeof(float)),
                 .tables = calloc((size_t)store->n_tables + 1, sizeof *made.tables)};
    if (!made.memory || !made.tables) {
        free(made.memory);
        free(made.tables);
        return no_memory(store, err);
    }
    made.dense = made.memory;
    made.states = made.dense + store->n_dense_elements;
    float *at = made.states + store->n_states;
    strata_ps_widen(store->opts.wire, g->dense, store->n_dense_elements, made.dense);
    if (store->n_states) memcpy(made.states, g->states, (size_t)store->n_states * sizeof(float));
    for (int k = 0; k < store->n_tables; k++) {
        const int64_t rows = g->tables[k].n, elements = rows * store->tables[k].shard->row;
        memcpy(at, g->tables[k].ids, (size_t)rows * sizeof(int32_t));
        made.tables[k] = (strata_ps_rows){rows, (int32_t *)(void *)at, at + rows};
        strata_ps_widen(store->opts.wire, g->tables[k].values, elements, at + rows);
        at += rows + elements;
    }
    *out = made;
    return STRATA_OK;
}

static strata_status push_for_later(strata_ps_store *store, const strata_ps_gradients *g, int64_t *out_staleness,
                                    strata_error *err) {
    *out_staleness = -1;
    if (g->unit.share < 0 || g->unit.share >= store->opts.n_shares)
        return strata_fail(err, STRATA_INVALID, "parameter_server: share %d of %d", (int)g->unit.share, store->opts.n_shares);
    if (is_over(store, g->unit.epoch)) return STRATA_OK;
    if (g->unit.epoch > store->epoch) {
        start_epoch(store, g->unit.epoch);
        store->step = g->unit.index;
    }
    if (g->unit.index < store->step) return STRATA_OK; /* of a step that is closed */
    if (g->unit.index > store->step)
        return strata_fail(err, STRATA_INTERNAL, "parameter_server: a push of step %lld, while step %lld is open",
                           (long long)g->unit.index, (long long)store->step);
    kept *own = &store->kept[g->unit.share];
    if (own->memory) return STRATA_OK;
    STRATA_TRY(keep(store, g, own, err));
    *out_staleness = 0;
    return STRATA_OK;
}

static bool counts(const strata_ps_close *close, int share) {
    return close->counted[share / 8] >> (share % 8) & 1;
}

/* The sum of the shares that count, in their order. offset: of the values among those of a kept push. operands: [n_shares]. */
static int fold(const strata_ps_store *store, const strata_ps_close *close, bool states, int64_t offset, int64_t n,
                const void **operands, float *out) {
    int n_counted = 0;
    for (int w = 0; w < store->opts.n_shares; w++)
        if (counts(close, w)) operands[n_counted++] = (states ? store->kept[w].states : store->kept[w].dense) + offset;
    void *const results[] = {out};
    strata_fold(STRATA_DTYPE_F32, STRATA_REDUCE_SUM, operands, n_counted, n, results, 1);
    return n_counted;
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

/* What a sum of gradients is multiplied by: the step's scale, and with clip_global_norm what brings the norm of all servers'
 * gradients to its bound. */
static double factor_of(const strata_ps_store *store, const strata_ps_close *close) {
    const double norm = store->most_norm > 0 && close->square > 0 ? sqrt(close->square) : 0;
    return norm > store->most_norm ? close->scale * (store->most_norm / norm) : close->scale;
}

/* The rows of table k that any share has, each with the sum over the shares. The caller frees ids and values of *out. */
static strata_status sum_rows(const strata_ps_store *store, const strata_ps_close *close, int k, strata_ps_rows *out,
                              strata_error *err) {
    const int64_t row = store->tables[k].shard->row;
    int64_t n = 0, n_sums = 0;
    for (int w = 0; w < store->opts.n_shares; w++) n += counts(close, w) ? store->kept[w].tables[k].n : 0;
    row_of_share *rows = malloc((size_t)(n + 1) * sizeof *rows);
    int32_t *ids = malloc((size_t)(n + 1) * sizeof *ids);
    float *sums = malloc((size_t)(n * row + 1) * sizeof *sums);
    strata_status status = rows && ids && sums ? STRATA_OK : no_memory(store, err);
    n = 0;
    for (int w = 0; w < store->opts.n_shares && !status; w++) {
        const strata_ps_rows *own = counts(close, w) ? &store->kept[w].tables[k] : NULL;
        for (int64_t i = 0; own && i < own->n; i++)
            rows[n++] = (row_of_share){own->ids[i], w, (const float *)own->values + i * row};
    }
    if (!status) qsort(rows, (size_t)n, sizeof *rows, by_row);
    for (int64_t i = 0; i < n && !status; i++) {
        float *sum = sums + (n_sums ? n_sums - 1 : 0) * row;
        if (i && rows[i].id == rows[i - 1].id) {
            for (int64_t j = 0; j < row; j++) sum[j] += rows[i].values[j];
        } else {
            ids[n_sums] = rows[i].id;
            memcpy(sums + n_sums++ * row, rows[i].values, (size_t)row * sizeof *sums);
        }
    }
    free(rows);
    *out = (strata_ps_rows){n_sums, ids, sums};
    return status;
}

static void free_rows(strata_ps_rows *rows) {
    free((void *)rows->ids);
    free((void *)rows->values);
}

static strata_status fold_rows(strata_ps_store *store, const strata_ps_close *close, int k, strata_error *err) {
    table *t = &store->tables[k];
    strata_ps_rows sums = {0};
    strata_status status = sum_rows(store, close, k, &sums, err);
    if (!status) {
        multiply((float *)sums.values, sums.n * t->shard->row, factor_of(store, close));
        status = update_rows(store, t, &sums, err);
    }
    free_rows(&sums);
    return status;
}

static strata_status fold_dense(strata_ps_store *store, const strata_ps_close *close, strata_error *err) {
    float *gradients = NULL;
    int slot = 0;
    if (!store->n_dense) return STRATA_OK;
    STRATA_TRY(open_dense(store, &slot, &gradients, err));
    for (int i = 0; i < store->n_dense; i++) {
        const strata_ps_shard *shard = &store->shards[i];
        fold(store, close, false, shard->before, shard->n, store->operands, gradients + store->dense.places[i]);
        multiply(gradients + store->dense.places[i], shard->n, factor_of(store, close));
    }
    return run(store->dense.update, slot, store->words, err);
}

static strata_status fold_states(strata_ps_store *store, const strata_ps_close *close, strata_error *err) {
    if (!store->n_states) return STRATA_OK;
    float *sum = calloc((size_t)store->n_states, sizeof *sum);
    if (!sum) return no_memory(store, err);
    const int n = fold(store, close, true, 0, store->n_states, store->operands, sum);
    for (int64_t i = 0; i < store->n_states && n; i++) store->states[i] += sum[i] / (float)n;
    free(sum);
    return STRATA_OK;
}

static bool has_closed(const strata_ps_store *store, const strata_ps_close *close) {
    return is_over(store, close->epoch) || (close->epoch == store->epoch && close->index < store->step);
}

/* How many shares of the step count, all of which were pushed. */
static strata_status count_shares(strata_ps_store *store, const strata_ps_close *close, int *out_n, strata_error *err) {
    *out_n = 0;
    if (close->epoch > store->epoch) { /* nothing was pushed to this server in the epoch so far */
        start_epoch(store, close->epoch);
        store->step = close->index;
    }
    for (int w = 0; w < store->opts.n_shares; w++) {
        if (!counts(close, w)) continue;
        ++*out_n;
        if (close->index != store->step || !store->kept[w].memory)
            return strata_fail(err, STRATA_INTERNAL, "parameter_server: share %d of step %lld counts, and was not pushed", w,
                               (long long)close->index);
    }
    return STRATA_OK;
}

static double square_of(const float *values, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)values[i] * (double)values[i];
    return sum;
}

/* The sum of the squares of the open step's gradients. */
static strata_status take_square(strata_ps_store *store, const strata_ps_close *close, strata_error *err) {
    int n_counted = 0;
    double sum = 0;
    STRATA_TRY(count_shares(store, close, &n_counted, err));
    float *folded = malloc((size_t)(store->n_dense_elements + 1) * sizeof *folded);
    if (!folded) return no_memory(store, err);
    if (n_counted) {
        fold(store, close, false, 0, store->n_dense_elements, store->operands, folded);
        sum = square_of(folded, store->n_dense_elements);
    }
    free(folded);
    for (int k = 0; k < store->n_tables && n_counted; k++) {
        strata_ps_rows rows = {0};
        const strata_status status = sum_rows(store, close, k, &rows, err);
        if (!status) sum += square_of(rows.values, rows.n * store->tables[k].shard->row);
        free_rows(&rows);
        if (status) return status;
    }
    store->square.epoch = close->epoch;
    store->square.index = close->index;
    store->square.value = sum * close->scale * close->scale;
    return STRATA_OK;
}

static strata_status square_of_step(strata_ps_store *store, const strata_ps_close *close, strata_error *err) {
    if (store->square.epoch == close->epoch && store->square.index == close->index) return STRATA_OK;
    if (!has_closed(store, close)) return take_square(store, close, err);
    return strata_fail(err, STRATA_PEER_LOST, "parameter_server: the norm of step %lld, which is over",
                       (long long)close->index);
}

strata_status strata_ps_store_square(strata_ps_store *store, const strata_ps_close *close, double *out_square,
                                     strata_error *err) {
    pthread_mutex_lock(&store->lock);
    strata_status status = check_filled(store, err);
    if (!status) status = square_of_step(store, close, err);
    *out_square = store->square.value;
    pthread_mutex_unlock(&store->lock);
    return status;
}

bool strata_ps_store_has_closed(strata_ps_store *store, const strata_ps_close *close) {
    pthread_mutex_lock(&store->lock);
    const bool closed = has_closed(store, close);
    pthread_mutex_unlock(&store->lock);
    return closed;
}

static strata_status close_step(strata_ps_store *store, const strata_ps_close *close, strata_error *err) {
    int n_counted = 0;
    if (has_closed(store, close)) return STRATA_OK;
    STRATA_TRY(count_shares(store, close, &n_counted, err));
    if (n_counted) {
        begin_update(store, close->rate);
        STRATA_TRY(fold_dense(store, close, err));
        for (int k = 0; k < store->n_tables; k++) STRATA_TRY(fold_rows(store, close, k, err));
        STRATA_TRY(fold_states(store, close, err));
        store->version++;
        changed(store);
    }
    drop_kept(store);
    store->step = close->index + 1;
    return STRATA_OK;
}

strata_status strata_ps_store_close(strata_ps_store *store, const strata_ps_close *close, strata_error *err) {
    pthread_mutex_lock(&store->lock);
    strata_status status = check_filled(store, err);
    if (!status) status = close_step(store, close, err);
    pthread_mutex_unlock(&store->lock);
    return status;
}

strata_status strata_ps_store_push(strata_ps_store *store, const strata_ps_gradients *gradients, int64_t *out_staleness,
                                   strata_error *err) {
    STRATA_TRY(check_rows(store, gradients->tables, err));
    pthread_mutex_lock(&store->lock);
    strata_status status = check_filled(store, err);
    if (!status) status = (store->opts.n_shares ? push_for_later : push_now)(store, gradients, out_staleness, err);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* ---- pulls ---- */

const void *strata_ps_snapshot_data(const strata_ps_snapshot *snapshot) {
    return snapshot->data;
}

size_t strata_ps_snapshot_bytes(const strata_ps_snapshot *snapshot) {
    return snapshot->bytes;
}

void strata_ps_snapshot_release(void *snapshot) {
    strata_ps_snapshot *own = snapshot;
    if (own && atomic_fetch_sub(&own->references, 1) == 1) free(own);
}

/* The dense shards, in the type `wire`, and behind them the states. */
static strata_status write_values(strata_ps_store *store, unsigned char *to, strata_error *err) {
    const size_t dense = strata_ps_wire_bytes(store->opts.wire, store->n_dense_elements);
    const bool narrow = store->opts.wire != STRATA_DTYPE_F32;
    float *wide = narrow ? malloc((size_t)(store->n_dense_elements + 1) * sizeof *wide) : (float *)(void *)to;
    strata_status status = wide ? STRATA_OK : no_memory(store, err);
    for (int i = 0; i < store->n_dense && !status; i++)
        status = read_range(store->dense.parameters, store->dense.places[i], wide + store->shards[i].before, store->shards[i].n,
                            err);
    if (!status && narrow) strata_ps_narrow(store->opts.wire, wide, store->n_dense_elements, to);
    if (!status) memcpy(to + dense, store->states, (size_t)store->n_states * sizeof(float));
    if (narrow) free(wide);
    return status;
}

static strata_status take_snapshot(strata_ps_store *store, strata_error *err) {
    const size_t dense = strata_ps_wire_bytes(store->opts.wire, store->n_dense_elements);
    const size_t bytes = dense + (size_t)store->n_states * sizeof(float);
    strata_ps_snapshot *made = aligned_alloc(64, (sizeof *made + bytes + 63) / 64 * 64);
    if (!made) return no_memory(store, err);
    const strata_status status = write_values(store, made->data, err);
    if (status) {
        free(made);
        return status;
    }
    made->bytes = bytes;
    atomic_init(&made->references, 1);
    store->snapshot = made;
    return STRATA_OK;
}

static void copy_rows(const strata_ps_store *store, int k, const strata_ps_rows *rows) {
    const int64_t row = store->tables[k].shard->row;
    unsigned char *to = (unsigned char *)rows->values; /* the caller's room */
    for (int64_t i = 0, run; i < rows->n; i += run, to += (size_t)(run * row) * value_bytes(store)) {
        run = strata_ps_run(rows->ids + i, rows->n - i);
        strata_ps_narrow(store->opts.wire, store->tables[k].copy + rows->ids[i] * row, run * row, to);
    }
}

strata_status strata_ps_store_pull(strata_ps_store *store, const strata_ps_rows *tables, void *room,
                                   strata_ps_snapshot **out_snapshot, int64_t *out_version, strata_error *err) {
    STRATA_TRY(check_rows(store, tables, err));
    pthread_mutex_lock(&store->lock);
    strata_status status = check_filled(store, err);
    if (!status && room)
        status = write_values(store, room, err);
    else if (!status && !store->snapshot)
        status = take_snapshot(store, err);
    if (!status) {
        *out_snapshot = room ? NULL : store->snapshot;
        if (!room) atomic_fetch_add(&store->snapshot->references, 1);
        *out_version = store->version;
        for (int k = 0; k < store->n_tables; k++) copy_rows(store, k, &tables[k]);
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}
