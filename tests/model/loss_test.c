/* SPDX-License-Identifier: Apache-2.0
 *
 * Every loss and its gradient compared with PyTorch; labels and losses that are refused. */
#include "core/loss/loss.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_case.h"
#include "strata/metrics.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"
#include "tests/support/golden.h"
#include "tests/support/names.h"

static strata_error err;

static const struct {
    const char *golden, *name, *outputs, *labels;
    strata_loss_options opts;
} rows[] = {
    {"mse", "mse", "outputs", "numbers", {.delta = 0}},
    {"mae", "mae", "outputs", "numbers", {.delta = 0}},
    {"huber", "huber", "outputs", "numbers", {.delta = 0.75}},
    {"bce", "binary_crossentropy", "outputs", "yes", {.delta = 0}},
    {"bce_smooth", "binary_crossentropy", "outputs", "yes", {.label_smoothing = 0.2}},
    {"bce_probabilities", "binary_crossentropy", "probabilities", "yes", {.from_probabilities = true}},
    {"sparse", "sparse_categorical_crossentropy", "outputs", "classes", {.delta = 0}},
    {"sparse_smooth", "sparse_categorical_crossentropy", "outputs", "classes", {.label_smoothing = 0.2}},
    {"dense", "categorical_crossentropy", "outputs", "distribution", {.delta = 0}},
    {"dense_smooth", "categorical_crossentropy", "outputs", "distribution", {.label_smoothing = 0.2}},
};

/* In a graph of the program no call has checked the labels: a label out of range gives NaN, and other rows are not affected. */
Test(loss, labels_out_of_range_are_not_hidden) {
    static const struct {
        const char *name;
        strata_loss_options opts;
    } losses[] = {{"sparse_categorical_crossentropy", {.delta = 0}},
                  {"sparse_categorical_crossentropy", {.label_smoothing = 0.1}},
                  {"categorical_crossentropy", {.delta = 0}},
                  {"categorical_crossentropy", {.label_smoothing = 0.1}}};
    float outputs[12] = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3};
    int32_t labels[4] = {2, 3, -1, 2};
    strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(4, 3), outputs);
    strata_array y = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(4), labels);
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        strata_graph *graph = NULL;
        strata_array got;
        OK(strata_graph_create(&graph, &err));
        strata_tensor *xs = strata_input(graph, "x", x.dtype, x.shape), *ys = strata_input(graph, "y", y.dtype, y.shape);
        strata_tensor *result = strata_example_losses(losses[i].name, &losses[i].opts, xs, ys);
        OK(strata_test_eval(&result, 1, (strata_test_feed[]){{xs, &x}, {ys, &y}}, 2, &got, &err));
        const float *each = got.data;
        /* 0.40760596 = -log softmax(1, 2, 3)[2]; with smoothing 0.1 the mean of all three has a weight of 0.1. */
        const double want = losses[i].opts.label_smoothing > 0 ? 0.507605964444 : 0.407605964444;
        cr_expect_float_eq((double)each[0], want, 1e-6, "%s: %g", losses[i].name, (double)each[0]);
        cr_expect(isnan(each[1]) && isnan(each[2]), "%s: %g %g", losses[i].name, (double)each[1], (double)each[2]);
        cr_expect_eq(each[3], each[0]);
        strata_array_finish(&got);
        strata_graph_destroy(graph);
    }
}

