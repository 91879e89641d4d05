/* SPDX-License-Identifier: Apache-2.0
 *
 * The times at which the launches of a sequence ran. A sequence runs many launches in one kernel. A traced program must
 * stay one kernel and give the same bits as without tracing. Its trace must contain a slice for each launch, in an order
 * that respects their dependences, also when several workers (work-groups that share the launches) run it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if STRATA_WITH_OPENCL
#include "backends/opencl/opencl.h"
#include "core/run/executable.h"
#include "strata/executable.h"
#include "strata/ops.h"
#include "strata/trace_file.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

TestSuite(sequence_times, .init = test_folder_make, .fini = test_folder_remove);

enum { RUNS = 40, MOST_SLICES = 4096 };

static strata_error err;

#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

/* Opens the first device that supports sequences. The test is skipped when there is none. */
static opencl_device *open_device(void) {
    strata_device_info *rows;
    int n;
    OK(strata_devices_list(&rows, &n, &err));
    opencl_device *found = NULL;
    for (int i = 0; i < n && !found; i++) {
        strata_device *device = NULL;
        if (strcmp(rows[i].backend, "opencl") || rows[i].skipped[0]) continue;
        OK(strata_device_open(rows[i].id, &(strata_device_options){.no_cache = true, .no_tune = true}, &device, &err));
        found = (opencl_device *)device;
        if (found->makes_sequences) break;
        strata_device_close(device);
        found = NULL;
    }
    strata_devices_free(rows);
    if (!found) cr_skip_test("no OpenCL device that runs several launches as one kernel");
    if (!strata_opencl_has_counter()) {
        strata_device_close(&found->base);
        cr_skip_test("no counter on this processor");
    }
    return found;
}

static strata_trace *create_trace(void) {
    strata_trace *trace = NULL;
    OK(strata_trace_create(test_path("trace.json"), 0, NULL, &trace, &err));
    return trace;
}

/* Writes the trace to a file and reads that file. */
static strata_trace_file read_back(strata_trace *trace) {
    char *text = NULL;
    size_t bytes = 0;
    strata_trace_file file = {0};
    OK(strata_trace_events(trace, &text, &bytes, &err));
    OK(strata_trace_write(trace, (const char *const[]){text}, 1, &err));
    free(text);
    strata_trace_destroy(trace);
    OK(strata_trace_file_read(test_path("trace.json"), &file, &err));
    return file;
}

/* ---- programs ---- */

/* The name of a node in the trace, and the names of the nodes whose results it needs. */
static const struct node {
    const char *name;
    const char *after[2];
} nodes[] = {
    {"matmul (192,130)", {NULL}},
    {"matmul (192,165)", {"matmul (192,130)"}},
    {"matmul (192,117)", {"matmul (192,130)"}},
    {"matmul (165,117)", {"matmul (192,165)", "matmul (192,117)"}},
    {"softmax (165,117)", {"matmul (165,117)"}},
    {"matmul (192,192)", {NULL}},
};
enum { N_NODES = sizeof nodes / sizeof *nodes, N_OUTPUTS = 2 };

typedef struct outcome {
    strata_array outputs[N_OUTPUTS];
    /* Times of the host's clock in seconds, taken before and after the call that submitted the run. */
    double began[RUNS], ended[RUNS];
    uint64_t launches;
} outcome;

/* Makes RUNS runs, submitting `together` of them in each call of the device. */
static outcome run(opencl_device *device, int together) {
    static const int64_t shapes[][2] = {{192, 150}, {150, 130}, {130, 165}, {130, 117}};
    static const char *const names[] = {"x", "u", "v", "w"};
    outcome out = {0};
    strata_graph *graph;
    strata_executable *exe;
    strata_tensor *in[4];
    strata_array inputs[4];
    OK(strata_graph_create(&graph, &err));
    for (int i = 0; i < 4; i++) {
        const strata_shape shape = STRATA_SHAPE(shapes[i][0], shapes[i][1]);
        in[i] = strata_input(graph, names[i], STRATA_DTYPE_F32, shape);
        inputs[i] = strata_test_random(STRATA_DTYPE_F32, shape, -0.1, 0.1, (uint64_t)i);
    }
    strata_tensor *a = strata_matmul(in[0], in[1], false, false), *b = strata_matmul(a, in[2], false, false);
    strata_tensor *c = strata_matmul(a, in[3], false, false), *d = strata_matmul(b, c, true, false);
    strata_tensor *results[N_OUTPUTS] = {strata_softmax(d), strata_matmul(in[0], in[0], false, true)};
    const strata_executable_options opts = {.n_slots = OPENCL_RUNS_IN_A_CALL};
    OK(strata_executable_create(&device->base, results, N_OUTPUTS, NULL, 0, &opts, &exe, &err));
    for (int i = 0; i < N_OUTPUTS; i++)
        out.outputs[i] = strata_test_full(STRATA_DTYPE_F32, strata_tensor_shape(results[i]), -1);
    const uint64_t before = device->base.counters.launches;
    for (int r = 0, n; r < RUNS; r += n) {
        int slots[OPENCL_RUNS_IN_A_CALL];
        n = together < RUNS - r ? together : RUNS - r;
        for (int i = 0; i < n; i++) {
            OK(strata_executable_acquire(exe, &slots[i], &err));
            for (int k = 0; k < 4; k++)
                strata_executable_feed(exe, slots[i], names[k], inputs[k].data, strata_array_bytes(&inputs[k]));
        }
        device->base.trace_step = r;
        const double began = strata_trace_now();
        OK(strata_executable_submit_segment(exe, slots[0], n, 0, &err));
        for (int i = 0; i < n; i++) OK(strata_executable_wait(exe, slots[i], &err));
        for (int i = 0; i < n; i++) out.began[r + i] = began, out.ended[r + i] = strata_trace_now();
        for (int i = 0; i < N_OUTPUTS; i++)
            memcpy(out.outputs[i].data, strata_executable_output(exe, slots[n - 1], i), strata_array_bytes(&out.outputs[i]));
    }
    out.launches = (device->base.counters.launches - before) / RUNS;
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    for (int i = 0; i < 4; i++) strata_array_finish(&inputs[i]);
    return out;
}

