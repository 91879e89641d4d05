/* SPDX-License-Identifier: Apache-2.0
 *
 * Strategies: how training is divided among devices and processes. The names are those of tf.distribute.
 *
 *     strata_strategy_create("mirrored", &(strata_strategy_options){.devices = ids, .n_devices = 2}, &strategy, &err);
 *     strata_strategy_device(strategy, replica)      for each of strata_strategy_num_replicas_in_sync(strategy)
 *
 * A *replica* is one copy of the training step on one device. Replicas share a global batch. strata_all_reduce adds their
 * values in replica order, so losses are those of one device on the same batches. */
#ifndef STRATA_STRATEGY_H
#define STRATA_STRATEGY_H

#include "strata/cluster.h"
#include "strata/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_strategy strata_strategy;

/* Whether each replica makes the optimizer's update of all parameters, or only of a shard of them that it owns. */
typedef enum strata_shard_optimizer {
    /* Strata decides. Today it does not shard: the added all_gather has cost more than the divided update saves wherever both
     * were measured (tests/bench/strategies.sh). */
    STRATA_SHARD_OPTIMIZER_AUTO,
    STRATA_SHARD_OPTIMIZER_YES,
    STRATA_SHARD_OPTIMIZER_NO
} strata_shard_optimizer;

/* How the workers of parameter_server are synchronized. */
typedef enum strata_pace {
    /* Workers do not wait for each other: a server applies a gradient when it arrives. */
    STRATA_PACE_ASYNCHRONOUS,
    /* Like ASYNCHRONOUS, but no worker is more than `staleness` steps ahead of the slowest one (Ho et al. 2013, stale
     * synchronous). */
    STRATA_PACE_BOUNDED,
    /* A step is one update with the gradients of all workers, each of a share of the global batch. */
    STRATA_PACE_SYNCHRONOUS
} strata_pace;

/* How a server applies an old gradient, that is one whose worker pulled the parameters before other gradients were applied. */
typedef enum strata_old_gradients {
    /* If gradients are s updates old, the optimizer's momentum beta is replaced by beta^(1 / (s + 1)), so that momentum
     * lasts for as many examples as without a delay. With W workers s is W - 1, because workers pull just before they
     * compute. With two workers s is 3, because they pull while they compute, as with PLAIN. Workers get parameters that
     * are extrapolated along the last update: to where momentum will have moved them when the gradient arrives, and once
     * more by the same amount (Kosson and others, Pipelined Backpropagation at Scale, 2021). Rows of sparse parameters are
     * neither extrapolated nor updated differently. With one worker, or an optimizer without momentum, updates are those of
     * PLAIN. */
    STRATA_OLD_GRADIENTS_CORRECTED,
    /* Like any other gradient. Workers pull the next parameters while they compute, which makes gradients about twice as old:
     * 2 W - 1 updates instead of W - 1. */
    STRATA_OLD_GRADIENTS_PLAIN
} strata_old_gradients;

/* Options of the strategy parameter_server. Zeros are the defaults; texts are borrowed during create. */
typedef struct strata_parameter_server_options {
    /* The cluster and this task of it, as in strata_cluster_options (strata/cluster_spec.h); NULL: they are read from the
     * environment. The cluster has a chief, workers and parameter servers (ps). */
    const char *cluster, *task;
    strata_pace pace;
    /* For BOUNDED, at least 1. */
    int64_t staleness;
    /* For SYNCHRONOUS: how many workers' gradients a step does not wait for. It ends when all others are there, and
     * gradients that come later do not count. Less than the number of workers. */
    int backup;
    /* 1: each server's shards are also on the next server, and a push counts when both have it, so a server may be lost; needs
     * two servers. 0: there are no copies. */
    int replicas;
    /* For ASYNCHRONOUS and BOUNDED; with SYNCHRONOUS no gradient is old. */
    strata_old_gradients old_gradients;
    /* How parameters are divided into shards along their first axis: "fixed:2" (this number of shards), "min_size:256K" (as
     * many as have at least 256 KiB each, at most one for each server), "max_size:4M" (as few as have at most 4 MiB each);
     * NULL: they are not divided. Shards are distributed among the servers by their sizes in bytes. */
    const char *partitioner;
    /* secret, tls_..., interface, insecure, connect_seconds and heartbeat_seconds are used. NULL: the secret is that of
     * STRATA_SECRET. */
    const strata_communicator_options *communication;
} strata_parameter_server_options;

