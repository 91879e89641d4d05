/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-pair encoding (Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword units", ACL 2016) over
 * characters. Training stores for each pair of adjacent tokens how often it occurs and in which words, and merges the most
 * frequent pair again and again. The pairs are in a heap, sorted by the counts at the time when they were added, which may be
 * out of date. A merge can raise the counts only of pairs that contain its result, and these are then added to the heap again.
 * So a count in the heap is never too low. A pair whose count in the heap is too high is added again with its current count. */
#include "core/data/text/tokenizer.h"

/* ---- characters ---- */

/* Writes the ids of the characters of a space and the word, and returns how many. Characters that are not tokens are
 * UNKNOWN. */
static int split_word(const strata_tokenizer *tokenizer, const char *word, size_t length, int32_t *out_ids) {
    int n = 0;
    int32_t index = strata_dictionary_find(&tokenizer->tokens, " ", 1);
    out_ids[n++] = index >= 0 && index < tokenizer->n_characters ? index + STRATA_FIRST_TOKEN : STRATA_TOKEN_UNKNOWN;
    for (size_t at = 0, size; at < length && n <= STRATA_LONGEST_WORD; at += size) {
        size = strata_utf8_length(word + at, length - at);
        index = strata_dictionary_find(&tokenizer->tokens, word + at, size);
        out_ids[n++] = index >= 0 && index < tokenizer->n_characters ? index + STRATA_FIRST_TOKEN : STRATA_TOKEN_UNKNOWN;
    }
    return n;
}

/* Adds the characters that occur in the words to the tokens, the most frequent first, until the vocabulary is full. */
static strata_status find_characters(strata_tokenizer *tokenizer, const strata_dictionary *words, int64_t vocabulary,
                                     strata_error *err) {
    STRATA_FINISHED(strata_dictionary) characters = {0};
    int32_t index;
    for (int32_t i = 0; i < words->n; i++) {
        const struct strata_dictionary_entry *word = &words->entries[i];
        STRATA_TRY(strata_dictionary_add(&characters, " ", 1, &index, err));
        characters.entries[index].count += word->count;
        for (size_t at = 0, size; at < word->length; at += size) {
            const char *character = words->pool.bytes + word->first + at;
            size = strata_utf8_length(character, word->length - at);
            STRATA_TRY(strata_dictionary_add(&characters, character, size, &index, err));
            characters.entries[index].count += word->count;
        }
    }
    STRATA_TRY(strata_dictionary_rank(&tokenizer->tokens, &characters, vocabulary - STRATA_FIRST_TOKEN, 1, err));
    tokenizer->n_characters = tokenizer->tokens.n;
    return STRATA_OK;
}

/* ---- merges ---- */

static int32_t find_rank(const strata_tokenizer *tokenizer, int32_t left, int32_t right) {
    const int32_t key[2] = {left, right};
    return strata_dictionary_find(&tokenizer->ranks, key, sizeof key);
}

strata_status strata_tokenizer_add_merge(strata_tokenizer *tokenizer, int32_t left, int32_t right, strata_error *err) {
    const int32_t key[2] = {left, right};
    int32_t rank, index;
    const strata_dictionary *tokens = &tokenizer->tokens;
    const struct strata_dictionary_entry *a = &tokens->entries[left - STRATA_FIRST_TOKEN];
    const struct strata_dictionary_entry *b = &tokens->entries[right - STRATA_FIRST_TOKEN];
    size_t length = (size_t)a->length + b->length;
    STRATA_FREED char *joined = malloc(length);
    if (!joined ||
        !strata_make_room(&tokenizer->merges, tokenizer->n_merges, &tokenizer->merges_capacity, sizeof(strata_merge)))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "tokenizer: no host memory for %d merges", tokenizer->n_merges + 1);
    memcpy(joined, tokens->pool.bytes + a->first, a->length);
    memcpy(joined + a->length, tokens->pool.bytes + b->first, b->length);
    STRATA_TRY(strata_dictionary_add(&tokenizer->tokens, joined, length, &index, err));
    STRATA_TRY(strata_dictionary_add(&tokenizer->ranks, key, sizeof key, &rank, err));
    tokenizer->merges[tokenizer->n_merges++] = (strata_merge){left, right, index + STRATA_FIRST_TOKEN};
    return STRATA_OK;
}

