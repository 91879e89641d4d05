/* SPDX-License-Identifier: Apache-2.0
 *
 * Part of every program that AddressSanitizer builds: no library is ever unloaded, so that LeakSanitizer can still name the one
 * whose code allocated, and tests/leaks.supp can match it. Loaders unload drivers with their last instance. */
int dlclose(void *library) __attribute__((visibility("default")));

int dlclose(void *library) {
    (void)library;
    return 0;
}
