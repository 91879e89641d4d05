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
 * Bits. Every reduction adds (or multiplies, ...) the ranks' elements in rank order, 0 to world - 1; f16 and bf16 are added in
 * f32 and rounded once at the end. So the bits of a result do not depend on the transport, on the algorithm, on how data is cut
 * into segments or on which rank is first, and every rank has the same bits.
 *
 * Errors. No call waits for ever. A rank that calls another collective than the others (kind, dtype, count, root, order) makes
 * it fail on all, INVALID, with both sides in the message. A rank that dies, stops or cannot be reached makes every rank fail
 * with PEER_LOST and the same message, which names it, its host, the collective and the step (strata_communicator_set_step).
 * After any such failure the communicator's collectives all fail with the same message, and the contents of outputs are
 * undefined. Communicators that the lost rank is not part of continue to work, as do those that were split from a communicator
 * that failed for another reason. The remaining ranks of a communicator can make a new one (strata_communicator_shrink). Rank 0
 * of the job runs the store: when it is lost, all communicators fail, and the message of each rank names its own step.
 *
 * Threads. One call at a time for a communicator, except messages, which any thread may send and receive. Different
 * communicators are independent of each other. */
#ifndef STRATA_CLUSTER_H
#define STRATA_CLUSTER_H

#include "strata/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* double: collectives can move and reduce it, but tensors cannot have it. */
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

/* Zeros are the defaults; STRATA_ZERO is INVALID. Texts are borrowed while the communicator is created. */
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
    /* NULL: "builtin". "mpi": Open MPI, MPICH or a library with the binary interface of one of them carries the messages of
     * collectives. It is loaded at run time, and its mpirun must have started the job. The store is always Strata's own.
     * Sums have the same bits, because MPI only moves data. When a rank dies, mpirun ends the job. */
    const char *engine;
    /* One of strata_algorithm_names, for reductions; the same on all ranks. NULL: chosen by size, ranks and transport. */
    const char *algorithm;
    /* The path of a file with measured choices of algorithms, as `strata bench allreduce --tune` writes it. Rank 0's file
     * is used for all ranks. NULL: the user's file, allreduce.table in $XDG_CACHE_HOME/strata or ~/.cache/strata. "": no
     * file. No choice changes bits. */
    const char *table;
    /* The name ("eth0") or address of the network interface on which this rank listens and to which the others connect.
     * NULL: the interface that reaches the store. */
    const char *interface;
    /* "host:port" that the job lists for this rank; its port is used. Rank 0 listens at `store`. NULL: any free port. */
    const char *address;
    /* Each rank must prove that it knows the secret before anything else that it sends is read (HMAC-SHA256 of fresh
     * nonces). 0 bytes: no secret. */
    const void *secret;
    size_t secret_bytes;
    /* TLS 1.3 between the ranks of all hosts, where both sides check each other's certificate. Paths of PEM files: this rank's
     * certificate (with those between it and an authority), its key (NULL: it is in tls_cert too), and the certificates of
     * the authorities that are trusted. NULL: no TLS. A certificate must contain the host name or address to which the
     * others connect. If tls_name is given, every rank's certificate must contain tls_name instead. */
    const char *tls_cert, *tls_key, *tls_ca, *tls_name;
    /* Allow listening on an address that other hosts can reach without a secret. False: that is INVALID. */
    bool insecure;
    /* How long to wait until all ranks are connected; 0: 60. */
    double connect_seconds;
    /* The time between heartbeats. A rank of which none is received for 5 times as long is lost. 0: 1. */
    double heartbeat_seconds;
    /* How long a collective may wait without progress while every rank is alive; 0: 300. */
    double stall_seconds;
} strata_communicator_options;

/* NULL-terminated: "auto", "shm", "tcp". */
extern STRATA_API const char *const strata_transport_names[];
/* NULL-terminated: "one_shot", "two_shot", "ring", "halving_doubling". */
extern STRATA_API const char *const strata_algorithm_names[];

