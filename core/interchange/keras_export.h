/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the export to Keras. keras_export.c finds the Keras layers of a model and their calls, and sorts them into
 * Keras' order; keras_writer.c writes config.json and the weights. */
#ifndef STRATA_CORE_INTERCHANGE_KERAS_EXPORT_H
#define STRATA_CORE_INTERCHANGE_KERAS_EXPORT_H

#include "core/interchange/keras_classes.h"
#include "core/interchange/weights.h"

/* A layer of the Keras model. */
typedef struct strata_keras_layer {
    /* The class, with its fields and weights. If `both` is true, the layer is inside of a Bidirectional. */
    strata_keras_class row;
    bool both;
    char name[STRATA_KERAS_NAME_BYTES];
    /* The first call of the layer from which it is made; NULL: it is an input, or belongs to the input or output of the
     * model. */
    const strata_call *layer;
    /* It computes only the activation of `layer` or the sum of its two branches, or it belongs to the input or output of
     * the model. */
    bool part;
    /* The activation, instead of that in the layer's options; NULL: the options are used. */
    const char *function;
    /* Members of `config` that do not come from options, each after a comma; NULL: there are none. */
    char *config;
    /* The shape (N, ...) and the type of one input. */
    strata_shape shape;
    strata_dtype dtype;
    /* For sorting. reached: the number of the layer in the order in which the walk reached it; -1: it was
     * not reached. depth: the length of the longest path of calls from it to an output. */
    int reached, depth;
    int n_calls;
} strata_keras_layer;

/* A call of a Keras layer. */
typedef struct strata_keras_call {
    /* The index of the layer, and those of the calls that compute its inputs. */
    int layer, *inputs, n_inputs;
    /* The shape (1, ...) and the type of its value. */
    strata_shape shape;
    strata_dtype dtype;
    /* The number of the call among the calls of its layer that the outputs need, counted from 0. */
    int number;
    /* n_uses: how many calls and outputs use its value. depth: the length of the longest path of calls from it to an
     * output. */
    int n_uses, depth;
    bool reached;
    /* The mask of its value: a number for each embedding with mask_zero, as in strata_keras_common_mask. */
    int mask;
} strata_keras_call;

typedef struct strata_keras_export {
    strata_model *model;
    const char *path;
    strata_model_structure structure;
    strata_weights weights;
    /* The preprocessing of the model; NULL: it has none. */
    strata_preprocessing *preprocessing;
    strata_keras_layer *layers;
    strata_keras_call *calls;
    /* [n_layers] The layers in Keras' order. */
    int *order;
    /* Memory for the inputs of all calls. */
    int *links;
    int n_layers, n_calls, n_links, n_order;
    /* [n_outputs] The indices of the calls that compute the outputs. */
    int outputs[STRATA_MAX_OUTPUTS];
    /* The layers are a chain in which each has one input, so the model is written as Sequential. */
    bool chain;
    /* The list of what Keras has no counterpart of, for the error message. */
    strata_text unsupported;
    strata_error *err;
} strata_keras_export;

/* Adds an entry to this list. */
void strata_keras_refuse(strata_keras_export *ex, const char *kind, const char *name, const char *why);
/* Writes the text of config.json. Adds options without a counterpart to the list. */
STRATA_MUST_USE strata_status strata_keras_write_config(strata_keras_export *ex, char **out_text, size_t *out_bytes);
/* Writes the bytes of model.weights.h5. */
STRATA_MUST_USE strata_status strata_keras_write_weights(const strata_keras_export *ex, void **out_bytes, size_t *out_n_bytes);

#endif
