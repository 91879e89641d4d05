/* SPDX-License-Identifier: Apache-2.0
 *
 * The fit of a server: it executes the requests of the chief and the workers with its stocks, until the chief ends the
 * training.
 *
 * Its own shards are in one stock. With replicas another stock is the copy of the shards of the server before it. An owner
 * applies a change and forwards it to its copy in the same order, under the lock `chain`, and replies when the copy has
 * replied. So every change that was acknowledged to a worker is in both. */
#include <stdatomic.h>
#include <stdio.h>

#include "strategies/parameter_server/task.h"

/* The parts of a worker's next push that have arrived: n_came elements of the dense gradients, of attempt `attempt`. */
typedef struct staging {
    int64_t attempt, n_came;
    /* (dense) In the type `wire`; NULL: no part has arrived yet. */
    unsigned char *dense;
} staging;

/* The shards of a bundle that this server has. */
typedef struct holding {
    int bundle;
    bool is_copy;
    strata_ps_stock *stock;
    const strata_ps_bundle *shards;
    int64_t n_elements;
    /* [workers] Each is used by the thread of its worker's connection alone. */
    staging *stagings;
} holding;

typedef struct server {
    const strata_ps_fit *fit;
    strata_memory memory;
    /* The bundle that this server owns, then the bundle of which it has the copy. */
    holding holdings[2];
    int n_holdings;
    /* [n_servers] The connections to other servers that were needed so far; under the lock `meeting`. */
    strata_rpc_client **peers;
    pthread_mutex_t meeting;
    /* Guards the next field: changes of the own bundle are applied and forwarded in the same order. */
    pthread_mutex_t chain;
    /* The element of `peers` for the server that has the copy. */
    strata_rpc_client *next;
    /* The pulls and pushes that are being executed or wait, and their largest number since the chief's last query. */
    struct queue {
        atomic_int n, most;
    } pulls, pushes;
    /* A change was applied here and may be missing in the copy. Nothing is forwarded until the chief has decided which server
     * serves the bundle. */
    atomic_bool copy_failed;
    /* Locked while a stock is used. Both are on one device, which one thread may use at a time. */
    pthread_mutex_t device;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Guarded by the lock. */
    strata_ps_route route;
    /* The greatest serial number that came with values. */
    int64_t serial;
    /* chief_lost: the chief had a connection, and has none now. */
    bool chief_came, chief_lost, over;
    strata_status status;
    char message[sizeof((strata_error *)0)->message];
    /* The error if this server has no memory for its shards; the chief gets it when it connects. OK: there is memory. It never
     * changes. */
    strata_status failed;
    char failure[sizeof((strata_error *)0)->message];
} server;

static strata_status wrong_size(const strata_rpc_call *call, strata_error *err) {
    return strata_fail(err, STRATA_INVALID,
                       "parameter_server: %s sent a request of method %u with %zu and %zu bytes, which "
                       "do not fit the shards of this server",
                       call->task, call->method, call->head_bytes, call->body_bytes);
}

static strata_status no_memory(const char *what, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for %s", what);
}

/* Reads the numbers and the indices of rows of all tables: fills tables[].n and ids, and moves *at behind them. Returns whether
 * their sizes are right. *out_elements: the elements of all rows. */
static bool read_tables(const holding *h, const unsigned char **at, const unsigned char *end, strata_ps_rows *tables,
                        int64_t *out_elements) {
    const int n = h->shards->n_tables;
    const unsigned char *counts = *at, *from = *at;
    *out_elements = 0;
    if ((size_t)(end - from) < (size_t)n * sizeof(int64_t)) return false;
    from += (size_t)n * sizeof(int64_t);
    for (int k = 0; k < n; k++) {
        int64_t rows;
        memcpy(&rows, counts + (size_t)k * sizeof rows, sizeof rows);
        if (rows < 0 || rows > h->shards->tables[k].n_rows || (size_t)rows > (size_t)(end - from) / sizeof(int32_t))
            return false;
        tables[k] = (strata_ps_rows){.n = rows, .ids = (const int32_t *)(const void *)from};
        from += (size_t)rows * sizeof(int32_t);
        *out_elements += rows * h->shards->tables[k].row;
    }
    *at = from;
    return true;
}

