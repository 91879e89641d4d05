/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads Keras 3's .keras files: zip archives with config.json, which describes the layers, and model.weights.h5.
 * keras_export.c writes label, loss and notes to metadata.json under the key "strata". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/data/format/kind.h"
#include "core/data/format/zip.h"
#include "core/interchange/keras_read.h"
#include "strata/interchange.h"

enum { MOST_CONFIG_BYTES = 16 << 20, NAME_BYTES = STRATA_KERAS_NAME_BYTES };

typedef strata_keras_read_layer keras_layer;
typedef strata_keras_reader reader;
typedef strata_keras_source source;

strata_status strata_keras_read_weight(const strata_keras_source *from, const char *path, strata_shape shape, float *out,
                                       strata_error *err) {
    const int64_t n = strata_shape_elements(shape);
    if (from->hdf5) return strata_hdf5_read(from->hdf5, path, n, out, err);
    const strata_safetensor *tensor = strata_safetensors_find(from->tensors, path);
    return strata_safetensors_copy(from->tensors, path, STRATA_DTYPE_F32,
                                   tensor && strata_shape_elements(tensor->shape) == n ? tensor->shape : shape, out, err);
}

/* Reads the weights of a layer. Keras' shapes are those of Strata, except that attention heads are a separate axis; the
 * elements have the same order. */
static strata_status read_layer_weights(const reader *r, strata_model *model, const keras_layer *layer, const source *from) {
    const size_t n = strlen(layer->name);
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        char path[2 * NAME_BYTES], below[NAME_BYTES];
        if (strncmp(p->name, layer->name, n) || p->name[n] != '/') continue;
        if (!strata_keras_weight_path(&layer->row, layer->both, p->name + n + 1, below, sizeof below))
            return strata_fail(r->err, STRATA_INTERNAL, "%s: no weights are known for %s", r->path, p->name);
        snprintf(path, sizeof path, "%s%s", layer->group, below);
        STRATA_TRY(strata_keras_read_weight(from, path, p->shape, model->loaded + strata_model_place(model, p), r->err));
    }
    return STRATA_OK;
}

static strata_status read_weights(const reader *r, strata_model *model, const source *from) {
    strata_json config, layers, item;
    int i = 0;
    model->loaded = calloc((size_t)strata_model_all_size(model) + 1, sizeof *model->loaded);
    if (!model->loaded) return strata_fail(r->err, STRATA_OUT_OF_MEMORY, "%s: no host memory for its weights", r->path);
    STRATA_TRY(strata_json_get(&r->root, "config", &config, r->err));
    STRATA_TRY(strata_json_get(&config, "layers", &layers, r->err));
    for (bool more = strata_json_first(&layers, &item); more; more = strata_json_next(&item), i++) {
        const keras_layer *own = &r->layers[i];
        if (!*own->row.kind || own->dropped) continue;
        STRATA_TRY(read_layer_weights(r, model, own, from));
        if (strata_keras_scales(own)) STRATA_TRY(strata_keras_fill_scale(r, model, &item, own, from));
    }
    return STRATA_OK;
}

/* Opens "model.safetensors", next to "model.keras", if it exists. */
static strata_status open_tensors(const reader *r, strata_safetensors *out, bool *found) {
    const size_t n = strlen(r->path), cut = n > 6 && !strcmp(r->path + n - 6, ".keras") ? n - 6 : n;
    char *path = malloc(cut + sizeof ".safetensors");
    if (!path) return strata_fail(r->err, STRATA_OUT_OF_MEMORY, "%s: no host memory", r->path);
    memcpy(path, r->path, cut);
    strcpy(path + cut, ".safetensors");
    FILE *file = fopen(path, "rb");
    *found = file != NULL;
    strata_status status = STRATA_OK;
    if (file) {
        fclose(file);
        status = strata_safetensors_read(path, out, r->err);
        out->name = r->path;
    }
    free(path);
    return status;
}

/* Reads the weights from the archive or, if it contains none or there is no libhdf5, from the .safetensors file next to it. */
static strata_status take_weights(const reader *r, const strata_zip *zip, strata_model *model) {
    const strata_zip_member *member = strata_zip_find(zip, "model.weights.h5");
    const unsigned char *bytes = NULL;
    unsigned char *expanded = NULL;
    strata_safetensors tensors = {0};
    source from = {0};
    bool beside = false;
    strata_status status = member ? strata_zip_unpack(zip, member, &bytes, &expanded)
                                  : strata_fail(r->err, STRATA_DATA, "%s: it has no model.weights.h5", r->path);
    if (!status) status = strata_hdf5_open(r->path, bytes, member->size, &from.hdf5, r->err);
    if (!member || status == STRATA_UNSUPPORTED) {
        const strata_status opened = open_tensors(r, &tensors, &beside);
        if (opened || beside) status = opened;
        from.tensors = &tensors;
    }
    if (!status) status = read_weights(r, model, &from);
    if (beside) strata_safetensors_finish(&tensors);
    strata_hdf5_close(from.hdf5);
    free(expanded);
    return status;
}

