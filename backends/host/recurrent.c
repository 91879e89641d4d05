/* SPDX-License-Identifier: Apache-2.0
 *
 * LSTM and GRU on the host: at each step one product of all examples by the tiles of matmul.c, then the cells one by one.
 * Formulas: core/op/recurrent.h. */
#include "core/op/recurrent.h"

#include <math.h>

#include "backends/host/host.h"
#include "core/op/epilogue.h"

static const strata_recurrent_attrs *attrs_of(const host_call *call) {
    return call->call.node->attrs;
}

bool strata_host_recurrent_takes(const strata_tensor *node) {
    (void)node; /* the op is of f32 alone */
    return true;
}

/* The products of a step (N, gates U), what a step back leaves to the one before (N, 2 U), and a panel of the matrix. */
int64_t strata_host_recurrent_scratch(const strata_tensor *node) {
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(node);
    const int64_t k = s.gates * s.units;
    return (s.n * k + 2 * s.n * s.units + (k + 1) * HOST_PANEL) * (int64_t)sizeof(float);
}

static float activate(int64_t code, float v) {
    return code == STRATA_EPILOGUE_RELU      ? (v < 0 ? 0 : v)
           : code == STRATA_EPILOGUE_TANH    ? tanhf(v)
           : code == STRATA_EPILOGUE_SIGMOID ? 1 / (1 + expf(-v))
                                             : v;
}

/* The slope of the function where its value is y. */
static float slope(int64_t code, float y) {
    return code == STRATA_EPILOGUE_RELU      ? (float)(y > 0)
           : code == STRATA_EPILOGUE_TANH    ? 1 - y * y
           : code == STRATA_EPILOGUE_SIGMOID ? y * (1 - y)
                                             : 1;
}

/* One example at one step: z and sum (gates U), past (P U) or NULL, now (P U). */
static void cells(const host_call *call, const strata_recurrent_sizes *s, bool kept, const float *z, const float *sum,
                  const float *past, float *now) {
    const int64_t n = s->units, a_code = attrs_of(call)->activation, r_code = attrs_of(call)->recurrent_activation;
    for (int64_t u = 0; u < n; u++) {
        const float h_past = past ? past[u] : 0;
        if (attrs_of(call)->cell == STRATA_CELL_LSTM) {
            const float c_past = past ? past[n + u] : 0;
            for (int64_t g = 0; g < 4; g++)
                now[(2 + g) * n + u] = activate(g == 2 ? a_code : r_code, z[g * n + u] + sum[g * n + u]);
            const float c = now[3 * n + u] * c_past + now[2 * n + u] * now[4 * n + u];
            now[u] = kept ? now[5 * n + u] * activate(a_code, c) : h_past;
            now[n + u] = kept ? c : c_past;
            continue;
        }
        const float update = activate(r_code, z[u] + sum[u]), reset = activate(r_code, z[n + u] + sum[n + u]);
        const float g = activate(a_code, z[2 * n + u] + reset * sum[2 * n + u]);
        now[u] = kept ? update * h_past + (1 - update) * g : h_past;
        now[n + u] = update;
        now[2 * n + u] = reset;
        now[3 * n + u] = g;
        now[4 * n + u] = sum[2 * n + u];
    }
}

void strata_host_recurrent(const host_call *call) {
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(call->call.node);
    const int64_t width = s.gates * s.units, row = s.planes * s.units;
    const float *z = call->call.inputs[0], *matrix = call->call.inputs[1], *bias = call->call.inputs[2];
    const float *mask = s.mask ? call->call.inputs[3] : NULL;
    float *states = call->call.output, *sums = call->scratch, *panel = sums + s.n * (width + 2 * s.units);
    /* Without a step before, the product is of no terms: the bias alone. */
    host_product product = {s.n, width, 0, s.t * row, 1, width, 1, width, bias, NULL, 0, 0};
    for (int64_t step = 0; step < s.t; step++) {
        const int64_t t = attrs_of(call)->reverse ? s.t - 1 - step : step, past = attrs_of(call)->reverse ? t + 1 : t - 1;
        product.k = step ? s.units : 0;
        strata_host_multiply(&product, step ? states + past * row : states, matrix, sums, panel, 0, 1);
        for (int64_t n = 0; n < s.n; n++) {
            const int64_t at = n * s.t + t;
            cells(call, &s, !mask || mask[at] != 0, z + at * width, sums + n * width,
                  step ? states + (n * s.t + past) * row : NULL, states + at * row);
        }
    }
}

/* One unit at one step: dh and dc become what the step before gets without a product. */
static void cell_back(const strata_recurrent_attrs *attrs, int64_t n, const float *past, const float *now, float *dh, float *dc,
                      float *da) {
    const int64_t a_code = attrs->activation, r_code = attrs->recurrent_activation;
    if (attrs->cell == STRATA_CELL_LSTM) {
        const float i = now[2 * n], f = now[3 * n], g = now[4 * n], o = now[5 * n], y = activate(a_code, now[n]);
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
    da[3 * n] = *dh * (1 - update) * slope(a_code, g);
    da[n] = da[3 * n] * now[4 * n] * slope(r_code, reset);
    da[2 * n] = da[3 * n] * reset;
    *dh *= update;
}

void strata_host_recurrent_grad(const host_call *call) {
    const strata_recurrent_sizes s = strata_recurrent_sizes_of(call->call.node);
    const strata_recurrent_attrs *attrs = attrs_of(call);
    const int64_t u_n = s.units, row = s.planes * u_n, da_row = STRATA_RECURRENT_DA * u_n;
    const float *states = call->call.inputs[0], *matrix = call->call.inputs[1], *dy = call->call.inputs[2];
    const float *mask = s.mask ? call->call.inputs[3] : NULL;
    float *da = call->call.output, *sums = call->scratch, *dh = sums + s.n * s.gates * u_n, *dc = dh + s.n * u_n;
    const host_product product = {s.n, u_n, s.gates * u_n, s.t * da_row, 1, u_n, 1, u_n, NULL, NULL, 0, 0};
    for (int64_t i = 0; i < s.n * u_n; i++) dh[i] = dc[i] = 0;
    for (int64_t step = s.t - 1; step >= 0; step--) {
        const int64_t t = attrs->reverse ? s.t - 1 - step : step, past = attrs->reverse ? t + 1 : t - 1;
        const int64_t later = attrs->reverse ? t - 1 : t + 1;
        const bool has_later = step < s.t - 1;
        if (has_later) strata_host_multiply(&product, da + later * da_row, matrix, sums, dc + s.n * u_n, 0, 1);
        for (int64_t n = 0; n < s.n; n++) {
            const int64_t at = n * s.t + t;
            for (int64_t u = 0; u < u_n; u++) {
                const int64_t i = n * u_n + u;
                float *out = da + at * da_row + u;
                dh[i] += dy[at * row + u] + (has_later ? sums[i] : 0);
                if (!mask || mask[at] != 0)
                    cell_back(attrs, u_n, step ? states + (n * s.t + past) * row + u : NULL, states + at * row + u, &dh[i],
                              &dc[i], out);
                else
                    for (int g = 0; g < STRATA_RECURRENT_DA; g++) out[g * u_n] = 0;
            }
        }
    }
}
