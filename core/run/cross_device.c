/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/cross_device.h"

#include <string.h>

#include "strata/strategy.h"

static const strata_cross_device_ops *const table[] = {&strata_cross_device_host, &strata_cross_device_tree,
                                                       &strata_cross_device_device};

const char *const strata_cross_device_names[] = {"host", "tree", "device", NULL};

strata_status strata_cross_device_find(const char *name, const strata_cross_device_ops **out_ops, strata_error *err) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!name || !strcmp(table[i]->name, name)) {
            *out_ops = table[i];
            return STRATA_OK;
        }
    return strata_fail(err, STRATA_INVALID, "there are no cross-device ops \"%s\"; there are: host, tree, device", name);
}
