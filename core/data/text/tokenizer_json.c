/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers as JSON: {"kind": "words", "tokens": ["the", ...]}, where the first token has the id 2; or {"kind": "subwords",
 * "characters": [" ", "e", ...], "merges": [3, 2, ...]}, where the first character has the id 2. Each two numbers of `merges`
 * are the ids of a pair. The string that the pair joins to gets the next id, unless it has one already. */
#include "core/base/json.h"
#include "core/data/text/tokenizer.h"

static const char *const kinds[] = {[STRATA_TOKENIZER_WORDS] = "words", [STRATA_TOKENIZER_SUBWORDS] = "subwords"};

strata_status strata_tokenizer_to_json(const strata_tokenizer *tokenizer, char **out_text, strata_error *err) {
    strata_json_writer writer = {0};
    bool words = tokenizer->kind == STRATA_TOKENIZER_WORDS;
    int32_t n = words ? tokenizer->tokens.n : tokenizer->n_characters;
    strata_json_begin_object(&writer);
    strata_json_write_string(strata_json_key(&writer, "kind"), kinds[tokenizer->kind]);
    strata_json_begin_array(strata_json_key(&writer, words ? "tokens" : "characters"));
    for (int32_t i = 0; i < n; i++) strata_json_write_string(&writer, strata_dictionary_string(&tokenizer->tokens, i));
    strata_json_end_array(&writer);
    if (!words) {
        strata_json_begin_array(strata_json_key(&writer, "merges"));
        for (int32_t i = 0; i < tokenizer->n_merges; i++) {
            strata_json_write_int(&writer, tokenizer->merges[i].left);
            strata_json_write_int(&writer, tokenizer->merges[i].right);
        }
        strata_json_end_array(&writer);
    }
    strata_json_end_object(&writer);
    return strata_json_take(&writer, out_text, NULL, err);
}

/* Reads the tokens, which must differ from each other. A word has at most STRATA_LONGEST_WORD bytes, a character is a single
 * character of UTF-8. */
static strata_status read_tokens(strata_tokenizer *tokenizer, const strata_json *list, strata_error *err) {
    strata_json item;
    STRATA_TRY(strata_json_expect(list, STRATA_JSON_ARRAY, err));
    for (bool more = strata_json_first(list, &item); more; more = strata_json_next(&item)) {
        const char *token;
        int32_t before = tokenizer->tokens.n, index;
        STRATA_TRY(strata_json_to_string(&item, &token, err));
        size_t length = strlen(token);
        bool fits = tokenizer->kind == STRATA_TOKENIZER_WORDS ? length <= STRATA_LONGEST_WORD
                                                              : strata_utf8_length(token, length) == length;
        if (!length || !fits)
            return strata_json_fail(
                &item, err, STRATA_DATA,
                tokenizer->kind == STRATA_TOKENIZER_WORDS ? "must be a word of 1 to %d bytes" : "must be one character",
                STRATA_LONGEST_WORD);
        STRATA_TRY(strata_dictionary_add(&tokenizer->tokens, token, length, &index, err));
        if (tokenizer->tokens.n == before)
            return strata_json_fail(&item, err, STRATA_DATA, "\"%s\" is given twice, the first time as token %d", token,
                                    index + STRATA_FIRST_TOKEN);
    }
    if (tokenizer->tokens.n) return STRATA_OK;
    return strata_json_fail(list, err, STRATA_DATA, "must not be empty");
}

static strata_status read_merges(strata_tokenizer *tokenizer, const strata_json *list, strata_error *err) {
    strata_json item;
    int64_t sides[2];
    int n_sides = 0;
    STRATA_TRY(strata_json_expect(list, STRATA_JSON_ARRAY, err));
    for (bool more = strata_json_first(list, &item); more; more = strata_json_next(&item)) {
        STRATA_TRY(strata_json_to_int(&item, STRATA_FIRST_TOKEN, strata_tokenizer_size(tokenizer) - 1, &sides[n_sides++], err));
        if (n_sides < 2) continue;
        n_sides = 0;
        int32_t before = tokenizer->n_merges;
        const struct strata_dictionary_entry *entries = tokenizer->tokens.entries;
        if (entries[sides[0] - STRATA_FIRST_TOKEN].length + entries[sides[1] - STRATA_FIRST_TOKEN].length >
            STRATA_LONGEST_WORD + 1)
            return strata_json_fail(&item, err, STRATA_DATA, "joins to more than %d bytes", STRATA_LONGEST_WORD + 1);
        STRATA_TRY(strata_tokenizer_add_merge(tokenizer, (int32_t)sides[0], (int32_t)sides[1], err));
        if (tokenizer->ranks.n != before + 1) return strata_json_fail(&item, err, STRATA_DATA, "this pair is given twice");
    }
    return n_sides ? strata_json_fail(list, err, STRATA_DATA, "must be pairs of ids, but has an odd number") : STRATA_OK;
}

static strata_status read_object(strata_tokenizer *tokenizer, const strata_json *root, strata_error *err) {
    static const char *const keys[] = {"kind", "tokens", "characters", "merges"};
    const char *kind = NULL;
    strata_json list;
    STRATA_TRY(strata_json_expect(root, STRATA_JSON_OBJECT, err));
    STRATA_TRY(strata_json_check_keys(root, keys, sizeof keys / sizeof *keys, err));
    STRATA_TRY(strata_json_get_string(root, "kind", STRATA_JSON_REQUIRED, &kind, err));
    bool words = !strcmp(kind, kinds[STRATA_TOKENIZER_WORDS]);
    if (!words && strcmp(kind, kinds[STRATA_TOKENIZER_SUBWORDS]))
        return strata_json_fail(root, err, STRATA_DATA, "kind is \"%s\"; there are: words, subwords", kind);
    tokenizer->kind = words ? STRATA_TOKENIZER_WORDS : STRATA_TOKENIZER_SUBWORDS;
    STRATA_TRY(strata_json_get(root, words ? "tokens" : "characters", &list, err));
    STRATA_TRY(read_tokens(tokenizer, &list, err));
    tokenizer->n_characters = words ? 0 : tokenizer->tokens.n;
    if (words) return STRATA_OK;
    STRATA_TRY(strata_json_get(root, "merges", &list, err));
    return read_merges(tokenizer, &list, err);
}

strata_status strata_tokenizer_from_json(const char *text, size_t n_bytes, const char *source, strata_tokenizer **out_tokenizer,
                                         strata_error *err) {
    STRATA_FINISHED(strata_json) root = {0};
    STRATA_OWNED(strata_tokenizer) *tokenizer = NULL;
    STRATA_TRY(STRATA_NEW(tokenizer, 1, err, "tokenizer: no host memory"));
    STRATA_TRY(strata_json_parse(source, text, n_bytes, (size_t)1 << 28, &root, err));
    STRATA_TRY(read_object(tokenizer, &root, err));
    *out_tokenizer = strata_released(&tokenizer);
    return STRATA_OK;
}
