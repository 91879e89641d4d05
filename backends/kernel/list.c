/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the list of launches of a piece: gets the launches of each node, sets their arenas, element offsets, work-group
 * sizes and numbers of groups, creates equal kernels only once, and marks where barriers are needed. */
#include <stdio.h>

#include "backends/kernel/lowering.h"
#include "core/run/trace_node.h"

enum {
    /* The work-items of a group if the launch does not set their number. */
    GPU_LOCAL = 256,
    SOFTWARE_LOCAL = STRATA_LAUNCH_SOFTWARE_LOCAL,
    /* The groups of a grid-stride kernel for each core: enough to balance the load, few enough to cost little. */
    CPU_GROUPS = 4,
    /* The least bytes for a group of a grid-stride kernel on a CPU, because waking a core takes about 10 us. */
    CPU_GROUP_BYTES = 65536,
    /* The same where no core has to be woken (limits->cheap_groups). */
    CPU_CHEAP_GROUP_BYTES = 1024,
    /* The most groups along an axis that kernels support (shaders/README.md). */
    MOST_GROUPS = 65535,
    /* The groups of a grid-stride kernel for each core on a GPU that is emulated on a CPU, where each group costs 0.4 us. */
    SOFTWARE_GROUPS = 16,
    /* The most loop iterations of a work-item on such a GPU (shaders/README.md). */
    MOST_TURNS = 60000,
    /* Such a GPU ends the loops of a work-item after 65,535 iterations. */
    LAST_TURN = 65500,
    /* The bytes of an element of the scratch buffer. */
    SCRATCH_BYTES = 4
};

/* The list that is being made. */
typedef struct list_builder {
    const strata_kernel_limits *limits;
    const strata_piece *piece;
    strata_kernel_list *list;
    int64_t launches_capacity, kernels_capacity;
    strata_hazards hazards;
    const strata_tensor *node;
    int64_t scratch_bytes; /* the scratch memory of `node` */
} list_builder;

/* ---- work-groups ---- */
/* The size of a work-group: the one that the launch requests, halved until the device supports it. Kernels with local memory
 * request a power of two, and halving keeps it one. */
static void choose_local(const strata_kernel_limits *limits, const strata_launch *launch, uint32_t local[2]) {
    bool cpu = limits->device_class == STRATA_DEVICE_CPU;
    uint32_t any = cpu ? 1 : limits->device_class == STRATA_DEVICE_SOFTWARE_GPU ? SOFTWARE_LOCAL : GPU_LOCAL;
    local[0] = launch->local[0] > 0 ? (uint32_t)launch->local[0] : any;
    local[1] = launch->local[1] > 0 ? (uint32_t)launch->local[1] : 1;
    while (local[0] > 1 && local[0] > limits->max_local[0]) local[0] /= 2;
    while (local[1] > 1 && local[1] > limits->max_local[1]) local[1] /= 2;
    while ((uint64_t)local[0] * local[1] > limits->max_workgroup) {
        if (local[1] > 1)
            local[1] /= 2;
        else
            local[0] /= 2;
    }
}

/* The number of groups of a grid-stride kernel along x. A GPU gets as many as there are work-items for, up to its limit, since
 * it hides latency by switching between groups. A CPU gets only as many as keep its cores busy with enough work each. So does a
 * GPU emulated on a CPU, if it is known that no work-item then makes too many loop iterations. */
static int64_t enough_groups(const strata_kernel_limits *limits, const strata_launch *launch, uint32_t local, int64_t bytes) {
    int64_t units = limits->compute_units;
    if (limits->device_class == STRATA_DEVICE_SOFTWARE_GPU && launch->turns > 0 && launch->turns <= MOST_TURNS) {
        int64_t least = launch->global[0] / (local * (int64_t)(MOST_TURNS / launch->turns)) + 1;
        return least > units * SOFTWARE_GROUPS ? least : units * SOFTWARE_GROUPS;
    }
    if (limits->device_class != STRATA_DEVICE_CPU) return MOST_GROUPS;
    if (launch->few_groups) return units;
    int64_t worth = bytes / (limits->cheap_groups ? CPU_CHEAP_GROUP_BYTES : CPU_GROUP_BYTES) + 1;
    return worth < units * CPU_GROUPS ? worth : units * CPU_GROUPS;
}

