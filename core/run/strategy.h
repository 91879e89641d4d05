/* SPDX-License-Identifier: Apache-2.0
 *
 * What a strategy is for those who run steps: devices, where updates are placed, shares of a batch, the workers of a job. The
 * strategies are in strategies/. */
#ifndef STRATA_CORE_STRATEGY_H
#define STRATA_CORE_STRATEGY_H

#include "core/compile/collectives.h"
#include "core/graph/placement.h"
#include "core/op/communication.h"
#include "core/run/cross_device.h"
#include "strata/strategy.h"

/* The workers of a job, each of which has its own strategy object, and the communication between them. */
typedef struct strata_workers {
    /* n 0 or 1: there are no other workers. */
    int rank, n;
    /* The number of this worker's first replica among the replicas of all workers, and the number of all replicas. */
    int first_replica, n_replicas;
    /* sum: out_sum, which may be `own`, becomes the sum of `own` over all workers in rank order, with the same bits on all. f32
     * values are rounded to `wire` (F16 or BF16) before they are sent; F32: they are not. broadcast: `data` becomes rank 0's
     * value. */
    strata_status (*sum)(const struct strata_workers *workers, strata_dtype dtype, strata_dtype wire, const void *own,
                         void *out_sum, int64_t elements, strata_error *err);
    strata_status (*broadcast)(const struct strata_workers *workers, strata_dtype dtype, void *data, int64_t elements,
                               strata_error *err);
    /* Worker r gets part r of the sum over the workers. `own` has counts[0] + counts[1] + ... elements, and out_part gets
     * counts[rank] elements. The bits are those of `sum`. */
    strata_status (*reduce_scatter)(const struct strata_workers *workers, strata_dtype dtype, strata_dtype wire,
                                    const void *own, void *out_part, const size_t *counts, strata_error *err);
    /* Concatenates the workers' bytes in rank order: bytes[w] bytes of worker w. */
    strata_status (*all_gather)(const struct strata_workers *workers, const void *own, void *out_all, const size_t *bytes,
                                strata_error *err);
    /* Sends a value to another worker, which receives it with the same tag. Values of a tag are received in order. */
    strata_status (*send)(const struct strata_workers *workers, int to, int64_t tag, const void *data, size_t bytes,
                          strata_error *err);
    strata_status (*receive)(const struct strata_workers *workers, int from, int64_t tag, void *data, size_t bytes,
                             strata_error *err);
    /* Sets the number of the current step, from 1, for error messages about lost workers. */
    void (*at_step)(const struct strata_workers *workers, int64_t step);
    /* The workers have devices of several kinds, whose updates may differ in the last bit, so all use rank 0's parameters. */
    bool mixed;
    uint64_t (*bytes_sent)(const struct strata_workers *workers); /* by this worker, since it joined */
    /* The dtype in which gradients are sent to other workers. */
    strata_dtype wire;
    /* [n + 1] The number of each worker's first replica; the last entry is the number of all replicas.
     * Owned by the strategy. */
    int *first_replicas;
    /* Sets *out_workers to those of the workers that have these ranks, ascending; this worker is one of them. Each of them
     * calls it. Their communicator is made once for these members of a team, and lives as long as that of all workers.
     * first_replicas is NULL. */
    strata_status (*subset)(const struct strata_workers *workers, const int *ranks, int n, const int64_t *members,
                            int n_members, struct strata_workers *out_workers, strata_error *err);
    /* This machine has more workers than cores. */
    bool share_cores;
    /* The strata_communicator of the workers; borrowed. */
    void *communicator;
} strata_workers;

/* The replica in whose graph a strategy builds an average. */
typedef struct strata_step_replica {
    /* Its number among the n replicas of all workers. */
    int index, n;
    /* Makes `node` part of the program although nothing reads its value, as for strata_send; returns the node. A node that is
     * neither read nor kept is left out of the program. */
    strata_tensor *(*keep)(const struct strata_step_replica *replica, strata_tensor *node);
    /* The program that keep adds to. */
    struct strata_step_builder *builder;
} strata_step_replica;

/* Builds into the graph of `own` what each replica's parameters or states become in an average. own: f32 (n), the values of
 * this replica, a range of its parameters or all of its states. The result is of the same shape. All replicas build the same
 * exchanges in the same order. */
