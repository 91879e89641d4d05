/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables that grow. */
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

#endif
