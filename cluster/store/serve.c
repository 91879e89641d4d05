/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank 0: the other ranks' requests to the board, and the verdict. A rank whose connection closes without a word was killed;
 * one that gives no sign of life was stopped, or its link is cut. The first failure that is seen or told is sent to all. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/clock.h"
#include "cluster/communicator.h"
#include "cluster/store/loop.h"

static void spread_verdict(strata_loop *loop);

/* "rank 2 (host b, process 17)", as far as it is known. */
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

/* The session's rank is lost: `how` it was seen. */
static void lose(strata_loop *loop, strata_session *s, const char *how) {
    char who[160], text[STRATA_ERROR_MESSAGE_BYTES];
    describe(loop, s->rank, who, sizeof who);
    const strata_step_text step = strata_member_step(&loop->member);
    snprintf(text, sizeof text, "%s was lost%s%scollective %llu: %s", who, step.text, *step.text ? ", " : " at ",
             (unsigned long long)atomic_load(&loop->member.collective), how);
    strata_loop_forget(loop, s->connection.stream.fd);
    strata_connection_finish(&s->connection);
    s->connected = s->waiting = false;
    strata_board_fail(loop->board, STRATA_PEER_LOST, text);
    spread_verdict(loop);
    pthread_cond_broadcast(&loop->changed);
}

static void send_to(strata_loop *loop, strata_session *s, strata_frame_type type, uint64_t sequence, const void *payload,
                    size_t n) {
    strata_error err = {0};
    if (!s->connected) return;
    if (strata_connection_send(&s->connection, type, sequence, payload, n, &err)) {
        lose(loop, s, err.message);
        return;
    }
    strata_loop_want_output(loop, s->connection.stream.fd, &s->source, strata_connection_has_output(&s->connection));
}

static void spread_verdict(strata_loop *loop) {
    strata_error verdict = {0};
    unsigned char text[STRATA_ERROR_MESSAGE_BYTES + 64];
    if (loop->spread || !strata_board_verdict(loop->board, &verdict)) return;
    loop->spread = true;
    const size_t n = strata_answer_encode(verdict.status, verdict.message, NULL, text);
    for (int r = 1; r < loop->member.world; r++) send_to(loop, &loop->sessions[r], STRATA_FRAME_VERDICT, 0, text, n);
}

/* ---- requests ---- */

static void answer(strata_loop *loop, strata_session *s, uint64_t id, strata_status status, const char *text,
                   const strata_store_reply *reply) {
    unsigned char *bytes = malloc(STRATA_MESSAGE_BYTES + STRATA_ERROR_MESSAGE_BYTES);
    if (!bytes) return; /* the rank's request ends by its deadline */
    const size_t n = strata_answer_encode(status, text, reply, bytes);
    send_to(loop, s, STRATA_FRAME_REPLY, id, bytes, n);
    free(bytes);
}

