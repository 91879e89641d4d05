/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the import of .keras files. keras_file.c opens the archive and reads metadata and weights; keras.c makes a model of
 * config.json; keras_scale.c does so for layers that scale by constants. */
#ifndef STRATA_CORE_INTERCHANGE_KERAS_READ_H
#define STRATA_CORE_INTERCHANGE_KERAS_READ_H

#include "core/interchange/hdf5.h"
#include "core/interchange/keras.h"
#include "core/interchange/keras_classes.h"
#include "core/model/model.h"

/* A layer of the file. */
typedef struct strata_keras_read_layer {
    strata_keras_class row;
    /* It is an input of the model, and has no row. */
    bool input;
    /* The layer around that of `row` is Bidirectional. */
    bool both;
    /* What it does is done by something else here (predict, the preprocessing); its value is then that of what it takes, whose
     * name is `alias`. */
    bool dropped;
    /* It makes the mask of an embedding with mask_zero, which the layers here make themselves. */
    bool makes_mask;
    /* The mask behind it, as strata_keras_common_mask takes it. */
    int mask;
    char name[STRATA_KERAS_NAME_BYTES], group[STRATA_KERAS_NAME_BYTES], alias[STRATA_KERAS_NAME_BYTES];
    /* How many of its calls were written. */
    int calls;
} strata_keras_read_layer;

typedef struct strata_keras_reader {
    const char *path;
    strata_json root, metadata;
    bool sequential;
    /* The loss that metadata.json names, and the one that the end of the model shows; NULL: none. */
    const char *named_loss, *loss;
    /* metadata.json has a preprocessing, which standardises. */
    bool standardizes;
    strata_keras_read_layer *layers;
    int n_layers;
    strata_json_writer w;
    strata_error *err;
} strata_keras_reader;

/* Where weights come from: HDF5, or a safetensors file with the same names. */
typedef struct strata_keras_source {
    strata_hdf5 *hdf5;
    strata_safetensors *tensors;
} strata_keras_source;

/* keras.c: the model of config.json, without its weights; fills the layers. */
STRATA_MUST_USE strata_status strata_keras_make_model(strata_keras_reader *r, strata_model **out);
/* The layer's config, and of a Bidirectional that of the layer inside. Values borrow their parents, so *inner and *config must
 * live as long as they are used. */
STRATA_MUST_USE strata_status strata_keras_config_of(const strata_json *layer, const strata_keras_read_layer *own,
                                                     strata_json *config, strata_json *inner, strata_json *inner_config,
                                                     const strata_json **out, strata_error *err);
/* "axis" is 3 where the layer's input, or each of its inputs, has four axes: the last, as -1. */
bool strata_keras_is_last_axis(const strata_json *layer, const strata_json *value);

/* ---- keras_scale.c: Normalization and Rescaling, (x - mean) / deviation and x scale + offset ---- */

bool strata_keras_scales(const strata_keras_read_layer *own);
/* Writes what stands in front of the layer, whose own op then takes the values *first and *second
 * (STRATA_KERAS_NAME_BYTES). */
STRATA_MUST_USE strata_status strata_keras_write_scale(strata_keras_reader *r, const strata_json *layer,
                                                       const strata_keras_read_layer *own, const char *input, char *first,
                                                       char *second);
/* Fills in its numbers: from its config, or, where it learned them, from the weights. */
STRATA_MUST_USE strata_status strata_keras_fill_scale(const strata_keras_reader *r, strata_model *model,
                                                      const strata_json *layer, const strata_keras_read_layer *own,
                                                      const strata_keras_source *from);

/* The "numbers" of other layers that are one op: paddings, slopes. */
STRATA_MUST_USE strata_status strata_keras_write_numbers(strata_keras_reader *r, const strata_keras_read_layer *own,
                                                         const strata_json *config);

/* ---- keras_file.c ---- */

/* The weights "layers/dense/vars/0", as f32 of this shape. */
STRATA_MUST_USE strata_status strata_keras_read_weight(const strata_keras_source *from, const char *path, strata_shape shape,
                                                       float *out, strata_error *err);

#endif
