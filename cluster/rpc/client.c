/* SPDX-License-Identifier: Apache-2.0
 *
 * The client. A caller sends its request itself, and while it waits it also receives replies, for all requests. So a call needs
 * no switch of threads. There are two roles, the *sender* and the *receiver*; one thread at a time has each of them. A
 * background thread, the *keeper*, receives while no caller waits, sends heartbeats, and connects again after a connection was
 * lost.
 *
 * A connection that failed is shut down at once. When no thread has a role, the keeper closes it, connects again, and sends all
 * requests without a reply again, in their order. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cluster/rpc/hello.h"
#include "cluster/rpc/rpc.h"
#include "cluster/wire/connection.h"
#include "cluster/wire/pulse.h"
#include "cluster/wire/socket.h"
#include "core/base/locale.h"
#include "core/base/locked.h"

/* The keeper's ticks while requests are pending: WATCH_TICK_MS if no other thread receives, BUSY_TICK_MS if one does. */
enum { BUSY_TICK_MS = 2, WATCH_TICK_MS = 20 };
static const double CONNECT_SECONDS = 60, RECONNECT_SECONDS = 10;
/* The first and the longest pause between attempts to connect again, and the time limits of one attempt and of a greeting. */
enum { FIRST_PAUSE_MS = 10, MOST_PAUSE_MS = 1000 };
static const double TRY_SECONDS = 0.5, HELLO_SECONDS = 5, AWAY_SECONDS = 1;

enum { WAIT_TICK_MS = 100, WHAT_BYTES = 96 };

struct strata_rpc_request {
    strata_rpc_client *client;
    /* The next request without a reply, by sequence number. */
    strata_rpc_request *next;
    uint64_t sequence;
    uint32_t method;
    size_t head_bytes, body_bytes;
    char what[WHAT_BYTES];
    double seconds, began, deadline;
    /* NULL: the caller does not need the reply's content. */
    strata_rpc_answer *answer;
    /* It was sent, at least in part, to a server of this incarnation. */
    bool was_sent;
    uint64_t sent_to;
    bool done;
    /* The memory for the reply: head, then body; for an error the text. */
    struct iovec *rooms;
    int n_parts, n_rooms;
    /* The reply is larger than its rooms. */
    bool too_large;
    /* The reply is used in place, in shared memory. */
    bool lends;
    /* The request's error and the text of the server's. They are large and rarely used, so only their first bytes are set. */
    strata_error error;
    char text[STRATA_ERROR_MESSAGE_BYTES];
    /* The parts that are sent: head, then body. The rooms follow. */
    struct iovec parts[];
};

struct strata_rpc_client {
    char task[STRATA_RPC_TASK_BYTES], server[STRATA_RPC_TASK_BYTES], address[STRATA_ADDRESS_BYTES + 256];
    uint64_t incarnation;
    double heartbeat, reconnect_seconds;
    size_t shared_bytes;
    strata_credentials credentials;
    pthread_t keeper;
    int wake;

    /* Guards all below. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;
    /* connected: the connection can be used. Otherwise the keeper will close it, if it is open, and connect again. */
    bool open, connected;
    strata_connection connection;
    double server_heartbeat;
    uint64_t server_incarnation;
    /* Checked when the silence of the server is. */
    strata_pulse pulse;
    /* Since when it is not connected, and why. */
    double broke_at;
    char why[300];
    /* The server refuses this task permanently. */
    bool refused;
    bool has_sender, has_receiver;
    int n_waiters;
    /* The keeper is in a long sleep and must be woken to receive. */
    bool keeper_sleeps;
    uint64_t next_sequence;
    strata_rpc_request *first, *last;
    /* The request whose reply is being received, the request that is being sent, and the request for whose reply the receiver
     * waits. */
    strata_rpc_request *receiving, *sending;
    const strata_rpc_request *awaited;
};

/* ---- small things ---- */

static void wake_keeper(strata_rpc_client *c) {
    const uint64_t one = 1;
    if (write(c->wake, &one, sizeof one) < 0) return;
}

