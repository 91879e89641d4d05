/* SPDX-License-Identifier: Apache-2.0
 *
 * A member: one rank's place in a job. Through it the rank reaches the store, tells the ranks of a communicator that it failed,
 * and sends messages. Two kinds: threads around one board (local.c), and processes connected to the board of rank 0
 * (remote.c). */
#ifndef STRATA_CLUSTER_STORE_MEMBER_H
#define STRATA_CLUSTER_STORE_MEMBER_H

#include <stdatomic.h>
#include <stdio.h>

#include "cluster/message/matching.h"
#include "cluster/store/board.h"
#include "cluster/wire/stream.h"

enum { STRATA_HOST_BYTES = 64 };

typedef struct strata_member strata_member;
struct strata_member {
    atomic_int references;
    /* The rank in the job, and how many ranks the job has. */
    int rank, world;
    /* The newest that this rank began, for messages. */
    atomic_uint_fast64_t collective;
    /* Of the caller's own work, 0: none; for messages too. */
    atomic_int_fast64_t step;
    /* What this process knows of the others. */
    strata_roster *roster;

    /* One request; GET waits at most `seconds`, and no longer than the seat (NULL: none) has no verdict. Fails: TIMEOUT; the
     * verdict. */
    strata_status (*store)(strata_member *member, const strata_seat *seat, const strata_store_request *request, double seconds,
                           strata_store_reply *out_reply, strata_error *err);
    /* Tells the seat's communicator that it failed, and returns the verdict, which may be an earlier one, or this where no
     * other comes in time. */
    strata_status (*report)(strata_member *member, strata_seat *seat, strata_status status, const char *text,
                            strata_error *err);
    /* Hands over an authenticated connection of a rank of the job for the seat's communicator, waiting at most `seconds`; NULL:
     * local. */
    strata_status (*accept_link)(strata_member *member, const strata_seat *seat, int job_rank, double seconds,
                                 strata_stream *out_stream, strata_error *err);
    /* Makes one, to a rank's address. */
    strata_status (*connect_link)(strata_member *member, uint32_t communicator, const char *address, double seconds,
                                  strata_stream *out_stream, strata_error *err);
    /* Begins to send a message to another rank, whose address is given. The first one to a rank connects to it, for at most
     * `seconds`. Once it returned OK the transfer ends by itself. Fails: TIMEOUT, PEER_LOST, OUT_OF_MEMORY. */
    strata_status (*send_message)(strata_member *member, strata_transfer *transfer, const char *address, double seconds,
                                  strata_error *err);
    /* Takes a transfer that is not done from its sender's queue; where sending it has begun, the rest is sent from a copy.
     * False: there is no memory for that. */
    bool (*withdraw_message)(strata_member *member, strata_transfer *transfer);
    /* A receive began, which may have taken a message that was kept. NULL: nothing to do. */
    void (*received)(strata_member *member);
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
/* Members of one board, out_members[0 .. world). */
STRATA_MUST_USE strata_status strata_member_create_local(int world, strata_member **out_members, strata_error *err);

#endif
