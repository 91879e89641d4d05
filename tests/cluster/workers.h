/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of strategies with several workers share. Each worker is a thread with one or more host devices. */
#ifndef STRATA_TESTS_CLUSTER_WORKERS_H
#define STRATA_TESTS_CLUSTER_WORKERS_H

#include "strata/strata.h"
#include "strategies/kinds.h"
#include "tests/cluster/ranks.h"

enum { MOST_WORKERS = 6 };

#define RUN(world, function, user)                                                             \
    do {                                                                                       \
        const strata_test_result result = test_ranks("inproc", (world), NULL, function, user); \
        cr_assert(result.ok, "%s", result.text);                                               \
    } while (0)

/* Opens n host devices for this worker. */
static inline strata_status open_strategy(strata_communicator *comm, int n, strata_strategy **out, strata_error *err) {
    strata_device *devices[2] = {NULL};
    for (int i = 0; i < n; i++) STRATA_TRY(strata_device_open("host", NULL, &devices[i], err));
    STRATA_TRY(strata_strategy_from_devices(devices, n, out, err));
    return strata_strategy_join(*out, comm, err);
}

#endif