/* Replaces each pair (left, right) in ids[0..n) by the merge's result, from left to right. Returns the new n. */
static int join(int32_t *ids, int n, const strata_merge *merge) {
    int out = 0;
    for (int i = 0; i < n; i++) {
        bool joins = i + 1 < n && ids[i] == merge->left && ids[i + 1] == merge->right;
        ids[out++] = joins ? merge->result : ids[i];
        i += joins;
    }
    return out;
}

int strata_subwords_encode(const strata_tokenizer *tokenizer, const char *word, size_t length, int32_t *out_ids) {
    int n = split_word(tokenizer, word, length, out_ids);
    for (;;) {
        int32_t best = -1;
        for (int i = 0; i + 1 < n; i++) {
            int32_t rank = find_rank(tokenizer, out_ids[i], out_ids[i + 1]);
            if (rank >= 0 && (best < 0 || rank < best)) best = rank;
        }
        if (best < 0) return n;
        n = join(out_ids, n, &tokenizer->merges[best]);
    }
}

/* ---- training ---- */

typedef struct pair {
    int64_t count;
    int32_t *words; /* the words in which the pair occurs, or did before other merges; some may be listed several times */
    int32_t n_words;
    int64_t capacity;
} pair;

typedef struct candidate {
    int64_t count; /* the pair's count when this entry was added to the heap */
    int32_t pair;
} candidate;

typedef struct trainer {
    strata_tokenizer *tokenizer;
    const strata_dictionary *words;
    /* The tokens of word w are ids[first .. first + length) of its place. A merge shortens a word in place. */
    int32_t *ids;
    struct place {
        size_t first;
        int length;
    } * places;
    /* The number of the string {left, right} is the pair's index in `pairs`. */
    strata_dictionary keys;
    pair *pairs;
    candidate *heap;
    size_t n_heap;
    int64_t pairs_capacity, heap_capacity;
    strata_error *err;
} trainer;

static void trainer_finish(trainer *t) {
    for (int32_t p = 0; p < t->keys.n && p < t->pairs_capacity; p++) free(t->pairs[p].words);
    free(t->pairs);
    free(t->heap);
    free(t->ids);
    free(t->places);
    strata_dictionary_finish(&t->keys);
}

static strata_status no_memory(const trainer *t) {
    return strata_fail(t->err, STRATA_OUT_OF_MEMORY, "tokenizer: no host memory for %d pairs", t->keys.n);
}

static void ids_of(const trainer *t, int32_t p, int32_t out[2]) {
    memcpy(out, strata_dictionary_string(&t->keys, p), 2 * sizeof *out);
}

/* Whether a is merged before b: the pair with the larger count, or of equal ones that with the smaller ids. */
static bool before(const trainer *t, candidate a, candidate b) {
    int32_t x[2], y[2];
    if (a.count != b.count) return a.count > b.count;
    ids_of(t, a.pair, x);
    ids_of(t, b.pair, y);
    return x[0] != y[0] ? x[0] < y[0] : x[1] < y[1];
}

static strata_status push(trainer *t, int32_t p) {
    if (!strata_make_room(&t->heap, (int64_t)t->n_heap, &t->heap_capacity, sizeof *t->heap)) return no_memory(t);
    candidate added = {t->pairs[p].count, p};
    size_t at = t->n_heap++;
    for (; at && before(t, added, t->heap[(at - 1) / 2]); at = (at - 1) / 2) t->heap[at] = t->heap[(at - 1) / 2];
    t->heap[at] = added;
    return STRATA_OK;
}

static candidate pop(trainer *t) {
    candidate top = t->heap[0], last = t->heap[--t->n_heap];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < t->n_heap; at = child) {
        if (child + 1 < t->n_heap && before(t, t->heap[child + 1], t->heap[child])) child++;
        if (!before(t, t->heap[child], last)) break;
        t->heap[at] = t->heap[child];
    }
    t->heap[at] = last;
    return top;
}

/* Finds the index of a pair, after adding it if it is new. */
static strata_status find_pair(trainer *t, const int32_t *ids, int32_t *out_pair) {
    int32_t before_n = t->keys.n;
    STRATA_TRY(strata_dictionary_add(&t->keys, ids, 2 * sizeof *ids, out_pair, t->err));
    if (t->keys.n == before_n) return STRATA_OK;
    if (!strata_make_room(&t->pairs, before_n, &t->pairs_capacity, sizeof *t->pairs)) return no_memory(t);
    t->pairs[*out_pair] = (pair){0};
    return STRATA_OK;
}

