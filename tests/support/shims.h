/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts a driver of tests/shims before the installed one, for this process. Needs test_folder_make. Returns why it cannot
 * be done, NULL where it is. */
#ifndef STRATA_TESTS_SHIMS_H
#define STRATA_TESTS_SHIMS_H

const char *test_use_opencl_shim(void); /* over PoCL */
const char *test_use_vulkan_shim(void); /* over the driver that is in use: lavapipe */
/* Only the driver of this manifest is in use. */
void test_use_vulkan_driver(const char *manifest);
/* The library that a Vulkan driver's manifest names, as {"ICD": {"library_path": "..."}}. "": there is no such driver. */
void test_vulkan_library(const char *manifest, char out[512]);
/* The path of a shim, "opencl" or "vulkan". */
void test_shim_path(const char *api, char out[512]);

#endif
