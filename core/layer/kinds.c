/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of layer kinds, from layers.def, and the entries of "layers" in a model.json as text, from the tables that
 * read them. */
#include "core/layer/layer.h"
#include "strata/text.h"

const strata_layer_kind *const strata_layer_kinds[] = {
#define STRATA_LAYER(name) &strata_layer_##name,
#include "core/layer/layers.def"
#undef STRATA_LAYER
};
const int strata_n_layer_kinds = sizeof strata_layer_kinds / sizeof *strata_layer_kinds;

/* An option as it is written: units=N, kernel_size=[N,N], no_bias=true. */
static const char *const values[] = {[STRATA_OPTION_INT] = "N",           [STRATA_OPTION_PAIR] = "[N,N]",
                                     [STRATA_OPTION_BORDER_1D] = "[N,N]", [STRATA_OPTION_BORDER_2D] = "[N,N,N,N]",
                                     [STRATA_OPTION_NUMBER] = "R",        [STRATA_OPTION_BOOL] = "true",
                                     [STRATA_OPTION_STRING] = "\"...\"",  [STRATA_OPTION_ACTIVATION] = "\"...\"",
                                     [STRATA_OPTION_NUMBERS] = "[R,...]", [STRATA_OPTION_SHAPE] = "[N,...]",
                                     [STRATA_OPTION_COUNT] = "N"};

static void add_layer(strata_text *text, const strata_layer_kind *kind) {
    strata_text_add(text, "  %s", kind->name);
    for (int i = 0; i < STRATA_MAX_BRANCHES && kind->branches[i]; i++)
        strata_text_add(text, i ? "  [\"%s\": [layers]]" : "  \"%s\": [layers]", kind->branches[i]);
    for (const strata_option *o = kind->options; o->name; o++)
        strata_text_add(text, o->required ? "  \"%s\": %s" : "  [\"%s\": %s]", o->name, values[o->kind]);
    strata_text_add(text, "\n");
}

strata_status strata_layers_text(char **out_text, strata_error *err) {
    strata_text text = {0};
    for (int i = 0; i < strata_n_layer_kinds; i++) add_layer(&text, strata_layer_kinds[i]);
    return strata_text_take(&text, out_text, NULL, err);
}
