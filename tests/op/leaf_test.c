/* SPDX-License-Identifier: Apache-2.0
 *
 * Leaves (inputs, constants and reads of variables), and the table of ops. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/op/ops.h"
#include "tests/op/op_case.h"
#include "tests/support/eval.h"

static strata_graph *new_graph(void) {
    strata_graph *graph = NULL;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    return graph;
}

static void expect_poisoned(strata_graph *graph, const char *words) {
    strata_error err = {0};
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, words), "the message is \"%s\"", err.message);
    strata_graph_destroy(graph);
}

Test(leaf, inputs_have_their_name_dtype_and_shape) {
    strata_graph *graph = new_graph();
    char name[] = "pixels";
    strata_tensor *x = strata_input(graph, name, STRATA_DTYPE_BF16, STRATA_SHAPE(2, 3));
    name[0] = 'P'; /* the graph has copied the name */
    cr_assert_str_eq(strata_tensor_name(x), "pixels");
    cr_assert_eq(strata_tensor_dtype(x), STRATA_DTYPE_BF16);
    cr_assert(strata_shape_equal(strata_tensor_shape(x), STRATA_SHAPE(2, 3)));
    cr_assert_eq(strata_graph_check(graph, NULL), STRATA_OK);
    strata_graph_destroy(graph);
}

Test(leaf, input_names_are_unique) {
    strata_graph *graph = new_graph();
    strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE());
    strata_input(graph, "y", STRATA_DTYPE_F32, STRATA_SHAPE());
    strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE());
    expect_poisoned(graph, "input: there is one named \"x\" already");
}

Test(leaf, inputs_need_a_name_a_dtype_and_a_shape) {
    strata_graph *graph = new_graph();
    strata_input(graph, NULL, STRATA_DTYPE_F32, STRATA_SHAPE());
    expect_poisoned(graph, "input: it needs a name");
    graph = new_graph();
    strata_input(graph, "x", (strata_dtype)77, STRATA_SHAPE());
    expect_poisoned(graph, "dtype 77 is not known");
    graph = new_graph();
    strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(2, -1));
    expect_poisoned(graph, "dimension 1 of shape (2,-1) is negative");
    cr_assert_null(strata_input(NULL, "x", STRATA_DTYPE_F32, STRATA_SHAPE()));
}

Test(leaf, constants_copy_their_elements) {
    strata_graph *graph = new_graph();
    float values[] = {1, 2, 3};
    strata_array array = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3), values), result;
    strata_tensor *x = strata_constant(graph, &array);
    values[1] = 9;
    strata_error err = {0};
    cr_assert_eq(strata_test_eval(&x, 1, NULL, 0, &result, &err), STRATA_OK, "%s", err.message);
    cr_assert_arr_eq(result.data, ((float[]){1, 2, 3}), sizeof values);
    strata_array_finish(&result);
    strata_graph_destroy(graph);
}

Test(leaf, scalars_come_in_every_dtype) {
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        strata_graph *graph = new_graph();
        strata_tensor *x = strata_scalar(graph, (strata_dtype)dtype, 1);
        strata_array result;
        cr_assert_eq(strata_test_eval(&x, 1, NULL, 0, &result, NULL), STRATA_OK);
        cr_assert_eq(result.dtype, (strata_dtype)dtype);
        cr_assert_eq(result.shape.rank, 0);
        cr_assert_float_eq(strata_element_get(result.dtype, result.data, 0), 1, 0);
        strata_array_finish(&result);
        strata_graph_destroy(graph);
    }
}

Test(leaf, constants_may_be_empty_but_not_missing) {
    strata_graph *graph = new_graph();
    strata_array empty = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(0, 3), NULL);
    cr_assert(strata_shape_equal(strata_tensor_shape(strata_constant(graph, &empty)), STRATA_SHAPE(0, 3)));
    cr_assert_eq(strata_graph_check(graph, NULL), STRATA_OK);
    strata_array missing = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2), NULL);
    strata_constant(graph, &missing);
    expect_poisoned(graph, "constant: its data is NULL");
}

Test(leaf, reads_take_dtype_shape_and_name_from_the_variable) {
    strata_graph *graph = new_graph();
    strata_variable variable = strata_test_variable("weights", STRATA_DTYPE_F16, STRATA_SHAPE(4, 2));
    strata_tensor *x = strata_variable_read(graph, &variable);
    cr_assert_eq(strata_tensor_dtype(x), STRATA_DTYPE_F16);
    cr_assert(strata_shape_equal(strata_tensor_shape(x), STRATA_SHAPE(4, 2)));
    cr_assert_str_eq(strata_tensor_name(x), "weights");
    cr_assert_eq(strata_graph_check(graph, NULL), STRATA_OK);
    strata_variable_read(graph, NULL);
    expect_poisoned(graph, "read: the variable is NULL");
}

