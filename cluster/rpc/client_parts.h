/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of the client share; client.c describes its threads. */
#ifndef STRATA_CLUSTER_RPC_CLIENT_PARTS_H
#define STRATA_CLUSTER_RPC_CLIENT_PARTS_H

#include "cluster/rpc/hello.h"
#include "cluster/rpc/rpc.h"
#include "cluster/wire/connection.h"
#include "cluster/wire/pulse.h"
#include "cluster/wire/socket.h"
#include "core/base/locked.h"

enum { STRATA_RPC_WAIT_TICK_MS = 100, STRATA_RPC_WHAT_BYTES = 96 };

struct strata_rpc_request {
    strata_rpc_client *client;
    /* The next request without a reply, by sequence number. */
    strata_rpc_request *next;
    uint64_t sequence;
    uint32_t method;
    size_t head_bytes, body_bytes;
    char what[STRATA_RPC_WHAT_BYTES];
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
    /* connected: the channel can be used. Otherwise the keeper will close it, if it is open, and connect again. */
    bool open, connected;
    strata_connection channel;
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

/* ---- client_requests.c: the caller has the lock, except for wake_keeper ---- */

void strata_rpc_client_wake_keeper(strata_rpc_client *c);
/* Waits for a change until that time. */
void strata_rpc_client_wait_changed(strata_rpc_client *c, double until);
void strata_rpc_client_fail_request(strata_rpc_client *c, strata_rpc_request *r, strata_status status, const char *why);
/* Fails the connection if nothing was received from the server for too long. */
void strata_rpc_client_check_silence(strata_rpc_client *c);

/* Makes this thread the receiver, which returns when `awaited` has its reply. The caller has the lock. */
void strata_rpc_client_take_receiver(strata_rpc_client *c, const strata_rpc_request *awaited);
void strata_rpc_client_leave_receiver(strata_rpc_client *c);
/* Receives what has arrived. The caller is the receiver and does not have the lock, which this takes at the end. */
void strata_rpc_client_receive(strata_rpc_client *c);
/* Sends a request. The caller is the sender and has the lock, which is released meanwhile. */
void strata_rpc_client_send_request(strata_rpc_client *c, strata_rpc_request *r, double deadline);
void strata_rpc_client_leave_sender(strata_rpc_client *c);
/* Sends a heartbeat if nothing else was sent. The caller has the lock. */
void strata_rpc_client_send_beat(strata_rpc_client *c);

#endif
