/* SPDX-License-Identifier: Apache-2.0
 *
 * An interpreter of the StableHLO that Strata generates, and of no other: each op is on one line in generic form, in the
 * order of evaluation (backends/pjrt/hlo.c). It evaluates one op after the other with simple loops over arrays, so it is
 * slow. Floats are rounded to their type after each op, but sums are computed in double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "strata/tensor.h"

enum { MOST_OPERANDS = 32, MOST_NUMBERS = 16 };

typedef union cell {
    double f;
    uint64_t u;
} cell;

typedef struct value {
    tensor_type type;
    cell *cells;
} value;

typedef struct op op;
typedef void evaluate(const op *o, const value *const *x, value *y);

struct op {
    evaluate *evaluate;
    char name[32], attributes[1024];
    /* The op that the region of a reduction applies. "return": the region returns its second operand. */
    char fold[32];
    /* The elements of a constant as text, which is a part of the program's text. */
    const char *elements;
    int operands[MOST_OPERANDS], n_operands;
    tensor_type type;
};

typedef struct code {
    op *ops;
    int n_ops;
    int *results, n_results;
} code;

static int is_float(element_type type) {
    return type <= BF16;
}

/* Converts a number to what the type can represent. */
static cell fit(element_type type, cell c) {
    switch (type) {
        case F32:
            return (cell){.f = (double)(float)c.f};
        case F16:
            return (cell){.f = (double)strata_f16_to_f32(strata_f16_from_f32((float)c.f))};
        case BF16:
            return (cell){.f = (double)strata_bf16_to_f32(strata_bf16_from_f32((float)c.f))};
        case I32:
            return (cell){.u = (uint64_t)(int64_t)(int32_t)c.u};
        case UI32:
            return (cell){.u = c.u & UINT32_MAX};
        case UI8:
            return (cell){.u = c.u & UINT8_MAX};
        case I1:
            return (cell){.u = c.u & 1};
        default:
            return c;
    }
}

static int is_signed(element_type type) {
    return type == I32 || type == I64;
}

/* ---- attributes ---- */

/* Reads the numbers after "name = " in the attributes. Returns how many there are. */
static int numbers(const op *o, const char *name, int64_t out[MOST_NUMBERS]) {
    char key[64];
    snprintf(key, sizeof key, "%s = ", name);
    const char *at = strstr(o->attributes, key);
    int n = 0, depth = 0;
    if (!at) return 0;
    at += strlen(key);
    if (!strncmp(at, "array<i64", 9)) at += 9;
    for (; *at && n < MOST_NUMBERS; at++) {
        if (*at == '[') depth++;
        if (*at == ']' && --depth == 0) break;
        if (*at == '>' || (*at == ',' && !depth && !strchr("-0123456789", at[2]))) break;
        if (*at == ' ' && at[1] == ':') break;
        if (*at == '-' || (*at >= '0' && *at <= '9')) {
            char *end;
            out[n++] = strtoll(at, &end, 10);
            at = end - 1;
        }
    }
    return n;
}

static int64_t number(const op *o, const char *name) {
    int64_t out[MOST_NUMBERS] = {0};
    numbers(o, name, out);
    return out[0];
}

/* ---- index arithmetic ---- */

static void strides_of(const tensor_type *type, int64_t *strides) {
    int64_t n = 1;
    for (int d = type->rank - 1; d >= 0; d--) {
        strides[d] = n;
        n *= type->dims[d];
    }
}

static void index_of(const tensor_type *type, int64_t at, int64_t *index) {
    for (int d = type->rank - 1; d >= 0; d--) {
        index[d] = at % type->dims[d];
        at /= type->dims[d];
    }
}

/* ---- element by element ---- */

static double unary_float(const char *name, double x) {
    const struct {
        const char *name;
        double value;
    } rows[] = {{"negate", -x},
                {"abs", fabs(x)},
                {"sign", isnan(x) ? x : (x > 0) - (x < 0)},
                {"exponential", exp(x)},
                {"sine", sin(x)},
                {"cosine", cos(x)},
                {"exponential_minus_one", expm1(x)},
                {"log", log(x)},
                {"log_plus_one", log1p(x)},
                {"sqrt", sqrt(x)},
                {"rsqrt", 1 / sqrt(x)},
                {"tanh", tanh(x)},
                {"logistic", 1 / (1 + exp(-x))},
                {"cosine", cos(x)},
                {"sine", sin(x)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name)) return rows[i].value;
    return (double)NAN;
}

