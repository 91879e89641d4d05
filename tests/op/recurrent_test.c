/* SPDX-License-Identifier: Apache-2.0
 *
 * lstm and gru: gradients compared with finite differences, directions, masks, and which operands they refuse. Values are
 * compared in tests/layer/keras_test.c and by the conformance table "recurrent". */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/op/op_case.h"

typedef struct recurrent_case {
    bool gru;
    strata_recurrent_options options;
    /* The previous h is multiplied by `factors`. */
    bool drops;
} recurrent_case;

static strata_tensor *run(strata_tensor *const *x, const recurrent_case *c, strata_tensor *mask) {
    strata_recurrent_options options = c->options;
    if (c->drops) {
        const strata_array factors = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2), (float[]){2, 0, 0.5F, 2});
        options.factors = strata_constant(strata_tensor_graph(x[0]), &factors);
    }
    return (c->gru ? strata_gru : strata_lstm)(x[0], x[1], x[2], mask, options);
}

static strata_tensor *recurrent(strata_tensor *const *x, const void *user) {
    return run(x, user, NULL);
}

/* The second step of the first example and the third step of the second one are padding. */
static strata_tensor *masked(strata_tensor *const *x, const void *user) {
    const strata_array mask = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), (float[]){1, 0, 1, 1, 1, 0});
    strata_tensor *kept = strata_constant(strata_tensor_graph(x[0]), &mask);
    return run(x, user, kept);
}

enum { N = 2, T = 3, U = 2 };
static void operands(bool gru, strata_array *out_x) {
    const int64_t width = (gru ? 3 : 4) * U;
    out_x[0] = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(N, T, width), -1, 1, 1);
    out_x[1] = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(U, width), -1, 1, 2);
    out_x[2] = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(width), -1, 1, 3);
}

Test(recurrent, gradients_agree_with_finite_differences) {
    static const recurrent_case cases[] = {
        {false, {0}, false},
        {false, {.reverse = true}, false},
        {false, {.last = true}, false},
        {false, {.activation = STRATA_RECURRENT_SIGMOID, .recurrent_activation = STRATA_RECURRENT_TANH}, false},
        {false, {.activation = STRATA_RECURRENT_LINEAR, .recurrent_activation = STRATA_RECURRENT_LINEAR}, false},
        {true, {0}, false},
        {true, {.reverse = true}, false},
        {true, {.last = true, .reverse = true}, false},
        {true, {.activation = STRATA_RECURRENT_LINEAR, .recurrent_activation = STRATA_RECURRENT_TANH}, false},
        {true, {.reset_first = true}, false},
        {true, {.reset_first = true, .reverse = true}, false},
        {true, {.reset_first = true, .recurrent_activation = STRATA_RECURRENT_TANH}, true},
        {true, {0}, true},
        {false, {.reverse = true}, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_array x[3];
        operands(cases[i].gru, x);
        expect_gradient((op_case){recurrent, &cases[i], x, 3});
        expect_gradient((op_case){masked, &cases[i], x, 3});
        for (int k = 0; k < 3; k++) strata_array_finish(&x[k]);
    }
}

/* A layer of one unit whose gates are always 1, because they are linear with bias 1. So c = c + 1 in each step, and h = c. */
Test(recurrent, counts_steps_in_both_directions_and_leaves_padding_out) {
    const strata_recurrent_options count = {.activation = STRATA_RECURRENT_LINEAR,
                                            .recurrent_activation = STRATA_RECURRENT_LINEAR};
    recurrent_case forward = {false, count, false}, backward = {false, count, false}, last = {false, count, false};
    backward.options.reverse = true;
    last.options.last = last.options.reverse = true;
    strata_array x[3] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N, T, 4), 1),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(1, 4), 0),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(4), 0)};
    const strata_shape all = STRATA_SHAPE(N, T, 1);
    expect_values((op_case){recurrent, &forward, x, 3}, STRATA_DTYPE_F32, all, (double[]){1, 2, 3, 1, 2, 3});
    expect_values((op_case){recurrent, &backward, x, 3}, STRATA_DTYPE_F32, all, (double[]){3, 2, 1, 3, 2, 1});
    expect_values((op_case){recurrent, &last, x, 3}, STRATA_DTYPE_F32, STRATA_SHAPE(N, 1), (double[]){3, 3});
    expect_values((op_case){masked, &forward, x, 3}, STRATA_DTYPE_F32, all, (double[]){1, 1, 2, 1, 2, 2});
    expect_values((op_case){masked, &backward, x, 3}, STRATA_DTYPE_F32, all, (double[]){2, 1, 1, 2, 1, 0});
    expect_values((op_case){masked, &last, x, 3}, STRATA_DTYPE_F32, STRATA_SHAPE(N, 1), (double[]){2, 2});
    for (int k = 0; k < 3; k++) strata_array_finish(&x[k]);
}

