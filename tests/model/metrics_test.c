/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics compared with counting on the host, in training and evaluation, for all kinds of labels; and errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_case.h"
#include "tests/support/check.h"

static strata_error err;

static double value_of(const strata_metrics *metrics, const char *name) {
    for (int i = 0; i < metrics->n; i++)
        if (!strcmp(metrics->more[i].name, name)) return metrics->more[i].value;
    cr_assert(false, "there is no %s", name);
    return NAN;
}

/* A model whose outputs are its inputs: each dense unit has one weight of 1. So the test chooses the outputs. */
static strata_model *identity(strata_device *device, int64_t n, const char *loss, const char *metrics) {
    strata_model *model = NULL;
    float ones[16] = {0};
    for (int64_t i = 0; i < n; i++) ones[i * n + i] = 1;
    strata_array kernel = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n, n), ones);
    OK(strata_model_create(STRATA_SHAPE(n), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = n, .no_bias = true});
    OK(strata_model_compile(model, device, &(strata_compile_options){.loss = loss, .metrics = metrics}, &err));
    OK(strata_model_set_parameter(model, 0, &kernel, &err));
    return model;
}

TEST_ON_DEVICES(metrics, classes_are_counted_as_on_the_host) {
    enum { N = 101, C = 4 };
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(N, C), -1, 1, 3), y;
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(N), &y, &err));
    int64_t counts[C][C] = {{0}}, top_2 = 0;
    for (int i = 0; i < N; i++) {
        const float *row = (float *)x.data + i * C;
        int label = (i * 7 + i / 3) % C, best = 0, above = 0;
        for (int c = 0; c < C; c++) {
            if (row[c] > row[best]) best = c;
            above += row[c] > row[label];
        }
        ((int32_t *)y.data)[i] = label;
        counts[label][best]++;
        top_2 += above < 2;
    }
    double precision = 0, recall = 0;
    for (int c = 0; c < C; c++) {
        int64_t taken = 0, are = 0;
        for (int k = 0; k < C; k++) taken += counts[k][c], are += counts[c][k];
        precision += taken ? (double)counts[c][c] / (double)taken / C : 0; /* each class is the label of an example */
        recall += are ? (double)counts[c][c] / (double)are / C : 0;
    }
    strata_dataset *data = NULL;
    OK(strata_dataset_take_arrays(&x, &y, 0, &data, &err));
    strata_model *model = identity(device, C, "sparse_categorical_crossentropy",
                                   "precision,top_2_accuracy, recall,confusion_matrix,accuracy,top_4_accuracy");
    strata_metrics got;
    strata_array matrix;
    OK(strata_model_evaluate(model, data, 17, &got, &err));
    cr_assert_eq(got.n, 4);
    cr_assert_float_eq(value_of(&got, "precision"), precision, 1e-9);
    cr_assert_float_eq(value_of(&got, "recall"), recall, 1e-9);
    cr_assert_float_eq(value_of(&got, "top_2_accuracy"), (double)top_2 / N, 1e-9);
    cr_assert_eq(value_of(&got, "top_4_accuracy"), 1);
    OK(strata_model_confusion_matrix(model, &matrix, &err));
    cr_assert_arr_eq(matrix.data, counts, sizeof counts);
    strata_array_finish(&matrix);
    /* Training sums the same metrics over an epoch. Its learning rate is so small that the model does not change. */
    strata_history history = {0};
    strata_model_destroy(model);
    model = NULL;
    OK(strata_model_create(STRATA_SHAPE(C), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = C});
    strata_compile_options compile = {.metrics = "recall,top_2_accuracy", .optimizer = strata_sgd_optimizer(1e-12, 0, false)};
    OK(strata_model_compile(model, device, &compile, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 2, .batch = 17}, &history, &err));
    OK(strata_model_evaluate(model, data, 0, &got, &err));
    for (int epoch = 0; epoch < 2; epoch++)
        for (int i = 0; i < 2; i++) cr_assert_float_eq(history.epochs[epoch].more[i].value, got.more[i].value, 1e-6);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

