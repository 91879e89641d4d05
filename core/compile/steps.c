/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes that the partitioner (partition.h) resolves into several steps, since an operand is divided along a dimension that the
 * rule of the node's op excludes. An op with the flag STRATA_OP_RESOLVED, such as a softmax whose columns are divided, becomes
 * its composition, so that sums and extremes of rows travel and not the rows. An extreme is that of the devices' extremes.
 * Steps that several nodes need, such as the sums of a softmax and of its gradient, are made once. */
#include "core/compile/partitioner.h"
#include "core/compile/walk.h"
#include "core/op/ops.h"
#include "core/op/reduce.h"

typedef strata_partitioner partitioner;
typedef strata_form form;
typedef strata_node_division division;

/* An earlier step that computes the same, or the node itself. An input stands for the devices' own extremes. */
static strata_tensor *first_like(const partitioner *p, strata_tensor *node) {
    for (int id = p->n_whole; id < node->id && node->op != &strata_op_input; id++)
        if (p->forms[id] && strata_same_value(p->graph->nodes[id], node)) return p->graph->nodes[id];
    return node;
}

static strata_status add_step(partitioner *p, strata_tensor *node, strata_error *err) {
    if (p->forms[node->id]) return STRATA_OK;
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i]->id >= p->n_whole) node->inputs[i] = first_like(p, node->inputs[i]);
    const strata_tensor *like = first_like(p, node);
    if (like == node) return strata_partition_add(p, node, err);
    p->forms[node->id] = p->forms[like->id];
    return STRATA_OK;
}

/* Makes the parts of the steps from id `first` on that `result` needs. The node then has the forms of `result`. */
static strata_status add_steps(partitioner *p, const strata_tensor *node, int first, const strata_tensor *result,
                               strata_error *err) {
    const strata_tensor *outer = p->resolved;
    STRATA_TRY(strata_graph_check(p->graph, err));
    STRATA_TRY(strata_partition_reserve(p, err));
    const bool *needed = result->id < first ? NULL : strata_find_needed(p->graph, first, result->id);
    if (result->id >= first && !needed) return strata_graph_check(p->graph, err);
    if (!outer) p->resolved = node;
    for (int id = first; id <= result->id; id++)
        for (int i = 0; i < p->graph->nodes[id]->n_inputs && needed[id - first]; i++)
            p->uses[p->graph->nodes[id]->inputs[i]->id]++;
    for (int id = first; id <= result->id; id++)
        if (needed[id - first]) STRATA_TRY(add_step(p, p->graph->nodes[id], err));
    p->resolved = outer;
    p->forms[node->id] = p->forms[result->id];
    return STRATA_OK;
}

static strata_status compose(partitioner *p, const strata_tensor *node, bool *out_done, strata_error *err) {
    const int first = p->graph->n_nodes;
    strata_tensor *own = p->graph->nodes[node->id], *result = strata_node_in_f32(own);
    if (!result) result = node->op->compose(own);
    if (!result) return STRATA_OK;
    STRATA_TRY(strata_graph_check(p->graph, err));
    if (result->dtype != node->dtype || !strata_shape_equal(result->shape, node->shape))
        return strata_fail(err, STRATA_INTERNAL, "partition: %s is %s, its composition is %s", node->op->name,
                           strata_shape_text(node->shape).text, strata_shape_text(result->shape).text);
    *out_done = true;
    return add_steps(p, node, first, result, err);
}

/* ---- extremes ---- */

/* Whether some device has several of the elements of a divided dimension of which the node takes the extreme. */
static bool has_long_pieces(const partitioner *p, const strata_tensor *node, const strata_placement *placement) {
    const strata_reduce_attrs *attrs = node->attrs;
    for (int64_t d = attrs->axis; d < attrs->axis + attrs->n_axes; d++)
        for (int k = 0; k < strata_dim_split_n_pieces(p->mesh, &placement->dims[d]) && placement->dims[d].n_axes; k++)
            if (placement->dims[d].lengths[k] > 1) return true;
    return false;
}

/* The placement of the devices' own extremes, of which each device has one along a divided dimension, or none. */
static strata_status place_extremes(partitioner *p, const strata_tensor *node, strata_placement *placement,
                                    strata_shape *out_shape, strata_error *err) {
    const strata_reduce_attrs *attrs = node->attrs;
    *out_shape = node->inputs[0]->shape;
    for (int64_t d = attrs->axis; d < attrs->axis + attrs->n_axes; d++) {
        strata_dim_split *split = &placement->dims[d];
        int64_t *lengths;
        out_shape->dims[d] = 1;
        if (!split->n_axes) continue;
        const int n = strata_dim_split_n_pieces(p->mesh, split);
        STRATA_TRY(STRATA_PARTITION_TAKE(p, lengths, n, err));
        out_shape->dims[d] = 0;
        for (int k = 0; k < n; k++) out_shape->dims[d] += lengths[k] = split->lengths[k] > 0;
        split->lengths = lengths;
    }
    return STRATA_OK;
}

/* Each device takes the extreme of its elements. These are gathered, and all devices take the extreme of them. */
static strata_status take_extremes(partitioner *p, const strata_tensor *node, strata_error *err) {
    const strata_tensor *x = node->inputs[0];
    strata_placement placement = p->forms[x->id]->placement;
    strata_reduce_attrs attrs = *(const strata_reduce_attrs *)node->attrs;
    strata_shape shape;
    form *f, *extremes;
    p->reader = node;
    placement.partial = 0;
    STRATA_TRY(strata_partition_form(p, x, &placement, &f, err));
    STRATA_TRY(place_extremes(p, node, &placement, &shape, err));
    strata_tensor *each = strata_node(p->graph, &strata_op_input, 0, NULL, NULL);
    STRATA_TRY(strata_graph_check(p->graph, err));
    each->dtype = x->dtype;
    each->shape = shape;
    STRATA_TRY(strata_partition_reserve(p, err));
    STRATA_TRY(strata_partition_new_form(p, each, &placement, NULL, &extremes, err));
    p->of_examples[each->id] = p->of_examples[x->id];
    attrs.keep_dims = 1;
    for (int d = 0; d < p->n_devices; d++) {
        strata_tensor *part = strata_partition_tensor(p, x, f, d);
        if (part && strata_shape_elements(strata_partition_shape(p, each, &placement, d, NULL)))
            extremes->tensors[d] = strata_node(NULL, node->op, 1, &part, &attrs);
    }
    return add_steps(p, node, each->id, strata_node(NULL, node->op, 1, &each, node->attrs), err);
}

strata_status strata_partition_resolve(partitioner *p, const division *v, bool *out_done, strata_error *err) {
    const strata_tensor *node = v->node;
    bool excluded = false;
    *out_done = false;
    for (int i = 0; i < node->n_inputs; i++)
        for (int d = 0; d < node->inputs[i]->shape.rank; d++)
            excluded |= v->operands[i]->placement.dims[d].n_axes && v->factors.inputs[i].factor[d] == STRATA_NO_FACTOR;
    if (!excluded) return STRATA_OK;
    if (node->op->flags & STRATA_OP_RESOLVED) return compose(p, node, out_done, err);
    *out_done = (node->op == &strata_op_reduce_max || node->op == &strata_op_reduce_min) &&
                has_long_pieces(p, node, &p->forms[node->inputs[0]->id]->placement);
    return *out_done ? take_extremes(p, node, err) : STRATA_OK;
}