/* A linear GRU of one unit with z = 0, u = 0.5 and r = 0.5 from its bias. It computes h = 0.5 h' + 0.5 g, where h' is the
 * previous h, initially 0. With the reset gate behind the product g = r (k h' + 1), in front of it g = r k h' + 1. */
Test(recurrent, the_reset_gate_is_behind_the_product_or_in_front_of_it) {
    const strata_recurrent_options linear = {.activation = STRATA_RECURRENT_LINEAR,
                                             .recurrent_activation = STRATA_RECURRENT_LINEAR};
    recurrent_case behind = {true, linear, false}, front = {true, linear, false};
    front.options.reset_first = true;
    strata_array x[3] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(1, 3, 3), 0),
                         strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 3), (double[]){0, 0, 1}),
                         strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3), (double[]){0.5, 0.5, 1})};
    const strata_shape all = STRATA_SHAPE(1, 3, 1);
    expect_values((op_case){recurrent, &behind, x, 3}, STRATA_DTYPE_F32, all, (double[]){0.25, 0.4375, 0.578125});
    expect_values((op_case){recurrent, &front, x, 3}, STRATA_DTYPE_F32, all, (double[]){0.5, 0.875, 1.15625});
    for (int k = 0; k < 3; k++) strata_array_finish(&x[k]);
}

static strata_tensor *with_factors(strata_tensor *const *x, const void *user) {
    const recurrent_case *c = user;
    strata_recurrent_options options = c->options;
    options.factors = x[3];
    return (c->gru ? strata_gru : strata_lstm)(x[0], x[1], x[2], NULL, options);
}

/* Which units recurrent dropout drops is random, so Keras' masks cannot be compared. The results for given masks must be
 * Keras' (golden/layers.py). */
Test(recurrent, factors_multiply_what_keras_recurrent_dropout_multiplies) {
    static const struct {
        const char *name;
        recurrent_case c;
    } cases[] = {
        {"lstm", {false, {0}, false}}, {"gru", {true, {0}, false}}, {"gru_reset_before", {true, {.reset_first = true}, false}}};
    static const char *const parts[] = {"z", "matrix", "bias", "factors"};
    strata_golden *golden = strata_golden_load("layers");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        strata_array x[4];
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "factors_%s_%s", cases[i].name, parts[k]);
            x[k] = *strata_golden_get(golden, name);
        }
        snprintf(name, sizeof name, "factors_%s_y", cases[i].name);
        strata_array got = evaluate((op_case){with_factors, &cases[i].c, x, 4});
        strata_test_result same =
            strata_test_compare(&got, strata_golden_get(golden, name), strata_test_tolerance_of(STRATA_DTYPE_F32, 16));
        cr_expect(same.ok, "%s: %s", cases[i].name, same.text);
        strata_array_finish(&got);
    }
    strata_golden_destroy(golden);
}

Test(recurrent, refuses_operands_that_do_not_fit) {
    static const recurrent_case lstm = {false, {0}, false}, gru = {true, {0}, false}, drops = {false, {0}, true};
    static const recurrent_case unknown = {false, {.activation = (strata_recurrent_activation)77}, false};
    static const recurrent_case last = {false, {.last = true}, false};
    strata_array z = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N, T, 8), 1);
    strata_array flat = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N, 8), 1);
    strata_array none = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N, 0, 8), 1);
    strata_array half = strata_test_full(STRATA_DTYPE_F16, STRATA_SHAPE(N, T, 8), 1);
    strata_array matrix = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 8), 1);
    strata_array bias = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(8), 1);
    strata_array wide = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N, T, 12), 1);
    const struct {
        const recurrent_case *c;
        const strata_array *z, *matrix, *bias;
        const char *words;
    } wrong[] = {
        {&lstm, &flat, &matrix, &bias, "z is (2,8); it must be (examples, steps, 4 times the units)"},
        {&gru, &z, &matrix, &bias, "z is (2,3,8); it must be (examples, steps, 3 times the units)"},
        {&lstm, &z, &z, &bias, "matrix is (2,3,8); it must be (2,8)"},
        {&lstm, &z, &matrix, &matrix, "bias is (2,8); it must be (8)"},
        {&lstm, &half, &matrix, &bias, "z is f16; it must be f32"},
        {&unknown, &z, &matrix, &bias, "activations 77 and 0"},
        {&last, &none, &matrix, &bias, "no step is the last of none"},
        {&drops, &wide, &matrix, &bias, "mask is (2,5); it must be (2,3)"}, /* factors for 2 units, but there are 3 */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const strata_array x[3] = {*wrong[i].z, *wrong[i].matrix, *wrong[i].bias};
        expect_rejected((op_case){recurrent, wrong[i].c, x, 3}, wrong[i].words);
    }
    strata_array *made[] = {&z, &flat, &none, &half, &matrix, &bias, &wide};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) strata_array_finish(made[i]);
}
