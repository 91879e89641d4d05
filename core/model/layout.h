/* SPDX-License-Identifier: Apache-2.0
 *
 * A layout of a model's parameters over a mesh that a user writes as rules, as Keras' LayoutMap. layout_choose.h finds a layout
 * by itself, and zero.h divides parameters, gradients and slots over the axis `data` besides. */
#ifndef STRATA_CORE_MODEL_LAYOUT_H
#define STRATA_CORE_MODEL_LAYOUT_H

#include "core/base/memory.h"
#include "core/graph/placement.h"
#include "core/layer/context.h"
#include "strata/describe.h"

/* A parameter of more bytes that every device has whole is named in a report, with the reason. */
enum { STRATA_LAYOUT_LARGE_BYTES = 1 << 20 };

/* What is divided. */
typedef struct strata_layout_model {
    /* The calls of strata_model_describe, and those that are outputs. */
    const strata_call *calls;
    int n_calls;
    const int *outputs;
    int n_outputs;
    /* The parameters and states of their layers. */
    const strata_parameter_spec *parameters;
    int n_parameters;
} strata_layout_model;

/* {0}: there are no rules. */
typedef struct strata_layout {
    struct strata_layout_rule *rules;
    int n_rules;
    strata_memory memory;
} strata_layout;

/* Reads rules from JSON: an object of patterns and lists, which have for each dimension of the parameter an axis of the mesh, a
 * list of axes, or null, which does not divide it:
 *     {"dense(_[0-9]+)?/kernel": [null, "tensor"], "embedding/embeddings": [["data", "tensor"], null]}
 * A pattern is a POSIX extended regular expression, of at most 255 bytes and without counts in braces, which matches a name if
 * it matches a part of it, as re.search does for Keras. Their order does not matter.
 *   name   of the document, for messages; borrowed during the call
 * Fails: DATA, with the place, for another form; OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_layout_read(const char *name, const char *text, size_t n_bytes, strata_layout *out_layout,
                                                 strata_error *err);
void strata_layout_finish(strata_layout *layout);

/* Places the model's parameters by the rules. A rule whose pattern is the parameter's name comes before those whose pattern
 * matches it; a parameter without a rule is whole on each device.
 *   memory          receives what the placements point to, and must outlive them
 *   out_placements  [model->n_parameters]
 *   out_reasons     [model->n_parameters] why a parameter of more than STRATA_LAYOUT_LARGE_BYTES is whole; NULL: it is divided,
 *                   or smaller
 * Fails: INVALID for two patterns that match a parameter, a rule that none has, an axis that the mesh does not have or that
 * divides no parameters (stage), an axis that is used twice, and another rank. */
STRATA_MUST_USE strata_status strata_layout_apply(const strata_layout *layout, const strata_mesh *mesh,
                                                  const strata_layout_model *model, strata_memory *memory,
                                                  strata_placement *out_placements, const char **out_reasons,
                                                  strata_error *err);

/* Whether the call's layer has the parameter of this name. */
bool strata_layout_owns(const strata_call *call, const char *parameter);

/* Divides a dimension of a parameter over axes of the mesh. The pieces are as even as possible: the first ones have one element
 * more, and the last may be empty. Where an attention layer has heads, an element is a head. */
STRATA_MUST_USE strata_status strata_layout_split(const strata_layout_model *model, int parameter, int dim,
                                                  const strata_mesh *mesh, const int *axes, int n_axes, strata_memory *memory,
                                                  strata_dim_split *out_split, strata_error *err);

#endif
