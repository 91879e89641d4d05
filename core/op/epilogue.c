/* SPDX-License-Identifier: Apache-2.0
 *
 * Epilogues of products (epilogue.h): their operands, their shape rules, their values, and how one more step is fused
 * into a product. */
#include "core/op/epilogue.h"

#include "core/op/define.h"

extern const strata_op strata_op_relu_grad, strata_op_tanh_grad, strata_op_sigmoid_grad;

enum { OWN_OPERANDS = 2 };

const strata_attr_words strata_epilogue_words[] = {
    {"activation", (const char *const[]){"linear", "relu", "tanh", "sigmoid", NULL}},
    {"aux", (const char *const[]){"none", "relu_grad", "tanh_grad", "sigmoid_grad", "add", NULL}},
    {NULL, NULL}};

const strata_epilogue *strata_epilogue_of(const strata_tensor *node) {
    size_t offset = node->op->epilogue;
    return offset ? (const strata_epilogue *)(const void *)((const char *)node->attrs + offset) : NULL;
}

bool strata_epilogue_is_plain(const strata_epilogue *epilogue) {
    return !epilogue->has_bias && !epilogue->activation && !epilogue->aux;
}

static int aux_index(const strata_epilogue *epilogue) {
    return OWN_OPERANDS + (epilogue->has_bias != 0);
}

const strata_tensor *strata_epilogue_bias(const strata_tensor *node) {
    return strata_epilogue_of(node)->has_bias && node->n_inputs > OWN_OPERANDS ? node->inputs[OWN_OPERANDS] : NULL;
}

const strata_tensor *strata_epilogue_aux_operand(const strata_tensor *node) {
    const strata_epilogue *epilogue = strata_epilogue_of(node);
    int index = aux_index(epilogue);
    return epilogue->aux != STRATA_EPILOGUE_NO_AUX && node->n_inputs > index ? node->inputs[index] : NULL;
}

static int64_t last_dim(const strata_tensor *node) {
    return node->shape.dims[node->shape.rank - 1];
}

strata_status strata_epilogue_check(const strata_tensor *node, strata_error *err) {
    const strata_epilogue *epilogue = strata_epilogue_of(node);
    const strata_tensor *bias = strata_epilogue_bias(node), *aux = strata_epilogue_aux_operand(node);
    int n_inputs = OWN_OPERANDS + (bias != NULL) + (aux != NULL);
    if (epilogue->activation < STRATA_EPILOGUE_LINEAR || epilogue->activation > STRATA_EPILOGUE_SIGMOID ||
        epilogue->aux < STRATA_EPILOGUE_NO_AUX || epilogue->aux > STRATA_EPILOGUE_ADD || node->n_inputs != n_inputs)
        return strata_fail(err, STRATA_INVALID, "activation %" PRId64 ", aux form %" PRId64 " and %d operands do not fit",
                           epilogue->activation, epilogue->aux, node->n_inputs);
    int64_t n = last_dim(node);
    if (bias && (bias->dtype != node->dtype || !strata_shape_equal(bias->shape, STRATA_SHAPE(n))))
        return strata_fail(err, STRATA_INVALID, "bias is %s %s; it must be %s (%" PRId64 ")", strata_dtype_name(bias->dtype),
                           strata_shape_text(bias->shape).text, strata_dtype_name(node->dtype), n);
    if (aux && (aux->dtype != node->dtype || !strata_shape_equal(aux->shape, node->shape)))
        return strata_fail(err, STRATA_INVALID, "aux is %s %s; it must be as the result, %s %s", strata_dtype_name(aux->dtype),
                           strata_shape_text(aux->shape).text, strata_dtype_name(node->dtype),
                           strata_shape_text(node->shape).text);
    return STRATA_OK;
}

bool strata_epilogue_allows_gradient(strata_tensor *node) {
    if (strata_epilogue_is_plain(strata_epilogue_of(node))) return true;
    strata_graph_poison(node->graph, node->op, STRATA_UNSUPPORTED,
                        "a fused product has no gradient; differentiate before the passes run");
    return false;
}

/* ---- values ---- */

double strata_epilogue_activate(int64_t activation, double v) {
    switch ((strata_epilogue_activation)activation) {
        case STRATA_EPILOGUE_RELU:
            return v < 0 ? 0 : v;
        case STRATA_EPILOGUE_TANH:
            return tanh(v);
        case STRATA_EPILOGUE_SIGMOID:
            return v < 0 ? exp(v) / (1 + exp(v)) : 1 / (1 + exp(-v));
        case STRATA_EPILOGUE_LINEAR:
            break;
    }
    return v;
}

static double apply_aux(int64_t form, double v, double aux) {
    switch ((strata_epilogue_aux)form) {
        case STRATA_EPILOGUE_RELU_GRAD:
            return aux > 0 ? v : 0;
        case STRATA_EPILOGUE_TANH_GRAD:
            return v * (1 - aux * aux);
        case STRATA_EPILOGUE_SIGMOID_GRAD:
            return v * aux * (1 - aux);
        case STRATA_EPILOGUE_ADD:
            return v + aux;
        case STRATA_EPILOGUE_NO_AUX:
            break;
    }
    return v;
}

