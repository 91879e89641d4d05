/* SPDX-License-Identifier: Apache-2.0
 *
 * recurrent and recurrent_grad: LSTM and GRU over whole sequences; recurrent.h has the formulas.
 *
 * There is one op for a whole sequence, because a graph of its steps would have thousands of nodes, and the gradient of each
 * slice would be as large as the sequence. Products that do not depend on a previous step are matmuls outside of the op: the
 * product of the inputs, for all steps at once, and the gradient of the matrix. The op stores the gates of each step, so
 * that the gradient does not compute the products a second time. */
#include "core/op/recurrent.h"

#include "core/op/define.h"
#include "core/op/epilogue.h"

extern const strata_op strata_op_recurrent, strata_op_recurrent_grad;

enum { Z, MATRIX, BIAS, MASK };             /* inputs of recurrent */
enum { STATES, TRANSPOSED, DH, GRAD_MASK }; /* inputs of recurrent_grad */
enum { MOST_COMPOSED_STEPS = 512 };         /* each step becomes about thirty nodes */
enum { DA = STRATA_RECURRENT_DA };

static const strata_recurrent_attrs *attrs_of(const strata_tensor *node) {
    return node->attrs;
}

static int64_t gates_of(const strata_tensor *node) {
    return attrs_of(node)->cell == STRATA_CELL_LSTM ? 4 : 3;
}

static int64_t planes_of(const strata_tensor *node) {
    return attrs_of(node)->cell == STRATA_CELL_LSTM ? 6 : 5;
}

strata_recurrent_sizes strata_recurrent_sizes_of(const strata_tensor *node) {
    const strata_shape shape = node->inputs[0]->shape; /* of z or of the states */
    const bool forward = node->op == &strata_op_recurrent;
    const strata_tensor *mask = node->n_inputs > MASK ? node->inputs[MASK] : NULL;
    return (strata_recurrent_sizes){.n = shape.dims[0],
                                    .t = shape.dims[1],
                                    .units = node->inputs[MATRIX]->shape.dims[forward ? 0 : 1],
                                    .gates = gates_of(node),
                                    .planes = planes_of(node),
                                    .mask = mask,
                                    .drops = mask && mask->shape.dims[1] != shape.dims[1],
                                    .mask_row = mask ? mask->shape.dims[1] : 0};
}

/* ---- shape rules ---- */

static strata_status check_shape(const strata_tensor *x, const char *name, strata_shape want, strata_error *err) {
    STRATA_TRY(strata_check_dtype(x, name, 1u << STRATA_DTYPE_F32, err));
    if (strata_shape_equal(x->shape, want)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s is %s; it must be %s", name, strata_shape_text(x->shape).text,
                       strata_shape_text(want).text);
}

/* Checks what both ops have in common: the attributes, and the first operand (N, T, `times` U), which determines the
 * number U of units. */
static strata_status check_common(const strata_tensor *node, const char *name, int64_t times, int64_t *out_units,
                                  strata_error *err) {
    const strata_recurrent_attrs *attrs = attrs_of(node);
    const strata_shape x = node->inputs[0]->shape;
    STRATA_TRY(strata_check_dtype(node->inputs[0], name, 1u << STRATA_DTYPE_F32, err));
    if (attrs->cell < STRATA_CELL_LSTM || attrs->cell > STRATA_CELL_GRU_RESET_FIRST ||
        attrs->activation < STRATA_EPILOGUE_LINEAR || attrs->activation > STRATA_EPILOGUE_SIGMOID ||
        attrs->recurrent_activation < STRATA_EPILOGUE_LINEAR || attrs->recurrent_activation > STRATA_EPILOGUE_SIGMOID ||
        (attrs->reverse | 1) != 1)
        return strata_fail(err, STRATA_INVALID,
                           "cell %" PRId64 ", activations %" PRId64 " and %" PRId64 ", reverse %" PRId64 " do not exist",
                           attrs->cell, attrs->activation, attrs->recurrent_activation, attrs->reverse);
    if (x.rank != 3 || x.dims[2] < times || x.dims[2] % times)
        return strata_fail(err, STRATA_INVALID, "%s is %s; it must be (examples, steps, %" PRId64 " times the units)", name,
                           strata_shape_text(x).text, times);
    *out_units = x.dims[2] / times;
    if (node->n_inputs <= MASK) return STRATA_OK;
    const strata_shape mask = node->inputs[MASK]->shape;
    const bool drops = mask.rank == 2 && mask.dims[1] == x.dims[1] + *out_units;
    return check_shape(node->inputs[MASK], "mask", STRATA_SHAPE(x.dims[0], drops ? mask.dims[1] : x.dims[1]), err);
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_shape z = node->inputs[Z]->shape;
    const int64_t gates = gates_of(node);
    int64_t units = 0, width;
    STRATA_TRY(check_common(node, "z", gates, &units, err));
    STRATA_TRY(check_shape(node->inputs[MATRIX], "matrix", STRATA_SHAPE(units, gates * units), err));
    STRATA_TRY(check_shape(node->inputs[BIAS], "bias", STRATA_SHAPE(gates * units), err));
    if (__builtin_mul_overflow(planes_of(node), units, &width))
        return strata_fail(err, STRATA_INVALID, "%" PRId64 " units are too many", units);
    node->dtype = STRATA_DTYPE_F32;
    node->shape = STRATA_SHAPE(z.dims[0], z.dims[1], width);
    return STRATA_OK;
}

