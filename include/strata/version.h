/* SPDX-License-Identifier: Apache-2.0
 *
 * The version of these headers. The build reads it from here, so this is the one place where it stands. */
#ifndef STRATA_VERSION_H
#define STRATA_VERSION_H

#include "strata/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_VERSION_MAJOR 0
#define STRATA_VERSION_MINOR 1
#define STRATA_VERSION_PATCH 0
#define STRATA_VERSION       "0.1.0"

/* STRATA_VERSION of the library that runs: another one than that of the headers where the library was replaced. Static
 * memory. */
STRATA_API const char *strata_version(void);

/* The bytes of a struct or enum of the public headers ("strata_fit_options") as the library was compiled; 0 for another name.
 * Bindings for other languages, which write the structs down once more, compare it with their own. */
STRATA_API size_t strata_struct_bytes(const char *name);

#ifdef __cplusplus
}
#endif

#endif
