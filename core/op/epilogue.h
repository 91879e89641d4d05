/* SPDX-License-Identifier: Apache-2.0
 *
 * What a product (matmul, the convolutions) does to each element of its result before it is stored, so that bias, activation
 * and residual cost no pass over memory of their own. The fusion pass puts them there; builders make plain products only, and a
 * fused one has no gradient. With v the product's element and n its index along the last axis:
 *     v = v + bias[n]                          has_bias; bias is (N)
 *     v = activation(v)
 *     out = aux form of v and aux[..., n]      aux has the result's shape
 * all in f32 (in double in the reference), rounded once, at the store.
 *
 * An op takes epilogues by a strata_epilogue among its attributes, whose place is strata_op.epilogue. Its inputs are then its
 * two own operands, the bias where there is one, aux where there is one. Kernels: shaders/epilogue.h. */
#ifndef STRATA_CORE_OP_EPILOGUE_H
#define STRATA_CORE_OP_EPILOGUE_H

#include "core/graph/graph.h"
#include "core/graph/launch.h"

/* The values are those of the kernels' constants ACTIVATION and AUX. */
typedef enum strata_epilogue_activation {
    STRATA_EPILOGUE_LINEAR = 0,
    STRATA_EPILOGUE_RELU,
    STRATA_EPILOGUE_TANH,
    STRATA_EPILOGUE_SIGMOID
} strata_epilogue_activation;

/* The gradients' forms take v for dy and aux for the activation's output. */
typedef enum strata_epilogue_aux {
    STRATA_EPILOGUE_NO_AUX = 0,
    STRATA_EPILOGUE_RELU_GRAD,    /* aux > 0 ? v : 0     */
    STRATA_EPILOGUE_TANH_GRAD,    /* v (1 - aux^2)       */
    STRATA_EPILOGUE_SIGMOID_GRAD, /* v aux (1 - aux)     */
    STRATA_EPILOGUE_ADD           /* v + aux             */
} strata_epilogue_aux;

typedef struct strata_epilogue {
    /* 0 or 1. */
    int64_t has_bias;
    /* strata_epilogue_activation. */
    int64_t activation;
    /* strata_epilogue_aux. */
    int64_t aux;
} strata_epilogue;

/* Rows of an op's attribute table for the strata_epilogue called `epilogue` in its struct. */
#define STRATA_EPILOGUE_ATTRS(attrs)                                             \
    {"has_bias", STRATA_ATTR_INT, offsetof(attrs, epilogue.has_bias)},           \
        {"activation", STRATA_ATTR_INT, offsetof(attrs, epilogue.activation)}, { \
        "aux", STRATA_ATTR_INT, offsetof(attrs, epilogue.aux)                    \
    }

/* strata_op.words of an op that has these rows and no others that stand for words. */
extern const strata_attr_words strata_epilogue_words[];

/* The node's, or NULL: its op takes none. */
const strata_epilogue *strata_epilogue_of(const strata_tensor *node);
/* Whether anything is folded in. */
bool strata_epilogue_is_plain(const strata_epilogue *epilogue);
/* The operands, or NULL. */
const strata_tensor *strata_epilogue_bias(const strata_tensor *node);
const strata_tensor *strata_epilogue_aux_operand(const strata_tensor *node);

/* For shape rules, once the node's own shape and dtype are set. */
STRATA_MUST_USE strata_status strata_epilogue_check(const strata_tensor *node, strata_error *err);
/* For gradients: poisons the graph and returns false where the node is fused. */
bool strata_epilogue_allows_gradient(strata_tensor *node);
/* For references: element `at` of the output becomes what the epilogue makes of v, n being its index along the last axis. */
void strata_epilogue_store(const strata_op_call *call, int64_t at, int64_t n, double v);
/* The product and what was folded into it as nodes of their own, for strata_op.compose; NULL: it is plain. */
strata_tensor *strata_epilogue_unfolded(strata_tensor *node);
/* Appends the constants BIAS, ACTIVATION and AUX to a launch. */
void strata_epilogue_constants(strata_launch *launch, const strata_tensor *node);

/* Whether bias, activation or aux form may still be folded into the node: it takes epilogues, nothing that comes later is there
 * yet, bias is (N) and aux has the node's shape, all of its dtype. bias and aux may be NULL. */
bool strata_epilogue_can_fuse(const strata_tensor *product, const strata_tensor *bias, strata_epilogue_activation activation,
                              strata_epilogue_aux aux_form, const strata_tensor *aux);
/* The node once more with these folded in; what was before stays. Poisoned when they do not fit. */
strata_tensor *strata_epilogue_fused(strata_tensor *product, strata_tensor *bias, strata_epilogue_activation activation,
                                     strata_epilogue_aux aux_form, strata_tensor *aux);

#endif
