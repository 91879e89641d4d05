/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks whether the nodes of a program compute correctly. Some drivers miscompile kernels without an error, or run them
 * wrongly at some sizes only, and a model would then train with wrong numbers. So a program's own kernels run, at its
 * shapes, with its launches and in its memory, and what each of them writes is compared with the op's reference for what it
 * has just read.
 *
 * A *walk* runs the program's nodes in order, each by itself: it reads the operands of a node from the device, runs the node,
 * reads its result, and computes elements of it on the host. Then all launches are submitted together, as in training, and what
 * is left of them in memory (outputs, variables) must be what the walk left there. This finds launches that do not wait for
 * each other. Variables have their former values again at the end. */
#include "backends/kernel/check.h"

#include <math.h>

#include "backends/host/host.h"
#include "core/base/locale.h"
#include "core/compile/collectives.h"
#include "core/op/attrs.h"

enum { TEXT_BYTES = 400 };
/* A kernel that was wrong is tried again, in so many walks in all. It is wrong if it was wrong in at least LEAST_WRONG of them:
 * one bad run does not condemn it. */
enum { WALKS = 3, LEAST_WRONG = 2 };
/* The most operations and bytes of a node that is compared: MOST_WORK if only the op's reference can compute it,
 * MOST_FAST_WORK if the host backend's loops can. Samples take little time for any node. */
static const double MOST_WORK = 2e8, MOST_FAST_WORK = 4e9;
/* The most bytes of a node's operands and result. */
static const double MOST_BYTES = 2e9;

/* Bytes of the device that are read or restored, and a tensor that lies there. */
typedef struct range {
    const strata_tensor *tensor;
    const strata_place *place;
    /* Its values before the program runs; after a walk; after a run of all launches together. */
    void *before, *walked, *together;
    /* Updates change it, so it is restored. */
    bool changes;
} range;

typedef struct node_state {
    bool chosen;
    /* In how many walks it was wrong, and the largest error. */
    int n_wrong;
    double error;
    /* The way in which it was computed, its main kernel, and the key of all kernels. */
    strata_way way;
    const char *kernel, *variant;
    uint64_t key;
} node_state;

typedef struct check {
    const strata_kernel_limits *limits;
    strata_tuner *tuner;
    const strata_step_run *step;
    const strata_check_request *request;
    /* [n_nodes] */
    node_state *nodes;
    /* [n_places] by the tensor's id */
    bool *wanted, *seen;
    /* What is left when the program has run. */
    range *ranges;
    int n_ranges;
    /* The memory of all of these. */
    strata_memory memory;
} check;

static const strata_place *place_of(const check *c, const strata_tensor *tensor) {
    return &c->step->piece->places[tensor->id];
}

static strata_arena_kind kind_of(const check *c, const strata_place *place) {
    return c->step->piece->arenas[place->arena].kind;
}

static strata_status no_memory(const check *c, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for a program of %d nodes", c->step->piece->n_nodes);
}

/* Copies a tensor from the device, or to it. */
static strata_status copy_tensor(const check *c, const strata_tensor *tensor, void *data, bool to_device, strata_error *err) {
    const strata_step_run *step = c->step;
    const strata_device_api *api = step->device->api;
    const strata_place *place = place_of(c, tensor);
    const int64_t bytes = strata_tensor_bytes(tensor);
    if (!bytes) return STRATA_OK;
    const strata_arena *arena = &step->piece->arenas[place->arena];
    char *host = NULL;
    if (arena->kind == STRATA_ARENA_INPUT) host = api->program_input(step->program, c->request->slot);
    if (arena->kind == STRATA_ARENA_OUTPUT) host = (char *)api->program_output(step->program, c->request->slot);
    if (!host && to_device) return api->upload(step->device, arena->buffer, place->offset, data, bytes, err);
    if (!host) return api->download(step->device, arena->buffer, place->offset, data, bytes, err);
    memcpy(to_device ? host + place->offset : data, to_device ? data : host + place->offset, (size_t)bytes);
    return STRATA_OK;
}

