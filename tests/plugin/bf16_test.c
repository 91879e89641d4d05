/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares losses of samples/systolic, whose products use bf16, with the host's in f32. Before each of some training steps
 * the plugin's model gets the state of the host's. Its loss must then be within a bound that follows from the operands of
 * this step (see "How far losses may be from f32" in the README.md of samples/systolic). STRATA_TEST_SYSTOLIC names the
 * plugin's file, which tests/cli/systolic_test.sh builds. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/model/data.h"
#include "core/op/ops.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/samples.h"

enum { STEPS = 8, MOST_PRODUCTS = 32 };

/* The unit roundoff: half the distance between neighbouring bf16 numbers, relative to the smaller one. */
static const double UNIT = 0x1p-8;
/* Independent rounding errors exceed the bound with a probability of 1e-9: 2 exp(-lambda^2 / 2) = 1e-9. */
static const double LAMBDA = 6.55;

/* The largest effect of f32 arithmetic outside of products on a loss, relative to max(1, loss). */
static const double F32_LOSS = 1e-6;
/* In at least one step the difference must be this share of its bound. Otherwise the bound is too wide to detect a wrong
 * product. */
static const double LEAST_REACHED = 0.02;

/* ---- the effect of rounding each operand on the loss ---- */

/* An element of an operand, and the derivative of the loss with respect to it, multiplied by the element. */
typedef struct effect {
    float value;
    double slope;
} effect;

/* A program on the host that computes the operands of each product of the forward pass, and the gradients of the loss with
 * respect to them. */
typedef struct effects_program {
    strata_executable *executable;
    int n_outputs;
    strata_array outputs[4 * MOST_PRODUCTS];
    strata_dtype x_dtype, y_dtype;
    strata_shape x_shape, y_shape;
} effects_program;

static bool is_product(const strata_tensor *node) {
    return node->op == &strata_op_matmul || node->op == &strata_op_conv2d;
}

static strata_tensor *find(const strata_graph *graph, const char *name) {
    for (int i = 0; i < graph->n_nodes; i++)
        if (!strcmp(strata_tensor_name(graph->nodes[i]), name)) return graph->nodes[i];
    cr_assert_fail("the step has no tensor \"%s\"", name);
    return NULL;
}

/* Lists the products on which the loss depends. */
static int list_products(const strata_tensor *loss, strata_tensor **products) {
    strata_graph *graph = loss->graph;
    int n = 0;
    bool *needed = calloc((size_t)loss->id + 1, sizeof *needed);
    cr_assert(needed);
    needed[loss->id] = true;
    for (int id = loss->id; id >= 0; id--) {
        if (!needed[id]) continue;
        for (int i = 0; i < graph->nodes[id]->n_inputs; i++) needed[graph->nodes[id]->inputs[i]->id] = true;
        if (!is_product(graph->nodes[id])) continue;
        cr_assert_lt(n, MOST_PRODUCTS);
        products[n++] = graph->nodes[id];
    }
    free(needed);
    return n;
}