/* Returns when all ranks are connected. opts is borrowed during the call.
 * Fails: INVALID for wrong options, for a rank number that two processes have, and for listening beyond this host without a
 * secret; TIMEOUT after connect_seconds, with the ranks that are missing and why connections were refused; UNAVAILABLE when an
 * address cannot be listened on, a TLS file cannot be used, the other side has another secret, or one side does not accept the
 * other's certificate. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_create(const strata_communicator_options *opts,
                                                                    strata_communicator **out_comm, strata_error *err);
/* Creates all `world` ranks for threads of this process, out_comms[rank]. They use no sockets. Only `algorithm` and
 * `stall_seconds` of opts (NULL: defaults) are used. Each communicator is destroyed separately. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_create_local(int world, const strata_communicator_options *opts,
                                                                          strata_communicator **out_comms, strata_error *err);
/* Splits `comm`: the ranks with the same `color` get a communicator of their own, in which they are ordered by `key` and then
 * by their rank in `comm`. Every rank of `comm` calls it. A rank with a negative color joins none: its *out_comm is NULL. The
 * new communicator may outlive `comm`.
 * Cost: an all_gather of 8 bytes, and new connections. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_split(strata_communicator *comm, int color, int key,
                                                                   strata_communicator **out_comm, strata_error *err);
/* Makes a communicator of the remaining ranks of `comm`, in their order, after a rank was lost or left. Each remaining rank
 * calls it; they agree through the store. The caller still destroys `comm`. When another rank is lost later, call it with the
 * new communicator.
 * Fails: TIMEOUT, naming a rank that is not lost and does not come within connect_seconds; PEER_LOST when another rank is lost
 * meanwhile: call it again; UNSUPPORTED with an engine. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_shrink(strata_communicator *comm, strata_communicator **out_comm,
                                                                    strata_error *err);
/* Waits for requests that run, and leaves the job. Other ranks continue, unless they need something from this rank. Rank 0,
 * which runs the store, waits until the other ranks have left, or have sent no heartbeat for 5 heartbeat times. NULL is fine.
 * */
STRATA_API void strata_communicator_destroy(strata_communicator *comm);

STRATA_API int strata_communicator_rank(const strata_communicator *comm);
STRATA_API int strata_communicator_world(const strata_communicator *comm);
/* "inproc", "shm", "tcp" or, of the engine, "mpi". Static memory. */
STRATA_API const char *strata_communicator_transport(const strata_communicator *comm);
/* The algorithm that an all_reduce of n_bytes would use: one of strata_algorithm_names. */
STRATA_API const char *strata_communicator_algorithm(const strata_communicator *comm, size_t n_bytes);
/* How many payload bytes this rank has sent since create. */
STRATA_API uint64_t strata_communicator_bytes_sent(const strata_communicator *comm);
/* Sets the number of the caller's current step, from 1. Error messages name it beside the collective. 0, the initial value:
 * none. Threads: any. */
STRATA_API void strata_communicator_set_step(strata_communicator *comm, int64_t step);
/* Makes the calls of every rank fail with INTERRUPTED and this text. A rank calls it if it cannot continue. Threads: any. */
STRATA_API void strata_communicator_abort(strata_communicator *comm, const char *text);

/* ---- measured choices ---- */

/* An all_reduce of up to most_bytes, over this number of ranks and this transport, uses this algorithm. */
typedef struct strata_algorithm_choice {
    const char *transport; /* "shm" or "tcp" */
    int ranks;
    uint64_t most_bytes; /* UINT64_MAX: any more */
    const char *algorithm;
} strata_algorithm_choice;
/* Writes the choices to the table at `path` (NULL: the user's table), where they replace the rows with the same transport and
 * number of ranks. All choices have one transport and one number of ranks, and ascending bytes. Communicators read the table
 * when they are created.
 * Fails: INVALID for a wrong row; UNAVAILABLE where it cannot be written. */
STRATA_API STRATA_MUST_USE strata_status strata_algorithm_table_save(const char *path, const strata_algorithm_choice *choices,
                                                                     int n, strata_error *err);

/* ---- collectives ----
 * count is in elements. Data is borrowed until the call returns. Every dtype may be moved; bool cannot be reduced.
 * Cost, in bytes that a rank sends of S: two steps and 2 S (P-1)/P for a large all_reduce; cluster/README.md has the table. */

