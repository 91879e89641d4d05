/* SPDX-License-Identifier: Apache-2.0
 *
 * The host backend. It runs an op by a fast loop if fast.c has a row for it, and otherwise by the op's reference in the calling
 * thread. Large loops are shared among the cores. This backend needs no driver and is always available. A run is finished when
 * it returns, so waiting for its ticket returns at once. */
#include <stdio.h>
#include <unistd.h>

#include "backends/host/host.h"
#include "backends/host/pool.h"
#include "backends/registry.h"
#include "core/op/ops.h"
#include "core/run/trace_node.h"

/* A node with less work (host_fast_op.work) is computed faster by one thread than other threads can be woken. */
enum { LEAST_SHARED_WORK = 16 * 1024 };

typedef struct host_device {
    strata_device base;
    _Atomic uint64_t last_ticket;
    int n_threads;
    /* Created when the first node that is shared among threads is compiled. NULL: there is one core, or no thread could be
     * created. */
    host_pool *pool;
} host_device;

struct strata_buffer {
    int64_t bytes;
    void *memory;
};

/* One node, ready to run. The address of an operand depends on the slot only if the operand is in the INPUT or OUTPUT arena. */
typedef struct host_step {
    const strata_tensor *node;
    const host_fast_op *fast;        /* NULL: the reference is used */
    host_wide *wide;                 /* `fast` computes this node instead; NULL: it computes the node itself */
    bool shared;                     /* it is computed by all threads */
    const void **inputs;             /* [slot * n_inputs + i] */
    void **output;                   /* [slot] */
    const strata_trace_label *label; /* NULL: there is no trace */
    /* The node copies rows that another node updates in place, so it does not run. */
    bool left_out;
    /* The node updates rows in place; their ids are input 1 of step `scatter`. */
    bool changes_rows;
    host_rows rows;
    int scatter;
} host_step;

struct strata_program {
    host_device *device;
    host_step *steps;
    int n_steps, n_slots;
    void **addresses; /* the memory of the steps' arrays `inputs` and `output` */
    void **slots;     /* [slot * 2 + arena]: INPUT and OUTPUT arenas */
    char *scratch;
    /* Bytes of the scratch memory of each thread. */
    size_t thread_scratch;
    /* Memory for the f32 operands of nodes of 16 bits; all nodes share it. */
    char *wide_memory;
    /* The trace with which it was compiled; NULL: none. */
    strata_trace *trace;
};

/* ---- device and memory ---- */

static uint64_t physical_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

static void cpu_name(char *out_name, size_t bytes) {
    snprintf(out_name, bytes, "host CPU");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return;
    char line[256];
    while (fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(out_name, bytes, "%s", colon + 2);
        break;
    }
    fclose(file);
}

static strata_device_info host_info(void) {
    strata_device_info info = {.id = "host",
                               .backend = "host",
                               .vendor = "Strata",
                               .driver = "built in",
                               .device_class = STRATA_DEVICE_HOST,
                               .memory_bytes = physical_memory(),
                               .max_allocation_bytes = INT64_MAX,
                               .max_range_bytes = INT64_MAX,
                               .compute_units = (uint32_t)strata_host_cores(),
                               .max_workgroup = 1,
                               .vector_width = 1,
                               .unified_memory = true,
                               .dtypes = (1u << STRATA_DTYPE_COUNT) - 1};
    cpu_name(info.name, sizeof info.name);
    return info;
}

static strata_status host_list(strata_device_list *list, strata_error *err) {
    const strata_device_info info = host_info();
    return strata_device_list_add(list, &info, err);
}

static void host_close(strata_device *device) {
    strata_host_pool_destroy(((host_device *)device)->pool);
    free(device);
}

/* The threads of the pool exist only in the parent. */
static void host_adopt(strata_device *device) {
    host_device *host = (host_device *)device;
    if (host->pool) host->pool = strata_host_pool_create(host->n_threads);
}

void *strata_host_allocate(int64_t bytes) {
    const size_t rounded = ((size_t)bytes + STRATA_PLACE_ALIGNMENT - 1) / STRATA_PLACE_ALIGNMENT * STRATA_PLACE_ALIGNMENT;
    void *memory = aligned_alloc(STRATA_PLACE_ALIGNMENT, rounded);
    return memory ? memset(memory, 0, rounded) : NULL;
}

