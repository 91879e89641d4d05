/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalization by channel and by row, on the vector unit. x is (rows, channels). */
#include "helpers.h"

static int64_t channels_of(const array *x) {
    return last_dim(x);
}

/* Whether the inputs first .. end - 1 are f32 and have an element for each channel of input 0. */
static bool by_channel(const step *s, int first, int end) {
    for (int i = first; i < end; i++)
        if (s->in[i]->n != channels_of(s->in[0]) || s->in[i]->dtype != STRATA_PLUGIN_F32) return false;
    return true;
}

/* sum_rows computes two sums for each channel. It calls `add` for blocks of 64 rows, which are summed in f32; the blocks' sums
 * are added in f64. */
typedef void add_rows(const call *call, int64_t first, int64_t end, int64_t channels, float *sums);

static void sum_rows(const call *call, add_rows *add, double *totals, float *sums) {
    const array *x = call->step->in[0];
    const int64_t channels = channels_of(x), rows = rows_of(x);
    enum { ROWS = 64 };
    for (int64_t k = 0; k < 2 * channels; k++) totals[k] = 0;
    for (int64_t r = 0; r < rows; r += ROWS) {
        for (int64_t k = 0; k < 2 * channels; k++) sums[k] = 0;
        add(call, r, r + ROWS < rows ? r + ROWS : rows, channels, sums);
        for (int64_t k = 0; k < 2 * channels; k++) totals[k] += (double)sums[k];
    }
}

static bool channels_prepare(step *s, pool *pool) {
    (void)pool;
    s->scratch_bytes = channels_of(s->in[0]) * (int64_t)(2 * sizeof(double) + 4 * sizeof(float));
    return true;
}

/* ---- moments: mean and variance of each channel, (2, C) ---- */

static const char *moments_refuse(const step *s) {
    if (s->in[0]->rank < 1) return "its operand is a scalar";
    return s->out->n != 2 * channels_of(s->in[0]) || s->out->dtype != STRATA_PLUGIN_F32 ? "its result does not fit" : NULL;
}

static void four_cost(const step *s, work *work) {
    work->vector_ops = 4.0 * (double)s->in[0]->n;
}

static void add_values(const call *call, int64_t first, int64_t end, int64_t channels, float *sums) {
    const float *x = call->in[0];
    for (int64_t r = first; r < end; r++)
        for (int64_t k = 0; k < channels; k++) sums[k] += x[r * channels + k];
}

static void add_squares(const call *call, int64_t first, int64_t end, int64_t channels, float *sums) {
    const float *x = call->in[0], *mean = call->out;
    for (int64_t r = first; r < end; r++)
        for (int64_t k = 0; k < channels; k++) {
            const float d = x[r * channels + k] - mean[k];
            sums[k] += d * d;
        }
}

static void moments_run(const call *call) {
    const int64_t channels = channels_of(call->step->in[0]), rows = rows_of(call->step->in[0]);
    double *totals = call->scratch;
    float *sums = (float *)(totals + 2 * channels), *y = call->out;
    sum_rows(call, add_values, totals, sums);
    for (int64_t k = 0; k < channels; k++) y[k] = rows ? (float)(totals[k] / (double)rows) : NAN;
    sum_rows(call, add_squares, totals, sums);
    for (int64_t k = 0; k < channels; k++) y[channels + k] = rows ? (float)(totals[k] / (double)rows) : NAN;
}

/* ---- batch_norm: x, mean, variance, scale, shift ---- */

static float deviation_inverse(const call *call, int64_t k) {
    const double epsilon = attribute_float(call->step, "epsilon", 0);
    return (float)(1 / sqrt((double)((const float *)call->in[2])[k] + epsilon));
}

static const char *batch_norm_refuse(const step *s) {
    if (s->in[0]->rank < 1 || !by_channel(s, 1, 5)) return "its operands do not fit its channels";
    return same_shape(s->in[0], s->out) && s->in[0]->dtype == s->out->dtype ? NULL : "its result is not like its operand";
}

static void batch_norm_run(const call *call) {
    const int64_t channels = channels_of(call->step->in[0]), rows = rows_of(call->step->in[0]);
    const float *x = call->in[0], *mean = call->in[1], *scale = call->in[3], *shift = call->in[4];
    float *factor = call->scratch, *y = call->out;
    for (int64_t k = 0; k < channels; k++) factor[k] = scale[k] * deviation_inverse(call, k);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < channels; k++) y[r * channels + k] = (x[r * channels + k] - mean[k]) * factor[k] + shift[k];
}

/* batch_norm_sums: x, mean, variance, dy -> (2, C): the sums over the rows of dy, and of dy n. Here n = (x - mean) r, with
 * r = 1 / sqrt(variance + epsilon). */
static const char *batch_norm_sums_refuse(const step *s) {
    if (s->in[0]->rank < 1 || !by_channel(s, 1, 3) || !same_shape(s->in[0], s->in[3]) || s->in[3]->dtype != s->in[0]->dtype)
        return "its operands do not fit its channels";
    return s->out->n == 2 * channels_of(s->in[0]) && s->out->dtype == STRATA_PLUGIN_F32 ? NULL : "its result does not fit";
}

