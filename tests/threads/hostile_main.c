/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs ranks as processes and attacks their job: thousands of connections that send invalid bytes, slow connections, and a
 * recorded handshake that is sent again. It also kills ranks at certain points; for this the program replaces listen(),
 * accept4(), connect() and sendmsg() of the C library. And it measures the processor time of ranks that wait. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "strata/cluster.h"
#include "tests/support/patience.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* sanitizers need memory and time themselves */
enum { MOST_GROWTH_KIB = 128 << 10, MOST_IDLE_PERCENT = 10 };
#else
enum { MOST_GROWTH_KIB = 8 << 10, MOST_IDLE_PERCENT = 1 };
#endif
enum { RANKS = 3, JUNK = 10000, AT_ONCE = 200, SLOW = 100, FRAME = 56, FRAME_DATA = 1, FRAME_LEAVE = 7, TOGETHER = 12 };

typedef struct outcome {
    strata_status status;
    /* When the rank ended; processor time and elapsed time of its wait in seconds. */
    double at, cpu, wall;
    /* Resident memory in KiB. */
    long rss_before, rss_after;
    strata_error err;
} outcome;

typedef struct shared_state {
    outcome outcomes[RANKS];
    volatile int rounds, stop;
    volatile double killed_at;
} shared_state;

static shared_state *shared;
static char store[32];
static struct sockaddr_in store_address;
static int failures;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pause_for(double seconds) {
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

static void check(bool ok, const char *what, const char *more) {
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, more);
    failures++;
}

/* ---- points at which a rank is killed, in functions that replace those of the C library ---- */

typedef enum call { LISTEN, ACCEPT, CONNECT, SEND, SEND_DATA, SEND_LEAVE, NEVER } call;
typedef struct point {
    const char *name;
    /* The call at which the rank is killed; first_call for rank 0, which accepts connections where other ranks connect. */
    call call, first_call;
    /* At which call of this kind, counted from 1. */
    int nth, first_nth;
    enum { BEFORE, HALF, AFTER } when;
} point;
static const point points[] = {
    {"before it listens", LISTEN, LISTEN, 1, 1, BEFORE},
    {"when it listens", LISTEN, LISTEN, 1, 1, AFTER},
    {"before the first connection", CONNECT, ACCEPT, 1, 1, BEFORE},
    {"within the first message of the handshake", SEND, SEND, 1, 1, HALF},
    {"before it proves that it has the secret", SEND, SEND, 2, 2, BEFORE},
    {"before it sends its address", SEND, SEND, 3, 3, BEFORE},
    {"after it has sent its address", SEND, SEND, 3, 5, AFTER},
    {"when only some links are open", CONNECT, ACCEPT, 2, 3, AFTER},
    {"in the first barrier", SEND_DATA, SEND_DATA, 1, 1, BEFORE},
    {"between two messages", SEND_DATA, SEND_DATA, 6, 6, AFTER},
    {"within a message", SEND_DATA, SEND_DATA, 8, 8, HALF},
    {"when it leaves", SEND_LEAVE, SEND_LEAVE, 1, 1, BEFORE},
};
enum { POINTS = sizeof points / sizeof *points };

/* The point at which this process is killed. NULL: it is not killed. */
static const point *kill_point;
static bool is_first;
static atomic_int n_calls;

static void die(void) {
    shared->killed_at = now();
    kill(getpid(), SIGKILL);
}

/* Whether the process is to be killed at this call. For a point of the kind BEFORE it kills the process at once. */
static bool reaches_kill_point(call c) {
    if (!kill_point || c != (is_first ? kill_point->first_call : kill_point->call)) return false;
    if (atomic_fetch_add(&n_calls, 1) + 1 != (is_first ? kill_point->first_nth : kill_point->nth)) return false;
    if (kill_point->when == BEFORE) die();
    return true;
}

int listen(int fd, int backlog) {
    const bool fatal = reaches_kill_point(LISTEN);
    const int result = (int)syscall(SYS_listen, fd, backlog);
    if (fatal) die();
    return result;
}

int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict size, int flags) {
    const int result = (int)syscall(SYS_accept4, fd, address, size, flags);
    if (result >= 0 && reaches_kill_point(ACCEPT)) die();
    return result;
}

