/* SPDX-License-Identifier: Apache-2.0
 *
 * A PJRT plugin for tests of the driver. It is not an accelerator: an engine (engine.h) runs programs at once in the
 * caller's thread, and buffers are in host memory. It can fail, and can behave like an older or a newer plugin. These
 * environment variables, which it reads at each call of GetPjrtApi and Client_Create, control it:
 *     STRATA_TEST_PJRT_ENGINE   jaxlib: programs are run by jaxlib in a child process; else by the interpreter
 *     STRATA_TEST_PJRT_FAIL     FUNCTION:K  the K-th call of the function fails, as Event_Await:2; FUNCTION:+K: the K-th call
 *                               after the variable was changed
 *     STRATA_TEST_PJRT_API      old: the table of functions ends where that of version 0.57 ended; new: it is longer than in
 *                               any header; ancient, other: versions 0.40 and 1.0; short: less than a table; none: NULL;
 *                               strict: structs of arguments must be larger than in any header; holes: optional functions
 *                               are NULL
 *     STRATA_TEST_PJRT_LIE      outputs: one result more than the program has; bytes: results have a byte too many
 *     STRATA_TEST_PJRT_DEVICES  how many devices the client has (1) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/pjrt/api.h"
#include "engine.h"

#define EXPORT __attribute__((visibility("default")))

struct pjrt_api_error {
    int code;
    char message[MESSAGE_BYTES];
};

struct pjrt_api_event {
    int number;
};

struct pjrt_api_device {
    int number;
};

enum { MOST_DEVICES = 4 };

struct pjrt_api_client {
    pjrt_api_device devices[MOST_DEVICES], *list[MOST_DEVICES];
    int n_devices;
    const engine *engine;
};

struct pjrt_api_buffer {
    tensor_type type;
    void *data;
};

struct pjrt_api_loaded {
    pjrt_api_client *client;
    program program;
    /* [parameter] Whether the program may reuse the parameter's memory. */
    char *donated;
};

struct pjrt_api_executable {
    int n_outputs;
};

static int is_set(const char *variable, const char *value) {
    const char *text = getenv(variable);
    return text && !strcmp(text, value);
}

static pjrt_api_error *fail(int code, const char *message) {
    pjrt_api_error *error = calloc(1, sizeof *error);
    if (!error) abort();
    error->code = code;
    snprintf(error->message, sizeof error->message, "%s", message);
    return error;
}

/* ---- at the beginning of every call ---- */

enum {
#define PJRT_FUNCTION(place, name) NAME_##name,
#include "backends/pjrt/functions.def"
    N_NAMES
};

static const char *const names[] = {
#define PJRT_FUNCTION(place, name) #name,
#include "backends/pjrt/functions.def"
};

static int n_calls[N_NAMES];
/* The value of STRATA_TEST_PJRT_FAIL at the last call, and the numbers of calls when it was changed. */
static char last_wanted[128];
static int calls_before[N_NAMES];

/* Counts a call. Returns the error with which it must fail, or NULL. */
static pjrt_api_error *enter(int name, const void *args, size_t size) {
    const pjrt_head *head = args;
    const char *wanted = getenv("STRATA_TEST_PJRT_FAIL");
    const size_t n = strlen(names[name]);
    n_calls[name]++;
    if (is_set("STRATA_TEST_PJRT_API", "strict")) size += 8;
    if (head->struct_size < size) {
        char message[MESSAGE_BYTES];
        snprintf(message, sizeof message, "Unexpected size of the arguments of %s: expected %zu, got %zu", names[name], size,
                 head->struct_size);
        return fail(PJRT_CODE_INVALID_ARGUMENT, message);
    }
    if (wanted && strcmp(wanted, last_wanted) != 0) {
        snprintf(last_wanted, sizeof last_wanted, "%s", wanted);
        memcpy(calls_before, n_calls, sizeof n_calls);
        calls_before[name]--; /* this call is the first one after the change */
    }
    if (!wanted || strncmp(wanted, names[name], n) != 0 || wanted[n] != ':') return NULL;
    const int relative = wanted[n + 1] == '+';
    if (atoi(wanted + n + 1 + relative) != n_calls[name] - (relative ? calls_before[name] : 0)) return NULL;
    char message[MESSAGE_BYTES];
    snprintf(message, sizeof message, "call %d of %s fails, as it was told to", n_calls[name], names[name]);
    return fail(13, message);
}