static strata_status grad_shape(strata_tensor *node, strata_error *err) {
    const strata_shape states = node->inputs[STATES]->shape;
    int64_t units = 0;
    STRATA_TRY(check_common(node, "states", planes_of(node), &units, err));
    STRATA_TRY(check_shape(node->inputs[TRANSPOSED], "matrix", STRATA_SHAPE(gates_of(node) * units, units), err));
    STRATA_TRY(check_shape(node->inputs[DH], "dh", states, err));
    node->dtype = STRATA_DTYPE_F32;
    node->shape = STRATA_SHAPE(states.dims[0], states.dims[1], DA * units);
    return STRATA_OK;
}

/* ---- the gradient ---- */

/* The slice x[:, t .. t + steps, first .. first + width]. */
static strata_tensor *part(strata_tensor *x, int64_t t, int64_t steps, int64_t first, int64_t width) {
    const int64_t begin[] = {0, t, first}, size[] = {x->shape.dims[0], steps, width};
    return strata_slice(x, begin, size);
}

/* For each step, the h of the previous step; zeros for the first step. */
static strata_tensor *h_before(strata_tensor *states, int64_t units, bool reverse) {
    const int64_t t = states->shape.dims[1];
    const int64_t before[] = {0, !reverse, 0}, after[] = {0, reverse, 0};
    return strata_pad(part(states, reverse, t - 1, 0, units), before, after, 0);
}

/* The `planes` planes of x (N, T, P U) from `plane` on, as a matrix (N T, planes U). */
static strata_tensor *rows_of(strata_tensor *x, const strata_recurrent_sizes *s, int64_t plane, int64_t planes) {
    return strata_reshape(part(x, 0, s->t, plane * s->units, planes * s->units), STRATA_SHAPE(s->n * s->t, planes * s->units));
}

/* The factors at the end of each row of a mask, as (N, 1, U). The mask must have them. */
static strata_tensor *factors_of(strata_tensor *mask, const strata_recurrent_sizes *s) {
    strata_tensor *factors = strata_slice(mask, (int64_t[]){0, s->t}, (int64_t[]){s->n, s->units});
    return strata_reshape(factors, STRATA_SHAPE(s->n, 1, s->units));
}

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(node);
    const int64_t cell = attrs_of(node)->cell;
    strata_tensor *matrix = node->inputs[MATRIX], *bias = node->inputs[BIAS];
    if (!s.n || !s.t) return;
    strata_tensor *mask = s.mask ? node->inputs[MASK] : NULL;
    strata_tensor *operands[] = {node, strata_transpose(matrix, (int[]){1, 0}), dy, mask};
    strata_tensor *da = strata_node(NULL, &strata_op_recurrent_grad, node->n_inputs, operands, node->attrs);
    strata_tensor *of_sum = part(da, 0, s.t, 0, s.gates * s.units);
    strata_tensor *h = h_before(node, s.units, attrs_of(node)->reverse);
    if (s.drops) h = strata_mul(h, factors_of(mask, &s));
    h = strata_reshape(h, STRATA_SHAPE(s.n * s.t, s.units));
    dx[Z] = cell == STRATA_CELL_LSTM ? da : of_sum;
    if (cell == STRATA_CELL_GRU)
        dx[Z] =
            strata_concat((strata_tensor *[]){part(da, 0, s.t, 0, 2 * s.units), part(da, 0, s.t, 3 * s.units, s.units)}, 2, 2);
    if (cell == STRATA_CELL_GRU_RESET_FIRST)
        dx[MATRIX] =
            strata_concat((strata_tensor *[]){strata_matmul(h, rows_of(da, &s, 0, 2), true, false),
                                              strata_matmul(rows_of(node, &s, 4, 1), rows_of(da, &s, 2, 1), true, false)},
                          2, 1);
    else
        dx[MATRIX] = strata_matmul(h, rows_of(da, &s, 0, s.gates), true, false);
    dx[BIAS] = strata_sum_to(of_sum, bias->shape);
}

/* ---- references ---- */

/* The derivative of the function at the point where its value is y. */
static double slope(int64_t code, double y) {
    return code == STRATA_EPILOGUE_RELU      ? y > 0
           : code == STRATA_EPILOGUE_TANH    ? 1 - y * y
           : code == STRATA_EPILOGUE_SIGMOID ? y * (1 - y)
                                             : 1;
}

/* The factor k of unit u, by which h' is multiplied in products. */
static double factor_of(const strata_recurrent_sizes *s, const float *mask, int64_t n, int64_t u) {
    return s->drops ? (double)mask[n * s->mask_row + s->t + u] : 1;
}

