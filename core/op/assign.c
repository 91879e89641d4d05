/* SPDX-License-Identifier: Apache-2.0
 *
 * assign: variable = value.   assign_add: variable += value (integers wrap).   Both write their first operand in place;
 * the node is the variable's new value. No gradient passes through a variable that changes. */
#include "core/op/define.h"
#include "core/op/update.h"

/* The code by which a kernel selects each op: add_code, for example. */
enum {
#define BINARY_NUMBER(code, name, expression) name##_code = code,
#include "core/op/elementwise.def"
};

static strata_status update_shape(strata_tensor *node, unsigned allowed, strata_error *err) {
    const strata_tensor *variable = node->inputs[0], *value = node->inputs[1];
    if (!strata_variable_behind(variable))
        return strata_fail(err, STRATA_INVALID, "its first operand is %s; it must come from strata_variable_read",
                           strata_tensor_name(variable));
    STRATA_TRY(strata_check_dtype(variable, "the variable", allowed, err));
    STRATA_TRY(strata_check_same_dtype(variable, "the variable", value, "the value", err));
    if (!strata_shape_equal(variable->shape, value->shape))
        return strata_fail(err, STRATA_INVALID, "%s is %s, the value is %s; they must be equal", strata_tensor_name(variable),
                           strata_shape_text(variable->shape).text, strata_shape_text(value->shape).text);
    return STRATA_OK;
}

static strata_status assign_shape(strata_tensor *node, strata_error *err) {
    return update_shape(node, STRATA_ANY_DTYPE, err);
}

static void assign_reference(strata_op_call *call) {
    size_t bytes = (size_t)strata_tensor_bytes(call->node);
    if (bytes) memmove(call->output, call->inputs[1], bytes);
}

static strata_status assign_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    strata_copy copy = strata_copy_flat(node->inputs[1], node, 0);
    return strata_copy_lower(&copy, lowering, err);
}

static strata_status assign_add_shape(strata_tensor *node, strata_error *err) {
    return update_shape(node, 1 << STRATA_DTYPE_F32 | STRATA_INDICES, err);
}

static void assign_add_reference(strata_op_call *call) {
    const strata_dtype dtype = call->node->dtype;
    const int64_t n = strata_shape_elements(call->node->shape);
    const void *value = call->inputs[1];
    for (int64_t i = 0; i < n; i++) {
        if (strata_dtype_is_float(dtype)) {
            strata_element_set(dtype, call->output, i,
                               strata_element_get(dtype, call->output, i) + strata_element_get(dtype, value, i));
        } else {
            uint64_t sum = (uint64_t)strata_integer_get(dtype, call->output, i) + (uint64_t)strata_integer_get(dtype, value, i);
            strata_integer_set(dtype, call->output, i, (int64_t)sum);
        }
    }
}

/* Uses shaders/binary.kernel with the op add. The variable is both an operand and the result. */
static strata_status assign_add_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const int64_t n = strata_shape_elements(node->shape);
    const strata_strided flat = {.rank = 1, .sizes = {n}, .n_tensors = 3, .strides = {{1}, {1}, {1}}};
    strata_launch launch = STRATA_LAUNCH_WITH("binary", strata_dtype_name(node->dtype), node, node->inputs[1], node);
    strata_launch_constant_add(&launch, "OP", add_code);
    return strata_strided_lower(&launch, &flat, 2, lowering, err);
}

static strata_tensor *assign_add_compose(strata_tensor *node) {
    return strata_assign(node->inputs[0], strata_add(node->inputs[0], node->inputs[1]));
}

#define ASSIGNMENT(which, composition)                                                               \
    const strata_op strata_op_##which = {                                                            \
        .name = #which,                                                                              \
        .n_inputs = 2,                                                                               \
        .flags = STRATA_OP_UPDATE,                                                                   \
        .dims = "...->...",                                                                          \
        .linearity = STRATA_LINEAR_JOINTLY,                                                          \
        .shape = which##_shape,                                                                      \
        .no_gradient = "it changes a variable; differentiate before updating",                       \
        .reference = which##_reference,                                                              \
        .compose = composition,                                                                      \
        .lower = which##_lower,                                                                      \
    };                                                                                               \
    strata_tensor *strata_##which(strata_tensor *variable, strata_tensor *value) {                   \
        return strata_node(NULL, &strata_op_##which, 2, (strata_tensor *[]){variable, value}, NULL); \
    }
ASSIGNMENT(assign, NULL)
ASSIGNMENT(assign_add, assign_add_compose)
