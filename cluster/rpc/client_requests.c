/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests, and the client's two roles: the sender sends them, the receiver receives the replies to all of them. */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/rpc/client_parts.h"
#include "core/base/locale.h"

static const double AWAY_SECONDS = 1;

/* ---- small things ---- */

void strata_rpc_client_wake_keeper(strata_rpc_client *c) {
    const uint64_t one = 1;
    if (write(c->wake, &one, sizeof one) < 0) return;
}

void strata_rpc_client_wait_changed(strata_rpc_client *c, double until) {
    const double left = until - strata_clock_seconds();
    strata_wait_for(&c->changed, &c->lock, left > 0 ? left : 0);
}

/* Marks the connection as failed. If this is called several times, the first reason counts. */
static void break_link(strata_rpc_client *c, const char *why) {
    if (!c->connected) return;
    c->connected = false;
    c->broke_at = strata_clock_seconds();
    snprintf(c->why, sizeof c->why, "%.299s", why);
    strata_connection_shut(&c->channel, false);
    pthread_cond_broadcast(&c->changed);
    strata_rpc_client_wake_keeper(c);
}

/* Removes a request that is over. */
static void unlink_request(strata_rpc_client *c, strata_rpc_request *r) {
    strata_rpc_request *before = NULL;
    for (strata_rpc_request *at = c->first; at && at != r; at = at->next) before = at;
    *(before ? &before->next : &c->first) = r->next;
    if (c->last == r) c->last = before;
    r->done = true;
}

void strata_rpc_client_fail_request(strata_rpc_client *c, strata_rpc_request *r, strata_status status, const char *why) {
    strata_fail(&r->error, status, "%s at %s: %s failed: %s", c->server, c->address, r->what, why);
    unlink_request(c, r);
    pthread_cond_broadcast(&c->changed);
}

void strata_rpc_client_check_silence(strata_rpc_client *c) {
    const double limit = strata_pulse_limit(c->heartbeat, c->server_heartbeat), now = strata_clock_seconds();
    char why[96];
    /* the keeper calls this at least four times in each heartbeat */
    strata_pulse_check(&c->pulse, now, 2 * c->heartbeat + AWAY_SECONDS);
    if (!c->connected || !strata_pulse_is_lost(&c->pulse, now, atomic_load(&c->channel.received), limit)) return;
    strata_format(why, sizeof why, "no sign of life for %.3g s", limit);
    break_link(c, why);
}

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
    if (m->type == STRATA_FRAME_BEAT) return STRATA_OK;
    if (m->type != STRATA_FRAME_ANSWER) return strata_fail(err, STRATA_DATA, "a message of type %d came unexpectedly", m->type);
    STRATA_LOCKED(&c->lock);
    strata_rpc_request *r = find(c, m->sequence);
    if (!r) return STRATA_OK;
    STRATA_TRY(place(r, m, err));
    c->receiving = r;
    *out_parts = r->rooms;
    *out_n_parts = r->n_rooms;
    return STRATA_OK;
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
    unlink_request(c, r);
}

static strata_status end_message(void *user, const strata_packet *m, strata_error *err) {
    strata_rpc_client *c = user;
    (void)err;
    if (m->type == STRATA_FRAME_BEAT) return STRATA_OK;
    STRATA_LOCKED(&c->lock);
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
    return STRATA_OK;
}

void strata_rpc_client_receive(strata_rpc_client *c) {
    const strata_packet_receiver receiver = {begin_message, end_message, c};
    strata_error why; /* set if the status is not OK */
    const strata_status status = strata_connection_receive(&c->channel, &receiver, INT_MAX, &why);
    pthread_mutex_lock(&c->lock);
    if (status) break_link(c, why.message);
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
    STRATA_LOCKED(&c->lock);
    if ((possible & POLLIN) && c->connected && !c->has_receiver) {
        strata_rpc_client_take_receiver(c, NULL);
        pthread_mutex_unlock(&c->lock);
        strata_rpc_client_receive(c);
        strata_rpc_client_leave_receiver(c);
    }
    if (!c->has_receiver) strata_rpc_client_check_silence(c); /* unread bytes may contain a heartbeat */
    if (!c->connected || c->closing)
        return strata_fail(err, STRATA_UNAVAILABLE, "%s", c->connected ? "the client was destroyed" : c->why);
    if (strata_clock_seconds() > s->deadline) return strata_fail(err, STRATA_TIMEOUT, "a request could not be sent in its time");
    return STRATA_OK;
}

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
    if (status) break_link(c, why.message);
}

void strata_rpc_client_leave_sender(strata_rpc_client *c) {
    c->has_sender = false;
    pthread_cond_broadcast(&c->changed);
}

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
    if (status) break_link(c, why.message);
    strata_rpc_client_leave_sender(c);
}

