/* SPDX-License-Identifier: Apache-2.0
 *
 * Accesses the internals of an OpenCL device. It is a file of its own because the headers of two backends cannot be
 * included together. */
#include "tests/conformance/devices.h"

#if STRATA_WITH_OPENCL
#include "backends/opencl/opencl.h"

strata_kernel_limits *conformance_opencl_limits(strata_device *device) {
    return &((opencl_device *)device)->limits;
}
#endif