/* Labels 0 1 3 3 1 0 3 1 and answers 0 3 3 1 1 0 3 0: class 2 is neither. The values are those of scikit-learn's
 * precision_score and recall_score with average="macro". */
TEST_ON_HOST(metrics, a_class_that_does_not_occur_is_left_out_of_means) {
    enum { N = 8, C = 4 };
    static const int answers[N] = {0, 3, 3, 1, 1, 0, 3, 0};
    int32_t y[N] = {0, 1, 3, 3, 1, 0, 3, 1};
    float x[N * C] = {0};
    for (int i = 0; i < N; i++) x[i * C + answers[i]] = 1;
    strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, C), x);
    strata_array labels = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(N), y);
    strata_dataset *data = NULL;
    strata_metrics got;
    OK(strata_dataset_from_arrays(&features, &labels, 0, &data, &err));
    strata_model *model = identity(device, C, "sparse_categorical_crossentropy", "precision,recall");
    OK(strata_model_evaluate(model, data, 0, &got, &err));
    cr_assert_float_eq(value_of(&got, "precision"), 0.611111111111111, 1e-9);
    cr_assert_float_eq(value_of(&got, "recall"), 0.6666666666666666, 1e-9);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

/* 101 logits of -5 to -4.98, of which many are equal. Keras' AUC with 200 thresholds is 0.5. The area is that of scikit-learn's
 * roc_auc_score. It is the same in training, as the learning rate is 0, and weights of examples do not change it. */
TEST_ON_HOST(metrics, auc_is_exact_however_near_predictions_are) {
    enum { N = 101 };
    const double want = 0.5003209242618741;
    float x[N], y[N], one[N], w[N], bias = 0;
    for (int i = 0; i < N; i++) {
        x[i] = -5 + 0.002f * (float)((i * 37) % 11);
        y[i] = (float)((i * 7 + i / 3) % 5 == 0);
        w[i] = 0.5f + (float)(i % 3);
    }
    one[0] = 1;
    strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, 1), x);
    strata_array labels = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N), y);
    strata_array weights = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N), w);
    strata_array kernel = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1, 1), one);
    strata_array zero = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1), &bias);
    strata_dataset *data = NULL;
    OK(strata_dataset_from_arrays(&features, &labels, 0, &data, &err));
    OK(strata_dataset_set_weights(data, &weights, &err));
    for (int accumulated = 0; accumulated < 2; accumulated++) {
        strata_model *model = NULL;
        strata_metrics got;
        strata_history history = {0};
        OK(strata_model_create(STRATA_SHAPE(1), &model, &err));
        strata_model_add_dense(model, (strata_dense_options){.units = 1});
        strata_compile_options compile = {.loss = "binary_crossentropy",
                                          .metrics = "precision,auc",
                                          .optimizer = {.name = "sgd", .learning_rate = STRATA_ZERO}};
        if (accumulated) compile.optimizer.gradient_accumulation_steps = 3;
        OK(strata_model_compile(model, device, &compile, &err));
        OK(strata_model_set_parameter(model, 0, &kernel, &err));
        OK(strata_model_set_parameter(model, 1, &zero, &err));
        OK(strata_model_evaluate(model, data, 17, &got, &err));
        cr_assert_float_eq(value_of(&got, "auc"), want, 1e-9);
        const strata_fit_options opts = {.epochs = 2, .batch = 10, .validation = data};
        OK(strata_model_fit(model, data, &opts, &history, &err));
        for (int e = 0; e < 2; e++) {
            cr_assert_float_eq(value_of(&history.epochs[e], "auc"), want, 1e-9);
            cr_assert_float_eq(value_of(&history.validation[e], "auc"), want, 1e-9);
        }
        strata_history_finish(&history);
        strata_model_destroy(model);
    }
    strata_dataset_destroy(data);
}

TEST_ON_HOST(metrics, auc_of_one_class_is_nan) {
    float x[3] = {1, 2, 3}, y[3] = {1, 1, 1};
    strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3, 1), x);
    strata_array labels = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3), y);
    strata_dataset *data = NULL;
    strata_metrics got;
    OK(strata_dataset_from_arrays(&features, &labels, 0, &data, &err));
    strata_model *model = identity(device, 1, "binary_crossentropy", "auc");
    OK(strata_model_evaluate(model, data, 0, &got, &err));
    cr_assert(isnan(value_of(&got, "auc")));
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

