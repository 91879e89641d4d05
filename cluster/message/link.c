/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/message/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/wire/crc32c.h"
#include "cluster/wire/frame.h"
#include "core/base/clock.h"

enum {
    SEGMENT = 256 << 10, /* the most payload bytes of a frame */
    /* The most bytes of one sender that are stored without a receive. If there are more, its connection is not read until
     * some are received. */
    MOST_UNRECEIVED = 64 << 20,
    DISCARD_BYTES = 4096, /* bytes of a discarded message that are read at a time */
};
static const double CONNECT_STEP_SECONDS = 3; /* between checks of whether the rank still exists */

/* A message that is being sent. */
typedef struct outgoing {
    struct outgoing *next;
    /* NULL: nobody waits for the message any more, and this struct owns `data`. */
    strata_transfer *transfer;
    uint32_t communicator;
    int64_t tag;
    const char *data;
    size_t bytes, n_sent;
} outgoing;

/* The connection on which messages to one rank are sent. */
typedef struct sender {
    strata_source source; /* must be the first field */
    int job_rank;
    bool connecting;
    strata_stream stream;
    outgoing *first, *last;
    /* The frame that is being sent: its header, how many bytes of header and payload were sent, and the size of the payload. */
    unsigned char header[STRATA_FRAME_BYTES];
    size_t frame_sent, frame_bytes;
    bool in_frame;
    uint32_t n_frames;
} sender;

/* The connection on which messages from one rank are received. */
typedef struct receiver {
    strata_source source; /* must be the first field */
    int job_rank;
    strata_stream stream;
    uint32_t n_frames;
    unsigned char header[STRATA_FRAME_BYTES];
    size_t n_in; /* received bytes of the current frame, header and payload */
    strata_frame frame;
    /* The message that is being received. NULL: none, or one for a communicator that this process does not have. */
    strata_arrival *arrival;
    size_t whole, came; /* bytes of the message, and how many were received; 0 and 0 between messages */
    size_t frame_begin; /* where the frame's payload begins in the message */
    bool paused;
} receiver;

struct strata_links {
    sender *senders;     /* [world] */
    receiver *receivers; /* [world] */
};

/* ---- creating and destroying ---- */

strata_status strata_links_create(strata_loop *loop, strata_error *err) {
    const size_t world = (size_t)loop->member.world;
    loop->links = calloc(1, sizeof *loop->links);
    if (loop->links) {
        loop->links->senders = calloc(world, sizeof(sender));
        loop->links->receivers = calloc(world, sizeof(receiver));
    }
    if (!loop->links || !loop->links->senders || !loop->links->receivers)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a job of %zu ranks", world);
    for (int r = 0; r < loop->member.world; r++) {
        loop->links->senders[r].job_rank = loop->links->receivers[r].job_rank = r;
        loop->links->senders[r].stream.fd = loop->links->receivers[r].stream.fd = -1;
    }
    return STRATA_OK;
}

/* ---- sending ---- */

static void lock_roster(strata_loop *loop) {
    pthread_mutex_lock(&loop->member.roster->lock);
}
static void unlock_roster(strata_loop *loop) {
    pthread_mutex_unlock(&loop->member.roster->lock);
}

static void end_outgoing(strata_loop *loop, outgoing *o, strata_status status, const char *text) {
    if (o->transfer) {
        lock_roster(loop);
        strata_transfer_end(o->transfer, status, text);
        unlock_roster(loop);
    } else {
        free((void *)(uintptr_t)o->data);
    }
    free(o);
}

static void close_sender(strata_loop *loop, sender *s, const char *text) {
    strata_loop_forget(loop, s->stream.fd);
    strata_stream_close(&s->stream);
    while (s->first) {
        outgoing *o = s->first;
        s->first = o->next;
        end_outgoing(loop, o, STRATA_PEER_LOST, text);
    }
    s->last = NULL;
    pthread_cond_broadcast(&loop->changed);
}

