/* SPDX-License-Identifier: Apache-2.0
 *
 * Every op by name, and the table of all of them. The files of ops do not include this header, so after a new row in ops.def
 * only files that use ops by name are compiled again. */
#ifndef STRATA_CORE_OPS_H
#define STRATA_CORE_OPS_H

#include "core/graph/op.h"

/* Every op, in the order of ops.def. */
extern const strata_op *const strata_ops[];
extern const int strata_n_ops;
const strata_op *strata_op_find(const char *name); /* NULL: there is none */

#define STRATA_OP(name) extern const strata_op strata_op_##name;
#include "core/op/ops.def"
#undef STRATA_OP

#endif
