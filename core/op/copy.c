/* SPDX-License-Identifier: Apache-2.0
 *
 * The strided copy, as a loop on the host and as launches of shaders/copy_strided.kernel. It also has the functions that
 * set the common parts of launches over index spaces, for all ops. */
#include "core/op/copy.h"

#include <inttypes.h>

/* Kernels count elements in 32 bits and loop up to 2^31 of them (FOR_EACH in shaders/dialect.h). */
static const int64_t most_elements = INT64_C(1) << 31;

/* ---- launches ---- */
/* The most loop iterations that a kernel without loops of its own makes for an element: one for the element, and those of
 * the loops over runs of elements, over the rounds of the random-number generator and over its words. */
enum { FLAT_TURNS = 32 };

strata_word *strata_launch_word(strata_launch *launch) {
    return &launch->words[launch->n_words++];
}

void strata_launch_ints(strata_launch *launch, const int64_t *values, size_t n) {
    for (size_t i = 0; i < n; i++) strata_launch_word(launch)->u32 = (uint32_t)values[i];
}

void strata_launch_floats(strata_launch *launch, const double *values, size_t n) {
    for (size_t i = 0; i < n; i++) strata_launch_word(launch)->f32 = (float)values[i];
}

void strata_launch_set_buffers(strata_launch *launch, int n, const strata_tensor *const *buffers) {
    launch->n_buffers = n;
    launch->writes = 1u << (n - 1);
    for (int i = 0; i < n; i++) launch->buffers[i] = buffers[i];
}

strata_launch strata_launch_with(const char *kernel, const char *variant, int n, const strata_tensor *const *buffers) {
    strata_launch launch = {.kernel = kernel, .variant = variant};
    strata_launch_set_buffers(&launch, n, buffers);
    return launch;
}

strata_launch strata_launch_of(const strata_tensor *node, const char *kernel, const char *variant) {
    strata_launch launch = {
        .kernel = kernel, .variant = variant, .n_buffers = node->n_inputs + 1, .writes = 1u << node->n_inputs};
    for (int i = 0; i < node->n_inputs; i++) launch.buffers[i] = node->inputs[i];
    launch.buffers[node->n_inputs] = node;
    return launch;
}

void strata_launch_constants(strata_launch *launch, const strata_launch_constant *constants, size_t n) {
    for (size_t i = 0; i < n; i++) launch->constants[launch->n_constants++] = constants[i];
}

void strata_launch_constant_add(strata_launch *launch, const char *name, int32_t value) {
    launch->constants[launch->n_constants++] = (strata_launch_constant){name, value};
}

strata_status strata_launch_flat(strata_launch *launch, int64_t n, strata_error *err) {
    if (n > most_elements)
        return strata_fail(err, STRATA_UNSUPPORTED, "%" PRId64 " elements; kernels take at most %" PRId64 " at a time", n,
                           most_elements);
    strata_launch_word(launch)->u32 = (uint32_t)n;
    launch->global[0] = n;
    launch->grid_stride = true;
    launch->turns = FLAT_TURNS;
    return STRATA_OK;
}

strata_status strata_launch_over(strata_launch *launch, const strata_strided *inner, strata_error *err) {
    const int rank = STRATA_STRIDED_KERNEL_AXES;
    int64_t n = 1;
    int unused = 0; /* leading axes of size 1 */
    for (int d = 0; d < rank; d++) n *= inner->sizes[d];
    while (unused < rank - 1 && inner->sizes[unused] == 1) unused++;
    STRATA_TRY(strata_launch_flat(launch, n, err));
    for (int d = 0; d < rank; d++) strata_launch_word(launch)->u32 = (uint32_t)inner->sizes[d];
    strata_launch_constant_add(launch, "RANK", rank - unused);
    return STRATA_OK;
}

/* The number of elements in the range of memory that tensor t of the space uses, from the first to the last element. */
static int64_t extent_of(const strata_strided *inner, int t) {
    int64_t last = 0;
    for (int d = 0; d < inner->rank; d++) last += (inner->sizes[d] - 1) * inner->strides[t][d];
    return last + 1;
}

/* Appends the 4 stride words of tensor t of the space. */
static strata_status add_strides(strata_launch *launch, const strata_strided *inner, int t, strata_error *err) {
    if (extent_of(inner, t) > UINT32_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED, "buffer %d spans %" PRId64 " elements; kernels count in 32 bits", t,
                           extent_of(inner, t));
    for (int d = 0; d < STRATA_STRIDED_KERNEL_AXES; d++)
        strata_launch_word(launch)->u32 = inner->sizes[d] > 1 ? (uint32_t)inner->strides[t][d] : 0;
    return STRATA_OK;
}

const char *strata_bits_variant(strata_dtype dtype) {
    static const char *const variants[] = {[1] = "b8", [2] = "b16", [4] = "b32", [8] = "b64"};
    return variants[strata_dtype_bytes(dtype)];
}

const char *strata_bits_by_index_variant(strata_dtype dtype, strata_dtype indices) {
    static const char *const variants[][2] = {
        [1] = {"b8_i32", "b8_i64"}, [2] = {"b16_i32", "b16_i64"}, [4] = {"b32_i32", "b32_i64"}, [8] = {"b64_i32", "b64_i64"}};
    return variants[strata_dtype_bytes(dtype)][indices == STRATA_DTYPE_I64];
}

