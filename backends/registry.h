/* SPDX-License-Identifier: Apache-2.0
 *
 * What a backend says about itself in its row of registry.c, and the choice among the devices of all backends. */
#ifndef STRATA_BACKENDS_REGISTRY_H
#define STRATA_BACKENDS_REGISTRY_H

#include "core/run/device.h"

/* One row of backends/registry.c. */
typedef struct strata_backend {
    const char *name;
    /* Its devices are listed, and can be opened, only for one who names the backend. */
    bool on_request;
    /* Its devices have names of their own, which are the `backend` of their rows: it is asked where no other is named. */
    bool own_names;
    /* Listing devices opens each of them for a moment: drivers show devices that they then cannot open. Not for plugins, whose
     * devices may be open once only. */
    bool is_tried;
    /* Appends a row for each device there is, or one row that says why there are none. Fails only for lack of memory. */
    strata_status (*list)(strata_device_list *list, strata_error *err);
    /* Opens the device with this id, one that list gave. */
    strata_status (*open)(const strata_device_info *info, const strata_device_options *opts, strata_device **out_device,
                          strata_error *err);
} strata_backend;

/* The row that strata_device_open(NULL) opens; NULL: none can be opened. */
const strata_device_info *strata_device_best(const strata_device_info *rows, int n);

extern const strata_backend *const strata_backends[]; /* ends with NULL; backends/registry.c */

#endif
