/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is freed together is a list of blocks. */
#include "strategies/memory.h"

#include <stddef.h>

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

void *strata_memory_copy(strata_memory *memory, const void *from, size_t bytes) {
    void *copy = strata_memory_take(memory, (int64_t)bytes, 1);
    if (copy && bytes) memcpy(copy, from, bytes);
    return copy;
}

strata_status strata_memory_copy_cluster(strata_memory *memory, const strata_communicator_options *from,
                                         strata_communicator_options *out, strata_error *err) {
    *out = from ? *from : (strata_communicator_options){0};
    const char **texts[] = {&out->tls_cert, &out->tls_key, &out->tls_ca, &out->tls_name, &out->interface, &out->store};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*texts[i]) *texts[i] = strata_memory_copy(memory, *texts[i], strlen(*texts[i]) + 1);
    if (out->secret_bytes && !out->secret)
        return strata_fail(err, STRATA_INVALID, "secret_bytes is %zu without a secret", out->secret_bytes);
    out->secret = strata_memory_copy(memory, out->secret, out->secret_bytes);
    return memory->failed ? strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for the options of connections") : STRATA_OK;
}

void strata_memory_finish(strata_memory *memory) {
    for (struct strata_memory_block *block = memory->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    *memory = (strata_memory){0};
}
