/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that lacks ops: any device, whose answers about some ops are changed. */
#ifndef STRATA_TESTS_SUPPORT_RESTRICTED_H
#define STRATA_TESTS_SUPPORT_RESTRICTED_H

#include "core/run/device.h"

typedef struct strata_test_restriction {
    /* Names of ops; the list ends with NULL. */
    const char *const *ops;
    /* The device runs these ops alone; else it runs all but these. */
    bool only_these;
    /* What it answers about the others, STRATA_SUPPORT_NO or _PARTS. */
    strata_support answer;
} strata_test_restriction;

/* Changes the device's answers from now on, until it is closed; may be called again. `ops` is borrowed as long. */
void strata_test_restrict(strata_device *device, strata_test_restriction restriction);
/* A host device that lacks ops; aborts the test program where there is no memory. */
strata_device *strata_test_restricted_host(strata_test_restriction restriction);

#endif
