/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds which of a family's candidates is the fastest on this device for one node's shapes. Candidates are timed on first use,
 * and the result is stored.
 *
 * A candidate is tried by compiling a piece that has only that node, with separate buffers (core/run/bench.h). Its result must
 * equal that of the first candidate: in all bits if the candidate is marked exact, within TOLERANCE if it is allowed only by
 * options.fast. The tuning of an opened device takes at most BUDGET_NS or GPU_BUDGET_NS in total. After that, nodes use their
 * first candidate; this is stored too, so that the next start does not tune again.
 *
 * The file is text with a line for each node: key, candidate, microseconds. It is read when the device is opened and rewritten
 * (by renaming a new file) with each result. Each device and driver has its own file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/kernel/lowering.h"
#include "core/base/alloc.h"
#include "core/base/locale.h"
#include "core/graph/graph.h"
#include "core/run/bench.h"
#include "core/run/compare.h"

enum {
    KEY_BYTES = 512,
    ROUNDS = 3,
    /* Microseconds. A node that takes no longer uses its first candidate without tuning: SMALL_US on a CPU or an
     * emulated GPU, GPU_SMALL_US on a real GPU. */
    SMALL_US = 20,
    GPU_SMALL_US = 3
};
/* Floating-point operations and bytes of a node that every CPU computes within SMALL_US. Such nodes are not timed: timing needs
 * a compilation, which takes longer than a faster candidate can ever save. */
static const double SMALL_FLOPS = 1e6, SMALL_BYTES = 1e5;
#define BUDGET_NS 2000000000u
/* A GPU's kernels use little of this time, but there are more candidates and the drivers' compilers are slow. */
#define GPU_BUDGET_NS 4000000000u
#define TOLERANCE     1e-3
/* On a CPU that other programs use too, the times of the same kernel vary by some percent. So a candidate replaces the first
 * one, which the cost model chose, only if it takes less than this fraction of its time. */
#define CPU_MARGIN 0.95

typedef struct record {
    char key[KEY_BYTES], winner[48];
    double us; /* the time of the winner; 0: it was not timed */
} record;

