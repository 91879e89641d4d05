/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers and their memory. A buffer is one VkBuffer. Its memory is a part of a block (one VkDeviceMemory), because
 * drivers support as few as 4096 allocations. A large buffer gets its own block, which is freed together with it.
 * Blocks of small buffers are kept until the device is closed.
 *
 * Blocks that are visible to the host and coherent are mapped once and stay mapped. Vulkan guarantees that such memory
 * exists, so this code never flushes or invalidates memory: memory that is not coherent is treated as not accessible
 * for the host. */
#include <stdio.h>

#include "backends/vulkan/vulkan.h"

enum {
    BLOCK_BYTES = 32 << 20,        /* the bytes of a block that several buffers share */
    SHARED_BUFFER_BYTES = 8 << 20, /* a larger buffer gets its own block */
    HEAP_FRACTION = 64             /* a shared block is at most this fraction of its heap */
};

struct vulkan_block {
    vulkan_block *next;
    VkDeviceMemory memory;
    uint32_t type;
    VkDeviceSize bytes;
    char *mapped; /* NULL: the host cannot access it */
    bool own;     /* it was made for one buffer */
    /* Its buffers, in ascending order of their memory, without overlap. */
    strata_buffer *first;
};

/* ---- which memory ---- */
/* A memory type must have all required properties. Among those that have, the highest sum of points wins. Memory of a
 * discrete GPU that the host can access may be scarce (256 MiB), so it has negative points for buffers that do not need
 * it. */
typedef struct preference {
    VkMemoryPropertyFlags required;
    int device_local, mappable, host_cached; /* points for each property */
} preference;

enum { MAPPABLE = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT };

static const preference preferences[VULKAN_MEMORY_USES] = {
    [VULKAN_MEMORY_DEVICE] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0, -1, 0},
    [VULKAN_MEMORY_STAGING_IN] = {MAPPABLE, -8, 0, 0},
    [VULKAN_MEMORY_STAGING_OUT] = {MAPPABLE, -1, 0, 4},
    [VULKAN_MEMORY_SHARED_IN] = {MAPPABLE, 4, 0, 1},
    [VULKAN_MEMORY_SHARED_OUT] = {MAPPABLE, 4, 0, 8},
};
static const preference unified_device = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0, 4, 2};

enum {
    KNOWN_PROPERTIES = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                       VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT
};

static int points_of(const preference *wish, VkMemoryPropertyFlags properties) {
    return (properties & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT ? wish->device_local : 0) +
           ((properties & MAPPABLE) == MAPPABLE ? wish->mappable : 0) +
           (properties & VK_MEMORY_PROPERTY_HOST_CACHED_BIT ? wish->host_cached : 0);
}

/* The best memory type among `allowed` (one bit for each type); UINT32_MAX: none is suitable. Types with properties
 * that are not known here (protected, lazily allocated, uncached by the device) need features that are not enabled. */
static uint32_t choose_type(const vulkan_device *device, vulkan_memory_use use, uint32_t allowed) {
    const VkPhysicalDeviceMemoryProperties *memory = &device->physical.memory;
    const preference *wish = &preferences[use];
    if (use == VULKAN_MEMORY_DEVICE && device->base.info.unified_memory) wish = &unified_device;
    uint32_t best = UINT32_MAX;
    int best_points = 0;
    for (uint32_t type = 0; type < memory->memoryTypeCount; type++) {
        VkMemoryPropertyFlags properties = memory->memoryTypes[type].propertyFlags;
        if (!(allowed >> type & 1u) || (properties & wish->required) != wish->required || (properties & ~KNOWN_PROPERTIES))
            continue;
        int points = points_of(wish, properties);
        if (best == UINT32_MAX || points > best_points) {
            best = type;
            best_points = points;
        }
    }
    return best;
}

