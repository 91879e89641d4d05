/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles kernels by Mesa's AMD driver (RADV) for a GPU that is not there, RADV_FORCE_FAMILY=navi21, and tells what they take:
 *     vendors_radv <LINES
 * A line: FILE.spv, how many buffers, how many work-items its subgroups must have (0: as the driver chooses; else it is a
 * kernel of shaders/matrix_units/), then the values of its specialization constants 0, 1, ... For each it prints a line: ok or
 * the failure's VkResult, then the driver's statistics as name=value, joined by tabs. A kernel whose matrix units the device
 * does not have is answered by none. Such a device can compile, not run.
 * Exit codes: 0 all lines were answered, 1 with a message: there is no such driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/vulkan/vulkan.h"

enum { MOST_BYTES = 4 << 20, LINE_BYTES = 4096, STATISTICS = 40, PUSH_BYTES = 4 * STRATA_SHADER_MAX_WORDS };

typedef struct compiler {
    vulkan_instance instance;
    vulkan_physical physical;
    VkDevice device;
    VkPipelineLayout layouts[STRATA_SHADER_MAX_BUFFERS + 1];
    PFN_vkGetPipelineExecutableStatisticsKHR get_statistics;
} compiler;

static int give_up(const char *what) {
    fprintf(stderr, "vendors_radv: %s\n", what);
    return 1;
}

/* Without queues that anything is submitted to: the driver has none for such a device. */
static int open_device(compiler *out) {
    strata_error err = {0};
    vulkan_physical *devices = NULL;
    int n = 0;
    if (strata_vulkan_instance_create(false, &out->instance, &err) ||
        strata_vulkan_physical_list(&out->instance, &devices, &n, &err))
        return give_up(err.message);
    if (n == 0) return give_up("no Vulkan device: is RADV_FORCE_FAMILY one that the driver knows?");
    out->physical = devices[0];
    free(devices);
    if (!strstr(out->physical.properties.deviceName, "RADV")) return give_up("the Vulkan device is not RADV's");

    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR, .pipelineExecutableInfo = 1};
    VkPhysicalDevice16BitStorageFeatures halves = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES, .pNext = &statistics, .storageBuffer16BitAccess = 1};
    VkPhysicalDevice8BitStorageFeatures bytes = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES, .pNext = &halves, .storageBuffer8BitAccess = 1};
    vulkan_matrix_features matrices;
    const VkPhysicalDeviceFeatures features = {.shaderInt64 = 1};
    const char *extensions[VULKAN_DEVICE_EXTENSIONS + 1] = {"VK_KHR_pipeline_executable_properties"};
    for (int i = 0; i < out->physical.n_extensions; i++) extensions[i + 1] = out->physical.extensions[i];
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = strata_vulkan_enable_matrix_units(&out->physical, &matrices, &bytes),
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = (uint32_t)out->physical.n_extensions + 1,
                                     .ppEnabledExtensionNames = extensions,
                                     .pEnabledFeatures = &features};
    const vulkan_functions *vk = &out->instance.vk;
    if (vk->CreateDevice(out->physical.handle, &info, NULL, &out->device)) return give_up("the Vulkan device cannot be opened");
    if (strata_vulkan_load_device(&out->instance.vk, out->device, &err)) return give_up(err.message);
    out->get_statistics =
        (PFN_vkGetPipelineExecutableStatisticsKHR)vk->GetDeviceProcAddr(out->device, "vkGetPipelineExecutableStatisticsKHR");
    return out->get_statistics ? 0 : give_up("the driver has no vkGetPipelineExecutableStatisticsKHR");
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
    if (c->instance.vk.CreateDescriptorSetLayout(c->device, &set_info, NULL, &set)) return VK_NULL_HANDLE;
    const VkPushConstantRange words = {VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSH_BYTES};
    const VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .setLayoutCount = 1,
                                             .pSetLayouts = &set,
                                             .pushConstantRangeCount = 1,
                                             .pPushConstantRanges = &words};
    if (c->instance.vk.CreatePipelineLayout(c->device, &info, NULL, &c->layouts[n])) c->layouts[n] = VK_NULL_HANDLE;
    return c->layouts[n];
}

