/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of texts and tokenizers, in the order in which to read them. The public header is strata/tokenizer.h. */
#ifndef STRATA_CORE_DATA_TOKENIZER_H
#define STRATA_CORE_DATA_TOKENIZER_H

#include "core/base/alloc.h"
#include "core/base/text.h"
#include "strata/tokenizer.h"

/* ---- texts.c: documents with labels ---- */

STRATA_OWNER(strata_texts)

struct strata_texts {
    /* The texts of all documents, each with a NUL after it. */
    strata_text all;
    struct strata_document {
        /* The text is all.bytes[first .. first + length). */
        size_t first, length;
        int32_t label;
        /* The line of the source in which the document begins, from 1; 0: the source is not divided into lines. */
        int64_t line;
    } * documents;
    int64_t n, capacity;
    bool has_labels;
    char **class_names;
    int n_classes;
    char *source;
};

/* Makes an empty collection. `source` and the names are copied. n_classes 0: the documents have no labels. */
STRATA_MUST_USE strata_status strata_texts_create(const char *source, const char *const *class_names, int n_classes,
                                                  strata_texts **out_texts, strata_error *err);
/* Adds a document that consists of the parts, with a space between each two. line: see strata_document. */
STRATA_MUST_USE strata_status strata_texts_add(strata_texts *texts, const char *const *parts, int n_parts, int label,
                                               int64_t line, strata_error *err);

/* ---- words.c: dividing text into words, by the rules in strata/tokenizer.h ---- */

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

/* ---- dictionary.c: byte strings. Each has a number, in the order in which they were added, and a count. It is a hash table
 * with open addressing; the strings themselves are in one block of memory ---- */

/* Zero-initialize it, and call strata_dictionary_finish at the end. */
typedef struct strata_dictionary {
    struct strata_dictionary_entry {
        /* The offset of the string in the pool. */
        size_t first;
        uint32_t length, hash;
        int64_t count;
    } * entries;
    int32_t n;
    int64_t capacity;
    /* [n_cells] The index of an entry, plus 1; 0: the cell is free. */
    int32_t *cells;
    uint32_t n_cells;
    /* All strings, each with a NUL after it. */
    strata_text pool;
} strata_dictionary;

void strata_dictionary_finish(strata_dictionary *dictionary);
/* The number of the string key[0..length); -1: it is not in the dictionary. */
int32_t strata_dictionary_find(const strata_dictionary *dictionary, const void *key, size_t length);
/* Returns the number of the string, after adding it with a count of 0 if it is new. A dictionary has at most 2^30 strings.
 * Fails: OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_dictionary_add(strata_dictionary *dictionary, const void *key, size_t length,
                                                    int32_t *out_index, strata_error *err);
const char *strata_dictionary_string(const strata_dictionary *dictionary, int32_t index);

/* ---- tokenizer.c (vocabulary and encoding), subwords.c (byte-pair encoding), tokenizer_json.c ---- */

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