#define ENTER(name, type, last)                                                    \
    do {                                                                           \
        pjrt_api_error *refused = enter(NAME_##name, args, PJRT_SIZE(type, last)); \
        if (refused) return refused;                                               \
    } while (0)

/* ---- errors and events ---- */

static pjrt_api_error *Error_Destroy(void *args) {
    free(((pjrt_object_args *)args)->object);
    return NULL;
}

static pjrt_api_error *Error_Message(void *args) {
    pjrt_error_message_args *a = args;
    a->message = a->error->message;
    a->message_size = strlen(a->error->message);
    return NULL;
}

static pjrt_api_error *Error_GetCode(void *args) {
    pjrt_error_code_args *a = args;
    ENTER(Error_GetCode, pjrt_error_code_args, code);
    a->code = a->error->code;
    return NULL;
}

static pjrt_api_error *Event_Destroy(void *args) {
    free(((pjrt_object_args *)args)->object);
    ENTER(Event_Destroy, pjrt_object_args, object);
    return NULL;
}

static pjrt_api_error *Event_Await(void *args) {
    ENTER(Event_Await, pjrt_object_args, object);
    return NULL;
}

static pjrt_api_event *new_event(void) {
    pjrt_api_event *event = calloc(1, sizeof *event);
    if (!event) abort();
    return event;
}

/* ---- plugin, client and devices ---- */

static pjrt_api_error *Plugin_Initialize(void *args) {
    ENTER(Plugin_Initialize, pjrt_head, extensions);
    return NULL;
}

static pjrt_api_error *Client_Create(void *args) {
    pjrt_client_create_args *a = args;
    ENTER(Client_Create, pjrt_client_create_args, client);
    pjrt_api_client *client = calloc(1, sizeof *client);
    const char *n = getenv("STRATA_TEST_PJRT_DEVICES");
    if (!client) abort();
    client->n_devices = n ? atoi(n) : 1;
    client->engine = is_set("STRATA_TEST_PJRT_ENGINE", "jaxlib") ? &engine_jaxlib : &engine_interpreter;
    for (int i = 0; i < client->n_devices && i < MOST_DEVICES; i++) {
        client->devices[i].number = i;
        client->list[i] = &client->devices[i];
    }
    a->client = client;
    return NULL;
}

static pjrt_api_error *Client_Destroy(void *args) {
    free(((pjrt_object_args *)args)->object);
    ENTER(Client_Destroy, pjrt_object_args, object);
    return NULL;
}

static pjrt_api_error *give_text(void *args, const char *text) {
    pjrt_text_args *a = args;
    a->text = text;
    a->text_size = strlen(text);
    return NULL;
}

static pjrt_api_error *Client_PlatformName(void *args) {
    ENTER(Client_PlatformName, pjrt_text_args, text_size);
    return give_text(args, "Strata's tests");
}

static pjrt_api_error *Client_PlatformVersion(void *args) {
    ENTER(Client_PlatformVersion, pjrt_text_args, text_size);
    return give_text(args, "runs\nnothing fast");
}

static pjrt_api_error *Client_AddressableDevices(void *args) {
    pjrt_client_devices_args *a = args;
    ENTER(Client_AddressableDevices, pjrt_client_devices_args, n_devices);
    a->devices = a->client->list;
    a->n_devices = (size_t)a->client->n_devices;
    return NULL;
}

static pjrt_api_error *Device_GetDescription(void *args) {
    pjrt_device_description_args *a = args;
    ENTER(Device_GetDescription, pjrt_device_description_args, description);
    a->description = (pjrt_api_description *)a->device;
    return NULL;
}

static pjrt_api_error *DeviceDescription_Kind(void *args) {
    ENTER(DeviceDescription_Kind, pjrt_text_args, text_size);
    return give_text(args, "an interpreter of StableHLO, for tests");
}

static pjrt_api_error *Device_MemoryStats(void *args) {
    pjrt_device_memory_args *a = args;
    ENTER(Device_MemoryStats, pjrt_device_memory_args, peak_pool.is_known);
    a->limit.bytes = INT64_C(1) << 32;
    a->limit.is_known = true;
    return NULL;
}

/* ---- programs ---- */

/* Reads the types of parameters and results from the signature of func.func. */
static int read_signature(program *p, char **out_donated) {
    const char *at = strstr(p->text, "@main(");
    enum { MOST = 4096 };
    p->parameters = calloc(MOST, sizeof *p->parameters);
    p->results = calloc(MOST, sizeof *p->results);
    *out_donated = calloc(MOST, 1);
    if (!at || !p->parameters || !p->results || !*out_donated) return 1;
    const char *arrow = strstr(at, ") -> ("), *end = arrow ? strstr(arrow, ") {\n") : NULL;
    if (!end) return 1;
    for (const char *c = at; c < arrow && p->n_parameters < MOST; c++) {
        if (!strncmp(c, "{tf.aliasing_output", 19)) (*out_donated)[p->n_parameters - 1] = 1;
        if (strncmp(c, "tensor<", 7) != 0) continue;
        if (read_type(&c, &p->parameters[p->n_parameters++])) return 1;
        c--;
    }
    for (const char *c = arrow; c < end && p->n_results < MOST; c++) {
        if (strncmp(c, "tensor<", 7) != 0) continue;
        if (read_type(&c, &p->results[p->n_results++])) return 1;
        c--;
    }
    return 0;
}

static void free_loaded(pjrt_api_loaded *loaded) {
    if (loaded->program.compiled) loaded->client->engine->destroy(&loaded->program);
    free(loaded->program.text);
    free(loaded->program.parameters);
    free(loaded->program.results);
    free(loaded->donated);
    free(loaded);
}

static pjrt_api_error *Client_Compile(void *args) {
    pjrt_client_compile_args *a = args;
    char message[MESSAGE_BYTES] = "the program's signature cannot be read";
    ENTER(Client_Compile, pjrt_client_compile_args, executable);
    static const unsigned char one_replica[] = {0x1a, 0x0f, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                                0xff, 0xff, 0x01, 0x20, 0x01, 0x28, 0x01, 0x20, 0x01};
    if (a->options_size != sizeof one_replica || memcmp(a->options, one_replica, sizeof one_replica) != 0)
        return fail(PJRT_CODE_INVALID_ARGUMENT, "the compile options are not those of one portable replica");
    if (a->program->format_size != 4 || memcmp(a->program->format, "mlir", 4) != 0)
        return fail(PJRT_CODE_INVALID_ARGUMENT, "the program's format is not mlir");
    pjrt_api_loaded *loaded = calloc(1, sizeof *loaded);
    if (!loaded) abort();
    loaded->client = a->client;
    loaded->program.text = strndup(a->program->code, a->program->code_size);
    if (read_signature(&loaded->program, &loaded->donated) || a->client->engine->compile(&loaded->program, message)) {
        free_loaded(loaded);
        return fail(PJRT_CODE_INVALID_ARGUMENT, message);
    }
    a->executable = loaded;
    return NULL;
}

static pjrt_api_error *LoadedExecutable_Destroy(void *args) {
    free_loaded(((pjrt_object_args *)args)->object);
    ENTER(LoadedExecutable_Destroy, pjrt_object_args, object);
    return NULL;
}

static pjrt_api_error *LoadedExecutable_GetExecutable(void *args) {
    pjrt_loaded_executable_args *a = args;
    ENTER(LoadedExecutable_GetExecutable, pjrt_loaded_executable_args, executable);
    a->executable = calloc(1, sizeof *a->executable);
    if (!a->executable) abort();
    a->executable->n_outputs = a->loaded->program.n_results + is_set("STRATA_TEST_PJRT_LIE", "outputs");
    return NULL;
}

static pjrt_api_error *Executable_Destroy(void *args) {
    free(((pjrt_object_args *)args)->object);
    ENTER(Executable_Destroy, pjrt_object_args, object);
    return NULL;
}

static pjrt_api_error *Executable_NumOutputs(void *args) {
    pjrt_executable_number_args *a = args;
    ENTER(Executable_NumOutputs, pjrt_executable_number_args, number);
    a->number = a->executable->n_outputs;
    return NULL;
}

static size_t bytes_of(const tensor_type *type) {
    return (size_t)n_elements(type) * element_bytes(type->type);
}

static pjrt_api_buffer *new_buffer(const tensor_type *type) {
    pjrt_api_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer) *buffer = (pjrt_api_buffer){.type = *type, .data = calloc(1, bytes_of(type) + 1)};
    if (!buffer || !buffer->data) abort();
    return buffer;
}

