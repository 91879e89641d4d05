/* SPDX-License-Identifier: Apache-2.0
 *
 * The TCP transport: one connection between each two ranks; the higher rank connects. A message is a packet of one frame, with
 * the call in its header. Checksums are computed while the bytes are in the cache; connections under TLS have none. */
#include <limits.h>
#include <poll.h>

#include "cluster/communicator.h"
#include "cluster/wire/connection.h"
#include "core/base/clock.h"

enum {
    TICK_MS = 20,     /* milliseconds between checks of the verdict */
    SMALL = 32 << 10, /* if all missing bytes fit into the sockets, wait for one rank at a time */
};
static const double SPIN_SECONDS = 40e-6; /* how long to try again without poll, if each rank has its own core */

struct one_round;

typedef struct peer_link {
    strata_outgoing out; /* the message that is sent now; must be the first field */
    struct one_round *round;
    int peer;
    int send, receive; /* the current messages in the lists; a list's length: all are done */
    struct iovec room; /* where the received one is written */
    char *lent;        /* memory of a segment, for messages that are lent */
    strata_connection connection;
} peer_link;

typedef struct tcp {
    strata_memory memory;
    bool spins;
    peer_link *links;   /* [world]; the own one is unused */
    struct pollfd *fds; /* [world] */
} tcp;

/* ---- life ---- */

static void close_links(strata_communicator *comm) {
    tcp *t = comm->link;
    if (!t) return;
    for (int r = 0; r < comm->world && t->links; r++) strata_connection_finish(&t->links[r].connection);
    strata_memory_finish(&t->memory);
    free(t);
    comm->link = NULL;
}

static strata_status connect_link(strata_communicator *comm, int peer, strata_error *err) {
    strata_member *member = comm->member;
    strata_stream stream;
    if (peer > comm->rank)
        STRATA_TRY(
            strata_member_accept_link(member, comm->seat, comm->peers[peer].job_rank, comm->connect_seconds, &stream, err));
    else
        STRATA_TRY(
            strata_member_connect_link(member, comm->id, comm->peers[peer].address, comm->connect_seconds, &stream, err));
    return strata_connection_init(&((tcp *)comm->link)->links[peer].connection, stream, err);
}

static strata_status open_links(strata_communicator *comm, strata_error *err) {
    tcp *t = comm->link = calloc(1, sizeof *t);
    if (!t) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for the links of %d ranks", comm->world);
    t->links = strata_memory_take(&t->memory, comm->world, sizeof *t->links);
    t->fds = strata_memory_take(&t->memory, comm->world, sizeof *t->fds);
    comm->segment_bytes = STRATA_SEGMENT_BYTES; /* with its copy in the kernel and the fold's operand it fits into the cache */
    strata_status status = STRATA_OK;
    for (int r = 0; r < comm->world && !t->memory.failed && !status; r++) {
        if (r == comm->rank) continue;
        t->links[r].peer = r;
        t->links[r].lent = strata_memory_take(&t->memory, 1, comm->segment_bytes);
        if (t->links[r].lent) status = connect_link(comm, r, err);
    }
    if (t->memory.failed) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for the links of %d ranks", comm->world);
    if (status)
        close_links(comm);
    else
        t->spins = !strata_communicator_shares_cores(comm);
    return status;
}

/* ---- a round ---- */

typedef struct one_round {
    strata_communicator *comm;
    tcp *tcp;
    const strata_call *call;
    const strata_send *sends;
    strata_receive *receives;
    int n_sends, n_receives;
    int unsent, missing;  /* messages */
    size_t missing_bytes; /* payloads */
} one_round;

static strata_status lost(const one_round *x, int peer, strata_status status, const char *how, strata_error *err) {
    if (strata_seat_failed(x->comm->seat)) return strata_seat_verdict(x->comm->seat, err);
    const strata_peer_string who = strata_peer_text(x->comm, peer);
    if (status == STRATA_DATA)
        return strata_communicator_fail(x->comm, x->call, STRATA_PEER_LOST, err, "what came from %s was damaged: %s", who.text,
                                        how);
    return strata_communicator_fail(x->comm, x->call, STRATA_PEER_LOST, err, "%s was lost: %s", who.text, how);
}

/* Queues the next message for the peer, from index `from` on. */
static void send_next(const one_round *x, peer_link *l, int from) {
    while (from < x->n_sends && x->sends[from].peer != l->peer && x->sends[from].peer != STRATA_ALL_PEERS) from++;
    l->send = from;
    if (from == x->n_sends) return;
    const strata_send *send = &x->sends[from];
    l->out.packet = (strata_packet){.type = STRATA_FRAME_DATA, .call = x->call, .body_bytes = send->bytes};
    l->out.body = (struct iovec){(void *)(uintptr_t)send->data, send->bytes};
    strata_connection_queue(&l->connection, &l->out);
}

static void sent(void *user, strata_outgoing *out) {
    one_round *x = user;
    peer_link *l = (peer_link *)out;
    x->unsent--;
    send_next(x, l, l->send + 1);
}

static void receive_next(const one_round *x, peer_link *l, int from) {
    while (from < x->n_receives && x->receives[from].peer != l->peer) from++;
    l->receive = from;
}