/* ---- requests for callers: starting them, waiting for them, and abandoning them ---- */

/* When a request that has no connection fails. */
static double give_up_at(const strata_rpc_client *c, const strata_rpc_request *r) {
    return (r->began > c->broke_at ? r->began : c->broke_at) + c->reconnect_seconds;
}

static strata_status make_request(strata_rpc_client *c, const strata_rpc_ask *ask, strata_rpc_answer *answer, double seconds,
                                  strata_rpc_request **out, strata_error *err) {
    if (!(seconds > 0))
        return strata_fail(err, STRATA_INVALID, "a request has %g s for its reply; it needs more than 0", seconds);
    if (ask->head_bytes > STRATA_RPC_HEAD_BYTES)
        return strata_fail(err, STRATA_INVALID, "a request has a head of %zu bytes; at most %d are possible", ask->head_bytes,
                           STRATA_RPC_HEAD_BYTES);
    if (ask->n_body < 0 || (answer && answer->n_body < 0))
        return strata_fail(err, STRATA_INVALID, "a request has %d pieces; it must have at least 0", ask->n_body);
    const size_t n_parts = (size_t)ask->n_body + 1, n_rooms = (answer ? (size_t)answer->n_body : 0) + 2;
    strata_rpc_request *r = malloc(sizeof *r + (n_parts + n_rooms) * sizeof(struct iovec));
    if (!r) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a request of %d pieces", ask->n_body);
    memset(r, 0, offsetof(strata_rpc_request, error));
    r->error.status = STRATA_OK;
    r->error.message[0] = r->text[0] = '\0';
    r->client = c;
    r->method = ask->method;
    r->head_bytes = ask->head_bytes;
    r->n_parts = (int)n_parts;
    r->rooms = r->parts + n_parts;
    r->parts[0] = (struct iovec){(void *)(uintptr_t)ask->head, ask->head_bytes};
    for (int i = 0; i < ask->n_body; i++) {
        r->parts[i + 1] = ask->body[i];
        r->body_bytes += ask->body[i].iov_len;
    }
    if (ask->what)
        memcpy(r->what, ask->what, strnlen(ask->what, sizeof r->what - 1));
    else
        snprintf(r->what, sizeof r->what, "method %u", ask->method);
    r->answer = answer;
    if (answer) {
        answer->body_bytes = 0;
        answer->allocated = NULL;
        answer->lent = NULL;
    }
    r->seconds = seconds;
    r->began = strata_clock_seconds();
    r->deadline = r->began + seconds;
    *out = r;
    return STRATA_OK;
}

/* Whether another request may be added. The caller has the lock. */
static bool has_room(const strata_rpc_client *c) {
    const bool in_window = !c->first || c->next_sequence - c->first->sequence < STRATA_RPC_WINDOW;
    return in_window && !(c->connected && c->has_sender);
}

/* Adds the request and sends it. Fails at the request's deadline. The caller has the lock. */
static strata_status submit(strata_rpc_client *c, strata_rpc_request *r, strata_error *err) {
    while (!c->refused && !has_room(c)) {
        const double now = strata_clock_seconds();
        if (now >= r->deadline)
            return strata_fail(err, STRATA_TIMEOUT,
                               "%s at %s: %s could not be sent within %g s: earlier requests are in its way", c->server,
                               c->address, r->what, r->seconds);
        strata_rpc_client_wait_changed(c, r->deadline < now + 1 ? r->deadline : now + 1);
    }
    if (c->refused) return strata_fail(err, STRATA_INVALID, "%s at %s: %s", c->server, c->address, c->why);
    r->sequence = c->next_sequence++;
    *(c->last ? &c->last->next : &c->first) = r;
    c->last = r;
    if (!c->connected) return STRATA_OK; /* the keeper sends it when it has connected */
    c->has_sender = true;
    strata_rpc_client_send_request(c, r, r->deadline);
    strata_rpc_client_leave_sender(c);
    return STRATA_OK;
}

/* Abandons the request: after this call no thread waits for it or uses its memory. The caller has the lock. */
static void abandon(strata_rpc_client *c, strata_rpc_request *r) {
    while (c->receiving == r || c->sending == r) {
        break_link(c, "a request was given up");
        strata_rpc_client_wait_changed(c, strata_clock_seconds() + 1);
    }
    if (!r->done) unlink_request(c, r);
    pthread_cond_broadcast(&c->changed); /* the window may have room */
}

