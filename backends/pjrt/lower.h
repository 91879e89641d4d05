/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates a piece of a graph to a StableHLO module with one function. Its parameters are the values that the piece
 * reads, its results the values that the piece leaves in memory. table.c has the translation of each op.
 *
 * Terms. The *root* of a tensor is the tensor in whose memory it is stored: the operand of a view, or the first operand
 * of an update, which is changed in place. A *port* is a root that enters or leaves the program as a separate buffer:
 * what the host writes and reads, constants that are too large for the text, variables, and work memory that one piece
 * computes and another one reads. All other values are inside the function, so the compiler decides how to compute and
 * where to store them. */
#ifndef STRATA_BACKENDS_PJRT_LOWER_H
#define STRATA_BACKENDS_PJRT_LOWER_H

#include "backends/pjrt/hlo.h"
#include "core/compile/piece.h"

typedef struct pjrt_port {
    strata_dtype dtype;
    strata_shape shape;
    /* The place of the port in the piece: the index in piece->arenas, and the offset and size in bytes. */
    int arena;
    int64_t offset, bytes;
    /* For a result: the index of the parameter whose memory it takes over, and which the run consumes; -1: none. */
    int donor;
} pjrt_port;

typedef struct pjrt_module {
    char *text;
    size_t n_bytes;
    pjrt_port *parameters, *results;
    int n_parameters, n_results;
} pjrt_module;

typedef struct pjrt_lower_options {
    /* The number of replicas that run the program, with all_reduce among all of them. 0 and 1: one replica, without
     * all_reduce. */
    int n_replicas;
    /* The compiler may multiply f32 values with less precision. */
    bool fast;
} pjrt_lower_options;

/* Whether the node has a lowering. If not, *reason is set to a static text. */
bool strata_pjrt_lowers(const strata_tensor *node, const char **reason);

/* Fails: UNSUPPORTED with the node and the reason; OUT_OF_MEMORY. The caller finishes the module. */
STRATA_MUST_USE strata_status strata_pjrt_lower(const strata_piece *piece, pjrt_lower_options options, pjrt_module *out_module,
                                                strata_error *err);
/* The same for a whole graph without a device (whole.c), for compilers that compile ahead of time, after the passes that
 * strata_executable_create runs. Communication among options.n_replicas replicas is part of the program. The arenas of the
 * ports have no meaning. */
STRATA_MUST_USE strata_status strata_pjrt_lower_graph(strata_tensor *const *outputs, int n_outputs,
                                                      strata_tensor *const *updates, int n_updates, pjrt_lower_options options,
                                                      pjrt_module *out_module, strata_error *err);
void strata_pjrt_module_finish(pjrt_module *module);

/* ---- for the lowerings ---- */
/* `h` is the text of the module that is being made. */
int strata_pjrt_n_replicas(const hlo *h);
/* Operand i of the node: unchanged, or (number) for computing, with floats of 16 bits converted to f32. */
hlo_value strata_pjrt_operand(hlo *h, const strata_tensor *node, int i);
hlo_value strata_pjrt_number(hlo *h, const strata_tensor *node, int i);
/* Sets the value of operand i, which is a variable or rows of one, from this node on. */
void strata_pjrt_write(hlo *h, const strata_tensor *node, int i, hlo_value value);

/* The attribute with this name in the op's table. It must exist. An axis below 0 counts from the end of the operand's axes. */
int64_t strata_pjrt_int(const strata_tensor *node, const char *name);
int strata_pjrt_axis(const strata_tensor *node);
double strata_pjrt_float(const strata_tensor *node, const char *name);
const int64_t *strata_pjrt_ints(const strata_tensor *node, const char *name);

/* How an op is translated. Ops without a row are composed of others (core/compile/decompose.c). */
typedef struct pjrt_row {
    const strata_op *op;
    /* The element-wise op of StableHLO that the node is; floats are computed in f32. NULL: `lower` translates the node. */
    const char *name;
    /* Returns the node's elements, of any shape and type, or, for an update, the new value of its first operand. */
    hlo_value (*lower)(hlo *h, const strata_tensor *node);
    /* The reason why the node is not lowered; NULL: it is lowered. The function may be NULL. */
    const char *(*refuse)(const strata_tensor *node);
} pjrt_row;
#define PJRT_ROW(name) \
    { .op = &strata_op_##name, .lower = name }

/* The rows of each file; each list ends with an empty row. */
extern const pjrt_row strata_pjrt_elementwise[], strata_pjrt_places[], strata_pjrt_index[], strata_pjrt_products[],
    strata_pjrt_windows[], strata_pjrt_folds[], strata_pjrt_random[], strata_pjrt_updates[];

/* The element-wise op, which has a name, of x[]. */
hlo_value strata_pjrt_apply(hlo *h, const strata_op *op, const hlo_value *x);
/* The row of the op; NULL: it has none. */
const pjrt_row *strata_pjrt_row_of(const strata_op *op);

/* Rounds to the dtype, as storing the value does. */
hlo_value strata_pjrt_round(hlo *h, hlo_value x, strata_dtype dtype);

#endif