/* Sets where the values of all rows are, end to end. */
static void place_rows(const server *s, const holding *h, strata_ps_rows *tables, const unsigned char *at) {
    for (int k = 0; k < h->shards->n_tables; k++) {
        tables[k].values = at;
        at += (size_t)(tables[k].n * h->shards->tables[k].row) * strata_dtype_bytes(s->fit->task->wire);
    }
}

/* ---- other servers ---- */

static strata_status meet_peer(server *s, int index, strata_rpc_client **out_client, strata_error *err) {
    const size_t shared = strata_ps_plan_shared_bytes(&s->fit->plan);
    const strata_ps_task *task = s->fit->task;
    STRATA_LOCKED(&s->meeting);
    if (!s->peers[index])
        STRATA_TRY(strata_ps_connect(task, STRATA_TASK_PS, index, task->connect_seconds, shared, &s->peers[index], err));
    *out_client = s->peers[index];
    return STRATA_OK;
}

/* ---- owner and copy ---- */

static strata_ps_holders holders_of(server *s, int bundle) {
    if (bundle >= STRATA_PS_MOST_REPLICATED) return STRATA_PS_OWNER;
    STRATA_LOCKED(&s->lock);
    return (strata_ps_holders)s->route.holders[bundle];
}

/* Finds the stock for a request of a task about a bundle. A copy accepts changes from the owner until workers use the copy.
 * From then on, if the owner was not lost after all, its changes are refused, so it acknowledges none. */
static strata_status find_holding(server *s, const char *task, int64_t bundle, bool from_owner, holding **out_holding,
                                  strata_error *err) {
    for (int i = 0; i < s->n_holdings; i++) {
        holding *h = &s->holdings[i];
        if (h->bundle != bundle) continue;
        const bool copy_serves = holders_of(s, h->bundle) == STRATA_PS_COPY;
        if (h->is_copy ? from_owner != copy_serves : !from_owner && !copy_serves) {
            *out_holding = h;
            return STRATA_OK;
        }
    }
    return strata_fail(err, STRATA_PEER_LOST, "parameter_server: %s does not serve the shards of ps:%lld to %s now",
                       s->fit->task->name, (long long)bundle, task);
}

/* Finds it for a pull or a push. */
static strata_status find_called(server *s, const strata_rpc_call *call, int64_t bundle, holding **out_holding,
                                 strata_error *err) {
    return find_holding(s, call->task, bundle, strncmp(call->task, "ps:", 3) == 0, out_holding, err);
}

/* ---- the norm of all gradients ---- */

static strata_status square(server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    strata_ps_pull_ask ask;
    holding *h = NULL;
    double value = 0;
    memcpy(&ask, call->head, sizeof ask);
    STRATA_TRY(find_holding(s, call->task, ask.bundle, false, &h, err));
    STRATA_LOCKED(&s->device);
    STRATA_TRY(strata_ps_stock_square(h->stock, &ask.close, &value, err));
    strata_ps_reply(reply, &value, sizeof value);
    return STRATA_OK;
}

