/* SPDX-License-Identifier: Apache-2.0
 *
 * Detects that a task reaches a point of faults.h, injects the fault and writes the log. For each line WRAP(f), which CMake
 * reads, the linker replaces the library's function f by __wrap_f and renames f to __real_f. */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/model/loop.h"
#include "strata/executable.h"
#include "tests/faults/faults.h"
#include "tests/faults/wire.h"

#define WRAP(f) extern __typeof__(f) __real_##f, __wrap_##f
WRAP(strata_ps_say_hello);
WRAP(strata_ps_answer_hello);
WRAP(strata_ps_listen);
WRAP(strata_ps_send_values);
WRAP(strata_ps_fetch_values);
WRAP(strata_ps_pace_create);
WRAP(strata_ps_pace_begin);
WRAP(strata_ps_pace_join);
WRAP(strata_ps_pace_lose);
WRAP(strata_ps_pace_ask);
WRAP(strata_ps_pace_finish);
WRAP(strata_ps_stock_create);
WRAP(strata_ps_stock_set);
WRAP(strata_ps_stock_get);
WRAP(strata_ps_stock_push);
WRAP(strata_ps_stock_pull);
WRAP(strata_ps_stock_close);
WRAP(strata_rpc_client_start);
WRAP(strata_rpc_client_call);
WRAP(strata_rpc_request_wait);
WRAP(strata_rpc_server_destroy);
WRAP(strata_executable_wait);
WRAP(strata_validation_take);
WRAP(strata_validation_restore);
WRAP(rename);

shared_state *shared;
/* The number of the task that this process runs. -1: it is not a task but a process that starts tasks. */
static int own_task = -1;
static role own_role;

role role_of(int task) {
    return task == CHIEF_TASK ? CHIEF : task < FIRST_SERVER ? WORKER : SERVER;
}

/* ---- the log ---- */

void points_log(entry_kind kind, entry what) {
    const int at = atomic_fetch_add(&shared->n_entries, 1);
    if (at >= MOST_ENTRIES) return;
    entry *own = &shared->entries[at];
    own->task = own_task;
    own->worker = what.worker;
    own->group = what.group;
    own->epoch = what.epoch;
    own->index = what.index;
    own->share = what.share;
    own->at = test_seconds();
    atomic_store(&own->kind, kind);
}

static void log_unit(entry_kind kind, int worker, int64_t group, const strata_ps_unit *unit) {
    points_log(kind,
               (entry){.worker = worker, .group = group, .epoch = unit->epoch, .index = unit->index, .share = unit->share});
}

/* ---- faults ---- */

/* Resets all TCP connections of this process. It is also a signal handler. It uses system calls directly, because
 * ThreadSanitizer would report a race between the C library's functions and the threads that use these sockets. */
static void cut_links(int ignored) {
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    const int error = errno;
    (void)ignored;
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in peer;
        socklen_t n = sizeof peer;
        if (syscall(SYS_getpeername, fd, &peer, &n) || peer.sin_family != AF_INET) continue;
        syscall(SYS_connect, fd, &nobody, sizeof nobody);
    }
    errno = error;
}

static void inject_fault(void) {
    const pid_t victim = own_task == shared->victim ? getpid() : shared->pids[shared->victim];
    const fault what = shared->fault;
    shared->injected_at = test_seconds();
    if (what == KILL || what == STOP) atomic_store(&shared->absent, 1);
    if (what == REPEAT || what == DROP) atomic_store(&shared->frame_fault, what == REPEAT ? FRAME_REPEAT : FRAME_DROP);
    atomic_store(&shared->injected, 1);
    if (what == KILL) kill(victim, SIGKILL);
    if (what == STOP) kill(victim, SIGSTOP);
    if (what == CUT && victim == getpid()) cut_links(0);
    if (what == CUT && victim != getpid()) kill(victim, SIGUSR1);
}

static void reach(point p) {
    if (own_task < 0 || p != shared->point || own_role != shared->actor) return;
    if (own_role == shared->victim_role && own_task != shared->victim) return;
    if (atomic_fetch_add(&shared->reached, 1) == shared->occurrence) inject_fault();
}

