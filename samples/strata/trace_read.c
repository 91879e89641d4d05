/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a trace and adds it up: a slice's own time is what it took without the slices inside it. */
#include "trace_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"

enum { MOST_TRACKS = 4096, MOST_DEPTH = 64 };
static const size_t MOST_BYTES = (size_t)1 << 30;

typedef struct slice {
    int track, row;
    int64_t step;
    double began, ended;
} slice;

/* The file on its way to a summary. */
typedef struct reader {
    trace_summary *summary;
    slice *slices;
    int64_t n, capacity;
} reader;

static strata_status no_memory(strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "trace: no host memory");
}

static strata_status track_of(reader *r, const strata_json *event, int *out_track, strata_error *err) {
    trace_summary *s = r->summary;
    int64_t process = 0, thread = 0;
    STRATA_TRY(strata_json_get_int(event, "pid", STRATA_JSON_REQUIRED, 0, INT32_MAX, &process, err));
    STRATA_TRY(strata_json_get_int(event, "tid", STRATA_JSON_REQUIRED, 0, INT32_MAX, &thread, err));
    for (int i = s->n_tracks; i-- > 0;)
        if (s->tracks[i].process == process && s->tracks[i].thread == thread) {
            *out_track = i;
            return STRATA_OK;
        }
    if (s->n_tracks == MOST_TRACKS)
        return strata_fail(err, STRATA_DATA, "the trace has more than %d tracks; these are more than a training has",
                           MOST_TRACKS);
    if (!(s->n_tracks & (s->n_tracks - 1))) { /* a power of two: it is full */
        const size_t capacity = s->n_tracks ? 2 * (size_t)s->n_tracks : 1;
        trace_track *tracks = realloc(s->tracks, capacity * sizeof *tracks);
        if (!tracks) return no_memory(err);
        s->tracks = tracks;
    }
    s->tracks[ *out_track = s->n_tracks++] = (trace_track){.process = process, .thread = thread};
    return STRATA_OK;
}

/* A metadata event: the name of a process or of a track. */
static strata_status read_name(reader *r, const strata_json *event, const char *what, strata_error *err) {
    strata_json args;
    const char *name = NULL;
    int track;
    const bool process = !strcmp(what, "process_name");
    if (!process && strcmp(what, "thread_name")) return STRATA_OK;
    STRATA_TRY(track_of(r, event, &track, err));
    STRATA_TRY(strata_json_get(event, "args", &args, err));
    STRATA_TRY(strata_json_get_string(&args, "name", STRATA_JSON_REQUIRED, &name, err));
    trace_track *own = &r->summary->tracks[track];
    if (process)
        snprintf(own->worker, sizeof own->worker, "%s", name);
    else
        snprintf(own->name, sizeof own->name, "%s", name);
    return STRATA_OK;
}

/* Exchanges are numbered: "exchange 3: all_reduce (100)" is a row "all_reduce" beside those of the same kind. */
static void name_row(const char *name, const char *op, bool device, char *out, size_t room) {
    if (device)
        snprintf(out, room, "%s", op ? op : name);
    else if (!strncmp(name, "exchange ", 9))
        snprintf(out, room, "exchange (%s)", op ? op : "?");
    else if (!strncmp(name, "epoch ", 6))
        snprintf(out, room, "between steps");
    else
        snprintf(out, room, "%s", name);
}

static int row_of(trace_track *track, const char *name) {
    int i = 0;
    while (i < track->n_rows && strcmp(track->rows[i].name, name)) i++;
    if (i >= MOST_TRACE_ROWS - 1) name = "others", i = MOST_TRACE_ROWS - 1; /* what is left over is counted together */
    if (i == track->n_rows) snprintf(track->rows[track->n_rows++].name, sizeof track->rows[0].name, "%s", name);
    return i;
}

