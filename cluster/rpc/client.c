/* SPDX-License-Identifier: Apache-2.0
 *
 * The client. A caller sends its request itself, and while it waits it also receives replies, for all requests. So a call needs
 * no switch of threads. There are two roles, the *sender* and the *receiver*; one thread at a time has each of them. A
 * background thread, the *keeper*, receives while no caller waits, sends heartbeats, and connects again after a connection was
 * lost.
 *
 * A connection that failed is shut down at once. When no thread has a role, the keeper closes it, connects again, and sends all
 * requests without a reply again, in their order. This file has the keeper and its connections, client_requests.c the roles and
 * the requests. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cluster/rpc/client_parts.h"
#include "core/base/locale.h"

/* The keeper's ticks while requests are pending: WATCH_TICK_MS if no other thread receives, BUSY_TICK_MS if one does. */
enum { BUSY_TICK_MS = 2, WATCH_TICK_MS = 20 };
static const double CONNECT_SECONDS = 60, RECONNECT_SECONDS = 10;
/* The first and the longest pause between attempts to connect again, and the time limits of one attempt and of a greeting. */
enum { FIRST_PAUSE_MS = 10, MOST_PAUSE_MS = 1000 };
static const double TRY_SECONDS = 0.5, HELLO_SECONDS = 5;

/* ---- connecting: the first time in the thread that creates the client, later in the keeper ---- */

/* The first messages of both sides on a new connection. */
typedef struct greeting {
    strata_rpc_client *client;
    strata_connection *channel;
    struct iovec room;
    unsigned char bytes[STRATA_ERROR_MESSAGE_BYTES];
    bool done, refused;
    strata_rpc_hello hello;
    double deadline;
} greeting;

static strata_status begin_greeting(void *user, const strata_packet *m, const struct iovec **out_parts, int *out_n_parts,
                                    strata_error *err) {
    greeting *g = user;
    if (m->type == STRATA_FRAME_BEAT) return STRATA_OK;
    if (m->type != STRATA_FRAME_HELLO || m->head_bytes >= sizeof g->bytes || m->body_bytes)
        return strata_fail(err, STRATA_DATA, "a message of type %d came, not a greeting", m->type);
    g->room = (struct iovec){g->bytes, m->head_bytes};
    *out_parts = &g->room;
    *out_n_parts = 1;
    return STRATA_OK;
}

static strata_status end_greeting(void *user, const strata_packet *m, strata_error *err) {
    greeting *g = user;
    if (m->type == STRATA_FRAME_BEAT) return STRATA_OK;
    g->channel->stop = true;
    if (m->status) {
        g->refused = m->status == STRATA_INVALID;
        return strata_fail(err, m->status, "%.*s", (int)m->head_bytes, (const char *)g->bytes);
    }
    STRATA_TRY(strata_rpc_hello_read(g->bytes, m->head_bytes, &g->hello, err));
    g->refused = strcmp(g->hello.task, g->client->server) != 0;
    if (g->refused) return strata_fail(err, STRATA_INVALID, "%s listens there, not %s", g->hello.task, g->client->server);
    g->done = true;
    return STRATA_OK;
}

static strata_status wait_greeting(void *user, short events, strata_error *err) {
    const greeting *g = user;
    struct pollfd fd = {.fd = g->channel->stream.fd, .events = events};
    /* while the handler of an earlier connection runs, the server delays its greeting, but sends heartbeats */
    if (strata_clock_seconds() - atomic_load(&g->channel->received) > HELLO_SECONDS || strata_clock_seconds() > g->deadline)
        return strata_fail(err, STRATA_TIMEOUT, "it does not greet: does a request of an earlier connection still run?");
    poll(&fd, 1, STRATA_RPC_WAIT_TICK_MS);
    STRATA_LOCKED(&g->client->lock);
    return g->client->closing ? strata_fail(err, STRATA_INTERRUPTED, "the client was destroyed") : STRATA_OK;
}

