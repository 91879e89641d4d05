/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine mpi: an installed MPI library runs whole collectives, for clusters that have their own network and launcher. The
 * library is Open MPI, MPICH, or one with MPICH's binary interface; it is loaded at run time, because users have one or the
 * other (mpi_library.h). mpirun starts the job. Strata's own store, verdicts and heartbeats work as with other transports.
 *
 * MPI cannot cancel a collective that has begun. If a call fails because a rank is lost or makes no progress, MPI may still
 * read and write the call's memory later, so this is never the caller's: all of it lies in the communicator's scratch memory
 * (struct area), to and from which values are copied, and which is abandoned when a call fails.
 *
 * The results have the same bits as with other transports. MPI_Allreduce adds in an order that depends on size, ranks and
 * algorithm. So MPI only moves bytes here, and Strata computes the folds, in rank order. A large all_reduce is an alltoallv
 * of slices, a fold of the own slice, and an allgatherv; a small one is an allgather of all inputs. For large sums this sends
 * as many bytes as the best algorithms. Reductions inside MPI or in network switches are not used.
 *
 * MPI can be initialized only once in a process. The first communicator initializes it, and it is finalized at exit; hence
 * the static variables. */
#include "cluster/engine/mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster/collective/algorithm.h"
#include "cluster/collective/fold.h"
#include "cluster/communicator.h"
#include "cluster/engine/mpi_library.h"
#include "core/base/clock.h"

enum {
    THREAD_MULTIPLE = 3,
    SMALL_BYTES = 16 << 10, /* up to this size an all_reduce is one allgather of all inputs */
    CHUNK_BYTES = 16 << 20, /* a larger all_reduce or broadcast is several, so that the scratch memory stays small */
    TAG_CALL = 1,
    TAG_DATA = 2
};

static const strata_mpi_library *const libraries[] = {&strata_mpi_library_open_mpi, &strata_mpi_library_mpich};

static struct {
    pthread_mutex_t lock;
    /* NULL: MPI was not searched for yet. */
    const strata_mpi_library *library;
    /* This file initialized MPI. */
    bool ready, ours;
    /* A communicator failed, so MPI_Finalize would wait for the lost rank. */
    atomic_bool broken;
    /* The memory of failed calls, a list: each block begins with the address of the next one. */
    void *abandoned;
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void finish(void) {
    if (mpi.ours && !mpi.broken) mpi.library->Finalize();
}

/* The library of the launcher that started this process. With another library the job would have only one rank. */
static const strata_mpi_library *library_of_launcher(void) {
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (getenv(libraries[i]->launched)) return libraries[i];
    return NULL;
}

static strata_status open_library(const strata_mpi_library *library, strata_error *err) {
    char why[300] = "";
    for (int i = 0; library->file_names[i]; i++) {
        /* RTLD_GLOBAL, because the library's plugins need its symbols. */
        void *opened = dlopen(library->file_names[i], RTLD_NOW | RTLD_GLOBAL);
        const char *missing = opened ? library->find(opened) : NULL;
        if (opened && !missing) return STRATA_OK;
        const size_t n = strlen(why);
        if (opened)
            snprintf(why + n, sizeof why - n, "%s%s has no %s", n ? "; " : "", library->file_names[i], missing);
        else
            snprintf(why + n, sizeof why - n, "%s%s", n ? "; " : "", dlerror());
        if (opened) dlclose(opened);
    }
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "engine mpi: %s started this process, but its library is not there (Debian: %s): %s", library->name,
                       library->package, why);
}

static strata_status find(strata_error *err) {
    const strata_mpi_library *library = mpi.library ? mpi.library : library_of_launcher();
    if (mpi.library) return STRATA_OK;
    if (!library)
        return strata_fail(err, STRATA_INVALID,
                           "engine mpi: this process was not started by the mpirun of Open MPI or MPICH; start the job as "
                           "mpirun -n 2 COMMAND, or leave the engine away");
    STRATA_TRY(open_library(library, err));
    mpi.library = library;
    return STRATA_OK;
}

static strata_status begin(strata_error *err) {
    int threads = 0;
    bool ours = false;
    if (mpi.ready) return STRATA_OK;
    if (mpi.library->begin(&ours, &threads)) return strata_fail(err, STRATA_UNAVAILABLE, "engine mpi: MPI_Init_thread failed");
    mpi.ours = ours;
    if (ours) atexit(finish);
    if (threads < THREAD_MULTIPLE)
        return strata_fail(err, STRATA_UNSUPPORTED, "engine mpi: MPI gives thread level %d; MPI_THREAD_MULTIPLE (%d) is needed",
                           threads, THREAD_MULTIPLE);
    mpi.ready = true;
    return STRATA_OK;
}

