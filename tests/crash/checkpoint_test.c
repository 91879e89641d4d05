/* SPDX-License-Identifier: Apache-2.0
 *
 * Injects power cuts, full disks and kills while a checkpoint is written. Afterwards the folder must contain either the
 * former checkpoint or the new one, complete. shim.h simulates the faults. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "strata/strata.h"
#include "tests/crash/shim.h"
#include "tests/support/folder.h"

TestSuite(crash, .init = test_folder_make, .fini = test_folder_remove, .timeout = 300);

#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

enum { N = 40, BATCH = 4, STEPS = 10, EPOCHS = 3, OLD = 5, NEW = 10 };

static char folder[600];
static int n_warnings;

static void warn(const char *text, void *user) {
    (void)text;
    (void)user;
    n_warnings++;
}

/* ---- the training ---- */

static strata_model *make(strata_device *device) {
    strata_error err = {0};
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(6), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 5, .activation = "tanh"});
    strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.25});
    strata_model_add_dense(model, (strata_dense_options){.units = 3});
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_adam_optimizer(0.01), .seed = 4},
                            &err));
    return model;
}

static strata_dataset *make_data(void) {
    strata_error err = {0};
    strata_dataset *data = NULL;
    strata_array x, y;
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(N, 6), &x, &err));
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(N), &y, &err));
    for (int i = 0; i < N * 6; i++) ((float *)x.data)[i] = (float)((i * 37) % 19) / 19 - 0.5f;
    for (int i = 0; i < N; i++) ((int32_t *)y.data)[i] = i % 3;
    OK(strata_dataset_take_arrays(&x, &y, 1, &data, &err));
    return data;
}

typedef struct fixture {
    strata_device *device;
    strata_dataset *data;
    strata_checkpoint_options checkpoint;
    strata_fit_options opts;
    char old[65], new[65], whole[65];
} fixture;

static fixture begin(void) {
    strata_error err = {0};
    fixture s = {.data = make_data(), .checkpoint = {.folder = folder, .every_steps = OLD, .keep = 1, .on_warning = warn}};
    s.opts = (strata_fit_options){.epochs = EPOCHS, .batch = BATCH, .seed = 9};
    OK(strata_device_open("host", NULL, &s.device, &err));
    crash_reset();
    return s;
}

static void end(fixture *s) {
    strata_dataset_destroy(s->data);
    strata_device_close(s->device);
}

/* The hash of the parameters after so many steps of an undisturbed training. */
static void hash_after(fixture *s, int steps, char out[65]) {
    strata_error err = {0};
    strata_model *model = make(s->device);
    strata_fit *fit;
    const strata_progress *progress;
    OK(strata_fit_begin(model, s->data, &s->opts, &fit, &err));
    for (int i = 0; i < steps + (steps - 1) / STEPS; i++) OK(strata_fit_step(fit, &progress, &err));
    OK(strata_fit_end(fit, NULL, &err));
    OK(strata_model_sha256(model, out, &err));
    strata_model_destroy(model);
}

static void hash_expected_states(fixture *s) {
    hash_after(s, OLD, s->old);
    hash_after(s, NEW, s->new);
    hash_after(s, EPOCHS * STEPS, s->whole);
}

/* Trains from the beginning in a new folder. cut: the power is cut at this event of the saves that follow step OLD. 0: the
 * power is not cut. */
static void train_until(fixture *s, int64_t cut, int steps) {
    static int number;
    strata_error err = {0};
    strata_model *model = make(s->device);
    strata_fit *fit;
    const strata_progress *progress;
    snprintf(folder, sizeof folder, "%s/points-%d-%d", test_folder(), (int)getpid(), number++);
    s->opts.checkpoint = &s->checkpoint;
    OK(strata_fit_begin(model, s->data, &s->opts, &fit, &err));
    for (int i = 0; i < STEPS - 1; i++) OK(strata_fit_step(fit, &progress, &err));
    /* The thread that writes checkpoints has been given step 5 by now. Waits until the folder has its checkpoint. */
    char path[700];
    snprintf(path, sizeof path, "%s/step-%012d", folder, OLD);
    for (int i = 0; i < 1000000 && access(path, F_OK); i++) usleep(100);
    cr_assert_eq(access(path, F_OK), 0);
    usleep(200); /* lets the thread finish its search for older checkpoints */
    if (cut) crash_cut_at(cut);
    for (int i = STEPS - 1; i < steps; i++) OK(strata_fit_step(fit, &progress, &err));
    s->opts.checkpoint = NULL;
    OK(strata_fit_end(fit, NULL, &err));
    strata_model_destroy(model);
}

