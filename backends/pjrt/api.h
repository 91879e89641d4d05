/* SPDX-License-Identifier: Apache-2.0
 *
 * Our own declarations of those parts of the PJRT C API, the interface of OpenXLA's plugins, that we use: as the caller of
 * plugins in this folder, and as a plugin for JAX in core/frontend/pjrt. The layout of its structs is its ABI. Every function
 * takes a pointer to one struct, whose first field is the size that the caller knows, and returns an error object or NULL.
 * tests/pjrt/layout_test.c compares sizes and offsets with the API's own header at compile time.
 *
 * The plugin writes the fields that are marked `out`. PJRT_SIZE gets the last field of a struct, because padding after
 * it does not count. */
#ifndef STRATA_BACKENDS_PJRT_API_H
#define STRATA_BACKENDS_PJRT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PJRT_SIZE(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

/* Earlier versions have the table in another order. */
enum { PJRT_MAJOR = 0, PJRT_LEAST_MINOR = 57 };
/* The version of these declarations, and how many functions its table has. */
enum { PJRT_MINOR = 90, PJRT_N_FUNCTIONS = 128 };

typedef struct pjrt_api_error pjrt_api_error;
typedef struct pjrt_api_event pjrt_api_event;
typedef struct pjrt_api_client pjrt_api_client;
typedef struct pjrt_api_device pjrt_api_device;
typedef struct pjrt_api_memory pjrt_api_memory;
typedef struct pjrt_api_description pjrt_api_description;
typedef struct pjrt_api_topology pjrt_api_topology;
typedef struct pjrt_api_executable pjrt_api_executable;
typedef struct pjrt_api_loaded pjrt_api_loaded;
typedef struct pjrt_api_buffer pjrt_api_buffer;

/* The begin of every struct. */
typedef struct pjrt_head {
    size_t struct_size;
    /* A list of extensions; NULL. */
    void *extensions;
} pjrt_head;

/* The table of functions, which GetPjrtApi returns. */
typedef struct pjrt_api {
    pjrt_head head;
    struct pjrt_version {
        pjrt_head head;
        int major, minor;
    } version;
    /* head.struct_size determines how many functions there are. Error_Destroy and Error_Message return nothing. */
    pjrt_api_error *(*functions[])(void *args);
} pjrt_api;

enum {
#define PJRT_FUNCTION(place, name) PJRT_FUNCTION_##name = place,
#include "backends/pjrt/functions.def"
};

/* ---- arguments of many functions, which differ in the type of the object ---- */

/* Error_Destroy, Event_Destroy, Event_Await, Event_Error, Buffer_Delete ... */
typedef struct pjrt_object_args {
    pjrt_head head;
    void *object;
} pjrt_object_args;

/* Client_PlatformName, Client_PlatformVersion, DeviceDescription_Kind, Memory_Kind ... */
typedef struct pjrt_text_args {
    pjrt_head head;
    void *object;
    const char *text; /* out; without a NUL at the end */
    size_t text_size; /* out */
} pjrt_text_args;

/* Event_IsReady, Device_IsAddressable, Buffer_IsDeleted, Buffer_IsOnCpu */
typedef struct pjrt_flag_args {
    pjrt_head head;
    void *object;
    bool flag; /* out */
} pjrt_flag_args;

/* DeviceDescription_Id, Device_LocalHardwareId, Buffer_ElementType ... */
typedef struct pjrt_int_args {
    pjrt_head head;
    void *object;
    int number; /* out */
} pjrt_int_args;

/* Executable_NumReplicas, Executable_NumPartitions, Buffer_OnDeviceSizeInBytes */
typedef struct pjrt_size_args {
    pjrt_head head;
    void *object;
    size_t number; /* out */
} pjrt_size_args;

/* Device_DefaultMemory, Buffer_Device, Buffer_Memory, Buffer_ReadyEvent: another object */
typedef struct pjrt_pointer_args {
    pjrt_head head;
    void *object;
    void *pointer; /* out */
} pjrt_pointer_args;

/* Client_AddressableMemories, Memory_AddressableByDevices, Buffer_Dimensions ... */
typedef struct pjrt_list_args {
    pjrt_head head;
    void *object;
    const void *list; /* out; valid as long as the object */
    size_t n;         /* out */
} pjrt_list_args;

/* ---- errors and events ---- */

typedef struct pjrt_error_message_args {
    pjrt_head head;
    const pjrt_api_error *error;
    const char *message; /* out; valid as long as the error; without a NUL at the end */
    size_t message_size; /* out */
} pjrt_error_message_args;

/* The codes of absl::Status. */
enum {
    PJRT_CODE_CANCELLED = 1,
    PJRT_CODE_INVALID_ARGUMENT = 3,
    PJRT_CODE_DEADLINE_EXCEEDED = 4,
    PJRT_CODE_NOT_FOUND = 5,
    PJRT_CODE_RESOURCE_EXHAUSTED = 8,
    PJRT_CODE_FAILED_PRECONDITION = 9,
    PJRT_CODE_UNIMPLEMENTED = 12,
    PJRT_CODE_INTERNAL = 13,
    PJRT_CODE_UNAVAILABLE = 14
};

