/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces ops that a device does not support by compositions of ops that it supports, for example softmax by exp, sums and
 * divisions. The graph is copied node by node. A node that the device does not support is replaced by the nodes that its op's
 * `compose` builds, to which the same rule is applied. A composition is used only if the device supports all of it; otherwise
 * there would be more unsupported nodes than before. Compositions for f16 and bf16 compute in f32, if the device supports that,
 * and round once, as kernels do.
 *
 * This pass runs before all others, so that they merge equal parts of different compositions, remove unused parts, and copy
 * values of variables that are read after an update. */
#include "core/compile/passes.h"
#include "core/op/ops.h"
#include "strata/ops.h"

/* The deepest nesting of compositions; a deeper one means that the compositions are cyclic. */
enum { DEEPEST = 24 };

typedef struct splitter {
    const strata_device_query *query;
    strata_graph *from, *to;
    bool *live;             /* by old id */
    bool *changed;          /* by old id: an update changes it in place, so it stays what it is */
    strata_tensor **mapped; /* by old id */
    /* The first op that is neither supported nor has a usable composition; NULL: none was found. */
    const strata_op *obstacle;
} splitter;

static strata_tensor *expressed(splitter *s, strata_tensor *node, int depth);

/* Nodes that need no device: they compute nothing, or the group of replicas performs them. */
static bool needs_no_device(const strata_tensor *node) {
    return (node->op->flags & STRATA_OP_LEAF) || strata_is_communication(node) || strata_is_view(node, NULL);
}

/* Returns the tensor that a builder returned, or NULL if it is poisoned. The graph's error is cleared, unless it is a lack of
 * memory. */
static strata_tensor *built(strata_graph *graph, strata_tensor *tensor) {
    if (!graph->status) return tensor;
    if (graph->status == STRATA_OUT_OF_MEMORY) return NULL;
    graph->status = STRATA_OK;
    graph->error = (strata_error){0};
    return NULL;
}

/* Replaces the nodes from id `first` on that `result` depends on by supported nodes. Returns the replacement of `result`; NULL
 * if one of the nodes cannot be replaced. */
static strata_tensor *expressed_since(splitter *s, int first, strata_tensor *result, int depth) {
    if (result->id < first) return result;
    const int n = result->id + 1 - first;
    const bool *needed = strata_find_needed(s->to, first, result->id);
    strata_tensor **stands_for = strata_graph_alloc(s->to, (size_t)n * sizeof *stands_for);
    bool whole = needed && stands_for;
    for (int i = 0; whole && i < n; i++) {
        strata_tensor *node = s->to->nodes[first + i];
        if (!needed[i]) continue;
        strata_tensor **inputs = strata_graph_alloc(s->to, ((size_t)node->n_inputs + 1) * sizeof *inputs);
        bool changed = false;
        for (int k = 0; k < node->n_inputs && inputs; k++) {
            const int id = node->inputs[k]->id;
            inputs[k] = id >= first ? stands_for[id - first] : node->inputs[k];
            changed = changed || inputs[k] != node->inputs[k];
        }
        if (changed) node = built(s->to, strata_copy_node(s->to, node, inputs));
        stands_for[i] = node ? expressed(s, node, depth) : NULL;
        whole = stands_for[i] != NULL;
    }
    return whole ? stands_for[result->id - first] : NULL;
}

/* The node as a composition of supported ops, or NULL. A composition with f16 or bf16 intermediate values is less accurate, so
 * it is used only if the node itself is not supported. */
static strata_tensor *composed(splitter *s, strata_tensor *node, strata_support support, int depth) {
    const int n_ways = strata_is_narrow(node) && support != STRATA_SUPPORT_NO ? 1 : 2;
    if (depth == DEEPEST) {
        strata_graph_poison(s->to, node->op, STRATA_INTERNAL, "it is composed of itself");
        return NULL;
    }
    for (int way = 0; way < n_ways && !s->to->status; way++) {
        const int first = s->to->n_nodes;
        strata_tensor *parts = way == 0 ? strata_node_in_f32(node) : node->op->compose ? node->op->compose(node) : NULL;
        parts = built(s->to, parts);
        if (!parts) continue;
        if (parts->dtype != node->dtype || !strata_shape_equal(parts->shape, node->shape)) {
            strata_graph_poison(s->to, node->op, STRATA_INTERNAL, "it is %s %s, its composition is %s %s",
                                strata_dtype_name(node->dtype), strata_shape_text(node->shape).text,
                                strata_dtype_name(parts->dtype), strata_shape_text(parts->shape).text);
            return NULL;
        }
        parts = expressed_since(s, first, parts, depth + 1);
        if (parts && !parts->name && parts->id >= first) strata_tensor_set_name(parts, node->name);
        if (parts) return s->to->status ? NULL : parts;
    }
    return NULL;
}

