/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures when each kernel ran, for a trace. The times come from profiling events: while there is a trace, a queue
 * with profiling replaces the plain queue. The events of a run are stored until the run has been waited for.
 *
 * The device's clock differs from the host's. An event also has the time at which it was queued on the device's clock,
 * and the host stores the time at which it queued the first command of a run. So the difference of the clocks is
 * computed for each run, and the clocks may drift.
 *
 * A sequence has no events: its workers read a counter (sequence_times.c). */
#include "backends/opencl/opencl.h"

struct opencl_timed {
    opencl_timed *next;
    uint64_t ticket;
    int64_t step;
    opencl_moment queued;
    /* The counts of a sequence, which performs `runs` runs; NULL for separate launches, which have n events. */
    opencl_counts *counts;
    int runs;
    const strata_trace_label *const *launch_labels;
    int n, most;
    cl_event *events;
    const strata_trace_label **labels; /* in the same memory as the events and this struct */
};

static opencl_moment moment_now(void) {
    const uint64_t count = strata_opencl_read_counter();
    return (opencl_moment){.count = count, .seconds = strata_trace_now()};
}

opencl_timed *strata_opencl_time_begin(opencl_device *device, int n) {
    if (!device->base.trace) return NULL;
    const size_t each = sizeof(cl_event) + sizeof(strata_trace_label *);
    opencl_timed *timed = calloc(1, sizeof *timed + (size_t)n * each);
    if (!timed) return NULL;
    timed->events = (cl_event *)(timed + 1);
    timed->labels = (const strata_trace_label **)(timed->events + n);
    timed->most = n;
    timed->step = device->base.trace_step;
    timed->queued = moment_now();
    return timed;
}

opencl_timed *strata_opencl_time_begin_sequence(opencl_device *device, opencl_counts *counts, int runs,
                                                const strata_trace_label *const *labels) {
    opencl_timed *timed = strata_opencl_time_begin(device, 0);
    if (!timed) return NULL;
    timed->counts = counts;
    timed->runs = runs;
    timed->launch_labels = labels;
    return timed;
}

cl_event *strata_opencl_time_next(opencl_timed *timed, const strata_trace_label *label) {
    if (!timed || timed->n == timed->most) return NULL;
    timed->labels[timed->n] = label;
    return &timed->events[timed->n++];
}

void strata_opencl_time_end(opencl_device *device, opencl_timed *timed, uint64_t ticket) {
    opencl_timed **last = &device->timed;
    if (!timed) return;
    while (*last) last = &(*last)->next;
    timed->ticket = ticket;
    *last = timed;
}

static bool time_of(const opencl_device *device, cl_event event, cl_profiling_info what, double *out_seconds) {
    cl_ulong ns = 0;
    if (!event || device->cl.GetEventProfilingInfo(event, what, sizeof ns, &ns, NULL) != CL_SUCCESS) return false;
    *out_seconds = (double)ns * 1e-9;
    return true;
}

static void add_run(opencl_device *device, const opencl_timed *timed) {
    double queued = 0, began, ended;
    for (int i = 0; i < timed->n; i++) {
        const cl_event event = timed->events[i];
        if (queued == 0 && !time_of(device, event, CL_PROFILING_COMMAND_QUEUED, &queued)) continue;
        const double apart = timed->queued.seconds - queued;
        if (time_of(device, event, CL_PROFILING_COMMAND_START, &began) &&
            time_of(device, event, CL_PROFILING_COMMAND_END, &ended))
            strata_trace_add(device->base.trace, device->base.trace_track, timed->labels[i], timed->step, began + apart,
                             ended + apart);
    }
}

void strata_opencl_time_collect(opencl_device *device, uint64_t ticket) {
    while (device->timed && device->timed->ticket <= ticket) {
        opencl_timed *timed = device->timed;
        device->timed = timed->next;
        const opencl_moment over = moment_now();
        if (device->base.trace && !timed->counts) add_run(device, timed);
        for (int run = 0; device->base.trace && run < timed->runs; run++)
            strata_opencl_counts_add(timed->counts, run, device->base.trace, device->base.trace_track, timed->launch_labels,
                                     timed->step + run, timed->queued, over);
        for (int i = 0; i < timed->n; i++)
            if (timed->events[i]) device->cl.ReleaseEvent(timed->events[i]);
        free(timed);
    }
}

strata_status strata_opencl_set_trace(strata_device *base, strata_trace *trace, int track, strata_error *err) {
    opencl_device *device = (opencl_device *)base;
    STRATA_DRIVER_RUNS(base, WAIT, 1 + strata_opencl_runs_before(device, device->last_ticket));
    if (!device->lost) device->cl.Finish(device->queue);
    strata_opencl_time_collect(device, UINT64_MAX);
    if (device->plain_queue) {
        device->cl.ReleaseCommandQueue(device->queue);
        device->queue = device->plain_queue;
        device->plain_queue = NULL;
    }
    base->trace = NULL;
    if (!trace) return STRATA_OK;
    cl_int code;
    cl_command_queue queue = device->cl.CreateCommandQueue(device->context, device->id, CL_QUEUE_PROFILING_ENABLE, &code);
    if (code == CL_INVALID_VALUE || code == CL_INVALID_QUEUE_PROPERTIES) return STRATA_OK; /* this device has no profiling */
    if (code != CL_SUCCESS) return strata_opencl_fail(device, code, "making a queue that tells times", err);
    device->plain_queue = device->queue;
    device->queue = queue;
    base->trace = trace;
    base->trace_track = track;
    return STRATA_OK;
}
