/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's two roles: the sender sends requests, the receiver receives replies for all of them. */
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/rpc/client_parts.h"
#include "core/base/clock.h"

/* ---- receiving: by the thread that has the role ---- */

static strata_rpc_request *find(strata_rpc_client *c, uint64_t sequence) {
    strata_rpc_request *r = c->first;
    while (r && r->sequence != sequence) r = r->next;
    return r;
}

/* Sets the memory to which the reply to a request is written. */
static strata_status place(strata_rpc_request *r, const strata_packet *m, strata_error *err) {
    strata_rpc_answer *a = r->answer;
    size_t room = 0;
    r->n_rooms = 0;
    r->too_large = r->lends = false;
    if (m->status) {
        if (m->body_bytes || m->head_bytes >= sizeof r->text)
            return strata_fail(err, STRATA_DATA, "an error came with %zu and %zu bytes", m->head_bytes, m->body_bytes);
        r->rooms[r->n_rooms++] = (struct iovec){r->text, m->head_bytes};
        return STRATA_OK;
    }
    if (!a) return STRATA_OK;
    for (int i = 0; i < a->n_body && a->body; i++) room += a->body[i].iov_len;
    r->too_large = m->head_bytes > a->head_bytes || (a->body && m->body_bytes > room);
    if (r->too_large) return STRATA_OK;
    if (a->may_lend && m->view && m->body_bytes) {
        memcpy(a->head, m->view - m->head_bytes, m->head_bytes);
        r->lends = true;
        return STRATA_OK;
    }
    r->rooms[r->n_rooms++] = (struct iovec){a->head, m->head_bytes};
    if (a->body) {
        for (int i = 0; i < a->n_body; i++) r->rooms[r->n_rooms++] = a->body[i];
    } else if (m->body_bytes) {
        free(a->allocated);
        a->allocated = malloc(m->body_bytes);
        if (!a->allocated) r->n_rooms = 0; /* the reply is dropped, and end_message reports that */
        if (a->allocated) r->rooms[r->n_rooms++] = (struct iovec){a->allocated, m->body_bytes};
    }
    return STRATA_OK;
}

