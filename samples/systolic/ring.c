/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives between cores. The cores that take part meet: each of them brings the addresses of its operand and its result.
 * When all have arrived, every core folds one part of the elements, over all members in the order of their numbers, and writes
 * this part to the result of every member. So all results have the same bits. When all cores have finished, they leave.
 *
 * A meeting is found by kind, dtype, number of elements and members. Every core runs its collectives in the order of its
 * programs, so the oldest meeting that matches and at which this core has not arrived is the right one. This requires that
 * only one user's programs run on a set of cores at a time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "systolic.h"

typedef struct meeting {
    struct meeting *next;
    contribution what;
    const void *in[MOST_CORES];
    void *out[MOST_CORES];
    uint64_t arrived;
    int n_members, n_done, n_inside;
    /* A core has waited for too long, or a member was lost. All members leave. */
    bool failed;
} meeting;

static bool fits(const meeting *m, const contribution *c, int core) {
    return !m->failed && m->what.kind == c->kind && m->what.dtype == c->dtype && m->what.members == c->members &&
           m->what.n == c->n && m->what.inner == c->inner && m->what.outer == c->outer && !(m->arrived >> core & 1);
}

/* The position of the core among the members. */
static int place_of(uint64_t members, int core) {
    int place = 0;
    for (int i = 0; i < core; i++) place += (int)(members >> i & 1);
    return place;
}

/* ---- folds ---- */

static void fold_floats(const meeting *m, int64_t first, int64_t end, int64_t target_first, float *const *targets,
                        int n_targets) {
    const bool mean = m->what.kind == MEAN || m->what.kind == SCATTER_MEAN;
    for (int64_t i = first; i < end; i++) {
        float sum = ((const float *)m->in[0])[i];
        for (int k = 1; k < m->n_members; k++) sum += ((const float *)m->in[k])[i];
        if (mean) sum /= (float)m->n_members;
        for (int k = 0; k < n_targets; k++) targets[k][target_first + i - first] = sum;
    }
}

static int64_t whole_at(strata_plugin_dtype dtype, const void *data, int64_t i) {
    return dtype == STRATA_PLUGIN_I32 ? ((const int32_t *)data)[i] : ((const int64_t *)data)[i];
}

static void fold_wholes(const meeting *m, int64_t first, int64_t end, int64_t target_first, void *const *targets,
                        int n_targets) {
    const strata_plugin_dtype dtype = m->what.dtype;
    for (int64_t i = first; i < end; i++) {
        uint64_t sum = 0;
        for (int k = 0; k < m->n_members; k++) sum += (uint64_t)whole_at(dtype, m->in[k], i);
        for (int k = 0; k < n_targets; k++) {
            if (dtype == STRATA_PLUGIN_I32)
                ((int32_t *)targets[k])[target_first + i - first] = (int32_t)(uint32_t)sum;
            else
                ((int64_t *)targets[k])[target_first + i - first] = (int64_t)sum;
        }
    }
}

static void fold(const meeting *m, int64_t first, int64_t end, int64_t target_first, void *const *targets, int n_targets) {
    if (m->what.dtype == STRATA_PLUGIN_F32)
        fold_floats(m, first, end, target_first, (float *const *)targets, n_targets);
    else
        fold_wholes(m, first, end, target_first, targets, n_targets);
}

/* Computes this core's part: a part of the elements for all members or, for gather and scatter, its own result. */
static void work_at(const meeting *m, int place) {
    const contribution *c = &m->what;
    if (c->kind == SUM || c->kind == MEAN) {
        const int64_t first = c->n * place / m->n_members, end = c->n * (place + 1) / m->n_members;
        fold(m, first, end, first, m->out, m->n_members);
        return;
    }
    if (c->kind == GATHER) {
        const int64_t bytes = dtype_bytes(c->dtype);
        int64_t whole = 0, position = 0;
        for (int k = 0; k < m->n_members; k++) whole += c->lengths[k];
        for (int k = 0; k < m->n_members; k++) {
            const int64_t run = c->lengths[k] * c->inner * bytes;
            for (int64_t o = 0; o < c->outer && run; o++)
                memcpy((char *)m->out[place] + (o * whole + position) * c->inner * bytes, (const char *)m->in[k] + o * run,
                       (size_t)run);
            position += c->lengths[k];
        }
        return;
    }
    int64_t first = 0;
    for (int k = 0; k < place; k++) first += c->lengths[k] * c->inner;
    fold(m, first, first + c->lengths[place] * c->inner, 0, &m->out[place], 1);
}

/* ---- meeting ---- */

