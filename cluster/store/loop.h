/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the loop of a process, which its source files share: accept.c accepts connections, serve.c answers requests to
 * the board (rank 0), follow.c has the connection to rank 0 (other ranks), control.c what these two connections share, remote.c
 * the thread and the member. One lock, `lock`, guards all fields. */
#ifndef STRATA_CLUSTER_STORE_LOOP_H
#define STRATA_CLUSTER_STORE_LOOP_H

#include <pthread.h>

#include "cluster/store/member.h"
#include "cluster/wire/connection.h"
#include "cluster/wire/handshake.h"
#include "cluster/wire/pulse.h"
#include "cluster/wire/socket.h"
#include "core/base/memory.h"

struct strata_link;

/* The most handshakes at a time. */
enum { STRATA_MOST_PENDING = 64 };

typedef struct strata_loop strata_loop;

/* An object with a descriptor that epoll watches. It is the first field of each such struct; `ready` is called when the
 * descriptor is ready. */
typedef struct strata_source {
    void (*ready)(strata_loop *loop, struct strata_source *source);
} strata_source;

/* A connection whose handshake is not finished: the peer has not proved yet that it knows the secret. */
typedef struct strata_pending {
    strata_source source;
    struct strata_pending *next;
    strata_stream stream;
    char from[STRATA_ADDRESS_BYTES];
    double deadline;
    strata_shaking shaking;
} strata_pending;

/* An authenticated connection for a link of a communicator, until strata_member_accept_link returns it. */
typedef struct strata_accepted {
    struct strata_accepted *next;
    strata_stream stream;
    strata_hello hello;
} strata_accepted;

/* A connection between a rank and rank 0, for requests to the store, heartbeats and events. */
typedef struct strata_control {
    strata_source source; /* must be the first field */
    strata_loop *loop;
    strata_connection connection;
    /* Sending has failed. The other side may have left a moment ago, so its last messages are read before it counts as lost:
     * the connection is closed when reading from it fails too. */
    bool broken;
    /* The other side's heartbeat interval in seconds; 0: not known. */
    double heartbeat;
    /* The payload of the message that is being received. */
    struct iovec payload;
    /* Takes a message, whose payload is followed by a NUL. It must not close the connection. */
    strata_status (*take)(strata_loop *loop, struct strata_control *control, const strata_packet *packet,
                          const unsigned char *payload, strata_error *err);
} strata_control;

/* Rank 0's connection to another rank. */
typedef struct strata_session {
    strata_control control; /* must be the first field */
    int rank;
    bool ever_connected, connected, left;
    /* According to its last heartbeat, the rank has a communicator without a verdict, so it still needs the store. */
    bool needs_store;
    /* How many of the job's events were sent to the rank. */
    int n_events_sent;
    uint64_t collective;
    /* The rank waits for the value of `key` until the loop was awake for `deadline` seconds. `request` is the number of its
     * request. */
    bool waiting;
    double deadline;
    uint64_t request;
    char key[STRATA_STORE_KEY_BYTES + 1];
} strata_session;

struct strata_loop {
    strata_member member;
    /* The loop and its arrays. */
    strata_memory memory;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, leaving;
    int epoll, wake, listener;
    /* The address on which it listens. */
    char listens[STRATA_ADDRESS_BYTES];
    strata_source wake_source, listener_source;
    /* Rank 0 stores the job's keys in it. The other ranks use only its roster. */
    strata_board *board;
    /* [world] */
    struct strata_link *links;
    /* Some connection with messages is not read at the moment, because too many bytes of its messages are stored unreceived. */
    atomic_bool paused;
    strata_credentials credentials;
    double heartbeat;
    /* Checked at each tick. */
    strata_pulse pulse;
    /* For how many seconds the loop has run. The time in which the process was stopped is left out. */
    double awake;
    /* The connections whose handshake is not finished, the newest first. */
    strata_pending *pending;
    int n_pending;
    strata_accepted *accepted;
    /* Connections that were refused. */
    struct {
        /* n_ranks: peers that spoke Strata's protocol; n_strangers: others. */
        uint64_t n_ranks, n_strangers;
        /* The address of the last peer that n_ranks counts, and why it was refused. */
        char last[256];
    } refused;

    /* Rank 0: [world] the store's connections to the other ranks; [0] is unused. */
    strata_session *sessions;