Test(leaf, null_operands_never_crash_a_builder) {
    const int axes[] = {0};
    const int64_t numbers[] = {0};
    strata_tensor *none = NULL;
    cr_assert_null(strata_neg(NULL));
    cr_assert_null(strata_add(NULL, NULL));
    cr_assert_null(strata_clip(NULL, 0, 1));
    cr_assert_null(strata_cast(NULL, STRATA_DTYPE_F32));
    cr_assert_null(strata_where(NULL, NULL, NULL));
    cr_assert_null(strata_reshape(NULL, STRATA_SHAPE()));
    cr_assert_null(strata_flatten(NULL));
    cr_assert_null(strata_transpose(NULL, axes));
    cr_assert_null(strata_broadcast_to(NULL, STRATA_SHAPE()));
    cr_assert_null(strata_concat(&none, 1, 0));
    cr_assert_null(strata_concat(NULL, 0, 0));
    cr_assert_null(strata_slice(NULL, numbers, numbers));
    cr_assert_null(strata_pad(NULL, numbers, numbers, 0));
    cr_assert_null(strata_gather(NULL, NULL, 0));
    cr_assert_null(strata_one_hot(NULL, 1, STRATA_DTYPE_F32));
    cr_assert_null(strata_pack(&none, numbers, 1, 1));
    cr_assert_null(strata_assign(NULL, NULL));
}

Test(leaf, a_poisoned_operand_poisons_every_builder_and_keeps_the_first_error) {
    const int64_t numbers[] = {0};
    strata_graph *graph = new_graph();
    strata_tensor *bad = strata_input(graph, "", STRATA_DTYPE_F32, STRATA_SHAPE());
    strata_tensor *built[] = {strata_exp(bad),
                              strata_sub(bad, bad),
                              strata_clip(bad, 2, 1),
                              strata_cast(bad, STRATA_DTYPE_I32),
                              strata_where(bad, bad, bad),
                              strata_reshape(bad, STRATA_SHAPE(7)),
                              strata_flatten(bad),
                              strata_transpose(bad, NULL),
                              strata_broadcast_to(bad, STRATA_SHAPE(3)),
                              strata_concat(&bad, 1, 5),
                              strata_slice(bad, numbers, numbers),
                              strata_pad(bad, numbers, numbers, 0),
                              strata_gather(bad, bad, 3),
                              strata_one_hot(bad, 0, STRATA_DTYPE_F32),
                              strata_pack(&bad, numbers, 1, 1),
                              strata_assign(bad, bad)};
    for (size_t i = 0; i < sizeof built / sizeof *built; i++) cr_assert_eq(built[i], bad, "builder %zu", i);
    expect_poisoned(graph, "input: it needs a name");
}

Test(leaf, every_op_is_found_by_its_name) {
    cr_assert_gt(strata_n_ops, 60);
    for (int i = 0; i < strata_n_ops; i++) {
        cr_assert_eq(strata_op_find(strata_ops[i]->name), strata_ops[i], "%s is there twice", strata_ops[i]->name);
        const bool computes = !(strata_ops[i]->flags & STRATA_OP_LEAF);
        const bool on_device = computes && !(strata_ops[i]->flags & (STRATA_OP_VIEW | STRATA_OP_COMMUNICATION));
        cr_assert_eq(strata_ops[i]->shape != NULL, computes, "%s", strata_ops[i]->name);
        cr_assert_eq(strata_ops[i]->reference != NULL, computes, "%s", strata_ops[i]->name);
        /* Fusion creates these ops only for devices with a kernel family for them, so they need no portable kernel. */
        static const char *const fused[] = {"gather_mean", "adam_product", "adam_gather"};
        bool is_fused = false;
        for (size_t k = 0; k < sizeof fused / sizeof *fused; k++) is_fused |= !strcmp(strata_ops[i]->name, fused[k]);
        const bool is_portable = on_device && !is_fused;
        cr_assert_eq(strata_ops[i]->lower != NULL, is_portable, "%s", strata_ops[i]->name);
    }
    cr_assert_null(strata_op_find("no such op"));
    cr_assert_null(strata_op_find(NULL));
}
