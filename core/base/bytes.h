/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers in the bytes of files. */
#ifndef STRATA_BASE_BYTES_H
#define STRATA_BASE_BYTES_H

#include <stdint.h>

/* The number of n bytes, at most 8. */
static inline uint64_t strata_little_endian(const unsigned char *at, int n) {
    uint64_t value = 0;
    while (n--) value = value << 8 | at[n];
    return value;
}
static inline uint64_t strata_big_endian(const unsigned char *at, int n) {
    uint64_t value = 0;
    for (int i = 0; i < n; i++) value = value << 8 | at[i];
    return value;
}

#endif
