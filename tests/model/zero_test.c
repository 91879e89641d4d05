/* SPDX-License-Identifier: Apache-2.0
 *
 * ZeRO: which part of slots, gradients and parameters each device has. */
#include "core/model/zero.h"

#include <inttypes.h>

#include "core/model/mesh_spec.h"
#include "tests/model/model_case.h"

static strata_error err;
static strata_memory memory;
static const strata_placement whole;

Test(zero, each_level_divides_one_more) {
    strata_mesh mesh;
    OK(strata_mesh_read("data=3", 0, &mesh, &err));
    for (int level = 0; level <= STRATA_ZERO_MOST_LEVEL; level++) {
        strata_zero_placements zero;
        OK(strata_zero_place(&mesh, level, STRATA_SHAPE(100, 70), &whole, &memory, &zero, &err));
        cr_assert_eq(zero.slot.dims[0].n_axes, level >= 1);
        cr_assert_eq(zero.gradient.dims[0].n_axes, level >= 2);
        cr_assert_eq(zero.parameter.dims[0].n_axes, level >= 3);
    }
    strata_memory_finish(&memory);
}

static void expect(const char *mesh_text, strata_shape shape, const strata_placement *parameter, const char *wanted) {
    strata_mesh mesh;
    strata_zero_placements zero;
    OK(strata_mesh_read(mesh_text, 0, &mesh, &err));
    OK(strata_zero_place(&mesh, 1, shape, parameter, &memory, &zero, &err));
    OK(strata_placement_fits(&mesh, &zero.slot, shape, &err));
    cr_assert_str_eq(strata_placement_text(&mesh, &zero.slot, shape).text, wanted);
    strata_memory_finish(&memory);
}

Test(zero, the_divided_dimension_is_the_one_that_becomes_the_shortest) {
    expect("data=3", STRATA_SHAPE(100, 70), &whole, "(100 over data: 34 33 33, 70)");
    expect("data=3", STRATA_SHAPE(100, 69), &whole, "(100, 69 over data: 23 23 23)");
    expect("data=2", STRATA_SHAPE(100, 70), &whole, "(100 over data: 50 50, 70)");
    expect("data=4", STRATA_SHAPE(3, 3, 16, 10), &whole, "(3, 3, 16 over data: 4 4 4 4, 10)");
    const strata_placement rows = {.dims = {{.n_axes = 1, .axes = {1}, .lengths = (int64_t[]){36, 35}}}};
    expect("data=2,tensor=2", STRATA_SHAPE(71, 70), &rows, "(71 over tensor: 36 35, 70 over data: 35 35)");
}

Test(zero, a_dimension_that_is_divided_over_tensor_is_divided_again) {
    const strata_placement columns = {.dims = {{0}, {.n_axes = 1, .axes = {1}, .lengths = (int64_t[]){1100, 948}}}};
    expect("data=3,tensor=2", STRATA_SHAPE(1, 2048), &columns, "(1, 2048 over tensor, data: 367 367 366 316 316 316)");
}

Test(zero, small_values_and_those_divided_over_data_keep_their_placement) {
    expect("data=2", STRATA_SHAPE(STRATA_ZERO_LEAST_ELEMENTS - 1), &whole, "(1023)");
    expect("data=2", STRATA_SHAPE(STRATA_ZERO_LEAST_ELEMENTS), &whole, "(1024 over data: 512 512)");
    expect("data=2", STRATA_SHAPE(0, 4096), &whole, "(0, 4096)");
    const strata_placement columns = {.dims = {{0}, {.n_axes = 1, .axes = {0}, .lengths = (int64_t[]){40, 24}}}};
    expect("data=2", STRATA_SHAPE(64, 64), &columns, "(64, 64 over data: 40 24)");
}

