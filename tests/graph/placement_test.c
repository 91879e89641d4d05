/* SPDX-License-Identifier: Apache-2.0
 *
 * Placements: which part each device has, how they are printed, and which do not fit a mesh and a shape. */
#include "core/graph/placement.h"

#include <criterion/criterion.h>
#include <string.h>

#include "core/op/ops.h"
#include "strata/ops.h"

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

/* Dimension 0 is divided over `a` first and `b` second, and dimension 1 over `c`: pieces are numbered in row-major order. */
static void expect_parts(const strata_mesh *grid, int a, int b, int c) {
    int64_t rows_of[64], columns_of[64];
    int64_t shape[2] = {0, 0};
    const int n_rows = grid->axes[a].size * grid->axes[b].size;
    for (int i = 0; i < n_rows; i++) shape[0] += rows_of[i] = 1 + (i * 5) % 4;
    for (int i = 0; i < grid->axes[c].size; i++) shape[1] += columns_of[i] = i * 2;
    const strata_placement placement = {
        .dims = {{.n_axes = 2, .axes = {a, b}, .lengths = rows_of}, {.n_axes = 1, .axes = {c}, .lengths = columns_of}}};
    int device = 0;
    for (int i = 0; i < grid->axes[0].size; i++)
        for (int j = 0; j < grid->axes[1].size; j++)
            for (int k = 0; k < grid->axes[2].size; k++, device++) {
                const int at[3] = {i, j, k}, piece = at[a] * grid->axes[b].size + at[b];
                int64_t begin[2], first[2] = {0, 0};
                for (int p = 0; p < piece; p++) first[0] += rows_of[p];
                for (int p = 0; p < at[c]; p++) first[1] += columns_of[p];
                const strata_shape part =
                    strata_placement_part(grid, &placement, STRATA_SHAPE(shape[0], shape[1]), device, begin);
                cr_expect(part.dims[0] == rows_of[piece] && part.dims[1] == columns_of[at[c]] && begin[0] == first[0] &&
                              begin[1] == first[1],
                          "device %d of %d x %d x %d over %d %d and %d", device, grid->axes[0].size, grid->axes[1].size,
                          grid->axes[2].size, a, b, c);
            }
}

Test(placement, gives_each_device_the_part_at_its_coordinates) {
    const strata_mesh meshes[] = {{.n_axes = 3, .axes = {{"data", 2}, {"tensor", 3}, {"stage", 4}}},
                                  {.n_axes = 3, .axes = {{"data", 5}, {"tensor", 2}, {"stage", 1}}},
                                  {.n_axes = 3, .axes = {{"data", 1}, {"tensor", 4}, {"stage", 3}}}};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++)
                if (a != b) expect_parts(&meshes[m], a, b, 3 - a - b);
}

/* The rule of a node numbers its factors from 0: the last number that a dimension has is the largest one. */
static void expect_factors_are_counted(const strata_tensor *node, const char *what) {
    strata_factor_dims inputs[2];
    strata_factors factors = {.inputs = inputs};
    int most = -1;
    strata_factors_of(node, false, &factors);
    for (int i = 0; i <= node->n_inputs; i++)
        for (int d = 0; d < STRATA_MAX_RANK; d++) {
            const int factor = (i < node->n_inputs ? &inputs[i] : &factors.result)->factor[d];
            most = factor > most ? factor : most;
        }
    cr_expect(most >= 0 && factors.n == most + 1, "%s: %d factors, of which the last is %d", what, factors.n, most);
}

Test(placement, rules_count_their_factors) {
    strata_graph *graph = NULL;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(2, 3, 4)),
                  *y = strata_input(graph, "y", STRATA_DTYPE_F32, STRATA_SHAPE(4, 5)),
                  *z = strata_input(graph, "z", STRATA_DTYPE_F32, STRATA_SHAPE(3, 1));
    expect_factors_are_counted(strata_matmul(x, y, false, false), "matmul");
    expect_factors_are_counted(strata_add(x, z), "add");
    expect_factors_are_counted(strata_reduce_sum(x, (int[]){1}, 1, false), "reduce_sum");
    expect_factors_are_counted(strata_transpose(y, (int[]){1, 0}), "transpose");
    strata_graph_destroy(graph);
}