/* Reads a JSON member of the archive. *out does not change if there is no member with this name. */
static strata_status read_json(const reader *r, const strata_zip *zip, const char *name, strata_json *out) {
    const strata_zip_member *member = strata_zip_find(zip, name);
    const unsigned char *bytes = NULL;
    unsigned char *expanded = NULL;
    if (!member) return STRATA_OK;
    strata_status status = strata_zip_unpack(zip, member, &bytes, &expanded);
    if (!status) status = strata_json_parse(r->path, bytes, member->size, MOST_CONFIG_BYTES, out, r->err);
    free(expanded);
    return status;
}

/* Reads from the metadata of a file that Strata wrote what affects the layers. take_metadata reads the label and the
 * notes. */
static strata_status open_metadata(reader *r, const strata_json *own) {
    strata_json notes, ignored;
    STRATA_TRY(strata_json_expect(own, STRATA_JSON_OBJECT, r->err));
    STRATA_TRY(strata_json_get_string(own, "loss", STRATA_JSON_OPTIONAL, &r->named_loss, r->err));
    r->standardizes = strata_json_find(own, "notes", &notes) && strata_json_find(&notes, "preprocessing", &ignored);
    return STRATA_OK;
}

static strata_status take_metadata(const reader *r, const strata_json *own, strata_model *model) {
    strata_json notes, item;
    const char *text = "";
    STRATA_TRY(strata_json_get_string(own, "label", STRATA_JSON_OPTIONAL, &text, r->err));
    STRATA_TRY(strata_model_set_label(model, text, r->err));
    if (!strata_json_find(own, "notes", &notes)) return STRATA_OK;
    for (bool more = strata_json_first(&notes, &item); more; more = strata_json_next(&item)) {
        STRATA_TRY(strata_json_to_string(&item, &text, r->err));
        STRATA_TRY(strata_model_set_note(model, item.name, text, r->err));
    }
    return STRATA_OK;
}

static strata_status parse(reader *r, const strata_zip *zip, bool weights, strata_model **out) {
    strata_json own;
    STRATA_TRY(read_json(r, zip, "config.json", &r->root));
    if (!r->root.node) return strata_fail(r->err, STRATA_DATA, "%s: it has no config.json, so it is no .keras file", r->path);
    STRATA_TRY(read_json(r, zip, "metadata.json", &r->metadata));
    const bool ours = strata_json_find(&r->metadata, STRATA_KERAS_METADATA, &own);
    if (ours) STRATA_TRY(open_metadata(r, &own));
    STRATA_TRY(strata_keras_make_model(r, out));
    if (ours) STRATA_TRY(take_metadata(r, &own, *out));
    return weights ? take_weights(r, zip, *out) : STRATA_OK;
}

strata_status strata_keras_parse(const char *path, const void *bytes, size_t n_bytes, bool weights, strata_model **out_model,
                                 strata_error *err) {
    reader r = {.path = path, .err = err};
    strata_zip zip;
    strata_model *model = NULL;
    STRATA_TRY(strata_zip_open(path, bytes, n_bytes, &zip, err));
    const strata_status status = parse(&r, &zip, weights, &model);
    strata_json_finish(&r.root);
    strata_json_finish(&r.metadata);
    strata_text_finish(&r.w.text);
    free(r.layers);
    strata_zip_finish(&zip);
    if (status)
        strata_model_destroy(model);
    else
        *out_model = model;
    return status;
}

strata_status strata_model_load_keras(const char *path, strata_model **out_model, strata_error *err) {
    unsigned char *bytes;
    size_t n_bytes;
    STRATA_TRY(strata_file_read(path, STRATA_BYTES_LIMIT(32), &bytes, &n_bytes, err));
    strata_status status = strata_keras_parse(path, bytes, n_bytes, true, out_model, err);
    status = strata_file_explain(path, bytes, n_bytes, STRATA_FILE_KERAS, status, err);
    free(bytes);
    return status;
}
