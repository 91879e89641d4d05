/* SPDX-License-Identifier: Apache-2.0
 *
 * Models whose layers are called one by one: several inputs and outputs, shared layers, and errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_case.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

TestSuite(functional, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;

/* ---- a chain of calls is a sequential model ---- */

static strata_model *chain(void) {
    strata_model *model = NULL;
    OK(strata_model_create_functional(&model, &err));
    const strata_value *x = strata_model_input(model, "x", STRATA_SHAPE(2, 3), STRATA_DTYPE_F32);
    strata_model_add_flatten(model, (strata_flatten_options){0});
    x = strata_layer_call(model, NULL, &x, 1);
    strata_model_add_dense(model, (strata_dense_options){.units = CASE_HIDDEN, .activation = "tanh"});
    x = strata_layer_call(model, NULL, &x, 1);
    strata_model_add_batch_norm(model, (strata_batch_norm_options){0});
    x = strata_layer_call(model, NULL, &x, 1);
    strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.3});
    x = strata_layer_call(model, NULL, &x, 1);
    strata_model_add_dense(model, (strata_dense_options){.units = CASE_CLASSES});
    strata_model_output(model, strata_layer_call(model, NULL, &x, 1), (strata_output_options){0});
    return model;
}

static void fit_chain(strata_device *device, strata_model *model, strata_metrics *metrics, strata_array *predictions) {
    strata_dataset *data = case_dataset(50);
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_adam_optimizer(0.01), .seed = 3},
                            &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 3, .batch = 16, .seed = 2}, NULL, &err));
    OK(strata_model_evaluate(model, data, 16, metrics, &err));
    OK(strata_model_predict(model, data, 16, predictions, &err));
    strata_dataset_destroy(data);
}

TEST_ON_DEVICES(functional, a_chain_has_the_bits_of_a_sequential_model) {
    strata_model *models[] = {case_model_with_states(), chain()};
    strata_metrics metrics[2];
    strata_array predictions[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) fit_chain(device, models[i], &metrics[i], &predictions[i]);
    cr_assert_str_eq(case_sha(models[0]), case_sha(models[1]));
    cr_assert_eq(metrics[0].loss, metrics[1].loss);
    cr_assert_eq(metrics[0].accuracy, metrics[1].accuracy);
    strata_test_result same = strata_test_same(&predictions[1], &predictions[0]);
    cr_assert(same.ok, "%s", same.text);
    for (int i = 0; i < 2; i++) {
        strata_array_finish(&predictions[i]);
        strata_model_destroy(models[i]);
    }
}

/* ---- two inputs, a shared layer, two outputs ----
 * The inputs left (3) and right (3) share the layer h(v) = tanh(v W + b) with 4 units. There are two outputs:
 *     sum    (h(left) + h(right)) U + c          2 numbers, loss mse
 *     kind   concat(h(left), h(right)) V + d     3 classes, loss sparse_categorical_crossentropy with weight 0.5 */

enum { SIDE = 3, HIDDEN = 4, NUMBERS = 2, CLASSES = 3, N = 24, BATCH = 8 };

static strata_model *twins(void) {
    strata_model *model = NULL;
    OK(strata_model_create_functional(&model, &err));
    const strata_value *left = strata_model_input(model, "left", STRATA_SHAPE(SIDE), STRATA_DTYPE_F32);
    const strata_value *right = strata_model_input(model, "right", STRATA_SHAPE(SIDE), STRATA_DTYPE_F32);
    strata_model_add_dense(model, (strata_dense_options){.units = HIDDEN, .activation = "tanh", .name = "side"});
    const strata_value *sides[] = {strata_layer_call(model, "side", &left, 1), strata_layer_call(model, "side", &right, 1)};
    strata_model_add_add(model, (strata_add_options){.name = "both"});
    const strata_value *both = strata_layer_call(model, NULL, sides, 2);
    strata_model_add_dense(model, (strata_dense_options){.units = NUMBERS, .name = "sum"});
    const strata_value *sum = strata_layer_call(model, NULL, &both, 1);
    strata_model_add_concat(model, (strata_concat_options){0});
    const strata_value *beside = strata_layer_call(model, NULL, sides, 2);
    strata_model_add_dense(model, (strata_dense_options){.units = CLASSES, .name = "logits"});
    const strata_value *logits = strata_layer_call(model, NULL, &beside, 1);
    strata_model_output(model, sum, (strata_output_options){.loss = "mse", .metrics = "mae"});
    strata_model_output(
        model, logits,
        (strata_output_options){
            .name = "kind", .loss = "sparse_categorical_crossentropy", .weight = 0.5, .metrics = "top_2_accuracy"});
    return model;
}

typedef struct twin_data {
    strata_array left, right, sum, kind;
    strata_dataset *dataset;
} twin_data;

static twin_data make_data(void) {
    twin_data d = {.left = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(N, SIDE), -1, 1, 1),
                   .right = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(N, SIDE), -1, 1, 2),
                   .sum = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(N, NUMBERS), -1, 1, 3)};
    OK(strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(N), &d.kind, &err));
    for (int i = 0; i < N; i++) ((uint8_t *)d.kind.data)[i] = (uint8_t)(i * 7 % CLASSES);
    OK(strata_dataset_from_columns((strata_data_column[]){{"right", &d.right, 0}, {"left", &d.left, 0}}, 2,
                                   (strata_data_column[]){{"kind", &d.kind, 0}, {"sum", &d.sum, 0}}, 2, &d.dataset, &err));
    return d;
}

static void free_data(twin_data *d) {
    strata_dataset_destroy(d->dataset);
    strata_array_finish(&d->left);
    strata_array_finish(&d->right);
    strata_array_finish(&d->sum);
    strata_array_finish(&d->kind);
}

