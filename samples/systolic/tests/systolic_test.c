/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: systolic_test PLUGIN [FORM]
 *
 * Tests the plugin through its tables of functions, without Strata: compares its results with plain loops in f64 over operands
 * that were rounded to bf16. `strata plugin-check` tests the conformance of every op. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bound.h"
#include "driver.h"

enum { F32 = STRATA_PLUGIN_F32, I32 = STRATA_PLUGIN_I32, BOOL = STRATA_PLUGIN_BOOL };
enum { TEMPORARY = STRATA_PLUGIN_TEMPORARY, INPUT = STRATA_PLUGIN_INPUT, OUTPUT = STRATA_PLUGIN_OUTPUT };

static const strata_plugin *plugin;
static int checks, failures;

static void check(bool holds, const char *what, const char *detail) {
    checks++;
    if (holds) return;
    failures++;
    printf("FAILED: %s: %s\n", what, detail);
}

static double bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static void fill(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = next_random();
}

/* A sketch that is compiled on core 0 and runs in slot 0. The machine stays open until `end`. */
typedef struct run {
    machine m;
    sketch s;
    strata_plugin_program *program;
} run;

static bool prepare(run *r, const char *what) {
    strata_plugin_error error;
    r->m = open_machine(plugin, 0);
    r->program = sketch_compile(r->m, &r->s, &error);
    check(r->program != NULL, what, error.message);
    return r->program != NULL;
}

static void carry_out(run *r, const char *what) {
    strata_plugin_error error = {.size = sizeof error};
    uint64_t ticket = 0;
    check(!r->m.calls->run(r->program, 0, 1, &ticket, &error), what, error.message);
    check(!r->m.calls->wait(r->m.device, ticket, INT64_C(60000000000), &error), what, error.message);
}

static void end(run *r) {
    if (r->program) r->m.calls->program_destroy(r->program);
    r->m.calls->close(r->m.device);
}

static float *memory(run *r, int value) {
    return sketch_memory(r->m, &r->s, r->program, 0, value);
}

/* Compares a product's result x with exact sums. `rounded` is over operands that the test rounded to bf16 itself, so x may
 * differ from it only by roundings in f32; `exact` is over the unrounded operands. after: how many roundings in f32 follow the
 * sum; they are of numbers of at most after_size. */
static void compare(const char *what, const float *x, const terms *rounded, const terms *exact, int64_t n, int64_t depth,
                    int after, double after_size) {
    char detail[160] = "";
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const double tail = after * F32_UNIT * (exact[i].size + after_size);
        const double bounds[3] = {gamma_of(roundings_of(depth)) * rounded[i].size + tail, worst_bound(&exact[i], depth) + tail,
                                  probable_bound(&exact[i], depth, (double)n) + tail};
        for (int k = 0; k < 3; k++) {
            const double far = fabs((double)x[i] - (k ? exact : rounded)[i].sum) / (bounds[k] + 1e-30);
            if (isnan(worst) || far <= worst) continue;
            worst = far;
            snprintf(detail, sizeof detail, "element %lld is %.9g, not %.9g: %.3g times the %s bound", (long long)i,
                     (double)x[i], (k ? exact : rounded)[i].sum, far,
                     k == 0   ? "f32"
                     : k == 1 ? "worst-case"
                              : "probable");
        }
    }
    check(worst <= 1, what, detail);
}

/* ---- products ---- */

