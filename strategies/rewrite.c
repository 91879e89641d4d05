/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions for strata_step_rewrite that several strategies use. */
#include "strategies/kinds.h"

strata_tensor *strata_rewrite_own_mean(const strata_step_replica *replica, strata_tensor *own, strata_tensor *share) {
    strata_tensor *nonzero = strata_max(share, strata_scalar(strata_tensor_graph(own), STRATA_DTYPE_F32, 1e-12));
    (void)replica;
    return strata_div(own, nonzero);
}
