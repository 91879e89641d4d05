/* SPDX-License-Identifier: Apache-2.0
 *
 * Goes back from updates and outputs, and finds out how all readers of a value want it divided, so that it is divided early. */
#include <string.h>

#include "core/compile/partitioner.h"
#include "core/op/ops.h"

typedef strata_partitioner partitioner;

strata_status strata_partition_split_range(partitioner *p, const strata_dim_split *split, int64_t begin, int64_t n,
                                           strata_dim_split *out_split, strata_error *err) {
    const int pieces = strata_dim_split_n_pieces(p->mesh, split);
    int64_t *lengths = strata_partition_new_lengths(p, pieces), at = 0;
    if (!lengths) return strata_partition_no_memory(err);
    for (int k = 0; k < pieces; at += split->lengths[k++]) {
        const int64_t first = at > begin ? at : begin;
        const int64_t last = at + split->lengths[k] < begin + n ? at + split->lengths[k] : begin + n;
        lengths[k] = last > first ? last - first : 0;
    }
    *out_split = *split;
    out_split->lengths = lengths;
    return STRATA_OK;
}

int strata_partition_concat_axis(const strata_tensor *node) {
    int64_t axis = -1;
    if (node->op == &strata_op_concat) memcpy(&axis, (const char *)node->attrs + node->op->attrs[0].offset, sizeof axis);
    return (int)axis;
}

/* A reader of the value wants it placed so (NULL: not divided). */
static void ask(partitioner *p, const strata_tensor *value, strata_placement *wanted) {
    const int id = value->id;
    if (p->asked[id] &&
        (!wanted || !p->wanted[id] || !strata_placement_equal(p->mesh, value->shape.rank, p->wanted[id], wanted)))
        wanted = NULL;
    p->asked[id] = true;
    p->wanted[id] = wanted;
}

/* The split whose pieces have `to` elements where those of `split` have `from`. False: there is none. */
static bool in_units(partitioner *p, const strata_dim_split *split, int64_t from, int64_t to, strata_dim_split *out_split) {
    const int n = strata_dim_split_n_pieces(p->mesh, split);
    *out_split = *split;
    if (!split->n_axes || from == to) return true;
    int64_t *lengths = strata_partition_new_lengths(p, n);
    bool fits = lengths != NULL;
    for (int k = 0; k < n && fits; k++) {
        fits = split->lengths[k] % from == 0;
        lengths[k] = split->lengths[k] / from * to;
    }
    out_split->lengths = lengths;
    if (!fits) *out_split = (strata_dim_split){0};
    return fits;
}

/* How operand i is divided if the result is divided as `result`; NULL: it is not. */
static strata_status wanted_of_operand(partitioner *p, const strata_tensor *node, const strata_factors *factors, int i,
                                       const strata_placement *result, strata_placement **out_wanted, strata_error *err) {
    strata_placement *wanted = strata_graph_alloc(p->memory, sizeof *wanted);
    const strata_shape shape = node->inputs[i]->shape;
    bool any = false;
    *out_wanted = NULL;
    if (!wanted) return strata_partition_no_memory(err);
    for (int d = 0; d < shape.rank; d++)
        for (int k = 0; k < node->shape.rank; k++) {
            if (factors->inputs[i].factor[d] < 0 || factors->inputs[i].factor[d] != factors->result.factor[k]) continue;
            const bool fits =
                in_units(p, &result->dims[k], factors->result.unit[k], factors->inputs[i].unit[d], &wanted->dims[d]);
            any |= fits && result->dims[k].n_axes;
        }
    const int axis = strata_partition_concat_axis(node);
    if (axis >= 0 && result->dims[axis].n_axes) {
        int64_t begin = 0;
        for (int k = 0; k < i; k++) begin += node->inputs[k]->shape.dims[axis];
        STRATA_TRY(strata_partition_split_range(p, &result->dims[axis], begin, shape.dims[axis], &wanted->dims[axis], err));
        any = true;
    }
    if (any) *out_wanted = wanted;
    return STRATA_OK;
}

/* Asks the operands of a node, whose own readers were asked. */
static strata_status ask_operands(partitioner *p, const strata_tensor *node, strata_error *err) {
    const bool updates = node->op->flags & STRATA_OP_UPDATE, completes = node->op->flags & STRATA_OP_COMMUNICATION;
    const strata_placement *result = completes ? NULL : updates ? strata_partition_place_update(p, node) : p->wanted[node->id];
    /* What is added up to something smaller may be divided or not: its sums are exchanged more cheaply. */
    const bool may_differ = !p->opts->whole_sums && !result && !updates && !completes;
    strata_factors *factors = result ? strata_graph_alloc(p->memory, sizeof *factors) : NULL;
    if (may_differ && !p->asked[node->id]) return STRATA_OK;
    if (result) {
        if (factors) factors->inputs = strata_graph_alloc(p->memory, (size_t)(node->n_inputs + 1) * sizeof *factors->inputs);
        if (!factors || !factors->inputs) return strata_partition_no_memory(err);
        strata_factors_of(node, p->opts->own_statistics, factors);
    }
    for (int i = 0; i < node->n_inputs; i++) {
        strata_placement *wanted = NULL;
        if (may_differ && strata_tensor_bytes(node) < strata_tensor_bytes(node->inputs[i])) continue;
        if (result) STRATA_TRY(wanted_of_operand(p, node, factors, i, result, &wanted, err));
        ask(p, node->inputs[i], wanted);
    }
    return STRATA_OK;
}

strata_status strata_partition_ask(partitioner *p, const strata_graph *graph, strata_error *err) {
    const strata_partition_options *opts = p->opts;
    for (int i = 0; i < opts->n_outputs; i++) ask(p, opts->outputs[i], NULL);
    for (int i = graph->n_nodes - 1; i >= 0; i--)
        if (p->live[i]) STRATA_TRY(ask_operands(p, graph->nodes[i], err));
    return STRATA_OK;
}
