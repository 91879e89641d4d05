/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens libvulkan at run time, so that the same binary also runs where it is not installed. Also has the names of
 * Vulkan's result codes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>

#include "backends/vulkan/vulkan.h"

static const char *const library_names[] = {"libvulkan.so.1", "libvulkan.so"};

/* The library is never unmapped (RTLD_NODELETE), because drivers leave threads and exit handlers behind that still run
 * its code. */
static void *open_library(void) {
    for (size_t i = 0; i < sizeof library_names / sizeof *library_names; i++) {
        void *library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (library) return library;
    }
    return NULL;
}

/* ---- libraries that an instance loads ---- */

enum { MOST_LIBRARIES = 64 };

typedef struct library_walk {
    /* The number of libraries before the instance was created, and the number visited so far. */
    int before, n;
    int n_names;
    /* The names of the libraries after the first `before`. */
    char *names[MOST_LIBRARIES];
} library_walk;

static int see_library(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size;
    library_walk *walk = user;
    const bool wanted = walk->n++ >= walk->before && walk->n_names < MOST_LIBRARIES && info->dlpi_name && *info->dlpi_name;
    if (wanted && (walk->names[walk->n_names] = strdup(info->dlpi_name))) walk->n_names++;
    return 0;
}

int strata_vulkan_count_libraries(void) {
    library_walk walk = {.before = INT_MAX};
    dl_iterate_phdr(see_library, &walk);
    return walk.n;
}

void strata_vulkan_keep_libraries(int before) {
    library_walk walk = {.before = before};
    dl_iterate_phdr(see_library, &walk);
    for (int i = 0; i < walk.n_names; i++) {
        void *library = dlopen(walk.names[i], RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
        if (library) dlclose(library);
        free(walk.names[i]);
    }
}

static strata_status missing_function(const char *name, strata_error *err) {
    return strata_fail(err, STRATA_UNAVAILABLE, "the Vulkan loader or driver has no %s; Vulkan 1.1 or later is needed", name);
}

strata_status strata_vulkan_load(vulkan_functions *out_vk, strata_error *err) {
    vulkan_functions vk = {.library = open_library()};
    if (!vk.library) {
        const char *why = dlerror();
        return strata_fail(err, STRATA_UNAVAILABLE, "no Vulkan loader (%s); install one (Debian: libvulkan1) and a driver",
                           why ? why : "libvulkan.so.1 was not found");
    }
    void *symbol = dlsym(vk.library, "vkGetInstanceProcAddr");
    memcpy(&vk.GetInstanceProcAddr, &symbol, sizeof symbol);
    const char *missing = symbol ? NULL : "vkGetInstanceProcAddr";
#define LOADER(name)                                                      \
    if (!missing) {                                                       \
        vk.name = (PFN_vk##name)vk.GetInstanceProcAddr(NULL, "vk" #name); \
        if (!vk.name) missing = "vk" #name;                               \
    }
#include "backends/vulkan/functions.def"
    if (missing) {
        strata_vulkan_unload(&vk);
        return missing_function(missing, err);
    }
    *out_vk = vk;
    return STRATA_OK;
}

strata_status strata_vulkan_load_instance(vulkan_functions *vk, VkInstance instance, strata_error *err) {
    const char *missing = NULL;
#define INSTANCE(name)                                                      \
    vk->name = (PFN_vk##name)vk->GetInstanceProcAddr(instance, "vk" #name); \
    if (!vk->name && !missing) missing = "vk" #name;
#define OPTIONAL(name) vk->name = (PFN_vk##name)vk->GetInstanceProcAddr(instance, "vk" #name);
#include "backends/vulkan/functions.def"
    return missing ? missing_function(missing, err) : STRATA_OK;
}

strata_status strata_vulkan_load_device(vulkan_functions *vk, VkDevice device, strata_error *err) {
    const char *missing = NULL;
#define DEVICE(name)                                                    \
    vk->name = (PFN_vk##name)vk->GetDeviceProcAddr(device, "vk" #name); \
    if (!vk->name && !missing) missing = "vk" #name;
#include "backends/vulkan/functions.def"
    return missing ? missing_function(missing, err) : STRATA_OK;
}

void strata_vulkan_unload(vulkan_functions *vk) {
    if (vk->library) dlclose(vk->library);
    *vk = (vulkan_functions){0};
}

/* For each result, its name and the status that tells the caller what to do. */
static const struct {
    VkResult result;
    const char *name;
    strata_status status;
} results[] = {
    {VK_SUCCESS, "VK_SUCCESS", STRATA_INTERNAL},
    {VK_NOT_READY, "VK_NOT_READY", STRATA_INTERNAL},
    {VK_TIMEOUT, "VK_TIMEOUT", STRATA_TIMEOUT},
    {VK_INCOMPLETE, "VK_INCOMPLETE", STRATA_INTERNAL},
    {VK_ERROR_OUT_OF_HOST_MEMORY, "VK_ERROR_OUT_OF_HOST_MEMORY", STRATA_OUT_OF_MEMORY},
    {VK_ERROR_OUT_OF_DEVICE_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY", STRATA_OUT_OF_MEMORY},
    {VK_ERROR_OUT_OF_POOL_MEMORY, "VK_ERROR_OUT_OF_POOL_MEMORY", STRATA_OUT_OF_MEMORY},
    {VK_ERROR_TOO_MANY_OBJECTS, "VK_ERROR_TOO_MANY_OBJECTS", STRATA_OUT_OF_MEMORY},
    {VK_ERROR_FRAGMENTATION, "VK_ERROR_FRAGMENTATION", STRATA_OUT_OF_MEMORY},
    {VK_ERROR_MEMORY_MAP_FAILED, "VK_ERROR_MEMORY_MAP_FAILED", STRATA_OUT_OF_MEMORY},
    {VK_ERROR_DEVICE_LOST, "VK_ERROR_DEVICE_LOST", STRATA_DEVICE_LOST},
    {VK_ERROR_INITIALIZATION_FAILED, "VK_ERROR_INITIALIZATION_FAILED", STRATA_UNAVAILABLE},
    {VK_ERROR_INCOMPATIBLE_DRIVER, "VK_ERROR_INCOMPATIBLE_DRIVER", STRATA_UNAVAILABLE},
    {VK_ERROR_LAYER_NOT_PRESENT, "VK_ERROR_LAYER_NOT_PRESENT", STRATA_UNAVAILABLE},
    {VK_ERROR_EXTENSION_NOT_PRESENT, "VK_ERROR_EXTENSION_NOT_PRESENT", STRATA_UNSUPPORTED},
    {VK_ERROR_FEATURE_NOT_PRESENT, "VK_ERROR_FEATURE_NOT_PRESENT", STRATA_UNSUPPORTED},
    {VK_ERROR_INVALID_SHADER_NV, "VK_ERROR_INVALID_SHADER_NV", STRATA_UNSUPPORTED},
    {VK_ERROR_UNKNOWN, "VK_ERROR_UNKNOWN", STRATA_UNAVAILABLE},
};
enum { N_RESULTS = sizeof results / sizeof *results };

const char *strata_vulkan_result_name(VkResult result) {
    for (int i = 0; i < N_RESULTS; i++)
        if (results[i].result == result) return results[i].name;
    return "an unknown Vulkan result";
}

strata_status strata_vulkan_fail_result(VkResult result, const char *what, strata_error *err) {
    strata_status status = STRATA_INTERNAL;
    for (int i = 0; i < N_RESULTS; i++)
        if (results[i].result == result) status = results[i].status;
    return strata_fail(err, status, "%s: %s (%d)", what, strata_vulkan_result_name(result), (int)result);
}
