/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/message/matching.h"

#include <stdio.h>

static bool matches(const strata_message *message, int peer, int64_t tag) {
    const bool tag_matches = tag == STRATA_ANY ? message->tag < STRATA_RESERVED_TAGS : tag == message->tag;
    return tag_matches && (peer == STRATA_ANY || peer == message->peer);
}

void strata_transfer_end(strata_transfer *transfer, strata_status status, const char *text) {
    if (transfer->done) return;
    if (status) {
        transfer->error.status = strata_fail(&transfer->error, status, "%s", text);
        transfer->message = (strata_message){.peer = STRATA_ANY};
    }
    transfer->done = true;
    pthread_cond_broadcast(&transfer->seat->changed);
}

/* ---- lists ---- */

static void append_waiting(strata_seat *seat, strata_transfer *transfer) {
    strata_transfer **at = &seat->waiting;
    while (*at) at = &(*at)->next;
    transfer->next = NULL;
    *at = transfer;
}

static bool remove_waiting(strata_seat *seat, strata_transfer *transfer) {
    for (strata_transfer **at = &seat->waiting; *at; at = &(*at)->next)
        if (*at == transfer) {
            *at = transfer->next;
            return true;
        }
    return false;
}

static void remove_arrival(strata_seat *seat, strata_arrival *arrival) {
    strata_arrival *before = NULL;
    for (strata_arrival *a = seat->arrivals; a != arrival; a = a->next) before = a;
    *(before ? &before->next : &seat->arrivals) = arrival->next;
    if (seat->last_arrival == arrival) seat->last_arrival = before;
}

static size_t *stored_bytes_of(const strata_arrival *arrival) {
    const strata_seat *seat = arrival->seat;
    return &seat->roster->ranks[seat->job_ranks[arrival->message.peer]].kept;
}

/* Allocates memory for a message that no receive was matched with, also for one of 0 bytes, so that `data` is not NULL. Copies
 * the bytes that have arrived. */
static bool store_unclaimed(strata_arrival *arrival) {
    char *own = malloc(arrival->message.bytes + 1);
    if (!own) return false;
    *stored_bytes_of(arrival) += arrival->message.bytes;
    if (arrival->n_came) memcpy(own, arrival->data, arrival->n_came);
    arrival->data = own;
    arrival->receive = NULL;
    return true;
}

/* Frees the memory of a message that was stored without a receive. */
static void free_stored(strata_arrival *arrival) {
    *stored_bytes_of(arrival) -= arrival->message.bytes;
    free(arrival->data);
    arrival->data = NULL;
}

/* ---- receives ---- */

static bool fits_or_fail(strata_transfer *transfer, const strata_message *message) {
    char text[160];
    if (message->bytes <= transfer->bytes) return true;
    snprintf(text, sizeof text, "a message of rank %d with tag %lld has %zu bytes; the receive has room for %zu", message->peer,
             (long long)message->tag, message->bytes, transfer->bytes);
    strata_transfer_end(transfer, STRATA_INVALID, text);
    return false;
}

const char *strata_seat_unreachable(const strata_seat *seat, int peer) {
    if (seat->ended) return seat->verdict.message;
    if (peer != STRATA_ANY) return seat->roster->ranks[seat->job_ranks[peer]].gone;
    const char *why = NULL;
    for (int r = 0; r < seat->world; r++) {
        const char *gone = seat->roster->ranks[seat->job_ranks[r]].gone;
        if (r == seat->rank) continue;
        if (!gone) return NULL;
        why = gone;
    }
    return why;
}

/* Fails a receive for which no message can arrive any more. Returns whether it did. */
static bool fail_if_unreachable(strata_transfer *transfer) {
    const char *why = strata_seat_unreachable(transfer->seat, transfer->peer);
    if (!why) return false;
    strata_transfer_end(transfer, transfer->seat->ended ? transfer->seat->verdict.status : STRATA_PEER_LOST, why);
    return true;
}

static void claim(strata_seat *seat, strata_arrival *arrival, strata_transfer *transfer) {
    if (arrival->n_came) memcpy(transfer->data, arrival->data, arrival->n_came);
    free_stored(arrival);
    arrival->data = transfer->data;
    arrival->receive = transfer;
    transfer->message = arrival->message;
    if (!arrival->finished) return; /* the rest is read directly into the receive's buffer */
    remove_arrival(seat, arrival);
    free(arrival);
    strata_transfer_end(transfer, STRATA_OK, "");
}

strata_arrival *strata_seat_find_arrival(const strata_seat *seat, int peer, int64_t tag) {
    for (strata_arrival *a = seat->arrivals; a; a = a->next)
        if (!a->receive && a->data && matches(&a->message, peer, tag)) return a;
    return NULL;
}

/* Gives the receive a stored message that matches, or fails it. Returns false if it has to wait for a message. */
static bool receive_now(strata_transfer *transfer) {
    strata_arrival *arrival = strata_seat_find_arrival(transfer->seat, transfer->peer, transfer->tag);
    if (!arrival) return fail_if_unreachable(transfer);
    if (fits_or_fail(transfer, &arrival->message)) claim(transfer->seat, arrival, transfer);
    return true;
}