static strata_status ask_square(server *s, const strata_ps_close *close, int bundle, double *out_square, strata_error *err) {
    const strata_ps_pull_ask head = strata_ps_about(bundle, close);
    const strata_rpc_ask ask = strata_ps_ask(STRATA_PS_SQUARE, &head, NULL, 0);
    strata_rpc_answer answer = {.head = out_square, .head_bytes = sizeof *out_square};
    strata_rpc_client *client = NULL;
    pthread_mutex_lock(&s->lock);
    const int index = strata_ps_server_of(&s->route, bundle, s->fit->plan.n_servers);
    pthread_mutex_unlock(&s->lock);
    if (index == s->fit->task->spec.task_index) {
        holding *h = NULL;
        STRATA_TRY(find_holding(s, s->fit->task->name, bundle, false, &h, err));
        STRATA_LOCKED(&s->device);
        return strata_ps_stock_square(h->stock, close, out_square, err);
    }
    STRATA_TRY(meet_peer(s, index, &client, err));
    return strata_rpc_client_call(client, &ask, &answer, STRATA_PS_CALL_SECONDS, err);
}

/* With clip_global_norm every server needs the norm of the gradients of all servers. The squares are added in the order of the
 * servers, so all get the same bits. */
static strata_status add_squares(server *s, holding *h, strata_ps_close *close, strata_error *err) {
    const bool clips = s->fit->model->optimizer.clip_global_norm > 0;
    double sum = 0;
    if (!clips || close->square >= 0) return STRATA_OK;
    pthread_mutex_lock(&s->device);
    const bool known = strata_ps_stock_has_closed(h->stock, close);
    pthread_mutex_unlock(&s->device);
    if (known) return STRATA_OK;
    for (int g = 0; g < s->fit->plan.n_servers; g++) {
        double own = 0;
        STRATA_TRY(ask_square(s, close, g, &own, err));
        sum += own;
    }
    close->square = sum;
    return STRATA_OK;
}

static strata_status copy_is_lost(server *s, const char *why, strata_error *err) {
    atomic_store(&s->copy_failed, true);
    return strata_fail(err, STRATA_PEER_LOST, "parameter_server: %s could not reach the copy of its shards: %s",
                       s->fit->task->name, why);
}

/* Whether changes of these shards go to a copy as well. Takes the chain's lock if so. */
static strata_status enter_chain(server *s, const holding *h, bool *out_entered, strata_error *err) {
    *out_entered = !h->is_copy && holders_of(s, h->bundle) == STRATA_PS_BOTH;
    if (!*out_entered) return STRATA_OK;
    pthread_mutex_lock(&s->chain);
    if (!atomic_load(&s->copy_failed) && s->next) return STRATA_OK;
    pthread_mutex_unlock(&s->chain);
    *out_entered = false;
    return copy_is_lost(s, s->next ? "an earlier change did not reach it" : "it was not connected", err);
}

/* Makes a change of the shards: a push or, if that is NULL, the end of a step. ask: the same change, for the copy. */
static strata_status change(server *s, holding *h, const strata_ps_gradients *push, const strata_ps_close *close,
                            const strata_rpc_ask *ask, int64_t *out_staleness, strata_error *err) {
    strata_rpc_request *request = NULL;
    strata_error why = {0};
    int64_t ignored = 0;
    strata_rpc_answer answer = {.head = &ignored, .head_bytes = sizeof ignored};
    strata_status sent = STRATA_OK;
    bool chained = false;
    STRATA_TRY(enter_chain(s, h, &chained, err));
    pthread_mutex_lock(&s->device);
    const bool known = !push && strata_ps_stock_has_closed(h->stock, close); /* the copy then has closed it, too */
    const strata_status status =
        push ? strata_ps_stock_push(h->stock, push, out_staleness, err) : strata_ps_stock_close(h->stock, close, err);
    pthread_mutex_unlock(&s->device);
    if (!chained) return status;
    if (!status && !known) sent = strata_rpc_client_start(s->next, ask, &answer, STRATA_PS_CALL_SECONDS, &request, &why);
    pthread_mutex_unlock(&s->chain);
    if (request) sent = strata_rpc_request_wait(request, &why);
    return sent ? copy_is_lost(s, why.message, err) : status;
}

