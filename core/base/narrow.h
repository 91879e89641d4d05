/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts rows of f16 and bf16 to f32 and back. The bits are the same as those of strata_f16_from_f32 and similar functions,
 * which convert one number at a time. */
#ifndef STRATA_CORE_NARROW_H
#define STRATA_CORE_NARROW_H

#include "strata/tensor.h"

/* dtype: F16 or BF16, the type of `narrow`. The ranges must not overlap. */
void strata_narrow_row(strata_dtype dtype, const float *wide, size_t n, uint16_t *narrow);
void strata_widen_row(strata_dtype dtype, const uint16_t *narrow, size_t n, float *wide);

#endif
