/* SPDX-License-Identifier: Apache-2.0
 *
 * Text: labelled documents from files, and a tokenizer that turns them into rows of integers. From reviews to a dataset:
 *
 *     strata_texts_imdb("data", "train", &texts, &err);
 *     strata_tokenizer_train(texts, &(strata_tokenizer_options){.vocabulary = 10000}, &tokenizer, &err);
 *     strata_dataset_from_texts(texts, tokenizer, 250, &train, &err);           features i32 (n, 250), labels i32
 *     strata_model_set_tokenizer(model, tokenizer, &err);                       saved inside the model file
 *
 * and back, to predict: strata_model_tokenizer(model, &tokenizer, &err); strata_dataset_from_text(line, tokenizer, 250, &one,
 * &err). */
#ifndef STRATA_TOKENIZER_H
#define STRATA_TOKENIZER_H

#include "strata/csv.h"
#include "strata/dataset.h"
#include "strata/model.h"
#include "strata/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- documents ---- */
typedef struct strata_texts strata_texts;

/* The IMDB reviews, negative 0 and positive 1. `split` is "train" or "test". `path` is one of
 *   a folder with train/{pos,neg}/N.txt (aclImdb itself), or one that holds aclImdb/
 *   aclImdb_v1.tar.gz (or .tar, .tar.xz), or a folder that holds it
 *   a folder with imdb_train.csv and imdb_test.csv, plain, .gz or .xz (columns review, sentiment)
 * Documents come in the order of their names (folder, tar) or rows, whatever the file system's order.
 * Fails: UNAVAILABLE when none of these is there (says what was looked for); DATA for damaged files, with file and place. */
STRATA_API STRATA_MUST_USE strata_status strata_texts_imdb(const char *path, const char *split, strata_texts **out_texts,
                                                           strata_error *err);
/* Rows of a CSV (plain, .gz, .xz): the feature columns joined by a space are the text; opts->features NULL: every column but
 * the label's. The label column's words are classes: opts->classes in that order, or when NULL the words that occur, sorted by
 * bytes. DATA, with the line, for a label that is none of them. */
STRATA_API STRATA_MUST_USE strata_status strata_texts_csv(const char *path, const strata_csv_options *opts,
                                                          strata_texts **out_texts, strata_error *err);
/* The same of a table that was read; opts->separator means nothing here. */
STRATA_API STRATA_MUST_USE strata_status strata_texts_from_csv(const strata_csv *csv, const strata_csv_options *opts,
                                                               strata_texts **out_texts, strata_error *err);
/* One document a line, without labels; plain, .gz or .xz. */
STRATA_API STRATA_MUST_USE strata_status strata_texts_lines(const char *path, strata_texts **out_texts, strata_error *err);
STRATA_API void strata_texts_destroy(strata_texts *texts); /* NULL is fine */

STRATA_API int64_t strata_texts_size(const strata_texts *texts);
STRATA_API const char *strata_texts_get(const strata_texts *texts, int64_t index); /* NUL-terminated UTF-8, borrowed */
STRATA_API int strata_texts_label(const strata_texts *texts, int64_t index);       /* -1: no labels */
STRATA_API int strata_texts_n_classes(const strata_texts *texts);
STRATA_API const char *strata_texts_class_name(const strata_texts *texts, int label); /* "positive" */
STRATA_API const char *strata_texts_source(const strata_texts *texts);                /* one line: which files were read */

/* ---- tokens ---- */
typedef struct strata_tokenizer strata_tokenizer; /* immutable; any number of threads at a time */

/* In every vocabulary. */
enum { STRATA_TOKEN_PAD = 0, STRATA_TOKEN_UNKNOWN = 1 };

typedef enum strata_tokenizer_kind {
    STRATA_TOKENIZER_WORDS = 0, /* a token is a word; words beyond the vocabulary are UNKNOWN */
    STRATA_TOKENIZER_SUBWORDS /* byte-pair encoding over the characters of each word: no word is unknown, only characters are */
} strata_tokenizer_kind;

/* Both kinds first cut text into words:
 *   letters are lower-cased (ASCII, Latin-1, Latin Extended-A, Greek, Cyrillic);
 *   a word is a run of letters, digits and other characters that are neither space nor punctuation; an apostrophe (' or U+2019)
 *   between two of them belongs to it;
 *   ! and ? are words of their own; a tag such as <br /> and all other ASCII punctuation, U+00A0..00BF, U+2000..206F,
 *   U+3000..303F separate.
 * The vocabulary is filled by falling count; equal counts by first occurrence in the texts (words) or by smaller ids of the
 * pair (subwords). */
