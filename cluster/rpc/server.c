/* SPDX-License-Identifier: Apache-2.0
 *
 * The server. Each connection has a thread, which does the handshake, receives requests, runs the handler and sends replies. It
 * waits without a timeout. One more thread, the *monitor*, accepts connections and handles all timeouts: it sends heartbeats,
 * and shuts the connections of peers from which nothing is received, which wakes their threads.
 *
 * A *session* is the state of a task: its incarnation, the next sequence number, and the replies that the task may request
 * again. One connection at a time owns a session, and only the thread of that connection uses it. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <openssl/rand.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/rpc/hello.h"
#include "cluster/rpc/rpc.h"
#include "cluster/wire/connection.h"
#include "cluster/wire/pulse.h"
#include "cluster/wire/socket.h"
#include "core/base/locale.h"
#include "core/base/locked.h"

enum {
    MOST_PEERS = 1024, /* the default */
    MOST_UNKNOWN = 64, /* connections that have not sent their greeting */
};
enum {
    ALIGNMENT = 64,
    MOST_IDLE_BODY = 1 << 20, /* memory for bodies is reduced to so many bytes if no more was needed for MOST_IDLE requests */
    MOST_IDLE = 256,
};
static const double HELLO_SECONDS = 5, TICK_SECONDS = 0.1;
static const uint64_t MOST_BODY_BYTES = (uint64_t)4 << 30;
enum { KEPT = 2 * STRATA_RPC_WINDOW }; /* the most stored replies of a session */

/* A stored reply, which the client may request again. */
typedef struct strata_rpc_kept {
    struct strata_rpc_kept *next;
    uint64_t sequence;
    strata_status status;
    size_t head_bytes;
    int n_body;
    strata_rpc_piece *body;
    unsigned char head[];
} strata_rpc_kept;

struct strata_rpc_connection;

enum { STRATA_RPC_OLD = 64 };

typedef struct strata_rpc_session {
    struct strata_rpc_session *next;
    char task[STRATA_RPC_TASK_BYTES];
    /* The incarnation that has connected last, the first time. The stored replies may belong to the one before (replaced). The
     * incarnations before it are refused: the last STRATA_RPC_OLD of them are in a ring. Guarded by the server's lock. */
    uint64_t incarnation, old[STRATA_RPC_OLD];
    int64_t n_old;
    bool replaced;
    /* Guarded by the lock too; NULL: none. */
    struct strata_rpc_connection *owner;
    /* How many connections wait for the session; guarded by the lock. */
    int n_waiting;
    /* The next sequence number that has not been executed. */
    uint64_t next_sequence;
    /* The last request whose reply could not be stored because there was no memory, plus 1; 0: none. */
    uint64_t unkept;
    /* In the order of their numbers. */
    strata_rpc_kept *first, *last;
    int n_kept;
} strata_rpc_session;

/* The present activity of a connection's thread, for the monitor. */
typedef enum strata_rpc_activity {
    STRATA_RPC_SILENT, /* the peer has sent nothing */
    STRATA_RPC_GREETING,
    STRATA_RPC_RECEIVING,
    STRATA_RPC_HANDLING,
    STRATA_RPC_SENDING,
    STRATA_RPC_FINISHED
} strata_rpc_activity;

typedef struct strata_rpc_connection {
    struct strata_rpc_connection *next;
    strata_rpc_server *server;
    pthread_t thread;
    strata_connection connection;
    char from[STRATA_ADDRESS_BYTES];
    /* When it was accepted. */
    double since;
    atomic_int activity;
    /* The connection has ended or must end. The thread that sets this also shuts the connection. `why` is written before, under
     * the lock. */
    atomic_bool ended;
    char why[256];
    /* The running handler was notified of the end, so its request counts as not executed. */
    atomic_bool told;
    atomic_bool left;
    /* known: CONNECTED was reported. reported: LOST or LEFT was reported. Under the lock. */
    bool known, reported;
    /* The heartbeat of the slower side, in seconds; set before `known`. */
    _Atomic double heartbeat;
    /* Used by the monitor: the unread bytes while the handler runs, and when their number changed. */
    size_t unread;
    double heard;
    /* Locked while a message is sent. */
    pthread_mutex_t sending;

    strata_rpc_session *session;
    uint64_t incarnation;
    /* The request that is being received. */
    struct iovec parts[2];
    unsigned char *head;
    void *body;
    size_t body_room;
    /* The number of requests since the last one whose body had at least a sixteenth of this size. */
    int idle;
    /* The reply that the handler writes. */
    unsigned char *reply_head;
    strata_rpc_piece *pieces;
} strata_rpc_connection;