static uint64_t unary_integer(const char *name, uint64_t x) {
    if (!strcmp(name, "not")) return ~x;
    if (!strcmp(name, "negate")) return 0 - x;
    if (!strcmp(name, "abs")) return (int64_t)x < 0 ? 0 - x : x;
    return (uint64_t)(((int64_t)x > 0) - ((int64_t)x < 0));
}

static void unary(const op *o, const value *const *x, value *y) {
    for (int64_t i = 0; i < n_elements(&y->type); i++)
        y->cells[i] = fit(y->type.type, is_float(y->type.type) ? (cell){.f = unary_float(o->name, x[0]->cells[i].f)}
                                                               : (cell){.u = unary_integer(o->name, x[0]->cells[i].u)});
}

static cell combine(const char *name, element_type type, cell a, cell b) {
    const char c = name[0];
    cell y = {.u = 0};
    if (is_float(type)) {
        const double u = a.f, v = b.f;
        y.f = c == 'a'                    ? u + v
              : c == 's'                  ? u - v
              : !strcmp(name, "multiply") ? u * v
              : c == 'd'                  ? u / v
              : c == 'p'                  ? pow(u, v)
              : isnan(u) || isnan(v)      ? (double)NAN
              : !strcmp(name, "minimum")  ? (v < u ? v : u)
                                          : (v > u ? v : u);
        return fit(type, y);
    }
    const uint64_t u = a.u, v = b.u;
    const int less = is_signed(type) ? (int64_t)u < (int64_t)v : u < v;
    if (!strcmp(name, "add")) y.u = u + v;
    if (!strcmp(name, "subtract")) y.u = u - v;
    if (!strcmp(name, "multiply")) y.u = u * v;
    if (!strcmp(name, "divide") && v) y.u = is_signed(type) ? (uint64_t)((int64_t)u / (int64_t)v) : u / v;
    if (!strcmp(name, "minimum")) y.u = less ? u : v;
    if (!strcmp(name, "maximum")) y.u = less ? v : u;
    if (!strcmp(name, "and")) y.u = u & v;
    if (!strcmp(name, "or")) y.u = u | v;
    if (!strcmp(name, "xor")) y.u = u ^ v;
    if (!strcmp(name, "shift_left")) y.u = v < 64 ? u << v : 0;
    if (!strcmp(name, "shift_right_logical")) y.u = v < 64 ? u >> v : 0;
    return fit(type, y);
}

static void binary(const op *o, const value *const *x, value *y) {
    for (int64_t i = 0; i < n_elements(&y->type); i++)
        y->cells[i] = combine(o->name, y->type.type, x[0]->cells[i], x[1]->cells[i]);
}

static void compare(const op *o, const value *const *x, value *y) {
    const char *direction = strstr(o->attributes, "<comparison_direction ") + strlen("<comparison_direction ");
    const element_type type = x[0]->type.type;
    for (int64_t i = 0; i < n_elements(&y->type); i++) {
        const cell a = x[0]->cells[i], b = x[1]->cells[i];
        const int less = is_float(type) ? a.f < b.f : is_signed(type) ? (int64_t)a.u < (int64_t)b.u : a.u < b.u;
        const int equal = is_float(type) ? a.f == b.f : a.u == b.u;
        const int more = is_float(type) ? a.f > b.f : !less && !equal;
        int is = direction[0] == 'L' ? less : direction[0] == 'G' ? more : equal;
        if (!strncmp(direction, "NE", 2)) is = !equal;
        if (direction[0] != 'N' && direction[0] != 'E' && direction[1] == 'E') is = is || equal;
        y->cells[i].u = (uint64_t)is;
    }
}

static void choose(const op *o, const value *const *x, value *y) {
    (void)o;
    for (int64_t i = 0; i < n_elements(&y->type); i++) y->cells[i] = x[x[0]->cells[i].u ? 1 : 2]->cells[i];
}

