/* SPDX-License-Identifier: Apache-2.0
 *
 * The chips that the simulator can simulate, and the formulas for the cycles of their units (chip.h, README.md). */
#include "chip.h"

#include <stddef.h>
#include <string.h>

/* s1 is like one core of a TPU v2: Jouppi et al., "A domain-specific supercomputer for training deep neural networks", CACM 63
 * (2020), and Norrie et al., "The design process for Google's training chips: TPUv2 and TPUv3", IEEE Micro 41 (2021). v4 is
 * like one of the two cores of a TPU v4 (Jouppi et al., "TPU v4", ISCA 2023), v5e like a chip of that name (Google's
 * documentation of Cloud TPU). Latencies, launch, windows and drain are not from a paper; README.md says where they come
 * from. */
static const chip chips[] = {
    {.name = "s1",
     .title = "Systolic S1",
     .hertz = 700e6,
     .side = 128,
     .arrays = 1,
     .lanes = 2048,
     .onchip_bytes = INT64_C(16) << 20,
     .hbm_bytes = INT64_C(8) << 30,
     .hbm_bytes_per_second = 350e9,
     .hbm_latency = 240,
     .launch = 200,
     .window_bytes = 768 << 10,
     .drain_ops = 24,
     .link_bytes_per_second = 62e9,
     .link_latency = 700,
     .step_overhead = 32},
    {.name = "v4",
     .title = "Systolic V4",
     .hertz = 1050e6,
     .side = 128,
     .arrays = 4,
     .lanes = 4096,
     .onchip_bytes = INT64_C(16) << 20,
     .hbm_bytes = INT64_C(16) << 30,
     .hbm_bytes_per_second = 614e9,
     .hbm_latency = 350,
     .launch = 300,
     .window_bytes = 768 << 10,
     .drain_ops = 24,
     .link_bytes_per_second = 50e9,
     .link_latency = 1050,
     .step_overhead = 32},
    {.name = "v5e",
     .title = "Systolic V5E",
     .hertz = 1500e6,
     .side = 128,
     .arrays = 4,
     .lanes = 4096,
     .onchip_bytes = INT64_C(128) << 20,
     .hbm_bytes = INT64_C(16) << 30,
     .hbm_bytes_per_second = 819e9,
     .hbm_latency = 1200,
     .launch = 950,
     .window_bytes = 1536 << 10,
     .drain_ops = 24,
     .link_bytes_per_second = 50e9,
     .link_latency = 1500,
     .step_overhead = 32},
};

const chip *chip_find(const char *name, const char **out_names) {
    *out_names = "s1, v4, v5e";
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++)
        if (!strcmp(chips[i].name, name)) return &chips[i];
    return NULL;
}

static double ceil_div(double a, double b) {
    const double q = a / b;
    const double whole = (double)(int64_t)q;
    return whole < q ? whole + 1 : whole;
}

/* Cycles of one product whose second operand is held in the array. The second operand is divided into tiles (side x side), and
 * all rows of the first operand pass through each tile. Meanwhile the next tile is loaded, which takes `side` cycles; so if
 * there are fewer rows than that, the array waits. */
static double held(const chip *chip, double streamed, double held_columns, double depth) {
    const double side = chip->side, rows = ceil_div(streamed, 8) * 8;
    const double tiles = ceil_div(depth, side) * ceil_div(held_columns, side);
    return ceil_div(tiles, chip->arrays) * (rows > side ? rows : side);
}

double chip_matrix_cycles(const chip *chip, int64_t rows, int64_t columns, int64_t depth, int64_t batch) {
    if (rows <= 0 || columns <= 0 || depth <= 0 || batch <= 0) return 0;
    const double b = held(chip, (double)rows, (double)columns, (double)depth);
    const double a = held(chip, (double)columns, (double)rows, (double)depth);
    /* Nothing overlaps the loading of the first tile, and the last row passes through all rows and columns of the array. */
    return (double)batch * (a < b ? a : b) + 3.0 * chip->side;
}

double chip_vector_cycles(const chip *chip, double ops) {
    return ceil_div(ops, chip->lanes);
}

double chip_drain_cycles(const chip *chip, double n) {
    return chip_vector_cycles(chip, n * chip->drain_ops);
}

double chip_ring_cycles(const chip *chip, double bytes, int members, int rounds) {
    if (members < 2) return 0;
    const double steps = (double)(members - 1) * rounds;
    return steps * (bytes / members / (chip->link_bytes_per_second / chip->hertz) + chip->link_latency);
}

double chip_hbm_cycles(const chip *chip, double bytes) {
    return bytes / (chip->hbm_bytes_per_second / chip->hertz);
}
