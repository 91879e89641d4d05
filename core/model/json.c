/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a model as JSON, and reading it:
 *   {"label": "mnist", "input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10, "name": "logits"}],
 *    "loss": "sparse_categorical_crossentropy", "optimizer": {"name": "adam", "learning_rate": 0.001}}
 * input and layers are required. Layer options are the tables of core/layer/; zero or false ones are left out when written.
 * A functional model has lists of inputs and outputs, and its layers name their inputs:
 *   {"inputs": [{"name": "left", "shape": [4]}, {"name": "right", "shape": [4]}],
 *    "layers": [{"layer": "dense", "units": 8, "name": "side", "inputs": ["left"]},
 *               {"call": "side", "name": "other side", "inputs": ["right"]},
 *               {"layer": "add", "name": "both", "inputs": ["side", "other side"]}],
 *    "outputs": [{"name": "both", "loss": "mse", "weight": 0.5, "metrics": ["mae"]}]}
 * The input of a layer without "inputs" is the result of the layer before it. A layer may have "stage": the stage of a pipeline
 * that begins with it (model_parallel). */
#include "core/base/file.h"
#include "core/model/build.h"
#include "core/model/metrics.h"

enum { MAX_JSON_BYTES = 4 << 20, MAX_LAYERS = 10000 };

/* ---- reading ---- */

static strata_status read_shape(const strata_json *parent, const char *key, strata_shape *out_shape, strata_error *err) {
    strata_json input, item;
    STRATA_TRY(strata_json_get_array(parent, key, &input, err));
    if (strata_json_length(&input) >= STRATA_MAX_RANK)
        return strata_json_fail(&input, err, STRATA_DATA, "has %lld axes; at most %d", (long long)strata_json_length(&input),
                                STRATA_MAX_RANK - 1);
    *out_shape = (strata_shape){0};
    for (bool more = strata_json_first(&input, &item); more; more = strata_json_next(&item))
        STRATA_TRY(strata_json_to_int(&item, 1, INT32_MAX, &out_shape->dims[out_shape->rank++], err));
    return STRATA_OK;
}

static strata_status read_layers(strata_model *model, const strata_json *parent, const char *key, bool outer,
                                 strata_error *err);

/* Returns the error that the model has stored, with the position in the JSON. */
static strata_status stored_error(const strata_model *model, const strata_json *layer, strata_error *err) {
    if (!model->building.error.status) return STRATA_OK;
    strata_status kept = model->building.error.status == STRATA_INVALID ? STRATA_DATA : model->building.error.status;
    return strata_json_fail(layer, err, kept, "%s", model->building.error.message);
}

static strata_status read_branches(strata_model *model, const strata_layer_kind *kind, const strata_json *layer,
                                   strata_error *err) {
    strata_json ignored;
    for (int b = 0; b < STRATA_MAX_BRANCHES && kind->branches[b]; b++) {
        if (b && !strata_json_find(layer, kind->branches[b], &ignored)) continue;
        strata_model_open_branch(model, b);
        STRATA_TRY(stored_error(model, layer, err));
        STRATA_TRY(read_layers(model, layer, kind->branches[b], false, err));
        strata_model_close_branch(model);
        STRATA_TRY(stored_error(model, layer, err));
    }
    return STRATA_OK;
}

/* Reads "stage": the stage of a pipeline that begins with the layer. */
static strata_status read_stage(const strata_json *json, strata_layer *layer, strata_error *err) {
    int64_t stage = -1;
    STRATA_TRY(strata_json_get_int(json, "stage", STRATA_JSON_OPTIONAL, 0, STRATA_MESH_MOST_DEVICES - 1, &stage, err));
    layer->begins_stage = (int)stage + 1;
    return STRATA_OK;
}

/* Reads a layer's kind and options, and the layers inside of it. takes_inputs: the layer may have the key "inputs", which the
 * caller reads. */
