/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the strategy tpu for data races, under ThreadSanitizer, on a simulated system of cores, each of which has a thread
 * (tests/support/cores.h). The cores train with several steps in one call, are closed while they work, and one fails or hangs
 * while the others wait for it. */
#include <stdio.h>
#include <string.h>

#include "strata/strata.h"
#include "strategies/kinds.h"
#include "tests/support/cores.h"

enum { CORES = 4, EXAMPLES = 61, FEATURES = 6, CLASSES = 3 };

static float features[EXAMPLES * FEATURES];
static int32_t labels[EXAMPLES];

static strata_status open_cores(test_cores *system, strata_strategy **out_strategy, strata_error *err) {
    strata_device *devices[CORES];
    for (int i = 0; i < CORES; i++) STRATA_TRY(test_cores_open(system, i, &devices[i], err));
    return strata_strategy_of_devices(&strata_strategy_tpu, devices, CORES, NULL, out_strategy, err);
}

static strata_status train(strata_strategy *strategy, int64_t together, char sha256[65], strata_error *err) {
    const strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, FEATURES), features),
                       y = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(EXAMPLES), labels);
    strata_model *model = NULL;
    strata_dataset *dataset = NULL;
    STRATA_TRY(strata_model_create(STRATA_SHAPE(FEATURES), &model, err));
    strata_model_add_dense(model, (strata_dense_options){.units = 8, .activation = "relu"});
    strata_model_add_batch_norm(model, (strata_batch_norm_options){.synchronized = true});
    strata_model_add_dense(model, (strata_dense_options){.units = CLASSES});
    const strata_compile_options opts = {.seed = 5, .strategy = strategy};
    strata_status status = strata_model_compile(model, NULL, &opts, err);
    if (!status) status = strata_dataset_from_arrays(&x, &y, 0, &dataset, err);
    const strata_fit_options fit = {.epochs = 3, .batch = 8, .steps_per_execution = together};
    strata_metrics metrics;
    if (!status) status = strata_model_fit(model, dataset, &fit, NULL, err);
    if (!status) status = strata_model_evaluate(model, dataset, 16, &metrics, err);
    if (!status) status = strata_model_sha256(model, sha256, err);
    strata_dataset_destroy(dataset);
    strata_model_destroy(model);
    return status;
}

/* Trains on a new system of cores, and writes the hash of the parameters. */
static strata_status train_on(test_cores_options opts, int64_t together, char sha256[65], strata_error *err) {
    strata_strategy *strategy = NULL;
    opts.n = CORES;
    test_cores *system = test_cores_create(&opts);
    strata_status status = open_cores(system, &strategy, err);
    if (!status) status = train(strategy, together, sha256, err);
    strata_strategy_destroy(strategy);
    test_cores_destroy(system);
    return status;
}

int main(void) {
    char first[65], sha256[65];
    strata_error err = {0};
    for (int i = 0; i < EXAMPLES * FEATURES; i++) features[i] = (float)((i * 37) % 101) / 50 - 1;
    for (int i = 0; i < EXAMPLES; i++) labels[i] = i % CLASSES;
    const int64_t together[] = {1, 2, 7};
    for (int i = 0; i < 3; i++) {
        const strata_status status = train_on((test_cores_options){0}, together[i], i ? sha256 : first, &err);
        if (status || (i && strcmp(first, sha256) != 0)) {
            printf("%d steps a call: %s\n", (int)together[i], status ? err.message : "other bits");
            return 1;
        }
    }
    for (int hangs = 0; hangs < 2; hangs++)
        for (int at = 1; at < 12; at += 5) {
            const test_cores_options opts = {
                .broken_core = 1, .breaks_at = at, .hangs = hangs, .stall_seconds = hangs ? 0.5 : 60};
            const strata_status status = train_on(opts, at > 1 ? 4 : 1, sha256, &err);
            if (status == (hangs ? STRATA_TIMEOUT : STRATA_DEVICE_LOST) && strstr(err.message, "core:1")) continue;
            printf("core 1 %s in run %d: %s\n", hangs ? "hangs" : "fails", at, status ? err.message : "nobody noticed");
            return 1;
        }
    printf("3 ways to train, 6 ways to fail\n");
    return 0;
}
