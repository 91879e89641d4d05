/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory: allocations that fail with a message, lists that grow, and memory that a function frees wherever it returns.
 * Files that include it, also by another header, have the functions of stdlib.h and string.h. */
#ifndef STRATA_BASE_ALLOC_H
#define STRATA_BASE_ALLOC_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "strata/status.h"

/* Allocates n zeroed elements, or one byte if n is 0. NULL: there is no memory, as for a count below 0. */
static inline void *strata_zeroed(size_t n, size_t bytes) {
    if (n > PTRDIFF_MAX) return NULL;
    return n ? calloc(n, bytes) : calloc(1, 1);
}

/* Sets the pointer to n new zeroed elements; a status. The rest is the message of OUT_OF_MEMORY. */
#define STRATA_NEW(pointer, n, err, ...)                                     \
    (((pointer) = strata_zeroed((size_t)(n), sizeof *(pointer))) ? STRATA_OK \
                                                                 : strata_fail(err, STRATA_OUT_OF_MEMORY, __VA_ARGS__))

static inline void strata_free_at(void *pointer) {
    void *memory;
    memcpy(&memory, pointer, sizeof memory);
    free(memory);
}

/* Before the declaration of a pointer, which must have a value: its memory is freed at the end of the block. */
#define STRATA_FREED __attribute__((cleanup(strata_free_at)))

/* Declares a variable that is finished at the end of the block: STRATA_FINISHED(strata_text) text = {0}; */
#define STRATA_FINISHED(type) STRATA_FINISHED_BY(type##_finish) type
/* Before the declaration of a variable that `function`, which gets its address, finishes at the end of the block. */
#define STRATA_FINISHED_BY(function) __attribute__((cleanup(function)))

/* Declares a pointer to an object, which its _destroy frees at the end of the block: STRATA_OWNED(strata_csv) *csv = NULL; The
 * header of the type has STRATA_OWNER(strata_csv). clang would warn of an object that nothing but the end of the block uses. */
#define STRATA_OWNED(type) __attribute__((cleanup(type##_destroy_at), unused)) type
#define STRATA_OWNER(type)                                      \
    static inline void type##_destroy_at(type *const *object) { \
        type##_destroy(*object);                                \
    }

/* The value of a pointer that is freed at the end of its block, for a caller that takes it: the pointer becomes NULL. */
static inline void *strata_released(void *pointer) {
    void *memory;
    memcpy(&memory, pointer, sizeof memory);
    memset(pointer, 0, sizeof memory);
    return memory;
}

/* Makes room for one more element of a list of n that only grows, and returns it, filled with 0; NULL: there is no memory, and
 * the list is not changed. The memory is doubled when n is a power of two. list: the address of the pointer to the list. */
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

/* The same for a list that may also become shorter, which remembers its capacity. Returns false if there is no memory; the list
 * is then not changed. list: the address of the pointer to it. */
static inline bool strata_make_room(void *list, int64_t n, int64_t *capacity, size_t bytes) {
    void *memory;
    if (n < *capacity) return true;
    const int64_t wanted = *capacity ? 2 * *capacity : 8;
    memcpy(&memory, list, sizeof memory);
    memory = realloc(memory, (size_t)wanted * bytes);
    if (!memory) return false;
    memcpy(list, &memory, sizeof memory);
    *capacity = wanted;
    return true;
}

#endif
