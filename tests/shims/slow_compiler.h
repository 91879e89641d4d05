/* SPDX-License-Identifier: Apache-2.0
 *
 * Both shims call strata_shim_compile_slowly when the driver compiles. It sleeps as the environment variables
 * STRATA_SHIM_COMPILE_SECONDS and STRATA_SHIM_COMPILE_NTH say. */
#ifndef STRATA_TESTS_SHIMS_SLOW_COMPILER_H
#define STRATA_TESTS_SHIMS_SLOW_COMPILER_H

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static inline void strata_shim_compile_slowly(void) {
    static atomic_int n_compiled;
    const char *text = getenv("STRATA_SHIM_COMPILE_SECONDS"), *nth = getenv("STRATA_SHIM_COMPILE_NTH");
    const int number = atomic_fetch_add(&n_compiled, 1) + 1;
    const double seconds = text ? atof(text) : 0;
    if (!(seconds > 0) || (nth && atoi(nth) != number)) return;
    struct timespec nap = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&nap, NULL);
}

#endif