static void break_sender(strata_loop *loop, sender *s) {
    char text[192];
    snprintf(text, sizeof text, "messages to rank %d cannot be sent: %s", s->job_rank,
             errno ? strata_stream_problem(&s->stream, errno) : "its connection closed");
    close_sender(loop, s, text);
    strata_roster_rank_gone(loop->member.roster, s->job_rank, text);
}

static void begin_frame(sender *s) {
    const outgoing *o = s->first;
    const size_t left = o->bytes - o->n_sent, bytes = left < SEGMENT ? left : SEGMENT;
    const strata_frame frame = {
        .type = STRATA_FRAME_MESSAGE,
        .number = s->n_frames++,
        .bytes = (uint32_t)bytes,
        .payload_crc = s->stream.tls ? 0 : strata_crc32c(0, o->data + o->n_sent, bytes),
        .call = {.communicator = o->communicator, .sequence = (uint64_t)o->tag, .count = (uint64_t)o->bytes}};
    strata_frame_encode(&frame, s->header);
    s->frame_bytes = bytes;
    s->frame_sent = 0;
    s->in_frame = true;
}

static ssize_t send_some(sender *s) {
    struct iovec parts[2];
    const outgoing *o = s->first;
    const size_t head = s->frame_sent < STRATA_FRAME_BYTES ? STRATA_FRAME_BYTES - s->frame_sent : 0;
    const size_t done = s->frame_sent > STRATA_FRAME_BYTES ? s->frame_sent - STRATA_FRAME_BYTES : 0;
    int n = 0;
    if (head) parts[n++] = (struct iovec){s->header + s->frame_sent, head};
    if (done < s->frame_bytes)
        parts[n++] = (struct iovec){(void *)(uintptr_t)(o->data + o->n_sent + done), s->frame_bytes - done};
    return strata_stream_send(&s->stream, parts, n);
}

/* Sends as much as the socket accepts. */
static void push(strata_loop *loop, sender *s) {
    while (s->first) {
        if (!s->in_frame) begin_frame(s);
        const ssize_t n = send_some(s);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) {
            break_sender(loop, s);
            return;
        }
        s->frame_sent += (size_t)n;
        if (s->frame_sent < STRATA_FRAME_BYTES + s->frame_bytes) continue;
        s->in_frame = false;
        outgoing *o = s->first;
        o->n_sent += s->frame_bytes;
        if (o->n_sent < o->bytes) continue;
        s->first = o->next;
        if (!s->first) s->last = NULL;
        end_outgoing(loop, o, STRATA_OK, "");
    }
    if (!s->first) pthread_cond_broadcast(&loop->changed);
    strata_loop_want_output(loop, s->stream.fd, &s->source, s->first != NULL);
}

/* The other side sends nothing on this connection, so it becomes readable only when it ends. */
static void sender_ready(strata_loop *loop, strata_source *source) {
    sender *s = (sender *)source;
    char byte;
    const struct iovec one = {&byte, 1};
    if (s->stream.fd < 0) return;
    const ssize_t n = strata_stream_recv(&s->stream, &one, 1);
    if (n >= 0 || (errno != EAGAIN && errno != EINTR)) {
        if (n >= 0) errno = 0;
        break_sender(loop, s);
        return;
    }
    push(loop, s);
}

/* Returns true, with the reason in *err, if the rank was lost or left, so that nothing can be sent to it. */
static bool is_gone(strata_loop *loop, int job_rank, strata_error *err) {
    lock_roster(loop);
    const char *why = loop->member.roster->gone[job_rank];
    if (why) strata_fail(err, STRATA_PEER_LOST, "%s", why);
    unlock_roster(loop);
    return why != NULL;
}