static strata_status locked(strata_status (*call)(strata_error *err), strata_error *err) {
    pthread_mutex_lock(&mpi.lock);
    const strata_status status = call(err);
    pthread_mutex_unlock(&mpi.lock);
    return status;
}

strata_status strata_mpi_find(strata_error *err) {
    return locked(find, err);
}

strata_status strata_mpi_begin(strata_error *err) {
    return locked(begin, err);
}

/* ---- waiting ---- */

/* Leaves the scratch memory, which take_area has divided, to MPI, which may use it as long as the process lives. */
static void abandon(const strata_operation *op) {
    mpi.broken = true;
    pthread_mutex_lock(&mpi.lock);
    *(void **)op->comm->scratch.memory = mpi.abandoned;
    mpi.abandoned = op->comm->scratch.memory;
    pthread_mutex_unlock(&mpi.lock);
    op->comm->scratch.memory = NULL;
    op->comm->scratch.bytes = 0;
}

static strata_status failed(const strata_operation *op, const char *what, strata_error *err) {
    abandon(op);
    return strata_communicator_fail(op->comm, &op->call, STRATA_UNAVAILABLE, err, "%s failed", what);
}

/* Waits until the request is done. Checks for a verdict meanwhile, because MPI itself does not detect that a rank has
 * stopped. */
static strata_status finish_request(const strata_operation *op, strata_mpi_handle request, strata_error *err) {
    enum { SPINS_BEFORE_YIELD = 200, SPINS_BEFORE_SLEEP = 4000, SPINS_PER_CHECK = 256 };
    const double since = strata_clock_seconds();
    for (int spins = 0, done = 0;; spins++) {
        if (mpi.library->Test(&request, &done)) return failed(op, "MPI_Test", err);
        if (done) return STRATA_OK;
        if (spins > SPINS_BEFORE_SLEEP)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        else if (spins > SPINS_BEFORE_YIELD)
            sched_yield();
        if (spins % SPINS_PER_CHECK) continue;
        if (strata_seat_failed(op->comm->seat)) {
            abandon(op);
            return strata_seat_verdict(op->comm->seat, err);
        }
        if (strata_clock_seconds() - since > op->comm->stall_seconds) {
            abandon(op);
            return strata_communicator_fail(op->comm, &op->call, STRATA_TIMEOUT, err, "no progress for %g s",
                                            op->comm->stall_seconds);
        }
    }
}

