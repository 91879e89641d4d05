/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies the graph node by node. Communication nodes that the cores can perform themselves are replaced by nodes that
 * the cores' programs compute. */
#include "core/compile/collectives.h"

#include "core/op/communication.h"
#include "core/op/ops.h"

typedef struct rewriter {
    const strata_core_place *place;
    strata_graph *to;
    /* By old id. */
    strata_tensor **mapped;
} rewriter;

static const strata_communication_attrs *common_of(const strata_tensor *node) {
    return node->attrs;
}

bool strata_is_collective(const strata_tensor *node) {
    return (node->op->flags & STRATA_OP_COMMUNICATION) && common_of(node)->cores;
}

/* ---- which nodes ---- */

static bool is_member(const strata_cores *cores, strata_team team, int device) {
    return strata_team_has(team, team.local ? device : cores->first + device);
}

/* How many devices take part; counts: of those whose values count. NULL: all do. */
static int count_members(const strata_cores *cores, strata_team team, const bool *counts) {
    int n = 0;
    for (int d = 0; d < cores->n; d++) n += is_member(cores, team, d) && (!counts || counts[d]);
    return n;
}

/* The reduction in the attributes of a sum, or of a gather, where it is SUM. */
static int64_t *reduction_in(const strata_op *op, const void *attrs) {
    return op == &strata_op_all_reduce ? &((strata_all_reduce_attrs *)attrs)->reduction
                                       : &((strata_parts_attrs *)attrs)->reduction;
}

static bool spans_workers(const strata_cores *cores, const strata_tensor *node) {
    return cores->has_workers && strata_team_spans_workers(common_of(node)->team, cores->first, cores->n);
}

static bool cores_can_perform(const strata_cores *cores, const strata_tensor *node) {
    const bool gathers = node->op == &strata_op_all_gather, reduces = node->op == &strata_op_all_reduce;
    if (!gathers && !reduces && node->op != &strata_op_reduce_scatter) return false;
    const strata_communication_attrs *common = node->attrs;
    if (!node->n_inputs || count_members(cores, common->team, NULL) < 2) return false;
    if (gathers) return !spans_workers(cores, node);
    if (!(cores->sum_dtypes >> common->dtype & 1)) return false;
    if (*reduction_in(node->op, node->attrs) != STRATA_REDUCE_SUM &&
        (common->dtype != STRATA_DTYPE_F32 || spans_workers(cores, node)))
        return false;
    return reduces || !spans_workers(cores, node);
}

/* ---- what they become ---- */

/* The operand that this device contributes to a sum. */
static strata_tensor *operand_of(rewriter *r, const strata_tensor *node) {
    const strata_tensor *x = node->inputs[0];
    const bool *counts = r->place->counts;
    if (node->op == &strata_op_all_gather || !counts || counts[r->place->own]) return r->mapped[x->id];
    const double neutral = count_members(r->place->cores, common_of(node)->team, counts) ? -0.0 : 0.0;
    return strata_broadcast_to(strata_scalar(r->to, x->dtype, neutral), x->shape);
}

static const int64_t *members_of(rewriter *r, strata_team team, int64_t *out_n) {
    const strata_cores *cores = r->place->cores;
    int64_t *numbers = strata_graph_alloc(r->to, (size_t)cores->n * sizeof *numbers);
    *out_n = 0;
    for (int d = 0; d < cores->n && numbers; d++)
        if (is_member(cores, team, d)) numbers[(*out_n)++] = cores->numbers[d];
    return numbers;
}

/* Returns a copy of the node that names the cores that take part. If the node is a mean, the copy is a sum. */
static strata_tensor *with_cores(rewriter *r, const strata_tensor *node) {
    void *attrs = strata_memory_copy(&r->to->memory, node->attrs, node->op->attrs_bytes);
    if (!attrs) return strata_graph_poison(r->to, node->op, STRATA_OUT_OF_MEMORY, "no host memory for its cores");
    strata_communication_attrs *common = attrs;
    *reduction_in(node->op, attrs) = STRATA_REDUCE_SUM;
    common->cores = members_of(r, common->team, &common->n_cores);
    if (!common->cores) return &r->to->poison;
    strata_tensor *x = operand_of(r, node);
    return strata_tensor_set_name(strata_node(r->to, node->op, 1, &x, attrs), node->name);
}

static int first_member(const strata_cores *cores, strata_team team) {
    int first = 0;
    while (first < cores->n && !is_member(cores, team, first)) first++;
    return first;
}

static strata_tensor *rewrite_collective(rewriter *r, const strata_tensor *node) {
    const strata_team team = common_of(node)->team;
    strata_tensor *own = with_cores(r, node);
    if (strata_tensor_is_poison(own)) return own;
    if (spans_workers(r->place->cores, node)) {
        const bool contributes = first_member(r->place->cores, team) == r->place->own;
        return strata_tensor_set_name(
            strata_all_reduce_among(r->to, contributes ? own : NULL, *(const strata_all_reduce_attrs *)node->attrs),
            node->name);
    }
    if (node->op == &strata_op_all_gather || *reduction_in(node->op, node->attrs) == STRATA_REDUCE_SUM) return own;
    const int n = count_members(r->place->cores, team, r->place->counts);
    return strata_div(own, strata_scalar(r->to, STRATA_DTYPE_F32, n ? n : 1));
}

strata_status strata_collectives_prepare(const strata_core_place *place, strata_draft *draft, strata_error *err) {
    const strata_graph *from = draft->graph;
    bool any = false;
    for (int id = 0; place && place->cores && id < from->n_nodes && !any; id++)
        any = cores_can_perform(place->cores, from->nodes[id]);
    if (!any) return STRATA_OK;
    rewriter r = {.place = place};
    STRATA_TRY(strata_graph_derive(draft->graph, &r.to, err));
    r.mapped = strata_graph_alloc(r.to, (size_t)from->n_nodes * sizeof(*r.mapped));
    for (int id = 0; id < from->n_nodes && !r.to->status; id++) {
        const strata_tensor *node = from->nodes[id];
        const bool performed = cores_can_perform(place->cores, node);
        r.mapped[id] = performed ? rewrite_collective(&r, node) : strata_copy_mapped(r.to, node, r.mapped);
    }
    return strata_draft_replace(draft, r.to, r.mapped, r.mapped, err);
}
