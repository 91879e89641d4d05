/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads Keras 3's .keras files: zip archives with config.json, which describes the layers, and model.weights.h5. And .h5 files
 * of Keras 2, which have the same description as an attribute, and the weights in groups with the layers' names.
 * keras_export.c writes label, loss and notes to metadata.json under the key "strata". */
#include <stdio.h>

#include "core/interchange/keras_read.h"
#include "strata/interchange.h"

enum { MOST_CONFIG_BYTES = 16 << 20, NAME_BYTES = STRATA_KERAS_NAME_BYTES };

typedef strata_keras_read_layer keras_layer;
typedef strata_keras_reader reader;
typedef strata_keras_source source;

/* Reads "dense/vars/1", weight 1 of the layer dense, in a .h5 file. */
static strata_status read_legacy(const source *from, const char *path, int64_t n, float *out, strata_error *err) {
    const char *end = strstr(path, "/vars/");
    char group[2 * NAME_BYTES], full[4 * NAME_BYTES];
    STRATA_FREED char *name = NULL;
    snprintf(group, sizeof group, "model_weights/%.*s", (int)(end - path), path);
    STRATA_TRY(strata_hdf5_text(from->hdf5, group, "weight_names", strtoll(end + 6, NULL, 10), &name, err));
    if (snprintf(full, sizeof full, "%s/%s", group, name) >= (int)sizeof full)
        return strata_fail(err, STRATA_UNSUPPORTED, "the name of weight \"%.60s\" is too long", path);
    return strata_hdf5_read(from->hdf5, full, n, out, err);
}

strata_status strata_keras_read_weight(const strata_keras_source *from, const char *path, strata_shape shape, float *out,
                                       strata_error *err) {
    const int64_t n = strata_shape_elements(shape);
    if (from->legacy) return read_legacy(from, path, n, out, err);
    if (from->hdf5) return strata_hdf5_read(from->hdf5, path, n, out, err);
    const strata_safetensor *tensor = strata_safetensors_find(from->tensors, path);
    return strata_safetensors_copy(from->tensors, path, STRATA_DTYPE_F32,
                                   tensor && strata_shape_elements(tensor->shape) == n ? tensor->shape : shape, out, err);
}

/* The place of the parameter "backward_bias" among the weights of a layer of Keras, which are those that the model has, in the
 * order of the class's row. */
static int place_of(const strata_model *model, const keras_layer *layer, const char *parameter) {
    char name[NAME_BYTES], full[NAME_BYTES + 16];
    int place = 0;
    for (int direction = 0; direction < (layer->both ? 2 : 1); direction++)
        for (int i = 0; strata_keras_weight_name(&layer->row, i, name, sizeof name); i++) {
            snprintf(full, sizeof full, "%s%s", direction ? "backward_" : "", name);
            if (!strcmp(full, parameter)) return place;
            place += strata_parameter_find(model, layer->name, full) >= 0;
        }
    return place;
}

/* Reads the weights of a layer. Keras' shapes are those of Strata, except that attention heads are a separate axis; the
 * elements have the same order. */
static strata_status read_layer_weights(const reader *r, const keras_layer *layer, const source *from) {
    strata_model *model = from->weights.model;
    for (int i = 0; i < from->weights.n; i++) {
        const char *full = strata_model_parameter(model, i).name, *name = strata_name_in(full, layer->name);
        char path[2 * NAME_BYTES], below[NAME_BYTES];
        if (!name) continue;
        if (!strata_keras_weight_path(&layer->row, layer->both, name, below, sizeof below))
            return strata_fail(r->err, STRATA_INTERNAL, "%s: no weights are known for %s", r->path, full);
        if (r->legacy)
            snprintf(path, sizeof path, "%s/vars/%d", layer->group, place_of(model, layer, name));
        else
            snprintf(path, sizeof path, "%s%s", layer->group, below);
        const strata_array *array = &from->weights.arrays[i];
        STRATA_TRY(strata_keras_read_weight(from, path, array->shape, array->data, r->err));
    }
    return STRATA_OK;
}

static strata_status read_layers(const reader *r, const source *from) {
    strata_json config, layers, item;
    int i = 0;
    STRATA_TRY(strata_json_get(&r->root, "config", &config, r->err));
    STRATA_TRY(strata_json_get(&config, "layers", &layers, r->err));
    for (bool more = strata_json_first(&layers, &item); more; more = strata_json_next(&item), i++) {
        const keras_layer *own = &r->layers[i];
        if (!*own->row.kind || own->dropped) continue;
        STRATA_TRY(strata_keras_fail_in_layer(r, own, read_layer_weights(r, own, from)));
        if (strata_keras_scales(own))
            STRATA_TRY(strata_keras_fail_in_layer(r, own, strata_keras_fill_scale(r, &item, own, from)));
    }
    return STRATA_OK;
}

