/* SPDX-License-Identifier: Apache-2.0
 *
 * Connecting the client: the first time in the thread that creates it, later in the keeper. In the greeting both sides send
 * their names and incarnations, and agree on shared memory. After a lost connection the requests without a reply are sent
 * again. */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "cluster/rpc/client_parts.h"
#include "core/base/clock.h"

/* The first and the longest pause between attempts to connect again, and the time limits of one attempt and of a greeting. */
enum { FIRST_PAUSE_MS = 10, MOST_PAUSE_MS = 1000 };
static const double TRY_SECONDS = 0.5, HELLO_SECONDS = 5;

static strata_status begin_greeting(void *user, const strata_packet *m, const struct iovec **out_parts, int *out_n_parts,
                                    strata_error *err) {
    strata_rpc_greeting *g = user;
    if (m->type == STRATA_FRAME_BEAT) return STRATA_OK;
    if (m->type != STRATA_FRAME_HELLO || m->head_bytes >= sizeof g->bytes || m->body_bytes)
        return strata_fail(err, STRATA_DATA, "a message of type %d came, not a greeting", m->type);
    g->room = (struct iovec){g->bytes, m->head_bytes};
    *out_parts = &g->room;
    *out_n_parts = 1;
    return STRATA_OK;
}

static strata_status end_greeting(void *user, const strata_packet *m, strata_error *err) {
    strata_rpc_greeting *g = user;
    char task[STRATA_RPC_TASK_BYTES];
    if (m->type == STRATA_FRAME_BEAT) return STRATA_OK;
    g->channel->stop = true;
    if (m->status) {
        g->refused = m->status == STRATA_INVALID;
        return strata_fail(err, m->status, "%.*s", (int)m->head_bytes, (const char *)g->bytes);
    }
    STRATA_TRY(
        strata_rpc_hello_decode(g->bytes, m->head_bytes, task, sizeof task, &g->incarnation, &g->heartbeat, g->area, err));
    g->refused = strcmp(task, g->client->server) != 0;
    if (g->refused) return strata_fail(err, STRATA_INVALID, "%s listens there, not %s", task, g->client->server);
    g->done = true;
    return STRATA_OK;
}

static strata_status wait_greeting(void *user, short events, strata_error *err) {
    const strata_rpc_greeting *g = user;
    struct pollfd fd = {.fd = g->channel->stream.fd, .events = events};
    /* while the handler of an earlier connection runs, the server delays its greeting, but sends heartbeats */
    if (strata_clock_seconds() - atomic_load(&g->channel->received) > HELLO_SECONDS || strata_clock_seconds() > g->deadline)
        return strata_fail(err, STRATA_TIMEOUT, "it does not greet: does a request of an earlier connection still run?");
    poll(&fd, 1, STRATA_RPC_WAIT_TICK_MS);
    pthread_mutex_lock(&g->client->lock);
    const bool closing = g->client->closing;
    pthread_mutex_unlock(&g->client->lock);
    return closing ? strata_fail(err, STRATA_INTERRUPTED, "the client was destroyed") : STRATA_OK;
}

/* Connects until the deadline and greets, without the lock. On success *out_channel is open. */
strata_status strata_rpc_client_connect_once(strata_rpc_client *c, double deadline, strata_connection *out_channel,
                                             strata_rpc_greeting *out_greeting, strata_error *err) {
    const strata_hello hello = {.purpose = STRATA_FOR_RPC, .rank = (uint32_t)(c->incarnation % 50)};
    strata_stream stream;
    unsigned char own[STRATA_RPC_HELLO_BYTES];
    STRATA_TRY(strata_socket_connect(c->address, &hello, &c->credentials, deadline, &stream, err));
    STRATA_TRY(strata_connection_init(out_channel, stream, err));
    *out_greeting = (strata_rpc_greeting){.client = c, .channel = out_channel, .deadline = deadline + HELLO_SECONDS};
    const bool shares = c->shared_bytes && !stream.tls && strata_area_is_near(stream.fd);
    strata_area *area = shares ? strata_area_make(c->shared_bytes) : NULL;
    const strata_packet_receiver receiver = {begin_greeting, end_greeting, out_greeting};
    pthread_mutex_lock(&c->lock);
    const uint64_t next_sequence = c->next_sequence;
    pthread_mutex_unlock(&c->lock);
    const strata_packet m = {
        .type = STRATA_FRAME_HELLO,
        .sequence = next_sequence,
        .head_bytes = strata_rpc_hello_encode(c->task, c->incarnation, c->heartbeat, area ? area->shared.name : NULL, own)};
    const struct iovec part = {own, m.head_bytes};
    strata_status status = strata_connection_send(out_channel, &m, &part, 1, wait_greeting, out_greeting, err);
    while (!status && !out_greeting->done) {
        status = strata_connection_receive(out_channel, &receiver, INT_MAX, err);
        if (!status && !out_greeting->done)
            status = wait_greeting(out_greeting, strata_connection_events(out_channel, POLLIN), err);
    }
    if (!status && area && !strcmp(out_greeting->area, area->shared.name))
        strata_connection_share(out_channel, strata_area_hold(area), true);
    if (area) strata_shared_hide(&area->shared);
    strata_area_release(area);
    if (status) strata_connection_finish(out_channel);
    return status;
}

/* Moves the channel into the client. Its mutex is created again, since a mutex cannot be moved and no thread uses it yet. */
void strata_rpc_client_use_channel(strata_rpc_client *c, strata_connection *channel, const strata_rpc_greeting *g) {
    pthread_mutex_destroy(&channel->tls);
    c->channel = *channel;
    pthread_mutex_init(&c->channel.tls, NULL);
    c->open = c->connected = true;
    c->pulse.checked_at = strata_clock_seconds();
    c->server_incarnation = g->incarnation;
    c->server_heartbeat = g->heartbeat;
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
int strata_rpc_client_reconnect(strata_rpc_client *c, int pause_ms, uint64_t *random) {
    strata_connection channel;
    strata_rpc_greeting g = {0};
    strata_error why = {0};
    while (c->has_receiver || c->has_sender) strata_rpc_client_wait_changed(c, strata_clock_seconds() + 1);
    if (c->open) strata_connection_finish(&c->channel);
    c->open = false;
    c->receiving = NULL;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    const strata_status status = strata_rpc_client_connect_once(c, strata_clock_seconds() + TRY_SECONDS, &channel, &g, &why);
    pthread_mutex_lock(&c->lock);
    if (!status) {
        strata_rpc_client_use_channel(c, &channel, &g);
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
