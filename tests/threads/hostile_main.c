/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as processes among strangers: thousands of junk connections, slow ones, a recorded handshake played again; ranks that
 * are killed at named points of their life, which this program's listen(), accept4(), connect() and sendmsg() bring about; and
 * what ranks that wait cost. */
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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* which keep memory, and cost time */
enum { MOST_GROWTH_KIB = 128 << 10, MOST_IDLE_PERCENT = 10 };
#else
enum { MOST_GROWTH_KIB = 8 << 10, MOST_IDLE_PERCENT = 1 };
#endif
enum { RANKS = 3, JUNK = 10000, AT_ONCE = 200, SLOW = 100, FRAME = 56, FRAME_DATA = 1, FRAME_LEAVE = 7, TOGETHER = 6 };

typedef struct outcome {
    strata_status status;
    double at, cpu, wall;       /* when it ended; seconds of processor and clock that waiting took */
    long rss_before, rss_after; /* KiB */
    strata_error err;
} outcome;

typedef struct board {
    outcome outcomes[RANKS];
    volatile int rounds, stop;
    volatile double killed_at;
} board;

static board *shared;
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

/* ---- points at which a rank dies: the library's calls come here first ---- */

typedef enum call { LISTEN, ACCEPT, CONNECT, SEND, SEND_DATA, SEND_LEAVE, NEVER } call;
typedef struct point {
    const char *name;
    call call, first_call; /* rank 0 takes where the others dial */
    int nth, first_nth;
    enum { BEFORE, HALF, AFTER } when;
} point;
static const point points[] = {
    {"before it listens", LISTEN, LISTEN, 1, 1, BEFORE},
    {"when it listens", LISTEN, LISTEN, 1, 1, AFTER},
    {"before the first connection", CONNECT, ACCEPT, 1, 1, BEFORE},
    {"in a greeting", SEND, SEND, 1, 1, HALF},
    {"before it proves the secret", SEND, SEND, 2, 2, BEFORE},
    {"before it tells about itself", SEND, SEND, 3, 3, BEFORE},
    {"when it has told about itself", SEND, SEND, 3, 5, AFTER},
    {"with its links half open", CONNECT, ACCEPT, 2, 3, AFTER},
    {"in the first barrier", SEND_DATA, SEND_DATA, 1, 1, BEFORE},
    {"between two messages", SEND_DATA, SEND_DATA, 6, 6, AFTER},
    {"within a message", SEND_DATA, SEND_DATA, 8, 8, HALF},
    {"when it leaves", SEND_LEAVE, SEND_LEAVE, 1, 1, BEFORE},
};
enum { POINTS = sizeof points / sizeof *points };

static const point *fate; /* of this process */
static bool is_first;
static atomic_int met;

static void die(void) {
    shared->killed_at = now();
    kill(getpid(), SIGKILL);
}

/* Whether this is the fatal call; the one before which to die does not return. */
static bool meets(call c) {
    if (!fate || c != (is_first ? fate->first_call : fate->call)) return false;
    if (atomic_fetch_add(&met, 1) + 1 != (is_first ? fate->first_nth : fate->nth)) return false;
    if (fate->when == BEFORE) die();
    return true;
}

int listen(int fd, int backlog) {
    const bool fatal = meets(LISTEN);
    const int result = (int)syscall(SYS_listen, fd, backlog);
    if (fatal) die();
    return result;
}

int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict size, int flags) {
    const int result = (int)syscall(SYS_accept4, fd, address, size, flags);
    if (result >= 0 && meets(ACCEPT)) die();
    return result;
}

