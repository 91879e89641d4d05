/* SPDX-License-Identifier: Apache-2.0
 *
 * Which devices the conformance suite runs on: every one that can be opened, or those named in the environment.
 *     STRATA_TEST_DEVICES   prefixes of ids, joined by commas: "opencl", "vulkan:0,host". Parts of a device ("opencl:0.1") run
 *                           only
 *                           when they are named in full, as is "null", which computes nothing: its numbers are not compared.
 *     STRATA_TEST_KERNELS   gpu: every device runs the kernels for real GPUs
 *     STRATA_TEST_SMALL     1: small shapes only, for checkers that are a thousand times slower */
#ifndef STRATA_TESTS_CONFORMANCE_DEVICES_H
#define STRATA_TESTS_CONFORMANCE_DEVICES_H

#include "backends/kernel/kernel.h"

bool conformance_small(void);

/* Opens each device in turn, calls visit, closes it. Vulkan runs under its validation layer where that is installed, and what
 * it says fails the test. Skips the running test, with the reason, when no device matches. */
void conformance_each_device(const strata_device_options *opts, void (*visit)(strata_device *device));

/* Ids of the devices that match, at most `most`; returns how many. */
int conformance_device_ids(char (*out_ids)[32], int most);
/* As strata_device_open with validation; fails the running test when it can't. */
strata_device *conformance_open(const char *id, const strata_device_options *opts);
/* Fails the running test when validation said something; closes. */
void conformance_close(strata_device *device);

/* Whether the device's numbers are to be compared: not those of the null backend, which are zeros. */
bool conformance_computes(const strata_device *device);

/* Whether the device's backend does without some ops: then nodes that it refuses must be UNSUPPORTED with a reason.
 * tests/pjrt says which these may be. */
bool conformance_may_refuse(const strata_device *device);

/* What kernels are chosen by; NULL for the host, which has none. */
strata_kernel_limits *conformance_limits(strata_device *device);
/* The same of an OpenCL device (opencl_limits.c). */
strata_kernel_limits *conformance_opencl_limits(strata_device *device);

#endif
