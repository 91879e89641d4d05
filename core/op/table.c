/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of ops, in the order of core/op/ops.def. */
#include <string.h>

#include "core/op/ops.h"

const strata_op *const strata_ops[] = {
#define STRATA_OP(name) &strata_op_##name,
#include "core/op/ops.def"
#undef STRATA_OP
};

const int strata_n_ops = (int)(sizeof strata_ops / sizeof *strata_ops);

const strata_op *strata_op_find(const char *name) {
    for (int i = 0; name && i < strata_n_ops; i++)
        if (!strcmp(strata_ops[i]->name, name)) return strata_ops[i];
    return NULL;
}
