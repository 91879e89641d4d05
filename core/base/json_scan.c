/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks JSON text by recursive descent, with one function for each rule of the grammar. It allocates no memory, and
 * its depth is bounded. It stops at the first error and reports line and column, which cJSON does not. */
#include "core/base/json_scan.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/base/json.h"

enum { LONGEST_NUMBER = 60 }; /* cJSON copies a number into 63 bytes and drops the rest */

typedef struct scan {
    const char *name;
    const char *text;
    size_t n_bytes;
    size_t at;      /* offset of the next byte */
    size_t ordinal; /* of the next token */
    size_t target;  /* ordinal whose offset is wanted */
    size_t found;   /* that offset */
    int depth;
    strata_error *err;
} scan;

strata_status strata_json_scan_fail(strata_error *err, const char *name, const char *text, size_t offset, const char *format,
                                    ...) {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)text[i] & 0xC0) != 0x80) {
            column++;
        }
    }
    va_list arguments;
    va_start(arguments, format);
    strata_fail_v(err, STRATA_DATA, format, arguments);
    va_end(arguments);
    return strata_fail_in(err, STRATA_DATA, "%s:%zu:%zu", name, line, column);
}

/* The byte at s->at as a message shows it. */
typedef struct shown_byte {
    char text[24];
} shown_byte;

static shown_byte show(const scan *s) {
    shown_byte shown;
    if (s->at >= s->n_bytes) {
        snprintf(shown.text, sizeof shown.text, "the end of the text");
    } else if (s->text[s->at] >= ' ' && s->text[s->at] < 127) {
        snprintf(shown.text, sizeof shown.text, "'%c'", s->text[s->at]);
    } else {
        snprintf(shown.text, sizeof shown.text, "byte 0x%02X", (unsigned char)s->text[s->at]);
    }
    return shown;
}

static strata_status expected(const scan *s, const char *what) {
    return strata_json_scan_fail(s->err, s->name, s->text, s->at, "expected %s, found %s", what, show(s).text);
}

static int peek(const scan *s) {
    return s->at < s->n_bytes ? (unsigned char)s->text[s->at] : -1;
}

static bool take(scan *s, char byte) {
    if (peek(s) != byte) return false;
    s->at++;
    return true;
}

static void skip_space(scan *s) {
    while (s->at < s->n_bytes && s->text[s->at] && strchr(" \t\r\n", s->text[s->at])) s->at++;
}

static void begin_token(scan *s) {
    if (s->ordinal++ == s->target) s->found = s->at;
}

static strata_status scan_utf8(scan *s) {
    size_t length = strata_utf8_length(s->text + s->at, s->n_bytes - s->at);
    if (length == 0) return strata_json_scan_fail(s->err, s->name, s->text, s->at, "%s is not valid UTF-8", show(s).text);
    s->at += length;
    return STRATA_OK;
}

static strata_status scan_hex4(scan *s, unsigned *out_code) {
    *out_code = 0;
    for (int i = 0; i < 4; i++) {
        int byte = peek(s);
        const char *digits = "0123456789abcdefABCDEF";
        const char *digit = byte > 0 ? strchr(digits, byte) : NULL;
        if (!digit) return expected(s, "four hexadecimal digits after \\u");
        unsigned value = (unsigned)(digit - digits);
        *out_code = *out_code * 16 + (value > 15 ? value - 6 : value);
        s->at++;
    }
    return STRATA_OK;
}

/* Scans an escape; s->at is after its backslash. */
static strata_status scan_escape(scan *s) {
    size_t start = s->at - 1;
    int byte = peek(s);
    if (byte > 0 && strchr("\"\\/bfnrt", byte)) {
        s->at++;
        return STRATA_OK;
    }
    if (byte != 'u') return expected(s, "one of \" \\ / b f n r t u after \\");
    s->at++;
    unsigned code, low = 0;
    STRATA_TRY(scan_hex4(s, &code));
    if (code == 0) return strata_json_scan_fail(s->err, s->name, s->text, start, "\\u0000 is not allowed in a string");
    if (code < 0xD800 || code > 0xDFFF) return STRATA_OK;
    bool paired = code <= 0xDBFF && take(s, '\\') && take(s, 'u');
    if (paired) STRATA_TRY(scan_hex4(s, &low));
    if (low >= 0xDC00 && low <= 0xDFFF) return STRATA_OK;
    return strata_json_scan_fail(s->err, s->name, s->text, start, "\\u%04X is half of a surrogate pair, without its other half",
                                 code);
}