/* Connects until the deadline and greets, without the lock. On success *out_channel is open. */
static strata_status connect_once(strata_rpc_client *c, double deadline, strata_connection *out_channel, greeting *out_greeting,
                                  strata_error *err) {
    const strata_hello hello = {.purpose = STRATA_FOR_RPC, .rank = (uint32_t)(c->incarnation % 50)};
    strata_stream stream;
    STRATA_TRY(strata_socket_connect(c->address, &hello, &c->credentials, deadline, &stream, err));
    STRATA_TRY(strata_connection_init(out_channel, stream, err));
    *out_greeting = (greeting){.client = c, .channel = out_channel, .deadline = deadline + HELLO_SECONDS};
    const bool shares = c->shared_bytes && !stream.tls && strata_area_is_near(stream.fd);
    strata_area *area = shares ? strata_area_make(c->shared_bytes) : NULL;
    const strata_packet_receiver receiver = {begin_greeting, end_greeting, out_greeting};
    pthread_mutex_lock(&c->lock);
    const uint64_t next_sequence = c->next_sequence;
    pthread_mutex_unlock(&c->lock);
    strata_rpc_hello own = strata_rpc_hello_of(c->task, c->incarnation, c->heartbeat, area ? area->shared.name : NULL);
    const strata_packet m = {.type = STRATA_FRAME_HELLO, .sequence = next_sequence, .head_bytes = sizeof own};
    const struct iovec part = {&own, sizeof own};
    strata_status status = strata_connection_send(out_channel, &m, &part, 1, wait_greeting, out_greeting, err);
    while (!status && !out_greeting->done) {
        status = strata_connection_receive(out_channel, &receiver, INT_MAX, err);
        if (!status && !out_greeting->done)
            status = wait_greeting(out_greeting, strata_connection_events(out_channel, POLLIN), err);
    }
    if (!status && area && !strcmp(out_greeting->hello.area, area->shared.name))
        strata_connection_share(out_channel, strata_area_hold(area), true);
    if (area) strata_shared_hide(&area->shared);
    strata_area_release(area);
    if (status) strata_connection_finish(out_channel);
    return status;
}

/* Moves the channel into the client. Its mutex is created again, since a mutex cannot be moved and no thread uses it yet. */
static void use_channel(strata_rpc_client *c, strata_connection *channel, const greeting *g) {
    pthread_mutex_destroy(&channel->tls);
    c->channel = *channel;
    pthread_mutex_init(&c->channel.tls, NULL);
    c->open = c->connected = true;
    c->pulse.checked_at = strata_clock_seconds();
    c->server_incarnation = g->hello.incarnation;
    c->server_heartbeat = g->hello.heartbeat;
}

/* Fails the requests that an earlier incarnation of the server may have executed. */
static void fail_forgotten(strata_rpc_client *c) {
    for (strata_rpc_request *r = c->first, *next; r; r = next) {
        next = r->next;
        if (r->was_sent && r->sent_to != c->server_incarnation)
            strata_rpc_client_fail_request(
                c, r, STRATA_PEER_LOST, "the server was started again, and does not know whether it had executed the request");
    }
}

/* Sends all requests without a reply. The caller has the lock and is the sender. */
static void send_again(strata_rpc_client *c) {
    uint64_t sequence = 0;
    for (strata_rpc_request *r = c->first; r && c->connected;) {
        sequence = r->sequence;
        strata_rpc_client_send_request(c, r, 1e300);
        /* the list may have changed while the lock was released */
        for (r = c->first; r && r->sequence <= sequence;) r = r->next;
    }
}

