/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds plugins: those that were loaded by strata_plugin_load, those in STRATA_PLUGINS, and the files in the plugin
 * folders. Their list is the only global state of the library, because a shared object is loaded once for the whole
 * process, its start function is called once, and it is never unloaded. The list only grows, and a lock protects it. */
#define _GNU_SOURCE /* dladdr */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>

#include "backends/plugin/plugin.h"
#include "backends/registry.h"
#include "core/base/locale.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static plugin *plugins; /* protected by `lock` */

/* ---- the list ---- */

static plugin *find_by_path(const char *path) {
    for (plugin *p = plugins; p; p = p->next)
        if (!strcmp(p->path, path)) return p;
    return NULL;
}

static plugin *find_by_name(const char *name) {
    for (plugin *p = plugins; p; p = p->next)
        if (!p->error.status && !strcmp(p->calls.name, name)) return p;
    return NULL;
}

static void append(plugin *loaded) {
    plugin **end = &plugins;
    while (*end) end = &(*end)->next;
    *end = loaded;
}

static strata_status load_new(const char *path, const char *options, strata_error *err) {
    plugin *loaded = calloc(1, sizeof *loaded);
    if (loaded) {
        loaded->path = strdup(path);
        loaded->options = options && *options ? strdup(options) : NULL;
    }
    if (!loaded || !loaded->path || (options && *options && !loaded->options)) {
        if (loaded) free(loaded->path);
        free(loaded);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "plugin %s: no host memory", path);
    }
    strata_status status = strata_bridge_open_file(loaded, err);
    const plugin *other = status ? NULL : find_by_name(loaded->calls.name);
    if (other) {
        status = strata_fail(&loaded->error, STRATA_INVALID, "plugin %s: its name is \"%s\", which %s has already", path,
                             loaded->calls.name, other->path);
        strata_fail(err, status, "%s", loaded->error.message);
    }
    append(loaded);
    return status;
}

/* Loads a plugin. strata_plugin_load describes `file` and `options`. */
static strata_status load(const char *file, const char *options, strata_error *err) {
    char path[PATH_MAX];
    if (!realpath(file, path))
        return strata_fail(err, STRATA_UNAVAILABLE, "plugin %s: %s", file,
                           errno == ENOENT ? "there is no such file" : strata_errno_text(errno));
    const plugin *known = find_by_path(path);
    if (!known) return load_new(path, options, err);
    if (known->error.status) return strata_fail(err, known->error.status, "%s", known->error.message);
    if (*options && strcmp(options, known->options ? known->options : ""))
        return strata_fail(err, STRATA_INVALID, "plugin %s is loaded already, with the options \"%s\"", path,
                           known->options ? known->options : "");
    return STRATA_OK;
}

/* Loads the plugin of a text "FILE,key=value,key=value". The options are passed to the plugin separated by semicolons. */
static strata_status load_text(const char *text, strata_error *err) {
    STRATA_FREED char *file = strdup(text);
    if (!file) return strata_fail(err, STRATA_OUT_OF_MEMORY, "plugin %s: no host memory", text);
    char *options = file + strcspn(file, ",");
    if (*options) *options++ = 0;
    for (const char *option = options; *option; option += strcspn(option, ",") + (strchr(option, ',') != NULL)) {
        const size_t n = strcspn(option, ","), key = strcspn(option, "=,");
        if (key == 0 || key == n)
            return strata_fail(err, STRATA_INVALID, "plugin %s: its option \"%.*s\" is not of the form key=value", file, (int)n,
                               option);
    }
    for (char *c = options; *c; c++)
        if (*c == ',') *c = ';';
    return load(file, options, err);
}

strata_status strata_plugin_load(const char *text, strata_error *err) {
    if (!text || !*text) return strata_fail(err, STRATA_INVALID, "plugin: a file is needed, FILE[,key=value]");
    pthread_mutex_lock(&lock);
    strata_status status = load_text(text, err);
    pthread_mutex_unlock(&lock);
    return status;
}

/* A plugin that hangs stays in the list, with the reason. Other plugins with an error were reported when they were loaded. */
static strata_status list_devices(plugin *loaded, strata_device_list *list, strata_error *err) {
    if (!loaded->error.status) return strata_bridge_add_rows(loaded, list, err);
    if (loaded->error.status != STRATA_TIMEOUT || !loaded->calls.name) return STRATA_OK;
    list->hung = loaded->error;
    return strata_device_list_add_hung(list, loaded->calls.name, strata_driver_seconds(), err);
}