struct strata_rpc_server {
    char task[STRATA_RPC_TASK_BYTES];
    uint64_t incarnation, most_body_bytes;
    int most_peers;
    strata_rpc_handler handler;
    strata_rpc_on_peer on_peer;
    void *user;
    double heartbeat;
    char address[STRATA_ADDRESS_BYTES];
    strata_credentials credentials;
    int listener, wake;
    pthread_t monitor;
    bool has_monitor;
    atomic_bool stopping;

    pthread_mutex_t lock;
    /* Signalled when a connection has released its session. */
    pthread_cond_t changed;
    /* The newest first. */
    strata_rpc_session *sessions;
    int n_sessions;
    /* A session was removed to make room for a new one. */
    bool forgot;
    struct {
        uint64_t n;
        char last[256];
    } refused;

    /* Used only by the monitor's thread. */
    strata_rpc_connection *connections;
    strata_pulse pulse;
};

uint64_t strata_rpc_incarnation(void) {
    uint64_t number = 0;
    while (!number)
        if (RAND_bytes((unsigned char *)&number, sizeof number) != 1)
            number = (uint64_t)getpid() << 44 ^ (uint64_t)(strata_clock_seconds() * 1e9);
    return number;
}

/* ---- the end of a connection ---- */

static void count_refused(strata_rpc_server *s, const char *from, const char *why) {
    STRATA_LOCKED(&s->lock);
    s->refused.n++;
    snprintf(s->refused.last, sizeof s->refused.last, "%.64s: %.180s", from, why);
}

strata_rpc_refused_text strata_rpc_server_refused(strata_rpc_server *s) {
    strata_rpc_refused_text out = {""};
    STRATA_LOCKED(&s->lock);
    if (s->refused.n)
        snprintf(out.text, sizeof out.text, "; connections refused: %llu, the last from %s", (unsigned long long)s->refused.n,
                 s->refused.last);
    return out;
}

/* Reports the loss of a peer whose connection was reported, once. */
static void report_end(strata_rpc_connection *c) {
    strata_rpc_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    const bool report = c->known && !c->reported;
    c->reported |= report;
    pthread_mutex_unlock(&s->lock);
    if (report && s->on_peer)
        s->on_peer(s->user, atomic_load(&c->left) ? STRATA_RPC_LEFT : STRATA_RPC_LOST, c->session->task, c->incarnation,
                   c->why);
}

static void wake_monitor(strata_rpc_server *s) {
    const uint64_t one = 1;
    if (write(s->wake, &one, sizeof one) < 0) return; /* the monitor wakes up at its next tick anyway */
}

/* Ends the connection and wakes its thread; if that is busy, the monitor reports the end. If this is called several times, the
 * first reason counts. The caller has the lock. */
static void end_locked(strata_rpc_connection *c, const char *why) {
    if (atomic_load(&c->ended)) return;
    snprintf(c->why, sizeof c->why, "%.255s", why);
    atomic_store(&c->ended, true);
    strata_connection_shut(&c->connection, atomic_load(&c->server->stopping)); /* a handler that has finished may still reply */
    pthread_cond_broadcast(&c->server->changed);
    wake_monitor(c->server);
}

static void end_connection(strata_rpc_connection *c, const char *why) {
    STRATA_LOCKED(&c->server->lock);
    end_locked(c, why);
}

