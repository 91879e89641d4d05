/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of functions of the PJRT plugin for JAX, its errors, and its only event. GetPjrtApi is all that libstrata_pjrt.so
 * exports. A call checks the size of the caller's struct before it reads a field, and never ends the process. */
#include "core/frontend/pjrt/plugin.h"

#include "strata/version.h"

#define CLIENT(object)     ((pjrt_api_client *)(object))
#define DEVICE(object)     ((pjrt_api_device *)(object))
#define MEMORY(object)     ((pjrt_api_memory *)(object))
#define BUFFER(object)     ((pjrt_api_buffer *)(object))
#define LOADED(object)     ((pjrt_api_loaded *)(object))
#define EXECUTABLE(object) ((pjrt_api_executable *)(object))

pjrt_api_event strata_jax_ready;

/* ---- errors ---- */

/* What is returned when there is no memory for an error. */
static pjrt_api_error no_memory = {PJRT_CODE_RESOURCE_EXHAUSTED, "Strata: no host memory for an error's message"};

static int code_of(strata_status status) {
    switch (status) {
        case STRATA_INVALID:
        case STRATA_DATA:
            return PJRT_CODE_INVALID_ARGUMENT;
        case STRATA_UNSUPPORTED:
            return PJRT_CODE_UNIMPLEMENTED;
        case STRATA_OUT_OF_MEMORY:
        case STRATA_OUT_OF_DISK:
            return PJRT_CODE_RESOURCE_EXHAUSTED;
        case STRATA_UNAVAILABLE:
        case STRATA_DEVICE_LOST:
        case STRATA_PEER_LOST:
            return PJRT_CODE_UNAVAILABLE;
        case STRATA_TIMEOUT:
            return PJRT_CODE_DEADLINE_EXCEEDED;
        case STRATA_INTERRUPTED:
            return PJRT_CODE_CANCELLED;
        default:
            return PJRT_CODE_INTERNAL;
    }
}

/* NULL for OK. */
static pjrt_api_error *error_of(strata_status status, const strata_error *err) {
    if (!status) return NULL;
    pjrt_api_error *error = strata_zeroed(1, sizeof *error);
    if (!error) return &no_memory;
    error->code = code_of(status);
    memcpy(error->message, err->message, sizeof error->message);
    return error;
}

static pjrt_api_error *error_destroy(void *args) {
    const pjrt_object_args *a = args;
    if (a && STRATA_JAX_HAS(a, object) && a->object != &no_memory) free(a->object);
    return NULL;
}

static pjrt_api_error *error_message(void *args) {
    pjrt_error_message_args *a = args;
    if (!a || !STRATA_JAX_HAS(a, message_size)) return NULL;
    a->message = a->error ? a->error->message : "";
    a->message_size = strlen(a->message);
    return NULL;
}

/* ---- small functions ---- */

#define NOTHING_TO_DO(function, arguments)                                    \
    strata_status strata_jax_##function(arguments *args, strata_error *err) { \
        (void)args, (void)err;                                                \
        return STRATA_OK;                                                     \
    }
NOTHING_TO_DO(Plugin_Initialize, pjrt_plugin_initialize_args)
NOTHING_TO_DO(Event_Destroy, pjrt_object_args)
NOTHING_TO_DO(Event_Error, pjrt_object_args)
NOTHING_TO_DO(Event_Await, pjrt_object_args)
NOTHING_TO_DO(Client_UpdateGlobalProcessInfo, pjrt_process_info_args)

/* JAX writes programs for this version, the newest that program.h reads. */
strata_status strata_jax_Plugin_Attributes(pjrt_plugin_attributes_args *args, strata_error *err) {
    static const char name[] = "stablehlo_current_version";
    static const int64_t version[] = {1, 13, 0};
    static const pjrt_named_value attribute = {.head = {PJRT_SIZE(pjrt_named_value, value_size), NULL},
                                               .name = name,
                                               .name_size = sizeof name - 1,
                                               .type = PJRT_VALUE_INT64_LIST,
                                               .numbers = version,
                                               .value_size = 3};
    (void)err;
    args->attributes = &attribute;
    args->n_attributes = 1;
    return STRATA_OK;
}

strata_status strata_jax_Event_OnReady(pjrt_on_ready_args *args, strata_error *err) {
    (void)err;
    if (args->callback) args->callback(NULL, args->user);
    return STRATA_OK;
}

/* ---- the table of functions ---- */

/* Fails if the caller's struct is too short, or if the object that must be its first field is NULL. */
static strata_status check(const void *args, const char *name, size_t size, bool has_object, strata_error *err) {
    const pjrt_object_args *a = args;
    if (!a || a->head.struct_size < size)
        return strata_fail(err, STRATA_INVALID,
                           "PJRT_%s: the struct of arguments has %zu bytes, %zu are needed: JAX is too old", name,
                           a ? a->head.struct_size : 0, size);
    if (has_object && !a->object) return strata_fail(err, STRATA_INVALID, "PJRT_%s: the object is NULL", name);
    return STRATA_OK;
}

static pjrt_api_error *missing(const char *name) {
    strata_error err;
    return error_of(strata_fail(&err, STRATA_UNSUPPORTED, "PJRT_%s: Strata's plugin does not have this function", name), &err);
}

#define VALUE(place, function, arguments, last, assignment)                                          \
    static pjrt_api_error *call_##function(void *args) {                                             \
        strata_error err;                                                                            \
        arguments *a = args;                                                                         \
        const strata_status status = check(args, #function, PJRT_SIZE(arguments, last), true, &err); \
        if (status) return error_of(status, &err);                                                   \
        void *self = ((pjrt_object_args *)args)->object;                                             \
        (void)a, (void)self;                                                                         \
        assignment;                                                                                  \
        return NULL;                                                                                 \
    }
#define CALL(function, arguments, last, has_object)                                                  \
    static pjrt_api_error *call_##function(void *args) {                                             \
        strata_error err;                                                                            \
        strata_status status = check(args, #function, PJRT_SIZE(arguments, last), has_object, &err); \
        if (!status) status = strata_jax_##function(args, &err);                                     \
        return error_of(status, &err);                                                               \
    }
#define METHOD(place, function, arguments, last)   CALL(function, arguments, last, true)
#define FUNCTION(place, function, arguments, last) CALL(function, arguments, last, false)
#define MISSING(place, function)                         \
    static pjrt_api_error *call_##function(void *args) { \
        (void)args;                                      \
        return missing(#function);                       \
    }
#include "core/frontend/pjrt/functions.def"

static const struct {
    pjrt_head head;
    struct pjrt_version version;
    pjrt_api_error *(*functions[PJRT_N_FUNCTIONS])(void *args);
} table = {.head = {sizeof table, NULL},
           .version = {{sizeof table.version, NULL}, PJRT_MAJOR, PJRT_MINOR},
           .functions = {
               error_destroy,
               error_message,
#define VALUE(place, function, ...)    [place] = call_##function,
#define METHOD(place, function, ...)   [place] = call_##function,
#define FUNCTION(place, function, ...) [place] = call_##function,
#define MISSING(place, function)       [place] = call_##function,
#include "core/frontend/pjrt/functions.def"
           }};

__attribute__((visibility("default"))) const pjrt_api *GetPjrtApi(void);
const pjrt_api *GetPjrtApi(void) {
    return (const pjrt_api *)&table;
}