static strata_status begin_message(void *user, const strata_packet *m, const struct iovec **out_parts, int *out_n_parts,
                                   strata_error *err) {
    strata_rpc_client *c = user;
    strata_status status = STRATA_OK;
    if (m->type == STRATA_FRAME_BEAT) return STRATA_OK;
    if (m->type != STRATA_FRAME_ANSWER) return strata_fail(err, STRATA_DATA, "a message of type %d came unexpectedly", m->type);
    pthread_mutex_lock(&c->lock);
    strata_rpc_request *r = find(c, m->sequence);
    if (r) status = place(r, m, err);
    if (r && !status) {
        c->receiving = r;
        *out_parts = r->rooms;
        *out_n_parts = r->n_rooms;
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* Handles a reply that was received completely. */
static void finish_request(strata_rpc_client *c, strata_rpc_request *r, const strata_packet *m) {
    strata_rpc_answer *a = r->answer;
    if (m->status) {
        strata_fail(&r->error, m->status, "%s at %s: %s: %.*s", c->server, c->address, r->what, (int)m->head_bytes, r->text);
    } else if (r->too_large) {
        size_t room = 0;
        for (int i = 0; i < a->n_body; i++) room += a->body[i].iov_len;
        strata_fail(&r->error, STRATA_INVALID,
                    "%s at %s: the reply to %s has %zu bytes of head and %zu of body; there is room for %zu and %zu", c->server,
                    c->address, r->what, m->head_bytes, m->body_bytes, a->head_bytes, room);
    } else if (a && !a->body && m->body_bytes && !a->allocated) {
        strata_fail(&r->error, STRATA_OUT_OF_MEMORY, "no memory for %zu bytes from %s", m->body_bytes, c->server);
    }
    if (a) {
        a->body_bytes = m->body_bytes;
        if (!r->too_large && !m->status) a->head_bytes = m->head_bytes;
    }
    strata_rpc_client_unlink_request(c, r);
}

static strata_status end_message(void *user, const strata_packet *m, strata_error *err) {
    strata_rpc_client *c = user;
    (void)err;
    if (m->type == STRATA_FRAME_BEAT) return STRATA_OK;
    pthread_mutex_lock(&c->lock);
    strata_rpc_request *r = c->receiving;
    c->receiving = NULL;
    if (r && r->lends) {
        r->answer->lent = m->view;
        r->answer->lender = strata_area_hold(c->channel.area);
        r->answer->lent_head = m->head_bytes;
        c->channel.kept = true;
    }
    if (r) finish_request(c, r, m);
    if (r && r == c->awaited)
        c->channel.stop = true;
    else
        pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return STRATA_OK;
}

/* Receives what has arrived. The caller is the receiver and does not have the lock, which this takes at the end. */
void strata_rpc_client_receive(strata_rpc_client *c) {
    const strata_packet_receiver receiver = {begin_message, end_message, c};
    strata_error why; /* set if the status is not OK */
    const strata_status status = strata_connection_receive(&c->channel, &receiver, INT_MAX, &why);
    pthread_mutex_lock(&c->lock);
    if (status) strata_rpc_client_break_link(c, why.message);
}

void strata_rpc_client_take_receiver(strata_rpc_client *c, const strata_rpc_request *awaited) {
    c->has_receiver = true;
    c->awaited = awaited;
}

void strata_rpc_client_leave_receiver(strata_rpc_client *c) {
    c->has_receiver = false;
    c->awaited = NULL;
    if (c->n_waiters || !c->connected) pthread_cond_broadcast(&c->changed);
}

/* ---- sending: by the thread that has the role ---- */

typedef struct sending {
    strata_rpc_client *client;
    /* The deadline of this sender; the keeper has none. */
    double deadline;
} sending;

/* Called when the socket is full. The server may not continue reading before its replies are read, so this function reads them
 * if no other thread does. */
static strata_status wait_ready(void *user, short events, strata_error *err) {
    const sending *s = user;
    strata_rpc_client *c = s->client;
    pthread_mutex_lock(&c->lock);
    if (!c->has_receiver) events |= POLLIN;
    pthread_mutex_unlock(&c->lock);
    const short possible = strata_connection_wait(&c->channel, events, STRATA_RPC_WAIT_TICK_MS, false);
    pthread_mutex_lock(&c->lock);
    if ((possible & POLLIN) && c->connected && !c->has_receiver) {
        strata_rpc_client_take_receiver(c, NULL);
        pthread_mutex_unlock(&c->lock);
        strata_rpc_client_receive(c);
        strata_rpc_client_leave_receiver(c);
    }
    strata_status status = STRATA_OK;
    if (!c->has_receiver) strata_rpc_client_check_silence(c); /* unread bytes may contain a heartbeat */
    if (!c->connected || c->closing)
        status = strata_fail(err, STRATA_UNAVAILABLE, "%s", c->connected ? "the client was destroyed" : c->why);
    else if (strata_clock_seconds() > s->deadline)
        status = strata_fail(err, STRATA_TIMEOUT, "a request could not be sent in its time");
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* Sends a request. The caller is the sender and has the lock, which is released meanwhile. */
void strata_rpc_client_send_request(strata_rpc_client *c, strata_rpc_request *r, double deadline) {
    sending s = {c, deadline};
    const strata_packet m = {.type = STRATA_FRAME_ASK,
                             .target = r->method,
                             .sequence = r->sequence,
                             .n_unanswered = (uint32_t)(r->sequence - c->first->sequence),
                             .head_bytes = r->head_bytes,
                             .body_bytes = r->body_bytes};
    strata_error why; /* set if the status is not OK */
    r->was_sent = true;
    r->sent_to = c->server_incarnation;
    c->sending = r;
    pthread_mutex_unlock(&c->lock);
    const strata_status status = strata_connection_send(&c->channel, &m, r->parts, r->n_parts, wait_ready, &s, &why);
    pthread_mutex_lock(&c->lock);
    c->sending = NULL;
    if (r->done) pthread_cond_broadcast(&c->changed); /* its reply had arrived, but its memory was still in use */
    if (status) strata_rpc_client_break_link(c, why.message);
}

void strata_rpc_client_leave_sender(strata_rpc_client *c) {
    c->has_sender = false;
    pthread_cond_broadcast(&c->changed);
}

/* Sends a heartbeat if nothing else was sent. The caller has the lock. */
void strata_rpc_client_send_beat(strata_rpc_client *c) {
    const uint64_t next = c->next_sequence;
    const strata_packet beat = {
        .type = STRATA_FRAME_BEAT, .sequence = next, .n_unanswered = (uint32_t)(c->first ? next - c->first->sequence : 0)};
    sending s = {c, strata_clock_seconds() + c->heartbeat};
    strata_error why = {0};
    c->has_sender = true;
    pthread_mutex_unlock(&c->lock);
    const strata_status status = strata_connection_send(&c->channel, &beat, NULL, 0, wait_ready, &s, &why);
    pthread_mutex_lock(&c->lock);
    if (status) strata_rpc_client_break_link(c, why.message);
    strata_rpc_client_leave_sender(c);
}
