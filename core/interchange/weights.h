/* SPDX-License-Identifier: Apache-2.0
 *
 * What exports and imports have in common: the parameters and states of a model, in host memory, arrays with their axes in
 * another order, and what a file does with the numbers of the user. */
#ifndef STRATA_CORE_INTERCHANGE_WEIGHTS_H
#define STRATA_CORE_INTERCHANGE_WEIGHTS_H

#include "core/interchange/owned.h"
#include "strata/describe.h"
#include "strata/preprocessing.h"

typedef struct strata_weights {
    strata_model *model;
    /* [n] One for each parameter, f32. */
    strata_array *arrays;
    int n;
} strata_weights;

/* Makes arrays of zeros. The caller finishes them, also on failure. */
STRATA_MUST_USE strata_status strata_weights_create(strata_model *model, strata_weights *out, strata_error *err);
/* The same with the model's values. caller: the name of the call, for messages. Fails: INVALID for a model that is neither
 * compiled, built nor loaded. */
STRATA_MUST_USE strata_status strata_weights_read(strata_model *model, const char *caller, strata_weights *out,
                                                  strata_error *err);
void strata_weights_finish(strata_weights *weights); /* a zeroed struct is fine */
/* The name of a parameter without that of its layer: "kernel"; NULL: it is no parameter of the layer. */
const char *strata_name_in(const char *parameter, const char *layer);
/* The index of the layer's parameter with this name; layer NULL: `name` is the whole name. -1: there is none. */
int strata_parameter_find(const strata_model *model, const char *layer, const char *name);

/* A copy of the array in which axis d is axis axes[d] of the array; NULL: the order does not change. The caller finishes it. */
STRATA_MUST_USE strata_status strata_permuted(const strata_array *array, const int *axes, strata_array *out, strata_error *err);

/* Whether an exported file takes the user's numbers, and computes the features from them; whether it converts its first output
 * back to the label's own numbers. p: the model's preprocessing; NULL: it has none. */
bool strata_takes_numbers(const strata_preprocessing *p);
bool strata_restores_label(const strata_preprocessing *p);

#endif
