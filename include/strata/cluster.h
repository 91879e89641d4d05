/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives between processes: a *communicator* joins `world` processes, its *ranks*, that call the same collectives in the
 * same order.
 *
 *     strata_communicator_options opts = {.rank = 0, .world = 2, .store = "127.0.0.1:2222"};
 *     strata_communicator_create(&opts, &comm, &err);                             every rank, at about the same time
 *     strata_communicator_all_reduce(comm, gradients, n, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err);
 *     strata_communicator_destroy(comm);
 *
 * Bits. Every reduction folds in rank order, 0 to world - 1; f16 and bf16 in f32, rounded once at the end. So a result depends
 * on neither transport, algorithm, segment nor arrival, and every rank has the same bits.
 *
 * Errors. No call waits for ever. A rank that calls another collective than the others (kind, dtype, count, root, order) makes
 * it fail on all, INVALID, with both sides in the message. A rank that dies, stops or cannot be reached makes every rank fail
 * with PEER_LOST and the same message, which names it, its host, the collective and the step (strata_communicator_set_step).
 * After any such failure the communicator's collectives all fail with the same message, and the contents of outputs are
 * undefined. Communicators that do not have the lost rank, or were split from one that failed otherwise, go on; the survivors
 * of one that has it make a new one of themselves (strata_communicator_shrink). When rank 0 of the job is lost, which keeps the
 * store, all communicators fail, and each rank names its own step.
 *
 * Threads. One call at a time for a communicator, but for messages; different communicators are independent of each other. */
#ifndef STRATA_CLUSTER_H
#define STRATA_CLUSTER_H

#include "strata/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Doubles, which the cluster moves and folds though no tensor has them. */
#define STRATA_DTYPE_F64 ((strata_dtype)64)

/* MEAN is the sum divided by the number of ranks: floats only. MAX and MIN of a NaN are NaN. Sums and products of integers
 * wrap. */
typedef enum strata_reducer {
    STRATA_REDUCER_SUM = 0,
    STRATA_REDUCER_MEAN,
    STRATA_REDUCER_MAX,
    STRATA_REDUCER_MIN,
    STRATA_REDUCER_PROD,
    STRATA_REDUCER_COUNT
} strata_reducer;

typedef struct strata_communicator strata_communicator;

/* Zeros are the defaults. Texts are borrowed while the communicator is created. */
typedef struct strata_communicator_options {
    /* 0 to world - 1, each once. */
    int rank;
    /* How many ranks there are; 0: 1. */
    int world;
    /* "host:port" or "[v6]:port" where rank 0 listens and the others find it; may be NULL when world is 1. */
    const char *store;
    /* One of strata_transport_names. NULL: "auto", which is shm where all ranks are on one host with room in /dev/shm, else
     * tcp. */
    const char *transport;
    /* NULL: "builtin". "mpi": whole collectives are carried out by Open MPI, MPICH or a library of its binary interface,
     * found at run time, in a job that its mpirun started; the store stays Strata's. Sums have the same bits, since MPI only
     * moves data. A rank that dies ends the job, by mpirun. */
    const char *engine;
    /* One of strata_algorithm_names, for reductions; the same on all ranks. NULL: chosen by size, ranks and transport. */
    const char *algorithm;
    /* Of rank 0, for all: a file of measured choices of algorithms, as `strata bench allreduce --tune` writes it. NULL: the
     * user's, allreduce.table in $XDG_CACHE_HOME/strata or ~/.cache/strata. "": none. No choice changes bits. */
    const char *table;
    /* The name ("eth0") or address of the interface to listen on, which the others connect to; NULL: the one that reaches the
     * store. */
    const char *interface;
    /* What the ranks prove to each other before anything else is read (HMAC-SHA256 over fresh nonces). 0 bytes: none. */
    const void *secret;
    size_t secret_bytes;
    /* TLS 1.3 between the ranks of all hosts, each of which proves itself to the other: PEM files of this rank's certificate
     * (with those between it and an authority), of its key (NULL: in tls_cert too), and of the authorities whose
     * certificates are believed. NULL: no TLS. A certificate must have the host name or address that the others connect to,
     * or tls_name where that is given: then every rank's must. */
    const char *tls_cert, *tls_key, *tls_ca, *tls_name;
    /* Listen beyond this host without a secret; otherwise that is INVALID. */
    bool insecure;
    /* How long to wait until all ranks have come; 0: 60. */
    double connect_seconds;
    /* Between signs of life; a rank that gives none for 5 of them is lost. 0: 1. */
    double heartbeat_seconds;
    /* How long a collective may make no progress while every rank is alive; 0: 300. */
    double stall_seconds;
} strata_communicator_options;

