/* SPDX-License-Identifier: Apache-2.0
 *
 * print: y = x. The value of x is also shown to the program that opened the device, with the layer's name. */
#include "core/graph/graph.h"
#include "core/layer/layer.h"

static strata_tensor *print_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_print_options *opts = options;
    (void)context;
    if (strata_tensor_is_poison(x)) return x;
    return strata_print(x, &(strata_print_options){.every = opts->every, .first = opts->first, .name = x->graph->scope});
}

const strata_layer_kind strata_layer_print = {
    .name = "print",
    .keeps_mask = true,
    STRATA_LAYER_OPTIONS(strata_print_options),
    .options = {{"every", STRATA_OPTION_INT, offsetof(strata_print_options, every), 1, INT32_MAX, false},
                {"first", STRATA_OPTION_INT, offsetof(strata_print_options, first), 1, STRATA_MAX_PRINTED, false}},
    .build = print_build,
};
