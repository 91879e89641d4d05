/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks whether this device's kernels compute correctly. Some drivers miscompile kernels without an error, and a model would
 * then train with wrong numbers. So before a piece is compiled, the kernels of its nodes are run on small operands and compared
 * with the ops' references; the results are stored (verdicts.c).
 *
 * The unit that is checked is a *variant*: the kernels of one node with their constants. Its *trial* is a copy of the node with
 * small operands for which the lowering chooses the same kernels (trial.c).
 *
 * All trials of a piece are compiled as one piece, in the nodes' order and with operands in the same arenas. So the driver
 * compiles nothing in addition to the piece itself: the piece of trials has the same kernels with the same bindings, and on a
 * CPU its sequence (opencl/sequence.c) has the same source. */
#include "backends/kernel/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/locale.h"

enum { TEXT_BYTES = 400 };

/* ---- the piece of all trials ---- */
typedef struct check_round {
    strata_device *device;
    const strata_piece *real;
    /* A repeated check while a model trains: its result is not stored. */
    bool again;
    /* The seed of the operands' values. */
    uint32_t seed;
    strata_trial *trials;
    int n;
    /* The small copies of the real nodes, as a piece. */
    const strata_tensor **nodes;
    strata_way *ways;
    strata_place *places;
    strata_arena *arenas;
    strata_piece piece;
    strata_program *program;
} check_round;

static bool is_new(const strata_checks *checks, const check_round *r, int k) {
    if (strata_verdict_find(checks, r->trials[k].key)) return false;
    for (int j = 0; j < k; j++)
        if (r->trials[j].key == r->trials[k].key) return false;
    return true;
}

/* Whether the list has a launch of the node. A part of a pack that was computed at its place in the pack has none. */
static bool is_launched(const strata_kernel_list *list, const strata_tensor *node) {
    for (int l = 0; l < list->n_launches; l++)
        if (list->launches[l].node == node) return true;
    return false;
}

/* Makes a trial for each node that has a launch. *out_new is the number of trials whose kernels have not been checked. */
static strata_status make_trials(check_round *r, const strata_checks *checks, const strata_kernel_limits *limits,
                                 strata_tuner *tuner, int *out_new, strata_error *err) {
    strata_kernel_list list = {0};
    *out_new = 0;
    r->trials = calloc((size_t)r->real->n_nodes + 1, sizeof *r->trials);
    if (!r->trials) return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for %d nodes", r->real->n_nodes);
    STRATA_TRY(strata_kernel_list_create(limits, tuner, r->real, &list, err));
    strata_status status = STRATA_OK;
    for (int i = 0; i < r->real->n_nodes && !status; i++) {
        if (!is_launched(&list, r->real->nodes[i])) continue;
        status = strata_trial_init(limits, tuner, r->real, r->real->nodes[i], &r->trials[r->n], err);
        r->trials[r->n].is_new = r->real->nodes[i]->op->reference && is_new(checks, r, r->n);
        *out_new += r->trials[r->n++].is_new;
    }
    strata_kernel_list_finish(&list);
    return status;
}

/* On some devices the host can only read the outputs' arena. There, operands that the real piece has in this arena are placed
 * in a separate arena. */
static int arena_of(const check_round *r, const strata_tensor *real, bool is_operand) {
    const int arena = r->real->places[real->id].arena;
    const bool unreachable = is_operand && arena == STRATA_ARENA_OUTPUT && !r->device->reads_outputs;
    return arena < 0 || unreachable ? r->real->n_arenas : arena;
}

static void place(check_round *r, strata_tensor *tensor, int arena, int *ids) {
    strata_arena *a = &r->arenas[arena];
    const int64_t bytes = strata_check_bytes(tensor);
    tensor->id = (*ids)++;
    r->places[tensor->id] = (strata_place){.arena = arena, .offset = a->bytes, .bytes = bytes};
    a->bytes += (bytes + STRATA_PLACE_ALIGNMENT - 1) / STRATA_PLACE_ALIGNMENT * STRATA_PLACE_ALIGNMENT;
}

