/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers, losses, metrics and activations that a program registers: in C, in JSON, in files, with a strategy, and errors. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_case.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

TestSuite(registry, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;

/* ---- the registered functions ---- */

/* power: y = gain |x|^exponent bend(x), with a gain for each channel. */
typedef struct power_options {
    double exponent;
    const char *bend;
} power_options;
static const strata_option power_table[] = {{"exponent", STRATA_OPTION_NUMBER, offsetof(power_options, exponent), 1, 4, true},
                                            {"bend", STRATA_OPTION_ACTIVATION, offsetof(power_options, bend), 0, 0, false},
                                            {0}};

static strata_tensor *power_build(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    const power_options *opts = options;
    strata_tensor *x = inputs[0];
    strata_graph *graph = strata_tensor_graph(x);
    const strata_shape shape = strata_tensor_shape(x);
    if (n != 1 || shape.rank < 2)
        return strata_graph_fail(graph, STRATA_INVALID, "x is %s; it needs channels", strata_shape_text(shape).text);
    strata_tensor *gain =
        strata_layer_parameter(context, graph, "gain", STRATA_SHAPE(shape.dims[shape.rank - 1]), "ones", 0, 0);
    strata_tensor *power = strata_pow(strata_abs(x), strata_scalar(graph, strata_tensor_dtype(x), opts->exponent));
    return strata_mul(strata_mul(power, strata_activation_apply(opts->bend, x)), strata_cast(gain, strata_tensor_dtype(x)));
}

static const strata_layer_definition power_layer = {
    .name = "power", .options_bytes = sizeof(power_options), .options = power_table, .build = power_build};

/* mish: x tanh(softplus(x)). */
static strata_tensor *mish(strata_tensor *x) {
    return strata_mul(x, strata_tanh(strata_softplus(x)));
}

/* quartic: the mean of scale (y - t)^4. */
static strata_status quartic_check(strata_loss_options *opts, strata_error *error) {
    if (opts->own[0] == 0) opts->own[0] = 1;
    if (opts->own[0] < 100) return STRATA_OK;
    return strata_fail(error, STRATA_INVALID, "scale is %g; it must be below 100", opts->own[0]);
}
static strata_tensor *quartic_build(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels) {
    const strata_shape shape = strata_tensor_shape(outputs);
    strata_tensor *error = strata_sub(outputs, strata_reshape(labels, shape));
    strata_tensor *each = strata_mul(strata_square(strata_square(error)),
                                     strata_scalar(strata_tensor_graph(outputs), STRATA_DTYPE_F32, opts->own[0]));
    return strata_reduce_mean(strata_flatten(each), (int[]){1}, 1, false);
}
static const strata_option quartic_table[] = {
    {"scale", STRATA_OPTION_NUMBER, offsetof(strata_loss_options, own[0]), 0, 1000, false}, {0}};
static const strata_loss_definition quartic = {
    .name = "quartic", .options = quartic_table, .check = quartic_check, .build = quartic_build};

/* spread: the root of the mean squared error. It needs two sums. */
static strata_tensor *spread_build(strata_tensor *outputs, strata_tensor *labels) {
    strata_tensor *error = strata_sub(outputs, strata_reshape(labels, strata_tensor_shape(outputs)));
    strata_tensor *squares = strata_reshape(strata_reduce_sum(strata_square(error), NULL, 0, false), STRATA_SHAPE(1));
    strata_tensor *sum = strata_reshape(strata_reduce_sum(error, NULL, 0, false), STRATA_SHAPE(1));
    return strata_concat((strata_tensor *[]){squares, sum}, 2, 0);
}
static double spread_value(const double *sums, int64_t n) {
    return sqrt(sums[0] / (double)n - sums[1] / (double)n * (sums[1] / (double)n));
}
static const strata_metric_definition spread = {.name = "spread", .n_sums = 2, .build = spread_build, .value = spread_value};

static strata_registry *make_registry(void) {
    strata_registry *registry = NULL;
    OK(strata_registry_create(&registry, &err));
    OK(strata_layer_register(registry, &power_layer, &err));
    OK(strata_activation_register(registry, "mish", mish, &err));
    OK(strata_loss_register(registry, &quartic, &err));
    OK(strata_metric_register(registry, &spread, &err));
    return registry;
}

/* ---- a model with all of them ---- */

enum { INPUTS = 3, HIDDEN = 4, N = 20, BATCH = 5 };

static strata_model *make_model(strata_registry *registry) {
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(INPUTS), &model, &err));
    OK(strata_model_set_registry(model, registry, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = HIDDEN, .activation = "mish"});
    strata_model_add_layer(model, "power", NULL, &(power_options){.exponent = 2, .bend = "tanh"});
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    return model;
}

