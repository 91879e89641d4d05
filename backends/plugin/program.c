/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of a plugin: a piece is passed to the plugin as tables (core/compile/describe.h), and the result is checked. */
#include <math.h>
#include <stdio.h>

#include "backends/plugin/plugin.h"
#include "core/compile/describe.h"

enum { ARENA_ALIGNMENT = 64 };

struct strata_program {
    plugin_device *device;
    strata_plugin_program *program;
    int n_nodes, n_slots;
    /* The ticket of its newest run; 0: it has not run. */
    uint64_t last_ticket;
    /* [2 slot + arena] The host memory of the INPUT and OUTPUT arenas; NULL for an arena of 0 bytes. */
    void **arenas;
};

static bool has_dtype(const plugin_device *device, const strata_tensor *tensor) {
    return device->base.info.dtypes >> tensor->dtype & 1;
}

strata_support strata_bridge_supports(strata_device *base, const strata_tensor *node, const char **reason) {
    plugin_device *device = (plugin_device *)base;
    *reason = "its dtype is not one that the device has";
    if (!has_dtype(device, node)) return STRATA_SUPPORT_NO;
    for (int i = 0; i < node->n_inputs; i++)
        if (!has_dtype(device, node->inputs[i])) return STRATA_SUPPORT_NO;
    if (device->lost || strata_bridge_is_gone(device)) return STRATA_SUPPORT_YES; /* compiling will fail, with the reason */

    strata_description description;
    *reason = "there is no host memory to ask its plugin";
    if (strata_describe_node(node, &description, NULL)) return STRATA_SUPPORT_NO;
    const char *said = NULL;
    STRATA_DRIVER_CALL(base, ASK);
    const strata_plugin_support support = device->calls.supports(device->device, &description.piece, 0, &said);
    strata_description_finish(&description);
    *reason = said ? said : "its plugin does not run it, and gives no reason";
    switch (support) {
        case STRATA_PLUGIN_NO:
            return STRATA_SUPPORT_NO;
        case STRATA_PLUGIN_YES:
            return STRATA_SUPPORT_YES;
        case STRATA_PLUGIN_PARTS:
            return STRATA_SUPPORT_PARTS;
        default:
            *reason = "its plugin's supports returned a number that plugin.h does not have";
            return STRATA_SUPPORT_NO;
    }
}

/* ---- compile ---- */

static strata_plugin_buffer *buffer_of(const strata_buffer *buffer) {
    return buffer->buffer;
}

static strata_status take_arenas(strata_program *program, const strata_piece *piece, strata_error *err) {
    plugin_device *device = program->device;
    STRATA_DRIVER_CALL(&device->base, ASK);
    for (int i = 0; i < 2 * program->n_slots; i++) {
        const int slot = i / 2, arena = i % 2;
        if (!piece->arenas[arena].bytes) continue;
        void *memory = arena == STRATA_ARENA_INPUT ? device->calls.program_input(program->program, slot)
                                                   : (void *)device->calls.program_output(program->program, slot);
        if (!memory || (uintptr_t)memory % ARENA_ALIGNMENT)
            return strata_bridge_broke(device, err,
                                       "program_%s of slot %d is %p; it must be memory of %lld bytes, aligned to %d",
                                       arena == STRATA_ARENA_INPUT ? "input" : "output", slot, memory,
                                       (long long)piece->arenas[arena].bytes, ARENA_ALIGNMENT);
        program->arenas[i] = memory;
    }
    return STRATA_OK;
}

typedef struct compile_call {
    const strata_plugin_device_calls *calls;
    strata_plugin_device *device;
    const strata_plugin_piece *piece;
    strata_plugin_program *program;
    strata_plugin_status status;
    strata_plugin_error message;
} compile_call;

static void run_compile(void *user) {
    compile_call *call = user;
    call->status = call->calls->compile(call->device, call->piece, &call->program, &call->message);
}

/* A compiler may take minutes, so it runs with a limit. If it is abandoned, it may still read the description, which therefore
 * owns all of its memory and is not freed. */
static strata_status compile_with_limit(strata_program *program, const strata_piece *piece, strata_error *err) {
    plugin_device *device = program->device;
    strata_description *description = NULL;
    STRATA_TRY(STRATA_NEW(description, 1, err, "%s: no host memory to compile", device->base.info.id));
    strata_status status = strata_describe(piece, buffer_of, description, err);
    if (!status) status = strata_description_own(description, err);
    if (status) {
        strata_description_finish(description);
        free(description);
        return status;
    }
    char name[64];
    snprintf(name, sizeof name, "a program of %d node%s", piece->n_nodes, piece->n_nodes == 1 ? "" : "s");
    compile_call call = {.calls = &device->calls,
                         .device = device->device,
                         .piece = &description->piece,
                         .message = {.size = sizeof call.message}};
    STRATA_TRY(strata_driver_compile_run(&device->base, name, 0, run_compile, &call, sizeof call, err));
    strata_description_finish(description);
    free(description);
    STRATA_TRY(strata_bridge_result(device, "compile", call.status, &call.message, err));
    program->program = call.program;
    return STRATA_OK;
}

static strata_status make_program(strata_program *program, const strata_piece *piece, strata_error *err) {
    plugin_device *device = program->device;
    STRATA_TRY(compile_with_limit(program, piece, err));
    if (!program->program) return strata_bridge_broke(device, err, "compile succeeded, and its program is NULL");
    STRATA_TRY(take_arenas(program, piece, err));
    STRATA_TRY(strata_bridge_reserve_tickets(device, piece->n_slots, err));
    program->n_slots = piece->n_slots;
    return STRATA_OK;
}

