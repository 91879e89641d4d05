/* SPDX-License-Identifier: Apache-2.0
 *
 * Chains: connected element-wise nodes become one node (core/op/chain.c), so that values which only they read are never stored.
 *
 * Nouns. A *group* is the nodes that become one chain: a *root*, whose value is stored, and *members*, which it computes on the
 * way. Nodes are visited from the last to the first, so the groups of all nodes that use a node are known when it is visited.
 * The node joins these groups if it can; otherwise it is the root of a new group. A cheap node may join several groups, each of
 * which then computes it. The chain takes the place of its root in the order of nodes. */
#include <stdlib.h>

#include "core/compile/passes.h"
#include "core/op/chain.h"
#include "core/op/ops.h"

/* The most groups that one node may join. */
enum { MOST_SHARES = 4 };

typedef struct group {
    strata_tensor *root;
    strata_tensor *members[STRATA_CHAIN_STEPS]; /* the root first */
    strata_tensor *operands[STRATA_CHAIN_OPERANDS];
    int n_members, n_operands;
} group;

/* The groups of the nodes that use a node. */
typedef struct share {
    int groups[MOST_SHARES];
    int n;
    bool stored; /* some reader is in no group, or the value is an output */
} share;

typedef struct fuser {
    strata_graph *graph;
    int n_nodes; /* chains are appended beyond them */
    bool *live;
    share *shares; /* by id */
    group *groups;
    int n_groups;
} fuser;

/* Ops that are so cheap that computing them twice takes less time than storing and loading the result. */
static const strata_op *const cheap_ops[] = {
    &strata_op_neg,        &strata_op_abs,        &strata_op_sign,          &strata_op_square,    &strata_op_relu,
    &strata_op_add,        &strata_op_sub,        &strata_op_mul,           &strata_op_min,       &strata_op_max,
    &strata_op_relu_grad,  &strata_op_leaky_relu, &strata_op_equal,         &strata_op_not_equal, &strata_op_less,
    &strata_op_less_equal, &strata_op_greater,    &strata_op_greater_equal, &strata_op_where,
};

/* Whether the node may be computed in several groups. This must not make more than one operand of its size stay in memory
 * instead of its result. */
static bool is_cheap(const strata_tensor *node) {
    int large = 0;
    for (int i = 0; i < node->n_inputs; i++) large += strata_shape_equal(node->inputs[i]->shape, node->shape);
    for (size_t i = 0; i < sizeof cheap_ops / sizeof *cheap_ops; i++)
        if (cheap_ops[i] == node->op) return large <= 1;
    return false;
}

/* The comparison that a `where` reads, which always joins the group of the `where`: kernels store no
 * bool beside other types. */
static strata_tensor *comparison_of(const strata_tensor *node) {
    return node->op == &strata_op_where ? node->inputs[0] : NULL;
}

/* Whether all operands of a comparison, or of another op, are of this dtype. */
static bool takes(const strata_tensor *node, strata_dtype dtype) {
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i]->dtype != dtype) return false;
    return strata_chain_code(node->op) >= 0;
}

/* Whether a chain can have the node as a step that is not a comparison. */
static bool is_step(const strata_tensor *node) {
    const strata_tensor *comparison = comparison_of(node);
    if (node->dtype == STRATA_DTYPE_BOOL || node->dtype == STRATA_DTYPE_U8) return false;
    if (!comparison) return takes(node, node->dtype);
    return takes(comparison, node->dtype) && strata_shape_equal(comparison->shape, node->shape);
}

/* ---- joining ---- */

static bool contains(strata_tensor *const *list, int n, const strata_tensor *tensor) {
    for (int i = 0; i < n; i++)
        if (list[i] == tensor) return true;
    return false;
}

/* Adds a step; false if the group already has as many as a chain may have. */
static bool add_member(group *g, strata_tensor *node) {
    if (contains(g->members, g->n_members, node)) return true;
    if (g->n_members == STRATA_CHAIN_STEPS) return false;
    g->members[g->n_members++] = node;
    for (int i = 0; i < g->n_operands; i++)
        if (g->operands[i] == node) g->operands[i--] = g->operands[--g->n_operands];
    return true;
}

static bool add_operands(group *g, const strata_tensor *node) {
    const strata_tensor *comparison = comparison_of(node);
    for (int i = 0; i < node->n_inputs; i++) {
        strata_tensor *input = node->inputs[i];
        if (input == comparison || contains(g->operands, g->n_operands, input) || contains(g->members, g->n_members, input))
            continue;
        if (g->n_operands == STRATA_CHAIN_OPERANDS) return false;
        g->operands[g->n_operands++] = input;
    }
    return true;
}

/* Adds the node to the group; false if that is not possible. */
static bool joined(const group *g, strata_tensor *node, group *out) {
    strata_tensor *comparison = comparison_of(node);
    *out = *g;
    if (!add_member(out, node)) return false;
    if (comparison && !(add_member(out, comparison) && add_operands(out, comparison))) return false;
    if (!add_operands(out, node)) return false;
    return strata_chain_space(out->n_operands, (const strata_tensor *const *)out->operands, out->root->shape).rank <=
           STRATA_CHAIN_AXES;
}

