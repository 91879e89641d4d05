/* SPDX-License-Identifier: Apache-2.0
 *
 * The communication ops (communication.h). They divide a replica's graph into segments (core/compile/segments.c) and are
 * executed between them, so they have no kernels. Their references are those of a group of one device: y = x. */
#include "core/op/communication.h"

#include "core/op/define.h"

extern const strata_op strata_op_move, strata_op_all_reduce, strata_op_reduce_to, strata_op_broadcast, strata_op_all_gather,
    strata_op_reduce_scatter, strata_op_send, strata_op_recv, strata_op_merge;

/* ---- teams ---- */

/* A copy of the numbers in the graph's memory; NULL: there is no memory, and the graph is poisoned. */
static const int64_t *copy_of(strata_graph *graph, const int64_t *lengths, int n) {
    int64_t *copy = strata_graph_alloc(graph, (size_t)n * sizeof *copy);
    if (copy) memcpy(copy, lengths, (size_t)n * sizeof *copy);
    return copy;
}

strata_team strata_team_make(strata_graph *graph, int64_t id, const int64_t *members, int n_members) {
    const int64_t *own = copy_of(graph, members, n_members);
    return own ? (strata_team){.id = id, .members = own, .n_members = n_members} : (strata_team){0};
}

strata_team strata_team_of_first(strata_graph *graph, int n) {
    int64_t *members = strata_graph_alloc(graph, (size_t)n * sizeof *members);
    for (int d = 0; members && d < n; d++) members[d] = d;
    return (strata_team){.id = n, .members = members, .n_members = members ? n : 0, .local = true};
}

bool strata_team_has(strata_team team, int64_t device) {
    int64_t begin = 0, end = team.n_members;
    if (!end) return true;
    while (begin < end) {
        const int64_t middle = begin + (end - begin) / 2;
        if (team.members[middle] == device) return true;
        if (team.members[middle] < device)
            begin = middle + 1;
        else
            end = middle;
    }
    return false;
}

bool strata_team_equal(strata_team a, strata_team b) {
    if (a.id != b.id || a.n_members != b.n_members || a.local != b.local) return false;
    return a.members == b.members || !memcmp(a.members, b.members, (size_t)a.n_members * sizeof *a.members);
}

bool strata_team_spans_workers(strata_team team, int64_t first, int64_t n) {
    if (team.local) return false;
    return !team.n_members || team.members[0] < first || team.members[team.n_members - 1] >= first + n;
}

/* ---- what the ops have in common ---- */

static const strata_attr_words reduction_words[] = {{"reduction", (const char *const[]){"sum", "mean", NULL}}, {NULL, NULL}};

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_communication_attrs *attrs = node->attrs;
    STRATA_TRY(strata_shape_check(attrs->shape, err));
    node->dtype = attrs->dtype;
    node->shape = attrs->takes ? attrs->shape : STRATA_SHAPE(0);
    return STRATA_OK;
}

/* Checks the dtype of the operand, if there is one, of a sum or mean. */
static strata_status check_reduced(const strata_tensor *node, int64_t reduction, strata_error *err) {
    if (!node->n_inputs) return STRATA_OK;
    return strata_check_dtype(node->inputs[0], "x", reduction == STRATA_REDUCE_MEAN ? STRATA_FLOATS : STRATA_NUMBERS, err);
}

/* The result is the input, or zeros if there is no input. */
static void reference(strata_op_call *call) {
    const size_t bytes = (size_t)strata_tensor_bytes(call->node);
    if (bytes && call->node->n_inputs)
        memcpy(call->output, call->inputs[0], bytes);
    else if (bytes)
        memset(call->output, 0, bytes);
}

/* Members of the table of each op, and rows of its attributes; `type` has the common attributes first. */
#define COMMON(op_name, type) .name = #op_name, .flags = STRATA_OP_COMMUNICATION, .attrs_bytes = sizeof(type)
#define COMMON_ATTRS(type)                                                             \
    {"channel", STRATA_ATTR_INT, offsetof(type, common.team.id)},                      \
        {"channel_members", STRATA_ATTR_LIST, offsetof(type, common.team.members)},    \
        {"n_channel_members", STRATA_ATTR_INT, offsetof(type, common.team.n_members)}, \
        {"members", STRATA_ATTR_LIST, offsetof(type, common.cores)},                   \
        {"n_members", STRATA_ATTR_INT, offsetof(type, common.n_cores)}, {              \
        "shape", STRATA_ATTR_SHAPE, offsetof(type, common.shape)                       \
    }

