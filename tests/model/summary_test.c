/* SPDX-License-Identifier: Apache-2.0
 *
 * A summary counts what the formulas of the layers say. */
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
    cr_assert_eq(s.layers[1].flops, HIDDEN_FLOPS, "%g", s.layers[1].flops); /* product, bias, tanh */
    cr_assert_eq(s.layers[2].flops, LAST_FLOPS, "%g", s.layers[2].flops);
    cr_assert(strata_shape_equal(s.layers[2].output, STRATA_SHAPE(BATCH, CASE_CLASSES)));
    cr_assert_eq(s.parameters, s.layers[1].parameters + s.layers[2].parameters);
    cr_assert_eq(s.forward_flops, HIDDEN_FLOPS + LAST_FLOPS);
    cr_assert_geq(s.step_flops, 2 * BATCH * CASE_HIDDEN *
                                    (2 * CASE_INPUTS + 3 * 3)); /* products: two of the first layer, three of the second */
    cr_assert_gt(s.step_bytes, 7 * 4 * s.parameters);           /* Adam reads four numbers for each and writes three */
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
