/* SPDX-License-Identifier: Apache-2.0
 *
 * The family cpu/matmul: shaders/cpu/matmul.kernel for OpenCL on CPUs. Chooses the register tile, how the result is
 * divided into blocks, and whether b is packed. A cost model estimates the cycles of each tile from the sizes alone and
 * ranks the tiles.
 *
 * For a large product all tiles are candidates, so the tuner measures them. For other products only the model's best
 * tile is a candidate, for three reasons. A product that is timed alone has all operands in the caches, so a tile may
 * seem faster than it is within a training step. The two best tiles of the model differ by only some percent. And on
 * first use, each kernel that is timed has to be compiled. */
#include <stdio.h>

#include "backends/kernel/lowering.h"
#include "core/op/matmul.h"

/* A register tile of rows x cols vectors. Its accumulators must fit into 32 vector registers with AVX-512 and into 16
 * otherwise. */
typedef struct tile_shape {
    int rows, cols;
} tile_shape;

enum { WIDE_TILES = 6, NARROW_TILES = 4 };
static const tile_shape wide_tiles[WIDE_TILES] = {{6, 4}, {5, 4}, {12, 2}, {8, 3}, {8, 2}, {16, 1}};
static const tile_shape narrow_tiles[NARROW_TILES] = {{6, 2}, {4, 3}, {4, 2}, {12, 1}};

/* Tiles for matrices with 1 to 3 rows. They have more columns, so that there are still enough accumulators to hide the
 * latency of a multiply-add. */
enum { FEW_ROWS = 3 };
static const tile_shape few_rows[FEW_ROWS] = {{1, 8}, {2, 4}, {3, 3}};

/* candidate->values */
enum { ROWS, COLS, PACK, BLOCKS_M, BLOCK_N, BLOCK_K };
enum {
    /* Bytes. If a larger second-level cache is reported, it is not the cache of one core, so only this much is counted. */
    MOST_CACHE = 2 << 20,
    /* The most steps of k in a part. In shorter parts, storing and loading c again costs more than the longer panels do. */
    PART_OF_K = 1536,
    /* The same if a is stored as (K, M): then the cache lines of a that a tile reads, one for each step, should stay in
     * the first-level cache. */
    PART_OF_K_TA = 320,
    /* Multiply-adds. A smaller product is one block, since waking a second core takes longer. */
    SMALL = 1 << 18,
    /* The same limit where no core has to be woken (limits->cheap_groups). */
    VERY_SMALL = 1 << 14,
    /* Multiply-adds. A larger product has more blocks, and the tuner measures its tiles. */
    LARGE = 1 << 24,
    /* Floats in the first-level cache. */
    FIRST_LEVEL_FLOATS = 8 << 10,
    /* Floats from one cache line of the first-level cache to the next in the same set. */
    SAME_SET_FLOATS = 1 << 10
};
/* Cycles, measured on Zen 3; those with WIDE in the name, NEW_B_COST and OTHER_CORE_COST were measured on Sapphire Rapids.
 * A cache line has 64 bytes. */
static const double
    /* Packing one vector of b. The vectors of consecutive rows lie in different lines of the second- or third-level cache. */
    PACK_COST = 8,
    /* Reading a line of b that is not packed and not in the first-level cache. */
    FAR_B_COST = 2,
    /* The same with AVX-512, for a whole row of a panel, since the lines of a row arrive together. */
    FAR_B_COST_WIDE = 4,
    /* The same in a large product if b fits into the second-level cache and its rows lie in different sets of the
     * first-level cache. */
    NEAR_B_COST_WIDE = 0.5,
    /* Reading a line of b that is not packed for the first time in a block. */
    NEW_B_COST = 1,
    /* Reading a line of a for the first time in a block. */
    FAR_A_COST = 1,
    /* The same if a is stored as (K, M): then the next line is a row of a away and is not prefetched. */
    FAR_A_COST_TA = 32,
    /* Reading a line of a or b that another core may have written. */
    OTHER_CORE_COST = 20;

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    if (!strata_cpu_takes(limits, node)) return false;
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    const int64_t most = INT32_MAX;
    if (!s.m || !s.n || !s.k || !s.n_batch) return false; /* there are no blocks; the portable kernel stores zeros or nothing */
    return s.m * s.n <= most && s.m * s.k <= most && s.k * s.n <= most && s.m * s.n * s.n_batch <= most;
}