static strata_status read_layer(strata_model *model, const strata_json *layer, bool takes_inputs, bool outer,
                                strata_error *err) {
    const char *type = NULL, *name = NULL, *also[STRATA_MAX_BRANCHES + 4] = {"layer", "name"};
    const strata_layer_kind *kind = NULL;
    strata_error reason = {0};
    STRATA_TRY(strata_json_expect(layer, STRATA_JSON_OBJECT, err));
    STRATA_TRY(strata_json_get_string(layer, "layer", STRATA_JSON_REQUIRED, &type, err));
    if (strata_registry_find_layer(model->registry, type, &kind, &reason))
        return strata_json_fail(layer, err, STRATA_DATA, "%s", reason.message);
    size_t n_also = 2;
    if (takes_inputs) also[n_also++] = "inputs";
    if (outer) also[n_also++] = "stage";
    for (int b = 0; b < STRATA_MAX_BRANCHES && kind->branches[b]; b++) also[n_also++] = kind->branches[b];
    STRATA_FREED char *options = NULL;
    STRATA_TRY(STRATA_NEW(options, kind->options_bytes, err, "model: no host memory for a layer"));
    STRATA_TRY(strata_json_get_string(layer, "name", STRATA_JSON_OPTIONAL, &name, err));
    STRATA_TRY(strata_options_read(layer, kind->options, also, n_also, options, err));
    strata_model_add(model, kind, name, options);
    STRATA_TRY(stored_error(model, layer, err));
    if (outer) STRATA_TRY(read_stage(layer, &model->list.layers[model->list.n - 1], err));
    return read_branches(model, kind, layer, err);
}

static strata_status open_layers(const strata_json *parent, const char *key, strata_json *layers, strata_error *err) {
    STRATA_TRY(strata_json_get_array(parent, key, layers, err));
    int64_t n = strata_json_length(layers);
    if (n >= 1 && n <= MAX_LAYERS) return STRATA_OK;
    return strata_json_fail(layers, err, STRATA_DATA, "has %lld layers; 1..%d", (long long)n, MAX_LAYERS);
}

static strata_status read_layers(strata_model *model, const strata_json *parent, const char *key, bool outer,
                                 strata_error *err) {
    strata_json layers, item;
    STRATA_TRY(open_layers(parent, key, &layers, err));
    for (bool more = strata_json_first(&layers, &item); more; more = strata_json_next(&item))
        STRATA_TRY(read_layer(model, &item, false, outer, err));
    return STRATA_OK;
}

/* ---- functional models ---- */

static strata_status read_inputs(strata_model *model, const strata_json *inputs, strata_error *err) {
    static const char *const known[] = {"name", "shape", "dtype"};
    strata_json item;
    STRATA_TRY(strata_json_expect(inputs, STRATA_JSON_ARRAY, err));
    for (bool more = strata_json_first(inputs, &item); more; more = strata_json_next(&item)) {
        const char *name = NULL, *dtype_name = "f32";
        strata_dtype dtype = STRATA_DTYPE_F32;
        strata_shape shape;
        strata_error reason = {0};
        STRATA_TRY(strata_json_expect(&item, STRATA_JSON_OBJECT, err));
        STRATA_TRY(strata_json_check_keys(&item, known, sizeof known / sizeof *known, err));
        STRATA_TRY(strata_json_get_string(&item, "name", STRATA_JSON_REQUIRED, &name, err));
        STRATA_TRY(strata_json_get_string(&item, "dtype", STRATA_JSON_OPTIONAL, &dtype_name, err));
        STRATA_TRY(read_shape(&item, "shape", &shape, err));
        if (strata_dtype_parse(dtype_name, &dtype, &reason))
            return strata_json_fail(&item, err, STRATA_DATA, "dtype: %s", reason.message);
        strata_model_input(model, name, shape, dtype);
        STRATA_TRY(stored_error(model, &item, err));
    }
    return STRATA_OK;
}

/* Whether one of the layers in the list has this name. */
static bool is_listed(const strata_json *layers, const char *name) {
    strata_json item;
    for (bool more = strata_json_first(layers, &item); more; more = strata_json_next(&item)) {
        const char *own = NULL;
        if (!strata_json_get_string(&item, "name", STRATA_JSON_OPTIONAL, &own, NULL) && own && !strcmp(own, name)) return true;
    }
    return false;
}

