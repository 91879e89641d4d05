/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of a model: its inputs and the results of calls of layers. The user of a functional model adds them one by one.
 * The values of a sequential model are created from its list of layers, each of which is called with the result of the one
 * before. */
#include <stdio.h>

#include "core/model/build.h"
#include "core/model/metrics.h"

/* ---- finding ---- */

int strata_model_find_value(const strata_model *model, const char *name) {
    for (int i = 0; i < model->n_values; i++)
        if (!strcmp(model->values[i]->name, name)) return i;
    return -1;
}

int strata_model_find_layer(const strata_model *model, const char *name) {
    for (int i = 0; i < model->list.n; i++)
        if (!strcmp(model->list.layers[i].name, name)) return i;
    return -1;
}

int strata_model_n_calls(const strata_model *model) {
    return model->n_values - model->n_inputs;
}

const char *strata_output_name(const strata_model *model, int output) {
    const strata_output_spec *spec = &model->outputs[output];
    if (spec->name) return spec->name;
    if (spec->value < model->n_values) return model->values[spec->value]->name;
    return model->list.n ? model->list.layers[model->list.n - 1].name : "";
}

/* ---- making ---- */

static void free_value(strata_value *value) {
    free(value->name);
    free(value->inputs);
    free(value);
}

void strata_model_free_values(strata_model *model) {
    for (int i = 0; i < model->n_values; i++) free_value(model->values[i]);
    free(model->values);
    model->values = NULL;
    model->n_values = 0;
}

/* Adds a value without a layer to the end of the list; NULL: there is no host memory. */
static strata_value *append(strata_model *model, const char *name, int n_inputs) {
    if (!strata_grow(&model->values, model->n_values, sizeof(*model->values))) return NULL;
    strata_value *value = calloc(1, sizeof *value);
    if (!value) return NULL;
    value->model = model;
    value->layer = -1;
    value->name = strdup(name);
    value->inputs = calloc((size_t)n_inputs + 1, sizeof *value->inputs);
    if (!value->name || !value->inputs) {
        free_value(value);
        return NULL;
    }
    value->n_inputs = n_inputs;
    return model->values[model->n_values++] = value;
}

static strata_status no_memory(strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for its values");
}

static strata_status check_form(const char *what, const char *name, strata_error *err) {
    if (name && *name && strlen(name) < STRATA_MAX_PART_NAME && !strchr(name, '/')) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s \"%.40s\": its name must have 1 to %d characters and no '/'", what,
                       name ? name : "", STRATA_MAX_PART_NAME - 1);
}

static strata_status check_name(const strata_model *model, const char *what, const char *name, strata_error *err) {
    STRATA_TRY(check_form(what, name, err));
    if (strata_model_find_value(model, name) < 0) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s \"%s\": an input or a call has that name already", what, name);
}

static strata_status check_open(const strata_model *model, const char *call, strata_error *err) {
    if (!model->functional)
        return strata_fail(err, STRATA_INVALID, "%s: the model is sequential; strata_model_create_functional makes one for it",
                           call);
    if (model->strategy) return strata_fail(err, STRATA_INVALID, "%s: the model is compiled; this comes before that", call);
    return STRATA_OK;
}

static strata_status add_input(strata_model *model, const char *name, strata_shape shape, strata_dtype dtype,
                               strata_error *err) {
    STRATA_TRY(check_open(model, "strata_model_input", err));
    STRATA_TRY(check_name(model, "input", name, err));
    if (model->n_inputs == STRATA_MAX_INPUTS)
        return strata_fail(err, STRATA_INVALID, "input \"%s\": there are %d inputs already, which is the most", name,
                           STRATA_MAX_INPUTS);
    STRATA_TRY(strata_shape_check(shape, err));
    if (shape.rank >= STRATA_MAX_RANK || strata_shape_elements(shape) < 1)
        return strata_fail(err, STRATA_INVALID, "input \"%s\" has shape %s; it needs at least one element and at most %d axes",
                           name, strata_shape_text(shape).text, STRATA_MAX_RANK - 1);
    if (dtype != STRATA_DTYPE_F32 && dtype != STRATA_DTYPE_I32)
        return strata_fail(err, STRATA_INVALID, "input \"%s\" is %s; inputs are f32 or i32", name, strata_dtype_name(dtype));
    strata_value *value = append(model, name, 0);
    if (!value) return no_memory(err);
    value->number = model->n_inputs;
    model->inputs[model->n_inputs++] = (strata_input_spec){.shape = shape, .dtype = dtype, .value = model->n_values - 1};
    return STRATA_OK;
}

