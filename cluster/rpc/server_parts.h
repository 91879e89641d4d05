/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of the server share; server.c describes its threads. */
#ifndef STRATA_CLUSTER_RPC_SERVER_PARTS_H
#define STRATA_CLUSTER_RPC_SERVER_PARTS_H

#include <stdatomic.h>

#include "cluster/rpc/hello.h"
#include "cluster/rpc/rpc.h"
#include "cluster/wire/connection.h"
#include "cluster/wire/pulse.h"
#include "cluster/wire/socket.h"
#include "core/base/locked.h"

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
    strata_connection channel;
    char from[STRATA_ADDRESS_BYTES];
    /* When it was accepted. */
    double since;
    atomic_int activity;
    /* The connection has ended or must end. The thread that sets this also shuts the channel. `why` is written before, under
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

/* ---- server.c ---- */

void strata_rpc_server_count_refused(strata_rpc_server *s, const char *from, const char *why);
/* Ends the connection and wakes its thread. If this is called several times, the first reason counts. The caller has the
 * server's lock. */
void strata_rpc_connection_end_locked(strata_rpc_connection *c, const char *why);

/* ---- server_session.c ---- */

/* Handles the peer's greeting. */
strata_status strata_rpc_connection_greet(strata_rpc_connection *c, const strata_packet *m, strata_error *err);
void strata_rpc_connection_leave_session(strata_rpc_connection *c);
/* Handles a request: executes it if it was not executed before, and replies. */
strata_status strata_rpc_connection_answer(strata_rpc_connection *c, const strata_packet *m, strata_error *err);
/* Frees stored replies that the client has received. */
void strata_rpc_session_forget(strata_rpc_session *s, const strata_packet *m);
void strata_rpc_session_drop_replies(strata_rpc_session *s);

#endif
