/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms of a value, and the exchanges and slices that change its placement (partitioner.h). */
#include "core/compile/partitioner.h"
#include "core/op/communication.h"
#include "core/op/element.h"
#include "core/op/ops.h"
#include "strata/ops.h"

typedef strata_partitioner partitioner;
typedef strata_form form;

strata_status strata_partition_new_form(partitioner *p, const strata_tensor *node, const strata_placement *placement,
                                        strata_tensor *const *tensors, form **out_form, strata_error *err) {
    const size_t n = (size_t)p->n_devices;
    form *f;
    STRATA_TRY(STRATA_PARTITION_TAKE(p, f, 1, err));
    STRATA_TRY(STRATA_PARTITION_TAKE(p, f->tensors, p->n_devices, err));
    f->placement = *placement;
    if (tensors) memcpy(f->tensors, tensors, n * sizeof(*tensors));
    if (node) p->forms[node->id] = f;
    *out_form = f;
    return STRATA_OK;
}

strata_tensor *strata_partition_tensor(partitioner *p, const strata_tensor *value, form *f, int d) {
    if (!f->tensors[d] && strata_partition_has(p, &f->placement, d))
        f->tensors[d] = strata_broadcast_to(strata_scalar(strata_partition_graph(p, d), value->dtype, 0),
                                            strata_partition_shape(p, value, &f->placement, d, NULL));
    return f->tensors[d];
}

strata_team strata_partition_team(const partitioner *p, unsigned axes, int d) {
    strata_team team = {0};
    int n = 1;
    for (int a = 0; a < p->mesh->n_axes; a++) n *= axes >> a & 1 ? p->mesh->axes[a].size : 1;
    if (n == p->n_all) return team;
    int64_t *members = strata_graph_alloc(p->result->parts[d].graph, (size_t)n * sizeof *members);
    if (!members) return team;
    d += p->first;
    for (int other = 0; other < p->n_all; other++) {
        bool same = true;
        for (int a = 0; a < p->mesh->n_axes && same; a++)
            same = (axes >> a & 1) || strata_mesh_coordinate(p->mesh, other, a) == strata_mesh_coordinate(p->mesh, d, a);
        if (same) members[team.n_members++] = other;
    }
    team.members = members;
    team.id = 1 + (int64_t)axes * p->n_all + members[0];
    return team;
}

/* The two devices that differ from device d only in their coordinates on the axis, which are these. */
static strata_team pair_of(const partitioner *p, int axis, const int coordinates[2], int d) {
    strata_team team = {.n_members = 2};
    int64_t *members = strata_graph_alloc(p->result->parts[d].graph, 2 * sizeof *members);
    int each = 1; /* how far two devices are apart that are neighbours along the axis */
    if (!members) return (strata_team){0};
    for (int a = axis + 1; a < p->mesh->n_axes; a++) each *= p->mesh->axes[a].size;
    for (int k = 0; k < 2; k++)
        members[k] = p->first + d + (coordinates[k] - strata_mesh_coordinate(p->mesh, p->first + d, axis)) * each;
    if (members[0] > members[1]) members[0] += members[1], members[1] = members[0] - members[1], members[0] -= members[1];
    team.members = members;
    /* Ids of other teams are below this. */
    team.id = ((int64_t)p->n_all << STRATA_MESH_MOST_AXES) + members[0] * p->n_all + members[1] + 1;
    return team;
}

strata_status strata_partition_note(partitioner *p, const strata_tensor *value, const char *op, unsigned axes,
                                    const strata_placement *received, strata_error *err) {
    strata_partition *result = p->result;
    const int64_t elements = strata_shape_elements(strata_partition_shape(p, value, received, 0, NULL));
    const int64_t bytes = elements * (int64_t)strata_dtype_bytes(value->dtype);
    if (!strata_grow(&result->exchanges, result->n_exchanges, sizeof *result->exchanges))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "partition: no host memory");
    result->exchanges[result->n_exchanges++] =
        (strata_partition_exchange){strata_partition_given(p, value), strata_partition_given(p, p->reader), op, axes, bytes};
    return STRATA_OK;
}

