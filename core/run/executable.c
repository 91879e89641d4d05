/* SPDX-License-Identifier: Apache-2.0
 *
 * Executables: creating one runs the passes and the memory plan, allocates device memory, and compiles a program for each
 * segment (a single one if nothing is communicated). Running one uses a ring of slots. */
#include "core/run/executable.h"

#include "core/compile/passes.h"
#include "core/op/ops.h"
#include "core/run/bench.h"

enum { DEFAULT_SLOTS = 3 };
/* The values with which a new program is checked. */
enum { FIRST_SEED = 12345 };

/* ---- create ---- */

static strata_status check_supported(const strata_executable *exe, strata_error *err) {
    return strata_node_support_check(exe->device, (const strata_tensor *const *)exe->plan.schedule, exe->plan.n_schedule, err);
}

static strata_status check_variables(const strata_executable *exe, strata_error *err) {
    for (int i = 0; i < exe->plan.n_arenas; i++) {
        const strata_variable *variable = exe->is_referee ? NULL : exe->plan.arena_variables[i];
        if (variable && variable->device != exe->device)
            return strata_fail(err, STRATA_INVALID, "executable: variable %s lives on %s, not on %s", variable->name,
                               variable->device->info.id, exe->device->info.id);
    }
    return STRATA_OK;
}

/* How many slots the programs of one copy have. */
static int slots_of_copy(const strata_executable *exe) {
    return (exe->n_slots + exe->n_carried - 1) / exe->n_carried;
}

/* At most INT64_MAX, also where the sum is larger. */
static int64_t device_bytes(const strata_executable *exe) {
    const int n_slots = exe->n_carried * slots_of_copy(exe);
    const struct {
        strata_arena_kind kind;
        int times;
    } parts[] = {{STRATA_ARENA_WORK, 1}, /* with one copy of the CARRIED arenas */
                 {STRATA_ARENA_CARRIED, exe->n_carried - 1},
                 {STRATA_ARENA_CONSTANT, 1},
                 {STRATA_ARENA_INPUT, n_slots},
                 {STRATA_ARENA_OUTPUT, n_slots}};
    int64_t sum = 0, bytes;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (__builtin_mul_overflow(strata_plan_bytes(&exe->plan, parts[i].kind), parts[i].times, &bytes) ||
            __builtin_add_overflow(sum, bytes, &sum))
            return INT64_MAX;
    return sum;
}

static strata_status check_memory(const strata_executable *exe, strata_error *err) {
    uint64_t wanted = (uint64_t)device_bytes(exe);
    uint64_t all = exe->device->info.memory_bytes, used = exe->device->counters.allocated_bytes;
    uint64_t left = used < all ? all - used : 0;
    if (!all || wanted <= left) return STRATA_OK;
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: the program needs %.1f MiB, %.1f MiB are free", exe->device->info.id,
                       (double)wanted / 1048576, (double)left / 1048576);
}

/* The arenas of a copy, which differ in the buffers of the CARRIED ones. */
static strata_arena *arenas_of(const strata_executable *exe, int copy) {
    return copy ? exe->copies + (copy - 1) * exe->plan.n_arenas : exe->plan.arenas;
}

static strata_status make_copies(strata_executable *exe, strata_error *err) {
    const int n = exe->plan.n_arenas;
    STRATA_TRY(STRATA_NEW(exe->copies, (exe->n_carried - 1) * n, err, "executable: no host memory for %d arenas", n));
    for (int copy = 1; copy < exe->n_carried; copy++)
        for (int i = 0; i < n; i++) {
            strata_arena *arena = &arenas_of(exe, copy)[i];
            *arena = exe->plan.arenas[i];
            if (arena->kind != STRATA_ARENA_CARRIED) continue;
            arena->buffer = NULL;
            STRATA_TRY(exe->device->api->buffer_create(exe->device, arena->bytes, &arena->buffer, err));
        }
    return STRATA_OK;
}

/* Allocates device memory for the arenas, except those that the device manages itself, and uploads constants. */
static strata_status make_buffers(strata_executable *exe, strata_error *err) {
    for (int i = 0; i < exe->plan.n_arenas; i++) {
        strata_arena *arena = &exe->plan.arenas[i];
        if (arena->kind == STRATA_ARENA_VARIABLE && !exe->is_referee) arena->buffer = exe->plan.arena_variables[i]->buffer;
        const bool made = arena->kind == STRATA_ARENA_CARRIED || (arena->kind == STRATA_ARENA_VARIABLE && exe->is_referee) ||
                          (arena->kind == STRATA_ARENA_CONSTANT && !exe->device->keeps_constants) ||
                          (arena->kind == STRATA_ARENA_WORK && !exe->device->plans_temporaries);
        if (made && arena->bytes) STRATA_TRY(exe->device->api->buffer_create(exe->device, arena->bytes, &arena->buffer, err));
    }
    for (int id = 0; id < exe->plan.n_places; id++) {
        const strata_tensor *node = exe->draft.graph->nodes[id];
        strata_place place = exe->plan.places[id];
        if (node->op != &strata_op_constant || place.arena < 0 || !exe->plan.arenas[place.arena].buffer) continue;
        const void *data = ((const strata_constant_attrs *)node->attrs)->data;
        STRATA_TRY(
            exe->device->api->upload(exe->device, exe->plan.arenas[place.arena].buffer, place.offset, data, place.bytes, err));
    }
    return make_copies(exe, err);
}

