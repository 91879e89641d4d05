/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank 0: answers the other ranks' requests to the board, detects lost ranks, and orders the events of the job. A rank whose
 * connection closes without a message was killed. A rank that sends no heartbeat was stopped, or its link is cut. The first
 * failure that rank 0 observes or receives is sent to all ranks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/communicator.h"
#include "cluster/store/loop.h"
#include "core/base/clock.h"
#include "core/base/locale.h"

static void send_new_events(strata_loop *loop);

/* Writes for example "rank 2 (host b, process 17)"; host and process are left out if they are not known. */
static void describe(strata_loop *loop, int rank, char *out, size_t room) {
    char key[STRATA_STORE_KEY_BYTES];
    strata_store_reply reply;
    snprintf(key, sizeof key, "strata/0/peer/%d", rank);
    const strata_store_request request = {.op = STRATA_STORE_GET, .key = key};
    if (strata_board_apply(loop->board, &request, &reply, NULL) || reply.n_value != sizeof(strata_peer)) {
        snprintf(out, room, "rank %d", rank);
    } else {
        const strata_peer *peer = reply.value;
        snprintf(out, room, "rank %d (host %.*s, process %d)", rank, STRATA_HOST_BYTES - 1, peer->host, peer->pid);
    }
    free(reply.value);
}

/* Adds the event that the session's rank was lost. how: how the loss was detected. */
static void mark_session_lost(strata_loop *loop, strata_session *s, const char *how) {
    char who[160], text[STRATA_ERROR_MESSAGE_BYTES];
    describe(loop, s->rank, who, sizeof who);
    const strata_step_text step = strata_member_step(&loop->member);
    snprintf(text, sizeof text, "%s was lost%s%scollective %llu: %s", who, step.text, *step.text ? ", " : " at ",
             (unsigned long long)atomic_load(&loop->member.collective), how);
    strata_loop_forget(loop, s->connection.stream.fd);
    strata_connection_finish(&s->connection);
    s->connected = s->waiting = false;
    strata_loop_take_event(loop, STRATA_EVENT_LOST, (uint32_t)s->rank, STRATA_PEER_LOST, text);
    send_new_events(loop);
    pthread_cond_broadcast(&loop->changed);
}

static void send_to(strata_loop *loop, strata_session *s, strata_frame_type type, uint64_t sequence, const void *payload,
                    size_t n) {
    if (!s->connected || s->broken) return;
    /* A rank to which sending fails may have left a moment ago, so its last frames are read before it counts as lost
     * (session_ready). */
    if (strata_connection_send(&s->connection, type, sequence, payload, n, NULL)) {
        s->broken = true;
        return;
    }
    strata_loop_want_output(loop, s->connection.stream.fd, &s->source, strata_connection_has_output(&s->connection));
}

/* Sends every rank the events that were not sent to it yet, in order. */
static void send_new_events(strata_loop *loop) {
    static const strata_frame_type types[] = {[STRATA_EVENT_FAILED] = STRATA_FRAME_VERDICT,
                                              [STRATA_EVENT_LOST] = STRATA_FRAME_LOST,
                                              [STRATA_EVENT_LEFT] = STRATA_FRAME_LEFT};
    unsigned char text[STRATA_ERROR_MESSAGE_BYTES + 64];
    strata_event event;
    for (int r = 1; r < loop->member.world; r++) {
        strata_session *s = &loop->sessions[r];
        while (s->connected && strata_roster_event(strata_loop_roster(loop), s->n_events_sent, &event)) {
            s->n_events_sent++; /* before sending, which may detect that this rank is lost and call this function again */
            const size_t n = strata_answer_encode(event.error.status, event.error.message, NULL, text);
            send_to(loop, s, types[event.kind], event.subject, text, n);
        }
    }
}

/* ---- requests ---- */

static void send_reply(strata_loop *loop, strata_session *s, uint64_t id, strata_status status, const char *text,
                       const strata_store_reply *reply) {
    unsigned char *bytes = malloc(STRATA_MESSAGE_BYTES + STRATA_ERROR_MESSAGE_BYTES);
    if (!bytes) return; /* the rank's request ends by its deadline */
    const size_t n = strata_answer_encode(status, text, reply, bytes);
    send_to(loop, s, STRATA_FRAME_REPLY, id, bytes, n);
    free(bytes);
}