/* ---- what a run leaves ---- */
static bool is_same_place(const strata_place *a, const strata_place *b) {
    return a->arena == b->arena && a->offset == b->offset && a->bytes == b->bytes;
}

static void add_range(check *c, const strata_tensor *tensor, bool changes) {
    const strata_place *place = place_of(c, tensor);
    if (place->arena < 0 || !strata_tensor_bytes(tensor)) return;
    for (int i = 0; i < c->n_ranges; i++)
        if (is_same_place(c->ranges[i].place, place)) {
            c->ranges[i].changes |= changes;
            return;
        }
    c->ranges[c->n_ranges++] = (range){.tensor = tensor, .place = place, .changes = changes};
}

static const strata_tensor *owner_of(const strata_tensor *tensor) {
    while (tensor->op->flags & STRATA_OP_VIEW) tensor = tensor->inputs[0];
    return tensor;
}

/* Marks the nodes of the piece as seen. Operands that are not seen are computed elsewhere. */
static void see_nodes(const check *c) {
    const strata_piece *piece = c->step->piece;
    memset(c->seen, 0, (size_t)piece->n_places + 1);
    for (int k = 0; k < piece->n_nodes; k++) c->seen[piece->nodes[k]->id] = true;
}

/* Lists variables that are updated, outputs, values for later pieces, and values of earlier pieces, over which a node may
 * write. */
static strata_status list_ranges(check *c, strata_error *err) {
    const strata_piece *piece = c->step->piece;
    size_t most = 1;
    see_nodes(c);
    for (int k = 0; k < piece->n_nodes; k++) most += (size_t)piece->nodes[k]->n_inputs + 1;
    c->ranges = strata_memory_take(&c->memory, (int64_t)most, sizeof *c->ranges);
    if (!c->ranges) return no_memory(c, err);
    for (int k = 0; k < piece->n_nodes; k++) {
        const strata_tensor *node = piece->nodes[k];
        for (int i = 0; i < node->n_inputs; i++) {
            const strata_tensor *owner = owner_of(node->inputs[i]);
            const strata_place *from = place_of(c, owner);
            const bool earlier = !c->seen[owner->id] && from->arena >= 0 && kind_of(c, from) == STRATA_ARENA_CARRIED;
            if (earlier) add_range(c, owner, true);
            if (strata_check_writes(node, i)) add_range(c, node->inputs[i], true);
        }
        const strata_place *place = place_of(c, node);
        const bool stays =
            place->arena >= 0 && (kind_of(c, place) == STRATA_ARENA_OUTPUT || kind_of(c, place) == STRATA_ARENA_CARRIED);
        if (strata_check_writes(node, node->n_inputs) && stays) add_range(c, node, false);
    }
    for (int i = 0; i < c->n_ranges; i++) {
        range *r = &c->ranges[i];
        void **copies[] = {&r->before, &r->walked, &r->together};
        for (int k = 0; k < 3; k++) *copies[k] = strata_memory_take(&c->memory, strata_tensor_bytes(r->tensor), 1);
        if (c->memory.failed) return no_memory(c, err);
        if (r->changes) STRATA_TRY(copy_tensor(c, r->tensor, r->before, false, err));
    }
    return STRATA_OK;
}

static strata_status restore(const check *c, strata_error *err) {
    for (int i = 0; i < c->n_ranges; i++)
        if (c->ranges[i].changes) STRATA_TRY(copy_tensor(c, c->ranges[i].tensor, c->ranges[i].before, true, err));
    return STRATA_OK;
}

