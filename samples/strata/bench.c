/* SPDX-License-Identifier: Apache-2.0
 *
 * strata bench matmul, conv2d: measures how fast a device multiplies matrices and convolves (bench_conv2d.c), compared with the
 * peak rate of its multiply-add units (fma_chain). A product is checked against a sum in double before it is timed. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace_read.h"

enum {
    CHAIN = BENCH_CHAIN,
    REPEATS = 7,             /* the median of so many repeats is reported */
    SLOTS = 3,               /* runs that are in the device's queue at a time */
    CHECKED = 16,            /* so many elements of a product are checked */
    PEAK_ELEMENTS = 1 << 18, /* the elements of the chains */
    MOST_PEAK_ELEMENTS = 1 << 23,
    PEAK_STEPS = 4096,
    COPY_ELEMENTS = 1 << 23, /* f32, 32 MiB: larger than the caches */
    MOST_SIZE = 32768
};
static const double MOST_PRODUCT_SECONDS = 10, /* a larger product is skipped */
    LONG_RUN_SECONDS = 1,                      /* a run of CHAIN products that would take longer has fewer products */
    LEAST_PEAK_SECONDS = 5e-4, /* a shorter run of the chains is made longer, since the time to submit it would count */
    PEAK_SECONDS = 0.02;       /* time for measuring the peak again, between repeats */

/* A product of a, (m,k) or with transpose_a (k,m), and b, (k,n) or with transpose_b (n,k). */
typedef struct shape {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
} shape;

static const char default_sizes[] = "64,128,192,256,384,512,768,1024,1152,1536,2048";
/* The products of a training step of the model 784-128-10 with batch 64: forward, gradients of the weights, gradient of the
 * hidden layer. */
static const shape mnist_shapes[] = {{64, 128, 784, false, false},
                                     {64, 10, 128, false, false},
                                     {784, 128, 64, true, false},
                                     {128, 10, 64, true, false},
                                     {64, 128, 10, false, true}};

static const option_row rows[] = {
    DEVICE_OPTION_ROWS(bench_options, device),
    {"sizes", "N,N,...", "sizes of the square products to time (64 to 2048); with allreduce: numbers of bytes", OPTION_TEXT,
     offsetof(bench_options, sizes), 0, 0},
    {"batch", "N", "conv2d: pictures per batch (64)", OPTION_INT, offsetof(bench_options, batch), 1, 65536},
    {"mnist", NULL, "also time the five products of an MNIST training step", OPTION_FLAG, offsetof(bench_options, mnist), 0, 0},
    {"seconds", "S", "time for each shape (1); allreduce: the longest time for each size", OPTION_NUMBER,
     offsetof(bench_options, seconds), 0.01, 3600},
    {"ranks", "N", "allreduce: processes on this machine (the workers of the job, or 2)", OPTION_INT,
     offsetof(bench_options, ranks), 1, 64},
    CLUSTER_OPTION_ROWS(bench_options, strategy),
    {"transport", "NAME", "allreduce: tcp, shm or inproc, which means threads (tcp; in a job that of its workers)", OPTION_TEXT,
     offsetof(bench_options, transport), 0, 0},
    {"algorithm", "NAME", "allreduce: one_shot, two_shot, ring or halving_doubling (chosen by size)", OPTION_TEXT,
     offsetof(bench_options, algorithm), 0, 0},
    {"tune", NULL, "allreduce: try all algorithms, and store the fastest as the default for this machine", OPTION_FLAG,
     offsetof(bench_options, tune), 0, 0},
    {"compress", "bf16|f16", "allreduce: the type in which f32 is sent (f32)", OPTION_TEXT, offsetof(bench_options, compress),
     0, 0},
    {"engine", "builtin|mpi", "allreduce between the workers of a job that mpirun started: who adds up (builtin)", OPTION_TEXT,
     offsetof(bench_options, strategy.engine), 0, 0},
    {"peer", "NAME", "allreduce: also measure gloo or mpi, for comparison", OPTION_TEXT, offsetof(bench_options, peer), 0, 0},
    {"devices", "A,B", "allreduce: between devices of this process instead, compared with the speed of copies", OPTION_TEXT,
     offsetof(bench_options, devices), 0, 0},
    {"cross-device-ops", "NAME", "with --devices: host, tree or device (host)", OPTION_TEXT,
     offsetof(bench_options, cross_device_ops), 0, 0},
    {"json", NULL, "print one line of JSON for each shape", OPTION_FLAG, offsetof(bench_options, json), 0, 0},
    {0}};

