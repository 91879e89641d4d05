/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker's pulls: its requests to servers, the memory for the replies, and the copies to the device. */
#include <stdlib.h>
#include <string.h>

#include "strategies/parameter_server/worker.h"

strata_status strata_ps_reach(strata_ps_worker *w, int group, strata_rpc_client **out_client, strata_error *err) {
    const int server = strata_ps_server_of(&w->fit->route, group, w->links.n_servers);
    if (!w->links.servers[server]) {
        STRATA_TRY(strata_ps_connect(w->task, STRATA_TASK_PS, server, strata_ps_plan_shared_bytes(&w->fit->plan),
                                     &w->links.servers[server], err));
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

/* Fills the counts of the request's head and the ids of the rows; returns the elements of these rows. */
static strata_status prepare_pull(strata_ps_worker *w, strata_ps_job *j, int server, size_t *out_head_bytes, int64_t *out_ids,
                                  int64_t *out_elements, strata_error *err) {
    const strata_ps_plan *plan = &w->fit->plan;
    const struct strata_ps_sizes *sizes = &plan->sizes[server];
    const strata_ps_shard *tables = plan->shards + plan->begins[server] + sizes->n_dense;
    const strata_ps_pull_ask ask = {.has_close = j->has_close, .group = server, .ahead = j->ahead, .close = j->close};
    strata_ps_pull *p = &j->pulls[server];
    int64_t most = 0;
    for (int k = 0; k < sizes->n_tables; k++) most += j->rows[strata_ps_sparse_index(w, tables[k].parameter)].n;
    unsigned char *head = realloc(p->head, sizeof ask + (size_t)sizes->n_tables * sizeof(int64_t));
    if (head) p->head = head;
    int32_t *ids = head ? realloc(p->ids, (size_t)(most + 1) * sizeof *ids) : NULL;
    if (!ids) return strata_ps_worker_no_memory(err);
    p->ids = ids;
    memcpy(head, &ask, sizeof ask);
    *out_ids = *out_elements = 0;
    for (int k = 0; k < sizes->n_tables; k++) {
        const int64_t n =
            strata_ps_rows_of_table(&j->rows[strata_ps_sparse_index(w, tables[k].parameter)], &tables[k], ids + *out_ids);
        memcpy(head + sizeof ask + (size_t)k * sizeof n, &n, sizeof n);
        *out_ids += n;
        *out_elements += n * tables[k].row;
    }
    *out_head_bytes = sizeof ask + (size_t)sizes->n_tables * sizeof(int64_t);
    return STRATA_OK;
}

/* Chooses the memory for a server's reply: f32 values are received at their final place, bf16 values in a separate buffer. */
static strata_status prepare_rooms(strata_ps_worker *w, strata_ps_job *j, int server, int64_t row_elements, int *out_n,
                                   strata_error *err) {
    const strata_ps_plan *plan = &w->fit->plan;
    const struct strata_ps_sizes *sizes = &plan->sizes[server];
    const strata_ps_shard *shards = plan->shards + plan->begins[server];
    const int n_shards = plan->begins[server + 1] - plan->begins[server];
    const strata_dtype wire = w->task->wire;
    strata_ps_pull *p = &j->pulls[server];
    int n = 0;
    if (!p->rooms) p->rooms = calloc((size_t)n_shards + 3, sizeof *p->rooms);
    unsigned char *rows = realloc(p->rows, (size_t)row_elements * strata_dtype_bytes(wire) + 4);
    if (rows) p->rows = rows;
    if (wire != STRATA_DTYPE_F32 && !p->narrow) p->narrow = malloc(strata_ps_wire_bytes(wire, sizes->dense) + 4);
    if (!p->rooms || !rows || (wire != STRATA_DTYPE_F32 && !p->narrow)) return strata_ps_worker_no_memory(err);
    for (int i = 0; i < sizes->n_dense && wire == STRATA_DTYPE_F32; i++)
        p->rooms[n++] = (struct iovec){j->values + shards[i].first, (size_t)shards[i].n * sizeof(float)};
    if (wire != STRATA_DTYPE_F32) p->rooms[n++] = (struct iovec){p->narrow, strata_ps_wire_bytes(wire, sizes->dense)};
    if (sizes->states)
        p->rooms[n++] = (struct iovec){j->values + shards[n_shards - 1].first, (size_t)sizes->states * sizeof(float)};
    p->rooms[n++] = (struct iovec){rows, (size_t)row_elements * strata_dtype_bytes(wire)};
    *out_n = n;
    return STRATA_OK;
}

strata_status strata_ps_start_pull(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    j->pulling = true;
    j->pull_began = strata_trace_now();
    for (int s = 0; s < w->links.n_servers; s++) {
        strata_ps_pull *p = &j->pulls[s];
        size_t head_bytes = 0;
        int64_t n_ids = 0, elements = 0;
        int n_rooms = 0;
        STRATA_TRY(prepare_pull(w, j, s, &head_bytes, &n_ids, &elements, err));
        STRATA_TRY(prepare_rooms(w, j, s, elements, &n_rooms, err));
        p->n_ids = n_ids;
        const struct iovec body = {p->ids, (size_t)n_ids * sizeof *p->ids};
        const strata_rpc_ask ask = {.method = STRATA_PS_PULL,
                                    .head = p->head,
                                    .head_bytes = head_bytes,
                                    .body = &body,
                                    .n_body = 1,
                                    .what = "a pull of parameters"};
        p->answer = (strata_rpc_answer){
            .head = &p->version, .head_bytes = sizeof p->version, .body = p->rooms, .n_body = n_rooms, .may_lend = true};
        strata_rpc_client *client = NULL;
        STRATA_TRY(strata_ps_reach(w, s, &client, err));
        STRATA_TRY(strata_rpc_client_start(client, &ask, &p->answer, STRATA_PS_CALL_SECONDS, &p->request, err));
    }
    return STRATA_OK;
}

/* Converts values that were received as bf16 to f32, at the place where f32 values would have been received. */
static void widen_values(strata_ps_worker *w, strata_ps_job *j, int server) {
    const strata_ps_plan *plan = &w->fit->plan;
    const strata_ps_shard *shards = plan->shards + plan->begins[server];
    const strata_ps_pull *p = &j->pulls[server];
    const unsigned char *from = p->answer.lent ? p->answer.lent : p->narrow;
    for (int i = 0; i < plan->sizes[server].n_dense && w->task->wire != STRATA_DTYPE_F32; i++) {
        strata_ps_widen(w->task->wire, from, shards[i].n, j->values + shards[i].first);
        from += (size_t)shards[i].n * strata_dtype_bytes(w->task->wire);
    }
}

/* Copies the states from a reply that was lent in place, and releases what is not needed any more. */
static void take_lent_states(strata_ps_worker *w, strata_ps_job *j, int server) {
    const strata_ps_plan *plan = &w->fit->plan;
    const struct strata_ps_sizes *sizes = &plan->sizes[server];
    const unsigned char *lent = j->pulls[server].answer.lent;
    const strata_ps_shard *last = &plan->shards[plan->begins[server + 1] - 1];
    if (lent && sizes->states)
        memcpy(j->values + last->first, lent + strata_ps_wire_bytes(w->task->wire, sizes->dense),
               (size_t)sizes->states * sizeof(float));
}

/* The rows that were received from a server, in the type `wire`. */
static const unsigned char *pulled_rows(const strata_ps_worker *w, const strata_ps_job *j, int server) {
    const struct strata_ps_sizes *sizes = &w->fit->plan.sizes[server];
    const strata_ps_pull *p = &j->pulls[server];
    const size_t fixed = strata_ps_wire_bytes(w->task->wire, sizes->dense) + (size_t)sizes->states * sizeof(float);
    return p->answer.lent ? (const unsigned char *)p->answer.lent + fixed : p->rows;
}

/* How many consecutive rows of a set, from position i on, belong to a table. 0: row i does not. neighbours: the numbers of the
 * rows must be consecutive, too. */
static int64_t run_of(const strata_ps_row_set *set, int64_t i, const strata_ps_shard *table, bool neighbours) {
    const int64_t end = table->first_row + table->n_rows;
    int64_t run = 0;
    while (i + run < set->n && set->ids[i + run] >= table->first_row && set->ids[i + run] < end &&
           (!neighbours || set->ids[i + run] == set->ids[i] + run))
        run++;
    return run;
}

/* Copies the received rows to the worker's tables: each to its position among all rows or, if rows are renumbered, in the
 * set. */
static void place_rows(strata_ps_worker *w, const strata_ps_job *j, int server) {
    const strata_ps_plan *plan = &w->fit->plan;
    const struct strata_ps_sizes *sizes = &plan->sizes[server];
    const strata_ps_shard *tables = plan->shards + plan->begins[server] + sizes->n_dense;
    const unsigned char *from = pulled_rows(w, j, server);
    for (int k = 0; k < sizes->n_tables; k++) {
        const int index = strata_ps_sparse_index(w, tables[k].parameter);
        const strata_ps_row_set *set = &j->rows[index];
        const bool renumbered = j->renumbered[index], stays = renumbered && w->task->wire == STRATA_DTYPE_F32;
        for (int64_t i = 0, run; i < set->n; i += run ? run : 1) {
            run = run_of(set, i, &tables[k], !renumbered);
            if (run && !stays)
                strata_ps_widen(w->task->wire, from, run * set->row,
                                w->sparse.tables[index] + (renumbered ? i : set->ids[i]) * set->row);
            from += (size_t)(run * set->row) * strata_dtype_bytes(w->task->wire);
        }
    }
}

void strata_ps_trace_slice(const strata_ps_worker *w, const char *name, const strata_ps_job *j, double began) {
    if (w->fit->trace) strata_trace_add_named(w->fit->trace, STRATA_TRACE_HOST, name, j->unit.index, began, strata_trace_now());
}

/* The wait and the pull end at the same moment. */
static void trace_pull(const strata_ps_worker *w, const strata_ps_job *j, double waited) {
    strata_trace *trace = w->fit->trace;
    const double now = strata_trace_now();
    if (!trace) return;
    strata_trace_add_named(trace, STRATA_TRACE_HOST, "wait for pull", j->unit.index, waited, now);
    strata_trace_add_named(trace, strata_trace_thread_track(trace, "pulls under way"), "pull", j->unit.index, j->pull_began,
                           now);
}

strata_status strata_ps_finish_pull(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    const double waited = strata_trace_now();
    strata_status status = STRATA_OK;
    j->pulling = false;
    for (int s = 0; s < w->links.n_servers; s++) {
        strata_ps_pull *p = &j->pulls[s];
        if (!p->request) continue;
        const strata_status one = strata_rpc_request_wait(p->request, status ? NULL : err);
        p->request = NULL;
        if (!status) status = one;
        size_t bytes = 0;
        for (int i = 0; i < p->answer.n_body; i++) bytes += p->rooms[i].iov_len;
        if (!status && (p->answer.body_bytes != bytes || p->answer.head_bytes != sizeof p->version))
            status = strata_fail(err, STRATA_INTERNAL, "parameter_server: ps:%d sent %zu bytes; its shards have %zu", s,
                                 p->answer.body_bytes, bytes);
        if (status) continue;
        w->reports.now.bytes += (int64_t)bytes + p->n_ids * (int64_t)sizeof *p->ids;
        widen_values(w, j, s);
        take_lent_states(w, j, s);
        place_rows(w, j, s);
        /* lent memory of f32 is released when it was copied to the device */
        if (w->task->wire != STRATA_DTYPE_F32) strata_rpc_answer_release(&p->answer);
    }
    trace_pull(w, j, waited);
    return status;
}

void strata_ps_drop_pulls(const strata_ps_worker *w, const strata_ps_job *j) {
    for (int s = 0; s < w->links.n_servers; s++) {
        strata_ps_pull *p = &j->pulls[s];
        const strata_status ignored = p->request ? strata_rpc_request_wait(p->request, NULL) : STRATA_OK;
        (void)ignored;
        p->request = NULL;
        strata_rpc_answer_release(&p->answer);
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

/* Renumbered rows are stored on the device in the order of the set, as they were received. */
static strata_status upload_renumbered(const strata_ps_worker *w, const strata_ps_job *j, int server, strata_error *err) {
    const strata_ps_plan *plan = &w->fit->plan;
    const struct strata_ps_sizes *sizes = &plan->sizes[server];
    const strata_ps_shard *tables = plan->shards + plan->begins[server] + sizes->n_dense;
    const bool narrow = w->task->wire != STRATA_DTYPE_F32; /* place_rows has converted them in the worker's tables */
    const float *from = narrow ? NULL : (const float *)(const void *)pulled_rows(w, j, server);
    for (int k = 0; k < sizes->n_tables; k++) {
        const int index = strata_ps_sparse_index(w, tables[k].parameter);
        const strata_ps_row_set *set = &j->rows[index];
        int64_t begin;
        strata_variable *variable = table_on_device(w, index, &begin);
        for (int64_t i = 0, run; i < set->n; i += run ? run : 1) {
            run = run_of(set, i, &tables[k], false);
            const float *values = narrow ? w->sparse.tables[index] + i * set->row : from;
            if (j->renumbered[index]) STRATA_TRY(set_range(variable, begin + i * set->row, values, run * set->row, err));
            if (!narrow) from += run * set->row;
        }
    }
    return STRATA_OK;
}

/* Each call of a driver costs as much as a copy of some KiB. So rows with a smaller gap between them are written together,
 * including the rows in the gap, which the batch does not use; for those the newest values of the worker's table are
 * written. */
static strata_status upload_rows(const strata_ps_worker *w, int k, const strata_ps_row_set *set, strata_error *err) {
    enum { GAP_BYTES = 8 << 10 };
    int64_t begin;
    strata_variable *variable = table_on_device(w, k, &begin);
    const int64_t row = set->row;
    const int64_t gap = row ? GAP_BYTES / (row * (int64_t)sizeof(float)) : 0;
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
    w->sparse.tables[k] = malloc((size_t)(n + 1) * sizeof(float));
    if (!w->sparse.tables[k]) return strata_ps_worker_no_memory(err);
    strata_array whole = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n), w->sparse.tables[k]);
    return strata_variable_get_range(variable, begin * (int64_t)sizeof(float), &whole, err);
}

/* Copies a server's dense shards to the device, directly from the memory that was lent. */
static strata_status upload_lent(const strata_ps_worker *w, strata_ps_job *j, int server, strata_error *err) {
    const strata_ps_plan *plan = &w->fit->plan;
    const strata_parameter_set *set = &w->model->parameters;
    const strata_ps_shard *shards = plan->shards + plan->begins[server];
    const float *from = j->pulls[server].answer.lent;
    for (int i = 0; i < plan->sizes[server].n_dense; from += shards[i++].n)
        for (int k = 0; k < set->n_blocks; k++) {
            const strata_parameter_block *at = &set->blocks[k];
            const int64_t first = shards[i].first > at->begin ? shards[i].first : at->begin,
                          last = shards[i].first + shards[i].n;
            const int64_t n = (last < at->dense_end ? last : at->dense_end) - first;
            if (n > 0)
                STRATA_TRY(set_range(w->model->replicas[0].blocks[k].flat, first - at->begin, from + (first - shards[i].first),
                                     n, err));
        }
    strata_rpc_answer_release(&j->pulls[server].answer);
    return STRATA_OK;
}

strata_status strata_ps_upload(const strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    const strata_parameter_set *set = &w->model->parameters;
    const strata_model_replica *own = &w->model->replicas[0];
    int n_lent = 0;
    for (int s = 0; s < w->links.n_servers; s++) n_lent += j->pulls[s].answer.lent != NULL;
    /* values of lent shards are overwritten below */
    for (int k = 0; k < set->n_blocks && n_lent < w->links.n_servers; k++) {
        const strata_parameter_block *at = &set->blocks[k];
        STRATA_TRY(set_range(own->blocks[k].flat, 0, j->values + at->begin, at->dense_end - at->begin, err));
    }
    for (int s = 0; s < w->links.n_servers; s++) {
        STRATA_TRY(upload_renumbered(w, j, s, err));
        if (j->pulls[s].answer.lent) STRATA_TRY(upload_lent(w, j, s, err));
    }
    if (own->state) STRATA_TRY(set_range(own->state, 0, j->values + set->flat_size, set->state_size, err));
    for (int k = 0; k < w->sparse.n; k++)
        if (!j->renumbered[k]) STRATA_TRY(upload_rows(w, k, &j->rows[k], err));
    return STRATA_OK;
}
