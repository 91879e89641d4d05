/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of checkpoints that a fit writes during training. Crashes and full disks are tested in tests/crash. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/model/checkpoint.h"
#include "core/model/model.h"
#include "model_case.h"
#include "tests/support/folder.h"

TestSuite(checkpoint_folder, .init = test_folder_make, .fini = test_folder_remove);

enum { N = 40, BATCH = 4, STEPS = 10, EPOCHS = 3 };

static char folder[512], warning[1024];
static int n_warnings;

static void warn(const char *text, void *user) {
    (void)user;
    n_warnings++;
    snprintf(warning, sizeof warning, "%s", text);
}

static const char *in_folder(const char *name) {
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof *paths, "%s/%s", folder, name);
    return path;
}

static bool is_there(const char *name) {
    return !access(in_folder(name), F_OK);
}

static void new_folder(void) {
    static int number;
    char name[60];
    snprintf(name, sizeof name, "checkpoints-%d-%d", (int)getpid(), number++);
    snprintf(folder, sizeof folder, "%s", test_path(name));
    n_warnings = 0;
}

static strata_model *make(strata_device *device, strata_optimizer optimizer) {
    strata_error err = {0};
    strata_model *model = case_model_with_states();
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = optimizer, .seed = 4}, &err));
    return model;
}

/* Continues from the newest checkpoint of the folder. When the folder has none, it starts from the beginning. */
static strata_status train(strata_model *model, const strata_fit_options *given, strata_history *history, strata_error *err) {
    strata_dataset *data = case_dataset(N);
    strata_fit_options opts = *given;
    strata_status status = strata_model_load_checkpoint(model, folder, &opts.first_epoch, err);
    opts.first_step = strata_model_epoch_steps(model);
    if (!status) status = strata_model_fit(model, data, &opts, history, err);
    strata_dataset_destroy(data);
    return status;
}

static strata_fit_options options(const strata_checkpoint_options *checkpoint) {
    return (strata_fit_options){.epochs = EPOCHS, .batch = BATCH, .seed = 9, .checkpoint = checkpoint};
}

static const char *whole_sha(strata_device *device, strata_optimizer optimizer) {
    strata_error err = {0};
    strata_dataset *data = case_dataset(N);
    const strata_fit_options opts = options(NULL);
    strata_model *model = make(device, optimizer);
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    const char *sha = case_sha(model);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    return sha;
}

static strata_status stop_at(const strata_progress *p, void *user, strata_error *err) {
    (void)err;
    if (p->total_step >= *(const int64_t *)user) *p->stop_now = true;
    return STRATA_OK;
}

/* Stops a training again and again, and continues each time with a new model. */
static void goes_on(strata_device *device, strata_optimizer optimizer, int64_t every) {
    strata_error err = {0};
    const char *whole = whole_sha(device, optimizer);
    new_folder();
    const strata_checkpoint_options checkpoint = {.folder = folder, .every_steps = every, .on_warning = warn};
    strata_fit_options opts = options(&checkpoint);
    int64_t stop = 4;
    opts.on_progress = stop_at;
    opts.user = &stop;
    opts.wait_each_step = true;
    for (int lives = 1;; lives++) {
        strata_history history = {0};
        strata_model *model = make(device, optimizer);
        OK(train(model, &opts, &history, &err));
        const bool over = !history.stopped;
        strata_history_finish(&history);
        if (over) cr_assert_str_eq(case_sha(model), whole, "after %d lives", lives);
        strata_model_destroy(model);
        if (over) break;
        cr_assert_lt(lives, 20);
    }
    cr_assert_eq(n_warnings, 0, "%s", warning);
}

TEST_ON_DEVICES(checkpoint_folder, goes_on_from_any_step_with_the_bits_of_a_training_that_never_stopped) {
    goes_on(device, strata_adam_optimizer(0.01), 3);
}

TEST_ON_HOST(checkpoint_folder, goes_on_with_accumulated_gradients_and_with_other_optimizers) {
    strata_optimizer accumulates = strata_adam_optimizer(0.01);
    accumulates.gradient_accumulation_steps = 3;
    goes_on(device, accumulates, 1);
    goes_on(device, (strata_optimizer){.name = "sgd", .learning_rate = 0.01, .momentum = 0.9}, 0);
}

