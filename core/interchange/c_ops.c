/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the loops of C for each op: a function for each kind of op, and a table at the end. The formulas of element-wise
 * ops are those of strata_node_info. Sums are computed in float, in the same order as on the host. */
#include <math.h>
#include <stdio.h>

#include "core/interchange/c_export.h"

/* ---- templates ---- */

/* What stands for "$name" in a template: a template or, if that is NULL, a number. */
typedef struct value {
    const char *name;
    int64_t number;
    const char *text;
} value;

/* Adds a template with its values, which end at a NULL name. */
static void expand(strata_text *out, const value *values, const char *template, bool nested) {
    for (const char *at = template; *at; at++) {
        const value *v = values;
        if (*at != '$') {
            strata_text_add_bytes(out, at, 1);
            if (*at == '\n' && (at[1] || nested)) strata_text_add(out, "        ");
            continue;
        }
        while (v->name && strncmp(v->name, at + 1, strlen(v->name))) v++;
        if (v->text)
            expand(out, values, v->text, true);
        else
            strata_text_add(out, "%lld", (long long)v->number);
        at += strlen(v->name);
    }
}

/* Adds the lines of a template to the body. */
static void put(strata_c_export *c, const value *values, const char *template) {
    strata_text_add(&c->body, "        ");
    expand(&c->body, values, template, false);
}
#define PUT(c, template, ...) put(c, (const value[]){__VA_ARGS__, {0}}, template)

/* ---- nodes ---- */

static strata_shape shape_in(const strata_tensor *node, int input) {
    return strata_tensor_shape(strata_tensor_node(node).inputs[input]);
}

static strata_dtype dtype_in(const strata_tensor *node, int input) {
    return strata_tensor_dtype(strata_tensor_node(node).inputs[input]);
}

static int64_t number(const strata_tensor *node, const char *attribute) {
    return (int64_t)strata_tensor_attribute(node, attribute, 0);
}

static bool is_float(const strata_tensor *node) {
    return dtype_in(node, 0) == STRATA_DTYPE_F32;
}

/* The product of sizes [begin, end) of a shape. */
static int64_t product(strata_shape shape, int64_t begin, int64_t end) {
    int64_t n = 1;
    for (int64_t d = begin; d < end; d++) n *= shape.dims[d];
    return n;
}

const char *strata_c_type(strata_dtype dtype) {
    static const char *const types[STRATA_DTYPE_COUNT] = {[STRATA_DTYPE_F32] = "float",
                                                          [STRATA_DTYPE_I32] = "int32_t",
                                                          [STRATA_DTYPE_I64] = "int64_t",
                                                          [STRATA_DTYPE_U8] = "uint8_t",
                                                          [STRATA_DTYPE_BOOL] = "uint8_t"};
    return types[dtype];
}

/* Writes a number with as many digits as are needed to read the same number back. A point or an exponent makes it a
 * floating-point literal. */
static void add_number(strata_text *text, double value, int digits, const char *suffix) {
    STRATA_FINISHED_BY(strata_text_finish) strata_text digits_of = {0};
    if (!isfinite(value)) {
        strata_text_add(text, "%s", isnan(value) ? "NAN" : value > 0 ? "INFINITY" : "-INFINITY");
        return;
    }
    strata_text_add(&digits_of, "%.*g", digits, value);
    const char *shown = digits_of.bytes ? digits_of.bytes : "";
    strata_text_add(text, "%s%s%s", shown, strpbrk(shown, ".e") ? "" : ".0", suffix);
    text->failed |= digits_of.failed;
}

void strata_c_add_float(strata_text *text, double value) {
    add_number(text, (double)(float)value, 9, "f");
}

void strata_c_add_double(strata_text *text, double value) {
    add_number(text, value, 17, "");
}

typedef struct literal {
    char text[48];
} literal;

/* A literal of the type. */
static literal literal_of(strata_dtype dtype, double value) {
    literal out = {""};
    STRATA_FINISHED_BY(strata_text_finish) strata_text text = {0};
    if (dtype == STRATA_DTYPE_F32)
        strata_c_add_float(&text, value);
    else
        strata_text_add(&text, "%.0f", value);
    if (text.bytes) snprintf(out.text, sizeof out.text, "%s", text.bytes);
    return out;
}

/* ---- loops over index spaces ---- */