/* ---- inputs of a program that has not run ---- */
/* Writes generated values, or zeros, to what the program reads and does not compute, except for variables and constants. */
static strata_status generate(check *c, bool zeros, strata_error *err) {
    const strata_piece *piece = c->step->piece;
    see_nodes(c);
    for (int k = 0; k < piece->n_nodes; k++)
        for (int i = 0; i < piece->nodes[k]->n_inputs; i++) {
            const strata_tensor *tensor = owner_of(piece->nodes[k]->inputs[i]);
            const strata_place *place = place_of(c, tensor);
            if (c->seen[tensor->id] || place->arena < 0 || kind_of(c, place) >= STRATA_ARENA_CONSTANT) continue;
            c->seen[tensor->id] = true;
            STRATA_FREED void *data = calloc(1, (size_t)strata_tensor_bytes(tensor) + 1);
            if (!data) return no_memory(c, err);
            if (!zeros) strata_check_generate(piece, tensor, c->request->random + (uint32_t)tensor->id, data);
            STRATA_TRY(copy_tensor(c, tensor, data, true, err));
        }
    return STRATA_OK;
}

/* ---- one node ---- */
/* The host's copies of the values of a node: for each operand, and then for the node's own value. Operands in the same bytes
 * have the same copy. */
typedef struct values {
    const strata_tensor *node;
    int n;
    void **before, **want, **got, **moved;
    strata_memory memory;
} values;

static const strata_tensor *tensor_of(const values *v, int i) {
    return i < v->n ? v->node->inputs[i] : v->node;
}

/* The first operand in the same bytes. */
static int first_of(const check *c, const values *v, int i) {
    int first = 0;
    while (first < i && !(is_same_place(place_of(c, tensor_of(v, first)), place_of(c, tensor_of(v, i))) &&
                          tensor_of(v, first)->dtype == tensor_of(v, i)->dtype))
        first++;
    return i < v->n ? first : i;
}

/* Allocates copies: of all values, or only of those that the node writes. */
static strata_status allocate(const check *c, values *v, bool all, void ***out, strata_error *err) {
    *out = strata_memory_take(&v->memory, v->n + 1, sizeof(**out));
    if (!*out) return no_memory(c, err);
    for (int i = 0; i <= v->n; i++) {
        const int first = first_of(c, v, i);
        if (first != i) {
            (*out)[i] = (*out)[first];
            continue;
        }
        bool writes = all || strata_check_writes(v->node, i);
        for (int j = i; j < v->n; j++) writes = writes || (first_of(c, v, j) == i && strata_check_writes(v->node, j));
        if (writes && !((*out)[i] = strata_memory_take(&v->memory, strata_tensor_bytes(tensor_of(v, i)), 1)))
            return no_memory(c, err);
    }
    return STRATA_OK;
}

static void finish_values(values *v) {
    strata_memory_finish(&v->memory);
}

/* Computes the reference from copies of the operands, each changed slightly if `move` is set. A pack only copies its operands;
 * what lies between them is not defined, so it is taken from the device's result. */
static strata_status refer(const check *c, const values *v, const strata_sample *sample, bool move, void **to,
                           strata_error *err) {
    if (v->node->op->flags & STRATA_OP_SLICES) {
        const strata_pack_attrs *attrs = v->node->attrs;
        const size_t each = strata_dtype_bytes(v->node->dtype);
        memcpy(to[v->n], v->got[v->n], (size_t)strata_tensor_bytes(v->node));
        for (int i = 0; i < v->n; i++)
            memcpy((char *)to[v->n] + (size_t)attrs->offsets[i] * each, v->before[i],
                   (size_t)strata_tensor_bytes(v->node->inputs[i]));
        return STRATA_OK;
    }
    STRATA_FREED void **data = calloc((size_t)v->n + 1, sizeof(*data));
    if (!data) return no_memory(c, err);
    for (int i = 0; i <= v->n; i++) {
        data[i] = to[i] ? to[i] : v->before[i];
        if (i == v->n || !to[i] || first_of(c, v, i) != i) continue;
        memcpy(to[i], v->before[i], (size_t)strata_tensor_bytes(v->node->inputs[i]));
        if (move) strata_check_move(v->node->inputs[i], strata_check_tolerance(v->node->inputs[i]->dtype), to[i], (uint32_t)i);
    }
    return strata_check_refer(v->node, sample, data, err);
}

