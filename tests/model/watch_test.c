/* SPDX-License-Identifier: Apache-2.0
 *
 * strata_model_watch_checkpoints, which evaluates checkpoints that another process writes. In this test the training runs
 * within the callback that asks whether to end the watch, which is called between two checks of the file. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model_case.h"
#include "tests/support/folder.h"

TestSuite(watch, .init = test_folder_make, .fini = test_folder_remove);

enum { N = 40, N_VALIDATION = 30, EPOCHS = 4 };

typedef struct trainer {
    strata_model *model;
    const strata_dataset *data, *validation;
    char path[300];
    /* What happens at the next calls of the callback: 't' trains an epoch and saves, 'l' does the same for the last
     * checkpoint, 's' saves the same once more, 'd' writes a damaged file, 'm' repairs it, 'r' removes the file, 'e' ends
     * the watch. */
    const char *script;
    int epoch;
    double losses[EPOCHS];
    /* What the watch has reported. */
    int n, best, epochs[8];
    int64_t steps[8];
    double seen[8];
    bool last[8];
} trainer;

static strata_model *make(strata_device *device, uint64_t seed) {
    strata_error err = {0};
    strata_model *model = case_model_with_states();
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_adam_optimizer(0.02), .seed = seed},
                            &err));
    return model;
}

static void train(trainer *t) {
    strata_error err = {0};
    strata_metrics metrics;
    const strata_fit_options opts = {.first_epoch = t->epoch, .epochs = t->epoch + 1, .batch = 8, .seed = 9};
    OK(strata_model_fit(t->model, t->data, &opts, NULL, &err));
    OK(strata_model_evaluate(t->model, t->validation, 0, &metrics, &err));
    t->losses[t->epoch++] = metrics.loss;
}

static void damage(const trainer *t) {
    FILE *file = fopen(t->path, "w");
    cr_assert_not_null(file);
    fputs("half a checkpoint", file);
    fclose(file);
}

static bool act(void *user) {
    trainer *t = user;
    strata_error err = {0};
    const char does = *t->script ? *t->script++ : ' ';
    if (does == 't' || does == 'l') train(t);
    if (does == 't' || does == 's' || does == 'm') OK(strata_model_save_checkpoint(t->model, t->epoch, t->path, &err));
    if (does == 'l') OK(strata_model_save_last_checkpoint(t->model, t->epoch, t->path, &err));
    if (does == 'd') damage(t);
    if (does == 'r') unlink(t->path);
    return does == 'e';
}

static strata_status note(const strata_checkpoint_evaluation *e, void *user, strata_error *err) {
    trainer *t = user;
    (void)err;
    if (e->best) t->best = e->epochs;
    t->epochs[t->n] = e->epochs;
    t->steps[t->n] = e->steps;
    t->seen[t->n] = e->metrics.loss;
    t->last[t->n++] = e->last;
    return STRATA_OK;
}

static strata_status watch(strata_device *device, trainer *t, const char *script, strata_watch_options opts, uint64_t seed,
                           strata_watch_result *out_result, strata_error *err) {
    strata_model *watcher = make(device, seed);
    strata_dataset *data = case_dataset(N), *validation = case_dataset(N_VALIDATION);
    char name[40];
    snprintf(name, sizeof name, "watch-%d", (int)getpid());
    *t = (trainer){.model = make(device, 4), .data = data, .validation = validation, .script = script};
    snprintf(t->path, sizeof t->path, "%s", test_path(name));
    unlink(t->path);
    opts.path = t->path;
    opts.on_evaluation = note;
    opts.stops = act;
    opts.user = t;
    const strata_status status = strata_model_watch_checkpoints(watcher, validation, &opts, out_result, err);
    unlink(t->path);
    strata_model_destroy(watcher);
    strata_model_destroy(t->model);
    strata_dataset_destroy(data);
    strata_dataset_destroy(validation);
    return status;
}