static int same_type(const tensor_type *a, const tensor_type *b) {
    return a->type == b->type && a->rank == b->rank && !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
}

/* Clears donated arguments after the program has run, so that the driver cannot use them by mistake. */
static pjrt_api_error *LoadedExecutable_Execute(void *args) {
    pjrt_execute_args *a = args;
    char message[MESSAGE_BYTES] = "";
    ENTER(LoadedExecutable_Execute, pjrt_execute_args, device);
    program *p = &a->executable->program;
    if (a->n_devices != 1 || a->n_arguments != (size_t)p->n_parameters || !a->device)
        return fail(PJRT_CODE_INVALID_ARGUMENT, "the number of devices or arguments is wrong");
    const void **arguments = calloc((size_t)p->n_parameters + 1, sizeof *arguments);
    void **results = calloc((size_t)p->n_results + 1, sizeof *results);
    if (!arguments || !results) abort();
    pjrt_api_error *error = NULL;
    for (int i = 0; i < p->n_parameters && !error; i++) {
        const pjrt_api_buffer *buffer = a->arguments[0][i];
        arguments[i] = buffer->data;
        if (!buffer->data)
            error = fail(PJRT_CODE_INVALID_ARGUMENT, "an argument was donated to an earlier run");
        else if (!same_type(&buffer->type, &p->parameters[i]))
            error = fail(PJRT_CODE_INVALID_ARGUMENT, "an argument has the wrong type");
    }
    for (int i = 0; i < p->n_results && !error; i++) {
        a->outputs[0][i] = new_buffer(&p->results[i]);
        results[i] = a->outputs[0][i]->data;
    }
    if (!error && a->executable->client->engine->run(p, arguments, results, message)) {
        for (int i = 0; i < p->n_results; i++) free(a->outputs[0][i]->data), free(a->outputs[0][i]);
        error = fail(13, message);
    }
    for (int i = 0; i < p->n_parameters && !error; i++) {
        if (!a->executable->donated[i]) continue;
        free(a->arguments[0][i]->data);
        a->arguments[0][i]->data = NULL;
    }
    free(arguments);
    free(results);
    if (!error && a->done) a->done[0] = new_event();
    return error;
}

