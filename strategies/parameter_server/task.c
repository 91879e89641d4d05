/* SPDX-License-Identifier: Apache-2.0
 *
 * Connecting to the other tasks of the cluster. */
#include "strategies/parameter_server/task.h"

#include <stdio.h>
#include <time.h>

#include "core/base/locale.h"
#include "core/model/agree.h"

/* If there is a copy, tasks wait only this long for a broken connection; training then continues from the copy. */
static const double REPLICATED_RECONNECT_SECONDS = 1.5;

strata_status strata_ps_connect(const strata_ps_task *task, strata_task_type type, int index, double seconds,
                                size_t shared_bytes, strata_rpc_client **out_client, strata_error *err) {
    strata_communicator_options cluster = task->communication;
    const bool copied = task->replicas && type == STRATA_TASK_PS;
    char name[STRATA_RPC_TASK_BYTES];
    snprintf(name, sizeof name, "%s:%d", strata_task_type_name(type), index);
    cluster.connect_seconds = seconds;
    const strata_rpc_client_options opts = {.task = task->name,
                                            .incarnation = task->incarnation,
                                            .server = name,
                                            .address = task->spec.jobs[type].addresses[index],
                                            .cluster = &cluster,
                                            .shared_bytes = shared_bytes,
                                            .reconnect_seconds = copied                      ? REPLICATED_RECONNECT_SECONDS
                                                                 : type == STRATA_TASK_CHIEF ? task->connect_seconds
                                                                                             : 0};
    /* a task that is killed during the handshake looks like one that refuses it, and may be started again */
    const struct timespec pause = {.tv_nsec = 300 * 1000 * 1000};
    strata_status status = strata_rpc_client_create(&opts, out_client, err);
    for (int again = 0; status == STRATA_UNAVAILABLE && again < 3; again++) {
        nanosleep(&pause, NULL);
        status = strata_rpc_client_create(&opts, out_client, err);
    }
    return status;
}

void strata_ps_notice(strata_ps_task *task, const char *format, ...) {
    va_list arguments;
    STRATA_LOCKED(&task->lock);
    va_start(arguments, format);
    strata_parameter_server_notice *own = &task->notices[task->totals.notices++ % STRATA_PS_MOST_NOTICES];
    strata_format_v(own->text, sizeof own->text, format, arguments);
    va_end(arguments);
}

int strata_ps_worker_index(const char *task, int n) {
    int index = -1, end = 0;
    return strata_scan(task, "worker:%d%n", &index, &end) == 1 && !task[end] && index >= 0 && index < n ? index : -1;
}

bool strata_ps_has_ended(strata_task_type type, int index, int *out_code) {
    const char *path = getenv("STRATA_ENDED_TASKS");
    char line[80], name[STRATA_RPC_TASK_BYTES];
    bool found = false;
    FILE *list = path && *path ? fopen(path, "re") : NULL;
    const int n = snprintf(name, sizeof name, "%s:%d ", strata_task_type_name(type), index);
    while (list && !found && fgets(line, sizeof line, list)) {
        found = !strncmp(line, name, (size_t)n) && strchr(line, '\n');
        if (found) *out_code = atoi(line + n);
    }
    if (list) fclose(list);
    return found;
}

strata_status strata_ps_listen(const strata_ps_task *task, strata_rpc_handler handler, strata_rpc_on_peer on_peer, void *user,
                               strata_rpc_server **out_server, strata_error *err) {
    const strata_rpc_server_options opts = {.task = task->name,
                                            .incarnation = task->incarnation,
                                            .address = task->spec.jobs[task->spec.task_type].addresses[task->spec.task_index],
                                            .cluster = &task->communication,
                                            .handler = handler,
                                            .on_peer = on_peer,
                                            .user = user};
    return strata_rpc_server_create(&opts, out_server, err);
}

/* ---- messages ---- */

