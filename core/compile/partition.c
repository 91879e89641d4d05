/* SPDX-License-Identifier: Apache-2.0
 *
 * The partitioner (partition.h): makes the parts of each node, from leaves to outputs and updates. */
#include "core/compile/partition.h"

#include "core/compile/partitioner.h"
#include "core/compile/walk.h"
#include "core/op/communication.h"
#include "core/op/ops.h"
#include "core/op/update.h"
#include "strata/ops.h"

typedef strata_partitioner partitioner;
typedef strata_form form;
typedef strata_node_division division;

static strata_status add_update(partitioner *p, int d, strata_tensor *update, strata_error *err) {
    strata_device_part *part = &p->result->parts[d];
    if (!strata_grow(&part->updates, part->n_updates, sizeof(*part->updates)))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "partition: no host memory");
    part->updates[part->n_updates++] = update;
    return STRATA_OK;
}

/* ---- updates: how all copies of a variable become equal again ---- */

/* The parts of a variable of which the devices have copies, from the variables that hold them. */
static strata_status read_parts(partitioner *p, const strata_tensor *read, const strata_placement *placement, form **out_form,
                                strata_error *err) {
    strata_variable *whole = ((const strata_read_attrs *)read->attrs)->variable;
    STRATA_TRY(strata_partition_new_form(p, NULL, placement, NULL, out_form, err));
    for (int d = 0; d < p->n_devices; d++)
        if (strata_partition_has(p, placement, d))
            (*out_form)->tensors[d] =
                strata_variable_read(strata_partition_graph(p, d), p->opts->part_variable(p->opts->user, whole, p->first + d));
    return STRATA_OK;
}

/* Gathers the updated parts of a variable, and assigns them to the devices' copies. Readers of the update get the copies. */
static strata_status copy_back(partitioner *p, const strata_tensor *node, form *parts, strata_error *err) {
    const form *own = p->forms[node->inputs[0]->id];
    form *copies;
    STRATA_TRY(strata_partition_new_form(p, node, &parts->placement, parts->tensors, &copies, err));
    STRATA_TRY(strata_partition_move(p, node, copies, &own->placement, err));
    for (int d = 0; d < p->n_devices; d++)
        if (own->tensors[d]) copies->tensors[d] = strata_assign(own->tensors[d], copies->tensors[d]);
    copies->next = parts;
    return STRATA_OK;
}

/* Whether a later update changes the value of this one, and nothing reads the variable before. */
static bool is_updated_further(const partitioner *p, const strata_tensor *update) {
    const strata_variable *variable = strata_variable_behind(update);
    const bool is_own = p->forms[update->id]->placement.own;
    for (int id = update->id + 1; id < update->graph->n_nodes; id++) {
        const strata_tensor *node = update->graph->nodes[id];
        if (!p->live[id]) continue;
        if (node->op == &strata_op_read && strata_variable_behind(node) == variable) return false;
        if (strata_is_written(node, 0) && node->inputs[0] == update) return true;
        for (int i = 0; i < node->n_inputs && is_own; i++)
            if (node->inputs[i] == update) return false;
    }
    return false;
}

/* Sends the new value of a variable to the devices that have a copy of it but do not make the update. */
static strata_status send_update(partitioner *p, const strata_tensor *update, const strata_tensor *read, strata_error *err) {
    form *f = p->forms[update->id], *own = p->forms[read->id], *sent;
    STRATA_TRY(strata_partition_form(p, update, &own->placement, &sent, err));
    for (int d = 0; d < p->n_devices; d++)
        if (!f->tensors[d] && sent->tensors[d])
            STRATA_TRY(add_update(p, d, strata_assign(own->tensors[d], sent->tensors[d]), err));
    return STRATA_OK;
}

/* Whether device d is the first of those that exchange values along these axes and have one of this form. */
static bool is_first_of(const partitioner *p, const form *f, unsigned axes, int d) {
    const int64_t id = strata_partition_team(p, axes, d).id;
    for (int other = -p->first; other < d; other++)
        if (strata_partition_team(p, axes, other).id == id && (other < 0 || f->tensors[other])) return false;
    return f->tensors[d] != NULL;
}

