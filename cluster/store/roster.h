/* SPDX-License-Identifier: Apache-2.0
 *
 * The roster is the state of the job as this process knows it: which ranks are *gone* (no message can arrive from them any
 * more), which events happened, and this process's *seats*. A seat is the membership of a local rank in one communicator: its
 * number there, the error with which the communicator failed, and the queues of its messages.
 *
 * Failures and departures are *events*. Rank 0 orders them and sends them to every process, so every process handles them in
 * the same order. The first event that makes a communicator fail is the communicator's *verdict*: all of its ranks fail with
 * the same status and message. Communicators that the event does not concern continue. */
#ifndef STRATA_CLUSTER_STORE_ROSTER_H
#define STRATA_CLUSTER_STORE_ROSTER_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/alloc.h"

typedef enum strata_event_kind {
    /* A communicator failed: its ranks called different collectives, one aborted, or there was no progress. subject: its id. */
    STRATA_EVENT_FAILED,
    /* A process died, was stopped or cannot be reached. subject: its rank in the job. Every communicator with this rank fails.
     * */
    STRATA_EVENT_LOST,
    /* A rank left regularly. subject: its rank in the job. No communicator fails, since the others may not need the rank any
     * more; no message can arrive from it any more. */
    STRATA_EVENT_LEFT,
    /* Rank 0 was lost, and with it the store. Every communicator fails. */
    STRATA_EVENT_STORE_LOST,
} strata_event_kind;

typedef struct strata_event {
    strata_event_kind kind;
    uint32_t subject;
    strata_error error;
} strata_event;

/* The id of a communicator that has no id yet. */
#define STRATA_NO_COMMUNICATOR UINT32_MAX

struct strata_transfer;
struct strata_arrival;
struct strata_roster;

/* The membership of a local rank in a communicator. The roster's lock guards every field except `failed`. */
typedef struct strata_seat {
    struct strata_seat *next;
    struct strata_roster *roster;
    uint32_t communicator;
    int rank, world;
    /* True once `verdict` is set. The verdict is written before and never changes after. */
    atomic_bool failed;
    strata_error verdict;
    /* Messages fail too. The loss of a rank makes only the collectives fail; every other verdict ends messages as well. */
    bool ended;
    /* Signalled when a transfer ended or a message arrived. */
    pthread_cond_t changed;
    /* Queued receives, and messages that are arriving or have no receive yet (message/matching.h), both in order. */
    struct strata_transfer *waiting;
    struct strata_arrival *arrivals, *last_arrival;
    /* [world] The rank in the job of each rank of the communicator. */
    int job_ranks[];
} strata_seat;

typedef struct strata_roster {
    pthread_mutex_t lock;
    /* Signalled when an event was added, or a key of the board was set. */
    pthread_cond_t changed;
    int world;
    /* [world] gone: why no message can arrive from the rank any more, an owned text; NULL: messages can arrive. kept: how many
     * bytes of its messages are stored because no receive matched them yet. */
    struct {
        char *gone;
        size_t kept;
    } * ranks;
    strata_event *events;
    int n_events;
    strata_seat *seats;
} strata_roster;

STRATA_MUST_USE strata_status strata_roster_init(strata_roster *roster, int world, strata_error *err);
void strata_roster_finish(strata_roster *roster);

/* Adds an event. Returns false and changes nothing if there was an event of this kind and subject before. A rank that left or
 * was lost is not marked as gone by this: its last messages may still be read, and strata_roster_rank_gone is called after
 * that. Threads: any. */
bool strata_roster_add(strata_roster *roster, strata_event_kind kind, uint32_t subject, strata_status status, const char *text);
/* Copies event i; events are numbered from 0 in the order in which they were added. False: there are fewer. Threads: any. */
bool strata_roster_event(strata_roster *roster, int i, strata_event *out_event);
/* Records that no message can arrive from this rank of the job any more, and why; a reason that was recorded before stays.
 * Threads: any. */
void strata_roster_rank_gone(strata_roster *roster, int job_rank, const char *text);

/* Creates a seat; job_ranks NULL: 0 to world - 1. Events that were added before are applied to it. */
STRATA_MUST_USE strata_status strata_seat_create(strata_roster *roster, uint32_t communicator, int rank, int world,
                                                 const int *job_ranks, strata_seat **out_seat, strata_error *err);
/* Sets the id of a communicator that had none; called once. */
void strata_seat_set_communicator(strata_seat *seat, uint32_t communicator);
/* NULL is fine. Messages that were not received are discarded. */
void strata_seat_destroy(strata_seat *seat);
/* The rank in the communicator of a rank of the job, or -1. */
int strata_seat_find(const strata_seat *seat, int job_rank);
/* The seat of this process in that communicator, as that rank (-1: any); NULL: there is none. The lock must be held. */
strata_seat *strata_roster_find_seat(strata_roster *roster, uint32_t communicator, int rank);
/* Whether any seat has no verdict, that is whether this process still uses a communicator. Threads: any. */
bool strata_roster_has_active_seat(strata_roster *roster);

/* Whether there is a verdict. Cheap, so that waiting loops can call it. */
static inline bool strata_seat_failed(const strata_seat *seat) {
    return atomic_load_explicit(&((strata_seat *)seat)->failed, memory_order_acquire);
}
/* Returns the verdict as an error; OK if there is none. */
static inline strata_status strata_seat_verdict(const strata_seat *seat, strata_error *err) {
    return strata_seat_failed(seat) ? strata_fail(err, seat->verdict.status, "%s", seat->verdict.message) : STRATA_OK;
}

#endif
