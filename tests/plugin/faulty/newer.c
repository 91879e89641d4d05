/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin of the next major version. */
__attribute__((visibility("default"))) const void *strata_plugin_v2(const void *host);
const void *strata_plugin_v2(const void *host) {
    return host;
}
