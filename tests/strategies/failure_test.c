/* SPDX-License-Identifier: Apache-2.0
 *
 * A device is lost at each possible call of each step. All replicas must fail with the same error, which names the replica
 * and the device. Nothing may hang, and the remaining replicas must have the parameters after a whole number of steps. And a
 * device is lost at each copy to it or from it, which the call that copies must report. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/run/device.h"
#include "core/run/strategy.h"
#include "strata/strata.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

enum { FEATURES = 6, BATCH = 8, STEPS = 4, N = BATCH * STEPS, BROKEN = 1 };

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

static strata_array x, y;

/* ---- a device that fails ---- */

static strata_device_api breaking; /* the host's table with other functions run and wait */
static const strata_device_api *sound;
static strata_device *broken;
static int calls_left;

static strata_status gone(strata_error *error) {
    return strata_fail(error, STRATA_DEVICE_LOST, "%s was taken out", broken->info.id);
}

static strata_status run_or_fail(strata_program *program, int slot, uint64_t *out_ticket, strata_error *error) {
    return --calls_left < 0 ? gone(error) : sound->run(program, slot, out_ticket, error);
}

static strata_status wait_or_fail(strata_device *device, uint64_t ticket, strata_error *error) {
    return --calls_left < 0 ? gone(error) : sound->wait(device, ticket, error);
}

static strata_strategy *two_hosts(int calls) {
    strata_device *devices[2];
    strata_strategy *strategy = NULL;
    for (int r = 0; r < 2; r++) OK(strata_device_open("host", NULL, &devices[r], &err));
    broken = devices[BROKEN];
    sound = broken->api;
    breaking = *sound;
    breaking.run = run_or_fail;
    breaking.wait = wait_or_fail;
    calls_left = calls;
    broken->api = &breaking;
    OK(strata_strategy_from_devices(devices, 2, &strategy, &err));
    return strategy;
}

/* ---- training on it ---- */

static strata_model *make_model(strata_strategy *strategy) {
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(FEATURES), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 5, .activation = "relu"});
    strata_model_add_batch_norm(model, (strata_batch_norm_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    const strata_compile_options opts = {.optimizer = strata_adam_optimizer(0.01), .seed = 1, .strategy = strategy};
    OK(strata_model_compile(model, NULL, &opts, &err));
    return model;
}

static strata_status train(strata_model *model, int64_t n) {
    strata_dataset *dataset = NULL;
    const strata_array first_x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n, FEATURES), x.data);
    const strata_array first_y = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(n), y.data);
    OK(strata_dataset_from_arrays(&first_x, &first_y, 0, &dataset, &err));
    const strata_status status =
        strata_model_fit(model, dataset, &(strata_fit_options){.batch = BATCH, .no_shuffle = true}, NULL, &err);
    strata_dataset_destroy(dataset);
    return status;
}

static void make_data(void) {
    x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(N, FEATURES), -1, 1, 5);
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(N), &y, &err));
    for (int i = 0; i < N; i++) ((int32_t *)y.data)[i] = ((float *)x.data)[i * FEATURES] > 0;
}

/* Writes the hash of the parameters after each number of steps of an undisturbed training. */
static void train_unbroken(char sha[STEPS + 1][65]) {
    for (int steps = 0; steps <= STEPS; steps++) {
        strata_strategy *strategy = two_hosts(1 << 30);
        strata_model *model = make_model(strategy);
        if (steps) OK(train(model, (int64_t)steps * BATCH));
        OK(strata_model_sha256(model, sha[steps], &err));
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
    }
}

Test(failure, a_device_lost_in_mid_step_ends_it_on_all_replicas) {
    char whole[STEPS + 1][65], sha[65];
    bool seen[STEPS + 1] = {false};
    int calls = 0;
    make_data();
    train_unbroken(whole);
    for (strata_status status = STRATA_DEVICE_LOST; status; calls++) {
        strata_strategy *strategy = two_hosts(calls);
        strata_model *model = make_model(strategy);
        status = train(model, N);
        if (status) {
            cr_assert_eq(status, STRATA_DEVICE_LOST, "call %d: %s", calls, err.message);
            cr_assert(strstr(err.message, "replica 1") && strstr(err.message, "was taken out"), "call %d: %s", calls,
                      err.message);
            cr_assert_eq(train(model, N), STRATA_DEVICE_LOST, "the group is of no use any more");
        }
        OK(strata_model_sha256(model, sha, &err)); /* the model reads from replica 0, whose device works */
        int steps = 0;
        while (steps <= STEPS && strcmp(sha, whole[steps]) != 0) steps++;
        cr_assert_leq(steps, STEPS, "call %d: the parameters are those of no whole number of steps", calls);
        seen[steps] = true;
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
    }
    cr_assert_gt(calls, 4 * STEPS);
    for (int steps = 0; steps <= STEPS; steps++) cr_assert(seen[steps], "no failure left %d whole steps", steps);
    strata_array_finish(&x);
    strata_array_finish(&y);
}