strata_status strata_bridge_compile(strata_device *base, const strata_piece *piece, strata_program **out_program,
                                    strata_error *err) {
    plugin_device *device = (plugin_device *)base;
    STRATA_TRY(strata_bridge_check_lost(device, err));
    strata_program *program = calloc(1, sizeof *program);
    if (program) program->arenas = calloc(2 * (size_t)piece->n_slots + 1, sizeof(*program->arenas));
    if (!program || !program->arenas) {
        free(program);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for a program of %d nodes", base->info.id,
                           piece->n_nodes);
    }
    program->device = device;
    program->n_nodes = piece->n_nodes;
    program->n_slots = piece->n_slots;
    strata_status status = make_program(program, piece, err);
    if (status) {
        program->n_slots = 0; /* no tickets were reserved for it */
        strata_bridge_program_destroy(program);
        return status;
    }
    base->counters.compilations++;
    *out_program = program;
    return STRATA_OK;
}

/* Whether all runs of the program have ended. It waits for those that have not, unless the device is lost or hangs. */
static bool has_ended(const strata_program *program) {
    plugin_device *device = program->device;
    if (strata_bridge_is_gone(device)) return false;
    if (!device->lost && strata_bridge_await(device, program->last_ticket, 0, NULL)) return false;
    return !device->n_pending || program->last_ticket < device->pending[0];
}

void strata_bridge_program_destroy(strata_program *program) {
    if (!program) return;
    if (program->program && has_ended(program)) {
        STRATA_DRIVER_CALL(&program->device->base, FREE);
        program->device->calls.program_destroy(program->program);
    }
    program->device->n_slots -= program->n_slots;
    free(program->arenas);
    free(program);
}

/* ---- costs, which the plugin reports in its table "costs" ---- */

/* The reported number, or 0 (not known) if it cannot be a cost. Reported numbers may be wrong. */
static double known(double x) {
    return isfinite(x) && x > 0 ? x : 0;
}

strata_status strata_bridge_cost(plugin_device *device, strata_plugin_program *program, int node, strata_device_cost *out_cost,
                                 strata_error *err) {
    strata_plugin_costs costs = {0};
    strata_plugin_cost cost = {.size = sizeof cost};
    strata_plugin_error message = {.size = sizeof message};
    *out_cost = (strata_device_cost){0};
    STRATA_TRY(strata_bridge_check_lost(device, err));
    STRATA_DRIVER_CALL(&device->base, ASK);
    const strata_plugin_costs *given = device->calls.table ? device->calls.table(device->device, "costs") : NULL;
    if (!given) return STRATA_OK;
    if (given->size < sizeof given->size)
        return strata_bridge_broke(device, err, "its table \"costs\" says size %zu", given->size);
    strata_bridge_copy_struct(&costs, sizeof costs, given);
    if (node < 0 && !costs.program)
        return strata_bridge_broke(device, err, "its table \"costs\" has NULL in the required slot program");
    if (node >= 0 && !costs.node) return STRATA_OK;
    const strata_plugin_status status =
        node < 0 ? costs.program(program, &cost, &message) : costs.node(program, node, &cost, &message);
    STRATA_TRY(strata_bridge_result(device, "costs", status, &message, err));
    *out_cost = (strata_device_cost){.seconds = known(cost.seconds),
                                     .cycles = known(cost.cycles),
                                     .bytes = known(cost.bytes),
                                     .utilisation = known(cost.utilisation) <= 1 ? known(cost.utilisation) : 0,
                                     .work_bytes = known((double)cost.work_bytes)};
    return STRATA_OK;
}

strata_status strata_bridge_program_cost(strata_program *program, int node, strata_device_cost *out_cost, strata_error *err) {
    return strata_bridge_cost(program->device, program->program, node, out_cost, err);
}

/* ---- running ---- */

void *strata_bridge_program_input(strata_program *program, int slot) {
    return program->arenas[2 * slot + STRATA_ARENA_INPUT];
}

const void *strata_bridge_program_output(strata_program *program, int slot) {
    return program->arenas[2 * slot + STRATA_ARENA_OUTPUT];
}

strata_status strata_bridge_run_many(strata_program *program, int first, int n, uint64_t *out_ticket, strata_error *err) {
    plugin_device *device = program->device;
    strata_plugin_error message = {.size = sizeof message};
    uint64_t ticket = 0;
    STRATA_TRY(strata_bridge_check_lost(device, err));
    STRATA_TRY(strata_bridge_make_room(device, err));
    STRATA_DRIVER_RUNS(&device->base, SUBMIT, n);
    STRATA_TRY(
        strata_bridge_result(device, "run", device->calls.run(program->program, first, n, &ticket, &message), &message, err));
    STRATA_TRY(strata_bridge_submitted(device, "run", ticket, err));
    program->last_ticket = ticket;
    if (n > device->longest_call) device->longest_call = n;
    device->base.counters.launches += (uint64_t)program->n_nodes * (uint64_t)n;
    device->base.counters.submissions++;
    *out_ticket = ticket;
    return STRATA_OK;
}

strata_status strata_bridge_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err) {
    return strata_bridge_run_many(program, slot, 1, out_ticket, err);
}