TEST_ON_HOST(checkpoint_folder, has_the_newest_of_those_that_are_made_every_n_steps) {
    strata_error err = {0};
    new_folder();
    const strata_checkpoint_options checkpoint = {.folder = folder, .every_steps = 7, .keep = 2};
    const strata_fit_options opts = options(&checkpoint);
    strata_model *model = make(device, strata_adam_optimizer(0.01)), *loaded = NULL;
    OK(train(model, &opts, NULL, &err));
    cr_assert(is_there("step-000000000028/manifest.json") && is_there("step-000000000030"));
    cr_assert(!is_there("step-000000000021") && !is_there("step-000000000007"));
    int epochs = 0;
    OK(strata_model_load_checkpoint(model, folder, &epochs, &err));
    cr_assert_eq(epochs, EPOCHS);
    /* The part that rank 0 writes is a model file. */
    OK(strata_model_load(in_folder("step-000000000030/part-0.safetensors"), &loaded, &err));
    OK(strata_model_compile(loaded, device, NULL, &err));
    cr_assert_str_eq(case_sha(loaded), case_sha(model));
    strata_model_destroy(loaded);
    strata_model_destroy(model);
}

TEST_ON_HOST(checkpoint_folder, has_one_an_epoch_where_nothing_else_is_said_and_some_by_time) {
    strata_error err = {0};
    new_folder();
    strata_checkpoint_options checkpoint = {.folder = folder, .keep = 100};
    const strata_fit_options opts = options(&checkpoint);
    strata_model *model = make(device, strata_adam_optimizer(0.01));
    OK(train(model, &opts, NULL, &err));
    cr_assert(is_there("step-000000000010") && is_there("step-000000000020") && is_there("step-000000000030"));
    strata_model_destroy(model);
    new_folder();
    checkpoint.every_seconds = 1e-9;
    model = make(device, strata_adam_optimizer(0.01));
    OK(train(model, &opts, NULL, &err));
    cr_assert(is_there("step-000000000001") && is_there("step-000000000029") && is_there("step-000000000030"));
    strata_model_destroy(model);
}

static void flip(const char *name, long at) {
    FILE *file = fopen(in_folder(name), "r+b");
    cr_assert_not_null(file);
    fseek(file, at, SEEK_SET);
    const int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
}

TEST_ON_HOST(checkpoint_folder, goes_on_from_the_one_before_a_damaged_one_which_is_moved_aside) {
    strata_error err = {0};
    const char *whole = whole_sha(device, strata_adam_optimizer(0.01));
    new_folder();
    const strata_checkpoint_options checkpoint = {.folder = folder, .every_steps = 7, .on_warning = warn};
    strata_fit_options opts = options(&checkpoint);
    int64_t stop = 20;
    opts.on_progress = stop_at;
    opts.user = &stop;
    opts.wait_each_step = true;
    strata_model *model = make(device, strata_adam_optimizer(0.01));
    OK(train(model, &opts, NULL, &err));
    strata_model_destroy(model);
    cr_assert(is_there("step-000000000020"));
    flip("step-000000000020/part-0.safetensors", 3000);
    opts.on_progress = NULL;
    model = make(device, strata_adam_optimizer(0.01));
    OK(train(model, &opts, NULL, &err));
    cr_assert_eq(n_warnings, 1);
    cr_assert(strstr(warning, "step-000000000020/part-0.safetensors: is damaged: its SHA-256 is ") &&
                  strstr(warning, "goes on from step 14"),
              "%s", warning);
    cr_assert(is_there("damaged-step-000000000020"));
    cr_assert_str_eq(case_sha(model), whole);
    strata_model_destroy(model);
}

TEST_ON_HOST(checkpoint_folder, says_what_is_wrong_with_it) {
    strata_error err = {0};
    new_folder();
    const strata_checkpoint_options checkpoint = {.folder = folder};
    const strata_fit_options opts = options(&checkpoint);
    strata_model *model = make(device, strata_adam_optimizer(0.01)), *other = make(device, strata_adam_optimizer(0.02));
    strata_dataset *data = case_dataset(N);
    int epochs;
    OK(train(model, &opts, NULL, &err));
    FAILS(strata_model_load_checkpoint(other, folder, &epochs, &err), STRATA_DATA,
          "there optimizer.learning_rate is 0.01, not 0.02");
    FAILS(strata_model_fit(other, data, &opts, NULL, &err), STRATA_INVALID,
          "has a checkpoint of step 30, and this training is at step 0");
    /* Another job uses the folder, and its fit has not ended. */
    strata_fit *fit;
    strata_fit_options more = opts;
    more.epochs = EPOCHS + 1;
    more.first_epoch = EPOCHS;
    OK(strata_fit_begin(model, data, &more, &fit, &err));
    FAILS(strata_model_fit(other, data, &opts, NULL, &err), STRATA_UNAVAILABLE, "another job (process ");
    OK(strata_fit_end(fit, NULL, &err));
    /* All checkpoints are damaged. */
    flip("step-000000000010/manifest.json", 20);
    flip("step-000000000020/manifest.json", 20);
    flip("step-000000000030/manifest.json", 20);
    FAILS(strata_model_load_checkpoint(model, folder, &epochs, &err), STRATA_DATA, "all 3 checkpoints are damaged; the newest");
    /* A folder that cannot be created, and invalid options. */
    const struct {
        strata_checkpoint_options opts;
        const char *says;
        strata_status status;
    } wrong[] = {{{.folder = "/dev/null/x"}, "/dev/null/x: cannot make the folder", STRATA_UNAVAILABLE},
                 {{.folder = ""}, "folder is not given", STRATA_INVALID},
                 {{.folder = folder, .every_steps = -1}, "none may be below 0", STRATA_INVALID},
                 {{.folder = folder, .keep = -1}, "none may be below 0", STRATA_INVALID}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const strata_fit_options bad = options(&wrong[i].opts);
        FAILS(strata_model_fit(model, data, &bad, NULL, &err), wrong[i].status, wrong[i].says);
    }
    strata_dataset_destroy(data);
    strata_model_destroy(model);
    strata_model_destroy(other);
}

