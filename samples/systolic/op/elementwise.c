/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops with broadcasting: a single op, or a chain of ops (a fused node whose parts are element-wise). The vector
 * unit evaluates all steps of a chain for one block of elements before it begins the next block, so no intermediate value is
 * stored.
 *
 * A block contains f32 if the value's dtype is a float, and i64 if it is an integer or a bool. The result of a step of f16 or
 * bf16 is rounded to its dtype, as it would be stored by a separate node. */
#include "helpers.h"

/* Elements of a block; the most steps of a chain; and the most values of a chain. */
enum { BLOCK = 512, CHAIN_STEPS = 32, CHAIN_VALUES = MOST_INPUTS + CHAIN_STEPS };

typedef union lanes {
    float f[BLOCK];
    int64_t i[BLOCK];
} lanes;

/* ---- the functions ---- */

/* y = f(a, b, c) for n elements; operands that a function does not have are NULL. */
typedef void element_function(const void *a, const void *b, const void *c, void *y, int n);

#define ELEMENTS(name, type, expression)                                                \
    static void name(const void *pa, const void *pb, const void *pc, void *py, int n) { \
        (void)pb, (void)pc;                                                             \
        for (int k = 0; k < n; k++) ((type *)py)[k] = (type)(expression);               \
    }
#define A                        ((const float *)pa)[k]
#define B                        ((const float *)pb)[k]
#define I                        ((const int64_t *)pa)[k]
#define J                        ((const int64_t *)pb)[k]
#define WRAP(op)                 (int64_t)((uint64_t)I op(uint64_t) J)
#define UNARY(name, expression)  ELEMENTS(name##_floats, float, expression)
#define BINARY(name, expression) ELEMENTS(name##_floats, float, expression)
#define WHOLE(name, expression)  ELEMENTS(name##_wholes, int64_t, expression)
#define COMPARISON(name, real, whole)      \
    ELEMENTS(name##_floats, int64_t, real) \
    ELEMENTS(name##_wholes, int64_t, whole)

static inline float gelu_cdf(float x) {
    return 0.5f * (1 + erff(x * 0.70710678f));
}

/* tanh of the argument of gelu's approximation. */
static inline float gelu_tanh_of(float x) {
    return tanhf(0.79788456f * (x + 0.044715f * x * x * x));
}

UNARY(neg, -A)
UNARY(abs, fabsf(A))
UNARY(sign, A != A ? A : (float)((A > 0) - (A < 0)))
UNARY(square, A *A)
UNARY(exp, exp_of(A))
UNARY(log, logf(A))
UNARY(sqrt, sqrtf(A))
UNARY(rsqrt, 1 / sqrtf(A))
UNARY(tanh, tanhf(A))
UNARY(sigmoid, sigmoid_of(A))
UNARY(relu, A < 0 ? 0 : A)
UNARY(gelu, A *gelu_cdf(A))
UNARY(gelu_tanh, 0.5f * A * (1 + gelu_tanh_of(A)))
UNARY(silu, A *sigmoid_of(A))
UNARY(softplus, (A < 0 ? 0 : A) + log1pf(exp_of(-fabsf(A))))
UNARY(erf, erff(A))
UNARY(sin, sinf(A))
UNARY(cos, cosf(A))
WHOLE(neg, (int64_t)(0 - (uint64_t)I))
WHOLE(abs, I < 0 ? (int64_t)(0 - (uint64_t)I) : I)
WHOLE(sign, (I > 0) - (I < 0))
WHOLE(square, (int64_t)((uint64_t)I *(uint64_t)I))
WHOLE(relu, I < 0 ? 0 : I)

BINARY(add, A + B)
BINARY(sub, A - B)
BINARY(mul, A *B)
BINARY(div, A / B)
BINARY(pow, powf(A, B))
BINARY(min, A != A ? A : B != B ? B : B < A ? B : A)
BINARY(max, A != A ? A : B != B ? B : A < B ? B : A)
WHOLE(add, WRAP(+))
WHOLE(sub, WRAP(-))
WHOLE(mul, WRAP(*))
WHOLE(div, J == 0 ? 0 : J == -1 ? (int64_t)(0 - (uint64_t)I) : I / J)
WHOLE(min, J < I ? J : I)
WHOLE(max, I < J ? J : I)

BINARY(relu_grad, B > 0 ? A : 0)
BINARY(tanh_grad, A *(1 - B * B))
BINARY(sigmoid_grad, A *B *(1 - B))
BINARY(leaky_relu, A < 0 ? A * B : A)
BINARY(elu, A < 0 ? B * expm1f(A) : A)
BINARY(gelu_grad, A *(gelu_cdf(B) + B * 0.39894228f * exp_of(-0.5f * B * B)))
BINARY(gelu_tanh_grad, A *(0.5f * (1 + gelu_tanh_of(B)) +
                           0.5f * B * (1 - gelu_tanh_of(B) * gelu_tanh_of(B)) * 0.79788456f * (1 + 0.134145f * B * B)))
BINARY(silu_grad, A *sigmoid_of(B) * (1 + B * (1 - sigmoid_of(B))))
BINARY(sigmoid_cross_entropy, (A < 0 ? 0 : A) - A * B + logf(1 + exp_of(-fabsf(A))))
BINARY(sigmoid_sub, sigmoid_of(A) - B)

COMPARISON(equal, A == B, I == J)
COMPARISON(not_equal, A != B, I != J)
COMPARISON(less, A < B, I < J)
COMPARISON(less_equal, A <= B, I <= J)
COMPARISON(greater, A > B, I > J)
COMPARISON(greater_equal, A >= B, I >= J)

/* the condition of `where` is a bool */
#define C(type) ((const type *)pc)[k]
ELEMENTS(where_floats, float, I ? B : C(float))
ELEMENTS(where_wholes, int64_t, I ? J : C(int64_t))

#undef A
#undef C
#undef B
#undef I
#undef J
#undef WRAP
#undef UNARY
#undef BINARY
#undef WHOLE
#undef COMPARISON
#undef ELEMENTS

typedef struct element_op {
    const char *name;
    int n_operands;
    /* Operations of the vector unit for one element: divisions, roots and polynomials need several. */
    int vector_ops;
    element_function *floats, *wholes;
    bool compares;
} element_op;

static const element_op element_ops[] = {
#define FLOAT(name, n, ops) \
    { #name, n, ops, name##_floats, NULL, false }
#define NUMBER(name, n, ops) \
    { #name, n, ops, name##_floats, name##_wholes, false }
#define COMPARE(name) \
    { #name, 2, 1, name##_floats, name##_wholes, true }
    NUMBER(neg, 1, 1),         NUMBER(abs, 1, 1),
    NUMBER(sign, 1, 2),        NUMBER(square, 1, 1),
    FLOAT(exp, 1, 8),          FLOAT(log, 1, 10),
    FLOAT(sqrt, 1, 6),         FLOAT(rsqrt, 1, 5),
    FLOAT(tanh, 1, 12),        FLOAT(sigmoid, 1, 12),
    NUMBER(relu, 1, 1),        FLOAT(gelu, 1, 16),
    FLOAT(gelu_tanh, 1, 18),   FLOAT(silu, 1, 13),
    FLOAT(softplus, 1, 20),    FLOAT(erf, 1, 20),
    FLOAT(sin, 1, 20),         FLOAT(cos, 1, 20),
    NUMBER(add, 2, 1),         NUMBER(sub, 2, 1),
    NUMBER(mul, 2, 1),         NUMBER(div, 2, 6),
    FLOAT(pow, 2, 20),         NUMBER(min, 2, 1),
    NUMBER(max, 2, 1),         FLOAT(relu_grad, 2, 2),
    FLOAT(tanh_grad, 2, 3),    FLOAT(sigmoid_grad, 2, 3),
    FLOAT(leaky_relu, 2, 2),   FLOAT(elu, 2, 10),
    FLOAT(gelu_grad, 2, 28),   FLOAT(gelu_tanh_grad, 2, 30),
    FLOAT(silu_grad, 2, 16),   FLOAT(sigmoid_cross_entropy, 2, 22),
    FLOAT(sigmoid_sub, 2, 13), COMPARE(equal),
    COMPARE(not_equal),        COMPARE(less),
    COMPARE(less_equal),       COMPARE(greater),
    COMPARE(greater_equal),    {"where", 3, 1, where_floats, where_wholes, false},
#undef FLOAT
#undef NUMBER
#undef COMPARE
};

static const element_op *element_op_of(const char *name) {
    for (size_t i = 0; i < sizeof element_ops / sizeof *element_ops; i++)
        if (!strcmp(element_ops[i].name, name)) return &element_ops[i];
    return NULL;
}

/* ---- converting between dtypes and blocks ---- */

static void load_lanes(strata_plugin_dtype dtype, const void *data, int64_t first, int64_t stride, int n, lanes *out, int at) {
    switch (dtype) {
        case STRATA_PLUGIN_F32:
            for (int k = 0; k < n; k++) out->f[at + k] = ((const float *)data)[first + k * stride];
            break;
        case STRATA_PLUGIN_F16:
            for (int k = 0; k < n; k++) out->f[at + k] = f16_get(((const uint16_t *)data)[first + k * stride]);
            break;
        case STRATA_PLUGIN_BF16:
            for (int k = 0; k < n; k++) out->f[at + k] = bf16_get(((const uint16_t *)data)[first + k * stride]);
            break;
        case STRATA_PLUGIN_I32:
            for (int k = 0; k < n; k++) out->i[at + k] = ((const int32_t *)data)[first + k * stride];
            break;
        case STRATA_PLUGIN_I64:
            for (int k = 0; k < n; k++) out->i[at + k] = ((const int64_t *)data)[first + k * stride];
            break;
        default:
            for (int k = 0; k < n; k++) out->i[at + k] = ((const uint8_t *)data)[first + k * stride];
            break;
    }
}

static void store_lanes(strata_plugin_dtype dtype, void *data, int64_t first, int n, const void *from) {
    switch (dtype) {
        case STRATA_PLUGIN_F32:
            memcpy((float *)data + first, from, (size_t)n * sizeof(float));
            break;
        case STRATA_PLUGIN_F16:
            for (int k = 0; k < n; k++) ((uint16_t *)data)[first + k] = f16_of(((const float *)from)[k]);
            break;
        case STRATA_PLUGIN_BF16:
            for (int k = 0; k < n; k++) ((uint16_t *)data)[first + k] = bf16_of(((const float *)from)[k]);
            break;
        default:
            for (int k = 0; k < n; k++) whole_set(dtype, data, first + k, ((const int64_t *)from)[k]);
            break;
    }
}

static void round_lanes(strata_plugin_dtype dtype, float *x, int n) {
    if (dtype == STRATA_PLUGIN_F16)
        for (int k = 0; k < n; k++) x[k] = f16_get(f16_of(x[k]));
    if (dtype == STRATA_PLUGIN_BF16)
        for (int k = 0; k < n; k++) x[k] = bf16_nearest(x[k]);
}

/* ---- a chain ---- */

typedef struct chain_step {
    element_function *function;
    /* The indices of the step's inputs: the operands of the chain come first, then the results of its steps. */
    int n_in, in[3];
    strata_plugin_dtype dtype;
} chain_step;

typedef struct chain_state {
    int n_operands, n_steps;
    chain_step steps[CHAIN_STEPS];
    /* The axes of the output, merged as far as the strides of all operands allow. */
    int rank;
    int64_t sizes[MOST_AXES], strides[MOST_INPUTS][MOST_AXES];
    int vector_ops;
} chain_state;

/* Merges neighbouring axes if, for every operand, one stride fits both of them. */
static void chain_merge(chain_state *c) {
    int rank = 0;
    for (int d = 0; d < c->rank; d++) {
        bool joins = rank > 0 && c->sizes[d] >= 1;
        if (c->sizes[d] == 1 && c->rank > 1) continue;
        for (int t = 0; joins && t < c->n_operands; t++) joins = c->strides[t][rank - 1] == c->strides[t][d] * c->sizes[d];
        if (joins) {
            c->sizes[rank - 1] *= c->sizes[d];
            for (int t = 0; t < c->n_operands; t++) c->strides[t][rank - 1] = c->strides[t][d];
            continue;
        }
        c->sizes[rank] = c->sizes[d];
        for (int t = 0; t < c->n_operands; t++) c->strides[t][rank] = c->strides[t][d];
        rank++;
    }
    if (rank == 0) {
        c->sizes[0] = 1;
        for (int t = 0; t < c->n_operands; t++) c->strides[t][0] = 0;
        rank = 1;
    }
    c->rank = rank;
}

/* Returns the index of the chain's value with this id; -1: there is none. */
static int chain_value(const step *s, const int32_t *step_ids, int n_steps, int32_t id) {
    for (int k = n_steps - 1; k >= 0; k--)
        if (step_ids[k] == id) return s->n_inputs + k;
    for (int i = 0; i < s->n_inputs; i++)
        if (s->in_ids[i] == id) return i;
    return -1;
}

static const char *chain_add(const step *s, const step *part, const int32_t *step_ids, chain_state *c) {
    const element_op *kind = element_op_of(part->op->name);
    chain_step *to = &c->steps[c->n_steps];
    if (!kind || part->n_inputs != kind->n_operands) return "a part of it is not an element-wise op of one to three operands";
    const array *first = part->inputs[kind->n_operands - 1]; /* for `where` it is not the condition */
    to->function = dtype_is_float(first->dtype) ? kind->floats : kind->wholes;
    if (!to->function) return "the op takes floats alone";
    for (int i = 0; i < part->n_inputs; i++) {
        const bool condition = kind->n_operands == 3 && i == 0;
        if (condition ? part->inputs[i]->dtype != STRATA_PLUGIN_BOOL : part->inputs[i]->dtype != first->dtype)
            return "its operands are of different dtypes";
        to->in[i] = chain_value(s, step_ids, c->n_steps, part->in_ids[i]);
        if (to->in[i] < 0) return "a part of it reads a value that is no operand";
    }
    if (kind->compares ? part->out->dtype != STRATA_PLUGIN_BOOL : part->out->dtype != first->dtype)
        return "its result is not of its operands' dtype";
    to->n_in = part->n_inputs;
    to->dtype = part->out->dtype;
    c->vector_ops += kind->vector_ops;
    c->n_steps++;
    return NULL;
}

/* Fills in the chain. Returns NULL, or why there is none. */
static const char *chain_of(const step *s, chain_state *c) {
    int32_t ids[CHAIN_STEPS];
    *c = (chain_state){.n_operands = s->n_inputs, .rank = s->out->rank};
    if (s->n_inputs > MOST_INPUTS || s->n_parts > CHAIN_STEPS) return "the chain is too long";
    /* A single op of the list above is a chain of one step. */
    const bool alone = element_op_of(s->op->name) != NULL;
    if (!alone && !s->n_parts) return "the chain has no parts";
    for (int k = 0; k < (alone ? 1 : s->n_parts); k++) {
        const step *part = alone ? s : &s->parts[k];
        const char *why = chain_add(s, part, ids, c);
        if (why) return why;
        if (!same_shape(part->out, s->out)) return "a part of it has another shape than its result";
        ids[k] = part->out_id;
    }
    for (int d = 0; d < c->rank; d++) c->sizes[d] = s->out->dims[d];
    for (int t = 0; t < s->n_inputs; t++)
        if (!broadcast_strides(s->inputs[t], s->out, c->strides[t])) return "an operand does not broadcast to the result";
    chain_merge(c);
    return NULL;
}

static const char *chain_refuse(const step *s) {
    chain_state c;
    return chain_of(s, &c);
}

static bool chain_prepare(step *s, pool *pool) {
    chain_state *c = pool_take(pool, sizeof *c);
    if (!c) return false;
    chain_of(s, c);
    s->state = c;
    s->scratch_bytes = (int64_t)sizeof(lanes) * CHAIN_VALUES;
    return true;
}

static void chain_cost(const step *s, work *work) {
    chain_state c;
    if (chain_of(s, &c)) return;
    work->vector_ops = (double)s->out->n * c.vector_ops;
}

/* Returns the elements [at, at + n) of operand t: a pointer into the operand or, if they must be gathered, `room`. */
static const void *chain_operand(const chain_state *c, int t, const array *a, const void *data, int64_t at, int n,
                                 lanes *room) {
    const int inner = c->rank - 1;
    const int64_t *strides = c->strides[t], step = strides[inner];
    if (c->rank == 1 && step == 1 && a->dtype == STRATA_PLUGIN_F32) return (const float *)data + at;
    int64_t column = at % c->sizes[inner], rest = at / c->sizes[inner];
    for (int done = 0; done < n; column = 0, rest++) {
        int64_t row = 0, left = rest;
        const int64_t room_in_row = c->sizes[inner] - column;
        const int count = room_in_row < n - done ? (int)room_in_row : n - done;
        for (int d = inner - 1; d >= 0; d--) {
            row += left % c->sizes[d] * strides[d];
            left /= c->sizes[d];
        }
        load_lanes(a->dtype, data, row + column * step, step, count, room, done);
        done += count;
    }
    return room;
}

static void chain_run(const call *call) {
    const step *s = call->step;
    const chain_state *c = s->state;
    lanes *rooms = call->scratch;
    const void *values[CHAIN_VALUES];
    for (int64_t at = 0; at < s->out->n; at += BLOCK) {
        const int n = s->out->n - at < BLOCK ? (int)(s->out->n - at) : BLOCK;
        for (int t = 0; t < c->n_operands; t++) values[t] = chain_operand(c, t, s->inputs[t], call->in[t], at, n, &rooms[t]);
        for (int k = 0; k < c->n_steps; k++) {
            const chain_step *to = &c->steps[k];
            const bool direct = k == c->n_steps - 1 && s->out->dtype == STRATA_PLUGIN_F32;
            void *y = direct ? (void *)((float *)call->out + at) : &rooms[c->n_operands + k];
            const void *in[3] = {NULL, NULL, NULL};
            for (int i = 0; i < to->n_in; i++) in[i] = values[to->in[i]];
            to->function(in[0], in[1], in[2], y, n);
            round_lanes(to->dtype, y, n);
            values[c->n_operands + k] = y;
        }
        if (s->out->dtype != STRATA_PLUGIN_F32)
            store_lanes(s->out->dtype, call->out, at, n, values[c->n_operands + c->n_steps - 1]);
    }
}

/* ---- other ops with one operand ---- */

static int64_t saturated(strata_plugin_dtype dtype, int64_t x) {
    const int64_t least = dtype == STRATA_PLUGIN_I32 ? INT32_MIN : 0, most = dtype == STRATA_PLUGIN_I32 ? INT32_MAX : UINT8_MAX;
    if (dtype == STRATA_PLUGIN_I64 || dtype == STRATA_PLUGIN_BOOL) return x;
    return x < least ? least : x > most ? most : x;
}

/* Rounds toward zero. Numbers outside of the dtype's range become the nearest number in it; NaN becomes 0. */
static int64_t whole_of(strata_plugin_dtype dtype, float x) {
    if (dtype == STRATA_PLUGIN_BOOL) return x != 0;
    if (x != x) return 0;
    if (x >= 0x1p63f) return saturated(dtype, INT64_MAX);
    if (x < -0x1p63f) return saturated(dtype, INT64_MIN);
    return saturated(dtype, (int64_t)x);
}

static const char *one_to_one_refuse(const step *s) {
    return same_shape(s->in[0], s->out) ? NULL : "its result has another shape than its operand";
}

static bool one_to_one_prepare(step *s, pool *pool) {
    (void)pool;
    s->scratch_bytes = 2 * (int64_t)sizeof(lanes);
    return true;
}

static void cast_run(const call *call) {
    const array *x = call->step->in[0], *y = call->step->out;
    lanes *from = call->scratch, *to = from + 1;
    for (int64_t at = 0; at < y->n; at += BLOCK) {
        const int n = y->n - at < BLOCK ? (int)(y->n - at) : BLOCK;
        load_lanes(x->dtype, call->in[0], at, 1, n, from, 0);
        for (int k = 0; k < n; k++) {
            if (dtype_is_float(x->dtype) && dtype_is_float(y->dtype))
                to->f[k] = from->f[k];
            else if (dtype_is_float(x->dtype))
                to->i[k] = whole_of(y->dtype, from->f[k]);
            else if (dtype_is_float(y->dtype))
                to->f[k] = (float)from->i[k];
            else
                to->i[k] = saturated(y->dtype, from->i[k]);
        }
        store_lanes(y->dtype, call->out, at, n, to);
    }
}

static const char *clip_refuse(const step *s) {
    if (s->in[0]->dtype != s->out->dtype) return "its result is not of its operand's dtype";
    return one_to_one_refuse(s);
}

static void clip_run(const call *call) {
    const array *x = call->step->in[0];
    const double low = attribute_float(call->step, "low", -INFINITY), high = attribute_float(call->step, "high", INFINITY);
    const float least = (float)low, most = (float)high;
    lanes *room = call->scratch;
    for (int64_t at = 0; at < x->n; at += BLOCK) {
        const int n = x->n - at < BLOCK ? (int)(x->n - at) : BLOCK;
        load_lanes(x->dtype, call->in[0], at, 1, n, room, 0);
        if (dtype_is_float(x->dtype)) {
            for (int k = 0; k < n; k++) room->f[k] = room->f[k] < least ? least : room->f[k] > most ? most : room->f[k];
        } else {
            for (int k = 0; k < n; k++) {
                const double v = (double)room->i[k]; /* an f64 can represent every i32 */
                room->i[k] = v < low ? (low < INT32_MIN ? INT32_MIN : (int64_t)low) : v > high ? (int64_t)high : room->i[k];
            }
        }
        store_lanes(x->dtype, call->out, at, n, room);
    }
}

/* fma_chain computes y = y 0.999 + 0.001 `steps` times, to measure the peak of the vector unit. */
static void fma_chain_cost(const step *s, work *work) {
    work->vector_ops = (double)s->out->n * (double)attribute_int(s, "steps", 0);
}

static void fma_chain_run(const call *call) {
    const int64_t steps = attribute_int(call->step, "steps", 0), n = call->step->out->n;
    const float *x = call->in[0];
    float *y = call->out;
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t end = first + BLOCK < n ? first + BLOCK : n;
        for (int64_t i = first; i < end; i++) y[i] = x[i];
        for (int64_t s = 0; s < steps; s++)
            for (int64_t i = first; i < end; i++) y[i] = fmaf(y[i], 0.999f, 0.001f);
    }
}

static const char *dequantize_refuse(const step *s) {
    return s->out->dtype == STRATA_PLUGIN_F32 ? one_to_one_refuse(s) : "its result is not f32";
}

static void dequantize_run(const call *call) {
    const float scale = (float)attribute_float(call->step, "scale", 1);
    const uint8_t *x = call->in[0];
    float *y = call->out;
    for (int64_t i = 0; i < call->step->out->n; i++) y[i] = (float)x[i] * scale;
}
