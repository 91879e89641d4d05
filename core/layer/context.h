/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of building layers, which layer.h declares as an opaque type: the parameters that layers declare, the list of
 * layers, and the context of one build. The model owns it. It does not depend on the model, its optimizer or its devices. */
#ifndef STRATA_CORE_LAYER_CONTEXT_H
#define STRATA_CORE_LAYER_CONTEXT_H

#include "core/layer/layer.h"
#include "core/op/communication.h"

/* Parameters begin at multiples of this many elements in their flat range. */
enum { STRATA_PARAMETER_ALIGNMENT = 64 };

/* ---- parameters ---- */

typedef struct strata_parameter_spec {
    /* "dense/kernel". */
    char *name;
    strata_shape shape;
    /* True for a state: a value that a layer updates without training it. States have a separate flat range. */
    bool state;
    /* True if an update changes only the rows that its batch uses. Sparse parameters come after the dense ones. */
    bool sparse;
    /* True if its layer can compute with parts of it. */
    bool splits;
    /* First element in its flat range. */
    int64_t offset;
    /* Its parts: parts[first_part .. first_part + n_parts) of the set. A state has none. */
    int first_part, n_parts;
    const strata_initializer *initializer;
    int64_t fan_in, fan_out;
} strata_parameter_spec;

/* The rows of a parameter that are in one block. A parameter that is not divided has one part. */
typedef struct strata_parameter_part {
    /* Index of the parameter, and of the block. */
    int parameter, block;
    /* Rows [first_row, first_row + shape.dims[0]) along the parameter's first axis. */
    int64_t first_row;
    strata_shape shape;
    /* First element in the flat range. */
    int64_t offset;
} strata_parameter_part;

/* A block: elements [begin, end) of the flat range of parameters, which have a separate buffer. */
typedef struct strata_parameter_block {
    /* [begin, dense_end) are dense parameters, [dense_end, end) sparse ones. */
    int64_t begin, dense_end, end;
    /* The parts in the block, in the order of their offsets. */
    int first_part, n_parts;
} strata_parameter_block;

/* All parameters and states of a model, in the order in which layers declared them. Sizes are in elements. */
typedef struct strata_parameter_set {
    strata_parameter_spec *items;
    int n, capacity;
    /* The flat range of the parameters. Its first dense_size elements are those of the dense ones. */
    int64_t flat_size, dense_size;
    /* The flat range of the states. */
    int64_t state_size;
    /* The blocks of the flat range of parameters; one, unless the range is too large for a device. */
    strata_parameter_block *blocks;
    int n_blocks;
    strata_parameter_part *parts;
    int n_parts;
} strata_parameter_set;

/* `elements` rounded up to a multiple of STRATA_PARAMETER_ALIGNMENT. */
int64_t strata_parameter_aligned(int64_t elements);
/* `n` elements from element `first` of a tensor (size), in this shape. */
strata_tensor *strata_parameter_view(strata_tensor *range, int64_t first, strata_shape shape);
/* Converts indices of a parameter's rows to indices in the part; indices of rows in other parts become out of range. */
strata_tensor *strata_parameter_rows_of(const strata_parameter_part *part, strata_tensor *indices);
/* Computes the offset of every parameter and state, and the sizes of the set. */
void strata_parameters_lay_out(strata_parameter_set *set);
/* Divides the flat range into blocks of at most `most` elements (INT64_MAX: one block): between parameters, and between rows of
 * a parameter that is larger than a block. Another call replaces the blocks. Fails: UNSUPPORTED, with the parameter's name, if
 * a parameter is too large and its layer cannot compute with parts of it, or if a single row is too large. */
STRATA_MUST_USE strata_status strata_parameters_cut(strata_parameter_set *set, int64_t most, strata_error *err);
/* Frees everything; the set is empty then. */
void strata_parameters_finish(strata_parameter_set *set);

/* ---- layers ---- */

