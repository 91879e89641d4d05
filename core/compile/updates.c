/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of variables: where they are made, in which parts, and how all copies of a variable become equal again
 * (partition.h). */
#include <string.h>

#include "core/compile/partitioner.h"
#include "core/compile/walk.h"
#include "core/op/communication.h"
#include "core/op/ops.h"
#include "core/op/update.h"
#include "strata/ops.h"

typedef strata_partitioner partitioner;
typedef strata_form form;
typedef strata_node_division division;

static strata_status are_elsewhere(const partitioner *p, const division *v, int i, strata_error *err) {
    return strata_fail(err, STRATA_UNSUPPORTED, "%s: its operand %d is %s; the update is made elsewhere", v->node->op->name, i,
                       strata_placement_text(p->mesh, &v->operands[i]->placement, v->node->inputs[i]->shape).text);
}

/* An update is made at the coordinates at which its variables are, and at those of the options along axes that do not divide a
 * variable and over which it is not partial. */
static strata_status find_where_updated(const partitioner *p, division *v, strata_error *err) {
    const strata_placement *wanted = p->opts->update;
    unsigned taken = 0;
    for (int i = 0; i < v->node->n_inputs; i++) {
        if (!strata_is_written(v->node, i)) continue;
        const strata_placement *placement = &v->operands[i]->placement;
        taken |= strata_partition_split_axes(v, i) | placement->partial;
        for (int a = 0; a < p->mesh->n_axes; a++) {
            if (!(placement->at >> a & 1)) continue;
            if (v->where.at >> a & 1 && v->where.coordinates[a] != placement->coordinates[a])
                return are_elsewhere(p, v, i, err);
            v->where = strata_placement_at(v->where, a, placement->coordinates[a]);
        }
    }
    for (int a = 0; a < p->mesh->n_axes && wanted; a++)
        if (wanted->at & ~taken & ~v->where.at & 1u << a) v->where = strata_placement_at(v->where, a, wanted->coordinates[a]);
    if (wanted) v->own |= wanted->own & ~taken & ~v->where.at;
    /* The value of the node is that of its first variable, so the new values of the others cannot be sent. Neither can memory
     * that another update has changed. */
    for (int i = 1; i < v->node->n_inputs; i++) {
        const strata_tensor *operand = v->node->inputs[i];
        const strata_placement *placement = &v->operands[i]->placement;
        /* An optimizer without a slot has the parameters in its place. */
        const bool writes = operand != v->node->inputs[0] && strata_is_written(v->node, i) && strata_variable_behind(operand);
        if ((writes && v->where.at & ~placement->at) ||
            (operand->op->flags & STRATA_OP_UPDATE && strata_partition_axes_at(p, placement, &v->where)))
            return are_elsewhere(p, v, i, err);
    }
    return STRATA_OK;
}

/* An update may change rows that were gathered from a variable; every device then makes the whole update. */
static bool is_changed_alike(const partitioner *p, const strata_tensor *written) {
    if (strata_variable_behind(written)) return true;
    for (;; written = written->inputs[0]) {
        for (int d = 0; d < written->shape.rank; d++)
            if (p->forms[written->id]->placement.dims[d].n_axes) return false;
        if (written->op->flags & STRATA_OP_LEAF) return true;
    }
}

/* The variables of an update may be partial: each device adds what it has to its own part of the sum. The other operands in
 * which the update is linear then are partial too, or each device's own. */
static strata_status defer_update(division *v, strata_error *err) {
    const strata_tensor *node = v->node;
    v->deferred = v->operands[0]->placement.partial;
    v->own &= ~v->deferred;
    for (int i = 0; i < node->n_inputs; i++) {
        const strata_placement *has = &v->operands[i]->placement;
        v->stays_partial[i] = v->deferred && strata_partition_is_joint(v, i);
        if (strata_is_written(node, i) && (has->partial != v->deferred || (v->deferred && !strata_partition_is_joint(v, i))))
            return strata_fail(err, STRATA_UNSUPPORTED, "%s: its operand %d is a partial sum, which %s", node->op->name, i,
                               "the op's rule does not allow, or another variable of the update is not");
        if (has->own & v->deferred && !v->stays_partial[i])
            return strata_fail(err, STRATA_INVALID, "%s: each device has its own value of operand %d (%s); %s", node->op->name,
                               i, node->inputs[i]->op->name, "an exchange must come first");
    }
    return STRATA_OK;
}

/* Whether the value is a variable that was read, of which every device has a copy. */
static bool is_copy(const partitioner *p, const strata_tensor *value) {
    static const strata_placement whole = {0};
    return value->op == &strata_op_read &&
           strata_placement_equal(p->mesh, value->shape.rank, &p->forms[value->id]->placement, &whole);
}

