/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that describes a kind of layer, and the functions that layers may call. core/layer/README.md lists the steps for a
 * new layer. A layer only builds ops: it does not depend on a device, optimizer or strategy. */
#ifndef STRATA_CORE_LAYER_H
#define STRATA_CORE_LAYER_H

#include "core/base/export.h"
#include "core/base/option.h"
#include "core/layer/initializer.h"
#include "strata/layers.h"
#include "strata/ops.h"
#include "strata/registry.h"

/* Declares a parameter (rows, ...) of a layer that can compute with parts of the parameter, in case a device cannot bind all of
 * it. Each part has some of the rows. Returns the number of parts; 1 if the parameter is not divided. */
int strata_layer_split_parameter(strata_layer_context *context, strata_graph *graph, const char *name, strata_shape shape,
                                 const char *initializer, int64_t fan_in, int64_t fan_out);
/* Part `part` of such a parameter; its first row is row *out_first_row of the parameter. */
strata_tensor *strata_layer_part(strata_layer_context *context, strata_graph *graph, const char *name, int part,
                                 int64_t *out_first_row);
/* The rows of such a parameter with the indices x, like strata_gather. sparse: an update changes only rows whose indices are in
 * x; nothing else may use the parameter then. */
strata_tensor *strata_layer_rows(strata_layer_context *context, strata_graph *graph, const char *name, strata_tensor *x,
                                 bool sparse);
/* Rows of a layer's options for it, where they are called kernel_l1 and kernel_l2; INVALID for negative ones. */
#define STRATA_LAYER_PENALTY(type)                                                   \
    {"kernel_l1", STRATA_OPTION_NUMBER, offsetof(type, kernel_l1), 0, 1e6, false}, { \
        "kernel_l2", STRATA_OPTION_NUMBER, offsetof(type, kernel_l2), 0, 1e6, false  \
    }
STRATA_MUST_USE strata_status strata_layer_check_penalty(double l1, double l2, strata_error *err);
/* Whether the batch is divided among several replicas. */
bool strata_layer_has_replicas(const strata_layer_context *context);
/* The sum of x over the replicas that have examples. For training with several replicas only. */
strata_tensor *strata_layer_sum_over_replicas(strata_layer_context *context, strata_tensor *x);
/* Declares that x has indices below n_tokens. If x is an input of the model, data with larger values are refused. */
void strata_layer_limit_tokens(strata_layer_context *context, const strata_tensor *x, int64_t n_tokens);

/* The mask of the output of the layer that is being built, bool (N, ...): true for positions that are not padding; NULL: no
 * position is padding. Layers with keeps_mask pass the mask on. */
void strata_layer_set_mask(strata_layer_context *context, strata_tensor *mask);
strata_tensor *strata_layer_mask(const strata_layer_context *context);

/* The output of a branch of the layer that is being built, for the input x; x itself if the branch is empty. */
strata_tensor *strata_layer_branch(strata_layer_context *context, int branch, strata_tensor *x);

enum { STRATA_MAX_LAYER_OPTIONS = 16, STRATA_MAX_LAYER_INPUTS = 64, STRATA_MAX_BRANCHES = 2, STRATA_MAX_NESTING = 16 };

typedef struct strata_layer_kind {
    /* The kind's name in JSON and in the default names of layers. */
    const char *name;
    /* The size of the options struct. */
    size_t options_bytes;
    /* Where the options struct has its `const char *name`. */
    size_t name_offset;
    /* The options; the list ends at a NULL name, and the layer's own name is not in it. */
    strata_option options[STRATA_MAX_LAYER_OPTIONS];
    /* The keys in JSON of lists of layers inside this one; the first list must not be empty. NULL: there are none. */
    const char *branches[STRATA_MAX_BRANCHES];
    /* Each position (n, ...) of y depends only on the same position of x, so the mask of x is also the mask of y. */
    bool keeps_mask;
    /* Checks the options; the caller adds the layer's name to the message. NULL: nothing to check. */
    strata_status (*check)(const void *options, strata_error *err);
    /* Builds y for x (N, ...). Errors poison the graph. */
    strata_tensor *(*build)(const void *options, strata_layer_context *context, strata_tensor *x);
    /* Instead of build, for layers with several inputs: builds y for n of them. */
    strata_tensor *(*build_many)(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n);
    /* How many inputs build_many takes, from .. to. */
    int least_inputs, most_inputs;
    /* What the user registered, a copy; NULL: the kind is built in, and its options have the layer's name. */
    const strata_layer_definition *own;
} strata_layer_kind;

STRATA_EXPORT_BEGIN
/* Every kind, in the order of layers.def. */
extern const strata_layer_kind *const strata_layer_kinds[];
extern const int strata_n_layer_kinds;
STRATA_EXPORT_END

/* One of the user's own activation functions; they are a list. activation.c finds them by the graph that x is in. */
typedef struct strata_own_activation {
    const char *name;
    strata_tensor *(*apply)(strata_tensor *x);
    struct strata_own_activation *next;
} strata_own_activation;
/* Whether there is a built-in function of this name, NULL and "" too (strata_activation_apply gives x itself then). */
STRATA_MUST_USE strata_status strata_activation_check(const char *function, strata_error *err);

#define STRATA_LAYER(name) extern const strata_layer_kind strata_layer_##name;
#include "core/layer/layers.def"

#undef STRATA_LAYER

#endif