void points_begin(int task) {
    own_task = task;
    own_role = role_of(task);
    shared->pids[task] = getpid();
    signal(SIGUSR1, cut_links);
}

int points_take_frame_fault(void) {
    return own_task >= 0 && own_task == shared->victim ? atomic_exchange(&shared->frame_fault, 0) : 0;
}

/* ---- workers ---- */

/* A request for whose reply this thread waits. */
typedef struct pending {
    strata_rpc_request *request;
    strata_ps_method method;
    strata_ps_push_ask push;
} pending;
enum { MOST_PENDING = 64 };
static _Thread_local pending waits_for[MOST_PENDING];
/* The chief has told this worker that the training is over. */
static bool ends;

static int64_t group_of(const strata_rpc_ask *ask) {
    strata_ps_push_ask push;
    strata_ps_pull_ask pull;
    if (ask->method == STRATA_PS_PUSH) memcpy(&push, ask->head, sizeof push);
    if (ask->method == STRATA_PS_PULL) memcpy(&pull, ask->head, sizeof pull);
    return ask->method == STRATA_PS_PUSH ? push.bundle : pull.bundle;
}

static void note_request(const strata_rpc_ask *ask, strata_rpc_request *request) {
    for (int i = 0; i < MOST_PENDING; i++) {
        if (waits_for[i].request) continue;
        waits_for[i] = (pending){.request = request, .method = (strata_ps_method)ask->method};
        if (ask->method == STRATA_PS_PUSH) memcpy(&waits_for[i].push, ask->head, sizeof waits_for[i].push);
        return;
    }
}

strata_status __wrap_strata_rpc_client_start(strata_rpc_client *client, const strata_rpc_ask *ask, strata_rpc_answer *answer,
                                             double seconds, strata_rpc_request **out_request, strata_error *err) {
    const bool pulls = ask->method == STRATA_PS_PULL, pushes = ask->method == STRATA_PS_PUSH;
    if (own_role == WORKER && pulls && group_of(ask) == 0) reach(FIRST_PULL);
    if (ends && pulls) reach(LAST_PULL);
    if (own_role == WORKER && pushes && group_of(ask) == 1) reach(BETWEEN_PUSHES);
    if (own_role == SERVER && pushes) reach(BEFORE_COPY);
    const strata_status status = __real_strata_rpc_client_start(client, ask, answer, seconds, out_request, err);
    if (own_role != WORKER || !(pulls || pushes) || status) return status;
    note_request(ask, *out_request);
    if (ends) reach(LAST_PULL);
    if (pushes && group_of(ask) == SERVERS - 1) reach(NOT_ACKNOWLEDGED);
    return status;
}

strata_status __wrap_strata_rpc_request_wait(strata_rpc_request *request, strata_error *err) {
    enum { STEP_US = 4000 };
    pending own = {0};
    for (int i = 0; i < MOST_PENDING && !own.request; i++) {
        if (waits_for[i].request != request) continue;
        own = waits_for[i];
        waits_for[i].request = NULL;
    }
    const strata_status status = __real_strata_rpc_request_wait(request, err);
    if (!own.request || status) return status;
    if (own.method == STRATA_PS_PUSH) log_unit(ACKNOWLEDGED, 0, own.push.bundle, &own.push.unit);
    if (own.method == STRATA_PS_PULL) {
        reach(AFTER_PULL);
        usleep(STEP_US / SERVERS); /* without it the training could end before the fault has an effect */
    }
    return status;
}

strata_status __wrap_strata_rpc_client_call(strata_rpc_client *client, const strata_rpc_ask *ask, strata_rpc_answer *answer,
                                            double seconds, strata_error *err) {
    const bool reports = own_role == WORKER && ask->method == STRATA_PS_NEXT;
    /* A request may report several batches; the last one has the highest index. */
    const size_t n_reports = reports ? ask->head_bytes / sizeof(strata_ps_next_ask) : 0;
    if (reports && ((const strata_ps_next_ask *)ask->head)[n_reports - 1].unit.index >= STEPS - WORKERS) reach(EPOCH_END);
    const strata_status status = __real_strata_rpc_client_call(client, ask, answer, seconds, err);
    if (!reports || status) return status;
    const int32_t grant = ((const strata_ps_next_reply *)answer->head)->grant;
    if (grant == STRATA_PS_GRANTED) reach(LEASE);
    ends = grant == STRATA_PS_TRAINING_OVER;
    if (ends) reach(SHUTDOWN);
    return status;
}