/* Sees to it that someone contributes to each sum over these axes: the first device, if all have nothing. */
static void contribute(partitioner *p, const strata_tensor *value, form *f, unsigned axes) {
    for (int d = 0; d < p->n_devices; d++) {
        const strata_team team = strata_partition_team(p, axes, d);
        bool any = p->opts->idle && p->opts->idle[d];
        for (int other = 0; other < p->n_devices && !any; other++)
            any = f->tensors[other] && strata_partition_team(p, axes, other).id == team.id;
        if (!any) strata_partition_tensor(p, value, f, d);
    }
}

/* Adds up a value that is partial, or each device's own, over these axes, for the devices that have a value placed at `to`. */
static void sum_over(partitioner *p, const strata_tensor *value, form *f, unsigned axes, const strata_placement *to,
                     strata_all_reduce_attrs attrs) {
    contribute(p, value, f, axes);
    for (int d = 0; d < p->n_devices; d++) {
        if (!strata_partition_has(p, &f->placement, d)) continue;
        attrs.common.team = strata_partition_team(p, axes, d);
        attrs.common.dtype = value->dtype;
        attrs.common.shape = strata_partition_shape(p, value, &f->placement, d, NULL);
        attrs.common.takes = strata_partition_has(p, to, d);
        strata_tensor *x = f->tensors[d];
        strata_tensor *sum =
            (to->at & axes ? strata_reduce_to : strata_all_reduce_among)(strata_partition_graph(p, d), x, attrs);
        f->tensors[d] = attrs.common.takes ? sum : NULL;
    }
}

/* The placement of a sum over these axes: where `to` has the value at one coordinate of an axis, the sum is there. */
static strata_placement place_sum(const strata_placement *from, unsigned axes, const strata_placement *to) {
    strata_placement sum = *from;
    sum.partial &= ~axes;
    sum.own &= ~axes;
    for (int a = 0; a < STRATA_MESH_MOST_AXES; a++)
        if (to->at & axes & 1u << a) sum = strata_placement_at(sum, a, to->coordinates[a]);
    return sum;
}

/* Adds up a value that is partial over these axes. */
static strata_status add_up(partitioner *p, const strata_tensor *value, form *f, unsigned axes, const strata_placement *to,
                            strata_error *err) {
    const strata_placement sum = place_sum(&f->placement, axes, to);
    sum_over(p, value, f, axes, &sum, (strata_all_reduce_attrs){.reduction = STRATA_REDUCE_SUM});
    f->placement = sum;
    return strata_partition_note(p, value, to->at & axes ? "reduce_to" : "all_reduce", axes, &f->placement, err);
}

/* Sends a value from one coordinate of an axis to another. Each message is an exchange of its two devices, which other devices
 * do not wait for. */
static strata_status pass_on(partitioner *p, const strata_tensor *value, form *f, int axis, int coordinate, strata_error *err) {
    const strata_placement from = f->placement, to = strata_placement_at(from, axis, coordinate);
    const int coordinates[] = {from.coordinates[axis], coordinate};
    for (int d = 0; d < p->n_devices; d++) {
        const bool gives = strata_partition_has(p, &from, d), takes = strata_partition_has(p, &to, d);
        if (!gives && !takes) continue;
        strata_tensor *x = gives ? strata_partition_tensor(p, value, f, d) : NULL;
        const strata_communication_attrs attrs = {.team = pair_of(p, axis, coordinates, d),
                                                  .dtype = value->dtype,
                                                  .shape = strata_partition_shape(p, value, &to, d, NULL),
                                                  .takes = takes};
        strata_tensor *sent = strata_broadcast(strata_partition_graph(p, d), x, attrs);
        f->tensors[d] = takes ? sent : NULL;
    }
    f->placement = to;
    return strata_partition_note(p, value, "send", 1u << axis, &f->placement, err);
}

