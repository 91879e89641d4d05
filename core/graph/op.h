/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that describes an op, for the graph, gradients, the memory planner, tests and every backend. Each op defines one
 * in its own file. core/op/README.md lists the steps for a new op. */
#ifndef STRATA_CORE_OP_H
#define STRATA_CORE_OP_H

#include "core/base/alloc.h"
#include "strata/graph.h"

typedef struct strata_op strata_op;
typedef struct strata_lowering strata_lowering; /* core/graph/launch.h */
typedef struct strata_factors strata_factors;   /* core/graph/placement.h */
typedef struct strata_node_part strata_node_part;

/* The attributes of an op are a plain struct. A table describes its fields, so that passes can compare attributes, traces can
 * print them, and plugins can read them. */
typedef enum strata_attr_kind {
    STRATA_ATTR_INT = 0,
    STRATA_ATTR_FLOAT,
    /* int64_t[STRATA_MAX_RANK], an entry for each axis of input 0; the rest are 0. */
    STRATA_ATTR_INTS,
    /* int64_t[2] (height, width), and int64_t[4]. */
    STRATA_ATTR_PAIR,
    STRATA_ATTR_QUAD,
    STRATA_ATTR_SHAPE,
    /* const int64_t *. The number of entries is the attribute "n_<name>" or "n"; without such an attribute there is an
     * entry for each input. */
    STRATA_ATTR_LIST,
    /* int64_t[STRATA_MAX_RANK] of codes that only the op understands; strata_op.compose gives their meaning as other ops. */
    STRATA_ATTR_CODES,
    /* A pointer that is compared by its address only: data of constants, variables. */
    STRATA_ATTR_POINTER
} strata_attr_kind;

/* Names for the values 0, 1, ... of an INT attribute, which descriptions of graphs use (core/compile/describe.h). A list of
 * these structs ends at a NULL attribute, the words end at a NULL word. */
typedef struct strata_attr_words {
    const char *attribute;
    const char *const *words;
} strata_attr_words;

typedef struct strata_attr_field {
    const char *name;
    strata_attr_kind kind;
    /* The field's offset in the op's attribute struct. */
    size_t offset;
} strata_attr_field;

enum { STRATA_MAX_ATTR_FIELDS = 12 };

/* The host memory that the reference of a node reads and writes. The node and its inputs have the dtypes and shapes. */
typedef struct strata_op_call {
    const strata_tensor *node;
    const void *const *inputs;
    /* For an op that updates input 0 in place: the memory of that input. */
    void *output;
    /* The indices of the n_elements elements of the output that are wanted; NULL: all. Only a reference of an op with the flag
     * STRATA_OP_SAMPLES may leave out the others. */
    const int64_t *elements;
    int64_t n_elements;
    /* Set by a reference that fails; err may be NULL. */
    strata_status status;
    strata_error *err;
} strata_op_call;

/* Runs the reference of the node's op. */
STRATA_MUST_USE strata_status strata_reference(strata_op_call call, strata_error *err);
/* For references: n zeroed elements of this size, which the caller frees. NULL: there is no memory, and the call has failed. */
void *strata_call_alloc(strata_op_call *call, int64_t n, size_t bytes);

/* For references of ops with STRATA_OP_SAMPLES: the number of elements to compute, of n in all, and the index of the i-th. */
static inline int64_t strata_call_count(const strata_op_call *call, int64_t n) {
    return call->elements ? call->n_elements : n;
}
static inline int64_t strata_call_element(const strata_op_call *call, int64_t i) {
    return call->elements ? call->elements[i] : i;
}

enum {
    STRATA_OP_LEAF = 1,           /* input, constant, variable read: no computation                                     */
    STRATA_OP_VIEW = 2,           /* output is input 0's memory under another shape (reshape); never lowered             */
    STRATA_OP_UPDATE = 4,         /* writes input 0 (a variable) in place and is its new value; equal nodes are not merged  */
    STRATA_OP_ELEMENTWISE = 8,    /* output element i needs element i of inputs of the same shape only: may run in place     */
    STRATA_OP_SLICES = 16,        /* pack: inputs may be computed directly at their places in the output                  */
    STRATA_OP_COMMUNICATION = 32, /* performed between replicas, not by a device; with one replica the value is input 0's  */
    STRATA_OP_SAMPLES = 64,       /* the reference computes only the elements that are wanted (strata_op_call.elements)     */
    STRATA_OP_RESOLVED = 128      /* if devices divide a dimension that the placement rule excludes, they compute `compose` */
};