static strata_status push_here(server *s, holding *h, const strata_rpc_call *call, const strata_ps_gradients *gradients,
                               int64_t *out_staleness, strata_error *err) {
    strata_ps_push_ask head;
    memcpy(&head, call->head, sizeof head);
    head.first = 0;
    head.n = h->shards->dense_elements; /* with those that came before as parts */
    const unsigned char *rest = (const unsigned char *)gradients->states,
                        *end = (const unsigned char *)call->body + call->body_bytes;
    const size_t dense = strata_ps_wire_bytes(s->fit->task->wire, head.n);
    const struct iovec body[] = {{(void *)(uintptr_t)gradients->dense, dense}, {(void *)(uintptr_t)rest, (size_t)(end - rest)}};
    strata_rpc_ask ask = strata_ps_ask(STRATA_PS_PUSH, &head, body, 2);
    ask.what = "a push for the copy";
    return change(s, h, gradients, NULL, &ask, out_staleness, err);
}

static strata_status close_here(server *s, holding *h, strata_ps_pull_ask *asked, strata_error *err) {
    STRATA_TRY(add_squares(s, h, &asked->close, err));
    const strata_rpc_ask ask = strata_ps_ask(STRATA_PS_CLOSE, asked, NULL, 0);
    return change(s, h, NULL, &asked->close, &ask, NULL, err);
}

/* Reads the head of a request about a bundle, finds it, and closes the step before. */
static strata_status close_before(server *s, const strata_rpc_call *call, strata_ps_pull_ask *ask, holding **out_holding,
                                  strata_error *err) {
    memcpy(ask, call->head, sizeof *ask);
    STRATA_TRY(find_called(s, call, ask->bundle, out_holding, err));
    return ask->has_close ? close_here(s, *out_holding, ask, err) : STRATA_OK;
}

/* ---- requests ---- */

static strata_status pull(server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    const strata_dtype wire = s->fit->task->wire;
    strata_ps_pull_ask ask;
    holding *h = NULL;
    STRATA_TRY(close_before(s, call, &ask, &h, err));
    int64_t version = 0, elements = 0;
    STRATA_FREED strata_ps_rows *tables = strata_zeroed((size_t)h->shards->n_tables, sizeof *tables);
    if (!tables) return no_memory("a pull", err);
    const size_t fixed = strata_ps_wire_bytes(wire, h->shards->dense_elements) + (size_t)h->shards->n_states * sizeof(float);
    const unsigned char *at = call->body, *end = at + call->body_bytes;
    if (!read_tables(h, &at, end, tables, &elements) || at != end) return wrong_size(call, err);
    const size_t bytes = fixed + (size_t)elements * strata_dtype_bytes(wire);
    /* for a worker on this machine the reply is written into shared memory */
    unsigned char *lent = strata_rpc_reply_room(call, bytes), *own = lent ? NULL : malloc(bytes + 4), *room = lent ? lent : own;
    if (!room) return no_memory("a pull", err);
    reply->repeatable = true;
    reply->body[0] = (strata_rpc_piece){room, bytes, own ? free : NULL, own};
    reply->n_body = 1;
    place_rows(s, h, tables, room + fixed);
    STRATA_LOCKED(&s->device); /* a pull of the other stock reads from it, too */
    STRATA_TRY(strata_ps_stock_pull(h->stock, tables, ask.ahead, room, &version, err));
    strata_ps_reply(reply, &version, sizeof version);
    return STRATA_OK;
}

/* Stores the dense gradients with which a push of a worker begins, beside those of the same attempt that came before. */
static strata_status stage(const server *s, holding *h, const strata_rpc_call *call, const strata_ps_push_ask *ask,
                           staging **out_staging, strata_error *err) {
    const size_t each = strata_dtype_bytes(s->fit->task->wire);
    const int index = strata_ps_worker_index(call->task, s->fit->task->pace.n_workers);
    if (index < 0 || ask->attempt < 1) return wrong_size(call, err);
    staging *own = *out_staging = &h->stagings[index];
    if (!own->dense) own->dense = calloc(1, strata_ps_wire_bytes(s->fit->task->wire, h->shards->dense_elements));
    if (!own->dense) return no_memory("the parts of a push", err);
    if (own->attempt != ask->attempt) own->n_came = 0;
    own->attempt = ask->attempt;
    own->n_came += ask->n;
    if (ask->n) memcpy(own->dense + (size_t)ask->first * each, call->body, (size_t)ask->n * each);
    return STRATA_OK;
}

