/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products on every device: sizes that are no multiples of a tile, transposes, batches, fused epilogues, and every
 * kernel that the tuner may choose. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernel/lowering.h"
#include "core/base/file.h"
#include "core/op/ops.h"
#include "strata/ops.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/families.h"
#include "tests/conformance/run_case.h"
#include "tests/support/folder.h"

TestSuite(conformance_matmul, .init = test_folder_make, .fini = test_folder_remove);

typedef struct product {
    /* The CPU's kernel divides k into parts from 320 on if a is transposed, otherwise from 1536 on. With k = 1601, fewer than
     * 70 columns fit into local memory. */
    int64_t m, k, n;
    bool big;
} product;
static const product products[] = {{1, 1, 1, false},    {7, 5, 13, false},   {33, 17, 65, false},  {2, 19, 77, false},
                                   {3, 11, 33, false},  {64, 128, 10, true}, {64, 784, 128, true}, {130, 300, 70, true},
                                   {1, 784, 130, true}, {20, 1601, 70, true}};

static strata_tensor *operand(run_case *run, int64_t batch, int64_t rows, int64_t columns, bool transposed, strata_dtype dtype,
                              uint64_t seed) {
    strata_shape shape = {.rank = batch ? 3 : 2, .dims = {batch, rows, columns}};
    if (!batch) shape.dims[0] = rows, shape.dims[1] = columns, shape.dims[2] = 0;
    if (transposed) shape.dims[shape.rank - 1] = rows, shape.dims[shape.rank - 2] = columns;
    return run_case_leaf(run, strata_test_random(dtype, shape, -1, 1, seed), false);
}

static void check(run_case *run, const char *what, strata_dtype dtype, const product *p) {
    int wrong = 0;
    strata_test_result result = run_case_check(run, &wrong);
    cr_expect(result.ok, "%s%s: matmul %s %s %dx%dx%d, output %d: %s", run->device->info.id, conformance_families_text(), what,
              strata_dtype_name(dtype), (int)p->m, (int)p->k, (int)p->n, wrong, result.text);
    run_case_end(run);
}

static void (*test_of_products)(strata_device *device);
static void run_by_each_family(strata_device *device) {
    conformance_families_begin();
    do test_of_products(device);
    while (conformance_families_next("matmul"));
}

/* Runs the test on each device, and there with each family of kernels for products. */
static void run_everywhere(void (*test)(strata_device *device)) {
    test_of_products = test;
    conformance_each_device(&(strata_device_options){.no_tune = true}, run_by_each_family);
}

/* Big products run in f32 alone. */
static bool runs(const product *p, strata_dtype dtype) {
    const unsigned floats = 1u << STRATA_DTYPE_F32 | 1u << STRATA_DTYPE_F16 | 1u << STRATA_DTYPE_BF16;
    return conformance_dtypes(floats) >> dtype & 1 && (!p->big || (!conformance_small() && dtype == STRATA_DTYPE_F32));
}

static void run_transposes(strata_device *device) {
    for (strata_dtype dtype = STRATA_DTYPE_F32; dtype <= STRATA_DTYPE_BF16; dtype++)
        for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
            const product *p = &products[i];
            run_case run;
            if (!runs(p, dtype)) continue;
            run_case_begin(&run, device);
            for (int flags = 0; flags < 4; flags++) {
                bool ta = flags & 1, tb = flags & 2;
                strata_tensor *a = operand(&run, 0, p->m, p->k, ta, dtype, 1), *b = operand(&run, 0, p->k, p->n, tb, dtype, 2);
                run_case_output(&run, strata_matmul(a, b, ta, tb), strata_test_tolerance_of(dtype, p->k));
            }
            check(&run, "of every transpose", dtype, p);
        }
}

Test(conformance_matmul, every_transpose_and_tail) {
    run_everywhere(run_transposes);
}

static void run_batches(strata_device *device) {
    static const product p = {9, 17, 10, false};
    const strata_test_tolerance tolerance = strata_test_tolerance_of(STRATA_DTYPE_F32, p.k);
    run_case run;
    run_case_begin(&run, device);
    for (int flags = 0; flags < 4; flags++) {
        bool ta = flags & 1, tb = flags & 2;
        strata_tensor *a = operand(&run, 3, p.m, p.k, ta, STRATA_DTYPE_F32, 1);
        strata_tensor *b = operand(&run, 3, p.k, p.n, tb, STRATA_DTYPE_F32, 2);
        strata_tensor *one_a = operand(&run, 0, p.m, p.k, ta, STRATA_DTYPE_F32, 3);
        strata_tensor *one_b = operand(&run, 0, p.k, p.n, tb, STRATA_DTYPE_F32, 4);
        run_case_output(&run, strata_matmul(a, b, ta, tb), tolerance);
        run_case_output(&run, strata_matmul(one_a, b, ta, tb), tolerance);
        run_case_output(&run, strata_matmul(a, one_b, ta, tb), tolerance);
    }
    check(&run, "in batches", STRATA_DTYPE_F32, &p);
}

