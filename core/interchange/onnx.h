/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the ONNX import. onnx_tensor.c converts a file's tensors to arrays. onnx_import.c visits the nodes of the
 * graph. onnx_values.c stores the values, and finds them by name. onnx_nodes.c, onnx_elementwise.c, onnx_shapes.c and
 * onnx_windows.c translate each op.
 *
 * A value is a name in the ONNX graph, or an intermediate result. It is constant (its elements are known during the
 * import), or it is an input of the model or a call of a layer. The model gets its layers when all nodes are read, so that
 * those that nothing uses are left out. The importer builds a graph of them, so that the shape of each value is known when its
 * node is reached. The size of the batch in that graph is STRATA_ONNX_BATCH, a number of
 * which no other size is a multiple, and the shape arithmetic in the file computes with it. A node whose inputs are all
 * constant is evaluated, and its outputs become constants.
 *
 * In ONNX the channels come first (N, C, H, W), in Strata they come last (N, H, W, C). A value with `behind` is stored
 * with channels last, while the file describes it with channels first. Element-wise nodes keep the order, so a chain of
 * convolutions is transposed only once at each end. */
#ifndef STRATA_CORE_INTERCHANGE_ONNX_H
#define STRATA_CORE_INTERCHANGE_ONNX_H

#include "core/interchange/weights.h"
#include "generated/onnx.pb-c.h"
#include "strata/text.h"

enum { STRATA_ONNX_BATCH = 999983, STRATA_ONNX_MAX_NODES = 10000, STRATA_ONNX_FIRST_OPSET = 7, STRATA_ONNX_LAST_OPSET = 25 };

/* ONNX's numbers for element types. */
enum {
    STRATA_ONNX_TYPE_FLOAT = 1,
    STRATA_ONNX_TYPE_INT32 = 6,
    STRATA_ONNX_TYPE_INT64 = 7,
    STRATA_ONNX_TYPE_BOOL = 9,
    STRATA_ONNX_TYPE_DOUBLE = 11
};

/* Keys of the metadata of a file that Strata wrote for a model with a preprocessing of numbers: the value that is the first
 * input of the model itself, its sizes without the batch ("3,4"), and the value that is its first output. */
#define STRATA_ONNX_FEATURES       "strata.features"
#define STRATA_ONNX_FEATURES_SHAPE "strata.features.shape"
#define STRATA_ONNX_RAW_OUTPUT     "strata.raw_output"

typedef struct strata_onnx_value {
    /* The name in the file, borrowed; NULL: it is an intermediate result. */
    const char *name;
    /* The hash of the name. */
    uint32_t hash;
    /* Whether `array` contains its elements, as f32, i64 or bool. It then has no tensor until a layer uses it. */
    bool constant;
    strata_array array;
    /* The constant is a weight of the model, which training changes. */
    bool trainable;
    /* tensor: the node in the importer's graph; NULL: a constant that no layer has used yet. folded: the node in the
     * graph that is folded. */
    strata_tensor *tensor, *folded;
    /* 1 + the index of the call that computes it; 0: a constant that no layer has used yet, or a value while folding. */
    int call;
    /* It is not constant, since its size depends on the batch, but all its elements are known to be 0. */
    bool zeros;
    /* It is stored with channels last. */
    bool behind;
    /* The index of the same value in the other order of axes; 0: there is none yet. */
    int other;
    /* An earlier node has computed it together with its own output. */
    bool ahead;
} strata_onnx_value;

/* An input of the model, or a call of a layer, each of which is called once. */
typedef struct strata_onnx_call {
    /* The kind of the layer, by its name in JSON; NULL: it is an input. */
    const char *kind;
    char name[64];
    /* A copy of the layer's options, whose texts are static. */
    void *options;
    /* The indices of the calls whose values are its inputs. */
    int inputs[STRATA_MAX_LAYER_INPUTS], n_inputs;
    /* Another call or an output uses its value. */
    bool used;
    /* Its value in the model; NULL: it is not made yet. */
    const strata_value *value;
} strata_onnx_call;

/* The elements of a parameter or state of the model. */
typedef struct strata_onnx_weight {
    char *name;
    strata_array array;
} strata_onnx_weight;