strata_piece strata_executable_piece(const strata_executable *exe) {
    return (strata_piece){.nodes = (const strata_tensor *const *)exe->plan.schedule,
                          .n_nodes = exe->plan.n_schedule,
                          .places = exe->plan.places,
                          .n_places = exe->plan.n_places,
                          .arenas = exe->plan.arenas,
                          .n_arenas = exe->plan.n_arenas,
                          .n_slots = slots_of_copy(exe)};
}

static strata_piece piece_of(const strata_executable *exe, int k, const strata_arena *arenas) {
    strata_piece piece = strata_executable_piece(exe);
    piece.nodes += exe->plan.segments[k].first;
    piece.n_nodes = exe->plan.segments[k].n;
    piece.arenas = arenas;
    return piece;
}

/* arenas: memory for the copy's arenas with the sizes of this segment. */
static strata_status compile_segment(strata_executable *exe, int copy, int k, strata_arena *arenas, strata_error *err) {
    const strata_segment *segment = &exe->plan.segments[k];
    memcpy(arenas, arenas_of(exe, copy), (size_t)exe->plan.n_arenas * sizeof *arenas);
    arenas[STRATA_ARENA_INDEX_INPUT].bytes = segment->input_bytes;
    arenas[STRATA_ARENA_INDEX_OUTPUT].bytes = segment->output_bytes;
    const strata_piece piece = piece_of(exe, k, arenas);
    return exe->device->api->compile(exe->device, &piece, &exe->programs[copy * exe->plan.n_segments + k], err);
}

static strata_status compile(strata_executable *exe, strata_error *err) {
    static const char no_memory[] = "executable: no host memory for %d programs";
    const int n = exe->plan.n_segments;
    STRATA_FREED strata_arena *arenas = NULL;
    STRATA_TRY(STRATA_NEW(arenas, exe->plan.n_arenas, err, no_memory, n));
    STRATA_TRY(STRATA_NEW(exe->programs, n * exe->n_carried, err, no_memory, n));
    STRATA_TRY(STRATA_NEW(exe->tickets, n * exe->n_slots, err, no_memory, n));
    for (int i = 0; i < n * exe->n_carried; i++) STRATA_TRY(compile_segment(exe, i / n, i % n, arenas, err));
    return STRATA_OK;
}

/* Whether the host runs some node of the program for the device (strata_device_options.fallback_to_host). */
static bool needs_host(const strata_executable *exe) {
    const strata_device_query query = strata_node_support_query(exe->device);
    for (int id = 0; id < exe->draft.graph->n_nodes; id++) {
        const strata_tensor *node = exe->draft.graph->nodes[id];
        const bool computes = !(node->op->flags & STRATA_OP_LEAF) && !strata_is_communication(node);
        if (computes && query.supports(query.user, node) == STRATA_SUPPORT_HOST) return true;
    }
    return false;
}

/* What the caller wants: the values and updates of one device (`alone`), or of a replica, which may be a core of a system. */
typedef struct request {
    strata_tensor *const *outputs, *const *updates;
    int n_outputs, n_updates;
    strata_executable_options opts;
    bool alone;
    const strata_core_place *place;
    /* How many copies of the CARRIED arenas; 0: 1. */
    int n_carried;
} request;

