/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory plan. The steps: mark the needed nodes, schedule them, assign a storage to every tensor (views, packs and in-place
 * updates share one), compute the storages' lives, and assign places: inputs, outputs and constants one after the other,
 * temporaries by best fit over their lives. */
#include "core/compile/plan.h"

#include <string.h>

#include "core/compile/collectives.h"
#include "core/compile/passes.h"
#include "core/compile/walk.h"
#include "core/op/attrs.h"
#include "core/op/ops.h"

enum { NONE = -1 };

/* The memory of a tensor before places are assigned: the node that owns the storage, and the offset in it. */
typedef struct owner {
    int id; /* the owning tensor's id; itself for most */
    int64_t offset;
} owner;

typedef struct planner {
    const strata_graph *graph;
    strata_plan *plan;
    int64_t max_arena_bytes;
    bool *live;              /* by id */
    bool *output;            /* by id */
    owner *owners;           /* by id */
    int *storage_of;         /* by id of an owner: its storage; NONE: not in a work arena */
    int *alive;              /* the numbers of the storages that are alive, by offset */
    int *segment_of_storage; /* the segment of the newest node that uses it */
} planner;

static int64_t align_up(int64_t bytes) {
    return (bytes + STRATA_PLACE_ALIGNMENT - 1) / STRATA_PLACE_ALIGNMENT * STRATA_PLACE_ALIGNMENT;
}

/* Views and updates use the storage of their input; every other tensor owns a storage, at first. */
static void find_owners(planner *p) {
    for (int id = 0; id < p->graph->n_nodes; id++) {
        const strata_tensor *node = p->graph->nodes[id];
        int64_t inside = 0;
        p->owners[id] = (owner){id, 0};
        if (!p->live[id] || p->output[id]) continue;
        if (strata_is_view(node, &inside) || (node->op->flags & STRATA_OP_UPDATE)) {
            owner of_input = p->owners[node->inputs[0]->id];
            p->owners[id] = (owner){of_input.id, of_input.offset + inside};
        }
    }
}

static bool computed(const planner *p, int id) {
    const strata_tensor *node = p->graph->nodes[id];
    return !(node->op->flags & STRATA_OP_LEAF) && !strata_is_communication(node) && !p->output[id];
}

/* Whether a node outside of the segment computes or reads a value that shares the memory of this owner. */
static bool used_outside(const planner *p, int owner_id, int segment) {
    for (int s = 0; s < p->plan->n_schedule; s++) {
        const strata_tensor *node = p->plan->schedule[s];
        for (int i = -1; i < node->n_inputs && p->plan->segment_of[node->id] != segment; i++)
            if (p->owners[i < 0 ? node->id : node->inputs[i]->id].id == owner_id) return true;
    }
    return false;
}

/* The operands of a pack are computed directly at their places in it, unless they already share another storage. If the host
 * reads the pack, it is in the memory of its own segment, which other segments neither write nor read. */
static void place_pack_slices(planner *p, const strata_tensor *pack) {
    const strata_pack_attrs *attrs = pack->attrs;
    for (int i = 0; i < pack->n_inputs; i++) {
        owner source = p->owners[pack->inputs[i]->id];
        const strata_tensor *node = p->graph->nodes[source.id];
        if (source.offset || !computed(p, source.id) || (node->op->flags & STRATA_OP_SLICES)) continue;
        if (strata_tensor_bytes(node) != strata_tensor_bytes(pack->inputs[i])) continue;
        if (p->output[pack->id] && used_outside(p, source.id, p->plan->segment_of[pack->id])) continue;
        owner target = {pack->id, attrs->offsets[i] * (int64_t)sizeof(float)};
        for (int id = 0; id < p->graph->n_nodes; id++)
            if (p->owners[id].id == source.id) p->owners[id] = (owner){target.id, target.offset + p->owners[id].offset};
    }
}

/* Computes schedule[]: the needed nodes that compute, in program order, divided into segments at the
 * communication nodes. */
static void make_schedule(planner *p) {
    strata_plan *plan = p->plan;
    strata_segment_counter counter = {0};
    plan->n_segments = 1;
    for (int id = 0; id < p->graph->n_nodes; id++) {
        strata_tensor *node = p->graph->nodes[id];
        int64_t inside;
        if (!p->live[id] || (node->op->flags & STRATA_OP_LEAF)) continue;
        if (strata_is_view(node, &inside) && !p->output[id]) continue;
        if (strata_is_communication(node)) {
            strata_segment_of_next(&counter, false);
            plan->communications[plan->n_communications++] =
                (strata_communication){.node = node, .after = NONE, .before = NONE};
            plan->segment_of[id] = NONE;
            if (node->n_inputs) plan->communications[plan->n_communications - 1].after = plan->segment_of[node->inputs[0]->id];
            continue;
        }
        int segment = plan->segment_of[id] = strata_segment_of_next(&counter, true);
        if (segment == plan->n_segments) plan->segments[plan->n_segments++].first = plan->n_schedule;
        plan->segments[segment].n++;
        plan->schedule[plan->n_schedule++] = node;
    }
}

