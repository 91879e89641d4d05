/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs ranks as processes. In each scenario a rank is killed, is stopped, starts late, never starts, starts twice, or has
 * another secret, or connections are made that do not belong to the job. All other ranks must fail in time, with the same
 * error. It does not use a test framework, because a failed assertion in a forked process would hang. */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "strata/cluster.h"
#include "tests/support/patience.h"
#include "tests/support/ports.h"

enum { RANKS = 3, ELEMENTS = 200000, JUNK = 500, KILLS = 36 };

typedef struct outcome {
    strata_status status;
    double at; /* when the last call returned */
    strata_error err;
} outcome;

/* Memory that all processes of a scenario share. */
typedef struct shared_state {
    outcome outcomes[RANKS];
    volatile int stop; /* the ranks end after this round */
    volatile int rounds[RANKS];
} shared_state;

typedef struct scenario {
    const char *name, *transport;
    double heartbeat, connect;
    /* The rank that misbehaves. -1: none. */
    int victim;
    /* The victim gets this signal after `delay` seconds. 0: it gets none, and rank 1 starts `delay` seconds late. */
    int signal;
    double delay;
    /* The victim never starts. */
    bool absent;
    /* The victim starts with the number of rank 1, and is the second of the two; if it came first, check swaps them. */
    bool twice;
    /* The victim has another secret. */
    bool stranger;
    /* Connections that do not belong to the job are made. */
    bool junk;
    /* The status of all ranks but the victim. */
    strata_status expected;
    /* Their message contains this text. */
    const char *text;
    /* They fail within this time after the signal. */
    double most_seconds;
} scenario;

static shared_state *shared;
static struct sockaddr_in store_address;
static char store[32];
static int failures;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pause_for(double seconds) {
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

static void bad(const scenario *s, const char *what, int rank) {
    const outcome *o = &shared->outcomes[rank < 0 ? 0 : rank];
    fprintf(stderr, "%s over %s: %s (rank %d: %s: %s)\n", s->name, s->transport, what, rank, strata_status_name(o->status),
            o->err.message);
    failures++;
}

/* ---- a rank ---- */

static strata_status work(strata_communicator *comm, int rank, strata_error *err) {
    static float data[ELEMENTS];
    for (;;) {
        float more = rank == 0 ? (float)!shared->stop : 0; /* rank 0 broadcasts whether to continue */
        memset(data, 0, sizeof data);
        STRATA_TRY(strata_communicator_all_reduce(comm, data, ELEMENTS, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, err));
        STRATA_TRY(strata_communicator_broadcast(comm, &more, 1, STRATA_DTYPE_F32, 0, err));
        shared->rounds[rank]++;
        if (more == 0) return STRATA_OK;
    }
}

static void run_rank(const scenario *s, int rank) {
    const bool victim = rank == s->victim;
    const strata_communicator_options opts = {.rank = victim && s->twice ? 1 : rank,
                                              .world = RANKS,
                                              .store = store,
                                              .transport = s->transport,
                                              .secret = victim && s->stranger ? "another" : "one of us",
                                              .secret_bytes = 7,
                                              .heartbeat_seconds = s->heartbeat,
                                              .connect_seconds = s->connect};
    strata_communicator *comm = NULL;
    outcome *o = &shared->outcomes[rank];
    if (victim && s->absent) return;
    if (victim && s->twice) pause_for(0.3);
    if (rank == 1 && !s->signal) pause_for(s->delay);
    o->status = strata_communicator_create(&opts, &comm, &o->err);
    if (!o->status) o->status = work(comm, rank, &o->err);
    o->at = now();
    strata_communicator_destroy(comm);
}

/* ---- connections that do not belong to the job ---- */

static void connect_junk(void) {
    static const char *const words[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "", "STRATA3\n", "\x16\x03\x01"};
    int fds[JUNK];
    for (int i = 0; i < JUNK; i++) {
        const char *text = words[i % 4];
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fds[i], (struct sockaddr *)&store_address, sizeof store_address) || !*text) continue;
        if (send(fds[i], text, strlen(text), MSG_NOSIGNAL) < 0) continue; /* rank 0 closed it already */
    }
    pause_for(0.2);
    for (int i = 0; i < JUNK; i++) close(fds[i]);
}

/* ---- a scenario ---- */

static void find_store(void) {
    static unsigned next;
    const uint16_t port = test_port(&next);
    if (!port) {
        printf("no sockets here: %s\n", strerror(errno));
        exit(77);
    }
    store_address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    snprintf(store, sizeof store, "127.0.0.1:%u", port);
}

