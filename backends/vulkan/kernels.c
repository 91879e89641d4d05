/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles kernels to compute pipelines. A device builds each combination of kernel and constants once and keeps it
 * until it is closed. The driver's compiled code is stored on disk, in one file for each device and driver. */
#include <stdio.h>

#include "backends/vulkan/vulkan.h"
#include "shaders/specialize.h"

struct vulkan_pipeline {
    strata_kernel kernel;
    VkPipeline handle;
    bool saved; /* it is in the cache on disk */
};

/* ---- the cache on disk ---- */
/* Everything on which it may depend whether the driver rejects data that it wrote itself, or crashes on it. */
typedef struct cache_key {
    char text[192];
} cache_key;

static cache_key key_of(const vulkan_device *device) {
    const VkPhysicalDeviceProperties *properties = &device->physical.properties;
    cache_key key = {{0}};
    int n = snprintf(key.text, sizeof key.text, "pipeline cache vendor %08x device %08x driver %08x version %08x uuid ",
                     properties->vendorID, properties->deviceID, properties->driverVersion, properties->apiVersion);
    for (size_t i = 0; i < sizeof properties->pipelineCacheUUID; i++)
        n += snprintf(key.text + n, sizeof key.text - (size_t)n, "%02x", properties->pipelineCacheUUID[i]);
    return key;
}

/* The header with which each driver's data begins, as Vulkan defines it. */
typedef struct driver_header {
    uint32_t bytes, version, vendor, device;
    uint8_t uuid[VK_UUID_SIZE];
} driver_header;

bool strata_vulkan_pipeline_data_fits(const vulkan_device *device, const void *data, size_t bytes) {
    const VkPhysicalDeviceProperties *properties = &device->physical.properties;
    driver_header header;
    if (bytes < sizeof header) return false;
    memcpy(&header, data, sizeof header);
    return header.bytes >= sizeof header && header.bytes <= bytes && header.version == VK_PIPELINE_CACHE_HEADER_VERSION_ONE &&
           header.vendor == properties->vendorID && header.device == properties->deviceID &&
           !memcmp(header.uuid, properties->pipelineCacheUUID, VK_UUID_SIZE);
}

static VkResult create_cache(vulkan_device *device, const void *data, size_t bytes) {
    VkPipelineCacheCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, .initialDataSize = bytes, .pInitialData = data};
    VkResult result = device->instance.vk.CreatePipelineCache(device->handle, &info, NULL, &device->pipeline_cache);
    if (result) device->pipeline_cache = VK_NULL_HANDLE;
    return result;
}

strata_status strata_vulkan_pipelines_init(vulkan_device *device, strata_error *err) {
    cache_key key = key_of(device);
    size_t bytes = 0;
    STRATA_FREED void *data = strata_cache_load(&device->cache, key.text, sizeof key.text, &bytes);
    bool usable = data && strata_vulkan_pipeline_data_fits(device, data, bytes);
    VkResult result = create_cache(device, usable ? data : NULL, usable ? bytes : 0);
    if (result && usable) result = create_cache(device, NULL, 0);
    return result ? strata_vulkan_fail(device, result, "vkCreatePipelineCache", err) : STRATA_OK;
}

void strata_vulkan_pipelines_save(vulkan_device *device) {
    STRATA_DRIVER_CALL(&device->base, COMPILE);
    const vulkan_functions *vk = &device->instance.vk;
    bool all_saved = true;
    for (int i = 0; i < device->n_pipelines; i++) all_saved = all_saved && device->pipelines[i].saved;
    if (all_saved || !device->cache.dir[0]) return;
    size_t bytes = 0;
    if (vk->GetPipelineCacheData(device->handle, device->pipeline_cache, &bytes, NULL)) return;
    STRATA_FREED void *data =
        bytes > sizeof(driver_header) ? malloc(bytes) : NULL; /* only a header: the driver has its own cache */
    if (data && !vk->GetPipelineCacheData(device->handle, device->pipeline_cache, &bytes, data)) {
        cache_key key = key_of(device);
        strata_cache_store(&device->cache, key.text, sizeof key.text, data, bytes);
    }
    for (int i = 0; i < device->n_pipelines; i++) device->pipelines[i].saved = true;
}

/* ---- layouts ---- */
/* The kernel's module that suits the device. */
static const strata_shader_code *code_of(const vulkan_device *device, const strata_shader *shader) {
    const bool has_bytes = device->physical.storage_8bit || !(shader->needs & STRATA_SHADER_NEEDS_8BIT_STORAGE);
    if (!has_bytes) return &shader->in_words;
    return device->physical.fetches && shader->fetch.bytes ? &shader->fetch : &shader->spirv;
}

