/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/wire/connection.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "cluster/wire/crc32c.h"
#include "core/base/locked.h"

enum {
    READ_AHEAD = 4 << 10,     /* bytes that may be read beyond a message's end; they may belong to the next message */
    LEAST_SHARED = 1 << 10,   /* a message with fewer bytes is faster behind its header than in a block */
    LARGE_BODY = 32 << 20,    /* a body with so many bytes does not stay in any cache until it is used */
    SHARED_SEGMENT = 1 << 20, /* the most bytes of a segment in shared memory: each may cost a wakeup */
    MOST_UNREAD = 64 << 10,   /* with so many unread bytes the socket may be full */
    YIELDS = 4000,            /* how often to yield while a ring is full of segments of the same message */
};

/* The time limit for YIELDS. A yield may take long if many threads share a core, and heartbeats cannot be sent meanwhile. */
static const double YIELD_SECONDS = 0.02;

strata_status strata_connection_init(strata_connection *c, strata_stream stream, strata_error *err) {
    memset(c, 0, sizeof *c);
    c->stream = stream;
    c->buffer = malloc(STRATA_BUFFER_BYTES);
    atomic_store(&c->received, strata_clock_seconds());
    atomic_store(&c->sent, strata_clock_seconds());
    pthread_mutex_init(&c->tls, NULL);
    if (c->buffer) return STRATA_OK;
    pthread_mutex_destroy(&c->tls);
    strata_stream_close(&c->stream);
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a connection");
}

void strata_connection_finish(strata_connection *c) {
    if (!c->buffer) return;
    strata_stream_close(&c->stream);
    strata_area_release(c->area);
    c->area = NULL;
    pthread_mutex_destroy(&c->tls);
    free(c->buffer);
    c->buffer = NULL;
}

void strata_connection_shut(strata_connection *c, bool in_only) {
    shutdown(c->stream.fd, in_only ? SHUT_RD : SHUT_RDWR);
    if (atomic_load(&c->shares)) strata_pipes_shut(&c->pipes, in_only);
}

/* ---- waiting ---- */

short strata_connection_wait(strata_connection *c, short events, int ms, bool may_spin) {
    struct pollfd fd = {.fd = c->stream.fd, .events = events};
    if (atomic_load(&c->shares)) return strata_pipes_wait(&c->pipes, events, ms, may_spin);
    poll(&fd, 1, ms);
    return fd.revents;
}

bool strata_connection_needs_poll(strata_connection *c) {
    return atomic_load(&c->shares) && !atomic_load(&c->pipes.closed);
}

void strata_connection_note_end(strata_connection *c) {
    if (atomic_load(&c->shares)) strata_pipes_close(&c->pipes);
}

size_t strata_connection_unread(strata_connection *c, bool *out_full) {
    const bool shares = atomic_load(&c->shares);
    int n = 0;
    if (!shares && ioctl(c->stream.fd, FIONREAD, &n)) n = MOST_UNREAD + 1;
    if (shares) n = (int)strata_pipes_unread(&c->pipes);
    *out_full = n > (shares ? STRATA_PIPE_BYTES - STRATA_FRAME_BYTES : MOST_UNREAD);
    return (size_t)n;
}

size_t strata_connection_unsent(strata_connection *c) {
    int n = 0;
    if (atomic_load(&c->shares)) return strata_pipes_unsent(&c->pipes);
    return ioctl(c->stream.fd, TIOCOUTQ, &n) ? 1 : (size_t)n;
}

/* ---- bytes ---- */

/* Sends or receives as much as is possible now. */
static ssize_t move(strata_connection *c, const struct iovec *parts, int n_parts, bool out) {
    const bool tls = c->stream.tls != NULL, piped = c->pipes.in != NULL;
    ssize_t n;
    if (tls) pthread_mutex_lock(&c->tls);
    do
        if (out)
            n = piped ? strata_pipes_send(&c->pipes, parts, n_parts) : strata_stream_send(&c->stream, parts, n_parts);
        else
            n = piped ? strata_pipes_recv(&c->pipes, parts, n_parts) : strata_stream_recv(&c->stream, parts, n_parts);
    while (n < 0 && errno == EINTR);
    if (tls) pthread_mutex_unlock(&c->tls);
    if (n <= 0) return n;
    atomic_store_explicit(out ? &c->sent : &c->received, strata_clock_coarse_seconds(), memory_order_relaxed);
    *(out ? &c->bytes_out : &c->bytes_in) += (uint64_t)n;
    return n;
}