static strata_model *compiled(strata_device *device, strata_optimizer optimizer) {
    strata_model *model = twins();
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = optimizer, .seed = 4}, &err));
    return model;
}

/* The parameters W, b, U, c, V, d, in the order of the model. */
typedef struct parameters {
    double w[SIDE][HIDDEN], b[HIDDEN], u[HIDDEN][NUMBERS], c[NUMBERS], v[2 * HIDDEN][CLASSES], d[CLASSES];
} parameters;
enum { N_PARAMETERS = sizeof(parameters) / sizeof(double) };

static void read_parameters(strata_model *model, double *out) {
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        strata_array value;
        OK(strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(model, i).shape, &value, &err));
        OK(strata_model_get_parameter(model, i, &value, &err));
        for (int64_t k = 0; k < strata_shape_elements(value.shape); k++) *out++ = (double)((float *)value.data)[k];
        strata_array_finish(&value);
    }
}

typedef struct losses {
    double sum, kind, all;
} losses;

/* Computes the forward pass of one example and adds to the batch's mean losses. predictions: NUMBERS numbers, then CLASSES
 * probabilities. */
static void forward(const parameters *p, const twin_data *data, int i, int n, losses *out, double *predictions) {
    const float *sides[] = {(float *)data->left.data + i * SIDE, (float *)data->right.data + i * SIDE};
    const float *wanted = (float *)data->sum.data + i * NUMBERS;
    double h[2][HIDDEN], logits[CLASSES], total = 0;
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < HIDDEN; k++) {
            double z = p->b[k];
            for (int j = 0; j < SIDE; j++) z += (double)sides[s][j] * p->w[j][k];
            h[s][k] = tanh(z);
        }
    for (int o = 0; o < NUMBERS; o++) {
        double y = p->c[o];
        for (int k = 0; k < HIDDEN; k++) y += (h[0][k] + h[1][k]) * p->u[k][o];
        out->sum += (y - (double)wanted[o]) * (y - (double)wanted[o]) / NUMBERS / n;
        if (predictions) predictions[o] = y;
    }
    for (int c = 0; c < CLASSES; c++) {
        logits[c] = p->d[c];
        for (int k = 0; k < 2 * HIDDEN; k++) logits[c] += h[k / HIDDEN][k % HIDDEN] * p->v[k][c];
        total += exp(logits[c]);
    }
    for (int c = 0; c < CLASSES && predictions; c++) predictions[NUMBERS + c] = exp(logits[c]) / total;
    out->kind += (log(total) - logits[((uint8_t *)data->kind.data)[i]]) / n;
    out->all = out->sum + 0.5 * out->kind;
}

static losses mean_losses(const parameters *p, const twin_data *data, int first, int n) {
    losses l = {0};
    for (int i = first; i < first + n; i++) forward(p, data, i, n, &l, NULL);
    return l;
}

/* Makes a step of gradient descent. The gradients are central differences of the reference in double precision. */
static void descend(parameters *p, const twin_data *data, int first, double rate) {
    double gradient[N_PARAMETERS], *at = (double *)p;
    const double e = 1e-5;
    for (int k = 0; k < (int)N_PARAMETERS; k++) {
        const double kept = at[k];
        at[k] = kept + e;
        const double above = mean_losses(p, data, first, BATCH).all;
        at[k] = kept - e;
        gradient[k] = (above - mean_losses(p, data, first, BATCH).all) / (2 * e);
        at[k] = kept;
    }
    for (int k = 0; k < (int)N_PARAMETERS; k++) at[k] -= rate * gradient[k];
}

static double metric(const strata_metrics *metrics, const char *name) {
    for (int i = 0; i < metrics->n; i++)
        if (!strcmp(metrics->more[i].name, name)) return metrics->more[i].value;
    cr_assert_fail("there is no metric %s", name);
    return 0;
}

TEST_ON_DEVICES(functional, two_inputs_and_two_outputs_agree_with_a_reference_in_double) {
    twin_data data = make_data();
    strata_model *model = compiled(device, strata_sgd_optimizer(0.3, 0, false));
    parameters p, got;
    strata_history history = {0};
    read_parameters(model, (double *)&p);
    OK(strata_model_fit(model, data.dataset, &(strata_fit_options){.epochs = 2, .batch = BATCH, .no_shuffle = true}, &history,
                        &err));
    for (int step = 0; step < 2 * N / BATCH; step++) {
        const int first = step * BATCH % N;
        cr_assert_float_eq(history.losses[step], mean_losses(&p, &data, first, BATCH).all, 2e-5, "step %d", step);
        descend(&p, &data, first, 0.3);
    }
    read_parameters(model, (double *)&got);
    for (int k = 0; k < (int)N_PARAMETERS; k++)
        cr_assert_float_eq(((double *)&got)[k], ((double *)&p)[k], 2e-5, "parameter %d", k);
    strata_metrics metrics;
    OK(strata_model_evaluate(model, data.dataset, 7, &metrics, &err));
    const losses l = mean_losses(&p, &data, 0, N);
    cr_assert_float_eq(metrics.loss, l.all, 2e-5);
    cr_assert_float_eq(metric(&metrics, "sum/loss"), l.sum, 2e-5);
    cr_assert_float_eq(metric(&metrics, "kind/loss"), l.kind, 2e-5);
    double mae = 0, right = 0, predictions[NUMBERS + CLASSES];
    strata_array given[2] = {{0}, {0}};
    OK(strata_model_predict_all(model, data.dataset, 7, given, &err));
    cr_assert(strata_shape_equal(given[0].shape, STRATA_SHAPE(N, NUMBERS)));
    cr_assert(strata_shape_equal(given[1].shape, STRATA_SHAPE(N, CLASSES)));
    for (int i = 0; i < N; i++) {
        losses ignored = {0};
        const int kind = ((uint8_t *)data.kind.data)[i];
        forward(&p, &data, i, N, &ignored, predictions);
        for (int o = 0; o < NUMBERS; o++) {
            mae += fabs(predictions[o] - (double)((float *)data.sum.data)[i * NUMBERS + o]) / NUMBERS / N;
            cr_assert_float_eq(((float *)given[0].data)[i * NUMBERS + o], predictions[o], 2e-5);
        }
        bool best = true;
        for (int c = 0; c < CLASSES; c++) {
            best &= predictions[NUMBERS + c] <= predictions[NUMBERS + kind];
            cr_assert_float_eq(((float *)given[1].data)[i * CLASSES + c], predictions[NUMBERS + c], 2e-5);
        }
        right += best;
    }
    cr_assert_float_eq(metric(&metrics, "sum/mae"), mae, 2e-5);
    cr_assert_float_eq(metric(&metrics, "kind/accuracy"), right / N, 1e-6);
    for (int i = 0; i < 2; i++) strata_array_finish(&given[i]);
    strata_history_finish(&history);
    strata_model_destroy(model);
    free_data(&data);
}

