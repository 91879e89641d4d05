/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the transfers between a worker and a parameter server of one machine, without a model. parameter_server.py runs it.
 *
 *     push_pull links    prints a JSON object for each size from 4 KiB to 64 MiB: the seconds of a push, of a pull, and of a
 *                        message between two ranks of the all_reduce transport, which is answered with 4 bytes. The receiver
 *                        copies the bytes once to other memory, as it would to a device
 *     push_pull fold     measures the bytes per second that each of 2 processes reads when it adds 8 arrays, and those of
 *                        memcpy */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cluster/rpc/rpc.h"
#include "core/run/fold.h"
#include "strategies/parameter_server/partition.h"

enum { PUSH = 1, PULL, ADDRESS = 96, MOST_BYTES = 64 << 20, SHARES = 8, SERVERS = 2, RUNS = 10, FOLDED = 4 << 20 };
static const double WARM_UP_SECONDS = 0.2;
static const unsigned char secret[] = "of this measurement";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(strata_status status, const strata_error *err) {
    if (!status) return;
    fprintf(stderr, "push_pull: %s\n", err->message);
    exit(1);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *memory(size_t bytes) {
    void *made = aligned_alloc(64, bytes);
    if (!made) exit(1);
    memset(made, 1, bytes);
    return made;
}

/* Does what a parameter server does: it reads a push once, and writes a pull to the given memory or sends it from its place. */
static strata_status handle(void *user, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    uint64_t bytes = 0;
    (void)err;
    memcpy(reply->head, &bytes, sizeof bytes);
    reply->head_bytes = sizeof bytes;
    if (call->method == PUSH) {
        memcpy(user, call->body, call->body_bytes);
        return STRATA_OK;
    }
    memcpy(&bytes, call->head, sizeof bytes);
    void *room = strata_rpc_reply_room(call, bytes);
    if (room) memcpy(room, user, bytes);
    reply->repeatable = true;
    reply->body[0] = (strata_rpc_piece){.data = room ? room : user, .bytes = bytes};
    reply->n_body = 1;
    return STRATA_OK;
}

static void serve(int out, int in) {
    strata_rpc_server *server = NULL;
    strata_error err = {0};
    char address[ADDRESS] = "", end;
    const strata_rpc_server_options opts = {
        .task = "ps:0", .address = "127.0.0.1:0", .handler = handle, .user = memory(MOST_BYTES)};
    must(strata_rpc_server_create(&opts, &server, &err), &err);
    snprintf(address, sizeof address, "%s", strata_rpc_server_address(server));
    if (write(out, address, sizeof address) != sizeof address || read(in, &end, 1) < 0) _exit(1);
    strata_rpc_server_destroy(server);
    _exit(0);
}

static double one_call(strata_rpc_client *client, uint32_t method, uint64_t bytes, void *data) {
    strata_error err = {0};
    uint64_t ignored;
    const struct iovec whole = {data, bytes};
    const bool push = method == PUSH;
    const strata_rpc_ask ask = {.method = method,
                                .head = &bytes,
                                .head_bytes = sizeof bytes,
                                .body = &whole,
                                .n_body = push ? 1 : 0,
                                .what = push ? "a push" : "a pull"};
    strata_rpc_answer answer = {
        .head = &ignored, .head_bytes = sizeof ignored, .body = &whole, .n_body = push ? 0 : 1, .may_lend = true};
    const double began = now();
    must(strata_rpc_client_call(client, &ask, &answer, 60, &err), &err);
    if (answer.lent) memcpy(data, answer.lent, bytes); /* stands for the copy to a device */
    strata_rpc_answer_release(&answer);
    return now() - began;
}

/* `device` receives the receiver's copy of the message, as with the server of a push and the client of a pull. */
static double one_message(strata_communicator *comm, int rank, size_t bytes, void *data, void *device) {
    strata_error err = {0};
    const double began = now();
    int32_t answer = 0;
    if (rank == 0) {
        must(strata_communicator_send(comm, data, bytes / 4, STRATA_DTYPE_F32, 1, &err), &err);
        must(strata_communicator_recv(comm, &answer, 1, STRATA_DTYPE_I32, 1, &err), &err);
    } else {
        must(strata_communicator_recv(comm, data, bytes / 4, STRATA_DTYPE_F32, 0, &err), &err);
        memcpy(device, data, bytes);
        must(strata_communicator_send(comm, &answer, 1, STRATA_DTYPE_I32, 0, &err), &err);
    }
    return now() - began;
}

static int repeats_of(size_t bytes) {
    const size_t n = ((size_t)512 << 20) / bytes;
    return n > 2000 ? 2000 : n < 7 ? 7 : (int)n;
}

static strata_communicator *join(int rank, const char *store) {
    const strata_communicator_options opts = {
        .rank = rank, .world = 2, .store = store, .secret = secret, .secret_bytes = sizeof secret, .transport = "shm"};
    strata_communicator *comm = NULL;
    strata_error err = {0};
    must(strata_communicator_create(&opts, &comm, &err), &err);
    return comm;
}

static int links(const char *store) {
    static double times[3][2000];
    int up[2], down[2];
    char address[ADDRESS];
    if (pipe(up) || pipe(down)) return 1;
    const pid_t server = fork();
    if (!server) serve(up[1], down[0]);
    const pid_t peer = fork();
    void *data = memory(MOST_BYTES);
    if (!peer) {
        strata_communicator *comm = join(1, store);
        void *device = memory(MOST_BYTES);
        for (size_t bytes = 4 << 10; bytes <= MOST_BYTES; bytes *= 4)
            for (int i = 0; i < repeats_of(bytes); i++) one_message(comm, 1, bytes, data, device);
        strata_communicator_destroy(comm);
        _exit(0);
    }
    strata_communicator *comm = join(0, store);
    strata_rpc_client *client = NULL;
    strata_error err = {0};
    if (read(up[0], address, sizeof address) != sizeof address) return 1;
    strata_ps_bundle group = {.dense_elements = MOST_BYTES / sizeof(float)};
    const strata_ps_plan plan = {.n_servers = 1, .bundles = &group};
    const strata_rpc_client_options opts = {
        .task = "worker:0", .server = "ps:0", .address = address, .shared_bytes = strata_ps_plan_shared_bytes(&plan)};
    must(strata_rpc_client_create(&opts, &client, &err), &err);
    /* New processes can share a core until the system has moved one of them. */
    for (const double began = now(); now() - began < WARM_UP_SECONDS;) one_call(client, PUSH, 4 << 10, data);
    for (size_t bytes = 4 << 10; bytes <= MOST_BYTES; bytes *= 4) {
        /* In turn, but several of a kind: a process that waits for the next call or message spins for a moment, so three
         * processes would be active on two cores if each call was followed by a message. */
        const int n = repeats_of(bytes), together = n < RUNS ? 1 : n / RUNS;
        for (int begin = 0; begin < n; begin += together) {
            const int end = begin + together < n ? begin + together : n;
            for (int i = begin; i < end; i++) times[0][i] = one_call(client, PUSH, bytes, data);
            for (int i = begin; i < end; i++) times[1][i] = one_call(client, PULL, bytes, data);
            for (int i = begin; i < end; i++) times[2][i] = one_message(comm, 0, bytes, data, NULL);
        }
        for (int k = 0; k < 3; k++) qsort(times[k], (size_t)n, sizeof **times, ascending);
        printf("{\"bytes\":%zu,\"push_s\":%.9f,\"pull_s\":%.9f,\"message_s\":%.9f}\n", bytes, times[0][n / 2], times[1][n / 2],
               times[2][n / 2]);
        fflush(stdout);
    }
    strata_rpc_client_destroy(client);
    strata_communicator_destroy(comm);
    if (write(down[1], "", 1) < 0) return 1;
    waitpid(server, NULL, 0);
    waitpid(peer, NULL, 0);
    return 0;
}

/* Bytes of gradients that a server adds up in a second, and bytes that memcpy copies in one. */
static void fold_here(int out) {
    enum { ROUNDS = 15 };
    float *shares[SHARES], *sum = memory(FOLDED);
    double fold[ROUNDS], copy[ROUNDS];
    for (int i = 0; i < SHARES; i++) shares[i] = memory(FOLDED);
    for (int r = 0; r < ROUNDS; r++) {
        double began = now();
        strata_fold(STRATA_DTYPE_F32, STRATA_REDUCE_SUM, (const void *const *)shares, SHARES, FOLDED / 4, (void *[]){sum}, 1);
        fold[r] = SHARES * (double)FOLDED / (now() - began);
        began = now();
        for (int i = 0; i + 1 < SHARES; i += 2) memcpy(shares[i], shares[i + 1], FOLDED);
        copy[r] = SHARES / 2 * (double)FOLDED / (now() - began);
    }
    qsort(fold, ROUNDS, sizeof *fold, ascending);
    qsort(copy, ROUNDS, sizeof *copy, ascending);
    const double both[] = {fold[ROUNDS / 2], copy[ROUNDS / 2]};
    _exit(write(out, both, sizeof both) != sizeof both);
}

static int folds(void) {
    int ends[2];
    double all[2] = {0}, both[2];
    if (pipe(ends)) return 1;
    for (int s = 0; s < SERVERS; s++)
        if (!fork()) fold_here(ends[1]);
    for (int s = 0; s < SERVERS; s++) {
        if (read(ends[0], both, sizeof both) != sizeof both) return 1;
        all[0] += both[0], all[1] += both[1];
    }
    while (wait(NULL) > 0) continue;
    printf("{\"fold_bytes_per_s\":%.0f,\"memcpy_bytes_per_s\":%.0f}\n", all[0], all[1]);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "links")) return links(argv[2]);
    if (argc == 2 && !strcmp(argv[1], "fold")) return folds();
    fprintf(stderr, "usage: push_pull links HOST:PORT | push_pull fold\n");
    return 2;
}
