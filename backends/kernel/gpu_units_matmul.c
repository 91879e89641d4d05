/* SPDX-License-Identifier: Apache-2.0
 *
 * The family gpu/units_matmul: shaders/matrix_units/matmul.kernel for real GPUs that have matrix units. It takes products of
 * f16 and bf16, whose sums stay f32; those of f32, split into f16, only where options.fast allows other last bits. With
 * options.fast the tiles without matrix units (gpu/matmul) are candidates as well, since they have other last bits.
 *
 * Tiles change no bit. How fast they are was not measured on hardware: the model of their cost orders them, the tuner decides.
 * Parts of a long k are those of gpu/matmul, rounded up to whole steps of a tile. */
#include <stdio.h>

#include "backends/kernel/gpu_tiles.h"
#include "core/op/copy.h"
#include "core/op/matmul.h"

extern const strata_family strata_family_gpu_matmul;

enum { GROUPS_M, GROUPS_N, UNITS_M, UNITS_N, WITHOUT_UNITS = 5 }; /* candidate->values; a plain tile has 1 in the last one */
enum {
    SUMS = 5,       /* the kernel's buffer for sums of parts, behind that for the result */
    UNIT_STEPS = 2, /* TILE_K of the kernel, in units, */
    PAD = 4,        /* its PAD, */
    MOST_SUBGROUPS = 8,
    MOST_SUMS = 64,     /* registers of a work-item for its sums: with 128 Mesa's compiler for AMD puts them into memory */
    FULL_SUBGROUPS = 8, /* that a compute unit needs to hide what it waits for */
    UNKNOWN_UNITS = 32
};

/* Subgroups of a work-group along m and n, units of each. */
static const int tiles[][4] = {{2, 2, 4, 4}, {2, 4, 4, 2}, {2, 2, 4, 2}, {2, 2, 2, 4}, {2, 2, 2, 2},
                               {2, 2, 1, 2}, {2, 2, 2, 1}, {2, 2, 1, 1}, {1, 4, 1, 2}, {1, 4, 1, 1}};
enum { N_TILES = sizeof tiles / sizeof *tiles };

static const strata_matrix_unit *unit_of(const strata_kernel_limits *limits, strata_dtype dtype) {
    return dtype == STRATA_DTYPE_BF16 ? &limits->bf16_unit : &limits->f16_unit;
}

static bool is_split(const strata_tensor *node) {
    return node->dtype == STRATA_DTYPE_F32;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static int64_t tile_m(const strata_matrix_unit *unit, const int *tile) {
    return (int64_t)tile[GROUPS_M] * tile[UNITS_M] * unit->m;
}
static int64_t tile_n(const strata_matrix_unit *unit, const int *tile) {
    return (int64_t)tile[GROUPS_N] * tile[UNITS_N] * unit->n;
}

static int64_t part_of(const strata_matmul_sizes *s, const strata_matrix_unit *unit) {
    const strata_tiled_product product = {.m = s->m, .n = s->n, .batch = s->n_batch};
    const int64_t step = UNIT_STEPS * unit->k;
    return ceil_div(strata_tiles_part(&product, s->k, TILE_LEAST_PART), step) * step;
}

static int64_t n_parts(const strata_matmul_sizes *s, const strata_matrix_unit *unit) {
    return s->k ? ceil_div(s->k, part_of(s, unit)) : 1;
}

static int64_t count_tiles(const strata_matmul_sizes *s, const strata_matrix_unit *unit, const int *tile) {
    return s->n_batch * n_parts(s, unit) * ceil_div(s->m, tile_m(unit, tile)) * ceil_div(s->n, tile_n(unit, tile));
}

/* Words of 4 bytes in local memory for `across` rows or columns of an operand, one of its 16-bit matrices. */
static int64_t room(const strata_matrix_unit *unit, int64_t across) {
    const int64_t steps = UNIT_STEPS * unit->k;
    return across * steps / 2 + PAD * (across + steps);
}

static bool fits_device(const strata_kernel_limits *limits, const strata_matrix_unit *unit, bool split, const int *tile) {
    const uint32_t subgroups = (uint32_t)(tile[GROUPS_M] * tile[GROUPS_N]), items = subgroups * limits->unit_lanes;
    const uint32_t sums = (uint32_t)(tile[UNITS_M] * tile[UNITS_N]) * unit->m * unit->n / limits->unit_lanes;
    const int64_t m = tile_m(unit, tile), n = tile_n(unit, tile);
    const int64_t words = (1 + split) * (room(unit, m) + room(unit, n)) + subgroups * unit->m * unit->n + 2;
    return (uint64_t)words * 4 <= limits->local_bytes && items <= limits->max_workgroup && items <= limits->max_local[0] &&
           sums <= MOST_SUMS && (limits->item_registers == 0 || 2 * sums <= limits->item_registers) &&
           m * unit->k % items == 0 && n * unit->k % items == 0;
}

bool strata_units_multiply(const strata_kernel_limits *limits, strata_dtype dtype) {
    if (limits->device_class < STRATA_DEVICE_INTEGRATED_GPU || !limits->unit_lanes || !strata_dtype_is_float(dtype))
        return false;
    const strata_matrix_unit *unit = unit_of(limits, dtype);
    const bool split = dtype == STRATA_DTYPE_F32;
    return unit->m && (limits->fast || !split) && fits_device(limits, unit, split, tiles[N_TILES - 1]) &&
           strata_shader_find("matrix_units/matmul", strata_dtype_name(dtype));
}

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    return strata_units_multiply(limits, node->dtype);
}