static const char json[] =
    "{\"label\":\"\",\"input\":[3],\"layers\":[{\"layer\":\"dense\",\"name\":\"dense\",\"units\":4,\"activation\":\"mish\"},"
    "{\"layer\":\"power\",\"name\":\"power\",\"exponent\":2,\"bend\":\"tanh\"},"
    "{\"layer\":\"dense\",\"name\":\"dense_1\",\"units\":1}],\"loss\":{\"name\":\"quartic\",\"scale\":2},\"metrics\":["
    "\"spread\"]}";

static strata_dataset *make_data(void) {
    strata_dataset *dataset = NULL;
    OK(strata_dataset_random(STRATA_SHAPE(INPUTS), STRATA_SHAPE(1), N, 7, &dataset, &err));
    return dataset;
}

static const strata_compile_options compile = {
    .loss = "quartic", .loss_options = {.own = {2}}, .metrics = "spread", .seed = 5, .optimizer = {.name = "adam"}};

static void train(strata_device *device, strata_model *model, const strata_compile_options *opts, strata_metrics *metrics) {
    strata_dataset *data = make_data();
    OK(strata_model_compile(model, device, opts, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 3, .batch = BATCH}, NULL, &err));
    OK(strata_model_evaluate(model, data, BATCH, metrics, &err));
    strata_dataset_destroy(data);
}

TEST_ON_DEVICES(registry, json_and_files_find_what_is_registered) {
    strata_registry *registry = make_registry();
    strata_model *built = make_model(registry), *read = NULL, *loaded = NULL;
    strata_metrics of_built, of_read, of_loaded;
    char *text = NULL;
    train(device, built, &compile, &of_built);
    OK(strata_model_from_json_with(registry, json, sizeof json - 1, "m.json", &read, &err));
    OK(strata_model_to_json(read, &text, &err));
    cr_assert_str_eq(text, json);
    free(text);
    train(device, read, &(strata_compile_options){.seed = 5, .optimizer = {.name = "adam"}}, &of_read);
    cr_assert_str_eq(case_sha(built), case_sha(read));
    OK(strata_model_save(built, test_path("own.strata"), &err));
    OK(strata_model_load_with(registry, test_path("own.strata"), &loaded, &err));
    strata_registry_destroy(registry); /* models keep a reference to it */
    OK(strata_model_compile(loaded, device, NULL, &err));
    strata_dataset *data = make_data();
    OK(strata_model_evaluate(loaded, data, BATCH, &of_loaded, &err));
    cr_assert_eq(of_built.loss, of_loaded.loss);
    cr_assert_eq(of_loaded.n, 1);
    cr_assert_str_eq(of_loaded.more[0].name, "spread");
    cr_assert_eq(of_loaded.more[0].value, of_read.more[0].value);
    cr_assert_gt(of_loaded.more[0].value, 0);
    strata_dataset_destroy(data);
    strata_model *all[] = {built, read, loaded};
    for (int i = 0; i < 3; i++) strata_model_destroy(all[i]);
}

TEST_ON_HOST(registry, replicas_add_up_what_a_metric_sums) {
    (void)device;
    strata_registry *registry = make_registry();
    strata_metrics metrics[2];
    for (int replicas = 1; replicas <= 2; replicas++) {
        strata_strategy *strategy = NULL;
        const strata_strategy_options devices = {.devices = (const char *const[]){"host", "host"}, .n_devices = replicas};
        strata_compile_options opts = compile;
        OK(strata_strategy_create("mirrored", &devices, &strategy, &err));
        opts.strategy = strategy;
        strata_model *model = make_model(registry);
        train(NULL, model, &opts, &metrics[replicas - 1]);
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
    }
    cr_assert_float_eq(metrics[0].loss, metrics[1].loss, 1e-5);
    cr_assert_float_eq(metrics[0].more[0].value, metrics[1].more[0].value, 1e-5);
    strata_registry_destroy(registry);
}

