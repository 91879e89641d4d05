/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers all values between the chief's model and the servers: at the start, after each epoch, and at the end of the
 * training. */
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
    const strata_ps_bundle *bundle = &fit->plan.bundles[server];
    for (int i = 0; i < bundle->n_shards; i++) {
        const strata_ps_shard *shard = &bundle->shards[i];
        for (int slot = 0; slot < n_values(fit, shard); slot++) {
            float *at = own + strata_ps_plan_value(&fit->plan, shard, slot), *of_model = value_at(fit, values, shard, slot);
            memcpy(to_server ? at : of_model, to_server ? of_model : at, (size_t)shard->n * sizeof *at);
        }
    }
}

/* Copies all values from the model, or to it. */
static strata_status move_model(const strata_ps_fit *fit, float *values, bool to_model, strata_error *err) {
    strata_model *model = fit->model;
    const int64_t all = strata_model_all_size(model), flat = model->parameters.flat_size;
    int i = 0;
    STRATA_TRY(to_model ? strata_model_write_all(model, values, err) : strata_model_read_all(model, values, err));
    for (values += all; i < fit->plan.n_slots; i++, values += flat)
        STRATA_TRY(to_model ? strata_shards_write_slot(model, i, values, err) : strata_shards_read_slot(model, i, values, err));
    return STRATA_OK;
}

/* A message about all values of a bundle. */
typedef struct exchange {
    strata_ps_message message;
    struct iovec values;
} exchange;

/* Allocates the values of the model, and those of each bundle in the order of its server. The padding between parameters, which
 * the servers do not have, is read from the model. */
static strata_status prepare(const strata_ps_fit *fit, strata_memory *memory, float **out_values, exchange **out_exchanges,
                             strata_error *err) {
    const strata_model *model = fit->model;
    const int64_t n = strata_model_all_size(model) + fit->plan.n_slots * model->parameters.flat_size;
    exchange *exchanges = strata_memory_take(memory, fit->plan.n_servers, sizeof *exchanges);
    *out_values = strata_memory_take(memory, n, sizeof **out_values);
    for (int s = 0; s < fit->plan.n_servers && exchanges; s++) {
        const int64_t elements = strata_ps_plan_elements(&fit->plan, s);
        exchanges[s].values =
            (struct iovec){strata_memory_take(memory, elements, sizeof(float)), (size_t)elements * sizeof(float)};
    }
    if (memory->failed) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for the model");
    *out_exchanges = exchanges;
    return move_model(fit, *out_values, false, err);
}

/* Sends the messages about all bundles at the same time, to the servers that workers use, or to those of the copies if there
 * are any; and waits for the replies. */
static strata_status exchange_all(const strata_ps_fit *fit, strata_rpc_client *const *servers, bool sends, bool to_copies,
                                  exchange *exchanges, strata_error *err) {
    const int n = fit->plan.n_servers;
    strata_status status = STRATA_OK;
    for (int g = 0; g < n && !status; g++) {
        exchange *e = &exchanges[g];
        if (to_copies && (g >= STRATA_PS_MOST_REPLICATED || fit->route.holders[g] != STRATA_PS_BOTH)) continue;
        strata_rpc_client *server = servers[to_copies ? strata_ps_copy_server(g, n) : strata_ps_server_of(&fit->route, g, n)];
        status = sends ? strata_ps_start(&e->message, server, STRATA_PS_SET, &e->values, 1, NULL, 0, err)
                       : strata_ps_start(&e->message, server, STRATA_PS_GET, NULL, 0, &e->values, 1, err);
    }
    for (int g = 0; g < n; g++) strata_ps_wait(&exchanges[g].message, &status, err);
    return status;
}

strata_status strata_ps_send_values(const strata_ps_fit *fit, strata_rpc_client *const *servers, int64_t serial,
                                    strata_error *err) {
    STRATA_FINISHED(strata_memory) memory = {0};
    exchange *exchanges = NULL;
    float *values = NULL;
    STRATA_TRY(prepare(fit, &memory, &values, &exchanges, err));
    for (int s = 0; s < fit->plan.n_servers; s++) {
        exchanges[s].message.head.set = (strata_ps_set_ask){.bundle = s, .t = fit->model->optimizer_steps, .serial = serial};
        rearrange(fit, s, exchanges[s].values.iov_base, values, true);
    }
    STRATA_TRY(exchange_all(fit, servers, true, false, exchanges, err));
    return exchange_all(fit, servers, true, true, exchanges, err);
}

strata_status strata_ps_fetch_values(const strata_ps_fit *fit, strata_rpc_client *const *servers, const strata_ps_close *close,
                                     strata_error *err) {
    STRATA_FINISHED(strata_memory) memory = {0};
    exchange *exchanges = NULL;
    float *values = NULL;
    int64_t t = 0;
    STRATA_TRY(prepare(fit, &memory, &values, &exchanges, err));
    for (int s = 0; s < fit->plan.n_servers; s++) exchanges[s].message.head.pull = strata_ps_about(s, close);
    STRATA_TRY(exchange_all(fit, servers, false, false, exchanges, err));
    for (int s = 0; s < fit->plan.n_servers; s++) {
        rearrange(fit, s, exchanges[s].values.iov_base, values, false);
        if (exchanges[s].message.reply.number > t) t = exchanges[s].message.reply.number;
    }
    STRATA_TRY(move_model(fit, values, true, err));
    fit->model->optimizer_steps = t;
    return STRATA_OK;
}

void strata_ps_dismiss_servers(const strata_ps_fit *fit, strata_rpc_client *const *servers, strata_status status,
                               const char *message) {
    const int32_t head = (int32_t)status;
    const struct iovec body = {(char *)message, strlen(message)};
    const strata_rpc_ask ask = strata_ps_ask(STRATA_PS_OVER, &head, &body, 1);
    for (int s = 0; s < fit->plan.n_servers; s++) {
        if (!servers[s]) continue;
        /* the server may have ended already */
        strata_ps_ignore(strata_rpc_client_call(servers[s], &ask, NULL, 5, NULL));
    }
}
