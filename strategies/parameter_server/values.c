/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers all values between the chief's model and the servers: at the start, after each epoch, and at the end of the
 * training. */
#include <stdlib.h>
#include <string.h>

#include "core/model/shards.h"
#include "strategies/parameter_server/task.h"

/* The place of a value in the array of the whole model, (all_size + n_slots * flat_size): parameters and states, followed by
 * the slots. */
static float *value_at(const strata_ps_fit *fit, float *values, const strata_ps_shard *shard, int slot) {
    const strata_model *model = fit->model;
    const int64_t all = strata_model_all_size(model);
    return values + (slot ? all + (slot - 1) * model->parameters.flat_size : 0) + shard->first;
}

static int n_values(const strata_ps_fit *fit, const strata_ps_shard *shard) {
    return shard->kind == STRATA_SHARD_STATE ? 1 : 1 + fit->plan.n_slots;
}

/* Moves a server's values between its own order and the model's. */
static void rearrange(const strata_ps_fit *fit, int server, float *own, float *values, bool to_server) {
    const strata_ps_plan *plan = &fit->plan;
    for (int i = plan->begins[server]; i < plan->begins[server + 1]; i++) {
        const strata_ps_shard *shard = &plan->shards[i];
        for (int slot = 0; slot < n_values(fit, shard); slot++) {
            float *at = own + strata_ps_plan_value(plan, shard, slot), *of_model = value_at(fit, values, shard, slot);
            memcpy(to_server ? at : of_model, to_server ? of_model : at, (size_t)shard->n * sizeof *at);
        }
    }
}

static float *new_values(const strata_ps_fit *fit) {
    const strata_model *model = fit->model;
    return calloc((size_t)(strata_model_all_size(model) + fit->plan.n_slots * model->parameters.flat_size + 1), sizeof(float));
}

/* Allocates memory for the values of all servers, one after the other. */
static float *new_server_values(const strata_ps_fit *fit, struct iovec *rooms) {
    int64_t n = 0;
    for (int s = 0; s < fit->plan.n_servers; s++) n += strata_ps_plan_elements(&fit->plan, s);
    float *own = calloc((size_t)n + 1, sizeof *own), *at = own;
    for (int s = 0; s < fit->plan.n_servers && own; s++) {
        const int64_t elements = strata_ps_plan_elements(&fit->plan, s);
        rooms[s] = (struct iovec){at, (size_t)elements * sizeof *at};
        at += elements;
    }
    return own;
}

/* The head of a request about a group. */
typedef union ask_head {
    strata_ps_set_ask set;
    strata_ps_pull_ask get;
} ask_head;

/* Requests about all groups at the same time. */
typedef struct round {
    /* STRATA_PS_SET or STRATA_PS_GET, with this head except for the group. */
    uint32_t method;
    ask_head head;
    /* Sends the requests to the servers of the copies, if there are any; else to the servers that workers use. */
    bool to_copies;
    /* [n_servers] The bodies that are sent, or NULL; and the memory for the replies' heads and (unless NULL) bodies. */
    const struct iovec *bodies;
    int64_t *heads;
    const struct iovec *rooms;
    const char *what;
} round;

static strata_status start_one(const strata_ps_fit *fit, strata_rpc_client *const *servers, const round *r, int group,
                               ask_head *head, strata_rpc_answer *answer, strata_rpc_request **out_request, strata_error *err) {
    const int n = fit->plan.n_servers;
    const int server = r->to_copies ? strata_ps_copy_server(group, n) : strata_ps_server_of(&fit->route, group, n);
    *head = r->head;
    if (r->method == STRATA_PS_SET)
        head->set.group = group;
    else
        head->get.group = group;
    const strata_rpc_ask ask = {.method = r->method,
                                .head = head,
                                .head_bytes = r->method == STRATA_PS_SET ? sizeof head->set : sizeof head->get,
                                .body = r->bodies ? &r->bodies[group] : NULL,
                                .n_body = r->bodies ? 1 : 0,
                                .what = r->what};
    *answer = (strata_rpc_answer){.head = &r->heads[group], .head_bytes = sizeof *r->heads};
    if (r->rooms) answer->body = &r->rooms[group], answer->n_body = 1;
    return strata_rpc_client_start(servers[server], &ask, answer, STRATA_PS_CALL_SECONDS, out_request, err);
}