short strata_connection_events(strata_connection *c, short otherwise) {
    if (!c->stream.tls) return otherwise;
    STRATA_LOCKED(&c->tls);
    const short events = strata_stream_events(&c->stream, otherwise);
    return events ? events : otherwise;
}

static strata_status ended(strata_connection *c, ssize_t n, bool in_message, strata_error *err) {
    const int error = errno;
    if (n < 0 && error == EBADMSG) return strata_fail(err, STRATA_DATA, "the memory that both tasks map was damaged");
    if (n == 0 || error == ECONNRESET || error == EPIPE)
        return strata_fail(err, STRATA_UNAVAILABLE, "its connection closed%s", in_message ? " within a message" : "");
    STRATA_LOCKED(&c->tls);
    return strata_fail(err, error == EPROTO ? STRATA_DATA : STRATA_UNAVAILABLE, "%s", strata_stream_problem(&c->stream, error));
}

/* ---- receiving ---- */

/* Lists the next rooms of the message, of at most `bytes` bytes. */
static int rooms(const strata_connection *c, size_t bytes, struct iovec *out, int most) {
    int n = 0;
    size_t offset = c->offset;
    for (int i = c->part; i < c->n_parts && bytes && n < most; i++, offset = 0) {
        const size_t room = c->parts[i].iov_len - offset, take = room < bytes ? room : bytes;
        if (take) out[n++] = (struct iovec){(char *)c->parts[i].iov_base + offset, take};
        bytes -= take;
    }
    return n;
}

/* Called when n bytes of the frame are in their rooms: advances the position, and adds the bytes to the checksum. */
static void advance(strata_connection *c, size_t n) {
    c->left -= n;
    c->missing -= n;
    while (n && c->part < c->n_parts) {
        const struct iovec *part = &c->parts[c->part];
        const size_t room = part->iov_len - c->offset, take = room < n ? room : n;
        if (take && c->checks) c->crc = strata_crc32c(c->crc, (char *)part->iov_base + c->offset, take);
        c->offset += take;
        n -= take;
        if (c->offset == part->iov_len) {
            c->part++;
            c->offset = 0;
        }
    }
}

/* Like memcpy, but with stores that bypass the cache: for a body that is larger than the cache, an ordinary store would first
 * load each line that it overwrites. */
static void copy_past_cache(unsigned char *to, const unsigned char *from, size_t n) {
#if defined(__SSE2__)
    const size_t line = 64, before = (line - (uintptr_t)to % line) % line;
    if (n < 4 * line) {
        memcpy(to, from, n);
        return;
    }
    memcpy(to, from, before);
    size_t i = before;
    for (; i + line <= n; i += line)
        for (size_t k = 0; k < line; k += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(void *)(to + i + k), _mm_loadu_si128((const __m128i *)(const void *)(from + i + k)));
    _mm_sfence();
    memcpy(to + i, from + i, n - i);
#else
    memcpy(to, from, n);
#endif
}

/* Copies the frame's next n bytes from `from` to their rooms. */
static void pour_from(strata_connection *c, const unsigned char *from, size_t n) {
    struct iovec parts[STRATA_SEGMENT_PARTS];
    size_t done = 0;
    while (done < n) {
        const int n_parts = rooms(c, n - done, parts, STRATA_SEGMENT_PARTS);
        size_t now = 0;
        for (int i = 0; i < n_parts; i++) {
            if (c->message.body_bytes < LARGE_BODY)
                memcpy(parts[i].iov_base, from + done + now, parts[i].iov_len);
            else
                copy_past_cache(parts[i].iov_base, from + done + now, parts[i].iov_len);
            now += parts[i].iov_len;
        }
        if (!n_parts) now = n - done; /* dropped */
        advance(c, now);
        done += now;
    }
}

