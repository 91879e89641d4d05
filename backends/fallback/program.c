/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of a device with two sides. A piece is divided into parts, each of which is compiled by one side. Both sides
 * have arenas of the same sizes, so a value has the same offset on both. Before a part runs, the bytes that it reads
 * and that are newer on the other side are copied. Parts run one after the other in the caller's thread, since the
 * copies have to wait anyway.
 *
 * A piece that the device can run alone is one part and uses the device's own slots. It then runs as without a
 * fallback, except that variables which the host has written are copied first. */
#include "backends/fallback/fallback.h"
#include "backends/host/host.h"

typedef struct byte_range {
    strata_buffer *buffer;
    int64_t begin, end;
} byte_range;

typedef struct range_list {
    byte_range *items;
    int n;
} range_list;

typedef struct program_part {
    fallback_side side;
    strata_program *program;
    /* The bytes that the part reads without having written them before, and the bytes that it writes. */
    range_list reads, writes;
    int n_nodes;
} program_part;

struct strata_program {
    fallback_device *device;
    program_part *parts;
    int n_parts;
    /* There is only one part, of the device's side, and its slots are used. */
    bool whole;
    /* If not whole: the buffers of the INPUT and OUTPUT arenas on both sides (NULL for 0 bytes), and their host memory,
     * [2 slot + kind]. */
    strata_buffer *ports[2];
    void **slots;
    int n_slots;
};

/* The state while a piece is divided. Arenas and places are those of the parts. */
typedef struct cutter {
    strata_program *program;
    const strata_piece *piece;
    fallback_side *sides;    /* indexed by the piece's nodes */
    strata_buffer **buffers; /* our buffers, indexed by arena */
    strata_arena *arenas;
    strata_place *places;
    int n_arenas;
    /* The memory of these arrays. */
    strata_memory memory;
} cutter;

/* ---- what a part reads and writes ---- */

static bool range_of(const cutter *c, const strata_tensor *tensor, byte_range *out) {
    const strata_place place = c->places[tensor->id];
    if (place.arena < 0 || !place.bytes || !c->buffers[place.arena]) return false;
    *out = (byte_range){c->buffers[place.arena], place.offset, place.offset + place.bytes};
    return true;
}

static bool covers(const range_list *list, byte_range range) {
    for (int i = 0; i < list->n; i++)
        if (list->items[i].buffer == range.buffer && list->items[i].begin <= range.begin && range.end <= list->items[i].end)
            return true;
    return false;
}

static void add(range_list *list, byte_range range) {
    if (!covers(list, range)) list->items[list->n++] = range;
}

static bool is_written(const strata_tensor *node, int i) {
    return (node->op->flags & STRATA_OP_UPDATE) && (i == 0 || node->op->also_writes >> i & 1);
}

static strata_status list_ranges(const cutter *c, program_part *part, int first, strata_error *err) {
    size_t most = 1;
    for (int i = first; i < first + part->n_nodes; i++) most += (size_t)c->piece->nodes[i]->n_inputs + 1;
    STRATA_TRY(STRATA_NEW(part->reads.items, most, err, "fallback: no host memory for %zu ranges", most));
    STRATA_TRY(STRATA_NEW(part->writes.items, most, err, "fallback: no host memory for %zu ranges", most));
    for (int i = first; i < first + part->n_nodes; i++) {
        const strata_tensor *node = c->piece->nodes[i];
        byte_range range;
        for (int k = 0; k < node->n_inputs; k++)
            if (range_of(c, node->inputs[k], &range) && !covers(&part->writes, range)) add(&part->reads, range);
        for (int k = 0; k < node->n_inputs; k++)
            if (is_written(node, k) && range_of(c, node->inputs[k], &range)) add(&part->writes, range);
        if (range_of(c, node, &range)) add(&part->writes, range);
    }
    return STRATA_OK;
}

/* ---- compiling ---- */

