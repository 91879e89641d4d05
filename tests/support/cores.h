/* SPDX-License-Identifier: Apache-2.0
 *
 * A system of cores to test with: each core is a device that runs its programs on the host backend in a thread of its own,
 * takes several runs in one call, and exchanges values with the others inside of its programs. It can be made to fail. No
 * test framework is named here. */
#ifndef STRATA_TESTS_SUPPORT_CORES_H
#define STRATA_TESTS_SUPPORT_CORES_H

#include "core/run/device.h"

typedef struct test_cores_options {
    /* Cores of the system. */
    int n;
    /* NULL: "board 0". */
    const char *system;
    /* What strata_device_api offers to leave out. */
    bool no_collectives, no_many;
    /* Of one call; 0: any number. */
    int most_runs;
    /* Of each core, in bytes; 0: the host's. */
    uint64_t memory;
    /* A core whose run number `at` (from 1) fails, or never ends; 0: none does. A collective counts as a part of its run. */
    int broken_core, breaks_at;
    bool hangs;
    /* A wait that sees nothing end for so many seconds is TIMEOUT; 0: 60. */
    double stall_seconds;
} test_cores_options;

typedef struct test_cores test_cores;
test_cores *test_cores_create(const test_cores_options *opts);
/* After all its devices; NULL is fine. */
void test_cores_destroy(test_cores *cores);
/* "core:2" for number 2. */
strata_status test_cores_open(test_cores *cores, int number, strata_device **out_device, strata_error *err);

/* What a core was asked for. */
typedef struct test_core_counters {
    /* Calls of run and of run_many; runs; the most runs that were submitted and not waited for at one time. */
    int calls, calls_of_many, runs, deepest;
    /* Collectives that it took part in. */
    int collectives;
} test_core_counters;
test_core_counters test_cores_counters(const test_cores *cores, int number);

#endif
