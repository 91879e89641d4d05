/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares one node of a training step with the reference on the step's own values. This detects a device that computes wrongly
 * only for some values, or that became defective after its kernels were checked.
 *
 * A step's temporaries share memory, so most are gone when it ends. Before the step is submitted, the program's kernels compute
 * only the operands of the node, and the operands are read back. Then only the node runs, and its result is read back. Updates
 * do not run, unless the node itself is an update; then the previous values are restored. After that the step computes
 * everything again. */
#include <stdlib.h>
#include <string.h>

#include "backends/host/host.h"
#include "backends/kernel/check.h"

/* The most operations and bytes of a node that is compared while a model trains: MOST_WORK if only the op's reference
 * can compute it, MOST_FAST_WORK if the host backend's loops can. A larger node is compared on small generated
 * operands. */
static const double MOST_WORK = 5e7, MOST_FAST_WORK = 4e9;

typedef struct recheck {
    const strata_step_run *step;
    const strata_tensor *node;
    /* [n_inputs + 1] for each operand, and for the node's own value: the device's values before the node runs; the reference's
     * result; the device's result; the reference's result for operands that were changed slightly. */
    void **before, **want, **got, **moved;
    /* [n_places] By the tensor's id: the nodes to run, and the nodes that `mark` has visited. */
    bool *wanted, *seen;
} recheck;

static const strata_tensor *tensor_of(const recheck *r, int i) {
    return i < r->node->n_inputs ? r->node->inputs[i] : r->node;
}

static const strata_place *place_of(const recheck *r, const strata_tensor *tensor) {
    return &r->step->piece->places[tensor->id];
}

/* ---- which nodes are run ---- */
/* Marks `tensor` and all nodes from which it is computed. Returns false if an update is among them. */
static bool mark(recheck *r, const strata_tensor *tensor) {
    if (r->seen[tensor->id]) return true;
    r->seen[tensor->id] = true;
    if (tensor->op->flags & STRATA_OP_UPDATE) return false;
    for (int i = 0; i < tensor->n_inputs; i++)
        if (!mark(r, tensor->inputs[i])) return false;
    r->wanted[tensor->id] = true;
    return true;
}

/* Whether the operands can be computed and read back, and are not too large for the reference. */
static bool is_possible(recheck *r) {
    const bool fast = strata_host_fast_find(r->node) != NULL;
    if (strata_check_work(r->node) > (fast ? MOST_FAST_WORK : MOST_WORK)) return false;
    for (int i = 0; i < r->node->n_inputs; i++) {
        const strata_tensor *input = r->node->inputs[i];
        if (place_of(r, input)->arena < 0 && strata_check_bytes(input)) return false;
        if (!mark(r, input)) return false;
    }
    return place_of(r, r->node)->arena >= 0;
}

/* ---- bytes ---- */
static strata_status allocate(recheck *r, strata_error *err) {
    const size_t n = (size_t)r->node->n_inputs + 1, n_places = (size_t)r->step->piece->n_places + 1;
    void ***all[] = {&r->before, &r->want, &r->got, &r->moved};
    bool room = (r->wanted = calloc(n_places, 1)) && (r->seen = calloc(n_places, 1));
    for (size_t k = 0; k < sizeof all / sizeof *all && room; k++) room = (*all[k] = calloc(n, sizeof(**all[k]))) != NULL;
    for (size_t i = 0; i < n && room; i++)
        for (size_t k = 0; k < sizeof all / sizeof *all && room; k++)
            room = ((*all[k])[i] = calloc(1, (size_t)strata_check_bytes(tensor_of(r, (int)i)) + 1)) != NULL;
    return room ? STRATA_OK
                : strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for a node of %d operands", r->node->n_inputs);
}

static void finish(recheck *r) {
    void **all[] = {r->before, r->want, r->got, r->moved};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        for (int i = 0; all[k] && i <= r->node->n_inputs; i++) free(all[k][i]);
        free(all[k]);
    }
    free(r->wanted);
    free(r->seen);
}

