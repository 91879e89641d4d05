/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulates an accelerator that consists of several cores, such as a TPU. Each core is a strata_device that runs its programs
 * on the host backend, in a thread of its own. A core accepts several runs in one call, and its programs may contain collective
 * ops (all_reduce and so on) that exchange values with the other cores. A test can make a core fail or hang. Nothing here
 * depends on a test framework. */
#ifndef STRATA_TESTS_SUPPORT_CORES_H
#define STRATA_TESTS_SUPPORT_CORES_H

#include "core/run/device.h"

typedef struct test_cores_options {
    /* Number of cores. */
    int n;
    /* Name of the system, which the cores report as their topology. NULL: "board 0". */
    const char *system;
    /* The cores do not support collective ops; they do not offer `run_many`, which submits several runs in one call. */
    bool no_collectives, no_many;
    /* Most runs that one call of run_many may submit. 0: any number. */
    int most_runs;
    /* Memory of each core in bytes. 0: as much as the host device has. */
    uint64_t memory;
    /* Run number `breaks_at` (counted from 1) of core `broken_core` fails with DEVICE_LOST. 0: no run fails. */
    int broken_core, breaks_at;
    /* That run never ends instead of failing. */
    bool hangs;
    /* Programs are compared with the host (core/run/referee.c). The first output of core `liar` is too large by 1. */
    bool checked;
    int liar;
    /* The user interrupts compilation number `interrupted_at` (counted from 1) of each core. 0: none. */
    int interrupted_at;
    /* A wait fails with TIMEOUT when no run of the core ends for this many seconds. 0: 60. */
    double stall_seconds;
} test_cores_options;

typedef struct test_cores test_cores;
test_cores *test_cores_create(const test_cores_options *opts);
/* Call it after all devices of the system are closed. NULL is fine. */
void test_cores_destroy(test_cores *cores);
/* Opens a core as a device. The device of number 2 has the id "core:2". */
strata_status test_cores_open(test_cores *cores, int number, strata_device **out_device, strata_error *err);

typedef struct test_core_counters {
    /* Calls of run and of run_many together; calls of run_many; runs that these calls submitted. */
    int calls, calls_of_many, runs;
    /* The largest number of runs that were submitted and not yet waited for at one time. */
    int deepest;
    /* Collectives in which the core took part. */
    int collectives;
} test_core_counters;
/* The counters of a core, also after its device was closed. */
test_core_counters test_cores_counters(const test_cores *cores, int number);

#endif