/* The part of creating an executable that needs no device memory: passes and plan. */
static strata_status plan(strata_executable *exe, const request *wanted, strata_error *err) {
    strata_draft *draft = &exe->draft;
    const strata_core_place *place = wanted->place;
    strata_device_query query = strata_node_support_query(exe->device);
    query.no_fusion = wanted->opts.no_fusion;
    STRATA_TRY(STRATA_NEW(exe->slots, exe->n_slots, err, "executable: no host memory"));
    for (int i = 0; i < exe->n_slots; i++) exe->slots[i].position = i;
    STRATA_TRY(strata_draft_begin(draft, wanted->outputs, wanted->n_outputs, wanted->updates, wanted->n_updates, err));
    STRATA_TRY(strata_prints_find(exe->device, draft, &exe->prints, err));
    STRATA_TRY(strata_passes_run(draft, &query, wanted->alone, err));
    /* Between the parts of such a program the host waits for the device, so the program must not wait for other cores. All
     * cores of a system are alike, so the host performs the exchanges of either all cores or none. */
    if (place && place->cores && needs_host(exe)) place = NULL;
    STRATA_TRY(strata_collectives_prepare(place, draft, err));
    STRATA_TRY(strata_segments_prepare(draft, err));
    STRATA_TRY(strata_decompose(draft, &query, err)); /* once more, for the copies that the passes added */
    const strata_device_info *info = &exe->device->info;
    uint64_t limit = info->max_range_bytes < info->max_allocation_bytes ? info->max_range_bytes : info->max_allocation_bytes;
    if (!limit || limit > INT64_MAX) limit = INT64_MAX;
    STRATA_TRY(strata_plan_create(draft, (int64_t)limit, &exe->plan, err));
    STRATA_TRY(strata_plan_check(&exe->plan, err));
    const bool carries = wanted->n_carried > 1 && strata_plan_bytes(&exe->plan, STRATA_ARENA_CARRIED);
    exe->n_carried = carries ? wanted->n_carried : 1;
    return check_variables(exe, err);
}

/* Lets the device compare the nodes of all segments with the references, in the order in which they run. */
static strata_status check(strata_executable *exe, const strata_check_request *request, strata_error *err) {
    const int copy = exe->slots[request->slot].position % exe->n_carried;
    strata_check_request own = *request;
    for (int k = 0; k < exe->plan.n_segments && exe->device->api->check; k++) {
        strata_program *program = strata_executable_program(exe, request->slot, k, &own.slot);
        const strata_piece piece = piece_of(exe, k, arenas_of(exe, copy));
        STRATA_TRY(exe->device->api->check(exe->device, &piece, program, &own, err));
    }
    return STRATA_OK;
}

static strata_status build(strata_executable *exe, strata_error *err) {
    STRATA_TRY(check_supported(exe, err));
    STRATA_TRY(check_memory(exe, err));
    STRATA_TRY(make_buffers(exe, err));
    return compile(exe, err);
}

static strata_status check_first(strata_executable *exe, strata_error *err) {
    const double began = strata_trace_now();
    const strata_status status = check(exe, &(strata_check_request){.first = true, .share = 1, .random = FIRST_SEED}, err);
    if (exe->device->api->check) exe->check_seconds = strata_trace_now() - began;
    return status;
}

/* Allocates an executable and runs passes and plan. is_referee: see the struct. */
static strata_status create_planned(strata_device *device, const request *wanted, bool is_referee,
                                    strata_executable **out_executable, strata_error *err) {
    const int n_slots = wanted->opts.n_slots ? wanted->opts.n_slots : DEFAULT_SLOTS;
    strata_executable *exe;
    if (n_slots < 0 || n_slots > STRATA_MAX_SLOTS)
        return strata_fail(err, STRATA_INVALID, "executable: n_slots is %d; it must be 1..%d", n_slots, STRATA_MAX_SLOTS);
    if (wanted->n_carried < 0 || wanted->n_carried > n_slots)
        return strata_fail(err, STRATA_INVALID, "executable: n_carried is %d; it must be 1..%d, the number of slots",
                           wanted->n_carried, n_slots);
    STRATA_TRY(STRATA_NEW(exe, 1, err, "executable: no host memory"));
    exe->device = device;
    exe->is_referee = is_referee;
    exe->n_outputs = wanted->n_outputs;
    exe->n_slots = n_slots;
    exe->n_carried = 1;
    const strata_status status = plan(exe, wanted, err);
    if (status)
        strata_executable_destroy(exe);
    else
        *out_executable = exe;
    return status;
}

/* create_planned with the device's lock, which passes and plan need to query what the device supports. */
static strata_status create_unbuilt(strata_device *device, const request *wanted, strata_executable **out_executable,
                                    strata_error *err) {
    STRATA_TRY(strata_device_enter(device, err));
    const strata_status status = create_planned(device, wanted, false, out_executable, err);
    strata_device_leave(device);
    return status;
}

static strata_status create_alone(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                  strata_tensor *const *updates, int n_updates, strata_executable **out_executable,
                                  strata_error *err) {
    const request wanted = {
        .outputs = outputs, .updates = updates, .n_outputs = n_outputs, .n_updates = n_updates, .alone = true};
    return create_unbuilt(device, &wanted, out_executable, err);
}

static strata_status measure(strata_device *device, const request *wanted, strata_program_cost *out_cost, strata_error *err) {
    strata_executable *exe = NULL;
    STRATA_TRY(create_unbuilt(device, wanted, &exe, err));
    const strata_status status = check_supported(exe, err);
    *out_cost = (strata_program_cost){.device_bytes = device_bytes(exe)};
    for (int i = 0; i < exe->plan.n_schedule; i++) {
        out_cost->flops += strata_node_flops(exe->plan.schedule[i]);
        out_cost->moved_bytes += strata_node_moved_bytes(exe->plan.schedule[i]);
    }
    strata_executable_destroy(exe);
    return status;
}

