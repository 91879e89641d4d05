/* SPDX-License-Identifier: Apache-2.0
 *
 * More devices than a 64-bit word has bits: fit and custom loops with 70 and 130 replicas train as one device does with the
 * same global batch. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/model.h"
#include "strategies/kinds.h"
#include "tests/strategies/strategies_case.h"

enum { MOST = 130, FEATURES = 6, BATCH = 140, EXAMPLES = 300 };
static strata_error err;
#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)

static strata_strategy *strategy_of(const char *name, int n, bool sharded) {
    const char *devices[MOST + 1] = {NULL};
    for (int i = 0; i < n; i++) devices[i] = "host";
    return test_strategy(n > 1 ? name : "one_device", devices, sharded);
}

/* ---- fit ---- */

static const char json[] =
    "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 9, \"activation\": \"tanh\"},"
    "{\"layer\": \"dense\", \"units\": 3}], \"loss\": \"sparse_categorical_crossentropy\"}";

/* Reads all parameters of the model, one after the other. The caller frees them. */
static float *read_parameters(strata_model *model, int64_t *out_n) {
    float *values = NULL;
    *out_n = 0;
    for (int p = 0; p < strata_model_n_parameters(model); p++) {
        const strata_shape shape = strata_model_parameter(model, p).shape;
        const int64_t n = strata_shape_elements(shape);
        values = realloc(values, (size_t)(*out_n + n) * sizeof *values);
        cr_assert_not_null(values);
        strata_array view = strata_array_view(STRATA_DTYPE_F32, shape, values + *out_n);
        OK(strata_model_get_parameter(model, p, &view, &err));
        *out_n += n;
    }
    return values;
}

/* The global batches of an epoch have 140, 140 and 20 examples, so that replicas are idle in the last one. */
static float *train(const char *name, int n, bool sharded, int64_t *out_n) {
    test_classes classes = test_classes_make(EXAMPLES, FEATURES);
    strata_strategy *strategy = strategy_of(name, n, sharded);
    strata_model *model = NULL;
    OK(strata_model_from_json(json, strlen(json), "the test", &model, &err));
    OK(strata_model_compile(
        model, NULL,
        &(strata_compile_options){.strategy = strategy, .optimizer = strata_sgd_optimizer(0.3, 0.9, false), .seed = 3}, &err));
    OK(strata_model_fit(model, classes.dataset, &(strata_fit_options){.epochs = 2, .batch = BATCH, .seed = 5}, NULL, &err));
    float *values = read_parameters(model, out_n);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    test_classes_free(&classes);
    return values;
}

static void expect_as_one(const char *name, int n, bool sharded) {
    int64_t n_one, n_many;
    float *one = train("one_device", 1, false, &n_one), *many = train(name, n, sharded, &n_many);
    double furthest = 0;
    cr_assert_eq(n_one, n_many);
    for (int64_t i = 0; i < n_one; i++) furthest = fmax(furthest, fabs((double)one[i] - (double)many[i]));
    cr_assert_leq(furthest, 2e-6, "%s with %d replicas: %g", name, n, furthest);
    free(one);
    free(many);
}

Test(many, seventy_and_more_replicas_train_as_one_device) {
    expect_as_one("mirrored", 70, false);
    expect_as_one("mirrored", MOST, false);
}

Test(many, seventy_shards_of_the_optimizer_train_as_one_device) {
    expect_as_one("mirrored", 70, true);
}

Test(many, seventy_replicas_send_gradients_to_one_device) {
    expect_as_one("central_storage", 70, false);
}

/* ---- custom loops ---- */

enum { REPLICAS = 70 };

static strata_status take_next(strata_strategy *strategy, const strata_per_replica *values, strata_per_replica *results,
                               void *user, strata_error *e) {
    (void)strategy, (void)user, (void)e;
    for (int r = 0; r < values->n; r++)
        *(float *)results->arrays[r].data = *(const float *)values->arrays[(r + 1) % values->n].data;
    return STRATA_OK;
}

/* Each replica returns the sum and the mean of all inputs, all inputs in order, and the input of the next replica. */
static strata_status exchange_all(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *e) {
    (void)user, (void)e;
    strata_replica_return(replica, strata_replica_all_reduce(replica, inputs[0], STRATA_REDUCE_SUM));
    strata_replica_return(replica, strata_replica_all_reduce(replica, inputs[0], STRATA_REDUCE_MEAN));
    strata_replica_return(replica, strata_replica_all_gather(replica, inputs[0], 0));
    strata_replica_return(replica, strata_replica_merge_call(replica, take_next, NULL, inputs[0]));
    return STRATA_OK;
}

Test(many, seventy_replicas_of_a_function_exchange_values) {
    strata_strategy *strategy = strategy_of("mirrored", REPLICAS, false);
    strata_function *function = NULL;
    strata_per_replica input, outputs[4] = {{0}};
    OK(strata_strategy_enter(strategy, &err));
    OK(strata_per_replica_create(REPLICAS, &input, &err));
    for (int r = 0; r < REPLICAS; r++) {
        OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(1), &input.arrays[r], &err));
        *(float *)input.arrays[r].data = (float)r;
    }
    OK(strata_function_create(strategy, exchange_all, NULL, &function, &err));
    OK(strata_strategy_run(function, &input, 1, outputs, 4, &err));
    for (int r = 0; r < REPLICAS; r++) {
        cr_assert_eq(*(const float *)outputs[0].arrays[r].data, REPLICAS * (REPLICAS - 1) / 2);
        cr_assert_float_eq(*(const float *)outputs[1].arrays[r].data, (REPLICAS - 1) / 2.0, 1e-5);
        for (int i = 0; i < REPLICAS; i++) cr_assert_eq(((const float *)outputs[2].arrays[r].data)[i], i);
        cr_assert_eq(*(const float *)outputs[3].arrays[r].data, (r + 1) % REPLICAS);
    }
    for (int i = 0; i < 4; i++) strata_per_replica_finish(&outputs[i]);
    strata_per_replica_finish(&input);
    strata_function_destroy(function);
    OK(strata_strategy_exit(strategy, &err));
    strata_strategy_destroy(strategy);
}
