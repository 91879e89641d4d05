/* SPDX-License-Identifier: Apache-2.0
 *
 * The physical devices: reads the properties of each, decides which features and extensions Strata enables, and writes
 * its row in the list of devices. A device that lacks something is listed with the reason. */
#include <stdio.h>
#include <unistd.h>

#include "backends/vulkan/vulkan.h"

static const struct {
    uint32_t id;
    const char *name;
} vendors[] = {
    {0x1002, "AMD"},          {0x10de, "NVIDIA"},       {0x8086, "Intel"},    {0x13b5, "Arm"},    {0x5143, "Qualcomm"},
    {0x106b, "Apple"},        {0x1010, "Imagination"},  {0x14e4, "Broadcom"}, {0x19e5, "Huawei"}, {0x1414, "Microsoft"},
    {0x10001, "VeriSilicon"}, {0x10002, "VeriSilicon"}, {0x10005, "Mesa"},
};

static const char *vendor_name(uint32_t id) {
    for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++)
        if (vendors[i].id == id) return vendors[i].name;
    return "";
}

/* ---- extensions ---- */
static strata_status read_extensions(const vulkan_functions *vk, VkPhysicalDevice device, vulkan_extensions *out_list,
                                     strata_error *err) {
    vulkan_extensions list = {0};
    if (vk->EnumerateDeviceExtensionProperties(device, NULL, &list.n, NULL)) list.n = 0;
    STRATA_TRY(STRATA_NEW(list.names, list.n, err, "vulkan: no host memory for %u extensions", list.n));
    if (vk->EnumerateDeviceExtensionProperties(device, NULL, &list.n, list.names) < 0) list.n = 0;
    *out_list = list;
    return STRATA_OK;
}

/* Inserts a structure at the head of a pNext chain. */
static void chain(void **head, void *structure) {
    ((VkBaseOutStructure *)structure)->pNext = *head;
    *head = structure;
}

/* ---- features ---- */
static void read_features(const vulkan_functions *vk, const vulkan_extensions *extensions, vulkan_physical *out) {
    bool core_1_2 = out->version >= VK_API_VERSION_1_2;
    bool has_8bit = core_1_2 || vulkan_has(extensions, VK_KHR_8BIT_STORAGE_EXTENSION_NAME);
    VkPhysicalDevice16BitStorageFeatures bits16 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES};
    VkPhysicalDevice8BitStorageFeatures bits8 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    chain(&features.pNext, &bits16);
    if (has_8bit) chain(&features.pNext, &bits8);
    vk->GetPhysicalDeviceFeatures2(out->handle, &features);
    out->storage_16bit = bits16.storageBuffer16BitAccess;
    out->storage_8bit = has_8bit && bits8.storageBuffer8BitAccess;
    out->int64 = features.features.shaderInt64;
    if (out->storage_8bit && !core_1_2) vulkan_enable(out, VK_KHR_8BIT_STORAGE_EXTENSION_NAME);
    /* A layered implementation requires this extension to be enabled if it is listed. */
    if (vulkan_has(extensions, "VK_KHR_portability_subset")) vulkan_enable(out, "VK_KHR_portability_subset");

    /* Without 8-bit storage, kernels access u8 and bool as parts of words. */
    uint32_t dtypes = 1u << STRATA_DTYPE_F32 | 1u << STRATA_DTYPE_I32 | 1u << STRATA_DTYPE_U8 | 1u << STRATA_DTYPE_BOOL;
    if (out->storage_16bit) dtypes |= 1u << STRATA_DTYPE_F16 | 1u << STRATA_DTYPE_BF16;
    if (out->int64) dtypes |= 1u << STRATA_DTYPE_I64;
    out->info.dtypes = dtypes;
}

/* ---- properties ---- */
static strata_device_class class_of(VkPhysicalDeviceType type) {
    switch (type) {
        case VK_PHYSICAL_DEVICE_TYPE_CPU:
            return STRATA_DEVICE_SOFTWARE_GPU;
        case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
            return STRATA_DEVICE_INTEGRATED_GPU;
        default: /* discrete, virtual, other: these are assumed not to share the host's memory */
            return STRATA_DEVICE_DISCRETE_GPU;
    }
}

