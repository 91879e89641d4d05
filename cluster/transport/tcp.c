/* SPDX-License-Identifier: Apache-2.0
 *
 * The TCP transport: one socket between each two ranks; the higher rank connects. A message is a frame (wire/frame.h), whose
 * header and payload are sent in one call, and received in one call directly into their memory. Checksums are computed while
 * the bytes are in the cache; connections under TLS have none. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/communicator.h"
#include "cluster/wire/crc32c.h"
#include "cluster/wire/frame.h"
#include "cluster/wire/socket.h"
#include "core/base/clock.h"

enum {
    /* a message, its copy in the kernel and the fold's operand together fit into the second-level cache */
    SEGMENT = 256 << 10,
    TICK_MS = 20,     /* milliseconds between checks of the verdict */
    SMALL = 32 << 10, /* if all missing bytes fit into the sockets, wait for one rank at a time */
};
static const double SPIN_SECONDS = 40e-6; /* how long to try again without poll, if each rank has its own core */

/* One direction of a socket, within an exchange. */
typedef struct flow {
    int index;      /* the current message in the list; the list's length: all are done */
    size_t done;    /* bytes of its header and payload that are done */
    uint32_t count; /* frames so far on this connection */
    unsigned char header[STRATA_FRAME_BYTES];
} flow;

typedef struct peer_link {
    strata_stream stream;
    flow out, in;
    char *lent; /* memory of a segment, for messages that are lent */
} peer_link;

typedef struct tcp {
    bool spins, checks;  /* checks: messages have checksums; TLS has its own */
    peer_link *links;    /* [world]; the own one is unused */
    struct pollfd *fds;  /* [world] */
    uint32_t *send_crcs; /* of the payloads of sends; [2 world + 2] */
} tcp;

/* ---- life ---- */

static void close_links(strata_communicator *comm) {
    tcp *t = comm->link;
    if (!t) return;
    for (int r = 0; r < comm->world && t->links; r++) {
        strata_stream_close(&t->links[r].stream);
        free(t->links[r].lent);
    }
    free(t->links);
    free(t->fds);
    free(t->send_crcs);
    free(t);
    comm->link = NULL;
}

static strata_status connect_link(strata_communicator *comm, int peer, strata_error *err) {
    strata_member *member = comm->member;
    strata_stream *stream = &((tcp *)comm->link)->links[peer].stream;
    if (peer > comm->rank)
        return member->accept_link(member, comm->seat, comm->peers[peer].job_rank, comm->connect_seconds, stream, err);
    return member->connect_link(member, comm->id, comm->peers[peer].address, comm->connect_seconds, stream, err);
}

static strata_status open_links(strata_communicator *comm, strata_error *err) {
    const size_t world = (size_t)comm->world;
    tcp *t = comm->link = calloc(1, sizeof *t);
    if (t) {
        t->links = calloc(world, sizeof *t->links);
        t->fds = calloc(world, sizeof *t->fds);
        t->send_crcs = calloc(2 * world + 2, sizeof *t->send_crcs);
    }
    for (int r = 0; t && t->links && r < comm->world; r++) t->links[r].stream.fd = -1;
    strata_status status = STRATA_OK;
    if (!t || !t->links || !t->fds || !t->send_crcs)
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for the links of %d ranks", comm->world);
    for (int r = 0; r < comm->world && !status; r++) {
        if (r == comm->rank) continue;
        t->links[r].lent = malloc(SEGMENT);
        status = t->links[r].lent ? connect_link(comm, r, err)
                                  : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for the links of %d ranks", comm->world);
    }
    comm->segment_bytes = SEGMENT;
    if (status)
        close_links(comm);
    else
        t->spins = !strata_communicator_shares_cores(comm);
    for (int r = 0; r < comm->world && !status; r++) t->checks |= r != comm->rank && !t->links[r].stream.tls;
    return status;
}

/* ---- an exchange ---- */

typedef struct exchange {
    strata_communicator *comm;
    tcp *tcp;
    const strata_call *call;
    const strata_send *sends;
    strata_receive *receives;
    int n_sends, n_receives;
    int unsent, missing;  /* messages */
    size_t missing_bytes; /* payloads */
} exchange;

static int next_send(const exchange *x, int peer, int from) {
    while (from < x->n_sends && x->sends[from].peer != peer && x->sends[from].peer != STRATA_ALL_PEERS) from++;
    return from;
}

static int next_receive(const exchange *x, int peer, int from) {
    while (from < x->n_receives && x->receives[from].peer != peer) from++;
    return from;
}

static strata_status lost(const exchange *x, int peer, const char *how, strata_error *err) {
    return strata_communicator_fail(x->comm, x->call, STRATA_PEER_LOST, err, "%s was lost: %s",
                                    strata_peer_text(x->comm, peer).text, how);
}

