/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies between the host and buffers outside of programs: initial values, checkpoints, tests. Each function waits
 * until its copy has finished. Mapped memory is accessed directly. An exception is uncached memory, from which the host
 * reads many times more slowly than the device copies it to a cached buffer, so reading uses such a copy. Unmapped
 * memory is copied through a staging buffer in several parts. */
#include "backends/vulkan/vulkan.h"

enum { STAGING_BYTES = 4 << 20 };

static strata_status wait_for_all(vulkan_device *device, strata_error *err) {
    return strata_vulkan_wait(device, device->last_ticket, err);
}

/* ---- commands ---- */
static strata_status begin(vulkan_device *device, strata_error *err) {
    /* the command buffer may be in use; afterwards the host may also access mapped memory */
    STRATA_TRY(wait_for_all(device, err));
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    VkResult result = device->instance.vk.BeginCommandBuffer(device->transfer_commands, &info);
    if (result) return strata_vulkan_fail(device, result, "vkBeginCommandBuffer", err);
    strata_vulkan_barrier(device, device->transfer_commands,
                          VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                          VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT,
                          VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
    return STRATA_OK;
}

static strata_status end(vulkan_device *device, strata_error *err) {
    strata_vulkan_barrier(device, device->transfer_commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
                          VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_HOST_BIT,
                          VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                              VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_HOST_READ_BIT);
    VkResult result = device->instance.vk.EndCommandBuffer(device->transfer_commands);
    if (result) return strata_vulkan_fail(device, result, "vkEndCommandBuffer", err);
    uint64_t ticket = 0;
    STRATA_TRY(strata_vulkan_submit(device, device->transfer_commands, &ticket, err));
    return strata_vulkan_wait(device, ticket, err);
}

static strata_status copy(vulkan_device *device, const strata_buffer *from, int64_t from_offset, const strata_buffer *to,
                          int64_t to_offset, int64_t bytes, strata_error *err) {
    STRATA_DRIVER_CALL(&device->base, COPY);
    STRATA_TRY(begin(device, err));
    VkBufferCopy region = {(VkDeviceSize)from_offset, (VkDeviceSize)to_offset, (VkDeviceSize)bytes};
    device->instance.vk.CmdCopyBuffer(device->transfer_commands, from->handle, to->handle, 1, &region);
    return end(device, err);
}

strata_status strata_vulkan_clear(vulkan_device *device, strata_buffer *buffer, strata_error *err) {
    if (buffer->mapped) {
        memset(buffer->mapped, 0, (size_t)buffer->bytes);
        return STRATA_OK;
    }
    STRATA_DRIVER_CALL(&device->base, ALLOCATE);
    STRATA_TRY(begin(device, err));
    device->instance.vk.CmdFillBuffer(device->transfer_commands, buffer->handle, 0, VK_WHOLE_SIZE, 0);
    return end(device, err);
}

/* ---- staging ---- */
/* Exactly one of source and target is not NULL. */
static strata_status copy_staged(vulkan_device *device, strata_buffer *buffer, int64_t offset, const char *source, char *target,
                                 int64_t bytes, strata_error *err) {
    strata_buffer **staging = source ? &device->upload_staging : &device->download_staging;
    const vulkan_memory_use use = source ? VULKAN_MEMORY_STAGING_IN : VULKAN_MEMORY_STAGING_OUT;
    if (!*staging) STRATA_TRY(strata_vulkan_buffer_make(device, use, STAGING_BYTES, staging, err));
    for (int64_t done = 0; done < bytes; done += STAGING_BYTES) {
        const int64_t part = bytes - done < STAGING_BYTES ? bytes - done : STAGING_BYTES;
        if (source) memcpy((*staging)->mapped, source + done, (size_t)part);
        STRATA_TRY(source ? copy(device, *staging, 0, buffer, offset + done, part, err)
                          : copy(device, buffer, offset + done, *staging, 0, part, err));
        if (target) memcpy(target + done, (*staging)->mapped, (size_t)part);
    }
    return STRATA_OK;
}

/* ---- the table's calls ---- */
strata_status strata_vulkan_buffer_create(strata_device *base, int64_t bytes, strata_buffer **out_buffer, strata_error *err) {
    vulkan_device *device = (vulkan_device *)base;
    strata_buffer *buffer = NULL;
    STRATA_TRY(strata_vulkan_buffer_make(device, VULKAN_MEMORY_DEVICE, bytes, &buffer, err));
    strata_status status = strata_vulkan_clear(device, buffer, err);
    if (!status) status = strata_vulkan_check_messages(device, err);
    if (status)
        strata_vulkan_buffer_free(device, buffer);
    else
        *out_buffer = buffer;
    return status;
}

void strata_vulkan_buffer_destroy(strata_device *base, strata_buffer *buffer) {
    strata_vulkan_buffer_free((vulkan_device *)base, buffer);
}

strata_status strata_vulkan_upload(strata_device *base, strata_buffer *buffer, int64_t offset, const void *source,
                                   int64_t bytes, strata_error *err) {
    vulkan_device *device = (vulkan_device *)base;
    STRATA_TRY(strata_device_check_range(base, buffer->bytes, offset, bytes, err));
    if (!bytes) return STRATA_OK;
    STRATA_TRY(wait_for_all(device, err));
    if (buffer->mapped) {
        memcpy(buffer->mapped + offset, source, (size_t)bytes);
    } else {
        STRATA_TRY(copy_staged(device, buffer, offset, source, NULL, bytes, err));
    }
    base->counters.upload_bytes += (uint64_t)bytes;
    return strata_vulkan_check_messages(device, err);
}

strata_status strata_vulkan_download(strata_device *base, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                     strata_error *err) {
    vulkan_device *device = (vulkan_device *)base;
    STRATA_TRY(strata_device_check_range(base, buffer->bytes, offset, bytes, err));
    if (!bytes) return STRATA_OK;
    STRATA_TRY(wait_for_all(device, err));
    if (buffer->mapped && buffer->cached) {
        memcpy(target, buffer->mapped + offset, (size_t)bytes);
    } else {
        STRATA_TRY(copy_staged(device, buffer, offset, NULL, target, bytes, err));
    }
    base->counters.download_bytes += (uint64_t)bytes;
    return strata_vulkan_check_messages(device, err);
}
