/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) and the rule which of its words
 * belongs to which element. README.md has the whole specification. A kernel has the buffer `state` (i32) and the words
 * `n`, `stream` and `row`. */
#define PHILOX_ROUND                                                                          \
    {                                                                                         \
        const uint high_0 = MULTIPLY_HIGH(0xd2511f53u, word_0), low_0 = 0xd2511f53u * word_0; \
        const uint high_1 = MULTIPLY_HIGH(0xcd9e8d57u, word_2), low_1 = 0xcd9e8d57u * word_2; \
        word_0 = high_1 ^ word_1 ^ key_0;                                                     \
        word_1 = low_1;                                                                       \
        word_2 = high_0 ^ word_3 ^ key_1;                                                     \
        word_3 = low_0;                                                                       \
        key_0 = key_0 + 0x9e3779b9u;                                                          \
        key_1 = key_1 + 0xbb67ae85u;                                                          \
    }

/* The first 24 bits as a number in [0, 1): exact. */
float uniform_from_word(uint word) {
    return F32(word >> 8) * 5.9604644775390625e-8f;
}

/* Loops over all elements of the tensor, each with its random word. The elements have the global numbers first .. first
 * + n-1, where first = state[4..5] * row. Element number g has word g mod 4 of counter g / 4. In work-groups of several
 * work-items an iteration processes one counter with its (up to) four elements. In a work-group of one work-item (CPUs)
 * it processes one element: this computes each counter four times, but it vectorizes (5 ns per element with PoCL on
 * AVX-512).
 *   FOR_EACH_COUNTER(q) {
 *       PHILOX_WORDS(q)
 *       FOR_EACH_WORD(q, w, e) {
 *           if (e < n) ... WORD(w), the word of element e ...
 *       }
 *   }
 * g / 4 moves the two low bits of the high half one by one, because two opposite shifts would become a funnel shift,
 * which Oclgrind 21.10 does not support. */
#define STATE(i) U32(LOAD(i32, state, i))
#define FOR_EACH_COUNTER(q)                                                                               \
    const uint seed_low = STATE(0u), seed_high = STATE(1u), step = STATE(2u), first_row = STATE(4u);      \
    const uint first_low = first_row * row, first_high = MULTIPLY_HIGH(first_row, row) + STATE(5u) * row; \
    const uint before = LOCAL_X == 1u ? 0u : first_low & 3u;                                              \
    FOR_EACH(q, LOCAL_X == 1u ? n : (before + n + 3u) / 4u)
#define PHILOX_WORDS(q)                                                                                                  \
    const uint low = (first_low - before) + (LOCAL_X == 1u ? q : 4u * q);                                                \
    const uint high = first_high + (low < first_low - before ? 1u : 0u);                                                 \
    uint word_0 = (low >> 2) + ((high & 1u) != 0u ? 0x40000000u : 0u) + ((high & 2u) != 0u ? 0x80000000u : 0u),          \
         word_1 = high >> 2, word_2 = stream, word_3 = step;                                                             \
    uint key_0 = seed_low, key_1 = seed_high;                                                                            \
    PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND \
        PHILOX_ROUND const uint first_word = LOCAL_X == 1u ? low & 3u : 0u;
#define FOR_EACH_WORD(q, w, e)                                                                                        \
    for (uint w = first_word, e = LOCAL_X == 1u ? q : 4u * q - before, turns = 0u; turns < (LOCAL_X == 1u ? 1u : 4u); \
         turns++, w++, e++)
#define WORD(w) (((w)&2u) == 0u ? (((w)&1u) == 0u ? word_0 : word_1) : ((w)&1u) == 0u ? word_2 : word_3)
