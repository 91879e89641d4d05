/* SPDX-License-Identifier: Apache-2.0
 *
 * Random graphs (random_graph.h) on the host, always the same ones. tests/oracle/graphs_main.c draws others.
 *
 * Some graphs have exchanges between replicas, which divide a program into segments. */
#include <criterion/criterion.h>

#include "strata/executable.h"
#include "tests/compile/random_graph_check.h"

static void check_graphs(uint64_t last, bool differentiable, bool divided, bool wide) {
    strata_device *device = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK, "%s", err.message);
    for (uint64_t seed = 1; seed <= last; seed++) {
        scene s = {.differentiable = differentiable, .divided = divided, .wide = wide};
        const strata_test_result result = random_graph_check(&s, device, seed, NULL, 0);
        cr_assert(result.ok, "seed %d: %s", (int)seed, result.text);
    }
    strata_device_close(device);
}

Test(random_graphs, compiled_values_are_those_of_the_references) {
    check_graphs(1500, false, false, false);
}

Test(random_graphs, optimizers_tables_sequences_and_other_dtypes_compute_the_values_of_the_references) {
    check_graphs(1000, false, false, true);
}

Test(random_graphs, compiled_gradients_are_those_of_the_references) {
    check_graphs(600, true, false, false);
}

Test(random_graphs, programs_of_several_segments_compute_the_values_of_the_references) {
    check_graphs(400, false, true, false);
    check_graphs(200, false, true, true);
    check_graphs(200, true, true, false);
}