/* ---- all roles ---- */

strata_status __wrap_strata_ps_say_hello(const strata_ps_fit *fit, strata_rpc_client *client, double seconds,
                                         strata_ps_hello_reply *out_reply, strata_error *err) {
    if (own_role == WORKER) reach(JOINING);
    return __real_strata_ps_say_hello(fit, client, seconds, out_reply, err);
}

strata_status __wrap_strata_ps_answer_hello(const strata_ps_fit *fit, const strata_rpc_call *call, int64_t *out_serial,
                                            strata_error *err) {
    if (own_role != WORKER) reach(JOINING);
    return __real_strata_ps_answer_hello(fit, call, out_serial, err);
}

strata_status __wrap_strata_ps_listen(const strata_ps_task *task, strata_rpc_handler handler, strata_rpc_on_peer on_peer,
                                      void *user, strata_rpc_server **out_server, strata_error *err) {
    const strata_status status = __real_strata_ps_listen(task, handler, on_peer, user, out_server, err);
    if (own_role == SERVER && !status) points_log(LISTENS, (entry){0});
    if (own_role != WORKER && own_task == shared->victim && !status) atomic_store(&shared->absent, 0);
    return status;
}

void __wrap_strata_rpc_server_destroy(strata_rpc_server *server) {
    if (own_role == SERVER) reach(SHUTDOWN);
    __real_strata_rpc_server_destroy(server);
}

/* ---- servers ---- */

/* The group of each store of this process. */
static struct {
    const strata_ps_stock *store;
    int group;
} stores[SERVERS];
/* This thread updates parameters; this thread has handled a push and not yet sent the reply. */
static _Thread_local bool updates, has_unanswered_push;

static int group_of_store(const strata_ps_stock *store) {
    for (int i = 0; i < SERVERS; i++)
        if (stores[i].store == store) return stores[i].group;
    return -1;
}

strata_status __wrap_strata_ps_stock_create(const strata_model *model, const strata_ps_plan *plan, int server,
                                            strata_device *device, const strata_ps_stock_options *opts,
                                            strata_ps_stock **out_store, strata_error *err) {
    const strata_status status = __real_strata_ps_stock_create(model, plan, server, device, opts, out_store, err);
    for (int i = 0; i < SERVERS && !status; i++) {
        if (stores[i].store) continue;
        stores[i].store = *out_store;
        stores[i].group = server;
        break;
    }
    return status;
}

strata_status __wrap_strata_ps_stock_set(strata_ps_stock *store, const float *values, int64_t t, int64_t epoch,
                                         strata_error *err) {
    points_log(SET, (entry){.group = group_of_store(store), .epoch = epoch});
    return __real_strata_ps_stock_set(store, values, t, epoch, err);
}

strata_status __wrap_strata_ps_stock_get(strata_ps_stock *store, float *values, int64_t *out_t, strata_error *err) {
    reach(EPOCH_END);
    points_log(READ, (entry){.group = group_of_store(store)});
    return __real_strata_ps_stock_get(store, values, out_t, err);
}

strata_status __wrap_strata_ps_stock_push(strata_ps_stock *store, const strata_ps_gradients *gradients, int64_t *out_staleness,
                                          strata_error *err) {
    updates = true;
    const strata_status status = __real_strata_ps_stock_push(store, gradients, out_staleness, err);
    updates = false;
    has_unanswered_push = true;
    if (!status && *out_staleness >= 0) log_unit(APPLIED, 0, group_of_store(store), &gradients->unit);
    return status;
}

strata_status __wrap_strata_ps_stock_close(strata_ps_stock *store, const strata_ps_close *close, strata_error *err) {
    updates = true;
    const strata_status status = __real_strata_ps_stock_close(store, close, err);
    updates = false;
    return status;
}

strata_status __wrap_strata_ps_stock_pull(strata_ps_stock *store, const strata_ps_rows *tables, bool ahead, void *room,
                                          int64_t *out_version, strata_error *err) {
    reach(FIRST_PULL);
    const strata_status status = __real_strata_ps_stock_pull(store, tables, ahead, room, out_version, err);
    if (!status) reach(AFTER_PULL);
    return status;
}

