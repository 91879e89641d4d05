/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of building the graph of a training step, which step.c, gradients.c and update.c share. */
#ifndef STRATA_CORE_MODEL_STEP_H
#define STRATA_CORE_MODEL_STEP_H

#include "core/model/model.h"

/* The size of a block's gradients. */
typedef struct strata_step_place {
    /* The number of elements of the gradients. */
    int64_t n_gradients;
    /* The same plus the counts that follow the gradients: how often each row of the block's sparse parameters is used. */
    int64_t n_all;
} strata_step_place;

typedef struct strata_step_builder {
    strata_graph *graph;
    strata_model *model;
    strata_step *step;
    strata_step_options opts;
    /* The graph has all_reduces over the devices. */
    bool exchanges;
    strata_layer_context context;
    /* The input "step": the numbers that change from step to step, f32 (STRATA_STEP_WORDS). */
    strata_tensor *words;
    /* strata_step_share, when it was used; NULL: not yet. */
    strata_tensor *share;
    /* The host can find the rows of sparse parameters that the batch uses, where they are the elements of an input. */
    bool host_knows_rows;
    /* Gradients must be multiplied by words[STRATA_STEP_SCALE] before the update. */
    bool scaled;
    /* The sums or predictions; NULL: there are none. */
    strata_tensor *output;
    /* [parameters.n_blocks] Set by strata_step_place_gradients. */
    strata_step_place *places;
} strata_step_builder;

/* What the device computes from its examples; every pointer is NULL if it has no examples. */
typedef struct strata_step_computed {
    /* Gradients are those of y; dy is the gradient of y (strata_gradients). */
    strata_tensor *y, *dy;
    /* [parameters.n_blocks] The accumulated gradients; used instead of y. */
    strata_tensor **gradients;
    strata_tensor *sums, *state;
    /* How far the states move to `state`, as for strata_moving_average; NULL: by the layers' rates. */
    strata_tensor *rates;
    /* Sums and states have been added up over the replicas. */
    bool reduced;
} strata_step_computed;

/* Adds a node to the updates of the program, so that it is computed, and returns it. */
strata_tensor *strata_step_add(strata_step_builder *b, strata_tensor *update);
/* A word of the step, as a scalar. */
strata_tensor *strata_step_word(const strata_step_builder *b, int64_t word);
/* The sums after adding `value` (one number) to the sum of losses, sums[0]. */
strata_tensor *strata_step_add_to_loss(strata_tensor *sums, strata_tensor *value);
/* Elements [first, first + n) of `flat`. */
strata_tensor *strata_step_part(strata_tensor *flat, int64_t first, int64_t n);

/* The model's input that is this tensor; -1: none. */
int strata_step_input_of(const strata_step_builder *b, const strata_tensor *x);

/* gradients.c */
/* Whether every device needs the gradients of all parameters: to compute their norm, to check whether all are finite, or
 * because they are sent in a smaller dtype, which only all_reduce supports. */
bool strata_step_needs_all_gradients(const strata_model *model);
/* Computes the layout of the gradients. It is called after the layers were built, when the number of rows that they use is
 * known. Gradients are in the order of the parameters; for a sparse parameter there may be gradients of the used rows only. */
void strata_step_place_gradients(strata_step_builder *b);
/* The index of the first element of the part's gradient within its block's gradients, and the index of the part's counts of how
 * often each row is used. */
int64_t strata_step_gradient_place(const strata_step_builder *b, int part);
/* The indices of all rows of a sparse parameter's part, with -1 for rows that the batch does not use. gradients: those of its
 * block, followed by the counts. */
strata_tensor *strata_step_used_rows(const strata_step_builder *b, int part, strata_tensor *gradients);
/* This device's gradients of a block, (places[block].n_all). NULL: it has none. */
strata_tensor *strata_step_own_gradients(const strata_step_builder *b, const strata_step_computed *c, int block);
/* The buckets in which a step gives gradients away, in the order in which it computes them. Returns 0 if they are too small, or
 * are not those of one block without sparse parameters. */
int strata_model_list_buckets(const strata_model *model, struct strata_gradient_bucket out_buckets[STRATA_MOST_BUCKETS]);
/* The sum over replicas of a block's gradients. The first call also adds up c's sums and states. */
strata_tensor *strata_step_reduce(strata_step_builder *b, strata_step_computed *c, int block);
/* This device's share of the batch, or of its own examples where it makes an update of its own, times the loss scale; 0: it has
 * no examples. */
strata_tensor *strata_step_share(strata_step_builder *b);

/* update.c: adds up the gradients over replicas, and updates parameters, slots, states and the epoch's sums. */
void strata_step_update(strata_step_builder *b, strata_step_computed *c);

#endif