static strata_status host_buffer_create(strata_device *device, int64_t bytes, strata_buffer **out_buffer, strata_error *err) {
    STRATA_FREED strata_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer) *buffer = (strata_buffer){.bytes = bytes, .memory = strata_host_allocate(bytes)};
    if (!buffer || !buffer->memory)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "host: no memory for a buffer of %lld bytes", (long long)bytes);
    device->counters.allocations++;
    device->counters.allocated_bytes += (uint64_t)bytes;
    *out_buffer = strata_released(&buffer);
    return STRATA_OK;
}

static void host_buffer_destroy(strata_device *device, strata_buffer *buffer) {
    if (!buffer) return;
    device->counters.allocated_bytes -= (uint64_t)buffer->bytes;
    free(buffer->memory);
    free(buffer);
}

void *strata_host_buffer_memory(strata_buffer *buffer) {
    return buffer->memory;
}

static strata_status host_upload(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source,
                                 int64_t bytes, strata_error *err) {
    STRATA_TRY(strata_device_check_range(device, buffer->bytes, offset, bytes, err));
    memcpy((char *)buffer->memory + offset, source, (size_t)bytes);
    device->counters.upload_bytes += (uint64_t)bytes;
    return STRATA_OK;
}

static strata_status host_download(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                   strata_error *err) {
    STRATA_TRY(strata_device_check_range(device, buffer->bytes, offset, bytes, err));
    memcpy(target, (const char *)buffer->memory + offset, (size_t)bytes);
    device->counters.download_bytes += (uint64_t)bytes;
    return STRATA_OK;
}

/* ---- programs ---- */

static strata_support host_supports(strata_device *device, const strata_tensor *node, const char **reason) {
    (void)device;
    *reason = "the op has no reference";
    /* Fused nodes exist for families of kernels. The host has loops only for their parts. */
    if (node->op->compose && !node->op->lower) return STRATA_SUPPORT_PARTS;
    return node->op->reference ? STRATA_SUPPORT_YES : STRATA_SUPPORT_NO;
}

static void host_program_destroy(strata_program *program) {
    if (!program) return;
    for (int i = 0; program->slots && i < 2 * program->n_slots; i++) free(program->slots[i]);
    for (int i = 0; program->steps && i < program->n_steps; i++) free(program->steps[i].wide);
    free(program->wide_memory);
    free(program->slots);
    free(program->addresses);
    free(program->steps);
    free(program->scratch);
    free(program);
}

static void *address_of(const strata_program *program, const strata_piece *piece, int slot, const strata_tensor *tensor) {
    strata_place place = piece->places[tensor->id];
    if (place.bytes == 0) return NULL;
    const strata_arena *arena = &piece->arenas[place.arena];
    char *base = arena->kind <= STRATA_ARENA_OUTPUT ? program->slots[2 * slot + arena->kind] : arena->buffer->memory;
    return base + place.offset;
}

static strata_status make_slots(strata_program *program, const strata_piece *piece, strata_error *err) {
    for (int i = 0; i < 2 * program->n_slots; i++) {
        int64_t bytes = piece->arenas[i % 2].bytes;
        if (!bytes) continue;
        if (!(program->slots[i] = strata_host_allocate(bytes)))
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "host: no memory for a slot of %lld bytes", (long long)bytes);
        program->device->base.counters.allocations++;
    }
    return STRATA_OK;
}

