/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: reading a model from a JSON file, and training it on colour pictures.
 *     sample_cifar10 FOLDER [MODEL.json [EPOCHS]]     the folder contains cifar-10-binary.tar.gz, or its files unpacked */
#include <stdio.h>
#include <stdlib.h>
#include <strata/strata.h>

static const char default_model[] =
    "{\"input\": [32, 32, 3], \"layers\": ["
    "{\"layer\": \"conv2d\", \"filters\": 32, \"kernel_size\": 3, \"activation\": \"relu\"}, {\"layer\": \"max_pool2d\", "
    "\"size\": 2},"
    "{\"layer\": \"conv2d\", \"filters\": 64, \"kernel_size\": 3, \"activation\": \"relu\"}, {\"layer\": \"max_pool2d\", "
    "\"size\": 2},"
    "{\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 64, \"activation\": \"relu\"}, {\"layer\": \"dense\", "
    "\"units\": 10}]}";

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".", *path = argc > 2 ? argv[2] : NULL;
    strata_device *device = NULL;
    strata_dataset *train = NULL, *test = NULL;
    strata_model *model = NULL;
    strata_metrics metrics = {0};
    strata_error err = {0};
    strata_compile_options compile = {.optimizer = strata_adam_optimizer(0.001), .seed = 1};
    strata_fit_options fit = {.epochs = argc > 3 ? atoi(argv[3]) : 10, .batch = 64, .seed = 1};

    strata_status status = strata_device_open(NULL, NULL, &device, &err);
    if (!status) status = strata_dataset_cifar10(folder, "train", &train, &err);
    if (!status) status = strata_dataset_cifar10(folder, "test", &test, &err);
    if (!status) printf("learning from %s\n", strata_dataset_source(train));
    if (!status)
        status = path ? strata_model_read_json(path, &model, &err)
                      : strata_model_from_json(default_model, sizeof default_model - 1, "the model", &model, &err);
    if (!status) status = strata_model_compile(model, device, &compile, &err);
    if (!status) status = strata_model_fit(model, train, &fit, NULL, &err);
    if (!status) status = strata_model_evaluate(model, test, 0, &metrics, &err);
    if (!status) status = strata_model_save(model, "cifar10.strata", &err);

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