/* Waits for a change until that time. The caller has the lock, as in what follows. */
static void wait_changed(strata_rpc_client *c, double until) {
    const double left = until - strata_clock_seconds();
    strata_wait_for(&c->changed, &c->lock, left > 0 ? left : 0);
}

/* Marks the connection as failed. If this is called several times, the first reason counts. */
static void break_link(strata_rpc_client *c, const char *why) {
    if (!c->connected) return;
    c->connected = false;
    c->broke_at = strata_clock_seconds();
    snprintf(c->why, sizeof c->why, "%.299s", why);
    strata_connection_shut(&c->connection, false);
    pthread_cond_broadcast(&c->changed);
    wake_keeper(c);
}

static void unlink_request(strata_rpc_client *c, strata_rpc_request *r) {
    strata_rpc_request *before = NULL;
    for (strata_rpc_request *at = c->first; at && at != r; at = at->next) before = at;
    *(before ? &before->next : &c->first) = r->next;
    if (c->last == r) c->last = before;
    r->done = true;
}

static void fail_request(strata_rpc_client *c, strata_rpc_request *r, strata_status status, const char *why) {
    strata_fail(&r->error, status, "%s at %s: %s failed: %s", c->server, c->address, r->what, why);
    unlink_request(c, r);
    pthread_cond_broadcast(&c->changed);
}

/* Fails the connection if nothing was received from the server for too long. */
static void check_silence(strata_rpc_client *c) {
    const double limit = strata_pulse_limit(c->heartbeat, c->server_heartbeat), now = strata_clock_seconds();
    char why[96];
    /* the keeper calls this at least four times in each heartbeat */
    strata_pulse_check(&c->pulse, now, 2 * c->heartbeat + AWAY_SECONDS);
    if (!c->connected || !strata_pulse_is_lost(&c->pulse, now, atomic_load(&c->connection.received), limit)) return;
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
        r->answer->lender = strata_area_hold(c->connection.area);
        r->answer->lent_head = m->head_bytes;
        c->connection.kept = true;
    }
    if (r) finish_request(c, r, m);
    if (r && r == c->awaited)
        c->connection.stop = true;
    else
        pthread_cond_broadcast(&c->changed);
    return STRATA_OK;
}

/* Receives what has arrived. The caller is the receiver and does not have the lock, which this takes at the end. */
static void receive(strata_rpc_client *c) {
    const strata_packet_receiver receiver = {begin_message, end_message, c};
    strata_error why; /* set if the status is not OK */
    const strata_status status = strata_connection_receive(&c->connection, &receiver, INT_MAX, &why);
    pthread_mutex_lock(&c->lock);
    if (status) break_link(c, why.message);
}

/* Makes this thread the receiver, which returns when `awaited` has its reply. */
static void take_receiver(strata_rpc_client *c, const strata_rpc_request *awaited) {
    c->has_receiver = true;
    c->awaited = awaited;
}

static void leave_receiver(strata_rpc_client *c) {
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
    const short possible = strata_connection_wait(&c->connection, events, WAIT_TICK_MS, false);
    STRATA_LOCKED(&c->lock);
    if ((possible & POLLIN) && c->connected && !c->has_receiver) {
        take_receiver(c, NULL);
        pthread_mutex_unlock(&c->lock);
        receive(c);
        leave_receiver(c);
    }
    if (!c->has_receiver) check_silence(c); /* unread bytes may contain a heartbeat */
    if (!c->connected || c->closing)
        return strata_fail(err, STRATA_UNAVAILABLE, "%s", c->connected ? "the client was destroyed" : c->why);
    if (strata_clock_seconds() > s->deadline)
        return strata_fail(err, STRATA_TIMEOUT, "a request could not be sent in its time");
    return STRATA_OK;
}

/* Sends a request. The caller is the sender and has the lock, which is released meanwhile. */
static void send_request(strata_rpc_client *c, strata_rpc_request *r, double deadline) {
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
    const strata_status status = strata_connection_send(&c->connection, &m, r->parts, r->n_parts, wait_ready, &s, &why);
    pthread_mutex_lock(&c->lock);
    c->sending = NULL;
    if (r->done) pthread_cond_broadcast(&c->changed); /* its reply had arrived, but its memory was still in use */
    if (status) break_link(c, why.message);
}

