/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing text, and edit distance for "did you mean". */
#include "core/base/text.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/ascii.h"
#include "core/base/locale.h"

/* Makes room for n_more bytes and the NUL. */
static bool reserve(strata_text *text, size_t n_more) {
    if (text->failed) return false;
    if (n_more >= SIZE_MAX / 4 - text->n_bytes) {
        text->failed = true;
        return false;
    }
    size_t wanted = text->n_bytes + n_more + 1;
    if (wanted <= text->capacity) return true;
    size_t capacity = text->capacity ? text->capacity : 64;
    while (capacity < wanted) capacity *= 2;
    char *bytes = realloc(text->bytes, capacity);
    if (!bytes) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void strata_text_add_bytes(strata_text *text, const void *bytes, size_t n_bytes) {
    if (!reserve(text, n_bytes)) return;
    if (n_bytes) memcpy(text->bytes + text->n_bytes, bytes, n_bytes);
    text->n_bytes += n_bytes;
    text->bytes[text->n_bytes] = '\0';
}

void strata_text_add(strata_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = strata_format_v(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) {
        text->failed = true;
        return;
    }
    if (!reserve(text, (size_t)length)) return;
    va_start(arguments, format);
    strata_format_v(text->bytes + text->n_bytes, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->n_bytes += (size_t)length;
}

strata_status strata_text_take(strata_text *text, char **out_string, size_t *out_n_bytes, strata_error *err) {
    strata_text_add_bytes(text, "", 0);
    if (text->failed) {
        size_t n_bytes = text->n_bytes;
        strata_text_finish(text);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a text of more than %zu bytes", n_bytes);
    }
    *out_string = text->bytes;
    if (out_n_bytes) *out_n_bytes = text->n_bytes;
    *text = (strata_text){0};
    return STRATA_OK;
}

void strata_text_finish(strata_text *text) {
    if (!text) return;
    free(text->bytes);
    *text = (strata_text){0};
}

size_t strata_utf8_length(const void *at, size_t n_bytes) {
    const unsigned char *b = at;
    if (n_bytes == 0) return 0;
    size_t length = b[0] < 0x80                    ? 1
                    : b[0] >= 0xC2 && b[0] <= 0xDF ? 2
                    : b[0] >= 0xE0 && b[0] <= 0xEF ? 3
                    : b[0] >= 0xF0 && b[0] <= 0xF4 ? 4
                                                   : 0;
    if (length < 2) return length;
    if (length > n_bytes) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((b[i] & 0xC0) != 0x80) return 0;
    }
    bool too_long = (b[0] == 0xE0 && b[1] < 0xA0) || (b[0] == 0xF0 && b[1] < 0x90);
    bool surrogate = b[0] == 0xED && b[1] > 0x9F, beyond = b[0] == 0xF4 && b[1] > 0x8F;
    return too_long || surrogate || beyond ? 0 : length;
}

size_t strata_utf8_encode(uint32_t c, char *out) {
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) return out[0] = (char)(0xC0 | c >> 6), out[1] = (char)(0x80 | (c & 0x3F)), 2;
    if (c < 0x10000)
        return out[0] = (char)(0xE0 | c >> 12), out[1] = (char)(0x80 | (c >> 6 & 0x3F)), out[2] = (char)(0x80 | (c & 0x3F)), 3;
    out[0] = (char)(0xF0 | c >> 18), out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F)), out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

bool strata_utf8_valid(const char *string) {
    size_t n_bytes = strlen(string);
    for (size_t i = 0; i < n_bytes;) {
        size_t length = strata_utf8_length(string + i, n_bytes - i);
        if (length == 0) return false;
        i += length;
    }
    return true;
}

enum { LONGEST_WORD = 63 };

static unsigned min3(unsigned a, unsigned b, unsigned c) {
    unsigned least = a < b ? a : b;
    return least < c ? least : c;
}

/* The number of edits (change, add or leave out a character, swap neighbours) that turn a into b: optimal string
 * alignment, with three rows of the table in memory. */
static unsigned edit_distance(const char *a, size_t n_a, const char *b, size_t n_b) {
    unsigned rows[3][LONGEST_WORD + 1];
    for (unsigned j = 0; j <= n_b; j++) rows[0][j] = j;
    for (unsigned i = 1; i <= n_a; i++) {
        unsigned *now = rows[i % 3];
        const unsigned *last = rows[(i + 2) % 3], *before_last = rows[(i + 1) % 3];
        now[0] = i;
        for (unsigned j = 1; j <= n_b; j++) {
            int x = strata_ascii_lower(a[i - 1]), y = strata_ascii_lower(b[j - 1]);
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (x != y));
            bool swapped = i > 1 && j > 1 && x == strata_ascii_lower(b[j - 2]) && y == strata_ascii_lower(a[i - 2]);
            if (swapped && before_last[j - 2] + 1 < now[j]) now[j] = before_last[j - 2] + 1;
        }
    }
    return rows[n_a % 3][n_b];
}

const char *strata_nearest_name(const char *word, const char *const *names, size_t n_names) {
    size_t n_word = strnlen(word, LONGEST_WORD + 1);
    if (n_word == 0 || n_word > LONGEST_WORD) return NULL;
    const char *nearest = NULL;
    unsigned least = 0;
    for (size_t i = 0; i < n_names; i++) {
        size_t n_name = strnlen(names[i], LONGEST_WORD + 1);
        if (n_name > LONGEST_WORD) continue;
        size_t longer = n_word > n_name ? n_word : n_name;
        unsigned distance = edit_distance(word, n_word, names[i], n_name);
        if (distance <= (longer + 2) / 3 && (size_t)distance < longer && (!nearest || distance < least)) {
            nearest = names[i];
            least = distance;
        }
    }
    return nearest;
}

strata_hint strata_nearest_hint(const char *word, char *const *names, int n_names) {
    const char *nearest = strata_nearest_name(word, (const char *const *)names, (size_t)n_names);
    strata_hint hint = {""};
    if (nearest) snprintf(hint.text, sizeof hint.text, "; the nearest is \"%s\"", nearest);
    return hint;
}

/* ---- lists of strings ---- */

int strata_by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

strata_status strata_names_copy(const char *const *names, int n_names, char ***out_names, strata_error *err) {
    size_t n_bytes = 0;
    *out_names = NULL;
    if (n_names < 1) return STRATA_OK;
    for (int i = 0; i < n_names; i++) n_bytes += sizeof *names + strlen(names[i]) + 1;
    if (!(*out_names = malloc(n_bytes)))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a list of %d names", n_names);
    char *at = (char *)(*out_names + n_names);
    for (int i = 0; i < n_names; i++) at = stpcpy((*out_names)[i] = at, names[i]) + 1;
    return STRATA_OK;
}