static void products_equal_sums_of_bf16(int64_t m, int64_t k, int64_t n, int64_t batch, int flags) {
    static run r;
    const int64_t ta = flags & 1, tb = flags >> 1 & 1;
    char what[96];
    snprintf(what, sizeof what, "matmul (%lld,%lld,%lld) x %lld, flags %d", (long long)m, (long long)k, (long long)n,
             (long long)batch, flags);
    sketch_init(&r.s, 1);
    const int a = sketch_value(&r.s, INPUT, F32, DIMS(batch, ta ? k : m, ta ? m : k));
    const int b = sketch_value(&r.s, INPUT, F32, tb ? DIMS(n, k) : DIMS(k, n));
    const int bias = sketch_value(&r.s, INPUT, F32, DIMS(n)), aux = sketch_value(&r.s, INPUT, F32, DIMS(batch, m, n));
    const int c = sketch_value(&r.s, OUTPUT, F32, DIMS(batch, m, n));
    const int node = sketch_node(&r.s, "matmul", flags & 4 ? IDS(a, b, bias, aux) : IDS(a, b), c);
    sketch_ints(&r.s, node, "transpose_a", 1, &ta);
    sketch_ints(&r.s, node, "transpose_b", 1, &tb);
    if (flags & 4) {
        sketch_ints(&r.s, node, "has_bias", 1, (const int64_t[]){1});
        sketch_text(&r.s, node, "activation", "relu");
        sketch_text(&r.s, node, "aux", "add");
    }
    if (!prepare(&r, what)) return;
    float *pa = memory(&r, a), *pb = memory(&r, b), *pbias = memory(&r, bias), *paux = memory(&r, aux);
    fill(pa, batch * m * k), fill(pb, k * n), fill(pbias, n), fill(paux, batch * m * n);
    carry_out(&r, what);
    terms *sums[2] = {calloc((size_t)(batch * m * n), sizeof **sums), calloc((size_t)(batch * m * n), sizeof **sums)};
    for (int64_t i = 0; i < batch * m * n; i++) {
        const int64_t row = i / n % m, column = i % n;
        for (int64_t l = 0; l < k; l++) {
            const float from_a = pa[i / n / m * m * k + (ta ? l * m + row : row * k + l)],
                        from_b = pb[tb ? column * k + l : l * n + column];
            add_term(&sums[0][i], bf16(from_a), bf16(from_b));
            add_term(&sums[1][i], (double)from_a, (double)from_b);
        }
        for (int j = 0; j < 2 && flags & 4; j++)
            sums[j][i].sum = fmax(sums[j][i].sum + (double)pbias[column], 0) + (double)paux[i];
    }
    /* Bias and aux are less than 1. */
    compare(what, memory(&r, c), sums[0], sums[1], batch * m * n, k, flags & 4 ? 2 : 0, 2);
    free(sums[0]), free(sums[1]);
    end(&r);
}

/* ---- convolutions: x (N,H,W,C), filter (KH,KW,C/groups,F), y ---- */

typedef struct conv_case {
    int64_t n, h, w, c, kh, kw, f, groups, stride[2], dilation[2], padding[4];
} conv_case;

