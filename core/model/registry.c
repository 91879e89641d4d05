/* SPDX-License-Identifier: Apache-2.0
 *
 * The user's own layers, losses, metrics and activations, by name. Each is stored like a built-in kind, so other code does not
 * distinguish them. */
#include "core/base/text.h"
#include "core/model/build.h"

enum { MOST_NAME = 31 };

/* ---- creating and destroying ---- */

strata_status strata_registry_create(strata_registry **out_registry, strata_error *err) {
    STRATA_TRY(STRATA_NEW(*out_registry, 1, err, "registry: no host memory"));
    atomic_init(&(*out_registry)->references, 1);
    return STRATA_OK;
}

#define FREE_LIST(type, list)                       \
    for (type *at = (list), *next; at; at = next) { \
        next = at->next;                            \
        free(at);                                   \
    }

void strata_registry_destroy(strata_registry *registry) {
    if (!registry || atomic_fetch_sub(&registry->references, 1) > 1) return;
    FREE_LIST(struct strata_own_layer, registry->layers)
    FREE_LIST(struct strata_own_loss, registry->losses)
    FREE_LIST(struct strata_own_metric, registry->metrics)
    FREE_LIST(strata_own_activation, registry->activations)
    free(registry);
}

strata_status strata_model_set_registry(strata_model *model, strata_registry *registry, strata_error *err) {
    if (model->list.n || model->n_values)
        return strata_fail(err, STRATA_INVALID, "strata_model_set_registry: the model has layers; this comes before them");
    if (registry) atomic_fetch_add(&registry->references, 1);
    strata_registry_destroy(model->registry);
    model->registry = registry;
    return STRATA_OK;
}

/* ---- finding ---- */

static strata_status no_such(const char *what, const char *name, const strata_text *names, strata_error *err) {
    return strata_fail(err, STRATA_INVALID,
                       "there is no %s \"%.60s\"; there are: %s. One of your own is registered by strata_%s_register, and its "
                       "registry is given to the model before it is read or built",
                       what, name, names->bytes ? names->bytes : "none", what);
}

static const strata_layer_kind *look_up_layer(const strata_registry *registry, const char *name) {
    for (int i = 0; i < strata_n_layer_kinds; i++)
        if (!strcmp(strata_layer_kinds[i]->name, name)) return strata_layer_kinds[i];
    for (const struct strata_own_layer *own = registry ? registry->layers : NULL; own; own = own->next)
        if (!strcmp(own->kind.name, name)) return &own->kind;
    return NULL;
}

strata_status strata_registry_find_layer(const strata_registry *registry, const char *name, const strata_layer_kind **out_kind,
                                         strata_error *err) {
    STRATA_FINISHED(strata_text) names = {0};
    *out_kind = look_up_layer(registry, name);
    if (*out_kind) return STRATA_OK;
    for (int i = 0; i < strata_n_layer_kinds; i++) strata_text_add(&names, "%s%s", i ? ", " : "", strata_layer_kinds[i]->name);
    for (const struct strata_own_layer *own = registry ? registry->layers : NULL; own; own = own->next)
        strata_text_add(&names, ", %s", own->kind.name);
    return no_such("layer", name, &names, err);
}

strata_status strata_registry_find_loss(const strata_registry *registry, const char *name, const strata_loss **out_loss,
                                        strata_error *err) {
    strata_error reason = {0};
    const strata_status status = strata_loss_find(name, out_loss, &reason);
    if (!status) return STRATA_OK;
    for (struct strata_own_loss *own = registry ? registry->losses : NULL; own; own = own->next) {
        if (strcmp(own->loss.name, name) != 0) continue;
        *out_loss = &own->loss;
        return STRATA_OK;
    }
    return strata_fail(err, status, "%s; one of your own is registered by strata_loss_register first", reason.message);
}

