/* SPDX-License-Identifier: Apache-2.0
 *
 * The transforms of Winograd's F(4x4, 3x3) and F(3x3, 4x4): y_i = sum_k g_k d_(i+k), for four i and three k or for
 * three i and four k, as
 *     y = A^T ((G g) (B^T d))     element by element in the middle, 6 products instead of 12
 * and in two dimensions along columns, then along rows: 36 products, the *points*, instead of 144. A, B and G are those of Toom
 * and Cook's interpolation at 0, P, -P, Q, -Q and infinity. P = 3/4 and Q = 3/2 make the rounding errors less than half of
 * those of the usual 1 and 2, and all entries of A and B are exact in f32 (../README.md has the bounds).
 *
 * Source: A. Lavin, S. Gray, Fast algorithms for convolutional neural networks (2016); the points: own search among dyadic
 * fractions. Include it after vectors.h. */
#define P1     0.75f
#define P2     0.5625f
#define P3     0.421875f
#define Q1     1.5f
#define Q2     2.25f
#define Q3     3.375f
#define P2_Q2  1.265625f           /* P^2 Q^2     */
#define P2_2   2.8125f             /* P^2 + Q^2   */
#define RATE_P -0.526748971193416f /* 1 / (2 P^2 (P^2 - Q^2)) */
#define RATE_Q 0.131687242798354f  /* 1 / (2 Q^2 (Q^2 - P^2)) */
#define RATE_0 0.790123456790123f  /* 1 / (P^2 Q^2)           */
#define POINTS 36u
#define SIDE   6u /* of a patch of data, and of the square of points */

/* to = B^T d. */
static void transform_data(VEC to[6], const VEC d[6]) {
    const VEC even_p = fma((VEC)(-Q2), d[2], d[4]), odd_p = fma((VEC)(-Q2), d[1], d[3]);
    const VEC even_q = fma((VEC)(-P2), d[2], d[4]), odd_q = fma((VEC)(-P2), d[1], d[3]);
    to[0] = fma((VEC)(P2_Q2), d[0], fma((VEC)(-P2_2), d[2], d[4]));
    to[1] = fma((VEC)(P1), odd_p, even_p);
    to[2] = fma((VEC)(-P1), odd_p, even_p);
    to[3] = fma((VEC)(Q1), odd_q, even_q);
    to[4] = fma((VEC)(-Q1), odd_q, even_q);
    to[5] = fma((VEC)(P2_Q2), d[1], fma((VEC)(-P2_2), d[3], d[5]));
}

/* to = G g, for four values g, where at_infinity is g3. For three values g3 is zero and at_infinity is g2. */
static void transform_factor(VEC to[6], VEC g0, VEC g1, VEC g2, VEC g3, VEC at_infinity) {
    const VEC even_p = fma((VEC)(P2), g2, g0), odd_p = P1 * fma((VEC)(P2), g3, g1);
    const VEC even_q = fma((VEC)(Q2), g2, g0), odd_q = Q1 * fma((VEC)(Q2), g3, g1);
    to[0] = RATE_0 * g0;
    to[1] = RATE_P * (even_p + odd_p);
    to[2] = RATE_P * (even_p - odd_p);
    to[3] = RATE_Q * (even_q + odd_q);
    to[4] = RATE_Q * (even_q - odd_q);
    to[5] = at_infinity;
}

/* to = A^T m, with four results. */
static void transform_four(VEC to[4], const VEC m[6]) {
    const VEC sum_p = m[1] + m[2], difference_p = m[1] - m[2], sum_q = m[3] + m[4], difference_q = m[3] - m[4];
    to[0] = m[0] + (sum_p + sum_q);
    to[1] = fma((VEC)(Q1), difference_q, P1 * difference_p);
    to[2] = fma((VEC)(Q2), sum_q, P2 * sum_p);
    to[3] = fma((VEC)(Q3), difference_q, fma((VEC)(P3), difference_p, m[5]));
}

/* to = A^T m, with three results. */
static void transform_three(VEC to[3], const VEC m[6]) {
    const VEC sum_p = m[1] + m[2], difference_p = m[1] - m[2], sum_q = m[3] + m[4], difference_q = m[3] - m[4];
    to[0] = m[0] + (sum_p + sum_q);
    to[1] = fma((VEC)(Q1), difference_q, P1 * difference_p);
    to[2] = fma((VEC)(Q2), sum_q, fma((VEC)(P2), sum_p, m[5]));
}

/* Returns the image, the first row and the first column of a tile of 4 x 4 pixels. Tiles are counted over all
 * images. */
static int4 place_of(uint tile, uint tiles_h, uint tiles_w) {
    const uint row = tile / tiles_w, image = row / tiles_h;
    return (int4)((int)image, (int)((row - image * tiles_h) * 4u), (int)((tile - row * tiles_w) * 4u), 0);
}

/* Computes the points of the patch of 6 x 6 pixels at (first_h, first_w) of an image of height x width x depth, for one
 * vector of channels; pixels outside are zeros. `image` points to the channels of the first pixel. Points are `point`
 * floats apart. */
static void points_of_patch(__local float *to, uint point, __global const float *image, int first_h, int first_w, uint height,
                            uint width, uint depth) {
    VEC half_done[POINTS];
    PLAIN for (uint r = 0u; r < SIDE; r++) {
        const int h = first_h + (int)r;
        VEC d[SIDE];
        if (h < 0 || h >= (int)height) {
            EACH(j, SIDE) half_done[r * SIDE + j] = (VEC)(0.0f);
            continue;
        }
        __global const float *row = image + (int)(h * (int)width + first_w) * (int)depth;
        if (first_w >= 0 && first_w + (int)SIDE <= (int)width)
            EACH(j, SIDE) d[j] = VLOAD(0, row + j * depth);
        else
            EACH(j, SIDE) {
                const int w = first_w + (int)j;
                if (w >= 0 && w < (int)width)
                    d[j] = VLOAD(0, row + j * depth);
                else
                    d[j] = (VEC)(0.0f);
            }
        transform_data(half_done + r * SIDE, d);
    }
    PLAIN for (uint j = 0u; j < SIDE; j++) {
        VEC d[SIDE], done[SIDE];
        EACH(i, SIDE) d[i] = half_done[i * SIDE + j];
        transform_data(done, d);
        EACH(i, SIDE) LOCAL_VEC(to + (i * SIDE + j) * point) = done[i];
    }
}
