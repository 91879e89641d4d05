/* SPDX-License-Identifier: Apache-2.0
 *
 * What the model sees of a strategy: devices, what each does in a step, shares of a batch. Kinds of strategies: strategies/. */
#ifndef STRATA_CORE_STRATEGY_H
#define STRATA_CORE_STRATEGY_H

#include "core/compile/collectives.h"
#include "core/op/communication.h"
#include "core/run/cross_device.h"
#include "strata/distribute.h"

/* The workers of a job, each with a strategy of its own: what they do together. */
typedef struct strata_workers {
    /* n 0 or 1: there is this one alone. */
    int rank, n;
    /* Of this worker's replicas; of all workers together. */
    int first_replica, n_replicas;
    /* The same on all workers: the sum of `own` over them in rank order, which for f32 may travel as `wire` (F16 or BF16; F32:
     * as it is), into out_sum, which may be `own` itself; in place, rank 0's value. */
    strata_status (*sum)(const struct strata_workers *workers, strata_dtype dtype, strata_dtype wire, const void *own,
                         void *out_sum, int64_t elements, strata_error *err);
    strata_status (*broadcast)(const struct strata_workers *workers, strata_dtype dtype, void *data, int64_t elements,
                               strata_error *err);
    /* Part r of the workers' sum goes to worker r: `own` is the whole, of counts[0] + counts[1] + ... elements, out_part gets
     * counts[rank] elements. The bits are those of `sum`. */
    strata_status (*reduce_scatter)(const struct strata_workers *workers, strata_dtype dtype, strata_dtype wire,
                                    const void *own, void *out_part, const size_t *counts, strata_error *err);
    /* The workers' bytes end to end, in rank order: bytes[w] of worker w. */
    strata_status (*all_gather)(const struct strata_workers *workers, const void *own, void *out_all, const size_t *bytes,
                                strata_error *err);
    /* A value of so many bytes to another worker, which receives it in the same channel; values of a channel keep their
     * order. */
    strata_status (*send)(const struct strata_workers *workers, int to, int64_t channel, const void *data, size_t bytes,
                          strata_error *err);
    strata_status (*receive)(const struct strata_workers *workers, int from, int64_t channel, void *data, size_t bytes,
                             strata_error *err);
    /* Says which step goes on, from 1, for messages about lost workers. */
    void (*at_step)(const struct strata_workers *workers, int64_t step);
    /* Their devices are of several kinds, whose updates may differ in the last bit: rank 0's count. */
    bool mixed;
    uint64_t (*bytes_sent)(const struct strata_workers *workers); /* by this worker, since it joined */
    /* The type in which gradients travel between workers. */
    strata_dtype wire;
    /* [n + 1] of each worker's replicas; the last one: of all. The strategy's own. */
    int *first_replicas;
    /* The strata_communicator of the workers; borrowed. */
    void *communicator;
} strata_workers;

/* The exchanges of a training step over several replicas. A kind of strategy builds them into the graph of each device;
 * every device builds the same exchanges in the same order. */
typedef struct strata_step_exchanges {
    /* The sum or mean of x over the replicas, for the devices that update. x is NULL on a device without a replica. On a device
     * that does not update the result is an empty node, which the caller keeps alive as an update. */
    strata_tensor *(*sum)(const strata_strategy *strategy, int device, strata_graph *graph, strata_tensor *x,
                          strata_all_reduce_attrs attrs);
    /* Brings a new value of a variable to the devices that did not compute it. `updated` is the update that this device made of
     * `variable`; NULL: it makes none. Returns an update to keep alive; NULL: this device takes part in no exchange. */
    strata_tensor *(*share)(const strata_strategy *strategy, int device, strata_graph *graph, strata_tensor *variable,
                            strata_tensor *updated);
} strata_step_exchanges;

/* The replica in whose graph a rewrite builds ops. */
typedef struct strata_step_replica {
    /* Its number among the n replicas of all workers. */
    int index, n;
    /* Makes `node` part of the step although nothing reads its value, as for strata_send; returns the node. A node that is
     * neither read nor kept is left out of the step. */
    strata_tensor *(*keep)(const struct strata_step_replica *replica, strata_tensor *node);
    /* The step that keep adds to. */
    struct strata_step_builder *builder;
} strata_step_replica;

/* How a kind's training step differs from "add up the gradients of all replicas, then update": two functions that build ops
 * into the graph of every replica. The graph is that of their operands. Each is called once for each flat range of parameters
 * that a device binds in one piece (most models have one); shapes are (elements of the range), dtypes f32. All replicas build
 * the same exchanges in the same order. */
typedef struct strata_step_rewrite {
    /* Returns the gradients that the replica's optimizer takes (optional; NULL: the sum over all replicas).
     *   own    gradients of the loss of the replica's own examples, each example weighted by 1 / (examples of the global
     *          batch): the sum of `own` over all replicas is the gradient of the mean loss
     *   share  a scalar, the replica's examples / the examples of the global batch; 0 where it has no examples.
     *          strata_rewrite_own_mean (strategies/kinds.h) divides by it */
    strata_tensor *(*gradients)(const strata_step_replica *replica, strata_tensor *own, strata_tensor *share);
    /* Returns the parameters after the step (optional; NULL: `updated`). updated: the parameters after the replica's optimizer
     * has changed them. */
    strata_tensor *(*parameters)(const strata_step_replica *replica, strata_tensor *updated);
} strata_step_rewrite;

struct strata_manifest;