static void pour(strata_connection *c) {
    const size_t there = c->end - c->first, n = there < c->left ? there : c->left;
    pour_from(c, c->buffer + c->first, n);
    c->first += n;
}

/* Finds the payload of a frame in the area. If the whole message is there, it becomes the message's `view`. */
static strata_status find_shared(const strata_connection *c, bool begins, unsigned char **out_body, size_t *out_head,
                                 strata_error *err) {
    const strata_frame *f = &c->frame;
    *out_head = begins ? (size_t)f->part.head_bytes : 0;
    unsigned char *at = c->area ? strata_area_at(c->area, c->incoming, f->payload_crc, *out_head, f->bytes) : NULL;
    if (!at) return strata_fail(err, STRATA_DATA, "a frame's %u bytes lie outside the memory that both tasks map", f->bytes);
    *out_body = at + *out_head;
    return STRATA_OK;
}

static strata_status take_header(strata_connection *c, const strata_packet_receiver *receiver, strata_error *err) {
    strata_frame *f = &c->frame;
    const uint32_t most = c->area ? (uint32_t)c->area->ring_bytes : STRATA_SEGMENT_BYTES;
    unsigned char *shared = NULL;
    size_t head = 0;
    STRATA_TRY(strata_frame_decode(c->buffer + c->first, most, f, err));
    c->first += STRATA_FRAME_BYTES;
    if (f->number != c->n_in)
        return strata_fail(err, STRATA_DATA, "frame %u came where %u was to come: frames were lost or repeated", f->number,
                           c->n_in);
    c->n_in++;
    const bool of_call = f->type == STRATA_FRAME_DATA;
    const strata_part whole = {.flags = STRATA_PART_FIRST, .body_bytes = f->bytes}, *part = of_call ? &whole : &f->part;
    const bool begins = (part->flags & STRATA_PART_FIRST) != 0, shares = (part->flags & STRATA_PART_SHARED) != 0;
    c->checks = !c->stream.tls && !shares;
    if (begins == c->in_message) return strata_fail(err, STRATA_DATA, "a message's frames do not fit each other");
    if (begins) {
        if (part->head_bytes > STRATA_HEAD_BYTES || part->body_bytes > PTRDIFF_MAX / 2)
            return strata_fail(err, STRATA_DATA, "a message has a head of %u bytes and a body of %llu", part->head_bytes,
                               (unsigned long long)part->body_bytes);
        c->message = (strata_packet){.type = (strata_frame_type)f->type,
                                     .status = (strata_status)part->status,
                                     .target = part->target,
                                     .n_unanswered = part->n_unanswered,
                                     .sequence = part->sequence,
                                     .call = of_call ? &f->call : NULL,
                                     .head_bytes = part->head_bytes,
                                     .body_bytes = (size_t)part->body_bytes};
        c->missing = c->message.head_bytes + c->message.body_bytes;
        if (shares) STRATA_TRY(find_shared(c, true, &shared, &head, err));
        if (shared && f->bytes == c->missing) c->message.view = shared;
        c->part = c->n_parts = 0;
        c->offset = 0;
        STRATA_TRY(receiver->begin(receiver->user, &c->message, &c->parts, &c->n_parts, err));
        c->in_message = true;
    } else if (shares) {
        STRATA_TRY(find_shared(c, false, &shared, &head, err));
    }
    if (f->type != c->message.type || part->sequence != c->message.sequence || f->bytes > c->missing ||
        (!f->bytes && c->missing))
        return strata_fail(err, STRATA_DATA, "a message's frames do not fit each other");
    c->in_frame = true;
    c->left = f->bytes;
    c->crc = 0;
    if (!shared) return STRATA_OK;
    pour_from(c, shared - head, c->left);
    if (!c->message.view) strata_block_return(shared, head); /* a view is returned after the message was used */
    return STRATA_OK;
}

