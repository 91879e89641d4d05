/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading model files, which are safetensors files with an F32 tensor for each parameter. The metadata contain the model's
 * JSON, under "strata.model", and the model's notes. checkpoint.c writes them. */
#include "core/model/checkpoint.h"

/* Checks that the file has every parameter with its shape, and no other tensors except those of a checkpoint. */
static strata_status check_parameters(const strata_model *model, const strata_manifest *file, strata_error *err) {
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        const strata_manifest_tensor *tensor = strata_manifest_find(file, p->name);
        if (!tensor || tensor->dtype != STRATA_DTYPE_F32 || !strata_shape_equal(tensor->shape, p->shape))
            return strata_manifest_copy(file, p->name, STRATA_DTYPE_F32, p->shape, NULL,
                                        err); /* the message distinguishes these cases */
    }
    for (int i = 0; i < file->n_tensors; i++) {
        const char *name = file->tensors[i].name;
        bool known = !strncmp(name, STRATA_CHECKPOINT_PREFIX, sizeof STRATA_CHECKPOINT_PREFIX - 1);
        for (int k = 0; k < model->parameters.n && !known; k++) known = !strcmp(model->parameters.items[k].name, name);
        if (!known) return strata_fail(err, STRATA_DATA, "%s: the model has no parameter \"%s\"", file->path, name);
    }
    return STRATA_OK;
}

strata_status strata_model_take_parameters(const strata_model *model, const strata_manifest *file, float *out,
                                           strata_error *err) {
    STRATA_TRY(check_parameters(model, file, err));
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        STRATA_TRY(strata_manifest_copy(file, p->name, STRATA_DTYPE_F32, p->shape, out + strata_model_place(model, p), err));
    }
    return STRATA_OK;
}

static strata_status load(strata_registry *registry, const strata_manifest *file, strata_model **out_model, strata_error *err) {
    if (!file->model)
        return strata_fail(
            err, STRATA_DATA,
            "%s: a safetensors file without a model in it (no \"%s\" in its metadata); save one with strata train --save",
            file->path, STRATA_MODEL_METADATA);
    const strata_status status =
        strata_model_from_json_with(registry, file->model, strlen(file->model), STRATA_MODEL_METADATA, out_model, err);
    if (status) return strata_fail_in(err, status, "%s", file->path);
    strata_model *model = *out_model;
    STRATA_TRY(strata_model_read_notes(model, file, err));
    STRATA_TRY(check_parameters(model, file, err)); /* before memory is allocated, since a damaged file may describe any size */
    const int64_t size = strata_model_all_size(model);
    STRATA_TRY(STRATA_NEW(model->loaded, size, err, "load: no host memory for %lld parameters", (long long)size));
    return strata_model_take_parameters(model, file, model->loaded, err);
}

strata_status strata_model_load(const char *path, strata_model **out_model, strata_error *err) {
    return strata_model_load_with(NULL, path, out_model, err);
}

strata_status strata_model_load_with(strata_registry *registry, const char *path, strata_model **out_model, strata_error *err) {
    STRATA_FINISHED(strata_manifest) file = {0};
    strata_model *model = NULL;
    STRATA_TRY(strata_manifest_open_file(path, &file, err));
    const strata_status status = load(registry, &file, &model, err);
    if (status)
        strata_model_destroy(model);
    else
        *out_model = model;
    return status;
}
