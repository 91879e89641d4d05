/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles kernels by Mesa's AMD driver (RADV) for a GPU that is not there, RADV_FORCE_FAMILY=navi21, and tells what they take:
 *     vendors_radv <LINES
 * A line: FILE.spv, how many buffers, then the values of its specialization constants 0, 1, ... For each it prints a line: ok
 * or the failure's VkResult, then the driver's statistics as name=value, joined by tabs. Such a device can compile, not run.
 * Exit codes: 0 all lines were answered, 1 with a message: there is no such driver. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "shaders/shaders.h"

enum { MOST_BYTES = 4 << 20, LINE_BYTES = 4096, STATISTICS = 40, PUSH_BYTES = 4 * STRATA_SHADER_MAX_WORDS };

/* clang-format off */
#define FUNCTIONS(X) \
    X(GetPipelineExecutableStatisticsKHR) X(CreateShaderModule) X(DestroyShaderModule) X(CreateDescriptorSetLayout) \
    X(CreatePipelineLayout) X(CreateComputePipelines) X(DestroyPipeline)
/* clang-format on */

typedef struct compiler {
    VkDevice device;
    VkPipelineLayout layouts[STRATA_SHADER_MAX_BUFFERS + 1];
#define MEMBER(name) PFN_vk##name name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} compiler;

static int give_up(const char *what) {
    fprintf(stderr, "vendors_radv: %s\n", what);
    return 1;
}

/* Without queues that anything is submitted to: the driver has none for such a device. */
static int open_device(compiler *out) {
    void *library = dlopen("libvulkan.so.1", RTLD_NOW);
    PFN_vkGetInstanceProcAddr get = NULL;
    if (library) *(void **)&get = dlsym(library, "vkGetInstanceProcAddr");
    if (!get) return give_up("there is no Vulkan loader (package libvulkan1)");
    PFN_vkCreateInstance create_instance = (PFN_vkCreateInstance)get(NULL, "vkCreateInstance");
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo instance_info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                                .pApplicationInfo = &application};
    VkInstance instance;
    if (create_instance(&instance_info, NULL, &instance)) return give_up("no Vulkan driver can be loaded");
    PFN_vkEnumeratePhysicalDevices enumerate = (PFN_vkEnumeratePhysicalDevices)get(instance, "vkEnumeratePhysicalDevices");
    PFN_vkCreateDevice create = (PFN_vkCreateDevice)get(instance, "vkCreateDevice");
    PFN_vkGetDeviceProcAddr get_device = (PFN_vkGetDeviceProcAddr)get(instance, "vkGetDeviceProcAddr");
    PFN_vkGetPhysicalDeviceProperties properties_of =
        (PFN_vkGetPhysicalDeviceProperties)get(instance, "vkGetPhysicalDeviceProperties");
    uint32_t n = 1;
    VkPhysicalDevice physical;
    const VkResult listed = enumerate(instance, &n, &physical);
    VkPhysicalDeviceProperties properties;
    if (listed < 0 || n == 0) return give_up("no Vulkan device: is RADV_FORCE_FAMILY one that the driver knows?");
    properties_of(physical, &properties);
    if (!strstr(properties.deviceName, "RADV")) return give_up("the Vulkan device is not RADV's");

    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR, .pipelineExecutableInfo = 1};
    VkPhysicalDevice16BitStorageFeatures halves = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES, .pNext = &statistics, .storageBuffer16BitAccess = 1};
    VkPhysicalDevice8BitStorageFeatures bytes = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES, .pNext = &halves, .storageBuffer8BitAccess = 1};
    const VkPhysicalDeviceFeatures features = {.shaderInt64 = 1};
    static const char *const extensions[] = {"VK_KHR_pipeline_executable_properties"};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &bytes,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = 1,
                                     .ppEnabledExtensionNames = extensions,
                                     .pEnabledFeatures = &features};
    if (create(physical, &info, NULL, &out->device)) return give_up("the Vulkan device cannot be opened");
#define GET(name) out->name = (PFN_vk##name)get_device(out->device, "vk" #name);
    FUNCTIONS(GET)
#undef GET
    return 0;
}