static strata_status read_weights(const reader *r, strata_model *model, source *from) {
    STRATA_TRY(strata_weights_create(model, &from->weights, r->err));
    STRATA_TRY(read_layers(r, from));
    for (int i = 0; i < from->weights.n; i++)
        STRATA_TRY(strata_model_set_parameter(model, i, &from->weights.arrays[i], r->err));
    return STRATA_OK;
}

static void finish_source(source *from) {
    strata_weights_finish(&from->weights);
    strata_hdf5_close(from->hdf5);
}

/* Opens "model.safetensors", next to "model.keras", if it exists. */
static strata_status open_tensors(const reader *r, strata_safetensors *out, bool *found) {
    const size_t n = strlen(r->path), cut = n > 6 && !strcmp(r->path + n - 6, ".keras") ? n - 6 : n;
    STRATA_FREED char *path = NULL;
    STRATA_TRY(STRATA_NEW(path, cut + sizeof ".safetensors", r->err, "%s: no host memory", r->path));
    memcpy(path, r->path, cut);
    strcpy(path + cut, ".safetensors");
    FILE *file = fopen(path, "rb");
    *found = file != NULL;
    if (!file) return STRATA_OK;
    fclose(file);
    const strata_status status = strata_safetensors_read(path, out, r->err);
    out->name = r->path;
    return status;
}

/* Reads the weights from the archive or, if it contains none or there is no libhdf5, from the .safetensors file next to it. */
static strata_status take_weights(const reader *r, const strata_zip *zip, strata_model *model) {
    const strata_zip_member *member = strata_zip_find(zip, "model.weights.h5");
    const unsigned char *bytes = NULL;
    STRATA_FREED unsigned char *expanded = NULL;
    STRATA_FINISHED_BY(strata_safetensors_finish) strata_safetensors tensors = {0};
    STRATA_FINISHED_BY(finish_source) source from = {0};
    bool beside = false;
    strata_status status = member ? strata_zip_unpack(zip, member, &bytes, &expanded)
                                  : strata_fail(r->err, STRATA_DATA, "%s: it has no model.weights.h5", r->path);
    if (!status) status = strata_hdf5_open(r->path, bytes, member->size, &from.hdf5, r->err);
    if (!member || status == STRATA_UNSUPPORTED) {
        const strata_status opened = open_tensors(r, &tensors, &beside);
        if (opened || beside) status = opened;
        from.tensors = &tensors;
    }
    return status ? status : read_weights(r, model, &from);
}

/* Python writes infinities and NaN into JSON as the words Infinity, -Infinity and NaN. They become the strings that
 * strata_json_to_number reads. */
static strata_status replace_words(const reader *r, const unsigned char *bytes, size_t n, char **out_text, size_t *out_n) {
    static const char *const words[][2] = {{"Infinity", "\"inf\""}, {"-Infinity", "\"-inf\""}, {"NaN", "\"nan\""}};
    strata_text text = {0};
    bool string = false;
    for (size_t i = 0, from = 0; i <= n;) {
        size_t w = string || i == n ? 3 : 0;
        while (w < 3 && (n - i < strlen(words[w][0]) || memcmp(bytes + i, words[w][0], strlen(words[w][0])))) w++;
        if (w < 3 || i == n) strata_text_add_bytes(&text, bytes + from, i - from);
        if (i == n) break;
        if (w < 3) {
            strata_text_add(&text, "%s", words[w][1]);
            from = i += strlen(words[w][0]);
            continue;
        }
        if (bytes[i] == '"') string = !string;
        i += string && bytes[i] == '\\' && i + 1 < n ? 2 : 1;
    }
    return strata_text_take(&text, out_text, out_n, r->err);
}

static strata_status parse_json(const reader *r, const unsigned char *bytes, size_t n_bytes, strata_json *out) {
    STRATA_FREED char *text = NULL;
    size_t n = 0;
    STRATA_TRY(replace_words(r, bytes, n_bytes, &text, &n));
    return strata_json_parse(r->path, text, n, MOST_CONFIG_BYTES, out, r->err);
}