bool strata_rpc_call_ended(const strata_rpc_call *call) {
    strata_rpc_connection *c = (strata_rpc_connection *)(uintptr_t)call->connection;
    const bool ended = atomic_load(&c->ended);
    if (ended) atomic_store(&c->told, true);
    return ended;
}

/* ---- sending ---- */

static strata_status wait_to_send(void *user, short events, strata_error *err) {
    strata_rpc_connection *c = user;
    strata_connection_wait(&c->connection, events, -1,
                           false); /* the monitor shuts the connection of a peer that does not read */
    return atomic_load(&c->ended) ? strata_fail(err, STRATA_UNAVAILABLE, "%s", c->why) : STRATA_OK;
}

/* area: NULL, or the memory that is shared from the next message on, which the connection takes. */
static strata_status send_packet(strata_rpc_connection *c, const strata_packet *m, const struct iovec *parts, int n_parts,
                                 strata_area *area, strata_error *err) {
    STRATA_LOCKED(&c->sending);
    atomic_store(&c->connection.sent, strata_clock_coarse_seconds()); /* progress is measured from now on */
    atomic_store(&c->activity, STRATA_RPC_SENDING);
    const strata_status status = strata_connection_send(&c->connection, m, parts, n_parts, wait_to_send, c, err);
    if (area) strata_connection_share(&c->connection, area, false);
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

static void drop_replies(strata_rpc_session *s) {
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
        drop_replies(gone);
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
        end_locked(own->owner, "it connected again");
        own->n_waiting++;
        pthread_cond_wait(&s->changed, &s->lock);
        own->n_waiting--;
    }
    if (own->replaced || begins) {
        drop_replies(own);
        own->next_sequence = own->unkept = 0;
    }
    own->owner = c;
    own->replaced = false;
    c->session = own;
    c->incarnation = incarnation;
    return STRATA_OK;
}

static void leave_session(strata_rpc_connection *c) {
    STRATA_LOCKED(&c->server->lock);
    c->session->owner = NULL;
    pthread_cond_broadcast(&c->server->changed);
}

static strata_status greet(strata_rpc_connection *c, const strata_packet *m, strata_error *err) {
    strata_rpc_server *s = c->server;
    strata_rpc_hello hello;
    STRATA_TRY(strata_rpc_hello_read(c->head, m->head_bytes, &hello, err));
    atomic_store(&c->heartbeat, hello.heartbeat > s->heartbeat ? hello.heartbeat : s->heartbeat);
    atomic_store(&c->activity, STRATA_RPC_HANDLING);
    strata_error why = {0};
    const strata_status refused = take_session(c, hello.task, hello.incarnation, !m->sequence, &why);
    strata_area *area = refused || !*hello.area || c->connection.stream.tls ? NULL : strata_area_open(hello.area);
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
    count_refused(s, c->from, why.message);
    return strata_fail(err, refused, "%s", why.message);
}

/* ---- requests ---- */

void *strata_rpc_reply_room(const strata_rpc_call *call, size_t bytes) {
    strata_rpc_connection *c = (strata_rpc_connection *)(uintptr_t)call->connection;
    STRATA_LOCKED(&c->sending);
    return strata_connection_reserve(&c->connection, bytes);
}

/* Returns the room of a reply that was not sent. The monitor's heartbeats read `reserved` with the lock; only this thread
 * changes it. */
static void drop_room(strata_rpc_connection *c) {
    if (!c->connection.reserved) return;
    STRATA_LOCKED(&c->sending);
    strata_connection_unreserve(&c->connection);
}

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

/* Frees stored replies that the client has received. */
static void forget_received(strata_rpc_session *s, const strata_packet *m) {
    while (s->first && m->n_unanswered <= m->sequence && s->first->sequence < m->sequence - m->n_unanswered) drop_first(s);
}

