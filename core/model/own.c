/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas with parameters of their own between averages (strata_strategy.average): what each replica has, for checkpoints, and
 * the mean over the replicas of this worker, for evaluations. */
#include "core/model/own.h"

#include "core/model/shards.h"

static const char NO_MEMORY[] = "model: no host memory for the parameters of %d replicas";

/* ---- all values of all replicas ---- */

/* The loss scale of a worker follows the values of each of its replicas: the scale, and the steps since it was changed. */
enum { N_SCALE = 2 };

int64_t strata_model_own_size(const strata_model *model) {
    return strata_model_all_size(model) + strata_model_n_slots(model) * model->parameters.flat_size + model->metrics.n_sums +
           N_SCALE;
}

/* Reads or writes a replica's slots and sums. */
static strata_status access_rest(const strata_model *model, int replica, bool set, float *values, strata_error *err) {
    strata_variable *metrics = model->replicas[replica].metrics;
    values += strata_model_all_size(model);
    for (int s = 0; s < strata_model_n_slots(model); s++, values += model->parameters.flat_size)
        STRATA_TRY(strata_shards_access(model, replica, s, set, values, err));
    strata_array sums = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->metrics.n_sums), values);
    return set ? strata_variable_set(metrics, &sums, err) : strata_variable_get(metrics, &sums, err);
}

static strata_status read_replica(const strata_model *model, int replica, float *values, strata_error *err) {
    float *scale = values + strata_model_own_size(model) - N_SCALE;
    STRATA_TRY(strata_model_read_replica(model, replica, values, err));
    STRATA_TRY(access_rest(model, replica, false, values, err));
    scale[0] = (float)model->scale.value; /* a power of 2 */
    scale[1] = (float)model->scale.steps; /* below 2^24 */
    return STRATA_OK;
}

strata_status strata_model_gather_own(strata_model *model, float **out_values, strata_error *err) {
    const int64_t size = strata_model_own_size(model), n = model->strategy->n_replicas * size;
    const strata_workers *workers = &model->strategy->workers;
    STRATA_FREED float *own = NULL;
    STRATA_FREED int64_t *bytes = NULL;
    *out_values = NULL;
    STRATA_TRY(STRATA_NEW(own, n, err, NO_MEMORY, strata_strategy_num_replicas_in_sync(model->strategy)));
    STRATA_TRY(STRATA_NEW(bytes, workers->n, err, NO_MEMORY, strata_strategy_num_replicas_in_sync(model->strategy)));
    for (int r = 0; r < model->strategy->n_replicas; r++) STRATA_TRY(read_replica(model, r, own + r * size, err));
    if (strata_strategy_has_workers(model->strategy))
        return strata_workers_gather_parts(workers, own, (size_t)n * sizeof *own, out_values, bytes, err);
    *out_values = own;
    own = NULL;
    return STRATA_OK;
}

strata_status strata_model_write_own(strata_model *model, const float *values, strata_error *err) {
    const int64_t size = strata_model_own_size(model), shared = strata_model_all_size(model);
    const int n_all = strata_strategy_num_replicas_in_sync(model->strategy);
    const float *own = values + model->strategy->workers.first_replica * size;
    bool apart = false;
    for (int r = 1; r < n_all; r++) apart |= memcmp(values, values + r * size, (size_t)shared * sizeof *values) != 0;
    for (int r = 0; r < model->strategy->n_replicas; r++) {
        STRATA_TRY(strata_model_write_replica(model, r, own + r * size, err));
        STRATA_TRY(access_rest(model, r, true, (float *)own + r * size, err)); /* the values are only read */
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
    STRATA_FREED float *values = NULL;
    STRATA_TRY(STRATA_NEW(values, (n + 1) * size, err, NO_MEMORY, n));
    for (int r = 0; r < n; r++) STRATA_TRY(strata_model_read_replica(model, r, values + r * size, err));
    STRATA_TRY(strata_model_read_all(model, values + n * size, err));
    STRATA_TRY(strata_model_write_all(model, values + n * size, err));
    *out_apart = values;
    values = NULL;
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
    STRATA_FREED scale *all = NULL;
    STRATA_TRY(STRATA_NEW(all, workers->n, err, NO_MEMORY, workers->n));
    STRATA_TRY(strata_workers_gather(workers, &own, all, sizeof own, err));
    for (int w = 0; w < workers->n; w++) {
        if (all[w].value < model->scale.value) model->scale.value = all[w].value;
        if (all[w].steps < model->scale.steps) model->scale.steps = all[w].steps;
    }
    return STRATA_OK;
}
