/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the loops of C for each op: a function for each kind of op, and a table at the end. The formulas of element-wise
 * ops are those of core/op/elementwise.def. Sums are computed in float, in the same order as on the host. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/locale.h"
#include "core/graph/launch.h"
#include "core/interchange/c_export.h"
#include "core/op/attrs.h"
#include "core/op/axes.h"
#include "core/op/conv2d.h"
#include "core/op/copy.h"
#include "core/op/epilogue.h"
#include "core/op/matmul.h"
#include "core/op/pool2d.h"
#include "core/op/recurrent.h"
#include "core/op/reduce.h"
#include "core/op/softmax.h"

typedef long long wide;

static void line(strata_c_export *c, const char *format, ...) STRATA_PRINTF(2, 3);
static void line(strata_c_export *c, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    strata_format_v(text, sizeof text, format, arguments);
    va_end(arguments);
    strata_text_add(&c->body, "        %s\n", text);
}

/* ---- numbers and types ---- */

const char *strata_c_type(strata_dtype dtype) {
    switch (dtype) {
        case STRATA_DTYPE_F32:
            return "float";
        case STRATA_DTYPE_I32:
            return "int32_t";
        case STRATA_DTYPE_I64:
            return "int64_t";
        case STRATA_DTYPE_U8:
        case STRATA_DTYPE_BOOL:
            return "uint8_t";
        default:
            return NULL;
    }
}

/* Writes a number with as many digits as are needed to read the same number back. A point or an exponent makes it a
 * floating-point literal. */
static void add_number(strata_text *text, double value, int digits, const char *suffix) {
    char number[40];
    if (!isfinite(value)) {
        strata_text_add(text, "%s", isnan(value) ? "NAN" : value > 0 ? "INFINITY" : "-INFINITY");
        return;
    }
    strata_format(number, sizeof number, "%.*g", digits, value);
    strata_text_add(text, "%s%s%s", number, strpbrk(number, ".e") ? "" : ".0", suffix);
}

void strata_c_add_float(strata_text *text, double value) {
    add_number(text, (double)(float)value, 9, "f");
}

void strata_c_add_double(strata_text *text, double value) {
    add_number(text, value, 17, "");
}

typedef struct number_text {
    char text[48];
} number_text;

/* A literal of the node's type. */
static number_text number_of(strata_dtype dtype, double value) {
    number_text out = {""};
    strata_text text = {0};
    if (dtype == STRATA_DTYPE_F32)
        strata_c_add_float(&text, value);
    else
        strata_text_add(&text, "%.0f", value);
    if (text.bytes) snprintf(out.text, sizeof out.text, "%s", text.bytes);
    strata_text_finish(&text);
    return out;
}

/* ---- attributes by name ---- */

static const void *attribute(const strata_tensor *node, const char *name) {
    for (const strata_attr_field *f = node->op->attrs; f->name; f++)
        if (!strcmp(f->name, name)) return (const char *)node->attrs + f->offset;
    return NULL;
}

static int64_t int_of(const strata_tensor *node, const char *name) {
    const int64_t *value = attribute(node, name);
    return value ? *value : 0;
}

static double float_of(const strata_tensor *node, const char *name) {
    const double *value = attribute(node, name);
    return value ? *value : 0;
}

/* The attribute `axis`, counted from the first axis of a shape. */
static int64_t axis_of(const strata_tensor *node, strata_shape shape) {
    const int64_t axis = int_of(node, "axis");
    return axis < 0 ? axis + shape.rank : axis;
}

/* ---- loops over index spaces ---- */

typedef struct index_text {
    char text[256];
} index_text;

static void open_loops(strata_c_export *c, strata_strided *space) {
    strata_text loops = {0};
    strata_strided_merge(space);
    for (int d = 0; d < space->rank; d++)
        strata_text_add(&loops, "%sfor (int i%d = 0; i%d < %lld; i%d++)", d ? " " : "", d, d, (wide)space->sizes[d], d);
    line(c, "%s {", loops.bytes ? loops.bytes : "");
    c->body.failed |= loops.failed;
    strata_text_finish(&loops);
}

