/* SPDX-License-Identifier: Apache-2.0
 *
 * The device table: what a backend fills in for a kind of device, and the piece of a graph that it compiles. Users see
 * strata/device.h. Every call returns a status and a message; none aborts, prints, or falls back in silence. A backend is a
 * folder in backends/ and a row in backends/registry.c; tests/conformance runs over every device of every row. */
#ifndef STRATA_CORE_DEVICE_H
#define STRATA_CORE_DEVICE_H

#include "core/graph/graph.h"
#include "strata/device.h"

struct strata_device_list;
typedef struct strata_buffer strata_buffer;   /* device memory; the backend's struct */
typedef struct strata_program strata_program; /* a compiled piece; the backend's struct */

/* Where a tensor's bytes are: an arena of the piece and an offset in it. Views share their input's place. */
typedef struct strata_place {
    int arena;      /* index in piece->arenas; -1: the tensor is not needed */
    int64_t offset; /* bytes; a multiple of STRATA_PLACE_ALIGNMENT except inside a pack or a view */
    int64_t bytes;
} strata_place;

enum { STRATA_PLACE_ALIGNMENT = 256 };

typedef enum strata_arena_kind {
    STRATA_ARENA_INPUT = 0, /* one a piece, index 0, maybe of 0 bytes: what the host writes, per slot; made by the program   */
    STRATA_ARENA_OUTPUT,    /* one a piece, index 1, maybe of 0 bytes: what the host reads, per slot; made by the program    */
    STRATA_ARENA_WORK,     /* temporaries; shared by all slots, since runs follow one another                                 */
    STRATA_ARENA_CONSTANT, /* uploaded before the piece is compiled, never written                                            */
    STRATA_ARENA_VARIABLE  /* a variable's own buffer                                                                         */
} strata_arena_kind;

typedef struct strata_arena {
    strata_arena_kind kind;
    int64_t bytes;         /* at most the device's max_range_bytes and max_allocation_bytes */
    strata_buffer *buffer; /* borrowed; NULL for INPUT and OUTPUT */
} strata_arena;

/* A piece of graph with its memory: what a device compiles into a program. Borrowed during compile, except the buffers, which
 * outlive the program, and the graph with its nodes, which lives as long too. */
typedef struct strata_piece {
    const strata_tensor *const *nodes; /* what to execute, in order; leaves and views are left out */
    int n_nodes;
    const strata_place *places; /* by tensor id */
    int n_places;
    const strata_arena *arenas;
    int n_arenas;
    int n_slots; /* copies of the INPUT and OUTPUT arenas */
} strata_piece;

typedef struct strata_device_api {
    /* Waits for what runs, frees the device. */
    void (*close)(strata_device *device);

    /* ---- memory ---- */
    /* `bytes` > 0 of zeros. OUT_OF_MEMORY: bytes wanted and, where known, free. */
    strata_status (*buffer_create)(strata_device *device, int64_t bytes, strata_buffer **out_buffer, strata_error *err);
    void (*buffer_destroy)(strata_device *device, strata_buffer *buffer); /* no program that uses it may be running */
    /* Both are ordered after every program submitted before, and done when they return. */
    strata_status (*upload)(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source, int64_t bytes,
                            strata_error *err);
    strata_status (*download)(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                              strata_error *err);

    /* ---- programs ---- */
    /* Whether compile would take this node; if not, *reason (static memory) says why. */
    bool (*supports)(strata_device *device, const strata_tensor *node, const char **reason);
    strata_status (*compile)(strata_device *device, const strata_piece *piece, strata_program **out_program, strata_error *err);
    void (*program_destroy)(strata_program *program); /* none of its runs may be going on */
    /* Host memory of a slot's INPUT or OUTPUT arena, stable for the program's life. The host may touch a slot's only while the
     * slot is not running (before run, or after wait on its ticket). NULL when the arena has 0 bytes. */
    void *(*program_input)(strata_program *program, int slot);
    const void *(*program_output)(strata_program *program, int slot);
    /* Submits one run on a slot, after all submitted before on the device, and returns at once. *out_ticket is larger than
     * every ticket before it on this device. Allocates nothing, compiles nothing. */
    strata_status (*run)(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err);
    /* Blocks, without spinning, until the run with that ticket, and so all before it, is done. DEVICE_LOST when it can't be. */
    strata_status (*wait)(strata_device *device, uint64_t ticket, strata_error *err);
} strata_device_api;

/* First member of every backend's device struct. */
struct strata_device {
    const strata_device_api *api;
    strata_device_info info;
    strata_device_counters counters; /* kept by the backend */
};

typedef struct strata_device_list {
    strata_device_info *rows;
    int n, capacity;
} strata_device_list;
strata_status strata_device_list_add(strata_device_list *list, const strata_device_info *row, strata_error *err);

/* A variable: one buffer on one device (strategies make copies on others). */
struct strata_variable {
    strata_device *device;
    char *name;
    strata_dtype dtype;
    strata_shape shape;
    strata_buffer *buffer;
};

#endif
