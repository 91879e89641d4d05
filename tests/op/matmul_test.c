/* SPDX-License-Identifier: Apache-2.0
 *
 * matmul: its shape rule, its reference function compared with NumPy, gradients, epilogues, the nodes that its builder
 * creates, and its launches. */
#include "core/op/matmul.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/op/ops.h"
#include "tests/op/op_case.h"

typedef struct product {
    bool transpose_a, transpose_b;
} product;

static strata_tensor *build_product(strata_tensor *const *x, const void *user) {
    const product *p = user;
    return strata_matmul(x[0], x[1], p->transpose_a, p->transpose_b);
}

static const product plain = {false, false};

/* Multiplies the golden arrays called a and b, and expects the one called ab. */
static void expect_product(const strata_golden *golden, const char *a, const char *b, const char *ab, product p) {
    strata_array x[2] = {*strata_golden_get(golden, a), *strata_golden_get(golden, b)};
    expect_golden((op_case){build_product, &p, x, 2}, strata_golden_get(golden, ab));
}

Test(matmul, agrees_with_numpy_for_every_transpose_and_dtype) {
    strata_golden *golden = strata_golden_load("matmul");
    for (int d = 0; d < 3; d++) {
        char names[5][16];
        static const char *const stems[5] = {"a", "at", "b", "bt", "ab"};
        for (int i = 0; i < 5; i++) snprintf(names[i], sizeof names[i], "%s_%s", stems[i], strata_dtype_name(float_dtypes[d]));
        for (int flags = 0; flags < 4; flags++) {
            product p = {.transpose_a = flags & 1, .transpose_b = flags & 2};
            expect_product(golden, names[p.transpose_a ? 1 : 0], names[p.transpose_b ? 3 : 2], names[4], p);
        }
    }
    strata_golden_destroy(golden);
}

Test(matmul, batches_by_leading_axes_for_every_transpose) {
    strata_golden *golden = strata_golden_load("matmul");
    for (int flags = 0; flags < 4; flags++) {
        product p = {.transpose_a = flags & 1, .transpose_b = flags & 2};
        const char *a = p.transpose_a ? "batch_at" : "batch_a", *b = p.transpose_b ? "batch_bt" : "batch_b";
        expect_product(golden, a, b, "batch_ab", p);
        expect_product(golden, p.transpose_a ? "one_at" : "one_a", b, "one_a_batch_b", p);
        expect_product(golden, a, p.transpose_b ? "one_bt" : "one_b", "batch_a_one_b", p);
    }
    strata_golden_destroy(golden);
}