/* Computes the reset gate and q of a GRU that resets first, for all units. before (U): k h'. */
static void reset_first(const strata_op_call *call, const strata_recurrent_sizes *s, const float *z, const double *before,
                        double *q, double *reset) {
    const int64_t u_n = s->units, width = s->gates * u_n;
    const float *matrix = call->inputs[MATRIX], *bias = call->inputs[BIAS];
    for (int64_t u = 0; u < u_n; u++) {
        double sum = (double)bias[u_n + u];
        for (int64_t k = 0; k < u_n; k++) sum += before[k] * (double)matrix[k * width + u_n + u];
        reset[u] = strata_epilogue_activate(attrs_of(call->node)->recurrent_activation, (double)z[u_n + u] + sum);
        q[u] = reset[u] * before[u];
    }
}

/* Computes one example. h_of is scratch of (T, U) doubles: each step uses the h of the previous step without rounding to
 * f32. c is scratch of 4 U doubles, of which the first U are the cell's state. */
static void run_example(const strata_op_call *call, const strata_recurrent_sizes *s, int64_t n, double *h_of, double *c) {
    const strata_recurrent_attrs *attrs = attrs_of(call->node);
    const int64_t u_n = s->units, width = s->gates * u_n, a_code = attrs->activation, r_code = attrs->recurrent_activation;
    const float *matrix = call->inputs[MATRIX], *bias = call->inputs[BIAS], *mask = s->mask ? call->inputs[MASK] : NULL;
    const bool first = attrs->cell == STRATA_CELL_GRU_RESET_FIRST;
    double *taken = c + u_n, *q = taken + u_n, *reset = q + u_n;
    for (int64_t step = 0; step < s->t; step++) {
        const int64_t t = attrs->reverse ? s->t - 1 - step : step, past = attrs->reverse ? t + 1 : t - 1;
        const float *z = (const float *)call->inputs[Z] + (n * s->t + t) * width;
        float *y = (float *)call->output + (n * s->t + t) * s->planes * u_n;
        for (int64_t u = 0; u < u_n; u++) taken[u] = step ? h_of[past * u_n + u] * factor_of(s, mask, n, u) : 0;
        if (first) reset_first(call, s, z, taken, q, reset);
        for (int64_t u = 0; u < u_n; u++) {
            double sum[4], v[4], h_past = step ? h_of[past * u_n + u] : 0, h, kept = c[u];
            for (int64_t g = 0; g < s->gates; g++) {
                const double *of = first && g == 2 ? q : taken;
                sum[g] = (double)bias[g * u_n + u];
                for (int64_t k = 0; k < u_n; k++) sum[g] += of[k] * (double)matrix[k * width + g * u_n + u];
                v[g] = (double)z[g * u_n + u];
            }
            if (attrs->cell == STRATA_CELL_LSTM) {
                for (int64_t g = 0; g < 4; g++) v[g] = strata_epilogue_activate(g == 2 ? a_code : r_code, v[g] + sum[g]);
                c[u] = v[1] * c[u] + v[0] * v[2];
                h = v[3] * strata_epilogue_activate(a_code, c[u]);
                for (int64_t g = 0; g < 4; g++) y[(2 + g) * u_n + u] = (float)v[g];
            } else {
                for (int64_t g = 0; g < 2; g++) v[g] = strata_epilogue_activate(r_code, v[g] + sum[g]);
                if (first) v[1] = reset[u];
                v[2] = strata_epilogue_activate(a_code, v[2] + (first ? 1 : v[1]) * sum[2]);
                h = v[0] * h_past + (1 - v[0]) * v[2];
                for (int64_t g = 0; g < 3; g++) y[(1 + g) * u_n + u] = (float)v[g];
                y[4 * u_n + u] = (float)(first ? q[u] : sum[2]);
            }
            if (mask && mask[n * s->mask_row + t] == 0) {
                h = h_past;
                c[u] = kept;
            }
            h_of[t * u_n + u] = h;
            y[u] = (float)h;
            if (attrs->cell == STRATA_CELL_LSTM) y[u_n + u] = (float)c[u];
        }
    }
}

/* Computes the gradients of one unit at a step: da[4] from dh and dc. Then replaces dh and dc by their gradients for the
 * previous step. */
