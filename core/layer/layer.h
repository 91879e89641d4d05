/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that describes a kind of layer, and the functions that layers may call. core/layer/README.md lists the steps for a
 * new layer. A layer only builds ops: it does not depend on a device, optimizer or strategy. */
#ifndef STRATA_CORE_LAYER_H
#define STRATA_CORE_LAYER_H

#include "core/base/option.h"
#include "strata/layers.h"
#include "strata/registry.h"

/* ---- initializer.c ----
 * Initial values of parameters. The host draws them by Philox with the key (seed, stream), so they are the same for every
 * device. */
typedef struct strata_initializer strata_initializer;

/* Finds the initializer with this name. Fails with INVALID and the list of names if there is none. */
STRATA_MUST_USE strata_status strata_initializer_find(const char *name, const strata_initializer **out_initializer,
                                                      strata_error *err);
const char *strata_initializer_name(const strata_initializer *initializer);

/* Sets values[0..n). fan_in and fan_out: the number of inputs of an output, and of outputs of an input; at least 1. The
 * normal initializers he_normal and glorot_normal are truncated at two standard deviations by drawing again, as in Keras. */
void strata_initializer_fill(const strata_initializer *initializer, uint64_t seed, uint32_t stream, int64_t fan_in,
                             int64_t fan_out, float *values, int64_t n);

/* ---- context.c ---- */
/* Declares a parameter (rows, ...) that may be divided into parts, in case a device cannot bind all of it. The layer
 * computes with the parts; each part has some of the rows. Returns the number of parts; 1 if the parameter is not
 * divided. */
int strata_layer_split_parameter(strata_layer_context *context, strata_graph *graph, const char *name, strata_shape shape,
                                 const char *initializer, int64_t fan_in, int64_t fan_out);
/* Part `part` of such a parameter; its first row is row *out_first_row of the parameter. */
strata_tensor *strata_layer_part(strata_layer_context *context, strata_graph *graph, const char *name, int part,
                                 int64_t *out_first_row);
/* Gathers the rows with the indices x of such a parameter, as strata_gather does. sparse: an update changes only rows
 * whose indices are in x; the layer must then use the parameter in no other way. */
strata_tensor *strata_layer_rows(strata_layer_context *context, strata_graph *graph, const char *name, strata_tensor *x,
                                 bool sparse);
/* Rows for the options kernel_l1 and kernel_l2 of a layer. */
#define STRATA_LAYER_PENALTY(type)                                                   \
    {"kernel_l1", STRATA_OPTION_NUMBER, offsetof(type, kernel_l1), 0, 1e6, false}, { \
        "kernel_l2", STRATA_OPTION_NUMBER, offsetof(type, kernel_l2), 0, 1e6, false  \
    }
/* Whether the batch is divided among several replicas. */
bool strata_layer_has_replicas(const strata_layer_context *context);
/* The number of the replica's own rows, f32 scalar, for an x in which the batch has `rows` of them. In the graph of all
 * replicas the replicas' numbers add up to it (strata_layer_sum_over_replicas). */
strata_tensor *strata_layer_count_rows(strata_layer_context *context, strata_tensor *x, int64_t rows);
/* The sum of x over the replicas that have examples. It is only for training with several replicas. */
strata_tensor *strata_layer_sum_over_replicas(strata_layer_context *context, strata_tensor *x);
/* Declares that x has indices below n_tokens. If x is an input of the model, data with larger values are refused. */
void strata_layer_limit_tokens(strata_layer_context *context, const strata_tensor *x, int64_t n_tokens);

/* The mask of the output of the layer that is being built, bool (N, ...): true for positions that are not padding; NULL: no
 * position is padding. Layers with keeps_mask pass the mask on. */
void strata_layer_set_mask(strata_layer_context *context, strata_tensor *mask);
strata_tensor *strata_layer_mask(const strata_layer_context *context);

/* The output of a branch of the layer that is being built, for the input x; x itself if the branch is empty. */
strata_tensor *strata_layer_branch(strata_layer_context *context, int branch, strata_tensor *x);

enum { STRATA_MAX_LAYER_OPTIONS = 16, STRATA_MAX_BRANCHES = 2, STRATA_MAX_NESTING = 16 };

typedef struct strata_layer_kind {
    /* The kind's name in JSON and in the default names of layers. */
    const char *name;
    /* The size of the options struct. */
    size_t options_bytes;
    /* The offset of the member `const char *name` in the options struct. */
    size_t name_offset;
    /* The table of options, which ends at a NULL name. The layer's own name is not in it. */
    strata_option options[STRATA_MAX_LAYER_OPTIONS];
    /* The keys in JSON of lists of layers inside this one; the first list must not be empty. NULL: there are none. */
    const char *branches[STRATA_MAX_BRANCHES];
    /* Position (n, ...) of y belongs to the same position of x, so the mask of x is also the mask of y, as in Keras. */
    bool keeps_mask;
    /* Checks what the ranges in the table of the options do not say; the caller adds the layer's name to the message. NULL:
     * there is nothing. */
    strata_status (*check)(const void *options, strata_error *err);
    /* Builds y for x (N, ...). Errors poison the graph. */
    strata_tensor *(*build)(const void *options, strata_layer_context *context, strata_tensor *x);
    /* Builds y for n inputs. Layers with several inputs have it instead of `build`. */
    strata_tensor *(*build_many)(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n);
    /* The smallest and the largest number of inputs of build_many. */
    int least_inputs, most_inputs;
    /* A copy of the user's definition; NULL: the kind is built in, and its options contain the layer's name. */
    const strata_layer_definition *own;
} strata_layer_kind;

/* The members of a kind that follow from the type of its options. */
#define STRATA_LAYER_OPTIONS(type) .options_bytes = sizeof(type), .name_offset = offsetof(type, name)
/* Every kind, in the order of layers.def. */
extern const strata_layer_kind *const strata_layer_kinds[];
extern const int strata_n_layer_kinds;
/* A user's activation function, in a list. activation.c finds it by the graph of x. */
typedef struct strata_own_activation {
    const char *name;
    strata_tensor *(*apply)(strata_tensor *x);
    struct strata_own_activation *next;
} strata_own_activation;
/* Checks that there is a built-in function with this name. NULL and "" are valid, and strata_activation_apply then
 * returns x. */
STRATA_MUST_USE strata_status strata_activation_check(const char *function, strata_error *err);

/* Applies the op of the layer op to n tensors, without a model. n must be the number of inputs of the op. Errors poison the
 * graph. */
strata_tensor *strata_op_apply(const strata_op_options *opts, strata_tensor *const *inputs, int n);

#define STRATA_LAYER(name) extern const strata_layer_kind strata_layer_##name;
#include "core/layer/layers.def"

#undef STRATA_LAYER

#endif