/* Handles a request: executes it if it was not executed before, and replies. */
static strata_status answer_request(strata_rpc_connection *c, const strata_packet *m, strata_error *err) {
    static const char lost[] = "the server executed this request but had no memory to keep its reply";
    strata_rpc_session *s = c->session;
    if (m->n_unanswered > m->sequence || m->n_unanswered > KEPT)
        return strata_fail(err, STRATA_DATA, "a client has %u requests without a reply before request %llu", m->n_unanswered,
                           (unsigned long long)m->sequence);
    forget_received(s, m);
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

/* ---- a connection's thread ---- */

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
    if (m->type == STRATA_FRAME_BEAT && c->session) forget_received(c->session, m);
    if (m->type == STRATA_FRAME_HELLO) status = greet(c, m, err);
    if (m->type == STRATA_FRAME_ASK) status = answer_request(c, m, err);
    if (m->type != STRATA_FRAME_BEAT) {
        c->idle = m->view || m->body_bytes < c->body_room / 16 ? c->idle + 1 : 0;
        if (c->body_room > MOST_IDLE_BODY && c->idle > MOST_IDLE) {
            free(c->body);
            c->body = NULL;
            c->body_room = 0;
        }
        atomic_store(&c->connection.received,
                     strata_clock_coarse_seconds()); /* the monitor watched the peer while the handler ran */
        atomic_store(&c->activity, c->session ? STRATA_RPC_RECEIVING : STRATA_RPC_GREETING);
    }
    if (!status && atomic_load(&c->ended)) return strata_fail(err, STRATA_UNAVAILABLE, "%s", c->why);
    return status;
}

/* Waits until the connection is ready, or shut. */
static bool wait_ready(strata_rpc_connection *c, short events) {
    strata_connection_wait(&c->connection, events, -1, events == POLLIN);
    return !atomic_load(&c->ended);
}

/* The server's side of the handshake; nothing else is read before. */
static strata_status shake_hands(strata_rpc_connection *c, strata_error *why) {
    strata_shaking s;
    short events = POLLIN;
    strata_stream *stream = &c->connection.stream;
    STRATA_TRY(strata_shaking_begin(&s, stream, NULL, NULL, &c->server->credentials, why));
    for (;;) {
        STRATA_TRY(strata_shaking_continue(&s, stream, &events, why));
        if (s.handshake.step) atomic_store(&c->activity, STRATA_RPC_GREETING);
        if (!events) break;
        if (!wait_ready(c, events)) return strata_fail(why, STRATA_PEER_LOST, "%s", c->why);
    }
    if (s.handshake.hello.purpose == STRATA_FOR_RPC) return STRATA_OK;
    return strata_fail(why, STRATA_UNAVAILABLE, "it takes %s for the store of a job", c->server->task);
}

static void *run_connection(void *user) {
    strata_rpc_connection *c = user;
    const strata_packet_receiver receiver = {begin_message, end_message, c};
    strata_error why = {0};
    strata_status status = shake_hands(c, &why);
    if (status && status != STRATA_DATA)
        count_refused(c->server, c->from, status == STRATA_PEER_LOST ? "it did not complete the handshake" : why.message);
    if (!status) strata_socket_prepare(c->connection.stream.fd);
    while (!status) {
        status = strata_connection_receive(&c->connection, &receiver, INT_MAX, &why);
        if (!status && !wait_ready(c, strata_connection_events(&c->connection, POLLIN))) status = STRATA_UNAVAILABLE;
    }
    end_connection(c, why.message);
    report_end(c);
    if (atomic_load(&c->left)) { /* a client that is created later begins a new session */
        drop_replies(c->session);
        c->session->next_sequence = c->session->unkept = 0;
    }
    if (c->session) leave_session(c);
    atomic_store(&c->activity, STRATA_RPC_FINISHED);
    wake_monitor(c->server);
    return NULL;
}

/* ---- the monitor ---- */