/* The number of cores. Vulkan itself does not report it, but vendors' extensions do. 0: not known. */
static uint32_t count_units(const VkPhysicalDeviceShaderSMBuiltinsPropertiesNV *nvidia,
                            const VkPhysicalDeviceShaderCorePropertiesAMD *amd, strata_device_class device_class) {
    long cpus = device_class == STRATA_DEVICE_SOFTWARE_GPU ? sysconf(_SC_NPROCESSORS_ONLN) : 0;
    if (cpus > 0) return (uint32_t)cpus;
    if (nvidia->shaderSMCount) return nvidia->shaderSMCount;
    return amd->shaderEngineCount * amd->shaderArraysPerEngineCount * amd->computeUnitsPerShaderArray;
}

static void read_properties(const vulkan_functions *vk, const vulkan_extensions *extensions, vulkan_physical *out) {
    VkPhysicalDeviceMaintenance3Properties limits = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
    VkPhysicalDeviceDriverProperties driver = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
    VkPhysicalDeviceShaderCorePropertiesAMD amd = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    chain(&all.pNext, &limits);
    bool has_driver = out->version >= VK_API_VERSION_1_2 || vulkan_has(extensions, VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME);
    if (has_driver) chain(&all.pNext, &driver);
    if (vulkan_has(extensions, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) chain(&all.pNext, &nvidia);
    if (vulkan_has(extensions, VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME)) chain(&all.pNext, &amd);
    vk->GetPhysicalDeviceProperties2(out->handle, &all);

    const VkPhysicalDeviceLimits *general = &out->properties.limits;
    strata_device_info *info = &out->info;
    snprintf(info->vendor, sizeof info->vendor, "%s", vendor_name(out->properties.vendorID));
    if (!info->vendor[0]) snprintf(info->vendor, sizeof info->vendor, "vendor 0x%x", out->properties.vendorID);
    if (has_driver && driver.driverName[0])
        snprintf(info->driver, sizeof info->driver, "%.60s %.60s", driver.driverName, driver.driverInfo);
    else
        snprintf(info->driver, sizeof info->driver, "version 0x%x", out->properties.driverVersion);
    info->device_class = class_of(out->properties.deviceType);
    info->unified_memory = info->device_class != STRATA_DEVICE_DISCRETE_GPU;
    for (uint32_t i = 0; i < out->memory.memoryHeapCount; i++) {
        const VkMemoryHeap *heap = &out->memory.memoryHeaps[i];
        bool counts = info->unified_memory || (heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT);
        if (counts && heap->size > info->memory_bytes) info->memory_bytes = heap->size;
    }
    info->max_allocation_bytes = limits.maxMemoryAllocationSize;
    if (info->max_allocation_bytes > info->memory_bytes) info->max_allocation_bytes = info->memory_bytes;
    info->max_range_bytes = general->maxStorageBufferRange;
    info->compute_units = count_units(&nvidia, &amd, info->device_class);
    info->max_workgroup = general->maxComputeWorkGroupInvocations;
    info->local_bytes = general->maxComputeSharedMemorySize;
    info->vector_width = 1;
    /* A GPU that is emulated on a CPU loads the element of each work-item separately from a storage buffer, but loads
     * texels by vector instructions. */
    out->fetches = info->device_class == STRATA_DEVICE_SOFTWARE_GPU &&
                   general->maxTexelBufferElements >= general->maxStorageBufferRange &&
                   general->maxPerStageDescriptorSampledImages >= STRATA_SHADER_MAX_BUFFERS &&
                   general->maxPerStageDescriptorStorageImages >= STRATA_SHADER_MAX_BUFFERS;
}

/* Chooses a queue family. One that supports compute but not graphics does not slow down the desktop; without such a
 * family, any one that supports compute is used. */
static strata_status choose_queue(const vulkan_functions *vk, vulkan_physical *out, strata_error *err) {
    uint32_t n = 0;
    vk->GetPhysicalDeviceQueueFamilyProperties(out->handle, &n, NULL);
    STRATA_FREED VkQueueFamilyProperties *families = NULL;
    STRATA_TRY(STRATA_NEW(families, n, err, "vulkan: no host memory for %u queue families", n));
    vk->GetPhysicalDeviceQueueFamilyProperties(out->handle, &n, families);
    out->queue_family = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) || !families[i].queueCount) continue;
        bool draws = families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT;
        if (out->queue_family == UINT32_MAX || !draws) out->queue_family = i, out->time_bits = families[i].timestampValidBits;
        if (!draws) break;
    }
    return STRATA_OK;
}

/* With fewer work-items in a work-group, each of which starts as slowly as a large one, a step of a small network takes
 * minutes. */
enum { LEAST_WORKGROUP = 8 };