static strata_status compile_part(const cutter *c, program_part *part, int first, strata_error *err) {
    strata_program *program = c->program;
    strata_device *device = program->device->sides[part->side];
    STRATA_TRY(list_ranges(c, part, first, err));
    for (int i = 0; i < part->reads.n && part->side == FALLBACK_HOST; i++)
        STRATA_TRY(strata_fallback_mirror(part->reads.items[i].buffer, err));
    for (int i = 0; i < part->writes.n && part->side == FALLBACK_HOST; i++)
        STRATA_TRY(strata_fallback_mirror(part->writes.items[i].buffer, err));
    for (int i = 0; i < c->n_arenas; i++) c->arenas[i].buffer = c->buffers[i] ? c->buffers[i]->sides[part->side] : NULL;
    const strata_piece piece = {.nodes = c->piece->nodes + first,
                                .n_nodes = part->n_nodes,
                                .places = c->places,
                                .n_places = c->piece->n_places,
                                .arenas = c->arenas,
                                .n_arenas = c->n_arenas,
                                .n_slots = program->whole ? c->piece->n_slots : 1};
    strata_status status = device->api->compile(device, &piece, &part->program, err);
    const strata_check_request request = {.first = true, .share = 1};
    if (!status && device->api->check) status = device->api->check(device, &piece, part->program, &request, err);
    program->device->base.n_distrusted = program->device->sides[FALLBACK_DEVICE]->n_distrusted;
    return status;
}

/* The INPUT and OUTPUT arenas become additional buffers at the end of the list, and this file allocates the host memory of each
 * slot. Temporaries may be read by another part, so their arenas become CARRIED: a device that plans the memory of temporaries
 * itself does not move carried values. */
static strata_status make_ports(cutter *c, strata_error *err) {
    strata_program *program = c->program;
    STRATA_TRY(STRATA_NEW(program->slots, 2 * (size_t)c->piece->n_slots, err, "fallback: no host memory for slots"));
    for (int kind = 0; kind < 2; kind++) {
        const int64_t bytes = c->piece->arenas[kind].bytes;
        const int index = c->piece->n_arenas + kind;
        c->arenas[kind].bytes = 0;
        c->arenas[index] = (strata_arena){.kind = STRATA_ARENA_CARRIED, .bytes = bytes};
        if (!bytes) continue;
        STRATA_TRY(strata_fallback_buffer_create(&program->device->base, bytes, &program->ports[kind], err));
        STRATA_TRY(strata_fallback_mirror(program->ports[kind], err));
        c->buffers[index] = program->ports[kind];
        for (int slot = 0; slot < program->n_slots; slot++) {
            if (!(program->slots[2 * slot + kind] = strata_host_allocate(bytes)))
                return strata_fail(err, STRATA_OUT_OF_MEMORY, "fallback: no host memory for a slot of %lld bytes",
                                   (long long)bytes);
        }
    }
    for (int i = 0; i < c->piece->n_arenas; i++)
        if (c->arenas[i].kind == STRATA_ARENA_WORK) c->arenas[i].kind = STRATA_ARENA_CARRIED;
    for (int id = 0; id < c->piece->n_places; id++) {
        strata_place *place = &c->places[id];
        if (place->arena == STRATA_ARENA_INPUT || place->arena == STRATA_ARENA_OUTPUT) place->arena += c->piece->n_arenas;
    }
    return STRATA_OK;
}

/* Chooses the side that runs each node. */
static void choose_sides(cutter *c) {
    strata_device *device = &c->program->device->base;
    const char *reason = NULL;
    c->program->whole = true;
    for (int i = 0; i < c->piece->n_nodes; i++) {
        const strata_support support = device->api->supports(device, c->piece->nodes[i], &reason);
        c->sides[i] = support == STRATA_SUPPORT_HOST ? FALLBACK_HOST : FALLBACK_DEVICE;
        c->program->whole = c->program->whole && c->sides[i] == FALLBACK_DEVICE;
    }
}

static strata_status cut(cutter *c, strata_error *err) {
    strata_program *program = c->program;
    const int n_nodes = c->piece->n_nodes;
    choose_sides(c);
    if (!program->whole) STRATA_TRY(make_ports(c, err));
    c->n_arenas = c->piece->n_arenas + (program->whole ? 0 : 2);
    for (int first = 0; first < n_nodes || program->n_parts == 0;) {
        program_part *part = &program->parts[program->n_parts++];
        part->side = n_nodes ? c->sides[first] : FALLBACK_DEVICE;
        while (first + part->n_nodes < n_nodes && c->sides[first + part->n_nodes] == part->side) part->n_nodes++;
        STRATA_TRY(compile_part(c, part, first, err));
        first += part->n_nodes;
    }
    return STRATA_OK;
}

