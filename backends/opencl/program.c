/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles a piece of a graph to kernel objects whose arguments are set once, one for each launch and slot. On a CPU the whole
 * list of launches becomes one kernel if it fits (sequence.c). A run only enqueues these objects and stores the last event; it
 * allocates and compiles nothing.
 *
 * The queue is in order, so the list's barriers are not needed here. An out-of-order queue with events between launches
 * would not help: nearly all launches of a step depend on the one before, and on CPU drivers an event costs as much as
 * a small kernel. */
#include "backends/opencl/opencl.h"
#include "core/run/trace_node.h"

/* An INPUT or OUTPUT arena of one slot, in host memory and on the device. */
typedef struct opencl_port {
    int64_t bytes;
    /* The memory that the caller accesses. Its address never changes. */
    void *host;
    /* The memory that kernels access. */
    cl_mem memory;
    /* OPENCL_HOST_STAGED: the buffer that owns `host`. It is mapped as long as it exists. */
    cl_mem pinned;
    /* `host` must be freed with free(). */
    bool host_owned;
} opencl_port;

typedef struct opencl_slot {
    opencl_port input, output;
    /* The counts of a sequence while there is a trace, otherwise NULL. */
    opencl_counts *counts;
} opencl_slot;

/* The command that is enqueued for one slot and one launch, or for one slot and the whole sequence. */
typedef struct opencl_call {
    /* Its arguments are set. NULL: a launch of a library. */
    cl_kernel kernel;
    /* The buffers of a library's launch, which are passed to each call. */
    cl_mem memory[STRATA_LAUNCH_BUFFERS];
    size_t global[2], local[2];
    /* For a sequence: the number of runs that the kernel performs, to which its argument is set. */
    cl_uint runs;
} opencl_call;

struct strata_program {
    opencl_device *device;
    strata_kernel_list list;
    /* built[k]: the index of the list's kernel k in device->built. */
    int *built;
    /* Call c on slot s is calls[s * n_calls + c]. */
    opencl_call *calls;
    /* The number of launches in the list, or 1 for a sequence. */
    int n_calls;
    int n_slots;
    opencl_slot *slots;
    /* NULL: there is none. */
    strata_buffer *scratch;
    /* The buffers of the sequence. NULL: there is none. */
    strata_buffer *table, *sync;
    /* The index of the argument `runs` of the sequence's kernel. */
    cl_uint runs_argument;
    /* The ticket of the program's newest run. */
    uint64_t newest;
    /* The names in the trace: first those of the launches, then those of the copies of inputs and of outputs. NULL:
     * there is no trace. */
    const strata_trace_label **labels;
};

/* ---- ports ---- */
static strata_status map_port(opencl_device *device, cl_mem memory, int64_t bytes, void **out_host, strata_error *err) {
    cl_int code;
    STRATA_DRIVER_CALL(&device->base, ALLOCATE);
    void *host = device->cl.EnqueueMapBuffer(device->queue, memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, (size_t)bytes, 0,
                                             NULL, NULL, &code);
    if (code != CL_SUCCESS) return strata_opencl_fail(device, code, "mapping a buffer", err);
    *out_host = host;
    return STRATA_OK;
}

static strata_status port_open(opencl_device *device, int64_t bytes, opencl_port *port, strata_error *err) {
    if (!bytes) return STRATA_OK;
    port->bytes = bytes;
    if (device->host_memory == OPENCL_HOST_STAGED) {
        STRATA_TRY(strata_opencl_allocate(device, CL_MEM_READ_WRITE, bytes, NULL, &port->memory, err));
        STRATA_TRY(strata_opencl_allocate(device, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, NULL, &port->pinned, err));
        STRATA_TRY(map_port(device, port->pinned, bytes, &port->host, err));
        memset(port->host, 0, (size_t)bytes);
        return STRATA_OK;
    }
    STRATA_TRY(strata_opencl_allocate_shared(device, bytes, &port->host, &port->memory, err));
    port->host_owned = true;
    void *mapped; /* with CL_MEM_USE_HOST_PTR this is always port->host */
    return device->host_memory == OPENCL_HOST_MAPPED ? map_port(device, port->memory, bytes, &mapped, err) : STRATA_OK;
}