/* ---- running ---- */

strata_status bench_run(strata_executable *exe, int64_t runs, double *out_seconds, strata_error *err) {
    double begin = now_seconds();
    int slot = 0;
    for (int64_t i = 0; i < runs; i++) {
        STRATA_TRY(strata_executable_acquire(exe, &slot, err));
        STRATA_TRY(strata_executable_submit(exe, slot, err));
    }
    STRATA_TRY(strata_executable_wait(exe, slot, err)); /* runs end in the order of submission */
    *out_seconds = now_seconds() - begin;
    return STRATA_OK;
}

strata_status bench_compile(bench *b, strata_tensor *const *outputs, int n_outputs, strata_executable **out_exe,
                            strata_error *err) {
    const strata_executable_options opts = {.n_slots = SLOTS};
    return strata_executable_create(b->device, outputs, n_outputs, NULL, 0, &opts, out_exe, err);
}

strata_tensor *bench_first_element(strata_tensor *y) {
    return strata_slice(y, (const int64_t[STRATA_MAX_RANK]){0}, (const int64_t[STRATA_MAX_RANK]){1, 1, 1, 1, 1, 1, 1, 1});
}

float *bench_random(int64_t n, double scale, uint32_t seed, strata_error *err) {
    float *values = malloc((size_t)n * sizeof *values);
    if (!values) strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %lld numbers on the host", (long long)n);
    for (int64_t i = 0; values && i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(((double)(seed >> 8) / (1 << 23) - 1) * scale);
    }
    return values;
}

strata_status bench_variable(bench *b, strata_shape shape, float *values, strata_variable **out_variable, strata_error *err) {
    if (!values) return STRATA_OUT_OF_MEMORY; /* bench_random has set the error */
    const strata_array array = strata_array_view(STRATA_DTYPE_F32, shape, values);
    STRATA_TRY(strata_variable_create(b->device, "operand", array.dtype, array.shape, out_variable, err));
    return strata_variable_set(*out_variable, &array, err);
}

/* ---- the peak ---- */

static void close_peak(bench *b) {
    strata_executable_destroy(b->chain);
    strata_graph_destroy(b->chain_graph);
    strata_variable_destroy(b->chains);
    b->chain = NULL;
    b->chain_graph = NULL;
    b->chains = NULL;
}

static strata_status open_chains(bench *b, int64_t elements, strata_error *err) {
    float *values = bench_random(elements, 1, 1, err);
    strata_status status = bench_variable(b, STRATA_SHAPE(1, elements), values, &b->chains, err);
    free(values);
    STRATA_TRY(status);
    b->chain_flops = 2.0 * (double)elements * PEAK_STEPS;
    STRATA_TRY(strata_graph_create(&b->chain_graph, err));
    strata_tensor *y = bench_first_element(strata_fma_chain(strata_variable_read(b->chain_graph, b->chains), PEAK_STEPS));
    return bench_compile(b, &y, 1, &b->chain, err);
}

static strata_status open_peak(bench *b, strata_error *err) {
    for (int64_t elements = PEAK_ELEMENTS;; elements *= 8) {
        double seconds;
        STRATA_TRY(open_chains(b, elements, err));
        STRATA_TRY(bench_run(b->chain, 1, &seconds, err)); /* the first run is not like the others */
        STRATA_TRY(bench_run(b->chain, 1, &seconds, err));
        if (seconds >= LEAST_PEAK_SECONDS || elements * 8 > MOST_PEAK_ELEMENTS) return STRATA_OK;
        close_peak(b);
    }
}