static void finish(outcome *out) {
    for (int i = 0; i < N_OUTPUTS; i++) strata_array_finish(&out->outputs[i]);
}

/* The slices of a step must lie within the step, and the sum of their times must not exceed the step's. */
static void check_times(const strata_trace_file *file, const outcome *out) {
    double sums[RUNS] = {0};
    int64_t n[RUNS] = {0};
    for (int64_t i = 0; i < file->n_slices; i++) {
        const strata_trace_file_slice *s = &file->slices[i];
        cr_assert(s->step >= 0 && s->step < RUNS, "step %lld", (long long)s->step);
        cr_assert(s->began >= out->began[s->step] * 1e6 - 0.01, "%s begins before its run", s->name);
        cr_assert(s->began + s->took <= out->ended[s->step] * 1e6 + 0.01, "%s ends after its run", s->name);
        sums[s->step] += s->took;
        n[s->step]++;
    }
    for (int r = 0; r < RUNS; r++) {
        cr_assert_eq(n[r], (int64_t)out->launches, "run %d: %lld slices of %llu launches", r, (long long)n[r],
                     (unsigned long long)out->launches);
        cr_assert(sums[r] > 0 && sums[r] <= (out->ended[r] - out->began[r]) * 1e6, "run %d: %g us", r, sums[r]);
    }
}

/* The interval of the step in which the slices with this name ran. */
static void find(const strata_trace_file *file, const char *name, int64_t step, double *out_began, double *out_ended) {
    *out_began = INFINITY, *out_ended = -1;
    for (int64_t i = 0; i < file->n_slices; i++) {
        const strata_trace_file_slice *s = &file->slices[i];
        if (s->step != step || strcmp(s->name, name) != 0) continue;
        *out_began = fmin(*out_began, s->began);
        *out_ended = fmax(*out_ended, s->began + s->took);
    }
    cr_assert(*out_ended > 0, "step %lld has no %s", (long long)step, name);
}

static void check_order(const strata_trace_file *file) {
    for (int64_t step = 0; step < RUNS; step++)
        for (int i = 0; i < N_NODES; i++) {
            double began, ended, before, until;
            find(file, nodes[i].name, step, &began, &ended);
            for (int k = 0; k < 2 && nodes[i].after[k]; k++) {
                find(file, nodes[i].after[k], step, &before, &until);
                cr_assert(until <= began + 0.0005, "step %lld: %s begins %g us before the end of %s", (long long)step,
                          nodes[i].name, until - began, nodes[i].after[k]);
            }
        }
}

/* Four workers are more than the number of cores of some machines. */
Test(sequence_times, a_traced_program_stays_one_kernel_and_tells_of_each_launch, .timeout = 300) {
    for (uint32_t workers = 1; workers <= 4; workers *= 2) {
        opencl_device *device = open_device();
        device->limits.compute_units = workers;
        const int together = (int)workers; /* runs that one call submits */
        outcome plain = run(device, 1);
        strata_trace *trace = create_trace();
        OK(device->base.api->set_trace(&device->base, trace, strata_trace_add_track(trace, "device"), &err));
        const uint64_t submissions = device->base.counters.submissions;
        outcome traced = run(device, together);
        cr_assert_eq(device->base.counters.submissions - submissions, (uint64_t)((RUNS + together - 1) / together));
        cr_assert_eq(device->n_texts, 1, "%d programs: traced or not, it is the same one", device->n_texts);
        cr_assert_eq(device->n_built, 0, "no launch has a kernel of its own");
        OK(device->base.api->set_trace(&device->base, NULL, 0, &err));
        strata_trace_file file = read_back(trace);
        for (int i = 0; i < N_OUTPUTS; i++) {
            strata_test_result same = strata_test_same(&traced.outputs[i], &plain.outputs[i]);
            cr_assert(same.ok, "%u workers: %s", workers, same.text);
        }
        check_times(&file, &traced);
        check_order(&file);
        cr_assert_eq(device->base.counters.allocated_bytes, 0, "all is given back");
        strata_trace_file_finish(&file);
        finish(&plain);
        finish(&traced);
        strata_device_close(&device->base);
    }
}

