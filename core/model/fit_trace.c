/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace of a fit: devices and the host add what ran when, and rank 0 writes the file for all workers. */
#include <stdlib.h>

#include "core/model/fit.h"

/* Sends the events of each worker to rank 0, which writes the file. */
static strata_status gather_events(const strata_fit *f, char *own, size_t bytes, char **texts, strata_error *err) {
    enum { TRACE_CHANNEL = 0x74726163 };
    const strata_workers *workers = &f->model->strategy->workers;
    uint64_t *sizes = calloc((size_t)workers->n, sizeof *sizes);
    const uint64_t mine = bytes;
    if (!sizes) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for a trace");
    strata_status status = strata_workers_gather(workers, &mine, sizes, sizeof mine, err);
    if (!status && workers->rank > 0) status = workers->send(workers, 0, TRACE_CHANNEL, own, bytes, err);
    for (int w = 1; w < workers->n && !status && workers->rank == 0; w++) {
        texts[w] = calloc(1, (size_t)sizes[w] + 1);
        status = texts[w] ? workers->receive(workers, w, TRACE_CHANNEL, texts[w], (size_t)sizes[w], err)
                          : strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for a trace");
    }
    free(sizes);
    return status;
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
    char **texts = calloc((size_t)n, sizeof *texts);
    size_t bytes = 0;
    double ahead = 0;
    strata_status status =
        f->tracing.now && f->tracing.tracks ? strata_model_trace_devices(f->model, NULL, f->tracing.tracks, err) : STRATA_OK;
    if (!status && !texts) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for a trace");
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
