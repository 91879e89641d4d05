/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects the devices of the conformance suite: every device that can be opened, or those that an environment variable names.
 *     STRATA_TEST_DEVICES   prefixes of ids, joined by commas: "opencl", "vulkan:0,host". A part of a device ("opencl:0.1") is
 *                           used only when its full id is given. So is the device "null", which computes nothing, and whose
 *                           results are not compared.
 *     STRATA_TEST_KERNELS   gpu: every device uses the kernels for real GPUs
 *     STRATA_TEST_SMALL     1: only small shapes, for checkers such as Oclgrind that are a thousand times slower
 *     STRATA_TEST_DTYPES    names joined by commas: "f32,i32". Rows of ops run in those of their dtypes alone, and a row that
 *                           has none of them in all its dtypes. For drivers that take long to compile a kernel.
 *     STRATA_TEST_ROWS      "K/N": of the rows of ops, only those whose number has the remainder K when divided by N */
#ifndef STRATA_TESTS_CONFORMANCE_DEVICES_H
#define STRATA_TESTS_CONFORMANCE_DEVICES_H

#include "backends/kernel/kernel.h"

bool conformance_small(void);

/* Returns the dtypes of the set in which a row runs, as bits. */
unsigned conformance_dtypes(unsigned dtypes);

/* Whether the row with this number runs. */
bool conformance_has_row(int row);

/* Opens each device, calls `visit` with it and closes it. Vulkan runs with its validation layer where that is installed; a
 * message of the layer fails the test. When no device matches, the running test is skipped, with the reason. */
void conformance_each_device(const strata_device_options *opts, void (*visit)(strata_device *device));

/* Writes the ids of the devices that match, at most `most`, and returns their number. */
int conformance_device_ids(char (*out_ids)[32], int most);
/* As strata_device_open with validation. It fails the running test when the device cannot be opened. Kernels are not checked on
 * first use, because a wrong kernel would then be replaced and the test would pass. A warning fails the running test. */
strata_device *conformance_open(const char *id, const strata_device_options *opts);
/* Closes the device. It fails the running test when the validation layer has reported something. */
void conformance_close(strata_device *device);

/* Whether results of the device are compared. Those of the null backend are not, since they are zeros. */
bool conformance_computes(const strata_device *device);

/* Whether the device's backend may lack ops. Nodes that it rejects must then be UNSUPPORTED, with a reason. The tests in
 * tests/pjrt check which ops these are. */
bool conformance_may_refuse(const strata_device *device);

/* The properties of the device by which kernels are chosen. NULL for the host, which has no kernels. */
strata_kernel_limits *conformance_limits(strata_device *device);
/* The same for an OpenCL device. It is in opencl_limits.c. */
strata_kernel_limits *conformance_opencl_limits(strata_device *device);

#endif
