/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables that grow, and numbers in the bytes of files. */
#ifndef STRATA_CORE_MEMORY_H
#define STRATA_CORE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for one more element of `bytes` bytes in a table of n elements; a full table is doubled. table: the address of
 * the pointer to it. Returns false if there is no memory; the table is then unchanged. */
static inline bool strata_make_room(void *table, int64_t n, int64_t *capacity, size_t bytes) {
    void *memory;
    if (n < *capacity) return true;
    const int64_t wanted = *capacity ? 2 * *capacity : 8;
    memcpy(&memory, table, sizeof memory);
    memory = realloc(memory, (size_t)wanted * bytes);
    if (!memory) return false;
    memcpy(table, &memory, sizeof memory);
    *capacity = wanted;
    return true;
}

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