/* The index of the current element in tensor t of the space, as a C expression. */
static index_text index_of(const strata_strided *space, int t, int64_t offset) {
    index_text out = {""};
    size_t n = 0;
    for (int d = 0; d < space->rank; d++) {
        const int64_t stride = space->strides[t][d];
        if (!stride || space->sizes[d] == 1) continue;
        const char *plus = n ? " + " : "";
        n += (size_t)(stride == 1 ? snprintf(out.text + n, sizeof out.text - n, "%si%d", plus, d)
                                  : snprintf(out.text + n, sizeof out.text - n, "%si%d * %lld", plus, d, (wide)stride));
    }
    if (offset || !n) snprintf(out.text + n, sizeof out.text - n, "%s%lld", n ? " + " : "", (wide)offset);
    return out;
}

/* The index space of the node and its inputs, which are broadcast to its shape. Tensor 0 is the node. */
static strata_strided space_of(const strata_tensor *node) {
    strata_strided space = {.rank = node->shape.rank, .n_tensors = 1 + node->n_inputs};
    memcpy(space.sizes, node->shape.dims, sizeof space.sizes);
    strata_broadcast_strides(node->shape, node->shape, space.strides[0]);
    for (int i = 0; i < node->n_inputs; i++)
        strata_broadcast_strides(node->inputs[i]->shape, node->shape, space.strides[1 + i]);
    return space;
}

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

typedef struct formula {
    const char *name, *text;
    int n_operands;
} formula;

/* The formulas. Those that are only for integers, and differ from those for floats, have other names. */
static const formula formulas[] = {
#define UNARY_NUMBER(code, name, expression)  {#name, #expression, 1},
#define UNARY_FLOAT(code, name, expression)   {#name, #expression, 1},
#define BINARY_NUMBER(code, name, expression) {#name, #expression, 2},
#define BINARY_FLOAT(code, name, expression)  {#name, #expression, 2},
#define COMPARE(code, name, expression)       {#name, #expression, 2},
#include "core/op/elementwise.def"
    {"div of integers", "(b == 0 ? 0 : a / b)", 2},
    {"min of integers", "(a < b ? a : b)", 2},
    {"max of integers", "(a > b ? a : b)", 2},
};

static const formula *find_formula(const char *name) {
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++)
        if (!strcmp(formulas[i].name, name)) return &formulas[i];
    return NULL;
}

static bool elementwise(strata_c_export *c, const strata_tensor *node) {
    char whole[64];
    snprintf(whole, sizeof whole, "%s of integers", node->op->name);
    const strata_dtype dtype = node->inputs[0]->dtype;
    const formula *f = dtype == STRATA_DTYPE_F32 ? NULL : find_formula(whole);
    if (!f) f = find_formula(node->op->name);
    const char *in = strata_c_type(dtype), *out = strata_c_type(node->dtype);
    strata_strided space = space_of(node);
    open_loops(c, &space);
    if (f->n_operands == 1)
        line(c, "    const %s x = in0[%s];", in, index_of(&space, 1, 0).text);
    else
        line(c, "    const %s a = in0[%s], b = in1[%s];", in, index_of(&space, 1, 0).text, index_of(&space, 2, 0).text);
    line(c, "    out[%s] = (%s)(%s);", index_of(&space, 0, 0).text, out, f->text);
    line(c, "}");
    return true;
}