void strata_seat_receive(strata_seat *seat, strata_transfer *transfer) {
    if (!receive_now(transfer)) append_waiting(seat, transfer);
}

/* ---- arrivals ---- */

/* The first queued receive that matches the message and whose buffer is large enough. Receives before it whose buffers are too
 * small fail. */
static strata_transfer *find_receive(strata_seat *seat, const strata_message *message) {
    for (strata_transfer *t = seat->waiting, *next; t; t = next) {
        next = t->next;
        if (!matches(message, t->peer, t->tag)) continue;
        remove_waiting(seat, t);
        if (fits_or_fail(t, message)) return t;
    }
    return NULL;
}

bool strata_seat_withdraw_receive(strata_transfer *transfer) {
    strata_seat *seat = transfer->seat;
    if (remove_waiting(seat, transfer)) return true;
    strata_arrival *arrival = seat->arrivals;
    while (arrival && arrival->receive != transfer) arrival = arrival->next;
    if (!arrival) return true;
    if (!store_unclaimed(arrival)) return false;
    /* the next receive in the queue gets the message, as if the cancelled one had never started */
    strata_transfer *other = find_receive(seat, &arrival->message);
    if (other) claim(seat, arrival, other);
    pthread_cond_broadcast(&seat->changed); /* a probe may be waiting for it */
    return true;
}

strata_arrival *strata_seat_begin_arrival(strata_seat *seat, int peer, int64_t tag, size_t bytes) {
    strata_arrival *arrival = calloc(1, sizeof *arrival);
    if (!arrival) return NULL;
    arrival->seat = seat;
    arrival->message = (strata_message){.peer = peer, .tag = tag, .bytes = bytes};
    arrival->receive = find_receive(seat, &arrival->message);
    if (arrival->receive) {
        arrival->data = arrival->receive->data;
        arrival->receive->message = arrival->message;
    } else if (!store_unclaimed(arrival)) {
        free(arrival);
        return NULL;
    }
    *(seat->last_arrival ? &seat->last_arrival->next : &seat->arrivals) = arrival;
    seat->last_arrival = arrival;
    if (!arrival->receive) pthread_cond_broadcast(&seat->changed); /* a probe may be waiting for it */
    return arrival;
}

void strata_arrival_finish(strata_arrival *arrival) {
    strata_seat *seat = arrival->seat;
    arrival->finished = true;
    if (seat && arrival->data && !arrival->receive) return; /* it stays in the list until a receive gets it */
    if (seat) remove_arrival(seat, arrival);
    if (arrival->receive) strata_transfer_end(arrival->receive, STRATA_OK, "");
    free(arrival);
}

strata_status strata_seat_deliver(strata_seat *seat, int rank, strata_transfer *transfer, strata_error *err) {
    strata_arrival *arrival = strata_seat_begin_arrival(seat, rank, transfer->tag, transfer->bytes);
    if (!arrival) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a message of %zu bytes", transfer->bytes);
    if (transfer->bytes) memcpy(arrival->data, transfer->data, transfer->bytes);
    arrival->n_came = transfer->bytes;
    strata_arrival_finish(arrival);
    strata_transfer_end(transfer, STRATA_OK, "");
    return STRATA_OK;
}

void strata_arrival_drop(strata_arrival *arrival) {
    strata_seat *seat = arrival->seat;
    strata_transfer *receive = arrival->receive;
    if (seat) remove_arrival(seat, arrival);
    if (receive && !receive_now(receive)) { /* first in the queue, since it started before the others */
        receive->next = seat->waiting;
        seat->waiting = receive;
    }
    if (seat && !receive && arrival->data) free_stored(arrival);
    free(arrival);
}

/* ---- ends ---- */

/* The buffer of the matched receive belongs to its caller again, so no more bytes may be written to it. */
static void unlink_receive(strata_arrival *arrival) {
    arrival->receive = NULL;
    arrival->data = NULL;
}

void strata_seat_end_messages(strata_seat *seat, const strata_error *why) {
    for (strata_arrival *a = seat->arrivals; a; a = a->next) {
        if (!a->receive) continue;
        strata_transfer_end(a->receive, why->status, why->message);
        unlink_receive(a);
    }
    while (seat->waiting) {
        strata_transfer *t = seat->waiting;
        seat->waiting = t->next;
        strata_transfer_end(t, why->status, why->message);
    }
    pthread_cond_broadcast(&seat->changed);
}

void strata_seat_rank_gone(strata_seat *seat, int rank) {
    for (strata_transfer *t = seat->waiting, *next; t; t = next) {
        next = t->next;
        if ((t->peer == STRATA_ANY || t->peer == rank) && strata_seat_unreachable(seat, t->peer)) {
            remove_waiting(seat, t);
            fail_if_unreachable(t);
        }
    }
    pthread_cond_broadcast(&seat->changed);
}

void strata_seat_drop_messages(strata_seat *seat) {
    for (strata_arrival *a = seat->arrivals, *next; a; a = next) {
        next = a->next;
        if (!a->receive && a->data) free_stored(a);
        a->seat = NULL;
        unlink_receive(a);
        if (a->finished) free(a); /* else the thread that reads the connection frees it */
    }
    seat->arrivals = seat->last_arrival = NULL;
}
