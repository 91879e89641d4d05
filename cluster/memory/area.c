/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/memory/area.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cluster/memory/pipe.h"

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
    return area->shared.memory + STRATA_PIPES_BYTES + (size_t)index * area->ring_bytes;
}

static strata_area *area_of(const strata_shared *shared) {
    strata_area *area = calloc(1, sizeof *area);
    if (!area) return NULL;
    area->shared = *shared;
    area->ring_bytes = (shared->bytes - STRATA_PIPES_BYTES) / 2;
    atomic_init(&area->references, 1);
    return area;
}

strata_area *strata_area_make(size_t ring_bytes) {
    strata_shared shared;
    if (ring_bytes < STRATA_AREA_LEAST) ring_bytes = STRATA_AREA_LEAST;
    if (ring_bytes > STRATA_AREA_MOST) ring_bytes = STRATA_AREA_MOST;
    for (; ring_bytes >= STRATA_AREA_LEAST; ring_bytes /= 2) {
        ring_bytes = ring_bytes / 4096 * 4096;
        if (strata_shared_make(&shared, area_bytes(ring_bytes), NULL)) continue;
        strata_area *area = area_of(&shared);
        if (!area) strata_shared_close(&shared);
        return area;
    }
    return NULL;
}

strata_area *strata_area_open(const char *name) {
    strata_shared shared;
    if (strata_shared_open(&shared, name, area_bytes(STRATA_AREA_LEAST), area_bytes(STRATA_AREA_MOST), NULL)) return NULL;
    strata_area *area = (shared.bytes - STRATA_PIPES_BYTES) % 8192 ? NULL : area_of(&shared);
    if (!area) strata_shared_close(&shared);
    return area;
}

strata_area *strata_area_hold(strata_area *area) {
    atomic_fetch_add(&area->references, 1);
    return area;
}

void strata_area_release(strata_area *area) {
    if (!area || atomic_fetch_sub(&area->references, 1) != 1) return;
    strata_shared_close(&area->shared);
    free(area);
}

strata_ring strata_ring_of(const strata_area *area, int index) {
    return (strata_ring){.memory = ring_memory(area, index), .bytes = area->ring_bytes};
}

unsigned char *strata_area_at(const strata_area *area, int index, uint32_t offset, size_t head, size_t bytes) {
    const size_t body = (size_t)offset + head;
    if (bytes > area->ring_bytes || offset > area->ring_bytes - bytes || head > bytes) return NULL;
    if (body % STRATA_LINE_BYTES || body < STRATA_LINE_BYTES + strata_lines(head)) return NULL;
    return ring_memory(area, index) + offset;
}
