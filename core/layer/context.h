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
    /* "dense/kernel". */
    char *name;
    strata_shape shape;
    /* True for what a layer keeps from step to step without training it. States lie in a flat range of their own. */
    bool state;
    /* True where an update changes only the rows that its batches use. Sparse parameters lie behind the dense ones. */
    bool sparse;
    /* True where its layer can compute with it in parts. */
    bool splits;
    /* First element in its flat range. */
    int64_t offset;
    /* Its parts: parts[first_part .. first_part + n_parts) of the set. A state has none. */
    int first_part, n_parts;
    const strata_initializer *initializer;
    int64_t fan_in, fan_out;
} strata_parameter_spec;

/* Rows of a parameter that lie in one block. A parameter that a block has room for is one part. */
typedef struct strata_parameter_part {
    /* Index of the parameter, and of the block. */
    int parameter, block;
    /* Rows [first_row, first_row + shape.dims[0]) along the parameter's first axis. */
    int64_t first_row;
    strata_shape shape;
    /* First element in the flat range. */
    int64_t offset;
} strata_parameter_part;

/* Elements [begin, end) of the flat range of parameters, which lie in a buffer of their own. */
typedef struct strata_parameter_block {
    /* [begin, dense_end) are dense parameters, [dense_end, end) sparse ones. */
    int64_t begin, dense_end, end;
    /* The parts that lie in it, in the order of their offsets. */
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
    /* The flat range of the parameters cut into blocks; one block, where no device asks for more. */
    strata_parameter_block *blocks;
    int n_blocks;
    strata_parameter_part *parts;
    int n_parts;
} strata_parameter_set;

/* `elements` rounded up to a multiple of STRATA_PARAMETER_ALIGNMENT. */
int64_t strata_parameter_aligned(int64_t elements);
/* `n` elements from element `first` of a tensor (size), in this shape. */
strata_tensor *strata_parameter_view(strata_tensor *range, int64_t first, strata_shape shape);
/* Indices of a parameter's rows as the part counts them; those of rows in other parts are out of its range. */
strata_tensor *strata_parameter_rows_of(const strata_parameter_part *part, strata_tensor *indices);
/* Gives every parameter and state its offset, and the set its sizes. */
void strata_parameters_lay_out(strata_parameter_set *set);
/* Cuts the flat range into blocks of at most `most` elements, which may be INT64_MAX: between parameters, and inside of one
 * that is larger than that, between rows. Cutting again replaces the blocks. UNSUPPORTED, with the parameter's name, where one
 * is too large and its layer cannot compute with parts of it, or a single row is. */
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
    /* A layer inside of another one has that one's name in front: "residual/conv2d". */
    char *name;
    strata_layer_list branches[STRATA_MAX_BRANCHES];
    /* Its parameters are states that nothing updates, and it works as it does outside of training. */
    bool frozen;
} strata_layer;

/* What a layer costs in a program's graph. */
typedef struct strata_layer_cost {
    /* The shape of its outputs, with the axis of the batch. */
    strata_shape output;
    /* Floating-point operations of the forward pass as the layer builds it, before fusion. */
    double flops;
} strata_layer_cost;

/* ---- one build ---- */

/* What a build for training finds out about a sparse parameter. */
typedef struct strata_sparse_rows {
    /* The indices that the batch uses; NULL when no layer used the parameter. */
    strata_tensor *x;
    /* Each index once, -1 in the places left over (strata_unique), and the rows at these indices, which the gradient is taken
     * of. NULL where it is taken of the whole table. */
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
    /* Set when a layer has summed something over the replicas. */
    bool exchanges_inside;
    /* Of activations that are no integers. */
    strata_dtype dtype;
    /* [parameters->n_blocks] The blocks of the parameters' flat range; NULL while declaring. */
    strata_tensor **blocks;
    /* The flat range of states; NULL while declaring, and where there are no states. */
    strata_tensor *state;
    /* [parameters->n_parts] The view of each part that a layer has asked for, which gradients are taken of. NULL while
     * declaring. */
    strata_tensor **parts;
    /* [parameters->n] The states' new values and how far each moves towards its value. new_state NULL: not asked for. */
    strata_tensor **new_state;
    double *state_rates;
    /* [parameters->n] Filled by a build for training. */
    strata_sparse_rows *rows;
    /* Gradients of sparse parameters are taken of rows->row, where the table has more rows than the batch has indices. */
    bool takes_rows;
    strata_tensor *rng;
    /* Which places of the newest output are not padding; NULL: all of them. */
    strata_tensor *mask;
    /* The sum of what layers add to the loss; NULL: none does. */
    strata_tensor *penalty;
    uint32_t n_streams;
    /* [n_inputs] Each integer input must be below it; 0: no layer limits it. */
    int64_t n_tokens[STRATA_MAX_INPUTS];
    /* [calls of layers] Filled while building; NULL: not asked for. */
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
