/* SPDX-License-Identifier: Apache-2.0
 *
 * cos(a + axis pi / 2) for a in [-pi/4, pi/4], by the polynomials of Cephes for sine and cosine. Axis 3 turns the cosine into
 * the sine. */
#ifndef STRATA_SHADERS_TURN_H
#define STRATA_SHADERS_TURN_H

float turned_cosine(float a, uint axis) {
    EXACT float z = a * a;
    EXACT float cosine = 2.443315711809948e-5f;
    cosine = cosine * z - 1.388731625493765e-3f;
    cosine = cosine * z + 4.166664568298827e-2f;
    cosine = (cosine * z * z - 0.5f * z) + 1.0f;
    EXACT float sine = -1.9515295891e-4f;
    sine = sine * z + 8.3321608736e-3f;
    sine = sine * z - 1.6666654611e-1f;
    sine = sine * z * a + a;
    const float v = (axis & 1u) != 0u ? sine : cosine;
    return ((axis + 1u) & 2u) != 0u ? -v : v;
}

#endif