static bool may_join(const group *g, strata_tensor *node, group *out) {
    const strata_tensor *comparison = comparison_of(node);
    return node->dtype == g->root->dtype && strata_shape_equal(node->shape, g->root->shape) && strata_may_move(node, g->root) &&
           (!comparison || strata_may_move(comparison, g->root)) && joined(g, node, out);
}

/* Adds the node to the groups of all nodes that use it, or to none. */
static bool join(fuser *f, strata_tensor *node) {
    const share *share = &f->shares[node->id];
    group changed[MOST_SHARES];
    if (share->stored || share->n == 0 || (share->n > 1 && !is_cheap(node))) return false;
    for (int i = 0; i < share->n; i++)
        if (!may_join(&f->groups[share->groups[i]], node, &changed[i])) return false;
    for (int i = 0; i < share->n; i++) f->groups[share->groups[i]] = changed[i];
    return true;
}

/* Makes the node the root of a new group, if it can be a step of a chain. */
static bool start_group(fuser *f, strata_tensor *node) {
    const group empty = {.root = node};
    const strata_tensor *comparison = comparison_of(node);
    if (comparison && !strata_may_move(comparison, node)) return false;
    if (!joined(&empty, node, &f->groups[f->n_groups])) return false;
    f->shares[node->id] = (share){.groups = {f->n_groups++}, .n = 1, .stored = true};
    return true;
}

/* Records for each operand of a node which groups use it; without groups the operand must be stored. */
static void note_groups(fuser *f, const strata_tensor *node, const share *readers) {
    for (int i = 0; i < node->n_inputs; i++) {
        share *share = &f->shares[node->inputs[i]->id];
        if (!readers) share->stored = true;
        for (int k = 0; readers && k < readers->n; k++) {
            bool known = false;
            for (int j = 0; j < share->n; j++) known = known || share->groups[j] == readers->groups[k];
            if (known) continue;
            if (share->n == MOST_SHARES)
                share->stored = true;
            else
                share->groups[share->n++] = readers->groups[k];
        }
    }
}

static void visit(fuser *f, strata_tensor *node) {
    if (is_step(node) && (join(f, node) || start_group(f, node))) {
        const share readers = f->shares[node->id]; /* a root's is its own group */
        note_groups(f, node, &readers);
        if (comparison_of(node)) note_groups(f, comparison_of(node), &readers);
        return;
    }
    /* A comparison that only `where` nodes in groups use is already a member of these groups. */
    const share *share = &f->shares[node->id];
    const bool absorbed = node->dtype == STRATA_DTYPE_BOOL && !share->stored && strata_chain_code(node->op) >= 0;
    bool member = absorbed && share->n > 0;
    for (int i = 0; member && i < share->n; i++) {
        const group *g = &f->groups[share->groups[i]];
        member = contains(g->members, g->n_members, node);
    }
    if (!member) note_groups(f, node, NULL);
}

/* ---- making chains ---- */

static int by_id(const void *a, const void *b) {
    return (*(strata_tensor *const *)a)->id - (*(strata_tensor *const *)b)->id;
}

static int value_of(const group *g, const strata_tensor *tensor) {
    for (int s = 0; s < g->n_members; s++)
        if (g->members[s] == tensor) return STRATA_CHAIN_OPERANDS + s;
    int i = 0;
    while (g->operands[i] != tensor) i++;
    return i;
}

static void make_chain(fuser *f, group *g, const strata_device_query *query) {
    strata_chain_attrs attrs = {0};
    qsort(g->members, (size_t)g->n_members, sizeof(*g->members), by_id); /* operands of steps come before them */
    for (int s = 0; s < g->n_members; s++) {
        int arguments[STRATA_CHAIN_ARGUMENTS] = {0};
        for (int i = 0; i < g->members[s]->n_inputs; i++) arguments[i] = value_of(g, g->members[s]->inputs[i]);
        strata_chain_add(&attrs, g->members[s]->op, arguments);
    }
    strata_tensor *chain = strata_chain(g->n_operands, g->operands, &attrs);
    if (!f->graph->status) strata_fusion_become(g->root, chain, query);
}

static void fuse(fuser *f, const strata_device_query *query) {
    for (int id = f->n_nodes - 1; id >= 0; id--)
        if (f->live[id] && f->graph->nodes[id]->n_inputs) visit(f, f->graph->nodes[id]);
    for (int i = 0; i < f->n_groups && !f->graph->status; i++)
        if (f->groups[i].n_members > 1) make_chain(f, &f->groups[i], query);
}

void strata_fuse_chains(strata_draft *draft, const strata_device_query *query) {
    strata_graph *graph = draft->graph;
    const size_t n = (size_t)graph->n_nodes;
    fuser f = {.graph = graph, .n_nodes = graph->n_nodes};
    f.live = strata_graph_alloc(graph, n + 1);
    f.shares = strata_graph_alloc(graph, (n + 1) * sizeof *f.shares);
    f.groups = strata_graph_alloc(graph, (n + 1) * sizeof *f.groups);
    if (graph->status) return;
    for (int i = 0; i < draft->n_outputs; i++) f.shares[draft->outputs[i]->id].stored = true;
    for (int i = 0; i < draft->n_updates; i++) f.shares[draft->updates[i]->id].stored = true;
    strata_mark_live(draft, f.live, NULL);
    fuse(&f, query);
}