static bool clip(strata_c_export *c, const strata_tensor *node) {
    const double bounds[2] = {float_of(node, "low"), float_of(node, "high")};
    strata_strided space = space_of(node);
    open_loops(c, &space);
    line(c, "    %s x = in0[%s];", strata_c_type(node->dtype), index_of(&space, 1, 0).text);
    for (int i = 0; i < 2; i++) {
        const number_text bound = number_of(node->dtype, bounds[i]);
        if (isfinite(bounds[i])) line(c, "    if (x %c %s) x = %s;", i ? '>' : '<', bound.text, bound.text);
    }
    line(c, "    out[%s] = x;", index_of(&space, 0, 0).text);
    line(c, "}");
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
    const strata_dtype from = node->inputs[0]->dtype, to = node->dtype;
    const char *type = strata_c_type(to), *least = limits[to].least, *most = limits[to].most;
    strata_strided space = space_of(node);
    open_loops(c, &space);
    line(c, "    const %s x = in0[%s];", strata_c_type(from), index_of(&space, 1, 0).text);
    if (to == STRATA_DTYPE_BOOL)
        line(c, "    out[%s] = x != 0;", index_of(&space, 0, 0).text);
    else if (least && strata_dtype_is_float(from))
        line(c, "    out[%s] = x != x ? 0 : x <= %s ? %s : x >= %s ? %s : (%s)x;", index_of(&space, 0, 0).text,
             limits[to].below, least, limits[to].above, most, type);
    else if (least && strata_dtype_bytes(to) < strata_dtype_bytes(from))
        line(c, "    out[%s] = x < %s ? %s : x > %s ? %s : (%s)x;", index_of(&space, 0, 0).text, least, least, most, most,
             type);
    else
        line(c, "    out[%s] = (%s)x;", index_of(&space, 0, 0).text, type);
    line(c, "}");
    return true;
}

static bool where(strata_c_export *c, const strata_tensor *node) {
    strata_strided space = space_of(node);
    open_loops(c, &space);
    line(c, "    out[%s] = in0[%s] ? in1[%s] : in2[%s];", index_of(&space, 0, 0).text, index_of(&space, 1, 0).text,
         index_of(&space, 2, 0).text, index_of(&space, 3, 0).text);
    line(c, "}");
    return true;
}

/* ---- ops that copy elements ---- */

/* Writes the loops for out[target_offset + ...] = in[source_offset + ...]; `in` is the name of the source. */
static void copy(strata_c_export *c, const char *in, strata_shape sizes, const int64_t *target, int64_t target_offset,
                 const int64_t *source, int64_t source_offset) {
    strata_strided space = {.rank = sizes.rank, .n_tensors = 2};
    memcpy(space.sizes, sizes.dims, sizeof space.sizes);
    memcpy(space.strides[0], target, sizeof space.strides[0]);
    memcpy(space.strides[1], source, sizeof space.strides[1]);
    open_loops(c, &space);
    line(c, "    out[%s] = %s[%s];", index_of(&space, 0, target_offset).text, in, index_of(&space, 1, source_offset).text);
    line(c, "}");
}

static bool broadcast(strata_c_export *c, const strata_tensor *node) {
    int64_t target[STRATA_MAX_RANK] = {0}, source[STRATA_MAX_RANK] = {0};
    strata_row_major_strides(node->shape, target);
    strata_broadcast_strides(node->inputs[0]->shape, node->shape, source);
    copy(c, "in0", node->shape, target, 0, source, 0);
    return true;
}

static bool transpose(strata_c_export *c, const strata_tensor *node) {
    const int64_t *axes = attribute(node, "axes");
    int64_t target[STRATA_MAX_RANK] = {0}, strides[STRATA_MAX_RANK] = {0}, source[STRATA_MAX_RANK] = {0};
    strata_row_major_strides(node->shape, target);
    strata_row_major_strides(node->inputs[0]->shape, strides);
    for (int d = 0; d < node->shape.rank; d++) source[d] = strides[axes[d] < 0 ? axes[d] + node->shape.rank : axes[d]];
    copy(c, "in0", node->shape, target, 0, source, 0);
    return true;
}