bool strata_launch_ends_early(const strata_kernel_limits *limits, const strata_launch *launch) {
    if (limits->device_class != STRATA_DEVICE_SOFTWARE_GPU || !launch->grid_stride || launch->turns <= 0) return false;
    const int64_t local = launch->local[0] > 0 ? launch->local[0] : SOFTWARE_LOCAL;
    const int64_t rounds = strata_ceil_div(strata_most(launch->global[0], 1), local * MOST_GROUPS);
    return launch->turns > LAST_TURN / rounds;
}

static strata_status choose_groups(const strata_kernel_limits *limits, const strata_launch *launch, const uint32_t local[2],
                                   int64_t bytes, uint32_t groups[2], strata_error *err) {
    for (int axis = 0; axis < 2; axis++) {
        int64_t items = launch->global[axis] > 0 ? launch->global[axis] : 1;
        int64_t wanted = items / local[axis] + (items % local[axis] != 0);
        if (axis == 0 && launch->grid_stride) {
            int64_t enough = enough_groups(limits, launch, local[0], bytes);
            if (enough > MOST_GROUPS) enough = MOST_GROUPS;
            if (enough > limits->max_groups[0]) enough = limits->max_groups[0];
            if (wanted > enough) wanted = enough;
        }
        if (wanted > limits->max_groups[axis])
            return strata_fail(err, STRATA_UNSUPPORTED, "kernel %s wants %lld work-groups; a launch takes %u here",
                               launch->kernel, (long long)wanted, limits->max_groups[axis]);
        groups[axis] = (uint32_t)wanted;
    }
    return STRATA_OK;
}

/* ---- kernels ---- */
/* Sets the constant of this name. Returns false if the kernel has none. */
static bool set_constant(strata_kernel *kernel, const char *name, int32_t value) {
    for (int i = 0; i < kernel->shader->n_constants; i++) {
        if (strcmp(kernel->shader->constants[i].name, name)) continue;
        kernel->constants[i] = (uint32_t)value;
        return true;
    }
    return false;
}

static strata_status choose_kernel(const strata_kernel_limits *limits, const strata_launch *launch, const uint32_t local[2],
                                   strata_kernel *out, strata_error *err) {
    const strata_shader *shader = strata_shader_find(launch->kernel, launch->variant);
    if (!shader && limits->library && !strcmp(limits->library->stem, launch->kernel)) shader = limits->library;
    if (!shader)
        return strata_fail(err, STRATA_UNSUPPORTED, "there is no kernel %s%s%s", launch->kernel, launch->variant ? " for " : "",
                           launch->variant ? launch->variant : "");
    if (shader->n_buffers != launch->n_buffers || shader->n_words != launch->n_buffers + launch->n_words)
        return strata_fail(err, STRATA_INTERNAL, "kernel %s takes %d buffers and %d words, the launch has %d and %d",
                           launch->kernel, shader->n_buffers, shader->n_words - shader->n_buffers, launch->n_buffers,
                           launch->n_words);
    *out = (strata_kernel){.shader = shader};
    for (int i = 0; i < shader->n_constants; i++) out->constants[i] = shader->constants[i].value;
    set_constant(out, "LOCAL_X", (int32_t)local[0]);
    set_constant(out, "LOCAL_Y", (int32_t)local[1]);
    for (int i = 0; i < launch->n_constants; i++)
        if (!set_constant(out, launch->constants[i].name, launch->constants[i].value))
            return strata_fail(err, STRATA_INTERNAL, "kernel %s has no constant %s", launch->kernel, launch->constants[i].name);
    return STRATA_OK;
}

