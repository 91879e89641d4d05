/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/rpc/channel.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "cluster/rpc/rpc.h"
#include "cluster/wire/crc32c.h"
#include "core/base/clock.h"

enum {
    MOST_PARTS = 64,          /* parts of a segment that are sent or received in one call */
    READ_AHEAD = 4 << 10,     /* bytes that may be read beyond a message's end; they may belong to the next message */
    LEAST_SHARED = 1 << 10,   /* a message with fewer bytes is faster behind its header than in a block */
    LARGE_BODY = 32 << 20,    /* a body with so many bytes does not stay in any cache until it is used */
    SHARED_SEGMENT = 1 << 20, /* the most bytes of a segment in shared memory: each may cost a wakeup */
    MOST_UNREAD = 64 << 10,   /* with so many unread bytes the socket may be full */
    YIELDS = 4000,            /* how often to yield while a ring is full of segments of the same message */
};

/* The time limit for YIELDS. A yield may take long if many threads share a core, and heartbeats cannot be sent meanwhile. */
static const double YIELD_SECONDS = 0.02;

strata_status strata_rpc_channel_init(strata_rpc_channel *c, strata_stream stream, strata_error *err) {
    memset(c, 0, sizeof *c);
    c->stream = stream;
    c->buffer = malloc(STRATA_RPC_BUFFER);
    atomic_store(&c->received, strata_clock_seconds());
    atomic_store(&c->sent, strata_clock_seconds());
    pthread_mutex_init(&c->tls, NULL);
    if (c->buffer) return STRATA_OK;
    strata_rpc_channel_finish(c);
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a connection");
}

void strata_rpc_channel_finish(strata_rpc_channel *c) {
    strata_stream_close(&c->stream);
    strata_rpc_area_release(c->area);
    c->area = NULL;
    pthread_mutex_destroy(&c->tls);
    free(c->buffer);
    c->buffer = NULL;
}

void strata_rpc_channel_shut(strata_rpc_channel *c, bool in_only) {
    shutdown(c->stream.fd, in_only ? SHUT_RD : SHUT_RDWR);
    if (atomic_load(&c->shares)) strata_rpc_pipes_shut(&c->pipes, in_only);
}

/* ---- waiting ---- */

short strata_rpc_channel_wait(strata_rpc_channel *c, short events, int ms, bool may_spin) {
    struct pollfd fd = {.fd = c->stream.fd, .events = events};
    if (atomic_load(&c->shares)) return strata_rpc_pipes_wait(&c->pipes, events, ms, may_spin);
    poll(&fd, 1, ms);
    return fd.revents;
}

bool strata_rpc_channel_needs_poll(strata_rpc_channel *c) {
    return atomic_load(&c->shares) && !atomic_load(&c->pipes.closed);
}

void strata_rpc_channel_note_end(strata_rpc_channel *c) {
    if (atomic_load(&c->shares)) strata_rpc_pipes_close(&c->pipes);
}

size_t strata_rpc_channel_unread(strata_rpc_channel *c, bool *out_full) {
    const bool shares = atomic_load(&c->shares);
    int n = 0;
    if (!shares && ioctl(c->stream.fd, FIONREAD, &n)) n = MOST_UNREAD + 1;
    if (shares) n = (int)strata_rpc_pipes_unread(&c->pipes);
    *out_full = n > (shares ? STRATA_RPC_PIPE_BYTES - STRATA_FRAME_BYTES : MOST_UNREAD);
    return (size_t)n;
}

size_t strata_rpc_channel_unsent(strata_rpc_channel *c) {
    int n = 0;
    if (atomic_load(&c->shares)) return strata_rpc_pipes_unsent(&c->pipes);
    return ioctl(c->stream.fd, TIOCOUTQ, &n) ? 1 : (size_t)n;
}

/* ---- bytes ---- */

static ssize_t receive_some(strata_rpc_channel *c, const struct iovec *parts, int n_parts) {
    const bool tls = c->stream.tls != NULL;
    ssize_t n;
    if (tls) pthread_mutex_lock(&c->tls);
    do n = c->pipes.in ? strata_rpc_pipes_recv(&c->pipes, parts, n_parts) : strata_stream_recv(&c->stream, parts, n_parts);
    while (n < 0 && errno == EINTR);
    if (tls) pthread_mutex_unlock(&c->tls);
    if (n > 0) atomic_store_explicit(&c->received, strata_clock_coarse_seconds(), memory_order_relaxed);
    return n;
}