/* Loads the newest complete checkpoint of the folder. Returns 'o' when it is the old one, 'n' when it is the new one. */
static char load(fixture *s) {
    strata_error err = {0};
    char hash[65];
    int epochs = -1;
    strata_model *model = make(s->device);
    OK(strata_model_load_checkpoint(model, folder, &epochs, &err));
    OK(strata_model_sha256(model, hash, &err));
    const int64_t steps = strata_model_epoch_steps(model);
    strata_model_destroy(model);
    if (epochs == 0 && steps == OLD && !strcmp(hash, s->old)) return 'o';
    if (epochs == 1 && steps == 0 && !strcmp(hash, s->new)) return 'n';
    cr_assert(false, "a mix: %d epochs and %d steps, %s", epochs, (int)steps, hash);
    return 0;
}

static void remove_folder(void) {
    char command[700];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

/* ---- the tests ---- */

Test(crash, a_power_cut_at_any_moment_of_a_save_leaves_the_old_checkpoint_or_the_new_one) {
    fixture s = begin();
    hash_expected_states(&s);
    train_until(&s, INT64_MAX, STEPS + 1);
    const int64_t n = crash_events();
    crash_reset();
    cr_assert_eq(load(&s), 'n');
    remove_folder();
    cr_assert_geq(n, 500, "%d events", (int)n);
    int old = 0, new = 0;
    for (int64_t k = 1; k <= n + 1; k++) {
        train_until(&s, k, STEPS + 1);
        crash_reset();
        (load(&s) == 'o') ? old++ : new ++;
        remove_folder();
    }
    cr_assert(old > 400 && new > 3, "%d old, %d new", old, new);
    end(&s);
}

Test(crash, a_full_disk_keeps_the_old_checkpoint_and_training_goes_on) {
    fixture s = begin();
    hash_expected_states(&s);
    int failed = 0;
    for (int64_t bytes = 0; bytes < 16384; bytes += 512) {
        train_until(&s, 0, STEPS + 1);
        strata_error err = {0};
        strata_model *model = make(s.device);
        char hash[65];
        strata_fit_options opts = s.opts;
        opts.checkpoint = &s.checkpoint;
        OK(strata_model_load_checkpoint(model, folder, &opts.first_epoch, &err));
        opts.first_step = strata_model_epoch_steps(model);
        n_warnings = 0;
        crash_fill_disk(bytes);
        OK(strata_model_fit(model, s.data, &opts, NULL, &err));
        crash_reset();
        OK(strata_model_sha256(model, hash, &err));
        cr_assert_str_eq(hash, s.whole);
        strata_model_destroy(model);
        failed += n_warnings > 0;
        if (n_warnings == 4) cr_assert_eq(load(&s), 'n'); /* none of the four later checkpoints was written */
        model = make(s.device);
        int epochs;
        OK(strata_model_load_checkpoint(model, folder, &epochs, &err)); /* the checkpoint in the folder is complete */
        strata_model_destroy(model);
        remove_folder();
    }
    cr_assert_geq(failed, 10);
    end(&s);
}

static void flip_each(fixture *s, const char *name) {
    char path[1400];
    snprintf(path, sizeof path, "%s/step-%012d/%s", folder, NEW, name);
    FILE *file = fopen(path, "r+b");
    cr_assert_not_null(file, "%s", path);
    fseek(file, 0, SEEK_END);
    const long n = ftell(file);
    setbuf(file, NULL);
    for (long i = 0; i < n; i++) {
        fseek(file, i, SEEK_SET);
        const int byte = fgetc(file);
        fseek(file, i, SEEK_SET);
        fputc(byte ^ (1 << i % 8), file);
        fflush(file);
        cr_assert_eq(load(s), 'o', "byte %ld of %s", i, name);
        fseek(file, i, SEEK_SET);
        fputc(byte, file);
        fflush(file);
    }
    fclose(file);
    cr_assert_eq(load(s), 'n');
}

Test(crash, a_byte_that_changed_anywhere_in_the_new_checkpoint_means_the_old_one) {
    fixture s = begin();
    hash_expected_states(&s);
    s.checkpoint.keep = 2;
    train_until(&s, 0, STEPS + 1);
    flip_each(&s, "manifest.json");
    flip_each(&s, "part-0.safetensors");
    end(&s);
}

/* ---- kills: one child process is killed, another one trains the remaining steps ---- */

typedef struct killing {
    int64_t step; /* 0: the process is not killed at a step */
    bool at_epoch_end;
} killing;

static strata_status die(const strata_progress *p, void *user, strata_error *err) {
    const killing *k = user;
    (void)err;
    if (k->step && p->total_step >= k->step && p->epoch_end == k->at_epoch_end) kill(getpid(), SIGKILL);
    return STRATA_OK;
}

/* Continues from the folder's checkpoint. At the end of the training it writes the hash of the parameters to `out`. Exits. */
static void train_in_child(const killing *k, const char *call, const char *part, int count, const char *out) {
    strata_error err = {0};
    fixture s = begin();
    strata_model *model = make(s.device);
    char hash[65];
    s.checkpoint.every_steps = 4;
    s.opts.checkpoint = &s.checkpoint;
    s.opts.on_progress = die;
    s.opts.user = (void *)k;
    if (strata_model_load_checkpoint(model, folder, &s.opts.first_epoch, &err)) _exit(3);
    s.opts.first_step = strata_model_epoch_steps(model);
    if (call) crash_kill_at(call, part, count);
    if (strata_model_fit(model, s.data, &s.opts, NULL, &err)) _exit(4);
    if (strata_model_sha256(model, hash, &err)) _exit(5);
    FILE *file = fopen(out, "w");
    fputs(hash, file);
    fclose(file);
    _exit(0);
}

static int run_child(const killing *k, const char *call, const char *part, int count, const char *out) {
    int status;
    const pid_t child = fork();
    if (!child) train_in_child(k, call, part, count, out);
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Test(crash, a_kill_at_any_named_point_of_a_step_or_a_save_costs_no_bit) {
    static const struct {
        const char *point, *call, *part;
        int count;
        killing step;
    } points[] = {
        {"behind a step", NULL, NULL, 0, {7, false}},
        {"at the end of an epoch", NULL, NULL, 0, {10, true}},
        {"before the folder is made", "mkdir", ".writing-step-000000000008", 1, {0}},
        {"at the first bytes of a part", "write", "part-0.safetensors", 3, {0}},
        {"in the middle of a part", "write", "part-0.safetensors", 20, {0}},
        {"before a part is synced", "fsync", "part-0.safetensors", 2, {0}},
        {"before a part has its name", "rename", "part-0.safetensors", 2, {0}},
        {"at the manifest's bytes", "write", "manifest.json", 2, {0}},
        {"before the manifest is synced", "fsync", "manifest.json", 2, {0}},
        {"before the manifest has its name", "rename", "manifest.json", 2, {0}},
        {"before the checkpoint has its name", "rename", "/step-000000000008", 1, {0}},
        {"before the old one is renamed", "rename", ".removing-step-000000000004", 1, {0}},
        {"before a file of the old one is removed", "unlink", ".removing-step-000000000004", 1, {0}},
        {"before the old one's folder is removed", "rmdir", ".removing-step-000000000004", 1, {0}},
    };
    static const killing none;
    char out[700], hash[65] = "", whole[65] = "";
    snprintf(folder, sizeof folder, "%s/killed", test_folder());
    snprintf(out, sizeof out, "%s/hash", test_folder());
    cr_assert_eq(run_child(&none, NULL, NULL, 0, out), 0);
    FILE *file = fopen(out, "r");
    cr_assert_eq(fscanf(file, "%64s", whole), 1);
    fclose(file);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        snprintf(folder, sizeof folder, "%s/killed-%zu", test_folder(), i);
        unlink(out);
        const int code = run_child(&points[i].step, points[i].call, points[i].part, points[i].count, out);
        cr_assert_eq(code, 128 + SIGKILL, "%s: exit code %d", points[i].point, code);
        cr_assert_eq(run_child(&none, NULL, NULL, 0, out), 0, "%s", points[i].point);
        file = fopen(out, "r");
        cr_assert_eq(fscanf(file, "%64s", hash), 1);
        fclose(file);
        cr_assert_str_eq(hash, whole, "%s", points[i].point);
    }
}
