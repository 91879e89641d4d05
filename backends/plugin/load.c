/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads one plugin: checks the file, its entry symbol, its version, its table and its devices. Everything that the
 * plugin returns is checked before it is used. */
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>

#include "backends/plugin/plugin.h"
#include "core/base/ascii.h"
#include "core/base/elf.h"
#include "core/base/locale.h"

/* MOST_STRUCT_BYTES: a larger size is an error, since every struct of plugin.h is far smaller. */
enum { MOST_STRUCT_BYTES = 1 << 20, NAME_BYTES = 16 };

/* ---- messages ---- */

/* The function that receives the messages of all plugins. It is global, because host->log has only the message as argument. */
static _Atomic(strata_plugin_log *) log_taker;

void strata_plugin_set_log(strata_plugin_log *take) {
    atomic_store(&log_taker, take);
}

static void take_message(const char *message) {
    strata_plugin_log *take = atomic_load(&log_taker);
    if (take && message) take(message);
}

static const strata_plugin_host host = {.size = sizeof host,
                                        .version_major = STRATA_PLUGIN_VERSION_MAJOR,
                                        .version_minor = STRATA_PLUGIN_VERSION_MINOR,
                                        .log = take_message};

/* ---- structs ---- */

void strata_bridge_copy_struct(void *target, size_t target_bytes, const void *source) {
    size_t bytes;
    memcpy(&bytes, source, sizeof bytes);
    memset(target, 0, target_bytes);
    memcpy(target, source, bytes < target_bytes ? bytes : target_bytes);
}

strata_status strata_bridge_status(strata_plugin_status status) {
    static const unsigned known = 1u << STRATA_PLUGIN_OK | 1u << STRATA_PLUGIN_INVALID | 1u << STRATA_PLUGIN_UNAVAILABLE |
                                  1u << STRATA_PLUGIN_UNSUPPORTED | 1u << STRATA_PLUGIN_OUT_OF_MEMORY |
                                  1u << STRATA_PLUGIN_DEVICE_LOST | 1u << STRATA_PLUGIN_TIMEOUT | 1u << STRATA_PLUGIN_INTERNAL;
    const bool there = status >= 0 && status <= STRATA_PLUGIN_INTERNAL && known >> status & 1;
    return there ? (strata_status)status : STRATA_INTERNAL;
}

/* ---- the file ---- */

static strata_status check_not_writable(const char *path, const char *what, strata_error *err) {
    struct stat info;
    if (stat(path, &info)) return strata_fail(err, STRATA_UNAVAILABLE, "%s %s cannot be looked at", what, path);
    /* in a folder with the sticky bit, other users cannot replace a file */
    if (!(info.st_mode & S_IWOTH) || (S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX))) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s %s may be written by every user, who could run code in this process; chmod o-w",
                       what, path);
}

static strata_status check_file(const char *path, strata_error *err) {
    struct stat info;
    if (stat(path, &info)) return strata_fail(err, STRATA_UNAVAILABLE, "there is no such file");
    if (!S_ISREG(info.st_mode)) return strata_fail(err, STRATA_INVALID, "it is no regular file");
    STRATA_FREED char *copy = strdup(path);
    if (!copy) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for its path");
    STRATA_TRY(check_not_writable(path, "the file", err));
    return check_not_writable(dirname(copy), "its folder", err);
}

/* The file has no entry for this major version. Reports the version for which it has one. */
static strata_status no_entry(void *library, strata_error *err) {
    for (int major = 2; major < 100; major++) {
        char name[32];
        snprintf(name, sizeof name, "strata_plugin_v%d", major);
        if (dlsym(library, name))
            return strata_fail(err, STRATA_UNSUPPORTED,
                               "it was built for version %d of the plugin interface; this Strata has version %d.%d. Build it "
                               "against this Strata's strata/plugin.h, or use a newer Strata",
                               major, STRATA_PLUGIN_VERSION_MAJOR, STRATA_PLUGIN_VERSION_MINOR);
    }
    return strata_fail(err, STRATA_INVALID, "it exports no symbol %s, so it is no plugin of Strata (strata/plugin.h)",
                       STRATA_PLUGIN_ENTRY);
}

