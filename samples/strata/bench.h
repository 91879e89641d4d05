/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of the benchmarks of `strata bench` (bench.c): running on a device, its peak rate, and rates compared with
 * it. */
#ifndef STRATA_SAMPLES_BENCH_H
#define STRATA_SAMPLES_BENCH_H

#include "cli.h"

typedef struct bench_options {
    device_flags device;
    strategy_flags strategy; /* of allreduce: whom --cluster and its like name */
    const char *sizes;
    double seconds;
    int64_t batch, ranks;                     /* ranks 0: the job's, or 2 */
    const char *transport, *algorithm, *peer; /* of allreduce; NULL: tcp, or the job's; by size; none */
    const char *devices, *cross_device_ops;   /* of allreduce between devices; devices NULL: between processes */
    const char *compress;                     /* of allreduce; NULL: none */
    bool mnist, json, tune;
} bench_options;

typedef struct bench {
    bench_options options;
    strata_device *device;
    strata_variable *chains; /* what fma_chain reads */
    strata_graph *chain_graph;
    strata_executable *chain;
    double chain_flops; /* of a run */
    double peak;        /* best GFLOP/s of fma_chain up to now */
    /* Operations and seconds of fma_chain up to now: their quotient is the mean rate, other work on the machine included. */
    double all_chain_flops, all_chain_seconds;
    double rate; /* GFLOP/s of the last product; 0: none yet */
} bench;

/* The result of a measurement: the median and the largest GFLOP/s of the repeats, and the median of the repeats' ratios to the
 * peaks that were measured just before and after. */
typedef struct bench_rates {
    double gflops, best_gflops, paired_ratio;
} bench_rates;

/* Submits `runs` runs, at most as many at a time as there are slots, and waits for the last. */
strata_status bench_run(strata_executable *exe, int64_t runs, double *out_seconds, strata_error *err);
strata_status bench_compile(bench *b, strata_tensor *const *outputs, int n_outputs, strata_executable **out_exe,
                            strata_error *err);
/* n numbers from -scale to scale, the same for the same seed; NULL when there is no memory. Caller frees. */
float *bench_random(int64_t n, double scale, uint32_t seed, strata_error *err);
/* values may be NULL: OUT_OF_MEMORY then. */
strata_status bench_variable(bench *b, strata_shape shape, float *values, strata_variable **out_variable, strata_error *err);
/* The first element of y: an output, so that y is computed but not read back. */
strata_tensor *bench_first_element(strata_tensor *y);
/* Times an executable, one run of which does so many multiplications and additions. */
strata_status bench_time(bench *b, strata_executable *exe, double flops_of_run, bench_rates *out, strata_error *err);

/* The benchmarks; the peak has been measured before. */
strata_status bench_conv2d(bench *b, strata_error *err);

/* Needs no device. Returns the exit code. */
int bench_allreduce(const bench_options *options);
/* "4,1024": bytes, multiples of 4. Returns the exit code, after a message. */
int bench_read_sizes(const char *text, int64_t *sizes, int most, int *out_n);
/* allreduce with --devices. */
int bench_devices(const bench_options *options);

enum {
    BENCH_CHAIN = 8 /* products in one run, so that submitting a run is not what is timed */
};

#endif