static strata_status ask_servers(const strata_ps_fit *fit, strata_rpc_client *const *servers, const round *r,
                                 strata_error *err) {
    const int n = fit->plan.n_servers;
    strata_rpc_request **requests = calloc((size_t)n, sizeof(*requests));
    strata_rpc_answer *answers = calloc((size_t)n, sizeof *answers);
    ask_head *heads = calloc((size_t)n, sizeof *heads);
    strata_status status =
        requests && answers && heads ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for requests");
    for (int g = 0; g < n && !status; g++)
        if (!r->to_copies || (g < STRATA_PS_MOST_REPLICATED && fit->route.holders[g] == STRATA_PS_BOTH))
            status = start_one(fit, servers, r, g, &heads[g], &answers[g], &requests[g], err);
    for (int g = 0; g < n && requests; g++) {
        const strata_status one = requests[g] ? strata_rpc_request_wait(requests[g], status ? NULL : err) : STRATA_OK;
        if (!status) status = one;
    }
    free(requests);
    free(answers);
    free(heads);
    return status;
}

static strata_status read_model(const strata_ps_fit *fit, float *values, strata_error *err) {
    strata_model *model = fit->model;
    const int64_t all = strata_model_all_size(model), flat = model->parameters.flat_size;
    STRATA_TRY(strata_model_read_all(model, values, err));
    for (int i = 0; i < fit->plan.n_slots; i++) STRATA_TRY(strata_shards_read_slot(model, i, values + all + i * flat, err));
    return STRATA_OK;
}

static strata_status write_model(const strata_ps_fit *fit, float *values, strata_error *err) {
    strata_model *model = fit->model;
    const int64_t all = strata_model_all_size(model), flat = model->parameters.flat_size;
    STRATA_TRY(strata_model_write_all(model, values, err));
    for (int i = 0; i < fit->plan.n_slots; i++) STRATA_TRY(strata_shards_write_slot(model, i, values + all + i * flat, err));
    return STRATA_OK;
}

strata_status strata_ps_send_values(const strata_ps_fit *fit, strata_rpc_client *const *servers, int64_t serial,
                                    strata_error *err) {
    struct iovec *bodies = calloc((size_t)fit->plan.n_servers, sizeof *bodies);
    int64_t *heads = calloc((size_t)fit->plan.n_servers, sizeof *heads);
    float *values = new_values(fit), *own = bodies ? new_server_values(fit, bodies) : NULL;
    /* the servers do not have the padding between parameters, so it is read from the model */
    strata_status status = heads && values && own ? read_model(fit, values, err)
                                                  : strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for the model");
    for (int s = 0; s < fit->plan.n_servers && !status; s++) rearrange(fit, s, bodies[s].iov_base, values, true);
    round all = {.method = STRATA_PS_SET,
                 .head.set = {.t = fit->model->optimizer_steps, .serial = serial},
                 .bodies = bodies,
                 .heads = heads,
                 .what = "the model's parameters for a server"};
    if (!status) status = ask_servers(fit, servers, &all, err);
    all.to_copies = true;
    if (!status) status = ask_servers(fit, servers, &all, err);
    free(bodies);
    free(heads);
    free(values);
    free(own);
    return status;
}

strata_status strata_ps_fetch_values(const strata_ps_fit *fit, strata_rpc_client *const *servers, const strata_ps_close *close,
                                     strata_error *err) {
    struct iovec *rooms = calloc((size_t)fit->plan.n_servers, sizeof *rooms);
    int64_t *heads = calloc((size_t)fit->plan.n_servers, sizeof *heads);
    float *values = new_values(fit), *own = rooms ? new_server_values(fit, rooms) : NULL;
    /* the servers do not have the padding between parameters, so it is read from the model */
    strata_status status = heads && values && own ? read_model(fit, values, err)
                                                  : strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for the model");
    round all = {.method = STRATA_PS_GET,
                 .head.get = {.has_close = close != NULL},
                 .heads = heads,
                 .rooms = rooms,
                 .what = "a server's parameters and slots"};
    if (close) all.head.get.close = *close;
    if (!status) status = ask_servers(fit, servers, &all, err);
    int64_t t = 0;
    for (int s = 0; s < fit->plan.n_servers && !status; s++) {
        rearrange(fit, s, rooms[s].iov_base, values, false);
        if (heads[s] > t) t = heads[s];
    }
    if (!status) status = write_model(fit, values, err);
    if (!status) fit->model->optimizer_steps = t;
    free(rooms);
    free(heads);
    free(values);
    free(own);
    return status;
}

void strata_ps_dismiss_servers(const strata_ps_fit *fit, strata_rpc_client *const *servers, strata_status status,
                               const char *message) {
    const int32_t head = (int32_t)status;
    const struct iovec body = {(char *)message, strlen(message)};
    const strata_rpc_ask ask = {.method = STRATA_PS_OVER,
                                .head = &head,
                                .head_bytes = sizeof head,
                                .body = &body,
                                .n_body = 1,
                                .what = "the end of the training"};
    for (int s = 0; s < fit->plan.n_servers; s++) {
        if (!servers[s]) continue;
        /* the server may have ended already */
        const strata_status ignored = strata_rpc_client_call(servers[s], &ask, NULL, 5, NULL);
        (void)ignored;
    }
}
