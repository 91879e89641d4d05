/* SPDX-License-Identifier: Apache-2.0
 *
 * Each core owns a host device. A program is divided into parts at its collectives. The host device compiles and runs the
 * nodes between two collectives. The cores' threads carry out a collective: they wait for each other twice, first until every
 * core has published its operand, and then until every core has read the operands of the others. */
#include "tests/support/cores.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/locale.h"
#include "core/compile/collectives.h"
#include "core/op/communication.h"
#include "core/op/ops.h"
#include "core/run/fold.h"

enum { MOST_CORES = 16, QUEUE = 64, TICKETS = 4096 };

/* A range of bytes in a buffer of the host device. */
typedef struct place {
    strata_buffer *buffer;
    int64_t offset, bytes;
} place;

/* A part of a core's program is either a program of the host device or one collective. */
typedef struct part {
    struct strata_program *program;
    const strata_tensor *collective;
    place operand, result;
    /* Copies of the operand and of the result of a collective, in host memory. */
    void *read, *made;
} part;

typedef struct core core;

struct strata_program {
    core *core;
    part *parts;
    int n_parts, n_slots;
    /* Size of the INPUT and of the OUTPUT arena. */
    int64_t bytes[2];
    /* These two arenas of the current run, on the host device. */
    strata_buffer *buffers[2];
    /* [2 * slot + arena] The two arenas of each slot, in host memory. */
    void **slots;
};

/* The runs that one call submitted: `n` runs from slot `first` on. */
typedef struct call {
    struct strata_program *program;
    int first, n;
    uint64_t ticket;
} call;

struct core {
    strata_device base;
    test_cores *system;
    strata_topology topology;
    int number;
    strata_device *host;
    pthread_t thread;
    /* The system's lock protects all fields below. */
    call queue[QUEUE];
    int n_queued;
    bool running, hung, closing, lost;
    uint64_t submitted, done, waited;
    /* [ticket] How many runs were submitted up to this ticket. */
    int runs_by_ticket[TICKETS];
    /* When the last call ended, or when a call was submitted to an idle core, whichever is later. */
    struct timespec progress;
    /* The collective whose operand the core published last. */
    const part *posted;
    int runs_begun, meetings;
    test_core_counters counters;
};

struct test_cores {
    test_cores_options opts;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    core *cores[MOST_CORES];
    /* The counters of cores that were closed. */
    test_core_counters counters[MOST_CORES];
    /* The first failure of a core. After it, all runs of all cores fail. */
    strata_status failed;
    char reason[256];
};

/* ---- the system ---- */

test_cores *test_cores_create(const test_cores_options *opts) {
    test_cores *system = calloc(1, sizeof *system);
    pthread_condattr_t attr;
    if (!system || opts->n > MOST_CORES) abort();
    system->opts = *opts;
    if (!system->opts.system) system->opts.system = "board 0";
    if (!system->opts.stall_seconds) system->opts.stall_seconds = 60;
    pthread_mutex_init(&system->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&system->changed, &attr);
    pthread_condattr_destroy(&attr);
    return system;
}

void test_cores_destroy(test_cores *system) {
    if (!system) return;
    pthread_cond_destroy(&system->changed);
    pthread_mutex_destroy(&system->lock);
    free(system);
}

test_core_counters test_cores_counters(const test_cores *system, int number) {
    return system->cores[number] ? system->cores[number]->counters : system->counters[number];
}

/* Requires the system's lock. */
static strata_status fail_system(test_cores *system, strata_status status, const char *reason) {
    if (!system->failed) {
        system->failed = status;
        snprintf(system->reason, sizeof system->reason, "%s", reason);
    }
    pthread_cond_broadcast(&system->changed);
    return system->failed;
}

static core *core_of(strata_device *device) {
    return (core *)device;
}

/* ---- memory: transfers wait until the core is idle, and use the host device ---- */

static strata_status settle(core *c, strata_error *err) {
    test_cores *system = c->system;
    pthread_mutex_lock(&system->lock);
    while ((c->running || c->n_queued) && !c->hung && !system->failed) pthread_cond_wait(&system->changed, &system->lock);
    while (c->running && !c->hung) pthread_cond_wait(&system->changed, &system->lock);
    const strata_status status =
        system->failed ? strata_fail(err, STRATA_DEVICE_LOST, "%s: %s", c->base.info.id, system->reason) : STRATA_OK;
    pthread_mutex_unlock(&system->lock);
    return status;
}

