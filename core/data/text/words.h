/* SPDX-License-Identifier: Apache-2.0
 *
 * Dividing text into words, by the rules in strata/tokenizer.h. */
#ifndef STRATA_CORE_DATA_WORDS_H
#define STRATA_CORE_DATA_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "strata/status.h"

/* In bytes. A longer sequence of letters is divided into several words. */
enum { STRATA_LONGEST_WORD = 256 };

typedef struct strata_word_reader {
    const char *text;
    size_t n_bytes, at;
    /* The word that was read last, in lower case, NUL-terminated. */
    char word[STRATA_LONGEST_WORD + 8];
    size_t length;
} strata_word_reader;

/* Reads the next word into reader->word. Begin with {.text, .n_bytes}. *out_more false: there is no further word. Fails: DATA,
 * with `place` and the offset of the byte, if the text is not valid UTF-8. */
STRATA_MUST_USE strata_status strata_word_next(strata_word_reader *reader, const char *place, bool *out_more,
                                               strata_error *err);
/* Counts sequences without white space; a character of a script that has no spaces between words counts as a word. */
int64_t strata_count_words(const char *text);

#endif