static void leave_sender(strata_rpc_client *c) {
    c->has_sender = false;
    pthread_cond_broadcast(&c->changed);
}

static void send_beat(strata_rpc_client *c) {
    const uint64_t next = c->next_sequence;
    const strata_packet beat = {
        .type = STRATA_FRAME_BEAT, .sequence = next, .n_unanswered = (uint32_t)(c->first ? next - c->first->sequence : 0)};
    sending s = {c, strata_clock_seconds() + c->heartbeat};
    strata_error why = {0};
    c->has_sender = true;
    pthread_mutex_unlock(&c->lock);
    const strata_status status = strata_connection_send(&c->connection, &beat, NULL, 0, wait_ready, &s, &why);
    pthread_mutex_lock(&c->lock);
    if (status) break_link(c, why.message);
    leave_sender(c);
}

/* ---- connecting: the first time in the thread that creates the client, later in the keeper ---- */

/* The first messages of both sides on a new connection. */
typedef struct greeting {
    strata_rpc_client *client;
    strata_connection *connection;
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
    g->connection->stop = true;
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
    struct pollfd fd = {.fd = g->connection->stream.fd, .events = events};
    /* while the handler of an earlier connection runs, the server delays its greeting, but sends heartbeats */
    if (strata_clock_seconds() - atomic_load(&g->connection->received) > HELLO_SECONDS || strata_clock_seconds() > g->deadline)
        return strata_fail(err, STRATA_TIMEOUT, "it does not greet: does a request of an earlier connection still run?");
    poll(&fd, 1, WAIT_TICK_MS);
    STRATA_LOCKED(&g->client->lock);
    return g->client->closing ? strata_fail(err, STRATA_INTERRUPTED, "the client was destroyed") : STRATA_OK;
}

/* Connects until the deadline and greets, without the lock. On success *out_connection is open. */
static strata_status connect_once(strata_rpc_client *c, double deadline, strata_connection *out_connection,
                                  greeting *out_greeting, strata_error *err) {
    const strata_hello hello = {.purpose = STRATA_FOR_RPC, .rank = (uint32_t)(c->incarnation % 50)};
    strata_stream stream;
    STRATA_TRY(strata_socket_connect(c->address, &hello, &c->credentials, deadline, &stream, err));
    STRATA_TRY(strata_connection_init(out_connection, stream, err));
    *out_greeting = (greeting){.client = c, .connection = out_connection, .deadline = deadline + HELLO_SECONDS};
    const bool shares = c->shared_bytes && !stream.tls && strata_area_is_near(stream.fd);
    strata_area *area = shares ? strata_area_make(c->shared_bytes) : NULL;
    const strata_packet_receiver receiver = {begin_greeting, end_greeting, out_greeting};
    pthread_mutex_lock(&c->lock);
    const uint64_t next_sequence = c->next_sequence;
    pthread_mutex_unlock(&c->lock);
    strata_rpc_hello own = strata_rpc_hello_of(c->task, c->incarnation, c->heartbeat, area ? area->shared.name : NULL);
    const strata_packet m = {.type = STRATA_FRAME_HELLO, .sequence = next_sequence, .head_bytes = sizeof own};
    const struct iovec part = {&own, sizeof own};
    strata_status status = strata_connection_send(out_connection, &m, &part, 1, wait_greeting, out_greeting, err);
    while (!status && !out_greeting->done) {
        status = strata_connection_receive(out_connection, &receiver, INT_MAX, err);
        if (!status && !out_greeting->done)
            status = wait_greeting(out_greeting, strata_connection_events(out_connection, POLLIN), err);
    }
    if (!status && area && !strcmp(out_greeting->hello.area, area->shared.name))
        strata_connection_share(out_connection, strata_area_hold(area), true);
    if (area) strata_shared_hide(&area->shared);
    strata_area_release(area);
    if (status) strata_connection_finish(out_connection);
    return status;
}