/* Reads "inputs": names of inputs of the model and of layers before this one. */
static strata_status read_names(const strata_model *model, const strata_json *layers, const strata_json *layer, int *out,
                                int *out_n, strata_error *err) {
    strata_json inputs, item;
    *out_n = 0;
    if (!strata_json_find(layer, "inputs", &inputs)) {
        const int last = model->n_values - 1;
        if (last < 0 || (model->values[last]->layer < 0 && model->n_inputs > 1))
            return strata_json_fail(layer, err, STRATA_DATA, "needs \"inputs\", as the model has %d inputs", model->n_inputs);
        out[(*out_n)++] = last;
        return STRATA_OK;
    }
    STRATA_TRY(strata_json_expect(&inputs, STRATA_JSON_ARRAY, err));
    if (strata_json_length(&inputs) < 1 || strata_json_length(&inputs) > STRATA_MAX_LAYER_INPUTS)
        return strata_json_fail(&inputs, err, STRATA_DATA, "has %lld inputs; there can be 1 to %d",
                                (long long)strata_json_length(&inputs), STRATA_MAX_LAYER_INPUTS);
    for (bool more = strata_json_first(&inputs, &item); more; more = strata_json_next(&item)) {
        const char *name = NULL;
        STRATA_TRY(strata_json_to_string(&item, &name, err));
        out[*out_n] = strata_model_find_value(model, name);
        if (out[(*out_n)++] >= 0) continue;
        return strata_json_fail(
            &item, err, STRATA_DATA,
            is_listed(layers, name)
                ? "\"%.60s\" is this layer or one that comes after it; layers are listed in the order in which "
                  "they are computed, and none can take what depends on itself (a cycle)"
                : "there is no input or layer \"%.60s\"",
            name);
    }
    return STRATA_OK;
}

/* Reads {"call": name of an earlier layer, "name": .., "inputs": ..}, and finds the layer. */
static strata_status read_call(const strata_model *model, const strata_json *item, int *out_layer, const char **out_name,
                               strata_error *err) {
    static const char *const known[] = {"call", "name", "inputs"};
    const char *layer = NULL;
    STRATA_TRY(strata_json_check_keys(item, known, sizeof known / sizeof *known, err));
    STRATA_TRY(strata_json_get_string(item, "call", STRATA_JSON_REQUIRED, &layer, err));
    STRATA_TRY(strata_json_get_string(item, "name", STRATA_JSON_OPTIONAL, out_name, err));
    *out_layer = strata_model_find_layer(model, layer);
    if (*out_layer >= 0) return STRATA_OK;
    return strata_json_fail(item, err, STRATA_DATA, "call: there is no layer \"%.60s\" before this one", layer);
}

static strata_status read_calls(strata_model *model, const strata_json *root, strata_error *err) {
    strata_json layers, item, ignored;
    int inputs[STRATA_MAX_LAYER_INPUTS], n = 0;
    STRATA_TRY(open_layers(root, "layers", &layers, err));
    for (bool more = strata_json_first(&layers, &item); more; more = strata_json_next(&item)) {
        const char *name = NULL;
        int layer = model->list.n;
        STRATA_TRY(strata_json_expect(&item, STRATA_JSON_OBJECT, err));
        STRATA_TRY(read_names(model, &layers, &item, inputs, &n, err));
        STRATA_TRY(strata_json_find(&item, "call", &ignored) ? read_call(model, &item, &layer, &name, err)
                                                             : read_layer(model, &item, true, true, err));
        strata_model_add_call(model, layer, name, inputs, n);
        STRATA_TRY(stored_error(model, &item, err));
    }
    return STRATA_OK;
}