static void add_products(const call *call, int64_t first, int64_t end, int64_t channels, float *sums) {
    const float *x = call->in[0], *mean = call->in[1], *dy = call->in[3];
    for (int64_t r = first; r < end; r++)
        for (int64_t k = 0; k < channels; k++) {
            const float d = dy[r * channels + k];
            sums[k] += d;
            sums[channels + k] += d * (x[r * channels + k] - mean[k]);
        }
}

static void batch_norm_sums_run(const call *call) {
    const int64_t channels = channels_of(call->step->in[0]);
    double *totals = call->scratch;
    float *y = call->out;
    sum_rows(call, add_products, totals, (float *)(totals + 2 * channels));
    for (int64_t k = 0; k < channels; k++) {
        y[k] = (float)totals[k];
        y[channels + k] = totals[channels + k] == 0 ? 0 : (float)(totals[channels + k] * (double)deviation_inverse(call, k));
    }
}

/* batch_norm_grad: x, mean, variance, scale, sums, dy -> dx = scale r (dy - (s0 + n s1) / rows). n and r are as above. If mean
 * and variance were not computed from x (attribute `own` is 0), dx = scale r dy. */
static const char *batch_norm_grad_refuse(const step *s) {
    if (s->in[0]->rank < 1 || !by_channel(s, 1, 4) || s->in[4]->n != 2 * channels_of(s->in[0]) ||
        s->in[4]->dtype != STRATA_PLUGIN_F32 || !same_shape(s->in[0], s->in[5]) || s->in[5]->dtype != s->in[0]->dtype)
        return "its operands do not fit its channels";
    return same_shape(s->in[0], s->out) && s->in[0]->dtype == s->out->dtype ? NULL : "its result is not like its operand";
}

static void batch_norm_grad_run(const call *call) {
    const int64_t channels = channels_of(call->step->in[0]), rows = rows_of(call->step->in[0]);
    const float *x = call->in[0], *mean = call->in[1], *scale = call->in[3], *sums = call->in[4], *dy = call->in[5];
    float *factor = call->scratch, *base = factor + channels, *slope = base + channels, *dx = call->out;
    const bool own = attribute_int(call->step, "own", 0) != 0;
    for (int64_t k = 0; k < channels; k++) {
        const float r = deviation_inverse(call, k);
        factor[k] = scale[k] * r;
        base[k] = own ? sums[k] / (float)rows : 0;
        slope[k] = own ? sums[channels + k] / (float)rows * r : 0;
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < channels; k++) {
            const int64_t i = r * channels + k;
            dx[i] = factor[k] * (dy[i] - (base[k] + (x[i] - mean[k]) * slope[k]));
        }
}

/* ---- layer_norm: x, scale, shift; layer_norm_grad: x, scale, dy ---- */

static const char *layer_norm_refuse(const step *s) {
    const bool is_gradient = !strcmp(s->op->name, "layer_norm_grad");
    if (s->in[0]->rank < 1 || !by_channel(s, 1, is_gradient ? 2 : 3) ||
        (is_gradient && (!same_shape(s->in[0], s->in[2]) || s->in[2]->dtype != s->in[0]->dtype)))
        return "its operands do not fit its channels";
    return same_shape(s->in[0], s->out) && s->in[0]->dtype == s->out->dtype ? NULL : "its result is not like its operand";
}

static void eight_cost(const step *s, work *work) {
    work->vector_ops = 8.0 * (double)s->in[0]->n;
}

static void row_moments(const float *x, int64_t n, double epsilon, float *out_mean, float *out_r) {
    const float mean = (float)(sum_of(x, n) / (double)n);
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += (double)(x[i] - mean) * (double)(x[i] - mean);
    *out_mean = mean;
    *out_r = (float)(1 / sqrt(squares / (double)n + epsilon));
}

static void layer_norm_run(const call *call) {
    const int64_t n = channels_of(call->step->in[0]), rows = rows_of(call->step->in[0]);
    const double epsilon = attribute_float(call->step, "epsilon", 0);
    const float *scale = call->in[1], *shift = call->in[2];
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)call->in[0] + r * n;
        float *y = (float *)call->out + r * n, mean, inverse;
        row_moments(x, n, epsilon, &mean, &inverse);
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inverse * scale[i] + shift[i];
    }
}

static void layer_norm_grad_run(const call *call) {
    const int64_t n = channels_of(call->step->in[0]), rows = rows_of(call->step->in[0]);
    const double epsilon = attribute_float(call->step, "epsilon", 0);
    const float *scale = call->in[1];
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)call->in[0] + r * n, *dy = (const float *)call->in[2] + r * n;
        float *dx = (float *)call->out + r * n, mean, inverse;
        double sum = 0, product = 0;
        row_moments(x, n, epsilon, &mean, &inverse);
        for (int64_t i = 0; i < n; i++) {
            const float g = dy[i] * scale[i];
            sum += (double)g;
            product += (double)(g * ((x[i] - mean) * inverse));
        }
        const float mean_g = (float)(sum / (double)n), mean_product = (float)(product / (double)n);
        for (int64_t i = 0; i < n; i++) dx[i] = inverse * (dy[i] * scale[i] - mean_g - (x[i] - mean) * inverse * mean_product);
    }
}
