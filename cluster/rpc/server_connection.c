/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection's thread: it does the handshake, and then receives messages until the connection ends. */
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/rpc/server_parts.h"
#include "cluster/wire/socket.h"
#include "core/base/clock.h"

enum {
    ALIGNMENT = 64,
    MOST_IDLE_BODY = 1 << 20, /* memory for bodies is reduced to so many bytes if no more was needed for MOST_IDLE requests */
    MOST_IDLE = 256,
};

static strata_status begin_message(void *user, const strata_packet *m, const struct iovec **out_parts, int *out_n_parts,
                                   strata_error *err) {
    strata_rpc_connection *c = user;
    const bool known = c->session != NULL;
    if (m->type == STRATA_FRAME_BEAT || m->type == STRATA_FRAME_LEAVE) return STRATA_OK;
    if (m->type != (known ? STRATA_FRAME_ASK : STRATA_FRAME_HELLO))
        return strata_fail(err, STRATA_DATA, "a message of type %d came unexpectedly", m->type);
    if (m->body_bytes > (known ? c->server->most_body_bytes : 0))
        return strata_fail(err, STRATA_DATA, "a request of %zu bytes came; at most %llu are taken", m->body_bytes,
                           (unsigned long long)c->server->most_body_bytes);
    if (m->view) { /* the head is read several times, so it is copied out of memory that the client could change */
        memcpy(c->head, m->view - m->head_bytes, m->head_bytes);
        return STRATA_OK;
    }
    if (m->body_bytes > c->body_room) {
        free(c->body);
        c->body_room = (m->body_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        c->body = aligned_alloc(ALIGNMENT, c->body_room);
        if (!c->body) {
            c->body_room = 0;
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a request of %zu bytes", m->body_bytes);
        }
    }
    c->parts[0] = (struct iovec){c->head, m->head_bytes};
    c->parts[1] = (struct iovec){c->body, m->body_bytes};
    *out_parts = c->parts;
    *out_n_parts = 2;
    return STRATA_OK;
}

static strata_status end_message(void *user, const strata_packet *m, strata_error *err) {
    strata_rpc_connection *c = user;
    strata_status status = STRATA_OK;
    if (m->type == STRATA_FRAME_LEAVE) {
        atomic_store(&c->left, true);
        return strata_fail(err, STRATA_UNAVAILABLE, "it left");
    }
    if (m->type == STRATA_FRAME_BEAT && c->session) strata_rpc_session_forget(c->session, m);
    if (m->type == STRATA_FRAME_HELLO) status = strata_rpc_connection_greet(c, m, err);
    if (m->type == STRATA_FRAME_ASK) status = strata_rpc_connection_answer(c, m, err);
    if (m->type != STRATA_FRAME_BEAT) {
        c->idle = m->view || m->body_bytes < c->body_room / 16 ? c->idle + 1 : 0;
        if (c->body_room > MOST_IDLE_BODY && c->idle > MOST_IDLE) {
            free(c->body);
            c->body = NULL;
            c->body_room = 0;
        }
        atomic_store(&c->channel.received,
                     strata_clock_coarse_seconds()); /* the monitor watched the peer while the handler ran */
        atomic_store(&c->activity, c->session ? STRATA_RPC_RECEIVING : STRATA_RPC_GREETING);
    }
    if (!status && atomic_load(&c->ended)) return strata_fail(err, STRATA_UNAVAILABLE, "%s", c->why);
    return status;
}

/* Waits until the connection is ready, or shut. */
static bool wait_ready(strata_rpc_connection *c, short events) {
    strata_connection_wait(&c->channel, events, -1, events == POLLIN);
    return !atomic_load(&c->ended);
}

/* The server's side of the handshake; nothing else is read before. */
static strata_status shake_hands(strata_rpc_connection *c, strata_error *why) {
    strata_shaking s;
    short events = POLLIN;
    strata_stream *stream = &c->channel.stream;
    STRATA_TRY(strata_shaking_begin(&s, stream, NULL, NULL, &c->server->credentials, why));
    for (;;) {
        STRATA_TRY(strata_shaking_continue(&s, stream, &events, why));
        if (!events) break;
        if (!wait_ready(c, events)) return strata_fail(why, STRATA_PEER_LOST, "%s", c->why);
    }
    if (s.handshake.hello.purpose == STRATA_FOR_RPC) return STRATA_OK;
    return strata_fail(why, STRATA_UNAVAILABLE, "it takes %s for the store of a job", c->server->task);
}

void *strata_rpc_connection_run(void *user) {
    strata_rpc_connection *c = user;
    const strata_packet_receiver receiver = {begin_message, end_message, c};
    strata_error why = {0};
    strata_status status = shake_hands(c, &why);
    if (status && status != STRATA_DATA)
        strata_rpc_server_count_refused(c->server, c->from,
                                        status == STRATA_PEER_LOST ? "it did not complete the handshake" : why.message);
    if (!status) strata_socket_prepare(c->channel.stream.fd);
    while (!status) {
        status = strata_connection_receive(&c->channel, &receiver, INT_MAX, &why);
        if (!status && !wait_ready(c, strata_connection_events(&c->channel, POLLIN))) status = STRATA_UNAVAILABLE;
    }
    strata_rpc_connection_end(c, why.message);
    strata_rpc_connection_report_end(c);
    if (atomic_load(&c->left)) { /* a client that is created later begins a new session */
        strata_rpc_session_drop_replies(c->session);
        c->session->next_sequence = c->session->unkept = 0;
    }
    if (c->session) strata_rpc_connection_leave_session(c);
    atomic_store(&c->activity, STRATA_RPC_FINISHED);
    strata_rpc_server_wake_monitor(c->server);
    return NULL;
}
