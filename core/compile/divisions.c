/* SPDX-License-Identifier: Apache-2.0
 *
 * How nodes are divided among devices (partition.h): by the rules of their ops, by the placements of their operands, and by
 * what their readers want. */
#include <string.h>

#include "core/compile/partitioner.h"
#include "core/compile/walk.h"
#include "core/op/ops.h"
#include "core/op/update.h"

typedef strata_partitioner partitioner;
typedef strata_node_choice choice;
typedef strata_node_division division;

/* Operand i of the node; n_inputs: its result. */
static const strata_tensor *tensor_of(const division *v, int i) {
    return i < v->node->n_inputs ? v->node->inputs[i] : v->node;
}

static const strata_factor_dims *dims_of(const division *v, int i) {
    return i < v->node->n_inputs ? &v->factors.inputs[i] : &v->factors.result;
}

/* The split whose pieces have `to` elements where those of `split` have `from`; an empty one if there is none. */
static strata_status in_units(partitioner *p, const strata_dim_split *split, int64_t from, int64_t to,
                              strata_dim_split *out_split, strata_error *err) {
    const int n = strata_dim_split_n_pieces(p->mesh, split);
    int64_t *lengths;
    *out_split = *split;
    if (!split->n_axes || from == to) return STRATA_OK;
    STRATA_TRY(STRATA_PARTITION_TAKE(p, lengths, n, err));
    out_split->lengths = lengths;
    for (int k = 0; k < n; k++) {
        lengths[k] = split->lengths[k] / from * to;
        if (split->lengths[k] % from) *out_split = (strata_dim_split){0};
    }
    return STRATA_OK;
}

strata_status strata_partition_placement(partitioner *p, const division *v, const choice *c, int i,
                                         strata_placement *out_placement, strata_error *err) {
    const bool is_result = i == v->node->n_inputs;
    const strata_factor_dims *dims = dims_of(v, i);
    *out_placement = (strata_placement){.partial = is_result || v->stays_partial[i] ? v->deferred : 0,
                                        .own = is_result ? v->own & ~v->where.at : v->operands[i]->placement.own};
    /* A device at the coordinate reads its own value of an operand. */
    for (int a = 0; a < p->mesh->n_axes; a++)
        if (v->where.at & ~out_placement->own & 1u << a)
            *out_placement = strata_placement_at(*out_placement, a, v->where.coordinates[a]);
    out_placement->partial &= ~out_placement->own;
    unsigned seen = 0;
    for (int d = 0; d < tensor_of(v, i)->shape.rank; d++) {
        if (dims->factor[d] < 0) continue;
        const strata_dim_split *split = &c->factors[dims->factor[d]];
        seen |= strata_partition_axes(split);
        STRATA_TRY(in_units(p, split, 1, dims->unit[d], &out_placement->dims[d], err));
    }
    if (!is_result) return STRATA_OK;
    /* A sum over a divided factor, of values that are each device's own or of its own examples, is its own too. */
    const unsigned summed = c->used & ~seen;
    out_placement->own = (out_placement->own | (v->factors.own || p->opts->own_sums ? summed : 0)) & ~seen;
    out_placement->partial = (out_placement->partial | summed) & ~out_placement->own;
    return STRATA_OK;
}

/* The bytes that a device receives so that the value gets this placement. */
static double cost_of_move(const partitioner *p, const strata_tensor *value, const strata_placement *from,
                           const strata_placement *to) {
    double cost = 0;
    if (from->partial & ~to->partial) cost += 2 * (double)strata_tensor_bytes(value);
    if (strata_partition_axes_at(p, from, to)) cost += (double)strata_tensor_bytes(value);
    for (int d = 0; d < value->shape.rank; d++)
        if (from->dims[d].n_axes && !strata_dim_split_equal(p->mesh, &from->dims[d], &to->dims[d])) {
            cost += (double)strata_tensor_bytes(value);
            break;
        }
    return cost;
}

/* Whether an earlier reader needed the value in this form. */
static bool has_form(const partitioner *p, const strata_tensor *value, const strata_placement *placement) {
    const strata_form *f = p->forms[value->id];
    while (f && !strata_placement_equal(p->mesh, value->shape.rank, &f->placement, placement)) f = f->next;
    return f != NULL;
}

