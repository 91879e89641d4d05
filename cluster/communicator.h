/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator inside: who is in it, its links, and what runs on it. The user's side is strata/cluster.h. */
#ifndef STRATA_CLUSTER_COMMUNICATOR_H
#define STRATA_CLUSTER_COMMUNICATOR_H

#include <pthread.h>

#include "cluster/store/member.h"
#include "cluster/transport.h"
#include "strata/cluster.h"

/* What a rank tells the others about itself when they connect. */
typedef struct strata_peer {
    int job_rank;
    int32_t pid;
    /* Its name, for messages. */
    char host[STRATA_HOST_BYTES];
    /* Equal where ranks can share memory. */
    char machine[STRATA_HOST_BYTES];
    /* Where it takes links, "" for none. */
    char address[STRATA_ADDRESS_BYTES];
} strata_peer;

struct strata_communicator {
    int rank, world;
    /* In the job; the world's is 0. */
    uint32_t id;
    /* Begins its keys in the store: "0", "0/3.1" is color 1 of its split 3. */
    char name[80];
    strata_member *member;
    /* Its place in the roster of this process, with the verdict and the messages. */
    strata_seat *seat;
    /* [world]. */
    strata_peer *peers;
    /* Not all of them are of one machine. */
    bool several_hosts;
    const strata_transport *transport;
    /* The transport's own data. */
    void *link;
    /* The bytes of the largest message that the transport takes. */
    size_t segment_bytes;
    /* Forced, or -1. */
    int algorithm;
    /* rank 0's measured choices; NULL: none. */
    struct strata_algorithm_table *table;
    double stall_seconds, connect_seconds;
    /* How many collectives began. */
    uint64_t sequence;
    int splits;
    /* Shrinking counts on from one communicator to the next: survivors meet, whichever of them they shrink. */
    /* The name of the first of them. */
    char base[80];
    int shrinks;
    atomic_uint_fast64_t bytes_sent;
    /* [2 world + 2], for algorithms. */
    strata_send *sends;
    /* [2 world + 2]. */
    strata_receive *receives;
    void *scratch;
    size_t scratch_bytes;
    /* what travels instead of f32. */
    void *narrow;
    size_t narrow_bytes;

    /* Requests: a thread, made at the first one, runs them in order. `lock` guards all of it. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, leaving;
    /* The queue of requests, whose first one runs. */
    strata_request *first, *last;
};

/* A collective that this rank runs. in == NULL: in place. */
typedef struct strata_operation {
    strata_communicator *comm;
    strata_call call;
    const void *in;
    void *out;
    size_t count;
    const size_t *counts;
    strata_dtype dtype;
    strata_reducer reducer;
    int root;
    size_t element_bytes;
} strata_operation;

/* One without peers and links; the member is retained. job_ranks: [world] of a communicator that has no id yet; NULL: it is
 * that of the whole job. */
STRATA_MUST_USE strata_status strata_communicator_allocate(int rank, int world, const int *job_ranks, strata_member *member,
                                                           strata_communicator **out_comm, strata_error *err);
/* Those of links: algorithm, seconds. */
STRATA_MUST_USE strata_status strata_communicator_set_options(strata_communicator *comm,
                                                              const strata_communicator_options *opts, strata_error *err);
/* How many of its ranks share this machine; how many cores this process may use. */
int strata_communicator_ranks_here(const strata_communicator *comm);
int strata_cores(void);

/* Runs it now, on this thread. Arguments are checked before anything is sent. */
STRATA_MUST_USE strata_status strata_operation_run(strata_communicator *comm, const strata_collective *what, strata_error *err);

/* What strata_request_wait and its kin wait for. */
struct strata_request {
    strata_communicator *comm;
    strata_request *next;
    /* A message, and where to say what came; else `what`. */
    bool is_message, receives;
    strata_transfer transfer;
    strata_message *out_message;
    strata_collective what;
    bool done;
    strata_status status;
    strata_error error;
};

/* message/message.c: strata_request_wait_for of a message. seconds below 0: stall_seconds, after which it is TIMEOUT. */
strata_status strata_message_wait(strata_request *request, double seconds, bool *out_done, strata_error *err);

/* Tells all ranks that this one failed and why, "all_reduce 12 of 1000 f32 (sum): " before it; returns the verdict. `call` may
 * be NULL. */
strata_status strata_communicator_fail(strata_communicator *comm, const strata_call *call, strata_status status,
                                       strata_error *err, const char *format, ...) STRATA_PRINTF(5, 6);
/* Of a rank that could not connect: unless there is a verdict the others are told, who would wait for it. Returns the
 * verdict. */
strata_status strata_communicator_give_up(strata_communicator *comm, strata_status status, strata_error *err);
/* The verdict that both sides of a link call different things. */
strata_status strata_communicator_mismatch(strata_communicator *comm, const strata_call *mine, int peer,
                                           const strata_call *theirs, strata_error *err);

/* "rank 2 (host b, process 17)"; ranks of the job. */
typedef struct strata_peer_string {
    char text[STRATA_HOST_BYTES + 64];
} strata_peer_string;
strata_peer_string strata_peer_text(const strata_communicator *comm, int rank);
typedef struct strata_call_string {
    char text[128];
} strata_call_string;
strata_call_string strata_call_text(const strata_call *call);

/* At least so many bytes, kept by the communicator until the next call of this. NULL (with err): no memory. */
void *strata_communicator_scratch(strata_communicator *comm, size_t n_bytes, strata_error *err);
/* Another such range, for what a collective runs on instead of the caller's memory. */
void *strata_communicator_narrow(strata_communicator *comm, size_t n_bytes, strata_error *err);

/* Keys below the communicator's name: "0/3.1/address/2". */
STRATA_MUST_USE strata_status strata_communicator_set_own(strata_communicator *comm, const char *what, int rank,
                                                          const void *value, size_t n_bytes, strata_error *err);
/* Fails, TIMEOUT, naming the rank that did not come, after connect_seconds; the value has to have n_bytes. */
STRATA_MUST_USE strata_status strata_communicator_get_of(strata_communicator *comm, const char *what, int rank, void *out_value,
                                                         size_t n_bytes, strata_error *err);

/* Ends the thread of requests once they have run. */
void strata_requests_finish(strata_communicator *comm);

#endif
