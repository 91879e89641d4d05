/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of the host backend: nodes that are divided among the cores must give the same bits as on one core. */
#define _GNU_SOURCE
#include "backends/host/host.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/host/pool.h"
#include "core/graph/graph.h"
#include "core/model/model.h"
#include "strata/strata.h"
#include "tests/support/samples.h"

enum { N = 1031, K = 67, M = 260 };

/* Computes large nodes of several kinds, and writes their results to `out`, one after the other. */
static void run_nodes(float *out, int64_t n_out) {
    static float a[N * K], b[K * M];
    strata_error err = {0};
    strata_device *device = NULL;
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    for (int i = 0; i < N * K; i++) a[i] = (float)(i * 37 % 1009) / 1009 - 0.5f;
    for (int i = 0; i < K * M; i++) b[i] = (float)(i * 53 % 997) / 997 - 0.5f;
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *x = strata_input(graph, "a", STRATA_DTYPE_F32, STRATA_SHAPE(N, K));
    strata_tensor *w = strata_input(graph, "b", STRATA_DTYPE_F32, STRATA_SHAPE(K, M));
    strata_tensor *y = strata_matmul(x, w, false, false), *turned = strata_matmul(y, y, true, false);
    strata_tensor *sums = strata_reduce_sum(strata_exp(y), (int[]){0}, 1, false);
    strata_tensor *flat[] = {strata_reshape(y, STRATA_SHAPE(N * M)), strata_reshape(turned, STRATA_SHAPE(M * M)), sums};
    strata_tensor *all = strata_concat(flat, 3, 0);
    cr_assert_eq(strata_executable_create(device, &all, 1, NULL, 0, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    const strata_array in[] = {strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, K), a),
                               strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(K, M), b)};
    strata_array to = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n_out), out);
    for (int i = 0; i < 20; i++)
        cr_assert_eq(strata_executable_run(exe, (const char *[]){"a", "b"}, in, 2, &to, 1, &err), STRATA_OK, "%s", err.message);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    strata_device_close(device);
}

Test(host, has_the_bits_of_one_core_on_all_cores) {
    static float one[N * M + M * M + M], all[N * M + M * M + M];
    cpu_set_t cores, first;
    if (strata_host_cores() < 2) cr_skip_test("one core only");
    cr_assert_eq(sched_getaffinity(0, sizeof cores, &cores), 0);
    run_nodes(all, N * M + M * M + M);
    CPU_ZERO(&first);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&first); i++)
        if (CPU_ISSET(i, &cores)) CPU_SET(i, &first);
    cr_assert_eq(sched_setaffinity(0, sizeof first, &first), 0);
    cr_assert_eq(strata_host_cores(), 1);
    run_nodes(one, N * M + M * M + M);
    cr_assert_eq(memcmp(one, all, sizeof one), 0);
}

typedef struct marks {
    int counts[64];
} marks;

static void mark(void *user, int thread, int part, int n_parts) {
    cr_assert_lt(part, n_parts);
    cr_assert_geq(thread, 0);
    ((marks *)user)->counts[part]++;
}

Test(host, calls_the_work_once_for_each_part) {
    host_pool *pool = strata_host_pool_create(4);
    cr_assert_not_null(pool);
    for (int run = 0; run < 2000; run++) {
        marks seen = {{0}};
        strata_host_pool_run(pool, mark, &seen);
        for (int i = 0; i < 16; i++) cr_assert_eq(seen.counts[i], 1, "part %d was called %d times", i, seen.counts[i]);
    }
    strata_host_pool_destroy(pool);
}

/* ---- 16 bits ---- */

Test(host, converts_16_bits_as_the_elements_of_arrays) {
    enum { ALL = 1 << 16, EDGES = 5 };
    static uint16_t bits[ALL], back[ALL];
    static float wide[ALL], near[ALL];
    const strata_dtype dtypes[] = {STRATA_DTYPE_F16, STRATA_DTYPE_BF16};
    for (int i = 0; i < ALL; i++) bits[i] = (uint16_t)i;
    for (int t = 0; t < 2; t++) {
        cr_assert(strata_host_to_f32(dtypes[t], bits, wide, ALL));
        for (int i = 0; i < ALL; i++) {
            const float value = t ? strata_bf16_to_f32(bits[i]) : strata_f16_to_f32(bits[i]);
            cr_assert_eq(memcmp(&value, &wide[i], sizeof value), 0, "%s of %04x", strata_dtype_name(dtypes[t]), i);
        }
        /* around each value, where the roundings to two neighbours meet */
        for (int edge = 0; edge < EDGES; edge++) {
            const uint32_t half = t ? 0x8000 : 0x1000;
            for (int i = 0; i < ALL; i++) {
                uint32_t word;
                memcpy(&word, &wide[i], sizeof word);
                word += half + (uint32_t)edge - 2;
                memcpy(&near[i], &word, sizeof word);
            }
            strata_host_from_f32(dtypes[t], near, back, ALL);
            for (int i = 0; i < ALL; i++) {
                const uint16_t value = t ? strata_bf16_from_f32(near[i]) : strata_f16_from_f32(near[i]);
                cr_assert_eq(back[i], value, "%s: %a", strata_dtype_name(dtypes[t]), (double)near[i]);
            }
        }
    }
    cr_assert(!strata_host_to_f32(STRATA_DTYPE_F32, bits, wide, 1));
}

/* Fails if a large node of a step is computed by its reference, which takes tens of times as long as a loop. */
static strata_status expect_loop(const strata_node_support *placement, void *user, strata_error *err) {
    static const double LARGE = 4e6; /* operations: products and convolutions */
    const strata_tensor *node = placement->node;
    (void)err;
    if (strata_node_flops(node) < LARGE) return STRATA_OK;
    host_wide *wide = strata_host_widen(node);
    cr_expect(wide || strata_host_fast_find(node), "%s: %s %s %s has no loop", (const char *)user, node->op->name,
              strata_dtype_name(node->dtype), strata_shape_text(node->shape).text);
    free(wide);
    return STRATA_OK;
}

Test(host, has_a_loop_for_each_large_node_of_the_samples_in_each_precision) {
    const strata_dtype precisions[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16};
    strata_device *device = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < STRATA_TEST_SAMPLES; i++)
        for (int p = 0; p < 3; p++) {
            const strata_test_sample *sample = &strata_test_samples[i];
            char path[4096], name[128];
            strata_model *model = NULL;
            snprintf(path, sizeof path, "%s/samples/%s/model.json", STRATA_TEST_SOURCE_DIR, sample->name);
            snprintf(name, sizeof name, "%.23s in %s", sample->name, strata_dtype_name(precisions[p]));
            cr_assert_eq(strata_model_read_json(path, &model, &err), STRATA_OK, "%s", err.message);
            const strata_compile_options opts = {.seed = 1, .precision = precisions[p]};
            cr_assert_eq(strata_model_compile(model, device, &opts, &err), STRATA_OK, "%s: %s", name, err.message);
            strata_step step;
            cr_assert_eq(strata_model_build_step(model, STRATA_PROGRAM_TRAIN, sample->batch, 0, NULL, &step, &err), STRATA_OK,
                         "%s", err.message);
            const strata_status status = strata_executable_place(device, step.outputs, step.n_outputs, step.updates,
                                                                 step.n_updates, expect_loop, name, &err);
            cr_assert_eq(status, STRATA_OK, "%s: %s", name, err.message);
            strata_graph_destroy(step.graph);
            strata_model_destroy(model);
        }
    strata_device_close(device);
}
