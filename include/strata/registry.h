/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers, losses, metrics and activations that a program defines itself. They are registered by name in a registry. Models that
 * use the registry use them like built-in ones: in C, in JSON, and in files. A file contains the name and the options, but not
 * the functions, so a program that loads such a file registers the same names first. samples/own_layer.c is a complete example:
 *
 *     strata_registry_create(&registry, &err);
 *     strata_layer_register(registry, &(strata_layer_definition){.name = "scale", .build = build}, &err);
 *     strata_model_set_registry(model, registry, &err);                a model that is made by calls, or
 *     strata_model_load_with(registry, "m.strata", &model, &err);      one that is read
 *     strata_registry_destroy(registry);                               models keep it as long as they need it
 *
 * A build function builds its result from ops (strata/ops.h). Therefore it runs on every device, its gradient is derived, and
 * it works under every strategy. It is called once to find a layer's parameters and once for each program that is compiled
 * (training, evaluation, another batch size), so it must do the same each time. On an error it calls strata_graph_fail or
 * returns NULL; the message of the error then names the layer.
 *
 * Definitions are copied. The names, tables and functions that they point to must outlive the registry; usually they are
 * static. Registering fails with INVALID for a name that is already used, also by a built-in, and for a definition that is not
 * complete.
 *
 * Threads: one thread registers everything before a model uses the registry. After that, models in different threads may share
 * it. */
#ifndef STRATA_REGISTRY_H
#define STRATA_REGISTRY_H

#include "strata/losses.h"
#include "strata/ops.h"
#include "strata/option.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_registry strata_registry;
STRATA_API STRATA_MUST_USE strata_status strata_registry_create(strata_registry **out_registry, strata_error *err);
/* Releases the caller's reference. The registry is freed when no model uses it any more. NULL is fine. */
STRATA_API void strata_registry_destroy(strata_registry *registry);

/* ---- layers ---- */

/* The context of a layer's build function: with it the function declares parameters and states and finds out whether the
 * program is a training step. */
typedef struct strata_layer_context strata_layer_context;

typedef struct strata_layer_definition {
    /* The layer's name in JSON and strata_model_add_layer: 1 to 31 characters without '/'. */
    const char *name;
    /* How many inputs a call of the layer has. 0: 1. -1: any number from 1 on. */
    int n_inputs;
    /* The size of its options struct, a plain struct of which zeros are the defaults; 0: it has no options. */
    size_t options_bytes;
    /* The fields of that struct, at most 15. No field may be called "layer", "name" or "inputs". NULL: it has no options. */
    const strata_option *options;
    /* Each position of the output depends only on the same position of the input, so the mask of padded positions (mask_zero of
     * an embedding) also holds for the output. */
    bool keeps_mask;
    /* Fails for options that contradict each other; that each option is in its range has already been checked. The message need
     * not name the layer. NULL: there is nothing to check. */
    strata_status (*check)(const void *options, strata_error *err);
    /* inputs: [n_inputs] tensors (N, ...), of strata_layer_dtype unless they are integers. Returns the output (N, ...). */
    strata_tensor *(*build)(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n_inputs);
} strata_layer_definition;
STRATA_API STRATA_MUST_USE strata_status strata_layer_register(strata_registry *registry, const strata_layer_definition *layer,
                                                               strata_error *err);

/* ---- for build functions ---- */

/* The layer's parameter `name` ("kernel") as a tensor, f32. The first call with a name declares the parameter; later calls must
 * have the same shape. initializer: one of strata_initializer_names. fan_in, fan_out: how many inputs each output depends on,
 * and how many outputs each input affects, for the initializers of Glorot and He; 0: the last but one and the last dimension of
 * the shape. */
STRATA_API strata_tensor *strata_layer_parameter(strata_layer_context *context, strata_graph *graph, const char *name,
                                                 strata_shape shape, const char *initializer, int64_t fan_in, int64_t fan_out);
/* The layer's state `name` ("moving_mean"), f32, with its value before the step. A state is kept between steps and saved with
 * the model, but it is not trained. */
STRATA_API strata_tensor *strata_layer_state(strata_layer_context *context, strata_graph *graph, const char *name,
                                             strata_shape shape, const char *initializer);
/* After a training step the state becomes state + rate (value - state); with rate 1 it becomes the value. If the layer is
 * called several times, the mean of the calls' values is used. A step that is undone because its loss is not finite does not
 * change states. In programs other than a training step this call does nothing. */