/* Where the list of launches does not fit into one kernel, each launch has an OpenCL event that measures its time. */
Test(sequence_times, launches_one_by_one_keep_the_same_rules, .timeout = 300) {
    opencl_device *device = open_device();
    device->makes_sequences = false;
    strata_trace *trace = create_trace();
    OK(device->base.api->set_trace(&device->base, trace, strata_trace_add_track(trace, "device"), &err));
    outcome traced = run(device, 2);
    cr_assert_eq(device->n_texts, 0, "it is no sequence");
    OK(device->base.api->set_trace(&device->base, NULL, 0, &err));
    strata_trace_file file = read_back(trace);
    check_order(&file);
    strata_trace_file_finish(&file);
    finish(&traced);
    strata_device_close(&device->base);
}

/* ---- dividing the time of launches that overlap ---- */

/* Writes the counts of two workers and four launches, in nanoseconds after `zero`. Worker 0 computes launch 0 in [100, 200]
 * and launch 2 in [220, 300]. Worker 1 computes launch 0 in [100, 150] and launch 1 in [150, 260]. Nobody computes launch
 * 3. */
static void write_counts(opencl_device *device, const opencl_counts *counts, uint64_t zero) {
    uint64_t rows[2][4][2] = {{{100, 200}, {0, 0}, {220, 300}, {0, 0}}, {{100, 150}, {150, 260}, {0, 0}, {0, 0}}};
    for (int i = 0; i < 16; i++)
        if ((&rows[0][0][0])[i]) (&rows[0][0][0])[i] += zero;
    cr_assert_eq(device->cl.EnqueueWriteBuffer(device->queue, strata_opencl_counts_memory(counts), CL_TRUE, 0, sizeof rows,
                                               rows, 0, NULL, NULL),
                 CL_SUCCESS);
    /* a blocking write may return when its source has been copied, before the buffer is written */
    device->cl.Finish(device->queue);
}

Test(sequence_times, launches_that_overlap_share_their_time) {
    opencl_device *device = open_device();
    opencl_counts *counts = NULL;
    const strata_trace_label *labels[4];
    static const char *const names[] = {"0", "1", "2", "3"};
    const uint64_t zero = UINT64_C(1) << 40;
    strata_trace *trace = create_trace();
    const int track = strata_trace_add_track(trace, "device");
    for (int l = 0; l < 4; l++) labels[l] = strata_trace_add_label(trace, names[l], "", 0, 0);
    OK(strata_opencl_counts_create(device, 2, 4, &counts, &err));
    write_counts(device, counts, zero);
    /* One count is one nanosecond in the first run and two in the second one. The second run ended at count 280, so its
     * slices are cut there. */
    const opencl_moment begins[] = {{zero, 1}, {zero, 2}}, ends[] = {{zero + 1000, 1 + 1000e-9}, {zero + 280, 2 + 560e-9}};
    for (int r = 0; r < 2; r++) strata_opencl_counts_add(counts, 0, trace, track, labels, r, begins[r], ends[r]);
    strata_opencl_counts_destroy(device, counts);
    strata_trace_file file = read_back(trace);
    /* Expected slices, when launches that run at the same time get equal parts of it. Launch 0: all of 100..150, which both
     * workers spend on it, and half of 150..200. Launch 1: half of 150..200, all of 200..220, and half of 220..260. Launch
     * 2: half of 220..260 and all of 260..300. The sum is 200, the time in which at least one worker computes. */
    static const double began[] = {100, 175, 240}, took[] = {75, 65, 60};
    cr_assert_eq(file.n_slices, 6);
    for (int i = 0; i < 6; i++) {
        const strata_trace_file_slice *s = &file.slices[i];
        const double unit = i < 3 ? 1 : 2, ends_at = i == 5 ? 280 : began[i % 3] + took[i % 3];
        cr_expect_str_eq(s->name, names[i % 3]);
        cr_expect_eq(s->step, i / 3);
        cr_expect(fabs((s->began - (i < 3 ? 1e6 : 2e6)) * 1e3 - began[i % 3] * unit) < 2, "%d begins at %.3f", i, s->began);
        cr_expect(fabs(s->took * 1e3 - (ends_at - began[i % 3]) * unit) < 3, "%d takes %g", i, s->took);
    }
    strata_trace_file_finish(&file);
    strata_device_close(&device->base);
}
#endif
