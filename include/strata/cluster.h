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
 * When rank 0 itself is lost, each rank names its own step. After any such failure the communicator and those split from it are
 * dead: each later call fails with the same message, the contents of outputs are undefined, and destroy is what is left to do.
 *
 * Threads. One call at a time for a communicator; different communicators are independent of each other. */
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

typedef struct strata_communicator_options {
    int rank;          /* 0 to world - 1, each once */
    int world;         /* 0: 1 */
    const char *store; /* "host:port" or "[v6]:port" where rank 0 listens and the others find it; may be NULL when world is 1 */
    /* of strata_transport_names; NULL: "auto", shm where all ranks are on one host with room in /dev/shm, else tcp */
    const char *transport;
    const char *
        engine; /* NULL: "builtin". "mpi": whole collectives by Open MPI, or MPICH and its kin, found at run time, in a job that its mpirun started; the store stays. Sums have the same bits, as
                         * only moves are MPI's. A rank that dies ends the job, by mpirun */
    const char
        *algorithm; /* of strata_algorithm_names, for reductions on all ranks alike; NULL: by size, ranks and transport */
    const char *
        table; /* rank 0: file of measured choices of algorithms, which all ranks follow; NULL: the user's, allreduce.table in $XDG_CACHE_HOME/strata or
                        * ~/.cache/strata, that `strata bench allreduce --tune` writes; "": none. No choice changes bits */
    const char
        *interface; /* name ("eth0") or address to listen on and tell to the others; NULL: the one that reaches the store */
    /* What the ranks prove to each other before anything else is read (HMAC-SHA256 over fresh nonces). Borrowed during
     * create. */
    const void *secret;
    size_t secret_bytes; /* 0: none */
    /* TLS 1.3 between the ranks of all hosts, each of which proves itself to the other: PEM files of this rank's certificate
     * (with those between it and an authority), of its key (NULL: in tls_cert too), and of the authorities whose certificates
     * are believed. NULL: no TLS. A certificate must have the host name or address that the others dial, or tls_name where that
     * is given: then every rank's must. */
    const char *tls_cert, *tls_key, *tls_ca, *tls_name;
    bool insecure;            /* listen beyond this host without a secret; otherwise that is INVALID */
    double connect_seconds;   /* until all ranks must have come; 0: 60 */
    double heartbeat_seconds; /* between signs of life; a rank that gives none for 5 of them is lost; 0: 1 */
    double stall_seconds;     /* how long a collective may make no progress while every rank is alive; 0: 300 */
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
/* Whether wait would return at once. */
STRATA_API bool strata_request_test(strata_request *request);

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
