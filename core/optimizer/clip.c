/* SPDX-License-Identifier: Apache-2.0
 *
 * Clipping of gradients: by value, by each parameter's norm, by the norm of all (Pascanu et al. 2013). A norm of c or less
 * stays as it is. */
#include "core/optimizer/optimizer.h"

/* c / max(norm, c) from the norm's square */
static strata_tensor *factor(strata_tensor *square, double c) {
    strata_graph *graph = strata_tensor_graph(square);
    strata_tensor *most = strata_scalar(graph, STRATA_DTYPE_F32, c);
    return strata_div(most, strata_max(strata_sqrt(square), most));
}

strata_tensor *strata_clip_gradients(const strata_optimizer *settings, strata_tensor *gradients,
                                     const strata_segments *segments, strata_tensor **out_square) {
    *out_square = NULL;
    if (settings->clip_value > 0) return strata_clip(gradients, -settings->clip_value, settings->clip_value);
    if (settings->clip_norm > 0) {
        strata_tensor *squares = strata_segment_squares(segments, gradients);
        *out_square = strata_reduce_sum(squares, NULL, 0, false);
        return strata_segment_scale(segments, gradients, factor(squares, settings->clip_norm));
    }
    if (settings->clip_global_norm > 0) {
        *out_square = strata_reduce_sum(strata_square(gradients), NULL, 0, false);
        return strata_mul(gradients, factor(*out_square, settings->clip_global_norm));
    }
    return gradients;
}