static strata_status begin_message(void *user, const strata_packet *packet, const struct iovec **out_parts, int *out_n_parts,
                                   strata_error *err) {
    peer_link *l = user;
    const one_round *x = l->round;
    const strata_receive *receive = &x->receives[l->receive];
    if (!packet->call) return strata_fail(err, STRATA_DATA, "a message of type %d came", (int)packet->type);
    STRATA_TRY(strata_communicator_check(x->comm, x->call, l->peer, packet->call, packet->body_bytes, receive->bytes, err));
    l->room = (struct iovec){receive->data ? receive->data : l->lent, receive->bytes};
    *out_parts = &l->room;
    *out_n_parts = 1;
    return STRATA_OK;
}

static strata_status end_message(void *user, const strata_packet *packet, strata_error *err) {
    peer_link *l = user;
    one_round *x = l->round;
    (void)err;
    x->receives[l->receive].view = l->room.iov_base;
    x->missing--;
    x->missing_bytes -= packet->body_bytes;
    receive_next(x, l, l->receive + 1);
    l->connection.stop = l->receive == x->n_receives; /* what follows belongs to the next round */
    return STRATA_OK;
}

/* Sends to the peer as much as its socket accepts, or receives what has arrived from it. */
static strata_status push(one_round *x, int peer, strata_error *err) {
    strata_error why;
    const strata_status status = strata_connection_flush(&x->tcp->links[peer].connection, x, &why);
    return status ? lost(x, peer, status, why.message, err) : STRATA_OK;
}

static strata_status pull(one_round *x, int peer, strata_error *err) {
    peer_link *l = &x->tcp->links[peer];
    const strata_packet_receiver receiver = {begin_message, end_message, l};
    strata_error why;
    if (l->receive == x->n_receives) return STRATA_OK;
    const strata_status status = strata_connection_receive(&l->connection, &receiver, INT_MAX, &why);
    return status ? lost(x, peer, status, why.message, err) : STRATA_OK;
}

/* How many bytes all links have sent and received so far. */
static uint64_t moved(const one_round *x) {
    uint64_t bytes = 0;
    for (int r = 0; r < x->comm->world; r++)
        bytes += x->tcp->links[r].connection.bytes_in + x->tcp->links[r].connection.bytes_out;
    return bytes;
}

/* Waits until a socket is ready, at most a tick. */
static void wait_ready(const one_round *x) {
    const bool one = !x->unsent && x->missing_bytes <= SMALL;
    int n = 0;
    for (int r = 0; r < x->comm->world && !(one && n); r++) {
        const peer_link *l = &x->tcp->links[r];
        const bool out = l->connection.queue != NULL, in = l->receive < x->n_receives;
        if (r == x->comm->rank || (!out && !in)) continue;
        x->tcp->fds[n++] =
            (struct pollfd){.fd = l->connection.stream.fd, .events = (short)((out ? POLLOUT : 0) | (in ? POLLIN : 0))};
    }
    poll(x->tcp->fds, (nfds_t)n, TICK_MS);
}

static void begin(one_round *x) {
    for (int i = 0; i < x->n_sends; i++) x->unsent += x->sends[i].peer == STRATA_ALL_PEERS ? x->comm->world - 1 : 1;
    x->missing = x->n_receives;
    for (int i = 0; i < x->n_receives; i++) {
        x->receives[i].view = NULL;
        x->missing_bytes += x->receives[i].bytes;
    }
    for (int r = 0; r < x->comm->world; r++) {
        peer_link *l = &x->tcp->links[r];
        if (r == x->comm->rank) continue;
        l->round = x;
        l->out.sent = sent;
        send_next(x, l, 0);
        receive_next(x, l, 0);
    }
}

static strata_status run_round(strata_communicator *comm, const strata_call *call, const strata_send *sends, int n_sends,
                               strata_receive *receives, int n_receives, strata_error *err) {
    one_round x = {.comm = comm,
                   .tcp = comm->link,
                   .call = call,
                   .sends = sends,
                   .receives = receives,
                   .n_sends = n_sends,
                   .n_receives = n_receives};
    begin(&x);
    double idle_since = 0;
    while (x.unsent || x.missing) {
        const uint64_t before = moved(&x);
        const int left = x.unsent + x.missing;
        for (int i = 1; i < comm->world; i++) STRATA_TRY(push(&x, (comm->rank + i) % comm->world, err));
        for (int i = 1; i < comm->world; i++) STRATA_TRY(pull(&x, (comm->rank + comm->world - i) % comm->world, err));
        if (moved(&x) != before || x.unsent + x.missing < left) { /* or a message had been read together with earlier ones */
            idle_since = 0;
            continue;
        }
        const double now = strata_clock_seconds();
        if (idle_since == 0) idle_since = now;
        if (x.tcp->spins && now - idle_since < SPIN_SECONDS) continue;
        if (strata_seat_failed(comm->seat)) return strata_seat_verdict(comm->seat, err);
        if (now - idle_since > comm->stall_seconds) return strata_communicator_stalled(comm, call, receives, n_receives, err);
        wait_ready(&x);
    }
    return STRATA_OK;
}

const strata_transport strata_transport_tcp = {
    .name = "tcp",
    .automatic = true,
    .open = open_links,
    .close = close_links,
    .round = run_round,
};