/* Connects to the rank. The lock is released meanwhile, so that others can use the loop; only one thread connects at a time. */
static strata_status connect_sender(strata_loop *loop, sender *s, const strata_seat *seat, const char *address, double seconds,
                                    strata_error *err) {
    const strata_hello hello = {STRATA_FOR_MESSAGES, 0, (uint32_t)loop->member.rank, (uint32_t)loop->member.world};
    const double deadline = strata_clock_seconds() + seconds;
    strata_status status = STRATA_OK;
    while (s->connecting) pthread_cond_wait(&loop->changed, &loop->lock);
    if (s->stream.fd >= 0) return STRATA_OK;
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
    if (!status) {
        s->stream = stream;
        s->source.ready = sender_ready;
        s->in_frame = false;
        status = strata_loop_watch(loop, stream.fd, &s->source, err);
        if (status) strata_stream_close(&s->stream);
    }
    pthread_cond_broadcast(&loop->changed);
    return status;
}

strata_status strata_links_send(strata_member *member, strata_transfer *transfer, const char *address, double seconds,
                                strata_error *err) {
    strata_loop *loop = (strata_loop *)member;
    sender *s = &loop->links->senders[transfer->seat->job_ranks[transfer->peer]];
    outgoing *o = malloc(sizeof *o);
    if (!o) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a message");
    *o = (outgoing){.transfer = transfer,
                    .communicator = transfer->seat->communicator,
                    .tag = transfer->tag,
                    .data = transfer->data,
                    .bytes = transfer->bytes};
    pthread_mutex_lock(&loop->lock);
    strata_status status =
        is_gone(loop, s->job_rank, err) ? STRATA_PEER_LOST : connect_sender(loop, s, transfer->seat, address, seconds, err);
    if (!status) {
        const bool idle = !s->first;
        if (idle)
            s->first = o;
        else
            s->last->next = o;
        s->last = o;
        if (idle) push(loop, s);
    } else {
        free(o);
    }
    pthread_mutex_unlock(&loop->lock);
    return status;
}

static bool is_begun(const sender *s, const outgoing *o) {
    return o == s->first && (o->n_sent || s->in_frame);
}

/* Cancels a message. If none of it was sent, it is removed from the queue; otherwise the rest is sent from a copy. Returns
 * false if there is no memory for the copy. */
static bool withdraw(sender *s, outgoing *o, outgoing *before) {
    if (is_begun(s, o)) {
        char *own = malloc(o->bytes + 1);
        if (!own) return false;
        memcpy(own, o->data, o->bytes);
        o->data = own;
        o->transfer = NULL;
        return true;
    }
    *(before ? &before->next : &s->first) = o->next;
    if (s->last == o) s->last = before;
    free(o);
    return true;
}

bool strata_links_withdraw(strata_member *member, strata_transfer *transfer) {
    strata_loop *loop = (strata_loop *)member;
    sender *s = &loop->links->senders[transfer->seat->job_ranks[transfer->peer]];
    bool withdrawn = true;
    pthread_mutex_lock(&loop->lock);
    for (outgoing *o = s->first, *before = NULL; o; before = o, o = o->next)
        if (o->transfer == transfer) {
            withdrawn = withdraw(s, o, before);
            break;
        }
    pthread_mutex_unlock(&loop->lock);
    return withdrawn;
}

void strata_links_drop_ended(strata_loop *loop) {
    for (int r = 0; r < loop->member.world; r++) {
        sender *s = &loop->links->senders[r];
        for (outgoing *o = s->first, *before = NULL, *next; o; o = next) {
            strata_transfer *transfer = o->transfer;
            const bool stays = is_begun(s, o) || !transfer || !transfer->seat->ended;
            next = o->next;
            if (transfer && transfer->seat->ended && withdraw(s, o, before)) {
                lock_roster(loop);
                strata_transfer_end(transfer, transfer->seat->verdict.status, transfer->seat->verdict.message);
                unlock_roster(loop);
            }
            if (stays) before = o;
        }
    }
}

/* ---- receiving ---- */

static void close_receiver(strata_loop *loop, receiver *r, const char *text) {
    strata_loop_forget(loop, r->stream.fd);
    strata_stream_close(&r->stream);
    lock_roster(loop);
    if (r->arrival) strata_arrival_drop(r->arrival);
    unlock_roster(loop);
    r->arrival = NULL;
    strata_roster_rank_gone(loop->member.roster, r->job_rank, text);
    pthread_cond_broadcast(&loop->changed);
}

