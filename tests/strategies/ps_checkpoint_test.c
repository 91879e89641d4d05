/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of a fit under parameter_server. Each server writes its part, and training can be resumed with other servers
 * or on one device. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/strategies/ps_job.h"

static char folder[64];
/* A callback fails at this place, which simulates that the job is killed: in this epoch, at this step or the first later
 * one. Step 0: at the end of the epoch. */
static int end_epoch;
static int64_t end_step;

static strata_status fail_there(const strata_progress *p, strata_error *err) {
    const bool there = p->epoch == end_epoch && (end_step ? !p->epoch_end && p->step >= end_step : p->epoch_end);
    return there ? strata_fail(err, STRATA_INTERRUPTED, "the job is killed") : STRATA_OK;
}

static void make_folder(void) {
    ps_set_up();
    snprintf(folder, sizeof folder, "/tmp/strata-ps-fit-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void remove_folder(void) {
    char command[128];
    ps_hooks.callback = NULL;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(ps_checkpoint, .init = make_folder, .fini = remove_folder, .timeout = 300);

/* Returns how many files of the newest checkpoint match the pattern. -1: there is no checkpoint. */
static int count_files(const char *pattern) {
    char command[256];
    int n = -1;
    snprintf(command, sizeof command, "ls -d %s/step-* | tail -n 1 | xargs -I X sh -c 'ls X/%s 2>/dev/null | wc -l'", folder,
             pattern);
    FILE *out = popen(command, "r");
    if (out && fscanf(out, "%d", &n) != 1) n = -1;
    if (out) pclose(out);
    return n;
}

static const strata_optimizer adam = {.name = "adam", .learning_rate = 0.01};

/* Trains once under one strategy, and once half of the epochs each under two strategies. Both must give the same numbers.
 * step: the checkpoint is written after this step of the second epoch. 0: after the epoch. */
static void assert_goes_on(bool servers_first, bool servers_then, int n_servers, int64_t step) {
    const strata_checkpoint_options checkpoint = {.folder = folder, .every_steps = step ? 6 + step : 0};
    ps_job whole = {.make_model = ps_make_functional,
                    .compile.optimizer = adam,
                    .fit = {.epochs = 4, .batch = 16},
                    .servers = {.pace = STRATA_PACE_SYNCHRONOUS, .partitioner = "fixed:3"},
                    .n_servers = 3};
    ps_job half = whole;
    static ps_result unbroken;
    ps_hooks.callback = NULL;
    unbroken = *ps_run_alone(&whole);
    end_epoch = step ? 1 : 2;
    end_step = step + 1;
    ps_hooks.callback = fail_there;
    half.fit.checkpoint = &checkpoint;
    const ps_result *r = servers_first ? ps_run(&half) : ps_run_alone(&half);
    cr_assert_eq(r->status, STRATA_INTERRUPTED, "%s", r->message);
    cr_assert_eq(count_files("manifest.json"), 1);
    cr_assert_eq(count_files("ps-*"), servers_first ? 3 : 0, "each server writes its part");
    ps_hooks.callback = NULL;
    half.load = folder;
    half.fit.checkpoint = NULL;
    half.servers.partitioner = "fixed:2";
    half.n_servers = n_servers;
    half.n_workers = 3;
    r = servers_then ? ps_run(&half) : ps_run_alone(&half);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_geq(r->first_step, step);
    cr_assert_eq(r->n_steps, (step ? 3 : 2) * 6 - r->first_step);
    cr_assert_eq(r->train[0].examples, PS_EXAMPLES, "the epoch's metrics are those of all its steps");
    for (int i = 0; i < r->n_values; i++) ps_assert_near(r->values[i], unbroken.values[i], "value", i);
    ps_assert_near(r->train[r->n_epochs - 1].loss, unbroken.train[3].loss, "the last epoch's loss", 3);
}

Test(ps_checkpoint, what_servers_wrote_goes_on_with_other_servers) {
    assert_goes_on(true, true, 2, 0);
}

Test(ps_checkpoint, what_servers_wrote_goes_on_on_one_device) {
    assert_goes_on(true, false, 0, 0);
}

Test(ps_checkpoint, what_one_device_wrote_goes_on_with_servers) {
    assert_goes_on(false, true, 2, 0);
}

Test(ps_checkpoint, one_of_a_step_within_an_epoch_goes_on_there) {
    assert_goes_on(true, true, 1, 3);
}

Test(ps_checkpoint, one_of_a_step_goes_on_on_one_device) {
    assert_goes_on(true, false, 0, 4);
}

/* Steps of another size would leave examples of the epoch out, or repeat some. The chief finds this out alone. */
Test(ps_checkpoint, an_epoch_goes_on_with_the_batch_that_it_was_begun_with) {
    static const char *const host[] = {"host"};
    static const strata_parameter_server_options servers = {.cluster = "chief=127.0.0.1:1;worker=127.0.0.1:2;ps=127.0.0.1:3",
                                                            .task = "chief"};
    const strata_checkpoint_options checkpoint = {.folder = folder, .every_steps = 3};
    const strata_strategy_options opts = {.devices = host, .n_devices = 1, .parameter_server = &servers};
    ps_job j = {.make_model = ps_make_functional,
                .compile.optimizer = adam,
                .fit = {.epochs = 2, .batch = 16, .checkpoint = &checkpoint}};
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_dataset *data = NULL;
    strata_error err = {0};
    int epochs = 0;
    end_epoch = 0;
    end_step = 4;
    ps_hooks.callback = fail_there;
    cr_assert_eq(ps_run_alone(&j)->status, STRATA_INTERRUPTED);
    cr_assert_eq(strata_strategy_create("parameter_server", &opts, &strategy, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(ps_make_functional(&model, &err), STRATA_OK, "%s", err.message);
    const strata_compile_options compile = {.strategy = strategy, .optimizer = adam, .seed = 3};
    cr_assert_eq(strata_model_compile(model, NULL, &compile, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(ps_make_data(PS_EXAMPLES, 0, true, &data, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_load_checkpoint(model, folder, &epochs, &err), STRATA_OK, "%s", err.message);
    const strata_fit_options fit = {.epochs = 2, .batch = 8, .first_step = strata_model_epoch_steps(model)};
    cr_assert_eq(strata_model_fit(model, data, &fit, NULL, &err), STRATA_INVALID, "%s", err.message);
    cr_assert(strstr(err.message, "was begun with a batch of 16, and would go on with 8"), "%s", err.message);
    strata_dataset_destroy(data);
    strata_strategy_destroy(strategy);
}

/* When workers train at their own pace, a checkpoint must also contain exactly the first steps of the epoch. The training
 * that writes it continues. */
Test(ps_checkpoint, at_their_own_pace_a_checkpoint_is_a_cut_between_steps) {
    const strata_checkpoint_options checkpoint = {.folder = folder, .every_steps = PS_EXAMPLES / 4 + 5};
    ps_job j = {.compile.optimizer = adam, .fit = {.epochs = 3, .batch = 4, .checkpoint = &checkpoint}, .n_workers = 3};
    end_epoch = 1;
    end_step = 0;
    ps_hooks.callback = fail_there;
    const ps_result *r = ps_run(&j);
    ps_hooks.callback = NULL;
    cr_assert_eq(r->status, STRATA_INTERRUPTED, "%s", r->message);
    cr_assert(r->callbacks == 2 * PS_EXAMPLES / 4 && r->epoch_ends == 2, "training went on");
    cr_assert_eq(r->train[1].examples, PS_EXAMPLES);
    cr_assert_eq(count_files("ps-*"), 2);
    j.load = folder;
    j.fit.checkpoint = NULL;
    for (int alone = 0; alone < 2; alone++) {
        r = alone ? ps_run_alone(&j) : ps_run(&j);
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        cr_assert_geq(r->first_step, 5);
        cr_assert_eq(r->n_steps, 2 * PS_EXAMPLES / 4 - r->first_step);
        cr_assert_eq(r->train[0].examples, PS_EXAMPLES, "each example of the epoch was seen once");
    }
}

/* The first server is killed just before the checkpoint is written. The server with the copy of its shards writes its part. */
static strata_status kill_and_fail(const strata_progress *p, strata_error *err) {
    if (p->epoch == 1 && p->epoch_end) kill(ps_results[1 + 2].pid, SIGKILL);
    return fail_there(p, err);
}

Test(ps_checkpoint, with_replicas_a_lost_server_is_no_hole_in_it) {
    const strata_checkpoint_options checkpoint = {.folder = folder};
    ps_job whole = {.compile.optimizer = adam,
                    .fit = {.epochs = 4, .batch = 16},
                    .servers = {.pace = STRATA_PACE_SYNCHRONOUS, .replicas = 1}};
    ps_job half = whole;
    static ps_result unbroken;
    unbroken = *ps_run_alone(&whole);
    half.fit.checkpoint = &checkpoint;
    ps_hooks.callback = kill_and_fail;
    ps_hooks.kills_server = true;
    end_epoch = 2;
    end_step = 1;
    const ps_result *r = ps_run(&half);
    ps_hooks.callback = NULL;
    ps_hooks.kills_server = false;
    cr_assert_eq(r->status, STRATA_INTERRUPTED, "%s", r->message);
    cr_assert_eq(count_files("ps-*"), 2);
    half.load = folder;
    half.fit.checkpoint = NULL;
    r = ps_run_alone(&half);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_eq(r->n_epochs, 2);
    for (int i = 0; i < r->n_values; i++) ps_assert_near(r->values[i], unbroken.values[i], "value", i);
}

static strata_status save_file_and_stop(const strata_progress *p, strata_error *err) {
    if (p->epoch != 1 || p->epoch_end || p->step != 2) return STRATA_OK;
    *p->stop_now = true;
    return strata_model_save_checkpoint(p->model, 1, folder, err);
}

/* A model file may also be saved within an epoch. The chief's model then gets the values of the servers. */
Test(ps_checkpoint, a_file_of_a_step_goes_on_there) {
    ps_job j = {.compile.optimizer = adam, .fit = {.epochs = 3, .batch = 16}, .servers = ps_together};
    static ps_result unbroken;
    unbroken = *ps_run_alone(&j);
    strcat(folder, ".file");
    ps_hooks.callback = save_file_and_stop;
    const ps_result *r = ps_run(&j);
    ps_hooks.callback = NULL;
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    j.load = folder;
    r = ps_run_alone(&j);
    remove(folder);
    folder[strlen(folder) - strlen(".file")] = '\0';
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_geq(r->first_step, 2);
    for (int i = 0; i < r->n_values; i++) ps_assert_near(r->values[i], unbroken.values[i], "value", i);
}

Test(ps_checkpoint, a_damaged_one_is_passed_over_for_the_one_before) {
    const strata_checkpoint_options checkpoint = {.folder = folder, .keep = 2};
    ps_job j = {
        .compile.optimizer = adam, .fit = {.epochs = 3, .batch = 16, .checkpoint = &checkpoint}, .servers = ps_together};
    char command[256];
    const ps_result *r = ps_run(&j);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    snprintf(command, sizeof command,
             "test \"$(ls -A %s | grep -v lock | tr '\\n' ' ')\" = 'step-000000000012 step-000000000018 '", folder);
    cr_assert_eq(system(command), 0, "the newest two stay, and nothing else");
    j.load = folder;
    j.fit.epochs = 4;
    j.fit.checkpoint = NULL;
    for (int damaged = 0; damaged < 3; damaged++) {
        r = ps_run_alone(&j);
        cr_assert_eq(r->status, damaged < 2 ? STRATA_OK : STRATA_DATA, "%s", r->message);
        if (damaged < 2) cr_assert_eq(r->n_epochs, 1 + damaged);
        if (damaged == 2) cr_assert(strstr(r->message, "ps-1.safetensors"), "%s", r->message);
        snprintf(command, sizeof command,
                 "printf x | dd of=%s/step-0000000000%d/ps-1.safetensors bs=1 seek=300 conv=notrunc 2>/dev/null", folder,
                 damaged ? 12 : 18);
        cr_assert_eq(system(command), 0);
    }
}

static bool is_killed;

static strata_status save_file_then_kill(const strata_progress *p, strata_error *err) {
    if (p->epoch != 1 || p->epoch_end) return STRATA_OK;
    if (p->step == 2) return strata_model_save_checkpoint(p->model, 1, folder, err);
    if (p->step == 5 && !is_killed) is_killed = !kill(ps_results[1 + 2].pid, SIGKILL);
    return STRATA_OK;
}

/* The chief's model has the values of the step at which the file was saved. So steps are repeated from there, not from the
 * beginning of the epoch. */
Test(ps_checkpoint, after_a_servers_loss_steps_are_repeated_from_what_was_saved) {
    ps_job j = {.compile.optimizer = adam, .fit = {.epochs = 3, .batch = 16}, .servers = ps_together};
    static ps_result unbroken;
    unbroken = *ps_run_alone(&j);
    strcat(folder, ".file");
    ps_hooks.callback = save_file_then_kill;
    ps_hooks.kills_server = ps_hooks.restarts = true;
    const ps_result *r = ps_run(&j);
    ps_hooks.callback = NULL;
    ps_hooks.kills_server = ps_hooks.restarts = false;
    remove(folder);
    folder[strlen(folder) - strlen(".file")] = '\0';
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_eq(r->n_steps, 18);
    cr_assert_eq(r->train[1].examples, PS_EXAMPLES);
    for (int i = 0; i < r->n_values; i++) ps_assert_near(r->values[i], unbroken.values[i], "value", i);
    ps_assert_near(r->train[1].loss, unbroken.train[1].loss, "the epoch's loss", 1);
}

static strata_status save_nowhere(const strata_progress *p, strata_error *err) {
    return p->epoch_end ? strata_model_save_checkpoint(p->model, 1, "/dev/null/there", err) : STRATA_OK;
}

Test(ps_checkpoint, a_file_that_cannot_be_is_an_error_of_the_callback) {
    ps_job j = {.compile.optimizer = adam, .fit = {.epochs = 1, .batch = 16}};
    ps_hooks.callback = save_nowhere;
    const ps_result *r = ps_run(&j);
    cr_assert_eq(r->status, STRATA_UNAVAILABLE, "%d %s", r->status, r->message);
    cr_assert(strstr(r->message, "/dev/null/there"), "%s", r->message);
}