/* Storage buffers at bindings 0 .. n - 1 and the words, as backends/vulkan has them. */
static VkPipelineLayout layout_of(compiler *c, uint32_t n) {
    if (c->layouts[n]) return c->layouts[n];
    VkDescriptorSetLayoutBinding bindings[STRATA_SHADER_MAX_BUFFERS];
    for (uint32_t i = 0; i < n; i++)
        bindings[i] =
            (VkDescriptorSetLayoutBinding){i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL};
    const VkDescriptorSetLayoutCreateInfo set_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = n, .pBindings = bindings};
    VkDescriptorSetLayout set = VK_NULL_HANDLE;
    if (c->CreateDescriptorSetLayout(c->device, &set_info, NULL, &set)) return VK_NULL_HANDLE;
    const VkPushConstantRange words = {VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSH_BYTES};
    const VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .setLayoutCount = 1,
                                             .pSetLayouts = &set,
                                             .pushConstantRangeCount = 1,
                                             .pPushConstantRanges = &words};
    if (c->CreatePipelineLayout(c->device, &info, NULL, &c->layouts[n])) c->layouts[n] = VK_NULL_HANDLE;
    return c->layouts[n];
}

static void print_statistics(const compiler *c, VkPipeline pipeline) {
    const VkPipelineExecutableInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipeline};
    static VkPipelineExecutableStatisticKHR rows[STATISTICS];
    uint32_t n = STATISTICS;
    for (int i = 0; i < STATISTICS; i++)
        rows[i] = (VkPipelineExecutableStatisticKHR){.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
    if (c->GetPipelineExecutableStatisticsKHR(c->device, &info, &n, rows) < 0) n = 0;
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR)
            printf("\t%s=%llu", rows[i].name, (unsigned long long)rows[i].value.u64);
}

static void compile(compiler *c, const char *path, uint32_t n_buffers, const uint32_t *constants, uint32_t n_constants) {
    static uint32_t code[MOST_BYTES / sizeof(uint32_t)];
    FILE *file = fopen(path, "rb");
    const size_t bytes = file ? fread(code, 1, sizeof code, file) : 0;
    if (file) fclose(file);
    const VkShaderModuleCreateInfo module_info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = code};
    VkShaderModule module = VK_NULL_HANDLE;
    VkResult result = bytes ? c->CreateShaderModule(c->device, &module_info, NULL, &module) : VK_ERROR_UNKNOWN;
    if (result) {
        printf("%d\n", result);
        return;
    }
    VkSpecializationMapEntry entries[STRATA_SHADER_MAX_CONSTANTS];
    for (uint32_t i = 0; i < n_constants; i++)
        entries[i] = (VkSpecializationMapEntry){i, i * (uint32_t)sizeof(uint32_t), sizeof(uint32_t)};
    const VkSpecializationInfo values = {n_constants, entries, n_constants * sizeof(uint32_t), constants};
    const VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                              .flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR,
                                              .layout = layout_of(c, n_buffers),
                                              .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                        .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                        .module = module,
                                                        .pName = "main",
                                                        .pSpecializationInfo = &values}};
    VkPipeline pipeline = VK_NULL_HANDLE;
    result = c->CreateComputePipelines(c->device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline);
    if (result)
        printf("%d", result);
    else
        printf("ok");
    if (!result) {
        print_statistics(c, pipeline);
        c->DestroyPipeline(c->device, pipeline, NULL);
    }
    putchar('\n');
    c->DestroyShaderModule(c->device, module, NULL);
}

int main(void) {
    static compiler c;
    if (open_device(&c)) return 1;
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, stdin)) {
        uint32_t numbers[1 + STRATA_SHADER_MAX_CONSTANTS], n = 0;
        char *rest = NULL;
        const char *path = strtok_r(line, " \n", &rest);
        for (char *word; n < 1 + STRATA_SHADER_MAX_CONSTANTS && (word = strtok_r(NULL, " \n", &rest));)
            numbers[n++] = (uint32_t)strtoul(word, NULL, 10);
        if (!path || n == 0 || numbers[0] > STRATA_SHADER_MAX_BUFFERS) return give_up("a line is not FILE BUFFERS CONSTANT...");
        compile(&c, path, numbers[0], numbers + 1, n - 1);
        fflush(stdout);
    }
    return 0;
}