static strata_status buffer_create(strata_device *device, int64_t bytes, strata_buffer **out_buffer, strata_error *err) {
    core *c = core_of(device);
    device->counters.allocations++;
    return c->host->api->buffer_create(c->host, bytes, out_buffer, err);
}

static void buffer_destroy(strata_device *device, strata_buffer *buffer) {
    core *c = core_of(device);
    strata_status ignored = settle(c, NULL);
    (void)ignored;
    c->host->api->buffer_destroy(c->host, buffer);
}

static strata_status upload(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source, int64_t bytes,
                            strata_error *err) {
    core *c = core_of(device);
    STRATA_TRY(settle(c, err));
    return c->host->api->upload(c->host, buffer, offset, source, bytes, err);
}

static strata_status download(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                              strata_error *err) {
    core *c = core_of(device);
    STRATA_TRY(settle(c, err));
    return c->host->api->download(c->host, buffer, offset, target, bytes, err);
}

/* ---- programs ---- */

static strata_support supports(strata_device *device, const strata_tensor *node, const char **reason) {
    core *c = core_of(device);
    return strata_is_collective(node) ? STRATA_SUPPORT_YES : c->host->api->supports(c->host, node, reason);
}

static void program_destroy(struct strata_program *program) {
    core *c = program->core;
    strata_status ignored = settle(c, NULL);
    (void)ignored;
    for (int i = 0; program->parts && i < program->n_parts; i++) {
        if (program->parts[i].program) c->host->api->program_destroy(program->parts[i].program);
        free(program->parts[i].read);
        free(program->parts[i].made);
    }
    for (int a = 0; a < 2; a++)
        if (program->buffers[a]) c->host->api->buffer_destroy(c->host, program->buffers[a]);
    for (int i = 0; program->slots && i < 2 * program->n_slots; i++) free(program->slots[i]);
    free(program->slots);
    free(program->parts);
    free(program);
}

static place place_of(const strata_piece *piece, const strata_arena *arenas, const strata_tensor *tensor) {
    const strata_place at = piece->places[tensor->id];
    return (place){at.bytes ? arenas[at.arena].buffer : NULL, at.offset, at.bytes};
}

static strata_status compile_part(core *c, const strata_piece *piece, const strata_arena *arenas, int first, int n, part *out,
                                  strata_error *err) {
    const strata_tensor *node = piece->nodes[first];
    if (strata_is_collective(node)) {
        *out = (part){
            .collective = node, .operand = place_of(piece, arenas, node->inputs[0]), .result = place_of(piece, arenas, node)};
        out->read = calloc(1, (size_t)out->operand.bytes + 1);
        out->made = calloc(1, (size_t)out->result.bytes + 1);
        return out->read && out->made ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "core: no memory");
    }
    strata_piece own = *piece;
    own.nodes += first;
    own.n_nodes = n;
    own.arenas = arenas;
    own.n_slots = 1;
    return c->host->api->compile(c->host, &own, &out->program, err);
}

static strata_status compile_parts(struct strata_program *program, const strata_piece *piece, strata_error *err) {
    core *c = program->core;
    strata_arena *arenas = calloc((size_t)piece->n_arenas, sizeof *arenas);
    if (!arenas) return strata_fail(err, STRATA_OUT_OF_MEMORY, "core: no memory");
    memcpy(arenas, piece->arenas, (size_t)piece->n_arenas * sizeof *arenas);
    strata_status status = STRATA_OK;
    for (int a = 0; a < 2 && !status; a++) {
        program->bytes[a] = arenas[a].bytes;
        if (!arenas[a].bytes) continue;
        status = c->host->api->buffer_create(c->host, arenas[a].bytes, &program->buffers[a], err);
        arenas[a].kind = STRATA_ARENA_WORK;
        arenas[a].buffer = program->buffers[a];
        for (int s = 0; s < program->n_slots && !status; s++) {
            program->slots[2 * s + a] = calloc(1, (size_t)arenas[a].bytes);
            if (!program->slots[2 * s + a]) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "core: no memory for a slot");
        }
    }
    for (int i = 0, n; i < piece->n_nodes && !status; i += n) {
        for (n = 1; !strata_is_collective(piece->nodes[i]) && i + n < piece->n_nodes; n++)
            if (strata_is_collective(piece->nodes[i + n])) break;
        status = compile_part(c, piece, arenas, i, n, &program->parts[program->n_parts++], err);
    }
    free(arenas);
    return status;
}

