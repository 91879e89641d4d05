/* SPDX-License-Identifier: Apache-2.0
 *
 * The partitioner (partition.h): makes the parts of each node, from leaves to outputs and updates. */
#include "core/compile/partition.h"

#include <stdlib.h>
#include <string.h>

#include "core/compile/partitioner.h"
#include "core/compile/walk.h"
#include "core/op/communication.h"
#include "core/op/ops.h"
#include "strata/ops.h"

typedef strata_partitioner partitioner;
typedef strata_form form;
typedef strata_node_division division;

strata_status strata_partition_add_update(partitioner *p, int d, strata_tensor *update, strata_error *err) {
    strata_device_part *part = &p->result->parts[d];
    if (part->n_updates == part->most_updates) {
        const int most = part->most_updates ? 2 * part->most_updates : 16;
        strata_tensor **more = realloc(part->updates, (size_t)most * sizeof(*more));
        if (!more) return strata_partition_no_memory(err);
        part->updates = more;
        part->most_updates = most;
    }
    part->updates[part->n_updates++] = update;
    return STRATA_OK;
}

/* Whether device d adds nothing to a partial variable by operand i, since its examples do not count. */
static bool is_left_out(const partitioner *p, const division *v, int i, int d) {
    const bool adds = (v->node->op->flags & STRATA_OP_UPDATE) && v->stays_partial[i] && !strata_is_written(v->node, i);
    return adds && p->opts->counts && !p->opts->counts[d];
}

static strata_status add_form(partitioner *p, const strata_tensor *node, const strata_placement *placement, form **out_form,
                              strata_error *err) {
    *out_form = p->forms[node->id] = strata_partition_new_form(p, placement);
    return *out_form ? STRATA_OK : strata_partition_no_memory(err);
}

static strata_status add_leaf(partitioner *p, const strata_tensor *node, strata_error *err) {
    static const strata_placement whole = {0};
    const bool is_constant = node->op == &strata_op_constant;
    const strata_placement *placement = is_constant ? &whole : p->opts->place(p->opts->user, node);
    form *f;
    STRATA_TRY(strata_placement_fits(p->mesh, placement, node->shape, err));
    STRATA_TRY(add_form(p, node, placement, &f, err));
    for (int d = 0; d < p->n_devices; d++) {
        strata_graph *graph = strata_partition_graph(p, d);
        const strata_shape shape = strata_partition_shape(p, node, placement, d, NULL);
        const bool is_idle = (placement->partial | placement->own) && p->opts->idle && p->opts->idle[d];
        const bool is_given = strata_shape_elements(shape) > 0;
        if (!strata_partition_has(p, placement, d) || is_idle || (node->op == &strata_op_input && !is_given)) continue;
        if (node->op == &strata_op_read) {
            strata_variable *whole_variable = ((const strata_read_attrs *)node->attrs)->variable;
            f->tensors[d] = strata_variable_read(graph, p->opts->variable(p->opts->user, whole_variable, p->first + d));
        } else if (is_constant) {
            f->tensors[d] = strata_copy_node(graph, node, NULL);
        } else {
            f->tensors[d] = strata_input(graph, ((const strata_input_attrs *)node->attrs)->name, node->dtype, shape);
        }
        if (!f->tensors[d]) return strata_partition_no_memory(err);
    }
    return STRATA_OK;
}

static strata_status check_graph(const strata_tensor *node, strata_graph *graph, strata_error *err) {
    strata_error own = {0};
    const strata_status status = strata_graph_check(graph, &own);
    return status ? strata_fail(err, status, "partition of %s: %s", node->op->name, own.message) : STRATA_OK;
}

/* Whether the device adds up no elements for its part of the node: its piece of a factor that the result does not have is
 * empty. A factor without any elements is left to the op: their mean is not 0. */
static bool adds_nothing(const partitioner *p, const division *v, int d) {
    for (int f = 0; f < v->factors.n; f++) {
        const strata_dim_split *split = &v->best.factors[f];
        bool in_result = false;
        if (!split->n_axes || !v->factors.sizes[f] || split->lengths[strata_dim_split_piece(p->mesh, split, p->first + d)])
            continue;
        for (int i = 0; i < v->node->shape.rank; i++) in_result |= v->factors.result.factor[i] == f;
        if (!in_result) return true;
    }
    return false;
}

/* Whether all operands in which the result is linear, or on whose own values of the device it depends, are nothing. */
static bool reads_nothing(const division *v, const strata_placement *placement, int d) {
    bool any = false, all = true;
    for (int i = 0; i < v->node->n_inputs; i++) {
        if (placement->own & v->operands[i]->placement.own && !v->operands[i]->tensors[d]) return true;
        if (!v->stays_partial[i]) continue;
        any = true;
        all &= !v->operands[i]->tensors[d];
    }
    return any && all;
}