static void check(const scenario *s, double since) {
    const outcome *first = NULL;
    if (s->twice && shared->outcomes[1].status == STRATA_INVALID) {
        const outcome second = shared->outcomes[1];
        shared->outcomes[1] = shared->outcomes[s->victim];
        shared->outcomes[s->victim] = second;
    }
    for (int r = 0; r < RANKS; r++) {
        const outcome *o = &shared->outcomes[r];
        if (r == s->victim) continue;
        if (o->status != s->expected) bad(s, "another status was expected", r);
        if (s->expected && !strstr(o->err.message, s->text)) bad(s, s->text, r);
        if (s->expected && first && strcmp(first->err.message, o->err.message) != 0)
            bad(s, "another message than the first rank's", r);
        if (s->most_seconds > 0 && o->at - since > s->most_seconds) {
            fprintf(stderr, "%.2f s after the signal: ", o->at - since);
            bad(s, "too late", r);
        }
        if (!first) first = o;
    }
}

static void run(const scenario *s) {
    pid_t pids[RANKS];
    memset(shared, 0, sizeof *shared);
    find_store();
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r]) continue;
        alarm(10 * TEST_PATIENCE); /* ends a rank that hangs; its status is then not the expected one */
        run_rank(s, r);
        _exit(0);
    }
    double since = now();
    if (s->signal) {
        for (int i = 0; i < 40000 && !shared->rounds[s->victim]; i++) pause_for(0.005);
        pause_for(s->delay);
        kill(pids[s->victim], s->signal);
        since = now();
    }
    if (s->junk) connect_junk();
    if (!s->expected) {
        for (int i = 0; i < 40000 && !shared->rounds[0]; i++) pause_for(0.005);
        shared->stop = 1;
    }
    for (int r = 0; r < RANKS; r++)
        if (r != s->victim) waitpid(pids[r], NULL, 0);
    if (s->victim >= 0) {
        kill(pids[s->victim], SIGKILL);
        waitpid(pids[s->victim], NULL, 0);
    }
    check(s, since);
}

int main(void) {
    static const char *const transports[] = {"shm", "tcp"};
    static const char *const names[RANKS] = {"rank 0", "rank 1", "rank 2"};
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    const char *given = getenv("STRATA_TEST_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    printf("ranks are killed at times drawn from STRATA_TEST_SEED=%u\n", seed);
    fflush(stdout);
    for (int t = 0; t < 2; t++) {
        const char *transport = transports[t];
        const scenario common = {
            .transport = transport, .victim = -1, .connect = TEST_PATIENCE, .heartbeat = TEST_CALM_HEARTBEAT};
        scenario s = common;
        s.name = "a late rank";
        s.delay = 0.6;
        run(&s);
        s.name = "connections that do not belong to the job";
        s.delay = 0;
        s.junk = true;
        run(&s);
        for (int i = 0; i < KILLS / 2; i++) {
            s = common;
            s.name = "a killed rank";
            s.victim = i % RANKS;
            s.signal = SIGKILL;
            s.delay = 0.15 * rand_r(&seed) / RAND_MAX;
            s.expected = STRATA_PEER_LOST;
            s.text = names[s.victim];
            s.most_seconds = TEST_PATIENCE; /* by its silence it would be lost later */
            run(&s);
        }
        for (int victim = 0; victim < RANKS; victim += 1 + t) {
            s = common;
            s.name = "a stopped rank";
            s.victim = victim;
            s.signal = SIGSTOP;
            s.heartbeat = 0.8;
            s.expected = STRATA_PEER_LOST;
            s.text = names[victim];
            run(&s);
        }
        s = common;
        s.name = "an absent rank";
        s.victim = 2;
        s.absent = true;
        s.connect = 4;
        s.expected = STRATA_TIMEOUT;
        s.text = "rank 2";
        run(&s);
    }
    scenario s = {.name = "a stopped rank with default times",
                  .transport = "tcp",
                  .victim = 1,
                  .signal = SIGSTOP,
                  .connect = TEST_PATIENCE,
                  .expected = STRATA_PEER_LOST,
                  .text = "rank 1"};
    run(&s);
    s = (scenario){.name = "another secret",
                   .transport = "tcp",
                   .victim = 2,
                   .stranger = true,
                   .connect = 8,
                   .expected = STRATA_TIMEOUT,
                   .text = "; connections refused: 5, the last from 127.0.0.1: the other side does not know our secret"};
    run(&s);
    if (shared->outcomes[2].status != STRATA_UNAVAILABLE || !strstr(shared->outcomes[2].err.message, "secret"))
        bad(&s, "the rank with another secret gets another error", 2);
    s = (scenario){.name = "a rank twice",
                   .transport = "tcp",
                   .victim = 2,
                   .twice = true,
                   .connect = 8,
                   .expected = STRATA_TIMEOUT,
                   .text = "; connections refused: 1, the last from 127.0.0.1: rank 1 is there already"};
    run(&s);
    if (shared->outcomes[2].status != STRATA_INVALID || !strstr(shared->outcomes[2].err.message, "there already"))
        bad(&s, "the second rank 1 gets another error", 2);
    return failures ? 1 : 0;
}