/* ---- gradients, by finite differences ---- */

static strata_array *parameter(strata_model *model, int index) {
    static strata_array value;
    OK(strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(model, index).shape, &value, &err));
    OK(strata_model_get_parameter(model, index, &value, &err));
    return &value;
}

static double loss_of(strata_model *model, const strata_dataset *data) {
    strata_metrics metrics;
    OK(strata_model_evaluate(model, data, N, &metrics, &err));
    return metrics.loss;
}

/* A step of plain gradient descent with rate 1 subtracts the gradient from a parameter. */
TEST_ON_HOST(registry, gradients_of_an_own_layer_agree_with_finite_differences) {
    strata_registry *registry = make_registry();
    strata_model *model = make_model(registry), *moved = make_model(registry);
    strata_dataset *data = make_data();
    strata_compile_options opts = compile;
    opts.optimizer = strata_sgd_optimizer(1, 0, false);
    OK(strata_model_compile(model, device, &opts, &err));
    OK(strata_model_compile(moved, device, &opts, &err));
    OK(strata_model_fit(moved, data, &(strata_fit_options){.batch = N, .no_shuffle = true}, NULL, &err));
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        strata_array before = *parameter(model, i), after = *parameter(moved, i);
        float *at = before.data;
        for (int64_t k = 0; k < strata_shape_elements(before.shape); k++) {
            const float kept = at[k], e = 0.01f;
            const double gradient = (double)kept - (double)((float *)after.data)[k];
            at[k] = kept + e;
            OK(strata_model_set_parameter(model, i, &before, &err));
            const double above = loss_of(model, data);
            at[k] = kept - e;
            OK(strata_model_set_parameter(model, i, &before, &err));
            const double below = loss_of(model, data);
            at[k] = kept;
            OK(strata_model_set_parameter(model, i, &before, &err));
            cr_assert_float_eq((above - below) / (2 * (double)e), gradient, 2e-3 * (1 + fabs(gradient)), "%s %d",
                               strata_model_parameter(model, i).name, (int)k);
        }
        strata_array_finish(&before);
        strata_array_finish(&after);
    }
    strata_dataset_destroy(data);
    strata_model_destroy(model);
    strata_model_destroy(moved);
    strata_registry_destroy(registry);
}

/* ---- several inputs ---- */

static strata_tensor *weave_build(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    (void)options;
    strata_tensor *y = inputs[0], *x = inputs[0];
    strata_tensor *share = strata_layer_parameter(context, strata_tensor_graph(x), "share", STRATA_SHAPE(n), "ones", 1, 1);
    for (int64_t i = 0; i < n; i++) {
        strata_tensor *own = strata_mul(inputs[i], strata_slice(share, &i, (int64_t[]){1}));
        y = i ? strata_add(y, own) : own;
    }
    return y;
}

TEST_ON_HOST(registry, an_own_layer_may_take_any_number_of_inputs) {
    const strata_layer_definition weave = {.name = "weave", .n_inputs = -1, .build = weave_build};
    static const char text[] =
        "{\"inputs\":[{\"name\":\"a\",\"shape\":[2]},{\"name\":\"b\",\"shape\":[2]}],\"layers\":[{\"layer\":"
        "\"weave\",\"inputs\":[\"a\",\"b\",\"a\"]}],\"outputs\":[{\"name\":\"weave\",\"loss\":\"mse\"}]}";
    strata_registry *registry = make_registry();
    strata_model *model = NULL;
    strata_dataset *data = NULL;
    strata_array a = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 2), (double[]){1, 2}),
                 b = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 2), (double[]){10, 20}), y = {0};
    OK(strata_layer_register(registry, &weave, &err));
    OK(strata_model_from_json_with(registry, text, sizeof text - 1, "m", &model, &err));
    OK(strata_model_compile(model, device, NULL, &err));
    OK(strata_dataset_from_columns((strata_data_column[]){{"a", &a, 0}, {"b", &b, 0}}, 2, NULL, 0, &data, &err));
    OK(strata_model_predict(model, data, 0, &y, &err));
    cr_assert_eq(((float *)y.data)[0], 12);
    cr_assert_eq(((float *)y.data)[1], 24);
    strata_array_finish(&a);
    strata_array_finish(&b);
    strata_array_finish(&y);
    strata_dataset_destroy(data);
    strata_model_destroy(model);
    strata_registry_destroy(registry);
}

