/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory plan: which nodes run, in which order, and where each value lies. Works on sizes alone: no device memory is
 * touched here.
 *
 * Nouns. A *storage* is a block of bytes that one or more tensors share: a node's output with the views of it, a pack with the
 * tensors computed into it, an in-place chain. Its *life* is the span of schedule positions from the first node that writes it
 * to the last that reads it. Two storages of a work arena may share bytes only when their lives do not meet. */
#ifndef STRATA_CORE_PLAN_H
#define STRATA_CORE_PLAN_H

#include "core/compile/piece.h"

enum { STRATA_ARENA_INDEX_INPUT = 0, STRATA_ARENA_INDEX_OUTPUT = 1 };

typedef struct strata_storage {
    /* Index in plan->arenas. */
    int arena;
    int64_t offset, bytes;
    /* Life, in schedule positions; both ends included. */
    int first, last;
    /* The storage whose bytes this one took over at its first node; -1: none. */
    int in_place_of;
    /* Several segments use it: it lies in a CARRIED arena, else in a WORK arena. */
    bool carried;
} strata_storage;

/* One program's part of the schedule (core/compile/segments.h). Without communication nodes there is one. */
typedef struct strata_segment {
    /* The nodes [first, first + n) of the schedule. */
    int first, n;
    /* The sizes of its INPUT and OUTPUT arenas. */
    int64_t input_bytes, output_bytes;
} strata_segment;

/* A communication node: its operand, if it gives one, is in the OUTPUT arena of segment `after` (else -1), its result in the
 * INPUT arena of segment `before` (-1: nothing reads it). */
typedef struct strata_communication {
    const strata_tensor *node;
    int after, before;
} strata_communication;

typedef struct strata_plan {
    /* By tensor id; in arenas INPUT and OUTPUT: of the tensor's segment. */
    strata_place *places;
    int n_places;
    /* By tensor id: of what the host writes or reads. */
    int *segment_of;
    strata_segment *segments;
    int n_segments;
    /* The communication nodes, in the order in which they are carried out. */
    strata_communication *communications;
    int n_communications;
    /* Nodes to execute, in order. */
    strata_tensor **schedule;
    int n_schedule;
    /* Of the WORK and CARRIED arenas only: what the checker looks at. */
    strata_storage *storages;
    int n_storages;
    /* INPUT and OUTPUT (bytes: of all segments), then constants, work, variables; buffers still NULL. */
    strata_arena *arenas;
    /* By arena; NULL unless VARIABLE. */
    strata_variable **arena_variables;
    int n_arenas;
    /* Live inputs, in graph order. */
    strata_tensor **inputs;
    int n_inputs;
} strata_plan;

/* Plans what the roots need. Output tensors must be computed nodes, each different, no views or leaves (passes.c sees to it).
 *   max_arena_bytes  the largest range that a kernel binding may span; a tensor beyond it is UNSUPPORTED, and named */
STRATA_MUST_USE strata_status strata_plan_create(const strata_graph *graph, strata_tensor *const *outputs, int n_outputs,
                                                 strata_tensor *const *updates, int n_updates, int64_t max_arena_bytes,
                                                 strata_plan *out_plan, strata_error *err);
void strata_plan_finish(strata_plan *plan);

/* Bytes of all arenas of a kind; WORK counts the CARRIED ones too. */
int64_t strata_plan_bytes(const strata_plan *plan, strata_arena_kind kind);

/* INTERNAL, naming both, when two storages whose lives meet share bytes, or one leaves its arena. */
STRATA_MUST_USE strata_status strata_plan_check(const strata_plan *plan, strata_error *err);

#endif