TEST_ON_HOST(functional, two_replicas_train_as_one_device) {
    (void)device;
    twin_data data = make_data();
    parameters got[2];
    strata_metrics metrics[2];
    for (int replicas = 1; replicas <= 2; replicas++) {
        strata_strategy *strategy = NULL;
        strata_model *model = twins();
        bool equal = false;
        const strata_strategy_options devices = {.devices = (const char *const[]){"host", "host"}, .n_devices = replicas};
        OK(strata_strategy_create("mirrored", &devices, &strategy, &err));
        OK(strata_model_compile(
            model, NULL, &(strata_compile_options){.optimizer = strata_adam_optimizer(0.01), .seed = 4, .strategy = strategy},
            &err));
        OK(strata_model_fit(model, data.dataset, &(strata_fit_options){.epochs = 3, .batch = BATCH, .seed = 6}, NULL, &err));
        OK(strata_model_evaluate(model, data.dataset, BATCH, &metrics[replicas - 1], &err));
        OK(strata_model_replicas_equal(model, &equal, &err));
        cr_assert(equal);
        read_parameters(model, (double *)&got[replicas - 1]);
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
    }
    for (int k = 0; k < (int)N_PARAMETERS; k++)
        cr_assert_float_eq(((double *)&got[1])[k], ((double *)&got[0])[k], 1e-5, "parameter %d", k);
    cr_assert_eq(metrics[0].n, 5); /* sum/loss, sum/mae, kind/loss, kind/accuracy, kind/top_2_accuracy */
    for (int i = 0; i < metrics[0].n; i++)
        cr_assert_float_eq(metrics[1].more[i].value, metrics[0].more[i].value, 1e-5, "%s", metrics[0].more[i].name);
    free_data(&data);
}

/* ---- JSON, model files, checkpoints ---- */

static const char twins_json[] =
    "{\"label\":\"\",\"inputs\":[{\"name\":\"left\",\"shape\":[3]},{\"name\":\"right\",\"shape\":[3]}],\"layers\":["
    "{\"layer\":\"dense\",\"name\":\"side\",\"inputs\":[\"left\"],\"units\":4,\"activation\":\"tanh\"},"
    "{\"call\":\"side\",\"name\":\"side_1\",\"inputs\":[\"right\"]},"
    "{\"layer\":\"add\",\"name\":\"both\",\"inputs\":[\"side\",\"side_1\"]},"
    "{\"layer\":\"dense\",\"name\":\"sum\",\"inputs\":[\"both\"],\"units\":2},"
    "{\"layer\":\"concat\",\"name\":\"concat\",\"inputs\":[\"side\",\"side_1\"]},"
    "{\"layer\":\"dense\",\"name\":\"logits\",\"inputs\":[\"concat\"],\"units\":3}],\"outputs\":["
    "{\"name\":\"sum\",\"loss\":\"mse\",\"metrics\":[\"mae\"]},"
    "{\"name\":\"kind\",\"value\":\"logits\",\"loss\":\"sparse_categorical_crossentropy\",\"weight\":0.5,"
    "\"metrics\":[\"top_2_accuracy\"]}]}";

TEST_ON_HOST(functional, json_describes_the_same_model_and_reads_it_back) {
    strata_model *built = twins(), *read = NULL;
    char *text = NULL;
    OK(strata_model_to_json(built, &text, &err));
    cr_assert_str_eq(text, twins_json);
    OK(strata_model_from_json(text, strlen(text), "m.json", &read, &err));
    free(text);
    OK(strata_model_to_json(read, &text, &err));
    cr_assert_str_eq(text, twins_json);
    free(text);
    cr_assert_eq(strata_model_n_inputs(read), 2);
    cr_assert_str_eq(strata_model_input_port(read, 1).name, "right");
    cr_assert_eq(strata_model_n_outputs(read), 2);
    cr_assert_str_eq(strata_model_output_port(read, 1).name, "kind");
    cr_assert(strata_shape_equal(strata_model_output_port(read, 1).shape, STRATA_SHAPE(CLASSES)));
    const strata_compile_options compile = {.optimizer = strata_adam_optimizer(0.01), .seed = 4};
    twin_data data = make_data();
    strata_model *both[] = {built, read};
    for (int i = 0; i < 2; i++) {
        OK(strata_model_compile(both[i], device, &compile, &err));
        OK(strata_model_fit(both[i], data.dataset, &(strata_fit_options){.batch = BATCH}, NULL, &err));
    }
    cr_assert_str_eq(case_sha(built), case_sha(read));
    for (int i = 0; i < 2; i++) strata_model_destroy(both[i]);
    free_data(&data);
}