static strata_status read_slice(reader *r, const strata_json *event, const char *name, strata_error *err) {
    const char *category = "", *op = NULL;
    double began = 0, took = 0, gflops = 0, gbytes = 0;
    int64_t step = 0;
    int track;
    strata_json args;
    char row[sizeof r->summary->tracks->rows[0].name];
    STRATA_TRY(strata_json_get_string(event, "cat", STRATA_JSON_OPTIONAL, &category, err));
    STRATA_TRY(strata_json_get_number(event, "ts", STRATA_JSON_REQUIRED, 0, 1e300, &began, err));
    STRATA_TRY(strata_json_get_number(event, "dur", STRATA_JSON_REQUIRED, 0, 1e300, &took, err));
    STRATA_TRY(track_of(r, event, &track, err));
    if (strata_json_find(event, "args", &args)) {
        STRATA_TRY(strata_json_get_int(&args, "step", STRATA_JSON_OPTIONAL, 0, INT64_C(1) << 52, &step, err));
        STRATA_TRY(strata_json_get_string(&args, "op", STRATA_JSON_OPTIONAL, &op, err));
        STRATA_TRY(strata_json_get_number(&args, "GFLOP/s", STRATA_JSON_OPTIONAL, 0, 1e300, &gflops, err));
        STRATA_TRY(strata_json_get_number(&args, "GB/s", STRATA_JSON_OPTIONAL, 0, 1e300, &gbytes, err));
    }
    trace_track *own = &r->summary->tracks[track];
    if (!strcmp(category, "device")) own->device = true;
    name_row(name, op, own->device, row, sizeof row);
    trace_row *found = &own->rows[row_of(own, row)];
    found->count++;
    if (gflops > 0) found->flops += gflops * 1e3 * took, found->flops_us += took;
    if (gbytes > 0) found->bytes += gbytes * 1e3 * took, found->bytes_us += took;
    if (r->n == r->capacity) {
        const int64_t capacity = r->capacity ? 2 * r->capacity : 1024;
        slice *slices = realloc(r->slices, (size_t)capacity * sizeof *slices);
        if (!slices) return no_memory(err);
        r->slices = slices;
        r->capacity = capacity;
    }
    r->slices[r->n++] = (slice){track, (int)(found - own->rows), step, began, began + took};
    return STRATA_OK;
}

static strata_status read_events(reader *r, const strata_json *root, strata_error *err) {
    strata_json list = *root, event;
    if (strata_json_kind_of(root) != STRATA_JSON_ARRAY) STRATA_TRY(strata_json_get(root, "traceEvents", &list, err));
    STRATA_TRY(strata_json_expect(&list, STRATA_JSON_ARRAY, err));
    for (bool more = strata_json_first(&list, &event); more; more = strata_json_next(&event)) {
        const char *phase = "", *name = "";
        STRATA_TRY(strata_json_get_string(&event, "ph", STRATA_JSON_REQUIRED, &phase, err));
        STRATA_TRY(strata_json_get_string(&event, "name", STRATA_JSON_OPTIONAL, &name, err));
        if (!strcmp(phase, "M")) STRATA_TRY(read_name(r, &event, name, err));
        if (!strcmp(phase, "X")) STRATA_TRY(read_slice(r, &event, name, err));
    }
    return STRATA_OK;
}

/* ---- adding up ---- */

/* By track, then by time; of those that begin together the longer one first, which contains the other. */
static int in_order(const void *a, const void *b) {
    const slice *x = a, *y = b;
    if (x->track != y->track) return x->track - y->track;
    if (x->began != y->began) return x->began < y->began ? -1 : 1;
    return x->ended > y->ended ? -1 : x->ended < y->ended;
}

static void add_times(trace_summary *summary, const slice *slices, int64_t n) {
    const slice *open[MOST_DEPTH];
    int depth = 0, last = -1;
    for (int64_t i = 0; i < n; i++) {
        const slice *s = &slices[i];
        trace_track *track = &summary->tracks[s->track];
        const double took = s->ended - s->began;
        if (s->track != last) depth = 0, track->began = s->began;
        last = s->track;
        while (depth && open[depth - 1]->ended <= s->began) depth--;
        if (depth)
            track->rows[open[depth - 1]->row].us -= took;
        else
            track->busy += took;
        track->rows[s->row].us += took;
        track->n_slices++;
        if (s->ended > track->ended) track->ended = s->ended;
        if (depth < MOST_DEPTH) open[depth++] = s;
    }
}

static int by_time(const void *a, const void *b) {
    const trace_row *x = a, *y = b;
    return x->us > y->us ? -1 : x->us < y->us;
}

static int by_step(const void *a, const void *b) {
    const slice *x = a, *y = b;
    return x->step < y->step ? -1 : x->step > y->step;
}

static void finish_summary(trace_summary *summary, slice *slices, int64_t n) {
    double began = 0, ended = 0;
    for (int i = 0; i < summary->n_tracks; i++) {
        trace_track *track = &summary->tracks[i];
        for (int k = 0; k < summary->n_tracks; k++) /* the process is named on one of its tracks */
            if (!*track->worker && summary->tracks[k].process == track->process)
                memcpy(track->worker, summary->tracks[k].worker, sizeof track->worker);
        qsort(track->rows, (size_t)track->n_rows, sizeof *track->rows, by_time);
        bool first = true;
        for (int k = 0; k < i; k++) first = first && summary->tracks[k].process != track->process;
        summary->n_workers += first;
        if (!track->device || !track->n_slices) continue;
        if (!summary->n_devices++ || track->began < began) began = track->began;
        if (track->ended > ended) ended = track->ended;
    }
    summary->us = ended - began;
    qsort(slices, (size_t)n, sizeof *slices, by_step);
    int64_t newest = -1;
    for (int64_t i = 0; i < n; i++)
        if (summary->tracks[slices[i].track].device && slices[i].step != newest) {
            newest = slices[i].step;
            summary->n_steps++;
        }
}

