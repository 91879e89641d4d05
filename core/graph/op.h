/* SPDX-License-Identifier: Apache-2.0
 *
 * One op, one room: what an op says about itself, once, for graph, gradients, planner, reference and every backend.
 * A new op is core/op/<name>.c with its strata_op_<name>, one row in core/op/ops.def, its builder in strata/ops.h,
 * shaders/<name>.kernel and tests/op/<name>_test.c. */
#ifndef STRATA_CORE_OP_H
#define STRATA_CORE_OP_H

#include "strata/graph.h"

typedef struct strata_op strata_op;
typedef struct strata_lowering strata_lowering; /* core/graph/launch.h */

/* Attributes are a plain struct per op, described by a table, so that passes compare, traces print and plugins read them. */
typedef enum strata_attr_kind {
    STRATA_ATTR_INT = 0,
    STRATA_ATTR_FLOAT,
    /* int64_t[STRATA_MAX_RANK], an entry for each axis of input 0; the rest are 0. */
    STRATA_ATTR_INTS,
    /* The same of two entries (height, width), and of four. */
    STRATA_ATTR_PAIR,
    STRATA_ATTR_QUAD,
    STRATA_ATTR_SHAPE,
    /* const int64_t *: as many as the attribute "n" says; without one, an entry for each input. */
    STRATA_ATTR_LIST,
    /* int64_t[STRATA_MAX_RANK] of codes that mean nothing outside of the op: strata_op.compose says it in ops. */
    STRATA_ATTR_CODES,
    /* Identity only: constants' data, variables. */
    STRATA_ATTR_POINTER
} strata_attr_kind;

/* The texts that stand for the values 0, 1, ... of an INT, for those who read a description (core/compile/describe.h). A list
 * ends at a NULL attribute, the words at a NULL word. */
typedef struct strata_attr_words {
    const char *attribute;
    const char *const *words;
} strata_attr_words;

typedef struct strata_attr_field {
    const char *name;
    strata_attr_kind kind;
    /* Where the field lies in the op's attribute struct. */
    size_t offset;
} strata_attr_field;

enum { STRATA_MAX_ATTR_FIELDS = 12 };

/* Host memory of one node: what the reference reads and writes. Elements are the node's and its inputs' dtypes and shapes. */
typedef struct strata_op_call {
    const strata_tensor *node;
    const void *const *inputs;
    /* For an op that updates input 0 in place: that input's memory. */
    void *output;
} strata_op_call;

enum {
    STRATA_OP_LEAF = 1,          /* input, constant, variable read: no computation                                     */
    STRATA_OP_VIEW = 2,          /* output is input 0's memory under another shape (reshape); never lowered             */
    STRATA_OP_UPDATE = 4,        /* writes input 0 (a variable) in place and is its new value; never merged with its like  */
    STRATA_OP_ELEMENTWISE = 8,   /* output element i needs element i of inputs of the same shape only: may run in place     */
    STRATA_OP_SLICES = 16,       /* pack: inputs may be computed straight into their place in the output                 */
    STRATA_OP_COMMUNICATION = 32 /* carried out between replicas, not by a device; with one replica the value is input 0's */
};

struct strata_op {
    /* The op's name, and the stem of its files in core/op, shaders and tests. */
    const char *name;
    /* max_inputs -1: any number. */
    int min_inputs, max_inputs;
    unsigned flags;
    /* The size of the attribute struct; 0: the op has no attributes. */
    size_t attrs_bytes;
    /* The fields of the attribute struct; the list ends at a NULL name. */
    strata_attr_field attrs[STRATA_MAX_ATTR_FIELDS];
    /* Of the fields that stand for words; NULL: none does. */
    const strata_attr_words *words;

    /* Where in the attributes its strata_epilogue is (core/op/epilogue.h); 0: the op takes none. */
    size_t epilogue;

    /* For STRATA_OP_UPDATE: inputs written besides input 0, bit per input (Adam's m and v). */
    unsigned also_writes;

    /* Sets node->dtype and node->shape from node->inputs and node->attrs, or says why not: the message begins with what is
     * wrong (the op's name is put before it) and has the values. Never allocates. */
    strata_status (*shape)(strata_tensor *node, strata_error *err);

    /* NULL: no gradient passes (the input's gradient is zero: comparisons, argmax), unless the op is marked in `no_gradient`.
     * Sets dx[i] to the gradient for input i, built from other ops, of input i's shape and dtype; dx[i] left NULL: none. */
    void (*gradient)(strata_tensor *node, strata_tensor *dy, strata_tensor **dx);

    /* Why differentiating through this op is an error; NULL: it is not. */
    const char *no_gradient;

    /* Computes the op on the host: plain C with double accumulators, for every dtype that the shape rule accepts. Every
     * device is compared with it. */
    strata_status (*reference)(const strata_op_call *call, strata_error *err);

    /* NULL: there is none. Builds the same value from simpler ops, in the node's graph and from its inputs, for devices that
     * lack the op (core/compile/decompose.c) and for plugins, which see it as the node's parts. What was fused falls apart into
     * what it was made of. The result has the node's dtype and shape; of an update it is an update of the same variable, on
     * which the updates of all the others depend. NULL where these attributes, dtypes or shapes have no composition. Ops must
     * not be compositions of each other in a circle. */
    strata_tensor *(*compose)(strata_tensor *node);

    /* Additions and multiplications of one run, a multiply-add as two. NULL: none worth counting, except that an element-wise
     * op counts one for each element of its output (core/compile/cost.c). */
    double (*flops)(const strata_tensor *node);

    /* The portable kernels: describes the launches for kernel devices through strata_lowering_add (core/graph/launch.h). NULL
     * for leaves and views. */
    strata_status (*lower)(const strata_tensor *node, strata_lowering *lowering, strata_error *err);
};

#endif
