/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the optimizers' ops: f32 ranges of one size, the step's numbers, the gate, and the loop over elements. Their
 * inputs are
 *   parameters, slots ..., gradients, step [, gate]
 * If the settings do not need a slot (with momentum 0, for example), the parameters are passed in its place, so that the
 * other slots keep their positions. */
#ifndef STRATA_CORE_OP_UPDATE_H
#define STRATA_CORE_OP_UPDATE_H

#include "core/graph/launch.h"

enum { STRATA_MAX_UPDATE_SLOTS = 3 };

/* Attributes of the ops. The loops of the host backend read them too. LAMB has those of Adam. */
typedef struct strata_adam_attrs {
    double beta1, beta2, epsilon, decay;
    int64_t has_gate;
} strata_adam_attrs;

/* Rows of the attribute table of an op whose struct has a strata_adam_attrs, called `adam`. */
#define STRATA_ADAM_ATTRS(type, adam)                                                                                   \
    {"beta1", STRATA_ATTR_FLOAT, offsetof(type, adam beta1)}, {"beta2", STRATA_ATTR_FLOAT, offsetof(type, adam beta2)}, \
        {"epsilon", STRATA_ATTR_FLOAT, offsetof(type, adam epsilon)},                                                   \
        {"decay", STRATA_ATTR_FLOAT, offsetof(type, adam decay)}, {                                                     \
        "has_gate", STRATA_ATTR_INT, offsetof(type, adam has_gate)                                                      \
    }

/* Members of the table of an optimizer's op. Its file has the functions shape, element, compose and lower. */
#define STRATA_UPDATE_OP(op_name, n_slots, type)                                                                          \
    .name = #op_name, .n_inputs = (n_slots) + 3, .optional_inputs = 1, .flags = STRATA_OP_UPDATE,                         \
    .no_gradient = "it changes variables", .attrs_bytes = sizeof(type), .factors = strata_update_factors, .shape = shape, \
    .reference = reference, .compose = compose, .lower = lower

/* For ops that update as Adam does and whose attributes begin with strata_adam_attrs: the check of these attributes, the
 * update of one element (strata_update_element), and the launch of adam.kernel over `n` elements from `first` on. */
STRATA_MUST_USE strata_status strata_adam_check(const strata_adam_attrs *attrs, strata_error *err);
void strata_adam_element(const void *attributes, const float *step, double g, double *p, double *slots);
STRATA_MUST_USE strata_status strata_adam_lower(const strata_tensor *node, int64_t first, int64_t n, strata_lowering *lowering,
                                                strata_error *err);

typedef struct strata_sgd_attrs {
    double momentum;
    int64_t nesterov, has_gate;
} strata_sgd_attrs;

typedef struct strata_adagrad_attrs {
    double epsilon;
    int64_t has_gate;
} strata_adagrad_attrs;

typedef struct strata_rmsprop_attrs {
    double rho, momentum, epsilon;
    int64_t centered, has_gate;
} strata_rmsprop_attrs;

/* The attributes of scatter_update: the first element of the rows in the variable, and how many rows there are. */
typedef struct strata_scatter_update_attrs {
    int64_t first, n_rows;
} strata_scatter_update_attrs;

/* Checks the inputs of an update. The first n_ranges inputs are the ranges. A range whose bit is in `variables` must be
 * the value of a variable, or rows that strata_gather takes from it; the variables must all be different. The ranges must
 * have one shape, except that the last one, the gradients, may be flat and shorter: only as many elements are then
 * updated. After the ranges comes `step` and, if has_gate, the gate. Sets the node's dtype and shape. names[i] is the
 * name of input i in messages. */
STRATA_MUST_USE strata_status strata_check_update(strata_tensor *node, unsigned variables, int n_ranges,
                                                  const char *const *names, bool has_gate, strata_error *err);
/* The placement rule of an element-wise optimizer: all ranges are divided alike, or none is if there are fewer gradients. */
void strata_update_factors(const strata_tensor *node, strata_factors *factors);
/* The variable that a tensor reads, possibly after updates; NULL: the tensor is something else. */
const strata_variable *strata_variable_behind(const strata_tensor *tensor);
/* Whether the update must be made: there is no gate (NULL), or the gate is finite. */
bool strata_gate_is_open(const void *gate);

/* Computes the new values of one element, in double. `slots` are those of the op, in order. If the settings do not need a
 * slot, its value is the parameter, and is not written back. */
typedef void strata_update_element(const void *attrs, const float *step, double gradient, double *parameter, double *slots);
/* Calls `element` for all elements, unless the gate is closed. */
void strata_update_reference(const strata_op_call *call, int n_slots, strata_update_element *element);
/* ---- for compositions ---- */

/* Whether the gate is finite, as a bool scalar. */
strata_tensor *strata_update_open(strata_tensor *gate);

/* The parts from which the composition of an optimizer's node is built. */
typedef struct strata_update_parts {
    strata_tensor *node;
    /* A bool scalar: whether the update is made; NULL: there is no gate. */
    strata_tensor *open;
    /* The number of elements that are updated, which is the number of gradients. */
    int64_t n;
} strata_update_parts;

/* Input number `gradients` contains the gradients; step and gate follow. Returns false if a range is not the value of a
 * variable: gathered rows are updated in place, which assignments cannot do. */
bool strata_update_parts_init(strata_update_parts *parts, strata_tensor *node, int gradients);
/* The elements of input `index` that are updated: all of them, or the first n. */
strata_tensor *strata_update_part(const strata_update_parts *parts, int index);
/* strata_update_word: word `word` of the step, as a scalar. strata_update_number: a constant scalar. */
strata_tensor *strata_update_word(const strata_update_parts *parts, int word);
strata_tensor *strata_update_number(const strata_update_parts *parts, double value);
/* Moves the running average in input `index` by `rate` towards the value, and returns its new updated elements. */
strata_tensor *strata_update_average(const strata_update_parts *parts, int index, strata_tensor *value, double rate);
/* If the gate is open, assigns `value` to the updated elements of input `index`. Returns the new value of the whole
 * variable, and in *out_part (may be NULL) its updated elements. */
strata_tensor *strata_update_assign(const strata_update_parts *parts, int index, strata_tensor *value,
                                    strata_tensor **out_part);

/* A launch of `kernel` with the inputs in order as buffers, the constant GATE and the word n. The caller adds further constants
 * and words, and passes it to strata_lowering_add. */
STRATA_MUST_USE strata_status strata_update_launch(const strata_tensor *node, const char *kernel, int n_slots,
                                                   strata_launch *out_launch, strata_error *err);

#endif