/* Reads a JSON member of the archive. *out does not change if there is no member with this name. */
static strata_status read_json(const reader *r, const strata_zip *zip, const char *name, strata_json *out) {
    const strata_zip_member *member = strata_zip_find(zip, name);
    const unsigned char *bytes = NULL;
    STRATA_FREED unsigned char *expanded = NULL;
    if (!member) return STRATA_OK;
    STRATA_TRY(strata_zip_unpack(zip, member, &bytes, &expanded));
    return parse_json(r, bytes, member->size, out);
}

/* Reads from the metadata of a file that Strata wrote what affects the layers. take_metadata reads the label and the
 * notes. */
static strata_status open_metadata(reader *r, const strata_json *own) {
    strata_json notes, ignored;
    STRATA_TRY(strata_json_expect(own, STRATA_JSON_OBJECT, r->err));
    r->standardizes = strata_json_find(own, "notes", &notes) && strata_json_find(&notes, "preprocessing", &ignored);
    return STRATA_OK;
}

static strata_status take_metadata(const reader *r, const strata_json *own, strata_model *model) {
    strata_json notes, item;
    const char *text = "", *losses = NULL;
    STRATA_TRY(strata_json_get_string(own, "label", STRATA_JSON_OPTIONAL, &text, r->err));
    STRATA_TRY(strata_model_set_label(model, text, r->err));
    STRATA_TRY(strata_json_get_string(own, "loss", STRATA_JSON_OPTIONAL, &losses, r->err));
    if (losses) STRATA_TRY(strata_model_recall_losses(model, losses, r->err));
    if (!strata_json_find(own, "notes", &notes)) return STRATA_OK;
    for (bool more = strata_json_first(&notes, &item); more; more = strata_json_next(&item)) {
        STRATA_TRY(strata_json_to_string(&item, &text, r->err));
        STRATA_TRY(strata_model_set_note(model, item.name, text, r->err));
    }
    return STRATA_OK;
}

static strata_status parse_archive(reader *r, const strata_zip *zip, bool weights, strata_model **out) {
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

/* Makes a model of a .h5 file, whose description is the attribute "model_config". */
static strata_status parse_legacy(reader *r, const void *bytes, size_t n_bytes, strata_model **out) {
    STRATA_FINISHED_BY(finish_source) source from = {.legacy = true};
    STRATA_FREED char *description = NULL;
    STRATA_TRY(strata_hdf5_open(r->path, bytes, n_bytes, &from.hdf5, r->err));
    if (strata_hdf5_text(from.hdf5, "/", "model_config", 0, &description, NULL))
        return strata_fail(r->err, STRATA_UNSUPPORTED,
                           "%s: the file has no \"model_config\", so it has weights alone, or is of another program. Save the "
                           "whole model: model.save(\"model.keras\")",
                           r->path);
    STRATA_TRY(parse_json(r, (const unsigned char *)description, strlen(description), &r->root));
    STRATA_TRY(strata_keras_make_model(r, out));
    return read_weights(r, *out, &from);
}

strata_status strata_keras_parse(const char *path, const void *bytes, size_t n_bytes, bool weights, strata_model **out_model,
                                 strata_error *err) {
    reader r = {.path = path, .err = err, .legacy = weights && strata_hdf5_matches(bytes, n_bytes)};
    strata_zip zip = {0};
    strata_model *model = NULL;
    strata_status status;
    if (r.legacy) {
        status = parse_legacy(&r, bytes, n_bytes, &model);
    } else {
        STRATA_TRY(strata_zip_open(path, bytes, n_bytes, &zip, err));
        status = parse_archive(&r, &zip, weights, &model);
        strata_zip_finish(&zip);
    }
    strata_json_finish(&r.root);
    strata_json_finish(&r.metadata);
    strata_text_finish(&r.w.text);
    free(r.layers);
    if (status)
        strata_model_destroy(model);
    else
        *out_model = model;
    return status;
}

strata_status strata_model_load_keras(const char *path, strata_model **out_model, strata_error *err) {
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n_bytes;
    STRATA_TRY(strata_file_read(path, STRATA_BYTES_LIMIT(32), &bytes, &n_bytes, err));
    const strata_status status = strata_keras_parse(path, bytes, n_bytes, true, out_model, err);
    return strata_hdf5_matches(bytes, n_bytes) ? status
                                               : strata_file_explain(path, bytes, n_bytes, STRATA_FILE_KERAS, status, err);
}
