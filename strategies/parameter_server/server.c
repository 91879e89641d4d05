/* SPDX-License-Identifier: Apache-2.0
 *
 * The fit of a server: it executes what chief and workers ask of its store, until the chief says that the training is over. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategies/parameter_server/task.h"

typedef struct server {
    const strata_ps_fit *fit;
    strata_ps_store *store;
    const struct strata_ps_sizes *sizes;
    const strata_ps_shard *tables; /* of this server */
    int64_t n_elements;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. The chief: when it was lost (0: it is there, or was not there yet). */
    bool chief_came, over;
    double chief_lost;
    strata_status status;
    char message[sizeof((strata_error *)0)->message];
} server;

static strata_status wrong_size(const strata_rpc_call *call, strata_error *err) {
    return strata_fail(err, STRATA_INVALID,
                       "parameter_server: %s sent a request of method %u with %zu and %zu bytes, which "
                       "do not fit the shards of this server",
                       call->task, call->method, call->head_bytes, call->body_bytes);
}

/* The number of rows of each table, behind a head of `bytes`, and where their indices are: fills tables[].n and ids. Returns
 * the elements of all rows; -1: the sizes are wrong. *out_n: how many rows. */
static int64_t read_tables(const server *s, const strata_rpc_call *call, size_t bytes, const int32_t *ids, size_t ids_bytes,
                           strata_ps_rows *tables, int64_t *out_n) {
    const int n = s->sizes->n_tables;
    int64_t elements = 0;
    *out_n = 0;
    if (call->head_bytes != bytes + (size_t)n * sizeof(int64_t)) return -1;
    for (int k = 0; k < n; k++) {
        int64_t rows;
        memcpy(&rows, (const char *)call->head + bytes + (size_t)k * sizeof rows, sizeof rows);
        if (rows < 0 || rows > s->tables[k].n_rows || (size_t)(*out_n + rows) > ids_bytes / sizeof *ids) return -1;
        tables[k] = (strata_ps_rows){.n = rows, .ids = ids + *out_n};
        *out_n += rows;
        elements += rows * s->tables[k].row;
    }
    return elements;
}

static strata_status close_before(const server *s, const strata_rpc_call *call, strata_error *err) {
    strata_ps_pull_ask ask;
    if (call->head_bytes < sizeof ask) return wrong_size(call, err);
    memcpy(&ask, call->head, sizeof ask);
    return ask.has_close ? strata_ps_store_close(s->store, &ask.close, err) : STRATA_OK;
}

static strata_status pull(server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    const strata_dtype wire = s->fit->task->wire;
    strata_ps_rows *tables = calloc((size_t)s->sizes->n_tables + 1, sizeof *tables);
    strata_ps_snapshot *snapshot = NULL;
    int64_t version = 0, n_rows = 0;
    if (!tables) return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for a pull");
    const int64_t elements = read_tables(s, call, sizeof(strata_ps_pull_ask), call->body, call->body_bytes, tables, &n_rows);
    unsigned char *rows = elements >= 0 ? malloc(strata_ps_wire_bytes(wire, elements) + 4) : NULL, *at = rows;
    strata_status status = elements < 0 || (size_t)n_rows * sizeof(int32_t) != call->body_bytes ? wrong_size(call, err)
                           : !rows ? strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for a pull")
                                   : STRATA_OK;
    for (int k = 0; k < s->sizes->n_tables && !status; k++) {
        tables[k].values = at;
        at += (size_t)(tables[k].n * s->tables[k].row) * strata_dtype_bytes(wire);
    }
    if (!status) status = close_before(s, call, err);
    if (!status) status = strata_ps_store_pull(s->store, tables, &snapshot, &version, err);
    if (!status) {
        memcpy(reply->head, &version, sizeof version);
        reply->head_bytes = sizeof version;
        reply->repeatable = true;
        reply->body[0] = (strata_rpc_piece){strata_ps_snapshot_data(snapshot), strata_ps_snapshot_bytes(snapshot),
                                            strata_ps_snapshot_release, snapshot};
        reply->body[1] = (strata_rpc_piece){rows, (size_t)(at - rows), free, rows};
        reply->n_body = 2;
        rows = NULL;
    }
    free(rows);
    free(tables);
    return status;
}

static strata_status push(server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    const strata_dtype wire = s->fit->task->wire;
    const size_t dense = strata_ps_wire_bytes(wire, s->sizes->dense), states = (size_t)s->sizes->states * sizeof(float);
    const size_t fixed = dense + states;
    strata_ps_push_ask ask;
    strata_ps_rows *tables = calloc((size_t)s->sizes->n_tables + 1, sizeof *tables);
    int64_t n_rows = 0, elements = -1, staleness = 0;
    if (!tables) return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for a push");
    unsigned char *body = call->body;
    if (call->head_bytes >= sizeof ask && call->body_bytes >= fixed) {
        memcpy(&ask, call->head, sizeof ask);
        const int32_t *ids = (const int32_t *)(const void *)(body + fixed);
        elements = read_tables(s, call, sizeof ask, ids, call->body_bytes - fixed, tables, &n_rows);
    }
    const size_t ids_bytes = (size_t)n_rows * sizeof(int32_t);
    strata_status status = STRATA_OK;
    if (elements < 0 || call->body_bytes != fixed + ids_bytes + (size_t)elements * strata_dtype_bytes(wire))
        status = wrong_size(call, err);
    unsigned char *at = body + fixed + ids_bytes;
    for (int k = 0; k < s->sizes->n_tables && !status; k++) {
        tables[k].values = at;
        at += (size_t)(tables[k].n * s->tables[k].row) * strata_dtype_bytes(wire);
    }
    if (!status) {
        const strata_ps_gradients gradients = {.unit = ask.unit,
                                               .version = ask.version,
                                               .dense = body,
                                               .tables = tables,
                                               .states = (const float *)(const void *)(body + dense)};
        status = strata_ps_store_push(s->store, &gradients, &staleness, err);
    }
    memcpy(reply->head, &staleness, sizeof staleness);
    reply->head_bytes = sizeof staleness;
    free(tables);
    return status;
}

