/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests a job of processes that continues after it lost some of them. Ranks 0 to 2 are workers, which also have their own
 * communicator. Rank 3 is a server that answers messages. One rank, the victim, is killed or stopped at a random time. Every
 * call that needs the victim must fail with PEER_LOST and the victim's name, with the same message on all ranks. Every other
 * call must succeed, and the remaining ranks' new communicator must compute right sums. In other scenarios the victim is
 * killed while it sends a long message, which no rank may receive as if it were complete.
 *   STRATA_TEST_SEED   determines the times */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
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

enum { RANKS = 4, SERVER = 3, KILLS = 12, LONG = 8 << 20, ASK = 1, ANSWER = 2, END = 3, DATA = 4 };

/* Memory that all processes of a scenario share. */
typedef struct shared_state {
    strata_error lost[RANKS]; /* the error of the collective of all ranks */
    char wrong[RANKS][2048];  /* why a check failed; empty: none failed */
    volatile int rounds[RANKS], n_ready;
    volatile int was_hit;
} shared_state;

typedef struct scenario {
    const char *name, *transport;
    int victim, signal;
    double delay;
    bool sends; /* the victim sends long messages when it is killed */
} scenario;

static shared_state *shared;
static int failures;

static void pause_for(double seconds) {
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

#define WRONG(...)                                                              \
    do {                                                                        \
        snprintf(shared->wrong[rank], sizeof shared->wrong[rank], __VA_ARGS__); \
        return;                                                                 \
    } while (0)
#define TRY(call)                                              \
    do {                                                       \
        if (call) WRONG("line %d: %s", __LINE__, err.message); \
    } while (0)

/* ---- messages until the victim is killed or stopped ---- */

static void serve(strata_communicator *job, int rank) {
    strata_error err = {0};
    strata_message message;
    int value = 0, n_ended = 0;
    /* Like a parameter server it answers every rank that sends a request, and continues when ranks are lost. */
    while (n_ended < 2) {
        const strata_status status =
            strata_message_receive(job, &value, sizeof value, STRATA_ANY, STRATA_ANY, 20, &message, &err);
        if (status) WRONG("the server: %s", err.message);
        shared->rounds[rank]++;
        if (message.tag == END) {
            n_ended++;
            continue;
        }
        value++;
        const strata_status sent = strata_message_send(job, &value, sizeof value, message.peer, ANSWER, TEST_PATIENCE, &err);
        if (sent && sent != STRATA_PEER_LOST) WRONG("the server's answer: %s", err.message);
    }
}

/* Sends requests to the server until the victim was killed or stopped, or until a request fails because the server is the
 * victim. Returns false when a check failed. */
static bool ask(strata_communicator *job, int rank, bool server_is_victim) {
    strata_error err = {0};
    for (int i = 0; server_is_victim || !shared->was_hit || i < 20; i++) {
        int value = i, answer = 0;
        strata_status status = strata_message_send(job, &value, sizeof value, SERVER, ASK, TEST_PATIENCE, &err);
        if (!status) status = strata_message_receive(job, &answer, sizeof answer, SERVER, ANSWER, TEST_PATIENCE, NULL, &err);
        shared->rounds[rank]++;
        if (status == STRATA_PEER_LOST && server_is_victim && strstr(err.message, "rank 3")) return true;
        if (!status && answer == value + 1) continue;
        snprintf(shared->wrong[rank], sizeof shared->wrong[rank], "asking: %s, %d for %d", err.message, answer, value);
        return false;
    }
    return true;
}

/* ---- a rank ---- */

/* Checks the calls after the loss: first with all ranks, then among the workers, and then among the remaining ranks. */
static void go_on(strata_communicator *job, strata_communicator *workers, int rank, const scenario *s) {
    strata_communicator *survivors = NULL;
    strata_error err = {0};
    float x = 1;
    strata_status status =
        strata_communicator_all_reduce(job, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &shared->lost[rank]);
    if (status != STRATA_PEER_LOST) WRONG("the job's sum: %s", status ? shared->lost[rank].message : "it came");
    if (s->victim == SERVER) {
        x = 1;
        TRY(strata_communicator_all_reduce(workers, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err));
        if (x != 3) WRONG("three workers count %g", (double)x);
    } else if (workers) {
        status = strata_communicator_barrier(workers, &err);
        if (status != STRATA_PEER_LOST) WRONG("the workers' barrier: %s", status ? err.message : "it was passed");
    }
    TRY(strata_communicator_shrink(job, &survivors, &err));
    x = (float)(1 << rank);
    TRY(strata_communicator_all_reduce(survivors, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err));
    if (x != (float)(15 - (1 << s->victim)) || strata_communicator_world(survivors) != 3)
        WRONG("the survivors' sum is %g of %d ranks", (double)x, strata_communicator_world(survivors));
    /* One more rank leaves, and the remaining two make another communicator. */
    const int last = s->victim == 2 ? 1 : 2;
    if (rank == last) return strata_communicator_destroy(survivors);
    strata_communicator *two = NULL;
    if (!strata_communicator_barrier(survivors, &err)) WRONG("a barrier was passed without rank %d", last);
    TRY(strata_communicator_shrink(survivors, &two, &err));
    x = 1;
    TRY(strata_communicator_all_reduce(two, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err));
    if (x != 2) WRONG("the last two count %g", (double)x);
    TRY(strata_communicator_barrier(two, &err));
    strata_communicator_destroy(survivors);
    strata_communicator_destroy(two);
}

/* Rank 1 sends long messages to rank 0, which checks that each message that it receives is complete. */
static bool pass_long(strata_communicator *job, int rank) {
    strata_error err = {0};
    unsigned char *data = malloc(LONG);
    bool ok = true;
    for (int i = 0; data && rank == 1; i++) {
        memset(data, i, LONG);
        if (strata_message_send(job, data, LONG, 0, DATA, TEST_PATIENCE, &err)) break;
    }
    while (data && rank == 0 && ok) {
        const strata_status status = strata_message_receive(job, data, LONG, 1, DATA, TEST_PATIENCE, NULL, &err);
        shared->rounds[1]++;
        if (status == STRATA_PEER_LOST && strstr(err.message, "rank 1")) break;
        for (size_t i = 0; i < LONG; i += 4099) ok &= data[i] == data[0];
        ok &= !status;
    }
    if (!ok) snprintf(shared->wrong[rank], sizeof shared->wrong[rank], "a long message: %s", err.message);
    free(data);
    return ok;
}

static void run_rank(const scenario *s, const char *store, int rank) {
    const strata_communicator_options opts = {.rank = rank,
                                              .world = RANKS,
                                              .store = store,
                                              .transport = s->transport,
                                              .secret = "the job's",
                                              .secret_bytes = 9,
                                              .heartbeat_seconds = s->signal == SIGSTOP ? 0.6 : TEST_CALM_HEARTBEAT,
                                              .connect_seconds = TEST_PATIENCE};
    strata_communicator *job = NULL, *workers = NULL;
    strata_error err = {0};
    TRY(strata_communicator_create(&opts, &job, &err));
    TRY(strata_communicator_split(job, rank == SERVER ? -1 : 0, 0, &workers, &err));
    __atomic_fetch_add(&shared->n_ready, 1, __ATOMIC_SEQ_CST);
    if (s->sends) {
        if (!pass_long(job, rank)) return;
    } else if (rank == SERVER) {
        serve(job, rank);
    } else if (ask(job, rank, s->victim == SERVER) && s->victim != SERVER) {
        const int end = 0;
        TRY(strata_message_send(job, &end, sizeof end, SERVER, END, TEST_PATIENCE, &err));
    }
    if (!*shared->wrong[rank]) go_on(job, workers, rank, s);
    strata_communicator_destroy(workers);
    strata_communicator_destroy(job);
}

static void find_store(char store[32]) {
    static unsigned next;
    const uint16_t port = test_port(&next);
    if (!port) {
        printf("no sockets here: %s\n", strerror(errno));
        exit(77);
    }
    snprintf(store, 32, "127.0.0.1:%u", port);
}

static void run(const scenario *s) {
    pid_t pids[RANKS];
    char store[32];
    int code;
    memset(shared, 0, sizeof *shared);
    find_store(store);
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r]) continue;
        alarm(10 * TEST_PATIENCE);
        run_rank(s, store, r);
        _exit(0);
    }
    /* a rank that is slow to begin must not lose the victim before it has its communicators */
    for (int i = 0; i < 40000 && (shared->n_ready < RANKS || shared->rounds[s->victim] < 3); i++) pause_for(0.005);
    pause_for(s->delay);
    kill(pids[s->victim], s->signal);
    shared->was_hit = 1;
    for (int r = 0; r < RANKS; r++) {
        if (r == s->victim) continue;
        waitpid(pids[r], &code, 0);
        const bool other_words = s->victim != 0 && strcmp(shared->lost[0].message, shared->lost[r].message) != 0;
        if (!code && !*shared->wrong[r] && !other_words) continue;
        fprintf(stderr, "%s over %s, rank %d: %s%s (exit code %d)\n", s->name, s->transport, r, shared->wrong[r],
                other_words ? shared->lost[r].message : "", code);
        failures++;
    }
    kill(pids[s->victim], SIGKILL);
    waitpid(pids[s->victim], NULL, 0);
}

int main(void) {
    static const char *const transports[] = {"shm", "tcp"};
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    const char *given = getenv("STRATA_TEST_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    printf("ranks are killed or stopped at times from STRATA_TEST_SEED=%u\n", seed);
    fflush(stdout);
    for (int i = 0; i < KILLS; i++)
        run(&(scenario){.name = "a killed rank",
                        .transport = transports[i % 2],
                        .victim = 1 + i / 2 % 3,
                        .signal = SIGKILL,
                        .delay = 0.1 * rand_r(&seed) / RAND_MAX});
    for (int victim = 1; victim < RANKS; victim++)
        run(&(scenario){.name = "a stopped rank", .transport = transports[victim % 2], .victim = victim, .signal = SIGSTOP});
    for (int i = 0; i < 4; i++)
        run(&(scenario){.name = "a rank killed within a message",
                        .transport = transports[i % 2],
                        .victim = 1,
                        .signal = SIGKILL,
                        .delay = 0.05 * rand_r(&seed) / RAND_MAX,
                        .sends = true});
    return failures ? 1 : 0;
}