/* Writes the reason why kernels cannot run on the device; "" if they can. */
static void find_obstacle(vulkan_physical *device) {
    const VkPhysicalDeviceProperties *properties = &device->properties;
    strata_device_info *info = &device->info;
    uint32_t version = properties->apiVersion;
    if (version < VK_API_VERSION_1_1)
        snprintf(info->skipped, sizeof info->skipped, "its driver is of Vulkan %u.%u; 1.1 is needed",
                 VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
    else if (device->queue_family == UINT32_MAX)
        snprintf(info->skipped, sizeof info->skipped, "it has no queue for compute");
    else if (properties->limits.maxPushConstantsSize < STRATA_SHADER_MAX_WORDS * sizeof(uint32_t))
        snprintf(info->skipped, sizeof info->skipped, "it takes %u bytes of push constants; kernels need %zu",
                 properties->limits.maxPushConstantsSize, STRATA_SHADER_MAX_WORDS * sizeof(uint32_t));
    else if (properties->limits.maxPerStageDescriptorStorageBuffers < STRATA_SHADER_MAX_BUFFERS)
        snprintf(info->skipped, sizeof info->skipped, "it binds %u buffers; kernels need %d",
                 properties->limits.maxPerStageDescriptorStorageBuffers, STRATA_SHADER_MAX_BUFFERS);
    else if (info->max_workgroup < LEAST_WORKGROUP || properties->limits.maxComputeWorkGroupSize[0] < LEAST_WORKGROUP)
        snprintf(
            info->skipped, sizeof info->skipped,
            "its work-groups have at most %u work-items (%u in a row); Vulkan demands 128 of a device, and kernels need %d",
            info->max_workgroup, properties->limits.maxComputeWorkGroupSize[0], LEAST_WORKGROUP);
    else if (!info->memory_bytes)
        snprintf(info->skipped, sizeof info->skipped, "its driver (%.100s) says that it has no memory", info->driver);
}

static strata_status describe(const vulkan_instance *instance, VkPhysicalDevice handle, int index, vulkan_physical *out,
                              strata_error *err) {
    const vulkan_functions *vk = &instance->vk;
    *out = (vulkan_physical){.handle = handle, .info = {.backend = "vulkan"}};
    vk->GetPhysicalDeviceProperties(handle, &out->properties);
    vk->GetPhysicalDeviceMemoryProperties(handle, &out->memory);
    snprintf(out->info.id, sizeof out->info.id, "vulkan:%d", index);
    snprintf(out->info.name, sizeof out->info.name, "%.127s", out->properties.deviceName);
    out->version = out->properties.apiVersion < instance->version ? out->properties.apiVersion : instance->version;
    STRATA_TRY(choose_queue(vk, out, err));
    if (out->properties.apiVersion < VK_API_VERSION_1_1) {
        find_obstacle(out);
        return STRATA_OK;
    }
    vulkan_extensions extensions = {0};
    STRATA_TRY(read_extensions(vk, handle, &extensions, err));
    read_properties(vk, &extensions, out);
    read_features(vk, &extensions, out);
    strata_vulkan_find_matrix_units(vk, &extensions, out);
    free(extensions.names);
    find_obstacle(out);
    return STRATA_OK;
}

strata_status strata_vulkan_physical_list(const vulkan_instance *instance, vulkan_physical **out_devices, int *out_n,
                                          strata_error *err) {
    const vulkan_functions *vk = &instance->vk;
    uint32_t n = 0;
    VkResult result = vk->EnumeratePhysicalDevices(instance->handle, &n, NULL);
    if (result < 0) return strata_vulkan_fail_result(result, "vulkan: vkEnumeratePhysicalDevices", err);
    STRATA_FREED VkPhysicalDevice *handles = NULL;
    STRATA_FREED vulkan_physical *devices = NULL;
    STRATA_TRY(STRATA_NEW(handles, n, err, "vulkan: no host memory for %u devices", n));
    STRATA_TRY(STRATA_NEW(devices, n, err, "vulkan: no host memory for %u devices", n));
    result = vk->EnumeratePhysicalDevices(instance->handle, &n, handles);
    if (result < 0) return strata_vulkan_fail_result(result, "vulkan: vkEnumeratePhysicalDevices", err);
    for (uint32_t i = 0; i < n; i++) STRATA_TRY(describe(instance, handles[i], (int)i, &devices[i], err));
    *out_devices = strata_released(&devices);
    *out_n = (int)n;
    return STRATA_OK;
}
