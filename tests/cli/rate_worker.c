/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker of rates_test.sh. Its callback sets a learning rate after each step, which differs between workers. It prints
 * the rates of all steps and the hash of the parameters. With "alone" it sets rank 0's rates without other workers. */
#include <stdio.h>
#include <string.h>

#include "strata/strata.h"

#define TRY(call) \
    if (call) return fprintf(stderr, "rate_worker: %s\n", err.message), 1

static int rank;

static strata_status set_next(const strata_progress *progress, void *user, strata_error *err) {
    (void)user;
    printf("%g ", progress->learning_rate);
    return strata_model_set_learning_rate(progress->model, 0.01 * (double)(progress->total_step + 1) + rank, err);
}

int main(int argc, char **argv) {
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    strata_dataset *data = NULL;
    strata_model *model = NULL;
    char sha[65];
    const strata_strategy_options devices = {.devices = (const char *const[]){"host"}, .n_devices = 1};
    const bool alone = argc > 1 && !strcmp(argv[1], "alone");
    TRY(strata_strategy_create(alone ? "mirrored" : "multi_worker_mirrored", &devices, &strategy, &err));
    rank = strata_strategy_is_chief(strategy) ? 0 : 1;
    TRY(strata_dataset_random(STRATA_SHAPE(3), STRATA_SHAPE(1), 40, 1, &data, &err));
    TRY(strata_model_create(STRATA_SHAPE(3), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    TRY(strata_model_compile(
        model, NULL,
        &(strata_compile_options){.optimizer = strata_sgd_optimizer(0.01, 0, false), .loss = "mse", .strategy = strategy},
        &err));
    const strata_fit_options fit = {.epochs = 2, .batch = 8, .wait_each_step = true, .on_progress = set_next};
    TRY(strata_model_fit(model, data, &fit, NULL, &err));
    TRY(strata_model_sha256(model, sha, &err));
    printf("\nlearned %s\n", sha);
    strata_strategy_destroy(strategy);
    strata_dataset_destroy(data);
    return 0;
}
