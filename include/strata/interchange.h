/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing models of other programs: ONNX files, Keras' .keras files, and PyTorch's weights as safetensors files.
 * Models can also be written as C. core/interchange/README.md lists how ops and layers are mapped. The commands are `strata
 * convert A B` and `strata export`.
 *
 * These functions are in a library of their own: link libstrata_interchange (`pkg-config --libs strata-interchange`, or
 * Strata::interchange in CMake) beside libstrata. It uses libstrata's public headers alone (strata/describe.h).
 *
 * A model that was read is used like any other model: it can be compiled, trained further, saved, and written in these formats
 * again. Its weights are parameters. */
#ifndef STRATA_INTERCHANGE_H
#define STRATA_INTERCHANGE_H

#include "strata/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zeros are the defaults. */
typedef struct strata_onnx_options {
    /* true: axis 0 of the inputs is not the batch: all inputs together are one example, and the model takes only batches of 1.
     * false: axis 0 of each input and output is the batch. Whether the file fixes the size of this axis or not, the model takes
     * batches of any size. */
    bool whole;
} strata_onnx_options;

/* Makes a functional model of an ONNX file (opset 7 or later). Inputs keep their names and order of axes; float types become
 * f32, integers i32. Initializers of f32 with at least one axis become parameters, which training changes; other constants are
 * never changed. The model has no loss, and predict computes the file's outputs. strata_model_compile sets a loss; a softmax or
 * sigmoid at the end is then moved into a cross-entropy. A file that Strata wrote names its losses, which the model gets.
 * External data are read only from files in the model's folder.
 * Fails: UNAVAILABLE for a file that cannot be read; DATA for a file that is damaged or invalid, with the node's op and name;
 * UNSUPPORTED for ops without a counterpart (the message lists all of them, with the nodes' names), for attributes that the
 * counterpart does not support, and in a build without protobuf-c. */
STRATA_API STRATA_MUST_USE strata_status strata_model_load_onnx(const char *path, strata_onnx_options opts,
                                                                strata_model **out_model, strata_error *err);
/* The same for a file in memory. path: used in messages and for the folder of external data; NULL: there are no external
 * data. */
STRATA_API STRATA_MUST_USE strata_status strata_model_parse_onnx(const char *path, const void *bytes, size_t n_bytes,
                                                                 strata_onnx_options opts, strata_model **out_model,
                                                                 strata_error *err);
/* Writes the computation of predict as an ONNX file of opset 17 with a batch of any size. Like strata_model_save, it writes a
 * temporary file, reads it back and then renames it. If the model's preprocessing standardises numbers (tables of numbers,
 * arrays), the file does so itself: it takes the numbers of the table, NaN for a missing one, and gives labels in the table's
 * own numbers. For texts it takes tokens, for pictures pixels from 0 to 1. The model must be compiled, built or loaded. Parts
 * that are used only for training (dropout, penalties) are left out.
 * Fails: UNSUPPORTED for a layer that has no counterpart in ONNX or that the program registered itself, and for columns of
 * words, dates and texts (the message names them); OUT_OF_DISK; UNAVAILABLE. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_onnx(strata_model *model, const char *path, strata_error *err);

/* An ONNX graph that is evaluated as it is: one evaluation has one array for each input, without an axis of examples. Nothing
 * is made a parameter, and the shapes of values may depend on the inputs. The references of the ops compute it on the host,
 * which is exact but slow; a model (strata_model_load_onnx) computes on devices.
 *
 *     strata_onnx_graph_open("node.onnx", &graph, &err);
 *     strata_onnx_graph_set(graph, "x", &array, &err);
 *     strata_onnx_graph_run(graph, &err);
 *     strata_onnx_graph_output(graph, 0).array
 *
 * Threads: one call at a time for each graph. */
typedef struct strata_onnx_graph strata_onnx_graph;
/* Fails: UNAVAILABLE, DATA, and UNSUPPORTED in a build without protobuf-c. */
STRATA_API STRATA_MUST_USE strata_status strata_onnx_graph_open(const char *path, strata_onnx_graph **out_graph,
                                                                strata_error *err);
STRATA_API void strata_onnx_graph_destroy(strata_onnx_graph *graph); /* NULL is fine */
/* The name of an input, borrowed; NULL: there are at most `index`. */
STRATA_API const char *strata_onnx_graph_input(const strata_onnx_graph *graph, int index);
/* Sets an input to a copy of the array. Fails: INVALID for an unknown name, with the names that there are. */
STRATA_API STRATA_MUST_USE strata_status strata_onnx_graph_set(strata_onnx_graph *graph, const char *name,
                                                               const strata_array *array, strata_error *err);
/* Computes the outputs. Fails: DATA for an input that is not set, or whose type or sizes are not those of the file; as
 * strata_model_load_onnx. */