/* NULL-terminated: "auto", "shm", "tcp". */
extern STRATA_API const char *const strata_transport_names[];
/* NULL-terminated: "one_shot", "two_shot", "ring", "halving_doubling". */
extern STRATA_API const char *const strata_algorithm_names[];

/* Returns when all ranks have come. opts is borrowed during the call.
 * Fails: INVALID for wrong options, a rank that came twice, listening beyond this host without a secret; TIMEOUT, naming the
 * ranks that are absent and why connections were refused, when connect_seconds have passed; UNAVAILABLE when an address cannot
 * be listened on, a file of TLS cannot be used, the other side proves another secret, or one of two does not accept the other's
 * certificate. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_create(const strata_communicator_options *opts,
                                                                    strata_communicator **out_comm, strata_error *err);
/* All `world` ranks for threads of this process, out_comms[rank], without sockets. Of opts (NULL: defaults) only `algorithm`
 * and `stall_seconds` are used. Each is destroyed by itself. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_create_local(int world, const strata_communicator_options *opts,
                                                                          strata_communicator **out_comms, strata_error *err);
/* A communicator for each `color`, of the ranks that gave it, ordered by `key` and then by rank; every rank of `comm` calls it.
 * A negative
 * color joins none: *out_comm is NULL. May outlive `comm`. Cost: an all_gather of 8 bytes, and connecting anew. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_split(strata_communicator *comm, int color, int key,
                                                                   strata_communicator **out_comm, strata_error *err);
/* A communicator of those ranks of `comm` that are there, in their order; each of them calls it, when a rank was lost or left.
 * They agree through the store. `comm` is left to be destroyed; may be called of the new communicator when another is lost.
 * Fails: TIMEOUT, naming a rank that is not lost and does not come within connect_seconds; PEER_LOST when another rank is lost
 * meanwhile: call it again; UNSUPPORTED with an engine. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_shrink(strata_communicator *comm, strata_communicator **out_comm,
                                                                    strata_error *err);
/* Waits for requests that run. Leaving is no failure for ranks that need nothing more of this one; rank 0, which holds the
 * store, waits until the others have left too, at most 5 heartbeats after it last heard of them. NULL is fine. */
STRATA_API void strata_communicator_destroy(strata_communicator *comm);

STRATA_API int strata_communicator_rank(const strata_communicator *comm);
STRATA_API int strata_communicator_world(const strata_communicator *comm);
/* "inproc", "shm", "tcp" or, of the engine, "mpi". Static memory. */
STRATA_API const char *strata_communicator_transport(const strata_communicator *comm);
/* What an all_reduce of so many bytes would use: one of strata_algorithm_names. */
STRATA_API const char *strata_communicator_algorithm(const strata_communicator *comm, size_t n_bytes);
/* Payload bytes that this rank has given to its transport since create. */
STRATA_API uint64_t strata_communicator_bytes_sent(const strata_communicator *comm);
/* The step of the caller's own work that goes on, from 1: what messages about failures name beside the collective. 0, as at
 * first: none. Threads: any. */
STRATA_API void strata_communicator_set_step(strata_communicator *comm, int64_t step);
/* Makes every rank's calls fail with INTERRUPTED and this text: for a rank that cannot go on. Threads: any. */
STRATA_API void strata_communicator_abort(strata_communicator *comm, const char *text);

/* ---- measured choices ---- */

/* An all_reduce over so many ranks and this transport takes the algorithm up to so many bytes. */
typedef struct strata_algorithm_choice {
    const char *transport; /* "shm" or "tcp" */
    int ranks;
    uint64_t most_bytes; /* UINT64_MAX: any more */
    const char *algorithm;
} strata_algorithm_choice;
/* Writes the choices, all of one transport and number of ranks, by ascending bytes, to the table at `path` (NULL: the user's)
 * in place of its rows for these. Read when a communicator is made. Fails: INVALID for a wrong row; UNAVAILABLE where it cannot
 * be written. */
STRATA_API STRATA_MUST_USE strata_status strata_algorithm_table_save(const char *path, const strata_algorithm_choice *choices,
                                                                     int n, strata_error *err);

/* ---- collectives ----
 * count is in elements. Data is borrowed until the call returns. Every dtype may be moved; bool cannot be reduced.
 * Cost, in bytes that a rank sends of S: two steps and 2 S (P-1)/P for a large all_reduce; cluster/README.md has the table. */

