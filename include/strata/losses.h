/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses by name. The model's outputs have the shape (B, ...), with B examples. A loss is one number for each example: the mean
 * over the example's outputs. The formulas are in core/loss/<name>.c.
 *
 *   name                              outputs          labels
 *   mse, mae, huber                   (B, ...)         numbers like the outputs; (B) where there is one output an example
 *   binary_crossentropy               (B, ...) logits  0, 1 or between, like the outputs; (B) where there is one output
 *   sparse_categorical_crossentropy   (B, C) logits    integers (B) in 0..C-1
 *   categorical_crossentropy          (B, C) logits    probabilities (B, C), or integers (B) in 0..C-1
 *
 * predict converts logits to probabilities: by sigmoid for binary_crossentropy, by softmax for the other two. Outputs that end
 * in that function are accepted, too: the loss takes its input, as in Keras, so that the function is applied once and the
 * gradient does not vanish. The function must be last; layers after it may only reshape, transpose or cast its result. For
 * softmax the last axis must be the classes. Other outputs that are probabilities (of the wrong function, behind dropout or a
 * mean) are INVALID, with a message that says what to change; binary_crossentropy takes them with from_probabilities. */
#ifndef STRATA_LOSSES_H
#define STRATA_LOSSES_H

#include "strata/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_loss_options {
    /* huber: the absolute error above which the loss is linear; 0: 1. */
    double delta;
    /* The three crossentropies: with s = label_smoothing, 0 <= s < 1, a label y becomes y (1 - s) + s / C, where C is the
     * number of classes, 2 for binary_crossentropy. */
    double label_smoothing;
    /* binary_crossentropy: outputs are probabilities, not logits. */
    bool from_probabilities;
    /* Options of your own losses (strata/registry.h), which give them their meaning. */
    double own[4];
} strata_loss_options;

/* Computes the loss `name` of each example, f32 (B). outputs and labels: as in the table above; labels that are classes are i32
 * (B). opts: NULL for the defaults. The loss is differentiable with respect to the outputs. Errors, such as an unknown name,
 * poison the graph. */
STRATA_API strata_tensor *strata_example_losses(const char *name, const strata_loss_options *opts, strata_tensor *outputs,
                                                strata_tensor *labels);

#ifdef __cplusplus
}
#endif
#endif
