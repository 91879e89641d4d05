/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for tests of the kernels for matrix units, which are in shaders/matrix_units/. */
#ifndef STRATA_TESTS_CONFORMANCE_UNITS_H
#define STRATA_TESTS_CONFORMANCE_UNITS_H

#include "tests/conformance/devices.h"

/* Numbers of compute units to simulate. With few the library chooses large tiles, with many it chooses small ones. */
static const uint32_t units_of_device[3] = {2, 32, 4096};

/* The kernels compute products of f32 by splitting each number into two of f16. An element may differ from the exact product by
 * so many times 2^-24 of the sum of |a b|: 48 for conversions to f16 that truncate, the rest for roundings of the sum. Without
 * the split the difference would be thousands. */
enum { UNITS_MOST_ERROR = 64 };

/* Whether the device has units that multiply matrices of the dtype. For f32, units for f16 are enough. */
bool units_has(const strata_kernel_limits *limits, strata_dtype dtype);
/* Opens each device that has units for a dtype, with the kernels of real GPUs, and calls `visit`. When there is none, the
 * running test is skipped. */
void units_each_device(void (*visit)(strata_device *device, strata_kernel_limits *limits));
/* The name of the kernel family that computes the node. "portable": no family does, only the portable kernel. */
const char *units_family_of(const strata_kernel_limits *limits, const strata_tensor *node);
/* The largest |x|. */
double units_largest_of(const float *x, int64_t n);

#endif
