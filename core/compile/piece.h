/* SPDX-License-Identifier: Apache-2.0
 *
 * A piece: the part of a graph that one device compiles into one program, with the memory of each of its tensors. */
#ifndef STRATA_CORE_PIECE_H
#define STRATA_CORE_PIECE_H

#include "core/graph/graph.h"
#include "core/graph/variable.h"

/* Where a tensor's bytes are: an arena of the piece and an offset in it. Views share their input's place. */
typedef struct strata_place {
    /* Index in piece->arenas; -1: the tensor is not needed. */
    int arena;
    /* bytes; a multiple of STRATA_PLACE_ALIGNMENT except inside a pack or a view. */
    int64_t offset;
    int64_t bytes;
} strata_place;

enum { STRATA_PLACE_ALIGNMENT = 256 };

/* What a device answers when it is asked whether it runs a node. The first three have the numbers of strata_plugin_support. */
typedef enum strata_support {
    STRATA_SUPPORT_NO = 0,
    STRATA_SUPPORT_YES = 1,
    /* It runs the node, and runs the node's parts (strata_op.compose, or what was fused) better. */
    STRATA_SUPPORT_PARTS = 2,
    /* It has the node run by the host, which costs copies (backends/fallback/). */
    STRATA_SUPPORT_HOST = 3
} strata_support;

typedef enum strata_arena_kind {
    STRATA_ARENA_INPUT = 0, /* one a piece, index 0, maybe of 0 bytes: what the host writes, per slot; made by the program   */
    STRATA_ARENA_OUTPUT,    /* one a piece, index 1, maybe of 0 bytes: what the host reads, per slot; made by the program    */
    STRATA_ARENA_WORK,      /* temporaries; shared by all slots, since runs follow one another; no buffer for a device that
                              plans its temporaries by itself                                                              */
    STRATA_ARENA_CARRIED,  /* as WORK, of values that one piece of a graph computes and a later one reads                     */
    STRATA_ARENA_CONSTANT, /* uploaded before the piece is compiled, never written                                            */
    STRATA_ARENA_VARIABLE  /* a variable's own buffer                                                                         */
} strata_arena_kind;

typedef struct strata_arena {
    strata_arena_kind kind;
    /* At most the device's max_range_bytes and max_allocation_bytes. */
    int64_t bytes;
    /* Borrowed; NULL for INPUT and OUTPUT. */
    strata_buffer *buffer;
} strata_arena;

/* A piece of graph with its memory: what a device compiles into a program. Borrowed during compile, except the buffers, which
 * outlive the program, and the graph with its nodes, which lives as long too. */
typedef struct strata_piece {
    /* What to execute, in order; leaves and views are left out. */
    const strata_tensor *const *nodes;
    int n_nodes;
    /* Indexed by the tensor's id. */
    const strata_place *places;
    int n_places;
    const strata_arena *arenas;
    int n_arenas;
    /* Copies of the INPUT and OUTPUT arenas. */
    int n_slots;
} strata_piece;

#endif