static void convert(const op *o, const value *const *x, value *y) {
    (void)o;
    const element_type from = x[0]->type.type, to = y->type.type;
    for (int64_t i = 0; i < n_elements(&y->type); i++) {
        cell c = x[0]->cells[i];
        if (is_float(from) && !is_float(to)) {
            const double v = c.f;
            c.u = v != v || fabs(v) >= 0x1p63 ? 0 : (uint64_t)(int64_t)v;
        } else if (!is_float(from) && is_float(to)) {
            c.f = is_signed(from) ? (double)(int64_t)c.u : (double)c.u;
        }
        y->cells[i] = fit(to, c);
    }
}

/* Converts between i32 and ui32. */
static void same_elements(const op *o, const value *const *x, value *y) {
    (void)o;
    for (int64_t i = 0; i < n_elements(&y->type); i++) y->cells[i] = fit(y->type.type, x[0]->cells[i]);
}

/* ---- copying elements to other positions ---- */

static cell load(element_type type, const void *data, int64_t index) {
    const char *at = (const char *)data + (size_t)index * element_bytes(type);
    int32_t narrow;
    cell c = {.u = 0};
    if (is_float(type)) return (cell){.f = strata_element_get((strata_dtype)type, data, index)};
    if (type == I32) {
        memcpy(&narrow, at, sizeof narrow);
        c.u = (uint64_t)(int64_t)narrow;
    } else {
        memcpy(&c.u, at, element_bytes(type)); /* little-endian */
    }
    return c;
}

static void store(element_type type, void *data, int64_t index, cell c) {
    if (is_float(type))
        strata_element_set((strata_dtype)type, data, index, c.f);
    else
        memcpy((char *)data + (size_t)index * element_bytes(type), &c.u, element_bytes(type));
}

static cell parse_number(element_type type, const char *text) {
    cell c = {.u = 0};
    if (is_float(type)) {
        const uint32_t bits = (uint32_t)strtoul(text, NULL, 16);
        c = load(type, &bits, 0);
    } else if (type == I1) {
        c.u = *text == 't';
    } else {
        c.u = *text == '-' ? (uint64_t)strtoll(text, NULL, 10) : strtoull(text, NULL, 10);
    }
    return fit(type, c);
}

/* A constant is either one number for all elements, or a string of hexadecimal digits with the bytes of all elements. */
static void constant(const op *o, const value *const *x, value *y) {
    (void)x;
    const int64_t n = n_elements(&y->type);
    const size_t bytes = element_bytes(y->type.type);
    for (int64_t i = 0; i < n; i++) {
        if (o->elements[0] != '"') {
            y->cells[i] = i ? y->cells[0] : parse_number(y->type.type, o->elements);
            continue;
        }
        unsigned char data[8];
        for (size_t k = 0; k < bytes; k++) {
            const char *digits = o->elements + 3 + 2 * ((size_t)i * bytes + k);
            data[k] = (unsigned char)strtoul((char[]){digits[0], digits[1], 0}, NULL, 16);
        }
        y->cells[i] = load(y->type.type, data, 0);
    }
}

static void iota(const op *o, const value *const *x, value *y) {
    (void)x;
    const int64_t axis = number(o, "iota_dimension");
    for (int64_t i = 0; i < n_elements(&y->type); i++) {
        int64_t index[MOST_RANK];
        index_of(&y->type, i, index);
        y->cells[i] = is_float(y->type.type) ? (cell){.f = (double)index[axis]} : (cell){.u = (uint64_t)index[axis]};
    }
}

/* Every element of y is an element of x. A place function computes the position in x, for each axis of x, from the index in
 * y. */
typedef int64_t place(const op *o, const int64_t *numbers, const int64_t *index, int d, const value *const *x);

static void pick(const op *o, const char *attribute, place *where, const value *const *x, value *y) {
    int64_t given[MOST_NUMBERS] = {0}, strides[MOST_RANK];
    numbers(o, attribute, given);
    strides_of(&x[0]->type, strides);
    for (int64_t i = 0; i < n_elements(&y->type); i++) {
        int64_t index[MOST_RANK], at = 0;
        index_of(&y->type, i, index);
        for (int d = 0; d < x[0]->type.rank; d++) at += where(o, given, index, d, x) * strides[d];
        y->cells[i] = x[0]->cells[at];
    }
}

