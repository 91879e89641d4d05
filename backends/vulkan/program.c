/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles a piece of a graph to one command buffer for each slot. The command buffers are recorded when the piece is
 * compiled; a run only submits one. They differ in the buffers of the INPUT and OUTPUT arenas.
 *
 * With unified memory, kernels access the host's memory of a slot directly. Otherwise each slot has these arenas twice,
 * for the host and for the kernels, and a command buffer copies the inputs first and the outputs last. The copy of the
 * inputs comes before the barrier that waits for earlier runs, so it runs at the same time as they do.
 *
 * Each binding covers exactly the bytes that its launch may access. This needs a descriptor set for each launch. In
 * return, neither the validation layer nor a driver that tracks hazards by binding reports a conflict between
 * neighbours in one arena. */
#include "backends/vulkan/vulkan.h"
#include "core/run/trace_node.h"

/* The INPUT and OUTPUT arenas of a slot, indexed by their kind; NULL for an arena of 0 bytes. */
typedef struct vulkan_slot {
    VkCommandBuffer commands;
    strata_buffer *host[2];
    /* The buffers that kernels access. With unified memory they are those of host[]. */
    strata_buffer *device[2];
    VkQueryPool times; /* NULL: there is no trace */
} vulkan_slot;

struct strata_program {
    vulkan_device *device;
    vulkan_slot *slots;
    int n_slots;
    strata_kernel_list list;
    VkPipeline *pipelines;  /* indexed by the list's kernels */
    vulkan_layout *layouts; /* indexed by the list's kernels */
    VkDescriptorSet *sets;  /* the set of launch l on slot s is sets[s * n_launches + l] */
    strata_buffer *scratch;
    VkDescriptorPool pool;
    VkBufferView *views; /* of all texel buffers in sets of the pool */
    uint32_t n_views;
    /* The names in the trace of the copy of inputs, of each launch, and of the copy of outputs. NULL: there is no trace. */
    const strata_trace_label **labels;
};

/* The state while a program is compiled. */
typedef struct recording {
    strata_program *program;
    const strata_piece *piece;
} recording;

/* ---- memory of the slots ---- */
static strata_status make_slot_buffers(strata_program *program, vulkan_slot *slot, const strata_piece *piece,
                                       strata_error *err) {
    static const vulkan_memory_use shared[] = {VULKAN_MEMORY_SHARED_IN, VULKAN_MEMORY_SHARED_OUT};
    static const vulkan_memory_use staging[] = {VULKAN_MEMORY_STAGING_IN, VULKAN_MEMORY_STAGING_OUT};
    vulkan_device *device = program->device;
    bool unified = device->base.info.unified_memory;
    for (int kind = STRATA_ARENA_INPUT; kind <= STRATA_ARENA_OUTPUT; kind++) {
        int64_t bytes = piece->arenas[kind].bytes;
        if (!bytes) continue;
        vulkan_memory_use use = unified ? shared[kind] : staging[kind];
        STRATA_TRY(strata_vulkan_buffer_make(device, use, bytes, &slot->host[kind], err));
        STRATA_TRY(strata_vulkan_clear(device, slot->host[kind], err));
        if (unified) {
            slot->device[kind] = slot->host[kind];
            continue;
        }
        STRATA_TRY(strata_vulkan_buffer_make(device, VULKAN_MEMORY_DEVICE, bytes, &slot->device[kind], err));
        STRATA_TRY(strata_vulkan_clear(device, slot->device[kind], err));
    }
    return STRATA_OK;
}

static strata_buffer *buffer_of(const recording *r, const vulkan_slot *slot, int arena) {
    if (arena == r->piece->n_arenas) return r->program->scratch;
    strata_arena_kind kind = r->piece->arenas[arena].kind;
    return kind <= STRATA_ARENA_OUTPUT ? slot->device[kind] : r->piece->arenas[arena].buffer;
}