static bool has_nothing(const partitioner *p, const division *v, const strata_placement *placement, strata_shape shape, int d) {
    /* A device that is given no part of partial values has no variable for them. */
    if (v->node->op->flags & STRATA_OP_UPDATE)
        return (v->deferred && !v->operands[0]->tensors[d]) || (p->opts->own_sums && p->opts->counts && !p->opts->counts[d]);
    return !strata_shape_elements(shape) || adds_nothing(p, v, d) || reads_nothing(v, placement, d);
}

static strata_status build_parts(partitioner *p, division *v, strata_error *err) {
    const strata_tensor *node = v->node;
    const int n = node->n_inputs;
    strata_placement placement;
    form *f;
    p->reader = node;
    for (int i = 0; i < n; i++) {
        STRATA_TRY(strata_partition_placement(p, v, &v->best, i, &placement, err));
        if (!i && v->in_parts)
            STRATA_TRY(strata_partition_read_parts(p, node->inputs[i], &placement, &v->operands[i], err));
        else if (v->in_parts && node->inputs[i] == node->inputs[0])
            v->operands[i] = v->operands[0];
        else
            STRATA_TRY(strata_partition_form(p, node->inputs[i], &placement, &v->operands[i], err));
    }
    STRATA_TRY(strata_partition_placement(p, v, &v->best, n, &placement, err));
    STRATA_TRY(add_form(p, node, &placement, &f, err));
    strata_tensor **inputs = strata_graph_alloc(p->memory, (size_t)(n + 1) * sizeof(*inputs));
    if (!inputs) return strata_partition_no_memory(err);
    for (int d = 0; d < p->n_devices; d++) {
        strata_node_part part = {.node = node, .graph = strata_partition_graph(p, d), .inputs = inputs};
        part.shape = strata_partition_shape(p, node, &placement, d, part.begin);
        if (!strata_partition_has(p, &placement, d) || has_nothing(p, v, &placement, part.shape, d)) continue;
        for (int i = 0; i < n; i++) {
            inputs[i] = strata_partition_tensor(p, node->inputs[i], v->operands[i], d);
            if (is_left_out(p, v, i, d)) inputs[i] = strata_partition_nothing(inputs[i]);
        }
        f->tensors[d] = node->op->part ? node->op->part(&part) : strata_node_part_copy(&part);
        STRATA_TRY(check_graph(node, part.graph, err));
        if (!strata_shape_equal(f->tensors[d]->shape, part.shape))
            return strata_fail(err, STRATA_INTERNAL, "partition: device %d's part of %s is %s, its rule says %s", d,
                               node->op->name, strata_shape_text(f->tensors[d]->shape).text,
                               strata_shape_text(part.shape).text);
        strata_tensor_set_name(f->tensors[d], node->name);
    }
    if (v->in_parts) return strata_partition_copy_back(p, node, f, err);
    return node->op->flags & STRATA_OP_UPDATE ? strata_partition_spread(p, node, err) : STRATA_OK;
}

/* An all_reduce of the graph: here a value must be complete, where updates are made. If all its readers want pieces, each
 * device gets its own. */
static strata_status add_exchange(partitioner *p, const strata_tensor *node, strata_error *err) {
    static const strata_placement everywhere = {0};
    const form *x = p->forms[node->inputs[0]->id];
    const strata_all_reduce_attrs *given = node->attrs;
    /* One with a channel is that of a layer, whose result all devices need that compute. */
    const strata_placement *to = p->opts->update && !given->common.channel.id ? p->opts->update : &everywhere;
    const strata_placement *wanted = given->reduction == STRATA_REDUCE_SUM && !p->opts->whole_sums ? p->wanted[node->id] : NULL;
    strata_placement placement = x->placement;
    form *f;
    bool pieces = false;
    placement.partial |= placement.own; /* the node adds up the devices' own values too */
    placement.own = 0;
    if (wanted && !to->at) STRATA_TRY(strata_partition_wants_pieces(p, &placement, wanted, node->shape.rank, &pieces, err));
    STRATA_TRY(add_form(p, node, &placement, &f, err));
    memcpy(f->tensors, x->tensors, (size_t)p->n_devices * sizeof(*f->tensors));
    p->reader = node;
    if (pieces) STRATA_TRY(strata_partition_sum_pieces(p, node->inputs[0], f, &wanted->dims[0], given->gradients, err));
    const unsigned axes = f->placement.partial;
    if (!axes) return STRATA_OK;
    const strata_placement sum = strata_partition_place_sum(&f->placement, axes, to);
    strata_partition_sum(p, node, f, axes, &sum, *given);
    f->placement = sum;
    for (int d = 0; d < p->n_devices; d++)
        if (f->tensors[d]) strata_tensor_set_name(f->tensors[d], node->name);
    return strata_partition_note(p, node->inputs[0], sum.at & axes ? "reduce_to" : "all_reduce", axes, &f->placement, err);
}