/* ---- buffers ---- */

static pjrt_api_error *Client_BufferFromHostBuffer(void *args) {
    static const int types[] = {[PJRT_TYPE_PRED] = I1, [PJRT_TYPE_S32] = I32, [PJRT_TYPE_S64] = I64,  [PJRT_TYPE_U8] = UI8,
                                [PJRT_TYPE_F16] = F16, [PJRT_TYPE_F32] = F32, [PJRT_TYPE_BF16] = BF16};
    pjrt_from_host_args *a = args;
    ENTER(Client_BufferFromHostBuffer, pjrt_from_host_args, buffer);
    tensor_type type = {.type = (element_type)types[a->type], .rank = (int)a->n_dims};
    for (int d = 0; d < type.rank; d++) type.dims[d] = a->dims[d];
    a->buffer = new_buffer(&type);
    if (bytes_of(&type)) memcpy(a->buffer->data, a->data, bytes_of(&type));
    a->done = new_event();
    return NULL;
}

static pjrt_api_error *Buffer_Destroy(void *args) {
    pjrt_api_buffer *buffer = ((pjrt_object_args *)args)->object;
    free(buffer->data);
    free(buffer);
    ENTER(Buffer_Destroy, pjrt_object_args, object);
    return NULL;
}

static pjrt_api_error *Buffer_ToHostBuffer(void *args) {
    pjrt_to_host_args *a = args;
    ENTER(Buffer_ToHostBuffer, pjrt_to_host_args, done);
    const size_t bytes = bytes_of(&a->buffer->type) + (size_t)is_set("STRATA_TEST_PJRT_LIE", "bytes");
    for (int d = 0; d < a->buffer->type.rank; d++)
        if (a->layout && a->layout->tiled.minor_to_major[d] != a->buffer->type.rank - 1 - d)
            return fail(PJRT_CODE_UNIMPLEMENTED, "the layout is not row-major");
    if (!a->target) {
        a->target_size = bytes;
        return NULL;
    }
    if (!a->buffer->data) return fail(PJRT_CODE_INVALID_ARGUMENT, "the buffer was donated");
    if (a->target_size < bytes) return fail(PJRT_CODE_INVALID_ARGUMENT, "the host's memory is too small");
    memcpy(a->target, a->buffer->data, bytes);
    a->done = new_event();
    return NULL;
}