/* The bins of the staleness histogram: 0, 1, 2, 3, 4 to 7, 8 to 15, 16 to 31, and 32 or more updates. */
enum { STRATA_STALENESS_BINS = 8 };

/* Staleness and load of parameter_server in some period. */
typedef struct strata_parameter_server_load {
    /* Pushes of gradients to servers. The *staleness* of one is how many updates the server had made between the worker's pull
     * and its push; in synchronous training it is 0. */
    int64_t pushes;
    double staleness_mean;
    int64_t staleness_max;
    int64_t staleness_histogram[STRATA_STALENESS_BINS];
    /* The share of pushes with a staleness above 0. */
    double stale_share;
    /* How many batches (or shares of a batch) workers were computing, measured whenever a worker requested the next one. */
    double leases_mean;
    int leases_max;
    /* The most pulls and pushes that one server had at a time, including those that waited. */
    int server_pulls_max, server_pushes_max;
} strata_parameter_server_load;

/* Statistics that the chief of parameter_server has of the training. */
typedef struct strata_parameter_server_totals {
    /* Workers and servers of the cluster; workers that are connected now. */
    int workers, servers, present;
    /* How often a worker was lost, and how often one joined after the training had begun. */
    int64_t lost, joined;
    /* Sums over the whole training, and over the epoch that runs or has just ended. */
    strata_parameter_server_load training, epoch;
    /* Steps between the fastest worker and the slowest. */
    int64_t spread;
    /* Workers whose steps take more than twice the median of all workers' steps. */
    int stragglers;
    /* The number of the worker with the longest steps, and the ratio of their time to the median of all workers' steps. -1
     * and 0 unless the times of two workers are known. */
    int slowest;
    double slowest_ratio;
    /* running: batches (or shares of a batch) that workers compute now. waiting: those of lost workers, which wait for
     * another worker. */
    int running, waiting;
    /* late: gradients that came too late to count. refused: gradients that were not used because they were not finite. */
    int64_t late, refused;
    /* How many notices there were (strata_strategy_parameter_server_notice). */
    int64_t notices;
    /* The mean number of bytes that a worker pushes and pulls for a batch (or its share of one), without headers of
     * messages. */
    double bytes_per_step;
} strata_parameter_server_totals;

/* Statistics that the chief has of one worker. */
typedef struct strata_parameter_server_worker {
    /* It is connected now. */
    bool present;
    /* Batches (or shares of one) that it finished and that count, and their examples: since the training began, and in the
     * epoch that runs or has just ended. */
    int64_t steps, examples, epoch_steps, epoch_examples;
    /* Seconds of one of its steps, from its wait for the parameters to the end of its push, a moving mean; 0: not known. */
    double step_seconds;
} strata_parameter_server_worker;