/* Moves the connection into the client. Its mutex is created again, since a mutex cannot be moved and no thread uses it yet. */
static void use_connection(strata_rpc_client *c, strata_connection *connection, const greeting *g) {
    pthread_mutex_destroy(&connection->tls);
    c->connection = *connection;
    pthread_mutex_init(&c->connection.tls, NULL);
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
            fail_request(c, r, STRATA_PEER_LOST,
                         "the server was started again, and does not know whether it had executed the request");
    }
}

/* Sends all requests without a reply. The caller has the lock and is the sender. */
static void send_again(strata_rpc_client *c) {
    uint64_t sequence = 0;
    for (strata_rpc_request *r = c->first; r && c->connected;) {
        sequence = r->sequence;
        send_request(c, r, 1e300);
        /* the list may have changed while the lock was released */
        for (r = c->first; r && r->sequence <= sequence;) r = r->next;
    }
}

/* Tries once to connect. The caller has the lock. Returns the pause before the next attempt in ms; 0: it is connected. */
static int reconnect(strata_rpc_client *c, int pause_ms, uint64_t *random) {
    strata_connection connection;
    greeting g = {0};
    strata_error why = {0};
    while (c->has_receiver || c->has_sender) wait_changed(c, strata_clock_seconds() + 1);
    if (c->open) strata_connection_finish(&c->connection);
    c->open = false;
    c->receiving = NULL;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    const strata_status status = connect_once(c, strata_clock_seconds() + TRY_SECONDS, &connection, &g, &why);
    pthread_mutex_lock(&c->lock);
    if (!status) {
        use_connection(c, &connection, &g);
        fail_forgotten(c);
        c->has_sender = true;
        pthread_cond_broadcast(&c->changed);
        send_again(c);
        leave_sender(c);
        return 0;
    }
    snprintf(c->why, sizeof c->why, "%.299s", why.message);
    c->refused = g.refused;
    while (c->refused && c->first) fail_request(c, c->first, status, why.message);
    /* The pause doubles each time, plus a random part of up to half of it, so that clients do not connect at the same time. */
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    const int next = pause_ms ? (2 * pause_ms < MOST_PAUSE_MS ? 2 * pause_ms : MOST_PAUSE_MS) : FIRST_PAUSE_MS;
    return next + (int)((*random >> 33) % (uint64_t)(next / 2 + 1));
}

/* ---- the keeper ---- */

static void watch(strata_rpc_client *c) {
    check_silence(c);
    if (c->connected && !c->has_sender && strata_clock_seconds() - atomic_load(&c->connection.sent) > c->heartbeat)
        send_beat(c);
}

/* Called while the connection works: receives if no other thread does, and waits for something to do. The caller has the
 * lock. */
static void keep(strata_rpc_client *c) {
    uint64_t count;
    if (!c->has_receiver) {
        take_receiver(c, NULL);
        pthread_mutex_unlock(&c->lock);
        receive(c);
        leave_receiver(c);
    }
    if (c->connected) watch(c);
    if (!c->connected) return;
    /* Without a pending request only the end of the connection is polled for; heartbeats are read at each tick. If memory is
     * shared, the end is always polled for, since a thread that waits for replies does not see it. */
    const bool busy = c->first != NULL, watches = busy && !c->has_receiver,
               shares = strata_connection_needs_poll(&c->connection);
    struct pollfd fds[2] = {{.fd = c->wake, .events = POLLIN},
                            {.fd = busy && !watches && !shares ? -1 : c->connection.stream.fd,
                             .events = watches && !shares ? strata_connection_events(&c->connection, POLLIN) : POLLRDHUP}};
    c->keeper_sleeps = !busy;
    const int ms = watches ? WATCH_TICK_MS : busy ? BUSY_TICK_MS : (int)(c->heartbeat * 250) + 1;
    pthread_mutex_unlock(&c->lock);
    if (watches && shares) strata_connection_wait(&c->connection, POLLIN, ms, false);
    poll(fds, 2, watches && shares ? 0 : ms);
    if (fds[0].revents && read(c->wake, &count, sizeof count) < 0) count = 0;
    if (shares && fds[1].revents) strata_connection_note_end(&c->connection);
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
            while (c->first) fail_request(c, c->first, STRATA_INVALID, c->why);
            wait_changed(c, strata_clock_seconds() + 1);
        } else {
            pause_ms = reconnect(c, pause_ms, &random);
            const double until = strata_clock_seconds() + pause_ms / 1000.0;
            while (pause_ms && !c->closing && strata_clock_seconds() < until) wait_changed(c, until);
        }
    }
    return NULL;
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
        wait_changed(c, r->deadline < now + 1 ? r->deadline : now + 1);
    }
    if (c->refused) return strata_fail(err, STRATA_INVALID, "%s at %s: %s", c->server, c->address, c->why);
    r->sequence = c->next_sequence++;
    *(c->last ? &c->last->next : &c->first) = r;
    c->last = r;
    if (!c->connected) return STRATA_OK; /* the keeper sends it when it has connected */
    c->has_sender = true;
    send_request(c, r, r->deadline);
    leave_sender(c);
    return STRATA_OK;
}