enum { MOST_TENSORS = 4 };
/* Loops over indices i0, i1, ..., with the strides of each tensor. Tensor 0 is the node. */
typedef struct space {
    int rank, n_tensors;
    int64_t sizes[STRATA_MAX_RANK], strides[MOST_TENSORS][STRATA_MAX_RANK];
} space;

/* Sets the strides of a tensor in the loops over `to`, to which it is broadcast. */
static void set_strides(strata_shape from, strata_shape to, int64_t *out) {
    int64_t stride = 1;
    for (int d = to.rank - 1, k = from.rank - 1; d >= 0; d--, k--) {
        const int64_t size = k >= 0 ? from.dims[k] : 1;
        out[d] = size == 1 ? 0 : stride;
        stride *= size;
    }
}

/* Joins axes that are one axis in every tensor, and begins the loops. */
static void open_loops(strata_c_export *c, space *s) {
    int rank = 0;
    for (int d = 0; d < s->rank; d++) {
        bool joins = rank > 0;
        if (s->sizes[d] == 1) continue;
        for (int t = 0; t < s->n_tensors; t++) joins &= rank > 0 && s->strides[t][rank - 1] == s->strides[t][d] * s->sizes[d];
        rank += !joins;
        s->sizes[rank - 1] = joins ? s->sizes[rank - 1] * s->sizes[d] : s->sizes[d];
        for (int t = 0; t < s->n_tensors; t++) s->strides[t][rank - 1] = s->strides[t][d];
    }
    if (!rank) s->sizes[rank++] = 1;
    s->rank = rank;
    strata_text_add(&c->body, "       ");
    for (int d = 0; d < rank; d++)
        strata_text_add(&c->body, " for (int i%d = 0; i%d < %lld; i%d++)", d, d, (long long)s->sizes[d], d);
    strata_text_add(&c->body, " {\n");
}

typedef struct index_text {
    char text[256];
} index_text;

/* The index of the current element in tensor t of the space, as a C expression. */
static index_text index_of(const space *s, int t, int64_t offset) {
    index_text out = {""};
    size_t n = 0;
    for (int d = 0; d < s->rank; d++) {
        const int64_t stride = s->strides[t][d];
        if (!stride || s->sizes[d] == 1) continue;
        const char *plus = n ? " + " : "";
        n += (size_t)(stride == 1 ? snprintf(out.text + n, sizeof out.text - n, "%si%d", plus, d)
                                  : snprintf(out.text + n, sizeof out.text - n, "%si%d * %lld", plus, d, (long long)stride));
    }
    if (offset || !n) snprintf(out.text + n, sizeof out.text - n, "%s%lld", n ? " + " : "", (long long)offset);
    return out;
}

/* Begins the loops over a node, to whose shape its inputs are broadcast, and writes the template, in which $o, $p, $q and $r
 * are the indices in the node and its inputs. */
static void over_elements(strata_c_export *c, const strata_tensor *node, const value *values, const char *template) {
    const strata_shape shape = strata_tensor_shape(node);
    space s = {.rank = shape.rank, .n_tensors = 1 + strata_tensor_node(node).n_inputs};
    memcpy(s.sizes, shape.dims, sizeof s.sizes);
    for (int t = 0; t < s.n_tensors; t++) set_strides(t ? shape_in(node, t - 1) : shape, shape, s.strides[t]);
    open_loops(c, &s);
    index_text indices[MOST_TENSORS] = {{""}};
    value all[MOST_TENSORS + 8] = {{"o", 0, NULL}, {"p", 0, NULL}, {"q", 0, NULL}, {"r", 0, NULL}};
    for (int t = 0; t < MOST_TENSORS; t++) {
        if (t < s.n_tensors) indices[t] = index_of(&s, t, 0);
        all[t].text = indices[t].text;
    }
    for (int i = 0; values[i].name; i++) all[MOST_TENSORS + i] = values[i];
    put(c, all, template);
}
#define OVER(c, node, template, ...) over_elements(c, node, (const value[]){__VA_ARGS__, {0}}, template)

/* ---- element-wise ---- */