/* Tries once to connect. The caller has the lock. Returns the pause before the next attempt in ms; 0: it is connected. */
static int reconnect(strata_rpc_client *c, int pause_ms, uint64_t *random) {
    strata_connection channel;
    greeting g = {0};
    strata_error why = {0};
    while (c->has_receiver || c->has_sender) strata_rpc_client_wait_changed(c, strata_clock_seconds() + 1);
    if (c->open) strata_connection_finish(&c->channel);
    c->open = false;
    c->receiving = NULL;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    const strata_status status = connect_once(c, strata_clock_seconds() + TRY_SECONDS, &channel, &g, &why);
    pthread_mutex_lock(&c->lock);
    if (!status) {
        use_channel(c, &channel, &g);
        fail_forgotten(c);
        c->has_sender = true;
        pthread_cond_broadcast(&c->changed);
        send_again(c);
        strata_rpc_client_leave_sender(c);
        return 0;
    }
    snprintf(c->why, sizeof c->why, "%.299s", why.message);
    c->refused = g.refused;
    while (c->refused && c->first) strata_rpc_client_fail_request(c, c->first, status, why.message);
    /* The pause doubles each time, plus a random part of up to half of it, so that clients do not connect at the same time. */
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    const int next = pause_ms ? (2 * pause_ms < MOST_PAUSE_MS ? 2 * pause_ms : MOST_PAUSE_MS) : FIRST_PAUSE_MS;
    return next + (int)((*random >> 33) % (uint64_t)(next / 2 + 1));
}

/* ---- the keeper ---- */

static void watch(strata_rpc_client *c) {
    strata_rpc_client_check_silence(c);
    if (c->connected && !c->has_sender && strata_clock_seconds() - atomic_load(&c->channel.sent) > c->heartbeat)
        strata_rpc_client_send_beat(c);
}

/* Called while the connection works: receives if no other thread does, and waits for something to do. The caller has the
 * lock. */
static void keep(strata_rpc_client *c) {
    uint64_t count;
    if (!c->has_receiver) {
        strata_rpc_client_take_receiver(c, NULL);
        pthread_mutex_unlock(&c->lock);
        strata_rpc_client_receive(c);
        strata_rpc_client_leave_receiver(c);
    }
    if (c->connected) watch(c);
    if (!c->connected) return;
    /* Without a pending request only the end of the connection is polled for; heartbeats are read at each tick. If memory is
     * shared, the end is always polled for, since a thread that waits for replies does not see it. */
    const bool busy = c->first != NULL, watches = busy && !c->has_receiver, shares = strata_connection_needs_poll(&c->channel);
    struct pollfd fds[2] = {{.fd = c->wake, .events = POLLIN},
                            {.fd = busy && !watches && !shares ? -1 : c->channel.stream.fd,
                             .events = watches && !shares ? strata_connection_events(&c->channel, POLLIN) : POLLRDHUP}};
    c->keeper_sleeps = !busy;
    const int ms = watches ? WATCH_TICK_MS : busy ? BUSY_TICK_MS : (int)(c->heartbeat * 250) + 1;
    pthread_mutex_unlock(&c->lock);
    if (watches && shares) strata_connection_wait(&c->channel, POLLIN, ms, false);
    poll(fds, 2, watches && shares ? 0 : ms);
    if (fds[0].revents && read(c->wake, &count, sizeof count) < 0) count = 0;
    if (shares && fds[1].revents) strata_connection_note_end(&c->channel);
    pthread_mutex_lock(&c->lock);
    c->keeper_sleeps = false;
}

static void *run_keeper(void *user) {
    strata_rpc_client *c = user;
    int pause_ms = 0;
    uint64_t random = c->incarnation;
    STRATA_LOCKED(&c->lock);
    while (!c->closing) {
        if (c->connected) {
            pause_ms = 0;
            keep(c);
        } else if (c->refused) {
            while (c->first) strata_rpc_client_fail_request(c, c->first, STRATA_INVALID, c->why);
            strata_rpc_client_wait_changed(c, strata_clock_seconds() + 1);
        } else {
            pause_ms = reconnect(c, pause_ms, &random);
            const double until = strata_clock_seconds() + pause_ms / 1000.0;
            while (pause_ms && !c->closing && strata_clock_seconds() < until) strata_rpc_client_wait_changed(c, until);
        }
    }
    return NULL;
}