static void port_close(opencl_device *device, opencl_port *port) {
    if (port->pinned && port->host) device->cl.EnqueueUnmapMemObject(device->queue, port->pinned, port->host, 0, NULL, NULL);
    if (port->memory && device->host_memory == OPENCL_HOST_MAPPED)
        device->cl.EnqueueUnmapMemObject(device->queue, port->memory, port->host, 0, NULL, NULL);
    if (port->memory) device->cl.Finish(device->queue);
    strata_opencl_release(device, port->memory, port->bytes);
    strata_opencl_release(device, port->pinned, port->bytes);
    if (port->host_owned) free(port->host);
    *port = (opencl_port){0};
}

/* Makes a port's memory available to the device before a run. */
static cl_int port_to_device(opencl_device *device, const opencl_port *port, bool input, opencl_timed *timed,
                             const strata_trace_label *label) {
    if (!port->bytes) return CL_SUCCESS;
    if (device->host_memory == OPENCL_HOST_MAPPED)
        return device->cl.EnqueueUnmapMemObject(device->queue, port->memory, port->host, 0, NULL, NULL);
    if (device->host_memory != OPENCL_HOST_STAGED || !input) return CL_SUCCESS;
    device->base.counters.upload_bytes += (uint64_t)port->bytes;
    return device->cl.EnqueueWriteBuffer(device->queue, port->memory, CL_FALSE, 0, (size_t)port->bytes, port->host, 0, NULL,
                                         strata_opencl_time_next(timed, label));
}

/* Makes a port's memory available to the host after a run. */
static cl_int port_to_host(opencl_device *device, const opencl_port *port, bool input, opencl_timed *timed,
                           const strata_trace_label *label) {
    if (!port->bytes) return CL_SUCCESS;
    cl_int code = CL_SUCCESS;
    if (device->host_memory == OPENCL_HOST_MAPPED) {
        device->cl.EnqueueMapBuffer(device->queue, port->memory, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 0, (size_t)port->bytes,
                                    0, NULL, NULL, &code);
        return code;
    }
    if (device->host_memory != OPENCL_HOST_STAGED || input) return code;
    device->base.counters.download_bytes += (uint64_t)port->bytes;
    return device->cl.EnqueueReadBuffer(device->queue, port->memory, CL_FALSE, 0, (size_t)port->bytes, port->host, 0, NULL,
                                        strata_opencl_time_next(timed, label));
}

/* ---- kernel objects ---- */
static cl_mem arena_memory(const strata_program *program, const strata_piece *piece, int arena, int slot) {
    if (arena == piece->n_arenas) return program->scratch ? program->scratch->memory : NULL;
    if (piece->arenas[arena].kind == STRATA_ARENA_INPUT) return program->slots[slot].input.memory;
    if (piece->arenas[arena].kind == STRATA_ARENA_OUTPUT) return program->slots[slot].output.memory;
    return piece->arenas[arena].buffer->memory;
}

static strata_status make_call(strata_program *program, const strata_piece *piece, const strata_kernel_launch *launch, int slot,
                               opencl_call *call, strata_error *err) {
    opencl_device *device = program->device;
    for (int i = 0; i < launch->n_buffers; i++) call->memory[i] = arena_memory(program, piece, launch->buffers[i].arena, slot);
    for (int axis = 0; axis < 2; axis++) {
        call->local[axis] = launch->local[axis];
        call->global[axis] = (size_t)launch->groups[axis] * launch->local[axis];
    }
    if (!program->list.kernels[launch->kernel].shader->opencl.bytes) return STRATA_OK;

    const opencl_built *built = &device->built[program->built[launch->kernel]];
    cl_int code;
    call->kernel = device->cl.CreateKernel(built->program, built->entry, &code);
    cl_uint argument = 0;
    for (int i = 0; i < launch->n_buffers && code == CL_SUCCESS; i++)
        code = device->cl.SetKernelArg(call->kernel, argument++, sizeof call->memory[i], &call->memory[i]);
    for (int i = 0; i < launch->n_words && code == CL_SUCCESS; i++)
        code = device->cl.SetKernelArg(call->kernel, argument++, sizeof launch->words[i], &launch->words[i]);
    return code == CL_SUCCESS ? STRATA_OK : strata_opencl_fail(device, code, built->entry, err);
}

