/* SPDX-License-Identifier: Apache-2.0
 *
 * Remote calls between tasks, which may join and leave at any time: a client sends requests, and a server executes them by a
 * handler. No communicator is needed. Connections are those of cluster/wire: both sides prove the secret, or show TLS
 * certificates, before anything else is read; frames have checksums.
 *
 *     strata_rpc_server_create(&server_options, &server, &err);                    the task "ps:0"
 *
 *     strata_rpc_client_create(&client_options, &client, &err);                    the task "worker:1"
 *     strata_rpc_ask ask = {.method = PUSH, .head = head, .head_bytes = n, .body = pieces, .n_body = 2, .what = "a push"};
 *     strata_rpc_client_call(client, &ask, &answer, seconds, &err);
 *
 * A task is a name and an incarnation, a random number that differs each time the task's program starts. README.md says why a
 * request is executed once, also if connections break and tasks start again. A side that sends nothing for 5 heartbeats (the
 * slower side's) counts as lost, and a connection that closes counts at once. */
#ifndef STRATA_CLUSTER_RPC_RPC_H
#define STRATA_CLUSTER_RPC_RPC_H

#include <stdbool.h>
#include <sys/uio.h>

#include "strata/cluster.h"

enum {
    STRATA_RPC_TASK_BYTES = 64,       /* a task's name with its NUL */
    STRATA_RPC_HEAD_BYTES = 64 << 10, /* the most bytes of a head */
    STRATA_RPC_PIECES = 1024,         /* the most pieces of a reply's body */
    STRATA_RPC_WINDOW = 4096,         /* the most requests of a client without a reply */
};

/* Returns an incarnation for a task that starts now: a random number, never 0. */
uint64_t strata_rpc_incarnation(void);

/* ---- servers ---- */

typedef struct strata_rpc_server strata_rpc_server;

/* A request, borrowed while the handler runs. */
typedef struct strata_rpc_call {
    /* The task that sent it, such as "worker:1". */
    const char *task;
    uint64_t incarnation;
    /* The number of the request among the task's requests to this server; it grows with each request. */
    uint64_t sequence;
    uint32_t method;
    const void *head;
    size_t head_bytes;
    /* One piece of memory, aligned to 64 bytes; the handler may write to it. */
    void *body;
    size_t body_bytes;
    /* The connection, for strata_rpc_call_ended and strata_rpc_reply_room. */
    const void *connection;
} strata_rpc_call;

/* Whether the reply is not needed any more, because the connection ended or the server stops. A handler that blocks must check
 * this whenever it is woken. Once it is true, the handler must return without having changed anything: the request counts as
 * not executed, and if the client connects again and sends it once more, the handler runs again. Threads: any, while the
 * handler runs. */
bool strata_rpc_call_ended(const strata_rpc_call *call);

/* Returns memory that the client maps too, with room for the whole body of the call's reply. A body that is written there, as
 * one piece without a `release`, is not copied any more. Only for a reply that is repeatable and has a head of 1 to 64 bytes;
 * may be called once in each call. NULL: the client is on another machine, or there is no room now. */
void *strata_rpc_reply_room(const strata_rpc_call *call, size_t bytes);

/* A part of a reply's body. It is sent without a copy. */
typedef struct strata_rpc_piece {
    const void *data;
    size_t bytes;
    /* Called once when the memory is not needed any more: after it was sent or, for a stored reply, after the client has
     * received it. NULL: nothing to do. Threads: any of the server's. */
    void (*release)(void *user);
    void *user;
} strata_rpc_piece;

typedef struct strata_rpc_reply {
    /* Memory of the server with room for STRATA_RPC_HEAD_BYTES; the handler writes head_bytes of them. */
    void *head;
    size_t head_bytes;
    /* Memory of the server with room for STRATA_RPC_PIECES. */
    strata_rpc_piece *body;
    int n_body;
    /* The request changes nothing (a pull): its reply is not stored, and the handler runs again if the request is sent
     * again. */
    bool repeatable;
} strata_rpc_reply;