/* ---- life ---- */

static strata_status check_options(const strata_rpc_client_options *opts, strata_error *err) {
    char host[256], port[8];
    const char *problem = strata_rpc_task_problem(opts->task);
    if (problem) return strata_fail(err, STRATA_INVALID, "a client's task name %s", problem);
    problem = strata_rpc_task_problem(opts->server);
    if (problem) return strata_fail(err, STRATA_INVALID, "a server's task name %s", problem);
    if (!(opts->reconnect_seconds >= 0))
        return strata_fail(err, STRATA_INVALID, "reconnect_seconds is %g; it must be at least 0", opts->reconnect_seconds);
    return strata_address_split(opts->address, host, port, err);
}

static void free_client(strata_rpc_client *c) {
    if (c->open) strata_connection_finish(&c->channel);
    if (c->wake >= 0) close(c->wake);
    strata_credentials_finish(&c->credentials);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

strata_status strata_rpc_client_create(const strata_rpc_client_options *opts, strata_rpc_client **out_client,
                                       strata_error *err) {
    static const strata_communicator_options defaults = {0};
    const strata_communicator_options *cluster = opts->cluster ? opts->cluster : &defaults;
    *out_client = NULL;
    STRATA_TRY(check_options(opts, err));
    strata_rpc_client *c = calloc(1, sizeof *c);
    if (!c) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a client");
    strcpy(c->task, opts->task);
    strcpy(c->server, opts->server);
    snprintf(c->address, sizeof c->address, "%s", opts->address);
    c->incarnation = opts->incarnation ? opts->incarnation : strata_rpc_incarnation();
    c->heartbeat = cluster->heartbeat_seconds > 0 ? cluster->heartbeat_seconds : STRATA_HEARTBEAT_SECONDS;
    c->shared_bytes = opts->shared_bytes;
    c->reconnect_seconds = opts->reconnect_seconds > 0 ? opts->reconnect_seconds : RECONNECT_SECONDS;
    strata_clock_cond_init(&c->changed);
    pthread_mutex_init(&c->lock, NULL);
    c->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    const double seconds = cluster->connect_seconds > 0 ? cluster->connect_seconds : CONNECT_SECONDS;
    strata_connection channel;
    greeting g = {0};
    strata_status status = STRATA_OK;
    if (c->wake < 0) status = strata_fail(err, STRATA_UNAVAILABLE, "no descriptor for a client: %s", strata_errno_text(errno));
    if (!status) status = strata_credentials_init(&c->credentials, cluster, err);
    if (!status) {
        status = connect_once(c, strata_clock_seconds() + seconds, &channel, &g, err);
        if (status) strata_fail_in(err, status, "%s at %s", c->server, c->address);
    }
    if (!status) {
        use_channel(c, &channel, &g);
        if (pthread_create(&c->keeper, NULL, run_keeper, c))
            status = strata_fail(err, STRATA_UNAVAILABLE, "no thread could be made for a client");
    }
    if (status)
        free_client(c);
    else
        *out_client = c;
    return status;
}

void strata_rpc_client_destroy(strata_rpc_client *c) {
    static const strata_packet leave = {.type = STRATA_FRAME_LEAVE};
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    strata_rpc_client_wake_keeper(c); /* it does not wait in a pipe, as there is no request */
    pthread_join(c->keeper, NULL);
    /* if this cannot be sent, the server sees that the connection closes */
    if (c->connected && strata_connection_send(&c->channel, &leave, NULL, 0, NULL, NULL, NULL)) c->connected = false;
    free_client(c);
}

uint64_t strata_rpc_client_server_incarnation(strata_rpc_client *c) {
    STRATA_LOCKED(&c->lock);
    return c->server_incarnation;
}

bool strata_rpc_client_connected(strata_rpc_client *c) {
    STRATA_LOCKED(&c->lock);
    return c->connected;
}