/* Compares the finished choice v->now with the best one so far. More axes that divide the work are better, then fewer bytes. */
static strata_status judge(partitioner *p, division *v, strata_error *err) {
    choice *c = &v->now;
    c->cost = 0;
    for (int i = 0; i < v->node->n_inputs; i++) {
        strata_placement to;
        STRATA_TRY(strata_partition_placement(p, v, c, i, &to, err));
        if (!has_form(p, v->node->inputs[i], &to))
            c->cost += cost_of_move(p, v->node->inputs[i], &v->operands[i]->placement, &to);
    }
    strata_placement result;
    STRATA_TRY(strata_partition_placement(p, v, c, v->node->n_inputs, &result, err));
    if (result.partial & ~v->deferred) c->cost += 2 * (double)strata_tensor_bytes(v->node);
    if (v->best.cost < 0 || c->n_axes > v->best.n_axes || (c->n_axes == v->best.n_axes && c->cost < v->best.cost)) v->best = *c;
    return STRATA_OK;
}

/* Tries all candidates from number k on, each taken or not. */
static strata_status choose(partitioner *p, division *v, int k, strata_error *err) {
    if (k == v->n_candidates) return judge(p, v, err);
    const int factor = v->candidates[k].factor;
    const strata_dim_split *split = &v->candidates[k].split;
    const unsigned axes = strata_partition_axes(split);
    if (!v->now.factors[factor].n_axes && !((v->now.used | v->deferred | v->where.at) & axes)) {
        v->now.factors[factor] = *split;
        v->now.used |= axes;
        v->now.n_axes += split->n_axes;
        STRATA_TRY(choose(p, v, k + 1, err));
        v->now.n_axes -= split->n_axes;
        v->now.used &= ~axes;
        v->now.factors[factor] = (strata_dim_split){0};
    }
    return choose(p, v, k + 1, err);
}

/* Adds the ways in which a placement of operand i (n_inputs: of the result) divides factors over other axes than `taken`. */
static strata_status add_candidates(partitioner *p, division *v, int i, const strata_placement *placement, unsigned taken,
                                    strata_error *err) {
    const strata_factor_dims *dims = dims_of(v, i);
    for (int d = 0; d < tensor_of(v, i)->shape.rank; d++) {
        const int factor = dims->factor[d];
        strata_dim_split split;
        if (factor < 0 || !placement->dims[d].n_axes || strata_partition_axes(&placement->dims[d]) & taken) continue;
        STRATA_TRY(in_units(p, &placement->dims[d], dims->unit[d], 1, &split, err));
        bool usable = split.n_axes && v->n_candidates < STRATA_MOST_CANDIDATES;
        for (int k = 0; usable && v->factors.filled >> factor & 1 && k < strata_dim_split_n_pieces(p->mesh, &split); k++)
            usable = split.lengths[k] > 0;
        for (int k = 0; usable && k < v->n_candidates; k++)
            usable = v->candidates[k].factor != factor || !strata_dim_split_equal(p->mesh, &v->candidates[k].split, &split);
        if (!usable) continue;
        v->candidates[v->n_candidates].factor = factor;
        v->candidates[v->n_candidates++].split = split;
    }
    return STRATA_OK;
}

/* The axes that divide a dimension of operand i. */
static unsigned split_axes(const division *v, int i) {
    return strata_partition_split_axes(&v->operands[i]->placement);
}

/* The ways in which operands are divided, and in which the result is wanted. Where examples are divided, nothing else is
 * divided over the same axis: parameters that are divided over it are gathered, and their gradients become pieces when they
 * are added up. */
static strata_status add_all_candidates(partitioner *p, division *v, strata_error *err) {
    const int n = v->node->n_inputs;
    unsigned taken = 0;
    for (int i = 0; i < n; i++) {
        if (!p->of_examples[v->node->inputs[i]->id]) continue;
        taken |= split_axes(v, i) & p->examples;
        STRATA_TRY(add_candidates(p, v, i, &v->operands[i]->placement, 0, err));
    }
    for (int i = 0; i < n; i++)
        if (!p->of_examples[v->node->inputs[i]->id])
            STRATA_TRY(add_candidates(p, v, i, &v->operands[i]->placement, taken, err));
    return p->wanted[v->node->id] ? add_candidates(p, v, n, p->wanted[v->node->id], taken, err) : STRATA_OK;
}

