/* SPDX-License-Identifier: Apache-2.0
 *
 * The server. Each connection has a thread, which shakes hands, receives requests, runs the handler and sends replies, and
 * waits without a limit. One more thread, the *monitor*, accepts connections and is the only one that watches time: it sends
 * signs of life, and shuts the connections of peers that have none, which wakes their threads.
 *
 * A *session* is what is known of a task: its incarnation, the next sequence number and the replies that it may ask for again.
 * One connection at a time owns it; only that connection's thread uses what is in it. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cluster/clock.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/rpc.h"
#include "cluster/wire/handshake.h"
#include "cluster/wire/socket.h"

enum {
    MOST_PEERS = 1024,
    MOST_UNKNOWN = 64, /* connections that have not said who they are */
    MISSED_BEATS = 5,
    ALIGNMENT = 64,
    MOST_UNREAD = 64 << 10,   /* bytes in a socket that may be all it holds */
    MOST_IDLE_BODY = 1 << 20, /* bytes of a body's memory that stay when it was not needed for MOST_IDLE requests */
    MOST_IDLE = 256,
    TLS_HANDSHAKE = 0x16, /* the first byte of a side that begins TLS */
    KEPT = 2 * STRATA_RPC_WINDOW,
};
static const double HELLO_SECONDS = 5, HEARTBEAT_SECONDS = 1, TICK_SECONDS = 0.1;
static const uint64_t MOST_BODY_BYTES = (uint64_t)4 << 30;

/* A reply that the client may ask for again. */
typedef struct kept_reply {
    struct kept_reply *next;
    uint64_t sequence;
    strata_status status;
    size_t head_bytes;
    int n_body;
    strata_rpc_piece *body;
    unsigned char head[];
} kept_reply;

struct connection;

typedef struct session {
    struct session *next;
    char task[STRATA_RPC_TASK_BYTES];
    /* Guarded by the server's lock. The highest that has come; it is not that of the replies that are kept. */
    uint64_t incarnation;
    bool replaced;
    /* Guarded too; NULL: none. */
    struct connection *owner;
    /* The next sequence number that has not been executed. */
    uint64_t next_sequence;
    /* The last request whose reply could not be kept for want of memory, plus 1; 0: none. */
    uint64_t unkept;
    /* In the order of their numbers. */
    kept_reply *first, *last;
    int n_kept;
} session;

/* What a connection's thread does, for the monitor. */
typedef enum activity { GREETING, RECEIVING, HANDLING, SENDING, FINISHED } activity;

typedef struct connection {
    struct connection *next;
    strata_rpc_server *server;
    pthread_t thread;
    strata_rpc_channel channel;
    char from[STRATA_ADDRESS_BYTES];
    /* When it was accepted. */
    double since;
    atomic_int activity;
    /* It is over, or is to be: whoever sets it shuts the channel. `why` is written before, under the lock. */
    atomic_bool ended;
    char why[256];
    /* The handler that runs was told so: the request counts as not executed. */
    atomic_bool told;
    atomic_bool left;
    /* CONNECTED was reported; LOST or LEFT was. Under the lock. */
    bool known, reported;
    /* The slower side's, in seconds; set before it is known. */
    _Atomic double heartbeat;
    /* Of the monitor: unread bytes in the socket while the handler runs, and when they changed. */
    int unread;
    double heard;
    /* Held while a message is sent. */
    pthread_mutex_t sending;

    session *session;
    uint64_t incarnation;
    /* The request that comes. */
    struct iovec parts[2];
    unsigned char *head;
    void *body;
    size_t body_room;
    /* Requests since one had a body of a sixteenth of that or more. */
    int idle;
    /* The reply that is made. */
    unsigned char *reply_head;
    strata_rpc_piece *pieces;
} connection;

struct strata_rpc_server {
    char task[STRATA_RPC_TASK_BYTES];
    uint64_t incarnation, most_body_bytes;
    int most_peers;
    strata_rpc_handler handler;
    strata_rpc_on_peer on_peer;
    void *user;
    double heartbeat;
    char address[STRATA_ADDRESS_BYTES];
    char *secret;
    strata_tls *tls;
    strata_credentials credentials;
    int listener, wake;
    pthread_t monitor;
    bool has_monitor;
    atomic_bool stopping;