unsigned strata_vulkan_bindings_of(const vulkan_device *device, const strata_shader *shader) {
    unsigned bindings = 0;
    for (int b = 0; b < shader->n_buffers; b++) {
        const strata_shader_binding binding =
            code_of(device, shader) == &shader->fetch ? strata_shader_binding_of(&shader->buffers[b]) : STRATA_SHADER_STORAGE;
        bindings |= (1u + (unsigned)binding) << 2 * b;
    }
    return bindings;
}

bool strata_vulkan_binding_type(unsigned bindings, int number, VkDescriptorType *out_type) {
    static const VkDescriptorType types[] = {[1 + STRATA_SHADER_STORAGE] = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                             [1 + STRATA_SHADER_TEXELS] = VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER,
                                             [1 + STRATA_SHADER_STORAGE_TEXELS] = VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER};
    const unsigned which = bindings >> 2 * number & 3u;
    *out_type = types[which];
    return which != 0;
}

/* Declares all push constants that a kernel may have. */
static VkResult create_layout(vulkan_device *device, vulkan_layout *layout) {
    STRATA_DRIVER_CALL(&device->base, COMPILE);
    const vulkan_functions *vk = &device->instance.vk;
    VkDescriptorSetLayoutBinding bindings[STRATA_SHADER_MAX_BUFFERS];
    VkDescriptorType type;
    uint32_t n = 0;
    for (; n < STRATA_SHADER_MAX_BUFFERS && strata_vulkan_binding_type(layout->bindings, (int)n, &type); n++)
        bindings[n] = (VkDescriptorSetLayoutBinding){
            .binding = n, .descriptorType = type, .descriptorCount = 1, .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    VkDescriptorSetLayoutCreateInfo set = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = n, .pBindings = bindings};
    VkResult result = vk->CreateDescriptorSetLayout(device->handle, &set, NULL, &layout->set);
    if (result) return result;
    VkPushConstantRange words = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = STRATA_SHADER_MAX_WORDS * sizeof(uint32_t)};
    VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                       .setLayoutCount = 1,
                                       .pSetLayouts = &layout->set,
                                       .pushConstantRangeCount = 1,
                                       .pPushConstantRanges = &words};
    result = vk->CreatePipelineLayout(device->handle, &info, NULL, &layout->pipeline);
    if (result) vk->DestroyDescriptorSetLayout(device->handle, layout->set, NULL);
    return result;
}

strata_status strata_vulkan_layout_get(vulkan_device *device, unsigned bindings, vulkan_layout *out_layout, strata_error *err) {
    for (int i = 0; i < device->n_layouts; i++) {
        if (device->layouts[i].bindings != bindings) continue;
        *out_layout = device->layouts[i];
        return STRATA_OK;
    }
    if (!strata_make_room(&device->layouts, device->n_layouts, &device->layouts_capacity, sizeof *device->layouts))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "vulkan: no host memory for %d layouts", device->n_layouts);
    vulkan_layout layout = {.bindings = bindings};
    VkResult result = create_layout(device, &layout);
    if (result) return strata_vulkan_fail(device, result, "vkCreatePipelineLayout", err);
    device->layouts[device->n_layouts++] = layout;
    *out_layout = layout;
    return STRATA_OK;
}

void strata_vulkan_pipelines_finish(vulkan_device *device) {
    const vulkan_functions *vk = &device->instance.vk;
    for (int i = 0; i < device->n_pipelines; i++) vk->DestroyPipeline(device->handle, device->pipelines[i].handle, NULL);
    free(device->pipelines);
    device->pipelines = NULL;
    device->n_pipelines = 0;
    vk->DestroyPipelineCache(device->handle, device->pipeline_cache, NULL);
    for (int i = 0; i < device->n_layouts; i++) {
        vk->DestroyPipelineLayout(device->handle, device->layouts[i].pipeline, NULL);
        vk->DestroyDescriptorSetLayout(device->handle, device->layouts[i].set, NULL);
    }
    free(device->layouts);
    device->layouts = NULL;
    device->n_layouts = 0;
}

/* ---- building ---- */
typedef struct build_call {
    PFN_vkCreateComputePipelines create;
    VkDevice device;
    VkPipelineCache cache;
    VkShaderModule module;
    VkPipelineLayout layout;
    strata_kernel kernel;
    /* The constants are already inserted into the module's code. */
    bool specialized;
    /* The required size of the pipeline's subgroups, which must be full. 0: the driver chooses. */
    uint32_t lanes;
    VkPipeline pipeline;
    VkResult result;
} build_call;