/* Reads "learning_rate": a number, or an object {"schedule": name, "initial": number, options of the schedule's table}. */
static strata_status read_learning_rate(const strata_json *optimizer, strata_optimizer *settings, strata_error *err) {
    static const char *const also[] = {"schedule", "initial"};
    strata_json json;
    const char *name = NULL;
    const strata_option *options = NULL;
    strata_error reason = {0};
    if (!strata_json_find(optimizer, "learning_rate", &json)) return STRATA_OK;
    if (strata_json_kind_of(&json) != STRATA_JSON_OBJECT)
        return strata_option_read_number(optimizer, "learning_rate", true, 0, 1e6, &settings->learning_rate, err);
    STRATA_TRY(strata_json_get_string(&json, "schedule", STRATA_JSON_REQUIRED, &name, err));
    STRATA_TRY(strata_option_read_number(&json, "initial", false, 0, 1e6, &settings->learning_rate, err));
    if (strata_schedule_find(name, &settings->schedule.name, &options, &reason))
        return strata_json_fail(&json, err, STRATA_DATA, "%s", reason.message);
    return strata_options_read(&json, options, also, 2, &settings->schedule, err);
}

/* Reads a name, or the "name" of an object with options. */
static strata_status read_name(const strata_json *json, bool *out_object, const char **out_name, strata_error *err) {
    *out_object = strata_json_kind_of(json) == STRATA_JSON_OBJECT;
    return *out_object ? strata_json_get_string(json, "name", STRATA_JSON_REQUIRED, out_name, err)
                       : strata_json_to_string(json, out_name, err);
}

static strata_status read_optimizer(strata_model *model, const strata_json *root, strata_error *err) {
    static const char *const also[] = {"name", "learning_rate"};
    strata_json json;
    if (!strata_json_find(root, "optimizer", &json)) return STRATA_OK;
    const strata_optimizer_kind *kind = NULL;
    strata_optimizer settings = {0};
    strata_error reason = {0};
    bool object;
    STRATA_TRY(read_name(&json, &object, &settings.name, err));
    strata_status status = strata_optimizer_find(settings.name, &kind, &reason);
    if (!status && object) STRATA_TRY(strata_options_read(&json, kind->options, also, 2, &settings, err));
    if (!status && object) STRATA_TRY(read_learning_rate(&json, &settings, err));
    if (!status) status = strata_optimizer_check(&settings, &kind, &reason);
    if (status) return strata_json_fail(&json, err, STRATA_DATA, "%s", reason.message);
    model->optimizer = settings;
    model->optimizer_kind = kind;
    return STRATA_OK;
}

static strata_status read_loss(const strata_model *model, const strata_json *parent, strata_output_spec *output,
                               strata_error *err) {
    static const char *const also[] = {"name"};
    strata_json json;
    const char *name = NULL;
    strata_error reason = {0};
    if (!strata_json_find(parent, "loss", &json)) return STRATA_OK;
    bool object;
    STRATA_TRY(read_name(&json, &object, &name, err));
    strata_status status = strata_registry_find_loss(model->registry, name, &output->loss, &reason);
    if (!status && object) STRATA_TRY(strata_options_read(&json, output->loss->options, also, 1, &output->loss_options, err));
    if (!status && output->loss->check) status = output->loss->check(&output->loss_options, &reason);
    return status ? strata_json_fail(&json, err, STRATA_DATA, "%s", reason.message) : STRATA_OK;
}

/* Reads "metrics": ["auc", "precision"]. They are stored as a list with commas until compile finds the metrics. */
static strata_status read_metrics(const strata_model *model, const strata_json *parent, strata_output_spec *output,
                                  strata_error *err) {
    strata_json list, item;
    char names[STRATA_MAX_METRICS * 40] = "";
    if (!strata_json_find(parent, "metrics", &list)) return STRATA_OK;
    STRATA_TRY(strata_json_expect(&list, STRATA_JSON_ARRAY, err));
    for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item)) {
        const char *name = NULL;
        const strata_metric_kind *kind = NULL;
        strata_metric_case c;
        strata_error reason = {0};
        STRATA_TRY(strata_json_to_string(&item, &name, err));
        if (strcmp(name, "loss") && strcmp(name, "accuracy") &&
            strata_registry_find_metric(model->registry, name, &kind, &c, &reason))
            return strata_json_fail(&item, err, STRATA_DATA, "%s", reason.message);
        if (strlen(names) + strlen(name) + 2 > sizeof names)
            return strata_json_fail(&list, err, STRATA_DATA, "has too many metrics; at most %d", STRATA_MAX_METRICS);
        if (*names) strcat(names, ",");
        strcat(names, name);
    }
    return strata_model_set_metrics(output, names, err);
}