Test(conformance_matmul, batches_of_either_operand) {
    run_everywhere(run_batches);
}

/* ---- epilogues: a product with fused ops, compared with the separate nodes ---- */
static const struct {
    const strata_op *unary, *gradient; /* NULL: none */
    bool bias, residual;
} epilogues[] = {
    {NULL, NULL, true, false},
    {&strata_op_relu, NULL, true, false},
    {&strata_op_tanh, NULL, true, false},
    {&strata_op_sigmoid, NULL, false, false},
    {NULL, NULL, false, true},
    {NULL, &strata_op_relu_grad, false, false},
    {NULL, &strata_op_tanh_grad, false, false},
    {NULL, &strata_op_sigmoid_grad, true, false},
    {&strata_op_relu, NULL, true, true},
};

static void run_epilogues(strata_device *device) {
    enum { N = sizeof epilogues / sizeof *epilogues };
    static const product shapes[] = {{7, 5, 13, false}, {33, 300, 66, true}};
    for (strata_dtype dtype = STRATA_DTYPE_F32; dtype <= STRATA_DTYPE_BF16; dtype++)
        for (size_t s = 0; s < 2; s++) {
            const product *p = &shapes[s];
            run_case run;
            if (!runs(p, dtype)) continue;
            run_case_begin(&run, device);
            run.fusion = true;
            strata_tensor *a = operand(&run, 0, p->m, p->k, false, dtype, 1),
                          *b = operand(&run, 0, p->k, p->n, false, dtype, 2);
            strata_tensor *bias = run_case_leaf(&run, strata_test_random(dtype, STRATA_SHAPE(p->n), -1, 1, 3), false);
            strata_tensor *aux = operand(&run, 0, p->m, p->n, false, dtype, 4);
            for (int i = 0; i < N; i++) {
                /* Each epilogue has a product of its own, because only one of them can be fused with a product. */
                strata_tensor *y = strata_matmul(a, strata_mul(b, strata_scalar(run.graph, dtype, 1 + 0.25 * i)), false, false);
                if (epilogues[i].bias) y = strata_add(y, bias);
                if (epilogues[i].unary) y = strata_node(NULL, epilogues[i].unary, 1, &y, NULL);
                if (epilogues[i].residual) y = strata_add(aux, y);
                if (epilogues[i].gradient) y = strata_node(NULL, epilogues[i].gradient, 2, (strata_tensor *[]){y, aux}, NULL);
                strata_test_tolerance tolerance = strata_test_tolerance_of(dtype, 9 * p->k);
                /* A fused product is rounded once. The separate nodes round f16 and bf16 after each op, and their results
                 * may then cancel. */
                if (dtype != STRATA_DTYPE_F32) tolerance.absolute += 4 * tolerance.relative;
                run_case_output(&run, y, tolerance);
            }
            check(&run, "with epilogues", dtype, p);
        }
}

Test(conformance_matmul, fused_epilogues) {
    run_everywhere(run_epilogues);
}

/* ---- the candidates of the tuner ---- */

/* Returns the text of the only file in the folder whose name ends in ".tune", and its path. NULL: there is none, because
 * the device has no tuner. */
static char *read_tuning(const char *id, char path[512]) {
    char command[700];
    snprintf(command, sizeof command, "find %s -name '*.tune'", test_path(id));
    FILE *find = popen(command, "r");
    cr_assert_not_null(find);
    char *line = fgets(path, 512, find);
    pclose(find);
    if (!line) return NULL;
    path[strcspn(path, "\n")] = '\0';
    unsigned char *text = NULL;
    size_t n = 0;
    strata_error err = {0};
    cr_assert_eq(strata_file_read(path, 1 << 20, &text, &n, &err), STRATA_OK, "%s", err.message);
    return (char *)text;
}

/* Writes the file again with this winner in every line "key<tab>winner<tab>us". */
static void choose_winner(const char *path, const char *text, const char *winner) {
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n"), key = strcspn(line, "\t\n");
        if (key < n)
            fprintf(file, "%.*s\t%s\t100.00\n", (int)key, line, winner);
        else
            fprintf(file, "%.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
    cr_assert_eq(fclose(file), 0);
}

typedef strata_tensor *build_node(run_case *run);

/* The product is large enough that every tile is timed on a CPU and k is divided into parts. A simulator would take minutes
 * for it. */
static strata_tensor *build_matmul(run_case *run) {
    const int64_t k = conformance_small() ? 129 : 1650;
    strata_tensor *a = operand(run, 0, 65, k, false, STRATA_DTYPE_F32, 1);
    return strata_matmul(a, operand(run, 0, k, 300, true, STRATA_DTYPE_F32, 2), false, true);
}

/* A product of f16, which uses matrix units where the device has them. */
static strata_tensor *build_halves(run_case *run) {
    strata_tensor *a = operand(run, 0, 65, 650, false, STRATA_DTYPE_F16, 1);
    return strata_matmul(a, operand(run, 0, 650, 300, true, STRATA_DTYPE_F16, 2), false, true);
}

/* which: 0 the convolution, 1 its gradient by the input, 2 its gradient by the filter. */
static strata_tensor *convolution(run_case *run, int which, strata_dtype dtype) {
    strata_tensor *x = strata_reshape(operand(run, 0, 2 * 9 * 15, 40, false, dtype, 1), STRATA_SHAPE(2, 9, 15, 40));
    strata_tensor *filter = strata_reshape(operand(run, 0, 9 * 40, 48, false, dtype, 2), STRATA_SHAPE(3, 3, 40, 48));
    strata_tensor *y = strata_conv2d(x, filter, (strata_conv2d_window){.stride = {2, 1}, .padding = STRATA_PADDING_SAME});
    strata_tensor *dx[2] = {NULL, NULL};
    if (which == 0) return y;
    strata_gradients(y, y, (strata_tensor *[]){x, filter}, 2, dx);
    return dx[which - 1];
}
#define CONVOLUTION(name, which, dtype)                 \
    static strata_tensor *build_##name(run_case *run) { \
        return convolution(run, which, dtype);          \
    }
