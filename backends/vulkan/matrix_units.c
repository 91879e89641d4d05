/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix units (VK_KHR_cooperative_matrix, and VK_KHR_shader_bfloat16 for bf16 operands). Finds out whether the kernels
 * of shaders/matrix_units/ can use those of a device, and enables what they need. Vulkan headers before 1.3.255 do not
 * declare these extensions; a build with such headers uses no matrix units. */
#include <stdio.h>

#include "backends/vulkan/vulkan.h"

#ifdef VK_KHR_cooperative_matrix

enum {
    MOST_EXTENT = 32, /* the most rows and columns of a unit's matrices */
    /* Rows and columns of a unit's matrices are multiples of this, so that rows in local memory are aligned. */
    EXTENT_STEP = 8,
    SUBGROUPS = 8 /* the most subgroups of a work-group */
};

/* The largest unit for operands of this type that has f32 sums. */
static strata_matrix_unit find_unit(const VkCooperativeMatrixPropertiesKHR *rows, uint32_t n, VkComponentTypeKHR type) {
    strata_matrix_unit best = {0};
    for (uint32_t i = 0; i < n; i++) {
        const VkCooperativeMatrixPropertiesKHR *row = &rows[i];
        const bool types = row->AType == type && row->BType == type && row->CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
                           row->ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR && !row->saturatingAccumulation;
        const bool extents = row->MSize && row->NSize && row->KSize && row->MSize <= MOST_EXTENT && row->NSize <= MOST_EXTENT &&
                             row->KSize <= MOST_EXTENT && (row->MSize | row->NSize | row->KSize) % EXTENT_STEP == 0;
        if (!types || !extents || row->scope != VK_SCOPE_SUBGROUP_KHR) continue;
        if (row->MSize * row->NSize * row->KSize > best.m * best.n * best.k)
            best = (strata_matrix_unit){row->MSize, row->NSize, row->KSize};
    }
    return best;
}

/* The number of work-items of the subgroups that kernels of matrix units request; other kernels leave it to the driver.
 * 0: the device does not support full subgroups of a fixed size. Mesa's driver for AMD supports 32 and 64. Of these, 64
 * needs half the registers of a work-item, and it is also the driver's own choice. */
static uint32_t choose_lanes(const vulkan_functions *vk, VkPhysicalDevice device) {
    VkPhysicalDeviceSubgroupSizeControlFeatures control = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &control};
    VkPhysicalDeviceSubgroupProperties subgroup = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
    VkPhysicalDeviceSubgroupSizeControlProperties sizes = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES, .pNext = &subgroup};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &sizes};
    vk->GetPhysicalDeviceFeatures2(device, &features);
    vk->GetPhysicalDeviceProperties2(device, &properties);
    if (!control.subgroupSizeControl || !control.computeFullSubgroups || sizes.maxComputeWorkgroupSubgroups < SUBGROUPS ||
        subgroup.subgroupSize < sizes.minSubgroupSize || subgroup.subgroupSize > sizes.maxSubgroupSize ||
        !(sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT))
        return 0;
    return subgroup.subgroupSize;
}

void strata_vulkan_find_matrix_units(const vulkan_functions *vk, const vulkan_extensions *extensions, vulkan_physical *device) {
    if (device->version < VK_API_VERSION_1_2 || !device->storage_16bit ||
        !vk->GetPhysicalDeviceCooperativeMatrixPropertiesKHR ||
        !vulkan_has(extensions, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME) ||
        !vulkan_has(extensions, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME))
        return;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
    VkPhysicalDeviceVulkanMemoryModelFeatures model = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES,
                                                       .pNext = &matrices};
    VkPhysicalDeviceShaderFloat16Int8Features halves = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES,
                                                        .pNext = &model};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &halves};
    bool bf16 = false;
#ifdef VK_KHR_shader_bfloat16
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloats = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR, .pNext = &halves};
    const bool has_bfloats = vulkan_has(extensions, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME);
    if (has_bfloats) features.pNext = &bfloats;
    vk->GetPhysicalDeviceFeatures2(device->handle, &features);
    bf16 = has_bfloats && bfloats.shaderBFloat16Type && bfloats.shaderBFloat16CooperativeMatrix;
