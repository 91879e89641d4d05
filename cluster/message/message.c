/* SPDX-License-Identifier: Apache-2.0
 *
 * The public functions for messages. A blocking call starts a request, waits for it, and cancels it at its deadline. */
#include <errno.h>

#include "cluster/communicator.h"
#include "core/base/locked.h"

static const double WITHDRAW_RETRY_SECONDS = 0.1; /* between attempts to cancel a request while there is no memory for it */

/* ---- arguments ---- */

static strata_status check_arguments(const strata_communicator *comm, bool receives, size_t bytes, int peer, int64_t tag,
                                     strata_error *err) {
    const char *name = receives ? "receive a message" : "send a message";
    const int least = receives ? STRATA_ANY : 0;
    if (peer < least || peer >= comm->world)
        return strata_fail(err, STRATA_INVALID, "%s: the peer is %d; it must be a rank, 0 to %d%s", name, peer, comm->world - 1,
                           receives ? ", or STRATA_ANY" : "");
    if (tag < least)
        return strata_fail(err, STRATA_INVALID, "%s: the tag is %lld; it must be 0 or more%s", name, (long long)tag,
                           receives ? ", or STRATA_ANY" : "");
    if (bytes > PTRDIFF_MAX - 1) return strata_fail(err, STRATA_INVALID, "%s: %zu bytes are too many", name, bytes);
    return STRATA_OK;
}

static strata_status create(strata_communicator *comm, bool receives, const void *data, size_t bytes, int peer, int64_t tag,
                            strata_request **out_request, strata_error *err) {
    *out_request = NULL;
    STRATA_TRY(check_arguments(comm, receives, bytes, peer, tag, err));
    strata_request *request = calloc(1, sizeof *request);
    if (!request) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a request");
    request->comm = comm;
    request->is_message = true;
    request->receives = receives;
    request->transfer =
        (strata_transfer){.seat = comm->seat, .peer = peer, .tag = tag, .data = (void *)(uintptr_t)data, .bytes = bytes};
    *out_request = request;
    return STRATA_OK;
}

/* ---- starting ---- */

/* Fails if no message can be exchanged with the peer any more. The roster's lock is held. */
static strata_status check_reachable(const strata_seat *seat, int peer, strata_error *err) {
    const char *why = strata_seat_unreachable(seat, peer);
    return why ? strata_fail(err, seat->ended ? seat->verdict.status : STRATA_PEER_LOST, "%s", why) : STRATA_OK;
}

static strata_status start_send(strata_communicator *comm, const void *data, size_t bytes, int peer, int64_t tag,
                                double seconds, strata_request **out_request, strata_error *err) {
    strata_request *request;
    STRATA_TRY(create(comm, false, data, bytes, peer, tag, &request, err));
    pthread_mutex_lock(&comm->seat->roster->lock);
    strata_status status = check_reachable(comm->seat, peer, err);
    pthread_mutex_unlock(&comm->seat->roster->lock);
    if (!status) status = comm->member->send_message(comm->member, &request->transfer, comm->peers[peer].address, seconds, err);
    if (status) {
        free(request);
        return strata_fail_in(err, status, "a message to %s", strata_peer_text(comm, peer).text);
    }
    atomic_fetch_add_explicit(&comm->bytes_sent, bytes, memory_order_relaxed);
    *out_request = request;
    return STRATA_OK;
}

/* A message of the rank to itself: it is copied at once. */
static strata_status start_to_self(strata_communicator *comm, const void *data, size_t bytes, int64_t tag,
                                   strata_request **out_request, strata_error *err) {
    STRATA_TRY(create(comm, false, data, bytes, comm->rank, tag, out_request, err));
    STRATA_LOCKED(&comm->seat->roster->lock);
    const strata_status status = strata_seat_deliver(comm->seat, comm->rank, &(*out_request)->transfer, err);
    if (!status) return STRATA_OK;
    free(*out_request);
    *out_request = NULL;
    return status;
}

strata_status strata_message_start_send(strata_communicator *comm, const void *data, size_t bytes, int peer, int64_t tag,
                                        strata_request **out_request, strata_error *err) {
    *out_request = NULL;
    if (peer == comm->rank) return start_to_self(comm, data, bytes, tag, out_request, err);
    return start_send(comm, data, bytes, peer, tag, comm->connect_seconds, out_request, err);
}

strata_status strata_message_start_receive(strata_communicator *comm, void *data, size_t room, int peer, int64_t tag,
                                           strata_message *out_message, strata_request **out_request, strata_error *err) {
    STRATA_TRY(create(comm, true, data, room, peer, tag, out_request, err));
    (*out_request)->out_message = out_message;
    pthread_mutex_lock(&comm->seat->roster->lock);
    strata_seat_receive(comm->seat, &(*out_request)->transfer);
    pthread_mutex_unlock(&comm->seat->roster->lock);
    if (comm->member->received) comm->member->received(comm->member);
    return STRATA_OK;
}