/* A layer that does not use its second input, and a loss that does not use labels. Neither must be in the program. */
static strata_tensor *first_build(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    (void)options;
    (void)n;
    strata_tensor *gain =
        strata_layer_parameter(context, strata_tensor_graph(inputs[0]), "gain", STRATA_SHAPE(2), "ones", 1, 1);
    return strata_mul(inputs[0], gain);
}
static strata_tensor *size_build(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels) {
    (void)opts;
    (void)labels;
    return strata_reduce_mean(strata_square(outputs), (int[]){1}, 1, false);
}

TEST_ON_HOST(registry, what_a_layer_or_a_loss_ignores_is_not_fed) {
    static const char text[] =
        "{\"inputs\":[{\"name\":\"a\",\"shape\":[2]},{\"name\":\"b\",\"shape\":[2]}],\"layers\":[{\"layer\":"
        "\"first\",\"inputs\":[\"a\",\"b\"]}],\"outputs\":[{\"name\":\"first\",\"loss\":\"size\"}]}";
    strata_registry *registry = make_registry();
    strata_model *model = NULL;
    strata_dataset *data = NULL;
    strata_metrics metrics;
    strata_array a = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(12, 2), -1, 1, 1), y = {0};
    OK(strata_layer_register(registry, &(strata_layer_definition){.name = "first", .n_inputs = 2, .build = first_build}, &err));
    OK(strata_loss_register(registry, &(strata_loss_definition){.name = "size", .build = size_build}, &err));
    OK(strata_model_from_json_with(registry, text, sizeof text - 1, "m", &model, &err));
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_sgd_optimizer(0.1, 0, false)}, &err));
    OK(strata_dataset_from_columns((strata_data_column[]){{"b", &a, 0}, {"a", &a, 0}}, 2, &(strata_data_column){"first", &a, 0},
                                   1, &data, &err));
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        if (pipeline) OK(strata_dataset_batch(&data, 4, false, &err));
        OK(strata_model_fit(model, data, &(strata_fit_options){.batch = 4}, NULL, &err));
        OK(strata_model_evaluate(model, data, 4, &metrics, &err));
        OK(strata_model_predict(model, data, 4, &y, &err));
        strata_array_finish(&y);
    }
    cr_assert_gt(metrics.loss, 0);
    strata_array_finish(&a);
    strata_dataset_destroy(data);
    strata_model_destroy(model);
    strata_registry_destroy(registry);
}

/* ---- errors ---- */

TEST_ON_HOST(registry, a_model_says_what_is_not_registered) {
    strata_registry *registry = make_registry(), *empty = NULL;
    strata_model *model = make_model(registry), *none = NULL;
    strata_metrics metrics;
    train(device, model, &compile, &metrics);
    OK(strata_model_save(model, test_path("own.strata"), &err));
    FAILS(strata_model_load(test_path("own.strata"), &none, &err), STRATA_DATA,
          "one of your own is registered by strata_loss_register");
    OK(strata_registry_create(&empty, &err));
    OK(strata_loss_register(empty, &quartic, &err));
    FAILS(strata_model_load_with(empty, test_path("own.strata"), &none, &err), STRATA_DATA, "there is no metric \"spread\"");
    OK(strata_metric_register(empty, &spread, &err));
    FAILS(strata_model_load_with(empty, test_path("own.strata"), &none, &err), STRATA_DATA,
          "layers[0]: dense: there is no activation \"mish\"");
    OK(strata_activation_register(empty, "mish", mish, &err));
    FAILS(strata_model_load_with(empty, test_path("own.strata"), &none, &err), STRATA_DATA,
          "layers[1]: there is no layer \"power\"");
    cr_assert_not_null(strstr(err.message, "strata_layer_register"), "%s", err.message);
    OK(strata_layer_register(empty, &power_layer, &err));
    OK(strata_model_load_with(empty, test_path("own.strata"), &none, &err));
    strata_model_destroy(none);
    strata_model_destroy(model);
    strata_registry_destroy(registry);
    strata_registry_destroy(empty);
}

