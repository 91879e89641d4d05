/* SPDX-License-Identifier: Apache-2.0
 *
 * Variables with a copy on each replica's device. */
#include "core/model/parts.h"
#include "core/run/device.h"
#include "strategies/context.h"

static strata_status make_copies(strata_distributed_variable *variable, const char *name, strata_dtype dtype,
                                 strata_shape shape, strata_error *err) {
    const strata_strategy *strategy = variable->strategy;
    for (int r = 0; r < strategy->n_replicas; r++) {
        strata_status status = strata_variable_create(strategy->devices[r], name, dtype, shape, &variable->copies[r], err);
        if (status) return strata_fail_in(err, status, "replica %d", r);
    }
    variable->whole = variable->copies[0];
    return STRATA_OK;
}

static void destroy_owned(void *variable) {
    strata_distributed_destroy(variable);
}

strata_status strata_distributed_create(const char *name, strata_dtype dtype, strata_shape shape,
                                        const strata_distributed_options *opts, strata_distributed_variable **out_variable,
                                        strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_distributed_create", "make variables in the scope, before the run", err));
    strata_strategy *strategy = strata_strategy_current();
    if (opts && opts->colocate_with) {
        if (strategy && strategy != opts->colocate_with->strategy)
            return strata_fail(err, STRATA_INVALID,
                               "variable %s: it is to be colocated with %s, a variable of another strategy", name ? name : "",
                               strata_variable_name(opts->colocate_with->whole));
        strategy = opts->colocate_with->strategy;
    }
    if (!strategy)
        return strata_fail(err, STRATA_INVALID,
                           "variable %s: strata_distributed_create needs a strategy's scope; call strata_strategy_enter first",
                           name ? name : "");
    strata_distributed_variable *variable = calloc(1, sizeof *variable);
    if (variable) variable->copies = calloc((size_t)strategy->n_replicas, sizeof(*variable->copies));
    if (!variable || !variable->copies) {
        free(variable);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "variable %s: no host memory", name ? name : "");
    }
    variable->strategy = strategy;
    variable->number = strategy->n_variables++;
    if (opts) variable->synchronization = opts->synchronization, variable->aggregation = opts->aggregation;
    strata_status status = make_copies(variable, name, dtype, shape, err);
    if (status)
        strata_distributed_destroy(variable);
    else
        strata_strategy_own(strategy, &variable->owned, destroy_owned, *out_variable = variable);
    return status;
}

void strata_distributed_destroy(strata_distributed_variable *variable) {
    if (!variable) return;
    strata_owned_forget(&variable->owned);
    for (int r = 0; r < variable->strategy->n_replicas; r++) strata_variable_destroy(variable->copies[r]);
    free(variable->copies);
    free(variable);
}

strata_variable *strata_distributed_copy(const strata_distributed_variable *variable, int replica) {
    return replica >= 0 && replica < variable->strategy->n_replicas ? variable->copies[replica] : NULL;
}

static void divide(strata_array *value, int n) {
    for (int64_t i = 0; i < strata_shape_elements(value->shape); i++) ((float *)value->data)[i] /= (float)n;
}

static bool is_summed(const strata_distributed_variable *variable) {
    return variable->synchronization == STRATA_ON_READ && variable->aggregation == STRATA_AGGREGATION_SUM;
}

strata_status strata_distributed_set(strata_distributed_variable *variable, const strata_array *value, strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_distributed_set", "there strata_replica_assign is the one", err));
    const strata_strategy *strategy = variable->strategy;
    const int n = strata_strategy_n_functions_in_sync(strategy);
    STRATA_FINISHED(strata_array) own = {0};
    if (variable->model) STRATA_TRY(strata_model_check_whole(variable->model, "strata_distributed_set", err));
    STRATA_TRY(strata_array_create(value->dtype, value->shape, &own, err));
    const size_t bytes = strata_array_bytes(value);
    if (bytes) memcpy(own.data, value->data, bytes);
    if (strata_strategy_has_workers(strategy))
        STRATA_TRY(strategy->workers.broadcast(&strategy->workers, STRATA_DTYPE_U8, own.data, (int64_t)bytes, err));
    if (is_summed(variable) && value->dtype == STRATA_DTYPE_F32) divide(&own, n);
    for (int r = 0; r < strategy->n_replicas; r++)
        STRATA_TRY(strata_variable_set_as(variable->copies[r], r ? variable->copies[0] : NULL, &own, err));
    return STRATA_OK;
}

/* Combines the copies of all workers in replica order. */
static strata_status aggregate(strata_distributed_variable *variable, strata_array *value, strata_error *err) {
    const strata_strategy *strategy = variable->strategy;
    const strata_variable *first = variable->copies[0];
    STRATA_FINISHED(strata_per_replica) copies = {0};
    STRATA_FINISHED(strata_array) sum = {0};
    STRATA_TRY(strata_per_replica_create(strategy->n_replicas, &copies, err));
    for (int r = 0; r < strategy->n_replicas; r++) {
        STRATA_TRY(strata_array_create(first->dtype, first->shape, &copies.arrays[r], err));
        STRATA_TRY(strata_variable_get(variable->copies[r], &copies.arrays[r], err));
    }
    const bool mean = variable->aggregation == STRATA_AGGREGATION_MEAN;
    STRATA_TRY(strata_strategy_reduce(variable->strategy, &copies, mean ? STRATA_REDUCE_MEAN : STRATA_REDUCE_SUM,
                                      STRATA_NO_AXIS, &sum, err));
    memcpy(value->data, sum.data, strata_array_bytes(&sum));
    return STRATA_OK;
}

strata_status strata_distributed_get(strata_distributed_variable *variable, strata_array *value, strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_distributed_get", "there strata_replica_read is the one", err));
    if (variable->model) STRATA_TRY(strata_model_check_whole(variable->model, "strata_distributed_get", err));
    const strata_variable *first = variable->copies[0];
    const strata_strategy *strategy = variable->strategy;
    const bool only_first = variable->aggregation == STRATA_AGGREGATION_ONLY_FIRST_REPLICA;
    if (strata_strategy_n_functions_in_sync(strategy) == 1 || variable->synchronization == STRATA_ON_WRITE || only_first) {
        STRATA_TRY(strata_variable_get(variable->copies[0], value, err));
        if (variable->synchronization == STRATA_ON_WRITE || !strata_strategy_has_workers(strategy)) return STRATA_OK;
        return strategy->workers.broadcast(&strategy->workers, STRATA_DTYPE_U8, value->data, (int64_t)strata_array_bytes(value),
                                           err);
    }
    if (variable->aggregation == STRATA_AGGREGATION_NONE)
        return strata_fail(
            err, STRATA_INVALID,
            "variable %s: each replica has its own value (ON_READ, aggregation NONE); read a replica's copy with "
            "strata_distributed_copy, or give the variable an aggregation",
            first->name);
    if (first->dtype != STRATA_DTYPE_F32 || value->dtype != STRATA_DTYPE_F32 ||
        strata_shape_elements(value->shape) != strata_shape_elements(first->shape))
        return strata_fail(err, STRATA_INVALID, "variable %s is %s %s, the value %s %s; aggregated they must both be f32",
                           first->name, strata_dtype_name(first->dtype), strata_shape_text(first->shape).text,
                           strata_dtype_name(value->dtype), strata_shape_text(value->shape).text);
    return aggregate(variable, value, err);
}