/* Some drivers compile a kernel when its object is created. */
static strata_status make_calls(strata_program *program, const strata_piece *piece, strata_error *err) {
    STRATA_DRIVER_CALL(&program->device->base, COMPILE);
    const int n = program->n_calls = program->list.n_launches;
    STRATA_TRY(STRATA_NEW(program->calls, (size_t)n * (size_t)program->n_slots, err, "%s: no host memory for %d launches",
                          program->device->base.info.id, n));
    for (int i = 0; i < n * program->n_slots; i++)
        STRATA_TRY(make_call(program, piece, &program->list.launches[i % n], i / n, &program->calls[i], err));
    return STRATA_OK;
}

/* ---- the sequence ---- */
/* Sets how many runs the sequence's kernel performs, on the call's slot and the slots after it. */
static cl_int set_runs(const strata_program *program, opencl_call *call, cl_uint runs) {
    if (call->runs == runs) return CL_SUCCESS;
    call->runs = runs;
    return program->device->cl.SetKernelArg(call->kernel, program->runs_argument, sizeof runs, &runs);
}

static strata_status make_sequence_call(strata_program *program, const strata_piece *piece, const opencl_sequence *sequence,
                                        cl_program built, int slot, strata_error *err) {
    opencl_device *device = program->device;
    opencl_call *call = &program->calls[slot];
    const cl_uint n_launches = (cl_uint)program->list.n_launches;
    opencl_counts **counts = &program->slots[slot].counts;
    cl_int code;
    if (device->base.trace) STRATA_TRY(strata_opencl_counts_create(device, sequence->n_workers, (int)n_launches, counts, err));
    const cl_mem written = *counts ? strata_opencl_counts_memory(*counts) : NULL;
    call->kernel = device->cl.CreateKernel(built, "strata_sequence", &code);
    if (code == CL_SUCCESS) code = device->cl.SetKernelArg(call->kernel, 0, sizeof n_launches, &n_launches);
    if (code == CL_SUCCESS) code = device->cl.SetKernelArg(call->kernel, 1, sizeof(cl_mem), &program->table->memory);
    if (code == CL_SUCCESS) code = device->cl.SetKernelArg(call->kernel, 2, sizeof(cl_mem), &program->sync->memory);
    if (code == CL_SUCCESS) code = device->cl.SetKernelArg(call->kernel, 3, sizeof written, *counts ? &written : NULL);
    cl_uint argument = 4;
    for (int run = 0; run < OPENCL_RUNS_IN_A_CALL; run++) {
        if (run == 1 && code == CL_SUCCESS) program->runs_argument = argument++, code = set_runs(program, call, 1);
        for (int i = 0; i < sequence->n_arenas && code == CL_SUCCESS; i++) {
            if (run && !strata_opencl_sequence_is_of_slot(sequence, i)) continue;
            const cl_mem memory = arena_memory(program, piece, sequence->arenas[i], (slot + run) % program->n_slots);
            code = device->cl.SetKernelArg(call->kernel, argument++, sizeof memory, &memory);
        }
    }
    call->global[0] = sequence->n_workers;
    call->global[1] = call->local[0] = call->local[1] = 1;
    return code == CL_SUCCESS ? STRATA_OK : strata_opencl_fail(device, code, "making the sequence", err);
}

static strata_status make_sequence(strata_program *program, const strata_piece *piece, const opencl_sequence *sequence,
                                   cl_program built, strata_error *err) {
    strata_device *device = &program->device->base;
    const int64_t table_bytes = (int64_t)(sequence->table_words * sizeof *sequence->table);
    STRATA_TRY(STRATA_NEW(program->calls, program->n_slots, err, "%s: no host memory for a program", device->info.id));
    program->n_calls = 1;
    STRATA_DRIVER_CALL(device, COMPILE);
    STRATA_TRY(device->api->buffer_create(device, table_bytes, &program->table, err));
    STRATA_TRY(device->api->upload(device, program->table, 0, sequence->table, table_bytes, err));
    STRATA_TRY(device->api->buffer_create(device, sequence->sync_bytes, &program->sync, err));
    for (int slot = 0; slot < program->n_slots; slot++)
        STRATA_TRY(make_sequence_call(program, piece, sequence, built, slot, err));
    return STRATA_OK;
}

/* *out_built is NULL if the launches must be enqueued one by one, for example because the driver does not compile the
 * sequence. */
