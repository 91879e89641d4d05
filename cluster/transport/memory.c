/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory order: the writer writes a block, puts its position into a lane (release), and rings the reader's doorbell. The reader
 * takes the position (acquire), reads the block, and decrements the count of readers (release). The writer waits until the
 * count is 0 (acquire) before it writes there again. */
#define _GNU_SOURCE
#include "cluster/transport/memory.h"

#include <sched.h>

#include "cluster/memory/futex.h"
#include "cluster/memory/ring.h"
#include "core/base/clock.h"

enum {
    LANE_PLACES = 32, /* the most blocks in a lane */
    /* the largest and the smallest limit for the bytes of a message */
    MOST_SEGMENT = 256 << 10,
    LEAST_SEGMENT = 4 << 10,
    ARENA = 2 << 20, /* for few ranks; with many ranks, their arenas together must fit into the last-level cache */
    SPINS = 2000,    /* of about 20 ns, if each rank has its own core */
    YIELDS = 8,      /* if ranks share cores: a rank that is waited for may run at once, and no rank has to be woken */
};
static const double TICK = 0.02; /* seconds between checks of the verdict */

typedef struct block {
    strata_block block; /* must be the first field */
    uint32_t bytes;
    strata_call call;
} block;
_Static_assert(sizeof(block) <= STRATA_LINE_BYTES, "a block's header is a line");

typedef struct lane {
    _Alignas(STRATA_LINE_BYTES) atomic_uint head; /* positions put by the writer */
    _Alignas(STRATA_LINE_BYTES) atomic_uint tail; /* positions taken by the reader */
    _Alignas(STRATA_LINE_BYTES) uint32_t places[LANE_PLACES];
} lane;

typedef struct bell {
    _Alignas(STRATA_LINE_BYTES) atomic_uint rings;
    atomic_uint wake_at;
    atomic_uint sleeping;
    atomic_uint wants_room; /* the rank waits for room in its arena, so readers ring its doorbell when they return a block */
    atomic_uint left;       /* the rank has left */
} bell;

typedef struct memory_link {
    void *owner;
    int rank, world;
    bool shares_cores;
    int spins;
    size_t arena_bytes;
    bell *bells;           /* [world] */
    lane *lanes;           /* [from][to] */
    unsigned char *arenas; /* [world][arena_bytes] */
    strata_ring ring;      /* the own arena */
    block *lent[];         /* [world] by the last round */
} memory_link;

/* ---- the region ---- */

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* Enough for two rounds of a two-shot all_reduce, each with a segment of a slice for each peer, and a result. */
size_t strata_memory_segment_bytes(int world) {
    size_t segment = (size_t)ARENA / (size_t)(2 * world) / 4096 * 4096;
    return segment > MOST_SEGMENT ? MOST_SEGMENT : segment < LEAST_SEGMENT ? LEAST_SEGMENT : segment;
}

static size_t arena_bytes(int world) {
    return round_up((strata_memory_segment_bytes(world) + STRATA_LINE_BYTES) * (size_t)(2 * world + 2), 4096);
}
static size_t bells_bytes(int world) {
    return (size_t)world * sizeof(bell);
}
static size_t lanes_bytes(int world) {
    return (size_t)world * (size_t)world * sizeof(lane);
}

size_t strata_memory_region_bytes(int world) {
    return round_up(bells_bytes(world) + lanes_bytes(world), 4096) + (size_t)world * arena_bytes(world);
}

strata_status strata_memory_open(strata_communicator *comm, void *region, void *owner, strata_error *err) {
    const int rank = comm->rank, world = comm->world;
    const bool shares_cores = strata_communicator_shares_cores(comm);
    memory_link *m = calloc(1, sizeof *m + (size_t)world * sizeof *m->lent);
    if (!m) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for the links of %d ranks", world);
    unsigned char *at = region;
    *m = (memory_link){.owner = owner,
                       .rank = rank,
                       .world = world,
                       .shares_cores = shares_cores,
                       .spins = shares_cores ? YIELDS : SPINS,
                       .arena_bytes = arena_bytes(world),
                       .bells = region,
                       .lanes = (lane *)(void *)(at + bells_bytes(world)),
                       .arenas = at + round_up(bells_bytes(world) + lanes_bytes(world), 4096)};
    m->ring = (strata_ring){.memory = m->arenas + (size_t)rank * m->arena_bytes,
                            .bytes = m->arena_bytes,
                            .restart = (size_t)world}; /* a round with messages of this size */
    comm->link = m;
    comm->segment_bytes = strata_memory_segment_bytes(world);
    return STRATA_OK;
}