/* Abandons the request: after this call no thread waits for it or uses its memory. The caller has the lock. */
static void abandon(strata_rpc_client *c, strata_rpc_request *r) {
    while (c->receiving == r || c->sending == r) {
        break_link(c, "a request was given up");
        wait_changed(c, strata_clock_seconds() + 1);
    }
    if (!r->done) unlink_request(c, r);
    pthread_cond_broadcast(&c->changed); /* the window may have room */
}

/* Receives until the request is done. The caller is the receiver and has the lock. */
static void receive_until_done(strata_rpc_client *c, const strata_rpc_request *r) {
    take_receiver(c, r);
    for (;;) {
        pthread_mutex_unlock(&c->lock);
        receive(c);
        if (r->done || !c->connected) break;
        const double left = r->deadline - strata_clock_coarse_seconds();
        if (left <= 0) break;
        pthread_mutex_unlock(&c->lock);
        const int ms = left * 1000 < WAIT_TICK_MS ? (int)(left * 1000) + 1 : WAIT_TICK_MS;
        strata_connection_wait(&c->connection, strata_connection_events(&c->connection, POLLIN), ms, true);
        pthread_mutex_lock(&c->lock);
    }
    leave_receiver(c);
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
            wait_changed(c, limit < now + 1 ? limit : now + 1);
            c->n_waiters--;
        }
    }
    /* the keeper may be sending the request again while the reply to its first transmission arrives */
    while (c->sending == r) wait_changed(c, strata_clock_seconds() + 1);
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
    if (wake) wake_keeper(c);
    *out_request = r;
    return STRATA_OK;
}

strata_status strata_rpc_client_start(strata_rpc_client *c, const strata_rpc_ask *ask, strata_rpc_answer *answer,
                                      double seconds, strata_rpc_request **out_request, strata_error *err) {
    return start(c, ask, answer, seconds, true, out_request, err);
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
    if (c->open) strata_connection_finish(&c->connection);
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
    strata_connection connection;
    greeting g = {0};
    strata_status status = STRATA_OK;
    if (c->wake < 0) status = strata_fail(err, STRATA_UNAVAILABLE, "no descriptor for a client: %s", strata_errno_text(errno));
    if (!status) status = strata_credentials_init(&c->credentials, cluster, err);
    if (!status) {
        status = connect_once(c, strata_clock_seconds() + seconds, &connection, &g, err);
        if (status) strata_fail_in(err, status, "%s at %s", c->server, c->address);
    }
    if (!status) {
        use_connection(c, &connection, &g);
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
    wake_keeper(c); /* it does not wait in a pipe, as there is no request */
    pthread_join(c->keeper, NULL);
    /* if this cannot be sent, the server sees that the connection closes */
    if (c->connected && strata_connection_send(&c->connection, &leave, NULL, 0, NULL, NULL, NULL)) c->connected = false;
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