static strata_status take_frame(strata_connection *c, const strata_packet_receiver *receiver, strata_error *err) {
    if (c->checks && (c->n_parts || !c->frame.bytes) && c->crc != c->frame.payload_crc)
        return strata_fail(err, STRATA_DATA, "%u bytes were damaged on their way: their checksum differs", c->frame.bytes);
    c->in_frame = false;
    if (c->missing) return STRATA_OK;
    c->in_message = c->kept = false;
    const strata_status status = receiver->end(receiver->user, &c->message, err);
    if (c->message.view && !c->kept) strata_block_return(c->message.view, c->message.head_bytes);
    return status;
}

/* Reads once. *out_dry: there is nothing to read. */
static strata_status read_once(strata_connection *c, bool *out_dry, strata_error *err) {
    struct iovec parts[STRATA_SEGMENT_PARTS + 1];
    if (c->first == c->end)
        c->first = c->end = 0;
    else if (c->first)
        memmove(c->buffer, c->buffer + c->first, c->end - c->first);
    c->end -= c->first;
    c->first = 0;
    int n_parts = c->in_frame ? rooms(c, c->left, parts, STRATA_SEGMENT_PARTS) : 0;
    size_t direct = 0, ahead = STRATA_BUFFER_BYTES - c->end;
    for (int i = 0; i < n_parts; i++) direct += parts[i].iov_len;
    if (direct) ahead = direct < c->left ? 0 : c->missing > c->left ? STRATA_FRAME_BYTES : READ_AHEAD;
    if (ahead) parts[n_parts++] = (struct iovec){c->buffer + c->end, ahead};
    const ssize_t n = move(c, parts, n_parts, false);
    *out_dry = n < 0 && errno == EAGAIN;
    if (*out_dry) return STRATA_OK;
    if (n <= 0) return ended(c, n, c->in_message, err);
    const size_t placed = (size_t)n < direct ? (size_t)n : direct;
    if (placed) advance(c, placed);
    c->end += (size_t)n - placed;
    return STRATA_OK;
}

strata_status strata_connection_receive(strata_connection *c, const strata_packet_receiver *receiver, int most_reads,
                                        strata_error *err) {
    c->stop = false;
    while (!c->stop) {
        bool dry = false;
        if (!c->in_frame && c->end - c->first >= STRATA_FRAME_BYTES) {
            STRATA_TRY(take_header(c, receiver, err));
        } else if (c->in_frame && c->left && c->end > c->first) {
            pour(c);
        } else if (!c->in_frame || c->left) {
            if (!most_reads--) return STRATA_OK;
            STRATA_TRY(read_once(c, &dry, err));
            if (dry) return STRATA_OK;
        }
        if (c->in_frame && !c->left) STRATA_TRY(take_frame(c, receiver, err));
    }
    return STRATA_OK;
}

void strata_connection_drop_rest(strata_connection *c) {
    c->n_parts = 0;
}

/* ---- sending ---- */

/* Copies the next `bytes` bytes of the parts, from `offset` of the first part, to `to`. */
static void gather(const struct iovec *parts, size_t offset, size_t bytes, unsigned char *to) {
    for (; bytes; parts++, offset = 0) {
        const size_t there = parts->iov_len - offset, take = there < bytes ? there : bytes;
        if (take) memcpy(to, (char *)parts->iov_base + offset, take);
        to += take;
        bytes -= take;
    }
}

/* Copies *bytes bytes of the parts, beginning with the head, into a block. Returns the offset of the payload; 0: there is no
 * room. A message of several segments waits for a moment, since its reader is about to return earlier ones. */
static uint32_t put_shared(strata_connection *c, const struct iovec *parts, size_t offset, size_t head, size_t bytes,
                           bool waits) {
    unsigned char *body = NULL;
    const double until = waits ? strata_clock_coarse_seconds() + YIELD_SECONDS : 0;
    for (int i = 0; !body && i < (waits ? YIELDS : 1) && (!i || strata_clock_coarse_seconds() < until); i++) {
        if (i) sched_yield();
        body = strata_ring_cut(&c->ring, head, bytes - head, 1);
    }
    if (!body) return 0;
    gather(parts, offset, bytes, body - head);
    return (uint32_t)(body - head - c->ring.memory);
}