static void unit_back(const strata_recurrent_attrs *attrs, const float *now, const float *past, int64_t u_n, double *dh,
                      double *dc, double *da) {
    const int64_t a_code = attrs->activation, r_code = attrs->recurrent_activation;
    if (attrs->cell == STRATA_CELL_LSTM) {
        const double i = (double)now[2 * u_n], f = (double)now[3 * u_n], g = (double)now[4 * u_n], o = (double)now[5 * u_n];
        const double y = strata_epilogue_activate(a_code, (double)now[u_n]);
        *dc += *dh * o * slope(a_code, y);
        da[0] = *dc * g * slope(r_code, i);
        da[1] = *dc * (past ? (double)past[u_n] : 0) * slope(r_code, f);
        da[2] = *dc * i * slope(a_code, g);
        da[3] = *dh * y * slope(r_code, o);
        *dh = 0;
        *dc *= f;
        return;
    }
    const double update = (double)now[u_n], reset = (double)now[2 * u_n], g = (double)now[3 * u_n], sum = (double)now[4 * u_n];
    da[0] = *dh * ((past ? (double)past[0] : 0) - g) * slope(r_code, update);
    if (attrs->cell == STRATA_CELL_GRU_RESET_FIRST) { /* da[1] and da[3] need a product, which reset_first_back computes */
        da[2] = *dh * (1 - update) * slope(a_code, g);
        *dh *= update;
        return;
    }
    da[3] = *dh * (1 - update) * slope(a_code, g);
    da[1] = da[3] * sum * slope(r_code, reset);
    da[2] = da[3] * reset;
    *dh *= update;
}

/* Computes the remaining gradients of a GRU with reset_first, after unit_back: those of q and of the reset gate. Adds q's
 * part to dh. */
static void reset_first_back(const strata_op_call *call, const strata_recurrent_sizes *s, const float *now, const float *past,
                             int64_t n, double *dh, double *da) {
    const int64_t u_n = s->units;
    const float *matrix = call->inputs[TRANSPOSED], *mask = s->mask ? call->inputs[GRAD_MASK] : NULL;
    for (int64_t u = 0; u < u_n; u++) {
        const double reset = (double)now[2 * u_n + u], factor = factor_of(s, mask, n, u);
        double dq = 0;
        for (int64_t k = 0; k < u_n; k++) dq += da[2 * u_n + k] * (double)matrix[(2 * u_n + k) * u_n + u];
        da[3 * u_n + u] = dq;
        da[u_n + u] = dq * factor * (past ? (double)past[u] : 0) * slope(attrs_of(call->node)->recurrent_activation, reset);
        dh[u] += dq * factor * reset;
    }
}

/* Computes one example. dh and dc are scratch of (U) doubles, da is scratch of (4 U). */
static void run_example_back(const strata_op_call *call, const strata_recurrent_sizes *s, int64_t n, double *dh, double *dc,
                             double *da) {
    const strata_recurrent_attrs *attrs = attrs_of(call->node);
    const int64_t u_n = s->units, row = s->planes * u_n;
    const float *states = (const float *)call->inputs[STATES] + n * s->t * row, *matrix = call->inputs[TRANSPOSED];
    const float *dy = (const float *)call->inputs[DH] + n * s->t * row, *mask = s->mask ? call->inputs[GRAD_MASK] : NULL;
    const bool first = attrs->cell == STRATA_CELL_GRU_RESET_FIRST;
    const int64_t back = first ? 2 : s->gates; /* the first gates, whose products contain h' */
    for (int64_t step = s->t - 1; step >= 0; step--) {
        const int64_t t = attrs->reverse ? s->t - 1 - step : step, past = attrs->reverse ? t + 1 : t - 1;
        const float *before = step ? states + past * row : NULL;
        const bool kept = !mask || mask[n * s->mask_row + t] != 0;
        float *out = (float *)call->output + (n * s->t + t) * DA * u_n;
        for (int64_t u = 0; u < u_n; u++) {
            double product = 0;
            for (int64_t k = 0; step < s->t - 1 && k < back * u_n; k++) product += da[k] * (double)matrix[k * u_n + u];
            dh[u] += (double)dy[t * row + u] + product * factor_of(s, mask, n, u);
        }
        for (int64_t u = 0; u < u_n; u++) {
            double of_unit[DA] = {0};
            if (kept) unit_back(attrs, states + t * row + u, before ? before + u : NULL, u_n, &dh[u], &dc[u], of_unit);
            for (int64_t k = 0; k < DA; k++) da[k * u_n + u] = of_unit[k];
        }
        if (kept && first) reset_first_back(call, s, states + t * row, before, n, dh, da);
        for (int64_t k = 0; k < DA * u_n; k++) out[k] = (float)da[k];
    }
}

static void reference(strata_op_call *call) {
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(call->node);
    const bool forward = call->node->op == &strata_op_recurrent;
    /* Scratch in rows of U doubles. Forward: h of all steps, then the 4 rows of c. Backward: dh, dc and da. */
    const int64_t rows = forward ? s.t + 4 : 2 + DA;
    double *memory = strata_call_alloc(call, rows * s.units, sizeof *memory);
    for (int64_t n = 0; memory && n < s.n && s.t; n++) {
        for (int64_t i = 0; i < rows * s.units; i++) memory[i] = 0;
        if (forward)
            run_example(call, &s, n, memory, memory + s.t * s.units);
        else
            run_example_back(call, &s, n, memory, memory + s.units, memory + 2 * s.units);
    }
    free(memory);
}

/* ---- lower: a launch for each step ---- */

/* Adds the constants that select the cell and its functions. `cell` is a strata_recurrent_cell, or its value + 1 for the
 * second launch of a GRU that resets first. */
