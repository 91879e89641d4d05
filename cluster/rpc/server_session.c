/* SPDX-License-Identifier: Apache-2.0
 *
 * Identifies the peer of a connection by its greeting, and finds the session of its task, which one connection at a time owns.
 * Its requests are executed once: a reply is stored until the client has it, unless the reply is repeatable. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/rpc/server_parts.h"

enum { KEPT = 2 * STRATA_RPC_WINDOW }; /* the most stored replies of a session */

/* ---- sending ---- */

static strata_status wait_ready(void *user, short events, strata_error *err) {
    strata_rpc_connection *c = user;
    strata_connection_wait(&c->channel, events, -1, false); /* the monitor shuts the connection of a peer that does not read */
    return atomic_load(&c->ended) ? strata_fail(err, STRATA_UNAVAILABLE, "%s", c->why) : STRATA_OK;
}

/* area: NULL, or the memory that is shared from the next message on, which the channel takes. */
static strata_status send_packet(strata_rpc_connection *c, const strata_packet *m, const struct iovec *parts, int n_parts,
                                 strata_area *area, strata_error *err) {
    STRATA_LOCKED(&c->sending);
    atomic_store(&c->channel.sent, strata_clock_coarse_seconds()); /* progress is measured from now on */
    atomic_store(&c->activity, STRATA_RPC_SENDING);
    const strata_status status = strata_connection_send(&c->channel, m, parts, n_parts, wait_ready, c, err);
    if (area) strata_connection_share(&c->channel, area, false);
    return status;
}

/* ---- stored replies ---- */

static void release_pieces(const strata_rpc_piece *pieces, int n) {
    for (int i = 0; i < n; i++)
        if (pieces[i].release) pieces[i].release(pieces[i].user);
}

static void drop_first(strata_rpc_session *s) {
    strata_rpc_kept *k = s->first;
    s->first = k->next;
    if (!s->first) s->last = NULL;
    s->n_kept--;
    release_pieces(k->body, k->n_body);
    free(k->body);
    free(k);
}

void strata_rpc_session_drop_replies(strata_rpc_session *s) {
    while (s->first) drop_first(s);
}

/* Stores a reply, whose pieces it takes. NULL: there is no memory. */
static strata_rpc_kept *keep(strata_rpc_session *s, uint64_t sequence, strata_status status, const strata_rpc_reply *reply) {
    strata_rpc_kept *k = malloc(sizeof *k + reply->head_bytes);
    strata_rpc_piece *body = reply->n_body ? malloc((size_t)reply->n_body * sizeof *body) : NULL;
    if (!k || (reply->n_body && !body)) {
        free(k);
        free(body);
        return NULL;
    }
    *k = (strata_rpc_kept){
        .sequence = sequence, .status = status, .head_bytes = reply->head_bytes, .n_body = reply->n_body, .body = body};
    memcpy(k->head, reply->head, reply->head_bytes);
    if (body) memcpy(body, reply->body, (size_t)reply->n_body * sizeof *body);
    *(s->last ? &s->last->next : &s->first) = k;
    s->last = k;
    s->n_kept++;
    return k;
}

static strata_status send_reply(strata_rpc_connection *c, uint64_t sequence, strata_status result, void *head,
                                size_t head_bytes, const strata_rpc_piece *body, int n_body, strata_error *err) {
    struct iovec few[9], *parts = n_body < 9 ? few : malloc(((size_t)n_body + 1) * sizeof *parts);
    if (!parts) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory to send a reply of %d pieces", n_body);
    strata_packet m = {.type = STRATA_FRAME_ANSWER, .status = result, .sequence = sequence, .head_bytes = head_bytes};
    parts[0] = (struct iovec){head, head_bytes};
    for (int i = 0; i < n_body; i++) {
        parts[i + 1] = (struct iovec){(void *)(uintptr_t)body[i].data, body[i].bytes};
        m.body_bytes += body[i].bytes;
    }
    const strata_status status = send_packet(c, &m, parts, n_body + 1, NULL, err);
    if (parts != few) free(parts);
    return status;
}

/* ---- sessions ---- */

static strata_rpc_session *find_session(strata_rpc_server *s, const char *task) {
    strata_rpc_session *at = s->sessions;
    while (at && strcmp(at->task, task) != 0) at = at->next;
    return at;
}

/* Removes the oldest session that no connection owns or waits for. While there is none, waits for connections that are about to
 * release theirs. Called with the lock. */
