/* SPDX-License-Identifier: Apache-2.0
 *
 * Variables with a copy on each replica's device. */
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/fold.h"
#include "strategies/context.h"

static strata_status make_copies(strata_distributed_variable *variable, const char *name, strata_dtype dtype,
                                 strata_shape shape, strata_error *err) {
    const strata_strategy *strategy = variable->strategy;
    for (int r = 0; r < strategy->n_replicas; r++) {
        strata_status status = strata_variable_create(strategy->devices[r], name, dtype, shape, &variable->copies[r], err);
        if (status) return strata_fail_in(err, status, "replica %d", r);
    }
    return STRATA_OK;
}

strata_status strata_distributed_create(const char *name, strata_dtype dtype, strata_shape shape,
                                        const strata_distributed_options *opts, strata_distributed_variable **out_variable,
                                        strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_distributed_create", "make variables in the scope, before the run", err));
    strata_strategy *strategy = strata_strategy_current();
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
    if (opts) variable->synchronization = opts->synchronization, variable->aggregation = opts->aggregation;
    strata_status status = make_copies(variable, name, dtype, shape, err);
    if (status)
        strata_distributed_destroy(variable);
    else
        *out_variable = variable;
    return status;
}

void strata_distributed_destroy(strata_distributed_variable *variable) {
    if (!variable) return;
    for (int r = 0; r < variable->strategy->n_replicas; r++) strata_variable_destroy(variable->copies[r]);
    free(variable->copies);
    free(variable);
}

strata_variable *strata_distributed_copy(const strata_distributed_variable *variable, int replica) {
    return replica >= 0 && replica < variable->strategy->n_replicas ? variable->copies[replica] : NULL;
}

/* A copy of the value with every element divided by n. */
static strata_status divided(const strata_array *value, int n, strata_array *out, strata_error *err) {
    STRATA_TRY(strata_array_create(value->dtype, value->shape, out, err));
    for (int64_t i = 0; i < strata_shape_elements(value->shape); i++)
        ((float *)out->data)[i] = ((const float *)value->data)[i] / (float)n;
    return STRATA_OK;
}

static bool is_summed(const strata_distributed_variable *variable) {
    return variable->synchronization == STRATA_ON_READ && variable->aggregation == STRATA_AGGREGATION_SUM;
}

strata_status strata_distributed_set(strata_distributed_variable *variable, const strata_array *value, strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_distributed_set", "there strata_replica_assign is the one", err));
    const int n = variable->strategy->n_replicas;
    strata_array share = *value;
    const bool shared = is_summed(variable) && n > 1 && value->dtype == STRATA_DTYPE_F32;
    if (shared) STRATA_TRY(divided(value, n, &share, err));
    strata_status status = STRATA_OK;
    for (int r = 0; r < n && !status; r++) status = strata_variable_set(variable->copies[r], &share, err);
    if (shared) strata_array_finish(&share);
    return status;
}

/* All copies, folded. */
static strata_status aggregate(strata_distributed_variable *variable, strata_array *value, strata_error *err) {
    const int n = variable->strategy->n_replicas;
    const strata_variable *first = variable->copies[0];
    const void *operands[2];
    strata_array copies[2];
    const int64_t elements = strata_shape_elements(first->shape);
    for (int i = 0; i < 2; i++) copies[i] = (strata_array){0};
    strata_status status = strata_array_create(first->dtype, first->shape, &copies[0], err);
    if (!status) status = strata_array_create(first->dtype, first->shape, &copies[1], err);
    if (!status) status = strata_variable_get(variable->copies[0], &copies[0], err);
    for (int r = 1; r < n && !status; r++) { /* in replica order */
        status = strata_variable_get(variable->copies[r], &copies[1], err);
        for (int i = 0; i < 2; i++) operands[i] = copies[i].data;
        if (!status) strata_fold(first->dtype, STRATA_REDUCE_SUM, operands, 2, elements, &copies[0].data, 1);
    }
    for (int64_t i = 0; i < elements && !status && variable->aggregation == STRATA_AGGREGATION_MEAN; i++)
        ((float *)copies[0].data)[i] /= (float)n;
    if (!status) memcpy(value->data, copies[0].data, strata_array_bytes(&copies[0]));
    strata_array_finish(&copies[0]);
    strata_array_finish(&copies[1]);
    return status;
}

strata_status strata_distributed_get(strata_distributed_variable *variable, strata_array *value, strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_distributed_get", "there strata_replica_read is the one", err));
    const strata_variable *first = variable->copies[0];
    const bool one = variable->strategy->n_replicas == 1 || variable->synchronization == STRATA_ON_WRITE ||
                     variable->aggregation == STRATA_AGGREGATION_ONLY_FIRST_REPLICA;
    if (one) return strata_variable_get(variable->copies[0], value, err);
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