typedef strata_tensor *strata_average(const strata_step_replica *replica, strata_tensor *own);

/* Receives the value of a program's exchange number k that is placed at devices of other tasks. */
typedef void strata_receive(void *user, int k, const void *value, size_t bytes);

/* How a strategy trains whose workers do not run steps together; what trains defines it. */
typedef struct strata_trainer strata_trainer;

/* An object that was made with a strategy: variables, an optimizer, batches, a function. Objects that still exist when the
 * strategy is destroyed are destroyed with it, the newest first. */
typedef struct strata_owned {
    struct strata_owned *next, **link;
    /* Destroys the object, which must call strata_owned_forget. */
    void (*destroy)(void *object);
    void *object;
} strata_owned;
void strata_strategy_own(strata_strategy *strategy, strata_owned *owned, void (*destroy)(void *object), void *object);
/* Removes an object that is destroyed before its strategy; a zeroed struct is fine. */
void strata_owned_forget(strata_owned *owned);

/* The axes of a mesh: examples are divided over the first, the stages of a pipeline are at the coordinates of the second, and
 * parameters are divided over the third. Devices are numbered as in every mesh: the last axis changes first. */
enum { STRATA_DATA_AXIS = 0, STRATA_STAGE_AXIS, STRATA_TENSOR_AXIS, STRATA_N_MESH_AXES };

struct strata_strategy {
    /* The name of its kind. */
    const char *name;
    char choice[256];
    /* Owned: first one for each replica, then one that only stores and updates parameters, if there is one. */
    strata_device **devices;
    int n_devices, n_replicas;
    /* The devices as a grid. n_axes 0: there is no mesh, each device has all parameters and a share of the
     * examples. */
    strata_mesh mesh;
    /* Under a mesh. layout: the rules by which parameters are divided, NULL: they are chosen; schedule: the name of that of a
     * pipeline; both owned. microbatches: in how many parts a batch is computed. */
    char *layout, *schedule;
    int microbatches;
    /* What devices with different examples divide among themselves (strata_strategy_options.zero). */
    int zero;
    /* Where this worker's updates are made, with slots and the epoch's sums: along its own devices, axis 0. {0}: each device
     * updates its own copy. `at`: a device makes the update and sends the parameters to the others. */
    strata_placement update;
    /* [n_replicas] The weights of the replicas' shares; NULL: equal shares. */
    int64_t *weights;
    /* The weights are adapted to the replicas' speeds. */
    bool auto_split;
    /* The placement of parameters, states, slots and sums. NULL: copies, which are equal since each step adds up gradients.
     * Else each replica trains with its own, without exchanges, and after each `every` updates this function makes parameters
     * and states equal, or more alike. */
    strata_average *average;
    int64_t every;
    strata_owned *owned;
    /* Replaces fit's own loop; NULL: none. */
    const strata_trainer *trainer;
    void *trainer_data;
    /* With a trainer: how many replicas, on other tasks, a global batch is divided among. */
    int n_in_sync;
    strata_workers workers;
    /* The communicator that the strategy created from the environment; NULL: the caller passed one, or there is none. */
    void *joined;
    const strata_cross_device_ops *cross_device;
    /* The devices as cores of one system with collectives inside of programs; n 0: they are not. */
    strata_cores cores;
    strata_shard_optimizer shard_optimizer;
    /* Gradients are exchanged in buckets of about this many bytes, each as soon as it is computed. */
    int64_t bucket_bytes;
    /* How many variables were made so far. */
    int64_t n_variables;
};

enum { STRATA_DEFAULT_BUCKET_BYTES = 256 << 10, STRATA_DEFAULT_EVERY = 8 };

/* The position of a device in a group of all devices of the strategy; see strata_core_place. Its `cores` is NULL if the device
 * is no core with collectives. */
static inline strata_core_place strata_strategy_core_place(const strata_strategy *strategy, int device, const bool *counts) {
    return (strata_core_place){strategy->cores.n > 1 ? &strategy->cores : NULL, device, counts};
}

/* The team of the devices that compute examples, for a node of this graph. */
static inline strata_team strata_strategy_replicas(const strata_strategy *strategy, strata_graph *graph) {
    if (strategy->n_devices == strategy->n_replicas) return (strata_team){0};
    return strata_team_of_first(graph, strategy->n_replicas);
}

