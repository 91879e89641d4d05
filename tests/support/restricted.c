/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces the device's table of functions by a copy in which `supports` and `close` are other functions. */
#include "tests/support/restricted.h"

#include <stdlib.h>
#include <string.h>

#include "core/op/epilogue.h"

/* `api` must be the first member: the functions cast the device's `api` pointer to this struct. */
typedef struct restricted_table {
    strata_device_api api;
    const strata_device_api *original;
    strata_test_restriction restriction;
} restricted_table;

static strata_support supports(strata_device *device, const strata_tensor *node, const char **reason) {
    const restricted_table *table = (const restricted_table *)(const void *)device->api;
    bool listed = false;
    for (const char *const *op = table->restriction.ops; *op && !listed; op++) listed = !strcmp(*op, node->op->name);
    /* A matmul or convolution with a fused epilogue contains more ops than its name, so a device that supports only the listed
     * ops does not support it. */
    if (node->op->epilogue && !strata_epilogue_is_plain(strata_epilogue_of(node)))
        listed = listed && !table->restriction.only_these;
    if (listed == table->restriction.only_these) return table->original->supports(device, node, reason);
    *reason = "the test took the op away";
    return table->restriction.answer;
}

static void close_restricted(strata_device *device) {
    restricted_table *table = (restricted_table *)(void *)device->api;
    device->api = table->original;
    device->api->close(device);
    free(table);
}

void strata_test_restrict(strata_device *device, strata_test_restriction restriction) {
    if (device->api->supports == supports) {
        ((restricted_table *)(void *)device->api)->restriction = restriction;
        return;
    }
    restricted_table *table = malloc(sizeof *table);
    if (!table) abort();
    *table = (restricted_table){.api = *device->api, .original = device->api, .restriction = restriction};
    table->api.supports = supports;
    table->api.close = close_restricted;
    device->api = &table->api;
}

strata_device *strata_test_restricted_host(strata_test_restriction restriction) {
    strata_device *device = NULL;
    if (strata_device_open("host", NULL, &device, NULL)) abort();
    strata_test_restrict(device, restriction);
    return device;
}
