/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank 0: answers the other ranks' requests to the board, detects lost ranks, and orders the events of the job. A rank whose
 * connection closes without a message was killed. A rank that sends no heartbeat was stopped, or its link is cut. The first
 * failure that rank 0 observes or receives is sent to all ranks. */
#include <stdio.h>

#include "cluster/communicator.h"
#include "cluster/store/loop.h"
#include "core/base/alloc.h"
#include "core/base/locale.h"
#include "core/base/locked.h"

static void send_new_events(strata_loop *loop);

/* Writes for example "rank 2 (host b, process 17)"; host and process are left out if they are not known. */
static void describe(strata_loop *loop, int rank, char *out, size_t room) {
    char key[STRATA_STORE_KEY_BYTES];
    STRATA_FINISHED(strata_store_reply) reply = {0};
    snprintf(key, sizeof key, "strata/0/peer/%d", rank);
    const strata_store_request request = {.op = STRATA_STORE_GET, .key = key};
    if (strata_board_apply(loop->board, &request, &reply, NULL) || reply.n_value != sizeof(strata_peer)) {
        snprintf(out, room, "rank %d", rank);
    } else {
        const strata_peer *peer = reply.value;
        snprintf(out, room, "rank %d (host %.*s, process %d)", rank, STRATA_HOST_BYTES - 1, peer->host, peer->pid);
    }
}

static void end_session(strata_loop *loop, strata_session *s, strata_event_kind kind, const char *text) {
    strata_control_close(loop, &s->control);
    s->connected = s->waiting = false;
    strata_loop_take_event(loop, kind, (uint32_t)s->rank, STRATA_PEER_LOST, text);
    send_new_events(loop);
    pthread_cond_broadcast(&loop->changed);
}

/* Adds the event that the session's rank was lost. how: how the loss was detected. */
static void mark_session_lost(strata_loop *loop, strata_session *s, const char *how) {
    char who[160], text[STRATA_ERROR_MESSAGE_BYTES];
    describe(loop, s->rank, who, sizeof who);
    const strata_step_text step = strata_member_step(&loop->member);
    snprintf(text, sizeof text, "%s was lost%s%scollective %llu: %s", who, step.text, *step.text ? ", " : " at ",
             (unsigned long long)atomic_load(&loop->member.collective), how);
    end_session(loop, s, STRATA_EVENT_LOST, text);
}

/* Sends every rank the events that were not sent to it yet, in order. */
static void send_new_events(strata_loop *loop) {
    static const strata_frame_type types[] = {[STRATA_EVENT_FAILED] = STRATA_FRAME_VERDICT,
                                              [STRATA_EVENT_LOST] = STRATA_FRAME_LOST,
                                              [STRATA_EVENT_LEFT] = STRATA_FRAME_LEFT};
    strata_event event;
    for (int r = 1; r < loop->member.world; r++) {
        strata_session *s = &loop->sessions[r];
        while (s->connected && strata_roster_event(loop->member.roster, s->n_events_sent, &event)) {
            s->n_events_sent++; /* before sending, which may detect that this rank is lost and call this function again */
            strata_control_send(loop, &s->control, types[event.kind], event.error.status, event.subject, event.error.message,
                                strlen(event.error.message));
        }
    }
}

/* ---- requests ---- */

static void send_reply(strata_loop *loop, strata_session *s, uint64_t id, strata_status status, const char *text,
                       const strata_store_reply *reply) {
    strata_control_send(loop, &s->control, STRATA_FRAME_ANSWER, status, id, status ? text : reply->value,
                        status ? strlen(text) : reply->n_value);
}

/* Answers GETs whose key exists now or whose time is over. */
static void serve_waiting(strata_loop *loop) {
    for (int r = 1; r < loop->member.world; r++) {
        strata_session *s = &loop->sessions[r];
        if (!s->waiting) continue;
        strata_error err = {0};
        STRATA_FINISHED(strata_store_reply) reply = {0};
        const strata_store_request request = {.op = STRATA_STORE_GET, .key = s->key};
        const strata_status status = strata_board_apply(loop->board, &request, &reply, &err);
        if (status == STRATA_TIMEOUT && loop->awake < s->deadline) continue;
        s->waiting = false;
        send_reply(loop, s, s->request, status, err.message, &reply);
    }
}

static strata_status take_request(strata_loop *loop, strata_session *s, const strata_packet *packet,
                                  const unsigned char *payload, strata_error *err) {
    strata_store_request request;
    STRATA_FINISHED(strata_store_reply) reply = {0};
    strata_error why = {0};
    double seconds;
    STRATA_TRY(strata_request_decode(payload, packet->body_bytes, s->key, &request, &seconds, err));
    const strata_status status = strata_board_apply(loop->board, &request, &reply, &why);
    s->waiting = status == STRATA_TIMEOUT && seconds > 0;
    s->request = packet->sequence;
    s->deadline = loop->awake + seconds;
    if (!s->waiting) send_reply(loop, s, s->request, status, why.message, &reply);
    serve_waiting(loop);
    return STRATA_OK;
}

