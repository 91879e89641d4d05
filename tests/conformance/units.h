/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of matrix units (shaders/matrix_units/) share. */
#ifndef STRATA_TESTS_CONFORMANCE_UNITS_H
#define STRATA_TESTS_CONFORMANCE_UNITS_H

#include "tests/conformance/devices.h"

/* Few compute units bring large tiles, many bring small ones. */
static const uint32_t units_of_device[3] = {2, 32, 4096};

/* An element of f32 by a split is off by at most so many times 2^-24 of the sum of |a b|: 3 2^-20, for conversions to f16 that
 * cut off, and some for sums. f16 without the split would be off by thousands. */
enum { UNITS_MOST_ERROR = 64 };

/* Whether the device has units that multiply matrices of the dtype; f32 is split into f16. */
bool units_has(const strata_kernel_limits *limits, strata_dtype dtype);
/* Visits each device that has units for some dtype, as a real GPU. Skips the running test where none has. */
void units_each_device(void (*visit)(strata_device *device, strata_kernel_limits *limits));
/* The name of the family that computes the node; "portable": none does. */
const char *units_family_of(const strata_kernel_limits *limits, const strata_tensor *node);
/* The largest |x|. */
double units_largest_of(const float *x, int64_t n);

#endif
