/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the client share: client.c (its life, and the keeper), client_connect.c, client_transfer.c (the two roles)
 * and client_requests.c. client.c says which threads there are. */
#ifndef STRATA_CLUSTER_RPC_CLIENT_PARTS_H
#define STRATA_CLUSTER_RPC_CLIENT_PARTS_H

#include <pthread.h>

#include "cluster/rpc/channel.h"
#include "cluster/rpc/rpc.h"
#include "cluster/wire/socket.h"

enum { STRATA_RPC_WAIT_TICK_MS = 100, STRATA_RPC_WHAT_BYTES = 96 };

struct strata_rpc_request {
    strata_rpc_client *client;
    /* Of those without a reply, by sequence number. */
    strata_rpc_request *next;
    uint64_t sequence;
    uint32_t method;
    size_t head_bytes, body_bytes;
    char what[STRATA_RPC_WHAT_BYTES];
    double seconds, began, deadline;
    /* NULL: no content is wanted. */
    strata_rpc_answer *answer;
    /* It was sent, at least in part, to a server of this incarnation. */
    bool was_sent;
    uint64_t sent_to;
    bool done;
    strata_error error;
    /* Where the reply goes: head, then body; of an error the text. */
    struct iovec *rooms;
    int n_parts, n_rooms;
    /* The reply does not fit. */
    bool too_large;
    /* The reply is used where it lies. */
    bool lends;
    char text[STRATA_ERROR_MESSAGE_BYTES];
    /* What is sent: head, then body; the rooms follow. */
    struct iovec parts[];
};

struct strata_rpc_client {
    char task[STRATA_RPC_TASK_BYTES], server[STRATA_RPC_TASK_BYTES], address[STRATA_ADDRESS_BYTES + 256];
    uint64_t incarnation;
    double heartbeat, reconnect_seconds;
    size_t shared_bytes;
    char *secret;
    strata_tls *tls;
    strata_credentials credentials;
    pthread_t keeper;
    int wake;

    /* Guards all below. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;
    /* connected: the channel can be used; else the keeper is about to close it, if it is open, and to connect. */
    bool open, connected;
    strata_rpc_channel channel;
    double server_heartbeat;
    uint64_t server_incarnation;
    /* Since when it is not connected, and why. */
    double broke_at;
    char why[300];
    /* The server refuses this task for good. */
    bool refused;
    bool has_sender, has_receiver;
    int n_waiters;
    /* The keeper sleeps for long and has to be woken to receive. */
    bool keeper_sleeps;
    uint64_t next_sequence;
    strata_rpc_request *first, *last;
    /* The request whose reply comes, the one that is being sent, and the one at whose end the receiver returns. */
    strata_rpc_request *receiving, *sending;
    const strata_rpc_request *awaited;
};

/* ---- client.c: the lock is held, but for wake_keeper ---- */

void strata_rpc_client_wake_keeper(strata_rpc_client *c);
/* Waits for a change until that time. */
void strata_rpc_client_wait_changed(strata_rpc_client *c, double until);
/* The connection is of no use any more, for the first reason that is given. */
void strata_rpc_client_break_link(strata_rpc_client *c, const char *why);
/* The request is over. */
void strata_rpc_client_unlink_request(strata_rpc_client *c, strata_rpc_request *r);
void strata_rpc_client_fail_request(strata_rpc_client *c, strata_rpc_request *r, strata_status status, const char *why);
/* Breaks the connection of a server that gives no sign of life. */
void strata_rpc_client_check_silence(strata_rpc_client *c);

/* ---- client_transfer.c ---- */

/* Makes this thread the receiver; `awaited` is the request at whose end it returns. The lock is held. */
void strata_rpc_client_take_receiver(strata_rpc_client *c, const strata_rpc_request *awaited);
void strata_rpc_client_leave_receiver(strata_rpc_client *c);
/* Receives what is there, as the receiver and without the lock, which it takes at the end. */
void strata_rpc_client_receive(strata_rpc_client *c);
/* Sends a request, as the sender and with the lock, which is released meanwhile. */
void strata_rpc_client_send_request(strata_rpc_client *c, strata_rpc_request *r, double deadline);
void strata_rpc_client_leave_sender(strata_rpc_client *c);
/* A sign of life, where nothing else was sent. The lock is held. */
void strata_rpc_client_send_beat(strata_rpc_client *c);

/* ---- client_connect.c ---- */

/* What both sides say first on a new connection. */
typedef struct strata_rpc_greeting {
    strata_rpc_client *client;
    strata_rpc_channel *channel;
    struct iovec room;
    unsigned char bytes[STRATA_ERROR_MESSAGE_BYTES];
    bool done, refused;
    char area[STRATA_RPC_AREA_NAME];
    uint64_t incarnation;
    double heartbeat, deadline;
} strata_rpc_greeting;
/* Connects until the deadline and greets, without the lock. On success *out_channel is open. */
strata_status strata_rpc_client_connect_once(strata_rpc_client *c, double deadline, strata_rpc_channel *out_channel,
                                             strata_rpc_greeting *out_greeting, strata_error *err);
/* Takes the channel. */
void strata_rpc_client_use_channel(strata_rpc_client *c, strata_rpc_channel *channel, const strata_rpc_greeting *g);
/* Tries once. The lock is held. Returns how long to pause before the next try, in ms; 0: it is connected. */
int strata_rpc_client_reconnect(strata_rpc_client *c, int pause_ms, uint64_t *random);

#endif
