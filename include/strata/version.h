/* SPDX-License-Identifier: Apache-2.0
 *
 * The version of these headers. It is defined here only; the build reads it from this file. */
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

/* STRATA_VERSION of the library that the program runs with. It differs from STRATA_VERSION in these headers if the library was
 * replaced after the program was compiled. Static memory. */
STRATA_API const char *strata_version(void);

/* The size in bytes of a struct or enum of the public headers, for example "strata_fit_options", in the library; 0 for any
 * other name. Bindings for other languages, which declare the structs again, compare it with the size of their own declaration.
 * */
STRATA_API size_t strata_struct_bytes(const char *name);

#ifdef __cplusplus
}
#endif

#endif