/* The segment of each value that the host writes: the first segment that reads it, directly or through views. */
static void find_homes(planner *p) {
    strata_plan *plan = p->plan;
    for (int s = plan->n_schedule - 1; s >= 0; s--) /* the first use is written last */
        for (int i = 0; i < plan->schedule[s]->n_inputs; i++) {
            int root = p->owners[plan->schedule[s]->inputs[i]->id].id;
            const strata_tensor *node = p->graph->nodes[root];
            if (node->op == &strata_op_input || strata_is_communication(node))
                plan->segment_of[root] = plan->segment_of[plan->schedule[s]->id];
        }
    for (int i = 0; i < plan->n_communications; i++) {
        int *segment = &plan->segment_of[plan->communications[i].node->id];
        plan->communications[i].before = *segment;
        if (*segment == NONE) *segment = plan->n_segments - 1; /* nothing reads it */
    }
}

/* Returns the index of the new arena. */
static int add_arena(planner *p, strata_arena_kind kind, int64_t bytes, strata_variable *variable) {
    const int n = p->plan->n_arenas++;
    p->plan->arenas[n] = (strata_arena){.kind = kind, .bytes = bytes};
    p->plan->arena_variables[n] = variable;
    return n;
}

static strata_status too_large(const planner *p, const strata_tensor *node, int64_t bytes, strata_error *err) {
    return strata_fail(err, STRATA_UNSUPPORTED, "%s %s needs %lld bytes in one buffer; this device's limit is %lld",
                       strata_tensor_name(node), strata_shape_text(node->shape).text, (long long)bytes,
                       (long long)p->max_arena_bytes);
}

/* Places a constant at the end of the last constant arena, or in a new arena if that has not enough space. */
static strata_status place_constant(planner *p, const strata_tensor *node, strata_error *err) {
    int64_t bytes = align_up(strata_tensor_bytes(node));
    int arena = NONE;
    for (int i = 0; i < p->plan->n_arenas; i++)
        if (p->plan->arenas[i].kind == STRATA_ARENA_CONSTANT) arena = i;
    if (bytes > p->max_arena_bytes) return too_large(p, node, bytes, err);
    if (arena == NONE || bytes > p->max_arena_bytes - p->plan->arenas[arena].bytes)
        arena = add_arena(p, STRATA_ARENA_CONSTANT, 0, NULL);
    p->plan->places[node->id] = (strata_place){arena, p->plan->arenas[arena].bytes, strata_tensor_bytes(node)};
    p->plan->arenas[arena].bytes += bytes;
    return STRATA_OK;
}

/* Places a value that the host writes or reads at the end of the arena `index` of its segment. */
static strata_status place_port(planner *p, const strata_tensor *node, int index, strata_error *err) {
    strata_segment *segment = &p->plan->segments[p->plan->segment_of[node->id]];
    int64_t *used = index == STRATA_ARENA_INDEX_INPUT ? &segment->input_bytes : &segment->output_bytes;
    int64_t bytes = align_up(strata_tensor_bytes(node));
    if (bytes > p->max_arena_bytes) return too_large(p, node, bytes, err);
    if (bytes > p->max_arena_bytes - *used)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "%s %s needs %lld bytes beside %lld of other %s in one buffer; this device's limit is %lld",
                           strata_tensor_name(node), strata_shape_text(node->shape).text, (long long)bytes, (long long)*used,
                           index == STRATA_ARENA_INDEX_INPUT ? "inputs" : "outputs", (long long)p->max_arena_bytes);
    p->plan->places[node->id] = (strata_place){index, *used, strata_tensor_bytes(node)};
    p->plan->arenas[index].bytes += bytes;
    *used += bytes;
    return STRATA_OK;
}

static strata_status place_variable(planner *p, const strata_tensor *node, strata_error *err) {
    strata_variable *variable = ((const strata_read_attrs *)node->attrs)->variable;
    int arena = NONE;
    for (int i = 0; i < p->plan->n_arenas; i++)
        if (p->plan->arena_variables[i] == variable) arena = i;
    int64_t bytes = strata_tensor_bytes(node);
    if (bytes > p->max_arena_bytes) return too_large(p, node, bytes, err);
    if (arena == NONE) arena = add_arena(p, STRATA_ARENA_VARIABLE, bytes, variable);
    p->plan->places[node->id] = (strata_place){arena, 0, bytes};
    return STRATA_OK;
}