/* Reduces the ranks' data; every rank gets the result, in place. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_all_reduce(strata_communicator *comm, void *data, size_t count,
                                                                        strata_dtype dtype, strata_reducer reducer,
                                                                        strata_error *err);
/* Reduces the ranks' data; the root gets the result, in place. The data of the other ranks does not change. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_reduce(strata_communicator *comm, void *data, size_t count,
                                                                    strata_dtype dtype, strata_reducer reducer, int root,
                                                                    strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_communicator_broadcast(strata_communicator *comm, void *data, size_t count,
                                                                       strata_dtype dtype, int root, strata_error *err);
/* Rank r contributes counts[r] elements (counts NULL: count). Every rank gets all elements in `out`, in rank order. in NULL:
 * the rank's own elements are already at their place in `out`. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_all_gather(strata_communicator *comm, const void *in, void *out,
                                                                        size_t count, const size_t *counts, strata_dtype dtype,
                                                                        strata_error *err);
/* `in` has elements for all ranks in rank order: counts[r] for rank r (counts NULL: count). Each rank gets the reduction of the
 * elements that are for it in `out`. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_reduce_scatter(strata_communicator *comm, const void *in,
                                                                            void *out, size_t count, const size_t *counts,
                                                                            strata_dtype dtype, strata_reducer reducer,
                                                                            strata_error *err);
/* `in` has `count` elements for each rank, and `out` gets `count` elements from each rank. They must not overlap. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_all_to_all(strata_communicator *comm, const void *in, void *out,
                                                                        size_t count, strata_dtype dtype, strata_error *err);
/* counts as for all_gather. `out` (gather) or `in` (scatter) is used on the root only, where `in` and `out` must not overlap.
 * */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_gather(strata_communicator *comm, const void *in, void *out,
                                                                    size_t count, const size_t *counts, strata_dtype dtype,
                                                                    int root, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_communicator_scatter(strata_communicator *comm, const void *in, void *out,
                                                                     size_t count, const size_t *counts, strata_dtype dtype,
                                                                     int root, strata_error *err);
/* Returns when every rank has called it. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_barrier(strata_communicator *comm, strata_error *err);
/* Send to a rank, which calls recv with the same count and dtype. send may return before the data is received. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_send(strata_communicator *comm, const void *data, size_t count,
                                                                  strata_dtype dtype, int peer, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_communicator_recv(strata_communicator *comm, void *data, size_t count,
                                                                  strata_dtype dtype, int peer, strata_error *err);

/* ---- requests: the same collectives, run by a thread of the communicator in the order in which they were started ---- */
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
    /* all_reduce of f32: the dtype in which values are sent. With F16 or BF16 half the bytes are sent: each rank's values are
     * rounded once before they are sent, they are added in f32, and the sum is rounded once, so all ranks have the same bits.
     * Values beyond 65504 become infinite in F16. F32 (0): values are not rounded. A job of one rank rounds nothing. */
    strata_dtype wire;
} strata_collective;

typedef struct strata_request strata_request;

/* Runs the collective in the calling thread, as the calls above do. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_run(strata_communicator *comm, const strata_collective *what,
                                                                 strata_error *err);
/* Returns at once; `what` is copied, the memory that it points to (counts too) is borrowed until the request is done. Each
 * request must be waited for once. Blocking calls that are made meanwhile run after it. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_start(strata_communicator *comm, const strata_collective *what,
                                                                   strata_request **out_request, strata_error *err);
/* Frees the request, whatever the status. NULL is fine. */
STRATA_API STRATA_MUST_USE strata_status strata_request_wait(strata_request *request, strata_error *err);
/* Like wait, for at most `seconds`; with 0 or less it returns at once. If the request is not done by then, *out_done is false,
 * the status is OK, and the request continues: its memory stays borrowed, and it must still be waited for. If it is done,
 * *out_done is true and the request is freed, whatever the status. */
STRATA_API STRATA_MUST_USE strata_status strata_request_wait_for(strata_request *request, double seconds, bool *out_done,
                                                                 strata_error *err);
/* Whether wait would return at once. */
STRATA_API bool strata_request_test(strata_request *request);