/* Several devices made the update, with values that may differ: all take that of the first one. */
static strata_status take_first(partitioner *p, const strata_tensor *update, const strata_tensor *read, strata_error *err) {
    form *f = p->forms[update->id], *own = p->forms[read->id];
    unsigned axes = p->opts->update->own & ~(own->placement.at | own->placement.partial);
    for (int d = 0; d < read->shape.rank; d++) axes &= ~strata_partition_axes(&own->placement.dims[d]);
    for (int d = 0; d < p->n_devices; d++) {
        if (!strata_partition_has(p, &own->placement, d)) continue;
        const strata_communication_attrs attrs = {.team = strata_partition_team(p, axes, d),
                                                  .dtype = update->dtype,
                                                  .shape = strata_partition_shape(p, update, &own->placement, d, NULL),
                                                  .takes = true};
        strata_tensor *value = is_first_of(p, f, axes, d) ? f->tensors[d] : NULL;
        strata_tensor *sent = strata_broadcast(strata_partition_graph(p, d), value, attrs);
        strata_tensor *assigned = strata_assign(f->tensors[d] ? f->tensors[d] : own->tensors[d], sent);
        if (f->tensors[d])
            f->tensors[d] = assigned;
        else
            STRATA_TRY(add_update(p, d, assigned, err));
    }
    f->placement.own &= ~axes;
    return strata_partition_note(p, update, "broadcast", axes, &own->placement, err);
}

/* Makes all copies of an updated variable equal. */
static strata_status spread(partitioner *p, const strata_tensor *update, strata_error *err) {
    const form *f = p->forms[update->id];
    const strata_tensor *read = update;
    while (read->op->flags & STRATA_OP_UPDATE) read = read->inputs[0];
    if (read->op != &strata_op_read) return STRATA_OK;
    const strata_placement *copies = &p->forms[read->id]->placement;
    if (!((f->placement.at & ~copies->at) | (f->placement.own & ~copies->own)) || is_updated_further(p, update))
        return STRATA_OK;
    p->reader = update;
    const bool differ = p->opts->update && p->opts->update->own;
    return (differ ? take_first : send_update)(p, update, read, err);
}

/* ---- the parts of nodes ---- */

/* Whether device d adds nothing to a partial variable by operand i, since its examples do not count. */
static bool is_left_out(const partitioner *p, const division *v, int i, int d) {
    const bool adds = (v->node->op->flags & STRATA_OP_UPDATE) && v->stays_partial[i] && !strata_is_written(v->node, i);
    return adds && p->opts->counts && !p->opts->counts[d];
}

