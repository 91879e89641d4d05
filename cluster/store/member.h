/* SPDX-License-Identifier: Apache-2.0
 *
 * A member: one rank's place in a job. Through it the rank reaches the store, tells a failure to all, and learns the *verdict*:
 * the first failure that was told, which every rank then reports in the same words. Two kinds: threads around one board
 * (local.c), and processes connected to the board of rank 0 (remote.c). */
#ifndef STRATA_CLUSTER_STORE_MEMBER_H
#define STRATA_CLUSTER_STORE_MEMBER_H

#include <stdatomic.h>
#include <stdio.h>

#include "cluster/store/board.h"
#include "cluster/wire/stream.h"

enum { STRATA_HOST_BYTES = 64 };

typedef struct strata_member strata_member;
struct strata_member {
    atomic_int references;
    int rank, world;                 /* of the job */
    atomic_uint_fast64_t collective; /* the newest that this rank began, for messages */
    atomic_int_fast64_t step;        /* of the caller's own work, 0: none; for messages too */
    const strata_board *board; /* where `failed` is looked up; a process that isn't rank 0 has a board of its own for that */

    /* One request; GET waits at most `seconds`. Fails: TIMEOUT; the verdict. */
    strata_status (*store)(strata_member *member, const strata_store_request *request, double seconds,
                           strata_store_reply *out_reply, strata_error *err);
    /* Tells a failure and returns the verdict, which may be an earlier one, or this where no other comes in time. */
    strata_status (*report)(strata_member *member, strata_status status, const char *text, strata_error *err);
    /* Hands over an authenticated connection of the rank for the communicator, waiting at most `seconds`; NULL: local. */
    strata_status (*accept_link)(strata_member *member, uint32_t communicator, int rank, double seconds,
                                 strata_stream *out_stream, strata_error *err);
    /* Makes one, to a rank's address. */
    strata_status (*connect_link)(strata_member *member, uint32_t communicator, const char *address, double seconds,
                                  strata_stream *out_stream, strata_error *err);
    void (*destroy)(strata_member *member);
};

static inline strata_member *strata_member_retain(strata_member *member) {
    atomic_fetch_add(&member->references, 1);
    return member;
}
/* " at step 12", or nothing. */
typedef struct strata_step_text {
    char text[32];
} strata_step_text;
static inline strata_step_text strata_member_step(strata_member *member) {
    strata_step_text out = {""};
    const long long step = (long long)atomic_load_explicit(&member->step, memory_order_relaxed);
    if (step) snprintf(out.text, sizeof out.text, " at step %lld", step);
    return out;
}
static inline void strata_member_release(strata_member *member) { /* NULL is fine */
    if (member && atomic_fetch_sub(&member->references, 1) == 1) member->destroy(member);
}
/* Whether there is a verdict: cheap, for loops that wait. */
static inline bool strata_member_failed(const strata_member *member) {
    return strata_board_failed(member->board);
}
/* Fails with the verdict; OK where there is none. */
static inline strata_status strata_member_verdict(const strata_member *member, strata_error *err) {
    return strata_board_verdict(member->board, err);
}

/* Members of one board, out_members[0 .. world). */
STRATA_MUST_USE strata_status strata_member_create_local(int world, strata_member **out_members, strata_error *err);

#endif