/* Returns the status for a send or recv that returned n. */
static strata_status failed(const exchange *x, int peer, ssize_t n, strata_error *err) {
    if (n == 0 || (errno != EPROTO && errno != ETIMEDOUT)) return lost(x, peer, "its connection closed", err);
    return lost(x, peer, strata_stream_problem(&x->tcp->links[peer].stream, errno), err);
}

static void write_header(exchange *x, int peer) {
    flow *out = &x->tcp->links[peer].out;
    const strata_send *send = &x->sends[out->index];
    const strata_frame frame = {.type = STRATA_FRAME_DATA,
                                .number = out->count,
                                .bytes = (uint32_t)send->bytes,
                                .payload_crc = x->tcp->send_crcs[out->index],
                                .call = *x->call};
    strata_frame_encode(&frame, out->header);
    out->done = 0;
}

/* Lists the parts (header and payload) of a message that remain after its first `done` bytes. */
static int parts(struct iovec parts_out[2], void *header, const void *payload, size_t bytes, size_t done) {
    int n = 0;
    if (done < STRATA_FRAME_BYTES) {
        parts_out[n++] = (struct iovec){(char *)header + done, STRATA_FRAME_BYTES - done};
        done = STRATA_FRAME_BYTES;
    }
    if (done - STRATA_FRAME_BYTES < bytes) {
        const size_t first = done - STRATA_FRAME_BYTES;
        parts_out[n++] = (struct iovec){(char *)(uintptr_t)payload + first, bytes - first};
    }
    return n;
}

/* Sends to the peer as much as its socket accepts. */
static strata_status push(exchange *x, int peer, bool *out_moved, strata_error *err) {
    peer_link *l = &x->tcp->links[peer];
    while (l->out.index < x->n_sends) {
        const strata_send *send = &x->sends[l->out.index];
        struct iovec iov[2];
        const int n_parts = parts(iov, l->out.header, send->data, send->bytes, l->out.done);
        const ssize_t n = strata_stream_send(&l->stream, iov, n_parts);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return STRATA_OK;
        if (n < 0) return failed(x, peer, n, err);
        *out_moved = true;
        l->out.done += (size_t)n;
        if (l->out.done < STRATA_FRAME_BYTES + send->bytes && !l->stream.tls) return STRATA_OK; /* the socket is full */
        if (l->out.done < STRATA_FRAME_BYTES + send->bytes) continue;
        l->out.count++;
        x->unsent--;
        l->out.index = next_send(x, peer, l->out.index + 1);
        if (l->out.index < x->n_sends) write_header(x, peer);
    }
    return STRATA_OK;
}

static strata_status check_header(exchange *x, int peer, const strata_receive *receive, strata_error *err) {
    const flow *in = &x->tcp->links[peer].in;
    strata_frame frame;
    strata_error why = {0};
    if (strata_frame_decode(in->header, SEGMENT, &frame, &why) || frame.type != STRATA_FRAME_DATA || frame.number != in->count)
        return strata_communicator_fail(x->comm, x->call, STRATA_PEER_LOST, err, "what came from %s was damaged: %s",
                                        strata_peer_text(x->comm, peer).text, why.status ? why.message : "a frame is missing");
    if (memcmp(&frame.call, x->call, sizeof frame.call) != 0)
        return strata_communicator_mismatch(x->comm, x->call, peer, &frame.call, err);
    if (frame.bytes != receive->bytes)
        return strata_communicator_fail(x->comm, x->call, STRATA_INTERNAL, err,
                                        "a message of %s has %u bytes; it should have %zu",
                                        strata_peer_text(x->comm, peer).text, frame.bytes, receive->bytes);
    return STRATA_OK;
}

static strata_status finish_receive(exchange *x, int peer, strata_receive *receive, const void *payload, strata_error *err) {
    flow *in = &x->tcp->links[peer].in;
    const uint32_t told = strata_frame_payload_crc(in->header);
    if (x->tcp->checks && strata_crc32c(0, payload, receive->bytes) != told)
        return strata_communicator_fail(x->comm, x->call, STRATA_PEER_LOST, err,
                                        "a message of %zu bytes from %s was damaged on its way: its checksum differs",
                                        receive->bytes, strata_peer_text(x->comm, peer).text);
    receive->view = payload;
    in->count++;
    in->done = 0;
    x->missing--;
    x->missing_bytes -= receive->bytes;
    in->index = next_receive(x, peer, in->index + 1);
    return STRATA_OK;
}