/* The definitions of the words in the formulas. A word comes after the words that its definition uses. */
static const struct {
    const char *word, *definition;
} words[] = {{"ABS", "(x) ((x) < 0 ? -(x) : (x))"},
             {"EXPM1", "(x) expm1f(x)"},
             {"LOG1P", "(x) log1pf(x)"},
             {"EXP", "(x) expf(x)"},
             {"LOG", "(x) logf(x)"},
             {"RSQRT", "(x) (1.0f / sqrtf(x))"},
             {"SQRT", "(x) sqrtf(x)"},
             {"TANH", "(x) tanhf(x)"},
             {"SIGMOID", "(x) (1.0f / (1.0f + expf(-(x))))"},
             {"SIN", "(x) sinf(x)"},
             {"COS", "(x) cosf(x)"},
             {"ERF", "(x) erff(x)"},
             {"POW", "(a, b) powf(a, b)"},
             {"MIN", "(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))"},
             {"MAX", "(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))"},
             {"SIGN", "(x) ((x) > 0 ? 1 : (x) < 0 ? -1 : 0)"},
             {"RELU", "(x) ((x) < 0 ? 0 : (x))"},
             {"EQUAL", "(a, b) ((a) == (b))"},
             {"LESS", "(a, b) ((a) < (b))"},
             {"ZERO", " 0"}};

static bool is_used(const char *body, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = body; (at = strstr(at, word)); at += n) {
        const char before = at == body ? ' ' : at[-1], after = at[n];
        if (!strchr("_ABCDEFGHIJKLMNOPQRSTUVWXYZ", before) && (after == '(' || !strcmp(word, "ZERO"))) return true;
    }
    return false;
}

void strata_c_add_words(const strata_text *body, strata_text *out) {
    for (size_t i = 0; body->bytes && i < sizeof words / sizeof *words; i++)
        if (is_used(body->bytes, words[i].word)) strata_text_add(out, "#define %s%s\n", words[i].word, words[i].definition);
}

static bool elementwise(strata_c_export *c, const strata_tensor *node) {
    /* What differs from the formula for floats. */
    static const char *const of_integers[][2] = {
        {"div", "(b == 0 ? 0 : a / b)"}, {"min", "(a < b ? a : b)"}, {"max", "(a > b ? a : b)"}};
    const strata_node_info of = strata_tensor_node(node);
    const char *formula = of.formula;
    for (int i = 0; i < 3 && !is_float(node); i++)
        if (!strcmp(of_integers[i][0], of.op)) formula = of_integers[i][1];
    OVER(c, node,
         of.n_inputs == 1 ? "    const $in x = in0[$p];\n    out[$o] = ($type)($formula);\n}\n"
                          : "    const $in a = in0[$p], b = in1[$q];\n    out[$o] = ($type)($formula);\n}\n",
         {"in", 0, strata_c_type(dtype_in(node, 0))}, {"type", 0, strata_c_type(strata_tensor_dtype(node))},
         {"formula", 0, formula});
    return true;
}

static bool clip(strata_c_export *c, const strata_tensor *node) {
    const strata_dtype dtype = strata_tensor_dtype(node);
    const double low = strata_tensor_attribute(node, "low", 0), high = strata_tensor_attribute(node, "high", 0);
    OVER(c, node, "    $type x = in0[$p];\n$not_below$not_above    out[$o] = x;\n}\n", {"type", 0, strata_c_type(dtype)},
         {"not_below", 0, isfinite(low) ? "    if (x < $least) x = $least;\n" : ""},
         {"not_above", 0, isfinite(high) ? "    if (x > $most) x = $most;\n" : ""}, {"least", 0, literal_of(dtype, low).text},
         {"most", 0, literal_of(dtype, high).text});
    return true;
}

/* An integer that is out of range becomes the nearest one in range, and NaN 0. */
static bool cast(strata_c_export *c, const strata_tensor *node) {
    static const struct {
        const char *least, *most, *below, *above;
    } limits[STRATA_DTYPE_COUNT] = {
        [STRATA_DTYPE_I32] = {"INT32_MIN", "INT32_MAX", "-2147483648.0f", "2147483648.0f"},
        [STRATA_DTYPE_I64] = {"INT64_MIN", "INT64_MAX", "-9223372036854775808.0f", "9223372036854775808.0f"},
        [STRATA_DTYPE_U8] = {"0", "255", "0.0f", "255.0f"}};
    const strata_dtype from = dtype_in(node, 0), to = strata_tensor_dtype(node);
    const bool limited = limits[to].least;
    const char *template = "    const $from x = in0[$p];\n    out[$o] = ($type)x;\n}\n";
    if (to == STRATA_DTYPE_BOOL)
        template = "    const $from x = in0[$p];\n    out[$o] = x != 0;\n}\n";
    else if (limited && strata_dtype_is_float(from))
        template =
            "    const $from x = in0[$p];\n"
            "    out[$o] = x != x ? 0 : x <= $below ? $least : x >= $above ? $most : ($type)x;\n}\n";
    else if (limited && strata_dtype_bytes(to) < strata_dtype_bytes(from))
        template = "    const $from x = in0[$p];\n    out[$o] = x < $least ? $least : x > $most ? $most : ($type)x;\n}\n";
    OVER(c, node, template, {"from", 0, strata_c_type(from)}, {"type", 0, strata_c_type(to)}, {"below", 0, limits[to].below},
         {"above", 0, limits[to].above}, {"least", 0, limits[to].least}, {"most", 0, limits[to].most});
    return true;
}