strata_status strata_executable_measure(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                        strata_tensor *const *updates, int n_updates, strata_program_cost *out_cost,
                                        strata_error *err) {
    const request wanted = {
        .outputs = outputs, .updates = updates, .n_outputs = n_outputs, .n_updates = n_updates, .alone = true};
    return measure(device, &wanted, out_cost, err);
}

strata_status strata_executable_measure_in_flight(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                                  strata_tensor *const *updates, int n_updates,
                                                  const strata_executable_options *opts, int n_carried,
                                                  strata_program_cost *out_cost, strata_error *err) {
    const strata_executable_options none = {0};
    return measure(device, &(request){outputs, updates, n_outputs, n_updates, opts ? *opts : none, false, NULL, n_carried},
                   out_cost, err);
}

strata_status strata_executable_place(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                      strata_tensor *const *updates, int n_updates, strata_node_support_visit *visit,
                                      void *user, strata_error *err) {
    strata_executable *exe = NULL;
    STRATA_TRY(create_alone(device, outputs, n_outputs, updates, n_updates, &exe, err));
    strata_status status = strata_node_support_each(device, (const strata_tensor *const *)exe->plan.schedule,
                                                    exe->plan.n_schedule, visit, user, err);
    strata_executable_destroy(exe);
    return status;
}

/* Whether the storage is alive at this position of the schedule. A storage that reuses another's bytes counts only after its
 * first position. */
static bool is_alive(const strata_storage *storage, int position) {
    return storage->first + (storage->in_place_of >= 0) <= position && position <= storage->last;
}

/* The position of the schedule at which the storages that are alive have the most bytes. */
static int find_peak(const strata_plan *plan) {
    int64_t most = -1;
    int peak = 0;
    for (int i = 0; i < plan->n_schedule; i++) {
        int64_t sum = 0;
        for (int s = 0; s < plan->n_storages; s++)
            if (is_alive(&plan->storages[s], i)) sum += plan->storages[s].bytes;
        if (sum > most) most = sum, peak = i;
    }
    return peak;
}

strata_status strata_executable_visit_peak(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                           strata_tensor *const *updates, int n_updates, strata_peak_visit *visit, void *user,
                                           strata_error *err) {
    strata_executable *exe = NULL;
    STRATA_TRY(create_alone(device, outputs, n_outputs, updates, n_updates, &exe, err));
    const strata_plan *plan = &exe->plan;
    const int peak = find_peak(plan);
    strata_status status = STRATA_OK;
    for (int s = 0; s < plan->n_storages && !status; s++) {
        const strata_storage *storage = &plan->storages[s];
        const strata_peak_value value = {storage->owner, plan->schedule[peak], storage->bytes};
        if (is_alive(storage, peak)) status = visit(&value, user, err);
    }
    strata_executable_destroy(exe);
    return status;
}

/* Whether a core's program exchanges values with those of other cores, without which it cannot run. */
static bool has_collectives(const strata_executable *exe) {
    bool any = false;
    for (int i = 0; i < exe->plan.n_schedule; i++) any = any || strata_is_collective(exe->plan.schedule[i]);
    return any;
}

/* Builds the program a second time, on the device's referee, and compares the two. Passes and plan of the two differ, as the
 * devices support different nodes. A core's program that cannot run without those of other cores is replaced by one that is
 * divided at its exchanges: this is the program of a device that leaves them to the host. It is compared once. */
static strata_status check_by_referee(strata_executable *exe, const request *wanted, strata_error *err) {
    strata_device *device = exe->device;
    strata_executable *referee = NULL, *divided = NULL;
    strata_error why = {0};
    if (device->trace || !exe->plan.n_schedule) return STRATA_OK;
    request own = *wanted;
    own.opts.n_slots = own.n_carried = 1;
    own.place = NULL;
    strata_status status = create_planned(device->referee, &own, true, &referee, &why);
    if (!status) status = build(referee, &why);
    if (!status && has_collectives(exe)) status = create_planned(device, &own, false, &divided, &why);
    if (!status && divided) status = build(divided, &why);
    /* After these the device compiles and runs nothing more. */
    const bool gone = status == STRATA_INTERRUPTED || status == STRATA_TIMEOUT || status == STRATA_DEVICE_LOST;
    const bool compares = !status && strata_referee_can_compare(referee);
    if (status && !gone)
        strata_device_warn(device, "%s: a program is not compared with the host: %s", device->info.id, why.message);
    else if (!status && !compares)
        strata_device_warn(device,
                           "%s: a program of %d nodes is too large to be compared with the host; `strata devices --check "
                           "--device %s` compares the device's ops",
                           device->info.id, exe->plan.n_schedule, device->info.id);
    if (!gone)
        status = compares ? strata_referee_compare(divided ? divided : exe, referee, 0, false, FIRST_SEED, &why) : STRATA_OK;
    if (status == STRATA_UNSUPPORTED && device->api->distrust) device->api->distrust(device, &why);
    if (compares && !divided)
        exe->referee = referee;
    else
        strata_executable_destroy(referee);
    strata_executable_destroy(divided);
    return status ? strata_fail(err, status, "%s", why.message) : STRATA_OK;
}