static void make_build_call(void *data) {
    build_call *call = data;
    const strata_shader *shader = call->kernel.shader;
    VkSpecializationMapEntry entries[STRATA_SHADER_MAX_CONSTANTS];
    for (int i = 0; i < shader->n_constants; i++)
        entries[i] = (VkSpecializationMapEntry){(uint32_t)i, (uint32_t)i * (uint32_t)sizeof(uint32_t), sizeof(uint32_t)};
    VkSpecializationInfo constants = {.mapEntryCount = (uint32_t)shader->n_constants,
                                      .pMapEntries = entries,
                                      .dataSize = (size_t)shader->n_constants * sizeof(uint32_t),
                                      .pData = call->kernel.constants};
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo lanes = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = call->lanes};
    VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                  .module = call->module,
                                                  .pName = "main",
                                                  .pSpecializationInfo = call->specialized ? NULL : &constants},
                                        .layout = call->layout};
    if (call->lanes) {
        info.stage.pNext = &lanes;
        info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    }
    call->result = call->create(call->device, call->cache, 1, &info, NULL, &call->pipeline);
}

/* Creates the kernel's module with its constants inserted, so that the driver does not compile branches that they exclude. */
static VkResult create_module(vulkan_device *device, const strata_kernel *kernel, const void *code, size_t bytes,
                              build_call *call) {
    size_t n_words = 0;
    STRATA_FREED uint32_t *words =
        strata_shader_specialize(code, bytes / sizeof *words, kernel->constants, kernel->shader->n_constants, &n_words);
    const VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                           .codeSize = words ? n_words * sizeof *words : bytes,
                                           .pCode = words ? words : code};
    STRATA_DRIVER_CALL(&device->base, COMPILE);
    const VkResult result = device->instance.vk.CreateShaderModule(device->handle, &info, NULL, &call->module);
    call->specialized = words != NULL;
    return result;
}

/* *out_result is the driver's result. Fails in the same cases as strata_driver_compile_run. */
static strata_status build(vulkan_device *device, const strata_kernel *kernel, const void *code, size_t bytes,
                           VkPipelineLayout layout, VkPipeline *out_pipeline, VkResult *out_result, strata_error *err) {
    const vulkan_functions *vk = &device->instance.vk;
    build_call call = {.create = vk->CreateComputePipelines,
                       .device = device->handle,
                       .cache = device->pipeline_cache,
                       .layout = layout,
                       .kernel = *kernel};
    if (kernel->shader->needs & STRATA_SHADER_NEEDS_MATRIX_UNITS) call.lanes = device->physical.unit_lanes;
    *out_result = create_module(device, kernel, code, bytes, &call);
    if (*out_result) return STRATA_OK;
    char name[96];
    snprintf(name, sizeof name, "kernel %s %s", kernel->shader->stem, kernel->shader->variant);
    STRATA_TRY(strata_driver_compile_run(&device->base, name, 1, make_build_call, &call, sizeof call, err));
    vk->DestroyShaderModule(device->handle, call.module, NULL);
    *out_result = call.result;
    *out_pipeline = call.pipeline;
    return STRATA_OK;
}

strata_status strata_vulkan_pipeline_get(vulkan_device *device, const strata_kernel *kernel, VkPipeline *out_pipeline,
                                         strata_error *err) {
    for (int i = 0; i < device->n_pipelines; i++) {
        const strata_kernel *have = &device->pipelines[i].kernel;
        if (have->shader != kernel->shader || memcmp(have->constants, kernel->constants, sizeof kernel->constants)) continue;
        *out_pipeline = device->pipelines[i].handle;
        return STRATA_OK;
    }
    if (!strata_make_room(&device->pipelines, device->n_pipelines, &device->pipelines_capacity, sizeof *device->pipelines))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "vulkan: no host memory for %d pipelines", device->n_pipelines);
    VkPipeline handle = VK_NULL_HANDLE;
    vulkan_layout layout;
    STRATA_TRY(strata_vulkan_layout_get(device, strata_vulkan_bindings_of(device, kernel->shader), &layout, err));
    const strata_shader_code *code = code_of(device, kernel->shader);
    STRATA_FREED void *spirv = NULL;
    const strata_status loaded = strata_shader_load(kernel->shader, code, &spirv, err);
    if (loaded) return strata_fail_in(err, loaded, "%s", device->base.info.id);
    VkResult result = VK_SUCCESS;
    STRATA_TRY(build(device, kernel, spirv, code->bytes, layout.pipeline, &handle, &result, err));
    if (result) {
        strata_status status = strata_vulkan_fail(device, result, "the driver refused it: vkCreateComputePipelines", err);
        /* A pipeline has the same size for each batch, so a smaller batch would not help. */
        if (status == STRATA_OUT_OF_MEMORY) status = STRATA_UNSUPPORTED;
        return strata_fail_in(err, status, "kernel %s (%s)", kernel->shader->stem, kernel->shader->variant);
    }
    device->pipelines[device->n_pipelines++] = (vulkan_pipeline){.kernel = *kernel, .handle = handle};
    device->base.counters.compilations++;
    *out_pipeline = handle;
    return STRATA_OK;
}