static void free_connection(strata_rpc_connection *c) {
    strata_connection_finish(&c->connection);
    pthread_mutex_destroy(&c->sending);
    free(c->head);
    free(c->reply_head);
    free(c->pieces);
    free(c->body);
    free(c);
}

/* If too many connections have not sent their greeting, ends the oldest that has sent nothing or, if all have sent something,
 * the oldest. */
static void make_room(strata_rpc_server *s) {
    int n_unknown = 0;
    strata_rpc_connection *oldest = NULL, *silent = NULL;
    for (strata_rpc_connection *c = s->connections; c; c = c->next) {
        const int does = atomic_load(&c->activity);
        if (does > STRATA_RPC_GREETING || atomic_load(&c->ended)) continue;
        n_unknown++;
        oldest = c; /* new connections are inserted at the front */
        if (does == STRATA_RPC_SILENT) silent = c;
    }
    if (n_unknown >= MOST_UNKNOWN) end_connection(silent ? silent : oldest, "too many connections came at once");
}

static void begin_connection(strata_rpc_server *s, int fd) {
    make_room(s);
    strata_rpc_connection *c = calloc(1, sizeof *c);
    if (!c || strata_connection_init(&c->connection, (strata_stream){.fd = fd}, NULL)) {
        if (!c) close(fd);
        free(c);
        return;
    }
    pthread_mutex_init(&c->sending, NULL);
    c->server = s;
    c->since = c->heard = strata_clock_seconds();
    atomic_store(&c->heartbeat, s->heartbeat);
    strata_socket_peer(fd, c->from);
    c->head = malloc(STRATA_RPC_HEAD_BYTES);
    c->reply_head = malloc(STRATA_RPC_HEAD_BYTES);
    c->pieces = malloc(STRATA_RPC_PIECES * sizeof *c->pieces);
    if (!c->head || !c->reply_head || !c->pieces || pthread_create(&c->thread, NULL, run_connection, c)) {
        free_connection(c);
        return;
    }
    c->next = s->connections;
    s->connections = c;
}

