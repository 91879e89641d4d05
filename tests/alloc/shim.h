/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that runs out on demand: the linker puts these functions before the C library's, for calls from Strata and from the
 * tests. Drivers and other shared libraries keep their own. One thread at a time. */
#ifndef STRATA_TESTS_ALLOC_SHIM_H
#define STRATA_TESTS_ALLOC_SHIM_H

#include <stdbool.h>
#include <stdint.h>

/* The next `k`-th allocation from now (1: the first) fails, and only that one; 0: none does. Counting starts anew. */
void shim_fail_at(int64_t k);
/* Whether the failure was used up since shim_fail_at. */
bool shim_failed(void);
/* Allocations since shim_fail_at, and those alive now. */
int64_t shim_count(void);
int64_t shim_live(void);

#endif
