/* SPDX-License-Identifier: Apache-2.0
 *
 * The shapes that accelerators have, for `strata plugin-check`: tiles of 128 and 256 that are filled and that are not, matrices
 * of 4096 x 4096, long sums. They are made from the instances of the conformance suite, whose shapes are small.
 *
 * Products of matrices are checked exactly. Their operands are whole numbers: one operand has as many bits as an element keeps,
 * the other is -1, 0 or 1, and all sums are below 2^24. So every order of addition gives the same sum in f32, and operands or
 * sums that have fewer bits than they should give another one. All elements are compared at the cost of reading them: with
 * random weights w, a product C = A B has C w = A (B w), computed in whole numbers modulo 2^64 (Freivalds 1977). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/plugin/plugin.h"
#include "core/base/clock.h"
#include "core/op/ops.h"
#include "strata/executable.h"
#include "strata/ops.h"
#include "tests/conformance/plugin/cases.h"
#include "tests/support/eval.h"

bool has_time(const checker *c) {
    return !c->options->quick && strata_clock_seconds() < c->options->large_until;
}

/* ---- instances in large shapes ---- */

/* Instances that are not made from those of the row. */
static const struct {
    const char *op;
    case_instance instance;
} more[] = {
    {"add", {.shapes = {{2, {4096, 4096}}, {2, {4096, 4096}}}}},
    {"mul", {.shapes = {{2, {4096, 4096}}, {1, {4096}}}}},
    {"relu", {.shapes = {{2, {4096, 4096}}}}},
    {"exp", {.shapes = {{2, {4096, 4096}}}, .terms = 16}},
    {"reduce_sum", {.shapes = {{2, {4096, 4096}}}, .p = {0, 1, 1}, .terms = 4096}},
    {"reduce_sum", {.shapes = {{2, {4096, 4096}}}, .p = {0, 1, 0}, .terms = 4096}},
    {"reduce_sum", {.shapes = {{2, {4096, 4096}}}, .p = {0, 0}, .terms = 1 << 24}},
    {"reduce_max", {.shapes = {{2, {4096, 4096}}}, .p = {0, 1, 1}}},
    {"transpose", {.shapes = {{2, {4096, 4096}}}, .p = {1, 0}}},
    {"assign_add", {.shapes = {{2, {4096, 4096}}, {2, {4096, 4096}}}}},
    {"random_uniform", {.shapes = {{1, {STRATA_RNG_WORDS}}}, .p = {1031, 1280}}},
    {"random_normal", {.shapes = {{1, {STRATA_RNG_WORDS}}}, .p = {1031, 1280}, .terms = 256}},
    {"conv2d", {.shapes = {{4, {1, 9, 10, 128}}, {4, {3, 3, 128, 256}}}, .p = {[5] = 1}, .terms = 1152 * 6}},
    {"conv2d", {.shapes = {{4, {2, 33, 32, 3}}, {4, {5, 5, 3, 130}}}, .p = {2, 2}, .terms = 75 * 6}},
    {"conv2d_input_grad", {.shapes = {{4, {1, 9, 9, 128}}, {4, {3, 3, 128, 130}}}, .p = {[5] = 1}, .terms = 1152 * 36}},
    {"conv2d_filter_grad", {.shapes = {{4, {1, 9, 9, 128}}, {4, {3, 3, 128, 130}}}, .p = {[5] = 1}, .terms = 1152 * 36}},
    {"max_pool2d", {.shapes = {{4, {2, 65, 64, 128}}, {4, {2, 65, 64, 128}}}, .p = {[10] = 2, 2}}},
    {"max_pool2d_grad", {.shapes = {{4, {2, 33, 32, 128}}}, .p = {[10] = 2, 2}, .terms = 16}},
    {"avg_pool2d", {.shapes = {{4, {2, 65, 64, 128}}, {4, {2, 65, 64, 128}}}, .p = {[10] = 2, 2}, .terms = 16}},
    {"avg_pool2d_grad", {.shapes = {{4, {2, 33, 32, 128}}, {4, {2, 33, 32, 128}}}, .p = {[10] = 2, 2}, .terms = 16}},
    {"gather", {.shapes = {{2, {10, 1280}}, {1, {1031}}}, .p = {0}}},
};