/* Whether the operand is in the memory of the real node's value, and where. */
static bool lies_within(const check_round *r, const strata_tensor *real, int i, int64_t *out_offset) {
    const strata_place *whole = &r->real->places[real->id], *part = &r->real->places[real->inputs[i]->id];
    *out_offset = part->offset - whole->offset;
    return (real->op->flags & STRATA_OP_SLICES) && part->arena == whole->arena && part->offset >= whole->offset &&
           part->offset + part->bytes <= whole->offset + whole->bytes;
}

/* Whether an operand is in the memory of the node's value, so that the host must be able to write there. */
static bool contains_operands(const check_round *r, const strata_trial *t) {
    int64_t offset = 0;
    for (int i = 0; i < t->real->n_inputs && t->is_full; i++)
        if (t->pointers[i] == &t->inputs[i] && lies_within(r, t->real, i, &offset)) return true;
    return false;
}

static void place_trial(check_round *r, strata_trial *t, int *ids) {
    const strata_tensor *real = t->real;
    const bool updates = real->op->flags & STRATA_OP_UPDATE;
    if (!updates) place(r, &t->node, arena_of(r, real, contains_operands(r, t)), ids);
    for (int i = 0; i < real->n_inputs; i++) {
        int64_t offset = 0;
        if (t->pointers[i] != &t->inputs[i]) continue;
        const bool within = t->is_full && lies_within(r, real, i, &offset);
        if (!within) {
            place(r, &t->inputs[i], arena_of(r, real->inputs[i], true), ids);
            continue;
        }
        t->inputs[i].id = (*ids)++;
        const strata_place whole = r->places[t->node.id];
        r->places[t->inputs[i].id] = (strata_place){whole.arena, whole.offset + offset, strata_check_bytes(&t->inputs[i])};
    }
    if (updates) {
        t->node.id = (*ids)++;
        r->places[t->node.id] = r->places[t->pointers[0]->id];
    }
}

/* Makes the piece of all trials and places their values. */
static strata_status make_piece(check_round *r, const strata_kernel_limits *limits, strata_error *err) {
    size_t n_tensors = 1;
    int ids = 0, n = 0;
    for (int k = 0; k < r->n; k++) n_tensors += (size_t)r->trials[k].real->n_inputs + 1;
    r->nodes = calloc((size_t)r->n + 1, sizeof(*r->nodes));
    r->ways = calloc(n_tensors, sizeof *r->ways);
    r->places = calloc(n_tensors, sizeof *r->places);
    r->arenas = calloc((size_t)r->real->n_arenas + 1, sizeof *r->arenas);
    if (!r->nodes || !r->ways || !r->places || !r->arenas)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for %zu tensors", n_tensors);
    for (int a = 0; a < r->real->n_arenas; a++) r->arenas[a].kind = r->real->arenas[a].kind;
    r->arenas[r->real->n_arenas].kind = STRATA_ARENA_WORK;
    for (int k = 0; k < r->n; k++) {
        strata_trial *t = &r->trials[k];
        if (!strata_trial_shrink(limits, t)) {
            t->is_too_large = true;
            continue;
        }
        place_trial(r, t, &ids);
        r->ways[t->node.id] = t->small_way;
        r->nodes[n++] = &t->node;
    }
    r->piece = (strata_piece){.nodes = r->nodes,
                              .n_nodes = n,
                              .places = r->places,
                              .n_places = ids,
                              .arenas = r->arenas,
                              .n_arenas = r->real->n_arenas + (r->arenas[r->real->n_arenas].bytes > 0),
                              .n_slots = 1};
    for (int a = STRATA_ARENA_OUTPUT + 1; a < r->piece.n_arenas; a++)
        if (r->arenas[a].bytes)
            STRATA_TRY(r->device->api->buffer_create(r->device, r->arenas[a].bytes, &r->arenas[a].buffer, err));
    return STRATA_OK;
}

