/* SPDX-License-Identifier: Apache-2.0
 *
 * The contexts in which a thread may be (cross-replica, or a replica's), and the state of a replica's function while it is
 * traced, that is while its graph is built. */
#ifndef STRATA_STRATEGIES_CONTEXT_H
#define STRATA_STRATEGIES_CONTEXT_H

#include "core/compile/partition.h"
#include "core/model/model.h"
#include "core/optimizer/optimizer.h"
#include "core/run/strategy.h"
#include "strata/distribute.h"
#include "strategies/memory.h"

enum { STRATA_MAX_FUNCTION_NODES = 256, STRATA_MAX_GATHERS = 32, STRATA_MAX_FEEDS = 32 };

/* ---- feeds: numbers that the host passes to a function besides its inputs ---- */

typedef enum strata_feed_kind {
    /* f32 (2): 1 / examples of the global batch; the replica's share of these examples. */
    STRATA_FEED_BATCH,
    /* i32 (STRATA_RNG_WORDS): a model's random state for the replica's first example. */
    STRATA_FEED_RANDOM,
    /* f32 (STRATA_STEP_WORDS): the numbers of an optimizer's update, such as the learning rate. */
    STRATA_FEED_STEP
} strata_feed_kind;

typedef struct strata_feed {
    strata_feed_kind kind;
    /* For RANDOM. */
    strata_model *model;
    /* For STEP: the optimizer, and how many of its updates the function makes before this one. */
    strata_distributed_optimizer *optimizer;
    int before;
} strata_feed;

/* The examples of a run: how many the global batch has, and the first one and the number of this worker's replica. */
typedef struct strata_run_rows {
    int64_t global, first, own;
} strata_run_rows;

/* feeds.c: returns the input tensor of a feed. It is created when the trace first uses the feed. */
strata_tensor *strata_replica_feed(strata_replica_context *replica, strata_feed feed);
/* Writes a feed's numbers for one run. */
void strata_feed_write(const strata_feed *feed, const strata_run_rows *rows, void *out);
/* Called after a run: the feeds' models and optimizers count one more step. */
void strata_feeds_count(const strata_feed *feeds, int n_feeds);
void strata_feed_name(int index, char out_name[16]);

/* ---- replicas ---- */

/* How many of this worker's replicas have a function, whose inputs and outputs are theirs; the first one's number among those
 * of all workers; how many these are, which exchange values. Under a mesh all workers trace the same function, of which their
 * devices compute parts (divide.c). */
static inline int strata_strategy_n_functions(const strata_strategy *strategy) {
    return strata_strategy_has_mesh(strategy) ? 1 : strategy->n_replicas;
}
static inline int strata_strategy_first_function(const strata_strategy *strategy) {
    return strata_strategy_has_mesh(strategy) ? 0 : strategy->workers.first_replica;
}
static inline int strata_strategy_n_functions_in_sync(const strata_strategy *strategy) {
    return strata_strategy_has_mesh(strategy) ? 1 : strata_strategy_num_replicas_in_sync(strategy);
}

/* ---- optimizers: their settings, their count of updates, and slots for each variable that they have updated ---- */

/* The optimizer's state for one variable. */
typedef struct strata_optimizer_memory {
    /* The variable may be destroyed before the optimizer; its number remains. */
    const strata_distributed_variable *variable;
    int64_t number;
    struct strata_optimizer_memory *next;
    /* Under a mesh: what stands for the slots of all devices, and for their shards, in the graph of a function; where the slots
     * are; whether devices that have the same part of the variable update parts of it (ZeRO), in their shards. */
    strata_variable whole[STRATA_MAX_OPTIMIZER_SLOTS + 1];
    strata_placement placement;
    bool in_parts;
    /* [n_replicas] Each replica of this worker updates the elements [begin, end) of the variable, with slots of this size. */
    struct strata_optimizer_part {
        int64_t begin, end;
        strata_variable *slots[STRATA_MAX_OPTIMIZER_SLOTS];
        /* With a sharded optimizer: room for these elements, and for a block of a model the positions of the parameters. */
        strata_variable *shard;
        strata_segments segments;
    } parts[];
} strata_optimizer_memory;

struct strata_distributed_optimizer {
    strata_strategy *strategy;
    strata_optimizer settings;
    const strata_optimizer_kind *kind;
    /* Each replica updates a part of each variable. */
    bool sharded;
    /* The number of updates so far. */
    int64_t steps;
    strata_optimizer_memory *memories;
    strata_owned owned;
};

/* ---- tracing ---- */

/* A model that the function has applied. */
typedef struct strata_model_use {
    strata_model *model;
    strata_layer_context context;
    /* Parameters were updated since, so the next application reads them again. */
    bool forgotten;
    struct strata_model_use *next;
} strata_model_use;

/* A tensor that strata_replica_read has returned for a variable. Gradients are computed with respect to it. */
typedef struct strata_replica_reading {
    const strata_distributed_variable *variable;
    strata_tensor *value;
    struct strata_replica_reading *next;
} strata_replica_reading;

