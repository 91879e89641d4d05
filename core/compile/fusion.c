/* SPDX-License-Identifier: Apache-2.0
 *
 * Fusion of epilogues: bias, activation, gradient masks and a residual are fused into the product (matmul, convolution) whose
 * result they use. The last fused node is changed into the fused product, at its place in the order of nodes, and the original
 * product becomes dead. Likewise relu's gradient is fused into that of max-pooling, and broadcast rows in a gather's gradient
 * are read from the row before the broadcast. */
#include "core/compile/passes.h"
#include "core/op/adam_product.h"
#include "core/op/attrs.h"
#include "core/op/epilogue.h"
#include "core/op/gather.h"
#include "core/op/matmul.h"
#include "core/op/ops.h"
#include "core/op/pool2d.h"
#include "strata/ops.h"

/* Unary ops that an epilogue can apply as activations, and binary gradient ops (dy, y) that it can apply with y as its
 * auxiliary operand. */
static const struct {
    const strata_op *op;
    strata_epilogue_activation activation;
    strata_epilogue_aux aux;
} foldable[] = {
    {&strata_op_relu, STRATA_EPILOGUE_RELU, STRATA_EPILOGUE_NO_AUX},
    {&strata_op_tanh, STRATA_EPILOGUE_TANH, STRATA_EPILOGUE_NO_AUX},
    {&strata_op_sigmoid, STRATA_EPILOGUE_SIGMOID, STRATA_EPILOGUE_NO_AUX},
    {&strata_op_relu_grad, STRATA_EPILOGUE_LINEAR, STRATA_EPILOGUE_RELU_GRAD},
    {&strata_op_tanh_grad, STRATA_EPILOGUE_LINEAR, STRATA_EPILOGUE_TANH_GRAD},
    {&strata_op_sigmoid_grad, STRATA_EPILOGUE_LINEAR, STRATA_EPILOGUE_SIGMOID_GRAD},
};

/* Whether `node` can compute the tensor: only `node` uses it, and its operands are the same at the place of `node`. */
static bool is_own(const strata_tensor *tensor, const strata_tensor *node, const int *uses) {
    return uses[tensor->id] == 1 && strata_may_move(tensor, node);
}

static bool is_own_product(const strata_tensor *tensor, const strata_tensor *node, const int *uses) {
    return tensor->op->epilogue && is_own(tensor, node, uses);
}

void strata_fusion_become(strata_tensor *node, const strata_tensor *fused, const strata_device_query *query) {
    if (strata_tensor_is_poison(fused) || query->supports(query->user, fused) != STRATA_SUPPORT_YES) return;
    node->op = fused->op;
    node->attrs = fused->attrs;
    node->inputs = fused->inputs;
    node->n_inputs = fused->n_inputs;
}

/* Makes the node the product with these steps, if they can be fused into it. */
static bool fold(strata_tensor *node, strata_tensor *product, strata_tensor *bias, strata_epilogue_activation activation,
                 strata_epilogue_aux aux_form, strata_tensor *aux, const strata_device_query *query) {
    if (!strata_epilogue_can_fuse(product, bias, activation, aux_form, aux)) return false;
    strata_fusion_become(node, strata_epilogue_fused(product, bias, activation, aux_form, aux), query);
    return true;
}

/* add(product, other) or add(other, product): `other` is a bias if its shape is (N), else a residual. */
static void fold_add(strata_tensor *node, const int *uses, const strata_device_query *query) {
    for (int i = 0; i < 2; i++) {
        strata_tensor *product = node->inputs[i], *other = node->inputs[1 - i];
        if (!is_own_product(product, node, uses) || !strata_shape_equal(product->shape, node->shape)) continue;
        if (fold(node, product, other, STRATA_EPILOGUE_LINEAR, STRATA_EPILOGUE_NO_AUX, NULL, query)) return;
        if (fold(node, product, NULL, STRATA_EPILOGUE_LINEAR, STRATA_EPILOGUE_ADD, other, query)) return;
    }
}

static void fold_function(strata_tensor *node, const int *uses, const strata_device_query *query) {
    strata_tensor *product = node->inputs[0], *aux = node->n_inputs > 1 ? node->inputs[1] : NULL;
    if (!is_own_product(product, node, uses) || !strata_shape_equal(product->shape, node->shape)) return;
    for (size_t i = 0; i < sizeof foldable / sizeof *foldable; i++)
        if (foldable[i].op == node->op) fold(node, product, NULL, foldable[i].activation, foldable[i].aux, aux, query);
}

/* relu_grad(max_pool2d_grad(y, dy), y), which a network's relu before a max_pool2d leads to; reduce_mean(gather(x, indices)),
 * the average of an embedding's rows. */
static void fold_operand(strata_tensor *node, const int *uses, const strata_device_query *query) {
    const bool rectifies = node->op == &strata_op_relu_grad;
    if ((!rectifies && node->op != &strata_op_reduce_mean) || !is_own(node->inputs[0], node, uses)) return;
    const strata_tensor *fused =
        rectifies ? strata_max_pool2d_grad_rectified(node->inputs[0], node->inputs[1]) : strata_gather_mean_of(node);
    if (fused) strata_fusion_become(node, fused, query);
}

/* ---- updates: if a large gradient in Adam's packed gradients is a matrix product or the gradient of a table of rows, and
 * nothing else uses it, the update computes this gradient itself (core/op/adam_product.h), and it is never stored. If
 * something else uses the gradients (clipping, an exchange with other replicas, accumulation, an output), nothing is fused
 * ---- */

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

static void fold_product_update(strata_tensor *adam, const int *uses, const strata_device_query *query) {
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

void strata_fuse_epilogues(strata_draft *draft, const strata_device_query *query) {
    strata_graph *graph = draft->graph;
    const int n = graph->n_nodes; /* fused nodes are appended beyond it and stay dead */
    int *uses = strata_graph_alloc(graph, ((size_t)n + 1) * sizeof *uses);
    bool *live = strata_graph_alloc(graph, ((size_t)n + 1) * sizeof *live);
    if (graph->status) return;
    strata_mark_live(draft, live, uses);
    for (int i = 0; i < draft->n_outputs; i++) uses[draft->outputs[i]->id]++;
    for (int i = 0; i < draft->n_updates; i++) uses[draft->updates[i]->id]++;
    for (int id = 0; id < n && !graph->status; id++) {
        strata_tensor *node = graph->nodes[id];
        if (!live[id] || !node->n_inputs) continue;
        if (node->op == &strata_op_add)
            fold_add(node, uses, query);
        else
            fold_function(node, uses, query);
        fold_operand(node, uses, query);
        const strata_tensor *unrepeated = strata_gather_grad_unrepeated(node);
        if (unrepeated && strata_may_move(node->inputs[0], node)) strata_fusion_become(node, unrepeated, query);
        fold_product_update(node, uses, query);
    }
}