TEST_ON_HOST(functional, files_and_checkpoints_go_on_where_they_were_made) {
    twin_data data = make_data();
    const strata_fit_options whole = {.epochs = 4, .batch = BATCH, .seed = 1}, half = {.epochs = 2, .batch = BATCH, .seed = 1},
                             rest = {.first_epoch = 2, .epochs = 4, .batch = BATCH, .seed = 1};
    strata_model *once = compiled(device, strata_adam_optimizer(0.01)), *begun = compiled(device, strata_adam_optimizer(0.01)),
                 *resumed = compiled(device, strata_adam_optimizer(0.01)), *loaded = NULL;
    int epochs = 0;
    strata_metrics before, after;
    OK(strata_model_fit(once, data.dataset, &whole, NULL, &err));
    OK(strata_model_fit(begun, data.dataset, &half, NULL, &err));
    OK(strata_model_save_checkpoint(begun, 2, test_path("checkpoint"), &err));
    OK(strata_model_load_checkpoint(resumed, test_path("checkpoint"), &epochs, &err));
    OK(strata_model_fit(resumed, data.dataset, &rest, NULL, &err));
    cr_assert_str_eq(case_sha(resumed), case_sha(once));
    OK(strata_model_save(once, test_path("twins.strata"), &err));
    OK(strata_model_load(test_path("twins.strata"), &loaded, &err));
    OK(strata_model_compile(loaded, device, NULL, &err));
    OK(strata_model_evaluate(once, data.dataset, 0, &before, &err));
    OK(strata_model_evaluate(loaded, data.dataset, 0, &after, &err));
    cr_assert_eq(before.loss, after.loss);
    strata_model *all[] = {once, begun, resumed, loaded};
    for (int i = 0; i < 4; i++) strata_model_destroy(all[i]);
    free_data(&data);
}

TEST_ON_HOST(functional, the_summary_has_a_row_for_each_call) {
    strata_model *model = compiled(device, strata_sgd_optimizer(0.1, 0, false));
    strata_model_summary summary = {0};
    OK(strata_model_summarize(model, 8, &summary, &err));
    cr_assert_eq(summary.n_layers, 6);
    cr_assert_str_eq(summary.layers[1].name, "side_1");
    cr_assert_eq(summary.layers[0].parameters, SIDE * HIDDEN + HIDDEN);
    cr_assert_eq(summary.layers[1].parameters, 0);
    cr_assert_eq(summary.parameters, (int64_t)N_PARAMETERS);
    cr_assert_eq(summary.layers[2].n_inputs, 2);
    cr_assert_str_eq(summary.layers[2].inputs[1], "side_1");
    strata_model_summary_finish(&summary);
    strata_model_destroy(model);
}

/* In a graph of the program the outputs are those of predict, except that the softmax of the loss is missing. */
TEST_ON_HOST(functional, it_is_applied_in_any_graph) {
    twin_data data = make_data();
    strata_model *model = compiled(device, strata_sgd_optimizer(0.1, 0, false));
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_array predictions[2] = {{0}, {0}};
    int slot = 0;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *inputs[] = {strata_input(graph, "left", STRATA_DTYPE_F32, STRATA_SHAPE(N, SIDE)),
                               strata_input(graph, "right", STRATA_DTYPE_F32, STRATA_SHAPE(N, SIDE))},
                  *outputs[2];
    strata_model_apply_all(model, NULL, inputs, outputs, false);
    outputs[1] = strata_softmax(outputs[1]);
    OK(strata_executable_create(device, outputs, 2, NULL, 0, NULL, &exe, &err));
    OK(strata_executable_acquire(exe, &slot, &err));
    memcpy(strata_executable_input(exe, slot, strata_executable_input_index(exe, "left")), data.left.data,
           strata_array_bytes(&data.left));
    memcpy(strata_executable_input(exe, slot, strata_executable_input_index(exe, "right")), data.right.data,
           strata_array_bytes(&data.right));
    OK(strata_executable_submit(exe, slot, &err));
    OK(strata_executable_wait(exe, slot, &err));
    OK(strata_model_predict_all(model, data.dataset, N, predictions, &err));
    for (int i = 0; i < 2; i++) {
        const float *got = strata_executable_output(exe, slot, i), *wanted = predictions[i].data;
        for (int64_t k = 0; k < strata_shape_elements(predictions[i].shape); k++) cr_assert_float_eq(got[k], wanted[k], 1e-6);
        strata_array_finish(&predictions[i]);
    }
    strata_model_apply(model, NULL, inputs[0], false);
    FAILS(strata_graph_check(graph, &err), STRATA_INVALID, "2 inputs and 2 outputs; strata_model_apply_all");
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    strata_model_destroy(model);
    free_data(&data);
}

TEST_ON_HOST(functional, an_input_that_is_missing_poisons_the_graph) {
    strata_model *model = compiled(device, strata_sgd_optimizer(0.1, 0, false));
    for (int missing = 0; missing < 2; missing++) {
        strata_graph *graph = NULL;
        OK(strata_graph_create(&graph, &err));
        strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(N, SIDE)), *outputs[2];
        strata_model_apply_all(model, NULL, (strata_tensor *[]){missing ? x : NULL, missing ? NULL : x}, outputs, false);
        FAILS(strata_graph_check(graph, &err), STRATA_INVALID, missing ? "input 1 is NULL" : "input 0 is NULL");
        strata_graph_destroy(graph);
    }
    strata_model_destroy(model);
}

