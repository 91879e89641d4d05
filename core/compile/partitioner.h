/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the partitioner (partition.h). Each value of the whole graph has one or more *forms*: a placement, and the
 * tensor of each device. The first form of a node is the one in which it is computed; the others are what readers needed. */
#ifndef STRATA_CORE_PARTITIONER_H
#define STRATA_CORE_PARTITIONER_H

#include "core/compile/partition.h"
#include "core/op/communication.h"

typedef struct strata_form {
    strata_placement placement;
    /* [n_devices] NULL: the device is at another coordinate than the value, or has nothing to compute for it: its part is
     * empty, or zeros of a partial value, which it does not contribute to sums. */
    strata_tensor **tensors;
    struct strata_form *next;
} strata_form;

typedef struct strata_partitioner {
    const strata_partition_options *opts;
    const strata_mesh *mesh;
    strata_partition *result;
    /* The devices whose graphs are made: n from `first` on. */
    int first, n_devices;
    /* All devices of the mesh. */
    int n_all;
    /* Memory of forms and lengths. */
    strata_memory *memory;
    /* The whole graph as the user built it, and a copy of it, in which its n_whole nodes have the same ids. The steps into
     * which nodes are resolved (steps.c) follow in the copy. All nodes below are those of the copy. */
    strata_graph *given, *graph;
    int n_whole;
    /* The node whose steps are divided; NULL: none is. */
    const strata_tensor *resolved;
    /* [n_reserved] By the ids of nodes. */
    int n_reserved;
    strata_form **forms;
    bool *live;
    int *uses;
    /* [n_reserved] Whether the value depends on an input whose placement has axes of `examples`. */
    bool *of_examples;
    /* [n_reserved] How all readers of a node want it divided (a placement without partial and own); NULL: they want nothing, or
     * not the same. `asked`: whether a reader was asked already. */
    strata_placement **wanted;
    bool *asked;
    /* The node whose operands are moved. */
    const strata_tensor *reader;
    /* The axes over which inputs are divided, partial or own. */
    unsigned examples;
} strata_partitioner;

/* The node of the user's graph of which this one is a copy, or into a step of which it was resolved. NULL for NULL. */
static inline const strata_tensor *strata_partition_given(const strata_partitioner *p, const strata_tensor *node) {
    if (!node) return NULL;
    return p->given->nodes[node->id < p->n_whole ? node->id : p->resolved->id];
}

/* How the caller places an input or a variable. */
static inline const strata_placement *strata_partition_place(const strata_partitioner *p, const strata_tensor *leaf) {
    return p->opts->place(p->opts->user, strata_partition_given(p, leaf));
}

/* Sets the pointer to n new elements of the partition's memory; a status. */
#define STRATA_PARTITION_TAKE(p, pointer, n, err) STRATA_TAKE((p)->memory, pointer, n, err, "partition: no host memory")

/* The shape of device d's part of a node that has this placement. */
static inline strata_shape strata_partition_shape(const strata_partitioner *p, const strata_tensor *node,
                                                  const strata_placement *placement, int d, int64_t *out_begin) {
    return strata_placement_part(p->mesh, placement, node->shape, p->first + d, out_begin);
}

static inline bool strata_partition_has(const strata_partitioner *p, const strata_placement *placement, int d) {
    return strata_placement_has(p->mesh, placement, p->first + d);
}

static inline strata_graph *strata_partition_graph(const strata_partitioner *p, int d) {
    return p->result->parts[d].graph;
}

/* The axes that divide a dimension. */
static inline unsigned strata_partition_axes(const strata_dim_split *split) {
    unsigned axes = 0;
    for (int a = 0; a < split->n_axes; a++) axes |= 1u << split->axes[a];
    return axes;
}

/* The axes that divide a dimension of a value. */
static inline unsigned strata_partition_split_axes(const strata_placement *placement) {
    unsigned axes = 0;
    for (int d = 0; d < STRATA_MAX_RANK; d++) axes |= strata_partition_axes(&placement->dims[d]);
    return axes;
}

/* ---- moves.c: forms, and the exchanges that make another form of a value ---- */

/* A form without tensors, or with copies of these. node: it is the first form of this node; NULL: the caller decides. */
STRATA_MUST_USE strata_status strata_partition_new_form(strata_partitioner *p, const strata_tensor *node,
                                                        const strata_placement *placement, strata_tensor *const *tensors,
                                                        strata_form **out_form, strata_error *err);
