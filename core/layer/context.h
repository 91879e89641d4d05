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
    /* The name, which begins with the layer's name: "dense/kernel". */
    char *name;
    strata_shape shape;
    /* True for a state: a value that a layer updates without training it. States have a separate flat range. */
    bool state;
    /* True if an update changes only the rows that its batch uses. Sparse parameters come after the dense ones. */
    bool sparse;
    /* True if the layer can compute with parts of it (strata_layer_split_parameter). */
    bool splits;
    /* The index of its first element in its flat range. */
    int64_t offset;
    /* The stage of a pipeline that owns it; 0 where there is none. */
    int stage;
    /* Its parts are parts[first_part .. first_part + n_parts) of the set. A state has none. */
    int first_part, n_parts;
    const strata_initializer *initializer;
    int64_t fan_in, fan_out;
} strata_parameter_spec;

/* Some rows of a parameter, which are in one block. A parameter that is not divided has one part. */
typedef struct strata_parameter_part {
    /* The index of the parameter, and that of the block. */
    int parameter, block;
    /* The part is rows [first_row, first_row + shape.dims[0]) along the parameter's first axis. */
    int64_t first_row;
    strata_shape shape;
    /* The index of its first element in the flat range. */
    int64_t offset;
} strata_parameter_part;

/* Elements [begin, end) of the flat range of parameters. Each block is a separate buffer. */
typedef struct strata_parameter_block {
    /* The block is one dense parameter, and its variables have the parameter's shape. Else they are (end - begin). */
    bool shaped;
    /* [begin, dense_end) are dense parameters, [dense_end, end) sparse ones. */
    int64_t begin, dense_end, end;
    /* The parts in the block, in the order of their offsets. */
    int first_part, n_parts;
} strata_parameter_block;

/* All parameters and states of a model, in the order in which layers declared them. Sizes are in elements. */
typedef struct strata_parameter_set {
    strata_parameter_spec *items;
    int n, capacity;
    /* The number of elements in the flat range of the parameters. The first dense_size elements are dense parameters, the
     * others sparse. */
    int64_t flat_size, dense_size;
    /* The number of elements in the flat range of the states. */
    int64_t state_size;
    /* The blocks of the flat range of parameters; one, unless the range is too large for a device. */
    strata_parameter_block *blocks;
    int n_blocks;
    strata_parameter_part *parts;
    int n_parts;
} strata_parameter_set;

/* `elements` rounded up to a multiple of STRATA_PARAMETER_ALIGNMENT. */
int64_t strata_parameter_aligned(int64_t elements);
/* The `n` elements of `range` from element `first` on, in this shape. range: (size). */
strata_tensor *strata_parameter_view(strata_tensor *range, int64_t first, strata_shape shape);
/* Converts indices of a parameter's rows to indices in the part; indices of rows in other parts become out of range. */
strata_tensor *strata_parameter_rows_of(const strata_parameter_part *part, strata_tensor *indices);
/* Computes the offset of every parameter and state, and the sizes of the set. */
void strata_parameters_lay_out(strata_parameter_set *set);
/* Divides the flat range into blocks of at most `most` elements (INT64_MAX: one block): between parameters, or between
 * rows of a parameter that is larger than a block. each: every parameter is a block of its own, of its own shape if it is
 * dense. A further call replaces the blocks. Fails: UNSUPPORTED, with the
 * parameter's name, if a parameter is too large and its layer cannot compute with parts of it, or if a single row is too
 * large. */
STRATA_MUST_USE strata_status strata_parameters_cut(strata_parameter_set *set, int64_t most, bool each, strata_error *err);
/* The shape of the variables of a block. */
strata_shape strata_parameter_block_shape(const strata_parameter_set *set, int block);
/* Frees everything. The set is then empty. */
void strata_parameters_finish(strata_parameter_set *set);

/* ---- layers ---- */

typedef struct strata_layer_list {
    struct strata_layer *layers;
    int n;
} strata_layer_list;

typedef struct strata_layer {
    const strata_layer_kind *kind;
    /* A copy of the user's options; the strings in it belong to the model. */
    void *options;
    /* The name of a layer inside of another layer begins with the other's name: "residual/conv2d". */
    char *name;
    strata_layer_list branches[STRATA_MAX_BRANCHES];
    /* 1 + the stage of a pipeline at which its first call, and those after it, are by hand; 0: it does not say so. */
    int begins_stage;
    /* The layer is not trained. Its parameters become states that nothing updates, and it always computes as in
     * predictions. */
    bool frozen;
    /* In training, gradients compute the values of its calls again from the inputs of the call (strata_graph_recompute). */
    bool recomputed;
} strata_layer;

