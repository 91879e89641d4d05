/* SPDX-License-Identifier: Apache-2.0
 *
 * The Vulkan device: its row in the registry, opening and closing it, and tickets. There is one queue, which executes
 * submissions in order. A ticket is the number of a submission, and each has a fence. Only functions of Vulkan 1.1 are
 * needed. */
#include <stdio.h>

#include "backends/registry.h"
#include "backends/vulkan/vulkan.h"

enum {
    /* The number of cores that is assumed for a GPU that does not report it. The resulting number of work-groups is
     * enough for a large GPU and costs little on a small one. */
    UNKNOWN_UNITS = 64,
    /* The default of strata_device_options.stall_seconds. */
    STALL_SECONDS = 600,
    /* The least time that closing a device waits for a submission that stalled. */
    CLOSE_SECONDS = 10
};

/* ---- errors ---- */
strata_status strata_vulkan_fail(vulkan_device *device, VkResult result, const char *what, strata_error *err) {
    if (result == VK_ERROR_DEVICE_LOST) device->lost = true;
    strata_status status = strata_vulkan_fail_result(result, what, err);
    return strata_fail_in(err, status, "%s", device->base.info.id);
}

strata_status strata_vulkan_check_messages(const vulkan_device *device, strata_error *err) {
    const vulkan_messages *messages = device->instance.messages;
    if (!messages || !messages->n) return STRATA_OK;
    return strata_fail(err, STRATA_INTERNAL, "%s: %d validation messages, the first: %s", device->base.info.id, messages->n,
                       messages->first);
}

int strata_vulkan_validation_messages(const strata_device *base) {
    const vulkan_messages *messages = ((const vulkan_device *)base)->instance.messages;
    return messages ? messages->n : 0;
}

/* ---- tickets ---- */
strata_status strata_vulkan_submit(vulkan_device *device, VkCommandBuffer commands, uint64_t *out_ticket, strata_error *err) {
    const vulkan_functions *vk = &device->instance.vk;
    if (device->lost) return strata_vulkan_fail(device, VK_ERROR_DEVICE_LOST, "submit", err);
    uint64_t ticket = device->last_ticket + 1;
    if (ticket > VULKAN_TICKETS) STRATA_TRY(strata_vulkan_wait(device, ticket - VULKAN_TICKETS, err));
    VkFence fence = device->fences[ticket % VULKAN_TICKETS];
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
    STRATA_DRIVER_CALL(&device->base, SUBMIT);
    VkResult result = vk->ResetFences(device->handle, 1, &fence);
    if (!result) result = vk->QueueSubmit(device->queue, 1, &info, fence);
    if (result) return strata_vulkan_fail(device, result, "vkQueueSubmit", err);
    device->last_ticket = ticket;
    *out_ticket = ticket;
    return STRATA_OK;
}

/* Waits for a submission. The time limit counts from the end of the newest submission that has ended. So many short
 * submissions before this one may take any time in total, but a single one that hangs is detected. */
static VkResult wait_with_progress(vulkan_device *device, uint64_t ticket) {
    const vulkan_functions *vk = &device->instance.vk;
    const VkFence fence = device->fences[ticket % VULKAN_TICKETS];
    for (;;) {
        STRATA_DRIVER_CALL(&device->base, WAIT);
        VkResult result = vk->WaitForFences(device->handle, 1, &fence, VK_TRUE, (uint64_t)(device->stall_seconds * 1e9));
        if (result != VK_TIMEOUT) return result;
        uint64_t done = device->done_ticket;
        while (done < ticket && !vk->GetFenceStatus(device->handle, device->fences[(done + 1) % VULKAN_TICKETS])) done++;
        if (done == device->done_ticket) return VK_TIMEOUT;
        device->done_ticket = done;
    }
}

bool strata_vulkan_is_idle(vulkan_device *device) {
    const VkFence fence = device->fences[device->last_ticket % VULKAN_TICKETS];
    if (device->stall == VULKAN_STALLED) {
        const VkResult result =
            device->instance.vk.WaitForFences(device->handle, 1, &fence, VK_TRUE, CLOSE_SECONDS * UINT64_C(1000000000));
        device->stall = result == VK_TIMEOUT ? VULKAN_HANGS : VULKAN_RUNS;
    }
    return device->stall == VULKAN_RUNS;
}