int connect(int fd, const struct sockaddr *address, socklen_t size) {
    const bool fatal = reaches_kill_point(CONNECT);
    const int result = (int)syscall(SYS_connect, fd, address, size);
    if (fatal) die();
    return result;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    const struct iovec *first = message->msg_iov;
    const bool is_frame = first->iov_len >= FRAME && !memcmp(first->iov_base, "STR2", 4);
    const unsigned char type = is_frame ? ((const unsigned char *)first->iov_base)[4] : 0;
    const bool fatal = reaches_kill_point(SEND) || (type == FRAME_DATA && reaches_kill_point(SEND_DATA)) ||
                       (type == FRAME_LEAVE && reaches_kill_point(SEND_LEAVE));
    if (fatal && kill_point->when == HALF) {
        if (syscall(SYS_sendto, fd, first->iov_base, first->iov_len / 2, MSG_NOSIGNAL, NULL, 0) >= 0) die();
        die();
    }
    const ssize_t result = syscall(SYS_sendmsg, fd, message, flags);
    if (fatal) die();
    return result;
}

/* ---- a rank ---- */

static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static strata_status work(strata_communicator *comm, int rank, strata_error *err) {
    enum { ELEMENTS = 20000 };
    static float data[ELEMENTS];
    for (float more = 1; more != 0;) {
        for (int i = 0; i < ELEMENTS; i++) data[i] = (float)(i % 1000 + rank);
        STRATA_TRY(strata_communicator_all_reduce(comm, data, ELEMENTS, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, err));
        for (int i = 0; i < ELEMENTS; i++)
            if (data[i] != (float)(3 * (i % 1000) + 3)) return strata_fail(err, STRATA_INTERNAL, "a wrong sum");
        more = (float)!shared->stop;
        STRATA_TRY(strata_communicator_broadcast(comm, &more, 1, STRATA_DTYPE_F32, 0, err));
        if (rank == 0) shared->rounds++;
    }
    return STRATA_OK;
}

/* Measures the processor time of ranks 0 and 1 while they wait for rank 2 in a barrier. */
static strata_status wait_idly(strata_communicator *comm, int rank, outcome *o, strata_error *err) {
    struct rusage before, after;
    STRATA_TRY(strata_communicator_barrier(comm, err));
    getrusage(RUSAGE_SELF, &before);
    const double began = now();
    if (rank == 2) pause_for(3);
    STRATA_TRY(strata_communicator_barrier(comm, err));
    getrusage(RUSAGE_SELF, &after);
    o->wall = now() - began;
    o->cpu =
        (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
        1e-6 * (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec);
    return STRATA_OK;
}

typedef struct job {
    const char *transport;
    /* `late`: rank 2 starts so many seconds later. */
    double connect_seconds, late;
    bool idle;
    const point *kill_point;
    int victim;
} job;

static void run_rank(const job *j, int rank) {
    static const char secret[] = "not for strangers";
    const strata_communicator_options opts = {.rank = rank,
                                              .world = RANKS,
                                              .store = store,
                                              .transport = j->transport,
                                              .secret = secret,
                                              .secret_bytes = sizeof secret,
                                              .heartbeat_seconds = TEST_CALM_HEARTBEAT,
                                              .connect_seconds = j->connect_seconds};
    strata_communicator *comm = NULL;
    outcome *o = &shared->outcomes[rank];
    if (rank == 2) pause_for(j->late);
    if (rank == j->victim) kill_point = j->kill_point;
    is_first = rank == 0;
    o->status = strata_communicator_create(&opts, &comm, &o->err);
    o->rss_before = resident();
    if (!o->status) o->status = j->idle ? wait_idly(comm, rank, o, &o->err) : work(comm, rank, &o->err);
    o->rss_after = resident();
    if (is_first) reaches_kill_point(SEND_LEAVE); /* rank 0 leaves last and so sends no such message */
    strata_communicator_destroy(comm);
    o->at = now();
}

/* Chooses the store's port. It stays bound in this process, so that other jobs get other ports. Rank 0 can still listen on it,
 * because it sets SO_REUSEADDR. */
static void find_store(void) {
    static int held = -1;
    const int yes = 1;
    socklen_t size = sizeof store_address;
    if (held >= 0) close(held);
    store_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
        bind(fd, (struct sockaddr *)&store_address, size) || getsockname(fd, (struct sockaddr *)&store_address, &size)) {
        printf("skipped: no sockets here: %s\n", strerror(errno));
        exit(77);
    }
    held = fd;
    snprintf(store, sizeof store, "127.0.0.1:%d", ntohs(store_address.sin_port));
}

