/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills a *slab*: rows of pixels in local memory, with the padding as zeros. Include it after vectors.h. */
static void slab_clear(__local float *p, uint n) {
    uint i = 0u;
    PLAIN for (; i + LANES <= n; i += LANES) VSTORE((VEC)(0.0f), 0, p + i);
    PLAIN for (; i < n; i++) p[i] = 0.0f;
}

static void slab_copy(__local float *p, __global const float *from, uint n) {
    uint i = 0u;
    PLAIN for (; i + LANES <= n; i += LANES) VSTORE(VLOAD(0, from + i), 0, p + i);
    PLAIN for (; i < n; i++) p[i] = from[i];
}

/* Fills slab_w pixels of `depth` floats from a row of from_w pixels. Pixel s of the slab is pixel (s - pad) / spread of
 * the row if that is an integer and inside of the row, else zeros. */
static void slab_row(__local float *slab, __global const float *from, uint slab_w, uint from_w, uint depth, int pad,
                     uint spread) {
    if (spread == 1u) {
        const uint before = (uint)clamp(pad, 0, (int)slab_w), skipped = (uint)max(-pad, 0);
        const uint inside = skipped < from_w ? MIN_U32(from_w - skipped, slab_w - before) : 0u;
        slab_clear(slab, before * depth);
        slab_copy(slab + before * depth, from + skipped * depth, inside * depth);
        slab_clear(slab + (before + inside) * depth, (slab_w - before - inside) * depth);
        return;
    }
    slab_clear(slab, slab_w * depth);
    PLAIN for (uint w = 0u; w < from_w; w++) {
        const int at = pad + (int)(w * spread);
        if (at >= 0 && at < (int)slab_w) slab_copy(slab + (uint)at * depth, from + w * depth, depth);
    }
}
