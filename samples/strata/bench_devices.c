/* SPDX-License-Identifier: Apache-2.0
 *
 * strata bench allreduce --devices: measures how long a sum over devices of one process takes, from each replica's variable to
 * the sum on each replica. The rate at which the host reads each replica's value and writes each replica's sum is compared with
 * that of memcpy in the same run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "strata/distribute.h"

enum { MOST_SIZES = 32, WARM_UPS = 3, LEAST_REPEATS = 7, MOST_REPEATS = 2000 };
static const double SECONDS = 1;

typedef struct measured {
    double median_us, min_us, fold_rate, rate, copy_rate; /* rates: bytes per second */
} measured;

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Measures memcpy: bytes read and written per second, the highest of several repeats. */
static strata_status copy_rate(int64_t bytes, double *out_rate, strata_error *err) {
    char *from = malloc((size_t)bytes), *to = malloc((size_t)bytes);
    *out_rate = 0;
    for (int i = 0; from && to && i < LEAST_REPEATS; i++) {
        memset(from, i, (size_t)bytes);
        const double begin = now_seconds();
        memcpy(to, from, (size_t)bytes);
        const double rate = 2 * (double)bytes / (now_seconds() - begin);
        if (to[bytes / 2] == (char)i && rate > *out_rate) *out_rate = rate;
    }
    const bool enough = from && to;
    free(from);
    free(to);
    return enough ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for two times %lld bytes", (long long)bytes);
}

static strata_status step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    (void)inputs, (void)err;
    strata_tensor *sum = strata_replica_all_reduce(replica, strata_replica_read(replica, user), STRATA_REDUCE_SUM);
    strata_replica_return(replica, strata_slice(sum, (const int64_t[]){0}, (const int64_t[]){1}));
    return STRATA_OK;
}

/* Checks the first element of the sum, which was read back. */
static strata_status check(const strata_per_replica *sums, strata_error *err) {
    const float want = (float)sums->n * (float)(sums->n + 1) / 2;
    for (int r = 0; r < sums->n; r++)
        if (*(const float *)sums->arrays[r].data != want)
            return strata_fail(err, STRATA_INTERNAL, "replica %d has the sum %g; it should be %g", r,
                               (double)*(const float *)sums->arrays[r].data, (double)want);
    return STRATA_OK;
}

static strata_status time_steps(strata_function *function, int64_t bytes, int n_replicas, measured *out, strata_error *err) {
    double *times = malloc(MOST_REPEATS * sizeof *times), spent = 0;
    strata_per_replica sums = {0};
    strata_status status = times ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory");
    int n = 0;
    for (int i = -WARM_UPS; !status && n < MOST_REPEATS && (n < LEAST_REPEATS || spent < SECONDS); i++) {
        const double begin = now_seconds();
        status = strata_strategy_run(function, NULL, 0, &sums, 1, err);
        if (i < 0) continue;
        times[n] = now_seconds() - begin;
        spent += times[n++];
    }
    if (!status) status = check(&sums, err);
    if (!status) {
        const strata_communication_totals totals = strata_function_communication(function);
        const double touched = 2.0 * n_replicas * (double)bytes;
        qsort(times, (size_t)n, sizeof *times, ascending);
        *out = (measured){.median_us = times[n / 2] * 1e6,
                          .min_us = times[0] * 1e6,
                          .fold_rate = touched / (totals.seconds / (n + WARM_UPS)),
                          .rate = touched / times[n / 2]};
        status = copy_rate(bytes, &out->copy_rate, err);
    }
    strata_per_replica_finish(&sums);
    free(times);
    return status;
}

/* Sets all elements of replica r's copy to r + 1. */
static strata_status fill(strata_distributed_variable *variable, int64_t elements, int n_replicas, strata_error *err) {
    float *values = malloc((size_t)elements * sizeof *values);
    strata_status status = values ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory");
    const strata_array array = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(elements), values);
    for (int r = 0; !status && r < n_replicas; r++) {
        for (int64_t i = 0; i < elements; i++) values[i] = (float)(r + 1);
        status = strata_variable_set(strata_distributed_copy(variable, r), &array, err);
    }
    free(values);
    return status;
}