static strata_status make_steps(strata_program *program, const strata_piece *piece, strata_error *err) {
    host_device *device = program->device;
    int64_t scratch = 0, wide_bytes = 0;
    void **next = program->addresses;
    for (int i = 0; i < piece->n_nodes; i++) {
        const strata_tensor *node = piece->nodes[i];
        host_step *step = &program->steps[i];
        *step = (host_step){.node = node, .wide = strata_host_widen(node), .inputs = (const void **)next};
        step->fast = step->wide ? step->wide->fast : strata_host_fast_find(node);
        const strata_tensor *computed = step->wide ? &step->wide->node : node;
        if (step->wide && step->wide->bytes > wide_bytes) wide_bytes = step->wide->bytes;
        step->shared =
            device->n_threads > 1 && step->fast && step->fast->work && step->fast->work(computed) >= LEAST_SHARED_WORK;
        if (step->shared && !device->pool) device->pool = strata_host_pool_create(device->n_threads);
        strata_trace *trace = device->base.trace;
        if (trace) step->label = strata_trace_node(trace, node, step->fast ? "host loop" : "reference", 1);
        for (int slot = 0; slot < program->n_slots; slot++)
            for (int k = 0; k < node->n_inputs; k++) *next++ = address_of(program, piece, slot, node->inputs[k]);
        step->output = next;
        for (int slot = 0; slot < program->n_slots; slot++) *next++ = address_of(program, piece, slot, node);
        int64_t wanted = step->fast && step->fast->scratch_bytes ? step->fast->scratch_bytes(computed) : 0;
        if (wanted > scratch) scratch = wanted;
    }
    if (wide_bytes && !(program->wide_memory = aligned_alloc(64, (size_t)wide_bytes)))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "host: no memory for %lld bytes of f32", (long long)wide_bytes);
    if (!scratch) return STRATA_OK;
    program->thread_scratch = ((size_t)scratch + 63) / 64 * 64;
    program->scratch = aligned_alloc(64, program->thread_scratch * (size_t)device->n_threads);
    if (program->scratch) return STRATA_OK;
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "host: no memory for %lld bytes of scratch", (long long)scratch);
}

/* Marks the steps that update rows of variables in place (rows.c). */
static void find_row_updates(strata_program *program, const strata_piece *piece) {
    for (int i = 0; i < piece->n_nodes; i++) {
        const strata_tensor *node = piece->nodes[i];
        host_step *step = &program->steps[i];
        int n_ranges = 0;
        if (!step->fast || !strata_host_updates_rows(piece, i, &n_ranges)) continue;
        const strata_tensor *table = node->inputs[0]->inputs[0];
        step->changes_rows = true;
        step->shared = false;
        step->rows = (host_rows){
            .n = node->inputs[0]->inputs[1]->shape.dims[0], .row = table->shape.dims[1], .n_rows = table->shape.dims[0]};
        for (int slot = 0; slot < program->n_slots; slot++) {
            for (int r = 0; r < n_ranges; r++)
                step->inputs[slot * node->n_inputs + r] = address_of(program, piece, slot, node->inputs[r]->inputs[0]);
            step->output[slot] = address_of(program, piece, slot, table);
        }
        for (int k = 0; k < piece->n_nodes; k++) {
            if (!strata_host_moves_rows(piece->nodes[k], node, n_ranges)) continue;
            program->steps[k].left_out = true;
            if (piece->nodes[k]->op == &strata_op_scatter_update) step->scatter = k;
        }
    }
}

static void destroy_at(strata_program **program) {
    host_program_destroy(*program);
}

static strata_status host_compile(strata_device *device, const strata_piece *piece, strata_program **out_program,
                                  strata_error *err) {
    static const char no_memory[] = "host: no memory for a program of %d nodes";
    STRATA_FINISHED_BY(destroy_at) strata_program *program = NULL;
    size_t n_addresses = 0;
    for (int i = 0; i < piece->n_nodes; i++) n_addresses += (size_t)(piece->nodes[i]->n_inputs + 1) * (size_t)piece->n_slots;
    STRATA_TRY(STRATA_NEW(program, 1, err, no_memory, piece->n_nodes));
    *program = (strata_program){
        .device = (host_device *)device, .n_steps = piece->n_nodes, .n_slots = piece->n_slots, .trace = device->trace};
    STRATA_TRY(STRATA_NEW(program->steps, piece->n_nodes, err, no_memory, piece->n_nodes));
    STRATA_TRY(STRATA_NEW(program->addresses, n_addresses, err, no_memory, piece->n_nodes));
    STRATA_TRY(STRATA_NEW(program->slots, 2 * piece->n_slots, err, no_memory, piece->n_nodes));
    STRATA_TRY(make_slots(program, piece, err));
    STRATA_TRY(make_steps(program, piece, err));
    find_row_updates(program, piece);
    device->counters.compilations++;
    *out_program = strata_released(&program);
    return STRATA_OK;
}

static void *host_program_input(strata_program *program, int slot) {
    return program->slots[2 * slot + STRATA_ARENA_INPUT];
}