#define CALL(op, name, ...)                                                                        \
    do {                                                                                           \
        strata_mpi_handle request, *const link = (op)->comm->link;                                 \
        if (mpi.library->name(__VA_ARGS__, *link, &request)) return failed(op, "MPI_" #name, err); \
        STRATA_TRY(finish_request(op, request, err));                                              \
    } while (0)

/* ---- the memory of a call ---- */

/* How many bytes each rank has, and where they begin. */
typedef struct layout {
    int *bytes, *at;
} layout;

/* All memory that MPI uses in a call. */
typedef struct area {
    layout first, second;
    /* The input, and later the output: the larger one fits. */
    char *data;
    /* The parts of other ranks. */
    char *parts;
} area;

static size_t aligned(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static strata_status take_area(const strata_operation *op, size_t data_bytes, size_t parts_bytes, area *out,
                               strata_error *err) {
    const size_t n = (size_t)op->comm->world, link = aligned(sizeof(void *)), counts = aligned(4 * n * sizeof(int)),
                 data = aligned(data_bytes + 1);
    char *memory = strata_communicator_scratch(op->comm, link + counts + data + aligned(parts_bytes + 1), err);
    if (!memory) return STRATA_OUT_OF_MEMORY;
    memory += link;
    int *ints = (int *)(void *)memory;
    *out = (area){{ints, ints + n}, {ints + 2 * n, ints + 3 * n}, memory + counts, memory + counts + data};
    return STRATA_OK;
}

static void copy(void *to, const void *from, size_t bytes) {
    if (bytes) memcpy(to, from, bytes);
}

/* ---- the bytes of each rank ---- */

static size_t slice_bytes(const strata_operation *op, int r) {
    return strata_slice_of(op, r).count * op->element_bytes;
}

/* With `counts` each rank has its own count; without them all have the same. */
static size_t part_bytes(const strata_operation *op, int r) {
    return (op->counts ? op->counts[r] : op->count) * op->element_bytes;
}

static size_t same_bytes(const strata_operation *op, int r) {
    (void)r;
    return slice_bytes(op, op->comm->rank);
}

/* The sum of all ranks' bytes, which must be at most INT_MAX. */
static strata_status add_up(const strata_operation *op, size_t (*bytes)(const strata_operation *op, int r), size_t *out_sum,
                            strata_error *err) {
    *out_sum = 0;
    for (int r = 0; r < op->comm->world; r++) {
        const size_t own = bytes(op, r);
        if (own > INT_MAX - *out_sum)
            return strata_fail(err, STRATA_UNSUPPORTED, "engine mpi: more than 2 GiB in one collective; make it several");
        *out_sum += own;
    }
    return STRATA_OK;
}

/* Computes a layout from the function `bytes`, whose sum fits in an int. */
static void lay_out(const strata_operation *op, size_t (*bytes)(const strata_operation *op, int r), const layout *out) {
    int at = 0;
    for (int r = 0; r < op->comm->world; r++) {
        out->bytes[r] = (int)bytes(op, r);
        out->at[r] = at;
        at += out->bytes[r];
    }
}

static void count(const strata_operation *op, size_t bytes) {
    atomic_fetch_add_explicit(&op->comm->bytes_sent, bytes, memory_order_relaxed);
}

/* ---- folds ---- */

static strata_status fold(const strata_operation *op, const char *parts, size_t bytes, void *out, strata_error *err) {
    const void **operands = calloc((size_t)op->comm->world, sizeof *operands);
    if (!operands) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %d ranks", op->comm->world);
    for (int r = 0; r < op->comm->world; r++) operands[r] = parts + (size_t)r * bytes;
    strata_fold_ranks(op->dtype, op->reducer, operands, op->comm->world, bytes / op->element_bytes, out);
    free(operands);
    return STRATA_OK;
}

/* Receives the own slice of every rank's input, and folds these. a->data is free then, and a->parts begins with the result.
 * a->first becomes the layout of the slices. */
static strata_status fold_own_slice(const strata_operation *op, area *a, strata_error *err) {
    const size_t own = slice_bytes(op, op->comm->rank);
    size_t all, received_bytes;
    STRATA_TRY(add_up(op, slice_bytes, &all, err));
    STRATA_TRY(add_up(op, same_bytes, &received_bytes, err));
    STRATA_TRY(take_area(op, all, own + received_bytes, a, err));
    lay_out(op, slice_bytes, &a->first);
    lay_out(op, same_bytes, &a->second);
    copy(a->data, op->in, all);
    char *received = a->parts + own;
    CALL(op, Ialltoallv, a->data, a->first.bytes, a->first.at, received, a->second.bytes, a->second.at);
    count(op, all - own);
    return fold(op, received, own, a->parts, err);
}

static strata_status all_reduce_small(const strata_operation *op, strata_error *err) {
    const size_t bytes = op->count * op->element_bytes, world = (size_t)op->comm->world;
    area a;
    STRATA_TRY(take_area(op, bytes, world * bytes, &a, err));
    copy(a.data, op->in, bytes);
    CALL(op, Iallgather, a.data, (int)bytes, a.parts);
    count(op, bytes * (world - 1));
    return fold(op, a.parts, bytes, op->out, err);
}

static strata_status all_reduce_large(const strata_operation *op, strata_error *err) {
    area a;
    STRATA_TRY(fold_own_slice(op, &a, err));
    const int own = a.first.bytes[op->comm->rank];
    CALL(op, Iallgatherv, a.parts, own, a.data, a.first.bytes, a.first.at);
    copy(op->out, a.data, op->count * op->element_bytes);
    count(op, (size_t)own * (size_t)(op->comm->world - 1));
    return STRATA_OK;
}

static strata_status run_all_reduce(const strata_operation *op, strata_error *err) {
    const size_t most = CHUNK_BYTES / op->element_bytes;
    strata_operation chunk = *op;
    for (size_t first = 0; first < op->count; first += most) {
        chunk.count = op->count - first < most ? op->count - first : most;
        chunk.in = (const char *)op->in + first * op->element_bytes;
        chunk.out = (char *)op->out + first * op->element_bytes;
        const bool small = chunk.count * op->element_bytes <= SMALL_BYTES;
        STRATA_TRY(small ? all_reduce_small(&chunk, err) : all_reduce_large(&chunk, err));
    }
    return STRATA_OK;
}

static strata_status run_reduce(const strata_operation *op, strata_error *err) {
    area a;
    STRATA_TRY(fold_own_slice(op, &a, err));
    CALL(op, Igatherv, a.parts, a.first.bytes[op->comm->rank], a.data, a.first.bytes, a.first.at, op->root);
    if (op->comm->rank == op->root) copy(op->out, a.data, op->count * op->element_bytes);
    return STRATA_OK;
}

static strata_status run_reduce_scatter(const strata_operation *op, strata_error *err) {
    area a;
    STRATA_TRY(fold_own_slice(op, &a, err));
    copy(op->out, a.parts, slice_bytes(op, op->comm->rank));
    return STRATA_OK;
}

/* ---- moves ---- */

static strata_status run_broadcast(const strata_operation *op, strata_error *err) {
    const size_t all = op->count * op->element_bytes;
    const bool sends = op->comm->rank == op->root;
    char *at = op->out;
    area a;
    STRATA_TRY(take_area(op, all < CHUNK_BYTES ? all : CHUNK_BYTES, 0, &a, err));
    for (size_t left = all; left;) {
        const size_t n = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        if (sends) memcpy(a.data, at, n);
        CALL(op, Ibcast, a.data, (int)n, op->root);
        if (sends)
            count(op, n);
        else
            memcpy(at, a.data, n);
        at += n;
        left -= n;
    }
    return STRATA_OK;
}

/* Takes the area for a collective to which each rank contributes a part. *out_sum: the bytes of all parts. */
static strata_status take_parts(const strata_operation *op, area *a, size_t *out_sum, strata_error *err) {
    STRATA_TRY(add_up(op, part_bytes, out_sum, err));
    STRATA_TRY(take_area(op, *out_sum, *out_sum, a, err));
    lay_out(op, part_bytes, &a->first);
    return STRATA_OK;
}

static strata_status run_all_gather(const strata_operation *op, strata_error *err) {
    const int rank = op->comm->rank;
    size_t all;
    area a;
    STRATA_TRY(take_parts(op, &a, &all, err));
    const int own = a.first.bytes[rank], at = a.first.at[rank];
    copy(a.data + at, op->in ? op->in : (const char *)op->out + at, (size_t)own);
    CALL(op, Iallgatherv, mpi.library->in_place, own, a.data, a.first.bytes, a.first.at);
    copy(op->out, a.data, all);
    count(op, (size_t)own * (size_t)(op->comm->world - 1));
    return STRATA_OK;
}

static strata_status run_all_to_all(const strata_operation *op, strata_error *err) {
    size_t all;
    area a;
    STRATA_TRY(take_parts(op, &a, &all, err));
    copy(a.data, op->in, all);
    CALL(op, Ialltoallv, a.data, a.first.bytes, a.first.at, a.parts, a.first.bytes, a.first.at);
    copy(op->out, a.parts, all);
    count(op, part_bytes(op, 0) * (size_t)(op->comm->world - 1));
    return STRATA_OK;
}

static strata_status run_gather(const strata_operation *op, strata_error *err) {
    const int rank = op->comm->rank;
    size_t all;
    area a;
    STRATA_TRY(take_parts(op, &a, &all, err));
    const int own = a.first.bytes[rank];
    copy(a.parts, op->in, (size_t)own);
    CALL(op, Igatherv, a.parts, own, a.data, a.first.bytes, a.first.at, op->root);
    if (rank == op->root) copy(op->out, a.data, all);
    if (rank != op->root) count(op, (size_t)own);
    return STRATA_OK;
}

static strata_status run_scatter(const strata_operation *op, strata_error *err) {
    const int rank = op->comm->rank;
    size_t all;
    area a;
    STRATA_TRY(take_parts(op, &a, &all, err));
    const int own = a.first.bytes[rank];
    if (rank == op->root) copy(a.data, op->in, all);
    CALL(op, Iscatterv, a.data, a.first.bytes, a.first.at, a.parts, own, op->root);
    copy(op->out, a.parts, (size_t)own);
    return STRATA_OK;
}

/* Nothing is left to do: `agree` has returned, so all ranks have reached the barrier. */
static strata_status run_barrier(const strata_operation *op, strata_error *err) {
    (void)op;
    (void)err;
    return STRATA_OK;
}

/* ---- one to one: the description of the call is sent before the data ---- */

static strata_status send_or_receive(const strata_operation *op, bool sends, strata_error *err) {
    const size_t bytes = op->count * op->element_bytes;
    strata_call theirs;
    area a;
    if (bytes > INT_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED, "engine mpi: more than 2 GiB in one message; make it several");
    STRATA_TRY(take_area(op, bytes, sizeof theirs, &a, err));
    if (sends) {
        memcpy(a.parts, &op->call, sizeof op->call);
        copy(a.data, op->in, bytes);
        CALL(op, Isend, a.parts, sizeof op->call, op->root, TAG_CALL);
        CALL(op, Isend, a.data, (int)bytes, op->root, TAG_DATA);
        count(op, bytes);
        return STRATA_OK;
    }
    CALL(op, Irecv, a.parts, sizeof theirs, op->root, TAG_CALL);
    memcpy(&theirs, a.parts, sizeof theirs);
    if (memcmp(&theirs, &op->call, sizeof theirs) != 0) {
        mpi.broken = true;
        return strata_communicator_mismatch(op->comm, &op->call, op->root, &theirs, err);
    }
    CALL(op, Irecv, a.data, (int)bytes, op->root, TAG_DATA);
    copy(op->out, a.data, bytes);
    return STRATA_OK;
}

/* ---- the engine ---- */

/* Compares the calls of all ranks, since MPI itself does not detect that counts differ. */
static strata_status agree(const strata_operation *op, strata_error *err) {
    const int world = op->comm->world;
    strata_call theirs;
    area a;
    STRATA_TRY(take_area(op, sizeof theirs, (size_t)world * sizeof theirs, &a, err));
    memcpy(a.data, &op->call, sizeof theirs);
    CALL(op, Iallgather, a.data, sizeof theirs, a.parts);
    for (int r = 0; r < world; r++) {
        memcpy(&theirs, a.parts + (size_t)r * sizeof theirs, sizeof theirs);
        if (!memcmp(&theirs, &op->call, sizeof theirs)) continue;
        mpi.broken = true;
        return strata_communicator_mismatch(op->comm, &op->call, r, &theirs, err);
    }
    return STRATA_OK;
}

static strata_status run(const strata_operation *op, strata_collective_kind kind, strata_error *err) {
    static strata_status (*const runs[STRATA_COLLECTIVE_COUNT])(const strata_operation *, strata_error *) = {
        [STRATA_ALL_REDUCE] = run_all_reduce,
        [STRATA_REDUCE] = run_reduce,
        [STRATA_BROADCAST] = run_broadcast,
        [STRATA_ALL_GATHER] = run_all_gather,
        [STRATA_REDUCE_SCATTER] = run_reduce_scatter,
        [STRATA_ALL_TO_ALL] = run_all_to_all,
        [STRATA_GATHER] = run_gather,
        [STRATA_SCATTER] = run_scatter,
        [STRATA_BARRIER] = run_barrier};
    if (!runs[kind]) return send_or_receive(op, kind == STRATA_SEND, err);
    STRATA_TRY(agree(op, err));
    return runs[kind](op, err);
}

static strata_status check_place(const strata_communicator *comm, strata_error *err) {
    int rank = -1, size = 0;
    if (mpi.library->place(&rank, &size))
        return strata_fail(err, STRATA_UNAVAILABLE, "engine mpi: MPI does not say this process's rank");
    if (rank == comm->peers[comm->rank].job_rank && size == comm->member->world) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       "engine mpi: this is rank %d of %d to MPI and rank %d of %d here; let mpirun say who is in the job",
                       rank, size, comm->peers[comm->rank].job_rank, comm->member->world);
}

static strata_status open(strata_communicator *comm, strata_error *err) {
    STRATA_TRY(check_place(comm, err));
    int *ranks = calloc((size_t)comm->world, sizeof *ranks);
    strata_mpi_handle *link = calloc(1, sizeof *link);
    if (!ranks || !link) {
        free(ranks);
        free(link);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %d ranks", comm->world);
    }
    for (int r = 0; r < comm->world; r++) ranks[r] = comm->peers[r].job_rank;
    const int code = mpi.library->Comm_create(ranks, comm->world, (int)(comm->id % 32768), link);
    free(ranks);
    if (code) {
        free(link);
        return strata_fail(err, STRATA_UNAVAILABLE, "engine mpi: MPI makes no communicator of %d ranks", comm->world);
    }
    comm->link = link;
    comm->segment_bytes = CHUNK_BYTES;
    return STRATA_OK;
}

/* MPI_Comm_free waits for all ranks of the communicator, so a failed communicator is not freed before the process ends. */
static void close(strata_communicator *comm) {
    if (!mpi.broken && !strata_seat_failed(comm->seat)) mpi.library->Comm_free(comm->link);
    free(comm->link);
    comm->link = NULL;
}

const strata_transport strata_transport_mpi = {.name = "mpi", .open = open, .close = close, .run = run};
