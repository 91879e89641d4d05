/* SPDX-License-Identifier: Apache-2.0
 *
 * A summary of a trace, the file that strata train --trace or --profile writes, by op. */
#ifndef STRATA_SAMPLES_TRACE_READ_H
#define STRATA_SAMPLES_TRACE_READ_H

#include "cli.h"

/* The total of the slices with the same name, or of the same op. */
typedef struct trace_row {
    char name[48];
    int64_t count;
    /* Microseconds, without those of the slices inside. */
    double us;
    /* What its slices that tell have done, and the microseconds of these. */
    double flops, flops_us, bytes, bytes_us;
} trace_row;

enum { MOST_TRACE_ROWS = 64 };

/* One track: a device's queue, or a thread of the host. */
typedef struct trace_track {
    int64_t process, thread;
    char name[200], worker[64];
    bool device;
    /* The largest time first. */
    trace_row rows[MOST_TRACE_ROWS];
    int n_rows;
    /* Microseconds in which a slice ran. */
    double busy;
    /* Of a device: how many slices it has. */
    int64_t n_slices;
} trace_track;

typedef struct trace_summary {
    trace_track *tracks;
    int n_tracks, n_devices, n_workers;
    /* Different steps on device tracks. */
    int64_t n_steps;
    /* Microseconds from the first slice of a device to the last one's end, but for what is left out. */
    double us;
    /* Steps that are left out of all of that, as a program was compiled in them: some drivers compile on while it runs for the
     * first time. Microseconds from the beginning of compiling to the end of the step. 0: there is none, or each step is one,
     * and all count. */
    int64_t n_compiling;
    double compiling_us;
} trace_summary;

/* What a device reaches at most, as measured on it; zeros: not measured. */
typedef struct trace_peaks {
    double gflops, gbytes;
} trace_peaks;

/* Reads a trace in the Trace Event Format. Fails: DATA, naming file and place, for what is not one; OUT_OF_MEMORY. */
strata_status trace_read(const char *path, trace_summary *out_summary, strata_error *err);
void trace_finish(trace_summary *summary);

/* What a kind of time of the host's thread is about. */
typedef enum trace_share { TRACE_INPUT, TRACE_UPLOAD, TRACE_SUBMIT, TRACE_WAIT, TRACE_EXCHANGE, TRACE_N_SHARES } trace_share;
/* The part of the whole time that the hosts' threads spent so, the mean over the workers: 0 to 1. */
double trace_host_share(const trace_summary *summary, trace_share share);
/* The part of the whole time in which the device of this track ran something. */
double trace_busy(const trace_summary *summary, const trace_track *track);

/* Writes what bounds the training, in words, and returns how many hints there are: 1 at least. */
enum { MOST_HINTS = 6, HINT_ROOM = 320 };
int trace_hints(const trace_summary *summary, char out[MOST_HINTS][HINT_ROOM]);

/* The tables and hints, as text or as one line of JSON, on stdout. peaks may be NULL. */
void trace_print(const trace_summary *summary, const trace_peaks *peaks, int most_rows);
/* event: its member "event"; NULL: it has none. */
void trace_print_json(const trace_summary *summary, const char *event, const trace_peaks *peaks);

/* Measures what a device reaches with multiply-adds alone, and in copies. */
strata_status trace_measure_peaks(strata_device *device, trace_peaks *out_peaks, strata_error *err);

#endif
