/* SPDX-License-Identifier: Apache-2.0
 *
 * add, multiply, concat: layers with several inputs. They keep the mask of padding; the model removes it if the inputs
 * have different masks. */
#include "core/graph/graph.h"
#include "core/layer/layer.h"

/* Checks that all inputs have the shape of the first one, except along `axis` (-1: along all axes). */
static strata_tensor *check_shapes(strata_tensor *const *inputs, int n, int axis) {
    const strata_shape first = strata_tensor_shape(inputs[0]);
    for (int i = 1; i < n; i++) {
        strata_shape other = strata_tensor_shape(inputs[i]);
        if (strata_tensor_is_poison(inputs[i])) return inputs[i];
        if (axis >= 0 && axis < other.rank && other.rank == first.rank) other.dims[axis] = first.dims[axis];
        if (strata_shape_equal(first, other)) continue;
        return strata_graph_poison(strata_tensor_graph(inputs[0]), NULL, STRATA_INVALID,
                                   "its inputs 0 and %d are %s and %s; they must be equal%s", i, strata_shape_text(first).text,
                                   strata_shape_text(strata_tensor_shape(inputs[i])).text,
                                   axis >= 0 ? " but for the axis along which they are joined" : "");
    }
    return NULL;
}

static strata_tensor *fold(strata_tensor *(*op)(strata_tensor *, strata_tensor *), strata_tensor *const *inputs, int n) {
    strata_tensor *y = check_shapes(inputs, n, -1);
    if (y) return y;
    y = inputs[0];
    for (int i = 1; i < n; i++) y = op(y, inputs[i]);
    return y;
}

static strata_tensor *add_build(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    (void)options;
    (void)context;
    return fold(strata_add, inputs, n);
}

static strata_tensor *multiply_build(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    (void)options;
    (void)context;
    return fold(strata_mul, inputs, n);
}

static strata_tensor *concat_build(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    const int rank = strata_tensor_shape(inputs[0]).rank;
    int axis = (int)((const strata_concat_options *)options)->axis;
    (void)context;
    if (!axis) axis = rank - 1;
    if (axis < 1 || axis >= rank)
        return strata_graph_poison(strata_tensor_graph(inputs[0]), NULL, STRATA_INVALID, "axis is %d; its inputs are %s", axis,
                                   strata_shape_text(strata_tensor_shape(inputs[0])).text);
    strata_tensor *wrong = check_shapes(inputs, n, axis);
    return wrong ? wrong : strata_concat((strata_tensor **)inputs, n, axis);
}

const strata_layer_kind strata_layer_add = {.name = "add",
                                            STRATA_LAYER_OPTIONS(strata_add_options),
                                            .keeps_mask = true,
                                            .least_inputs = 2,
                                            .most_inputs = STRATA_MAX_LAYER_INPUTS,
                                            .build_many = add_build};
const strata_layer_kind strata_layer_multiply = {.name = "multiply",
                                                 STRATA_LAYER_OPTIONS(strata_multiply_options),
                                                 .keeps_mask = true,
                                                 .least_inputs = 2,
                                                 .most_inputs = STRATA_MAX_LAYER_INPUTS,
                                                 .build_many = multiply_build};
const strata_layer_kind strata_layer_concat = {
    .name = "concat",
    STRATA_LAYER_OPTIONS(strata_concat_options),
    .options = {{"axis", STRATA_OPTION_INT, offsetof(strata_concat_options, axis), 1, STRATA_MAX_RANK - 1, false}},
    .least_inputs = 2,
    .most_inputs = STRATA_MAX_LAYER_INPUTS,
    .build_many = concat_build};
