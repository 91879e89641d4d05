/* SPDX-License-Identifier: Apache-2.0
 *
 * Lowering: from the program that JAX sends to a graph of Strata. */
#ifndef STRATA_FRONTEND_LOWER_H
#define STRATA_FRONTEND_LOWER_H

#include "core/frontend/pjrt/program.h"
#include "strata/graph.h"

typedef struct strata_lowered {
    strata_graph *graph;
    int n_inputs, n_outputs;
    strata_tensor **inputs, **outputs; /* in the order of the function @main; an input's name in the graph is "0", "1", ... */
    int *aliases;                      /* for each input the output that may take its memory (tf.aliasing_output), or -1 */
} strata_lowered;

STRATA_MUST_USE strata_status strata_lower(const strata_program *program, strata_lowered *out, strata_error *err);
void strata_lowered_finish(strata_lowered *lowered);
STRATA_MUST_USE strata_status strata_lower_dtype(const strata_program_type *element, strata_dtype *out, strata_error *err);

#endif