static strata_status compile(strata_device *device, const strata_piece *piece, struct strata_program **out_program,
                             strata_error *err) {
    struct strata_program *program = calloc(1, sizeof *program);
    if (program) {
        program->core = core_of(device);
        program->n_slots = piece->n_slots;
        program->parts = calloc((size_t)piece->n_nodes + 1, sizeof *program->parts);
        program->slots = calloc(2 * (size_t)piece->n_slots, sizeof(*program->slots));
    }
    if (!program || !program->parts || !program->slots) abort();
    const bool interrupted = ++device->counters.compilations == (uint64_t)program->core->system->opts.interrupted_at;
    const strata_status status = interrupted ? strata_fail(err, STRATA_INTERRUPTED, "%s: interrupted", device->info.id)
                                             : compile_parts(program, piece, err);
    if (status)
        program_destroy(program);
    else
        *out_program = program;
    return status;
}

static void *program_input(struct strata_program *program, int slot) {
    return program->slots[2 * slot];
}

static const void *program_output(struct strata_program *program, int slot) {
    return program->slots[2 * slot + 1];
}

/* ---- collectives, in the cores' threads ---- */

static const strata_communication_attrs *common_of(const part *p) {
    return p->collective->attrs;
}

/* A barrier: waits until every core of the collective has called it as often as this core. Requires the system's lock. */
static strata_status meet(core *c, const part *p) {
    test_cores *system = c->system;
    c->meetings++;
    pthread_cond_broadcast(&system->changed);
    for (int64_t i = 0; i < common_of(p)->n_cores; i++) {
        const int64_t number = common_of(p)->cores[i];
        while (!system->failed && (!system->cores[number] || system->cores[number]->meetings < c->meetings))
            pthread_cond_wait(&system->changed, &system->lock);
    }
    return system->failed;
}

/* Sums the operands of all cores, in the order of their numbers. Of a reduce_scatter only this core's share is computed. */
static void fold(const core *c, const part *p) {
    const strata_communication_attrs *common = common_of(p);
    const strata_tensor *node = p->collective;
    const void *operands[MOST_CORES];
    int64_t first = 0;
    if (node->op == &strata_op_reduce_scatter) {
        const strata_parts_attrs *attrs = p->collective->attrs;
        int64_t row = 1;
        for (int d = 1; d < node->shape.rank; d++) row *= node->shape.dims[d];
        for (int64_t k = 0; k < attrs->own; k++) first += attrs->lengths[k] * row;
    }
    for (int64_t i = 0; i < common->n_cores; i++)
        operands[i] =
            (const char *)c->system->cores[common->cores[i]]->posted->read + (size_t)first * strata_dtype_bytes(node->dtype);
    void *made = p->made;
    strata_fold(node->dtype, STRATA_REDUCE_SUM, operands, (int)common->n_cores, strata_shape_elements(node->shape), &made, 1);
}

static void gather(const core *c, const part *p) {
    const strata_parts_attrs *attrs = p->collective->attrs;
    const strata_shape whole = p->collective->shape;
    size_t outer = 1, inner = strata_dtype_bytes(p->collective->dtype), begin = 0;
    for (int d = 0; d < whole.rank; d++) {
        if (d < attrs->axis) outer *= (size_t)whole.dims[d];
        if (d > attrs->axis) inner *= (size_t)whole.dims[d];
    }
    const size_t row = (size_t)whole.dims[attrs->axis] * inner;
    for (int64_t i = 0; i < attrs->common.n_cores; i++) {
        const part *other = c->system->cores[attrs->common.cores[i]]->posted;
        const size_t bytes = (size_t)attrs->lengths[((const strata_parts_attrs *)other->collective->attrs)->own] * inner;
        for (size_t o = 0; o < outer; o++)
            memcpy((char *)p->made + o * row + begin, (const char *)other->read + o * bytes, bytes);
        begin += bytes;
    }
}

static strata_status exchange(core *c, const part *p, strata_error *err) {
    test_cores *system = c->system;
    const strata_device_api *host = c->host->api;
    if (p->operand.bytes)
        STRATA_TRY(host->download(c->host, p->operand.buffer, p->operand.offset, p->read, p->operand.bytes, err));
    pthread_mutex_lock(&system->lock);
    c->posted = p;
    c->counters.collectives++;
    strata_status status = meet(c, p);
    pthread_mutex_unlock(&system->lock);
    if (!status && p->collective->op == &strata_op_all_gather) gather(c, p);
    if (!status && p->collective->op != &strata_op_all_gather) fold(c, p);
    pthread_mutex_lock(&system->lock);
    if (!status) status = meet(c, p);
    pthread_mutex_unlock(&system->lock);
    if (status) return status;
    return p->result.bytes ? host->upload(c->host, p->result.buffer, p->result.offset, p->made, p->result.bytes, err)
                           : STRATA_OK;
}

