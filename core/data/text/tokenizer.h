/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a tokenizer. Reading order: words.h, tokenizer.c (vocabulary and encoding), subwords.c (byte-pair encoding),
 * tokenizer_json.c. Users see strata/tokenizer.h. */
#ifndef STRATA_CORE_DATA_TOKENIZER_H
#define STRATA_CORE_DATA_TOKENIZER_H

#include "core/data/text/dictionary.h"
#include "strata/tokenizer.h"

enum { STRATA_FIRST_TOKEN = 2 }; /* id of tokens' string 0; before it PAD and UNKNOWN */

/* Subwords: a word is its characters behind a space; of all neighbours that a merge joins, those of the smallest rank are
 * joined first. */
typedef struct strata_merge {
    /* The ids of the tokens. */
    int32_t left, right, result;
} strata_merge;

struct strata_tokenizer {
    strata_tokenizer_kind kind;
    strata_dictionary tokens;
    /* The first tokens; subwords only. */
    int32_t n_characters;
    /* [n_merges], by rank. */
    strata_merge *merges;
    int32_t n_merges, merges_capacity;
    /* Number of {left, right} is its rank. */
    strata_dictionary ranks;
};

/* Adds the strings of `from` that were counted at least `least_count` times to `out`, at most `most`: by falling count, equal
 * ones as they came. */
STRATA_MUST_USE strata_status strata_dictionary_rank(strata_dictionary *out, const strata_dictionary *from, int64_t most,
                                                     int64_t least_count, strata_error *err);
/* Adds a merge, and its result to the tokens when that is new. */
STRATA_MUST_USE strata_status strata_tokenizer_add_merge(strata_tokenizer *tokenizer, int32_t left, int32_t right,
                                                         strata_error *err);
/* Fills a tokenizer of no tokens with characters and merges for these words and their counts, up to `vocabulary` ids. */
STRATA_MUST_USE strata_status strata_subwords_train(strata_tokenizer *tokenizer, const strata_dictionary *words,
                                                    int64_t vocabulary, int64_t least_count, strata_error *err);
/* The ids of a word, at most STRATA_LONGEST_WORD + 1; returns how many. */
int strata_subwords_encode(const strata_tokenizer *tokenizer, const char *word, size_t length, int32_t *out_ids);

#endif
