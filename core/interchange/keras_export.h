/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the export to Keras. keras_export.c walks the model and says which calls of which layers Keras makes of it;
 * keras_order.c puts them into Keras' order; keras_writer.c writes config.json and the weights. */
#ifndef STRATA_CORE_INTERCHANGE_KERAS_EXPORT_H
#define STRATA_CORE_INTERCHANGE_KERAS_EXPORT_H

#include "core/base/json.h"
#include "core/interchange/keras_classes.h"
#include "core/model/model.h"

/* A layer of the Keras model. */
typedef struct strata_keras_layer {
    /* Its class, its fields and its weights. Bidirectional is around it where `both`. */
    strata_keras_class row;
    bool both;
    char name[STRATA_KERAS_NAME_BYTES];
    /* The layer that it is made of; NULL: an input. */
    const strata_layer *layer;
    /* It does only the activation, or the sum of two branches, of `layer`, or stands at an end of the model. */
    bool part;
    /* The activation, in place of that of the layer's options; NULL: that one. */
    const char *function;
    /* The members of config that no option gives, each behind a comma; NULL: none. */
    char *config;
    /* Of one input, (N, ...), and its type. */
    strata_shape shape;
    strata_dtype dtype;
    /* For the order (keras_order.c): when it was reached first, -1: not at all, and the calls behind it, at most. */
    int reached, depth;
    int n_calls;
} strata_keras_layer;

/* A call of one. */
typedef struct strata_keras_call {
    /* Indices of the layer, and of the calls whose values it takes. */
    int layer, *inputs, n_inputs;
    strata_tensor *y;
    /* The how manieth call of its layer, from 0, among those that the outputs need. */
    int number;
    /* How many calls and outputs take it; how many calls are behind it, at most. */
    int n_uses, depth;
    bool reached;
    /* Padding of an embedding with mask_zero is left out behind it: a number for each such call, as
     * strata_keras_common_mask takes them. */
    int mask;
} strata_keras_call;

typedef struct strata_keras_export {
    strata_model *model;
    const char *path;
    strata_graph *graph;
    strata_layer_context context;
    strata_parameter_set parameters;
    /* (all_size) */
    float *values;
    strata_keras_layer *layers;
    strata_keras_call *calls;
    /* [n_layers] The layers in Keras' order. */
    int *order;
    /* Room for the inputs of all calls. */
    int *links;
    int n_layers, n_calls, n_links, n_order;
    /* [n_outputs] The calls that give them. */
    int outputs[STRATA_MAX_OUTPUTS];
    /* A chain of layers with one input each: it is written as Sequential. */
    bool chain;
    /* What Keras has no counterpart of. */
    strata_text unsupported;
    strata_error *err;
} strata_keras_export;

/* Adds to the list of what Keras has no counterpart of. */
void strata_keras_refuse(strata_keras_export *ex, const char *kind, const char *name, const char *why);
/* The layers and calls that the outputs need, in Keras' order: by the calls behind them, and where these are as many by when a
 * walk from the outputs reaches them first. Keras names the groups of weights in this order. */
void strata_keras_put_in_order(strata_keras_export *ex);
/* The text of config.json. What has no counterpart is refused. */
STRATA_MUST_USE strata_status strata_keras_write_config(strata_keras_export *ex, char **out_text, size_t *out_bytes);
/* The bytes of model.weights.h5. */
STRATA_MUST_USE strata_status strata_keras_write_weights(const strata_keras_export *ex, void **out_bytes, size_t *out_n_bytes);

#endif
