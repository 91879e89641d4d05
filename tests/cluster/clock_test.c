/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits leave out the time in which the process did not run, or by which its clock was moved. */
#include "core/base/clock.h"

#include <criterion/criterion.h>
#include <math.h>

Test(clock, a_jump_of_the_clock_does_not_end_a_wait) {
    strata_patience p = strata_patience_of(60);
    for (int i = 0; i < STRATA_PATIENCE_MOST_AWAY; i++) {
        p.last -= 3600; /* as if an hour had passed since the last look */
        cr_assert(strata_patience_left(&p) > 50);
    }
    p.last += 3600; /* the clock was set back */
    cr_assert(strata_patience_left(&p) > 50);
}

/* A call of the system may take long each time, so the wait ends nevertheless. */
Test(clock, a_wait_ends_when_each_step_takes_long) {
    strata_patience p = strata_patience_of(60);
    int n = 0;
    for (; n < 100 && strata_patience_left(&p) > 0; n++) p.last -= 20;
    cr_assert_eq(n, STRATA_PATIENCE_MOST_AWAY + 3, "%d", n);
}

Test(clock, steps_are_short_and_count_whole) {
    strata_patience p = strata_patience_of(60);
    p.last -= 2;
    cr_assert_float_eq(strata_patience_left(&p), 58, 0.1);
    const struct timespec step = strata_patience_step(&p), now = strata_clock_after(0);
    const double ahead = (double)(step.tv_sec - now.tv_sec) + 1e-9 * (double)(step.tv_nsec - now.tv_nsec);
    cr_assert(ahead > 0 && ahead < 0.6);
}
