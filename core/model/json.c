/* SPDX-License-Identifier: Apache-2.0
 *
 * A model as JSON and back:
 *   {"label": "mnist", "input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10, "name": "logits"}],
 *    "loss": "sparse_categorical_crossentropy", "optimizer": {"name": "adam", "learning_rate": 0.001}}
 * input and layers are required. Layer options are the tables of core/layer/; zero or false ones are left out when written. */
#include "core/base/json.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/model/model.h"

enum { MAX_JSON_BYTES = 1 << 20, MAX_LAYERS = 10000 };

/* ---- reading ---- */

static strata_status read_shape(const strata_json *root, strata_shape *out_shape, strata_error *err) {
    strata_json input, item;
    STRATA_TRY(strata_json_get(root, "input", &input, err));
    STRATA_TRY(strata_json_expect(&input, STRATA_JSON_ARRAY, err));
    if (strata_json_length(&input) >= STRATA_MAX_RANK)
        return strata_json_fail(&input, err, STRATA_DATA, "has %lld axes; at most %d", (long long)strata_json_length(&input),
                                STRATA_MAX_RANK - 1);
    *out_shape = (strata_shape){0};
    for (bool more = strata_json_first(&input, &item); more; more = strata_json_next(&item))
        STRATA_TRY(strata_json_to_int(&item, 1, INT32_MAX, &out_shape->dims[out_shape->rank++], err));
    return STRATA_OK;
}

static const strata_layer_kind *find_kind(const char *name) {
    for (int i = 0; i < strata_n_layer_kinds; i++)
        if (!strcmp(strata_layer_kinds[i]->name, name)) return strata_layer_kinds[i];
    return NULL;
}

/* The kinds there are, as "dense, activation, ...". */
static void list_kinds(char *text, size_t bytes) {
    text[0] = 0;
    for (int i = 0; i < strata_n_layer_kinds; i++) {
        if (i) strncat(text, ", ", bytes - strlen(text) - 1);
        strncat(text, strata_layer_kinds[i]->name, bytes - strlen(text) - 1);
    }
}

static strata_status read_layers(strata_model *model, const strata_json *parent, const char *key, strata_error *err);

/* The error that the model kept, as one of this place. */
static strata_status kept_error(const strata_model *model, const strata_json *layer, strata_error *err) {
    if (!model->building.status) return STRATA_OK;
    strata_status kept = model->building.status == STRATA_INVALID ? STRATA_DATA : model->building.status;
    return strata_json_fail(layer, err, kept, "%s", model->building.error.message);
}

static strata_status read_branches(strata_model *model, const strata_layer_kind *kind, const strata_json *layer,
                                   strata_error *err) {
    strata_json ignored;
    for (int b = 0; b < STRATA_MAX_BRANCHES && kind->branches[b]; b++) {
        if (b && !strata_json_find(layer, kind->branches[b], &ignored)) continue;
        strata_model_open_branch(model, b);
        STRATA_TRY(kept_error(model, layer, err));
        STRATA_TRY(read_layers(model, layer, kind->branches[b], err));
        strata_model_close_branch(model);
        STRATA_TRY(kept_error(model, layer, err));
    }
    return STRATA_OK;
}

static strata_status read_layer(strata_model *model, const strata_json *layer, strata_error *err) {
    const char *name = NULL, *also[STRATA_MAX_BRANCHES + 2] = {"layer", "name"};
    STRATA_TRY(strata_json_expect(layer, STRATA_JSON_OBJECT, err));
    STRATA_TRY(strata_json_get_string(layer, "layer", STRATA_JSON_REQUIRED, &name, err));
    const strata_layer_kind *kind = find_kind(name);
    if (!kind) {
        char kinds[512];
        list_kinds(kinds, sizeof kinds);
        return strata_json_fail(layer, err, STRATA_DATA, "there is no layer \"%s\"; there are: %s", name, kinds);
    }
    size_t n_also = 2;
    for (int b = 0; b < STRATA_MAX_BRANCHES && kind->branches[b]; b++) also[n_also++] = kind->branches[b];
    void *options = calloc(1, kind->options_bytes);
    if (!options) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a layer");
    strata_status status =
        strata_json_get_string(layer, "name", STRATA_JSON_OPTIONAL, (const char **)((char *)options + kind->name_offset), err);
    if (!status) status = strata_options_read(layer, kind->options, also, n_also, options, err);
    if (!status) strata_model_add(model, kind, options);
    free(options);
    if (!status) status = kept_error(model, layer, err);
    return status ? status : read_branches(model, kind, layer, err);
}