typedef struct strata_layer_list {
    struct strata_layer *layers;
    int n, capacity;
} strata_layer_list;

typedef struct strata_layer {
    const strata_layer_kind *kind;
    /* A copy of the user's options; the strings in it belong to the model. */
    void *options;
    /* The name of a layer inside of another layer begins with the other's name: "residual/conv2d". */
    char *name;
    strata_layer_list branches[STRATA_MAX_BRANCHES];
    /* The layer is not trained: its parameters are states that nothing updates, and it computes what it computes in
     * predictions. */
    bool frozen;
} strata_layer;

/* The cost of a layer in a program's graph. */
typedef struct strata_layer_cost {
    /* The shape of its outputs, with the axis of the batch. */
    strata_shape output;
    /* Floating-point operations of the forward pass as the layer builds it, before fusion. */
    double flops;
} strata_layer_cost;

/* ---- one build ---- */

/* The rows of a sparse parameter that a build for training uses. */
typedef struct strata_sparse_rows {
    /* The indices that the batch uses; NULL when no layer used the parameter. */
    strata_tensor *x;
    /* ids: each index once, followed by -1 (strata_unique). row: the rows with these indices, with respect to which the
     * gradient is computed. NULL if the gradient is that of the whole table. */
    strata_tensor *ids, *row;
} strata_sparse_rows;

struct strata_layer_context {
    strata_parameter_set *parameters;
    /* The layer that is being built. */
    const strata_layer *layer;
    /* Which call of the outermost layer this is, from 1: a shared layer is called several times. */
    int call;
    /* [n_inputs] The inputs of the model. */
    int n_inputs;
    const strata_tensor *inputs[STRATA_MAX_INPUTS];
    /* True in the build that declares parameters. */
    bool declaring;
    bool training;
    /* Other replicas have parts of the batch. */
    bool has_replicas;
    /* The channel of the devices that compute. */
    strata_channel replicas;
    /* Set when a layer has added up a value over the replicas. */
    bool exchanges_inside;
    /* The dtype of activations that are not integers. */
    strata_dtype dtype;
    /* [parameters->n_blocks] The blocks of the parameters' flat range; NULL while declaring. */
    strata_tensor **blocks;
    /* The flat range of states; NULL while declaring, and where there are no states. */
    strata_tensor *state;
    /* [parameters->n_parts] The view of each part that a layer has used, with respect to which gradients are computed. NULL
     * while declaring. */
    strata_tensor **parts;
    /* [parameters->n] The states' new values, and the rate by which each state moves towards its new value. new_state NULL:
     * they are not computed. */
    strata_tensor **new_state;
    double *state_rates;
    /* [parameters->n] Filled by a build for training. */
    strata_sparse_rows *rows;
    /* Gradients of sparse parameters are computed with respect to rows->row, if the table has more rows than the batch has
     * indices. */
    bool takes_rows;
    strata_tensor *rng;
    /* The mask of the last output: which positions are not padding; NULL: all. */
    strata_tensor *mask;
    /* The sum of the layers' penalties; NULL: there are none. */
    strata_tensor *penalty;
    uint32_t n_streams;
    /* [n_inputs] Each integer input must be below it; 0: no layer limits it. */
    int64_t n_tokens[STRATA_MAX_INPUTS];
    /* [calls of layers] The cost of each call, set while building; NULL: costs are not computed. */
    strata_layer_cost *costs;
};

/* Builds a layer for n inputs, of which the first call has the number 1. Declares parameters when context->declaring. name: of
 * the call, for messages and the output. */
strata_tensor *strata_layer_build(strata_layer_context *context, const strata_layer *layer, int call, const char *name,
                                  strata_tensor *const *inputs, int n);
/* The flat range of states as strata_layer_update_state asked for it in this build, and each element's rate. */
strata_tensor *strata_layer_context_new_state(strata_layer_context *context);
strata_tensor *strata_layer_context_state_rates(strata_layer_context *context, strata_graph *graph);

#endif