/* ---- move: y = x at another coordinate of the mesh ---- */

static void move_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_move_attrs *attrs = node->attrs;
    dx[0] = strata_move_along(dy, (int)attrs->axis, (int)attrs->to, (int)attrs->from);
}

const strata_op strata_op_move = {COMMON(move, strata_move_attrs),
                                  .n_inputs = 1,
                                  .attrs = {COMMON_ATTRS(strata_move_attrs),
                                            {"axis", STRATA_ATTR_INT, offsetof(strata_move_attrs, axis)},
                                            {"from", STRATA_ATTR_INT, offsetof(strata_move_attrs, from)},
                                            {"to", STRATA_ATTR_INT, offsetof(strata_move_attrs, to)}},
                                  .shape = shape,
                                  .gradient = move_gradient,
                                  .reference = reference};

strata_tensor *strata_move_along(strata_tensor *x, int axis, int from, int to) {
    if (!x || strata_tensor_is_poison(x)) return x;
    const strata_move_attrs attrs = {
        .common = {.dtype = x->dtype, .shape = x->shape, .takes = true}, .axis = axis, .from = from, .to = to};
    return strata_node(x->graph, &strata_op_move, 1, &x, &attrs);
}

/* ---- all_reduce: y = x of replica 0 + x of replica 1 + ..., folded in that order, the same bits on every replica; MEAN
 * divides by the number of replicas that gave a value. gradient: the same all_reduce of dy ---- */

static strata_status all_reduce_shape(strata_tensor *node, strata_error *err) {
    const int64_t reduction = ((const strata_all_reduce_attrs *)node->attrs)->reduction;
    if (reduction != STRATA_REDUCE_MEAN && reduction != STRATA_REDUCE_SUM)
        return strata_fail(err, STRATA_INVALID, "reduction %d is neither SUM (%d) nor MEAN (%d)", (int)reduction,
                           STRATA_REDUCE_SUM, STRATA_REDUCE_MEAN);
    STRATA_TRY(check_reduced(node, reduction, err));
    return shape(node, err);
}

static void all_reduce_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    dx[0] = strata_all_reduce_among(node->graph, dy, *(const strata_all_reduce_attrs *)node->attrs);
}

const strata_op strata_op_all_reduce = {COMMON(all_reduce, strata_all_reduce_attrs),
                                        .optional_inputs = 1,
                                        .attrs = {COMMON_ATTRS(strata_all_reduce_attrs),
                                                  {"reduction", STRATA_ATTR_INT, offsetof(strata_all_reduce_attrs, reduction)}},
                                        .words = reduction_words,
                                        .shape = all_reduce_shape,
                                        .gradient = all_reduce_gradient,
                                        .reference = reference};

strata_tensor *strata_all_reduce_among(strata_graph *graph, strata_tensor *x, strata_all_reduce_attrs attrs) {
    attrs.common.takes = true;
    return strata_node(graph, &strata_op_all_reduce, x != NULL, &x, &attrs);
}

strata_tensor *strata_all_reduce(strata_tensor *x, strata_reduction reduction) {
    if (!x || strata_tensor_is_poison(x)) return x;
    const strata_communication_attrs common = {.dtype = x->dtype, .shape = x->shape};
    return strata_all_reduce_among(x->graph, x, (strata_all_reduce_attrs){.common = common, .reduction = reduction});
}

/* ---- reduce_to: like all_reduce, but only the receiving members get the sum or mean; the nodes of the others are empty.
 * central_storage uses it to sum gradients on the device that makes updates. gradient: an error, as dy would have to be sent to
 * devices whose graphs do not receive it. Nothing can depend on an empty node ---- */

const strata_op strata_op_reduce_to = {
    COMMON(reduce_to, strata_all_reduce_attrs),
    .optional_inputs = 1,
    .attrs = {COMMON_ATTRS(strata_all_reduce_attrs),
              {"reduction", STRATA_ATTR_INT, offsetof(strata_all_reduce_attrs, reduction)}},
    .words = reduction_words,
    .shape = all_reduce_shape,
    .no_gradient = "only some devices get its result; use all_reduce where gradients must pass",
    .reference = reference};

strata_tensor *strata_reduce_to(strata_graph *graph, strata_tensor *x, strata_all_reduce_attrs attrs) {
    return strata_node(graph, &strata_op_reduce_to, x != NULL, &x, &attrs);
}

