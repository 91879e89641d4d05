/* SPDX-License-Identifier: Apache-2.0
 *
 * Destroys objects while others that share something with them still work or end at the same moment: communicators and their
 * parts, whose ranks leave in any order with messages under way, and servers and clients of remote calls. ThreadSanitizer
 * reports data races between them. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/rpc/rpc.h"
#include "strata/cluster.h"
#include "tests/support/ports.h"

enum { RANKS = 4, CLIENTS = 3, LOCAL_ROUNDS = 60, TCP_ROUNDS = 20, RPC_ROUNDS = 8 };
static atomic_int failures;
static const strata_communicator_options security = {.secret = "s", .secret_bytes = 1, .connect_seconds = 30};

static void check(bool ok, const char *what, const char *more) {
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, more);
    atomic_fetch_add(&failures, 1);
}

/* A pause of up to 2 ms, another one for each caller and round. */
static void pause_a_little(unsigned *random) {
    *random = *random * 1664525u + 1013904223u;
    usleep((*random >> 16) % 2000);
}

/* ---- ranks ---- */

typedef struct rank {
    pthread_t thread;
    int rank;
    unsigned random;
    const char *store; /* NULL: `comm` exists already */
    strata_communicator *comm;
} rank;

/* Leaves with messages under way: the receives may end before or after their senders have left, so they may fail. */
static void *come_and_leave(void *user) {
    rank *r = user;
    strata_error err = {0};
    char sent[20000] = "", room[20000];
    strata_communicator_options opts = security;
    opts.rank = r->rank, opts.world = RANKS, opts.store = r->store, opts.transport = "tcp";
    if (r->store && strata_communicator_create(&opts, &r->comm, &err)) {
        check(false, "a rank", err.message);
        return NULL;
    }
    strata_communicator *part = NULL, *same = NULL;
    check(!strata_communicator_split(r->comm, r->rank % 2, 0, &part, &err), "a part", err.message);
    check(!strata_communicator_split(r->comm, 0, 0, &same, &err), "a communicator of all", err.message);
    strata_request *request = NULL;
    strata_message message = {0};
    const int next = (r->rank + 1) % RANKS, last = (r->rank + RANKS - 1) % RANKS;
    check(!strata_message_start_receive(r->comm, room, sizeof room, last, 5, &message, &request, &err), "a receive",
          err.message);
    pause_a_little(&r->random);
    /* these may find that the other side has left */
    strata_status ignored = strata_message_send(r->comm, sent, sizeof sent, next, 5, 10, &err);
    pause_a_little(&r->random);
    if (r->random & 1 << 20) strata_communicator_destroy(part), part = NULL;
    ignored = strata_message_send(same, sent, 100, next, 6, 10, &err); /* nobody receives it */
    if (r->random & 1 << 21) strata_communicator_destroy(same), same = NULL;
    ignored = strata_request_wait(request, &err);
    (void)ignored;
    pause_a_little(&r->random);
    strata_communicator_destroy(part);
    strata_communicator_destroy(same);
    strata_communicator_destroy(r->comm);
    return NULL;
}

static void leave_in_any_order(const char *store, int round) {
    rank ranks[RANKS];
    strata_communicator *comms[RANKS] = {0};
    strata_error err = {0};
    if (!store && strata_communicator_create_local(RANKS, NULL, comms, &err)) {
        check(false, "local ranks", err.message);
        return;
    }
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (rank){.rank = i, .random = (unsigned)(round * RANKS + i), .store = store, .comm = comms[i]};
        if (pthread_create(&ranks[i].thread, NULL, come_and_leave, &ranks[i])) abort();
    }
    for (int i = 0; i < RANKS; i++) pthread_join(ranks[i].thread, NULL);
}

/* ---- remote calls ---- */

typedef struct peer {
    pthread_t thread;
    int number;
    unsigned random;
    const char *address;
} peer;

static strata_status echo(void *user, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    (void)user, (void)err;
    memcpy(reply->head, call->head, call->head_bytes);
    reply->head_bytes = call->head_bytes;
    return STRATA_OK;
}

static void count(void *user, strata_rpc_event event, const char *task, uint64_t incarnation, const char *why) {
    (void)task, (void)incarnation, (void)why;
    atomic_fetch_add((atomic_int *)user, event == STRATA_RPC_CONNECTED ? 1 : -1);
}

/* Clients come, call and are destroyed with and without a request, also after the server has ended. */
static void *call_and_leave(void *user) {
    peer *p = user;
    for (int i = 0; i < 3; i++) {
        char name[32], head[8] = "1234567";
        strata_error err = {0};
        strata_rpc_client *client = NULL;
        strata_communicator_options cluster = security;
        cluster.connect_seconds = 0.05;
        snprintf(name, sizeof name, "worker:%d", p->number % 2); /* two threads are the same task */
        const strata_rpc_client_options opts = {.task = name,
                                                .server = "ps:0",
                                                .address = p->address,
                                                .cluster = &cluster,
                                                .reconnect_seconds = 0.01,
                                                .shared_bytes = p->number % 2 ? 1 << 16 : 0};
        if (strata_rpc_client_create(&opts, &client, &err)) continue;
        const strata_rpc_ask ask = {.method = 1, .head = head, .head_bytes = sizeof head};
        strata_rpc_answer answer = {.head = head, .head_bytes = sizeof head};
        strata_rpc_request *request = NULL;
        if (!strata_rpc_client_start(client, &ask, &answer, 5, &request, &err)) {
            const strata_status ignored = strata_rpc_request_wait(request, &err);
            (void)ignored;
        }
        if (i) pause_a_little(&p->random);
        strata_rpc_client_destroy(client);
    }
    return NULL;
}

static void end_a_server(int round) {
    peer peers[CLIENTS];
    atomic_int there = 0;
    unsigned random = (unsigned)round * 7919u;
    strata_error err = {0};
    strata_rpc_server *server = NULL;
    char address[64];
    const strata_rpc_server_options opts = {
        .task = "ps:0", .address = "127.0.0.1:0", .cluster = &security, .handler = echo, .on_peer = count, .user = &there};
    if (strata_rpc_server_create(&opts, &server, &err)) {
        check(false, "a server", err.message);
        return;
    }
    snprintf(address, sizeof address, "%s", strata_rpc_server_address(server));
    for (int i = 0; i < CLIENTS; i++) {
        peers[i] = (peer){.number = i, .random = (unsigned)(round * CLIENTS + i), .address = address};
        if (pthread_create(&peers[i].thread, NULL, call_and_leave, &peers[i])) abort();
    }
    for (int i = 0; i < 1 + round % 4; i++) pause_a_little(&random);
    strata_rpc_server_destroy(server);
    check(!atomic_load(&there), "a server that ended", "a task that connected was not reported as lost");
    for (int i = 0; i < CLIENTS; i++) pthread_join(peers[i].thread, NULL);
}

int main(void) {
    char addresses[TCP_ROUNDS][32];
    unsigned next = 0;
    signal(SIGPIPE, SIG_IGN);
    if (!test_addresses(&next, TCP_ROUNDS, addresses)) {
        puts("skipped: no sockets here");
        return 77;
    }
    for (int i = 0; i < LOCAL_ROUNDS; i++) leave_in_any_order(NULL, i);
    for (int i = 0; i < TCP_ROUNDS; i++) leave_in_any_order(addresses[i], i);
    for (int i = 0; i < RPC_ROUNDS; i++) end_a_server(i);
    if (!atomic_load(&failures)) puts("all end while others leave");
    return atomic_load(&failures) != 0;
}
