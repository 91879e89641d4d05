/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/memory/area.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/memory/pipe.h"

/* In an empty ring, blocks of at least LEAST_LOOPED bytes are allocated one after the other, as long as they fit and end
 * within about MOST_LOOP bytes; other blocks are allocated at the start of the ring. If each block began at the start, its
 * cache lines would still be in the cache of the reader's core and would have to be invalidated before they are written: 1
 * MiB took 71 us in place of 25. Beyond MOST_LOOP the blocks would not stay in the cache that the cores share. */
enum { LEAST_LOOPED = 8 << 10, MOST_LOOP = 2 << 20 };

typedef struct block {
    /* The bytes of the ring that the block takes, including this header. */
    uint32_t span;
    atomic_uint returned;
} block;

static size_t round_up(size_t n) {
    return (n + STRATA_LINE_BYTES - 1) / STRATA_LINE_BYTES * STRATA_LINE_BYTES;
}

/* ---- the memory ---- */

/* The address of a socket's end without its port. Returns its size in bytes; 0: it is not an IP address. */
static size_t address_of(const struct sockaddr_storage *a, const void **out) {
    *out = &((const struct sockaddr_in *)a)->sin_addr;
    if (a->ss_family == AF_INET) return sizeof(struct in_addr);
    *out = &((const struct sockaddr_in6 *)a)->sin6_addr;
    return a->ss_family == AF_INET6 ? sizeof(struct in6_addr) : 0;
}

bool strata_area_is_near(int socket) {
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t n_own = sizeof own, n_peer = sizeof peer;
    const void *a, *b;
    if (getsockname(socket, (struct sockaddr *)&own, &n_own) || getpeername(socket, (struct sockaddr *)&peer, &n_peer))
        return false;
    const size_t n = address_of(&own, &a);
    return n && n == address_of(&peer, &b) && !memcmp(a, b, n);
}

static size_t area_bytes(size_t ring_bytes) {
    return STRATA_PIPES_BYTES + 2 * ring_bytes;
}

static unsigned char *ring_memory(const strata_area *area, int index) {
    return area->memory + STRATA_PIPES_BYTES + (size_t)index * area->ring_bytes;
}

static strata_area *map(int fd, const char *name, size_t ring_bytes) {
    strata_area *area = calloc(1, sizeof *area);
    void *memory = area ? mmap(NULL, area_bytes(ring_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        free(area);
        return NULL;
    }
    snprintf(area->name, sizeof area->name, "%s", name);
    area->memory = memory;
    area->ring_bytes = ring_bytes;
    atomic_init(&area->references, 1);
    return area;
}

strata_area *strata_area_make(size_t ring_bytes) {
    unsigned char random[16];
    char name[STRATA_AREA_NAME] = "/strata-";
    if (ring_bytes < STRATA_AREA_LEAST) ring_bytes = STRATA_AREA_LEAST;
    if (ring_bytes > STRATA_AREA_MOST) ring_bytes = STRATA_AREA_MOST;
    if (RAND_bytes(random, sizeof random) != 1) return NULL;
    for (size_t i = 0; i < sizeof random; i++) snprintf(name + 8 + 2 * i, 3, "%02x", random[i]);
    const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) return NULL;
    /* posix_fallocate fails if there is not enough memory; otherwise the first access would raise a signal. */
    strata_area *area = NULL;
    for (; !area && ring_bytes >= STRATA_AREA_LEAST; ring_bytes /= 2) {
        ring_bytes = ring_bytes / 4096 * 4096;
        const off_t bytes = (off_t)area_bytes(ring_bytes);
        if (!posix_fallocate(fd, 0, bytes) && !ftruncate(fd, bytes)) area = map(fd, name, ring_bytes);
    }
    if (!area) shm_unlink(name);
    close(fd);
    return area;
}

