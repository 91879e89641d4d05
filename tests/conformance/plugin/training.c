/* SPDX-License-Identifier: Apache-2.0
 *
 * The last unit of `strata plugin-check`: trains a small model on the device (the host runs ops that the device lacks) and on
 * the host, and compares them. This finds errors that tests of single ops do not find: aliases of values, temporaries that
 * share memory, parameters that are updated in place, and alternating slots. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/fallback/fallback.h"
#include "strata/conformance.h"
#include "strata/strata.h"
#include "tests/conformance/plugin/witness.h"
#include "tests/support/check.h"

enum { FEATURES = 6, EXAMPLES = 44, BATCH = 8, EPOCHS = 2, STEPS = EPOCHS * ((EXAMPLES + BATCH - 1) / BATCH) };

static strata_status make_model(strata_device *device, strata_model **out_model, strata_error *err) {
    const strata_compile_options opts = {.optimizer = strata_sgd_optimizer(0.1, 0.9, false), .seed = 7};
    STRATA_TRY(strata_model_create(STRATA_SHAPE(FEATURES), out_model, err));
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 9, .activation = "relu"});
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 3});
    return strata_model_compile(*out_model, device, &opts, err);
}

/* The arrays that the dataset borrows. */
typedef struct examples {
    float x[EXAMPLES * FEATURES];
    int32_t y[EXAMPLES];
} examples;

static strata_status make_data(examples *e, strata_dataset **out_dataset, strata_error *err) {
    for (int i = 0; i < EXAMPLES; i++) {
        e->y[i] = i % 3;
        for (int f = 0; f < FEATURES; f++)
            e->x[i * FEATURES + f] = (float)((i * 37 + f * 11) % 19) / 19 + (f % 3 == e->y[i] ? 1 : 0);
    }
    const strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, FEATURES), e->x),
                       labels = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(EXAMPLES), e->y);
    return strata_dataset_from_arrays(&features, &labels, 0, out_dataset, err);
}

/* The loss of each step on the device that `id` names. */
static strata_status train(const char *id, double limit_s, float losses[STEPS], strata_error *err) {
    const strata_device_options device_opts = {.fallback_to_host = true, .stall_seconds = limit_s, .trust = true};
    const strata_fit_options opts = {.epochs = EPOCHS, .batch = BATCH, .seed = 3};
    examples data;
    strata_device *device = NULL;
    strata_model *model = NULL;
    strata_dataset *dataset = NULL;
    strata_history history = {0};
    STRATA_TRY(strata_device_open(id, &device_opts, &device, err));
    if (strcmp(id, "host") != 0) witness_watch(((fallback_device *)device)->sides[FALLBACK_DEVICE]);
    strata_status status = make_data(&data, &dataset, err);
    if (!status) status = make_model(device, &model, err);
    if (!status) status = strata_model_fit(model, dataset, &opts, &history, err);
    if (!status && history.n_losses != STEPS)
        status = strata_fail(err, STRATA_INTERNAL, "%d steps instead of %d", history.n_losses, STEPS);
    if (!status) memcpy(losses, history.losses, STEPS * sizeof *losses);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(dataset);
    strata_device_close(device);
    return status;
}

/* How much the losses of step t may differ. If the operands of the two products are rounded, the first losses may differ by 2.5
 * sqrt(2) times the rounding error, and each further step adds a seventh of this (samples/systolic/README.md explains why). */
static double bound(double rounding, int t, double loss) {
    return rounding > 0 ? 2.5 * sqrt(2) * rounding * (1 + t / 7.0) : 1e-4 * (1 + fabs(loss));
}

strata_test_result check_training(const char *id, double limit_s, double rounding) {
    float wanted[STEPS] = {0}, losses[STEPS] = {0};
    strata_error err = {0};
    if (train("host", limit_s, wanted, &err)) return strata_test_bad("on the host: %s", err.message);
    if (train(id, limit_s, losses, &err)) return strata_test_bad("%s", err.message);
    for (int t = 0; t < STEPS; t++)
        if (!(fabs((double)losses[t] - wanted[t]) <= bound(rounding, t, wanted[t])))
            return strata_test_bad(
                "the loss of step %d is %.6g instead of %.6g, although each op may be right: check aliases, temporaries, "
                "values that are written in place, and slots",
                t, (double)losses[t], (double)wanted[t]);
    return strata_test_ok();
}
