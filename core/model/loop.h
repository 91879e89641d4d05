/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a loop over training steps that fit, custom loops, evaluation and the workers of parameter_server share: the
 * loss scale, the numbers that change from step to step, and writing numbers and examples to the inputs of a program. */
#ifndef STRATA_CORE_MODEL_LOOP_H
#define STRATA_CORE_MODEL_LOOP_H

#include "core/model/model.h"

/* Prepares the context in which layers are built into a graph: their arrays, which the graph owns, and reads of the variables
 * of a device. Without memory the graph has an error. */
void strata_model_begin_layers(const strata_model *model, int device, strata_graph *graph, strata_layer_context *context);

/* ---- the loss scale ---- */

/* The factor of the gradients of a step that begins now; 1 if they are not scaled. */
double strata_loss_scale(const strata_model *model);
/* Called after a step whose loss was finite: adapts the scale to whether its gradients, which had the factor `scale`, were
 * finite. Steps that began before the scale was changed do not change it again. False: they were not finite although the loss
 * was not scaled. */
bool strata_loss_scale_follow(strata_model *model, double scale, bool finite);

/* ---- numbers ---- */

typedef struct strata_run_numbers {
    /* The number of the update that the run makes or belongs to, from 1. */
    int64_t update;
    /* The factor of its gradients. */
    double scale;
    /* The inputs "step" (strata/ops.h) and "rng". */
    float words[STRATA_STEP_WORDS];
    int32_t rng[STRATA_RNG_WORDS];
} strata_run_numbers;
/* The numbers of update t = 1, 2, ...: learning rate, corrections, the state of random numbers for the step's first example. */
strata_run_numbers strata_run_numbers_of(const strata_model *model, int64_t t, double scale);
/* The state of random numbers of update t for the example with index `row` in the step. */
void strata_model_random_state(const strata_model *model, int64_t t, int64_t row, int32_t out[STRATA_RNG_WORDS]);
/* Writes words, as they are, to the inputs of a part that have them. */
void strata_part_write_words(const strata_program_part *part, int slot, const float words[STRATA_STEP_WORDS]);
/* Writes the numbers to the inputs of a part, and the weights of its examples in the step, which has `step_examples` examples
 * in all. row: the index in the step from which the part counts random numbers. */
void strata_run_write_numbers(const strata_run_numbers *numbers, const strata_program_part *part, int slot, int64_t row,
                              int64_t step_examples);

/* ---- examples ---- */

/* How the batches of an epoch of a fit are read, beginning with batch number `first`. */
strata_batches_options strata_fit_batches_options(const strata_model *model, const strata_dataset *dataset,
                                                  const strata_model_feed *feed, const strata_fit_options *opts, int64_t epoch,
                                                  int64_t first);
/* How many steps an epoch has whose data have n_batches batches (0: not known), of which `accumulate` make a step; 0: not
 * known. */
int64_t strata_fit_count_steps(const strata_fit_options *opts, int64_t n_batches, int64_t accumulate);
/* Whether programs have an input for weights of examples. class_weights: NULL if there are none. */
bool strata_model_weighs(const strata_dataset *dataset, const double *class_weights);
/* The current batch of an iterator, and how its examples are prepared. */
typedef struct strata_example_source {
    const strata_batches *batches;
    const strata_dataset *dataset;
    const strata_model_feed *feed;
    /* NULL: all are 1. */
    const double *class_weights;
} strata_example_source;
/* Writes examples [first, first + n) of the batch: inputs [n_inputs], labels [n_outputs] as the losses take them (NULL: none),
 * and the weights of the examples (NULL: none). An input or the labels of an output that are NULL are left out. */
void strata_model_write_examples(const strata_model *model, const strata_example_source *source, int64_t first, int64_t n,
                                 void *const *inputs, void *const *labels, float *weights);
/* Writes a part's examples of a program's batch, which begins with example `first` of the source's batch, to its inputs. */
void strata_part_write_examples(const strata_model *model, const strata_program_part *part, int slot,
                                const strata_example_source *source, int64_t first);

/* ---- validation.c: the validation data of a fit, and the decisions that depend on their loss ---- */

/* strata_validation_begin checks the options and allocates memory before training. Without validation data the other functions
 * do nothing. */
STRATA_MUST_USE strata_status strata_validation_begin(strata_model *model, const strata_fit_options *opts, strata_error *err);
/* Uses the metrics of the validation data after epoch `epoch`: updates the best epoch. *out_stop: patience ends the
 * training. */
STRATA_MUST_USE strata_status strata_validation_take(strata_model *model, const strata_fit_options *opts, int epoch,
                                                     const strata_metrics *metrics, bool *out_stop, strata_error *err);
/* Evaluates the validation data, if there are any, and calls strata_validation_take. */
STRATA_MUST_USE strata_status strata_validation_run(strata_model *model, const strata_fit_options *opts, int epoch,
                                                    strata_metrics *out_metrics, bool *out_stop, strata_error *err);
/* Whether patience has already ended the training that this fit would continue. */
bool strata_validation_is_over(const strata_model *model, const strata_fit_options *opts);
/* With restore_best, writes the parameters of the best epoch to the devices. */
STRATA_MUST_USE strata_status strata_validation_restore(strata_model *model, const strata_fit_options *opts, strata_error *err);
void strata_validation_forget(strata_model *model);

#endif