static int64_t broadcast_place(const op *o, const int64_t *axes, const int64_t *index, int d, const value *const *x) {
    (void)o;
    return x[0]->type.dims[d] == 1 ? 0 : index[axes[d]];
}
static void broadcast(const op *o, const value *const *x, value *y) {
    pick(o, "broadcast_dimensions", broadcast_place, x, y);
}

static int64_t transpose_place(const op *o, const int64_t *axes, const int64_t *index, int d, const value *const *x) {
    int k = 0;
    (void)o;
    while (axes[k] != d && k < x[0]->type.rank) k++;
    return index[k];
}
static void transpose(const op *o, const value *const *x, value *y) {
    pick(o, "permutation", transpose_place, x, y);
}

static int64_t slice_place(const op *o, const int64_t *begins, const int64_t *index, int d, const value *const *x) {
    int64_t strides[MOST_NUMBERS];
    (void)x;
    numbers(o, "strides", strides);
    return begins[d] + index[d] * strides[d];
}
static void slice(const op *o, const value *const *x, value *y) {
    pick(o, "start_indices", slice_place, x, y);
}

static int64_t reverse_place(const op *o, const int64_t *axes, const int64_t *index, int d, const value *const *x) {
    int64_t all[MOST_NUMBERS];
    const int n = numbers(o, "dimensions", all);
    for (int k = 0; k < n; k++)
        if (axes[k] == d) return x[0]->type.dims[d] - 1 - index[d];
    return index[d];
}
static void reverse(const op *o, const value *const *x, value *y) {
    pick(o, "dimensions", reverse_place, x, y);
}

static int64_t dynamic_place(const op *o, const int64_t *sizes, const int64_t *index, int d, const value *const *x) {
    (void)o;
    const int64_t most = x[0]->type.dims[d] - sizes[d], begin = (int64_t)x[1 + d]->cells[0].u;
    return (begin < 0 ? 0 : begin > most ? most : begin) + index[d];
}
static void dynamic_slice(const op *o, const value *const *x, value *y) {
    pick(o, "slice_sizes", dynamic_place, x, y);
}

static void pad(const op *o, const value *const *x, value *y) {
    int64_t low[MOST_NUMBERS], between[MOST_NUMBERS], strides[MOST_RANK];
    numbers(o, "edge_padding_low", low);
    numbers(o, "interior_padding", between);
    strides_of(&x[0]->type, strides);
    for (int64_t i = 0; i < n_elements(&y->type); i++) {
        int64_t index[MOST_RANK], at = 0;
        int inside = 1;
        index_of(&y->type, i, index);
        for (int d = 0; d < y->type.rank; d++) {
            const int64_t from = index[d] - low[d], step = between[d] + 1;
            inside = inside && from >= 0 && from % step == 0 && from / step < x[0]->type.dims[d];
            at += from / step * strides[d];
        }
        y->cells[i] = inside ? x[0]->cells[at] : x[1]->cells[0];
    }
}

static void concatenate(const op *o, const value *const *x, value *y) {
    const int64_t axis = number(o, "dimension");
    for (int64_t i = 0; i < n_elements(&y->type); i++) {
        int64_t index[MOST_RANK], strides[MOST_RANK], at = 0;
        int k = 0;
        index_of(&y->type, i, index);
        for (; k < o->n_operands - 1 && index[axis] >= x[k]->type.dims[axis]; k++) index[axis] -= x[k]->type.dims[axis];
        strides_of(&x[k]->type, strides);
        for (int d = 0; d < y->type.rank; d++) at += index[d] * strides[d];
        y->cells[i] = x[k]->cells[at];
    }
}

/* ---- reductions ---- */

/* Sums of floats are computed in double. */
static cell fold(const op *o, element_type type, cell a, cell b) {
    if (!strcmp(o->fold, "return")) return b;
    if (is_float(type) && !strcmp(o->fold, "add")) return (cell){.f = a.f + b.f};
    return combine(o->fold, type, a, b);
}

static void round_all(value *y) {
    for (int64_t i = 0; i < n_elements(&y->type); i++) y->cells[i] = fit(y->type.type, y->cells[i]);
}

