/* SPDX-License-Identifier: Apache-2.0
 *
 * A piece: the part of a graph that one device compiles to one program, with the memory of each tensor. */
#ifndef STRATA_CORE_PIECE_H
#define STRATA_CORE_PIECE_H

#include "core/graph/graph.h"
#include "core/graph/variable.h"

/* The memory of a tensor: an arena of the piece and an offset in it. A view has the memory of its input. */
typedef struct strata_place {
    /* Index in piece->arenas; -1: the tensor is not needed. */
    int arena;
    /* In bytes; a multiple of STRATA_PLACE_ALIGNMENT except inside a pack or a view. */
    int64_t offset;
    int64_t bytes;
} strata_place;

enum { STRATA_PLACE_ALIGNMENT = 256 };

/* Whether a device supports a node. The first three values are those of strata_plugin_support. */
typedef enum strata_support {
    STRATA_SUPPORT_NO = 0,
    STRATA_SUPPORT_YES = 1,
    /* It supports the node, but runs the node's parts (strata_op.compose, or the nodes that were fused) faster. */
    STRATA_SUPPORT_PARTS = 2,
    /* The host runs the node for the device, which needs copies (backends/fallback/). */
    STRATA_SUPPORT_HOST = 3
} strata_support;

typedef enum strata_arena_kind {
    /* Values that the host writes. Each piece has one, with index 0, which may have 0 bytes. The program creates its memory,
     * once for each slot. */
    STRATA_ARENA_INPUT = 0,
    /* Values that the host reads; the same, with index 1. */
    STRATA_ARENA_OUTPUT,
    /* Temporaries. All slots share the memory, since runs do not overlap. Without a buffer if the device plans its temporaries
     * itself. */
    STRATA_ARENA_WORK,
    /* Like WORK, for values that one piece of a graph computes and a later piece reads. */
    STRATA_ARENA_CARRIED,
    /* Constants: uploaded before the piece is compiled, never written. */
    STRATA_ARENA_CONSTANT,
    /* The buffer of a variable. */
    STRATA_ARENA_VARIABLE
} strata_arena_kind;

typedef struct strata_arena {
    strata_arena_kind kind;
    /* At most the device's max_range_bytes and max_allocation_bytes. */
    int64_t bytes;
    /* Borrowed; NULL for INPUT and OUTPUT. */
    strata_buffer *buffer;
} strata_arena;

/* A piece. It is borrowed during compile, except for the buffers and the nodes' graph, which outlive the program. */
typedef struct strata_piece {
    /* The nodes to run, in order, without leaves and views. */
    const strata_tensor *const *nodes;
    int n_nodes;
    /* Indexed by the tensor's id. */
    const strata_place *places;
    int n_places;
    const strata_arena *arenas;
    int n_arenas;
    /* How many copies of the INPUT and OUTPUT arenas there are. */
    int n_slots;
} strata_piece;

#endif
