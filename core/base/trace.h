/* SPDX-License-Identifier: Apache-2.0
 *
 * What ran when: slices of time on tracks, written as JSON for a trace viewer (ui.perfetto.dev, chrome://tracing; the Trace
 * Event Format). A process of the trace is a worker, or another task of a job. Its tracks are the thread that trains, each
 * device's queue, and further threads. Slices of a track lie beside each other or within each other, as viewers drop those that
 * overlap. Counters are numbers that change over time, which viewers draw above the tracks.
 * Threads: any may add; tracks are added before others add to them. */
#ifndef STRATA_CORE_TRACE_H
#define STRATA_CORE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "strata/status.h"

typedef struct strata_trace strata_trace;

/* What slices of one kind have in common. */
typedef struct strata_trace_label {
    /* What is shown in the slice, as "matmul (64,128)". */
    const char *name;
    /* Further members of the slice's "args", as JSON without braces: "\"op\":\"matmul\""; "" for none. */
    const char *details;
    /* Floating-point operations of such a slice, and bytes that it reads and writes, for GFLOP/s and GB/s; 0: not known. */
    double flops, bytes;
} strata_trace_label;

/* The track of the thread that trains; there from the beginning. */
enum { STRATA_TRACE_HOST = 0 };

/* Of a file, which is not there, or as it was, until write. rank: the worker's, the number of its process in the trace.
 * process: that one's name; NULL: "worker" and the rank. Fails: DATA where it can't be written, OUT_OF_MEMORY, OUT_OF_DISK. */
STRATA_MUST_USE strata_status strata_trace_create(const char *path, int rank, const char *process, strata_trace **out_trace,
                                                  strata_error *err);
void strata_trace_destroy(strata_trace *trace); /* NULL is fine */

/* Seconds of a steady clock (CLOCK_MONOTONIC), which the processes of a machine share. */
double strata_trace_now(void);
/* A new track of a device, in the viewer's order; the name is copied. Returns STRATA_TRACE_HOST where there is no memory. */
int strata_trace_add_track(strata_trace *trace, const char *name);
/* The track of a thread, or of what comes one after the other otherwise: its slices may lie within each other. The same name
 * gives the same track. */
int strata_trace_thread_track(strata_trace *trace, const char *name);
/* A label that lives as long as the trace, with copies of the texts. NULL: no memory, and slices with it are left out. */
const strata_trace_label *strata_trace_add_label(strata_trace *trace, const char *name, const char *details, double flops,
                                                 double bytes);
/* A slice from began to ended. On NULL traces and with NULL labels nothing happens. The first 200,000 slices are kept. What
 * reaches beyond the slice that it begins in, on its track, is cut off there; on a device's track, where slices come in order,
 * so is what begins before the last slice's end. */
void strata_trace_add(strata_trace *trace, int track, const strata_trace_label *label, int64_t step, double began,
                      double ended);
/* The same with a name in static memory and nothing more. */
void strata_trace_add_named(strata_trace *trace, int track, const char *name, int64_t step, double began, double ended);

/* A counter's value from `at` on; the name is static memory. On NULL traces nothing happens. Counts as a slice. */
void strata_trace_add_counter(strata_trace *trace, const char *name, double value, double at);

/* The times that events get are this many seconds before those of the steady clock: what the clock of another machine, whose
 * times stand in the same file, is behind. */
void strata_trace_set_ahead(strata_trace *trace, double seconds);

/* All events so far as JSON objects with commas between them and behind the last. Caller frees with free(). */
STRATA_MUST_USE strata_status strata_trace_events(strata_trace *trace, char **out_text, size_t *out_bytes, strata_error *err);
/* Writes the file: texts of strata_trace_events, [n]. */
STRATA_MUST_USE strata_status strata_trace_write(strata_trace *trace, const char *const *texts, int n, strata_error *err);

#endif