struct strata_op {
    /* The op's name, and the stem of its files in core/op, shaders and tests. */
    const char *name;
    /* optional_inputs: how many more it may have; -1: any number. */
    int n_inputs, optional_inputs;
    unsigned flags;
    /* The size of the attribute struct; 0: the op has no attributes. */
    size_t attrs_bytes;
    /* The fields of the attribute struct; the list ends at a NULL name. */
    strata_attr_field attrs[STRATA_MAX_ATTR_FIELDS];
    /* Names for the values of some fields; NULL: none. */
    const strata_attr_words *words;

    /* The offset of its strata_epilogue in the attributes (core/op/epilogue.h); 0: nothing can be fused into the op. */
    size_t epilogue;

    /* For STRATA_OP_ELEMENTWISE: bit i is set if every element of input i is read for each output element (the sums of
     * batch_norm_grad). The output is never written over such an input, even if it has the same shape. */
    unsigned whole;

    /* For STRATA_OP_UPDATE: bit i is set if input i is written too, besides input 0 (Adam's m and v). */
    unsigned also_writes;

    /* The shape rule: sets node->dtype and node->shape from node->inputs and node->attrs, or fails with a message that has the
     * wrong values (the caller puts the op's name before it). At first they are those of input 0. Must not allocate. NULL: they
     * stay so; a leaf's are set by its builder. */
    strata_status (*shape)(strata_tensor *node, strata_error *err);

    /* Sets dx[i] to the gradient with respect to input i, built from other ops, with the shape and dtype of input i; a dx[i]
     * that stays NULL means zero. NULL: the gradients of all inputs are zero (comparisons, argmax), unless `no_gradient` is
     * set. */
    void (*gradient)(strata_tensor *node, strata_tensor *dy, strata_tensor **dx);

    /* Why differentiating this op is an error; NULL: it is no error. */
    const char *no_gradient;

    /* Computes the op on the host: plain C with double accumulators, for every dtype that the shape rule accepts. Every
     * device is compared with it. */
    void (*reference)(strata_op_call *call);

    /* Builds the same value from simpler ops, in the node's graph and from its inputs, for devices that lack the op
     * (core/compile/decompose.c) and for plugins, which see it as the node's parts. The composition of a fused node is the
     * nodes that were fused. The result has the node's dtype and shape. The result of an update's composition is an update of
     * the same variable that depends on the updates of all other variables, since what nothing needs is left out. Returns NULL
     * for attributes, dtypes or shapes that have no composition. Compositions must not be cyclic. NULL: the op has no
     * composition. */
    strata_tensor *(*compose)(strata_tensor *node);
    /* The formula from which strata_formula_compose (core/op/compose.h) builds an element-wise op; NULL: there is none. */
    const char *formula;

    /* The placement rule: which dimensions of operands and result may be divided among devices, and are then divided together
     * (core/graph/placement.h). `dims` is a row of letters such as "...k,kn->...n"; `factors` is a function for ops whose
     * attributes decide. Both NULL: an element-wise op may be divided along all dimensions, any other op along none. */
    const char *dims;
    /* The row if each device computes the statistics of its own examples (batch norm): the result of a sum over a divided
     * factor is then each device's own. NULL: no other row. */
    const char *own_dims;
    void (*factors)(const strata_tensor *node, strata_factors *factors);
    /* A strata_linearity: how partial operands make a partial result; `factors` may set another one. */
    int linearity;
    /* Builds a device's part of the node. NULL: a node with the same attributes; an attribute that is the shape of the result
     * becomes the shape of the part. */
    strata_tensor *(*part)(const strata_node_part *part);

    /* The number of additions and multiplications of one run; a multiply-add counts as two. NULL: 0, or, for an element-wise
     * op, one for each element of its output (core/graph/graph.c). */
    double (*flops)(const strata_tensor *node);

    /* Adds the launches of the op's portable kernels to the list, with strata_lowering_add (core/graph/launch.h). NULL for
     * leaves and views. */
    strata_status (*lower)(const strata_tensor *node, strata_lowering *lowering, strata_error *err);
};

#endif