const strata_value *strata_model_input(strata_model *model, const char *name, strata_shape shape, strata_dtype dtype) {
    if (model->building.error.status) return NULL;
    strata_model_free_parameters(model);
    return add_input(model, name, shape, dtype, &model->building.error) ? NULL : model->values[model->n_values - 1];
}

/* The value's name: the given name, or the layer's name, with a number from the second call on. */
static strata_status name_call(const strata_model *model, const strata_layer *layer, int number, const char *given, char *out,
                               size_t bytes, strata_error *err) {
    snprintf(out, bytes, "%s", given ? given : layer->name);
    for (int k = number - 1; !given && number > 1; k++) {
        snprintf(out, bytes, "%s_%d", layer->name, k);
        if (strata_model_find_value(model, out) < 0) break;
    }
    return strata_model_find_value(model, out) < 0
               ? STRATA_OK
               : strata_fail(err, STRATA_INVALID, "call \"%s\": an input or a call has that name already", out);
}

static strata_status add_call(strata_model *model, int index, const char *given, const int *inputs, int n, strata_error *err) {
    char name[192];
    int number = 1;
    const strata_layer *layer = &model->list.layers[index];
    for (int i = 0; i < model->n_values; i++) number += model->values[i]->layer == index;
    if (n < 1 || n > STRATA_MAX_LAYER_INPUTS)
        return strata_fail(err, STRATA_INVALID, "%s is called with %d inputs; there can be 1 to %d", layer->name, n,
                           STRATA_MAX_LAYER_INPUTS);
    STRATA_TRY(name_call(model, layer, number, given, name, sizeof name, err));
    strata_value *value = append(model, name, n);
    if (!value) return no_memory(err);
    value->layer = index;
    value->number = number;
    memcpy(value->inputs, inputs, (size_t)n * sizeof *inputs);
    for (int i = 0; i < n; i++) model->values[inputs[i]]->used = true;
    return STRATA_OK;
}

const strata_value *strata_model_add_call(strata_model *model, int layer, const char *name, const int *inputs, int n) {
    if (model->building.error.status) return NULL;
    strata_model_free_parameters(model);
    return add_call(model, layer, name, inputs, n, &model->building.error) ? NULL : model->values[model->n_values - 1];
}

static int index_of(const strata_model *model, const strata_value *value) {
    for (int i = 0; i < model->n_values; i++)
        if (model->values[i] == value) return i;
    return -1;
}

static strata_status find_call(const strata_model *model, const char *layer, const strata_value *const *values, int n,
                               int *out_layer, int *out_inputs, strata_error *err) {
    const strata_layer *open = strata_model_open_layer(model);
    STRATA_TRY(check_open(model, "strata_layer_call", err));
    if (open)
        return strata_fail(err, STRATA_INVALID, "%s: it is begun and does not end, so no layer can be called", open->name);
    if (!model->list.n) return strata_fail(err, STRATA_INVALID, "strata_layer_call: the model has no layers");
    *out_layer = layer ? strata_model_find_layer(model, layer) : model->list.n - 1;
    if (*out_layer < 0) return strata_fail(err, STRATA_INVALID, "strata_layer_call: there is no layer \"%.60s\"", layer);
    const char *name = model->list.layers[*out_layer].name;
    if (n < 1 || n > STRATA_MAX_LAYER_INPUTS)
        return strata_fail(err, STRATA_INVALID, "%s is called with %d inputs; there can be 1 to %d", name, n,
                           STRATA_MAX_LAYER_INPUTS);
    for (int i = 0; i < n; i++) {
        out_inputs[i] = values[i] ? index_of(model, values[i]) : -1;
        if (out_inputs[i] < 0)
            return strata_fail(err, STRATA_INVALID, "%s: input %d is %s", name, i,
                               values[i] ? "a value of another model" : "NULL");
    }
    return STRATA_OK;
}

const strata_value *strata_layer_call(strata_model *model, const char *layer, const strata_value *const *inputs, int n_inputs) {
    int index = 0, places[STRATA_MAX_LAYER_INPUTS];
    if (model->building.error.status) return NULL;
    if (find_call(model, layer, inputs, n_inputs, &index, places, &model->building.error)) return NULL;
    return strata_model_add_call(model, index, NULL, places, n_inputs);
}

