/* SPDX-License-Identifier: Apache-2.0
 *
 * A function of a driver that does not return. The environment variable STRATA_SHIM_HANG names it, and STRATA_SHIM_HANG_NTH
 * says which call of it hangs (the first). Only some functions are counted; the first call of all others hangs. */
#ifndef STRATA_TESTS_SHIMS_HANG_H
#define STRATA_TESTS_SHIMS_HANG_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void strata_shim_hang(void) {
    for (;;) pause();
}

static inline bool strata_shim_hangs(const char *name) {
    const char *hanging = getenv("STRATA_SHIM_HANG");
    return hanging && !strcmp(hanging, name);
}

/* Called at the begin of a function that is counted. */
static inline void strata_shim_count_call(const char *name, int *calls) {
    const char *nth = getenv("STRATA_SHIM_HANG_NTH");
    if (strata_shim_hangs(name) && ++*calls == (nth ? atoi(nth) : 1)) strata_shim_hang();
}

#endif