int connect(int fd, const struct sockaddr *address, socklen_t size) {
    const bool fatal = meets(CONNECT);
    const int result = (int)syscall(SYS_connect, fd, address, size);
    if (fatal) die();
    return result;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    const struct iovec *first = message->msg_iov;
    const bool is_frame = first->iov_len >= FRAME && !memcmp(first->iov_base, "STR1", 4);
    const unsigned char type = is_frame ? ((const unsigned char *)first->iov_base)[4] : 0;
    const bool fatal = meets(SEND) || (type == FRAME_DATA && meets(SEND_DATA)) || (type == FRAME_LEAVE && meets(SEND_LEAVE));
    if (fatal && fate->when == HALF) {
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

/* The others are waited for: rank 2 comes to the barrier late. */
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
    double connect_seconds, late; /* of rank 2 */
    bool idle;
    const point *fate;
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
                                              .connect_seconds = j->connect_seconds};
    strata_communicator *comm = NULL;
    outcome *o = &shared->outcomes[rank];
    if (rank == 2) pause_for(j->late);
    if (rank == j->victim) fate = j->fate;
    is_first = rank == 0;
    o->status = strata_communicator_create(&opts, &comm, &o->err);
    o->rss_before = resident();
    if (!o->status) o->status = j->idle ? wait_idly(comm, rank, o, &o->err) : work(comm, rank, &o->err);
    o->rss_after = resident();
    if (is_first) meets(SEND_LEAVE); /* it leaves as the last, and tells nobody */
    strata_communicator_destroy(comm);
    o->at = now();
}

/* The port stays bound here, so that jobs beside this one get others; rank 0 may listen there, as it sets SO_REUSEADDR. */
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
    shared->stop = j->fate != NULL && j->fate->call == SEND_LEAVE;
    find_store();
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r]) continue;
        alarm(240);
        run_rank(j, r);
        _exit(0);
    }
}

static void wait_for_round(int n) {
    for (int i = 0; i < 6000 && shared->rounds < n; i++) pause_for(0.005);
}

static void finish(pid_t pids[RANKS]) {
    for (int r = 0; r < RANKS; r++) waitpid(pids[r], NULL, 0);
}

/* All ranks ended well. */
static void check_well(const char *what) {
    for (int r = 0; r < RANKS; r++)
        check(!shared->outcomes[r].status && shared->outcomes[r].at > 0, what, shared->outcomes[r].err.message);
}

/* ---- strangers ---- */

static int dial(void) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || (connect(fd, (struct sockaddr *)&store_address, sizeof store_address) && errno != EINPROGRESS)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* 10,000 connections, 200 at a time, that say nonsense, nothing, or half of a greeting, while the ranks add up. */
static void junk(void) {
    static const char *const words[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "", "STRATA1\n", "\x16\x03\x01\x02\x00\x01",
                                        "STRATA1\n01234567890123456789012345678901"};
    const job j = {.transport = "tcp", .connect_seconds = 20, .victim = -1};
    pid_t pids[RANKS];
    char text[200];
    start(&j, pids);
    wait_for_round(3);
    const int rounds = shared->rounds;
    const double began = now();
    for (int i = 0; i < JUNK / AT_ONCE; i++) {
        int fds[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++) fds[k] = dial();
        for (int k = 0; k < AT_ONCE; k++) {
            const char *word = words[k % 5];
            if (fds[k] >= 0 && *word && send(fds[k], word, strlen(word), MSG_NOSIGNAL) < 0) continue; /* thrown out already */
        }
        pause_for(0.01);
        for (int k = 0; k < AT_ONCE; k++)
            if (fds[k] >= 0) close(fds[k]);
    }
    const double took = now() - began;
    const int more = shared->rounds - rounds;
    wait_for_round(shared->rounds + 3);
    shared->stop = 1;
    finish(pids);
    check_well("a job among junk");
    const outcome *o = &shared->outcomes[0];
    snprintf(text, sizeof text, "%d rounds in %.1f s meanwhile; rank 0 grew from %ld to %ld KiB", more, took, o->rss_before,
             o->rss_after);
    check(more >= 10 && took < 30 && o->rss_after - o->rss_before < MOST_GROWTH_KIB, "10,000 junk connections", text);
    printf("10,000 junk connections: %s\n", text);
}

/* One more byte of the text; false where it is over, or nobody wants it. */
static bool say_next(int fd, const char *text, int *said) {
    if (!text[*said]) return false;
    if (send(fd, text + *said, 1, MSG_NOSIGNAL) < 0) return errno == EAGAIN;
    ++*said;
    return true;
}

/* 100 connections that give their greeting a byte at a time, and come again when they are thrown out: a late rank finds room
 * all the same. */
