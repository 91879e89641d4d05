/* SPDX-License-Identifier: Apache-2.0
 *
 * What a layer kind says about itself. A new one is core/layer/<name>.c with its strata_layer_<name>, a row in layers.def, its
 * options in strata/layers.h and tests/layer/<name>_test.c. A layer speaks only ops: no device, optimizer or strategy appears
 * in it. */
#ifndef STRATA_CORE_LAYER_H
#define STRATA_CORE_LAYER_H

#include "core/base/export.h"
#include "core/base/option.h"
#include "core/layer/initializer.h"
#include "strata/layers.h"
#include "strata/ops.h"
#include "strata/registry.h"

/* Declares a parameter (rows, ...) of a layer that can compute with parts of it, each some of its rows, where a device cannot
 * bind all of it. Returns the number of parts, 1 where it fits. */
int strata_layer_split_parameter(strata_layer_context *context, strata_graph *graph, const char *name, strata_shape shape,
                                 const char *initializer, int64_t fan_in, int64_t fan_out);
/* Part `part` of it, whose first row is row *out_first_row of the whole. */
strata_tensor *strata_layer_part(strata_layer_context *context, strata_graph *graph, const char *name, int part,
                                 int64_t *out_first_row);
/* Rows of it by indices x, as strata_gather gives them. sparse: an update changes only rows that x has; nothing else is to use
 * the parameter then. */
strata_tensor *strata_layer_rows(strata_layer_context *context, strata_graph *graph, const char *name, strata_tensor *x,
                                 bool sparse);
/* Rows of a layer's options for it, where they are called kernel_l1 and kernel_l2; INVALID for negative ones. */
#define STRATA_LAYER_PENALTY(type)                                                   \
    {"kernel_l1", STRATA_OPTION_NUMBER, offsetof(type, kernel_l1), 0, 1e6, false}, { \
        "kernel_l2", STRATA_OPTION_NUMBER, offsetof(type, kernel_l2), 0, 1e6, false  \
    }
STRATA_MUST_USE strata_status strata_layer_check_penalty(double l1, double l2, strata_error *err);
/* Whether the batch that trains is shared out, so that there are other replicas' parts of it. */
bool strata_layer_has_replicas(const strata_layer_context *context);
/* x added up over the replicas that have examples; while training, where there are several. */
strata_tensor *strata_layer_sum_over_replicas(strata_layer_context *context, strata_tensor *x);
/* Says that x holds indices below n_tokens. Where x is the model's input, data beyond are refused before they get here. */
void strata_layer_limit_tokens(strata_layer_context *context, const strata_tensor *x, int64_t n_tokens);

/* Which places (N, ...) of what the layer being built gives hold something, bool; the others are padding. It goes on through
 * layers that keep it; NULL: all do. */
void strata_layer_set_mask(strata_layer_context *context, strata_tensor *mask);
strata_tensor *strata_layer_mask(const strata_layer_context *context);

/* What a branch of the layer being built makes of x: x itself, when it is empty. */
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
    /* Each place (n, ...) of y depends on the same place of x alone, so padding stays where it is. */
    bool keeps_mask;
    /* Options that are wrong by themselves; the message does not name the layer, the caller does. NULL: nothing to check. */
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
