/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts the ids of a SPIR-V module to distances, so that liblzma and zlib find more repetitions. embed.c stores the
 * distances, and shaders.c restores the ids. In a module each result has an id of its own, so two equal expressions
 * have only their opcodes in common. A result's id is stored as the distance from the previous result, and any other id
 * as the distance from its instruction's result (from the newest result if the instruction has none). With distances,
 * all compressed Vulkan code of the library has two thirds of the size. */
#ifndef STRATA_SHADERS_IDS_H
#define STRATA_SHADERS_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Opcodes of SPIR-V. Ranges of opcodes decide which words of an instruction are converted. If a word that is not an id
 * is converted, or an id is not, it is nevertheless restored correctly. */
enum {
    STRATA_IDS_HEADER = 5,
    STRATA_IDS_FIRST_TYPE = 19,  /* opcodes below it (capabilities, names, modes) have strings and numbers */
    STRATA_IDS_AFTER_TYPES = 40, /* the result of an opcode below it, a type, has no type itself */
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

/* Converts a module of n words in place: ids to distances if `store` is true, else distances to ids. Returns false if
 * the words are not SPIR-V instructions. */
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
