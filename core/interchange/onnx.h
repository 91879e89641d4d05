/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the ONNX import. onnx_tensor.c makes arrays of a file's tensors; onnx_import.c walks the graph; onnx_values.c keeps
 * what its names stand for; onnx_nodes.c, onnx_elementwise.c, onnx_shapes.c and onnx_windows.c say what each op becomes.
 *
 * A value is a name in the ONNX graph, or an intermediate result. It is constant (its elements are known while importing), or
 * a call of a layer in the model. Beside the model the importer builds a graph, so each value's shape is known when its node is
 * reached; the size of the batch in that graph is STRATA_ONNX_BATCH, a number that no other size is a multiple of, and shape
 * arithmetic in the file carries it along. A node of which all inputs are constant is evaluated and becomes a constant.
 *
 * ONNX has channels in front (N, C, H, W), Strata behind (N, H, W, C). A value with `behind` is stored as Strata has it, while
 * the file means the other order; element-wise nodes keep that, so chains of convolutions are transposed once at each end. */
#ifndef STRATA_CORE_INTERCHANGE_ONNX_H
#define STRATA_CORE_INTERCHANGE_ONNX_H

#include "core/model/model.h"
#include "generated/onnx.pb-c.h"

enum { STRATA_ONNX_BATCH = 999983, STRATA_ONNX_MAX_NODES = 10000, STRATA_ONNX_FIRST_OPSET = 7, STRATA_ONNX_LAST_OPSET = 25 };

typedef struct strata_onnx_value {
    /* NULL: an intermediate result. Borrowed from the file. */
    const char *name;
    uint32_t hash;
    /* Its elements, f32, i64 or bool; then it has no tensor until a layer takes it. */
    bool constant;
    strata_array array;
    /* Of a constant: it is a weight of the model, which training changes. */
    bool trainable;
    /* In the importer's graph; NULL: a constant that no layer took yet. And in the graph that is folded. */
    strata_tensor *tensor, *folded;
    /* The model's; NULL while folding. */
    const strata_value *value;
    /* Stored with channels behind. */
    bool behind;
    /* The same value in the other order, an index; 0: not made yet. */
    int other;
    /* An earlier node gave it along with its own output. */
    bool ahead;
} strata_onnx_value;

/* The elements of a parameter or state of the model. */
typedef struct strata_onnx_weight {
    char *name;
    strata_array array;
} strata_onnx_weight;

typedef struct strata_onnx_import {
    /* For messages, and the folder of external data; NULL: there is none. */
    const char *path;
    StrataOnnx__Model *file;
    StrataOnnx__Graph *graph;
    int64_t opset;
    /* A constant that is computed has at most so many elements. */
    uint64_t most_elements;
    /* Axis 0 of all inputs is the batch; else a model has one example, which is the whole of the inputs. */
    bool batched;
    /* The size that the file gives the batch; 0: none. */
    int64_t fixed_batch;

    strata_model *model;
    strata_layer_context context;
    strata_parameter_set parameters;
    /* Where layers and ops are built: for their shapes, or, while a node is folded, to be evaluated. */
    strata_graph *built, *folding;

    strata_onnx_value *values;
    int n_values, values_capacity;
    strata_onnx_weight *weights;
    int n_weights, weights_capacity;
    /* The loss that the graph's end means; NULL: none. */
    const strata_loss *loss;
    /* The node that is imported, for messages and names. */
    const StrataOnnx__Node *node;
    strata_error *err;
} strata_onnx_import;

/* ---- onnx_tensor.c ---- */
/* The tensor's elements as f32, i64 or bool. folder: of external data, NULL: they are refused. Fails: DATA for sizes that do
 * not fit, a path that leaves the folder, or data that are not there; UNSUPPORTED for other types. */
STRATA_MUST_USE strata_status strata_onnx_read_tensor(const StrataOnnx__Tensor *tensor, const char *path, strata_array *out,
                                                      strata_error *err);

/* What elements of ONNX's type become. UNSUPPORTED for a type that is none of Strata's; `name` says whose it is. */
STRATA_MUST_USE strata_status strata_onnx_dtype_of(int number, strata_dtype *out, const char *name, strata_error *err);