/* ---- the table of functions ---- */

static struct {
    pjrt_head head;
    struct pjrt_version version;
    pjrt_api_error *(*functions[256])(void *args);
} table;

EXPORT const pjrt_api *GetPjrtApi(void);
const pjrt_api *GetPjrtApi(void) {
    enum { OLD_FUNCTIONS = 98, FUNCTIONS = 128, NEW_FUNCTIONS = 200 };
    int n = FUNCTIONS, minor = 90, major = 0;
    memset(&table, 0, sizeof table);
#define ROW(name) table.functions[PJRT_FUNCTION_##name] = name
    ROW(Error_Destroy), ROW(Error_Message), ROW(Error_GetCode), ROW(Event_Destroy), ROW(Event_Await);
    ROW(Plugin_Initialize), ROW(Client_Create), ROW(Client_Destroy), ROW(Client_PlatformName);
    ROW(Client_PlatformVersion), ROW(Client_AddressableDevices), ROW(Client_Compile), ROW(Client_BufferFromHostBuffer);
    ROW(Device_GetDescription), ROW(DeviceDescription_Kind), ROW(Device_MemoryStats);
    ROW(LoadedExecutable_Destroy), ROW(LoadedExecutable_GetExecutable), ROW(LoadedExecutable_Execute);
    ROW(Executable_Destroy), ROW(Executable_NumOutputs), ROW(Buffer_Destroy), ROW(Buffer_ToHostBuffer);
#undef ROW
    if (is_set("STRATA_TEST_PJRT_API", "none")) return NULL;
    if (is_set("STRATA_TEST_PJRT_API", "holes")) {
        table.functions[PJRT_FUNCTION_Device_MemoryStats] = NULL;
        table.functions[PJRT_FUNCTION_Client_PlatformVersion] = NULL;
    }
    if (is_set("STRATA_TEST_PJRT_API", "old")) n = OLD_FUNCTIONS, minor = 57;
    if (is_set("STRATA_TEST_PJRT_API", "new")) n = NEW_FUNCTIONS, minor = 250;
    if (is_set("STRATA_TEST_PJRT_API", "ancient")) minor = 40;
    if (is_set("STRATA_TEST_PJRT_API", "other")) major = 1;
    table.head.struct_size = offsetof(pjrt_api, functions) + (size_t)n * sizeof table.functions[0];
    if (is_set("STRATA_TEST_PJRT_API", "short")) table.head.struct_size = sizeof(pjrt_head);
    table.version = (struct pjrt_version){{sizeof table.version, NULL}, major, minor};
    return (const pjrt_api *)&table;
}
