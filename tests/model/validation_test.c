/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation data in a fit: what is measured, that the training does not depend on them, when they end the training, and
 * which parameters are kept. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model_case.h"
#include "tests/support/folder.h"

enum { N = 40, N_VALIDATION = 11, BATCH = 16, EPOCHS = 4 };
static strata_error err;

/* The labels contradict those of case_dataset, so the more the model learns, the larger is this validation loss. */
static strata_dataset *contrary_dataset(void) {
    strata_array x, y;
    strata_dataset *data = NULL;
    case_arrays(N, &x, &y);
    for (int i = 0; i < N; i++) ((int32_t *)y.data)[i] = (((int32_t *)y.data)[i] + 1) % CASE_CLASSES;
    OK(strata_dataset_take_arrays(&x, &y, 0, &data, &err));
    return data;
}

/* The model has states, which must be restored from the best epoch, too. */
static strata_model *make(strata_device *device) {
    strata_model *model = case_model_with_states();
    const strata_compile_options opts = {.optimizer = strata_adam_optimizer(0.02), .seed = 4, .metrics = "recall"};
    OK(strata_model_compile(model, device, &opts, &err));
    return model;
}

TEST_ON_DEVICES(validation, does_not_change_what_is_trained) {
    strata_dataset *data = case_dataset(N), *validation = case_dataset(N_VALIDATION);
    strata_model *with = make(device), *without = make(device);
    strata_history history = {0};
    const strata_fit_options plain = {.epochs = EPOCHS, .batch = BATCH, .seed = 9};
    strata_fit_options validated = plain;
    validated.validation = validation;
    OK(strata_model_fit(without, data, &plain, &history, &err));
    cr_assert_null(history.validation);
    cr_assert_eq(history.best_epoch, -1);
    strata_history_finish(&history);
    OK(strata_model_fit(with, data, &validated, NULL, &err));
    cr_assert_str_eq(case_sha(with), case_sha(without));
    strata_model_destroy(with);
    strata_model_destroy(without);
    strata_dataset_destroy(data);
    strata_dataset_destroy(validation);
}

/* What the callback observed in one fit. */
typedef struct seen {
    strata_model *model;
    const strata_dataset *validation;
    int n_epochs, stop_after; /* stop_after 0: the callback does not stop the fit */
    bool steps_saw_some;      /* there were validation metrics before the end of an epoch */
    strata_metrics validated[EPOCHS];
    const char *checkpoint; /* the file that is written after epoch checkpoint_epochs; NULL: none */
    int checkpoint_epochs;
} seen;

static strata_status see(const strata_progress *p, void *user, strata_error *error) {
    seen *s = user;
    if (!p->epoch_end) {
        s->steps_saw_some |= p->validation.examples != 0;
        return STRATA_OK;
    }
    if (p->epoch < EPOCHS) s->validated[p->epoch] = p->validation;
    s->n_epochs++;
    if (s->stop_after == p->epoch + 1) *p->stop = true;
    if (s->checkpoint && s->checkpoint_epochs == p->epoch + 1)
        return strata_model_save_checkpoint(s->model, p->epoch + 1, s->checkpoint, error);
    return STRATA_OK;
}

TEST_ON_DEVICES(validation, is_what_evaluate_measures_after_each_epoch) {
    strata_dataset *data = case_dataset(N), *validation = case_dataset(N_VALIDATION);
    strata_model *whole = make(device), *apart = make(device);
    strata_history history = {0};
    seen s = {.model = whole};
    strata_fit_options opts = {
        .epochs = EPOCHS, .batch = BATCH, .seed = 9, .validation = validation, .on_progress = see, .user = &s};
    OK(strata_model_fit(whole, data, &opts, &history, &err));
    cr_assert_not(s.steps_saw_some);
    int best = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        strata_metrics metrics;
        const strata_fit_options one = {.epochs = epoch + 1, .first_epoch = epoch, .batch = BATCH, .seed = 9};
        OK(strata_model_fit(apart, data, &one, NULL, &err));
        OK(strata_model_evaluate(apart, validation, BATCH, &metrics, &err));
        const strata_metrics *had = &history.validation[epoch];
        cr_assert_eq(had->loss, metrics.loss, "epoch %d", epoch + 1);
        cr_assert_eq(had->accuracy, metrics.accuracy);
        cr_assert_eq(had->examples, N_VALIDATION);
        cr_assert_eq(had->n, 1);
        cr_assert_str_eq(had->more[0].name, "recall");
        cr_assert_eq(had->more[0].value, metrics.more[0].value);
        cr_assert_eq(s.validated[epoch].loss, metrics.loss);
        cr_assert_neq(history.epochs[epoch].loss, metrics.loss);
        if (metrics.loss < history.validation[best].loss) best = epoch;
    }
    cr_assert_eq(history.best_epoch, best);
    strata_history_finish(&history);
    strata_model_destroy(whole);
    strata_model_destroy(apart);
    strata_dataset_destroy(data);
    strata_dataset_destroy(validation);
}

