/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/message/link.h"

#include <limits.h>
#include <stdio.h>

#include "core/base/locked.h"

enum {
    /* The most bytes of one sender that are stored without a receive. If there are more, its connection is not read until
     * some are received. */
    MOST_UNRECEIVED = 64 << 20,
    MOST_READS = 8, /* from a connection, before the loop continues with others */
};
static const double CONNECT_STEP_SECONDS = 3; /* between checks of whether the rank still exists */

/* A message that is being sent. */
typedef struct outgoing {
    strata_outgoing queued; /* must be the first field */
    /* NULL: nobody waits for the message any more, and this struct owns its body. */
    strata_transfer *transfer;
} outgoing;

/* The connection on which messages to one rank are sent. */
typedef struct sender {
    strata_source source; /* must be the first field */
    int job_rank;
    bool connecting;
    strata_connection connection;
} sender;

/* The connection on which messages from one rank are received. */
typedef struct receiver {
    strata_source source; /* must be the first field */
    strata_loop *loop;
    int job_rank;
    strata_connection connection;
    /* The message that is being received, and where its bytes are written. NULL: none, or one for a communicator that this
     * process does not have. */
    strata_arrival *arrival;
    struct iovec room;
    bool paused;
} receiver;

/* The connections with one rank. */
struct strata_link {
    sender out;
    receiver in;
};

/* ---- creating and destroying ---- */

strata_status strata_links_create(strata_loop *loop, strata_error *err) {
    loop->links = strata_memory_take(&loop->memory, loop->member.world, sizeof *loop->links);
    if (!loop->links) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a job of %d ranks", loop->member.world);
    for (int r = 0; r < loop->member.world; r++) {
        struct strata_link *l = &loop->links[r];
        l->out.job_rank = l->in.job_rank = r;
        l->in.loop = loop;
        l->out.connection.stream.fd = l->in.connection.stream.fd = -1;
    }
    return STRATA_OK;
}

/* ---- sending ---- */

static void end_outgoing(strata_loop *loop, outgoing *o, strata_status status, const char *text) {
    if (o->transfer) {
        STRATA_LOCKED(&loop->member.roster->lock);
        strata_transfer_end(o->transfer, status, text);
    } else {
        free(o->queued.body.iov_base);
    }
    free(o);
}

static void sent(void *loop, strata_outgoing *queued) {
    end_outgoing(loop, (outgoing *)queued, STRATA_OK, "");
}

static void close_sender(strata_loop *loop, sender *s, const char *text) {
    strata_loop_forget(loop, s->connection.stream.fd);
    while (s->connection.queue) {
        outgoing *o = (outgoing *)s->connection.queue;
        s->connection.queue = o->queued.next;
        end_outgoing(loop, o, STRATA_PEER_LOST, text);
    }
    strata_connection_finish(&s->connection);
    pthread_cond_broadcast(&loop->changed);
}

static void break_sender(strata_loop *loop, sender *s, const char *why) {
    char text[192];
    snprintf(text, sizeof text, "messages to rank %d cannot be sent: %.120s", s->job_rank, why);
    close_sender(loop, s, text);
    strata_roster_rank_gone(loop->member.roster, s->job_rank, text);
}

static void push(strata_loop *loop, sender *s) {
    strata_error why;
    if (strata_connection_flush(&s->connection, loop, &why)) {
        break_sender(loop, s, why.message);
        return;
    }
    if (!s->connection.queue) pthread_cond_broadcast(&loop->changed);
    strata_loop_want_output(loop, s->connection.stream.fd, &s->source, s->connection.queue != NULL);
}

static strata_status refuse_packet(void *user, const strata_packet *packet, const struct iovec **out_parts, int *out_n_parts,
                                   strata_error *err) {
    (void)user, (void)packet, (void)out_parts, (void)out_n_parts;
    return strata_fail(err, STRATA_DATA, "something came on a connection on which only this rank sends");
}