const strata_ps_method_row strata_ps_methods[] = {
    [STRATA_PS_HELLO] = {sizeof(strata_ps_hello_ask), "the comparison of what is trained", NULL},
    [STRATA_PS_NEXT] = {sizeof(strata_ps_next_ask), "the next batch", NULL},
    [STRATA_PS_FAIL] = {sizeof(int32_t), "a failure", NULL},
    [STRATA_PS_PULL] = {sizeof(strata_ps_pull_ask), "a pull of parameters", "pull"},
    [STRATA_PS_PUSH] = {sizeof(strata_ps_push_ask), "a push of gradients", "push"},
    [STRATA_PS_SET] = {sizeof(strata_ps_set_ask), "the model's parameters for a server", "take values"},
    [STRATA_PS_PART] = {sizeof(strata_ps_push_ask), "a part of a push", "take a part"},
    [STRATA_PS_GET] = {sizeof(strata_ps_pull_ask), "a server's parameters and slots", "send values"},
    [STRATA_PS_OVER] = {sizeof(int32_t), "the end of the training", NULL},
    [STRATA_PS_ROUTE] = {sizeof(strata_ps_route), "who has which shards", NULL},
    [STRATA_PS_CLOSE] = {sizeof(strata_ps_pull_ask), "the end of a step for the copy", "end of a step"},
    [STRATA_PS_SQUARE] = {sizeof(strata_ps_pull_ask), "the norm of a step's gradients", NULL},
    [STRATA_PS_SAVE] = {sizeof(strata_ps_pull_ask), "a server's part of a checkpoint", NULL},
};

strata_rpc_ask strata_ps_ask(strata_ps_method method, const void *head, const struct iovec *body, int n_body) {
    const strata_ps_method_row *row = &strata_ps_methods[method];
    return (strata_rpc_ask){
        .method = method, .head = head, .head_bytes = row->head_bytes, .body = body, .n_body = n_body, .what = row->what};
}

strata_status strata_ps_start(strata_ps_message *m, strata_rpc_client *client, strata_ps_method method,
                              const struct iovec *body, int n_body, const struct iovec *rooms, int n_rooms, strata_error *err) {
    const strata_rpc_ask ask = strata_ps_ask(method, &m->head, body, n_body);
    m->answer = (strata_rpc_answer){.head = &m->reply,
                                    .head_bytes = sizeof m->reply,
                                    .body = rooms,
                                    .n_body = n_rooms,
                                    .may_lend = method == STRATA_PS_PULL};
    return strata_rpc_client_start(client, &ask, &m->answer, STRATA_PS_CALL_SECONDS, &m->request, err);
}

void strata_ps_wait(strata_ps_message *m, strata_status *status, strata_error *err) {
    const strata_status own = m->request ? strata_rpc_request_wait(m->request, *status ? NULL : err) : STRATA_OK;
    m->request = NULL;
    if (!*status) *status = own;
}

strata_status strata_ps_say_hello(const strata_ps_fit *fit, strata_rpc_client *client, double seconds,
                                  strata_ps_hello_reply *out_reply, strata_error *err) {
    const strata_ps_hello_ask head = {.magic = STRATA_PS_MAGIC, .serial = fit->serial};
    const struct iovec body = {fit->terms, strlen(fit->terms) + 1};
    const strata_rpc_ask ask = strata_ps_ask(STRATA_PS_HELLO, &head, &body, 1);
    const double until = strata_clock_seconds() + seconds;
    strata_status status;
    do {
        strata_rpc_answer answer = {.head = out_reply, .head_bytes = sizeof *out_reply};
        status = strata_rpc_client_call(client, &ask, out_reply ? &answer : NULL, seconds, err);
    } while (status == STRATA_PEER_LOST && strata_rpc_client_connected(client) && strata_clock_seconds() < until);
    return status;
}

strata_status strata_ps_answer_hello(const strata_ps_fit *fit, const strata_rpc_call *call, int64_t *out_serial,
                                     strata_error *err) {
    strata_ps_hello_ask head = {0};
    const char *terms = call->body;
    if (call->head_bytes == sizeof head) memcpy(&head, call->head, sizeof head);
    *out_serial = head.serial;
    if (head.magic != STRATA_PS_MAGIC || !call->body_bytes || terms[call->body_bytes - 1])
        return strata_fail(err, STRATA_INVALID, "fit: %s and %s are of different versions of Strata", fit->task->name,
                           call->task);
    return strata_model_compare_terms(fit->terms, fit->task->name, terms, call->task, err);
}