/* Places leaves and outputs: all values outside of the work arenas. */
static strata_status place_fixed(planner *p, strata_error *err) {
    for (int id = 0; id < p->graph->n_nodes; id++) {
        strata_tensor *node = p->graph->nodes[id];
        if (!p->live[id]) continue;
        if (node->op == &strata_op_input) {
            STRATA_TRY(place_port(p, node, STRATA_ARENA_INDEX_INPUT, err));
            p->plan->inputs[p->plan->n_inputs++] = node;
        } else if (strata_is_communication(node)) {
            STRATA_TRY(place_port(p, node, STRATA_ARENA_INDEX_INPUT, err));
        } else if (node->op == &strata_op_constant) {
            STRATA_TRY(place_constant(p, node, err));
        } else if (node->op == &strata_op_read) {
            STRATA_TRY(place_variable(p, node, err));
        } else if (p->output[id]) {
            STRATA_TRY(place_port(p, node, STRATA_ARENA_INDEX_OUTPUT, err));
        }
    }
    return STRATA_OK;
}

/* Creates a storage in the work arenas for each owner, with its life. A pack lives for the whole program, so that the gaps
 * between its parts keep the zeros of new memory. */
static void find_lives(planner *p) {
    strata_plan *plan = p->plan;
    for (int id = 0; id < p->graph->n_nodes; id++) p->storage_of[id] = NONE;
    for (int s = 0; s < plan->n_schedule; s++) {
        const strata_tensor *node = plan->schedule[s];
        int owner_id = p->owners[node->id].id;
        if (p->storage_of[owner_id] == NONE && computed(p, owner_id) && strata_tensor_bytes(p->graph->nodes[owner_id]) > 0) {
            bool pinned = p->graph->nodes[owner_id]->op->flags & STRATA_OP_SLICES;
            p->storage_of[owner_id] = plan->n_storages;
            p->segment_of_storage[plan->n_storages] = NONE;
            plan->storages[plan->n_storages++] =
                (strata_storage){.owner = p->graph->nodes[owner_id],
                                 .arena = NONE,
                                 .bytes = align_up(strata_tensor_bytes(p->graph->nodes[owner_id])),
                                 .first = pinned ? 0 : s,
                                 .last = pinned ? plan->n_schedule - 1 : s,
                                 .in_place_of = NONE};
        }
        for (int i = -1; i < node->n_inputs; i++) {
            int touched = p->storage_of[p->owners[i < 0 ? node->id : node->inputs[i]->id].id];
            if (touched == NONE) continue;
            if (plan->storages[touched].last < s) plan->storages[touched].last = s;
            int *segment = &p->segment_of_storage[touched];
            if (*segment != NONE && *segment != plan->segment_of[node->id]) plan->storages[touched].carried = true;
            *segment = plan->segment_of[node->id];
        }
    }
}

/* ---- best fit over lives ---- */

/* The first byte of the smallest gap of the arena that has enough bytes, between the storages that are alive or behind the last
 * of them; if there is none, the arena grows. NONE: it would become too large. alive: the numbers of n storages, by offset; one
 * that is in place of another begins where that one does. */
static int64_t find_range(const planner *p, int arena, const int *alive, int n, int64_t bytes) {
    int64_t at = 0, best = NONE, least = INT64_MAX;
    for (int i = 0; i <= n; i++) {
        const strata_storage *other = i < n ? &p->plan->storages[alive[i]] : NULL;
        const int64_t gap = (other ? other->offset : p->plan->arenas[arena].bytes) - at;
        if (other && (other->arena != arena || gap < 0)) continue;
        if (gap >= bytes && gap < least) best = at, least = gap;
        if (other) at = other->offset + other->bytes;
    }
    if (best != NONE) return best;
    return bytes <= p->max_arena_bytes - at ? at : NONE;
}

/* Whether the node uses the storage only through this operand. Another operand at another place of the storage, or one that is
 * broadcast, would be overwritten while it is still needed. */
static bool read_elementwise_only(const planner *p, const strata_tensor *node, int storage) {
    for (int i = 0; i < node->n_inputs; i++) {
        const strata_tensor *input = node->inputs[i];
        if (p->storage_of[p->owners[input->id].id] != storage) continue;
        if (p->owners[input->id].offset || !strata_shape_equal(input->shape, node->shape)) return false;
        if (node->op->whole >> i & 1) return false;
    }
    return true;
}

