/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides the rows of a table among work-groups, and lists the positions of those indices that hit a group's rows. For
 * kernels for CPU devices. Include it after vectors.h.
 *
 * The rows are often those of words, which are numbered by frequency, so that one half of the rows gets nearly all
 * hits. So the rows are divided by an estimate of the work, in which a hit costs HIT and a row costs ROW (the kernel
 * defines both). Every group finds its first row by bisection, and counts indices with vector instructions. */
/* DIRECTIVE expands to #, so that the line becomes a directive for the driver's preprocessor. clang-format does not
 * understand such lines. */
/* clang-format off */
#define DIRECTIVE #
#define BLOCK     1024u
#define SAMPLED   64u  /* about how many vectors of indices an estimate counts */
#define PARTS     256u /* bisection ends when 1 / PARTS of the rows are left ... */
#define TOLERANCE 32u  /* ... or when the work is right up to 1 / TOLERANCE of all */
#define UINTS_x16 uint16
#define UINTS_x8  uint8
#define UINTS_x4  uint4
#define UINTS     PASTE(UINTS_, T)

/* Estimates the work of the rows below `end` from a sample of the indices. A negative index counts as a large
 * number. */
static ulong work_below(__global const int *at, uint n, uint end) {
    UINTS counts = (UINTS)(0u);
    const uint stride = n / (SAMPLED * LANES) + 1u;
    uint lanes[LANES], below = 0u;
    PLAIN for (uint k = 0u; k + LANES <= n; k += stride * LANES)
        counts += VLOAD(0, (__global const uint *)at + k) < (UINTS)(end) ? (UINTS)(1u) : (UINTS)(0u);
    VSTORE(counts, 0, lanes);
    PLAIN for (uint i = 0u; i < LANES; i++) below += lanes[i];
    return (ulong)below * (stride * HIT) + (ulong)end * ROW;
}

static uint first_row(__global const int *at, uint n, uint axis, uint group, uint groups) {
    if (group == 0u || group >= groups) return group ? axis : 0u;
    const ulong all = work_below(at, n, axis), wanted = all * group / groups;
    uint low = 0u, high = axis;
    PLAIN while (high - low > axis / PARTS + 1u) {
        const uint middle = low + (high - low) / 2u;
        const ulong work = work_below(at, n, middle);
        if (work < wanted)
            low = middle;
        else
            high = middle;
        if (work + all / TOLERANCE >= wanted && work <= wanted + all / TOLERANCE) return middle;
    }
    return high;
}

/* Lists, in hit[0 ..], those of the positions start .. end - 1 whose index is one of the `rows` rows from `begin` on.
 * Returns their number. as_rows: lists these indices, counted from `begin`, instead of the positions. PoCL with AVX-512
 * lists 16 positions by one instruction; the last 16 overlap those before them. */
static uint list_hits(__global const int *at, uint start, uint end, uint begin, uint rows, bool as_rows, uint *hit) {
    uint hits = 0u, k = start;
#if LANES == 16
    DIRECTIVE if defined(POCL_DEVICE_ADDRESS_BITS) && defined(__AVX512F__)
    const int16 first = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    PLAIN while (k < end && end - start >= 16u) {
        const uint from = min(k, end - 16u);
        const int16 row = VLOAD(0, at + from) - (int16)((int)begin), place = first + (int16)((int)from);
        const ushort mask =
            (ushort)__builtin_ia32_ucmpd512_mask(row, (int16)((int)rows), 1, (ushort)(0xffffu << (k - from))); /* row < rows */
        const int16 listed = as_rows ? row : place;
        ((__private struct { uint16 v; } __attribute__((packed)) *)(hit + hits))->v =
            as_uint16(__builtin_ia32_compresssi512_mask(listed, listed, mask));
        hits += popcount((uint)mask);
        k = from + 16u;
    }
    DIRECTIVE endif
#endif
    PLAIN for (; k < end; k++) {
        const uint row = (uint)at[k] - begin;
        hit[hits] = as_rows ? row : k;
        hits += row < rows ? 1u : 0u;
    }
    return hits;
}
/* clang-format on */
