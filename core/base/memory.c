/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is freed together is a list of blocks. What is taken next follows in the newest block, if it fits. */
#include "core/base/memory.h"

enum { BLOCK_BYTES = 32 * 1024, ALIGNMENT = 64 };

typedef struct strata_memory_block {
    struct strata_memory_block *next;
    size_t used, capacity;
    _Alignas(ALIGNMENT) unsigned char data[];
} block;

void *strata_memory_take(strata_memory *memory, int64_t n, size_t bytes) {
    block *b = memory->blocks;
    size_t all;
    const bool fits = !__builtin_mul_overflow((size_t)n, bytes, &all) && all < SIZE_MAX / 2;
    const size_t rounded = fits ? (all + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : 0;
    if (fits && (!b || b->capacity - b->used < rounded)) {
        const size_t capacity = rounded > BLOCK_BYTES ? rounded : BLOCK_BYTES;
        b = aligned_alloc(ALIGNMENT, sizeof *b + capacity);
        if (b) *b = (block){.next = memory->blocks, .capacity = capacity};
        if (b) memory->blocks = b;
    }
    if (!fits || !b) {
        memory->failed = true;
        return NULL;
    }
    void *result = b->data + b->used;
    b->used += rounded;
    return memset(result, 0, rounded);
}

void *strata_memory_copy(strata_memory *memory, const void *from, size_t bytes) {
    void *copy = strata_memory_take(memory, (int64_t)bytes, 1);
    if (copy && bytes) memcpy(copy, from, bytes);
    return copy;
}

void strata_memory_free(strata_memory *memory) {
    for (block *b = memory->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *memory = (strata_memory){0};
}