/* ---- runs, in the core's thread ---- */

/* Fails when this run is the one that the options choose. With the option `hangs` it first waits until the core is closed. */
static strata_status fail_if_chosen(core *c, strata_error *err) {
    test_cores *system = c->system;
    const test_cores_options *opts = &system->opts;
    strata_status status = STRATA_OK;
    pthread_mutex_lock(&system->lock);
    c->runs_begun++;
    if (c->number == opts->broken_core && c->runs_begun == opts->breaks_at) {
        c->hung = opts->hangs;
        pthread_cond_broadcast(&system->changed);
        while (opts->hangs && !c->closing) pthread_cond_wait(&system->changed, &system->lock);
        status = strata_fail(err, STRATA_DEVICE_LOST, "the test broke this core");
    }
    pthread_mutex_unlock(&system->lock);
    return status;
}

static strata_status run_slot(core *c, const struct strata_program *program, int slot, strata_error *err) {
    const strata_device_api *host = c->host->api;
    uint64_t ticket;
    STRATA_TRY(fail_if_chosen(c, err));
    if (program->bytes[0])
        STRATA_TRY(host->upload(c->host, program->buffers[0], 0, program->slots[2 * slot], program->bytes[0], err));
    for (int i = 0; i < program->n_parts; i++) {
        const part *p = &program->parts[i];
        STRATA_TRY(p->program ? host->run(p->program, 0, &ticket, err) : exchange(c, p, err));
    }
    if (program->bytes[1])
        STRATA_TRY(host->download(c->host, program->buffers[1], 0, program->slots[2 * slot + 1], program->bytes[1], err));
    if (program->bytes[1] && c->system->opts.checked && c->number == c->system->opts.liar)
        *(float *)program->slots[2 * slot + 1] += 1;
    return STRATA_OK;
}

static void *work(void *argument) {
    core *c = argument;
    test_cores *system = c->system;
    pthread_mutex_lock(&system->lock);
    for (;;) {
        while (!c->n_queued && !c->closing) pthread_cond_wait(&system->changed, &system->lock);
        if (c->closing) break;
        const call now = c->queue[0];
        memmove(c->queue, c->queue + 1, (size_t)--c->n_queued * sizeof *c->queue);
        if (system->failed) continue;
        c->running = true;
        strata_error err = {0};
        strata_status status = STRATA_OK;
        pthread_mutex_unlock(&system->lock);
        for (int i = 0; i < now.n && !status; i++)
            status = run_slot(c, now.program, (now.first + i) % now.program->n_slots, &err);
        pthread_mutex_lock(&system->lock);
        c->running = false;
        clock_gettime(CLOCK_MONOTONIC, &c->progress);
        if (!status) {
            c->done = now.ticket;
        } else {
            char reason[sizeof system->reason];
            snprintf(reason, sizeof reason, "core:%d failed: %.200s", c->number, err.message);
            fail_system(system, status, reason);
        }
        pthread_cond_broadcast(&system->changed);
    }
    pthread_mutex_unlock(&system->lock);
    return NULL;
}

/* ---- submitting and waiting ---- */

static strata_status submit(struct strata_program *program, int first, int n, uint64_t *out_ticket, strata_error *err) {
    core *c = program->core;
    test_cores *system = c->system;
    pthread_mutex_lock(&system->lock);
    strata_status status = STRATA_OK;
    while (c->n_queued == QUEUE && !system->failed) pthread_cond_wait(&system->changed, &system->lock);
    if (system->failed) {
        status = strata_fail(err, STRATA_DEVICE_LOST, "%s: %s", c->base.info.id, system->reason);
    } else {
        if (!c->n_queued && !c->running) clock_gettime(CLOCK_MONOTONIC, &c->progress);
        *out_ticket = ++c->submitted;
        c->queue[c->n_queued++] = (call){program, first, n, *out_ticket};
        c->counters.calls++;
        c->counters.calls_of_many += n > 1;
        c->counters.runs += n;
        c->runs_by_ticket[c->submitted % TICKETS] = c->counters.runs;
        const int deep = c->counters.runs - c->runs_by_ticket[c->waited % TICKETS];
        if (deep > c->counters.deepest) c->counters.deepest = deep;
        c->base.counters.submissions++;
        c->base.counters.launches += (uint64_t)(n * program->n_parts);
        pthread_cond_broadcast(&system->changed);
    }
    pthread_mutex_unlock(&system->lock);
    return status;
}

static strata_status run(struct strata_program *program, int slot, uint64_t *out_ticket, strata_error *err) {
    return submit(program, slot, 1, out_ticket, err);
}