Test(matmul, of_no_inner_elements_is_zero) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 0), 0),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 3), 0)};
    expect_values((op_case){build_product, &plain, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), (double[6]){0});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(matmul, of_no_rows_is_empty) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 4), 0),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(4, 3), 1)};
    expect_values((op_case){build_product, &plain, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(0, 3), NULL);
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

static void check_gradient(strata_shape a, strata_shape b, product p) {
    strata_array x[2] = {strata_test_random(STRATA_DTYPE_F32, a, -1, 1, 1), strata_test_random(STRATA_DTYPE_F32, b, -1, 1, 2)};
    expect_gradient((op_case){build_product, &p, x, 2});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(matmul, gradients_agree_with_finite_differences_for_every_transpose_and_batch) {
    for (int flags = 0; flags < 4; flags++) {
        product p = {.transpose_a = flags & 1, .transpose_b = flags & 2};
        strata_shape a = p.transpose_a ? STRATA_SHAPE(2, 3, 4) : STRATA_SHAPE(2, 4, 3);
        strata_shape b = p.transpose_b ? STRATA_SHAPE(2, 5, 3) : STRATA_SHAPE(2, 3, 5);
        strata_shape one_a = STRATA_SHAPE(a.dims[1], a.dims[2]), one_b = STRATA_SHAPE(b.dims[1], b.dims[2]);
        check_gradient(one_a, one_b, p);
        check_gradient(a, b, p);
        check_gradient(one_a, b, p);
        check_gradient(a, one_b, p);
    }
}

static void reject(strata_dtype a_dtype, strata_shape a, strata_dtype b_dtype, strata_shape b, product p, const char *words) {
    strata_array x[2] = {strata_test_full(a_dtype, a, 1), strata_test_full(b_dtype, b, 1)};
    expect_rejected((op_case){build_product, &p, x, 2}, words);
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(matmul, rejects_operands_that_do_not_fit_and_says_why) {
    const strata_dtype f32 = STRATA_DTYPE_F32;
    reject(f32, STRATA_SHAPE(32, 784), f32, STRATA_SHAPE(512, 10), plain,
           "matmul: a is (32,784), b is (512,10); a's 784 must equal b's 512");
    reject(f32, STRATA_SHAPE(2, 3), f32, STRATA_SHAPE(3, 4), (product){true, true},
           "a is (2,3) transposed, b is (3,4) transposed; a's 2 must equal b's 4");
    reject(f32, STRATA_SHAPE(2, 2, 3), f32, STRATA_SHAPE(4, 5), plain, "a's 3 must equal b's 4");
    reject(f32, STRATA_SHAPE(2, 2, 3), f32, STRATA_SHAPE(3, 3, 5), plain,
           "a is (2,2,3), b is (3,3,5); their leading axes must be equal, or one must have none");
    reject(f32, STRATA_SHAPE(3), f32, STRATA_SHAPE(3, 5), plain, "a is (3); it must have at least 2 axes");
    reject(f32, STRATA_SHAPE(2, 3), STRATA_DTYPE_F16, STRATA_SHAPE(3, 5), plain, "a is f32, b is f16");
    reject(STRATA_DTYPE_I32, STRATA_SHAPE(2, 3), STRATA_DTYPE_I32, STRATA_SHAPE(3, 5), plain, "i32");
}

/* ---- epilogues ---- */

typedef struct epilogue {
    const char *want;
    bool bias;
    strata_epilogue_activation activation;
    strata_epilogue_aux aux;
} epilogue;

static const epilogue epilogues[] = {
    {"epilogue_bias", true, STRATA_EPILOGUE_LINEAR, STRATA_EPILOGUE_NO_AUX},
    {"epilogue_relu", true, STRATA_EPILOGUE_RELU, STRATA_EPILOGUE_NO_AUX},
    {"epilogue_tanh", true, STRATA_EPILOGUE_TANH, STRATA_EPILOGUE_NO_AUX},
    {"epilogue_sigmoid", true, STRATA_EPILOGUE_SIGMOID, STRATA_EPILOGUE_NO_AUX},
    {"epilogue_relu_grad", false, STRATA_EPILOGUE_LINEAR, STRATA_EPILOGUE_RELU_GRAD},
    {"epilogue_tanh_grad", false, STRATA_EPILOGUE_LINEAR, STRATA_EPILOGUE_TANH_GRAD},
    {"epilogue_sigmoid_grad", false, STRATA_EPILOGUE_LINEAR, STRATA_EPILOGUE_SIGMOID_GRAD},
    {"epilogue_add", false, STRATA_EPILOGUE_LINEAR, STRATA_EPILOGUE_ADD},
    {"epilogue_all", true, STRATA_EPILOGUE_RELU, STRATA_EPILOGUE_ADD},
};
enum { N_EPILOGUES = sizeof epilogues / sizeof epilogues[0] };

/* x contains a, b, bias and aux. The ops are fused one at a time, as the fusion pass does it. */
static strata_tensor *build_epilogue(strata_tensor *const *x, const void *user) {
    const epilogue *e = user;
    strata_tensor *y = strata_matmul(x[0], x[1], false, false);
    if (e->bias) y = strata_epilogue_fused(y, x[2], STRATA_EPILOGUE_LINEAR, STRATA_EPILOGUE_NO_AUX, NULL);
    if (e->activation) y = strata_epilogue_fused(y, NULL, e->activation, STRATA_EPILOGUE_NO_AUX, NULL);
    return e->aux ? strata_epilogue_fused(y, NULL, STRATA_EPILOGUE_LINEAR, e->aux, x[3]) : y;
}

static void epilogue_operands(const strata_golden *golden, strata_array *x) {
    static const char *const names[4] = {"one_a", "one_b", "bias", "aux"};
    for (int i = 0; i < 4; i++) x[i] = *strata_golden_get(golden, names[i]);
}

static int64_t constant_of(const strata_launch *launch, const char *name) {
    for (int i = 0; i < launch->n_constants; i++)
        if (!strcmp(launch->constants[i].name, name)) return launch->constants[i].value;
    cr_assert_fail("the launch does not set %s", name);
    return 0;
}

Test(matmul, epilogues_agree_with_numpy) {
    strata_golden *golden = strata_golden_load("matmul");
    strata_array x[4];
    epilogue_operands(golden, x);
    for (int i = 0; i < N_EPILOGUES; i++)
        expect_golden((op_case){build_epilogue, &epilogues[i], x, 4}, strata_golden_get(golden, epilogues[i].want));
    strata_golden_destroy(golden);
}

Test(matmul, epilogue_is_told_to_the_kernel) {
    strata_golden *golden = strata_golden_load("matmul");
    strata_array x[4];
    epilogue_operands(golden, x);
    for (int i = 0; i < N_EPILOGUES; i++) {
        strata_launch launch[MOST_LAUNCHES];
        cr_assert_eq(lower_to((op_case){build_epilogue, &epilogues[i], x, 4}, launch), 1);
        cr_assert_eq(launch->buffers[2] != NULL, epilogues[i].bias);
        cr_assert_eq(launch->buffers[3] != NULL, epilogues[i].aux != STRATA_EPILOGUE_NO_AUX);
        cr_assert_eq(constant_of(launch, "BIAS"), epilogues[i].bias);
        cr_assert_eq(constant_of(launch, "ACTIVATION"), epilogues[i].activation);
        cr_assert_eq(constant_of(launch, "AUX"), epilogues[i].aux);
    }
    strata_golden_destroy(golden);
}

Test(matmul, only_what_fits_and_comes_next_can_be_fused) {
    strata_graph *graph;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *a = strata_input(graph, "a", STRATA_DTYPE_F32, STRATA_SHAPE(5, 4));
    strata_tensor *b = strata_input(graph, "b", STRATA_DTYPE_F32, STRATA_SHAPE(4, 3));
    strata_tensor *bias = strata_input(graph, "bias", STRATA_DTYPE_F32, STRATA_SHAPE(3));
    strata_tensor *aux = strata_input(graph, "aux", STRATA_DTYPE_F32, STRATA_SHAPE(5, 3));
    strata_tensor *y = strata_matmul(a, b, false, false);
    const strata_epilogue_activation linear = STRATA_EPILOGUE_LINEAR, relu = STRATA_EPILOGUE_RELU;
    const strata_epilogue_aux none = STRATA_EPILOGUE_NO_AUX, add = STRATA_EPILOGUE_ADD;
    cr_assert(strata_epilogue_can_fuse(y, bias, linear, none, NULL));
    cr_assert_not(strata_epilogue_can_fuse(y, aux, linear, none, NULL), "a bias of the product's shape");
    cr_assert_not(strata_epilogue_can_fuse(y, NULL, linear, add, bias), "an aux of the bias's shape");
    strata_tensor *active = strata_epilogue_fused(y, NULL, relu, none, NULL);
    cr_assert_not(strata_epilogue_can_fuse(active, bias, linear, none, NULL), "a bias after the activation");
    cr_assert_not(strata_epilogue_can_fuse(active, NULL, relu, none, NULL), "two activations");
    cr_assert(strata_epilogue_can_fuse(active, NULL, linear, add, aux));
    strata_tensor *added = strata_epilogue_fused(active, NULL, linear, add, aux);
    cr_assert_not(strata_epilogue_can_fuse(added, NULL, linear, add, aux), "two operands aux");
    cr_assert_eq(strata_graph_check(graph, NULL), STRATA_OK);

    strata_tensor *dx;
    strata_gradients(added, NULL, &a, 1, &dx);
    strata_error err;
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_UNSUPPORTED);
    cr_assert(strstr(err.message, "fused"), "%s", err.message);
    strata_graph_destroy(graph);
}

/* ---- what the builder makes ---- */

Test(matmul, one_b_for_many_a_is_one_plain_product) {
    strata_graph *graph;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *a = strata_input(graph, "a", STRATA_DTYPE_F32, STRATA_SHAPE(6, 5, 4));
    strata_tensor *b = strata_input(graph, "b", STRATA_DTYPE_F32, STRATA_SHAPE(4, 3));
    strata_tensor *y = strata_matmul(a, b, false, false), *dx[2];
    strata_gradients(y, NULL, (strata_tensor *[]){a, b}, 2, dx);
    cr_assert_eq(strata_graph_check(graph, NULL), STRATA_OK);
    cr_assert(strata_shape_equal(strata_tensor_shape(y), STRATA_SHAPE(6, 5, 3)));
    int n_products = 0;
    for (int id = 0; id < graph->n_nodes; id++) {
        const strata_tensor *node = graph->nodes[id];
        cr_assert_neq(node->op, &strata_op_transpose);
        cr_assert_neq(node->op, &strata_op_reduce_sum);
        if (node->op != &strata_op_matmul) continue;
        cr_assert_eq(node->shape.rank, 2);
        n_products++;
    }
    cr_assert_eq(n_products, 3);
    strata_graph_destroy(graph);
}

/* The size of tiles may depend on the shape, but the tiles of a launch must cover the whole result. */
Test(matmul, launch_covers_the_result) {
    static const int64_t sizes[][3] = {{1, 1, 1}, {64, 128, 784}, {784, 128, 64}, {17, 33, 5}, {1153, 1153, 64}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(sizes[i][0], sizes[i][2]), 0),
                             strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(sizes[i][2], sizes[i][1]), 0)};
        strata_launch launch[MOST_LAUNCHES];
        cr_assert_eq(lower_to((op_case){build_product, &plain, x, 2}, launch), 1);
        cr_assert_eq(launch->words[0].u32, sizes[i][0]);
        cr_assert_eq(launch->words[1].u32, sizes[i][1]);
        cr_assert_eq(launch->words[2].u32, sizes[i][2]);
        int64_t tile = constant_of(launch, "WORK_M") * launch->local[0];
        cr_assert_eq(constant_of(launch, "WORK_N") * launch->local[1], tile);
        int64_t tiles = ((sizes[i][0] + tile - 1) / tile) * ((sizes[i][1] + tile - 1) / tile);
        cr_assert_eq(launch->global[0], tiles * launch->local[0]);
        strata_array_finish(&x[0]);
        strata_array_finish(&x[1]);
    }
}
