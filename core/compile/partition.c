/* SPDX-License-Identifier: Apache-2.0
 *
 * The partitioner (partition.h). Each value of the whole graph has one or more *forms*: a placement, and the tensor of each
 * device. The first form of a node is the one in which it is computed; the others are what readers needed. */
#include "core/compile/partition.h"

#include <stdlib.h>
#include <string.h>

#include "core/compile/walk.h"
#include "core/op/communication.h"
#include "core/op/element.h"
#include "core/op/ops.h"
#include "core/op/update.h"
#include "strata/ops.h"

typedef struct form {
    strata_placement placement;
    /* [n_devices] NULL: the device is at another coordinate than the value, or has nothing to compute for it: its part is
     * empty, or zeros of a partial value, which it does not contribute to sums. */
    strata_tensor **tensors;
    struct form *next;
} form;

typedef struct partitioner {
    const strata_partition_options *opts;
    const strata_mesh *mesh;
    strata_partition *result;
    /* The devices whose graphs are made: n from `first` on. */
    int first, n_devices;
    /* All devices of the mesh. */
    int n_all;
    /* Memory of forms and lengths. */
    strata_graph *memory;
    /* [n_nodes of the whole graph] */
    form **forms;
    bool *live;
    int *uses;
    /* [n_nodes of the whole graph] How all readers of a node want it divided (a placement without partial and own); NULL: they
     * want nothing, or not the same. `asked`: whether a reader was asked already. */
    strata_placement **wanted;
    bool *asked;
    int exchanges_capacity;
    /* The node whose operands are moved. */
    const strata_tensor *reader;
} partitioner;

static strata_status no_memory(strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "partition: no host memory");
}

static int64_t bytes_of(const strata_tensor *tensor) {
    return strata_shape_elements(tensor->shape) * (int64_t)strata_dtype_bytes(tensor->dtype);
}

static form *new_form(partitioner *p, const strata_placement *placement) {
    form *f = strata_graph_alloc(p->memory, sizeof *f);
    if (!f) return NULL;
    f->placement = *placement;
    f->tensors = strata_graph_alloc(p->memory, (size_t)p->n_devices * sizeof *f->tensors);
    return f->tensors ? f : NULL;
}

/* The lengths of a split: of `n` pieces. */
static int64_t *new_lengths(partitioner *p, int n) {
    return strata_graph_alloc(p->memory, (size_t)n * sizeof(int64_t));
}

/* The shape of device d's part of a node that has this placement. */
static strata_shape part_of(const partitioner *p, const strata_tensor *node, const strata_placement *placement, int d,
                            int64_t *out_begin) {
    return strata_placement_part(p->mesh, placement, node->shape, p->first + d, out_begin);
}

static bool has(const partitioner *p, const strata_placement *placement, int d) {
    return strata_placement_has(p->mesh, placement, p->first + d);
}

static strata_graph *graph_of(const partitioner *p, int d) {
    return p->result->parts[d].graph;
}

/* The part of a device that has one. A part that was not computed is made of zeros. */
static strata_tensor *tensor_of(partitioner *p, const strata_tensor *value, form *f, int d) {
    if (!f->tensors[d] && has(p, &f->placement, d))
        f->tensors[d] =
            strata_broadcast_to(strata_scalar(graph_of(p, d), value->dtype, 0), part_of(p, value, &f->placement, d, NULL));
    return f->tensors[d];
}

static strata_status add_update(partitioner *p, int d, strata_tensor *update, strata_error *err) {
    strata_device_part *part = &p->result->parts[d];
    if (part->n_updates == part->most_updates) {
        const int most = part->most_updates ? 2 * part->most_updates : 16;
        strata_tensor **more = realloc(part->updates, (size_t)most * sizeof(*more));
        if (!more) return no_memory(err);
        part->updates = more;
        part->most_updates = most;
    }
    part->updates[part->n_updates++] = update;
    return STRATA_OK;
}

/* ---- exchanges ---- */

/* The devices that have the same coordinates as device d on all axes that are not in `axes`. */
static strata_channel channel_of(const partitioner *p, unsigned axes, int d) {
    strata_channel channel = {0};
    int n = 1;
    for (int a = 0; a < p->mesh->n_axes; a++) n *= axes >> a & 1 ? p->mesh->axes[a].size : 1;
    if (n == p->n_all) return channel;
    int64_t *members = strata_graph_alloc(p->result->parts[d].graph, (size_t)n * sizeof *members);
    if (!members) return channel;
    d += p->first;
    for (int other = 0; other < p->n_all; other++) {
        bool same = true;
        for (int a = 0; a < p->mesh->n_axes && same; a++)
            same = (axes >> a & 1) || strata_mesh_coordinate(p->mesh, other, a) == strata_mesh_coordinate(p->mesh, d, a);
        if (same) members[channel.n_members++] = other;
    }
    channel.members = members;
    channel.id = 1 + (int64_t)axes * p->n_all + members[0];
    return channel;
}

/* received: how the first device has what it receives. */
static strata_status note_exchange(partitioner *p, const strata_tensor *value, const char *op, unsigned axes,
                                   const strata_placement *received, strata_error *err) {
    strata_partition *result = p->result;
    const int64_t elements = strata_shape_elements(part_of(p, value, received, 0, NULL));
    const int64_t bytes = elements * (int64_t)strata_dtype_bytes(value->dtype);
    if (result->n_exchanges == p->exchanges_capacity) {
        const int capacity = p->exchanges_capacity ? 2 * p->exchanges_capacity : 16;
        strata_partition_exchange *more = realloc(result->exchanges, (size_t)capacity * sizeof *more);
        if (!more) return no_memory(err);
        result->exchanges = more;
        p->exchanges_capacity = capacity;
    }
    result->exchanges[result->n_exchanges++] = (strata_partition_exchange){value, p->reader, op, axes, bytes};
    return STRATA_OK;
}

