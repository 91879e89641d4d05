/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs: the module of a piece, compiled by the plugin, and its runs. A run creates buffers for the inputs that the
 * host wrote and uses the buffers of all other parameters where they are. Results become regions of their buffers;
 * results that the host reads are copied to the slot's memory after the run. */
#include <stdio.h>

#include "backends/pjrt/pjrt.h"

typedef struct slot {
    /* [STRATA_ARENA_INPUT or OUTPUT] The slot's host memory; NULL for 0 bytes. */
    char *memory[2];
    pjrt_run run;
} slot;

struct strata_program {
    pjrt_device *device;
    pjrt_module module;
    pjrt_api_loaded *loaded;
    /* [parameter], [result] The buffer that contains it; NULL: it is in the slot's memory. */
    strata_buffer **parameter_buffers, **result_buffers;
    /* [parameter], [result] The plugin's buffers of the run that is being submitted. */
    pjrt_api_buffer **arguments, **results;
    slot *slots;
    int n_slots, n_nodes;
    /* The memory of the slots and of all arrays. */
    strata_memory memory;
    /* The sizes of the plugin's results have been compared with those of the module. */
    bool checked;
};

strata_support strata_pjrt_supports(strata_device *device, const strata_tensor *node, const char **reason) {
    (void)device;
    return strata_pjrt_lowers(node, reason) ? STRATA_SUPPORT_YES : STRATA_SUPPORT_NO;
}

/* ---- compiling ---- */

/* Checks the number of results. With another number, the plugin would write beyond the array. */
static strata_status check_outputs(const pjrt_device *device, const strata_program *program, strata_error *err) {
    const pjrt_plugin *plugin = &device->plugin;
    pjrt_loaded_executable_args loaded = {.head = {PJRT_SIZE(pjrt_loaded_executable_args, executable), NULL},
                                          .loaded = program->loaded};
    STRATA_TRY(
        strata_pjrt_call(plugin, PJRT_FUNCTION_LoadedExecutable_GetExecutable, &loaded, "compile", STRATA_UNAVAILABLE, err));
    pjrt_executable_number_args outputs = {.head = {PJRT_SIZE(pjrt_executable_number_args, number), NULL},
                                           .executable = loaded.executable};
    strata_status status =
        strata_pjrt_call(plugin, PJRT_FUNCTION_Executable_NumOutputs, &outputs, "compile", STRATA_UNAVAILABLE, err);
    strata_pjrt_destroy(plugin, PJRT_FUNCTION_Executable_Destroy, loaded.executable);
    if (!status && outputs.number != program->module.n_results)
        status = strata_fail(err, STRATA_UNAVAILABLE, "pjrt: compile: the program has %d results, the plugin gives %lld (%s)",
                             program->module.n_results, (long long)outputs.number, plugin->path);
    return status;
}

typedef struct compile_call {
    pjrt_plugin plugin;
    pjrt_api_client *client;
    char *text;
    size_t n_bytes;
    pjrt_api_loaded *executable;
    strata_status status;
    strata_error err;
} compile_call;

static void run_compile(void *user) {
    compile_call *call = user;
    char options[PJRT_COMPILE_OPTIONS_BYTES];
    const pjrt_program_text text = strata_pjrt_program_text(call->text, call->n_bytes);
    pjrt_client_compile_args args = {.head = {PJRT_SIZE(pjrt_client_compile_args, executable), NULL},
                                     .client = call->client,
                                     .program = &text,
                                     .options = options,
                                     .options_size = strata_pjrt_compile_options(1, options)};
    call->status =
        strata_pjrt_call(&call->plugin, PJRT_FUNCTION_Client_Compile, &args, "compile", STRATA_UNAVAILABLE, &call->err);
    call->executable = args.executable;
}

static strata_status compile_text(strata_program *program, strata_error *err) {
    pjrt_device *device = program->device;
    char name[64];
    if (!program->module.n_results) return STRATA_OK; /* nothing is left in memory, so nothing has to run */
    compile_call call = {
        .plugin = device->plugin, .client = device->client, .text = program->module.text, .n_bytes = program->module.n_bytes};
    call.plugin.device = NULL; /* the call is made by another thread, with its own limit */
    snprintf(name, sizeof name, "a program of %d node%s", program->n_nodes, program->n_nodes == 1 ? "" : "s");
    const strata_status status = strata_driver_compile_run(&device->base, name, 0, run_compile, &call, sizeof call, err);
    if (status) program->module.text = NULL; /* the abandoned call still reads it */
    if (status) return status;
    if (call.status) return strata_fail(err, call.status, "%s", call.err.message);
    program->loaded = call.executable;
    device->base.counters.compilations++;
    return check_outputs(device, program, err);
}