void strata_epilogue_store(const strata_op_call *call, int64_t at, int64_t n, double v) {
    const strata_epilogue *epilogue = strata_epilogue_of(call->node);
    const strata_dtype dtype = call->node->dtype;
    if (epilogue->has_bias) v += strata_element_get(dtype, call->inputs[OWN_OPERANDS], n);
    v = strata_epilogue_activate(epilogue->activation, v);
    if (epilogue->aux) v = apply_aux(epilogue->aux, v, strata_element_get(dtype, call->inputs[aux_index(epilogue)], at));
    strata_element_set(dtype, call->output, at, v);
}

void strata_epilogue_constants(strata_launch *launch, const strata_tensor *node) {
    const strata_epilogue *epilogue = strata_epilogue_of(node);
    STRATA_LAUNCH_CONSTANTS(launch, {"BIAS", (int32_t)epilogue->has_bias}, {"ACTIVATION", (int32_t)epilogue->activation},
                            {"AUX", (int32_t)epilogue->aux});
}

/* ---- fusing ---- */

bool strata_epilogue_can_fuse(const strata_tensor *product, const strata_tensor *bias, strata_epilogue_activation activation,
                              strata_epilogue_aux aux_form, const strata_tensor *aux) {
    const strata_epilogue *epilogue = strata_epilogue_of(product);
    if (!epilogue) return false;
    bool has_activation = epilogue->activation != STRATA_EPILOGUE_LINEAR, has_aux = epilogue->aux != STRATA_EPILOGUE_NO_AUX;
    if (bias && (epilogue->has_bias || has_activation || has_aux || bias->dtype != product->dtype ||
                 !strata_shape_equal(bias->shape, STRATA_SHAPE(last_dim(product)))))
        return false;
    if (activation != STRATA_EPILOGUE_LINEAR && (has_activation || has_aux)) return false;
    if ((aux_form != STRATA_EPILOGUE_NO_AUX) != (aux != NULL)) return false;
    return !aux || (!has_aux && aux->dtype == product->dtype && strata_shape_equal(aux->shape, product->shape));
}

/* A copy of the product with this epilogue and these inputs. */
static strata_tensor *with_epilogue(const strata_tensor *product, const strata_epilogue *epilogue, int n_inputs,
                                    strata_tensor *const *inputs) {
    char *attrs = strata_graph_alloc(product->graph, product->op->attrs_bytes);
    if (!attrs) return &product->graph->poison;
    memcpy(attrs, product->attrs, product->op->attrs_bytes);
    memcpy(attrs + product->op->epilogue, epilogue, sizeof *epilogue);
    return strata_node(product->graph, product->op, n_inputs, inputs, attrs);
}

strata_tensor *strata_epilogue_fused(strata_tensor *product, strata_tensor *bias, strata_epilogue_activation activation,
                                     strata_epilogue_aux aux_form, strata_tensor *aux) {
    if (!strata_epilogue_can_fuse(product, bias, activation, aux_form, aux))
        return strata_graph_poison(product->graph, product->op, STRATA_INTERNAL, "bias, activation or aux cannot be folded in");
    strata_epilogue epilogue = *strata_epilogue_of(product);
    strata_tensor *inputs[OWN_OPERANDS + 2] = {product->inputs[0], product->inputs[1]};
    int n_inputs = OWN_OPERANDS;
    if (epilogue.has_bias) bias = product->inputs[OWN_OPERANDS];
    if (epilogue.aux) aux = product->inputs[aux_index(&epilogue)];
    if (bias) inputs[n_inputs++] = bias;
    if (aux) inputs[n_inputs++] = aux;
    epilogue.has_bias = bias != NULL;
    if (activation != STRATA_EPILOGUE_LINEAR) epilogue.activation = activation;
    if (aux_form != STRATA_EPILOGUE_NO_AUX) epilogue.aux = aux_form;
    return with_epilogue(product, &epilogue, n_inputs, inputs);
}

/* ---- splitting a fused node ---- */

strata_tensor *strata_epilogue_unfolded(strata_tensor *node) {
    static strata_tensor *(*const activations[])(strata_tensor *) = {
        [STRATA_EPILOGUE_RELU] = strata_relu, [STRATA_EPILOGUE_TANH] = strata_tanh, [STRATA_EPILOGUE_SIGMOID] = strata_sigmoid};
    static const strata_op *const gradients[] = {[STRATA_EPILOGUE_RELU_GRAD] = &strata_op_relu_grad,
                                                 [STRATA_EPILOGUE_TANH_GRAD] = &strata_op_tanh_grad,
                                                 [STRATA_EPILOGUE_SIGMOID_GRAD] = &strata_op_sigmoid_grad};
    const strata_epilogue *epilogue = strata_epilogue_of(node), plain = {0};
    if (strata_epilogue_is_plain(epilogue)) return NULL;
    strata_tensor *v = with_epilogue(node, &plain, OWN_OPERANDS, node->inputs);
    if (epilogue->has_bias) v = strata_add(v, node->inputs[OWN_OPERANDS]);
    if (epilogue->activation) v = activations[epilogue->activation](v);
    strata_tensor *aux = epilogue->aux ? node->inputs[aux_index(epilogue)] : NULL;
    if (epilogue->aux == STRATA_EPILOGUE_ADD) return strata_add(v, aux);
    return aux ? strata_node(NULL, gradients[epilogue->aux], 2, (strata_tensor *[]){v, aux}, NULL) : v;
}
