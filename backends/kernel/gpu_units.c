/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "backends/kernel/gpu_tiles.h"

/* candidate->values. WITHOUT_UNITS is 1 in a candidate without matrix units. */
enum { GROUPS_M, GROUPS_N, UNITS_M, UNITS_N, WITHOUT_UNITS = 5 };
enum {
    /* TILE_K of the kernels, in matrix units. */
    UNIT_STEPS = 2,
    /* PAD of the kernels. */
    PAD = 4,
    /* The most registers of a work-item for its sums. With 128, Mesa's compiler for AMD stores them in memory. */
    MOST_SUMS = 64
};

/* For each tile: the subgroups of a work-group along m and n, and the matrix units of each subgroup along m and n. */
static const int tiles[][4] = {{2, 2, 4, 4}, {2, 4, 4, 2}, {2, 2, 4, 2}, {2, 2, 2, 4}, {2, 2, 2, 2},
                               {2, 2, 1, 2}, {2, 2, 2, 1}, {2, 2, 1, 1}, {1, 4, 1, 2}, {1, 4, 1, 1}};
enum { N_TILES = sizeof tiles / sizeof *tiles };

static const strata_matrix_unit *unit_of(const strata_kernel_limits *limits, strata_dtype dtype) {
    return dtype == STRATA_DTYPE_BF16 ? &limits->bf16_unit : &limits->f16_unit;
}

static int64_t tile_m(const strata_matrix_unit *unit, const int *tile) {
    return (int64_t)tile[GROUPS_M] * tile[UNITS_M] * unit->m;
}
static int64_t tile_n(const strata_matrix_unit *unit, const int *tile) {
    return (int64_t)tile[GROUPS_N] * tile[UNITS_N] * unit->n;
}

static int64_t count_tiles(const strata_tiled_product *product, const strata_matrix_unit *unit, const int *tile) {
    return product->batch * strata_ceil_div(product->m, tile_m(unit, tile)) * strata_ceil_div(product->n, tile_n(unit, tile));
}

/* The 4-byte words of local memory for the tile of one operand, with `across` rows or columns of 16-bit values. */
static int64_t operand_words(const strata_matrix_unit *unit, int64_t across) {
    const int64_t steps = UNIT_STEPS * unit->k;
    return across * steps / 2 + PAD * (across + steps);
}

static int64_t local_words(const strata_matrix_unit *unit, bool split, const strata_tiled_product *product, const int *tile) {
    const int64_t m = tile_m(unit, tile), n = tile_n(unit, tile), subgroups = tile[GROUPS_M] * tile[GROUPS_N];
    return (1 + split) * (operand_words(unit, m) + operand_words(unit, n)) + subgroups * unit->m * unit->n + 2 +
           product->words_a_row * m + product->words_a_step * UNIT_STEPS * unit->k;
}

static bool fits_device(const strata_kernel_limits *limits, strata_dtype dtype, const strata_tiled_product *product,
                        const int *tile) {
    const strata_matrix_unit *unit = unit_of(limits, dtype);
    const uint32_t items = (uint32_t)(tile[GROUPS_M] * tile[GROUPS_N]) * limits->unit_lanes;
    const uint32_t sums = (uint32_t)(tile[UNITS_M] * tile[UNITS_N]) * unit->m * unit->n / limits->unit_lanes;
    const int64_t m = tile_m(unit, tile), n = tile_n(unit, tile);
    const int64_t bytes = 4 * local_words(unit, dtype == STRATA_DTYPE_F32, product, tile);
    const bool whole_columns = items % unit->k == 0 && items % (m / 2) == 0 && items % (n / 2) == 0;
    return (uint64_t)bytes <= limits->local_bytes && items <= limits->max_workgroup && items <= limits->max_local[0] &&
           sums <= MOST_SUMS && (limits->item_registers == 0 || 2 * sums <= limits->item_registers) && whole_columns &&
           m * unit->k % items == 0 && n * unit->k % items == 0;
}

