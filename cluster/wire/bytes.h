/* SPDX-License-Identifier: Apache-2.0
 *
 * Little-endian numbers of 1 to 8 bytes in a message. */
#ifndef STRATA_CLUSTER_WIRE_BYTES_H
#define STRATA_CLUSTER_WIRE_BYTES_H

#include <stdint.h>

/* Writes a number and returns the place behind it. */
static inline unsigned char *strata_put(unsigned char *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) *at++ = (unsigned char)(value >> (8 * i));
    return at;
}

/* Reads a number and advances *at. */
static inline uint64_t strata_get(const unsigned char **at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t) * (*at)++ << (8 * i);
    return value;
}

#endif
