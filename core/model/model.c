/* SPDX-License-Identifier: Apache-2.0
 *
 * Creating and destroying models, and adding layers to them. */
#include <stdio.h>

#include "core/model/build.h"
#include "core/model/loop.h"
#include "strata/callbacks.h"

/* ---- create, destroy ---- */

strata_status strata_model_create(strata_shape input_shape, strata_model **out_model, strata_error *err) {
    STRATA_TRY(strata_shape_check(input_shape, err));
    if (input_shape.rank >= STRATA_MAX_RANK || strata_shape_elements(input_shape) < 1)
        return strata_fail(err, STRATA_INVALID, "model: input shape %s; it needs at least one element and at most %d axes",
                           strata_shape_text(input_shape).text, STRATA_MAX_RANK - 1);
    STRATA_TRY(strata_model_create_functional(out_model, err));
    (*out_model)->functional = false;
    (*out_model)->n_inputs = (*out_model)->n_outputs = 1;
    (*out_model)->inputs[0].shape = input_shape;
    (*out_model)->outputs[0].weight = 1;
    return STRATA_OK;
}

strata_status strata_model_create_functional(strata_model **out_model, strata_error *err) {
    STRATA_FREED strata_model *model = NULL;
    STRATA_TRY(STRATA_NEW(model, 1, err, "model: no host memory"));
    STRATA_TRY(strata_model_set_label(model, "", err));
    model->functional = true;
    model->rate.own = STRATA_SCHEDULED_RATE;
    *out_model = strata_released(&model);
    return STRATA_OK;
}

static char **option_string(void *options, const strata_option *option) {
    return (char **)((char *)options + option->offset);
}

static void free_list(strata_layer_list *list);

static void free_layer(strata_layer *layer) {
    for (const strata_option *option = layer->kind->options; layer->options && option->name; option++)
        if (strata_option_is_text(option->kind)) free(*option_string(layer->options, option));
    for (int b = 0; b < STRATA_MAX_BRANCHES; b++) free_list(&layer->branches[b]);
    free(layer->options);
    free(layer->name);
}

static void free_list(strata_layer_list *list) {
    for (int i = 0; i < list->n; i++) free_layer(&list->layers[i]);
    free(list->layers);
    *list = (strata_layer_list){0};
}

void strata_model_free_parameters(strata_model *model) {
    strata_parameters_finish(&model->parameters);
    for (int i = 0; i < model->n_inputs; i++) model->inputs[i].n_tokens = 0;
}

strata_status strata_model_set_input_dtype(strata_model *model, strata_dtype dtype, strata_error *err) {
    if (dtype != STRATA_DTYPE_F32 && dtype != STRATA_DTYPE_I32)
        return strata_fail(err, STRATA_INVALID, "model: inputs of %s; they are f32 or i32", strata_dtype_name(dtype));
    if (model->strategy) return strata_fail(err, STRATA_INVALID, "model: it is compiled; the input's dtype is set before that");
    if (model->functional)
        return strata_fail(err, STRATA_INVALID, "model: strata_model_input says of which type each input is");
    model->inputs[0].dtype = dtype;
    strata_model_free_parameters(model); /* they are declared again with the changed model */
    return STRATA_OK;
}

strata_dtype strata_model_input_dtype(const strata_model *model) {
    return model->inputs[0].dtype;
}

int64_t strata_model_n_tokens(const strata_model *model) {
    return model->inputs[0].n_tokens;
}

void strata_model_destroy(strata_model *model) {
    if (!model) return;
    strata_owned_forget(&model->owned);
    strata_model_free_programs(model);
    strata_model_free_variables(model);
    strata_model_free_parameters(model);
    free_list(&model->list);
    strata_validation_forget(model);
    free(model->loaded);
    free(model->label);
    free(model->recompute.text);
    strata_model_free_values(model);
    for (int i = 0; i < model->n_outputs; i++) {
        free(model->outputs[i].name);
        free(model->outputs[i].metrics);
    }
    free(model->metrics.sums);
    strata_registry_destroy(model->registry);
    strata_model_clear_callbacks(model);
    strata_model_free_notes(model);
    free(model->training);
    free(model->continued);
    free(model);
}

strata_status strata_model_set_label(strata_model *model, const char *label, strata_error *err) {
    char *copy = strdup(label ? label : "");
    if (!copy) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for its label");
    free(model->label);
    model->label = copy;
    return STRATA_OK;
}

const char *strata_model_label(const strata_model *model) {
    return model->label;
}

strata_shape strata_model_input_shape(const strata_model *model) {
    return model->inputs[0].shape;
}