/* Handles the header of a frame, which is complete. The roster's lock must be held. Returns NULL, or what is wrong with it. */
static const char *take_header(strata_loop *loop, receiver *r) {
    if (strata_frame_decode(r->header, SEGMENT, &r->frame, NULL) || r->frame.type != STRATA_FRAME_MESSAGE ||
        r->frame.number != r->n_frames++)
        return "a frame of it was damaged or is missing";
    const strata_call *call = &r->frame.call;
    const bool begins = r->came == r->whole;
    if (begins) {
        strata_seat *seat = strata_roster_find_seat(loop->member.roster, call->communicator, -1);
        const int peer = seat ? strata_seat_find(seat, r->job_rank) : -1;
        if (call->count > PTRDIFF_MAX - 1 || call->sequence > INT64_MAX) return "a message has a wrong length or tag";
        r->whole = (size_t)call->count;
        r->came = 0;
        r->arrival = NULL;
        if (peer >= 0) {
            r->arrival = strata_seat_begin_arrival(seat, peer, (int64_t)call->sequence, r->whole);
            if (!r->arrival) return "there is no memory for a message of it";
        }
    }
    if (call->count != r->whole || r->frame.bytes > r->whole - r->came || (!r->frame.bytes && r->whole))
        return "its frames do not fit each other";
    r->frame_begin = r->came;
    return NULL;
}

/* Handles a complete frame. The roster's lock must be held. Returns NULL, or what is wrong with it. */
static const char *take_frame(receiver *r) {
    const strata_arrival *a = r->arrival;
    if (a && a->data && !r->stream.tls && strata_crc32c(0, a->data + r->frame_begin, r->frame.bytes) != r->frame.payload_crc)
        return "a message was damaged on its way: its checksum differs";
    r->n_in = 0;
    if (r->came < r->whole) return NULL;
    if (a) strata_arrival_finish(r->arrival);
    r->arrival = NULL;
    r->whole = r->came = 0;
    return NULL;
}

/* Reads once. Returns NULL if bytes were read, "" if there is nothing to read now, or the reason why the connection ends. The
 * roster's lock must be held. */
static const char *read_some(strata_loop *loop, receiver *r) {
    char discarded[DISCARD_BYTES];
    struct iovec part;
    const bool in_header = r->n_in < STRATA_FRAME_BYTES;
    if (in_header) {
        part = (struct iovec){r->header + r->n_in, STRATA_FRAME_BYTES - r->n_in};
    } else {
        const size_t left = STRATA_FRAME_BYTES + r->frame.bytes - r->n_in;
        char *data = r->arrival ? r->arrival->data : NULL;
        part = data ? (struct iovec){data + r->came, left}
                    : (struct iovec){discarded, left < sizeof discarded ? left : sizeof discarded};
    }
    const ssize_t n = strata_stream_recv(&r->stream, &part, 1);
    if (n < 0 && errno == EINTR) return NULL;
    if (n < 0 && errno == EAGAIN) return "";
    if (n < 0) return strata_stream_problem(&r->stream, errno);
    if (n == 0) return r->n_in || r->came ? "its connection closed within a message" : "its connection closed";
    r->n_in += (size_t)n;
    if (!in_header) {
        r->came += (size_t)n;
        if (r->arrival) r->arrival->n_came = r->came;
    }
    if (in_header && r->n_in == STRATA_FRAME_BYTES) {
        const char *wrong = take_header(loop, r);
        if (wrong) return wrong;
    }
    return r->n_in >= STRATA_FRAME_BYTES && r->n_in == STRATA_FRAME_BYTES + r->frame.bytes ? take_frame(r) : NULL;
}

