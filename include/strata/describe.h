/* SPDX-License-Identifier: Apache-2.0
 *
 * What a graph and a model consist of, and building models from such parts: for programs that convert models to other formats
 * and back. strata/interchange.h is built on it.
 *
 *     strata_model_structure s;
 *     strata_model_describe(model, &s, &err);
 *     for (int i = 0; i < s.n_calls; i++) printf("%s %s\n", s.calls[i].kind, s.calls[i].name);
 *     free(s.calls);
 *
 * A format of layers walks the calls of strata_model_describe. A format of ops walks the nodes of strata_model_graph. A reader
 * adds layers with strata_model_add_layer and strata_layer_call, and gives the parameters their values with
 * strata_model_set_parameter (strata/model.h). */
#ifndef STRATA_DESCRIBE_H
#define STRATA_DESCRIBE_H

#include "strata/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- graphs ---- */

/* The node that computes a tensor. What it points to lives as long as the graph. */
typedef struct strata_node_info {
    /* The op's name, as in `strata help ops`. Leaves are "input", "constant" and "read", of a variable. */
    const char *op;
    /* The position of the node in its graph. Inputs of a node have lower ones. */
    int index;
    strata_tensor *const *inputs;
    int n_inputs;
    /* An input: its name; NULL for other ops. */
    const char *name;
    /* A constant: its elements; NULL for other ops. */
    const void *data;
    /* The value is that of input 0 under another shape. */
    bool view;
    /* An element-wise op: y as an expression of x, or of a and b, in C, with the words ABS EXP LOG SQRT RSQRT TANH SIGMOID SIN
     * COS ERF EXPM1 LOG1P POW MIN MAX SIGN RELU EQUAL LESS ZERO; NULL for other ops. */
    const char *formula;
} strata_node_info;
STRATA_API int strata_graph_n_nodes(const strata_graph *graph);
/* index: below strata_graph_n_nodes. The graph owns the tensor. */
STRATA_API strata_tensor *strata_graph_tensor(const strata_graph *graph, int index);
STRATA_API strata_node_info strata_tensor_node(const strata_tensor *tensor);
/* Number `index` of an attribute of the tensor's node; 0: the op has no such attribute. `strata help ops` lists them. An axis
 * is counted from 0. An attribute that is a word is its number in the list of words. */
STRATA_API double strata_tensor_attribute(const strata_tensor *tensor, const char *name, int index);
/* The word that an attribute is, such as "relu"; NULL: it is none. */
STRATA_API const char *strata_tensor_word(const strata_tensor *tensor, const char *name);

/* Sets the elements of an input of the graph. */
typedef strata_status (*strata_graph_reader)(const char *name, strata_array *out, void *user, strata_error *err);
/* Computes all nodes with the references of the ops, on the host, without a device: exact, but slow.
 *   read        called for each input; user: its argument
 *   out_values  [strata_graph_n_nodes] zeroed arrays, which the call creates; the caller finishes them, also on failure
 * Fails: UNSUPPORTED for a graph with variables; what `read` returns; OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_graph_evaluate(const strata_graph *graph, strata_graph_reader read, void *user,
                                                               strata_array *out_values, strata_error *err);

/* ---- layers ---- */

/* Builds a layer as predict does, without a model, in the graph of its inputs. Its parameters become inputs of the graph, with
 * names such as "dense/kernel".
 *   kind     a built-in kind of layer, by its name in JSON, that has no layers inside of it
 *   name     of the layer; NULL: a layer without parameters needs none
 *   options  the layer's options struct; it is not used after the call
 * An error poisons the graph. */
STRATA_API strata_tensor *strata_layer_apply(const char *kind, const char *name, const void *options,
                                             strata_tensor *const *inputs, int n_inputs);

/* ---- models ---- */

/* An input of the model, or a call of a layer. The call of a layer with layers inside (residual) comes after theirs; its inputs
 * are the ends of its two branches. */
typedef struct strata_call {
    /* The layer's kind, by its name in JSON; "input": it is an input of the model. */
    const char *kind;
    /* The layer's name, with which the names of its parameters begin, or that of the input. */
    const char *name;
    /* The layer's options struct, and its fields; NULL for an input. */
    const void *options;
    const strata_option *fields;
    /* own: the program registered the kind (strata/registry.h). frozen: training does not change the layer. */
    bool own, frozen;
    /* The first call of the same layer; its own index if it is the first. */
    int first;
    /* Indices of the calls whose values are its inputs. */
    int inputs[STRATA_MAX_LAYER_INPUTS];
    int n_inputs;
    /* Its value, for one example: (1, ...). */
    strata_shape shape;
    strata_dtype dtype;
} strata_call;

typedef struct strata_model_structure {
    /* The inputs of the model, and then the calls in the order of computation. The caller frees them with free(). */
    strata_call *calls;
    int n_calls;
    /* [strata_model_n_outputs] The calls that compute the outputs, and what predict applies to each of them, since its loss
     * takes logits: "softmax" or "sigmoid"; NULL: nothing. */
    int outputs[STRATA_MAX_OUTPUTS];
    const char *activations[STRATA_MAX_OUTPUTS];
    /* The model is sequential. */
    bool sequential;
} strata_model_structure;
/* Texts and options in it live as long as the model. Fails as strata_model_declare. */
STRATA_API STRATA_MUST_USE strata_status strata_model_describe(strata_model *model, strata_model_structure *out_structure,
                                                               strata_error *err);
/* Makes the graph of the prediction of one example. Its inputs are those of the model, out_inputs
 * [strata_model_n_inputs], and the parameters, by their names. out_outputs: [strata_model_n_outputs]. The caller destroys the
 * graph. Fails as strata_model_declare. */
STRATA_API STRATA_MUST_USE strata_status strata_model_graph(strata_model *model, strata_graph **out_graph,
                                                            strata_tensor **out_inputs, strata_tensor **out_outputs,
                                                            strata_error *err);
/* Finds the parameters, and the shapes of the outputs, after the last layer was added; compile and build do it too. Fails: with
 * the first error of adding and calling layers; INVALID for a model without layers or parameters. */
STRATA_API STRATA_MUST_USE strata_status strata_model_declare(strata_model *model, strata_error *err);

/* The key of a note (strata_model_set_note); NULL: there are at most `index`. */
STRATA_API const char *strata_model_note_key(const strata_model *model, int index);
/* The losses of the outputs, with their options, weights and metrics, as one text: the loss's name, or JSON where there is more
 * than that. *out_text NULL: there are none; the caller frees it. strata_model_recall_losses sets those of the outputs to those
 * of such a text; it ignores losses and metrics that the program does not have. */
STRATA_API STRATA_MUST_USE strata_status strata_model_losses_text(const strata_model *model, char **out_text,
                                                                  strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_model_recall_losses(strata_model *model, const char *text, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
