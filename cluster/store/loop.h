/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of a process inside, shared by its parts: accepting (accept.c), serving the board (serve.c, rank 0), the connection
 * to rank 0 (follow.c), the thread and the member (remote.c). All of it is guarded by one lock. */
#ifndef STRATA_CLUSTER_STORE_LOOP_H
#define STRATA_CLUSTER_STORE_LOOP_H

#include <pthread.h>

#include "cluster/store/remote.h"
#include "cluster/wire/connection.h"
#include "cluster/wire/handshake.h"
#include "cluster/wire/socket.h"

struct strata_links;

enum { STRATA_MOST_PENDING = 64, STRATA_MISSED_BEATS = 5 };

typedef struct strata_loop strata_loop;

/* What epoll wakes the loop for: the first member of each thing that has a descriptor. */
typedef struct strata_source {
    void (*ready)(strata_loop *loop, struct strata_source *source);
} strata_source;

/* A connection that has not proved anything yet. */
typedef struct strata_pending {
    strata_source source;
    struct strata_pending *next;
    strata_stream stream;
    char from[STRATA_ADDRESS_BYTES];
    double deadline;
    strata_handshake handshake;
    size_t n_in;
    unsigned char in[STRATA_HANDSHAKE_BYTES];
} strata_pending;

/* One that was made for a link, until it is asked for. */
typedef struct strata_accepted {
    struct strata_accepted *next;
    strata_stream stream;
    strata_hello hello;
} strata_accepted;

/* Rank 0's side of another rank. */
typedef struct strata_session {
    strata_source source;
    int rank;
    bool came, connected, left;
    bool broken; /* sending failed: its end is about to be read */
    strata_connection connection;
    /* Its own, as it says. */
    double heard, heartbeat;
    /* A communicator of it does, as it says. */
    bool goes_on;
    /* How many of the job's events were sent to it. */
    int n_told;
    uint64_t collective;
    /* It waits for a key of the board. */
    bool waiting;
    double deadline;
    uint64_t request;
    char key[STRATA_STORE_KEY_BYTES + 1];
} strata_session;

struct strata_loop {
    strata_member member;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, leaving;
    int epoll, wake, listener;
    strata_source wake_source, listener_source, control_source;
    /* rank 0's is the job's; the others use its roster only. */
    strata_board *board;
    struct strata_links *links;
    /* A connection with messages is not read, as too much lies unreceived. */
    atomic_bool paused;
    char *secret;
    strata_tls *tls;
    /* These two, on loan. */
    strata_credentials credentials;
    double heartbeat, last_tick;
    /* The connections that have proved nothing yet, the newest first. */
    strata_pending *pending;
    int n_pending;
    strata_accepted *accepted;
    /* Connections: of ranks, as it seems, and of others. */
    uint64_t n_refused, n_strangers;
    /* Of the former: who, and why. */
    char last_refused[256];
    /* rank 0. */
    /* [world]; [0] is unused. */
    strata_session *sessions;
    /* The others. */
    /* rank 0, for messages: where it listens, later its host and process too. */
    char first[STRATA_ADDRESS_BYTES + 64];
    strata_connection control;
    /* Of rank 0; to it. */
    double heard, said;
    bool store_left;
    /* The one in flight; replies to earlier ones are dropped. */
    uint64_t request;
    bool in_flight, answered;
    strata_error answer;
    strata_store_reply reply;
};

/* Watches the descriptor for input, and for room to send where `output`. */
strata_status strata_loop_watch(strata_loop *loop, int fd, strata_source *source, strata_error *err);
void strata_loop_forget(strata_loop *loop, int fd);
void strata_loop_want_output(strata_loop *loop, int fd, strata_source *source, bool output);
/* An event of the job, which this process saw or was told: ends seats and messages that it concerns. Returns whether it was
 * new. */
bool strata_loop_take_event(strata_loop *loop, strata_event_kind kind, uint32_t subject, strata_status status,
                            const char *text);
/* The roster of this process. */
static inline strata_roster *strata_loop_roster(strata_loop *loop) {
    return loop->member.roster;
}

/* accept.c */
void strata_loop_accept(strata_loop *loop, strata_source *listener);
void strata_loop_drop_late(strata_loop *loop, double now);
void strata_loop_finish_accepting(strata_loop *loop);
void strata_loop_count_refused(strata_loop *loop, const char *from, const char *why); /* a rank's connection, from a host */
strata_status strata_loop_accept_link(strata_member *member, const strata_seat *seat, int job_rank, double seconds,
                                      strata_stream *out_stream, strata_error *err);

/* serve.c */
void strata_loop_new_session(strata_loop *loop, strata_stream stream, const strata_hello *hello); /* takes the stream */
strata_status strata_loop_serve(strata_member *member, const strata_seat *seat, const strata_store_request *request,
                                double seconds, strata_store_reply *out_reply, strata_error *err);
strata_status strata_loop_judge(strata_member *member, strata_seat *seat, strata_status status, const char *text,
                                strata_error *err);
void strata_loop_check_sessions(strata_loop *loop, double now);
/* Waits for the others to leave, tells those who stay. */
void strata_loop_finish_serving(strata_loop *loop);

/* follow.c */
strata_status strata_loop_follow(strata_loop *loop, const strata_communicator_options *opts, strata_error *err);
strata_status strata_loop_ask(strata_member *member, const strata_seat *seat, const strata_store_request *request,
                              double seconds, strata_store_reply *out_reply, strata_error *err);
strata_status strata_loop_tell(strata_member *member, strata_seat *seat, strata_status status, const char *text,
                               strata_error *err);
void strata_loop_check_control(strata_loop *loop, double now);
void strata_loop_finish_following(strata_loop *loop);

#endif