/* The values are those of scikit-learn's roc_auc_score and of keras.metrics.Precision, Recall and MeanAbsoluteError for the
 * sigmoids of the outputs. */
TEST_ON_DEVICES(metrics, yes_or_no_equals_keras) {
    float x[10] = {-2, -1, -0.5f, 0.25f, 0.5f, 1, 1.5f, -0.25f, 3, -3}, y[10] = {0, 0, 1, 0, 1, 1, 1, 0, 0, 1};
    strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(10, 1), x);
    strata_array labels = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(10), y);
    strata_dataset *data = NULL;
    OK(strata_dataset_from_arrays(&features, &labels, 0, &data, &err));
    strata_model *model = identity(device, 1, "binary_crossentropy", "auc,precision,recall,mae,confusion_matrix");
    strata_metrics got;
    strata_array matrix;
    OK(strata_model_evaluate(model, data, 4, &got, &err));
    cr_assert_float_eq(value_of(&got, "auc"), 0.56, 1e-6);
    cr_assert_float_eq(value_of(&got, "precision"), 0.6, 1e-9);
    cr_assert_float_eq(value_of(&got, "recall"), 0.6, 1e-9);
    cr_assert_float_eq(value_of(&got, "mae"), 0.47446597, 1e-6);
    cr_assert_float_eq(got.accuracy, 0.6, 1e-9);
    OK(strata_model_confusion_matrix(model, &matrix, &err));
    cr_assert_arr_eq(matrix.data, ((int64_t[]){3, 2, 2, 3}), 4 * sizeof(int64_t));
    strata_array_finish(&matrix);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

Test(metrics, what_makes_no_sense_is_refused) {
    static const struct {
        const char *loss, *metrics, *text;
    } wrong[] = {
        {"mse", "precision", "metric precision: mse has no right and wrong answers"},
        {"mse", "top_3_accuracy", "mse has no classes"},
        {"sparse_categorical_crossentropy", "mae", "has classes, not numbers"},
        {"sparse_categorical_crossentropy", "auc", "it needs one yes-or-no output"},
        {"binary_crossentropy", "confusion_matrix", "it needs one yes-or-no output, or classes"},
        {"sparse_categorical_crossentropy", "top_0_accuracy", "the number is 0"},
        {"sparse_categorical_crossentropy", "top__accuracy", "there is no metric \"top__accuracy\""},
        {"sparse_categorical_crossentropy", "recall,f1", "there is no metric \"f1\"; there are: loss, accuracy,"},
    };
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    strata_model *model = case_model_uncompiled();
    strata_array matrix;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_compile_options compile = {.loss = wrong[i].loss, .metrics = wrong[i].metrics};
        FAILS(strata_model_compile(model, host, &compile, &err), STRATA_INVALID, wrong[i].text);
    }
    char many[500] = "";
    for (int k = 1; k <= STRATA_MAX_METRICS + 1; k++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "%stop_%d_accuracy", k > 1 ? "," : "", k);
    FAILS(strata_model_compile(model, host, &(strata_compile_options){.metrics = many}, &err), STRATA_INVALID,
          "there can be 24 metrics");
    OK(strata_model_compile(model, host, NULL, &err)); /* the failed calls have not changed the model */
    FAILS(strata_model_confusion_matrix(model, &matrix, &err), STRATA_INVALID, "not among the model's metrics");
    strata_model_destroy(model);
    strata_device_close(host);
}