/* An array for an input of the graph, as f32, i64 or bool. */
typedef struct strata_onnx_given {
    const char *name;
    /* data NULL: there is none. */
    strata_array array;
} strata_onnx_given;
typedef struct strata_onnx_given_list {
    strata_onnx_given *items;
    size_t n;
    /* The number of elements that a value may have. */
    uint64_t most_elements;
} strata_onnx_given_list;

struct strata_onnx_row;
typedef struct strata_onnx_import {
    /* The path of the file, for messages and for the folder of external data; NULL: there is none. */
    const char *path;
    StrataOnnx__Model *file;
    StrataOnnx__Graph *graph;
    int64_t opset;
    /* A computed constant has at most this many elements. */
    uint64_t most_elements;
    /* Axis 0 of all inputs is the batch. Otherwise one example of the model consists of the whole inputs. */
    bool batched;
    /* The size of the batch in the file; 0: it is not fixed. */
    int64_t fixed_batch;

    /* The arrays of the inputs, if the graph is evaluated with them; NULL: a model is made of it. */
    const strata_onnx_given_list *given;

    /* NULL: the graph is evaluated. */
    strata_model *model;
    strata_onnx_call *calls;
    int n_calls;
    /* The graphs in which layers and ops are built. built: for their shapes. folding: to be evaluated, while a node is
     * folded. */
    strata_graph *built, *folding;
    /* How many layers with parameters there are in `folding`. */
    int n_folded_layers;

    strata_onnx_value *values;
    int n_values;
    strata_onnx_weight *weights;
    int n_weights;
    /* In a file that Strata wrote for a model with a preprocessing of numbers: the name of the features, and the index of the
     * first node behind those that compute them. NULL and 0: there are none. */
    const char *features;
    size_t first_node;
    /* The node that is being imported, for messages and names, and its row in the table. */
    const StrataOnnx__Node *node;
    const struct strata_onnx_row *row;
    /* The first failure. */
    strata_status status;
    strata_error *err;
} strata_onnx_import;

/* ---- onnx_tensor.c ---- */
/* Reads the tensor's elements as f32, i64 or bool. path: the model's file, in whose folder external data are; NULL: such
 * data are refused. Fails: DATA for sizes that do not fit, a path that leads out of the folder, or missing data;
 * UNSUPPORTED for other types. */
STRATA_MUST_USE strata_status strata_onnx_read_tensor(const StrataOnnx__Tensor *tensor, const char *path, strata_array *out,
                                                      strata_error *err);

STRATA_MUST_USE strata_status strata_onnx_convert(const strata_array *array, strata_dtype dtype, strata_array *out,
                                                  strata_error *err);
/* The value of a key; NULL: there is none. */
const char *strata_onnx_entry(StrataOnnx__Entry *const *entries, size_t n, const char *key);
/* ONNX's name of an element type, such as "FLOAT8E4M3FN". */
const char *strata_onnx_type_name(int64_t number);
/* The dtype to which elements of an ONNX type are converted. Fails with UNSUPPORTED, and `name` in the message, if there
 * is none. */
STRATA_MUST_USE strata_status strata_onnx_dtype_of(int number, strata_dtype *out, const char *name, strata_error *err);

/* ---- onnx_values.c: functions for translating nodes ----
 * Values are numbered. 0 stands for no value: an input that the node does not have, or a failure. The first failure is kept in
 * im->status and im->err; the functions that follow then do nothing and return 0, as a poisoned graph does. */