static bool is_scaled_op(const char *op) {
    /* The shapes of these are coupled with each other or with p; or they are in `more`. */
    static const char *const others[] = {"matmul",         "broadcast_to",   "pack",          "recurrent",
                                         "recurrent_grad", "adam_product",   "adam_gather",   "scatter_update",
                                         "segment_sum",    "random_uniform", "random_normal", "first_index"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i], op)) return false;
    return true;
}

/* Whether a dimension of the operand is fixed: the words of a state or of a step. */
static bool is_fixed(const case_operand *operand, strata_shape shape) {
    return operand->values == CASE_STATE || (shape.rank == 1 && shape.dims[0] == STRATA_STEP_WORDS);
}

static bool can_scale(const op_row *row, const case_instance *instance) {
    bool any = false;
    for (int i = 0; i < row->n_operands; i++) {
        const strata_shape shape = instance->shapes[i];
        if (shape.rank > 3) return false;
        for (int d = 0; d < shape.rank; d++)
            if (!shape.dims[d]) return false;
        for (int d = 0; d < shape.rank && !is_fixed(&row->operands[i], shape); d++) any |= shape.dims[d] > 1;
    }
    return any;
}

/* Whether an earlier instance of the row becomes the same large one. */
static bool is_repeated(const op_row *row, int index) {
    const case_instance *a = &row->instances[index];
    for (int k = 0; k < index; k++) {
        const case_instance *b = &row->instances[k];
        bool same = can_scale(row, b) && !memcmp(a->p, b->p, sizeof a->p);
        for (int i = 0; i < row->n_operands && same; i++) same = a->shapes[i].rank == b->shapes[i].rank;
        if (same) return true;
    }
    return false;
}

/* Replaces the dimensions of the instance: those that are equal stay equal, and those of 1 stay 1. Returns the number of
 * elements of the largest operand. */
static int64_t replace(const op_row *row, const int64_t sizes[4], case_instance *instance, double *out_ratio) {
    int64_t old[4] = {0}, largest = 0;
    int n = 0;
    *out_ratio = 1;
    for (int i = 0; i < row->n_operands; i++) {
        strata_shape *shape = &instance->shapes[i];
        if (is_fixed(&row->operands[i], *shape)) continue;
        for (int d = 0; d < shape->rank; d++) {
            int k = 0;
            if (shape->dims[d] == 1) continue;
            while (k < n && old[k] != shape->dims[d]) k++;
            if (k == 4) return INT64_MAX;
            if (k == n) old[n++] = shape->dims[d];
            if ((double)sizes[k] / (double)old[k] > *out_ratio) *out_ratio = (double)sizes[k] / (double)old[k];
            shape->dims[d] = sizes[k];
        }
        if (strata_shape_elements(*shape) > largest) largest = strata_shape_elements(*shape);
    }
    return largest;
}

/* The number of elements of the op's result; INT64_MAX: the shapes do not fit the op. */
static int64_t result_elements(const op_row *row, strata_dtype dtype, const case_instance *instance) {
    strata_graph *graph = NULL;
    strata_tensor *x[CASE_INPUTS];
    strata_variable variables[CASE_INPUTS];
    int64_t n = INT64_MAX;
    if (strata_graph_create(&graph, NULL)) return n;
    for (int i = 0; i < row->n_operands; i++) {
        const strata_dtype own = row->operands[i].dtype ? (strata_dtype)(row->operands[i].dtype - 1) : dtype;
        const char name[] = {'x', (char)('0' + i), 0};
        variables[i] = strata_test_variable("x", own, instance->shapes[i]);
        x[i] = row->operands[i].variable ? strata_variable_read(graph, &variables[i])
                                         : strata_input(graph, name, own, instance->shapes[i]);
    }
    const strata_tensor *y =
        row->build ? row->build(x, instance->p, dtype) : strata_node(NULL, row->generic, row->n_operands, x, NULL);
    if (!strata_graph_check(graph, NULL)) n = strata_shape_elements(y->shape);
    strata_graph_destroy(graph);
    return n;
}

