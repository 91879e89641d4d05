/* SPDX-License-Identifier: Apache-2.0
 *
 * Strategies: on which devices a program trains, with the words of tf.distribute:
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

typedef struct strata_strategy_options {
    /* Names as strata_device_open takes them; NULL: the strategy chooses. */
    const char *const *devices;
    int n_devices;
    /* NULL: the defaults. */
    const strata_device_options *device_options;
    /* central_storage: the device that stores and updates the parameters; NULL: "host". */
    const char *parameter_device;
    /* [n_split] Weights of the replicas' shares of a batch, one for each replica, 1..1000000; NULL: equal shares. */
    const int64_t *split;
    int n_split;
    /* multi_worker_mirrored: connects the workers. Borrowed; it must outlive the strategy. */
    strata_communicator *communicator;
    /* Shares follow the replicas' speeds, which are measured now and then while a model trains. */
    bool auto_split;
    /* multi_worker_mirrored: gradients travel between workers as F16 or BF16, rounded, and are added up in f32. F32 (0): as
     * they are. */
    strata_dtype compress;
    /* multi_worker_mirrored: the place of this worker among those of its machine. They divide the accelerators where no devices
     * are named. local_size 0: this worker is alone on its machine. */
    int local_rank, local_size;
    /* Gradients travel in parts of about this size; 0: 256 KiB. */
    int64_t bytes_per_pack;
    /* How the values of a worker's replicas are added up; NULL: "host". */
    const char *cross_device_ops;
} strata_strategy_options;

/* The cross-device ops, NULL-terminated:
 *   "host"    folded on the host in replica order: r0 + r1 + r2 + ...
 *   "tree"    on the host in pairs: (r0 + r1) + (r2 + r3); the error grows with the logarithm of the replicas' number
 *   "device"  the first replica's device adds them, in replica order. The f32 sums of two devices have the host's bits where
 *             that device
 *             keeps denormal numbers */
extern STRATA_API const char *const strata_cross_device_names[];

/* Opens the devices. `name` is one of strata_strategy_names:
 *   "default"     the best device there is; takes no device names
 *   "one_device"  the one device that is named, or the best
 *   "mirrored"    a replica on each device named; "host" may be named several times, each a replica. Without names on every
 *                 accelerator (GPU or plugin; one that several APIs show counts once), or on the best CPU where there is none.
 *                 Any
 *                 APIs and vendors together. Devices of one kind each make the same update; in a mixed group, whose arithmetic
 *                 may
 *                 differ in the last bit, the first device makes it for all
 *   "central_storage"  replicas as in mirrored; one device, the parameter device, stores the optimizer's slots, makes the
 *                      update and
 *                 sends the new parameters to the replicas
 *   "multi_worker_mirrored"  mirrored in each worker of a job, on its part of the machine's accelerators. Every worker creates
 *                            it at about
 *                 the same time, trains the same model on the same data in the same order, and takes its share of each batch.
 *                 All
 *                 workers begin with the initial parameters of the chief (rank 0)
 *   "auto"        mirrored where there are several accelerators, else one_device
 * Fails: INVALID for an unknown name (with the nearest) or unknown cross-device ops, a device other than "host" that is named
 * twice, or a wrong number of devices; what opening a device fails with. Thread: as strata_device_open. opts may be NULL. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_create(const char *name, const strata_strategy_options *opts,
                                                                strata_strategy **out_strategy, strata_error *err);
/* A mirrored strategy over devices that the caller opened, which it takes, even on failure. The same hardware may be there
 * several times, for tests. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_from_devices(strata_device *const *devices, int n_devices,
                                                                      strata_strategy **out_strategy, strata_error *err);
/* Closes the devices: after all made on them is destroyed. NULL is fine. */
STRATA_API void strata_strategy_destroy(strata_strategy *strategy);

/* NULL-terminated. */
extern STRATA_API const char *const strata_strategy_names[];

STRATA_API const char *strata_strategy_name(const strata_strategy *strategy);         /* "auto" has become what it chose */
STRATA_API const char *strata_strategy_choice(const strata_strategy *strategy);       /* one line: which devices, and why */
STRATA_API int strata_strategy_num_replicas_in_sync(const strata_strategy *strategy); /* of all workers */
STRATA_API int strata_strategy_num_local_replicas(const strata_strategy *strategy); /* of this worker, by the numbers from 0 */
STRATA_API int strata_strategy_num_workers(const strata_strategy *strategy);
STRATA_API strata_device *strata_strategy_device(const strata_strategy *strategy, int replica); /* borrowed */

/* The examples [*out_first, *out_first + *out_n) of a global batch are the replica's. Each replica has floor or ceil of global
 * / replicas, the first ones the larger share; 0 where there are fewer examples than replicas. With a split each has the floor
 * of its exact share, and those with the largest remainders one more. */
STRATA_API void strata_strategy_share(const strata_strategy *strategy, int64_t global_batch, int replica, int64_t *out_first,
                                      int64_t *out_n);

/* What exchanges between the replicas have cost; zeros (imbalance 1) with one replica. */
typedef struct strata_communication_totals {
    double seconds;             /* adding up and copying */
    double hidden;              /* share of them while devices had further work of the same step */
    double bytes_per_step;      /* read and written, of all replicas */
    double wire_bytes_per_step; /* that this worker sent to others; 0 with one */
    double imbalance;           /* the slowest replica's time for its share of a step, over the mean */
} strata_communication_totals;

#ifdef __cplusplus
}
#endif
#endif
