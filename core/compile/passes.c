/* SPDX-License-Identifier: Apache-2.0
 *
 * Removal of dead code and merging of common subexpressions: the needed nodes are copied in order to a new graph; a node that
 * equals one in the new graph is replaced by that one. Nodes are added that copy values which would be overwritten too early.
 * Before this pass unsupported nodes are replaced by compositions (decompose.c); after it nodes are
 * fused (fusion.c, chains.c). */
#include "core/compile/passes.h"

#include <string.h>

#include "core/compile/walk.h"
#include "core/op/ops.h"
#include "core/op/update.h"
#include "strata/ops.h"

typedef struct rewriter {
    strata_graph *from, *to;
    bool alone;               /* one replica: communication nodes are their operands */
    bool *live;               /* by old id */
    bool *output;             /* by old id: the host reads it */
    bool *changed;            /* by old id: an update changes it */
    int *last_use;            /* by old id: largest id of a node that reads it, through views too */
    strata_tensor **mapped;   /* by old id */
    strata_tensor **raw;      /* by old id of a variable's read or update: itself, where mapped is a copy of its value */
    strata_tensor **computed; /* by old id: the tensor that replaces it as an output */
    int *table;               /* hash table of new ids + 1; 0: empty */
    size_t table_size;
} rewriter;

static bool pinned_to_input(const strata_tensor *node) {
    return node->op->flags & (STRATA_OP_VIEW | STRATA_OP_UPDATE | STRATA_OP_COMMUNICATION);
}

static bool is_dropped(const rewriter *r, const strata_tensor *node) {
    if (node->op == &strata_op_print) return true;
    return r->alone && (node->op->flags & STRATA_OP_COMMUNICATION) && node->n_inputs &&
           strata_shape_equal(node->shape, node->inputs[0]->shape);
}

/* Whether the planner may give the node the memory of its input. */
static bool lies_in_input(const rewriter *r, const strata_tensor *node) {
    return strata_is_view(node, NULL) || is_dropped(r, node);
}

/* Computes the last use of each value, and whether its memory is changed. Uses and changes of a view or an update count for its
 * input too, since they share memory. */
static void find_last_uses(rewriter *r) {
    for (int id = r->from->n_nodes - 1; id >= 0; id--) {
        const strata_tensor *node = r->from->nodes[id];
        if (!r->live[id]) continue;
        for (int i = 0; i < node->n_inputs; i++) {
            int input = node->inputs[i]->id;
            bool shares = i == 0 && lies_in_input(r, node);
            int use = shares && r->last_use[id] > id ? r->last_use[id] : id;
            if (r->last_use[input] < use) r->last_use[input] = use;
            if (strata_is_written(node, i)) r->changed[input] = true;
        }
    }
}

static bool writes(const strata_tensor *update, const strata_variable *variable) {
    for (int i = 0; i < update->n_inputs; i++)
        if (strata_is_written(update, i) && strata_variable_behind(update->inputs[i]) == variable) return true;
    return false;
}

/* Whether some node updates the variable after node `first` and before node `end`. */
static bool updated_between(const rewriter *r, const strata_variable *variable, int first, int end) {
    for (int id = first + 1; id < end; id++)
        if (r->live[id] && writes(r->from->nodes[id], variable)) return true;
    return false;
}

/* ---- common subexpressions ---- */

static size_t hash_node(const strata_tensor *node) {
    size_t hash = (size_t)node->op / 16 + (size_t)node->dtype;
    for (int i = 0; i < node->n_inputs; i++) hash = hash * 31 + (size_t)node->inputs[i]->id;
    for (int i = 0; i < node->shape.rank; i++) hash = hash * 131 + (size_t)node->shape.dims[i];
    return hash ^ hash >> 17;
}

/* Returns an earlier node of the new graph with the same value, or the node itself, which is then stored for later lookups. */
static strata_tensor *deduplicate(rewriter *r, strata_tensor *node) {
    size_t slot = hash_node(node) % r->table_size;
    while (r->table[slot]) {
        strata_tensor *other = r->to->nodes[r->table[slot] - 1];
        if (strata_same_value(node, other)) return other;
        slot = (slot + 1) % r->table_size;
    }
    r->table[slot] = node->id + 1;
    return node;
}

/* ---- the copy ---- */