/* ---- blocks ---- */
static VkDeviceSize align_up(VkDeviceSize value, VkDeviceSize alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

static void block_free(vulkan_device *device, vulkan_block *block) {
    if (block->memory) device->instance.vk.FreeMemory(device->handle, block->memory, NULL);
    free(block);
}

static VkResult block_create(vulkan_device *device, uint32_t type, VkDeviceSize bytes, bool own, vulkan_block **out_block) {
    const vulkan_functions *vk = &device->instance.vk;
    vulkan_block *block = calloc(1, sizeof *block);
    if (!block) return VK_ERROR_OUT_OF_HOST_MEMORY;
    *block = (vulkan_block){.type = type, .bytes = bytes, .own = own};
    VkMemoryAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = bytes, .memoryTypeIndex = type};
    VkResult result = vk->AllocateMemory(device->handle, &info, NULL, &block->memory);
    if (result) block->memory = VK_NULL_HANDLE;
    VkMemoryPropertyFlags properties = device->physical.memory.memoryTypes[type].propertyFlags;
    void *mapped = NULL;
    if (!result && (properties & MAPPABLE) == MAPPABLE)
        result = vk->MapMemory(device->handle, block->memory, 0, VK_WHOLE_SIZE, 0, &mapped);
    if (result) {
        block_free(device, block);
        return result;
    }
    block->mapped = mapped;
    block->next = device->blocks;
    device->blocks = block;
    *out_block = block;
    return VK_SUCCESS;
}

/* Gives the buffer the first gap that is large enough. Returns false if there is none. */
static bool block_take(vulkan_block *block, VkDeviceSize alignment, strata_buffer *buffer) {
    VkDeviceSize offset = 0;
    strata_buffer **at = &block->first;
    for (; *at && offset + buffer->span > (*at)->offset; at = &(*at)->next)
        offset = align_up((*at)->offset + (*at)->span, alignment);
    if (offset > block->bytes || buffer->span > block->bytes - offset) return false;
    buffer->block = block;
    buffer->offset = offset;
    buffer->next = *at;
    *at = buffer;
    return true;
}

static void block_give_back(vulkan_device *device, const strata_buffer *buffer) {
    vulkan_block *block = buffer->block, **link = &device->blocks;
    strata_buffer **at = &block->first;
    while (*at != buffer) at = &(*at)->next;
    *at = buffer->next;
    if (!block->own) return;
    while (*link != block) link = &(*link)->next;
    *link = block->next;
    block_free(device, block);
}

void strata_vulkan_blocks_free(vulkan_device *device) {
    while (device->blocks) {
        vulkan_block *block = device->blocks;
        device->blocks = block->next;
        block_free(device, block);
    }
}

int strata_vulkan_count_blocks(const vulkan_device *device) {
    int n = 0;
    for (const vulkan_block *block = device->blocks; block; block = block->next) n++;
    return n;
}

/* Takes memory of one type for the buffer, from a block that has room or from a new block. */
static VkResult take_memory(vulkan_device *device, uint32_t type, const VkMemoryRequirements *needs, strata_buffer *buffer) {
    const VkPhysicalDeviceMemoryProperties *memory = &device->physical.memory;
    VkMemoryPropertyFlags properties = memory->memoryTypes[type].propertyFlags;
    VkDeviceSize alignment = needs->alignment;
    buffer->cached = properties & VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    buffer->span = align_up(needs->size, alignment);

    bool own = buffer->span > SHARED_BUFFER_BYTES;
    for (vulkan_block *block = device->blocks; block && !own; block = block->next)
        if (!block->own && block->type == type && block_take(block, alignment, buffer)) return VK_SUCCESS;
    VkDeviceSize bytes = BLOCK_BYTES, most = memory->memoryHeaps[memory->memoryTypes[type].heapIndex].size / HEAP_FRACTION;
    if (bytes > most) bytes = most;
    if (own || bytes < buffer->span) bytes = buffer->span;
    vulkan_block *block = NULL;
    const VkResult result = block_create(device, type, bytes, own, &block);
    if (!result) (void)block_take(block, alignment, buffer); /* it is empty */
    return result;
}