#else
    vk->GetPhysicalDeviceFeatures2(device->handle, &features);
#endif
    const uint32_t lanes = choose_lanes(vk, device->handle);
    uint32_t n = 0;
    if (!matrices.cooperativeMatrix || !model.vulkanMemoryModel || !lanes ||
        vk->GetPhysicalDeviceCooperativeMatrixPropertiesKHR(device->handle, &n, NULL) < 0)
        return;
    STRATA_FREED VkCooperativeMatrixPropertiesKHR *rows = calloc((size_t)n + 1, sizeof *rows);
    for (uint32_t i = 0; rows && i < n; i++) rows[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    if (rows && vk->GetPhysicalDeviceCooperativeMatrixPropertiesKHR(device->handle, &n, rows) >= 0) {
        if (halves.shaderFloat16) device->f16_unit = find_unit(rows, n, VK_COMPONENT_TYPE_FLOAT16_KHR);
#ifdef VK_KHR_shader_bfloat16
        if (bf16) device->bf16_unit = find_unit(rows, n, VK_COMPONENT_TYPE_BFLOAT16_KHR);
#endif
    }
    if (!device->f16_unit.m && !device->bf16_unit.m) return;
    device->unit_lanes = lanes;
    vulkan_enable(device, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
    vulkan_enable(device, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
#ifdef VK_KHR_shader_bfloat16
    if (device->bf16_unit.m) vulkan_enable(device, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME);
#endif
    const strata_matrix_unit *f16 = &device->f16_unit, *bf16_unit = &device->bf16_unit;
    char *text = device->info.matrix_units;
    const size_t room = sizeof device->info.matrix_units;
    int used = f16->m ? snprintf(text, room, "f16 %ux%ux%u", f16->m, f16->n, f16->k) : 0;
    if (bf16_unit->m)
        snprintf(text + used, room - (size_t)used, "%sbf16 %ux%ux%u", used ? ", " : "", bf16_unit->m, bf16_unit->n,
                 bf16_unit->k);
}

void *strata_vulkan_enable_matrix_units(const vulkan_physical *device, vulkan_matrix_features *out, void *next) {
    if (!device->unit_lanes) return next;
    out->matrices = (VkPhysicalDeviceCooperativeMatrixFeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
        .pNext = next,
        .cooperativeMatrix = VK_TRUE};
    out->model =
        (VkPhysicalDeviceVulkanMemoryModelFeatures){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES,
                                                    .pNext = &out->matrices,
                                                    .vulkanMemoryModel = VK_TRUE};
    out->halves =
        (VkPhysicalDeviceShaderFloat16Int8Features){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES,
                                                    .pNext = &out->model,
                                                    .shaderFloat16 = device->f16_unit.m > 0};
    out->subgroups =
        (VkPhysicalDeviceSubgroupSizeControlFeatures){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
                                                      .pNext = &out->halves,
                                                      .subgroupSizeControl = VK_TRUE,
                                                      .computeFullSubgroups = VK_TRUE};
#ifdef VK_KHR_shader_bfloat16
    out->bfloats =
        (VkPhysicalDeviceShaderBfloat16FeaturesKHR){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR,
                                                    .pNext = &out->subgroups,
                                                    .shaderBFloat16Type = VK_TRUE,
                                                    .shaderBFloat16CooperativeMatrix = VK_TRUE};
    if (device->bf16_unit.m) return &out->bfloats;
#endif
    return &out->subgroups;
}

#else

void strata_vulkan_find_matrix_units(const vulkan_functions *vk, const vulkan_extensions *extensions, vulkan_physical *device) {
    (void)vk, (void)extensions, (void)device;
}

void *strata_vulkan_enable_matrix_units(const vulkan_physical *device, vulkan_matrix_features *out, void *next) {
    (void)device, (void)out;
    return next;
}

#endif