/* If each operand of a concat is divided along its axis as the readers want the result, each device has its part of the result
 * too. *out_done false: it is built as other nodes are. */
static strata_status add_concat(partitioner *p, const strata_tensor *node, bool *out_done, strata_error *err) {
    const int axis = strata_partition_concat_axis(node);
    strata_placement placement = {0};
    form *f;
    *out_done = false;
    if (axis < 0 || !p->wanted[node->id] || !p->wanted[node->id]->dims[axis].n_axes) return STRATA_OK;
    placement.dims[axis] = p->wanted[node->id]->dims[axis];
    int64_t begin = 0;
    for (int i = 0; i < node->n_inputs; begin += node->inputs[i++]->shape.dims[axis]) {
        strata_placement own = {0};
        const strata_tensor *x = node->inputs[i];
        STRATA_TRY(strata_partition_split_range(p, &placement.dims[axis], begin, x->shape.dims[axis], &own.dims[axis], err));
        if (!strata_placement_equal(p->mesh, x->shape.rank, &p->forms[x->id]->placement, &own)) return STRATA_OK;
    }
    strata_tensor **inputs = strata_graph_alloc(p->memory, (size_t)node->n_inputs * sizeof(*inputs));
    if (!inputs) return strata_partition_no_memory(err);
    STRATA_TRY(add_form(p, node, &placement, &f, err));
    for (int d = 0; d < p->n_devices; d++) {
        const strata_node_part part = {.node = node, .graph = strata_partition_graph(p, d), .inputs = inputs};
        if (!strata_shape_elements(strata_partition_shape(p, node, &placement, d, NULL))) continue;
        for (int i = 0; i < node->n_inputs; i++)
            inputs[i] = strata_partition_tensor(p, node->inputs[i], p->forms[node->inputs[i]->id], d);
        f->tensors[d] = strata_tensor_set_name(strata_node_part_copy(&part), node->name);
        STRATA_TRY(check_graph(node, part.graph, err));
    }
    *out_done = true;
    return STRATA_OK;
}

static strata_status add_node(partitioner *p, const strata_tensor *node, strata_error *err) {
    if (node->op->flags & STRATA_OP_LEAF) return add_leaf(p, node, err);
    if (node->op == &strata_op_all_reduce && node->n_inputs) return add_exchange(p, node, err);
    if (node->op->flags & STRATA_OP_COMMUNICATION)
        return strata_fail(err, STRATA_UNSUPPORTED, "partition: the graph has an exchange already (%s)", node->op->name);
    bool done;
    STRATA_TRY(add_concat(p, node, &done, err));
    if (done) return STRATA_OK;
    const size_t n = (size_t)node->n_inputs + 1;
    division *v = calloc(1, sizeof *v); /* not in p->memory: it is large */
    if (!v) return strata_partition_no_memory(err);
    v->node = node;
    v->operands = strata_graph_alloc(p->memory, n * sizeof(*v->operands));
    v->stays_partial = strata_graph_alloc(p->memory, n * sizeof *v->stays_partial);
    v->factors.inputs = strata_graph_alloc(p->memory, n * sizeof *v->factors.inputs);
    strata_status status = v->operands && v->stays_partial && v->factors.inputs ? STRATA_OK : strata_partition_no_memory(err);
    for (int i = 0; i < node->n_inputs && !status; i++) v->operands[i] = p->forms[node->inputs[i]->id];
    if (!status) status = strata_partition_divide(p, v, err);
    if (!status) status = build_parts(p, v, err);
    free(v);
    return status;
}

static strata_status begin(partitioner *p, strata_graph *graph, strata_error *err) {
    const size_t n = (size_t)graph->n_nodes;
    strata_partition *result = p->result = calloc(1, sizeof *result);
    if (!result) return strata_partition_no_memory(err);
    STRATA_TRY(strata_graph_create(&result->memory, err));
    p->memory = result->memory;
    result->parts = strata_graph_alloc(p->memory, (size_t)p->n_devices * sizeof *result->parts);
    result->placements = strata_graph_alloc(p->memory, n * sizeof(*result->placements));
    p->forms = strata_graph_alloc(p->memory, n * sizeof(*p->forms));
    p->live = strata_graph_alloc(p->memory, n * sizeof *p->live);
    p->uses = strata_graph_alloc(p->memory, n * sizeof *p->uses);
    p->wanted = strata_graph_alloc(p->memory, n * sizeof(*p->wanted));
    p->asked = strata_graph_alloc(p->memory, n * sizeof *p->asked);
    STRATA_TRY(strata_graph_check(p->memory, err));
    for (int d = 0; d < p->n_devices; d++) {
        strata_device_part *part = &result->parts[d];
        STRATA_TRY(strata_graph_create(&part->graph, err));
        result->n_devices++;
        strata_graph_retain(part->graph, graph);
        part->outputs = calloc((size_t)p->opts->n_outputs + 1, sizeof(*part->outputs));
        if (!part->outputs) return strata_partition_no_memory(err);
    }
    return STRATA_OK;
}