/* Reduces a tile that is larger than the result. */
static tile_shape clip_tile(tile_shape tile, const strata_kernel_limits *limits, const strata_matmul_sizes *s) {
    const int64_t vectors = strata_ceil_div(s->n, strata_cpu_lanes(limits));
    return (tile_shape){tile.rows < s->m ? tile.rows : (int)s->m, tile.cols < vectors ? tile.cols : (int)vectors};
}

/* The number of multiply-adds. */
static int64_t work_of(const strata_matmul_sizes *s) {
    return s->m * s->n * s->k * s->n_batch;
}

/* Whether blocks are numbered column by column; this is chosen if b is the larger operand. A core computes consecutive
 * blocks, so it then reads only a part of b and all of a. Otherwise it reads a part of a and all of b. */
static bool by_columns(const strata_matmul_sizes *s) {
    return s->n > s->m;
}

/* How a product is computed with one tile, and the estimated cycles of the core that finishes last. */
typedef struct plan {
    tile_shape tile;
    bool pack, by_columns;
    /* The number of tiles of one matrix along m and n. */
    int64_t tiles_m, tiles_n;
    /* The number of blocks along m, and the number of tiles of a block along n. */
    int64_t blocks_m, block_n;
    /* Cycles of one tile; of packing or first reading a panel of b; of reading a tile's rows of a; and of the whole
     * product. */
    double tile_cost, panel_cost, row_cost, cost;
    /* Cycles of reading a tile's rows of a and a tile's columns of b from another core's cache. */
    double row_of_a, column_of_b;
} plan;

/* The cycles of one step of k. A core starts at most two multiply-adds and three instructions per cycle. A tile with
 * few accumulators takes four cycles, the latency of a multiply-add. */
static double step_cost(tile_shape tile) {
    double multiplies = tile.rows * tile.cols / 2.0, instructions = (tile.rows * tile.cols + tile.rows + tile.cols + 2) / 3.0;
    double cost = multiplies < 4 ? 4 : multiplies;
    return cost < instructions ? instructions : cost;
}

/* Divides the matrix into blocks_m x blocks_n blocks if that costs less than what the plan has so far. */
static void try_blocks(plan *p, int64_t units, int64_t n_batch, int64_t blocks_m, int64_t blocks_n) {
    const int64_t block_n = strata_ceil_div(p->tiles_n, blocks_n);
    /* The average number of tiles along m; the blocks differ by at most one. */
    const double block_m = (double)p->tiles_m / (double)blocks_m;
    blocks_n = strata_ceil_div(p->tiles_n, block_n);
    /* Blocks along a row (by_columns: along a column) form a line. A core computes a part of one line, or several whole
     * lines. */
    const int64_t of_core = strata_ceil_div(blocks_m * blocks_n * n_batch, units), across = p->by_columns ? blocks_m : blocks_n;
    const int64_t lines = strata_ceil_div(of_core, across), along = strata_least(of_core, across);
    const int64_t core_m = strata_least(strata_ceil_div((p->by_columns ? along : lines) * p->tiles_m, blocks_m), p->tiles_m);
    const int64_t core_n = strata_least((p->by_columns ? lines : along) * block_n, p->tiles_n);
    /* Tiles of a core. The last blocks may have fewer. */
    const double full = (double)(of_core * block_n) * block_m;
    const double tiles = n_batch == 1 && of_core == lines * along ? (double)(core_m * core_n) : full;
    const double block_cost = 200 + block_m * p->row_cost + (double)block_n * (p->panel_cost + block_m * p->tile_cost);
    const double cost =
        (double)of_core * block_cost * tiles / full + (double)core_m * p->row_of_a + (double)core_n * p->column_of_b;
    if (p->cost > 0 && cost >= p->cost) return;
    p->cost = cost;
    p->blocks_m = blocks_m;
    p->block_n = block_n;
}