/* ---- messages: from one rank to another, beside the collectives ----
 * A message is bytes with a tag of 0 or more. A receive can ask for a sender and for a tag. Messages from one rank to another
 * that match the same receive arrive in the order in which they were sent. The receiver need not be waiting: it stores a
 * message until it is received. Only the sender and the receiver of a message are involved, so messages still work when a third
 * rank was lost, although the communicator's collectives then fail.
 *
 *     strata_message_send(comm, data, n, peer, tag, 10, &err);
 *     strata_message_receive(comm, room, sizeof room, STRATA_ANY, tag, 10, &message, &err);      message.peer sent it
 * Fails: TIMEOUT at the deadline; PEER_LOST when the peer was lost or left, or, for a receive from any rank, when all other
 * ranks were; INVALID for wrong arguments, and for a message that is longer than the buffer of its receive (the message stays
 * and can be received with a larger buffer); the error of a communicator that failed for another reason (a rank that aborted,
 * calls that differ, the loss of rank 0).
 * Threads: any number of them at once, also beside a collective. */
enum { STRATA_ANY = -1 };
/* Tags from here on are reserved for the op send of graphs. A receive with STRATA_ANY does not match them. */
#define STRATA_RESERVED_TAGS ((int64_t)1 << 62)

typedef struct strata_message {
    int peer; /* who sent it */
    int64_t tag;
    size_t bytes;
} strata_message;

/* Returns when the caller may change `data` again; the message may not have been received by then. After `seconds` it fails
 * with TIMEOUT, and the message may still arrive. A rank may send to itself. */
STRATA_API STRATA_MUST_USE strata_status strata_message_send(strata_communicator *comm, const void *data, size_t bytes,
                                                             int peer, int64_t tag, double seconds, strata_error *err);
/* Receives the first message from `peer` with `tag`, either of which may be STRATA_ANY, into the `room` bytes at data. seconds
 * 0: does not wait for a message. out_message (may be NULL) gets the message's sender, tag and size. */
STRATA_API STRATA_MUST_USE strata_status strata_message_receive(strata_communicator *comm, void *data, size_t room, int peer,
                                                                int64_t tag, double seconds, strata_message *out_message,
                                                                strata_error *err);
/* Returns the sender, tag and size of the message that receive would return, and does not receive it. It returns as soon as a
 * message has begun to arrive. */
STRATA_API STRATA_MUST_USE strata_status strata_message_probe(strata_communicator *comm, int peer, int64_t tag, double seconds,
                                                              strata_message *out_message, strata_error *err);
/* Send and receive as requests. They return at once, except for the first message to a rank, which connects to that rank. data
 * and out_message are borrowed until the request is done. strata_request_wait of a message fails after stall_seconds. */
STRATA_API STRATA_MUST_USE strata_status strata_message_start_send(strata_communicator *comm, const void *data, size_t bytes,
                                                                   int peer, int64_t tag, strata_request **out_request,
                                                                   strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_message_start_receive(strata_communicator *comm, void *data, size_t room,
                                                                      int peer, int64_t tag, strata_message *out_message,
                                                                      strata_request **out_request, strata_error *err);
/* Cancels the request of a message that is not done, frees the request, and returns true. A message whose sending has begun
 * still arrives. Returns false for a request that is done and for a collective's; wait for it then. */
STRATA_API bool strata_request_cancel(strata_request *request);

/* ---- the store: small values by key, which rank 0 stores for all ranks of the job ----
 * Keys are texts of 1 to 200 bytes, values at most 64 KiB. Communicators of a job share one store. Values cannot be removed. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_set(strata_communicator *comm, const char *key, const void *value,
                                                                 size_t n_bytes, strata_error *err);
/* Waits at most `seconds` until the key has a value, and fails with TIMEOUT after that. The caller frees *out_value with
 * free(). A NUL follows the value. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_get(strata_communicator *comm, const char *key, double seconds,
                                                                 void **out_value, size_t *out_n_bytes, strata_error *err);
/* Adds to the number of a key, which is 0 where the key has no value. *out_sum is the sum. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_add(strata_communicator *comm, const char *key, int64_t amount,
                                                                 int64_t *out_sum, strata_error *err);
/* Sets the key if its value equals `expected` (n_expected 0: if it has no value). *out_swapped: whether it was set. */
STRATA_API STRATA_MUST_USE strata_status strata_communicator_compare_and_set(strata_communicator *comm, const char *key,
                                                                             const void *expected, size_t n_expected,
                                                                             const void *value, size_t n_bytes,
                                                                             bool *out_swapped, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
