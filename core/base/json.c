/* SPDX-License-Identifier: Apache-2.0
 *
 * Typed values of a tree of JSON, with messages that name the path of a value; parsing text to a tree; writing text. */
#include "core/base/json.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>

#include "core/base/file.h"
#include "core/base/locale.h"

void strata_json_finish(strata_json *root) {
    if (!root) return;
    cJSON_Delete((cJSON *)root->node);
    *root = (strata_json){0};
}

/* ---- paths and messages ---- */

/* Writes ".layers[2].units" into buffer and returns its length, cut at size. */
static size_t add_path(const strata_json *value, char *buffer, size_t size, const char **out_document) {
    if (!value->parent) {
        *out_document = value->name;
        return 0;
    }
    size_t length = add_path(value->parent, buffer, size, out_document);
    int added = value->name ? snprintf(buffer + length, size - length, ".%.100s", value->name)
                            : snprintf(buffer + length, size - length, "[%" PRId64 "]", value->index);
    length += added > 0 ? (size_t)added : 0;
    return length < size ? length : size - 1;
}

strata_status strata_json_fail(const strata_json *value, strata_error *err, strata_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    strata_fail_v(err, status, format, arguments);
    va_end(arguments);
    char path[512] = "";
    const char *document = "";
    add_path(value, path, sizeof path, &document);
    const char *shown = path[0] == '.' ? path + 1 : path;
    return strata_fail_in(err, status, "%s%s%s", document, *shown ? ": " : "", shown);
}

/* The value as a message shows it. */
typedef struct shown_value {
    char text[80];
} shown_value;

static shown_value show(const strata_json *value) {
    static const char *const kinds[] = {"null", NULL, NULL, NULL, "an array", "an object"};
    shown_value shown;
    const cJSON *node = value->node;
    switch (strata_json_kind_of(value)) {
        case STRATA_JSON_BOOL:
            snprintf(shown.text, sizeof shown.text, "%s", cJSON_IsTrue(node) ? "true" : "false");
            break;
        case STRATA_JSON_NUMBER:
            strata_format(shown.text, sizeof shown.text, "%.9g", node->valuedouble);
            if (strata_scan_number(shown.text, NULL) != node->valuedouble)
                strata_format(shown.text, sizeof shown.text, "%.17g", node->valuedouble);
            break;
        case STRATA_JSON_STRING:
            snprintf(shown.text, sizeof shown.text, "\"%.60s\"", node->valuestring);
            break;
        default:
            snprintf(shown.text, sizeof shown.text, "%s", kinds[strata_json_kind_of(value)]);
            break;
    }
    return shown;
}

/* ---- walking ---- */

strata_json_kind strata_json_kind_of(const strata_json *value) {
    const cJSON *node = value->node;
    return cJSON_IsObject(node)   ? STRATA_JSON_OBJECT
           : cJSON_IsArray(node)  ? STRATA_JSON_ARRAY
           : cJSON_IsString(node) ? STRATA_JSON_STRING
           : cJSON_IsNumber(node) ? STRATA_JSON_NUMBER
           : cJSON_IsBool(node)   ? STRATA_JSON_BOOL
                                  : STRATA_JSON_NULL;
}

bool strata_json_find(const strata_json *object, const char *key, strata_json *out_member) {
    if (!cJSON_IsObject(object->node)) return false;
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(object->node, key);
    if (node) *out_member = (strata_json){.node = node, .parent = object, .name = node->string};
    return node != NULL;
}

strata_status strata_json_get(const strata_json *object, const char *key, strata_json *out_member, strata_error *err) {
    STRATA_TRY(strata_json_expect(object, STRATA_JSON_OBJECT, err));
    if (strata_json_find(object, key, out_member)) return STRATA_OK;
    return strata_json_fail(object, err, STRATA_DATA, "\"%s\" is missing", key);
}

bool strata_json_first(const strata_json *list, strata_json *out_item) {
    const cJSON *child = list->node->child;
    if (child) *out_item = (strata_json){.node = child, .parent = list, .name = child->string};
    return child != NULL;
}

bool strata_json_next(strata_json *item) {
    const cJSON *next = item->node->next;
    if (!next) return false;
    item->node = next;
    item->name = next->string;
    item->index++;
    return true;
}

int64_t strata_json_length(const strata_json *list) {
    int64_t length = 0;
    for (const cJSON *child = list->node->child; child; child = child->next) length++;
    return length;
}

/* ---- typed values ---- */

