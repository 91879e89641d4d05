/* SPDX-License-Identifier: Apache-2.0
 *
 * Text: labelled documents that are read from files, and a tokenizer that converts them to rows of integers. For training:
 *
 *     strata_texts_imdb("data", "train", &texts, &err);
 *     strata_tokenizer_train(texts, &(strata_tokenizer_options){.vocabulary = 10000}, &tokenizer, &err);
 *     strata_dataset_from_texts(texts, tokenizer, 250, &train, &err);           features i32 (n, 250), labels i32
 *     strata_model_set_tokenizer(model, tokenizer, &err);                       saved inside the model file
 *
 * For predictions: strata_model_tokenizer(model, &tokenizer, &err); strata_dataset_from_text(line, tokenizer, 250, &one,
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
 *   a folder with train/{pos,neg}/N.txt (aclImdb itself), or a folder that contains aclImdb/
 *   aclImdb_v1.tar.gz (or .tar, .tar.xz), or a folder that contains it
 *   a folder with imdb_train.csv and imdb_test.csv, plain, .gz or .xz (columns review, sentiment)
 * Documents are sorted by their names (folder, tar), or are in the order of the rows (CSV).
 * Fails: UNAVAILABLE if none of these exists (the message lists the paths that were tried); DATA for damaged files, with the
 * file and the position. */
STRATA_API STRATA_MUST_USE strata_status strata_texts_imdb(const char *path, const char *split, strata_texts **out_texts,
                                                           strata_error *err);
/* Reads documents from the rows of a CSV file (plain, .gz, .xz). A document is the text of its feature columns, joined by
 * spaces; opts->features NULL: all columns except the label's. The words of the label column are the classes: opts->classes in
 * that order, or if it is NULL the words that occur, sorted by bytes. Fails: DATA, with the line, for a label that is not one
 * of the classes. */
STRATA_API STRATA_MUST_USE strata_status strata_texts_csv(const char *path, const strata_csv_options *opts,
                                                          strata_texts **out_texts, strata_error *err);
/* The same for a table that was already read; opts->dialect is ignored. */
STRATA_API STRATA_MUST_USE strata_status strata_texts_from_csv(const strata_csv *csv, const strata_csv_options *opts,
                                                               strata_texts **out_texts, strata_error *err);
/* Reads one document from each line of a file (plain, .gz or .xz), without labels. */
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

/* Tokens that are in every vocabulary. */
enum { STRATA_TOKEN_PAD = 0, STRATA_TOKEN_UNKNOWN = 1 };

typedef enum strata_tokenizer_kind {
    STRATA_TOKENIZER_WORDS = 0, /* a token is a word; words beyond the vocabulary are UNKNOWN */
    STRATA_TOKENIZER_SUBWORDS /* byte-pair encoding over the characters of each word: no word is unknown, only characters are */
} strata_tokenizer_kind;

/* Both kinds first cut text into words:
 *   letters are lower-cased (ASCII, Latin-1, Latin Extended-A, Greek, Cyrillic);
 *   a word is a run of letters, digits and other characters that are neither space nor punctuation; an apostrophe (' or U+2019)
 *   between two such characters belongs to the word; each character of a script that has no spaces between words (Chinese,
 *   Japanese, Thai, Lao, Khmer, Burmese) is a word;
 *   each ! and ? is a word; a tag such as <br />, all other ASCII punctuation, U+00A0..00BF, U+2000..206F and U+3000..303F
 *   separate words.
 * The vocabulary contains the most frequent words or pairs. Among equal counts, the word that occurs first in the texts, or the
 * pair with the smaller ids, comes first. */
typedef struct strata_tokenizer_options {
    strata_tokenizer_kind kind;
    /* The number of tokens, including PAD and UNKNOWN; 0: 10,000; 3 .. 2^24. */
    int64_t vocabulary;
    /* Words that occur less often are left out; 0: 1. */
    int64_t least_count;
} strata_tokenizer_options;

/* Builds the vocabulary from texts. The same texts and options always give the same vocabulary. Fails: DATA for text that is
 * not UTF-8 (the message gives the document and the byte), and for texts without a word. */
