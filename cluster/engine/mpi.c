/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine mpi: a transport whose messages an installed MPI library carries, for clusters that have their own network and
 * launcher. The library is Open MPI, MPICH, or one with MPICH's binary interface; it is loaded at run time, because users have
 * one or the other (mpi_library.h). mpirun starts the job. Algorithms, the store, verdicts and heartbeats are those of other
 * transports, so the results have the same bits. MPI_Allreduce would add in an order that depends on size, ranks and algorithm.
 *
 * MPI cannot cancel a message that has begun. If a round fails because a rank is lost or makes no progress, MPI may still
 * read and write the memory of its messages later, so this is never the caller's: messages are copied to and from memory of
 * the link, which is abandoned when a round fails.
 *
 * MPI can be initialized only once in a process. The first communicator initializes it, and it is finalized at exit; hence
 * the static variables. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "cluster/communicator.h"
#include "cluster/engine/mpi_library.h"
#include "cluster/transport/memory.h"
#include "core/base/alloc.h"
#include "core/base/locked.h"

enum { THREAD_MULTIPLE = 3, TAG = 1 };

static const strata_mpi_library *const libraries[] = {&strata_mpi_library_open_mpi, &strata_mpi_library_mpich};

static struct {
    pthread_mutex_t lock;
    /* NULL: MPI was not searched for yet. */
    const strata_mpi_library *library;
    /* This file initialized MPI. */
    bool ready, ours;
    /* A communicator failed, so MPI_Finalize would wait for the lost rank. */
    atomic_bool broken;
    /* The memory of failed rounds, a list: each begins with the address of the next one. */
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
    STRATA_LOCKED(&mpi.lock);
    return call(err);
}

strata_status strata_mpi_find(strata_error *err) {
    return locked(find, err);
}

/* ---- messages ---- */

/* A message: what both sides compare, and the payload. */
typedef struct message {
    strata_call call;
    uint64_t bytes;
    _Alignas(64) unsigned char payload[];
} message;

typedef struct mpi_link {
    strata_mpi_handle comm;
    /* A message's room, and how many messages are received, and how many are sent, at most in a round. */
    size_t room;
    int most;
    /* The messages behind room for an address: [most] that are received, [most] that are sent. NULL: a round failed. */
    unsigned char *memory;
    /* Those of receives, then those of sends, of which one may be to all ranks. */
    strata_mpi_handle *requests;
} mpi_link;

static message *message_at(const mpi_link *l, int i) {
    return (message *)(void *)(l->memory + sizeof(message) + (size_t)i * l->room);
}

/* Leaves the memory of messages to MPI, which may use it as long as the process lives. */
static strata_status abandon(strata_communicator *comm, strata_status status) {
    mpi_link *l = comm->link;
    mpi.broken = true;
    STRATA_LOCKED(&mpi.lock);
    *(void **)(void *)l->memory = mpi.abandoned;
    mpi.abandoned = l->memory;
    l->memory = NULL;
    return status;
}

static strata_status failed(strata_communicator *comm, const strata_call *call, const char *what, strata_error *err) {
    return strata_communicator_fail(comm, call, STRATA_UNAVAILABLE, err, "%s failed", what);
}

/* Starts all messages of a round. *out_n: the number of requests. */
static strata_status start(strata_communicator *comm, const strata_call *call, const strata_send *sends, int n_sends,
                           const strata_receive *receives, int n_receives, int *out_n, strata_error *err) {
    const mpi_link *l = comm->link;
    int n = 0;
    for (; n < n_receives; n++)
        if (mpi.library->Irecv(message_at(l, n), (int)l->room, receives[n].peer, TAG, l->comm, &l->requests[n]))
            return failed(comm, call, "MPI_Irecv", err);
    for (int i = 0; i < n_sends; i++) {
        message *m = message_at(l, l->most + i);
        m->call = *call;
        m->bytes = sends[i].bytes;
        if (m->bytes) memcpy(m->payload, sends[i].data, m->bytes);
        for (int to = 0; to < comm->world; to++) {
            if (to == comm->rank || (sends[i].peer != STRATA_ALL_PEERS && sends[i].peer != to)) continue;
            if (mpi.library->Isend(m, (int)(sizeof *m + m->bytes), to, TAG, l->comm, &l->requests[n++]))
                return failed(comm, call, "MPI_Isend", err);
        }
    }
    *out_n = n;
    return STRATA_OK;
}

static strata_status take(strata_communicator *comm, const strata_call *call, strata_receive *receive, const message *m,
                          strata_error *err) {
    STRATA_TRY(strata_communicator_check(comm, call, receive->peer, &m->call, m->bytes, receive->bytes, err));
    if (receive->data && m->bytes) memcpy(receive->data, m->payload, m->bytes);
    receive->view = receive->data ? receive->data : m->payload;
    return STRATA_OK;
}

