/* SPDX-License-Identifier: Apache-2.0
 *
 * strata devices: lists the machine's devices, and the reasons why some cannot be used. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "devices_check.h"
#include "terminal.h"

typedef struct devices_options {
    bool json, check;
    const char *device;
} devices_options;

static const option_row rows[] = {
    {"json", NULL, "print a JSON array instead of the table", OPTION_FLAG, offsetof(devices_options, json), 0, 0},
    {"check", NULL, "compare every op with its reference, in each type that the device has; exit code 4 if one is wrong",
     OPTION_FLAG, offsetof(devices_options, check), 0, 0},
    {"device", "ID", "list only this device, for example opencl:0", OPTION_TEXT, offsetof(devices_options, device), 0, 0},
    PLUGIN_OPTION_ROWS,
    {0}};

/* ---- properties for which the device must be opened ---- */

typedef struct details {
    /* False: the device was not opened, or cannot be opened; `err` has the reason. */
    bool open;
    bool has_topology;
    strata_topology topology;
    strata_device_features features;
    strata_error err;
} details;

/* Opens a device to read its details. Only accelerators are opened, which may have several cores, links and memories. */
static details read_details(const strata_device_info *d) {
    details own = {.features = {.steps_per_call = 1}};
    strata_device *device = NULL;
    if (d->skipped[0] || d->device_class != STRATA_DEVICE_ACCELERATOR) return own;
    if (strata_device_open(d->id, NULL, &device, &own.err)) return own;
    const strata_topology *topology = strata_device_get_topology(device);
    own.open = true;
    own.has_topology = topology != NULL;
    if (topology) own.topology = *topology;
    own.features = strata_device_get_features(device);
    strata_device_close(device);
    return own;
}

/* Prints numbers, for example "(0,3)". */
static void print_numbers(const char *open, const int *numbers, int n, const char *close) {
    printf("%s", open);
    for (int i = 0; i < n; i++) printf("%s%d", i ? "," : "", numbers[i]);
    printf("%s", close);
}

static void print_topology(const strata_topology *t, const strata_device_features *f) {
    printf("%12s core %d of %d of \"%s\"", "", t->core, t->n_cores, t->system);
    if (t->rank) {
        print_numbers(", at (", t->coordinates, t->rank, ") of a grid of (");
        print_numbers("", t->dims, t->rank, ")");
    }
    if (f->collectives) printf(", which add up by themselves");
    putchar('\n');
}

static void print_spaces(const strata_device_features *f) {
    if (f->n_spaces) printf("%12s memories: ", "");
    for (int i = 0; i < f->n_spaces; i++) {
        const strata_memory_space *space = &f->spaces[i];
        printf("%s%s of %.0f MiB", i ? ", " : "", space->name, (double)space->bytes / 1048576);
        if (space->bytes_per_second > 0) printf(" at %.0f GB/s", space->bytes_per_second / 1e9);
        if (!space->buffers) printf(" (inside of programs)");
    }
    if (f->n_spaces) putchar('\n');
}

static void print_features(const strata_device_features *f) {
    const char *separator = "";
    if (f->steps_per_call < 2 && !f->transfers) return;
    printf("%12s ", "");
    if (f->steps_per_call == INT_MAX) printf("any number of steps a call");
    if (f->steps_per_call > 1 && f->steps_per_call < INT_MAX) printf("%d steps a call at most", f->steps_per_call);
    if (f->steps_per_call > 1) separator = ", ";
    if (f->transfers) printf("%scopies beside programs", separator);
    if (f->device_copies) printf(", copies between devices");
    putchar('\n');
}

static void print_details(const strata_device_info *d) {
    const details own = read_details(d);
    if (own.has_topology) print_topology(&own.topology, &own.features);
    print_spaces(&own.features);
    print_features(&own.features);
    if (own.err.status) printf("%12s cannot be opened now: %s\n", "", own.err.message);
}

/* ---- the table ---- */

enum { INDENT = 13 };

static void print_row(const strata_device_info *d) {
    line whole;
    FILE *to = line_begin(&whole);
    fprintf(to, "%-12s %-14s %9.0f MiB  %s", d->id, strata_device_class_name(d->device_class),
            (double)d->memory_bytes / 1048576, d->name);
    if (d->vendor[0]) fprintf(to, " (%s)", d->vendor);
    fprintf(to, "\n%12s %s", "", d->driver);
    if (d->compute_units) fprintf(to, ", %u compute unit%s", d->compute_units, d->compute_units == 1 ? "" : "s");
    if (d->vector_width > 1) fprintf(to, ", vectors of %u", d->vector_width);
    if (d->matrix_units[0]) fprintf(to, ", matrix units %s", d->matrix_units);
    line_end(&whole, INDENT);
    print_details(d);
}

static void print_skipped(const strata_device_info *d) {
    line whole;
    fprintf(line_begin(&whole), "%-12s skipped: %s", d->id, d->skipped);
    line_end(&whole, INDENT);
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

/* ---- JSON ---- */

static void print_json_topology(const strata_topology *t) {
    printf("{\"system\":");
    print_json_string(t->system);
    printf(",\"n_cores\":%d,\"core\":%d", t->n_cores, t->core);
    print_numbers(",\"dims\":[", t->dims, t->rank, "]");
    print_numbers(",\"coordinates\":[", t->coordinates, t->rank, "]}");
}

static void print_json_spaces(const strata_device_features *f) {
    printf(",\"spaces\":[");
    for (int i = 0; i < f->n_spaces; i++) {
        const strata_memory_space *space = &f->spaces[i];
        printf("%s{\"name\":", i ? "," : "");
        print_json_string(space->name);
        printf(",\"bytes\":%llu,\"buffers\":%s,\"bytes_per_second\":", (unsigned long long)space->bytes,
               space->buffers ? "true" : "false");
        printf(space->bytes_per_second > 0 ? "%.0f}" : "null}", space->bytes_per_second);
    }
    putchar(']');
}

/* steps_per_call is null if any number of steps can be given in one call. */
static void print_json_details(const strata_device_info *d) {
    const details own = read_details(d);
    const strata_device_features *f = &own.features;
    printf(",\"topology\":");
    if (own.has_topology)
        print_json_topology(&own.topology);
    else
        printf("null");
    printf(",\"collectives\":");
    if (f->collectives)
        print_dtypes(f->sum_dtypes);
    else
        printf("null");
    printf(f->steps_per_call == INT_MAX ? ",\"steps_per_call\":null" : ",\"steps_per_call\":%d", f->steps_per_call);
    print_json_spaces(f);
    printf(",\"transfers\":%s,\"device_copies\":%s", f->transfers ? "true" : "false", f->device_copies ? "true" : "false");
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
    printf(",\"matrix_units\":");
    print_json_string(d->matrix_units);
    print_json_details(d);
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
                                 .summary = "list the devices of this machine, and why others cannot be used",
                                 .options = rows,
                                 .run = run};
