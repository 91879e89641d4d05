/* SPDX-License-Identifier: Apache-2.0
 *
 * What the model sees of a strategy: devices, what each does in a step, shares of a batch. Kinds of strategies: strategies/. */
#ifndef STRATA_CORE_STRATEGY_H
#define STRATA_CORE_STRATEGY_H

#include "core/run/cross_device.h"
#include "strata/strategy.h"

/* The workers of a job, each with a strategy of its own: what they do together. */
typedef struct strata_workers {
    int rank, n;                   /* n 0 or 1: there is this one alone */
    int first_replica, n_replicas; /* of this worker's replicas; of all workers together */
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
    /* Says which step goes on, from 1, for messages about lost workers. */
    void (*at_step)(const struct strata_workers *workers, int64_t step);
    bool mixed; /* their devices are of several kinds, whose updates may differ in the last bit: rank 0's count */
    uint64_t (*bytes_sent)(const struct strata_workers *workers); /* by this worker, since it joined */
    strata_dtype wire;                                            /* of gradients */
    int *first_replicas; /* [n + 1] of each worker's replicas; the last one: of all. The strategy's own */
    void *communicator;  /* borrowed */
} strata_workers;

/* How a kind's training step differs from adding up the gradients before each update: built into every replica's graph. */
typedef struct strata_step_rewrite {
    /* What the replica's update takes, of the gradients of its own examples, which are weighted by 1 / (batch of all). share:
     * its part of that batch, a scalar; 0 where it has no examples. */
    strata_tensor *(*gradients)(strata_tensor *own, strata_tensor *share);
    /* What its parameters become, of what the update made of them. */
    strata_tensor *(*parameters)(strata_tensor *updated);
} strata_step_rewrite;

struct strata_strategy {
    const char *name; /* of its kind */
    char choice[256];
    strata_device **devices; /* its own; first one a replica, then one that keeps parameters only, if there is one */
    int n_devices, n_replicas;
    int updater; /* the device that makes the update and sends the parameters to the others; -1: each updates its own copy */
    int64_t *weights;                   /* [n_replicas] of the shares; NULL: equal */
    bool auto_split;                    /* weights are there, and follow the replicas' speeds */
    int64_t *measured;                  /* [n_replicas], room for new weights: the other half of `weights` */
    const strata_step_rewrite *rewrite; /* NULL: none */
    strata_workers workers;
    const strata_cross_device_ops *cross_device;
    int64_t bucket_bytes; /* gradients are communicated in parts of about this size, each as soon as it is there */
};

enum { STRATA_DEFAULT_BUCKET_BYTES = 256 << 10 };

static inline bool strata_strategy_has_workers(const strata_strategy *strategy) {
    return strategy->workers.n > 1;
}
/* As strata_strategy_share, of what this worker does by itself. */
void strata_strategy_local_share(const strata_strategy *strategy, int64_t batch, int replica, int64_t *out_first,
                                 int64_t *out_n);

/* As all_gather, of as many bytes from each worker. */
STRATA_MUST_USE strata_status strata_workers_gather(const strata_workers *workers, const void *own, void *out_all, size_t bytes,
                                                    strata_error *err);
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