/* ---- descriptor sets ---- */
/* The begin of a binding: the launch's first byte, rounded down to the alignment that the device requires and to a
 * whole element. Then the offset that the kernel gets is a whole number of elements. */
static int64_t binding_begin(const vulkan_device *device, const strata_kernel_range *range) {
    const VkPhysicalDeviceLimits *limits = &device->physical.properties.limits; /* alignments are powers of two */
    int64_t alignment = (int64_t)limits->minStorageBufferOffsetAlignment;
    if (device->physical.fetches && alignment < (int64_t)limits->minTexelBufferOffsetAlignment)
        alignment = (int64_t)limits->minTexelBufferOffsetAlignment;
    if (alignment < 16) alignment = 16;
    return range->begin / alignment * alignment;
}

static bool is_unused(const strata_kernel_range *range) {
    return range->begin >= range->end;
}

static VkDescriptorBufferInfo binding_of(const recording *r, const vulkan_slot *slot, const strata_kernel_range *range) {
    const strata_buffer *buffer = is_unused(range) ? NULL : buffer_of(r, slot, range->arena);
    if (!buffer) return (VkDescriptorBufferInfo){r->program->device->nothing->handle, 0, VK_WHOLE_SIZE};
    int64_t begin = binding_begin(r->program->device, range);
    int64_t bytes = (range->end - begin + 3) / 4 * 4; /* buffers are larger than requested, so this stays within them */
    return (VkDescriptorBufferInfo){buffer->handle, (VkDeviceSize)begin, (VkDeviceSize)bytes};
}

static const strata_shader *shader_of(const strata_program *program, int launch) {
    return program->list.kernels[program->list.launches[launch].kernel].shader;
}

static VkDescriptorSet *set_of(const strata_program *program, const vulkan_slot *slot, int launch) {
    return &program->sets[(size_t)(slot - program->slots) * (size_t)program->list.n_launches + (size_t)launch];
}

/* Creates the pool with the sets for every launch of every slot, whose bindings may be of any type, and the array of their
 * views. */
static strata_status make_pool(recording *r, strata_error *err) {
    strata_program *program = r->program;
    const uint64_t sets = (uint64_t)program->list.n_launches * (uint64_t)program->n_slots;
    uint64_t n = 0;
    for (int i = 0; i < program->list.n_launches; i++) n += (uint64_t)program->list.launches[i].n_buffers;
    n *= (uint64_t)program->n_slots;
    if (!n) return STRATA_OK;
    if (n > UINT32_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: a program of %d launches is too long", program->device->base.info.id,
                           program->list.n_launches);
    const VkDescriptorPoolSize sizes[] = {{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, (uint32_t)n},
                                          {VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER, (uint32_t)n},
                                          {VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER, (uint32_t)n}};
    const bool fetches = program->device->physical.fetches;
    STRATA_TRY(STRATA_NEW(program->views, n, err, "%s: no host memory for %llu buffer views", program->device->base.info.id,
                          (unsigned long long)n));
    VkDescriptorPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                       .maxSets = (uint32_t)sets,
                                       .poolSizeCount = fetches ? 3 : 1,
                                       .pPoolSizes = sizes};
    VkResult result = program->device->instance.vk.CreateDescriptorPool(program->device->handle, &info, NULL, &program->pool);
    return result ? strata_vulkan_fail(program->device, result, "vkCreateDescriptorPool", err) : STRATA_OK;
}

/* f16 and bf16 values are read as 16-bit integers, which the kernels convert. */
static VkFormat format_of(const strata_shader_buffer *buffer) {
    if (!strcmp(buffer->dtype, "f32")) return VK_FORMAT_R32_SFLOAT;
    if (!strcmp(buffer->dtype, "i32")) return VK_FORMAT_R32_SINT;
    return buffer->element_bytes == 4   ? VK_FORMAT_R32_UINT
           : buffer->element_bytes == 2 ? VK_FORMAT_R16_UINT
                                        : VK_FORMAT_R8_UINT;
}

