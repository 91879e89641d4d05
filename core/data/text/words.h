/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting text into words, by the rules that strata/tokenizer.h states. */
#ifndef STRATA_CORE_DATA_WORDS_H
#define STRATA_CORE_DATA_WORDS_H

#include <stdbool.h>

#include "strata/status.h"

enum { STRATA_LONGEST_WORD = 256 }; /* bytes; a longer run is cut into words of this */

typedef struct strata_word_reader {
    const char *text;
    size_t n_bytes, at;
    /* The newest, lower-cased, NUL-terminated. */
    char word[STRATA_LONGEST_WORD + 8];
    size_t length;
} strata_word_reader;

/* The next word into reader->word; *out_more false at the end. DATA, naming `place` and the byte, for what is not UTF-8. Start
 * from {.text, .n_bytes}. */
STRATA_MUST_USE strata_status strata_word_next(strata_word_reader *reader, const char *place, bool *out_more,
                                               strata_error *err);

#endif