/* Sends the reserved block as the message's body, and writes the head before it. */
static uint32_t put_reserved(strata_connection *c, const struct iovec *parts) {
    unsigned char *at = c->reserved - parts[0].iov_len;
    memcpy(at, parts[0].iov_base, parts[0].iov_len);
    c->reserved = NULL;
    return (uint32_t)(at - c->ring.memory);
}

void strata_connection_share(strata_connection *c, strata_area *area, bool is_client) {
    c->area = area;
    c->ring = strata_ring_of(area, is_client ? 0 : 1);
    c->incoming = is_client ? 1 : 0;
    strata_pipes_begin(&c->pipes, area->shared.memory, is_client);
    atomic_store(&c->shares, true);
}

void *strata_connection_reserve(strata_connection *c, size_t bytes) {
    if (!c->area || c->reserved) return NULL;
    c->reserved = strata_ring_cut(&c->ring, STRATA_LINE_BYTES, bytes, 1);
    return c->reserved;
}

void strata_connection_unreserve(strata_connection *c) {
    if (c->reserved) strata_block_return(c->reserved, STRATA_LINE_BYTES);
    c->reserved = NULL;
}

static void begin_packet(strata_connection *c, strata_sending *s, const strata_packet *p, const struct iovec *parts,
                         int n_parts) {
    s->frame = (strata_frame){.type = p->type,
                              .part = {.flags = STRATA_PART_FIRST,
                                       .status = (uint8_t)p->status,
                                       .head_bytes = (uint32_t)p->head_bytes,
                                       .n_unanswered = p->n_unanswered,
                                       .target = p->target,
                                       .sequence = p->sequence,
                                       .body_bytes = p->body_bytes}};
    if (p->call) s->frame.call = *p->call;
    s->parts = parts;
    s->n_parts = n_parts;
    s->missing = p->head_bytes + p->body_bytes;
    s->offset = 0;
    s->head = p->head_bytes;
    s->shares = c->area && s->missing >= LEAST_SHARED && !p->call;
    s->first = true;
    s->at = s->end = 0;
}

/* Puts as much of the packet as one frame takes into a block of shared memory. Returns the number of bytes; 0: there is no
 * room, or the packet is small. *out_place: where they are. */
static size_t put_frame(strata_connection *c, const strata_sending *s, uint32_t *out_place) {
    const bool in_place = c->reserved && s->n_parts == 2 && s->parts[1].iov_base == c->reserved && s->parts[0].iov_len > 0 &&
                          s->parts[0].iov_len <= STRATA_LINE_BYTES;
    if (in_place) {
        *out_place = put_reserved(c, s->parts);
        return s->missing;
    }
    if (!s->shares) return 0;
    const size_t half = c->ring.bytes / 2; /* a larger message may go in segments, a smaller one as one block only */
    const size_t quarter = c->ring.bytes / 4, part = quarter < SHARED_SEGMENT ? quarter : SHARED_SEGMENT;
    size_t bytes = s->first || s->missing <= half || s->missing < part ? s->missing : part;
    *out_place = put_shared(c, s->parts, s->offset, s->head, bytes, !s->first);
    if (!*out_place && s->first && s->missing > half) {
        bytes = part;
        *out_place = put_shared(c, s->parts, s->offset, s->head, bytes, true);
    }
    return *out_place ? bytes : 0;
}