/* Sends a value that is at one coordinate of an axis to all devices along it. */
static strata_status send_along(partitioner *p, const strata_tensor *value, form *f, int axis, strata_error *err) {
    /* The sender of a team of several workers is a device of the first of them. */
    const bool among_workers = p->n_devices < p->n_all && !p->opts->each_worker_updates;
    if (among_workers && f->placement.coordinates[axis]) STRATA_TRY(pass_on(p, value, f, axis, 0, err));
    strata_placement to = f->placement;
    to.at &= ~(1u << axis);
    to.coordinates[axis] = 0;
    for (int d = 0; d < p->n_devices && p->mesh->axes[axis].size > 1; d++) {
        if (!strata_partition_has(p, &to, d)) continue;
        strata_tensor *x = strata_partition_tensor(p, value, f, d);
        strata_communication_attrs attrs = {.team = strata_partition_team(p, 1u << axis, d),
                                            .dtype = value->dtype,
                                            .shape = strata_partition_shape(p, value, &to, d, NULL),
                                            .takes = !x};
        attrs.team.local = p->opts->each_worker_updates && value->op->flags & STRATA_OP_UPDATE;
        strata_tensor *sent = strata_broadcast(strata_partition_graph(p, d), x, attrs);
        if (!x) f->tensors[d] = sent;
    }
    f->placement = to;
    return strata_partition_note(p, value, "broadcast", 1u << axis, &f->placement, err);
}

/* Devices at other coordinates than `to` drop their copies. */
static void drop(partitioner *p, form *f, const strata_placement *to) {
    f->placement.at = to->at;
    memcpy(f->placement.coordinates, to->coordinates, sizeof to->coordinates);
    for (int d = 0; d < p->n_devices; d++)
        if (!strata_partition_has(p, to, d)) f->tensors[d] = NULL;
}

/* The split over the first n axes of `split`. */
static strata_status coarser(partitioner *p, const strata_dim_split *split, int n, strata_dim_split *out_split,
                             strata_error *err) {
    *out_split = *split;
    out_split->n_axes = n;
    const int pieces = strata_dim_split_n_pieces(p->mesh, out_split), each = strata_dim_split_n_pieces(p->mesh, split) / pieces;
    int64_t *lengths;
    STRATA_TRY(STRATA_PARTITION_TAKE(p, lengths, pieces, err));
    for (int i = 0; i < pieces; i++)
        for (int k = 0; k < each; k++) lengths[i] += split->lengths[i * each + k];
    out_split->lengths = lengths;
    if (!n) *out_split = (strata_dim_split){0};
    return STRATA_OK;
}

/* The lengths of the pieces into which the last axis of the split divides device d's piece of the coarser split. *out_own: the
 * piece of device d. */
static const int64_t *lengths_along(const partitioner *p, const strata_dim_split *split, int d, int *out_n, int *out_own) {
    const int n = p->mesh->axes[split->axes[split->n_axes - 1]].size;
    const int piece = strata_dim_split_piece(p->mesh, split, p->first + d);
    *out_n = n;
    *out_own = piece % n;
    return split->lengths + piece / n * n;
}

/* Gathers the pieces along the last axis of a dimension's split. */
static strata_status gather_axis(partitioner *p, const strata_tensor *value, form *f, int dim, strata_error *err) {
    const strata_dim_split split = f->placement.dims[dim];
    const unsigned axes = 1u << split.axes[split.n_axes - 1];
    for (int d = 0; d < p->n_devices; d++) {
        int n, own;
        if (!strata_partition_has(p, &f->placement, d)) continue;
        const int64_t *lengths = lengths_along(p, &split, d, &n, &own);
        f->tensors[d] = strata_all_gather_parts(strata_partition_tensor(p, value, f, d), strata_partition_team(p, axes, d), dim,
                                                lengths, n, own);
    }
    STRATA_TRY(coarser(p, &split, split.n_axes - 1, &f->placement.dims[dim], err));
    return strata_partition_note(p, value, "all_gather", axes, &f->placement, err);
}

