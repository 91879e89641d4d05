/* SPDX-License-Identifier: Apache-2.0
 *
 * The layer op: the numbers of its options are the arguments of its op. Values are NumPy's. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/layer/layer.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"

enum { MOST_INPUTS = 3, MOST_INDICES = 3, MOST_WANTED = 32 };

/* Element i of input k is ((7 i + 3 k) mod 11 - 5) / 2. */
typedef struct op_case {
    strata_op_options opts;
    int n;
    strata_shape shapes[MOST_INPUTS];
    /* The input, counted from 1, that has these indices instead; 0: none. */
    int whole;
    int indices[MOST_INDICES];
    strata_shape shape;
    double want[MOST_WANTED];
} op_case;

static const op_case cases[] = {
    {.opts = {.op = "matmul"},
     .n = 2,
     .shapes = {STRATA_SHAPE(2, 3), STRATA_SHAPE(3, 2)},
     .shape = STRATA_SHAPE(2, 2),
     .want = {1, -7.75, -5.25, 5.5}},
    {.opts = {.op = "matmul"}, .n = 2, .shapes = {STRATA_SHAPE(3), STRATA_SHAPE(3)}, .shape = STRATA_SHAPE(), .want = {4.5}},
    {.opts = {.op = "matmul"},
     .n = 2,
     .shapes = {STRATA_SHAPE(3), STRATA_SHAPE(3, 2)},
     .shape = STRATA_SHAPE(2),
     .want = {1, -7.75}},
    {.opts = {.op = "matmul"},
     .n = 2,
     .shapes = {STRATA_SHAPE(2, 3), STRATA_SHAPE(3)},
     .shape = STRATA_SHAPE(2),
     .want = {4.5, -2}},
    {.opts = {.op = "matmul"},
     .n = 2,
     .shapes = {STRATA_SHAPE(2, 2, 3), STRATA_SHAPE(3, 2)},
     .shape = STRATA_SHAPE(2, 2, 2),
     .want = {1, -7.75, -5.25, 5.5, -6, 5, -6.75, 4.5}},
    {.opts = {.op = "matmul"},
     .n = 2,
     .shapes = {STRATA_SHAPE(2, 1, 2, 3), STRATA_SHAPE(2, 3, 1)},
     .shape = STRATA_SHAPE(2, 2, 2, 1),
     .want = {4.5, -2, 5.75, -2.75, -3, -4, -3, -3.25}},
    {.opts = {.op = "matmul"},
     .n = 2,
     .shapes = {STRATA_SHAPE(3), STRATA_SHAPE(2, 3, 1)},
     .shape = STRATA_SHAPE(2, 1),
     .want = {4.5, 5.75}},
    {.opts = {.op = "matmul"},
     .n = 2,
     .shapes = {STRATA_SHAPE(2, 2, 3), STRATA_SHAPE(3)},
     .shape = STRATA_SHAPE(2, 2),
     .want = {4.5, -2, -3, -4}},
    {.opts = {.op = "matmul"},
     .n = 2,
     .shapes = {STRATA_SHAPE(1, 2, 3), STRATA_SHAPE(2, 3, 1)},
     .shape = STRATA_SHAPE(2, 2, 1),
     .want = {4.5, -2, 5.75, -2.75}},
    {.opts = {.op = "leaky_relu", .numbers = {1, {0.25}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3)},
     .shape = STRATA_SHAPE(2, 3),
     .want = {-0.625, 1, -0.25, 2.5, 0.5, -0.375}},
    {.opts = {.op = "elu", .numbers = {1, {0.5}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3)},
     .shape = STRATA_SHAPE(2, 3),
     .want = {-0.4589575, 1, -0.3160603, 2.5, 0.5, -0.3884349}},
    {.opts = {.op = "clip", .numbers = {2, {-1.25, 1.5}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3)},
     .shape = STRATA_SHAPE(2, 3),
     .want = {-1.25, 1, -1, 1.5, 0.5, -1.25}},
    {.opts = {.op = "cast", .dtype = "i32"},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3)},
     .shape = STRATA_SHAPE(2, 3),
     .want = {-2, 1, -1, 2, 0, -1}},
    {.opts = {.op = "reshape", .numbers = {2, {0, 6}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(2, 6),
     .want = {-2.5, 1, -1, 2.5, 0.5, -1.5, 2, 0, -2, 1.5, -0.5, -2.5}},
    {.opts = {.op = "reshape", .numbers = {4, {0, 0, 1, 2}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(2, 3, 1, 2),
     .want = {-2.5, 1, -1, 2.5, 0.5, -1.5, 2, 0, -2, 1.5, -0.5, -2.5}},
    {.opts = {.op = "expand", .numbers = {2, {0, 3}}},
     .n = 2,
     .shapes = {STRATA_SHAPE(1, 3), STRATA_SHAPE(2, 4)},
     .shape = STRATA_SHAPE(2, 3),
     .want = {-2.5, 1, -1, -2.5, 1, -1}},
    {.opts = {.op = "expand", .numbers = {3, {4, 0, 3}}},
     .n = 2,
     .shapes = {STRATA_SHAPE(1, 3), STRATA_SHAPE(2, 4)},
     .shape = STRATA_SHAPE(4, 2, 3),
     .want = {-2.5, 1, -1, -2.5, 1, -1, -2.5, 1, -1, -2.5, 1, -1, -2.5, 1, -1, -2.5, 1, -1, -2.5, 1, -1, -2.5, 1, -1}},
    {.opts = {.op = "transpose", .numbers = {3, {-1, 0, 1}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(2, 2, 3),
     .want = {-2.5, -1, 0.5, 2, -2, -0.5, 1, 2.5, -1.5, 0, 1.5, -2.5}},
    {.opts = {.op = "transpose", .numbers = {3, {1, 0, 2}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(3, 2, 2),
     .want = {-2.5, 1, 2, 0, -1, 2.5, -2, 1.5, 0.5, -1.5, -0.5, -2.5}},
    {.opts = {.op = "slice", .numbers = {6, {1, 1, 0, 1, -1, 1}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(1, 2, 1),
     .want = {-2, -0.5}},
    {.opts = {.op = "pad", .numbers = {4, {1, 0, 0, 2}}, .value = 1.5},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3)},
     .shape = STRATA_SHAPE(3, 5),
     .want = {1.5, 1.5, 1.5, 1.5, 1.5, -2.5, 1, -1, 1.5, 1.5, 2.5, 0.5, -1.5, 1.5, 1.5}},
    {.opts = {.op = "tile", .numbers = {2, {2, 1}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3)},
     .shape = STRATA_SHAPE(4, 3),
     .want = {-2.5, 1, -1, 2.5, 0.5, -1.5, -2.5, 1, -1, 2.5, 0.5, -1.5}},
    {.opts = {.op = "gather", .numbers = {1, {1}}},
     .n = 2,
     .shapes = {STRATA_SHAPE(2, 3, 2), STRATA_SHAPE(3)},
     .whole = 2,
     .indices = {-1, 0, 1},
     .shape = STRATA_SHAPE(2, 3, 2),
     .want = {0.5, -1.5, -2.5, 1, -1, 2.5, -0.5, -2.5, 2, 0, -2, 1.5}},
    {.opts = {.op = "gather", .numbers = {1, {0}}},
     .n = 2,
     .shapes = {STRATA_SHAPE(2, 3, 2), STRATA_SHAPE(2)},
     .whole = 2,
     .indices = {1, -2},
     .shape = STRATA_SHAPE(2, 3, 2),
     .want = {2, 0, -2, 1.5, -0.5, -2.5, -2.5, 1, -1, 2.5, 0.5, -1.5}},
    {.opts = {.op = "gather", .numbers = {1, {-1}}},
     .n = 2,
     .shapes = {STRATA_SHAPE(2, 3, 2), STRATA_SHAPE(2, 1)},
     .whole = 2,
     .indices = {1, -2},
     .shape = STRATA_SHAPE(2, 3, 2, 1),
     .want = {1, -2.5, 2.5, -1, -1.5, 0.5, 0, 2, 1.5, -2, -2.5, -0.5}},
    {.opts = {.op = "one_hot", .numbers = {1, {4}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(3)},
     .whole = 1,
     .indices = {2, 0, 3},
     .shape = STRATA_SHAPE(3, 4),
     .want = {0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1}},
    {.opts = {.op = "concat", .numbers = {1, {-1}}},
     .n = 2,
     .shapes = {STRATA_SHAPE(2, 3), STRATA_SHAPE(2, 1)},
     .shape = STRATA_SHAPE(2, 4),
     .want = {-2.5, 1, -1, -1, 2.5, 0.5, -1.5, 2.5}},
    {.opts = {.op = "concat", .numbers = {1, {0}}},
     .n = 2,
     .shapes = {STRATA_SHAPE(2, 3), STRATA_SHAPE(1, 3)},
     .shape = STRATA_SHAPE(3, 3),
     .want = {-2.5, 1, -1, 2.5, 0.5, -1.5, -1, 2.5, 0.5}},
    {.opts = {.op = "reduce_sum", .numbers = {1, {-2}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(2, 2),
     .want = {-3, 2, -0.5, -1}},
    {.opts = {.op = "reduce_sum", .numbers = {2, {0, -1}}, .value = 1},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(1, 3, 1),
     .want = {0.5, 1, -4}},
    {.opts = {.op = "reduce_mean", .numbers = {1, {-2}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(2, 2),
     .want = {-1, 0.6666667, -0.1666667, -0.3333333}},
    {.opts = {.op = "reduce_mean", .numbers = {2, {0, -1}}, .value = 1},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(1, 3, 1),
     .want = {0.125, 0.25, -1}},
    {.opts = {.op = "reduce_max", .numbers = {1, {-2}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(2, 2),
     .want = {0.5, 2.5, 2, 1.5}},
    {.opts = {.op = "reduce_max", .numbers = {2, {0, -1}}, .value = 1},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(1, 3, 1),
     .want = {2, 2.5, 0.5}},
    {.opts = {.op = "reduce_min", .numbers = {1, {-2}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(2, 2),
     .want = {-2.5, -1.5, -2, -2.5}},
    {.opts = {.op = "reduce_min", .numbers = {2, {0, -1}}, .value = 1},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3, 2)},
     .shape = STRATA_SHAPE(1, 3, 1),
     .want = {-2.5, -2, -2.5}},
    {.opts = {.op = "reduce_sum"}, .n = 1, .shapes = {STRATA_SHAPE(2, 3, 2)}, .shape = STRATA_SHAPE(), .want = {-2.5}},
    {.opts = {.op = "argmax", .numbers = {1, {1}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3)},
     .shape = STRATA_SHAPE(2),
     .want = {1, 0}},
    {.opts = {.op = "argmax", .numbers = {1, {-2}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3)},
     .shape = STRATA_SHAPE(3),
     .want = {1, 0, 0}},
    {.opts = {.op = "top_k", .numbers = {1, {2}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3)},
     .shape = STRATA_SHAPE(2, 2),
     .want = {1, -1, 2.5, 0.5}},
    {.opts = {.op = "top_k_indices", .numbers = {1, {2}}},
     .n = 1,
     .shapes = {STRATA_SHAPE(2, 3)},
     .shape = STRATA_SHAPE(2, 2),
     .want = {1, 2, 0, 1}},
    {.opts = {.op = "conv2d", .numbers = {9, {2, 1, 1, 2, 1, 0, 0, 2, 2}}},
     .n = 2,
     .shapes = {STRATA_SHAPE(1, 4, 3, 2), STRATA_SHAPE(2, 2, 1, 2)},
     .shape = STRATA_SHAPE(1, 2, 3, 2),
     .want = {-6, -2.25, -2, 0, 1, 0, 2.75, 6.75, 7, 3.75, -2.5, -6.25}},
    {.opts = {.op = "conv2d", .numbers = {9, {1, 2, 2, 1, 0, 1, 2, 0, 1}}},
     .n = 2,
     .shapes = {STRATA_SHAPE(1, 3, 4, 1), STRATA_SHAPE(2, 3, 1, 1)},
     .shape = STRATA_SHAPE(1, 2, 2, 1),
     .want = {-1.25, 10.5, 0.25, -3.25}},
    {.opts = {.op = "layer_norm", .value = 0.25},
     .n = 3,
     .shapes = {STRATA_SHAPE(2, 3), STRATA_SHAPE(3), STRATA_SHAPE(3)},
     .shape = STRATA_SHAPE(2, 3),
     .want = {1.5976426, 1.5185171, 1.9451179, -0.6710801, -1.5, 1.41446}},
};

static void check_case(const op_case *c, strata_dtype index) {
    strata_error err = {0};
    strata_graph *graph = NULL;
    strata_array values[MOST_INPUTS], got;
    strata_tensor *inputs[MOST_INPUTS];
    strata_test_feed feeds[MOST_INPUTS];
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    for (int k = 0; k < c->n; k++) {
        const strata_dtype dtype = k + 1 == c->whole ? index : STRATA_DTYPE_F32;
        const char name[] = {'x', (char)('0' + k), 0};
        cr_assert_eq(strata_array_create(dtype, c->shapes[k], &values[k], &err), STRATA_OK);
        for (int64_t i = 0; i < strata_shape_elements(c->shapes[k]); i++)
            strata_element_set(dtype, values[k].data, i,
                               k + 1 == c->whole ? c->indices[i] : (double)((7 * i + 3 * k) % 11 - 5) / 2);
        inputs[k] = strata_input(graph, name, dtype, c->shapes[k]);
        feeds[k] = (strata_test_feed){inputs[k], &values[k]};
    }
    strata_tensor *y = strata_op_apply(&c->opts, inputs, c->n);
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_OK, "%s: %s", c->opts.op, err.message);
    cr_assert_eq(strata_test_eval(&y, 1, feeds, c->n, &got, &err), STRATA_OK, "%s: %s", c->opts.op, err.message);
    cr_expect(strata_shape_equal(got.shape, c->shape), "%s is %s, not %s", c->opts.op, strata_shape_text(got.shape).text,
              strata_shape_text(c->shape).text);
    for (int64_t i = 0; i < strata_shape_elements(got.shape); i++) {
        const double element = strata_element_get(got.dtype, got.data, i);
        cr_expect_float_eq(element, c->want[i], 1e-5, "%s of %s: element %d is %g, not %g", c->opts.op,
                           strata_shape_text(c->shapes[0]).text, (int)i, element, c->want[i]);
    }
    for (int k = 0; k < c->n; k++) strata_array_finish(&values[k]);
    strata_array_finish(&got);
    strata_graph_destroy(graph);
}

Test(op_layer, each_op_takes_its_numbers_as_numpy_does) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_case(&cases[i], STRATA_DTYPE_I32);
        if (cases[i].whole) check_case(&cases[i], STRATA_DTYPE_I64);
    }
}

Test(op_layer, numbers_that_do_not_fit_are_told) {
    static const struct {
        strata_op_options opts;
        int n;
        const char *text;
    } wrong[] = {{{.op = "sinh"}, 1, "there is no op \"sinh\" for a layer"},
                 {{.op = "neg", .numbers = {1, {2}}}, 1, "neg has 1 numbers; it takes 0 to 0"},
                 {{.op = "gather"}, 2, "gather has 0 numbers; it takes 1 to 1"},
                 {{.op = "add"}, 1, "add takes 2 to 2 inputs; it was given 1"},
                 {{.op = "where"}, 2, "where takes 3 to 3 inputs; it was given 2"},
                 {{.op = "one_hot", .numbers = {1, {1.5}}}, 1, "one_hot: number 0 is 1.5; it must be whole"},
                 {{.op = "reshape", .numbers = {9, {1, 1, 1, 1, 1, 1, 1, 2, 3}}}, 1, "reshape has 9 numbers; it takes 0 to 8"},
                 {{.op = "reshape", .numbers = {3, {2, 3, 0}}}, 1, "0 stands for an axis that x does not have; x is (2,3)"},
                 {{.op = "transpose", .numbers = {1, {0}}}, 1, "transpose needs as many axes as x has; x is (2,3)"},
                 {{.op = "slice", .numbers = {3, {0, 0, 1}}}, 1, "slice needs two numbers for each axis; x is (2,3)"},
                 {{.op = "pad", .numbers = {2, {0, 1}}}, 1, "pad needs two numbers for each axis; x is (2,3)"},
                 {{.op = "tile", .numbers = {1, {2}}}, 1, "tile needs a number for each axis; x is (2,3)"},
                 {{.op = "gather", .numbers = {1, {2}}}, 2, "gather along an axis that x does not have; x is (2,3)"},
                 {{.op = "gather", .numbers = {1, {-3}}}, 2, "gather along an axis that x does not have; x is (2,3)"},
                 {{.op = "cast", .dtype = "f8"}, 1, "cast: "}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_error err = {0};
        strata_graph *graph = NULL;
        cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
        strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(2, 3)), *inputs[] = {x, x, x};
        strata_op_apply(&wrong[i].opts, inputs, wrong[i].n);
        cr_expect_neq(strata_graph_check(graph, &err), STRATA_OK);
        cr_expect(strstr(err.message, wrong[i].text), "\"%s\" is not in \"%s\"", wrong[i].text, err.message);
        strata_graph_destroy(graph);
    }
}

/* A layer of a model that only passes its input on is there nevertheless. */
Test(op_layer, a_print_layer_prints) {
    strata_error err = {0};
    strata_graph *graph = NULL;
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    const strata_print_options opts = {.every = 3, .first = 2, .name = "seen"};
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(2, 3));
    const strata_tensor *y = strata_layer_print.build(&opts, NULL, x);
    cr_expect(y != x && !strcmp(y->op->name, "print") && y->inputs[0] == x);
    strata_graph_destroy(graph);
}