/* The replacement of the node: the node itself if the device supports it, or its composition; NULL if neither is supported. */
static strata_tensor *expressed(splitter *s, strata_tensor *node, int depth) {
    if (needs_no_device(node)) return node;
    const strata_support support = s->query->supports(s->query->user, node);
    if (support == STRATA_SUPPORT_YES) return node;
    strata_tensor *parts = composed(s, node, support, depth);
    if (parts || support == STRATA_SUPPORT_PARTS) return parts ? parts : node;
    if (!s->obstacle) s->obstacle = node->op;
    return NULL;
}

/* Marks the nodes that outputs and updates need; returns whether some of them must be replaced. */
static bool find_work(splitter *s, const strata_draft *draft) {
    bool found = false;
    strata_mark_live(draft, s->live, NULL);
    for (int id = s->from->n_nodes - 1; id >= 0; id--) {
        const strata_tensor *node = s->from->nodes[id];
        if (!s->live[id]) continue;
        for (int i = 0; i < node->n_inputs; i++)
            if (strata_is_written(node, i)) s->changed[node->inputs[i]->id] = !(node->inputs[i]->op->flags & STRATA_OP_UPDATE);
        if (!found && !needs_no_device(node)) found = s->query->supports(s->query->user, node) != STRATA_SUPPORT_YES;
    }
    return found;
}

static void copy_nodes(splitter *s) {
    for (int id = 0; id < s->from->n_nodes && !s->to->status; id++) {
        const strata_tensor *node = s->from->nodes[id];
        if (!s->live[id]) continue;
        strata_tensor *copy = strata_copy_mapped(s->to, node, s->mapped);
        if (strata_tensor_is_poison(copy)) break;
        strata_tensor *instead = s->changed[id] ? NULL : expressed(s, copy, 0);
        s->mapped[id] = instead ? instead : copy;
    }
}

strata_status strata_decompose(strata_draft *draft, const strata_device_query *query, strata_error *err) {
    const size_t n = (size_t)draft->graph->n_nodes + 1;
    splitter s = {.query = query, .from = draft->graph};
    STRATA_TRY(strata_graph_derive(draft->graph, &s.to, err));
    s.live = strata_graph_alloc(s.to, n * sizeof *s.live);
    s.changed = strata_graph_alloc(s.to, n * sizeof *s.changed);
    s.mapped = strata_graph_alloc(s.to, n * sizeof(*s.mapped));
    if (!s.to->status && !find_work(&s, draft)) {
        strata_graph_destroy(s.to);
        return STRATA_OK;
    }
    if (!s.to->status) copy_nodes(&s);
    return strata_draft_replace(draft, s.to, s.mapped, s.mapped, err);
}

const char *strata_decompose_obstacle(const strata_tensor *node, const strata_device_query *query) {
    splitter s = {.query = query};
    if (!node->op->compose || strata_graph_create(&s.to, NULL)) return NULL;
    strata_tensor **inputs = strata_graph_alloc(s.to, ((size_t)node->n_inputs + 1) * sizeof *inputs);
    for (int i = 0; i < node->n_inputs && inputs; i++) {
        for (int k = 0; k < i && !inputs[i]; k++)
            if (node->inputs[k] == node->inputs[i]) inputs[i] = inputs[k];
        if (!inputs[i]) inputs[i] = strata_stand_in(s.to, node->inputs[i]);
    }
    strata_tensor *copy = inputs ? built(s.to, strata_node(s.to, node->op, node->n_inputs, inputs, node->attrs)) : NULL;
    if (copy) expressed(&s, copy, 0);
    const char *name = s.obstacle && s.obstacle != node->op ? s.obstacle->name : NULL;
    strata_graph_destroy(s.to);
    return name;
}
