/* SPDX-License-Identifier: Apache-2.0
 *
 * Micro-batches in flight, with each allocation failing in turn. */
#include <criterion/criterion.h>

#include "tests/alloc/scenario.h"
#include "tests/support/stages.h"

static strata_status run_on(strata_device *const *devices, strata_error *err) {
    const test_stages_options opts = {.n_stages = 2, .width = 1, .devices = devices, .n_slots = 2, .n_carried = 2};
    strata_group_action actions[8];
    test_stages_result result;
    test_stages t = {0};
    strata_status status = test_stages_create(&opts, &t, err);
    if (!status) status = test_stages_run(&t, actions, test_stages_actions(&t, false, 2, actions), 2, 2, &result, err);
    test_stages_destroy(&t);
    return status;
}

static strata_status flight_scenario(strata_error *err) {
    strata_device *devices[2] = {0};
    strata_status status = strata_device_open("host", NULL, &devices[0], err);
    if (!status) status = strata_device_open("host", NULL, &devices[1], err);
    if (!status) status = run_on(devices, err);
    for (int d = 0; d < 2; d++) strata_device_close(devices[d]);
    return status;
}

Test(alloc, micro_batches_in_flight) {
    fail_each_allocation("flight", flight_scenario, 1, 1, 10000);
}