/* The tensor's memory if the host can access it; NULL: it is in a buffer. */
static char *host_place(const check_round *r, const strata_tensor *tensor) {
    const strata_place *p = &r->places[tensor->id];
    char *base = NULL;
    if (p->arena == STRATA_ARENA_INPUT) base = r->device->api->program_input(r->program, 0);
    if (p->arena == STRATA_ARENA_OUTPUT) base = (char *)r->device->api->program_output(r->program, 0);
    return base ? base + p->offset : NULL;
}

static strata_status upload_tensor(const check_round *r, const strata_tensor *tensor, const void *data, strata_error *err) {
    char *host = host_place(r, tensor);
    const strata_place *p = &r->places[tensor->id];
    if (!p->bytes) return STRATA_OK;
    if (!host) return r->device->api->upload(r->device, r->arenas[p->arena].buffer, p->offset, data, p->bytes, err);
    memcpy(host, data, (size_t)p->bytes);
    return STRATA_OK;
}

static strata_status download_tensor(const check_round *r, const strata_tensor *tensor, void *data, strata_error *err) {
    const char *host = host_place(r, tensor);
    const strata_place *p = &r->places[tensor->id];
    if (!p->bytes) return STRATA_OK;
    if (!host) return r->device->api->download(r->device, r->arenas[p->arena].buffer, p->offset, data, p->bytes, err);
    memcpy(data, host, (size_t)p->bytes);
    return STRATA_OK;
}

/* Fills the operands of a new trial, copies them to the device, and then computes the reference, which may change them. If the
 * result contains NaN, this is repeated with positive operands. */
static strata_status prepare(check_round *r, strata_trial *t, strata_error *err) {
    const int n = t->real->n_inputs;
    const bool updates = t->node.op->flags & STRATA_OP_UPDATE;
    for (int positive = 0; positive < 2; positive++) {
        STRATA_TRY(strata_trial_fill(t, positive, r->seed, err));
        for (int i = 0; i < n; i++)
            if (t->pointers[i] == &t->inputs[i]) STRATA_TRY(upload_tensor(r, &t->inputs[i], t->data[i], err));
        STRATA_TRY(strata_check_refer(&t->node, t->data, err));
        if (!strata_check_has_nan(&t->node, updates ? t->data[0] : t->data[n])) break;
    }
    return STRATA_OK;
}

/* Whether the node's value `got` differs from the reference by more than rounding explains. A sum whose terms cancel each
 * other is mostly rounding error, so this computes the reference once more, for operands that are changed slightly. An
 * update has changed the trial's operands, so it is always taken as wrong. */
static strata_status is_beyond_rounding(const strata_trial *t, const void *got, bool *out_beyond, strata_error *err) {
    const int n = t->real->n_inputs;
    strata_status status = STRATA_OK;
    *out_beyond = true;
    if (t->node.op->flags & STRATA_OP_UPDATE) return STRATA_OK;
    void **moved = calloc((size_t)n + 1, sizeof(*moved));
    bool room = moved != NULL;
    for (int i = 0; i <= n && room; i++) {
        const strata_tensor *tensor = i < n ? t->pointers[i] : &t->node;
        int first = i < n ? 0 : n;
        while (i < n && tensor != &t->inputs[first]) first++;
        if (first != i) {
            moved[i] = moved[first];
            continue;
        }
        const size_t bytes = (size_t)strata_check_bytes(tensor);
        room = (moved[i] = malloc(bytes + 1)) != NULL;
        if (room) memcpy(moved[i], t->data[i], bytes);
        if (room && i < n) strata_check_move(tensor, moved[i], (uint32_t)i);
    }
    if (room)
        status = strata_check_refer(&t->node, moved, err);
    else
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for a node of %d operands", n);
    if (!status) *out_beyond = strata_check_is_off(&t->node, got, t->data[n], moved[n]);
    for (int i = 0; moved && i <= n; i++)
        if (i == n || t->pointers[i] == &t->inputs[i]) free(moved[i]);
    free(moved);
    return status;
}

