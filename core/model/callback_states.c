/* SPDX-License-Identifier: Apache-2.0
 *
 * The states of callbacks of all workers: collecting them for a checkpoint, and restoring them from one. */
#include <stdlib.h>
#include <string.h>

#include "core/model/checkpoint.h"

void strata_callback_states_finish(strata_callback_states *states) {
    free(states->bytes);
    free(states->all);
    *states = (strata_callback_states){0};
}

static strata_status no_memory(strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory for what callbacks keep");
}

strata_status strata_callback_states_allocate(strata_callback_states *out, int n, int64_t total, strata_error *err) {
    *out = (strata_callback_states){.n = n, .total = total};
    out->bytes = calloc((size_t)n, sizeof *out->bytes);
    /* Rounded up to a multiple of 8, since messages between workers consist of whole words. */
    out->all = calloc((size_t)total / 8 + 1, 8);
    if (out->bytes && out->all) return STRATA_OK;
    strata_callback_states_finish(out);
    return no_memory(err);
}

strata_status strata_callback_states_take(const strata_model *model, bool gather, strata_callback_states *out,
                                          strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    const int64_t own = (int64_t)strata_callbacks_state_bytes(model);
    *out = (strata_callback_states){0};
    if (!gather) {
        STRATA_TRY(strata_callback_states_allocate(out, 1, own, err));
        out->bytes[0] = own;
        strata_callbacks_copy_state(model, out->all, true);
        return STRATA_OK;
    }
    int64_t total = 0;
    int64_t *lengths = calloc((size_t)workers->n, sizeof *lengths);
    size_t *bytes = calloc((size_t)workers->n, sizeof *bytes);
    uint8_t *mine = malloc((size_t)own + 1);
    strata_status status = lengths && bytes && mine ? STRATA_OK : no_memory(err);
    if (!status) status = strata_workers_gather(workers, &own, lengths, sizeof own, err);
    for (int w = 0; w < workers->n && !status; w++) {
        bytes[w] = (size_t)lengths[w];
        total += lengths[w];
    }
    if (!status) status = strata_callback_states_allocate(out, workers->n, total, err);
    if (!status) {
        memcpy(out->bytes, lengths, (size_t)workers->n * sizeof *lengths);
        strata_callbacks_copy_state(model, mine, true);
        if (total) status = workers->all_gather(workers, mine, out->all, bytes, err);
    }
    free(lengths);
    free(bytes);
    free(mine);
    if (status) strata_callback_states_finish(out);
    return status;
}

strata_status strata_callback_states_share(const strata_workers *workers, strata_callback_states *states, strata_error *err) {
    int64_t sizes[2] = {states->n, states->total};
    strata_callback_states chiefs = {0};
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, sizes, 2, err));
    if (!sizes[0]) return STRATA_OK;
    if (workers->rank) {
        STRATA_TRY(strata_callback_states_allocate(&chiefs, (int)sizes[0], sizes[1], err));
        strata_callback_states_finish(states);
        *states = chiefs;
    }
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, states->bytes, sizes[0], err));
    return workers->broadcast(workers, STRATA_DTYPE_I64, states->all, sizes[1] / 8 + 1, err);
}

void strata_callback_states_give(const strata_model *model, const strata_callback_states *states) {
    const strata_workers *workers = &model->strategy->workers;
    const int64_t own = (int64_t)strata_callbacks_state_bytes(model);
    const int n = strata_strategy_has_workers(model->strategy) ? workers->n : 1, rank = n > 1 ? workers->rank : 0;
    int64_t first = 0;
    for (int w = 0; w < rank && states->n == n; w++) first += states->bytes[w];
    if (states->n == n && states->bytes[rank] == own)
        strata_callbacks_copy_state(model, states->all + first, false);
    else if (states->n && states->bytes[0] == own)
        strata_callbacks_copy_state(model, states->all, false);
}
