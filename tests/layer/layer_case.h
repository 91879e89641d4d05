/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the layers of a model that is not compiled by the ops' references: no device, parameters and input given by the test. */
#ifndef STRATA_TESTS_LAYER_CASE_H
#define STRATA_TESTS_LAYER_CASE_H

#include <criterion/criterion.h>

#include "core/model/model.h"
#include "tests/support/check.h"

/* A model for elements of this shape. */
strata_model *layer_model(strata_shape input);
/* Its outputs for x (N, input...); `parameters` are all, end to end, in the model's order (NULL: there are none). */
strata_array layer_run(strata_model *model, const strata_array *x, const double *parameters, bool training);
/* The same, and the outputs must be these values of this shape. */
void layer_gives(strata_model *model, const strata_array *x, const double *parameters, strata_shape shape, const double *want);
/* Compiling must fail as INVALID with a message that contains this text. */
void layer_refuses(strata_model *model, const char *text);

#endif