/* The cost of a layer in a program's graph. */
typedef struct strata_layer_cost {
    /* The shape of its output, including the axis of the batch. */
    strata_shape output;
    /* Floating-point operations of the forward pass as the layer builds it, before fusion. */
    double flops;
    /* The nodes of the call are nodes [first, end) of the graph, and y is its result. */
    int first, end;
    const strata_tensor *y;
    /* The bytes of its values, besides the result, that the backward pass reads; 0 in programs without one. */
    double kept_bytes;
} strata_layer_cost;

/* ---- one build ---- */

/* The rows of a sparse parameter that a build for training uses. */
typedef struct strata_sparse_rows {
    /* The indices that the batch uses; NULL if no layer used the parameter. */
    strata_tensor *x;
    /* ids: each index once, followed by -1 (strata_unique). row: the rows with these indices; the gradient is computed
     * with respect to them. NULL if the gradient is that of the whole table. */
    strata_tensor *ids, *row;
} strata_sparse_rows;

struct strata_layer_context {
    strata_parameter_set *parameters;
    /* The layer that is being built. */
    const strata_layer *layer;
    /* The number of this call of the outermost layer, counted from 1. A shared layer is called several times. */
    int call;
    /* [n_inputs] The inputs of the model. */
    int n_inputs;
    const strata_tensor *inputs[STRATA_MAX_INPUTS];
    /* True in the build that declares parameters; it is the first one. */
    bool declaring;
    bool training;
    /* True if other replicas compute parts of the batch. */
    bool has_replicas;
    /* The team of the devices that compute parts of the batch. */
    strata_team replicas;
    /* Set when a layer has summed a value over the replicas. */
    bool exchanges_inside;
    /* In the graph of all replicas: the number of examples, to which each replica contributes its own; NULL: the batch of x. */
    strata_tensor *examples;
    /* The dtype of floating-point activations. */
    strata_dtype dtype;
    /* [parameters->n_blocks] The blocks of the parameters' flat range; NULL while declaring. */
    strata_tensor **blocks;
    /* In a graph for several stages of a pipeline: the axis of the mesh whose coordinates are the stages, and the stage of the
     * call that is being built. */
    bool has_stages;
    int stage_axis, stage;
    /* The flat range of states; NULL while declaring, or if there are no states. */
    strata_tensor *state;
    /* [parameters->n_parts] The view of each part that a layer has used. Gradients are computed with respect to these
     * views. NULL while declaring. */
    strata_tensor **parts;
    /* [parameters->n] The new value of each state, and the rate by which the state moves towards it. If new_state is
     * NULL, new values are not computed. */
    strata_tensor **new_state;
    double *state_rates;
    /* [parameters->n] Set by a build for training. */
    strata_sparse_rows *rows;
    /* Gradients of sparse parameters are computed with respect to rows->row, if the table has more rows than the batch
     * has indices. */
    bool takes_rows;
    strata_tensor *rng;
    /* The mask of the previous output: true for positions that are not padding; NULL: no position is padding. */
    strata_tensor *mask;
    /* The sum of the layers' penalties; NULL: there are none. */
    strata_tensor *penalty;
    uint32_t n_streams;
    /* [n_inputs] The values of each integer input must be below this number; 0: no layer limits them. */
    int64_t n_tokens[STRATA_MAX_INPUTS];
    /* [calls of layers] The cost of each call, set while building; NULL: costs are not computed. */
    strata_layer_cost *costs;
};

/* Builds a layer for n inputs. `call` is the number of the call, counted from 1. If context->declaring, it declares
 * parameters. `name` is the name of the call, for messages and for the output. mask: that of the inputs; NULL: no position is
 * padding. context->mask is then the mask of the output. */
strata_tensor *strata_layer_build(strata_layer_context *context, const strata_layer *layer, int call, const char *name,
                                  strata_tensor *const *inputs, int n, strata_tensor *mask);
/* x, which is at stage `from` (STRATA_EVERY_STAGE: at all), at the stage of the call that is being built. */
enum { STRATA_EVERY_STAGE = -1 };
strata_tensor *strata_layer_context_at_stage(const strata_layer_context *context, strata_tensor *x, int from);
/* strata_layer_context_new_state: the new value of the flat range of states, from the layers' calls of
 * strata_layer_update_state in this build. strata_layer_context_state_rates: the rate of each of its elements. */
strata_tensor *strata_layer_context_new_state(strata_layer_context *context);
strata_tensor *strata_layer_context_state_rates(strata_layer_context *context, strata_graph *graph);

#endif
