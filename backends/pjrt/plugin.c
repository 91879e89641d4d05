/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads a plugin and calls its functions. The length of the table of functions depends on the plugin's version, and any
 * entry may be NULL. */
#include "backends/pjrt/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/base/elf.h"
#include "core/run/driver.h"

enum { MOST_MESSAGE = 400 };

/* ---- calls ---- */

static const char *const names[] = {
#define PJRT_FUNCTION(place, name) [place] = "PJRT_" #name,
#include "backends/pjrt/functions.def"
};

static bool has(const pjrt_api *api, int function) {
    const size_t end = offsetof(pjrt_api, functions) + (size_t)(function + 1) * sizeof api->functions[0];
    return api->head.struct_size >= end && api->functions[function];
}

static strata_status status_of(int code, strata_status otherwise) {
    switch (code) {
        case PJRT_CODE_RESOURCE_EXHAUSTED:
            return STRATA_OUT_OF_MEMORY;
        case PJRT_CODE_UNIMPLEMENTED:
            return STRATA_UNSUPPORTED;
        case PJRT_CODE_UNAVAILABLE:
        case PJRT_CODE_NOT_FOUND:
            return STRATA_UNAVAILABLE;
        case PJRT_CODE_DEADLINE_EXCEEDED:
            return STRATA_TIMEOUT;
        default:
            return otherwise;
    }
}

/* Takes the error. The message is empty if the plugin cannot even report what is wrong. */
static strata_status fail(const pjrt_plugin *plugin, pjrt_api_error *error, const char *what, strata_status otherwise,
                          strata_error *err) {
    const pjrt_api *api = plugin->api;
    pjrt_error_message_args message = {.head = {PJRT_SIZE(pjrt_error_message_args, message_size), NULL}, .error = error};
    pjrt_error_code_args code = {.head = {PJRT_SIZE(pjrt_error_code_args, code), NULL}, .error = error};
    if (has(api, PJRT_FUNCTION_Error_Message)) api->functions[PJRT_FUNCTION_Error_Message](&message);
    if (has(api, PJRT_FUNCTION_Error_GetCode)) {
        pjrt_api_error *again = api->functions[PJRT_FUNCTION_Error_GetCode](&code);
        if (again) strata_pjrt_destroy(plugin, PJRT_FUNCTION_Error_Destroy, again), code.code = 0;
    }
    const int n = !message.message ? 0 : message.message_size > MOST_MESSAGE ? MOST_MESSAGE : (int)message.message_size;
    const strata_status status = strata_fail(err, status_of(code.code, otherwise), "pjrt: %s: %.*s (%s)", what, n,
                                             n ? message.message : "", plugin->path);
    strata_pjrt_destroy(plugin, PJRT_FUNCTION_Error_Destroy, error);
    return status;
}

static strata_driver_work work_of(int function) {
    switch (function) {
        case PJRT_FUNCTION_Event_Await:
            return STRATA_DRIVER_WAIT;
        case PJRT_FUNCTION_LoadedExecutable_Execute:
            return STRATA_DRIVER_SUBMIT;
        case PJRT_FUNCTION_Client_BufferFromHostBuffer:
        case PJRT_FUNCTION_Buffer_ToHostBuffer:
            return STRATA_DRIVER_COPY;
        default:
            return STRATA_DRIVER_ASK;
    }
}

static pjrt_api_error *call_marked(const pjrt_plugin *plugin, int function, void *args, strata_driver_work work) {
    if (!plugin->device) return plugin->api->functions[function](args);
    STRATA_DRIVER_MARK(plugin->device, work, 1);
    return plugin->api->functions[function](args);
}

strata_status strata_pjrt_call(const pjrt_plugin *plugin, int function, void *args, const char *what, strata_status otherwise,
                               strata_error *err) {
    if (!has(plugin->api, function))
        return strata_fail(err, STRATA_UNSUPPORTED, "pjrt: %s: the plugin %s has no %s", what, plugin->path, names[function]);
    pjrt_api_error *error = call_marked(plugin, function, args, work_of(function));
    return error ? fail(plugin, error, what, otherwise, err) : STRATA_OK;
}

void strata_pjrt_destroy(const pjrt_plugin *plugin, int function, void *object) {
    pjrt_object_args args = {.head = {PJRT_SIZE(pjrt_object_args, object), NULL}, .object = object};
    if (!object || !has(plugin->api, function)) return;
    if (function == PJRT_FUNCTION_Error_Destroy) {
        plugin->api->functions[function](&args); /* it returns nothing */
        return;
    }
    pjrt_api_error *error = call_marked(plugin, function, &args, STRATA_DRIVER_FREE);
    if (error) strata_pjrt_destroy(plugin, PJRT_FUNCTION_Error_Destroy, error);
}

strata_status strata_pjrt_await(const pjrt_plugin *plugin, pjrt_api_event *event, const char *what, strata_status otherwise,
                                strata_error *err) {
    pjrt_object_args args = {.head = {PJRT_SIZE(pjrt_object_args, object), NULL}, .object = event};
    if (!event) return STRATA_OK;
    const strata_status status = strata_pjrt_call(plugin, PJRT_FUNCTION_Event_Await, &args, what, otherwise, err);
    strata_pjrt_destroy(plugin, PJRT_FUNCTION_Event_Destroy, event);
    return status;
}

/* ---- loading ---- */