/* ---- broadcast: y = x of the one member of the team that sends it. The sender's own node is empty unless it also receives
 * the value. gradient: if every member receives, the sender's dx is the sum of all members' dy. Nodes without an input pass no
 * gradient ---- */

static void broadcast_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_communication_attrs *common = node->attrs;
    dx[0] = strata_all_reduce_among(node->graph, dy, (strata_all_reduce_attrs){.common = *common});
}

const strata_op strata_op_broadcast = {
    COMMON(broadcast, strata_communication_attrs),
    .optional_inputs = 1,
    .attrs = {{"channel", STRATA_ATTR_INT, offsetof(strata_communication_attrs, team.id)},
              {"channel_members", STRATA_ATTR_LIST, offsetof(strata_communication_attrs, team.members)},
              {"n_channel_members", STRATA_ATTR_INT, offsetof(strata_communication_attrs, team.n_members)},
              {"shape", STRATA_ATTR_SHAPE, offsetof(strata_communication_attrs, shape)}},
    .shape = shape,
    .gradient = broadcast_gradient,
    .reference = reference};

strata_tensor *strata_broadcast(strata_graph *graph, strata_tensor *x, strata_communication_attrs attrs) {
    return strata_node(graph, &strata_op_broadcast, x != NULL, &x, &attrs);
}

/* ---- all_gather: y = the members' x, concatenated along an axis in the order of the replicas. Each part is sent once. The
 * parts' lengths along the axis may differ; every member knows all of them. gradient: the sum of all members' dy, of which
 * each member receives only its own part. reduce_scatter computes this along axis 0; another axis is first exchanged with
 * axis 0 ---- */

static strata_status all_gather_shape(strata_tensor *node, strata_error *err) {
    const strata_parts_attrs *attrs = node->attrs;
    const strata_shape x = node->inputs[0]->shape;
    if (attrs->axis < 0 || attrs->axis >= x.rank)
        return strata_fail(err, STRATA_INVALID, "axis is %lld of a value %s", (long long)attrs->axis,
                           strata_shape_text(x).text);
    if (attrs->own < 0 || attrs->own >= attrs->n || attrs->lengths[attrs->own] != x.dims[attrs->axis])
        return strata_fail(err, STRATA_INVALID, "part %lld of %lld is %s; its length along axis %lld is said to be %lld",
                           (long long)attrs->own, (long long)attrs->n, strata_shape_text(x).text, (long long)attrs->axis,
                           attrs->own >= 0 && attrs->own < attrs->n ? (long long)attrs->lengths[attrs->own] : -1LL);
    return shape(node, err);
}

/* x with axis `axis` and axis 0 exchanged. */
static strata_tensor *swapped(strata_tensor *x, int axis) {
    int order[STRATA_MAX_RANK];
    if (!axis || strata_tensor_is_poison(x)) return x;
    for (int d = 0; d < x->shape.rank; d++) order[d] = d;
    order[0] = axis;
    order[axis] = 0;
    return strata_transpose(x, order);
}

static void all_gather_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_parts_attrs *attrs = node->attrs;
    strata_tensor *whole = swapped(dy, (int)attrs->axis);
    if (strata_tensor_is_poison(whole)) return;
    dx[0] = swapped(strata_reduce_scatter_parts(node->graph, whole, whole->dtype, whole->shape, attrs->common.team,
                                                STRATA_REDUCE_SUM, false, attrs->lengths, (int)attrs->n, (int)attrs->own),
                    (int)attrs->axis);
}

const strata_op strata_op_all_gather = {COMMON(all_gather, strata_parts_attrs),
                                        .n_inputs = 1,
                                        .attrs = {COMMON_ATTRS(strata_parts_attrs),
                                                  {"axis", STRATA_ATTR_INT, offsetof(strata_parts_attrs, axis)},
                                                  {"lengths", STRATA_ATTR_LIST, offsetof(strata_parts_attrs, lengths)},
                                                  {"n", STRATA_ATTR_INT, offsetof(strata_parts_attrs, n)},
                                                  {"own", STRATA_ATTR_INT, offsetof(strata_parts_attrs, own)}},
                                        .shape = all_gather_shape,
                                        .gradient = all_gather_gradient,
                                        .reference = reference};