/* A unit's last push is applied, together with its parts. Other pushes are such parts, which wait for it. */
static strata_status push(server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    const strata_dtype wire = s->fit->task->wire;
    strata_ps_push_ask ask;
    staging *parts = NULL;
    holding *h = NULL;
    memcpy(&ask, call->head, sizeof ask);
    STRATA_TRY(find_called(s, call, ask.bundle, &h, err));
    const int64_t all = h->shards->dense_elements;
    if (ask.first < 0 || ask.n < 0 || ask.first > all || ask.n > all - ask.first) return wrong_size(call, err);
    const bool last = call->method == STRATA_PS_PUSH;
    const size_t dense_bytes = strata_ps_wire_bytes(wire, ask.n);
    const size_t fixed = dense_bytes + (last ? (size_t)h->shards->n_states * sizeof(float) : 0);
    const unsigned char *body = call->body, *at = body + fixed, *end = body + call->body_bytes;
    if (call->body_bytes < fixed || (!last && at != end)) return wrong_size(call, err);
    if (!last || ask.n < all) STRATA_TRY(stage(s, h, call, &ask, &parts, err));
    if (!last) return STRATA_OK;
    if (parts && parts->n_came != all) /* a server that was started again does not have them */
        return strata_fail(err, STRATA_PEER_LOST, "parameter_server: %s does not have all parts of a push of %s",
                           s->fit->task->name, call->task);
    int64_t elements = 0, staleness = 0;
    STRATA_FREED strata_ps_rows *tables = strata_zeroed((size_t)h->shards->n_tables, sizeof *tables);
    if (!tables) return no_memory("a push", err);
    if (!read_tables(h, &at, end, tables, &elements) || (size_t)(end - at) != (size_t)elements * strata_dtype_bytes(wire))
        return wrong_size(call, err);
    place_rows(s, h, tables, at);
    const strata_ps_gradients gradients = {.unit = ask.unit,
                                           .version = ask.version,
                                           .rate = ask.rate,
                                           .dense = parts ? parts->dense : body,
                                           .tables = tables,
                                           .states = (const float *)(const void *)(body + dense_bytes)};
    STRATA_TRY(push_here(s, h, call, &gradients, &staleness, err));
    if (staleness >= 0) strata_trace_add_counter(s->fit->trace, "staleness", (double)staleness, strata_trace_now());
    strata_ps_reply(reply, &staleness, sizeof staleness);
    return STRATA_OK;
}

/* The owner connects to the server that has its copy. */
static strata_status meet_copy(server *s, strata_error *err) {
    const int next = strata_ps_copy_server(s->fit->task->spec.task_index, s->fit->plan.n_servers);
    STRATA_LOCKED(&s->chain);
    return meet_peer(s, next, &s->next, err);
}

static strata_status set(server *s, const strata_rpc_call *call, strata_error *err) {
    strata_ps_set_ask ask;
    memcpy(&ask, call->head, sizeof ask);
    pthread_mutex_lock(&s->lock);
    if (ask.serial > s->serial) s->serial = ask.serial;
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->n_holdings; i++) {
        const holding *h = &s->holdings[i];
        if (h->bundle != ask.bundle) continue;
        if (call->body_bytes != (size_t)h->n_elements * sizeof(float)) return wrong_size(call, err);
        if (!h->is_copy && holders_of(s, h->bundle) == STRATA_PS_BOTH) STRATA_TRY(meet_copy(s, err));
        STRATA_LOCKED(&s->device);
        return strata_ps_stock_set(h->stock, call->body, ask.t, ask.serial, err);
    }
    return wrong_size(call, err);
}

