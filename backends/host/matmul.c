/* SPDX-License-Identifier: Apache-2.0
 *
 * f32 matrix product on the host: tiles of 6 or 8 rows by 32 columns in registers. b is read in place or from packed panels.
 * The sum over K of each element is computed in ascending order, beginning with 0, by one fused multiply-add for each term, as
 * on every backend. So the result does not depend on the tile. The tile is compiled for three instruction sets, and the best
 * one that the processor has is used. */
#include "core/op/matmul.h"

#include <math.h>

#include "backends/host/host.h"
#include "core/op/ops.h"

enum { TILE_N = HOST_PANEL, MOST_ROWS = 8, MOST_IN_PLACE = 128 * 1024 };

/* out (rows, TILE_N) = a (rows, K) panel (K, TILE_N);  element (m, k) of a is a[m * row_stride + k * k_stride], and rows of the
 * panel are panel_stride apart. Computed in parts of two registers of `lanes` floats each: 2 x rows accumulators, two registers
 * of the panel and one of a must fit into the processor's registers. */
#define TILE_OF_ROWS(name, lanes, rows)                                                                                      \
    static inline __attribute__((always_inline)) void name##_of_##rows(const float *a, int64_t row_stride, int64_t k_stride, \
                                                                       const float *panel, int64_t panel_stride,             \
                                                                       int64_t k_size, float *out) {                         \
        for (int part = 0; part < TILE_N; part += 2 * lanes) {                                                               \
            name##_vector sum[rows][2];                                                                                      \
            _Pragma("GCC unroll 8") for (int m = 0; m < rows; m++) sum[m][0] = sum[m][1] = (name##_vector){0};               \
            for (int64_t k = 0; k < k_size; k++) {                                                                           \
                name##_vector b0, b1;                                                                                        \
                memcpy(&b0, panel + k * panel_stride + part, sizeof b0);                                                     \
                memcpy(&b1, panel + k * panel_stride + part + lanes, sizeof b1);                                             \
                _Pragma("GCC unroll 8") for (int m = 0; m < rows; m++) {                                                     \
                    float value = a[m * row_stride + k * k_stride];                                                          \
                    sum[m][0] = value * b0 + sum[m][0];                                                                      \
                    sum[m][1] = value * b1 + sum[m][1];                                                                      \
                }                                                                                                            \
            }                                                                                                                \
            _Pragma("GCC unroll 8") for (int m = 0; m < rows; m++) memcpy(out + m * TILE_N + part, sum[m], sizeof sum[m]);   \
        }                                                                                                                    \
    }
/* The function `name` for registers of `lanes` floats: computes most_rows rows at once; if there are fewer, one row at a
 * time. */
#define TILE(name, lanes, most_rows, attributes)                                                                            \
    typedef float name##_vector __attribute__((vector_size(lanes * 4)));                                                    \
    attributes TILE_OF_ROWS(name, lanes, most_rows)                                                                         \
    attributes TILE_OF_ROWS(name, lanes, 1) attributes static void name(int rows, const float *a, int64_t row_stride,       \
                                                                        int64_t k_stride, const float *panel,               \
                                                                        int64_t panel_stride, int64_t k_size, float *out) { \
        if (rows == most_rows) {                                                                                            \
            name##_of_##most_rows(a, row_stride, k_stride, panel, panel_stride, k_size, out);                               \
            return;                                                                                                         \
        }                                                                                                                   \
        for (int m = 0; m < rows; m++)                                                                                      \
            name##_of_1(a + m * row_stride, row_stride, k_stride, panel, panel_stride, k_size, out + m * TILE_N);           \
    }

typedef struct tile_kind {
    int rows;
    void (*run)(int rows, const float *a, int64_t row_stride, int64_t k_stride, const float *panel, int64_t panel_stride,
                int64_t k_size, float *out);
} tile_kind;

#if defined(__x86_64__)
TILE(tile_avx512, 16, 8, __attribute__((target("avx512f,fma"))))
TILE(tile_avx2, 8, 6, __attribute__((target("avx2,fma"))))
#endif
TILE(tile_portable, 4, 6, )

static tile_kind choose_tile(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return (tile_kind){8, tile_avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return (tile_kind){6, tile_avx2};
#endif
    return (tile_kind){6, tile_portable};
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

float strata_host_activate(int64_t activation, float v) {
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

/* Stores rows of a tile with bias and epilogue; changes the tile. */
static void store(const host_product *p, float *c, float *tile, int64_t row, int rows, int64_t col, int64_t width) {
    for (int m = 0; m < rows; m++) {
        const int64_t at = (row + m) * p->c_row + col;
        const float *bias = p->bias ? p->bias + col : NULL, *aux = p->aux ? p->aux + at : NULL;
        float *v = tile + m * TILE_N;
        for (int64_t n = 0; bias && n < width; n++) v[n] += bias[n];
        if (p->activation == STRATA_EPILOGUE_RELU)
            for (int64_t n = 0; n < width; n++) v[n] = v[n] < 0 ? 0 : v[n];
        else if (p->activation)
            for (int64_t n = 0; n < width; n++) v[n] = strata_host_activate(p->activation, v[n]);
        if (aux && p->aux_form == STRATA_EPILOGUE_RELU_GRAD)
            for (int64_t n = 0; n < width; n++) v[n] = aux[n] > 0 ? v[n] : 0;
        else if (aux)
            for (int64_t n = 0; n < width; n++) v[n] = apply_aux(p->aux_form, v[n], aux[n]);
        memcpy(c + at, v, (size_t)width * sizeof *v);
    }
}

/* Whether b can be read in place: its rows are contiguous, it has few pages, and its rows do not map to the same sets of the
 * caches. */
static bool stays(const host_product *p) {
    return p->b_col == 1 && p->k * p->b_k <= MOST_IN_PLACE && p->b_k % 1024 != 0;
}

void strata_host_multiply(const host_product *p, const float *a, const float *b, float *c, float *panel, int part,
                          int n_parts) {
    const tile_kind tile = choose_tile();
    float result[MOST_ROWS * TILE_N] __attribute__((aligned(64)));
    const int64_t down = (p->m + tile.rows - 1) / tile.rows, across = (p->n + TILE_N - 1) / TILE_N;
    const int64_t end = down * across * (part + 1) / n_parts;
    int64_t packed = -1; /* the column whose panel is packed */
    for (int64_t t = down * across * part / n_parts; t < end; t++) {
        const int64_t row = t % down * tile.rows, col = t / down * TILE_N;
        const int64_t width = p->n - col < TILE_N ? p->n - col : TILE_N;
        const bool in_place = width == TILE_N && stays(p);
        if (!in_place && packed != col) pack_panel(p, b, packed = col, width, panel);
        const float *from = in_place ? b + col : panel;
        int rows = p->m - row < tile.rows ? (int)(p->m - row) : tile.rows;
        /* The last tile begins earlier, so that it is complete; those of its rows that are already computed are not stored
         * again. */
        const int above = p->m >= tile.rows ? tile.rows - rows : 0;
        tile.run(rows + above, a + (row - above) * p->a_row, p->a_row, p->a_k, from, in_place ? p->b_k : TILE_N, p->k, result);
        store(p, c, result + above * TILE_N, row, rows, col, width);
    }
}

static int64_t matmul_scratch(const strata_tensor *node) {
    return (strata_matmul_sizes_of(node).k + 1) * TILE_N * (int64_t)sizeof(float);
}

/* Returns the data of a tensor that is one of the node's inputs from index 2 on; NULL if it is not. */
static const float *operand(const strata_op_call *call, const strata_tensor *tensor) {
    for (int i = 2; tensor && i < call->node->n_inputs; i++)
        if (call->node->inputs[i] == tensor) return call->inputs[i];
    return NULL;
}

static int64_t matmul_work(const strata_tensor *node) {
    const strata_matmul_sizes s = strata_matmul_sizes_of(node);
    return s.n_batch * s.m * s.n * s.k / 8;
}

static void matmul(const host_call *host) {
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
    /* With many products each thread computes whole products; few products are each divided among all threads. */
    const bool whole = s.n_batch >= host->n_parts;
    for (int64_t batch = 0; batch < s.n_batch; batch++) {
        if (whole && batch % host->n_parts != host->part) continue;
        const float *a = call->inputs[0], *b = call->inputs[1];
        p.aux = aux ? aux + batch * s.m * s.n : NULL;
        strata_host_multiply(&p, a + batch * s.a_batch, b + batch * s.b_batch, (float *)call->output + batch * s.m * s.n,
                             host->scratch, whole ? 0 : host->part, whole ? 1 : host->n_parts);
    }
}

const host_fast_op strata_host_matmuls[] = {{&strata_op_matmul, strata_host_is_f32, matmul_scratch, matmul, matmul_work}, {0}};