/* In place, on every rank. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_all_reduce(strata_communicator *comm, void *data, size_t count,
                                                                        strata_dtype dtype, strata_reducer reducer,
                                                                        strata_error *err);
/* In place on the root; the others' data is left as it was. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_reduce(strata_communicator *comm, void *data, size_t count,
                                                                    strata_dtype dtype, strata_reducer reducer, int root,
                                                                    strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_communicator_broadcast(strata_communicator *comm, void *data, size_t count,
                                                                       strata_dtype dtype, int root, strata_error *err);
/* Rank r gives counts[r] elements (NULL: count each); out holds them all, in rank order. in == NULL: they lie in their place in
 * out. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_all_gather(strata_communicator *comm, const void *in, void *out,
                                                                        size_t count, const size_t *counts, strata_dtype dtype,
                                                                        strata_error *err);
/* in holds the elements of all ranks in rank order, counts[r] (NULL: count) for rank r; out gets this rank's, reduced. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_reduce_scatter(strata_communicator *comm, const void *in,
                                                                            void *out, size_t count, const size_t *counts,
                                                                            strata_dtype dtype, strata_reducer reducer,
                                                                            strata_error *err);
/* in and out hold `count` elements for, and from, each rank. in and out must not overlap. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_all_to_all(strata_communicator *comm, const void *in, void *out,
                                                                        size_t count, strata_dtype dtype, strata_error *err);
/* counts as for all_gather; only the root's `out` (gather) or `in` (scatter) is looked at, and must not overlap the other. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_gather(strata_communicator *comm, const void *in, void *out,
                                                                    size_t count, const size_t *counts, strata_dtype dtype,
                                                                    int root, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_communicator_scatter(strata_communicator *comm, const void *in, void *out,
                                                                     size_t count, const size_t *counts, strata_dtype dtype,
                                                                     int root, strata_error *err);
/* Returns when every rank has come to it. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_barrier(strata_communicator *comm, strata_error *err);
/* From one rank to another, which calls recv with the same count and dtype. A send may return before. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_send(strata_communicator *comm, const void *data, size_t count,
                                                                  strata_dtype dtype, int peer, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_communicator_recv(strata_communicator *comm, void *data, size_t count,
                                                                  strata_dtype dtype, int peer, strata_error *err);

/* ---- requests: the same, on a thread of the communicator, in the order of their start ---- */
typedef enum strata_collective_kind {
    STRATA_ALL_REDUCE = 0,
    STRATA_REDUCE,
    STRATA_BROADCAST,
    STRATA_ALL_GATHER,
    STRATA_REDUCE_SCATTER,
    STRATA_ALL_TO_ALL,
    STRATA_GATHER,
    STRATA_SCATTER,
    STRATA_BARRIER,
    STRATA_SEND,
    STRATA_RECV,
    STRATA_COLLECTIVE_COUNT
} strata_collective_kind;

/* The arguments of the call of that name; `in` NULL where it works in place. */
typedef struct strata_collective {
    strata_collective_kind kind;
    const void *in;
    void *out;
    size_t count;
    const size_t *counts; /* [world], or NULL */
    strata_dtype dtype;
    strata_reducer reducer;
    int root; /* or peer */
    /* all_reduce of f32: travels rounded to F16 or BF16, at half the bytes; every rank's own part and the sum are rounded once,
     * to nearest, and between is f32, so all ranks have the same bits. Beyond 65504 f16 is infinite. F32 (0): as it is. A job
     * of one rank rounds nothing. */
    strata_dtype wire;
} strata_collective;

typedef struct strata_request strata_request;

/* Runs it here and now: what the calls above do. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_run(strata_communicator *comm, const strata_collective *what,
                                                                 strata_error *err);
/* Returns at once; `what` is copied, the memory that it points to (counts too) is borrowed until the request is done. Each
 * request is waited for, once. Blocking calls made meanwhile take their turn behind it. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_start(strata_communicator *comm, const strata_collective *what,
                                                                   strata_request **out_request, strata_error *err);
/* Frees the request, whatever the status. NULL is fine. */
STRATA_API STRATA_MUST_USE strata_status strata_request_wait(strata_request *request, strata_error *err);
/* As wait, for at most `seconds`; 0 or less only asks. Where the request is not done by then, *out_done is false, the status is
 * OK, and the request goes on: nothing is cancelled, its memory stays borrowed, and it must still be waited for. Where it is
 * done, *out_done is true and the request is freed, whatever the status. */