/* x with dimension `dim` and the first one in each other's place. */
static strata_tensor *exchanged_with_first(strata_tensor *x, int dim) {
    int order[STRATA_MAX_RANK];
    for (int d = 0; d < x->shape.rank; d++) order[d] = d == dim ? 0 : d ? d : dim;
    return dim ? strata_transpose(x, order) : x;
}

/* Adds up a value that is partial over the last axis of `split`, and takes the device's piece of dimension `dim`. */
static strata_status sum_pieces(partitioner *p, const strata_tensor *value, form *f, int dim, const strata_dim_split *split,
                                bool gradients, strata_error *err) {
    const unsigned axes = 1u << split->axes[split->n_axes - 1];
    for (int d = 0; d < p->n_devices; d++) {
        int n, own;
        if (!strata_partition_has(p, &f->placement, d)) continue;
        strata_tensor *x = exchanged_with_first(strata_partition_tensor(p, value, f, d), dim);
        const int64_t *lengths = lengths_along(p, split, d, &n, &own);
        x = strata_reduce_scatter_parts(x->graph, x, x->dtype, x->shape, strata_partition_team(p, axes, d), STRATA_REDUCE_SUM,
                                        gradients, lengths, n, own);
        f->tensors[d] = exchanged_with_first(x, dim);
    }
    f->placement.dims[dim] = *split;
    f->placement.partial &= ~axes;
    return strata_partition_note(p, value, "reduce_scatter", axes, &f->placement, err);
}

/* Takes the device's piece of a dimension that is divided more coarsely so far. */
static void take_piece(partitioner *p, const strata_tensor *value, form *f, int dim, const strata_dim_split *split) {
    strata_placement to = f->placement;
    to.dims[dim] = *split;
    for (int d = 0; d < p->n_devices; d++) {
        int64_t had[STRATA_MAX_RANK], begin[STRATA_MAX_RANK];
        if (!f->tensors[d]) continue;
        strata_partition_shape(p, value, &f->placement, d, had);
        const strata_shape shape = strata_partition_shape(p, value, &to, d, begin);
        for (int i = 0; i < value->shape.rank; i++) begin[i] -= had[i];
        f->tensors[d] = strata_slice(f->tensors[d], begin, shape.dims);
    }
    f->placement = to;
}

/* How many leading axes two splits have in common, with the same pieces. */
static strata_status common_axes(partitioner *p, const strata_dim_split *a, const strata_dim_split *b, int *out_n,
                                 strata_error *err) {
    int n = 0;
    while (n < a->n_axes && n < b->n_axes && a->axes[n] == b->axes[n]) n++;
    for (; n > 0; n--) {
        strata_dim_split first, second;
        STRATA_TRY(coarser(p, a, n, &first, err));
        STRATA_TRY(coarser(p, b, n, &second, err));
        if (strata_dim_split_equal(p->mesh, &first, &second)) break;
    }
    *out_n = n;
    return STRATA_OK;
}

/* The dimension that a reduce_scatter makes as `to` wants it; -1: there is none. */
static strata_status find_pieces(partitioner *p, const strata_placement *from, const strata_placement *to, int rank,
                                 int *out_dim, strata_error *err) {
    *out_dim = -1;
    for (int dim = 0; dim < rank && *out_dim < 0; dim++) {
        const strata_dim_split *split = &to->dims[dim];
        int n;
        if (!split->n_axes || !(from->partial >> split->axes[split->n_axes - 1] & 1)) continue;
        STRATA_TRY(common_axes(p, &from->dims[dim], split, &n, err));
        if (n == split->n_axes - 1 && n == from->dims[dim].n_axes) *out_dim = dim;
    }
    return STRATA_OK;
}