static strata_status find_or_add_kernel(list_builder *builder, const strata_kernel *kernel, int *out_index, strata_error *err) {
    strata_kernel_list *list = builder->list;
    for (int i = 0; i < list->n_kernels; i++) {
        const strata_kernel *other = &list->kernels[i];
        if (other->shader != kernel->shader || memcmp(other->constants, kernel->constants, sizeof kernel->constants)) continue;
        *out_index = i;
        return STRATA_OK;
    }
    if (!strata_make_room(&list->kernels, list->n_kernels, &builder->kernels_capacity, sizeof *list->kernels))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "compile: no memory for %d kernels", list->n_kernels);
    *out_index = list->n_kernels;
    list->kernels[list->n_kernels++] = *kernel;
    return STRATA_OK;
}

/* ---- buffers ---- */
/* The arena range of buffer i of the launch, and the index of its first element in the arena. */
static strata_status place_buffer(const list_builder *builder, const strata_launch *launch, int i,
                                  strata_kernel_range *out_range, uint32_t *out_first, strata_error *err) {
    const strata_tensor *tensor = launch->buffers[i];
    int64_t element = tensor ? (int64_t)strata_dtype_bytes(tensor->dtype) : SCRATCH_BYTES;
    strata_place place = {.arena = builder->piece->n_arenas, .bytes = builder->scratch_bytes};
    if (tensor) place = builder->piece->places[tensor->id];
    if (place.arena < 0)
        return strata_fail(err, STRATA_INTERNAL, "buffer %d of kernel %s (%s) has no place", i, launch->kernel,
                           strata_tensor_name(tensor));
    int64_t begin = place.offset + launch->offsets[i] * element;
    int64_t end = launch->extents[i] > 0 ? begin + launch->extents[i] * element : place.offset + place.bytes;
    if (begin % element || begin / element > UINT32_MAX)
        return strata_fail(
            err, STRATA_UNSUPPORTED,
            "buffer %d of kernel %s begins at byte %lld of its arena; kernels count in 32 bits and whole elements", i,
            launch->kernel, (long long)begin);
    *out_range = (strata_kernel_range){place.arena, begin, end};
    *out_first = (uint32_t)(begin / element);
    return STRATA_OK;
}

/* Buffers that are unused because of the launch's constants are NULL, and can be bound to any arena. An unused buffer that the
 * kernel declares as written is bound to a range that the launch writes anyway; otherwise it would seem to conflict with other
 * launches that read the arena. */
static void bind_unused(const list_builder *builder, const strata_launch *launch, strata_kernel_launch *out) {
    if (builder->scratch_bytes > 0) return;
    const strata_shader *shader = strata_shader_find(launch->kernel, launch->variant);
    int any = 0, written = 0;
    while (any < launch->n_buffers - 1 && !launch->buffers[any]) any++;
    while (written < launch->n_buffers - 1 && !(launch->writes >> written & 1u && launch->buffers[written])) written++;
    for (int i = 0; i < launch->n_buffers; i++) {
        if (launch->buffers[i]) continue;
        const bool writes = shader && i < shader->n_buffers && shader->buffers[i].access == STRATA_SHADER_UPDATE;
        if (writes && launch->buffers[written])
            out->buffers[i] = out->buffers[written];
        else
            out->buffers[i] = (strata_kernel_range){out->buffers[any].arena, 0, 0};
    }
}

/* Whether the launch copies bytes to the place where they already are. This happens if an operand of a pack was
 * computed at its place in the pack. */
static bool copies_onto_itself(const strata_tensor *node, const strata_kernel_launch *launch) {
    return (node->op->flags & STRATA_OP_SLICES) && launch->n_buffers == 2 &&
           launch->buffers[0].arena == launch->buffers[1].arena && launch->buffers[0].begin == launch->buffers[1].begin &&
           launch->buffers[0].begin < launch->buffers[0].end;
}

/* ---- launches ---- */
static strata_status append_launch(list_builder *builder, const strata_kernel_launch *launch, strata_error *err) {
    strata_kernel_list *list = builder->list;
    if (!strata_make_room(&list->launches, list->n_launches, &builder->launches_capacity, sizeof *list->launches))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "compile: no memory for %d launches", list->n_launches);
    list->launches[list->n_launches++] = *launch;
    return STRATA_OK;
}