static void slow_loris(void) {
    static const char greeting[] = "STRATA1\n0123456789012345678901234567890";
    const job j = {.transport = "tcp", .connect_seconds = 20, .late = 0.7, .victim = -1};
    pid_t pids[RANKS];
    int fds[SLOW], said[SLOW];
    memset(fds, -1, sizeof fds);
    start(&j, pids);
    pause_for(0.2);
    const double began = now();
    for (double end = began + 15; now() < end && shared->rounds < 3; pause_for(0.02))
        for (int k = 0; k < SLOW; k++) {
            if (fds[k] < 0) fds[k] = dial(), said[k] = 0;
            if (fds[k] < 0 || say_next(fds[k], greeting, &said[k])) continue;
            close(fds[k]);
            fds[k] = -1;
        }
    check(shared->rounds >= 3, "slow strangers", "the late rank was kept out for 15 s");
    printf("100 slow strangers: the late rank came in, %.1f s\n", now() - began);
    shared->stop = 1;
    finish(pids);
    check_well("a job among slow strangers");
    for (int k = 0; k < SLOW; k++)
        if (fds[k] >= 0) close(fds[k]);
}

/* ---- a handshake played again ---- */

static bool take(int fd, char *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const ssize_t got = poll(&p, 1, 2000) > 0 ? recv(fd, bytes + done, n - done, 0) : -1;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

/* Between rank 2 and the store: hands on and keeps what rank 2 says in its handshake, 40 and 48 bytes, answered by 40 and
 * 32. */
static bool record(int rank, int to, char said[88]) {
    char answer[40];
    return take(rank, said, 40) && send(to, said, 40, 0) == 40 && take(to, answer, 40) && send(rank, answer, 40, 0) == 40 &&
           take(rank, said + 40, 48) && send(to, said + 40, 48, 0) == 48 && take(to, answer, 32) &&
           send(rank, answer, 32, 0) == 32;
}

static int dial_and_wait(void) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < 400 && connect(fd, (struct sockaddr *)&store_address, sizeof store_address); i++) pause_for(0.005);
    return fd;
}

/* The words of rank 2, said again by a stranger while the job runs, and before another rank 2 could come: rank 0 greets, and
 * closes. */
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
    const job j = {.transport = "shm", .connect_seconds = 5, .victim = -1};
    pid_t pids[RANKS];
    snprintf(own, sizeof own, "127.0.0.1:%d", ntohs(here.sin_port));
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r]) continue;
        alarm(240);
        if (r == 2) strcpy(store, own);
        run_rank(&j, r);
        _exit(0);
    }
    const int rank = accept4(listener, NULL, NULL, SOCK_CLOEXEC), to = dial_and_wait();
    check(record(rank, to, said), "a replayed handshake", "the true one does not go through");
    /* From here on bytes are only handed on, by a child. */
    const pid_t relay = fork();
    if (!relay) {
        struct pollfd p[2] = {{.fd = rank, .events = POLLIN}, {.fd = to, .events = POLLIN}};
        char bytes[4096];
        while (poll(p, 2, 10000) > 0)
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
        check(greeted, "a replayed handshake", "rank 0 does not greet");
        check(!take(fd, answer, 1), "a replayed handshake", "rank 0 believes it");
        close(fd);
    }
    const int rounds = shared->rounds;
    wait_for_round(rounds + 2);
    check(shared->rounds >= rounds + 2, "a replayed handshake", "the job stood still");
    shared->stop = 1;
    finish(pids);
    waitpid(relay, NULL, 0);
    printf("a handshake was played again, 20 times\n");
    check_well("a job whose handshake was played again");
    close(listener);
}

/* ---- kills ---- */

static void kill_at(const point *p, int victim) {
    const double connect_seconds = 5;
    const job j = {.transport = "tcp", .connect_seconds = connect_seconds, .fate = p, .victim = victim};
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
        /* One that never came is missed when the time for coming is over. */
        check(o->at - shared->killed_at < 3 || o->at - began < connect_seconds + 5 || leaving, what, "too late");
        check(o->at - shared->killed_at < connect_seconds + 5, what, "too late");
    }
}

/* Each in a process of its own, some at a time: they mostly wait. */
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

/* ---- waiting ---- */

static void idle(const char *transport) {
    const job j = {.transport = transport, .connect_seconds = 10, .idle = true, .victim = -1};
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
    slow_loris();
    replay();
    kill_everywhere();
    return failures ? 1 : 0;
}