/* As Keras' losses without arguments. Errors are 0.5 and 3; the probabilities of yes are 0.622 and 0.953. */
Test(loss, options_that_are_left_out_are_their_defaults) {
    static const struct {
        const char *name;
        double want[2];
    } losses[] = {
        {"huber", {0.125, 2.5}}, {"mse", {0.25, 9}}, {"mae", {0.5, 3}}, {"binary_crossentropy", {0.474076984, 3.048587352}}};
    strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 1), (float[]){0.5F, 3});
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        /* labels 1 and 0 for a yes or no, otherwise 0 */
        strata_array y = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2), (float[]){i == 3, 0}), got;
        strata_graph *graph = NULL;
        OK(strata_graph_create(&graph, &err));
        strata_tensor *xs = strata_input(graph, "x", x.dtype, x.shape), *ys = strata_input(graph, "y", y.dtype, y.shape);
        strata_tensor *result = strata_example_losses(losses[i].name, NULL, xs, ys);
        OK(strata_test_eval(&result, 1, (strata_test_feed[]){{xs, &x}, {ys, &y}}, 2, &got, &err));
        for (int k = 0; k < 2; k++)
            cr_expect_float_eq((double)((float *)got.data)[k], losses[i].want[k], 1e-6, "%s: %g", losses[i].name,
                               (double)((float *)got.data)[k]);
        strata_array_finish(&got);
        strata_graph_destroy(graph);
    }
}

/* In any graph: outputs must have an axis of examples, for each loss and each metric. */
Test(loss, outputs_without_an_axis_of_examples_are_refused) {
    static const char *const losses[] = {"mse", "mae", "huber", "binary_crossentropy"};
    static const char *const metrics[] = {"accuracy", "mae", "precision", "recall", "auc"};
    enum { N_LOSSES = sizeof losses / sizeof *losses, N_METRICS = sizeof metrics / sizeof *metrics };
    for (int i = 0; i < N_LOSSES + N_METRICS; i++) {
        strata_graph *graph = NULL;
        OK(strata_graph_create(&graph, &err));
        strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE()),
                      *y = strata_input(graph, "y", STRATA_DTYPE_F32, STRATA_SHAPE());
        const strata_metric metric = {.name = i < N_LOSSES ? "" : metrics[i - N_LOSSES], .loss = "binary_crossentropy"};
        strata_tensor *result = i < N_LOSSES ? strata_example_losses(losses[i], NULL, x, y) : strata_metric_sums(&metric, x, y);
        const char *name = i < N_LOSSES ? losses[i] : metric.name;
        cr_expect(strata_tensor_is_poison(result), "%s", name);
        cr_expect_eq(strata_graph_check(graph, &err), STRATA_INVALID, "%s", name);
        cr_expect(strstr(err.message, "outputs have no axis of examples"), "%s: %s", name, err.message);
        strata_graph_destroy(graph);
    }
}

Test(loss, each_equals_pytorch_with_its_gradient) {
    strata_golden *golden = strata_golden_load("losses");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const strata_loss *loss = NULL;
        strata_loss_options opts = rows[i].opts;
        const strata_array *x = strata_golden_get(golden, rows[i].outputs), *y = strata_golden_get(golden, rows[i].labels);
        strata_graph *graph = NULL;
        strata_array got[2];
        char name[64];
        OK(strata_loss_find(rows[i].name, &loss, &err));
        if (loss->check) OK(loss->check(&opts, &err));
        OK(strata_graph_create(&graph, &err));
        strata_tensor *outputs = strata_input(graph, "x", x->dtype, x->shape),
                      *labels = strata_input(graph, "y", y->dtype, y->shape);
        strata_tensor *results[2] = {loss->build(&opts, outputs, labels)};
        strata_gradients(results[0], NULL, &outputs, 1, &results[1]);
        strata_test_feed feeds[] = {{outputs, (strata_array *)x}, {labels, (strata_array *)y}};
        OK(strata_test_eval(results, 2, feeds, 2, got, &err));
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s%s", rows[i].golden, k ? "_grad" : "");
            strata_test_result same =
                strata_test_compare(&got[k], strata_golden_get(golden, name), (strata_test_tolerance){1e-6, 1e-6});
            cr_assert(same.ok, "%s: %s", name, same.text);
            strata_array_finish(&got[k]);
        }
        strata_graph_destroy(graph);
    }
    strata_golden_destroy(golden);
}