static strata_status build_sequence(strata_program *program, opencl_sequence *out, cl_program *out_built, strata_error *err) {
    opencl_device *device = program->device;
    *out = (opencl_sequence){0};
    *out_built = NULL;
    if (strata_tuner_is_trying(device->tuner) || !strata_opencl_sequence_fits(device, &program->list)) return STRATA_OK;
    if (device->base.trace && !strata_opencl_has_counter()) return STRATA_OK;
    STRATA_TRY(strata_opencl_sequence_write(device, &program->list, out, err));
    if (!out->source) return STRATA_OK;
    strata_status status =
        strata_opencl_build_text(device, out->source, "strata_sequence", program->list.n_kernels, out_built, err);
    return status == STRATA_UNSUPPORTED ? STRATA_OK : status;
}

/* ---- the trace ---- */
/* If there is no memory for the labels, the program is not traced. */
static void make_labels(strata_program *program) {
    const strata_kernel_list *list = &program->list;
    strata_trace *trace = program->device->base.trace;
    program->labels = calloc((size_t)list->n_launches + 2, sizeof(*program->labels));
    if (!program->labels) return;
    for (int l = 0; l < list->n_launches; l++) program->labels[l] = strata_kernel_trace_label(trace, list, l);
    program->labels[list->n_launches] = strata_trace_add_label(trace, "copy inputs", "", 0, 0);
    program->labels[list->n_launches + 1] = strata_trace_add_label(trace, "copy outputs", "", 0, 0);
}

/* ---- compile ---- */
/* Checks whether the driver supports this work-group size for the kernel. Its limit may be lower than that of the device. */
static bool fits_workgroup(const strata_program *program, int kernel_index, uint32_t items) {
    opencl_device *device = program->device;
    const opencl_built *built = &device->built[program->built[kernel_index]];
    cl_int code;
    size_t most = 0;
    cl_kernel kernel = device->cl.CreateKernel(built->program, built->entry, &code);
    if (code != CL_SUCCESS) return true; /* make_kernel reports it */
    code = device->cl.GetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL);
    device->cl.ReleaseKernel(kernel);
    return code != CL_SUCCESS || items <= most;
}

/* *out_too_large: whether a kernel cannot run with the chosen work-group size. */
static strata_status build_kernels(strata_program *program, bool *out_too_large, strata_error *err) {
    STRATA_TRY(strata_opencl_build(program->device, program->list.kernels, program->list.n_kernels, program->built, err));
    for (int l = 0; l < program->list.n_launches; l++) {
        const strata_kernel_launch *launch = &program->list.launches[l];
        uint32_t items = launch->local[0] * launch->local[1];
        if (items > 1 && !fits_workgroup(program, launch->kernel, items)) *out_too_large = true;
    }
    return STRATA_OK;
}

static void destroy_at(strata_program **program) {
    strata_opencl_program_destroy(*program);
}

static strata_status compile_within(const strata_kernel_limits *limits, opencl_device *device, const strata_piece *piece,
                                    strata_program **out_program, bool *out_too_large, strata_error *err) {
    STRATA_FINISHED_BY(destroy_at) strata_program *program = NULL;
    STRATA_FINISHED_BY(strata_opencl_sequence_finish) opencl_sequence sequence = {0};
    cl_program built = NULL; /* the sequence's program */
    STRATA_TRY(STRATA_NEW(program, 1, err, "%s: no host memory for a program", device->base.info.id));
    program->device = device;
    program->n_slots = piece->n_slots;
    const strata_kernel_list *list = &program->list;
    STRATA_TRY(strata_kernel_list_create(limits, device->tuner, piece, &program->list, err));
    STRATA_TRY(build_sequence(program, &sequence, &built, err));
    STRATA_TRY(STRATA_NEW(program->slots, piece->n_slots, err, "%s: no host memory for slots", device->base.info.id));
    STRATA_TRY(STRATA_NEW(program->built, list->n_kernels, err, "%s: no host memory for %d kernels", device->base.info.id,
                          list->n_kernels));
    if (!built) STRATA_TRY(build_kernels(program, out_too_large, err));
    if (*out_too_large) return STRATA_OK;
    for (int s = 0; s < piece->n_slots; s++) {
        STRATA_TRY(port_open(device, piece->arenas[0].bytes, &program->slots[s].input, err));
        STRATA_TRY(port_open(device, piece->arenas[1].bytes, &program->slots[s].output, err));
    }
    if (list->scratch_bytes > 0)
        STRATA_TRY(device->base.api->buffer_create(&device->base, list->scratch_bytes, &program->scratch, err));
    STRATA_TRY(built ? make_sequence(program, piece, &sequence, built, err) : make_calls(program, piece, err));
    if (device->base.trace && !strata_tuner_is_trying(device->tuner)) make_labels(program);
    *out_program = strata_released(&program);
    return STRATA_OK;
}