static const conv_case conv_cases[] = {
    {2, 7, 6, 3, 3, 3, 5, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {1, 9, 8, 4, 3, 2, 40, 1, {2, 1}, {1, 1}, {1, 1, 0, 1}},
    {3, 10, 11, 6, 2, 3, 8, 2, {1, 2}, {2, 1}, {1, 0, 2, 1}},
    {2, 8, 8, 16, 1, 1, 7, 1, {2, 2}, {1, 1}, {0, 0, 0, 0}},
};

/* Which of the three arrays is computed from the other two: 0 y, 1 x, 2 filter. */
static void convolutions_equal_sums_of_bf16(const conv_case *c, int which) {
    static const char *const ops[] = {"conv2d", "conv2d_input_grad", "conv2d_filter_grad"};
    static run r;
    const int64_t oh = (c->h + c->padding[0] + c->padding[1] - (c->kh - 1) * c->dilation[0] - 1) / c->stride[0] + 1;
    const int64_t ow = (c->w + c->padding[2] + c->padding[3] - (c->kw - 1) * c->dilation[1] - 1) / c->stride[1] + 1;
    const int64_t nx = c->n * c->h * c->w * c->c, nf = c->kh * c->kw * c->c / c->groups * c->f, ny = c->n * oh * ow * c->f;
    char what[64];
    snprintf(what, sizeof what, "%s, case %d", ops[which], (int)(c - conv_cases));
    sketch_init(&r.s, 1);
    const int x = sketch_value(&r.s, which == 1 ? OUTPUT : INPUT, F32, DIMS(c->n, c->h, c->w, c->c));
    const int filter = sketch_value(&r.s, which == 2 ? OUTPUT : INPUT, F32, DIMS(c->kh, c->kw, c->c / c->groups, c->f));
    const int y = sketch_value(&r.s, which == 0 ? OUTPUT : INPUT, F32, DIMS(c->n, oh, ow, c->f));
    const int out = which == 0 ? y : which == 1 ? x : filter;
    const int node = sketch_node(&r.s, ops[which], which == 0 ? IDS(x, filter) : which == 1 ? IDS(y, filter) : IDS(x, y), out);
    sketch_ints(&r.s, node, "stride", 2, c->stride);
    sketch_ints(&r.s, node, "dilation", 2, c->dilation);
    sketch_ints(&r.s, node, "padding", 4, c->padding);
    sketch_ints(&r.s, node, "groups", 1, &c->groups);
    if (!prepare(&r, what)) return;
    float *px = memory(&r, x), *pf = memory(&r, filter), *py = memory(&r, y);
    if (which != 1) fill(px, nx);
    if (which != 2) fill(pf, nf);
    if (which != 0) fill(py, ny);
    carry_out(&r, what);
    const int64_t n_out = which == 0 ? ny : which == 1 ? nx : nf;
    terms *sums[2] = {calloc((size_t)n_out, sizeof **sums), calloc((size_t)n_out, sizeof **sums)};
    const int64_t group_in = c->c / c->groups, group_out = c->f / c->groups;
    /* each product is a term of y, of x and of the filter */
    for (int64_t i = 0; i < ny * c->kh * c->kw * group_in; i++) {
        const int64_t channel = i % group_in, kw = i / group_in % c->kw, kh = i / group_in / c->kw % c->kh;
        const int64_t at_y = i / group_in / c->kw / c->kh, f = at_y % c->f, pixel = at_y / c->f;
        const int64_t h = pixel / ow % oh * c->stride[0] + kh * c->dilation[0] - c->padding[0];
        const int64_t w = pixel % ow * c->stride[1] + kw * c->dilation[1] - c->padding[2];
        if (h < 0 || h >= c->h || w < 0 || w >= c->w) continue;
        const int64_t at_x = ((pixel / ow / oh * c->h + h) * c->w + w) * c->c + f / group_out * group_in + channel;
        const int64_t at_f = ((kh * c->kw + kw) * group_in + channel) * c->f + f;
        const float left = which == 1 ? py[at_y] : px[at_x], right = which == 2 ? py[at_y] : pf[at_f];
        const int64_t to = which == 0 ? at_y : which == 1 ? at_x : at_f;
        add_term(&sums[0][to], bf16(left), bf16(right));
        add_term(&sums[1][to], (double)left, (double)right);
    }
    const int64_t depth = which == 2 ? c->n * oh * ow : c->kh * c->kw * (which ? group_out : group_in);
    compare(what, memory(&r, out), sums[0], sums[1], n_out, depth, 0, 0);
    free(sums[0]), free(sums[1]);
    end(&r);
}

/* ---- the bounds themselves ---- */

typedef enum array_kind { RIGHT, TRUNCATES, DROPS_THE_LAST_TERM, ADDS_IN_BF16, ARRAY_KINDS } array_kind;

/* Computes one element as an array of this kind does. */
static float array_sum(array_kind kind, const float *a, const float *b, int depth) {
    float total = 0;
    for (int first = 0; first < depth; first += 128) {
        float column = 0;
        for (int k = first; k < depth && k < first + 128; k++) {
            uint32_t bits[2];
            float x[2] = {(float)bf16(a[k]), (float)bf16(b[k])};
            memcpy(&bits[0], &a[k], sizeof *bits), memcpy(&bits[1], &b[k], sizeof *bits);
            for (int i = 0; i < 2; i++) bits[i] &= 0xffff0000u;
            if (kind == TRUNCATES) memcpy(x, bits, sizeof x);
            if (kind == DROPS_THE_LAST_TERM && k == depth - 1) break;
            column += x[0] * x[1];
            if (kind == ADDS_IN_BF16) column = (float)bf16(column);
        }
        total += column;
    }
    return total;
}

/* How far the element is from the exact sum, as a multiple of the worst-case bound and of the probable bound for a result of n
 * elements. */
static void measure_array(array_kind kind, const float *a, const float *b, int depth, int n, double *out_worst,
                          double *out_probable) {
    terms exact = {0};
    for (int k = 0; k < depth; k++) add_term(&exact, (double)a[k], (double)b[k]);
    const double error = fabs((double)array_sum(kind, a, b, depth) - exact.sum);
    *out_worst = error / worst_bound(&exact, depth);
    *out_probable = error / probable_bound(&exact, depth, n);
}

/* The worst-case bound is nearly reached by operands just below the middle between two bf16, which are all rounded down. An
 * array that cuts bits off is far beyond the bound for operands just below the next bf16. */
static void the_worst_case_is_reached_and_cutting_bits_off_breaks_it(void) {
    enum { DEPTH = 300 };
    float below_middle[DEPTH], below_next[DEPTH];
    double worst, probable;
    for (int k = 0; k < DEPTH; k++) below_middle[k] = 1 + 0x0.fep-8f, below_next[k] = 1 + 0x0.fep-7f;
    measure_array(RIGHT, below_middle, below_middle, DEPTH, 1, &worst, &probable);
    check(worst > 0.9 && worst <= 1, "the worst case", "the bound is not what such operands reach");
    measure_array(RIGHT, below_next, below_next, DEPTH, 1, &worst, &probable);
    check(worst < 0.1, "the worst case", "operands next to a bf16 are rounded away from it");
    measure_array(TRUNCATES, below_next, below_next, DEPTH, 1, &worst, &probable);
    check(worst > 1.5, "the worst case", "an array that cuts bits off stays within the bound");
}

/* Each result has 16 elements, computed from random operands in [0.5, 1.5). A wrong array exceeds the bound for some element
 * of each result. */
static void the_probable_bound_finds_wrong_arrays(void) {
    enum { DEPTH = 128, ELEMENTS_EACH = 16, TIMES = 100 };
    static const char *const names[] = {"right", "one that cuts bits off", "one that leaves out the last term",
                                        "one that adds up in bf16"};
    for (array_kind kind = RIGHT; kind < ARRAY_KINDS; kind++) {
        int within = 0;
        for (int t = 0; t < TIMES; t++) {
            bool fine = true;
            for (int i = 0; i < ELEMENTS_EACH; i++) {
                float a[DEPTH], b[DEPTH];
                double worst, probable;
                for (int k = 0; k < DEPTH; k++) a[k] = 1 + next_random() / 2, b[k] = 1 + next_random() / 2;
                measure_array(kind, a, b, DEPTH, ELEMENTS_EACH, &worst, &probable);
                fine = fine && probable <= 1;
            }
            within += fine;
        }
        char detail[112];
        snprintf(detail, sizeof detail, "the array is %s, and %d of %d results are within it", names[kind], within, TIMES);
        check(within == (kind == RIGHT ? TIMES : 0), "the probable bound", detail);
    }
}

/* ---- element-wise, random, updates ---- */

static void a_chain_is_one_step_of_its_parts(void) {
    static run r;
    const char *what = "chain: where(x < row, x * scalar, row)";
    enum { ROWS = 37, COLUMNS = 53 };
    sketch_init(&r.s, 1);
    const int x = sketch_value(&r.s, INPUT, F32, DIMS(ROWS, COLUMNS)), row = sketch_value(&r.s, INPUT, F32, DIMS(COLUMNS));
    const int scalar = sketch_value(&r.s, INPUT, F32, SCALAR), y = sketch_value(&r.s, OUTPUT, F32, DIMS(ROWS, COLUMNS));
    const int below = sketch_value(&r.s, TEMPORARY, BOOL, DIMS(ROWS, COLUMNS));
    const int scaled = sketch_value(&r.s, TEMPORARY, F32, DIMS(ROWS, COLUMNS));
    const int node = sketch_node(&r.s, "chain", IDS(x, row, scalar), y);
    static const strata_plugin_node *list[3];
    static strata_plugin_node parts[3];
    static int32_t ids[3][3];
    const struct {
        const char *op;
        int in[3], n, out;
    } steps[3] = {{"less", {x, row}, 2, below}, {"mul", {x, scalar}, 2, scaled}, {"where", {below, scaled, row}, 3, y}};
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < steps[i].n; j++) ids[i][j] = steps[i].in[j];
        parts[i] = (strata_plugin_node){
            .size = sizeof parts[i], .op = steps[i].op, .n_inputs = steps[i].n, .inputs = ids[i], .output = steps[i].out};
        list[i] = &parts[i];
    }
    r.s.nodes[node].n_parts = 3;
    r.s.nodes[node].parts = list;
    if (!prepare(&r, what)) return;
    float *px = memory(&r, x), *prow = memory(&r, row), *py = memory(&r, y);
    fill(px, ROWS * COLUMNS), fill(prow, COLUMNS);
    *memory(&r, scalar) = 3;
    carry_out(&r, what);
    int wrong = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++) wrong += py[i] != (px[i] < prow[i % COLUMNS] ? px[i] * 3 : prow[i % COLUMNS]);
    check(!wrong, what, "elements differ");
    end(&r);
}