/* Probabilities of exactly 0 and 1 count as the nearest floats to 1e-7 and 1 - 1e-7, as in Keras. */
Test(loss, certain_probabilities_are_bounded_on_both_sides) {
    float outputs[6] = {0, 1, 1, 0, 1, 0}, labels[6] = {1, 0, 1, 0, 0.5f, 0.5f};
    const double low = -log((double)1e-7f), high = -log(1 - (double)(float)(1 - 1e-7)), none = -log1p(-1e-7);
    const double want[6] = {low, high, none, none, high / 2, low / 2};
    strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(6, 1), outputs);
    strata_array y = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(6, 1), labels), got;
    strata_graph *graph = NULL;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *xs = strata_input(graph, "x", x.dtype, x.shape), *ys = strata_input(graph, "y", y.dtype, y.shape);
    const strata_loss_options opts = {.from_probabilities = true};
    strata_tensor *result = strata_example_losses("binary_crossentropy", &opts, xs, ys);
    OK(strata_test_eval(&result, 1, (strata_test_feed[]){{xs, &x}, {ys, &y}}, 2, &got, &err));
    for (int i = 0; i < 6; i++)
        cr_expect_float_eq((double)((const float *)got.data)[i], want[i], 1e-4, "p %g for the label %g: %g instead of %g",
                           (double)outputs[i], (double)labels[i], (double)((const float *)got.data)[i], want[i]);
    strata_array_finish(&got);
    strata_graph_destroy(graph);
}

Test(loss, options_that_are_wrong_say_so) {
    static const struct {
        const char *name, *text;
        strata_loss_options opts;
    } wrong[] = {{"huber", "delta is -1", {.delta = -1}},
                 {"huber", "delta is inf", {.delta = INFINITY}},
                 {"binary_crossentropy", "label_smoothing is 1;", {.label_smoothing = 1}},
                 {"categorical_crossentropy", "label_smoothing is -0.5", {.label_smoothing = -0.5}},
                 {"sparse_categorical_crossentropy", "label_smoothing is nan", {.label_smoothing = NAN}}};
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    strata_model *model = case_model_uncompiled();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_compile_options compile = {.loss = wrong[i].name, .loss_options = wrong[i].opts};
        FAILS(strata_model_compile(model, host, &compile, &err), STRATA_INVALID, wrong[i].text);
    }
    strata_model_destroy(model);
    strata_device_close(host);
}

/* ---- in a model, with labels of each kind ---- */

static strata_model *dense_model(strata_device *device, int64_t units, const char *loss) {
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(2, 3), &model, &err));
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = units});
    strata_compile_options compile = {.loss = loss, .optimizer = strata_adam_optimizer(0.05), .seed = 4};
    OK(strata_model_compile(model, device, &compile, &err));
    return model;
}

/* The elements of case_dataset with other labels. */
static strata_dataset *labelled(strata_dtype dtype, strata_shape shape, double (*label)(int32_t right, int64_t k)) {
    strata_array x, y, labels;
    strata_dataset *data = NULL;
    int64_t n = shape.dims[0], each = strata_shape_elements(shape) / n;
    case_arrays(n, &x, &y);
    OK(strata_array_create(dtype, shape, &labels, &err));
    for (int64_t i = 0; i < n * each; i++)
        strata_element_set(dtype, labels.data, i, label(((int32_t *)y.data)[i / each], i % each));
    strata_array_finish(&y);
    OK(strata_dataset_take_arrays(&x, &labels, 0, &data, &err));
    return data;
}

static double is_first(int32_t right, int64_t k) {
    (void)k;
    return right == 0;
}
static double is_class(int32_t right, int64_t k) {
    return right == k;
}
static double the_class(int32_t right, int64_t k) {
    (void)k;
    return right;
}

