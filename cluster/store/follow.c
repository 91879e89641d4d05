/* SPDX-License-Identifier: Apache-2.0
 *
 * The other ranks: requests to rank 0's board, signs of life both ways, and the verdict, which comes from rank 0 or, when rank
 * 0 itself is lost, from what each rank sees of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/clock.h"
#include "cluster/store/loop.h"
#include "cluster/wire/socket.h"

static const double VERDICT_SECONDS = 3, /* for rank 0 to say what it decided */
    SLACK_SECONDS = 10;                  /* for an answer to a request, beyond its own time */

/* Rank 0 is gone. Each rank says so by itself, in the same words: so without the collective, in which they may differ. */
static void lose_store(strata_loop *loop, const char *how) {
    char text[STRATA_ERROR_MESSAGE_BYTES];
    strata_loop_forget(loop, loop->control.stream.fd);
    strata_connection_finish(&loop->control);
    snprintf(text, sizeof text, "%s was lost%s: %.800s", loop->first, strata_member_step(&loop->member).text, how);
    strata_loop_take_event(loop, STRATA_EVENT_STORE_LOST, 0, STRATA_PEER_LOST, text);
}

static void send_control(strata_loop *loop, strata_frame_type type, uint64_t sequence, const void *payload, size_t n) {
    if (loop->control.stream.fd < 0) return;
    if (strata_connection_send(&loop->control, type, sequence, payload, n, NULL)) {
        lose_store(loop, "its connection closed");
        return;
    }
    strata_loop_want_output(loop, loop->control.stream.fd, &loop->control_source, strata_connection_has_output(&loop->control));
}

/* A sign of life, which says when the next will come, and whether this process still needs rank 0. */
static void beat(strata_loop *loop, double now) {
    unsigned char heartbeat[STRATA_BEAT_BYTES];
    strata_beat_encode(loop->heartbeat, strata_roster_goes_on(strata_loop_roster(loop)), heartbeat);
    loop->said = now;
    send_control(loop, STRATA_FRAME_BEAT, atomic_load(&loop->member.collective), heartbeat, sizeof heartbeat);
}

/* An event that rank 0 saw. */
static strata_status take_event(strata_loop *loop, strata_event_kind kind, const strata_frame *frame,
                                const unsigned char *payload, strata_error *err) {
    strata_error told = {0};
    STRATA_TRY(strata_answer_decode(payload, frame->bytes, &told, NULL, err));
    if (frame->call.sequence > UINT32_MAX ||
        (kind != STRATA_EVENT_FAILED && frame->call.sequence >= (uint64_t)loop->member.world) || !told.status)
        return strata_fail(err, STRATA_DATA, "it told of something that cannot be");
    strata_loop_take_event(loop, kind, (uint32_t)frame->call.sequence, told.status, told.message);
    if (kind != STRATA_EVENT_LEFT) beat(loop, strata_clock_seconds());
    return STRATA_OK;
}

static strata_status take_frame(void *user, const strata_frame *frame, const unsigned char *payload, strata_error *err) {
    strata_loop *loop = user;
    loop->heard = strata_clock_seconds();
    switch (frame->type) {
        case STRATA_FRAME_REPLY:
            if (!loop->in_flight || loop->answered || frame->call.sequence != loop->request) return STRATA_OK;
            STRATA_TRY(strata_answer_decode(payload, frame->bytes, &loop->answer, &loop->reply, err));
            loop->answered = true;
            break;
        case STRATA_FRAME_VERDICT:
            return take_event(loop, STRATA_EVENT_FAILED, frame, payload, err);
        case STRATA_FRAME_LOST:
            return take_event(loop, STRATA_EVENT_LOST, frame, payload, err);
        case STRATA_FRAME_LEFT:
            return take_event(loop, STRATA_EVENT_LEFT, frame, payload, err);
        case STRATA_FRAME_BEAT:
            return STRATA_OK;
        case STRATA_FRAME_LEAVE:
            loop->store_left = true;
            return STRATA_OK;
        default:
            return strata_fail(err, STRATA_DATA, "it sent a frame of type %u", frame->type);
    }
    pthread_cond_broadcast(&loop->changed);
    return STRATA_OK;
}

static void control_ready(strata_loop *loop, strata_source *source) {
    strata_error err = {0};
    (void)source;
    if (loop->control.stream.fd < 0) return; /* another thread was quicker */
    strata_status status = strata_connection_flush(&loop->control, &err);
    if (!status) status = strata_connection_read(&loop->control, take_frame, loop, &err);
    if (loop->control.stream.fd < 0) return;
    if (status == STRATA_UNAVAILABLE)
        lose_store(loop, loop->store_left ? "it left while others still needed it" : "its connection closed");
    else if (status)
        lose_store(loop, err.message);
    else
        strata_loop_want_output(loop, loop->control.stream.fd, &loop->control_source,
                                strata_connection_has_output(&loop->control));
}