/* Receives what has arrived from the peer. */
static strata_status pull(exchange *x, int peer, bool *out_moved, strata_error *err) {
    peer_link *l = &x->tcp->links[peer];
    while (l->in.index < x->n_receives) {
        strata_receive *receive = &x->receives[l->in.index];
        void *payload = receive->data ? receive->data : l->lent;
        const size_t before = l->in.done;
        struct iovec iov[2];
        const int n_parts = parts(iov, l->in.header, payload, receive->bytes, before);
        const ssize_t n = strata_stream_recv(&l->stream, iov, n_parts);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return STRATA_OK;
        if (n <= 0) return failed(x, peer, n, err);
        *out_moved = true;
        l->in.done += (size_t)n;
        if (before < STRATA_FRAME_BYTES && l->in.done >= STRATA_FRAME_BYTES) STRATA_TRY(check_header(x, peer, receive, err));
        if (l->in.done < STRATA_FRAME_BYTES + receive->bytes) continue;
        STRATA_TRY(finish_receive(x, peer, receive, payload, err));
    }
    return STRATA_OK;
}

/* Waits until a socket is ready, at most a tick. */
static void wait_ready(exchange *x) {
    const bool one = !x->unsent && x->missing_bytes <= SMALL;
    int n = 0;
    for (int r = 0; r < x->comm->world && !(one && n); r++) {
        const peer_link *l = &x->tcp->links[r];
        const bool out = l->out.index < x->n_sends, in = l->in.index < x->n_receives;
        if (r == x->comm->rank || (!out && !in)) continue;
        x->tcp->fds[n++] = (struct pollfd){.fd = l->stream.fd, .events = (short)((out ? POLLOUT : 0) | (in ? POLLIN : 0))};
    }
    poll(x->tcp->fds, (nfds_t)n, TICK_MS);
}

static strata_status stalled(const exchange *x, strata_error *err) {
    for (int r = 0; r < x->comm->world; r++)
        if (r != x->comm->rank && x->tcp->links[r].in.index < x->n_receives)
            return strata_communicator_fail(x->comm, x->call, STRATA_TIMEOUT, err, "no progress for %g s: %s sends nothing",
                                            x->comm->stall_seconds, strata_peer_text(x->comm, r).text);
    return strata_communicator_fail(x->comm, x->call, STRATA_TIMEOUT, err,
                                    "no progress for %g s: nobody takes what this rank sends", x->comm->stall_seconds);
}

static void begin(exchange *x) {
    for (int i = 0; i < x->n_sends; i++) {
        if (x->tcp->checks) x->tcp->send_crcs[i] = strata_crc32c(0, x->sends[i].data, x->sends[i].bytes);
        x->unsent += x->sends[i].peer == STRATA_ALL_PEERS ? x->comm->world - 1 : 1;
    }
    x->missing = x->n_receives;
    for (int i = 0; i < x->n_receives; i++) x->missing_bytes += x->receives[i].bytes;
    for (int r = 0; r < x->comm->world; r++) {
        if (r == x->comm->rank) continue;
        peer_link *l = &x->tcp->links[r];
        l->out.index = next_send(x, r, 0);
        l->in.index = next_receive(x, r, 0);
        l->in.done = 0;
        if (l->out.index < x->n_sends) write_header(x, r);
    }
}

static strata_status run_exchange(strata_communicator *comm, const strata_call *call, const strata_send *sends, int n_sends,
                                  strata_receive *receives, int n_receives, strata_error *err) {
    exchange x = {.comm = comm,
                  .tcp = comm->link,
                  .call = call,
                  .sends = sends,
                  .receives = receives,
                  .n_sends = n_sends,
                  .n_receives = n_receives};
    begin(&x);
    double idle_since = 0;
    while (x.unsent || x.missing) {
        bool moved = false;
        for (int i = 1; i < comm->world; i++) STRATA_TRY(push(&x, (comm->rank + i) % comm->world, &moved, err));
        for (int i = 1; i < comm->world; i++) STRATA_TRY(pull(&x, (comm->rank + comm->world - i) % comm->world, &moved, err));
        if (moved) {
            idle_since = 0;
            continue;
        }
        const double now = strata_clock_seconds();
        if (idle_since == 0) idle_since = now;
        if (x.tcp->spins && now - idle_since < SPIN_SECONDS) continue;
        if (strata_seat_failed(comm->seat)) return strata_seat_verdict(comm->seat, err);
        if (now - idle_since > comm->stall_seconds) return stalled(&x, err);
        wait_ready(&x);
    }
    return STRATA_OK;
}

const strata_transport strata_transport_tcp = {
    .name = "tcp",
    .automatic = true,
    .open = open_links,
    .close = close_links,
    .exchange = run_exchange,
};
