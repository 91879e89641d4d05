/* SPDX-License-Identifier: Apache-2.0
 *
 * A dictionary of byte strings. Each string has a number, in the order in which the strings were added, and a count. It is a
 * hash table with open addressing; the strings themselves are in one block of memory. */
#ifndef STRATA_CORE_DATA_DICTIONARY_H
#define STRATA_CORE_DATA_DICTIONARY_H

#include "strata/text.h"

/* Zero-initialize it, and call strata_dictionary_finish at the end. */
typedef struct strata_dictionary {
    struct strata_dictionary_entry {
        /* The offset of the string in the pool. */
        size_t first;
        uint32_t length, hash;
        int64_t count;
    } * entries;
    int32_t n;
    int64_t capacity;
    /* [n_slots] The index of an entry, plus 1; 0: the slot is free. */
    int32_t *slots;
    uint32_t n_slots;
    /* All strings, each with a NUL after it. */
    strata_text pool;
} strata_dictionary;

void strata_dictionary_finish(strata_dictionary *dictionary);
/* The number of the string key[0..length); -1: it is not in the dictionary. */
int32_t strata_dictionary_find(const strata_dictionary *dictionary, const void *key, size_t length);
/* Returns the number of the string, after adding it with a count of 0 if it is new. A dictionary has at most 2^30 strings.
 * Fails: OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_dictionary_add(strata_dictionary *dictionary, const void *key, size_t length,
                                                    int32_t *out_index, strata_error *err);
const char *strata_dictionary_string(const strata_dictionary *dictionary, int32_t index);

#endif