/* Whether a partial value is to be added up where it is read first, since several nodes read it. An input is not: it was made
 * partial so that its readers are. */
static bool is_shared(const partitioner *p, const strata_tensor *value) {
    return p->uses[value->id] > 1 && !(value->op->flags & STRATA_OP_LEAF);
}

/* Whether the result is linear in operand i together with others. */
static bool is_joint(const division *v, int i) {
    return v->factors.linearity == STRATA_LINEAR_JOINTLY && (i > 63 || v->factors.linear_operands >> i & 1);
}

/* The axes of which operands are at different coordinates, in which the result is linear together: each device adds up what it
 * has. */
static unsigned apart_axes(const partitioner *p, const division *v) {
    strata_placement first = {0};
    unsigned apart = 0, elsewhere = 0;
    for (int i = 0; i < v->node->n_inputs; i++) {
        const strata_placement *placement = &v->operands[i]->placement;
        if (!is_joint(v, i)) elsewhere |= placement->at;
        for (int a = 0; a < p->mesh->n_axes && is_joint(v, i); a++) {
            if (!(placement->at >> a & 1)) continue;
            if (!(first.at >> a & 1)) first = strata_placement_at(first, a, placement->coordinates[a]);
            if (first.coordinates[a] != placement->coordinates[a]) apart |= 1u << a;
        }
    }
    return apart & ~elsewhere;
}

/* The axes over which operands of so many bytes may stay partial: if the result is larger, adding them up first is cheaper.
 * Sums of examples stay partial all the same, since they may be added to each device's own values, and a complete value would
 * count once for each device. */
static unsigned may_defer(const partitioner *p, const division *v, int64_t bytes) {
    return bytes < strata_tensor_bytes(v->node) ? p->examples : ~0u;
}

/* The result of an op that is linear in several operands together: partial ones stay so; complete ones are counted once unless
 * they are divided along the same axis. */
static void defer_jointly(const partitioner *p, division *v) {
    const strata_tensor *node = v->node;
    unsigned partial = 0;
    int64_t bytes = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        if (!is_joint(v, i) || !v->operands[i]->placement.partial) continue;
        partial |= v->operands[i]->placement.partial;
        bytes += strata_tensor_bytes(node->inputs[i]);
    }
    unsigned any = (partial & may_defer(p, v, bytes)) | apart_axes(p, v);
    for (int i = 0; i < node->n_inputs; i++) {
        if (!is_joint(v, i)) any &= ~v->operands[i]->placement.partial;
        any &= ~split_axes(v, i);
        if (v->operands[i]->placement.partial && is_shared(p, node->inputs[i])) any = 0;
    }
    v->deferred = any;
    for (int i = 0; i < node->n_inputs; i++) v->stays_partial[i] = any && is_joint(v, i);
}

/* Decides over which axes partial operands stay partial. A value that several nodes read is added up once instead. */
static void defer(const partitioner *p, division *v) {
    const strata_tensor *node = v->node;
    const int n = node->n_inputs;
    if (v->factors.linearity == STRATA_LINEAR_JOINTLY) defer_jointly(p, v);
    if (v->factors.linearity == STRATA_LINEAR_JOINTLY || v->factors.linearity == STRATA_LINEAR_NOT) return;
    const int last = v->factors.linearity == STRATA_LINEAR_FIRST ? 1 : n;
    for (int i = 0; i < last && !v->deferred; i++) {
        unsigned axes = v->operands[i]->placement.partial & may_defer(p, v, strata_tensor_bytes(node->inputs[i]));
        if (is_shared(p, node->inputs[i])) axes = 0;
        for (int k = 0; k < n; k++)
            if (k != i) axes &= ~(v->operands[k]->placement.partial | split_axes(v, k));
        v->deferred = axes;
        v->stays_partial[i] = axes != 0;
    }
}

/* A node is computed at the coordinates at which its operands are. Along an axis that divides an operand, or along which
 * devices have values of their own, every device computes. */