STRATA_API STRATA_MUST_USE strata_status strata_tokenizer_train(const strata_texts *texts, const strata_tokenizer_options *opts,
                                                                strata_tokenizer **out_tokenizer, strata_error *err);
STRATA_API void strata_tokenizer_destroy(strata_tokenizer *tokenizer); /* NULL is fine */

STRATA_API strata_tokenizer_kind strata_tokenizer_get_kind(const strata_tokenizer *tokenizer);
STRATA_API int64_t strata_tokenizer_size(const strata_tokenizer *tokenizer); /* tokens, with PAD and UNKNOWN */
/* The text of a token: "" for PAD, "?" for UNKNOWN, NULL if id is out of range. The text of a subword that begins a word begins
 * with a space. */
STRATA_API const char *strata_tokenizer_token(const strata_tokenizer *tokenizer, int64_t id);

/* Writes the first `length` tokens of text[0..n_bytes) to out_ids and fills the rest with PAD. *out_n (may be NULL): the number
 * of tokens of the whole text, including those beyond `length`. Fails: DATA, with the byte, for text that is not UTF-8. */
STRATA_API STRATA_MUST_USE strata_status strata_tokenizer_encode(const strata_tokenizer *tokenizer, const char *text,
                                                                 size_t n_bytes, int64_t length, int32_t *out_ids,
                                                                 int64_t *out_n, strata_error *err);

/* Converts to JSON and back without loss. The caller frees the text with free(). from_json fails: DATA; the message gives the
 * path of the wrong field. */
STRATA_API STRATA_MUST_USE strata_status strata_tokenizer_to_json(const strata_tokenizer *tokenizer, char **out_text,
                                                                  strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_tokenizer_from_json(const char *text, size_t n_bytes, const char *source,
                                                                    strata_tokenizer **out_tokenizer, strata_error *err);

/* ---- datasets of tokens ---- */

/* Makes an example of each document: features i32 (n, length), and labels i32 if the texts have labels. Fails: DATA, naming the
 * document, for a document without a word. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_texts(const strata_texts *texts, const strata_tokenizer *tokenizer,
                                                                   int64_t length, strata_dataset **out_dataset,
                                                                   strata_error *err);
/* Makes one example of one text, without a label, for predict. Fails: DATA if the text has no word. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_text(const char *text, const strata_tokenizer *tokenizer,
                                                                  int64_t length, strata_dataset **out_dataset,
                                                                  strata_error *err);
/* strata_texts_imdb and strata_dataset_from_texts in one call. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_imdb(const char *path, const char *split,
                                                             const strata_tokenizer *tokenizer, int64_t length,
                                                             strata_dataset **out_dataset, strata_error *err);

/* Makes a dataset of the documents that can be the source of a pipeline: an element is a text, u8 (bytes), and its label. On
 * success the dataset owns the texts, and *texts is NULL. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_take_texts(strata_texts **texts, strata_dataset **out_dataset,
                                                                   strata_error *err);
/* For strata_dataset_map of such a dataset: the function strata_map_tokenize replaces the text by i32 tokens. Set .spec in the
 * options of strata_dataset_map to {STRATA_DTYPE_I32, STRATA_SHAPE(length or -1)}. */
typedef struct strata_tokenize {
    /* Borrowed. */
    const strata_tokenizer *tokenizer;
    /* Tokens of an element; 0: all tokens of the text, for padded_batch. */
    int64_t length;
} strata_tokenize;
STRATA_API STRATA_MUST_USE strata_status strata_map_tokenize(strata_element *element, void *user,
                                                             strata_error *err); /* user: a strata_tokenize */

/* ---- inside model files: safetensors metadata "strata.tokenizer" ---- */

/* Copies the tokenizer into the model, which saves and loads it. NULL removes the model's tokenizer. */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_tokenizer(strata_model *model, const strata_tokenizer *tokenizer,
                                                                    strata_error *err);
/* Returns a copy of the model's tokenizer, which the caller destroys. Fails: UNAVAILABLE if the model has none. */
STRATA_API STRATA_MUST_USE strata_status strata_model_tokenizer(const strata_model *model, strata_tokenizer **out_tokenizer,
                                                                strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