/* Reads all values of the bundle that a request is about. The caller frees *out_values, also after a failure. */
static strata_status read_bundle(server *s, const strata_rpc_call *call, holding **out_holding, float **out_values,
                                 int64_t *out_t, strata_error *err) {
    strata_ps_pull_ask ask;
    STRATA_TRY(close_before(s, call, &ask, out_holding, err));
    *out_values = malloc((size_t)((*out_holding)->n_elements + 1) * sizeof **out_values);
    if (!*out_values) return no_memory("a copy of the shards", err);
    STRATA_LOCKED(&s->device);
    return strata_ps_stock_get((*out_holding)->stock, *out_values, out_t, err);
}

static strata_status get(server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    int64_t t = 0;
    holding *h = NULL;
    float *values = NULL;
    const strata_status status = read_bundle(s, call, &h, &values, &t, err);
    reply->body[0] = (strata_rpc_piece){values, h ? (size_t)h->n_elements * sizeof *values : 0, free, values};
    reply->n_body = 1;
    strata_ps_reply(reply, &t, sizeof t);
    return status;
}

static strata_status save(server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    strata_ps_save_reply own = {0};
    holding *h = NULL;
    STRATA_FREED float *values = NULL;
    const char *path = call->body;
    if (!call->body_bytes || path[call->body_bytes - 1]) return wrong_size(call, err);
    STRATA_TRY(read_bundle(s, call, &h, &values, &own.t, err));
    STRATA_TRY(strata_ps_save_bundle(s->fit, h->bundle, values, path, &own, err));
    strata_ps_reply(reply, &own, sizeof own);
    return STRATA_OK;
}

static strata_status take_route(server *s, const strata_rpc_call *call) {
    STRATA_LOCKED(&s->lock);
    memcpy(&s->route, call->head, sizeof s->route);
    atomic_store(&s->copy_failed, false);
    return STRATA_OK;
}

static void enter_queue(struct queue *queue) {
    const int n = atomic_fetch_add(&queue->n, 1) + 1;
    int most = atomic_load(&queue->most);
    while (n > most && !atomic_compare_exchange_weak(&queue->most, &most, n)) {
    }
}

static strata_status hello(server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    strata_ps_hello_reply own = {.copy_failed = atomic_load(&s->copy_failed)};
    int64_t ignored = 0;
    STRATA_TRY(strata_ps_answer_hello(s->fit, call, &ignored, err));
    if (s->failed) return strata_fail(err, s->failed, "%s", s->failure);
    pthread_mutex_lock(&s->lock);
    own.route = s->route;
    own.serial = s->serial;
    pthread_mutex_unlock(&s->lock);
    if (!strncmp(call->task, "chief", 5)) {
        own.pulls = atomic_exchange(&s->pulls.most, atomic_load(&s->pulls.n));
        own.pushes = atomic_exchange(&s->pushes.most, atomic_load(&s->pushes.n));
    }
    strata_ps_reply(reply, &own, sizeof own);
    return STRATA_OK;
}

static strata_status end(server *s, const strata_rpc_call *call) {
    int32_t status;
    memcpy(&status, call->head, sizeof status);
    const int n = call->body_bytes < sizeof s->message ? (int)call->body_bytes : (int)sizeof s->message - 1;
    STRATA_LOCKED(&s->lock);
    s->over = true;
    s->status = (strata_status)status;
    snprintf(s->message, sizeof s->message, "%.*s", n, (const char *)call->body);
    pthread_cond_broadcast(&s->changed);
    return STRATA_OK;
}

