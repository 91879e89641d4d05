/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection of the other ranks to rank 0: requests to its board, heartbeats in both directions, and events. When rank 0
 * itself is lost, each rank detects this by itself. */
#include <stdio.h>

#include "cluster/store/loop.h"
#include "cluster/wire/socket.h"
#include "core/base/alloc.h"
#include "core/base/locale.h"
#include "core/base/locked.h"

static const double VERDICT_SECONDS = 3, /* how long to wait for rank 0's verdict */
    SLACK_SECONDS = 10;                  /* how much longer than the request's own time to wait for a reply */

/* Adds the event that rank 0 was lost. Each rank writes this message itself, and all should be equal, so it does not name the
 * collective, in which the ranks may differ. */
static void mark_store_lost(strata_loop *loop, const char *how) {
    char text[STRATA_ERROR_MESSAGE_BYTES];
    strata_control_close(loop, &loop->rank0.control);
    snprintf(text, sizeof text, "%s was lost%s: %.800s", loop->rank0.name, strata_member_step(&loop->member).text, how);
    strata_loop_take_event(loop, STRATA_EVENT_STORE_LOST, 0, STRATA_PEER_LOST, text);
}

/* Sends a heartbeat, which contains the interval until the next one and whether this process still needs the store. */
static void send_heartbeat(strata_loop *loop, double now) {
    const strata_beat beat = {strata_milliseconds(loop->heartbeat), strata_roster_has_active_seat(loop->member.roster)};
    loop->rank0.last_sent = now;
    strata_control_send(loop, &loop->rank0.control, STRATA_FRAME_BEAT, STRATA_OK, atomic_load(&loop->member.collective), &beat,
                        sizeof beat);
}

static strata_status take_event(strata_loop *loop, strata_event_kind kind, const strata_packet *packet,
                                const unsigned char *payload, strata_error *err) {
    if (packet->sequence > UINT32_MAX || (kind != STRATA_EVENT_FAILED && packet->sequence >= (uint64_t)loop->member.world) ||
        !packet->status)
        return strata_fail(err, STRATA_DATA, "it reported of something that cannot be");
    strata_loop_take_event(loop, kind, (uint32_t)packet->sequence, packet->status, (const char *)payload);
    if (kind != STRATA_EVENT_LEFT) send_heartbeat(loop, strata_clock_seconds());
    return STRATA_OK;
}

static strata_status take_message(strata_loop *loop, strata_control *control, const strata_packet *packet,
                                  const unsigned char *payload, strata_error *err) {
    switch (packet->type) {
        case STRATA_FRAME_ANSWER:
            if (!loop->request.in_flight || loop->request.answered || packet->sequence != loop->request.number)
                return STRATA_OK;
            loop->request.error.status = packet->status;
            if (packet->status) {
                strata_fail(&loop->request.error, packet->status, "%s", (const char *)payload);
            } else {
                loop->request.reply = (strata_store_reply){control->payload.iov_base, packet->body_bytes};
                control->payload.iov_base = NULL;
            }
            loop->request.answered = true;
            pthread_cond_broadcast(&loop->changed);
            return STRATA_OK;
        case STRATA_FRAME_VERDICT:
            return take_event(loop, STRATA_EVENT_FAILED, packet, payload, err);
        case STRATA_FRAME_LOST:
            return take_event(loop, STRATA_EVENT_LOST, packet, payload, err);
        case STRATA_FRAME_LEFT:
            return take_event(loop, STRATA_EVENT_LEFT, packet, payload, err);
        case STRATA_FRAME_BEAT:
            return STRATA_OK;
        case STRATA_FRAME_LEAVE:
            loop->rank0.store_left = true;
            return STRATA_OK;
        default:
            return strata_fail(err, STRATA_DATA, "it sent a message of type %u", packet->type);
    }
}

static void control_ready(strata_loop *loop, strata_source *source) {
    strata_error err = {0};
    (void)source;
    if (loop->rank0.control.connection.stream.fd < 0) return; /* another thread closed the connection meanwhile */
    const strata_status status = strata_control_ready(loop, &loop->rank0.control, &err);
    if (status == STRATA_UNAVAILABLE)
        mark_store_lost(loop, loop->rank0.store_left ? "it left while others still needed it" : "its connection closed");
    else if (status)
        mark_store_lost(loop, err.message);
}