static void add_codes(strata_launch *launch, const strata_tensor *node, int64_t cell, bool drops) {
    const strata_recurrent_attrs *attrs = attrs_of(node);
    strata_launch_constant_add(launch, "CELL", (int32_t)cell);
    strata_launch_constant_add(launch, "ACTIVATION", (int32_t)attrs->activation);
    strata_launch_constant_add(launch, "RECURRENT", (int32_t)attrs->recurrent_activation);
    strata_launch_constant_add(launch, "DROPS", drops);
}

/* The number of launches for a step. */
static int64_t launches_of(const strata_tensor *node) {
    return attrs_of(node)->cell == STRATA_CELL_GRU_RESET_FIRST ? 2 : 1;
}

/* The number of work-items for all examples and units. A work-item computes one unit of 4 examples. */
static int64_t items_of(const strata_recurrent_sizes *s) {
    return (s->n + 3) / 4 * s->units;
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(node);
    const int64_t width = s.gates * s.units, row = s.planes * s.units, n_launches = launches_of(node);
    STRATA_TRY(strata_check_countable(node, err));
    for (int64_t i = 0; s.n && i < s.t * n_launches; i++) {
        const int64_t step = i / n_launches, cell = attrs_of(node)->cell + i % n_launches;
        const int64_t t = attrs_of(node)->reverse ? s.t - 1 - step : step, past = attrs_of(node)->reverse ? t + 1 : t - 1;
        /* From the step's row in the first example to the end of its row in the last one. */
        const int64_t states = (s.n - 1) * s.t * row + row;
        strata_launch launch = {
            .kernel = "recurrent",
            .variant = "f32",
            .n_buffers = 6,
            .buffers = {node->inputs[Z], node->inputs[MATRIX], node->inputs[BIAS], s.mask, step ? node : NULL, node},
            .offsets = {t * width, 0, 0, s.mask ? t : 0, step ? past * row : 0, t * row},
            .extents = {0, 0, 0, 0, step ? states : 0, states},
            .writes = 1u << 5,
            .global = {items_of(&s), 0},
            .grid_stride = true,
            .turns = (int)s.units + 8};
        STRATA_LAUNCH_INTS(&launch, s.n, s.units, s.t * width, s.mask_row, s.t * row, s.mask != NULL, step > 0, s.t - t);
        add_codes(&launch, node, cell, s.drops);
        STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    }
    return STRATA_OK;
}

static strata_status grad_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(node);
    const int64_t row = s.planes * s.units, da_row = DA * s.units, n_launches = launches_of(node);
    STRATA_TRY(strata_check_countable(node, err));
    if (!s.n || !s.t) return STRATA_OK;
    strata_lowering_scratch(lowering, 2 * s.n * s.units * (int64_t)sizeof(float));
    for (int64_t i = 0; i < s.t * n_launches; i++) {
        const int64_t step = s.t - 1 - i / n_launches, cell = attrs_of(node)->cell + i % n_launches;
        const bool reverse = attrs_of(node)->reverse, second = i % n_launches, has_later = second || step < s.t - 1;
        const int64_t t = reverse ? s.t - 1 - step : step, past = reverse ? t + 1 : t - 1, later = reverse ? t - 1 : t + 1;
        const int64_t das = (s.n - 1) * s.t * da_row + da_row;
        const strata_tensor *states = node->inputs[STATES];
        strata_launch launch = {.kernel = "recurrent_grad",
                                .variant = "f32",
                                .n_buffers = 8,
                                .buffers = {states, states, node->inputs[TRANSPOSED], node->inputs[DH], s.mask,
                                            has_later ? node : NULL, NULL, node},
                                .offsets = {step ? past * row : 0, t * row, 0, t * row, s.mask ? t : 0,
                                            has_later ? later * da_row : 0, 0, t * da_row},
                                .extents = {0, 0, 0, 0, 0, has_later ? das : 0, 0, das},
                                .writes = 1u << 6 | 1u << 7,
                                .global = {items_of(&s), 0},
                                .grid_stride = true,
                                .turns = (int)(s.gates * s.units) + 8};
        if (second) { /* the second launch reads da[2], the gradient of A's argument, of the same step */
            launch.offsets[5] = t * da_row + 2 * s.units;
            launch.extents[5] = das - 2 * s.units;
        }
        STRATA_LAUNCH_INTS(&launch, s.n, s.units, s.mask_row, s.t * row, s.t * da_row, s.mask != NULL, step > 0, has_later,
                           s.t - t);
        add_codes(&launch, node, cell, s.drops);
        STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    }
    return STRATA_OK;
}

/* ---- compositions: the steps one by one ---- */

static strata_tensor *number(strata_tensor *like, double value) {
    return strata_scalar(like->graph, STRATA_DTYPE_F32, value);
}

static strata_tensor *activated(int64_t code, strata_tensor *x) {
    return code == STRATA_EPILOGUE_RELU      ? strata_relu(x)
           : code == STRATA_EPILOGUE_TANH    ? strata_tanh(x)
           : code == STRATA_EPILOGUE_SIGMOID ? strata_sigmoid(x)
                                             : x;
}