static void make_effects_program(const strata_test_sample *sample, const strata_test_trained *host, effects_program *p) {
    strata_error err = {0};
    strata_step step;
    strata_tensor *products[MOST_PRODUCTS], *slopes[MOST_PRODUCTS], *outputs[4 * MOST_PRODUCTS];
    *p = (effects_program){0};
    cr_assert_eq(strata_model_build_step(host->model, STRATA_PROGRAM_TRAIN, sample->batch, 0, NULL, &step, &err), STRATA_OK,
                 "%s", err.message);
    strata_tensor *loss = find(step.graph, "loss");
    const strata_tensor *x = find(step.graph, "x"), *y = find(step.graph, "y");
    p->x_dtype = x->dtype, p->x_shape = x->shape;
    p->y_dtype = y->dtype, p->y_shape = y->shape;
    const int n = list_products(loss, products);
    const float share = 1 / (float)sample->batch;
    strata_tensor *shares =
        strata_broadcast_to(strata_scalar(step.graph, STRATA_DTYPE_F32, (double)share), STRATA_SHAPE(sample->batch));
    strata_gradients(loss, shares, products, n, slopes);
    for (int i = 0; i < n; i++) {
        strata_tensor *gradients[2];
        strata_gradients(products[i], slopes[i], products[i]->inputs, 2, gradients); /* only the path through this product */
        for (int k = 0; k < 2; k++) {
            outputs[p->n_outputs++] = products[i]->inputs[k];
            outputs[p->n_outputs++] = gradients[k];
        }
    }
    cr_assert_eq(strata_executable_create(host->device, outputs, p->n_outputs, NULL, 0, NULL, &p->executable, &err), STRATA_OK,
                 "%s", err.message);
    for (int i = 0; i < p->n_outputs; i++)
        cr_assert_eq(strata_array_create(STRATA_DTYPE_F32, outputs[i]->shape, &p->outputs[i], &err), STRATA_OK);
    strata_graph_destroy(step.graph);
}

static void destroy_effects_program(effects_program *p) {
    strata_executable_destroy(p->executable);
    for (int i = 0; i < p->n_outputs; i++) strata_array_finish(&p->outputs[i]);
}

static int by_size(const void *a, const void *b) {
    const float x = fabsf(((const effect *)a)->value), y = fabsf(((const effect *)b)->value);
    return x < y ? -1 : x > y;
}

/* Returns the bound for the mean loss of the batch, to first order in the unit roundoff. Elements of equal absolute value
 * have the same relative rounding error, so their slopes are added. */
static double bound_of(effects_program *p, const strata_array *x, const strata_array *y) {
    strata_error err = {0};
    const char *const names[] = {"x", "y"};
    const strata_array inputs[] = {*x, *y};
    int64_t n = 0, at = 0;
    const int n_inputs = strata_executable_input_index(p->executable, "y") < 0 ? 1 : 2;
    cr_assert_eq(strata_executable_run(p->executable, names, inputs, n_inputs, p->outputs, p->n_outputs, &err), STRATA_OK, "%s",
                 err.message);
    for (int i = 0; i < p->n_outputs; i += 2) n += strata_shape_elements(p->outputs[i].shape);
    effect *effects = calloc((size_t)n, sizeof *effects);
    cr_assert(effects);
    for (int i = 0; i < p->n_outputs; i += 2) {
        const float *values = p->outputs[i].data, *gradients = p->outputs[i + 1].data;
        for (int64_t j = 0; j < strata_shape_elements(p->outputs[i].shape); j++)
            effects[at++] = (effect){values[j], (double)values[j] * (double)gradients[j]};
    }
    qsort(effects, (size_t)n, sizeof *effects, by_size);
    double squares = 0, slope = 0;
    for (int64_t i = 0; i < n; i++) {
        slope += effects[i].slope;
        if (i + 1 < n && fabsf(effects[i + 1].value) == fabsf(effects[i].value)) continue;
        squares += slope * slope;
        slope = 0;
    }
    free(effects);
    return LAMBDA * UNIT * sqrt(squares);
}

/* ---- the tests ---- */