static void reduce(const op *o, const value *const *x, value *y) {
    int64_t axes[MOST_NUMBERS], strides[MOST_RANK];
    const int n = numbers(o, "dimensions", axes);
    strides_of(&y->type, strides);
    for (int64_t i = 0; i < n_elements(&y->type); i++) y->cells[i] = x[1]->cells[0];
    for (int64_t i = 0; i < n_elements(&x[0]->type); i++) {
        int64_t index[MOST_RANK], at = 0;
        index_of(&x[0]->type, i, index);
        for (int d = 0, to = 0; d < x[0]->type.rank; d++) {
            int folded = 0;
            for (int k = 0; k < n; k++) folded = folded || axes[k] == d;
            if (!folded) at += index[d] * strides[to++];
        }
        y->cells[at] = fold(o, y->type.type, y->cells[at], x[0]->cells[i]);
    }
    round_all(y);
}

static void reduce_window(const op *o, const value *const *x, value *y) {
    int64_t size[MOST_NUMBERS], step[MOST_NUMBERS], base[MOST_NUMBERS], padding[MOST_NUMBERS], strides[MOST_RANK];
    tensor_type window = {.rank = y->type.rank};
    numbers(o, "window_dimensions", size);
    numbers(o, "window_strides", step);
    numbers(o, "base_dilations", base);
    numbers(o, "padding", padding);
    strides_of(&x[0]->type, strides);
    for (int d = 0; d < window.rank; d++) window.dims[d] = size[d];
    for (int64_t i = 0; i < n_elements(&y->type); i++) {
        int64_t index[MOST_RANK];
        index_of(&y->type, i, index);
        cell sum = x[1]->cells[0];
        for (int64_t k = 0; k < n_elements(&window); k++) {
            int64_t tap[MOST_RANK], at = 0;
            int inside = 1;
            index_of(&window, k, tap);
            for (int d = 0; d < window.rank; d++) {
                const int64_t from = index[d] * step[d] + tap[d] - padding[2 * d];
                inside = inside && from >= 0 && from % base[d] == 0 && from / base[d] < x[0]->type.dims[d];
                at += from / base[d] * strides[d];
            }
            if (inside) sum = fold(o, y->type.type, sum, x[0]->cells[at]);
        }
        y->cells[i] = sum;
    }
    round_all(y);
}

/* It does not read the two regions. In Strata's programs the first one selects the larger operand, or a NaN, and the second
 * one adds. */
static void select_and_scatter(const op *o, const value *const *x, value *y) {
    int64_t size[MOST_NUMBERS], step[MOST_NUMBERS], strides[MOST_RANK];
    tensor_type window = {.rank = y->type.rank};
    numbers(o, "window_dimensions", size);
    numbers(o, "window_strides", step);
    strides_of(&y->type, strides);
    for (int d = 0; d < window.rank; d++) window.dims[d] = size[d];
    for (int64_t i = 0; i < n_elements(&y->type); i++) y->cells[i] = x[2]->cells[0];
    for (int64_t i = 0; i < n_elements(&x[1]->type); i++) {
        int64_t index[MOST_RANK], best = -1;
        index_of(&x[1]->type, i, index);
        for (int64_t k = 0; k < n_elements(&window); k++) {
            int64_t tap[MOST_RANK], at = 0;
            index_of(&window, k, tap);
            for (int d = 0; d < window.rank; d++) at += (index[d] * step[d] + tap[d]) * strides[d];
            const double v = x[0]->cells[at].f, most = best < 0 ? 0 : x[0]->cells[best].f;
            if (best < 0 || !(most >= v || most != most)) best = at;
        }
        y->cells[best].f += x[1]->cells[i].f;
    }
    round_all(y);
}

/* ---- products ---- */