static void find_where(const partitioner *p, division *v) {
    unsigned taken = v->own;
    for (int i = 0; i < v->node->n_inputs; i++) taken |= split_axes(v, i);
    for (int i = 0; i < v->node->n_inputs; i++) {
        const strata_placement *placement = &v->operands[i]->placement;
        const unsigned more = placement->at & ~taken & ~v->where.at & ~(v->stays_partial[i] ? v->deferred : 0);
        for (int a = 0; a < p->mesh->n_axes; a++)
            if (more >> a & 1) v->where = strata_placement_at(v->where, a, placement->coordinates[a]);
    }
    v->deferred &= ~v->where.at;
    for (int i = 0; i < v->node->n_inputs && !v->deferred; i++) v->stays_partial[i] = false;
}

/* ---- updates of variables ---- */

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
        taken |= split_axes(v, i) | placement->partial;
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
        v->stays_partial[i] = v->deferred && is_joint(v, i);
        if (strata_is_written(node, i) && (has->partial != v->deferred || (v->deferred && !is_joint(v, i))))
            return strata_fail(err, STRATA_UNSUPPORTED, "%s: its operand %d is a partial sum, which %s", node->op->name, i,
                               "the op's rule does not allow, or another variable of the update is not");
        if (has->own & v->deferred && !v->stays_partial[i])
            return strata_fail(err, STRATA_INVALID, "%s: each device has its own value of operand %d (%s); %s", node->op->name,
                               i, node->inputs[i]->op->name, "an exchange must come first");
    }
    return STRATA_OK;
}

/* Whether each piece of a dimension of `n` elements consists of pieces of `finer`. */
static bool is_coarser(const partitioner *p, const strata_dim_split *split, const strata_dim_split *finer, int64_t n) {
    const int pieces = strata_dim_split_n_pieces(p->mesh, split), each = strata_dim_split_n_pieces(p->mesh, finer) / pieces;
    if (split->n_axes > finer->n_axes) return false;
    bool same = !memcmp(split->axes, finer->axes, (size_t)split->n_axes * sizeof *split->axes);
    for (int k = 0; k < pieces && same && split->n_axes < finer->n_axes; k++) {
        int64_t length = 0;
        for (int i = 0; i < each; i++) length += finer->lengths[k * each + i];
        same = length == (split->n_axes ? split->lengths[k] : n);
    }
    return same;
}

/* Whether the value is a variable that was read, and the devices have copies of its pieces by `finer`. */
static bool is_copy(const partitioner *p, const strata_tensor *value, const strata_placement *finer) {
    const strata_placement *has = &p->forms[value->id]->placement;
    bool same = value->op == &strata_op_read && !(has->partial | has->own);
    for (int d = 0; d < value->shape.rank && same; d++)
        same = is_coarser(p, &has->dims[d], &finer->dims[d], value->shape.dims[d]);
    return same;
}

/* For an update: the variables that it writes keep their placements, and all other operands follow them. The first variable
 * (which may take the place of others) may be one of which the devices have copies of pieces: each then updates the part that
 * the others' placements say. */
static strata_status follow(partitioner *p, division *v, strata_error *err) {
    v->n_candidates = 0;
    STRATA_TRY(defer_update(v, err));
    STRATA_TRY(find_where_updated(p, v, err));
    for (int i = 0; i < v->node->n_inputs; i++)
        if (strata_is_written(v->node, i)) STRATA_TRY(add_candidates(p, v, i, &v->operands[i]->placement, 0, err));
    STRATA_TRY(choose(p, v, 0, err));
    for (int i = 0; i < v->node->n_inputs; i++) {
        strata_placement wanted;
        const strata_placement *has = &v->operands[i]->placement;
        if (!strata_is_written(v->node, i)) continue;
        STRATA_TRY(strata_partition_placement(p, v, &v->best, i, &wanted, err));
        wanted.at = has->at;
        memcpy(wanted.coordinates, has->coordinates, sizeof wanted.coordinates);
        const bool same = strata_placement_equal(p->mesh, v->node->inputs[i]->shape.rank, has, &wanted);
        if (same && is_changed_alike(p, v->node->inputs[i])) continue;
        v->in_parts =
            v->node->inputs[i] == v->node->inputs[0] && p->opts->part_variable && is_copy(p, v->node->inputs[i], &wanted);
        if (v->in_parts) continue;
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: its operand %d is %s, which %s", v->node->op->name, i,
                           strata_placement_text(p->mesh, has, v->node->inputs[i]->shape).text,
                           "the op's rule does not allow, or another variable of the update is divided in another way");
    }
    return STRATA_OK;
}