static strata_status measure(strata_strategy *strategy, int64_t bytes, measured *out, strata_error *err) {
    const strata_distributed_options opts = {.synchronization = STRATA_ON_READ, .aggregation = STRATA_AGGREGATION_SUM};
    const int n = strata_strategy_num_local_replicas(strategy);
    strata_distributed_variable *x = NULL;
    strata_function *function = NULL;
    STRATA_TRY(strata_strategy_enter(strategy, err));
    strata_status status = strata_distributed_create("x", STRATA_DTYPE_F32, STRATA_SHAPE(bytes / 4), &opts, &x, err);
    if (!status) status = fill(x, bytes / 4, n, err);
    if (!status) status = strata_strategy_exit(strategy, err);
    if (!status) status = strata_function_create(strategy, step, x, &function, err);
    if (!status) status = time_steps(function, bytes, n, out, err);
    strata_function_destroy(function);
    strata_distributed_destroy(x);
    return status;
}

static void print_one(const bench_options *options, const char *ops, int n, int64_t bytes, const measured *m) {
    if (options->json)
        printf(
            "{\"bytes\":%lld,\"median_us\":%.2f,\"min_us\":%.2f,\"devices\":%d,\"cross_device_ops\":\"%s\",\"gb_per_s\":%.3f,"
            "\"fold_gb_per_s\":%.3f,\"copy_gb_per_s\":%.3f,\"ratio\":%.4f,\"fold_ratio\":%.4f}\n",
            (long long)bytes, m->median_us, m->min_us, n, ops, m->rate * 1e-9, m->fold_rate * 1e-9, m->copy_rate * 1e-9,
            m->rate / m->copy_rate, m->fold_rate / m->copy_rate);
    else
        printf("%12lld %12.1f %12.1f %10.2f %10.2f %10.2f %8.2f %8.2f\n", (long long)bytes, m->median_us, m->min_us,
               m->rate * 1e-9, m->fold_rate * 1e-9, m->copy_rate * 1e-9, m->rate / m->copy_rate, m->fold_rate / m->copy_rate);
    fflush(stdout);
}

static strata_status measure_all(const bench_options *options, strata_strategy *strategy, const int64_t *sizes, int n_sizes,
                                 strata_error *err) {
    const char *ops = options->cross_device_ops ? options->cross_device_ops : "host";
    const int n = strata_strategy_num_local_replicas(strategy);
    if (!options->json)
        printf(
            "f32 sum over %d devices, %s; GB/s of bytes read and written on the host\n%12s %12s %12s %10s %10s %10s %8s %8s\n",
            n, ops, "bytes", "median us", "min us", "step", "fold", "memcpy", "ratio", "fold's");
    for (int i = 0; i < n_sizes; i++) {
        measured m = {0};
        STRATA_TRY(measure(strategy, sizes[i], &m, err));
        print_one(options, ops, n, sizes[i], &m);
    }
    return STRATA_OK;
}

int bench_devices(const bench_options *options) {
    static const char default_sizes[] = "4096,65536,1048576,16777216,67108864";
    const strategy_flags flags = {
        .name = "mirrored", .devices = options->devices, .cross_device_ops = options->cross_device_ops};
    opened_strategy opened = {0};
    int64_t sizes[MOST_SIZES];
    int n_sizes = 0;
    strata_error err = {0};
    int code = bench_read_sizes(options->sizes ? options->sizes : default_sizes, sizes, MOST_SIZES, &n_sizes);
    if (!code) code = open_strategy(&flags, &options->device, &opened);
    if (code) return code;
    const strata_status status = measure_all(options, opened.strategy, sizes, n_sizes, &err);
    close_strategy(&opened);
    return status ? report(FAILING_RUN, status, &err) : EXIT_OK;
}