static void forget_oldest(strata_rpc_server *s) {
    for (;;) {
        strata_rpc_session **oldest = NULL;
        bool wait = false;
        for (strata_rpc_session **at = &s->sessions; *at; at = &(*at)->next) {
            const strata_rpc_connection *owner = (*at)->owner;
            if (!owner && !(*at)->n_waiting) oldest = at;
            if (owner && (atomic_load(&owner->ended) || atomic_load(&owner->left))) wait = true;
        }
        if (!oldest && wait) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        if (!oldest) return;
        strata_rpc_session *gone = *oldest;
        *oldest = gone->next;
        strata_rpc_session_drop_replies(gone);
        free(gone);
        s->n_sessions--;
        s->forgot = true;
        return;
    }
}

/* Makes a session for a task that has none. Called with the lock. */
static strata_status make_session(strata_rpc_server *s, const char *task, uint64_t incarnation, bool begins,
                                  strata_rpc_session **out, strata_error *err) {
    if (s->forgot && !begins)
        return strata_fail(err, STRATA_UNAVAILABLE, "%s no longer knows which requests of %s it has executed", s->task, task);
    if (s->n_sessions == s->most_peers) {
        forget_oldest(s);
        if ((*out = find_session(s, task))) return STRATA_OK; /* another connection of the task made it meanwhile */
    }
    if (s->n_sessions == s->most_peers)
        return strata_fail(err, STRATA_UNAVAILABLE, "%s has %d tasks, as many as it takes", s->task, s->n_sessions);
    strata_rpc_session *own = *out = calloc(1, sizeof *own);
    if (!own) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for the requests of %s", s->task, task);
    strcpy(own->task, task);
    own->incarnation = incarnation;
    own->next = s->sessions;
    s->sessions = own;
    s->n_sessions++;
    return STRATA_OK;
}

/* Whether a later incarnation of the task has replaced this one. Called with the lock. */
static bool is_old(const strata_rpc_session *own, uint64_t incarnation) {
    const int64_t n = own->n_old < STRATA_RPC_OLD ? own->n_old : STRATA_RPC_OLD;
    for (int64_t i = 0; i < n; i++)
        if (own->old[i] == incarnation) return true;
    return false;
}

/* Makes the connection the owner of the task's session; waits until an earlier connection of the task has ended. begins: the
 * client has sent no request yet, so the session's requests and replies are those of an earlier client. Fails if the task is
 * refused. */
static strata_status take_session(strata_rpc_connection *c, const char *task, uint64_t incarnation, bool begins,
                                  strata_error *err) {
    strata_rpc_server *s = c->server;
    STRATA_LOCKED(&s->lock);
    strata_rpc_session *own = find_session(s, task);
    if (!own) STRATA_TRY(make_session(s, task, incarnation, begins, &own, err));
    if (incarnation != own->incarnation && !is_old(own, incarnation)) { /* the task was started again */
        own->old[own->n_old++ % STRATA_RPC_OLD] = own->incarnation;
        own->incarnation = incarnation;
        own->replaced = true;
    }
    while (own->owner || incarnation != own->incarnation || atomic_load(&c->ended)) {
        if (atomic_load(&c->ended)) return strata_fail(err, STRATA_UNAVAILABLE, "%s", c->why);
        if (incarnation != own->incarnation)
            return strata_fail(err, STRATA_INVALID,
                               "%s was started again, so requests of its earlier process are refused: is it started twice?",
                               task);
        strata_rpc_connection_end_locked(own->owner, "it connected again");
        own->n_waiting++;
        pthread_cond_wait(&s->changed, &s->lock);
        own->n_waiting--;
    }
    if (own->replaced || begins) {
        strata_rpc_session_drop_replies(own);
        own->next_sequence = own->unkept = 0;
    }
    own->owner = c;
    own->replaced = false;
    c->session = own;
    c->incarnation = incarnation;
    return STRATA_OK;
}

void strata_rpc_connection_leave_session(strata_rpc_connection *c) {
    STRATA_LOCKED(&c->server->lock);
    c->session->owner = NULL;
    pthread_cond_broadcast(&c->server->changed);
}

strata_status strata_rpc_connection_greet(strata_rpc_connection *c, const strata_packet *m, strata_error *err) {
    strata_rpc_server *s = c->server;
    strata_rpc_hello hello;
    STRATA_TRY(strata_rpc_hello_read(c->head, m->head_bytes, &hello, err));
    atomic_store(&c->heartbeat, hello.heartbeat > s->heartbeat ? hello.heartbeat : s->heartbeat);
    atomic_store(&c->activity, STRATA_RPC_HANDLING);
    strata_error why = {0};
    const strata_status refused = take_session(c, hello.task, hello.incarnation, !m->sequence, &why);
    strata_area *area = refused || !*hello.area || c->channel.stream.tls ? NULL : strata_area_open(hello.area);
    strata_rpc_hello own = strata_rpc_hello_of(s->task, s->incarnation, s->heartbeat, area ? hello.area : NULL);
    const size_t n = refused ? strnlen(why.message, sizeof why.message) : sizeof own;
    const strata_packet reply = {.type = STRATA_FRAME_HELLO, .status = refused, .head_bytes = n};
    const struct iovec part = {refused ? (void *)why.message : &own, n};
    if (!refused) {
        if (s->on_peer) s->on_peer(s->user, STRATA_RPC_CONNECTED, hello.task, hello.incarnation, "");
        pthread_mutex_lock(&s->lock);
        c->known = true;
        pthread_mutex_unlock(&s->lock);
    }
    const strata_status status = send_packet(c, &reply, &part, 1, area, err);
    if (!refused) return status;
    strata_rpc_server_count_refused(s, c->from, why.message);
    return strata_fail(err, refused, "%s", why.message);
}

