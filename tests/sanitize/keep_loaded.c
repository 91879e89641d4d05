/* SPDX-License-Identifier: Apache-2.0
 *
 * Every program that is built with AddressSanitizer contains this file. It replaces dlclose, so that no library is unloaded.
 * OpenCL and Vulkan loaders unload a driver when its last instance is destroyed. LeakSanitizer could then no longer name the
 * library that allocated a block, and tests/leaks.supp could not match it. */
int dlclose(void *library) __attribute__((visibility("default")));

int dlclose(void *library) {
    (void)library;
    return 0;
}
