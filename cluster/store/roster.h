/* SPDX-License-Identifier: Apache-2.0
 *
 * The roster: which ranks of the job are gone and which communicators have failed, as this process knows it, and the *seats*,
 * the places that this process has in communicators.
 *
 * What happens to the job comes as *events*, in the order in which rank 0 saw them, and so in the same order on every process.
 * The first event that ends a communicator is its verdict: all of its ranks fail with the same words, and communicators that
 * the event does not concern go on. */
#ifndef STRATA_CLUSTER_STORE_ROSTER_H
#define STRATA_CLUSTER_STORE_ROSTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "strata/status.h"

typedef enum strata_event_kind {
    /* A communicator failed: its ranks called different things, one gave up, or no progress was made. subject: its id. */
    STRATA_EVENT_FAILED,
    /* A rank died, stopped or cannot be reached. subject: the rank of the job. Ends every communicator that has it. */
    STRATA_EVENT_LOST,
    /* A rank left in order. subject: the rank of the job. Ends no communicator, as others may not need it any more; nobody
     * receives a message from it any more. */
    STRATA_EVENT_LEFT,
    /* Rank 0 is gone, and the store with it. Ends every communicator. */
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

/* A rank's place in a communicator. `lock` of the roster guards all of it but `failed`. */
typedef struct strata_seat {
    struct strata_seat *next;
    struct strata_roster *roster;
    uint32_t communicator;
    int rank, world;
    /* [world] The ranks of the job that are in it; owned. */
    int *job_ranks;
    /* The verdict is there; it is written before and never changes. */
    atomic_bool failed;
    strata_error verdict;
    /* Messages fail too: the verdict is not the loss of a rank alone. */
    bool ended;
    /* Messages (message/matching.h): a transfer ended, or a message came. */
    pthread_cond_t changed;
    struct strata_transfer *waiting;
    struct strata_arrival *arrivals, *last_arrival;
} strata_seat;

typedef struct strata_roster {
    pthread_mutex_t lock;
    /* An event came, or a key of the board. */
    pthread_cond_t changed;
    int world;
    /* [world] Why no message comes from the rank any more; NULL: it is there. */
    char **gone;
    /* [world] Bytes of the rank's messages that are kept until they are received. */
    size_t *kept;
    strata_event *events;
    int n_events, most_events;
    strata_seat *seats;
} strata_roster;

STRATA_MUST_USE strata_status strata_roster_init(strata_roster *roster, int world, strata_error *err);
void strata_roster_finish(strata_roster *roster);

/* Takes an event in. Returns false when it is not the first of its kind and subject, and changes nothing. A rank that left or
 * was lost is not gone yet: strata_roster_rank_gone says so, once all that it had sent is there. Threads: any. */
bool strata_roster_add(strata_roster *roster, strata_event_kind kind, uint32_t subject, strata_status status, const char *text);
/* Copies event i, in the order in which they came; false: there are not so many. Threads: any. */
bool strata_roster_event(strata_roster *roster, int i, strata_event *out_event);
/* No message comes from this rank of the job any more. The first text stays. Threads: any. */
void strata_roster_rank_gone(strata_roster *roster, int job_rank, const char *text);

/* A seat; job_ranks NULL: 0 to world - 1. Events that came before count. */
STRATA_MUST_USE strata_status strata_seat_create(strata_roster *roster, uint32_t communicator, int rank, int world,
                                                 const int *job_ranks, strata_seat **out_seat, strata_error *err);
/* Names the communicator, once. */
void strata_seat_set_communicator(strata_seat *seat, uint32_t communicator);
/* NULL is fine. Messages that nobody received are dropped. */
void strata_seat_destroy(strata_seat *seat);
/* The place of a rank of the job in the communicator, or -1. */
int strata_seat_find(const strata_seat *seat, int job_rank);
/* The seat of that communicator and rank of it (-1: any) in this process; NULL: there is none. The lock is held. */
strata_seat *strata_roster_find_seat(strata_roster *roster, uint32_t communicator, int rank);
/* Whether a seat has no verdict. Threads: any. */
bool strata_roster_goes_on(strata_roster *roster);

/* Whether there is a verdict: cheap, for loops that wait. */
static inline bool strata_seat_failed(const strata_seat *seat) {
    return atomic_load_explicit(&((strata_seat *)seat)->failed, memory_order_acquire);
}
/* Fails with the verdict; OK where there is none. */
static inline strata_status strata_seat_verdict(const strata_seat *seat, strata_error *err) {
    return strata_seat_failed(seat) ? strata_fail(err, seat->verdict.status, "%s", seat->verdict.message) : STRATA_OK;
}

#endif