static strata_status begin(cutter *c, fallback_device *device, strata_error *err) {
    static const char no_memory[] = "fallback: no host memory for a program of %d nodes";
    const strata_piece *piece = c->piece;
    const int n = piece->n_nodes, n_arenas = piece->n_arenas + 2;
    STRATA_TRY(STRATA_TAKE(&c->memory, c->sides, n, err, no_memory, n));
    STRATA_TRY(STRATA_TAKE(&c->memory, c->buffers, n_arenas, err, no_memory, n));
    STRATA_TRY(STRATA_TAKE(&c->memory, c->arenas, n_arenas, err, no_memory, n));
    STRATA_TRY(STRATA_TAKE(&c->memory, c->places, piece->n_places, err, no_memory, n));
    STRATA_TRY(STRATA_NEW(c->program, 1, err, no_memory, n));
    c->program->device = device;
    c->program->n_slots = piece->n_slots;
    STRATA_TRY(STRATA_NEW(c->program->parts, n + 1, err, no_memory, n));
    memcpy(c->arenas, piece->arenas, (size_t)piece->n_arenas * sizeof *c->arenas);
    memcpy(c->places, piece->places, (size_t)piece->n_places * sizeof *c->places);
    for (int i = 0; i < piece->n_arenas; i++) c->buffers[i] = piece->arenas[i].buffer;
    return STRATA_OK;
}

strata_status strata_fallback_compile(strata_device *base, const strata_piece *piece, strata_program **out_program,
                                      strata_error *err) {
    fallback_device *device = (fallback_device *)base;
    cutter c = {.piece = piece};
    strata_status status = begin(&c, device, err);
    if (!status) status = cut(&c, err);
    strata_memory_finish(&c.memory);
    if (status)
        strata_fallback_program_destroy(c.program);
    else
        *out_program = c.program;
    strata_fallback_count(device);
    return status;
}

void strata_fallback_program_destroy(strata_program *program) {
    if (!program) return;
    for (int i = 0; i < program->n_parts; i++) {
        program_part *part = &program->parts[i];
        if (part->program) program->device->sides[part->side]->api->program_destroy(part->program);
        free(part->reads.items);
        free(part->writes.items);
    }
    for (int i = 0; program->slots && i < 2 * program->n_slots; i++) free(program->slots[i]);
    for (int kind = 0; kind < 2; kind++) strata_fallback_buffer_destroy(&program->device->base, program->ports[kind]);
    free(program->slots);
    free(program->parts);
    free(program);
}

/* ---- running ---- */

void *strata_fallback_program_input(strata_program *program, int slot) {
    if (!program->whole) return program->slots[2 * slot + STRATA_ARENA_INPUT];
    return program->device->sides[FALLBACK_DEVICE]->api->program_input(program->parts[0].program, slot);
}

const void *strata_fallback_program_output(strata_program *program, int slot) {
    if (!program->whole) return program->slots[2 * slot + STRATA_ARENA_OUTPUT];
    return program->device->sides[FALLBACK_DEVICE]->api->program_output(program->parts[0].program, slot);
}

/* Runs the part on n slots: first, first + 1, ... */
static strata_status run_part(strata_program *program, const program_part *part, int first, int n, strata_error *err) {
    fallback_device *device = program->device;
    const strata_device_api *api = device->sides[part->side]->api;
    uint64_t ticket = 0;
    for (int i = 0; i < part->reads.n; i++) {
        const byte_range *r = &part->reads.items[i];
        STRATA_TRY(strata_fallback_buffer_needed(r->buffer, r->begin, r->end, part->side, err));
    }
    if (part->side == FALLBACK_HOST) STRATA_TRY(strata_fallback_await_copies(device, err));
    STRATA_TRY(n > 1 ? api->run_many(part->program, first, n, &ticket, err) : api->run(part->program, first, &ticket, err));
    if (part->side == FALLBACK_DEVICE)
        device->newest_device_ticket = ticket;
    else
        device->host_nodes += (uint64_t)part->n_nodes;
    for (int i = 0; i < part->writes.n; i++) {
        const byte_range *r = &part->writes.items[i];
        STRATA_TRY(strata_fallback_buffer_written(r->buffer, r->begin, r->end, part->side, err));
    }
    return STRATA_OK;
}

