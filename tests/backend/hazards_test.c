/* SPDX-License-Identifier: Apache-2.0
 *
 * Barriers between launches: they must be where the byte ranges of launches overlap, and nowhere else. */
#include <criterion/criterion.h>

#include "backends/kernel/lowering.h"

/* Adds a launch that reads one range and writes another one. Returns whether the launch needs a barrier before it. */
static bool add(strata_hazards *hazards, strata_kernel_range read, strata_kernel_range write) {
    const strata_kernel_range ranges[] = {read, write};
    bool barrier = false;
    cr_assert_eq(strata_hazards_add(hazards, ranges, 2, 1u << 1, &barrier, NULL), STRATA_OK);
    return barrier;
}

static strata_kernel_range bytes(int64_t begin, int64_t end) {
    return (strata_kernel_range){.arena = 2, .begin = begin, .end = end};
}

Test(hazards, the_first_launch_needs_no_barrier) {
    strata_hazards hazards = {0};
    cr_assert_not(add(&hazards, bytes(0, 64), bytes(64, 128)));
    strata_hazards_finish(&hazards);
}

Test(hazards, readers_of_the_same_bytes_run_side_by_side) {
    strata_hazards hazards = {0};
    cr_assert_not(add(&hazards, bytes(0, 64), bytes(64, 128)));
    cr_assert_not(add(&hazards, bytes(0, 64), bytes(128, 192)));
    strata_hazards_finish(&hazards);
}

Test(hazards, read_after_write_waits) {
    strata_hazards hazards = {0};
    add(&hazards, bytes(0, 64), bytes(64, 128));
    cr_assert(add(&hazards, bytes(127, 128), bytes(256, 320)));
    strata_hazards_finish(&hazards);
}

Test(hazards, write_after_read_waits) {
    strata_hazards hazards = {0};
    add(&hazards, bytes(0, 64), bytes(64, 128));
    cr_assert(add(&hazards, bytes(256, 320), bytes(63, 64)));
    strata_hazards_finish(&hazards);
}

Test(hazards, write_after_write_waits) {
    strata_hazards hazards = {0};
    add(&hazards, bytes(0, 64), bytes(64, 128));
    cr_assert(add(&hazards, bytes(256, 320), bytes(0, 65)));
    strata_hazards_finish(&hazards);
}

Test(hazards, neighbours_do_not_wait) {
    strata_hazards hazards = {0};
    add(&hazards, bytes(0, 64), bytes(64, 128));
    cr_assert_not(add(&hazards, bytes(0, 64), bytes(128, 192)));
    cr_assert_not(add(&hazards, bytes(192, 256), bytes(256, 320)));
    strata_hazards_finish(&hazards);
}

Test(hazards, the_same_bytes_of_another_arena_do_not_wait) {
    strata_hazards hazards = {0};
    add(&hazards, bytes(0, 64), bytes(64, 128));
    cr_assert_not(add(&hazards, (strata_kernel_range){3, 64, 128}, (strata_kernel_range){3, 0, 64}));
    strata_hazards_finish(&hazards);
}

Test(hazards, a_barrier_covers_all_that_came_before_it) {
    strata_hazards hazards = {0};
    add(&hazards, bytes(0, 64), bytes(64, 128));
    add(&hazards, bytes(0, 64), bytes(128, 192));
    cr_assert(add(&hazards, bytes(64, 128), bytes(256, 320)));
    cr_assert_not(add(&hazards, bytes(128, 192), bytes(320, 384)), "its writer is before the barrier");
    cr_assert(add(&hazards, bytes(256, 320), bytes(384, 448)), "its writer is after it");
    strata_hazards_finish(&hazards);
}

Test(hazards, a_launch_in_place_waits_only_for_others) {
    strata_hazards hazards = {0};
    cr_assert_not(add(&hazards, bytes(0, 64), bytes(0, 64)));
    cr_assert(add(&hazards, bytes(0, 64), bytes(0, 64)));
    strata_hazards_finish(&hazards);
}

Test(hazards, an_unused_buffer_conflicts_with_nothing) {
    strata_hazards hazards = {0};
    add(&hazards, bytes(0, 64), bytes(64, 128));
    cr_assert_not(add(&hazards, bytes(100, 100), bytes(128, 192)));
    cr_assert_not(add(&hazards, bytes(0, 0), bytes(192, 256)));
    strata_hazards_finish(&hazards);
}

Test(hazards, many_launches_are_all_remembered) {
    strata_hazards hazards = {0};
    for (int64_t i = 0; i < 200; i++) cr_assert_not(add(&hazards, bytes(100000, 100001), bytes(i, i + 1)));
    cr_assert(add(&hazards, bytes(0, 1), bytes(5000, 5001)));
    for (int64_t i = 0; i < 200; i++) cr_assert_not(add(&hazards, bytes(i, i + 1), bytes(6000 + i, 6001 + i)));
    strata_hazards_finish(&hazards);
}