/* Reads "outputs". The name of an output is that of its value, or the output has another name and "value" is that of its
 * value. */
static strata_status read_outputs(strata_model *model, const strata_json *root, strata_error *err) {
    static const char *const known[] = {"name", "value", "loss", "weight", "metrics"};
    strata_json outputs, item;
    STRATA_TRY(strata_json_get_array(root, "outputs", &outputs, err));
    for (bool more = strata_json_first(&outputs, &item); more; more = strata_json_next(&item)) {
        strata_output_options opts = {0};
        const char *value = NULL;
        STRATA_TRY(strata_json_expect(&item, STRATA_JSON_OBJECT, err));
        STRATA_TRY(strata_json_check_keys(&item, known, sizeof known / sizeof *known, err));
        STRATA_TRY(strata_json_get_string(&item, "name", STRATA_JSON_REQUIRED, &opts.name, err));
        STRATA_TRY(strata_json_get_string(&item, "value", STRATA_JSON_OPTIONAL, &value, err));
        STRATA_TRY(strata_option_read_number(&item, "weight", false, 0, 1e30, &opts.weight, err));
        const int index = strata_model_find_value(model, value ? value : opts.name);
        if (index < 0)
            return strata_json_fail(&item, err, STRATA_DATA, "there is no layer \"%.60s\"%s", value ? value : opts.name,
                                    value ? "" : "; \"value\" names one, where the output has another name");
        if (!value) opts.name = NULL;
        strata_model_output(model, model->values[index], opts);
        STRATA_TRY(stored_error(model, &item, err));
        strata_output_spec *output = &model->outputs[model->n_outputs - 1];
        STRATA_TRY(read_loss(model, &item, output, err));
        STRATA_TRY(read_metrics(model, &item, output, err));
    }
    return STRATA_OK;
}

static strata_status create_sequential(const strata_json *root, strata_model **out_model, strata_error *err) {
    const char *dtype_name = "f32";
    strata_dtype dtype = STRATA_DTYPE_F32;
    strata_shape input;
    strata_error reason = {0};
    STRATA_TRY(strata_json_get_string(root, "input_dtype", STRATA_JSON_OPTIONAL, &dtype_name, err));
    STRATA_TRY(read_shape(root, "input", &input, err));
    strata_status status = strata_model_create(input, out_model, &reason);
    if (status) return strata_json_fail(root, err, status == STRATA_INVALID ? STRATA_DATA : status, "%s", reason.message);
    status = strata_dtype_parse(dtype_name, &dtype, &reason);
    if (!status) status = strata_model_set_input_dtype(*out_model, dtype, &reason);
    return status ? strata_json_fail(root, err, STRATA_DATA, "input_dtype: %s", reason.message) : STRATA_OK;
}

/* Checks that the JSON has no keys that only the other form of models, sequential or functional, has. */
static strata_status check_form(const strata_json *root, bool functional, strata_error *err) {
    static const char *const sequential[] = {"input", "input_dtype"};
    strata_json found;
    if (!functional && strata_json_find(root, "outputs", &found))
        return strata_json_fail(&found, err, STRATA_DATA, "is of models with \"inputs\"; this one has an \"input\"");
    for (int i = 0; i < 2 && functional; i++)
        if (strata_json_find(root, sequential[i], &found))
            return strata_json_fail(&found, err, STRATA_DATA, "is of models without \"inputs\"; this one has a list of them");
    return STRATA_OK;
}