strata_status strata_json_expect(const strata_json *value, strata_json_kind kind, strata_error *err) {
    static const char *const kinds[] = {"null", "true or false", "a number", "a string", "an array", "an object"};
    if (strata_json_kind_of(value) == kind) return STRATA_OK;
    return strata_json_fail(value, err, STRATA_DATA, "must be %s, is %s", kinds[kind], show(value).text);
}

strata_status strata_json_to_int(const strata_json *value, int64_t least, int64_t most, int64_t *out, strata_error *err) {
    const int64_t exact = (INT64_C(1) << 53) - 1; /* beyond it, neighbouring integers are the same double */
    if (least < -exact) least = -exact;
    if (most > exact) most = exact;
    double number = cJSON_IsNumber(value->node) ? value->node->valuedouble : NAN;
    if (!(number >= (double)least && number <= (double)most) || number != trunc(number))
        return strata_json_fail(value, err, STRATA_DATA, "must be an integer %" PRId64 "..%" PRId64 ", is %s", least, most,
                                show(value).text);
    *out = (int64_t)number;
    return STRATA_OK;
}

strata_status strata_json_to_number(const strata_json *value, double least, double most, double *out, strata_error *err) {
    static const struct {
        const char *word;
        double number;
    } words[] = {{"inf", HUGE_VAL}, {"-inf", -HUGE_VAL}, {"nan", NAN}};
    const bool any = least == -HUGE_VAL && most == HUGE_VAL;
    for (size_t i = 0; i < sizeof words / sizeof *words && any && cJSON_IsString(value->node); i++) {
        if (strcmp(value->node->valuestring, words[i].word)) continue;
        *out = words[i].number;
        return STRATA_OK;
    }
    STRATA_TRY(strata_json_expect(value, STRATA_JSON_NUMBER, err));
    double number = value->node->valuedouble;
    if (!(number >= least && number <= most))
        return strata_json_fail(value, err, STRATA_DATA, "must be %.9g to %.9g, is %s", least, most, show(value).text);
    *out = number;
    return STRATA_OK;
}

strata_status strata_json_to_bool(const strata_json *value, bool *out, strata_error *err) {
    STRATA_TRY(strata_json_expect(value, STRATA_JSON_BOOL, err));
    *out = cJSON_IsTrue(value->node);
    return STRATA_OK;
}

strata_status strata_json_to_string(const strata_json *value, const char **out, strata_error *err) {
    STRATA_TRY(strata_json_expect(value, STRATA_JSON_STRING, err));
    *out = value->node->valuestring;
    return STRATA_OK;
}

/* Returns whether there is a member to convert. If there is none, *out_status is the failure, or OK if the member is
 * optional. */
static bool present(const strata_json *object, const char *key, strata_json_presence presence, strata_json *out_member,
                    strata_status *out_status, strata_error *err) {
    *out_status = STRATA_OK;
    if (strata_json_find(object, key, out_member)) return true;
    if (presence == STRATA_JSON_REQUIRED || !cJSON_IsObject(object->node))
        *out_status = strata_json_get(object, key, out_member, err);
    return false;
}

strata_status strata_json_get_int(const strata_json *object, const char *key, strata_json_presence presence, int64_t least,
                                  int64_t most, int64_t *out, strata_error *err) {
    strata_json member;
    strata_status status;
    if (!present(object, key, presence, &member, &status, err)) return status;
    return strata_json_to_int(&member, least, most, out, err);
}

strata_status strata_json_get_number(const strata_json *object, const char *key, strata_json_presence presence, double least,
                                     double most, double *out, strata_error *err) {
    strata_json member;
    strata_status status;
    if (!present(object, key, presence, &member, &status, err)) return status;
    return strata_json_to_number(&member, least, most, out, err);
}

strata_status strata_json_get_bool(const strata_json *object, const char *key, strata_json_presence presence, bool *out,
                                   strata_error *err) {
    strata_json member;
    strata_status status;
    if (!present(object, key, presence, &member, &status, err)) return status;
    return strata_json_to_bool(&member, out, err);
}

strata_status strata_json_get_string(const strata_json *object, const char *key, strata_json_presence presence,
                                     const char **out, strata_error *err) {
    strata_json member;
    strata_status status;
    if (!present(object, key, presence, &member, &status, err)) return status;
    return strata_json_to_string(&member, out, err);
}

