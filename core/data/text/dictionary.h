/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte strings numbered in the order in which they came, each with a count: an open-addressed table over one pool. */
#ifndef STRATA_CORE_DATA_DICTIONARY_H
#define STRATA_CORE_DATA_DICTIONARY_H

#include <stdbool.h>

#include "strata/status.h"

/* Zero-initialize; finish when done. */
typedef struct strata_dictionary {
    struct strata_dictionary_entry {
        /* In the pool. */
        size_t first;
        uint32_t length, hash;
        int64_t count;
    } * entries;
    int32_t n, capacity;
    /* Entry + 1; 0: free. */
    int32_t *slots;
    uint32_t n_slots;
    /* Strings, each with a NUL. */
    char *pool;
    size_t n_pool, pool_capacity;
} strata_dictionary;

void strata_dictionary_finish(strata_dictionary *dictionary);
/* The number of key[0..length), or -1. */
int32_t strata_dictionary_find(const strata_dictionary *dictionary, const void *key, size_t length);
/* The same; adds it, with a count of 0, when it is new. At most 2^30. */
STRATA_MUST_USE strata_status strata_dictionary_add(strata_dictionary *dictionary, const void *key, size_t length,
                                                    int32_t *out_index, strata_error *err);
const char *strata_dictionary_string(const strata_dictionary *dictionary, int32_t index);

#endif
