/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the first difference of two JSON values, for messages. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/locale.h"

/* Writes the value as text, shortened for a message; "nothing" for NULL. */
static void show(const cJSON *node, char *out, size_t room) {
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
    show(a, out->left, sizeof out->left);
    show(b, out->right, sizeof out->right);
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
