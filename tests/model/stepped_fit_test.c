/* SPDX-License-Identifier: Apache-2.0
 *
 * strata_fit_begin, _step and _end: the caller runs the loop, and the bits must be those of strata_model_fit. */
#include <string.h>

#include "model_case.h"

enum { N = 40, BATCH = 16, STEPS = 3, EPOCHS = 3 };

static strata_model *make(strata_device *device) {
    strata_error err = {0};
    strata_model *model = case_model_with_states();
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_adam_optimizer(0.01), .seed = 4},
                            &err));
    return model;
}

static const strata_fit_options options = {.epochs = EPOCHS, .batch = BATCH, .seed = 9};

TEST_ON_DEVICES(stepped_fit, makes_the_bits_of_a_fit_with_a_call_for_each_step_and_each_end_of_an_epoch) {
    strata_error err = {0};
    strata_dataset *data = case_dataset(N);
    strata_model *whole = make(device), *stepped = make(device);
    strata_history all = {0}, history = {0};
    strata_fit *fit;
    const strata_progress *progress;
    OK(strata_model_fit(whole, data, &options, &all, &err));
    OK(strata_fit_begin(stepped, data, &options, &fit, &err));
    for (int e = 0; e < EPOCHS; e++)
        for (int s = 0; s <= STEPS; s++) {
            OK(strata_fit_step(fit, &progress, &err));
            cr_assert_not_null(progress);
            cr_assert_eq(progress->epoch_end, s == STEPS, "epoch %d, call %d", e, s);
            cr_assert_eq(progress->epoch, e);
            cr_assert_leq(progress->step, s + 1);
        }
    OK(strata_fit_step(fit, &progress, &err));
    cr_assert_null(progress);
    OK(strata_fit_end(fit, &history, &err));
    cr_assert_str_eq(case_sha(stepped), case_sha(whole));
    cr_assert(history.n_epochs == EPOCHS && history.n_steps == all.n_steps && !history.stopped);
    for (int e = 0; e < EPOCHS; e++) cr_assert_eq(history.epochs[e].loss, all.epochs[e].loss);
    strata_history_finish(&all);
    strata_history_finish(&history);
    strata_model_destroy(whole);
    strata_model_destroy(stepped);
    strata_dataset_destroy(data);
}

/* Ends the fit after each possible number of calls. Another fit must continue there and reach the same bits. */
TEST_ON_HOST(stepped_fit, may_be_ended_after_any_step_and_gone_on_with) {
    strata_error err = {0};
    strata_dataset *data = case_dataset(N);
    strata_model *whole = make(device);
    OK(strata_model_fit(whole, data, &options, NULL, &err));
    for (int calls = 0; calls <= EPOCHS * (STEPS + 1); calls++) {
        strata_model *model = make(device);
        strata_history history = {0};
        strata_fit *fit;
        const strata_progress *progress;
        OK(strata_fit_begin(model, data, &options, &fit, &err));
        for (int i = 0; i < calls; i++) OK(strata_fit_step(fit, &progress, &err));
        OK(strata_fit_end(fit, &history, &err));
        cr_assert_eq(history.stopped, calls < EPOCHS * (STEPS + 1));
        cr_assert_eq(strata_model_epoch_steps(model), calls % (STEPS + 1), "%d calls", calls);
        if (history.stopped) {
            strata_fit_options rest = options;
            rest.first_epoch = history.n_epochs;
            rest.first_step = strata_model_epoch_steps(model);
            OK(strata_model_fit(model, data, &rest, NULL, &err));
        }
        cr_assert_str_eq(case_sha(model), case_sha(whole), "%d calls", calls);
        strata_history_finish(&history);
        strata_model_destroy(model);
    }
    strata_model_destroy(whole);
    strata_dataset_destroy(data);
}

/* The caller sets the rate for the next step. */
TEST_ON_HOST(stepped_fit, reports_the_step_that_it_made_where_it_waits_for_each) {
    strata_error err = {0};
    strata_dataset *data = case_dataset(N);
    strata_model *model = make(device);
    strata_fit_options opts = options;
    strata_fit *fit;
    const strata_progress *progress;
    opts.wait_each_step = true;
    OK(strata_fit_begin(model, data, &opts, &fit, &err));
    for (int s = 0; s < STEPS; s++) {
        OK(strata_fit_step(fit, &progress, &err));
        cr_assert_eq(progress->step, s + 1);
        cr_assert_gt(progress->loss, 0);
    }
    OK(strata_fit_end(fit, NULL, &err));
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_HOST(stepped_fit, fails_as_fit_does_and_says_that_it_has_failed) {
    strata_error err = {0};
    strata_dataset *data = case_dataset(N);
    strata_model *model = make(device);
    strata_fit *fit = (strata_fit *)&err;
    const strata_progress *progress;
    FAILS(strata_fit_begin(model, data, &(strata_fit_options){.batch = -1}, &fit, &err), STRATA_INVALID, "batch is -1");
    cr_assert_null(fit);
    OK(strata_fit_end(NULL, NULL, &err));
    strata_array huge;
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(CASE_INPUTS, CASE_HIDDEN), &huge, &err));
    for (int i = 0; i < CASE_INPUTS * CASE_HIDDEN; i++) ((float *)huge.data)[i] = 1.0f / 0.0f;
    OK(strata_model_set_parameter(model, 0, &huge, &err));
    OK(strata_fit_begin(model, data, &options, &fit, &err));
    strata_status status = STRATA_OK;
    for (int i = 0; i <= STEPS && !status; i++) status = strata_fit_step(fit, &progress, &err);
    cr_assert_eq(status, STRATA_DATA);
    cr_assert(strstr(err.message, "not finite"), "%s", err.message);
    FAILS(strata_fit_step(fit, &progress, &err), STRATA_INVALID, "has failed before");
    cr_assert_null(progress);
    OK(strata_fit_end(fit, NULL, &err));
    strata_array_finish(&huge);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}
