/* SPDX-License-Identifier: Apache-2.0
 *
 * chain: an expression of element-wise ops as one node, built by core/compile/chains.c. Its value has the same bits as that of
 * the separate ops. References, and backends that run in host memory, evaluate it block by block (strata_chain_run). */
#ifndef STRATA_CORE_OP_CHAIN_H
#define STRATA_CORE_OP_CHAIN_H

#include "core/graph/launch.h"

enum {
    /* A kernel has 8 buffers; one of them is the result. */
    STRATA_CHAIN_OPERANDS = 7,
    STRATA_CHAIN_STEPS = 16,
    STRATA_CHAIN_VALUES = STRATA_CHAIN_OPERANDS + STRATA_CHAIN_STEPS,
    /* The most arguments that a step can have. */
    STRATA_CHAIN_ARGUMENTS = 3,
    /* The most axes of the operands' index space after merging. More cannot be described by the words of a kernel. */
    STRATA_CHAIN_AXES = 3,
    /* Bytes of each value that are evaluated at a time. The blocks of a few values fit in a first-level cache. */
    STRATA_CHAIN_BLOCK_BYTES = 4096
};

/* Value number v is the node's input v if v is below STRATA_CHAIN_OPERANDS, else the result of step v - STRATA_CHAIN_OPERANDS.
 * The result of the last step is the node's value. */
typedef struct strata_chain_attrs {
    int64_t n_steps;
    /* Bits 0 to 7 are the code of the step's op. The next bytes are its arguments, each the number of a value. */
    int64_t steps[STRATA_CHAIN_STEPS];
} strata_chain_attrs;

/* The code of the op in `steps`; -1: a chain cannot contain this op. */
int strata_chain_code(const strata_op *op);
/* The op with this code; NULL: no op has it. */
const strata_op *strata_chain_op(int code);
/* Adds the step op(arguments) to the attributes. */
void strata_chain_add(strata_chain_attrs *attrs, const strata_op *op, const int *arguments);
/* Makes a chain node. All operands have the same dtype. */
strata_tensor *strata_chain(int n_operands, strata_tensor *const *operands, const strata_chain_attrs *attrs);

/* The index space of n tensors that broadcast to `shape`, with as few axes as possible. n is at most
 * STRATA_CHAIN_OPERANDS. */
strata_strided strata_chain_space(int n, const strata_tensor *const *tensors, strata_shape shape);

/* The index space of an element-wise node: its operands, in order, and the node. */
strata_strided strata_elementwise_space(const strata_tensor *node);

/* The evaluation of a chain, or of a single element-wise op. `steps` are nodes whose operands and results are blocks. */
typedef struct strata_chain_run {
    int n_operands, n_steps;
    /* The number of elements in a block. */
    int64_t block;
    strata_strided space;
    /* Whether all blocks of the operand have the same contents, because it is a single element or a row that is
     * broadcast. */
    bool blocks_are_equal[STRATA_CHAIN_OPERANDS];
    strata_tensor operands[STRATA_CHAIN_OPERANDS], steps[STRATA_CHAIN_STEPS];
    /* The numbers of the values that each step takes as arguments. */
    int arguments[STRATA_CHAIN_STEPS][STRATA_CHAIN_ARGUMENTS];
    strata_tensor *inputs[STRATA_CHAIN_STEPS][STRATA_CHAIN_ARGUMENTS];
} strata_chain_run;

/* Computes step number `step` for one block. */
typedef strata_status strata_chain_step(const void *user, int step, const strata_op_call *call, strata_error *err);

/* `node` is a chain, or an element-wise op with at most 3 operands. The struct contains pointers to itself, so it must not be
 * moved. */
void strata_chain_run_init(strata_chain_run *run, const strata_tensor *node);
/* Calls `step` for each step of each block. Stops at the first failure. */
STRATA_MUST_USE strata_status strata_chain_run_blocks(strata_chain_run *run, const strata_op_call *call,
                                                      strata_chain_step *step, const void *user, strata_error *err);

#endif