/* ---- requests ---- */

void *strata_rpc_reply_room(const strata_rpc_call *call, size_t bytes) {
    strata_rpc_connection *c = (strata_rpc_connection *)(uintptr_t)call->connection;
    STRATA_LOCKED(&c->sending);
    return strata_connection_reserve(&c->channel, bytes);
}

/* Returns the room of a reply that was not sent. The monitor's heartbeats read `reserved` with the lock; only this thread
 * changes it. */
static void drop_room(strata_rpc_connection *c) {
    if (!c->channel.reserved) return;
    STRATA_LOCKED(&c->sending);
    strata_connection_unreserve(&c->channel);
}

/* Runs the handler and sends its reply. */
static strata_status execute(strata_rpc_connection *c, const strata_packet *m, strata_error *err) {
    strata_rpc_server *s = c->server;
    const strata_rpc_call call = {.task = c->session->task,
                                  .incarnation = c->incarnation,
                                  .sequence = m->sequence,
                                  .method = m->target,
                                  .head = c->head,
                                  .head_bytes = m->head_bytes,
                                  .body = m->view ? m->view : c->body,
                                  .body_bytes = m->body_bytes,
                                  .connection = c};
    strata_rpc_reply reply = {.head = c->reply_head, .body = c->pieces};
    strata_error why;
    why.message[0] = '\0'; /* the rest of its 1024 bytes need not be cleared */
    atomic_store(&c->activity, STRATA_RPC_HANDLING);
    atomic_store(&c->told, false);
    const strata_status result = s->handler(s->user, &call, &reply, &why);
    if (result) {
        release_pieces(reply.body, reply.n_body);
        reply.n_body = 0;
        reply.head_bytes = strnlen(why.message, STRATA_ERROR_MESSAGE_BYTES - 1);
        memcpy(reply.head, why.message, reply.head_bytes);
    }
    if (atomic_load(&c->told)) {
        drop_room(c);
        release_pieces(reply.body, reply.n_body);
        if (c->session->next_sequence == m->sequence + 1) c->session->next_sequence = m->sequence;
        return strata_fail(err, STRATA_UNAVAILABLE, "%s", c->why);
    }
    const bool kept = !reply.repeatable && keep(c->session, m->sequence, result, &reply);
    if (!kept && !reply.repeatable) c->session->unkept = m->sequence + 1;
    const strata_status status =
        send_reply(c, m->sequence, result, reply.head, reply.head_bytes, reply.body, reply.n_body, err);
    if (!kept) release_pieces(reply.body, reply.n_body);
    drop_room(c);
    return status;
}

void strata_rpc_session_forget(strata_rpc_session *s, const strata_packet *m) {
    while (s->first && m->n_unanswered <= m->sequence && s->first->sequence < m->sequence - m->n_unanswered) drop_first(s);
}

strata_status strata_rpc_connection_answer(strata_rpc_connection *c, const strata_packet *m, strata_error *err) {
    static const char lost[] = "the server executed this request but had no memory to keep its reply";
    strata_rpc_session *s = c->session;
    if (m->n_unanswered > m->sequence || m->n_unanswered > KEPT)
        return strata_fail(err, STRATA_DATA, "a client has %u requests without a reply before request %llu", m->n_unanswered,
                           (unsigned long long)m->sequence);
    strata_rpc_session_forget(s, m);
    if (m->sequence >= s->next_sequence) {
        if (s->n_kept >= KEPT) return strata_fail(err, STRATA_DATA, "a client did not take %d replies", KEPT);
        s->next_sequence = m->sequence + 1;
        return execute(c, m, err);
    }
    for (strata_rpc_kept *k = s->first; k; k = k->next)
        if (k->sequence == m->sequence)
            return send_reply(c, k->sequence, k->status, k->head, k->head_bytes, k->body, k->n_body, err);
    if (m->sequence < s->unkept)
        return send_reply(c, m->sequence, STRATA_OUT_OF_MEMORY, (void *)(uintptr_t)lost, sizeof lost - 1, NULL, 0, err);
    return execute(c, m, err); /* it was repeatable */
}
