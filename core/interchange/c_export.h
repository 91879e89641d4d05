/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the export to C. c_export.c walks the graph of a prediction, gives each value its memory and writes the file;
 * c_ops.c has the loops that each op becomes; c_columns.c writes what turns a row of a table into features. */
#ifndef STRATA_CORE_INTERCHANGE_C_EXPORT_H
#define STRATA_CORE_INTERCHANGE_C_EXPORT_H

#include "core/base/text.h"
#include "core/graph/graph.h"
#include "core/model/model.h"

enum { STRATA_C_PLACE_BYTES = 96 };

typedef struct strata_c_export {
    strata_model *model;
    strata_graph *graph;
    /* What the functions, types and constants of the file begin with. */
    const char *name;
    /* (all_size) The parameters and states. */
    float *values;
    /* [n_nodes] A C expression of the address of each node's first element; "" where nothing needs the node. */
    char (*places)[STRATA_C_PLACE_BYTES];
    /* Constants and weights; the statements of the function. */
    strata_text constants, body;
} strata_c_export;

/* What an op becomes: statements that read in0, in1, ... and write out, which are declared before them. False: its attributes
 * or types are not there in C. */
typedef bool (*strata_c_emit)(strata_c_export *c, const strata_tensor *node);
/* NULL: there is none for the op. */
strata_c_emit strata_c_find(const strata_op *op);
/* Definitions of the functions that the statements use, behind the includes. */
void strata_c_add_words(const strata_text *body, strata_text *out);
/* "float", "int32_t", ...; NULL: C has no such type. */
const char *strata_c_type(strata_dtype dtype);
/* A number as a literal of float, or of double. */
void strata_c_add_float(strata_text *text, double value);
void strata_c_add_double(strata_text *text, double value);

/* Makes an identifier of a name: other characters become '_'. */
void strata_c_identifier(const char *name, char *out, size_t bytes);
/* Appends the type of a row, its encoding and the names of classes, where the model has preprocessing. *out_usage: what the
 * comment at the top says about them. */
STRATA_MUST_USE strata_status strata_c_add_columns(const strata_model *model, const char *name, strata_text *out,
                                                   strata_text *usage, strata_error *err);

#endif
