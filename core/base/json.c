/* SPDX-License-Identifier: Apache-2.0
 *
 * Returns typed values from a tree of JSON, with messages that name the path of a value. core/base/json_parse.c makes the tree,
 * core/base/json_write.c writes text. */
#include "core/base/json.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
