/* SPDX-License-Identifier: Apache-2.0
 *
 * The insides of an OpenCL device: a file of its own, since backends' headers don't go together. */
#include "tests/conformance/devices.h"

#if STRATA_WITH_OPENCL
#include "backends/opencl/opencl.h"

strata_kernel_limits *conformance_opencl_limits(strata_device *device) {
    return &((opencl_device *)device)->limits;
}
#endif
