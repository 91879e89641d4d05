/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that end in softmax or sigmoid, which a cross-entropy takes into itself, and models without a loss. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_case.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"

static strata_error err;

#define INPUT              "{\"input\":[2,3],\"layers\":[{\"layer\":\"flatten\"},"
#define HIDDEN             INPUT "{\"layer\":\"dense\",\"units\":5,\"activation\":\"tanh\"},"
#define DENSE(units, more) "{\"layer\":\"dense\",\"units\":" units ",\"name\":\"last\"" more "}"
#define FUNCTION(name)     ",{\"layer\":\"activation\",\"function\":\"" name "\"}"
#define SEQUENCE           "{\"input\":[2,3],\"layers\":["

static strata_model *read(const char *json) {
    strata_model *model = NULL;
    OK(strata_model_from_json(json, strlen(json), "test", &model, &err));
    return model;
}

/* The examples of case_dataset. kind: 'c' classes; 'o' a probability for each class; 'b' whether the class is 0; 's' as 'b',
 * (2) for each example. */
static strata_dataset *data_of(char kind) {
    strata_array x, y, labels;
    strata_dataset *data = NULL;
    const int64_t n = 90, each = kind == 'o' ? 3 : kind == 's' ? 2 : 1;
    if (kind == 'c') return case_dataset(n);
    case_arrays(n, &x, &y);
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, each), &labels, &err));
    for (int64_t i = 0; i < n * each; i++)
        ((float *)labels.data)[i] = ((int32_t *)y.data)[i / each] == (kind == 'o' ? i % each : 0);
    if (each == 1) labels.shape.rank = 1;
    strata_array_finish(&y);
    OK(strata_dataset_take_arrays(&x, &labels, 0, &data, &err));
    return data;
}

typedef struct outcome {
    char sha[65];
    strata_metrics metrics;
    strata_array predictions;
} outcome;

static outcome train(strata_device *device, const char *json, const char *loss, char kind, strata_dtype precision) {
    outcome out;
    strata_dataset *data = data_of(kind);
    strata_model *model = read(json);
    const strata_compile_options compile = {
        .loss = loss, .optimizer = strata_adam_optimizer(0.03), .seed = 3, .precision = precision};
    OK(strata_model_compile(model, device, &compile, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 4, .batch = 30}, NULL, &err));
    OK(strata_model_evaluate(model, data, 0, &out.metrics, &err));
    OK(strata_model_predict(model, data, 0, &out.predictions, &err));
    snprintf(out.sha, sizeof out.sha, "%s", case_sha(model));
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    return out;
}