strata_status strata_json_check_keys(const strata_json *object, const char *const *known, size_t n_known, strata_error *err) {
    STRATA_TRY(strata_json_expect(object, STRATA_JSON_OBJECT, err));
    strata_json member;
    for (bool more = strata_json_first(object, &member); more; more = strata_json_next(&member)) {
        bool found = false;
        for (size_t i = 0; i < n_known && !found; i++) found = strcmp(member.name, known[i]) == 0;
        if (found) continue;
        char list[400] = "";
        size_t length = 0;
        for (size_t i = 0; i < n_known && length < sizeof list; i++)
            length += (size_t)snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", known[i]);
        const char *nearest = strata_nearest_name(member.name, known, n_known);
        return strata_json_fail(object, err, STRATA_DATA, "key \"%.100s\" is not known%s%s%s; known are: %s", member.name,
                                nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"" : "", list);
    }
    return STRATA_OK;
}

/* ---- differences ---- */

/* Writes the value as text, shortened for a message; "nothing" for NULL. */
static void write_short(const cJSON *node, char *out, size_t room) {
    const strata_c_locale locale = strata_c_locale_enter();
    char *text = node ? cJSON_PrintUnformatted(node) : NULL;
    strata_c_locale_leave(locale);
    snprintf(out, room, "%.60s%s", text ? text : "nothing", text && strlen(text) > 60 ? "..." : "");
    free(text);
}

static bool differ(const cJSON *a, const cJSON *b, const char *path, strata_json_change *out);

static bool differ_in(const cJSON *a, const cJSON *b, const char *key, int index, const char *path, strata_json_change *out) {
    char inner[sizeof out->path];
    if (key)
        snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", key);
    else
        snprintf(inner, sizeof inner, "%s[%d]", path, index);
    return differ(a, b, inner, out);
}

static bool differ(const cJSON *a, const cJSON *b, const char *path, strata_json_change *out) {
    if (a && b && cJSON_IsObject(a) && cJSON_IsObject(b)) {
        for (const cJSON *item = a->child; item; item = item->next)
            if (differ_in(item, cJSON_GetObjectItemCaseSensitive(b, item->string), item->string, 0, path, out)) return true;
        for (const cJSON *item = b->child; item; item = item->next)
            if (!cJSON_GetObjectItemCaseSensitive(a, item->string)) return differ_in(NULL, item, item->string, 0, path, out);
        return false;
    }
    if (a && b && cJSON_IsArray(a) && cJSON_IsArray(b)) {
        const cJSON *x = a->child, *y = b->child;
        for (int i = 0; x || y; i++, x = x ? x->next : NULL, y = y ? y->next : NULL)
            if (differ_in(x, y, NULL, i, path, out)) return true;
        return false;
    }
    if (a && b && cJSON_Compare(a, b, true)) return false;
    snprintf(out->path, sizeof out->path, "%s", *path ? path : "it");
    write_short(a, out->left, sizeof out->left);
    write_short(b, out->right, sizeof out->right);
    return true;
}

strata_json_comparison strata_json_compare(const char *a, size_t a_bytes, const char *b, size_t b_bytes,
                                           strata_json_change *out_change) {
    enum { MOST_BYTES = 1 << 30 };
    strata_json left = {0}, right = {0};
    strata_json_comparison result = STRATA_JSON_UNREADABLE;
    *out_change = (strata_json_change){.path = ""};
    if (!strata_json_parse("left", a, a_bytes, MOST_BYTES, &left, NULL) &&
        !strata_json_parse("right", b, b_bytes, MOST_BYTES, &right, NULL))
        result = differ(left.node, right.node, "", out_change) ? STRATA_JSON_DIFFERS : STRATA_JSON_EQUAL;
    strata_json_finish(&left);
    strata_json_finish(&right);
    return result;
}

bool strata_json_difference(const strata_json *a, const strata_json *b, char *out_text, size_t room) {
    strata_json_change change;
    if (!differ(a->node, b->node, "", &change)) return false;
    snprintf(out_text, room, "%s is %s, not %s", change.path, change.left, change.right);
    return true;
}

/* ---- parsing by recursive descent, with one function for each rule of the grammar, to cJSON's tree ----
 *
 * Accepts exactly RFC 8259 with valid UTF-8, no \u0000, no key twice in an object, numbers of at most LONGEST_NUMBER characters
 * that a double can have, and STRATA_JSON_MAX_DEPTH levels of arrays and objects. cJSON's own parser accepts more and names no
 * line. */

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