/* Training of a strategy whose workers make no step together. */
typedef struct strata_trainer {
    /* What strata_model_fit does once model, data and options were checked. opts has its defaults; history has room for its
     * epochs. */
    strata_status (*fit)(strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                         strata_history *history, strata_error *err);
    /* Before a model is saved in a callback of fit: what workers have is finished, and the model gets its position within the
     * epoch, its sums and the count of updates; with `values` also parameters, states and slots. Training goes on when the
     * callback returns. Nothing happens where it is not fit that runs. NULL: the model always has all of it. */
    strata_status (*settle)(strata_model *model, bool values, strata_error *err);
    /* After settle: the tasks that own parameters, states and slots write them into files of the folder, and the manifest gets
     * these files and what they have. *out_written false: nothing was written, as the model has everything. NULL: so always. */
    strata_status (*write_parts)(strata_model *model, const char *folder, struct strata_manifest *manifest, bool *out_written,
                                 strata_error *err);
    void (*destroy)(void *data);
} strata_trainer;

/* Something that was made with a strategy: a model, variables, an optimizer, batches, a function. What is still there when the
 * strategy is destroyed is destroyed with it, the newest first. */
typedef struct strata_owned {
    struct strata_owned *next, **link;
    /* Destroys the object, which forgets this. */
    void (*destroy)(void *object);
    void *object;
} strata_owned;
void strata_strategy_own(strata_strategy *strategy, strata_owned *owned, void (*destroy)(void *object), void *object);
/* The object is destroyed by itself; zeroed is fine. */
void strata_owned_forget(strata_owned *owned);

struct strata_strategy {
    /* The name of its kind. */
    const char *name;
    char choice[256];
    /* Its own; first one a replica, then one that keeps parameters only, if there is one. */
    strata_device **devices;
    int n_devices, n_replicas;
    /* The device that makes the update and sends the parameters to the others; -1: each updates its own copy. */
    int updater;
    /* [n_replicas] of the shares; NULL: equal. */
    int64_t *weights;
    /* weights are there, and follow the replicas' speeds. */
    bool auto_split;
    /* [n_replicas], room for new weights: the other half of `weights`. */
    int64_t *measured;
    /* NULL: none. */
    const strata_step_rewrite *rewrite;
    const strata_step_exchanges *exchanges;
    strata_owned *owned;
    /* Trains instead of fit's own loop; NULL: none. */
    const strata_trainer *trainer;
    void *trainer_data;
    /* With a trainer: how many replicas of other tasks share a global batch. */
    int n_in_sync;
    strata_workers workers;
    /* The communicator that the strategy made itself, from the environment; NULL: it was given one, or has none. */
    void *joined;
    const strata_cross_device_ops *cross_device;
    /* Takes the buckets of gradient programs, by its function `send`; the programs' only other worker. NULL: gradients are
     * outputs of these programs. */
    const strata_workers *sink;
    /* The devices as cores of one system that exchange by themselves; n 0: they are not. */
    strata_cores cores;
    strata_shard_optimizer shard_optimizer;
    /* gradients are communicated in parts of about this size, each as soon as it is there. */
    int64_t bucket_bytes;
};

enum { STRATA_DEFAULT_BUCKET_BYTES = 256 << 10 };

/* A variable with a copy on each replica's device. */
struct strata_distributed_variable {
    strata_strategy *strategy;
    strata_synchronization synchronization;
    strata_aggregation aggregation;
    /* [strategy->n_replicas]. */
    strata_variable **copies;
    /* Of a model's parameters: the model, and which of its blocks. NULL: a variable by itself. */
    strata_model *model;
    int block;
    strata_owned owned;
};

/* The place of a device in a group of all of the strategy's devices; counts as in strata_core_place. cores NULL: it is no core
 * that exchanges by itself. */
static inline strata_core_place strata_strategy_core_place(const strata_strategy *strategy, int device, const bool *counts) {
    return (strata_core_place){strategy->cores.n > 1 ? &strategy->cores : NULL, device, counts};
}

static inline bool strata_strategy_has_workers(const strata_strategy *strategy) {
    return strategy->workers.n > 1;
}
/* As strata_strategy_share, of what this worker does by itself. */
void strata_strategy_local_share(const strata_strategy *strategy, int64_t batch, int replica, int64_t *out_first,
                                 int64_t *out_n);

/* As all_gather, of as many bytes from each worker. */
STRATA_MUST_USE strata_status strata_workers_gather(const strata_workers *workers, const void *own, void *out_all, size_t bytes,
                                                    strata_error *err);
/* How many seconds this worker's clock `now` is ahead of rank 0's, which is 0 on rank 0. Of several messages there and back the
 * one that took least time says it, to within half of that time (as in NTP, RFC 5905, section 8). All workers call it. */
STRATA_MUST_USE strata_status strata_workers_compare_clocks(const strata_workers *workers, double (*now)(void),
                                                            double *out_ahead, strata_error *err);
/* As strata_strategy_share, of all replicas of a worker together. */
void strata_strategy_worker_share(const strata_strategy *strategy, int64_t global_batch, int worker, int64_t *out_first,
                                  int64_t *out_n);

/* seconds[r]: what replica r took for its share of a batch, 0: not known. With auto_split and one replica more than a tenth
 * slower than the mean, sets the weights by speed. Returns whether shares have changed. */
bool strata_strategy_balance(strata_strategy *strategy, int64_t global_batch, const double *seconds);

/* Whether the device makes updates. */
static inline bool strata_strategy_updates(const strata_strategy *strategy, int device) {
    return strategy->updater < 0 || strategy->updater == device;
}
/* A device that does: the one whose variables are read. */
static inline int strata_strategy_root(const strata_strategy *strategy) {
    return strategy->updater < 0 ? 0 : strategy->updater;
}

#endif