/* a has the axes (batch, free, k) and b (batch, k, free), with the strides of each. */
static void dot_general(const op *o, const value *const *x, value *y) {
    int64_t batch[MOST_NUMBERS], contract[2][MOST_NUMBERS], strides[2][MOST_RANK];
    const int n_batch = numbers(o, "lhs_batching_dimensions", batch);
    numbers(o, "lhs_contracting_dimensions", contract[0]);
    numbers(o, "rhs_contracting_dimensions", contract[1]);
    for (int s = 0; s < 2; s++) strides_of(&x[s]->type, strides[s]);
    const int64_t n = x[0]->type.dims[contract[0][0]];
    const int64_t steps[] = {strides[0][contract[0][0]], strides[1][contract[1][0]]};
    for (int64_t i = 0; i < n_elements(&y->type); i++) {
        int64_t index[MOST_RANK], at[2] = {0, 0};
        int axis = 0;
        index_of(&y->type, i, index);
        for (; axis < n_batch; axis++)
            for (int s = 0; s < 2; s++) at[s] += index[axis] * strides[s][axis];
        for (int s = 0; s < 2; s++)
            for (int d = n_batch; d < x[s]->type.rank; d++)
                if (d != contract[s][0]) at[s] += index[axis++] * strides[s][d];
        const cell *a = x[0]->cells + at[0], *b = x[1]->cells + at[1];
        double sum = 0;
        for (int64_t k = 0; k < n; k++) sum += a[k * steps[0]].f * b[k * steps[1]].f;
        y->cells[i] = fit(F32, (cell){.f = sum});
    }
}

/* The axes of an operand or of the result in a text such as "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]": the two axes that
 * letters name, and the two axes of the image. */
typedef struct conv_axes {
    int first, second, spatial[2];
} conv_axes;

static conv_axes read_axes(const char *text, char first, char second) {
    conv_axes axes = {0};
    int axis = 0;
    for (; *text && *text != ']'; text++) {
        if (*text == first)
            axes.first = axis++;
        else if (*text == second)
            axes.second = axis++;
        else if (*text == '0' || *text == '1')
            axes.spatial[*text - '0'] = axis++;
    }
    return axes;
}

static void convolution(const op *o, const value *const *x, value *y) {
    const char *text = strstr(o->attributes, "conv<");
    const conv_axes in = read_axes(text, 'b', 'f'), kernel = read_axes(strchr(text, 'x'), 'i', 'o');
    const conv_axes out = read_axes(strstr(text, "->"), 'b', 'f');
    int64_t step[MOST_NUMBERS], padding[MOST_NUMBERS], base[MOST_NUMBERS], spread[MOST_NUMBERS], strides[2][MOST_RANK];
    numbers(o, "window_strides", step);
    numbers(o, "padding", padding);
    numbers(o, "lhs_dilation", base);
    numbers(o, "rhs_dilation", spread);
    const int64_t groups = number(o, "feature_group_count"), batches = number(o, "batch_group_count");
    for (int s = 0; s < 2; s++) strides_of(&x[s]->type, strides[s]);
    const int64_t depth = x[1]->type.dims[kernel.first], features = x[1]->type.dims[kernel.second];
    const int64_t kh = x[1]->type.dims[kernel.spatial[0]], kw = x[1]->type.dims[kernel.spatial[1]];
    for (int64_t i = 0; i < n_elements(&y->type); i++) {
        int64_t index[MOST_RANK];
        index_of(&y->type, i, index);
        const int64_t f = index[out.second];
        int64_t image = index[out.first], first_channel = f / (features / groups) * depth;
        if (batches > 1) {
            image += f / (features / batches) * (x[0]->type.dims[in.first] / batches);
            first_channel = 0;
        }
        double sum = 0;
        for (int64_t k = 0; k < kh * kw; k++) {
            const int64_t tap[] = {k / kw, k % kw};
            int64_t at = image * strides[0][in.first] + first_channel * strides[0][in.second];
            int64_t weight = f * strides[1][kernel.second];
            int inside = 1;
            for (int d = 0; d < 2; d++) {
                const int64_t from = index[out.spatial[d]] * step[d] + tap[d] * spread[d] - padding[2 * d];
                inside = inside && from >= 0 && from % base[d] == 0 && from / base[d] < x[0]->type.dims[in.spatial[d]];
                at += from / base[d] * strides[0][in.spatial[d]];
                weight += tap[d] * strides[1][kernel.spatial[d]];
            }
            for (int64_t c = 0; c < depth && inside; c++)
                sum += x[0]->cells[at + c * strides[0][in.second]].f * x[1]->cells[weight + c * strides[1][kernel.first]].f;
        }
        y->cells[i] = fit(F32, (cell){.f = sum});
    }
}

/* ---- gather and scatter ---- */

/* Divides the index `at` of y (or of the updates) into the number of the index that it belongs to and the position in x
 * without the axis of the indices. */
