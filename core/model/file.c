/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files are safetensors files with an F32 tensor for each parameter. The metadata contain the model's JSON, under
 * "strata.model", and the model's notes. */
#include <stdlib.h>
#include <string.h>

#include "core/data/format/safetensors.h"
#include "core/model/checkpoint.h"
#include "core/model/data.h"
#include "core/model/notes.h"

typedef struct written {
    const strata_model *model;
    /* (all_size) The parameters and states. */
    const float *values;
} written;

/* Reads a model file back, and compares its parameters and states bit by bit, so that NaN are compared too. */
static strata_status read_back(const char *path, void *context, strata_error *err) {
    const written *w = context;
    strata_model *model = NULL;
    STRATA_TRY(strata_model_load_with(w->model->registry, path, &model, err));
    strata_status status = STRATA_OK;
    bool same = model->parameters.n == w->model->parameters.n;
    for (int i = 0; i < model->parameters.n && same; i++) {
        const strata_parameter_spec *a = &w->model->parameters.items[i], *b = &model->parameters.items[i];
        same = strata_shape_equal(a->shape, b->shape) &&
               !memcmp(w->values + strata_model_place(w->model, a), model->loaded + strata_model_place(model, b),
                       (size_t)strata_shape_elements(a->shape) * sizeof *w->values);
    }
    if (!same) status = strata_fail(err, STRATA_INTERNAL, "its parameters are not those of the model");
    strata_model_destroy(model);
    return status;
}

static strata_status write_file(strata_model *model, const char *path, float *values, strata_named_array *tensors,
                                const char *json, strata_error *err) {
    STRATA_TRY(strata_model_read_all(model, values, err));
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        tensors[i] =
            (strata_named_array){p->name, strata_array_view(STRATA_DTYPE_F32, p->shape, values + strata_model_place(model, p))};
    }
    strata_metadata *metadata = calloc((size_t)model->notes.n + 1, sizeof *metadata);
    if (!metadata) return strata_fail(err, STRATA_OUT_OF_MEMORY, "save: no host memory");
    metadata[0] = (strata_metadata){STRATA_MODEL_METADATA, json};
    for (int i = 0; i < model->notes.n; i++)
        metadata[i + 1] = (strata_metadata){model->notes.items[i].key, model->notes.items[i].text};
    written w = {model, values};
    strata_status status =
        strata_safetensors_write(path, tensors, (size_t)model->parameters.n, metadata, (size_t)model->notes.n + 1,
                                 &(strata_safetensors_writing){.check = &(strata_file_check){read_back, &w}}, err);
    free(metadata);
    return status;
}

static strata_status write_model(strata_model *model, const char *path, strata_error *err) {
    char *json = NULL;
    STRATA_TRY(strata_model_to_json(model, &json, err));
    float *values = malloc((size_t)strata_model_all_size(model) * sizeof *values);
    strata_named_array *tensors = calloc((size_t)model->parameters.n + 1, sizeof *tensors);
    strata_status status = STRATA_OK;
    if (!values || !tensors) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "save: no host memory");
    if (!status) status = write_file(model, path, values, tensors, json, err);
    free(tensors);
    free(values);
    free(json);
    return status;
}

strata_status strata_model_save(strata_model *model, const char *path, strata_error *err) {
    STRATA_TRY(strata_model_check_readable(model, "save", err));
    const strata_trainer *trainer = model->strategy ? model->strategy->trainer : NULL;
    if (trainer && trainer->settle) STRATA_TRY(trainer->settle(model, true, err));
    return write_model(model, path, err);
}

/* Checks that the file has every parameter with its shape, and no other tensors except those of a checkpoint. */
static strata_status check_parameters(const strata_model *model, const strata_safetensors *file, strata_error *err) {
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        const strata_safetensor *tensor = strata_safetensors_find(file, p->name);
        if (!tensor || tensor->dtype != STRATA_DTYPE_F32 || !strata_shape_equal(tensor->shape, p->shape))
            return strata_safetensors_copy(file, p->name, STRATA_DTYPE_F32, p->shape, NULL,
                                           err); /* the message distinguishes these cases */
    }
    for (size_t i = 0; i < file->n_tensors; i++) {
        const char *name = file->tensors[i].name;
        bool known = !strncmp(name, STRATA_CHECKPOINT_PREFIX, sizeof STRATA_CHECKPOINT_PREFIX - 1);
        for (int k = 0; k < model->parameters.n && !known; k++) known = !strcmp(model->parameters.items[k].name, name);
        if (!known) return strata_fail(err, STRATA_DATA, "%s: the model has no parameter \"%s\"", file->name, name);
    }
    return STRATA_OK;
}

strata_status strata_model_take_parameters(const strata_model *model, const strata_safetensors *file, float *out,
                                           strata_error *err) {
    STRATA_TRY(check_parameters(model, file, err));
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        STRATA_TRY(strata_safetensors_copy(file, p->name, STRATA_DTYPE_F32, p->shape, out + strata_model_place(model, p), err));
    }
    return STRATA_OK;
}

/* Reads the file's tensors to model->loaded. */
static strata_status read_parameters(strata_model *model, const strata_safetensors *file, strata_error *err) {
    STRATA_TRY(check_parameters(model, file, err)); /* before memory is allocated, since a damaged file may describe any size */
    int64_t size = strata_model_all_size(model);
    model->loaded = calloc((size_t)size, sizeof *model->loaded);
    if (!model->loaded)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "load: no host memory for %lld parameters", (long long)size);
    return strata_model_take_parameters(model, file, model->loaded, err);
}

static strata_status load(strata_registry *registry, const strata_safetensors *file, const char *path, strata_model **model,
                          strata_error *err) {
    const char *json = strata_safetensors_metadata(file, STRATA_MODEL_METADATA);
    if (!json)
        return strata_fail(
            err, STRATA_DATA,
            "%s: a safetensors file without a model in it (no \"%s\" in its metadata); save one with strata train --save", path,
            STRATA_MODEL_METADATA);
    strata_status status = strata_model_from_json_with(registry, json, strlen(json), STRATA_MODEL_METADATA, model, err);
    if (status) return strata_fail_in(err, status, "%s", path);
    STRATA_TRY(strata_model_read_notes(*model, file, err));
    return read_parameters(*model, file, err);
}

strata_status strata_model_load(const char *path, strata_model **out_model, strata_error *err) {
    return strata_model_load_with(NULL, path, out_model, err);
}

strata_status strata_model_load_with(strata_registry *registry, const char *path, strata_model **out_model, strata_error *err) {
    strata_safetensors file = {0};
    strata_model *model = NULL;
    STRATA_TRY(strata_safetensors_read(path, &file, err));
    strata_status status = load(registry, &file, path, &model, err);
    strata_safetensors_finish(&file);
    if (status)
        strata_model_destroy(model);
    else
        *out_model = model;
    return status;
}
