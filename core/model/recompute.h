/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers whose values the backward pass computes again instead of keeping them (recompute.c), and the memory that programs lack
 * (programs.c). */
#ifndef STRATA_CORE_MODEL_RECOMPUTE_H
#define STRATA_CORE_MODEL_RECOMPUTE_H

#include "core/model/build.h"

/* Sets the layers of strata_compile_options.recompute. strategy NULL: the model is on one device. Fails: INVALID for a name
 * that no layer has, or wrong bytes; UNSUPPORTED for `auto` with workers that run steps together. */
STRATA_MUST_USE strata_status strata_recompute_set(strata_model *model, const char *text, const strata_strategy *strategy,
                                                   strata_error *err);

/* Whether programs of the kind have a backward pass. */
static inline bool strata_program_has_gradients(strata_program_kind kind) {
    return kind == STRATA_PROGRAM_TRAIN || kind == STRATA_PROGRAM_ACCUMULATE || kind == STRATA_PROGRAM_GRADIENTS;
}

/* Sets kept_bytes of the n calls of layers, whose nodes are in the step's graph. */
STRATA_MUST_USE strata_status strata_recompute_weigh(const strata_step *step, strata_layer_cost *calls, int n,
                                                     strata_error *err);

/* For `auto`: builds the steps of the program, as strata_model_divide does, with as few layers that are computed again as its
 * memory needs: those that keep the most bytes for each operation. If no choice fits, it is the one that lacks least. */
STRATA_MUST_USE strata_status strata_recompute_choose(strata_model *model, strata_model_program *program,
                                                      strata_layer_cost *layers, strata_error *err);

/* How many bytes the device of a part lacks, at least of all parts, of those that the part needs; at most 0: all fit. */
typedef struct strata_program_lack {
    int64_t bytes, needed;
    const strata_device *device;
} strata_program_lack;
/* Measures the steps of a program that is not compiled. most_bytes: how much each part may need, besides the device's free
 * memory. After a failure out_lack->device is the device that was measured. */
STRATA_MUST_USE strata_status strata_program_measure(const strata_model *model, const strata_model_program *program,
                                                     int64_t most_bytes, strata_program_lack *out_lack, strata_error *err);
/* Destroys the steps, so that they can be built again. */
void strata_program_clear_steps(strata_model_program *program);

#endif
