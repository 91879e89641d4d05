/* SPDX-License-Identifier: Apache-2.0
 *
 * Callbacks of a model: which events occur in which order, ready-made callbacks, and what happens when a callback fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model_case.h"
#include "tests/support/folder.h"

TestSuite(callbacks, .init = test_folder_make, .fini = test_folder_remove);

enum { N = 40, BATCH = 16, STEPS = 3 };

typedef struct seen {
    char text[512];
    int fail_at, n;
    strata_event fails;
} seen;

static strata_status see(strata_event event, const strata_progress *p, void *user, strata_error *err) {
    static const char letters[STRATA_EVENT_COUNT + 1] = "TtEeBbVvPp";
    seen *s = user;
    const size_t n = strlen(s->text);
    cr_assert_not_null(p->model);
    if (n + 1 < sizeof s->text) s->text[n] = letters[event];
    if (s->fail_at && event == s->fails && ++s->n == s->fail_at) return strata_fail(err, STRATA_DATA, "enough");
    return STRATA_OK;
}

static strata_dataset *data;
static strata_fit_options opts;

static strata_model *begin(strata_device *device) {
    data = case_dataset(N);
    opts = (strata_fit_options){.epochs = 2, .batch = BATCH, .seed = 9, .wait_each_step = true};
    return case_model(device, strata_adam_optimizer(0.01), 4);
}

static void end(strata_model *model) {
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_HOST(callbacks, learn_of_all_events_in_their_order) {
    strata_error err = {0};
    strata_model *model = begin(device);
    seen s = {0};
    strata_array predictions;
    opts.validation = data;
    OK(strata_model_add_callback(model, (strata_callback){.name = "see", .on_event = see, .user = &s}, &err));
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    cr_assert_str_eq(s.text, "TEBbBbBbVveEBbBbBbVvet");
    memset(&s, 0, sizeof s);
    OK(strata_model_predict(model, data, 0, &predictions, &err));
    cr_assert_str_eq(s.text, "Pp");
    strata_array_finish(&predictions);
    strata_model_clear_callbacks(model);
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    cr_assert_str_eq(s.text, "Pp");
    end(model);
}

TEST_ON_HOST(callbacks, change_no_bit) {
    strata_error err = {0};
    strata_model *with = begin(device), *without = case_model(device, strata_adam_optimizer(0.01), 4);
    seen s = {0};
    opts.wait_each_step = false;
    OK(strata_model_add_callback(with, (strata_callback){.on_event = see, .user = &s}, &err));
    OK(strata_model_fit(with, data, &opts, NULL, &err));
    OK(strata_model_fit(without, data, &opts, NULL, &err));
    cr_assert_str_eq(case_sha(with), case_sha(without));
    strata_model_destroy(without);
    end(with);
}

/* Fails at each kind of event. The fit must return the callback's message, the model must have the parameters after a whole
 * step, and training must be able to continue from the checkpoint. */