strata_status strata_loop_connect_rank0(strata_loop *loop, const strata_communicator_options *opts, strata_error *err) {
    const strata_hello hello = {STRATA_FOR_STORE, 0, (uint32_t)opts->rank, (uint32_t)opts->world};
    const double deadline = strata_clock_seconds() + opts->connect_seconds;
    strata_stream stream;
    const strata_status status = strata_socket_connect(opts->store, &hello, &loop->credentials, deadline, &stream, err);
    if (status == STRATA_TIMEOUT)
        return strata_fail_in(err, status, "rank %d of %d waited %g s for rank 0", opts->rank, opts->world,
                              opts->connect_seconds);
    if (status) return strata_fail_in(err, status, "rank %d of %d cannot join rank 0", opts->rank, opts->world);
    snprintf(loop->rank0.name, sizeof loop->rank0.name, "rank 0 (the store at %s)", opts->store);
    loop->rank0.control.source.ready = control_ready;
    loop->rank0.control.take = take_message;
    return strata_control_open(loop, &loop->rank0.control, stream, err);
}

void strata_member_set_rank0_name(strata_member *member, const char *name) {
    strata_loop *loop = (strata_loop *)member;
    STRATA_LOCKED(&loop->lock);
    snprintf(loop->rank0.name, sizeof loop->rank0.name, "%s", name);
}

/* Waits on the loop until `done`, the seat's verdict or the time. The lock is held. */
static void wait_for(strata_loop *loop, const strata_seat *seat, const bool *done, double seconds) {
    strata_patience patience = strata_patience_of(seconds);
    while (!*done && strata_patience_left(&patience) > 0 && !(seat && strata_seat_failed(seat)) &&
           loop->rank0.control.connection.stream.fd >= 0)
        strata_wait_patiently(&loop->changed, &loop->lock, &patience);
}

strata_status strata_loop_send_request(strata_member *member, const strata_seat *seat, const strata_store_request *request,
                                       double seconds, strata_store_reply *out_reply, strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    *out_reply = (strata_store_reply){0};
    STRATA_TRY(strata_store_check(request, err));
    STRATA_FREED unsigned char *bytes = malloc(STRATA_MESSAGE_BYTES);
    if (!bytes) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a request to the store");
    const size_t n = strata_request_encode(request, seconds, bytes);
    STRATA_LOCKED(&loop->lock);
    while (loop->request.in_flight) pthread_cond_wait(&loop->changed, &loop->lock);
    loop->request.in_flight = true;
    loop->request.answered = false;
    loop->request.reply = (strata_store_reply){0};
    loop->request.number++;
    strata_control_send(loop, &loop->rank0.control, STRATA_FRAME_ASK, STRATA_OK, loop->request.number, bytes, n);
    wait_for(loop, seat, &loop->request.answered, seconds + SLACK_SECONDS);
    /* Rank 0 accepted this rank: send the first heartbeat now, so that rank 0 knows its interval. */
    if (loop->request.answered && !loop->rank0.last_sent) send_heartbeat(loop, strata_clock_seconds());
    strata_status status = STRATA_OK;
    if (loop->request.answered) {
        *out_reply = loop->request.reply;
        status = loop->request.error.status;
        if (status) strata_fail(err, status, "%s", loop->request.error.message);
    } else if (seat && strata_seat_failed(seat)) {
        status = strata_seat_verdict(seat, err);
    } else if (loop->rank0.control.connection.stream.fd < 0) {
        status = strata_fail(err, STRATA_PEER_LOST, "%s, which keeps the store, is gone", loop->rank0.name);
    } else {
        status = strata_fail(err, STRATA_TIMEOUT, "the store did not answer within %g s", seconds + SLACK_SECONDS);
    }
    loop->request.in_flight = false;
    pthread_cond_broadcast(&loop->changed);
    return status;
}

strata_status strata_loop_report_failure(strata_member *member, strata_seat *seat, strata_status status, const char *text,
                                         strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    const bool never = false;
    STRATA_LOCKED(&loop->lock);
    if (!strata_seat_failed(seat)) {
        strata_control_send(loop, &loop->rank0.control, STRATA_FRAME_REPORT, status, seat->communicator, text, strlen(text));
        wait_for(loop, seat, &never, VERDICT_SECONDS);
    }
    if (!strata_seat_failed(seat)) /* no verdict arrived */
        strata_loop_take_event(loop, STRATA_EVENT_FAILED, seat->communicator, status, text);
    return strata_seat_verdict(seat, err);
}

void strata_loop_check_control(strata_loop *loop, double now) {
    char how[160];
    if (loop->rank0.control.connection.stream.fd < 0) return;
    if (strata_control_is_silent(loop, &loop->rank0.control, now, how))
        mark_store_lost(loop, how);
    else if (now - loop->rank0.last_sent >= loop->heartbeat)
        send_heartbeat(loop, now);
}

void strata_loop_finish_following(strata_loop *loop) {
    strata_control_send(loop, &loop->rank0.control, STRATA_FRAME_LEAVE, STRATA_OK, 0, NULL, 0);
    strata_control_close(loop, &loop->rank0.control);
}