/* Receives until the request is done. The caller is the receiver and has the lock. */
static void receive_until_done(strata_rpc_client *c, const strata_rpc_request *r) {
    strata_rpc_client_take_receiver(c, r);
    for (;;) {
        pthread_mutex_unlock(&c->lock);
        strata_rpc_client_receive(c);
        if (r->done || !c->connected) break;
        const double left = r->deadline - strata_clock_coarse_seconds();
        if (left <= 0) break;
        pthread_mutex_unlock(&c->lock);
        const int ms = left * 1000 < STRATA_RPC_WAIT_TICK_MS ? (int)(left * 1000) + 1 : STRATA_RPC_WAIT_TICK_MS;
        strata_connection_wait(&c->channel, strata_connection_events(&c->channel, POLLIN), ms, true);
        pthread_mutex_lock(&c->lock);
    }
    strata_rpc_client_leave_receiver(c);
}

static strata_status finish(strata_rpc_client *c, strata_rpc_request *r, strata_error *err) {
    while (!r->done) {
        /* the same clock as in receive_until_done, which returns at the deadline */
        const double now = strata_clock_coarse_seconds();
        if (now >= r->deadline) {
            strata_fail(&r->error, STRATA_TIMEOUT, "%s at %s: no reply to %s within %g s%s%.200s", c->server, c->address,
                        r->what, r->seconds, c->connected ? "" : "; the connection was lost: ", c->connected ? "" : c->why);
            abandon(c, r);
        } else if (c->connected && !c->has_receiver) {
            receive_until_done(c, r);
        } else if (!c->connected && now >= give_up_at(c, r)) {
            strata_fail(&r->error, STRATA_PEER_LOST, "%s at %s was lost for %g s, and %s has no reply: %s", c->server,
                        c->address, now - c->broke_at, r->what, c->why);
            abandon(c, r);
        } else {
            const double limit = c->connected || give_up_at(c, r) > r->deadline ? r->deadline : give_up_at(c, r);
            c->n_waiters++;
            strata_rpc_client_wait_changed(c, limit < now + 1 ? limit : now + 1);
            c->n_waiters--;
        }
    }
    /* the keeper may be sending the request again while the reply to its first transmission arrives */
    while (c->sending == r) strata_rpc_client_wait_changed(c, strata_clock_seconds() + 1);
    return r->error.status ? strata_fail(err, r->error.status, "%s", r->error.message) : STRATA_OK;
}

void strata_rpc_answer_release(strata_rpc_answer *answer) {
    if (!answer->lent) return;
    strata_block_return((unsigned char *)(uintptr_t)answer->lent, answer->lent_head);
    strata_area_release(answer->lender);
    answer->lent = NULL;
}

/* Discards what an answer had received before the request failed. */
static void clear_answer(strata_rpc_answer *answer) {
    if (!answer) return;
    strata_rpc_answer_release(answer);
    free(answer->allocated);
    answer->allocated = NULL;
    answer->body_bytes = 0;
}

static strata_status start(strata_rpc_client *c, const strata_rpc_ask *ask, strata_rpc_answer *answer, double seconds,
                           bool in_background, strata_rpc_request **out_request, strata_error *err) {
    strata_rpc_request *r = NULL;
    *out_request = NULL;
    STRATA_TRY(make_request(c, ask, answer, seconds, &r, err));
    pthread_mutex_lock(&c->lock);
    const strata_status status = submit(c, r, err);
    const bool wake = in_background && c->keeper_sleeps;
    pthread_mutex_unlock(&c->lock);
    if (status) {
        free(r);
        return status;
    }
    if (wake) strata_rpc_client_wake_keeper(c);
    *out_request = r;
    return STRATA_OK;
}

strata_status strata_rpc_client_start(strata_rpc_client *c, const strata_rpc_ask *ask, strata_rpc_answer *answer,
                                      double seconds, strata_rpc_request **out_request, strata_error *err) {
    return start(c, ask, answer, seconds, true, out_request, err);
}

bool strata_rpc_request_done(strata_rpc_request *r) {
    STRATA_LOCKED(&r->client->lock);
    return r->done;
}

strata_status strata_rpc_request_wait(strata_rpc_request *r, strata_error *err) {
    strata_rpc_client *c = r->client;
    pthread_mutex_lock(&c->lock);
    const strata_status status = finish(c, r, err);
    pthread_mutex_unlock(&c->lock);
    if (status) clear_answer(r->answer);
    free(r);
    return status;
}

strata_status strata_rpc_client_call(strata_rpc_client *c, const strata_rpc_ask *ask, strata_rpc_answer *answer, double seconds,
                                     strata_error *err) {
    strata_rpc_request *r = NULL;
    STRATA_TRY(start(c, ask, answer, seconds, false, &r, err));
    return strata_rpc_request_wait(r, err);
}