/* ---- onnx_values.c, for what nodes become ---- */
typedef struct strata_onnx_row {
    const char *op;
    strata_status (*import)(strata_onnx_import *im);
    /* What a row of a shared function is about. */
    const char *detail;
} strata_onnx_row;
/* Fails with the node's op and name in front. */
strata_status strata_onnx_fail(strata_onnx_import *im, strata_status status, const char *format, ...) STRATA_PRINTF(3, 4);
strata_status strata_onnx_no_memory(strata_onnx_import *im);
/* The table's row of the node that is imported. */
const strata_onnx_row *strata_onnx_row_of(const strata_onnx_import *im);
/* The node's input or output `i` as an index of a value; -1: the node has none. */
int strata_onnx_input(strata_onnx_import *im, int i);
/* Input `i`, which the node must have. */
STRATA_MUST_USE strata_status strata_onnx_need(strata_onnx_import *im, int i, int *out);
/* Output 0 of the node, as strata_onnx_output. */
STRATA_MUST_USE strata_status strata_onnx_give(strata_onnx_import *im, int value);
/* A new value at the end of the list, which takes its array also where this fails. */
STRATA_MUST_USE strata_status strata_onnx_add_value(strata_onnx_import *im, strata_onnx_value value, int *out);
/* Of a value's name, for the search by name. */
uint32_t strata_onnx_hash(const char *name);
/* Gives output `i` of the node this value. */
STRATA_MUST_USE strata_status strata_onnx_output(strata_onnx_import *im, int i, int value);
/* The only node that takes output 0 of this one, if it is of this op; else NULL. */
const StrataOnnx__Node *strata_onnx_only_taker(const strata_onnx_import *im, const char *op);
/* Whether something takes output `i` of the node. */
bool strata_onnx_is_taken(const strata_onnx_import *im, int i);
/* Gives the output of another node, which is left out then. */
STRATA_MUST_USE strata_status strata_onnx_output_ahead(strata_onnx_import *im, const StrataOnnx__Node *node, int value);
/* The tensor of a value that is not constant. */
strata_tensor *strata_onnx_tensor(const strata_onnx_import *im, int value);
const StrataOnnx__Attribute *strata_onnx_attribute(const strata_onnx_import *im, const char *name);
int64_t strata_onnx_int(const strata_onnx_import *im, const char *name, int64_t otherwise);
double strata_onnx_float(const strata_onnx_import *im, const char *name, double otherwise);
bool strata_onnx_text_is(const strata_onnx_import *im, const char *name, const char *text, bool otherwise);
/* At most `most` integers of the attribute, or, where the node has no such attribute, of the constant input (-1: no input). n
 * is 0 where there is neither. */
STRATA_MUST_USE strata_status strata_onnx_ints(strata_onnx_import *im, const char *attribute, int input, int most, int64_t *out,
                                               int *out_n);
/* A constant's only element. */
STRATA_MUST_USE strata_status strata_onnx_number(strata_onnx_import *im, int value, double *out);
/* The shape as the file means it. */
strata_shape strata_onnx_shape(const strata_onnx_import *im, int value);
strata_dtype strata_onnx_dtype(const strata_onnx_import *im, int value);
bool strata_onnx_is_constant(const strata_onnx_import *im, int value);
/* Whether an array of f32 has neither infinities nor NaN. */
bool strata_onnx_is_finite(const strata_array *array);
/* A new constant, whose array it takes. */
STRATA_MUST_USE strata_status strata_onnx_constant(strata_onnx_import *im, strata_array *array, bool trainable, int *out);
STRATA_MUST_USE strata_status strata_onnx_scalar(strata_onnx_import *im, strata_dtype dtype, double number, int *out);
STRATA_MUST_USE strata_status strata_onnx_integers(strata_onnx_import *im, const int64_t *numbers, int n, int *out);
/* The value with its axes in a new order: of a constant a constant. */
STRATA_MUST_USE strata_status strata_onnx_permute(strata_onnx_import *im, int value, const int *axes, int *out);
/* The value stored with channels in front, or behind; of a constant the value itself, or a constant. */
STRATA_MUST_USE strata_status strata_onnx_in_front(strata_onnx_import *im, int value, int *out);
STRATA_MUST_USE strata_status strata_onnx_behind(strata_onnx_import *im, int value, int *out);
/* An op (strata_op_options) of values as they are stored. The result is marked as `behind` says. */
STRATA_MUST_USE strata_status strata_onnx_op(strata_onnx_import *im, const strata_op_options *opts, const int *inputs, int n,
                                             bool behind, int *out);
