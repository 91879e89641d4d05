/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests for callers: starting them, waiting for them, and abandoning them. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/rpc/client_parts.h"
#include "core/base/clock.h"

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
        strata_rpc_client_break_link(c, "a request was given up");
        strata_rpc_client_wait_changed(c, strata_clock_seconds() + 1);
    }
    if (!r->done) strata_rpc_client_unlink_request(c, r);
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
    pthread_mutex_lock(&r->client->lock);
    const bool done = r->done;
    pthread_mutex_unlock(&r->client->lock);
    return done;
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