/* ---- ops that copy elements ---- */

/* Writes the loops for out[target_offset + ...] = in[source_offset + ...]. */
static void copy(strata_c_export *c, int in, strata_shape sizes, const int64_t *target, int64_t target_offset,
                 const int64_t *source, int64_t source_offset) {
    space s = {.rank = sizes.rank, .n_tensors = 2};
    memcpy(s.sizes, sizes.dims, sizeof s.sizes);
    memcpy(s.strides[0], target, sizeof s.strides[0]);
    memcpy(s.strides[1], source, sizeof s.strides[1]);
    open_loops(c, &s);
    PUT(c, "    out[$to] = in$in[$from];\n}\n", {"to", 0, index_of(&s, 0, target_offset).text}, {"in", in, NULL},
        {"from", 0, index_of(&s, 1, source_offset).text});
}

/* The ops that copy all elements of their input, or a part of it, to places of their output. */
static bool move(strata_c_export *c, const strata_tensor *node) {
    const strata_shape x = shape_in(node, 0), y = strata_tensor_shape(node);
    const char *op = strata_tensor_node(node).op;
    int64_t target[STRATA_MAX_RANK] = {0}, strides[STRATA_MAX_RANK] = {0}, source[STRATA_MAX_RANK] = {0}, from = 0, to = 0;
    const bool pads = !strcmp(op, "pad");
    set_strides(y, y, target);
    set_strides(x, x, strides);
    for (int d = 0; d < y.rank; d++) {
        source[d] = strides[!strcmp(op, "transpose") ? (int)strata_tensor_attribute(node, "axes", d) : d];
        from += (int64_t)strata_tensor_attribute(node, "begin", d) * strides[d];
        to += pads ? (int64_t)strata_tensor_attribute(node, "before", d) * product(y, d + 1, y.rank) : 0;
    }
    if (pads)
        PUT(c, "for (int i = 0; i < $n; i++) out[i] = $value;\n", {"n", strata_shape_elements(y), NULL},
            {"value", 0, literal_of(strata_tensor_dtype(node), strata_tensor_attribute(node, "value", 0)).text});
    copy(c, 0, pads ? x : y, target, to, source, from);
    return true;
}

static bool concat(strata_c_export *c, const strata_tensor *node) {
    const strata_shape y = strata_tensor_shape(node);
    const int64_t axis = number(node, "axis");
    int64_t target[STRATA_MAX_RANK] = {0}, source[STRATA_MAX_RANK] = {0}, at = 0;
    set_strides(y, y, target);
    for (int i = 0; i < strata_tensor_node(node).n_inputs; i++) {
        const strata_shape x = shape_in(node, i);
        set_strides(x, x, source);
        copy(c, i, x, target, at * product(y, axis + 1, y.rank), source, 0);
        at += x.dims[axis];
    }
    return true;
}

/* ---- products ---- */