strata_status strata_partition_follow(partitioner *p, division *v, strata_error *err) {
    v->n_candidates = 0;
    STRATA_TRY(defer_update(v, err));
    STRATA_TRY(find_where_updated(p, v, err));
    for (int i = 0; i < v->node->n_inputs; i++)
        if (strata_is_written(v->node, i)) STRATA_TRY(strata_partition_add_candidates(p, v, i, err));
    STRATA_TRY(strata_partition_choose(p, v, 0, err));
    for (int i = 0; i < v->node->n_inputs; i++) {
        strata_placement wanted;
        const strata_placement *has = &v->operands[i]->placement;
        if (!strata_is_written(v->node, i)) continue;
        STRATA_TRY(strata_partition_placement(p, v, &v->best, i, &wanted, err));
        wanted.at = has->at;
        memcpy(wanted.coordinates, has->coordinates, sizeof wanted.coordinates);
        const bool same = strata_placement_equal(p->mesh, v->node->inputs[i]->shape.rank, has, &wanted);
        if (same && is_changed_alike(p, v->node->inputs[i])) continue;
        v->in_parts = v->node->inputs[i] == v->node->inputs[0] && is_copy(p, v->node->inputs[i]) && p->opts->part_variable;
        if (v->in_parts) continue;
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: its operand %d is %s, which %s", v->node->op->name, i,
                           strata_placement_text(p->mesh, has, v->node->inputs[i]->shape).text,
                           "the op's rule does not allow, or another variable of the update is divided in another way");
    }
    return STRATA_OK;
}

strata_status strata_partition_read_parts(partitioner *p, const strata_tensor *read, const strata_placement *placement,
                                          form **out_form, strata_error *err) {
    strata_variable *whole = ((const strata_read_attrs *)read->attrs)->variable;
    form *f = *out_form = strata_partition_new_form(p, placement);
    if (!f) return strata_partition_no_memory(err);
    for (int d = 0; d < p->n_devices; d++)
        f->tensors[d] =
            strata_variable_read(strata_partition_graph(p, d), p->opts->part_variable(p->opts->user, whole, p->first + d));
    return STRATA_OK;
}

strata_status strata_partition_copy_back(partitioner *p, const strata_tensor *node, form *parts, strata_error *err) {
    static const strata_placement whole = {0};
    form *copies = strata_partition_new_form(p, &parts->placement);
    if (!copies) return strata_partition_no_memory(err);
    memcpy(copies->tensors, parts->tensors, (size_t)p->n_devices * sizeof *copies->tensors);
    STRATA_TRY(strata_partition_move(p, node, copies, &whole, err));
    for (int d = 0; d < p->n_devices; d++)
        copies->tensors[d] = strata_assign(p->forms[node->inputs[0]->id]->tensors[d], copies->tensors[d]);
    copies->next = parts;
    p->forms[node->id] = copies;
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
            STRATA_TRY(strata_partition_add_update(p, d, strata_assign(own->tensors[d], sent->tensors[d]), err));
    return STRATA_OK;
}

/* Whether device d is the first of those that exchange values along these axes and have one of this form. */
static bool is_first_of(const partitioner *p, const form *f, unsigned axes, int d) {
    const int64_t id = strata_partition_channel(p, axes, d).id;
    for (int other = -p->first; other < d; other++)
        if (strata_partition_channel(p, axes, other).id == id && (other < 0 || f->tensors[other])) return false;
    return f->tensors[d] != NULL;
}

/* Several devices made the update, with values that may differ: all take that of the first one. */
static strata_status take_first(partitioner *p, const strata_tensor *update, const strata_tensor *read, strata_error *err) {
    form *f = p->forms[update->id], *own = p->forms[read->id];
    const unsigned axes = p->opts->update->own;
    for (int d = 0; d < p->n_devices; d++) {
        if (!strata_partition_has(p, &own->placement, d)) continue;
        const strata_communication_attrs attrs = {.channel = strata_partition_channel(p, axes, d),
                                                  .dtype = update->dtype,
                                                  .shape = strata_partition_shape(p, update, &own->placement, d, NULL),
                                                  .takes = true};
        strata_tensor *value = is_first_of(p, f, axes, d) ? f->tensors[d] : NULL;
        strata_tensor *sent = strata_broadcast(strata_partition_graph(p, d), value, attrs);
        strata_tensor *assigned = strata_assign(f->tensors[d] ? f->tensors[d] : own->tensors[d], sent);
        if (f->tensors[d])
            f->tensors[d] = assigned;
        else
            STRATA_TRY(strata_partition_add_update(p, d, assigned, err));
    }
    f->placement.own &= ~axes;
    return strata_partition_note(p, update, "broadcast", axes, &own->placement, err);
}

strata_status strata_partition_spread(partitioner *p, const strata_tensor *update, strata_error *err) {
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

const strata_placement *strata_partition_place_update(const partitioner *p, const strata_tensor *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        const strata_tensor *variable = node->inputs[i];
        if (!strata_is_written(node, i) || !strata_shape_equal(variable->shape, node->shape)) continue;
        while (variable->op->flags & STRATA_OP_UPDATE) variable = variable->inputs[0];
        const strata_placement *placement = variable->op == &strata_op_read ? p->opts->place(p->opts->user, variable) : NULL;
        for (int d = 0; placement && d < variable->shape.rank; d++)
            if (placement->dims[d].n_axes) return placement;
    }
    return NULL;
}
