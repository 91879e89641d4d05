/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: training on your own arrays, with validation on a part of them, and a learning rate that a schedule lowers.
 *
 *     ./own_data [host]      on the best device, or the one that is named */
#include <stdio.h>
#include <strata/strata.h>

enum { N = 600 };
static float x[N][2];
static int32_t inside[N]; /* the label: 1 if the point x is in the unit circle */

/* If the call fails, prints the error and ends main. */
#define TRY(call) \
    if (call) return fprintf(stderr, "own_data: %s\n", err.message), 1

int main(int argc, char **argv) {
    strata_error err = {0};
    strata_device *device;
    strata_dataset *all, *train, *held_out;
    strata_model *model;
    strata_history history = {0};
    for (int i = 0; i < N; i++) {
        x[i][0] = (float)(i * 37 % 101) / 33 - 1.5f, x[i][1] = (float)(i * 53 % 97) / 32 - 1.5f;
        inside[i] = x[i][0] * x[i][0] + x[i][1] * x[i][1] < 1;
    }
    const strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, 2), x);
    const strata_array labels = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(N), inside);
    TRY(strata_dataset_from_arrays(&features, &labels, 0, &all, &err));
    TRY(strata_dataset_split(all, 0.2, NULL, &train, &held_out, &err));
    TRY(strata_device_open(argc > 1 ? argv[1] : NULL, NULL, &device, &err));
    TRY(strata_model_create(STRATA_SHAPE(2), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 32, .activation = "relu"});
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    strata_compile_options opts = {.optimizer = strata_adam_optimizer(0.02), .seed = 1};
    opts.optimizer.schedule = (strata_schedule){.name = "cosine", .steps = 30 * 15}; /* epochs * steps per epoch */
    TRY(strata_model_compile(model, device, &opts, &err));
    TRY(strata_model_fit(model, train, &(strata_fit_options){.epochs = 30, .validation = held_out}, &history, &err));
    for (int e = 9; e < 30; e += 10)
        printf("epoch %d: loss %.4f, accuracy of points held out %.3f\n", e + 1, history.epochs[e].loss,
               history.validation[e].accuracy);
    return 0; /* the objects are not freed, since the process ends */
}