typedef struct pjrt_error_code_args {
    pjrt_head head;
    const pjrt_api_error *error;
    int code; /* out */
} pjrt_error_code_args;

typedef struct pjrt_on_ready_args {
    pjrt_head head;
    pjrt_api_event *event;
    /* Called when the event is ready. It takes the event's error, which may be NULL. */
    void (*callback)(pjrt_api_error *error, void *user);
    void *user;
} pjrt_on_ready_args;

/* ---- the plugin ---- */

typedef struct pjrt_plugin_initialize_args {
    pjrt_head head;
} pjrt_plugin_initialize_args;

enum { PJRT_VALUE_STRING = 0, PJRT_VALUE_INT64, PJRT_VALUE_INT64_LIST, PJRT_VALUE_FLOAT, PJRT_VALUE_BOOL };

typedef struct pjrt_named_value {
    pjrt_head head;
    const char *name; /* without a NUL at the end */
    size_t name_size;
    int type;
    union {
        const char *text;
        int64_t number;
        const int64_t *numbers;
        float single;
        bool flag;
    };
    /* The number of characters, or of numbers in a list; otherwise 1. */
    size_t value_size;
} pjrt_named_value;

typedef struct pjrt_plugin_attributes_args {
    pjrt_head head;
    const pjrt_named_value *attributes; /* out; static memory */
    size_t n_attributes;                /* out */
} pjrt_plugin_attributes_args;

/* ---- client and devices ---- */

typedef struct pjrt_client_create_args {
    pjrt_head head;
    const pjrt_named_value *options;
    size_t n_options;
    /* Callbacks for clients that consist of several processes; NULL. */
    void *key_value[4];
    pjrt_api_client *client; /* out */
    void *key_value_try[2];
} pjrt_client_create_args;

typedef struct pjrt_client_devices_args {
    pjrt_head head;
    pjrt_api_client *client;
    pjrt_api_device *const *devices; /* out */
    size_t n_devices;                /* out */
} pjrt_client_devices_args;

/* Client_LookupDevice, Client_LookupAddressableDevice */
typedef struct pjrt_lookup_device_args {
    pjrt_head head;
    pjrt_api_client *client;
    int id;
    pjrt_api_device *device; /* out */
} pjrt_lookup_device_args;

typedef struct pjrt_process_info_args {
    pjrt_head head;
    pjrt_api_client *client;
    void *processes;
    size_t n;
} pjrt_process_info_args;

typedef struct pjrt_description_attributes_args {
    pjrt_head head;
    pjrt_api_description *description;
    size_t n_attributes;                /* out */
    const pjrt_named_value *attributes; /* out */
} pjrt_description_attributes_args;

typedef struct pjrt_device_description_args {
    pjrt_head head;
    pjrt_api_device *device;
    pjrt_api_description *description; /* out */
} pjrt_device_description_args;

typedef struct pjrt_memory_number {
    int64_t bytes;
    bool is_known;
} pjrt_memory_number;

typedef struct pjrt_device_memory_args {
    pjrt_head head;
    pjrt_api_device *device;
    int64_t bytes_in_use; /* out, like all following fields */
    pjrt_memory_number peak_in_use, n_allocations, largest_allocation, limit, reserved, peak_reserved, reservable, largest_free,
        pool, peak_pool;
} pjrt_device_memory_args;

/* ---- programs ---- */

typedef struct pjrt_program_text {
    pjrt_head head;
    char *code;
    size_t code_size;
    /* "mlir", 4 */
    const char *format;
    size_t format_size;
} pjrt_program_text;

typedef struct pjrt_client_compile_args {
    pjrt_head head;
    pjrt_api_client *client;
    const pjrt_program_text *program;
    const char *options; /* a serialized CompileOptionsProto */
    size_t options_size;
    pjrt_api_loaded *executable; /* out */
} pjrt_client_compile_args;

typedef struct pjrt_loaded_executable_args {
    pjrt_head head;
    pjrt_api_loaded *loaded;
    pjrt_api_executable *executable; /* out; the caller must destroy it */
} pjrt_loaded_executable_args;

typedef struct pjrt_device_assignment_args {
    pjrt_head head;
    pjrt_api_loaded *loaded;
    const char *bytes; /* out: a serialized DeviceAssignmentProto */
    size_t n_bytes;    /* out */
    /* out: what the caller frees the bytes with. */
    void *owner;
    void (*destroy)(void *owner);
} pjrt_device_assignment_args;

/* Executable_NumOutputs, Executable_SizeOfGeneratedCodeInBytes */
typedef struct pjrt_executable_number_args {
    pjrt_head head;
    pjrt_api_executable *executable;
    int64_t number; /* out */
} pjrt_executable_number_args;

