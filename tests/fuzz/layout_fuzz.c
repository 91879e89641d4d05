/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the rules of a layout: a message, or placements that fit the parameters. */
#include <stdlib.h>
#include <string.h>

#include "core/model/layout.h"
#include "core/model/mesh_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const strata_parameter_spec parameters[] = {{.name = "dense/kernel", .shape = {2, {30, 7}}},
                                                   {.name = "dense/bias", .shape = {1, {7}}},
                                                   {.name = "dense_1/kernel", .shape = {2, {7, 2}}}};
enum { N = sizeof parameters / sizeof *parameters };

static void apply(const strata_layout *layout) {
    const strata_layout_model model = {.parameters = parameters, .n_parameters = N};
    strata_memory memory = {0};
    strata_mesh mesh;
    strata_placement placements[N];
    const char *reasons[N];
    strata_error err = {0};
    if (strata_mesh_read("data=2,tensor=3", 0, &mesh, &err)) abort();
    const strata_status status = strata_layout_apply(layout, &mesh, &model, &memory, placements, reasons, &err);
    if (status && strncmp(err.message, "layout: ", 8) != 0) abort();
    for (int i = 0; i < N && !status; i++)
        if (strata_placement_fits(&mesh, &placements[i], parameters[i].shape, &err)) abort();
    strata_memory_finish(&memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_layout layout;
    strata_error err = {0};
    const strata_status status = strata_layout_read("input", (const char *)data, size, &layout, &err);
    if (!status) {
        apply(&layout);
    } else if (status != STRATA_OUT_OF_MEMORY && (status != STRATA_DATA || strncmp(err.message, "input:", 6) != 0)) {
        abort();
    }
    strata_layout_finish(&layout);
    return 0;
}
