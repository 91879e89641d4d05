/* SPDX-License-Identifier: Apache-2.0
 *
 * f32 matrix product on the host: register tiles of 6 x 32 over panels of b that are packed 32 columns wide. Every element
 * folds K in ascending order from 0 with one fused multiply-add a term, as every backend does, so the tile never shows in the
 * result. The tile is compiled three times and the processor chooses. */
#include "core/op/matmul.h"

#include <math.h>
#include <string.h>

#include "backends/host/host.h"

enum { TILE_M = 6, TILE_N = HOST_PANEL };

/* out (rows, TILE_N) = a (rows, K) panel (K, TILE_N);  element (m, k) of a is a[m * row_stride + k * k_stride]. In parts of two
 * registers of `lanes` floats, so that 2 rows accumulators, the panel's two and a's one fit in the registers there are. */
#define TILE_OF_ROWS(name, lanes, rows)                                                                                    \
    static inline __attribute__((always_inline)) void name##_##rows(const float *a, int64_t row_stride, int64_t k_stride,  \
                                                                    const float *panel, int64_t k_size, float *out) {      \
        for (int part = 0; part < TILE_N; part += 2 * lanes) {                                                             \
            name##_vector sum[rows][2];                                                                                    \
            _Pragma("GCC unroll 6") for (int m = 0; m < rows; m++) sum[m][0] = sum[m][1] = (name##_vector){0};             \
            for (int64_t k = 0; k < k_size; k++) {                                                                         \
                name##_vector b0, b1;                                                                                      \
                memcpy(&b0, panel + k * TILE_N + part, sizeof b0);                                                         \
                memcpy(&b1, panel + k * TILE_N + part + lanes, sizeof b1);                                                 \
                _Pragma("GCC unroll 6") for (int m = 0; m < rows; m++) {                                                   \
                    float value = a[m * row_stride + k * k_stride];                                                        \
                    sum[m][0] = value * b0 + sum[m][0];                                                                    \
                    sum[m][1] = value * b1 + sum[m][1];                                                                    \
                }                                                                                                          \
            }                                                                                                              \
            _Pragma("GCC unroll 6") for (int m = 0; m < rows; m++) memcpy(out + m * TILE_N + part, sum[m], sizeof sum[m]); \
        }                                                                                                                  \
    }
/* The function `name` for registers of `lanes` floats. */
#define TILE(name, lanes, attributes)                                                                                       \
    typedef float name##_vector __attribute__((vector_size(lanes * 4)));                                                    \
    attributes TILE_OF_ROWS(name, lanes, 6) attributes TILE_OF_ROWS(name, lanes, 1) attributes static void name(            \
        int rows, const float *a, int64_t row_stride, int64_t k_stride, const float *panel, int64_t k_size, float *out) {   \
        if (rows == TILE_M) {                                                                                               \
            name##_6(a, row_stride, k_stride, panel, k_size, out);                                                          \
            return;                                                                                                         \
        }                                                                                                                   \
        for (int m = 0; m < rows; m++) name##_1(a + m * row_stride, row_stride, k_stride, panel, k_size, out + m * TILE_N); \
    }

typedef void (*tile_function)(int rows, const float *a, int64_t row_stride, int64_t k_stride, const float *panel,
                              int64_t k_size, float *out);

#if defined(__x86_64__)
TILE(tile_avx512, 16, __attribute__((target("avx512f,fma"))))
TILE(tile_avx2, 8, __attribute__((target("avx2,fma"))))
#endif
TILE(tile_portable, 4, )

static tile_function choose_tile(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return tile_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return tile_avx2;
#endif
    return tile_portable;
}

/* panel (K, TILE_N) = columns first .. first + width of b, zeros after them. */
static void pack_panel(const host_product *p, const float *b, int64_t first, int64_t width, float *panel) {
    for (int64_t k = 0; k < p->k; k++) {
        const float *row = b + k * p->b_k + first * p->b_col;
        float *target = panel + k * TILE_N;
        if (p->b_col == 1)
            memcpy(target, row, (size_t)width * sizeof(float));
        else
            for (int64_t n = 0; n < width; n++) target[n] = row[n * p->b_col];
        for (int64_t n = width; n < TILE_N; n++) target[n] = 0;
    }
}

static float activate(int64_t activation, float v) {
    switch (activation) {
        case STRATA_EPILOGUE_RELU:
            return v < 0 ? 0 : v;
        case STRATA_EPILOGUE_TANH:
            return tanhf(v);
        case STRATA_EPILOGUE_SIGMOID:
            return 1 / (1 + expf(-v));
        default:
            return v;
    }
}

static float apply_aux(int64_t form, float v, float aux) {
    switch (form) {
        case STRATA_EPILOGUE_RELU_GRAD:
            return aux > 0 ? v : 0;
        case STRATA_EPILOGUE_TANH_GRAD:
            return v * (1 - aux * aux);
        case STRATA_EPILOGUE_SIGMOID_GRAD:
            return v * aux * (1 - aux);
        case STRATA_EPILOGUE_ADD:
            return v + aux;
        default:
            return v;
    }
}

/* Stores a tile's rows with bias and epilogue. */
static void store(const host_product *p, float *c, const float *tile, int64_t row, int rows, int64_t col, int64_t width) {
    for (int m = 0; m < rows; m++) {
        int64_t at = (row + m) * p->c_row + col;
        for (int64_t n = 0; n < width; n++) {
            float value = tile[m * TILE_N + n];
            if (p->bias) value += p->bias[col + n];
            if (p->activation) value = activate(p->activation, value);
            c[at + n] = p->aux ? apply_aux(p->aux_form, value, p->aux[at + n]) : value;
        }
    }
}

void strata_host_multiply(const host_product *p, const float *a, const float *b, float *c, float *panel) {
    const tile_function tile = choose_tile();
    float result[TILE_M * TILE_N] __attribute__((aligned(64)));
    for (int64_t col = 0; col < p->n; col += TILE_N) {
        int64_t width = p->n - col < TILE_N ? p->n - col : TILE_N;
        pack_panel(p, b, col, width, panel);
        for (int64_t row = 0; row < p->m; row += TILE_M) {
            int rows = p->m - row < TILE_M ? (int)(p->m - row) : TILE_M;
            tile(rows, a + row * p->a_row, p->a_row, p->a_k, panel, p->k, result);
            store(p, c, result, row, rows, col, width);
        }
    }
}

bool strata_host_matmul_takes(const strata_tensor *node) {
    return strata_host_is_f32(node);
}

int64_t strata_host_matmul_scratch(const strata_tensor *node) {
    return (strata_matmul_sizes_of(node).k + 1) * TILE_N * (int64_t)sizeof(float);
}

/* Address of a tensor of the call by its node: which input it is. */
static const float *operand(const strata_op_call *call, const strata_tensor *tensor) {
    for (int i = 2; tensor && i < call->node->n_inputs; i++)
        if (call->node->inputs[i] == tensor) return call->inputs[i];
    return NULL;
}

void strata_host_matmul(const host_call *host) {
    const strata_op_call *call = &host->call;
    const strata_matmul_attrs *attrs = call->node->attrs;
    const strata_matmul_sizes s = strata_matmul_sizes_of(call->node);
    const float *aux = operand(call, strata_epilogue_aux_operand(call->node));
    host_product p = {.m = s.m,
                      .n = s.n,
                      .k = s.k,
                      .a_row = attrs->transpose_a ? 1 : s.a_row,
                      .a_k = attrs->transpose_a ? s.a_row : 1,
                      .b_k = attrs->transpose_b ? 1 : s.b_row,
                      .b_col = attrs->transpose_b ? s.b_row : 1,
                      .c_row = s.n,
                      .bias = operand(call, strata_epilogue_bias(call->node)),
                      .activation = attrs->epilogue.activation,
                      .aux_form = attrs->epilogue.aux};
    if (!s.m || !s.n) return;
    for (int64_t batch = 0; batch < s.n_batch; batch++) {
        const float *a = call->inputs[0], *b = call->inputs[1];
        p.aux = aux ? aux + batch * s.m * s.n : NULL;
        strata_host_multiply(&p, a + batch * s.a_batch, b + batch * s.b_batch, (float *)call->output + batch * s.m * s.n,
                             host->scratch);
    }
}
