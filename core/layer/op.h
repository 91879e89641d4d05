/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops that a layer can be (strata_op_options), for those who apply one without a model. */
#ifndef STRATA_CORE_LAYER_OP_H
#define STRATA_CORE_LAYER_OP_H

#include "strata/layers.h"
#include "strata/ops.h"

/* y for n inputs, of which there must be as many as the op takes. Errors poison the graph. */
strata_tensor *strata_op_apply(const strata_op_options *opts, strata_tensor *const *inputs, int n);

#endif
