/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: asynchronous model.fit with parameter servers. The servers store the model's parameters, divided into shards of at
 * least 256 KiB. Each worker trains at its own speed. The chief assigns batches to the workers and prints. All tasks run this
 * program:
 *
 *     strata launch --workers 2 --ps 2 -- parameter_server_fit                   on this machine
 *
 * The same by hand, each task in a terminal:
 *
 *     export STRATA_CLUSTER="chief=127.0.0.1:2220;worker=127.0.0.1:2221,127.0.0.1:2222;ps=127.0.0.1:2223,127.0.0.1:2224"
 *     STRATA_TASK=ps:0 parameter_server_fit
 *     STRATA_TASK=ps:1 parameter_server_fit
 *     STRATA_TASK=worker:0 parameter_server_fit
 *     STRATA_TASK=worker:1 parameter_server_fit
 *     STRATA_TASK=chief parameter_server_fit
 *
 * "parameter_server_fit 4" lets no worker be more than 4 steps ahead of the slowest, "parameter_server_fit 0" trains
 * synchronously, and "parameter_server_fit none host" is asynchronous on the host instead of the best device. */
#include <stdio.h>
#include <stdlib.h>
#include <strata/strata.h>
#include <string.h>

enum { EPOCHS = 5, STEPS_PER_EPOCH = 60 };

/* If the call fails, prints the error and ends main. */
#define TRY(call) \
    if (call) return fprintf(stderr, "parameter_server_fit: %s\n", err.message), 1

int main(int argc, char **argv) {
    const int64_t staleness = argc > 1 && strcmp(argv[1], "none") != 0 ? atoll(argv[1]) : -1;
    const strata_parameter_server_options servers = {.pace = staleness < 0 ? STRATA_PACE_ASYNCHRONOUS
                                                             : staleness   ? STRATA_PACE_BOUNDED
                                                                           : STRATA_PACE_SYNCHRONOUS,
                                                     .staleness = staleness > 0 ? staleness : 0,
                                                     .partitioner = "min_size:256K"};
    const strata_strategy_options options = {
        .devices = (const char *const *)argv + 2, .n_devices = argc > 2, .parameter_server = &servers};
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_dataset *dataset = NULL;
    strata_history history = {0};
    strata_error err = {0};
    TRY(strata_strategy_create("parameter_server", &options, &strategy, &err));
    TRY(strata_model_create(STRATA_SHAPE(10), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 64, .activation = "relu"});
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    TRY(strata_model_compile(
        model, NULL, &(strata_compile_options){.strategy = strategy, .optimizer = {.name = "adam"}, .loss = "mse"}, &err));
    TRY(strata_dataset_random(STRATA_SHAPE(10), STRATA_SHAPE(1), 2000, 1, &dataset, &err));
    TRY(strata_model_fit(model, dataset, &(strata_fit_options){.epochs = EPOCHS, .steps_per_epoch = STEPS_PER_EPOCH}, &history,
                         &err));
    if (strata_strategy_is_chief(strategy))
        for (int i = 0; i < history.n_epochs; i++) printf("Epoch %d, Loss: %.4f\n", i + 1, history.epochs[i].loss);
    strata_history_finish(&history);
    strata_strategy_destroy(strategy); /* also destroys everything that was created with it */
    strata_dataset_destroy(dataset);
    return 0;
}