static strata_status add_leaf(partitioner *p, const strata_tensor *node, strata_error *err) {
    static const strata_placement whole = {0};
    const bool is_constant = node->op == &strata_op_constant;
    const strata_placement *placement = is_constant ? &whole : strata_partition_place(p, node);
    form *f;
    STRATA_TRY(strata_placement_fits(p->mesh, placement, node->shape, err));
    STRATA_TRY(strata_partition_new_form(p, node, placement, NULL, &f, err));
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
        if (!f->tensors[d]) return strata_fail(err, STRATA_OUT_OF_MEMORY, "partition: no host memory");
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
            STRATA_TRY(read_parts(p, node->inputs[i], &placement, &v->operands[i], err));
        else if (v->in_parts && node->inputs[i] == node->inputs[0])
            v->operands[i] = v->operands[0];
        else
            STRATA_TRY(strata_partition_form(p, node->inputs[i], &placement, &v->operands[i], err));
    }
    STRATA_TRY(strata_partition_placement(p, v, &v->best, n, &placement, err));
    STRATA_TRY(strata_partition_new_form(p, node, &placement, NULL, &f, err));
    strata_tensor **inputs;
    int64_t(*begins)[STRATA_MAX_RANK];
    STRATA_TRY(STRATA_PARTITION_TAKE(p, inputs, n, err));
    STRATA_TRY(STRATA_PARTITION_TAKE(p, begins, n, err));
    for (int d = 0; d < p->n_devices; d++) {
        strata_node_part part = {.node = node, .graph = strata_partition_graph(p, d), .inputs = inputs, .input_begins = begins};
        part.shape = strata_partition_shape(p, node, &placement, d, part.begin);
        if (!strata_partition_has(p, &placement, d) || has_nothing(p, v, &placement, part.shape, d)) continue;
        for (int i = 0; i < n; i++) {
            strata_partition_shape(p, node->inputs[i], &v->operands[i]->placement, d, begins[i]);
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
    if (v->in_parts) return copy_back(p, node, f, err);
    return node->op->flags & STRATA_OP_UPDATE ? spread(p, node, err) : STRATA_OK;
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
    strata_tensor **inputs;
    STRATA_TRY(STRATA_PARTITION_TAKE(p, inputs, node->n_inputs, err));
    STRATA_TRY(strata_partition_new_form(p, node, &placement, NULL, &f, err));
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

strata_status strata_partition_add(partitioner *p, const strata_tensor *node, strata_error *err) {
    for (int i = 0; i < node->n_inputs; i++) p->of_examples[node->id] |= p->of_examples[node->inputs[i]->id];
    if (node->op->flags & STRATA_OP_LEAF) return add_leaf(p, node, err);
    if (node->op == &strata_op_all_reduce && node->n_inputs) return strata_partition_complete(p, node, err);
    if (node->op == &strata_op_move) return strata_partition_follow(p, node, err);
    if (node->op->flags & STRATA_OP_COMMUNICATION)
        return strata_fail(err, STRATA_UNSUPPORTED, "partition: the graph has an exchange already (%s)", node->op->name);
    bool done;
    STRATA_TRY(add_concat(p, node, &done, err));
    if (done) return STRATA_OK;
    division v = {.node = node};
    STRATA_TRY(STRATA_PARTITION_TAKE(p, v.operands, node->n_inputs, err));
    STRATA_TRY(STRATA_PARTITION_TAKE(p, v.stays_partial, node->n_inputs, err));
    STRATA_TRY(STRATA_PARTITION_TAKE(p, v.factors.inputs, node->n_inputs, err));
    for (int i = 0; i < node->n_inputs; i++) v.operands[i] = p->forms[node->inputs[i]->id];
    STRATA_TRY(strata_partition_divide(p, &v, err));
    STRATA_TRY(strata_partition_resolve(p, &v, &done, err));
    return done ? STRATA_OK : build_parts(p, &v, err);
}

/* Copies the user's graph. */
static strata_status copy_graph(partitioner *p, strata_error *err) {
    const strata_graph *given = p->given;
    STRATA_TRY(strata_graph_derive(p->given, &p->graph, err));
    for (int id = 0; id < given->n_nodes && !p->graph->status; id++)
        strata_copy_mapped(p->graph, given->nodes[id], p->graph->nodes);
    return strata_graph_check(p->graph, err);
}

/* Moves n elements to an array of `room` elements. */
#define ENLARGE(p, array, n, room, err)                            \
    do {                                                           \
        const void *old = array;                                   \
        STRATA_TRY(STRATA_PARTITION_TAKE(p, array, room, err));    \
        if (n) memcpy(array, old, (size_t)(n) * sizeof(*(array))); \
    } while (0)

strata_status strata_partition_reserve(partitioner *p, strata_error *err) {
    const int n = p->n_reserved, room = 2 * p->graph->n_nodes;
    if (n >= p->graph->n_nodes) return STRATA_OK;
    ENLARGE(p, p->forms, n, room, err);
    ENLARGE(p, p->live, n, room, err);
    ENLARGE(p, p->uses, n, room, err);
    ENLARGE(p, p->of_examples, n, room, err);
    ENLARGE(p, p->wanted, n, room, err);
    ENLARGE(p, p->asked, n, room, err);
    p->n_reserved = room;
    return STRATA_OK;
}

static strata_status begin(partitioner *p, strata_error *err) {
    strata_partition *result;
    STRATA_TRY(STRATA_NEW(result, 1, err, "partition: no host memory"));
    p->result = result;
    p->memory = &result->memory;
    STRATA_TRY(STRATA_PARTITION_TAKE(p, result->parts, p->n_devices, err));
    STRATA_TRY(STRATA_PARTITION_TAKE(p, result->placements, p->n_whole, err));
    STRATA_TRY(copy_graph(p, err));
    STRATA_TRY(strata_partition_reserve(p, err));
    for (int d = 0; d < p->n_devices; d++) {
        STRATA_TRY(strata_graph_derive(p->graph, &result->parts[d].graph, err));
        result->n_devices++;
        STRATA_TRY(STRATA_PARTITION_TAKE(p, result->parts[d].outputs, p->opts->n_outputs, err));
    }
    return STRATA_OK;
}

static strata_status finish_outputs(partitioner *p, strata_error *err) {
    static const strata_placement whole = {0};
    const strata_partition_options *opts = p->opts;
    p->reader = NULL;
    for (int i = 0; i < opts->n_outputs; i++) {
        const strata_placement *placement = opts->placements ? &opts->placements[i] : &whole;
        const strata_tensor *output = p->graph->nodes[opts->outputs[i]->id];
        form *f;
        STRATA_TRY(strata_placement_fits(p->mesh, placement, output->shape, err));
        STRATA_TRY(strata_partition_form(p, output, placement, &f, err));
        for (int d = 0; d < p->n_devices; d++) p->result->parts[d].outputs[i] = strata_partition_tensor(p, output, f, d);
    }
    for (int i = 0; i < opts->n_updates; i++)
        for (int d = 0; d < p->n_devices; d++) {
            strata_tensor *update = p->forms[opts->updates[i]->id]->tensors[d];
            if (update) STRATA_TRY(add_update(p, d, update, err));
        }
    return STRATA_OK;
}

/* A device takes part in all exchanges, also in those whose results it does not read. */
static strata_status keep_exchanges(partitioner *p, int d, strata_error *err) {
    const strata_device_part *part = &p->result->parts[d];
    const strata_graph *graph = part->graph;
    bool *live;
    STRATA_TRY(STRATA_PARTITION_TAKE(p, live, graph->n_nodes, err));
    for (int i = 0; i < p->opts->n_outputs; i++)
        if (part->outputs[i]) live[part->outputs[i]->id] = true;
    for (int i = 0; i < part->n_updates; i++) live[part->updates[i]->id] = true;
    for (int id = graph->n_nodes - 1; id >= 0; id--) {
        strata_tensor *node = graph->nodes[id];
        if (!live[id] && node->op->flags & STRATA_OP_COMMUNICATION) {
            STRATA_TRY(add_update(p, d, node, err));
            live[id] = true;
        }
        for (int i = 0; i < node->n_inputs && live[id]; i++) live[node->inputs[i]->id] = true;
    }
    return STRATA_OK;
}

static void find_examples(partitioner *p) {
    for (int i = 0; i < p->n_whole; i++) {
        if (!p->live[i] || p->graph->nodes[i]->op != &strata_op_input) continue;
        const strata_placement *placement = strata_partition_place(p, p->graph->nodes[i]);
        const unsigned axes = strata_partition_split_axes(placement) | placement->partial | placement->own;
        p->of_examples[i] = axes != 0;
        p->examples |= axes;
    }
}

static strata_status partition(partitioner *p, strata_error *err) {
    const strata_partition_options *opts = p->opts;
    STRATA_TRY(begin(p, err));
    for (int i = 0; i < opts->n_outputs; i++) p->live[opts->outputs[i]->id] = true;
    for (int i = 0; i < opts->n_updates; i++) p->live[opts->updates[i]->id] = true;
    strata_mark_live(&(strata_draft){.graph = p->graph}, p->live, p->uses);
    STRATA_TRY(strata_partition_ask(p, p->graph, err));
    find_examples(p);
    for (int i = 0; i < p->n_whole; i++)
        if (p->live[i]) STRATA_TRY(strata_partition_add(p, p->graph->nodes[i], err));
    STRATA_TRY(finish_outputs(p, err));
    for (int d = 0; d < p->n_devices; d++) {
        STRATA_TRY(strata_graph_check(strata_partition_graph(p, d), err));
        STRATA_TRY(keep_exchanges(p, d, err));
    }
    for (int i = 0; i < p->n_whole; i++) p->result->placements[i] = p->forms[i] ? &p->forms[i]->placement : NULL;
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
    p.given = graph;
    p.n_whole = graph->n_nodes;
    const strata_status status = partition(&p, err);
    strata_graph_destroy(p.graph); /* the devices' graphs retain it */
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
        free(partition->parts[d].updates);
    }
    free(partition->exchanges);
    strata_memory_finish(&partition->memory);
    free(partition);
}
