/* SPDX-License-Identifier: Apache-2.0
 *
 * Building a model: its list of layers, the calls of layers and their values, and the graph of these calls (model.c, values.c,
 * layers.c). */
#ifndef STRATA_CORE_MODEL_BUILD_H
#define STRATA_CORE_MODEL_BUILD_H

#include "core/model/model.h"
#include "strata/describe.h"

/* layers.c: builds the graph of a training step up to the losses, without devices. Fails: INVALID if the loss of an output
 * takes logits and the output is none, with a message that says what to change. outputs: [n_outputs] */
STRATA_MUST_USE strata_status strata_model_check_endings(strata_model *model, const strata_output_spec *outputs,
                                                         strata_error *err);
/* layers.c: what one example costs in each call of a layer, [calls]; out_bytes, which is zeroed: the bytes of the values that
 * it computes. */
STRATA_MUST_USE strata_status strata_model_cost_calls(strata_model *model, strata_layer_cost *out_costs, double *out_bytes,
                                                      strata_error *err);
/* Builds all calls of layers: inputs [n_inputs] (B, ...) -> outputs [n_outputs] (B, ...). Declares parameters when
 * context->declaring. */
void strata_model_build_calls(strata_model *model, strata_layer_context *context, strata_tensor *const *inputs,
                              strata_tensor **outputs);
/* Adds to the graph the input for `batch` examples of an input of the model. Inputs of programs are called "x", "x1", ...,
 * labels "y", "y1", ... */
strata_tensor *strata_model_make_input(const strata_model *model, strata_graph *graph, int input, strata_dtype dtype,
                                       int64_t batch);
typedef struct strata_slot_text {
    char text[16];
} strata_slot_text;
strata_slot_text strata_slot_name(const char *base, int index);
void strata_model_free_parameters(strata_model *model);
/* values.c: creates the values of a sequential model, or checks those of a functional one. */
STRATA_MUST_USE strata_status strata_model_connect(strata_model *model, strata_error *err);
void strata_model_free_values(strata_model *model);
const char *strata_output_name(const strata_model *model, int output);
/* The activation that predict applies to the output, which follows from its loss: "softmax", "sigmoid"; NULL: none, or the
 * layers have applied it. */
const char *strata_output_activation(const strata_output_spec *output);
/* The index of the value with this name; -1: there is none. */
int strata_model_find_value(const strata_model *model, const char *name);
/* Adds a call of the layer with this index. The model stores the first error. name NULL: a name is made. */
const strata_value *strata_model_add_call(strata_model *model, int layer, const char *name, const int *inputs, int n);
/* The index of the layer with this name, not counting layers inside of others; -1: there is none. */
int strata_model_find_layer(const strata_model *model, const char *name);
/* freeze.c: the layer with this name, also one inside of another layer. Fails: INVALID, with similar names and `what` before
 * them. */
STRATA_MUST_USE strata_status strata_model_find_any_layer(strata_model *model, const char *what, const char *name,
                                                          strata_layer **out_layer, strata_error *err);
/* How many of the values are calls of layers. */
int strata_model_n_calls(const strata_model *model);
/* The layer whose branch is open; NULL: there is none. */
const strata_layer *strata_model_open_layer(const strata_model *model);
/* Until strata_model_close_branch, layers are added to this branch of the layer that was added last. The model stores the first
 * error. */
void strata_model_open_branch(strata_model *model, int branch);
void strata_model_close_branch(strata_model *model);
/* Checks a layer's options; registry: for the names of activations; NULL: none. */
STRATA_MUST_USE strata_status strata_layer_check_options(const strata_registry *registry, const strata_layer *layer,
                                                         strata_error *err);
/* Adds a layer with a copy of its options. The model stores the first error. name NULL: a name is made. */
void strata_model_add(strata_model *model, const strata_layer_kind *kind, const char *name, const void *options);

/* ---- registry.c: the layers, losses, metrics and activations that a program has registered ---- */

struct strata_registry {
    /* One for the caller, and one for each model that uses the registry. */
    atomic_int references;
    struct strata_own_layer {
        strata_layer_definition definition;
        strata_layer_kind kind;
        struct strata_own_layer *next;
    } * layers;
    struct strata_own_loss {
        strata_loss loss;
        struct strata_own_loss *next;
    } * losses;
    struct strata_own_metric {
        strata_metric_definition definition;
        strata_metric_words words;
        strata_metric_kind kind;
        struct strata_own_metric *next;
    } * metrics;
    strata_own_activation *activations;
};
/* Finds a built-in or registered kind by its name. registry may be NULL. Fails: INVALID, with all names. */
STRATA_MUST_USE strata_status strata_registry_find_layer(const strata_registry *registry, const char *name,
                                                         const strata_layer_kind **out_kind, strata_error *err);
STRATA_MUST_USE strata_status strata_registry_find_loss(const strata_registry *registry, const char *name,
                                                        const strata_loss **out_loss, strata_error *err);
STRATA_MUST_USE strata_status strata_registry_find_metric(const strata_registry *registry, const char *name,
                                                          const strata_metric_kind **out_kind, strata_metric_case *c,
                                                          strata_error *err);
bool strata_registry_has_activation(const strata_registry *registry, const char *name);

#endif
