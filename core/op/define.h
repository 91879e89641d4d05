/* SPDX-License-Identifier: Apache-2.0
 *
 * What a file that defines an op includes: tensors, launches and placement rules, the helpers of shape rules, references,
 * compositions and launches, and the builders of other ops. */
#ifndef STRATA_CORE_OP_DEFINE_H
#define STRATA_CORE_OP_DEFINE_H

#include <inttypes.h>

#include "core/graph/placement.h"
#include "core/op/axes.h"
#include "core/op/compose.h"
#include "core/op/copy.h"
#include "core/op/element.h"
#include "core/op/rules.h"

#endif
