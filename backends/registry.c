/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of all backends, from backends.def. */
#include "backends/registry.h"

const strata_backend *const strata_backends[] = {
#define STRATA_BACKEND(name) &strata_backend_##name,
#include "backends/backends.def"
    NULL};