static strata_status create_locked(strata_device *device, const request *wanted, strata_executable **out_executable,
                                   strata_error *err) {
    for (double compared = 0;;) {
        strata_executable *exe = NULL;
        const int n_distrusted = device->n_distrusted;
        STRATA_TRY(create_planned(device, wanted, false, &exe, err));
        strata_status status = build(exe, err);
        const double began = strata_trace_now();
        if (!status) status = check_first(exe, err);
        if (!status && device->referee) status = check_by_referee(exe, wanted, err);
        exe->compared_seconds = compared += strata_trace_now() - began;
        if (!status) *out_executable = exe;
        if (!status) return STRATA_OK;
        strata_executable_destroy(exe);
        /* The device found that one of its kernels computes wrongly, and no longer supports the op: try
         * again with other ops. */
        if (status != STRATA_UNSUPPORTED || device->n_distrusted == n_distrusted) return status;
    }
}

static strata_status create(strata_device *device, const request *wanted, strata_executable **out_executable,
                            strata_error *err) {
    STRATA_TRY(strata_device_enter(device, err));
    const strata_status status = create_locked(device, wanted, out_executable, err);
    strata_device_leave(device);
    return status;
}

strata_status strata_executable_create(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                       strata_tensor *const *updates, int n_updates, const strata_executable_options *opts,
                                       strata_executable **out_executable, strata_error *err) {
    const strata_executable_options none = {0};
    return create(device, &(request){outputs, updates, n_outputs, n_updates, opts ? *opts : none, true, NULL, 1},
                  out_executable, err);
}

strata_status strata_executable_create_replica(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                               strata_tensor *const *updates, int n_updates,
                                               const strata_executable_options *opts, const strata_core_place *place,
                                               strata_executable **out_executable, strata_error *err) {
    const strata_executable_options none = {0};
    return create(device, &(request){outputs, updates, n_outputs, n_updates, opts ? *opts : none, false, place, 1},
                  out_executable, err);
}

strata_status strata_executable_create_in_flight(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                                 strata_tensor *const *updates, int n_updates,
                                                 const strata_executable_options *opts, int n_carried,
                                                 strata_executable **out_executable, strata_error *err) {
    const strata_executable_options none = {0};
    return create(device, &(request){outputs, updates, n_outputs, n_updates, opts ? *opts : none, false, NULL, n_carried},
                  out_executable, err);
}

static void free_on_device(strata_executable *exe) {
    for (int i = 0; i < exe->n_slots && exe->programs; i++)
        (void)!strata_executable_wait(exe, i, NULL);    /* it fails if the device is lost */
    if (strata_device_enter(exe->device, NULL)) return; /* in a child of fork */
    for (int k = 0; k < exe->plan.n_segments * exe->n_carried && exe->programs; k++)
        if (exe->programs[k]) exe->device->api->program_destroy(exe->programs[k]);
    for (int i = 0; i < exe->plan.n_arenas; i++) {
        strata_arena *arena = &exe->plan.arenas[i];
        const bool own = arena->kind != STRATA_ARENA_VARIABLE || exe->is_referee;
        if (own && arena->buffer) exe->device->api->buffer_destroy(exe->device, arena->buffer);
    }
    for (int i = 0; i < exe->plan.n_arenas * (exe->n_carried - 1) && exe->copies; i++)
        if (exe->copies[i].kind == STRATA_ARENA_CARRIED && exe->copies[i].buffer)
            exe->device->api->buffer_destroy(exe->device, exe->copies[i].buffer);
    strata_device_leave(exe->device);
}

void strata_executable_destroy(strata_executable *exe) {
    if (!exe) return;
    strata_executable_destroy(exe->referee);
    if (exe->device) free_on_device(exe);
    free(exe->programs);
    free(exe->copies);
    free(exe->tickets);
    strata_draft_finish(&exe->draft);
    free(exe->prints.nodes);
    free(exe->slots);
    free(exe);
}

/* ---- properties ---- */

int strata_executable_n_slots(const strata_executable *exe) {
    return exe->n_slots;
}

