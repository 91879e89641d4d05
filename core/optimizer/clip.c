/* SPDX-License-Identifier: Apache-2.0
 *
 * Clips gradients: by value, by the norm of each parameter's gradient, or by the norm of all gradients (Pascanu et al.
 * 2013). A norm of at most c is not changed. */
#include "core/optimizer/optimizer.h"

bool strata_optimizer_takes_norms(const strata_optimizer *settings) {
    return settings->clip_norm > 0 || settings->clip_global_norm > 0;
}

/* c / max(norm, c), where `square` is the square of the norm. */
static strata_tensor *factor(strata_tensor *square, double c) {
    strata_graph *graph = strata_tensor_graph(square);
    strata_tensor *most = strata_scalar(graph, STRATA_DTYPE_F32, c);
    return strata_div(most, strata_max(strata_sqrt(square), most));
}

void strata_clip_gradients(const strata_optimizer *settings, strata_tensor **gradients, const strata_segments *segments, int n,
                           strata_tensor **out_square) {
    strata_tensor *square = NULL, *squares = NULL, *all = NULL;
    for (int k = 0; k < n; k++) {
        if (settings->clip_value > 0) {
            gradients[k] = strata_clip(gradients[k], -settings->clip_value, settings->clip_value);
            continue;
        }
        if (settings->clip_norm > 0) {
            squares = strata_segment_squares(&segments[k], gradients[k]);
            square = strata_reduce_sum(squares, NULL, 0, false);
            gradients[k] = strata_segment_scale(&segments[k], gradients[k], factor(squares, settings->clip_norm));
        } else if (settings->clip_global_norm > 0) {
            square = strata_reduce_sum(strata_square(gradients[k]), NULL, 0, false);
        }
        all = all && square ? strata_add(all, square) : square;
    }
    strata_tensor *scale = settings->clip_global_norm > 0 ? factor(all, settings->clip_global_norm) : NULL;
    for (int k = 0; k < n && scale; k++) gradients[k] = strata_mul(gradients[k], scale);
    *out_square = all;
}