/* Reads the loss and the metrics of the only output. */
static strata_status read_only_output(strata_model *model, const strata_json *root, strata_error *err) {
    static const char *const keys[] = {"loss", "metrics"};
    strata_json found;
    for (int i = 0; i < 2 && model->n_outputs != 1; i++)
        if (strata_json_find(root, keys[i], &found))
            return strata_json_fail(&found, err, STRATA_DATA, "is of models with one output; each of several has its own");
    if (model->n_outputs != 1) return STRATA_OK;
    STRATA_TRY(read_loss(model, root, &model->outputs[0], err));
    return read_metrics(model, root, &model->outputs[0], err);
}

static strata_status read_model(const strata_json *root, strata_registry *registry, strata_model **out_model,
                                strata_error *err) {
    static const char *const known[] = {"label",   "input", "input_dtype", "inputs", "layers",
                                        "outputs", "loss",  "optimizer",   "metrics"};
    const char *label = "";
    strata_json inputs;
    STRATA_TRY(strata_json_expect(root, STRATA_JSON_OBJECT, err));
    STRATA_TRY(strata_json_check_keys(root, known, sizeof known / sizeof *known, err));
    STRATA_TRY(strata_json_get_string(root, "label", STRATA_JSON_OPTIONAL, &label, err));
    const bool functional = strata_json_find(root, "inputs", &inputs);
    STRATA_TRY(check_form(root, functional, err));
    STRATA_TRY(functional ? strata_model_create_functional(out_model, err) : create_sequential(root, out_model, err));
    STRATA_TRY(strata_model_set_registry(*out_model, registry, err));
    STRATA_TRY(strata_model_set_label(*out_model, label, err));
    STRATA_TRY(read_optimizer(*out_model, root, err));
    if (!functional) {
        STRATA_TRY(read_only_output(*out_model, root, err));
        return read_layers(*out_model, root, "layers", true, err);
    }
    STRATA_TRY(read_inputs(*out_model, &inputs, err));
    STRATA_TRY(read_calls(*out_model, root, err));
    STRATA_TRY(read_outputs(*out_model, root, err));
    return read_only_output(*out_model, root, err);
}

strata_status strata_model_from_json(const char *text, size_t bytes, const char *source, strata_model **out_model,
                                     strata_error *err) {
    return strata_model_from_json_with(NULL, text, bytes, source, out_model, err);
}

strata_status strata_model_from_json_with(strata_registry *registry, const char *text, size_t bytes, const char *source,
                                          strata_model **out_model, strata_error *err) {
    STRATA_FINISHED(strata_json) root = {0};
    STRATA_OWNED(strata_model) *model = NULL;
    strata_error reason = {0};
    STRATA_TRY(strata_json_parse(source, text, bytes, MAX_JSON_BYTES, &root, err));
    STRATA_TRY(read_model(&root, registry, &model, err));
    const strata_status status = strata_model_declare(model, &reason);
    if (status) return strata_fail(err, status == STRATA_INVALID ? STRATA_DATA : status, "%s: %s", source, reason.message);
    *out_model = strata_released(&model);
    return STRATA_OK;
}

strata_status strata_model_read_json(const char *path, strata_model **out_model, strata_error *err) {
    return strata_model_read_json_with(NULL, path, out_model, err);
}

strata_status strata_model_read_json_with(strata_registry *registry, const char *path, strata_model **out_model,
                                          strata_error *err) {
    STRATA_FREED unsigned char *text = NULL;
    size_t bytes = 0;
    STRATA_TRY(strata_file_read(path, MAX_JSON_BYTES, &text, &bytes, err));
    return strata_model_from_json_with(registry, (const char *)text, bytes, path, out_model, err);
}

/* ---- writing ---- */

static void write_inputs(strata_json_writer *w, const strata_model *model, const strata_value *value) {
    strata_json_begin_array_at(w, "inputs");
    for (int i = 0; i < value->n_inputs; i++) strata_json_write_string(w, model->values[value->inputs[i]]->name);
    strata_json_end_array(w);
}