static strata_status resolve(list_builder *builder, const strata_launch *launch, strata_error *err) {
    if (launch->n_buffers > STRATA_LAUNCH_BUFFERS || launch->n_buffers + launch->n_words > STRATA_LAUNCH_WORDS ||
        launch->n_constants > STRATA_LAUNCH_CONSTANTS)
        return strata_fail(err, STRATA_INTERNAL, "kernel %s has %d buffers, %d words, %d constants: too many", launch->kernel,
                           launch->n_buffers, launch->n_words, launch->n_constants);
    if (launch->global[0] <= 0) return STRATA_OK;

    strata_kernel_launch out = {.node = builder->node, .n_buffers = launch->n_buffers, .writes = launch->writes};
    for (int i = 0; i < launch->n_buffers; i++)
        STRATA_TRY(place_buffer(builder, launch, i, &out.buffers[i], &out.words[i].u32, err));
    bind_unused(builder, launch, &out);
    if (copies_onto_itself(builder->node, &out)) return STRATA_OK;
    out.n_words = launch->n_buffers + launch->n_words;
    memcpy(out.words + launch->n_buffers, launch->words, (size_t)launch->n_words * sizeof *launch->words);

    choose_local(builder->limits, launch, out.local);
    strata_kernel kernel;
    STRATA_TRY(choose_kernel(builder->limits, launch, out.local, &kernel, err));
    STRATA_TRY(find_or_add_kernel(builder, &kernel, &out.kernel, err));
    int64_t bytes = 0;
    for (int i = 0; i < out.n_buffers; i++) bytes += out.buffers[i].end - out.buffers[i].begin;
    STRATA_TRY(choose_groups(builder->limits, launch, out.local, bytes, out.groups, err));
    STRATA_TRY(strata_hazards_add(&builder->hazards, out.buffers, out.n_buffers, out.writes, &out.barrier_before, err));
    return append_launch(builder, &out, err);
}

static strata_status add_node(list_builder *builder, strata_tuner *tuner, const strata_tensor *node, strata_error *err) {
    STRATA_FINISHED(strata_lowering) lowering = {0};
    strata_status status = strata_lowering_run(&lowering, builder->limits, tuner, node, err);
    builder->node = node;
    builder->scratch_bytes = lowering.scratch_bytes;
    if (lowering.scratch_bytes > builder->list->scratch_bytes) builder->list->scratch_bytes = lowering.scratch_bytes;
    for (int i = 0; !status && i < lowering.n; i++) status = resolve(builder, &lowering.launches[i], err);
    if (!status) return STRATA_OK;
    return strata_fail_in(err, status, "%s %s %s", strata_tensor_name(node), strata_dtype_name(node->dtype),
                          strata_shape_text(node->shape).text);
}

strata_status strata_kernel_list_create(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_piece *piece,
                                        strata_kernel_list *out_list, strata_error *err) {
    strata_kernel_list list = {0};
    list_builder builder = {.limits = limits, .piece = piece, .list = &list};
    strata_status status = STRATA_OK;
    for (int i = 0; !status && i < piece->n_nodes; i++) status = add_node(&builder, tuner, piece->nodes[i], err);
    if (!status && (uint64_t)list.scratch_bytes > limits->max_range_bytes)
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "compile: %lld bytes of scratch wanted, a buffer here holds %llu",
                             (long long)list.scratch_bytes, (unsigned long long)limits->max_range_bytes);
    strata_hazards_finish(&builder.hazards);
    if (status)
        strata_kernel_list_finish(&list);
    else
        *out_list = list;
    return status;
}

const strata_trace_label *strata_kernel_trace_label(strata_trace *trace, const strata_kernel_list *list, int launch) {
    const strata_kernel_launch *l = &list->launches[launch];
    const strata_shader *shader = list->kernels[l->kernel].shader;
    char kernel[96];
    int parts = 0;
    for (int i = 0; i < list->n_launches; i++) parts += list->launches[i].node == l->node;
    snprintf(kernel, sizeof kernel, "%s%s%s", shader->stem, *shader->variant ? " " : "", shader->variant);
    return strata_trace_node(trace, l->node, kernel, parts);
}

void strata_kernel_list_finish(strata_kernel_list *list) {
    free(list->kernels);
    free(list->launches);
    *list = (strata_kernel_list){0};
}
