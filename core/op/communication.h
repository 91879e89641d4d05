/* SPDX-License-Identifier: Apache-2.0
 *
 * Communication ops: exchanges of values between the devices of a group, between the segments of their graphs.
 * core/run/exchange.c executes them.
 *
 * Every device of a team has one node for each exchange. The node of a device that contributes no value has no input. The
 * node of a device that receives no value has an empty output, of shape (0); the device keeps this node alive as an update of
 * its executable. */
#ifndef STRATA_CORE_OP_COMMUNICATION_H
#define STRATA_CORE_OP_COMMUNICATION_H

#include "core/graph/graph.h"
#include "strata/ops.h"

/* A team: the devices that take part in an exchange. All members of a team build its nodes in the same order: the k-th
 * node of each member belongs to the k-th exchange. A device executes its exchanges one after the other, in the order of its
 * graph, and each of them waits for all members. So the members of several teams must not wait for each other in a cycle.
 * For example, if each device of a ring first sends and then receives, no exchange can be the first, and creating the group
 * fails. Building exchanges in ascending order of the teams on every device avoids cycles. {0}: all devices of the group,
 * and of the groups of all other workers. */
typedef struct strata_team {
    int64_t id;
    /* [n_members] The numbers of the devices that take part, ascending; memory of the graph. As in a mesh, devices are numbered
     * over all workers: first those of worker 0, then those of worker 1. n_members 0: every device takes part. */
    const int64_t *members;
    int64_t n_members;
    /* True: only this worker's devices take part, and their numbers are those in the group. */
    bool local;
} strata_team;

/* The team of these devices, which are ascending and copied. If there is no memory, the graph is poisoned. */
strata_team strata_team_make(strata_graph *graph, int64_t id, const int64_t *members, int n_members);
/* The team of this worker's devices [0, n). */
strata_team strata_team_of_first(strata_graph *graph, int n);
bool strata_team_has(strata_team team, int64_t device);
bool strata_team_equal(strata_team a, strata_team b);
/* Whether devices take part that are not among the n from `first` on, which are those of this worker. */
bool strata_team_spans_workers(strata_team team, int64_t first, int64_t n);

/* The first member of every communication op's attributes. */
typedef struct strata_communication_attrs {
    strata_team team;
    /* The dtype of the value that this device receives, or would receive. */
    strata_dtype dtype;
    strata_shape shape;
    bool takes;
    /* [n_cores] The cores of one system that take part, by their numbers in it, ascending. Their programs execute the exchange,
     * and the node runs like any other node. Set only by core/compile/collectives.h; memory of the graph. NULL: the host
     * executes the exchange between programs. */
    const int64_t *cores;
    int64_t n_cores;
} strata_communication_attrs;

/* ---- move ---- */

/* In a graph that is written as if there were one device: x, which the partitioner has at coordinate `from` of an axis of the
 * mesh (-1: at each), is needed at coordinate `to`. The partitioner sends it there. y = x; gradient: dy is moved back. */
typedef struct strata_move_attrs {
    strata_communication_attrs common;
    int64_t axis, from, to;
} strata_move_attrs;
strata_tensor *strata_move_along(strata_tensor *x, int axis, int from, int to);

/* ---- all_reduce and reduce_to ---- */

typedef struct strata_all_reduce_attrs {
    strata_communication_attrs common;
    /* A strata_reduction. */
    int64_t reduction;
    /* The values are gradients, which may be sent between workers in the strategy's smaller dtype. */
    bool gradients;
} strata_all_reduce_attrs;

/* Every member receives the sum or mean of the members' values. x: of `dtype` and `shape`; NULL on a device that contributes no
 * value. */
strata_tensor *strata_all_reduce_among(strata_graph *graph, strata_tensor *x, strata_all_reduce_attrs attrs);
/* Like strata_all_reduce_among, but only the members with the attribute `takes` receive the result. */
strata_tensor *strata_reduce_to(strata_graph *graph, strata_tensor *x, strata_all_reduce_attrs attrs);

/* ---- broadcast ---- */

/* One device sends x (NULL on the others), and the others receive it. In a team of several workers the sender is a device of
 * the first of them, unless the team has two devices: then it is a message, like that of strata_send_to_worker. */
strata_tensor *strata_broadcast(strata_graph *graph, strata_tensor *x, strata_communication_attrs attrs);

/* ---- all_gather and reduce_scatter ---- */

/* The parts of a value along one axis, in the order of the devices that contribute them, worker after worker. */
typedef struct strata_parts_attrs {
    strata_communication_attrs common;
    int64_t axis;
    /* A strata_reduction; only for reduce_scatter. */
    int64_t reduction;
    /* The values may be sent between workers in the strategy's smaller dtype. */
    bool gradients;
    /* [n] The length of each part along the axis; memory of the graph. */
    const int64_t *lengths;
    int64_t n;
    /* The index of this device's part. */
    int64_t own;
} strata_parts_attrs;

/* Every member contributes its part and receives the whole: the parts concatenated along the axis. lengths: copied. */
strata_tensor *strata_all_gather_parts(strata_tensor *x, strata_team team, int axis, const int64_t *lengths, int n, int own);
/* Gathers n parts, each as long as x, from all devices. */
strata_tensor *strata_all_gather_equal(strata_tensor *x, int axis, int n, int own);
/* Every member contributes an x of this dtype and of shape `whole` (NULL: it contributes none), and receives its own part,
 * along axis 0, of the sum or mean of all x. lengths: copied. */
strata_tensor *strata_reduce_scatter_parts(strata_graph *graph, strata_tensor *x, strata_dtype dtype, strata_shape whole,
                                           strata_team team, strata_reduction reduction, bool gradients, const int64_t *lengths,
                                           int n, int own);

/* ---- send and recv ---- */

typedef struct strata_point_attrs {
    strata_communication_attrs common;
    /* The worker on the other side; -1: it is a device of the same group. */
    int64_t worker;
} strata_point_attrs;

/* Sends x to device `to` of the group, which receives it by strata_recv in the same team. The node is empty; keep it alive
 * as an update. */
strata_tensor *strata_send(strata_tensor *x, int64_t team, int from, int to);
strata_tensor *strata_recv(strata_graph *graph, strata_dtype dtype, strata_shape shape, int64_t team, int from, int to);
/* The same between workers: device `from` sends x to another worker, where a device receives it by strata_recv_from_worker in
 * the same team. Values of one team keep their order. The sending worker does not wait for the other's step, unless the
 * receiver's buffer is full (cluster/README.md). team: 0 or more. */
strata_tensor *strata_send_to_worker(strata_tensor *x, int64_t team, int from, int worker);
strata_tensor *strata_recv_from_worker(strata_graph *graph, strata_dtype dtype, strata_shape shape, int64_t team, int to,
                                       int worker);

/* ---- merge ---- */

/* A function of the host that runs between segments. operands[i] is the value of the i-th device that contributes one, and
 * results[i] that of the i-th device that receives one; each has the node's dtype and shape. */
typedef struct strata_merge {
    strata_status (*run)(const struct strata_merge *merge, const void *const *operands, int n_operands, void *const *results,
                         int n_results, strata_error *err);
    void *user;
    strata_dtype dtype;
    strata_shape shape;
} strata_merge;

typedef struct strata_merge_attrs {
    strata_communication_attrs common;
    /* Borrowed; it must outlive the executable. */
    const strata_merge *merge;
} strata_merge_attrs;

/* Applies `merge` to the x of every replica. */
strata_tensor *strata_merge_values(strata_tensor *x, const strata_merge *merge);

#endif