typedef struct strata_tokenizer_options {
    strata_tokenizer_kind kind;
    /* Tokens with PAD and UNKNOWN; 0: 10,000; 3 .. 2^24. */
    int64_t vocabulary;
    /* Words that are rarer are left out; 0: 1. */
    int64_t least_count;
} strata_tokenizer_options;

/* The same texts and options: the same vocabulary. Fails: DATA naming document and byte for text that is not UTF-8, and for
 * texts without a word. */
STRATA_API STRATA_MUST_USE strata_status strata_tokenizer_train(const strata_texts *texts, const strata_tokenizer_options *opts,
                                                                strata_tokenizer **out_tokenizer, strata_error *err);
STRATA_API void strata_tokenizer_destroy(strata_tokenizer *tokenizer); /* NULL is fine */

STRATA_API strata_tokenizer_kind strata_tokenizer_get_kind(const strata_tokenizer *tokenizer);
STRATA_API int64_t strata_tokenizer_size(const strata_tokenizer *tokenizer); /* tokens, with PAD and UNKNOWN */
/* What the token stands for: "" for PAD, "?" for UNKNOWN, NULL out of range. A subword that begins a word begins with a
 * space. */
STRATA_API const char *strata_tokenizer_token(const strata_tokenizer *tokenizer, int64_t id);

/* Writes the first `length` tokens of text[0..n_bytes) to out_ids and fills the rest with PAD. *out_n (may be NULL): tokens
 * that the text has, also those beyond length. Fails: DATA with the byte for text that is not UTF-8. */
STRATA_API STRATA_MUST_USE strata_status strata_tokenizer_encode(const strata_tokenizer *tokenizer, const char *text,
                                                                 size_t n_bytes, int64_t length, int32_t *out_ids,
                                                                 int64_t *out_n, strata_error *err);

/* As JSON and back, exactly; the text is the caller's to free(). from_json fails: DATA with the path of the field. */
STRATA_API STRATA_MUST_USE strata_status strata_tokenizer_to_json(const strata_tokenizer *tokenizer, char **out_text,
                                                                  strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_tokenizer_from_json(const char *text, size_t n_bytes, const char *source,
                                                                    strata_tokenizer **out_tokenizer, strata_error *err);

/* ---- datasets of tokens ---- */

/* Every document as `length` tokens: features i32 (n, length), labels i32 where the texts have them. A document without a word
 * is DATA, naming it. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_texts(const strata_texts *texts, const strata_tokenizer *tokenizer,
                                                                   int64_t length, strata_dataset **out_dataset,
                                                                   strata_error *err);
/* One text, without a label, for predict. DATA when it has no word. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_text(const char *text, const strata_tokenizer *tokenizer,
                                                                  int64_t length, strata_dataset **out_dataset,
                                                                  strata_error *err);
/* strata_texts_imdb and strata_dataset_from_texts in one call. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_imdb(const char *path, const char *split,
                                                             const strata_tokenizer *tokenizer, int64_t length,
                                                             strata_dataset **out_dataset, strata_error *err);

/* The documents as the source of a pipeline: elements are a text, u8 (bytes), and its label. Takes the texts on success (and
 * zeroes the pointer). */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_take_texts(strata_texts **texts, strata_dataset **out_dataset,
                                                                   strata_error *err);
/* For strata_dataset_map over it: the text becomes i32 tokens. Its options say with .spec what they are: {STRATA_DTYPE_I32,
 * STRATA_SHAPE(length or -1)}. */
typedef struct strata_tokenize {
    /* Borrowed. */
    const strata_tokenizer *tokenizer;
    /* 0: as many as there are, for padded_batch. */
    int64_t length;
} strata_tokenize;
STRATA_API STRATA_MUST_USE strata_status strata_map_tokenize(strata_element *element, void *user,
                                                             strata_error *err); /* user: a strata_tokenize */

/* ---- inside model files: safetensors metadata "strata.tokenizer" ---- */

/* A copy of the tokenizer is saved with the model and loaded with it. NULL takes it away. */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_tokenizer(strata_model *model, const strata_tokenizer *tokenizer,
                                                                    strata_error *err);
/* The model's tokenizer, which the caller destroys. UNAVAILABLE when it has none. */
STRATA_API STRATA_MUST_USE strata_status strata_model_tokenizer(const strata_model *model, strata_tokenizer **out_tokenizer,
                                                                strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