Test(metrics, json_names_them) {
    static const char text[] =
        "{\"label\":\"\",\"input\":[3],\"layers\":[{\"layer\":\"dense\",\"name\":\"dense\",\"units\":2}],"
        "\"metrics\":[\"recall\",\"top_2_accuracy\"]}";
    static const char wrong[] = "{\"input\":[3],\"layers\":[{\"layer\":\"dense\",\"units\":2}],\"metrics\":[\"f1\"]}";
    strata_model *model = NULL;
    char *again = NULL;
    OK(strata_model_from_json(text, sizeof text - 1, "m.json", &model, &err));
    OK(strata_model_to_json(model, &again, &err));
    cr_assert_str_eq(again, text);
    free(again);
    strata_model_destroy(model);
    model = NULL;
    FAILS(strata_model_from_json(wrong, sizeof wrong - 1, "m.json", &model, &err), STRATA_DATA, "metrics[0]");
    cr_assert_not_null(strstr(err.message, "no metric \"f1\""));
}

/* ---- in graphs of the program ---- */

/* Computes the sums of the metric over n examples in a graph on the device. Returns how many sums the metric has. */
static int64_t graph_sums(strata_device *device, const strata_metric *metric, const float *x, const void *y, int64_t n,
                          int64_t c, strata_dtype labels, double *totals) {
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    int slot = 0;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *outputs = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(n, c));
    strata_tensor *sums = strata_metric_sums(metric, outputs, strata_input(graph, "y", labels, STRATA_SHAPE(n)));
    OK(strata_graph_check(graph, &err));
    const int64_t n_sums = strata_shape_elements(strata_tensor_shape(sums));
    OK(strata_executable_create(device, &sums, 1, NULL, 0, NULL, &exe, &err));
    strata_graph_destroy(graph);
    OK(strata_executable_acquire(exe, &slot, &err));
    memcpy(strata_executable_input(exe, slot, strata_executable_input_index(exe, "x")), x, (size_t)(n * c) * sizeof *x);
    memcpy(strata_executable_input(exe, slot, strata_executable_input_index(exe, "y")), y, (size_t)n * 4);
    OK(strata_executable_submit(exe, slot, &err));
    OK(strata_executable_wait(exe, slot, &err));
    const float *got = strata_executable_output(exe, slot, 0);
    for (int64_t i = 0; i < n_sums; i++) totals[i] += (double)got[i];
    strata_executable_destroy(exe);
    return n_sums;
}

/* The metrics of a graph, computed from batches of 60 and 41 examples, must be those of a model with the same outputs. */
static void compare_with_model(strata_device *device, const char *loss, int64_t c, strata_dtype labels, const char *names) {
    enum { N = 101, FIRST = 60, MOST_SUMS = 4096 };
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(N, c), -1, 1, 3), y;
    OK(strata_array_create(labels, STRATA_SHAPE(N), &y, &err));
    for (int i = 0; i < N; i++) {
        if (labels == STRATA_DTYPE_I32)
            ((int32_t *)y.data)[i] = (int32_t)((i * 7 + i / 3) % c);
        else
            ((float *)y.data)[i] = (float)((i * 7 + i / 3) % 2);
    }
    strata_dataset *data = NULL;
    OK(strata_dataset_from_arrays(&x, &y, 0, &data, &err));
    strata_model *model = identity(device, c, loss, names);
    strata_metrics metrics;
    OK(strata_model_evaluate(model, data, 0, &metrics, &err));
    char copy[128], *rest = NULL;
    snprintf(copy, sizeof copy, "%s,accuracy", names);
    for (char *name = strtok_r(copy, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        static double totals[MOST_SUMS];
        const strata_metric metric = {.name = name, .loss = loss};
        double value = -1;
        if (!strcmp(name, "accuracy") && !metrics.accuracy) continue; /* the loss does not classify */
        memset(totals, 0, sizeof totals);
        graph_sums(device, &metric, x.data, y.data, FIRST, c, labels, totals);
        graph_sums(device, &metric, (float *)x.data + FIRST * c, (float *)y.data + FIRST, N - FIRST, c, labels, totals);
        OK(strata_metric_value(&metric, STRATA_SHAPE(c), totals, N, &value, &err));
        const double wanted = strcmp(name, "accuracy") ? value_of(&metrics, name) : metrics.accuracy;
        cr_assert_float_eq(value, wanted, 1e-6, "%s of %s: %g, not %g", name, loss, value, wanted);
    }
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_array_finish(&x);
    strata_array_finish(&y);
}

