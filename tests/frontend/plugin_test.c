/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the PJRT plugin for JAX, called as JAX calls them: on the host, with structs of arguments that are too
 * short, longer than ours, and wrong. plugin_test.sh runs programs of JAX itself. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/pjrt/api.h"
#include "tests/frontend/fixture.h"

const pjrt_api *GetPjrtApi(void);

enum {
#define VALUE(place, name, ...)    F_##name = place,
#define METHOD(place, name, ...)   F_##name = place,
#define FUNCTION(place, name, ...) F_##name = place,
#define MISSING(place, name)       F_##name = place,
#include "core/frontend/pjrt/functions.def"
    F_Error_Destroy = 0,
    F_Error_Message
};

/* What a call gives: the code of its error, 0 for none, and the message. */
static char message[1200];
static int call(int function, void *args) {
    const pjrt_api *api = GetPjrtApi();
    pjrt_api_error *error = api->functions[function](args);
    message[0] = '\0';
    if (!error) return 0;
    pjrt_error_message_args text = {.head = {sizeof text, NULL}, .error = error};
    pjrt_error_code_args code = {.head = {sizeof code, NULL}, .error = error};
    pjrt_object_args destroyed = {{sizeof destroyed, NULL}, error};
    api->functions[F_Error_Message](&text);
    snprintf(message, sizeof message, "%.*s", (int)text.message_size, text.message);
    cr_assert_null(api->functions[F_Error_GetCode](&code));
    api->functions[F_Error_Destroy](&destroyed);
    return code.code;
}
#define OK(function, args) cr_assert_eq(call(F_##function, args), 0, "%s", message)
#define FAILS(function, args, wanted, words)                           \
    do {                                                               \
        cr_expect_eq(call(F_##function, args), wanted, "%s", message); \
        cr_expect(strstr(message, words), "%s", message);              \
    } while (0)
#define HEAD(args) \
    { sizeof args, NULL }

static pjrt_api_client *open_client(void) {
    setenv("STRATA_DEVICE", "host", 1);
    pjrt_client_create_args args = {.head = HEAD(args)};
    OK(Client_Create, &args);
    cr_assert_not_null(args.client);
    return args.client;
}

static void destroy(int function, void *object) {
    pjrt_object_args args = {HEAD(args), object};
    cr_assert_eq(call(function, &args), 0, "%s", message);
}

static pjrt_from_host_args from_host(pjrt_api_client *client, int type, const void *data, size_t rank, const int64_t *dims,
                                     const int64_t *strides) {
    return (pjrt_from_host_args){.head = {sizeof(pjrt_from_host_args), NULL},
                                 .client = client,
                                 .data = data,
                                 .type = type,
                                 .dims = dims,
                                 .n_dims = rank,
                                 .byte_strides = strides,
                                 .n_byte_strides = strides ? rank : 0};
}

static pjrt_api_buffer *matrix(pjrt_api_client *client, const float *data, const int64_t *strides) {
    pjrt_from_host_args args = from_host(client, PJRT_TYPE_F32, data, 2, (const int64_t[]){2, 3}, strides);
    OK(Client_BufferFromHostBuffer, &args);
    cr_assert(args.buffer && args.done);
    return args.buffer;
}

static pjrt_api_buffer *vector(pjrt_api_client *client, const float *data) {
    pjrt_from_host_args args = from_host(client, PJRT_TYPE_F32, data, 1, (const int64_t[]){5}, NULL);
    OK(Client_BufferFromHostBuffer, &args);
    return args.buffer;
}

static void expect_elements(pjrt_api_buffer *buffer, const float *wanted, int n) {
    float found[16] = {0};
    pjrt_to_host_args args = {.head = HEAD(args), .buffer = buffer, .target = found, .target_size = sizeof found};
    OK(Buffer_ToHostBuffer, &args);
    for (int i = 0; i < n; i++)
        cr_expect_eq(found[i], wanted[i], "element %d: %g, wanted %g", i, (double)found[i], (double)wanted[i]);
}

static bool is_deleted(pjrt_api_buffer *buffer) {
    pjrt_flag_args args = {.head = HEAD(args), .object = buffer};
    OK(Buffer_IsDeleted, &args);
    return args.flag;
}

/* ---- the table, and structs of any size ---- */

Test(jax_plugin, the_table_has_every_function_of_its_version) {
    const pjrt_api *api = GetPjrtApi();
    cr_assert_eq(api->version.major, 0);
    cr_assert_eq(api->version.minor, PJRT_MINOR);
    cr_assert_eq(api->head.struct_size, offsetof(pjrt_api, functions) + PJRT_N_FUNCTIONS * sizeof api->functions[0]);
    for (int i = 0; i < PJRT_N_FUNCTIONS; i++) cr_expect_not_null((void *)(uintptr_t)api->functions[i], "%d", i);
}

/* The struct is nothing but its size, so that AddressSanitizer sees a field that is read. */
Test(jax_plugin, a_struct_that_is_too_short_is_an_error_that_names_the_function) {
    for (int i = F_Error_GetCode; i < PJRT_N_FUNCTIONS; i++) {
        size_t *args = malloc(sizeof *args);
        *args = sizeof *args;
        const int code = call(i, args);
        cr_expect(code == PJRT_CODE_INVALID_ARGUMENT || code == PJRT_CODE_UNIMPLEMENTED, "%d: %d", i, code);
        cr_expect(!strncmp(message, "PJRT_", 5), "%d: %s", i, message);
        cr_expect_null(GetPjrtApi()->functions[F_Error_Destroy](args));
        cr_expect_null(GetPjrtApi()->functions[F_Error_Message](args));
        free(args);
    }
}

Test(jax_plugin, a_function_without_its_object_is_an_error) {
    unsigned char args[1024];
    for (int i = F_Error_GetCode; i < PJRT_N_FUNCTIONS; i++) {
        memset(args, 0, sizeof args);
        memcpy(args, &(size_t){sizeof args}, sizeof(size_t));
        const bool may_be_null = i == F_Plugin_Initialize || i == F_Plugin_Attributes || i == F_Client_Create ||
                                 i == F_Client_Destroy || i == F_Executable_Destroy || i == F_LoadedExecutable_Destroy ||
                                 i == F_Buffer_Destroy || i == F_Event_Destroy || i == F_Event_Error || i == F_Event_Await;
        if (!may_be_null) cr_expect_neq(call(i, args), 0, "%d", i);
    }
}

Test(jax_plugin, a_longer_struct_of_a_newer_caller_keeps_its_other_fields) {
    struct {
        pjrt_text_args args;
        char more[64];
    } longer = {.args.object = open_client()};
    longer.args.head.struct_size = sizeof longer;
    memset(longer.more, 7, sizeof longer.more);
    OK(Client_PlatformName, &longer);
    cr_expect_eq(longer.args.text_size, 6);
    cr_expect_arr_eq(longer.args.text, "strata", 6);
    for (size_t i = 0; i < sizeof longer.more; i++) cr_expect_eq(longer.more[i], 7);
    destroy(F_Client_Destroy, longer.args.object);
}

Test(jax_plugin, a_missing_function_is_an_error_that_names_it) {
    pjrt_object_args args = {HEAD(args), NULL};
    FAILS(Buffer_UnsafePointer, &args, PJRT_CODE_UNIMPLEMENTED, "PJRT_Buffer_UnsafePointer");
}

/* ---- client and device ---- */

Test(jax_plugin, there_is_one_device_with_one_memory) {
    pjrt_api_client *client = open_client();
    pjrt_list_args devices = {.head = HEAD(devices), .object = client};
    OK(Client_AddressableDevices, &devices);
    cr_assert_eq(devices.n, 1);
    void *device = ((void *const *)devices.list)[0];
    pjrt_list_args memories = {.head = HEAD(memories), .object = device};
    OK(Device_AddressableMemories, &memories);
    cr_assert_eq(memories.n, 1);
    pjrt_list_args back = {.head = HEAD(back), .object = ((void *const *)memories.list)[0]};
    OK(Memory_AddressableByDevices, &back);
    cr_assert(back.n == 1 && ((void *const *)back.list)[0] == device);
    pjrt_text_args text = {.head = HEAD(text), .object = device};
    OK(DeviceDescription_ToString, &text);
    cr_assert_str_eq(text.text, "StrataDevice(id=0, host)");
    pjrt_lookup_device_args lookup = {.head = HEAD(lookup), .client = client, .id = 1};
    FAILS(Client_LookupDevice, &lookup, PJRT_CODE_INVALID_ARGUMENT, "id 1");
    lookup.id = 0;
    OK(Client_LookupDevice, &lookup);
    cr_assert_eq((void *)lookup.device, device);
    destroy(F_Client_Destroy, client);
}

Test(jax_plugin, a_device_that_is_not_there_is_an_error_with_those_that_are) {
    setenv("STRATA_DEVICE", "nowhere:7", 1);
    pjrt_client_create_args args = {.head = HEAD(args)};
    FAILS(Client_Create, &args, PJRT_CODE_UNAVAILABLE, "STRATA_DEVICE=nowhere:7");
    cr_expect(strstr(message, "host ("), "%s", message);
}

Test(jax_plugin, several_processes_are_an_error) {
    pjrt_named_value options[2] = {{.head = HEAD(options[0]), .name = "node_id", .name_size = 7, .type = PJRT_VALUE_INT64},
                                   {.head = HEAD(options[1]), .name = "num_nodes", .name_size = 9, .type = PJRT_VALUE_INT64}};
    pjrt_client_create_args args = {.head = HEAD(args), .options = options, .n_options = 2};
    setenv("STRATA_DEVICE", "host", 1);
    options[1].number = 2;
    FAILS(Client_Create, &args, PJRT_CODE_UNIMPLEMENTED, "2 processes");
    options[1].number = 1;
    OK(Client_Create, &args);
    pjrt_process_info_args info = {.head = HEAD(info), .client = args.client};
    OK(Client_UpdateGlobalProcessInfo, &info);
    destroy(F_Client_Destroy, args.client);
}

/* ---- buffers ---- */

Test(jax_plugin, arrays_with_any_strides_become_row_major) {
    static const float data[] = {1, 2, 3, 4, 5, 6};
    const int64_t f = sizeof(float);
    pjrt_api_client *client = open_client();
    const struct {
        int first;
        int64_t strides[2];
        float wanted[6];
    } cases[] = {{0, {3 * f, f}, {1, 2, 3, 4, 5, 6}},   {0, {f, 2 * f}, {1, 3, 5, 2, 4, 6}},
                 {5, {-3 * f, -f}, {6, 5, 4, 3, 2, 1}}, {2, {3 * f, -f}, {3, 2, 1, 6, 5, 4}},
                 {1, {0, f}, {2, 3, 4, 2, 3, 4}},       {4, {0, 0}, {5, 5, 5, 5, 5, 5}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pjrt_api_buffer *buffer = matrix(client, data + cases[i].first, cases[i].strides);
        expect_elements(buffer, cases[i].wanted, 6);
        destroy(F_Buffer_Destroy, buffer);
    }
    destroy(F_Client_Destroy, client);
}

Test(jax_plugin, scalars_and_empty_arrays_are_copied) {
    pjrt_api_client *client = open_client();
    const float one = 42;
    pjrt_from_host_args args = from_host(client, PJRT_TYPE_F32, &one, 0, NULL, NULL);
    OK(Client_BufferFromHostBuffer, &args);
    expect_elements(args.buffer, &one, 1);
    destroy(F_Buffer_Destroy, args.buffer);
    args = from_host(client, PJRT_TYPE_F32, NULL, 3, (const int64_t[]){3, 0, INT64_C(1) << 40}, NULL);
    OK(Client_BufferFromHostBuffer, &args);
    pjrt_to_host_args back = {.head = HEAD(back), .buffer = args.buffer, .target_size = 99};
    OK(Buffer_ToHostBuffer, &back);
    cr_expect_eq(back.target_size, 0);
    destroy(F_Buffer_Destroy, args.buffer);
    destroy(F_Client_Destroy, client);
}

Test(jax_plugin, arrays_that_strata_has_not_are_errors) {
    static const float data[] = {1, 2, 3, 4, 5, 6};
    static const int64_t dims[] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, negative[] = {-1}, huge[] = {INT64_MAX, 3};
    pjrt_api_client *client = open_client();
    pjrt_from_host_args args = from_host(client, PJRT_TYPE_C64, data, 1, dims, NULL);
    FAILS(Client_BufferFromHostBuffer, &args, PJRT_CODE_UNIMPLEMENTED, "complex64");
    cr_expect(!args.buffer && !args.done);
    args.type = 1000;
    FAILS(Client_BufferFromHostBuffer, &args, PJRT_CODE_UNIMPLEMENTED, "type 1000");
    args = from_host(client, PJRT_TYPE_F32, data, 9, dims, NULL);
    FAILS(Client_BufferFromHostBuffer, &args, PJRT_CODE_UNIMPLEMENTED, "9 dimensions");
    args = from_host(client, PJRT_TYPE_F32, data, 1, negative, NULL);
    cr_expect_eq(call(F_Client_BufferFromHostBuffer, &args), PJRT_CODE_INVALID_ARGUMENT);
    args = from_host(client, PJRT_TYPE_F32, data, 2, huge, NULL);
    cr_expect_eq(call(F_Client_BufferFromHostBuffer, &args), PJRT_CODE_INVALID_ARGUMENT);
    args = from_host(client, PJRT_TYPE_F32, data, 1, (const int64_t[]){INT64_C(1) << 50}, NULL);
    FAILS(Client_BufferFromHostBuffer, &args, PJRT_CODE_RESOURCE_EXHAUSTED, "bytes");
    args = from_host(client, PJRT_TYPE_F32, NULL, 1, dims, NULL);
    FAILS(Client_BufferFromHostBuffer, &args, PJRT_CODE_INVALID_ARGUMENT, "no memory");
    args = from_host(client, PJRT_TYPE_F32, data, 2, dims, dims);
    args.n_byte_strides = 1;
    FAILS(Client_BufferFromHostBuffer, &args, PJRT_CODE_INVALID_ARGUMENT, "1 strides");
    args = from_host(client, PJRT_TYPE_F32, data, 1, dims, NULL);
    args.memory = client;
    FAILS(Client_BufferFromHostBuffer, &args, PJRT_CODE_INVALID_ARGUMENT, "another client");
    destroy(F_Client_Destroy, client);
}

Test(jax_plugin, reading_an_array_checks_layout_memory_and_deletion) {
    static const float data[] = {1, 2, 3, 4, 5, 6};
    static const int64_t row_major[] = {1, 0}, column_major[] = {0, 1};
    pjrt_api_client *client = open_client();
    pjrt_api_buffer *buffer = matrix(client, data, NULL);
    pjrt_layout layout = {.head = HEAD(layout), .tiled = {.minor_to_major = row_major, .minor_to_major_size = 2}};
    float found[6];
    pjrt_to_host_args args = {.head = HEAD(args), .buffer = buffer, .layout = &layout};
    OK(Buffer_ToHostBuffer, &args);
    cr_assert_eq(args.target_size, sizeof found);
    args.target = found;
    OK(Buffer_ToHostBuffer, &args);
    cr_assert_not_null(args.done);
    args.target_size--;
    FAILS(Buffer_ToHostBuffer, &args, PJRT_CODE_INVALID_ARGUMENT, "24 bytes");
    args.target_size++;
    layout.tiled.minor_to_major = column_major;
    FAILS(Buffer_ToHostBuffer, &args, PJRT_CODE_UNIMPLEMENTED, "row-major");
    args.layout = NULL;
    destroy(F_Buffer_Delete, buffer);
    cr_assert(is_deleted(buffer));
    FAILS(Buffer_ToHostBuffer, &args, PJRT_CODE_INVALID_ARGUMENT, "deleted");
    destroy(F_Client_Destroy, client); /* before what it owns */
    destroy(F_Buffer_Destroy, buffer);
}

Test(jax_plugin, a_copy_outlives_the_array) {
    static const float data[] = {1, 2, 3, 4, 5, 6};
    pjrt_api_client *client = open_client();
    pjrt_api_buffer *buffer = matrix(client, data, NULL);
    pjrt_pointer_args memory = {.head = HEAD(memory), .object = buffer};
    OK(Buffer_Memory, &memory);
    pjrt_copy_args args = {.head = HEAD(args), .buffer = buffer, .target = memory.pointer}, again = args;
    OK(Buffer_CopyToMemory, &args);
    destroy(F_Buffer_Delete, buffer);
    cr_expect(!is_deleted(args.copy));
    expect_elements(args.copy, data, 6);
    FAILS(Buffer_CopyToMemory, &again, PJRT_CODE_INVALID_ARGUMENT, "deleted");
    again.target = client;
    FAILS(Buffer_CopyToDevice, &again, PJRT_CODE_INVALID_ARGUMENT, "another client");
    destroy(F_Buffer_Destroy, buffer);
    destroy(F_Buffer_Destroy, args.copy);
    destroy(F_Client_Destroy, client);
}

/* ---- programs ---- */

static int compile(pjrt_api_client *client, const char *name, size_t cut, pjrt_api_loaded **out) {
    size_t n = 0;
    unsigned char *bytes = read_fixture(name, ".mlir.bc", &n);
    pjrt_program_text text = {
        .head = HEAD(text), .code = (char *)bytes, .code_size = n - cut, .format = "mlir", .format_size = 4};
    pjrt_client_compile_args args = {.head = HEAD(args), .client = client, .program = &text, .executable = (void *)&args};
    const int code = call(F_Client_Compile, &args);
    *out = args.executable;
    free(bytes);
    return code;
}

/* Runs donated(x, y) = y + 1, x y. Its second argument is deleted by the run, unless the options keep it. */
static int run(pjrt_api_loaded *loaded, pjrt_api_buffer *x, pjrt_api_buffer *y, pjrt_execute_options *options,
               pjrt_api_buffer **outputs) {
    pjrt_api_buffer *const arguments[] = {x, y}, *const *const lists[] = {arguments};
    pjrt_api_buffer **const output_lists[] = {outputs};
    pjrt_api_event *done[1] = {NULL};
    pjrt_execute_args args = {.head = HEAD(args),
                              .executable = loaded,
                              .options = options,
                              .arguments = lists,
                              .n_devices = 1,
                              .n_arguments = 2,
                              .outputs = output_lists,
                              .done = done};
    const int code = call(F_LoadedExecutable_Execute, &args);
    cr_assert_eq(!code, !!done[0]);
    return code;
}

Test(jax_plugin, a_program_computes_and_deletes_what_it_takes) {
    static const float x[] = {1, 2, 3, 4, 5}, y[] = {0, -1, 2, 0.5f, 10};
    static const float sums[] = {1, 0, 3, 1.5f, 11}, products[] = {0, -2, 6, 2, 50};
    pjrt_api_client *client = open_client();
    pjrt_api_loaded *loaded;
    cr_assert_eq(compile(client, "donated", 0, &loaded), 0, "%s", message);
    pjrt_loaded_executable_args executable = {.head = HEAD(executable), .loaded = loaded};
    OK(LoadedExecutable_GetExecutable, &executable);
    pjrt_size_args n = {.head = HEAD(n), .object = executable.executable};
    OK(Executable_NumOutputs, &n);
    cr_assert_eq(n.number, 2);
    pjrt_text_args name = {.head = HEAD(name), .object = executable.executable};
    OK(Executable_Name, &name);
    cr_assert_str_eq(name.text, "jit_donated");
    destroy(F_Executable_Destroy, executable.executable);

    const int64_t kept[] = {1};
    pjrt_execute_options options = {.head = HEAD(options), .not_donated = kept, .n_not_donated = 1};
    pjrt_api_buffer *a = vector(client, x), *b = vector(client, y), *outputs[2];
    for (int i = 0; i < 3; i++) {
        if (i == 2) options.head.struct_size = offsetof(pjrt_execute_options, not_donated); /* of a caller without the list */
        cr_assert_eq(run(loaded, a, b, &options, outputs), 0, "%s", message);
        expect_elements(outputs[0], sums, 5);
        expect_elements(outputs[1], products, 5);
        cr_expect_eq(is_deleted(b), i == 2);
        cr_expect(!is_deleted(a) && !is_deleted(outputs[0]));
        pjrt_int_args type = {.head = HEAD(type), .object = outputs[0]};
        OK(Buffer_ElementType, &type);
        cr_expect_eq(type.number, PJRT_TYPE_F32);
        for (int k = 0; k < 2; k++) destroy(F_Buffer_Destroy, outputs[k]);
    }
    cr_assert_eq(run(loaded, a, b, NULL, outputs), PJRT_CODE_INVALID_ARGUMENT);
    cr_expect(strstr(message, "argument 1 was deleted"), "%s", message);
    destroy(F_Buffer_Destroy, a);
    destroy(F_Buffer_Destroy, b);
    destroy(F_Client_Destroy, client); /* before what it owns */
    destroy(F_LoadedExecutable_Destroy, loaded);
}

Test(jax_plugin, wrong_arguments_of_a_run_are_errors) {
    static const float x[] = {1, 2, 3, 4, 5, 6};
    pjrt_api_client *client = open_client();
    pjrt_api_loaded *loaded;
    pjrt_api_buffer *outputs[2] = {NULL, NULL};
    cr_assert_eq(compile(client, "donated", 0, &loaded), 0, "%s", message);
    pjrt_from_host_args other = from_host(client, PJRT_TYPE_F32, x, 1, (const int64_t[]){6}, NULL);
    OK(Client_BufferFromHostBuffer, &other);
    pjrt_api_buffer *a = vector(client, x);
    cr_expect_eq(run(loaded, other.buffer, a, NULL, outputs), PJRT_CODE_INVALID_ARGUMENT);
    cr_expect(strstr(message, "(5)") && strstr(message, "(6)"), "%s", message);
    cr_expect(!is_deleted(a) && !outputs[0], "a run that failed has taken its argument");
    pjrt_execute_args args = {.head = HEAD(args), .executable = loaded, .n_devices = 1, .n_arguments = 3};
    FAILS(LoadedExecutable_Execute, &args, PJRT_CODE_INVALID_ARGUMENT, "2 arguments was given 3");
    args.n_devices = 2;
    FAILS(LoadedExecutable_Execute, &args, PJRT_CODE_UNIMPLEMENTED, "2 devices");
    destroy(F_LoadedExecutable_Delete, loaded);
    FAILS(LoadedExecutable_Execute, &args, PJRT_CODE_INVALID_ARGUMENT, "jit_donated was deleted");
    destroy(F_Buffer_Destroy, a);
    destroy(F_Buffer_Destroy, other.buffer);
    destroy(F_LoadedExecutable_Destroy, loaded);
    destroy(F_Client_Destroy, client);
}

Test(jax_plugin, a_program_that_cannot_be_compiled_is_an_error) {
    pjrt_api_client *client = open_client();
    pjrt_api_loaded *loaded;
    cr_expect_eq(compile(client, "donated", 9, &loaded), PJRT_CODE_INVALID_ARGUMENT, "%s", message);
    cr_expect_null(loaded);
    cr_expect_eq(compile(client, "refused", 0, &loaded), PJRT_CODE_UNIMPLEMENTED, "%s", message);
    cr_expect(message[0]);
    pjrt_client_compile_args args = {.head = HEAD(args), .client = client};
    FAILS(Client_Compile, &args, PJRT_CODE_INVALID_ARGUMENT, "mlir");
    pjrt_program_text text = {.head = HEAD(text), .code = "HloModule", .code_size = 9, .format = "hlo", .format_size = 3};
    args.program = &text;
    FAILS(Client_Compile, &args, PJRT_CODE_INVALID_ARGUMENT, "mlir");
    destroy(F_Client_Destroy, client);
}

/* ---- events and threads ---- */

static void on_ready(pjrt_api_error *error, void *user) {
    *(int *)user += error ? 100 : 1;
}

Test(jax_plugin, events_are_ready) {
    static const float x[6];
    pjrt_api_client *client = open_client();
    pjrt_api_buffer *buffer = matrix(client, x, NULL);
    pjrt_pointer_args event = {.head = HEAD(event), .object = buffer};
    OK(Buffer_ReadyEvent, &event);
    pjrt_flag_args ready = {.head = HEAD(ready), .object = event.pointer};
    OK(Event_IsReady, &ready);
    cr_expect(ready.flag);
    int n = 0;
    pjrt_on_ready_args callback = {.head = HEAD(callback), .event = event.pointer, .callback = on_ready, .user = &n};
    OK(Event_OnReady, &callback);
    cr_expect_eq(n, 1);
    destroy(F_Event_Await, event.pointer);
    destroy(F_Event_Error, event.pointer);
    destroy(F_Event_Destroy, event.pointer);
    destroy(F_Buffer_Destroy, buffer);
    destroy(F_Client_Destroy, client);
}

typedef struct worker {
    pjrt_api_loaded *loaded;
    pjrt_api_buffer *x, *y;
    float factor;
    int n_wrong;
} worker;

/* Criterion's asserts are for the main thread. */
static void *work(void *argument) {
    worker *w = argument;
    const pjrt_api *api = GetPjrtApi();
    const int64_t kept[] = {1};
    pjrt_execute_options options = {.head = HEAD(options), .not_donated = kept, .n_not_donated = 1};
    pjrt_api_buffer *const arguments[] = {w->x, w->y}, *const *const lists[] = {arguments};
    for (int i = 0; i < 50; i++) {
        float found[5] = {0};
        pjrt_api_buffer *outputs[2] = {NULL, NULL}, **const output_lists[] = {outputs};
        pjrt_execute_args args = {.head = HEAD(args),
                                  .executable = w->loaded,
                                  .options = &options,
                                  .arguments = lists,
                                  .n_devices = 1,
                                  .n_arguments = 2,
                                  .outputs = output_lists};
        w->n_wrong += !!api->functions[F_LoadedExecutable_Execute](&args);
        pjrt_to_host_args copy = {.head = HEAD(copy), .buffer = outputs[1], .target = found, .target_size = sizeof found};
        w->n_wrong += !!api->functions[F_Buffer_ToHostBuffer](&copy);
        for (int k = 0; k < 5; k++) w->n_wrong += found[k] != (float)(k + 1) * w->factor;
        for (int k = 0; k < 2; k++) {
            pjrt_object_args destroyed = {HEAD(destroyed), outputs[k]};
            w->n_wrong += !!api->functions[F_Buffer_Destroy](&destroyed);
        }
    }
    return NULL;
}

Test(jax_plugin, threads_run_one_program_with_their_own_arguments) {
    static const float x[] = {1, 2, 3, 4, 5};
    pjrt_api_client *client = open_client();
    pjrt_api_loaded *loaded;
    cr_assert_eq(compile(client, "donated", 0, &loaded), 0, "%s", message);
    pjrt_api_buffer *shared = vector(client, x);
    worker workers[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        const float factor = (float)(i + 2), y[] = {factor, factor, factor, factor, factor};
        workers[i] = (worker){loaded, shared, vector(client, y), factor, 0};
        cr_assert_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(workers[i].n_wrong, 0);
        destroy(F_Buffer_Destroy, workers[i].y);
    }
    destroy(F_Buffer_Destroy, shared);
    destroy(F_LoadedExecutable_Destroy, loaded);
    destroy(F_Client_Destroy, client);
}