/* An element-wise node may overwrite an operand of its own shape and element size that no later node needs. */
static int in_place_candidate(const planner *p, const strata_tensor *node, int s) {
    const strata_plan *plan = p->plan;
    if (!(node->op->flags & STRATA_OP_ELEMENTWISE) || p->owners[node->id].id != node->id) return NONE;
    for (int i = 0; i < node->n_inputs; i++) {
        const strata_tensor *input = node->inputs[i];
        int candidate = p->storage_of[p->owners[input->id].id];
        if (candidate == NONE || plan->storages[candidate].last != s || plan->storages[candidate].first >= s) continue;
        if (plan->storages[candidate].bytes != align_up(strata_tensor_bytes(node))) continue;
        if (plan->storages[candidate].carried != plan->storages[p->storage_of[node->id]].carried) continue;
        if (strata_dtype_bytes(input->dtype) == strata_dtype_bytes(node->dtype) && read_elementwise_only(p, node, candidate))
            return candidate;
    }
    return NONE;
}

static strata_status lay_out(planner *p, int storage, const int *alive, int n_alive, strata_error *err) {
    strata_storage *own = &p->plan->storages[storage];
    if (own->bytes > p->max_arena_bytes) return too_large(p, own->owner, own->bytes, err);
    const strata_arena_kind kind = own->carried ? STRATA_ARENA_CARRIED : STRATA_ARENA_WORK;
    for (int i = 0; own->arena == NONE; i++) {
        if (i == p->plan->n_arenas) add_arena(p, kind, 0, NULL);
        strata_arena *arena = &p->plan->arenas[i];
        const int64_t offset = arena->kind == kind ? find_range(p, i, alive, n_alive, own->bytes) : NONE;
        if (offset == NONE) continue;
        own->arena = i;
        own->offset = offset;
        if (arena->bytes < offset + own->bytes) arena->bytes = offset + own->bytes;
    }
    return STRATA_OK;
}

static strata_status place_work(planner *p, strata_error *err) {
    strata_plan *plan = p->plan;
    int n_alive = 0, *alive = p->alive;
    for (int s = 0; s < plan->n_schedule; s++) {
        for (int i = 0; i < plan->n_storages; i++) {
            strata_storage *own = &plan->storages[i];
            if (own->first != s) continue;
            const int reused = own->owner == plan->schedule[s] ? in_place_candidate(p, plan->schedule[s], s) : NONE;
            if (reused == NONE) {
                STRATA_TRY(lay_out(p, i, alive, n_alive, err));
            } else {
                own->arena = plan->storages[reused].arena;
                own->offset = plan->storages[reused].offset;
                own->in_place_of = reused;
            }
            int k = n_alive++;
            for (; k > 0 && plan->storages[alive[k - 1]].offset > own->offset; k--) alive[k] = alive[k - 1];
            alive[k] = i;
        }
        int left = 0;
        for (int k = 0; k < n_alive; k++)
            if (plan->storages[alive[k]].last > s) alive[left++] = alive[k];
        n_alive = left;
    }
    return STRATA_OK;
}

/* Computes places[] from the owners, the storages and the places of leaves and outputs. */
static void resolve_places(planner *p) {
    for (int id = 0; id < p->graph->n_nodes; id++) {
        const strata_tensor *node = p->graph->nodes[id];
        if (!p->live[id]) continue;
        owner at = p->owners[id];
        strata_place base = p->plan->places[at.id];
        if (p->storage_of[at.id] != NONE) {
            const strata_storage *storage = &p->plan->storages[p->storage_of[at.id]];
            base = (strata_place){storage->arena, storage->offset, storage->bytes};
        }
        if (base.arena == NONE && strata_tensor_bytes(node) == 0) base.arena = STRATA_ARENA_INDEX_INPUT;
        if (at.id != id || p->storage_of[at.id] != NONE)
            p->plan->places[id] = (strata_place){base.arena, base.offset + at.offset, strata_tensor_bytes(node)};
        else
            p->plan->places[id].arena = base.arena;
    }
}