/* Measures the peak again, *out_rate. The highest rate is stored, since other work on the machine can only lower it. */
static strata_status measure_peak(bench *b, double seconds, double *out_rate, strata_error *err) {
    double spent = 0, took;
    *out_rate = 0;
    for (int64_t runs = 1; spent < seconds; spent += took) {
        STRATA_TRY(bench_run(b->chain, runs, &took, err));
        double rate = (double)runs * b->chain_flops / took * 1e-9;
        if (rate > *out_rate) *out_rate = rate;
        b->all_chain_flops += (double)runs * b->chain_flops;
        b->all_chain_seconds += took;
        if (took < PEAK_SECONDS) runs *= 2;
    }
    if (*out_rate > b->peak) b->peak = *out_rate;
    return STRATA_OK;
}

/* Measures copies from one variable to another, in GB/s. Each byte is read and written once. */
static strata_status measure_copies(bench *b, double seconds, double *out_rate, strata_error *err) {
    strata_variable *from = NULL, *to = NULL;
    strata_graph *graph = NULL;
    strata_executable *copy = NULL;
    float *values = bench_random(COPY_ELEMENTS, 1, 1, err);
    double spent = 0, took = 0;
    strata_status status = bench_variable(b, STRATA_SHAPE(COPY_ELEMENTS), values, &from, err);
    if (!status) status = bench_variable(b, STRATA_SHAPE(COPY_ELEMENTS), values, &to, err);
    free(values);
    if (!status) status = strata_graph_create(&graph, err);
    if (!status) {
        strata_tensor *update = strata_assign(strata_variable_read(graph, to), strata_variable_read(graph, from));
        const strata_executable_options opts = {.n_slots = SLOTS};
        status = strata_executable_create(b->device, NULL, 0, &update, 1, &opts, &copy, err);
    }
    if (!status) status = bench_run(copy, 1, &took, err); /* the first run is not like the others */
    for (*out_rate = 0; !status && spent < seconds; spent += took) {
        status = bench_run(copy, SLOTS, &took, err);
        const double rate = SLOTS * 2.0 * sizeof(float) * COPY_ELEMENTS / took * 1e-9;
        if (!status && rate > *out_rate) *out_rate = rate;
    }
    strata_executable_destroy(copy);
    strata_graph_destroy(graph);
    strata_variable_destroy(to);
    strata_variable_destroy(from);
    return status;
}

strata_status trace_measure_peaks(strata_device *device, trace_peaks *out_peaks, strata_error *err) {
    static const double seconds = 0.2;
    bench b = {.device = device};
    strata_status status = open_peak(&b, err);
    if (!status) status = measure_peak(&b, seconds, &out_peaks->gflops, err);
    if (!status) status = measure_copies(&b, seconds, &out_peaks->gbytes, err);
    close_peak(&b);
    return status;
}

/* ---- one shape ---- */

typedef struct product {
    shape shape;
    float *a_values, *b_values;
    strata_variable *a[CHAIN], *b;
    strata_graph *graph;
    strata_executable *one, *many; /* a single product, whose result is read; several products */
    int chain;
    bench_rates rates;
} product;

static void product_finish(product *p) {
    strata_executable_destroy(p->one);
    strata_executable_destroy(p->many);
    strata_graph_destroy(p->graph);
    for (int i = 0; i < CHAIN; i++) strata_variable_destroy(p->a[i]);
    strata_variable_destroy(p->b);
    free(p->a_values);
    free(p->b_values);
}

static double flops_of(const shape *s) {
    return 2.0 * (double)s->m * (double)s->n * (double)s->k;
}

static bool is_square(const shape *s) {
    return s->m == s->n && s->n == s->k && !s->transpose_a && !s->transpose_b;
}

/* Creates the operands and the executable of a single product. b is scaled so that the numbers of a chain c = c b stay
 * bounded. */