static bool differs(const values *v, int i, const strata_sample *sample) {
    const strata_tensor *tensor = tensor_of(v, i);
    return strata_check_writes(v->node, i) &&
           !(strata_check_difference(tensor, sample, v->got[i], v->want[i]) <= strata_check_tolerance(tensor->dtype));
}

/* *out_error: the largest error; 0: the node is correct. Values that are not finite cannot be compared. */
static strata_status measure_error(check *c, values *v, const strata_sample *sample, double *out_error, strata_error *err) {
    const strata_sample all = {0};
    bool any = false;
    *out_error = 0;
    for (int i = 0; i < v->n; i++)
        if (!strata_check_is_finite(v->node->inputs[i], &all, v->before[i])) return STRATA_OK;
    STRATA_TRY(refer(c, v, sample, false, v->want, err));
    for (int i = 0; i <= v->n; i++)
        if (strata_check_writes(v->node, i) && !strata_check_is_finite(tensor_of(v, i), sample, v->want[i])) return STRATA_OK;
    for (int i = 0; i <= v->n; i++) any = any || differs(v, i, sample);
    if (!any) return STRATA_OK;
    STRATA_TRY(allocate(c, v, true, &v->moved, err));
    STRATA_TRY(refer(c, v, sample, true, v->moved, err));
    for (int i = 0; i <= v->n; i++) {
        const strata_tensor *tensor = tensor_of(v, i);
        if (!strata_check_writes(v->node, i) ||
            !strata_check_is_off(tensor, sample, strata_check_tolerance(tensor->dtype), 0, v->got[i], v->want[i], v->moved[i]))
            continue;
        *out_error = fmax(*out_error, strata_check_difference(tensor, sample, v->got[i], v->want[i]));
    }
    return STRATA_OK;
}

static bool is_launched(const strata_kernel_list *list, const strata_tensor *node) {
    for (int l = 0; l < list->n_launches; l++)
        if (list->launches[l].node == node) return true;
    return false;
}

/* Whether the node can be compared: it has a reference and launches, its operands can be read, and it is not too large. The
 * cores of a collective do not run at the same time in a check. */
static bool is_comparable(const check *c, const strata_tensor *node) {
    double bytes = (double)strata_tensor_bytes(node), work = strata_check_work(node);
    if (!node->op->reference || !is_launched(c->step->list, node) || place_of(c, node)->arena < 0) return false;
    if (strata_is_collective(node)) return false;
    for (int i = 0; i < node->n_inputs; i++) {
        if (place_of(c, node->inputs[i])->arena < 0 && strata_tensor_bytes(node->inputs[i])) return false;
        bytes += (double)strata_tensor_bytes(node->inputs[i]);
    }
    if (node->op->flags & STRATA_OP_SAMPLES) work = 0;
    return bytes <= MOST_BYTES && work <= (strata_host_fast_find(node) ? MOST_FAST_WORK : MOST_WORK);
}

static strata_status run_wanted(check *c, bool *any, strata_error *err) {
    if (!*any) return STRATA_OK;
    *any = false;
    STRATA_TRY(c->step->run(c->step->program, c->request->slot, c->wanted, err));
    memset(c->wanted, 0, (size_t)c->step->piece->n_places + 1);
    return STRATA_OK;
}

