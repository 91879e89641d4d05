/* SPDX-License-Identifier: Apache-2.0 */
#include "core/compile/walk.h"

#include "core/op/attrs.h"
#include "core/op/compose.h"
#include "core/op/ops.h"
#include "core/op/update.h"

bool strata_is_view(const strata_tensor *node, int64_t *out_first_byte) {
    int64_t first = 0;
    const bool is_view =
        (node->op->flags & STRATA_OP_VIEW) || (node->op == &strata_op_slice && strata_slice_is_view(node, &first));
    if (out_first_byte) *out_first_byte = is_view ? first * (int64_t)strata_dtype_bytes(node->dtype) : 0;
    return is_view;
}

void strata_mark_live(const strata_graph *graph, strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                      int n_updates, bool *live, int *uses) {
    for (int i = 0; i < n_outputs; i++) live[outputs[i]->id] = true;
    for (int i = 0; i < n_updates; i++) live[updates[i]->id] = true;
    for (int id = graph->n_nodes - 1; id >= 0; id--) {
        const strata_tensor *node = graph->nodes[id];
        for (int i = 0; live[id] && i < node->n_inputs; i++) {
            live[node->inputs[i]->id] = true;
            if (uses) uses[node->inputs[i]->id]++;
        }
    }
}

bool *strata_find_needed(strata_graph *graph, int first, int last) {
    bool *needed = strata_graph_alloc(graph, (size_t)(last + 1 - first));
    if (needed) needed[last - first] = true;
    for (int id = last; id >= first && needed; id--)
        for (int i = 0; needed[id - first] && i < graph->nodes[id]->n_inputs; i++)
            if (graph->nodes[id]->inputs[i]->id >= first) needed[graph->nodes[id]->inputs[i]->id - first] = true;
    return needed;
}

bool strata_is_written(const strata_tensor *node, int i) {
    return (node->op->flags & STRATA_OP_UPDATE) && (i == 0 || node->op->also_writes >> i & 1);
}

/* The tensor whose memory this tensor shares. */
static const strata_tensor *root_of(const strata_tensor *tensor) {
    while (strata_is_view(tensor, NULL) || (tensor->op->flags & STRATA_OP_UPDATE)) tensor = tensor->inputs[0];
    return tensor;
}

static bool share_memory(const strata_tensor *a, const strata_tensor *b) {
    a = root_of(a);
    b = root_of(b);
    return a == b || (strata_variable_behind(a) && strata_variable_behind(a) == strata_variable_behind(b));
}

bool strata_may_move(const strata_tensor *node, const strata_tensor *later) {
    for (int id = node->id + 1; id <= later->id; id++) {
        const strata_tensor *update = node->graph->nodes[id];
        for (int i = 0; i < update->n_inputs && (update->op->flags & STRATA_OP_UPDATE); i++)
            for (int k = 0; k < node->n_inputs && strata_is_written(update, i); k++)
                if (share_memory(update->inputs[i], node->inputs[k])) return false;
    }
    return true;
}

strata_tensor *strata_copy_node(strata_graph *to, const strata_tensor *node, strata_tensor *const *inputs) {
    strata_tensor *copy = strata_node(to, node->op, node->n_inputs, inputs, node->attrs);
    if (strata_tensor_is_poison(copy)) return copy;
    /* Leaves carry dtype and shape themselves; rules of computed nodes find the same again. */
    copy->dtype = node->dtype;
    copy->shape = node->shape;
    return strata_tensor_set_name(copy, node->name);
}

strata_tensor *strata_copy_mapped(strata_graph *to, const strata_tensor *node, strata_tensor *const *mapped) {
    strata_tensor **inputs = strata_graph_alloc(to, ((size_t)node->n_inputs + 1) * sizeof *inputs);
    for (int i = 0; i < node->n_inputs && inputs; i++) inputs[i] = mapped[node->inputs[i]->id];
    return inputs ? strata_copy_node(to, node, inputs) : &to->poison;
}

strata_tensor *strata_stand_in(strata_graph *graph, const strata_tensor *tensor) {
    const strata_read_attrs read = {.variable = (strata_variable *)strata_variable_behind(tensor)};
    strata_tensor *leaf = strata_node(graph, read.variable ? &strata_op_read : &strata_op_input, 0, NULL, &read);
    if (strata_tensor_is_poison(leaf)) return leaf;
    leaf->dtype = tensor->dtype;
    leaf->shape = tensor->shape;
    return leaf;
}

strata_tensor *strata_copy_value(strata_tensor *value) {
    strata_broadcast_to_attrs attrs = {.shape = value->shape};
    return strata_tensor_set_name(strata_node(value->graph, &strata_op_broadcast_to, 1, &value, &attrs), value->name);
}