typedef int strata_onnx_translate(strata_onnx_import *im, const int *in);
enum { STRATA_ONNX_MOST_NEEDED = 4 };
/* A row of the table of ops, onnx.def. */
typedef struct strata_onnx_row {
    const char *op;
    /* The node must have this many inputs, at most STRATA_ONNX_MOST_NEEDED. */
    int n_needed;
    /* Returns the value of the node's output 0; 0: it has set the outputs itself. in: [STRATA_ONNX_MOST_NEEDED] the node's
     * first inputs. */
    strata_onnx_translate *import;
    /* What distinguishes the rows of a function that translates several ops. */
    const char *detail;
} strata_onnx_row;
/* Fails with a message that begins with the node's op and name. _reject, and _take_error with another message, return 0. */
strata_status strata_onnx_fail(strata_onnx_import *im, strata_status status, const char *format, ...) STRATA_PRINTF(3, 4);
int strata_onnx_reject(strata_onnx_import *im, strata_status status, const char *format, ...) STRATA_PRINTF(3, 4);
int strata_onnx_take_error(strata_onnx_import *im, strata_status status, const strata_error *reason);
strata_status strata_onnx_no_memory(strata_onnx_import *im);
/* Replaces the size that stands for the batch by "N" in a message, and its multiples by "3 N". */
void strata_onnx_name_batch(char *message);
/* The value of the node's input `i`; strata_onnx_need: it fails if the node does not have it. */
int strata_onnx_input(const strata_onnx_import *im, int i);
int strata_onnx_need(strata_onnx_import *im, int i);
/* Appends a call of a layer, or an input (kind NULL). Returns its index; -1: it has failed. */
int strata_onnx_add_call(strata_onnx_import *im, const char *kind, const char *name, const void *options, size_t bytes);
/* Appends a value to the list. The list owns the value's array, also on failure. */
int strata_onnx_add_value(strata_onnx_import *im, strata_onnx_value value);
void strata_onnx_set_name(strata_onnx_import *im, int value, const char *name);
int strata_onnx_first_input(const strata_onnx_import *im);
/* Makes this value the output `i` of the node. Value 0: the node has set it itself. */
void strata_onnx_output(strata_onnx_import *im, int i, int value);
/* Makes this value the output of another, later node, which is then skipped. */
void strata_onnx_output_ahead(strata_onnx_import *im, const StrataOnnx__Node *node, int value);
/* The only node that uses output 0 of this one, if its op is `op`; else NULL. */
const StrataOnnx__Node *strata_onnx_only_taker(const strata_onnx_import *im, const char *op);
/* Whether a node or an output of the graph uses output `i` of the node. */
bool strata_onnx_is_taken(const strata_onnx_import *im, int i);
const StrataOnnx__Attribute *strata_onnx_attribute(const strata_onnx_import *im, const char *name);
int64_t strata_onnx_int(const strata_onnx_import *im, const char *name, int64_t otherwise);
double strata_onnx_float(const strata_onnx_import *im, const char *name, double otherwise);
bool strata_onnx_text_is(const strata_onnx_import *im, const char *name, const char *text, bool otherwise);
/* The attribute `axis`, counted from 0. It fails if it is none of `rank` axes. */
int strata_onnx_axis(strata_onnx_import *im, int64_t otherwise, int rank);
/* Reads at most `most` integers: those of the attribute, or, if the node does not have the attribute, those of the constant
 * input `input` (-1: there is none). Returns how many there are. strata_onnx_need_ints fails if there is neither: a shape of no
 * sizes is given, a missing one is not. */
int strata_onnx_ints(strata_onnx_import *im, const char *attribute, int input, int most, int64_t *out);
int strata_onnx_need_ints(strata_onnx_import *im, const char *attribute, int input, int most, int64_t *out);
/* Like strata_onnx_ints for the attribute `axes`; counts each axis from 0. */
int strata_onnx_axes(strata_onnx_import *im, int input, int rank, int64_t *axes);
/* The number that the node's input `i` is, which must be one constant; `otherwise` if the node does not have it. */
double strata_onnx_number(strata_onnx_import *im, int i, double otherwise);
/* The shape of the value as the file describes it, with channels first. */
strata_shape strata_onnx_shape(const strata_onnx_import *im, int value);
strata_dtype strata_onnx_dtype(const strata_onnx_import *im, int value);
bool strata_onnx_is_constant(const strata_onnx_import *im, int value);
bool strata_onnx_is_zeros(const strata_onnx_import *im, int value);
bool strata_onnx_is_finite(const strata_array *array);
int strata_onnx_constant(strata_onnx_import *im, strata_array *array, bool trainable);
/* Appends a constant whose elements, which *out_data points to, the caller sets. They are zeros. */
int strata_onnx_new_constant(strata_onnx_import *im, strata_dtype dtype, strata_shape shape, void *out_data);
int strata_onnx_constant_as(strata_onnx_import *im, int value, strata_shape shape);
int strata_onnx_scalar(strata_onnx_import *im, strata_dtype dtype, double number);
int strata_onnx_integers(strata_onnx_import *im, const int64_t *numbers, int n);
/* The value with its axes in a new order. The result for a constant is a constant. */
int strata_onnx_permute(strata_onnx_import *im, int value, const int *axes);
/* The value stored with channels first, or channels last. The result for a constant is itself or another constant. */
int strata_onnx_in_front(strata_onnx_import *im, int value);
int strata_onnx_behind(strata_onnx_import *im, int value);
/* Adds a layer that applies an op (strata_op_options) to values as they are stored. `behind`: whether the result has
 * channels last. */
