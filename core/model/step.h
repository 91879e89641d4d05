/* SPDX-License-Identifier: Apache-2.0
 *
 * A training step while its graph is built: what step.c, gradients.c and update.c share. */
#ifndef STRATA_CORE_MODEL_STEP_H
#define STRATA_CORE_MODEL_STEP_H

#include "core/model/model.h"

/* Where the gradients of a block lie. */
typedef struct strata_step_place {
    /* Elements of its parameters' gradients. */
    int64_t n_gradients;
    /* With how often each row of its sparse parameters is used behind them. */
    int64_t n_all;
} strata_step_place;

typedef struct strata_step_builder {
    strata_graph *graph;
    strata_model *model;
    strata_step *step;
    strata_step_role role;
    strata_layer_context context;
    /* The step's numbers, f32 (STRATA_STEP_WORDS). */
    strata_tensor *words;
    /* Which rows of sparse parameters the batch uses is known to the host where they are the elements of an input. */
    bool host_knows_rows;
    /* Gradients are to be multiplied by words[STRATA_STEP_SCALE]. */
    bool scaled;
    /* [parameters.n_blocks]; filled by strata_step_place_gradients. */
    strata_step_place *places;
} strata_step_builder;

/* What the device computes from its examples; every pointer is NULL where it has none. */
typedef struct strata_step_computed {
    /* The gradients are of y, with dy. */
    strata_tensor *y, *dy;
    /* Instead of y: [parameters.n_blocks] the gradients that are held. */
    strata_tensor **gradients;
    strata_tensor *sums, *state;
    /* Sums and states have been added up over the replicas. */
    bool reduced;
} strata_step_computed;

/* Memory that lives as long as the graph, zeros; NULL, with the graph poisoned: there is none. */
void *strata_step_alloc(strata_step_builder *b, size_t n, size_t bytes);
/* Makes a node part of the program, as an update, and returns it. */
strata_tensor *strata_step_add(strata_step_builder *b, strata_tensor *update);
/* One of the step's numbers, a scalar. */
strata_tensor *strata_step_word(const strata_step_builder *b, int64_t word);
/* `value` (one number) added to the sum of losses, sums[0]. */
strata_tensor *strata_step_add_to_loss(strata_tensor *sums, strata_tensor *value);
/* Elements [first, first + n) of `flat`. */
strata_tensor *strata_step_part(strata_tensor *flat, int64_t first, int64_t n);

/* The model's input that is this tensor; -1: none. */
int strata_step_input_of(const strata_step_builder *b, const strata_tensor *x);

/* gradients.c */
/* Whether every device takes the gradients of all parameters: for their norm, to see whether all are finite, or because they
 * travel in a smaller dtype, which only all_reduce does. */
bool strata_step_needs_all_gradients(const strata_model *model);
/* Fills in where gradients lie, after the layers were built and the number of rows that they use is known: in the order of the
 * parameters, but of a sparse parameter with as many rows as are used. */
void strata_step_place_gradients(strata_step_builder *b);
/* First element, among its block's gradients, of the part's gradient; of the counts of how often each row is used. */
int64_t strata_step_gradient_place(const strata_step_builder *b, int part);
int64_t strata_step_uses_place(const strata_step_builder *b, int part);
/* Indices of all rows of a sparse parameter's part, -1 in place of those that the batch does not use. gradients: its block's,
 * with the counts behind them. */
strata_tensor *strata_step_used_rows(const strata_step_builder *b, int part, strata_tensor *gradients);
/* This device's gradients of a block, (places[block].n_all). NULL: it has none. */
strata_tensor *strata_step_own_gradients(const strata_step_builder *b, const strata_step_computed *c, int block);
/* Sends this device's gradients in buckets, the last layers' first, to worker 1; returns how many. 0: they are too few, or the
 * role does not ask for it. */
int strata_step_send_gradients(strata_step_builder *b, const strata_step_computed *c,
                               struct strata_gradient_bucket buckets[STRATA_MOST_BUCKETS]);
/* The sum over replicas of a block's gradients; with the first block that is asked for, c's sums and states are added up too.
 * With shards: only the elements that this device owns. NULL on a device that does not update. */
strata_tensor *strata_step_reduce(strata_step_builder *b, strata_step_computed *c, int block);
/* The device's place among the replicas of all workers: which shard it owns. */
int strata_step_own_shard(const strata_step_builder *b);
/* What the functions of a strategy's rewrite are given. */
strata_step_replica strata_step_replica_of(strata_step_builder *b);

/* update.c: adds up the gradients over replicas, and updates parameters, slots, states and the epoch's sums. */
void strata_step_update(strata_step_builder *b, strata_step_computed *c);

#endif