static int64_t rest_of(const op *o, const char *window_axes, const tensor_type *type, const tensor_type *x, int axis,
                       int64_t at, int64_t *out_index) {
    int64_t index[MOST_RANK], window[MOST_NUMBERS], strides[MOST_RANK], place = 0;
    const int n = numbers(o, window_axes, window);
    strides_of(x, strides);
    index_of(type, at, index);
    *out_index = 0;
    for (int d = 0, k = 0, to = 0; d < type->rank; d++) {
        if (k < n && window[k] == d) {
            if (to == axis) to++;
            place += index[d] * strides[to++];
            k++;
        } else {
            *out_index = *out_index * type->dims[d] + index[d];
        }
    }
    return place;
}

static void gather(const op *o, const value *const *x, value *y) {
    const int axis = (int)number(o, "collapsed_slice_dims");
    int64_t strides[MOST_RANK], of;
    strides_of(&x[0]->type, strides);
    for (int64_t i = 0; i < n_elements(&y->type); i++) {
        const int64_t rest = rest_of(o, "offset_dims", &y->type, &x[0]->type, axis, i, &of);
        const int64_t row = (int64_t)x[1]->cells[of].u, last = x[0]->type.dims[axis] - 1;
        y->cells[i] = x[0]->cells[rest + (row < 0 ? 0 : row > last ? last : row) * strides[axis]];
    }
}

static void scatter(const op *o, const value *const *x, value *y) {
    const int axis = (int)number(o, "inserted_window_dims");
    int64_t strides[MOST_RANK], of;
    strides_of(&x[0]->type, strides);
    for (int64_t i = 0; i < n_elements(&y->type); i++) y->cells[i] = x[0]->cells[i];
    for (int64_t i = 0; i < n_elements(&x[2]->type); i++) {
        const int64_t rest = rest_of(o, "update_window_dims", &x[2]->type, &y->type, axis, i, &of);
        const int64_t row = (int64_t)x[1]->cells[of].u;
        if (row < 0 || row >= y->type.dims[axis]) continue;
        cell *to = &y->cells[rest + row * strides[axis]];
        *to = fold(o, y->type.type, *to, x[2]->cells[i]);
    }
    round_all(y);
}

/* ---- the program ---- */

static const struct {
    const char *name;
    evaluate *evaluate;
} table[] = {{"constant", constant},
             {"iota", iota},
             {"negate", unary},
             {"abs", unary},
             {"sign", unary},
             {"exponential", unary},
             {"sine", unary},
             {"cosine", unary},
             {"exponential_minus_one", unary},
             {"log", unary},
             {"log_plus_one", unary},
             {"sqrt", unary},
             {"rsqrt", unary},
             {"tanh", unary},
             {"logistic", unary},
             {"cosine", unary},
             {"sine", unary},
             {"not", unary},
             {"add", binary},
             {"subtract", binary},
             {"multiply", binary},
             {"divide", binary},
             {"power", binary},
             {"minimum", binary},
             {"maximum", binary},
             {"and", binary},
             {"or", binary},
             {"xor", binary},
             {"shift_left", binary},
             {"shift_right_logical", binary},
             {"compare", compare},
             {"select", choose},
             {"convert", convert},
             {"bitcast_convert", same_elements},
             {"reshape", same_elements},
             {"broadcast_in_dim", broadcast},
             {"transpose", transpose},
             {"slice", slice},
             {"reverse", reverse},
             {"dynamic_slice", dynamic_slice},
             {"pad", pad},
             {"concatenate", concatenate},
             {"reduce", reduce},
             {"reduce_window", reduce_window},
             {"select_and_scatter", select_and_scatter},
             {"dot_general", dot_general},
             {"convolution", convolution},
             {"gather", gather},
             {"scatter", scatter}};

/* "%7" is the value n_parameters + 7, and "%arg2" is the value 2. */
static int read_operands(const char **at, int n_parameters, int out[], int most) {
    int n = 0;
    for (; **at && **at != ')'; ++*at) {
        if (**at != '%') continue;
        const int is_argument = !strncmp(*at, "%arg", 4);
        if (n == most) return -1;
        out[n++] = (int)strtol(*at + (is_argument ? 4 : 1), NULL, 10) + (is_argument ? 0 : n_parameters);
    }
    return n;
}