/* Writes the next frame of the packet: its header and the list of its bytes. */
static void begin_frame(strata_connection *c, strata_sending *s) {
    uint32_t crc = 0;
    if (!s->first) s->frame.part.flags = 0;
    size_t bytes = put_frame(c, s, &crc);
    int n = 1;
    if (bytes) {
        s->frame.part.flags |= STRATA_PART_SHARED;
        s->offset += bytes;
        for (; s->n_parts && s->offset >= s->parts->iov_len; s->parts++, s->n_parts--) s->offset -= s->parts->iov_len;
    } else {
        while (bytes < STRATA_SEGMENT_BYTES && s->n_parts && n <= STRATA_SEGMENT_PARTS) {
            const size_t room = STRATA_SEGMENT_BYTES - bytes, there = s->parts->iov_len - s->offset,
                         take = there < room ? there : room;
            if (take) {
                s->segment[n] = (struct iovec){(char *)s->parts->iov_base + s->offset, take};
                if (!c->stream.tls) crc = strata_crc32c(crc, s->segment[n].iov_base, take);
                n++;
            }
            bytes += take;
            s->offset += take;
            if (s->offset == s->parts->iov_len) {
                s->parts++;
                s->n_parts--;
                s->offset = 0;
            }
        }
    }
    s->frame.bytes = (uint32_t)bytes;
    s->frame.number = c->n_out++;
    s->frame.payload_crc = crc;
    strata_frame_seal(&s->frame);
    s->segment[0] = (struct iovec){&s->frame, sizeof s->frame};
    s->at = 0;
    s->end = n;
    s->missing -= bytes;
    s->head = 0;
    s->first = false;
}

/* Sends as much as the socket or pipe accepts. *out_done: the whole packet was sent. */
static strata_status push(strata_connection *c, strata_sending *s, bool *out_done, strata_error *err) {
    *out_done = false;
    while (s->first || s->missing || s->at < s->end) {
        if (s->at == s->end) begin_frame(c, s);
        while (s->at < s->end) {
            ssize_t n = move(c, s->segment + s->at, s->end - s->at, true);
            if (n < 0 && errno == EAGAIN) return STRATA_OK;
            if (n < 0) return ended(c, n, false, err);
            for (; s->at < s->end && (size_t)n >= s->segment[s->at].iov_len; s->at++) n -= (ssize_t)s->segment[s->at].iov_len;
            if (s->at == s->end) break;
            struct iovec *rest = &s->segment[s->at];
            *rest = (struct iovec){(char *)rest->iov_base + n, rest->iov_len - (size_t)n};
        }
    }
    *out_done = true;
    return STRATA_OK;
}

strata_status strata_connection_send(strata_connection *c, const strata_packet *packet, const struct iovec *parts, int n_parts,
                                     strata_wait_ready wait, void *user, strata_error *err) {
    strata_sending s;
    begin_packet(c, &s, packet, parts, n_parts);
    for (bool done = false;;) {
        STRATA_TRY(push(c, &s, &done, err));
        if (done) return STRATA_OK;
        if (!wait) return strata_fail(err, STRATA_TIMEOUT, "the socket is full");
        STRATA_TRY(wait(user, strata_connection_events(c, POLLOUT), err));
    }
}

/* ---- the queue ---- */

void strata_connection_queue(strata_connection *c, strata_outgoing *outgoing) {
    outgoing->next = NULL;
    *(c->queue ? &c->queue_last->next : &c->queue) = outgoing;
    c->queue_last = outgoing;
}

strata_status strata_connection_flush(strata_connection *c, void *user, strata_error *err) {
    bool done = true;
    while (c->queue) {
        strata_outgoing *o = c->queue;
        if (!c->begun) begin_packet(c, &c->sending, &o->packet, &o->body, 1);
        c->begun = true;
        STRATA_TRY(push(c, &c->sending, &done, err));
        if (!done) return STRATA_OK;
        c->begun = false;
        c->queue = o->next;
        o->sent(user, o);
    }
    return STRATA_OK;
}

bool strata_connection_withdraw(strata_connection *c, strata_outgoing *outgoing) {
    if (outgoing == c->queue && c->begun) return false;
    strata_outgoing *before = NULL;
    for (strata_outgoing *o = c->queue; o && o != outgoing; o = o->next) before = o;
    *(before ? &before->next : &c->queue) = outgoing->next;
    if (c->queue_last == outgoing) c->queue_last = before;
    return true;
}

void strata_connection_move_body(strata_connection *c, strata_outgoing *o, void *copy) {
    strata_sending *s = &c->sending;
    for (int i = s->at ? s->at : 1; o == c->queue && c->begun && i < s->end; i++)
        s->segment[i].iov_base = (char *)copy + ((char *)s->segment[i].iov_base - (char *)o->body.iov_base);
    o->body.iov_base = copy;
}