/* Reads the node's operands, runs it, and compares what it wrote. */
static strata_status check_node(check *c, int k, strata_error *err) {
    const strata_tensor *node = c->step->piece->nodes[k];
    STRATA_FINISHED_BY(finish_values) values v = {.node = node, .n = node->n_inputs};
    STRATA_FINISHED(strata_sample) sample = {0};
    double error = 0;
    bool any = true;
    STRATA_TRY(allocate(c, &v, true, &v.before, err));
    STRATA_TRY(allocate(c, &v, false, &v.want, err));
    STRATA_TRY(allocate(c, &v, false, &v.got, err));
    for (int i = 0; i < v.n; i++)
        if (first_of(c, &v, i) == i) STRATA_TRY(copy_tensor(c, node->inputs[i], v.before[i], false, err));
    c->wanted[node->id] = true;
    STRATA_TRY(run_wanted(c, &any, err));
    for (int i = 0; i <= v.n; i++)
        if (strata_check_writes(node, i)) STRATA_TRY(copy_tensor(c, tensor_of(&v, i), v.got[i], false, err));
    STRATA_TRY(strata_sample_choose(node, node, c->request->random + (uint32_t)k * 2654435761u, &sample, err));
    STRATA_TRY(measure_error(c, &v, &sample, &error, err));
    c->nodes[k].n_wrong += error > 0;
    c->nodes[k].error = fmax(c->nodes[k].error, error);
    return STRATA_OK;
}

static strata_status walk(check *c, strata_error *err) {
    bool any = false;
    memset(c->wanted, 0, (size_t)c->step->piece->n_places + 1);
    for (int k = 0; k < c->step->piece->n_nodes; k++) {
        if (c->nodes[k].chosen) {
            STRATA_TRY(run_wanted(c, &any, err));
            STRATA_TRY(check_node(c, k, err));
        } else {
            c->wanted[c->step->piece->nodes[k]->id] = any = true;
        }
    }
    return run_wanted(c, &any, err);
}

/* ---- all launches together ---- */
/* Submits the program as in training. *out_error: the largest difference from what the walk has left; *out_tensor: where. */
static strata_status run_together(check *c, double *out_error, const strata_tensor **out_tensor, strata_error *err) {
    const strata_step_run *step = c->step;
    const strata_sample all = {0};
    uint64_t ticket = 0;
    *out_error = 0;
    STRATA_TRY(restore(c, err));
    STRATA_TRY(step->device->api->run(step->program, c->request->slot, &ticket, err));
    STRATA_TRY(step->device->api->wait(step->device, ticket, err));
    for (int i = 0; i < c->n_ranges; i++) {
        const range *r = &c->ranges[i];
        STRATA_TRY(copy_tensor(c, r->tensor, r->together, false, err));
        if (!memcmp(r->together, r->walked, (size_t)strata_tensor_bytes(r->tensor))) continue;
        const double error = strata_check_difference(r->tensor, &all, r->together, r->walked);
        if (error <= strata_check_tolerance(r->tensor->dtype) || error <= *out_error) continue;
        *out_error = error;
        *out_tensor = r->tensor;
    }
    return STRATA_OK;
}

/* ---- verdicts ---- */
/* Finds which kernels have computed the node. */
static strata_status find_key(const check *c, int k, strata_error *err) {
    const strata_tensor *node = c->step->piece->nodes[k];
    node_state *state = &c->nodes[k];
    STRATA_FINISHED(strata_lowering) lowering = {0};
    STRATA_TRY(strata_way_choose(c->limits, c->tuner, node, &state->way, err));
    STRATA_TRY(strata_way_lower(c->limits, &state->way, node, &lowering, err));
    if (lowering.n) {
        const strata_launch *main = &lowering.launches[state->way.widen && lowering.n > 2 ? lowering.n - 2 : 0];
        state->kernel = main->kernel;
        state->variant = main->variant;
    }
    state->key = strata_check_key(node, &lowering);
    return STRATA_OK;
}

static uint64_t family_key(const node_state *state) {
    return state->way.family ? strata_check_family_key(state->way.family) : state->key;
}

/* Whether the user was told of the family, or of this kernel and op with other constants. */
static bool is_told(const strata_checks *checks, const node_state *state, const char *text) {
    const char *end = strchr(text, ':');
    bool told = strata_check_complaint(checks, family_key(state)) != NULL;
    for (int i = 0; i < checks->n && end; i++)
        told |= !checks->verdicts[i].is_suspect && !strncmp(checks->verdicts[i].what, text, (size_t)(end - text));
    return told;
}