strata_tensor *strata_partition_nothing(strata_tensor *x) {
    const strata_array never = strata_array_view(STRATA_DTYPE_BOOL, STRATA_SHAPE(), &(bool){false});
    return strata_where(strata_constant(x->graph, &never), x, strata_scalar(x->graph, x->dtype, 0));
}

/* Whether the value is a repeated constant 0. */
static bool is_zero(const strata_tensor *value) {
    while (value->op == &strata_op_broadcast_to) value = value->inputs[0];
    if (value->op != &strata_op_constant || strata_shape_elements(value->shape) != 1) return false;
    return strata_element_get(value->dtype, ((const strata_constant_attrs *)value->attrs)->data, 0) == 0;
}

/* Makes a value of which the devices along these axes have copies partial: the first device keeps it, the others get zeros.
 */
static void count_once(partitioner *p, const strata_tensor *value, form *f, unsigned axes) {
    for (int d = 0; d < p->n_devices && !is_zero(value); d++) {
        bool is_first = true;
        if (!f->tensors[d]) continue;
        for (int a = 0; a < p->mesh->n_axes; a++)
            is_first &= !(axes >> a & 1) || strata_mesh_coordinate(p->mesh, p->first + d, a) == 0;
        if (!is_first) f->tensors[d] = strata_partition_nothing(f->tensors[d]);
    }
    f->placement.partial |= axes;
}

/* Makes a value that is at one coordinate of an axis partial over it: the devices elsewhere have zeros. */
static void count_at(form *f, int axis) {
    f->placement.at &= ~(1u << axis);
    f->placement.coordinates[axis] = 0;
    f->placement.partial |= 1u << axis;
}

/* Makes a value partial over these axes, along which it may be divided. */
static strata_status make_partial(partitioner *p, const strata_tensor *value, form *f, unsigned axes, strata_error *err) {
    for (int dim = 0; dim < value->shape.rank; dim++)
        while (strata_partition_axes(&f->placement.dims[dim]) & axes) STRATA_TRY(gather_axis(p, value, f, dim, err));
    count_once(p, value, f, axes);
    return STRATA_OK;
}

unsigned strata_partition_axes_at(const partitioner *p, const strata_placement *a, const strata_placement *b) {
    unsigned axes = a->at & ~b->at;
    for (int x = 0; x < p->mesh->n_axes; x++)
        if (a->at & b->at & 1u << x && a->coordinates[x] != b->coordinates[x]) axes |= 1u << x;
    return axes;
}

strata_status strata_partition_move(partitioner *p, const strata_tensor *value, form *f, const strata_placement *to,
                                    strata_error *err) {
    const int rank = value->shape.rank;
    if (f->placement.own & ~to->own)
        return strata_fail(err, STRATA_INVALID,
                           "partition: %s reads %s, of which each device has its own value: %s; an exchange must come first",
                           p->reader ? p->reader->op->name : "an output", value->op->name,
                           strata_placement_text(p->mesh, &f->placement, value->shape).text);
    const unsigned leaves = strata_partition_axes_at(p, &f->placement, to);
    unsigned more = to->partial & ~f->placement.partial;
    for (int a = 0; a < p->mesh->n_axes; a++) {
        if (!(leaves >> a & 1)) continue;
        if (to->partial >> a & 1)
            count_at(f, a);
        else if (to->at >> a & 1)
            STRATA_TRY(pass_on(p, value, f, a, to->coordinates[a], err));
        else
            STRATA_TRY(send_along(p, value, f, a, err));
    }
    more &= ~f->placement.partial;
    if (more) STRATA_TRY(make_partial(p, value, f, more, err));
    unsigned owed = f->placement.partial & ~to->partial;
    int dim;
    if (owed & to->at) STRATA_TRY(add_up(p, value, f, owed & to->at, to, err));
    owed &= f->placement.partial;
    STRATA_TRY(find_pieces(p, &f->placement, to, rank, &dim, err));
    if (dim >= 0) {
        STRATA_TRY(sum_pieces(p, value, f, dim, &to->dims[dim], false, err));
        owed &= f->placement.partial;
    }
    if (owed) STRATA_TRY(add_up(p, value, f, owed, to, err));
    for (dim = 0; dim < rank; dim++) {
        int n;
        STRATA_TRY(common_axes(p, &f->placement.dims[dim], &to->dims[dim], &n, err));
        while (f->placement.dims[dim].n_axes > n) STRATA_TRY(gather_axis(p, value, f, dim, err));
    }
    for (dim = 0; dim < rank; dim++)
        if (!strata_dim_split_equal(p->mesh, &f->placement.dims[dim], &to->dims[dim]))
            take_piece(p, value, f, dim, &to->dims[dim]);
    if (strata_partition_axes_at(p, to, &f->placement)) drop(p, f, to);
    return STRATA_OK;
}

