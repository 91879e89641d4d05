/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a trace and adds up the times of its slices. The time of a slice that contains others counts without theirs. */
#include "trace_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strata/trace_file.h"

enum { MOST_DEPTH = 64 };

typedef struct slice {
    int track, row;
    int64_t step;
    double began, ended;
    /* The slice is part of a step in which a program was compiled. */
    bool compiling;
    /* A stage waits. */
    bool bubble;
} slice;

/* A step in which a program was compiled: from the beginning of the compilation to the end of the step's last slice on a
 * device, in microseconds. */
typedef struct compiled_step {
    int64_t step;
    double began, ended;
} compiled_step;

/* [n], sorted by the number of the step. */
typedef struct compiling {
    compiled_step *steps;
    int n;
} compiling;

/* Writes the name of the slice's row: on a device the op. The names of exchanges and epochs contain numbers, which are removed,
 * so that slices of the same kind have one row. */
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
    if (i >= MOST_TRACE_ROWS - 1) name = "others", i = MOST_TRACE_ROWS - 1; /* the last row is the sum of all others */
    if (i == track->n_rows) snprintf(track->rows[track->n_rows++].name, sizeof track->rows[0].name, "%s", name);
    return i;
}

static int by_number(const void *a, const void *b) {
    const int64_t x = ((const compiled_step *)a)->step, y = ((const compiled_step *)b)->step;
    return (x > y) - (x < y);
}

static compiled_step *find_step(const compiling *c, int64_t step) {
    const compiled_step wanted = {.step = step};
    return c->n ? bsearch(&wanted, c->steps, (size_t)c->n, sizeof wanted, by_number) : NULL;
}

static bool is_of_device(const strata_trace_file *trace, int64_t i) {
    return trace->tracks[trace->slices[i].track].device;
}

/* Finds the steps in which a program was compiled. If these are all steps, *out is empty, so that they are counted. */
static strata_status find_compiling(const strata_trace_file *trace, compiling *out, strata_error *err) {
    bool others = false;
    int n = 0;
    *out = (compiling){.steps = calloc((size_t)trace->n_slices + 1, sizeof *out->steps)};
    if (!out->steps) return strata_fail(err, STRATA_OUT_OF_MEMORY, "trace: no host memory");
    for (int64_t i = 0; i < trace->n_slices; i++) {
        const strata_trace_file_slice *s = &trace->slices[i];
        if (!is_of_device(trace, i) && !strcmp(s->name, "compile"))
            out->steps[n++] = (compiled_step){s->step, s->began, s->began + s->took};
    }
    qsort(out->steps, (size_t)n, sizeof *out->steps, by_number);
    for (int i = 0; i < n; i++) { /* if several workers compiled in the same step, the earliest beginning counts */
        if (!out->n || out->steps[out->n - 1].step != out->steps[i].step) out->steps[out->n++] = out->steps[i];
        if (out->steps[i].began < out->steps[out->n - 1].began) out->steps[out->n - 1].began = out->steps[i].began;
    }
    for (int64_t i = 0; i < trace->n_slices; i++) {
        const strata_trace_file_slice *s = &trace->slices[i];
        compiled_step *own = is_of_device(trace, i) ? find_step(out, s->step) : NULL;
        others |= is_of_device(trace, i) && !own;
        if (own && s->began + s->took > own->ended) own->ended = s->began + s->took;
    }
    if (!others) out->n = 0;
    return STRATA_OK;
}

/* Whether the slice is not counted because of a compilation: it is on a device and part of such a step, or on the host and
 * begins while such a step runs, in which the host mostly waits. The slice of an epoch is counted, since it contains other
 * steps as well. */
static bool is_left_out(const compiling *c, const strata_trace_file_slice *s, bool device) {
    if (device || !strncmp(s->name, "epoch ", 6)) return device && find_step(c, s->step);
    bool inside = find_step(c, s->step) != NULL;
    for (int i = 0; i < c->n && !inside; i++) inside = s->began >= c->steps[i].began && s->began < c->steps[i].ended;
    return inside;
}

static slice add_slice(trace_summary *summary, const strata_trace_file_slice *s, const compiling *left_out) {
    trace_track *track = &summary->tracks[s->track];
    slice out = {.track = s->track, .step = s->step, .began = s->began, .ended = s->began + s->took};
    out.compiling = is_left_out(left_out, s, track->device);
    out.bubble = track->device && !strcmp(s->name, "bubble");
    if (out.bubble && !out.compiling) track->bubble += s->took;
    if (out.bubble || out.compiling) return out;
    char row[sizeof track->rows[0].name];
    name_row(s->name, s->op, track->device, row, sizeof row);
    trace_row *found = &track->rows[row_of(track, row)];
    found->count++;
    if (s->gflops > 0) found->flops += s->gflops * 1e3 * s->took, found->flops_us += s->took;
    if (s->gbytes > 0) found->bytes += s->gbytes * 1e3 * s->took, found->bytes_us += s->took;
    out.row = (int)(found - track->rows);
    return out;
}

