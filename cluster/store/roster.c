/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/store/roster.h"

#include "cluster/message/matching.h"
#include "core/base/alloc.h"
#include "core/base/locked.h"

strata_status strata_roster_init(strata_roster *roster, int world, strata_error *err) {
    *roster = (strata_roster){.world = world, .ranks = calloc((size_t)world, sizeof *roster->ranks)};
    if (!roster->ranks) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a job of %d ranks", world);
    pthread_mutex_init(&roster->lock, NULL);
    strata_clock_cond_init(&roster->changed);
    return STRATA_OK;
}

void strata_roster_finish(strata_roster *roster) {
    if (!roster->ranks) return;
    for (int r = 0; r < roster->world; r++) free(roster->ranks[r].gone);
    free(roster->ranks);
    free(roster->events);
    pthread_cond_destroy(&roster->changed);
    pthread_mutex_destroy(&roster->lock);
}

/* ---- events ---- */

static bool concerns(const strata_seat *seat, const strata_event *event) {
    switch (event->kind) {
        case STRATA_EVENT_FAILED:
            return seat->communicator == event->subject;
        case STRATA_EVENT_LOST:
            return strata_seat_find(seat, (int)event->subject) >= 0;
        case STRATA_EVENT_LEFT:
            return false;
        case STRATA_EVENT_STORE_LOST:
            return true;
    }
    return false;
}

static void apply(strata_seat *seat, const strata_event *event) {
    if (!concerns(seat, event)) return;
    if (!seat->failed) {
        seat->verdict = event->error;
        atomic_store_explicit(&seat->failed, true, memory_order_release);
    }
    /* A collective that failed because a link closed means that a rank was lost too; rank 0 may detect the loss only later. */
    const bool rank_lost =
        event->kind == STRATA_EVENT_LOST || (event->kind == STRATA_EVENT_FAILED && event->error.status == STRATA_PEER_LOST);
    if (!rank_lost && !seat->ended) {
        seat->ended = true;
        strata_seat_end_messages(seat, &event->error);
    }
}

static bool is_known(const strata_roster *roster, strata_event_kind kind, uint32_t subject) {
    for (int i = 0; i < roster->n_events; i++)
        if (roster->events[i].kind == kind && roster->events[i].subject == subject) return true;
    return false;
}

bool strata_roster_add(strata_roster *roster, strata_event_kind kind, uint32_t subject, strata_status status,
                       const char *text) {
    strata_event event = {.kind = kind, .subject = subject};
    status = strata_fail(&event.error, status, "%s", text);
    STRATA_LOCKED(&roster->lock);
    if (is_known(roster, kind, subject)) return false;
    /* without memory the event is applied to existing seats, but not to seats that are created later */
    strata_event *stored = strata_grow(&roster->events, roster->n_events, sizeof *stored);
    if (stored) roster->events[roster->n_events++] = event;
    for (strata_seat *seat = roster->seats; seat; seat = seat->next) apply(seat, &event);
    pthread_cond_broadcast(&roster->changed);
    return status != STRATA_OK;
}

bool strata_roster_event(strata_roster *roster, int i, strata_event *out_event) {
    STRATA_LOCKED(&roster->lock);
    if (i < roster->n_events) *out_event = roster->events[i];
    return i < roster->n_events;
}

void strata_roster_rank_gone(strata_roster *roster, int job_rank, const char *text) {
    STRATA_LOCKED(&roster->lock);
    char **gone = &roster->ranks[job_rank].gone;
    if (*gone) return;
    *gone = strdup(text);
    for (strata_seat *seat = roster->seats; seat && *gone; seat = seat->next) {
        const int rank = strata_seat_find(seat, job_rank);
        if (rank >= 0) strata_seat_rank_gone(seat, rank);
    }
    pthread_cond_broadcast(&roster->changed);
}

bool strata_roster_has_active_seat(strata_roster *roster) {
    STRATA_LOCKED(&roster->lock);
    for (const strata_seat *seat = roster->seats; seat; seat = seat->next)
        if (!seat->failed) return true;
    return false;
}

/* ---- seats ---- */

static void apply_all(strata_seat *seat) {
    for (int i = 0; i < seat->roster->n_events; i++) apply(seat, &seat->roster->events[i]);
}

strata_status strata_seat_create(strata_roster *roster, uint32_t communicator, int rank, int world, const int *job_ranks,
                                 strata_seat **out_seat, strata_error *err) {
    strata_seat *seat = *out_seat = calloc(1, sizeof *seat + (size_t)world * sizeof *seat->job_ranks);
    if (!seat) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a communicator of %d ranks", world);
    for (int r = 0; r < world; r++) seat->job_ranks[r] = job_ranks ? job_ranks[r] : r;
    seat->roster = roster;
    seat->communicator = communicator;
    seat->rank = rank;
    seat->world = world;
    strata_clock_cond_init(&seat->changed);
    STRATA_LOCKED(&roster->lock);
    seat->next = roster->seats;
    roster->seats = seat;
    apply_all(seat);
    return STRATA_OK;
}

void strata_seat_set_communicator(strata_seat *seat, uint32_t communicator) {
    STRATA_LOCKED(&seat->roster->lock);
    seat->communicator = communicator;
    apply_all(seat);
}

void strata_seat_destroy(strata_seat *seat) {
    if (!seat) return;
    pthread_mutex_lock(&seat->roster->lock);
    strata_seat **at = &seat->roster->seats;
    while (*at != seat) at = &(*at)->next;
    *at = seat->next;
    strata_seat_drop_messages(seat);
    pthread_mutex_unlock(&seat->roster->lock);
    pthread_cond_destroy(&seat->changed);
    free(seat);
}

int strata_seat_find(const strata_seat *seat, int job_rank) {
    for (int r = 0; r < seat->world; r++)
        if (seat->job_ranks[r] == job_rank) return r;
    return -1;
}

strata_seat *strata_roster_find_seat(strata_roster *roster, uint32_t communicator, int rank) {
    for (strata_seat *seat = roster->seats; seat; seat = seat->next)
        if (seat->communicator == communicator && (rank < 0 || seat->rank == rank)) return seat;
    return NULL;
}