/* call: for a functional model the call of the layer, whose inputs are written; else NULL. */
static void write_layer(strata_json_writer *w, const strata_layer *layer, const strata_value *call) {
    const char *slash = strrchr(layer->name, '/');
    strata_json_begin_object(w);
    strata_json_put_string(w, "layer", layer->kind->name);
    strata_json_put_string(w, "name", slash ? slash + 1 : layer->name);
    if (layer->begins_stage) strata_json_put_int(w, "stage", layer->begins_stage - 1);
    if (call) write_inputs(w, call->model, call);
    strata_options_write(w, layer->kind->options, layer->options);
    for (int b = 0; b < STRATA_MAX_BRANCHES; b++) {
        if (!layer->branches[b].n) continue;
        strata_json_begin_array_at(w, layer->kind->branches[b]);
        for (int i = 0; i < layer->branches[b].n; i++) write_layer(w, &layer->branches[b].layers[i], NULL);
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
        strata_json_write_number(w, strata_number_shown(settings->learning_rate));
        return;
    }
    strata_json_begin_object(w);
    strata_json_put_string(w, "schedule", name);
    strata_json_key(w, "initial");
    strata_json_write_number(w, strata_number_shown(settings->learning_rate));
    strata_options_write(w, options, schedule);
    strata_json_end_object(w);
}

void strata_optimizer_write(strata_json_writer *w, const strata_optimizer *settings, const strata_optimizer_kind *kind) {
    strata_json_begin_object(w);
    strata_json_put_string(w, "name", settings->name);
    write_learning_rate(w, settings);
    strata_options_write(w, kind->options, settings);
    strata_json_end_object(w);
}

static void write_loss(strata_json_writer *w, const strata_output_spec *output) {
    if (!output->loss) return;
    strata_json_key(w, "loss");
    if (!strata_options_given(output->loss->options, &output->loss_options)) {
        strata_json_write_string(w, output->loss->name);
        return;
    }
    strata_json_begin_object(w);
    strata_json_put_string(w, "name", output->loss->name);
    strata_options_write(w, output->loss->options, &output->loss_options);
    strata_json_end_object(w);
}

