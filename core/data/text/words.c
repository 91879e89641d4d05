/* SPDX-License-Identifier: Apache-2.0
 *
 * Dividing texts into words: which characters belong to words, and which are their lower-case letters. */
#include "core/data/text/tokenizer.h"

/* ---- characters ---- */

static uint32_t decode(const char *at, size_t length) {
    const unsigned char *b = (const unsigned char *)at;
    switch (length) {
        case 1:
            return b[0];
        case 2:
            return (b[0] & 0x1Fu) << 6 | (b[1] & 0x3Fu);
        case 3:
            return (b[0] & 0x0Fu) << 12 | (b[1] & 0x3Fu) << 6 | (b[2] & 0x3Fu);
        default:
            return (b[0] & 0x07u) << 18 | (b[1] & 0x3Fu) << 12 | (b[2] & 0x3Fu) << 6 | (b[3] & 0x3Fu);
    }
}

/* Ranges of capital letters: first, first + step, ... last. Adding `shift` to one gives its lower-case letter. */
static const struct {
    uint32_t first, last, step;
    int32_t shift;
} capitals[] = {
    {'A', 'Z', 1, 32},     {0xC0, 0xD6, 1, 32},   {0xD8, 0xDE, 1, 32},   {0x100, 0x12E, 2, 1},
    {0x132, 0x136, 2, 1},  {0x139, 0x147, 2, 1},  {0x14A, 0x176, 2, 1},  {0x178, 0x178, 1, 0xFF - 0x178},
    {0x179, 0x17D, 2, 1},  {0x386, 0x386, 1, 38}, {0x388, 0x38A, 1, 37}, {0x38C, 0x38C, 1, 64},
    {0x38E, 0x38F, 1, 63}, {0x391, 0x3A1, 1, 32}, {0x3A3, 0x3AB, 1, 32}, {0x400, 0x40F, 1, 80},
    {0x410, 0x42F, 1, 32}, {0x460, 0x480, 2, 1},  {0x48A, 0x4BE, 2, 1},  {0x4D0, 0x52E, 2, 1},
};

static uint32_t lower(uint32_t c) {
    for (size_t i = 0; i < sizeof capitals / sizeof *capitals; i++)
        if (c >= capitals[i].first && c <= capitals[i].last && (c - capitals[i].first) % capitals[i].step == 0)
            return (uint32_t)((int32_t)c + capitals[i].shift);
    return c;
}

static bool is_apostrophe(uint32_t c) {
    return c == '\'' || c == 0x2019;
}

static bool in_word(uint32_t c) {
    if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return c > 0xBF && !(c >= 0x2000 && c <= 0x206F) && !(c >= 0x3000 && c <= 0x303F) && c != 0xFEFF && c != 0xD7 && c != 0xF7;
}

/* Whether the character is a word by itself: in Chinese, Japanese, Thai, Lao, Khmer and Burmese no spaces divide words. */
static bool stands_alone(uint32_t c) {
    return (c >= 0x3040 && c <= 0x30FF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x3FFFF) || (c >= 0x0E00 && c <= 0x0EFF) ||
           (c >= 0x1000 && c <= 0x109F) || (c >= 0x1780 && c <= 0x17FF);
}

/* ---- words ---- */

int64_t strata_count_words(const char *text) {
    int64_t n = 0;
    for (bool inside = false; *text;) {
        const size_t length = (unsigned char)*text < 0x80 ? 1 : strata_utf8_length(text, strlen(text));
        const bool blank = strchr(" \t\r\n", *text) != NULL;
        const bool alone = length > 1 && stands_alone(decode(text, length));
        n += alone || (!blank && !inside);
        inside = !blank && !alone;
        text += length ? length : 1;
    }
    return n;
}

typedef struct character {
    uint32_t code;
    size_t length; /* in bytes; 0: the text ends here */
} character;

/* Decodes the character at byte `at`. `place` names the text in messages. */
static strata_status decode_at(const strata_word_reader *r, size_t at, const char *place, character *out, strata_error *err) {
    *out = (character){0};
    if (at == r->n_bytes) return STRATA_OK;
    out->length = strata_utf8_length(r->text + at, r->n_bytes - at);
    if (!out->length)
        return strata_fail(err, STRATA_DATA, "%s: byte 0x%02X at %zu is not valid UTF-8", place, (unsigned char)r->text[at],
                           at);
    out->code = decode(r->text + at, out->length);
    return STRATA_OK;
}

/* The length in bytes of an HTML tag that begins at `at`, for example "<br />". 0: there is none, or it does not end within
 * LONGEST_TAG bytes. */
static size_t tag_length(const strata_word_reader *r, size_t at) {
    enum { LONGEST_TAG = 128 };
    const char *text = r->text + at;
    size_t left = r->n_bytes - at;
    if (left < 3 || text[0] != '<' || !(text[1] == '/' || text[1] == '!' || (text[1] | 32) >= 'a') || (text[1] | 32) > 'z')
        return 0;
    for (size_t i = 1; i < left && i < LONGEST_TAG && text[i] != '<'; i++)
        if (text[i] == '>') return i + 1;
    return 0;
}

/* Adds the ASCII letters and digits at r->at to the word. Most texts consist of them, so this needs to be fast. */
static void take_ascii(strata_word_reader *r) {
    for (; r->at < r->n_bytes && r->length + 4 <= STRATA_LONGEST_WORD; r->at++) {
        char c = r->text[r->at], low = (char)(c | 32);
        if (low >= 'a' && low <= 'z')
            r->word[r->length++] = low;
        else if (c >= '0' && c <= '9')
            r->word[r->length++] = c;
        else
            return;
    }
}

/* Reads the word that begins at r->at. */
static strata_status take_word(strata_word_reader *r, const char *place, strata_error *err) {
    character c, next;
    r->length = 0;
    for (;;) {
        take_ascii(r);
        STRATA_TRY(decode_at(r, r->at, place, &c, err));
        bool joins = false;
        if (c.length && is_apostrophe(c.code) && r->length) {
            STRATA_TRY(decode_at(r, r->at + c.length, place, &next, err));
            joins = next.length && in_word(next.code);
        }
        if (!c.length || !(in_word(c.code) || joins) || r->length + 4 > STRATA_LONGEST_WORD) break;
        const bool alone = stands_alone(c.code);
        if (alone && r->length) break;
        r->length += strata_utf8_encode(joins ? '\'' : lower(c.code), r->word + r->length);
        r->at += c.length;
        if (alone) break;
    }
    r->word[r->length] = 0;
    return STRATA_OK;
}

strata_status strata_word_next(strata_word_reader *reader, const char *place, bool *out_more, strata_error *err) {
    character c;
    *out_more = false;
    for (;;) {
        STRATA_TRY(decode_at(reader, reader->at, place, &c, err));
        if (!c.length) return STRATA_OK;
        *out_more = true;
        if (in_word(c.code)) return take_word(reader, place, err);
        size_t tag = c.code == '<' ? tag_length(reader, reader->at) : 0;
        if (c.code == '!' || c.code == '?') {
            reader->word[0] = (char)c.code;
            reader->word[reader->length = 1] = 0;
            reader->at++;
            return STRATA_OK;
        }
        reader->at += tag ? tag : c.length;
        *out_more = false;
    }
}