/* Stores that the node's kernels, and with them their family, are wrong. */
static strata_status condemn(check *c, const node_state *state, const char *text, strata_error *err) {
    strata_checks *checks = c->limits->checks;
    const bool told = is_told(checks, state, text);
    if (!strata_verdict_add(checks, state->key, state->error, text) ||
        !strata_verdict_add(checks, family_key(state), state->error, text))
        return no_memory(c, err);
    checks->device->n_distrusted++;
    if (!told && c->request->first) strata_device_warn(checks->device, "%s: %s; it is not used", checks->device->info.id, text);
    return STRATA_OK;
}

/* A kernel that an earlier start found to be wrong, and that was tried again, is right. */
static strata_status acquit(check *c, strata_error *err) {
    strata_checks *checks = c->limits->checks;
    bool changed = false;
    for (int k = 0; k < c->step->piece->n_nodes && strata_checks_suspect(checks); k++) {
        if (!c->nodes[k].chosen || c->nodes[k].n_wrong) continue;
        STRATA_TRY(find_key(c, k, err));
        changed |= strata_verdict_drop(checks, c->nodes[k].key);
        changed |= strata_verdict_drop(checks, family_key(&c->nodes[k]));
    }
    if (changed) strata_verdicts_write(checks);
    return STRATA_OK;
}

/* Judges the nodes that were wrong in a walk. */
static strata_status judge(check *c, strata_error *err) {
    strata_checks *checks = c->limits->checks;
    const strata_piece *piece = c->step->piece;
    const char *id = checks->device->info.id;
    strata_status status = STRATA_OK;
    for (int k = 0; k < piece->n_nodes; k++)
        if (c->nodes[k].n_wrong) STRATA_TRY(find_key(c, k, err)); /* before verdicts change the choice of kernels */
    for (int k = 0; k < piece->n_nodes; k++) {
        const node_state *state = &c->nodes[k];
        const char *kernel = state->kernel ? state->kernel : "?", *variant = state->variant;
        char text[TEXT_BYTES];
        if (!state->n_wrong) continue;
        strata_format(text, sizeof text, "kernel %s%s%s computes %s wrongly%s: off by %.3g of the largest value (driver %s)",
                      kernel, variant ? " " : "", variant ? variant : "", piece->nodes[k]->op->name,
                      state->n_wrong < LEAST_WRONG ? " in 1 run of 3" : "", state->error, checks->driver);
        if (state->n_wrong >= LEAST_WRONG) STRATA_TRY(condemn(c, state, text, err));
        if (state->n_wrong < LEAST_WRONG && c->request->first) {
            strata_device_warn(checks->device, "%s: %s; it is used, but the device may be failing", id, text);
            continue;
        }
        if (!status && c->request->first) status = strata_fail(err, STRATA_UNSUPPORTED, "%s", text);
        if (!status)
            status =
                strata_fail(err, STRATA_UNSUPPORTED,
                            "%s: on values of a training step, %s. It was right when the program was made: the device or its "
                            "memory may be failing, and what was trained since then may be wrong",
                            id, text);
    }
    strata_verdicts_write(checks);
    return status;
}

static int count_wrong(const check *c) {
    int n = 0;
    for (int k = 0; k < c->step->piece->n_nodes; k++) n += c->nodes[k].n_wrong > 0;
    return n;
}