static void write_metrics(strata_json_writer *w, const char *names) {
    if (!names || !*names) return;
    strata_json_begin_array_at(w, "metrics");
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

/* Writes what an output is trained and evaluated by: its loss, the weight of the loss, its metrics. */
static void write_measures(strata_json_writer *w, const strata_output_spec *output) {
    write_loss(w, output);
    if (output->weight != 1) {
        strata_json_key(w, "weight");
        strata_json_write_number(w, strata_number_shown(output->weight));
    }
    write_metrics(w, output->metrics);
}

static void write_sequential(strata_json_writer *w, const strata_model *model) {
    strata_json_put_shape(w, "input", model->inputs[0].shape);
    if (model->inputs[0].dtype != STRATA_DTYPE_F32)
        strata_json_put_string(w, "input_dtype", strata_dtype_name(model->inputs[0].dtype));
    strata_json_begin_array_at(w, "layers");
    for (int i = 0; i < model->list.n; i++) write_layer(w, &model->list.layers[i], NULL);
    strata_json_end_array(w);
    write_measures(w, &model->outputs[0]);
}

static void write_functional(strata_json_writer *w, const strata_model *model) {
    strata_json_begin_array_at(w, "inputs");
    for (int i = 0; i < model->n_inputs; i++) {
        strata_json_begin_object(w);
        strata_json_put_string(w, "name", model->values[model->inputs[i].value]->name);
        strata_json_put_shape(w, "shape", model->inputs[i].shape);
        if (model->inputs[i].dtype != STRATA_DTYPE_F32)
            strata_json_put_string(w, "dtype", strata_dtype_name(model->inputs[i].dtype));
        strata_json_end_object(w);
    }
    strata_json_end_array(w);
    strata_json_begin_array_at(w, "layers");
    for (int i = 0; i < model->n_values; i++) {
        const strata_value *value = model->values[i];
        if (value->layer >= 0 && value->number == 1) write_layer(w, &model->list.layers[value->layer], value);
        if (value->layer < 0 || value->number == 1) continue;
        strata_json_begin_object(w);
        strata_json_put_string(w, "call", model->list.layers[value->layer].name);
        strata_json_put_string(w, "name", value->name);
        write_inputs(w, model, value);
        strata_json_end_object(w);
    }
    strata_json_end_array(w);
    strata_json_begin_array_at(w, "outputs");
    for (int i = 0; i < model->n_outputs; i++) {
        const strata_output_spec *output = &model->outputs[i];
        strata_json_begin_object(w);
        strata_json_put_string(w, "name", strata_output_name(model, i));
        if (output->name) strata_json_put_string(w, "value", model->values[output->value]->name);
        write_measures(w, output);
        strata_json_end_object(w);
    }
    strata_json_end_array(w);
}

strata_status strata_model_to_json(const strata_model *model, char **out_text, strata_error *err) {
    if (model->building.error.status)
        return strata_fail(err, model->building.error.status, "%s", model->building.error.message);
    strata_json_writer w = {0};
    strata_json_begin_object(&w);
    strata_json_put_string(&w, "label", model->label);
    if (model->functional)
        write_functional(&w, model);
    else
        write_sequential(&w, model);
    if (model->optimizer.name) {
        strata_json_key(&w, "optimizer");
        strata_optimizer_write(&w, &model->optimizer, model->optimizer_kind);
    }
    strata_json_end_object(&w);
    STRATA_FREED char *text = NULL;
    size_t bytes = 0;
    STRATA_TRY(strata_json_take(&w, &text, &bytes, err));
    if (bytes > MAX_JSON_BYTES) /* it could not be read again */
        return strata_fail(err, STRATA_UNSUPPORTED, "model: its JSON would have %zu bytes; at most %d are possible", bytes,
                           MAX_JSON_BYTES);
    *out_text = strata_released(&text);
    return STRATA_OK;
}

/* ---- the losses alone ---- */

strata_status strata_model_losses_text(const strata_model *model, char **out_text, strata_error *err) {
    const strata_output_spec *first = &model->outputs[0];
    bool any = false;
    for (int i = 0; i < model->n_outputs; i++) any |= model->outputs[i].loss || model->outputs[i].metrics;
    *out_text = NULL;
    if (!any) return STRATA_OK;
    if (model->n_outputs == 1 && !first->metrics && first->weight == 1 &&
        !strata_options_given(first->loss->options, &first->loss_options)) {
        *out_text = strdup(first->loss->name);
        return *out_text ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for its losses");
    }
    strata_json_writer w = {0};
    strata_json_begin_array(&w);
    for (int i = 0; i < model->n_outputs; i++) {
        strata_json_begin_object(&w);
        write_measures(&w, &model->outputs[i]);
        strata_json_end_object(&w);
    }
    strata_json_end_array(&w);
    return strata_json_take(&w, out_text, NULL, err);
}

strata_status strata_model_recall_losses(strata_model *model, const char *text, strata_error *err) {
    STRATA_FINISHED(strata_json) root = {0};
    strata_json item;
    int i = 0;
    if (*text != '[') {
        strata_output_spec *only = &model->outputs[0];
        if (model->n_outputs != 1 || strata_registry_find_loss(model->registry, text, &only->loss, NULL)) return STRATA_OK;
        return only->loss->check ? only->loss->check(&only->loss_options, err) : STRATA_OK;
    }
    STRATA_TRY(strata_json_parse("the losses", text, strlen(text), MAX_JSON_BYTES, &root, err));
    for (bool more = strata_json_first(&root, &item); more && i < model->n_outputs; more = strata_json_next(&item), i++) {
        strata_output_spec none = {0};
        strata_output_spec *output = &model->outputs[i];
        if (strata_json_kind_of(&item) != STRATA_JSON_OBJECT || read_loss(model, &item, &none, NULL)) continue;
        output->loss = none.loss;
        output->loss_options = none.loss_options;
        double weight = 0;
        if (!strata_option_read_number(&item, "weight", false, 0, 1e30, &weight, NULL))
            output->weight = strata_number_or(weight, 1);
        if (read_metrics(model, &item, output, NULL)) continue; /* of a program with metrics of its own */
    }
    return STRATA_OK;
}
