/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fusion pass asks of gather_grad (gather.c). */
#ifndef STRATA_CORE_OP_GATHER_H
#define STRATA_CORE_OP_GATHER_H

#include "core/graph.h"

/* What `node` is, taking the operand of its dy where dy is a broadcast_to along the indices' last axis, so that nobody stores the
 * repeated rows. NULL where it is not a gather_grad of that form. */
strata_tensor *strata_gather_grad_unrepeated(strata_tensor *node);

#endif
