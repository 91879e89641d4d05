/* SPDX-License-Identifier: Apache-2.0
 *
 * A member is the connection of one rank to its job: with it the rank sends requests to the store, reports failures of
 * communicators, and sends messages. There are two implementations: ranks that are threads of one process and share a board
 * (local.c), and ranks that are processes and connect to the board of rank 0 (remote.c). */
#ifndef STRATA_CLUSTER_STORE_MEMBER_H
#define STRATA_CLUSTER_STORE_MEMBER_H

#include <stdatomic.h>
#include <stdio.h>

#include "cluster/message/matching.h"
#include "cluster/store/board.h"
#include "cluster/wire/stream.h"

enum { STRATA_HOST_BYTES = 64 };

typedef struct strata_member strata_member;

/* Sends one request to the store. GET waits at most `seconds` for its key. Fails: TIMEOUT; the verdict of the seat (may be
 * NULL), if it gets one meanwhile. */
typedef strata_status strata_member_store(strata_member *member, const strata_seat *seat, const strata_store_request *request,
                                          double seconds, strata_store_reply *out_reply, strata_error *err);
/* Reports to all ranks of the seat's communicator that it failed, and returns the verdict. That may be an earlier failure; it
 * is this one if no verdict arrives in time. */
typedef strata_status strata_member_report(strata_member *member, strata_seat *seat, strata_status status, const char *text,
                                           strata_error *err);

struct strata_member {
    atomic_int references;
    /* The rank in the job, and how many ranks the job has. */
    int rank, world;
    /* The number of the last collective that this rank began; error messages show it. */
    atomic_uint_fast64_t collective;
    /* The number of the caller's current step, for error messages; 0: none. */
    atomic_int_fast64_t step;
    /* The state of the job as this process knows it. */
    strata_roster *roster;

    strata_member_store *store;
    strata_member_report *report;
    /* Starts to send a message to another rank with the given address. The first message to a rank connects to it, for at most
     * `seconds`. After OK, the transfer is ended by the loop's thread. Fails: TIMEOUT, PEER_LOST, OUT_OF_MEMORY. */
    strata_status (*send_message)(strata_member *member, strata_transfer *transfer, const char *address, double seconds,
                                  strata_error *err);
    /* Removes a transfer that is not done from the send queue. If some of its bytes were sent already, the rest is sent from a
     * copy. False: there is no memory for the copy. */
    bool (*withdraw_message)(strata_member *member, strata_transfer *transfer);
    /* Called after a receive was started: it may have freed memory of stored messages, so that more can be read. NULL: nothing
     * to do. */
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
/* Creates the members of all ranks as threads of this process, out_members[0 .. world), with one board. */
STRATA_MUST_USE strata_status strata_member_create_local(int world, strata_member **out_members, strata_error *err);

/* For members of processes. Waits at most `seconds` for the authenticated connection that a rank of the job opens to this one
 * for the seat's communicator, and returns it; opens such a connection to a rank's address. */
STRATA_MUST_USE strata_status strata_member_accept_link(strata_member *member, const strata_seat *seat, int job_rank,
                                                        double seconds, strata_stream *out_stream, strata_error *err);
STRATA_MUST_USE strata_status strata_member_connect_link(strata_member *member, uint32_t communicator, const char *address,
                                                         double seconds, strata_stream *out_stream, strata_error *err);

/* Creates the member of a rank that is a process. Rank 0 listens at opts->store, the others connect to it; all listen for
 * links. opts->store and the numbers were checked. *out_address: the address at which this process accepts links; for rank 0
 * the address of the store. */
STRATA_MUST_USE strata_status strata_member_create_remote(const strata_communicator_options *opts, strata_member **out_member,
                                                          char out_address[STRATA_ADDRESS_BYTES], strata_error *err);

/* Sets the name of rank 0 for the error message when it is lost. For a member of strata_member_create_remote that is not rank
 * 0. */
void strata_member_set_rank0_name(strata_member *member, const char *name);

/* A text that is appended to the message "rank 2 did not come": where this process listens, how many connections it refused,
 * and why it refused the last one. */
typedef struct strata_refused_text {
    char text[480];
} strata_refused_text;
strata_refused_text strata_member_refused(strata_member *member);

#endif
