/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a device report that it does not support some ops, for tests of devices that lack ops. */
#ifndef STRATA_TESTS_SUPPORT_RESTRICTED_H
#define STRATA_TESTS_SUPPORT_RESTRICTED_H

#include "core/run/device.h"

typedef struct strata_test_restriction {
    /* Names of ops; the list ends with NULL. */
    const char *const *ops;
    /* True: the device supports only these ops. False: it supports all ops but these. */
    bool only_these;
    /* What the device answers for an op that it does not support: STRATA_SUPPORT_NO or STRATA_SUPPORT_PARTS. */
    strata_support answer;
} strata_test_restriction;

/* Restricts the device until it is closed. A second call replaces the restriction. `ops` must stay valid as long. */
void strata_test_restrict(strata_device *device, strata_test_restriction restriction);
/* Opens the host device and restricts it. When memory runs out, the test program aborts. */
strata_device *strata_test_restricted_host(strata_test_restriction restriction);

#endif
