/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/alloc/scenario.h"

#include <criterion/criterion.h>

#include "tests/alloc/shim.h"

void fail_each_allocation(const char *name, scenario scenario, int64_t first, int64_t step, int64_t most) {
    strata_error err = {0};
    /* This run also lets libraries allocate what they keep until the process ends. */
    shim_fail_at(0);
    cr_assert_eq(scenario(&err), STRATA_OK, "%s without failures: %s", name, err.message);
    const int64_t n = shim_count();
    for (int64_t k = first, rounds = 0; rounds < most; k += step, rounds++) {
        int64_t before = shim_live();
        err = (strata_error){0};
        shim_fail_at(k);
        strata_status status = scenario(&err);
        bool failed = shim_failed();
        const int64_t count = shim_count();
        shim_fail_at(0);
        cr_assert_eq(shim_live(), before, "%s: allocation %d failed; %d blocks leak (%s)", name, (int)k,
                     (int)(shim_live() - before), err.message);
        cr_assert(status == STRATA_OK || (failed && status == STRATA_OUT_OF_MEMORY), "%s: allocation %d failed; got %s \"%s\"",
                  name, (int)k, strata_status_name(status), err.message);
        cr_assert(status == STRATA_OK || (err.status == status && err.message[0]), "%s: allocation %d: no message", name,
                  (int)k);
        if (failed) continue;
        cr_assert_leq(count, n, "%s: allocates %d times instead of %d after some failures, so each may have been the same one",
                      name, (int)count, (int)n);
        return;
    }
    cr_assert_gt(step, 1, "%s: not every allocation has failed", name);
}
