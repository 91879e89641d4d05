/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: a training that continues from one must end with the same bits as an uninterrupted training. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model_case.h"
#include "tests/support/folder.h"

TestSuite(checkpoint, .init = test_folder_make, .fini = test_folder_remove);

enum { N = 40, EPOCHS = 5, DONE = 2 };

static strata_model *make(strata_device *device, strata_optimizer optimizer, strata_dtype precision, uint64_t seed) {
    strata_error err = {0};
    strata_model *model = case_model_with_states();
    OK(strata_model_compile(model, device,
                            &(strata_compile_options){.optimizer = optimizer, .seed = seed, .precision = precision}, &err));
    return model;
}

/* Test cases run at the same time, each in its own process, so each needs its own path. */
static const char *own_path(void) {
    char name[40];
    snprintf(name, sizeof name, "checkpoint-%d", (int)getpid());
    return test_path(name);
}

static void fit(strata_model *model, int first, int epochs, strata_history *history) {
    strata_error err = {0};
    strata_dataset *data = case_dataset(N);
    const strata_fit_options opts = {.first_epoch = first, .epochs = epochs, .batch = 16, .seed = 9};
    OK(strata_model_fit(model, data, &opts, history, &err));
    strata_dataset_destroy(data);
}

/* Trains for an epoch with n examples, the fifth of which is changed by `add`, and continues with m examples without the
 * change. */
static strata_status change_data(strata_device *device, int64_t n, int64_t m, float add, strata_fit_options opts,
                                 strata_error *out_err) {
    strata_error err = {0};
    strata_model *first = make(device, strata_adam_optimizer(0.01), STRATA_DTYPE_F32, 4),
                 *second = make(device, strata_adam_optimizer(0.01), STRATA_DTYPE_F32, 4);
    strata_array x = {0}, y = {0};
    strata_dataset *before = NULL, *after = case_dataset(m);
    int epochs = 0;
    case_arrays(n, &x, &y);
    ((float *)x.data)[4 * x.shape.dims[1]] += add;
    OK(strata_dataset_from_arrays(&x, &y, 0, &before, &err));
    OK(strata_model_fit(first, before, &(strata_fit_options){.epochs = 1, .batch = 16, .seed = 9}, NULL, &err));
    OK(strata_model_save_checkpoint(first, 1, own_path(), &err));
    OK(strata_model_load_checkpoint(second, own_path(), &epochs, &err));
    opts.epochs = 2;
    opts.first_epoch = epochs;
    const strata_status status = strata_model_fit(second, after, &opts, NULL, &err);
    strata_dataset_destroy(before);
    strata_dataset_destroy(after);
    strata_array_finish(&x);
    strata_array_finish(&y);
    strata_model_destroy(first);
    strata_model_destroy(second);
    *out_err = err;
    return status;
}

TEST_ON_HOST(checkpoint, is_not_continued_with_other_data_or_options) {
    strata_error err = {0};
    const strata_fit_options same = {.batch = 16, .seed = 9};
    const double weights[3] = {1, 2, 1};
    strata_fit_options other = same;
    OK(change_data(device, N, N, 0, same, &err));
    other.batch = 8;
    OK(change_data(device, N, N, 0, other, &err));
    FAILS(change_data(device, N, N - 1, 0, same, &err), STRATA_DATA,
          "the number of examples of the training data is 39 now and 40 in the checkpoint");
    FAILS(change_data(device, N, N, 1, same, &err), STRATA_DATA,
          "the inputs of the examples 0 to 1 of the training data are others now than in the checkpoint");
    other = same;
    other.class_weights = weights;
    other.n_class_weights = 3;
    FAILS(change_data(device, N, N, 0, other, &err), STRATA_DATA,
          "the number of class weights is 3 now and 0 in the checkpoint");
    other = same;
    other.seed = 8;
    FAILS(change_data(device, N, N, 0, other, &err), STRATA_DATA, "the seed of the shuffles is 8 now and 9 in the checkpoint");
    other = same;
    other.no_shuffle = true;
    FAILS(change_data(device, N, N, 0, other, &err), STRATA_DATA, "the shuffling is off now and on in the checkpoint");
    other = same;
    other.steps_per_epoch = 2;
    FAILS(change_data(device, N, N, 0, other, &err), STRATA_DATA,
          "the number of steps an epoch may have is 2 now and 0 in the checkpoint");
}