static strata_status open_product(bench *b, product *p, strata_error *err) {
    const shape *s = &p->shape;
    p->a_values = bench_random(s->m * s->k, 1, 2, err);
    STRATA_TRY(bench_variable(b, STRATA_SHAPE(s->transpose_a ? s->k : s->m, s->transpose_a ? s->m : s->k), p->a_values,
                              &p->a[0], err));
    p->b_values = bench_random(s->k * s->n, 1 / sqrt((double)s->k), 3, err);
    STRATA_TRY(
        bench_variable(b, STRATA_SHAPE(s->transpose_b ? s->n : s->k, s->transpose_b ? s->k : s->n), p->b_values, &p->b, err));
    STRATA_TRY(strata_graph_create(&p->graph, err));
    strata_tensor *c = strata_matmul(strata_variable_read(p->graph, p->a[0]), strata_variable_read(p->graph, p->b),
                                     s->transpose_a, s->transpose_b);
    return bench_compile(b, &c, 1, &p->one, err);
}

/* Computes c[row, column] of the product in double. *out_tolerance: the largest error of a sum over k in f32. */
static double reference(const product *p, int64_t row, int64_t column, double *out_tolerance) {
    const shape *s = &p->shape;
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < s->k; k++) {
        double term = (double)p->a_values[s->transpose_a ? k * s->m + row : row * s->k + k] *
                      (double)p->b_values[s->transpose_b ? column * s->k + k : k * s->n + column];
        sum += term;
        magnitude += fabs(term);
    }
    *out_tolerance = magnitude * (double)s->k * ldexp(1, -24) + ldexp(1, -126);
    return sum;
}

/* Runs a single product, in *out_seconds, and compares some of its elements with sums in double. */
static strata_status check(product *p, double *out_seconds, strata_error *err) {
    const shape *s = &p->shape;
    STRATA_TRY(bench_run(p->one, 1, out_seconds, err));
    const float *c = strata_executable_output(p->one, 0, 0);
    for (int64_t i = 0; i < CHECKED; i++) {
        double tolerance;
        int64_t row = i * (s->m - 1) / (CHECKED - 1), column = (i * 7 % CHECKED) * (s->n - 1) / (CHECKED - 1);
        double got = (double)c[row * s->n + column], want = reference(p, row, column, &tolerance);
        if (!(fabs(got - want) <= tolerance))
            return strata_fail(err, STRATA_INTERNAL, "%lld x %lld x %lld: element (%lld, %lld) is %.9g; it should be %.9g",
                               (long long)s->m, (long long)s->n, (long long)s->k, (long long)row, (long long)column, got, want);
    }
    return STRATA_OK;
}

/* Compiles the program that is timed. For square matrices it computes c = c b repeatedly. For other shapes it multiplies
 * several matrices a with equal values in different memory, since equal products would be computed only once. */
