/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax, its losses, and the sums of metrics. All of them work on rows of the last axis. */
#include "helpers.h"

enum { EXP_OPS = 8 };

/* What a softmax divides by: the sum of exp(x - most), where most is the largest number of the row. */
typedef struct divisor {
    float most, sum;
} divisor;

static divisor divisor_of(const float *x, int64_t n) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) most = x[i] > most || x[i] != x[i] ? x[i] : most;
    for (int64_t i = 0; i < n; i++) sum += (double)exp_of(x[i] - most);
    return (divisor){most, (float)sum};
}

static float softmax_of(divisor d, float x) {
    return exp_of(x - d.most) / d.sum;
}

/* The logarithm of the softmax. Without the largest number x has few digits behind the point, so it goes first. */
static float log_softmax_of(divisor d, float x) {
    return (x - d.most) - logf(d.sum);
}

static const char *rows_refuse(const step *s) {
    if (s->in[0]->rank < 1) return "its operand is a scalar";
    for (int i = 0; i < s->n_inputs; i++)
        if (!same_shape(s->in[i], s->out) || s->in[i]->dtype != s->out->dtype) return "its operands are not like its result";
    return NULL;
}

static void exponential_cost(const step *s, work *work) {
    work->vector_ops = (double)s->in[0]->n * (EXP_OPS + 4);
}

static void softmax_run(const call *call) {
    const int64_t n = last_dim(call->step->out), rows = rows_of(call->step->out);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)call->in[0] + r * n;
        const divisor d = divisor_of(x, n);
        for (int64_t i = 0; i < n; i++) ((float *)call->out)[r * n + i] = softmax_of(d, x[i]);
    }
}

static void log_softmax_run(const call *call) {
    const int64_t n = last_dim(call->step->out), rows = rows_of(call->step->out);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)call->in[0] + r * n;
        float *y = (float *)call->out + r * n;
        const divisor d = divisor_of(x, n);
        for (int64_t i = 0; i < n; i++) y[i] = log_softmax_of(d, x[i]);
    }
}

static void softmax_grad_run(const call *call) {
    const int64_t n = last_dim(call->step->out), rows = rows_of(call->step->out);
    for (int64_t r = 0; r < rows; r++) {
        const float *y = (const float *)call->in[0] + r * n, *dy = (const float *)call->in[1] + r * n;
        float *dx = (float *)call->out + r * n;
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (double)y[i] * (double)dy[i];
        for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - (float)sum);
    }
}

static void log_softmax_grad_run(const call *call) {
    const int64_t n = last_dim(call->step->out), rows = rows_of(call->step->out);
    for (int64_t r = 0; r < rows; r++) {
        const float *y = (const float *)call->in[0] + r * n, *dy = (const float *)call->in[1] + r * n;
        float *dx = (float *)call->out + r * n;
        const float sum = (float)sum_of(dy, n);
        for (int64_t i = 0; i < n; i++) dx[i] = dy[i] - exp_of(y[i]) * sum;
    }
}

/* ---- losses: logits, labels [, dy] ---- */

static const char *loss_refuse(const step *s) {
    const array *logits = s->in[0], *labels = s->in[1];
    if (logits->rank < 1 || !same_shape(logits, labels) || labels->dtype != logits->dtype)
        return "its labels are not like its logits";
    if (s->n_inputs == 2)
        return s->out->n == rows_of(logits) && s->out->dtype == logits->dtype ? NULL : "its result does not fit";
    if (s->in[2]->n != rows_of(logits) || s->in[2]->dtype != logits->dtype) return "its dy does not fit its logits";
    return same_shape(s->out, logits) && s->out->dtype == logits->dtype ? NULL : "its result is not like its logits";
}

static const char *sparse_loss_refuse(const step *s) {
    const array *logits = s->in[0], *labels = s->in[1];
    if (logits->rank < 1 || !dtype_is_index(labels->dtype) || labels->n != rows_of(logits))
        return "its labels do not fit its logits";
    if (s->n_inputs == 2) return s->out->n == labels->n && s->out->dtype == logits->dtype ? NULL : "its result does not fit";
    if (s->in[2]->n != labels->n || s->in[2]->dtype != logits->dtype) return "its dy does not fit its logits";
    return same_shape(s->out, logits) && s->out->dtype == logits->dtype ? NULL : "its result is not like its logits";
}

static void softmax_cross_entropy_run(const call *call) {
    const int64_t n = last_dim(call->step->in[0]), rows = rows_of(call->step->in[0]);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)call->in[0] + r * n, *labels = (const float *)call->in[1] + r * n;
        const divisor d = divisor_of(x, n);
        double loss = 0;
        for (int64_t i = 0; i < n; i++) loss -= (double)labels[i] * (double)log_softmax_of(d, x[i]);
        ((float *)call->out)[r] = (float)loss;
    }
}

