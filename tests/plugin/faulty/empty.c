/* SPDX-License-Identifier: Apache-2.0
 *
 * A shared library that is not a plugin. */
__attribute__((visibility("default"))) int not_a_plugin(void);
int not_a_plugin(void) {
    return 1;
}
