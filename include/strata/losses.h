/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses by name. Outputs are (B, ...) of the model; a loss is one number for each example, the mean over what is left of its
 * outputs. Formulas: core/loss/<name>.c.
 *
 *   name                              outputs          labels
 *   mse, mae, huber                   (B, ...)         numbers like the outputs; (B) where there is one output an example
 *   binary_crossentropy               (B, ...) logits  0, 1 or between, like the outputs; (B) where there is one output
 *   sparse_categorical_crossentropy   (B, C) logits    integers (B) in 0..C-1
 *   categorical_crossentropy          (B, C) logits    probabilities (B, C), or integers (B) in 0..C-1 */
#ifndef STRATA_LOSSES_H
#define STRATA_LOSSES_H

#include "strata/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_loss_options {
    /* Huber: from this error on it is linear; 0: 1. */
    double delta;
    /* The crossentropies: labels become y (1 - s) + s / classes (two for the binary one); 0 <= s < 1. */
    double label_smoothing;
    /* binary_crossentropy: outputs are probabilities, not logits. */
    bool from_probabilities;
    /* What a loss of one's own makes of it (strata/registry.h). */
    double own[4];
} strata_loss_options;

/* The loss `name` of each example, f32 (B), of outputs and labels as above; labels that are classes are i32 (B). opts: NULL for
 * the defaults. Differentiable by the outputs. Errors, an unknown name among them, poison the graph. */
STRATA_API strata_tensor *strata_example_losses(const char *name, const strata_loss_options *opts, strata_tensor *outputs,
                                                strata_tensor *labels);

#ifdef __cplusplus
}
#endif
#endif