static const void *host_program_output(strata_program *program, int slot) {
    return program->slots[2 * slot + STRATA_ARENA_OUTPUT];
}

/* A node that several threads compute. */
typedef struct shared_call {
    const host_step *step;
    host_call call;
    size_t thread_scratch;
} shared_call;

static void run_shared(void *user, int thread, int part, int n_parts) {
    const shared_call *shared = user;
    host_call call = shared->call;
    call.scratch = (char *)call.scratch + (size_t)thread * shared->thread_scratch;
    call.part = part;
    call.n_parts = n_parts;
    shared->step->fast->run(&call);
}

static strata_status host_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err) {
    strata_device *device = &program->device->base;
    for (int i = 0; i < program->n_steps; i++) {
        const host_step *step = &program->steps[i], *scatter = &program->steps[step->scatter];
        if (step->left_out) continue;
        host_rows rows = step->rows;
        if (step->changes_rows) rows.ids = scatter->inputs[slot * scatter->node->n_inputs + 1];
        const double began = program->trace ? strata_trace_now() : 0;
        host_call call = {.call = {.node = step->node,
                                   .inputs = step->inputs + (size_t)slot * (size_t)step->node->n_inputs,
                                   .output = step->output[slot]},
                          .scratch = program->scratch,
                          .n_parts = 1,
                          .rows = step->changes_rows ? &rows : NULL};
        if (step->wide) {
            call.call.node = &step->wide->node;
            call.call.output = strata_host_wide_begin(step->wide, call.call.inputs, step->output[slot], program->wide_memory);
            call.call.inputs = step->wide->values;
        }
        if (step->shared && program->device->pool)
            strata_host_pool_run(program->device->pool, run_shared, &(shared_call){step, call, program->thread_scratch});
        else if (step->fast)
            step->fast->run(&call);
        else
            STRATA_TRY(strata_reference(call.call, err));
        if (step->wide) strata_host_wide_end(step->wide, call.call.output, step->output[slot]);
        if (program->trace)
            strata_trace_add(program->trace, device->trace_track, step->label, device->trace_step, began, strata_trace_now());
    }
    __atomic_fetch_add(&device->counters.launches, (uint64_t)program->n_steps, __ATOMIC_RELAXED);
    __atomic_fetch_add(&device->counters.submissions, 1, __ATOMIC_RELAXED);
    *out_ticket = 1 + atomic_fetch_add_explicit(&program->device->last_ticket, 1, memory_order_relaxed);
    return STRATA_OK;
}

static strata_status host_wait(strata_device *device, uint64_t ticket, strata_error *err) {
    (void)device;
    (void)ticket;
    (void)err;
    return STRATA_OK;
}

static strata_status host_set_trace(strata_device *device, strata_trace *trace, int track, strata_error *err) {
    (void)err;
    device->trace = trace;
    device->trace_track = track;
    return STRATA_OK;
}

static const strata_device_api host_api = {
    .close = host_close,
    .buffer_create = host_buffer_create,
    .buffer_destroy = host_buffer_destroy,
    .upload = host_upload,
    .download = host_download,
    .supports = host_supports,
    .compile = host_compile,
    .program_destroy = host_program_destroy,
    .program_input = host_program_input,
    .program_output = host_program_output,
    .run = host_run,
    .wait = host_wait,
    .set_trace = host_set_trace,
    .buffer_memory = strata_host_buffer_memory,
    .adopt = host_adopt,
};

static strata_status open_row(const strata_device_info *info, const strata_device_options *opts, strata_device **out_device,
                              strata_error *err) {
    (void)opts;
    host_device *device = NULL;
    STRATA_TRY(STRATA_NEW(device, 1, err, "host: no memory for the device"));
    device->base = (strata_device){.api = &host_api, .info = *info, .runs_at_once = true, .runs_in_threads = true};
    device->n_threads = (int)info->compute_units;
    *out_device = &device->base;
    return STRATA_OK;
}

strata_status strata_host_open(strata_device **out_device, strata_error *err) {
    const strata_device_info info = host_info();
    return open_row(&info, NULL, out_device, err);
}

const strata_backend strata_backend_host = {.name = "host", .is_built_in = true, .list = host_list, .open = open_row};
