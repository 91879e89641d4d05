/* SPDX-License-Identifier: Apache-2.0
 *
 * The fit of a server: it executes what chief and workers ask of its stores, until the chief says that the training is over.
 *
 * Its own shards are in one store. With replicas another store is the copy of the shards of the server before it. An owner
 * applies a change and sends it on to its copy in the same order, under `chain`, and answers when the copy has answered; so
 * what a worker was told to be done is in both. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategies/parameter_server/task.h"

/* The shards of a group that are here. */
typedef struct holding {
    int group;
    bool is_copy;
    strata_ps_store *store;
    const struct strata_ps_sizes *sizes;
    const strata_ps_shard *tables;
    int64_t n_elements;
} holding;

typedef struct server {
    const strata_ps_fit *fit;
    /* The own group, then the copy. */
    holding holdings[2];
    int n_holdings;
    /* Guards the next three: changes of the own group are applied and sent on in one order. */
    pthread_mutex_t chain;
    strata_rpc_client *next;
    /* The synchronous step that the copy closed last. */
    int64_t closed_epoch, closed_index;
    /* A change was applied here and may be missing in the copy: nothing is sent on until the chief has decided. */
    atomic_bool copy_failed;
    /* Both stores make their updates on one device, which takes runs of one thread at a time. */
    pthread_mutex_t device;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    strata_ps_route route;
    /* The chief: when it was lost (0: it is there, or was not there yet). */
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
static int64_t read_tables(const holding *h, const strata_rpc_call *call, size_t bytes, const int32_t *ids, size_t ids_bytes,
                           strata_ps_rows *tables, int64_t *out_n) {
    const int n = h->sizes->n_tables;
    int64_t elements = 0;
    *out_n = 0;
    if (call->head_bytes != bytes + (size_t)n * sizeof(int64_t)) return -1;
    for (int k = 0; k < n; k++) {
        int64_t rows;
        memcpy(&rows, (const char *)call->head + bytes + (size_t)k * sizeof rows, sizeof rows);
        if (rows < 0 || rows > h->tables[k].n_rows || (size_t)(*out_n + rows) > ids_bytes / sizeof *ids) return -1;
        tables[k] = (strata_ps_rows){.n = rows, .ids = ids + *out_n};
        *out_n += rows;
        elements += rows * h->tables[k].row;
    }
    return elements;
}

/* ---- owner and copy ---- */

static strata_ps_holders holders_of(server *s, int group) {
    if (group >= STRATA_PS_MOST_REPLICATED) return STRATA_PS_OWNER;
    pthread_mutex_lock(&s->lock);
    const strata_ps_holders holders = (strata_ps_holders)s->route.holders[group];
    pthread_mutex_unlock(&s->lock);
    return holders;
}

/* The store that a request about a group is for. A copy takes changes from the owner until workers use the copy itself; from
 * then on an owner that was believed lost, and lives, gets none through and so acknowledges none. */
static strata_status find_holding(server *s, const strata_rpc_call *call, int64_t group, holding **out_holding,
                                  strata_error *err) {
    const bool from_owner = strncmp(call->task, "ps:", 3) == 0;
    for (int i = 0; i < s->n_holdings; i++) {
        holding *h = &s->holdings[i];
        if (h->group != group) continue;
        const bool copy_serves = holders_of(s, h->group) == STRATA_PS_COPY;
        if (h->is_copy ? from_owner != copy_serves : !from_owner && !copy_serves) {
            *out_holding = h;
            return STRATA_OK;
        }
    }
    return strata_fail(err, STRATA_PEER_LOST, "parameter_server: %s does not serve the shards of ps:%lld to %s now",
                       s->fit->task->name, (long long)group, call->task);
}

static strata_status copy_is_lost(server *s, const char *why, strata_error *err) {
    atomic_store(&s->copy_failed, true);
    return strata_fail(err, STRATA_PEER_LOST, "parameter_server: %s could not reach the copy of its shards: %s",
                       s->fit->task->name, why);
}

/* Whether changes of these shards go to a copy as well. Takes the chain's lock if so. */
static strata_status enter_chain(server *s, const holding *h, bool *out_entered, strata_error *err) {
    *out_entered = !h->is_copy && holders_of(s, h->group) == STRATA_PS_BOTH;
    if (!*out_entered) return STRATA_OK;
    pthread_mutex_lock(&s->chain);
    if (!atomic_load(&s->copy_failed) && s->next) return STRATA_OK;
    pthread_mutex_unlock(&s->chain);
    *out_entered = false;
    return copy_is_lost(s, s->next ? "an earlier change did not reach it" : "it was not connected", err);
}

static strata_status push_here(server *s, holding *h, const strata_rpc_call *call, const strata_ps_gradients *gradients,
                               int64_t *out_staleness, strata_error *err) {
    const struct iovec body = {call->body, call->body_bytes};
    const strata_rpc_ask ask = {.method = STRATA_PS_PUSH,
                                .head = call->head,
                                .head_bytes = call->head_bytes,
                                .body = &body,
                                .n_body = 1,
                                .what = "a push for the copy"};
    strata_rpc_request *request = NULL;
    strata_error why = {0};
    int64_t ignored = 0;
    strata_rpc_answer answer = {.head = &ignored, .head_bytes = sizeof ignored};
    bool chained = false;
    STRATA_TRY(enter_chain(s, h, &chained, err));
    pthread_mutex_lock(&s->device);
    strata_status status = strata_ps_store_push(h->store, gradients, out_staleness, err);
    pthread_mutex_unlock(&s->device);
    if (!chained) return status;
    strata_status sent = STRATA_OK;
    if (!status) sent = strata_rpc_client_start(s->next, &ask, &answer, STRATA_PS_CALL_SECONDS, &request, &why);
    pthread_mutex_unlock(&s->chain);
    if (request) sent = strata_rpc_request_wait(request, &why);
    return status ? status : sent ? copy_is_lost(s, why.message, err) : STRATA_OK;
}

static strata_status close_here(server *s, holding *h, const strata_ps_pull_ask *asked, strata_error *err) {
    const strata_rpc_ask ask = {
        .method = STRATA_PS_CLOSE, .head = asked, .head_bytes = sizeof *asked, .what = "the end of a step for the copy"};
    const strata_ps_close *close = &asked->close;
    strata_error why = {0};
    bool chained = false;
    STRATA_TRY(enter_chain(s, h, &chained, err));
    pthread_mutex_lock(&s->device);
    strata_status status = strata_ps_store_close(h->store, close, err);
    pthread_mutex_unlock(&s->device);
    if (!chained) return status;
    const bool known = close->epoch < s->closed_epoch || (close->epoch == s->closed_epoch && close->index <= s->closed_index);
    const strata_status sent =
        status || known ? STRATA_OK : strata_rpc_client_call(s->next, &ask, NULL, STRATA_PS_CALL_SECONDS, &why);
    if (!status && !known && !sent) s->closed_epoch = close->epoch, s->closed_index = close->index;
    pthread_mutex_unlock(&s->chain);
    return status ? status : sent ? copy_is_lost(s, why.message, err) : STRATA_OK;
}

/* The group that a pull is of, whose step before is closed first. */
static strata_status close_before(server *s, const strata_rpc_call *call, holding **out_holding, strata_error *err) {
    strata_ps_pull_ask ask;
    if (call->head_bytes < sizeof ask) return wrong_size(call, err);
    memcpy(&ask, call->head, sizeof ask);
    STRATA_TRY(find_holding(s, call, ask.group, out_holding, err));
    return ask.has_close ? close_here(s, *out_holding, &ask, err) : STRATA_OK;
}

/* ---- requests ---- */

static strata_status pull(server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    const strata_dtype wire = s->fit->task->wire;
    holding *h = NULL;
    STRATA_TRY(close_before(s, call, &h, err));
    strata_ps_rows *tables = calloc((size_t)h->sizes->n_tables + 1, sizeof *tables);
    strata_ps_snapshot *snapshot = NULL;
    int64_t version = 0, n_rows = 0;
    if (!tables) return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for a pull");
    const int64_t elements = read_tables(h, call, sizeof(strata_ps_pull_ask), call->body, call->body_bytes, tables, &n_rows);
    unsigned char *rows = elements >= 0 ? malloc(strata_ps_wire_bytes(wire, elements) + 4) : NULL, *at = rows;
    strata_status status = elements < 0 || (size_t)n_rows * sizeof(int32_t) != call->body_bytes ? wrong_size(call, err)
                           : !rows ? strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for a pull")
                                   : STRATA_OK;
    for (int k = 0; k < h->sizes->n_tables && !status; k++) {
        tables[k].values = at;
        at += (size_t)(tables[k].n * h->tables[k].row) * strata_dtype_bytes(wire);
    }
    if (!status) status = strata_ps_store_pull(h->store, tables, &snapshot, &version, err);
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
    strata_ps_push_ask ask;
    holding *h = NULL;
    if (call->head_bytes < sizeof ask) return wrong_size(call, err);
    memcpy(&ask, call->head, sizeof ask);
    STRATA_TRY(find_holding(s, call, ask.group, &h, err));
    const size_t dense = strata_ps_wire_bytes(wire, h->sizes->dense), states = (size_t)h->sizes->states * sizeof(float);
    const size_t fixed = dense + states;
    strata_ps_rows *tables = calloc((size_t)h->sizes->n_tables + 1, sizeof *tables);
    int64_t n_rows = 0, elements = -1, staleness = 0;
    if (!tables) return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for a push");
    unsigned char *body = call->body;
    if (call->body_bytes >= fixed) {
        const int32_t *ids = (const int32_t *)(const void *)(body + fixed);
        elements = read_tables(h, call, sizeof ask, ids, call->body_bytes - fixed, tables, &n_rows);
    }
    const size_t ids_bytes = (size_t)n_rows * sizeof(int32_t);
    strata_status status = STRATA_OK;
    if (elements < 0 || call->body_bytes != fixed + ids_bytes + (size_t)elements * strata_dtype_bytes(wire))
        status = wrong_size(call, err);
    unsigned char *at = body + fixed + ids_bytes;
    for (int k = 0; k < h->sizes->n_tables && !status; k++) {
        tables[k].values = at;
        at += (size_t)(tables[k].n * h->tables[k].row) * strata_dtype_bytes(wire);
    }
    if (!status) {
        const strata_ps_gradients gradients = {.unit = ask.unit,
                                               .version = ask.version,
                                               .dense = body,
                                               .tables = tables,
                                               .states = (const float *)(const void *)(body + dense)};
        status = push_here(s, h, call, &gradients, &staleness, err);
    }
    memcpy(reply->head, &staleness, sizeof staleness);
    reply->head_bytes = sizeof staleness;
    free(tables);
    return status;
}

/* The owner meets the server of its copy. */
static strata_status meet_copy(server *s, strata_error *err) {
    const int next = strata_ps_copy_server(s->fit->task->spec.task_index, s->fit->plan.n_servers);
    pthread_mutex_lock(&s->chain);
    s->closed_epoch = s->closed_index = -1;
    const strata_status status = s->next ? STRATA_OK : strata_ps_connect(s->fit->task, STRATA_TASK_PS, next, &s->next, err);
    pthread_mutex_unlock(&s->chain);
    return status;
}

static strata_status set(server *s, const strata_rpc_call *call, strata_error *err) {
    strata_ps_set_ask ask;
    if (call->head_bytes != sizeof ask) return wrong_size(call, err);
    memcpy(&ask, call->head, sizeof ask);
    for (int i = 0; i < s->n_holdings; i++) {
        const holding *h = &s->holdings[i];
        if (h->group != ask.group) continue;
        if (call->body_bytes != (size_t)h->n_elements * sizeof(float)) return wrong_size(call, err);
        if (!h->is_copy && holders_of(s, h->group) == STRATA_PS_BOTH) STRATA_TRY(meet_copy(s, err));
        return strata_ps_store_set(h->store, call->body, ask.t, ask.serial, err);
    }
    return wrong_size(call, err);
}

static strata_status get(server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    int64_t t = 0;
    holding *h = NULL;
    STRATA_TRY(close_before(s, call, &h, err));
    float *values = malloc((size_t)(h->n_elements + 1) * sizeof *values);
    if (!values) return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for a copy of the shards");
    reply->body[0] = (strata_rpc_piece){values, (size_t)h->n_elements * sizeof *values, free, values};
    reply->n_body = 1;
    const strata_status status = strata_ps_store_get(h->store, values, &t, err);
    memcpy(reply->head, &t, sizeof t);
    reply->head_bytes = sizeof t;
    return status;
}

static strata_status take_route(server *s, const strata_rpc_call *call, strata_error *err) {
    if (call->head_bytes != sizeof s->route) return wrong_size(call, err);
    pthread_mutex_lock(&s->lock);
    memcpy(&s->route, call->head, sizeof s->route);
    pthread_mutex_unlock(&s->lock);
    atomic_store(&s->copy_failed, false);
    return STRATA_OK;
}

static strata_status hello(const server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    const strata_ps_hello_reply own = {.copy_failed = atomic_load(&s->copy_failed)};
    STRATA_TRY(strata_ps_answer_hello(s->fit, call, err));
    memcpy(reply->head, &own, sizeof own);
    reply->head_bytes = sizeof own;
    return STRATA_OK;
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
            return hello(s, call, reply, err);
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
        case STRATA_PS_ROUTE:
            return take_route(s, call, err);
        case STRATA_PS_CLOSE: {
            holding *ignored = NULL;
            return close_before(s, call, &ignored, err);
        }
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

static strata_status add_holding(server *s, int group, strata_error *err) {
    const strata_ps_plan *plan = &s->fit->plan;
    const strata_ps_store_options opts = {.n_shares = s->fit->task->pace.n_shares, .wire = s->fit->task->wire};
    holding *h = &s->holdings[s->n_holdings++];
    *h = (holding){.group = group,
                   .is_copy = group != s->fit->task->spec.task_index,
                   .sizes = &plan->sizes[group],
                   .n_elements = strata_ps_plan_elements(plan, group)};
    h->tables = plan->shards + plan->begins[group] + h->sizes->n_dense;
    return strata_ps_store_create(s->fit->model, plan, group, s->fit->model->strategy->devices[0], &opts, &h->store, err);
}

strata_status strata_ps_fit_server(strata_ps_fit *fit, strata_error *err) {
    const int index = fit->task->spec.task_index, n = fit->plan.n_servers;
    server s = {.fit = fit};
    strata_rpc_server *rpc = NULL;
    pthread_mutex_init(&s.lock, NULL);
    pthread_mutex_init(&s.chain, NULL);
    pthread_mutex_init(&s.device, NULL);
    strata_ps_cond_init(&s.changed);
    strata_status status = add_holding(&s, index, err);
    if (!status && fit->task->replicas) status = add_holding(&s, (index + n - 1) % n, err);
    if (!status) status = strata_ps_listen(fit->task, handle, on_peer, &s, &rpc, err);
    if (!status) status = serve(&s, err);
    strata_rpc_server_destroy(rpc);
    strata_rpc_client_destroy(s.next);
    for (int i = 0; i < s.n_holdings; i++) strata_ps_store_destroy(s.holdings[i].store);
    pthread_cond_destroy(&s.changed);
    pthread_mutex_destroy(&s.chain);
    pthread_mutex_destroy(&s.device);
    pthread_mutex_destroy(&s.lock);
    return status;
}