/* Adds a copy of `node` whose inputs are nodes of the new graph. A duplicate stays in the new graph as a dead node. */
static strata_tensor *clone(rewriter *r, const strata_tensor *node) {
    strata_tensor **inputs = strata_graph_alloc(r->to, ((size_t)node->n_inputs + 1) * sizeof *inputs);
    for (int i = 0; i < node->n_inputs && inputs; i++) {
        const int id = node->inputs[i]->id;
        inputs[i] = strata_is_written(node, i) && r->raw[id] ? r->raw[id] : r->mapped[id];
    }
    return inputs ? strata_copy_node(r->to, node, inputs) : &r->to->poison;
}

static void rewrite_node(rewriter *r, strata_tensor *node) {
    strata_tensor *copy = is_dropped(r, node) ? r->mapped[node->inputs[0]->id] : clone(r, node);
    if (strata_tensor_is_poison(copy)) return;
    const strata_variable *variable = strata_variable_behind(node);
    bool is_update = node->op->flags & STRATA_OP_UPDATE;
    if (variable && (node->op == &strata_op_read || is_update)) {
        r->raw[node->id] = copy;
        if (updated_between(r, variable, node->id, r->last_use[node->id]))
            copy = strata_copy_value(copy);
        else if (!is_update && !updated_between(r, variable, -1, node->id))
            copy = deduplicate(r, copy);
    } else if (!is_update && !r->changed[node->id] && node->op != &strata_op_input &&
               !(node->op->flags & STRATA_OP_COMMUNICATION)) {
        copy = deduplicate(r, copy);
    }
    r->mapped[node->id] = copy;
    bool shared = (node->op->flags & STRATA_OP_LEAF) || pinned_to_input(node);
    if (r->output[node->id]) r->computed[node->id] = shared ? strata_copy_value(copy) : copy;
}

static strata_status rewrite(rewriter *r, strata_draft *draft, strata_error *err) {
    for (int i = 0; i < draft->n_outputs; i++) r->output[draft->outputs[i]->id] = true;
    strata_mark_live(draft, r->live, NULL);
    find_last_uses(r);
    for (int id = 0; id < r->from->n_nodes && !r->to->status; id++)
        if (r->live[id]) rewrite_node(r, r->from->nodes[id]);
    for (int i = 0; i < draft->n_updates; i++) {
        const int id = draft->updates[i]->id;
        if (r->raw[id]) r->mapped[id] = r->raw[id];
    }
    STRATA_TRY(strata_draft_replace(draft, r->to, r->computed, r->mapped, err));
    for (int i = 0; i < draft->n_outputs; i++)
        for (int j = 0; j < i; j++)
            if (draft->outputs[j] == draft->outputs[i]) draft->outputs[i] = strata_copy_value(draft->outputs[i]);
    return strata_graph_check(draft->graph, err);
}

strata_status strata_passes_run(strata_draft *draft, const strata_device_query *query, bool alone, strata_error *err) {
    STRATA_TRY(strata_decompose(draft, query, err));
    rewriter r = {.from = draft->graph, .alone = alone};
    STRATA_TRY(strata_graph_derive(draft->graph, &r.to, err));
    const size_t n = (size_t)r.from->n_nodes;
    r.table_size = 4 * n + 7;
    r.live = strata_graph_alloc(r.to, n * sizeof *r.live);
    r.output = strata_graph_alloc(r.to, n * sizeof *r.output);
    r.changed = strata_graph_alloc(r.to, n * sizeof *r.changed);
    r.last_use = strata_graph_alloc(r.to, n * sizeof *r.last_use);
    r.mapped = strata_graph_alloc(r.to, n * sizeof(*r.mapped));
    r.raw = strata_graph_alloc(r.to, n * sizeof(*r.raw));
    r.computed = strata_graph_alloc(r.to, n * sizeof(*r.computed));
    r.table = strata_graph_alloc(r.to, r.table_size * sizeof *r.table);
    STRATA_TRY(r.to->status ? strata_draft_replace(draft, r.to, NULL, NULL, err) : rewrite(&r, draft, err));
    if (query->no_fusion) return STRATA_OK;
    strata_fuse_epilogues(draft, query);
    strata_fuse_chains(draft, query);
    return strata_graph_check(draft->graph, err);
}
