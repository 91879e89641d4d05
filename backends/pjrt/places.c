/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that move elements without computing. */
#include "backends/pjrt/lower.h"
#include "core/op/attrs.h"
#include "core/op/ops.h"

/* The result is reshaped as for every node. */
static hlo_value reshape(hlo *h, const strata_tensor *node) {
    return strata_pjrt_operand(h, node, 0);
}

static hlo_value transpose(hlo *h, const strata_tensor *node) {
    const int64_t *given = strata_pjrt_ints(node, "axes");
    int64_t axes[STRATA_MAX_RANK];
    for (int d = 0; d < node->shape.rank; d++) axes[d] = given[d] < 0 ? given[d] + node->shape.rank : given[d];
    return strata_hlo_transpose(h, strata_pjrt_operand(h, node, 0), axes);
}

static hlo_value broadcast_to(hlo *h, const strata_tensor *node) {
    return strata_hlo_broadcast(h, strata_pjrt_operand(h, node, 0), node->shape);
}

/* Each op of the text concatenates a few operands, so their number is not limited. The compiler merges these ops. */
static hlo_value concat(hlo *h, const strata_tensor *node) {
    enum { AT_ONCE = 16 };
    hlo_value parts[AT_ONCE];
    int n = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        if (n == AT_ONCE) parts[0] = strata_hlo_concat(h, parts, n, strata_pjrt_axis(node)), n = 1;
        parts[n++] = strata_pjrt_operand(h, node, i);
    }
    return strata_hlo_concat(h, parts, n, strata_pjrt_axis(node));
}

static hlo_value slice(hlo *h, const strata_tensor *node) {
    const strata_slice_attrs *attrs = node->attrs;
    return strata_hlo_slice(h, strata_pjrt_operand(h, node, 0), attrs->begin, attrs->size, NULL);
}

static hlo_value pad(hlo *h, const strata_tensor *node) {
    return strata_hlo_pad(h, strata_pjrt_operand(h, node, 0), strata_pjrt_float(node, "value"),
                          strata_pjrt_ints(node, "before"), strata_pjrt_ints(node, "after"), NULL);
}

const pjrt_row strata_pjrt_places[] = {
    PJRT_ROW(reshape), PJRT_ROW(transpose), PJRT_ROW(broadcast_to), PJRT_ROW(concat), PJRT_ROW(slice), PJRT_ROW(pad), {0}};