static void print_statistics(const compiler *c, VkPipeline pipeline) {
    const VkPipelineExecutableInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipeline};
    static VkPipelineExecutableStatisticKHR rows[STATISTICS];
    uint32_t n = STATISTICS;
    for (int i = 0; i < STATISTICS; i++)
        rows[i] = (VkPipelineExecutableStatisticKHR){.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
    if (c->get_statistics(c->device, &info, &n, rows) < 0) n = 0;
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR)
            printf("\t%s=%llu", rows[i].name, (unsigned long long)rows[i].value.u64);
}

/* Whether the device has the units that a kernel's constants name (shaders/matrix_units/units.h), with such subgroups. */
static bool has_units(const vulkan_physical *device, uint32_t lanes, const uint32_t *constants, uint32_t n_constants) {
    const strata_matrix_unit units[] = {device->f16_unit, device->bf16_unit};
    for (int i = 0; i < 2 && lanes == device->unit_lanes && n_constants > 3; i++)
        if (units[i].m == constants[1] && units[i].n == constants[2] && units[i].k == constants[3]) return true;
    return false;
}

static void compile(compiler *c, const char *path, uint32_t n_buffers, uint32_t lanes, const uint32_t *constants,
                    uint32_t n_constants) {
    static uint32_t code[MOST_BYTES / sizeof(uint32_t)];
    FILE *file = fopen(path, "rb");
    const size_t bytes = file ? fread(code, 1, sizeof code, file) : 0;
    if (file) fclose(file);
    const VkShaderModuleCreateInfo module_info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = code};
    VkShaderModule module = VK_NULL_HANDLE;
    if (lanes && !has_units(&c->physical, lanes, constants, n_constants)) {
        puts("none");
        return;
    }
    VkResult result = bytes ? c->instance.vk.CreateShaderModule(c->device, &module_info, NULL, &module) : VK_ERROR_UNKNOWN;
    if (result) {
        printf("%d\n", result);
        return;
    }
    VkSpecializationMapEntry entries[STRATA_SHADER_MAX_CONSTANTS];
    for (uint32_t i = 0; i < n_constants; i++)
        entries[i] = (VkSpecializationMapEntry){i, i * (uint32_t)sizeof(uint32_t), sizeof(uint32_t)};
    const VkSpecializationInfo values = {n_constants, entries, n_constants * sizeof(uint32_t), constants};
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroups = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO, .requiredSubgroupSize = lanes};
    const VkPipelineShaderStageCreateFlags whole = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    const VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                              .flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR,
                                              .layout = layout_of(c, n_buffers),
                                              .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                        .pNext = lanes ? &subgroups : NULL,
                                                        .flags = lanes ? whole : 0,
                                                        .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                        .module = module,
                                                        .pName = "main",
                                                        .pSpecializationInfo = &values}};
    VkPipeline pipeline = VK_NULL_HANDLE;
    result = c->instance.vk.CreateComputePipelines(c->device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline);
    if (result)
        printf("%d", result);
    else
        printf("ok");
    if (!result) {
        print_statistics(c, pipeline);
        c->instance.vk.DestroyPipeline(c->device, pipeline, NULL);
    }
    putchar('\n');
    c->instance.vk.DestroyShaderModule(c->device, module, NULL);
}

int main(void) {
    static compiler c;
    if (open_device(&c)) return 1;
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, stdin)) {
        uint32_t numbers[2 + STRATA_SHADER_MAX_CONSTANTS], n = 0;
        char *rest = NULL;
        const char *path = strtok_r(line, " \n", &rest);
        for (char *word; n < 2 + STRATA_SHADER_MAX_CONSTANTS && (word = strtok_r(NULL, " \n", &rest));)
            numbers[n++] = (uint32_t)strtoul(word, NULL, 10);
        if (!path || n < 2 || numbers[0] > STRATA_SHADER_MAX_BUFFERS)
            return give_up("a line is not FILE BUFFERS LANES CONSTANT...");
        compile(&c, path, numbers[0], numbers[1], numbers + 2, n - 2);
        fflush(stdout);
    }
    return 0;
}