static strata_status read_layers(strata_model *model, const strata_json *parent, const char *key, strata_error *err) {
    strata_json layers, item;
    STRATA_TRY(strata_json_get(parent, key, &layers, err));
    STRATA_TRY(strata_json_expect(&layers, STRATA_JSON_ARRAY, err));
    int64_t n = strata_json_length(&layers);
    if (n < 1 || n > MAX_LAYERS)
        return strata_json_fail(&layers, err, STRATA_DATA, "has %lld layers; 1..%d", (long long)n, MAX_LAYERS);
    for (bool more = strata_json_first(&layers, &item); more; more = strata_json_next(&item))
        STRATA_TRY(read_layer(model, &item, err));
    return STRATA_OK;
}

/* "learning_rate": a number, or an object: {"schedule": name, "initial": number, options by the table}. */
static strata_status read_learning_rate(const strata_json *optimizer, strata_optimizer *settings, strata_error *err) {
    static const char *const also[] = {"schedule", "initial"};
    strata_json json;
    const char *name = NULL;
    const strata_option *options = NULL;
    strata_error reason = {0};
    if (!strata_json_find(optimizer, "learning_rate", &json)) return STRATA_OK;
    if (strata_json_kind_of(&json) != STRATA_JSON_OBJECT)
        return strata_json_to_number(&json, 0, 1e6, &settings->learning_rate, err);
    STRATA_TRY(strata_json_get_string(&json, "schedule", STRATA_JSON_REQUIRED, &name, err));
    STRATA_TRY(strata_json_get_number(&json, "initial", STRATA_JSON_OPTIONAL, 0, 1e6, &settings->learning_rate, err));
    if (strata_schedule_find(name, &settings->schedule.name, &options, &reason))
        return strata_json_fail(&json, err, STRATA_DATA, "%s", reason.message);
    return strata_options_read(&json, options, also, 2, &settings->schedule, err);
}

/* "optimizer": its name, or an object with it and options. */
static strata_status read_optimizer(strata_model *model, const strata_json *root, strata_error *err) {
    static const char *const also[] = {"name", "learning_rate"};
    strata_json json;
    if (!strata_json_find(root, "optimizer", &json)) return STRATA_OK;
    const strata_optimizer_kind *kind = NULL;
    strata_optimizer settings = {0};
    strata_error reason = {0};
    const bool object = strata_json_kind_of(&json) == STRATA_JSON_OBJECT;
    STRATA_TRY(object ? strata_json_get_string(&json, "name", STRATA_JSON_REQUIRED, &settings.name, err)
                      : strata_json_to_string(&json, &settings.name, err));
    strata_status status = strata_optimizer_find(settings.name, &kind, &reason);
    if (!status && object) STRATA_TRY(strata_options_read(&json, kind->options, also, 2, &settings, err));
    if (!status && object) STRATA_TRY(read_learning_rate(&json, &settings, err));
    if (!status) status = strata_optimizer_check(&settings, &kind, &reason);
    if (status) return strata_json_fail(&json, err, STRATA_DATA, "%s", reason.message);
    model->optimizer = settings;
    model->optimizer_kind = kind;
    return STRATA_OK;
}

/* "loss": its name, or an object with it and options. */
static strata_status read_loss(strata_model *model, const strata_json *root, strata_error *err) {
    static const char *const also[] = {"name"};
    strata_json json;
    const char *name = NULL;
    strata_error reason = {0};
    if (!strata_json_find(root, "loss", &json)) return STRATA_OK;
    bool object = strata_json_kind_of(&json) == STRATA_JSON_OBJECT;
    STRATA_TRY(object ? strata_json_get_string(&json, "name", STRATA_JSON_REQUIRED, &name, err)
                      : strata_json_to_string(&json, &name, err));
    strata_status status = strata_loss_find(name, &model->loss, &reason);
    if (!status && object) STRATA_TRY(strata_options_read(&json, model->loss->options, also, 1, &model->loss_options, err));
    if (!status && model->loss->check) status = model->loss->check(&model->loss_options, &reason);
    return status ? strata_json_fail(&json, err, STRATA_DATA, "%s", reason.message) : STRATA_OK;
}