static bool slice(strata_c_export *c, const strata_tensor *node) {
    const int64_t *begin = attribute(node, "begin");
    int64_t target[STRATA_MAX_RANK] = {0}, source[STRATA_MAX_RANK] = {0}, offset = 0;
    strata_row_major_strides(node->shape, target);
    strata_row_major_strides(node->inputs[0]->shape, source);
    for (int d = 0; d < node->shape.rank; d++) offset += begin[d] * source[d];
    copy(c, "in0", node->shape, target, 0, source, offset);
    return true;
}

static bool pad(strata_c_export *c, const strata_tensor *node) {
    const int64_t *before = attribute(node, "before");
    int64_t target[STRATA_MAX_RANK] = {0}, source[STRATA_MAX_RANK] = {0}, offset = 0;
    strata_row_major_strides(node->shape, target);
    strata_row_major_strides(node->inputs[0]->shape, source);
    for (int d = 0; d < node->shape.rank; d++) offset += before[d] * target[d];
    line(c, "for (int i = 0; i < %lld; i++) out[i] = %s;", (wide)strata_shape_elements(node->shape),
         number_of(node->dtype, float_of(node, "value")).text);
    copy(c, "in0", node->inputs[0]->shape, target, offset, source, 0);
    return true;
}

static bool concat(strata_c_export *c, const strata_tensor *node) {
    const int64_t axis = axis_of(node, node->shape);
    int64_t target[STRATA_MAX_RANK] = {0}, source[STRATA_MAX_RANK] = {0}, at = 0;
    strata_row_major_strides(node->shape, target);
    for (int i = 0; i < node->n_inputs; i++) {
        char in[24];
        const strata_shape shape = node->inputs[i]->shape;
        snprintf(in, sizeof in, "in%d", i);
        strata_row_major_strides(shape, source);
        copy(c, in, shape, target, at * target[axis], source, 0);
        at += shape.dims[axis];
    }
    return true;
}

/* An index out of range gives zeros. */
static bool gather(strata_c_export *c, const strata_tensor *node) {
    const strata_shape x = node->inputs[0]->shape;
    const strata_axes a = strata_axes_of(x, axis_of(node, x), 1);
    const wide n = (wide)strata_shape_elements(node->inputs[1]->shape), rows = (wide)a.n, inner = (wide)a.inner;
    line(c, "for (int o = 0; o < %lld; o++) for (int j = 0; j < %lld; j++) {", (wide)a.outer, n);
    line(c, "    const int64_t row = in1[j];");
    line(c, "    for (int i = 0; i < %lld; i++)", inner);
    line(c, "        out[(o * %lld + j) * %lld + i] = row >= 0 && row < %lld ? in0[(o * %lld + row) * %lld + i] : 0;", n, inner,
         rows, rows, inner);
    line(c, "}");
    return true;
}

static bool one_hot(strata_c_export *c, const strata_tensor *node) {
    const wide depth = (wide)int_of(node, "depth");
    line(c, "for (int i = 0; i < %lld; i++) for (int k = 0; k < %lld; k++)",
         (wide)strata_shape_elements(node->inputs[0]->shape), depth);
    line(c, "    out[i * %lld + k] = in0[i] == k;", depth);
    return true;
}

/* ---- products ---- */

static bool matmul(strata_c_export *c, const strata_tensor *node) {
    const strata_matmul_sizes s = strata_matmul_sizes_of(node);
    const strata_matmul_attrs *attrs = node->attrs;
    const wide m = (wide)s.m, n = (wide)s.n, k = (wide)s.k;
    char a[64];
    if (!strata_epilogue_is_plain(&attrs->epilogue)) return false;
    snprintf(a, sizeof a, attrs->transpose_a ? "a[k * %lld + m]" : "a[m * %lld + k]", (wide)s.a_row);
    line(c, "for (int batch = 0; batch < %lld; batch++) for (int m = 0; m < %lld; m++) {", (wide)s.n_batch, m);
    line(c, "    const float *a = in0 + batch * %lld, *b = in1 + batch * %lld;", (wide)s.a_batch, (wide)s.b_batch);
    line(c, "    float *row = out + (batch * %lld + m) * %lld;", m, n);
    if (attrs->transpose_b) {
        line(c, "    for (int n = 0; n < %lld; n++) {", n);
        line(c, "        float sum = 0;");
        line(c, "        for (int k = 0; k < %lld; k++) sum += %s * b[n * %lld + k];", k, a, (wide)s.b_row);
        line(c, "        row[n] = sum;");
    } else {
        line(c, "    for (int n = 0; n < %lld; n++) row[n] = 0;", n);
        line(c, "    for (int k = 0; k < %lld; k++) {", k);
        line(c, "        const float factor = %s;", a);
        line(c, "        for (int n = 0; n < %lld; n++) row[n] += factor * b[k * %lld + n];", n, (wide)s.b_row);
    }
    line(c, "    }");
    line(c, "}");
    return true;
}