static bool scale(const op_row *row, strata_dtype dtype, const case_instance *from, int64_t most, case_instance *out_instance) {
    static const int64_t sizes[][4] = {
        {1048583, 4099, 257, 129}, {1031, 1280, 257, 130}, {515, 260, 129, 33}, {131, 129, 33, 9}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double ratio;
        *out_instance = *from;
        if (replace(row, sizes[i], out_instance, &ratio) > most) continue;
        if (result_elements(row, dtype, out_instance) > most) continue;
        const strata_op *op = strata_op_find(row->op);
        const bool sums = !(op->flags & (STRATA_OP_ELEMENTWISE | STRATA_OP_UPDATE)) && from->terms > 1;
        if (sums) out_instance->terms = (int64_t)((double)from->terms * ratio);
        /* Among a million elements of a step of an optimizer, some have a second moment near 0, by whose root they divide. */
        if (op->flags & STRATA_OP_UPDATE && from->terms > 1) out_instance->terms = 64 * from->terms;
        return true;
    }
    return false;
}

/* Whether no row before this one has the same op: those of `more` are tried once. */
static bool is_first_row(const op_row *row) {
    for (const op_table *const *table = case_tables; *table; table++)
        for (int r = 0; r < (*table)->n_rows; r++)
            if (!strcmp((*table)->rows[r].op, row->op)) return &(*table)->rows[r] == row;
    return false;
}

bool large_instance(const op_row *row, strata_dtype dtype, int index, case_instance *out_instance, case_operand *out_operands) {
    enum { MOST_ELEMENTS = 1500000, MOST_OF_OTHERS = 300000 };
    int n = 0;
    memcpy(out_operands, row->operands, sizeof row->operands);
    for (int i = 0; i < row->n_instances && is_scaled_op(row->op) && (dtype == STRATA_DTYPE_F32 || n == 0); i++) {
        if (!can_scale(row, &row->instances[i]) || is_repeated(row, i) ||
            !scale(row, dtype, &row->instances[i], dtype == STRATA_DTYPE_F32 && n == 0 ? MOST_ELEMENTS : MOST_OF_OTHERS,
                   out_instance))
            continue;
        if (n++ == index) return true;
    }
    for (size_t i = 0; i < sizeof more / sizeof *more && dtype == STRATA_DTYPE_F32 && is_first_row(row); i++) {
        if (strcmp(more[i].op, row->op) != 0 || n++ != index) continue;
        *out_instance = more[i].instance;
        /* Sums of whole numbers are exact, in every order. */
        const double most = more[i].instance.terms > 65536 ? 255 : 4095;
        if (!strcmp(row->op, "reduce_sum")) out_operands[0] = (case_operand){.values = CASE_WHOLE, .low = -most, .high = most};
        return true;
    }
    return false;
}

/* ---- products of matrices ---- */

typedef struct product {
    /* a (batch, m, k) or its transpose, b (k, n) or its transpose; batch 0: a is a matrix. */
    int64_t batch, m, n, k;
    bool transpose_a, transpose_b;
    enum { PLAIN = 0, BIAS_RELU, ADD } fused;
    /* How often the program is run with the same operands. */
    int n_runs;
} product;

