/* SPDX-License-Identifier: Apache-2.0
 *
 * strata help layers: the allowed entries of "layers" in a model.json, from the tables that read it. */
#include <stdio.h>

#include "cli.h"
#include "core/layer/layer.h"

/* An option as it is written: units=N, kernel_size=[N,N], no_bias=true. */
static const char *const values[] = {[STRATA_OPTION_INT] = "N",           [STRATA_OPTION_PAIR] = "[N,N]",
                                     [STRATA_OPTION_BORDER_1D] = "[N,N]", [STRATA_OPTION_BORDER_2D] = "[N,N,N,N]",
                                     [STRATA_OPTION_NUMBER] = "R",        [STRATA_OPTION_BOOL] = "true",
                                     [STRATA_OPTION_STRING] = "\"...\"",  [STRATA_OPTION_ACTIVATION] = "\"...\"",
                                     [STRATA_OPTION_NUMBERS] = "[R,...]", [STRATA_OPTION_SHAPE] = "[N,...]",
                                     [STRATA_OPTION_COUNT] = "N"};

static void print_layer(const strata_layer_kind *kind) {
    printf("  %s", kind->name);
    for (int i = 0; i < STRATA_MAX_BRANCHES && kind->branches[i]; i++)
        printf(i ? "  [\"%s\": [layers]]" : "  \"%s\": [layers]", kind->branches[i]);
    for (const strata_option *o = kind->options; o->name; o++)
        printf(o->required ? "  \"%s\": %s" : "  [\"%s\": %s]", o->name, values[o->kind]);
    putchar('\n');
}

void print_layers(void) {
    printf("layers of a model.json, {\"layer\": \"dense\", \"units\": 10}, and their options; those in [ ] may be left out\n");
    for (int i = 0; i < strata_n_layer_kinds; i++) print_layer(strata_layer_kinds[i]);
    printf("Each may have a \"name\". What options mean, losses, optimizers and schedules: core/README.md, strata/layers.h\n");
}