/* Writes the loops over the taps of a window that are inside of the image, and over the channels of each group. */
static void open_taps(strata_c_export *c, const strata_conv2d_sizes *s) {
    line(c, "for (int oh = 0; oh < %lld; oh++) for (int ow = 0; ow < %lld; ow++)", (wide)s->out_h, (wide)s->out_w);
    line(c, "    for (int kh = 0; kh < %lld; kh++) for (int kw = 0; kw < %lld; kw++) {", (wide)s->kernel_h, (wide)s->kernel_w);
    line(c, "        const int h = oh * %lld + kh * %lld - %lld, w = ow * %lld + kw * %lld - %lld;", (wide)s->stride[0],
         (wide)s->dilation[0], (wide)s->top, (wide)s->stride[1], (wide)s->dilation[1], (wide)s->left);
    line(c, "        if (h < 0 || h >= %lld || w < 0 || w >= %lld) continue;", (wide)s->in_h, (wide)s->in_w);
    line(c, "        for (int g = 0; g < %lld; g++) for (int k = 0; k < %lld; k++) {", (wide)s->groups, (wide)s->group_in);
    line(c, "            const float *filter = in1 + ((kh * %lld + kw) * %lld + k) * %lld + g * %lld;", (wide)s->kernel_w,
         (wide)s->group_in, (wide)s->out_c, (wide)s->group_out);
}

static bool conv2d(strata_c_export *c, const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const bool back = strcmp(node->op->name, "conv2d") != 0;
    if (!strata_epilogue_is_plain(strata_epilogue_of(node)) || s.n != 1) return false;
    line(c, "for (int i = 0; i < %lld; i++) out[i] = 0;", (wide)strata_shape_elements(node->shape));
    open_taps(c, &s);
    line(c, "            const int small = (oh * %lld + ow) * %lld + g * %lld, large = (h * %lld + w) * %lld + g * %lld + k;",
         (wide)s.out_w, (wide)s.out_c, (wide)s.group_out, (wide)s.in_w, (wide)s.in_c, (wide)s.group_in);
    if (back) {
        line(c, "            float sum = 0;");
        line(c, "            for (int f = 0; f < %lld; f++) sum += in0[small + f] * filter[f];", (wide)s.group_out);
        line(c, "            out[large] += sum;");
    } else {
        line(c, "            for (int f = 0; f < %lld; f++) out[small + f] += in0[large] * filter[f];", (wide)s.group_out);
    }
    line(c, "        }");
    line(c, "    }");
    return true;
}

