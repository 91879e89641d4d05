/* SPDX-License-Identifier: Apache-2.0
 *
 * The partitioner: divides a graph for one device into a graph for each device of a mesh.
 *
 * The caller says how inputs, variables and outputs are placed (core/graph/placement.h). README.md says by which rules the
 * partitioner carries placements forward and where it inserts exchanges; they name the node that needs them, for reports.
 * Gradients must be in the graph already. */
#ifndef STRATA_CORE_PARTITION_H
#define STRATA_CORE_PARTITION_H

#include "core/base/alloc.h"
#include "core/graph/placement.h"

typedef struct strata_partition_options {
    const strata_mesh *mesh;
    /* The devices whose graphs are made: [first, first + n); n 0: all. Their exchanges involve the others too. */
    int first, n;
    /* Each device computes the statistics of batch norm of its own examples; else they are those of all examples. */
    bool own_statistics;
    /* Each device computes a step of its own: a sum over a divided dimension is each device's own value, not a part of one
     * sum. */
    bool own_sums;
    /* [n] Whether the device's examples count; NULL: all do. Others add nothing to partial variables, and with
     * own_sums they make no update. */
    const bool *counts;
    /* The placement of an input or of a variable, which is read by `leaf`. An input may be partial: the values that the
     * devices are given add up to it. So may a variable: the devices' variables add up to it. Both may be each device's own. */
    const strata_placement *(*place)(void *user, const strata_tensor *leaf);
    /* Where updates are made; NULL: wherever the variables are. With a coordinate, the all_reduces of the graph that name no
     * team deliver their values there, and devices that have copies of a variable get its new value from there. An axis in
     * `own`: along it several devices make the update, each with a value of its own (they may round differently), and all
     * copies of a variable get the value of the first one. `own` may then be together with a coordinate, which is that of one
     * of these devices. */
    const strata_placement *update;
    /* The devices that are not made here have coordinates of their own for updates, from which they get the new values. */
    bool each_worker_updates;
    /* [n] True: the device is given no part of inputs and variables that are partial or each device's own, and adds nothing to
     * sums; NULL: every device is given its part. */
    const bool *idle;
    /* The device's variable, of the shape of its part, that stands for the variable of the graph. */
    strata_variable *(*variable)(void *user, strata_variable *whole, int device);
    /* The device's variable of the same placement as the other variables of an update, which holds the device's part of a
     * variable of which it has a copy. NULL: such updates are refused. */
    strata_variable *(*part_variable)(void *user, strata_variable *whole, int device);
    void *user;
    /* The all_reduces of the graph never become reduce_scatters. */
    bool whole_sums;
    strata_tensor *const *outputs;
    /* [n_outputs] The placements of the outputs; NULL: every device gets the whole outputs. The values of a partial output add
     * up to it. */
    const strata_placement *placements;
    int n_outputs;
    strata_tensor *const *updates;
    int n_updates;
} strata_partition_options;

/* The graph of one device. */
typedef struct strata_device_part {
    strata_graph *graph;
    /* [n_outputs of the options] NULL: the output is at a coordinate that is not the device's. */
    strata_tensor **outputs;
    /* [n_updates] The updates that the device makes, and exchanges in which it takes part although it reads no result. */
    strata_tensor **updates;
    int n_updates;
} strata_device_part;

/* An exchange that the partitioner inserted, for reports. */
typedef struct strata_partition_exchange {
    /* The node whose value is exchanged, and the node that needs it (NULL: it is an output). Nodes of the whole graph. An
     * update in parts, or at one coordinate, needs its own value: the devices' copies become equal again. */
    const strata_tensor *value, *reader;
    /* The op's name: "all_reduce", "reduce_scatter", "all_gather", "reduce_to", "broadcast". */
    const char *op;
    /* Bit a: the exchange is among devices along axis a. */
    unsigned axes;
    /* The bytes that one device receives. */
    int64_t bytes;
} strata_partition_exchange;

typedef struct strata_partition {
    /* [n_devices] of the devices from options.first on. */
    int n_devices;
    strata_device_part *parts;
    int n_exchanges;
    strata_partition_exchange *exchanges;
    /* [n_nodes of the whole graph] How each node that is computed is placed; NULL for other nodes. Memory of the partition. */
    const strata_placement **placements;
    strata_memory memory;
} strata_partition;

/* Divides what outputs and updates need. Fails with INVALID for a placement that does not fit, and UNSUPPORTED for an update
 * whose variables are not divided alike, are at different coordinates or are divided in a way that the op's rule does not
 * allow, and for communication nodes. */
STRATA_MUST_USE strata_status strata_partition_create(const strata_partition_options *opts, strata_partition **out_partition,
                                                      strata_error *err);
void strata_partition_destroy(strata_partition *partition);
STRATA_OWNER(strata_partition)

#endif