strata_optimizer strata_model_optimizer(const strata_model *model) {
    return model->optimizer;
}

/* ---- layers ---- */

/* The list to which layers are added now, and the layer that contains this list (NULL: none). */
static strata_layer_list *open_list(strata_model *model, const strata_layer **out_parent) {
    strata_layer_list *list = &model->list;
    *out_parent = NULL;
    for (int i = 0; i < model->building.n_open; i++) {
        *out_parent = &list->layers[list->n - 1];
        list = &list->layers[list->n - 1].branches[model->building.open[i]];
    }
    return list;
}

const strata_layer *strata_model_open_layer(const strata_model *model) {
    const strata_layer *parent;
    open_list((strata_model *)model, &parent); /* open_list does not change the model */
    return parent;
}

/* Both branches of a layer share its name, so names are unique among all layers in it. */
static bool name_taken(const strata_layer_list *list, const strata_layer *parent, const char *name) {
    for (int b = 0; b < (parent ? STRATA_MAX_BRANCHES : 1); b++) {
        const strata_layer_list *siblings = parent ? &parent->branches[b] : list;
        for (int i = 0; i < siblings->n; i++)
            if (!strcmp(siblings->layers[i].name, name)) return true;
    }
    return false;
}

/* The layer's name: the parent's name, followed by the given name or by "dense", "dense_1", ... */
static strata_status choose_name(const strata_layer_list *list, const strata_layer *parent, const strata_layer_kind *kind,
                                 const char *given, char **out_name, strata_error *err) {
    enum { LONGEST = 127 };
    if (given && (!*given || strlen(given) > LONGEST || strchr(given, '/')))
        return strata_fail(err, STRATA_INVALID, "layer name \"%.40s\": it must have 1 to %d characters and no '/'", given,
                           LONGEST);
    const char *prefix = parent ? parent->name : "", *slash = parent ? "/" : "", *last = given ? given : kind->name;
    const size_t bytes = strlen(prefix) + strlen(last) + 16;
    STRATA_FREED char *name = NULL;
    STRATA_TRY(STRATA_NEW(name, bytes, err, "model: no host memory for a layer's name"));
    snprintf(name, bytes, "%s%s%s", prefix, slash, last);
    if (given && name_taken(list, parent, name))
        return strata_fail(err, STRATA_INVALID, "there are two layers called \"%s\"", name);
    for (int number = 1; !given && name_taken(list, parent, name); number++)
        snprintf(name, bytes, "%s%s%s_%d", prefix, slash, last, number);
    *out_name = strata_released(&name);
    return STRATA_OK;
}

/* Copies the options; after a failure free_layer frees what was copied to *layer. */
static strata_status copy_options(strata_layer *layer, const void *options, strata_error *err) {
    layer->options = calloc(1, layer->kind->options_bytes);
    if (!layer->options) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a layer");
    memcpy(layer->options, options, layer->kind->options_bytes);
    bool complete = true;
    for (const strata_option *option = layer->kind->options; option->name; option++) {
        if (!strata_option_is_text(option->kind)) continue;
        char **text = option_string(layer->options, option);
        *text = *text && complete ? strdup(*text) : NULL;
        if (*option_string((void *)options, option) && !*text) complete = false;
    }
    if (!layer->kind->own) *(const char **)((char *)layer->options + layer->kind->name_offset) = layer->name;
    return complete ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a layer's options");
}

/* Checks that both numbers of a pair are set or neither, since JSON cannot represent a pair with one number set. */
static strata_status check_pairs(const strata_layer_kind *kind, const void *options, strata_error *err) {
    for (const strata_option *option = kind->options; option->name; option++) {
        /* If 0 is a valid value, the pair may contain 0 and another number. */
        if (option->kind != STRATA_OPTION_PAIR || option->least == 0) continue;
        const int64_t *pair = (const int64_t *)(const void *)((const char *)options + option->offset);
        if ((pair[0] == 0) != (pair[1] == 0))
            return strata_fail(err, STRATA_INVALID, "%s is [%lld, %lld]; give both, or neither", option->name,
                               (long long)pair[0], (long long)pair[1]);
    }
    return STRATA_OK;
}

/* Calls the kind's check of the options. A kind accepts only built-in activations: if an option names an activation that the
 * program registered, the kind checks a copy of the options that names a built-in one. */
