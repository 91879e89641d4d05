/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the export to C. c_export.c visits the nodes of the graph of a prediction, assigns memory to each value
 * and writes the file. c_ops.c writes the loops for each op. */
#ifndef STRATA_CORE_INTERCHANGE_C_EXPORT_H
#define STRATA_CORE_INTERCHANGE_C_EXPORT_H

#include "core/interchange/weights.h"
#include "strata/text.h"

enum { STRATA_C_PLACE_BYTES = 96 };

typedef struct strata_c_export {
    strata_model *model;
    strata_graph *graph;
    int n_nodes;
    /* The prefix of the names of the file's functions, types and constants. */
    const char *name;
    strata_weights weights;
    /* [n_nodes] A C expression for the address of each node's first element; "" if no output needs the node. */
    char (*places)[STRATA_C_PLACE_BYTES];
    /* constants: the definitions of constants and weights. body: the statements of the function. */
    strata_text constants, body;
} strata_c_export;

/* Whether the node's op can be written. */
bool strata_c_has(const strata_tensor *node);
/* Writes the statements of a node. They read in0, in1, ... and write out, which are declared before them. Returns false if they
 * cannot be written for the node's attributes or types. */
bool strata_c_write(strata_c_export *c, const strata_tensor *node);
/* Adds definitions of the functions that the statements use. They come after the includes. */
void strata_c_add_words(const strata_text *body, strata_text *out);
/* The C type for a dtype: "float", "int32_t", ...; NULL: there is none. */
const char *strata_c_type(strata_dtype dtype);
/* Adds a number as a literal of the type float, or double. */
void strata_c_add_float(strata_text *text, double value);
void strata_c_add_double(strata_text *text, double value);

#endif