TEST_ON_HOST(checkpoint, of_all_epochs_is_continued_by_no_step) {
    strata_model *model = make(device, strata_adam_optimizer(0.01), STRATA_DTYPE_F32, 4);
    strata_history history = {0};
    char before[80];
    fit(model, 0, EPOCHS, NULL);
    snprintf(before, sizeof before, "%s", case_sha(model));
    fit(model, EPOCHS, EPOCHS, &history);
    cr_assert_eq(history.n_epochs, 0);
    cr_assert_eq(history.n_steps, 0);
    cr_assert_str_eq(case_sha(model), before);
    strata_history_finish(&history);
    strata_model_destroy(model);
}

static void goes_on(strata_device *device, strata_optimizer optimizer, strata_dtype precision) {
    strata_error err = {0};
    int epochs = 0;
    const char *path = own_path();
    strata_model *whole = make(device, optimizer, precision, 4), *begun = make(device, optimizer, precision, 4),
                 *resumed = make(device, optimizer, precision, 4);
    strata_history all = {0}, rest = {0};
    fit(whole, 0, EPOCHS, &all);
    fit(begun, 0, DONE, NULL);
    OK(strata_model_save_checkpoint(begun, DONE, path, &err));
    OK(strata_model_load_checkpoint(resumed, path, &epochs, &err));
    cr_assert_eq(epochs, DONE);
    cr_assert_str_eq(case_sha(resumed), case_sha(begun));
    fit(resumed, DONE, EPOCHS, &rest);
    cr_assert_str_eq(case_sha(resumed), case_sha(whole), "%s", optimizer.name);
    cr_assert_eq(rest.n_epochs, EPOCHS - DONE);
    for (int i = 0; i < rest.n_epochs; i++) cr_assert_eq(rest.epochs[i].loss, all.epochs[DONE + i].loss);
    strata_history_finish(&all);
    strata_history_finish(&rest);
    strata_model_destroy(whole);
    strata_model_destroy(begun);
    strata_model_destroy(resumed);
}

TEST_ON_DEVICES(checkpoint, goes_on_with_the_bits_of_an_uninterrupted_training) {
    goes_on(device, strata_adam_optimizer(0.01), STRATA_DTYPE_F32);
}