strata_status strata_partition_form(partitioner *p, const strata_tensor *value, const strata_placement *placement,
                                    form **out_form, strata_error *err) {
    form *first = p->forms[value->id];
    for (form *f = first; f; f = f->next)
        if (strata_placement_equal(p->mesh, value->shape.rank, &f->placement, placement)) {
            *out_form = f;
            return STRATA_OK;
        }
    STRATA_TRY(strata_partition_new_form(p, NULL, &first->placement, first->tensors, out_form, err));
    STRATA_TRY(strata_partition_move(p, value, *out_form, placement, err));
    (*out_form)->next = first->next;
    first->next = *out_form;
    return STRATA_OK;
}

strata_status strata_partition_follow(partitioner *p, const strata_tensor *node, strata_error *err) {
    const strata_move_attrs *attrs = node->attrs;
    const strata_tensor *x = node->inputs[0];
    const int axis = (int)attrs->axis;
    strata_placement to = p->forms[x->id]->placement;
    form *f;
    to.partial &= ~(1u << axis);
    to.at &= ~(1u << axis);
    to.coordinates[axis] = 0;
    if (attrs->to >= 0) to = strata_placement_at(to, axis, (int)attrs->to);
    p->reader = node;
    STRATA_TRY(strata_partition_form(p, x, &to, &f, err));
    return strata_partition_new_form(p, node, &to, f->tensors, &f, err);
}

strata_status strata_partition_complete(partitioner *p, const strata_tensor *node, strata_error *err) {
    static const strata_placement everywhere = {0};
    const form *x = p->forms[node->inputs[0]->id];
    const strata_all_reduce_attrs *given = node->attrs;
    /* One with a team is that of a layer, whose result all devices need that compute. */
    const strata_placement *to = p->opts->update && !given->common.team.id ? p->opts->update : &everywhere;
    const strata_placement *wanted = given->reduction == STRATA_REDUCE_SUM && !p->opts->whole_sums ? p->wanted[node->id] : NULL;
    strata_placement placement = x->placement;
    form *f;
    int dim = -1;
    placement.partial |= placement.own; /* the node adds up the devices' own values too */
    placement.own = 0;
    if (wanted && !to->at) STRATA_TRY(find_pieces(p, &placement, wanted, node->shape.rank, &dim, err));
    STRATA_TRY(strata_partition_new_form(p, node, &placement, x->tensors, &f, err));
    p->reader = node;
    if (dim >= 0) STRATA_TRY(sum_pieces(p, node->inputs[0], f, dim, &wanted->dims[dim], given->gradients, err));
    const unsigned axes = f->placement.partial;
    if (!axes) return STRATA_OK;
    const strata_placement sum = place_sum(&f->placement, axes, to);
    sum_over(p, node, f, axes, &sum, *given);
    f->placement = sum;
    for (int d = 0; d < p->n_devices; d++)
        if (f->tensors[d]) strata_tensor_set_name(f->tensors[d], node->name);
    return strata_partition_note(p, node->inputs[0], sum.at & axes ? "reduce_to" : "all_reduce", axes, &f->placement, err);
}