/* Both models have the same layers except that the first ends in an activation. */
TEST_ON_HOST(ending, an_activation_at_the_end_moves_into_the_cross_entropy) {
    static const struct {
        const char *with, *without, *loss;
        char kind;
        strata_dtype precision;
    } rows[] = {
        {HIDDEN DENSE("3", ",\"activation\":\"softmax\"") "]}", HIDDEN DENSE("3", "") "]}", "sparse_categorical_crossentropy",
         'c', STRATA_DTYPE_F32},
        {HIDDEN DENSE("3", ",\"activation\":\"softmax\"") "]}", HIDDEN DENSE("3", "") "]}", "categorical_crossentropy", 'o',
         STRATA_DTYPE_F32},
        {HIDDEN DENSE("3", "") FUNCTION("softmax") "]}", HIDDEN DENSE("3", "") "]}", "sparse_categorical_crossentropy", 'c',
         STRATA_DTYPE_F32},
        {HIDDEN DENSE("3", "") ",{\"layer\":\"reshape\",\"shape\":[1,3]}" FUNCTION("softmax") ",{\"layer\":\"flatten\"}]}",
         HIDDEN DENSE("3", "") "]}", "sparse_categorical_crossentropy", 'c', STRATA_DTYPE_F32},
        {HIDDEN DENSE("3", ",\"activation\":\"softmax\"") "]}", HIDDEN DENSE("3", "") "]}", "sparse_categorical_crossentropy",
         'c', STRATA_DTYPE_BF16},
        {HIDDEN DENSE("1", ",\"activation\":\"sigmoid\"") "]}", HIDDEN DENSE("1", "") "]}", "binary_crossentropy", 'b',
         STRATA_DTYPE_F32},
        {HIDDEN DENSE("1", "") FUNCTION("sigmoid") "]}", HIDDEN DENSE("1", "") "]}", "binary_crossentropy", 'b',
         STRATA_DTYPE_F32},
        {SEQUENCE DENSE("1", ",\"activation\":\"sigmoid\"") ",{\"layer\":\"flatten\"}]}",
         SEQUENCE DENSE("1", "") ",{\"layer\":\"flatten\"}]}", "binary_crossentropy", 's', STRATA_DTYPE_F32},
        {SEQUENCE DENSE("1", ",\"activation\":\"sigmoid\"") ",{\"layer\":\"op\",\"op\":\"transpose\",\"numbers\":[0,2,1]},{"
                                                            "\"layer\":\"flatten\"}]}",
         SEQUENCE DENSE("1", "") ",{\"layer\":\"op\",\"op\":\"transpose\",\"numbers\":[0,2,1]},{\"layer\":\"flatten\"}]}",
         "binary_crossentropy", 's', STRATA_DTYPE_F32}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        outcome with = train(device, rows[i].with, rows[i].loss, rows[i].kind, rows[i].precision);
        outcome without = train(device, rows[i].without, rows[i].loss, rows[i].kind, rows[i].precision);
        cr_assert_str_eq(with.sha, without.sha, "row %zu", i);
        cr_assert_eq(with.metrics.loss, without.metrics.loss, "row %zu", i);
        cr_assert_eq(with.metrics.accuracy, without.metrics.accuracy, "row %zu", i);
        for (int64_t k = 0; k < strata_shape_elements(with.predictions.shape); k++) {
            const float a = ((float *)with.predictions.data)[k], b = ((float *)without.predictions.data)[k];
            /* Layers compute in bf16 if that is the precision, and the loss in f32. */
            const float most = rows[i].precision == STRATA_DTYPE_F32 ? 1e-6f : 4e-3f;
            cr_assert(a - b < most && b - a < most && a > 0 && a < 1, "row %zu: %g and %g", i, (double)a, (double)b);
        }
        strata_array_finish(&with.predictions);
        strata_array_finish(&without.predictions);
    }
}