static strata_status open_file(plugin *loaded, strata_error *err) {
    STRATA_TRY(check_file(loaded->path, err));
    STRATA_TRY(strata_elf_check(loaded->path, err));
    void *library = dlopen(loaded->path, RTLD_NOW | RTLD_LOCAL); /* plugins are never unloaded */
    if (!library) {
        const char *reason = dlerror();
        return strata_fail(err, STRATA_INVALID, "it cannot be loaded: %s", reason ? reason : "the loader gives no reason");
    }
    void *symbol = dlsym(library, STRATA_PLUGIN_ENTRY);
    if (!symbol) return no_entry(library, err);
    strata_plugin_entry *entry;
    memcpy(&entry, &symbol, sizeof entry); /* POSIX allows this conversion; C has no cast for it */
    return strata_bridge_start(loaded, entry(&host), err);
}

/* Loading and starting is one call of the vendor's code, which may hang. It works on a copy of the plugin. */
typedef struct start_call {
    plugin loaded;
    strata_status status;
} start_call;

static void run_start(void *user) {
    start_call *call = user;
    call->status = open_file(&call->loaded, &call->loaded.error);
    if (call->status) strata_fail_in(&call->loaded.error, call->status, "plugin %s", call->loaded.path);
}

strata_status strata_bridge_open_file(plugin *loaded, strata_error *err) {
    start_call starting = {.loaded = *loaded};
    char subject[PATH_MAX + 16];
    snprintf(subject, sizeof subject, "plugin %s", loaded->path);
    const strata_driver_call call = {
        .what = {subject, NULL, STRATA_DRIVER_START}, .run = run_start, .call = &starting, .bytes = sizeof starting};
    if (!strata_driver_call_within(&call, strata_driver_seconds(), NULL, NULL, &loaded->error)) *loaded = starting.loaded;
    return loaded->error.status ? strata_fail(err, loaded->error.status, "%s", loaded->error.message) : STRATA_OK;
}

/* ---- the table ---- */

static strata_status check_name(const char *name, strata_error *err) {
    static const char *const taken[] = {
        "opencl", "vulkan", /* also where this build has none of them */
#define STRATA_BACKEND(name) #name,
#include "backends/backends.def"
    };
    const size_t n = name ? strlen(name) : 0;
    bool fits = n > 0 && n < NAME_BYTES;
    for (size_t i = 0; i < n && fits; i++) fits = strata_ascii_is_word(name[i]) || name[i] == '-';
    if (!fits)
        return strata_fail(err, STRATA_INVALID, "its name is \"%.32s\"; it must be 1 to %d letters, digits and '-'",
                           name ? name : "", NAME_BYTES - 1);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (!strcmp(taken[i], name))
            return strata_fail(err, STRATA_INVALID, "its name is \"%s\", which is Strata's own; it must take another", name);
    return STRATA_OK;
}

static strata_status check_table(const strata_plugin *given, strata_error *err) {
    /* the fields of version 1.0; later ones are optional */
    const size_t least = offsetof(strata_plugin, device_open) + sizeof given->device_open;
    if (!given) return strata_fail(err, STRATA_INVALID, "%s returned NULL", STRATA_PLUGIN_ENTRY);
    if (given->size < least || given->size > MOST_STRUCT_BYTES)
        return strata_fail(err, STRATA_INVALID,
                           "its strata_plugin says size %zu; version 1.0 has %zu bytes. Set .size = sizeof", given->size,
                           least);
    if (given->version_major != STRATA_PLUGIN_VERSION_MAJOR || given->version_minor < 0)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "it was built for version %d.%d of the plugin interface; this Strata has version %d.%d. Build it "
                           "against this Strata's strata/plugin.h",
                           given->version_major, given->version_minor, STRATA_PLUGIN_VERSION_MAJOR,
                           STRATA_PLUGIN_VERSION_MINOR);
    const char *missing = !given->start         ? "start"
                          : !given->device_info ? "device_info"
                          : !given->device_open ? "device_open"
                                                : NULL;
    if (missing) return strata_fail(err, STRATA_INVALID, "its strata_plugin has NULL in the required slot %s", missing);
    return check_name(given->name, err);
}

