/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes allocations of Strata and of the tests fail. The linker replaces malloc and so on by functions of shim.c in the calls
 * of Strata and of the tests. Drivers and other shared libraries still call the C library. Only one thread at a time may
 * allocate. */
#ifndef STRATA_TESTS_ALLOC_SHIM_H
#define STRATA_TESTS_ALLOC_SHIM_H

#include <stdbool.h>
#include <stdint.h>

/* Lets only the k-th allocation from now fail, where 1 is the next one. 0: no allocation fails. The counting restarts. */
void shim_fail_at(int64_t k);
/* Whether an allocation has failed since shim_fail_at. */
bool shim_failed(void);
/* Lets only the k-th piece of memory fail that is taken for a graph or another object after a graph was divided, where pieces
 * are taken from memory that is there as well. 0: none fails. */
void shim_fail_after_partition(int64_t k);
/* The number of allocations since shim_fail_at, and the number of blocks that are not yet freed. */
int64_t shim_count(void);
int64_t shim_live(void);

#endif
