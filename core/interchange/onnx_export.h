/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the ONNX export. onnx_export.c walks the model; onnx_export_layers.c and onnx_export_op.c say which nodes a layer
 * becomes; onnx_writer.c makes nodes, constants and their names. */
#ifndef STRATA_CORE_INTERCHANGE_ONNX_EXPORT_H
#define STRATA_CORE_INTERCHANGE_ONNX_EXPORT_H

#include "core/interchange/onnx.h"

enum { STRATA_ONNX_NAME_BYTES = 160 };
/* ONNX's numbers of element types and kinds of attributes. */
enum { STRATA_ONNX_TYPE_FLOAT = 1, STRATA_ONNX_TYPE_INT32 = 6, STRATA_ONNX_TYPE_INT64 = 7, STRATA_ONNX_TYPE_BOOL = 9 };
enum {
    STRATA_ONNX_ATTRIBUTE_FLOAT = 1,
    STRATA_ONNX_ATTRIBUTE_INT = 2,
    STRATA_ONNX_ATTRIBUTE_STRING = 3,
    STRATA_ONNX_ATTRIBUTE_FLOATS = 6,
    STRATA_ONNX_ATTRIBUTE_INTS = 7
};

/* A value of the graph that is written: its name, and the same in the graph of shapes. */
typedef struct strata_onnx_val {
    const char *name;
    strata_tensor *tensor;
} strata_onnx_val;

typedef struct strata_onnx_export {
    strata_model *model;
    strata_graph *graph;
    strata_layer_context context;
    strata_parameter_set parameters;
    /* (all_size) */
    float *values;
    StrataOnnx__Graph out;
    size_t node_capacity, initializer_capacity;
    /* Kinds of layers that ONNX has no counterpart of, with the layers' names. */
    strata_text unsupported;
    /* Memory that lives until the file is written. */
    struct strata_onnx_block *blocks;
    int n_names;
    /* There was no memory; what the calls below return then is not used. */
    bool failed;
} strata_onnx_export;

/* ---- onnx_writer.c ---- */
/* Zeroed memory that lives until the file is written; NULL: there was none. */
void *strata_onnx_take(strata_onnx_export *ex, size_t bytes);
void strata_onnx_free_all(strata_onnx_export *ex);
char *strata_onnx_copy_text(strata_onnx_export *ex, const char *text);
/* A new name: the layer's, with a number behind it. No name in a model has a '/', so it is none of these. */
const char *strata_onnx_new_name(strata_onnx_export *ex, const char *base);
/* A node with inputs[0..n) and one output. */
StrataOnnx__Node *strata_onnx_add_node(strata_onnx_export *ex, const char *op, const char *const *inputs, int n,
                                       const char *output);
StrataOnnx__Attribute *strata_onnx_add_attribute(strata_onnx_export *ex, StrataOnnx__Node *node, const char *name, int type);
void strata_onnx_set_int(strata_onnx_export *ex, StrataOnnx__Node *node, const char *name, int64_t value);
void strata_onnx_set_float(strata_onnx_export *ex, StrataOnnx__Node *node, const char *name, double value);
void strata_onnx_set_text(strata_onnx_export *ex, StrataOnnx__Node *node, const char *name, const char *value);
void strata_onnx_set_ints(strata_onnx_export *ex, StrataOnnx__Node *node, const char *name, const int64_t *values, int n);
/* op(a, b, c) under a new name, which it returns; NULL: fewer inputs. */
const char *strata_onnx_emit(strata_onnx_export *ex, const char *base, const char *op, const char *a, const char *b,
                             const char *c);
StrataOnnx__Node *strata_onnx_last_node(strata_onnx_export *ex);
/* data is borrowed until the file is written, or NULL: memory is made, and returned. */
void *strata_onnx_add_initializer(strata_onnx_export *ex, const char *name, int type, strata_shape shape, const void *data);
/* Constants of a list and of one number. */
const char *strata_onnx_put_ints(strata_onnx_export *ex, const char *base, const int64_t *values, int n);
const char *strata_onnx_put_number(strata_onnx_export *ex, const char *base, double value);
/* The elements of the layer's parameter or state; NULL: it has none of this name. */
const float *strata_onnx_elements_of(const strata_onnx_export *ex, const strata_layer *layer, const char *parameter,
                                     strata_shape *out_shape);
/* The parameter as an initializer "layer/parameter", its axes in another order; axes NULL: as they are, with `shape` instead of
 * its own where that is not NULL. */
const char *strata_onnx_put_weight(strata_onnx_export *ex, const strata_layer *layer, const char *parameter, const int *axes,
                                   const strata_shape *shape);
/* Adds the layer to the list of those that ONNX has no counterpart of. */
void strata_onnx_refuse(strata_onnx_export *ex, const strata_layer *layer, const char *why);
const char *strata_onnx_transposed(strata_onnx_export *ex, const char *base, const char *x, const int64_t *perm, int rank);
/* (N, ..., C) -> (N, C, ...), or back. A transpose right behind its opposite is none. */
const char *strata_onnx_moved(strata_onnx_export *ex, const char *base, const char *x, int rank, bool to_front);
/* The function of an activation; NULL or "": x itself. */
const char *strata_onnx_activate(strata_onnx_export *ex, const strata_layer *layer, const char *function, const char *x);
const char *strata_onnx_reshaped(strata_onnx_export *ex, const char *base, const char *x, const int64_t *to, int n);
void strata_onnx_set_window(strata_onnx_export *ex, StrataOnnx__Node *node, const int64_t *size, const int64_t *stride,
                            const int64_t *dilation, const int64_t *pads, int n);

/* ---- onnx_export_layers.c, onnx_export_op.c, onnx_export.c ---- */
/* The nodes of a layer for n inputs, whose output's name it returns; y has its shape. */
typedef const char *(*strata_onnx_layer_export)(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x,
                                                int n, const strata_onnx_val *y);
/* NULL: ONNX has no counterpart of the kind. */
strata_onnx_layer_export strata_onnx_find_layer(const char *kind);
const char *strata_onnx_export_op(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                                  const strata_onnx_val *y);
/* A layer of two branches of layers, which are exported one after the other. */
const char *strata_onnx_export_residual(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                                        const strata_onnx_val *y);

#endif