static strata_status scan_string(scan *s) {
    size_t start = s->at;
    if (!take(s, '"')) return expected(s, "a string in double quotes");
    for (;;) {
        int byte = peek(s);
        if (byte < 0) return strata_json_scan_fail(s->err, s->name, s->text, start, "this string has no closing quote");
        if (byte < 0x20) {
            return strata_json_scan_fail(s->err, s->name, s->text, s->at, "%s in a string must be written as an escape",
                                         show(s).text);
        }
        if (byte >= 0x80) {
            STRATA_TRY(scan_utf8(s));
            continue;
        }
        s->at++;
        if (byte == '"') return STRATA_OK;
        if (byte == '\\') STRATA_TRY(scan_escape(s));
    }
}

static strata_status scan_digits(scan *s, const char *where) {
    if (peek(s) < '0' || peek(s) > '9') return expected(s, where);
    while (peek(s) >= '0' && peek(s) <= '9') s->at++;
    return STRATA_OK;
}

static strata_status scan_number(scan *s) {
    size_t start = s->at;
    take(s, '-');
    if (take(s, '0')) {
        if (peek(s) >= '0' && peek(s) <= '9') {
            return strata_json_scan_fail(s->err, s->name, s->text, start, "a number must not begin with 0");
        }
    } else {
        STRATA_TRY(scan_digits(s, "a digit"));
    }
    if (take(s, '.')) STRATA_TRY(scan_digits(s, "a digit after the point"));
    if (take(s, 'e') || take(s, 'E')) {
        if (!take(s, '+')) take(s, '-');
        STRATA_TRY(scan_digits(s, "a digit in the exponent"));
    }
    if (s->at - start > LONGEST_NUMBER) {
        return strata_json_scan_fail(s->err, s->name, s->text, start, "a number of %zu characters is too long; at most %d",
                                     s->at - start, LONGEST_NUMBER);
    }
    return STRATA_OK;
}

static strata_status scan_value(scan *s);

/* Scans the items between two brackets; `closing` is the closing bracket. */
static strata_status scan_items(scan *s, char closing) {
    const bool is_object = closing == '}';
    if (++s->depth > STRATA_JSON_MAX_DEPTH) {
        return strata_json_scan_fail(s->err, s->name, s->text, s->at, "nested deeper than %d levels", STRATA_JSON_MAX_DEPTH);
    }
    s->at++;
    skip_space(s);
    if (!take(s, closing)) {
        for (;;) {
            if (is_object) {
                begin_token(s);
                if (peek(s) != '"') return expected(s, "a key in double quotes");
                STRATA_TRY(scan_string(s));
                skip_space(s);
                if (!take(s, ':')) return expected(s, "':' after a key");
                skip_space(s);
            }
            STRATA_TRY(scan_value(s));
            skip_space(s);
            if (take(s, closing)) break;
            if (!take(s, ',')) return expected(s, is_object ? "',' or '}'" : "',' or ']'");
            skip_space(s);
        }
    }
    s->depth--;
    return STRATA_OK;
}

static strata_status scan_word(scan *s) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i]);
        if (s->n_bytes - s->at >= length && memcmp(s->text + s->at, words[i], length) == 0) {
            s->at += length;
            return STRATA_OK;
        }
    }
    return expected(s, "a value");
}

static strata_status scan_value(scan *s) {
    begin_token(s);
    int byte = peek(s);
    if (byte == '{') return scan_items(s, '}');
    if (byte == '[') return scan_items(s, ']');
    if (byte == '"') return scan_string(s);
    if (byte == '-' || (byte >= '0' && byte <= '9')) return scan_number(s);
    return scan_word(s);
}

strata_status strata_json_scan(const char *name, const char *text, size_t n_bytes, strata_error *err) {
    scan s = {.name = name, .text = text, .n_bytes = n_bytes, .target = SIZE_MAX, .err = err};
    if (n_bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        return strata_json_scan_fail(err, name, text, 0, "begins with a byte order mark; save it as UTF-8 without one");
    }
    skip_space(&s);
    STRATA_TRY(scan_value(&s));
    skip_space(&s);
    if (s.at < n_bytes) return expected(&s, "nothing after the value");
    return STRATA_OK;
}

size_t strata_json_scan_offset(const char *text, size_t n_bytes, size_t ordinal) {
    scan s = {.name = "", .text = text, .n_bytes = n_bytes, .target = ordinal};
    skip_space(&s);
    return scan_value(&s) ? 0 : s.found;
}