/* Computes the largest error of the values that the node writes, relative to the largest value. *out_wrong: whether an error
 * exceeds the tolerance of its dtype and is more than rounding. */
static strata_status measure_error(const check_round *r, const strata_trial *t, double *out_error, bool *out_wrong,
                                   strata_error *err) {
    const int n = t->real->n_inputs;
    *out_error = 0;
    *out_wrong = false;
    for (int i = 0; i <= n; i++) {
        const strata_tensor *tensor = i < n ? t->pointers[i] : &t->node;
        if (!strata_check_writes(&t->node, i) || (i < n && tensor != &t->inputs[i])) continue;
        void *got = malloc((size_t)strata_check_bytes(tensor) + 1);
        if (!got) return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory");
        strata_status status = download_tensor(r, tensor, got, err);
        const double error = status ? 0 : strata_check_difference(tensor, got, t->data[i]);
        bool beyond = !(error <= strata_check_tolerance(tensor->dtype));
        if (!status && beyond) status = is_beyond_rounding(t, got, &beyond, err);
        free(got);
        STRATA_TRY(status);
        if (error > *out_error) *out_error = error;
        *out_wrong = *out_wrong || beyond;
    }
    return STRATA_OK;
}

static strata_status store_verdicts(strata_checks *checks, const check_round *r, const strata_kernel_limits *limits,
                                    int *out_wrong, strata_error *err) {
    for (int k = 0; k < r->n; k++) {
        const strata_trial *t = &r->trials[k];
        double error = 0;
        bool wrong = false;
        char kernels[128], text[TEXT_BYTES];
        if (!t->is_new) continue;
        if (!t->is_too_large) STRATA_TRY(measure_error(r, t, &error, &wrong, err));
        strata_check_name_kernels(limits, &t->small_way, &t->node, kernels);
        if (r->again) {
            if (wrong)
                strata_device_warn(
                    checks->device,
                    "%s: kernel %s computed %s rightly before and wrongly now, off by %.3g of the largest value: "
                    "the device or its memory may be failing, and what was trained may be wrong (driver %s)",
                    checks->device->info.id, kernels, t->node.op->name, error, checks->driver);
            continue;
        }
        if (wrong)
            strata_format(text, sizeof text, "kernel %s computes %s wrongly: off by %.3g of the largest value (driver %s)",
                          kernels, t->node.op->name, error, checks->driver);
        else
            snprintf(text, sizeof text, "%s %s%s", kernels, t->node.op->name,
                     t->is_too_large ? ", not compared: small operands have other kernels" : "");
        if (!strata_verdict_add(checks, t->key, wrong, error, text))
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory");
        if (!wrong) continue;
        (*out_wrong)++;
        checks->device->n_distrusted++;
        const uint64_t family = t->way.family ? strata_check_family_key(t->way.family) : t->key;
        if (family != t->key && strata_verdict_find(checks, family)) continue; /* the warning was printed before */
        if (family != t->key && !strata_verdict_add(checks, family, true, error, text))
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory");
        strata_device_warn(checks->device, "%s: %s; it is not used", checks->device->info.id, text);
    }
    return STRATA_OK;
}

/* ---- all of it ---- */
static strata_status run_round(strata_checks *checks, check_round *r, const strata_kernel_limits *limits, int *out_wrong,
                               strata_error *err) {
    const strata_device_api *api = r->device->api;
    uint64_t ticket = 0;
    STRATA_TRY(make_piece(r, limits, err));
    if (!r->piece.n_nodes) return store_verdicts(checks, r, limits, out_wrong, err);
    checks->ways = r->ways;
    const strata_status compiled = api->compile(r->device, &r->piece, &r->program, err);
    checks->ways = NULL;
    STRATA_TRY(compiled);
    for (int k = 0; k < r->n; k++)
        if (r->trials[k].is_new && !r->trials[k].is_too_large) STRATA_TRY(prepare(r, &r->trials[k], err));
    STRATA_TRY(api->run(r->program, 0, &ticket, err));
    STRATA_TRY(api->wait(r->device, ticket, err));
    return store_verdicts(checks, r, limits, out_wrong, err);
}

