/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole collectives by an MPI that is on the machine, for clusters that have their own fabric and launcher: Open MPI, found at run time, as its types are pointers to
 * objects of its library and MPICH's are numbers. The job is started by mpirun; the store, the verdict and the signs of life stay ours.
 *
 * Bits. MPI_Allreduce adds in an order that changes with size, ranks and algorithm. So MPI moves bytes here, and the fold is ours, in rank order: an alltoallv of slices,
 * the fold of the own one, an allgatherv; small ones an allgather of everything. That costs the bytes of the best algorithms for large sums, and gives the bits of every
 * other transport. MPI's own reductions in switches are not used.
 *
 * MPI is once a process, begun by the first communicator and ended at exit: hence the static variables. */
#include "cluster/engine/mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster/clock.h"
#include "cluster/collective/algorithm.h"
#include "cluster/collective/fold.h"
#include "cluster/communicator.h"

typedef void *handle; /* MPI_Comm, MPI_Datatype, MPI_Group, MPI_Request of Open MPI */

enum {
    THREAD_MULTIPLE = 3,
    SMALL_BYTES = 16 << 10, /* up to here all is given to all */
    CHUNK_BYTES = 1 << 30,  /* counts are ints */
    TAG_CALL = 1,
    TAG_DATA = 2
};
#define IN_PLACE ((void *)1)

#define FUNCTIONS(X)                                                                                                \
    X(Initialized, (int *))                                                                                         \
    X(Query_thread, (int *))                                                                                        \
    X(Init_thread, (int *, char ***, int, int *))                                                                   \
    X(Finalize, (void))                                                                                             \
    X(Comm_rank, (handle, int *))                                                                                   \
    X(Comm_size, (handle, int *))                                                                                   \
    X(Comm_group, (handle, handle *))                                                                               \
    X(Group_incl, (handle, int, const int *, handle *))                                                             \
    X(Group_free, (handle *))                                                                                       \
    X(Comm_create_group, (handle, handle, int, handle *))                                                           \
    X(Comm_set_errhandler, (handle, handle))                                                                        \
    X(Comm_free, (handle *))                                                                                        \
    X(Test, (handle *, int *, void *))                                                                              \
    X(Isend, (const void *, int, handle, int, int, handle, handle *))                                               \
    X(Irecv, (void *, int, handle, int, int, handle, handle *))                                                     \
    X(Ibcast, (void *, int, handle, int, handle, handle *))                                                         \
    X(Iallgather, (const void *, int, handle, void *, int, handle, handle, handle *))                               \
    X(Iallgatherv, (const void *, int, handle, void *, const int *, const int *, handle, handle, handle *))         \
    X(Ialltoallv,                                                                                                   \
      (const void *, const int *, const int *, handle, void *, const int *, const int *, handle, handle, handle *)) \
    X(Igatherv, (const void *, int, handle, void *, const int *, const int *, handle, int, handle, handle *))       \
    X(Iscatterv, (const void *, const int *, const int *, handle, void *, int, handle, int, handle, handle *))