TEST_ON_HOST(ending, what_cannot_be_moved_is_an_error_that_says_what_to_change) {
    static const struct {
        const char *json, *loss, *text;
    } rows[] = {
        {HIDDEN DENSE("3", ",\"activation\":\"sigmoid\"") "]}", "sparse_categorical_crossentropy",
         "the model ends in sigmoid, and sparse_categorical_crossentropy takes logits, to which it applies softmax: let the "
         "model end in softmax or without an activation, or train with binary_crossentropy"},
        {HIDDEN DENSE("3", ",\"activation\":\"sigmoid\"") "]}", "categorical_crossentropy", "the model ends in sigmoid"},
        {HIDDEN DENSE("3", ",\"activation\":\"softmax\"") "]}", "binary_crossentropy",
         "let the model end in sigmoid or without an activation, or train with categorical_crossentropy"},
        {HIDDEN DENSE("3", ",\"activation\":\"softmax\"") ",{\"layer\":\"dropout\",\"rate\":0.5}]}",
         "sparse_categorical_crossentropy", "the model's outputs are probabilities already"},
        {HIDDEN DENSE("1", ",\"activation\":\"sigmoid\"") ",{\"layer\":\"dropout\",\"rate\":0.5}]}", "binary_crossentropy",
         "leave out the activation or what comes after it"},
        {HIDDEN DENSE("6", "") ",{\"layer\":\"reshape\",\"shape\":[2,3]}" FUNCTION("softmax") ",{\"layer\":\"flatten\"}]}",
         "sparse_categorical_crossentropy", "over the classes"},
        {SEQUENCE DENSE("3", ",\"activation\":\"softmax\"") ",{\"layer\":\"global_average_pool\"}]}",
         "categorical_crossentropy", "probabilities already"},
        {HIDDEN DENSE("1", "") ",{\"layer\":\"op\",\"op\":\"clip\",\"numbers\":[0,1]}]}", "binary_crossentropy",
         "probabilities already"},
        {HIDDEN DENSE("2", ",\"activation\":\"sigmoid\"") FUNCTION("softmax") FUNCTION("sigmoid") "]}",
         "categorical_crossentropy", "the model ends in sigmoid"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        strata_model *model = read(rows[i].json);
        FAILS(strata_model_compile(model, device, &(strata_compile_options){.loss = rows[i].loss}, &err), STRATA_INVALID,
              rows[i].text);
        OK(strata_model_compile(model, device, &(strata_compile_options){.loss = "mse"}, &err)); /* takes any outputs */
        strata_model_destroy(model);
    }
    strata_model *model = read(HIDDEN DENSE("3", ",\"activation\":\"softmax\"") "]}");
    const strata_compile_options as_they_are = {.loss = "binary_crossentropy", .loss_options.from_probabilities = true};
    OK(strata_model_compile(model, device, &as_they_are, &err));
    strata_model_destroy(model);
}

TEST_ON_HOST(ending, a_model_without_a_loss_predicts_its_outputs_and_is_compiled_later) {
    static const char *const models[] = {HIDDEN DENSE("3", "") "]}", HIDDEN DENSE("1", "") "]}",
                                         HIDDEN DENSE("3", ",\"activation\":\"softmax\"") "]}", SEQUENCE DENSE("4", "") "]}"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        strata_model *model = read(models[i]);
        strata_dataset *data = data_of('b');
        strata_metrics metrics;
        strata_array outputs, predictions;
        char before[65], *json = NULL;
        OK(strata_model_build(model, device, &(strata_compile_options){.seed = 5}, &err));
        OK(strata_model_predict(model, data, 0, &outputs, &err));
        strata_model_places places;
        strata_model_memory memory;
        OK(strata_model_list_places(model, STRATA_PART_PREDICTION, 8, 0, NULL, 0, &places, &err));
        OK(strata_model_list_memory(model, STRATA_PART_PREDICTION, 8, &memory, &err));
        strata_model_places_finish(&places);
        strata_model_memory_finish(&memory);
        FAILS(strata_model_list_places(model, STRATA_PART_TRAINING, 8, 0, NULL, 0, &places, &err), STRATA_INVALID,
              "without an optimizer and a loss");
        OK(strata_model_to_json(model, &json, &err));
        cr_assert_null(strstr(json, "\"loss\""));
        free(json);
        snprintf(before, sizeof before, "%s", case_sha(model));
        FAILS(strata_model_evaluate(model, data, 0, &metrics, &err), STRATA_INVALID, "without an optimizer and a loss");
        OK(strata_model_compile(model, device, &(strata_compile_options){.loss = "mse"}, &err));
        cr_assert_str_eq(case_sha(model), before, "compile keeps the parameters of build");
        OK(strata_model_predict(model, data, 0, &predictions, &err));
        cr_assert_eq(memcmp(outputs.data, predictions.data, strata_array_bytes(&outputs)), 0);
        FAILS(strata_model_compile(model, device, NULL, &err), STRATA_INVALID, "compiled already");
        strata_array_finish(&outputs);
        strata_array_finish(&predictions);
        strata_dataset_destroy(data);
        strata_model_destroy(model);
    }
}

TEST_ON_HOST(ending, the_default_loss_of_a_sigmoid_is_the_binary_one) {
    strata_model *model = read(HIDDEN DENSE("1", ",\"activation\":\"sigmoid\"") "]}");
    char *json = NULL;
    OK(strata_model_compile(model, device, NULL, &err));
    OK(strata_model_to_json(model, &json, &err));
    cr_assert_not_null(strstr(json, "\"loss\":\"binary_crossentropy\""), "%s", json);
    free(json);
    strata_model_destroy(model);
}

#define TWO                                                                                                    \
    "{\"inputs\":[{\"name\":\"x\",\"shape\":[2,3]}],\"layers\":[{\"layer\":\"flatten\",\"inputs\":[\"x\"]},"   \
    "{\"layer\":\"dense\",\"units\":3,\"name\":\"kind\",\"activation\":\"softmax\",\"inputs\":[\"flatten\"]}," \
    "{\"layer\":\"dense\",\"units\":1,\"name\":\"yes\",\"activation\":\"sigmoid\",\"inputs\":[\"flatten\"]}]," \
    "\"outputs\":[{\"name\":\"kind\"},{\"name\":\"yes\"}]}"

TEST_ON_HOST(ending, each_of_several_outputs_takes_its_loss_from_a_list) {
    static const struct {
        const char *loss, *text;
    } wrong[] = {{NULL, "output \"kind\" has no loss"},
                 {"kind=sparse_categorical_crossentropy", "output \"yes\" has no loss"},
                 {"kind=mse,no=mse", "\"no\", which is no output of the model"},
                 {"kind=mse,yes", "\"yes\", which is no output of the model"},
                 {"kind=mse,yes=maple", "there is no loss \"maple\""},
                 {"binary_crossentropy", "kind: the model ends in softmax"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_model *model = read(TWO);
        FAILS(strata_model_compile(model, device, &(strata_compile_options){.loss = wrong[i].loss}, &err), STRATA_INVALID,
              wrong[i].text);
        strata_model_destroy(model);
    }
    strata_model *model = read(TWO);
    char *json = NULL;
    const strata_compile_options compile = {.loss = "yes=binary_crossentropy,kind=sparse_categorical_crossentropy"};
    OK(strata_model_compile(model, device, &compile, &err));
    OK(strata_model_to_json(model, &json, &err));
    cr_assert_not_null(strstr(json, "\"name\":\"kind\",\"loss\":\"sparse_categorical_crossentropy\""), "%s", json);
    cr_assert_not_null(strstr(json, "\"name\":\"yes\",\"loss\":\"binary_crossentropy\""), "%s", json);
    free(json);
    strata_model_destroy(model);
}

/* A softmax whose outputs are moved, cast and reshaped, which leaves each element beside the same others. */
static strata_tensor *softmax_through_views(strata_tensor *x) {
    const strata_shape shape = strata_tensor_shape(x);
    strata_tensor *y = strata_reshape(strata_softmax(x), STRATA_SHAPE(shape.dims[0], 1, shape.dims[1]));
    y = strata_transpose(strata_cast(y, STRATA_DTYPE_F32), (int[]){1, 0, 2});
    return strata_reshape(strata_transpose(y, (int[]){-2, -1, -3}), shape);
}

/* In graphs of the program's own, losses and metrics take the outputs of a softmax or sigmoid in the same way. */
Test(ending, losses_and_metrics_of_custom_loops_take_probabilities_too) {
    static const struct {
        const char *loss, *metric;
        strata_tensor *(*function)(strata_tensor *x);
        int64_t units;
    } rows[] = {{"sparse_categorical_crossentropy", "accuracy", strata_softmax, 3},
                {"sparse_categorical_crossentropy", "accuracy", softmax_through_views, 3},
                {"binary_crossentropy", "accuracy", strata_sigmoid, 1},
                {"binary_crossentropy", "confusion_matrix", strata_sigmoid, 1}};
    float numbers[] = {-2, 1, 0.5f, 3, -1, -4}, yes[] = {0, 1, 1, 0, 1, 0};
    int32_t classes[] = {1, 0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        strata_graph *graph = NULL;
        strata_array got[6], x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(6 / rows[i].units, rows[i].units), numbers),
                             y = rows[i].units > 1 ? strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(2), classes)
                                                   : strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(6), yes);
        OK(strata_graph_create(&graph, &err));
        strata_tensor *logits = strata_input(graph, "x", x.dtype, x.shape),
                      *labels = strata_input(graph, "y", y.dtype, y.shape);
        strata_tensor *each[2] = {logits, rows[i].function(logits)}, *results[6];
        const strata_metric metric = {.name = rows[i].metric, .loss = rows[i].loss};
        for (int k = 0; k < 2; k++) {
            results[3 * k] = strata_example_losses(rows[i].loss, NULL, each[k], labels);
            strata_gradients(results[3 * k], NULL, &logits, 1, &results[3 * k + 1]);
            results[3 * k + 2] = strata_metric_sums(&metric, each[k], labels);
        }
        strata_test_feed feeds[] = {{logits, &x}, {labels, &y}};
        OK(strata_test_eval(results, 6, feeds, 2, got, &err));
        for (int k = 0; k < 3; k++)
            cr_assert_eq(memcmp(got[k].data, got[k + 3].data, strata_array_bytes(&got[k])), 0, "row %zu, result %d", i, k);
        for (int k = 0; k < 6; k++) strata_array_finish(&got[k]);
        strata_graph_destroy(graph);
    }
}
