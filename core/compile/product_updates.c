/* SPDX-License-Identifier: Apache-2.0
 *
 * Fusion of updates: if a large gradient in Adam's packed gradients is a matrix product or the gradient of a table of rows, and
 * nothing else uses it, the update computes this gradient itself (core/op/adam_product.h), and it is
 * never stored. If something else uses the gradients (clipping, an exchange with other replicas, accumulation, an output),
 * nothing is fused. */
#include "core/compile/passes.h"
#include "core/compile/walk.h"
#include "core/op/adam_product.h"
#include "core/op/matmul.h"
#include "core/op/ops.h"
#include "core/op/pack.h"
#include "strata/ops.h"

/* The least number of elements of a fused gradient. With fewer elements, the launch of the fused kernel costs as much
 * as storing and loading the gradient. */
enum { LEAST_ELEMENTS = 1 << 15 };

/* Whether the update could compute the node: a product a^T b, or the gradient of a gather along axis 0. */
static bool is_fusible(const strata_tensor *node) {
    if (node->op == &strata_op_gather_grad)
        return node->dtype == STRATA_DTYPE_F32 && ((const strata_gather_grad_attrs *)node->attrs)->axis == 0;
    if (node->op != &strata_op_matmul || node->shape.rank != 2) return false;
    const strata_matmul_attrs *attrs = node->attrs;
    return strata_epilogue_is_plain(&attrs->epilogue) && attrs->transpose_a && !attrs->transpose_b;
}

/* The node of which an operand of the pack is a view, if it is fusible, only the update's pack uses it, and neither the update
 * nor one before it changes its operands; else NULL. */
static const strata_tensor *own_gradient(const strata_tensor *part, const strata_tensor *adam, const int *uses) {
    while (uses[part->id] == 1 && strata_is_view(part, NULL)) part = part->inputs[0];
    if (uses[part->id] != 1 || !is_fusible(part) || strata_shape_elements(part->shape) < LEAST_ELEMENTS) return NULL;
    return strata_may_move(part, adam) ? part : NULL;
}

/* The pack without its part i. */
static void leave_out(strata_tensor *pack, int i) {
    const strata_pack_attrs *attrs = pack->attrs;
    const int n = pack->n_inputs - 1;
    strata_tensor **parts = strata_graph_alloc(pack->graph, (size_t)n * sizeof *parts);
    int64_t *offsets = strata_graph_alloc(pack->graph, (size_t)n * sizeof *offsets);
    if (!parts || !offsets) return; /* the gradient is computed in vain */
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
    /* Tries the gradients in descending order of size, until the device has a kernel for one. */
    for (int64_t below = INT64_MAX; adam->op == &strata_op_adam;) {
        const strata_tensor *largest = NULL;
        int64_t most = 0;
        int part = 0;
        for (int i = 0; i < pack->n_inputs; i++) {
            const strata_tensor *gradient = own_gradient(pack->inputs[i], adam, uses);
            const int64_t n = gradient ? strata_shape_elements(gradient->shape) : 0;
            if (n <= most || n >= below) continue;
            largest = gradient;
            most = n;
            part = i;
        }
        if (!largest) return;
        below = most;
        const int64_t offset = ((const strata_pack_attrs *)pack->attrs)->offsets[part];
        const bool is_product = largest->op == &strata_op_matmul;
        strata_fusion_become(adam,
                             is_product ? strata_adam_product(adam, largest->inputs[0], largest->inputs[1], offset)
                                        : strata_adam_gather(adam, largest, offset),
                             query);
        if (adam->op != &strata_op_adam) leave_out(pack, part);
    }
}