static strata_status plan_all(planner *p, const strata_draft *draft, strata_error *err) {
    strata_mark_live(draft, p->live, NULL);
    for (int i = 0; i < draft->n_outputs; i++) p->output[draft->outputs[i]->id] = true;
    for (int id = 0; id < p->graph->n_nodes; id++)
        if (p->live[id] && strata_is_communication(p->graph->nodes[id]) && p->graph->nodes[id]->n_inputs)
            p->output[p->graph->nodes[id]->inputs[0]->id] = true;
    add_arena(p, STRATA_ARENA_INPUT, 0, NULL);
    add_arena(p, STRATA_ARENA_OUTPUT, 0, NULL);
    make_schedule(p);
    find_owners(p);
    for (int id = 0; id < p->graph->n_nodes; id++)
        if (p->live[id] && (p->graph->nodes[id]->op->flags & STRATA_OP_SLICES)) place_pack_slices(p, p->graph->nodes[id]);
    find_homes(p);
    STRATA_TRY(place_fixed(p, err));
    find_lives(p);
    STRATA_TRY(place_work(p, err));
    resolve_places(p);
    return STRATA_OK;
}

strata_status strata_plan_create(const strata_draft *draft, int64_t max_arena_bytes, strata_plan *plan, strata_error *err) {
    strata_graph *graph = draft->graph;
    const size_t n = (size_t)graph->n_nodes + 1;
    *plan = (strata_plan){.n_places = graph->n_nodes};
    planner p = {
        .graph = graph, .plan = plan, .max_arena_bytes = max_arena_bytes / STRATA_PLACE_ALIGNMENT * STRATA_PLACE_ALIGNMENT};
    plan->places = strata_graph_alloc(graph, n * sizeof *plan->places);
    plan->schedule = strata_graph_alloc(graph, n * sizeof(*plan->schedule));
    plan->storages = strata_graph_alloc(graph, n * sizeof *plan->storages);
    plan->inputs = strata_graph_alloc(graph, n * sizeof(*plan->inputs));
    plan->segment_of = strata_graph_alloc(graph, n * sizeof *plan->segment_of);
    plan->segments = strata_graph_alloc(graph, n * sizeof *plan->segments);
    plan->communications = strata_graph_alloc(graph, n * sizeof *plan->communications);
    /* Each node needs at most one arena. */
    plan->arenas = strata_graph_alloc(graph, (n + 2) * sizeof *plan->arenas);
    plan->arena_variables = strata_graph_alloc(graph, (n + 2) * sizeof(*plan->arena_variables));
    p.live = strata_graph_alloc(graph, n * sizeof *p.live);
    p.output = strata_graph_alloc(graph, n * sizeof *p.output);
    p.owners = strata_graph_alloc(graph, n * sizeof *p.owners);
    p.storage_of = strata_graph_alloc(graph, n * sizeof *p.storage_of);
    p.alive = strata_graph_alloc(graph, n * sizeof *p.alive);
    p.segment_of_storage = strata_graph_alloc(graph, n * sizeof *p.segment_of_storage);
    STRATA_TRY(strata_graph_check(graph, err));
    for (int id = 0; id < graph->n_nodes; id++) plan->places[id].arena = NONE;
    return plan_all(&p, draft, err);
}

int64_t strata_plan_bytes(const strata_plan *plan, strata_arena_kind kind) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->n_arenas; i++)
        if ((plan->arenas[i].kind == kind || (kind == STRATA_ARENA_WORK && plan->arenas[i].kind == STRATA_ARENA_CARRIED)) &&
            __builtin_add_overflow(bytes, plan->arenas[i].bytes, &bytes))
            return INT64_MAX;
    return bytes;
}

/* Whether b reuses a's bytes in place, directly or through other storages, at the node where a's life ends. */
static bool took_over(const strata_plan *plan, int a, int b) {
    for (int from = plan->storages[b].in_place_of; from != NONE; from = plan->storages[from].in_place_of)
        if (from == a) return plan->storages[a].last <= plan->storages[b].first;
    return false;
}

strata_status strata_plan_check(const strata_plan *plan, strata_error *err) {
    for (int i = 0; i < plan->n_storages; i++) {
        const strata_storage *a = &plan->storages[i];
        if (a->arena < 0 || a->offset < 0 || a->offset + a->bytes > plan->arenas[a->arena].bytes)
            return strata_fail(err, STRATA_INTERNAL, "plan: storage %d (bytes %lld..%lld) leaves arena %d", i,
                               (long long)a->offset, (long long)(a->offset + a->bytes), a->arena);
        for (int j = i + 1; j < plan->n_storages; j++) {
            const strata_storage *b = &plan->storages[j];
            bool apart = a->arena != b->arena || a->last < b->first || b->last < a->first ||
                         a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            if (!apart && !took_over(plan, i, j) && !took_over(plan, j, i))
                return strata_fail(err, STRATA_INTERNAL,
                                   "plan: storages %d (steps %d..%d) and %d (steps %d..%d) share bytes of arena %d", i,
                                   a->first, a->last, j, b->first, b->last, a->arena);
        }
    }
    return STRATA_OK;
}
