/* SPDX-License-Identifier: Apache-2.0
 *
 * Fusion of epilogues: bias, activation, gradient masks and a residual are fused into the product (matmul, convolution) whose
 * result they use. The last fused node is changed into the fused product, at its place in the order of nodes, and the original
 * product becomes dead. Likewise relu's gradient is fused into that of max-pooling, and broadcast rows in a gather's gradient
 * are read from the row before the broadcast. */
#include "core/compile/passes.h"
#include "core/compile/walk.h"
#include "core/op/epilogue.h"
#include "core/op/gather.h"
#include "core/op/ops.h"
#include "core/op/pool2d.h"

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

/* Whether the tensor is a product that `node` can compute: only `node` uses it, and its operands are the same at the place of
 * `node`. */
static bool is_own_product(const strata_tensor *tensor, const strata_tensor *node, const int *uses) {
    return tensor->op->epilogue && uses[tensor->id] == 1 && strata_may_move(tensor, node);
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

/* relu_grad(max_pool2d_grad(y, dy), y), which a network's relu before a max_pool2d leads to. */
static void fold_relu_of_pool(strata_tensor *node, const int *uses, const strata_device_query *query) {
    if (node->op != &strata_op_relu_grad || uses[node->inputs[0]->id] != 1 || !strata_may_move(node->inputs[0], node)) return;
    const strata_tensor *fused = strata_max_pool2d_grad_rectified(node->inputs[0], node->inputs[1]);
    if (fused) strata_fusion_become(node, fused, query);
}

/* reduce_mean(gather(x, indices)), the average of an embedding's rows. */
static void fold_gather_of_mean(strata_tensor *node, const int *uses, const strata_device_query *query) {
    if (node->op != &strata_op_reduce_mean || uses[node->inputs[0]->id] != 1 || !strata_may_move(node->inputs[0], node)) return;
    const strata_tensor *fused = strata_gather_mean_of(node);
    if (fused) strata_fusion_become(node, fused, query);
}

void strata_fuse_epilogues(strata_graph *graph, strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                           int n_updates, const strata_device_query *query) {
    int n = graph->n_nodes; /* fused nodes are appended beyond it and stay dead */
    int *uses = strata_graph_alloc(graph, ((size_t)n + 1) * sizeof *uses);
    bool *live = strata_graph_alloc(graph, ((size_t)n + 1) * sizeof *live);
    if (!uses || !live) return;
    strata_mark_live(graph, outputs, n_outputs, updates, n_updates, live, uses);
    for (int i = 0; i < n_outputs; i++) uses[outputs[i]->id]++;
    for (int i = 0; i < n_updates; i++) uses[updates[i]->id]++;
    for (int id = 0; id < n && !graph->status; id++) {
        strata_tensor *node = graph->nodes[id];
        if (!live[id] || !node->n_inputs) continue;
        if (node->op == &strata_op_add)
            fold_add(node, uses, query);
        else
            fold_function(node, uses, query);
        fold_relu_of_pool(node, uses, query);
        const strata_tensor *unrepeated = strata_gather_grad_unrepeated(node);
        if (unrepeated && strata_may_move(node->inputs[0], node)) strata_fusion_become(node, unrepeated, query);
        fold_gather_of_mean(node, uses, query);
        strata_fuse_product_update(node, uses, query);
    }
}