static strata_status execute(server *s, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    if (s->failed && call->method != STRATA_PS_HELLO && call->method != STRATA_PS_OVER)
        return strata_fail(err, s->failed, "%s", s->failure);
    if (call->method < STRATA_PS_METHODS && call->method != STRATA_PS_HELLO &&
        call->head_bytes != strata_ps_methods[call->method].head_bytes)
        return wrong_size(call, err);
    switch (call->method) {
        case STRATA_PS_HELLO:
            return hello(s, call, reply, err);
        case STRATA_PS_PULL:
            return pull(s, call, reply, err);
        case STRATA_PS_PUSH:
        case STRATA_PS_PART:
            return push(s, call, reply, err);
        case STRATA_PS_SET:
            return set(s, call, err);
        case STRATA_PS_GET:
            return get(s, call, reply, err);
        case STRATA_PS_OVER:
            return end(s, call);
        case STRATA_PS_ROUTE:
            return take_route(s, call);
        case STRATA_PS_CLOSE:
            return close_before(s, call, &(strata_ps_pull_ask){0}, &(holding *){NULL}, err);
        case STRATA_PS_SAVE:
            return save(s, call, reply, err);
        case STRATA_PS_SQUARE:
            return square(s, call, reply, err);
        default:
            return strata_fail(err, STRATA_INVALID, "parameter_server: a server knows no method %u", call->method);
    }
}

static void trace_queue(server *s) {
    const int n = atomic_load(&s->pulls.n) + atomic_load(&s->pushes.n);
    strata_trace_add_counter(s->fit->trace, "queue depth", n, strata_trace_now());
}

static strata_status handle(void *user, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    server *s = user;
    strata_trace *trace = s->fit->trace;
    struct queue *queue = call->method == STRATA_PS_PULL ? &s->pulls : call->method == STRATA_PS_PUSH ? &s->pushes : NULL;
    const char *name = call->method < STRATA_PS_METHODS ? strata_ps_methods[call->method].trace : NULL;
    const double began = trace ? strata_trace_now() : 0;
    if (queue) enter_queue(queue);
    if (queue && trace) trace_queue(s);
    const strata_status status = execute(s, call, reply, err);
    if (queue) atomic_fetch_sub(&queue->n, 1);
    if (queue && trace) trace_queue(s);
    /* requests of one task are executed one after the other, so each task has its own track */
    if (name && trace)
        strata_trace_add_named(trace, strata_trace_thread_track(trace, call->task), name, (int64_t)call->sequence, began,
                               strata_trace_now());
    return status;
}

static void on_peer(void *user, strata_rpc_event event, const char *task, uint64_t incarnation, const char *why) {
    server *s = user;
    (void)incarnation, (void)why;
    if (strncmp(task, "chief", 5) != 0) return;
    STRATA_LOCKED(&s->lock);
    if (event == STRATA_RPC_CONNECTED) s->chief_came = true;
    s->chief_lost = event != STRATA_RPC_CONNECTED;
    pthread_cond_broadcast(&s->changed);
}

/* Executes requests until the chief ends the training. If the chief does not connect, or not again after it was lost, this
 * fails after connect_seconds. */
static strata_status serve(server *s, strata_rpc_server *rpc, strata_error *err) {
    const double seconds = s->fit->task->connect_seconds;
    strata_patience patience = strata_patience_of(seconds); /* for the chief, at the start or after it was lost */
    const char *address = s->fit->task->spec.jobs[STRATA_TASK_CHIEF].addresses[0];
    STRATA_LOCKED(&s->lock);
    while (!s->over) {
        strata_wait_for(&s->changed, &s->lock, 0.25);
        if (s->over) break;
        const bool waits = !s->chief_came || s->chief_lost;
        if (!waits) patience = strata_patience_of(seconds);
        const bool late = strata_patience_left(&patience) <= 0;
        if (s->chief_lost && late)
            return strata_fail(err, STRATA_PEER_LOST, "fit: the chief, %s, was lost, and did not come back to %s in %.0f s",
                               address, s->fit->task->name, seconds);
        if (!s->chief_came && late)
            return strata_fail(err, STRATA_TIMEOUT, "fit: the chief, %s, has not come to %s in %.0f s%s", address,
                               s->fit->task->name, seconds, strata_rpc_server_refused(rpc).text);
    }
    return s->status ? strata_fail(err, s->status, "%s", s->message) : STRATA_OK;
}