static bool can_multiply(const strata_kernel_limits *limits, strata_dtype dtype, const char *kernel,
                         const strata_tiled_product *product) {
    if (limits->device_class < STRATA_DEVICE_INTEGRATED_GPU || !limits->unit_lanes || !strata_dtype_is_float(dtype))
        return false;
    return unit_of(limits, dtype)->m && (limits->fast || dtype != STRATA_DTYPE_F32) &&
           fits_device(limits, dtype, product, tiles[N_TILES - 1]) && strata_shader_find(kernel, strata_dtype_name(dtype));
}

bool strata_units_multiply(const strata_kernel_limits *limits, strata_dtype dtype) {
    return can_multiply(limits, dtype, "matrix_units/matmul", &(strata_tiled_product){0});
}

bool strata_units_fit(const strata_kernel_limits *limits, const strata_tensor *node, const char *kernel,
                      const strata_tiled_product *product) {
    return can_multiply(limits, node->dtype, kernel, product);
}

int64_t strata_units_part(const strata_kernel_limits *limits, const strata_tensor *node, int64_t part) {
    const int64_t step = UNIT_STEPS * unit_of(limits, node->dtype)->k;
    return strata_ceil_div(part, step) * step;
}

int strata_units_candidates(const strata_kernel_limits *limits, const strata_tensor *node, const strata_tiled_product *product,
                            const strata_family *plain, strata_candidate *out) {
    const strata_matrix_unit *unit = unit_of(limits, node->dtype);
    double costs[STRATA_TILES_TRIED];
    int n = 0;
    for (int i = 0; i < N_TILES; i++) {
        const int *t = tiles[i];
        if (!fits_device(limits, node->dtype, product, t)) continue;
        strata_candidate candidate = {.exact = true, .values = {t[0], t[1], t[2], t[3]}};
        snprintf(candidate.name, sizeof candidate.name, "units tile=%dx%d subgroups=%dx%d", (int)tile_m(unit, t),
                 (int)tile_n(unit, t), t[GROUPS_M], t[GROUPS_N]);
        /* A subgroup multiplies UNITS_M x UNITS_N pairs of matrices and reads UNITS_M + UNITS_N of them from local memory,
         * which takes half as long each. */
        const int subgroups = t[GROUPS_M] * t[GROUPS_N];
        const double work = subgroups * (t[UNITS_M] * t[UNITS_N] + 0.5 * (t[UNITS_M] + t[UNITS_N]));
        n = strata_tiles_keep_cheapest(out, costs, n, &candidate,
                                       strata_tiles_cost(limits, count_tiles(product, unit, t), subgroups, work));
    }
    if (!limits->fast || !plain->fits(limits, node)) return n;
    const int more = plain->candidates(limits, node, out + n);
    for (int i = n; i < n + more; i++) {
        out[i].exact = false;
        out[i].values[WITHOUT_UNITS] = 1;
    }
    return n + more;
}

bool strata_units_is_plain(const strata_candidate *candidate) {
    return candidate->values[WITHOUT_UNITS];
}

void strata_units_launch(const strata_kernel_limits *limits, const strata_tensor *node, const strata_tiled_product *product,
                         const strata_candidate *candidate, bool in_parts, strata_launch *launch) {
    const strata_matrix_unit *unit = unit_of(limits, node->dtype);
    const int *tile = candidate->values;
    STRATA_LAUNCH_CONSTANTS(launch, {"UNIT_M", (int32_t)unit->m}, {"UNIT_N", (int32_t)unit->n}, {"UNIT_K", (int32_t)unit->k},
                            {"GROUPS_M", tile[GROUPS_M]}, {"GROUPS_N", tile[GROUPS_N]}, {"UNITS_M", tile[UNITS_M]},
                            {"UNITS_N", tile[UNITS_N]}, {"SUMS", in_parts});
    launch->variant = strata_dtype_name(node->dtype);
    launch->writes = 1u << (in_parts ? launch->n_buffers : launch->n_buffers - 1);
    launch->buffers[launch->n_buffers++] = NULL; /* the sums of parts */
    launch->local[0] = tile[GROUPS_M] * tile[GROUPS_N] * (int)limits->unit_lanes;
    launch->global[0] = launch->local[0] * count_tiles(product, unit, tile);
}
