/* SPDX-License-Identifier: Apache-2.0 */
#include "strata/trace_file.h"

#include "core/base/alloc.h"

enum { MOST_TRACKS = 4096 };
static const size_t MOST_BYTES = (size_t)1 << 30;

static strata_status track_of(strata_trace_file *trace, const strata_json *event, int *out_track, strata_error *err) {
    int64_t process = 0, thread = 0;
    STRATA_TRY(strata_json_get_int(event, "pid", STRATA_JSON_REQUIRED, 0, INT32_MAX, &process, err));
    STRATA_TRY(strata_json_get_int(event, "tid", STRATA_JSON_REQUIRED, 0, INT32_MAX, &thread, err));
    for (*out_track = trace->n_tracks; (*out_track)-- > 0;)
        if (trace->tracks[*out_track].process == process && trace->tracks[*out_track].thread == thread) return STRATA_OK;
    if (trace->n_tracks == MOST_TRACKS)
        return strata_fail(err, STRATA_DATA, "the trace has more than %d tracks; these are more than a training has",
                           MOST_TRACKS);
    *out_track = trace->n_tracks++;
    trace->tracks[*out_track] = (strata_trace_file_track){.process = process, .thread = thread, .name = "", .process_name = ""};
    return STRATA_OK;
}

/* A metadata event: the name of a process or of a track. */
static strata_status read_name(strata_trace_file *trace, const strata_json *event, const char *what, strata_error *err) {
    strata_json args;
    const char *name = NULL;
    int track;
    const bool process = !strcmp(what, "process_name");
    if (!process && strcmp(what, "thread_name")) return STRATA_OK;
    STRATA_TRY(track_of(trace, event, &track, err));
    STRATA_TRY(strata_json_get(event, "args", &args, err));
    STRATA_TRY(strata_json_get_string(&args, "name", STRATA_JSON_REQUIRED, &name, err));
    *(process ? &trace->tracks[track].process_name : &trace->tracks[track].name) = name;
    return STRATA_OK;
}

static strata_status read_slice(strata_trace_file *trace, const strata_json *event, const char *name, strata_error *err) {
    strata_trace_file_slice slice = {.name = name};
    const char *category = "";
    strata_json args;
    STRATA_TRY(strata_json_get_string(event, "cat", STRATA_JSON_OPTIONAL, &category, err));
    STRATA_TRY(strata_json_get_number(event, "ts", STRATA_JSON_REQUIRED, 0, 1e300, &slice.began, err));
    STRATA_TRY(strata_json_get_number(event, "dur", STRATA_JSON_REQUIRED, 0, 1e300, &slice.took, err));
    STRATA_TRY(track_of(trace, event, &slice.track, err));
    if (strata_json_find(event, "args", &args)) {
        STRATA_TRY(strata_json_get_int(&args, "step", STRATA_JSON_OPTIONAL, 0, INT64_C(1) << 52, &slice.step, err));
        STRATA_TRY(strata_json_get_string(&args, "op", STRATA_JSON_OPTIONAL, &slice.op, err));
        STRATA_TRY(strata_json_get_number(&args, "GFLOP/s", STRATA_JSON_OPTIONAL, 0, 1e300, &slice.gflops, err));
        STRATA_TRY(strata_json_get_number(&args, "GB/s", STRATA_JSON_OPTIONAL, 0, 1e300, &slice.gbytes, err));
    }
    if (!strcmp(category, "device")) trace->tracks[slice.track].device = true;
    trace->slices[trace->n_slices++] = slice;
    return STRATA_OK;
}

static strata_status read_events(strata_trace_file *trace, strata_error *err) {
    strata_json list = trace->root, event;
    if (strata_json_kind_of(&list) != STRATA_JSON_ARRAY) STRATA_TRY(strata_json_get(&trace->root, "traceEvents", &list, err));
    STRATA_TRY(strata_json_expect(&list, STRATA_JSON_ARRAY, err));
    STRATA_TRY(STRATA_NEW(trace->tracks, MOST_TRACKS, err, "trace: no host memory"));
    STRATA_TRY(STRATA_NEW(trace->slices, strata_json_length(&list), err, "trace: no host memory"));
    for (bool more = strata_json_first(&list, &event); more; more = strata_json_next(&event)) {
        const char *phase = "", *name = "";
        STRATA_TRY(strata_json_get_string(&event, "ph", STRATA_JSON_REQUIRED, &phase, err));
        STRATA_TRY(strata_json_get_string(&event, "name", STRATA_JSON_OPTIONAL, &name, err));
        if (!strcmp(phase, "M")) STRATA_TRY(read_name(trace, &event, name, err));
        if (!strcmp(phase, "X")) STRATA_TRY(read_slice(trace, &event, name, err));
    }
    for (int i = 0; i < trace->n_tracks; i++) /* a process is named on one of its tracks */
        for (int k = 0; k < trace->n_tracks && !*trace->tracks[i].process_name; k++)
            if (trace->tracks[k].process == trace->tracks[i].process)
                trace->tracks[i].process_name = trace->tracks[k].process_name;
    return STRATA_OK;
}

strata_status strata_trace_file_read(const char *path, strata_trace_file *out_trace, strata_error *err) {
    STRATA_FINISHED(strata_trace_file) trace = {0};
    *out_trace = trace;
    STRATA_TRY(strata_json_read(path, MOST_BYTES, &trace.root, err));
    STRATA_TRY(read_events(&trace, err));
    *out_trace = trace;
    trace = (strata_trace_file){0};
    return STRATA_OK;
}

void strata_trace_file_finish(strata_trace_file *trace) {
    strata_json_finish(&trace->root);
    free(trace->tracks);
    free(trace->slices);
    *trace = (strata_trace_file){0};
}