strata_status strata_bridge_start(plugin *loaded, const strata_plugin *given, strata_error *err) {
    STRATA_TRY(check_table(given, err));
    strata_bridge_copy_struct(&loaded->calls, sizeof loaded->calls, given);
    strata_plugin_error message = {.size = sizeof message};
    int32_t n = -1;
    const strata_plugin_status status = loaded->calls.start(loaded->options, &n, &message);
    message.message[sizeof message.message - 1] = 0;
    if (status)
        return strata_fail(err, strata_bridge_status(status), "%s cannot start (status %d): %s", loaded->calls.name,
                           (int)status, message.message[0] ? message.message : "it gives no reason");
    if (n < 0 || n > PLUGIN_MOST_DEVICES)
        return strata_fail(err, STRATA_INTERNAL, "start says that there are %d devices; 0 to %d are possible", (int)n,
                           PLUGIN_MOST_DEVICES);
    loaded->n_devices = n;
    return STRATA_OK;
}

/* ---- a device's row ---- */

static void copy_text(char *target, size_t bytes, const char *source) {
    snprintf(target, bytes, "%s", source ? source : "");
}

/* Writes what is wrong with the numbers of the plugin's device_info to out_reason; "": nothing. minor: the minor version that
 * the plugin was compiled for; a later one may have more dtypes. */
static void check_info(const strata_plugin_device_info *info, int32_t minor, char *out_reason, size_t bytes) {
    static const int64_t least_bytes = 1 << 16, most_bytes = (int64_t)1 << 50;
    static const int32_t most_units = 1 << 24;
    static const uint32_t known = (1u << STRATA_DTYPE_COUNT) - 1;
    const char *what = "the plugin's device_info has";
    if (info->memory_bytes && (info->memory_bytes < least_bytes || info->memory_bytes > most_bytes))
        snprintf(out_reason, bytes, "%s memory_bytes %lld; it must be 0 (not known), or %lld to %lld", what,
                 (long long)info->memory_bytes, (long long)least_bytes, (long long)most_bytes);
    else if (info->max_buffer_bytes < 0)
        snprintf(out_reason, bytes, "%s max_buffer_bytes %lld; it must be 0 (memory_bytes) or more", what,
                 (long long)info->max_buffer_bytes);
    else if (info->compute_units < 0 || info->compute_units > most_units)
        snprintf(out_reason, bytes, "%s compute_units %d; it must be 0 (not known) to %d", what, (int)info->compute_units,
                 (int)most_units);
    else if (!(info->dtypes & known) || (minor <= STRATA_PLUGIN_VERSION_MINOR && (info->dtypes & ~known)))
        snprintf(out_reason, bytes,
                 "%s dtypes 0x%x; version %d.%d has no dtypes but the bits of 0x%x, and one at least is needed", what,
                 (unsigned)info->dtypes, STRATA_PLUGIN_VERSION_MAJOR, STRATA_PLUGIN_VERSION_MINOR, (unsigned)known);
    else if ((info->unified_memory | info->wants_arenas) & ~1)
        snprintf(out_reason, bytes, "%s unified_memory %d and wants_arenas %d; each must be 0 or 1", what,
                 (int)info->unified_memory, (int)info->wants_arenas);
    else if (info->stall_seconds != 0 &&
             !(info->stall_seconds >= PLUGIN_LEAST_STALL_SECONDS && info->stall_seconds <= PLUGIN_MOST_STALL_SECONDS))
        strata_format(out_reason, bytes, "%s stall_seconds %g; it must be 0 (600), or %g to %g", what, info->stall_seconds,
                      PLUGIN_LEAST_STALL_SECONDS, PLUGIN_MOST_STALL_SECONDS);
    else if (info->product_dtype < STRATA_PLUGIN_F32 || info->product_dtype > STRATA_PLUGIN_BF16)
        snprintf(out_reason, bytes, "%s product_dtype %d; it must be F32 (0), F16 (1) or BF16 (2)", what,
                 (int)info->product_dtype);
}