static strata_status copy_tracks(const strata_trace_file *trace, trace_summary *summary, strata_error *err) {
    summary->tracks = calloc((size_t)trace->n_tracks + 1, sizeof *summary->tracks);
    if (!summary->tracks) return strata_fail(err, STRATA_OUT_OF_MEMORY, "trace: no host memory");
    summary->n_tracks = trace->n_tracks;
    for (int i = 0; i < trace->n_tracks; i++) {
        const strata_trace_file_track *from = &trace->tracks[i];
        trace_track *to = &summary->tracks[i];
        *to = (trace_track){.process = from->process, .thread = from->thread, .device = from->device, .stage = -1};
        if (sscanf(from->name, "replica %*d, stage %4d", &to->stage) == 1 && to->stage >= summary->n_stages)
            summary->n_stages = to->stage + 1;
        snprintf(to->name, sizeof to->name, "%s", from->name);
        snprintf(to->worker, sizeof to->worker, "%s", from->process_name);
    }
    return STRATA_OK;
}

/* ---- adding up ---- */

/* Sorts by track, then by time. If two begin at the same time, the longer one is first, since it contains the other. */
static int in_order(const void *a, const void *b) {
    const slice *x = a, *y = b;
    if (x->track != y->track) return x->track - y->track;
    if (x->began != y->began) return x->began < y->began ? -1 : 1;
    return x->ended > y->ended ? -1 : x->ended < y->ended;
}

/* In microseconds. Times in files are whole nanoseconds, but the sum of a beginning and a duration is rounded. Because of this,
 * the end of a slice can be slightly after the beginning of the next one, although that follows it without a gap. */
static const double HALF_NANOSECOND = 0.0005;