static strata_status make_view(strata_program *program, const strata_shader_buffer *buffer, const VkDescriptorBufferInfo *of,
                               VkBufferView *out_view, strata_error *err) {
    vulkan_device *device = program->device;
    VkBufferViewCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO,
                                   .buffer = of->buffer,
                                   .format = format_of(buffer),
                                   .offset = of->offset,
                                   .range = of->range};
    VkResult result = device->instance.vk.CreateBufferView(device->handle, &info, NULL, out_view);
    if (result) return strata_vulkan_fail(device, result, "vkCreateBufferView", err);
    program->views[program->n_views++] = *out_view;
    return STRATA_OK;
}

static strata_status make_set(recording *r, const vulkan_slot *slot, int index, strata_error *err) {
    strata_program *program = r->program;
    vulkan_device *device = program->device;
    const vulkan_functions *vk = &device->instance.vk;
    const strata_kernel_launch *launch = &program->list.launches[index];
    const strata_shader *shader = shader_of(program, index);
    VkDescriptorSet *set = set_of(program, slot, index);
    const vulkan_layout *layout = &program->layouts[launch->kernel];
    VkDescriptorSetAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                            .descriptorPool = program->pool,
                                            .descriptorSetCount = 1,
                                            .pSetLayouts = &layout->set};
    VkResult result = vk->AllocateDescriptorSets(device->handle, &allocate, set);
    if (result) return strata_vulkan_fail(device, result, "vkAllocateDescriptorSets", err);
    VkDescriptorBufferInfo buffers[STRATA_LAUNCH_BUFFERS];
    VkBufferView views[STRATA_LAUNCH_BUFFERS];
    VkWriteDescriptorSet writes[STRATA_LAUNCH_BUFFERS];
    for (int b = 0; b < launch->n_buffers; b++) {
        buffers[b] = binding_of(r, slot, &launch->buffers[b]);
        writes[b] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                           .dstSet = *set,
                                           .dstBinding = (uint32_t)b,
                                           .descriptorCount = 1,
                                           .pBufferInfo = &buffers[b],
                                           .pTexelBufferView = &views[b]};
        strata_vulkan_binding_type(layout->bindings, b, &writes[b].descriptorType);
        if (writes[b].descriptorType != VK_DESCRIPTOR_TYPE_STORAGE_BUFFER)
            STRATA_TRY(make_view(program, &shader->buffers[b], &buffers[b], &views[b], err));
    }
    vk->UpdateDescriptorSets(device->handle, (uint32_t)launch->n_buffers, writes, 0, NULL);
    return STRATA_OK;
}

/* ---- recording ---- */
void strata_vulkan_barrier(const vulkan_device *device, VkCommandBuffer commands, VkPipelineStageFlags from,
                           VkAccessFlags wrote, VkPipelineStageFlags to, VkAccessFlags will) {
    VkMemoryBarrier memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = wrote, .dstAccessMask = will};
    device->instance.vk.CmdPipelineBarrier(commands, from, to, 0, 1, &memory, 0, NULL, 0, NULL);
}

static void record_launch(const strata_program *program, const vulkan_slot *slot, VkCommandBuffer commands, int index,
                          bool alone) {
    const vulkan_device *device = program->device;
    const vulkan_functions *vk = &device->instance.vk;
    const strata_kernel_launch *launch = &program->list.launches[index];
    VkPipelineLayout layout = program->layouts[launch->kernel].pipeline;
    strata_word words[STRATA_LAUNCH_WORDS];
    memcpy(words, launch->words, (size_t)launch->n_words * sizeof *words);
    const strata_shader *shader = shader_of(program, index);
    for (int b = 0; b < launch->n_buffers; b++) { /* offsets count from the begin of the binding, not from that of the arena */
        const strata_kernel_range *range = &launch->buffers[b];
        int64_t skipped = is_unused(range) ? 0 : range->begin - binding_begin(device, range);
        words[b].u32 = (uint32_t)(skipped / shader->buffers[b].element_bytes);
    }
    if (launch->barrier_before || alone)
        strata_vulkan_barrier(device, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
                              VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    vk->CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, program->pipelines[launch->kernel]);
    vk->CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, set_of(program, slot, index), 0, NULL);
    vk->CmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, (uint32_t)launch->n_words * (uint32_t)sizeof *words,
                         words);
    vk->CmdDispatch(commands, launch->groups[0], launch->groups[1], 1);
}