/* Fits until patience ends the fit. With the contradicting labels the loss soon rises in every epoch. */
static strata_model *fit_until_worse(strata_device *device, strata_fit_options opts, strata_history *history) {
    strata_dataset *data = case_dataset(N), *validation = contrary_dataset();
    strata_model *model = make(device);
    opts.batch = BATCH;
    opts.seed = 9;
    opts.validation = validation;
    OK(strata_model_fit(model, data, &opts, history, &err));
    strata_dataset_destroy(data);
    strata_dataset_destroy(validation);
    return model;
}

TEST_ON_HOST(validation, patience_ends_training_epochs_after_the_best) {
    for (int patience = 1; patience <= 3; patience++) {
        strata_history history = {0};
        strata_model *model = fit_until_worse(device, (strata_fit_options){.epochs = 100, .patience = patience}, &history);
        cr_assert_lt(history.n_epochs, 100);
        cr_assert_eq(history.n_epochs, history.best_epoch + 1 + patience);
        for (int i = 0; i < history.n_epochs; i++)
            cr_assert_geq(history.validation[i].loss, history.validation[history.best_epoch].loss);
        strata_history_finish(&history);
        strata_model_destroy(model);
    }
}

TEST_ON_HOST(validation, what_improves_by_less_than_min_delta_does_not) {
    strata_dataset *data = case_dataset(N);
    strata_model *model = make(device);
    strata_history history = {0};
    const strata_fit_options opts = {
        .epochs = 50, .batch = BATCH, .validation = data, .patience = 2, .min_delta = 1000}; /* larger than any improvement */
    OK(strata_model_fit(model, data, &opts, &history, &err));
    cr_assert_eq(history.n_epochs, 3);
    cr_assert_eq(history.best_epoch, 0);
    cr_assert_lt(history.validation[1].loss, history.validation[0].loss);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_DEVICES(validation, the_best_epochs_parameters_and_states_are_restored) {
    strata_history history = {0};
    strata_model *restored =
        fit_until_worse(device, (strata_fit_options){.epochs = 100, .patience = 2, .restore_best = true}, &history);
    strata_model *stopped = fit_until_worse(device, (strata_fit_options){.epochs = history.best_epoch + 1}, NULL);
    strata_model *last = fit_until_worse(device, (strata_fit_options){.epochs = 100, .patience = 2}, NULL);
    cr_assert_str_eq(case_sha(restored), case_sha(stopped));
    cr_assert_str_neq(case_sha(restored), case_sha(last));
    strata_history_finish(&history);
    strata_model_destroy(restored);
    strata_model_destroy(stopped);
    strata_model_destroy(last);
}

TEST_ON_HOST(validation, the_callback_may_end_training_after_an_epoch) {
    strata_dataset *data = case_dataset(N);
    strata_model *ended = make(device), *shorter = make(device);
    strata_history history = {0};
    seen s = {.stop_after = 2};
    strata_fit_options opts = {.epochs = EPOCHS, .batch = BATCH, .on_progress = see, .user = &s};
    OK(strata_model_fit(ended, data, &opts, &history, &err));
    cr_assert_eq(history.n_epochs, 2);
    cr_assert_eq(s.n_epochs, 2);
    OK(strata_model_fit(shorter, data, &(strata_fit_options){.epochs = 2, .batch = BATCH}, NULL, &err));
    cr_assert_str_eq(case_sha(ended), case_sha(shorter));
    strata_history_finish(&history);
    strata_model_destroy(ended);
    strata_model_destroy(shorter);
    strata_dataset_destroy(data);
}

/* The best epoch is before the checkpoint. A fit that continues from the checkpoint must know its loss and its parameters. */
TEST_ON_HOST(validation, goes_on_from_a_checkpoint) {
    char name[48];
    int epochs = 0;
    strata_history all = {0}, rest = {0};
    test_folder_make();
    snprintf(name, sizeof name, "validation-%d", (int)getpid());
    const char *path = test_path(name);
    strata_dataset *data = case_dataset(N), *validation = contrary_dataset();
    strata_model *whole = make(device), *resumed = make(device);
    seen s = {.model = whole, .checkpoint = path};
    strata_fit_options opts = {.epochs = 100,
                               .batch = BATCH,
                               .seed = 9,
                               .validation = validation,
                               .patience = 3,
                               .restore_best = true,
                               .on_progress = see,
                               .user = &s};
    OK(strata_model_fit(whole, data, &opts, &all, &err)); /* to find out which epoch is the best */
    strata_model_destroy(whole);
    whole = s.model = make(device);
    s.checkpoint_epochs = all.best_epoch + 2;
    OK(strata_model_fit(whole, data, &opts, NULL, &err));
    OK(strata_model_load_checkpoint(resumed, path, &epochs, &err));
    cr_assert_eq(epochs, all.best_epoch + 2);
    opts.first_epoch = epochs;
    opts.on_progress = NULL;
    OK(strata_model_fit(resumed, data, &opts, &rest, &err));
    cr_assert_eq(rest.best_epoch, all.best_epoch);
    cr_assert_eq(rest.n_epochs, all.n_epochs - epochs);
    cr_assert_str_eq(case_sha(resumed), case_sha(whole));
    strata_history_finish(&all);
    strata_history_finish(&rest);
    strata_model_destroy(whole);
    strata_model_destroy(resumed);
    strata_dataset_destroy(data);
    strata_dataset_destroy(validation);
    test_folder_remove();
}

TEST_ON_HOST(validation, a_loss_that_is_no_number_is_never_the_best) {
    strata_array x, y;
    strata_dataset *data = case_dataset(N), *broken = NULL;
    strata_model *model = make(device);
    strata_history history = {0};
    case_arrays(N, &x, &y);
    ((float *)x.data)[0] = NAN;
    OK(strata_dataset_take_arrays(&x, &y, 0, &broken, &err));
    const strata_fit_options opts = {.epochs = 20, .batch = BATCH, .validation = broken, .patience = 3, .restore_best = true};
    OK(strata_model_fit(model, data, &opts, &history, &err));
    cr_assert_eq(history.n_epochs, 3);
    cr_assert_eq(history.best_epoch, -1);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_dataset_destroy(broken);
}

/* Two replicas in one process must have the same parameters afterwards. */
TEST_ON_HOST(validation, works_with_a_strategy) {
    strata_dataset *data = case_dataset(N), *validation = contrary_dataset();
    strata_strategy *strategy = NULL;
    strata_device *devices[2];
    strata_history history = {0};
    bool equal = false;
    (void)device;
    for (int i = 0; i < 2; i++) OK(strata_device_open("host", NULL, &devices[i], &err));
    OK(strata_strategy_from_devices(devices, 2, &strategy, &err));
    strata_model *model = case_model_uncompiled();
    const strata_compile_options compile = {.optimizer = strata_adam_optimizer(0.05), .strategy = strategy};
    OK(strata_model_compile(model, NULL, &compile, &err));
    strata_metrics kept;
    const strata_fit_options opts = {
        .epochs = 100, .batch = BATCH, .validation = validation, .patience = 2, .restore_best = true};
    OK(strata_model_fit(model, data, &opts, &history, &err));
    cr_assert_lt(history.n_epochs, 100);
    OK(strata_model_replicas_equal(model, &equal, &err));
    cr_assert(equal);
    OK(strata_model_evaluate(model, validation, BATCH, &kept, &err));
    cr_assert_eq(kept.loss, history.validation[history.best_epoch].loss);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    strata_dataset_destroy(data);
    strata_dataset_destroy(validation);
}

TEST_ON_HOST(validation, says_what_is_wrong_before_it_trains) {
    strata_dataset *data = case_dataset(N), *unlabelled = NULL, *empty = case_dataset(0);
    strata_model *model = make(device);
    strata_array x, y;
    case_arrays(N, &x, &y);
    OK(strata_dataset_take_arrays(&x, NULL, 0, &unlabelled, &err));
    strata_array_finish(&y);
    char before[65];
    memcpy(before, case_sha(model), sizeof before);
    const struct {
        strata_fit_options opts;
        strata_status status;
        const char *text;
    } cases[] = {{{.patience = 2}, STRATA_INVALID, "patience needs the loss on validation data, and there are none"},
                 {{.restore_best = true}, STRATA_INVALID, "restore_best needs the loss on validation data"},
                 {{.validation = data, .patience = -1}, STRATA_INVALID, "patience is -1; it must be at least 1"},
                 {{.validation = data, .min_delta = -0.5}, STRATA_INVALID, "min_delta is -0.5; it must be at least 0"},
                 {{.validation = data, .min_delta = NAN}, STRATA_INVALID, "min_delta is nan"},
                 {{.validation = unlabelled}, STRATA_DATA, "fit, validation: the data has no labels"},
                 {{.validation = empty}, STRATA_DATA, "fit, validation: the data is empty"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        FAILS(strata_model_fit(model, data, &cases[i].opts, NULL, &err), cases[i].status, cases[i].text);
    cr_assert_str_eq(case_sha(model), before);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_dataset_destroy(unlabelled);
    strata_dataset_destroy(empty);
}
