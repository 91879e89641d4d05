/* SPDX-License-Identifier: Apache-2.0
 *
 * Records what ran when, as slices of time on tracks, and writes them as JSON for a trace viewer (ui.perfetto.dev,
 * chrome://tracing; the Trace Event Format). A process of the trace is a worker, or another task of a job. Its tracks
 * are the thread that trains, each device's queue, and further threads. Two slices of a track are either disjoint or
 * one contains the other, because viewers drop slices that overlap otherwise. Counters are numbers that change over
 * time, which viewers draw above the tracks.
 * Threads: any may add slices; a track must be added before other threads add slices to it. */
#ifndef STRATA_CORE_TRACE_H
#define STRATA_CORE_TRACE_H

#include "strata/status.h"

typedef struct strata_trace strata_trace;

/* What slices of one kind have in common. */
typedef struct strata_trace_label {
    /* The text that is shown in the slice, for example "matmul (64,128)". */
    const char *name;
    /* Further members of the slice's "args", as JSON without braces: "\"op\":\"matmul\""; "" for none. */
    const char *details;
    /* Floating-point operations of such a slice, and bytes that it reads and writes, for GFLOP/s and GB/s; 0: not known. */
    double flops, bytes;
} strata_trace_label;

/* What is passed as the step of slices of a micro-batch: the trace has the number of the step, which is below 2^40, and that of
 * the micro-batch in it. */
enum { STRATA_TRACE_STEP_BITS = 40 };
static inline int64_t strata_trace_microbatch(int64_t step, int microbatch) {
    return step | ((int64_t)microbatch + 1) << STRATA_TRACE_STEP_BITS;
}

/* The track of the thread that trains; it exists from the beginning. */
enum { STRATA_TRACE_HOST = 0 };

/* Creates a trace for the file `path`, which is not created or changed before strata_trace_write. rank: the rank of the
 * worker, from which the number of its process in the trace is computed. process: the name of the process; NULL:
 * "worker" and the rank. Fails: DATA if the file cannot be written, OUT_OF_MEMORY, OUT_OF_DISK. */
STRATA_MUST_USE strata_status strata_trace_create(const char *path, int rank, const char *process, strata_trace **out_trace,
                                                  strata_error *err);
void strata_trace_destroy(strata_trace *trace); /* NULL is fine */

/* Seconds of a steady clock (CLOCK_MONOTONIC), which the processes of a machine share. */
double strata_trace_now(void);
/* Adds a track for a device. Viewers show tracks in the order in which they are added. The name is copied. Returns
 * STRATA_TRACE_HOST if there is no memory. */
int strata_trace_add_track(strata_trace *trace, const char *name);
/* Returns the track with this name, of a thread or of other work that is sequential; adds it if there is none. A slice
 * of such a track may contain others. */
int strata_trace_thread_track(strata_trace *trace, const char *name);
/* Adds a label with copies of the texts, which lives as long as the trace. Returns NULL if there is no memory; slices
 * with the label NULL are left out. */
const strata_trace_label *strata_trace_add_label(strata_trace *trace, const char *name, const char *details, double flops,
                                                 double bytes);
/* Adds a slice from `began` to `ended`. Does nothing if trace or label is NULL. Only the first 200,000 slices are kept.
 * If a slice ends after the slice of its track in which it begins, its end is moved to the end of that slice. On a
 * device's track slices must be added in order; if one begins before the last slice has ended, its beginning is moved
 * to the end of the last slice. */
void strata_trace_add(strata_trace *trace, int track, const strata_trace_label *label, int64_t step, double began,
                      double ended);
/* The same with a name, in static memory, instead of a label. */
void strata_trace_add_named(strata_trace *trace, int track, const char *name, int64_t step, double began, double ended);

/* Adds the value of a counter from `at` on. The name is in static memory. Does nothing if the trace is NULL. The value
 * counts as a slice. */
void strata_trace_add_counter(strata_trace *trace, const char *name, double value, double at);

/* When events are written, `seconds` are subtracted from their times. It is the time by which the steady clock of this
 * machine is ahead of that of another machine, whose events are in the same file. */
void strata_trace_set_ahead(strata_trace *trace, double seconds);

/* Returns all events so far as JSON objects, separated by commas. The caller frees the text with free(). */
STRATA_MUST_USE strata_status strata_trace_events(strata_trace *trace, char **out_text, size_t *out_bytes, strata_error *err);
/* Writes the file. texts: [n] texts that strata_trace_events returned. */
STRATA_MUST_USE strata_status strata_trace_write(strata_trace *trace, const char *const *texts, int n, strata_error *err);

#endif
