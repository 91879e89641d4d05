/* SPDX-License-Identifier: Apache-2.0
 *
 * lstm and gru: gradients against finite differences, directions, masks, what they refuse. Values: tests/layer/keras_test.c and
 * the conformance table "recurrent". */
#include <criterion/criterion.h>

#include "tests/op/op_case.h"

typedef struct recurrent_case {
    bool gru;
    strata_recurrent_options options;
} recurrent_case;

static strata_tensor *recurrent(strata_tensor *const *x, const void *user) {
    const recurrent_case *c = user;
    return (c->gru ? strata_gru : strata_lstm)(x[0], x[1], x[2], NULL, c->options);
}

/* The second step of the first example and the third of the second are padding. */
static strata_tensor *masked(strata_tensor *const *x, const void *user) {
    const recurrent_case *c = user;
    const strata_array mask = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), (float[]){1, 0, 1, 1, 1, 0});
    strata_tensor *kept = strata_constant(strata_tensor_graph(x[0]), &mask);
    return (c->gru ? strata_gru : strata_lstm)(x[0], x[1], x[2], kept, c->options);
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
        {false, {0}},
        {false, {.reverse = true}},
        {false, {.last = true}},
        {false, {.activation = STRATA_RECURRENT_SIGMOID, .recurrent_activation = STRATA_RECURRENT_TANH}},
        {false, {.activation = STRATA_RECURRENT_LINEAR, .recurrent_activation = STRATA_RECURRENT_LINEAR}},
        {true, {0}},
        {true, {.reverse = true}},
        {true, {.last = true, .reverse = true}},
        {true, {.activation = STRATA_RECURRENT_LINEAR, .recurrent_activation = STRATA_RECURRENT_TANH}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_array x[3];
        operands(cases[i].gru, x);
        expect_gradient((op_case){recurrent, &cases[i], x, 3});
        expect_gradient((op_case){masked, &cases[i], x, 3});
        for (int k = 0; k < 3; k++) strata_array_finish(&x[k]);
    }
}

/* One unit, all gates 1 whatever comes (linear, of 1): c = c + 1 at each step, and h = c. */
Test(recurrent, counts_steps_in_both_directions_and_leaves_padding_out) {
    const strata_recurrent_options count = {.activation = STRATA_RECURRENT_LINEAR,
                                            .recurrent_activation = STRATA_RECURRENT_LINEAR};
    recurrent_case forward = {false, count}, backward = {false, count}, last = {false, count};
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

Test(recurrent, refuses_operands_that_do_not_fit) {
    static const recurrent_case lstm = {false, {0}}, gru = {true, {0}};
    static const recurrent_case unknown = {false, {.activation = (strata_recurrent_activation)77}};
    static const recurrent_case last = {false, {.last = true}};
    strata_array z = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N, T, 8), 1);
    strata_array flat = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N, 8), 1);
    strata_array none = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N, 0, 8), 1);
    strata_array half = strata_test_full(STRATA_DTYPE_F16, STRATA_SHAPE(N, T, 8), 1);
    strata_array matrix = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 8), 1);
    strata_array bias = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(8), 1);
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
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const strata_array x[3] = {*wrong[i].z, *wrong[i].matrix, *wrong[i].bias};
        expect_rejected((op_case){recurrent, wrong[i].c, x, 3}, wrong[i].words);
    }
    strata_array *made[] = {&z, &flat, &none, &half, &matrix, &bias};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) strata_array_finish(made[i]);
}