/* The other side sends nothing on this connection, so it becomes readable only when it ends. */
static void sender_ready(strata_loop *loop, strata_source *source) {
    sender *s = (sender *)source;
    const strata_packet_receiver nobody = {.begin = refuse_packet};
    strata_error why;
    if (s->connection.stream.fd < 0) return;
    if (strata_connection_receive(&s->connection, &nobody, 1, &why))
        break_sender(loop, s, why.message);
    else
        push(loop, s);
}

/* Returns true, with the reason in *err, if the rank was lost or left, so that nothing can be sent to it. */
static bool is_gone(strata_loop *loop, int job_rank, strata_error *err) {
    STRATA_LOCKED(&loop->member.roster->lock);
    const char *why = loop->member.roster->ranks[job_rank].gone;
    if (why) strata_fail(err, STRATA_PEER_LOST, "%s", why);
    return why != NULL;
}

/* Connects to the rank. The lock is released meanwhile, so that others can use the loop; only one thread connects at a time. */
static strata_status connect_sender(strata_loop *loop, sender *s, const strata_seat *seat, const char *address, double seconds,
                                    strata_error *err) {
    const strata_hello hello = {STRATA_FOR_MESSAGES, 0, (uint32_t)loop->member.rank, (uint32_t)loop->member.world};
    const double deadline = strata_clock_seconds() + seconds;
    strata_status status = STRATA_OK;
    while (s->connecting) pthread_cond_wait(&loop->changed, &loop->lock);
    if (s->connection.stream.fd >= 0) return STRATA_OK;
    s->connecting = true;
    strata_stream stream = {.fd = -1};
    do {
        const double step = strata_clock_seconds() + CONNECT_STEP_SECONDS;
        if (is_gone(loop, s->job_rank, err)) {
            status = STRATA_PEER_LOST;
            break;
        }
        pthread_mutex_unlock(&loop->lock);
        status = strata_socket_connect(address, &hello, &loop->credentials, step < deadline ? step : deadline, &stream, err);
        pthread_mutex_lock(&loop->lock);
    } while (status == STRATA_TIMEOUT && strata_clock_seconds() < deadline && !seat->ended);
    s->connecting = false;
    if (!status) status = strata_connection_init(&s->connection, stream, err);
    if (!status) {
        s->source.ready = sender_ready;
        status = strata_loop_watch(loop, stream.fd, &s->source, err);
        if (status) strata_connection_finish(&s->connection);
    }
    pthread_cond_broadcast(&loop->changed);
    return status;
}

strata_status strata_links_send(strata_member *member, strata_transfer *transfer, const char *address, double seconds,
                                strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    sender *s = &loop->links[transfer->seat->job_ranks[transfer->peer]].out;
    outgoing *o = malloc(sizeof *o);
    if (!o) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a message");
    *o = (outgoing){.queued = {.packet = {.type = STRATA_FRAME_MESSAGE,
                                          .target = transfer->seat->communicator,
                                          .sequence = (uint64_t)transfer->tag,
                                          .body_bytes = transfer->bytes},
                               .body = {transfer->data, transfer->bytes},
                               .sent = sent},
                    .transfer = transfer};
    STRATA_LOCKED(&loop->lock);
    strata_status status =
        is_gone(loop, s->job_rank, err) ? STRATA_PEER_LOST : connect_sender(loop, s, transfer->seat, address, seconds, err);
    if (!status) {
        const bool idle = !s->connection.queue;
        strata_connection_queue(&s->connection, &o->queued);
        if (idle) push(loop, s);
    } else {
        free(o);
    }
    return status;
}

/* Cancels a message. If none of it was sent, it is removed from the queue; otherwise the rest is sent from a copy. Returns
 * false if there is no memory for the copy. */
static bool withdraw(sender *s, outgoing *o) {
    if (strata_connection_withdraw(&s->connection, &o->queued)) {
        free(o);
        return true;
    }
    const size_t bytes = o->queued.body.iov_len;
    void *own = malloc(bytes + 1);
    if (!own) return false;
    if (bytes) memcpy(own, o->queued.body.iov_base, bytes);
    strata_connection_move_body(&s->connection, &o->queued, own);
    o->transfer = NULL;
    return true;
}