/* Checks for a verdict while it waits, because MPI itself does not detect that a rank has stopped. */
static strata_status finish_all(strata_communicator *comm, const strata_call *call, strata_receive *receives, int n_receives,
                                int n, strata_error *err) {
    enum { SPINS_BEFORE_YIELD = 200, SPINS_BEFORE_SLEEP = 4000, SPINS_PER_CHECK = 256 };
    const mpi_link *l = comm->link;
    double idle_since = strata_clock_seconds();
    for (int spins = 0, received = 0, sent = n_receives;; spins++) {
        const int before = received + sent;
        int done = 1;
        for (int i = 0; i < n_receives; i++) {
            if (receives[i].view) continue;
            if (mpi.library->Test(&l->requests[i], &done)) return failed(comm, call, "MPI_Test", err);
            if (!done) continue;
            STRATA_TRY(take(comm, call, &receives[i], message_at(l, i), err));
            received++;
        }
        for (done = 1; sent < n; sent++) {
            if (mpi.library->Test(&l->requests[sent], &done)) return failed(comm, call, "MPI_Test", err);
            if (!done) break;
        }
        if (received == n_receives && sent == n) return STRATA_OK;
        if (received + sent > before) {
            spins = 0;
            idle_since = strata_clock_seconds();
        }
        if (spins > SPINS_BEFORE_SLEEP)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        else if (spins > SPINS_BEFORE_YIELD)
            sched_yield();
        if (spins % SPINS_PER_CHECK) continue;
        STRATA_TRY(strata_seat_verdict(comm->seat, err));
        if (strata_clock_seconds() - idle_since > comm->stall_seconds)
            return strata_communicator_stalled(comm, call, receives, n_receives, err);
    }
}

static strata_status run_round(strata_communicator *comm, const strata_call *call, const strata_send *sends, int n_sends,
                               strata_receive *receives, int n_receives, strata_error *err) {
    int n = 0;
    for (int i = 0; i < n_receives; i++) receives[i].view = NULL;
    strata_status status = start(comm, call, sends, n_sends, receives, n_receives, &n, err);
    if (!status) status = finish_all(comm, call, receives, n_receives, n, err);
    return status ? abandon(comm, status) : STRATA_OK;
}

/* ---- the engine ---- */

static strata_status check_place(const strata_communicator *comm, strata_error *err) {
    int rank = -1, size = 0;
    if (mpi.library->place(&rank, &size))
        return strata_fail(err, STRATA_UNAVAILABLE, "engine mpi: MPI does not say this process's rank");
    if (rank == comm->peers[comm->rank].job_rank && size == comm->member->world) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       "engine mpi: this is rank %d of %d to MPI and rank %d of %d here; let mpirun say who is in the job",
                       rank, size, comm->peers[comm->rank].job_rank, comm->member->world);
}

/* MPI_Comm_free waits for all ranks of the communicator, so a failed communicator is not freed before the process ends. */
static void close(strata_communicator *comm) {
    mpi_link *l = comm->link;
    if (!mpi.broken && !strata_seat_failed(comm->seat)) mpi.library->Comm_free(&l->comm);
    free(l->memory);
    free(l->requests);
    free(l);
    comm->link = NULL;
}

static strata_status open(strata_communicator *comm, strata_error *err) {
    const size_t world = (size_t)comm->world, most = 2 * world + 2;
    STRATA_TRY(locked(begin, err));
    STRATA_TRY(check_place(comm, err));
    comm->segment_bytes = strata_memory_segment_bytes(comm->world);
    mpi_link made = {.room = sizeof(message) + comm->segment_bytes, .most = (int)most};
    STRATA_FREED int *ranks = calloc(world, sizeof *ranks);
    STRATA_FREED mpi_link *l = malloc(sizeof *l);
    STRATA_FREED unsigned char *memory = aligned_alloc(_Alignof(message), sizeof(message) + 2 * most * made.room);
    STRATA_FREED strata_mpi_handle *requests = calloc(2 * most + world, sizeof *requests);
    if (!ranks || !l || !memory || !requests)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %d ranks", comm->world);
    for (int r = 0; r < comm->world; r++) ranks[r] = comm->peers[r].job_rank;
    if (mpi.library->Comm_create(ranks, comm->world, (int)(comm->id % 32768), &made.comm))
        return strata_fail(err, STRATA_UNAVAILABLE, "engine mpi: MPI makes no communicator of %d ranks", comm->world);
    made.memory = memory;
    made.requests = requests;
    comm->link = l;
    *l = made;
    l = NULL, memory = NULL, requests = NULL;
    return STRATA_OK;
}

const strata_transport strata_transport_mpi = {.name = "mpi", .open = open, .close = close, .round = run_round};