typedef struct pjrt_cost_args {
    pjrt_head head;
    pjrt_api_executable *executable;
    size_t n_properties;                /* out */
    const pjrt_named_value *properties; /* out */
} pjrt_cost_args;

typedef struct pjrt_memory_stats_args {
    pjrt_head head;
    pjrt_api_executable *executable;
    /* out: bytes on the device, and in the next line on the host. */
    int64_t code, arguments, outputs, aliases, temporaries;
    int64_t host_code, host_arguments, host_outputs, host_aliases, host_temporaries;
    int64_t peak, total; /* out; since versions 0.78 and 0.81 */
} pjrt_memory_stats_args;

typedef struct pjrt_execute_options {
    pjrt_head head;
    void *send_callbacks, *recv_callbacks;
    size_t n_send, n_recv;
    int launch_id;
    /* Parameters that must not be donated, even if the program marks them as donated. */
    const int64_t *not_donated;
    size_t n_not_donated;
    void *context;
    const char *call_location;
    size_t n_tasks;
    int *task_ids;
    int64_t *incarnation_ids;
} pjrt_execute_options;

typedef struct pjrt_execute_args {
    pjrt_head head;
    pjrt_api_loaded *executable;
    pjrt_execute_options *options;
    /* [n_devices][n_arguments] */
    pjrt_api_buffer *const *const *arguments;
    size_t n_devices, n_arguments;
    /* [n_devices][outputs] Written by the plugin. */
    pjrt_api_buffer **const *outputs;
    /* [n_devices] Written by the plugin. NULL: no events are wanted. */
    pjrt_api_event **done;
    /* The only device, for programs that were not compiled for certain devices. NULL: the devices for which it was
     * compiled. */
    pjrt_api_device *device;
} pjrt_execute_args;

/* ---- buffers ---- */

enum {
    PJRT_TYPE_PRED = 1,
    PJRT_TYPE_S8,
    PJRT_TYPE_S16,
    PJRT_TYPE_S32,
    PJRT_TYPE_S64,
    PJRT_TYPE_U8,
    PJRT_TYPE_U16,
    PJRT_TYPE_U32,
    PJRT_TYPE_U64,
    PJRT_TYPE_F16,
    PJRT_TYPE_F32,
    PJRT_TYPE_F64,
    PJRT_TYPE_BF16,
    PJRT_TYPE_C64,
    PJRT_TYPE_C128
};

/* Until when the plugin may read the host memory: during the call, or until the event `done`. */
enum { PJRT_HOST_DURING_CALL = 0, PJRT_HOST_UNTIL_DONE = 1 };

typedef struct pjrt_from_host_args {
    pjrt_head head;
    pjrt_api_client *client;
    const void *data;
    int type;
    const int64_t *dims;
    size_t n_dims;
    /* NULL and 0: row-major. */
    const int64_t *byte_strides;
    size_t n_byte_strides;
    int semantics;
    pjrt_api_device *device;
    void *memory, *layout;
    pjrt_api_event *done;    /* out */
    pjrt_api_buffer *buffer; /* out */
} pjrt_from_host_args;

/* Row-major: minor_to_major is n - 1, ..., 0, without tiles. */
typedef struct pjrt_layout {
    pjrt_head head;
    struct pjrt_tiled_layout {
        pjrt_head head;
        const int64_t *minor_to_major;
        size_t minor_to_major_size;
        const int64_t *tile_dims;
        const size_t *tile_dim_sizes;
        size_t n_tiles;
    } tiled;
    /* 0: tiled */
    int type;
} pjrt_layout;

typedef struct pjrt_to_host_args {
    pjrt_head head;
    pjrt_api_buffer *buffer;
    pjrt_layout *layout;
    void *target;
    size_t target_size;
    pjrt_api_event *done; /* out */
} pjrt_to_host_args;

/* Buffer_CopyToDevice, Buffer_CopyToMemory */
typedef struct pjrt_copy_args {
    pjrt_head head;
    pjrt_api_buffer *buffer;
    /* A device or a memory. */
    void *target;
    pjrt_api_buffer *copy; /* out */
} pjrt_copy_args;

/* ---- ahead of time ---- */

typedef struct pjrt_topology_create_args {
    pjrt_head head;
    const char *name;
    size_t name_size;
    const pjrt_named_value *options;
    size_t n_options;
    pjrt_api_topology *topology; /* out */
} pjrt_topology_create_args;

typedef struct pjrt_topology_devices_args {
    pjrt_head head;
    const pjrt_api_topology *topology;
    pjrt_api_description *const *descriptions; /* out */
    size_t n_descriptions;                     /* out */
} pjrt_topology_devices_args;

typedef struct pjrt_compile_args {
    pjrt_head head;
    const pjrt_api_topology *topology;
    const pjrt_program_text *program;
    const char *options;
    size_t options_size;
    /* NULL: there is no client. */
    pjrt_api_client *client;
    pjrt_api_executable *executable; /* out */
} pjrt_compile_args;

#endif