TEST_ON_DEVICES(watch, evaluates_each_checkpoint_as_the_training_would) {
    strata_error err = {0};
    strata_watch_result result;
    trainer t;
    OK(watch(device, &t, "  tst t s l", (strata_watch_options){0}, 4, &result, &err));
    cr_assert_eq(t.n, EPOCHS);
    int best = 0;
    for (int i = 0; i < EPOCHS; i++) {
        cr_assert_eq(t.epochs[i], i + 1);
        cr_assert_eq(t.steps[i], (i + 1) * N / 8);
        cr_assert_eq(t.seen[i], t.losses[i], "epoch %d: %g, not %g", i + 1, t.seen[i], t.losses[i]);
        cr_assert_eq(t.last[i], i == EPOCHS - 1);
        if (t.losses[i] < t.losses[best]) best = i;
    }
    cr_assert_eq(t.best, best + 1);
    cr_assert(result.n == EPOCHS && result.best_epochs == best + 1 && result.newest_epochs == EPOCHS);
    cr_assert_eq(result.best_loss, t.losses[best]);
    cr_assert(result.over && result.end == STRATA_WATCH_OVER);
}

TEST_ON_HOST(watch, ends_after_the_epochs_that_it_is_given_or_when_told) {
    strata_error err = {0};
    strata_watch_result result;
    trainer t;
    OK(watch(device, &t, "t", (strata_watch_options){.epochs = 1}, 4, &result, &err));
    cr_assert(t.n == 1 && result.n == 1 && !result.over && result.end == STRATA_WATCH_OVER);
    OK(watch(device, &t, "te", (strata_watch_options){0}, 4, &result, &err));
    cr_assert(t.n == 1 && result.end == STRATA_WATCH_STOPPED);
}

TEST_ON_HOST(watch, ends_when_the_file_is_removed) {
    strata_error err = {0};
    strata_watch_result result;
    trainer t;
    OK(watch(device, &t, "t r", (strata_watch_options){0}, 4, &result, &err));
    cr_assert(t.n == 1 && !result.over && result.end == STRATA_WATCH_REMOVED);
}

TEST_ON_HOST(watch, reads_a_file_again_that_was_not_whole) {
    strata_error err = {0};
    strata_watch_result result;
    trainer t;
    OK(watch(device, &t, "td ml", (strata_watch_options){0}, 4, &result, &err));
    cr_assert(t.n == 2 && result.over && t.epochs[1] == 2);
    FAILS(watch(device, &t, "td", (strata_watch_options){0}, 4, &result, &err), STRATA_DATA, "watch-");
    cr_assert(t.n == 1 && result.n == 1);
}

TEST_ON_HOST(watch, says_what_is_wrong) {
    strata_error err = {0};
    strata_watch_result result;
    trainer t;
    FAILS(watch(device, &t, "", (strata_watch_options){.wait_seconds = 0.3}, 4, &result, &err), STRATA_TIMEOUT,
          "no checkpoint has come to");
    cr_assert_eq(result.n, 0);
    FAILS(watch(device, &t, "t", (strata_watch_options){.wait_seconds = 0.3}, 4, &result, &err), STRATA_TIMEOUT,
          "is still the checkpoint of epoch 1");
    FAILS(watch(device, &t, "t", (strata_watch_options){0}, 5, &result, &err), STRATA_DATA, "with seed 4, this is 5");
    FAILS(watch(device, &t, "", (strata_watch_options){.wait_seconds = -1}, 4, &result, &err), STRATA_INVALID,
          "wait_seconds is -1");
    strata_model *model = make(device, 4);
    FAILS(strata_model_watch_checkpoints(model, NULL, NULL, &result, &err), STRATA_INVALID, "no path");
    FAILS(strata_model_save_last_checkpoint(model, 0, "nowhere", &err), STRATA_INVALID, "save_last_checkpoint: epochs is 0");
    strata_model_destroy(model);
}
