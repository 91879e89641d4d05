/* SPDX-License-Identifier: Apache-2.0
 *
 * What strategies use besides strata/cluster.h: communicators of some ranks, for exchanges in which only these take part, and
 * whether ranks take turns on the cores. */
#ifndef STRATA_CLUSTER_SUBSET_H
#define STRATA_CLUSTER_SUBSET_H

#include "strata/cluster.h"

/* The communicator of the ranks `ranks` of `comm`, which are ascending; this rank is one of them. Each of them calls it, and no
 * other rank does. There is one for each list of members, the numbers of the devices that will use it. It is made at the first
 * call with this list, is destroyed with `comm`, and is borrowed. */
STRATA_MUST_USE strata_status strata_communicator_subset(strata_communicator *comm, const int *ranks, int n,
                                                         const int64_t *members, int n_members,
                                                         strata_communicator **out_subset, strata_error *err);

/* Whether this machine has more ranks than cores that they may use. Each rank may be bound to a core of its own, or to one that
 * it shares, so the cores of all of them are counted together. */
bool strata_communicator_shares_cores(const strata_communicator *comm);

#endif