strata_device_info strata_bridge_device_row(const plugin *loaded, int index) {
    strata_device_info row = {
        .device_class = STRATA_DEVICE_ACCELERATOR, .max_workgroup = 1, .vector_width = 1, .max_range_bytes = INT64_MAX};
    snprintf(row.id, sizeof row.id, "%s:%d", loaded->calls.name, index);
    copy_text(row.backend, sizeof row.backend, loaded->calls.name);
    const strata_plugin_device_info *given = loaded->calls.device_info(index);
    const size_t least = offsetof(strata_plugin_device_info, stall_seconds) + sizeof given->stall_seconds;
    if (!given || given->size < least || given->size > MOST_STRUCT_BYTES) {
        snprintf(row.skipped, sizeof row.skipped, "the plugin's device_info(%d) %s %zu; version 1.0 has %zu bytes", index,
                 given ? "says size" : "is NULL, size", given ? given->size : 0, least);
        return row;
    }
    strata_plugin_device_info info;
    strata_bridge_copy_struct(&info, sizeof info, given);
    copy_text(row.name, sizeof row.name, info.name ? info.name : loaded->calls.name);
    copy_text(row.vendor, sizeof row.vendor, info.vendor);
    copy_text(row.driver, sizeof row.driver, info.driver_version);
    copy_text(row.skipped, sizeof row.skipped, info.skipped);
    row.memory_bytes = info.memory_bytes > 0 ? (uint64_t)info.memory_bytes : 0;
    const int64_t largest = info.max_buffer_bytes > 0 ? info.max_buffer_bytes : info.memory_bytes;
    row.max_allocation_bytes = row.max_range_bytes = largest > 0 ? (uint64_t)largest : INT64_MAX;
    row.compute_units = info.compute_units > 0 ? (uint32_t)info.compute_units : 0;
    row.unified_memory = info.unified_memory != 0;
    row.dtypes = info.dtypes & ((1u << STRATA_DTYPE_COUNT) - 1);
    if (!row.skipped[0]) check_info(&info, loaded->calls.version_minor, row.skipped, sizeof row.skipped);
    return row;
}

typedef struct rows_call {
    const plugin *loaded;
    /* [n_devices], allocated by the call. NULL: there was no memory. */
    strata_device_info *rows;
} rows_call;

static void run_rows(void *user) {
    rows_call *call = user;
    call->rows = calloc((size_t)call->loaded->n_devices + 1, sizeof *call->rows);
    for (int i = 0; i < call->loaded->n_devices && call->rows; i++) call->rows[i] = strata_bridge_device_row(call->loaded, i);
}

strata_status strata_bridge_add_rows(plugin *loaded, strata_device_list *list, strata_error *err) {
    rows_call listing = {.loaded = loaded};
    const strata_driver_call call = {
        .what = {loaded->calls.name, NULL, STRATA_DRIVER_LIST}, .run = run_rows, .call = &listing, .bytes = sizeof listing};
    const double limit = strata_driver_seconds();
    if (strata_driver_call_within(&call, limit, NULL, NULL, &loaded->error)) {
        list->hung = loaded->error;
        return strata_device_list_add_hung(list, loaded->calls.name, limit, err);
    }
    if (!listing.rows) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for its devices", loaded->calls.name);
    STRATA_FREED strata_device_info *rows = listing.rows;
    for (int i = 0; i < loaded->n_devices; i++) STRATA_TRY(strata_device_list_add(list, &rows[i], err));
    return STRATA_OK;
}