/* A training that is resumed within an epoch may use another batch size. Each example is used once in the epoch. */
TEST_ON_HOST(checkpoint_folder, goes_on_within_an_epoch_with_another_batch) {
    strata_error err = {0};
    new_folder();
    const strata_checkpoint_options checkpoint = {.folder = folder};
    strata_fit_options opts = options(&checkpoint);
    int64_t stop = 3;
    strata_history history = {0};
    opts.on_progress = stop_at;
    opts.user = &stop;
    opts.wait_each_step = true;
    strata_model *model = make(device, strata_adam_optimizer(0.01));
    OK(train(model, &opts, NULL, &err));
    strata_model_destroy(model);
    model = make(device, strata_adam_optimizer(0.01));
    opts.on_progress = NULL;
    opts.batch = 10; /* 12 of 40 examples are done; batches of 10, 10 and 8 are left */
    OK(train(model, &opts, &history, &err));
    cr_assert_eq(history.epochs[0].examples, N);
    cr_assert_eq(history.n_steps, 3 + 4 + 4);
    strata_history_finish(&history);
    strata_model_destroy(model);
}

TEST_ON_HOST(checkpoint_folder, ends_the_fit_where_one_cannot_be_written_and_nobody_takes_warnings) {
    strata_error err = {0};
    new_folder();
    const strata_checkpoint_options checkpoint = {.folder = folder, .every_steps = 1};
    const strata_fit_options opts = options(&checkpoint);
    strata_model *model = make(device, strata_adam_optimizer(0.01));
    mkdir(folder, 0777);
    /* A file has the name of the temporary folder that the fit would create. */
    FILE *file = fopen(in_folder(".writing-step-000000000002"), "wb");
    fclose(file);
    FAILS(train(model, &opts, NULL, &err), STRATA_UNAVAILABLE, "Not a directory");
    strata_model_destroy(model);
}

/* ---- tasks that do not reach the folder ---- */

static int n_settled, n_fetched;

static strata_status settle(strata_model *model, bool values, strata_error *err) {
    (void)model, (void)err;
    n_settled++;
    n_fetched += values;
    return STRATA_OK;
}

static strata_status write_elsewhere(strata_model *model, const char *where, struct strata_manifest *manifest,
                                     bool *out_written, strata_error *err) {
    (void)model, (void)manifest, (void)out_written;
    return strata_fail(err, STRATA_UNAVAILABLE, "ps:0: %s/ps-0.safetensors: cannot be made: no such folder", where);
}

/* As a chief whose servers have local disks: all values are fetched for each checkpoint, after one warning. */
TEST_ON_HOST(checkpoint_folder, has_all_values_if_other_tasks_cannot_write_there) {
    static const strata_trainer trainer = {.settle = settle, .write_parts = write_elsewhere};
    strata_error err = {0};
    strata_checkpoint_folder *saves = NULL;
    int epochs = 0;
    new_folder();
    const strata_checkpoint_options checkpoint = {.folder = folder, .on_warning = warn};
    strata_model *model = make(device, strata_adam_optimizer(0.01)), *other = make(device, strata_adam_optimizer(0.01));
    n_settled = n_fetched = 0;
    OK(strata_checkpoint_folder_open(model, &checkpoint, &saves, &err));
    model->strategy->trainer = &trainer;
    for (int i = 1; i <= 2; i++) {
        model->optimizer_steps = i;
        OK(strata_checkpoint_folder_save(saves, i, &err));
    }
    OK(strata_checkpoint_folder_close(saves, &err));
    model->strategy->trainer = NULL;
    cr_assert(n_warnings == 1 && strstr(warning, "cannot be made"), "%d warnings: %s", n_warnings, warning);
    cr_assert(n_settled == 3 && n_fetched == 2, "%d times, %d with values", n_settled, n_fetched);
    OK(strata_model_load_checkpoint(other, folder, &epochs, &err));
    cr_assert_eq(epochs, 2);
    cr_assert_str_eq(case_sha(other), case_sha(model));
    strata_model_destroy(model);
    strata_model_destroy(other);
}
