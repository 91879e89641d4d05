/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of a communicator: its ranks, its links and its queue of requests. The public header is strata/cluster.h. */
#ifndef STRATA_CLUSTER_COMMUNICATOR_H
#define STRATA_CLUSTER_COMMUNICATOR_H

#include <pthread.h>

#include "cluster/store/member.h"
#include "cluster/subset.h"
#include "cluster/transport.h"
#include "core/base/memory.h"
#include "strata/cluster.h"

/* Cores of a machine by their numbers: a cpu_set_t. */
typedef struct strata_core_set {
    uint64_t bits[16];
} strata_core_set;

/* What each rank publishes about itself when the communicator is created. */
typedef struct strata_peer {
    int job_rank;
    int32_t pid;
    /* The host's name, for error messages. */
    char host[STRATA_HOST_BYTES];
    /* A name of the machine that is equal for ranks that can share memory. */
    char machine[STRATA_HOST_BYTES];
    /* The cores that the rank may use. */
    strata_core_set cores;
    /* The address at which the rank accepts links; "": none. */
    char address[STRATA_ADDRESS_BYTES];
    /* Its options, which must be those of rank 0: the transport, or "engine mpi"; and the algorithm. */
    char transport[16], algorithm[24];
} strata_peer;

struct strata_communicator {
    int rank, world;
    /* The number of the communicator in the job. The communicator of all ranks has number 0. */
    uint32_t id;
    strata_member *member;
    /* The membership of this rank (store/roster.h): the verdict, and the queues of messages. */
    strata_seat *seat;
    /* [world]. */
    strata_peer *peers;
    /* The ranks are on more than one machine. */
    bool several_hosts;
    const strata_transport *transport;
    /* The transport's own data. */
    void *link;
    /* The largest message of the transport, in bytes. */
    size_t segment_bytes;
    /* The index in strata_algorithms of the algorithm that the options name; -1: it is chosen for each call. */
    int algorithm;
    /* The choices that rank 0 measured; NULL: there are none. */
    struct strata_algorithm_table *table;
    double stall_seconds, connect_seconds;
    /* How many collectives have begun. */
    uint64_t sequence;
    atomic_uint_fast64_t bytes_sent;

    struct {
        /* The prefix of the communicator's keys in the store. "0/3.1" is the communicator of color 1 from split number 3 of the
         * communicator "0". */
        char own[80];
        int splits;
        /* The name of the first communicator of a series of shrinks, and the number of shrinks since. A new communicator
         * inherits both, so that the remaining ranks use the same keys even if they shrink different communicators of the
         * series. */
        char base[80];
        int shrinks;
    } names;
    /* The communicators of strata_communicator_subset. */
    struct strata_subset *subsets;

    /* Arrays that do not grow. */
    strata_memory arrays;
    /* Memory that collectives use while they run. */
    struct {
        /* [2 world + 2] */
        strata_send *sends;
        /* [2 world + 2] */
        strata_receive *receives;
        /* [2 world] (collective/algorithm.h) */
        struct strata_span *spans;
        void *memory;
        size_t bytes;
        /* Values rounded to f16 or bf16, which are sent instead of f32. */
        void *narrow;
        size_t narrow_bytes;
    } scratch;

    /* The queue of requests. One thread, which the first request creates, runs them in order. `lock` guards these fields. */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        pthread_t thread;
        bool has_thread, leaving;
        /* The queue, whose first request runs. */
        strata_request *first, *last;
    } requests;
};

/* A collective that this rank runs. If `in` is NULL, it runs in place. */
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

/* Allocates a communicator without peers and links, and retains the member. job_ranks: [world], for a communicator that has no
 * id yet; NULL: the communicator of the whole job. */
STRATA_MUST_USE strata_status strata_communicator_allocate(int rank, int world, const int *job_ranks, strata_member *member,
                                                           strata_communicator **out_comm, strata_error *err);
