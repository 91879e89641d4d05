/* SPDX-License-Identifier: Apache-2.0
 *
 * The counts of a summary must agree with the formulas of the layers. */
#include <string.h>

#include "model_case.h"

static strata_error err;

TEST_ON_HOST(summary, counts_parameters_and_flops_of_each_layer) {
    enum {
        BATCH = 7,
        HIDDEN_FLOPS = BATCH * CASE_HIDDEN * (2 * CASE_INPUTS + 2),
        LAST_FLOPS = BATCH * 3 * (2 * CASE_HIDDEN + 1)
    };
    strata_model *model = case_model(device, strata_adam_optimizer(0), 1);
    strata_model_summary s = {0};
    OK(strata_model_summarize(model, BATCH, &s, &err));
    cr_assert_eq(s.n_layers, 3);
    cr_assert_str_eq(s.layers[0].kind, "flatten");
    cr_assert_eq(s.layers[0].flops, 0);
    cr_assert(strata_shape_equal(s.layers[0].output, STRATA_SHAPE(BATCH, CASE_INPUTS)));
    cr_assert_eq(s.layers[1].parameters, CASE_INPUTS * CASE_HIDDEN + CASE_HIDDEN);
    cr_assert_eq(s.layers[1].flops, HIDDEN_FLOPS, "%g", s.layers[1].flops); /* the product, the bias and tanh */
    cr_assert_eq(s.layers[2].flops, LAST_FLOPS, "%g", s.layers[2].flops);
    cr_assert(strata_shape_equal(s.layers[2].output, STRATA_SHAPE(BATCH, CASE_CLASSES)));
    cr_assert_eq(s.parameters, s.layers[1].parameters + s.layers[2].parameters);
    cr_assert_eq(s.forward_flops, HIDDEN_FLOPS + LAST_FLOPS);
    cr_assert_geq(s.step_flops, 2 * BATCH * CASE_HIDDEN *
                                    (2 * CASE_INPUTS + 3 * 3)); /* two products for the first layer, three for the second */
    /* Adam reads four numbers for each parameter and writes three */
    cr_assert_gt(s.step_bytes, 7 * 4 * s.parameters);
    cr_assert_gt(s.step_memory_bytes, 0);
    strata_model_summary_finish(&s);
    strata_model_destroy(model);
}

TEST_ON_HOST(summary, a_step_of_twice_the_batch_does_twice_the_products) {
    strata_model *model = case_model(device, strata_sgd_optimizer(0.1, 0, false), 1);
    strata_model_summary one = {0}, two = {0};
    OK(strata_model_summarize(model, 0, &one, &err));
    cr_assert_eq(one.batch, 32);
    OK(strata_model_summarize(model, 64, &two, &err));
    cr_assert_eq(two.forward_flops, 2 * one.forward_flops);
    strata_model_summary_finish(&one);
    strata_model_summary_finish(&two);
    strata_model_destroy(model);
}

TEST_ON_HOST(summary, needs_a_compiled_model_and_a_batch) {
    (void)device;
    strata_model *model = case_model_uncompiled();
    strata_model_summary s = {0};
    FAILS(strata_model_summarize(model, 1, &s, &err), STRATA_INVALID, "not compiled");
    OK(strata_model_compile(model, device, NULL, &err));
    FAILS(strata_model_summarize(model, -3, &s, &err), STRATA_INVALID, "batch is -3");
    strata_model_summary_finish(&s);
    strata_model_destroy(model);
}

/* ---- times ---- */

static const strata_node_times *find_node(const strata_step_times *times, const char *op) {
    for (int i = 0; i < times->n_nodes; i++)
        if (!strcmp(times->nodes[i].op, op)) return &times->nodes[i];
    cr_assert_fail("the step has no %s", op);
    return NULL;
}

TEST_ON_HOST(summary, times_are_of_the_nodes_that_run_and_like_ones_count_together) {
    strata_model *model = case_model_uncompiled(); /* the layers are flatten, dense with 5 units and tanh, dense with 3 units */
    for (int i = 0; i < 3; i++)
        strata_model_add_dense(model, (strata_dense_options){.units = CASE_CLASSES, .activation = "relu"});
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_adam_optimizer(0)}, &err));
    const char *before = case_sha(model);
    strata_step_times times = {0};
    OK(strata_model_time_step(model, 4, &times, &err));
    cr_assert_eq(find_node(&times, "matmul bias tanh")->count, 1);
    const strata_node_times *relu = find_node(&times, "matmul bias relu");
    cr_assert_eq(relu->count, 3);
    cr_assert(strata_shape_equal(relu->output, STRATA_SHAPE(4, CASE_CLASSES)));
    cr_assert_eq(relu->flops, 2 * 4 * CASE_CLASSES * CASE_CLASSES, "%g", relu->flops);
    cr_assert_eq(relu->bytes, 4 * (2 * 4 * CASE_CLASSES + CASE_CLASSES * CASE_CLASSES + CASE_CLASSES), "%g", relu->bytes);
    const strata_node_times *adam = find_node(&times, "adam has_gate=1");
    const double parameters = (double)strata_shape_elements(adam->output);
    cr_assert(adam->bytes >= 7 * 4 * parameters && adam->bytes < 7 * 4 * parameters + 256, "%g", adam->bytes);
    double sum = 0, last = 1e30;
    for (int i = 0; i < times.n_nodes; i++) {
        const double together = times.nodes[i].us * times.nodes[i].count;
        cr_assert(times.nodes[i].us > 0 && together <= last);
        last = together;
        sum += together;
    }
    cr_assert_float_eq(sum, times.nodes_us, 1e-6 * sum);
    cr_assert_gt(times.step_us, 0);
    cr_assert_str_eq(case_sha(model), before, "parameters stay as they are");
    strata_step_times_finish(&times);
    strata_model_destroy(model);
}

TEST_ON_HOST(summary, times_need_a_compiled_model_on_one_device_and_a_batch) {
    strata_model *model = case_model_uncompiled();
    strata_step_times times;
    FAILS(strata_model_time_step(model, 1, &times, &err), STRATA_INVALID, "not compiled");
    OK(strata_model_compile(model, device, NULL, &err));
    FAILS(strata_model_time_step(model, -3, &times, &err), STRATA_INVALID, "batch is -3");
    strata_model_destroy(model);
    model = case_model_uncompiled();
    strata_device *devices[2];
    strata_strategy *two = NULL;
    for (int i = 0; i < 2; i++) OK(strata_device_open("host", NULL, &devices[i], &err));
    OK(strata_strategy_from_devices(devices, 2, &two, &err));
    OK(strata_model_compile(model, NULL, &(strata_compile_options){.strategy = two}, &err));
    FAILS(strata_model_time_step(model, 4, &times, &err), STRATA_UNSUPPORTED, "several devices");
    strata_model_destroy(model);
    strata_strategy_destroy(two);
}
