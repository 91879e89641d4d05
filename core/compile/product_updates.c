/* SPDX-License-Identifier: Apache-2.0
 *
 * Fusion of updates: if a large gradient in Adam's packed gradients is a matrix product that nothing else uses, the update
 * computes the product itself (core/op/adam_product.h), and the gradient is never stored. If something else uses the gradients
 * (clipping, an exchange with other replicas, accumulation, an output), nothing is fused. */
#include "core/compile/passes.h"
#include "core/compile/walk.h"
#include "core/op/adam_product.h"
#include "core/op/matmul.h"
#include "core/op/ops.h"
#include "core/op/pack.h"
#include "strata/ops.h"

enum { LEAST_ELEMENTS = 1 << 15 }; /* of a product, or its launch costs as much as its gradient's way through memory */

/* The product a^T b of which an operand of the pack is a view, if only the update's pack uses it; else NULL. */
static const strata_tensor *own_product(const strata_tensor *part, const int *uses) {
    while (uses[part->id] == 1 && strata_is_view(part, NULL)) part = part->inputs[0];
    if (part->op != &strata_op_matmul || uses[part->id] != 1 || part->shape.rank != 2) return NULL;
    const strata_matmul_attrs *attrs = part->attrs;
    const bool plain = strata_epilogue_is_plain(&attrs->epilogue) && attrs->transpose_a && !attrs->transpose_b;
    return plain && strata_shape_elements(part->shape) >= LEAST_ELEMENTS ? part : NULL;
}

/* The pack without its part i. */
static void leave_out(strata_tensor *pack, int i) {
    const strata_pack_attrs *attrs = pack->attrs;
    const int n = pack->n_inputs - 1;
    strata_tensor **parts = strata_graph_alloc(pack->graph, (size_t)n * sizeof *parts);
    int64_t *offsets = strata_graph_alloc(pack->graph, (size_t)n * sizeof *offsets);
    if (!parts || !offsets) return; /* the product is computed in vain */
    for (int k = 0; k < n; k++) {
        parts[k] = pack->inputs[k < i ? k : k + 1];
        offsets[k] = attrs->offsets[k < i ? k : k + 1];
    }
    const strata_tensor *rest = strata_pack(parts, offsets, n, attrs->size);
    if (strata_tensor_is_poison(rest)) return;
    pack->attrs = rest->attrs;
    pack->inputs = rest->inputs;
    pack->n_inputs = rest->n_inputs;
}

void strata_fuse_product_update(strata_tensor *adam, const int *uses, const strata_device_query *query) {
    if (adam->op != &strata_op_adam || !((const strata_adam_attrs *)adam->attrs)->has_gate) return;
    strata_tensor *pack = adam->inputs[STRATA_ADAM_PRODUCT_GRADIENTS];
    if (pack->op != &strata_op_pack || uses[pack->id] != 1 || pack->n_inputs < 2) return;
    const strata_tensor *largest = NULL;
    int part = 0;
    for (int i = 0; i < pack->n_inputs; i++) {
        const strata_tensor *product = own_product(pack->inputs[i], uses);
        if (!product || (largest && strata_shape_elements(product->shape) <= strata_shape_elements(largest->shape))) continue;
        largest = product;
        part = i;
    }
    if (!largest) return;
    const int64_t offset = ((const strata_pack_attrs *)pack->attrs)->offsets[part];
    strata_fusion_become(adam, strata_adam_product(adam, largest->inputs[0], largest->inputs[1], offset), query);
    if (adam->op == &strata_op_adam_product) leave_out(pack, part);
}
