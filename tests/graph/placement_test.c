/* SPDX-License-Identifier: Apache-2.0
 *
 * Placements: how they are printed, and which do not fit a mesh and a shape. */
#include "core/graph/placement.h"

#include <criterion/criterion.h>
#include <string.h>

static const strata_mesh mesh = {.n_axes = 2, .axes = {{"data", 3}, {"tensor", 2}}};
static const int64_t lengths[] = {4, 0, 3};
static const strata_dim_split rows = {.n_axes = 1, .axes = {0}, .lengths = lengths};

Test(placement, is_printed_in_the_words_of_a_mesh) {
    const strata_placement whole = {0}, split = {.dims = {rows}, .partial = 2}, own = {.own = 1};
    const strata_placement there = strata_placement_at(split, 1, 1);
    const strata_shape shape = STRATA_SHAPE(7, 5);
    cr_expect_str_eq(strata_placement_text(&mesh, &whole, shape).text, "(7, 5)");
    cr_expect_str_eq(strata_placement_text(&mesh, &split, shape).text, "(7 over data: 4 0 3, 5), partial over tensor");
    cr_expect_str_eq(strata_placement_text(&mesh, &own, shape).text, "(7, 5), own over data");
    cr_expect_str_eq(
        strata_placement_text(&mesh, &(strata_placement){.dims = {rows}, .at = 2, .coordinates = {0, 1}}, shape).text,
        "(7 over data: 4 0 3, 5), at coordinate 1 of tensor");
    cr_expect(strata_placement_has(&mesh, &there, 3) && !strata_placement_has(&mesh, &there, 2));
    cr_expect(!strata_placement_equal(&mesh, 2, &there, &split));
    const strata_placement elsewhere = strata_placement_at(split, 1, 0);
    cr_expect(!strata_placement_equal(&mesh, 2, &there, &elsewhere));
}

Test(placement, mentions_each_axis_once_and_only_coordinates_that_exist) {
    const struct {
        strata_placement placement;
        const char *word;
    } cases[] = {
        {{.dims = {rows}, .at = 1}, "axis data of the mesh is used twice"},
        {{.partial = 1, .at = 1}, "axis data of the mesh is used twice"},
        {{.own = 2, .at = 2}, "axis tensor of the mesh is used twice"},
        {{.own = 2, .partial = 2}, "axis tensor of the mesh is used twice"},
        {{.at = 2, .coordinates = {0, 2}}, "at coordinate 2 of axis tensor, whose size is 2"},
        {{.at = 1, .coordinates = {-1}}, "at coordinate -1 of axis data, whose size is 3"},
        {{.at = 4}, "an axis that the mesh does not have"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_error err = {0};
        cr_expect_eq(strata_placement_fits(&mesh, &cases[i].placement, STRATA_SHAPE(7, 5), &err), STRATA_INVALID);
        cr_expect_not_null(strstr(err.message, cases[i].word), "case %d: %s", (int)i, err.message);
    }
    const strata_placement good = {.dims = {rows}, .at = 2, .coordinates = {0, 1}};
    cr_expect_eq(strata_placement_fits(&mesh, &good, STRATA_SHAPE(7, 5), NULL), STRATA_OK);
}