static strata_status take_message(strata_loop *loop, strata_control *control, const strata_packet *packet,
                                  const unsigned char *payload, strata_error *err) {
    strata_session *s = (strata_session *)control;
    strata_beat beat;
    switch (packet->type) {
        case STRATA_FRAME_ASK:
            return take_request(loop, s, packet, payload, err);
        case STRATA_FRAME_REPORT:
            if (packet->sequence > UINT32_MAX || !packet->status)
                return strata_fail(err, STRATA_DATA, "a report of a failure that cannot be came to the store");
            strata_loop_take_event(loop, STRATA_EVENT_FAILED, (uint32_t)packet->sequence, packet->status,
                                   (const char *)payload);
            send_new_events(loop);
            return STRATA_OK;
        case STRATA_FRAME_BEAT:
            if (packet->body_bytes != sizeof beat)
                return strata_fail(err, STRATA_DATA, "a sign of life of %zu bytes came, not of %zu", packet->body_bytes,
                                   sizeof beat);
            memcpy(&beat, payload, sizeof beat);
            control->heartbeat = beat.ms / 1000.0;
            s->needs_store = beat.needs_store;
            s->collective = packet->sequence;
            pthread_cond_broadcast(&loop->changed);
            strata_control_send(loop, &s->control, STRATA_FRAME_BEAT, STRATA_OK, atomic_load(&loop->member.collective), NULL,
                                0);
            return STRATA_OK;
        case STRATA_FRAME_LEAVE:
            s->left = true;
            return STRATA_OK;
        default:
            return strata_fail(err, STRATA_DATA, "a message of type %u came to the store", packet->type);
    }
}

static void mark_session_left(strata_loop *loop, strata_session *s) {
    char who[160], text[176];
    describe(loop, s->rank, who, sizeof who);
    snprintf(text, sizeof text, "%s left", who);
    end_session(loop, s, STRATA_EVENT_LEFT, text);
}

static void session_ready(strata_loop *loop, strata_source *source) {
    strata_session *s = (strata_session *)source;
    strata_error err = {0};
    if (!s->connected) return; /* another thread closed the connection meanwhile */
    const strata_status status = strata_control_ready(loop, &s->control, &err);
    if (s->left)
        mark_session_left(loop, s);
    else if (status)
        mark_session_lost(loop, s, err.message);
}

/* Sends a peer that is not accepted the reason and closes its connection. */
static void refuse(strata_loop *loop, strata_stream stream, const char *text) {
    char from[STRATA_ADDRESS_BYTES];
    strata_control control = {.connection.stream.fd = -1};
    strata_socket_peer(stream.fd, from);
    strata_loop_count_refused(loop, from, text);
    if (strata_control_open(loop, &control, stream, NULL)) control.broken = true;
    strata_control_send(loop, &control, STRATA_FRAME_VERDICT, STRATA_INVALID, 0, text, strlen(text));
    strata_control_close(loop, &control);
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
    *s = (strata_session){.control = {.source = {session_ready}, .take = take_message},
                          .rank = (int)hello->rank,
                          .ever_connected = true,
                          .connected = true,
                          .needs_store = true};
    if (strata_control_open(loop, &s->control, stream, NULL)) mark_session_lost(loop, s, "no memory to watch its connection");
    send_new_events(loop); /* the events before it connected */
}

/* ---- rank 0's own calls ---- */

strata_status strata_loop_serve(strata_member *member, const strata_seat *seat, const strata_store_request *request,
                                double seconds, strata_store_reply *out_reply, strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    STRATA_TRY(strata_board_wait(loop->board, seat, request, seconds, out_reply, err));
    if (request->op == STRATA_STORE_GET) return STRATA_OK;
    STRATA_LOCKED(&loop->lock);
    serve_waiting(loop);
    return STRATA_OK;
}

strata_status strata_loop_decide_failure(strata_member *member, strata_seat *seat, strata_status status, const char *text,
                                         strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    STRATA_LOCKED(&loop->lock);
    strata_loop_take_event(loop, STRATA_EVENT_FAILED, seat->communicator, status, text);
    send_new_events(loop);
    return strata_seat_verdict(seat, err);
}

void strata_loop_check_sessions(strata_loop *loop, double now) {
    char how[160];
    for (int r = 1; r < loop->member.world; r++)
        if (strata_control_is_silent(loop, &loop->sessions[r].control, now, how))
            mark_session_lost(loop, &loop->sessions[r], how);
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
    for (int i = 0; strata_roster_event(loop->member.roster, i, &event); i++)
        if (event.kind != STRATA_EVENT_LEFT) return true;
    return false;
}

void strata_loop_finish_serving(strata_loop *loop) {
    const struct timespec limit = strata_clock_after(1);
    int late = 0;
    while (n_ranks_needing_store(loop)) pthread_cond_wait(&loop->changed, &loop->lock); /* those without heartbeats are lost */
    while (has_failures(loop) && n_ranks_to_notify(loop) && !late)
        late = pthread_cond_timedwait(&loop->changed, &loop->lock, &limit);
    for (int r = 1; r < loop->member.world; r++) {
        strata_control_send(loop, &loop->sessions[r].control, STRATA_FRAME_LEAVE, STRATA_OK, 0, NULL, 0);
        strata_control_close(loop, &loop->sessions[r].control);
    }
}
