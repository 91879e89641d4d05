/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/trace.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/file.h"
#include "core/base/text.h"

enum { MOST_SPANS = 200000, MOST_WORDS = 256, MOST_UNITS = 16, WORD_BYTES = 48, NO_NUMBER = -1 };

typedef struct span {
    const char *what;
    int number, row;
    int64_t step;
    double began, ended;
} span;

struct strata_trace {
    strata_file_writer *file;
    double began;
    int n, n_words;
    /* Names and units of devices' spans. */
    char words[MOST_WORDS][WORD_BYTES];
    /* Rows of units. */
    int n_units;
    struct {
        int replica, row;
        const char *word;
    } units[MOST_WORDS];
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
    trace->n = trace->n_words = trace->n_units = 0;
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

/* The trace's copy of a text; NULL: there is no room for another one. */
static const char *word_of(strata_trace *trace, const char *text) {
    char clean[WORD_BYTES];
    int n = 0;
    for (; *text && n < WORD_BYTES - 1; text++)
        if (*text >= ' ' && *text <= '~' && *text != '"' && *text != '\\') clean[n++] = *text;
    clean[n] = 0;
    for (int i = 0; i < trace->n_words; i++)
        if (!strcmp(trace->words[i], clean)) return trace->words[i];
    if (trace->n_words == MOST_WORDS) return NULL;
    return strcpy(trace->words[trace->n_words++], clean);
}

/* Rows of units lie behind those of all replicas. */
static int unit_row(strata_trace *trace, int replica, const char *word) {
    enum { FIRST_ROW = 1 << 16 };
    int of_replica = 0;
    for (int i = 0; i < trace->n_units; i++) {
        if (trace->units[i].replica == replica && trace->units[i].word == word) return trace->units[i].row;
        of_replica += trace->units[i].replica == replica;
    }
    if (trace->n_units == MOST_WORDS || of_replica == MOST_UNITS) return NO_NUMBER;
    const int row = FIRST_ROW + replica * MOST_UNITS + of_replica;
    trace->units[trace->n_units].replica = replica;
    trace->units[trace->n_units].word = word;
    trace->units[trace->n_units++].row = row;
    return row;
}

void strata_trace_add_unit(strata_trace *trace, int replica, const char *unit, const char *name, double began, double ended) {
    if (!trace) return;
    const char *unit_word = word_of(trace, unit), *name_word = word_of(trace, name);
    const int row = unit_word ? unit_row(trace, replica, unit_word) : NO_NUMBER;
    if (name_word && row != NO_NUMBER) strata_trace_add(trace, name_word, NO_NUMBER, row, NO_NUMBER, began, ended);
}

static void add_span(strata_text *text, const strata_trace *trace, const span *s) {
    strata_text_add(text, ",\n{\"name\":\"%s", s->what);
    if (s->number != NO_NUMBER) strata_text_add(text, " %d", s->number);
    strata_text_add(text, "\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":0,\"tid\":%d", (s->began - trace->began) * 1e6,
                    (s->ended - s->began) * 1e6, s->row);
    if (s->step != NO_NUMBER) strata_text_add(text, ",\"args\":{\"step\":%lld}", (long long)s->step);
    strata_text_add(text, "}");
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
    for (int i = 0; i < trace->n_units; i++) {
        const int r = trace->units[i].replica;
        strata_text_add(&text, ",\n");
        name.n_bytes = 0;
        strata_text_add(&name, "replica %d %s %s", r, r < n_devices ? devices[r] : "", trace->units[i].word);
        name_row(&text, trace->units[i].row, name.bytes ? name.bytes : "");
    }
    for (int i = 0; i < trace->n; i++) add_span(&text, trace, &trace->spans[i]);
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
