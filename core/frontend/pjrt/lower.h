/* SPDX-License-Identifier: Apache-2.0
 *
 * A program of JAX as a graph of Strata. Each operation has a rule, which builds nodes that compute what the StableHLO
 * specification says, with the bits of NaN, of signed zeros and of integers that wrap around. An operation, an element type or
 * a form without a rule is refused with an error that names it and the line of the Python program. */
#ifndef STRATA_FRONTEND_LOWER_H
#define STRATA_FRONTEND_LOWER_H

#include "core/frontend/pjrt/program.h"
#include "strata/graph.h"

typedef struct strata_lowered {
    strata_graph *graph;
    int n_inputs, n_outputs;
    /* In the order of the function @main. The names of the inputs in the graph are "0", "1", ... */
    strata_tensor **inputs, **outputs;
    /* For each input the output that may take its memory (tf.aliasing_output), or -1. */
    int *aliases;
} strata_lowered;

/* Builds the graph of the function @main, with all functions that it calls. The program is borrowed during the call. On failure
 * *out is zeroed. Fails: UNSUPPORTED for what Strata cannot compute as specified; DATA if the program contradicts itself;
 * OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_lower(const strata_program *program, strata_lowered *out, strata_error *err);
/* Destroys the graph and frees the arrays. NULL and a zeroed struct are fine. */
void strata_lowered_finish(strata_lowered *lowered);

/* The dtype for an element type of a program, such as "i1", "f32" or "ui8". Fails: UNSUPPORTED, with the name of the type. */
STRATA_MUST_USE strata_status strata_lower_dtype(const strata_program_type *element, strata_dtype *out, strata_error *err);

#endif
