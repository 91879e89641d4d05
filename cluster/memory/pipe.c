/* SPDX-License-Identifier: Apache-2.0
 *
 * Why no wakeup is lost. A thread that wants to sleep (1) adds itself to its bell's `sleepers`, (2) reads `rings`, (3) checks
 * once more whether it has to wait, and (4) sleeps if `rings` still has the value of (2), which the kernel checks. A thread
 * that wakes others (a) changes what they wait for, (b) adds 1 to `rings`, and (c) calls the kernel if `sleepers` is not 0.
 * All but (a) are sequentially consistent, so they have one order. If (c) reads 0, then (c) was before (1), so (2) reads the
 * value of (b) or a later one, and (3) sees (a). If (c) does not read 0, the kernel wakes the sleeper, or the sleeper has not
 * slept yet: then (4) does not sleep, or (2) has read the value of (b), and (3) sees (a). Only sleepers change `sleepers`,
 * each by 1: several threads of a side may sleep on its bell, and all are woken.
 *
 * Room is rarely waited for. So a receiver rings for it only if the sender has set `wants_room`, which it does before (1). The
 * receiver first writes `taken` and then reads `wants_room`; the sender first writes `wants_room` and then reads `taken`. Both
 * are sequentially consistent, so at least one of the two sees what the other has written. */
#define _GNU_SOURCE
#include "cluster/memory/pipe.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>

#include "cluster/memory/futex.h"
#include "cluster/memory/ring.h"
#include "core/base/clock.h"

enum {
    PAUSES = 200,        /* of about 20 ns, before a waiting thread begins to yield its core */
    MOST_SKIP = 255,     /* how many waits may go without a spin after several spins were in vain */
    MOST_SLEEP_MS = 999, /* a longer wait returns after a second and is repeated, so it ends even if the bell was damaged */
};
/* LONG_YIELD_SECONDS: a yield that takes longer shows that other threads need the core. */
static const double SPIN_SECONDS = 60e-6, LONG_YIELD_SECONDS = 20e-6;

/* Positions count bytes and wrap at 2^32. */
struct strata_pipe {
    _Alignas(STRATA_LINE_BYTES) atomic_uint written;
    atomic_uint wants_room;
    _Alignas(STRATA_LINE_BYTES) atomic_uint taken;
};

struct strata_bell {
    _Alignas(STRATA_LINE_BYTES) atomic_uint rings;
    atomic_uint sleepers;
};

typedef struct head {
    struct strata_pipe pipes[2];
    struct strata_bell bells[2];
} head;
_Static_assert(sizeof(head) <= 4096, "pipes begin with one page of positions");

void strata_pipes_begin(strata_pipes *p, unsigned char *memory, bool is_client) {
    head *h = (head *)(void *)memory;
    unsigned char *bytes = memory + 4096;
    const int in = is_client ? 1 : 0;
    memset(p, 0, sizeof *p);
    p->in = &h->pipes[in];
    p->out = &h->pipes[!in];
    p->in_bytes = bytes + (size_t)in * STRATA_PIPE_BYTES;
    p->out_bytes = bytes + (size_t)!in * STRATA_PIPE_BYTES;
    p->own = &h->bells[in];
    p->peers = &h->bells[!in];
}

/* ---- bells ---- */

static void ring(struct strata_bell *b) {
    atomic_fetch_add(&b->rings, 1);
    if (atomic_load(&b->sleepers)) strata_futex_wake(&b->rings, INT32_MAX);
}

void strata_pipes_shut(strata_pipes *p, bool in_only) {
    atomic_store(&p->shut_in, true);
    if (!in_only) atomic_store(&p->shut_out, true);
    ring(p->own);
}

void strata_pipes_close(strata_pipes *p) {
    atomic_store(&p->closed, true);
    ring(p->own);
}

/* ---- bytes ---- */

/* Bytes in a pipe; more than STRATA_PIPE_BYTES: the other side has written a wrong position. */
static uint32_t n_unread(const strata_pipes *p) {
    return atomic_load_explicit(&p->in->written, memory_order_acquire) - atomic_load_explicit(&p->n_in, memory_order_relaxed);
}
static uint32_t n_unsent(const strata_pipes *p) {
    return atomic_load_explicit(&p->n_out, memory_order_relaxed) - atomic_load(&p->out->taken);
}

size_t strata_pipes_unread(const strata_pipes *p) {
    const uint32_t n = n_unread(p);
    return n < STRATA_PIPE_BYTES ? n : STRATA_PIPE_BYTES;
}

size_t strata_pipes_unsent(const strata_pipes *p) {
    const uint32_t n = n_unsent(p);
    return n < STRATA_PIPE_BYTES ? n : STRATA_PIPE_BYTES;
}

/* Copies n bytes from a position of a pipe to `to`, or from `from` to it. */
static void copy_out(const unsigned char *bytes, uint32_t position, unsigned char *to, size_t n) {
    const size_t at = position % STRATA_PIPE_BYTES, first = STRATA_PIPE_BYTES - at < n ? STRATA_PIPE_BYTES - at : n;
    memcpy(to, bytes + at, first);
    memcpy(to + first, bytes, n - first);
}
static void copy_in(unsigned char *bytes, uint32_t position, const unsigned char *from, size_t n) {
    const size_t at = position % STRATA_PIPE_BYTES, first = STRATA_PIPE_BYTES - at < n ? STRATA_PIPE_BYTES - at : n;
    memcpy(bytes + at, from, first);
    memcpy(bytes, from + first, n - first);
}

