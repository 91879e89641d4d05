/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: the smallest training program, on numbers in memory. A model of one weight and one bias learns the output 1 for the
 * input 1.
 *     sample_linear */
#include <stdio.h>
#include <strata/strata.h>

enum { POINTS = 100 };

int main(void) {
    static float x[POINTS], y[POINTS];
    for (int i = 0; i < POINTS; i++) x[i] = y[i] = 1;
    strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(POINTS, 1), x);
    strata_array answers = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(POINTS), y);
    strata_device *device = NULL;
    strata_dataset *data = NULL;
    strata_model *model = NULL;
    strata_history history = {0};
    strata_error err = {0};
    strata_compile_options compile = {.optimizer = strata_sgd_optimizer(0.1, 0, false), .loss = "mse"};

    strata_status status = strata_device_open(NULL, NULL, &device, &err);
    if (!status) status = strata_dataset_from_arrays(&features, &answers, 0, &data, &err);
    if (!status) status = strata_model_create(STRATA_SHAPE(1), &model, &err);
    if (!status) {
        strata_model_add_dense(model, (strata_dense_options){.units = 1, .kernel_initializer = "zeros", .kernel_l2 = 1e-4});
        status = strata_model_compile(model, device, &compile, &err);
    }
    if (!status) status = strata_model_fit(model, data, &(strata_fit_options){.epochs = 2, .batch = 10}, &history, &err);

    if (status)
        fprintf(stderr, "%s\n", err.message);
    else
        for (int i = 0; i < history.n_epochs; i++) printf("epoch %d: loss %g\n", i + 1, history.epochs[i].loss);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_device_close(device);
    return status ? 1 : 0;
}
