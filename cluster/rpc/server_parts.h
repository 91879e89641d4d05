/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the server share: server.c (its life, the monitor, and the ends of connections), server_connection.c (a
 * connection's thread), server_session.c (who the peer is) and server_replies.c. server.c says which threads there are. */
#ifndef STRATA_CLUSTER_RPC_SERVER_PARTS_H
#define STRATA_CLUSTER_RPC_SERVER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "cluster/rpc/channel.h"
#include "cluster/rpc/rpc.h"
#include "cluster/wire/socket.h"

/* A reply that the client may ask for again. */
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

typedef struct strata_rpc_session {
    struct strata_rpc_session *next;
    char task[STRATA_RPC_TASK_BYTES];
    /* Guarded by the server's lock. The highest that has come; it is not that of the replies that are kept. */
    uint64_t incarnation;
    bool replaced;
    /* Guarded too; NULL: none. */
    struct strata_rpc_connection *owner;
    /* The next sequence number that has not been executed. */
    uint64_t next_sequence;
    /* The last request whose reply could not be kept for want of memory, plus 1; 0: none. */
    uint64_t unkept;
    /* In the order of their numbers. */
    strata_rpc_kept *first, *last;
    int n_kept;
} strata_rpc_session;

/* What a connection's thread does, for the monitor. */
typedef enum strata_rpc_activity {
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

    strata_rpc_session *session;
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
    strata_rpc_session *sessions;
    int n_sessions;
    struct {
        uint64_t n;
        char last[256];
    } refused;

    /* Of the monitor's thread alone. */
    strata_rpc_connection *connections;
};

/* ---- server.c ---- */

void strata_rpc_server_count_refused(strata_rpc_server *s, const char *from, const char *why);
void strata_rpc_server_wake_monitor(strata_rpc_server *s);
/* Marks the connection as over, for the first reason that is given, and wakes its thread. */
void strata_rpc_connection_end(strata_rpc_connection *c, const char *why);
/* The same with the server's lock. */
void strata_rpc_connection_end_locked(strata_rpc_connection *c, const char *why);
/* Reports the loss of a peer that is known, once. */
void strata_rpc_connection_report_end(strata_rpc_connection *c);

/* ---- server_connection.c ---- */

/* A connection's thread; user: the strata_rpc_connection. */
void *strata_rpc_connection_run(void *user);

/* ---- server_session.c ---- */

/* The peer's first message: who it is. */
strata_status strata_rpc_connection_greet(strata_rpc_connection *c, const strata_rpc_message *m, strata_error *err);
void strata_rpc_connection_leave_session(strata_rpc_connection *c);

/* ---- server_replies.c ---- */

strata_status strata_rpc_connection_send(strata_rpc_connection *c, const strata_rpc_message *m, const struct iovec *parts,
                                         int n_parts, strata_error *err);
/* A request came: executes it if that has not been done, and replies. */
strata_status strata_rpc_connection_answer(strata_rpc_connection *c, const strata_rpc_message *m, strata_error *err);
/* Drops the replies that the client has by now. */
void strata_rpc_session_forget(strata_rpc_session *s, const strata_rpc_message *m);
void strata_rpc_session_drop_replies(strata_rpc_session *s);

#endif