/* GETs whose key has come, or whose time is over. */
static void serve_waiting(strata_loop *loop, double now) {
    for (int r = 1; r < loop->member.world; r++) {
        strata_session *s = &loop->sessions[r];
        if (!s->waiting) continue;
        strata_error err = {0};
        strata_store_reply reply;
        const strata_store_request request = {.op = STRATA_STORE_GET, .key = s->key};
        const strata_status status = strata_board_apply(loop->board, &request, &reply, &err);
        if (status == STRATA_TIMEOUT && now < s->deadline) continue;
        s->waiting = false;
        answer(loop, s, s->request, status, err.message, &reply);
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
    s->deadline = strata_clock_seconds() + seconds;
    if (!s->waiting) answer(loop, s, s->request, status, why.message, &reply);
    free(reply.value);
    serve_waiting(loop, strata_clock_seconds());
    return STRATA_OK;
}

static strata_status take_frame(void *user, const strata_frame *frame, const unsigned char *payload, strata_error *err) {
    strata_session *s = *(strata_session **)user;
    strata_loop *loop = ((strata_loop **)user)[1];
    strata_error told = {0};
    s->heard = strata_clock_seconds();
    switch (frame->type) {
        case STRATA_FRAME_REQUEST:
            return take_request(loop, s, frame, payload, err);
        case STRATA_FRAME_REPORT:
            STRATA_TRY(strata_answer_decode(payload, frame->bytes, &told, NULL, err));
            strata_board_fail(loop->board, told.status, told.message);
            spread_verdict(loop);
            return STRATA_OK;
        case STRATA_FRAME_BEAT:
            STRATA_TRY(strata_beat_decode(payload, frame->bytes, &s->heartbeat, err));
            s->collective = frame->call.sequence;
            send_to(loop, s, STRATA_FRAME_BEAT, atomic_load(&loop->member.collective), NULL, 0);
            return STRATA_OK;
        case STRATA_FRAME_LEAVE:
            s->left = true;
            return STRATA_OK;
        default:
            return strata_fail(err, STRATA_DATA, "a frame of type %u came to the store", frame->type);
    }
}

static void session_ready(strata_loop *loop, strata_source *source) {
    strata_session *s = (strata_session *)source;
    strata_error err = {0};
    void *user[2] = {s, loop};
    if (!s->connected) return; /* another thread was quicker */
    strata_status status = strata_connection_flush(&s->connection, &err);
    if (!status) status = strata_connection_read(&s->connection, take_frame, user, &err);
    if (!s->connected) return;
    if (s->left) {
        strata_loop_forget(loop, s->connection.stream.fd);
        strata_connection_finish(&s->connection);
        s->connected = s->waiting = false;
        pthread_cond_broadcast(&loop->changed);
        return;
    }
    if (status)
        lose(loop, s, err.message);
    else
        strata_loop_want_output(loop, s->connection.stream.fd, &s->source, strata_connection_has_output(&s->connection));
}

/* Tells a rank that is not wanted why, on its own connection. */
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
    *s = (strata_session){
        .source = {session_ready}, .rank = (int)hello->rank, .came = true, .connected = true, .heard = strata_clock_seconds()};
    strata_connection_init(&s->connection, stream);
    if (strata_loop_watch(loop, stream.fd, &s->source, NULL)) lose(loop, s, "no memory to watch its connection");
    if (loop->spread) { /* it came too late */
        loop->spread = false;
        spread_verdict(loop);
    }
}

/* ---- rank 0's own calls ---- */

strata_status strata_loop_serve(strata_member *member, const strata_store_request *request, double seconds,
                                strata_store_reply *out_reply, strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    STRATA_TRY(strata_board_wait(loop->board, request, seconds, out_reply, err));
    if (request->op == STRATA_STORE_GET) return STRATA_OK;
    pthread_mutex_lock(&loop->lock);
    serve_waiting(loop, strata_clock_seconds());
    pthread_mutex_unlock(&loop->lock);
    return STRATA_OK;
}

strata_status strata_loop_judge(strata_member *member, strata_status status, const char *text, strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    strata_board_fail(loop->board, status, text);
    pthread_mutex_lock(&loop->lock);
    spread_verdict(loop);
    pthread_mutex_unlock(&loop->lock);
    return strata_member_verdict(member, err);
}

void strata_loop_check_sessions(strata_loop *loop, double now) {
    /* A loop that did not run itself, because the machine or the process was stopped, has no right to call others silent. */
    const bool was_away = now - loop->last_tick > 2 * loop->heartbeat;
    for (int r = 1; r < loop->member.world; r++) {
        strata_session *s = &loop->sessions[r];
        const double silence = STRATA_MISSED_BEATS * (s->heartbeat > loop->heartbeat ? s->heartbeat : loop->heartbeat);
        char how[160];
        if (was_away) s->heard = now;
        if (!s->connected || now - s->heard <= silence) continue;
        snprintf(how, sizeof how, "it gave no sign of life for %g s; it is stopped, or its link is cut", silence);
        lose(loop, s, how);
    }
    serve_waiting(loop, now);
}

/* Ranks to wait for: those that are there, and after a failure those that are still to come, who would look for us in vain. */
static int n_awaited(const strata_loop *loop, bool failed) {
    int n = 0;
    for (int r = 1; r < loop->member.world; r++) n += loop->sessions[r].connected || (failed && !loop->sessions[r].came);
    return n;
}

void strata_loop_finish_serving(strata_loop *loop) {
    const bool failed = strata_board_failed(loop->board);
    const struct timespec limit = strata_clock_after(failed ? 1 : 3600 * 24); /* silent ranks are lost before */
    int late = 0;
    while (n_awaited(loop, failed) && !late && !(strata_board_failed(loop->board) && !failed))
        late = pthread_cond_timedwait(&loop->changed, &loop->lock, &limit);
    for (int r = 1; r < loop->member.world; r++) {
        send_to(loop, &loop->sessions[r], STRATA_FRAME_LEAVE, 0, NULL, 0);
        strata_connection_finish(&loop->sessions[r].connection);
    }
}
