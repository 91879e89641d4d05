/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of the host backend: nodes that are divided among the cores must give the same bits as on one core. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <sched.h>
#include <string.h>

#include "backends/host/pool.h"
#include "strata/strata.h"

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
