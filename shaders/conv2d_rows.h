/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the positions of the operands of conv2d and of its gradient by the input, for kernels that compute both as
 * products of tiles: conv2d_tiles and matrix_units/conv2d. Row m of the product is a pixel of `to`, column n is one of
 * its channels, and step k is a tap and a channel of `from`.
 *
 * In the gradient (TRANSPOSED 1) a pixel of `to` meets only those taps for which (pixel + pad - tap dilation) is a
 * multiple of the stride. So the pixels are divided into classes: class c has the pixels c + stride i along each axis.
 * All pixels of a class meet the same taps: a first tap, and from there every tap_step-th one. In both directions the
 * tap of the class's pixel i is at position i step + shift(tap) of `from` along each axis.
 *
 * The kernel has the words of conv2d.kernel and tap_step_h, tap_step_w, parts and part. In local memory it has arrays
 * of TILE_M elements, one for each row of a tile: row_to is the row's pixel of `to`; row_from, row_h and row_w are the
 * element, row and column of `from` for a tap of shift 0. ITEMS is the number of work-items of a group, and `item` is
 * the number of this one. */
/* The row_h and row_to of a row beyond the last pixel. */
#define NOWHERE 0x80000000u
/* The shift of a step beyond the last one. The sum of a row and a shift is outside of `from` if one of them is NOWHERE
 * or NO_TAP. */
#define NO_TAP     0x40000000u
#define CEIL(a, b) (((a) + (b)-1u) / (b))

/* shift(tap) along one axis: the position of the tap in `from`, minus i step. */
uint shift_of(uint in_class, uint tap, uint stride, uint dilation, uint pad, uint kernel_size) {
    if (TRANSPOSED == 0u) return tap * dilation - pad;
    const uint above = kernel_size * dilation; /* `above` times the stride keeps the dividend from becoming negative */
    return (in_class + pad + above * stride - tap * dilation) / stride - above;
}

/* The first tap that meets the pixels of a class; kernel_size if none does. */
uint first_tap(uint in_class, uint stride, uint dilation, uint pad, uint kernel_size) {
    if (TRANSPOSED == 0u) return 0u;
    uint tap = 0u;
    while (tap < kernel_size && (in_class + pad + kernel_size * dilation * stride - tap * dilation) % stride != 0u) tap++;
    return tap;
}

/* Declares n_tiles, the number of tiles (TILE_M by TILE_N) of the whole result, and what is the same for all tiles. */
#define COUNT_TILES                                                                                                           \
    const uint to_c = columns * groups, from_c = depth * groups;                                                              \
    const uint spread_h = TRANSPOSED != 0u ? stride_h : 1u, spread_w = TRANSPOSED != 0u ? stride_w : 1u;                      \
    const uint step_h = TRANSPOSED != 0u ? 1u : stride_h, step_w = TRANSPOSED != 0u ? 1u : stride_w;                          \
    const uint tiles_n = CEIL(columns, TILE_N), tiles_m = CEIL(images * CEIL(to_h, spread_h) * CEIL(to_w, spread_w), TILE_M); \
    const uint n_tiles = parts * spread_h * spread_w * tiles_m * groups * tiles_n;

/* Declares a tile's group, its first row and column, and its steps, first_k .. k_end - 1. If `to` contains sums of
 * parts, part_at is the first element of the tile's part. */
#define FIND_TILE(tile)                                                                                                    \
    const uint q_n = tile / tiles_n, q_g = q_n / groups, q_m = q_g / tiles_m;                                              \
    const uint p = q_m / (spread_h * spread_w), in_class = q_m - p * (spread_h * spread_w);                                \
    const uint first_n = (tile - q_n * tiles_n) * TILE_N, group = q_n - q_g * groups;                                      \
    const uint first_m = (q_g - q_m * tiles_m) * TILE_M;                                                                   \
    const uint class_h = in_class / spread_w, class_w = in_class - class_h * spread_w;                                     \
    const uint rows_h = (to_h + spread_h - 1u - class_h) / spread_h, rows_w = (to_w + spread_w - 1u - class_w) / spread_w; \
    const uint rows = images * rows_h * rows_w;                                                                            \
    const uint first_tap_h = first_tap(class_h, stride_h, dilation_h, pad_h, kernel_h);                                    \
    const uint first_tap_w = first_tap(class_w, stride_w, dilation_w, pad_w, kernel_w);                                    \
    const uint taps_h = CEIL(kernel_h - first_tap_h, tap_step_h), taps_w = CEIL(kernel_w - first_tap_w, tap_step_w);       \
    const uint first_k = p * part, all_steps = taps_h * taps_w * depth;                                                    \
    const uint k_end = first_k < all_steps ? MIN_U32(first_k + part, all_steps) : first_k;                                 \
    const uint part_at = p * images * to_h * to_w * to_c;

/* Fills the arrays of rows; a barrier must follow. */
#define FIND_ROWS                                                                                         \
    for (uint i = item; i < TILE_M; i += ITEMS) {                                                         \
        const uint m = first_m + i;                                                                       \
        row_h[i] = NOWHERE;                                                                               \
        row_to[i] = NOWHERE;                                                                              \
        if (m < rows) {                                                                                   \
            const uint q = m / rows_w, image = q / rows_h, h = q - image * rows_h, w = m - q * rows_w;    \
            row_to[i] = (image * to_h + class_h + h * spread_h) * to_w + class_w + w * spread_w;          \
            row_from[i] = ((image * from_h + h * step_h) * from_w + w * step_w) * from_c + group * depth; \
            row_h[i] = h * step_h;                                                                        \
            row_w[i] = w * step_w;                                                                        \
        }                                                                                                 \
    }

/* FIND_TAP sets, for step k: its channel (name_channel); the distance from a row's tap of shift 0 to the step's tap in
 * rows (name_h), in columns (name_w) and in elements (name_at); and in the gradient the element of the filters for
 * column 0 (name_filter). */
#define DECLARE_TAP(name) uint name##_channel = 0u, name##_h = 0u, name##_w = 0u, name##_at = 0u, name##_filter = 0u;
#define FIND_TAP(name, k)                                                                                               \
    {                                                                                                                   \
        const uint q = (k) / depth, q_w = q / taps_w;                                                                   \
        const uint kh = first_tap_h + q_w * tap_step_h, kw = first_tap_w + (q - q_w * taps_w) * tap_step_w;             \
        name##_channel = (k)-q * depth;                                                                                 \
        name##_h = (k) < k_end ? shift_of(class_h, kh, stride_h, dilation_h, pad_h, kernel_h) : NO_TAP;                 \
        name##_w = shift_of(class_w, kw, stride_w, dilation_w, pad_w, kernel_w);                                        \
        name##_at = (name##_h * from_w + name##_w) * from_c + name##_channel;                                           \
        if (TRANSPOSED != 0u) name##_filter = (kh * kernel_w + kw) * columns * from_c + group * depth + name##_channel; \
    }
/* Whether the tap of row m of the tile lies in `from`; its element is then row_from[m] + name_at. */
#define IS_INSIDE(name, m) (row_h[m] + name##_h < from_h && row_w[m] + name##_w < from_w)
