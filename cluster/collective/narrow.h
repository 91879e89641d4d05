/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of f16 and bf16 to f32 and back: the bits of strata_f16_from_f32 and its like, many at a time. */
#ifndef STRATA_CLUSTER_COLLECTIVE_NARROW_H
#define STRATA_CLUSTER_COLLECTIVE_NARROW_H

#include "strata/tensor.h"

/* dtype: F16 or BF16, of `narrow`. The ranges do not overlap. */
void strata_narrow_row(strata_dtype dtype, const float *wide, size_t n, uint16_t *narrow);
void strata_widen_row(strata_dtype dtype, const uint16_t *narrow, size_t n, float *wide);

#endif