static bool matmul(strata_c_export *c, const strata_tensor *node) {
    const strata_shape a = shape_in(node, 0), b = shape_in(node, 1), y = strata_tensor_shape(node);
    const bool of_a = number(node, "transpose_a"), of_b = number(node, "transpose_b");
    const int64_t m = y.dims[y.rank - 2], n = y.dims[y.rank - 1], k = a.dims[a.rank - (of_a ? 2 : 1)];
    const value sizes[] = {{"batches", product(y, 0, y.rank - 2), NULL},
                           {"matrix_a", a.rank > 2 ? m * k : 0, NULL},
                           {"matrix_b", b.rank > 2 ? k * n : 0, NULL},
                           {"M", m, NULL},
                           {"N", n, NULL},
                           {"K", k, NULL},
                           {"a", 0, of_a ? "a[k * $row_a + m]" : "a[m * $row_a + k]"},
                           {"row_a", a.dims[a.rank - 1], NULL},
                           {"row_b", b.dims[b.rank - 1], NULL},
                           {0}};
    put(c, sizes,
        "for (int batch = 0; batch < $batches; batch++) for (int m = 0; m < $M; m++) {\n"
        "    const float *a = in0 + batch * $matrix_a, *b = in1 + batch * $matrix_b;\n"
        "    float *row = out + (batch * $M + m) * $N;\n");
    if (of_b)
        put(c, sizes,
            "    for (int n = 0; n < $N; n++) {\n"
            "        float sum = 0;\n"
            "        for (int k = 0; k < $K; k++) sum += $a * b[n * $row_b + k];\n"
            "        row[n] = sum;\n"
            "    }\n"
            "}\n");
    else
        put(c, sizes,
            "    for (int n = 0; n < $N; n++) row[n] = 0;\n"
            "    for (int k = 0; k < $K; k++) {\n"
            "        const float factor = $a;\n"
            "        for (int n = 0; n < $N; n++) row[n] += factor * b[k * $row_b + n];\n"
            "    }\n"
            "}\n");
    return true;
}

/* ---- sequences ---- */

static const char *function_of(const strata_tensor *node, const char *attribute) {
    const char *word = strata_tensor_word(node, attribute);
    return !strcmp(word, "relu") ? "RELU" : !strcmp(word, "tanh") ? "TANH" : !strcmp(word, "sigmoid") ? "SIGMOID" : "";
}

/* The sums of the gates are stored in the planes of the gates, where the gates replace them: h c i f g o for an LSTM, and h u r
 * g s2, or q in place of s2, for a GRU. `strata help ops` has the formulas of the op recurrent. */
static bool recurrent(strata_c_export *c, const strata_tensor *node) {
    const char *cell = strata_tensor_word(node, "cell");
    const bool lstm = !strcmp(cell, "lstm"), reset_first = !strcmp(cell, "gru_reset_first");
    const bool mask = strata_tensor_node(node).n_inputs > 3, reverse = number(node, "reverse");
    const strata_shape z = shape_in(node, 0);
    const int64_t u = shape_in(node, 1).dims[0], t = z.dims[1], planes = lstm ? 6 : 5;
    const value v[] = {{"steps", t, NULL},
                       {"last", t - 1, NULL},
                       {"width", z.dims[2], NULL},
                       {"row", planes * u, NULL},
                       {"sums", lstm ? 2 * u : u, NULL},
                       {"early", reset_first ? 2 * u : z.dims[2], NULL},
                       {"2U", 2 * u, NULL},
                       {"3U", 3 * u, NULL},
                       {"4U", 4 * u, NULL},
                       {"5U", 5 * u, NULL},
                       {"U", u, NULL},
                       {"A", 0, function_of(node, "activation")},
                       {"R", 0, function_of(node, "recurrent_activation")},
                       {"reset", 0, reset_first ? "" : "g1 * "},
                       {0}};
    put(c, v, "for (int step = 0; step < $steps; step++) {\n");
    put(c, v, reverse ? "    const int t = $last - step, past = t + 1;\n" : "    const int t = step, past = t - 1;\n");
    put(c, v,
        "    const float *z = in0 + t * $width;\n"
        "    float *now = out + t * $row;\n"
        "    for (int j = 0; j < $width; j++) now[$sums + j] = in2[j];\n"
        "    for (int k = 0; step && k < $U; k++)\n"
        "        for (int j = 0; j < $early; j++) now[$sums + j] += out[past * $row + k] * in1[k * $width + j];\n");
    if (reset_first) /* q is stored in its plane before the last gate's product of it */
        put(c, v,
            "    for (int u = 0; step && u < $U; u++) {\n"
            "        const float a1 = z[$U + u] + now[$2U + u], g1 = $R(a1);\n"
            "        now[$4U + u] = g1 * out[past * $row + u];\n"
            "    }\n"
            "    for (int k = 0; step && k < $U; k++)\n"
            "        for (int j = 0; j < $U; j++) now[$3U + j] += now[$4U + k] * in1[k * $width + $2U + j];\n");
    put(c, v, "    for (int u = 0; u < $U; u++) {\n");
    if (!lstm || mask) put(c, v, "        const float h = step ? out[past * $row + u] : 0;\n");
    if (lstm)
        put(c, v,
            "        const float kept = step ? out[past * $row + $U + u] : 0;\n"
            "        const float a0 = z[0 + u] + now[$2U + u], g0 = $R(a0);\n"
            "        const float a1 = z[$U + u] + now[$3U + u], g1 = $R(a1);\n"
            "        const float a2 = z[$2U + u] + now[$4U + u], g2 = $A(a2);\n"
            "        const float a3 = z[$3U + u] + now[$5U + u], g3 = $R(a3);\n"
            "        const float cell = g1 * kept + g0 * g2;\n"
            "        float state = cell, y = g3 * $A(cell);\n");
    else
        put(c, v, "        const float a0 = z[0 + u] + now[$U + u], g0 = $R(a0);\n");
    if (!lstm && !reset_first) put(c, v, "        const float a1 = z[$U + u] + now[$2U + u], g1 = $R(a1);\n");
    if (!lstm)
        put(c, v,
            "        const float a2 = z[$2U + u] + $resetnow[$3U + u], g2 = $A(a2);\n"
            "        float y = g0 * h + (1 - g0) * g2;\n");
    if (mask) put(c, v, lstm ? "        if (in3[t] == 0) y = h, state = kept;\n" : "        if (in3[t] == 0) y = h;\n");
    put(c, v, lstm ? "        now[u] = y;\n        now[$U + u] = state;\n    }\n}\n" : "        now[u] = y;\n    }\n}\n");
    return z.dims[0] == 1;
}