static inline bool strata_strategy_has_mesh(const strata_strategy *strategy) {
    return strategy->mesh.n_axes > 0;
}
/* The share of a replica among those of all workers' examples. Under a mesh several replicas have the same share, also replicas
 * of several workers. */
static inline int strata_strategy_global_share(const strata_strategy *strategy, int replica) {
    const int device = strategy->workers.first_replica + replica;
    return strata_strategy_has_mesh(strategy) ? strata_mesh_coordinate(&strategy->mesh, device, STRATA_DATA_AXIS) : device;
}
/* The number of shares in which this worker's examples are divided, and the share of a replica. */
static inline int strata_strategy_share_of(const strata_strategy *strategy, int replica) {
    return strata_strategy_global_share(strategy, replica) - strata_strategy_global_share(strategy, 0);
}
static inline int strata_strategy_n_shares(const strata_strategy *strategy) {
    return strata_strategy_share_of(strategy, strategy->n_replicas - 1) + 1;
}
/* Whether no replica before it, of any worker, has the same share. */
static inline bool strata_strategy_is_first_of_share(const strata_strategy *strategy, int replica) {
    if (!strategy->workers.first_replica && !replica) return true;
    return strata_strategy_global_share(strategy, replica - 1) != strata_strategy_global_share(strategy, replica);
}

static inline bool strata_strategy_has_workers(const strata_strategy *strategy) {
    return strategy->workers.n > 1;
}
/* Like strata_strategy_share, for a batch of this worker alone. */
void strata_strategy_local_share(const strata_strategy *strategy, int64_t batch, int replica, int64_t *out_first,
                                 int64_t *out_n);

/* Like all_gather, with the same number of bytes from each worker. */
STRATA_MUST_USE strata_status strata_workers_gather(const strata_workers *workers, const void *own, void *out_all, size_t bytes,
                                                    strata_error *err);
/* The same for parts of any size. *out_all, a pointer that the caller frees: all parts, in rank order. sizes: [n] bytes. */
STRATA_MUST_USE strata_status strata_workers_gather_parts(const strata_workers *workers, const void *own, size_t bytes,
                                                          void *out_all, int64_t *sizes, strata_error *err);
/* Sends rank 0's status to all workers. Returns this worker's own failure; else rank 0's, with this message. */
STRATA_MUST_USE strata_status strata_workers_share_status(const strata_workers *workers, strata_status status,
                                                          strata_error *err, const char *format, ...) STRATA_PRINTF(4, 5);
/* Replaces the value by that of rank 0. */
STRATA_MUST_USE strata_status strata_workers_share_double(const strata_workers *workers, double *value, strata_error *err);
/* How many seconds this worker's clock `now` is ahead of rank 0's; 0 on rank 0. Several messages are sent to rank 0 and back;
 * the one with the shortest round trip determines the offset, to within half of its time (as in NTP, RFC 5905, section 8). All
 * workers call it. */
STRATA_MUST_USE strata_status strata_workers_compare_clocks(const strata_workers *workers, double (*now)(void),
                                                            double *out_ahead, strata_error *err);
/* Like strata_strategy_share, for all replicas of a worker together. */
void strata_strategy_worker_share(const strata_strategy *strategy, int64_t global_batch, int worker, int64_t *out_first,
                                  int64_t *out_n);

/* seconds[r]: how long replica r took for its share of a batch; 0: not known. With auto_split, if a replica is more than a
 * tenth slower than the mean, sets the weights by the replicas' speeds. Returns whether shares have changed. */
bool strata_strategy_balance(strata_strategy *strategy, int64_t global_batch, const double *seconds);

/* How many steps the devices can get in one call, at most `asked` and at least 1. With several workers the host exchanges
 * values in each step. */
int strata_strategy_steps_per_call(const strata_strategy *strategy, int64_t asked);

/* Whether each of several replicas has parameters of its own between averages. */
bool strata_strategy_has_own(const strata_strategy *strategy);

/* Whether the device makes updates. */
static inline bool strata_strategy_updates(const strata_strategy *strategy, int device) {
    return !strategy->update.at || strategy->update.coordinates[0] == device;
}
/* The device from which variables are read: one that makes updates. */
static inline int strata_strategy_root(const strata_strategy *strategy) {
    return strategy->update.coordinates[0];
}

#endif