typedef struct strata_strategy_options {
    /* [n_devices] Names for strata_device_open; NULL: the strategy chooses. */
    const char *const *devices;
    int n_devices;
    /* NULL: the defaults. */
    const strata_device_options *device_options;
    /* central_storage and parameter_server: the device that stores and updates the parameters; NULL: "host". */
    const char *parameter_device;
    /* tpu: which system of cores to use. "local": the first system of this machine; several workers on the machine use one
     * each. Otherwise the name of a system or of its plugin, or the value of the environment variable TPU_NAME, which means the
     * local system. NULL: the value of TPU_NAME, else "local". */
    const char *tpu_address;
    /* [n_split] Weights of the replicas' shares of a batch, one for each replica, 1..1000000; NULL: equal shares. */
    const int64_t *split;
    int n_split;
    /* multi_worker_mirrored and tpu: connects the workers. Borrowed; it must outlive the strategy. NULL: the strategy
     * connects those that the environment names (strata/cluster_spec.h), with the secret in STRATA_SECRET. */
    strata_communicator *communicator;
    /* The shares of a batch are adapted to the replicas' speeds, which are measured from time to time while a model trains. */
    bool auto_split;
    /* multi_worker_mirrored and tpu: gradients are rounded to F16 or BF16 before they are sent to other workers, and are added
     * up in f32. parameter_server: gradients and parameters are sent as BF16. F32 (0): nothing is rounded. */
    strata_dtype compress;
    /* multi_worker_mirrored: the index of this worker among the local_size workers of its machine, which divide the
     * accelerators among themselves where no devices are named. local_size 0: it is the only worker of its machine. */
    int local_rank, local_size;
    /* Gradients are exchanged in packs of about this size (buckets), those of the last layers first, while the device still
     * computes the gradients of earlier layers. 0: 256 KiB, or one pack for all gradients where the devices are the CPU's own
     * cores and there are either no other workers or more workers on the machine than cores. parameter_server: workers push
     * such packs; 0: 1 MiB, with the same exception. */
    int64_t bytes_per_pack;
    /* How the values of a worker's replicas are added up, one of strata_cross_device_names; NULL: "host". */
    const char *cross_device_ops;
    /* For mirrored and multi_worker_mirrored: with YES replica r of R receives the sum of the gradients of its shard only
     * (reduce_scatter), owns the optimizer's slots of that shard only, updates it, and sends the new parameters to the
     * others (all_gather). Parameters have the same bits as with NO. Models with sparse parameters, and groups of different
     * devices, of which one makes the update, cannot be sharded: compile fails with INVALID for YES. All workers choose
     * alike. */
    strata_shard_optimizer shard_optimizer;
    /* For parameter_server; NULL: the defaults. */
    const strata_parameter_server_options *parameter_server;
    /* model_parallel: the sizes of the axes of the mesh of devices, such as "data=2,stage=2,tensor=4"; an axis that is not
     * named has the size 1. Their product is the number of devices, which are numbered so that their place along tensor changes
     * first, then along stage, then along data. NULL: all devices are stages. */
    const char *mesh;
    /* model_parallel: JSON that says which dimensions of which parameters are divided over which axes, as Keras' LayoutMap:
     *     {"dense(_[0-9]+)?/kernel": [null, "tensor"], "embedding/embeddings": ["tensor", null]}
     * A pattern is a POSIX extended regular expression that matches a part of a parameter's name. Parameters without a rule are
     * whole. NULL: a layout is chosen from bytes and operations. */
    const char *layout;
    /* model_parallel: in how many micro-batches the stages compute each batch; the gradients are added up, so results are those
     * of one device that accumulates the gradients of so many batches. 0: 1. */
    int microbatches;
    /* model_parallel: what the devices along data divide among themselves instead of having copies (ZeRO). 1: the optimizer's
     * slots; 2: also the gradients that are added up over micro-batches; 3: also the parameters, which are gathered where they
     * are used. 0: nothing. */
    int zero;
    /* model_parallel: the order in which stages compute their parts of micro-batches: "gpipe", "1f1b", "interleaved:V" (V parts
     * of the model at each stage) or "zero_bubble". NULL: "1f1b". */
    const char *schedule;
    /* local_sgd: after how many updates the replicas' parameters are averaged; 0: 8. All workers choose alike. */
    int64_t every;
} strata_strategy_options;

/* The cross-device ops, NULL-terminated:
 *
 *     "host"      on the host, in replica order: r0 + r1 + r2 + ...
 *     "tree"      on the host, in pairs: (r0 + r1) + (r2 + r3); the error grows with the logarithm of the replicas' number
 *     "device"    by the first replica's device, in replica order
 *
 * f32 sums that a device adds have the same bits as the host's, unless the device flushes denormal numbers to 0. */
extern STRATA_API const char *const strata_cross_device_names[];