/* "metrics": ["auc", "precision"]: kept as one list with commas, until compile knows the outputs. */
static strata_status read_metrics(strata_model *model, const strata_json *root, strata_error *err) {
    strata_json list, item;
    char names[STRATA_MAX_METRICS * 40] = "";
    if (!strata_json_find(root, "metrics", &list)) return STRATA_OK;
    STRATA_TRY(strata_json_expect(&list, STRATA_JSON_ARRAY, err));
    for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item)) {
        const char *name = NULL;
        const strata_metric_kind *kind = NULL;
        int k;
        strata_error reason = {0};
        STRATA_TRY(strata_json_to_string(&item, &name, err));
        if (strcmp(name, "loss") && strcmp(name, "accuracy") && strata_metric_find(name, &kind, &k, &reason))
            return strata_json_fail(&item, err, STRATA_DATA, "%s", reason.message);
        if (strlen(names) + strlen(name) + 2 > sizeof names)
            return strata_json_fail(&list, err, STRATA_DATA, "has too many metrics; at most %d", STRATA_MAX_METRICS);
        if (*names) strcat(names, ",");
        strcat(names, name);
    }
    return strata_model_set_metrics(model, names, err);
}

static strata_status read_model(const strata_json *root, strata_model **out_model, strata_error *err) {
    static const char *const known[] = {"label", "input", "input_dtype", "layers", "loss", "optimizer", "metrics"};
    const char *label = "", *dtype_name = "f32";
    strata_dtype dtype = STRATA_DTYPE_F32;
    strata_shape input;
    STRATA_TRY(strata_json_expect(root, STRATA_JSON_OBJECT, err));
    STRATA_TRY(strata_json_check_keys(root, known, sizeof known / sizeof *known, err));
    STRATA_TRY(strata_json_get_string(root, "label", STRATA_JSON_OPTIONAL, &label, err));
    STRATA_TRY(strata_json_get_string(root, "input_dtype", STRATA_JSON_OPTIONAL, &dtype_name, err));
    STRATA_TRY(read_shape(root, &input, err));
    strata_error reason = {0};
    strata_status status = strata_model_create(input, out_model, &reason);
    if (status) return strata_json_fail(root, err, status == STRATA_INVALID ? STRATA_DATA : status, "%s", reason.message);
    status = strata_dtype_parse(dtype_name, &dtype, &reason);
    if (!status) status = strata_model_set_input_dtype(*out_model, dtype, &reason);
    if (status) return strata_json_fail(root, err, STRATA_DATA, "input_dtype: %s", reason.message);
    STRATA_TRY(strata_model_set_label(*out_model, label, err));
    STRATA_TRY(read_loss(*out_model, root, err));
    STRATA_TRY(read_optimizer(*out_model, root, err));
    STRATA_TRY(read_metrics(*out_model, root, err));
    return read_layers(*out_model, root, "layers", err);
}

strata_status strata_model_from_json(const char *text, size_t bytes, const char *source, strata_model **out_model,
                                     strata_error *err) {
    strata_json root = {0};
    strata_model *model = NULL;
    STRATA_TRY(strata_json_parse(source, text, bytes, MAX_JSON_BYTES, &root, err));
    strata_status status = read_model(&root, &model, err);
    if (!status) {
        strata_error reason = {0};
        status = strata_model_declare(model, &reason);
        if (status)
            status = strata_fail(err, status == STRATA_INVALID ? STRATA_DATA : status, "%s: %s", source, reason.message);
    }
    strata_json_finish(&root);
    if (status)
        strata_model_destroy(model);
    else
        *out_model = model;
    return status;
}

strata_status strata_model_read_json(const char *path, strata_model **out_model, strata_error *err) {
    unsigned char *text = NULL;
    size_t bytes = 0;
    STRATA_TRY(strata_file_read(path, MAX_JSON_BYTES, &text, &bytes, err));
    strata_status status = strata_model_from_json((const char *)text, bytes, path, out_model, err);
    free(text);
    return status;
}

/* ---- writing ---- */

