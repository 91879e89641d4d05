/* SPDX-License-Identifier: Apache-2.0
 *
 * LSTM and GRU on the host. Each step computes one product for all examples with the tiles of matmul.c, and then the
 * cells of each example. A GRU whose reset gate is applied before the product needs two products in each step.
 * Formulas: core/op/recurrent.h. */
#include "core/op/recurrent.h"

#include <math.h>

#include "backends/host/host.h"
#include "core/op/epilogue.h"
#include "core/op/ops.h"

static const strata_recurrent_attrs *attrs_of(const host_call *call) {
    return call->call.node->attrs;
}

static bool resets_first(const host_call *call) {
    return attrs_of(call)->cell == STRATA_CELL_GRU_RESET_FIRST;
}

/* The dropout factors (U) of the previous state h' of example n in products. NULL: all factors are 1. */
static const float *factors_of(const strata_recurrent_sizes *s, const float *mask, int64_t n) {
    return s->drops ? mask + n * s->mask_row + s->t : NULL;
}

/* Scratch memory for the products of a step (N, gates U), for the gradients that a step passes to the previous one or
 * the operand of a product (N, 2 U), and for a panel of the matrix. */
static int64_t scratch(const strata_tensor *node) {
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(node);
    const int64_t k = s.gates * s.units;
    return (s.n * k + 2 * s.n * s.units + (k + 1) * HOST_PANEL) * (int64_t)sizeof(float);
}

/* The derivative of the activation at the point where its value is y. */
static float slope(int64_t code, float y) {
    return code == STRATA_EPILOGUE_RELU      ? (float)(y > 0)
           : code == STRATA_EPILOGUE_TANH    ? 1 - y * y
           : code == STRATA_EPILOGUE_SIGMOID ? y * (1 - y)
                                             : 1;
}

/* The cells of one example at one step. z and sum: (gates U). past: (P U), or NULL in the first step. now: (P U). */
static void cells(const host_call *call, const strata_recurrent_sizes *s, bool kept, const float *z, const float *sum,
                  const float *past, float *now) {
    const int64_t n = s->units, a_code = attrs_of(call)->activation, r_code = attrs_of(call)->recurrent_activation;
    for (int64_t u = 0; u < n; u++) {
        const float h_past = past ? past[u] : 0;
        if (attrs_of(call)->cell == STRATA_CELL_LSTM) {
            const float c_past = past ? past[n + u] : 0;
            for (int64_t g = 0; g < 4; g++)
                now[(2 + g) * n + u] = strata_host_activate(g == 2 ? a_code : r_code, z[g * n + u] + sum[g * n + u]);
            const float c = now[3 * n + u] * c_past + now[2 * n + u] * now[4 * n + u];
            now[u] = kept ? now[5 * n + u] * strata_host_activate(a_code, c) : h_past;
            now[n + u] = kept ? c : c_past;
            continue;
        }
        const bool first = resets_first(call); /* the gates have been computed by `gates` */
        const float update = first ? now[n + u] : strata_host_activate(r_code, z[u] + sum[u]);
        const float reset = first ? 1 : strata_host_activate(r_code, z[n + u] + sum[n + u]);
        const float g = strata_host_activate(a_code, z[2 * n + u] + reset * sum[2 * n + u]);
        now[u] = kept ? update * h_past + (1 - update) * g : h_past;
        now[3 * n + u] = g;
        if (first) continue;
        now[n + u] = update;
        now[2 * n + u] = reset;
        now[4 * n + u] = sum[2 * n + u];
    }
}

/* The gates of one example, for a GRU that applies its reset gate before the product, and the operand of its second
 * product. */
static void gates(const host_call *call, const strata_recurrent_sizes *s, const float *z, const float *sum, const float *past,
                  const float *factors, float *now) {
    const int64_t n = s->units, r_code = attrs_of(call)->recurrent_activation;
    for (int64_t u = 0; u < n; u++) {
        now[n + u] = strata_host_activate(r_code, z[u] + sum[u]);
        now[2 * n + u] = strata_host_activate(r_code, z[n + u] + sum[n + u]);
        now[4 * n + u] = now[2 * n + u] * (past ? past[u] : 0) * (factors ? factors[u] : 1);
    }
}

