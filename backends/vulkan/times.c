/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures when each kernel ran, for a trace. A command buffer that is recorded while there is a trace writes the
 * device's time between its commands. They do not overlap then, so that each has its own time. The times of a run are
 * read when the run is waited for.
 *
 * The device's clock differs from the host's. The difference is measured when the trace begins, by a submission that
 * only writes the time. It is corrected later if a run seems to begin before it was submitted, or to end after the host
 * saw that it had finished. */
#include "backends/vulkan/vulkan.h"

struct vulkan_timed {
    vulkan_timed *next;
    uint64_t ticket;
    int64_t step;
    /* The queries of the program's slot, which does not run again before they are read. */
    VkQueryPool queries;
    uint32_t n;
    const strata_trace_label *const *labels;
    /* When the run was submitted, in seconds of the host's clock. */
    double submitted;
};

strata_status strata_vulkan_time_pool(vulkan_device *device, uint32_t n, VkQueryPool *out_pool, strata_error *err) {
    const VkQueryPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, .queryType = VK_QUERY_TYPE_TIMESTAMP, .queryCount = n};
    const VkResult result = device->instance.vk.CreateQueryPool(device->handle, &info, NULL, out_pool);
    return result ? strata_vulkan_fail(device, result, "vkCreateQueryPool", err) : STRATA_OK;
}

void strata_vulkan_time_submitted(vulkan_device *device, VkQueryPool queries, const strata_trace_label *const *labels,
                                  uint32_t n, uint64_t ticket) {
    vulkan_timed *timed = device->base.trace ? malloc(sizeof *timed) : NULL, **last = &device->timed;
    if (!timed) return;
    *timed = (vulkan_timed){.ticket = ticket,
                            .step = device->base.trace_step,
                            .queries = queries,
                            .n = n,
                            .labels = labels,
                            .submitted = strata_trace_now()};
    while (*last) last = &(*last)->next;
    *last = timed;
}

/* Reads n times and converts them to seconds of the device's clock. The clock has a limited number of bits and wraps
 * around. */
static bool read_times(vulkan_device *device, VkQueryPool queries, uint32_t n, double *seconds, uint64_t *ticks) {
    const vulkan_functions *vk = &device->instance.vk;
    const uint64_t mask = device->time_bits >= 64 ? UINT64_MAX : (UINT64_C(1) << device->time_bits) - 1;
    if (vk->GetQueryPoolResults(device->handle, queries, 0, n, n * sizeof *ticks, ticks, sizeof *ticks, VK_QUERY_RESULT_64_BIT))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t ahead = (ticks[i] - device->newest_time) & mask;
        if (ahead <= mask / 2) device->newest_time += ahead;
        const uint64_t behind = (device->newest_time - ticks[i]) & mask;
        seconds[i] = (double)(device->newest_time - behind) * (double)device->physical.properties.limits.timestampPeriod * 1e-9;
    }
    return true;
}

static void add_run(vulkan_device *device, const vulkan_timed *timed) {
    const uint32_t n = timed->n + 1;
    STRATA_FREED double *seconds = malloc(n * sizeof *seconds);
    STRATA_FREED uint64_t *ticks = malloc(n * sizeof *ticks);
    const double now = strata_trace_now();
    STRATA_DRIVER_CALL(&device->base, WAIT);
    if (seconds && ticks && read_times(device, timed->queries, n, seconds, ticks)) {
        /* seconds[0] may have been written while earlier runs were still in progress. */
        if (seconds[1] + device->time_apart < timed->submitted) device->time_apart = timed->submitted - seconds[1];
        if (seconds[n - 1] + device->time_apart > now) device->time_apart = now - seconds[n - 1];
        for (uint32_t i = 0; i < timed->n; i++)
            strata_trace_add(device->base.trace, device->base.trace_track, timed->labels[i], timed->step,
                             seconds[i] + device->time_apart, seconds[i + 1] + device->time_apart);
    }
}

void strata_vulkan_time_collect(vulkan_device *device, uint64_t ticket) {
    while (device->timed && device->timed->ticket <= ticket) {
        vulkan_timed *timed = device->timed;
        device->timed = timed->next;
        if (device->base.trace) add_run(device, timed);
        free(timed);
    }
}

/* Measures the difference of the clocks. */
static strata_status measure(vulkan_device *device, strata_error *err) {
    const vulkan_functions *vk = &device->instance.vk;
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    const VkCommandBuffer commands = device->transfer_commands;
    VkQueryPool queries = VK_NULL_HANDLE;
    uint64_t ticket, ticks;
    double seconds = 0;
    STRATA_TRY(strata_vulkan_time_pool(device, 1, &queries, err));
    VkResult result = vk->BeginCommandBuffer(commands, &begin);
    if (!result) {
        vk->CmdResetQueryPool(commands, queries, 0, 1);
        vk->CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries, 0);
        result = vk->EndCommandBuffer(commands);
    }
    strata_status status = result ? strata_vulkan_fail(device, result, "recording a time", err) : STRATA_OK;
    const double before = strata_trace_now();
    if (!status) status = strata_vulkan_submit(device, commands, &ticket, err);
    if (!status) status = strata_vulkan_wait(device, ticket, err);
    const double after = strata_trace_now();
    if (!status && read_times(device, queries, 1, &seconds, &ticks)) device->time_apart = (before + after) / 2 - seconds;
    vk->DestroyQueryPool(device->handle, queries, NULL);
    return status;
}

strata_status strata_vulkan_set_trace(strata_device *base, strata_trace *trace, int track, strata_error *err) {
    vulkan_device *device = (vulkan_device *)base;
    strata_vulkan_time_collect(device, UINT64_MAX);
    base->trace = NULL;
    if (!trace || device->lost || !device->time_bits) return STRATA_OK;
    device->newest_time = 0;
    STRATA_TRY(measure(device, err));
    base->trace = trace;
    base->trace_track = track;
    return STRATA_OK;
}
