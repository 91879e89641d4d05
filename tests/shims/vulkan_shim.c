/* SPDX-License-Identifier: Apache-2.0
 *
 * A Vulkan driver that fails, computes wrong results or compiles slowly. It loads an installed driver, whose library the
 * variable STRATA_SHIM_DRIVER names, and replaces some of its functions. These environment variables control it:
 *     STRATA_SHIM_FAIL=vkCreateFence     this function of a device fails, and vkDeviceWaitIdle aborts the process, as RADV does
 *                                        without hardware
 *     STRATA_SHIM_NO_MEMORY=1            all memory heaps have size 0
 *     STRATA_SHIM_WITHOUT=8              what devices lack: 8-bit storage (8), 16-bit storage (16), shaderInt64 (64)
 *     STRATA_SHIM_WORKGROUP=1            the largest number of work-items in a work-group
 *     STRATA_SHIM_LIE_NTH=3              the third shader module created since the variable was set stores wrong results:
 *                                        floats with the opposite sign, and integers with all bits flipped. 0: count anew
 *     STRATA_SHIM_COMPILE_SECONDS=0.5    a pipeline takes at least 0.5 s to compile; it is read at each compilation
 *     STRATA_SHIM_COMPILE_NTH=3          only the third compilation is slow
 *     STRATA_SHIM_HANG=vkWaitForFences   this function does not return. STRATA_SHIM_HANG_NTH=3: only the third call of
 *                                        vkQueueSubmit does not */
#define VK_NO_PROTOTYPES
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

#include "tests/shims/hang.h"
#include "tests/shims/slow_compiler.h"

#define EXPORT __attribute__((visibility("default")))

static PFN_vkGetInstanceProcAddr inner;
static PFN_vkGetDeviceProcAddr inner_device;
static PFN_vkGetPhysicalDeviceMemoryProperties inner_memory;
static PFN_vkGetPhysicalDeviceFeatures2 inner_features;
static PFN_vkGetPhysicalDeviceProperties inner_properties;
static PFN_vkGetPhysicalDeviceProperties2 inner_properties2;
static PFN_vkCreateComputePipelines inner_pipelines;
static PFN_vkCreateShaderModule inner_module;
static PFN_vkQueueSubmit inner_submit;
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

/* ---- devices that lack something ---- */

static bool lacks(const char *feature) {
    const char *at = getenv("STRATA_SHIM_WITHOUT");
    for (; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == strlen(feature) && !strncmp(at, feature, strlen(feature))) return true;
    return false;
}

static VKAPI_ATTR void VKAPI_CALL features(VkPhysicalDevice device, VkPhysicalDeviceFeatures2 *out) {
    inner_features(device, out);
    if (lacks("64")) out->features.shaderInt64 = VK_FALSE;
    for (VkBaseOutStructure *at = (VkBaseOutStructure *)out; at; at = at->pNext) {
        if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES && lacks("8"))
            ((VkPhysicalDevice8BitStorageFeatures *)(void *)at)->storageBuffer8BitAccess = VK_FALSE;
        if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES && lacks("16"))
            ((VkPhysicalDevice16BitStorageFeatures *)(void *)at)->storageBuffer16BitAccess = VK_FALSE;
    }
}

static void restrict_workgroup(VkPhysicalDeviceLimits *limits) {
    const char *text = getenv("STRATA_SHIM_WORKGROUP");
    const uint32_t most = text ? (uint32_t)atoi(text) : 0;
    if (!most) return;
    limits->maxComputeWorkGroupInvocations = most;
    for (int d = 0; d < 3; d++)
        if (limits->maxComputeWorkGroupSize[d] > most) limits->maxComputeWorkGroupSize[d] = most;
}

static VKAPI_ATTR void VKAPI_CALL properties(VkPhysicalDevice device, VkPhysicalDeviceProperties *out) {
    inner_properties(device, out);
    restrict_workgroup(&out->limits);
}

static VKAPI_ATTR void VKAPI_CALL properties2(VkPhysicalDevice device, VkPhysicalDeviceProperties2 *out) {
    inner_properties2(device, out);
    restrict_workgroup(&out->properties.limits);
}

static VKAPI_ATTR VkResult VKAPI_CALL compute_pipelines(VkDevice device, VkPipelineCache cache, uint32_t n,
                                                        const VkComputePipelineCreateInfo *infos,
                                                        const VkAllocationCallbacks *allocator, VkPipeline *out) {
    strata_shim_compile_slowly();
    return inner_pipelines(device, cache, n, infos, allocator, out);
}

