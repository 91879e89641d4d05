/* SPDX-License-Identifier: Apache-2.0
 *
 * --set PATH=VALUE: changes a value in a model's JSON, for example "layers.0.units=64" or "optimizer.learning_rate=3e-4". */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "own.h"
#include "strata/file.h"
#include "strata/text.h"

/* Parses the value as JSON; if it is not JSON, it is a string. */
static cJSON *read_value(const char *text) {
    const char *end = NULL;
    cJSON *value = cJSON_ParseWithOpts(text, &end, 1);
    return value ? value : cJSON_CreateString(text);
}

/* Reports that the path does not exist, with the keys of the object, or the number of elements of the array, where it ends. */
static int report_wrong_path(const char *setting, const char *key, const cJSON *parent) {
    const char *names[32], *near;
    char list[400] = "";
    size_t n = 0, used = 0;
    if (cJSON_IsArray(parent))
        return usage_error("--set %s: there are %d here, 0 to %d, and no \"%s\"", setting, cJSON_GetArraySize(parent),
                           cJSON_GetArraySize(parent) - 1, key);
    for (const cJSON *item = parent ? parent->child : NULL; item && n < 32; item = item->next) {
        names[n++] = item->string;
        if (used < sizeof list - 50)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%.40s", used ? ", " : "", item->string);
    }
    near = strata_nearest_name(key, names, n);
    return usage_error("--set %s: there is no \"%s\" to go into; there are %s%s%s%s", setting, key, n ? list : "none",
                       near ? ". Did you mean " : "", near ? near : "", near ? "?" : "");
}

/* Finds an item of an array by its number, or of an object by its key; NULL: there is none. */
static cJSON *find_item(cJSON *parent, const char *key) {
    if (!cJSON_IsArray(parent)) return cJSON_GetObjectItemCaseSensitive(parent, key);
    char *end = NULL;
    const long index = strtol(key, &end, 10);
    return *key && !*end && index >= 0 ? cJSON_GetArrayItem(parent, (int)index) : NULL;
}

/* Replaces "adam" by {"name": "adam"}, which means the same and can have settings. */
static cJSON *expand_name(cJSON *parent, cJSON *item, const char *key) {
    if (!cJSON_IsString(item) || (strcmp(key, "optimizer") && strcmp(key, "loss"))) return item;
    cJSON *object = cJSON_CreateObject();
    if (!object || !cJSON_AddStringToObject(object, "name", item->valuestring)) return item;
    cJSON_ReplaceItemInObjectCaseSensitive(parent, key, object);
    return object;
}

/* Removes the settings of an optimizer or loss whose name is changed, since another one has other settings. */
static void remove_settings(cJSON *object) {
    for (cJSON *item = object->child, *next; item; item = next) {
        next = item->next;
        if (strcmp(item->string, "name")) cJSON_Delete(cJSON_DetachItemViaPointer(object, item));
    }
}

static int put_value(const char *setting, cJSON *parent, const char *key, const char *text) {
    cJSON *value = read_value(text);
    if (cJSON_IsArray(parent) ? find_item(parent, key) == NULL : !cJSON_IsObject(parent)) {
        cJSON_Delete(value);
        return report_wrong_path(setting, key, parent);
    }
    if (cJSON_IsArray(parent))
        cJSON_ReplaceItemInArray(parent, atoi(key), value);
    else if (cJSON_GetObjectItemCaseSensitive(parent, key))
        cJSON_ReplaceItemInObjectCaseSensitive(parent, key, value);
    else
        cJSON_AddItemToObject(parent, key, value);
    return EXIT_OK;
}

static int apply(const char *setting, cJSON *root) {
    const char *equals = strchr(setting, '=');
    if (!equals || equals == setting)
        return usage_error("--set %s: it must be PATH=VALUE, for example layers.0.units=64", setting);
    char *path = strndup(setting, (size_t)(equals - setting)), *rest = path;
    cJSON *at = root;
    int code = path ? EXIT_OK : usage_error("--set: no memory");
    if (!code && !cJSON_GetObjectItemCaseSensitive(root, "optimizer") && !strncmp(path, "optimizer.", 10) &&
        strcmp(path, "optimizer.name"))
        cJSON_AddStringToObject(root, "optimizer", "adam"); /* the default optimizer */
    for (char *key = strsep(&rest, "."); key && !code; key = strsep(&rest, ".")) {
        if (!rest) {
            const bool kind = !strcmp(key, "name") && at != root &&
                              (at->string && (!strcmp(at->string, "optimizer") || !strcmp(at->string, "loss")));
            if (kind) remove_settings(at);
            code = put_value(setting, at, key, equals + 1);
            break;
        }
        cJSON *item = find_item(at, key);
        if (!item && !strcmp(key, "optimizer") && at == root) item = cJSON_AddObjectToObject(root, "optimizer");
        if (item) item = expand_name(at, item, key);
        if (!item || (!cJSON_IsObject(item) && !cJSON_IsArray(item))) code = report_wrong_path(setting, key, at);
        at = item;
    }
    free(path);
    return code;
}

static int from_json(cJSON *json, strata_model **model) {
    strata_error err = {0};
    strata_model *changed = NULL;
    char *text = cJSON_PrintUnformatted(json);
    if (!text) return usage_error("--set: no memory"), EXIT_DEVICE;
    strata_status status = strata_model_from_json(text, strlen(text), "--set", &changed, &err);
    cJSON_free(text);
    if (status) return report(FAILING_USAGE, status, &err);
    strata_model_destroy(*model);
    *model = changed;
    return EXIT_OK;
}

int apply_settings(const text_list *settings, strata_model **model) {
    char *text = NULL;
    strata_error err = {0};
    if (!settings->n) return EXIT_OK;
    strata_status status = strata_model_to_json(*model, &text, &err);
    if (status) return report(FAILING_RUN, status, &err);
    cJSON *json = cJSON_Parse(text);
    int code = json ? EXIT_OK : EXIT_DEVICE;
    for (int i = 0; i < settings->n && !code; i++) code = apply(settings->items[i], json);
    if (!code) code = from_json(json, model);
    cJSON_Delete(json);
    free(text);
    return code;
}

int write_model_json(const strata_model *model, const char *path) {
    char *text = NULL;
    strata_error err = {0};
    strata_status status = strata_model_to_json(model, &text, &err);
    cJSON *json = status ? NULL : cJSON_Parse(text);
    char *indented = json ? cJSON_Print(json) : NULL;
    if (!status && !indented) status = strata_fail(&err, STRATA_OUT_OF_MEMORY, "no host memory for the model");
    if (!status) status = strata_file_write(path, indented, strlen(indented), &err);
    cJSON_free(indented);
    cJSON_Delete(json);
    free(text);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}