const char *strata_floats_by_index_variant(strata_dtype dtype, strata_dtype indices) {
    static const char *const variants[][2] = {[STRATA_DTYPE_F32] = {"f32_i32", "f32_i64"},
                                              [STRATA_DTYPE_F16] = {"f16_i32", "f16_i64"},
                                              [STRATA_DTYPE_BF16] = {"bf16_i32", "bf16_i64"}};
    return variants[dtype][indices == STRATA_DTYPE_I64];
}

void strata_bits_words(strata_launch *launch, strata_dtype dtype, double value) {
    /* A union, because the element must lie in the first bytes of memory, whatever the byte order of the device's words. */
    union {
        uint8_t b8;
        uint16_t b16;
        uint32_t b32;
        uint64_t b64;
    } element = {.b64 = 0};
    strata_element_set(dtype, &element, 0, value);
    const size_t bytes = strata_dtype_bytes(dtype);
    const uint64_t bits = bytes == 1 ? element.b8 : bytes == 2 ? element.b16 : bytes == 4 ? element.b32 : element.b64;
    strata_launch_word(launch)->u32 = (uint32_t)bits;
    strata_launch_word(launch)->u32 = (uint32_t)(bits >> 32);
}

strata_status strata_fill_lower(const strata_tensor *node, double value, strata_lowering *lowering, strata_error *err) {
    strata_launch launch = STRATA_LAUNCH_WITH("fill", strata_bits_variant(node->dtype), node);
    STRATA_TRY(strata_launch_flat(&launch, strata_shape_elements(node->shape), err));
    strata_bits_words(&launch, node->dtype, value);
    return strata_lowering_add(lowering, &launch, err);
}

typedef struct emission {
    const strata_launch *launch;
    int n_strides;
    strata_lowering *lowering;
} emission;

static strata_status emit_inner(const strata_strided *inner, const int64_t *offsets, void *user, strata_error *err) {
    const emission *e = user;
    strata_launch launch = *e->launch;
    for (int t = 0; t < inner->n_tensors; t++) {
        launch.offsets[t] += offsets[t];
        launch.extents[t] = extent_of(inner, t);
    }
    STRATA_TRY(strata_launch_over(&launch, inner, err));
    for (int t = 0; t < e->n_strides; t++) STRATA_TRY(add_strides(&launch, inner, t, err));
    return strata_lowering_add(e->lowering, &launch, err);
}

strata_status strata_strided_lower(const strata_launch *launch, const strata_strided *space, int n_strides,
                                   strata_lowering *lowering, strata_error *err) {
    emission e = {launch, n_strides, lowering};
    return strata_strided_split(space, emit_inner, &e, err);
}

/* ---- the copy ---- */

void strata_row_major_strides(strata_shape shape, int64_t *out_strides) {
    int64_t stride = 1;
    for (int d = shape.rank - 1; d >= 0; d--) {
        out_strides[d] = stride;
        stride *= shape.dims[d];
    }
}

strata_copy strata_copy_flat(const strata_tensor *source, const strata_tensor *target, int64_t first) {
    return (strata_copy){.source = source,
                         .target = target,
                         .shape = STRATA_SHAPE(strata_shape_elements(source->shape)),
                         .target_offset = first,
                         .source_strides = {1},
                         .target_strides = {1}};
}

static strata_strided copy_space(const strata_copy *copy) {
    strata_strided space = {.rank = copy->shape.rank, .n_tensors = 2};
    for (int d = 0; d < copy->shape.rank; d++) {
        space.sizes[d] = copy->shape.dims[d];
        space.strides[0][d] = copy->source_strides[d];
        space.strides[1][d] = copy->target_strides[d];
    }
    strata_strided_merge(&space);
    return space;
}

typedef struct host_copy {
    const strata_copy *copy;
    const char *source;
    char *target;
} host_copy;

static void copy_row(const strata_strided *space, const int64_t *offsets, void *user) {
    const host_copy *h = user;
    const int last = space->rank - 1;
    const int64_t bytes = (int64_t)strata_dtype_bytes(h->copy->source->dtype), n = space->sizes[last];
    const int64_t from = space->strides[0][last], to = space->strides[1][last];
    const char *source = h->source + (h->copy->source_offset + offsets[0]) * bytes;
    char *target = h->target + (h->copy->target_offset + offsets[1]) * bytes;
    if (from == 1 && to == 1)
        memmove(target, source, (size_t)(n * bytes));
    else
        for (int64_t j = 0; j < n; j++) memcpy(target + j * to * bytes, source + j * from * bytes, (size_t)bytes);
}

void strata_copy_reference(const strata_copy *copy, const void *source, void *target) {
    host_copy h = {copy, source, target};
    const strata_strided space = copy_space(copy);
    strata_strided_rows(&space, copy_row, &h);
}

strata_status strata_copy_lower(const strata_copy *copy, strata_lowering *lowering, strata_error *err) {
    strata_launch launch =
        STRATA_LAUNCH_WITH("copy_strided", strata_bits_variant(copy->source->dtype), copy->source, copy->target);
    const strata_strided space = copy_space(copy);
    launch.offsets[0] = copy->source_offset;
    launch.offsets[1] = copy->target_offset;
    return strata_strided_lower(&launch, &space, 2, lowering, err);
}