static bool pool(strata_c_export *c, const strata_tensor *node) {
    const strata_window *w = &((const strata_pool2d_attrs *)node->attrs)->window;
    const strata_shape x = node->inputs[0]->shape, y = node->shape;
    const bool max = node->op->name[0] == 'm';
    line(c, "for (int oh = 0; oh < %lld; oh++) for (int ow = 0; ow < %lld; ow++) for (int k = 0; k < %lld; k++) {",
         (wide)y.dims[1], (wide)y.dims[2], (wide)y.dims[3]);
    line(c, "    float value = 0;");
    line(c, "    int n = 0;");
    line(c, "    for (int kh = 0; kh < %lld; kh++) for (int kw = 0; kw < %lld; kw++) {", (wide)w->size[0], (wide)w->size[1]);
    line(c, "        const int h = oh * %lld + kh - %lld, w = ow * %lld + kw - %lld;", (wide)w->stride[0],
         (wide)w->padding[STRATA_PAD_TOP], (wide)w->stride[1], (wide)w->padding[STRATA_PAD_LEFT]);
    line(c, "        if (h < 0 || h >= %lld || w < 0 || w >= %lld) continue;", (wide)x.dims[1], (wide)x.dims[2]);
    line(c, "        const float v = in0[(h * %lld + w) * %lld + k];", (wide)x.dims[2], (wide)x.dims[3]);
    line(c, max ? "        if (!n++ || v > value || v != v) value = v;" : "        value += v, n++;");
    line(c, "    }");
    line(c, "    out[(oh * %lld + ow) * %lld + k] = value%s;", (wide)y.dims[2], (wide)y.dims[3], max ? "" : " / (float)n");
    line(c, "}");
    return x.dims[0] == 1;
}

/* ---- reductions along axes ---- */

static bool reduce(strata_c_export *c, const strata_tensor *node) {
    const strata_reduce_attrs *attrs = node->attrs;
    const strata_axes a = strata_axes_of(node->inputs[0]->shape, attrs->axis, attrs->n_axes);
    const char *kind = node->op->name + strlen("reduce_"), *type = strata_c_type(node->dtype);
    const bool sums = !strcmp(kind, "sum") || !strcmp(kind, "mean"), is_float = node->dtype == STRATA_DTYPE_F32;
    if (!a.n) return false;
    line(c, "for (int o = 0; o < %lld; o++) for (int i = 0; i < %lld; i++) {", (wide)a.outer, (wide)a.inner);
    line(c, "    %s value = %s;", type, sums ? "0" : "in0[0]");
    line(c, "    for (int k = 0; k < %lld; k++) {", (wide)a.n);
    line(c, "        const %s v = in0[(o * %lld + k) * %lld + i];", type, (wide)a.n, (wide)a.inner);
    if (sums)
        line(c, "        value += v;");
    else
        line(c, "        if (!k || v %c value%s) value = v;", !strcmp(kind, "max") ? '>' : '<', is_float ? " || v != v" : "");
    line(c, "    }");
    if (!strcmp(kind, "mean"))
        line(c, "    out[o * %lld + i] = value / %lld;", (wide)a.inner, (wide)a.n);
    else
        line(c, "    out[o * %lld + i] = value;", (wide)a.inner);
    line(c, "}");
    return true;
}

static bool argmax(strata_c_export *c, const strata_tensor *node) {
    const strata_shape x = node->inputs[0]->shape;
    const strata_axes a = strata_axes_of(x, axis_of(node, x), 1);
    const bool is_float = node->inputs[0]->dtype == STRATA_DTYPE_F32;
    line(c, "for (int o = 0; o < %lld; o++) for (int i = 0; i < %lld; i++) {", (wide)a.outer, (wide)a.inner);
    line(c, "    int best = 0;");
    line(c, "    for (int k = 1; k < %lld; k++) {", (wide)a.n);
    line(c, "        const %s most = in0[(o * %lld + best) * %lld + i], v = in0[(o * %lld + k) * %lld + i];",
         strata_c_type(node->inputs[0]->dtype), (wide)a.n, (wide)a.inner, (wide)a.n, (wide)a.inner);
    line(c, is_float ? "        if (most == most && (v > most || v != v)) best = k;" : "        if (v > most) best = k;");
    line(c, "    }");
    line(c, "    out[o * %lld + i] = best;", (wide)a.inner);
    line(c, "}");
    return true;
}