static strata_tensor *null_build(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    (void)options;
    (void)context;
    (void)inputs;
    (void)n;
    return NULL;
}
static strata_tensor *changing_build(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    (void)options;
    (void)n;
    strata_graph *graph = strata_tensor_graph(inputs[0]);
    strata_layer_parameter(context, graph, "w", STRATA_SHAPE(2), "ones", 1, 1);
    return strata_mul(inputs[0], strata_layer_parameter(context, graph, "w", STRATA_SHAPE(3), "ones", 1, 1));
}
static strata_tensor *unknown_build(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    (void)options;
    (void)n;
    return strata_layer_parameter(context, strata_tensor_graph(inputs[0]), "w", STRATA_SHAPE(3), "one", 1, 1);
}
static strata_tensor *scalar_build(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    (void)options;
    (void)context;
    (void)n;
    return strata_reduce_sum(inputs[0], NULL, 0, false);
}

TEST_ON_HOST(registry, errors_of_build_functions_name_the_layer) {
    static const struct {
        strata_tensor *(*build)(const void *, strata_layer_context *, strata_tensor *const *, int);
        const char *says;
    } wrong[] = {{null_build, "mine: its build function returned NULL"},
                 {changing_build, "mine: its parameter w is (3) for this input; an earlier call made it (2)"},
                 {unknown_build, "mine: there is no initializer \"one\""},
                 {scalar_build, "mine: its build function returned a scalar"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_registry *registry = make_registry();
        strata_model *model = NULL;
        OK(strata_layer_register(registry, &(strata_layer_definition){.name = "own", .build = wrong[i].build}, &err));
        OK(strata_model_create(STRATA_SHAPE(3), &model, &err));
        OK(strata_model_set_registry(model, registry, &err));
        strata_model_add_layer(model, "own", "mine", NULL);
        FAILS(strata_model_compile(model, device, NULL, &err), STRATA_INVALID, wrong[i].says);
        strata_model_destroy(model);
        strata_registry_destroy(registry);
    }
}

static strata_tensor *whole_loss(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels) {
    (void)opts;
    return strata_reduce_sum(strata_square(strata_sub(outputs, labels)), NULL, 0, false);
}
static strata_tensor *long_sums(strata_tensor *outputs, strata_tensor *labels) {
    (void)labels;
    return strata_flatten(outputs);
}
static strata_tensor *no_activation(strata_tensor *x) {
    (void)x;
    return NULL;
}

TEST_ON_HOST(registry, errors_of_losses_metrics_and_activations_name_them) {
    static const struct {
        const char *loss, *metric, *activation, *says;
    } wrong[] = {{"whole", NULL, NULL, "loss whole: its build function returned f32 (); it must be f32 (4)"},
                 {"mse", "long", NULL, "metric long: its build function returned f32 (4,2); it must be f32 (3)"},
                 {"mse", NULL, "nothing", "dense: activation nothing returned NULL"},
                 {"mse", NULL, "something", "dense: there is no activation \"something\""},
                 {"quartic", "spreads", NULL, "there is no metric \"spreads\""},
                 {"quartics", NULL, NULL, "there is no loss \"quartics\""}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_registry *registry = make_registry();
        strata_model *model = NULL;
        strata_dataset *data = NULL;
        strata_metrics metrics;
        OK(strata_loss_register(registry, &(strata_loss_definition){.name = "whole", .build = whole_loss}, &err));
        OK(strata_metric_register(registry, &(strata_metric_definition){.name = "long", .n_sums = 3, .build = long_sums},
                                  &err));
        OK(strata_activation_register(registry, "nothing", no_activation, &err));
        OK(strata_model_create(STRATA_SHAPE(3), &model, &err));
        OK(strata_model_set_registry(model, registry, &err));
        OK(strata_dataset_random(STRATA_SHAPE(3), STRATA_SHAPE(2), 4, 7, &data, &err));
        strata_model_add_dense(model, (strata_dense_options){.units = 2, .activation = wrong[i].activation});
        strata_status status = strata_model_compile(
            model, device, &(strata_compile_options){.loss = wrong[i].loss, .metrics = wrong[i].metric}, &err);
        if (!status) status = strata_model_evaluate(model, data, 4, &metrics, &err);
        cr_assert_eq(status, STRATA_INVALID);
        cr_assert_not_null(strstr(err.message, wrong[i].says), "\"%s\" lacks \"%s\"", err.message, wrong[i].says);
        strata_dataset_destroy(data);
        strata_model_destroy(model);
        strata_registry_destroy(registry);
    }
}

TEST_ON_HOST(registry, options_out_of_range_are_refused_in_c_and_json) {
    static const struct {
        const char *layer, *says;
    } wrong[] = {{"{\"layer\":\"power\"}", "layers[0]: \"exponent\" is missing"},
                 {"{\"layer\":\"power\",\"exponent\":9}", "layers[0].exponent"},
                 {"{\"layer\":\"power\",\"exponents\":2}", "did you mean \"exponent\""},
                 {"{\"layer\":\"power\",\"exponent\":2,\"bend\":\"tan\"}", "layers[0]: power: there is no activation \"tan\""}};
    strata_registry *registry = make_registry();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[200];
        strata_model *model = NULL;
        snprintf(text, sizeof text, "{\"input\":[3],\"layers\":[%s]}", wrong[i].layer);
        FAILS(strata_model_from_json_with(registry, text, strlen(text), "m", &model, &err), STRATA_DATA, wrong[i].says);
    }
    for (int i = 0; i < 2; i++) {
        strata_model *model = NULL;
        OK(strata_model_create(STRATA_SHAPE(3), &model, &err));
        OK(strata_model_set_registry(model, registry, &err));
        strata_model_add_layer(model, i ? "residual" : "power", NULL, &(power_options){.exponent = 0.5});
        FAILS(strata_model_compile(model, device, NULL, &err), STRATA_INVALID,
              i ? "residual has layers inside; strata_model_begin_residual" : "power: exponent is 0.5; it must be 1..4");
        strata_model_destroy(model);
    }
    strata_registry_destroy(registry);
}