/* Copies the slot's input to its port, runs all parts, and copies the output port to the slot. */
static strata_status run_parts(strata_program *program, int slot, strata_error *err) {
    strata_buffer *input = program->ports[STRATA_ARENA_INPUT], *output = program->ports[STRATA_ARENA_OUTPUT];
    if (input) {
        STRATA_TRY(strata_fallback_await_copies(program->device, err)); /* the copies of the step before read the same mirror */
        memcpy(strata_host_buffer_memory(input->sides[FALLBACK_HOST]), program->slots[2 * slot + STRATA_ARENA_INPUT],
               (size_t)input->bytes);
        STRATA_TRY(strata_fallback_buffer_written(input, 0, input->bytes, FALLBACK_HOST, err));
    }
    for (int i = 0; i < program->n_parts; i++) STRATA_TRY(run_part(program, &program->parts[i], 0, 1, err));
    if (!output) return STRATA_OK;
    STRATA_TRY(strata_fallback_buffer_needed(output, 0, output->bytes, FALLBACK_HOST, err));
    STRATA_TRY(strata_fallback_await_copies(program->device, err));
    memcpy(program->slots[2 * slot + STRATA_ARENA_OUTPUT], strata_host_buffer_memory(output->sides[FALLBACK_HOST]),
           (size_t)output->bytes);
    return STRATA_OK;
}

strata_status strata_fallback_run_many(strata_program *program, int first, int n, uint64_t *out_ticket, strata_error *err) {
    fallback_device *device = program->device;
    strata_status status = STRATA_OK;
    if (program->whole) status = run_part(program, &program->parts[0], first, n, err);
    for (int i = 0; i < n && !program->whole && !status; i++) status = run_parts(program, (first + i) % program->n_slots, err);
    *out_ticket = ++device->last_ticket;
    device->device_tickets[device->last_ticket % FALLBACK_TICKETS] = device->newest_device_ticket;
    strata_fallback_count(device);
    return status;
}

strata_status strata_fallback_check(strata_device *base, const strata_piece *piece, strata_program *program,
                                    const strata_check_request *request, strata_error *err) {
    strata_device *inner = ((fallback_device *)base)->sides[FALLBACK_DEVICE];
    if (!program->whole || request->first || !inner->api->check) return STRATA_OK;
    STRATA_FREED strata_arena *arenas = NULL;
    STRATA_TRY(STRATA_NEW(arenas, piece->n_arenas, err, "fallback: no host memory for %d arenas", piece->n_arenas));
    memcpy(arenas, piece->arenas, (size_t)piece->n_arenas * sizeof *arenas);
    for (int i = 0; i < piece->n_arenas; i++)
        if (arenas[i].buffer) arenas[i].buffer = arenas[i].buffer->sides[FALLBACK_DEVICE];
    strata_piece own = *piece;
    own.arenas = arenas;
    return inner->api->check(inner, &own, program->parts[0].program, request, err);
}

strata_status strata_fallback_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err) {
    return strata_fallback_run_many(program, slot, 1, out_ticket, err);
}

/* ---- costs ---- */

/* Adds the cost of one of the device's parts. The utilisation of the matrix units is averaged by cycles. */
static void add_cost(strata_device_cost *sum, const strata_device_cost *part) {
    const double cycles = sum->cycles + part->cycles;
    if (cycles > 0) sum->utilisation = (sum->utilisation * sum->cycles + part->utilisation * part->cycles) / cycles;
    sum->cycles = cycles;
    sum->seconds += part->seconds;
    sum->bytes += part->bytes;
    if (part->work_bytes > sum->work_bytes) sum->work_bytes = part->work_bytes;
}

/* The cost of the device's parts, as the device reports it. The cost of the host's parts is not known. */
strata_status strata_fallback_program_cost(strata_program *program, int node, strata_device_cost *out_cost, strata_error *err) {
    const strata_device_api *api = program->device->sides[FALLBACK_DEVICE]->api;
    *out_cost = (strata_device_cost){0};
    for (int i = 0, first = 0; i < program->n_parts && api->program_cost; first += program->parts[i++].n_nodes) {
        const program_part *part = &program->parts[i];
        strata_device_cost cost;
        if (part->side != FALLBACK_DEVICE || (node >= 0 && (node < first || node >= first + part->n_nodes))) continue;
        STRATA_TRY(api->program_cost(part->program, node < 0 ? -1 : node - first, &cost, err));
        add_cost(out_cost, &cost);
    }
    return STRATA_OK;
}
