/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin in C++ whose start throws, which no call of a plugin may do. tests/plugin/check_test.sh builds it. */
#include <strata/plugin.h>

#include <stdexcept>

static strata_plugin_status start(const char *, int32_t *, strata_plugin_error *) {
    throw std::runtime_error("the chip is not there");
}

static const strata_plugin_device_info *device_info(int32_t) {
    return nullptr;
}

static strata_plugin_status device_open(int32_t, strata_plugin_device **, const strata_plugin_device_calls **,
                                        strata_plugin_error *) {
    return STRATA_PLUGIN_UNAVAILABLE;
}

extern "C" STRATA_PLUGIN_EXPORT const strata_plugin *strata_plugin_v1(const strata_plugin_host *) {
    static const strata_plugin plugin = {
        sizeof plugin, STRATA_PLUGIN_VERSION_MAJOR, STRATA_PLUGIN_VERSION_MINOR, "thrower", start, device_info, device_open};
    return &plugin;
}