CONVOLUTION(conv2d, 0, STRATA_DTYPE_F32)
CONVOLUTION(input_grad, 1, STRATA_DTYPE_F32)
CONVOLUTION(filter_grad, 2, STRATA_DTYPE_F32)
CONVOLUTION(conv2d_of_halves, 0, STRATA_DTYPE_F16)
CONVOLUTION(input_grad_of_halves, 1, STRATA_DTYPE_F16)
CONVOLUTION(filter_grad_of_halves, 2, STRATA_DTYPE_F16)

/* Returns the node's value, computed on a newly opened device. */
static strata_array value_on(const char *id, build_node *build) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s", test_path(id));
    strata_device *device = conformance_open(id, &(strata_device_options){.cache_dir = folder});
    run_case run;
    strata_array value;
    strata_error err = {0};
    run_case_begin(&run, device);
    run_case_output(&run, build(&run), (strata_test_tolerance){0});
    cr_assert_eq(run_case_on_device(&run, &value, &err), STRATA_OK, "%s: %s", id, err.message);
    run_case_end(&run);
    conformance_close(device);
    return value;
}

/* Writes those candidates of the node's kernel family on this device that do not change bits. Returns their number. */
static int candidate_names(const char *id, build_node *build, strata_candidate *out) {
    strata_device *device = conformance_open(id, &(strata_device_options){.no_tune = true});
    const strata_kernel_limits *limits = conformance_limits(device);
    run_case run;
    int n = 0;
    run_case_begin(&run, device);
    strata_tensor *y = build(&run);
    for (int i = 0; limits && strata_families[i] && !n; i++)
        if (!strcmp(strata_families[i]->op, y->op->name) && strata_families[i]->fits(limits, y))
            n = strata_family_candidates(limits, strata_families[i], y, out);
    run_case_end(&run);
    conformance_close(device);
    return n;
}

/* Computes the node with each candidate. All must give the same bits. Returns how many candidates were used. */
static int try_candidates(const char *id, build_node *build) {
    strata_candidate candidates[STRATA_CANDIDATES];
    int n = candidate_names(id, build, candidates), tried = 0;
    if (n < 2) return 0;
    strata_array want = value_on(id, build);
    char path[512];
    char *text = read_tuning(id, path);
    cr_assert(text && strchr(text, '\t'), "%s: there are %d candidates, but nothing was tuned", id, n);
    for (int c = 0; c < n; c++) {
        if (!candidates[c].exact) continue;
        choose_winner(path, text, candidates[c].name);
        strata_array got = value_on(id, build);
        strata_test_result result = strata_test_same(&got, &want);
        cr_expect(result.ok, "%s: %s: %s", id, candidates[c].name, result.text);
        strata_array_finish(&got);
        tried++;
    }
    strata_array_finish(&want);
    free(text);
    char command[700];
    snprintf(command, sizeof command, "rm -rf %s", test_path(id));
    cr_assert_eq(system(command), 0);
    return tried;
}

static void try_on_every_device(build_node *const *builds, int n_builds) {
    char ids[32][32];
    int n = conformance_device_ids(ids, 32), tried = 0;
    for (int b = 0; b < n_builds; b++)
        for (int i = 0; i < n; i++) tried += try_candidates(ids[i], builds[b]);
    if (!tried) cr_skip_test("no device here has more than one kernel for it");
}

Test(conformance_matmul, the_tuners_choice_does_not_change_a_bit) {
    try_on_every_device((build_node *const[]){build_matmul, build_halves}, conformance_small() ? 1 : 2);
}

Test(conformance_matmul, nor_that_for_convolutions) {
    static build_node *const builds[] = {build_conv2d,           build_input_grad,           build_filter_grad,
                                         build_conv2d_of_halves, build_input_grad_of_halves, build_filter_grad_of_halves};
    if (conformance_small()) cr_skip_test("its products take a simulator minutes");
    try_on_every_device(builds, sizeof builds / sizeof *builds);
}
