/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that describes a loss. A new loss needs core/loss/<name>.c, a row in core/loss/losses.def and a test. */
#ifndef STRATA_CORE_LOSS_H
#define STRATA_CORE_LOSS_H

#include "core/base/option.h"
#include "strata/losses.h"
#include "strata/ops.h"
#include "strata/registry.h"

enum { STRATA_MAX_LOSS_OPTIONS = 8 };

typedef struct strata_loss {
    const char *name;
    strata_answers answers;
    /* The fields of strata_loss_options that the loss uses; ends at a NULL name. */
    strata_option options[STRATA_MAX_LOSS_OPTIONS];
    /* Replaces options of 0 by their documented defaults, and checks them. NULL: the loss has no options. */
    strata_status (*check)(strata_loss_options *opts, strata_error *err);
    /* Computes the loss of each example, (B) f32, from outputs (B, ...) and labels with the shape of
     * strata_loss_label_shape. */
    strata_tensor *(*build)(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels);
    /* Converts outputs to predictions: logits to probabilities, for example. NULL: the outputs are the predictions. */
    strata_tensor *(*predict)(const strata_loss_options *opts, strata_tensor *outputs);
    /* The function that `predict` applies to logits: "softmax" or "sigmoid". NULL: outputs are not logits. */
    const char *activation;
    /* Only for BINARY: an output above this number is a positive prediction. NULL: 0. */
    double (*threshold)(const strata_loss_options *opts);
} strata_loss;

/* Finds the loss with this name. Fails with INVALID and the list of names if there is none. */
STRATA_MUST_USE strata_status strata_loss_find(const char *name, const strata_loss **out_loss, strata_error *err);

/* Only for BINARY: an output above this number is a positive prediction. */
static inline double strata_loss_threshold(const strata_loss *loss, const strata_loss_options *opts) {
    return loss->threshold ? loss->threshold(opts) : 0;
}
/* The dtype of the labels in a batch: i32 for class labels, else f32. */
strata_dtype strata_loss_label_dtype(const strata_loss *loss);
/* The shape of one example's labels, for a model whose outputs for one example have the shape `output`. */
strata_shape strata_loss_label_shape(const strata_loss *loss, strata_shape output);
/* Checks that a model whose outputs for one example have this shape can be trained with the loss. */
STRATA_MUST_USE strata_status strata_loss_check_output(const strata_loss *loss, strata_shape output, strata_error *err);

/* Converts labels from the form in which a dataset contains them to the form that `build` takes. */
strata_tensor *strata_loss_convert_labels(const strata_loss *loss, strata_tensor *outputs, strata_tensor *labels);

/* logits.c: models that end in softmax or sigmoid. outputs: (B, ...), as the model's layers compute them. */
/* The function that the loss applies to logits; NULL: with these options outputs are not logits. */
const char *strata_loss_activation(const strata_loss *loss, const strata_loss_options *opts);
/* What `build` and metrics take: the outputs or, if the loss takes logits and the outputs end in its activation, the input of
 * this activation. If the outputs are other probabilities, for example of another activation or of one that dropout follows,
 * the graph is poisoned, with a message that says what to change. */
strata_tensor *strata_loss_logits(const strata_loss *loss, const strata_loss_options *opts, strata_tensor *outputs);
/* What predict returns: the outputs themselves if there is no loss (NULL) or they are probabilities already, else those that
 * `predict` makes of them. */
strata_tensor *strata_loss_predict(const strata_loss *loss, const strata_loss_options *opts, strata_tensor *outputs);
/* "softmax" or "sigmoid" if the outputs end in it; NULL: they do not. */
const char *strata_loss_ending(strata_tensor *outputs);
/* Whether all outputs are probabilities, since layers apply softmax or sigmoid at the end. */
bool strata_loss_are_probabilities(const strata_tensor *outputs);

/* For losses of numbers. strata_loss_match reshapes the labels to the shape of the outputs. strata_loss_mean computes the
 * mean of each example: (B, ...) -> (B). */
strata_tensor *strata_loss_match(strata_tensor *outputs, strata_tensor *labels);
strata_tensor *strata_loss_mean(strata_tensor *each);
/* The labels (B) as f32 (B, classes): 1 at the class, 0 elsewhere; NaN in the row of a label out of range, so that it is not
 * hidden. */
strata_tensor *strata_loss_one_hot(strata_tensor *labels, int64_t classes);
/* y (1 - s) + s / classes; y itself for s = 0 */
strata_tensor *strata_loss_smooth(strata_tensor *labels, double smoothing, int64_t classes);
#define STRATA_LOSS_SMOOTHING \
    { "label_smoothing", STRATA_OPTION_NUMBER, offsetof(strata_loss_options, label_smoothing), 0, 1, false }
STRATA_MUST_USE strata_status strata_loss_check_smoothing(strata_loss_options *opts, strata_error *err);

#define STRATA_LOSS(name) extern const strata_loss strata_loss_##name;
#include "core/loss/losses.def"

#undef STRATA_LOSS

#endif
