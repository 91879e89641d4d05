/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs. The null backend's program has only the memory of the slots and the number of nodes. */
#include <stdlib.h>

#include "backends/null/null.h"

struct strata_program {
    null_device *device;
    int n_nodes, n_slots;
    /* [2 slot + kind] The INPUT and OUTPUT arena of each slot; NULL for an arena of 0 bytes. */
    void **arenas;
};

strata_support strata_null_supports(strata_device *device, const strata_tensor *node, const char **reason) {
    (void)device;
    *reason = "the op has no reference";
    return node->op->reference ? STRATA_SUPPORT_YES : STRATA_SUPPORT_NO;
}

/* Here a backend compiles piece->nodes. piece->places has the arena and the offset of each tensor's bytes. */
strata_status strata_null_compile(strata_device *device, const strata_piece *piece, strata_program **out_program,
                                  strata_error *err) {
    strata_program *program = calloc(1, sizeof *program);
    if (program) {
        program->device = (null_device *)device;
        program->n_nodes = piece->n_nodes;
        program->n_slots = piece->n_slots;
        program->arenas = calloc(2 * (size_t)piece->n_slots, sizeof *program->arenas);
    }
    bool made = program && program->arenas;
    for (int i = 0; made && i < 2 * piece->n_slots; i++) {
        const int64_t bytes = piece->arenas[i % 2].bytes;
        if (bytes) made = (program->arenas[i] = calloc(1, (size_t)bytes)) != NULL;
        if (bytes) device->counters.allocations++;
    }
    if (!made) {
        strata_null_program_destroy(program);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "null: no memory for a program of %d nodes", piece->n_nodes);
    }
    device->counters.compilations++;
    *out_program = program;
    return STRATA_OK;
}

void strata_null_program_destroy(strata_program *program) {
    if (!program) return;
    for (int i = 0; program->arenas && i < 2 * program->n_slots; i++) free(program->arenas[i]);
    free(program->arenas);
    free(program);
}

void *strata_null_program_input(strata_program *program, int slot) {
    return program->arenas[2 * slot + STRATA_ARENA_INPUT];
}

const void *strata_null_program_output(strata_program *program, int slot) {
    return program->arenas[2 * slot + STRATA_ARENA_OUTPUT];
}

/* Here a backend submits the program and counts what it launched. */
strata_status strata_null_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err) {
    (void)slot;
    (void)err;
    program->device->base.counters.launches += (uint64_t)program->n_nodes;
    program->device->base.counters.submissions++;
    *out_ticket = ++program->device->last_ticket;
    return STRATA_OK;
}