/* ---- the table ---- */

/* How an op is written: by a function, or by its template, which is written once, or for each element, or once if there is one
 * example. */
typedef enum way { BY_FUNCTION, ONCE, EACH, ONE_EXAMPLE } way;

#define WINDOW(kh, kw)                                                           \
    "        const int h = oh * $step_h + " kh " - $top, w = ow * $step_w + " kw \
    " - $left;\n"                                                                \
    "        if (h < 0 || h >= $in_h || w < 0 || w >= $in_w) continue;\n"
#define CONVOLUTION \
    "for (int i = 0; i < $elements; i++) out[i] = 0;\n"                                                               \
    "for (int oh = 0; oh < $out_h; oh++) for (int ow = 0; ow < $out_w; ow++)\n"                                       \
    "    for (int kh = 0; kh < $kernel_h; kh++) for (int kw = 0; kw < $kernel_w; kw++) {\n" \
    WINDOW("kh * $spread_h", "kw * $spread_w") \
    "        for (int g = 0; g < $groups; g++) for (int k = 0; k < $group_in; k++) {\n"                               \
    "            const float *filter = in1 + ((kh * $kernel_w + kw) * $group_in + k) * $out_c + g * $group_out;\n"    \
    "            const int small = (oh * $out_w + ow) * $out_c + g * $group_out, large = (h * $in_w + w) * $in_c + g" \
    " * $group_in + k;\n"
#define POOL(take, value) \
    "for (int oh = 0; oh < $out_h; oh++) for (int ow = 0; ow < $out_w; ow++) for (int k = 0; k < $out_c; k++) {\n" \
    "    float value = 0;\n"                                                                                       \
    "    int n = 0;\n"                                                                                             \
    "    for (int kh = 0; kh < $kernel_h; kh++) for (int kw = 0; kw < $kernel_w; kw++) {\n" \
    WINDOW("kh", "kw") \
    "        const float v = in0[(h * $in_w + w) * $in_c + k];\n"                                                  \
    "        " take                                                                                                \
    "\n"                                                                                                           \
    "    }\n"                                                                                                      \
    "    out[(oh * $out_w + ow) * $out_c + k] = " value                                                            \
    ";\n"                                                                                                          \
    "}\n"
#define REDUCE(first, take, value)                                          \
    "for (int o = 0; o < $outer; o++) for (int i = 0; i < $inner; i++) {\n" \
    "    $type value = " first                                              \
    ";\n"                                                                   \
    "    for (int k = 0; k < $n; k++) {\n"                                  \
    "        const $type v = in0[(o * $n + k) * $inner + i];\n"             \
    "        " take                                                         \
    "\n"                                                                    \
    "    }\n"                                                               \
    "    out[o * $inner + i] = " value                                      \
    ";\n"                                                                   \
    "}\n"
