/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the import of .keras files. keras_file.c opens the archive, and reads metadata and weights; keras.c makes
 * a model of config.json; keras_scale.c does this for layers that scale by constants. */
#ifndef STRATA_CORE_INTERCHANGE_KERAS_READ_H
#define STRATA_CORE_INTERCHANGE_KERAS_READ_H

#include "core/interchange/hdf5.h"
#include "core/interchange/keras_classes.h"
#include "core/interchange/weights.h"
#include "strata/formats.h"

/* A layer of the file. */
typedef struct strata_keras_read_layer {
    strata_keras_class row;
    /* It is an input of the model. It then has no row. */
    bool input;
    /* The layer is inside of a Bidirectional. */
    bool both;
    /* Something else does the layer's work here (the preprocessing), so it is dropped. Its value is then its
     * input, whose name is `alias`. */
    bool dropped;
    /* It computes the mask of an embedding with mask_zero. Here the embedding does this itself. */
    bool makes_mask;
    /* The mask of its output, as in strata_keras_common_mask. */
    int mask;
    char name[STRATA_KERAS_NAME_BYTES], group[STRATA_KERAS_NAME_BYTES], alias[STRATA_KERAS_NAME_BYTES];
    /* The number of its calls that are written. */
    int calls;
} strata_keras_read_layer;

typedef struct strata_keras_reader {
    const char *path;
    strata_json root, metadata;
    bool sequential;
    /* The file is a .h5 file of Keras 2, or one that Keras 3 wrote in that format. */
    bool legacy;
    /* metadata.json contains a preprocessing, which standardises the input. */
    bool standardizes;
    strata_keras_read_layer *layers;
    int n_layers;
    strata_json_writer w;
    strata_error *err;
} strata_keras_reader;

/* The source of the weights: an HDF5 file, or a safetensors file whose tensors have the same names. */
typedef struct strata_keras_source {
    strata_hdf5 *hdf5;
    strata_safetensors *tensors;
    /* The values that are read. */
    strata_weights weights;
    /* The file is a .h5 file, in which the attribute "weight_names" of a layer's group lists its weights in their order. */
    bool legacy;
} strata_keras_source;

/* Fails with the message of r->err, which then begins with the file and the layer's name and class. */
STRATA_MUST_USE strata_status strata_keras_fail_in_layer(const strata_keras_reader *r, const strata_keras_read_layer *own,
                                                         strata_status status);
/* keras.c: makes the model of config.json without its weights, and fills r->layers. */
STRATA_MUST_USE strata_status strata_keras_make_model(strata_keras_reader *r, strata_model **out);
/* Whether "axis" is the last axis of the layer's input, or of each of its inputs: for example 3 if they have four axes. */
bool strata_keras_is_last_axis(const strata_json *layer, const strata_json *value);

/* ---- keras_scale.c: Normalization and Rescaling, (x - mean) / deviation and x scale + offset ---- */

bool strata_keras_scales(const strata_keras_read_layer *own);
/* Writes the layers that compute the two operands of the layer's op, and returns their names, *first and *second
 * (STRATA_KERAS_NAME_BYTES). */
STRATA_MUST_USE strata_status strata_keras_write_scale(strata_keras_reader *r, const strata_json *layer,
                                                       const strata_keras_read_layer *own, const char *input, char *first,
                                                       char *second);
/* Sets the numbers of the layer's constants: from its config, or, if the layer has learned them, from the weights. */
STRATA_MUST_USE strata_status strata_keras_fill_scale(const strata_keras_reader *r, const strata_json *layer,
                                                      const strata_keras_read_layer *own, const strata_keras_source *from);

/* Writes the "numbers" of other layers that are one op: paddings and slopes. */
STRATA_MUST_USE strata_status strata_keras_write_numbers(strata_keras_reader *r, const strata_keras_read_layer *own,
                                                         const strata_json *config);

/* ---- keras_file.c ---- */

/* Reads a .keras file in memory, or a .h5 file, like strata_model_load_keras. If weights is false, the model of a .keras file
 * is made without its weights. */
STRATA_MUST_USE strata_status strata_keras_parse(const char *path, const void *bytes, size_t n_bytes, bool weights,
                                                 strata_model **out_model, strata_error *err);

/* Reads the weight "layers/dense/vars/0" as f32 of this shape. */
STRATA_MUST_USE strata_status strata_keras_read_weight(const strata_keras_source *from, const char *path, strata_shape shape,
                                                       float *out, strata_error *err);

#endif
