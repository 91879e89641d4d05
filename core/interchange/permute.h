/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights with their axes in another order. */
#ifndef STRATA_CORE_INTERCHANGE_PERMUTE_H
#define STRATA_CORE_INTERCHANGE_PERMUTE_H

#include "strata/tensor.h"

/* A copy of the array in which axis d is axis axes[d] of the array; NULL: the order does not change. The caller finishes it. */
STRATA_MUST_USE strata_status strata_permuted(const strata_array *array, const int *axes, strata_array *out, strata_error *err);

#endif
