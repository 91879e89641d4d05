/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the explicit-vector kernels for CPUs: the vector type that a variant's name says (x16: AVX-512, x8: AVX2,
 * x4), loads and stores of whole vectors and of some elements, the epilogue. Include it after dialect.h. */
#define LANES_x16  16u
#define LANES_x8   8u
#define LANES_x4   4u
#define VEC_x16    float16
#define VEC_x8     float8
#define VEC_x4     float4
#define LANES      PASTE(LANES_, T)
#define VEC        PASTE(VEC_, T)
#define VLOAD_x16  vload16
#define VLOAD_x8   vload8
#define VLOAD_x4   vload4
#define VSTORE_x16 vstore16
#define VSTORE_x8  vstore8
#define VSTORE_x4  vstore4
#define VLOAD      PASTE(VLOAD_, T)
#define VSTORE     PASTE(VSTORE_, T)
/* Loads or stores a vector at any address by one instruction. PoCL's vstore16 is four. */
#define GLOBAL_VEC(p) (((__global struct { VEC v; } __attribute__((packed)) *)(p))->v)
#define LOCAL_VEC(p)  (((__local struct { VEC v; } __attribute__((packed)) *)(p))->v)
/* EACH is a loop over registers, which must be unrolled, or the accumulators would be in memory. PLAIN goes before
 * other loops, which must not be unrolled. */
#define EACH(i, n) __attribute__((opencl_unroll_hint(n))) for (uint i = 0u; i < n; i++)
#define PLAIN      __attribute__((opencl_unroll_hint(1)))

/* The first `cols` floats at p, zeros after them; cols may be negative. */
static VEC load_some(__global const float *p, int cols) {
    if (cols >= (int)LANES) return VLOAD(0, p);
    float part[LANES];
    PLAIN for (int j = 0; j < (int)LANES; j++) part[j] = j < cols ? p[j] : 0.0f;
    return VLOAD(0, part);
}

static void store_some(VEC value, __global float *p, int cols) {
    if (cols >= (int)LANES) {
        GLOBAL_VEC(p) = value;
        return;
    }
    float part[LANES];
    VSTORE(value, 0, part);
    PLAIN for (int j = 0; j < cols; j++) p[j] = part[j];
}

static VEC activate(VEC x, uint activation) {
    if (activation == 1u) return x < 0.0f ? (VEC)(0.0f) : x;
    if (activation == 2u) return tanh(x);
    if (activation == 3u) return 1.0f / (1.0f + exp(-x));
    return x;
}

static VEC apply_aux(VEC x, VEC other, uint form) {
    if (form == 1u) return other > 0.0f ? x : (VEC)(0.0f);
    if (form == 2u) return x * (1.0f - other * other);
    if (form == 3u) return x * other * (1.0f - other);
    return x + other;
}

/* c[i][j] = epilogue(tile[i][j]) for i < rows, j < cols. Used for tiles that the matrix's end cuts off and for those
 * with an epilogue. Rows of the tile are tile_n floats apart, those of c and aux n_size; c, bias and aux point to the
 * tile's first element. */
static void store_tile(const float *tile, uint tile_n, uint rows, uint cols, __global float *c, uint n_size,
                       __global const float *bias, uint bias_form, uint activation, __global const float *aux, uint aux_form) {
    PLAIN for (uint i = 0u; i < rows; i++) PLAIN for (uint j = 0u; j < cols; j += LANES) {
        const int some = (int)cols - (int)j;
        const size_t in_c = i * (size_t)n_size + j;
        VEC x = VLOAD(0, tile + i * tile_n + j);
        if (bias_form) x += load_some(bias + j, some);
        if (activation) x = activate(x, activation);
        if (aux_form) x = apply_aux(x, load_some(aux + in_c, some), aux_form);
        store_some(x, c + in_c, some);
    }
}