strata_status trace_read(const char *path, trace_summary *out_summary, strata_error *err) {
    strata_json root = {0};
    *out_summary = (trace_summary){0};
    reader r = {.summary = out_summary};
    STRATA_TRY(strata_json_read(path, MOST_BYTES, &root, err));
    strata_status status = read_events(&r, &root, err);
    strata_json_finish(&root);
    if (!status && r.n) {
        qsort(r.slices, (size_t)r.n, sizeof *r.slices, in_order);
        add_times(out_summary, r.slices, r.n);
        finish_summary(out_summary, r.slices, r.n);
    }
    free(r.slices);
    if (!status && !out_summary->n_devices)
        status = strata_fail(err, STRATA_DATA,
                             "%s: no slice of a device in this trace; strata train --trace or --profile "
                             "writes one that has them",
                             path);
    if (status) trace_finish(out_summary);
    return status;
}

void trace_finish(trace_summary *summary) {
    free(summary->tracks);
    *summary = (trace_summary){0};
}

/* ---- what bounds it ---- */

double trace_busy(const trace_summary *summary, const trace_track *track) {
    return summary->us > 0 ? track->busy / summary->us : 0;
}

double trace_host_share(const trace_summary *summary, trace_share share) {
    static const char *const names[TRACE_N_SHARES] = {
        [TRACE_INPUT] = "next batch",     [TRACE_UPLOAD] = "write inputs", [TRACE_SUBMIT] = "submit",
        [TRACE_WAIT] = "wait for device", [TRACE_EXCHANGE] = "exchange",
    };
    double us = 0;
    for (int i = 0; i < summary->n_tracks; i++)
        for (int k = 0; !summary->tracks[i].device && k < summary->tracks[i].n_rows; k++)
            if (!strncmp(summary->tracks[i].rows[k].name, names[share], strlen(names[share])))
                us += summary->tracks[i].rows[k].us;
    return summary->us > 0 ? us / summary->us / summary->n_workers : 0;
}

static void slow_device(const trace_summary *summary, char *out) {
    const trace_track *slowest = NULL;
    double all = 0;
    for (int i = 0; i < summary->n_tracks; i++) {
        const trace_track *track = &summary->tracks[i];
        if (!track->device) continue;
        all += track->busy;
        if (!slowest || track->busy > slowest->busy) slowest = track;
    }
    const double others = summary->n_devices > 1 ? (all - slowest->busy) / (summary->n_devices - 1) : 0;
    if (others > 0 && slowest->busy > 1.25 * others)
        snprintf(out, HINT_ROOM,
                 "one slow device: %.40s %.110s works %.1f times as long as the others, which wait for it; --split "
                 "auto gives it a smaller share of each batch",
                 slowest->worker, slowest->name, slowest->busy / others);
}

int trace_hints(const trace_summary *summary, char out[MOST_HINTS][HINT_ROOM]) {
    double busy = 0, slices = 0;
    int n = 0;
    for (int i = 0; i < summary->n_tracks; i++)
        if (summary->tracks[i].device) {
            if (trace_busy(summary, &summary->tracks[i]) > busy) busy = trace_busy(summary, &summary->tracks[i]);
            slices += (double)summary->tracks[i].n_slices;
        }
    const double input = trace_host_share(summary, TRACE_INPUT), upload = trace_host_share(summary, TRACE_UPLOAD),
                 exchange = trace_host_share(summary, TRACE_EXCHANGE), each = summary->us * summary->n_devices * busy / slices;
    for (int i = 0; i < MOST_HINTS; i++) *out[i] = 0;
    if (input + upload > 0.3 && busy < 0.8)
        snprintf(out[n++], HINT_ROOM,
                 "input bound: %.0f %% of the time goes to reading and preparing batches (%.0f %%) and to "
                 "writing them to the device (%.0f %%); a pipeline with more threads, or data of a smaller type, may help",
                 100 * (input + upload), 100 * input, 100 * upload);
    if (exchange > 0.3)
        snprintf(out[n++], HINT_ROOM,
                 "communication bound: %.0f %% of the time goes to exchanges between devices and workers; a "
                 "larger batch, --compress bf16 or fewer workers may help",
                 100 * exchange);
    slow_device(summary, out[n]);
    n += *out[n] != 0;
    if (!n && busy < 0.6 && each < 50)
        snprintf(out[n++], HINT_ROOM,
                 "launch bound: the devices are busy for %.0f %% of the time, with kernels of %.1f us each; "
                 "a larger batch gives them more to do",
                 100 * busy, each);
    if (!n && busy >= 0.8) snprintf(out[n++], HINT_ROOM, "bound by the device: it is busy for %.0f %% of the time", 100 * busy);
    if (!n) snprintf(out[n++], HINT_ROOM, "nothing stands out: the devices are busy for %.0f %% of the time", 100 * busy);
    return n;
}