#define SOFTMAX(kept, sum, result)                                            \
    "for (int r = 0; r < $rows; r++) {\n"                                     \
    "    const float *x = in0 + r * $channels;\n"                             \
    "    float *y = out + r * $channels, most = x[0], sum = 0;\n"             \
    "    for (int k = 1; k < $channels; k++) if (x[k] > most) most = x[k];\n" \
    "    for (int k = 0; k < $channels; k++) {\n"                             \
    "        const float e = expf(x[k] - most);\n"                            \
    "        sum += e;\n"                                                     \
    "        y[k] = " kept                                                    \
    ";\n"                                                                     \
    "    }\n" sum "    for (int k = 0; k < $channels; k++) y[k] " result      \
    ";\n"                                                                     \
    "}\n"

static const struct row {
    const char *op;
    bool (*write)(strata_c_export *c, const strata_tensor *node);
    way way;
    const char *template;
} rows[] = {{"clip", clip, BY_FUNCTION, NULL},
            {"cast", cast, BY_FUNCTION, NULL},
            {"where", NULL, EACH, "    out[$o] = in0[$p] ? in1[$q] : in2[$r];\n}\n"},
            {"broadcast_to", NULL, EACH, "    out[$o] = in0[$p];\n}\n"},
            {"transpose", move, BY_FUNCTION, NULL},
            {"slice", move, BY_FUNCTION, NULL},
            {"pad", move, BY_FUNCTION, NULL},
            {"concat", concat, BY_FUNCTION, NULL},
            /* An index out of range gives zeros. */
            {"gather", NULL, ONCE,
             "for (int o = 0; o < $outer; o++) for (int j = 0; j < $indices; j++) {\n"
             "    const int64_t row = in1[j];\n"
             "    for (int i = 0; i < $inner; i++)\n"
             "        out[(o * $indices + j) * $inner + i] = row >= 0 && row < $n ? in0[(o * $n + row) * $inner + i] : 0;\n"
             "}\n"},
            {"one_hot", NULL, ONCE,
             "for (int i = 0; i < $items; i++) for (int k = 0; k < $depth; k++)\n"
             "    out[i * $depth + k] = in0[i] == k;\n"},
            {"matmul", matmul, BY_FUNCTION, NULL},
            {"conv2d", NULL, ONE_EXAMPLE,
             CONVOLUTION "            for (int f = 0; f < $group_out; f++) out[small + f] += in0[large] * filter[f];\n"
                         "        }\n"
                         "    }\n"},
            {"conv2d_input_grad", NULL, ONE_EXAMPLE,
             CONVOLUTION "            float sum = 0;\n"
                         "            for (int f = 0; f < $group_out; f++) sum += in0[small + f] * filter[f];\n"
                         "            out[large] += sum;\n"
                         "        }\n"
                         "    }\n"},
            {"max_pool2d", NULL, ONE_EXAMPLE, POOL("if (!n++ || v > value || v != v) value = v;", "value")},
            {"avg_pool2d", NULL, ONE_EXAMPLE, POOL("value += v, n++;", "value / (float)n")},
            {"reduce_sum", NULL, ONCE, REDUCE("0", "value += v;", "value")},
            {"reduce_mean", NULL, ONCE, REDUCE("0", "value += v;", "value / $n")},
            {"reduce_max", NULL, ONCE, REDUCE("in0[0]", "if (!k || v > value$or_nan) value = v;", "value")},
            {"reduce_min", NULL, ONCE, REDUCE("in0[0]", "if (!k || v < value$or_nan) value = v;", "value")},
            {"argmax", NULL, ONCE,
             "for (int o = 0; o < $outer; o++) for (int i = 0; i < $inner; i++) {\n"
             "    int best = 0;\n"
             "    for (int k = 1; k < $n; k++) {\n"
             "        const $of most = in0[(o * $n + best) * $inner + i], v = in0[(o * $n + k) * $inner + i];\n"
             "        if ($better) best = k;\n"
             "    }\n"
             "    out[o * $inner + i] = best;\n"
             "}\n"},
            {"softmax", NULL, ONCE, SOFTMAX("e", "", "/= sum")},
            {"log_softmax", NULL, ONCE, SOFTMAX("x[k] - most", "    sum = logf(sum);\n", "-= sum")},
            {"batch_norm", NULL, ONCE,
             "for (int k = 0; k < $channels; k++) {\n"
             "    const float factor = in3[k] / sqrtf(in2[k] + $epsilon);\n"
             "    for (int r = 0; r < $rows; r++)\n"
             "        out[r * $channels + k] = (in0[r * $channels + k] - in1[k]) * factor + in4[k];\n"
             "}\n"},
            {"layer_norm", NULL, ONCE,
             "for (int r = 0; r < $rows; r++) {\n"
             "    const float *x = in0 + r * $channels;\n"
             "    float mean = 0, squares = 0;\n"
             "    for (int k = 0; k < $channels; k++) mean += x[k] / $channels;\n"
             "    for (int k = 0; k < $channels; k++) squares += (x[k] - mean) * (x[k] - mean);\n"
             "    const float factor = 1 / sqrtf(squares / $channels + $epsilon);\n"
             "    for (int k = 0; k < $channels; k++) out[r * $channels + k] = (x[k] - mean) * factor * in1[k] + in2[k];\n"
             "}\n"},
            {"recurrent", recurrent, BY_FUNCTION, NULL}};

