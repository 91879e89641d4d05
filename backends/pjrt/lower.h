/* SPDX-License-Identifier: Apache-2.0
 *
 * A piece of graph as a StableHLO module: one function, whose parameters are what the piece reads and whose results are what it
 * leaves behind. table.c says how each op is lowered.
 *
 * Nouns. The *root* of a tensor is the one in whose memory it lies: behind views, and behind updates, which change their first
 * operand in place. A *port* is a root that a program gets or gives as a buffer of its own: what the host writes and reads,
 * constants too large to be text, variables, and work memory that one piece computes and another reads. All other values are
 * inside of the function, so the compiler is free in how it computes and where it keeps them. */
#ifndef STRATA_BACKENDS_PJRT_LOWER_H
#define STRATA_BACKENDS_PJRT_LOWER_H

#include "backends/pjrt/hlo.h"
#include "core/base/export.h"
#include "core/compile/piece.h"

typedef struct pjrt_port {
    strata_dtype dtype;
    strata_shape shape;
    /* Where the piece has it: an index in piece->arenas, and bytes. */
    int arena;
    int64_t offset, bytes;
    /* Of a result: the parameter whose memory it takes over, which the run consumes; -1: none. */
    int donor;
} pjrt_port;

typedef struct pjrt_module {
    char *text;
    size_t n_bytes;
    pjrt_port *parameters, *results;
    int n_parameters, n_results;
} pjrt_module;

typedef struct pjrt_lower_options {
    /* How many replicas run the program, with all_reduce among all of them; 0 and 1: one, without. */
    int n_replicas;
    /* The compiler may multiply f32 in less than its precision. */
    bool fast;
} pjrt_lower_options;

/* Whether the node has a lowering; if not, *reason (static memory) says why. */
bool strata_pjrt_lowers(const strata_tensor *node, const char **reason);

/* Fails: UNSUPPORTED naming the node and why; OUT_OF_MEMORY. The caller finishes the module. */
STRATA_MUST_USE strata_status strata_pjrt_lower(const strata_piece *piece, pjrt_lower_options options, pjrt_module *out_module,
                                                strata_error *err);
STRATA_EXPORT_BEGIN
void strata_pjrt_module_finish(pjrt_module *module);
STRATA_EXPORT_END

/* ---- for the lowerings ---- */

typedef struct pjrt_lowering pjrt_lowering;

hlo *strata_pjrt_text_of(pjrt_lowering *l);
int strata_pjrt_n_replicas(const pjrt_lowering *l);
/* The operand as it is; as a number to compute with: floats of 16 bits become f32. */
hlo_value strata_pjrt_operand(pjrt_lowering *l, const strata_tensor *node, int i);
hlo_value strata_pjrt_number(pjrt_lowering *l, const strata_tensor *node, int i);
/* Operand i, which is a variable or rows of one, has this value from now on. */
void strata_pjrt_write(pjrt_lowering *l, const strata_tensor *node, int i, hlo_value value);

/* An attribute by its name in the op's table. It must be there. */
int64_t strata_pjrt_int(const strata_tensor *node, const char *name);
double strata_pjrt_float(const strata_tensor *node, const char *name);
const int64_t *strata_pjrt_ints(const strata_tensor *node, const char *name);

/* One row of the table. */
typedef struct pjrt_row {
    const strata_op *op;
    /* Of element-wise ops, which chains are made of: the value from those of the operands, in f32 for floats. */
    hlo_value (*element)(hlo *h, const char *name, const hlo_value *x);
    /* What the function is told: the name of a StableHLO op, for example. */
    const char *name;
    /* Of the others: the node's value; of an update, its first operand's new value. */
    hlo_value (*lower)(pjrt_lowering *l, const strata_tensor *node, const char *name);
    /* Why a node is not lowered; NULL: it is. The function may be NULL. */
    const char *(*refuse)(const strata_tensor *node);
} pjrt_row;

/* NULL: the op has none. */
const pjrt_row *strata_pjrt_row_of(const strata_op *op);

/* Rounds to the dtype as a store does. */
hlo_value strata_pjrt_round(hlo *h, hlo_value x, strata_dtype dtype);

#endif
