/* SPDX-License-Identifier: Apache-2.0
 *
 * How the library stores the ids of a SPIR-V module, so that liblzma and zlib find repetitions: embed.c writes them so, and
 * shaders.c restores them. In a module each result has a number of its own, so two equal expressions have no word in common
 * but the opcodes. Stored are distances: a result's id as the distance from the result before, any other id as the distance
 * from its instruction's result (from the newest one where the instruction has none). All Vulkan code of the library takes two
 * thirds of the room then. */
#ifndef STRATA_SHADERS_IDS_H
#define STRATA_SHADERS_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which words of an instruction stay as they are is decided by ranges of opcodes. A word of another meaning that is treated as
 * an id, or the reverse, is restored all the same. */
enum {
    STRATA_IDS_HEADER = 5,
    STRATA_IDS_FIRST_TYPE = 19,  /* before it are capabilities, names, modes: strings and numbers */
    STRATA_IDS_AFTER_TYPES = 40, /* a type is a result without a type */
    STRATA_IDS_CONSTANT = 43,
    STRATA_IDS_SPEC_CONSTANT = 50,
    STRATA_IDS_STORE = 62,
    STRATA_IDS_DECORATE = 71,
    STRATA_IDS_MEMBER_DECORATE = 72,
    STRATA_IDS_IMAGE_WRITE = 99,
    STRATA_IDS_CONTROL_BARRIER = 224,
    STRATA_IDS_MEMORY_BARRIER = 225,
    STRATA_IDS_LOOP_MERGE = 246,
    STRATA_IDS_LABEL = 248,
    STRATA_IDS_LAST_BRANCH = 255
};

static inline bool strata_ids_stay(uint32_t op) {
    return op < STRATA_IDS_FIRST_TYPE || op == STRATA_IDS_DECORATE || op == STRATA_IDS_MEMBER_DECORATE;
}

static inline bool strata_ids_has_result(uint32_t op) {
    return op == STRATA_IDS_LABEL ||
           !(op == STRATA_IDS_STORE || op == STRATA_IDS_IMAGE_WRITE || op == STRATA_IDS_CONTROL_BARRIER ||
             op == STRATA_IDS_MEMORY_BARRIER || (op >= STRATA_IDS_LOOP_MERGE && op <= STRATA_IDS_LAST_BRANCH));
}

static inline bool strata_ids_has_type(uint32_t op) {
    return op >= STRATA_IDS_AFTER_TYPES && op != STRATA_IDS_LABEL;
}

/* Changes a module of n words in place: to distances (store), or back to ids. false: these are no instructions. */
static inline bool strata_ids_convert(uint32_t *words, size_t n, bool store) {
    uint32_t newest = 0;
    for (size_t at = STRATA_IDS_HEADER, next; at < n; at = next) {
        const uint32_t op = words[at] & 0xffffu, length = words[at] >> 16;
        if (!length || length > n - at) return false;
        next = at + length;
        if (strata_ids_stay(op)) continue;
        size_t word = at + 1;
        if (strata_ids_has_result(op)) {
            word += strata_ids_has_type(op);
            if (word < next) {
                const uint32_t id = store ? words[word] : newest + words[word];
                words[word++] = store ? id - newest : id;
                newest = id;
            }
            if (op == STRATA_IDS_CONSTANT || op == STRATA_IDS_SPEC_CONSTANT) continue;
        }
        for (; word < next; word++) words[word] = newest - words[word];
    }
    return true;
}

#endif
