/* SPDX-License-Identifier: Apache-2.0
 *
 * The device table: what a backend fills in for a kind of device, and the piece of a graph that it compiles. Users see
 * strata/device.h. Every call returns a status and a message; none aborts, prints, or falls back in silence. A backend is a
 * folder in backends/ and a row in backends/registry.c; tests/conformance runs over every device of every row. */
#ifndef STRATA_CORE_DEVICE_H
#define STRATA_CORE_DEVICE_H

#include "core/compile/piece.h"
#include "core/graph/variable.h"
#include "strata/device.h"

struct strata_device_list;
typedef struct strata_program strata_program; /* a compiled piece; the backend's struct */

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
    /* Whether compile would take this node, by its op, attributes, dtypes and shapes alone: the node may be one that is only
     * asked about. If not, *reason (static memory) says why. */
    strata_support (*supports)(strata_device *device, const strata_tensor *node, const char **reason);
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
    /* The backend counts in these. */
    strata_device_counters counters;
    /* The backend plans the memory of temporaries by itself: WORK arenas have no buffer. */
    bool plans_temporaries;
    /* It takes constants from their nodes: CONSTANT arenas have no buffer. */
    bool keeps_constants;
};

typedef struct strata_device_list {
    strata_device_info *rows;
    int n, capacity;
} strata_device_list;
strata_status strata_device_list_add(strata_device_list *list, const strata_device_info *row, strata_error *err);

#endif