strata_status strata_opencl_compile(strata_device *base, const strata_piece *piece, strata_program **out_program,
                                    strata_error *err) {
    opencl_device *device = (opencl_device *)base;
    strata_kernel_limits limits = device->limits;
    for (;;) {
        bool too_large = false;
        STRATA_TRY(compile_within(&limits, device, piece, out_program, &too_large, err));
        if (!too_large) return STRATA_OK;
        limits.max_workgroup /= 2;
    }
}

void strata_opencl_program_destroy(strata_program *program) {
    if (!program) return;
    opencl_device *device = program->device;
    int n = program->n_calls;
    if (device->lost == STRATA_TIMEOUT) return; /* a run that hangs uses it */
    STRATA_DRIVER_CALL(&device->base, FREE);
    strata_opencl_time_collect(device, program->newest); /* while its counts and labels exist */
    for (int i = 0; program->calls && i < n * program->n_slots; i++)
        if (program->calls[i].kernel) device->cl.ReleaseKernel(program->calls[i].kernel);
    for (int slot = 0; program->slots && slot < program->n_slots; slot++) {
        port_close(device, &program->slots[slot].input);
        port_close(device, &program->slots[slot].output);
        strata_opencl_counts_destroy(device, program->slots[slot].counts);
    }
    device->base.api->buffer_destroy(&device->base, program->scratch);
    device->base.api->buffer_destroy(&device->base, program->table);
    device->base.api->buffer_destroy(&device->base, program->sync);
    free(program->slots);
    free(program->calls);
    free(program->labels);
    free(program->built);
    strata_kernel_list_finish(&program->list);
    free(program);
}

/* ---- runs ---- */
void *strata_opencl_program_input(strata_program *program, int slot) {
    return program->slots[slot].input.host;
}

const void *strata_opencl_program_output(strata_program *program, int slot) {
    return program->slots[slot].output.host;
}

/* wanted: by the node's id; NULL: all nodes. A sequence always runs as a whole. */
static bool is_wanted(const strata_program *program, int call, const bool *wanted) {
    return !wanted || program->table || wanted[program->list.launches[call].node->id];
}

/* Performs `runs` runs, on `slot` and the slots after it. More than one is possible only for a sequence in memory that
 * the host shares. */
static strata_status run(strata_program *program, int slot, int runs, const bool *wanted, uint64_t *out_ticket,
                         strata_error *err) {
    opencl_device *device = program->device;
    const opencl_functions *cl = &device->cl;
    if (device->lost)
        return strata_fail(err, device->lost, "%s: the device was lost earlier; start again", device->base.info.id);
    STRATA_DRIVER_RUNS(&device->base, SUBMIT, runs);
    if (runs > device->longest_call) device->longest_call = runs;
    const opencl_slot *ports = &program->slots[slot];
    const int n = program->n_calls;
    opencl_call *calls = program->calls + (size_t)slot * (size_t)n;

    /* The event of the run is that of its last command. This is the last kernel if outputs need no copy; otherwise it is
     * a marker. */
    const int n_launches = program->list.n_launches;
    const strata_trace_label *const *labels = program->labels;
    opencl_timed *timed = !labels         ? NULL
                          : ports->counts ? strata_opencl_time_begin_sequence(device, ports->counts, runs, labels)
                                          : strata_opencl_time_begin(device, n_launches + 2);
    const strata_trace_label *in = timed ? labels[n_launches] : NULL, *out = timed ? labels[n_launches + 1] : NULL;
    bool kernel_is_last = device->host_memory == OPENCL_HOST_SHARED && (!timed || ports->counts);
    cl_event event = NULL;
    cl_int code = port_to_device(device, &ports->input, true, timed, in);
    if (code == CL_SUCCESS) code = port_to_device(device, &ports->output, false, timed, out);
    if (code == CL_SUCCESS && program->table) code = set_runs(program, calls, (cl_uint)runs);
    strata_status status = STRATA_OK;
    for (int c = 0; c < n && code == CL_SUCCESS; c++) {
        const opencl_call *call = &calls[c];
        if (!is_wanted(program, c, wanted)) continue;
        cl_event *times = strata_opencl_time_next(timed, timed ? labels[c] : NULL);
        if (!call->kernel) { /* a sequence has no such call, so calls[c] belongs to launch c */
            status = strata_opencl_clblast_run(device, &program->list.launches[c], call->memory, times, err);
            if (status) break;
            continue;
        }
        cl_uint dimensions = call->global[1] > 1 ? 2 : 1;
        code = cl->EnqueueNDRangeKernel(device->queue, call->kernel, dimensions, NULL, call->global, call->local, 0, NULL,
                                        kernel_is_last && c == n - 1 ? &event : times);
    }
    if (code == CL_SUCCESS) code = port_to_host(device, &ports->output, false, timed, out);
    if (code == CL_SUCCESS) code = port_to_host(device, &ports->input, true, timed, in);
    if (code == CL_SUCCESS && !event) code = cl->EnqueueMarkerWithWaitList(device->queue, 0, NULL, &event);
    if (code == CL_SUCCESS) code = cl->Flush(device->queue);
    strata_opencl_time_end(device, timed, device->last_ticket + 1);
    if (code != CL_SUCCESS || status) {
        if (event) cl->ReleaseEvent(event);
        strata_opencl_lose_core(device); /* other cores must not wait for this run */
        return status ? status : strata_opencl_fail(device, code, "a run", err);
    }
    device->base.counters.launches += (uint64_t)program->list.n_launches * (uint64_t)runs;
    device->base.counters.submissions++;
    *out_ticket = program->newest = strata_opencl_ticket(device, event);
    return STRATA_OK;
}