static ssize_t fail(int error) {
    errno = error;
    return -1;
}

ssize_t strata_pipes_send(strata_pipes *p, const struct iovec *parts, int n_parts) {
    const uint32_t begin = atomic_load_explicit(&p->n_out, memory_order_relaxed);
    size_t bytes = 0, done = 0;
    if (atomic_load(&p->shut_out) || atomic_load(&p->closed)) return fail(EPIPE);
    for (int i = 0; i < n_parts; i++) bytes += parts[i].iov_len;
    /* the other side changes `taken` with each message, so reading it is slow; an earlier value usually shows enough room */
    if (begin - p->n_taken + bytes > STRATA_PIPE_BYTES) p->n_taken = atomic_load(&p->out->taken);
    if (begin - p->n_taken > STRATA_PIPE_BYTES) return fail(EBADMSG);
    size_t room = STRATA_PIPE_BYTES - (begin - p->n_taken);
    if (!room) return fail(EAGAIN);
    for (int i = 0; i < n_parts && room; i++) {
        const size_t n = parts[i].iov_len < room ? parts[i].iov_len : room;
        if (n) copy_in(p->out_bytes, begin + (uint32_t)done, parts[i].iov_base, n);
        done += n;
        room -= n;
    }
    atomic_store_explicit(&p->n_out, begin + (uint32_t)done, memory_order_relaxed);
    atomic_store_explicit(&p->out->written, begin + (uint32_t)done, memory_order_release);
    ring(p->peers);
    return (ssize_t)done;
}

ssize_t strata_pipes_recv(strata_pipes *p, const struct iovec *parts, int n_parts) {
    /* whether it has closed is read before its position: it wrote that before it closed */
    const bool closed = atomic_load(&p->closed);
    const uint32_t begin = atomic_load_explicit(&p->n_in, memory_order_relaxed);
    size_t there = n_unread(p), done = 0;
    if (atomic_load(&p->shut_in) || (!there && closed)) return 0;
    if (there > STRATA_PIPE_BYTES) return fail(EBADMSG);
    if (!there) return fail(EAGAIN);
    for (int i = 0; i < n_parts && there; i++) {
        const size_t n = parts[i].iov_len < there ? parts[i].iov_len : there;
        if (n) copy_out(p->in_bytes, begin + (uint32_t)done, parts[i].iov_base, n);
        done += n;
        there -= n;
    }
    atomic_store_explicit(&p->n_in, begin + (uint32_t)done, memory_order_relaxed);
    atomic_store(&p->in->taken, begin + (uint32_t)done);
    if (atomic_load(&p->in->wants_room)) ring(p->peers);
    return (ssize_t)done;
}

/* ---- waiting ---- */

static short ready(const strata_pipes *p, short events) {
    const bool closed = atomic_load(&p->closed);
    short now = 0;
    if ((events & POLLIN) && (n_unread(p) || closed || atomic_load(&p->shut_in))) now |= POLLIN;
    if ((events & POLLOUT) && (n_unsent(p) != STRATA_PIPE_BYTES || closed || atomic_load(&p->shut_out))) now |= POLLOUT;
    return now;
}

/* Waits for bytes without sleeping, for at most SPIN_SECONDS. At first it does not yield the core; then it does, since the
 * other side may need it. A yield that takes long shows that there are more threads to run than cores. In this case, or if no
 * bytes arrived, the next waits do not spin. Their number is one more than twice the number after the previous spin in vain,
 * up to MOST_SKIP. So with busy or shared cores only one wait in 256 spins. */
static short spin(strata_pipes *p) {
    short now = 0;
    if (p->n_skip) {
        p->n_skip--;
        return 0;
    }
    for (int i = 0; i < PAUSES && !now; i++) {
        strata_relax();
        now = ready(p, POLLIN);
    }
    bool in_vain = false;
    const double began = now ? 0 : strata_clock_seconds();
    for (double last = began; !now && !in_vain;) {
        sched_yield();
        now = ready(p, POLLIN);
        const double t = strata_clock_seconds();
        in_vain = t - last > LONG_YIELD_SECONDS || (!now && t - began > SPIN_SECONDS);
        last = t;
    }
    p->n_skipped = !in_vain ? 0 : 2 * p->n_skipped + 1 < MOST_SKIP ? 2 * p->n_skipped + 1 : MOST_SKIP;
    p->n_skip = p->n_skipped;
    return now;
}

short strata_pipes_wait(strata_pipes *p, short events, int ms, bool may_spin) {
    const bool long_wait = ms < 0 || ms > MOST_SLEEP_MS;
    const double seconds = long_wait ? 1 : ms / 1000.0;
    short now = ready(p, events);
    if (!now && may_spin) now = spin(p);
    if (now) return now;
    if (events & POLLOUT) atomic_store(&p->out->wants_room, 1);
    atomic_fetch_add(&p->own->sleepers, 1);
    const uint32_t seen = atomic_load(&p->own->rings);
    if (!ready(p, events)) strata_futex_wait(&p->own->rings, seen, seconds);
    atomic_fetch_sub(&p->own->sleepers, 1);
    if (events & POLLOUT) atomic_store(&p->out->wants_room, 0);
    return ready(p, events);
}
