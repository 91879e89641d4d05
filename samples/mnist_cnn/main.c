/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: convolutions over pictures, and a callback that reports the progress.
 *     build/samples/mnist_cnn [FOLDER [EPOCHS]]      the folder with the MNIST files; without it, digits are generated */
#include <stdio.h>
#include <stdlib.h>
#include <strata/strata.h>

static strata_status on_progress(const strata_progress *p, void *user, strata_error *err) {
    (void)user, (void)err;
    if (p->epoch_end)
        printf("epoch %d of %d: loss %.4f, accuracy %.4f, %.1f s\n", p->epoch + 1, p->epochs, p->metrics.loss,
               p->metrics.accuracy, p->epoch_seconds);
    return STRATA_OK; /* another status would end the training */
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : NULL;
    strata_device *device = NULL;
    strata_dataset *train = NULL, *test = NULL;
    strata_model *model = NULL;
    strata_metrics metrics = {0};
    strata_error err = {0};
    strata_compile_options compile = {.optimizer = strata_adam_optimizer(0.001), .seed = 1};
    strata_fit_options fit = {.epochs = argc > 2 ? atoi(argv[2]) : 5, .batch = 64, .seed = 1, .on_progress = on_progress};

    strata_status status = strata_device_open(NULL, NULL, &device, &err);
    if (!status) status = strata_dataset_mnist(folder, "train", 1, &train, &err);
    if (!status) status = strata_dataset_mnist(folder, "test", 1, &test, &err);
    if (!status) status = strata_model_create(STRATA_SHAPE(28, 28, 1), &model, &err);
    if (!status) {
        strata_model_add_conv2d(model, (strata_conv2d_options){.filters = 32, .kernel_size = {3, 3}, .activation = "relu"});
        strata_model_add_max_pool2d(model, (strata_max_pool2d_options){.size = {2, 2}});
        strata_model_add_conv2d(model, (strata_conv2d_options){.filters = 64, .kernel_size = {3, 3}, .activation = "relu"});
        strata_model_add_max_pool2d(model, (strata_max_pool2d_options){.size = {2, 2}});
        strata_model_add_flatten(model, (strata_flatten_options){0});
        strata_model_add_dense(model, (strata_dense_options){.units = 10});
        status = strata_model_compile(model, device, &compile, &err);
    }
    if (!status) status = strata_model_fit(model, train, &fit, NULL, &err);
    if (!status) status = strata_model_evaluate(model, test, 0, &metrics, &err);
    if (!status) status = strata_model_save(model, "mnist_cnn.strata", &err);

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