/* Sees to it that someone contributes to each sum over these axes: the first device, if all have nothing. */
static void contribute(partitioner *p, const strata_tensor *value, form *f, unsigned axes) {
    for (int d = 0; d < p->n_devices; d++) {
        const strata_channel channel = channel_of(p, axes, d);
        bool any = p->opts->idle && p->opts->idle[d];
        for (int other = 0; other < p->n_devices && !any; other++)
            any = f->tensors[other] && channel_of(p, axes, other).id == channel.id;
        if (!any) tensor_of(p, value, f, d);
    }
}

/* Adds up a value that is partial, or each device's own, over these axes, for the devices that have a value placed at `to`. */
static void sum_along(partitioner *p, const strata_tensor *value, form *f, unsigned axes, const strata_placement *to,
                      strata_all_reduce_attrs attrs) {
    contribute(p, value, f, axes);
    for (int d = 0; d < p->n_devices; d++) {
        if (!has(p, &f->placement, d)) continue;
        attrs.common.channel = channel_of(p, axes, d);
        attrs.common.dtype = value->dtype;
        attrs.common.shape = part_of(p, value, &f->placement, d, NULL);
        attrs.common.takes = has(p, to, d);
        strata_tensor *x = f->tensors[d];
        strata_tensor *sum = (to->at & axes ? strata_reduce_to : strata_all_reduce_among)(graph_of(p, d), x, attrs);
        f->tensors[d] = attrs.common.takes ? sum : NULL;
    }
}

/* The placement of a sum over these axes: where `to` has the value at one coordinate of an axis, the sum is there. */
static strata_placement placement_of_sum(const strata_placement *from, unsigned axes, const strata_placement *to) {
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
    const strata_placement sum = placement_of_sum(&f->placement, axes, to);
    sum_along(p, value, f, axes, &sum, (strata_all_reduce_attrs){.reduction = STRATA_REDUCE_SUM});
    f->placement = sum;
    return note_exchange(p, value, to->at & axes ? "reduce_to" : "all_reduce", axes, &f->placement, err);
}

/* Sends a value that is at one coordinate of an axis to all devices along it. */
static strata_status send_along(partitioner *p, const strata_tensor *value, form *f, int axis, strata_error *err) {
    strata_placement to = f->placement;
    to.at &= ~(1u << axis);
    to.coordinates[axis] = 0;
    for (int d = 0; d < p->n_devices && p->mesh->axes[axis].size > 1; d++) {
        if (!has(p, &to, d)) continue;
        strata_tensor *x = tensor_of(p, value, f, d);
        strata_communication_attrs attrs = {.channel = channel_of(p, 1u << axis, d),
                                            .dtype = value->dtype,
                                            .shape = part_of(p, value, &to, d, NULL),
                                            .takes = !x};
        attrs.channel.local = p->opts->each_worker_updates && value->op->flags & STRATA_OP_UPDATE;
        strata_tensor *sent = strata_broadcast(graph_of(p, d), x, attrs);
        if (!x) f->tensors[d] = sent;
    }
    f->placement = to;
    return note_exchange(p, value, "broadcast", 1u << axis, &f->placement, err);
}

/* Devices at other coordinates than `to` drop their copies. */
static void drop(partitioner *p, form *f, const strata_placement *to) {
    f->placement.at = to->at;
    memcpy(f->placement.coordinates, to->coordinates, sizeof to->coordinates);
    for (int d = 0; d < p->n_devices; d++)
        if (!has(p, to, d)) f->tensors[d] = NULL;
}

/* The split over the first n axes of `split`. */
static strata_status coarser(partitioner *p, const strata_dim_split *split, int n, strata_dim_split *out_split,
                             strata_error *err) {
    *out_split = *split;
    out_split->n_axes = n;
    const int pieces = strata_dim_split_n_pieces(p->mesh, out_split), each = strata_dim_split_n_pieces(p->mesh, split) / pieces;
    int64_t *lengths = new_lengths(p, pieces);
    if (!lengths) return no_memory(err);
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
        if (!has(p, &f->placement, d)) continue;
        const int64_t *lengths = lengths_along(p, &split, d, &n, &own);
        f->tensors[d] = strata_all_gather_parts(tensor_of(p, value, f, d), channel_of(p, axes, d), dim, lengths, n, own);
    }
    STRATA_TRY(coarser(p, &split, split.n_axes - 1, &f->placement.dims[dim], err));
    return note_exchange(p, value, "all_gather", axes, &f->placement, err);
}

/* Adds up a value that is partial over the last axis of `split` and takes the device's piece of dimension 0. */
static strata_status add_up_pieces(partitioner *p, const strata_tensor *value, form *f, const strata_dim_split *split,
                                   bool gradients, strata_error *err) {
    const unsigned axes = 1u << split->axes[split->n_axes - 1];
    for (int d = 0; d < p->n_devices; d++) {
        int n, own;
        if (!has(p, &f->placement, d)) continue;
        strata_tensor *x = tensor_of(p, value, f, d);
        const int64_t *lengths = lengths_along(p, split, d, &n, &own);
        f->tensors[d] = strata_reduce_scatter_parts(x->graph, x, x->dtype, x->shape, channel_of(p, axes, d), STRATA_REDUCE_SUM,
                                                    gradients, lengths, n, own);
    }
    f->placement.dims[0] = *split;
    f->placement.partial &= ~axes;
    return note_exchange(p, value, "reduce_scatter", axes, &f->placement, err);
}

