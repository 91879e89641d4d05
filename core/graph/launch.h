/* SPDX-License-Identifier: Apache-2.0
 *
 * What an op asks of a kernel device: launches of kernels from shaders/, in terms of tensors, before any API is known.
 * The op's `lower` makes them; backends/kernel places them in buffers and records them. The launch ABI (buffers whole, element
 * offsets first among the words) is told in shaders/README.md. */
#ifndef STRATA_CORE_LAUNCH_H
#define STRATA_CORE_LAUNCH_H

#include "core/graph/graph.h"

enum {
    STRATA_LAUNCH_BUFFERS = 8,
    STRATA_LAUNCH_WORDS = 32, /* 128 bytes of push constants, the buffers' offsets included */
    STRATA_LAUNCH_CONSTANTS = 24
};

/* One kernel argument word. */
typedef union strata_word {
    uint32_t u32;
    int32_t i32;
    float f32;
} strata_word;

typedef struct strata_launch_constant {
    /* The specialization constant's name in the kernel's file; static memory. */
    const char *name;
    int32_t value;
} strata_launch_constant;

/* One launch. Zero-initialize, fill, hand to strata_lowering_add. */
typedef struct strata_launch {
    /* Stem in shaders/, static memory: "softmax" or "cpu/matmul". */
    const char *kernel;
    /* Which dtype variant of the kernel, static memory: "f32"; NULL: the kernel has only one. */
    const char *variant;

    int n_buffers;
    /* NULL: the lowering's scratch buffer. */
    const strata_tensor *buffers[STRATA_LAUNCH_BUFFERS];
    /* First element, counted from the tensor's own first element. */
    int64_t offsets[STRATA_LAUNCH_BUFFERS];
    /* Elements touched from there on; 0: up to the tensor's end. */
    int64_t extents[STRATA_LAUNCH_BUFFERS];
    /* Bit i: the kernel writes buffers[i] (it may read it too). */
    unsigned writes;

    /* The kernel's own words, after the n_buffers offsets that the backend puts first. */
    int n_words;
    strata_word words[STRATA_LAUNCH_WORDS];

    int n_constants;
    /* Besides LOCAL_X and LOCAL_Y, which the backend sets. */
    strata_launch_constant constants[STRATA_LAUNCH_CONSTANTS];

    /* work-items wanted in x and y (y 0: one-dimensional); the backend rounds up to whole work-groups, and may launch fewer
     * where the kernel loops (grid-stride). */
    int64_t global[2];
    /* work-group size wanted; 0: the backend chooses. */
    int local[2];
    /* The kernel strides over its index space by the launched size, so fewer work-items do as well. */
    bool grid_stride;
    /* With grid_stride: of its loops that a work-item makes for one element of the grid, at most; 0: not known. */
    int turns;
    /* With grid_stride: each group goes through a whole input, however few there are; a CPU takes one a core. */
    bool few_groups;
} strata_launch;

/* The launches of one node, in the order in which they run. Zero-initialize; strata_lowering_finish frees what was added. */
struct strata_lowering {
    strata_launch *launches;
    int n, capacity;
    /* Bytes of scratch memory that the launches share. */
    int64_t scratch_bytes;
};

/* Appends a copy of the launch. */
strata_status strata_lowering_add(strata_lowering *lowering, const strata_launch *launch, strata_error *err);
/* Asks for a scratch buffer of at least `bytes` during this node; its elements are 4 bytes, its contents undefined at first. */
void strata_lowering_scratch(strata_lowering *lowering, int64_t bytes);
void strata_lowering_finish(strata_lowering *lowering);

/* The index spaces of up to 8 tensors of one broadcast shape, with as few axes as possible: axes along which all of them stay
 * regular are merged, axes of size 1 dropped. strides[t][d] is in elements, 0 where tensor t is broadcast. d = 0 is outermost.
 *   shape      the (broadcast) index space        strides  of tensor t for each axis of shape, row-major or given
 * Kernels take 4 axes: strata_strided_split walks whatever is left outside as separate launches. */
enum { STRATA_STRIDED_TENSORS = 8, STRATA_STRIDED_KERNEL_AXES = 4 };
typedef struct strata_strided {
    /* 1..STRATA_MAX_RANK after merging. */
    int rank;
    int64_t sizes[STRATA_MAX_RANK];
    int n_tensors;
    int64_t strides[STRATA_STRIDED_TENSORS][STRATA_MAX_RANK];
} strata_strided;

/* Row-major strides of `from` seen as broadcast to `shape` (0 along broadcast axes). The shapes must be broadcastable. */
void strata_broadcast_strides(strata_shape from, strata_shape shape, int64_t *out_strides);
/* Merges axes in place. */
void strata_strided_merge(strata_strided *space);
/* Calls visit once for each combination of the axes outside the innermost 4, with the element offset of each tensor there and
 * `inner`, a space of exactly 4 axes (leading ones of size 1). Stops at the first failure. */
strata_status strata_strided_split(const strata_strided *space,
                                   strata_status (*visit)(const strata_strided *inner, const int64_t *offsets, void *user,
                                                          strata_error *err),
                                   void *user, strata_error *err);

#endif