strata_tensor *strata_all_gather_parts(strata_tensor *x, strata_team team, int axis, const int64_t *lengths, int n, int own) {
    if (!x || strata_tensor_is_poison(x)) return x;
    strata_parts_attrs attrs = {.common = {.team = team, .dtype = x->dtype, .shape = x->shape, .takes = true},
                                .axis = axis,
                                .lengths = copy_of(x->graph, lengths, n),
                                .n = n,
                                .own = own};
    if (!attrs.lengths) return &x->graph->poison;
    if (axis >= 0 && axis < x->shape.rank) {
        attrs.common.shape.dims[axis] = 0;
        for (int i = 0; i < n; i++) attrs.common.shape.dims[axis] += lengths[i];
    }
    return strata_node(x->graph, &strata_op_all_gather, 1, &x, &attrs);
}

strata_tensor *strata_all_gather_equal(strata_tensor *x, int axis, int n, int own) {
    if (!x || strata_tensor_is_poison(x)) return x;
    int64_t *lengths = n > 0 ? strata_graph_alloc(x->graph, (size_t)n * sizeof *lengths) : NULL;
    if (!lengths) return strata_graph_poison(x->graph, NULL, STRATA_OUT_OF_MEMORY, "all_gather: no memory for %d parts", n);
    for (int i = 0; i < n; i++) lengths[i] = axis >= 0 && axis < x->shape.rank ? x->shape.dims[axis] : 0;
    return strata_all_gather_parts(x, (strata_team){0}, axis, lengths, n, own);
}

/* ---- reduce_scatter: each member of a team contributes an x of the same shape, and member k receives part k, along axis 0,
 * of their sum or mean (added in replica order, so its bits are those of all_reduce). Each part is sent only to its owner.
 * gradient: dy of all members, concatenated (all_gather); MEAN divides by the number of parts ---- */

static strata_status reduce_scatter_shape(strata_tensor *node, strata_error *err) {
    const strata_parts_attrs *attrs = node->attrs;
    int64_t all = 0;
    for (int64_t i = 0; i < attrs->n; i++) all += attrs->lengths[i];
    STRATA_TRY(check_reduced(node, attrs->reduction, err));
    if (node->n_inputs && (node->shape.rank < 1 || node->shape.dims[0] != all))
        return strata_fail(err, STRATA_INVALID, "x is %s; the %lld parts have %lld rows together",
                           strata_shape_text(node->shape).text, (long long)attrs->n, (long long)all);
    return shape(node, err);
}

static void reduce_scatter_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_parts_attrs *attrs = node->attrs;
    dx[0] = strata_all_gather_parts(dy, attrs->common.team, 0, attrs->lengths, (int)attrs->n, (int)attrs->own);
    if (attrs->reduction == STRATA_REDUCE_MEAN)
        dx[0] = strata_div(dx[0], strata_scalar(node->graph, node->dtype, (double)attrs->n));
}

static void reduce_scatter_reference(strata_op_call *call) {
    const int64_t n = ((const strata_parts_attrs *)call->node->attrs)->n;
    if (n == 1)
        reference(call);
    else
        call->status =
            strata_fail(call->err, STRATA_INVALID, "reduce_scatter of %lld parts needs as many replicas", (long long)n);
}

const strata_op strata_op_reduce_scatter = {COMMON(reduce_scatter, strata_parts_attrs),
                                            .optional_inputs = 1,
                                            .attrs = {COMMON_ATTRS(strata_parts_attrs),
                                                      {"reduction", STRATA_ATTR_INT, offsetof(strata_parts_attrs, reduction)},
                                                      {"lengths", STRATA_ATTR_LIST, offsetof(strata_parts_attrs, lengths)},
                                                      {"n", STRATA_ATTR_INT, offsetof(strata_parts_attrs, n)},
                                                      {"own", STRATA_ATTR_INT, offsetof(strata_parts_attrs, own)}},
                                            .words = reduction_words,
                                            .shape = reduce_scatter_shape,
                                            .gradient = reduce_scatter_gradient,
                                            .reference = reduce_scatter_reference};

strata_tensor *strata_reduce_scatter_parts(strata_graph *graph, strata_tensor *x, strata_dtype dtype, strata_shape whole,
                                           strata_team team, strata_reduction reduction, bool gradients, const int64_t *lengths,
                                           int n, int own) {
    strata_parts_attrs attrs = {.common = {.team = team, .dtype = dtype, .shape = whole, .takes = true},
                                .reduction = reduction,
                                .gradients = gradients,
                                .lengths = copy_of(graph, lengths, n),
                                .n = n,
                                .own = own};
    if (!attrs.lengths) return &graph->poison;
    if (own < 0 || own >= n || whole.rank < 1)
        return strata_graph_poison(graph, &strata_op_reduce_scatter, STRATA_INVALID, "part %d of %d of a value %s", own, n,
                                   strata_shape_text(whole).text);
    attrs.common.shape.dims[0] = lengths[own];
    return strata_node(graph, &strata_op_reduce_scatter, x != NULL, &x, &attrs);
}

