/* SPDX-License-Identifier: Apache-2.0
 *
 * A Vulkan driver that misbehaves over one that does not (STRATA_SHIM_DRIVER, a driver's library).
 *     STRATA_SHIM_FAIL=vkCreateFence     this function of a device fails, and vkDeviceWaitIdle ends the process, as it does in
 *                                        RADV without hardware
 *     STRATA_SHIM_NO_MEMORY=1            no heap has a byte
 *     STRATA_SHIM_COMPILE_SECONDS=0.5    what each pipeline takes to compile, at least */
#define VK_NO_PROTOTYPES
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vulkan/vulkan.h>

#define EXPORT __attribute__((visibility("default")))

static PFN_vkGetInstanceProcAddr inner;
static PFN_vkGetDeviceProcAddr inner_device;
static PFN_vkGetPhysicalDeviceMemoryProperties inner_memory;
static PFN_vkCreateComputePipelines inner_pipelines;
static void *driver;

static void *of_driver(const char *name) {
    const char *path = getenv("STRATA_SHIM_DRIVER");
    if (!driver && path) driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return driver ? dlsym(driver, name) : NULL;
}

static VKAPI_ATTR VkResult VKAPI_CALL fail(void) {
    return VK_ERROR_INITIALIZATION_FAILED;
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_idle(VkDevice device) {
    (void)device;
    abort();
}

static VKAPI_ATTR void VKAPI_CALL memory_properties(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties *out) {
    inner_memory(device, out);
    for (uint32_t i = 0; i < out->memoryHeapCount; i++) out->memoryHeaps[i].size = 0;
}

static VKAPI_ATTR VkResult VKAPI_CALL compute_pipelines(VkDevice device, VkPipelineCache cache, uint32_t n,
                                                        const VkComputePipelineCreateInfo *infos,
                                                        const VkAllocationCallbacks *allocator, VkPipeline *out) {
    const double seconds = atof(getenv("STRATA_SHIM_COMPILE_SECONDS"));
    struct timespec nap = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&nap, NULL);
    return inner_pipelines(device, cache, n, infos, allocator, out);
}

static PFN_vkVoidFunction replacement(const char *name) {
    const char *failing = getenv("STRATA_SHIM_FAIL");
    if (failing && !strcmp(name, failing)) return (PFN_vkVoidFunction)fail;
    if (failing && !strcmp(name, "vkDeviceWaitIdle")) return (PFN_vkVoidFunction)wait_idle;
    if (inner_memory && !strcmp(name, "vkGetPhysicalDeviceMemoryProperties") && getenv("STRATA_SHIM_NO_MEMORY"))
        return (PFN_vkVoidFunction)memory_properties;
    if (inner_pipelines && !strcmp(name, "vkCreateComputePipelines") && getenv("STRATA_SHIM_COMPILE_SECONDS"))
        return (PFN_vkVoidFunction)compute_pipelines;
    return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL of_device(VkDevice device, const char *name) {
    const PFN_vkVoidFunction real = inner_device(device, name);
    if (!strcmp(name, "vkCreateComputePipelines")) inner_pipelines = (PFN_vkCreateComputePipelines)real;
    const PFN_vkVoidFunction other = replacement(name);
    return other ? other : real;
}

/* ---- what the loader asks a driver for ---- */

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance, const char *name) {
    if (!inner) inner = (PFN_vkGetInstanceProcAddr)of_driver("vk_icdGetInstanceProcAddr");
    if (!inner) return NULL;
    const PFN_vkVoidFunction real = inner(instance, name);
    if (!strcmp(name, "vkGetDeviceProcAddr")) {
        inner_device = (PFN_vkGetDeviceProcAddr)real;
        return (PFN_vkVoidFunction)of_device;
    }
    if (!strcmp(name, "vkGetPhysicalDeviceMemoryProperties")) inner_memory = (PFN_vkGetPhysicalDeviceMemoryProperties)real;
    const PFN_vkVoidFunction other = replacement(name);
    return other ? other : real;
}

EXPORT VKAPI_ATTR VkResult VKAPI_CALL vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    VkResult (*negotiate)(uint32_t *) = (VkResult(*)(uint32_t *))of_driver("vk_icdNegotiateLoaderICDInterfaceVersion");
    if (*version > 4) *version = 4;
    return negotiate ? negotiate(version) : VK_SUCCESS;
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetPhysicalDeviceProcAddr(VkInstance instance, const char *name) {
    PFN_vkGetInstanceProcAddr get = (PFN_vkGetInstanceProcAddr)of_driver("vk_icdGetPhysicalDeviceProcAddr");
    return get ? get(instance, name) : NULL;
}
