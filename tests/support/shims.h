/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the OpenCL or Vulkan loader of this process load a driver of tests/shims, which calls the installed driver. A suite
 * that uses it calls test_folder_make first. Functions that return a string return NULL on success, else the reason why the
 * shim cannot be used, with which a test skips itself. */
#ifndef STRATA_TESTS_SHIMS_H
#define STRATA_TESTS_SHIMS_H

/* The shim calls PoCL. */
const char *test_use_opencl_shim(void);
/* The shim calls the first driver that VK_DRIVER_FILES names, or lavapipe where the variable is not set. */
const char *test_use_vulkan_shim(void);
/* Makes the Vulkan loader load only the driver of this manifest. */
void test_use_vulkan_driver(const char *manifest);
/* Writes the path of the library that a Vulkan driver's manifest names, as {"ICD": {"library_path": "..."}}. It is "" where the
 * manifest does not exist. */
void test_vulkan_library(const char *manifest, char out[512]);
/* Writes the path of a shim. `api` is "opencl" or "vulkan". */
void test_shim_path(const char *api, char out[512]);

#endif
