/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker's pulls: its requests to servers, the memory for the replies, and the copies to the device. */
#include "strategies/parameter_server/worker.h"

strata_status strata_ps_reach(strata_ps_worker *w, int bundle, strata_rpc_client **out_client, strata_error *err) {
    const int server = strata_ps_server_of(&w->fit->route, bundle, w->links.n_servers);
    if (!w->links.servers[server]) {
        STRATA_TRY(strata_ps_connect(w->task, STRATA_TASK_PS, server, w->task->connect_seconds,
                                     strata_ps_plan_shared_bytes(&w->fit->plan), &w->links.servers[server], err));
        const strata_status status = strata_ps_say_hello(w->fit, w->links.servers[server], w->task->connect_seconds, NULL, err);
        if (status) {
            strata_rpc_client_destroy(w->links.servers[server]);
            w->links.servers[server] = NULL;
            return status;
        }
    }
    *out_client = w->links.servers[server];
    return STRATA_OK;
}

int strata_ps_sparse_index(const strata_ps_worker *w, int parameter) {
    int k = 0;
    while (k < w->sparse.n && w->sparse.parameters[k] != parameter) k++;
    return k;
}

int64_t strata_ps_rows_of_table(const strata_ps_row_set *set, const strata_ps_shard *table, int32_t *out_ids) {
    int64_t n = 0;
    for (int64_t i = 0; i < set->n; i++) {
        const int64_t row = set->ids[i] - table->first_row;
        if (row >= 0 && row < table->n_rows) out_ids[n++] = (int32_t)row;
    }
    return n;
}

/* Lists the rows that the job needs from a server. *out_elements: the elements of these rows. */
static strata_status list_rows(const strata_ps_worker *w, const strata_ps_job *j, const strata_ps_bundle *bundle,
                               strata_ps_transfer *p, int64_t *out_elements, strata_error *err) {
    const size_t counts_bytes = (size_t)bundle->n_tables * sizeof(int64_t);
    int64_t most = 0;
    for (int k = 0; k < bundle->n_tables; k++) most += j->rows[strata_ps_sparse_index(w, bundle->tables[k].parameter)].n;
    STRATA_TRY(strata_ps_reserve(&p->numbers, counts_bytes + (size_t)most * sizeof(int32_t), err));
    int64_t *counts = p->numbers;
    int32_t *ids = (int32_t *)(counts + bundle->n_tables);
    p->n_ids = *out_elements = 0;
    for (int k = 0; k < bundle->n_tables; k++) {
        const strata_ps_row_set *set = &j->rows[strata_ps_sparse_index(w, bundle->tables[k].parameter)];
        counts[k] = strata_ps_rows_of_table(set, &bundle->tables[k], ids + p->n_ids);
        p->n_ids += counts[k];
        *out_elements += counts[k] * bundle->tables[k].row;
    }
    return STRATA_OK;
}

/* Chooses the memory for a server's reply: f32 values are received at their final place, bf16 values in a separate buffer. */
static strata_status prepare_rooms(const strata_ps_worker *w, const strata_ps_job *j, const strata_ps_bundle *bundle,
                                   int64_t row_elements, strata_ps_transfer *p, int *out_n, strata_error *err) {
    const strata_dtype wire = w->task->wire;
    const size_t dense = strata_ps_wire_bytes(wire, bundle->dense_elements);
    const size_t row_bytes = (size_t)row_elements * strata_dtype_bytes(wire);
    int n = 0;
    STRATA_TRY(strata_ps_reserve((void **)&p->pieces, (size_t)(bundle->n_shards + 2) * sizeof *p->pieces, err));
    STRATA_TRY(strata_ps_reserve((void **)&p->rows, row_bytes, err));
    if (wire != STRATA_DTYPE_F32) {
        STRATA_TRY(strata_ps_reserve((void **)&p->narrow, dense, err));
        p->pieces[n++] = (struct iovec){p->narrow, dense};
    }
    for (int i = 0; i < bundle->n_dense && wire == STRATA_DTYPE_F32; i++)
        p->pieces[n++] = (struct iovec){j->values + bundle->shards[i].first, (size_t)bundle->shards[i].n * sizeof(float)};
    if (bundle->n_states)
        p->pieces[n++] = (struct iovec){j->values + w->model->parameters.flat_size, (size_t)bundle->n_states * sizeof(float)};
    p->pieces[n++] = (struct iovec){p->rows, row_bytes};
    *out_n = n;
    return STRATA_OK;
}