strata_status strata_bridge_rows(const char *text, strata_device_info **out_rows, int *out_n, strata_error *err) {
    strata_device_list list = {0};
    char path[PATH_MAX];
    STRATA_FREED char *file = strndup(text, strcspn(text, ","));
    pthread_mutex_lock(&lock);
    plugin *loaded = file && realpath(file, path) ? find_by_path(path) : NULL;
    strata_status status =
        loaded ? list_devices(loaded, &list, err) : strata_fail(err, STRATA_UNAVAILABLE, "plugin %s is not loaded", text);
    pthread_mutex_unlock(&lock);
    *out_rows = list.rows;
    *out_n = list.n;
    return status;
}

/* ---- the folders that are searched ---- */

/* Adds a row with the reason why a plugin from a folder or from STRATA_PLUGINS cannot be used. */
static strata_status add_reason(strata_device_list *list, const strata_error *reason, strata_error *err) {
    strata_device_info row = {.id = "plugin", .backend = "plugin", .device_class = STRATA_DEVICE_ACCELERATOR};
    snprintf(row.skipped, sizeof row.skipped, "%.255s", reason->message);
    if (reason->status == STRATA_TIMEOUT) list->hung = *reason;
    return strata_device_list_add(list, &row, err);
}

static strata_status load_from_environment(strata_device_list *list, strata_error *err) {
    const char *at = getenv("STRATA_PLUGINS");
    strata_status status = STRATA_OK;
    char *text = NULL;
    for (; !status && !(status = strata_plugins_next(&at, false, &text, err)) && text; free(text)) {
        strata_error reason = {0};
        if (load_text(text, &reason)) status = add_reason(list, &reason, err);
    }
    return status;
}

static int is_library(const struct dirent *entry) {
    const size_t n = strlen(entry->d_name);
    return n > 3 && !strcmp(entry->d_name + n - 3, ".so");
}

static strata_status load_folder(const char *folder, strata_device_list *list, strata_error *err) {
    struct dirent **entries = NULL;
    const int n = scandir(folder, &entries, is_library, alphasort);
    strata_status status = STRATA_OK;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        strata_error reason = {0};
        const int wrote = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (!status && wrote > 0 && (size_t)wrote < sizeof path && load(path, "", &reason))
            status = add_reason(list, &reason, err);
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* Finds the folder lib/strata/plugins of the installation. It is beside, or one or two folders above, the file from
 * which this code was loaded, which may be PREFIX/bin/strata or PREFIX/lib/x86_64-linux-gnu/libstrata.so. */
static bool find_installed_folder(char *out_folder, size_t bytes) {
    Dl_info info;
    char file[PATH_MAX];
    static const char anchor = 0;
    if (!dladdr(&anchor, &info) || !info.dli_fname || !realpath(info.dli_fname, file)) return false;
    for (int level = 0; level < 3; level++) {
        char *slash = strrchr(file, '/');
        if (!slash) return false;
        *slash = 0;
        const int wrote = snprintf(out_folder, bytes, "%s/lib/strata/plugins", file);
        if (wrote <= 0 || (size_t)wrote >= bytes) return false;
        DIR *folder = opendir(out_folder);
        if (!folder) continue;
        closedir(folder);
        return true;
    }
    return false;
}

static strata_status load_from_folders(strata_device_list *list, strata_error *err) {
    char folder[PATH_MAX + 32];
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    const bool set = data && *data;
    folder[0] = 0;
    if (set || (home && *home))
        snprintf(folder, sizeof folder, "%s%s/strata/plugins", set ? data : home, set ? "" : "/.local/share");
    if (folder[0]) STRATA_TRY(load_folder(folder, list, err));
    return find_installed_folder(folder, sizeof folder) ? load_folder(folder, list, err) : STRATA_OK;
}

/* ---- the registry's row ---- */

static strata_status list_loaded(strata_device_list *list, strata_error *err) {
    STRATA_TRY(load_from_environment(list, err));
    STRATA_TRY(load_from_folders(list, err));
    for (plugin *p = plugins; p; p = p->next) STRATA_TRY(list_devices(p, list, err));
    return STRATA_OK;
}

static strata_status list(strata_device_list *devices, strata_error *err) {
    pthread_mutex_lock(&lock);
    strata_status status = list_loaded(devices, err);
    pthread_mutex_unlock(&lock);
    return status;
}

static strata_status open(const strata_device_info *info, const strata_device_options *opts, strata_device **out_device,
                          strata_error *err) {
    pthread_mutex_lock(&lock);
    const plugin *loaded = find_by_name(info->backend);
    pthread_mutex_unlock(&lock);
    const char *number = strchr(info->id, ':');
    if (!loaded || !number) return strata_fail(err, STRATA_UNAVAILABLE, "no plugin has the device %s", info->id);
    return strata_bridge_device_open(loaded, info, atoi(number + 1), opts, out_device, err);
}

const strata_backend strata_backend_plugin = {
    .name = "plugin", .own_names = true, .is_compared = true, .limits_list = true, .list = list, .open = open};