strata_status strata_vulkan_wait(vulkan_device *device, uint64_t ticket, strata_error *err) {
    const vulkan_functions *vk = &device->instance.vk;
    if (ticket <= device->done_ticket) return STRATA_OK;
    if (device->lost) return strata_vulkan_fail(device, VK_ERROR_DEVICE_LOST, "wait", err);
    if (ticket > device->last_ticket)
        return strata_fail(err, STRATA_INVALID, "%s: ticket %llu was never given out; the last is %llu", device->base.info.id,
                           (unsigned long long)ticket, (unsigned long long)device->last_ticket);
    /* No newer ticket uses this fence, because submitting that ticket would have waited for this one. */
    VkFence fence = device->fences[ticket % VULKAN_TICKETS];
    VkResult result = vk->GetFenceStatus(device->handle, fence);
    if (result == VK_NOT_READY) {
        device->base.counters.waits++;
        result = wait_with_progress(device, ticket);
    }
    if (result == VK_TIMEOUT) {
        device->lost = true;
        device->stall = VULKAN_STALLED;
        return strata_fail(
            err, STRATA_TIMEOUT,
            "%s: no submission has ended for %g s: the device hangs, or a step takes longer. Take smaller steps, or allow more "
            "time: --stall-seconds, strata_device_options.stall_seconds",
            device->base.info.id, device->stall_seconds);
    }
    if (result) return strata_vulkan_fail(device, result, "waiting for a program", err);
    device->done_ticket = ticket;
    if (device->timed) strata_vulkan_time_collect(device, ticket);
    return STRATA_OK;
}

static strata_status device_wait(strata_device *base, uint64_t ticket, strata_error *err) {
    vulkan_device *device = (vulkan_device *)base;
    STRATA_TRY(strata_vulkan_wait(device, ticket, err));
    return strata_vulkan_check_messages(device, err);
}

/* ---- close ---- */
void strata_vulkan_report_close(strata_device *base, vulkan_messages *out_messages) {
    ((vulkan_device *)base)->closing = out_messages;
}

static void device_close(strata_device *base) {
    vulkan_device *device = (vulkan_device *)base;
    const vulkan_functions *vk = &device->instance.vk;
    strata_tuner_destroy(device->tuner);
    strata_checks_destroy(device->limits.checks);
    /* The driver still uses all of these objects. Leaking them does less harm than freeing them. */
    if (!strata_vulkan_is_idle(device) || base->given_up.status) return;
    if (device->handle) {
        /* A driver whose device failed while it was opened may crash in DeviceWaitIdle: RADV without hardware has no
         * such function. */
        if (device->last_ticket > 0) vk->DeviceWaitIdle(device->handle);
        strata_vulkan_buffer_free(device, device->upload_staging);
        strata_vulkan_buffer_free(device, device->download_staging);
        strata_vulkan_buffer_free(device, device->nothing);
        strata_vulkan_pipelines_finish(device);
        strata_vulkan_blocks_free(device);
        for (int i = 0; i < VULKAN_TICKETS; i++) vk->DestroyFence(device->handle, device->fences[i], NULL);
        vk->DestroyCommandPool(device->handle, device->command_pool, NULL);
        vk->DestroyDevice(device->handle, NULL);
    }
    vulkan_messages *messages = device->instance.messages;
    strata_vulkan_instance_destroy(&device->instance);
    if (messages && device->closing) *device->closing = *messages;
    free(messages);
    free(device);
}

/* ---- open ---- */
static strata_support device_supports(strata_device *base, const strata_tensor *node, const char **reason) {
    return strata_kernel_supports(&((vulkan_device *)base)->limits, node, reason);
}

static const strata_device_api device_api = {
    .close = device_close,
    .buffer_create = strata_vulkan_buffer_create,
    .buffer_destroy = strata_vulkan_buffer_destroy,
    .upload = strata_vulkan_upload,
    .download = strata_vulkan_download,
    .supports = device_supports,
    .compile = strata_vulkan_compile,
    .program_destroy = strata_vulkan_program_destroy,
    .program_input = strata_vulkan_program_input,
    .program_output = strata_vulkan_program_output,
    .run = strata_vulkan_run,
    .wait = device_wait,
    .check = strata_vulkan_check,
    .set_trace = strata_vulkan_set_trace,
};