static strata_status add_output(strata_model *model, const strata_value *value, const strata_output_options *opts,
                                strata_error *err) {
    const int index = value ? index_of(model, value) : -1;
    STRATA_TRY(check_open(model, "strata_model_output", err));
    if (index < 0)
        return strata_fail(err, STRATA_INVALID, "output \"%s\" is %s", opts->name ? opts->name : "",
                           value ? "a value of another model" : "NULL");
    const char *name = opts->name ? opts->name : value->name;
    STRATA_TRY(check_form("output", name, err));
    for (int i = 0; i < model->n_outputs; i++)
        if (!strcmp(strata_output_name(model, i), name))
            return strata_fail(err, STRATA_INVALID, "there are two outputs called \"%s\"", name);
    if (model->n_outputs == STRATA_MAX_OUTPUTS)
        return strata_fail(err, STRATA_INVALID, "output \"%s\": there are %d outputs already, which is the most", name,
                           STRATA_MAX_OUTPUTS);
    strata_output_spec *output = &model->outputs[model->n_outputs];
    *output =
        (strata_output_spec){.value = index, .loss_options = opts->loss_options, .weight = strata_number_or(opts->weight, 1)};
    if (!(output->weight >= 0 && output->weight <= 1e30))
        return strata_fail(err, STRATA_INVALID, "output \"%s\": weight is %g; it must be at least 0", name, opts->weight);
    strata_error reason = {0};
    strata_status status = STRATA_OK;
    if (opts->loss) status = strata_registry_find_loss(model->registry, opts->loss, &output->loss, &reason);
    if (!status && opts->loss && output->loss->check) status = output->loss->check(&output->loss_options, &reason);
    if (status) return strata_fail(err, status, "output \"%s\": %s", name, reason.message);
    if (opts->name && !(output->name = strdup(opts->name))) return no_memory(err);
    status = strata_model_set_metrics(output, opts->metrics, err);
    if (status) {
        free(output->name);
        return status;
    }
    model->values[index]->used = true;
    model->n_outputs++;
    return STRATA_OK;
}

void strata_model_output(strata_model *model, const strata_value *value, strata_output_options opts) {
    if (model->building.error.status) return;
    strata_model_free_parameters(model);
    (void)!add_output(model, value, &opts, &model->building.error);
}

/* ---- before the layers are declared ---- */

static strata_status make_chain(strata_model *model, strata_error *err) {
    strata_model_free_values(model);
    strata_value *x = append(model, "x", 0);
    if (!x) return no_memory(err);
    x->used = true;
    for (int i = 0; i < model->list.n; i++) STRATA_TRY(add_call(model, i, NULL, (int[]){model->n_values - 1}, 1, err));
    model->inputs[0].value = 0;
    model->outputs[0].value = model->n_values - 1;
    return STRATA_OK;
}

strata_status strata_model_connect(strata_model *model, strata_error *err) {
    if (!model->functional) return make_chain(model, err);
    if (!model->n_inputs) return strata_fail(err, STRATA_INVALID, "model: it has no inputs (strata_model_input)");
    if (!model->n_outputs) return strata_fail(err, STRATA_INVALID, "model: it has no outputs (strata_model_output)");
    for (int i = 0; i < model->n_values; i++) {
        const strata_value *value = model->values[i];
        if (value->used) continue;
        if (value->layer < 0)
            return strata_fail(err, STRATA_INVALID, "input \"%s\": no layer takes it; remove it, or call a layer with it",
                               value->name);
        return strata_fail(err, STRATA_INVALID, "%s: no layer takes what it gives, and it is no output", value->name);
    }
    for (int i = 0; i < model->list.n; i++) {
        bool called = false;
        for (int k = 0; k < model->n_values && !called; k++) called = model->values[k]->layer == i;
        if (!called) return strata_fail(err, STRATA_INVALID, "%s: the layer is never called", model->list.layers[i].name);
    }
    return STRATA_OK;
}

/* ---- inputs and outputs ---- */

int strata_model_n_inputs(const strata_model *model) {
    return model->n_inputs;
}

const char *strata_output_activation(const strata_output_spec *output) {
    return output->probabilities ? NULL : strata_loss_activation(output->loss, &output->loss_options);
}

strata_model_port strata_model_input_port(const strata_model *model, int index) {
    const strata_input_spec *input = &model->inputs[index];
    return (strata_model_port){.name = model->functional ? model->values[input->value]->name : "x",
                               .shape = input->shape,
                               .dtype = input->dtype,
                               .n_tokens = input->n_tokens};
}

int strata_model_n_outputs(const strata_model *model) {
    return model->n_outputs;
}

strata_model_port strata_model_output_port(const strata_model *model, int index) {
    const strata_output_spec *output = &model->outputs[index];
    return (strata_model_port){.name = strata_output_name(model, index),
                               .shape = output->shape,
                               .dtype = STRATA_DTYPE_F32,
                               .ending = output->ending,
                               .has_loss = output->loss != NULL,
                               .answers = output->loss ? output->loss->answers : STRATA_ANSWERS_NONE};
}
