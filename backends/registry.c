/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of all backends, one row for each. `strata devices` lists them in this order. If the user names no device,
 * the choice depends on the devices' classes, not on this order. */
#include "backends/registry.h"

extern const strata_backend strata_backend_host, strata_backend_null, strata_backend_plugin, strata_backend_pjrt;
#if STRATA_WITH_OPENCL
extern const strata_backend strata_backend_opencl;
#endif
#if STRATA_WITH_VULKAN
extern const strata_backend strata_backend_vulkan;
#endif

const strata_backend *const strata_backends[] = {
#if STRATA_WITH_OPENCL
    &strata_backend_opencl,
#endif
#if STRATA_WITH_VULKAN
    &strata_backend_vulkan,
#endif
    &strata_backend_plugin, &strata_backend_pjrt, &strata_backend_host, &strata_backend_null, NULL,
};
