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

/* Operands are appended one after the other, so their number is not limited. */
static hlo_value concat(hlo *h, const strata_tensor *node) {
    hlo_value all = strata_pjrt_operand(h, node, 0);
    for (int i = 1; i < node->n_inputs; i++)
        all = strata_hlo_concat(h, (hlo_value[]){all, strata_pjrt_operand(h, node, i)}, 2, strata_pjrt_axis(node));
    return all;
}

static hlo_value slice(hlo *h, const strata_tensor *node) {
    const strata_slice_attrs *attrs = node->attrs;
    return strata_hlo_slice(h, strata_pjrt_operand(h, node, 0), attrs->begin, attrs->size, NULL);
}

static hlo_value pad(hlo *h, const strata_tensor *node) {
    return strata_hlo_pad(h, strata_pjrt_operand(h, node, 0), strata_pjrt_float(node, "value"),
                          strata_pjrt_ints(node, "before"), strata_pjrt_ints(node, "after"), NULL);
}

/* Concatenates the operands, with zeros in the gaps. Each op concatenates only a few of them; the compiler merges these
 * ops. */
static hlo_value pack(hlo *h, const strata_tensor *node) {
    enum { AT_ONCE = 16 };
    const strata_pack_attrs *attrs = node->attrs;
    hlo_value parts[AT_ONCE + 2];
    int n = 0;
    int64_t end = 0;
    for (int i = 0; i <= node->n_inputs; i++) {
        const bool last = i == node->n_inputs;
        const int64_t first = last ? attrs->size : attrs->offsets[i];
        if (first > end || (last && !n)) parts[n++] = strata_hlo_fill(h, HLO_F32, STRATA_SHAPE(first - end), 0);
        if (last) break;
        const int64_t elements = strata_shape_elements(node->inputs[i]->shape);
        if (elements) parts[n++] = strata_hlo_reshape(h, strata_pjrt_operand(h, node, i), STRATA_SHAPE(elements));
        end = first + elements;
        if (n < AT_ONCE) continue;
        parts[0] = strata_hlo_concat(h, parts, n, 0);
        n = 1;
    }
    return strata_hlo_concat(h, parts, n, 0);
}

const pjrt_row strata_pjrt_places[] = {PJRT_ROW(reshape), PJRT_ROW(transpose), PJRT_ROW(broadcast_to), PJRT_ROW(concat),
                                       PJRT_ROW(slice),   PJRT_ROW(pad),       PJRT_ROW(pack),         {0}};