strata_area *strata_area_open(const char *name) {
    struct stat is;
    if (strncmp(name, "/strata-", 8) != 0 || strchr(name + 1, '/')) return NULL;
    const int fd = shm_open(name, O_RDWR, 0);
    if (fd < 0) return NULL;
    strata_area *area = NULL;
    const off_t rings = fstat(fd, &is) || !S_ISREG(is.st_mode) ? 0 : is.st_size - STRATA_PIPES_BYTES;
    if (rings >= 2 * STRATA_AREA_LEAST && rings <= 2 * (off_t)STRATA_AREA_MOST && rings % 8192 == 0)
        area = map(fd, "", (size_t)rings / 2);
    close(fd);
    return area;
}

void strata_area_hide(strata_area *area) {
    if (area->name[0]) shm_unlink(area->name);
    area->name[0] = '\0';
}

strata_area *strata_area_hold(strata_area *area) {
    atomic_fetch_add(&area->references, 1);
    return area;
}

void strata_area_release(strata_area *area) {
    if (!area || atomic_fetch_sub(&area->references, 1) != 1) return;
    strata_area_hide(area);
    munmap(area->memory, area_bytes(area->ring_bytes));
    free(area);
}

/* ---- blocks ---- */

strata_ring strata_ring_of(const strata_area *area, int index) {
    return (strata_ring){.memory = ring_memory(area, index), .bytes = area->ring_bytes};
}

static block *block_at(const strata_ring *ring, uint64_t place) {
    return (block *)(void *)(ring->memory + place % ring->bytes);
}

static void open_block(strata_ring *ring, size_t span, unsigned returned) {
    block *b = block_at(ring, ring->cut);
    b->span = (uint32_t)span;
    atomic_store_explicit(&b->returned, returned, memory_order_relaxed);
    ring->cut += span;
}

/* Frees the blocks that the reader has returned. False: a length is wrong, so the other side has written outside of its
 * blocks. */
static bool take_back(strata_ring *ring) {
    while (ring->back < ring->cut) {
        const block *oldest = block_at(ring, ring->back);
        if (!atomic_load_explicit(&oldest->returned, memory_order_acquire)) return true;
        const size_t span = oldest->span;
        if (!span || span % STRATA_LINE_BYTES || span > ring->cut - ring->back) return false;
        ring->back += span;
    }
    return true;
}

unsigned char *strata_ring_cut(strata_ring *ring, size_t head, size_t body) {
    if (head > ring->bytes || body > ring->bytes || !take_back(ring)) return NULL;
    const size_t span = STRATA_LINE_BYTES + round_up(head) + round_up(body);
    size_t left = ring->bytes - (size_t)(ring->cut % ring->bytes);
    if (ring->back == ring->cut && (span < LEAST_LOOPED || ring->cut >= MOST_LOOP || span > left)) {
        ring->cut = ring->back = 0;
        left = ring->bytes;
    }
    const size_t skipped = span > left ? left : 0;
    if (skipped + span > ring->bytes - (size_t)(ring->cut - ring->back)) return NULL;
    if (skipped) open_block(ring, skipped, 1);
    unsigned char *at = (unsigned char *)block_at(ring, ring->cut) + STRATA_LINE_BYTES + round_up(head);
    open_block(ring, span, 0);
    return at;
}

unsigned char *strata_area_at(const strata_area *area, int index, uint32_t offset, size_t head, size_t bytes) {
    const size_t body = (size_t)offset + head;
    if (bytes > area->ring_bytes || offset > area->ring_bytes - bytes || head > bytes) return NULL;
    if (body % STRATA_LINE_BYTES || body < STRATA_LINE_BYTES + round_up(head)) return NULL;
    return ring_memory(area, index) + offset;
}

void strata_block_return(unsigned char *body, size_t head) {
    unsigned char *header = body - round_up(head) - STRATA_LINE_BYTES;
    atomic_store_explicit(&((block *)(void *)header)->returned, 1, memory_order_release);
}