struct strata_tuner {
    strata_device *device;
    strata_records file;
    record *records;
    int n_records;
    int64_t capacity;
    uint64_t spent_ns;
    bool is_gpu; /* not one that is emulated on a CPU */
    /* A candidate is being compiled: the one with index `trial`. */
    bool trying;
    int trial;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- the file ---- */
static record *find_record(strata_tuner *tuner, const char *key) {
    for (int i = 0; i < tuner->n_records; i++)
        if (!strcmp(tuner->records[i].key, key)) return &tuner->records[i];
    return NULL;
}

static bool add_record(strata_tuner *tuner, const char *key, const char *winner, double us) {
    record *place = find_record(tuner, key);
    if (!place) {
        if (!strata_make_room(&tuner->records, tuner->n_records, &tuner->capacity, sizeof *tuner->records)) return false;
        place = &tuner->records[tuner->n_records++];
    }
    snprintf(place->key, sizeof place->key, "%s", key);
    snprintf(place->winner, sizeof place->winner, "%s", winner);
    place->us = us;
    return true;
}

/* Invalid lines are skipped. */
static void take_line(void *user, char *line) {
    char *winner = strchr(line, '\t'), *us = winner ? strchr(winner + 1, '\t') : NULL;
    if (!us || winner - line >= KEY_BYTES || us - winner > 48) return;
    *winner = *us = '\0';
    add_record(user, line, winner + 1, strata_scan_number(us + 1, NULL));
}

static void write_file(const strata_tuner *tuner) {
    strata_text text = {0};
    for (int i = 0; i < tuner->n_records; i++)
        strata_text_add(&text, "%s\t%s\t%.2f\n", tuner->records[i].key, tuner->records[i].winner, tuner->records[i].us);
    strata_records_write(&tuner->file, &text);
}

/* ---- create, destroy ---- */
strata_tuner *strata_tuner_create(strata_device *device, const strata_kernel_limits *limits, const strata_cache *cache,
                                  const strata_device_options *opts) {
    if (opts && opts->no_tune) return NULL;
    strata_tuner *tuner = calloc(1, sizeof *tuner);
    if (!tuner) return NULL;
    tuner->device = device;
    tuner->is_gpu = limits->device_class >= STRATA_DEVICE_INTEGRATED_GPU;
    strata_records_init(&tuner->file, cache, "strata-tune 1", "tune");
    strata_records_read(&tuner->file, take_line, tuner);
    return tuner;
}

bool strata_tuner_is_trying(const strata_tuner *tuner) {
    return tuner && tuner->trying;
}

void strata_tuner_destroy(strata_tuner *tuner) {
    if (!tuner) return;
    free(tuner->records);
    free(tuner);
}

/* ---- keys ---- */
/* "cpu/matmul transpose_a=0 transpose_b=1 f32(64,784) f32(128,784)": everything on which a kernel's speed may depend. */
static void write_key(const strata_family *family, const strata_tensor *node, char key[KEY_BYTES]) {
    int used = snprintf(key, KEY_BYTES, "%s", family->name);
    const strata_attr_field *field = node->op->attrs;
    for (; node->attrs && field < node->op->attrs + STRATA_MAX_ATTR_FIELDS && field->name && used < KEY_BYTES; field++) {
        const char *at = (const char *)node->attrs + field->offset;
        if (field->kind == STRATA_ATTR_INT)
            used += snprintf(key + used, (size_t)(KEY_BYTES - used), " %s=%lld", field->name, (long long)*(const int64_t *)at);
    }
    for (int i = 0; i < node->n_inputs && used < KEY_BYTES; i++)
        used += snprintf(key + used, (size_t)(KEY_BYTES - used), " %s%s", strata_dtype_name(node->inputs[i]->dtype),
                         strata_shape_text(node->inputs[i]->shape).text);
}

/* ---- trying one ---- */
/* Compiles and times one candidate and downloads its result. */
static strata_status try_candidate(strata_tuner *tuner, const strata_bench *bench, int candidate, void *result, double *out_us,
                                   strata_error *err) {
    strata_device *device = bench->device;
    strata_program *program = NULL;
    tuner->trying = true;
    tuner->trial = candidate;
    strata_status status = device->api->compile(device, &bench->piece, &program, err);
    tuner->trying = false;
    if (!status) status = strata_bench_time(bench, program, ROUNDS, out_us, err);
    const strata_place *place = &bench->places[bench->node->id];
    if (!status) status = device->api->download(device, bench->arenas[place->arena].buffer, 0, result, place->bytes, err);
    device->api->program_destroy(program);
    return status;
}

static bool same_result(const strata_tensor *node, bool exact, const void *a, const void *b) {
    if (exact) return !memcmp(a, b, (size_t)strata_tensor_bytes(node));
    return strata_check_difference(node, &(strata_sample){0}, b, a) <= TOLERANCE;
}

/* Returns the fastest candidate with a correct result, within the time budget. A candidate that fails is skipped. The first
 * candidate has to be compiled anyway, so only the time of the others counts. */
static int tune(strata_tuner *tuner, const strata_tensor *node, const strata_candidate *candidates, int n, double *out_us) {
    size_t bytes = (size_t)strata_tensor_bytes(node);
    char *truth = malloc(bytes + 1), *result = malloc(bytes + 1);
    strata_bench bench = {0};
    int best = 0;
    double best_us = 0;
    const uint64_t budget = tuner->is_gpu ? GPU_BUDGET_NS : BUDGET_NS;
    const double margin = tuner->is_gpu ? 1 : CPU_MARGIN;
    const bool is_small =
        !tuner->is_gpu && strata_node_flops(node) < SMALL_FLOPS && strata_node_moved_bytes(node) < SMALL_BYTES;
    const bool may_try = !is_small && tuner->spent_ns < budget;
    if (may_try) strata_device_report_compile(tuner->device, true, 0, n);
    bool ready = may_try && bytes > 0 && truth && result && !strata_bench_init(&bench, tuner->device, node, NULL, NULL) &&
                 !try_candidate(tuner, &bench, 0, truth, &best_us, NULL) && best_us > (tuner->is_gpu ? GPU_SMALL_US : SMALL_US);
    for (int i = 1; i < n && ready && tuner->spent_ns < budget; i++) {
        strata_device_report_compile(tuner->device, true, i, n);
        uint64_t start = now_ns();
        double us;
        bool good = !try_candidate(tuner, &bench, i, result, &us, NULL) && us < best_us * margin &&
                    same_result(node, candidates[i].exact, truth, result);
        tuner->spent_ns += now_ns() - start;
        if (!good) continue;
        best = i;
        best_us = us;
    }
    strata_bench_finish(&bench);
    free(truth);
    free(result);
    *out_us = best_us;
    return best;
}

int strata_tuner_choose(strata_tuner *tuner, const strata_family *family, const strata_tensor *node,
                        const strata_candidate *candidates, int n) {
    if (!tuner) return 0;
    if (tuner->trying) return tuner->trial;
    char key[KEY_BYTES];
    write_key(family, node, key);
    const record *known = find_record(tuner, key);
    for (int i = 0; known && i < n; i++)
        if (!strcmp(known->winner, candidates[i].name)) return i;
    double us = 0;
    int best = tune(tuner, node, candidates, n, &us);
    if (add_record(tuner, key, candidates[best].name, us)) write_file(tuner);
    return best;
}