void *strata_memory_owner(const strata_communicator *comm) {
    return ((memory_link *)comm->link)->owner;
}

void *strata_memory_close(strata_communicator *comm) {
    memory_link *m = comm->link;
    void *owner = m->owner;
    atomic_store(&m->bells[m->rank].left, 1); /* waiting ranks check this at each tick */
    free(m);
    comm->link = NULL;
    return owner;
}

/* ---- doorbells ---- */

static void ring(bell *b) {
    const uint32_t rings = atomic_fetch_add(&b->rings, 1) + 1;
    if (atomic_load(&b->sleeping) && (int32_t)(rings - atomic_load(&b->wake_at)) >= 0) {
        atomic_store(&b->sleeping, 0);
        strata_futex_wake(&b->rings, 1);
    }
}

/* Sleeps until there were `wanted` rings after ring number `seen`, or for one tick. */
static void sleep_on(bell *b, uint32_t seen, uint32_t wanted) {
    atomic_store(&b->wake_at, seen + wanted);
    atomic_store(&b->sleeping, 1);
    const uint32_t now = atomic_load(&b->rings);
    if ((int32_t)(now - (seen + wanted)) < 0) strata_futex_wait(&b->rings, now, TICK);
    atomic_store(&b->sleeping, 0);
}

/* ---- blocks ---- */

static bool lane_full(const lane *l) {
    return atomic_load_explicit(&l->head, memory_order_relaxed) - atomic_load_explicit(&l->tail, memory_order_acquire) ==
           LANE_PLACES;
}

static void put_place(memory_link *m, int from, int to, uint32_t place) {
    lane *l = &m->lanes[from * m->world + to];
    const uint32_t head = atomic_load_explicit(&l->head, memory_order_relaxed);
    l->places[head % LANE_PLACES] = place;
    atomic_store_explicit(&l->head, head + 1, memory_order_release);
    ring(&m->bells[to]);
}

/* Sends a message; false: there is no room now. */
static bool send_message(memory_link *m, int rank, const strata_call *call, const strata_send *send) {
    const bool all = send->peer == STRATA_ALL_PEERS;
    const int first = all ? 0 : send->peer, end = all ? m->world : send->peer + 1;
    for (int to = first; to < end; to++)
        if (to != rank && lane_full(&m->lanes[rank * m->world + to])) return false;
    unsigned char *payload = strata_ring_cut(&m->ring, 0, send->bytes, all ? (unsigned)m->world - 1 : 1u);
    if (!payload) return false;
    block *b = (block *)(void *)strata_block_of(payload, 0);
    b->bytes = (uint32_t)send->bytes;
    b->call = *call;
    if (send->bytes) memcpy(payload, send->data, send->bytes);
    const uint32_t place = (uint32_t)((unsigned char *)b - m->ring.memory);
    for (int to = first; to < end; to++)
        if (to != rank) put_place(m, rank, to, place);
    return true;
}

static void give_back(memory_link *m, int owner, block *b) {
    atomic_fetch_sub(&b->block.readers, 1);
    if (atomic_load(&m->bells[owner].wants_room)) ring(&m->bells[owner]);
}

/* The next block from the peer, or NULL. */
static block *next_block(memory_link *m, int rank, int from) {
    const lane *l = &m->lanes[from * m->world + rank];
    const uint32_t tail = atomic_load_explicit(&l->tail, memory_order_relaxed);
    if (atomic_load_explicit(&l->head, memory_order_acquire) == tail) return NULL;
    return (block *)(void *)(m->arenas + (size_t)from * m->arena_bytes + l->places[tail % LANE_PLACES]);
}

static void take_place(memory_link *m, int rank, int from) {
    atomic_fetch_add_explicit(&m->lanes[from * m->world + rank].tail, 1, memory_order_release);
}

/* ---- a round ---- */

