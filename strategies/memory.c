/* SPDX-License-Identifier: Apache-2.0 */
#include "strategies/memory.h"

#include <stdlib.h>

struct strata_memory_block {
    struct strata_memory_block *next;
    _Alignas(max_align_t) unsigned char data[];
};

void *strata_memory_take(strata_memory *memory, int64_t n, size_t bytes) {
    const bool fits = (uint64_t)n <= (SIZE_MAX - sizeof(struct strata_memory_block)) / (bytes + 1);
    struct strata_memory_block *block = fits ? calloc(1, sizeof *block + (size_t)n * bytes) : NULL;
    if (!block) {
        memory->failed = true;
        return NULL;
    }
    block->next = memory->blocks;
    memory->blocks = block;
    return block->data;
}

void strata_memory_free(strata_memory *memory) {
    for (struct strata_memory_block *block = memory->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    *memory = (strata_memory){0};
}