STRATA_API STRATA_MUST_USE strata_status strata_request_wait_for(strata_request *request, double seconds, bool *out_done,
                                                                 strata_error *err);
/* Whether wait would return at once. */
STRATA_API bool strata_request_test(strata_request *request);

/* ---- messages: from one rank to another, beside the collectives ----
 * A message is bytes with a tag, 0 or more, which the receiver can choose by. Messages from one rank to another keep their
 * order among those that a receive fits. They need no partner: a message is kept until it is received. Only the two ranks of a
 * message take part in it, so it comes through when a third one was lost, though the communicator's collectives fail then.
 *
 *     strata_message_send(comm, data, n, peer, tag, 10, &err);
 *     strata_message_receive(comm, room, sizeof room, STRATA_ANY, tag, 10, &message, &err);      message.peer sent it
 *
 * Fails: TIMEOUT at the deadline; PEER_LOST when the peer was lost or left, of a receive from any rank when all others did;
 * INVALID for arguments, and where a message is longer than the room of its receive (it stays, and can be received with more);
 * the verdict of a communicator that failed otherwise (a rank that gave up, calls that differ, the loss of rank 0).
 * Threads: any number of them at once, also beside a collective. */
enum { STRATA_ANY = -1 };
/* Tags from here on are those of values that graphs send (the op send); STRATA_ANY leaves them out. */
#define STRATA_RESERVED_TAGS ((int64_t)1 << 62)

typedef struct strata_message {
    int peer; /* who sent it */
    int64_t tag;
    size_t bytes;
} strata_message;

/* Returns when `data` may change again, which is no sign that the message was received: at the latest `seconds` after the call,
 * with TIMEOUT; the message may then still come. To the own rank too. */
STRATA_API STRATA_MUST_USE strata_status strata_message_send(strata_communicator *comm, const void *data, size_t bytes,
                                                             int peer, int64_t tag, double seconds, strata_error *err);
/* Receives the first message from `peer` with `tag`, either of which may be STRATA_ANY, into `room` bytes at data; seconds 0:
 * only one that has come. out_message (may be NULL) gets what came. */
STRATA_API STRATA_MUST_USE strata_status strata_message_receive(strata_communicator *comm, void *data, size_t room, int peer,
                                                                int64_t tag, double seconds, strata_message *out_message,
                                                                strata_error *err);
/* As receive, but the message stays: for its size, or its sender. Returns when a message has begun to come. */
STRATA_API STRATA_MUST_USE strata_status strata_message_probe(strata_communicator *comm, int peer, int64_t tag, double seconds,
                                                              strata_message *out_message, strata_error *err);
/* The same as requests: they return at once, but for the first message to a rank, which connects to it. Memory, out_message
 * too, is borrowed until the request is done. strata_request_wait of a message gives up after stall_seconds. */
STRATA_API STRATA_MUST_USE strata_status strata_message_start_send(strata_communicator *comm, const void *data, size_t bytes,
                                                                   int peer, int64_t tag, strata_request **out_request,
                                                                   strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_message_start_receive(strata_communicator *comm, void *data, size_t room,
                                                                      int peer, int64_t tag, strata_message *out_message,
                                                                      strata_request **out_request, strata_error *err);
/* Takes back a message's request that is not done, and frees it: true. A send that has begun still arrives. False: it is done,
 * or a collective's; wait for it. */
STRATA_API bool strata_request_cancel(strata_request *request);

/* ---- the store: small values that all ranks of the job see, kept by rank 0 ----
 * Keys are texts of 1 to 200 bytes, values at most 64 KiB. Split communicators share one store; values live as long as it. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_set(strata_communicator *comm, const char *key, const void *value,
                                                                 size_t n_bytes, strata_error *err);
/* Waits until the key is there, at most `seconds`: TIMEOUT then. *out_value is the caller's to free(), with a NUL behind it. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_get(strata_communicator *comm, const char *key, double seconds,
                                                                 void **out_value, size_t *out_n_bytes, strata_error *err);
/* Adds to a number, 0 where there is none yet; *out_sum is what it became. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_add(strata_communicator *comm, const char *key, int64_t amount,
                                                                 int64_t *out_sum, strata_error *err);
/* Sets the key if its value is `expected` (n_expected 0: if it is not there); *out_swapped tells whether it was. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_compare_and_set(strata_communicator *comm, const char *key,
                                                                             const void *expected, size_t n_expected,
                                                                             const void *value, size_t n_bytes,
                                                                             bool *out_swapped, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