strata_status strata_layer_check_options(const strata_registry *registry, const strata_layer *layer, strata_error *err) {
    const strata_layer_kind *kind = layer->kind;
    STRATA_TRY(check_pairs(kind, layer->options, err));
    STRATA_FREED char *shown = NULL;
    STRATA_TRY(STRATA_NEW(shown, kind->options_bytes, err, "model: no host memory for a layer's options"));
    memcpy(shown, layer->options, kind->options_bytes);
    for (const strata_option *option = kind->options; option->name; option++) {
        const char **name = (const char **)option_string(shown, option);
        if (option->kind != STRATA_OPTION_ACTIVATION || !*name) continue;
        if (strata_registry_has_activation(registry, *name))
            *name = "relu";
        else if (kind->own)
            STRATA_TRY(strata_activation_check(*name, err));
    }
    if (kind->check) STRATA_TRY(kind->check(shown, err));
    return strata_options_check(kind->options, layer->options, err);
}

static strata_status add_layer(strata_model *model, const strata_layer_kind *kind, const char *given, const void *options,
                               strata_error *err) {
    const strata_layer *parent;
    strata_layer_list *list = open_list(model, &parent);
    if (model->strategy) return strata_fail(err, STRATA_INVALID, "model: it is compiled; layers are added before that");
    if (!strata_grow(&list->layers, list->n, sizeof *list->layers))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for %d layers", list->n + 1);
    strata_layer layer = {.kind = kind};
    strata_status status = choose_name(list, parent, kind, given, &layer.name, err);
    if (!status) status = copy_options(&layer, options, err);
    if (!status) {
        status = strata_layer_check_options(model->registry, &layer, err);
        if (status) strata_fail_in(err, status, "%s", layer.name);
    }
    if (status)
        free_layer(&layer);
    else
        list->layers[list->n++] = layer;
    strata_model_free_parameters(model); /* they are declared again with the new layer */
    return status;
}

void strata_model_add(strata_model *model, const strata_layer_kind *kind, const char *name, const void *options) {
    if (!model->building.error.status) (void)!add_layer(model, kind, name, options, &model->building.error);
}

void strata_model_open_branch(strata_model *model, int branch) {
    const strata_layer *parent;
    strata_error *err = &model->building.error;
    if (err->status) return;
    strata_layer_list *list = open_list(model, &parent);
    const char *name = list->n ? list->layers[list->n - 1].name : "model";
    if (!list->n || !list->layers[list->n - 1].kind->branches[branch])
        strata_fail(err, STRATA_INVALID, "%s: there is no layer to begin a branch of", name);
    else if (model->building.n_open == STRATA_MAX_NESTING)
        strata_fail(err, STRATA_INVALID, "%s: layers are nested at most %d deep", name, STRATA_MAX_NESTING);
    else
        model->building.open[model->building.n_open++] = branch;
}

void strata_model_close_branch(strata_model *model) {
    const strata_layer *parent;
    strata_error *err = &model->building.error;
    if (err->status) return;
    const strata_layer_list *list = open_list(model, &parent);
    if (!parent)
        strata_fail(err, STRATA_INVALID, "model: no branch was begun that could end");
    else if (!list->n)
        strata_fail(err, STRATA_INVALID, "%s: there is no layer in it", parent->name);
    else
        model->building.n_open--;
}

void strata_model_begin_residual(strata_model *model, strata_residual_options opts) {
    strata_model_add(model, &strata_layer_residual, opts.name, &opts);
    strata_model_open_branch(model, 0);
}

void strata_model_begin_shortcut(strata_model *model) {
    strata_model_close_branch(model);
    strata_model_open_branch(model, 1);
}

void strata_model_end_residual(strata_model *model) {
    strata_model_close_branch(model);
}

void strata_model_add_layer(strata_model *model, const char *layer, const char *name, const void *options) {
    strata_error *err = &model->building.error;
    const strata_layer_kind *kind = NULL;
    STRATA_FREED char *zeros = NULL;
    if (err->status || strata_registry_find_layer(model->registry, layer, &kind, err)) return;
    if (kind->branches[0])
        strata_fail(err, STRATA_INVALID, "strata_model_add_layer: %s has layers inside; strata_model_begin_%s adds it", layer,
                    layer);
    else if (options || !STRATA_NEW(zeros, kind->options_bytes, err, "model: no host memory for a layer"))
        strata_model_add(model, kind, name, options ? options : zeros);
}

#define ADD(kind)                                                                     \
    void strata_model_add_##kind(strata_model *model, strata_##kind##_options opts) { \
        strata_model_add(model, &strata_layer_##kind, opts.name, &opts);              \
    }
#define STRATA_LAYER(kind) ADD(kind)
#include "core/layer/layers.def"
#undef STRATA_LAYER
