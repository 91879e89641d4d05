/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses JSON text by recursive descent, with one function for each rule of the grammar, to cJSON's tree. Accepts exactly RFC
 * 8259 with valid UTF-8, no \u0000, no key twice in an object, numbers of at most LONGEST_NUMBER characters that a double can
 * have, and STRATA_JSON_MAX_DEPTH levels of arrays and objects. cJSON's own parser accepts more, and reports no line. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>

#include "core/base/alloc.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/locale.h"

enum { LONGEST_NUMBER = 60 };

typedef struct scan {
    const char *name;
    const char *text;
    size_t n_bytes;
    size_t at; /* offset of the next byte */
    int depth;
    /* A stack of the keys of the objects that are open. */
    struct key {
        const char *text;
        size_t offset;
    } * keys;
    int64_t n_keys, keys_capacity;
    strata_error *err;
} scan;

/* Fails with "name:line:column: message" for an offset in the text. Lines and columns count from 1; columns count
 * characters. */
static strata_status fail_at(const scan *s, size_t offset, const char *format, ...) STRATA_PRINTF(3, 4);
static strata_status fail_at(const scan *s, size_t offset, const char *format, ...) {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < offset; i++) {
        column += ((unsigned char)s->text[i] & 0xC0) != 0x80;
        if (s->text[i] == '\n') line++, column = 1;
    }
    va_list arguments;
    va_start(arguments, format);
    strata_fail_v(s->err, STRATA_DATA, format, arguments);
    va_end(arguments);
    return strata_fail_in(s->err, STRATA_DATA, "%s:%zu:%zu", s->name, line, column);
}

static strata_status no_memory(const scan *s) {
    return strata_fail(s->err, STRATA_OUT_OF_MEMORY, "%s: no host memory for a JSON text of %zu bytes", s->name, s->n_bytes);
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
    return fail_at(s, s->at, "expected %s, found %s", what, show(s).text);
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

static strata_status scan_hex4(scan *s, uint32_t *out_code) {
    *out_code = 0;
    for (int i = 0; i < 4; i++) {
        int byte = peek(s);
        const char *digits = "0123456789abcdefABCDEF";
        const char *digit = byte > 0 ? strchr(digits, byte) : NULL;
        if (!digit) return expected(s, "four hexadecimal digits after \\u");
        uint32_t value = (uint32_t)(digit - digits);
        *out_code = *out_code * 16 + (value > 15 ? value - 6 : value);
        s->at++;
    }
    return STRATA_OK;
}

/* Scans an escape; s->at is at its backslash. Writes the character to *out and moves it on. */
static strata_status scan_escape(scan *s, char **out) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const size_t start = s->at++;
    const int byte = peek(s);
    const char *letter = byte > 0 ? strchr(letters, byte) : NULL;
    if (!letter && byte != 'u') return expected(s, "one of \" \\ / b f n r t u after \\");
    s->at++;
    if (letter) {
        *(*out)++ = meanings[letter - letters];
        return STRATA_OK;
    }
    uint32_t code, low = 0;
    STRATA_TRY(scan_hex4(s, &code));
    if (code == 0) return fail_at(s, start, "\\u0000 is not allowed in a string");
    const bool half = code >= 0xD800 && code <= 0xDFFF;
    if (half && code <= 0xDBFF && take(s, '\\') && take(s, 'u')) STRATA_TRY(scan_hex4(s, &low));
    if (half && (low < 0xDC00 || low > 0xDFFF))
        return fail_at(s, start, "\\u%04X is half of a surrogate pair, without its other half", (unsigned)code);
    *out += strata_utf8_encode(half ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : code, *out);
    return STRATA_OK;
}

/* *out_string belongs to a node of the tree, also on failure. */
static strata_status scan_string(scan *s, char **out_string) {
    const size_t start = s->at;
    size_t end = start + 1;
    if (!take(s, '"')) return expected(s, "a string in double quotes");
    while (end < s->n_bytes && s->text[end] != '"') end += s->text[end] == '\\' ? 2 : 1;
    char *out = *out_string = cJSON_malloc(end - start); /* no character is longer than its escape */
    if (!out) return no_memory(s);
    *out = 0;
    for (size_t length; !take(s, '"');) {
        const int byte = peek(s);
        if (byte < 0) return fail_at(s, start, "this string has no closing quote");
        if (byte < 0x20) return fail_at(s, s->at, "%s in a string must be written as an escape", show(s).text);
        if (byte == '\\') {
            STRATA_TRY(scan_escape(s, &out));
            continue;
        }
        length = strata_utf8_length(s->text + s->at, s->n_bytes - s->at);
        if (!length) return fail_at(s, s->at, "%s is not valid UTF-8", show(s).text);
        memcpy(out, s->text + s->at, length);
        out += length, s->at += length;
    }
    *out = 0;
    return STRATA_OK;
}

static strata_status scan_digits(scan *s, const char *where) {
    if (peek(s) < '0' || peek(s) > '9') return expected(s, where);
    while (peek(s) >= '0' && peek(s) <= '9') s->at++;
    return STRATA_OK;
}

static strata_status scan_number(scan *s, double *out) {
    char digits[LONGEST_NUMBER + 1] = "";
    const size_t start = s->at;
    take(s, '-');
    if (!take(s, '0'))
        STRATA_TRY(scan_digits(s, "a digit"));
    else if (peek(s) >= '0' && peek(s) <= '9')
        return fail_at(s, start, "a number must not begin with 0");
    if (take(s, '.')) STRATA_TRY(scan_digits(s, "a digit after the point"));
    if (take(s, 'e') || take(s, 'E')) {
        if (!take(s, '+')) take(s, '-');
        STRATA_TRY(scan_digits(s, "a digit in the exponent"));
    }
    const size_t n = s->at - start;
    if (n > LONGEST_NUMBER) return fail_at(s, start, "a number of %zu characters is too long; at most %d", n, LONGEST_NUMBER);
    memcpy(digits, s->text + start, n);
    *out = strata_scan_number(digits, NULL);
    return isfinite(*out) ? STRATA_OK : fail_at(s, start, "this number is too large for a double");
}