static bool softmax(strata_c_export *c, const strata_tensor *node) {
    const strata_channels sizes = strata_channels_of(node->shape);
    const wide n = (wide)sizes.channels;
    const bool logs = !strcmp(node->op->name, "log_softmax");
    line(c, "for (int r = 0; r < %lld; r++) {", (wide)sizes.rows);
    line(c, "    const float *x = in0 + r * %lld;", n);
    line(c, "    float *y = out + r * %lld, most = x[0], sum = 0;", n);
    line(c, "    for (int k = 1; k < %lld; k++) if (x[k] > most) most = x[k];", n);
    line(c, "    for (int k = 0; k < %lld; k++) {", n);
    line(c, "        const float e = expf(x[k] - most);");
    line(c, "        sum += e;");
    line(c, "        y[k] = %s;", logs ? "x[k] - most" : "e");
    line(c, "    }");
    if (logs) line(c, "    sum = logf(sum);");
    line(c, "    for (int k = 0; k < %lld; k++) y[k] %s= sum;", n, logs ? "-" : "/");
    line(c, "}");
    return true;
}

/* ---- normalisation ---- */

static bool batch_norm(strata_c_export *c, const strata_tensor *node) {
    const strata_shape shape = node->shape;
    const wide channels = (wide)shape.dims[shape.rank - 1];
    line(c, "for (int k = 0; k < %lld; k++) {", channels);
    line(c, "    const float factor = in3[k] / sqrtf(in2[k] + %s);",
         number_of(STRATA_DTYPE_F32, float_of(node, "epsilon")).text);
    line(c, "    for (int r = 0; r < %lld; r++)", (wide)strata_shape_elements(shape) / channels);
    line(c, "        out[r * %lld + k] = (in0[r * %lld + k] - in1[k]) * factor + in4[k];", channels, channels);
    line(c, "}");
    return true;
}

static bool layer_norm(strata_c_export *c, const strata_tensor *node) {
    const strata_channels sizes = strata_channels_of(node->shape);
    const wide n = (wide)sizes.channels;
    line(c, "for (int r = 0; r < %lld; r++) {", (wide)sizes.rows);
    line(c, "    const float *x = in0 + r * %lld;", n);
    line(c, "    float mean = 0, squares = 0;");
    line(c, "    for (int k = 0; k < %lld; k++) mean += x[k] / %lld;", n, n);
    line(c, "    for (int k = 0; k < %lld; k++) squares += (x[k] - mean) * (x[k] - mean);", n);
    line(c, "    const float factor = 1 / sqrtf(squares / %lld + %s);", n,
         number_of(STRATA_DTYPE_F32, float_of(node, "epsilon")).text);
    line(c, "    for (int k = 0; k < %lld; k++) out[r * %lld + k] = (x[k] - mean) * factor * in1[k] + in2[k];", n, n);
    line(c, "}");
    return true;
}

/* ---- sequences ---- */

static const char *function_of(int64_t code) {
    static const char *const names[] = {
        [STRATA_EPILOGUE_LINEAR] = "", [STRATA_EPILOGUE_RELU] = "RELU", [STRATA_EPILOGUE_TANH] = "TANH", "SIGMOID"};
    return names[code];
}

/* The sums of the gates are stored in the planes of the gates, where the gates replace them. recurrent.h has the
 * formulas. */
