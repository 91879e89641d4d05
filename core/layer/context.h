/* SPDX-License-Identifier: Apache-2.0
 *
 * What layers are built in (layer.h shows it to them as an opaque type): the parameters that they declare, the list of layers,
 * and the context of one build. The model owns all of it; nothing here knows the model, its optimizer or its devices. */
#ifndef STRATA_CORE_LAYER_CONTEXT_H
#define STRATA_CORE_LAYER_CONTEXT_H

#include "core/layer/layer.h"
#include "core/op/communication.h"

/* Parameters begin at multiples of this many elements in their flat range. */
enum { STRATA_PARAMETER_ALIGNMENT = 64 };

/* ---- parameters ---- */

typedef struct strata_parameter_spec {
    /* "dense/kernel" */
    char *name;
    strata_shape shape;
    /* True for what a layer keeps from step to step without training it. States lie in a flat range of their own. */
    bool state;
    /* True where an update changes only the rows that its batches use. Sparse parameters lie behind the dense ones. */
    bool sparse;
    /* First element in its flat range. */
    int64_t offset;
    const strata_initializer *initializer;
    int64_t fan_in, fan_out;
} strata_parameter_spec;

/* All parameters and states of a model, in the order in which layers declared them. Sizes are in elements. */
typedef struct strata_parameter_set {
    strata_parameter_spec *items;
    int n, capacity;
    /* The flat range of the parameters. Its first dense_size elements are those of the dense ones. */
    int64_t flat_size, dense_size;
    /* The flat range of the states. */
    int64_t state_size;
} strata_parameter_set;

/* `elements` rounded up to a multiple of STRATA_PARAMETER_ALIGNMENT. */
int64_t strata_parameter_aligned(int64_t elements);
/* The part of a flat range (size) that is this parameter, in the parameter's shape. */
strata_tensor *strata_parameter_view(const strata_parameter_spec *parameter, strata_tensor *range);
/* Gives every parameter and state its offset, and the set its sizes. */
void strata_parameters_lay_out(strata_parameter_set *set);

/* ---- layers ---- */

typedef struct strata_layer_list {
    struct strata_layer *layers;
    int n, capacity;
} strata_layer_list;

typedef struct strata_layer {
    const strata_layer_kind *kind;
    /* A copy of the user's options; the strings in it belong to the model. */
    void *options;
    /* A layer inside of another one has that one's name in front: "residual/conv2d". */
    char *name;
    strata_layer_list branches[STRATA_MAX_BRANCHES];
} strata_layer;

/* What a layer costs in a program's graph. */
typedef struct strata_layer_cost {
    /* With the batch. */
    strata_shape output;
    /* Of the forward pass as the layer builds it, before fusion. */
    double flops;
} strata_layer_cost;

/* ---- one build ---- */

/* What a build for training finds out about a sparse parameter. */
typedef struct strata_sparse_rows {
    /* The indices that the batch uses; NULL when no layer used the parameter. */
    strata_tensor *x;
    /* Each index once, -1 in the places left over (strata_unique), and the rows at these indices; NULL without takes_rows. */
    strata_tensor *ids, *row;
    /* First element, among the gradients, of the parameter's gradient, and of the counts of how often each row is used. */
    int64_t place, uses;
} strata_sparse_rows;

struct strata_layer_context {
    strata_parameter_set *parameters;
    /* The layer that is being built. */
    const strata_layer *layer;
    /* The input of the first layer. */
    const strata_tensor *input;
    /* True in the build that declares parameters. */
    bool declaring;
    bool training;
    /* Other replicas have parts of the batch. */
    bool has_replicas;
    /* The channel of the devices that compute. */
    strata_channel replicas;
    /* Set when a layer has summed something over the replicas. */
    bool exchanges_inside;
    /* Of activations that are no integers. */
    strata_dtype dtype;
    /* The flat ranges of parameters and states; NULL while declaring. The second is NULL too where there are no states. */
    strata_tensor *flat, *state;
    /* [parameters->n] The states' new values and how far each moves towards its value. new_state NULL: not asked for. */
    strata_tensor **new_state;
    double *state_rates;
    /* [parameters->n] Filled by a build for training. */
    strata_sparse_rows *rows;
    /* Gradients of sparse parameters are taken of rows->row instead of the whole table. */
    bool takes_rows;
    strata_tensor *rng;
    /* Which places of the newest output are not padding; NULL: all of them. */
    strata_tensor *mask;
    /* The sum of what layers add to the loss; NULL: none does. */
    strata_tensor *penalty;
    uint32_t n_streams;
    /* Integer inputs must be below it; 0: no layer limits them. */
    int64_t n_tokens;
    /* [layers of the list] Filled while building; NULL: not asked for. */
    strata_layer_cost *costs;
};

/* Builds the layers of a list one after the other: x (B, input...) -> outputs. Declares parameters when context->declaring. */
strata_tensor *strata_layers_build(const strata_layer_list *list, strata_layer_context *context, strata_tensor *x);
/* The flat range of states as strata_layer_update_state asked for it in this build, and each element's rate. */
strata_tensor *strata_layer_context_new_state(strata_layer_context *context);
strata_tensor *strata_layer_context_state_rates(strata_layer_context *context, strata_graph *graph);

#endif
