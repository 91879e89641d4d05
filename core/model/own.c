/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas with parameters of their own between averages (strata_strategy.average): what each replica has, for checkpoints, and
 * the mean over the replicas of this worker, for evaluations. */
#include "core/model/own.h"

#include <stdlib.h>
#include <string.h>

static strata_status no_memory(const strata_model *model, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for the parameters of %d replicas",
                       strata_strategy_num_replicas_in_sync(model->strategy));
}

/* ---- all values of all replicas ---- */

/* The loss scale of a worker follows the values of each of its replicas: the scale, and the steps since it was changed. */
enum { N_SCALE = 2 };

int64_t strata_model_own_size(const strata_model *model) {
    return strata_model_all_size(model) + strata_model_n_slots(model) * model->parameters.flat_size + model->metrics.n_sums +
           N_SCALE;
}

typedef strata_status access(strata_variable *variable, strata_array *value, strata_error *err);

static strata_status set(strata_variable *variable, strata_array *value, strata_error *err) {
    return strata_variable_set(variable, value, err);
}

/* Reads or writes a replica's slots and sums. */
static strata_status access_rest(const strata_model *model, int replica, access *get_or_set, float *values, strata_error *err) {
    const strata_parameter_set *parameters = &model->parameters;
    const strata_model_replica *own = &model->replicas[replica];
    values += strata_model_all_size(model);
    for (int s = 0; s < strata_model_n_slots(model); s++, values += parameters->flat_size)
        for (int k = 0; k < parameters->n_blocks; k++) {
            const strata_model_block *block = &own->blocks[k];
            strata_array part =
                strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(block->end - block->begin), values + block->begin);
            STRATA_TRY(get_or_set(block->slots[s], &part, err));
        }
    strata_array sums = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->metrics.n_sums), values);
    return get_or_set(own->metrics, &sums, err);
}

static strata_status read_replica(const strata_model *model, int replica, float *values, strata_error *err) {
    float *scale = values + strata_model_own_size(model) - N_SCALE;
    STRATA_TRY(strata_model_read_replica(model, replica, values, err));
    STRATA_TRY(access_rest(model, replica, strata_variable_get, values, err));
    scale[0] = (float)model->scale.value; /* a power of 2 */
    scale[1] = (float)model->scale.steps; /* below 2^24 */
    return STRATA_OK;
}

/* Sends the values of every worker's replicas to all workers. */
static strata_status gather_over_workers(const strata_model *model, const float *own, float *all, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    size_t *bytes = calloc((size_t)workers->n, sizeof *bytes);
    if (!bytes) return no_memory(model, err);
    for (int w = 0; w < workers->n; w++)
        bytes[w] = (size_t)(workers->first_replicas[w + 1] - workers->first_replicas[w]) *
                   (size_t)strata_model_own_size(model) * sizeof *own;
    const strata_status status = workers->all_gather(workers, own, all, bytes, err);
    free(bytes);
    return status;
}

strata_status strata_model_gather_own(strata_model *model, float **out_values, strata_error *err) {
    const int64_t size = strata_model_own_size(model);
    const int n_own = model->strategy->n_replicas, n_all = strata_strategy_num_replicas_in_sync(model->strategy);
    const bool many = strata_strategy_has_workers(model->strategy);
    float *own = calloc((size_t)(n_own * size), sizeof *own), *all = many ? calloc((size_t)(n_all * size), sizeof *all) : own;
    strata_status status = own && all ? STRATA_OK : no_memory(model, err);
    for (int r = 0; r < n_own && !status; r++) status = read_replica(model, r, own + r * size, err);
    if (!status && many) status = gather_over_workers(model, own, all, err);
    if (many) free(own);
    if (status) {
        free(all);
        all = NULL;
    }
    *out_values = all;
    return status;
}

strata_status strata_model_write_own(strata_model *model, const float *values, strata_error *err) {
    const int64_t size = strata_model_own_size(model), shared = strata_model_all_size(model);
    const int n_all = strata_strategy_num_replicas_in_sync(model->strategy);
    const float *own = values + model->strategy->workers.first_replica * size;
    bool apart = false;
    for (int r = 1; r < n_all; r++) apart |= memcmp(values, values + r * size, (size_t)shared * sizeof *values) != 0;
    for (int r = 0; r < model->strategy->n_replicas; r++) {
        STRATA_TRY(strata_model_write_replica(model, r, own + r * size, err));
        STRATA_TRY(access_rest(model, r, set, (float *)own + r * size, err)); /* the values are only read */
    }
    model->scale.value = (double)own[size - 2];
    model->scale.steps = (int64_t)own[size - 1];
    model->apart = apart;
    return STRATA_OK;
}

void strata_model_forget_interrupted(strata_model *model) {
    free(model->interrupted);
    model->interrupted = NULL;
}

/* ---- the mean of this worker's replicas ---- */

strata_status strata_model_join(strata_model *model, float **out_apart, strata_error *err) {
    const int64_t size = strata_model_all_size(model);
    const int n = model->strategy->n_replicas;
    *out_apart = NULL;
    if (!model->apart || n == 1) return STRATA_OK;
    float *values = calloc((size_t)((n + 1) * size), sizeof *values);
    if (!values) return no_memory(model, err);
    strata_status status = STRATA_OK;
    for (int r = 0; r < n && !status; r++) status = strata_model_read_replica(model, r, values + r * size, err);
    if (!status) status = strata_model_read_all(model, values + n * size, err);
    if (!status) status = strata_model_write_all(model, values + n * size, err);
    if (status) {
        free(values);
        return status;
    }
    *out_apart = values;
    return STRATA_OK;
}

strata_status strata_model_separate(strata_model *model, float *apart, strata_error *err) {
    strata_status status = STRATA_OK;
    if (!apart) return STRATA_OK;
    for (int r = 0; r < model->strategy->n_replicas && !status; r++)
        status = strata_model_write_replica(model, r, apart + r * strata_model_all_size(model), err);
    model->apart = true;
    free(apart);
    return status;
}

/* ---- the loss scale ---- */

strata_status strata_model_share_scale(strata_model *model, strata_error *err) {
    typedef struct scale {
        double value;
        int64_t steps;
    } scale;
    const strata_workers *workers = &model->strategy->workers;
    if (!(model->scale.value > 0) || !strata_strategy_has_workers(model->strategy)) return STRATA_OK;
    const scale own = {model->scale.value, model->scale.steps};
    scale *all = calloc((size_t)workers->n, sizeof *all);
    if (!all) return no_memory(model, err);
    const strata_status status = strata_workers_gather(workers, &own, all, sizeof own, err);
    for (int w = 0; w < workers->n && !status; w++) {
        if (all[w].value < model->scale.value) model->scale.value = all[w].value;
        if (all[w].steps < model->scale.steps) model->scale.steps = all[w].steps;
    }
    free(all);
    return status;
}