static strata_metrics trained(strata_device *device, int64_t units, const char *loss, strata_dataset *data) {
    strata_model *model = dense_model(device, units, loss);
    strata_metrics metrics;
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 30, .batch = 32}, NULL, &err));
    OK(strata_model_evaluate(model, data, 0, &metrics, &err));
    strata_array predictions;
    OK(strata_model_predict(model, data, 0, &predictions, &err));
    for (int64_t i = 0; i < strata_shape_elements(predictions.shape); i++)
        cr_assert(((float *)predictions.data)[i] >= 0 && ((float *)predictions.data)[i] <= 1, "not a probability");
    strata_array_finish(&predictions);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    return metrics;
}

TEST_ON_DEVICES(loss, yes_or_no_is_learnt_from_integers_and_from_numbers) {
    strata_metrics integers =
        trained(device, 1, "binary_crossentropy", labelled(STRATA_DTYPE_I32, STRATA_SHAPE(301), is_first));
    strata_metrics numbers =
        trained(device, 1, "binary_crossentropy", labelled(STRATA_DTYPE_F32, STRATA_SHAPE(301, 1), is_first));
    cr_assert_gt(integers.accuracy, 0.9);
    cr_assert(integers.loss == numbers.loss && integers.accuracy == numbers.accuracy);
}

TEST_ON_DEVICES(loss, several_yes_or_no_and_distributions_are_learnt) {
    strata_metrics yes = trained(device, 3, "binary_crossentropy", labelled(STRATA_DTYPE_U8, STRATA_SHAPE(301, 3), is_class));
    cr_assert_gt(yes.accuracy, 0.85);
    strata_metrics dense =
        trained(device, 3, "categorical_crossentropy", labelled(STRATA_DTYPE_F32, STRATA_SHAPE(301, 3), is_class));
    strata_metrics sparse =
        trained(device, 3, "sparse_categorical_crossentropy", labelled(STRATA_DTYPE_I64, STRATA_SHAPE(301), the_class));
    cr_assert_gt(dense.accuracy, 0.9);
    cr_assert_float_eq(dense.loss, sparse.loss, 1e-4);
    cr_assert_float_eq(dense.accuracy, sparse.accuracy, 0.01);
    strata_metrics classes =
        trained(device, 3, "categorical_crossentropy", labelled(STRATA_DTYPE_I64, STRATA_SHAPE(301), the_class));
    cr_assert(classes.loss == dense.loss && classes.accuracy == dense.accuracy);
    strata_dataset *pipeline = labelled(STRATA_DTYPE_I32, STRATA_SHAPE(301), the_class);
    OK(strata_dataset_batch(&pipeline, 32, false, &err));
    cr_assert_gt(trained(device, 3, "categorical_crossentropy", pipeline).accuracy, 0.9);
}

TEST_ON_HOST(loss, of_classes_needs_an_output_for_each) {
    static const char *const losses[] = {"sparse_categorical_crossentropy", "categorical_crossentropy"};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        strata_model *model = NULL;
        OK(strata_model_create(STRATA_SHAPE(6), &model, &err));
        strata_model_add_dense(model, (strata_dense_options){.units = 1});
        FAILS(strata_model_compile(model, device, &(strata_compile_options){.loss = losses[i]}, &err), STRATA_INVALID,
              "it has one output");
        strata_model_destroy(model);
    }
}

