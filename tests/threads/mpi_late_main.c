/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine mpi over a library of this program, whose requests do not end. Each collective must fail after stall_seconds, and
 * what the library does with the request's memory afterwards must change nothing of the caller's, and nothing that was
 * allocated since. The definitions of the two libraries here replace those of open_mpi.c and mpich.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/engine/mpi_library.h"
#include "strata/strata.h"

enum { RANKS = 2, ELEMENTS = 9000, BLOCKS = 200, MOST_RANGES = 64, OURS = 0x11, LATE = 0xee };

static int rank, port, failures;
#define CHECK(condition, ...)                                      \
    do {                                                           \
        if (!(condition)) {                                        \
            failures++;                                            \
            fprintf(stderr, "rank %d, line %d: ", rank, __LINE__); \
            fprintf(stderr, __VA_ARGS__);                          \
            fprintf(stderr, "\n");                                 \
        }                                                          \
    } while (0)

/* ---- the library ---- */

/* With `hangs`, requests do not end after the next `n_sound` ones, and `ranges` is the memory that they may still use. Others
 * are carried out: a message goes through a socket, and a receive ends when it has come. */
static bool hangs;
static int n_sound, channel;
static struct {
    char *at;
    size_t bytes;
} ranges[MOST_RANGES], awaited;
static int n_ranges;
enum { ENDED, HANGS, RECEIVES };

static void note(const void *at, size_t bytes) {
    if (n_ranges == MOST_RANGES) return;
    ranges[n_ranges].at = (char *)(size_t)at;
    ranges[n_ranges++].bytes = bytes;
}

static const char *find(void *library) {
    (void)library;
    return NULL;
}

static int begin(bool *out_ours, int *out_threads) {
    *out_ours = true;
    *out_threads = 3;
    return 0;
}

static int finalize(void) {
    return 0;
}

static int place(int *out_rank, int *out_size) {
    *out_rank = rank;
    *out_size = RANKS;
    return 0;
}

static int comm_create(const int *ranks, int n, int tag, strata_mpi_handle *out_comm) {
    (void)ranks, (void)n, (void)tag;
    out_comm->number = 1;
    return 0;
}

static int comm_free(strata_mpi_handle *comm) {
    (void)comm;
    return 0;
}

static bool is_sound(void) {
    return !hangs || n_sound-- > 0;
}

static int test(strata_mpi_handle *request, int *out_done) {
    if (request->number == RECEIVES && recv(channel, awaited.at, awaited.bytes, MSG_DONTWAIT) > 0) request->number = ENDED;
    *out_done = request->number == ENDED;
    return 0;
}

static int isend(const void *data, int n, int to, int tag, strata_mpi_handle comm, strata_mpi_handle *out_request) {
    (void)to, (void)tag, (void)comm;
    const bool sound = is_sound();
    out_request->number = sound ? ENDED : HANGS;
    if (!sound) note(data, (size_t)n);
    return sound && send(channel, data, (size_t)n, 0) != n;
}

static int irecv(void *data, int n, int from, int tag, strata_mpi_handle comm, strata_mpi_handle *out_request) {
    (void)from, (void)tag, (void)comm;
    const bool sound = is_sound();
    out_request->number = sound ? RECEIVES : HANGS;
    awaited.at = data;
    awaited.bytes = (size_t)n;
    if (!sound) note(data, (size_t)n);
    return 0;
}

static const char *const file_names[] = {"libc.so.6", NULL};

#define LIBRARY(launcher)                                                                                          \
    {                                                                                                              \
        .name = "the test's MPI", .package = "none", .launched = launcher, .file_names = file_names, .find = find, \
        .begin = begin, .Finalize = finalize, .place = place, .Comm_create = comm_create, .Comm_free = comm_free,  \
        .Test = test, .Isend = isend, .Irecv = irecv                                                               \
    }
const strata_mpi_library strata_mpi_library_open_mpi = LIBRARY("STRATA_TEST_MPI_LATE"),
                         strata_mpi_library_mpich = LIBRARY("STRATA_TEST_NO_MPI");

/* ---- calls that hang ---- */

/* What the late requests do. */
static void deliver(void) {
    for (int i = 0; i < n_ranges; i++) memset(ranges[i].at, LATE, ranges[i].bytes);
    n_ranges = 0;
}

static bool is_ours(const void *memory, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)memory)[i] != OURS) return false;
    return true;
}

/* Calls a collective of which the request after the first `sound` ones hangs. */
static void call(strata_collective what, int sound) {
    static float in[RANKS * ELEMENTS], out[RANKS * ELEMENTS];
    static const size_t sizes[] = {16, 64, 200, 1000, sizeof out / RANKS, sizeof out, 3 * sizeof out};
    char store[64];
    snprintf(store, sizeof store, "127.0.0.1:%d", port++); /* rank 0 may still listen at the one before */
    const strata_communicator_options opts = {
        .rank = rank, .world = RANKS, .store = store, .engine = "mpi", .stall_seconds = 0.05, .connect_seconds = 20};
    strata_communicator *comm = NULL;
    strata_error err = {0};
    void *blocks[BLOCKS];
    hangs = false;
    CHECK(!strata_communicator_create(&opts, &comm, &err), "%s", err.message);
    if (!comm) return;
    what.in = in;
    what.out = out;
    hangs = true;
    n_sound = sound;
    const strata_status status = strata_communicator_run(comm, &what, &err);
    CHECK(status == STRATA_TIMEOUT && strstr(err.message, "no progress"), "collective %d: %s", (int)what.kind, err.message);
    CHECK(n_ranges, "collective %d did not hang", (int)what.kind);
    strata_communicator_destroy(comm);
    memset(in, OURS, sizeof in);
    memset(out, OURS, sizeof out);
    for (int i = 0; i < BLOCKS; i++) {
        const size_t bytes = sizes[i % (int)(sizeof sizes / sizeof *sizes)];
        blocks[i] = malloc(bytes);
        if (blocks[i]) memset(blocks[i], OURS, bytes);
    }
    deliver();
    CHECK(is_ours(in, sizeof in) && is_ours(out, sizeof out), "collective %d wrote the caller's memory later", (int)what.kind);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(!blocks[i] || is_ours(blocks[i], sizes[i % (int)(sizeof sizes / sizeof *sizes)]),
              "collective %d wrote memory that was freed", (int)what.kind);
        free(blocks[i]);
    }
}

static void call_all(void) {
    for (int kind = STRATA_ALL_REDUCE; kind <= STRATA_SCATTER; kind++)
        call((strata_collective){.kind = (strata_collective_kind)kind, .count = ELEMENTS}, 0);
    call((strata_collective){.kind = STRATA_ALL_REDUCE, .count = 10}, 0);       /* one message with all inputs */
    call((strata_collective){.kind = STRATA_ALL_REDUCE, .count = ELEMENTS}, 2); /* the second exchange hangs */
    call((strata_collective){.kind = rank ? STRATA_SEND : STRATA_RECV, .count = ELEMENTS, .root = !rank}, 0);
}

int main(void) {
    int status = 0, ends[2];
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), "no sockets");
    port = 20000 + (int)getpid() % 12000;
    setenv("STRATA_TEST_MPI_LATE", "1", 1);
    alarm(120);
    const pid_t child = fork();
    rank = child ? 0 : 1;
    channel = ends[rank];
    call_all();
    if (!child) return failures ? 1 : 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status), "the other rank failed");
    return failures ? 1 : 0;
}
