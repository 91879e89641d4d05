/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of other programs: ONNX files, Keras' .keras files, and PyTorch's weights as safetensors; and models as C. Which op
 * or layer becomes which: core/interchange/README.md. On the command line it is `strata convert A B` and `strata export`.
 *
 * A model that is read is as any other one: it is compiled, trained on, saved and sent back. Its weights are parameters. */
#ifndef STRATA_INTERCHANGE_H
#define STRATA_INTERCHANGE_H

#include "strata/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zeros are the defaults. */
typedef struct strata_onnx_options {
    /* Axis 0 of the inputs is no batch: one example is the whole of all inputs, and the model takes batches of 1 only. false:
     * axis 0 of each input and output is the batch. The file may leave its size open or fix it; the model takes any. */
    bool whole;
} strata_onnx_options;

/* Makes a functional model of an ONNX file (opset 7 or later). Inputs keep their names and order of axes; float types become
 * f32, integers i32. Initializers of f32 with at least one axis become parameters, which training changes; other constants are
 * kept, and not changed. A softmax or sigmoid at the end of the only output becomes the loss that it belongs to, as predict
 * computes it; several outputs have mse each. Data in other files are read from the model's own folder only.
 * Fails: UNAVAILABLE for a file that cannot be read; DATA for one that is damaged, or not in order, with the node's op and
 * name; UNSUPPORTED for ops that there are none for (all of them, with the nodes' names), for what ops do not do here, and in a
 * build without protobuf-c. */
STRATA_API STRATA_MUST_USE strata_status strata_model_load_onnx(const char *path, strata_onnx_options opts,
                                                                strata_model **out_model, strata_error *err);
/* The same of bytes in memory. path: for messages and the folder of external data; NULL: there are none. */
STRATA_API STRATA_MUST_USE strata_status strata_model_parse_onnx(const char *path, const void *bytes, size_t n_bytes,
                                                                 strata_onnx_options opts, strata_model **out_model,
                                                                 strata_error *err);
/* Writes what predict computes as an ONNX file of opset 17, with an open batch: as strata_model_save, by a temporary file. The
 * model is compiled, built or loaded. What is only used while training (dropout, penalties) is left out.
 * Fails: UNSUPPORTED for a layer that ONNX has no counterpart of, or that the program registered itself; OUT_OF_DISK;
 * UNAVAILABLE. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_onnx(strata_model *model, const char *path, strata_error *err);

/* Zeros are the defaults. */
typedef struct strata_c_options {
    /* What functions and types of the file begin with, an identifier of C; NULL: made of the file's name. */
    const char *name;
    /* The file may have about so many bytes; 0: 64 MiB. A weight takes 16. */
    int64_t most_bytes;
} strata_c_options;

/* Writes what predict computes for one example as a file of C (C99, also C++), which needs libm alone and allocates no
 * memory: weights as constants, void NAME_predict(const float *x, float *y), and for models of tables NAME_features, which
 * makes x of a row, NAME_class and NAME_restore. The comment at its top has the shapes. Sums are in f32, so numbers differ from
 * predict's by rounding.
 * Fails: UNSUPPORTED for ops that there is no C for (all of them), and for a file that would be too large; INVALID for a name
 * that is none; OUT_OF_DISK; UNAVAILABLE. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_c(strata_model *model, const char *path, strata_c_options opts,
                                                             strata_error *err);

/* Makes a model of a .keras file (Keras 3, a zip of config.json and model.weights.h5), sequential or functional. Weights need
 * libhdf5 at run time; a file of the same name that ends in .safetensors is read instead where there is one.
 * Fails: DATA; UNSUPPORTED for layers that there are none for (all of them), or where there is no libhdf5. */
STRATA_API STRATA_MUST_USE strata_status strata_model_load_keras(const char *path, strata_model **out_model, strata_error *err);
/* Writes what predict computes as a .keras file for Keras 3.6 and later: as strata_model_save, by a temporary file. A chain of
 * layers becomes a Sequential model, any other a Functional one; a softmax or sigmoid that predict computes is its last
 * activation. Numbers that are standardised in front of the model (a table of numbers, arrays) are standardised by the Keras
 * model, which takes them as they are; texts are given as tokens, pictures as pixels from 0 to 1. The optimizer is left out.
 * Label, loss and notes are in metadata.json, so that a file that comes back is complete. Needs libhdf5 at run time. The model
 * is compiled, built or loaded.
 * Fails: UNSUPPORTED for layers, options and columns that Keras has no counterpart of (all of them), and where there is no
 * libhdf5; OUT_OF_DISK; UNAVAILABLE. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_keras(strata_model *model, const char *path, strata_error *err);

/* Sets the model's parameters from a safetensors file, as PyTorch's state dicts are saved to, by a map of names. Each line of
 * the map is "THEIR.NAME OUR/NAME", and may have a third word that says how their axes lie: "linear" (out, in), "conv1d" (out,
 * in, width), "conv2d" (out, in, height, width), "conv2d_transpose", "depthwise", "same". Without it the shapes decide, and
 * where both orders fit PyTorch's is taken. Lines may be empty or begin with '#'. Each parameter must be in the map. The model
 * is compiled, or it is not and gets them when it is.
 * Fails: DATA with the line, for names that are not there, or shapes that do not fit. */
STRATA_API STRATA_MUST_USE strata_status strata_model_take_state_dict(strata_model *model, const char *path,
                                                                      const char *map_path, strata_error *err);
/* The way back: writes the parameters under the map's left names, with axes as PyTorch has them. Without a third word the
 * number of axes says which: 2 "linear", 3 "conv1d", 4 "conv2d"; embeddings and vectors "same". The model is compiled, built or
 * loaded. Fails: DATA with the line; OUT_OF_DISK; UNAVAILABLE. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_state_dict(strata_model *model, const char *path,
                                                                      const char *map_path, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
