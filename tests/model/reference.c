/* SPDX-License-Identifier: Apache-2.0
 *
 * The classifier in double precision. reference.h describes it. */
#include "reference.h"

#include <math.h>
#include <string.h>

static const int sizes[] = {REFERENCE_BIAS, CASE_HIDDEN, CASE_HIDDEN *CASE_CLASSES, CASE_CLASSES};

static void read_parameters(strata_model *model, double *out_p) {
    strata_error err = {0};
    float values[REFERENCE_SIZE];
    int at = 0;
    cr_assert_eq(strata_model_n_parameters(model), 4);
    for (int i = 0; i < 4; at += sizes[i++]) {
        strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(sizes[i]), values + at);
        OK(strata_model_get_parameter(model, i, &view, &err));
    }
    for (int i = 0; i < REFERENCE_SIZE; i++) out_p[i] = (double)values[i];
}

void reference_take(reference *r, strata_model *model) {
    read_parameters(model, r->p);
}

void reference_forward(const reference *r, const float *x, const int32_t *y, int64_t n, double out_sums[2], double *dp) {
    const double *w = r->p + REFERENCE_KERNEL, *b = r->p + REFERENCE_BIAS;
    const double *v = r->p + REFERENCE_OUT_KERNEL, *c = r->p + REFERENCE_OUT_BIAS;
    out_sums[0] = out_sums[1] = 0;
    if (dp) memset(dp, 0, REFERENCE_SIZE * sizeof *dp);
    for (int64_t i = 0; i < n; i++, x += CASE_INPUTS) {
        double h[CASE_HIDDEN], logits[CASE_CLASSES], total = 0;
        int best = 0;
        for (int k = 0; k < CASE_HIDDEN; k++) {
            h[k] = b[k];
            for (int j = 0; j < CASE_INPUTS; j++) h[k] += (double)x[j] * w[j * CASE_HIDDEN + k];
            h[k] = tanh(h[k]);
        }
        for (int k = 0; k < CASE_CLASSES; k++) {
            logits[k] = c[k];
            for (int j = 0; j < CASE_HIDDEN; j++) logits[k] += h[j] * v[j * CASE_CLASSES + k];
            if (logits[k] > logits[best]) best = k;
            total += exp(logits[k]);
        }
        out_sums[0] += log(total) - logits[y[i]];
        out_sums[1] += best == y[i];
        if (!dp) continue;
        double dh[CASE_HIDDEN] = {0};
        for (int k = 0; k < CASE_CLASSES; k++) {
            double d = (exp(logits[k]) / total - (k == y[i])) / (double)n;
            dp[REFERENCE_OUT_BIAS + k] += d;
            for (int j = 0; j < CASE_HIDDEN; j++) {
                dp[REFERENCE_OUT_KERNEL + j * CASE_CLASSES + k] += d * h[j];
                dh[j] += d * v[j * CASE_CLASSES + k];
            }
        }
        for (int k = 0; k < CASE_HIDDEN; k++) {
            double d = dh[k] * (1 - h[k] * h[k]);
            dp[REFERENCE_BIAS + k] += d;
            for (int j = 0; j < CASE_INPUTS; j++) dp[REFERENCE_KERNEL + j * CASE_HIDDEN + k] += d * (double)x[j];
        }
    }
}

static void sgd(reference *r, const double *g) {
    const strata_optimizer *o = &r->optimizer;
    for (int i = 0; i < REFERENCE_SIZE; i++) {
        double *velocity = &r->slots[0][i];
        *velocity = o->momentum * *velocity + g[i];
        r->p[i] -= o->learning_rate * (o->nesterov ? g[i] + o->momentum * *velocity : *velocity);
    }
}

static void adam(reference *r, const double *g) {
    const strata_optimizer *o = &r->optimizer;
    double rate = o->learning_rate * sqrt(1 - pow(o->beta2, r->steps)) / (1 - pow(o->beta1, r->steps));
    for (int i = 0; i < REFERENCE_SIZE; i++) {
        double *m = &r->slots[0][i], *v = &r->slots[1][i];
        *m = o->beta1 * *m + (1 - o->beta1) * g[i];
        *v = o->beta2 * *v + (1 - o->beta2) * g[i] * g[i];
        r->p[i] -= rate * *m / (sqrt(*v) + o->epsilon);
    }
}

double reference_step(reference *r, const float *x, const int32_t *y, int64_t n) {
    double sums[2], g[REFERENCE_SIZE];
    reference_forward(r, x, y, n, sums, g);
    r->steps++;
    (strcmp(r->optimizer.name, "adam") ? sgd : adam)(r, g);
    return sums[0] / (double)n;
}

double reference_distance(const reference *r, strata_model *model) {
    double p[REFERENCE_SIZE], worst = 0;
    read_parameters(model, p);
    for (int i = 0; i < REFERENCE_SIZE; i++) {
        double d = fabs(p[i] - r->p[i]);
        if (!(d <= worst)) worst = d; /* also for NaN */
    }
    return worst;
}
