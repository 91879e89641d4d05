/* SPDX-License-Identifier: Apache-2.0
 *
 * Making vocabularies of words, converting texts to tokens, and making datasets of tokens. */
#include "core/data/text/tokenizer.h"

#include <stdio.h>

#include "core/data/dataset.h"

/* ---- training ---- */

static strata_status count_words(const strata_texts *texts, strata_dictionary *words, strata_error *err) {
    for (int64_t i = 0; i < texts->n; i++) {
        char place[64];
        strata_word_reader reader = {.text = strata_texts_get(texts, i), .n_bytes = texts->documents[i].length};
        snprintf(place, sizeof place, "document %lld", (long long)i);
        for (bool more = true; more;) {
            int32_t word;
            STRATA_TRY(strata_word_next(&reader, place, &more, err));
            if (!more) break;
            STRATA_TRY(strata_dictionary_add(words, reader.word, reader.length, &word, err));
            words->entries[word].count++;
        }
    }
    if (words->n) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: its %lld documents contain no word", texts->source, (long long)texts->n);
}

typedef struct ranked {
    int64_t count;
    int32_t index;
} ranked;

/* Sorts by decreasing count, and equal counts by the first occurrence. */
static int by_count(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

strata_status strata_dictionary_rank(strata_dictionary *out, const strata_dictionary *from, int64_t most, int64_t least_count,
                                     strata_error *err) {
    STRATA_FREED ranked *rows = NULL;
    STRATA_TRY(STRATA_NEW(rows, from->n, err, "no host memory to rank %d strings", from->n));
    for (int32_t i = 0; i < from->n; i++) rows[i] = (ranked){from->entries[i].count, i};
    qsort(rows, (size_t)from->n, sizeof *rows, by_count);
    for (int32_t i = 0; i < from->n && i < most && rows[i].count >= least_count; i++) {
        int32_t index;
        const struct strata_dictionary_entry *entry = &from->entries[rows[i].index];
        STRATA_TRY(strata_dictionary_add(out, from->pool.bytes + entry->first, entry->length, &index, err));
    }
    return STRATA_OK;
}

strata_status strata_tokenizer_train(const strata_texts *texts, const strata_tokenizer_options *opts,
                                     strata_tokenizer **out_tokenizer, strata_error *err) {
    const int64_t most_tokens = 1 << 24;
    const strata_tokenizer_options o = opts ? *opts : (strata_tokenizer_options){0};
    int64_t vocabulary = o.vocabulary ? o.vocabulary : 10000, least = o.least_count ? o.least_count : 1;
    if (vocabulary <= STRATA_FIRST_TOKEN || vocabulary > most_tokens || least < 1)
        return strata_fail(err, STRATA_INVALID,
                           "tokenizer: a vocabulary of %lld and a least count of %lld; they must be 3..%lld and at least 1",
                           (long long)vocabulary, (long long)least, (long long)most_tokens);
    STRATA_OWNED(strata_tokenizer) *tokenizer = NULL;
    STRATA_FINISHED(strata_dictionary) words = {0};
    STRATA_TRY(STRATA_NEW(tokenizer, 1, err, "tokenizer: no host memory"));
    tokenizer->kind = o.kind;
    STRATA_TRY(count_words(texts, &words, err));
    STRATA_TRY(o.kind == STRATA_TOKENIZER_WORDS
                   ? strata_dictionary_rank(&tokenizer->tokens, &words, vocabulary - STRATA_FIRST_TOKEN, least, err)
                   : strata_subwords_train(tokenizer, &words, vocabulary, least, err));
    if (!tokenizer->tokens.n)
        return strata_fail(err, STRATA_DATA, "%s: no word occurs %lld times", texts->source, (long long)least);
    *out_tokenizer = strata_released(&tokenizer);
    return STRATA_OK;
}

void strata_tokenizer_destroy(strata_tokenizer *tokenizer) {
    if (!tokenizer) return;
    strata_dictionary_finish(&tokenizer->tokens);
    strata_dictionary_finish(&tokenizer->ranks);
    free(tokenizer->merges);
    free(tokenizer);
}

strata_tokenizer_kind strata_tokenizer_get_kind(const strata_tokenizer *tokenizer) {
    return tokenizer->kind;
}
int64_t strata_tokenizer_size(const strata_tokenizer *tokenizer) {
    return STRATA_FIRST_TOKEN + tokenizer->tokens.n;
}
const char *strata_tokenizer_token(const strata_tokenizer *tokenizer, int64_t id) {
    if (id < 0 || id >= strata_tokenizer_size(tokenizer)) return NULL;
    if (id < STRATA_FIRST_TOKEN) return id == STRATA_TOKEN_PAD ? "" : "?";
    return strata_dictionary_string(&tokenizer->tokens, (int32_t)id - STRATA_FIRST_TOKEN);
}

/* ---- encoding ---- */

static int encode_word(const strata_tokenizer *tokenizer, const strata_word_reader *reader, int32_t *out_ids) {
    if (tokenizer->kind == STRATA_TOKENIZER_SUBWORDS)
        return strata_subwords_encode(tokenizer, reader->word, reader->length, out_ids);
    int32_t index = strata_dictionary_find(&tokenizer->tokens, reader->word, reader->length);
    out_ids[0] = index < 0 ? STRATA_TOKEN_UNKNOWN : index + STRATA_FIRST_TOKEN;
    return 1;
}

/* As strata_tokenizer_encode. If out_n is NULL, it stops after `length` tokens. */
static strata_status encode(const strata_tokenizer *tokenizer, const char *text, size_t n_bytes, const char *place,
                            int64_t length, int32_t *out_ids, int64_t *out_n, strata_error *err) {
    strata_word_reader reader = {.text = text, .n_bytes = n_bytes};
    int64_t n = 0;
    for (bool more = true; more && (out_n || n < length);) {
        int32_t ids[STRATA_LONGEST_WORD + 8];
        STRATA_TRY(strata_word_next(&reader, place, &more, err));
        int n_ids = more ? encode_word(tokenizer, &reader, ids) : 0;
        for (int i = 0; i < n_ids; i++, n++)
            if (n < length) out_ids[n] = ids[i];
    }
    for (int64_t i = n; i < length; i++) out_ids[i] = STRATA_TOKEN_PAD;
    if (out_n) *out_n = n;
    return STRATA_OK;
}

strata_status strata_tokenizer_encode(const strata_tokenizer *tokenizer, const char *text, size_t n_bytes, int64_t length,
                                      int32_t *out_ids, int64_t *out_n, strata_error *err) {
    return encode(tokenizer, text, n_bytes, "text", length, out_ids, out_n, err);
}

/* ---- datasets ---- */

static strata_status check_length(int64_t length, strata_error *err) {
    if (length >= 1 && length <= 1 << 24) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "texts: a length of %lld tokens; it must be 1..%d", (long long)length, 1 << 24);
}