static const product products[] = {
    {.m = 128, .n = 128, .k = 128, .n_runs = 8},
    {.m = 256, .n = 256, .k = 256, .n_runs = 8},
    {.m = 256, .n = 256, .k = 256, .transpose_a = true, .n_runs = 2},
    {.m = 256, .n = 256, .k = 256, .transpose_b = true, .n_runs = 2},
    {.m = 129, .n = 257, .k = 385, .n_runs = 2},
    {.m = 257, .n = 130, .k = 513, .transpose_a = true, .n_runs = 2},
    {.m = 127, .n = 255, .k = 1023, .transpose_b = true, .n_runs = 2},
    {.m = 130, .n = 129, .k = 131, .transpose_a = true, .transpose_b = true, .n_runs = 2},
    {.batch = 5, .m = 128, .n = 130, .k = 64, .n_runs = 2},
    {.m = 256, .n = 260, .k = 128, .fused = BIAS_RELU, .n_runs = 2},
    {.m = 130, .n = 256, .k = 128, .fused = ADD, .n_runs = 2},
    {.m = 33, .n = 4096, .k = 4096, .n_runs = 1},
    {.m = 4096, .n = 33, .k = 4096, .n_runs = 1},
    {.m = 4096, .n = 4096, .k = 33, .n_runs = 1},
    {.m = 1, .n = 1, .k = 65536, .n_runs = 1},
    {.m = 1024, .n = 1024, .k = 1024, .n_runs = 1},
    {.m = 4096, .n = 4096, .k = 4096, .n_runs = 1},
};
enum { N_PRODUCTS = sizeof products / sizeof *products };

typedef struct product_trial {
    const product *p;
    strata_dtype dtype;
    strata_graph *graph;
    strata_tensor *y;
    strata_executable *exe;
    /* a, b, and the bias or the operand that is added; y. */
    strata_array values[3], got;
    /* The same numbers. */
    int64_t *numbers[3];
} product_trial;

static double exact_integer_limit(strata_dtype dtype) {
    return dtype == STRATA_DTYPE_F32 ? 0x1p24 : dtype == STRATA_DTYPE_F16 ? 0x1p11 : 0x1p8;
}

/* The largest whole number of operand `wide`, which has as many bits as the device keeps. 1: the operands are small, because
 * the result is stored in a half float. */
static int64_t widest(const checker *c, const product_trial *t) {
    const strata_dtype rounded = c->device->product_dtype;
    if (t->dtype != STRATA_DTYPE_F32) return 1;
    const int64_t most = rounded == STRATA_DTYPE_F16 ? 2047 : rounded == STRATA_DTYPE_BF16 ? 255 : 4095;
    return t->p->k > 4096 ? 255 : most;
}

/* Sets the operands: operand `wide` has odd numbers up to `most`, the other -1, 0 and 1. */
static void set_operands(product_trial *t, int wide, int64_t most, uint64_t seed) {
    for (int i = 0; i < 3; i++) {
        strata_array *value = &t->values[i];
        for (int64_t k = 0; value->data && k < strata_shape_elements(value->shape); k++) {
            const uint64_t bits = strata_test_next(&seed);
            const int64_t sign = bits & 1 ? 1 : -1, number = (int64_t)(bits >> 8) % ((most + 1) / 2);
            t->numbers[i][k] = i == wide && most > 1 ? sign * (most - 2 * (number / 2)) : (int64_t)(bits >> 8) % 3 - 1;
            if (value->dtype == STRATA_DTYPE_F32)
                ((float *)value->data)[k] = (float)t->numbers[i][k];
            else
                strata_element_set(value->dtype, value->data, k, (double)t->numbers[i][k]);
        }
    }
}

static int64_t a_of(const product_trial *t, int64_t batch, int64_t i, int64_t l) {
    const product *p = t->p;
    return t->numbers[0][batch * p->m * p->k + (p->transpose_a ? l * p->m + i : i * p->k + l)];
}

/* Element (i, j) of the result. */
static int64_t element_of(const product_trial *t, int64_t batch, int64_t i, int64_t j) {
    const product *p = t->p;
    int64_t sum = 0;
    for (int64_t l = 0; l < p->k; l++)
        sum += a_of(t, batch, i, l) * t->numbers[1][p->transpose_b ? j * p->k + l : l * p->n + j];
    if (p->fused == BIAS_RELU) return sum + t->numbers[2][j] > 0 ? sum + t->numbers[2][j] : 0;
    return p->fused == ADD ? sum + t->numbers[2][i * p->n + j] : sum;
}

static double got_of(const product_trial *t, int64_t index) {
    return t->dtype == STRATA_DTYPE_F32 ? (double)((const float *)t->got.data)[index]
                                        : strata_element_get(t->dtype, t->got.data, index);
}