static void add_times(trace_summary *summary, const slice *slices, int64_t n) {
    const slice *open[MOST_DEPTH];
    int depth = 0, last = -1;
    for (int64_t i = 0; i < n; i++) {
        const slice *s = &slices[i];
        trace_track *track = &summary->tracks[s->track];
        const double took = s->ended - s->began;
        if (s->bubble) continue; /* no other slice of a device is within it */
        if (s->track != last) depth = 0;
        last = s->track;
        while (depth && open[depth - 1]->ended <= s->began + HALF_NANOSECOND) depth--;
        const bool inside = depth && !open[depth - 1]->compiling;
        if (inside) track->rows[open[depth - 1]->row].us -= took;
        if (s->compiling) {
            if (inside) track->busy -= took;
        } else {
            if (!depth) track->busy += took;
            track->rows[s->row].us += took;
            track->n_slices++;
        }
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

static int by_begin(const void *a, const void *b) {
    const slice *x = a, *y = b;
    return x->began < y->began ? -1 : x->began > y->began;
}

/* Adds up the time of the devices: the sequences of slices between those that are not counted, each from the beginning of its
 * first slice to the end of its last one. */
static void add_device_time(trace_summary *summary, slice *slices, int64_t n) {
    double began = 0, ended = 0;
    bool in_sequence = false;
    qsort(slices, (size_t)n, sizeof *slices, by_begin);
    for (int64_t i = 0; i < n; i++) {
        const slice *s = &slices[i];
        if (!summary->tracks[s->track].device) continue;
        if (s->compiling) {
            if (in_sequence) summary->us += ended - began;
            in_sequence = false;
            continue;
        }
        if (!in_sequence) began = s->began > ended ? s->began : ended;
        in_sequence = true;
        if (s->ended > ended) ended = s->ended;
    }
    if (in_sequence) summary->us += ended - began;
}

static void count_steps(trace_summary *summary, slice *slices, int64_t n) {
    int64_t newest = -1;
    qsort(slices, (size_t)n, sizeof *slices, by_step);
    for (int64_t i = 0; i < n; i++)
        if (summary->tracks[slices[i].track].device && !slices[i].compiling && slices[i].step != newest) {
            newest = slices[i].step;
            summary->n_steps++;
        }
}

static void finish_summary(trace_summary *summary, slice *slices, int64_t n) {
    for (int i = 0; i < summary->n_tracks; i++) {
        trace_track *track = &summary->tracks[i];
        qsort(track->rows, (size_t)track->n_rows, sizeof *track->rows, by_time);
        bool first = true;
        for (int k = 0; k < i; k++) first = first && summary->tracks[k].process != track->process;
        summary->n_workers += first;
        summary->n_devices += track->device && track->n_slices;
    }
    add_device_time(summary, slices, n);
    count_steps(summary, slices, n);
}

strata_status trace_read(const char *path, trace_summary *out_summary, strata_error *err) {
    strata_trace_file trace;
    *out_summary = (trace_summary){0};
    STRATA_TRY(strata_trace_file_read(path, &trace, err));
    const int64_t n = trace.n_slices;
    compiling left_out = {0};
    slice *slices = calloc((size_t)n + 1, sizeof *slices);
    strata_status status =
        slices ? copy_tracks(&trace, out_summary, err) : strata_fail(err, STRATA_OUT_OF_MEMORY, "trace: no host memory");
    if (!status) status = find_compiling(&trace, &left_out, err);
    for (int64_t i = 0; i < n && !status; i++) slices[i] = add_slice(out_summary, &trace.slices[i], &left_out);
    for (int i = 0; i < left_out.n; i++) out_summary->compiling_us += left_out.steps[i].ended - left_out.steps[i].began;
    out_summary->n_compiling = left_out.n;
    free(left_out.steps);
    strata_trace_file_finish(&trace);
    if (!status && n) {
        qsort(slices, (size_t)n, sizeof *slices, in_order);
        add_times(out_summary, slices, n);
        finish_summary(out_summary, slices, n);
    }
    free(slices);
    if (!status && !out_summary->n_devices)
        status = strata_fail(err, STRATA_DATA,
                             "%s: this trace has no slices of a device; strata train --trace or --profile "
                             "writes a trace with them",
                             path);
    if (status) trace_finish(out_summary);
    return status;
}

void trace_finish(trace_summary *summary) {
    free(summary->tracks);
    *summary = (trace_summary){0};
}

/* ---- what limits the training ---- */

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

/* Adds up the tracks of a stage. *out_n: how many devices it has. */
static trace_track add_stage(const trace_summary *summary, int stage, int *out_n) {
    trace_track sum = {.stage = stage};
    *out_n = 0;
    for (int i = 0; i < summary->n_tracks; i++) {
        const trace_track *track = &summary->tracks[i];
        if (track->stage != stage || !track->n_slices) continue;
        sum.busy += track->busy;
        sum.bubble += track->bubble;
        ++*out_n;
    }
    return sum;
}

/* What a pipeline loses: a stage that computes longer than the others, or time in which also the slowest stage waits. Without
 * micro-batches there are no bubbles in the trace. Returns how many sentences it wrote. */
static int slow_stages(const trace_summary *summary, char (*out)[HINT_ROOM]) {
    trace_track slowest = {.stage = 0};
    double all = 0;
    int n = 0, n_devices;
    for (int s = 0; s < summary->n_stages; s++) {
        const trace_track own = add_stage(summary, s, &n_devices);
        all += own.busy;
        if (own.busy > slowest.busy) slowest = own;
    }
    const double others = (all - slowest.busy) / (summary->n_stages - 1), its = slowest.busy + slowest.bubble;
    if (others > 0 && slowest.busy > 1.25 * others)
        snprintf(out[n++], HINT_ROOM,
                 "one slow stage: stage %d works %.1f times as long as the others, which wait for it; \"stage\" in layers of "
                 "model.json moves the cut, or a faster device computes it",
                 slowest.stage, slowest.busy / others);
    if (slowest.bubble > 0.15 * its)
        snprintf(out[n++], HINT_ROOM,
                 "bubbles: also stage %d, which works most, waits for %.0f %% of its steps; more micro-batches "
                 "(--microbatches) make this less",
                 slowest.stage, 100 * slowest.bubble / its);
    if (slowest.bubble == 0 && slowest.busy > 0)
        snprintf(
            out[n++], HINT_ROOM,
            "stages one after the other: while a stage computes, the others wait; with --microbatches 8 they compute parts "
            "of a batch side by side");
    return n;
}

static int slow_device(const trace_summary *summary, char *out) {
    const trace_track *slowest = NULL;
    double all = 0;
    for (int i = 0; i < summary->n_tracks; i++) {
        const trace_track *track = &summary->tracks[i];
        if (!track->device) continue;
        all += track->busy;
        if (!slowest || track->busy > slowest->busy) slowest = track;
    }
    const double others = summary->n_devices > 1 ? (all - slowest->busy) / (summary->n_devices - 1) : 0;
    if (!(others > 0 && slowest->busy > 1.25 * others)) return 0;
    snprintf(out, HINT_ROOM, "one slow device: %.40s %.110s works %.1f times as long as the others, which wait for it; %s",
             slowest->worker, slowest->name, slowest->busy / others,
             summary->n_stages ? "a mesh divides equally along data and tensor, and may have other devices along stage"
                               : "--split auto gives it a smaller share of each batch");
    return 1;
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
        snprintf(
            out[n++], HINT_ROOM,
            "communication bound: %.0f %% of the time goes to exchanges between devices and workers; a larger batch%s may "
            "help",
            100 * exchange,
            summary->n_stages ? ", or a mesh that sends less (strata summary --mesh)" : ", --compress bf16 or fewer workers");
    n += summary->n_stages > 1 ? slow_stages(summary, &out[n]) : slow_device(summary, out[n]);
    if (!n && busy < 0.6 && each < 50)
        snprintf(out[n++], HINT_ROOM,
                 "launch bound: the devices are busy for %.0f %% of the time, with kernels of %.1f us each; "
                 "a larger batch gives them more to do",
                 100 * busy, each);
    if (!n && busy >= 0.8) snprintf(out[n++], HINT_ROOM, "bound by the device: it is busy for %.0f %% of the time", 100 * busy);
    if (!n) snprintf(out[n++], HINT_ROOM, "nothing stands out: the devices are busy for %.0f %% of the time", 100 * busy);
    return n;
}
