/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: learning a number from the columns of a table, and predicting it.
 *     sample_regression FILE.csv LABEL     the features are all other columns; without arguments, the program generates a
 * table */
#include <math.h>
#include <stdio.h>
#include <strata/strata.h>

enum { ROWS = 2000, WIDTH = 10, EPOCHS = 10 };

/* Generates a table of numbers in -1..1, and labels that are a function of them. */
static strata_status make_table(strata_dataset **out_data, strata_error *err) {
    static float x[ROWS][WIDTH], y[ROWS];
    uint32_t state = 1;
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < WIDTH; k++) {
            state = state * 1664525u + 1013904223u;
            x[i][k] = (float)(state >> 8) / (1 << 23) - 1;
        }
        y[i] = sinf(3 * x[i][0]) + 2 * x[i][1] * x[i][2] + x[i][3] * x[i][3];
    }
    strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, WIDTH), x);
    strata_array answers = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS), y);
    return strata_dataset_from_arrays(&features, &answers, 0, out_data, err);
}

int main(int argc, char **argv) {
    strata_device *device = NULL;
    strata_dataset *data = NULL;
    strata_model *model = NULL;
    strata_history history = {0};
    strata_array predictions = {0};
    strata_error err = {0};
    strata_compile_options compile = {.optimizer = strata_adam_optimizer(0.001), .loss = "mse", .seed = 1};
    strata_fit_options fit = {.epochs = EPOCHS, .batch = 64, .seed = 1};

    if (argc != 1 && argc != 3) {
        fprintf(stderr, "usage: %s [FILE.csv LABEL]\n", argv[0]);
        return 2;
    }
    strata_status status = strata_device_open(NULL, NULL, &device, &err);
    if (!status)
        status = argc == 3 ? strata_dataset_csv(argv[1], &(strata_csv_options){.label = argv[2]}, &data, &err)
                           : make_table(&data, &err);
    if (!status) status = strata_model_create(strata_dataset_element_shape(data), &model, &err);
    if (!status) {
        strata_model_add_dense(model, (strata_dense_options){.units = 64, .activation = "relu"});
        strata_model_add_dense(model, (strata_dense_options){.units = 64, .activation = "relu"});
        strata_model_add_dense(model, (strata_dense_options){.units = 1});
        status = strata_model_compile(model, device, &compile, &err);
    }
    if (!status) status = strata_model_fit(model, data, &fit, &history, &err);
    if (!status) status = strata_model_predict(model, data, 0, &predictions, &err);

    if (status)
        fprintf(stderr, "%s\n", err.message);
    else
        printf("mean squared error %g after epoch 1, %g after epoch %d; the first prediction is %g\n", history.epochs[0].loss,
               history.epochs[EPOCHS - 1].loss, EPOCHS, (double)((float *)predictions.data)[0]);
    strata_array_finish(&predictions);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_device_close(device);
    return status ? 1 : 0;
}