TEST_ON_HOST(callbacks, that_fail_stop_the_fit_and_nothing_is_lost) {
    static const struct {
        strata_event event;
        int count;
        const char *says;
    } cases[] = {{STRATA_EVENT_BATCH_END, 2, "the callback see failed after a step of epoch 1: enough"},
                 {STRATA_EVENT_BATCH_BEGIN, 5, "before a step of epoch 2: enough"},
                 {STRATA_EVENT_EPOCH_END, 1, "at the end of epoch 1: enough"},
                 {STRATA_EVENT_EPOCH_END, 2, "at the end of epoch 2: enough"},
                 {STRATA_EVENT_EPOCH_BEGIN, 2, "before epoch 2: enough"},
                 {STRATA_EVENT_TRAIN_END, 1, "when the training ended: enough"}};
    strata_error err = {0};
    strata_model *whole = begin(device);
    OK(strata_model_fit(whole, data, &opts, NULL, &err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[60];
        snprintf(name, sizeof name, "callbacks-%d-%zu", (int)getpid(), i);
        const strata_checkpoint_options checkpoint = {.folder = test_path(name)};
        strata_model *model = case_model(device, strata_adam_optimizer(0.01), 4);
        seen s = {.fails = cases[i].event, .fail_at = cases[i].count};
        strata_fit_options own = opts;
        own.checkpoint = &checkpoint;
        OK(strata_model_add_callback(model, (strata_callback){.name = "see", .on_event = see, .user = &s}, &err));
        FAILS(strata_model_fit(model, data, &own, NULL, &err), STRATA_DATA, cases[i].says);
        cr_assert(strchr(s.text, 't'), "the end of the training is told: %s", s.text);
        strata_model_destroy(model);
        model = case_model(device, strata_adam_optimizer(0.01), 4);
        OK(strata_model_load_checkpoint(model, checkpoint.folder, &own.first_epoch, &err));
        own.first_step = strata_model_epoch_steps(model);
        cr_assert(own.first_epoch || own.first_step);
        if (own.first_epoch < own.epochs) OK(strata_model_fit(model, data, &own, NULL, &err));
        cr_assert_str_eq(case_sha(model), case_sha(whole), "case %zu", i);
        strata_model_destroy(model);
    }
    end(whole);
}

static double halve(int epoch, double rate, void *user) {
    (*(int *)user)++;
    return epoch ? rate / 2 : rate;
}

TEST_ON_HOST(callbacks, set_the_rate_of_epochs_by_a_schedule) {
    strata_error err = {0};
    strata_model *model = begin(device);
    int calls = 0;
    opts.epochs = 4;
    opts.wait_each_step = false;
    OK(strata_model_add_callback(model, strata_rate_schedule(halve, &calls), &err));
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    cr_assert_eq(calls, 4);
    cr_assert_float_eq(strata_model_learning_rate(model), 0.01 / 8, 1e-9);
    end(model);
}

/* The loss never improves by min_delta, so the rate falls after 2 and after 4 epochs. A checkpoint stores how many epochs
 * the callback has already waited. */
TEST_ON_HOST(callbacks, reduce_the_rate_on_a_plateau_also_of_a_training_that_went_on) {
    strata_error err = {0};
    const strata_plateau_options plateau = {.factor = 0.5, .patience = 2, .min_delta = 100};
    for (int stopped = 0; stopped < 2; stopped++) {
        strata_model *model = begin(device);
        const char *path = test_path(stopped ? "a" : "b");
        opts.epochs = stopped ? 2 : 5;
        OK(strata_model_add_callback(model, strata_reduce_on_plateau(plateau), &err));
        OK(strata_model_fit(model, data, &opts, NULL, &err));
        if (stopped) { /* the callback has waited for one epoch */
            OK(strata_model_save_checkpoint(model, 2, path, &err));
            strata_model_destroy(model);
            model = case_model(device, strata_adam_optimizer(0.01), 4);
            OK(strata_model_add_callback(model, strata_reduce_on_plateau(plateau), &err));
            OK(strata_model_load_checkpoint(model, path, &opts.first_epoch, &err));
            opts.epochs = 5;
            OK(strata_model_fit(model, data, &opts, NULL, &err));
        }
        cr_assert_float_eq(strata_model_learning_rate(model), 0.01 / 4, 1e-9, "%d", stopped);
        end(model);
    }
}

/* A callback that is only state: the caller changes the state, and loading a checkpoint restores it. */
TEST_ON_HOST(callbacks, of_state_alone_are_kept_in_checkpoints) {
    strata_error err = {0};
    strata_model *model = begin(device);
    int epochs, states[] = {7, 9};
    const strata_callback alone = {.name = "alone", .state = states, .state_bytes = sizeof states};
    FAILS(strata_model_add_callback(model, (strata_callback){.name = "nothing"}, &err), STRATA_INVALID, "nothing has no");
    OK(strata_model_add_callback(model, alone, &err));
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    OK(strata_model_save_checkpoint(model, 2, test_path("c"), &err));
    states[0] = states[1] = 0;
    OK(strata_model_load_checkpoint(model, test_path("c"), &epochs, &err));
    cr_assert(states[0] == 7 && states[1] == 9);
    strata_model *other = case_model(device, strata_adam_optimizer(0.01), 4);
    OK(strata_model_add_callback(other, (strata_callback){.state = states, .state_bytes = sizeof *states}, &err));
    states[0] = 3;
    OK(strata_model_load_checkpoint(other, test_path("c"), &epochs, &err));
    cr_assert_eq(states[0], 3, "a state of another size stays");
    strata_model_destroy(other);
    end(model);
}

/* Patience ended a training, but the process was killed before the fit returned. A resumed fit has nothing left to train. */
TEST_ON_HOST(callbacks, a_fit_that_patience_had_ended_goes_no_further) {
    strata_error err = {0};
    const strata_checkpoint_options checkpoint = {.folder = test_path("over")};
    strata_model *model = begin(device), *again = case_model(device, strata_adam_optimizer(0.01), 4);
    strata_history history;
    seen s = {0};
    opts.epochs = 20;
    opts.validation = data;
    opts.patience = 2;
    opts.min_delta = 1000; /* no epoch is better than the first one */
    opts.restore_best = true;
    opts.checkpoint = &checkpoint;
    OK(strata_model_fit(model, data, &opts, &history, &err));
    cr_assert(history.n_epochs == 3 && history.best_epoch == 0);
    strata_history_finish(&history);
    OK(strata_model_add_callback(again, (strata_callback){.on_event = see, .user = &s}, &err));
    OK(strata_model_load_checkpoint(again, checkpoint.folder, &opts.first_epoch, &err));
    OK(strata_model_fit(again, data, &opts, &history, &err));
    cr_assert(history.n_epochs == 0 && history.best_epoch == 0 && !history.stopped);
    cr_assert_str_eq(s.text, "");
    cr_assert_str_eq(case_sha(again), case_sha(model));
    strata_history_finish(&history);
    strata_model_destroy(again);
    end(model);
}

TEST_ON_HOST(callbacks, save_the_best_and_each_epoch) {
    strata_error err = {0};
    strata_model *model = begin(device), *loaded = NULL;
    char each[512], best[512];
    snprintf(each, sizeof each, "%s", test_path("each-{epoch}.strata"));
    snprintf(best, sizeof best, "%s", test_path("best.strata"));
    opts.epochs = 5;
    OK(strata_model_add_callback(model, strata_model_saver((strata_saver_options){.path = each, .every = 2}), &err));
    OK(strata_model_add_callback(
        model, strata_model_saver((strata_saver_options){.path = best, .best = true, .monitor = "loss"}), &err));
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    cr_assert(!access(test_path("each-2.strata"), F_OK) && !access(test_path("each-4.strata"), F_OK));
    cr_assert(access(test_path("each-1.strata"), F_OK) && access(test_path("each-5.strata"), F_OK));
    OK(strata_model_load(best, &loaded, &err)); /* the loss falls in every epoch, so the last one is the best */
    OK(strata_model_compile(loaded, device, NULL, &err));
    cr_assert_str_eq(case_sha(loaded), case_sha(model));
    strata_model_destroy(loaded);
    end(model);
}

TEST_ON_HOST(callbacks, write_a_table_that_a_later_fit_adds_to) {
    strata_error err = {0};
    strata_model *model = begin(device);
    char path[512], line[200], first[200] = "";
    snprintf(path, sizeof path, "%s", test_path("log.csv"));
    opts.validation = data;
    OK(strata_model_add_callback(model, strata_csv_log(path), &err));
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    opts.first_epoch = 2;
    opts.epochs = 4;
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    FILE *file = fopen(path, "r");
    int lines = 0;
    while (fgets(line, sizeof line, file)) {
        if (!lines++) strcpy(first, line);
        if (lines > 1) cr_assert_eq(atoi(line), lines - 1);
    }
    fclose(file);
    cr_assert_eq(lines, 5);
    cr_assert_str_eq(first, "epoch,learning_rate,loss,accuracy,val_loss,val_accuracy\n");
    end(model);
}

TEST_ON_HOST(callbacks, say_what_is_wrong_with_them) {
    strata_error err = {0};
    strata_model *model = begin(device);
    FAILS(strata_model_add_callback(model, (strata_callback){0}, &err), STRATA_INVALID, "no function on_event");
    FAILS(strata_model_add_callback(model, strata_csv_log(NULL), &err), STRATA_INVALID, "csv_log has no function");
    FAILS(strata_model_add_callback(model, strata_reduce_on_plateau((strata_plateau_options){.factor = 2}), &err),
          STRATA_INVALID, "reduce_on_plateau has no function");
    OK(strata_model_add_callback(model, strata_reduce_on_plateau((strata_plateau_options){.monitor = "val_f1"}), &err));
    FAILS(strata_model_fit(model, data, &opts, NULL, &err), STRATA_INVALID, "\"val_f1\" is not measured: there are loss");
    strata_model_clear_callbacks(model);
    OK(strata_model_add_callback(model, strata_csv_log("/nowhere/x.csv"), &err));
    FAILS(strata_model_fit(model, data, &opts, NULL, &err), STRATA_UNAVAILABLE, "/nowhere/x.csv: cannot open");
    strata_model_clear_callbacks(model);
    seen s = {0};
    for (int i = 0; i < STRATA_MAX_CALLBACKS; i++)
        OK(strata_model_add_callback(model, (strata_callback){.on_event = see, .user = &s}, &err));
    FAILS(strata_model_add_callback(model, (strata_callback){.on_event = see, .user = &s}, &err), STRATA_INVALID,
          "at most 16 callbacks");
    end(model);
}

/* Evaluates at one kind of event, and stops the fit after `stop` steps (0: it goes on). */
typedef struct evaluator {
    strata_event at;
    int64_t stop;
    double loss; /* progress->metrics.loss after the last step */
} evaluator;

static strata_status evaluate_at(strata_event event, const strata_progress *p, void *user, strata_error *err) {
    evaluator *e = user;
    strata_metrics ignored;
    if (event == STRATA_EVENT_BATCH_END) e->loss = p->metrics.loss;
    if (event == STRATA_EVENT_BATCH_END && p->total_step == e->stop) *p->stop_now = true;
    return event == e->at ? strata_model_evaluate(p->model, data, 0, &ignored, err) : STRATA_OK;
}

/* Trains an epoch in one fit, or in two of which the second goes on within the epoch. Returns the loss of the epoch. */
static double loss_of_epoch(strata_device *device, evaluator e) {
    strata_error err = {0};
    strata_model *model = begin(device);
    strata_history history;
    opts.epochs = 1;
    opts.metrics_seconds = 1e-9;
    OK(strata_model_add_callback(model, (strata_callback){.name = "evaluate", .on_event = evaluate_at, .user = &e}, &err));
    for (int fits = e.stop ? 2 : 1; fits; fits--) {
        OK(strata_model_fit(model, data, &opts, &history, &err));
        opts.first_step = strata_model_epoch_steps(model);
        e.stop = 0;
        cr_assert_eq(opts.first_step != 0, fits == 2);
        if (fits == 1) cr_assert_float_eq(e.loss, history.epochs[0].loss, 1e-5, "%g, %g", e.loss, history.epochs[0].loss);
        const double loss = fits == 1 ? history.epochs[0].loss : 0;
        strata_history_finish(&history);
        if (fits == 1) {
            end(model);
            return loss;
        }
    }
    return 0;
}

TEST_ON_HOST(callbacks, may_evaluate_and_the_metrics_of_the_epoch_stay_its_own) {
    const double expected = loss_of_epoch(device, (evaluator){.at = STRATA_EVENT_COUNT});
    for (int stop = 0; stop < 2; stop++) {
        cr_assert_float_eq(loss_of_epoch(device, (evaluator){STRATA_EVENT_EPOCH_BEGIN, stop, 0}), expected, 1e-5, "%d", stop);
        cr_assert_float_eq(loss_of_epoch(device, (evaluator){STRATA_EVENT_BATCH_END, stop, 0}), expected, 1e-5, "%d", stop);
    }
}