static bool recurrent(strata_c_export *c, const strata_tensor *node) {
    const strata_recurrent_attrs *attrs = node->attrs;
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(node);
    const wide u = (wide)s.units, width = (wide)(s.gates * s.units), row = (wide)(s.planes * s.units);
    const bool lstm = attrs->cell == STRATA_CELL_LSTM, reset_first = attrs->cell == STRATA_CELL_GRU_RESET_FIRST;
    const char *a = function_of(attrs->activation), *r = function_of(attrs->recurrent_activation);
    const wide first = lstm ? 2 * u : u;
    if (s.n != 1) return false;
    line(c, "for (int step = 0; step < %lld; step++) {", (wide)s.t);
    if (attrs->reverse)
        line(c, "    const int t = %lld - step, past = t + 1;", (wide)s.t - 1);
    else
        line(c, "    const int t = step, past = t - 1;");
    line(c, "    const float *z = in0 + t * %lld;", width);
    line(c, "    float *now = out + t * %lld;", row);
    line(c, "    for (int j = 0; j < %lld; j++) now[%lld + j] = in2[j];", width, first);
    line(c, "    for (int k = 0; step && k < %lld; k++)", u);
    line(c, "        for (int j = 0; j < %lld; j++) now[%lld + j] += out[past * %lld + k] * in1[k * %lld + j];",
         reset_first ? 2 * u : width, first, row, width);
    if (reset_first) { /* q is stored in its plane before the last gate's product of it */
        line(c, "    for (int u = 0; step && u < %lld; u++) {", u);
        line(c, "        const float a1 = z[%lld + u] + now[%lld + u], g1 = %s(a1);", u, 2 * u, r);
        line(c, "        now[%lld + u] = g1 * out[past * %lld + u];", 4 * u, row);
        line(c, "    }");
        line(c, "    for (int k = 0; step && k < %lld; k++)", u);
        line(c, "        for (int j = 0; j < %lld; j++) now[%lld + j] += now[%lld + k] * in1[k * %lld + %lld + j];", u, 3 * u,
             4 * u, width, 2 * u);
    }
    line(c, "    for (int u = 0; u < %lld; u++) {", u);
    if (!lstm || s.mask) line(c, "        const float h = step ? out[past * %lld + u] : 0;", row);
    if (lstm) {
        line(c, "        const float kept = step ? out[past * %lld + %lld + u] : 0;", row, u);
        for (int g = 0; g < 4; g++)
            line(c, "        const float a%d = z[%lld + u] + now[%lld + u], g%d = %s(a%d);", g, g * u, (2 + g) * u, g,
                 g == 2 ? a : r, g);
        line(c, "        const float cell = g1 * kept + g0 * g2;");
        line(c, "        float state = cell, y = g3 * %s(cell);", a);
    } else {
        for (int g = 0; g < (reset_first ? 1 : 2); g++)
            line(c, "        const float a%d = z[%lld + u] + now[%lld + u], g%d = %s(a%d);", g, g * u, (1 + g) * u, g, r, g);
        line(c, "        const float a2 = z[%lld + u] + %snow[%lld + u], g2 = %s(a2);", 2 * u, reset_first ? "" : "g1 * ",
             3 * u, a);
        line(c, "        float y = g0 * h + (1 - g0) * g2;");
    }
    if (s.mask) line(c, lstm ? "        if (in3[t] == 0) y = h, state = kept;" : "        if (in3[t] == 0) y = h;");
    line(c, "        now[u] = y;");
    if (lstm) line(c, "        now[%lld + u] = state;", u);
    line(c, "    }");
    line(c, "}");
    return true;
}

/* ---- the table ---- */

static const struct {
    const char *op;
    strata_c_emit emit;
} rows[] = {{"clip", clip},
            {"cast", cast},
            {"where", where},
            {"broadcast_to", broadcast},
            {"transpose", transpose},
            {"slice", slice},
            {"pad", pad},
            {"concat", concat},
            {"gather", gather},
            {"one_hot", one_hot},
            {"matmul", matmul},
            {"conv2d", conv2d},
            {"conv2d_input_grad", conv2d},
            {"max_pool2d", pool},
            {"avg_pool2d", pool},
            {"reduce_sum", reduce},
            {"reduce_mean", reduce},
            {"reduce_max", reduce},
            {"reduce_min", reduce},
            {"argmax", argmax},
            {"softmax", softmax},
            {"log_softmax", softmax},
            {"batch_norm", batch_norm},
            {"layer_norm", layer_norm},
            {"recurrent", recurrent}};

strata_c_emit strata_c_find(const strata_op *op) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].op, op->name)) return rows[i].emit;
    return find_formula(op->name) ? elementwise : NULL;
}