/* The additional cycles of a step of k if b is not packed. */
static double far_b_cost(const strata_kernel_limits *limits, const strata_matmul_sizes *s, double lines_of_b) {
    if (s->k * s->n <= FIRST_LEVEL_FLOATS) return 0;
    if (strata_cpu_lanes(limits) != 16) return lines_of_b * FAR_B_COST;
    const bool stays = s->k * s->n * (int64_t)sizeof(float) <= strata_least((int64_t)limits->cache_bytes, MOST_CACHE);
    return work_of(s) >= LARGE && stays && s->b_row % SAME_SET_FLOATS ? NEAR_B_COST_WIDE : FAR_B_COST_WIDE;
}

static plan plan_of(const strata_kernel_limits *limits, const strata_tensor *node, tile_shape tile, bool pack) {
    const strata_matmul_attrs *attrs = node->attrs;
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    const int64_t units = limits->compute_units, columns = tile.cols * strata_cpu_lanes(limits);
    const int64_t work = work_of(&s);
    const double k = (double)s.k, other_core_cost = work < LARGE ? OTHER_CORE_COST : 0,
                 lines_of_b = (double)columns / 16 + (columns % 16 ? 0.5 : 0);
    plan p = {.tile = tile,
              .pack = pack,
              .by_columns = by_columns(&s),
              .tiles_m = strata_ceil_div(s.m, tile.rows),
              .tiles_n = strata_ceil_div(s.n, columns),
              .tile_cost = k * step_cost(tile) + tile.rows * tile.cols * 4.0 + 20 /* 20: storing the tile */,
              .panel_cost = k * (pack ? tile.cols * PACK_COST : lines_of_b * NEW_B_COST),
              .row_cost = k * tile.rows / 16 * (attrs->transpose_a ? FAR_A_COST_TA : FAR_A_COST),
              .row_of_a = k * tile.rows / 16 * other_core_cost,
              .column_of_b = k * lines_of_b * other_core_cost};
    if (!pack) p.tile_cost += k * far_b_cost(limits, &s, lines_of_b);
    /* The number of blocks. Several blocks per core balance the load: if a core is interrupted, the others compute its
     * remaining blocks. There are at most 4 per core and at least 1, and for a large product at most 16 and at least 2.
     * Waking a second core takes about 10 us, so a small product is one block. Where no core has to be woken
     * (cheap_groups), only a very small product is one block, and products from 16 * SMALL on have at least 8 blocks
     * per core: the speeds of the cores vary, and with 4 blocks one core was left waiting. */
    const int64_t all = p.tiles_m * p.tiles_n * s.n_batch;
    int64_t most = work < (limits->cheap_groups ? VERY_SMALL : SMALL) ? 1 : (work < LARGE ? 4 : 16) * units;
    int64_t least = work < (limits->cheap_groups ? 16 * SMALL : LARGE) ? units : (limits->cheap_groups ? 8 : 2) * units;
    if (least > most) least = most;
    if (least > all) least = all;
    for (int64_t n = 1; n <= p.tiles_n && n <= most; n++)
        for (int64_t m = 1; m <= p.tiles_m && (m == 1 || (m - 1) * n * s.n_batch < most); m++)
            if (m * n * s.n_batch >= least) try_blocks(&p, units, s.n_batch, m, n);
    return p;
}

/* b is packed if it is stored as (N, K), or if packing costs less. */
static plan cheaper_plan(const strata_kernel_limits *limits, const strata_tensor *node, tile_shape tile) {
    const strata_matmul_attrs *attrs = node->attrs;
    const plan packed = plan_of(limits, node, tile, true);
    if (attrs->transpose_b) return packed;
    const plan in_place = plan_of(limits, node, tile, false);
    return in_place.cost < packed.cost ? in_place : packed;
}

/* The floats of b that fit into local memory, for which 3/8 of the second-level cache are used. */
static int panels_of(const strata_kernel_limits *limits) {
    const int64_t part = strata_least((int64_t)limits->cache_bytes, MOST_CACHE) * 3 / 8;
    return (int)(strata_least(part, (int64_t)limits->local_bytes) / (int64_t)sizeof(float));
}