static shown_byte show_byte(const scan *s) {
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
    return fail_at(s, s->at, "expected %s, found %s", what, show_byte(s).text);
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
        if (byte < 0x20) return fail_at(s, s->at, "%s in a string must be written as an escape", show_byte(s).text);
        if (byte == '\\') {
            STRATA_TRY(scan_escape(s, &out));
            continue;
        }
        length = strata_utf8_length(s->text + s->at, s->n_bytes - s->at);
        if (!length) return fail_at(s, s->at, "%s is not valid UTF-8", show_byte(s).text);
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

/* ---- writing: compact, in the order of the calls, and always valid UTF-8, even if the strings are not ---- */

/* Called before each value and each key. */
static void separate(strata_json_writer *writer) {
    if (writer->needs_comma) strata_text_add_bytes(&writer->text, ",", 1);
    writer->needs_comma = true;
}

static void begin(strata_json_writer *writer, const char *bracket) {
    separate(writer);
    strata_text_add_bytes(&writer->text, bracket, 1);
    writer->needs_comma = false;
}

static void end(strata_json_writer *writer, const char *bracket) {
    strata_text_add_bytes(&writer->text, bracket, 1);
    writer->needs_comma = true;
}

void strata_json_begin_object(strata_json_writer *writer) {
    begin(writer, "{");
}
void strata_json_end_object(strata_json_writer *writer) {
    end(writer, "}");
}
void strata_json_begin_array(strata_json_writer *writer) {
    begin(writer, "[");
}
void strata_json_end_array(strata_json_writer *writer) {
    end(writer, "]");
}

static void add_string(strata_text *text, const char *string) {
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    strata_text_add_bytes(text, "\"", 1);
    const unsigned char *at = (const unsigned char *)string;
    for (size_t n_left = strlen(string); n_left > 0;) {
        size_t length = strata_utf8_length(at, n_left);
        const char *escape = strchr(escaped, *at);
        if (length == 0) {
            strata_text_add_bytes(text, "\xEF\xBF\xBD", 3);
        } else if (escape) {
            strata_text_add(text, "\\%c", letters[escape - escaped]);
        } else if (*at < 0x20) {
            strata_text_add(text, "\\u%04x", *at);
        } else {
            strata_text_add_bytes(text, at, length);
        }
        at += length ? length : 1;
        n_left -= length ? length : 1;
    }
    strata_text_add_bytes(text, "\"", 1);
}

strata_json_writer *strata_json_key(strata_json_writer *writer, const char *key) {
    separate(writer);
    add_string(&writer->text, key);
    strata_text_add_bytes(&writer->text, ":", 1);
    writer->needs_comma = false;
    return writer;
}

void strata_json_write_string(strata_json_writer *writer, const char *string) {
    separate(writer);
    add_string(&writer->text, string);
}

void strata_json_write_int(strata_json_writer *writer, int64_t value) {
    separate(writer);
    strata_text_add(&writer->text, "%" PRId64, value);
}

void strata_json_write_ints(strata_json_writer *writer, const int64_t *values, int n) {
    strata_json_begin_array(writer);
    for (int i = 0; i < n; i++) strata_json_write_int(writer, values[i]);
    strata_json_end_array(writer);
}

static void write_digits(strata_json_writer *writer, const char *format, double value) {
    if (!isfinite(value)) {
        strata_json_write_null(writer);
        return;
    }
    separate(writer);
    char digits[64];
    const int n = strata_format(digits, sizeof digits, format, value);
    strata_text_add_bytes(&writer->text, digits, (size_t)n);
}

void strata_json_write_number(strata_json_writer *writer, double value) {
    write_digits(writer, "%.9g", value);
}

void strata_json_write_double(strata_json_writer *writer, double value) {
    write_digits(writer, "%.17g", value);
}

void strata_json_write_any_number(strata_json_writer *writer, double value) {
    if (isfinite(value))
        strata_json_write_number(writer, value);
    else
        strata_json_write_string(writer, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

void strata_json_write_bool(strata_json_writer *writer, bool value) {
    separate(writer);
    strata_text_add(&writer->text, "%s", value ? "true" : "false");
}

void strata_json_write_null(strata_json_writer *writer) {
    separate(writer);
    strata_text_add(&writer->text, "null");
}

strata_status strata_json_take(strata_json_writer *writer, char **out_text, size_t *out_n_bytes, strata_error *err) {
    strata_status status = strata_text_take(&writer->text, out_text, out_n_bytes, err);
    *writer = (strata_json_writer){0};
    return status;
}