static strata_status set(server *s, const strata_rpc_call *call, strata_error *err) {
    strata_ps_set_ask ask;
    if (call->head_bytes != sizeof ask || call->body_bytes != (size_t)s->n_elements * sizeof(float))
        return wrong_size(call, err);
    memcpy(&ask, call->head, sizeof ask);
    return strata_ps_store_set(s->store, call->body, ask.t, ask.serial, err);
}

static strata_status get(server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    int64_t t = 0;
    STRATA_TRY(close_before(s, call, err));
    float *values = malloc((size_t)(s->n_elements + 1) * sizeof *values);
    if (!values) return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for a copy of the shards");
    reply->body[0] = (strata_rpc_piece){values, (size_t)s->n_elements * sizeof *values, free, values};
    reply->n_body = 1;
    const strata_status status = strata_ps_store_get(s->store, values, &t, err);
    memcpy(reply->head, &t, sizeof t);
    reply->head_bytes = sizeof t;
    return status;
}

static strata_status end(server *s, const strata_rpc_call *call, strata_error *err) {
    int32_t status;
    if (call->head_bytes != sizeof status) return wrong_size(call, err);
    memcpy(&status, call->head, sizeof status);
    const int n = call->body_bytes < sizeof s->message ? (int)call->body_bytes : (int)sizeof s->message - 1;
    pthread_mutex_lock(&s->lock);
    s->over = true;
    s->status = (strata_status)status;
    snprintf(s->message, sizeof s->message, "%.*s", n, (const char *)call->body);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return STRATA_OK;
}

static strata_status handle(void *user, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    server *s = user;
    switch (call->method) {
        case STRATA_PS_HELLO:
            return strata_ps_answer_hello(s->fit, call, err);
        case STRATA_PS_PULL:
            return pull(s, call, reply, err);
        case STRATA_PS_PUSH:
            return push(s, call, reply, err);
        case STRATA_PS_SET:
            return set(s, call, err);
        case STRATA_PS_GET:
            return get(s, call, reply, err);
        case STRATA_PS_OVER:
            return end(s, call, err);
        default:
            return strata_fail(err, STRATA_INVALID, "parameter_server: a server knows no method %u", call->method);
    }
}

static void on_peer(void *user, strata_rpc_event event, const char *task, uint64_t incarnation, const char *why) {
    server *s = user;
    (void)incarnation, (void)why;
    if (strncmp(task, "chief", 5) != 0) return;
    pthread_mutex_lock(&s->lock);
    if (event == STRATA_RPC_CONNECTED) s->chief_came = true;
    s->chief_lost = event == STRATA_RPC_CONNECTED ? 0 : strata_ps_seconds();
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Until the chief says that the training is over; a chief that does not come, or does not come back, is waited for as long as
 * tasks are waited for at the start. */
static strata_status serve(server *s, strata_error *err) {
    const double patience = s->fit->task->connect_seconds, began = strata_ps_seconds();
    const char *address = s->fit->task->spec.jobs[STRATA_TASK_CHIEF].addresses[0];
    strata_status status = STRATA_OK;
    pthread_mutex_lock(&s->lock);
    while (!s->over && !status) {
        const struct timespec deadline = strata_ps_deadline(0.25);
        pthread_cond_timedwait(&s->changed, &s->lock, &deadline);
        const double now = strata_ps_seconds();
        if (s->over) break;
        if (!s->chief_came && now - began > patience)
            status = strata_fail(err, STRATA_TIMEOUT, "fit: the chief, %s, has not come to %s in %.0f s", address,
                                 s->fit->task->name, patience);
        if (s->chief_lost > 0 && now - s->chief_lost > patience)
            status = strata_fail(err, STRATA_PEER_LOST, "fit: the chief, %s, was lost, and did not come back to %s in %.0f s",
                                 address, s->fit->task->name, patience);
    }
    if (!status && s->status) status = strata_fail(err, s->status, "%s", s->message);
    pthread_mutex_unlock(&s->lock);
    return status;
}

strata_status strata_ps_fit_server(strata_ps_fit *fit, strata_error *err) {
    const int index = fit->task->spec.task_index;
    const strata_ps_store_options opts = {.n_shares = fit->task->pace.n_shares, .wire = fit->task->wire};
    server s = {.fit = fit, .sizes = &fit->plan.sizes[index], .n_elements = strata_ps_plan_elements(&fit->plan, index)};
    s.tables = fit->plan.shards + fit->plan.begins[index] + s.sizes->n_dense;
    strata_rpc_server *rpc = NULL;
    pthread_mutex_init(&s.lock, NULL);
    strata_ps_cond_init(&s.changed);
    strata_status status =
        strata_ps_store_create(fit->model, &fit->plan, index, fit->model->strategy->devices[0], &opts, &s.store, err);
    if (!status) status = strata_ps_listen(fit->task, handle, on_peer, &s, &rpc, err);
    if (!status) status = serve(&s, err);
    strata_rpc_server_destroy(rpc);
    strata_ps_store_destroy(s.store);
    pthread_cond_destroy(&s.changed);
    pthread_mutex_destroy(&s.lock);
    return status;
}
