/* SPDX-License-Identifier: Apache-2.0
 *
 * strata trace: summarizes the times of a training, from the file that strata train --trace or --profile wrote. */
#include <stdio.h>

#include "samples.h"
#include "trace_read.h"

typedef struct trace_options {
    device_flags device;
    int64_t top;
    bool json, peaks;
} trace_options;

static const option_row rows[] = {
    {"top", "N", "the number of rows in each table (12)", OPTION_INT, offsetof(trace_options, top), 1, MOST_TRACE_ROWS},
    {"peaks", NULL, "measure the device's peaks, and print which share of them each op reached", OPTION_FLAG,
     offsetof(trace_options, peaks), 0, 0},
    DEVICE_OPTION_ROWS(trace_options, device),
    {"json", NULL, "print one line of JSON", OPTION_FLAG, offsetof(trace_options, json), 0, 0},
    {0}};

static int measure(const trace_options *options, trace_peaks *out_peaks) {
    strata_error err = {0};
    strata_device *device = NULL;
    const int code = open_device(&options->device, &device);
    if (code) return code;
    const strata_status status = trace_measure_peaks(device, out_peaks, &err);
    strata_device_close(device);
    return status ? report(FAILING_RUN, status, &err) : EXIT_OK;
}

static int run(const command *command, int argc, char **argv) {
    trace_options options = {.top = 12};
    const char *path = NULL;
    int n = 0;
    int code = read_options(command, argc, argv, &options, &path, &n);
    if (code) return code < 0 ? EXIT_OK : code;
    trace_summary summary;
    trace_peaks peaks = {0};
    strata_error err = {0};
    const strata_status status = trace_read(path, &summary, &err);
    if (status) return report(FAILING_DATA, status, &err);
    if (options.peaks) code = measure(&options, &peaks);
    if (!code && options.json) trace_print_json(&summary, NULL, options.peaks ? &peaks : NULL);
    if (!code && !options.json) trace_print(&summary, options.peaks ? &peaks : NULL, (int)options.top);
    trace_finish(&summary);
    return code;
}

const command command_trace = {
    .name = "trace",
    .arguments = "TRACE.json",
    .summary = "show where the time of a training was spent, by op, device and worker, and what limits it",
    .details =
        "  strata train mnist --profile 100:120 --trace t.json\n"
        "  strata trace t.json\n"
        "  strata trace t.json --peaks --device opencl:0\n"
        "The file is in the Trace Event Format: ui.perfetto.dev shows it as a picture.\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .files = "r",
    .run = run};
