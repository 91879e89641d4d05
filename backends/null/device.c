/* SPDX-License-Identifier: Apache-2.0
 *
 * The null backend, which is the smallest one: it compiles every piece and runs nothing, so outputs are zeros. There is always
 * one such device, and it is opened only if the user names it. To begin a backend, copy this folder; README.md says what to
 * replace. */
#include "backends/registry.h"

/* The first member of a device is the struct that the rest of Strata uses. The members after it are the backend's own,
 * for example the objects of its driver. */
typedef struct null_device {
    strata_device base;
    uint64_t last_ticket;
} null_device;

/* ---- buffers, which are host memory. A backend with its own memory calls its driver instead of calloc and memcpy. ---- */
struct strata_buffer {
    int64_t bytes;
    char *memory;
};

static strata_status null_buffer_create(strata_device *device, int64_t bytes, strata_buffer **out_buffer, strata_error *err) {
    STRATA_FREED strata_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer) *buffer = (strata_buffer){.bytes = bytes, .memory = calloc(1, (size_t)bytes)};
    if (!buffer || !buffer->memory)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "null: no memory for a buffer of %lld bytes", (long long)bytes);
    device->counters.allocations++;
    device->counters.allocated_bytes += (uint64_t)bytes;
    *out_buffer = strata_released(&buffer);
    return STRATA_OK;
}

static void null_buffer_destroy(strata_device *device, strata_buffer *buffer) {
    if (!buffer) return;
    device->counters.allocated_bytes -= (uint64_t)buffer->bytes;
    free(buffer->memory);
    free(buffer);
}

static strata_status null_upload(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source,
                                 int64_t bytes, strata_error *err) {
    STRATA_TRY(strata_device_check_range(device, buffer->bytes, offset, bytes, err));
    memcpy(buffer->memory + offset, source, (size_t)bytes);
    device->counters.upload_bytes += (uint64_t)bytes;
    return STRATA_OK;
}

static strata_status null_download(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                   strata_error *err) {
    STRATA_TRY(strata_device_check_range(device, buffer->bytes, offset, bytes, err));
    memcpy(target, buffer->memory + offset, (size_t)bytes);
    device->counters.download_bytes += (uint64_t)bytes;
    return STRATA_OK;
}

/* ---- programs: here only the memory of the slots and the number of nodes ---- */
struct strata_program {
    null_device *device;
    int n_nodes, n_slots;
    /* [2 slot + kind] The INPUT and OUTPUT arena of each slot; NULL for an arena of 0 bytes. */
    void **arenas;
};

static strata_support null_supports(strata_device *device, const strata_tensor *node, const char **reason) {
    (void)device;
    *reason = "the op has no reference";
    return node->op->reference ? STRATA_SUPPORT_YES : STRATA_SUPPORT_NO;
}

static void null_program_destroy(strata_program *program) {
    if (!program) return;
    for (int i = 0; program->arenas && i < 2 * program->n_slots; i++) free(program->arenas[i]);
    free(program->arenas);
    free(program);
}

/* Here a backend compiles piece->nodes. piece->places has the arena and the offset of each tensor's bytes. */
static strata_status null_compile(strata_device *device, const strata_piece *piece, strata_program **out_program,
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
        null_program_destroy(program);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "null: no memory for a program of %d nodes", piece->n_nodes);
    }
    device->counters.compilations++;
    *out_program = program;
    return STRATA_OK;
}

static void *null_program_input(strata_program *program, int slot) {
    return program->arenas[2 * slot + STRATA_ARENA_INPUT];
}

static const void *null_program_output(strata_program *program, int slot) {
    return program->arenas[2 * slot + STRATA_ARENA_OUTPUT];
}

/* Here a backend submits the program and counts what it launched. */
static strata_status null_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err) {
    (void)slot;
    (void)err;
    program->device->base.counters.launches += (uint64_t)program->n_nodes;
    program->device->base.counters.submissions++;
    *out_ticket = ++program->device->last_ticket;
    return STRATA_OK;
}

/* ---- the device ---- */
static void null_close(strata_device *device) {
    free(device);
}

/* A ticket is the number of a run. The run has ended when null_run returns. */
static strata_status null_wait(strata_device *device, uint64_t ticket, strata_error *err) {
    const uint64_t last = ((null_device *)device)->last_ticket;
    if (ticket <= last) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "null: ticket %llu was never given out; the last is %llu",
                       (unsigned long long)ticket, (unsigned long long)last);
}

static const strata_device_api null_api = {
    .close = null_close,
    .buffer_create = null_buffer_create,
    .buffer_destroy = null_buffer_destroy,
    .upload = null_upload,
    .download = null_download,
    .supports = null_supports,
    .compile = null_compile,
    .program_destroy = null_program_destroy,
    .program_input = null_program_input,
    .program_output = null_program_output,
    .run = null_run,
    .wait = null_wait,
};

static strata_status null_open(const strata_device_info *info, const strata_device_options *opts, strata_device **out_device,
                               strata_error *err) {
    (void)opts;
    null_device *device = NULL;
    STRATA_TRY(STRATA_NEW(device, 1, err, "null: no host memory for the device"));
    device->base = (strata_device){.api = &null_api, .info = *info};
    *out_device = &device->base;
    return STRATA_OK;
}

static strata_status null_list(strata_device_list *list, strata_error *err) {
    static const strata_device_info info = {.id = "null",
                                            .backend = "null",
                                            .name = "a device that runs nothing",
                                            .vendor = "Strata",
                                            .driver = "built in",
                                            .device_class = STRATA_DEVICE_HOST,
                                            .max_allocation_bytes = INT64_MAX,
                                            .max_range_bytes = INT64_MAX,
                                            .compute_units = 1,
                                            .max_workgroup = 1,
                                            .vector_width = 1,
                                            .unified_memory = true,
                                            .dtypes = (1u << STRATA_DTYPE_COUNT) - 1};
    return strata_device_list_add(list, &info, err);
}

const strata_backend strata_backend_null = {
    .name = "null", .is_built_in = true, .on_request = true, .list = null_list, .open = null_open};