static outgoing *find_outgoing(const sender *s, const strata_transfer *transfer) {
    outgoing *o = (outgoing *)s->connection.queue;
    while (o && o->transfer != transfer) o = (outgoing *)o->queued.next;
    return o;
}

bool strata_links_withdraw(strata_member *member, strata_transfer *transfer) {
    strata_loop *loop = (strata_loop *)member;
    sender *s = &loop->links[transfer->seat->job_ranks[transfer->peer]].out;
    STRATA_LOCKED(&loop->lock);
    outgoing *o = find_outgoing(s, transfer);
    return !o || withdraw(s, o);
}

void strata_links_drop_ended(strata_loop *loop) {
    for (int r = 0; r < loop->member.world; r++) {
        sender *s = &loop->links[r].out;
        for (outgoing *o = (outgoing *)s->connection.queue, *next; o; o = next) {
            strata_transfer *transfer = o->transfer;
            next = (outgoing *)o->queued.next;
            if (!transfer || !transfer->seat->ended || !withdraw(s, o)) continue;
            STRATA_LOCKED(&loop->member.roster->lock);
            strata_transfer_end(transfer, transfer->seat->verdict.status, transfer->seat->verdict.message);
        }
    }
}

/* ---- receiving ---- */

static void close_receiver(strata_loop *loop, receiver *r, const char *text) {
    strata_loop_forget(loop, r->connection.stream.fd);
    strata_connection_finish(&r->connection);
    pthread_mutex_lock(&loop->member.roster->lock);
    if (r->arrival) strata_arrival_drop(r->arrival);
    pthread_mutex_unlock(&loop->member.roster->lock);
    r->arrival = NULL;
    strata_roster_rank_gone(loop->member.roster, r->job_rank, text);
    pthread_cond_broadcast(&loop->changed);
}

/* The roster's lock is held while packets are received. */
static strata_status begin_packet(void *user, const strata_packet *packet, const struct iovec **out_parts, int *out_n_parts,
                                  strata_error *err) {
    receiver *r = user;
    strata_seat *seat = strata_roster_find_seat(r->loop->member.roster, packet->target, -1);
    const int peer = seat ? strata_seat_find(seat, r->job_rank) : -1;
    if (packet->type != STRATA_FRAME_MESSAGE || packet->head_bytes || packet->sequence > INT64_MAX)
        return strata_fail(err, STRATA_DATA, "a message has a wrong type or tag");
    if (peer < 0) return STRATA_OK;
    r->arrival = strata_seat_begin_arrival(seat, peer, (int64_t)packet->sequence, packet->body_bytes);
    if (!r->arrival) return strata_fail(err, STRATA_OUT_OF_MEMORY, "there is no memory for a message of it");
    r->room = (struct iovec){r->arrival->data, packet->body_bytes};
    *out_parts = &r->room;
    *out_n_parts = 1;
    return STRATA_OK;
}

static strata_status end_packet(void *user, const strata_packet *packet, strata_error *err) {
    receiver *r = user;
    (void)err;
    if (r->arrival) {
        r->arrival->n_came = packet->body_bytes;
        strata_arrival_finish(r->arrival);
    }
    r->arrival = NULL;
    r->paused = r->connection.stop = r->loop->member.roster->ranks[r->job_rank].kept > MOST_UNRECEIVED;
    return STRATA_OK;
}

/* Reads what has arrived, at most most_reads times. Closes the connection if it has ended. Since the last time, a message that
 * is arriving may have been matched with a receive, so that its memory is another one now, or dropped. */