/* ---- shader modules that store wrong results ---- */

enum { HEADER_WORDS = 5, BOUND = 3, MOST_IDS = 1 << 16 };
/* Opcodes and storage classes of SPIR-V. */
enum { OP_TYPE_INT = 21, OP_TYPE_FLOAT, OP_TYPE_VECTOR, OP_TYPE_IMAGE = 25, OP_TYPE_POINTER = 32, OP_LOAD = 61, OP_STORE };
enum { OP_ACCESS_CHAIN = 65, OP_IMAGE_WRITE = 99, OP_S_NEGATE = 126, OP_F_NEGATE, OP_NOT = 200, STORAGE_BUFFER = 12 };

/* The definition of a SPIR-V id: its opcode and two of its operands. */
typedef struct spirv_id {
    uint16_t op;
    uint32_t a, b;
} spirv_id;

/* Records the definition if the instruction defines a type, or is OpLoad or OpAccessChain. */
static void note(spirv_id *ids, uint32_t op, const uint32_t *at, uint32_t n) {
    const bool is_type = op >= OP_TYPE_INT && op <= OP_TYPE_POINTER;
    if (is_type && n > 2 && at[1] < MOST_IDS) ids[at[1]] = (spirv_id){(uint16_t)op, at[2], n > 3 ? at[3] : 0};
    if ((op == OP_LOAD || op == OP_ACCESS_CHAIN) && at[2] < MOST_IDS) ids[at[2]] = (spirv_id){(uint16_t)op, at[1], 0};
}

/* Returns the id of the type that the instruction writes to a buffer. 0: it does not write to a buffer. */
static uint32_t written_type(const spirv_id *ids, uint32_t bound, uint32_t op, const uint32_t *at) {
    if (op == OP_STORE && ids[at[1]].op == OP_ACCESS_CHAIN) {
        const spirv_id pointer = ids[ids[at[1]].a];
        return pointer.a == STORAGE_BUFFER ? pointer.b : 0;
    }
    if (op != OP_IMAGE_WRITE || ids[at[1]].op != OP_LOAD) return 0;
    const uint32_t sampled = ids[ids[at[1]].a].a;
    for (uint32_t id = 0; id < bound; id++)
        if (ids[id].op == OP_TYPE_VECTOR && ids[id].a == sampled && ids[id].b == 4) return id;
    return 0;
}

/* Returns a copy of the module that negates each float, and flips the bits of each integer, before it writes it to a buffer.
 * The caller frees it. */
static uint32_t *falsify(const uint32_t *code, size_t n_words, size_t *out_words) {
    uint32_t *out = malloc(3 * n_words * sizeof *out);
    spirv_id *ids = calloc(MOST_IDS, sizeof *ids);
    const uint32_t bound = code[BOUND];
    size_t to = HEADER_WORDS;
    if (!out || !ids || bound >= MOST_IDS) abort();
    memcpy(out, code, HEADER_WORDS * sizeof *out);
    for (size_t i = HEADER_WORDS; i < n_words; i += code[i] >> 16) {
        const uint32_t *at = code + i, n = *at >> 16, op = *at & 0xffff, type = written_type(ids, bound, op, at);
        const uint32_t operand = op == OP_STORE ? 2 : 3;
        note(ids, op, at, n);
        if (type) {
            const uint32_t scalar = ids[type].op == OP_TYPE_VECTOR ? ids[type].a : type;
            const uint32_t change = ids[scalar].op == OP_TYPE_FLOAT ? OP_F_NEGATE : OP_NOT;
            const uint32_t other[] = {4u << 16 | change, type, out[BOUND]++, at[operand]};
            memcpy(out + to, other, sizeof other);
            to += 4;
        }
        memcpy(out + to, at, n * sizeof *out);
        if (type) out[to + operand] = out[BOUND] - 1;
        to += n;
    }
    free(ids);
    *out_words = to;
    return out;
}

/* The number of modules that were created since STRATA_SHIM_LIE_NTH was set. Tests read it. */
EXPORT extern int strata_shim_modules;
int strata_shim_modules;

