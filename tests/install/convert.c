/* SPDX-License-Identifier: Apache-2.0
 *
 * A user's program with libstrata_interchange: describes a small model, and writes it as C. */
#include <stdio.h>
#include <stdlib.h>
#include <strata/describe.h>
#include <strata/interchange.h>

int main(int argc, char **argv) {
    strata_error err = {0};
    strata_device *host = NULL;
    strata_model *model = NULL;
    strata_model_structure s = {0};
    if (argc != 2 || strata_device_open("host", NULL, &host, &err) || strata_model_create(STRATA_SHAPE(3), &model, &err))
        return 1;
    strata_model_add_layer(model, "dense", NULL, &(strata_dense_options){.units = 2});
    if (strata_model_build(model, host, NULL, &err) || strata_model_describe(model, &s, &err) ||
        strata_model_save_c(model, argv[1], (strata_c_options){0}, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (int i = 0; i < s.n_calls; i++) printf("%s %s\n", s.calls[i].kind, strata_shape_text(s.calls[i].shape).text);
    free(s.calls);
    strata_model_destroy(model);
    strata_device_close(host);
    return 0;
}