static void read_all(strata_loop *loop, receiver *r, int most_reads) {
    const strata_packet_receiver receiver = {begin_packet, end_packet, r};
    strata_error why;
    char text[256];
    pthread_mutex_lock(&loop->member.roster->lock);
    if (r->arrival) r->room.iov_base = r->arrival->data;
    if (!r->arrival || !r->arrival->data) strata_connection_drop_rest(&r->connection);
    const strata_status status = strata_connection_receive(&r->connection, &receiver, most_reads, &why);
    if (r->arrival) r->arrival->n_came = r->connection.message.body_bytes - r->connection.missing;
    if (r->paused) atomic_store(&loop->paused, true);
    pthread_mutex_unlock(&loop->member.roster->lock);
    if (status) {
        snprintf(text, sizeof text, "no more messages come from rank %d: %.200s", r->job_rank, why.message);
        close_receiver(loop, r, text);
    } else if (r->paused) {
        strata_loop_forget(loop, r->connection.stream.fd);
    }
}

static void receiver_ready(strata_loop *loop, strata_source *source) {
    receiver *r = (receiver *)source;
    /* OpenSSL may have read more bytes from the socket than it returned. The loop is not woken again for these, so all are
     * read now. */
    if (r->connection.stream.fd >= 0) read_all(loop, r, r->connection.stream.tls ? INT_MAX : MOST_READS);
}

void strata_links_accept(strata_loop *loop, strata_stream stream, const strata_hello *hello) {
    receiver *r = hello->rank < (uint32_t)loop->member.world && hello->world == (uint32_t)loop->member.world
                      ? &loop->links[hello->rank].in
                      : NULL;
    if (!r || r->connection.stream.fd >= 0 || is_gone(loop, r->job_rank, NULL)) {
        strata_stream_close(&stream);
        return;
    }
    if (strata_connection_init(&r->connection, stream, NULL)) return;
    if (strata_loop_watch(loop, stream.fd, &r->source, NULL)) {
        strata_connection_finish(&r->connection);
        return;
    }
    r->source.ready = receiver_ready;
    r->arrival = NULL;
    r->paused = false;
    receiver_ready(loop, &r->source);
}

void strata_links_resume(strata_loop *loop) {
    atomic_store(&loop->paused, false); /* set again below if a connection stays paused */
    for (int i = 0; i < loop->member.world; i++) {
        receiver *r = &loop->links[i].in;
        if (!r->paused) continue;
        pthread_mutex_lock(&loop->member.roster->lock);
        r->paused = loop->member.roster->ranks[i].kept > MOST_UNRECEIVED / 2;
        if (r->paused) atomic_store(&loop->paused, true);
        pthread_mutex_unlock(&loop->member.roster->lock);
        if (r->paused) continue;
        if (strata_loop_watch(loop, r->connection.stream.fd, &r->source, NULL))
            close_receiver(loop, r, "there is no memory to watch its connection");
        else
            receiver_ready(loop, &r->source);
    }
}

/* ---- ranks that are lost or leave ---- */

void strata_links_rank_lost(strata_loop *loop, int job_rank, const char *text) {
    receiver *r = &loop->links[job_rank].in;
    if (r->connection.stream.fd >= 0) read_all(loop, r, INT_MAX);
    if (r->connection.stream.fd >= 0) close_receiver(loop, r, text);
    close_sender(loop, &loop->links[job_rank].out, text);
    strata_roster_rank_gone(loop->member.roster, job_rank, text);
}

void strata_links_rank_left(strata_loop *loop, int job_rank, const char *text) {
    close_sender(loop, &loop->links[job_rank].out, text);
    /* While there is a connection, messages may still arrive on it; the rank is marked as gone when the connection ends. */
    if (loop->links[job_rank].in.connection.stream.fd < 0) strata_roster_rank_gone(loop->member.roster, job_rank, text);
}

void strata_links_flush(strata_loop *loop, double seconds) {
    const struct timespec limit = strata_clock_after(seconds);
    int late = 0;
    for (int r = 0; r < loop->member.world && !late; r++)
        while (loop->links[r].out.connection.queue && !late) late = pthread_cond_timedwait(&loop->changed, &loop->lock, &limit);
}

void strata_links_destroy(strata_loop *loop) {
    if (!loop->links) return;
    for (int r = 0; r < loop->member.world; r++) {
        close_sender(loop, &loop->links[r].out, "this process left");
        if (loop->links[r].in.connection.stream.fd >= 0) close_receiver(loop, &loop->links[r].in, "this process left");
    }
}
