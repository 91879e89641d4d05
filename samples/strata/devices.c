/* SPDX-License-Identifier: Apache-2.0
 *
 * strata devices: what the machine has, and why something cannot be used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "devices_check.h"

typedef struct devices_options {
    bool json, check;
    const char *device;
} devices_options;

static const option_row rows[] = {
    {"json", NULL, "one JSON array instead of the table", OPTION_FLAG, offsetof(devices_options, json), 0, 0},
    {"check", NULL, "compare every op with the reference, in each type that a device has; exit code 4 where one is wrong",
     OPTION_FLAG, offsetof(devices_options, check), 0, 0},
    {"device", "ID", "this one alone: opencl:0", OPTION_TEXT, offsetof(devices_options, device), 0, 0},
    PLUGIN_OPTION_ROWS,
    {0}};

static void print_row(const strata_device_info *d) {
    printf("%-12s %-14s %9.0f MiB  %s", d->id, strata_device_class_name(d->device_class), (double)d->memory_bytes / 1048576,
           d->name);
    if (d->vendor[0]) printf(" (%s)", d->vendor);
    printf("\n%12s %s", "", d->driver);
    if (d->compute_units) printf(", %u compute units", d->compute_units);
    if (d->vector_width > 1) printf(", vectors of %u", d->vector_width);
    putchar('\n');
}

static void print_skipped(const strata_device_info *d) {
    printf("%-12s skipped: %s\n", d->id, d->skipped);
}

static void print_dtypes(uint32_t dtypes) {
    bool first = true;
    putchar('[');
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        if (!(dtypes >> dtype & 1u)) continue;
        printf("%s\"%s\"", first ? "" : ",", strata_dtype_name((strata_dtype)dtype));
        first = false;
    }
    putchar(']');
}

static void print_json(const strata_device_info *d) {
    const struct {
        const char *key, *value;
    } texts[] = {{"id", d->id},         {"backend", d->backend}, {"name", d->name},
                 {"vendor", d->vendor}, {"driver", d->driver},   {"class", strata_device_class_name(d->device_class)}};
    putchar('{');
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        printf("%s\"%s\":", i ? "," : "", texts[i].key);
        print_json_string(texts[i].value);
    }
    printf(",\"memory_bytes\":%llu,\"max_allocation_bytes\":%llu,\"max_range_bytes\":%llu", (unsigned long long)d->memory_bytes,
           (unsigned long long)d->max_allocation_bytes, (unsigned long long)d->max_range_bytes);
    printf(
        ",\"compute_units\":%u,\"max_workgroup\":%u,\"local_bytes\":%llu,\"vector_width\":%u,\"unified_memory\":%s,\"dtypes\":",
        d->compute_units, d->max_workgroup, (unsigned long long)d->local_bytes, d->vector_width,
        d->unified_memory ? "true" : "false");
    print_dtypes(d->dtypes);
    printf(",\"skipped\":");
    if (d->skipped[0])
        print_json_string(d->skipped);
    else
        printf("null");
    putchar('}');
}

static int run(const command *command, int argc, char **argv) {
    devices_options options = {0};
    int n_arguments = 0, n = 0;
    int code = read_options(command, argc, argv, &options, NULL, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    strata_device_info *devices = NULL;
    strata_error err = {0};
    strata_status status = strata_devices_list(&devices, &n, &err);
    if (status) return report(FAILING_DEVICE, status, &err);
    bool any = false;
    code = EXIT_OK;
    if (options.json) putchar('[');
    for (int i = 0; i < n; i++) {
        if (options.device && strcmp(options.device, devices[i].id) != 0) continue;
        const bool checks = options.check && !devices[i].skipped[0];
        if (checks) {
            if (options.json && any) putchar(',');
            const int found = check_device(&devices[i], options.json);
            if (found) code = found;
        } else if (options.json) {
            if (any) putchar(',');
            print_json(&devices[i]);
        } else if (devices[i].skipped[0]) {
            print_skipped(&devices[i]);
        } else {
            print_row(&devices[i]);
        }
        any = true;
    }
    if (options.json) printf("]\n");
    strata_devices_free(devices);
    if (options.device && !any)
        return usage_error("devices: there is no %s; strata devices lists what there is", options.device);
    return code;
}

const command command_devices = {.name = "devices",
                                 .arguments = "",
                                 .summary = "list the devices of this machine, and why one was skipped",
                                 .options = rows,
                                 .run = run};