/* The last built node's error, if there is one. */
STRATA_MUST_USE strata_status strata_onnx_check_built(strata_onnx_import *im);
/* A layer's name from the name of the node, of its weight or of its output: characters that names may not have became '.', and
 * a number behind it makes it the only one. */
void strata_onnx_layer_name(strata_onnx_import *im, const char *wanted, char *out, size_t bytes);
/* The same in one line: no numbers, inputs with channels in front. b -1: there is no second. */
STRATA_MUST_USE strata_status strata_onnx_simple(strata_onnx_import *im, const char *op, int a, int b, int *out);
/* A layer called with one value as it is stored. The elements of its parameters are added by weight. */
STRATA_MUST_USE strata_status strata_onnx_layer(strata_onnx_import *im, const strata_layer_kind *kind, const void *options,
                                                int input, bool behind, int *out);
/* Parameter `name` of the layer that was added last: a copy of the constant. */
STRATA_MUST_USE strata_status strata_onnx_weight_of(strata_onnx_import *im, const char *name, const strata_array *array);
/* The array with its axes in a new order, which the caller finishes. */
STRATA_MUST_USE strata_status strata_onnx_permute_array(const strata_array *array, const int *axes, strata_array *out,
                                                        strata_error *err);

/* ---- onnx_elementwise.c, onnx_shapes.c, onnx_nodes.c, onnx_windows.c ---- */
/* A value by an op with up to two numbers (n of a, b); the order of axes stays. */
STRATA_MUST_USE strata_status strata_onnx_unary(strata_onnx_import *im, const char *op, double a, double b, int n, int value,
                                                int *out);
/* Two values by an op, in the order of axes that one of them has, where both have the same number of axes. */
STRATA_MUST_USE strata_status strata_onnx_pair(strata_onnx_import *im, const char *op, int a, int b, int *out);
/* A value by an op with n whole numbers and `value`, with channels in front. */
STRATA_MUST_USE strata_status strata_onnx_with_ints(strata_onnx_import *im, const char *op, int x, const int64_t *numbers,
                                                    int n, double value, int *out);
/* x in another shape, whose sizes may be multiples of the batch: such a one becomes "what the others leave". */
STRATA_MUST_USE strata_status strata_onnx_reshape_to(strata_onnx_import *im, int x, int64_t *to, int n, int *out);
/* The attribute `axes`, or the constant input, each made one of 0 to rank - 1. */
STRATA_MUST_USE strata_status strata_onnx_axes(strata_onnx_import *im, int input, int rank, int64_t *axes, int *out_n);
/* Whether it is a weight with two axes, which a dense layer takes. */
bool strata_onnx_is_matrix(const strata_onnx_import *im, int value);
/* The product of n sizes; those that are not above 0 or would overflow are left out. */
int64_t strata_onnx_product(const int64_t *dims, int n);
typedef struct strata_onnx_rows {
    const strata_onnx_row *rows;
    size_t n;
} strata_onnx_rows;
extern const strata_onnx_rows strata_onnx_elementwise_rows, strata_onnx_shape_rows;
/* NULL: there is no such op. */
const strata_onnx_row *strata_onnx_find_row(const char *op);
#define STRATA_ONNX_NODE(name) strata_status strata_onnx_##name(strata_onnx_import *im);
STRATA_ONNX_NODE(conv)
STRATA_ONNX_NODE(conv_transpose)
STRATA_ONNX_NODE(pool)
STRATA_ONNX_NODE(global_pool)
STRATA_ONNX_NODE(batch_norm)
STRATA_ONNX_NODE(layer_norm)
STRATA_ONNX_NODE(group_norm)
STRATA_ONNX_NODE(recurrent)
#undef STRATA_ONNX_NODE

/* For tests: the importer after all nodes, whose graph and weights are its content. */
STRATA_MUST_USE strata_status strata_onnx_open(const char *path, const void *bytes, size_t n_bytes, bool whole,
                                               strata_onnx_import **out, strata_error *err);
void strata_onnx_close(strata_onnx_import *im);
/* The value of this name in the file; -1: there is none. */
int strata_onnx_find(const strata_onnx_import *im, const char *name);

#endif