/* Random123's known answer for Philox-4x32-10 with counter and key 0. */
static void random_bits_are_philox(void) {
    static const uint32_t known[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static run r;
    sketch_init(&r.s, 1);
    const int state = sketch_value(&r.s, INPUT, I32, DIMS(8)), y = sketch_value(&r.s, OUTPUT, F32, DIMS(6));
    const int node = sketch_node(&r.s, "random_uniform", IDS(state), y);
    sketch_ints(&r.s, node, "stream", 1, (const int64_t[]){0});
    if (!prepare(&r, "random_uniform")) return;
    memset(memory(&r, state), 0, 8 * sizeof(int32_t));
    carry_out(&r, "random_uniform");
    for (int i = 0; i < 4; i++)
        check(memory(&r, y)[i] == (float)(known[i] >> 8) * 0x1p-24f, "random_uniform", "not the bits of Philox-4x32-10");
    end(&r);
}

/* Three runs of one call, each in its own slot. Each run sees the variable as the previous run left it. */
static void runs_of_one_call_follow_each_other(void) {
    static run r;
    const char *what = "assign_add over 3 slots in one call";
    strata_plugin_error error = {.size = sizeof error};
    strata_plugin_buffer *buffer = NULL;
    uint64_t ticket = 0;
    float total[4] = {0};
    sketch_init(&r.s, 3);
    r.m = open_machine(plugin, 0);
    check(!r.m.calls->buffer_create(r.m.device, 4096, &buffer, &error), what, error.message);
    const int x = sketch_value(&r.s, INPUT, F32, DIMS(4)), variable = sketch_value(&r.s, STRATA_PLUGIN_VARIABLE, F32, DIMS(4));
    const int after = sketch_value(&r.s, STRATA_PLUGIN_VARIABLE, F32, DIMS(4)), out = sketch_value(&r.s, OUTPUT, F32, DIMS(4));
    for (int v = variable; v <= after; v++) {
        r.s.values[v].buffer = buffer;
        r.s.values[v].buffer_offset = 256;
    }
    r.s.values[after].alias_of = variable;
    const int add = sketch_node(&r.s, "assign_add", IDS(variable, x), after);
    r.s.nodes[add].n_writes = 1;
    sketch_node(&r.s, "neg", IDS(after), out);
    r.program = sketch_compile(r.m, &r.s, &error);
    check(r.program != NULL, what, error.message);
    if (!r.program) return;
    for (int slot = 0; slot < 3; slot++)
        for (int i = 0; i < 4; i++) ((float *)sketch_memory(r.m, &r.s, r.program, slot, x))[i] = (float)((slot + 1) * (i + 1));
    check(!r.m.calls->run(r.program, 1, 3, &ticket, &error), what, error.message); /* slots 1, 2, 0 */
    check(!r.m.calls->wait(r.m.device, ticket, INT64_C(60000000000), &error), what, error.message);
    check(!r.m.calls->download(r.m.device, buffer, 256, total, sizeof total, &error), what, error.message);
    check(total[3] == 24, what, "the variable is not the sum of three runs");
    check(((float *)sketch_memory(r.m, &r.s, r.program, 2, out))[0] == -5, what, "slot 2 did not see slots 1 and 2");
    check(r.m.calls->wait(r.m.device, ticket + 2, 1000, &error) == STRATA_PLUGIN_TIMEOUT, what,
          "a ticket that was not given out has ended");
    r.m.calls->buffer_destroy(r.m.device, buffer);
    end(&r);
}

/* ---- collectives ---- */

enum { CORES = 4, ELEMENTS = 1001 };

typedef struct corner {
    run r;
    int x, y;
} corner;

static bool build_corner(corner *c, int core, int n_members) {
    static const int64_t members[] = {0, 1, 2, 3};
    strata_plugin_error error;
    sketch_init(&c->r.s, 1);
    c->x = sketch_value(&c->r.s, INPUT, F32, DIMS(ELEMENTS));
    c->y = sketch_value(&c->r.s, OUTPUT, F32, DIMS(ELEMENTS));
    const int node = sketch_node(&c->r.s, "all_reduce", IDS(c->x), c->y);
    sketch_ints(&c->r.s, node, "members", n_members, members);
    sketch_text(&c->r.s, node, "reduction", "sum");
    c->r.m = open_machine(plugin, core);
    c->r.program = sketch_compile(c->r.m, &c->r.s, &error);
    check(c->r.program != NULL, "all_reduce", error.message);
    return c->r.program != NULL;
}

static void cores_get_the_same_bits(void) {
    static corner corners[CORES];
    strata_plugin_error error = {.size = sizeof error};
    uint64_t tickets[CORES];
    for (int i = 0; i < CORES; i++) {
        if (!build_corner(&corners[i], i, CORES)) return;
        fill(memory(&corners[i].r, corners[i].x), ELEMENTS);
    }
    for (int i = CORES - 1; i >= 0; i--)
        check(!corners[i].r.m.calls->run(corners[i].r.program, 0, 1, &tickets[i], &error), "all_reduce", error.message);
    for (int i = 0; i < CORES; i++)
        check(!corners[i].r.m.calls->wait(corners[i].r.m.device, tickets[i], INT64_C(60000000000), &error), "all_reduce",
              error.message);
    int wrong = 0;
    for (int e = 0; e < ELEMENTS; e++) {
        float sum = memory(&corners[0].r, corners[0].x)[e];
        for (int i = 1; i < CORES; i++) sum += memory(&corners[i].r, corners[i].x)[e];
        for (int i = 0; i < CORES; i++) wrong += memory(&corners[i].r, corners[i].y)[e] != sum;
    }
    check(!wrong, "all_reduce", "a core's sum is not the fold in the order of cores");
    for (int i = 0; i < CORES; i++) end(&corners[i].r);
}

static void a_core_that_does_not_come_is_named(void) {
    static corner alone;
    strata_plugin_error error = {.size = sizeof error};
    uint64_t ticket = 0;
    if (!build_corner(&alone, 0, 2)) return;
    check(!alone.r.m.calls->run(alone.r.program, 0, 1, &ticket, &error), "all_reduce alone", error.message);
    const strata_plugin_status status = alone.r.m.calls->wait(alone.r.m.device, ticket, INT64_C(60000000000), &error);
    check(status == STRATA_PLUGIN_DEVICE_LOST && strstr(error.message, "core 1"), "all_reduce alone", error.message);
    const machine other = open_machine(plugin, 1);
    const strata_plugin_collectives *collectives = other.calls->table(other.device, "collectives");
    check(collectives->reached(alone.r.m.device) == 1 && collectives->reached(other.device) == 0, "all_reduce alone",
          "the core that did not come has not come to fewer collectives");
    other.calls->close(other.device);
    check(alone.r.m.calls->run(alone.r.program, 0, 1, &ticket, &error) == STRATA_PLUGIN_DEVICE_LOST, "all_reduce alone",
          "a lost core took another run");
    end(&alone.r);
}

/* Core 1 is lost in a collective with core 2, which does not come. Core 0 then waits for core 1 in another collective, and
 * fails at once. */
static void a_lost_core_ends_the_others_waits(void) {
    static corner first, second;
    strata_plugin_error error = {.size = sizeof error};
    uint64_t ticket = 0;
    if (!build_corner(&first, 0, 2) || !build_corner(&second, 1, 3)) return;
    check(!second.r.m.calls->run(second.r.program, 0, 1, &ticket, &error), "a lost core", error.message);
    check(second.r.m.calls->wait(second.r.m.device, ticket, INT64_C(60000000000), &error) == STRATA_PLUGIN_DEVICE_LOST,
          "a lost core", error.message);
    check(!first.r.m.calls->run(first.r.program, 0, 1, &ticket, &error), "a lost core", error.message);
    const strata_plugin_status status = first.r.m.calls->wait(first.r.m.device, ticket, INT64_C(60000000000), &error);
    check(status == STRATA_PLUGIN_DEVICE_LOST && strstr(error.message, "core 1 was lost"), "a lost core", error.message);
    end(&first.r);
    end(&second.r);
}

/* ---- copies ---- */

/* Two uploads, a copy to another core, and a download. The test waits only for the second upload and for the download. */
static void copies_come_in_their_order(void) {
    enum { N = 5000 };
    static float first[N], second[N], back[N];
    const machine a = open_machine(plugin, 0), b = open_machine(plugin, 1);
    const strata_plugin_transfers *transfers = a.calls->table(a.device, "transfers");
    strata_plugin_error error = {.size = sizeof error};
    strata_plugin_buffer *on_a = NULL, *on_b = NULL;
    uint64_t tickets[2] = {0, 0}, last = 0;
    fill(first, N);
    fill(second, N);
    check(!a.calls->buffer_create(a.device, sizeof first, &on_a, &error), "copies", error.message);
    check(!b.calls->buffer_create(b.device, sizeof first, &on_b, &error), "copies", error.message);
    check(!transfers->upload(a.device, on_a, 0, first, sizeof first, &tickets[0], &error), "copies", error.message);
    check(!transfers->upload(a.device, on_a, 0, second, sizeof first, &tickets[1], &error), "copies", error.message);
    check(tickets[1] > tickets[0], "copies", "tickets do not grow");
    check(!a.calls->wait(a.device, tickets[1], INT64_C(60000000000), &error), "copies", error.message);
    check(!transfers->copy(b.device, on_b, 0, a.device, on_a, 0, sizeof first, &tickets[0], &error), "copies", error.message);
    check(!transfers->download(b.device, on_b, 0, back, sizeof first, &last, &error), "copies", error.message);
    check(!b.calls->wait(b.device, last, INT64_C(60000000000), &error), "copies", error.message);
    check(!memcmp(back, second, sizeof back), "copies", "the other core does not have what was uploaded last");
    check(transfers->upload(a.device, on_a, 8, first, sizeof first, &last, &error) == STRATA_PLUGIN_INVALID, "copies",
          "a copy past the end of a buffer was taken");
    a.calls->buffer_destroy(a.device, on_a);
    b.calls->buffer_destroy(b.device, on_b);
    a.calls->close(a.device);
    b.calls->close(b.device);
}

/* ---- the cycle model ---- */

static void take_span(void *user, const strata_plugin_span *span) {
    int64_t *seen = user;
    check(span->begin_ns >= seen[1] && span->end_ns > span->begin_ns, "profile",
          "spans are not in the order of their beginnings");
    seen[0]++;
    seen[1] = span->begin_ns;
}

static double product_cycles(int64_t n, double *out_utilisation) {
    static run r;
    strata_plugin_error error = {.size = sizeof error};
    strata_plugin_cost cost = {.size = sizeof cost};
    sketch_init(&r.s, 1);
    const int a = sketch_value(&r.s, INPUT, STRATA_PLUGIN_BF16, DIMS(n, n)),
              b = sketch_value(&r.s, INPUT, STRATA_PLUGIN_BF16, DIMS(n, n));
    const int c = sketch_value(&r.s, OUTPUT, STRATA_PLUGIN_BF16, DIMS(n, n));
    sketch_node(&r.s, "matmul", IDS(a, b), c);
    if (!prepare(&r, "costs")) return 0;
    const strata_plugin_costs *costs = r.m.calls->table(r.m.device, "costs");
    check(costs && !costs->program(r.program, &cost, &error), "costs", error.message);
    *out_utilisation = cost.utilisation;
    end(&r);
    return cost.cycles;
}

static void cycles_grow_and_stay_under_the_roof(void) {
    double before = 0, utilisation, utilisation_before = 0;
    for (int64_t n = 128; n <= 2048; n *= 2) {
        const double cycles = product_cycles(n, &utilisation), side = 128, bytes = 3.0 * 2 * (double)(n * n),
                     bytes_a_cycle = 500;
        check(cycles > before && utilisation > utilisation_before, "costs", "a larger product does not use the array better");
        check(cycles >= (double)(n * n * n) / side / side && cycles >= bytes / bytes_a_cycle, "costs",
              "faster than array or HBM allow");
        before = cycles;
        utilisation_before = utilisation;
    }
    check(utilisation > 0.9 && utilisation <= 1, "costs", "a large product leaves the array idle");
}

static void spans_tell_of_runs(void) {
    static run r;
    int64_t seen[2] = {0, 0};
    sketch_init(&r.s, 1);
    const int a = sketch_value(&r.s, INPUT, F32, DIMS(64, 64)), t = sketch_value(&r.s, TEMPORARY, F32, DIMS(64, 64));
    const int c = sketch_value(&r.s, OUTPUT, F32, DIMS(64, 64));
    sketch_node(&r.s, "matmul", IDS(a, a), t);
    sketch_node(&r.s, "exp", IDS(t), c);
    if (!prepare(&r, "profile")) return;
    const strata_plugin_profile *profile = r.m.calls->table(r.m.device, "profile");
    fill(memory(&r, a), 64 * 64);
    carry_out(&r, "profile");
    profile->drain(r.m.device, take_span, seen);
    check(seen[0] == 0, "profile", "there are spans that nobody asked for");
    profile->enable(r.m.device, 1);
    carry_out(&r, "profile");
    profile->drain(r.m.device, take_span, seen);
    check(seen[0] >= 4, "profile", "a run of two steps has no spans of load, matrix, vector and store");
    end(&r);
}

/* ---- invalid pieces ---- */

static void expect_refused(run *r, const char *what, const char *says) {
    strata_plugin_error error;
    r->m = open_machine(plugin, 0);
    r->program = sketch_compile(r->m, &r->s, &error);
    check(!r->program && strstr(error.message, says), what, error.message);
    end(r);
}

static void wrong_pieces_are_refused(void) {
    static run r;
    for (int i = 0; i < 7; i++) {
        sketch_init(&r.s, 1);
        const int x = sketch_value(&r.s, INPUT, F32, DIMS(4, 4)), y = sketch_value(&r.s, OUTPUT, F32, DIMS(4, 4));
        const int node = sketch_node(&r.s, i == 0 ? "fly" : "matmul", IDS(x, x), y);
        if (i == 1) r.s.inputs[node][1] = 99;
        if (i == 2) r.s.dims[x][1] = 5, r.s.values[x].bytes = 80;
        if (i == 3) r.s.values[x].arena_offset = 1 << 20;
        if (i == 4) r.s.values[y].alias_of = y;
        if (i == 5) r.s.values[x].bytes = 3;
        if (i == 6) r.s.values[x].dtype = 77;
        static const char *const says[] = {
            "does not have this op", "does not have", "do not fit", "arena", "alias", "bytes", "dtype"};
        expect_refused(&r, "a wrong piece", says[i]);
    }
    strata_plugin_error error = {.size = sizeof error};
    int32_t n;
    check(plugin->start("cores=0", &n, &error) == STRATA_PLUGIN_INVALID && strstr(error.message, "cores"), "cores=0",
          error.message);
    check(plugin->start("wings=2", &n, &error) == STRATA_PLUGIN_INVALID && strstr(error.message, "wings"), "wings=2",
          error.message);
}

int main(int argc, char **argv) {
    int32_t n = 0;
    char options[64];
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: systolic_test PLUGIN [FORM]\n");
        return 2;
    }
    snprintf(options, sizeof options, "cores=4;patience=0.5%s%s", argc > 2 ? ";form=" : "", argc > 2 ? argv[2] : "");
    plugin = load_plugin(argv[1], options, &n);
    check(n == CORES, "start", "there are not as many devices as cores");
    for (int flags = 0; flags < 8; flags++) {
        products_equal_sums_of_bf16(1, 1, 1, 1, flags);
        products_equal_sums_of_bf16(13, 129, 35, 1, flags);
        products_equal_sums_of_bf16(97, 300, 70, 2, flags);
        products_equal_sums_of_bf16(5, 4099, 6, 1, flags);
    }
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++)
        for (int which = 0; which < 3; which++) convolutions_equal_sums_of_bf16(&conv_cases[i], which);
    the_worst_case_is_reached_and_cutting_bits_off_breaks_it();
    the_probable_bound_finds_wrong_arrays();
    a_chain_is_one_step_of_its_parts();
    random_bits_are_philox();
    runs_of_one_call_follow_each_other();
    cores_get_the_same_bits();
    a_core_that_does_not_come_is_named();
    a_lost_core_ends_the_others_waits();
    copies_come_in_their_order();
    cycles_grow_and_stay_under_the_roof();
    spans_tell_of_runs();
    wrong_pieces_are_refused();
    printf("%d checks, %d failed\n", checks, failures);
    return failures != 0;
}
