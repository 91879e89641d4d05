/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory and objects that a function frees wherever it returns. This library uses the public headers of libstrata alone, so it
 * does not have those of core/base/alloc.h. */
#ifndef STRATA_CORE_INTERCHANGE_OWNED_H
#define STRATA_CORE_INTERCHANGE_OWNED_H

#include <stdlib.h>
#include <string.h>

#include "strata/status.h"

static inline void strata_free_at(void *pointer) {
    void *memory;
    memcpy(&memory, pointer, sizeof memory);
    free(memory);
}

/* Before the declaration of a pointer, which must have a value: its memory is freed at the end of the block. */
#define STRATA_FREED __attribute__((cleanup(strata_free_at)))

/* Before the declaration of a struct that `function`, which gets its address, finishes at the end of the block. */
#define STRATA_FINISHED_BY(function) __attribute__((cleanup(function)))

/* The value of a pointer to freed memory, for a caller that takes it: the pointer becomes NULL. */
static inline void *strata_released(void *pointer) {
    void *memory;
    memcpy(&memory, pointer, sizeof memory);
    memset(pointer, 0, sizeof memory);
    return memory;
}

/* Makes room for one more element of a list of n, and returns it, filled with 0; NULL: there is no memory, and the list is not
 * changed. The memory is doubled when n is a power of two. list: the address of the pointer to the list. */
static inline void *strata_grow(void *list, int n, size_t element_bytes) {
    void *memory;
    memcpy(&memory, list, sizeof memory);
    if (!(n & (n - 1))) {
        memory = realloc(memory, (size_t)(n ? 2 * n : 1) * element_bytes);
        if (!memory) return NULL;
        memcpy(list, &memory, sizeof memory);
    }
    return memset((char *)memory + (size_t)n * element_bytes, 0, element_bytes);
}

/* Sets the pointer to n new zeroed elements; a status. The rest is the message of OUT_OF_MEMORY. */
#define STRATA_NEW(pointer, n, err, ...) \
    (((pointer) = calloc((size_t)(n), sizeof *(pointer))) ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, __VA_ARGS__))

#endif
