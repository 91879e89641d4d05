/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream of bytes in each direction, and a *bell* for each side, in memory that both sides map. They take the place of the
 * socket for the frames of a connection: a message then costs no system call while the other side is awake.
 *
 * The other side may write anything to this memory at any time. So each position that a side writes is also stored in its own
 * memory, and what the other side writes is read once and then checked. */
#ifndef STRATA_CLUSTER_MEMORY_PIPE_H
#define STRATA_CLUSTER_MEMORY_PIPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The bytes that a pipe can contain (a power of two), and the memory for both pipes and bells. */
enum { STRATA_PIPE_BYTES = 64 << 10, STRATA_PIPES_BYTES = 4096 + 2 * STRATA_PIPE_BYTES };

struct strata_pipe;
struct strata_bell;

/* One side's view of both pipes. One thread may send while another receives, and any may wait. */
typedef struct strata_pipes {
    /* In the shared memory; in == NULL: the connection uses its socket only. */
    struct strata_pipe *in, *out;
    struct strata_bell *own, *peers;
    unsigned char *in_bytes, *out_bytes;
    /* The bytes that this side has received and sent so far, counted with wrapping. */
    _Atomic uint32_t n_in, n_out;
    /* Used by the sending thread: how many bytes the other side had received when this was last read. */
    uint32_t n_taken;
    /* This side does not receive, or send, any more. */
    atomic_bool shut_in, shut_out;
    /* The other side has closed the connection: it may have sent bytes before, but sends no more. */
    atomic_bool closed;
    /* Used by the receiving thread. n_skip: how many of its next waits do not spin. n_skipped: how many did not spin after
     * the last spin that was in vain. */
    unsigned n_skip, n_skipped;
} strata_pipes;

/* memory: STRATA_PIPES_BYTES, zeroed before the first use, at a page. is_client: the two sides differ. */
void strata_pipes_begin(strata_pipes *p, unsigned char *memory, bool is_client);

/* As strata_stream_send and strata_stream_recv: how many bytes were moved, 0 from a side that closed, or -1 with errno: EAGAIN;
 * EPIPE; EBADMSG if the other side has written what cannot be true. */
ssize_t strata_pipes_send(strata_pipes *p, const struct iovec *parts, int n_parts);
ssize_t strata_pipes_recv(strata_pipes *p, const struct iovec *parts, int n_parts);

/* Waits for POLLIN, POLLOUT or either, at most `ms` (-1: without a limit) and at most a second. Returns those that are true
 * now, 0 if it was woken for another reason. A side that has closed, or was shut, makes them true. may_spin: the caller is the
 * thread that receives, and the next bytes may come within microseconds. */
short strata_pipes_wait(strata_pipes *p, short events, int ms, bool may_spin);

/* Makes receiving return 0 and, unless `in_only`, sending fail, and wakes the threads that wait. Threads: any, as below. */
void strata_pipes_shut(strata_pipes *p, bool in_only);
/* To be called when the other side has closed the connection's socket. What it had sent before is still received. */
void strata_pipes_close(strata_pipes *p);

/* How many bytes the other side has sent that were not received, and how many this side has sent that the other one has not
 * received; at most STRATA_PIPE_BYTES. Threads: any, if the caller excludes a sender for the second one. */
size_t strata_pipes_unread(const strata_pipes *p);
size_t strata_pipes_unsent(const strata_pipes *p);

#endif