/* The part of a device that has one. A part that was not computed is made of zeros. */
strata_tensor *strata_partition_tensor(strata_partitioner *p, const strata_tensor *value, strata_form *f, int d);
/* The devices that have the same coordinates as device d on all axes that are not in `axes`. */
strata_team strata_partition_team(const strata_partitioner *p, unsigned axes, int d);
/* received: how the first device has what it receives. */
STRATA_MUST_USE strata_status strata_partition_note(strata_partitioner *p, const strata_tensor *value, const char *op,
                                                    unsigned axes, const strata_placement *received, strata_error *err);
/* Zeros of the shape of x. They still depend on x, so that the device takes part in the exchanges that it needs. */
strata_tensor *strata_partition_nothing(strata_tensor *x);
/* The axes along which a value that is placed at one coordinate by `a` is not there by `b`. */
unsigned strata_partition_axes_at(const strata_partitioner *p, const strata_placement *a, const strata_placement *b);
/* Changes the placement of a form to `to`. */
STRATA_MUST_USE strata_status strata_partition_move(strata_partitioner *p, const strata_tensor *value, strata_form *f,
                                                    const strata_placement *to, strata_error *err);
/* The form of a value with this placement, which is made if there is none yet. */
STRATA_MUST_USE strata_status strata_partition_form(strata_partitioner *p, const strata_tensor *value,
                                                    const strata_placement *placement, strata_form **out_form,
                                                    strata_error *err);

/* A move: the value at the coordinate that the node names. */
STRATA_MUST_USE strata_status strata_partition_follow(strata_partitioner *p, const strata_tensor *node, strata_error *err);
/* An all_reduce of the graph: here a value must be complete, where updates are made. If all its readers want pieces, each
 * device gets its own. */
STRATA_MUST_USE strata_status strata_partition_complete(strata_partitioner *p, const strata_tensor *node, strata_error *err);

/* ---- partition.c ---- */

/* Enlarges the arrays by id, so that they have room for all nodes of the graph. */
STRATA_MUST_USE strata_status strata_partition_reserve(strata_partitioner *p, strata_error *err);
/* Makes the parts of a node. */
STRATA_MUST_USE strata_status strata_partition_add(strata_partitioner *p, const strata_tensor *node, strata_error *err);

/* ---- divisions.c: how a node is divided ---- */

typedef struct strata_node_choice {
    /* [STRATA_MOST_FACTORS] Over which axes a factor is divided, in units of the factor. */
    strata_dim_split factors[STRATA_MOST_FACTORS];
    unsigned used;
    int n_axes;
    double cost;
} strata_node_choice;

enum { STRATA_MOST_CANDIDATES = 256 };

typedef struct strata_node_division {
    const strata_tensor *node;
    strata_factors factors;
    /* [n_inputs] */
    strata_form **operands;
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
    } candidates[STRATA_MOST_CANDIDATES];
    int n_candidates;
    strata_node_choice now, best;
} strata_node_division;

/* The placement of operand i (n_inputs: of the result) under a choice. */
STRATA_MUST_USE strata_status strata_partition_placement(strata_partitioner *p, const strata_node_division *v,
                                                         const strata_node_choice *c, int i, strata_placement *out_placement,
                                                         strata_error *err);
/* Chooses how the node is divided: v->best. */
STRATA_MUST_USE strata_status strata_partition_divide(strata_partitioner *p, strata_node_division *v, strata_error *err);

/* The split of the n elements from `begin` on of a dimension that is divided by `split`: each device keeps what it has of
 * them. */
STRATA_MUST_USE strata_status strata_partition_split_range(strata_partitioner *p, const strata_dim_split *split, int64_t begin,
                                                           int64_t n, strata_dim_split *out_split, strata_error *err);
/* The axis along which the operands of a concat follow each other; -1: another op. */
int strata_partition_concat_axis(const strata_tensor *node);
/* Goes back from outputs and updates, and finds out how values are wanted. */
STRATA_MUST_USE strata_status strata_partition_ask(strata_partitioner *p, const strata_graph *graph, strata_error *err);

/* ---- steps.c: nodes that are computed in several steps, with exchanges between them ---- */

/* If an operand is divided along a dimension that the rule of the node's op excludes, and the op has steps for this, makes the
 * parts of the steps. *out_done false: it has none, or needs none. */
STRATA_MUST_USE strata_status strata_partition_resolve(strata_partitioner *p, const strata_node_division *v, bool *out_done,
                                                       strata_error *err);

#endif
