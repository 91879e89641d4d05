/* SPDX-License-Identifier: Apache-2.0 */
#include "core/compile/walk.h"

#include <string.h>

#include "core/compile/collectives.h"
#include "core/op/attrs.h"
#include "core/op/compose.h"
#include "core/op/ops.h"
#include "core/op/update.h"

/* ---- drafts ---- */

static strata_status take_roots(strata_draft *draft, strata_tensor *const *roots, int n, const char *kind,
                                strata_tensor ***out_roots, strata_error *err) {
    STRATA_TRY(STRATA_NEW(*out_roots, n, err, "executable: no host memory for %d %ss", n, kind));
    for (int i = 0; i < n; i++) {
        if (!roots[i]) return strata_fail(err, STRATA_INVALID, "executable: %s %d is NULL", kind, i);
        STRATA_TRY(strata_graph_check(roots[i]->graph, err));
        if (draft->graph && roots[i]->graph != draft->graph)
            return strata_fail(err, STRATA_INVALID, "executable: %s %d belongs to another graph", kind, i);
        if (!draft->graph) atomic_fetch_add(&roots[i]->graph->references, 1);
        draft->graph = roots[i]->graph;
        (*out_roots)[i] = roots[i];
    }
    return STRATA_OK;
}

strata_status strata_draft_begin(strata_draft *draft, strata_tensor *const *outputs, int n_outputs,
                                 strata_tensor *const *updates, int n_updates, strata_error *err) {
    *draft = (strata_draft){.n_outputs = n_outputs, .n_updates = n_updates};
    STRATA_TRY(take_roots(draft, outputs, n_outputs, "output", &draft->outputs, err));
    STRATA_TRY(take_roots(draft, updates, n_updates, "update", &draft->updates, err));
    if (draft->graph) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "executable: nothing is asked for: give an output or an update");
}

strata_status strata_draft_replace(strata_draft *draft, strata_graph *to, strata_tensor *const *outputs,
                                   strata_tensor *const *updates, strata_error *err) {
    const strata_status status = strata_graph_check(to, err);
    for (int i = 0; i < draft->n_outputs && !status; i++) draft->outputs[i] = outputs[draft->outputs[i]->id];
    for (int i = 0; i < draft->n_updates && !status; i++) draft->updates[i] = updates[draft->updates[i]->id];
    strata_graph_destroy(status ? to : draft->graph);
    if (!status) draft->graph = to;
    return status;
}

void strata_draft_finish(strata_draft *draft) {
    strata_graph_destroy(draft->graph);
    free(draft->outputs);
    free(draft->updates);
    *draft = (strata_draft){0};
}

/* ---- nodes ---- */

bool strata_is_communication(const strata_tensor *node) {
    return (node->op->flags & STRATA_OP_COMMUNICATION) && !strata_is_collective(node);
}

bool strata_is_view(const strata_tensor *node, int64_t *out_first_byte) {
    int64_t first = 0;
    const bool is_view =
        (node->op->flags & STRATA_OP_VIEW) || (node->op == &strata_op_slice && strata_slice_is_view(node, &first));
    if (out_first_byte) *out_first_byte = is_view ? first * (int64_t)strata_dtype_bytes(node->dtype) : 0;
    return is_view;
}

void strata_mark_live(const strata_draft *draft, bool *live, int *uses) {
    for (int i = 0; i < draft->n_outputs; i++) live[draft->outputs[i]->id] = true;
    for (int i = 0; i < draft->n_updates; i++) live[draft->updates[i]->id] = true;
    for (int id = draft->graph->n_nodes - 1; id >= 0; id--) {
        const strata_tensor *node = draft->graph->nodes[id];
        live[id] |= strata_is_collective(node);
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

static bool attr_equal(const strata_attr_field *field, const char *a, const char *b) {
    /* Lists are compared by their address: equal lists in two places are only not recognized. */
    static const size_t bytes[] = {[STRATA_ATTR_INT] = sizeof(int64_t),
                                   [STRATA_ATTR_FLOAT] = sizeof(double),
                                   [STRATA_ATTR_INTS] = sizeof(int64_t) * STRATA_MAX_RANK,
                                   [STRATA_ATTR_PAIR] = sizeof(int64_t) * 2,
                                   [STRATA_ATTR_QUAD] = sizeof(int64_t) * 4,
                                   [STRATA_ATTR_LIST] = sizeof(void *),
                                   [STRATA_ATTR_CODES] = sizeof(int64_t) * STRATA_MAX_RANK,
                                   [STRATA_ATTR_POINTER] = sizeof(void *)};
    a += field->offset;
    b += field->offset;
    if (field->kind == STRATA_ATTR_SHAPE) return strata_shape_equal(*(const strata_shape *)a, *(const strata_shape *)b);
    return !memcmp(a, b, bytes[field->kind]);
}

bool strata_same_value(const strata_tensor *a, const strata_tensor *b) {
    if (a->op != b->op || a->dtype != b->dtype || a->n_inputs != b->n_inputs || !strata_shape_equal(a->shape, b->shape))
        return false;
    for (int i = 0; i < a->n_inputs; i++)
        if (a->inputs[i] != b->inputs[i]) return false;
    if (a->op == &strata_op_constant) {
        size_t bytes = (size_t)strata_shape_elements(a->shape) * strata_dtype_bytes(a->dtype);
        const strata_constant_attrs *x = a->attrs, *y = b->attrs;
        return x->data == y->data || !memcmp(x->data, y->data, bytes);
    }
    for (const strata_attr_field *field = a->op->attrs; field->name; field++)
        if (!attr_equal(field, a->attrs, b->attrs)) return false;
    return true;
}

strata_tensor *strata_node_in_f32(const strata_tensor *node) {
    bool narrow = false;
    if (node->op == &strata_op_cast || (node->op->flags & STRATA_OP_UPDATE)) return NULL;
    strata_tensor **inputs = strata_graph_alloc(node->graph, ((size_t)node->n_inputs + 1) * sizeof *inputs);
    for (int i = 0; i < node->n_inputs && inputs; i++) {
        inputs[i] = strata_is_narrow(node->inputs[i]) ? strata_cast(node->inputs[i], STRATA_DTYPE_F32) : node->inputs[i];
        narrow = narrow || strata_is_narrow(node->inputs[i]);
    }
    strata_tensor *wide = narrow ? strata_node(node->graph, node->op, node->n_inputs, inputs, node->attrs) : NULL;
    if (!wide || strata_tensor_is_poison(wide)) return wide;
    return wide->dtype == node->dtype ? wide : strata_cast(wide, node->dtype);
}