/* Copies a tensor from the device, or to it. */
static strata_status copy_tensor(const recheck *r, const strata_tensor *tensor, void *data, bool to_device, strata_error *err) {
    const strata_device_api *api = r->step->device->api;
    const strata_place *place = place_of(r, tensor);
    const int64_t bytes = strata_check_bytes(tensor);
    if (!bytes) return STRATA_OK;
    const strata_arena *arena = &r->step->piece->arenas[place->arena];
    char *host = NULL;
    if (arena->kind == STRATA_ARENA_INPUT) host = api->program_input(r->step->program, r->step->slot);
    if (arena->kind == STRATA_ARENA_OUTPUT) host = (char *)api->program_output(r->step->program, r->step->slot);
    if (!host && to_device) return api->upload(r->step->device, arena->buffer, place->offset, data, bytes, err);
    if (!host) return api->download(r->step->device, arena->buffer, place->offset, data, bytes, err);
    memcpy(to_device ? host + place->offset : data, to_device ? data : host + place->offset, (size_t)bytes);
    return STRATA_OK;
}

static void copy_operands(const recheck *r, void **to) {
    for (int i = 0; i < r->node->n_inputs; i++) memcpy(to[i], r->before[i], (size_t)strata_check_bytes(r->node->inputs[i]));
}

/* ---- comparing ---- */
/* Runs the nodes that compute the operands, reads the operands, runs the node, reads what it wrote, and restores what
 * an update changed. */
static strata_status run(recheck *r, strata_error *err) {
    const strata_step_run *step = r->step;
    const int n = r->node->n_inputs;
    STRATA_TRY(step->run(step->program, step->slot, r->wanted, err));
    for (int i = 0; i < n; i++) STRATA_TRY(copy_tensor(r, r->node->inputs[i], r->before[i], false, err));
    memset(r->wanted, 0, (size_t)step->piece->n_places);
    r->wanted[r->node->id] = true;
    STRATA_TRY(step->run(step->program, step->slot, r->wanted, err));
    for (int i = 0; i <= n; i++)
        if (strata_check_writes(r->node, i)) STRATA_TRY(copy_tensor(r, tensor_of(r, i), r->got[i], false, err));
    for (int i = 0; i < n; i++)
        if (strata_check_writes(r->node, i)) STRATA_TRY(copy_tensor(r, r->node->inputs[i], r->before[i], true, err));
    return STRATA_OK;
}

/* Whether all values are finite. Others cannot be compared. */
static bool is_finite(const recheck *r, void *const *data, int first, int last) {
    for (int i = first; i <= last; i++)
        if (!strata_check_is_finite(tensor_of(r, i), data[i])) return false;
    return true;
}

/* Computes the largest error. 0: the node is correct. */
static strata_status measure_error(recheck *r, double *out_error, strata_error *err) {
    const int n = r->node->n_inputs;
    bool differs = false;
    *out_error = 0;
    if (!is_finite(r, r->before, 0, n - 1)) return STRATA_OK;
    copy_operands(r, r->want);
    STRATA_TRY(strata_check_refer(r->node, r->want, err));
    if (!is_finite(r, r->want, 0, n)) return STRATA_OK;
    for (int i = 0; i <= n; i++)
        differs |= strata_check_writes(r->node, i) && strata_check_difference(tensor_of(r, i), r->got[i], r->want[i]) >
                                                          strata_check_tolerance(tensor_of(r, i)->dtype);
    if (!differs) return STRATA_OK;
    copy_operands(r, r->moved);
    for (int i = 0; i < n; i++) strata_check_move(r->node->inputs[i], r->moved[i], (uint32_t)i);
    STRATA_TRY(strata_check_refer(r->node, r->moved, err));
    for (int i = 0; i <= n; i++) {
        if (!strata_check_writes(r->node, i) || !strata_check_is_off(tensor_of(r, i), r->got[i], r->want[i], r->moved[i]))
            continue;
        const double error = strata_check_difference(tensor_of(r, i), r->got[i], r->want[i]);
        if (error > *out_error) *out_error = error;
    }
    return STRATA_OK;
}

strata_status strata_checks_step(const strata_kernel_limits *limits, const strata_step_run *step, const strata_tensor *node,
                                 const char *kernels, bool *out_done, strata_error *err) {
    recheck r = {.step = step, .node = node};
    double error = 0;
    strata_status status = allocate(&r, err);
    *out_done = !status && is_possible(&r);
    if (*out_done) status = run(&r, err);
    if (*out_done && !status) status = measure_error(&r, &error, err);
    if (error > 0)
        strata_device_warn(
            step->device,
            "%s: kernel %s computes %s wrongly on values of a training step, off by %.3g of the largest value, "
            "though it was right on others before: the device or its memory may be failing, and what was trained "
            "may be wrong (driver %s)",
            step->device->info.id, kernels, node->op->name, error, limits->checks->driver);
    finish(&r);
    return status;
}