/* Executes a request. The client's call returns the status of the handler and the message in *err. On failure the pieces are
 * released and not sent. Requests of one task are executed one at a time and in their order; those of different tasks run
 * concurrently, each in its connection's thread. A handler may block, for example to make a worker wait for others. If the peer
 * is lost or the server stops meanwhile, on_peer (LOST) is called, in which the user must wake the handler. */
typedef strata_status (*strata_rpc_handler)(void *user, const strata_rpc_call *call, strata_rpc_reply *reply,
                                            strata_error *err);

typedef enum strata_rpc_event {
    /* A task connected, for the first time or again. Its requests are executed only after this. */
    STRATA_RPC_CONNECTED,
    /* Its connection ended. If only the connection broke, the task may connect again with the same incarnation. */
    STRATA_RPC_LOST,
    /* Its client was destroyed normally. */
    STRATA_RPC_LEFT,
} strata_rpc_event;

/* After each CONNECTED comes one LOST or LEFT. why: "" or a sentence. Called without locks of the server, from a thread of it;
 * it must not block for long, nor destroy the server. */
typedef void (*strata_rpc_on_peer)(void *user, strata_rpc_event event, const char *task, uint64_t incarnation, const char *why);

typedef struct strata_rpc_server_options {
    /* This task's name, which clients check; borrowed during create. */
    const char *task;
    /* 0: strata_rpc_incarnation(). */
    uint64_t incarnation;
    /* "host:port"; port 0: any free port. */
    const char *address;
    /* secret, tls_*, insecure, interface (replaces the address's host), heartbeat_seconds and connect_seconds (until the
     * address's host has a name) are used. NULL: defaults. Borrowed during create. */
    const strata_communicator_options *cluster;
    strata_rpc_handler handler;
    /* (optional). */
    strata_rpc_on_peer on_peer;
    void *user;
    /* Tasks that may be known at a time; 0: 1024. */
    int most_peers;
    /* The largest body of a request; a client that announces a larger one is disconnected. 0: 4 GiB. */
    uint64_t most_body_bytes;
} strata_rpc_server_options;

/* Fails: INVALID for wrong options, for an address that other hosts reach, without a secret or `insecure`, or that is in use;
 * UNAVAILABLE if the server cannot listen on the address otherwise, or if a file for TLS cannot be used. */
STRATA_MUST_USE strata_status strata_rpc_server_create(const strata_rpc_server_options *opts, strata_rpc_server **out_server,
                                                       strata_error *err);
/* "127.0.0.1:43210", with the actual port. Valid as long as the server. */
const char *strata_rpc_server_address(const strata_rpc_server *server);
/* How many connections were refused so far, and why the last one was refused, such as "; connections refused: 3, the last
 * from ..."; "" if none was refused. */
typedef struct strata_rpc_refused_text {
    char text[320];
} strata_rpc_refused_text;
strata_rpc_refused_text strata_rpc_server_refused(strata_rpc_server *server);
/* Ends all connections, calls on_peer for each, and waits for running handlers and their replies. NULL is fine. */
void strata_rpc_server_destroy(strata_rpc_server *server);

/* ---- clients ---- */

typedef struct strata_rpc_client strata_rpc_client;

typedef struct strata_rpc_client_options {
    /* This task's name and incarnation (0: strata_rpc_incarnation()). A task has one client for each server at a time; a client
     * that is created after another one was destroyed may have the same incarnation. */
    const char *task;
    uint64_t incarnation;
    /* The server's name, for checks and messages, and its address. */
    const char *server;
    const char *address;
    /* secret, tls_*, heartbeat_seconds and connect_seconds (for the first connection) are used. NULL: defaults. */
    const strata_communicator_options *cluster;
    /* How long a request waits for a broken connection before it fails with PEER_LOST; 0: 10. After that the client continues
     * its attempts to connect, for later requests. */
    double reconnect_seconds;
    /* If the server is on the same machine, requests and replies go through memory that both map. This is its size for the
     * bodies of each direction; 0: all goes through the connection. */
    size_t shared_bytes;
} strata_rpc_client_options;