/* Opens the devices of a strategy. `name` is one of strata_strategy_names; opts may be NULL.
 *
 *     "default"                  one replica on the best device; it takes no device names
 *     "one_device"               one replica on the device that is named, or on the best one
 *     "mirrored"                 a replica on each device
 *     "central_storage"          a replica on each device; the parameter device updates the parameters for all of them
 *     "multi_worker_mirrored"    mirrored in each worker of a job
 *     "tpu"                      a replica on each core of a system of cores, a TPU or a plugin's accelerator like it
 *     "local_sgd"                a replica on each device of each worker, with parameters of its own that are averaged
 *     "model_parallel"           a mesh of devices that share the model: stages of a pipeline, and parts of its parameters
 *     "parameter_server"         a replica on the device of each worker; servers own the parameters and update them
 *     "auto"                     mirrored where there are several accelerators, else one_device
 *
 * mirrored can use devices of different APIs and vendors together. Without names it uses every accelerator (GPUs and plugins; a
 * GPU that several APIs list is used once), or the best CPU where there is none. "host" may be named several times, and each is
 * a replica. If all devices are of the same kind, each makes the same update. Devices of different kinds may differ in the last
 * bit, so the first device makes the update and sends the new parameters to the others.
 *
 * central_storage chooses its replicas as mirrored does. The parameter device has the optimizer's slots, makes the update, and
 * sends the new parameters to the replicas.
 *
 * multi_worker_mirrored divides the machine's accelerators among the workers of that machine. Every worker creates the strategy
 * at about the same time, trains the same model on the same data in the same order, and takes its share of each batch. All
 * workers begin with the initial parameters of the chief, rank 0.
 *
 * tpu takes all cores of one system, or those that are named, in the order of their numbers in the system. It trains as
 * mirrored does, and as multi_worker_mirrored does where there are several workers, each with a system of its own. Cores whose
 * driver offers it add up by themselves, inside of their programs, and take several steps in one call
 * (strata_fit_options.steps_per_execution, strata_strategy_run_batches); so do those of a mirrored strategy. Creating the
 * strategy initializes the system (each core's memory is new), destroying it shuts it down. strata_device_get_topology has each
 * core's place.
 *
 * local_sgd chooses devices as mirrored does in a single process, and as multi_worker_mirrored does in each worker of a job.
 * Each replica trains on its share of the batches with its own parameters, moving statistics and optimizer slots, and its loss
 * is the mean over its own examples. After every `every` updates, at the end of an epoch and at the end of a fit, parameters
 * and moving statistics become the mean over all replicas of all workers. Slots stay each replica's own. A replica without
 * examples in a step does not change. Between averages a worker that reads, evaluates or saves the model (in a callback) uses
 * the mean of its own replicas, and the training goes on as if it had not. Checkpoints contain the values of each replica. The
 * loss of a step is that of this worker's examples, and that of an epoch is that of all. shard_optimizer YES, compress and
 * bytes_per_pack are INVALID, since no gradients are exchanged, and a fit of a model with synchronized batch norm fails with
 * UNSUPPORTED. Custom loops (strata/distribute.h) make the exchanges that they name, as under mirrored.
 *
 * parameter_server: all tasks of the cluster run the same program. strata_model_fit trains on the workers, serves on the
 * servers until the training is over, and coordinates on the chief, which has the callbacks, the evaluation and the model at
 * the end. Workers compute with parameters that they pull from the servers, and push gradients; each server updates its shards
 * of the parameters. The chief gives the batches of an epoch to the workers that ask for one, so each is used once, also when a
 * worker is lost or joins. Initial parameters are the chief's. Each task uses one device. An evaluator task takes no part in
 * the training: there strata_model_fit fails with INVALID, and strata_model_watch_checkpoints evaluates the chief's
 * checkpoints.
 *
 * Fails: INVALID for an unknown name (the message has the nearest one), unknown cross-device ops, a device other than "host"
 * that is named twice, or a wrong number of devices; else what opening a device fails with. Threads: as strata_device_open. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_create(const char *name, const strata_strategy_options *opts,
                                                                strata_strategy **out_strategy, strata_error *err);
/* A mirrored strategy over devices that the caller opened. The strategy takes them, even on failure. For tests, several of them
 * may be the same hardware. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_from_devices(strata_device *const *devices, int n_devices,
                                                                      strata_strategy **out_strategy, strata_error *err);
/* Destroys all objects that were made with the strategy (models, and those of strata/distribute.h), and closes the devices.
 * NULL is fine. */