strata_executable_stats strata_executable_get_stats(const strata_executable *exe) {
    return (strata_executable_stats){
        .n_nodes = exe->plan.n_schedule,
        .work_bytes = strata_plan_bytes(&exe->plan, STRATA_ARENA_WORK) +
                      (exe->n_carried - 1) * strata_plan_bytes(&exe->plan, STRATA_ARENA_CARRIED),
        .slot_bytes = strata_plan_bytes(&exe->plan, STRATA_ARENA_INPUT) + strata_plan_bytes(&exe->plan, STRATA_ARENA_OUTPUT),
        .constant_bytes = strata_plan_bytes(&exe->plan, STRATA_ARENA_CONSTANT)};
}

int strata_executable_input_index(const strata_executable *exe, const char *name) {
    for (int i = 0; i < exe->plan.n_inputs; i++)
        if (!strcmp(((const strata_input_attrs *)exe->plan.inputs[i]->attrs)->name, name)) return i;
    return -1;
}

/* ---- running ---- */

strata_program *strata_executable_program(const strata_executable *exe, int slot, int segment, int *out_slot) {
    const int position = exe->slots[slot].position;
    *out_slot = position / exe->n_carried;
    return exe->programs[position % exe->n_carried * exe->plan.n_segments + segment];
}

char *strata_executable_memory(const strata_executable *exe, int slot_index, const strata_tensor *tensor, bool written) {
    const strata_device_api *api = exe->device->api;
    int slot;
    strata_program *program = strata_executable_program(exe, slot_index, exe->plan.segment_of[tensor->id], &slot);
    char *base = written ? api->program_input(program, slot) : (char *)api->program_output(program, slot);
    return base ? base + exe->plan.places[tensor->id].offset : NULL;
}

/* Shows the printed values of all runs up to `last`, in the order of the runs; the caller may wait for
 * slots in another order. */
static void show_runs(strata_executable *exe, uint64_t last) {
    for (;;) {
        int oldest = -1;
        for (int i = 0; i < exe->n_slots; i++)
            if (exe->slots[i].shows && exe->slots[i].run <= last && (oldest < 0 || exe->slots[i].run < exe->slots[oldest].run))
                oldest = i;
        if (oldest < 0) return;
        exe->slots[oldest].shows = false;
        for (int i = 0; i < exe->prints.n; i++)
            strata_print_show(exe->device, exe->prints.nodes[i], exe->slots[oldest].run,
                              strata_executable_memory(exe, oldest, exe->draft.outputs[exe->n_outputs + i], false));
    }
}

static strata_status wait_for(const strata_executable *exe, uint64_t ticket, strata_error *err) {
    STRATA_TRY(strata_device_enter_run(exe->device, err));
    const strata_status status = exe->device->api->wait(exe->device, ticket, err);
    strata_device_leave_run(exe->device);
    return status;
}

void strata_executable_place_run(strata_executable *exe, int slot, int number) {
    exe->slots[slot].position = number % (exe->n_carried * slots_of_copy(exe));
}

void strata_executable_begin_run(strata_executable *exe, int slot) {
    exe->slots[slot] =
        (strata_slot){.run = exe->n_runs++, .running = true, .shows = exe->prints.n > 0, .position = exe->slots[slot].position};
}

void strata_executable_end_run(strata_executable *exe, int slot) {
    exe->slots[slot].running = false;
    if (exe->prints.n) show_runs(exe, exe->slots[slot].run);
}

strata_status strata_executable_wait(strata_executable *exe, int slot_index, strata_error *err) {
    if (slot_index < 0 || slot_index >= exe->n_slots)
        return strata_fail(err, STRATA_INVALID, "executable: slot is %d; there are %d", slot_index, exe->n_slots);
    strata_slot *s = &exe->slots[slot_index];
    if (!s->running) return STRATA_OK;
    s->running = false;
    STRATA_TRY(wait_for(exe, s->ticket, err));
    strata_executable_end_run(exe, slot_index);
    return STRATA_OK;
}

strata_status strata_executable_acquire(strata_executable *exe, int *out_slot, strata_error *err) {
    STRATA_TRY(strata_executable_wait(exe, exe->next_slot, err));
    *out_slot = exe->next_slot;
    exe->slots[*out_slot].position = *out_slot;
    exe->next_slot = (exe->next_slot + 1) % exe->n_slots;
    return STRATA_OK;
}

void *strata_executable_input(strata_executable *exe, int slot_index, int index) {
    if (index < 0 || index >= exe->plan.n_inputs || slot_index < 0 || slot_index >= exe->n_slots) return NULL;
    return strata_executable_memory(exe, slot_index, exe->plan.inputs[index], true);
}

const void *strata_executable_output(const strata_executable *exe, int slot_index, int index) {
    if (index < 0 || index >= exe->n_outputs || slot_index < 0 || slot_index >= exe->n_slots) return NULL;
    return strata_executable_memory(exe, slot_index, exe->draft.outputs[index], false);
}