/* x times the derivative of the function at the point where its value is y. */
static strata_tensor *times_slope(int64_t code, strata_tensor *x, strata_tensor *y) {
    if (code == STRATA_EPILOGUE_RELU) return strata_where(strata_less(number(x, 0), y), x, number(x, 0));
    if (code == STRATA_EPILOGUE_TANH) return strata_mul(x, strata_sub(number(x, 1), strata_square(y)));
    if (code == STRATA_EPILOGUE_SIGMOID) return strata_mul(x, strata_mul(y, strata_sub(number(x, 1), y)));
    return x;
}

/* Elements [first, first + width) of step t of x (N, T, ...), as (N, width). */
static strata_tensor *at_step(strata_tensor *x, int64_t t, int64_t first, int64_t width) {
    return strata_reshape(part(x, t, 1, first, width), STRATA_SHAPE(x->shape.dims[0], width));
}

/* Part number `index` of x (N, ...), whose rows consist of parts of `units` elements. */
static strata_tensor *plane(strata_tensor *x, int64_t index, int64_t units) {
    return strata_slice(x, (int64_t[]){0, index * units}, (int64_t[]){x->shape.dims[0], units});
}

/* A mask (N, 1) of bool that is true for examples where step t is not padding; NULL if there is no mask. */
static strata_tensor *kept_at(strata_tensor *mask, int64_t t) {
    if (!mask) return NULL;
    strata_tensor *column = strata_slice(mask, (int64_t[]){0, t}, (int64_t[]){mask->shape.dims[0], 1});
    return strata_not_equal(column, number(mask, 0));
}

/* The factors at the end of each row of a mask, as (N, U). The mask must have them. */
static strata_tensor *step_factors(strata_tensor *mask, const strata_recurrent_sizes *s) {
    return strata_reshape(factors_of(mask, s), STRATA_SHAPE(s->n, s->units));
}

static strata_tensor *compose(strata_tensor *node) {
    const strata_recurrent_attrs *attrs = attrs_of(node);
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(node);
    const int64_t a_code = attrs->activation, r_code = attrs->recurrent_activation, u = s.units;
    strata_tensor *mask = s.mask ? node->inputs[MASK] : NULL, *factors = s.drops ? step_factors(mask, &s) : NULL;
    const bool first = attrs->cell == STRATA_CELL_GRU_RESET_FIRST;
    if (!s.n || !s.t) return strata_filled(node->graph, STRATA_DTYPE_F32, node->shape, 0);
    if (s.t > MOST_COMPOSED_STEPS) return NULL;
    strata_tensor **steps = strata_graph_alloc(node->graph, (size_t)s.t * sizeof *steps);
    strata_tensor *zero = strata_filled(node->graph, STRATA_DTYPE_F32, STRATA_SHAPE(s.n, u), 0), *h = zero, *c = zero;
    if (!steps || !zero) return NULL;
    for (int64_t step = 0; step < s.t; step++) {
        const int64_t t = attrs->reverse ? s.t - 1 - step : step;
        strata_tensor *z = at_step(node->inputs[Z], t, 0, s.gates * u), *kept = kept_at(mask, t), *now, *cell = c, *of[6];
        strata_tensor *taken = factors ? strata_mul(h, factors) : h;
        strata_tensor *sum = strata_add(strata_matmul(taken, node->inputs[MATRIX], false, false), node->inputs[BIAS]);
        if (attrs->cell == STRATA_CELL_LSTM) {
            strata_tensor *a = strata_add(z, sum);
            for (int g = 0; g < 4; g++) of[2 + g] = activated(g == 2 ? a_code : r_code, plane(a, g, u));
            cell = strata_add(strata_mul(of[3], c), strata_mul(of[2], of[4]));
            now = strata_mul(of[5], activated(a_code, cell));
        } else {
            for (int g = 0; g < 2; g++) of[1 + g] = activated(r_code, strata_add(plane(z, g, u), plane(sum, g, u)));
            of[4] = first ? strata_mul(of[2], taken) : plane(sum, 2, u);
            strata_tensor *reset = first ? strata_add(strata_matmul(of[4], plane(node->inputs[MATRIX], 2, u), false, false),
                                                      strata_slice(node->inputs[BIAS], (int64_t[]){2 * u}, (int64_t[]){u}))
                                         : strata_mul(of[2], of[4]);
            of[3] = activated(a_code, strata_add(plane(z, 2, u), reset));
            now = strata_add(strata_mul(of[1], h), strata_mul(strata_sub(number(z, 1), of[1]), of[3]));
        }
        h = kept ? strata_where(kept, now, h) : now;
        c = kept ? strata_where(kept, cell, c) : cell;
        of[0] = h;
        if (attrs->cell == STRATA_CELL_LSTM) of[1] = c;
        steps[t] = strata_concat(of, (int)s.planes, 1);
    }
    return strata_stack(steps, (int)s.t, 1);
}

