/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas in step with each other (group.h). One thread: devices run by themselves, so all that the host does is submit, wait and fold. */
#include "core/group.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/fold.h"
#include "core/graph.h"
#include "core/op/all_reduce.h"

struct strata_group {
    strata_executable **replicas;
    int n_replicas;
    int n_communications, n_segments; /* of each replica */
    bool *done;                       /* by communication, of the step being submitted */
    const void **operands;            /* by contributing replica */
    void **results;                   /* by replica */
    strata_status failed;             /* of the first failure; the group is of no use after it */
    strata_group_counters counters;
};

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- create ---- */

static strata_status check_same(const strata_group *group, int replica, int index, strata_error *err) {
    const strata_tensor *a = strata_executable_get_communication(group->replicas[0], index, 0).node;
    const strata_tensor *b = strata_executable_get_communication(group->replicas[replica], index, 0).node;
    const strata_all_reduce_attrs *x = a->attrs, *y = b->attrs;
    if (a->op == b->op && a->dtype == b->dtype && strata_shape_equal(a->shape, b->shape) && x->reduction == y->reduction)
        return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "communication %d: replica 0 has %s %s %s, replica %d has %s %s %s", index,
                       strata_tensor_name(a), strata_dtype_name(a->dtype), strata_shape_text(a->shape).text, replica,
                       strata_tensor_name(b), strata_dtype_name(b->dtype), strata_shape_text(b->shape).text);
}

static strata_status check_replicas(const strata_group *group, strata_error *err) {
    for (int r = 1; r < group->n_replicas; r++) {
        const int n = strata_executable_n_communications(group->replicas[r]);
        const int n_segments = strata_executable_n_segments(group->replicas[r]);
        if (n != group->n_communications || n_segments != group->n_segments)
            return strata_fail(err, STRATA_INVALID,
                               "replica 0 has %d communications in %d segments, replica %d has %d in %d; they must be the same",
                               group->n_communications, group->n_segments, r, n, n_segments);
        for (int c = 0; c < n; c++) STRATA_TRY(check_same(group, r, c, err));
    }
    return STRATA_OK;
}

strata_status strata_group_create(strata_executable *const *replicas, int n_replicas, strata_group **out_group,
                                  strata_error *err) {
    const size_t n = (size_t)n_replicas;
    strata_group *group = calloc(1, sizeof *group);
    strata_executable **own = calloc(n + 1, sizeof(*own));
    if (!group || !own || n_replicas < 1) {
        for (int r = 0; r < n_replicas; r++) strata_executable_destroy(replicas[r]);
        free(group);
        free(own);
        if (n_replicas < 1) return strata_fail(err, STRATA_INVALID, "a group of %d replicas; it needs one", n_replicas);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a group of %d replicas", n_replicas);
    }
    memcpy(own, replicas, n * sizeof(*own));
    group->replicas = own;
    group->n_replicas = n_replicas;
    group->n_communications = strata_executable_n_communications(own[0]);
    group->n_segments = strata_executable_n_segments(own[0]);
    group->done = calloc((size_t)group->n_communications + 1, sizeof *group->done);
    group->operands = calloc(n, sizeof(*group->operands));
    group->results = calloc(n, sizeof(*group->results));
    strata_status status =
        group->done && group->operands && group->results
            ? check_replicas(group, err)
            : strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a group of %d replicas", n_replicas);
    if (status)
        strata_group_destroy(group);
    else
        *out_group = group;
    return status;
}

void strata_group_destroy(strata_group *group) {
    if (!group) return;
    for (int r = 0; r < group->n_replicas; r++) strata_executable_destroy(group->replicas[r]);
    free(group->replicas);
    free(group->done);
    free(group->operands);
    free(group->results);
    free(group);
}

int strata_group_n_replicas(const strata_group *group) {
    return group->n_replicas;
}

strata_executable *strata_group_replica(const strata_group *group, int replica) {
    return replica >= 0 && replica < group->n_replicas ? group->replicas[replica] : NULL;
}

strata_group_counters strata_group_get_counters(const strata_group *group) {
    return group->counters;
}

/* ---- a step ---- */

/* Puts the replica before the message, and ends the group. */
static strata_status fail(strata_group *group, int replica, strata_status status, strata_error *err) {
    group->failed = status;
    return strata_fail_in(err, status, "replica %d", replica);
}

static strata_status check_alive(const strata_group *group, strata_error *err) {
    if (!group->failed) return STRATA_OK;
    return strata_fail(err, group->failed, "the group of replicas failed at an earlier step; make it anew");
}

strata_status strata_group_acquire(strata_group *group, int *out_slot, strata_error *err) {
    STRATA_TRY(check_alive(group, err));
    for (int r = 0; r < group->n_replicas; r++) {
        int slot = 0;
        strata_status status = strata_executable_acquire(group->replicas[r], &slot, err);
        if (status) return fail(group, r, status, err);
        if (r > 0 && slot != *out_slot)
            return strata_fail(err, STRATA_INVALID,
                               "replica %d is at slot %d, replica 0 at %d: one was run outside of its group", r, slot,
                               *out_slot);
        *out_slot = slot;
    }
    return STRATA_OK;
}

static strata_status carry_out(strata_group *group, int index, int slot, const bool *contributes, strata_error *err) {
    strata_executable_communication c = {0};
    int n_operands = 0;
    const double began = seconds();
    for (int r = 0; r < group->n_replicas; r++) {
        c = strata_executable_get_communication(group->replicas[r], index, slot);
        strata_status status = strata_executable_wait_segment(group->replicas[r], slot, c.after, err);
        if (status) return fail(group, r, status, err);
        group->results[r] = c.result;
        if (!contributes || contributes[r]) group->operands[n_operands++] = c.operand;
    }
    const double waited = seconds();
    const int64_t elements = strata_shape_elements(c.node->shape);
    const uint64_t bytes = (uint64_t)elements * strata_dtype_bytes(c.node->dtype);
    strata_fold(c.node->dtype, (strata_reduction)((const strata_all_reduce_attrs *)c.node->attrs)->reduction, group->operands,
                n_operands, elements, group->results, group->n_replicas);
    group->done[index] = true;
    group->counters.wait_seconds += waited - began;
    group->counters.fold_seconds += seconds() - waited;
    group->counters.bytes_read += bytes * (uint64_t)n_operands;
    group->counters.bytes_written += bytes * (uint64_t)group->n_replicas;
    return STRATA_OK;
}

strata_status strata_group_submit(strata_group *group, int slot, const bool *contributes, strata_error *err) {
    STRATA_TRY(check_alive(group, err));
    memset(group->done, 0, (size_t)group->n_communications * sizeof *group->done);
    for (int k = 0; k < group->n_segments; k++) {
        for (int c = 0; c < group->n_communications; c++) {
            if (group->done[c] || strata_executable_get_communication(group->replicas[0], c, slot).before > k) continue;
            STRATA_TRY(carry_out(group, c, slot, contributes, err));
        }
        for (int r = 0; r < group->n_replicas; r++) {
            strata_status status = strata_executable_submit_segment(group->replicas[r], slot, k, err);
            if (status) return fail(group, r, status, err);
        }
    }
    return STRATA_OK;
}

strata_status strata_group_wait(strata_group *group, int slot, strata_error *err) {
    for (int r = 0; r < group->n_replicas; r++) {
        strata_status status = strata_executable_wait(group->replicas[r], slot, err);
        if (status) return fail(group, r, status, err);
    }
    return STRATA_OK;
}
