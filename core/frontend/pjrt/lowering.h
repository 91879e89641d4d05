/* SPDX-License-Identifier: Apache-2.0
 *
 * What the rules of the lowering share. A rule gets the operands of one operation and sets its results. lower.c calls it, and
 * compares dtypes and shapes of the results with those that the program states. */
#ifndef STRATA_FRONTEND_LOWERING_H
#define STRATA_FRONTEND_LOWERING_H

#include "core/base/alloc.h"
#include "core/frontend/pjrt/program.h"
#include "strata/ops.h"

/* A value of the program. */
typedef struct lowered {
    /* NULL: not computed. Its rank is that of `shape`. An axis along which all elements are equal may have size 1 instead:
     * element-wise ops repeat it, and nothing is stored for broadcast scalars. */
    strata_tensor *tensor;
    strata_shape shape;
    /* Whether all elements are `number`. */
    bool is_number;
    double number;
} lowered;

typedef strata_tensor *one_function(strata_tensor *x);
typedef strata_tensor *two_function(strata_tensor *a, strata_tensor *b);

/* An operation that is being lowered. */
typedef struct lower_call {
    const strata_program *program;
    const strata_program_op *op;
    strata_graph *graph;
    /* [n_operands] and [n_results]. The shapes and dtypes of the results are those that the program states. */
    const lowered *const *in;
    lowered *out;
    const strata_dtype *out_dtypes;
    /* The function, or the combination, of the operation's row. */
    one_function *one;
    two_function *two;
    int combination;
} lower_call;

typedef strata_status lower_rule(const lower_call *call, strata_error *err);
lower_rule strata_lower_unary, strata_lower_float, strata_lower_binary, strata_lower_combination, strata_lower_compare,
    strata_lower_select, strata_lower_clamp, strata_lower_convert, strata_lower_not, strata_lower_xor,
    strata_lower_reduce_precision;
lower_rule strata_lower_constant, strata_lower_iota, strata_lower_broadcast, strata_lower_reshape, strata_lower_transpose,
    strata_lower_concatenate, strata_lower_slice, strata_lower_pad, strata_lower_reverse, strata_lower_dynamic_slice,
    strata_lower_dynamic_update_slice;
lower_rule strata_lower_reduce, strata_lower_reduce_window, strata_lower_select_and_scatter;
lower_rule strata_lower_dot_general, strata_lower_convolution;
lower_rule strata_lower_gather, strata_lower_scatter;

/* Functions that the specification defines otherwise than Strata, or that Strata composes; for floats. */
one_function strata_lower_sign, strata_lower_floor, strata_lower_ceil, strata_lower_round_even, strata_lower_round_away,
    strata_lower_is_finite, strata_lower_log_plus_one, strata_lower_exponential_minus_one, strata_lower_tan;

/* Associative functions of two operands, by which reductions combine elements. */
typedef enum lower_combination_kind {
    LOWER_NONE,
    LOWER_ADD,
    LOWER_MULTIPLY,
    LOWER_MAXIMUM,
    LOWER_MINIMUM,
    LOWER_AND,
    LOWER_OR
} lower_combination_kind;
/* a and b, which broadcast together, combined; NULL: there is no such function of their dtype. */
strata_tensor *strata_lower_combine(int kind, strata_tensor *a, strata_tensor *b);
/* Whether a combination of x with this value is x, for each x of the dtype. */
bool strata_lower_is_identity(int kind, strata_dtype dtype, const lowered *value);
/* extreme: a maximum or minimum of elements x, in which a zero may have either sign. inverse: that of 1 / x, which is an
 * infinity if there is a zero of the sign that counts. The specification says that -0 is less than +0. */
strata_tensor *strata_lower_signed_zero(int kind, strata_tensor *extreme, strata_tensor *inverse);
/* A scalar of the tensor's graph and dtype. */
strata_tensor *strata_lower_scalar(strata_tensor *like, double value);
bool strata_lower_is_number_dtype(strata_dtype dtype);

/* The value with all of its elements. */
strata_tensor *strata_lower_whole(const lowered *value);
/* n axes of size 1. */
strata_shape strata_lower_ones(int rank);
/* Elements first, first + step, ... along an axis; n of them, all inside of x. */
strata_tensor *strata_lower_take(strata_tensor *x, int axis, int64_t first, int64_t step, int64_t n);
/* Elements first ... first + n - 1 along an axis. */
strata_tensor *strata_lower_part(strata_tensor *x, int axis, int64_t first, int64_t n);
/* 0, 1 ... n - 1 along an axis of `rank` axes, of which the others have size 1; i32. */
strata_tensor *strata_lower_positions(strata_graph *graph, int rank, int axis, int64_t n);
/* x with elements of `value` before and after each axis; where a number is negative, elements are taken away. interior (may be
 * NULL): elements between neighbours. */
strata_tensor *strata_lower_pad_by(strata_tensor *x, const int64_t *before, const int64_t *after, const int64_t *interior,
                                   double value);

/* Attributes of whole numbers, each within the range of an i32 so that the sum or product of two fits in 64 bits. Fail: DATA if
 * there is none of this name with n numbers; UNSUPPORTED if a number is larger. A list has at most STRATA_MAX_RANK. */
STRATA_MUST_USE strata_status strata_lower_integer(const lower_call *call, const char *name, int64_t *out, strata_error *err);
STRATA_MUST_USE strata_status strata_lower_integers(const lower_call *call, const char *name, int n, int64_t *out,
                                                    strata_error *err);
STRATA_MUST_USE strata_status strata_lower_list(const lower_call *call, const char *name, int64_t *out, int *out_n,
                                                strata_error *err);
/* The same for axes of something of this rank: each is in it, and none is there twice. */
STRATA_MUST_USE strata_status strata_lower_axes(const lower_call *call, const char *name, int rank, int *out, int *out_n,
                                                strata_error *err);
/* The operation has this many operands, or fails with DATA. */
STRATA_MUST_USE strata_status strata_lower_operands(const lower_call *call, int n, strata_error *err);

/* A region as text, in which arguments and results are numbered: "add 0 1;return 2;". Empty if it is too long, or uses
 * values from outside. */
enum { LOWER_BODY_BYTES = 256 };
void strata_lower_body(const lower_call *call, int region, char out[LOWER_BODY_BYTES]);
/* The combination that a region computes of its two arguments, or LOWER_NONE. */
int strata_lower_body_kind(const lower_call *call, int region);

#endif