static strata_test_result wrong_element(const product_trial *t, int64_t batch, int64_t i, int64_t j) {
    const product *p = t->p;
    return strata_test_bad(
        "element (%lld,%lld) of the product of (%lld,%lld)%s and (%lld,%lld)%s is %.9g instead of %lld; all operands are whole "
        "numbers, so sums in f32 are exact in every order",
        (long long)i, (long long)j, (long long)p->m, (long long)p->k, p->transpose_a ? " transposed" : "", (long long)p->k,
        (long long)p->n, p->transpose_b ? " transposed" : "", got_of(t, (batch * p->m + i) * p->n + j),
        (long long)element_of(t, batch, i, j));
}

/* Compares row i element by element. */
static strata_test_result compare_row(const product_trial *t, int64_t batch, int64_t i) {
    for (int64_t j = 0; j < t->p->n; j++)
        if (got_of(t, (batch * t->p->m + i) * t->p->n + j) != (double)element_of(t, batch, i, j))
            return wrong_element(t, batch, i, j);
    return strata_test_ok();
}

/* Compares all elements, by weighted sums of rows. */
static strata_test_result compare_product(const product_trial *t) {
    const product *p = t->p;
    uint64_t seed = 77;
    uint64_t *weights = malloc((size_t)(p->n + p->k) * sizeof *weights), *of_b = weights ? weights + p->n : NULL;
    if (!weights) return strata_test_bad("no host memory");
    for (int64_t j = 0; j < p->n; j++) weights[j] = strata_test_next(&seed) | 1;
    memset(of_b, 0, (size_t)p->k * sizeof *of_b);
    for (int64_t x = 0; x < p->k * p->n; x++) {
        const int64_t l = p->transpose_b ? x % p->k : x / p->n, j = p->transpose_b ? x / p->k : x % p->n;
        of_b[l] += (uint64_t)t->numbers[1][x] * weights[j];
    }
    strata_test_result result = strata_test_ok();
    for (int64_t row = 0; row < (p->batch ? p->batch : 1) * p->m && result.ok; row++) {
        uint64_t wanted = 0, got = 0;
        bool whole = true;
        for (int64_t l = 0; l < p->k; l++) wanted += (uint64_t)a_of(t, row / p->m, row % p->m, l) * of_b[l];
        for (int64_t j = 0; j < p->n; j++) {
            const double x = got_of(t, row * p->n + j);
            whole = whole && fabs(x) < 0x1p53 && x == floor(x);
            if (whole) got += (uint64_t)(int64_t)x * weights[j];
        }
        if (!whole || got != wanted) result = compare_row(t, row / p->m, row % p->m);
    }
    free(weights);
    return result;
}

static strata_test_result compare_all_rows(const product_trial *t) {
    strata_test_result result = strata_test_ok();
    for (int64_t i = 0; i < t->p->m && result.ok; i++) result = compare_row(t, 0, i);
    return result;
}

static strata_status build_product(const checker *c, product_trial *t, strata_error *err) {
    const product *p = t->p;
    const int64_t a_rows = p->transpose_a ? p->k : p->m, a_columns = p->transpose_a ? p->m : p->k;
    const strata_shape shapes[3] = {p->batch ? STRATA_SHAPE(p->batch, a_rows, a_columns) : STRATA_SHAPE(a_rows, a_columns),
                                    p->transpose_b ? STRATA_SHAPE(p->n, p->k) : STRATA_SHAPE(p->k, p->n),
                                    p->fused == ADD ? STRATA_SHAPE(p->m, p->n) : STRATA_SHAPE(p->n)};
    static const char *const names[] = {"a", "b", "c"};
    strata_tensor *x[3] = {NULL};
    STRATA_TRY(strata_graph_create(&t->graph, err));
    for (int i = 0; i < (p->fused ? 3 : 2); i++) {
        STRATA_TRY(strata_array_create(t->dtype, shapes[i], &t->values[i], err));
        t->numbers[i] = malloc((size_t)strata_shape_elements(shapes[i]) * sizeof *t->numbers[i]);
        if (!t->numbers[i]) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory");
        x[i] = strata_input(t->graph, names[i], t->dtype, shapes[i]);
    }
    t->y = strata_matmul(x[0], x[1], p->transpose_a, p->transpose_b);
    if (p->fused) t->y = strata_add(t->y, x[2]);
    if (p->fused == BIAS_RELU) t->y = strata_relu(t->y);
    STRATA_TRY(strata_graph_check(t->graph, err));
    const strata_executable_options opts = {.n_slots = 1};
    STRATA_TRY(strata_executable_create(c->device, &t->y, 1, NULL, 0, &opts, &t->exe, err));
    return strata_array_create(t->dtype, t->y->shape, &t->got, err);
}

