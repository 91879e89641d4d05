/* SPDX-License-Identifier: Apache-2.0
 *
 * The graphs of the optimizer's updates on a server's device: one for all of its dense shards, and one for each table and
 * number of rows. */
#include "strategies/parameter_server/stock_parts.h"

strata_status strata_ps_stock_lay_out_dense(strata_ps_stock *stock, strata_error *err) {
    int64_t size = 0;
    stock->dense.places = strata_memory_take(&stock->memory, stock->bundle->n_dense, sizeof *stock->dense.places);
    if (!stock->dense.places) return strata_ps_stock_no_memory(stock, err);
    for (int i = 0; i < stock->bundle->n_dense; i++) {
        stock->dense.places[i] = size;
        size += strata_parameter_aligned(stock->bundle->shards[i].n);
    }
    stock->dense.size = size;
    const int64_t n_chunks = size / STRATA_SEGMENT_CHUNK;
    if (n_chunks > INT32_MAX)
        return strata_fail(err, STRATA_INVALID, "parameter_server: a server would own %lld elements; use more servers",
                           (long long)size);
    int32_t *ends = strata_memory_take(&stock->memory, stock->bundle->n_dense, sizeof *ends);
    int32_t *owner = strata_memory_take(&stock->memory, n_chunks, sizeof *owner);
    if (!ends || !owner) return strata_ps_stock_no_memory(stock, err);
    for (int64_t i = 0, chunk = 0; i < stock->bundle->n_dense; i++) {
        const int64_t end =
            (stock->dense.places[i] + strata_parameter_aligned(stock->bundle->shards[i].n)) / STRATA_SEGMENT_CHUNK;
        for (; chunk < end; chunk++) owner[chunk] = (int32_t)i;
        ends[i] = (int32_t)end;
    }
    stock->dense.segments = (strata_segments){.n = stock->bundle->n_dense, .n_chunks = n_chunks, .ends = ends, .owner = owner};
    return STRATA_OK;
}

strata_status strata_ps_stock_make_variables(strata_ps_stock *stock, int64_t n, strata_variable **parameters,
                                             strata_variable **slots, strata_error *err) {
    STRATA_TRY(strata_variable_create(stock->device, "shards", STRATA_DTYPE_F32, STRATA_SHAPE(n), parameters, err));
    for (int s = 0; s < stock->n_slots; s++)
        STRATA_TRY(strata_variable_create(stock->device, "optimizer slots", STRATA_DTYPE_F32, STRATA_SHAPE(n), &slots[s], err));
    return STRATA_OK;
}

/* Compiles the update of all dense shards: gradients (n), step -> the new parameters. */
strata_status strata_ps_stock_compile_dense(strata_ps_stock *stock, strata_error *err) {
    const strata_executable_options opts = {.n_slots = 1};
    strata_graph *graph = NULL;
    STRATA_TRY(strata_graph_create(&graph, err));
    strata_update u = {.parameters = strata_variable_read(graph, stock->dense.parameters),
                       .gradients = strata_input(graph, "gradients", STRATA_DTYPE_F32, STRATA_SHAPE(stock->dense.size)),
                       .step = strata_input(graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS)),
                       .gate = strata_scalar(graph, STRATA_DTYPE_F32, 0),
                       .segments = &stock->dense.segments};
    strata_tensor *square = NULL;
    for (int s = 0; s < stock->n_slots; s++) u.slots[s] = strata_variable_read(graph, stock->dense.slots[s]);
    strata_clip_gradients(&stock->dense.optimizer, &u.gradients, u.segments, 1, &square);
    strata_tensor *update = stock->kind->build(&stock->dense.optimizer, &u);
    strata_status status = strata_graph_check(graph, err);
    if (!status) status = strata_executable_create(stock->device, NULL, 0, &update, 1, &opts, &stock->dense.update, err);
    strata_graph_destroy(graph);
    return status;
}

/* ids (n), gradients (n, row), step -> the rows as they are after the update. */
static strata_status compile_rows(const strata_ps_stock *stock, const strata_ps_table *t, int64_t n,
                                  strata_executable **out_executable, strata_error *err) {
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
    for (int s = 0; s < stock->n_slots; s++) {
        slots[s] = strata_variable_read(graph, t->slots[s]);
        u.slots[s] = strata_gather(strata_parameter_view(slots[s], 0, all), ids, 0);
    }
    const strata_segments none = {0};
    if (stock->optimizer.clip_value > 0) strata_clip_gradients(&stock->optimizer, &u.gradients, &none, 1, &square);
    strata_tensor *changed = stock->kind->build(&stock->optimizer, &u), *updates[1 + STRATA_MAX_OPTIMIZER_SLOTS];
    updates[0] = strata_scatter_update(parameters, 0, rows, ids, changed, NULL);
    for (int s = 0; s < stock->n_slots; s++)
        updates[1 + s] = strata_scatter_update(slots[s], 0, rows, ids, u.slots[s], changed);
    strata_status status = strata_graph_check(graph, err);
    if (!status)
        status = strata_executable_create(stock->device, NULL, 0, updates, 1 + stock->n_slots, &opts, out_executable, err);
    strata_graph_destroy(graph);
    return status;
}

strata_status strata_ps_stock_read_range(strata_variable *variable, int64_t offset, float *values, int64_t n,
                                         strata_error *err) {
    strata_array part = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n), values);
    return strata_variable_get_range(variable, offset * (int64_t)sizeof(float), &part, err);
}

