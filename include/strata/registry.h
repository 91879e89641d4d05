/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers, losses, metrics and activations of one's own. They are registered by name in a registry, and models that are made
 * with it use them as they use built-in ones: in C, in JSON, and in files, which keep the name and the options, not the
 * functions. A program that loads such a file registers the same names first. samples/own_layer.c is the whole of one:
 *
 *     strata_registry_create(&registry, &err);
 *     strata_layer_register(registry, &(strata_layer_definition){.name = "scale", .build = build}, &err);
 *     strata_model_set_registry(model, registry, &err);                a model that is made by calls, or
 *     strata_model_load_with(registry, "m.strata", &model, &err);      one that is read
 *     strata_registry_destroy(registry);                               models keep it as long as they need it
 *
 * A build function makes ops (strata/ops.h), which is why what is registered runs on every device, has its gradient, and works
 * under every strategy. It is called once to find a layer's parameters and once for each program that is compiled (training,
 * evaluation, another batch size), so it must do the same each time. It reports an error by strata_graph_fail, or returns NULL;
 * the message then names the layer.
 *
 * Definitions are copied. What they point to (names, tables, functions) must outlive the registry, and usually is static.
 * Registering fails with INVALID for a name that is taken, by a built-in or another one, or a definition that is not complete.
 *
 * Threads: registering is for one thread, before models are made with the registry; models in different threads may then share
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
/* Gives the caller's share back; the last model that uses the registry frees it. NULL is fine. */
STRATA_API void strata_registry_destroy(strata_registry *registry);

/* ---- layers ---- */

/* What a layer is built in: it declares parameters and states, and knows whether the program trains. */
typedef struct strata_layer_context strata_layer_context;

typedef struct strata_layer_definition {
    /* The layer's name in JSON and strata_model_add_layer: 1 to 31 characters without '/'. */
    const char *name;
    /* How many inputs a call gives it. 0: 1. -1: any number from 1 on. */
    int n_inputs;
    /* The size of its options struct, a plain struct of which zeros are the defaults; 0: it has no options. */
    size_t options_bytes;
    /* The fields of that struct, at most 15, of which none is called "layer", "name" or "inputs". NULL: it has no options. */
    const strata_option *options;
    /* Each place (n, ...) of the output depends on the same place of the input alone, so padding (an embedding's mask_zero)
     * stays where it is. */
    bool keeps_mask;
    /* Refuses options that are wrong together; each by itself is in its range already. The message need not name the layer.
     * NULL: there is nothing to check. */
    strata_status (*check)(const void *options, strata_error *err);
    /* inputs: [n_inputs] tensors (N, ...), of strata_layer_dtype unless they are integers. Returns the output (N, ...). */
    strata_tensor *(*build)(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n_inputs);
} strata_layer_definition;
STRATA_API STRATA_MUST_USE strata_status strata_layer_register(strata_registry *registry, const strata_layer_definition *layer,
                                                               strata_error *err);

/* ---- for build functions ---- */

/* The layer's parameter `name` ("kernel") as a tensor, f32. The first call with a name declares it; later ones must agree.
 * initializer: of strata_initializer_names. fan_in, fan_out: how many weights join in an output, and go out from an input, for
 * the initializers of Glorot and He; 0: the last but one and the last dimension of the shape. */
STRATA_API strata_tensor *strata_layer_parameter(strata_layer_context *context, strata_graph *graph, const char *name,
                                                 strata_shape shape, const char *initializer, int64_t fan_in, int64_t fan_out);
/* The layer's state `name` ("moving_mean"), f32, as it was before the step: kept from step to step and saved, but not
 * trained. */
STRATA_API strata_tensor *strata_layer_state(strata_layer_context *context, strata_graph *graph, const char *name,
                                             strata_shape shape, const char *initializer);
/* After a training step the state is state + rate (value - state); rate 1: the value. Of a layer that is called several times,
 * value is the mean over the calls. A step that is undone because its loss was not finite leaves states as they were. Nothing
 * happens in other programs. */
STRATA_API void strata_layer_update_state(strata_layer_context *context, const char *name, strata_tensor *value, double rate);
/* Adds l1 sum |x| + l2 sum x^2 to the loss of a batch; 0 and 0: nothing. */
STRATA_API void strata_layer_penalize(strata_layer_context *context, strata_tensor *x, double l1, double l2);
/* Whether the program trains this layer (dropout works then and only then): not where it is frozen. */
STRATA_API bool strata_layer_is_training(const strata_layer_context *context);
/* What layers compute in: f32, f16 or bf16. A layer casts a parameter to it (strata_cast) where it multiplies or adds one. */
STRATA_API strata_dtype strata_layer_dtype(const strata_layer_context *context);
/* The step's random state and a stream of its own for each call, for strata_dropout and strata_random_uniform. Only while
 * training. */
STRATA_API strata_tensor *strata_layer_rng(strata_layer_context *context, uint32_t *out_stream);
/* An activation function by name, a built-in one or one of the model's registry; NULL or "": x itself. */
STRATA_API strata_tensor *strata_activation_apply(const char *function, strata_tensor *x);

/* ---- activations ---- */

/* y = apply(x), of x's shape: a name for every option that takes a function ("activation": "mish"). */
STRATA_API STRATA_MUST_USE strata_status strata_activation_register(strata_registry *registry, const char *name,
                                                                    strata_tensor *(*apply)(strata_tensor *x),
                                                                    strata_error *err);

/* ---- losses ---- */

/* What "accuracy" means for a loss, and so what labels are and what is counted beside it. */
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
    /* Fields of strata_loss_options, at most 7: its own are offsetof(strata_loss_options, own[i]). NULL: it has no options. */
    const strata_option *options;
    /* Puts defaults where options are 0, then checks them. NULL: there is nothing to do. */
    strata_status (*check)(strata_loss_options *opts, strata_error *err);
    /* outputs (B, ...) f32 and labels -> the loss of each example (B), f32. */
    strata_tensor *(*build)(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels);
    /* What predict makes of outputs (probabilities of logits); NULL: the outputs as they are. */
    strata_tensor *(*predict)(const strata_loss_options *opts, strata_tensor *outputs);
    /* BINARY: an output above it says yes. NULL: 0. */
    double (*threshold)(const strata_loss_options *opts);
} strata_loss_definition;
STRATA_API STRATA_MUST_USE strata_status strata_loss_register(strata_registry *registry, const strata_loss_definition *loss,
                                                              strata_error *err);

/* ---- metrics ---- */

/* A metric is a number of sums over examples, which the device adds up over batches and replicas, and the value that the host
 * makes of them at the end. */
typedef struct strata_metric_definition {
    /* 1 to 31 characters. */
    const char *name;
    /* How many sums. */
    int64_t n_sums;
    /* outputs (B, ...) f32 and labels as the loss takes them -> the sums over the B examples (n_sums), f32. */
    strata_tensor *(*build)(strata_tensor *outputs, strata_tensor *labels);
    /* Of the sums over n_examples examples. NULL: sums[0] / n_examples. */
    double (*value)(const double *sums, int64_t n_examples);
} strata_metric_definition;
STRATA_API STRATA_MUST_USE strata_status strata_metric_register(strata_registry *registry,
                                                                const strata_metric_definition *metric, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