/* Connects. Texts are borrowed during create. Fails: TIMEOUT when there is no answer within connect_seconds; UNAVAILABLE when
 * one side refuses the other; INVALID for wrong options, or when another task listens there, or a later incarnation of this
 * task has connected. */
STRATA_MUST_USE strata_status strata_rpc_client_create(const strata_rpc_client_options *opts, strata_rpc_client **out_client,
                                                       strata_error *err);
/* Notifies the server that the task leaves. All requests must have been waited for before. NULL is fine. */
void strata_rpc_client_destroy(strata_rpc_client *client);
/* The incarnation of the server that it last connected to, and whether it is connected now. Threads: any. */
uint64_t strata_rpc_client_server_incarnation(strata_rpc_client *client);
bool strata_rpc_client_connected(strata_rpc_client *client);

/* A request. All memory is borrowed until the request has been waited for. */
typedef struct strata_rpc_ask {
    uint32_t method;
    const void *head;
    /* At most STRATA_RPC_HEAD_BYTES. */
    size_t head_bytes;
    /* The body, in consecutive pieces. */
    const struct iovec *body;
    int n_body;
    /* "a pull of dense/kernel", for messages; NULL: the method's number. */
    const char *what;
} strata_rpc_ask;

/* The memory for a reply. */
typedef struct strata_rpc_answer {
    /* Room for the head, and its size; after the call the size of the head that was received. */
    void *head;
    size_t head_bytes;
    /* Rooms for the body, filled one after the other. A longer reply fails with INVALID, a shorter one is allowed. NULL: the
     * client allocates. */
    const struct iovec *body;
    int n_body;
    /* Set: the size of the body that was received. */
    size_t body_bytes;
    /* Set if `body` is NULL and a body was received: the caller frees it. */
    void *allocated;
    /* Set by the caller: a body that was received through shared memory is not copied to the rooms. `lent` then points to the
     * body in that memory, at a multiple of 64 bytes, until strata_rpc_answer_release; NULL: the body is in the rooms. */
    bool may_lend;
    const void *lent;
    void *lender;
    size_t lent_head;
} strata_rpc_answer;

/* Returns a lent body; does nothing if there is none. */
void strata_rpc_answer_release(strata_rpc_answer *answer);

typedef struct strata_rpc_request strata_rpc_request;

/* Sends a request and waits for its reply, at most `seconds`. answer may be NULL if the reply's content is not needed.
 * Threads: any, several at a time. Fails: what the handler returned; PEER_LOST when there was no connection for
 * reconnect_seconds, or the server started again; TIMEOUT when there is no reply in time; INVALID for a reply that is larger
 * than its room. Messages name the server, its address and `what`. */
STRATA_MUST_USE strata_status strata_rpc_client_call(strata_rpc_client *client, const strata_rpc_ask *ask,
                                                     strata_rpc_answer *answer, double seconds, strata_error *err);
/* The same in two steps, so that several requests are in flight; the server executes them in their order. start blocks while
 * the socket is full, and while STRATA_RPC_WINDOW requests have no reply. `seconds` is the limit until the reply is received.
 * *ask is not borrowed after start, but the memory to which it points is; *answer is borrowed until wait. */
STRATA_MUST_USE strata_status strata_rpc_client_start(strata_rpc_client *client, const strata_rpc_ask *ask,
                                                      strata_rpc_answer *answer, double seconds,
                                                      strata_rpc_request **out_request, strata_error *err);
/* Fails as strata_rpc_client_call; frees the request in any case. */
STRATA_MUST_USE strata_status strata_rpc_request_wait(strata_rpc_request *request, strata_error *err);

#endif