Test(registry, definitions_that_are_not_complete_are_refused) {
    strata_registry *registry = make_registry();
    static const strata_option twice[] = {{"a", STRATA_OPTION_INT, 0, 0, 1, false},
                                          {"a", STRATA_OPTION_INT, 0, 0, 1, false},
                                          {0}},
                               beyond[] = {{"a", STRATA_OPTION_INT, 4, 0, 1, false}, {0}},
                               reserved[] = {{"inputs", STRATA_OPTION_INT, 0, 0, 1, false}, {0}};
    const strata_layer_definition layers[] = {
        {.name = "power", .build = null_build},
        {.name = "dense", .build = null_build},
        {.name = NULL, .build = null_build},
        {.name = "a/b", .build = null_build},
        {.name = "own"},
        {.name = "own", .build = null_build, .n_inputs = 1000},
        {.name = "own", .build = null_build, .options = twice, .options_bytes = 8},
        {.name = "own", .build = null_build, .options = beyond, .options_bytes = 8},
        {.name = "own", .build = null_build, .options = reserved, .options_bytes = 8},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        FAILS(strata_layer_register(registry, &layers[i], &err), STRATA_INVALID, "layer \"");
    FAILS(strata_activation_register(registry, "relu", mish, &err), STRATA_INVALID, "there is one of that name");
    FAILS(strata_activation_register(registry, "mish", mish, &err), STRATA_INVALID, "there is one of that name");
    FAILS(strata_activation_register(registry, "own", NULL, &err), STRATA_INVALID, "no build function");
    FAILS(strata_loss_register(registry, &(strata_loss_definition){.name = "mse", .build = quartic_build}, &err),
          STRATA_INVALID, "there is one of that name");
    FAILS(strata_loss_register(registry, &(strata_loss_definition){.name = "own"}, &err), STRATA_INVALID, "no build function");
    FAILS(
        strata_metric_register(registry, &(strata_metric_definition){.name = "loss", .n_sums = 1, .build = spread_build}, &err),
        STRATA_INVALID, "there is one of that name");
    FAILS(strata_metric_register(registry, &(strata_metric_definition){.name = "own", .build = spread_build}, &err),
          STRATA_INVALID, "n_sums is 0");
    strata_registry_destroy(registry);
    strata_registry_destroy(NULL);
}