int strata_onnx_op(strata_onnx_import *im, const strata_op_options *opts, const int *inputs, int n, bool behind);
STRATA_MUST_USE strata_status strata_onnx_check_built(strata_onnx_import *im);
/* Makes a layer's name from that of the node, of its weight or of its output. Characters that are not allowed become '.',
 * and a number at the end makes the name unique. */
void strata_onnx_layer_name(strata_onnx_import *im, const char *wanted, char *out, size_t bytes);
/* Adds a layer, with a copy of its options of this many bytes, and its call with one value as it is stored.
 * strata_onnx_weight_of sets the elements of its parameters. */
int strata_onnx_layer(strata_onnx_import *im, const char *kind, const void *options, size_t bytes, int input, bool behind);
/* Sets parameter `name` of the layer that was added last to the constant `value` with its axes in a new order; NULL: in the
 * same order. */
void strata_onnx_weight_of(strata_onnx_import *im, const char *name, int value, const int *axes);

/* ---- functions that several of the files below use ---- */
/* Apply an op without numbers to a value; the order of axes does not change. */
int strata_onnx_unary(strata_onnx_import *im, const char *op, int value);
int strata_onnx_cast(strata_onnx_import *im, const char *dtype, int value);
/* Applies an op to two values. If they have the same number of axes and one has channels last, so does the result. */
int strata_onnx_pair(strata_onnx_import *im, const char *op, int a, int b);
int strata_onnx_with_number(strata_onnx_import *im, const char *op, int value, double number);
/* Applies an op without numbers to n values with channels first. */
int strata_onnx_simple(strata_onnx_import *im, const char *op, const int *inputs, int n);
/* Applies an op with n integers and `value` to a value with channels first. */
int strata_onnx_with_ints(strata_onnx_import *im, const char *op, int x, const int64_t *numbers, int n, double value);
/* Reshapes x. One size may depend on the batch: it becomes the size that reshape computes from the other sizes. */
int strata_onnx_reshape_to(strata_onnx_import *im, int x, int64_t *to, int n);
/* Whether the value is a weight with two axes, so that it can be the kernel of a dense layer. */
bool strata_onnx_is_matrix(const strata_onnx_import *im, int value);
/* The product of n sizes. Sizes below 1, and those with which the product would overflow, are ignored. */
int64_t strata_onnx_product(const int64_t *dims, int n);

/* ---- onnx_nodes.c, onnx_elementwise.c, onnx_shapes.c, onnx_windows.c ---- */
#define STRATA_ONNX_OP(onnx, n_needed, function, detail) strata_onnx_translate strata_onnx_node_##function;
#include "core/interchange/onnx.def"

/* Imports all nodes. whole: the inputs have no axis of examples. given: the arrays that are the inputs, so that each value is a
 * constant; NULL: a model is made. */
STRATA_MUST_USE strata_status strata_onnx_open(const char *path, const void *bytes, size_t n_bytes, bool whole,
                                               const strata_onnx_given_list *given, strata_onnx_import **out,
                                               strata_error *err);
void strata_onnx_close(strata_onnx_import *im);
bool strata_onnx_is_initializer(const StrataOnnx__Graph *graph, const char *name);
/* The value with this name in the file; 0: there is none. */
int strata_onnx_find(const strata_onnx_import *im, const char *name);

#endif
