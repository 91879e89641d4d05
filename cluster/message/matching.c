/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/message/matching.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool fits(const strata_message *message, int peer, int64_t tag) {
    const bool fits_tag = tag == STRATA_ANY ? message->tag < STRATA_RESERVED_TAGS : tag == message->tag;
    return fits_tag && (peer == STRATA_ANY || peer == message->peer);
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

static size_t *kept_of(const strata_arrival *arrival) {
    const strata_seat *seat = arrival->seat;
    return &seat->roster->kept[seat->job_ranks[arrival->message.peer]];
}

/* Where the bytes of a message that nobody takes are kept; one of 0 bytes has a place too. */
static bool keep(strata_arrival *arrival) {
    char *own = malloc(arrival->message.bytes + 1);
    if (!own) return false;
    *kept_of(arrival) += arrival->message.bytes;
    if (arrival->n_came) memcpy(own, arrival->data, arrival->n_came);
    arrival->data = own;
    arrival->taker = NULL;
    return true;
}

/* Frees the memory of a message that was kept. */
static void free_kept(strata_arrival *arrival) {
    *kept_of(arrival) -= arrival->message.bytes;
    free(arrival->data);
    arrival->data = NULL;
}

/* ---- receives ---- */

static bool has_room(strata_transfer *transfer, const strata_message *message) {
    char text[160];
    if (message->bytes <= transfer->bytes) return true;
    snprintf(text, sizeof text, "a message of rank %d with tag %lld has %zu bytes; the receive has room for %zu", message->peer,
             (long long)message->tag, message->bytes, transfer->bytes);
    strata_transfer_end(transfer, STRATA_INVALID, text);
    return false;
}

const char *strata_seat_vain(const strata_seat *seat, int peer) {
    if (seat->ended) return seat->verdict.message;
    if (peer != STRATA_ANY) return seat->roster->gone[seat->job_ranks[peer]];
    const char *why = NULL;
    for (int r = 0; r < seat->world; r++) {
        const char *gone = seat->roster->gone[seat->job_ranks[r]];
        if (r == seat->rank) continue;
        if (!gone) return NULL;
        why = gone;
    }
    return why;
}

/* Fails a receive that would wait in vain. */
static bool fail_vain(strata_transfer *transfer) {
    const char *why = strata_seat_vain(transfer->seat, transfer->peer);
    if (!why) return false;
    strata_transfer_end(transfer, transfer->seat->ended ? transfer->seat->verdict.status : STRATA_PEER_LOST, why);
    return true;
}

static void take(strata_seat *seat, strata_arrival *arrival, strata_transfer *transfer) {
    if (arrival->n_came) memcpy(transfer->data, arrival->data, arrival->n_came);
    free_kept(arrival);
    arrival->data = transfer->data;
    arrival->taker = transfer;
    transfer->message = arrival->message;
    if (!arrival->finished) return; /* the rest comes into the receive's memory */
    remove_arrival(seat, arrival);
    free(arrival);
    strata_transfer_end(transfer, STRATA_OK, "");
}

static strata_arrival *find(const strata_seat *seat, int peer, int64_t tag) {
    for (strata_arrival *a = seat->arrivals; a; a = a->next)
        if (!a->taker && a->data && fits(&a->message, peer, tag)) return a;
    return NULL;
}

void strata_seat_receive(strata_seat *seat, strata_transfer *transfer) {
    strata_arrival *arrival = find(seat, transfer->peer, transfer->tag);
    if (arrival && !has_room(transfer, &arrival->message)) return;
    if (arrival)
        take(seat, arrival, transfer);
    else if (!fail_vain(transfer))
        append_waiting(seat, transfer);
}

bool strata_seat_withdraw_receive(strata_transfer *transfer) {
    if (remove_waiting(transfer->seat, transfer)) return true;
    for (strata_arrival *a = transfer->seat->arrivals; a; a = a->next)
        if (a->taker == transfer) return keep(a);
    return true;
}

const strata_arrival *strata_seat_find_arrival(const strata_seat *seat, int peer, int64_t tag) {
    return find(seat, peer, tag);
}

/* ---- arrivals ---- */

/* The first receive that waits for the message and has room for it. */
static strata_transfer *find_taker(strata_seat *seat, const strata_message *message) {
    for (strata_transfer *t = seat->waiting, *next; t; t = next) {
        next = t->next;
        if (!fits(message, t->peer, t->tag)) continue;
        remove_waiting(seat, t);
        if (has_room(t, message)) return t;
    }
    return NULL;
}

strata_arrival *strata_seat_begin_arrival(strata_seat *seat, int peer, int64_t tag, size_t bytes) {
    strata_arrival *arrival = calloc(1, sizeof *arrival);
    if (!arrival) return NULL;
    arrival->seat = seat;
    arrival->message = (strata_message){.peer = peer, .tag = tag, .bytes = bytes};
    arrival->taker = find_taker(seat, &arrival->message);
    if (arrival->taker) {
        arrival->data = arrival->taker->data;
        arrival->taker->message = arrival->message;
    } else if (!keep(arrival)) {
        free(arrival);
        return NULL;
    }
    *(seat->last_arrival ? &seat->last_arrival->next : &seat->arrivals) = arrival;
    seat->last_arrival = arrival;
    if (!arrival->taker) pthread_cond_broadcast(&seat->changed); /* a probe may wait for it */
    return arrival;
}

void strata_arrival_finish(strata_arrival *arrival) {
    strata_seat *seat = arrival->seat;
    arrival->finished = true;
    if (seat && arrival->data && !arrival->taker) return; /* it stays until it is received */
    if (seat) remove_arrival(seat, arrival);
    if (arrival->taker) strata_transfer_end(arrival->taker, STRATA_OK, "");
    free(arrival);
}

void strata_arrival_drop(strata_arrival *arrival) {
    strata_seat *seat = arrival->seat;
    strata_transfer *taker = arrival->taker;
    if (seat) remove_arrival(seat, arrival);
    if (taker && !fail_vain(taker)) { /* before those that began to wait later */
        taker->next = seat->waiting;
        seat->waiting = taker;
    }
    if (seat && !taker && arrival->data) free_kept(arrival);
    free(arrival);
}

/* ---- ends ---- */

/* The taker's memory is its owner's again. */
static void forget_taker(strata_arrival *arrival) {
    arrival->taker = NULL;
    arrival->data = NULL;
}

void strata_seat_end_messages(strata_seat *seat, const strata_error *why) {
    for (strata_arrival *a = seat->arrivals; a; a = a->next) {
        if (!a->taker) continue;
        strata_transfer_end(a->taker, why->status, why->message);
        forget_taker(a);
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
        if ((t->peer == STRATA_ANY || t->peer == rank) && strata_seat_vain(seat, t->peer)) {
            remove_waiting(seat, t);
            fail_vain(t);
        }
    }
    pthread_cond_broadcast(&seat->changed);
}

void strata_seat_drop_messages(strata_seat *seat) {
    for (strata_arrival *a = seat->arrivals, *next; a; a = next) {
        next = a->next;
        if (!a->taker && a->data) free_kept(a);
        a->seat = NULL;
        forget_taker(a);
        if (a->finished) free(a); /* else the reader of the connection frees it */
    }
    seat->arrivals = seat->last_arrival = NULL;
}