/* ---- send and recv: y = x of one other device, of this group or of another worker, in the same team. The node of send is
 * empty, of shape (0). gradient: none, since nothing can depend on an empty node, and recv has no input; a graph that needs it
 * sends dy in the opposite direction ---- */

#define POINT_ATTRS                                                         \
    {                                                                       \
        COMMON_ATTRS(strata_point_attrs), {                                 \
            "worker", STRATA_ATTR_INT, offsetof(strata_point_attrs, worker) \
        }                                                                   \
    }

const strata_op strata_op_send = {COMMON(send, strata_point_attrs),
                                  .n_inputs = 1,
                                  .attrs = POINT_ATTRS,
                                  .shape = shape,
                                  .no_gradient = "what a device sends comes back only where its graph receives it",
                                  .reference = reference};

const strata_op strata_op_recv = {COMMON(recv, strata_point_attrs), .attrs = POINT_ATTRS, .shape = shape,
                                  .reference = reference};

/* Makes one end of an exchange between two devices. x is NULL at the receiving end. If worker is -1, device and other are
 * devices of the group. */
static strata_tensor *point(strata_graph *graph, strata_tensor *x, strata_dtype dtype, strata_shape shape, int64_t team,
                            int device, int other, int worker) {
    const strata_op *op = x ? &strata_op_send : &strata_op_recv;
    const bool within = worker < 0;
    if (device < 0 || (within && (other < 0 || other == device)))
        return strata_graph_poison(graph, op, STRATA_INVALID, "device %d and device %d", device, other);
    if (team < 0 || team > UINT32_MAX)
        return strata_graph_poison(graph, op, STRATA_INVALID, "team %lld; it must be 0 to 4294967295", (long long)team);
    const int64_t members[2] = {within && other < device ? other : device, within && other < device ? device : other};
    strata_point_attrs attrs = {.common = {.dtype = dtype, .shape = shape, .takes = !x}, .worker = worker};
    attrs.common.team = strata_team_make(graph, team, members, within ? 2 : 1);
    attrs.common.team.local = true; /* the other worker is named by the attributes */
    return strata_node(graph, op, x != NULL, &x, &attrs);
}

strata_tensor *strata_send(strata_tensor *x, int64_t team, int from, int to) {
    if (!x || strata_tensor_is_poison(x)) return x;
    return point(x->graph, x, x->dtype, x->shape, team, from, to, -1);
}

strata_tensor *strata_send_to_worker(strata_tensor *x, int64_t team, int from, int worker) {
    if (!x || strata_tensor_is_poison(x)) return x;
    return point(x->graph, x, x->dtype, x->shape, team, from, -1, worker);
}

strata_tensor *strata_recv(strata_graph *graph, strata_dtype dtype, strata_shape shape, int64_t team, int from, int to) {
    return point(graph, NULL, dtype, shape, team, to, from, -1);
}

strata_tensor *strata_recv_from_worker(strata_graph *graph, strata_dtype dtype, strata_shape shape, int64_t team, int to,
                                       int worker) {
    return point(graph, NULL, dtype, shape, team, to, -1, worker);
}

/* ---- merge: y = the result of a function of the host, which gets the x of all replicas (tf.distribute's merge_call).
 * gradient: an error, because the derivative of the function is not known ---- */

const strata_op strata_op_merge = {
    COMMON(merge, strata_merge_attrs),
    .n_inputs = 1,
    .attrs = {COMMON_ATTRS(strata_merge_attrs), {"merge", STRATA_ATTR_POINTER, offsetof(strata_merge_attrs, merge)}},
    .shape = shape,
    .no_gradient = "what a merge function does has no gradient",
    .reference = reference};

strata_tensor *strata_merge_values(strata_tensor *x, const strata_merge *merge) {
    if (!x || strata_tensor_is_poison(x)) return x;
    const strata_merge_attrs attrs = {.common = {.dtype = x->dtype, .shape = x->shape, .takes = true}, .merge = merge};
    return strata_node(x->graph, &strata_op_merge, 1, &x, &attrs);
}
