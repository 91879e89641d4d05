/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of layer kinds, from layers.def. */
#include "core/layer/layer.h"

const strata_layer_kind *const strata_layer_kinds[] = {
#define STRATA_LAYER(name) &strata_layer_##name,
#include "core/layer/layers.def"
#undef STRATA_LAYER
};
const int strata_n_layer_kinds = sizeof strata_layer_kinds / sizeof *strata_layer_kinds;