/* ---- data with several inputs ---- */

TEST_ON_HOST(functional, pipelines_splits_and_weights_keep_inputs_together) {
    twin_data data = make_data();
    strata_model *plain = compiled(device, strata_sgd_optimizer(0.1, 0, false)),
                 *piped = compiled(device, strata_sgd_optimizer(0.1, 0, false)),
                 *split = compiled(device, strata_sgd_optimizer(0.1, 0, false));
    const strata_fit_options fit = {.epochs = 2, .batch = BATCH, .no_shuffle = true};
    strata_array weights = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(N), 0.1, 2, 8);
    OK(strata_dataset_set_weights(data.dataset, &weights, &err));
    OK(strata_model_fit(plain, data.dataset, &fit, NULL, &err));
    strata_dataset *pipeline = strata_dataset_retain(data.dataset), *first = NULL, *last = NULL;
    OK(strata_dataset_batch(&pipeline, BATCH, false, &err));
    OK(strata_dataset_prefetch(&pipeline, 2, &err));
    OK(strata_model_fit(piped, pipeline, &fit, NULL, &err));
    cr_assert_str_eq(case_sha(piped), case_sha(plain));
    /* both parts of a split, one after the other, give the whole dataset, whether the arrays are copied or shared */
    OK(strata_dataset_split(data.dataset, 1.0 / 3, &(strata_split_options){.in_order = true}, &first, &last, &err));
    cr_assert_eq(strata_dataset_size(last), N / 3);
    for (int epoch = 0; epoch < 2; epoch++) {
        OK(strata_model_fit(split, first, &(strata_fit_options){.batch = BATCH, .no_shuffle = true}, NULL, &err));
        OK(strata_model_fit(split, last, &(strata_fit_options){.batch = BATCH, .no_shuffle = true}, NULL, &err));
    }
    cr_assert_str_eq(case_sha(split), case_sha(plain));
    strata_dataset_destroy(first);
    strata_dataset_destroy(last);
    OK(strata_dataset_split(data.dataset, 0.5, NULL, &first, &last, &err));
    strata_metrics one, other, all;
    OK(strata_model_evaluate(plain, first, 0, &one, &err));
    OK(strata_model_evaluate(plain, last, 0, &other, &err));
    OK(strata_model_evaluate(plain, data.dataset, 0, &all, &err));
    cr_assert_float_eq((one.loss + other.loss) / 2, all.loss, 1e-5);
    strata_dataset_destroy(first);
    strata_dataset_destroy(last);
    strata_dataset_destroy(pipeline);
    strata_array_finish(&weights);
    strata_model *models[] = {plain, piped, split};
    for (int i = 0; i < 3; i++) strata_model_destroy(models[i]);
    free_data(&data);
}

TEST_ON_HOST(functional, data_that_do_not_fit_are_refused_by_name) {
    twin_data d = make_data();
    strata_model *model = compiled(device, strata_sgd_optimizer(0.1, 0, false));
    strata_dataset *wrong = NULL;
    strata_metrics metrics;
    strata_array out;
    const strata_data_column left = {"left", &d.left, 0}, right = {"right", &d.right, 0}, sum = {"sum", &d.sum, 0},
                             kind = {"kind", &d.kind, 0};
    OK(strata_dataset_from_columns(&left, 1, (strata_data_column[]){sum, kind}, 2, &wrong, &err));
    FAILS(strata_model_evaluate(model, wrong, 0, &metrics, &err), STRATA_DATA, "no input \"right\"; there is: \"left\"");
    strata_dataset_destroy(wrong);
    OK(strata_dataset_from_columns((strata_data_column[]){left, right}, 2, &sum, 1, &wrong, &err));
    FAILS(strata_model_evaluate(model, wrong, 0, &metrics, &err), STRATA_DATA, "no target \"kind\"");
    strata_dataset_destroy(wrong);
    OK(strata_dataset_from_columns((strata_data_column[]){left, {"right", &d.sum, 0}}, 2, (strata_data_column[]){sum, kind}, 2,
                                   &wrong, &err));
    FAILS(strata_model_fit(model, wrong, NULL, NULL, &err), STRATA_DATA, "input right: fit: the data's elements are (2)");
    strata_dataset_destroy(wrong);
    OK(strata_dataset_from_columns((strata_data_column[]){left, right}, 2, (strata_data_column[]){sum, {"kind", &d.sum, 0}}, 2,
                                   &wrong, &err));
    FAILS(strata_model_fit(model, wrong, NULL, NULL, &err), STRATA_DATA, "output kind: fit: the labels are f32");
    strata_dataset_destroy(wrong);
    ((uint8_t *)d.kind.data)[5] = CLASSES;
    OK(strata_dataset_from_columns((strata_data_column[]){left, right}, 2, (strata_data_column[]){sum, kind}, 2, &wrong, &err));
    FAILS(strata_model_fit(model, wrong, NULL, NULL, &err), STRATA_DATA, "output kind: fit: the largest label is 3");
    OK(strata_dataset_batch(&wrong, 8, false, &err));
    FAILS(strata_model_fit(model, wrong, NULL, NULL, &err), STRATA_DATA, "the label is 3");
    FAILS(strata_model_predict(model, wrong, 0, &out, &err), STRATA_INVALID, "2 outputs; strata_model_predict_all");
    strata_dataset_destroy(wrong);
    FAILS(strata_dataset_from_columns((strata_data_column[]){left, left}, 2, NULL, 0, &wrong, &err), STRATA_INVALID,
          "two columns called \"left\"");
    FAILS(strata_dataset_from_columns((strata_data_column[]){left, {"", &d.right, 0}}, 2, NULL, 0, &wrong, &err),
          STRATA_INVALID, "names have 1 to 63");
    strata_array cut = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N - 1, SIDE), d.right.data);
    FAILS(strata_dataset_from_columns((strata_data_column[]){left, {"right", &cut, 0}}, 2, NULL, 0, &wrong, &err),
          STRATA_INVALID, "the first input has 24");
    FAILS(strata_dataset_from_columns(NULL, 0, NULL, 0, &wrong, &err), STRATA_INVALID, "0 inputs");
    strata_model_destroy(model);
    free_data(&d);
}