/* The rows [first, first + n) of a matrix. */
static strata_tensor *rows_between(strata_tensor *x, int64_t first, int64_t n) {
    return strata_slice(x, (int64_t[]){first, 0}, (int64_t[]){n, x->shape.dims[1]});
}

static strata_tensor *grad_compose(strata_tensor *node) {
    const strata_recurrent_attrs *attrs = attrs_of(node);
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(node);
    const int64_t a_code = attrs->activation, r_code = attrs->recurrent_activation, u = s.units;
    strata_tensor *states = node->inputs[STATES], *mask = s.mask ? node->inputs[GRAD_MASK] : NULL;
    strata_tensor *factors = s.drops ? step_factors(mask, &s) : NULL, *transposed = node->inputs[TRANSPOSED];
    const bool first = attrs->cell == STRATA_CELL_GRU_RESET_FIRST;
    if (first) transposed = rows_between(transposed, 0, 2 * u);
    if (!s.n || !s.t) return strata_filled(node->graph, STRATA_DTYPE_F32, node->shape, 0);
    if (s.t > MOST_COMPOSED_STEPS) return NULL;
    strata_tensor **steps = strata_graph_alloc(node->graph, (size_t)s.t * sizeof *steps);
    strata_tensor *zero = strata_filled(node->graph, STRATA_DTYPE_F32, STRATA_SHAPE(s.n, u), 0), *later = NULL, *dh = zero,
                  *dc = zero;
    if (!steps || !zero) return NULL;
    for (int64_t step = s.t - 1; step >= 0; step--) {
        const int64_t t = attrs->reverse ? s.t - 1 - step : step, past = attrs->reverse ? t + 1 : t - 1;
        strata_tensor *now = at_step(states, t, 0, s.planes * u), *before = step ? at_step(states, past, 0, 2 * u) : NULL;
        strata_tensor *kept = kept_at(mask, t), *da[DA], *dh_past, *dc_past = dc;
        dh = strata_add(dh, at_step(node->inputs[DH], t, 0, u));
        if (later) {
            strata_tensor *product = strata_matmul(later, transposed, false, false);
            dh = strata_add(dh, factors ? strata_mul(product, factors) : product);
        }
        if (attrs->cell == STRATA_CELL_LSTM) {
            strata_tensor *i = plane(now, 2, u), *f = plane(now, 3, u), *g = plane(now, 4, u), *o = plane(now, 5, u);
            strata_tensor *y = activated(a_code, plane(now, 1, u));
            strata_tensor *all = strata_add(dc, times_slope(a_code, strata_mul(dh, o), y));
            da[0] = times_slope(r_code, strata_mul(all, g), i);
            da[1] = before ? times_slope(r_code, strata_mul(all, plane(before, 1, u)), f) : zero;
            da[2] = times_slope(a_code, strata_mul(all, i), g);
            da[3] = times_slope(r_code, strata_mul(dh, y), o);
            dh_past = zero;
            dc_past = strata_mul(all, f);
        } else {
            strata_tensor *update = plane(now, 1, u), *reset = plane(now, 2, u), *g = plane(now, 3, u);
            strata_tensor *h_past = before ? plane(before, 0, u) : zero, *change = strata_sub(h_past, g);
            strata_tensor *of_a = times_slope(a_code, strata_mul(dh, strata_sub(number(dh, 1), update)), g);
            da[0] = times_slope(r_code, strata_mul(dh, change), update);
            dh_past = strata_mul(dh, update);
            if (first) {
                da[2] = of_a;
                da[3] = strata_matmul(of_a, rows_between(node->inputs[TRANSPOSED], 2 * u, u), false, false);
                strata_tensor *of_h = factors ? strata_mul(da[3], factors) : da[3];
                da[1] = times_slope(r_code, strata_mul(of_h, h_past), reset);
                dh_past = strata_add(dh_past, strata_mul(of_h, reset));
            } else {
                da[3] = of_a;
                da[1] = times_slope(r_code, strata_mul(of_a, plane(now, 4, u)), reset);
                da[2] = strata_mul(of_a, reset);
            }
        }
        steps[t] = strata_concat(da, DA, 1);
        if (kept) steps[t] = strata_where(kept, steps[t], number(dh, 0));
        dh = kept ? strata_where(kept, dh_past, dh) : dh_past;
        dc = kept ? strata_where(kept, dc_past, dc) : dc_past;
        later = strata_slice(steps[t], (int64_t[]){0, 0}, (int64_t[]){s.n, (first ? 2 : s.gates) * u});
    }
    return strata_stack(steps, (int)s.t, 1);
}

/* ---- both ops ---- */

/* Counts the products and some operations for each gate. */
static double flops(const strata_tensor *node) {
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(node);
    return (double)(s.n * s.t) * (double)(s.gates * s.units) * (2.0 * (double)s.units + 8);
}

static const strata_attr_words words[] = {
    {"cell", (const char *const[]){"lstm", "gru", "gru_reset_first", NULL}},
    {"activation", (const char *const[]){"linear", "relu", "tanh", "sigmoid", NULL}},
    {"recurrent_activation", (const char *const[]){"linear", "relu", "tanh", "sigmoid", NULL}},
    {NULL, NULL}};