strata_status strata_loop_follow(strata_loop *loop, const strata_communicator_options *opts, strata_error *err) {
    const strata_hello hello = {STRATA_FOR_STORE, 0, (uint32_t)opts->rank, (uint32_t)opts->world};
    const double deadline = strata_clock_seconds() + opts->connect_seconds;
    strata_stream stream;
    const strata_status status = strata_socket_connect(opts->store, &hello, &loop->credentials, deadline, &stream, err);
    if (status == STRATA_TIMEOUT)
        return strata_fail_in(err, status, "rank %d of %d waited %g s for rank 0", opts->rank, opts->world,
                              opts->connect_seconds);
    if (status) return strata_fail_in(err, status, "rank %d of %d cannot join rank 0", opts->rank, opts->world);
    strata_connection_init(&loop->control, stream);
    snprintf(loop->first, sizeof loop->first, "rank 0 (the store at %s)", opts->store);
    loop->control_source.ready = control_ready;
    loop->heard = strata_clock_seconds();
    return strata_loop_watch(loop, stream.fd, &loop->control_source, err);
}

void strata_member_name_first(strata_member *member, const char *name) {
    strata_loop *loop = (strata_loop *)member;
    pthread_mutex_lock(&loop->lock);
    snprintf(loop->first, sizeof loop->first, "%s", name);
    pthread_mutex_unlock(&loop->lock);
}

/* Waits on the loop until `done`, the seat's verdict or the time. The lock is held. */
static void wait_for(strata_loop *loop, const strata_seat *seat, const bool *done, double seconds) {
    const struct timespec deadline = strata_clock_after(seconds);
    int late = 0;
    while (!*done && !late && !(seat && strata_seat_failed(seat)) && loop->control.stream.fd >= 0)
        late = pthread_cond_timedwait(&loop->changed, &loop->lock, &deadline);
}

strata_status strata_loop_ask(strata_member *member, const strata_seat *seat, const strata_store_request *request,
                              double seconds, strata_store_reply *out_reply, strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    *out_reply = (strata_store_reply){0};
    const size_t n_key = strlen(request->key);
    if (!n_key || n_key > STRATA_STORE_KEY_BYTES || request->n_value > STRATA_STORE_VALUE_BYTES ||
        request->n_expected > STRATA_STORE_VALUE_BYTES)
        return strata_fail(err, STRATA_INVALID, "the store takes keys of 1 to %d bytes and values of %d; \"%.200s\" has more",
                           STRATA_STORE_KEY_BYTES, STRATA_STORE_VALUE_BYTES, request->key);
    unsigned char *bytes = malloc(STRATA_MESSAGE_BYTES);
    if (!bytes) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a request to the store");
    const size_t n = strata_request_encode(request, seconds, bytes);
    pthread_mutex_lock(&loop->lock);
    while (loop->in_flight) pthread_cond_wait(&loop->changed, &loop->lock);
    loop->in_flight = true;
    loop->answered = false;
    loop->request++;
    send_control(loop, STRATA_FRAME_REQUEST, loop->request, bytes, n);
    wait_for(loop, seat, &loop->answered, seconds + SLACK_SECONDS);
    if (loop->answered && !loop->said)
        beat(loop, strata_clock_seconds()); /* rank 0 took this one in, and is to know its heartbeat early */
    strata_status status = STRATA_OK;
    const bool ok = loop->answered && !loop->answer.status, has_value = ok && request->op == STRATA_STORE_GET;
    if (loop->answered && !has_value) {
        free(loop->reply.value);
        loop->reply.value = NULL;
    }
    if (ok)
        *out_reply = loop->reply;
    else if (loop->answered)
        status = strata_fail(err, loop->answer.status, "%s", loop->answer.message);
    else if (seat && strata_seat_failed(seat))
        status = strata_seat_verdict(seat, err);
    else if (loop->control.stream.fd < 0)
        status = strata_fail(err, STRATA_PEER_LOST, "%s, which keeps the store, is gone", loop->first);
    else
        status = strata_fail(err, STRATA_TIMEOUT, "the store did not answer within %g s", seconds + SLACK_SECONDS);
    loop->in_flight = false;
    pthread_cond_broadcast(&loop->changed);
    pthread_mutex_unlock(&loop->lock);
    free(bytes);
    return status;
}

strata_status strata_loop_tell(strata_member *member, strata_seat *seat, strata_status status, const char *text,
                               strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    unsigned char bytes[STRATA_ERROR_MESSAGE_BYTES + 64];
    const bool never = false;
    pthread_mutex_lock(&loop->lock);
    if (!strata_seat_failed(seat)) {
        send_control(loop, STRATA_FRAME_REPORT, seat->communicator, bytes, strata_answer_encode(status, text, NULL, bytes));
        wait_for(loop, seat, &never, VERDICT_SECONDS);
    }
    if (!strata_seat_failed(seat)) /* rank 0 said nothing */
        strata_loop_take_event(loop, STRATA_EVENT_FAILED, seat->communicator, status, text);
    pthread_mutex_unlock(&loop->lock);
    return strata_seat_verdict(seat, err);
}

void strata_loop_check_control(strata_loop *loop, double now) {
    const double silence = STRATA_MISSED_BEATS * loop->heartbeat;
    char how[160];
    if (loop->control.stream.fd < 0) return;
    if (now - loop->last_tick > 2 * loop->heartbeat) loop->heard = now; /* this process was stopped */
    if (now - loop->heard > silence) {
        snprintf(how, sizeof how, "it gave no sign of life for %g s; it is stopped, or its link is cut", silence);
        lose_store(loop, how);
    } else if (now - loop->said >= loop->heartbeat) {
        beat(loop, now);
    }
}

void strata_loop_finish_following(strata_loop *loop) {
    send_control(loop, STRATA_FRAME_LEAVE, 0, NULL, 0);
    strata_connection_finish(&loop->control);
}
