/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions. */
#include <math.h>

#include "backends/pjrt/lower.h"
#include "core/op/ops.h"
#include "core/op/reduce.h"

static hlo_value reduce_as(hlo *h, const strata_tensor *node, const char *name, hlo_value x, double start) {
    const strata_reduce_attrs *attrs = node->attrs;
    return strata_hlo_fold(h, name, x, start, (int)attrs->axis, (int)attrs->n_axes);
}

/* The initial value of a maximum: no number of the type is smaller. */
static double lowest(int type) {
    if (strata_dtype_is_float((strata_dtype)type)) return -INFINITY;
    return type == HLO_I64 ? -0x1p63 : type == HLO_I32 ? INT32_MIN : 0;
}

static hlo_value reduce_sum(hlo *h, const strata_tensor *node) {
    return reduce_as(h, node, "add", strata_pjrt_number(h, node, 0), 0);
}

static hlo_value reduce_mean(hlo *h, const strata_tensor *node) {
    const strata_reduce_attrs *attrs = node->attrs;
    double n = 1;
    for (int64_t d = attrs->axis; d < attrs->axis + attrs->n_axes; d++) n *= (double)node->inputs[0]->shape.dims[d];
    return strata_hlo_with(h, "divide", reduce_sum(h, node), n);
}

/* The result is NaN if any element of x is NaN, which jaxlib's vectorized reductions lose. A minimum of integers is computed as
 * the complement of the maximum of their complements, because the initial value of a minimum, INT64_MAX, cannot be represented
 * as a double. */
static hlo_value extreme(hlo *h, const strata_tensor *node, bool max) {
    const hlo_value x = strata_pjrt_number(h, node, 0);
    if (strata_dtype_is_float(node->dtype)) {
        const hlo_value most = reduce_as(h, node, max ? "maximum" : "minimum", x, max ? -INFINITY : INFINITY);
        const hlo_value is_nan = strata_hlo_convert(h, strata_hlo_compare(h, "NE", x, x), HLO_I32);
        const hlo_value any = strata_hlo_compare_with(h, "NE", reduce_as(h, node, "maximum", is_nan, 0), 0);
        return strata_hlo_select(h, any, strata_hlo_scalar(h, HLO_F32, (double)NAN), most);
    }
    if (max) return reduce_as(h, node, "maximum", x, lowest(x.type));
    return strata_hlo_unary(h, "not", reduce_as(h, node, "maximum", strata_hlo_unary(h, "not", x), lowest(x.type)));
}

static hlo_value reduce_max(hlo *h, const strata_tensor *node) {
    return extreme(h, node, true);
}

static hlo_value reduce_min(hlo *h, const strata_tensor *node) {
    return extreme(h, node, false);
}

const pjrt_row strata_pjrt_folds[] = {
    PJRT_ROW(reduce_sum), PJRT_ROW(reduce_mean), PJRT_ROW(reduce_max), PJRT_ROW(reduce_min), {0}};