/* Compares the launches together with the walk. */
static strata_status check_together(check *c, strata_error *err) {
    const strata_tensor *tensor = NULL;
    double error = 0, most = 0;
    int n_wrong = 0, n = 0;
    for (int i = 0; i < c->n_ranges; i++) STRATA_TRY(copy_tensor(c, c->ranges[i].tensor, c->ranges[i].walked, false, err));
    do {
        STRATA_TRY(run_together(c, &error, &tensor, err));
        n_wrong += error > 0;
        most = fmax(most, error);
    } while (++n < WALKS && n_wrong);
    if (!n_wrong) return acquit(c, err);
    const char *id = c->step->device->info.id, *driver = c->limits->checks->driver;
    if (n_wrong < LEAST_WRONG && c->request->first) {
        strata_device_warn(c->step->device,
                           "%s: a program was wrong in 1 run of %d: off by %.3g of the largest value in %s (driver "
                           "%s); the device may be failing",
                           id, n, most, strata_tensor_name(tensor), driver);
        return STRATA_OK;
    }
    return strata_fail(
        err, STRATA_UNSUPPORTED,
        "%s: the kernels of a program compute wrongly together and rightly one by one, off by %.3g of the largest "
        "value in %s; the driver does not keep their order (driver %s)",
        id, most, strata_tensor_name(tensor), driver);
}

/* ---- all of it ---- */
/* Chooses which nodes are compared: the share that was requested, at random, and at least one. */
static void choose(check *c) {
    const strata_piece *piece = c->step->piece;
    uint32_t random = c->request->random;
    int n = 0, left = 0;
    for (int k = 0; k < piece->n_nodes; k++) n += is_comparable(c, piece->nodes[k]);
    left = n ? (int)(random % (uint32_t)n) : 0;
    for (int k = 0; k < piece->n_nodes; k++) {
        if (!is_comparable(c, piece->nodes[k])) continue;
        random = random * 1664525u + 1013904223u;
        c->nodes[k].chosen = left-- == 0 || (double)(random >> 8) / (1 << 24) < c->request->share;
    }
}

static strata_status run(check *c, strata_error *err) {
    int n_walks = 0;
    if (c->request->first) STRATA_TRY(generate(c, false, err));
    STRATA_TRY(list_ranges(c, err));
    choose(c);
    strata_status status = STRATA_OK, restored = STRATA_OK;
    do {
        if (n_walks) status = restore(c, err);
        if (!status) status = walk(c, err);
    } while (!status && ++n_walks < WALKS && count_wrong(c));
    if (!status) status = count_wrong(c) ? judge(c, err) : check_together(c, err);
    restored = restore(c, status ? NULL : err);
    if (!status && !restored && c->request->first) restored = generate(c, true, err);
    return status ? status : restored;
}

/* Warns once of the kernels that are not used because earlier starts found them to be wrong. */
static void tell(strata_checks *checks) {
    const char *example = NULL;
    int n = 0;
    for (int i = 0; i < checks->n && !checks->told; i++)
        if (!checks->verdicts[i].is_suspect && (!example || strcmp(example, checks->verdicts[i].what) != 0)) {
            n++;
            example = checks->verdicts[i].what;
        }
    checks->told = true;
    if (n)
        strata_device_warn(checks->device,
                           "%s: %d kernel%s not used, which computed wrongly at earlier starts (%s); %s lists them, and "
                           "`strata devices --check --device %s` tries them again",
                           checks->device->info.id, n, n == 1 ? " is" : "s are", example, checks->file.path,
                           checks->device->info.id);
}

/* The device's counters must not include these checks. */
strata_status strata_checks_run(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_step_run *step,
                                const strata_check_request *request, strata_error *err) {
    check c = {.limits = limits, .tuner = tuner, .step = step, .request = request};
    strata_device *device = step->device;
    if (!limits->checks || device->trace || !step->piece->n_nodes) return STRATA_OK;
    tell(limits->checks);
    const strata_device_counters before = device->counters;
    const int n_places = step->piece->n_places + 1;
    c.nodes = strata_memory_take(&c.memory, step->piece->n_nodes, sizeof *c.nodes);
    c.wanted = strata_memory_take(&c.memory, n_places, 1);
    c.seen = strata_memory_take(&c.memory, n_places, 1);
    const strata_status status = c.memory.failed ? no_memory(&c, err) : run(&c, err);
    strata_memory_finish(&c.memory);
    const uint64_t compilations = device->counters.compilations;
    device->counters = before;
    device->counters.compilations = compilations;
    return status;
}