static strata_status compile_many(bench *b, product *p, strata_error *err) {
    const shape *s = &p->shape;
    strata_tensor *c[CHAIN];
    strata_tensor *by = strata_variable_read(p->graph, p->b);
    if (is_square(s)) {
        c[0] = strata_variable_read(p->graph, p->a[0]);
        for (int i = 0; i < p->chain; i++) c[0] = strata_matmul(c[0], by, false, false);
        c[0] = bench_first_element(c[0]);
        return bench_compile(b, c, 1, &p->many, err);
    }
    for (int i = 0; i < p->chain; i++) {
        if (i)
            STRATA_TRY(bench_variable(b, STRATA_SHAPE(s->transpose_a ? s->k : s->m, s->transpose_a ? s->m : s->k), p->a_values,
                                      &p->a[i], err));
        c[i] = strata_matmul(strata_variable_read(p->graph, p->a[i]), by, s->transpose_a, s->transpose_b);
    }
    return bench_compile(b, c, p->chain, &p->many, err);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

strata_status bench_time(bench *b, strata_executable *exe, double flops_of_run, bench_rates *out, strata_error *err) {
    const double a_repeat = b->options.seconds / REPEATS, a_run = flops_of_run * 1e-9;
    double rates[REPEATS], ratios[REPEATS], seconds, before, after;
    STRATA_TRY(bench_run(exe, 1, &seconds, err)); /* the first run is not like the others */
    STRATA_TRY(bench_run(exe, 1, &seconds, err));
    int64_t runs = (int64_t)(a_repeat / seconds) + 1;
    STRATA_TRY(measure_peak(b, PEAK_SECONDS, &before, err));
    for (int i = 0; i < REPEATS; i++, before = after) { /* the peak is measured again between the repeats */
        STRATA_TRY(bench_run(exe, runs, &seconds, err));
        STRATA_TRY(measure_peak(b, PEAK_SECONDS, &after, err));
        rates[i] = (double)runs * a_run / seconds;
        ratios[i] = 2 * rates[i] / (before + after);
    }
    qsort(rates, REPEATS, sizeof *rates, ascending);
    qsort(ratios, REPEATS, sizeof *ratios, ascending);
    *out = (bench_rates){rates[REPEATS / 2], rates[REPEATS - 1], ratios[REPEATS / 2]};
    return STRATA_OK;
}

static void print_product(const bench *b, const product *p) {
    const shape *s = &p->shape;
    const char *id = strata_device_get_info(b->device)->id;
    if (b->options.json) {
        printf("{\"device\":");
        print_json_string(id);
        printf(",\"m\":%lld,\"n\":%lld,\"k\":%lld,\"transpose_a\":%s,\"transpose_b\":%s,\"gflops\":%.3f", (long long)s->m,
               (long long)s->n, (long long)s->k, s->transpose_a ? "true" : "false", s->transpose_b ? "true" : "false",
               p->rates.gflops);
        printf(",\"best_gflops\":%.3f,\"peak_gflops\":%.3f,\"ratio\":%.4f", p->rates.best_gflops, b->peak,
               p->rates.gflops / b->peak);
        printf(",\"mean_peak_gflops\":%.3f,\"paired_ratio\":%.4f}\n", b->all_chain_flops / b->all_chain_seconds * 1e-9,
               p->rates.paired_ratio);
    } else {
        printf("%6lld %6lld %6lld  %c%c %10.1f %10.1f %7.3f %8.3f\n", (long long)s->m, (long long)s->n, (long long)s->k,
               s->transpose_a ? 'T' : 'N', s->transpose_b ? 'T' : 'N', p->rates.gflops, p->rates.best_gflops,
               p->rates.gflops / b->peak, p->rates.paired_ratio);
    }
    fflush(stdout);
}

static strata_status bench_shape(bench *b, const shape *s, strata_error *err) {
    double expected = b->rate > 0 ? flops_of(s) * 1e-9 / b->rate : 0, seconds;
    if (expected > MOST_PRODUCT_SECONDS) {
        fprintf(stderr, "strata: %lld x %lld x %lld is skipped: one product would take about %.0f s\n", (long long)s->m,
                (long long)s->n, (long long)s->k, expected);
        return STRATA_OK;
    }
    product p = {.shape = *s};
    strata_status status = open_product(b, &p, err);
    if (!status) status = check(&p, &seconds, err);
    if (!status) {
        p.chain = seconds * CHAIN > LONG_RUN_SECONDS ? (int)(LONG_RUN_SECONDS / seconds) + 1 : CHAIN;
        status = compile_many(b, &p, err);
    }
    if (!status) status = bench_time(b, p.many, flops_of(&p.shape) * p.chain, &p.rates, err);
    if (!status) {
        b->rate = p.rates.gflops;
        print_product(b, &p);
    }
    product_finish(&p);
    return status;
}

/* ---- the command ---- */

/* Reads the next size of a list. Returns 0 at the end, -1 if it is not a size. */
static int64_t next_size(const char **list) {
    char *end = NULL;
    if (!**list) return 0;
    long long size = strtoll(*list, &end, 10);
    if (end == *list || size < 1 || size > MOST_SIZE || (*end && (*end != ',' || !end[1]))) return -1;
    *list = *end ? end + 1 : end;
    return size;
}

static int check_sizes(const char *list) {
    const char *rest = list;
    int64_t size = 1;
    while (size > 0) size = next_size(&rest);
    if (!size) return EXIT_OK;
    return usage_error("--sizes is \"%s\"; it must be whole numbers from 1 to %d with commas between them", list, MOST_SIZE);
}

static strata_status bench_matmul(bench *b, strata_error *err) {
    const char *sizes = b->options.sizes;
    if (!b->options.json) {
        printf("%6s %6s %6s     %10s %10s %7s %8s\n", "m", "n", "k", "GFLOP/s", "best", "of peak", "paired");
    }
    for (int64_t n; (n = next_size(&sizes)) > 0;) STRATA_TRY(bench_shape(b, &(shape){n, n, n, false, false}, err));
    const size_t n_mnist = sizeof mnist_shapes / sizeof *mnist_shapes;
    if (b->options.mnist && !b->options.json) printf("products of an MNIST training step (784-128-10, batch 64)\n");
    for (size_t i = 0; b->options.mnist && i < n_mnist; i++) STRATA_TRY(bench_shape(b, &mnist_shapes[i], err));
    return STRATA_OK;
}

static const struct {
    const char *name;
    strata_status (*run)(bench *b, strata_error *err);
} benchmarks[] = {{"matmul", bench_matmul}, {"conv2d", bench_conv2d}};
enum { BENCHMARKS = sizeof benchmarks / sizeof benchmarks[0] };

/* Measures the peak, with which the other measurements are compared, and then runs a benchmark. */
static strata_status run_benchmark(bench *b, int which, strata_error *err) {
    double rate;
    STRATA_TRY(open_peak(b, err));
    STRATA_TRY(measure_peak(b, b->options.seconds, &rate, err));
    const strata_device_info *info = strata_device_get_info(b->device);
    if (!b->options.json) printf("%s (%s): multiply-adds alone reach %.1f GFLOP/s\n", info->id, info->name, b->peak);
    STRATA_TRY(benchmarks[which].run(b, err));
    if (!b->options.json) printf("peak over the whole run: %.1f GFLOP/s\n", b->peak);
    return STRATA_OK;
}

static int run(const command *command, int argc, char **argv) {
    bench b = {.options = {.batch = 64}};
    const char *what = NULL;
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &b.options, &what, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    if (!strcmp(what, "allreduce")) return b.options.devices ? bench_devices(&b.options) : bench_allreduce(&b.options);
    if (!b.options.sizes) b.options.sizes = default_sizes;
    if (b.options.seconds == 0) b.options.seconds = 1;
    int which = 0;
    while (which < BENCHMARKS && strcmp(what, benchmarks[which].name) != 0) which++;
    if (which == BENCHMARKS) return usage_error("there is no benchmark \"%s\"; there are: matmul, conv2d, allreduce", what);
    code = check_sizes(b.options.sizes);
    if (!code) code = open_device(&b.options.device, &b.device);
    if (code) return code;
    strata_error err = {0};
    strata_status status = run_benchmark(&b, which, &err);
    if (status) code = report(FAILING_RUN, status, &err);
    close_peak(&b);
    strata_device_close(b.device);
    return code;
}

const command command_bench = {
    .name = "bench",
    .arguments = "matmul|conv2d|allreduce",
    .summary = "measure a device (products of matrices and convolutions, compared with its peak), or sums over processes",
    .details =
        "GFLOP/s is the median of 7 repeats, best the fastest of them; of peak compares the median with the best that "
        "fma_chain\n"
        "reached up to then, paired each repeat with what it reached just before and after (a clock that changes is in "
        "neither)\n"
        "allreduce sums f32 over processes of this machine: the time of the slowest of them, and of a peer in the same run; "
        "where --cluster\n"
        "or the environment names a job (strata launch --hosts a,b -- strata bench allreduce) and --ranks is not given, over "
        "its workers,\n"
        "and rank 0 prints. The peer gloo\n"
        "is torch of $STRATA_BENCH_PYTHON (default python3); mpi is this command over --engine mpi, started "
        "by mpirun,\n"
        "or $STRATA_BENCH_MPI, a command to which sizes are added and whose lines end in \"BYTES B median X us min Y us\"\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .run = run,
};