/* Finds the physical device of `info`. It must have the same id and name as when it was listed. */
static strata_status find_physical(vulkan_device *device, strata_error *err) {
    STRATA_FREED vulkan_physical *all = NULL;
    int n = 0;
    STRATA_TRY(strata_vulkan_physical_list(&device->instance, &all, &n, err));
    const strata_device_info *wanted = &device->base.info;
    bool found = false;
    for (int i = 0; i < n && !found; i++) {
        found = !strcmp(all[i].info.id, wanted->id) && !strcmp(all[i].info.name, wanted->name);
        if (found) device->physical = all[i];
    }
    if (!found)
        return strata_fail(err, STRATA_UNAVAILABLE, "%s (%s) is not there any more; list the devices again", wanted->id,
                           wanted->name);
    if (device->physical.info.skipped[0])
        return strata_fail(err, STRATA_UNSUPPORTED, "%s (%s) cannot be used: %s", wanted->id, wanted->name,
                           device->physical.info.skipped);
    return STRATA_OK;
}

static strata_status create_handle(vulkan_device *device, strata_error *err) {
    const vulkan_physical *physical = &device->physical;
    float priority = 1.0f;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = physical->queue_family,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkPhysicalDevice16BitStorageFeatures bits16 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES,
                                                   .storageBuffer16BitAccess = physical->storage_16bit};
    VkPhysicalDevice8BitStorageFeatures bits8 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES, .pNext = &bits16, .storageBuffer8BitAccess = VK_TRUE};
    vulkan_matrix_features matrices;
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = strata_vulkan_enable_matrix_units(
                                              physical, &matrices, physical->storage_8bit ? (void *)&bits8 : (void *)&bits16),
                                          .features.shaderInt64 = physical->int64};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &features,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue,
                               .enabledExtensionCount = (uint32_t)physical->n_extensions,
                               .ppEnabledExtensionNames = physical->extensions};
    VkResult result = device->instance.vk.CreateDevice(physical->handle, &info, NULL, &device->handle);
    if (result) {
        device->handle = NULL;
        return strata_vulkan_fail(device, result, "vkCreateDevice", err);
    }
    strata_status status = strata_vulkan_load_device(&device->instance.vk, device->handle, err);
    if (status) {
        if (device->instance.vk.DestroyDevice) device->instance.vk.DestroyDevice(device->handle, NULL);
        device->handle = NULL;
        return status;
    }
    device->instance.vk.GetDeviceQueue(device->handle, physical->queue_family, 0, &device->queue);
    return STRATA_OK;
}

static strata_status create_commands_and_fences(vulkan_device *device, strata_error *err) {
    const vulkan_functions *vk = &device->instance.vk;
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                    .queueFamilyIndex = device->physical.queue_family};
    VkResult result = vk->CreateCommandPool(device->handle, &pool, NULL, &device->command_pool);
    if (result) return strata_vulkan_fail(device, result, "vkCreateCommandPool", err);
    VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = device->command_pool,
                                            .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                            .commandBufferCount = 1};
    result = vk->AllocateCommandBuffers(device->handle, &commands, &device->transfer_commands);
    if (result) return strata_vulkan_fail(device, result, "vkAllocateCommandBuffers", err);
    for (int i = 0; i < VULKAN_TICKETS; i++) {
        VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
        result = vk->CreateFence(device->handle, &fence, NULL, &device->fences[i]);
        if (result) return strata_vulkan_fail(device, result, "vkCreateFence", err);
    }
    return STRATA_OK;
}

static strata_kernel_limits limits_of(const vulkan_physical *physical, bool fast) {
    const VkPhysicalDeviceLimits *limits = &physical->properties.limits;
    const strata_device_info *info = &physical->info;
    return (strata_kernel_limits){
        .device_class = info->device_class,
        .fast = fast,
        .dtypes = info->dtypes,
        .max_workgroup = limits->maxComputeWorkGroupInvocations,
        .max_local = {limits->maxComputeWorkGroupSize[0], limits->maxComputeWorkGroupSize[1]},
        .max_groups = {limits->maxComputeWorkGroupCount[0], limits->maxComputeWorkGroupCount[1]},
        .local_bytes = info->local_bytes,
        .compute_units = info->compute_units ? info->compute_units : UNKNOWN_UNITS,
        .vector_width = 1,
        .max_range_bytes = info->max_range_bytes,
        .f16_unit = physical->f16_unit,
        .bf16_unit = physical->bf16_unit,
        .unit_lanes = physical->unit_lanes,
        .item_registers = strcmp(info->vendor, "Intel") ? 0 : STRATA_INTEL_ITEM_REGISTERS,
    };
}

