/* SPDX-License-Identifier: Apache-2.0
 *
 * A callback reads and sets the learning rate. The rate must be that of the next step, and of no other step. */
#include <math.h>
#include <string.h>

#include "model_case.h"
#include "tests/support/folder.h"

TestSuite(rate, .init = test_folder_make, .fini = test_folder_remove);

enum { N = 48, BATCH = 8, STEPS = N / BATCH, EPOCHS = 2 };
static strata_error err;

/* The rates of two epochs, which a schedule and a callback set. */
static const double rates[STEPS * EPOCHS] = {0.3, 0.1, 0.2, 0.05, 0.4, 0.0, 0.1, 0.3, 0.2, 0.25, 0.15, 0.35};

static strata_optimizer stepped(void) {
    strata_optimizer optimizer = strata_sgd_optimizer(rates[0], 0.9, false);
    optimizer.schedule.name = "step";
    for (int i = 1; i < STEPS * EPOCHS; i++) {
        optimizer.schedule.boundaries.values[i - 1] = i - 0.5; /* step i, counted from 0, is above this boundary */
        optimizer.schedule.values.values[i - 1] = rates[i];
    }
    optimizer.schedule.boundaries.n = optimizer.schedule.values.n = STEPS * EPOCHS - 1;
    return optimizer;
}

static strata_status set_next(const strata_progress *progress, void *user, strata_error *error) {
    int *calls = user;
    if (progress->epoch_end) return STRATA_OK;
    cr_assert_float_eq(progress->learning_rate, rates[*calls], 1e-7, "step %d", *calls);
    if (++*calls == STEPS * EPOCHS) return STRATA_OK;
    const strata_status status = strata_model_set_learning_rate(progress->model, rates[*calls], error);
    cr_assert_eq(strata_model_learning_rate(progress->model), rates[*calls]);
    return status;
}

static void fit(strata_model *model, strata_fit_options opts) {
    strata_dataset *data = case_dataset(N);
    opts.epochs = opts.epochs ? opts.epochs : EPOCHS;
    opts.batch = BATCH;
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    strata_dataset_destroy(data);
}

TEST_ON_DEVICES(rate, the_next_step_has_what_the_callback_sets) {
    strata_model *scheduled = case_model(device, stepped(), 1),
                 *set = case_model(device, strata_sgd_optimizer(rates[0], 0.9, false), 1);
    int calls = 0;
    fit(scheduled, (strata_fit_options){0});
    fit(set, (strata_fit_options){.wait_each_step = true, .on_progress = set_next, .user = &calls});
    cr_assert_eq(calls, STEPS * EPOCHS);
    cr_assert_str_eq(case_sha(set), case_sha(scheduled));
    strata_model_destroy(scheduled);
    strata_model_destroy(set);
}

TEST_ON_HOST(rate, replicas_and_accumulated_batches_follow_it_too) {
    (void)device;
    char sha[2][65];
    for (int i = 0; i < 2; i++) {
        strata_strategy *strategy = NULL;
        strata_optimizer optimizer = i ? strata_sgd_optimizer(rates[0], 0.9, false) : stepped();
        int calls = 0;
        optimizer.gradient_accumulation_steps = 2;
        const strata_strategy_options devices = {.devices = (const char *const[]){"host", "host"}, .n_devices = 2};
        OK(strata_strategy_create("mirrored", &devices, &strategy, &err));
        strata_model *model = case_model_uncompiled();
        OK(strata_model_compile(model, NULL, &(strata_compile_options){.optimizer = optimizer, .strategy = strategy}, &err));
        fit(model, i ? (strata_fit_options){.wait_each_step = true, .on_progress = set_next, .user = &calls}
                     : (strata_fit_options){0});
        OK(strata_model_sha256(model, sha[i], &err));
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
    }
    cr_assert_str_eq(sha[0], sha[1]);
}

static strata_status at_the_end(const strata_progress *progress, void *user, strata_error *error) {
    const double *rate = user;
    if (progress->epoch_end) return strata_model_set_learning_rate(progress->model, *rate, error);
    FAILS(strata_model_set_learning_rate(progress->model, *rate, error), STRATA_INVALID, "submitted already");
    return STRATA_OK;
}

/* The first epoch uses the schedule, the next ones a rate that the program sets, and then the schedule continues with the
 * rates that it has at these steps. */
TEST_ON_HOST(rate, a_schedule_goes_on_where_it_would_be) {
    strata_model *model = case_model(device, stepped(), 1);
    double own = 0.125;
    fit(model, (strata_fit_options){.epochs = 1, .on_progress = at_the_end, .user = &own});
    cr_assert_eq(strata_model_learning_rate(model), 0.125);
    OK(strata_model_set_learning_rate(model, STRATA_SCHEDULED_RATE, &err));
    cr_assert_float_eq(strata_model_learning_rate(model), rates[STEPS], 1e-12);
    strata_model_destroy(model);
}

TEST_ON_HOST(rate, a_checkpoint_keeps_it) {
    strata_model *whole = case_model(device, stepped(), 1), *resumed = case_model(device, stepped(), 1);
    double own = 0.125;
    int epochs = 0;
    fit(whole, (strata_fit_options){.epochs = 1, .on_progress = at_the_end, .user = &own});
    OK(strata_model_save_checkpoint(whole, 1, test_path("rate"), &err));
    OK(strata_model_load_checkpoint(resumed, test_path("rate"), &epochs, &err));
    cr_assert_eq(strata_model_learning_rate(resumed), 0.125);
    fit(whole, (strata_fit_options){.first_epoch = 1});
    fit(resumed, (strata_fit_options){.first_epoch = 1});
    cr_assert_str_eq(case_sha(whole), case_sha(resumed));
    strata_model_destroy(whole);
    strata_model_destroy(resumed);
}

TEST_ON_HOST(rate, rates_that_are_none_are_refused) {
    strata_model *model = case_model_uncompiled();
    const double wrong[] = {-2, 1e6, NAN, INFINITY};
    cr_assert_eq(strata_model_learning_rate(model), 0);
    FAILS(strata_model_set_learning_rate(model, 0.1, &err), STRATA_INVALID, "not compiled");
    OK(strata_model_compile(model, device, NULL, &err));
    for (int i = 0; i < 4; i++) FAILS(strata_model_set_learning_rate(model, wrong[i], &err), STRATA_INVALID, "the rate is");
    OK(strata_model_set_learning_rate(model, 0, &err));
    strata_model_destroy(model);
}
