/* SPDX-License-Identifier: Apache-2.0
 *
 * Summarizes, by op, a trace: the file that strata train --trace or --profile writes. */
#ifndef STRATA_SAMPLES_TRACE_READ_H
#define STRATA_SAMPLES_TRACE_READ_H

#include "cli.h"

/* The sum of the slices with the same name, or on a device of the same op. A slice is an entry of the trace: something that ran
 * from one time to another. */
typedef struct trace_row {
    char name[48];
    int64_t count;
    /* In microseconds, not counting other slices that are inside of these. */
    double us;
    /* Operations and the time of the slices whose operations are known; the same for bytes. */
    double flops, flops_us, bytes, bytes_us;
} trace_row;

enum { MOST_TRACE_ROWS = 64 };

/* One track: a device's queue, or a thread of the host. */
typedef struct trace_track {
    int64_t process, thread;
    char name[200], worker[64];
    bool device;
    /* Of a device in a mesh: its stage, 0 where there are none. -1: another track. */
    int stage;
    /* Sorted by time, the largest first. */
    trace_row rows[MOST_TRACE_ROWS];
    int n_rows;
    /* The time in which some slice ran, and the time in which a stage of a pipeline waited for others, in microseconds. */
    double busy, bubble;
    /* The number of slices. */
    int64_t n_slices;
} trace_track;

typedef struct trace_summary {
    trace_track *tracks;
    /* n_stages: those of a mesh; 0: there is no mesh. */
    int n_tracks, n_devices, n_workers, n_stages;
    /* How many steps have slices on devices. */
    int64_t n_steps;
    /* The time from the first slice on a device to the end of the last one, in microseconds, without the steps that are not
     * counted. */
    double us;
    /* Steps in which a program was compiled are not counted anywhere, since some drivers continue compiling while the program
     * runs for the first time. How many there are, and their time in microseconds, from the beginning of the compilation to the
     * end of the step. 0: there are none, or a program was compiled in every step and all are counted. */
    int64_t n_compiling;
    double compiling_us;
} trace_summary;

/* The highest rates of a device that were measured, in GFLOP/s and GB/s; 0: not measured. */
typedef struct trace_peaks {
    double gflops, gbytes;
} trace_peaks;

/* Reads a trace in the Trace Event Format. Fails: DATA, with file and position, if the file is not such a trace;
 * OUT_OF_MEMORY. */
strata_status trace_read(const char *path, trace_summary *out_summary, strata_error *err);
void trace_finish(trace_summary *summary);

/* On what the host's threads spend time: reading batches, writing them to the device, submitting work, waiting for the device,
 * exchanging data with other workers. */
typedef enum trace_share { TRACE_INPUT, TRACE_UPLOAD, TRACE_SUBMIT, TRACE_WAIT, TRACE_EXCHANGE, TRACE_N_SHARES } trace_share;
/* The share of the whole time that the hosts' threads spent on this, 0 to 1; the mean over the workers. */
double trace_host_share(const trace_summary *summary, trace_share share);
/* The share of the whole time in which the device of this track ran something, 0 to 1. */
double trace_busy(const trace_summary *summary, const trace_track *track);

/* Writes sentences about what limits the speed of the training. Returns how many there are, at least 1. */
enum { MOST_HINTS = 6, HINT_ROOM = 320 };
int trace_hints(const trace_summary *summary, char out[MOST_HINTS][HINT_ROOM]);

/* Prints the tables and hints on stdout, as text or as one line of JSON. peaks may be NULL. */
void trace_print(const trace_summary *summary, const trace_peaks *peaks, int most_rows);
/* event: the value of "event" in the object; NULL: the object has no "event". */
void trace_print_json(const trace_summary *summary, const char *event, const trace_peaks *peaks);

/* Measures the rates of a device: of a kernel that only multiplies and adds, and of copies in its memory. */
strata_status trace_measure_peaks(strata_device *device, trace_peaks *out_peaks, strata_error *err);

#endif