/* How an update is divided: as the variable that is divided over the most axes. NULL: none is. */
static const strata_placement *place_update(const partitioner *p, const strata_tensor *node) {
    const strata_placement *most = NULL;
    for (int i = 0, n_most = 0; i < node->n_inputs; i++) {
        const strata_tensor *variable = node->inputs[i];
        if (!strata_is_written(node, i) || !strata_shape_equal(variable->shape, node->shape)) continue;
        while (variable->op->flags & STRATA_OP_UPDATE) variable = variable->inputs[0];
        if (variable->op != &strata_op_read) continue;
        const strata_placement *placement = strata_partition_place(p, variable);
        const int n = __builtin_popcount(strata_partition_split_axes(placement));
        if (n > n_most) most = placement;
        n_most = n > n_most ? n : n_most;
    }
    return most;
}

strata_status strata_partition_divide(partitioner *p, division *v, strata_error *err) {
    v->best.cost = -1;
    for (int i = 0; i < v->node->n_inputs; i++) v->own |= v->operands[i]->placement.own;
    strata_factors_of(v->node, p->opts->own_statistics, &v->factors);
    if (v->node->op->flags & STRATA_OP_UPDATE) return follow(p, v, err);
    defer(p, v);
    find_where(p, v);
    STRATA_TRY(add_all_candidates(p, v, err));
    return choose(p, v, 0, err);
}

/* ---- how readers want values: goes back from updates and outputs, and finds out how all readers of a value want it divided,
 * so that it is divided early ---- */

strata_status strata_partition_split_range(partitioner *p, const strata_dim_split *split, int64_t begin, int64_t n,
                                           strata_dim_split *out_split, strata_error *err) {
    const int pieces = strata_dim_split_n_pieces(p->mesh, split);
    int64_t *lengths, at = 0;
    STRATA_TRY(STRATA_PARTITION_TAKE(p, lengths, pieces, err));
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

/* How operand i is divided if the result is divided as `result`; NULL: it is not. */
static strata_status wanted_of_operand(partitioner *p, const strata_tensor *node, const strata_factors *factors, int i,
                                       const strata_placement *result, strata_placement **out_wanted, strata_error *err) {
    strata_placement *wanted;
    const strata_shape shape = node->inputs[i]->shape;
    bool any = false;
    *out_wanted = NULL;
    STRATA_TRY(STRATA_PARTITION_TAKE(p, wanted, 1, err));
    for (int d = 0; d < shape.rank; d++)
        for (int k = 0; k < node->shape.rank; k++) {
            if (factors->inputs[i].factor[d] < 0 || factors->inputs[i].factor[d] != factors->result.factor[k]) continue;
            STRATA_TRY(
                in_units(p, &result->dims[k], factors->result.unit[k], factors->inputs[i].unit[d], &wanted->dims[d], err));
            any |= wanted->dims[d].n_axes > 0;
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
    const bool updates = node->op->flags & STRATA_OP_UPDATE, completes = node->op == &strata_op_all_reduce;
    const strata_placement *result = completes ? NULL : updates ? place_update(p, node) : p->wanted[node->id];
    /* What is added up to something smaller may be divided or not: its sums are exchanged more cheaply. */
    const bool may_differ = !p->opts->whole_sums && !result && !updates && !completes;
    strata_factors factors;
    if (may_differ && !p->asked[node->id]) return STRATA_OK;
    if (result) {
        STRATA_TRY(STRATA_PARTITION_TAKE(p, factors.inputs, node->n_inputs, err));
        strata_factors_of(node, p->opts->own_statistics, &factors);
    }
    for (int i = 0; i < node->n_inputs; i++) {
        strata_placement *wanted = NULL;
        if (may_differ && strata_tensor_bytes(node) < strata_tensor_bytes(node->inputs[i])) continue;
        if (result) STRATA_TRY(wanted_of_operand(p, node, &factors, i, result, &wanted, err));
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