TEST_ON_HOST(checkpoint, goes_on_with_every_optimizer) {
    const char *const names[] = {"sgd", "rmsprop", "adagrad", "adamw"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        goes_on(device, (strata_optimizer){.name = names[i], .learning_rate = 0.01, .momentum = i ? 0 : 0.9}, STRATA_DTYPE_F32);
    strata_optimizer accumulates = strata_adam_optimizer(0.01);
    accumulates.gradient_accumulation_steps = 2;
    goes_on(device, accumulates, STRATA_DTYPE_F32);
}

TEST_ON_HOST(checkpoint, keeps_the_scale_of_f16_gradients) {
    goes_on(device, strata_adam_optimizer(0.01), STRATA_DTYPE_F16);
}

TEST_ON_HOST(checkpoint, is_a_model_file_too) {
    strata_error err = {0};
    const char *path = own_path();
    strata_model *model = make(device, strata_adam_optimizer(0.01), STRATA_DTYPE_F32, 4), *loaded = NULL;
    fit(model, 0, 1, NULL);
    OK(strata_model_save_checkpoint(model, 1, path, &err));
    OK(strata_model_load(path, &loaded, &err));
    OK(strata_model_compile(loaded, device, NULL, &err));
    cr_assert_str_eq(case_sha(loaded), case_sha(model));
    strata_model_destroy(loaded);
    strata_model_destroy(model);
}

static strata_status stop_at(const strata_progress *p, void *user, strata_error *err) {
    (void)err;
    if (p->total_step >= *(const int64_t *)user) *p->stop_now = true;
    return STRATA_OK;
}

/* Stops in the first epoch and in a later one, with an update in each batch, and with gradients accumulated over three
 * batches. */
TEST_ON_DEVICES(checkpoint, of_a_fit_that_was_stopped_within_an_epoch_goes_on_with_the_same_bits) {
    const int64_t stops[] = {2, 15};
    strata_error err = {0};
    strata_dataset *data = case_dataset(N);
    for (int i = 0; i < 4; i++) {
        const char *path = own_path();
        strata_optimizer optimizer = strata_adam_optimizer(0.01);
        if (i >= 2) optimizer.gradient_accumulation_steps = 3;
        strata_model *whole = make(device, optimizer, STRATA_DTYPE_F32, 4),
                     *begun = make(device, optimizer, STRATA_DTYPE_F32, 4),
                     *resumed = make(device, optimizer, STRATA_DTYPE_F32, 4);
        strata_history all = {0}, part = {0}, rest = {0};
        const int64_t stop = i >= 2 ? stops[i - 2] / 3 + 1 : stops[i];
        strata_fit_options opts = {.epochs = 3, .batch = 4, .seed = 9};
        OK(strata_model_fit(whole, data, &opts, &all, &err));
        opts.on_progress = stop_at;
        opts.user = (void *)&stop;
        OK(strata_model_fit(begun, data, &opts, &part, &err));
        cr_assert(part.stopped && part.n_steps >= stop && part.n_steps < stop + 8);
        cr_assert_gt(strata_model_epoch_steps(begun), 0);
        strata_metrics ignored;
        /* evaluation uses the same sums on the device, which must not change the training */
        OK(strata_model_evaluate(begun, data, 0, &ignored, &err));
        OK(strata_model_save_checkpoint(begun, part.n_epochs, path, &err));
        opts.on_progress = NULL;
        int epochs = 0;
        OK(strata_model_load_checkpoint(resumed, path, &epochs, &err));
        cr_assert_eq(epochs, part.n_epochs);
        opts.first_epoch = epochs;
        opts.first_step = 1 + strata_model_epoch_steps(resumed);
        FAILS(strata_model_fit(resumed, data, &opts, NULL, &err), STRATA_INVALID, "first_step is");
        opts.first_step--;
        OK(strata_model_fit(resumed, data, &opts, &rest, &err));
        cr_assert_str_eq(case_sha(resumed), case_sha(whole), "case %d", i);
        cr_assert(!rest.stopped && part.n_steps + rest.n_steps == all.n_steps);
        for (int e = 0; e < rest.n_epochs; e++) {
            cr_assert_eq(rest.epochs[e].loss, all.epochs[epochs + e].loss, "case %d, epoch %d", i, e);
            cr_assert_eq(rest.epochs[e].examples, N);
        }
        cr_assert_eq(strata_model_epoch_steps(resumed), 0);
        strata_history_finish(&all);
        strata_history_finish(&part);
        strata_history_finish(&rest);
        strata_model_destroy(whole);
        strata_model_destroy(begun);
        strata_model_destroy(resumed);
    }
    strata_dataset_destroy(data);
}

TEST_ON_HOST(checkpoint, says_what_does_not_fit) {
    strata_error err = {0};
    int epochs = 7;
    const char *path = own_path();
    strata_model *model = make(device, strata_adam_optimizer(0.01), STRATA_DTYPE_F32, 4);
    const char *before = case_sha(model);
    OK(strata_model_load_checkpoint(model, test_path("none"), &epochs, &err));
    cr_assert_eq(epochs, 0);
    FAILS(strata_model_save_checkpoint(model, 0, path, &err), STRATA_INVALID, "at least 1");
    OK(strata_model_save(model, path, &err));
    FAILS(strata_model_load_checkpoint(model, path, &epochs, &err), STRATA_DATA, "is no checkpoint");
    OK(strata_model_save_checkpoint(model, 3, path, &err));
    strata_model *others[] = {make(device, strata_adam_optimizer(0.02), STRATA_DTYPE_F32, 4),
                              make(device, strata_adam_optimizer(0.01), STRATA_DTYPE_F32, 5),
                              make(device, strata_adam_optimizer(0.01), STRATA_DTYPE_F16, 4)};
    const char *const reasons[] = {"another model, optimizer or loss", "with seed 4, this is 5", "another precision"};
    for (int i = 0; i < 3; i++) {
        FAILS(strata_model_load_checkpoint(others[i], path, &epochs, &err), STRATA_DATA, reasons[i]);
        strata_model_destroy(others[i]);
    }
    strata_dataset *data = case_dataset(N);
    FAILS(strata_model_fit(model, data, &(strata_fit_options){.epochs = 2, .first_epoch = 3}, NULL, &err), STRATA_INVALID,
          "first_epoch is 3");
    strata_dataset_destroy(data);
    cr_assert_str_eq(case_sha(model), before);
    strata_model_destroy(model);
}
