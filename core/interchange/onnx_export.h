/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the ONNX export. onnx_export.c visits the calls of the model. onnx_export_layers.c translates layers to nodes.
 * onnx_writer.c makes nodes, constants and their names. */
#ifndef STRATA_CORE_INTERCHANGE_ONNX_EXPORT_H
#define STRATA_CORE_INTERCHANGE_ONNX_EXPORT_H

#include "core/interchange/onnx.h"

enum { STRATA_ONNX_NAME_BYTES = 160 };
/* ONNX's numbers for kinds of attributes. */
enum {
    STRATA_ONNX_ATTRIBUTE_FLOAT = 1,
    STRATA_ONNX_ATTRIBUTE_INT = 2,
    STRATA_ONNX_ATTRIBUTE_STRING = 3,
    STRATA_ONNX_ATTRIBUTE_FLOATS = 6,
    STRATA_ONNX_ATTRIBUTE_INTS = 7,
    STRATA_ONNX_ATTRIBUTE_STRINGS = 8
};

typedef struct strata_onnx_export {
    strata_model *model;
    strata_model_structure structure;
    /* [n_calls] The name of each call's value in the graph that is written. */
    const char **names;
    /* The call that is being exported; NULL: none. */
    const strata_call *call;
    /* The beginning of the names of new values: that of the layer. */
    const char *base;
    strata_weights weights;
    StrataOnnx__Graph out;
    size_t node_capacity, initializer_capacity;
    /* The layers for which ONNX has no counterpart, for the error message. */
    strata_text unsupported;
    /* Some of them are columns of a table. */
    bool columns;
    /* The preprocessing of the model; NULL: it has none. */
    strata_preprocessing *preprocessing;
    /* The values behind the first and before the last part of the preprocessing: the features of the first input, and the first
     * output without its conversion to the label's own numbers. NULL: there is no such part. */
    const char *features, *output;
    /* The blocks of memory that are freed when the file is written. */
    struct strata_onnx_block *blocks;
    int n_names;
    /* Memory has run out. The results of the functions below are then not used. */
    bool failed;
} strata_onnx_export;

/* ---- onnx_writer.c ---- */
/* Allocates memory that is filled with zeros and lives until the file is written; NULL: there is no memory. */
void *strata_onnx_take(strata_onnx_export *ex, size_t bytes);
void strata_onnx_free_all(strata_onnx_export *ex);
char *strata_onnx_copy_text(strata_onnx_export *ex, const char *text);
/* Makes a new name: a '/', ex->base and a number. It differs from all names in the model, since these contain no '/'. */
const char *strata_onnx_new_name(strata_onnx_export *ex);
/* Adds a node with inputs[0..n), of which the last ones may be NULL, and the output `output`; NULL: a new name. Returns the
 * name of the output. */
const char *strata_onnx_add_node(strata_onnx_export *ex, const char *op, const char *const *inputs, int n, const char *output);
/* Add a node op(a), or op(a, b), with a new name. */
const char *strata_onnx_one(strata_onnx_export *ex, const char *op, const char *a);
const char *strata_onnx_two(strata_onnx_export *ex, const char *op, const char *a, const char *b);
/* The node that was added last. NULL: memory has run out. */
StrataOnnx__Node *strata_onnx_last_node(strata_onnx_export *ex);
/* Add an attribute to the node that was added last. */
StrataOnnx__Attribute *strata_onnx_add_attribute(strata_onnx_export *ex, const char *name, int type);
void strata_onnx_set_int(strata_onnx_export *ex, const char *name, int64_t value);
void strata_onnx_set_float(strata_onnx_export *ex, const char *name, double value);
void strata_onnx_set_text(strata_onnx_export *ex, const char *name, const char *value);
void strata_onnx_set_ints(strata_onnx_export *ex, const char *name, const int64_t *values, int n);
void strata_onnx_set_window(strata_onnx_export *ex, const int64_t *size, const int64_t *stride, const int64_t *dilation,
                            const int64_t *pads, int n);
/* Adds an initializer. `data` is borrowed until the file is written. If it is NULL, memory is allocated and returned. */
void *strata_onnx_add_initializer(strata_onnx_export *ex, const char *name, int type, strata_shape shape, const void *data);
/* Add a constant with n integers, or with one number. */
const char *strata_onnx_put_ints(strata_onnx_export *ex, const int64_t *values, int n);
const char *strata_onnx_put_number(strata_onnx_export *ex, double value);
/* The elements of the layer's parameter or state; NULL: the layer has none with this name. */
const float *strata_onnx_elements_of(const strata_onnx_export *ex, const char *parameter, strata_shape *out_shape);
/* Adds the layer's parameter as an initializer "layer/parameter". NULL: the layer has none with this name. _as: with its
 * axes in another order. If axes is NULL, the order does not change, and `shape`, if it is not NULL, replaces the
 * parameter's shape. */
const char *strata_onnx_put_weight(strata_onnx_export *ex, const char *parameter);
const char *strata_onnx_put_weight_as(strata_onnx_export *ex, const char *parameter, const int *axes,
                                      const strata_shape *shape);
/* The name and the shape of input `i` of the call. */
const char *strata_onnx_x(const strata_onnx_export *ex, int i);
strata_shape strata_onnx_shape_of(const strata_onnx_export *ex, int i);
/* Adds the layer to the list of layers for which ONNX has no counterpart. */
void strata_onnx_refuse(strata_onnx_export *ex, const char *why);
const char *strata_onnx_transposed(strata_onnx_export *ex, const char *x, const int64_t *perm, int rank);
/* Moves the channels to the front, (N, ..., C) -> (N, C, ...), or back. A transpose directly after its inverse is left
 * out. */
const char *strata_onnx_moved(strata_onnx_export *ex, const char *x, int rank, bool to_front);
/* Moves the channels of x back, and applies the activation: along the channels, for which softmax must come last. */
const char *strata_onnx_activate_behind(strata_onnx_export *ex, const char *function, const char *x, int rank);
/* Adds the nodes of an activation. If the function is NULL or "", the result is x itself. */
const char *strata_onnx_activate(strata_onnx_export *ex, const char *function, const char *x);
const char *strata_onnx_reshaped(strata_onnx_export *ex, const char *x, const int64_t *to, int n);
/* x converted to an element type of ONNX. */
const char *strata_onnx_converted(strata_onnx_export *ex, const char *x, int type);

/* ---- onnx_export_layers.c ---- */
/* Adds the nodes of ex->call, and returns the name of its output. */
typedef const char *strata_onnx_layer_export(strata_onnx_export *ex);
#define STRATA_ONNX_LAYER(kind, function) strata_onnx_layer_export strata_onnx_layer_##function;
#include "core/interchange/onnx.def"

#endif