Test(zero, wrong_levels_and_meshes_without_data_are_refused) {
    strata_mesh mesh;
    strata_zero_placements zero;
    OK(strata_mesh_read("data=2", 0, &mesh, &err));
    FAILS(strata_zero_place(&mesh, 4, STRATA_SHAPE(64, 64), &whole, &memory, &zero, &err), STRATA_INVALID,
          "zero is 4; it must be 1 (slots), 2 (slots and gradients), 3 (also parameters), or 0");
    FAILS(strata_zero_place(&mesh, -1, STRATA_SHAPE(64, 64), &whole, &memory, &zero, &err), STRATA_INVALID, "zero is -1");
    const char *const without[] = {"tensor=2", "data=1,tensor=2"};
    for (int i = 0; i < 2; i++) {
        OK(strata_mesh_read(without[i], 0, &mesh, &err));
        OK(strata_zero_place(&mesh, 0, STRATA_SHAPE(64, 64), &whole, &memory, &zero, &err));
        FAILS(strata_zero_place(&mesh, 2, STRATA_SHAPE(64, 64), &whole, &memory, &zero, &err), STRATA_INVALID,
              "zero is 2, which divides over the axis data, but the mesh is");
        cr_assert_not_null(strstr(err.message, without[i]));
    }
}

/* ---- random placements over tensor ---- */

static uint32_t draw(uint64_t *state, uint32_t below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

/* The pieces of the devices that differ only in `data` follow each other and are together the piece of the parameter. */
static void check_pieces(const strata_mesh *mesh, strata_shape shape, const strata_placement *parameter,
                         const strata_placement *slot, uint64_t seed) {
    const int data = strata_mesh_find(mesh, "data");
    for (int first = 0; first < strata_mesh_n_devices(mesh); first++) {
        int64_t begin[STRATA_MAX_RANK], all = 0, piece_begin[STRATA_MAX_RANK];
        const strata_shape part = strata_placement_part(mesh, parameter, shape, first, begin);
        if (strata_mesh_coordinate(mesh, first, data)) continue;
        for (int device = first; device < strata_mesh_n_devices(mesh); device++) {
            if (strata_mesh_coordinate(mesh, device, 1 - data) != strata_mesh_coordinate(mesh, first, 1 - data)) continue;
            const strata_shape piece = strata_placement_part(mesh, slot, shape, device, piece_begin);
            for (int d = 0; d < shape.rank; d++) {
                cr_assert_eq(piece_begin[d], begin[d], "seed %" PRIu64, seed);
                if (slot->dims[d].n_axes > parameter->dims[d].n_axes) begin[d] += piece.dims[d];
            }
            all += strata_shape_elements(piece);
        }
        cr_assert_eq(all, strata_shape_elements(part), "seed %" PRIu64, seed);
    }
}

Test(zero, pieces_over_data_are_together_the_pieces_of_the_parameter) {
    for (uint64_t seed = 1; seed <= 500; seed++) {
        uint64_t state = seed;
        strata_zero_placements zero;
        strata_mesh mesh;
        int64_t lengths[3] = {0};
        const strata_shape shape = STRATA_SHAPE(20 + (int64_t)draw(&state, 60), 60 + (int64_t)draw(&state, 60));
        OK(strata_mesh_read(draw(&state, 2) ? "data=3,tensor=3" : "tensor=3,data=3", 0, &mesh, &err));
        const int d = (int)draw(&state, 2);
        for (int64_t left = shape.dims[d]; left; left--) lengths[draw(&state, 3) * draw(&state, 2)]++;
        strata_placement parameter = {.partial = 0};
        parameter.dims[d] = (strata_dim_split){.n_axes = 1, .axes = {strata_mesh_find(&mesh, "tensor")}, .lengths = lengths};
        OK(strata_zero_place(&mesh, 3, shape, &parameter, &memory, &zero, &err));
        OK(strata_placement_fits(&mesh, &zero.parameter, shape, &err));
        check_pieces(&mesh, shape, &parameter, &zero.parameter, seed);
    }
    strata_memory_finish(&memory);
}