    /* The other ranks: their connection to rank 0. */
    struct {
        /* The name of rank 0 in error messages: the address of the store, later also its host and process. */
        char name[STRATA_ADDRESS_BYTES + 64];
        strata_control control;
        /* When the last heartbeat was sent to it. */
        double last_sent;
        bool store_left;
    } rank0;
    /* The current request to rank 0. Replies with the number of an earlier request are ignored. */
    struct {
        uint64_t number;
        bool in_flight, answered;
        strata_error error;
        strata_store_reply reply;
    } request;
};

/* watch: adds the descriptor to epoll, for input. forget: removes it. want_output: chooses whether to watch it for output too.
 * */
strata_status strata_loop_watch(strata_loop *loop, int fd, strata_source *source, strata_error *err);
void strata_loop_forget(strata_loop *loop, int fd);
void strata_loop_want_output(strata_loop *loop, int fd, strata_source *source, bool output);
/* Applies an event of the job that this process observed or received: ends the seats and messages that it concerns. Returns
 * whether the event was new. */
bool strata_loop_take_event(strata_loop *loop, strata_event_kind kind, uint32_t subject, strata_status status,
                            const char *text);

/* accept.c */
void strata_loop_accept(strata_loop *loop, strata_source *listener);
void strata_loop_drop_late(strata_loop *loop, double now);
void strata_loop_finish_accepting(strata_loop *loop);
void strata_loop_count_refused(strata_loop *loop, const char *from, const char *why); /* counts a refused rank */

/* control.c: packets between a rank and rank 0. An ASK is a request to the store; its ANSWER has the reply's value or, with a
 * status, the reason. */
enum { STRATA_MESSAGE_BYTES = 64 + STRATA_STORE_KEY_BYTES + 2 * STRATA_STORE_VALUE_BYTES }; /* the largest packet */
/* Encodes a request to `out`, which has room for STRATA_MESSAGE_BYTES. Returns the number of bytes. */
size_t strata_request_encode(const strata_store_request *request, double seconds, unsigned char *out);
/* Decodes a request. Pointers of *out_request point into `in`, except the key, which is copied to out_key. */
STRATA_MUST_USE strata_status strata_request_decode(const unsigned char *in, size_t n_bytes,
                                                    char out_key[STRATA_STORE_KEY_BYTES + 1], strata_store_request *out_request,
                                                    double *out_seconds, strata_error *err);
/* The payload of a heartbeat: the milliseconds between the sender's heartbeats, and whether the sender has a communicator
 * without a verdict, so that it still needs the store. */
typedef struct strata_beat {
    uint32_t ms, needs_store;
} strata_beat;
uint32_t strata_milliseconds(double seconds);

/* open takes the stream, also on failure. */
strata_status strata_control_open(strata_loop *loop, strata_control *control, strata_stream stream, strata_error *err);
void strata_control_close(strata_loop *loop, strata_control *control);
void strata_control_send(strata_loop *loop, strata_control *control, strata_frame_type type, strata_status status,
                         uint64_t sequence, const void *payload, size_t n_bytes);
/* Receives what has arrived, calls `take` for each message, and sends what waits. Fails: UNAVAILABLE when the other side has
 * closed the connection; DATA for what is invalid. */
strata_status strata_control_ready(strata_loop *loop, strata_control *control, strata_error *err);
/* Whether the other side is lost, as nothing was received from it for too long; how: the text. */
bool strata_control_is_silent(const strata_loop *loop, const strata_control *control, double now, char how[160]);

/* serve.c */
void strata_loop_new_session(strata_loop *loop, strata_stream stream, const strata_hello *hello); /* takes the stream */
strata_member_store strata_loop_serve;
strata_member_report strata_loop_decide_failure;
void strata_loop_check_sessions(strata_loop *loop, double now);
/* Waits until no other rank needs the store, and tells the connected ranks that rank 0 leaves. */
void strata_loop_finish_serving(strata_loop *loop);

/* follow.c */
strata_status strata_loop_connect_rank0(strata_loop *loop, const strata_communicator_options *opts, strata_error *err);
strata_member_store strata_loop_send_request;
strata_member_report strata_loop_report_failure;
void strata_loop_check_control(strata_loop *loop, double now);
void strata_loop_finish_following(strata_loop *loop);

#endif
