/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: squares PLUGIN CHIP M,K,N[=CYCLES]...
 *
 * Prints what the cycle model predicts for bf16 products of these sizes, as a line of JSON for each. The products are compiled
 * but not run. CYCLES is the prediction of another model; the exit code is 1 if one prediction is more than FAR times the
 * other. */
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

static const double FAR = 1.25; /* the largest ratio of two predictions that agree */

static int print_product(machine m, const long long size[3], double expected) {
    static sketch s;
    strata_plugin_error error;
    strata_plugin_cost cost = {.size = sizeof cost};
    sketch_init(&s, 1);
    const int a = sketch_value(&s, STRATA_PLUGIN_INPUT, STRATA_PLUGIN_BF16, DIMS(size[0], size[1]));
    const int b = sketch_value(&s, STRATA_PLUGIN_INPUT, STRATA_PLUGIN_BF16, DIMS(size[1], size[2]));
    const int c = sketch_value(&s, STRATA_PLUGIN_OUTPUT, STRATA_PLUGIN_BF16, DIMS(size[0], size[2]));
    sketch_node(&s, "matmul", IDS(a, b), c);
    strata_plugin_program *program = sketch_compile(m, &s, &error);
    const strata_plugin_costs *costs = m.calls->table(m.device, "costs");
    if (!program || !costs || costs->program(program, &cost, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    printf(
        "{\"m\": %lld, \"k\": %lld, \"n\": %lld, \"seconds\": %.9g, \"cycles\": %.0f, \"bytes\": %.0f, \"utilisation\": "
        "%.5f}\n",
        size[0], size[1], size[2], cost.seconds, cost.cycles, cost.bytes, cost.utilisation);
    m.calls->program_destroy(program);
    const bool near = expected == 0 || (cost.cycles <= expected * FAR && cost.cycles * FAR >= expected);
    if (!near) fprintf(stderr, "%.0f cycles; they should be within %g times %.0f\n", cost.cycles, FAR, expected);
    return !near;
}

int main(int argc, char **argv) {
    char options[64];
    int32_t n;
    int failed = 0;
    if (argc < 4) {
        fprintf(stderr, "usage: squares PLUGIN CHIP M,K,N[=CYCLES]...\n");
        return 2;
    }
    snprintf(options, sizeof options, "chip=%s", argv[2]);
    const machine m = open_machine(load_plugin(argv[1], options, &n), 0);
    for (int i = 3; i < argc; i++) {
        long long size[3];
        double expected = 0;
        const int n_read = sscanf(argv[i], "%lld,%lld,%lld=%lf", &size[0], &size[1], &size[2], &expected);
        failed |= n_read < 3 || print_product(m, size, expected);
    }
    m.calls->close(m.device);
    return failed;
}
