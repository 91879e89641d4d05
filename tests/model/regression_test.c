/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains the sample `regression` from PyTorch's initial weights on the same batches. The losses must be those of PyTorch. */
#include <math.h>
#include <stdio.h>

#include "model_case.h"
#include "tests/support/golden.h"

static strata_error err;

TEST_ON_DEVICES(regression, has_the_curve_of_pytorch) {
    strata_golden *golden = strata_golden_load("regression");
    strata_dataset *data = NULL;
    strata_model *model = NULL;
    strata_history history = {0};
    const strata_array *losses = strata_golden_get(golden, "losses");
    OK(strata_dataset_from_arrays(strata_golden_get(golden, "x"), strata_golden_get(golden, "y"), 0, &data, &err));
    OK(strata_model_read_json(STRATA_TEST_SOURCE_DIR "/samples/regression/model.json", &model, &err));
    strata_optimizer adam = strata_adam_optimizer(0.003);
    adam.epsilon = 1e-12; /* PyTorch adds it at another place of the formula */
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = adam}, &err));
    for (int i = 0; i < 6; i++) {
        char name[32];
        snprintf(name, sizeof name, "parameter_%d", i);
        OK(strata_model_set_parameter(model, i, strata_golden_get(golden, name), &err));
    }
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 12, .batch = 32, .no_shuffle = true}, &history, &err));
    cr_assert_eq(history.n_losses, losses->shape.dims[0]);
    for (int step = 0; step < history.n_losses; step++) {
        const double wanted = (double)((const float *)losses->data)[step], got = (double)history.losses[step];
        cr_assert_float_eq(got, wanted, 1e-4 * wanted, "step %d: %.8g, PyTorch has %.8g", step, got, wanted);
    }
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_golden_destroy(golden);
}
