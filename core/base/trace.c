/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/trace.h"

#include <math.h>
#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/text.h"

/* The most slices and counter values of a trace, the most tracks, and the most slices that contain each other. Process p writes
 * its tracks with the numbers TRACKS_OF_A_PROCESS p, TRACKS_OF_A_PROCESS p + 1, ... */
enum { MAX_SLICES = 200000, MAX_TRACKS = 80, MAX_DEPTH = 16, TRACKS_OF_A_PROCESS = 100 };

typedef struct slice {
    /* NULL: `name` is the label. */
    const strata_trace_label *label;
    const char *name;
    int track;
    int64_t step;
    /* The number of slices that were added before this one. */
    int number;
    /* Nanoseconds. */
    int64_t began, ended;
    /* The duration before the slice was shortened, for its GFLOP/s and GB/s. */
    int64_t took;
    /* Whether this is not a slice but the `value` of a counter from `began` on. */
    bool counter;
    double value;
} slice;

typedef struct label {
    strata_trace_label base;
    struct label *next;
} label;

typedef struct track {
    char *name;
    /* When its last slice ended, in nanoseconds. */
    int64_t ended;
    /* Its slices come in order, and none lies within another. */
    bool device;
} track;

STRATA_OWNER(strata_trace)

struct strata_trace {
    strata_file_writer *file;
    int rank;
    char *process;
    pthread_mutex_t lock;
    label *labels;
    track tracks[MAX_TRACKS];
    int n_tracks, n;
    /* Nanoseconds that are subtracted from times when they are written. */
    int64_t ahead;
    slice slices[MAX_SLICES];
};

double strata_trace_now(void) {
    return strata_clock_seconds();
}

strata_status strata_trace_create(const char *path, int rank, const char *process, strata_trace **out_trace,
                                  strata_error *err) {
    STRATA_OWNED(strata_trace) *trace = NULL;
    STRATA_TRY(STRATA_NEW(trace, 1, err, "no host memory for a trace"));
    trace->rank = rank;
    trace->process = process ? strdup(process) : NULL;
    pthread_mutex_init(&trace->lock, NULL);
    strata_trace_thread_track(trace, "host thread");
    strata_error reason = {0};
    strata_status status = strata_file_writer_create(path, &trace->file, &reason);
    if (status) return strata_fail(err, status == STRATA_UNAVAILABLE ? STRATA_DATA : status, "trace: %s", reason.message);
    *out_trace = strata_released(&trace);
    return STRATA_OK;
}