static int by_key(const void *a, const void *b) {
    const struct key *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : (x->offset > y->offset) - (x->offset < y->offset);
}

/* Removes the keys of an object from the stack, after checking that they differ. */
static strata_status close_object(scan *s, int64_t first) {
    const struct key *repeated = NULL; /* the first key in the text that repeats another one */
    const int64_t n = s->n_keys - first;
    s->n_keys = first;
    if (n < 2) return STRATA_OK;
    struct key *keys = s->keys + first;
    qsort(keys, (size_t)n, sizeof *keys, by_key);
    for (int64_t i = 1; i < n; i++)
        if (!strcmp(keys[i - 1].text, keys[i].text) && (!repeated || keys[i].offset < repeated->offset)) repeated = &keys[i];
    return repeated ? fail_at(s, repeated->offset, "key \"%.200s\" is given twice in one object", repeated->text) : STRATA_OK;
}

static strata_status scan_key(scan *s, cJSON *item) {
    const size_t start = s->at;
    if (peek(s) != '"') return expected(s, "a key in double quotes");
    STRATA_TRY(scan_string(s, &item->string));
    if (!strata_make_room(&s->keys, s->n_keys, &s->keys_capacity, sizeof *s->keys)) return no_memory(s);
    s->keys[s->n_keys++] = (struct key){item->string, start};
    skip_space(s);
    if (!take(s, ':')) return expected(s, "':' after a key");
    skip_space(s);
    return STRATA_OK;
}

static strata_status scan_value(scan *s, cJSON *out);

/* Scans the items of an array or object from its opening bracket on. */
static strata_status scan_items(scan *s, cJSON *out) {
    const bool is_object = cJSON_IsObject(out);
    const char closing = is_object ? '}' : ']';
    const int64_t first = s->n_keys;
    if (++s->depth > STRATA_JSON_MAX_DEPTH) return fail_at(s, s->at, "nested deeper than %d levels", STRATA_JSON_MAX_DEPTH);
    s->at++;
    skip_space(s);
    for (bool more = !take(s, closing); more; skip_space(s)) {
        cJSON *item = cJSON_CreateNull();
        if (!item) return no_memory(s);
        cJSON_AddItemToArray(out, item);
        if (is_object) STRATA_TRY(scan_key(s, item));
        STRATA_TRY(scan_value(s, item));
        skip_space(s);
        more = !take(s, closing);
        if (more && !take(s, ',')) return expected(s, is_object ? "',' or '}'" : "',' or ']'");
    }
    s->depth--;
    return close_object(s, first);
}

static strata_status scan_word(scan *s, cJSON *out) {
    static const struct {
        const char *word;
        int type;
    } words[] = {{"true", cJSON_True}, {"false", cJSON_False}, {"null", cJSON_NULL}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t length = strlen(words[i].word);
        if (s->n_bytes - s->at < length || memcmp(s->text + s->at, words[i].word, length)) continue;
        s->at += length;
        out->type = words[i].type;
        return STRATA_OK;
    }
    return expected(s, "a value");
}

static strata_status scan_value(scan *s, cJSON *out) {
    const int byte = peek(s);
    const bool number = byte == '-' || (byte >= '0' && byte <= '9');
    double value = 0;
    out->type = byte == '{' ? cJSON_Object : byte == '[' ? cJSON_Array : byte == '"' ? cJSON_String : cJSON_Number;
    if (byte == '{' || byte == '[') return scan_items(s, out);
    if (byte == '"') return scan_string(s, &out->valuestring);
    if (!number) return scan_word(s, out);
    STRATA_TRY(scan_number(s, &value));
    cJSON_SetNumberValue(out, value);
    return STRATA_OK;
}

static strata_status scan_all(scan *s, cJSON *out) {
    if (s->n_bytes >= 3 && memcmp(s->text, "\xEF\xBB\xBF", 3) == 0)
        return fail_at(s, 0, "begins with a byte order mark; save it as UTF-8 without one");
    skip_space(s);
    STRATA_TRY(scan_value(s, out));
    skip_space(s);
    return s->at < s->n_bytes ? expected(s, "nothing after the value") : STRATA_OK;
}

strata_status strata_json_parse(const char *name, const void *text, size_t n_bytes, size_t max_bytes, strata_json *out_root,
                                strata_error *err) {
    scan s = {.name = name, .text = text, .n_bytes = n_bytes, .err = err};
    *out_root = (strata_json){0};
    if (n_bytes > max_bytes)
        return strata_fail(err, STRATA_DATA, "%s: has %zu bytes; at most %zu are allowed", name, n_bytes, max_bytes);
    cJSON *tree = cJSON_CreateNull();
    const strata_status status = tree ? scan_all(&s, tree) : no_memory(&s);
    free(s.keys);
    if (status)
        cJSON_Delete(tree);
    else
        *out_root = (strata_json){.node = tree, .name = name};
    return status;
}

strata_status strata_json_read(const char *path, size_t max_bytes, strata_json *out_root, strata_error *err) {
    *out_root = (strata_json){0};
    unsigned char *bytes;
    size_t n_bytes;
    STRATA_TRY(strata_file_read(path, max_bytes, &bytes, &n_bytes, err));
    strata_status status = strata_json_parse(path, bytes, n_bytes, max_bytes, out_root, err);
    free(bytes);
    return status;
}