/* One input has tokens, the other one numbers. An embedding is called twice. Only one of two inputs has padding. */
TEST_ON_HOST(functional, inputs_may_be_tokens_and_numbers) {
    strata_model *model = NULL;
    OK(strata_model_create_functional(&model, &err));
    const strata_value *words = strata_model_input(model, "words", STRATA_SHAPE(5), STRATA_DTYPE_I32);
    const strata_value *numbers = strata_model_input(model, "numbers", STRATA_SHAPE(2), STRATA_DTYPE_F32);
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = 9, .units = 3, .mask_zero = true});
    const strata_value *x = strata_layer_call(model, NULL, &words, 1);
    strata_model_add_global_average_pool(model, (strata_global_average_pool_options){0});
    x = strata_layer_call(model, NULL, &x, 1);
    strata_model_add_concat(model, (strata_concat_options){0});
    x = strata_layer_call(model, NULL, (const strata_value *[]){x, numbers}, 2);
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    strata_model_output(model, strata_layer_call(model, NULL, &x, 1), (strata_output_options){.name = "y", .loss = "mse"});
    OK(strata_model_compile(model, device, &(strata_compile_options){.seed = 1}, &err));
    strata_array tokens = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(2, 5), (double[]){1, 2, 0, 0, 0, 8, 7, 6, 5, 4}),
                 pair = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2), (double[]){1, 2, 3, 4}), y[2];
    strata_array shorter = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(2, 5), (double[]){2, 1, 0, 0, 0, 4, 5, 6, 7, 8});
    strata_array *const inputs[] = {&tokens, &shorter};
    for (int i = 0; i < 2; i++) { /* the mean ignores padding, and does not depend on the order */
        strata_dataset *data = NULL;
        OK(strata_dataset_from_columns((strata_data_column[]){{"words", inputs[i], 0}, {"numbers", &pair, 0}}, 2, NULL, 0,
                                       &data, &err));
        OK(strata_model_predict(model, data, 0, &y[i], &err));
        strata_dataset_destroy(data);
    }
    for (int i = 0; i < 2; i++) cr_assert_float_eq(((float *)y[0].data)[i], ((float *)y[1].data)[i], 1e-6);
    ((int32_t *)tokens.data)[3] = 9;
    strata_dataset *data = NULL;
    OK(strata_dataset_from_columns((strata_data_column[]){{"numbers", &pair, 0}, {"words", &tokens, 0}}, 2, NULL, 0, &data,
                                   &err));
    FAILS(strata_model_predict(model, data, 0, &y[0], &err), STRATA_DATA,
          "input words: predict: element 0, position 3: the token is 9");
    strata_dataset_destroy(data);
    for (int i = 0; i < 2; i++) strata_array_finish(&y[i]);
    strata_array_finish(&tokens);
    strata_array_finish(&shorter);
    strata_array_finish(&pair);
    strata_model_destroy(model);
}

/* The moving averages of a layer that is called twice change by one call after the other. The mean of the first call is 2.5,
 * that of the second 7. */
TEST_ON_HOST(functional, a_shared_batch_norm_averages_one_call_after_the_other) {
    strata_model *model = NULL;
    OK(strata_model_create_functional(&model, &err));
    const strata_value *in[] = {strata_model_input(model, "a", STRATA_SHAPE(1), STRATA_DTYPE_F32),
                                strata_model_input(model, "b", STRATA_SHAPE(1), STRATA_DTYPE_F32)};
    strata_model_add_batch_norm(model, (strata_batch_norm_options){.momentum = 0.75, .name = "norm"});
    const strata_value *out[] = {strata_layer_call(model, "norm", &in[0], 1), strata_layer_call(model, "norm", &in[1], 1)};
    strata_model_add_add(model, (strata_add_options){0});
    strata_model_output(model, strata_layer_call(model, NULL, out, 2), (strata_output_options){.name = "y", .loss = "mse"});
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_sgd_optimizer(1e-9, 0, false)}, &err));
    strata_array a = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4, 1), (double[]){1, 2, 3, 4}),
                 b = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4, 1), (double[]){5, 6, 7, 10}), value;
    strata_dataset *data = NULL;
    OK(strata_dataset_from_columns((strata_data_column[]){{"a", &a, 0}, {"b", &b, 0}}, 2, &(strata_data_column){"y", &a, 0}, 1,
                                   &data, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.batch = 4}, NULL, &err));
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(1), &value, &err));
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        if (strcmp(strata_model_parameter(model, i).name, "norm/moving_mean") != 0) continue;
        OK(strata_model_get_parameter(model, i, &value, &err));
        cr_assert_float_eq(*(float *)value.data, 0.75 * (0.25 * 2.5) + 0.25 * 7, 1e-5);
    }
    strata_array_finish(&value);
    strata_array_finish(&a);
    strata_array_finish(&b);
    strata_dataset_destroy(data);
    strata_model_destroy(model);
}