/* ---- waiting ---- */

static bool wait_until_done(strata_request *request, double seconds) {
    const struct timespec deadline = strata_clock_after(seconds);
    strata_seat *seat = request->comm->seat;
    int wait_error = 0;
    STRATA_LOCKED(&seat->roster->lock);
    while (!request->transfer.done && wait_error != ETIMEDOUT)
        wait_error = pthread_cond_timedwait(&seat->changed, &seat->roster->lock, &deadline);
    return request->transfer.done;
}

static strata_status finish(strata_request *request, strata_error *err) {
    strata_status status = request->transfer.error.status;
    if (status) strata_fail(err, status, "%s", request->transfer.error.message);
    if (request->out_message) *request->out_message = request->transfer.message;
    free(request);
    return status;
}

/* Returns true if the request was cancelled; else it is done, or it continues. */
static bool withdraw(strata_request *request) {
    strata_communicator *comm = request->comm;
    strata_transfer *transfer = &request->transfer;
    const bool withdrawn = !request->receives && comm->member->withdraw_message(comm->member, transfer);
    STRATA_LOCKED(&comm->seat->roster->lock);
    return !transfer->done && (request->receives ? strata_seat_withdraw_receive(transfer) : withdrawn);
}

bool strata_request_cancel(strata_request *request) {
    if (!request->is_message || !withdraw(request)) return false;
    free(request);
    return true;
}

static strata_status end_after_deadline(strata_request *request, double seconds, strata_error *err) {
    const strata_communicator *comm = request->comm;
    const int peer = request->transfer.peer;
    const bool receives = request->receives, any = peer == STRATA_ANY;
    bool done = false;
    while (!done && !withdraw(request)) done = wait_until_done(request, WITHDRAW_RETRY_SECONDS);
    if (done) return finish(request, err);
    free(request);
    return strata_fail(err, STRATA_TIMEOUT, "no message %s %s within %g s", receives ? "came from" : "was taken by",
                       any ? "any rank" : strata_peer_text(comm, peer).text, seconds);
}

strata_status strata_message_wait(strata_request *request, double seconds, bool *out_done, strata_error *err) {
    const double most = seconds < 0 ? request->comm->stall_seconds : seconds;
    *out_done = wait_until_done(request, most);
    if (*out_done) return finish(request, err);
    if (seconds >= 0) return STRATA_OK;
    *out_done = true;
    return end_after_deadline(request, most, err);
}

/* ---- blocking calls ---- */

/* Waits for at most `left` of the call's `seconds`, which the error message names. */
static strata_status wait_at_most(strata_request *request, double seconds, double left, strata_error *err) {
    return wait_until_done(request, left > 0 ? left : 0) ? finish(request, err) : end_after_deadline(request, seconds, err);
}

strata_status strata_message_send(strata_communicator *comm, const void *data, size_t bytes, int peer, int64_t tag,
                                  double seconds, strata_error *err) {
    strata_request *request = NULL;
    const double began = strata_clock_seconds();
    STRATA_TRY(peer == comm->rank ? start_to_self(comm, data, bytes, tag, &request, err)
                                  : start_send(comm, data, bytes, peer, tag, seconds, &request, err));
    return wait_at_most(request, seconds, seconds - (strata_clock_seconds() - began), err);
}

strata_status strata_message_receive(strata_communicator *comm, void *data, size_t room, int peer, int64_t tag, double seconds,
                                     strata_message *out_message, strata_error *err) {
    strata_request *request;
    STRATA_TRY(strata_message_start_receive(comm, data, room, peer, tag, out_message, &request, err));
    return wait_at_most(request, seconds, seconds, err);
}

strata_status strata_message_probe(strata_communicator *comm, int peer, int64_t tag, double seconds,
                                   strata_message *out_message, strata_error *err) {
    STRATA_TRY(check_arguments(comm, true, 0, peer, tag, err));
    const struct timespec deadline = strata_clock_after(seconds > 0 ? seconds : 0);
    const strata_arrival *arrival;
    int wait_error = 0;
    STRATA_LOCKED(&comm->seat->roster->lock);
    while (!(arrival = strata_seat_find_arrival(comm->seat, peer, tag)) && wait_error != ETIMEDOUT) {
        STRATA_TRY(check_reachable(comm->seat, peer, err));
        wait_error = pthread_cond_timedwait(&comm->seat->changed, &comm->seat->roster->lock, &deadline);
    }
    if (arrival) *out_message = arrival->message;
    if (arrival) return STRATA_OK;
    STRATA_TRY(check_reachable(comm->seat, peer, err));
    return strata_fail(err, STRATA_TIMEOUT, "no message came from %s within %g s",
                       peer == STRATA_ANY ? "any rank" : strata_peer_text(comm, peer).text, seconds);
}