/* taken (N, U) = the previous state h', multiplied by its dropout factors. */
static void scale(const strata_recurrent_sizes *s, const float *mask, const float *past, int64_t past_row, float *taken) {
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t u = 0; u < s->units; u++) taken[n * s->units + u] = past[n * past_row + u] * factors_of(s, mask, n)[u];
}

static void recurrent(const host_call *call) {
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(call->call.node);
    const int64_t width = s.gates * s.units, row = s.planes * s.units;
    const float *z = call->call.inputs[0], *matrix = call->call.inputs[1], *bias = call->call.inputs[2];
    const float *mask = s.mask ? call->call.inputs[3] : NULL;
    float *states = call->call.output, *sums = call->scratch, *taken = sums + s.n * width, *panel = taken + 2 * s.n * s.units;
    const bool first = resets_first(call);
    /* In the first step the product has no terms and is only the bias. */
    host_product product = {s.n, first ? 2 * s.units : width, 0, s.t * row, 1, width, 1, width, bias, NULL, 0, 0};
    host_product second = {s.n, s.units, 0, s.t * row, 1, width, 1, width, bias + 2 * s.units, NULL, 0, 0};
    if (s.drops) product.a_row = s.units;
    for (int64_t step = 0; step < s.t; step++) {
        const int64_t t = attrs_of(call)->reverse ? s.t - 1 - step : step, past = attrs_of(call)->reverse ? t + 1 : t - 1;
        const float *before = step ? states + past * row : states;
        if (s.drops && step) scale(&s, mask, before, s.t * row, taken);
        product.k = second.k = step ? s.units : 0;
        strata_host_multiply(&product, s.drops ? taken : before, matrix, sums, panel, 0, 1);
        for (int64_t n = 0; first && n < s.n; n++)
            gates(call, &s, z + (n * s.t + t) * width, sums + n * width, step ? before + n * s.t * row : NULL,
                  factors_of(&s, mask, n), states + (n * s.t + t) * row);
        if (first)
            strata_host_multiply(&second, states + t * row + 4 * s.units, matrix + 2 * s.units, sums + 2 * s.units, panel, 0,
                                 1);
        for (int64_t n = 0; n < s.n; n++) {
            const int64_t at = n * s.t + t;
            cells(call, &s, !mask || mask[n * s.mask_row + t] != 0, z + at * width, sums + n * width,
                  step ? before + n * s.t * row : NULL, states + at * row);
        }
    }
}

/* The gradients of one unit at one step. dh and dc become those parts of the previous step's gradients that need no
 * product. */
static void cell_back(const strata_recurrent_attrs *attrs, int64_t n, const float *past, const float *now, float *dh, float *dc,
                      float *da) {
    const int64_t a_code = attrs->activation, r_code = attrs->recurrent_activation;
    if (attrs->cell == STRATA_CELL_LSTM) {
        const float i = now[2 * n], f = now[3 * n], g = now[4 * n], o = now[5 * n], y = strata_host_activate(a_code, now[n]);
        const float all = *dc + *dh * o * slope(a_code, y);
        da[0] = all * g * slope(r_code, i);
        da[n] = all * (past ? past[n] : 0) * slope(r_code, f);
        da[2 * n] = all * i * slope(a_code, g);
        da[3 * n] = *dh * y * slope(r_code, o);
        *dh = 0;
        *dc = all * f;
        return;
    }
    const float update = now[n], reset = now[2 * n], g = now[3 * n];
    da[0] = *dh * ((past ? past[0] : 0) - g) * slope(r_code, update);
    if (attrs->cell == STRATA_CELL_GRU_RESET_FIRST) { /* the other gradients need a product; see reset_back */
        da[2 * n] = *dh * (1 - update) * slope(a_code, g);
        *dh *= update;
        return;
    }
    da[3 * n] = *dh * (1 - update) * slope(a_code, g);
    da[n] = da[3 * n] * now[4 * n] * slope(r_code, reset);
    da[2 * n] = da[3 * n] * reset;
    *dh *= update;
}