static strata_status check_version(const pjrt_plugin *plugin, strata_error *err) {
    const pjrt_api *api = plugin->api;
    if (api->head.struct_size < offsetof(pjrt_api, functions))
        return strata_fail(err, STRATA_UNAVAILABLE, "pjrt: %s: its table of functions has %zu bytes; it must have %zu at least",
                           plugin->path, api->head.struct_size, offsetof(pjrt_api, functions));
    if (api->version.major == PJRT_MAJOR && api->version.minor >= PJRT_LEAST_MINOR) return STRATA_OK;
    return strata_fail(err, STRATA_UNAVAILABLE,
                       "pjrt: %s has version %d.%d of the PJRT C API; Strata takes %d.%d and later %d.x", plugin->path,
                       api->version.major, api->version.minor, PJRT_MAJOR, PJRT_LEAST_MINOR, PJRT_MAJOR);
}

/* Rejects a shared object that every user may write, or that cannot be loaded. */
static strata_status check_file(const char *path, strata_error *err) {
    struct stat file;
    if (strchr(path, '/') && !stat(path, &file) && (file.st_mode & S_IWOTH))
        return strata_fail(err, STRATA_UNAVAILABLE, "pjrt: every user may write the plugin %s; chmod o-w lets it be used",
                           path);
    if (strchr(path, '/') && strata_elf_check(path, err))
        return strata_fail_in(err, STRATA_UNAVAILABLE, "pjrt: the plugin %s cannot be opened", path);
    return STRATA_OK;
}

static strata_status load(const char *path, pjrt_plugin *out_plugin, strata_error *err) {
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) return strata_fail(err, STRATA_UNAVAILABLE, "pjrt: the plugin cannot be opened: %s", dlerror());
    const pjrt_api *(*get)(void) = NULL;
    void *symbol = dlsym(library, "GetPjrtApi");
    memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from a pointer to data to a pointer to a function */
    if (!get) return strata_fail(err, STRATA_UNAVAILABLE, "pjrt: %s exports no GetPjrtApi; it is not a PJRT plugin", path);
    pjrt_plugin plugin = {.api = get(), .path = path};
    if (!plugin.api) return strata_fail(err, STRATA_UNAVAILABLE, "pjrt: GetPjrtApi of %s gives nothing", path);
    STRATA_TRY(check_version(&plugin, err));
    pjrt_plugin_initialize_args args = {.head = {sizeof(pjrt_plugin_initialize_args), NULL}};
    STRATA_TRY(strata_pjrt_call(&plugin, PJRT_FUNCTION_Plugin_Initialize, &args, "initialize", STRATA_UNAVAILABLE, err));
    *out_plugin = plugin;
    return STRATA_OK;
}

typedef struct load_call {
    char path[PATH_MAX];
    pjrt_plugin plugin;
    strata_status status;
    strata_error err;
} load_call;

static void run_load(void *user) {
    load_call *call = user;
    call->status = load(call->path, &call->plugin, &call->err);
}

strata_status strata_pjrt_load(const char *path, pjrt_plugin *out_plugin, strata_error *err) {
    load_call loading = {.plugin = {0}};
    char subject[PATH_MAX + 16];
    STRATA_TRY(check_file(path, err));
    if (strlen(path) >= sizeof loading.path)
        return strata_fail(err, STRATA_INVALID, "pjrt: the plugin's path has %zu bytes; it may have %d", strlen(path),
                           PATH_MAX - 1);
    strcpy(loading.path, path);
    snprintf(subject, sizeof subject, "pjrt: %s", path);
    const strata_driver_call call = {
        .what = {subject, NULL, STRATA_DRIVER_START}, .run = run_load, .call = &loading, .bytes = sizeof loading};
    STRATA_TRY(strata_driver_call_within(&call, strata_driver_seconds(), NULL, NULL, err));
    if (loading.status) return strata_fail(err, loading.status, "%s", loading.err.message);
    *out_plugin = (pjrt_plugin){.api = loading.plugin.api, .path = path};
    return STRATA_OK;
}

strata_status strata_pjrt_open(const char *path, strata_error *err) {
    pjrt_plugin plugin;
    return strata_pjrt_load(path, &plugin, err);
}

/* ---- compile options ---- */

/* Encodes a Protobuf field: its number and kind in one byte, followed by a number with 7 bits in each byte. A field of
 * another kind has a length and bytes instead. */
static size_t add_number(char *out, int field, uint64_t value) {
    size_t n = 0;
    out[n++] = (char)(field << 3);
    for (; value > 127; value >>= 7) out[n++] = (char)(value | 128);
    out[n++] = (char)value;
    return n;
}

/* CompileOptionsProto{executable_build_options(3): {device_ordinal(1): -1, num_replicas(4), num_partitions(5): 1},
 * compile_portable_executable(4)}. The last field is set for one replica, which then runs on any device of the client. */
size_t strata_pjrt_compile_options(int n_replicas, char out[PJRT_COMPILE_OPTIONS_BYTES]) {
    char build[PJRT_COMPILE_OPTIONS_BYTES];
    size_t n = add_number(build, 1, UINT64_MAX);
    n += add_number(build + n, 4, (uint64_t)n_replicas);
    n += add_number(build + n, 5, 1);
    out[0] = 3 << 3 | 2;
    out[1] = (char)n;
    memcpy(out + 2, build, n);
    n += 2;
    if (n_replicas == 1) n += add_number(out + n, 4, 1);
    return n;
}
