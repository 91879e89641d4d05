/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace of a fit: devices and the host add what ran when, and rank 0 writes the file for all workers. */
#include <stdio.h>

#include "core/model/fit.h"
#include "core/run/device.h"

strata_status strata_model_trace_devices(strata_model *model, strata_trace *trace, const int *tracks, strata_error *err) {
    const strata_strategy *strategy = model->strategy;
    strata_status status = STRATA_OK;
    strata_model_free_programs(model);
    for (int r = 0; r < strategy->n_devices; r++) {
        strata_device *device = strategy->devices[r];
        if (!device->api->set_trace) continue;
        strata_status own = strata_device_enter(device, err);
        if (!own) {
            own = device->api->set_trace(device, trace, trace ? tracks[r] : 0, err);
            strata_device_leave(device);
        }
        if (!status) status = own;
    }
    return status;
}

strata_status strata_model_trace_begin(strata_model *model, strata_trace *trace, int **out_tracks, strata_error *err) {
    const strata_strategy *strategy = model->strategy;
    char name[200];
    STRATA_TRY(STRATA_NEW(*out_tracks, strategy->n_devices, err, "fit: no host memory for a trace"));
    for (int r = 0; r < strategy->n_devices; r++) {
        const strata_device_info *info = strata_device_get_info(strategy->devices[r]);
        snprintf(name, sizeof name, "replica %d %s queue (%.100s)", r, info->id, info->name);
        (*out_tracks)[r] = strata_trace_add_track(trace, name);
    }
    return strata_model_trace_devices(model, trace, *out_tracks, err);
}

/* Sends the events of each worker to rank 0, which writes the file. */
static strata_status gather_events(const strata_fit *f, char *own, size_t bytes, char **texts, strata_error *err) {
    enum { TRACE_CHANNEL = 0x74726163 };
    const strata_workers *workers = &f->model->strategy->workers;
    const uint64_t mine = bytes;
    STRATA_FREED uint64_t *sizes = NULL;
    STRATA_TRY(STRATA_NEW(sizes, workers->n, err, "fit: no host memory for a trace"));
    STRATA_TRY(strata_workers_gather(workers, &mine, sizes, sizeof mine, err));
    if (workers->rank > 0) return workers->send(workers, 0, TRACE_CHANNEL, own, bytes, err);
    for (int w = 1; w < workers->n; w++) {
        STRATA_TRY(STRATA_NEW(texts[w], sizes[w] + 1, err, "fit: no host memory for a trace"));
        STRATA_TRY(workers->receive(workers, w, TRACE_CHANNEL, texts[w], (size_t)sizes[w], err));
    }
    return STRATA_OK;
}

strata_status strata_fit_begin_trace(strata_fit *f, strata_error *err) {
    const strata_workers *workers = &f->model->strategy->workers;
    STRATA_TRY(strata_trace_create(f->opts.trace, workers->n > 1 ? workers->rank : 0, NULL, &f->tracing.trace, err));
    if (f->opts.trace_last) return STRATA_OK;
    f->tracing.now = f->tracing.trace;
    return strata_model_trace_begin(f->model, f->tracing.now, &f->tracing.tracks, err);
}

bool strata_fit_trace_turns(const strata_fit *f) {
    return f->opts.trace_last && (f->n_begun + 1 == f->opts.trace_first || f->n_begun == f->opts.trace_last);
}

strata_status strata_fit_turn_trace(strata_fit *f, strata_error *err) {
    if (f->n_begun + 1 == f->opts.trace_first) {
        f->tracing.now = f->tracing.trace;
        return strata_model_trace_begin(f->model, f->tracing.now, &f->tracing.tracks, err);
    }
    f->tracing.now = NULL;
    return strata_model_trace_devices(f->model, NULL, f->tracing.tracks, err);
}

strata_status strata_fit_end_trace(strata_fit *f, strata_status trained, strata_error *err) {
    const strata_workers *workers = &f->model->strategy->workers;
    const bool many = strata_strategy_has_workers(f->model->strategy) && !trained;
    const int n = many && workers->rank == 0 ? workers->n : 1;
    char **texts = NULL;
    size_t bytes = 0;
    double ahead = 0;
    strata_status status =
        f->tracing.now && f->tracing.tracks ? strata_model_trace_devices(f->model, NULL, f->tracing.tracks, err) : STRATA_OK;
    if (!status) status = STRATA_NEW(texts, n, err, "fit: no host memory for a trace");
    if (!status && many) status = strata_workers_compare_clocks(workers, strata_trace_now, &ahead, err);
    strata_trace_set_ahead(f->tracing.trace, ahead);
    if (!status) status = strata_trace_events(f->tracing.trace, &texts[0], &bytes, err);
    if (!status && many) status = gather_events(f, texts[0], bytes, texts, err);
    if (!status) status = strata_trace_write(f->tracing.trace, (const char *const *)texts, n, err);
    for (int w = 0; texts && w < n; w++) free(texts[w]);
    free(texts);
    free(f->tracing.tracks);
    strata_trace_destroy(f->tracing.trace);
    return status;
}
