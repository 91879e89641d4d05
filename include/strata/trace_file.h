/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a trace file (strata_fit_options.trace, the Trace Event Format) into tracks and slices. */
#ifndef STRATA_TRACE_FILE_H
#define STRATA_TRACE_FILE_H

#include "strata/json.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A device's queue, or a thread of the host. Texts live as long as the trace. */
typedef struct strata_trace_file_track {
    /* The numbers of its process (a worker, or another task of a job) and of itself. */
    int64_t process, thread;
    /* "" if the trace does not contain it. */
    const char *name, *process_name;
    bool device;
} strata_trace_file_track;

typedef struct strata_trace_file_slice {
    int track;
    /* "" and NULL if the trace does not contain them. */
    const char *name, *op;
    /* Microseconds. */
    double began, took;
    int64_t step;
    /* GFLOP/s and GB/s; 0 if the trace does not contain them. */
    double gflops, gbytes;
} strata_trace_file_slice;

/* Zero-initialize; free with strata_trace_file_finish. */
typedef struct strata_trace_file {
    strata_json root;
    strata_trace_file_track *tracks;
    int n_tracks;
    /* In the order of the file. */
    strata_trace_file_slice *slices;
    int64_t n_slices;
} strata_trace_file;

/* Fails: DATA, with the file and the position, if it is not a trace; OUT_OF_MEMORY; UNAVAILABLE. */
STRATA_API STRATA_MUST_USE strata_status strata_trace_file_read(const char *path, strata_trace_file *out_trace,
                                                                strata_error *err);
STRATA_API void strata_trace_file_finish(strata_trace_file *trace);

#ifdef __cplusplus
}
#endif
#endif
