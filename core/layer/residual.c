/* SPDX-License-Identifier: Apache-2.0
 *
 * residual: y = activation(main(x) + shortcut(x)), where main and shortcut are the layers in its two branches (He et al.
 * 2016). An empty shortcut is x itself. The mask of padding is kept if both branches keep it. */
#include "core/graph/graph.h"
#include "core/layer/layer.h"

static strata_status residual_check(const void *options, strata_error *err) {
    return strata_activation_check(((const strata_residual_options *)options)->activation, err);
}

static strata_tensor *residual_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    strata_tensor *mask = strata_layer_mask(context), *main = strata_layer_branch(context, 0, x);
    const bool kept = strata_layer_mask(context) == mask;
    strata_layer_set_mask(context, mask);
    strata_tensor *shortcut = strata_layer_branch(context, 1, x);
    if (!kept) strata_layer_set_mask(context, NULL);
    const strata_shape one = strata_tensor_shape(main), other = strata_tensor_shape(shortcut);
    if (!strata_tensor_is_poison(main) && !strata_tensor_is_poison(shortcut) && !strata_shape_equal(one, other))
        return strata_graph_poison(strata_tensor_graph(x), NULL, STRATA_INVALID,
                                   "its layers give %s, its shortcut gives %s; they must be equal: a shortcut of its own can "
                                   "bring x to that shape",
                                   strata_shape_text(one).text, strata_shape_text(other).text);
    return strata_activation_apply(((const strata_residual_options *)options)->activation, strata_add(main, shortcut));
}

const strata_layer_kind strata_layer_residual = {
    .name = "residual",
    STRATA_LAYER_OPTIONS(strata_residual_options),
    .options = {{"activation", STRATA_OPTION_ACTIVATION, offsetof(strata_residual_options, activation), 0, 0, false}},
    .branches = {"layers", "shortcut"},
    .keeps_mask = true,
    .check = residual_check,
    .build = residual_build,
};