static strata_status open_device(vulkan_device *device, const strata_device_options *opts, strata_error *err) {
    device->stall_seconds = opts && opts->stall_seconds > 0 ? opts->stall_seconds : STALL_SECONDS;
    device->base.stall_seconds = device->stall_seconds;
    if (opts &&
        (opts->stall_seconds < 0 || (opts->stall_seconds > 0 && opts->stall_seconds < 1e-3) || !(device->stall_seconds <= 1e9)))
        return strata_fail(err, STRATA_INVALID, "%s: stall_seconds is %g; it must be 0 (the default) or 0.001..1e9",
                           device->base.info.id, opts->stall_seconds);
    STRATA_TRY(strata_vulkan_instance_create(strata_vulkan_validation_wanted(), &device->instance, err));
    STRATA_TRY(find_physical(device, err));
    device->base.info = device->physical.info;
    device->limits = limits_of(&device->physical, opts && opts->fast);
    device->base.has_fast = strata_units_multiply(&device->limits, STRATA_DTYPE_F32);
    device->time_bits = device->physical.time_bits;
    STRATA_TRY(create_handle(device, err));
    STRATA_TRY(create_commands_and_fences(device, err));
    strata_cache_open(&device->cache, opts, &device->base.info);
    STRATA_TRY(strata_vulkan_pipelines_init(device, err));
    STRATA_TRY(strata_vulkan_buffer_make(device, VULKAN_MEMORY_DEVICE, STRATA_PLACE_ALIGNMENT, &device->nothing, err));
    STRATA_TRY(strata_vulkan_clear(device, device->nothing, err));
    device->base.counters = (strata_device_counters){0}; /* until here, only the backend itself has used the device */
    device->tuner = strata_tuner_create(&device->base, &device->limits, &device->cache, opts);
    device->limits.checks = strata_checks_create(&device->base, &device->cache, opts);
    return strata_vulkan_check_messages(device, err);
}

static strata_status vulkan_open(const strata_device_info *info, const strata_device_options *opts, strata_device **out_device,
                                 strata_error *err) {
    if (info->skipped[0]) return strata_fail(err, STRATA_UNAVAILABLE, "%s: %s", info->id, info->skipped);
    vulkan_device *device = NULL;
    STRATA_TRY(STRATA_NEW(device, 1, err, "%s: no host memory for the device", info->id));
    device->base = (strata_device){.api = &device_api, .info = *info};
    strata_status status = open_device(device, opts, err);
    if (status)
        device_close(&device->base);
    else
        *out_device = &device->base;
    return status;
}

/* ---- list ---- */
static strata_status add_reason(strata_device_list *list, const char *reason, strata_error *err) {
    strata_device_info row = {.id = "vulkan", .backend = "vulkan", .device_class = STRATA_DEVICE_DISCRETE_GPU};
    snprintf(row.skipped, sizeof row.skipped, "%.255s", reason);
    return strata_device_list_add(list, &row, err);
}

static strata_status vulkan_list(strata_device_list *list, strata_error *err) {
    vulkan_instance instance = {0};
    STRATA_FREED vulkan_physical *devices = NULL;
    int n = 0;
    strata_error why = {0};
    strata_status status = strata_vulkan_instance_create(false, &instance, &why);
    if (!status) status = strata_vulkan_physical_list(&instance, &devices, &n, &why);
    strata_vulkan_instance_destroy(&instance);
    if (status == STRATA_OUT_OF_MEMORY) return strata_fail(err, status, "%s", why.message);
    if (status) return add_reason(list, why.message, err);
    for (int i = 0; i < n; i++) STRATA_TRY(strata_device_list_add(list, &devices[i].info, err));
    return n ? STRATA_OK : add_reason(list, "the Vulkan loader is here, but no driver has a device", err);
}

const strata_backend strata_backend_vulkan = {.name = "vulkan", .is_tried = true, .list = vulkan_list, .open = vulkan_open};
