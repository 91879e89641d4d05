/* SPDX-License-Identifier: Apache-2.0
 *
 * The row of a backend in registry.c, and the choice among the devices of all backends. */
#ifndef STRATA_BACKENDS_REGISTRY_H
#define STRATA_BACKENDS_REGISTRY_H

#include "core/run/device.h"

/* One row of backends/registry.c. */
typedef struct strata_backend {
    const char *name;
    /* Its devices are listed and opened only if the user names the backend. */
    bool on_request;
    /* Its devices' rows have their own names as `backend`. So it is asked for each name that is not that of another
     * backend. */
    bool own_names;
    /* Listing devices opens each of them for a moment, because drivers list devices that they then cannot open. This
     * must not be set for plugins, whose devices may be open only once. */
    bool is_tried;
    /* It has no driver, so a child of fork may use it although its parent has used it. */
    bool is_built_in;
    /* The values of its nodes cannot be read one by one, so new programs are compared as a whole with the host's results. */
    bool is_compared;
    /* `list` limits the time of each call of a driver itself, and may be called by any thread. Otherwise it is called by a
     * thread that may be abandoned, as `open` is. */
    bool limits_list;
    /* Appends a row for each device, or one row with the reason why there are none. Fails only if memory runs out. */
    strata_status (*list)(strata_device_list *list, strata_error *err);
    /* Opens the device of this row, which `list` has appended. */
    strata_status (*open)(const strata_device_info *info, const strata_device_options *opts, strata_device **out_device,
                          strata_error *err);
} strata_backend;

#define STRATA_BACKEND(name) extern const strata_backend strata_backend_##name;
#include "backends/backends.def"

/* The row that strata_device_open(NULL) opens; NULL: no device can be opened. */
const strata_device_info *strata_device_best(const strata_device_info *rows, int n);

extern const strata_backend *const strata_backends[]; /* ends with NULL; backends/registry.c */

#endif
