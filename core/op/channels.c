/* SPDX-License-Identifier: Apache-2.0
 *
 * Shape rules and kernel launches of the ops that treat each channel separately (channels.h). */
#include "core/op/channels.h"

#include "core/op/define.h"

strata_channels strata_channels_of(strata_shape shape) {
    strata_channels c = {.rows = 1, .channels = shape.dims[shape.rank - 1]};
    for (int d = 0; d < shape.rank - 1; d++) c.rows *= shape.dims[d];
    return c;
}

strata_status strata_check_channels(const strata_tensor *node, int x, unsigned by_channel, const char *const *names,
                                    strata_error *err) {
    const strata_tensor *main = node->inputs[x];
    STRATA_TRY(strata_check_dtype(main, names[x], STRATA_FLOATS, err));
    if (main->shape.rank < 1)
        return strata_fail(err, STRATA_INVALID, "%s is a scalar; its last axis are the channels", names[x]);
    strata_shape want = STRATA_SHAPE(main->shape.dims[main->shape.rank - 1]);
    for (int i = 0; i < node->n_inputs; i++) {
        if (!(by_channel >> i & 1)) continue;
        STRATA_TRY(strata_check_dtype(node->inputs[i], names[i], 1u << STRATA_DTYPE_F32, err));
        if (!strata_shape_equal(node->inputs[i]->shape, want))
            return strata_fail(err, STRATA_INVALID, "%s is %s, %s is %s; it must be %s, the last axis", names[x],
                               strata_shape_text(main->shape).text, names[i], strata_shape_text(node->inputs[i]->shape).text,
                               strata_shape_text(want).text);
    }
    return STRATA_OK;
}

strata_tensor *strata_channels_row(strata_tensor *sums, int64_t index) {
    const int64_t channels = sums->shape.dims[1];
    strata_tensor *slice = strata_slice(sums, (int64_t[]){index, 0}, (int64_t[]){1, channels});
    return strata_reshape(slice, STRATA_SHAPE(channels));
}

const char *strata_channels_variant(strata_dtype dtype) {
    static const char *const variants[] = {
        [STRATA_DTYPE_F32] = "f32_f32", [STRATA_DTYPE_F16] = "f16_f32", [STRATA_DTYPE_BF16] = "bf16_f32"};
    return variants[dtype];
}

static strata_status check_size(strata_channels c, strata_error *err) {
    if (c.channels == 0 || c.rows <= INT32_MAX / c.channels) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED, "%" PRId64 " rows of %" PRId64 " channels; kernels take at most %d elements",
                       c.rows, c.channels, INT32_MAX);
}

strata_status strata_launch_blocks(strata_launch *launch, strata_channels c, strata_error *err) {
    /* A work-group of ITEMS work-items processes a block of at most WIDTH channels and about ELEMENTS elements. */
    enum { WIDTH = 256, ELEMENTS = 4096, ITEMS = 256 };
    const int64_t width = c.channels < WIDTH ? c.channels : WIDTH;
    STRATA_TRY(check_size(c, err));
    if (c.rows == 0 || c.channels == 0) return STRATA_OK; /* nothing is launched */
    const int64_t block = ELEMENTS / width;
    STRATA_LAUNCH_INTS(launch, c.rows, c.channels, block);
    launch->global[0] = ((c.rows - 1) / block + 1) * ((c.channels - 1) / WIDTH + 1) * ITEMS;
    launch->grid_stride = true;
    return STRATA_OK;
}

/* The number of rows in a part. It depends only on the shape, because it determines the order of addition. There are
 * enough parts to keep a large device busy, but few enough for the second launch, which adds them. A part has at most
 * MOST rows, since longer runs of additions would lose precision (channel_parts.kernel). */
static int64_t rows_of_a_part(strata_channels c) {
    enum { ENOUGH_GROUPS = 1024, LEAST = 16 * STRATA_RUNS, MOST = 64 * STRATA_RUNS };
    const int64_t parts = (ENOUGH_GROUPS - 1) / strata_run_groups(c.channels) + 1, part = (c.rows - 1) / parts + 1;
    return part < LEAST ? LEAST : part > MOST ? MOST : part;
}

strata_status strata_channel_sums_lower(const strata_tensor *node, const strata_tensor *x, const strata_tensor *mean,
                                        const strata_tensor *variance, const strata_tensor *dy, double epsilon,
                                        strata_lowering *lowering, strata_error *err) {
    const strata_channels c = strata_channels_of(x->shape);
    STRATA_TRY(check_size(c, err));
    if (c.channels == 0) return STRATA_OK;
    if (c.rows == 0) return strata_fill_lower(node, dy ? 0 : NAN, lowering, err);
    const int64_t part = rows_of_a_part(c), parts = (c.rows - 1) / part + 1;
    const int64_t groups = strata_run_groups(c.channels);
    strata_lowering_scratch(lowering, parts * 2 * c.channels * (int64_t)sizeof(float));
    strata_launch first = STRATA_LAUNCH_WITH("channel_parts", strata_channels_variant(x->dtype), x, dy ? mean : NULL,
                                             dy ? variance : NULL, dy ? dy : x, NULL);
    first.global[0] = parts * groups * STRATA_RUN_ITEMS;
    first.grid_stride = true;
    strata_launch_constant_add(&first, "GRADIENT", dy != NULL);
    STRATA_LAUNCH_INTS(&first, c.rows, c.channels, part, parts);
    STRATA_LAUNCH_FLOATS(&first, epsilon);
    STRATA_TRY(strata_lowering_add(lowering, &first, err));
    strata_launch second = STRATA_LAUNCH_WITH("channel_fold", "f32", NULL, node);
    second.global[0] = groups * STRATA_RUN_ITEMS;
    second.grid_stride = true;
    strata_launch_constant_add(&second, "GRADIENT", dy != NULL);
    STRATA_LAUNCH_INTS(&second, c.channels, c.rows, part, parts);
    return strata_lowering_add(lowering, &second, err);
}
