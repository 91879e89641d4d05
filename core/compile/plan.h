/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory plan: which nodes run, in which order, and at which place in memory each value is. It computes with sizes only and
 * does not access a device.
 *
 * Nouns. A *storage* is a block of bytes that one or more tensors share: a node's output with the views of it, a pack with the
 * tensors computed into it, an in-place chain. Its *life* is the span of schedule positions from the first node that writes it
 * to the last that reads it. Two storages of a work arena may share bytes only when their lives do not meet. */
#ifndef STRATA_CORE_PLAN_H
#define STRATA_CORE_PLAN_H

#include "core/compile/piece.h"
#include "core/compile/walk.h"

enum { STRATA_ARENA_INDEX_INPUT = 0, STRATA_ARENA_INDEX_OUTPUT = 1 };

typedef struct strata_storage {
    /* The tensor whose memory it is, of which the others are parts. */
    const strata_tensor *owner;
    /* Index in plan->arenas. */
    int arena;
    int64_t offset, bytes;
    /* The life: the first and the last schedule position at which it is used. */
    int first, last;
    /* The storage whose bytes this one reuses in place, at its first node; -1: none. */
    int in_place_of;
    /* Several segments use it, so it is in a CARRIED arena instead of a WORK arena. */
    bool carried;
} strata_storage;

/* One program's part of the schedule (core/compile/segments.c). Without communication nodes there is one. */
typedef struct strata_segment {
    /* The nodes [first, first + n) of the schedule. */
    int first, n;
    /* The sizes of its INPUT and OUTPUT arenas. */
    int64_t input_bytes, output_bytes;
} strata_segment;

/* A communication node. Its operand is in the OUTPUT arena of segment `after` (-1: it contributes no operand), its
 * result in the INPUT arena of segment `before` (-1: nothing reads it). */
typedef struct strata_communication {
    const strata_tensor *node;
    int after, before;
} strata_communication;

typedef struct strata_plan {
    /* By tensor id. A place in an INPUT or OUTPUT arena refers to the arena of the tensor's segment. */
    strata_place *places;
    int n_places;
    /* By tensor id, for values that the host writes or reads: their segment. */
    int *segment_of;
    strata_segment *segments;
    int n_segments;
    /* The communication nodes, in the order in which they are performed. */
    strata_communication *communications;
    int n_communications;
    /* Nodes to execute, in order. */
    strata_tensor **schedule;
    int n_schedule;
    /* The storages in WORK and CARRIED arenas, which strata_plan_check checks. */
    strata_storage *storages;
    int n_storages;
    /* INPUT and OUTPUT (bytes: the total of all segments), then constants, work, variables. Buffers are NULL at first. */
    strata_arena *arenas;
    /* By arena: the variable of a VARIABLE arena, else NULL. */
    strata_variable **arena_variables;
    int n_arenas;
    /* The graph's inputs that are needed, in the order of their creation. */
    strata_tensor **inputs;
    int n_inputs;
} strata_plan;

/* Plans the nodes that the draft's outputs and updates need, in memory of its graph. Outputs must be different computed nodes,
 * no views or leaves (passes.c ensures this).
 *   max_arena_bytes  the largest range that a kernel binding may span; a tensor beyond it is UNSUPPORTED, and named */
STRATA_MUST_USE strata_status strata_plan_create(const strata_draft *draft, int64_t max_arena_bytes, strata_plan *plan,
                                                 strata_error *err);

/* The total bytes of all arenas of a kind, at most INT64_MAX; WORK includes the CARRIED ones. */
int64_t strata_plan_bytes(const strata_plan *plan, strata_arena_kind kind);

/* Checks the plan. Fails: INTERNAL, with both storages, when two storages whose lives overlap share bytes, or when a storage
 * exceeds its arena. */
STRATA_MUST_USE strata_status strata_plan_check(const strata_plan *plan, strata_error *err);

#endif