static strata_status add_word(trainer *t, pair *p, int32_t word) {
    if (p->n_words && p->words[p->n_words - 1] == word) return STRATA_OK;
    if (!strata_make_room(&p->words, p->n_words, &p->capacity, sizeof *p->words)) return no_memory(t);
    p->words[p->n_words++] = word;
    return STRATA_OK;
}

/* Adds sign * (the word's count) to the count of each pair of adjacent tokens in the word; sign is 1 or -1. With sign 1 the
 * word is also added to the lists of words of its pairs: of all pairs if `merged` is 0, else of those that contain the token
 * `merged`, the result of a merge. These pairs are then added to the heap. */
static strata_status count_pairs(trainer *t, int32_t word, int sign, int32_t merged) {
    const int32_t *ids = t->ids + t->places[word].first;
    for (int i = 0; i + 1 < t->places[word].length; i++) {
        int32_t p;
        if (ids[i] < STRATA_FIRST_TOKEN || ids[i + 1] < STRATA_FIRST_TOKEN) continue;
        STRATA_TRY(find_pair(t, ids + i, &p));
        t->pairs[p].count += sign * t->words->entries[word].count;
        if (sign < 0 || (merged && ids[i] != merged && ids[i + 1] != merged)) continue;
        STRATA_TRY(add_word(t, &t->pairs[p], word));
        if (merged) STRATA_TRY(push(t, p));
    }
    return STRATA_OK;
}

static strata_status merge_everywhere(trainer *t, int32_t p) {
    int32_t key[2];
    ids_of(t, p, key);
    STRATA_TRY(strata_tokenizer_add_merge(t->tokenizer, key[0], key[1], t->err));
    const strata_merge merge = t->tokenizer->merges[t->tokenizer->n_merges - 1];
    int32_t *words = t->pairs[p].words, n_words = t->pairs[p].n_words;
    t->pairs[p].words = NULL; /* the list is in `words` now, since count_pairs may move the table of pairs */
    t->pairs[p].n_words = 0, t->pairs[p].capacity = 0;
    strata_status status = STRATA_OK;
    for (int32_t i = 0; i < n_words && !status; i++) {
        struct place *place = &t->places[words[i]];
        status = count_pairs(t, words[i], -1, 0);
        place->length = join(t->ids + place->first, place->length, &merge);
        if (!status) status = count_pairs(t, words[i], 1, merge.result);
    }
    free(words);
    return status;
}

static strata_status split_words(trainer *t) {
    size_t n = 0;
    for (int32_t i = 0; i < t->words->n; i++) n += t->words->entries[i].length + 1;
    if (!(t->ids = strata_zeroed(n, sizeof *t->ids))) return no_memory(t);
    if (!(t->places = strata_zeroed((size_t)t->words->n, sizeof *t->places))) return no_memory(t);
    n = 0;
    for (int32_t i = 0; i < t->words->n; i++) {
        const char *word = strata_dictionary_string(t->words, i);
        t->places[i] = (struct place){n, split_word(t->tokenizer, word, t->words->entries[i].length, t->ids + n)};
        n += (size_t)t->places[i].length;
        STRATA_TRY(count_pairs(t, i, 1, 0));
    }
    for (int32_t p = 0; p < t->keys.n; p++) STRATA_TRY(push(t, p));
    return STRATA_OK;
}

static strata_status train(trainer *t, int64_t vocabulary, int64_t least_count) {
    STRATA_TRY(split_words(t));
    while (t->n_heap && strata_tokenizer_size(t->tokenizer) < vocabulary) {
        candidate top = pop(t);
        int64_t count = t->pairs[top.pair].count;
        if (count < least_count || count < 2) continue;
        if (count < top.count)
            STRATA_TRY(push(t, top.pair));
        else if (count == top.count)
            STRATA_TRY(merge_everywhere(t, top.pair));
    }
    return STRATA_OK;
}

strata_status strata_subwords_train(strata_tokenizer *tokenizer, const strata_dictionary *words, int64_t vocabulary,
                                    int64_t least_count, strata_error *err) {
    STRATA_FINISHED(trainer) t = {.tokenizer = tokenizer, .words = words, .err = err};
    STRATA_TRY(find_characters(tokenizer, words, vocabulary, err));
    return train(&t, vocabulary, least_count);
}
