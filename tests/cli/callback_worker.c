/* SPDX-License-Identifier: Apache-2.0
 *
 * A task of callbacks_test.sh. It trains with callbacks that have a state, continues from the newest checkpoint of the
 * folder, and prints the states at the end.
 *     callback_worker STRATEGY FOLDER KILL     KILL: worker 0 kills itself in this step, as it counts them; 0: it does not */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "strata/strata.h"

#define TRY(call) \
    if (call) return fprintf(stderr, "callback_worker: %s\n", err.message), 1

static int number;
static int64_t kill_at;

/* The state of the callbacks. Each worker counts differently. */
static struct {
    int64_t steps, epochs, weighted;
    double least;
} kept;

static strata_status count(strata_event event, const strata_progress *p, void *user, strata_error *err) {
    (void)user, (void)err;
    if (event == STRATA_EVENT_BATCH_END) {
        kept.steps++;
        kept.weighted += (number + 1) * kept.steps;
        if (kill_at && kept.steps == kill_at) kill(getpid(), SIGKILL);
    }
    if (event == STRATA_EVENT_EPOCH_END && (!kept.epochs++ || p->validation.loss < kept.least)) kept.least = p->validation.loss;
    return STRATA_OK;
}

static int train(strata_strategy *strategy, const char *folder) {
    strata_error err = {0};
    strata_dataset *data = NULL, *validation = NULL;
    strata_model *model = NULL;
    char sha[65];
    TRY(strata_dataset_random(STRATA_SHAPE(3), STRATA_SHAPE(1), 60, 1, &data, &err));
    TRY(strata_dataset_random(STRATA_SHAPE(3), STRATA_SHAPE(1), 16, 2, &validation, &err));
    TRY(strata_model_create(STRATA_SHAPE(3), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 4, .activation = "tanh"});
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    TRY(strata_model_compile(
        model, NULL, &(strata_compile_options){.optimizer = strata_adam_optimizer(0.01), .loss = "mse", .strategy = strategy},
        &err));
    const strata_plateau_options plateau = {.factor = 0.5, .patience = 2, .min_delta = 100};
    TRY(strata_model_add_callback(model, strata_reduce_on_plateau(plateau), &err));
    TRY(strata_model_add_callback(
        model, (strata_callback){.name = "count", .on_event = count, .state = &kept, .state_bytes = sizeof kept}, &err));
    const strata_checkpoint_options checkpoint = {.folder = folder, .every_steps = 4};
    strata_fit_options fit = {.epochs = 12,
                              .batch = 6,
                              .seed = 3,
                              .validation = validation,
                              .patience = 5,
                              .min_delta = 0.05,
                              .restore_best = true,
                              .checkpoint = &checkpoint};
    const bool resumes = !strcmp(strata_strategy_name(strategy), "multi_worker_mirrored") || strata_strategy_is_chief(strategy);
    if (resumes) TRY(strata_model_load_checkpoint(model, folder, &fit.first_epoch, &err));
    fit.first_step = strata_model_epoch_steps(model);
    if (fit.first_epoch || fit.first_step) printf("goes on in epoch %d after step %d\n", fit.first_epoch, (int)fit.first_step);
    strata_history history;
    TRY(strata_model_fit(model, data, &fit, &history, &err));
    TRY(strata_model_sha256(model, sha, &err));
    if (resumes)
        printf("at the end: steps %lld %lld epochs %lld least %.9g best %d rate %.9g learned %.16s\n", (long long)kept.steps,
               (long long)(kept.weighted / (number + 1)), (long long)kept.epochs, kept.least, history.best_epoch,
               strata_model_learning_rate(model), sha);
    if (resumes) printf("own of %d: %lld\n", number, (long long)kept.weighted);
    strata_strategy_destroy(strategy); /* also destroys the model */
    strata_dataset_destroy(data);
    strata_dataset_destroy(validation);
    return 0;
}

int main(int argc, char **argv) {
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    const strata_parameter_server_options servers = {.pace = STRATA_PACE_SYNCHRONOUS};
    if (argc != 4) return 2;
    const bool has_servers = !strcmp(argv[1], "parameter_server");
    const strata_strategy_options opts = {
        .devices = (const char *const[]){"host"}, .n_devices = 1, .parameter_server = has_servers ? &servers : NULL};
    TRY(strata_strategy_create(argv[1], &opts, &strategy, &err));
    const char *choice = strstr(strata_strategy_choice(strategy), "worker ");
    number = choice ? atoi(choice + 7) : 0;
    kill_at = strata_strategy_is_chief(strategy) ? atoll(argv[3]) : 0;
    return train(strategy, argv[2]);
}
