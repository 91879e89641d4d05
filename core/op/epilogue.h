/* SPDX-License-Identifier: Apache-2.0
 *
 * An epilogue is applied by a product (matmul, the convolutions) to each element of its result before the element is stored, so
 * that bias, activation and residual need no separate pass over memory. The fusion pass adds epilogues; builders make only
 * plain products, and a fused product has no gradient. With v the product's element and n its index along the last axis:
 *     v = v + bias[n]                          has_bias; bias is (N)
 *     v = activation(v)
 *     out = aux form of v and aux[..., n]      aux has the result's shape
 * all in f32 (in double in the reference), rounded once, at the store.
 *
 * An op that supports epilogues has a strata_epilogue among its attributes, at the offset strata_op.epilogue. Its inputs are
 * its two operands, then the bias if there is one, then aux if there is one. Kernels: shaders/epilogue.h. */
#ifndef STRATA_CORE_OP_EPILOGUE_H
#define STRATA_CORE_OP_EPILOGUE_H

#include "core/graph/launch.h"

/* The values are those of the kernels' constants ACTIVATION and AUX. */
typedef enum strata_epilogue_activation {
    STRATA_EPILOGUE_LINEAR = 0,
    STRATA_EPILOGUE_RELU,
    STRATA_EPILOGUE_TANH,
    STRATA_EPILOGUE_SIGMOID
} strata_epilogue_activation;

/* The forms for gradients: v is dy, and aux is the activation's output. */
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
    /* A strata_epilogue_activation. */
    int64_t activation;
    /* A strata_epilogue_aux. */
    int64_t aux;
} strata_epilogue;

/* Rows of an op's attribute table for the strata_epilogue called `epilogue` in its struct. */
#define STRATA_EPILOGUE_ATTRS(attrs)                                             \
    {"has_bias", STRATA_ATTR_INT, offsetof(attrs, epilogue.has_bias)},           \
        {"activation", STRATA_ATTR_INT, offsetof(attrs, epilogue.activation)}, { \
        "aux", STRATA_ATTR_INT, offsetof(attrs, epilogue.aux)                    \
    }

/* strata_op.words of an op whose only attributes with words are these rows. */
extern const strata_attr_words strata_epilogue_words[];

/* The node's epilogue; NULL: its op does not support epilogues. */
const strata_epilogue *strata_epilogue_of(const strata_tensor *node);
/* Whether the epilogue is empty. */
bool strata_epilogue_is_plain(const strata_epilogue *epilogue);
/* The operand, or NULL if the epilogue has none. */
const strata_tensor *strata_epilogue_bias(const strata_tensor *node);
const strata_tensor *strata_epilogue_aux_operand(const strata_tensor *node);

/* For shape rules, once the node's own shape and dtype are set. */
STRATA_MUST_USE strata_status strata_epilogue_check(const strata_tensor *node, strata_error *err);
/* For gradients: if the node is fused, records an error in the graph and returns false. */
bool strata_epilogue_allows_gradient(strata_tensor *node);
/* The value of an activation, a strata_epilogue_activation, at v. */
double strata_epilogue_activate(int64_t activation, double v);
/* For references: applies the epilogue to v and stores the result as element `at` of the output; n is its index along the last
 * axis. */
void strata_epilogue_store(const strata_op_call *call, int64_t at, int64_t n, double v);
/* The product and the fused steps as separate nodes, for strata_op.compose; NULL: nothing is fused. */
strata_tensor *strata_epilogue_unfolded(strata_tensor *node);
/* Appends the constants BIAS, ACTIVATION and AUX to a launch. */
void strata_epilogue_constants(strata_launch *launch, const strata_tensor *node);

/* Whether these steps can still be fused into the product. bias and aux may be NULL. It is possible if the product's op
 * supports epilogues, if the product has no step yet that would come after the new ones, if bias is (N) and aux has the
 * product's shape, and if both have its dtype. */
bool strata_epilogue_can_fuse(const strata_tensor *product, const strata_tensor *bias, strata_epilogue_activation activation,
                              strata_epilogue_aux aux_form, const strata_tensor *aux);
/* A copy of the node with these steps fused in addition to those that it has. If they do not fit, the graph records an
 * error. */
strata_tensor *strata_epilogue_fused(strata_tensor *product, strata_tensor *bias, strata_epilogue_activation activation,
                                     strata_epilogue_aux aux_form, strata_tensor *aux);

#endif
