/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses: what each says about itself. A new one is core/loss/<name>.c, one row in core/loss/losses.c, its test. */
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
    /* Of strata_loss_options; ends at a NULL name. */
    strata_option options[STRATA_MAX_LOSS_OPTIONS];
    /* Puts the documented defaults where options are 0, then checks them. NULL: there are none. */
    strata_status (*check)(strata_loss_options *opts, strata_error *err);
    /* outputs (B, ...), labels as strata_loss_label_shape says -> the loss of each example (B), f32. */
    strata_tensor *(*build)(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels);
    /* Outputs as a person wants them; NULL: as they are. */
    strata_tensor *(*predict)(const strata_loss_options *opts, strata_tensor *outputs);
    /* BINARY: an output above it says yes. NULL: 0. */
    double (*threshold)(const strata_loss_options *opts);
} strata_loss;

/* INVALID, with the list of names, when there is none. */
STRATA_MUST_USE strata_status strata_loss_find(const char *name, const strata_loss **out_loss, strata_error *err);

/* BINARY: an output above it says yes. */
static inline double strata_loss_threshold(const strata_loss *loss, const strata_loss_options *opts) {
    return loss->threshold ? loss->threshold(opts) : 0;
}
/* Of the labels in a batch: i32 for classes, else f32. */
strata_dtype strata_loss_label_dtype(const strata_loss *loss);
/* Of one example's labels, for a model with these outputs an example. */
strata_shape strata_loss_label_shape(const strata_loss *loss, strata_shape output);
/* Whether a model with these outputs an example can have the loss. */
STRATA_MUST_USE strata_status strata_loss_check_output(const strata_loss *loss, strata_shape output, strata_error *err);

/* Labels as a dataset has them, in a graph, become labels as the loss takes them. */
strata_tensor *strata_loss_convert_labels(const strata_loss *loss, strata_tensor *outputs, strata_tensor *labels);
/* For losses of numbers: labels in the outputs' shape; the mean of an example's (B, ...) -> (B). */
strata_tensor *strata_loss_match(strata_tensor *outputs, strata_tensor *labels);
strata_tensor *strata_loss_mean(strata_tensor *each);
/* y (1 - s) + s / classes; y itself for s = 0 */
strata_tensor *strata_loss_smooth(strata_tensor *labels, double smoothing, int64_t classes);
#define STRATA_LOSS_SMOOTHING \
    { "label_smoothing", STRATA_OPTION_NUMBER, offsetof(strata_loss_options, label_smoothing), 0, 1, false }
STRATA_MUST_USE strata_status strata_loss_check_smoothing(strata_loss_options *opts, strata_error *err);

extern const strata_loss strata_loss_sparse_categorical_crossentropy, strata_loss_categorical_crossentropy,
    strata_loss_binary_crossentropy, strata_loss_mse, strata_loss_mae, strata_loss_huber;

#endif