static int most_runs(strata_device *device) {
    const test_cores_options *opts = &core_of(device)->system->opts;
    return opts->no_many ? 1 : opts->most_runs ? opts->most_runs : 1 << 20;
}

static strata_status wait_for(strata_device *device, uint64_t ticket, strata_error *err) {
    core *c = core_of(device);
    test_cores *system = c->system;
    strata_status status = STRATA_OK;
    pthread_mutex_lock(&system->lock);
    while (c->done < ticket && !system->failed && !status) {
        const double end = (double)c->progress.tv_sec + (double)c->progress.tv_nsec * 1e-9 + system->opts.stall_seconds;
        const struct timespec until = {(time_t)end, (long)((end - (double)(time_t)end) * 1e9)};
        if (pthread_cond_timedwait(&system->changed, &system->lock, &until) == ETIMEDOUT && c->done < ticket) {
            char reason[64];
            strata_format(reason, sizeof reason, "nothing has ended for %g s", system->opts.stall_seconds);
            status = fail_system(system, STRATA_TIMEOUT, reason);
        }
    }
    if (c->done < ticket) status = status ? status : STRATA_DEVICE_LOST;
    if (status) strata_fail(err, status, "%s: %s", device->info.id, system->reason);
    if (!status && c->waited < ticket) c->waited = ticket;
    pthread_mutex_unlock(&system->lock);
    return status;
}

/* ---- the rest of the table ---- */

static const strata_topology *topology(strata_device *device) {
    return &core_of(device)->topology;
}

static uint64_t reached(strata_device *device) {
    core *c = core_of(device);
    pthread_mutex_lock(&c->system->lock);
    const uint64_t n = (uint64_t)c->counters.collectives;
    pthread_mutex_unlock(&c->system->lock);
    return n;
}

static const strata_device_collectives *collectives(strata_device *device) {
    static const strata_device_collectives all = {.sum_dtypes = (1u << STRATA_DTYPE_COUNT) - 1, .reached = reached};
    return core_of(device)->system->opts.no_collectives ? NULL : &all;
}

static void close_core(strata_device *device) {
    core *c = core_of(device);
    test_cores *system = c->system;
    pthread_mutex_lock(&system->lock);
    c->closing = true;
    pthread_cond_broadcast(&system->changed);
    pthread_mutex_unlock(&system->lock);
    pthread_join(c->thread, NULL);
    pthread_mutex_lock(&system->lock);
    system->counters[c->number] = c->counters;
    system->cores[c->number] = NULL;
    pthread_mutex_unlock(&system->lock);
    strata_device_close(c->host);
    free(c);
}

static const strata_device_api core_api = {
    .close = close_core,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .upload = upload,
    .download = download,
    .supports = supports,
    .compile = compile,
    .program_destroy = program_destroy,
    .program_input = program_input,
    .program_output = program_output,
    .run = run,
    .wait = wait_for,
    .most_runs = most_runs,
    .run_many = submit,
    .topology = topology,
    .collectives = collectives,
};

strata_status test_cores_open(test_cores *system, int number, strata_device **out_device, strata_error *err) {
    core *c = calloc(1, sizeof *c);
    if (!c || number < 0 || number >= system->opts.n) abort();
    strata_device *referee = NULL;
    strata_status status = strata_device_open("host", NULL, &c->host, err);
    if (!status && system->opts.checked) status = strata_device_open("host", NULL, &referee, err);
    if (status) {
        strata_device_close(c->host);
        free(c);
        return status;
    }
    c->base = (strata_device){.api = &core_api, .info = c->host->info, .referee = referee};
    snprintf(c->base.info.id, sizeof c->base.info.id, "core:%d", number);
    snprintf(c->base.info.backend, sizeof c->base.info.backend, "core");
    c->base.info.device_class = STRATA_DEVICE_ACCELERATOR;
    c->base.info.unified_memory = false;
    if (system->opts.memory) c->base.info.memory_bytes = system->opts.memory;
    c->system = system;
    c->number = number;
    c->topology = (strata_topology){.n_cores = system->opts.n, .core = number, .rank = 1, .dims = {system->opts.n}};
    c->topology.coordinates[0] = number;
    snprintf(c->topology.system, sizeof c->topology.system, "%s", system->opts.system);
    pthread_mutex_lock(&system->lock);
    system->cores[number] = c;
    pthread_mutex_unlock(&system->lock);
    if (pthread_create(&c->thread, NULL, work, c)) abort();
    *out_device = &c->base;
    return STRATA_OK;
}