TEST_ON_HOST(loss, labels_that_do_not_fit_are_refused) {
    const struct {
        int64_t units;
        const char *loss;
        strata_dataset *data;
        const char *text;
    } wrong[] = {
        {1, "binary_crossentropy", labelled(STRATA_DTYPE_I32, STRATA_SHAPE(30), the_class), "the largest label is 2"},
        {2, "categorical_crossentropy", labelled(STRATA_DTYPE_I32, STRATA_SHAPE(30), the_class), "the largest label is 2"},
        {3, "mse", labelled(STRATA_DTYPE_F32, STRATA_SHAPE(30), is_first), "there is one label an example"},
        {3, "mae", labelled(STRATA_DTYPE_F32, STRATA_SHAPE(30, 2), is_class), "the labels are (2) an example"},
        {3, "sparse_categorical_crossentropy", labelled(STRATA_DTYPE_F32, STRATA_SHAPE(30), the_class), "the labels are f32"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_model *model = dense_model(device, wrong[i].units, wrong[i].loss);
        FAILS(strata_model_fit(model, wrong[i].data, NULL, NULL, &err), STRATA_DATA, wrong[i].text);
        strata_model_destroy(model);
        strata_dataset_destroy(wrong[i].data);
    }
}

Test(loss, json_reads_options_and_writes_them) {
    static const char text[] =
        "{\"label\":\"\",\"input\":[3],\"layers\":[{\"layer\":\"dense\",\"name\":\"dense\",\"units\":2}],"
        "\"loss\":{\"name\":\"huber\",\"delta\":2.5}}";
    strata_model *model = NULL;
    char *again = NULL;
    OK(strata_model_from_json(text, sizeof text - 1, "m.json", &model, &err));
    OK(strata_model_to_json(model, &again, &err));
    cr_assert_str_eq(again, text);
    free(again);
    strata_model_destroy(model);
}

/* Each loss with each of its options alone: the others stay at their defaults, which are not written. */
Test(loss, each_option_may_be_given_alone) {
    for (int i = 0; i < TEST_LOSSES; i++) {
        const strata_loss *loss = NULL;
        OK(strata_loss_find(test_losses[i], &loss, &err));
        for (const strata_option *option = loss->options; option->name; option++) {
            char text[300], *again = NULL;
            strata_model *model = NULL;
            snprintf(text, sizeof text,
                     "{\"label\":\"\",\"input\":[3],\"layers\":[{\"layer\":\"dense\",\"name\":\"dense\",\"units\":2%s}],"
                     "\"loss\":{\"name\":\"%s\",\"%s\":%s}}",
                     option->kind == STRATA_OPTION_BOOL ? ",\"activation\":\"sigmoid\"" : "", test_losses[i], option->name,
                     option->kind == STRATA_OPTION_BOOL ? "true" : "0.25");
            OK(strata_model_from_json(text, strlen(text), "m.json", &model, &err));
            OK(strata_model_to_json(model, &again, &err));
            cr_expect_str_eq(again, text, "%s is not %s", again, text);
            free(again);
            strata_model_destroy(model);
        }
    }
}

/* A number of an example is a label without axes, unless it is one of a distribution. */
Test(loss, labels_have_the_shape_of_the_outputs_or_are_one_number) {
    const strata_shape outputs[] = {STRATA_SHAPE(1), STRATA_SHAPE(3), STRATA_SHAPE(1, 1), STRATA_SHAPE(2, 1), STRATA_SHAPE(0)};
    for (int i = 0; i < TEST_LOSSES; i++) {
        const strata_loss *loss = NULL;
        const bool classes = !strcmp(test_losses[i], "sparse_categorical_crossentropy");
        const bool is_distribution = !strcmp(test_losses[i], "categorical_crossentropy");
        OK(strata_loss_find(test_losses[i], &loss, &err));
        cr_expect_eq(strata_loss_label_dtype(loss), classes ? STRATA_DTYPE_I32 : STRATA_DTYPE_F32);
        for (size_t k = 0; k < sizeof outputs / sizeof *outputs; k++) {
            const bool one = classes || (!is_distribution && (k == 0 || k == 2));
            const strata_shape wanted = one ? STRATA_SHAPE() : outputs[k], got = strata_loss_label_shape(loss, outputs[k]);
            cr_expect(strata_shape_equal(got, wanted), "%s: labels of %s are %s", test_losses[i],
                      strata_shape_text(outputs[k]).text, strata_shape_text(got).text);
        }
    }
}