/* Reads the op whose name follows `"stablehlo.`. Returns 1 when the interpreter does not have the op. */
static int read_op(const char *at, int n_parameters, op *o) {
    const size_t n = strcspn(at, "\"");
    snprintf(o->name, sizeof o->name, "%.*s", (int)n, at);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, o->name)) o->evaluate = table[i].evaluate;
    at += n + 2;
    o->n_operands = read_operands(&at, n_parameters, o->operands, MOST_OPERANDS);
    if (!o->evaluate || o->n_operands < 0 || !*at++) return 1;
    if (!strncmp(at, " ({", 3)) {
        const char *inner = strstr(at, "\"stablehlo."), *end = strstr(at, "\n    })");
        if (!inner || !end) return 1;
        snprintf(o->fold, sizeof o->fold, "%.*s", (int)strcspn(inner + 11, "\""), inner + 11);
        at = end + strlen("\n    })");
    }
    if (!strncmp(at, " {value = dense<", 16)) {
        o->elements = at + 16;
    } else if (!strncmp(at, " {", 2)) {
        const char *end = strchr(at, '}');
        if (!end || (size_t)(end - at) >= sizeof o->attributes) return 1;
        snprintf(o->attributes, sizeof o->attributes, "%.*s", (int)(end - at), at);
    }
    const char *arrow = strstr(at, ") -> ");
    if (!arrow) return 1;
    arrow += 5;
    return read_type(&arrow, &o->type);
}

static void destroy(program *p) {
    code *c = p->compiled;
    free(c->ops);
    free(c->results);
    free(c);
    p->compiled = NULL;
}

static int compile(program *p, char message[MESSAGE_BYTES]) {
    code *c = calloc(1, sizeof *c);
    int n = 0;
    for (const char *at = p->text; (at = strstr(at, "\n    %")); at++) n++;
    if (c) {
        c->ops = calloc((size_t)n + 1, sizeof *c->ops);
        c->results = calloc((size_t)p->n_results + 1, sizeof *c->results);
    }
    if (!c || !c->ops || !c->results) abort();
    p->compiled = c;
    for (const char *at = p->text; (at = strstr(at, "\n    %")); at++) {
        const char *name = strstr(at, "\"stablehlo.");
        op *o = &c->ops[c->n_ops++];
        if (name && !read_op(name + 11, p->n_parameters, o)) continue;
        snprintf(message, MESSAGE_BYTES, "the interpreter does not know this: %.200s", at + 1);
        destroy(p);
        return 1;
    }
    const char *last = strstr(p->text, "\"func.return\"(");
    c->n_results = last ? read_operands(&last, p->n_parameters, c->results, p->n_results) : -1;
    if (c->n_results == p->n_results) return 0;
    snprintf(message, MESSAGE_BYTES, "the program's results cannot be read");
    destroy(p);
    return 1;
}

static int run(program *p, const void *const *arguments, void *const *results, char message[MESSAGE_BYTES]) {
    const code *c = p->compiled;
    const int n = p->n_parameters + c->n_ops;
    (void)message;
    value *values = calloc((size_t)n + 1, sizeof *values);
    if (!values) abort();
    for (int i = 0; i < n; i++) {
        values[i].type = i < p->n_parameters ? p->parameters[i] : c->ops[i - p->n_parameters].type;
        values[i].cells = calloc((size_t)n_elements(&values[i].type) + 1, sizeof(cell));
        if (!values[i].cells) abort();
    }
    for (int i = 0; i < p->n_parameters; i++)
        for (int64_t k = 0; k < n_elements(&values[i].type); k++)
            values[i].cells[k] = load(values[i].type.type, arguments[i], k);
    for (int i = 0; i < c->n_ops; i++) {
        const value *x[MOST_OPERANDS];
        for (int k = 0; k < c->ops[i].n_operands; k++) x[k] = &values[c->ops[i].operands[k]];
        c->ops[i].evaluate(&c->ops[i], x, &values[p->n_parameters + i]);
    }
    for (int i = 0; i < p->n_results; i++)
        for (int64_t k = 0; k < n_elements(&p->results[i]); k++)
            store(p->results[i].type, results[i], k, values[c->results[i]].cells[k]);
    for (int i = 0; i < n; i++) free(values[i].cells);
    free(values);
    return 0;
}

const engine engine_interpreter = {"interpreter", compile, run, destroy};