/* Accepts the connections that wait, for some time only: meanwhile no heartbeats are sent. */
static void accept_some(strata_rpc_server *s, double seconds) {
    const double until = strata_clock_seconds() + seconds;
    int fd;
    while ((fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        begin_connection(s, fd);
        if (strata_clock_seconds() > until) return;
    }
}

static void send_beat(strata_rpc_connection *c, double now) {
    static const strata_packet beat = {.type = STRATA_FRAME_BEAT};
    if (now - atomic_load(&c->connection.sent) < c->server->heartbeat || pthread_mutex_trylock(&c->sending)) return;
    /* Sent only if all before was received, so that it does not block; unsent bytes serve as a heartbeat, too. If the peer has
     * closed the connection, the thread that receives sees that itself, after what the peer had sent before. */
    if (!strata_connection_unsent(&c->connection) &&
        strata_connection_send(&c->connection, &beat, NULL, 0, NULL, NULL, NULL) == STRATA_TIMEOUT)
        end_connection(c, "a sign of life could not be sent");
    pthread_mutex_unlock(&c->sending);
}

/* Ends the connection of a peer that has been silent for too long. */
static void watch(strata_rpc_connection *c, double now) {
    const strata_rpc_activity does = (strata_rpc_activity)atomic_load(&c->activity);
    const double limit = strata_pulse_limit(atomic_load(&c->heartbeat), c->server->heartbeat);
    char why[128];
    if (atomic_load(&c->ended) || does == STRATA_RPC_FINISHED) return;
    if (does <= STRATA_RPC_GREETING) {
        if (strata_pulse_is_lost(&c->server->pulse, now, c->since, limit > HELLO_SECONDS ? limit : HELLO_SECONDS))
            end_connection(c, "it did not say who it is");
        return;
    }
    if (does == STRATA_RPC_HANDLING) {
        /* No thread receives now, so the peer's bytes accumulate. Between two requests the thread may receive for so short a
         * time that this thread never sees it. */
        bool full = false;
        const double received = atomic_load(&c->connection.received);
        const size_t unread = strata_connection_unread(&c->connection, &full);
        if (received > c->heard) c->heard = received;
        if (full || unread != c->unread) c->heard = now;
        c->unread = unread;
    } else {
        c->heard = atomic_load(does == STRATA_RPC_SENDING ? &c->connection.sent : &c->connection.received);
        c->unread = SIZE_MAX;
    }
    if (strata_pulse_is_lost(&c->server->pulse, now, c->heard, limit)) {
        strata_format(why, sizeof why,
                      does == STRATA_RPC_SENDING ? "it took nothing of a reply for %.3g s" : "no sign of life for %.3g s",
                      limit);
        end_connection(c, why);
        return;
    }
    send_beat(c, now);
}

static void reap(strata_rpc_server *s) {
    for (strata_rpc_connection **at = &s->connections; *at;) {
        strata_rpc_connection *c = *at;
        if (atomic_load(&c->activity) != STRATA_RPC_FINISHED) {
            if (atomic_load(&c->ended)) report_end(c);
            at = &c->next;
            continue;
        }
        *at = c->next;
        pthread_join(c->thread, NULL);
        free_connection(c);
    }
}

/* Lists the sources for which the monitor polls: new connections, its wake-up, and the ends of connections whose socket no
 * thread reads now. */
static int list_sources(strata_rpc_server *s, struct pollfd **fds, int *room) {
    int n = 2;
    for (strata_rpc_connection *c = s->connections; c; c = c->next) n++;
    if (n > *room) {
        struct pollfd *more = realloc(*fds, (size_t)n * 2 * sizeof *more);
        if (more) {
            *fds = more;
            *room = n * 2;
        }
    }
    n = 0;
    if (*room < 2) return 0;
    (*fds)[n++] = (struct pollfd){.fd = s->wake, .events = POLLIN};
    (*fds)[n++] = (struct pollfd){.fd = s->listener, .events = POLLIN};
    for (strata_rpc_connection *c = s->connections; c && n < *room; c = c->next)
        if (!atomic_load(&c->ended) &&
            (atomic_load(&c->activity) == STRATA_RPC_HANDLING || strata_connection_needs_poll(&c->connection)))
            (*fds)[n++] = (struct pollfd){.fd = c->connection.stream.fd, .events = POLLRDHUP};
    return n;
}

/* The peer has closed the connection. A thread that receives sees that itself, after what the peer had sent before. */
static void note_end(strata_rpc_connection *c) {
    if (atomic_load(&c->activity) == STRATA_RPC_HANDLING)
        end_connection(c, "its connection closed");
    else
        strata_connection_note_end(&c->connection);
}

static void *run_monitor(void *user) {
    strata_rpc_server *s = user;
    struct pollfd *fds = NULL;
    int room = 0;
    s->pulse.checked_at = strata_clock_seconds();
    const double tick = s->heartbeat / 4 < TICK_SECONDS ? s->heartbeat / 4 : TICK_SECONDS;
    while (!atomic_load(&s->stopping)) {
        uint64_t count;
        const int n = list_sources(s, &fds, &room);
        poll(fds, (nfds_t)n, (int)(tick * 1000) + 1);
        if (n && fds[0].revents && read(s->wake, &count, sizeof count) < 0) continue;
        for (int i = 2; i < n; i++)
            for (strata_rpc_connection *c = fds[i].revents ? s->connections : NULL; c; c = c->next)
                if (c->connection.stream.fd == fds[i].fd) note_end(c);
        const double now = strata_clock_seconds();
        strata_pulse_check(&s->pulse, now, 2 * s->heartbeat);
        for (strata_rpc_connection *c = s->connections; c; c = c->next) watch(c, now);
        reap(s);
        if (n && fds[1].revents) accept_some(s, tick);
    }
    for (strata_rpc_connection *c = s->connections; c; c = c->next) end_connection(c, "the server stops");
    for (strata_rpc_connection *c = s->connections; c; c = c->next) report_end(c);
    while (s->connections) {
        strata_rpc_connection *c = s->connections;
        s->connections = c->next;
        pthread_join(c->thread, NULL);
        free_connection(c);
    }
    free(fds);
    return NULL;
}

/* ---- life ---- */

static strata_status check_options(const strata_rpc_server_options *opts, strata_error *err) {
    const char *problem = strata_rpc_task_problem(opts->task);
    if (problem) return strata_fail(err, STRATA_INVALID, "a server's task name %s", problem);
    if (!opts->handler) return strata_fail(err, STRATA_INVALID, "%s has no handler for requests", opts->task);
    if (opts->most_peers < 0)
        return strata_fail(err, STRATA_INVALID, "most_peers is %d; it must be at least 0", opts->most_peers);
    return STRATA_OK;
}

static strata_status start_listening(strata_rpc_server *s, const strata_rpc_server_options *opts,
                                     const strata_communicator_options *cluster, strata_error *err) {
    char host[256], port[8];
    STRATA_TRY(strata_address_split(opts->address, host, port, err));
    const double deadline = strata_clock_seconds() + cluster->connect_seconds;
    STRATA_TRY(strata_socket_listen(cluster, host, port, STRATA_LISTEN_NAME, deadline, &s->listener, err));
    strata_socket_address(s->listener, true, s->address);
    return STRATA_OK;
}

strata_status strata_rpc_server_create(const strata_rpc_server_options *opts, strata_rpc_server **out_server,
                                       strata_error *err) {
    static const strata_communicator_options defaults = {0};
    const strata_communicator_options *cluster = opts->cluster ? opts->cluster : &defaults;
    *out_server = NULL;
    STRATA_TRY(check_options(opts, err));
    strata_rpc_server *s = calloc(1, sizeof *s);
    if (!s) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a server");
    strcpy(s->task, opts->task);
    s->incarnation = opts->incarnation ? opts->incarnation : strata_rpc_incarnation();
    s->most_peers = opts->most_peers ? opts->most_peers : MOST_PEERS;
    s->most_body_bytes = opts->most_body_bytes ? opts->most_body_bytes : MOST_BODY_BYTES;
    s->handler = opts->handler;
    s->on_peer = opts->on_peer;
    s->user = opts->user;
    s->heartbeat = cluster->heartbeat_seconds > 0 ? cluster->heartbeat_seconds : STRATA_HEARTBEAT_SECONDS;
    s->listener = -1;
    s->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&s->lock, NULL);
    strata_clock_cond_init(&s->changed);
    strata_status status = STRATA_OK;
    if (s->wake < 0)
        status = strata_fail(err, STRATA_UNAVAILABLE, "no descriptor for %s: %s", s->task, strata_errno_text(errno));
    if (!status) status = strata_credentials_init(&s->credentials, cluster, err);
    if (!status) status = start_listening(s, opts, cluster, err);
    if (!status) {
        s->has_monitor = !pthread_create(&s->monitor, NULL, run_monitor, s);
        if (!s->has_monitor) status = strata_fail(err, STRATA_UNAVAILABLE, "no thread could be made for %s", s->task);
    }
    if (status)
        strata_rpc_server_destroy(s);
    else
        *out_server = s;
    return status;
}

const char *strata_rpc_server_address(const strata_rpc_server *s) {
    return s->address;
}

void strata_rpc_server_destroy(strata_rpc_server *s) {
    if (!s) return;
    atomic_store(&s->stopping, true);
    if (s->has_monitor) {
        wake_monitor(s);
        pthread_join(s->monitor, NULL);
    }
    while (s->sessions) {
        strata_rpc_session *gone = s->sessions;
        s->sessions = gone->next;
        drop_replies(gone);
        free(gone);
    }
    if (s->listener >= 0) close(s->listener);
    if (s->wake >= 0) close(s->wake);
    strata_credentials_finish(&s->credentials);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