static strata_status take(memory_link *m, strata_communicator *comm, const strata_call *call, strata_receive *receive, block *b,
                          strata_error *err) {
    const size_t bytes = b->bytes; /* read once, since another process could change it */
    STRATA_TRY(strata_communicator_check(comm, call, receive->peer, &b->call, bytes, receive->bytes, err));
    const char *payload = (const char *)b + STRATA_LINE_BYTES;
    if (receive->data) {
        if (bytes) memcpy(receive->data, payload, bytes);
        receive->view = receive->data;
    } else {
        receive->view = payload;
        m->lent[receive->peer] = b;
    }
    take_place(m, comm->rank, receive->peer);
    if (receive->data) give_back(m, receive->peer, b);
    return STRATA_OK;
}

/* Receives what has arrived. A peer's messages are received in order, so a missing one delays those after it. */
static strata_status receive_all(memory_link *m, strata_communicator *comm, const strata_call *call, strata_receive *receives,
                                 int n_receives, int *n_taken, strata_error *err) {
    for (int i = 0; i < n_receives; i++) {
        if (receives[i].view) continue;
        bool behind = false;
        for (int j = 0; j < i && !behind; j++) behind = receives[j].peer == receives[i].peer && !receives[j].view;
        block *b = behind ? NULL : next_block(m, comm->rank, receives[i].peer);
        if (!b) continue;
        STRATA_TRY(take(m, comm, call, &receives[i], b, err));
        ++*n_taken;
    }
    return STRATA_OK;
}

/* Returns a peer that has left although this round waits for it; -1: there is none. Its messages are checked once more
 * before, since they may have arrived before it left. */
static int find_left(memory_link *m, const strata_send *sends, int n_sends, const strata_receive *receives, int n_receives) {
    for (int i = 0; i < n_receives; i++)
        if (!receives[i].view && atomic_load(&m->bells[receives[i].peer].left) && !next_block(m, m->rank, receives[i].peer))
            return receives[i].peer;
    /* a send that waits for room fails, too: a rank that has left returns no blocks */
    for (int i = 0; i < n_sends; i++)
        for (int r = 0; r < m->world; r++)
            if ((sends[i].peer == r || (sends[i].peer == STRATA_ALL_PEERS && r != m->rank)) && atomic_load(&m->bells[r].left))
                return r;
    return -1;
}

strata_status strata_memory_round(strata_communicator *comm, const strata_call *call, const strata_send *sends, int n_sends,
                                  strata_receive *receives, int n_receives, strata_error *err) {
    memory_link *m = comm->link;
    bell *own = &m->bells[comm->rank];
    for (int r = 0; r < m->world; r++) {
        if (m->lent[r]) give_back(m, r, m->lent[r]);
        m->lent[r] = NULL;
    }
    for (int i = 0; i < n_receives; i++) receives[i].view = NULL;
    int sent = 0, taken = 0, idle = 0;
    double last_progress = 0;
    for (;;) {
        const uint32_t seen = atomic_load(&own->rings);
        const int before = sent + taken;
        while (sent < n_sends && send_message(m, comm->rank, call, &sends[sent])) sent++;
        STRATA_TRY(receive_all(m, comm, call, receives, n_receives, &taken, err));
        if (sent == n_sends && taken == n_receives) break;
        if (sent + taken > before) {
            idle = 0;
            last_progress = 0;
            continue;
        }
        if (idle++ < m->spins) {
            m->shares_cores ? (void)sched_yield() : strata_relax();
            continue;
        }
        if (sent < n_sends && !atomic_load(&own->wants_room)) {
            atomic_store(&own->wants_room, 1); /* then the conditions are checked once more */
            continue;
        }
        if (strata_seat_failed(comm->seat)) return strata_seat_verdict(comm->seat, err);
        const int gone = find_left(m, sends + sent, n_sends - sent, receives, n_receives);
        if (gone >= 0)
            return strata_communicator_fail(comm, call, STRATA_PEER_LOST, err, "%s left while others still needed it",
                                            strata_peer_text(comm, gone).text);
        const double now = strata_clock_seconds();
        if (last_progress == 0) last_progress = now;
        if (now - last_progress > comm->stall_seconds)
            return strata_communicator_stalled(comm, call, receives, n_receives, err);
        sleep_on(own, seen, sent < n_sends ? 1 : (uint32_t)(n_receives - taken));
    }
    if (atomic_load_explicit(&own->wants_room, memory_order_relaxed)) atomic_store(&own->wants_room, 0);
    return STRATA_OK;
}
