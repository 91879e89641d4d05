/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of kernels from shaders/, described in terms of tensors and independent of OpenCL and Vulkan. An op's function
 * `lower` makes them; backends/kernel assigns buffers and offsets to their tensors, and the backends record them.
 * shaders/README.md describes how arguments are passed to kernels. */
#ifndef STRATA_CORE_LAUNCH_H
#define STRATA_CORE_LAUNCH_H

#include "core/graph/graph.h"

enum {
    STRATA_LAUNCH_BUFFERS = 8,
    STRATA_LAUNCH_WORDS = 32, /* 128 bytes of push constants, the buffers' offsets included */
    STRATA_LAUNCH_CONSTANTS = 24,
    /* The work-items of a group on a GPU that is emulated on a CPU, if the launch does not set their number. */
    STRATA_LAUNCH_SOFTWARE_LOCAL = 64
};

/* One scalar argument of a kernel, 32 bits. */
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

/* One launch. Zero-initialize it, set the fields, and pass it to strata_lowering_add. */
typedef struct strata_launch {
    /* The kernel's file name in shaders/ without the ending, static memory: "softmax" or "cpu/matmul". */
    const char *kernel;
    /* Which dtype variant of the kernel, static memory: "f32"; NULL: the kernel has only one. */
    const char *variant;

    int n_buffers;
    /* The tensors that the kernel reads and writes; NULL: the node's scratch buffer. */
    const strata_tensor *buffers[STRATA_LAUNCH_BUFFERS];
    /* The first element that the kernel uses, counted from the tensor's first element. */
    int64_t offsets[STRATA_LAUNCH_BUFFERS];
    /* How many elements the kernel uses from there on; 0: up to the tensor's end. */
    int64_t extents[STRATA_LAUNCH_BUFFERS];
    /* Bit i: the kernel writes buffers[i] (it may read it too). */
    unsigned writes;

    /* The kernel's scalar arguments ("words"). The backend puts the n_buffers offsets before them. */
    int n_words;
    strata_word words[STRATA_LAUNCH_WORDS];

    int n_constants;
    /* Specialization constants, except LOCAL_X and LOCAL_Y, which the backend sets. */
    strata_launch_constant constants[STRATA_LAUNCH_CONSTANTS];

    /* The number of work-items in x and y (y 0: one-dimensional). The backend rounds up to whole work-groups, and may launch
     * fewer if grid_stride is set. */
    int64_t global[2];
    /* The size of a work-group; 0: the backend chooses. */
    int local[2];
    /* The kernel loops over its index space in steps of the number of launched work-items, so any number of work-items is
     * correct. */
    bool grid_stride;
    /* With grid_stride: the most iterations of inner loops that a work-item makes for one element of the index space, in
     * groups of STRATA_LAUNCH_SOFTWARE_LOCAL work-items if the group computes the element together; 0: not known. Some
     * devices cannot run long loops (strata_launch_ends_early). */
    int turns;
    /* With grid_stride: each work-group reads a whole input, so few groups are better; on a CPU, one for each core. */
    bool few_groups;
} strata_launch;

/* The launches of one node, in the order in which they run. Zero-initialize; strata_lowering_finish frees what was added. */
struct strata_lowering {
    strata_launch *launches;
    int n;
    /* Bytes of scratch memory that the launches share. */
    int64_t scratch_bytes;
};

/* Appends a copy of the launch, unless it has no work-items. */
strata_status strata_lowering_add(strata_lowering *lowering, const strata_launch *launch, strata_error *err);
/* Reserves a scratch buffer of at least `bytes` for the launches of this node. Its elements have 4 bytes; its initial contents
 * are undefined. */
void strata_lowering_scratch(strata_lowering *lowering, int64_t bytes);
void strata_lowering_finish(strata_lowering *lowering);

/* The index space of up to 8 tensors of one broadcast shape. strides[t][d] is in elements, and 0 where tensor t is
 * broadcast; d = 0 is the outermost axis. strata_strided_merge makes the number of axes as small as possible: it drops
 * axes of size 1, and merges neighbouring axes if the strides of all tensors allow it. Kernels handle 4 axes;
 * strata_strided_split makes separate launches for each combination of the other axes. */
enum { STRATA_STRIDED_TENSORS = 8, STRATA_STRIDED_KERNEL_AXES = 4 };
typedef struct strata_strided {
    /* 1..STRATA_MAX_RANK after merging. */
    int rank;
    int64_t sizes[STRATA_MAX_RANK];
    int n_tensors;
    int64_t strides[STRATA_STRIDED_TENSORS][STRATA_MAX_RANK];
} strata_strided;

/* The strides of a row-major tensor of shape `from` that is broadcast to `shape` (0 along broadcast axes). The shapes
 * must be broadcastable. */
void strata_broadcast_strides(strata_shape from, strata_shape shape, int64_t *out_strides);
/* Merges axes in place. */
void strata_strided_merge(strata_strided *space);
/* For references: calls `visit` for each row along the last axis, with the offset of its first element in each tensor, in
 * elements. */
void strata_strided_rows(const strata_strided *space,
                         void (*visit)(const strata_strided *space, const int64_t *offsets, void *user), void *user);
/* Calls `visit` once for each combination of the axes outside of the innermost 4, with the offset of each tensor there,
 * in elements, and `inner`, a space of exactly 4 axes (with axes of size 1 in front if there are fewer). Stops at the
 * first failure. */
strata_status strata_strided_split(const strata_strided *space,
                                   strata_status (*visit)(const strata_strided *inner, const int64_t *offsets, void *user,
                                                          strata_error *err),
                                   void *user, strata_error *err);

#endif
