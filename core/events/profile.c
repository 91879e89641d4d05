/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts a trace (core/base/trace.h) to the files that TensorBoard's profiler reads: a message XSpace for each process
 * of the trace (xplane.proto of OpenXLA's TSL). A plane stands for the host or a device, a line in it for a thread or a
 * queue, and an event for a slice. The names of events and of their properties are stored once for each plane, as
 * metadata; an event contains their numbers. */
#include <stdio.h>

#include "core/base/file.h"
#include "core/events/events.h"
#include "strata/trace_file.h"

/* The properties of a slice other than its times. The values are their numbers in the metadata of a plane. */
enum { STAT_STEP = 1, STAT_OP, STAT_GFLOPS, STAT_GBYTES };
static const char *const stat_names[] = {
    [STAT_STEP] = "step", [STAT_OP] = "op", [STAT_GFLOPS] = "GFLOP/s", [STAT_GBYTES] = "GB/s"};

typedef strata_trace_file_track track;
typedef strata_trace_file_slice slice;

/* A trace whose slices are sorted by track and time. */
typedef struct profile {
    strata_trace_file trace;
    /* [n_slices] For each slice the number of its name, counted from 1. */
    int64_t *ids;
    /* The time at which the first slice begins, in microseconds. */
    double began;
} profile;

static int by_time(const void *a, const void *b) {
    const slice *x = a, *y = b;
    if (x->track != y->track) return x->track - y->track;
    if (x->began != y->began) return x->began < y->began ? -1 : 1;
    return x->took > y->took ? -1 : x->took < y->took; /* a slice comes before the slices that it contains */
}

static int by_name(const void *a, const void *b) {
    const slice *x = *(const slice *const *)a, *y = *(const slice *const *)b;
    return strcmp(x->name, y->name);
}

static strata_status number(profile *p, strata_error *err) {
    const int64_t n = p->trace.n_slices;
    STRATA_FREED const slice **order = NULL;
    int64_t id = 0;
    if (!n) return strata_fail(err, STRATA_DATA, "profile: the trace has no slices");
    STRATA_TRY(STRATA_NEW(order, n, err, "profile: no host memory"));
    STRATA_TRY(STRATA_NEW(p->ids, n, err, "profile: no host memory"));
    qsort(p->trace.slices, (size_t)n, sizeof *p->trace.slices, by_time);
    for (int64_t i = 0; i < n; i++) order[i] = &p->trace.slices[i];
    qsort(order, (size_t)n, sizeof(const slice *), by_name);
    for (int64_t i = 0; i < n; i++) {
        if (!i || strcmp(order[i]->name, order[i - 1]->name)) id++;
        p->ids[order[i] - p->trace.slices] = id;
        if (!i || order[i]->began < p->began) p->began = order[i]->began;
    }
    return STRATA_OK;
}

/* Converts a time to the integer type of the profiler's file. If a trace contains an absurd time that does not fit, it
 * becomes the largest integer. */
static int64_t rounded_down(double count) {
    return count < 9e18 ? (int64_t)count : INT64_MAX;
}
static int64_t picoseconds(double microseconds) {
    return rounded_down(microseconds * 1e6);
}

static void add_stat(strata_text *event, int which, int64_t whole, double number, const char *text) {
    strata_text stat = {0};
    strata_proto_integer(&stat, 1, which);
    if (text)
        strata_proto_string(&stat, 5, text);
    else if (number > 0)
        strata_proto_double(&stat, 2, number);
    else
        strata_proto_integer(&stat, 4, whole);
    strata_proto_message(event, 4, &stat);
}

/* Adds an entry to a map of metadata: from the number `id` to a message with the same number and a name. */
static void add_metadata(strata_text *plane, int field, int64_t id, const char *name) {
    strata_text entry = {0}, value = {0};
    strata_proto_integer(&value, 1, id);
    strata_proto_string(&value, 2, name);
    strata_proto_integer(&entry, 1, id);
    strata_proto_message(&entry, 2, &value);
    strata_proto_message(plane, field, &entry);
}

static void add_event(const profile *p, strata_text *line, int64_t which) {
    const slice *s = &p->trace.slices[which];
    strata_text event = {0};
    strata_proto_integer(&event, 1, p->ids[which]);
    strata_proto_integer(&event, 2, picoseconds(s->began - p->began));
    strata_proto_integer(&event, 3, picoseconds(s->took));
    add_stat(&event, STAT_STEP, s->step, 0, NULL);
    if (s->op) add_stat(&event, STAT_OP, 0, 0, s->op);
    if (s->gflops > 0) add_stat(&event, STAT_GFLOPS, 0, s->gflops, NULL);
    if (s->gbytes > 0) add_stat(&event, STAT_GBYTES, 0, s->gbytes, NULL);
    strata_proto_message(line, 4, &event);
}

/* has_metadata: [names + 1] whether the plane already contains the metadata of each name. */
static void add_line(const profile *p, int which, bool *has_metadata, strata_text *plane) {
    strata_text line = {0};
    strata_proto_integer(&line, 1, p->trace.tracks[which].thread);
    strata_proto_string(&line, 2, p->trace.tracks[which].name);
    strata_proto_integer(&line, 3, rounded_down(p->began * 1e3)); /* in ns */
    for (int64_t i = 0; i < p->trace.n_slices; i++) {
        const slice *s = &p->trace.slices[i];
        if (s->track != which) continue;
        if (!has_metadata[p->ids[i]]) add_metadata(plane, 4, p->ids[i], s->name);
        has_metadata[p->ids[i]] = true;
        add_event(p, &line, i);
    }
    strata_proto_message(plane, 3, &line);
}

/* Adds a plane: that of a device's track `first`, or, if `first` is a track of the host, of all host tracks of its
 * process from `first` on. */
static strata_status add_plane(const profile *p, int first, int which, strata_text *space, strata_error *err) {
    const track *tracks = p->trace.tracks, *one = &tracks[first];
    strata_text plane = {0};
    char name[256] = "/host:CPU"; /* from this name the profiler knows what the plane stands for */
    STRATA_FREED bool *has_metadata = NULL;
    STRATA_TRY(STRATA_NEW(has_metadata, p->trace.n_slices + 1, err, "profile: no host memory"));
    if (one->device) snprintf(name, sizeof name, "/device:CUSTOM:%d %.200s", which, one->name);
    strata_proto_integer(&plane, 1, which + 1);
    strata_proto_string(&plane, 2, name);
    for (int i = first; i < p->trace.n_tracks; i++)
        if (i == first || (!one->device && !tracks[i].device && tracks[i].process == one->process))
            add_line(p, i, has_metadata, &plane);
    for (int i = STAT_STEP; i <= STAT_GBYTES; i++) add_metadata(&plane, 5, i, stat_names[i]);
    strata_proto_message(space, 1, &plane);
    return STRATA_OK;
}

/* Writes the file of the process whose first track is `first`. */
static strata_status write_process(const profile *p, int first, const char *folder, strata_error *err) {
    const track *tracks = p->trace.tracks;
    STRATA_FINISHED(strata_text) space = {0}, path = {0};
    char host[64];
    STRATA_FREED char *bytes = NULL, *name = NULL;
    size_t n_bytes = 0;
    bool has_host = false;
    snprintf(host, sizeof host, "%.60s", *tracks[first].process_name ? tracks[first].process_name : "host");
    for (char *c = host; *c; c++)
        if (strchr(" :/.", *c)) *c = '_';
    for (int i = first, n_planes = 0; i < p->trace.n_tracks; i++) {
        if (tracks[i].process != tracks[first].process || (!tracks[i].device && has_host)) continue;
        has_host |= !tracks[i].device;
        STRATA_TRY(add_plane(p, i, n_planes++, &space, err));
    }
    strata_proto_string(&space, 4, host);
    strata_text_add(&path, "%s/%s.xplane.pb", folder, host);
    STRATA_TRY(strata_text_take(&space, &bytes, &n_bytes, err));
    STRATA_TRY(strata_text_take(&path, &name, NULL, err));
    return strata_file_write(name, bytes, n_bytes, err);
}

static void profile_finish(profile *p) {
    strata_trace_file_finish(&p->trace);
    free(p->ids);
}

strata_status strata_events_profile(const char *folder, const char *run, const char *trace, strata_error *err) {
    STRATA_FINISHED(strata_text) path = {0};
    STRATA_FREED char *place = NULL;
    STRATA_FINISHED(profile) p = {0};
    STRATA_TRY(strata_events_check_tag(run, err));
    STRATA_TRY(strata_trace_file_read(trace, &p.trace, err));
    STRATA_TRY(number(&p, err));
    strata_text_add(&path, "%s/plugins/profile/%s", folder, run);
    STRATA_TRY(strata_text_take(&path, &place, NULL, err));
    STRATA_TRY(strata_events_make_folders(place, err));
    for (int i = 0; i < p.trace.n_tracks; i++) {
        bool first = true;
        for (int k = 0; k < i; k++) first = first && p.trace.tracks[k].process != p.trace.tracks[i].process;
        if (first) STRATA_TRY(write_process(&p, i, place, err));
    }
    return STRATA_OK;
}