/* Answers GETs whose key exists now or whose time is over. */
static void serve_waiting(strata_loop *loop) {
    for (int r = 1; r < loop->member.world; r++) {
        strata_session *s = &loop->sessions[r];
        if (!s->waiting) continue;
        strata_error err = {0};
        strata_store_reply reply;
        const strata_store_request request = {.op = STRATA_STORE_GET, .key = s->key};
        const strata_status status = strata_board_apply(loop->board, &request, &reply, &err);
        if (status == STRATA_TIMEOUT && loop->awake < s->deadline) continue;
        s->waiting = false;
        send_reply(loop, s, s->request, status, err.message, &reply);
        free(reply.value);
    }
}

static strata_status take_request(strata_loop *loop, strata_session *s, const strata_frame *frame, const unsigned char *payload,
                                  strata_error *err) {
    strata_store_request request;
    strata_store_reply reply;
    strata_error why = {0};
    double seconds;
    STRATA_TRY(strata_request_decode(payload, frame->bytes, s->key, &request, &seconds, err));
    const strata_status status = strata_board_apply(loop->board, &request, &reply, &why);
    s->waiting = status == STRATA_TIMEOUT && seconds > 0;
    s->request = frame->call.sequence;
    s->deadline = loop->awake + seconds;
    if (!s->waiting) send_reply(loop, s, s->request, status, why.message, &reply);
    free(reply.value);
    serve_waiting(loop);
    return STRATA_OK;
}

static strata_status take_frame(void *user, const strata_frame *frame, const unsigned char *payload, strata_error *err) {
    strata_session *s = *(strata_session **)user;
    strata_loop *loop = ((strata_loop **)user)[1];
    strata_error reported = {0};
    s->last_received = strata_clock_seconds();
    switch (frame->type) {
        case STRATA_FRAME_REQUEST:
            return take_request(loop, s, frame, payload, err);
        case STRATA_FRAME_REPORT:
            STRATA_TRY(strata_answer_decode(payload, frame->bytes, &reported, NULL, err));
            if (frame->call.sequence > UINT32_MAX || !reported.status)
                return strata_fail(err, STRATA_DATA, "a report of a failure that cannot be came to the store");
            strata_loop_take_event(loop, STRATA_EVENT_FAILED, (uint32_t)frame->call.sequence, reported.status,
                                   reported.message);
            send_new_events(loop);
            return STRATA_OK;
        case STRATA_FRAME_BEAT:
            STRATA_TRY(strata_beat_decode(payload, frame->bytes, &s->heartbeat, &s->needs_store, err));
            s->collective = frame->call.sequence;
            pthread_cond_broadcast(&loop->changed);
            send_to(loop, s, STRATA_FRAME_BEAT, atomic_load(&loop->member.collective), NULL, 0);
            return STRATA_OK;
        case STRATA_FRAME_LEAVE:
            s->left = true;
            return STRATA_OK;
        default:
            return strata_fail(err, STRATA_DATA, "a frame of type %u came to the store", frame->type);
    }
}

static void mark_session_left(strata_loop *loop, strata_session *s) {
    char who[160], text[176];
    describe(loop, s->rank, who, sizeof who);
    snprintf(text, sizeof text, "%s left", who);
    strata_loop_forget(loop, s->connection.stream.fd);
    strata_connection_finish(&s->connection);
    s->connected = s->waiting = false;
    strata_loop_take_event(loop, STRATA_EVENT_LEFT, (uint32_t)s->rank, STRATA_PEER_LOST, text);
    send_new_events(loop);
}

static void session_ready(strata_loop *loop, strata_source *source) {
    strata_session *s = (strata_session *)source;
    strata_error err = {0};
    void *user[2] = {s, loop};
    if (!s->connected) return; /* another thread closed the connection meanwhile */
    strata_status status = strata_connection_read(&s->connection, take_frame, user, &err);
    if (!s->connected) return;
    if (s->left) {
        mark_session_left(loop, s);
        return;
    }
    if (!status && !s->broken) status = strata_connection_flush(&s->connection, &err);
    if (status)
        mark_session_lost(loop, s, err.message);
    else
        strata_loop_want_output(loop, s->connection.stream.fd, &s->source, strata_connection_has_output(&s->connection));
}

/* Sends a peer that is not accepted the reason and closes its connection. */
static void refuse(strata_loop *loop, strata_stream stream, const char *text) {
    strata_connection c;
    unsigned char bytes[STRATA_ERROR_MESSAGE_BYTES + 64];
    char from[STRATA_ADDRESS_BYTES];
    strata_socket_peer(stream.fd, from);
    strata_loop_count_refused(loop, from, text);
    strata_connection_init(&c, stream);
    const size_t n = strata_answer_encode(STRATA_INVALID, text, NULL, bytes);
    if (strata_connection_send(&c, STRATA_FRAME_VERDICT, 0, bytes, n, NULL)) strata_connection_finish(&c);
    strata_connection_finish(&c);
}

