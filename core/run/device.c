/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions for devices of all backends. backends/devices.c finds and opens devices. */
#include "core/run/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/locale.h"

static const char *const class_names[] = {
    [STRATA_DEVICE_HOST] = "host",
    [STRATA_DEVICE_SOFTWARE_GPU] = "software-gpu",
    [STRATA_DEVICE_CPU] = "cpu",
    [STRATA_DEVICE_INTEGRATED_GPU] = "integrated-gpu",
    [STRATA_DEVICE_DISCRETE_GPU] = "discrete-gpu",
    [STRATA_DEVICE_ACCELERATOR] = "accelerator",
};

const char *strata_device_class_name(strata_device_class device_class) {
    size_t n = sizeof class_names / sizeof *class_names;
    return (size_t)device_class < n ? class_names[device_class] : "unknown";
}

strata_status strata_device_list_add(strata_device_list *list, const strata_device_info *row, strata_error *err) {
    if (list->n == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 8;
        strata_device_info *rows = realloc(list->rows, (size_t)capacity * sizeof *rows);
        if (!rows) return strata_fail(err, STRATA_OUT_OF_MEMORY, "devices: no memory for %d rows", capacity);
        list->rows = rows;
        list->capacity = capacity;
    }
    list->rows[list->n++] = *row;
    return STRATA_OK;
}

void strata_device_close(strata_device *device) {
    if (device) device->api->close(device);
}

const strata_device_info *strata_device_get_info(const strata_device *device) {
    return &device->info;
}

void strata_device_report_compile(const strata_device *device, bool tuning, int done, int total) {
    const strata_compile_progress progress = {.device = device->info.id, .tuning = tuning, .done = done, .total = total};
    if (device->on_compile) device->on_compile(&progress, device->on_compile_user);
}

void strata_device_warn(const strata_device *device, const char *format, ...) {
    char message[STRATA_ERROR_MESSAGE_BYTES];
    va_list arguments;
    if (!device->on_warning) return;
    va_start(arguments, format);
    strata_format_v(message, sizeof message, format, arguments);
    va_end(arguments);
    device->on_warning(message, device->on_compile_user);
}

const strata_topology *strata_device_get_topology(strata_device *device) {
    return device->api->topology ? device->api->topology(device) : NULL;
}

int strata_device_most_runs(strata_device *device) {
    const strata_device_api *api = device->api;
    const int most = api->run_many && api->most_runs ? api->most_runs(device) : 1;
    return most > 1 ? most : 1;
}

const strata_device_collectives *strata_device_get_collectives(strata_device *device) {
    return device->api->collectives ? device->api->collectives(device) : NULL;
}

const strata_device_transfers *strata_device_get_transfers(strata_device *device) {
    return device->api->transfers ? device->api->transfers(device) : NULL;
}

strata_device_features strata_device_get_features(strata_device *device) {
    const strata_device_collectives *collectives = strata_device_get_collectives(device);
    const strata_device_transfers *transfers = strata_device_get_transfers(device);
    strata_device_features features = {.steps_per_call = strata_device_most_runs(device),
                                       .collectives = collectives != NULL,
                                       .sum_dtypes = collectives ? collectives->sum_dtypes : 0,
                                       .transfers = transfers != NULL,
                                       .device_copies = transfers && transfers->copy};
    if (device->api->spaces) device->api->spaces(device, &features);
    return features;
}

strata_device_counters strata_device_get_counters(const strata_device *device) {
    return device->counters;
}