static strata_status encode_all(const strata_texts *texts, const strata_tokenizer *tokenizer, int64_t length, int32_t *out_ids,
                                int32_t *out_labels, strata_error *err) {
    for (int64_t i = 0; i < texts->n; i++) {
        char place[512];
        const int64_t line = texts->documents[i].line;
        if (line)
            snprintf(place, sizeof place, "%.400s:%lld", texts->source, (long long)line);
        else
            snprintf(place, sizeof place, "%.400s: document %lld", texts->source, (long long)i);
        STRATA_TRY(encode(tokenizer, strata_texts_get(texts, i), texts->documents[i].length, place, length,
                          out_ids + i * length, NULL, err));
        if (out_ids[i * length] == STRATA_TOKEN_PAD)
            return strata_fail(err, STRATA_DATA, "%s: this text contains no word: it has no letters or digits", place);
        if (out_labels) out_labels[i] = texts->documents[i].label;
    }
    return STRATA_OK;
}

strata_status strata_dataset_from_texts(const strata_texts *texts, const strata_tokenizer *tokenizer, int64_t length,
                                        strata_dataset **out_dataset, strata_error *err) {
    STRATA_FINISHED(strata_array) features = {0}, labels = {0};
    const strata_dataset_facts facts = {
        .source = texts->source, .class_names = (const char *const *)texts->class_names, .n_class_names = texts->n_classes};
    STRATA_TRY(check_length(length, err));
    if (!texts->n) return strata_fail(err, STRATA_DATA, "%s: has no documents", texts->source);
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(texts->n, length), &features, err));
    if (texts->has_labels) STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(texts->n), &labels, err));
    STRATA_TRY(encode_all(texts, tokenizer, length, features.data, labels.data, err));
    return strata_dataset_take_known(&features, &labels, &facts, out_dataset, err);
}

strata_status strata_dataset_from_text(const char *text, const strata_tokenizer *tokenizer, int64_t length,
                                       strata_dataset **out_dataset, strata_error *err) {
    STRATA_FINISHED(strata_array) features = {0};
    STRATA_TRY(check_length(length, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(1, length), &features, err));
    int32_t *ids = features.data;
    STRATA_TRY(encode(tokenizer, text, strlen(text), "text", length, ids, NULL, err));
    if (ids[0] == STRATA_TOKEN_PAD)
        return strata_fail(err, STRATA_DATA, "the text contains no word: it must have letters or digits");
    return strata_dataset_take_arrays(&features, NULL, 0, out_dataset, err);
}

strata_status strata_dataset_imdb(const char *path, const char *split, const strata_tokenizer *tokenizer, int64_t length,
                                  strata_dataset **out_dataset, strata_error *err) {
    STRATA_OWNED(strata_texts) *texts = NULL;
    STRATA_TRY(strata_texts_imdb(path, split, &texts, err));
    return strata_dataset_from_texts(texts, tokenizer, length, out_dataset, err);
}