strata_status strata_opencl_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err) {
    return run(program, slot, 1, NULL, out_ticket, err);
}

int strata_opencl_most_runs(strata_device *base) {
    const opencl_device *device = (const opencl_device *)base;
    return device->makes_sequences && device->host_memory == OPENCL_HOST_SHARED ? OPENCL_RUNS_IN_A_CALL : 1;
}

/* If the program is a sequence, all runs are one call of the driver. */
strata_status strata_opencl_run_many(strata_program *program, int first, int n, uint64_t *out_ticket, strata_error *err) {
    if (program->table) return run(program, first, n, NULL, out_ticket, err);
    for (int i = 0; i < n; i++) {
        STRATA_TRY(run(program, (first + i) % program->n_slots, 1, NULL, out_ticket, err));
        program->device->base.trace_step++;
    }
    return STRATA_OK;
}

/* Writes the number of tasks of the sequence's launches: 0 for launches that are not wanted. */
static strata_status write_tasks(strata_program *program, const bool *wanted, strata_error *err) {
    strata_device *device = &program->device->base;
    const strata_kernel_list *list = &program->list;
    const size_t row = OPENCL_SEQUENCE_ROW, words = row * (size_t)list->n_launches;
    STRATA_FREED uint32_t *rows = NULL;
    STRATA_TRY(STRATA_NEW(rows, words, err, "%s: no host memory for %zu words", device->info.id, words));
    STRATA_TRY(device->api->download(device, program->table, 0, rows, (int64_t)(words * sizeof *rows), err));
    for (int l = 0; l < list->n_launches; l++)
        rows[row * (size_t)l] = !wanted || wanted[list->launches[l].node->id] ? list->launches[l].groups[0] : 0;
    return device->api->upload(device, program->table, 0, rows, (int64_t)(words * sizeof *rows), err);
}

/* Implements strata_step_run.run. */
static strata_status run_nodes(strata_program *program, int slot, const bool *wanted, strata_error *err) {
    strata_device *device = &program->device->base;
    uint64_t ticket = 0;
    if (program->table) STRATA_TRY(write_tasks(program, wanted, err));
    STRATA_TRY(run(program, slot, 1, wanted, &ticket, err));
    STRATA_TRY(device->api->wait(device, ticket, err));
    return program->table ? write_tasks(program, NULL, err) : STRATA_OK;
}

strata_status strata_opencl_check(strata_device *base, const strata_piece *piece, strata_program *program,
                                  const strata_check_request *request, strata_error *err) {
    opencl_device *device = (opencl_device *)base;
    const strata_step_run step = {base, piece, program, &program->list, run_nodes};
    strata_opencl_run_alone(device, true);
    const strata_status status = strata_checks_run(&device->limits, device->tuner, &step, request, err);
    strata_opencl_run_alone(device, false);
    return status;
}