static ssize_t send_some(strata_rpc_channel *c, const struct iovec *parts, int n_parts) {
    const bool tls = c->stream.tls != NULL;
    ssize_t n;
    if (tls) pthread_mutex_lock(&c->tls);
    do n = c->pipes.in ? strata_rpc_pipes_send(&c->pipes, parts, n_parts) : strata_stream_send(&c->stream, parts, n_parts);
    while (n < 0 && errno == EINTR);
    if (tls) pthread_mutex_unlock(&c->tls);
    if (n > 0) atomic_store_explicit(&c->sent, strata_clock_coarse_seconds(), memory_order_relaxed);
    return n;
}

short strata_rpc_channel_events(strata_rpc_channel *c, short otherwise) {
    if (!c->stream.tls) return otherwise;
    pthread_mutex_lock(&c->tls);
    const short events = strata_stream_events(&c->stream, otherwise);
    pthread_mutex_unlock(&c->tls);
    return events ? events : otherwise;
}

static strata_status ended(strata_rpc_channel *c, ssize_t n, bool in_message, strata_error *err) {
    const int error = errno;
    if (n < 0 && error == EBADMSG) return strata_fail(err, STRATA_DATA, "the memory that both tasks map was damaged");
    if (n == 0 || error == ECONNRESET || error == EPIPE)
        return strata_fail(err, STRATA_UNAVAILABLE, "the connection closed%s", in_message ? " within a message" : "");
    pthread_mutex_lock(&c->tls);
    strata_fail(err, STRATA_UNAVAILABLE, "the connection ended: %s", strata_stream_problem(&c->stream, error));
    pthread_mutex_unlock(&c->tls);
    return STRATA_UNAVAILABLE;
}

/* ---- receiving ---- */