/* Of one step of k, relative: the subgroups' multiplications, and half as long for each unit of an operand that is read from
 * local memory for them, one tile after another on each compute unit; or what one subgroup does where there are too few. */
static double cost_of(const strata_kernel_limits *limits, const strata_matmul_sizes *s, const strata_matrix_unit *unit,
                      const int *tile) {
    const int64_t units = limits->compute_units > 1 ? limits->compute_units : UNKNOWN_UNITS;
    const int64_t count = count_tiles(s, unit, tile), subgroups = (int64_t)tile[GROUPS_M] * tile[GROUPS_N];
    const double each = (double)ceil_div(count ? count : 1, units), busy = each * (double)subgroups / FULL_SUBGROUPS;
    const double work = tile[UNITS_M] * tile[UNITS_N] + 0.5 * (tile[UNITS_M] + tile[UNITS_N]);
    return each * (double)subgroups * work / (busy < 1 ? busy : 1);
}

static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const strata_matmul_sizes s = strata_matmul_sizes_of(node);
    const strata_matrix_unit *unit = unit_of(limits, node->dtype);
    double costs[STRATA_TILES_TRIED];
    int n = 0;
    for (int i = 0; i < N_TILES; i++) {
        const int *t = tiles[i];
        if (!fits_device(limits, unit, is_split(node), t)) continue;
        strata_candidate candidate = {.exact = true, .values = {t[0], t[1], t[2], t[3]}};
        snprintf(candidate.name, sizeof candidate.name, "units tile=%dx%d subgroups=%dx%d", (int)tile_m(unit, t),
                 (int)tile_n(unit, t), t[GROUPS_M], t[GROUPS_N]);
        n = strata_tiles_keep_cheapest(out, costs, n, &candidate, cost_of(limits, &s, unit, t));
    }
    if (!limits->fast || !strata_family_gpu_matmul.fits(limits, node)) return n;
    const int plain = strata_family_gpu_matmul.candidates(limits, node, out + n);
    for (int i = n; i < n + plain; i++) {
        out[i].exact = false;
        out[i].values[WITHOUT_UNITS] = 1;
    }
    return n + plain;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    const int *tile = candidate->values;
    if (tile[WITHOUT_UNITS]) return strata_family_gpu_matmul.lower(limits, node, candidate, lowering, err);
    const strata_matmul_sizes s = strata_matmul_sizes_of(node);
    const strata_matrix_unit *unit = unit_of(limits, node->dtype);
    const int64_t parts = n_parts(&s, unit);
    const strata_launch_constant constants[] = {
        {"UNIT_M", (int32_t)unit->m}, {"UNIT_N", (int32_t)unit->n}, {"UNIT_K", (int32_t)unit->k}, {"GROUPS_M", tile[GROUPS_M]},
        {"GROUPS_N", tile[GROUPS_N]}, {"UNITS_M", tile[UNITS_M]},   {"UNITS_N", tile[UNITS_N]}};
    strata_launch launch = strata_matmul_launch(node);
    launch.kernel = "matrix_units/matmul";
    strata_launch_word(&launch)->u32 = (uint32_t)parts;
    strata_launch_word(&launch)->u32 = (uint32_t)part_of(&s, unit);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) launch.constants[launch.n_constants++] = constants[i];
    strata_tiles_launch_parts(node, parts, &launch);
    launch.variant = strata_dtype_name(node->dtype);
    launch.n_buffers = SUMS + 1;
    launch.writes = 1u << (parts > 1 ? SUMS : SUMS - 1);
    launch.constants[launch.n_constants++] = (strata_launch_constant){"SUMS", parts > 1};
    launch.local[0] = tile[GROUPS_M] * tile[GROUPS_N] * (int)limits->unit_lanes;
    launch.global[0] = launch.local[0] * count_tiles(&s, unit, tile);
    STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    return parts > 1 ? strata_tiles_fold(node, s.n, parts, lowering, err) : STRATA_OK;
}

const strata_family strata_family_gpu_units_matmul = {
    .name = "gpu/units_matmul", .op = "matmul", .fits = fits, .candidates = candidates, .lower = lower};