    pthread_mutex_t lock;
    /* A connection let go of its session. */
    pthread_cond_t changed;
    session *sessions;
    int n_sessions;
    struct {
        uint64_t n;
        char last[256];
    } refused;

    /* Of the monitor's thread alone. */
    connection *connections;
};

uint64_t strata_rpc_incarnation(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- the end of a connection ---- */

static void count_refused(strata_rpc_server *s, const char *from, const char *why) {
    pthread_mutex_lock(&s->lock);
    s->refused.n++;
    snprintf(s->refused.last, sizeof s->refused.last, "%.64s: %.180s", from, why);
    pthread_mutex_unlock(&s->lock);
}

strata_rpc_refused_text strata_rpc_server_refused(strata_rpc_server *s) {
    strata_rpc_refused_text out = {""};
    pthread_mutex_lock(&s->lock);
    if (s->refused.n)
        snprintf(out.text, sizeof out.text, "; connections refused: %llu, the last from %s", (unsigned long long)s->refused.n,
                 s->refused.last);
    pthread_mutex_unlock(&s->lock);
    return out;
}

/* Reports the loss of a peer that is known, once. */
static void report_end(connection *c) {
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
    if (write(s->wake, &one, sizeof one) < 0) return; /* it comes by anyway */
}

/* Marks the connection as over, for the first reason that is given, and wakes its thread. The lock is held. The monitor
 * reports it where the thread is busy. */
static void end_locked(connection *c, const char *why) {
    if (atomic_load(&c->ended)) return;
    snprintf(c->why, sizeof c->why, "%.255s", why);
    atomic_store(&c->ended, true);
    if (atomic_load(&c->server->stopping)) /* a handler that has done its work may still reply */
        shutdown(c->channel.stream.fd, SHUT_RD);
    else
        strata_rpc_channel_shut(&c->channel);
    pthread_cond_broadcast(&c->server->changed);
    wake_monitor(c->server);
}

static void end(connection *c, const char *why) {
    pthread_mutex_lock(&c->server->lock);
    end_locked(c, why);
    pthread_mutex_unlock(&c->server->lock);
}

bool strata_rpc_call_ended(const strata_rpc_call *call) {
    connection *c = (connection *)(uintptr_t)call->connection;
    const bool ended = atomic_load(&c->ended);
    if (ended) atomic_store(&c->told, true);
    return ended;
}

/* ---- sending ---- */

static strata_status wait_ready(void *user, short events, strata_error *err) {
    connection *c = user;
    struct pollfd fd = {.fd = c->channel.stream.fd, .events = events};
    poll(&fd, 1, -1); /* the monitor shuts the connection of a peer that takes nothing */
    return atomic_load(&c->ended) ? strata_fail(err, STRATA_UNAVAILABLE, "%s", c->why) : STRATA_OK;
}

/* Of a message that must not wait. */
static strata_status refuse_to_wait(void *user, short events, strata_error *err) {
    (void)user, (void)events;
    return strata_fail(err, STRATA_UNAVAILABLE, "the socket is full");
}

static strata_status send_message(connection *c, const strata_rpc_message *m, const struct iovec *parts, int n_parts,
                                  strata_error *err) {
    pthread_mutex_lock(&c->sending);
    atomic_store(&c->channel.sent, strata_clock_seconds()); /* progress is measured from now on */
    atomic_store(&c->activity, SENDING);
    const strata_status status = strata_rpc_channel_send(&c->channel, m, parts, n_parts, wait_ready, c, err);
    pthread_mutex_unlock(&c->sending);
    return status;
}

/* ---- replies that are kept ---- */

static void release_pieces(const strata_rpc_piece *pieces, int n) {
    for (int i = 0; i < n; i++)
        if (pieces[i].release) pieces[i].release(pieces[i].user);
}

static void drop_first(session *s) {
    kept_reply *k = s->first;
    s->first = k->next;
    if (!s->first) s->last = NULL;
    s->n_kept--;
    release_pieces(k->body, k->n_body);
    free(k->body);
    free(k);
}

static void drop_all(session *s) {
    while (s->first) drop_first(s);
}

/* Takes the pieces. NULL: no memory. */
static kept_reply *keep(session *s, uint64_t sequence, strata_status status, const strata_rpc_reply *reply) {
    kept_reply *k = malloc(sizeof *k + reply->head_bytes);
    strata_rpc_piece *body = reply->n_body ? malloc((size_t)reply->n_body * sizeof *body) : NULL;
    if (!k || (reply->n_body && !body)) {
        free(k);
        free(body);
        return NULL;
    }
    *k = (kept_reply){
        .sequence = sequence, .status = status, .head_bytes = reply->head_bytes, .n_body = reply->n_body, .body = body};
    memcpy(k->head, reply->head, reply->head_bytes);
    if (body) memcpy(body, reply->body, (size_t)reply->n_body * sizeof *body);
    *(s->last ? &s->last->next : &s->first) = k;
    s->last = k;
    s->n_kept++;
    return k;
}

static strata_status send_reply(connection *c, uint64_t sequence, strata_status result, void *head, size_t head_bytes,
                                const strata_rpc_piece *body, int n_body, strata_error *err) {
    struct iovec few[9], *parts = n_body < 9 ? few : malloc(((size_t)n_body + 1) * sizeof *parts);
    if (!parts) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory to send a reply of %d pieces", n_body);
    strata_rpc_message m = {.type = STRATA_FRAME_ANSWER, .status = result, .sequence = sequence, .head_bytes = head_bytes};
    parts[0] = (struct iovec){head, head_bytes};
    for (int i = 0; i < n_body; i++) {
        parts[i + 1] = (struct iovec){(void *)(uintptr_t)body[i].data, body[i].bytes};
        m.body_bytes += body[i].bytes;
    }
    const strata_status status = send_message(c, &m, parts, n_body + 1, err);
    if (parts != few) free(parts);
    return status;
}

/* ---- requests ---- */

void *strata_rpc_reply_room(const strata_rpc_call *call, size_t bytes) {
    connection *c = (connection *)(uintptr_t)call->connection;
    pthread_mutex_lock(&c->sending);
    void *room = strata_rpc_channel_reserve(&c->channel, bytes);
    pthread_mutex_unlock(&c->sending);
    return room;
}

/* Runs the handler and sends its reply. */
static strata_status execute(connection *c, const strata_rpc_message *m, strata_error *err) {
    strata_rpc_server *s = c->server;
    const strata_rpc_call call = {.task = c->session->task,
                                  .incarnation = c->incarnation,
                                  .sequence = m->sequence,
                                  .method = m->method,
                                  .head = c->head,
                                  .head_bytes = m->head_bytes,
                                  .body = m->view ? m->view : c->body,
                                  .body_bytes = m->body_bytes,
                                  .connection = c};
    strata_rpc_reply reply = {.head = c->reply_head, .body = c->pieces};
    strata_error why = {0};
    atomic_store(&c->activity, HANDLING);
    atomic_store(&c->told, false);
    const strata_status result = s->handler(s->user, &call, &reply, &why);
    if (result) {
        release_pieces(reply.body, reply.n_body);
        reply.n_body = 0;
        reply.head_bytes = strnlen(why.message, STRATA_ERROR_MESSAGE_BYTES - 1);
        memcpy(reply.head, why.message, reply.head_bytes);
    }
    if (atomic_load(&c->told)) {
        strata_rpc_channel_unreserve(&c->channel);
        release_pieces(reply.body, reply.n_body);
        if (c->session->next_sequence == m->sequence + 1) c->session->next_sequence = m->sequence;
        return strata_fail(err, STRATA_UNAVAILABLE, "%s", c->why);
    }
    const bool kept = !reply.repeatable && keep(c->session, m->sequence, result, &reply);
    if (!kept && !reply.repeatable) c->session->unkept = m->sequence + 1;
    const strata_status status =
        send_reply(c, m->sequence, result, reply.head, reply.head_bytes, reply.body, reply.n_body, err);
    if (!kept) release_pieces(reply.body, reply.n_body);
    strata_rpc_channel_unreserve(&c->channel);
    return status;
}

/* Drops the replies that the client has by now. */
static void forget(session *s, const strata_rpc_message *m) {
    while (s->first && m->n_unanswered <= m->sequence && s->first->sequence < m->sequence - m->n_unanswered) drop_first(s);
}

/* A request came: executes it if that has not been done. */
static strata_status answer(connection *c, const strata_rpc_message *m, strata_error *err) {
    static const char lost[] = "the server executed this request but had no memory to keep its reply";
    session *s = c->session;
    if (m->n_unanswered > m->sequence || m->n_unanswered > KEPT)
        return strata_fail(err, STRATA_DATA, "a client has %u requests without a reply before request %llu", m->n_unanswered,
                           (unsigned long long)m->sequence);
    forget(s, m);
    if (m->sequence >= s->next_sequence) {
        if (s->n_kept >= KEPT) return strata_fail(err, STRATA_DATA, "a client did not take %d replies", KEPT);
        s->next_sequence = m->sequence + 1;
        return execute(c, m, err);
    }
    for (kept_reply *k = s->first; k; k = k->next)
        if (k->sequence == m->sequence)
            return send_reply(c, k->sequence, k->status, k->head, k->head_bytes, k->body, k->n_body, err);
    if (m->sequence < s->unkept)
        return send_reply(c, m->sequence, STRATA_OUT_OF_MEMORY, (void *)(uintptr_t)lost, sizeof lost - 1, NULL, 0, err);
    return execute(c, m, err); /* it was repeatable */
}

/* ---- who the peer is ---- */

static session *find_session(strata_rpc_server *s, const char *task) {
    session *at = s->sessions;
    while (at && strcmp(at->task, task) != 0) at = at->next;
    return at;
}

/* Makes the connection the owner of the task's session, waiting until an earlier connection of it is over. Fails where the
 * task cannot be taken. */
static strata_status take_session(connection *c, const char *task, uint64_t incarnation, strata_error *err) {
    strata_rpc_server *s = c->server;
    strata_status status = STRATA_OK;
    pthread_mutex_lock(&s->lock);
    session *own = find_session(s, task);
    if (!own && s->n_sessions < s->most_peers) own = calloc(1, sizeof *own);
    if (!own) {
        status = strata_fail(err, STRATA_UNAVAILABLE, "%s has %d tasks, as many as it takes", s->task, s->n_sessions);
    } else if (!*own->task) {
        strcpy(own->task, task);
        own->incarnation = incarnation;
        own->next = s->sessions;
        s->sessions = own;
        s->n_sessions++;
    }
    if (!status && incarnation > own->incarnation) { /* from now on requests of the lower one are refused */
        own->incarnation = incarnation;
        own->replaced = true;
    }
    while (!status) {
        if (atomic_load(&c->ended)) {
            status = strata_fail(err, STRATA_UNAVAILABLE, "%s", c->why);
        } else if (incarnation < own->incarnation) {
            status = strata_fail(err, STRATA_INVALID,
                                 "%s was started again: incarnation %llu replaced %llu, whose requests are refused", task,
                                 (unsigned long long)own->incarnation, (unsigned long long)incarnation);
        } else if (own->owner) {
            end_locked(own->owner, "it connected again");
            pthread_cond_wait(&s->changed, &s->lock);
        } else {
            break;
        }
    }
    const bool again = !status && own->replaced;
    if (!status) {
        own->owner = c;
        own->replaced = false;
        c->session = own;
        c->incarnation = incarnation;
    }
    pthread_mutex_unlock(&s->lock);
    if (again) {
        drop_all(own);
        own->next_sequence = own->unkept = 0;
    }
    return status;
}

static void leave_session(connection *c) {
    pthread_mutex_lock(&c->server->lock);
    c->session->owner = NULL;
    pthread_cond_broadcast(&c->server->changed);
    pthread_mutex_unlock(&c->server->lock);
}

/* The peer's first message: who it is. */
static strata_status greet(connection *c, const strata_rpc_message *m, strata_error *err) {
    strata_rpc_server *s = c->server;
    char task[STRATA_RPC_TASK_BYTES];
    uint64_t incarnation;
    double heartbeat;
    unsigned char own[STRATA_RPC_HELLO_BYTES];
    char name[STRATA_RPC_AREA_NAME];
    STRATA_TRY(strata_rpc_hello_decode(c->head, m->head_bytes, task, sizeof task, &incarnation, &heartbeat, name, err));
    atomic_store(&c->heartbeat, heartbeat > s->heartbeat ? heartbeat : s->heartbeat);
    atomic_store(&c->activity, HANDLING);
    strata_error why = {0};
    const strata_status refused = take_session(c, task, incarnation, &why);
    strata_rpc_area *area = refused || !*name || c->channel.stream.tls ? NULL : strata_rpc_area_open(name);
    const size_t n = refused ? strnlen(why.message, sizeof why.message)
                             : strata_rpc_hello_encode(s->task, s->incarnation, s->heartbeat, area ? name : NULL, own);
    const strata_rpc_message reply = {.type = STRATA_FRAME_HELLO, .status = refused, .head_bytes = n};
    const struct iovec part = {refused ? (void *)why.message : own, n};
    if (!refused) {
        if (s->on_peer) s->on_peer(s->user, STRATA_RPC_CONNECTED, task, incarnation, "");
        pthread_mutex_lock(&s->lock);
        c->known = true;
        pthread_mutex_unlock(&s->lock);
    }
    const strata_status status = send_message(c, &reply, &part, 1, err);
    if (area) strata_rpc_channel_share(&c->channel, area, false); /* from the next message on */
    if (!refused) return status;
    count_refused(s, c->from, why.message);
    return strata_fail(err, refused, "%s", why.message);
}

/* ---- a connection's thread ---- */

static strata_status begin_message(void *user, const strata_rpc_message *m, const struct iovec **out_parts, int *out_n_parts,
                                   strata_error *err) {
    connection *c = user;
    const bool known = c->session != NULL;
    if (m->type == STRATA_FRAME_BEAT || m->type == STRATA_FRAME_LEAVE) return STRATA_OK;
    if (m->type != (known ? STRATA_FRAME_ASK : STRATA_FRAME_HELLO))
        return strata_fail(err, STRATA_DATA, "a message of type %d came unexpectedly", m->type);
    if (m->body_bytes > (known ? c->server->most_body_bytes : 0))
        return strata_fail(err, STRATA_DATA, "a request of %zu bytes came; at most %llu are taken", m->body_bytes,
                           (unsigned long long)c->server->most_body_bytes);
    if (m->view) { /* the head is looked at again and again, so it is copied from where the client could change it */
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

static strata_status end_message(void *user, const strata_rpc_message *m, strata_error *err) {
    connection *c = user;
    strata_status status = STRATA_OK;
    if (m->type == STRATA_FRAME_LEAVE) {
        atomic_store(&c->left, true);
        return strata_fail(err, STRATA_UNAVAILABLE, "it left");
    }
    if (m->type == STRATA_FRAME_BEAT && c->session) forget(c->session, m);
    if (m->type == STRATA_FRAME_HELLO) status = greet(c, m, err);
    if (m->type == STRATA_FRAME_ASK) status = answer(c, m, err);
    if (m->type != STRATA_FRAME_BEAT) {
        c->idle = m->view || m->body_bytes < c->body_room / 16 ? c->idle + 1 : 0;
        if (c->body_room > MOST_IDLE_BODY && c->idle > MOST_IDLE) {
            free(c->body);
            c->body = NULL;
            c->body_room = 0;
        }
        atomic_store(&c->channel.received, strata_clock_seconds()); /* the peer was watched while the handler ran */
        atomic_store(&c->activity, c->session ? RECEIVING : GREETING);
    }
    if (!status && atomic_load(&c->ended)) return strata_fail(err, STRATA_UNAVAILABLE, "%s", c->why);
    return status;
}

/* Waits for bytes of the peer, or until the connection is shut. */
static bool wait_for_bytes(connection *c, bool out) {
    struct pollfd fd = {.fd = c->channel.stream.fd, .events = strata_rpc_channel_events(&c->channel, out ? POLLOUT : POLLIN)};
    poll(&fd, 1, -1);
    return !atomic_load(&c->ended);
}

/* n bytes of the handshake, in or out. */
static bool move(connection *c, unsigned char *bytes, size_t n, bool out, strata_error *why) {
    for (size_t done = 0; done < n;) {
        const struct iovec rest = {bytes + done, n - done};
        const ssize_t moved =
            out ? strata_stream_send(&c->channel.stream, &rest, 1) : strata_stream_recv(&c->channel.stream, &rest, 1);
        if (moved > 0) {
            done += (size_t)moved;
        } else if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!wait_for_bytes(c, out)) return false;
        } else {
            if (moved < 0 && errno == EPROTO)
                strata_fail(why, STRATA_UNAVAILABLE, "%s", strata_stream_problem(&c->channel.stream, EPROTO));
            return false;
        }
    }
    return true;
}

/* The server's side of the handshake; nothing else is read before. */
static bool shake_hands(connection *c, strata_error *why) {
    const strata_credentials *own = &c->server->credentials;
    unsigned char in[STRATA_HANDSHAKE_BYTES], out[STRATA_HANDSHAKE_BYTES];
    strata_handshake h;
    size_t n_out = 0;
    if (own->tls && strata_tls_begin(own->tls, &c->channel.stream, NULL, why)) return false;
    if (strata_handshake_begin(&h, NULL, own->secret, own->secret_bytes, out, &n_out, why)) return false;
    while (!h.done) {
        if (!move(c, in, h.wanted, false, why)) return false;
        if (strata_handshake_step(&h, in, out, &n_out, why)) {
            if (!own->tls && in[0] == TLS_HANDSHAKE) {
                strata_fail(why, STRATA_UNAVAILABLE, "it uses TLS and %s does not: all tasks must", c->server->task);
                memcpy(out, strata_tls_alert, STRATA_TLS_ALERT_BYTES);
                move(c, out, STRATA_TLS_ALERT_BYTES, true, NULL);
            }
            return false;
        }
        if (!move(c, out, n_out, true, why)) return false;
    }
    if (h.hello.purpose == STRATA_FOR_RPC) return true;
    strata_fail(why, STRATA_UNAVAILABLE, "it takes %s for the store of a job", c->server->task);
    return false;
}

static void *run_connection(void *user) {
    connection *c = user;
    const strata_rpc_receiver receiver = {begin_message, end_message, c};
    strata_error why = {0};
    strata_status status = STRATA_OK;
    if (!shake_hands(c, &why)) {
        if (why.status != STRATA_DATA)
            count_refused(c->server, c->from, *why.message ? why.message : "it did not complete the handshake");
        status = STRATA_UNAVAILABLE;
    } else {
        strata_socket_prepare(c->channel.stream.fd);
    }
    while (!status) {
        status = strata_rpc_channel_receive(&c->channel, &receiver, &why);
        if (!status && !wait_for_bytes(c, false)) status = STRATA_UNAVAILABLE;
    }
    end(c, why.message);
    report_end(c);
    if (atomic_load(&c->left)) { /* a client that is made later begins anew */
        drop_all(c->session);
        c->session->next_sequence = c->session->unkept = 0;
    }
    if (c->session) leave_session(c);
    atomic_store(&c->activity, FINISHED);
    wake_monitor(c->server);
    return NULL;
}

/* ---- the monitor ---- */

static void free_connection(connection *c) {
    strata_rpc_channel_finish(&c->channel);
    pthread_mutex_destroy(&c->sending);
    free(c->head);
    free(c->reply_head);
    free(c->pieces);
    free(c->body);
    free(c);
}

/* As many connections as may be have not said who they are: the oldest goes. */
static void make_room(strata_rpc_server *s) {
    int n_unknown = 0;
    connection *oldest = NULL;
    for (connection *c = s->connections; c; c = c->next) {
        if (atomic_load(&c->activity) != GREETING || atomic_load(&c->ended)) continue;
        n_unknown++;
        oldest = c; /* new ones are put first */
    }
    if (n_unknown >= MOST_UNKNOWN) end(oldest, "too many connections came at once");
}

static void begin_connection(strata_rpc_server *s, int fd) {
    make_room(s);
    connection *c = calloc(1, sizeof *c);
    if (!c || strata_rpc_channel_init(&c->channel, (strata_stream){.fd = fd}, NULL)) {
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

static void send_beat(connection *c, double now) {
    static const strata_rpc_message beat = {.type = STRATA_FRAME_BEAT};
    int unsent = 0;
    if (now - atomic_load(&c->channel.sent) < c->server->heartbeat || pthread_mutex_trylock(&c->sending)) return;
    /* It fits the socket, so that nothing waits; where it does not, the bytes that are there are a sign of life. */
    if (!ioctl(c->channel.stream.fd, TIOCOUTQ, &unsent) && !unsent)
        if (strata_rpc_channel_send(&c->channel, &beat, NULL, 0, refuse_to_wait, c, NULL))
            end(c, "a sign of life could not be sent");
    pthread_mutex_unlock(&c->sending);
}

/* Ends the connection of a peer that has been silent for too long. */
static void watch(connection *c, double now) {
    const activity does = (activity)atomic_load(&c->activity);
    const double limit = MISSED_BEATS * atomic_load(&c->heartbeat);
    char why[128];
    if (atomic_load(&c->ended) || does == FINISHED) return;
    if (does == GREETING) {
        if (now - c->since > HELLO_SECONDS) end(c, "it did not say who it is");
        return;
    }
    if (does == HANDLING) {
        /* Nobody reads: what the peer sends piles up in the socket. */
        int unread = 0;
        if (ioctl(c->channel.stream.fd, FIONREAD, &unread) || unread != c->unread || unread > MOST_UNREAD) c->heard = now;
        c->unread = unread;
    } else {
        c->heard = atomic_load(does == SENDING ? &c->channel.sent : &c->channel.received);
        c->unread = -1;
    }
    if (now - c->heard > limit) {
        snprintf(why, sizeof why, does == SENDING ? "it took nothing of a reply for %.3g s" : "no sign of life for %.3g s",
                 limit);
        end(c, why);
        return;
    }
    send_beat(c, now);
}

static void reap(strata_rpc_server *s) {
    for (connection **at = &s->connections; *at;) {
        connection *c = *at;
        if (atomic_load(&c->activity) != FINISHED) {
            if (atomic_load(&c->ended)) report_end(c);
            at = &c->next;
            continue;
        }
        *at = c->next;
        pthread_join(c->thread, NULL);
        free_connection(c);
    }
}

/* What the monitor waits for: new connections, its wake, and the ends of connections that nobody reads now. */
static int list_sources(strata_rpc_server *s, struct pollfd **fds, int *room) {
    int n = 2;
    for (connection *c = s->connections; c; c = c->next) n++;
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
    for (connection *c = s->connections; c && n < *room; c = c->next)
        if (atomic_load(&c->activity) == HANDLING && !atomic_load(&c->ended))
            (*fds)[n++] = (struct pollfd){.fd = c->channel.stream.fd, .events = POLLRDHUP};
    return n;
}

static void *run_monitor(void *user) {
    strata_rpc_server *s = user;
    struct pollfd *fds = NULL;
    int room = 0;
    const double tick = s->heartbeat / 4 < TICK_SECONDS ? s->heartbeat / 4 : TICK_SECONDS;
    while (!atomic_load(&s->stopping)) {
        uint64_t count;
        const int n = list_sources(s, &fds, &room);
        poll(fds, (nfds_t)n, (int)(tick * 1000) + 1);
        if (n && fds[0].revents && read(s->wake, &count, sizeof count) < 0) continue;
        for (int i = 2; i < n; i++)
            for (connection *c = fds[i].revents ? s->connections : NULL; c; c = c->next)
                if (c->channel.stream.fd == fds[i].fd && atomic_load(&c->activity) == HANDLING) end(c, "its connection closed");
        const double now = strata_clock_seconds();
        for (connection *c = s->connections; c; c = c->next) watch(c, now);
        reap(s);
        for (int fd; n && fds[1].revents && (fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
            begin_connection(s, fd);
    }
    for (connection *c = s->connections; c; c = c->next) end(c, "the server stops");
    for (connection *c = s->connections; c; c = c->next) report_end(c);
    while (s->connections) {
        connection *c = s->connections;
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
    const strata_communicator_options *cluster = opts->cluster;
    if (problem) return strata_fail(err, STRATA_INVALID, "a server's task name %s", problem);
    if (!opts->handler) return strata_fail(err, STRATA_INVALID, "%s has no handler for requests", opts->task);
    if (opts->most_peers < 0)
        return strata_fail(err, STRATA_INVALID, "most_peers is %d; it must be at least 0", opts->most_peers);
    if (cluster && cluster->secret_bytes && !cluster->secret)
        return strata_fail(err, STRATA_INVALID, "secret_bytes is %zu without a secret", cluster->secret_bytes);
    if (cluster && (!(cluster->heartbeat_seconds >= 0) || !(cluster->connect_seconds >= 0)))
        return strata_fail(err, STRATA_INVALID, "heartbeat_seconds is %g and connect_seconds %g; they must be at least 0",
                           cluster->heartbeat_seconds, cluster->connect_seconds);
    return STRATA_OK;
}

static strata_status start_listening(strata_rpc_server *s, const strata_rpc_server_options *opts,
                                     const strata_communicator_options *cluster, strata_error *err) {
    char host[256], port[8];
    bool beyond = false;
    STRATA_TRY(strata_address_split(opts->address, host, port, err));
    if (cluster->interface) STRATA_TRY(strata_interface_address(cluster->interface, host, err));
    STRATA_TRY(
        strata_socket_listen(host, port, true, strata_clock_seconds() + cluster->connect_seconds, &s->listener, &beyond, err));
    if (beyond && !cluster->secret_bytes && !cluster->insecure)
        return strata_fail(err, STRATA_INVALID,
                           "%s would listen on %s without a secret: anyone who reaches it could take part. Give all tasks a "
                           "secret (STRATA_SECRET), or say that it is insecure on purpose (--insecure)",
                           s->task, host);
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
    if (s) s->secret = malloc(cluster->secret_bytes + 1);
    if (!s || !s->secret) {
        free(s);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a server");
    }
    strcpy(s->task, opts->task);
    if (cluster->secret_bytes) memcpy(s->secret, cluster->secret, cluster->secret_bytes);
    s->credentials = (strata_credentials){s->secret, cluster->secret_bytes, NULL};
    s->incarnation = opts->incarnation ? opts->incarnation : strata_rpc_incarnation();
    s->most_peers = opts->most_peers ? opts->most_peers : MOST_PEERS;
    s->most_body_bytes = opts->most_body_bytes ? opts->most_body_bytes : MOST_BODY_BYTES;
    s->handler = opts->handler;
    s->on_peer = opts->on_peer;
    s->user = opts->user;
    s->heartbeat = cluster->heartbeat_seconds > 0 ? cluster->heartbeat_seconds : HEARTBEAT_SECONDS;
    s->listener = -1;
    s->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    strata_status status = STRATA_OK;
    if (s->wake < 0) status = strata_fail(err, STRATA_UNAVAILABLE, "no descriptor for %s: %s", s->task, strerror(errno));
    if (!status) status = strata_tls_create(cluster, &s->tls, err);
    s->credentials.tls = s->tls;
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
        session *gone = s->sessions;
        s->sessions = gone->next;
        drop_all(gone);
        free(gone);
    }
    if (s->listener >= 0) close(s->listener);
    if (s->wake >= 0) close(s->wake);
    strata_tls_destroy(s->tls);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->secret);
    free(s);
}
