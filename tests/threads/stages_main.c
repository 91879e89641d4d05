/* SPDX-License-Identifier: Apache-2.0
 *
 * Micro-batches of a pipeline in flight, under ThreadSanitizer: a thread for each of its devices, which exchange values, and
 * the caller, which writes inputs and reads outputs meanwhile. They have the bits of the micro-batches one after the other. */
#include <stdio.h>
#include <string.h>

#include "tests/support/stages.h"

enum { M = TEST_STAGES_MICROBATCHES, TIMES = 20 };

static strata_device *devices[TEST_STAGES_MOST];

static int fail(const char *what, const strata_error *err) {
    printf("%s: %s\n", what, err->message);
    return 1;
}

static int run(const test_stages_options *opts) {
    static test_stages_result alone, got;
    strata_group_action actions[2 * M * TEST_STAGES_MOST];
    strata_error err = {0};
    test_stages t = {0};
    if (test_stages_create(opts, &t, &err)) return fail("creating", &err);
    if (test_stages_run_alone(&t, M, &alone, &err)) return fail("alone", &err);
    for (int i = 0; i < TIMES; i++) {
        const int n = test_stages_actions(&t, i % 2, M, actions);
        if (test_stages_run(&t, actions, n, M, i % 2 ? M : opts->n_stages, &got, &err)) return fail("in flight", &err);
        if (memcmp(&got, &alone, sizeof got)) return fail("in flight", &(strata_error){.message = "other values than alone"});
    }
    test_stages_destroy(&t);
    return 0;
}

int main(void) {
    strata_error err = {0};
    int failed = 0;
    for (int r = 0; r < TEST_STAGES_MOST; r++)
        if (strata_device_open("host", NULL, &devices[r], &err)) return fail("opening", &err);
    for (int width = 1; width <= 2; width++)
        failed |= run(&(test_stages_options){
            .n_stages = 4, .width = width, .skips = true, .devices = devices, .n_slots = M, .n_carried = M});
    for (int r = 0; r < TEST_STAGES_MOST; r++) strata_device_close(devices[r]);
    if (!failed) puts("4 stages of 1 and 2 devices have the bits of their micro-batches alone");
    return failed;
}