STRATA_API void strata_strategy_destroy(strata_strategy *strategy);

/* NULL-terminated. */
extern STRATA_API const char *const strata_strategy_names[];

/* Whether the strategy of this name trains on the devices of several processes, which strata_strategy_options.communicator
 * connects; and whether replicas have parameters of their own, which are averaged after every `every` updates. false: there is
 * no such strategy. */
STRATA_API bool strata_strategy_spans_processes(const char *name);
STRATA_API bool strata_strategy_averages(const char *name);

/* The name of the strategy; for "auto" the name of the one that it chose. */
STRATA_API const char *strata_strategy_name(const strata_strategy *strategy);
/* One line that says which devices were chosen, and why. */
STRATA_API const char *strata_strategy_choice(const strata_strategy *strategy);
/* How many replicas all workers have together, how many this worker has (their numbers begin at 0), and how many workers there
 * are. */
STRATA_API int strata_strategy_num_replicas_in_sync(const strata_strategy *strategy);
STRATA_API int strata_strategy_num_local_replicas(const strata_strategy *strategy);
STRATA_API int strata_strategy_num_workers(const strata_strategy *strategy);
/* Whether the devices of several workers are one mesh. Each worker may then have only parts of the model, so all workers read,
 * evaluate and save it together, and a callback, which is not called on all of them, cannot. */
STRATA_API bool strata_strategy_mesh_has_workers(const strata_strategy *strategy);
/* Whether this is the only worker or rank 0: the one that prints and saves. */
STRATA_API bool strata_strategy_is_chief(const strata_strategy *strategy);
/* Statistics of parameter_server, on its chief; zeros on other tasks and strategies. Threads: any, also in callbacks. */
STRATA_API strata_parameter_server_totals strata_strategy_parameter_server_totals(const strata_strategy *strategy);
/* The same for the worker with this number; zeros where there is no such worker. */
STRATA_API strata_parameter_server_worker strata_strategy_parameter_server_worker(const strata_strategy *strategy, int worker);
/* A sentence about an event of a task: "worker:1 was lost ...". The newest 32 are stored. */
typedef struct strata_parameter_server_notice {
    char text[400];
} strata_parameter_server_notice;
/* Notice `number`, counted from 0; "" where there is none, or where it is older than the newest 32. Threads: any. */
STRATA_API strata_parameter_server_notice strata_strategy_parameter_server_notice(const strata_strategy *strategy,
                                                                                  int64_t number);
STRATA_API strata_device *strata_strategy_device(const strata_strategy *strategy, int replica); /* borrowed */

/* The replica computes the examples *out_first .. *out_first + *out_n - 1 of a global batch. Each replica has
 * floor(global_batch / replicas) examples or, the first ones, one more; where there are fewer examples than replicas, some have
 * none. With a split, each has the floor of its exact share, and those with the largest remainders have one more. */
STRATA_API void strata_strategy_share(const strata_strategy *strategy, int64_t global_batch, int replica, int64_t *out_first,
                                      int64_t *out_n);

/* The cost of the exchanges between replicas; zeros (and imbalance 1) with one replica. */
typedef struct strata_communication_totals {
    /* Seconds that the host spent on adding up and copying values. */
    double seconds;
    /* The share of these seconds in which devices had further work of the same step. */
    double hidden;
    /* Bytes of the replicas' values that were read and written in a step. */
    double bytes_per_step;
    /* Bytes that this worker sent to other workers in a step; 0 with one worker. */
    double wire_bytes_per_step;
    /* The slowest replica's time for its share of a step, divided by the mean of all. */
    double imbalance;
    /* Of the last fit of a pipeline (0 without micro-batches): the share of its steps in which a stage waited, the mean over
     * stages; the same by the schedule, if all stages needed the same time and messages none; and the stage that computed
     * longest, with its time divided by the mean of all. */
    double bubble, planned_bubble;
    int slowest_stage;
    double stage_imbalance;
} strata_communication_totals;

#ifdef __cplusplus
}
#endif
#endif