static struct {
    pthread_mutex_t lock;
    bool ready, ours, broken; /* begun by us; a communicator failed, so that ending in order would wait for the lost */
    handle world, byte, errors_return;
#define FIELD(name, arguments) int(*name) arguments;
    FUNCTIONS(FIELD)
#undef FIELD
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void finish(void) {
    if (mpi.ours && !mpi.broken) mpi.Finalize();
}

static strata_status find_functions(strata_error *err) {
    static const char *const names[] = {"libmpi.so.40", "libmpi.so"};
    void *library = NULL;
    for (int i = 0; i < 2 && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL); /* its plugins look for its names */
    if (!library)
        return strata_fail(err, STRATA_UNSUPPORTED, "engine mpi: Open MPI's library is not there: %s (Debian: libopenmpi3)",
                           dlerror());
    mpi.world = dlsym(library, "ompi_mpi_comm_world");
    mpi.byte = dlsym(library, "ompi_mpi_byte");
    mpi.errors_return = dlsym(library, "ompi_mpi_errors_return");
    if (!mpi.world || !mpi.byte || !mpi.errors_return)
        return strata_fail(
            err, STRATA_UNSUPPORTED,
            "engine mpi: libmpi.so is not Open MPI's; MPICH and its kin have another binary interface, which is not done");
    void *found;
    const char *missing = NULL;
#define FIND(name, arguments)             \
    found = dlsym(library, "MPI_" #name); \
    if (!found) missing = "MPI_" #name;   \
    memcpy(&mpi.name, &found, sizeof found); /* ISO C has no cast */
    FUNCTIONS(FIND)
#undef FIND
    return missing ? strata_fail(err, STRATA_UNSUPPORTED, "engine mpi: the library has no %s", missing) : STRATA_OK;
}

static strata_status begin(strata_error *err) {
    int begun = 0, threads = 0;
    if (mpi.ready) return STRATA_OK;
    if (!getenv("OMPI_COMM_WORLD_SIZE"))
        return strata_fail(
            err, STRATA_INVALID,
            "engine mpi: this process was not started by Open MPI's mpirun; start the job as mpirun -n 2 COMMAND, or "
            "leave the engine away");
    STRATA_TRY(find_functions(err));
    mpi.Initialized(&begun);
    if (begun)
        mpi.Query_thread(&threads);
    else if (mpi.Init_thread(NULL, NULL, THREAD_MULTIPLE, &threads))
        return strata_fail(err, STRATA_UNAVAILABLE, "engine mpi: MPI_Init_thread failed");
    mpi.ours = !begun;
    if (mpi.ours) atexit(finish);
    if (threads < THREAD_MULTIPLE)
        return strata_fail(err, STRATA_UNSUPPORTED, "engine mpi: MPI gives thread level %d; MPI_THREAD_MULTIPLE (%d) is needed",
                           threads, THREAD_MULTIPLE);
    mpi.ready = true;
    return STRATA_OK;
}

strata_status strata_mpi_begin(strata_error *err) {
    pthread_mutex_lock(&mpi.lock);
    strata_status status = begin(err);
    pthread_mutex_unlock(&mpi.lock);
    return status;
}

/* ---- waiting ---- */

static strata_status failed(const strata_operation *op, const char *what, strata_error *err) {
    mpi.broken = true;
    return strata_communicator_fail(op->comm, &op->call, STRATA_UNAVAILABLE, err, "%s failed", what);
}

/* Until the request is done; ends with the verdict, as MPI itself knows nothing of ranks that stopped. */
static strata_status finish_request(const strata_operation *op, handle request, strata_error *err) {
    enum { EAGER = 200, PATIENT = 4000, LOOKS = 256 };
    const double since = strata_clock_seconds();
    for (int spins = 0, done = 0;; spins++) {
        if (mpi.Test(&request, &done, NULL)) return failed(op, "MPI_Test", err);
        if (done) return STRATA_OK;
        if (spins > PATIENT)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        else if (spins > EAGER)
            sched_yield();
        if (spins % LOOKS) continue;
        if (strata_member_failed(op->comm->member)) {
            mpi.broken = true;
            return strata_member_verdict(op->comm->member, err);
        }
        if (strata_clock_seconds() - since > op->comm->stall_seconds) {
            mpi.broken = true;
            return strata_communicator_fail(op->comm, &op->call, STRATA_TIMEOUT, err, "no progress for %g s",
                                            op->comm->stall_seconds);
        }
    }
}

/* Starts it and waits. */
#define CALL(op, name, ...)                                                                                     \
    do {                                                                                                        \
        handle request = NULL;                                                                                  \
        if (mpi.name(__VA_ARGS__, *(handle *)(op)->comm->link, &request)) return failed(op, "MPI_" #name, err); \
        STRATA_TRY(finish_request(op, request, err));                                                           \
    } while (0)

/* ---- who gets what ---- */

/* Bytes of each rank, and where they begin. */
typedef struct layout {
    int *bytes, *at;
} layout;

static size_t slice_bytes(const strata_operation *op, int r) {
    return strata_slice_of(op, r).count * op->element_bytes;
}

/* Each has its count, or all the same. */
static size_t part_bytes(const strata_operation *op, int r) {
    return (op->counts ? op->counts[r] : op->count) * op->element_bytes;
}

static size_t same_bytes(const strata_operation *op, int r) {
    (void)r;
    return slice_bytes(op, op->comm->rank);
}

/* Four arrays of ints for two layouts; NULL: no memory. */
static int *make_layouts(const strata_operation *op, layout out[2], strata_error *err) {
    const size_t n = (size_t)op->comm->world;
    int *memory = calloc(4 * n, sizeof *memory);
    for (int i = 0; i < 2; i++) out[i] = (layout){memory + 2 * i * (int)n, memory + (2 * i + 1) * (int)n};
    if (!memory) strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %d ranks", op->comm->world);
    return memory;
}

/* INT_MAX bytes at most. */
static strata_status lay_out(const strata_operation *op, size_t (*bytes)(const strata_operation *op, int r), layout *out,
                             strata_error *err) {
    size_t at = 0;
    for (int r = 0; r < op->comm->world; r++) {
        const size_t own = bytes(op, r);
        if (own > INT_MAX - at)
            return strata_fail(err, STRATA_UNSUPPORTED, "engine mpi: more than 2 GiB in one collective; make it several");
        out->bytes[r] = (int)own;
        out->at[r] = (int)at;
        at += own;
    }
    return STRATA_OK;
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

/* Every rank's part of the own slice, folded: at the end of the scratch, which is returned by *out_sum. */
static strata_status fold_own_slice(const strata_operation *op, layout both[2], void **out_sum, strata_error *err) {
    const size_t own = slice_bytes(op, op->comm->rank), world = (size_t)op->comm->world;
    STRATA_TRY(lay_out(op, slice_bytes, &both[0], err));
    STRATA_TRY(lay_out(op, same_bytes, &both[1], err));
    char *parts = strata_communicator_scratch(op->comm, (world + 1) * own + 1, err);
    if (!parts) return STRATA_OUT_OF_MEMORY;
    CALL(op, Ialltoallv, op->in, both[0].bytes, both[0].at, mpi.byte, parts, both[1].bytes, both[1].at, mpi.byte);
    count(op, op->count * op->element_bytes - own);
    *out_sum = parts + world * own;
    return fold(op, parts, own, *out_sum, err);
}

static strata_status all_reduce_small(const strata_operation *op, strata_error *err) {
    const size_t bytes = op->count * op->element_bytes, world = (size_t)op->comm->world;
    char *parts = strata_communicator_scratch(op->comm, world * bytes + 1, err);
    if (!parts) return STRATA_OUT_OF_MEMORY;
    CALL(op, Iallgather, op->in, (int)bytes, mpi.byte, parts, (int)bytes, mpi.byte);
    count(op, bytes * (world - 1));
    return fold(op, parts, bytes, op->out, err);
}

static strata_status all_reduce_large(const strata_operation *op, layout both[2], strata_error *err) {
    void *sum;
    STRATA_TRY(fold_own_slice(op, both, &sum, err));
    const int own = both[0].bytes[op->comm->rank];
    CALL(op, Iallgatherv, sum, own, mpi.byte, op->out, both[0].bytes, both[0].at, mpi.byte);
    count(op, (size_t)own * (size_t)(op->comm->world - 1));
    return STRATA_OK;
}

static strata_status run_all_reduce(const strata_operation *op, layout both[2], strata_error *err) {
    const size_t most = CHUNK_BYTES / op->element_bytes;
    strata_operation chunk = *op;
    for (size_t first = 0; first < op->count; first += most) {
        chunk.count = op->count - first < most ? op->count - first : most;
        chunk.in = (const char *)op->in + first * op->element_bytes;
        chunk.out = (char *)op->out + first * op->element_bytes;
        const bool small = chunk.count * op->element_bytes <= SMALL_BYTES;
        STRATA_TRY(small ? all_reduce_small(&chunk, err) : all_reduce_large(&chunk, both, err));
    }
    return STRATA_OK;
}

static strata_status run_reduce(const strata_operation *op, layout both[2], strata_error *err) {
    void *sum;
    STRATA_TRY(fold_own_slice(op, both, &sum, err));
    CALL(op, Igatherv, sum, both[0].bytes[op->comm->rank], mpi.byte, op->out, both[0].bytes, both[0].at, mpi.byte, op->root);
    return STRATA_OK;
}

static strata_status run_reduce_scatter(const strata_operation *op, layout both[2], strata_error *err) {
    void *sum;
    STRATA_TRY(fold_own_slice(op, both, &sum, err));
    const size_t own = slice_bytes(op, op->comm->rank);
    if (own) memcpy(op->out, sum, own);
    return STRATA_OK;
}

/* ---- moves ---- */

static strata_status run_broadcast(const strata_operation *op, layout both[2], strata_error *err) {
    char *at = op->out;
    (void)both;
    for (size_t left = op->count * op->element_bytes; left;) {
        const size_t n = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        CALL(op, Ibcast, at, (int)n, mpi.byte, op->root);
        if (op->comm->rank == op->root) count(op, n);
        at += n;
        left -= n;
    }
    return STRATA_OK;
}

static strata_status run_all_gather(const strata_operation *op, layout both[2], strata_error *err) {
    STRATA_TRY(lay_out(op, part_bytes, &both[0], err));
    const int own = both[0].bytes[op->comm->rank];
    const bool in_place = !op->in || op->in == (char *)op->out + both[0].at[op->comm->rank];
    CALL(op, Iallgatherv, in_place ? IN_PLACE : op->in, own, mpi.byte, op->out, both[0].bytes, both[0].at, mpi.byte);
    count(op, (size_t)own * (size_t)(op->comm->world - 1));
    return STRATA_OK;
}

static strata_status run_all_to_all(const strata_operation *op, layout both[2], strata_error *err) {
    STRATA_TRY(lay_out(op, part_bytes, &both[0], err));
    CALL(op, Ialltoallv, op->in, both[0].bytes, both[0].at, mpi.byte, op->out, both[0].bytes, both[0].at, mpi.byte);
    count(op, part_bytes(op, 0) * (size_t)(op->comm->world - 1));
    return STRATA_OK;
}

static strata_status run_gather(const strata_operation *op, layout both[2], strata_error *err) {
    STRATA_TRY(lay_out(op, part_bytes, &both[0], err));
    const int rank = op->comm->rank;
    const bool in_place = rank == op->root && op->in == (char *)op->out + both[0].at[rank];
    CALL(op, Igatherv, in_place ? IN_PLACE : op->in, both[0].bytes[rank], mpi.byte, op->out, both[0].bytes, both[0].at,
         mpi.byte, op->root);
    if (rank != op->root) count(op, (size_t)both[0].bytes[rank]);
    return STRATA_OK;
}

static strata_status run_scatter(const strata_operation *op, layout both[2], strata_error *err) {
    STRATA_TRY(lay_out(op, part_bytes, &both[0], err));
    const int rank = op->comm->rank;
    const bool in_place = rank == op->root && op->out == (const char *)op->in + both[0].at[rank];
    CALL(op, Iscatterv, op->in, both[0].bytes, both[0].at, mpi.byte, in_place ? IN_PLACE : op->out, both[0].bytes[rank],
         mpi.byte, op->root);
    return STRATA_OK;
}

/* All have come when they have agreed. */
static strata_status run_barrier(const strata_operation *op, layout both[2], strata_error *err) {
    (void)op;
    (void)both;
    (void)err;
    return STRATA_OK;
}

/* ---- one to one: the call goes before the data ---- */

static strata_status send_or_receive(const strata_operation *op, bool sends, strata_error *err) {
    const size_t bytes = op->count * op->element_bytes;
    strata_call theirs = {0};
    if (bytes > INT_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED, "engine mpi: more than 2 GiB in one message; make it several");
    if (sends) {
        CALL(op, Isend, &op->call, sizeof op->call, mpi.byte, op->root, TAG_CALL);
        CALL(op, Isend, op->in, (int)bytes, mpi.byte, op->root, TAG_DATA);
        count(op, bytes);
        return STRATA_OK;
    }
    CALL(op, Irecv, &theirs, sizeof theirs, mpi.byte, op->root, TAG_CALL);
    if (memcmp(&theirs, &op->call, sizeof theirs) != 0) {
        mpi.broken = true;
        return strata_communicator_mismatch(op->comm, &op->call, op->root, &theirs, err);
    }
    CALL(op, Irecv, op->out, (int)bytes, mpi.byte, op->root, TAG_DATA);
    return STRATA_OK;
}

/* ---- the engine ---- */

/* Every rank says what it calls; MPI itself does not notice another count. */
static strata_status agree(const strata_operation *op, strata_error *err) {
    const int world = op->comm->world;
    strata_call *calls = strata_communicator_scratch(op->comm, (size_t)world * sizeof *calls, err);
    if (!calls) return STRATA_OUT_OF_MEMORY;
    CALL(op, Iallgather, &op->call, sizeof *calls, mpi.byte, calls, sizeof *calls, mpi.byte);
    for (int r = 0; r < world; r++) {
        if (!memcmp(&calls[r], &op->call, sizeof *calls)) continue;
        const strata_call theirs = calls[r];
        mpi.broken = true;
        return strata_communicator_mismatch(op->comm, &op->call, r, &theirs, err);
    }
    return STRATA_OK;
}

static strata_status run(const strata_operation *op, strata_collective_kind kind, strata_error *err) {
    static strata_status (*const runs[STRATA_COLLECTIVE_COUNT])(const strata_operation *, layout[2], strata_error *) = {
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
    layout both[2];
    int *memory = make_layouts(op, both, err);
    if (!memory) return STRATA_OUT_OF_MEMORY;
    strata_status status = runs[kind](op, both, err);
    free(memory);
    return status;
}

static strata_status check_place(const strata_communicator *comm, strata_error *err) {
    int rank = -1, size = 0;
    mpi.Comm_rank(mpi.world, &rank);
    mpi.Comm_size(mpi.world, &size);
    if (rank == comm->peers[comm->rank].job_rank && size == comm->member->world) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       "engine mpi: this is rank %d of %d to MPI and rank %d of %d here; let mpirun say who is in the job",
                       rank, size, comm->peers[comm->rank].job_rank, comm->member->world);
}

static strata_status open(strata_communicator *comm, strata_error *err) {
    handle all = NULL, group = NULL, *link = NULL;
    STRATA_TRY(check_place(comm, err));
    int *ranks = calloc((size_t)comm->world, sizeof *ranks);
    link = calloc(1, sizeof *link);
    if (!ranks || !link) {
        free(ranks);
        free(link);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %d ranks", comm->world);
    }
    for (int r = 0; r < comm->world; r++) ranks[r] = comm->peers[r].job_rank;
    const bool bad = mpi.Comm_group(mpi.world, &all) || mpi.Group_incl(all, comm->world, ranks, &group) ||
                     mpi.Comm_create_group(mpi.world, group, (int)(comm->id % 32768), link) ||
                     mpi.Comm_set_errhandler(*link, mpi.errors_return);
    if (group) mpi.Group_free(&group);
    if (all) mpi.Group_free(&all);
    free(ranks);
    if (bad) {
        free(link);
        return strata_fail(err, STRATA_UNAVAILABLE, "engine mpi: MPI makes no communicator of %d ranks", comm->world);
    }
    comm->link = link;
    comm->segment_bytes = CHUNK_BYTES;
    return STRATA_OK;
}

/* MPI frees a communicator together with the others of it: those that failed are left to the end of the process. */
static void close(strata_communicator *comm) {
    if (!mpi.broken && !strata_member_failed(comm->member)) mpi.Comm_free(comm->link);
    free(comm->link);
    comm->link = NULL;
}

const strata_transport strata_transport_mpi = {.name = "mpi", .open = open, .close = close, .run = run};
