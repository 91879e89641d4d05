/* SPDX-License-Identifier: Apache-2.0
 *
 * The leaves: inputs, constants and reads of variables. They compute nothing; the planner assigns their memory, and the
 * executable fills it. Their builders set dtype and shape, since there are no operands from which these follow. */
#include "core/graph/variable.h"
#include "core/op/define.h"

const strata_op strata_op_input = {.name = "input",
                                   .flags = STRATA_OP_LEAF,
                                   .attrs_bytes = sizeof(strata_input_attrs),
                                   .attrs = {{"name", STRATA_ATTR_POINTER, offsetof(strata_input_attrs, name)}}};

const strata_op strata_op_constant = {.name = "constant",
                                      .flags = STRATA_OP_LEAF,
                                      .attrs_bytes = sizeof(strata_constant_attrs),
                                      .attrs = {{"data", STRATA_ATTR_POINTER, offsetof(strata_constant_attrs, data)}}};

const strata_op strata_op_read = {.name = "read",
                                  .flags = STRATA_OP_LEAF,
                                  .attrs_bytes = sizeof(strata_read_attrs),
                                  .attrs = {{"variable", STRATA_ATTR_POINTER, offsetof(strata_read_attrs, variable)}}};

/* A leaf of this dtype and shape. If one of them is not valid, the graph records an error. */
static strata_tensor *leaf(strata_graph *graph, const strata_op *op, strata_dtype dtype, strata_shape shape,
                           const void *attrs) {
    strata_error err;
    if (!strata_dtype_bytes(dtype)) return strata_graph_poison(graph, op, STRATA_INVALID, "dtype %d is not known", (int)dtype);
    strata_status status = strata_shape_check(shape, &err);
    if (status) return strata_graph_poison(graph, op, status, "%s", err.message);
    strata_tensor *node = strata_node(graph, op, 0, NULL, attrs);
    if (strata_tensor_is_poison(node)) return node;
    node->dtype = dtype;
    node->shape = shape;
    return node;
}

strata_tensor *strata_input(strata_graph *graph, const char *name, strata_dtype dtype, strata_shape shape) {
    if (!graph) return NULL;
    if (!name || !*name) return strata_graph_poison(graph, &strata_op_input, STRATA_INVALID, "it needs a name");
    for (int i = 0; i < graph->n_nodes; i++) {
        const strata_tensor *other = graph->nodes[i];
        if (other->op == &strata_op_input && !strcmp(((const strata_input_attrs *)other->attrs)->name, name))
            return strata_graph_poison(graph, &strata_op_input, STRATA_INVALID,
                                       "there is one named \"%.64s\" already; names of inputs must be unique", name);
    }
    strata_input_attrs attrs = {.name = strata_graph_strdup(graph, name)};
    if (!attrs.name) return &graph->poison;
    strata_tensor *node = leaf(graph, &strata_op_input, dtype, shape, &attrs);
    if (!strata_tensor_is_poison(node)) node->name = attrs.name;
    return node;
}

strata_tensor *strata_constant(strata_graph *graph, const strata_array *value) {
    if (!graph) return NULL;
    if (!value) return strata_graph_poison(graph, &strata_op_constant, STRATA_INVALID, "the value is NULL");
    strata_error err;
    strata_status status = strata_shape_check(value->shape, &err);
    if (status) return strata_graph_poison(graph, &strata_op_constant, status, "%s", err.message);
    size_t bytes = strata_array_bytes(value);
    if (bytes && !value->data) return strata_graph_poison(graph, &strata_op_constant, STRATA_INVALID, "its data is NULL");
    void *data = strata_graph_alloc(graph, bytes ? bytes : 1);
    if (!data) return &graph->poison;
    if (bytes) memcpy(data, value->data, bytes);
    strata_constant_attrs attrs = {.data = data};
    return leaf(graph, &strata_op_constant, value->dtype, value->shape, &attrs);
}

strata_tensor *strata_scalar(strata_graph *graph, strata_dtype dtype, double value) {
    int64_t element = 0; /* 64 bits, enough for the largest dtype */
    strata_element_set(dtype, &element, 0, value);
    strata_array array = strata_array_view(dtype, STRATA_SHAPE(), &element);
    return strata_constant(graph, &array);
}

strata_tensor *strata_variable_read(strata_graph *graph, strata_variable *variable) {
    if (!graph) return NULL;
    if (!variable) return strata_graph_poison(graph, &strata_op_read, STRATA_INVALID, "the variable is NULL");
    strata_read_attrs attrs = {.variable = variable};
    strata_tensor *node = leaf(graph, &strata_op_read, variable->dtype, variable->shape, &attrs);
    if (strata_tensor_is_poison(node) || !variable->name) return node;
    return strata_tensor_set_name(node, variable->name);
}
