/* SPDX-License-Identifier: Apache-2.0
 *
 * The vector width of the kernels for CPUs, for the families of this folder. */
#ifndef STRATA_BACKENDS_KERNEL_CPU_VECTORS_H
#define STRATA_BACKENDS_KERNEL_CPU_VECTORS_H

#include "backends/kernel/lowering.h"

/* The number of f32 elements in the vectors that the kernels of shaders/cpu/ are compiled with: 16, 8 or 4. */
static inline int strata_cpu_lanes(const strata_kernel_limits *limits) {
    return limits->vector_width >= 16 ? 16 : limits->vector_width >= 8 ? 8 : 4;
}

/* The variant of these kernels for the device's vector width. */
static inline const char *strata_cpu_variant(const strata_kernel_limits *limits) {
    const int lanes = strata_cpu_lanes(limits);
    return lanes == 16 ? "x16" : lanes == 8 ? "x8" : "x4";
}

#endif