/* Makes the batch's features and labels in the form that the program takes. The caller finishes them. */
static void fetch(const strata_test_trained *host, const effects_program *p, const strata_dataset *data, strata_array *x,
                  strata_array *y) {
    strata_error err = {0};
    strata_order *order = NULL;
    const int64_t n = strata_dataset_size(data);
    cr_assert_eq(strata_array_create(p->x_dtype, p->x_shape, x, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_array_create(p->y_dtype, p->y_shape, y, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_order_create(n, false, 0, 0, &order, &err), STRATA_OK, "%s", err.message);
    strata_dataset_fetch(data, order, 0, n, x->data, y->data);
    strata_model_convert_labels(&host->model->outputs[0], data, 1, n, y->data);
    strata_order_destroy(order);
}

/* Dropout would need the random state of the same step. fake_news is the only sample with dropout. */
static strata_test_sample *samples_without_dropout(size_t *out_n) {
    static strata_test_sample list[STRATA_TEST_SAMPLES];
    *out_n = 0;
    for (int i = 0; i < STRATA_TEST_SAMPLES; i++)
        if (strcmp(strata_test_samples[i].name, "fake_news") != 0) list[(*out_n)++] = strata_test_samples[i];
    return list;
}

static void open_both(const strata_test_sample *sample, strata_test_trained *host, strata_test_trained *systolic) {
    strata_error err = {0};
    const char *plugin = getenv("STRATA_TEST_SYSTOLIC");
    if (!plugin) cr_skip_test("STRATA_TEST_SYSTOLIC does not name libstrata_systolic.so; tests/cli/systolic_test.sh builds it");
    cr_assert_eq(strata_plugin_load(plugin, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_test_sample_open(sample, "host", host, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_test_sample_open(sample, "systolic:0", systolic, &err), STRATA_OK, "%s", err.message);
}

/* Copies the host's parameters, states and optimizer slots after `steps` steps to the plugin's model. */
static void copy_state(const strata_test_trained *host, const strata_test_trained *systolic, int steps) {
    strata_error err = {0};
    int epochs;
    const char *path = test_path("state");
    cr_assert_eq(strata_model_save_checkpoint(host->model, steps, path, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_load_checkpoint(systolic->model, path, &epochs, &err), STRATA_OK, "%s", err.message);
}

static float fit(const strata_test_trained *t, const strata_test_sample *sample, const strata_dataset *data) {
    strata_error err = {0};
    float loss;
    cr_assert_eq(strata_test_sample_fit(t, sample, data, &loss, &err), STRATA_OK, "%s", err.message);
    return loss;
}

TestSuite(bf16, .init = test_folder_make, .fini = test_folder_remove);

ParameterizedTestParameters(bf16, losses_of_steps_from_the_hosts_state_are_within_the_bound) {
    size_t n;
    strata_test_sample *list = samples_without_dropout(&n);
    return cr_make_param_array(strata_test_sample, list, n);
}

ParameterizedTest(strata_test_sample *sample, bf16, losses_of_steps_from_the_hosts_state_are_within_the_bound) {
    strata_test_trained host, systolic;
    strata_array all_x, all_y;
    effects_program program;
    double farthest = 0;
    open_both(sample, &host, &systolic);
    strata_test_sample_arrays(sample, STEPS, &all_x, &all_y);
    make_effects_program(sample, &host, &program);
    for (int k = 0; k < STEPS; k++) {
        strata_array x, y;
        strata_dataset *data = strata_test_sample_batches(sample, &all_x, &all_y, k, 1);
        fetch(&host, &program, data, &x, &y);
        const double bound = bound_of(&program, &x, &y);
        if (k) copy_state(&host, &systolic, k);
        const double want = (double)fit(&host, sample, data), got = (double)fit(&systolic, sample, data);
        cr_assert(fabs(got - want) <= bound + F32_LOSS * fmax(1, fabs(want)),
                  "%s, step %d: the loss is %.9g, on the host %.9g; they may differ by %.2e", sample->name, k, got, want,
                  bound);
        if (bound > 0) farthest = fmax(farthest, fabs(got - want) / bound);
        strata_array_finish(&x);
        strata_array_finish(&y);
        strata_dataset_destroy(data);
    }
    cr_log_info("%s: losses are off by up to %.2f of the bound", sample->name, farthest);
    cr_expect(farthest >= LEAST_REACHED, "%s: losses are off by %.1e of the bound at most, which says little then",
              sample->name, farthest);
    destroy_effects_program(&program);
    strata_array_finish(&all_x);
    strata_array_finish(&all_y);
    strata_test_sample_close(&host);
    strata_test_sample_close(&systolic);
}