strata_status strata_ps_start_pull(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    j->pulling = true;
    j->pull_began = strata_trace_now();
    for (int s = 0; s < w->links.n_servers; s++) {
        const strata_ps_bundle *bundle = &w->fit->plan.bundles[s];
        strata_ps_transfer *p = &j->pulls[s];
        strata_rpc_client *client = NULL;
        int64_t elements = 0;
        int n_rooms = 0;
        STRATA_TRY(list_rows(w, j, bundle, p, &elements, err));
        STRATA_TRY(prepare_rooms(w, j, bundle, elements, p, &n_rooms, err));
        p->message.head.pull =
            (strata_ps_pull_ask){.has_close = j->lease.has_close, .bundle = s, .ahead = j->ahead, .close = j->lease.close};
        const struct iovec body = {p->numbers, (size_t)bundle->n_tables * sizeof(int64_t) + (size_t)p->n_ids * sizeof(int32_t)};
        STRATA_TRY(strata_ps_reach(w, s, &client, err));
        STRATA_TRY(strata_ps_start(&p->message, client, STRATA_PS_PULL, &body, 1, p->pieces, n_rooms, err));
    }
    return STRATA_OK;
}

/* What a server has sent besides the rooms: memory that it lent, or the buffers of the transfer. */
static const unsigned char *pulled(const strata_ps_transfer *p, size_t offset, const unsigned char *otherwise) {
    const unsigned char *lent = p->message.answer.lent;
    return lent ? lent + offset : otherwise;
}

/* Copies what was not received at its final place: values that were received as bf16, and the states of a reply that was
 * lent. */
static void take_values(const strata_ps_worker *w, const strata_ps_job *j, int server) {
    const strata_ps_bundle *bundle = &w->fit->plan.bundles[server];
    const strata_ps_transfer *p = &j->pulls[server];
    const strata_dtype wire = w->task->wire;
    const unsigned char *from = pulled(p, 0, p->narrow);
    for (int i = 0; i < bundle->n_dense && wire != STRATA_DTYPE_F32; i++) {
        strata_ps_widen(wire, from, bundle->shards[i].n, j->values + bundle->shards[i].first);
        from += (size_t)bundle->shards[i].n * strata_dtype_bytes(wire);
    }
    const unsigned char *states = pulled(p, strata_ps_wire_bytes(wire, bundle->dense_elements), NULL);
    if (states) memcpy(j->values + w->model->parameters.flat_size, states, (size_t)bundle->n_states * sizeof(float));
}

/* The rows that were received from a server, in the type `wire`. */
static const unsigned char *pulled_rows(const strata_ps_worker *w, const strata_ps_job *j, int server) {
    const strata_ps_bundle *bundle = &w->fit->plan.bundles[server];
    const size_t dense = strata_ps_wire_bytes(w->task->wire, bundle->dense_elements);
    return pulled(&j->pulls[server], dense + (size_t)bundle->n_states * sizeof(float), j->pulls[server].rows);
}

/* Copies the received rows to the worker's tables: each to its position among all rows or, if rows are renumbered, in the
 * set. */
static void place_rows(const strata_ps_worker *w, const strata_ps_job *j, int server) {
    const strata_ps_bundle *bundle = &w->fit->plan.bundles[server];
    const unsigned char *from = pulled_rows(w, j, server);
    for (int k = 0; k < bundle->n_tables; k++) {
        const strata_ps_shard *table = &bundle->tables[k];
        const int index = strata_ps_sparse_index(w, table->parameter);
        const strata_ps_row_set *set = &j->rows[index];
        for (int64_t i = 0; i < set->n; i++) {
            const int64_t id = set->ids[i];
            if (id < table->first_row || id >= table->first_row + table->n_rows) continue;
            strata_ps_widen(w->task->wire, from, set->row,
                            w->sparse.tables[index] + (j->renumbered[index] ? i : id) * set->row);
            from += (size_t)set->row * strata_dtype_bytes(w->task->wire);
        }
    }
}

