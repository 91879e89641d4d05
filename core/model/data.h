/* SPDX-License-Identifier: Apache-2.0
 *
 * How the parts of a dataset match the inputs and outputs of a model, and how labels are converted for losses (data.c). */
#ifndef STRATA_CORE_MODEL_DATA_H
#define STRATA_CORE_MODEL_DATA_H

#include "core/model/model.h"
#include "strata/summary.h"

/* Converts the labels of n examples in place to the form that the output's loss needs: integers to f32 for a loss of numbers,
 * and classes to a probability of each class for a loss of probabilities. part: the part of the dataset's elements. labels
 * NULL: nothing is done. */
void strata_model_convert_labels(const strata_output_spec *output, const strata_dataset *dataset, int part, int64_t n,
                                 void *labels);
/* Checks the weights of n classes. Fails: INVALID unless the model has one output, whose loss is for one of n classes per
 * example. */
STRATA_MUST_USE strata_status strata_model_check_class_weights(const strata_model *model, const double *class_weights, int n,
                                                               strata_error *err);
/* The bytes of an example in an input of the model, and of its labels for an output. */
size_t strata_input_bytes(const strata_input_spec *input);
size_t strata_label_bytes(const strata_output_spec *output);
/* Sets the parts of the elements from which batches are made. targets: also the parts with labels. */
void strata_model_batch_parts(const strata_model *model, const strata_dataset *dataset, const strata_model_feed *feed,
                              bool targets, strata_batches_options *opts);
/* Whether the features of batches of this many examples are copied to the device as u8, if the data are u8. */
bool strata_model_takes_bytes(const strata_model *model, int64_t batch);
STRATA_MUST_USE strata_status strata_model_check_compiled(const strata_model *model, const char *verb, strata_error *err);
/* Checks that the model was compiled or built, so that it has variables. */
STRATA_MUST_USE strata_status strata_model_check_built(const strata_model *model, const char *verb, strata_error *err);
/* Checks the arguments of a report: that the model was compiled, or built, and the batch, which is 32 by default. what: as
 * verb, and in messages about the batch. */
STRATA_MUST_USE strata_status strata_model_check_report(const strata_model *model, const char *verb, const char *what,
                                                        bool trains, int64_t *batch, strata_error *err);
/* Checks that the model was built or loaded, so that it has parameters. */
STRATA_MUST_USE strata_status strata_model_check_readable(const strata_model *model, const char *verb, strata_error *err);
/* Checks that the dataset's elements and labels fit the model. *out_feed: the parts for the inputs and outputs. */
STRATA_MUST_USE strata_status strata_model_check_dataset(const strata_model *model, const strata_dataset *dataset, bool labels,
                                                         const char *verb, strata_model_feed *out_feed, strata_error *err);

#endif