/* ---- each copy ---- */

static int copies_left;
static bool lost;

static strata_status gone_with_copies(strata_error *error) {
    lost = true;
    return gone(error);
}

static strata_status upload_or_fail(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source,
                                    int64_t bytes, strata_error *error) {
    return --copies_left < 0 ? gone_with_copies(error) : sound->upload(device, buffer, offset, source, bytes, error);
}

static strata_status download_or_fail(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                      strata_error *error) {
    return --copies_left < 0 ? gone_with_copies(error) : sound->download(device, buffer, offset, target, bytes, error);
}

/* Two host devices, of which one is lost after `copies` copies. */
static strata_strategy *two_hosts_with_copies(int device, int copies) {
    static strata_device_api copying;
    strata_strategy *strategy = two_hosts(1 << 30);
    broken->api = sound;
    broken = strategy->devices[device];
    copying = *sound;
    copying.upload = upload_or_fail;
    copying.download = download_or_fail;
    broken->api = &copying;
    copies_left = copies;
    lost = false;
    strategy->shard_optimizer = STRATA_SHARD_OPTIMIZER_YES;
    return strategy;
}

/* Everything that reads or writes the variables of a model. */
static strata_status use_model(strata_strategy *strategy, const strata_dataset *dataset, const char *path,
                               strata_error *error) {
    strata_model *model = NULL;
    strata_array predictions = {0};
    strata_metrics metrics;
    int epochs = 0;
    bool equal = false;
    char sha[65];
    STRATA_TRY(strata_model_create(STRATA_SHAPE(FEATURES), &model, error));
    strata_model_add_dense(model, (strata_dense_options){.units = 40, .activation = "relu"});
    strata_model_add_batch_norm(model, (strata_batch_norm_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    strata_optimizer optimizer = strata_adam_optimizer(0.01);
    optimizer.gradient_accumulation_steps = 2;
    STRATA_TRY(strata_model_compile(model, NULL,
                                    &(strata_compile_options){.optimizer = optimizer, .seed = 1, .strategy = strategy}, error));
    const strata_fit_options opts = {.epochs = 2, .batch = BATCH, .validation = dataset, .patience = 3, .restore_best = true};
    STRATA_TRY(strata_model_fit(model, dataset, &opts, NULL, error));
    STRATA_TRY(strata_model_save_checkpoint(model, 1, path, error));
    STRATA_TRY(strata_model_load_checkpoint(model, path, &epochs, error));
    STRATA_TRY(strata_model_evaluate(model, dataset, BATCH, &metrics, error));
    const strata_status predicted = strata_model_predict(model, dataset, BATCH, &predictions, error);
    strata_array_finish(&predictions);
    STRATA_TRY(predicted);
    STRATA_TRY(strata_model_replicas_equal(model, &equal, error));
    STRATA_TRY(strata_model_sha256(model, sha, error));
    return strata_model_save(model, path, error);
}

Test(failure, a_device_lost_in_a_copy_is_reported_by_the_call_that_copies, .init = test_folder_make,
     .fini = test_folder_remove) {
    strata_dataset *dataset = NULL;
    make_data();
    OK(strata_dataset_from_arrays(&x, &y, 0, &dataset, &err));
    for (int device = 0; device < 2; device++) {
        int copies = 0;
        for (lost = true; lost; copies++) {
            strata_strategy *strategy = two_hosts_with_copies(device, copies);
            const strata_status status = use_model(strategy, dataset, test_path("model.strata"), &err);
            cr_assert_eq(status, lost ? STRATA_DEVICE_LOST : STRATA_OK, "device %d, copy %d: %s", device, copies, err.message);
            cr_assert(!lost || strstr(err.message, "was taken out"), "copy %d: %s", copies, err.message);
            strata_strategy_destroy(strategy);
        }
        cr_assert_gt(copies, 20);
    }
    strata_dataset_destroy(dataset);
    strata_array_finish(&x);
    strata_array_finish(&y);
}
