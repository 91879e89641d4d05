/* SPDX-License-Identifier: Apache-2.0
 *
 * Two strategies that are not in the library. Local SGD (Stich 2019) averages the parameters every K steps, instead of
 * adding up gradients in each step. One strategy computes the average by all_reduce, the other one by all_gather and a
 * mean. The lines before the test are all that they need. With a row in strategies.def, users could choose them by name. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/op/communication.h"
#include "strata/strata.h"
#include "strategies/kinds.h"

/* ---- the strategies ---- */

enum { K = 3 };

static strata_tensor *averaged(const strata_step_replica *replica, strata_tensor *updated) {
    (void)replica;
    return strata_all_reduce_every(updated, STRATA_REDUCE_MEAN, K);
}

static const strata_step_rewrite rewrite = {.gradients = strata_rewrite_own_mean, .parameters = averaged};

/* Gathers the parameters of all replicas as rows, and returns the mean of the rows. */
static strata_tensor *gathered(const strata_step_replica *replica, strata_tensor *updated) {
    const strata_shape flat = strata_tensor_shape(updated);
    strata_tensor *row = strata_reshape(updated, STRATA_SHAPE(1, flat.dims[0]));
    strata_tensor *rows = strata_all_gather_every(row, 0, replica->n, replica->index, K);
    return strata_reduce_mean(rows, (int[]){0}, 1, false);
}

static const strata_step_rewrite gathering = {.gradients = strata_rewrite_own_mean, .parameters = gathered};

static const strata_strategy_kind kinds[] = {
    {.name = "local_sgd", .most_devices = -1, .rewrite = &rewrite},
    {.name = "gathering_sgd", .most_devices = -1, .rewrite = &gathering},
};

/* ---- the test ---- */

enum { FEATURES = 5, PART = 4, STEPS = 2 * K, N = 2 * PART * STEPS, REPLICAS = 2 };

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

static float features[N][FEATURES], targets[N];

static strata_model *make_model(strata_strategy *strategy, strata_device *device) {
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(FEATURES), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 6, .activation = "tanh"});
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    const strata_compile_options opts = {
        .optimizer = strata_sgd_optimizer(0.1, 0, false), .loss = "mse", .seed = 3, .strategy = strategy};
    OK(strata_model_compile(model, device, &opts, &err));
    return model;
}

static strata_dataset *dataset_of(const float (*x)[FEATURES], const float *y, int64_t n) {
    strata_dataset *dataset = NULL;
    const strata_array a = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n, FEATURES), (void *)(uintptr_t)x);
    const strata_array b = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n, 1), (void *)(uintptr_t)y);
    OK(strata_dataset_from_arrays(&a, &b, 0, &dataset, &err));
    return dataset;
}

static void train(strata_model *model, const float (*x)[FEATURES], const float *y, int64_t n, int64_t batch) {
    strata_dataset *dataset = dataset_of(x, y, n);
    OK(strata_model_fit(model, dataset, &(strata_fit_options){.epochs = 1, .batch = batch, .no_shuffle = true}, NULL, &err));
    strata_dataset_destroy(dataset);
}

/* Simulates the strategy: for each replica one device trains K steps on the replica's share of each batch. Then all get the
 * mean of their parameters. */
static void train_apart(strata_device *device, strata_model *models[REPLICAS]) {
    for (int r = 0; r < REPLICAS; r++) models[r] = make_model(NULL, device);
    for (int round = 0; round < STEPS / K; round++) {
        for (int r = 0; r < REPLICAS; r++) {
            float x[K * PART][FEATURES], y[K * PART];
            for (int k = 0; k < K; k++) {
                const int from = ((round * K + k) * REPLICAS + r) * PART;
                memcpy(x[k * PART], features[from], sizeof(float) * PART * FEATURES);
                memcpy(y + k * PART, targets + from, sizeof(float) * PART);
            }
            train(models[r], (const float(*)[FEATURES])x, y, (int64_t)K * PART, PART);
        }
        for (int i = 0; i < strata_model_n_parameters(models[0]); i++) {
            float values[REPLICAS][64];
            const strata_shape shape = strata_model_parameter(models[0], i).shape;
            strata_array views[REPLICAS];
            for (int r = 0; r < REPLICAS; r++) {
                views[r] = strata_array_view(STRATA_DTYPE_F32, shape, values[r]);
                OK(strata_model_get_parameter(models[r], i, &views[r], &err));
            }
            for (int64_t e = 0; e < strata_shape_elements(shape); e++)
                values[0][e] = values[1][e] = (values[0][e] + values[1][e]) / 2;
            for (int r = 0; r < REPLICAS; r++) OK(strata_model_set_parameter(models[r], i, &views[r], &err));
        }
    }
}

/* Trains with one replica on each device, and compares the result with train_apart. */
static void try_kind(const strata_strategy_kind *kind, const char *const devices[REPLICAS]) {
    strata_strategy *strategy = NULL;
    strata_device *device = NULL;
    strata_model *apart[REPLICAS];
    for (int i = 0; i < N; i++) {
        for (int f = 0; f < FEATURES; f++) features[i][f] = (float)((i * 31 + f * 17) % 101) / 50 - 1;
        targets[i] = features[i][0] - features[i][1] * features[i][2];
    }
    OK(strata_device_open("host", NULL, &device, &err));
    OK(strata_strategy_of_kind(kind, &(strata_strategy_options){.devices = devices, .n_devices = REPLICAS}, &strategy, &err));
    strata_model *model = make_model(strategy, NULL);
    train_apart(device, apart);
    train(model, (const float(*)[FEATURES])features, targets, N, (int64_t)REPLICAS * PART);
    bool equal = false;
    OK(strata_model_replicas_equal(model, &equal, &err));
    cr_assert(equal, "the last step averaged, so the copies must be equal");
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        float got[64], want[64];
        const strata_shape shape = strata_model_parameter(model, i).shape;
        strata_array a = strata_array_view(STRATA_DTYPE_F32, shape, got), b = strata_array_view(STRATA_DTYPE_F32, shape, want);
        OK(strata_model_get_parameter(model, i, &a, &err));
        OK(strata_model_get_parameter(apart[0], i, &b, &err));
        for (int64_t e = 0; e < strata_shape_elements(shape); e++)
            cr_assert_float_eq(got[e], want[e], 1e-5, "parameter %d, element %lld: %g, not %g", i, (long long)e, (double)got[e],
                               (double)want[e]);
    }
    train(model, (const float(*)[FEATURES])features, targets, (int64_t)REPLICAS * PART, (int64_t)REPLICAS * PART);
    OK(strata_model_replicas_equal(model, &equal, &err));
    cr_assert_not(equal, "one step later each replica has gone its own way");
    strata_model_destroy(model);
    for (int r = 0; r < REPLICAS; r++) strata_model_destroy(apart[r]);
    strata_strategy_destroy(strategy);
    strata_device_close(device);
}

Test(local_sgd, a_new_strategy_is_one_kind) {
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) try_kind(&kinds[k], (const char *const[]){"host", "host"});
}

Test(local_sgd, a_new_strategy_runs_on_unlike_devices) {
    strata_device *opened = NULL;
    if (strata_device_open("opencl:0", NULL, &opened, NULL)) cr_skip_test("opencl:0 is not there");
    strata_device_close(opened);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) try_kind(&kinds[k], (const char *const[]){"host", "opencl:0"});
}
