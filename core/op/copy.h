/* SPDX-License-Identifier: Apache-2.0
 *
 * The strided copy by which all ops that only copy elements are implemented: transpose, broadcast_to, concat, slice, pad, pack,
 * assign. An op describes its copies once; both the reference and `lower` execute the description. */
#ifndef STRATA_CORE_OP_COPY_H
#define STRATA_CORE_OP_COPY_H

#include "core/graph/launch.h"

/* target[target_offset + sum c_d target_strides[d]] = source[source_offset + sum c_d source_strides[d]] for each c in shape. */
typedef struct strata_copy {
    /* Both have the same dtype. */
    const strata_tensor *source, *target;
    strata_shape shape;
    /* Offsets and strides are in elements. */
    int64_t source_offset, target_offset;
    int64_t source_strides[STRATA_MAX_RANK], target_strides[STRATA_MAX_RANK];
} strata_copy;

/* Copies all of source, in its order, to target from element `first` on. */
strata_copy strata_copy_flat(const strata_tensor *source, const strata_tensor *target, int64_t first);
/* Row-major strides of a shape. */
void strata_row_major_strides(strata_shape shape, int64_t *out_strides);

void strata_copy_reference(const strata_copy *copy, const void *source, void *target);
STRATA_MUST_USE strata_status strata_copy_lower(const strata_copy *copy, strata_lowering *lowering, strata_error *err);

/* The reference and the lowering of an op that is one copy, which the function `describe` of its file returns. */
#define STRATA_COPY_FUNCTIONS                                                                             \
    static void reference(strata_op_call *call) {                                                         \
        const strata_copy copy = describe(call->node);                                                    \
        strata_copy_reference(&copy, call->inputs[0], call->output);                                      \
    }                                                                                                     \
    static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) { \
        const strata_copy copy = describe(node);                                                          \
        return strata_copy_lower(&copy, lowering, err);                                                   \
    }

/* Sets all elements of node to a value of its dtype. */
STRATA_MUST_USE strata_status strata_fill_lower(const strata_tensor *node, double value, strata_lowering *lowering,
                                                strata_error *err);

/* A launch of the kernel whose buffers are the node's inputs, in order, and the node, which it writes. */
strata_launch strata_launch_of(const strata_tensor *node, const char *kernel, const char *variant);
/* Append words: integers, which fit in 32 bits, or f32 numbers. */
void strata_launch_ints(strata_launch *launch, const int64_t *values, size_t n);
void strata_launch_floats(strata_launch *launch, const double *values, size_t n);
#define STRATA_COUNT(type, ...) (sizeof((const type[]){__VA_ARGS__}) / sizeof(type))
#define STRATA_LAUNCH_INTS(launch, ...) \
    strata_launch_ints(launch, (const int64_t[]){__VA_ARGS__}, STRATA_COUNT(int64_t, __VA_ARGS__))
#define STRATA_LAUNCH_FLOATS(launch, ...) \
    strata_launch_floats(launch, (const double[]){__VA_ARGS__}, STRATA_COUNT(double, __VA_ARGS__))
/* Appends constants. */
void strata_launch_constants(strata_launch *launch, const strata_launch_constant *constants, size_t n);
#define STRATA_LAUNCH_CONSTANTS(launch, ...)                                       \
    strata_launch_constants(launch, (const strata_launch_constant[]){__VA_ARGS__}, \
                            STRATA_COUNT(strata_launch_constant, __VA_ARGS__))
/* Sets the buffers of a launch, of which it writes the last one; and a launch of the kernel with these buffers. */
void strata_launch_set_buffers(strata_launch *launch, int n, const strata_tensor *const *buffers);
strata_launch strata_launch_with(const char *kernel, const char *variant, int n, const strata_tensor *const *buffers);
#define STRATA_BUFFERS(...)                                                                \
    (int)STRATA_COUNT(strata_tensor *const, __VA_ARGS__), (const strata_tensor *const[]) { \
        __VA_ARGS__                                                                        \
    }
#define STRATA_SET_BUFFERS(launch, ...)          strata_launch_set_buffers(launch, STRATA_BUFFERS(__VA_ARGS__))
#define STRATA_LAUNCH_WITH(kernel, variant, ...) strata_launch_with(kernel, variant, STRATA_BUFFERS(__VA_ARGS__))

/* A launch over an index space: the words that every strided kernel begins with (n, size_0..size_3), RANK, and the grid. */
STRATA_MUST_USE strata_status strata_launch_over(strata_launch *launch, const strata_strided *inner, strata_error *err);
/* Adds copies of the launch, whose buffers are the tensors of the space, for all of the space: with the words and constants of
 * strata_launch_over and the strides of the first n_strides tensors. */
STRATA_MUST_USE strata_status strata_strided_lower(const strata_launch *launch, const strata_strided *space, int n_strides,
                                                   strata_lowering *lowering, strata_error *err);
/* A launch over n elements in order: the word n and the grid. If the kernel has loops for each element, set `turns` to 0
 * afterwards. */
STRATA_MUST_USE strata_status strata_launch_flat(strata_launch *launch, int64_t n, strata_error *err);
/* "b8", "b16", "b32" or "b64": the variant of kernels that only move bits. */
const char *strata_bits_variant(strata_dtype dtype);
/* The variants of kernels that move bits, or compute floats, by indices of this dtype: "b32_i64", "f16_i32". */
const char *strata_bits_by_index_variant(strata_dtype dtype, strata_dtype indices);
const char *strata_floats_by_index_variant(strata_dtype dtype, strata_dtype indices);
/* Appends the two words of a constant element: its low and its high 32 bits. */
void strata_bits_words(strata_launch *launch, strata_dtype dtype, double value);
void strata_launch_constant_add(strata_launch *launch, const char *name, int32_t value);
strata_word *strata_launch_word(strata_launch *launch);

#endif