static void start(const job *j, pid_t pids[RANKS]) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) abort();
    shared->stop = j->kill_point != NULL && j->kill_point->call == SEND_LEAVE;
    find_store();
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r]) continue;
        alarm(10 * TEST_PATIENCE);
        run_rank(j, r);
        _exit(0);
    }
}

static void wait_for_round(int n) {
    for (int i = 0; i < 40000 && shared->rounds < n; i++) pause_for(0.005);
}

static void finish(pid_t pids[RANKS]) {
    for (int r = 0; r < RANKS; r++) waitpid(pids[r], NULL, 0);
}

/* Checks that all ranks succeeded. */
static void check_well(const char *what) {
    for (int r = 0; r < RANKS; r++)
        check(!shared->outcomes[r].status && shared->outcomes[r].at > 0, what, shared->outcomes[r].err.message);
}

/* ---- connections that do not belong to the job ---- */

static int dial(void) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || (connect(fd, (struct sockaddr *)&store_address, sizeof store_address) && errno != EINPROGRESS)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Makes 10,000 connections, 200 at a time, which send invalid bytes, nothing, or half of a handshake, while the ranks compute
 * sums. */
static void junk(void) {
    static const char *const words[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "", "STRATA3\n", "\x16\x03\x01\x02\x00\x01",
                                        "STRATA3\n01234567890123456789012345678901"};
    const job j = {.transport = "tcp", .connect_seconds = 2 * TEST_PATIENCE, .victim = -1};
    pid_t pids[RANKS];
    char text[200];
    start(&j, pids);
    wait_for_round(3);
    const int rounds = shared->rounds;
    const double end = now() + TEST_PATIENCE;
    for (int i = 0; i < JUNK / AT_ONCE || (shared->rounds < rounds + 10 && now() < end); i++) {
        int fds[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++) fds[k] = dial();
        for (int k = 0; k < AT_ONCE; k++) {
            const char *word = words[k % 5];
            /* send fails on a connection that rank 0 has closed already. */
            if (fds[k] >= 0 && *word && send(fds[k], word, strlen(word), MSG_NOSIGNAL) < 0) continue;
        }
        pause_for(0.01);
        for (int k = 0; k < AT_ONCE; k++)
            if (fds[k] >= 0) close(fds[k]);
    }
    const int more = shared->rounds - rounds;
    wait_for_round(shared->rounds + 3);
    shared->stop = 1;
    finish(pids);
    check_well("a job with junk connections");
    const outcome *o = &shared->outcomes[0];
    snprintf(text, sizeof text, "%d rounds meanwhile; rank 0 grew from %ld to %ld KiB", more, o->rss_before, o->rss_after);
    check(more >= 10 && o->rss_after - o->rss_before < MOST_GROWTH_KIB, "10,000 junk connections", text);
    printf("10,000 junk connections: %s\n", text);
}

/* Sends the next byte of the text. Returns false at its end, or when the other side has closed the connection. */
static bool say_next(int fd, const char *text, int *said) {
    if (!text[*said]) return false;
    if (send(fd, text + *said, 1, MSG_NOSIGNAL) < 0) return errno == EAGAIN;
    ++*said;
    return true;
}

/* Makes 100 connections that send the handshake one byte at a time, and that connect again when rank 0 closes them. A late rank
 * must be able to join nevertheless. */