static const struct row *find_row(const char *op) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].op, op)) return &rows[i];
    return NULL;
}

bool strata_c_has(const strata_tensor *node) {
    const strata_node_info of = strata_tensor_node(node);
    return find_row(of.op) || of.formula;
}

bool strata_c_write(strata_c_export *c, const strata_tensor *node) {
    const strata_node_info of = strata_tensor_node(node);
    const struct row *row = find_row(of.op);
    if (!row) return elementwise(c, node);
    if (row->write) return row->write(c, node);
    const strata_shape in = shape_in(node, 0), y = strata_tensor_shape(node);
    const int64_t axis = number(node, "axis"), n_axes = number(node, "n_axes"), end = axis + (n_axes ? n_axes : 1);
    const bool back = strstr(of.op, "_grad"); /* the output is the larger image */
    const strata_shape large = back ? y : in, small = back ? in : y;
    const int64_t groups = number(node, "groups") ? number(node, "groups") : 1;
    const literal epsilon = literal_of(STRATA_DTYPE_F32, strata_tensor_attribute(node, "epsilon", 0));
    const value v[] = {{"rows", product(y, 0, y.rank - 1), NULL},
                       {"channels", y.rank ? y.dims[y.rank - 1] : 1, NULL},
                       {"outer", product(in, 0, axis), NULL},
                       {"inner", product(in, end, in.rank), NULL},
                       {"in_h", large.dims[1], NULL},
                       {"in_w", large.dims[2], NULL},
                       {"in_c", large.dims[3], NULL},
                       {"indices", of.n_inputs > 1 ? strata_shape_elements(shape_in(node, 1)) : 0, NULL},
                       {"items", strata_shape_elements(in), NULL},
                       {"out_h", small.dims[1], NULL},
                       {"out_w", small.dims[2], NULL},
                       {"out_c", small.dims[3], NULL},
                       {"kernel_h", number(node, "size"), NULL},
                       {"kernel_w", (int64_t)strata_tensor_attribute(node, "size", 1), NULL},
                       {"step_h", number(node, "stride"), NULL},
                       {"step_w", (int64_t)strata_tensor_attribute(node, "stride", 1), NULL},
                       {"spread_h", number(node, "dilation"), NULL},
                       {"spread_w", (int64_t)strata_tensor_attribute(node, "dilation", 1), NULL},
                       {"top", number(node, "padding"), NULL},
                       {"left", (int64_t)strata_tensor_attribute(node, "padding", 2), NULL},
                       {"groups", groups, NULL},
                       {"group_in", large.dims[3] / groups, NULL},
                       {"group_out", small.dims[3] / groups, NULL},
                       {"elements", strata_shape_elements(y), NULL},
                       {"depth", number(node, "depth"), NULL},
                       {"or_nan", 0, is_float(node) ? " || v != v" : ""},
                       {"of", 0, strata_c_type(dtype_in(node, 0))},
                       {"type", 0, strata_c_type(strata_tensor_dtype(node))},
                       {"better", 0, is_float(node) ? "most == most && (v > most || v != v)" : "v > most"},
                       {"epsilon", 0, epsilon.text},
                       {"n", product(in, axis, end), NULL},
                       {0}};
    if (row->way == EACH)
        over_elements(c, node, &v[sizeof v / sizeof *v - 1], row->template);
    else
        put(c, v, row->template);
    return row->way == ONE_EXAMPLE ? in.dims[0] == 1 : strncmp(of.op, "reduce_", 7) || product(in, axis, end);
}