/* y = 2 a + 2 a is the target, so the loss is the penalty 3 * 2^2 alone. */
TEST_ON_HOST(functional, a_shared_layer_is_penalized_once) {
    strata_model *model = NULL;
    OK(strata_model_create_functional(&model, &err));
    const strata_value *in = strata_model_input(model, "a", STRATA_SHAPE(1), STRATA_DTYPE_F32);
    strata_model_add_dense(model, (strata_dense_options){.units = 1, .no_bias = true, .kernel_l2 = 3, .name = "both"});
    const strata_value *out[] = {strata_layer_call(model, "both", &in, 1), strata_layer_call(model, "both", &in, 1)};
    strata_model_add_add(model, (strata_add_options){0});
    strata_model_output(model, strata_layer_call(model, NULL, out, 2), (strata_output_options){.name = "y", .loss = "mse"});
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_sgd_optimizer(1e-9, 0, false)}, &err));
    strata_array kernel = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 1), (double[]){2}),
                 a = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 1), (double[]){1, -2}),
                 y = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 1), (double[]){4, -8});
    OK(strata_model_set_parameter(model, 0, &kernel, &err));
    strata_dataset *data = NULL;
    strata_history history = {0};
    OK(strata_dataset_from_columns(&(strata_data_column){"a", &a, 0}, 1, &(strata_data_column){"y", &y, 0}, 1, &data, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.batch = 2}, &history, &err));
    cr_assert_float_eq(history.losses[0], 12, 1e-5);
    strata_history_finish(&history);
    strata_array_finish(&kernel);
    strata_array_finish(&a);
    strata_array_finish(&y);
    strata_dataset_destroy(data);
    strata_model_destroy(model);
}

/* ---- errors ---- */