strata_status strata_registry_find_metric(const strata_registry *registry, const char *name,
                                          const strata_metric_kind **out_kind, strata_metric_case *c, strata_error *err) {
    strata_error reason = {0};
    const strata_status status = strata_metric_find(name, out_kind, &c->k, &reason);
    if (!status) return STRATA_OK;
    for (struct strata_own_metric *own = registry ? registry->metrics : NULL; own; own = own->next) {
        if (strcmp(own->kind.name, name) != 0) continue;
        *out_kind = &own->kind;
        c->k = 0;
        c->own = &own->definition;
        return STRATA_OK;
    }
    return strata_fail(err, status, "%s; one of your own is registered by strata_metric_register first", reason.message);
}

bool strata_registry_has_activation(const strata_registry *registry, const char *name) {
    for (const strata_own_activation *own = registry ? registry->activations : NULL; own; own = own->next)
        if (!strcmp(own->name, name)) return true;
    return false;
}

/* ---- registering ---- */

static strata_status check_name(const char *what, const char *name, strata_error *err) {
    bool right = name && *name && strlen(name) <= MOST_NAME && !strpbrk(name, "/, \"");
    if (right) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       "%s \"%.40s\": its name must have 1 to %d characters, none of them '/', ',', '\"' or ' '", what,
                       name ? name : "", MOST_NAME);
}

static strata_status check_new(const char *what, const char *name, bool taken, bool builds, strata_error *err) {
    if (taken) return strata_fail(err, STRATA_INVALID, "%s \"%s\": there is one of that name already", what, name);
    if (!builds) return strata_fail(err, STRATA_INVALID, "%s \"%s\" has no build function", what, name);
    return STRATA_OK;
}

/* Copies a table into `out`, which has room for `most` options and the end. */
static strata_status copy_options(const char *what, const char *name, const strata_option *from, size_t struct_bytes,
                                  strata_option *out, int most, strata_error *err) {
    static const char *const reserved[] = {"layer", "name", "inputs", "call", "weight", "loss", "metrics"};
    int n = 0;
    for (; from && from->name; from++, n++) {
        const size_t bytes = strata_option_bytes(from->kind);
        bool wrong = !bytes || from->offset > struct_bytes || bytes > struct_bytes - from->offset;
        for (size_t i = 0; i < sizeof reserved / sizeof *reserved && !wrong; i++) wrong = !strcmp(from->name, reserved[i]);
        for (int i = 0; i < n && !wrong; i++) wrong = !strcmp(out[i].name, from->name);
        if (wrong || n == most)
            return strata_fail(
                err, STRATA_INVALID, "%s \"%s\", option \"%.40s\": %s", what, name, from->name,
                wrong ? "it is named twice, has a name of the format's own (layer, name, inputs, call, weight, loss, "
                        "metrics), an unknown kind, or lies outside of the options struct"
                      : "there are too many options");
        out[n] = *from;
    }
    out[n] = (strata_option){0};
    return STRATA_OK;
}

strata_status strata_layer_register(strata_registry *registry, const strata_layer_definition *layer, strata_error *err) {
    STRATA_TRY(check_name("layer", layer->name, err));
    STRATA_TRY(check_new("layer", layer->name, look_up_layer(registry, layer->name), layer->build, err));
    if (layer->n_inputs < -1 || layer->n_inputs > STRATA_MAX_LAYER_INPUTS)
        return strata_fail(err, STRATA_INVALID,
                           "layer \"%s\": n_inputs is %d; it must be 1 to %d, 0 for 1, or -1 for any number", layer->name,
                           layer->n_inputs, STRATA_MAX_LAYER_INPUTS);
    STRATA_FREED struct strata_own_layer *own = NULL;
    STRATA_TRY(STRATA_NEW(own, 1, err, "layer \"%s\": no host memory", layer->name));
    own->definition = *layer;
    own->kind = (strata_layer_kind){.name = layer->name,
                                    .options_bytes = layer->options_bytes ? layer->options_bytes : 1,
                                    .keeps_mask = layer->keeps_mask,
                                    .check = layer->check,
                                    .build_many = layer->build,
                                    .least_inputs = layer->n_inputs > 0 ? layer->n_inputs : 1,
                                    .most_inputs = layer->n_inputs < 0 ? STRATA_MAX_LAYER_INPUTS
                                                   : layer->n_inputs   ? layer->n_inputs
                                                                       : 1,
                                    .own = &own->definition};
    STRATA_TRY(copy_options("layer", layer->name, layer->options, layer->options_bytes, own->kind.options,
                            STRATA_MAX_LAYER_OPTIONS - 1, err));
    own->next = registry->layers;
    registry->layers = strata_released(&own);
    return STRATA_OK;
}