static void finish(check_round *r) {
    if (r->program) r->device->api->program_destroy(r->program);
    for (int a = 0; a < r->piece.n_arenas; a++)
        if (r->arenas[a].buffer) r->device->api->buffer_destroy(r->device, r->arenas[a].buffer);
    for (int k = 0; k < r->n; k++) strata_trial_finish(&r->trials[k]);
    free(r->trials);
    free(r->nodes);
    free(r->ways);
    free(r->places);
    free(r->arenas);
}

/* One round of checks. If a kernel is wrong, the piece gets other kernels in its place, which may have to be checked in another
 * round. */
static strata_status check_once(strata_checks *checks, const strata_kernel_limits *limits, strata_tuner *tuner,
                                const strata_piece *piece, int *out_wrong, strata_error *err) {
    check_round r = {.device = checks->device, .real = piece};
    int n_new = 0;
    *out_wrong = 0;
    strata_status status = make_trials(&r, checks, limits, tuner, &n_new, err);
    if (!status && n_new) {
        strata_error why = {0};
        status = run_round(checks, &r, limits, out_wrong, &why);
        /* if a kernel does not compile or there is no memory, compiling the piece itself reports it */
        if (status == STRATA_UNSUPPORTED || status == STRATA_OUT_OF_MEMORY) status = STRATA_OK;
        if (status) status = strata_fail(err, status, "checking kernels: %.900s", why.message);
        strata_verdicts_write(checks);
    }
    finish(&r);
    return status;
}

/* The device's counters must not include these checks, except the compiled kernels. */
static void restore_counters(strata_device *device, const strata_device_counters *before) {
    const uint64_t compilations = device->counters.compilations;
    device->counters = *before;
    device->counters.compilations = compilations;
}

/* The random-th node that has a reference; NULL: none has. */
static strata_trial *choose(check_round *r, uint32_t random) {
    int n = 0;
    for (int k = 0; k < r->n; k++) n += r->trials[k].real->op->reference != NULL;
    int left = n ? (int)(random % (uint32_t)n) : 0;
    for (int k = 0; k < r->n; k++)
        if (r->trials[k].real->op->reference && left-- == 0) return &r->trials[k];
    return NULL;
}

strata_status strata_checks_again(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_step_run *step,
                                  uint32_t random, strata_error *err) {
    strata_checks *checks = limits->checks;
    strata_device *device = step->device;
    check_round r = {.device = device, .real = step->piece, .again = true, .seed = random};
    const strata_device_counters before = device->counters;
    int n_new = 0, n_wrong = 0;
    bool done = false;
    if (!checks || device->trace) return STRATA_OK;
    strata_status status = make_trials(&r, checks, limits, tuner, &n_new, err);
    strata_trial *chosen = status ? NULL : choose(&r, random);
    if (chosen && step->slot >= 0) {
        char kernels[128];
        strata_check_name_kernels(limits, &chosen->way, chosen->real, kernels);
        status = strata_checks_step(limits, step, chosen->real, kernels, &done, err);
    }
    for (int k = 0; k < r.n; k++) r.trials[k].is_new = &r.trials[k] == chosen;
    if (chosen && !status && !done) status = run_round(checks, &r, limits, &n_wrong, err);
    finish(&r);
    restore_counters(device, &before);
    return status;
}

strata_status strata_checks_run(const strata_kernel_limits *limits, strata_tuner *tuner, strata_device *device,
                                const strata_piece *piece, strata_error *err) {
    strata_checks *checks = limits->checks;
    if (!checks || checks->ways || strata_tuner_is_trying(tuner) || device->trace) return STRATA_OK;
    const strata_device_counters before = device->counters;
    int n_wrong = 0;
    strata_status status;
    do {
        status = check_once(checks, limits, tuner, piece, &n_wrong, err);
    } while (!status && n_wrong);
    restore_counters(device, &before);
    return status;
}
