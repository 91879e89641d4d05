/* SPDX-License-Identifier: Apache-2.0
 *
 * Applies the ops of the layer op (strata_op_options) to tensors, for callers without a model. */
#ifndef STRATA_CORE_LAYER_OP_H
#define STRATA_CORE_LAYER_OP_H

#include "strata/layers.h"
#include "strata/ops.h"

/* Builds y for n inputs. n must be the number of inputs of the op. Errors poison the graph. */
strata_tensor *strata_op_apply(const strata_op_options *opts, strata_tensor *const *inputs, int n);

#endif