/* Records a command that stores the time when all earlier commands have finished. */
static void record_time(const strata_program *program, const vulkan_slot *slot, uint32_t index) {
    if (slot->times)
        program->device->instance.vk.CmdWriteTimestamp(slot->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, slot->times,
                                                       index);
}

static void record_copy(const vulkan_functions *vk, VkCommandBuffer commands, const strata_buffer *from,
                        const strata_buffer *to) {
    VkBufferCopy region = {0, 0, (VkDeviceSize)from->bytes};
    vk->CmdCopyBuffer(commands, from->handle, to->handle, 1, &region);
}

/* Records into `commands`: a wait for the earlier runs (for what they write, and until they have read what this run
 * overwrites), the launches, and what makes the outputs available to the host. wanted: only the launches of these
 * nodes, by the node's id, each waiting for the one before; NULL: all launches. */
static strata_status record(const strata_program *program, const vulkan_slot *slot, VkCommandBuffer commands,
                            const bool *wanted, strata_error *err) {
    vulkan_device *device = program->device;
    const vulkan_functions *vk = &device->instance.vk;
    const VkPipelineStageFlags compute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, transfer = VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    STRATA_DRIVER_CALL(&device->base, COMPILE);
    VkResult result = vk->BeginCommandBuffer(commands, &begin);
    if (result) return strata_vulkan_fail(device, result, "vkBeginCommandBuffer", err);

    const uint32_t n_launches = (uint32_t)program->list.n_launches;
    const bool timed = slot->times && !wanted;
    if (timed) vk->CmdResetQueryPool(commands, slot->times, 0, n_launches + 3);
    if (timed) record_time(program, slot, 0);
    strata_buffer *const *host = slot->host, *const *own = slot->device;
    if (own[STRATA_ARENA_INPUT] != host[STRATA_ARENA_INPUT])
        record_copy(vk, commands, host[STRATA_ARENA_INPUT], own[STRATA_ARENA_INPUT]);
    strata_vulkan_barrier(
        device, commands, compute | transfer, VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT, compute | transfer,
        VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
    if (timed) record_time(program, slot, 1);
    for (uint32_t i = 0; i < n_launches; i++) {
        if (wanted && !wanted[program->list.launches[i].node->id]) continue;
        record_launch(program, slot, commands, (int)i, wanted || program->labels);
        if (timed) record_time(program, slot, i + 2);
    }
    if (own[STRATA_ARENA_OUTPUT] != host[STRATA_ARENA_OUTPUT]) {
        strata_vulkan_barrier(device, commands, compute, VK_ACCESS_SHADER_WRITE_BIT, transfer, VK_ACCESS_TRANSFER_READ_BIT);
        record_copy(vk, commands, own[STRATA_ARENA_OUTPUT], host[STRATA_ARENA_OUTPUT]);
    }
    if (timed) record_time(program, slot, n_launches + 2);
    strata_vulkan_barrier(device, commands, compute | transfer, VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                          VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    result = vk->EndCommandBuffer(commands);
    return result ? strata_vulkan_fail(device, result, "vkEndCommandBuffer", err) : STRATA_OK;
}

static strata_status make_commands(vulkan_device *device, VkCommandBuffer *out_commands, strata_error *err) {
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = device->command_pool,
                                        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                        .commandBufferCount = 1};
    VkResult result = device->instance.vk.AllocateCommandBuffers(device->handle, &info, out_commands);
    if (!result) return STRATA_OK;
    *out_commands = NULL;
    return strata_vulkan_fail(device, result, "vkAllocateCommandBuffers", err);
}

static strata_status make_slot(recording *r, vulkan_slot *slot, strata_error *err) {
    strata_program *program = r->program;
    vulkan_device *device = program->device;
    const int n = program->list.n_launches;
    STRATA_DRIVER_CALL(&device->base, COMPILE);
    STRATA_TRY(make_slot_buffers(program, slot, r->piece, err));
    if (program->labels) STRATA_TRY(strata_vulkan_time_pool(device, (uint32_t)n + 3, &slot->times, err));
    for (int i = 0; i < n; i++) STRATA_TRY(make_set(r, slot, i, err));
    STRATA_TRY(make_commands(device, &slot->commands, err));
    return record(program, slot, slot->commands, NULL, err);
}

/* ---- the trace ---- */
/* If there is no memory for the labels, the program is not traced. */
static void make_labels(recording *r) {
    strata_program *program = r->program;
    strata_trace *trace = program->device->base.trace;
    const bool copies = !program->device->base.info.unified_memory;
    const int n = program->list.n_launches;
    program->labels = calloc((size_t)n + 2, sizeof(*program->labels));
    if (!program->labels) return;
    if (copies && r->piece->arenas[STRATA_ARENA_INPUT].bytes)
        program->labels[0] = strata_trace_add_label(trace, "copy inputs", "", 0, 0);
    for (int l = 0; l < n; l++) program->labels[l + 1] = strata_kernel_trace_label(trace, &program->list, l);
    if (copies && r->piece->arenas[STRATA_ARENA_OUTPUT].bytes)
        program->labels[n + 1] = strata_trace_add_label(trace, "copy outputs", "", 0, 0);
}

/* ---- compile ---- */
static strata_status record_all(recording *r, strata_error *err) {
    strata_program *program = r->program;
    vulkan_device *device = program->device;
    STRATA_TRY(strata_kernel_list_create(&device->limits, device->tuner, r->piece, &program->list, err));
    const strata_kernel_list *list = &program->list;
    const char *id = device->base.info.id;
    STRATA_TRY(STRATA_NEW(program->pipelines, list->n_kernels, err, "%s: no host memory for %d kernels", id, list->n_kernels));
    STRATA_TRY(STRATA_NEW(program->layouts, list->n_kernels, err, "%s: no host memory for %d kernels", id, list->n_kernels));
    STRATA_TRY(STRATA_NEW(program->sets, (size_t)list->n_launches * (size_t)program->n_slots, err,
                          "%s: no host memory for a program of %d launches", id, list->n_launches));
    const bool trying = strata_tuner_is_trying(device->tuner);
    for (int i = 0; i < program->list.n_kernels; i++) {
        if (!trying) strata_device_report_compile(&device->base, false, i, program->list.n_kernels);
        const unsigned bindings = strata_vulkan_bindings_of(device, program->list.kernels[i].shader);
        STRATA_TRY(strata_vulkan_pipeline_get(device, &program->list.kernels[i], &program->pipelines[i], err));
        STRATA_TRY(strata_vulkan_layout_get(device, bindings, &program->layouts[i], err));
    }
    if (!trying) strata_device_report_compile(&device->base, false, program->list.n_kernels, program->list.n_kernels);
    strata_vulkan_pipelines_save(device);
    if (program->list.scratch_bytes)
        STRATA_TRY(
            strata_vulkan_buffer_make(device, VULKAN_MEMORY_DEVICE, program->list.scratch_bytes, &program->scratch, err));
    if (device->base.trace && !trying) make_labels(r);
    STRATA_TRY(make_pool(r, err));
    for (int i = 0; i < program->n_slots; i++) STRATA_TRY(make_slot(r, &program->slots[i], err));
    return strata_vulkan_check_messages(device, err);
}

strata_status strata_vulkan_compile(strata_device *base, const strata_piece *piece, strata_program **out_program,
                                    strata_error *err) {
    strata_program *program = NULL;
    STRATA_TRY(STRATA_NEW(program, 1, err, "%s: no host memory for a program", base->info.id));
    program->device = (vulkan_device *)base;
    recording r = {.program = program, .piece = piece};
    strata_status status = STRATA_NEW(program->slots, piece->n_slots, err, "%s: no host memory for a program", base->info.id);
    if (!status) program->n_slots = piece->n_slots;
    if (!status) status = record_all(&r, err);
    if (status)
        strata_vulkan_program_destroy(program);
    else
        *out_program = program;
    return status;
}

void strata_vulkan_program_destroy(strata_program *program) {
    if (!program || !strata_vulkan_is_idle(program->device)) return;
    vulkan_device *device = program->device;
    const vulkan_functions *vk = &device->instance.vk;
    STRATA_DRIVER_CALL(&device->base, FREE);
    for (int i = 0; i < program->n_slots; i++) {
        vulkan_slot *slot = &program->slots[i];
        if (slot->commands) vk->FreeCommandBuffers(device->handle, device->command_pool, 1, &slot->commands);
        vk->DestroyQueryPool(device->handle, slot->times, NULL);
        for (int kind = 0; kind < 2; kind++) {
            if (slot->device[kind] != slot->host[kind]) strata_vulkan_buffer_free(device, slot->device[kind]);
            strata_vulkan_buffer_free(device, slot->host[kind]);
        }
    }
    strata_vulkan_buffer_free(device, program->scratch);
    vk->DestroyDescriptorPool(device->handle, program->pool, NULL);
    for (uint32_t i = 0; i < program->n_views; i++) vk->DestroyBufferView(device->handle, program->views[i], NULL);
    strata_kernel_list_finish(&program->list);
    free(program->pipelines);
    free(program->layouts);
    free(program->sets);
    free(program->views);
    free(program->labels);
    free(program->slots);
    free(program);
}

/* ---- run ---- */
void *strata_vulkan_program_input(strata_program *program, int slot) {
    const strata_buffer *host = program->slots[slot].host[STRATA_ARENA_INPUT];
    return host ? host->mapped : NULL;
}

const void *strata_vulkan_program_output(strata_program *program, int slot) {
    const strata_buffer *host = program->slots[slot].host[STRATA_ARENA_OUTPUT];
    return host ? host->mapped : NULL;
}

strata_status strata_vulkan_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err) {
    vulkan_device *device = program->device;
    STRATA_TRY(strata_vulkan_submit(device, program->slots[slot].commands, out_ticket, err));
    if (program->labels)
        strata_vulkan_time_submitted(device, program->slots[slot].times, program->labels,
                                     (uint32_t)program->list.n_launches + 2, *out_ticket);
    device->base.counters.launches += (uint64_t)program->list.n_launches;
    device->base.counters.submissions++;
    return strata_vulkan_check_messages(device, err);
}

/* Implements strata_step_run.run. */
static strata_status run_nodes(strata_program *program, int slot, const bool *wanted, strata_error *err) {
    vulkan_device *device = program->device;
    VkCommandBuffer commands;
    uint64_t ticket = 0;
    STRATA_TRY(make_commands(device, &commands, err));
    strata_status status = record(program, &program->slots[slot], commands, wanted, err);
    if (!status) status = strata_vulkan_submit(device, commands, &ticket, err);
    if (!status) status = strata_vulkan_wait(device, ticket, err);
    if (status != STRATA_TIMEOUT) device->instance.vk.FreeCommandBuffers(device->handle, device->command_pool, 1, &commands);
    return status ? status : strata_vulkan_check_messages(device, err);
}

strata_status strata_vulkan_check(strata_device *base, const strata_piece *piece, strata_program *program,
                                  const strata_check_request *request, strata_error *err) {
    vulkan_device *device = (vulkan_device *)base;
    const strata_step_run step = {base, piece, program, &program->list, run_nodes};
    return strata_checks_run(&device->limits, device->tuner, &step, request, err);
}
