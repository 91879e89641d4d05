/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers whose devices are of several kinds, which may round differently: in a worker with several kinds one device makes the
 * update, and all devices take the new values of worker 0. The step must have the bits of that of devices which are all of
 * one kind. All devices here are the host; worker 1's updates differ since its momentum begins with another value. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/model/model.h"
#include "tests/cluster/workers.h"
#include "tests/support/check.h"

typedef struct layout {
    /* [workers] The device that makes the updates; -1: each does. */
    int at[2];
    /* Worker 0's values count. */
    bool mixed;
} layout;

typedef struct kinds_case {
    layout how;
    /* The number of batches for an update. */
    int64_t batches;
    /* A layer computes the mean of all examples, of which each device takes its own. */
    bool centered;
    strata_dataset *dataset;
    char sha[2][65];
    float losses[2][4];
    bool divided[2];
} kinds_case;

static strata_status open_kinds(strata_communicator *comm, const kinds_case *c, strata_strategy **out, strata_error *err) {
    STRATA_TRY(open_strategy(comm, 2, out, err));
    strata_strategy *strategy = *out;
    const int at = c->how.at[strata_communicator_rank(comm)];
    strategy->update = at < 0 ? (strata_placement){0} : strata_placement_at((strata_placement){0}, 0, at);
    strategy->workers.mixed = c->how.mixed;
    return STRATA_OK;
}

static strata_status disturb(strata_model *model, strata_error *err) {
    for (int r = 0; r < model->strategy->n_devices; r++) {
        strata_variable *slot = model->replicas[r].blocks[0].slots[0];
        strata_array values;
        if (!slot) continue;
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(model->parameters.flat_size), &values, err));
        for (int64_t i = 0; i < model->parameters.flat_size; i++) ((float *)values.data)[i] = 0.5f;
        const strata_status status = strata_variable_set(slot, &values, err);
        strata_array_finish(&values);
        STRATA_TRY(status);
    }
    return STRATA_OK;
}

static strata_tensor *center(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    (void)options, (void)context, (void)n;
    return strata_sub(inputs[0], strata_reduce_mean(inputs[0], (int[]){0}, 1, true));
}

static strata_test_result train(strata_communicator *comm, const void *user) {
    static const char json[] =
        "{\"input\": [8], \"layers\": [{\"layer\": \"dense\", \"units\": 12, \"kernel_l2\": 0.01}, {\"layer\": "
        "\"batch_norm\"}, "
        "{\"layer\": \"dense\", \"units\": 3}]}";
    static const char centered[] =
        "{\"input\": [8], \"layers\": [{\"layer\": \"dense\", \"units\": 12, \"kernel_l2\": 0.01}, {\"layer\": \"center\"}, "
        "{\"layer\": \"dense\", \"units\": 3}]}";
    kinds_case *c = (kinds_case *)user;
    const int w = strata_communicator_rank(comm);
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_history history = {0};
    TEST_TRY(open_kinds(comm, c, &strategy, &err));
    strata_registry *registry = NULL;
    TEST_TRY(strata_registry_create(&registry, &err));
    TEST_TRY(strata_layer_register(registry, &(strata_layer_definition){.name = "center", .build = center}, &err));
    const char *text = c->centered ? centered : json;
    TEST_TRY(strata_model_from_json_with(registry, text, strlen(text), "the test", &model, &err));
    strata_registry_destroy(registry);
    strata_compile_options opts = {.strategy = strategy,
                                   .seed = 3,
                                   .optimizer = strata_sgd_optimizer(0.1, 0.5, false),
                                   .loss = "sparse_categorical_crossentropy"};
    opts.optimizer.gradient_accumulation_steps = c->batches;
    TEST_TRY(strata_model_compile(model, NULL, &opts, &err));
    if (w && c->how.mixed) TEST_TRY(disturb(model, &err));
    TEST_TRY(strata_model_fit(model, c->dataset, &(strata_fit_options){.epochs = 1, .batch = 7, .seed = 5}, &history, &err));
    for (const strata_model_program *p = model->programs; p; p = p->next) c->divided[w] |= p->divided;
    memcpy(c->losses[w], history.losses, sizeof c->losses[w]);
    TEST_TRY(strata_model_sha256(model, c->sha[w], &err));
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    return strata_test_ok();
}

/* Batches of 7 have 2, 2, 2 and 1 examples for 4 devices; the last one has 1 example. */
Test(kinds, of_workers_devices_train_with_the_bits_of_devices_that_are_alike) {
    static const layout layouts[] = {{{-1, -1}, true}, {{0, -1}, true}, {{-1, 0}, true}, {{0, 0}, true},
                                     {{1, 1}, true},   {{0, 0}, false}, {{1, 1}, false}};
    strata_error err = {0};
    strata_dataset *dataset = NULL;
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(22, 8), -1, 1, 11), y;
    cr_assert_eq(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(22), &y, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < 22; i++) ((int32_t *)y.data)[i] = i % 3;
    cr_assert_eq(strata_dataset_take_arrays(&x, &y, 0, &dataset, &err), STRATA_OK, "%s", err.message);
    for (size_t k = 0; k < 3 * (sizeof layouts / sizeof *layouts); k++) {
        static kinds_case one, alike;
        one = alike =
            (kinds_case){.how = layouts[k / 3], .batches = k % 3 == 1 ? 2 : 1, .centered = k % 3 == 2, .dataset = dataset};
        alike.how = (layout){{-1, -1}, false};
        /* Where workers' updates may differ, a strategy places them at the first device. */
        if (one.centered && one.how.mixed && one.how.at[0] > 0) continue;
        RUN(2, train, &one);
        RUN(2, train, &alike);
        for (int w = 0; w < 2; w++) {
            cr_expect_eq(one.divided[w], !one.centered);
            cr_expect_str_eq(one.sha[w], alike.sha[0], "case %d, worker %d: %s beside %s", (int)k, w, one.sha[w], alike.sha[0]);
            for (int i = 0; i < 4; i++)
                cr_expect_eq(one.losses[w][i], alike.losses[0][i], "case %d, worker %d, step %d: %.9g beside %.9g", (int)k, w,
                             i, (double)one.losses[w][i], (double)alike.losses[0][i]);
        }
    }
    strata_dataset_destroy(dataset);
}
