/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: a complete training program. It trains a classifier of digits on the best device of the machine and saves the model.
 *     build/samples/mnist [FOLDER]      the folder with the MNIST files; without it, the library generates images of digits */
#include <stdio.h>
#include <strata/strata.h>

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : NULL;
    strata_device *device = NULL;
    strata_dataset *train = NULL, *test = NULL;
    strata_model *model = NULL;
    strata_metrics metrics = {0};
    strata_error err = {0};
    strata_compile_options compile = {.optimizer = strata_adam_optimizer(0.001), .seed = 1};
    strata_fit_options fit = {.epochs = 5, .batch = 64, .seed = 1};

    strata_status status = strata_device_open(NULL, NULL, &device, &err);
    if (!status) status = strata_dataset_mnist(folder, "train", 1, &train, &err);
    if (!status) status = strata_dataset_mnist(folder, "test", 1, &test, &err);
    if (!status) status = strata_model_create(STRATA_SHAPE(28, 28), &model, &err);
    if (!status) {
        strata_model_add_flatten(model, (strata_flatten_options){0});
        strata_model_add_dense(model, (strata_dense_options){.units = 128, .activation = "relu"});
        strata_model_add_dense(model, (strata_dense_options){.units = 10});
        status = strata_model_compile(model, device, &compile, &err);
    }
    if (!status) status = strata_model_fit(model, train, &fit, NULL, &err);
    if (!status) status = strata_model_evaluate(model, test, 0, &metrics, &err);
    if (!status) status = strata_model_save(model, "mnist.strata", &err);

    if (status)
        fprintf(stderr, "%s\n", err.message);
    else
        printf("accuracy %.2f %% on %s\n", 100 * metrics.accuracy, strata_device_get_info(device)->name);
    strata_model_destroy(model);
    strata_dataset_destroy(train);
    strata_dataset_destroy(test);
    strata_device_close(device);
    return status ? 1 : 0;
}