static void write_layer(strata_json_writer *w, const strata_layer *layer) {
    const char *slash = strrchr(layer->name, '/');
    strata_json_begin_object(w);
    strata_json_key(w, "layer");
    strata_json_write_string(w, layer->kind->name);
    strata_json_key(w, "name");
    strata_json_write_string(w, slash ? slash + 1 : layer->name);
    strata_options_write(w, layer->kind->options, layer->options);
    for (int b = 0; b < STRATA_MAX_BRANCHES; b++) {
        if (!layer->branches[b].n) continue;
        strata_json_key(w, layer->kind->branches[b]);
        strata_json_begin_array(w);
        for (int i = 0; i < layer->branches[b].n; i++) write_layer(w, &layer->branches[b].layers[i]);
        strata_json_end_array(w);
    }
    strata_json_end_object(w);
}

static void write_learning_rate(strata_json_writer *w, const strata_optimizer *settings) {
    const strata_schedule *schedule = &settings->schedule;
    const char *name = schedule->name ? schedule->name : "constant";
    const strata_option *options = NULL;
    strata_json_key(w, "learning_rate");
    if (strata_schedule_find(name, &name, &options, NULL) || (!schedule->name && !strata_options_given(options, schedule))) {
        strata_json_write_number(w, settings->learning_rate);
        return;
    }
    strata_json_begin_object(w);
    strata_json_key(w, "schedule");
    strata_json_write_string(w, name);
    strata_json_key(w, "initial");
    strata_json_write_number(w, settings->learning_rate);
    strata_options_write(w, options, schedule);
    strata_json_end_object(w);
}

static void write_optimizer(strata_json_writer *w, const strata_model *model) {
    strata_json_key(w, "optimizer");
    strata_json_begin_object(w);
    strata_json_key(w, "name");
    strata_json_write_string(w, model->optimizer.name);
    write_learning_rate(w, &model->optimizer);
    strata_options_write(w, model->optimizer_kind->options, &model->optimizer);
    strata_json_end_object(w);
}

static void write_loss(strata_json_writer *w, const strata_model *model) {
    strata_json_key(w, "loss");
    if (!strata_options_given(model->loss->options, &model->loss_options)) {
        strata_json_write_string(w, model->loss->name);
        return;
    }
    strata_json_begin_object(w);
    strata_json_key(w, "name");
    strata_json_write_string(w, model->loss->name);
    strata_options_write(w, model->loss->options, &model->loss_options);
    strata_json_end_object(w);
}

static void write_metrics(strata_json_writer *w, const char *names) {
    strata_json_key(w, "metrics");
    strata_json_begin_array(w);
    while (*names) {
        char name[64];
        size_t n = strcspn(names, ", "), kept = n < sizeof name ? n : sizeof name - 1;
        memcpy(name, names, kept);
        name[kept] = 0;
        if (n) strata_json_write_string(w, name);
        names += n + strspn(names + n, ", ");
    }
    strata_json_end_array(w);
}

strata_status strata_model_to_json(const strata_model *model, char **out_text, strata_error *err) {
    if (model->building.status) return strata_fail(err, model->building.status, "%s", model->building.error.message);
    strata_json_writer w = {0};
    strata_json_begin_object(&w);
    strata_json_key(&w, "label");
    strata_json_write_string(&w, model->label);
    strata_json_key(&w, "input");
    strata_json_begin_array(&w);
    for (int i = 0; i < model->input.rank; i++) strata_json_write_int(&w, model->input.dims[i]);
    strata_json_end_array(&w);
    if (model->input_dtype != STRATA_DTYPE_F32) {
        strata_json_key(&w, "input_dtype");
        strata_json_write_string(&w, strata_dtype_name(model->input_dtype));
    }
    strata_json_key(&w, "layers");
    strata_json_begin_array(&w);
    for (int i = 0; i < model->list.n; i++) write_layer(&w, &model->list.layers[i]);
    strata_json_end_array(&w);
    if (model->loss) write_loss(&w, model);
    if (model->metrics.names && *model->metrics.names) write_metrics(&w, model->metrics.names);
    if (model->optimizer.name) write_optimizer(&w, model);
    strata_json_end_object(&w);
    return strata_json_take(&w, out_text, NULL, err);
}
