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

static bool differ(const cJSON *a, const cJSON *b, const char *path, char *out, size_t room);

static bool differ_in(const cJSON *a, const cJSON *b, const char *key, int index, const char *path, char *out, size_t room) {
    char inner[256];
    if (key)
        snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", key);
    else
        snprintf(inner, sizeof inner, "%s[%d]", path, index);
    return differ(a, b, inner, out, room);
}

static bool differ(const cJSON *a, const cJSON *b, const char *path, char *out, size_t room) {
    if (a && b && cJSON_IsObject(a) && cJSON_IsObject(b)) {
        for (const cJSON *item = a->child; item; item = item->next)
            if (differ_in(item, cJSON_GetObjectItemCaseSensitive(b, item->string), item->string, 0, path, out, room))
                return true;
        for (const cJSON *item = b->child; item; item = item->next)
            if (!cJSON_GetObjectItemCaseSensitive(a, item->string))
                return differ_in(NULL, item, item->string, 0, path, out, room);
        return false;
    }
    if (a && b && cJSON_IsArray(a) && cJSON_IsArray(b)) {
        const cJSON *x = a->child, *y = b->child;
        for (int i = 0; x || y; i++, x = x ? x->next : NULL, y = y ? y->next : NULL)
            if (differ_in(x, y, NULL, i, path, out, room)) return true;
        return false;
    }
    if (a && b && cJSON_Compare(a, b, true)) return false;
    char left[80], right[80];
    show(a, left, sizeof left);
    show(b, right, sizeof right);
    snprintf(out, room, "%s is %s, not %s", *path ? path : "it", left, right);
    return true;
}

bool strata_json_difference(const strata_json *a, const strata_json *b, char *out_text, size_t room) {
    return differ(a->node, b->node, "", out_text, room);
}