TEST_ON_HOST(functional, json_that_does_not_connect_is_refused_at_its_place) {
    (void)device;
#define IN "{\"inputs\":[{\"name\":\"a\",\"shape\":[2]},{\"name\":\"b\",\"shape\":[3]}],\"layers\":["

    static const struct {
        const char *text, *says;
    } wrong[] = {
        {IN "{\"layer\":\"dense\",\"units\":2,\"inputs\":[\"c\"]}]}", "layers[0].inputs[0]: there is no input or layer \"c\""},
        {IN
         "{\"layer\":\"dense\",\"units\":2,\"name\":\"p\",\"inputs\":[\"q\"]},{\"layer\":\"dense\",\"units\":2,\"name\":\"q\","
         "\"inputs\":[\"p\"]}]}",
         "a cycle"},
        {IN "{\"layer\":\"dense\",\"units\":2,\"name\":\"p\",\"inputs\":[\"p\"]}]}", "a cycle"},
        {IN "{\"layer\":\"dense\",\"units\":2}]}", "layers[0]: needs \"inputs\", as the model has 2 inputs"},
        {IN
         "{\"layer\":\"dense\",\"units\":2,\"name\":\"p\",\"inputs\":[\"a\"]},{\"layer\":\"dense\",\"units\":2,\"name\":\"p\","
         "\"inputs\":[\"b\"]}]}",
         "layers[1]: there are two layers called \"p\""},
        {IN "{\"layer\":\"dense\",\"units\":2,\"name\":\"a\",\"inputs\":[\"a\"]}]}",
         "call \"a\": an input or a call has that name"},
        {IN "{\"layer\":\"dense\",\"units\":2,\"name\":\"p\",\"inputs\":[\"a\"]}],\"outputs\":[{\"name\":\"p\"}]}",
         "input \"b\": no layer takes it"},
        {IN "{\"layer\":\"add\",\"name\":\"p\",\"inputs\":[\"a\",\"b\"]},{\"layer\":\"dense\",\"units\":1}],\"outputs\":[{"
            "\"name\":"
            "\"dense\"}]}",
         "p: its inputs 0 and 1 are (1,2) and (1,3); they must be equal"},
        {IN "{\"layer\":\"add\",\"name\":\"p\",\"inputs\":[\"a\"]},{\"layer\":\"dense\",\"units\":1,\"inputs\":[\"b\"]}],"
            "\"outputs\":[{\"name\":\"dense\"},{\"name\":\"p\"}]}",
         "p: add takes at least 2 inputs; it was given 1"},
        {IN "{\"layer\":\"dense\",\"units\":1,\"inputs\":[\"a\",\"b\"]}],\"outputs\":[{\"name\":\"dense\"}]}",
         "dense: dense takes 1 input; it was given 2"},
        {IN
         "{\"layer\":\"dense\",\"units\":1,\"inputs\":[\"a\"]},{\"call\":\"dense\",\"inputs\":[\"b\"]}],\"outputs\":[{\"name\":"
         "\"dense\"},{\"name\":\"dense_1\"}]}",
         "dense_1: its parameter kernel is (3,1) for this input; an earlier call made it (2,1)"},
        {IN "{\"call\":\"p\",\"inputs\":[\"a\"]}]}", "layers[0]: call: there is no layer \"p\" before this one"},
        {IN "{\"layer\":\"concat\",\"name\":\"p\",\"inputs\":[\"a\",\"b\"]},{\"layer\":\"dense\",\"units\":1},{\"layer\":"
            "\"dense\","
            "\"units\":1,\"inputs\":[\"p\"]}],\"outputs\":[{\"name\":\"dense\"}]}",
         "dense_1: no layer takes what it gives"},
        {IN "{\"layer\":\"concat\",\"name\":\"p\",\"inputs\":[\"a\",\"b\"]},{\"layer\":\"dense\",\"units\":1}],\"outputs\":[]}",
         "it has no outputs"},
        {IN "{\"layer\":\"concat\",\"name\":\"p\",\"inputs\":[\"a\",\"b\"]},{\"layer\":\"dense\",\"units\":1}],\"outputs\":[{"
            "\"name\":"
            "\"y\"}]}",
         "outputs[0]: there is no layer \"y\"; \"value\" names one"},
        {IN "{\"layer\":\"concat\",\"name\":\"p\",\"inputs\":[\"a\",\"b\"]},{\"layer\":\"dense\",\"units\":1}],\"outputs\":[{"
            "\"name\":"
            "\"dense\"},{\"name\":\"dense\"}]}",
         "outputs[1]: there are two outputs called \"dense\""},
        {IN "{\"layer\":\"concat\",\"name\":\"p\",\"inputs\":[\"a\",\"b\"]},{\"layer\":\"dense\",\"units\":1}],\"outputs\":[{"
            "\"name\":"
            "\"dense\"},{\"name\":\"p\"}],\"loss\":\"mse\"}",
         "is of models with one output"},
        {"{\"inputs\":[{\"name\":\"a\",\"shape\":[2]},{\"name\":\"a\",\"shape\":[2]}],\"layers\":[]}",
         "inputs[1]: input \"a\": an input or a call has that name already"},
        {"{\"inputs\":[{\"name\":\"a\",\"shape\":[2],\"dtype\":\"f16\"}],\"layers\":[]}", "inputs are f32 or i32"},
        {"{\"inputs\":[{\"name\":\"a\",\"shape\":[2]}],\"input\":[2],\"layers\":[]}", "input: is of models without \"inputs\""},
        {"{\"input\":[2],\"layers\":[{\"layer\":\"dense\",\"units\":1}],\"outputs\":[]}",
         "outputs: is of models with \"inputs\""},
        {"{\"input\":[2],\"layers\":[{\"layer\":\"add\"},{\"layer\":\"dense\",\"units\":1}]}", "add takes at least 2 inputs"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_model *model = NULL;
        FAILS(strata_model_from_json(wrong[i].text, strlen(wrong[i].text), "m.json", &model, &err), STRATA_DATA, wrong[i].says);
    }
}

/* Leaves out each byte of the description in turn, and replaces each byte by each of some others. */
TEST_ON_HOST(functional, a_damaged_description_is_refused_or_is_a_model) {
    static const char others[] = "\"[]{},:01x";
    char text[sizeof twins_json];
    int n_refused = 0;
    (void)device;
    for (size_t i = 0; i + 1 < sizeof twins_json; i++)
        for (size_t k = 0; k < sizeof others; k++) {
            strata_model *model = NULL;
            memcpy(text, twins_json, sizeof text);
            if (others[k])
                text[i] = others[k];
            else
                memmove(text + i, text + i + 1, sizeof text - i - 1);
            const strata_status status = strata_model_from_json(text, strlen(text), "m.json", &model, &err);
            cr_assert(status == STRATA_OK || status == STRATA_DATA, "%s: %s", err.message, text);
            n_refused += status != STRATA_OK;
            strata_model_destroy(model);
        }
    cr_assert_gt(n_refused, 1000);
}

static strata_model *begin(const strata_value **out_x) {
    strata_model *model = NULL;
    OK(strata_model_create_functional(&model, &err));
    *out_x = strata_model_input(model, "x", STRATA_SHAPE(2), STRATA_DTYPE_F32);
    return model;
}

static void refuses(strata_device *device, strata_model *model, const char *text) {
    FAILS(strata_model_compile(model, device, NULL, &err), STRATA_INVALID, text);
    strata_model_destroy(model);
}

TEST_ON_HOST(functional, calls_that_do_not_connect_are_refused) {
    const strata_value *x, *other, *y;
    strata_model *model = begin(&x), *second = begin(&other);
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    cr_assert_null(strata_layer_call(model, NULL, &other, 1));
    cr_assert_null(strata_layer_call(model, NULL, &x, 1)); /* after the first error, calls return NULL */
    refuses(device, model, "dense: input 0 is a value of another model");
    refuses(device, second, "it has no layers");

    model = begin(&x);
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    strata_layer_call(model, "dance", &x, 1);
    refuses(device, model, "there is no layer \"dance\"");

    model = begin(&x);
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    y = strata_layer_call(model, NULL, &x, 1);
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    strata_model_output(model, y, (strata_output_options){0});
    refuses(device, model, "dense_1: the layer is never called");

    model = begin(&x);
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    y = strata_layer_call(model, NULL, &x, 1);
    strata_model_output(model, y, (strata_output_options){.name = "one", .loss = "mse"});
    strata_model_output(model, y, (strata_output_options){.name = "two"});
    refuses(device, model, "output \"two\" has no loss");

    model = begin(&x);
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    y = strata_layer_call(model, NULL, &x, 1);
    strata_model_output(model, y, (strata_output_options){.loss = "ms"});
    refuses(device, model, "output \"dense\": there is no loss \"ms\"");

    model = begin(&x);
    strata_model_begin_residual(model, (strata_residual_options){0});
    strata_layer_call(model, NULL, &x, 1);
    refuses(device, model, "residual: it is begun and does not end");

    model = case_model_uncompiled();
    strata_model_input(model, "x", STRATA_SHAPE(2), STRATA_DTYPE_F32);
    refuses(device, model, "strata_model_input: the model is sequential");

    model = begin(&x);
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    strata_model_output(model, strata_layer_call(model, NULL, &x, 0), (strata_output_options){0});
    refuses(device, model, "dense is called with 0 inputs");
}