/* 10 outputs, whose 200 thresholds all lie between other outputs. The value is that of keras.metrics.AUC. */
TEST_ON_DEVICES(metrics, auc_of_sums_equals_keras) {
    const float x[10] = {-2, -1, -0.5f, 0.25f, 0.5f, 1, 1.5f, -0.25f, 3, -3}, y[10] = {0, 0, 1, 0, 1, 1, 1, 0, 0, 1};
    const strata_metric metric = {.name = "auc", .loss = "binary_crossentropy"};
    double totals[400] = {0}, value = 0;
    cr_assert_eq(graph_sums(device, &metric, x, y, 10, 1, STRATA_DTYPE_F32, totals), 400);
    OK(strata_metric_value(&metric, STRATA_SHAPE(1), totals, 10, &value, &err));
    cr_assert_float_eq(value, 0.56, 1e-6);
}

/* Label 7 of 3 classes: with K = 2, as many outputs are above it as there are. */
TEST_ON_HOST(metrics, a_label_out_of_range_is_never_right) {
    const float x[6] = {-3, -2, -1, -3, -2, -1};
    const int32_t y[2] = {7, 2};
    const strata_metric metric = {.name = "top_2_accuracy", .loss = "sparse_categorical_crossentropy"};
    double totals[1] = {0};
    graph_sums(device, &metric, x, y, 2, 3, STRATA_DTYPE_I32, totals);
    cr_assert_eq(totals[0], 1);
}

TEST_ON_DEVICES(metrics, graphs_of_ones_own_have_those_of_models) {
    compare_with_model(device, "sparse_categorical_crossentropy", 4, STRATA_DTYPE_I32, "precision,recall,top_2_accuracy");
    compare_with_model(device, "categorical_crossentropy", 4, STRATA_DTYPE_I32, "precision,top_3_accuracy");
    compare_with_model(device, "binary_crossentropy", 1, STRATA_DTYPE_F32, "precision,recall");
    compare_with_model(device, "mse", 1, STRATA_DTYPE_F32, "mae");
}

Test(metrics, wrong_metrics_of_graphs_are_told) {
    static const struct {
        strata_metric metric;
        const char *words;
    } cases[] = {{{"acuracy", "mse", {.delta = 0}}, "there is no metric \"acuracy\""},
                 {{"accuracy", "mse", {.delta = 0}}, "no right or wrong"},
                 {{"accuracy", "msee", {.delta = 0}}, "msee"},
                 {{"auc", "sparse_categorical_crossentropy", {.delta = 0}}, "auc"},
                 {{NULL, "mse", {.delta = 0}}, "its name"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_graph *graph = NULL;
        double value, sums[8] = {0};
        OK(strata_graph_create(&graph, &err));
        strata_metric_sums(&cases[i].metric, strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(5, 3)),
                           strata_input(graph, "y", STRATA_DTYPE_I32, STRATA_SHAPE(5)));
        cr_expect_eq(strata_graph_check(graph, &err), STRATA_INVALID);
        cr_expect(strstr(err.message, cases[i].words), "%s", err.message);
        strata_graph_destroy(graph);
        cr_expect_eq(strata_metric_value(&cases[i].metric, STRATA_SHAPE(3), sums, 5, &value, &err), STRATA_INVALID);
        cr_expect(strstr(err.message, cases[i].words), "%s", err.message);
    }
    const strata_metric counts = {.name = "confusion_matrix", .loss = "sparse_categorical_crossentropy"};
    double value, sums[9] = {0};
    cr_expect_eq(strata_metric_value(&counts, STRATA_SHAPE(3), sums, 5, &value, &err), STRATA_INVALID);
    cr_expect(strstr(err.message, "no single value"), "%s", err.message);
    const strata_metric accuracy = {.name = "accuracy", .loss = "sparse_categorical_crossentropy"};
    cr_expect_eq(strata_metric_value(&accuracy, STRATA_SHAPE(3), sums, 0, &value, &err), STRATA_INVALID);
    cr_expect(strstr(err.message, "0 examples"), "%s", err.message);
}