/* ---- buffers ---- */
static strata_status no_memory(vulkan_device *device, int64_t bytes, const char *why, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY,
                       "%s: no memory for a buffer of %lld bytes (%s); %llu of %llu bytes are in use", device->base.info.id,
                       (long long)bytes, why, (unsigned long long)device->base.counters.allocated_bytes,
                       (unsigned long long)device->base.info.memory_bytes);
}

/* Tries the best memory type first, then all others with the required properties. If the device is full, this is an
 * error. Using the host's memory instead would silently make kernels many times slower. */
static strata_status bind_memory(vulkan_device *device, vulkan_memory_use use, strata_buffer *buffer, strata_error *err) {
    const vulkan_functions *vk = &device->instance.vk;
    VkMemoryRequirements needs;
    vk->GetBufferMemoryRequirements(device->handle, buffer->handle, &needs);
    VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    for (uint32_t allowed = needs.memoryTypeBits; allowed && result;) {
        uint32_t type = choose_type(device, use, allowed);
        if (type == UINT32_MAX) break;
        allowed &= ~(1u << type);
        result = take_memory(device, type, &needs, buffer);
        if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_DEVICE_LOST) break;
    }
    if (result == VK_ERROR_DEVICE_LOST) return strata_vulkan_fail(device, result, "vkAllocateMemory", err);
    if (result) return no_memory(device, buffer->bytes, strata_vulkan_result_name(result), err);
    if (buffer->block->mapped) buffer->mapped = buffer->block->mapped + buffer->offset;
    result = vk->BindBufferMemory(device->handle, buffer->handle, buffer->block->memory, buffer->offset);
    return result ? strata_vulkan_fail(device, result, "vkBindBufferMemory", err) : STRATA_OK;
}

strata_status strata_vulkan_buffer_make(vulkan_device *device, vulkan_memory_use use, int64_t bytes, strata_buffer **out_buffer,
                                        strata_error *err) {
    const strata_device_info *info = &device->base.info;
    if (bytes <= 0 || (uint64_t)bytes > info->max_allocation_bytes) {
        char why[96];
        snprintf(why, sizeof why, "it must have 1 to %llu", (unsigned long long)info->max_allocation_bytes);
        return no_memory(device, bytes, why, err);
    }
    strata_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer) return no_memory(device, bytes, "host memory", err);
    buffer->bytes = bytes;
    buffer->counted = use != VULKAN_MEMORY_STAGING_IN && use != VULKAN_MEMORY_STAGING_OUT; /* staging buffers are host memory */
    /* Kernels may access the whole word of the last element, so sizes are rounded up. */
    VkBufferCreateInfo create = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = align_up((VkDeviceSize)bytes, STRATA_PLACE_ALIGNMENT),
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                 (device->physical.fetches ? VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT | VK_BUFFER_USAGE_STORAGE_TEXEL_BUFFER_BIT
                                           : 0u),
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
    STRATA_DRIVER_CALL(&device->base, ALLOCATE);
    VkResult result = device->instance.vk.CreateBuffer(device->handle, &create, NULL, &buffer->handle);
    strata_status status = STRATA_OK;
    if (result) {
        buffer->handle = VK_NULL_HANDLE;
        status = no_memory(device, bytes, strata_vulkan_result_name(result), err);
    }
    if (!status) status = bind_memory(device, use, buffer, err);
    if (buffer->counted) device->base.counters.allocated_bytes += (uint64_t)bytes;
    if (status) {
        strata_vulkan_buffer_free(device, buffer);
        return status;
    }
    if (buffer->counted) device->base.counters.allocations++;
    *out_buffer = buffer;
    return STRATA_OK;
}

void strata_vulkan_buffer_free(vulkan_device *device, strata_buffer *buffer) {
    if (!buffer || !strata_vulkan_is_idle(device)) return;
    STRATA_DRIVER_CALL(&device->base, FREE);
    device->instance.vk.DestroyBuffer(device->handle, buffer->handle, NULL);
    if (buffer->block) block_give_back(device, buffer);
    if (buffer->counted) device->base.counters.allocated_bytes -= (uint64_t)buffer->bytes;
    free(buffer);
}
