/* SPDX-License-Identifier: Apache-2.0
 *
 * strata help layers and strata help ops: the tables of the library, with a line before them. */
#include "strata/layers.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "strata/ops.h"

static int print_text(const char *before, strata_status (*get)(char **out_text, strata_error *err), const char *after) {
    char *text = NULL;
    strata_error err = {0};
    const strata_status status = get(&text, &err);
    if (status) return report(FAILING_RUN, status, &err);
    printf("%s\n%s%s", before, text, after);
    free(text);
    return EXIT_OK;
}

int print_layers(void) {
    return print_text(
        "layers of a model.json, {\"layer\": \"dense\", \"units\": 10}, and their options; those in [ ] may be left out",
        strata_layers_text,
        "Each may have a \"name\". What options mean, losses, optimizers and schedules: core/README.md, strata/layers.h\n");
}

int print_ops(void) {
    return print_text(
        "ops, as plugins and `strata plugin-check` see them: inputs, then attributes by name; formulas are in strata/ops.h",
        strata_ops_text, "");
}
