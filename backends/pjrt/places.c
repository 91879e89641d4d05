/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that move elements without computing. */
#include "backends/pjrt/rows.h"
#include "core/op/attrs.h"

hlo_value strata_pjrt_reshape(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    return strata_hlo_reshape(strata_pjrt_text_of(l), strata_pjrt_operand(l, node, 0), node->shape);
}

hlo_value strata_pjrt_transpose(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    const int64_t *given = strata_pjrt_ints(node, "axes");
    int axes[STRATA_MAX_RANK];
    for (int d = 0; d < node->shape.rank; d++) axes[d] = (int)(given[d] < 0 ? given[d] + node->shape.rank : given[d]);
    return strata_hlo_transpose(strata_pjrt_text_of(l), strata_pjrt_operand(l, node, 0), axes);
}

hlo_value strata_pjrt_broadcast_to(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    return strata_hlo_broadcast(strata_pjrt_text_of(l), strata_pjrt_operand(l, node, 0), node->shape);
}

/* Operands are appended one after the other, so their number is not limited. */
hlo_value strata_pjrt_concat(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    const int64_t axis = strata_pjrt_int(node, "axis");
    hlo_value all = strata_pjrt_operand(l, node, 0);
    for (int i = 1; i < node->n_inputs; i++) {
        const hlo_value both[] = {all, strata_pjrt_operand(l, node, i)};
        all = strata_hlo_concat(strata_pjrt_text_of(l), both, 2, (int)(axis < 0 ? axis + node->shape.rank : axis));
    }
    return all;
}

hlo_value strata_pjrt_slice(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    const strata_slice_attrs *attrs = node->attrs;
    return strata_hlo_slice(strata_pjrt_text_of(l), strata_pjrt_operand(l, node, 0), attrs->begin, attrs->size);
}

hlo_value strata_pjrt_pad(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    return strata_hlo_pad(strata_pjrt_text_of(l), strata_pjrt_operand(l, node, 0), strata_pjrt_float(node, "value"),
                          strata_pjrt_ints(node, "before"), strata_pjrt_ints(node, "after"));
}

/* Concatenates the operands, with zeros in the gaps. Each op concatenates only a few of them; the compiler merges these
 * ops. */
hlo_value strata_pjrt_pack(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    enum { AT_ONCE = 16 };
    const strata_pack_attrs *attrs = node->attrs;
    hlo *h = strata_pjrt_text_of(l);
    hlo_value parts[AT_ONCE + 2];
    int n = 0;
    int64_t end = 0;
    for (int i = 0; i <= node->n_inputs; i++) {
        const bool last = i == node->n_inputs;
        const int64_t first = last ? attrs->size : attrs->offsets[i];
        if (first > end || (last && !n)) parts[n++] = strata_hlo_fill(h, HLO_F32, STRATA_SHAPE(first - end), 0);
        if (last) break;
        const int64_t elements = strata_shape_elements(node->inputs[i]->shape);
        if (elements) parts[n++] = strata_hlo_reshape(h, strata_pjrt_operand(l, node, i), STRATA_SHAPE(elements));
        end = first + elements;
        if (n < AT_ONCE) continue;
        parts[0] = strata_hlo_concat(h, parts, n, 0);
        n = 1;
    }
    return strata_hlo_concat(h, parts, n, 0);
}