void strata_executable_feed(strata_executable *exe, int slot, const char *name, const void *data, size_t bytes) {
    const int index = strata_executable_input_index(exe, name);
    if (index >= 0 && bytes) memcpy(strata_executable_input(exe, slot, index), data, bytes);
}

strata_status strata_executable_submit(strata_executable *exe, int slot_index, strata_error *err) {
    if (slot_index < 0 || slot_index >= exe->n_slots || exe->slots[slot_index].running)
        return strata_fail(err, STRATA_INVALID, "executable: slot %d was not acquired", slot_index);
    if (exe->plan.n_communications)
        return strata_fail(err, STRATA_INVALID, "executable: it is one replica's part; its strategy submits it");
    return strata_executable_submit_segment(exe, slot_index, 1, 0, err);
}

strata_status strata_executable_recheck(strata_executable *exe, int slot, double seconds, uint32_t random, strata_error *err) {
    const strata_device_api *api = exe->device->api;
    if (!api->check && !exe->referee) return STRATA_OK;
    const double share = seconds < exe->check_seconds ? seconds / exe->check_seconds : 1;
    const strata_check_request request = {.slot = slot, .share = share, .random = random};
    STRATA_TRY(strata_device_enter(exe->device, err));
    strata_status status = STRATA_OK;
    for (int i = 0; i < exe->n_slots && exe->referee && !status; i++)
        if (exe->slots[i].running) status = api->wait(exe->device, exe->slots[i].ticket, err);
    if (!status && exe->referee) status = strata_referee_compare(exe, exe->referee, slot, true, random, err);
    if (!status) status = check(exe, &request, err);
    strata_device_leave(exe->device);
    return status;
}

/* ---- segments ---- */

strata_status strata_executable_submit_segment(strata_executable *exe, int first, int n, int segment, strata_error *err) {
    const strata_device_api *api = exe->device->api;
    int own;
    strata_program *program = strata_executable_program(exe, first, segment, &own);
    uint64_t ticket = 0;
    STRATA_TRY(strata_device_enter_run(exe->device, err));
    const strata_status status = n > 1 ? api->run_many(program, own, n, &ticket, err) : api->run(program, own, &ticket, err);
    strata_device_leave_run(exe->device);
    if (status) return status;
    for (int i = 0; i < n; i++) {
        const int slot = (first + i) % exe->n_slots;
        strata_slot *s = &exe->slots[slot];
        if (!s->running) strata_executable_begin_run(exe, slot);
        s->ticket = exe->tickets[slot * exe->plan.n_segments + segment] = ticket;
    }
    return STRATA_OK;
}

int strata_executable_most_runs(const strata_executable *exe) {
    const int most = exe->plan.n_segments == 1 ? strata_device_most_runs(exe->device) : 1;
    return most < exe->n_slots ? most : exe->n_slots;
}

strata_status strata_executable_wait_segment(strata_executable *exe, int slot_index, int segment, strata_error *err) {
    return wait_for(exe, exe->tickets[slot_index * exe->plan.n_segments + segment], err);
}

strata_executable_node strata_executable_get_node(const strata_executable *exe, int index) {
    int segment = 0;
    while (index >= exe->plan.segments[segment].first + exe->plan.segments[segment].n) segment++;
    return (strata_executable_node){exe->plan.schedule[index], segment};
}

static strata_status time_node(const strata_executable *exe, int index, double *out_us, strata_error *err) {
    strata_bench bench;
    strata_program *program = NULL;
    const uint64_t launches = strata_device_get_counters(exe->device).launches;
    strata_status status = strata_bench_init(&bench, exe->device, exe->plan.schedule[index], exe->plan.places, err);
    if (!status) status = exe->device->api->compile(exe->device, &bench.piece, &program, err);
    if (!status) status = strata_bench_time(&bench, program, STRATA_BENCH_ROUNDS, out_us, err);
    if (strata_device_get_counters(exe->device).launches == launches)
        *out_us = 0; /* nothing was launched, since the operands are already in place */
    if (program) exe->device->api->program_destroy(program);
    strata_bench_finish(&bench);
    return status;
}

strata_status strata_executable_time_node(const strata_executable *exe, int index, double *out_us, strata_error *err) {
    *out_us = 0;
    if (strata_is_collective(exe->plan.schedule[index])) return STRATA_OK; /* a core cannot run a collective alone */
    STRATA_TRY(strata_device_enter(exe->device, err));
    const strata_status status = time_node(exe, index, out_us, err);
    strata_device_leave(exe->device);
    return status;
}

static strata_status program_cost(const strata_executable *exe, int k, int node, strata_device_cost *out_cost,
                                  strata_error *err) {
    STRATA_TRY(strata_device_enter(exe->device, err));
    const strata_status status = exe->device->api->program_cost(exe->programs[k], node, out_cost, err);
    strata_device_leave(exe->device);
    return status;
}