static strata_buffer *buffer_of(const strata_piece *piece, const pjrt_port *port) {
    return port->arena <= STRATA_ARENA_OUTPUT ? NULL : piece->arenas[port->arena].buffer;
}

/* Allocates everything that a run needs, so that runs allocate nothing. */
static strata_status make_room(strata_program *program, const strata_piece *piece, strata_error *err) {
    static const char no_memory[] = "pjrt: no host memory for a program of %d nodes";
    const pjrt_module *m = &program->module;
    strata_memory *memory = &program->memory;
    const int n = piece->n_nodes;
    STRATA_TRY(STRATA_TAKE(memory, program->parameter_buffers, m->n_parameters, err, no_memory, n));
    STRATA_TRY(STRATA_TAKE(memory, program->result_buffers, m->n_results, err, no_memory, n));
    STRATA_TRY(STRATA_TAKE(memory, program->arguments, m->n_parameters, err, no_memory, n));
    STRATA_TRY(STRATA_TAKE(memory, program->results, m->n_results, err, no_memory, n));
    STRATA_TRY(STRATA_TAKE(memory, program->slots, piece->n_slots, err, no_memory, n));
    program->n_slots = piece->n_slots;
    for (int i = 0; i < m->n_parameters; i++) program->parameter_buffers[i] = buffer_of(piece, &m->parameters[i]);
    for (int i = 0; i < m->n_results; i++) program->result_buffers[i] = buffer_of(piece, &m->results[i]);
    for (int s = 0; s < piece->n_slots; s++) {
        slot *own = &program->slots[s];
        for (int kind = 0; kind < 2; kind++) {
            const int64_t bytes = piece->arenas[kind].bytes;
            if (!bytes) continue;
            STRATA_TRY(STRATA_TAKE(memory, own->memory[kind], bytes, err, no_memory, n));
            program->device->base.counters.allocations++;
        }
        STRATA_TRY(STRATA_TAKE(memory, own->run.events, m->n_parameters + m->n_results + 1, err, no_memory, n));
        STRATA_TRY(STRATA_TAKE(memory, own->run.copied, m->n_results, err, no_memory, n));
    }
    return STRATA_OK;
}

strata_status strata_pjrt_compile(strata_device *device, const strata_piece *piece, strata_program **out_program,
                                  strata_error *err) {
    pjrt_device *own = (pjrt_device *)device;
    STRATA_TRY(strata_pjrt_check(own, err));
    strata_program *program = NULL;
    STRATA_TRY(STRATA_NEW(program, 1, err, "pjrt: no host memory for a program"));
    program->device = own;
    program->n_nodes = piece->n_nodes;
    strata_status status = strata_pjrt_lower(piece, (pjrt_lower_options){.fast = own->fast}, &program->module, err);
    if (!status) status = make_room(program, piece, err);
    if (!status) status = compile_text(program, err);
    if (status)
        strata_pjrt_program_destroy(program);
    else
        *out_program = program;
    return status;
}

void strata_pjrt_program_destroy(strata_program *program) {
    if (!program) return;
    for (int s = 0; s < program->n_slots; s++) {
        slot *own = &program->slots[s];
        if (own->run.n_events) {
            strata_status ignored = strata_pjrt_finish_runs(program->device, own->run.ticket, NULL);
            (void)ignored; /* the device may be lost */
        }
    }
    strata_pjrt_destroy(&program->device->plugin, PJRT_FUNCTION_LoadedExecutable_Destroy, program->loaded);
    strata_pjrt_module_finish(&program->module);
    strata_memory_finish(&program->memory);
    free(program);
}

void *strata_pjrt_program_input(strata_program *program, int index) {
    return program->slots[index].memory[STRATA_ARENA_INPUT];
}

const void *strata_pjrt_program_output(strata_program *program, int index) {
    return program->slots[index].memory[STRATA_ARENA_OUTPUT];
}

/* ---- running ---- */

static void add_event(pjrt_run *run, pjrt_api_event *event) {
    if (event) run->events[run->n_events++] = event;
}