strata_status strata_ps_stock_read_dense(const strata_ps_stock *stock, float *values, strata_error *err) {
    for (int i = 0; i < stock->bundle->n_dense; i++) {
        const strata_ps_shard *shard = &stock->bundle->shards[i];
        STRATA_TRY(
            strata_ps_stock_read_range(stock->dense.parameters, stock->dense.places[i], values + shard->before, shard->n, err));
    }
    return STRATA_OK;
}

strata_status strata_ps_stock_run(strata_executable *exe, int slot, const float *words, strata_error *err) {
    const int step = strata_executable_input_index(exe, "step");
    if (step >= 0) memcpy(strata_executable_input(exe, slot, step), words, STRATA_STEP_WORDS * sizeof *words);
    STRATA_TRY(strata_executable_submit(exe, slot, err));
    return strata_executable_wait(exe, slot, err);
}

strata_status strata_ps_stock_open_dense(strata_ps_stock *stock, int *out_slot, float **out_gradients, strata_error *err) {
    STRATA_TRY(strata_executable_acquire(stock->dense.update, out_slot, err));
    const int index = strata_executable_input_index(stock->dense.update, "gradients");
    *out_gradients = strata_executable_input(stock->dense.update, *out_slot, index);
    for (int i = 0; i < stock->bundle->n_dense; i++) {
        const int64_t n = stock->bundle->shards[i].n, all = strata_parameter_aligned(n);
        memset(*out_gradients + stock->dense.places[i] + n, 0, (size_t)(all - n) * sizeof(float));
    }
    return STRATA_OK;
}

static int64_t size_of(int k) {
    enum { LEAST_ROWS = 64 }; /* the smallest size */
    return (int64_t)LEAST_ROWS * (STRATA_PS_SIZE_PARTS + k % STRATA_PS_SIZE_PARTS) / STRATA_PS_SIZE_PARTS
           << k / STRATA_PS_SIZE_PARTS;
}

/* The executable for at least n rows. */
static strata_status rows_update(strata_ps_stock *stock, strata_ps_table *t, int64_t n, int64_t *out_room,
                                 strata_executable **out_exe, strata_error *err) {
    int k = 0;
    while (size_of(k) < n && k < STRATA_PS_SIZES - 1) k++;
    *out_room = size_of(k);
    if (!t->updates[k]) STRATA_TRY(compile_rows(stock, t, *out_room, &t->updates[k], err));
    *out_exe = t->updates[k];
    return STRATA_OK;
}

strata_status strata_ps_stock_update_rows(strata_ps_stock *stock, strata_ps_table *t, const strata_ps_rows *rows,
                                          strata_error *err) {
    enum { GAP_BYTES = 512 }; /* a call of a driver costs at least as much as copying this many bytes */
    const size_t row = (size_t)t->shard->row;
    strata_executable *exe = NULL;
    int64_t room = 0;
    int slot = 0;
    if (!rows->n || !row) return STRATA_OK;
    STRATA_TRY(rows_update(stock, t, rows->n, &room, &exe, err));
    STRATA_TRY(strata_executable_acquire(exe, &slot, err));
    int32_t *ids = strata_executable_input(exe, slot, strata_executable_input_index(exe, "ids"));
    float *gradients = strata_executable_input(exe, slot, strata_executable_input_index(exe, "gradients"));
    memcpy(ids, rows->ids, (size_t)rows->n * sizeof *ids);
    memcpy(gradients, rows->values, (size_t)rows->n * row * sizeof *gradients);
    for (int64_t i = rows->n; i < room; i++) ids[i] = -1;
    memset(gradients + (size_t)rows->n * row, 0, (size_t)(room - rows->n) * row * sizeof *gradients);
    STRATA_TRY(strata_ps_stock_run(exe, slot, stock->row_words, err));
    if (!t->copies) return STRATA_OK;
    /* rows that are close to each other are read together with the rows between them, which did not change */
    const int64_t reach = 1 + GAP_BYTES / (int64_t)(row * sizeof *gradients);
    for (int64_t i = 0, first = 0; i < rows->n; i++) {
        const int64_t step = i + 1 < rows->n ? (int64_t)rows->ids[i + 1] - rows->ids[i] : 0;
        if (step > 0 && step <= reach) continue;
        const int64_t begin = rows->ids[first] * (int64_t)row, end = (rows->ids[i] + 1) * (int64_t)row;
        STRATA_TRY(strata_ps_stock_read_range(t->parameters, begin, t->values + begin, end - begin, err));
        first = i + 1;
    }
    return STRATA_OK;
}

void strata_ps_stock_begin_update(strata_ps_stock *stock, double rate) {
    const strata_optimizer of_rows = strata_optimizer_with_rate(&stock->optimizer, rate);
    const strata_optimizer of_dense = strata_optimizer_with_rate(&stock->dense.optimizer, rate);
    stock->t++;
    strata_optimizer_step(stock->kind, &of_rows, stock->t, stock->row_words);
    strata_optimizer_step(stock->kind, &of_dense, stock->t, stock->words);
    stock->words[STRATA_STEP_LEARNING_RATE] *= (float)stock->dense.rate_factor;
    stock->words[STRATA_STEP_PLAIN_RATE] *= (float)stock->dense.rate_factor;
    stock->words[STRATA_STEP_SCALE] = stock->row_words[STRATA_STEP_SCALE] = 1;
}