static void softmax_cross_entropy_grad_run(const call *call) {
    const int64_t n = last_dim(call->step->in[0]), rows = rows_of(call->step->in[0]);
    const bool of_logits = strcmp(attribute_text(call->step, "of", "logits"), "labels") != 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)call->in[0] + r * n, *labels = (const float *)call->in[1] + r * n;
        const divisor d = divisor_of(x, n);
        const float dy = ((const float *)call->in[2])[r], weight = (float)sum_of(labels, n);
        float *y = (float *)call->out + r * n;
        for (int64_t i = 0; i < n; i++)
            y[i] = dy * (of_logits ? softmax_of(d, x[i]) * weight - labels[i] : -log_softmax_of(d, x[i]));
    }
}

/* A label that is out of range gives NaN. */
static void sparse_softmax_cross_entropy_run(const call *call) {
    const int64_t n = last_dim(call->step->in[0]), rows = rows_of(call->step->in[0]);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)call->in[0] + r * n;
        const int64_t label = whole_get(call->step->in[1]->dtype, call->in[1], r);
        ((float *)call->out)[r] = label >= 0 && label < n ? -log_softmax_of(divisor_of(x, n), x[label]) : NAN;
    }
}

static void sparse_softmax_cross_entropy_grad_run(const call *call) {
    const int64_t n = last_dim(call->step->in[0]), rows = rows_of(call->step->in[0]);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)call->in[0] + r * n;
        float *y = (float *)call->out + r * n;
        const int64_t label = whole_get(call->step->in[1]->dtype, call->in[1], r);
        const float dy = label >= 0 && label < n ? ((const float *)call->in[2])[r] : NAN;
        const divisor d = divisor_of(x, n);
        for (int64_t i = 0; i < n; i++) y[i] = dy * (softmax_of(d, x[i]) - (i == label));
    }
}

/* ---- sums of metrics ---- */

static const char *classification_sums_refuse(const step *s) {
    const array *losses = s->in[0], *logits = s->in[1], *labels = s->in[2];
    if (logits->rank != 2 || logits->dims[0] != losses->n || logits->dims[1] < 1 || labels->n != losses->n || s->out->n != 2 ||
        logits->dtype != STRATA_PLUGIN_F32 || !dtype_is_index(labels->dtype) || s->out->dtype != STRATA_PLUGIN_F32)
        return "its operands do not fit";
    return NULL;
}

static void sums_cost(const step *s, work *work) {
    work->vector_ops = (double)(s->in[0]->n + s->in[1]->n * 2);
}

static void classification_sums_run(const call *call) {
    const array *logits = call->step->in[1], *labels = call->step->in[2];
    const int64_t rows = logits->dims[0], n = logits->dims[1];
    const float *losses = call->in[0];
    double sum = 0;
    int64_t right = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)call->in[1] + r * n;
        int64_t best = 0;
        for (int64_t i = 1; i < n; i++)
            if (x[best] == x[best] && (x[i] != x[i] || x[i] > x[best])) best = i;
        sum += (double)losses[r];
        right += whole_get(labels->dtype, call->in[2], r) == best;
    }
    ((float *)call->out)[0] = (float)sum;
    ((float *)call->out)[1] = (float)right;
}

static const char *binary_sums_refuse(const step *s) {
    const array *losses = s->in[0], *outputs = s->in[1];
    if (outputs->rank != 2 || outputs->dims[0] != losses->n || outputs->dims[1] < 1 || !same_shape(outputs, s->in[2]) ||
        s->out->n != 2 || !inputs_are(s, 0, 3, STRATA_PLUGIN_F32) || s->out->dtype != STRATA_PLUGIN_F32)
        return "its operands do not fit";
    return NULL;
}

static void binary_sums_run(const call *call) {
    const array *outputs = call->step->in[1];
    const double threshold = attribute_float(call->step, "threshold", 0);
    const float *losses = call->in[0], *x = call->in[1], *y = call->in[2];
    double sum = 0;
    int64_t right = 0;
    for (int64_t r = 0; r < outputs->dims[0]; r++) sum += (double)losses[r];
    for (int64_t i = 0; i < outputs->n; i++) right += ((double)x[i] > threshold) == (y[i] > 0.5f);
    ((float *)call->out)[0] = (float)sum;
    ((float *)call->out)[1] = (float)((double)right / (double)outputs->dims[1]);
}
