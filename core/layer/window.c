/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of convolution layers that do not depend on how many axes the window slides along (window.h). */
#include "core/layer/window.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name;
    strata_padding padding;
} paddings[] = {{"valid", STRATA_PADDING_VALID}, {"same", STRATA_PADDING_SAME}, {"explicit", STRATA_PADDING_EXPLICIT}};
enum { N_PADDINGS = sizeof paddings / sizeof *paddings };

strata_padding strata_padding_of(const char *name) {
    for (int i = 0; name && i < N_PADDINGS; i++)
        if (!strcmp(paddings[i].name, name)) return paddings[i].padding;
    return STRATA_PADDING_VALID;
}

/* Fails if there is explicit_padding but the padding is not "explicit", since it would have no effect. */
static strata_status check_explicit(const char *name, const int64_t *explicit_padding, int n, strata_error *err) {
    for (int i = 0; i < n; i++) {
        if (explicit_padding[i] < 0)
            return strata_fail(err, STRATA_INVALID, "explicit_padding has %" PRId64 "; it must be at least 0",
                               explicit_padding[i]);
        if (explicit_padding[i] && strata_padding_of(name) != STRATA_PADDING_EXPLICIT)
            return strata_fail(err, STRATA_INVALID, "explicit_padding is for padding \"explicit\", not \"%s\"",
                               name && *name ? name : "valid");
    }
    return STRATA_OK;
}

strata_status strata_padding_check(const char *name, const int64_t *explicit_padding, int n, strata_error *err) {
    bool known = !name || !*name;
    for (int i = 0; i < N_PADDINGS && !known; i++) known = !strcmp(paddings[i].name, name);
    if (known) return check_explicit(name, explicit_padding, n, err);
    return strata_fail(err, STRATA_INVALID, "there is no padding \"%s\"; there are: valid, same, explicit", name);
}

strata_status strata_conv_layer_check(const strata_conv_layer *layer, strata_error *err) {
    const strata_initializer *ignored;
    if (layer->filters < 1)
        return strata_fail(err, STRATA_INVALID, "filters is %" PRId64 "; it must be at least 1", layer->filters);
    for (int i = 0; i < layer->n_axes; i++)
        if (layer->size[i] < 1)
            return strata_fail(err, STRATA_INVALID, "kernel_size is %" PRId64 "; it must be at least 1", layer->size[i]);
    if (layer->groups < 0 || layer->filters % strata_or_one(layer->groups))
        return strata_fail(err, STRATA_INVALID, "%" PRId64 " filters can't be divided among %" PRId64 " groups", layer->filters,
                           layer->groups);
    STRATA_TRY(strata_padding_check(layer->padding, layer->explicit_padding, 2 * layer->n_axes, err));
    STRATA_TRY(strata_layer_check_penalty(layer->kernel_l1, layer->kernel_l2, err));
    if (layer->kernel_initializer) STRATA_TRY(strata_initializer_find(layer->kernel_initializer, &ignored, err));
    if (layer->bias_initializer) STRATA_TRY(strata_initializer_find(layer->bias_initializer, &ignored, err));
    return strata_activation_check(layer->activation, err);
}

/* The number of taps of the kernel. As in Keras, the fans of a weight are its taps times the channels. */
static int64_t taps(const strata_conv_layer *layer) {
    int64_t n = 1;
    for (int i = 0; i < layer->n_axes; i++) n *= layer->size[i];
    return n;
}

strata_tensor *strata_conv_layer_kernel(const strata_conv_layer *layer, strata_layer_context *context, strata_tensor *x) {
    const strata_shape shape = strata_tensor_shape(x);
    const int64_t channels = shape.rank ? shape.dims[shape.rank - 1] : 1, groups = strata_or_one(layer->groups);
    strata_shape kernel = {.rank = layer->n_axes + 2};
    for (int i = 0; i < layer->n_axes; i++) kernel.dims[i] = layer->size[i];
    /* If groups do not divide the channels, the op fails. */
    kernel.dims[layer->n_axes] = channels < groups ? 1 : channels / groups;
    kernel.dims[layer->n_axes + 1] = layer->filters;
    strata_tensor *weights = strata_layer_parameter(context, strata_tensor_graph(x), "kernel", kernel,
                                                    layer->kernel_initializer ? layer->kernel_initializer : "glorot_uniform",
                                                    taps(layer) * kernel.dims[layer->n_axes], taps(layer) * layer->filters);
    strata_layer_penalize(context, weights, layer->kernel_l1, layer->kernel_l2);
    return strata_cast(weights, strata_tensor_dtype(x));
}

strata_tensor *strata_conv_layer_finish(const strata_conv_layer *layer, strata_layer_context *context, strata_tensor *y) {
    if (!layer->no_bias) {
        strata_tensor *bias =
            strata_layer_parameter(context, strata_tensor_graph(y), "bias", STRATA_SHAPE(layer->filters),
                                   layer->bias_initializer ? layer->bias_initializer : "zeros", taps(layer), layer->filters);
        y = strata_add(y, strata_cast(bias, strata_tensor_dtype(y)));
    }
    return strata_activation_apply(layer->activation, y);
}