void strata_ps_trace_slice(const strata_ps_worker *w, const char *name, const strata_ps_job *j, double began) {
    strata_trace_add_named(w->fit->trace, STRATA_TRACE_HOST, name, j->unit.index, began, strata_trace_now());
}

/* The wait and the pull end at the same moment. */
static void trace_pull(const strata_ps_worker *w, const strata_ps_job *j, double waited) {
    strata_trace *trace = w->fit->trace;
    const double now = strata_trace_now();
    strata_trace_add_named(trace, STRATA_TRACE_HOST, "wait for pull", j->unit.index, waited, now);
    strata_trace_add_named(trace, strata_trace_thread_track(trace, "pulls under way"), "pull", j->unit.index, j->pull_began,
                           now);
}

strata_status strata_ps_finish_pull(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    const double waited = strata_trace_now();
    strata_status status = STRATA_OK;
    j->pulling = false;
    for (int s = 0; s < w->links.n_servers; s++) {
        strata_ps_transfer *p = &j->pulls[s];
        strata_rpc_answer *answer = &p->message.answer;
        if (!p->message.request) continue;
        strata_ps_wait(&p->message, &status, err);
        size_t bytes = 0;
        for (int i = 0; i < answer->n_body; i++) bytes += p->pieces[i].iov_len;
        if (!status && (answer->body_bytes != bytes || answer->head_bytes != sizeof p->message.reply.number))
            status = strata_fail(err, STRATA_INTERNAL, "parameter_server: ps:%d sent %zu bytes; its shards have %zu", s,
                                 answer->body_bytes, bytes);
        if (status) continue;
        w->reports.now.bytes += (int64_t)bytes + p->n_ids * (int64_t)sizeof(int32_t);
        take_values(w, j, s);
        place_rows(w, j, s);
        /* lent memory of f32 is released when it was copied to the device */
        if (w->task->wire != STRATA_DTYPE_F32) strata_rpc_answer_release(answer);
    }
    trace_pull(w, j, waited);
    return status;
}

strata_status strata_ps_pull_now(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    const strata_status started = strata_ps_start_pull(w, j, err);
    /* also waits for requests that were started before a failure */
    const strata_status pulled = strata_ps_finish_pull(w, j, started ? NULL : err);
    return started ? started : pulled;
}

void strata_ps_drop_pulls(const strata_ps_worker *w, const strata_ps_job *j) {
    for (int s = 0; s < w->links.n_servers; s++) {
        strata_status ignored = STRATA_OK;
        strata_ps_wait(&j->pulls[s].message, &ignored, NULL);
        strata_rpc_answer_release(&j->pulls[s].message.answer);
    }
}

static strata_status set_range(strata_variable *variable, int64_t first, const float *values, int64_t n, strata_error *err) {
    /* the device only reads them */
    const strata_array part = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n), (float *)values);
    return n ? strata_variable_set_range(variable, first * (int64_t)sizeof(float), &part, err) : STRATA_OK;
}

/* A sparse parameter on the device: its variable, and the element of it at which the table begins. */
static strata_variable *table_on_device(const strata_ps_worker *w, int k, int64_t *out_begin) {
    const strata_parameter_spec *p = &w->model->parameters.items[w->sparse.parameters[k]];
    const int block = w->model->parameters.parts[p->first_part].block;
    *out_begin = p->offset - w->model->parameters.blocks[block].begin;
    return w->model->replicas[0].blocks[block].flat;
}

/* Each call of a driver costs as much as a copy of some KiB. So rows with a smaller gap between them are written together,
 * including the rows in the gap, which the batch does not use; for those the newest values of the worker's table are
 * written. Renumbered rows are the first ones of the table. */
