/* SPDX-License-Identifier: Apache-2.0
 *
 * The Vulkan instance. Each opened device has its own (and listing devices has one), so that devices share nothing.
 * With validation, the Khronos layer is loaded with synchronization validation, its warnings and errors are counted,
 * and the first one is stored. */
#include <stdio.h>

#include "backends/vulkan/vulkan.h"

static const char *const validation_layer = "VK_LAYER_KHRONOS_validation";
static const char *const validation_extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME,
                                                    VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};

bool strata_vulkan_validation_wanted(void) {
    const char *value = getenv("STRATA_VULKAN_VALIDATION");
    return value && *value && strcmp(value, "0") != 0;
}

/* Called by the validation layer, in the thread whose call it reports. There is only one such thread at a time, since a
 * device is used by one thread at a time. */
static VKAPI_ATTR VkBool32 VKAPI_CALL keep_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                   VkDebugUtilsMessageTypeFlagsEXT types,
                                                   const VkDebugUtilsMessengerCallbackDataEXT *data, void *user) {
    (void)severity;
    (void)types;
    vulkan_messages *messages = user;
    if (messages->n++ == 0) snprintf(messages->first, sizeof messages->first, "%s", data->pMessage ? data->pMessage : "");
    return VK_FALSE;
}

static strata_status check_layer(const vulkan_functions *vk, strata_error *err) {
    uint32_t n = 0;
    if (vk->EnumerateInstanceLayerProperties(&n, NULL)) n = 0;
    STRATA_FREED VkLayerProperties *layers = NULL;
    STRATA_TRY(STRATA_NEW(layers, n + 1, err, "vulkan: no host memory for %u layers", n));
    VkResult result = vk->EnumerateInstanceLayerProperties(&n, layers);
    bool found = false;
    for (uint32_t i = 0; result >= 0 && i < n; i++) found = found || !strcmp(layers[i].layerName, validation_layer);
    if (found) return STRATA_OK;
    return strata_fail(err, STRATA_UNAVAILABLE,
                       "STRATA_VULKAN_VALIDATION is set, but %s is not installed (Debian: vulkan-validationlayers)",
                       validation_layer);
}

static strata_status create_handle(vulkan_instance *instance, strata_error *err) {
    VkDebugUtilsMessengerCreateInfoEXT messenger = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
        .pfnUserCallback = keep_message,
        .pUserData = instance->messages,
    };
    VkValidationFeatureEnableEXT enabled = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
    VkValidationFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
        .pNext = &messenger, /* for messages of vkCreateInstance and vkDestroyInstance themselves */
        .enabledValidationFeatureCount = 1,
        .pEnabledValidationFeatures = &enabled,
    };
    VkApplicationInfo application = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .pApplicationName = "strata",
        .apiVersion = instance->version,
    };
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
    if (instance->messages) {
        info.pNext = &features;
        info.enabledLayerCount = 1;
        info.ppEnabledLayerNames = &validation_layer;
        info.enabledExtensionCount = sizeof validation_extensions / sizeof *validation_extensions;
        info.ppEnabledExtensionNames = validation_extensions;
    }
    const int n_libraries = strata_vulkan_count_libraries();
    VkResult result = instance->vk.CreateInstance(&info, NULL, &instance->handle);
    strata_vulkan_keep_libraries(n_libraries);
    if (result) {
        instance->handle = NULL;
        return strata_vulkan_fail_result(result, "vulkan: no driver could be started: vkCreateInstance", err);
    }
    STRATA_TRY(strata_vulkan_load_instance(&instance->vk, instance->handle, err));
    if (!instance->messages) return STRATA_OK;
    result = instance->vk.CreateDebugUtilsMessengerEXT(instance->handle, &messenger, NULL, &instance->messenger);
    return result ? strata_vulkan_fail_result(result, "vulkan: vkCreateDebugUtilsMessengerEXT", err) : STRATA_OK;
}

static void destroy_all(vulkan_instance *instance) {
    vulkan_messages *messages = instance->messages;
    strata_vulkan_instance_destroy(instance);
    free(messages);
}

strata_status strata_vulkan_instance_create(bool validate, vulkan_instance *out_instance, strata_error *err) {
    STRATA_FINISHED_BY(destroy_all) vulkan_instance instance = {0};
    STRATA_TRY(strata_vulkan_load(&instance.vk, err));
    uint32_t version = VK_API_VERSION_1_0;
    VkResult result = instance.vk.EnumerateInstanceVersion(&version);
    if (result || version < VK_API_VERSION_1_1)
        return strata_fail(err, STRATA_UNAVAILABLE, "the Vulkan loader is of version %u.%u; 1.1 is needed",
                           VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
    instance.version = version >= VK_API_VERSION_1_2 ? VK_API_VERSION_1_2 : VK_API_VERSION_1_1;
    if (validate) {
        STRATA_TRY(check_layer(&instance.vk, err));
        STRATA_TRY(STRATA_NEW(instance.messages, 1, err, "vulkan: no host memory"));
    }
    STRATA_TRY(create_handle(&instance, err));
    *out_instance = instance;
    instance = (vulkan_instance){0};
    return STRATA_OK;
}

void strata_vulkan_instance_destroy(vulkan_instance *instance) {
    if (instance->messenger) instance->vk.DestroyDebugUtilsMessengerEXT(instance->handle, instance->messenger, NULL);
    if (instance->handle && instance->vk.DestroyInstance) instance->vk.DestroyInstance(instance->handle, NULL);
    strata_vulkan_unload(&instance->vk);
    *instance = (vulkan_instance){0};
}
