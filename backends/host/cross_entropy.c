/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy with integer labels in f32 on the host, and its gradient by the logits. */
#include <math.h>

#include "backends/host/host.h"
#include "core/op/ops.h"
#include "core/op/softmax.h"

enum { LOGITS, LABELS, DY };
enum { WORK_OF_EXP = 8 };

bool strata_host_cross_entropy_takes(const strata_tensor *node) {
    return node->dtype == STRATA_DTYPE_F32 && node->inputs[LABELS]->dtype == STRATA_DTYPE_I32;
}

int64_t strata_host_cross_entropy_work(const strata_tensor *node) {
    return WORK_OF_EXP * strata_shape_elements(node->inputs[LOGITS]->shape);
}

/* The largest of c numbers; NaN if one of them is NaN. */
static float largest(const float *x, int64_t c) {
    float most = x[0];
    for (int64_t i = 1; i < c; i++) most = x[i] > most || isnan(x[i]) ? x[i] : most;
    return most;
}

/* The sum of exp(x - most), where most is the largest of c numbers; NaN if it is not finite, as on other devices. */
static float sum_of_exp(const float *x, int64_t c, float most) {
    double sum = 0;
    if (!isfinite(most)) return NAN;
    for (int64_t i = 0; i < c; i++) sum += (double)expf(x[i] - most);
    return (float)sum;
}

void strata_host_cross_entropy(const host_call *host) {
    const strata_op_call *call = &host->call;
    const strata_channels sizes = strata_channels_of(call->node->inputs[LOGITS]->shape);
    const bool is_gradient = call->node->op == &strata_op_sparse_softmax_cross_entropy_grad;
    const int32_t *labels = call->inputs[LABELS];
    const float *dys = is_gradient ? call->inputs[DY] : NULL;
    const host_share share = strata_host_share(host, sizes.rows, 1);
    for (int64_t row = share.first; row < share.end; row++) {
        const float *x = (const float *)call->inputs[LOGITS] + row * sizes.channels;
        const bool has_label = labels[row] >= 0 && labels[row] < sizes.channels;
        float *y = (float *)call->output + row * (is_gradient ? sizes.channels : 1);
        /* The largest logit is taken away before anything is rounded: of logits far from 0, their sum has few digits. */
        const float most = has_label ? largest(x, sizes.channels) : NAN, sum = sum_of_exp(x, sizes.channels, most);
        if (!is_gradient) {
            y[0] = has_label ? logf(sum) - (x[labels[row]] - most) : NAN;
            continue;
        }
        const float dy = has_label ? dys[row] : NAN;
        for (int64_t i = 0; i < sizes.channels; i++) y[i] = dy * (expf(x[i] - most) / sum - (float)(i == labels[row]));
    }
}