static strata_status upload_rows(const strata_ps_worker *w, int k, const strata_ps_row_set *set, bool renumbered,
                                 strata_error *err) {
    enum { GAP_BYTES = 8 << 10 };
    int64_t begin;
    strata_variable *variable = table_on_device(w, k, &begin);
    const int64_t row = set->row;
    const int64_t gap = row ? GAP_BYTES / (row * (int64_t)sizeof(float)) : 0;
    if (renumbered) return set_range(variable, begin, w->sparse.tables[k], set->n * row, err);
    int64_t first = 0, end = 0; /* of the rows that are written next; first == end: none */
    for (int64_t at = 0; at < (set->ascending ? set->n : set->n_rows); at++) {
        const int64_t i = set->ascending ? set->ids[at] : at;
        if (set->places[i] < 0) continue;
        if (first < end && i - end > gap) {
            STRATA_TRY(set_range(variable, begin + first * row, w->sparse.tables[k] + first * row, (end - first) * row, err));
            first = i;
        }
        if (first == end) first = i;
        end = i + 1;
    }
    return set_range(variable, begin + first * row, w->sparse.tables[k] + first * row, (end - first) * row, err);
}

strata_status strata_ps_make_table(strata_ps_worker *w, int k, strata_error *err) {
    const strata_parameter_spec *p = &w->model->parameters.items[w->sparse.parameters[k]];
    const int64_t n = strata_shape_elements(p->shape);
    int64_t begin;
    strata_variable *variable = table_on_device(w, k, &begin);
    w->sparse.tables[k] = strata_memory_take(&w->memory, n, sizeof(float));
    if (!w->sparse.tables[k]) return strata_ps_worker_no_memory(err);
    strata_array whole = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n), w->sparse.tables[k]);
    return strata_variable_get_range(variable, begin * (int64_t)sizeof(float), &whole, err);
}

/* Copies a server's dense shards to the device, directly from the memory that was lent. */
static strata_status upload_lent(const strata_ps_worker *w, strata_ps_job *j, int server, strata_error *err) {
    const strata_parameter_set *set = &w->model->parameters;
    const strata_ps_shard *shards = w->fit->plan.bundles[server].shards;
    const float *from = j->pulls[server].message.answer.lent;
    for (int i = 0; i < w->fit->plan.bundles[server].n_dense; from += shards[i++].n)
        for (int k = 0; k < set->n_blocks; k++) {
            const strata_parameter_block *at = &set->blocks[k];
            const int64_t first = shards[i].first > at->begin ? shards[i].first : at->begin,
                          last = shards[i].first + shards[i].n;
            const int64_t n = (last < at->dense_end ? last : at->dense_end) - first;
            if (n > 0)
                STRATA_TRY(set_range(w->model->replicas[0].blocks[k].flat, first - at->begin, from + (first - shards[i].first),
                                     n, err));
        }
    strata_rpc_answer_release(&j->pulls[server].message.answer);
    return STRATA_OK;
}

strata_status strata_ps_upload(const strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    const strata_parameter_set *set = &w->model->parameters;
    const strata_model_replica *own = &w->model->replicas[0];
    int n_lent = 0;
    for (int s = 0; s < w->links.n_servers; s++) n_lent += j->pulls[s].message.answer.lent != NULL;
    /* values of lent shards are overwritten below */
    for (int k = 0; k < set->n_blocks && n_lent < w->links.n_servers; k++) {
        const strata_parameter_block *at = &set->blocks[k];
        STRATA_TRY(set_range(own->blocks[k].flat, 0, j->values + at->begin, at->dense_end - at->begin, err));
    }
    for (int s = 0; s < w->links.n_servers; s++)
        if (j->pulls[s].message.answer.lent) STRATA_TRY(upload_lent(w, j, s, err));
    if (own->state) STRATA_TRY(set_range(own->state, 0, j->values + set->flat_size, set->state_size, err));
    for (int k = 0; k < w->sparse.n; k++) STRATA_TRY(upload_rows(w, k, &j->rows[k], j->renumbered[k], err));
    return STRATA_OK;
}