static void slow_connections(void) {
    static const char greeting[] = "STRATA3\n0123456789012345678901234567890";
    const job j = {.transport = "tcp", .connect_seconds = 2 * TEST_PATIENCE, .late = 0.7, .victim = -1};
    pid_t pids[RANKS];
    int fds[SLOW], said[SLOW];
    memset(fds, -1, sizeof fds);
    start(&j, pids);
    pause_for(0.2);
    const double began = now();
    for (double end = began + TEST_PATIENCE; now() < end && shared->rounds < 3; pause_for(0.02))
        for (int k = 0; k < SLOW; k++) {
            if (fds[k] < 0) fds[k] = dial(), said[k] = 0;
            if (fds[k] < 0 || say_next(fds[k], greeting, &said[k])) continue;
            close(fds[k]);
            fds[k] = -1;
        }
    check(shared->rounds >= 3, "slow connections", "the late rank could not join");
    printf("100 slow connections: the late rank joined after %.1f s\n", now() - began);
    shared->stop = 1;
    finish(pids);
    check_well("a job with slow connections");
    for (int k = 0; k < SLOW; k++)
        if (fds[k] >= 0) close(fds[k]);
}

/* More connections than rank 0 shakes hands with at a time, which say nothing, as those of a port scanner. They stay, and a
 * late rank joins at once nevertheless. */
static void silent_connections(void) {
    const job j = {.transport = "tcp", .connect_seconds = 2 * TEST_PATIENCE, .late = 0.7, .victim = -1};
    pid_t pids[RANKS];
    int fds[SLOW];
    start(&j, pids);
    pause_for(0.2);
    for (int k = 0; k < SLOW; k++) fds[k] = dial();
    const double began = now();
    while (now() < began + TEST_PATIENCE && shared->rounds < 3) pause_for(0.01); /* rank 0 bears with them for longer */
    const double took = now() - began;
    check(shared->rounds >= 3, "silent connections", "the late rank did not join");
    printf("%d silent connections: the late rank joined after %.1f s\n", SLOW, took);
    shared->stop = 1;
    finish(pids);
    check_well("a job with silent connections");
    for (int k = 0; k < SLOW; k++)
        if (fds[k] >= 0) close(fds[k]);
}

/* ---- a replayed handshake ---- */

static bool take(int fd, char *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const ssize_t got = poll(&p, 1, 1000 * TEST_PATIENCE) > 0 ? recv(fd, bytes + done, n - done, 0) : -1;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

/* Forwards the handshake between rank 2 and the store, and records what rank 2 sends: 40 and then 48 bytes. The store answers
 * with 40 and then 32 bytes. */
static bool record(int rank, int to, char said[88]) {
    char answer[40];
    return take(rank, said, 40) && send(to, said, 40, 0) == 40 && take(to, answer, 40) && send(rank, answer, 40, 0) == 40 &&
           take(rank, said + 40, 48) && send(to, said + 40, 48, 0) == 48 && take(to, answer, 32) &&
           send(rank, answer, 32, 0) == 32;
}

static int dial_and_wait(void) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < 20000 && connect(fd, (struct sockaddr *)&store_address, sizeof store_address); i++) pause_for(0.005);
    return fd;
}

/* Sends the recorded handshake of rank 2 again, on other connections, while the job runs. Rank 0 must answer the first message
 * and then close the connection. */