void strata_trace_destroy(strata_trace *trace) {
    if (!trace) return;
    strata_file_writer_destroy(trace->file);
    for (int i = 0; i < trace->n_tracks; i++) free(trace->tracks[i].name);
    for (label *l = trace->labels, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    free(trace->process);
    pthread_mutex_destroy(&trace->lock);
    free(trace);
}

/* The caller has locked trace->lock. */
static int add_track(strata_trace *trace, const char *name, bool device) {
    char *copy = trace->n_tracks < MAX_TRACKS ? strdup(name) : NULL;
    if (!copy) return STRATA_TRACE_HOST;
    trace->tracks[trace->n_tracks] = (track){.name = copy, .device = device};
    return trace->n_tracks++;
}

int strata_trace_add_track(strata_trace *trace, const char *name) {
    pthread_mutex_lock(&trace->lock);
    const int number = add_track(trace, name, true);
    pthread_mutex_unlock(&trace->lock);
    return number;
}

int strata_trace_thread_track(strata_trace *trace, const char *name) {
    int number = 0;
    if (!trace) return STRATA_TRACE_HOST;
    pthread_mutex_lock(&trace->lock);
    while (number < trace->n_tracks && strcmp(trace->tracks[number].name, name) != 0) number++;
    if (number == trace->n_tracks) number = add_track(trace, name, false);
    pthread_mutex_unlock(&trace->lock);
    return number;
}

const strata_trace_label *strata_trace_add_label(strata_trace *trace, const char *name, const char *details, double flops,
                                                 double bytes) {
    const size_t n_name = strlen(name) + 1, n_details = strlen(details) + 1;
    label *l = trace ? malloc(sizeof *l + n_name + n_details) : NULL;
    if (!l) return NULL;
    char *texts = (char *)(l + 1);
    memcpy(texts, name, n_name);
    memcpy(texts + n_name, details, n_details);
    pthread_mutex_lock(&trace->lock);
    *l = (label){.base = {.name = texts, .details = texts + n_name, .flops = flops, .bytes = bytes}, .next = trace->labels};
    trace->labels = l;
    pthread_mutex_unlock(&trace->lock);
    return &l->base;
}

static int64_t nanoseconds(double seconds) {
    return (int64_t)llround(seconds * 1e9);
}

/* The caller has locked trace->lock. */
static void append(strata_trace *trace, slice s) {
    if (trace->n == MAX_SLICES) return;
    s.number = trace->n;
    trace->slices[trace->n++] = s;
}

static void add(strata_trace *trace, int number, const strata_trace_label *label, const char *name, int64_t step, double began,
                double ended) {
    if (!trace) return;
    slice s = {
        .label = label, .name = name, .track = number, .step = step, .began = nanoseconds(began), .ended = nanoseconds(ended)};
    s.took = s.ended - s.began;
    pthread_mutex_lock(&trace->lock);
    if (number >= 0 && number < trace->n_tracks) {
        track *own = &trace->tracks[number];
        if (own->device && s.began < own->ended) s.began = own->ended;
        if (own->device && s.ended <= s.began) s.ended = s.began + 1; /* else it would lie within the next one */
        if (s.ended < s.began) s.ended = s.began;
        own->ended = s.ended;
        append(trace, s);
    }
    pthread_mutex_unlock(&trace->lock);
}

void strata_trace_add_counter(strata_trace *trace, const char *name, double value, double at) {
    if (!trace) return;
    const slice s = {.name = name, .began = nanoseconds(at), .ended = nanoseconds(at), .counter = true, .value = value};
    pthread_mutex_lock(&trace->lock);
    append(trace, s);
    pthread_mutex_unlock(&trace->lock);
}

void strata_trace_add(strata_trace *trace, int number, const strata_trace_label *label, int64_t step, double began,
                      double ended) {
    if (label) add(trace, number, label, NULL, step, began, ended);
}

void strata_trace_add_named(strata_trace *trace, int number, const char *name, int64_t step, double began, double ended) {
    add(trace, number, NULL, name, step, began, ended);
}

/* ---- writing ---- */

/* Orders slices by the time at which they begin. Of slices that begin together the longer one comes first, as it
 * contains the other. Of equal slices the one that was added later comes first: slices are added when they end, so it
 * contains the other. */
static int in_order(const void *a, const void *b) {
    const slice *x = a, *y = b;
    if (x->began != y->began) return x->began < y->began ? -1 : 1;
    if (x->ended != y->ended) return x->ended > y->ended ? -1 : 1;
    return x->number > y->number ? -1 : x->number < y->number;
}

/* The slices of a track that may contain the next slice: when they end, from the outermost to the innermost. */
typedef struct nest {
    int64_t ends[MAX_DEPTH];
    int depth;
} nest;

/* Shortens a slice so that it lies within the slice in which it begins. Returns false if slices are nested too
 * deeply. */
static bool nest_slice(nest *n, slice *s) {
    while (n->depth && n->ends[n->depth - 1] <= s->began) n->depth--;
    if (n->depth && s->ended > n->ends[n->depth - 1]) s->ended = n->ends[n->depth - 1];
    if (n->depth == MAX_DEPTH) return false;
    n->ends[n->depth++] = s->ended;
    return true;
}

/* Adds a name to a JSON string. A driver's name for its device may contain any character. */
static void add_string(strata_text *text, const char *string) {
    for (const char *c = string; *c; c++) {
        if (*c == '"' || *c == '\\') strata_text_add_bytes(text, "\\", 1);
        strata_text_add_bytes(text, *c < 0x20 || *c > 0x7e ? "?" : c, 1);
    }
}

static void describe(strata_text *text, const char *what, int pid, int tid, const char *name, int order) {
    strata_text_add(text, "{\"name\":\"%s_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"", what, pid, tid);
    add_string(text, name);
    strata_text_add(text, "\"}},\n{\"name\":\"%s_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
                    what, pid, tid, order);
}

static void write_counter(strata_text *text, const slice *s, int pid) {
    strata_text_add(text, ",\n{\"name\":\"%s\",\"ph\":\"C\",\"ts\":%lld.%03d,\"pid\":%d,\"tid\":%d,\"args\":{\"value\":%.9g}}",
                    s->name, (long long)(s->began / 1000), (int)(s->began % 1000), pid, pid * TRACKS_OF_A_PROCESS, s->value);
}

static void write_slice(strata_text *text, const slice *s, const track *own, int pid, int tid) {
    const int64_t began = s->began, took = s->ended - s->began;
    const strata_trace_label *label = s->label;
    strata_text_add(text, ",\n{\"name\":\"");
    add_string(text, label ? label->name : s->name);
    strata_text_add(text, "\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%lld.%03d,\"dur\":%lld.%03d,\"pid\":%d,\"tid\":%d",
                    own->device ? "device" : "host", (long long)(began / 1000), (int)(began % 1000), (long long)(took / 1000),
                    (int)(took % 1000), pid, tid);
    strata_text_add(text, ",\"args\":{\"step\":%lld", (long long)(s->step % (INT64_C(1) << STRATA_TRACE_STEP_BITS)));
    if (s->step >> STRATA_TRACE_STEP_BITS)
        strata_text_add(text, ",\"microbatch\":%lld", (long long)(s->step >> STRATA_TRACE_STEP_BITS) - 1);
    if (label && *label->details) strata_text_add(text, ",%s", label->details);
    if (label && label->flops > 0 && s->took > 0) strata_text_add(text, ",\"GFLOP/s\":%.4g", label->flops / (double)s->took);
    if (label && label->bytes > 0 && s->took > 0) strata_text_add(text, ",\"GB/s\":%.4g", label->bytes / (double)s->took);
    strata_text_add(text, "}}");
}

void strata_trace_set_ahead(strata_trace *trace, double seconds) {
    trace->ahead = (int64_t)(seconds * 1e9);
}

strata_status strata_trace_events(strata_trace *trace, char **out_text, size_t *out_bytes, strata_error *err) {
    strata_text text = {0};
    char name[32];
    nest nests[MAX_TRACKS] = {{{0}, 0}};
    const int pid = trace->rank + 1; /* 0 has a special meaning for viewers */
    snprintf(name, sizeof name, "worker %d", trace->rank);
    describe(&text, "process", pid, pid * TRACKS_OF_A_PROCESS, trace->process ? trace->process : name, trace->rank);
    for (int i = 0; i < trace->n_tracks; i++) {
        strata_text_add(&text, ",\n");
        describe(&text, "thread", pid, pid * TRACKS_OF_A_PROCESS + i, trace->tracks[i].name, i);
    }
    qsort(trace->slices, (size_t)trace->n, sizeof *trace->slices, in_order);
    for (int i = 0; i < trace->n; i++) {
        slice s = trace->slices[i];
        s.began -= trace->ahead;
        s.ended -= trace->ahead;
        if (s.counter)
            write_counter(&text, &s, pid);
        else if (nest_slice(&nests[s.track], &s))
            write_slice(&text, &s, &trace->tracks[s.track], pid, pid * TRACKS_OF_A_PROCESS + s.track);
    }
    return strata_text_take(&text, out_text, out_bytes, err);
}

strata_status strata_trace_write(strata_trace *trace, const char *const *texts, int n, strata_error *err) {
    static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", between[] = ",\n", tail[] = "\n]}\n";
    STRATA_TRY(strata_file_writer_add(trace->file, head, sizeof head - 1, err));
    for (int i = 0; i < n; i++) {
        if (i) STRATA_TRY(strata_file_writer_add(trace->file, between, sizeof between - 1, err));
        STRATA_TRY(strata_file_writer_add(trace->file, texts[i], strlen(texts[i]), err));
    }
    STRATA_TRY(strata_file_writer_add(trace->file, tail, sizeof tail - 1, err));
    return strata_file_writer_commit(trace->file, NULL, err);
}