strata_status __wrap_strata_executable_wait(strata_executable *executable, int slot, strata_error *err) {
    const strata_status status = __real_strata_executable_wait(executable, slot, err);
    if (updates) reach(HALF_UPDATE);
    return status;
}

void points_answer(void) {
    if (!has_unanswered_push) return;
    has_unanswered_push = false;
    reach(NOT_ACKNOWLEDGED);
}

/* ---- the chief ---- */

static int64_t serial;

strata_status __wrap_strata_ps_send_values(const strata_ps_fit *fit, strata_rpc_client *const *servers, int64_t first,
                                           strata_error *err) {
    reach(FIRST_PULL);
    return __real_strata_ps_send_values(fit, servers, first, err);
}

strata_status __wrap_strata_ps_fetch_values(const strata_ps_fit *fit, strata_rpc_client *const *servers,
                                            const strata_ps_close *close, strata_error *err) {
    reach(EPOCH_END);
    const strata_status status = __real_strata_ps_fetch_values(fit, servers, close, err);
    if (!status) points_log(FETCHED, (entry){.epoch = serial});
    return status;
}

strata_status __wrap_strata_ps_pace_create(const strata_ps_pace_options *opts, strata_ps_pace **out_pace, strata_error *err) {
    points_log(CHIEF_BEGINS, (entry){0});
    return __real_strata_ps_pace_create(opts, out_pace, err);
}

void __wrap_strata_ps_pace_begin(strata_ps_pace *pace, int64_t epoch, int64_t first, int64_t n_steps) {
    serial = epoch;
    points_log(EPOCH_BEGINS, (entry){.epoch = epoch});
    __real_strata_ps_pace_begin(pace, epoch, first, n_steps);
}

void __wrap_strata_ps_pace_join(strata_ps_pace *pace, int worker) {
    points_log(JOINS, (entry){.worker = worker});
    if (FIRST_WORKER + worker == shared->victim) atomic_store(&shared->absent, 0);
    __real_strata_ps_pace_join(pace, worker);
}

int __wrap_strata_ps_pace_lose(strata_ps_pace *pace, int worker) {
    points_log(LOST, (entry){.worker = worker});
    return __real_strata_ps_pace_lose(pace, worker);
}

strata_ps_grant __wrap_strata_ps_pace_ask(strata_ps_pace *pace, int worker, strata_ps_unit *out_unit) {
    const strata_ps_grant grant = __real_strata_ps_pace_ask(pace, worker, out_unit);
    if (grant != STRATA_PS_GRANTED) return grant;
    log_unit(GRANTED, worker, 0, out_unit);
    reach(LEASE);
    return grant;
}

strata_ps_finished __wrap_strata_ps_pace_finish(strata_ps_pace *pace, int worker, const strata_ps_unit *unit, bool empty) {
    const strata_ps_finished finished = __real_strata_ps_pace_finish(pace, worker, unit, empty);
    if (finished != STRATA_PS_TOO_LATE) log_unit(FINISHED, worker, 0, unit);
    return finished;
}

strata_status __wrap_strata_validation_take(strata_model *model, const strata_fit_options *opts, int epoch,
                                            const strata_metrics *metrics, bool *out_stop, strata_error *err) {
    if (own_role == CHIEF) reach(EVALUATING); /* the point is reached before and after the call */
    const strata_status status = __real_strata_validation_take(model, opts, epoch, metrics, out_stop, err);
    if (own_role == CHIEF) reach(EVALUATING);
    return status;
}

/* A complete checkpoint is in a temporary file, which this call renames to the checkpoint. */
int __wrap_rename(const char *from, const char *to) {
    if (own_task >= 0 && !strcmp(to, shared->checkpoint)) reach(CHECKPOINT);
    return __real_rename(from, to);
}

strata_status __wrap_strata_validation_restore(strata_model *model, const strata_fit_options *opts, strata_error *err) {
    if (own_role == CHIEF) reach(SHUTDOWN);
    return __real_strata_validation_restore(model, opts, err);
}
