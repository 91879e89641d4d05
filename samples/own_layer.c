/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: your own layer with an option and a parameter. It is built from ops, which have gradients and kernels. */
#include <stdio.h>
#include <strata/strata.h>

/* y = gain sin(frequency x): x (N, C), gain (C) -> y (N, C). The options struct is one number, the frequency. */
static strata_tensor *wave(const void *frequency, strata_layer_context *context, strata_tensor *const *x, int n_inputs) {
    strata_graph *graph = strata_tensor_graph(x[n_inputs - 1]);
    const strata_shape channels = STRATA_SHAPE(strata_tensor_shape(x[0]).dims[1]);
    strata_tensor *gain = strata_layer_parameter(context, graph, "gain", channels, "ones", 0, 0);
    strata_tensor *scaled = strata_mul(x[0], strata_scalar(graph, STRATA_DTYPE_F32, *(const double *)frequency));
    return strata_mul(strata_sin(scaled), gain);
}
static const strata_option table[] = {{"frequency", STRATA_OPTION_NUMBER, 0, 0.1, 100, true}, {0}};
static const strata_layer_definition layer = {"wave", 1, sizeof(double), table, .build = wave};
static const char json[] =
    "{\"input\": [1], \"layers\": [{\"layer\": \"dense\", \"units\": 16}, {\"layer\": \"wave\", \"frequency\": 2},"
    "{\"layer\": \"dense\", \"units\": 1}], \"loss\": \"mse\"}";

/* If the call fails, prints the error and ends main. */
#define TRY(call) \
    if (call) return fprintf(stderr, "own_layer: %s\n", err.message), 1

int main(int argc, char **argv) {
    strata_error err = {0};
    strata_registry *registry;
    strata_device *device;
    strata_dataset *data;
    strata_model *model;
    strata_history history = {0};
    TRY(strata_registry_create(&registry, &err));
    TRY(strata_layer_register(registry, &layer, &err));
    TRY(strata_model_from_json_with(registry, json, sizeof json - 1, "own_layer", &model, &err));
    TRY(strata_device_open(argc > 1 ? argv[1] : NULL, NULL, &device, &err));
    TRY(strata_dataset_random(STRATA_SHAPE(1), STRATA_SHAPE(1), 256, 1, &data, &err));
    TRY(strata_model_compile(model, device, NULL, &err));
    TRY(strata_model_fit(model, data, &(strata_fit_options){.epochs = 20}, &history, &err));
    printf("loss %.4f in the first epoch, %.4f in the last\n", history.epochs[0].loss, history.epochs[19].loss);
}