STRATA_API void strata_layer_update_state(strata_layer_context *context, const char *name, strata_tensor *value, double rate);
/* Adds l1 sum |x| + l2 sum x^2 to the loss of a batch. If l1 and l2 are 0, it adds nothing. */
STRATA_API void strata_layer_penalize(strata_layer_context *context, strata_tensor *x, double l1, double l2);
/* Whether the program trains this layer. Dropout is applied only then. False for a frozen layer. */
STRATA_API bool strata_layer_is_training(const strata_layer_context *context);
/* The dtype in which layers compute: f32, f16 or bf16. A layer casts a parameter to it (strata_cast) before it multiplies or
 * adds the parameter. */
STRATA_API strata_dtype strata_layer_dtype(const strata_layer_context *context);
/* The step's random state, and a different stream for each call, for strata_dropout and strata_random_uniform. May be called
 * only while training. */
STRATA_API strata_tensor *strata_layer_rng(strata_layer_context *context, uint32_t *out_stream);
/* Applies an activation function, given by its name, to x. It may be a built-in function or one of the model's registry; NULL
 * or "": returns x. */
STRATA_API strata_tensor *strata_activation_apply(const char *function, strata_tensor *x);

/* ---- activations ---- */

/* Registers the function y = apply(x), where y has the shape of x. Its name can be used in every option that names a function
 * ("activation": "mish"). */
STRATA_API STRATA_MUST_USE strata_status strata_activation_register(strata_registry *registry, const char *name,
                                                                    strata_tensor *(*apply)(strata_tensor *x),
                                                                    strata_error *err);

/* ---- losses ---- */

/* How labels and outputs are compared for "accuracy", and so which form labels have and which sums are counted beside the
 * loss. */
typedef enum strata_answers {
    STRATA_ANSWERS_NONE,        /* numbers: there is no right or wrong                                           */
    STRATA_ANSWERS_BINARY,      /* each output says yes or no: right when it and its label lie on the same side  */
    STRATA_ANSWERS_CLASS,       /* the largest output is the answer, the label its index, i32                    */
    STRATA_ANSWERS_DISTRIBUTION /* the same, the label a probability for each class                              */
} strata_answers;

typedef struct strata_loss_definition {
    /* 1 to 31 characters. */
    const char *name;
    /* Labels are i32 (B) for CLASS, else f32 in the outputs' shape, or (B) where an example has one output. */
    strata_answers answers;
    /* The options of the loss, at most 7, as fields of strata_loss_options; options of a registered loss use
     * offsetof(strata_loss_options, own[i]). NULL: it has no options. */
    const strata_option *options;
    /* Replaces options that are 0 by their defaults, then checks the options. NULL: there is nothing to do. */
    strata_status (*check)(strata_loss_options *opts, strata_error *err);
    /* outputs (B, ...) f32 and labels -> the loss of each example (B), f32. */
    strata_tensor *(*build)(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels);
    /* Converts outputs to what predict returns, for example logits to probabilities; NULL: predict returns the outputs. */
    strata_tensor *(*predict)(const strata_loss_options *opts, strata_tensor *outputs);
    /* For BINARY: an output above this threshold means yes. NULL: 0. */
    double (*threshold)(const strata_loss_options *opts);
} strata_loss_definition;
STRATA_API STRATA_MUST_USE strata_status strata_loss_register(strata_registry *registry, const strata_loss_definition *loss,
                                                              strata_error *err);

/* ---- metrics ---- */

/* A metric consists of sums over examples, which devices accumulate over batches and replicas, and of a value that the host
 * computes from these sums at the end. */
typedef struct strata_metric_definition {
    /* 1 to 31 characters. */
    const char *name;
    /* How many sums. */
    int64_t n_sums;
    /* outputs (B, ...) f32 and labels as the loss takes them -> the sums over the B examples (n_sums), f32. */
    strata_tensor *(*build)(strata_tensor *outputs, strata_tensor *labels);
    /* The metric's value, computed from the sums over n_examples examples. NULL: sums[0] / n_examples. */
    double (*value)(const double *sums, int64_t n_examples);
} strata_metric_definition;
STRATA_API STRATA_MUST_USE strata_status strata_metric_register(strata_registry *registry,
                                                                const strata_metric_definition *metric, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
