/* SPDX-License-Identifier: Apache-2.0
 *
 * strata train --profile: some steps are traced, and a summary of the trace is printed after the result. With --tensorboard the
 * trace is also written for TensorBoard. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "strata/events.h"
#include "trace_read.h"
#include "train.h"

enum { ROWS = 12 };

static bool read_steps(const char *text, int64_t *out_first, int64_t *out_last) {
    char *rest = NULL;
    const long long first = strtoll(text, &rest, 10);
    if (rest == text || *rest != ':' || first < 1) return false;
    const char *second = rest + 1;
    const long long last = strtoll(second, &rest, 10);
    if (rest == second || *rest || last < first || last > (long long)1e15) return false;
    *out_first = first;
    *out_last = last;
    return true;
}

int read_profile(training *t) {
    if (!t->options.reports.profile) return EXIT_OK;
    if (!read_steps(t->options.reports.profile, &t->options.reports.profile_first, &t->options.reports.profile_last))
        return usage_error("--profile \"%s\": it must be the first and the last step, for example 10:20",
                           t->options.reports.profile);
    if (t->options.reports.trace) return EXIT_OK;
    const char *folder = getenv("TMPDIR");
    snprintf(t->own_trace, sizeof t->own_trace, "%.200s/strata-profile-XXXXXX", folder && *folder ? folder : "/tmp");
    const int file = mkstemp(t->own_trace);
    if (file < 0)
        return usage_error("--profile: %s cannot be written; --trace FILE names another place for the trace", t->own_trace);
    close(file);
    t->options.reports.trace = t->own_trace;
    return EXIT_OK;
}

void print_profile(training *t) {
    if (!t->options.reports.profile) return;
    trace_summary summary;
    trace_peaks peaks = {0};
    strata_error err = {0};
    const char *path = *t->trace_file ? t->trace_file : NULL;
    strata_device *device = strata_strategy_device(t->strategy, 0);
    strata_status status = path ? trace_read(path, &summary, &err) : STRATA_OK;
    const bool tells = t->opened.chief && path && !status;
    if (tells) status = trace_measure_peaks(device, &peaks, &err);
    if (tells && t->options.reports.json)
        trace_print_json(&summary, "profile", status ? NULL : &peaks);
    else if (tells)
        putchar('\n'), trace_print(&summary, status ? NULL : &peaks, ROWS);
    if (tells) trace_finish(&summary);
    if (status == STRATA_DATA && !tells) /* the trace has no steps of a device */
        fprintf(stderr, "strata: --profile %s: the training had none of these steps, so nothing was measured\n",
                t->options.reports.profile);
    else if (status)
        fprintf(stderr, "strata: --profile %s: %s\n", t->options.reports.profile, err.message);
}

void show_profile(const training *t) {
    char run[32];
    strata_error err = {0};
    const time_t now = time(NULL);
    struct tm local;
    if (!t->options.reports.tensorboard || !t->opened.chief || !*t->trace_file) return;
    if (!localtime_r(&now, &local) || !strftime(run, sizeof run, "%Y_%m_%d_%H_%M_%S", &local))
        snprintf(run, sizeof run, "%lld", (long long)now);
    if (strata_events_profile(t->options.reports.tensorboard, run, t->trace_file, &err))
        fprintf(stderr, "strata: --tensorboard %s: %s\n", t->options.reports.tensorboard, err.message);
}

void finish_profile(const training *t) {
    if (!*t->own_trace) return;
    unlink(t->own_trace);
    if (*t->trace_file) unlink(t->trace_file); /* a worker has a file of its own in the same folder */
}
