/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/trace.h"

#include <stdlib.h>
#include <time.h>

#include "core/base/file.h"
#include "core/base/text.h"

enum { MOST_SPANS = 200000 };

typedef struct span {
    const char *what;
    int number, row;
    int64_t step;
    double began, ended;
} span;

struct strata_trace {
    strata_file_writer *file;
    double began;
    int n;
    span spans[MOST_SPANS];
};

double strata_trace_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

strata_status strata_trace_create(const char *path, strata_trace **out_trace, strata_error *err) {
    strata_trace *trace = malloc(sizeof *trace);
    if (!trace) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a trace");
    trace->n = 0;
    trace->file = NULL;
    strata_error reason = {0};
    strata_status status = strata_file_writer_create(path, &trace->file, &reason);
    if (status) {
        free(trace);
        return strata_fail(err, status == STRATA_UNAVAILABLE ? STRATA_DATA : status, "trace: %s", reason.message);
    }
    trace->began = strata_trace_now();
    *out_trace = trace;
    return STRATA_OK;
}

void strata_trace_destroy(strata_trace *trace) {
    if (!trace) return;
    strata_file_writer_destroy(trace->file);
    free(trace);
}

void strata_trace_add(strata_trace *trace, const char *what, int number, int row, int64_t step, double began, double ended) {
    if (!trace || trace->n == MOST_SPANS) return;
    trace->spans[trace->n++] = (span){what, number, row, step, began, ended};
}

static void name_row(strata_text *text, int row, const char *name) {
    strata_text_add(text,
                    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n"
                    "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
                    row, name, row, row);
}

strata_status strata_trace_write(const strata_trace *trace, const char *const *devices, int n_devices, strata_error *err) {
    strata_text text = {0}, name = {0};
    strata_text_add(&text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    name_row(&text, STRATA_TRACE_HOST, "host");
    for (int r = 0; r < n_devices; r++) {
        strata_text_add(&text, ",\n");
        name.n_bytes = 0;
        strata_text_add(&name, "replica %d %s", r, devices[r]); /* ids have letters, digits, ':' and '.' */
        name_row(&text, r + 1, name.bytes ? name.bytes : "");
    }
    for (int i = 0; i < trace->n; i++) {
        const span *s = &trace->spans[i];
        strata_text_add(
            &text,
            ",\n{\"name\":\"%s %d\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":0,\"tid\":%d,\"args\":{\"step\":%lld}}",
            s->what, s->number, (s->began - trace->began) * 1e6, (s->ended - s->began) * 1e6, s->row, (long long)s->step);
    }
    strata_text_add(&text, "\n]}\n");
    strata_text_finish(&name);
    char *bytes = NULL;
    size_t n_bytes = 0;
    STRATA_TRY(strata_text_take(&text, &bytes, &n_bytes, err));
    strata_status status = strata_file_writer_add(trace->file, bytes, n_bytes, err);
    if (!status) status = strata_file_writer_commit(trace->file, err);
    free(bytes);
    return status;
}