static struct timespec deadline_of(double seconds) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double end = (double)now.tv_nsec * 1e-9 + seconds;
    now.tv_sec += (time_t)end;
    now.tv_nsec = (long)((end - (double)(time_t)end) * 1e9);
    return now;
}

static void leave(board *board, meeting *m) {
    if (--m->n_inside) return;
    meeting **at = &board->meetings;
    while (*at && *at != m) at = &(*at)->next;
    if (*at) *at = m->next;
    free(m);
}

/* Waits until all members have arrived or, with `work`, have finished their part. Returns false if this took too long, if a
 * member that has not arrived is lost, or if the meeting has failed. */
static bool await(board *board, meeting *m, const struct timespec *deadline, bool work) {
    while (!m->failed && (work ? m->n_done < m->n_members : m->arrived != m->what.members)) {
        if (board->lost & m->what.members & ~m->arrived)
            m->failed = true;
        else if (pthread_cond_timedwait(&board->changed, &board->lock, deadline) == ETIMEDOUT)
            m->failed = true;
    }
    if (m->failed) pthread_cond_broadcast(&board->changed);
    return !m->failed;
}

static strata_plugin_status failure(const meeting *m, const board *board, int core, strata_plugin_error *error) {
    const uint64_t missing = m->what.members & ~m->arrived;
    for (int i = 0; i < MOST_CORES; i++)
        if ((missing & board->lost) >> i & 1)
            return fail(error, STRATA_PLUGIN_DEVICE_LOST,
                        "core %d was lost, which core %d waited for in a collective of %lld elements", i, core,
                        (long long)m->what.n);
    for (int i = 0; i < MOST_CORES; i++)
        if (missing >> i & 1)
            return fail(
                error, STRATA_PLUGIN_DEVICE_LOST,
                "core %d waited %g s in a collective of %lld elements for core %d, which did not come: submit the programs "
                "of all members before one is waited for",
                core, board->patience, (long long)m->what.n, i);
    return fail(error, STRATA_PLUGIN_DEVICE_LOST, "core %d was left in a collective of %lld elements", core,
                (long long)m->what.n);
}

void ring_set_lost(board *board, int core, bool lost) {
    pthread_mutex_lock(&board->lock);
    board->lost = (board->lost & ~(UINT64_C(1) << core)) | (uint64_t)lost << core;
    if (!lost) board->reached[core] = 0;
    pthread_cond_broadcast(&board->changed);
    pthread_mutex_unlock(&board->lock);
}

int64_t ring_reached(board *board, int core) {
    pthread_mutex_lock(&board->lock);
    const int64_t n = board->reached[core];
    pthread_mutex_unlock(&board->lock);
    return n;
}

strata_plugin_status ring_meet(struct strata_plugin_device *device, const contribution *mine, strata_plugin_error *error) {
    board *board = core_board(device);
    const int core = core_index(device);
    const struct timespec deadline = deadline_of(board->patience);
    if (!(mine->members >> core & 1))
        return fail(error, STRATA_PLUGIN_INVALID, "core %d runs a collective that it is no member of", core);
    pthread_mutex_lock(&board->lock);
    board->reached[core]++;
    meeting *m = NULL;
    meeting **last = &board->meetings;
    for (; *last; last = &(*last)->next)
        if (!m && fits(*last, mine, core)) m = *last;
    if (!m) {
        m = calloc(1, sizeof *m);
        if (!m) {
            pthread_mutex_unlock(&board->lock);
            return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no host memory for a collective");
        }
        m->what = *mine;
        for (int i = 0; i < MOST_CORES; i++) m->n_members += (int)(mine->members >> i & 1);
        *last = m;
    }
    const int place = place_of(mine->members, core);
    m->in[place] = mine->in;
    m->out[place] = mine->out;
    m->arrived |= UINT64_C(1) << core;
    m->n_inside++;
    if (m->arrived == mine->members) pthread_cond_broadcast(&board->changed);
    strata_plugin_status status = STRATA_PLUGIN_OK;
    if (await(board, m, &deadline, false)) {
        pthread_mutex_unlock(&board->lock);
        work_at(m, place);
        pthread_mutex_lock(&board->lock);
        if (++m->n_done == m->n_members) pthread_cond_broadcast(&board->changed);
        await(board, m, &(struct timespec){.tv_sec = deadline.tv_sec + 3600, .tv_nsec = deadline.tv_nsec}, true);
    }
    if (m->failed) status = failure(m, board, core, error);
    leave(board, m);
    pthread_mutex_unlock(&board->lock);
    return status;
}
