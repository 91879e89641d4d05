/* SPDX-License-Identifier: Apache-2.0
 *
 * Prepares a graph with communication nodes for its division into segments: the parts of a replica's graph between these nodes,
 * each of which becomes one program. Nodes are in program order; a segment ends where a communication node is followed by a
 * node that computes. The operand of a communication node is an output of the segment that computes it, and its result is an
 * input of the first segment that uses it. Segments that do not need the result can run during the exchange; a strategy
 * determines which those are by the position of its communication nodes.
 *
 * The inputs and outputs of a segment are in memory that only this segment's program can use, while temporaries are shared by
 * all segments. So a value in such memory that another segment needs is copied to a temporary, in the segment that has it.
 *
 * Nouns. A *port* is a value that the host writes: an input, or the result of a communication node. The *root* of a value is
 * the tensor of which it is a view; for most values it is the value itself. */
#include "core/compile/passes.h"
#include "core/op/ops.h"

typedef struct cutter {
    strata_graph *from, *to;
    bool *live, *output;       /* by old id */
    int *uses;                 /* by old id: how many live nodes read it */
    int *segment;              /* by old id: of a computing node; of a communication node: the one that it ends */
    int *first_use, *last_use; /* by old id of a root: segments */
    strata_tensor **mapped;    /* by old id */
    strata_tensor **carried;   /* by old id of a port: its copy for later segments */
    strata_tensor **read;      /* by old id of an output: what the host reads */
} cutter;

int strata_segment_of_next(strata_segment_counter *counter, bool computes) {
    if (computes && counter->ended) {
        counter->segment++;
        counter->ended = false;
    }
    if (!computes) counter->ended = true;
    return counter->segment;
}

/* Whether the node has the memory of its input. A slice that the host reads is computed, since it must lie in an output. */
static bool is_view(const cutter *c, const strata_tensor *node) {
    return strata_is_view(node, NULL) && !c->output[node->id];
}

static const strata_tensor *root_of(const cutter *c, const strata_tensor *node) {
    while (is_view(c, node)) node = node->inputs[0];
    return node;
}

static bool is_port(const strata_tensor *node) {
    return node->op == &strata_op_input || strata_is_communication(node);
}

/* Whether the operand of a communication node must be copied, because it cannot be computed directly in an output. */
static bool needs_copy(const cutter *c, const strata_tensor *operand) {
    return (operand->op->flags & (STRATA_OP_LEAF | STRATA_OP_UPDATE)) || strata_is_communication(operand) ||
           strata_is_view(operand, NULL) || c->output[operand->id] || c->uses[operand->id] > 1;
}

static void use(cutter *c, const strata_tensor *value, int segment) {
    int root = root_of(c, value)->id;
    if (c->first_use[root] < 0 || segment < c->first_use[root]) c->first_use[root] = segment;
    if (segment > c->last_use[root]) c->last_use[root] = segment;
}

static void find_segments(cutter *c) {
    strata_segment_counter counter = {0};
    for (int id = 0; id < c->from->n_nodes; id++) {
        const strata_tensor *node = c->from->nodes[id];
        c->first_use[id] = c->last_use[id] = -1;
        if (!c->live[id] || (node->op->flags & STRATA_OP_LEAF) || is_view(c, node)) continue;
        if (strata_is_communication(node)) {
            const strata_tensor *operand = node->n_inputs ? node->inputs[0] : NULL;
            c->segment[id] = operand ? c->segment[operand->id] : counter.segment;
            if (operand && needs_copy(c, operand)) {
                c->segment[id] = strata_segment_of_next(&counter, true);
                use(c, operand, c->segment[id]);
            }
            strata_segment_of_next(&counter, false);
            continue;
        }
        c->segment[id] = strata_segment_of_next(&counter, true);
        for (int i = 0; i < node->n_inputs; i++) use(c, node->inputs[i], c->segment[id]);
    }
}

/* The tensor that replaces the value in this segment. */
static strata_tensor *value_in(cutter *c, const strata_tensor *value, int segment) {
    const strata_tensor *root = root_of(c, value);
    if (!is_port(root) || c->last_use[root->id] == c->first_use[root->id]) return c->mapped[value->id];
    if (!c->carried[root->id]) c->carried[root->id] = strata_copy_value(c->mapped[root->id]);
    if (segment == c->first_use[root->id]) return c->mapped[value->id];
    if (value == root) return c->carried[root->id];
    strata_tensor *input = value_in(c, value->inputs[0], segment);
    return strata_copy_node(c->to, value, &input);
}

static void rewrite_node(cutter *c, const strata_tensor *node) {
    const bool communicates = strata_is_communication(node);
    strata_tensor **inputs = strata_graph_alloc(c->to, ((size_t)node->n_inputs + 1) * sizeof *inputs);
    if (!inputs) return;
    for (int i = 0; i < node->n_inputs; i++)
        inputs[i] = is_view(c, node) ? c->mapped[node->inputs[i]->id] : value_in(c, node->inputs[i], c->segment[node->id]);
    if (communicates && node->n_inputs && needs_copy(c, node->inputs[0])) inputs[0] = strata_copy_value(inputs[0]);
    c->mapped[node->id] = strata_copy_node(c->to, node, inputs);
    if (c->output[node->id] && strata_is_view(node, NULL)) c->mapped[node->id] = strata_copy_value(c->mapped[node->id]);
}

static void rewrite(cutter *c, const strata_draft *draft) {
    for (int i = 0; i < draft->n_outputs; i++) c->output[draft->outputs[i]->id] = true;
    strata_mark_live(draft, c->live, c->uses);
    find_segments(c);
    for (int id = 0; id < c->from->n_nodes && !c->to->status; id++) {
        if (!c->live[id]) continue;
        rewrite_node(c, c->from->nodes[id]);
        if (!c->output[id] || strata_tensor_is_poison(c->mapped[id])) continue;
        c->read[id] = c->last_use[id] > c->segment[id] ? strata_copy_value(c->mapped[id]) : c->mapped[id];
    }
}

strata_status strata_segments_prepare(strata_draft *draft, strata_error *err) {
    cutter c = {.from = draft->graph};
    bool communicates = false;
    for (int id = 0; id < c.from->n_nodes && !communicates; id++) communicates = strata_is_communication(c.from->nodes[id]);
    if (!communicates) return STRATA_OK;

    const size_t n = (size_t)c.from->n_nodes + 1;
    STRATA_TRY(strata_graph_derive(draft->graph, &c.to, err));
    c.live = strata_graph_alloc(c.to, n * sizeof *c.live);
    c.output = strata_graph_alloc(c.to, n * sizeof *c.output);
    c.uses = strata_graph_alloc(c.to, n * sizeof *c.uses);
    c.segment = strata_graph_alloc(c.to, n * sizeof *c.segment);
    c.first_use = strata_graph_alloc(c.to, n * sizeof *c.first_use);
    c.last_use = strata_graph_alloc(c.to, n * sizeof *c.last_use);
    c.mapped = strata_graph_alloc(c.to, n * sizeof(*c.mapped));
    c.carried = strata_graph_alloc(c.to, n * sizeof(*c.carried));
    c.read = strata_graph_alloc(c.to, n * sizeof(*c.read));
    if (!c.to->status) rewrite(&c, draft);
    return strata_draft_replace(draft, c.to, c.read, c.mapped, err);
}
