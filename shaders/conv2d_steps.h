/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the positions in x for kernels that compute conv2d's gradient by the filter as products of tiles:
 * conv2d_filter_grad_tiles and matrix_units/conv2d_filter_grad. Row m of the product is a tap and a channel of x,
 * column n is a filter, and step k is an output pixel (n,oh,ow) of part p.
 *
 * The kernel has the words of conv2d_filter_grad.kernel. In local memory it has arrays of 2 TILE_K elements, one for
 * each step; tiles use the two halves in turn. step_at, step_h and step_w are the element, row and column of x for the
 * first tap of the step. ITEMS is the number of work-items of a group, and `item` is the number of this one. */
#define NOWHERE 0x80000000u /* the row of a step beyond the last; with any tap it is outside of x */
#define HALF(k) ((k) % (2u * TILE_K))

/* Declares n_tiles, the number of tiles (TILE_M by TILE_N) of the whole result, and what is the same for all tiles. */
#define COUNT_TILES                                                                                   \
    const uint in_c = depth * groups, out_c = columns * groups, m_size = kernel_h * kernel_w * depth; \
    const uint tiles_m = (m_size + TILE_M - 1u) / TILE_M, tiles_n = (columns + TILE_N - 1u) / TILE_N; \
    const uint n_tiles = parts * tiles_m * groups * tiles_n;
/* Declares a tile's part and group, its first row and column, and its steps, first_k .. k_end - 1. */
#define FIND_TILE(tile)                                                               \
    const uint q_n = tile / tiles_n, q_g = q_n / groups, p = q_g / tiles_m;           \
    const uint first_n = (tile - q_n * tiles_n) * TILE_N, group = q_n - q_g * groups; \
    const uint first_m = (q_g - p * tiles_m) * TILE_M;                                \
    const uint first_k = p * part, k_end = MIN_U32(first_k + part, rows);

/* Fills the arrays for the TILE_K steps from `first` on; a barrier must follow. */
#define FIND_STEPS(first)                                                                              \
    for (uint i = item; i < TILE_K; i += ITEMS) {                                                      \
        const uint k = (first) + i, q = k / out_w, image = q / out_h;                                  \
        const uint h = (q - image * out_h) * stride_h - pad_h, w = (k - q * out_w) * stride_w - pad_w; \
        step_at[HALF(k)] = ((image * in_h + h) * in_w + w) * in_c + group * depth;                     \
        step_h[HALF(k)] = k < k_end ? h : NOWHERE;                                                     \
        step_w[HALF(k)] = w;                                                                           \
    }
/* Declares, for row m of the result, the distance from a step's first tap to the row's tap: in rows (name_h), in
 * columns (name_w) and in elements, with the channel (name_at). */
#define FIND_TAP(name, m)                                                                                  \
    const uint name##_c = (m) / depth, name##_kh = name##_c / kernel_w, name##_h = name##_kh * dilation_h; \
    const uint name##_w = (name##_c - name##_kh * kernel_w) * dilation_w;                                  \
    const uint name##_at = (name##_h * in_w + name##_w) * in_c + (m)-name##_c * depth;
/* Whether the tap of step k lies in x; its element is then step_at[HALF(k)] + name_at. */
#define IS_INSIDE(name, k) (step_h[HALF(k)] + name##_h < in_h && step_w[HALF(k)] + name##_w < in_w)