/* Takes the device's piece of a dimension that is divided more coarsely so far. */
static void take_piece(partitioner *p, const strata_tensor *value, form *f, int dim, const strata_dim_split *split) {
    strata_placement to = f->placement;
    to.dims[dim] = *split;
    for (int d = 0; d < p->n_devices; d++) {
        int64_t had[STRATA_MAX_RANK], begin[STRATA_MAX_RANK];
        if (!f->tensors[d]) continue;
        part_of(p, value, &f->placement, d, had);
        const strata_shape shape = part_of(p, value, &to, d, begin);
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

/* Whether a reduce_scatter makes dimension 0 as `to` wants it. */
static strata_status wants_pieces(partitioner *p, const strata_placement *from, const strata_placement *to, int rank,
                                  bool *out_yes, strata_error *err) {
    const strata_dim_split *split = &to->dims[0];
    int n;
    *out_yes = false;
    if (!rank || !split->n_axes || !(from->partial >> split->axes[split->n_axes - 1] & 1)) return STRATA_OK;
    STRATA_TRY(common_axes(p, &from->dims[0], split, &n, err));
    *out_yes = n == split->n_axes - 1 && n == from->dims[0].n_axes;
    return STRATA_OK;
}

/* Zeros of the shape of x. They still depend on x, so that the device takes part in the exchanges that it needs. */
static strata_tensor *nothing_of(strata_tensor *x) {
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
        if (!is_first) f->tensors[d] = nothing_of(f->tensors[d]);
    }
    f->placement.partial |= axes;
}

/* The axes that divide a dimension. */
static unsigned axes_of(const strata_dim_split *split) {
    unsigned axes = 0;
    for (int a = 0; a < split->n_axes; a++) axes |= 1u << split->axes[a];
    return axes;
}

/* Makes a value partial over these axes, along which it may be divided. */
static strata_status make_partial(partitioner *p, const strata_tensor *value, form *f, unsigned axes, strata_error *err) {
    for (int dim = 0; dim < value->shape.rank; dim++)
        while (axes_of(&f->placement.dims[dim]) & axes) STRATA_TRY(gather_axis(p, value, f, dim, err));
    count_once(p, value, f, axes);
    return STRATA_OK;
}

/* The axes along which a value that is placed at one coordinate by `a` is not there by `b`. */
static unsigned axes_at(const partitioner *p, const strata_placement *a, const strata_placement *b) {
    unsigned axes = a->at & ~b->at;
    for (int x = 0; x < p->mesh->n_axes; x++)
        if (a->at & b->at & 1u << x && a->coordinates[x] != b->coordinates[x]) axes |= 1u << x;
    return axes;
}

/* Changes the placement of a form to `to`. */
static strata_status move(partitioner *p, const strata_tensor *value, form *f, const strata_placement *to, strata_error *err) {
    const int rank = value->shape.rank;
    if (f->placement.own & ~to->own)
        return strata_fail(err, STRATA_INVALID,
                           "partition: %s reads %s, of which each device has its own value: %s; an exchange must come first",
                           p->reader ? p->reader->op->name : "an output", value->op->name,
                           strata_placement_text(p->mesh, &f->placement, value->shape).text);
    const unsigned leaves = axes_at(p, &f->placement, to), more = to->partial & ~f->placement.partial;
    for (int a = 0; a < p->mesh->n_axes; a++)
        if (leaves >> a & 1) STRATA_TRY(send_along(p, value, f, a, err));
    if (more) STRATA_TRY(make_partial(p, value, f, more, err));
    unsigned owed = f->placement.partial & ~to->partial;
    bool pieces;
    if (owed & to->at) STRATA_TRY(add_up(p, value, f, owed & to->at, to, err));
    owed &= f->placement.partial;
    STRATA_TRY(wants_pieces(p, &f->placement, to, rank, &pieces, err));
    if (pieces) {
        STRATA_TRY(add_up_pieces(p, value, f, &to->dims[0], false, err));
        owed &= f->placement.partial;
    }
    if (owed) STRATA_TRY(add_up(p, value, f, owed, to, err));
    for (int dim = 0; dim < rank; dim++) {
        int n;
        STRATA_TRY(common_axes(p, &f->placement.dims[dim], &to->dims[dim], &n, err));
        while (f->placement.dims[dim].n_axes > n) STRATA_TRY(gather_axis(p, value, f, dim, err));
    }
    for (int dim = 0; dim < rank; dim++)
        if (!strata_dim_split_equal(p->mesh, &f->placement.dims[dim], &to->dims[dim]))
            take_piece(p, value, f, dim, &to->dims[dim]);
    if (axes_at(p, to, &f->placement)) drop(p, f, to);
    return STRATA_OK;
}

/* The form of a value with this placement, which is made if there is none yet. */
static strata_status form_of(partitioner *p, const strata_tensor *value, const strata_placement *placement, form **out_form,
                             strata_error *err) {
    form *first = p->forms[value->id];
    for (form *f = first; f; f = f->next)
        if (strata_placement_equal(p->mesh, value->shape.rank, &f->placement, placement)) {
            *out_form = f;
            return STRATA_OK;
        }
    form *f = new_form(p, &first->placement);
    if (!f) return no_memory(err);
    memcpy(f->tensors, first->tensors, (size_t)p->n_devices * sizeof *f->tensors);
    STRATA_TRY(move(p, value, f, placement, err));
    f->next = first->next;
    first->next = f;
    *out_form = f;
    return STRATA_OK;
}

/* ---- how a node is divided ---- */

typedef struct choice {
    /* [STRATA_MOST_FACTORS] Over which axes a factor is divided, in units of the factor. */
    strata_dim_split factors[STRATA_MOST_FACTORS];
    unsigned used;
    int n_axes;
    double cost;
} choice;

enum { MOST_CANDIDATES = 256 };

typedef struct division {
    const strata_tensor *node;
    strata_factors factors;
    /* [n_inputs] */
    form **operands;
    /* The axes over which the operands stay partial, and so does the result; those over which an operand is each device's
     * own. */
    unsigned deferred, own;
    /* The coordinates at which the node is computed: only `at` and `coordinates` are used. */
    strata_placement where;
    /* [n_inputs] Whether the operand stays partial over `deferred`. */
    bool *stays_partial;
    /* The update changes parts of a variable of which every device has a copy. */
    bool in_parts;
    /* Ways in which an operand divides a factor. */
    struct {
        int factor;
        strata_dim_split split;
    } candidates[MOST_CANDIDATES];
    int n_candidates;
    choice now, best;
} division;

/* The placement of operand i (n_inputs: of the result) under a choice. */
static strata_status placement_under(partitioner *p, const division *v, const choice *c, int i, strata_placement *out_placement,
                                     strata_error *err) {
    const bool is_result = i == v->node->n_inputs;
    const strata_factor_dims *dims = is_result ? &v->factors.result : &v->factors.inputs[i];
    const int rank = is_result ? v->node->shape.rank : v->node->inputs[i]->shape.rank;
    *out_placement = (strata_placement){.partial = is_result || v->stays_partial[i] ? v->deferred : 0,
                                        .own = is_result ? v->own : v->operands[i]->placement.own,
                                        .at = v->where.at};
    memcpy(out_placement->coordinates, v->where.coordinates, sizeof v->where.coordinates);
    out_placement->partial &= ~out_placement->own;
    unsigned seen = 0;
    for (int d = 0; d < rank; d++) {
        if (dims->factor[d] < 0) continue;
        const strata_dim_split *split = &c->factors[dims->factor[d]];
        if (!split->n_axes) continue;
        out_placement->dims[d] = *split;
        seen |= axes_of(split);
        if (dims->unit[d] == 1) continue;
        const int n = strata_dim_split_n_pieces(p->mesh, split);
        int64_t *lengths = new_lengths(p, n);
        if (!lengths) return no_memory(err);
        for (int k = 0; k < n; k++) lengths[k] = split->lengths[k] * dims->unit[d];
        out_placement->dims[d].lengths = lengths;
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
    if (from->partial & ~to->partial) cost += 2 * (double)bytes_of(value);
    if (axes_at(p, from, to)) cost += (double)bytes_of(value);
    for (int d = 0; d < value->shape.rank; d++)
        if (from->dims[d].n_axes && !strata_dim_split_equal(p->mesh, &from->dims[d], &to->dims[d])) {
            cost += (double)bytes_of(value);
            break;
        }
    return cost;
}

/* Compares the finished choice v->now with the best one so far. More axes that divide the work are better, then fewer bytes. */
static strata_status judge(partitioner *p, division *v, strata_error *err) {
    choice *c = &v->now;
    c->cost = 0;
    for (int i = 0; i < v->node->n_inputs; i++) {
        strata_placement to;
        STRATA_TRY(placement_under(p, v, c, i, &to, err));
        c->cost += cost_of_move(p, v->node->inputs[i], &v->operands[i]->placement, &to);
    }
    strata_placement result;
    STRATA_TRY(placement_under(p, v, c, v->node->n_inputs, &result, err));
    if (result.partial & ~v->deferred) c->cost += 2 * (double)bytes_of(v->node);
    if (v->best.cost < 0 || c->n_axes > v->best.n_axes || (c->n_axes == v->best.n_axes && c->cost < v->best.cost)) v->best = *c;
    return STRATA_OK;
}

/* Tries all candidates from number k on, each taken or not. */
static strata_status choose(partitioner *p, division *v, int k, strata_error *err) {
    if (k == v->n_candidates) return judge(p, v, err);
    const int factor = v->candidates[k].factor;
    const strata_dim_split *split = &v->candidates[k].split;
    const unsigned axes = axes_of(split);
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

/* Adds the ways in which a placement of operand i (n_inputs: of the result) divides factors. */
static strata_status add_candidates_of(partitioner *p, division *v, int i, const strata_placement *placement,
                                       strata_error *err) {
    const bool is_result = i == v->node->n_inputs;
    const strata_factor_dims *dims = is_result ? &v->factors.result : &v->factors.inputs[i];
    const int rank = is_result ? v->node->shape.rank : v->node->inputs[i]->shape.rank;
    for (int d = 0; d < rank; d++) {
        const int factor = dims->factor[d], unit = (int)dims->unit[d];
        strata_dim_split split = placement->dims[d];
        if (factor < 0 || !split.n_axes) continue;
        const int n = strata_dim_split_n_pieces(p->mesh, &split);
        int64_t *lengths = new_lengths(p, n);
        bool whole = lengths != NULL, known = false;
        if (!lengths) return no_memory(err);
        for (int k = 0; k < n && whole; k++) {
            whole = split.lengths[k] % unit == 0 && (split.lengths[k] > 0 || !(v->factors.filled >> factor & 1));
            lengths[k] = split.lengths[k] / unit;
        }
        split.lengths = lengths;
        for (int k = 0; k < v->n_candidates && whole; k++)
            known |= v->candidates[k].factor == factor && strata_dim_split_equal(p->mesh, &v->candidates[k].split, &split);
        if (!whole || known || v->n_candidates == MOST_CANDIDATES) continue;
        v->candidates[v->n_candidates].factor = factor;
        v->candidates[v->n_candidates++].split = split;
    }
    return STRATA_OK;
}

static strata_status add_candidates(partitioner *p, division *v, int i, strata_error *err) {
    return add_candidates_of(p, v, i, &v->operands[i]->placement, err);
}

/* The axes that divide a dimension of operand i. */
static unsigned split_axes(const division *v, int i) {
    unsigned axes = 0;
    for (int d = 0; d < v->node->inputs[i]->shape.rank; d++) axes |= axes_of(&v->operands[i]->placement.dims[d]);
    return axes;
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

/* The result of an op that is linear in several operands together: partial ones stay so; complete ones are counted once unless
 * they are divided along the same axis. */
static void defer_jointly(const partitioner *p, division *v) {
    const strata_tensor *node = v->node;
    unsigned any = 0;
    for (int i = 0; i < node->n_inputs; i++) any |= is_joint(v, i) ? v->operands[i]->placement.partial : 0;
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
        unsigned axes = v->operands[i]->placement.partial;
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
        const unsigned more = placement->at & ~taken & ~v->where.at;
        for (int a = 0; a < p->mesh->n_axes; a++)
            if (more >> a & 1) v->where = strata_placement_at(v->where, a, placement->coordinates[a]);
    }
    v->deferred &= ~v->where.at;
    for (int i = 0; i < v->node->n_inputs && !v->deferred; i++) v->stays_partial[i] = false;
}

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
            (operand->op->flags & STRATA_OP_UPDATE && axes_at(p, placement, &v->where)))
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

/* Whether the value is a variable that was read, of which every device has a copy. */
static bool is_copy(const partitioner *p, const strata_tensor *value) {
    static const strata_placement whole = {0};
    return value->op == &strata_op_read &&
           strata_placement_equal(p->mesh, value->shape.rank, &p->forms[value->id]->placement, &whole);
}

/* For an update: the variables that it writes keep their placements, and all other operands follow them. The first variable
 * (which may take the place of others) may be one of which the devices have copies: each then updates the part that the others'
 * placements say. */
static strata_status follow_variables(partitioner *p, division *v, strata_error *err) {
    v->n_candidates = 0;
    STRATA_TRY(defer_update(v, err));
    STRATA_TRY(find_where_updated(p, v, err));
    for (int i = 0; i < v->node->n_inputs; i++)
        if (strata_is_written(v->node, i)) STRATA_TRY(add_candidates(p, v, i, err));
    STRATA_TRY(choose(p, v, 0, err));
    for (int i = 0; i < v->node->n_inputs; i++) {
        strata_placement wanted;
        const strata_placement *has = &v->operands[i]->placement;
        if (!strata_is_written(v->node, i)) continue;
        STRATA_TRY(placement_under(p, v, &v->best, i, &wanted, err));
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

/* Whether device d adds nothing to a partial variable by operand i, since its examples do not count. */
static bool is_left_out(const partitioner *p, const division *v, int i, int d) {
    const bool adds = (v->node->op->flags & STRATA_OP_UPDATE) && v->stays_partial[i] && !strata_is_written(v->node, i);
    return adds && p->opts->counts && !p->opts->counts[d];
}

static strata_status divide(partitioner *p, division *v, strata_error *err) {
    v->best.cost = -1;
    for (int i = 0; i < v->node->n_inputs; i++) v->own |= v->operands[i]->placement.own;
    strata_factors_of(v->node, p->opts->own_statistics, &v->factors);
    if (v->node->op->flags & STRATA_OP_UPDATE) return follow_variables(p, v, err);
    defer(p, v);
    find_where(p, v);
    for (int i = 0; i < v->node->n_inputs; i++) STRATA_TRY(add_candidates(p, v, i, err));
    if (p->wanted[v->node->id]) STRATA_TRY(add_candidates_of(p, v, v->node->n_inputs, p->wanted[v->node->id], err));
    return choose(p, v, 0, err);
}

/* ---- the parts of a node ---- */

static strata_status add_form(partitioner *p, const strata_tensor *node, const strata_placement *placement, form **out_form,
                              strata_error *err) {
    *out_form = p->forms[node->id] = new_form(p, placement);
    return *out_form ? STRATA_OK : no_memory(err);
}

static strata_status add_leaf(partitioner *p, const strata_tensor *node, strata_error *err) {
    static const strata_placement whole = {0};
    const bool is_constant = node->op == &strata_op_constant;
    const strata_placement *placement = is_constant ? &whole : p->opts->place(p->opts->user, node);
    form *f;
    STRATA_TRY(strata_placement_fits(p->mesh, placement, node->shape, err));
    STRATA_TRY(add_form(p, node, placement, &f, err));
    for (int d = 0; d < p->n_devices; d++) {
        strata_graph *graph = graph_of(p, d);
        const strata_shape shape = part_of(p, node, placement, d, NULL);
        const bool is_idle = (placement->partial | placement->own) && p->opts->idle && p->opts->idle[d];
        const bool is_given = strata_shape_elements(shape) > 0;
        if (!has(p, placement, d) || is_idle || (node->op == &strata_op_input && !is_given)) continue;
        if (node->op == &strata_op_read) {
            strata_variable *whole_variable = ((const strata_read_attrs *)node->attrs)->variable;
            f->tensors[d] = strata_variable_read(graph, p->opts->variable(p->opts->user, whole_variable, p->first + d));
        } else if (is_constant) {
            f->tensors[d] = strata_copy_node(graph, node, NULL);
        } else {
            f->tensors[d] = strata_input(graph, ((const strata_input_attrs *)node->attrs)->name, node->dtype, shape);
        }
        if (!f->tensors[d]) return no_memory(err);
    }
    return STRATA_OK;
}

static strata_status check_graph(const strata_tensor *node, strata_graph *graph, strata_error *err) {
    strata_error own = {0};
    const strata_status status = strata_graph_check(graph, &own);
    return status ? strata_fail(err, status, "partition of %s: %s", node->op->name, own.message) : STRATA_OK;
}

/* The parts of a variable of which the devices have copies, from the variables that hold them. */
static strata_status read_parts(partitioner *p, const strata_tensor *read, const strata_placement *placement, form **out_form,
                                strata_error *err) {
    strata_variable *whole = ((const strata_read_attrs *)read->attrs)->variable;
    form *f = *out_form = new_form(p, placement);
    if (!f) return no_memory(err);
    for (int d = 0; d < p->n_devices; d++)
        f->tensors[d] = strata_variable_read(graph_of(p, d), p->opts->part_variable(p->opts->user, whole, p->first + d));
    return STRATA_OK;
}

/* Gathers the updated parts of a variable, and assigns them to the devices' copies. Readers of the update get the copies. */
static strata_status copy_back(partitioner *p, const strata_tensor *node, form *parts, strata_error *err) {
    static const strata_placement whole = {0};
    form *copies = new_form(p, &parts->placement);
    if (!copies) return no_memory(err);
    memcpy(copies->tensors, parts->tensors, (size_t)p->n_devices * sizeof *copies->tensors);
    STRATA_TRY(move(p, node, copies, &whole, err));
    for (int d = 0; d < p->n_devices; d++)
        copies->tensors[d] = strata_assign(p->forms[node->inputs[0]->id]->tensors[d], copies->tensors[d]);
    copies->next = parts;
    p->forms[node->id] = copies;
    return STRATA_OK;
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
    STRATA_TRY(form_of(p, update, &own->placement, &sent, err));
    for (int d = 0; d < p->n_devices; d++)
        if (!f->tensors[d] && sent->tensors[d])
            STRATA_TRY(add_update(p, d, strata_assign(own->tensors[d], sent->tensors[d]), err));
    return STRATA_OK;
}

/* Whether device d is the first of those that exchange values along these axes and have one of this form. */
static bool is_first_of(const partitioner *p, const form *f, unsigned axes, int d) {
    const int64_t id = channel_of(p, axes, d).id;
    for (int other = -p->first; other < d; other++)
        if (channel_of(p, axes, other).id == id && (other < 0 || f->tensors[other])) return false;
    return f->tensors[d] != NULL;
}

/* Several devices made the update, with values that may differ: all take that of the first one. */
static strata_status take_first(partitioner *p, const strata_tensor *update, const strata_tensor *read, strata_error *err) {
    form *f = p->forms[update->id], *own = p->forms[read->id];
    const unsigned axes = p->opts->update->own;
    for (int d = 0; d < p->n_devices; d++) {
        if (!has(p, &own->placement, d)) continue;
        const strata_communication_attrs attrs = {.channel = channel_of(p, axes, d),
                                                  .dtype = update->dtype,
                                                  .shape = part_of(p, update, &own->placement, d, NULL),
                                                  .takes = true};
        strata_tensor *value = is_first_of(p, f, axes, d) ? f->tensors[d] : NULL;
        strata_tensor *sent = strata_broadcast(graph_of(p, d), value, attrs);
        strata_tensor *assigned = strata_assign(f->tensors[d] ? f->tensors[d] : own->tensors[d], sent);
        if (f->tensors[d])
            f->tensors[d] = assigned;
        else
            STRATA_TRY(add_update(p, d, assigned, err));
    }
    f->placement.own &= ~axes;
    return note_exchange(p, update, "broadcast", axes, &own->placement, err);
}

/* Makes all copies of an updated variable equal. */
static strata_status spread_update(partitioner *p, const strata_tensor *update, strata_error *err) {
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

static strata_status build_parts(partitioner *p, division *v, strata_error *err) {
    const strata_tensor *node = v->node;
    const int n = node->n_inputs;
    strata_placement placement;
    form *f;
    p->reader = node;
    for (int i = 0; i < n; i++) {
        STRATA_TRY(placement_under(p, v, &v->best, i, &placement, err));
        if (!i && v->in_parts)
            STRATA_TRY(read_parts(p, node->inputs[i], &placement, &v->operands[i], err));
        else if (v->in_parts && node->inputs[i] == node->inputs[0])
            v->operands[i] = v->operands[0];
        else
            STRATA_TRY(form_of(p, node->inputs[i], &placement, &v->operands[i], err));
    }
    STRATA_TRY(placement_under(p, v, &v->best, n, &placement, err));
    STRATA_TRY(add_form(p, node, &placement, &f, err));
    strata_tensor **inputs = strata_graph_alloc(p->memory, (size_t)(n + 1) * sizeof(*inputs));
    if (!inputs) return no_memory(err);
    for (int d = 0; d < p->n_devices; d++) {
        strata_node_part part = {.node = node, .graph = graph_of(p, d), .inputs = inputs};
        part.shape = part_of(p, node, &placement, d, part.begin);
        if (!has(p, &placement, d) || has_nothing(p, v, &placement, part.shape, d)) continue;
        for (int i = 0; i < n; i++) {
            inputs[i] = tensor_of(p, node->inputs[i], v->operands[i], d);
            if (is_left_out(p, v, i, d)) inputs[i] = nothing_of(inputs[i]);
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
    return node->op->flags & STRATA_OP_UPDATE ? spread_update(p, node, err) : STRATA_OK;
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
    if (wanted && !to->at) STRATA_TRY(wants_pieces(p, &placement, wanted, node->shape.rank, &pieces, err));
    STRATA_TRY(add_form(p, node, &placement, &f, err));
    memcpy(f->tensors, x->tensors, (size_t)p->n_devices * sizeof(*f->tensors));
    p->reader = node;
    if (pieces) STRATA_TRY(add_up_pieces(p, node->inputs[0], f, &wanted->dims[0], given->gradients, err));
    const unsigned axes = f->placement.partial;
    if (!axes) return STRATA_OK;
    const strata_placement sum = placement_of_sum(&f->placement, axes, to);
    sum_along(p, node, f, axes, &sum, *given);
    f->placement = sum;
    for (int d = 0; d < p->n_devices; d++)
        if (f->tensors[d]) strata_tensor_set_name(f->tensors[d], node->name);
    return note_exchange(p, node->inputs[0], sum.at & axes ? "reduce_to" : "all_reduce", axes, &f->placement, err);
}

/* ---- values that follow each other ---- */

/* The split of the n elements from `begin` on of a dimension that is divided by `split`: each device keeps what it has of
 * them. */
static strata_status split_of_range(partitioner *p, const strata_dim_split *split, int64_t begin, int64_t n,
                                    strata_dim_split *out_split, strata_error *err) {
    const int pieces = strata_dim_split_n_pieces(p->mesh, split);
    int64_t *lengths = new_lengths(p, pieces), at = 0;
    if (!lengths) return no_memory(err);
    for (int k = 0; k < pieces; at += split->lengths[k++]) {
        const int64_t first = at > begin ? at : begin;
        const int64_t last = at + split->lengths[k] < begin + n ? at + split->lengths[k] : begin + n;
        lengths[k] = last > first ? last - first : 0;
    }
    *out_split = *split;
    out_split->lengths = lengths;
    return STRATA_OK;
}

/* The axis along which the operands of a concat follow each other; -1: another op. */
static int concat_axis(const strata_tensor *node) {
    int64_t axis = -1;
    if (node->op == &strata_op_concat) memcpy(&axis, (const char *)node->attrs + node->op->attrs[0].offset, sizeof axis);
    return (int)axis;
}

/* If each operand of a concat is divided along its axis as the readers want the result, each device has its part of the result
 * too. *out_done false: it is built as other nodes are. */
static strata_status add_concat(partitioner *p, const strata_tensor *node, bool *out_done, strata_error *err) {
    const int axis = concat_axis(node);
    strata_placement placement = {0};
    form *f;
    *out_done = false;
    if (axis < 0 || !p->wanted[node->id] || !p->wanted[node->id]->dims[axis].n_axes) return STRATA_OK;
    placement.dims[axis] = p->wanted[node->id]->dims[axis];
    int64_t begin = 0;
    for (int i = 0; i < node->n_inputs; begin += node->inputs[i++]->shape.dims[axis]) {
        strata_placement own = {0};
        const strata_tensor *x = node->inputs[i];
        STRATA_TRY(split_of_range(p, &placement.dims[axis], begin, x->shape.dims[axis], &own.dims[axis], err));
        if (!strata_placement_equal(p->mesh, x->shape.rank, &p->forms[x->id]->placement, &own)) return STRATA_OK;
    }
    strata_tensor **inputs = strata_graph_alloc(p->memory, (size_t)node->n_inputs * sizeof(*inputs));
    if (!inputs) return no_memory(err);
    STRATA_TRY(add_form(p, node, &placement, &f, err));
    for (int d = 0; d < p->n_devices; d++) {
        const strata_node_part part = {.node = node, .graph = graph_of(p, d), .inputs = inputs};
        if (!strata_shape_elements(part_of(p, node, &placement, d, NULL))) continue;
        for (int i = 0; i < node->n_inputs; i++) inputs[i] = tensor_of(p, node->inputs[i], p->forms[node->inputs[i]->id], d);
        f->tensors[d] = strata_tensor_set_name(strata_node_part_copy(&part), node->name);
        STRATA_TRY(check_graph(node, part.graph, err));
    }
    *out_done = true;
    return STRATA_OK;
}

/* ---- what readers want ---- */

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
    int64_t *lengths = new_lengths(p, n);
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
    if (!wanted) return no_memory(err);
    for (int d = 0; d < shape.rank; d++)
        for (int k = 0; k < node->shape.rank; k++) {
            if (factors->inputs[i].factor[d] < 0 || factors->inputs[i].factor[d] != factors->result.factor[k]) continue;
            const bool fits =
                in_units(p, &result->dims[k], factors->result.unit[k], factors->inputs[i].unit[d], &wanted->dims[d]);
            any |= fits && result->dims[k].n_axes;
        }
    const int axis = concat_axis(node);
    if (axis >= 0 && result->dims[axis].n_axes) {
        int64_t begin = 0;
        for (int k = 0; k < i; k++) begin += node->inputs[k]->shape.dims[axis];
        STRATA_TRY(split_of_range(p, &result->dims[axis], begin, shape.dims[axis], &wanted->dims[axis], err));
        any = true;
    }
    if (any) *out_wanted = wanted;
    return STRATA_OK;
}

/* How an update is divided: as the first of its variables that is. NULL: none is. */
static const strata_placement *placement_of_update(const partitioner *p, const strata_tensor *node) {
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

/* Asks the operands of a node, whose own readers were asked. */
static strata_status ask_operands(partitioner *p, const strata_tensor *node, strata_error *err) {
    const bool updates = node->op->flags & STRATA_OP_UPDATE, completes = node->op->flags & STRATA_OP_COMMUNICATION;
    const strata_placement *result = completes ? NULL : updates ? placement_of_update(p, node) : p->wanted[node->id];
    /* What is added up to something smaller may be divided or not: its sums are exchanged more cheaply. */
    const bool may_differ = !p->opts->whole_sums && !result && !updates && !completes;
    strata_factors *factors = result ? strata_graph_alloc(p->memory, sizeof *factors) : NULL;
    if (may_differ && !p->asked[node->id]) return STRATA_OK;
    if (result) {
        if (factors) factors->inputs = strata_graph_alloc(p->memory, (size_t)(node->n_inputs + 1) * sizeof *factors->inputs);
        if (!factors || !factors->inputs) return no_memory(err);
        strata_factors_of(node, p->opts->own_statistics, factors);
    }
    for (int i = 0; i < node->n_inputs; i++) {
        strata_placement *wanted = NULL;
        if (may_differ && bytes_of(node) < bytes_of(node->inputs[i])) continue;
        if (result) STRATA_TRY(wanted_of_operand(p, node, factors, i, result, &wanted, err));
        ask(p, node->inputs[i], wanted);
    }
    return STRATA_OK;
}

/* Goes back from outputs and updates, and finds out how values are wanted. */
static strata_status ask_readers(partitioner *p, const strata_graph *graph, strata_error *err) {
    const strata_partition_options *opts = p->opts;
    for (int i = 0; i < opts->n_outputs; i++) ask(p, opts->outputs[i], NULL);
    for (int i = graph->n_nodes - 1; i >= 0; i--)
        if (p->live[i]) STRATA_TRY(ask_operands(p, graph->nodes[i], err));
    return STRATA_OK;
}

/* ---- nodes ---- */

static strata_status add_node(partitioner *p, const strata_tensor *node, strata_error *err) {
    if (node->op->flags & STRATA_OP_LEAF) return add_leaf(p, node, err);
    if (node->op == &strata_op_all_reduce && node->n_inputs) return add_exchange(p, node, err);
    if (node->op->flags & STRATA_OP_COMMUNICATION)
        return strata_fail(err, STRATA_UNSUPPORTED, "partition: the graph has an exchange already (%s)", node->op->name);
    bool done;
    STRATA_TRY(add_concat(p, node, &done, err));
    if (done) return STRATA_OK;
    division *v = calloc(1, sizeof *v);
    if (!v) return no_memory(err);
    const size_t n = (size_t)node->n_inputs + 1;
    v->node = node;
    v->operands = strata_graph_alloc(p->memory, n * sizeof(*v->operands));
    v->stays_partial = strata_graph_alloc(p->memory, n * sizeof *v->stays_partial);
    v->factors.inputs = strata_graph_alloc(p->memory, n * sizeof *v->factors.inputs);
    strata_status status = v->operands && v->stays_partial && v->factors.inputs ? STRATA_OK : no_memory(err);
    for (int i = 0; i < node->n_inputs && !status; i++) v->operands[i] = p->forms[node->inputs[i]->id];
    if (!status) status = divide(p, v, err);
    if (!status) status = build_parts(p, v, err);
    free(v);
    return status;
}

/* ---- all nodes ---- */

static strata_status begin(partitioner *p, strata_graph *graph, strata_error *err) {
    strata_partition *result = p->result = calloc(1, sizeof *result);
    if (!result) return no_memory(err);
    result->parts = calloc((size_t)p->n_devices, sizeof *result->parts);
    p->forms = calloc((size_t)graph->n_nodes, sizeof(*p->forms));
    p->live = calloc((size_t)graph->n_nodes, sizeof *p->live);
    p->uses = calloc((size_t)graph->n_nodes, sizeof *p->uses);
    p->wanted = calloc((size_t)graph->n_nodes, sizeof(*p->wanted));
    p->asked = calloc((size_t)graph->n_nodes, sizeof *p->asked);
    result->placements = calloc((size_t)graph->n_nodes, sizeof(*result->placements));
    if (!result->parts || !result->placements || !p->forms || !p->live || !p->uses || !p->wanted || !p->asked)
        return no_memory(err);
    STRATA_TRY(strata_graph_create(&p->memory, err));
    result->memory = p->memory;
    for (int d = 0; d < p->n_devices; d++) {
        strata_device_part *part = &result->parts[d];
        STRATA_TRY(strata_graph_create(&part->graph, err));
        result->n_devices++;
        strata_graph_retain(part->graph, graph);
        part->outputs = calloc((size_t)p->opts->n_outputs + 1, sizeof(*part->outputs));
        if (!part->outputs) return no_memory(err);
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
        STRATA_TRY(form_of(p, opts->outputs[i], placement, &f, err));
        for (int d = 0; d < p->n_devices; d++) p->result->parts[d].outputs[i] = tensor_of(p, opts->outputs[i], f, d);
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
    bool *live = strata_graph_alloc(p->memory, (size_t)graph->n_nodes + 1);
    if (!live) return no_memory(err);
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

static strata_status partition(partitioner *p, strata_graph *graph, strata_error *err) {
    const strata_partition_options *opts = p->opts;
    STRATA_TRY(begin(p, graph, err));
    strata_mark_live(graph, opts->outputs, opts->n_outputs, opts->updates, opts->n_updates, p->live, p->uses);
    STRATA_TRY(ask_readers(p, graph, err));
    for (int i = 0; i < graph->n_nodes; i++)
        if (p->live[i]) STRATA_TRY(add_node(p, graph->nodes[i], err));
    STRATA_TRY(finish_outputs(p, err));
    for (int d = 0; d < p->n_devices; d++) {
        STRATA_TRY(strata_graph_check(graph_of(p, d), err));
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
    free(p.forms);
    free(p.live);
    free(p.uses);
    free(p.wanted);
    free(p.asked);
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
    free(partition->placements);
    free(partition->parts);
    free(partition->exchanges);
    free(partition);
}
