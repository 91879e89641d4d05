/* SPDX-License-Identifier: Apache-2.0
 *
 * Accepting connections: handshakes of unknown peers, a few at a time, each in a struct of fixed size and for 5 s at most. A
 * peer that proves that it knows the secret becomes a session of the store, or a link that a communicator waits for. Any other
 * peer is disconnected, without an effect on the rest of the job. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/message/link.h"
#include "cluster/store/loop.h"
#include "cluster/wire/socket.h"
#include "core/base/locked.h"

static const double HANDSHAKE_SECONDS = 5;

static void drop(strata_loop *loop, strata_pending *pending, bool close_it) {
    strata_pending **at = &loop->pending;
    while (*at != pending) at = &(*at)->next;
    *at = pending->next;
    loop->n_pending--;
    if (close_it) strata_stream_close(&pending->stream);
    free(pending);
}

/* ---- who was refused ---- */

/* Of refused peers only their number and the last reason are stored, so that a flood of them needs no memory. Peers that are
 * not Strata, such as a port scanner, are counted apart, so that they do not overwrite the reason why a rank was refused. */
void strata_loop_count_refused(strata_loop *loop, const char *from, const char *why) {
    loop->refused.n_ranks++;
    snprintf(loop->refused.last, sizeof loop->refused.last, "%.64s: %.180s", from, why);
}

strata_refused_text strata_member_refused(strata_member *member) {
    strata_loop *loop = (strata_loop *)member;
    strata_refused_text out = {""};
    const bool here = !strncmp(loop->listens, "127.", 4) || !strncmp(loop->listens, "[::1]", 5);
    int n = snprintf(out.text, sizeof out.text, "; this rank listens at %s%s", loop->listens,
                     here ? ", which no other host reaches" : "");
    STRATA_LOCKED(&loop->lock);
    if (loop->refused.n_ranks)
        snprintf(out.text + n, sizeof out.text - (size_t)n, "; connections refused: %llu, the last from %s",
                 (unsigned long long)loop->refused.n_ranks, loop->refused.last);
    else if (loop->refused.n_strangers)
        snprintf(out.text + n, sizeof out.text - (size_t)n,
                 "; connections refused: %llu, which did not speak as a Strata of this version",
                 (unsigned long long)loop->refused.n_strangers);
    return out;
}

/* ---- handshakes ---- */

static void accept_authenticated(strata_loop *loop, strata_pending *pending) {
    const strata_hello hello = pending->shaking.handshake.hello;
    strata_stream stream = pending->stream;
    strata_loop_forget(loop, stream.fd);
    drop(loop, pending, false);
    strata_socket_prepare(stream.fd);
    strata_accepted *link = hello.purpose == STRATA_FOR_LINK ? malloc(sizeof *link) : NULL;
    if (link) {
        *link = (strata_accepted){.next = loop->accepted, .stream = stream, .hello = hello};
        loop->accepted = link;
        pthread_cond_broadcast(&loop->changed);
    } else if (hello.purpose == STRATA_FOR_STORE && loop->sessions) {
        strata_loop_new_session(loop, stream, &hello);
    } else if (hello.purpose == STRATA_FOR_MESSAGES) {
        strata_links_accept(loop, stream, &hello);
    } else {
        strata_stream_close(&stream);
    }
}

static void continue_handshake(strata_loop *loop, strata_source *source) {
    strata_pending *p = (strata_pending *)source;
    strata_error why = {0};
    short events;
    const strata_status status = strata_shaking_continue(&p->shaking, &p->stream, &events, &why);
    if (!status && !events) {
        accept_authenticated(loop, p);
        return;
    }
    if (!status) {
        strata_loop_want_output(loop, p->stream.fd, &p->source, events == POLLOUT);
        return;
    }
    if (status == STRATA_UNAVAILABLE) strata_loop_count_refused(loop, p->from, why.message);
    if (status == STRATA_DATA) loop->refused.n_strangers++;
    drop(loop, p, true);
}

/* Makes room for another handshake. A real rank finishes within milliseconds, so the oldest connection that has sent nothing is
 * closed, or, if all have sent something, the oldest. */
static void drop_oldest(strata_loop *loop) {
    strata_pending *oldest = loop->pending, *silent = NULL;
    for (strata_pending *p = loop->pending; p; p = p->next) {
        oldest = p;
        if (!p->shaking.handshake.step) silent = p;
    }
    drop(loop, silent ? silent : oldest, true);
}

static void begin(strata_loop *loop, int fd) {
    strata_pending *p = calloc(1, sizeof *p);
    if (loop->n_pending == STRATA_MOST_PENDING) drop_oldest(loop);
    strata_stream stream = {.fd = fd};
    if (!p || strata_shaking_begin(&p->shaking, &stream, NULL, NULL, &loop->credentials, NULL) ||
        strata_loop_watch(loop, fd, &p->source, NULL)) {
        free(p);
        strata_stream_close(&stream);
        return;
    }
    p->source.ready = continue_handshake;
    strata_socket_peer(fd, p->from); /* after a disconnection the address is not known any more */
    p->stream = stream;
    const double limit = strata_pulse_limit(loop->heartbeat, loop->heartbeat);
    p->deadline = strata_clock_seconds() + (limit > HANDSHAKE_SECONDS ? limit : HANDSHAKE_SECONDS);
    p->next = loop->pending;
    loop->pending = p;
    loop->n_pending++;
    continue_handshake(loop, &p->source); /* its first message may have arrived already */
}

void strata_loop_accept(strata_loop *loop, strata_source *listener) {
    (void)listener;
    for (int i = 0; i < STRATA_MOST_PENDING; i++) {
        const int fd = accept4(loop->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        begin(loop, fd);
    }
}

void strata_loop_drop_late(strata_loop *loop, double now) {
    for (strata_pending *p = loop->pending, *next; p; p = next) {
        next = p->next;
        if (now > p->deadline) drop(loop, p, true);
    }
}

void strata_loop_finish_accepting(strata_loop *loop) {
    while (loop->pending) drop(loop, loop->pending, true);
    for (strata_accepted *a = loop->accepted, *next; a; a = next) {
        next = a->next;
        strata_stream_close(&a->stream);
        free(a);
    }
    if (loop->listener >= 0) close(loop->listener);
}

/* Removes and returns the connection of that rank; its fd is -1 if the rank has not connected yet. */
static strata_stream find_link(strata_loop *loop, uint32_t communicator, int rank) {
    for (strata_accepted **at = &loop->accepted; *at; at = &(*at)->next) {
        strata_accepted *a = *at;
        if (a->hello.communicator != communicator || a->hello.rank != (uint32_t)rank) continue;
        const strata_stream stream = a->stream;
        *at = a->next;
        free(a);
        return stream;
    }
    return (strata_stream){.fd = -1};
}

strata_status strata_member_accept_link(strata_member *member, const strata_seat *seat, int job_rank, double seconds,
                                        strata_stream *out_stream, strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    strata_patience patience = strata_patience_of(seconds);
    STRATA_LOCKED(&loop->lock);
    while ((*out_stream = find_link(loop, seat->communicator, job_rank)).fd < 0 && strata_patience_left(&patience) > 0 &&
           !strata_seat_failed(seat))
        strata_wait_patiently(&loop->changed, &loop->lock, &patience);
    if (out_stream->fd >= 0) return STRATA_OK;
    STRATA_TRY(strata_seat_verdict(seat, err));
    return strata_fail(err, STRATA_TIMEOUT, "rank %d did not connect within %g s", job_rank, seconds);
}