/* The lengths of the all_gathers' operands along their axis, for the n replicas of all workers. The operand of gather g on
 * replica r has the length at index g * n + r. */
typedef struct strata_gather_lengths {
    /* [STRATA_MAX_GATHERS * n + 1] Zeros at first. The additional element is for the message whether a worker's lengths have
     * changed (function.c). */
    int64_t *lengths;
    /* While a replica was traced, an operand had another length than the one in `lengths`. */
    bool differ;
} strata_gather_lengths;

struct strata_replica_context {
    strata_strategy *strategy;
    int id;
    strata_graph *graph;
    strata_tensor *outputs[STRATA_MAX_FUNCTION_NODES], *updates[STRATA_MAX_FUNCTION_NODES];
    int n_outputs, n_updates;
    strata_gather_lengths *gathers;
    /* How many all_gathers the trace contains so far. */
    int n_gathers;
    /* The function has asked for its replica's number, on which its constants and shapes may depend. */
    bool asks_id;
    strata_feed feeds[STRATA_MAX_FEEDS];
    strata_tensor *fed[STRATA_MAX_FEEDS];
    int n_feeds;
    /* The models that the function has applied, each once; further ones are not listed. */
    const strata_model *models[STRATA_MAX_FEEDS];
    int n_models;
    /* Lists; the graph owns their memory. */
    strata_model_use *uses;
    strata_replica_reading *readings;
};

/* agree.c: compares the workers' data, and their functions as traced for a replica. Every worker must call them at the same
 * place. Fail with the same INVALID on all workers.
 *   compared  the replica, or the replica as traced for the shapes of worker 0's inputs
 *   failed    why the function could not be traced for these; NULL: it could */
STRATA_MUST_USE strata_status strata_batches_agree(const strata_strategy *strategy, const strata_dataset *dataset,
                                                   const strata_distributed_batches_options *opts, strata_error *err);
STRATA_MUST_USE strata_status strata_function_agree(const strata_replica_context *replica,
                                                    const strata_replica_context *compared, const strata_error *failed,
                                                    strata_error *err);

/* values.c: the values of all workers in replica order, as views of `values` or of memory that is taken. Under a mesh all
 * workers have the same values, and these are `values`. */
STRATA_MUST_USE strata_status strata_per_replica_collect(const strata_strategy *strategy, const strata_per_replica *values,
                                                         strata_memory *memory, strata_per_replica *out, strata_error *err);

/* apply.c */
/* Returns the model's use in this trace; NULL: the function has not applied the model. */
strata_model_use *strata_model_use_find(const strata_replica_context *replica, const strata_model *model);
/* Returns the gradient of a block, with the block's layout. gradients: [parameters.n_parts] the gradients of the parts; NULL:
 * the gradient is zeros. */
strata_tensor *strata_model_use_pack(strata_model_use *use, int block, strata_tensor *const *gradients);
/* Called when parameters were updated: the next strata_model_apply reads them again. */
void strata_model_use_forget(strata_replica_context *replica, const strata_model *model);

/* The replica of a model whose variables the graph reads; under a mesh what stands for those of all devices. */
static inline int strata_replica_index(const strata_replica_context *replica) {
    return strata_strategy_has_mesh(replica->strategy) ? STRATA_WHOLE_MODEL : replica->id;
}

/* The variable that the replica's graph reads: its copy, or what stands for all devices' parts. */
static inline strata_variable *strata_replica_variable(const strata_replica_context *replica,
                                                       const strata_distributed_variable *variable) {
    return strata_strategy_has_mesh(replica->strategy) ? variable->whole : variable->copies[replica->id];
}

/* divide.c: divides the graph of a function among the devices of the mesh. batch: the shape of its first input. */
STRATA_MUST_USE strata_status strata_function_divide(const strata_replica_context *replica, strata_shape batch,
                                                     strata_partition **out_partition, strata_error *err);
/* Whether an input of this shape has as many rows as the first one: each device is then given those of its examples. */
bool strata_function_divides(strata_shape input, strata_shape batch);

/* Adds a node to the program as an update, so that it is computed although it is no output. */
void strata_replica_keep(strata_replica_context *replica, strata_tensor *node);

/* Updates the replica's own copy of a variable. If devices are of several kinds, all replicas use the first one's value. */
void strata_replica_update_copy(strata_replica_context *replica, strata_variable *own, strata_tensor *update);

/* Fails with INVALID unless this thread is in the cross-replica context; the message says what to do. A thread that has
 * entered no scope is in the cross-replica context, of no strategy. */
STRATA_MUST_USE strata_status strata_need_cross_replica(const char *call, const char *instead, strata_error *err);
/* Returns whether the thread is in this replica's context. If not, the replica's graph gets an error. */
bool strata_need_replica(strata_replica_context *replica, const char *call);

/* Sets the thread's replica context while a function is traced. Returns the previous one, to be set again afterwards. */
const strata_replica_context *strata_set_replica(const strata_replica_context *replica);

#endif
