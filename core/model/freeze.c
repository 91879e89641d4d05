/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding layers by their names, also those inside of others; and freezing layers: their parameters are moved from the trained
 * range to the range of the states. */
#include "core/base/text.h"
#include "core/model/build.h"

enum { MOST_NAMES = 256 };

static void freeze_all(strata_layer *layer) {
    layer->frozen = true;
    for (int b = 0; b < STRATA_MAX_BRANCHES; b++)
        for (int i = 0; i < layer->branches[b].n; i++) freeze_all(&layer->branches[b].layers[i]);
}

/* Finds the layer with this name, and collects the names of all layers for an error message. */
static strata_layer *find_layer(const strata_layer_list *list, const char *name, const char **names, size_t *n) {
    for (int i = 0; i < list->n; i++) {
        strata_layer *layer = &list->layers[i];
        if (!strcmp(layer->name, name)) return layer;
        if (*n < MOST_NAMES) names[(*n)++] = layer->name;
        for (int b = 0; b < STRATA_MAX_BRANCHES; b++) {
            strata_layer *inner = find_layer(&layer->branches[b], name, names, n);
            if (inner) return inner;
        }
    }
    return NULL;
}

static strata_status no_such_layer(const char *what, const char *name, const char *const *names, size_t n, strata_error *err) {
    const char *nearest = strata_nearest_name(name, names, n);
    STRATA_FINISHED(strata_text) list = {0};
    for (size_t i = 0; i < n && list.n_bytes < 300; i++) strata_text_add(&list, "%s%s", i ? ", " : "", names[i]);
    return strata_fail(err, STRATA_INVALID, "%s: there is no layer \"%.60s\"; %s%s%s%s", what, name,
                       nearest ? "did you mean \"" : "there are: ",
                       nearest      ? nearest
                       : list.bytes ? list.bytes
                                    : "none",
                       nearest ? "\"" : "", nearest ? "?" : "");
}

strata_status strata_model_find_any_layer(strata_model *model, const char *what, const char *name, strata_layer **out_layer,
                                          strata_error *err) {
    const char *names[MOST_NAMES] = {NULL};
    size_t n_names = 0;
    *out_layer = find_layer(&model->list, name, names, &n_names);
    return *out_layer ? STRATA_OK : no_such_layer(what, name, names, n_names, err);
}

/* Moves the values that were loaded from a file to the new places of the parameters, whose order is the same. */
static strata_status move_values(strata_model *model, const strata_parameter_set *before, strata_error *err) {
    float *values;
    STRATA_TRY(STRATA_NEW(values, strata_model_all_size(model), err, "freeze: no host memory for the parameters"));
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i], *old = &before->items[i];
        memcpy(values + strata_model_place(model, p), model->loaded + old->offset + (old->state ? before->flat_size : 0),
               (size_t)strata_shape_elements(p->shape) * sizeof *values);
    }
    free(model->loaded);
    model->loaded = values;
    return STRATA_OK;
}

strata_status strata_model_freeze(strata_model *model, const char *name, strata_error *err) {
    strata_layer *layer;
    __attribute__((cleanup(strata_parameters_finish))) strata_parameter_set before = {0};
    if (model->strategy)
        return strata_fail(err, STRATA_INVALID, "freeze: the model is compiled; layers are frozen before that");
    STRATA_TRY(strata_model_declare(model, err));
    STRATA_TRY(strata_model_find_any_layer(model, "freeze", name, &layer, err));
    freeze_all(layer);
    before = model->parameters;
    model->parameters = (strata_parameter_set){0};
    strata_model_free_parameters(model);
    STRATA_TRY(strata_model_declare(model, err));
    if (!model->parameters.flat_size)
        return strata_fail(err, STRATA_INVALID, "freeze %s: no layer with parameters is left to train", name);
    return model->loaded ? move_values(model, &before, err) : STRATA_OK;
}
