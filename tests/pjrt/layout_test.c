/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares our declarations of the PJRT C API with PJRT's own header at compile time: sizes of structs, offsets of fields,
 * and positions in the table of functions. The header is part of the tensorflow package. Without it nothing is compared. */
#include <criterion/criterion.h>

#include "backends/pjrt/api.h"

#if __has_include("xla/pjrt/c/pjrt_c_api.h")
#include "xla/pjrt/c/pjrt_c_api.h"

/* Compares the size of the struct and the offset of its last field. */
#define SAME(ours, last, theirs, their_last)                                                  \
    _Static_assert(PJRT_SIZE(ours, last) == theirs##_STRUCT_SIZE, #ours " has another size"); \
    _Static_assert(offsetof(ours, last) == offsetof(theirs, their_last), #ours "." #last)
#define FIELD(ours, field, theirs, their_field) \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #ours "." #field)

#define PJRT_FUNCTION(place, name) \
    _Static_assert(offsetof(pjrt_api, functions) + place * sizeof(void *) == offsetof(PJRT_Api, PJRT_##name), #name);
#include "backends/pjrt/functions.def"

/* The functions that our own plugin has, with the sizes of their arguments, and those that it lacks. */
#define VALUE(place, name, arguments, last, assignment) FUNCTION(place, name, arguments, last)
#define METHOD(place, name, arguments, last)            FUNCTION(place, name, arguments, last)
#define FUNCTION(place, name, arguments, last) \
    MISSING(place, name)                       \
    _Static_assert(PJRT_SIZE(arguments, last) == PJRT_##name##_Args_STRUCT_SIZE, #name " has another size of arguments");
#define MISSING(place, name) \
    _Static_assert(offsetof(pjrt_api, functions) + place * sizeof(void *) == offsetof(PJRT_Api, PJRT_##name), #name);
#include "core/frontend/pjrt/functions.def"
_Static_assert(offsetof(pjrt_api, functions) + PJRT_N_FUNCTIONS * sizeof(void *) == PJRT_Api_STRUCT_SIZE, "the table's length");
_Static_assert(PJRT_MINOR == PJRT_API_MINOR, "the version of the declarations");

FIELD(pjrt_api, version, PJRT_Api, pjrt_api_version);
FIELD(struct pjrt_version, minor, PJRT_Api_Version, minor_version);
SAME(pjrt_object_args, object, PJRT_TopologyDescription_Destroy_Args, topology);
SAME(pjrt_error_message_args, message_size, PJRT_Error_Message_Args, message_size);
FIELD(pjrt_error_message_args, message, PJRT_Error_Message_Args, message);
FIELD(pjrt_on_ready_args, callback, PJRT_Event_OnReady_Args, callback);
SAME(pjrt_error_code_args, code, PJRT_Error_GetCode_Args, code);
SAME(pjrt_named_value, value_size, PJRT_NamedValue, value_size);
FIELD(pjrt_named_value, type, PJRT_NamedValue, type);
FIELD(pjrt_named_value, text, PJRT_NamedValue, string_value);
SAME(pjrt_client_create_args, key_value_try[1], PJRT_Client_Create_Args, kv_try_get_user_arg);
FIELD(pjrt_client_create_args, client, PJRT_Client_Create_Args, client);
FIELD(pjrt_text_args, text, PJRT_Memory_Kind_Args, kind);
FIELD(pjrt_flag_args, flag, PJRT_Buffer_IsDeleted_Args, is_deleted);
FIELD(pjrt_int_args, number, PJRT_Buffer_ElementType_Args, type);
FIELD(pjrt_size_args, number, PJRT_Executable_NumOutputs_Args, num_outputs);
FIELD(pjrt_pointer_args, pointer, PJRT_Buffer_ReadyEvent_Args, event);
FIELD(pjrt_list_args, list, PJRT_Buffer_Dimensions_Args, dims);
FIELD(pjrt_list_args, list, PJRT_Memory_AddressableByDevices_Args, devices);
FIELD(pjrt_plugin_attributes_args, attributes, PJRT_Plugin_Attributes_Args, attributes);
FIELD(pjrt_lookup_device_args, id, PJRT_Client_LookupDevice_Args, id);
FIELD(pjrt_description_attributes_args, n_attributes, PJRT_DeviceDescription_Attributes_Args, num_attributes);
FIELD(pjrt_device_assignment_args, bytes, PJRT_LoadedExecutable_GetDeviceAssignment_Args, serialized_bytes);
FIELD(pjrt_device_assignment_args, owner, PJRT_LoadedExecutable_GetDeviceAssignment_Args, serialized_device_assignment);
SAME(pjrt_client_devices_args, n_devices, PJRT_Client_AddressableDevices_Args, num_addressable_devices);
SAME(pjrt_device_description_args, description, PJRT_Device_GetDescription_Args, device_description);
SAME(pjrt_device_memory_args, peak_pool.is_known, PJRT_Device_MemoryStats_Args, peak_pool_bytes_is_set);
FIELD(pjrt_device_memory_args, limit.bytes, PJRT_Device_MemoryStats_Args, bytes_limit);
FIELD(pjrt_device_memory_args, limit.is_known, PJRT_Device_MemoryStats_Args, bytes_limit_is_set);
SAME(pjrt_program_text, format_size, PJRT_Program, format_size);
FIELD(pjrt_program_text, code, PJRT_Program, code);
SAME(pjrt_client_compile_args, executable, PJRT_Client_Compile_Args, executable);
FIELD(pjrt_client_compile_args, options, PJRT_Client_Compile_Args, compile_options);
SAME(pjrt_loaded_executable_args, executable, PJRT_LoadedExecutable_GetExecutable_Args, executable);
SAME(pjrt_executable_number_args, number, PJRT_Executable_NumOutputs_Args, num_outputs);
SAME(pjrt_executable_number_args, number, PJRT_Executable_SizeOfGeneratedCodeInBytes_Args, size_in_bytes);
SAME(pjrt_cost_args, properties, PJRT_Executable_GetCostAnalysis_Args, properties);
SAME(pjrt_memory_stats_args, total, PJRT_Executable_GetCompiledMemoryStats_Args, total_size_in_bytes);
FIELD(pjrt_memory_stats_args, temporaries, PJRT_Executable_GetCompiledMemoryStats_Args, temp_size_in_bytes);
SAME(pjrt_execute_options, incarnation_ids, PJRT_ExecuteOptions, incarnation_ids);
FIELD(pjrt_execute_options, not_donated, PJRT_ExecuteOptions, non_donatable_input_indices);
SAME(pjrt_execute_args, device, PJRT_LoadedExecutable_Execute_Args, execute_device);
FIELD(pjrt_execute_args, arguments, PJRT_LoadedExecutable_Execute_Args, argument_lists);
FIELD(pjrt_execute_args, outputs, PJRT_LoadedExecutable_Execute_Args, output_lists);
SAME(pjrt_from_host_args, buffer, PJRT_Client_BufferFromHostBuffer_Args, buffer);
FIELD(pjrt_from_host_args, type, PJRT_Client_BufferFromHostBuffer_Args, type);
FIELD(pjrt_from_host_args, semantics, PJRT_Client_BufferFromHostBuffer_Args, host_buffer_semantics);
FIELD(pjrt_from_host_args, byte_strides, PJRT_Client_BufferFromHostBuffer_Args, byte_strides);
FIELD(pjrt_from_host_args, device, PJRT_Client_BufferFromHostBuffer_Args, device);
SAME(pjrt_layout, type, PJRT_Buffer_MemoryLayout, type);
SAME(struct pjrt_tiled_layout, n_tiles, PJRT_Buffer_MemoryLayout_Tiled, num_tiles);
SAME(pjrt_to_host_args, done, PJRT_Buffer_ToHostBuffer_Args, event);
FIELD(pjrt_to_host_args, target, PJRT_Buffer_ToHostBuffer_Args, dst);
SAME(pjrt_topology_create_args, topology, PJRT_TopologyDescription_Create_Args, topology);
SAME(pjrt_topology_devices_args, n_descriptions, PJRT_TopologyDescription_GetDeviceDescriptions_Args, num_descriptions);
SAME(pjrt_compile_args, executable, PJRT_Compile_Args, executable);

Test(pjrt_layout, our_declarations_are_those_of_the_api) {
    cr_expect_eq(PJRT_TYPE_PRED, PJRT_Buffer_Type_PRED);
    cr_expect_eq(PJRT_TYPE_U16, PJRT_Buffer_Type_U16);
    cr_expect_eq(PJRT_TYPE_C128, PJRT_Buffer_Type_C128);
    cr_expect_eq(PJRT_TYPE_S32, PJRT_Buffer_Type_S32);
    cr_expect_eq(PJRT_TYPE_S64, PJRT_Buffer_Type_S64);
    cr_expect_eq(PJRT_TYPE_U8, PJRT_Buffer_Type_U8);
    cr_expect_eq(PJRT_TYPE_F16, PJRT_Buffer_Type_F16);
    cr_expect_eq(PJRT_TYPE_F32, PJRT_Buffer_Type_F32);
    cr_expect_eq(PJRT_TYPE_BF16, PJRT_Buffer_Type_BF16);
    cr_expect_eq(PJRT_HOST_DURING_CALL, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
    cr_expect_eq(PJRT_HOST_UNTIL_DONE, PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes);
    cr_expect_eq(PJRT_VALUE_FLOAT, PJRT_NamedValue_kFloat);
    cr_expect_eq(PJRT_CODE_CANCELLED, PJRT_Error_Code_CANCELLED);
    cr_expect_eq(PJRT_CODE_INTERNAL, PJRT_Error_Code_INTERNAL);
    cr_expect_eq(PJRT_CODE_RESOURCE_EXHAUSTED, PJRT_Error_Code_RESOURCE_EXHAUSTED);
    cr_expect_eq(PJRT_CODE_UNAVAILABLE, PJRT_Error_Code_UNAVAILABLE);
}
#else
Test(pjrt_layout, our_declarations_are_those_of_the_api) {
    cr_skip_test("pjrt_c_api.h is not here: configure with -DSTRATA_PJRT_INCLUDE, the include folder of a tensorflow package");
}
#endif