static void replay(void) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    char own[32], said[88], answer[41];
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&here, size) || listen(listener, 4) ||
        getsockname(listener, (struct sockaddr *)&here, &size))
        abort();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    find_store();
    const job j = {.transport = "shm", .connect_seconds = TEST_PATIENCE, .victim = -1};
    pid_t pids[RANKS];
    snprintf(own, sizeof own, "127.0.0.1:%d", ntohs(here.sin_port));
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r]) continue;
        alarm(10 * TEST_PATIENCE);
        if (r == 2) strcpy(store, own);
        run_rank(&j, r);
        _exit(0);
    }
    const int rank = accept4(listener, NULL, NULL, SOCK_CLOEXEC), to = dial_and_wait();
    check(record(rank, to, said), "a replayed handshake", "the original handshake fails");
    /* From here on a child process forwards the bytes between rank 2 and the store. */
    const pid_t relay = fork();
    if (!relay) {
        struct pollfd p[2] = {{.fd = rank, .events = POLLIN}, {.fd = to, .events = POLLIN}};
        char bytes[4096];
        while (poll(p, 2, 1000 * TEST_PATIENCE) > 0)
            for (int i = 0; i < 2; i++) {
                const ssize_t n = p[i].revents ? recv(p[i].fd, bytes, sizeof bytes, 0) : 1;
                if (n <= 0 || (p[i].revents && send(p[!i].fd, bytes, (size_t)n, MSG_NOSIGNAL) != n)) _exit(0);
            }
        _exit(0);
    }
    close(rank);
    close(to);
    wait_for_round(2);
    check(shared->rounds >= 2, "a replayed handshake", "the job does not run");
    for (int i = 0; i < 20; i++) {
        const int fd = dial_and_wait();
        const bool greeted =
            send(fd, said, 40, MSG_NOSIGNAL) == 40 && take(fd, answer, 40) && send(fd, said + 40, 48, MSG_NOSIGNAL) == 48;
        check(greeted, "a replayed handshake", "rank 0 does not answer the first message");
        check(!take(fd, answer, 1), "a replayed handshake", "rank 0 accepts it");
        close(fd);
    }
    const int rounds = shared->rounds;
    wait_for_round(rounds + 2);
    check(shared->rounds >= rounds + 2, "a replayed handshake", "the job made no progress");
    shared->stop = 1;
    finish(pids);
    waitpid(relay, NULL, 0);
    printf("a handshake was replayed 20 times\n");
    check_well("a job with a replayed handshake");
    close(listener);
}

/* ---- kills ---- */

static void kill_at(const point *p, int victim) {
    /* When the victim was killed before it connected, the others fail only after connect_seconds. */
    const job j = {.transport = "tcp", .connect_seconds = 20, .kill_point = p, .victim = victim};
    pid_t pids[RANKS];
    char who[32], what[160];
    start(&j, pids);
    const double began = now();
    finish(pids);
    snprintf(who, sizeof who, "rank %d", victim);
    check(shared->killed_at > 0, p->name, "was not reached");
    for (int r = 0; r < RANKS; r++) {
        const outcome *o = &shared->outcomes[r];
        const bool leaving = p->call == SEND_LEAVE;
        if (r == victim) continue;
        snprintf(what, sizeof what, "%s was killed %s; rank %d, %.2f s after it, %.2f s after the start", who, p->name, r,
                 o->at - shared->killed_at, o->at - began);
        check(o->at > 0, what, "hung");
        check(leaving || (o->status && strstr(o->err.message, who)), what, o->err.message);
        /* The victim's silence would be noticed later. */
        check(o->at - shared->killed_at < TEST_PATIENCE, what, "too late");
    }
}

/* Runs each kill in a process of its own, TOGETHER of them at a time, since they mostly wait. */
static void kill_everywhere(void) {
    const double began = now();
    int ended, n = 0;
    fflush(NULL);
    for (int i = 0; i < POINTS * RANKS; i++) {
        if (!fork()) {
            failures = 0;
            kill_at(&points[i / RANKS], i % RANKS);
            _exit(failures ? 1 : 0);
        }
        if (++n < TOGETHER) continue;
        wait(&ended);
        failures += ended != 0;
        n--;
    }
    for (; n; n--) {
        wait(&ended);
        failures += ended != 0;
    }
    printf("%d kills at %d points: %.1f s\n", POINTS * RANKS, POINTS, now() - began);
}

/* ---- the cost of waiting ---- */

static void idle(const char *transport) {
    const job j = {.transport = transport, .connect_seconds = TEST_PATIENCE, .idle = true, .victim = -1};
    pid_t pids[RANKS];
    char text[100];
    start(&j, pids);
    finish(pids);
    check_well("ranks that wait");
    for (int r = 0; r < RANKS; r++) {
        const outcome *o = &shared->outcomes[r];
        snprintf(text, sizeof text, "rank %d over %s: %.2f %% of a processor", r, transport, 100 * o->cpu / o->wall);
        check(o->wall > 2.9 && o->cpu < MOST_IDLE_PERCENT * o->wall / 100, "a rank that waits", text);
        printf("waiting, %s\n", text);
    }
}

int main(void) {
    idle("tcp");
    idle("shm");
    junk();
    slow_connections();
    silent_connections();
    replay();
    kill_everywhere();
    return failures ? 1 : 0;
}
