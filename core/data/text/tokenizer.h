/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of tokenizers. Reading order: words.h, tokenizer.c (vocabulary and encoding), subwords.c (byte-pair encoding),
 * tokenizer_json.c. The public header is strata/tokenizer.h. */
#ifndef STRATA_CORE_DATA_TOKENIZER_H
#define STRATA_CORE_DATA_TOKENIZER_H

#include "core/base/alloc.h"
#include "core/data/text/dictionary.h"
#include "strata/tokenizer.h"

/* String i of the dictionary `tokens` has the id STRATA_FIRST_TOKEN + i. The ids below are PAD and UNKNOWN. */
enum { STRATA_FIRST_TOKEN = 2 };

/* Byte-pair encoding divides a space and the word's characters into tokens of one character, and then joins pairs of adjacent
 * tokens until no merge applies. Of several merges that apply, the one of the smallest rank is applied first. */
typedef struct strata_merge {
    /* The ids of the two tokens, and of the token that they become. */
    int32_t left, right, result;
} strata_merge;

STRATA_OWNER(strata_tokenizer)

struct strata_tokenizer {
    strata_tokenizer_kind kind;
    strata_dictionary tokens;
    /* For subwords: so many of the first tokens are single characters. */
    int32_t n_characters;
    /* [n_merges] The merge with rank r is merges[r]. */
    strata_merge *merges;
    int32_t n_merges;
    int64_t merges_capacity;
    /* The number of the string {left, right} is the rank of its merge. */
    strata_dictionary ranks;
};

/* Adds at most `most` strings of `from` to `out`: those that were counted at least `least_count` times, by decreasing count.
 * Strings with the same count remain in the order of `from`. */
STRATA_MUST_USE strata_status strata_dictionary_rank(strata_dictionary *out, const strata_dictionary *from, int64_t most,
                                                     int64_t least_count, strata_error *err);
/* Adds a merge with the next rank, and adds its result to the tokens if it is new. */
STRATA_MUST_USE strata_status strata_tokenizer_add_merge(strata_tokenizer *tokenizer, int32_t left, int32_t right,
                                                         strata_error *err);
/* Trains a tokenizer that has no tokens yet on these words and their counts, until it has `vocabulary` ids or no pair occurs
 * least_count times. */
STRATA_MUST_USE strata_status strata_subwords_train(strata_tokenizer *tokenizer, const strata_dictionary *words,
                                                    int64_t vocabulary, int64_t least_count, strata_error *err);
/* Writes the ids of a word's tokens, at most STRATA_LONGEST_WORD + 1, and returns how many. */
int strata_subwords_encode(const strata_tokenizer *tokenizer, const char *word, size_t length, int32_t *out_ids);

#endif
