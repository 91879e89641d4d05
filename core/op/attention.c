/* SPDX-License-Identifier: Apache-2.0
 *
 * Scaled dot-product attention (Vaswani et al. 2017), built from matmul and softmax, so that it has their gradients and
 * kernels:
 *   y = softmax(scale q k^T) v, where the softmax is over the positions of k for which the mask is true
 * The scores of the other positions are replaced by the lowest finite number instead of -infinity, and their weights are
 * set to 0 after the softmax. So a row that is masked completely gives zeros and passes no gradient, whereas a softmax of
 * -infinities would be NaN. */
#include "core/base/option.h"
#include "core/op/define.h"

static double lowest(strata_dtype dtype) {
    return dtype == STRATA_DTYPE_F16 ? -65504 : -1e30;
}

strata_tensor *strata_attention(strata_tensor *q, strata_tensor *k, strata_tensor *v, strata_tensor *mask, double scale) {
    if (!q || strata_tensor_is_poison(q)) return q;
    strata_graph *graph = q->graph;
    if (q->shape.rank < 2)
        return strata_graph_poison(graph, NULL, STRATA_INVALID, "attention: q is %s; it needs at least two axes",
                                   strata_shape_text(q->shape).text);
    scale = strata_number_or(scale, 1 / sqrt((double)q->shape.dims[q->shape.rank - 1]));
    strata_tensor *scores = strata_matmul(strata_mul(q, strata_scalar(graph, q->dtype, scale)), k, false, true);
    if (!mask) return strata_matmul(strata_softmax(scores), v, false, false);
    scores = strata_where(mask, scores, strata_scalar(graph, q->dtype, lowest(q->dtype)));
    strata_tensor *weights = strata_where(mask, strata_softmax(scores), strata_scalar(graph, q->dtype, 0));
    return strata_matmul(weights, v, false, false);
}