STRATA_API STRATA_MUST_USE strata_status strata_onnx_graph_run(strata_onnx_graph *graph, strata_error *err);

typedef struct strata_onnx_result {
    /* NULL: there is no such output. */
    const char *name;
    /* ONNX's name of its type in the file, such as "DOUBLE". The array has f32 for floats, i64 for integers, or bool. */
    const char *type;
    /* A view of the result of the last run. */
    strata_array array;
} strata_onnx_result;
/* Borrowed until the next run. */
STRATA_API strata_onnx_result strata_onnx_graph_output(const strata_onnx_graph *graph, int index);

/* Zeros are the defaults. */
typedef struct strata_c_options {
    /* The prefix of the file's functions and types, an identifier of C; NULL: it is made from the file's name. */
    const char *name;
    /* The approximate limit of the file's size; 0: 64 MiB. A weight takes 16 bytes. */
    int64_t most_bytes;
} strata_c_options;

/* Writes the computation of predict for one example as a file of C (C99, also C++), which needs only libm and allocates no
 * memory. It contains the weights as constants and the function void NAME_predict(const float *x, float *y); for models of
 * tables also NAME_features, which computes x from a row, NAME_class and NAME_restore. The comment at the top of the file gives
 * the shapes. Sums are accumulated in f32, so results differ from predict's by rounding.
 * Fails: UNSUPPORTED for ops that cannot be written as C (the message lists all of them), and for a file that would be too
 * large; INVALID for a name that is not an identifier; OUT_OF_DISK; UNAVAILABLE. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_c(strata_model *model, const char *path, strata_c_options opts,
                                                             strata_error *err);

/* Makes a model of a .keras file (Keras 3, a zip of config.json and model.weights.h5), sequential or functional, or of a .h5
 * file of Keras 2 that contains the whole model. Reading the weights needs libhdf5 at run time; if there is a file of the same
 * name that ends in .safetensors, the weights are read from that file instead.
 * Fails: DATA, with the name and class of the layer; UNSUPPORTED for layers without a counterpart (the message lists all of
 * them), or where libhdf5 is missing. */
STRATA_API STRATA_MUST_USE strata_status strata_model_load_keras(const char *path, strata_model **out_model, strata_error *err);
/* Writes the computation of predict as a .keras file for Keras 3.6 and later. Like strata_model_save, it writes a temporary
 * file, reads it back and then renames it. A chain of layers becomes a Sequential model, any other model a Functional one; a
 * softmax or sigmoid that predict applies for the loss becomes the last activation. If the model's preprocessing standardises
 * numbers (tables of numbers, arrays), the Keras model does so itself and takes numbers that are not standardised; its inputs
 * for texts are tokens, and for pictures pixels from 0 to 1. The optimizer is left out. The label, loss and notes are written
 * to metadata.json, so that strata_model_load_keras restores them. Needs libhdf5 at run time. The model must be compiled,
 * built or loaded.
 * Fails: UNSUPPORTED for layers, options and columns that have no counterpart in Keras (the message lists all of them), and
 * where libhdf5 is missing; OUT_OF_DISK; UNAVAILABLE. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_keras(strata_model *model, const char *path, strata_error *err);

/* Sets the model's parameters from a safetensors file of a PyTorch state dict. The file at map_path maps the names. Each line
 * of it is "PYTORCH.NAME STRATA/NAME", and may have a third word that names the order of the axes in PyTorch: "linear" (out,
 * in), "conv1d" (out, in, width), "conv2d" (out, in, height, width), "conv2d_transpose", "depthwise", "same". Without the third
 * word the shapes decide; if both orders fit, PyTorch's order is used. Lines may be empty or begin with '#'. Each parameter
 * must be in the map, and each tensor of the file: a line "NAME -" leaves one out, "BEGINNING* -" several, and counters of
 * steps need no line. Two lines may give the biases of PyTorch's LSTM or GRU, bias_ih and bias_hh, to one "bias": they are
 * added, or, for a GRU, become its two rows. The gates of a GRU get Strata's order, unless the third word is "same". If the
 * model is not compiled yet, its parameters are set when it is compiled.
 * Fails: DATA, with the line, for names that do not exist or shapes that do not fit, and with a list of the tensors that no
 * line uses. */
STRATA_API STRATA_MUST_USE strata_status strata_model_take_state_dict(strata_model *model, const char *path,
                                                                      const char *map_path, strata_error *err);
/* The reverse of strata_model_take_state_dict: writes the parameters to a safetensors file under the PyTorch names of the map,
 * with axes in PyTorch's order. Without a third word the number of axes decides: 2 "linear", 3 "conv1d", 4 "conv2d"; embeddings
 * and vectors "same". The model must be compiled, built or loaded. Fails: DATA with the line; OUT_OF_DISK; UNAVAILABLE. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_state_dict(strata_model *model, const char *path,
                                                                      const char *map_path, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
