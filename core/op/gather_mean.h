/* SPDX-License-Identifier: Apache-2.0
 *
 * gather_mean: the mean of rows of a table, such as the average of the embeddings of a text's words. The fusion pass builds
 * it. */
#ifndef STRATA_CORE_OP_GATHER_MEAN_H
#define STRATA_CORE_OP_GATHER_MEAN_H

#include "core/op/reduce.h"

/* The table has `rows` rows. order.axes describes `outer` means of n rows with `inner` elements each; `order` is the
 * order in which shaders/reduce.kernel would add these rows. */
typedef struct strata_gather_mean_sizes {
    int64_t rows;
    strata_reduce_order order;
} strata_gather_mean_sizes;
strata_gather_mean_sizes strata_gather_mean_sizes_of(const strata_tensor *node);

/* For a reduce_mean along the indices' last axis of a gather along the first axis: a node of the same value, which stores no
 * gathered rows. NULL for any other node. */
strata_tensor *strata_gather_mean_of(strata_tensor *node);

#endif
