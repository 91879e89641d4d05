/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for tests of layers. They evaluate a model that is not compiled with the ops' reference functions, so they need no
 * device. The test provides the parameters and the input. */
#ifndef STRATA_TESTS_LAYER_CASE_H
#define STRATA_TESTS_LAYER_CASE_H

#include <criterion/criterion.h>

#include "core/model/model.h"
#include "tests/support/check.h"

/* Creates a model whose examples have this shape. */
strata_model *layer_model(strata_shape input);
/* Returns the model's outputs for x, whose shape is (N, input...). `parameters` contains the elements of all parameters, one
 * after the other, in the model's order. NULL: the model has none. */
strata_array layer_run(strata_model *model, const strata_array *x, const double *parameters, bool training);
/* As layer_run. The outputs must have this shape and these values. */
void layer_gives(strata_model *model, const strata_array *x, const double *parameters, strata_shape shape, const double *want);
/* Compiling must fail as INVALID with a message that contains this text. */
void layer_refuses(strata_model *model, const char *text);

#endif