/* Sets arguments[]. For inputs that the host wrote, it creates buffers for this run. */
static strata_status gather_arguments(strata_program *program, slot *own, strata_error *err) {
    for (int i = 0; i < program->module.n_parameters; i++) {
        const pjrt_port *port = &program->module.parameters[i];
        strata_buffer *buffer = program->parameter_buffers[i];
        pjrt_api_event *done = NULL;
        if (buffer) {
            STRATA_TRY(strata_pjrt_region_get(program->device, buffer, port, &program->arguments[i], err));
            continue;
        }
        const char *memory = own->memory[port->arena];
        STRATA_TRY(strata_pjrt_from_host(program->device, port, memory ? memory + port->offset : "", &program->arguments[i],
                                         &done, err));
        add_event(&own->run, done);
    }
    return STRATA_OK;
}

static void forget_arguments(strata_program *program) {
    for (int i = 0; i < program->module.n_parameters; i++) {
        if (!program->parameter_buffers[i])
            strata_pjrt_destroy(&program->device->plugin, PJRT_FUNCTION_Buffer_Destroy, program->arguments[i]);
        program->arguments[i] = NULL;
    }
}

static strata_status execute(strata_program *program, slot *own, strata_error *err) {
    pjrt_api_event *done = NULL;
    pjrt_api_buffer *const *arguments = program->arguments;
    pjrt_api_buffer **results = program->results;
    pjrt_execute_options options = {.head = {PJRT_SIZE(pjrt_execute_options, incarnation_ids), NULL}};
    pjrt_execute_args args = {.head = {PJRT_SIZE(pjrt_execute_args, device), NULL},
                              .executable = program->loaded,
                              .options = &options,
                              .arguments = &arguments,
                              .n_devices = 1,
                              .n_arguments = (size_t)program->module.n_parameters,
                              .outputs = &results,
                              .done = &done,
                              .device = program->device->device};
    STRATA_TRY(strata_pjrt_call(&program->device->plugin, PJRT_FUNCTION_LoadedExecutable_Execute, &args, "run",
                                STRATA_DEVICE_LOST, err));
    add_event(&own->run, done);
    return STRATA_OK;
}

/* Moves results[] to their places. Results that cannot be moved are destroyed. */
static strata_status spread_results(strata_program *program, slot *own, strata_error *err) {
    pjrt_device *device = program->device;
    strata_status status = STRATA_OK;
    for (int i = 0; i < program->module.n_results; i++) {
        const pjrt_port *port = &program->module.results[i];
        pjrt_api_buffer *result = program->results[i];
        pjrt_api_event *done = NULL;
        program->results[i] = NULL;
        if (!result && !status) status = strata_fail(err, STRATA_DEVICE_LOST, "pjrt: run: the plugin gave no result %d", i);
        if (!status && !program->checked) status = strata_pjrt_check_bytes(device, port, result, err);
        if (status) {
            strata_pjrt_destroy(&device->plugin, PJRT_FUNCTION_Buffer_Destroy, result);
            continue;
        }
        if (program->result_buffers[i]) {
            status = strata_pjrt_region_put(device, program->result_buffers[i], port, result, err);
            continue;
        }
        own->run.copied[own->run.n_copied++] = result;
        status = strata_pjrt_to_host(device, port, result, own->memory[STRATA_ARENA_OUTPUT] + port->offset, &done, err);
        if (!status) device->base.counters.download_bytes += (uint64_t)port->bytes;
        add_event(&own->run, done);
    }
    program->checked = true;
    return status;
}

strata_status strata_pjrt_run_slot(strata_program *program, int index, uint64_t *out_ticket, strata_error *err) {
    pjrt_device *device = program->device;
    slot *own = &program->slots[index];
    STRATA_TRY(strata_pjrt_check(device, err));
    strata_status status = STRATA_OK;
    if (program->loaded) {
        status = gather_arguments(program, own, err);
        if (!status) status = strata_pjrt_lose(device, execute(program, own, err));
        if (!status) status = strata_pjrt_lose(device, spread_results(program, own, err));
        forget_arguments(program);
    }
    own->run.ticket = *out_ticket = ++device->last_ticket;
    own->run.next = NULL;
    if (device->last)
        device->last->next = &own->run;
    else
        device->first = &own->run;
    device->last = &own->run;
    if (status) {
        strata_status ignored = strata_pjrt_finish_runs(device, own->run.ticket, NULL); /* this destroys what the run owns */
        (void)ignored;
        return status;
    }
    device->base.counters.launches += (uint64_t)program->n_nodes;
    device->base.counters.submissions++;
    return STRATA_OK;
}