#define ATTRS                                                                                                    \
    .attrs_bytes = sizeof(strata_recurrent_attrs), .words = words,                                               \
    .attrs = {{"cell", STRATA_ATTR_INT, offsetof(strata_recurrent_attrs, cell)},                                 \
              {"activation", STRATA_ATTR_INT, offsetof(strata_recurrent_attrs, activation)},                     \
              {"recurrent_activation", STRATA_ATTR_INT, offsetof(strata_recurrent_attrs, recurrent_activation)}, \
              {"reverse", STRATA_ATTR_INT, offsetof(strata_recurrent_attrs, reverse)}}

/* Examples are independent of each other. */
static void factors(const strata_tensor *node, strata_factors *factors) {
    const bool is_grad = node->op == &strata_op_recurrent_grad;
    const strata_tensor *mask = strata_recurrent_sizes_of(node).mask;
    for (int i = 0; i <= node->n_inputs; i++)
        if (i == 0 || (is_grad && i == DH) || i == node->n_inputs || node->inputs[i] == mask)
            strata_factors_set(factors, node, i, 0, 0);
}

const strata_op strata_op_recurrent = {
    .name = "recurrent",
    .n_inputs = 3,
    .optional_inputs = 1,
    ATTRS,
    .factors = factors,
    .shape = shape,
    .gradient = gradient,
    .reference = reference,
    .compose = compose,
    .flops = flops,
    .lower = lower,
};

const strata_op strata_op_recurrent_grad = {
    .name = "recurrent_grad",
    .n_inputs = 3,
    .optional_inputs = 1,
    ATTRS,
    .factors = factors,
    .shape = grad_shape,
    .no_gradient = "the gradient of a recurrent op is not differentiated again",
    .reference = reference,
    .compose = grad_compose,
    .flops = flops,
    .lower = grad_lower,
};

/* Appends the factors to the rows of the mask. Without a mask, the mask's part is ones. */
static strata_tensor *with_factors(strata_tensor *z, strata_tensor *mask, strata_tensor *factors) {
    if (!mask && z->shape.rank == 3)
        mask = strata_filled(z->graph, STRATA_DTYPE_F32, STRATA_SHAPE(z->shape.dims[0], z->shape.dims[1]), 1);
    return mask ? strata_concat((strata_tensor *[]){mask, factors}, 2, 1) : NULL;
}

static strata_tensor *recurrent(strata_recurrent_cell cell, strata_tensor *z, strata_tensor *matrix, strata_tensor *bias,
                                strata_tensor *mask, strata_recurrent_options opts) {
    /* By option; the first is the default. */
    static const int64_t codes[] = {STRATA_EPILOGUE_TANH, STRATA_EPILOGUE_TANH, STRATA_EPILOGUE_SIGMOID, STRATA_EPILOGUE_RELU,
                                    STRATA_EPILOGUE_LINEAR};
    if (strata_tensor_is_poison(z)) return z;
    if ((unsigned)opts.activation > STRATA_RECURRENT_LINEAR || (unsigned)opts.recurrent_activation > STRATA_RECURRENT_LINEAR)
        return strata_graph_poison(z->graph, &strata_op_recurrent, STRATA_INVALID, "activations %d and %d: there are 0 to %d",
                                   (int)opts.activation, (int)opts.recurrent_activation, STRATA_RECURRENT_LINEAR);
    const strata_recurrent_attrs attrs = {
        .cell = cell,
        .activation = codes[opts.activation],
        .recurrent_activation = opts.recurrent_activation ? codes[opts.recurrent_activation] : STRATA_EPILOGUE_SIGMOID,
        .reverse = opts.reverse};
    if (opts.factors) mask = with_factors(z, mask, opts.factors);
    strata_tensor *states =
        strata_node(NULL, &strata_op_recurrent, mask ? 4 : 3, (strata_tensor *[]){z, matrix, bias, mask}, &attrs);
    if (strata_tensor_is_poison(states)) return states;
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(states);
    if (!opts.last) return part(states, 0, s.t, 0, s.units);
    if (!s.t)
        return strata_graph_poison(z->graph, states->op, STRATA_INVALID, "z is %s; no step is the last of none",
                                   strata_shape_text(z->shape).text);
    return at_step(states, opts.reverse ? 0 : s.t - 1, 0, s.units);
}

strata_tensor *strata_lstm(strata_tensor *z, strata_tensor *matrix, strata_tensor *bias, strata_tensor *mask,
                           strata_recurrent_options opts) {
    return recurrent(STRATA_CELL_LSTM, z, matrix, bias, mask, opts);
}

strata_tensor *strata_gru(strata_tensor *z, strata_tensor *matrix, strata_tensor *bias, strata_tensor *mask,
                          strata_recurrent_options opts) {
    return recurrent(opts.reset_first ? STRATA_CELL_GRU_RESET_FIRST : STRATA_CELL_GRU, z, matrix, bias, mask, opts);
}