static strata_candidate candidate_of(const strata_kernel_limits *limits, const strata_tensor *node, const plan *p) {
    const strata_matmul_attrs *attrs = node->attrs;
    const int64_t k = strata_matmul_sizes_of(node).k, columns = p->tile.cols * strata_cpu_lanes(limits);
    int64_t part = attrs->transpose_a ? PART_OF_K_TA : PART_OF_K;
    if (part > panels_of(limits) / columns) part = panels_of(limits) / columns;
    const int64_t block_k = p->pack ? strata_ceil_div(k, strata_ceil_div(k, part)) : k; /* parts of equal length */
    strata_candidate candidate = {
        .exact = true,
        .values = {p->tile.rows, p->tile.cols, p->pack, (int)p->blocks_m, (int)(p->block_n * columns), (int)block_k}};
    snprintf(candidate.name, sizeof candidate.name, "tile=%dx%d", p->tile.rows, p->tile.cols);
    return candidate;
}

static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const strata_matmul_sizes s = strata_matmul_sizes_of(node);
    const bool few = s.m <= FEW_ROWS, wide = strata_cpu_lanes(limits) == 16;
    const tile_shape *tiles = few ? &few_rows[s.m - 1] : wide ? wide_tiles : narrow_tiles;
    const int n_tiles = few ? 1 : wide ? WIDE_TILES : NARROW_TILES;
    plan plans[WIDE_TILES];
    int n = 0;
    for (int t = 0; t < n_tiles; t++) {
        const tile_shape tile = clip_tile(tiles[t], limits, &s);
        bool duplicate = false; /* whether two tiles were reduced to the same tile */
        for (int i = 0; i < n; i++) duplicate |= plans[i].tile.rows == tile.rows && plans[i].tile.cols == tile.cols;
        if (duplicate) continue;
        const plan p = cheaper_plan(limits, node, tile);
        int at = n++; /* insert, sorted by cost */
        for (; at > 0 && plans[at - 1].cost > p.cost; at--) plans[at] = plans[at - 1];
        plans[at] = p;
    }
    if (work_of(&s) < LARGE) n = 1;
    for (int i = 0; i < n; i++) out[i] = candidate_of(limits, node, &plans[i]);
    return n;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    const strata_matmul_attrs *attrs = node->attrs;
    const int *v = candidate->values;
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    int64_t blocks = v[BLOCKS_M] * strata_ceil_div(s.n, v[BLOCK_N]) * s.n_batch;
    if (!s.m || !s.n || !s.n_batch) return STRATA_OK;
    const int panels = panels_of(limits);
    /* The columns whose panels fit into local memory together. */
    int group_n = v[BLOCK_N];
    if (v[PACK]) {
        const int columns = v[COLS] * strata_cpu_lanes(limits), fitting = panels / (v[BLOCK_K] * columns);
        group_n = (fitting > 1 ? fitting : 1) * columns;
    }
    strata_launch launch = strata_cpu_launch(limits, "cpu/matmul", blocks);
    STRATA_LAUNCH_CONSTANTS(&launch, {"ROWS", v[ROWS]}, {"COLS", v[COLS]}, {"TRANSPOSE_A", (int32_t)attrs->transpose_a},
                            {"PACK", v[PACK]}, {"PANELS", v[PACK] ? panels : 1});
    STRATA_SET_BUFFERS(&launch, node->inputs[0], node->inputs[1], strata_epilogue_bias(node), strata_epilogue_aux_operand(node),
                       node);
    STRATA_LAUNCH_INTS(&launch, s.m, s.n, s.k, s.a_row, s.b_row, s.a_batch, s.b_batch, attrs->transpose_b, v[BLOCKS_M],
                       v[BLOCK_N], v[BLOCK_K], group_n, by_columns(&s), attrs->epilogue.has_bias, attrs->epilogue.activation,
                       attrs->epilogue.aux);
    return strata_lowering_add(lowering, &launch, err);
}

const strata_family strata_family_cpu_matmul = {
    .name = "cpu/matmul", .op = "matmul", .fits = fits, .candidates = candidates, .lower = lower};