void strata_loop_new_session(strata_loop *loop, strata_stream stream, const strata_hello *hello) {
    char text[256];
    const uint32_t world = (uint32_t)loop->member.world;
    if (hello->world != world || !hello->rank || hello->rank >= world) {
        snprintf(text, sizeof text, "rank %u of %u came to a job of %u ranks: all must give the same world", hello->rank,
                 hello->world, world);
        refuse(loop, stream, text);
        return;
    }
    strata_session *s = &loop->sessions[hello->rank];
    if (s->connected || s->left) {
        snprintf(text, sizeof text, "rank %u is there already: each rank may come once", hello->rank);
        refuse(loop, stream, text);
        return;
    }
    *s = (strata_session){.source = {session_ready},
                          .rank = (int)hello->rank,
                          .ever_connected = true,
                          .connected = true,
                          .needs_store = true,
                          .last_received = strata_clock_seconds()};
    strata_connection_init(&s->connection, stream);
    if (strata_loop_watch(loop, stream.fd, &s->source, NULL)) mark_session_lost(loop, s, "no memory to watch its connection");
    send_new_events(loop); /* the events before it connected */
}

/* ---- rank 0's own calls ---- */

strata_status strata_loop_serve(strata_member *member, const strata_seat *seat, const strata_store_request *request,
                                double seconds, strata_store_reply *out_reply, strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    STRATA_TRY(strata_board_wait(loop->board, seat, request, seconds, out_reply, err));
    if (request->op == STRATA_STORE_GET) return STRATA_OK;
    pthread_mutex_lock(&loop->lock);
    serve_waiting(loop);
    pthread_mutex_unlock(&loop->lock);
    return STRATA_OK;
}

strata_status strata_loop_decide_failure(strata_member *member, strata_seat *seat, strata_status status, const char *text,
                                         strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    pthread_mutex_lock(&loop->lock);
    strata_loop_take_event(loop, STRATA_EVENT_FAILED, seat->communicator, status, text);
    send_new_events(loop);
    pthread_mutex_unlock(&loop->lock);
    return strata_seat_verdict(seat, err);
}

void strata_loop_check_sessions(strata_loop *loop, double now) {
    /* If this loop itself did not run for a while (the machine or the process was stopped), missing heartbeats are no sign that
     * another rank is lost. */
    const bool was_away = now - loop->last_tick > 2 * loop->heartbeat;
    for (int r = 1; r < loop->member.world; r++) {
        strata_session *s = &loop->sessions[r];
        const double silence = STRATA_MISSED_BEATS * (s->heartbeat > loop->heartbeat ? s->heartbeat : loop->heartbeat);
        char how[160];
        if (was_away) s->last_received = now;
        if (!s->connected || now - s->last_received <= silence) continue;
        strata_format(how, sizeof how, "it gave no sign of life for %g s; it is stopped, or its link is cut", silence);
        mark_session_lost(loop, s, how);
    }
    serve_waiting(loop);
}

/* How many ranks still need the store, because they have a communicator without a verdict. */
static int n_ranks_needing_store(const strata_loop *loop) {
    int n = 0;
    for (int r = 1; r < loop->member.world; r++) n += loop->sessions[r].connected && loop->sessions[r].needs_store;
    return n;
}

/* How many ranks a failure must still be sent to: those that are connected and have not left, and those that did not connect
 * yet. */
static int n_ranks_to_notify(const strata_loop *loop) {
    int n = 0;
    for (int r = 1; r < loop->member.world; r++) n += loop->sessions[r].connected || !loop->sessions[r].ever_connected;
    return n;
}

static bool has_failures(strata_loop *loop) {
    strata_event event;
    for (int i = 0; strata_roster_event(strata_loop_roster(loop), i, &event); i++)
        if (event.kind != STRATA_EVENT_LEFT) return true;
    return false;
}

void strata_loop_finish_serving(strata_loop *loop) {
    const struct timespec limit = strata_clock_after(1),
                          never = strata_clock_after(3600 * 24); /* ranks without heartbeats are lost before that */
    int late = 0;
    while (n_ranks_needing_store(loop)) pthread_cond_timedwait(&loop->changed, &loop->lock, &never);
    while (has_failures(loop) && n_ranks_to_notify(loop) && !late)
        late = pthread_cond_timedwait(&loop->changed, &loop->lock, &limit);
    for (int r = 1; r < loop->member.world; r++) {
        send_to(loop, &loop->sessions[r], STRATA_FRAME_LEAVE, 0, NULL, 0);
        strata_connection_finish(&loop->sessions[r].connection);
    }
}