/* Adds the cost of segment k. The utilisation is averaged over time. */
static strata_status add_segment_cost(const strata_executable *exe, int k, strata_device_cost *sum, strata_error *err) {
    strata_device_cost cost;
    STRATA_TRY(program_cost(exe, k, -1, &cost, err));
    const double cycles = sum->cycles + cost.cycles;
    if (cycles > 0) sum->utilisation = (sum->utilisation * sum->cycles + cost.utilisation * cost.cycles) / cycles;
    sum->cycles = cycles;
    sum->seconds += cost.seconds;
    sum->bytes += cost.bytes;
    if (cost.work_bytes > sum->work_bytes) sum->work_bytes = cost.work_bytes;
    return STRATA_OK;
}

strata_status strata_executable_device_cost(const strata_executable *exe, int index, strata_device_cost *out_cost,
                                            strata_error *err) {
    *out_cost = (strata_device_cost){0};
    if (!exe->device->api->program_cost) return STRATA_OK;
    if (index >= 0) {
        const int k = strata_executable_get_node(exe, index).segment;
        return program_cost(exe, k, index - exe->plan.segments[k].first, out_cost, err);
    }
    for (int k = 0; k < exe->plan.n_segments; k++) STRATA_TRY(add_segment_cost(exe, k, out_cost, err));
    return STRATA_OK;
}

/* ---- one run ---- */

static strata_status feed(strata_executable *exe, int slot_index, const char *name, const strata_array *value,
                          strata_error *err) {
    int index = strata_executable_input_index(exe, name);
    if (index < 0) return STRATA_OK; /* no output or update depends on it */
    const strata_tensor *input = exe->plan.inputs[index];
    if (value->dtype != input->dtype || !strata_shape_equal(value->shape, input->shape))
        return strata_fail(err, STRATA_INVALID, "executable: input %s is %s %s, was given %s %s", name,
                           strata_dtype_name(input->dtype), strata_shape_text(input->shape).text,
                           strata_dtype_name(value->dtype), strata_shape_text(value->shape).text);
    size_t bytes = strata_array_bytes(value);
    if (bytes) memcpy(strata_executable_input(exe, slot_index, index), value->data, bytes);
    return STRATA_OK;
}

static strata_status check_fed(const strata_executable *exe, const char *const *names, int n, strata_error *err) {
    for (int i = 0; i < exe->plan.n_inputs; i++) {
        const char *wanted = ((const strata_input_attrs *)exe->plan.inputs[i]->attrs)->name;
        bool found = false;
        for (int j = 0; j < n && !found; j++) found = !strcmp(names[j], wanted);
        if (!found) return strata_fail(err, STRATA_INVALID, "executable: input %s is not fed", wanted);
    }
    return STRATA_OK;
}

static strata_status check_outputs(const strata_executable *exe, const strata_array *outputs, int n, strata_error *err) {
    if (n > exe->n_outputs)
        return strata_fail(err, STRATA_INVALID, "executable: %d outputs asked for, it has %d", n, exe->n_outputs);
    for (int i = 0; i < n; i++) {
        const strata_tensor *output = exe->draft.outputs[i];
        if (outputs[i].dtype != output->dtype ||
            strata_shape_elements(outputs[i].shape) != strata_shape_elements(output->shape))
            return strata_fail(err, STRATA_INVALID, "executable: output %d is %s %s, the array is %s %s", i,
                               strata_dtype_name(output->dtype), strata_shape_text(output->shape).text,
                               strata_dtype_name(outputs[i].dtype), strata_shape_text(outputs[i].shape).text);
    }
    return STRATA_OK;
}

strata_status strata_executable_run(strata_executable *exe, const char *const *names, const strata_array *inputs, int n_inputs,
                                    strata_array *outputs, int n_outputs, strata_error *err) {
    int slot_index = 0;
    STRATA_TRY(check_outputs(exe, outputs, n_outputs, err)); /* before the run, which may change variables */
    STRATA_TRY(check_fed(exe, names, n_inputs, err));
    STRATA_TRY(strata_executable_acquire(exe, &slot_index, err));
    for (int i = 0; i < n_inputs; i++) STRATA_TRY(feed(exe, slot_index, names[i], &inputs[i], err));
    STRATA_TRY(strata_executable_submit(exe, slot_index, err));
    STRATA_TRY(strata_executable_wait(exe, slot_index, err));
    for (int i = 0; i < n_outputs; i++) {
        size_t bytes = strata_array_bytes(&outputs[i]);
        if (bytes) memcpy(outputs[i].data, strata_executable_output(exe, slot_index, i), bytes);
    }
    return STRATA_OK;
}