/* Lists the next rooms of the message, of at most `bytes` bytes. */
static int rooms(const strata_rpc_channel *c, size_t bytes, struct iovec *out, int most) {
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
static void advance(strata_rpc_channel *c, size_t n) {
    c->left -= n;
    c->missing -= n;
    while (n && c->part < c->n_parts) {
        const struct iovec *part = &c->parts[c->part];
        const size_t room = part->iov_len - c->offset, take = room < n ? room : n;
        if (take && !c->stream.tls && !c->frame.call.reducer)
            c->crc = strata_crc32c(c->crc, (char *)part->iov_base + c->offset, take);
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
static void pour_from(strata_rpc_channel *c, const unsigned char *from, size_t n) {
    struct iovec parts[MOST_PARTS];
    size_t done = 0;
    while (done < n) {
        const int n_parts = rooms(c, n - done, parts, MOST_PARTS);
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

/* Copies bytes that were read ahead to their rooms. */
static void pour(strata_rpc_channel *c) {
    const size_t there = c->end - c->first, n = there < c->left ? there : c->left;
    pour_from(c, c->buffer + c->first, n);
    c->first += n;
}

/* Finds the payload of a frame in the area. If the whole message is there, it becomes the message's `view`. */
static strata_status find_shared(const strata_rpc_channel *c, bool begins, unsigned char **out_body, size_t *out_head,
                                 strata_error *err) {
    const strata_frame *f = &c->frame;
    *out_head = begins ? (size_t)f->call.root : 0;
    unsigned char *at = c->area ? strata_rpc_area_at(c->area, c->incoming, f->payload_crc, *out_head, f->bytes) : NULL;
    if (!at) return strata_fail(err, STRATA_DATA, "a frame's %u bytes lie outside the memory that both tasks map", f->bytes);
    *out_body = at + *out_head;
    return STRATA_OK;
}

static strata_status take_header(strata_rpc_channel *c, const strata_rpc_receiver *receiver, strata_error *err) {
    strata_frame *f = &c->frame;
    const uint32_t most = c->area ? (uint32_t)c->area->ring_bytes : STRATA_RPC_SEGMENT;
    unsigned char *shared = NULL;
    size_t head = 0;
    STRATA_TRY(strata_frame_decode(c->buffer + c->first, most, f, err));
    c->first += STRATA_FRAME_BYTES;
    if (f->number != c->n_in)
        return strata_fail(err, STRATA_DATA, "frame %u came where %u was to come: frames were lost or repeated", f->number,
                           c->n_in);
    c->n_in++;
    const bool begins = f->call.dtype == 1;
    if (begins == c->in_message) return strata_fail(err, STRATA_DATA, "a message's frames do not fit each other");
    if (begins) {
        if (f->call.root < 0 || f->call.root > STRATA_RPC_HEAD_BYTES || f->call.count > PTRDIFF_MAX / 2)
            return strata_fail(err, STRATA_DATA, "a message has a head of %d bytes and a body of %llu", f->call.root,
                               (unsigned long long)f->call.count);
        if (f->call.kind > STRATA_INTERNAL) return strata_fail(err, STRATA_DATA, "a message has the status %u", f->call.kind);
        c->message = (strata_rpc_message){.type = (strata_frame_type)f->type,
                                          .status = (strata_status)f->call.kind,
                                          .method = f->call.communicator,
                                          .n_unanswered = f->call.counts_crc,
                                          .sequence = f->call.sequence,
                                          .head_bytes = (size_t)f->call.root,
                                          .body_bytes = (size_t)f->call.count};
        c->missing = c->message.head_bytes + c->message.body_bytes;
        if (f->call.reducer) STRATA_TRY(find_shared(c, true, &shared, &head, err));
        if (shared && f->bytes == c->missing) c->message.view = shared;
        c->part = c->n_parts = 0;
        c->offset = 0;
        STRATA_TRY(receiver->begin(receiver->user, &c->message, &c->parts, &c->n_parts, err));
        c->in_message = true;
    } else if (f->call.reducer) {
        STRATA_TRY(find_shared(c, false, &shared, &head, err));
    }
    if (f->type != c->message.type || f->call.sequence != c->message.sequence || f->bytes > c->missing ||
        (!f->bytes && c->missing))
        return strata_fail(err, STRATA_DATA, "a message's frames do not fit each other");
    c->in_frame = true;
    c->left = f->bytes;
    c->crc = 0;
    if (!shared) return STRATA_OK;
    pour_from(c, shared - head, c->left);
    if (!c->message.view) strata_rpc_block_return(shared, head); /* a view is returned after the message was used */
    return STRATA_OK;
}

static strata_status take_frame(strata_rpc_channel *c, const strata_rpc_receiver *receiver, strata_error *err) {
    if (!c->stream.tls && !c->frame.call.reducer && (c->n_parts || !c->frame.bytes) && c->crc != c->frame.payload_crc)
        return strata_fail(err, STRATA_DATA, "%u bytes were damaged on their way: their checksum differs", c->frame.bytes);
    c->in_frame = false;
    if (c->missing) return STRATA_OK;
    c->in_message = c->kept = false;
    const strata_status status = receiver->end(receiver->user, &c->message, err);
    if (c->message.view && !c->kept) strata_rpc_block_return(c->message.view, c->message.head_bytes);
    return status;
}

/* Reads once. *out_dry: there is nothing to read. */
static strata_status read_once(strata_rpc_channel *c, bool *out_dry, strata_error *err) {
    struct iovec parts[MOST_PARTS + 1];
    if (c->first == c->end)
        c->first = c->end = 0;
    else if (c->first)
        memmove(c->buffer, c->buffer + c->first, c->end - c->first);
    c->end -= c->first;
    c->first = 0;
    int n_parts = c->in_frame ? rooms(c, c->left, parts, MOST_PARTS) : 0;
    size_t direct = 0, ahead = STRATA_RPC_BUFFER - c->end;
    for (int i = 0; i < n_parts; i++) direct += parts[i].iov_len;
    if (direct) ahead = direct < c->left ? 0 : c->missing > c->left ? STRATA_FRAME_BYTES : READ_AHEAD;
    if (ahead) parts[n_parts++] = (struct iovec){c->buffer + c->end, ahead};
    const ssize_t n = receive_some(c, parts, n_parts);
    *out_dry = n < 0 && errno == EAGAIN;
    if (*out_dry) return STRATA_OK;
    if (n <= 0) return ended(c, n, c->in_message, err);
    const size_t placed = (size_t)n < direct ? (size_t)n : direct;
    if (placed) advance(c, placed);
    c->end += (size_t)n - placed;
    return STRATA_OK;
}

strata_status strata_rpc_channel_receive(strata_rpc_channel *c, const strata_rpc_receiver *receiver, strata_error *err) {
    c->stop = false;
    while (!c->stop) {
        bool dry = false;
        if (!c->in_frame && c->end - c->first >= STRATA_FRAME_BYTES) {
            STRATA_TRY(take_header(c, receiver, err));
        } else if (c->in_frame && c->left && c->end > c->first) {
            pour(c);
        } else if (!c->in_frame || c->left) {
            STRATA_TRY(read_once(c, &dry, err));
            if (dry) return STRATA_OK;
        }
        if (c->in_frame && !c->left) STRATA_TRY(take_frame(c, receiver, err));
    }
    return STRATA_OK;
}

/* ---- sending ---- */

static strata_status send_all(strata_rpc_channel *c, struct iovec *parts, int n_parts, strata_rpc_wait_ready wait, void *user,
                              strata_error *err) {
    while (n_parts) {
        ssize_t n = send_some(c, parts, n_parts);
        if (n < 0 && errno == EAGAIN) {
            STRATA_TRY(wait(user, strata_rpc_channel_events(c, POLLOUT), err));
            continue;
        }
        if (n < 0) return ended(c, n, false, err);
        for (; n_parts && (size_t)n >= parts->iov_len; parts++, n_parts--) n -= (ssize_t)parts->iov_len;
        if (n_parts) *parts = (struct iovec){(char *)parts->iov_base + n, parts->iov_len - (size_t)n};
    }
    return STRATA_OK;
}

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
static uint32_t put_shared(strata_rpc_channel *c, const struct iovec *parts, size_t offset, size_t head, size_t bytes,
                           bool waits) {
    unsigned char *body = NULL;
    const double until = waits ? strata_clock_coarse_seconds() + YIELD_SECONDS : 0;
    for (int i = 0; !body && i < (waits ? YIELDS : 1) && (!i || strata_clock_coarse_seconds() < until); i++) {
        if (i) sched_yield();
        body = strata_rpc_ring_cut(&c->ring, head, bytes - head);
    }
    if (!body) return 0;
    gather(parts, offset, bytes, body - head);
    return (uint32_t)(body - head - c->ring.memory);
}

/* Sends the reserved block as the message's body, and writes the head before it. */
static uint32_t put_reserved(strata_rpc_channel *c, const struct iovec *parts) {
    unsigned char *at = c->reserved - parts[0].iov_len;
    memcpy(at, parts[0].iov_base, parts[0].iov_len);
    c->reserved = NULL;
    return (uint32_t)(at - c->ring.memory);
}

void strata_rpc_channel_share(strata_rpc_channel *c, strata_rpc_area *area, bool is_client) {
    c->area = area;
    c->ring = strata_rpc_ring_of(area, is_client ? 0 : 1);
    c->incoming = is_client ? 1 : 0;
    strata_rpc_pipes_begin(&c->pipes, area->memory, is_client);
    atomic_store(&c->shares, true);
}

void *strata_rpc_channel_reserve(strata_rpc_channel *c, size_t bytes) {
    if (!c->area || c->reserved) return NULL;
    c->reserved = strata_rpc_ring_cut(&c->ring, STRATA_RPC_LINE, bytes);
    return c->reserved;
}

void strata_rpc_channel_unreserve(strata_rpc_channel *c) {
    if (c->reserved) strata_rpc_block_return(c->reserved, STRATA_RPC_LINE);
    c->reserved = NULL;
}

strata_status strata_rpc_channel_send(strata_rpc_channel *c, const strata_rpc_message *m, const struct iovec *parts,
                                      int n_parts, strata_rpc_wait_ready wait, void *user, strata_error *err) {
    unsigned char header[STRATA_FRAME_BYTES];
    strata_frame frame = {.type = m->type,
                          .call = {.kind = (uint8_t)m->status,
                                   .dtype = 1,
                                   .root = (int32_t)m->head_bytes,
                                   .counts_crc = m->n_unanswered,
                                   .communicator = m->method,
                                   .sequence = m->sequence,
                                   .count = m->body_bytes}};
    size_t missing = m->head_bytes + m->body_bytes, offset = 0, head = m->head_bytes;
    const bool shares = c->area && missing >= LEAST_SHARED;
    const size_t half = c->ring.bytes / 2; /* a larger message may go in segments, a smaller one as one block only */
    const size_t quarter = c->ring.bytes / 4, part = quarter < SHARED_SEGMENT ? quarter : SHARED_SEGMENT;
    bool first = true;
    do {
        struct iovec segment[MOST_PARTS + 1];
        const bool in_place = c->reserved && n_parts == 2 && parts[1].iov_base == c->reserved && parts[0].iov_len > 0 &&
                              parts[0].iov_len <= STRATA_RPC_LINE;
        const bool whole = in_place || (shares && (first || missing <= half));
        const size_t most = whole ? missing : shares ? part : STRATA_RPC_SEGMENT;
        size_t bytes = missing < most ? missing : most;
        uint32_t crc = 0;
        int n = 1;
        if (in_place)
            crc = put_reserved(c, parts);
        else if (shares)
            crc = put_shared(c, parts, offset, head, bytes, !first);
        if (!crc && shares && first && missing > half) {
            bytes = part;
            crc = put_shared(c, parts, offset, head, bytes, true);
        }
        first = false;
        frame.call.reducer = crc != 0;
        if (crc) {
            offset += bytes;
            for (; n_parts && offset >= parts->iov_len; parts++, n_parts--) offset -= parts->iov_len;
        } else {
            bytes = 0;
        }
        while (!frame.call.reducer && bytes < STRATA_RPC_SEGMENT && n_parts && n <= MOST_PARTS) {
            const size_t room = STRATA_RPC_SEGMENT - bytes, there = parts->iov_len - offset, take = there < room ? there : room;
            if (take) {
                segment[n] = (struct iovec){(char *)parts->iov_base + offset, take};
                if (!c->stream.tls) crc = strata_crc32c(crc, segment[n].iov_base, take);
                n++;
            }
            bytes += take;
            offset += take;
            if (offset == parts->iov_len) {
                parts++;
                n_parts--;
                offset = 0;
            }
        }
        frame.bytes = (uint32_t)bytes;
        frame.number = c->n_out++;
        frame.payload_crc = crc;
        strata_frame_encode(&frame, header);
        segment[0] = (struct iovec){header, sizeof header};
        STRATA_TRY(send_all(c, segment, n, wait, user, err));
        frame.call.dtype = 0;
        missing -= bytes;
        head = 0;
    } while (missing);
    return STRATA_OK;
}

/* ---- hello ---- */

size_t strata_rpc_hello_encode(const char *task, uint64_t incarnation, double heartbeat, const char *area, unsigned char *out) {
    const uint32_t ms = heartbeat > 4e6 ? 4000000000u : (uint32_t)(heartbeat * 1000);
    const size_t n = strlen(task);
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)(incarnation >> (8 * i));
    for (int i = 0; i < 4; i++) out[8 + i] = (unsigned char)(ms >> (8 * i));
    memcpy(out + 12, task, n);
    if (!area || !*area) return 12 + n;
    const size_t n_area = strlen(area);
    out[12 + n] = ' ';
    memcpy(out + 13 + n, area, n_area);
    return 13 + n + n_area;
}

strata_status strata_rpc_hello_decode(const unsigned char *in, size_t n_bytes, char *out_task, size_t most_task_bytes,
                                      uint64_t *out_incarnation, double *out_heartbeat, char *out_area, strata_error *err) {
    const unsigned char *space = n_bytes > 12 ? memchr(in + 12, ' ', n_bytes - 12) : NULL;
    const size_t end = space ? (size_t)(space - in) : n_bytes, n_area = space ? n_bytes - end - 1 : 0;
    if (end < 12 || end - 12 >= most_task_bytes || n_area >= STRATA_RPC_AREA_NAME || memchr(in + 12, 0, n_bytes - 12))
        return strata_fail(err, STRATA_DATA, "a task's greeting of %zu bytes does not contain what it says", n_bytes);
    uint32_t ms = 0;
    *out_incarnation = 0;
    for (int i = 0; i < 8; i++) *out_incarnation |= (uint64_t)in[i] << (8 * i);
    for (int i = 0; i < 4; i++) ms |= (uint32_t)in[8 + i] << (8 * i);
    memcpy(out_task, in + 12, end - 12);
    out_task[end - 12] = 0;
    if (n_area) memcpy(out_area, space + 1, n_area);
    out_area[n_area] = 0;
    *out_heartbeat = ms / 1000.0;
    const char *problem = strata_rpc_task_problem(out_task);
    return problem ? strata_fail(err, STRATA_DATA, "a task's greeting has a name that %s", problem) : STRATA_OK;
}

const char *strata_rpc_task_problem(const char *task) {
    const size_t n = task ? strnlen(task, STRATA_RPC_TASK_BYTES) : 0;
    if (!n) return "is empty; tasks are named as \"worker:1\"";
    if (n == STRATA_RPC_TASK_BYTES) return "is longer than 63 bytes";
    for (size_t i = 0; i < n; i++)
        if (task[i] <= ' ' || task[i] > '~') return "has a character that is no visible ASCII";
    return NULL;
}
