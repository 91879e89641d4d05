/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of the benchmarks of `strata bench` (bench.c): running on a device, its peak rate, and rates compared with
 * it. */
#ifndef STRATA_SAMPLES_BENCH_H
#define STRATA_SAMPLES_BENCH_H

#include "cli.h"

typedef struct bench_options {
    device_flags device;
    strategy_flags strategy; /* for allreduce: --cluster and other options */
    const char *sizes;
    double seconds;
    int64_t batch, ranks; /* ranks 0: as many as the job has, or 2 */
    /* For allreduce. NULL: tcp or the job's transport; chosen by size; no peer. */
    const char *transport, *algorithm, *peer;
    /* For allreduce between devices. devices NULL: between processes. */
    const char *devices, *cross_device_ops;
    const char *compress; /* for allreduce; NULL: none */
    bool mnist, json, tune;
} bench_options;

typedef struct bench {
    bench_options options;
    strata_device *device;
    strata_variable *chains; /* the input of fma_chain */
    strata_graph *chain_graph;
    strata_executable *chain;
    double chain_flops; /* the operations of a run of fma_chain */
    double peak;        /* the highest GFLOP/s of fma_chain so far */
    /* Operations and seconds of fma_chain so far. Their quotient is the mean rate, which other work on the machine lowers. */
    double all_chain_flops, all_chain_seconds;
    double rate; /* GFLOP/s of the last product; 0: there was none yet */
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
/* Makes n random numbers from -scale to scale, which depend only on the seed. The caller frees them. Returns NULL if there is
 * no memory. */
float *bench_random(int64_t n, double scale, uint32_t seed, strata_error *err);
/* Creates a variable. Fails: OUT_OF_MEMORY if values is NULL. */
strata_status bench_variable(bench *b, strata_shape shape, float *values, strata_variable **out_variable, strata_error *err);
/* The first element of y. If it is the only output, all of y is computed, but only this element is read back. */
strata_tensor *bench_first_element(strata_tensor *y);
/* Measures an executable. flops_of_run: the multiplications and additions of one run. */
strata_status bench_time(bench *b, strata_executable *exe, double flops_of_run, bench_rates *out, strata_error *err);

/* The benchmarks. The peak must have been measured before. */
strata_status bench_conv2d(bench *b, strata_error *err);

/* The benchmark allreduce, which needs no device. Returns the exit code. */
int bench_allreduce(const bench_options *options);
/* Reads a list of sizes in bytes, which must be multiples of 4, for example "4,1024". Returns the exit code, after a
 * message. */
int bench_read_sizes(const char *text, int64_t *sizes, int most, int *out_n);
/* The benchmark allreduce with --devices. */
int bench_devices(const bench_options *options);

enum {
    BENCH_CHAIN = 8 /* products in one run, so that submitting a run is not what is timed */
};

#endif