/* Sets the options that every communicator has: algorithm and time limits. */
STRATA_MUST_USE strata_status strata_communicator_set_options(strata_communicator *comm,
                                                              const strata_communicator_options *opts, strata_error *err);
/* How many of the communicator's ranks are on this machine. */
int strata_communicator_ranks_here(const strata_communicator *comm);

/* Runs a collective now, on this thread. Arguments are checked before anything is sent. */
STRATA_MUST_USE strata_status strata_operation_run(strata_communicator *comm, const strata_collective *what, strata_error *err);

/* A collective or a message that was started and not waited for yet. */
struct strata_request {
    strata_communicator *comm;
    strata_request *next;
    /* For a message: `receives`, `transfer`, and out_message, which gets sender, tag and size. For a collective: `what`. */
    bool is_message, receives;
    strata_transfer transfer;
    strata_message *out_message;
    strata_collective what;
    bool done;
    strata_status status;
    strata_error error;
};

/* message/message.c: implements strata_request_wait_for for a message. If `seconds` is negative, the limit is stall_seconds,
 * after which the call fails with TIMEOUT. */
strata_status strata_message_wait(strata_request *request, double seconds, bool *out_done, strata_error *err);

/* Reports to all ranks that this one failed, with a message that begins with the call, "all_reduce 12 of 1000 f32 (sum): ".
 * Returns the verdict. `call` may be NULL. */
strata_status strata_communicator_fail(strata_communicator *comm, const strata_call *call, strata_status status,
                                       strata_error *err, const char *format, ...) STRATA_PRINTF(5, 6);
/* Called by a rank that could not connect. Unless there is already a verdict, it sends one to the other ranks, which would
 * otherwise wait for this rank. Returns the verdict. */
strata_status strata_communicator_give_up(strata_communicator *comm, strata_status status, strata_error *err);
/* For transports: checks that a message belongs to the call that this rank makes, and has the `wanted` bytes. Else reports that
 * the two ranks called different collectives, and returns the verdict. */
STRATA_MUST_USE strata_status strata_communicator_check(strata_communicator *comm, const strata_call *mine, int peer,
                                                        const strata_call *theirs, size_t bytes, size_t wanted,
                                                        strata_error *err);
/* Reports that a round made no progress for stall_seconds. A receive without a view has not ended. Returns the verdict. */
strata_status strata_communicator_stalled(strata_communicator *comm, const strata_call *call, const strata_receive *receives,
                                          int n_receives, strata_error *err);

/* "rank 2 (host b, process 17)", with the rank in the job. */
typedef struct strata_peer_string {
    char text[STRATA_HOST_BYTES + 64];
} strata_peer_string;
strata_peer_string strata_peer_text(const strata_communicator *comm, int rank);
typedef struct strata_call_string {
    char text[128];
} strata_call_string;
strata_call_string strata_call_text(const strata_call *call);

/* At least n_bytes of memory, owned by the communicator and valid until the next call of this function. NULL (with err): no
 * memory. */
void *strata_communicator_scratch(strata_communicator *comm, size_t n_bytes, strata_error *err);
/* The same for a second range of memory: the rounded values of a collective that sends f16 or bf16. */
void *strata_communicator_narrow(strata_communicator *comm, size_t n_bytes, strata_error *err);

/* Sets the value of a key that begins with the communicator's name, such as "0/3.1/address/2". */
STRATA_MUST_USE strata_status strata_communicator_set_own(strata_communicator *comm, const char *what, int rank,
                                                          const void *value, size_t n_bytes, strata_error *err);
/* Waits for the value that a rank has set. The value must have n_bytes. Fails: TIMEOUT after connect_seconds; the message
 * names the rank. */
STRATA_MUST_USE strata_status strata_communicator_get_of(strata_communicator *comm, const char *what, int rank, void *out_value,
                                                         size_t n_bytes, strata_error *err);

/* Ends the thread of requests after they have run. */
void strata_requests_finish(strata_communicator *comm);

#endif
