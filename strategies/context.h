/* SPDX-License-Identifier: Apache-2.0
 *
 * In which context a thread is, and what a replica's function builds. */
#ifndef STRATA_STRATEGIES_CONTEXT_H
#define STRATA_STRATEGIES_CONTEXT_H

#include "core/model/model.h"
#include "core/optimizer/optimizer.h"
#include "core/run/strategy.h"
#include "strata/distribute.h"

enum { STRATA_MAX_FUNCTION_NODES = 256, STRATA_MAX_GATHERS = 32, STRATA_MAX_FEEDS = 32 };

/* ---- what the host gives a function besides its inputs ---- */

typedef enum strata_feed_kind {
    /* f32 (2): 1 / examples of the global batch; the replica's own share of them. */
    STRATA_FEED_BATCH,
    /* i32 (STRATA_RNG_WORDS): a model's random state, of the replica's first example. */
    STRATA_FEED_RANDOM,
    /* f32 (STRATA_STEP_WORDS): the numbers of an optimizer's update. */
    STRATA_FEED_STEP
} strata_feed_kind;

typedef struct strata_feed {
    strata_feed_kind kind;
    /* RANDOM. */
    strata_model *model;
    /* STEP: the optimizer, and how many updates before this one the function makes with it. */
    strata_distributed_optimizer *optimizer;
    int before;
} strata_feed;

/* Examples of a run: of the global batch; the first and the number of this worker's replica. */
typedef struct strata_run_rows {
    int64_t global, first, own;
} strata_run_rows;

/* feeds.c: the input tensor of a feed, made at its first use in this trace. */
strata_tensor *strata_replica_feed(strata_replica_context *replica, strata_feed feed);
/* Writes a feed's numbers for one run. */
void strata_feed_write(const strata_feed *feed, const strata_run_rows *rows, void *out);
/* After a run: models and optimizers count it. */
void strata_feeds_count(const strata_feed *feeds, int n_feeds);
void strata_feed_name(int index, char out_name[16]);

/* ---- a trace ---- */

/* A model that the function has applied; apply.c's. */
typedef struct strata_model_use strata_model_use;

/* A tensor that strata_replica_read has given for a variable: gradients are taken of it. */
typedef struct strata_replica_reading {
    const strata_distributed_variable *variable;
    strata_tensor *value;
    struct strata_replica_reading *next;
} strata_replica_reading;

/* Lengths along the axis of the operands of all workers' replicas, n: of gather g and replica r at g * n + r. */
typedef struct strata_gather_lengths {
    /* [STRATA_MAX_GATHERS * n + 1], zeros at first; the last one is room for a word to the other workers. */
    int64_t *lengths;
    /* A replica was traced with another length than stood here. */
    bool differ;
} strata_gather_lengths;

struct strata_replica_context {
    strata_strategy *strategy;
    int id;
    strata_graph *graph;
    strata_tensor *outputs[STRATA_MAX_FUNCTION_NODES], *updates[STRATA_MAX_FUNCTION_NODES];
    int n_outputs, n_updates;
    strata_gather_lengths *gathers;
    /* How many all_gathers this trace has so far. */
    int n_gathers;
    strata_feed feeds[STRATA_MAX_FEEDS];
    strata_tensor *fed[STRATA_MAX_FEEDS];
    int n_feeds;
    /* Lists; the graph owns their memory. */
    strata_model_use *uses;
    strata_replica_reading *readings;
};

/* apply.c */
/* The model's use in this trace; NULL: the function has not applied it. */
strata_model_use *strata_model_use_find(const strata_replica_context *replica, const strata_model *model);
/* [parameters.n_parts] The views that layers have taken of parts of the parameters; NULL each where none has. */
strata_tensor *const *strata_model_use_parts(const strata_model_use *use);
/* A block's gradient, laid out as the block is. gradients: [parameters.n_parts] of those parts; NULL each: zeros. */
strata_tensor *strata_model_use_pack(strata_model_use *use, int block, strata_tensor *const *gradients);
/* Parameters have been updated: the next strata_model_apply reads them again. */
void strata_model_use_forget(strata_replica_context *replica, const strata_model *model);

/* Zeroed memory that lives as long as the graph; NULL, with the graph poisoned: there is none. n may be 0. */
void *strata_trace_alloc(strata_graph *graph, size_t n, size_t bytes);
/* Makes a node part of the program, as an update. */
void strata_replica_keep(strata_replica_context *replica, strata_tensor *node);

/* An update of the replica's own copy. Where devices are of several kinds, the first replica's counts for all. */
void strata_replica_update_copy(strata_replica_context *replica, strata_variable *own, strata_tensor *update);

/* INVALID, with what to do, unless this thread is in the cross-replica context. Without a scope it is, of no strategy. */
STRATA_MUST_USE strata_status strata_need_cross_replica(const char *call, const char *instead, strata_error *err);
/* Whether the thread is in this replica's context; else poisons its graph. */
bool strata_need_replica(strata_replica_context *replica, const char *call);

/* The thread's replica context while a function is traced: returns the one before, to be set again. */
const strata_replica_context *strata_set_replica(const strata_replica_context *replica);

#endif