/* The gradients of one example that cell_back leaves out, for a GRU that applies its reset gate before the product. dq
 * (U) is the gradient of q. */
static void reset_back(const strata_recurrent_attrs *attrs, int64_t units, const float *past, const float *now,
                       const float *factors, const float *dq, float *dh, float *da) {
    for (int64_t u = 0; u < units; u++) {
        const float reset = now[2 * units + u], of_h = dq[u] * (factors ? factors[u] : 1);
        da[3 * units + u] = dq[u];
        da[units + u] = of_h * (past ? past[u] : 0) * slope(attrs->recurrent_activation, reset);
        dh[u] += of_h * reset;
    }
}

static void recurrent_grad(const host_call *call) {
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(call->call.node);
    const strata_recurrent_attrs *attrs = attrs_of(call);
    const int64_t u_n = s.units, row = s.planes * s.units, da_row = STRATA_RECURRENT_DA * u_n;
    const float *states = call->call.inputs[0], *matrix = call->call.inputs[1], *dy = call->call.inputs[2];
    const float *mask = s.mask ? call->call.inputs[3] : NULL;
    float *da = call->call.output, *sums = call->scratch, *dh = sums + s.n * s.gates * u_n, *dc = dh + s.n * u_n;
    float *panel = dc + s.n * u_n;
    const bool first = resets_first(call);
    const host_product product = {s.n, u_n, (first ? 2 : s.gates) * u_n, s.t * da_row, 1, u_n, 1, u_n, NULL, NULL, 0, 0};
    const host_product second = {s.n, u_n, u_n, s.t * da_row, 1, u_n, 1, u_n, NULL, NULL, 0, 0};
    for (int64_t i = 0; i < s.n * u_n; i++) dh[i] = dc[i] = 0;
    for (int64_t step = s.t - 1; step >= 0; step--) {
        const int64_t t = attrs->reverse ? s.t - 1 - step : step, past = attrs->reverse ? t + 1 : t - 1;
        const int64_t later = attrs->reverse ? t - 1 : t + 1;
        const bool has_later = step < s.t - 1;
        if (has_later) strata_host_multiply(&product, da + later * da_row, matrix, sums, panel, 0, 1);
        for (int64_t n = 0; n < s.n; n++) {
            const int64_t at = n * s.t + t;
            const float *factors = factors_of(&s, mask, n);
            for (int64_t u = 0; u < u_n; u++) {
                const int64_t i = n * u_n + u;
                float *out = da + at * da_row + u;
                dh[i] += dy[at * row + u] + (has_later ? sums[i] * (factors ? factors[u] : 1) : 0);
                for (int g = 0; g < STRATA_RECURRENT_DA; g++) out[g * u_n] = 0;
                if (!mask || mask[n * s.mask_row + t] != 0)
                    cell_back(attrs, u_n, step ? states + (n * s.t + past) * row + u : NULL, states + at * row + u, &dh[i],
                              &dc[i], out);
            }
        }
        if (!first) continue;
        strata_host_multiply(&second, da + t * da_row + 2 * u_n, matrix + 2 * u_n * u_n, sums, panel, 0, 1);
        for (int64_t n = 0; n < s.n; n++)
            if (!mask || mask[n * s.mask_row + t] != 0)
                reset_back(attrs, u_n, step ? states + (n * s.t + past) * row : NULL, states + (n * s.t + t) * row,
                           factors_of(&s, mask, n), sums + n * u_n, dh + n * u_n, da + (n * s.t + t) * da_row);
    }
}

const host_fast_op strata_host_recurrent[] = {{&strata_op_recurrent, strata_host_is_f32, scratch, recurrent, NULL},
                                              {&strata_op_recurrent_grad, strata_host_is_f32, scratch, recurrent_grad, NULL},
                                              {0}};