static strata_status finish_outputs(partitioner *p, strata_error *err) {
    static const strata_placement whole = {0};
    const strata_partition_options *opts = p->opts;
    p->reader = NULL;
    for (int i = 0; i < opts->n_outputs; i++) {
        const strata_placement *placement = opts->placements ? &opts->placements[i] : &whole;
        form *f;
        STRATA_TRY(strata_placement_fits(p->mesh, placement, opts->outputs[i]->shape, err));
        STRATA_TRY(strata_partition_form(p, opts->outputs[i], placement, &f, err));
        for (int d = 0; d < p->n_devices; d++)
            p->result->parts[d].outputs[i] = strata_partition_tensor(p, opts->outputs[i], f, d);
    }
    for (int i = 0; i < opts->n_updates; i++)
        for (int d = 0; d < p->n_devices; d++) {
            strata_tensor *update = p->forms[opts->updates[i]->id]->tensors[d];
            if (update) STRATA_TRY(strata_partition_add_update(p, d, update, err));
        }
    return STRATA_OK;
}

/* A device takes part in all exchanges, also in those whose results it does not read. */
static strata_status keep_exchanges(partitioner *p, int d, strata_error *err) {
    const strata_device_part *part = &p->result->parts[d];
    const strata_graph *graph = part->graph;
    bool *live = strata_graph_alloc(p->memory, (size_t)graph->n_nodes + 1);
    if (!live) return strata_partition_no_memory(err);
    for (int i = 0; i < p->opts->n_outputs; i++)
        if (part->outputs[i]) live[part->outputs[i]->id] = true;
    for (int i = 0; i < part->n_updates; i++) live[part->updates[i]->id] = true;
    for (int id = graph->n_nodes - 1; id >= 0; id--) {
        strata_tensor *node = graph->nodes[id];
        if (!live[id] && node->op->flags & STRATA_OP_COMMUNICATION) {
            STRATA_TRY(strata_partition_add_update(p, d, node, err));
            live[id] = true;
        }
        for (int i = 0; i < node->n_inputs && live[id]; i++) live[node->inputs[i]->id] = true;
    }
    return STRATA_OK;
}

static strata_status partition(partitioner *p, strata_graph *graph, strata_error *err) {
    const strata_partition_options *opts = p->opts;
    STRATA_TRY(begin(p, graph, err));
    strata_mark_live(graph, opts->outputs, opts->n_outputs, opts->updates, opts->n_updates, p->live, p->uses);
    STRATA_TRY(strata_partition_ask(p, graph, err));
    for (int i = 0; i < graph->n_nodes; i++)
        if (p->live[i]) STRATA_TRY(add_node(p, graph->nodes[i], err));
    STRATA_TRY(finish_outputs(p, err));
    for (int d = 0; d < p->n_devices; d++) {
        STRATA_TRY(strata_graph_check(strata_partition_graph(p, d), err));
        STRATA_TRY(keep_exchanges(p, d, err));
    }
    for (int i = 0; i < graph->n_nodes; i++) p->result->placements[i] = p->forms[i] ? &p->forms[i]->placement : NULL;
    return STRATA_OK;
}

strata_status strata_partition_create(const strata_partition_options *opts, strata_partition **out_partition,
                                      strata_error *err) {
    *out_partition = NULL;
    STRATA_TRY(strata_mesh_check(opts->mesh, err));
    if (opts->n_outputs + opts->n_updates == 0) return strata_fail(err, STRATA_INVALID, "partition: there are no outputs");
    strata_graph *graph = (opts->n_outputs ? opts->outputs[0] : opts->updates[0])->graph;
    STRATA_TRY(strata_graph_check(graph, err));
    partitioner p = {.opts = opts, .mesh = opts->mesh, .first = opts->first, .n_all = strata_mesh_n_devices(opts->mesh)};
    p.n_devices = opts->n ? opts->n : p.n_all;
    const strata_status status = partition(&p, graph, err);
    if (status)
        strata_partition_destroy(p.result);
    else
        *out_partition = p.result;
    return status;
}

void strata_partition_destroy(strata_partition *partition) {
    if (!partition) return;
    for (int d = 0; d < partition->n_devices; d++) {
        strata_graph_destroy(partition->parts[d].graph);
        free(partition->parts[d].outputs);
        free(partition->parts[d].updates);
    }
    strata_graph_destroy(partition->memory);
    free(partition->exchanges);
    free(partition);
}