static VKAPI_ATTR VkResult VKAPI_CALL shader_module(VkDevice device, const VkShaderModuleCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator, VkShaderModule *out) {
    static char wanted[16];
    const char *nth = getenv("STRATA_SHIM_LIE_NTH");
    if (nth && strcmp(nth, wanted) != 0) {
        snprintf(wanted, sizeof wanted, "%s", nth);
        strata_shim_modules = 0;
    }
    if (!nth || ++strata_shim_modules != atoi(nth)) return inner_module(device, info, allocator, out);
    VkShaderModuleCreateInfo other = *info;
    size_t n_words = 0;
    uint32_t *code = falsify(info->pCode, info->codeSize / sizeof *code, &n_words);
    other.pCode = code;
    other.codeSize = n_words * sizeof *code;
    const VkResult result = inner_module(device, &other, allocator, out);
    free(code);
    return result;
}

/* ---- calls that hang ---- */

static VKAPI_ATTR VkResult VKAPI_CALL hang(void) {
    strata_shim_hang();
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t n, const VkSubmitInfo *infos, VkFence fence) {
    static int calls;
    strata_shim_count_call("vkQueueSubmit", &calls);
    return inner_submit(queue, n, infos, fence);
}

static PFN_vkVoidFunction replacement(const char *name) {
    if (inner_submit && !strcmp(name, "vkQueueSubmit")) return (PFN_vkVoidFunction)submit;
    if (strata_shim_hangs(name)) return (PFN_vkVoidFunction)hang;
    const char *failing = getenv("STRATA_SHIM_FAIL");
    if (failing && !strcmp(name, failing)) return (PFN_vkVoidFunction)fail;
    if (failing && !strcmp(name, "vkDeviceWaitIdle")) return (PFN_vkVoidFunction)wait_idle;
    if (inner_memory && !strcmp(name, "vkGetPhysicalDeviceMemoryProperties") && getenv("STRATA_SHIM_NO_MEMORY"))
        return (PFN_vkVoidFunction)memory_properties;
    if (inner_features && !strcmp(name, "vkGetPhysicalDeviceFeatures2")) return (PFN_vkVoidFunction)features;
    if (inner_properties && !strcmp(name, "vkGetPhysicalDeviceProperties")) return (PFN_vkVoidFunction)properties;
    if (inner_properties2 && !strcmp(name, "vkGetPhysicalDeviceProperties2")) return (PFN_vkVoidFunction)properties2;
    if (inner_pipelines && !strcmp(name, "vkCreateComputePipelines")) return (PFN_vkVoidFunction)compute_pipelines;
    if (inner_module && !strcmp(name, "vkCreateShaderModule")) return (PFN_vkVoidFunction)shader_module;
    return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL of_device(VkDevice device, const char *name) {
    const PFN_vkVoidFunction real = inner_device(device, name);
    if (!strcmp(name, "vkCreateComputePipelines")) inner_pipelines = (PFN_vkCreateComputePipelines)real;
    if (!strcmp(name, "vkCreateShaderModule")) inner_module = (PFN_vkCreateShaderModule)real;
    if (!strcmp(name, "vkQueueSubmit")) inner_submit = (PFN_vkQueueSubmit)real;
    const PFN_vkVoidFunction other = replacement(name);
    return other ? other : real;
}

/* ---- the functions that the loader requires of a driver ---- */

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance, const char *name) {
    if (!inner) inner = (PFN_vkGetInstanceProcAddr)of_driver("vk_icdGetInstanceProcAddr");
    if (!inner) return NULL;
    const PFN_vkVoidFunction real = inner(instance, name);
    if (!strcmp(name, "vkGetDeviceProcAddr")) {
        inner_device = (PFN_vkGetDeviceProcAddr)real;
        return (PFN_vkVoidFunction)of_device;
    }
    if (!strcmp(name, "vkGetPhysicalDeviceMemoryProperties")) inner_memory = (PFN_vkGetPhysicalDeviceMemoryProperties)real;
    if (!strcmp(name, "vkGetPhysicalDeviceFeatures2")) inner_features = (PFN_vkGetPhysicalDeviceFeatures2)real;
    if (!strcmp(name, "vkGetPhysicalDeviceProperties")) inner_properties = (PFN_vkGetPhysicalDeviceProperties)real;
    if (!strcmp(name, "vkGetPhysicalDeviceProperties2")) inner_properties2 = (PFN_vkGetPhysicalDeviceProperties2)real;
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