/* Reads what has arrived, at most most_reads times. Closes the connection if it has ended. */
static void read_all(strata_loop *loop, receiver *r, int most_reads) {
    const char *end = NULL;
    char text[256];
    lock_roster(loop);
    for (int i = 0; i < most_reads && !end; i++) {
        end = read_some(loop, r);
        if (!end && !r->n_in && loop->member.roster->kept[r->job_rank] > MOST_UNRECEIVED) {
            r->paused = true;
            atomic_store(&loop->paused, true);
            break;
        }
    }
    if (end && *end) snprintf(text, sizeof text, "no more messages come from rank %d: %s", r->job_rank, end);
    unlock_roster(loop);
    if (end && *end)
        close_receiver(loop, r, text);
    else if (r->paused)
        strata_loop_forget(loop, r->stream.fd);
}

static void receiver_ready(strata_loop *loop, strata_source *source) {
    receiver *r = (receiver *)source;
    /* OpenSSL may have read more bytes from the socket than it returned. The loop is not woken again for these, so all are
     * read now. */
    if (r->stream.fd >= 0) read_all(loop, r, r->stream.tls ? INT32_MAX : 8);
}

void strata_links_accept(strata_loop *loop, strata_stream stream, const strata_hello *hello) {
    receiver *r = hello->rank < (uint32_t)loop->member.world && hello->world == (uint32_t)loop->member.world
                      ? &loop->links->receivers[hello->rank]
                      : NULL;
    if (!r || r->stream.fd >= 0 || is_gone(loop, r->job_rank, NULL) || strata_loop_watch(loop, stream.fd, &r->source, NULL)) {
        strata_stream_close(&stream);
        return;
    }
    r->source.ready = receiver_ready;
    r->stream = stream;
    r->n_in = r->whole = r->came = 0;
    r->n_frames = 0;
    receiver_ready(loop, &r->source);
}

void strata_links_resume(strata_loop *loop) {
    atomic_store(&loop->paused, false); /* set again below if a connection stays paused */
    for (int i = 0; i < loop->member.world; i++) {
        receiver *r = &loop->links->receivers[i];
        if (!r->paused) continue;
        lock_roster(loop);
        r->paused = loop->member.roster->kept[i] > MOST_UNRECEIVED / 2;
        if (r->paused) atomic_store(&loop->paused, true);
        unlock_roster(loop);
        if (r->paused) continue;
        if (strata_loop_watch(loop, r->stream.fd, &r->source, NULL))
            close_receiver(loop, r, "there is no memory to watch its connection");
        else
            receiver_ready(loop, &r->source);
    }
}

/* ---- ranks that are lost or leave ---- */

void strata_links_rank_lost(strata_loop *loop, int job_rank, const char *text) {
    receiver *r = &loop->links->receivers[job_rank];
    if (r->stream.fd >= 0) read_all(loop, r, INT32_MAX);
    if (r->stream.fd >= 0) close_receiver(loop, r, text);
    close_sender(loop, &loop->links->senders[job_rank], text);
    strata_roster_rank_gone(loop->member.roster, job_rank, text);
}

void strata_links_rank_left(strata_loop *loop, int job_rank, const char *text) {
    close_sender(loop, &loop->links->senders[job_rank], text);
    /* While there is a connection, messages may still arrive on it; the rank is marked as gone when the connection ends. */
    if (loop->links->receivers[job_rank].stream.fd < 0) strata_roster_rank_gone(loop->member.roster, job_rank, text);
}

void strata_links_flush(strata_loop *loop, double seconds) {
    const struct timespec limit = strata_clock_after(seconds);
    int late = 0;
    for (int r = 0; r < loop->member.world && !late; r++)
        while (loop->links->senders[r].first && !late) late = pthread_cond_timedwait(&loop->changed, &loop->lock, &limit);
}

void strata_links_destroy(strata_loop *loop) {
    if (!loop->links) return;
    for (int r = 0; r < loop->member.world && loop->links->senders && loop->links->receivers; r++) {
        close_sender(loop, &loop->links->senders[r], "this process left");
        if (loop->links->receivers[r].stream.fd >= 0) close_receiver(loop, &loop->links->receivers[r], "this process left");
    }
    free(loop->links->senders);
    free(loop->links->receivers);
    free(loop->links);
    loop->links = NULL;
}