static strata_status run_product(product_trial *t, strata_error *err) {
    static const char *const names[] = {"a", "b", "c"};
    return strata_executable_run(t->exe, (const char **)names, t->values, t->p->fused ? 3 : 2, &t->got, 1, err);
}

/* Runs the product n_runs times with each operand as the wide one. */
static strata_status try_product(const checker *c, product_trial *t, strata_test_result *out_result, strata_error *err) {
    const int64_t most = widest(c, t);
    STRATA_TRY(build_product(c, t, err));
    for (int wide = 0; wide < (most > 1 ? 2 : 1) && out_result->ok; wide++) {
        set_operands(t, wide, most, 11 + (uint64_t)wide);
        for (int r = 0; r < t->p->n_runs && out_result->ok; r++) {
            STRATA_TRY(run_product(t, err));
            *out_result = t->p->fused ? compare_all_rows(t) : compare_product(t);
            if (!out_result->ok && r > 0) {
                const strata_test_result why = *out_result;
                *out_result = strata_test_bad("in run %d, after runs that were right: %.600s", r + 1, why.text);
            }
        }
    }
    return STRATA_OK;
}

static void finish_product(product_trial *t) {
    for (int i = 0; i < 3; i++) {
        strata_array_finish(&t->values[i]);
        free(t->numbers[i]);
    }
    strata_array_finish(&t->got);
    strata_executable_destroy(t->exe);
    strata_graph_destroy(t->graph);
}

/* Whether a product of this size may be tried: a device that is slow does not get the largest. rate: multiplications in a
 * second of the last product. */
static bool fits_time(const checker *c, const product *p, double rate) {
    const double left = c->options->large_until - strata_clock_seconds(), work = (double)p->m * (double)p->n * (double)p->k;
    return work < 1 << 27 || (rate > 0 && 2 * work / rate < left / 4);
}

strata_check_kind check_large_product(const checker *c, strata_dtype dtype, int index, char *out_text, int text_bytes,
                                      bool *out_lost, bool *out_more) {
    static double rate;
    product_trial t = {.p = &products[index], .dtype = dtype};
    strata_error err = {0};
    strata_test_result result = strata_test_ok();
    *out_more = index + 1 < N_PRODUCTS;
    if (!fits_time(c, t.p, rate) || (t.p->k >= (int64_t)exact_integer_limit(dtype) * 16)) return STRATA_CHECK_NOT_CLAIMED;
    const double begin = strata_clock_seconds();
    const strata_status status = try_product(c, &t, &result, &err);
    const double seconds = strata_clock_seconds() - begin;
    const double work = (double)t.p->m * (double)t.p->n * (double)t.p->k;
    if (seconds > 0 && work > 1 << 20) rate = 2 * t.p->n_runs * work / seconds; /* the others take no time */
    finish_product(&t);
    *out_lost = status == STRATA_DEVICE_LOST || status == STRATA_TIMEOUT;
    if (status == STRATA_UNSUPPORTED) return STRATA_CHECK_NOT_CLAIMED;
    if (status)
        snprintf(out_text, (size_t)text_bytes, "a product of (%lld,%lld) and (%lld,%lld): %s: %.700s", (long long)t.p->m,
                 (long long)t.p->k, (long long)t.p->k, (long long)t.p->n, strata_status_name(status), err.message);
    else if (!result.ok)
        snprintf(out_text, (size_t)text_bytes, "%s", result.text);
    return status || !result.ok ? STRATA_CHECK_WRONG : STRATA_CHECK_RIGHT;
}