static strata_status add_holding(server *s, int bundle, strata_error *err) {
    const strata_ps_plan *plan = &s->fit->plan;
    const strata_ps_task *task = s->fit->task;
    const strata_ps_stock_options opts = {.n_shares = task->pace.n_shares, .wire = task->wire, .staleness = task->staleness};
    holding *h = &s->holdings[s->n_holdings++];
    *h = (holding){.bundle = bundle,
                   .is_copy = bundle != task->spec.task_index,
                   .shards = &plan->bundles[bundle],
                   .n_elements = strata_ps_plan_elements(plan, bundle),
                   .stagings = strata_memory_take(&s->memory, task->pace.n_workers, sizeof *h->stagings)};
    if (!h->stagings) return no_memory("a server", err);
    return strata_ps_stock_create(s->fit->model, plan, bundle, s->fit->model->strategy->devices[0], &opts, &h->stock, err);
}

/* The own shards, and with replicas the copy of those of the server before. */
static strata_status add_holdings(server *s, strata_error *err) {
    const int index = s->fit->task->spec.task_index, n = s->fit->plan.n_servers;
    STRATA_TRY(add_holding(s, index, err));
    return s->fit->task->replicas ? add_holding(s, (index + n - 1) % n, err) : STRATA_OK;
}

/* If adding the stocks fails, the server starts nevertheless, so that every task gets the reason and ends at once. */
static void keep_failure(server *s, strata_status status, const char *message) {
    const strata_ps_fit *fit = s->fit;
    int64_t elements = 0;
    if (!status) return;
    for (int i = 0; i < s->n_holdings; i++) elements += s->holdings[i].n_elements;
    s->failed = status;
    snprintf(s->failure, sizeof s->failure, "fit: %s cannot hold its shards, %lld bytes on %s: %.300s", fit->task->name,
             (long long)elements * (long long)sizeof(float), strata_device_get_info(fit->model->strategy->devices[0])->id,
             message);
}

strata_status strata_ps_fit_server(strata_ps_fit *fit, strata_error *err) {
    const int n = fit->plan.n_servers;
    server s = {.fit = fit};
    strata_rpc_server *rpc = NULL;
    pthread_mutex_init(&s.lock, NULL);
    pthread_mutex_init(&s.chain, NULL);
    pthread_mutex_init(&s.meeting, NULL);
    pthread_mutex_init(&s.device, NULL);
    strata_clock_cond_init(&s.changed);
    s.peers = strata_memory_take(&s.memory, n, sizeof(*s.peers));
    strata_error own = {0};
    strata_status status = s.peers ? STRATA_OK : no_memory("a server", err);
    if (!status) keep_failure(&s, add_holdings(&s, &own), own.message);
    if (!status) status = strata_ps_listen(fit->task, handle, on_peer, &s, &rpc, err);
    if (!status) status = serve(&s, rpc, err);
    if (s.failed) status = strata_fail(err, s.failed, "%s", s.failure);
    strata_rpc_server_destroy(rpc);
    for (int i = 0; s.peers && i < n; i++) strata_rpc_client_destroy(s.peers[i]);
    for (int i = 0; i < s.n_holdings; i++) {
        const holding *h = &s.holdings[i];
        for (int w = 0; h->stagings && w < fit->task->pace.n_workers; w++) free(h->stagings[w].dense);
        strata_ps_stock_destroy(h->stock);
    }
    strata_memory_finish(&s.memory);
    pthread_cond_destroy(&s.changed);
    pthread_mutex_destroy(&s.meeting);
    pthread_mutex_destroy(&s.chain);
    pthread_mutex_destroy(&s.device);
    pthread_mutex_destroy(&s.lock);
    return status;
}