strata_status strata_activation_register(strata_registry *registry, const char *name, strata_tensor *(*apply)(strata_tensor *x),
                                         strata_error *err) {
    STRATA_TRY(check_name("activation", name, err));
    const bool taken = !strata_activation_check(name, NULL) || strata_registry_has_activation(registry, name);
    strata_own_activation *own;
    STRATA_TRY(check_new("activation", name, taken, apply, err));
    STRATA_TRY(STRATA_NEW(own, 1, err, "activation \"%s\": no host memory", name));
    *own = (strata_own_activation){.name = name, .apply = apply, .next = registry->activations};
    registry->activations = own;
    return STRATA_OK;
}

strata_status strata_loss_register(strata_registry *registry, const strata_loss_definition *loss, strata_error *err) {
    const strata_loss *other;
    STRATA_TRY(check_name("loss", loss->name, err));
    const bool taken = !strata_registry_find_loss(registry, loss->name, &other, NULL);
    STRATA_TRY(check_new("loss", loss->name, taken, loss->build, err));
    if ((unsigned)loss->answers > STRATA_ANSWERS_DISTRIBUTION)
        return strata_fail(err, STRATA_INVALID, "loss \"%s\": answers is %d, which is no strata_answers", loss->name,
                           (int)loss->answers);
    STRATA_FREED struct strata_own_loss *own = NULL;
    STRATA_TRY(STRATA_NEW(own, 1, err, "loss \"%s\": no host memory", loss->name));
    own->loss = (strata_loss){.name = loss->name,
                              .answers = loss->answers,
                              .check = loss->check,
                              .build = loss->build,
                              .predict = loss->predict,
                              .threshold = loss->threshold};
    STRATA_TRY(copy_options("loss", loss->name, loss->options, sizeof(strata_loss_options), own->loss.options,
                            STRATA_MAX_LOSS_OPTIONS - 1, err));
    own->next = registry->losses;
    registry->losses = strata_released(&own);
    return STRATA_OK;
}

strata_status strata_metric_register(strata_registry *registry, const strata_metric_definition *metric, strata_error *err) {
    enum { MOST_SUMS = 1 << 20 };
    const strata_metric_kind *other;
    strata_metric_case c = {0};
    STRATA_TRY(check_name("metric", metric->name, err));
    const bool taken = !strcmp(metric->name, "loss") || !strata_registry_find_metric(registry, metric->name, &other, &c, NULL);
    STRATA_TRY(check_new("metric", metric->name, taken, metric->build, err));
    if (metric->n_sums < 1 || metric->n_sums > MOST_SUMS)
        return strata_fail(err, STRATA_INVALID, "metric \"%s\": n_sums is %lld; it must be 1 to %d", metric->name,
                           (long long)metric->n_sums, MOST_SUMS);
    struct strata_own_metric *own;
    STRATA_TRY(STRATA_NEW(own, 1, err, "metric \"%s\": no host memory", metric->name));
    own->definition = *metric;
    strata_metric_adapt(&own->definition, &own->words, &own->kind);
    own->next = registry->metrics;
    registry->metrics = own;
    return STRATA_OK;
}
