/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix product, batched by leading axes, with transposes as flags and an epilogue (epilogue.h). The backend chooses the
 * kernel, but the order of addition over K is fixed (shaders/matmul.kernel). */
#include "core/op/matmul.h"

#include "core/op/define.h"

static const strata_matmul_attrs *attrs_of(const strata_tensor *node) {
    return node->attrs;
}

/* ---- shape rule ---- */

static strata_status check_operands(const strata_tensor *a, const strata_tensor *b, strata_error *err) {
    const strata_tensor *operands[2] = {a, b};
    if (a->dtype != b->dtype)
        return strata_fail(err, STRATA_INVALID, "a is %s, b is %s; they must have one dtype", strata_dtype_name(a->dtype),
                           strata_dtype_name(b->dtype));
    if (!strata_dtype_is_float(a->dtype))
        return strata_fail(err, STRATA_INVALID, "a and b are %s; only f32, f16 and bf16 are multiplied",
                           strata_dtype_name(a->dtype));
    for (int i = 0; i < 2; i++)
        if (operands[i]->shape.rank < 2)
            return strata_fail(err, STRATA_INVALID, "%s is %s; it must have at least 2 axes", i ? "b" : "a",
                               strata_shape_text(operands[i]->shape).text);
    return STRATA_OK;
}

/* The leading axes of the result. If only one operand has leading axes, they are those of that operand. */
static strata_status leading_axes(const strata_tensor *a, const strata_tensor *b, strata_shape *out_shape, strata_error *err) {
    *out_shape = a->shape.rank >= b->shape.rank ? a->shape : b->shape;
    if (a->shape.rank == 2 || b->shape.rank == 2) return STRATA_OK;
    bool equal = a->shape.rank == b->shape.rank;
    for (int i = 0; equal && i < a->shape.rank - 2; i++) equal = a->shape.dims[i] == b->shape.dims[i];
    if (equal) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "a is %s, b is %s; their leading axes must be equal, or one must have none",
                       strata_shape_text(a->shape).text, strata_shape_text(b->shape).text);
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_matmul_attrs *attrs = attrs_of(node);
    const strata_tensor *a = node->inputs[0], *b = node->inputs[1];
    STRATA_TRY(check_operands(a, b, err));
    const int64_t *a_dims = a->shape.dims + a->shape.rank - 2, *b_dims = b->shape.dims + b->shape.rank - 2;
    int64_t a_k = a_dims[attrs->transpose_a ? 0 : 1], b_k = b_dims[attrs->transpose_b ? 1 : 0];
    if (a_k != b_k)
        return strata_fail(err, STRATA_INVALID, "a is %s%s, b is %s%s; a's %" PRId64 " must equal b's %" PRId64,
                           strata_shape_text(a->shape).text, attrs->transpose_a ? " transposed" : "",
                           strata_shape_text(b->shape).text, attrs->transpose_b ? " transposed" : "", a_k, b_k);
    STRATA_TRY(leading_axes(a, b, &node->shape, err));
    node->shape.dims[node->shape.rank - 2] = a_dims[attrs->transpose_a ? 1 : 0];
    node->shape.dims[node->shape.rank - 1] = b_dims[attrs->transpose_b ? 0 : 1];
    return strata_epilogue_check(node, err);
}

strata_matmul_sizes strata_matmul_sizes_of(const strata_tensor *node) {
    const strata_shape a = node->inputs[0]->shape, b = node->inputs[1]->shape, c = node->shape;
    strata_matmul_sizes sizes = {.m = c.dims[c.rank - 2], .n = c.dims[c.rank - 1], .n_batch = 1};
    sizes.k = a.dims[a.rank - (attrs_of(node)->transpose_a ? 2 : 1)];
    for (int i = 0; i < c.rank - 2; i++) sizes.n_batch *= c.dims[i];
    sizes.a_row = a.dims[a.rank - 1];
    sizes.b_row = b.dims[b.rank - 1];
    sizes.a_batch = a.rank > 2 ? sizes.m * sizes.k : 0;
    sizes.b_batch = b.rank > 2 ? sizes.k * sizes.n : 0;
    return sizes;
}

/* ---- gradient ---- */

/* Sums a gradient over the leading axes that the operand does not have. */
static strata_tensor *sum_leading(strata_tensor *gradient, const strata_tensor *operand) {
    int n_axes = gradient ? gradient->shape.rank - operand->shape.rank : 0;
    static const int axes[STRATA_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    return n_axes > 0 ? strata_reduce_sum(gradient, axes, n_axes, false) : gradient;
}

/* C = A B:  dA = dC B^T, dB = A^T dC. If an operand is stored transposed, its gradient is the transposed equation, which
 * the flags express. */
static void gradient(strata_tensor *node, strata_tensor *dc, strata_tensor **dx) {
    const strata_matmul_attrs *attrs = attrs_of(node);
    strata_tensor *a = node->inputs[0], *b = node->inputs[1];
    if (!strata_epilogue_allows_gradient(node)) return;
    bool ta = attrs->transpose_a, tb = attrs->transpose_b;
    dx[0] = sum_leading(ta ? strata_matmul(b, dc, tb, true) : strata_matmul(dc, b, false, !tb), a);
    dx[1] = sum_leading(tb ? strata_matmul(dc, a, true, ta) : strata_matmul(a, dc, !ta, false), b);
}

/* ---- reference ---- */

enum { BLOCK_M = 8, BLOCK_N = 32 };

/* A block of one matrix of the result: the rows from m on and the columns from n on. */
typedef struct block {
    int64_t m, n;
    int rows, columns;
    double sum[BLOCK_M][BLOCK_N];
} block;

static void get_elements(strata_dtype dtype, const void *data, int64_t first, int64_t stride, int n, double *out) {
    if (dtype == STRATA_DTYPE_F32) {
        const float *x = (const float *)data + first;
        for (int i = 0; i < n; i++) out[i] = x[i * stride];
    } else {
        for (int i = 0; i < n; i++) out[i] = strata_element_get(dtype, data, first + i * stride);
    }
}

static void multiply_block(const strata_op_call *call, const strata_matmul_sizes *s, int64_t batch, block *c) {
    const strata_matmul_attrs *attrs = attrs_of(call->node);
    int64_t a_m = attrs->transpose_a ? 1 : s->a_row, a_k = attrs->transpose_a ? s->a_row : 1;
    int64_t b_k = attrs->transpose_b ? 1 : s->b_row, b_n = attrs->transpose_b ? s->b_row : 1;
    for (int i = 0; i < BLOCK_M; i++)
        for (int j = 0; j < BLOCK_N; j++) c->sum[i][j] = 0;
    for (int64_t k = 0; k < s->k; k++) {
        double a[BLOCK_M] = {0}, b[BLOCK_N] = {0};
        get_elements(call->node->dtype, call->inputs[0], batch * s->a_batch + c->m * a_m + k * a_k, a_m, c->rows, a);
        get_elements(call->node->dtype, call->inputs[1], batch * s->b_batch + k * b_k + c->n * b_n, b_n, c->columns, b);
        for (int i = 0; i < c->rows; i++)
            for (int j = 0; j < BLOCK_N; j++) c->sum[i][j] += a[i] * b[j];
    }
}

static void store_block(const strata_op_call *call, const strata_matmul_sizes *s, int64_t batch, const block *c) {
    for (int i = 0; i < c->rows; i++)
        for (int j = 0; j < c->columns; j++)
            strata_epilogue_store(call, (batch * s->m + c->m + i) * s->n + c->n + j, c->n + j, c->sum[i][j]);
}

static int least(int64_t a, int b) {
    return a < b ? (int)a : b;
}

static double sum_of(const strata_op_call *call, const strata_matmul_sizes *s, int64_t batch, int64_t m, int64_t n) {
    const strata_matmul_attrs *attrs = attrs_of(call->node);
    const strata_dtype dtype = call->node->dtype;
    const int64_t a_k = attrs->transpose_a ? s->a_row : 1, b_k = attrs->transpose_b ? 1 : s->b_row;
    const int64_t a = batch * s->a_batch + m * (attrs->transpose_a ? 1 : s->a_row);
    const int64_t b = batch * s->b_batch + n * (attrs->transpose_b ? s->b_row : 1);
    double sum = 0;
    for (int64_t k = 0; k < s->k; k++)
        sum +=
            strata_element_get(dtype, call->inputs[0], a + k * a_k) * strata_element_get(dtype, call->inputs[1], b + k * b_k);
    return sum;
}

static void compute_elements(const strata_op_call *call, const strata_matmul_sizes *s) {
    for (int64_t i = 0; i < call->n_elements; i++) {
        const int64_t at = call->elements[i], n = at % s->n, row = at / s->n;
        strata_epilogue_store(call, at, n, sum_of(call, s, row / s->m, row % s->m, n));
    }
}

static void reference(strata_op_call *call) {
    strata_matmul_sizes s = strata_matmul_sizes_of(call->node);
    if (call->elements) compute_elements(call, &s);
    if (call->elements) return;
    for (int64_t batch = 0; batch < s.n_batch; batch++) {
        for (int64_t m = 0; m < s.m; m += BLOCK_M) {
            for (int64_t n = 0; n < s.n; n += BLOCK_N) {
                block c = {.m = m, .n = n, .rows = least(s.m - m, BLOCK_M), .columns = least(s.n - n, BLOCK_N)};
                multiply_block(call, &s, batch, &c);
                store_block(call, &s, batch, &c);
            }
        }
    }
}

/* ---- lower ---- */

strata_launch strata_matmul_launch(const strata_tensor *node) {
    const strata_matmul_attrs *attrs = attrs_of(node);
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    strata_launch launch = STRATA_LAUNCH_WITH(NULL, strata_dtype_name(node->dtype), node->inputs[0], node->inputs[1],
                                              strata_epilogue_bias(node), strata_epilogue_aux_operand(node), node);
    STRATA_LAUNCH_CONSTANTS(&launch, {"TRANSPOSE_A", (int32_t)attrs->transpose_a},
                            {"TRANSPOSE_B", (int32_t)attrs->transpose_b});
    launch.grid_stride = true;
    STRATA_LAUNCH_INTS(&launch, s.m, s.n, s.k, s.n_batch, /* inner: */ 1, s.a_row, s.b_row, /* c_stride: */ s.n);
    /* a_outer, a_inner, b_outer, b_inner, c_batch_stride: */
    STRATA_LAUNCH_INTS(&launch, s.a_batch, 0, s.b_batch, 0, s.m * s.n);
    strata_epilogue_constants(&launch, node);
    return launch;
}

static int64_t n_tiles(const strata_matmul_sizes *s, int tile) {
    return s->n_batch * ((s->m + tile - 1) / tile) * ((s->n + tile - 1) / tile);
}

/* A work-group of 16 x 16 work-items computes a tile with 4 x 4, 2 x 2 or 1 elements for each work-item. The largest tile is
 * used for which every compute unit of a GPU still has work. Tile sizes do not change the bits. */
static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    enum { LOCAL = 16, ENOUGH_TILES = 96 };
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    int work = 4;
    while (work > 1 && n_tiles(&s, LOCAL * work) < ENOUGH_TILES) work /= 2;
    strata_launch launch = strata_matmul_launch(node);
    launch.kernel = "matmul";
    STRATA_LAUNCH_CONSTANTS(&launch, {"WORK_M", work}, {"WORK_N", work});
    launch.global[0] = n_tiles(&s, LOCAL * work) * LOCAL;
    launch.global[1] = launch.local[0] = launch.local[1] = LOCAL;
    return strata_lowering_add(lowering, &launch, err);
}

static double flops(const strata_tensor *node) {
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    return 2.0 * (double)s.n_batch * (double)s.m * (double)s.n * (double)s.k;
}

static void factors(const strata_tensor *node, strata_factors *factors) {
    static const char *const rows[2][2] = {{"...mk,...kn->...mn", "...mk,...nk->...mn"},
                                           {"...km,...kn->...mn", "...km,...nk->...mn"}};
    const strata_matmul_attrs *attrs = node->attrs;
    if (node->n_inputs > 2) return;
    factors->linearity = STRATA_LINEAR_EACH;
    strata_factors_row(rows[attrs->transpose_a != 0][attrs->transpose_b != 0], node, factors);
}

const strata_op strata_op_matmul = {
    .name = "matmul",
    .n_inputs = 2,
    .optional_inputs = 2,
    .flags = STRATA_OP_SAMPLES,
    .attrs_bytes = sizeof(strata_matmul_attrs),
    .attrs = {{"transpose_a", STRATA_ATTR_INT, offsetof(strata_matmul_attrs, transpose_a)},
              {"transpose_b", STRATA_ATTR_INT, offsetof(strata_matmul_attrs, transpose_b)},
              STRATA_EPILOGUE_ATTRS(strata_matmul_attrs)},
    .epilogue = offsetof(strata_matmul_attrs, epilogue),
    .words = strata_epilogue_words,
    .factors = factors,
    .shape = shape,
    .gradient = gradient,
    .reference = reference,
    .compose = strata_epilogue_unfolded,
    .flops = flops,
    .lower = lower,
};

/* ---- builders ---- */

static strata_tensor *plain(strata_tensor *a, strata_tensor *b, bool transpose_a, bool transpose_b) {
    strata_matmul_attrs attrs = {.transpose_a = transpose_a, .transpose_b = transpose_b};
    return strata_node(NULL, &strata_op_matmul, 2, (strata_tensor *[]){a, b}, &attrs);
}

/* If one b is multiplied with all matrices of a, this is a single product: a's leading axes become part of M. */
strata_tensor *strata_matmul(strata_tensor *a, strata_tensor *b, bool transpose_a, bool transpose_b) {
    if (!a || !b || transpose_a || a->shape.rank <= 2 || b->shape.rank != 2) return plain(a, b, transpose_a, transpose_b);
    strata_shape folded = {.rank = 2, .dims = {1, a->shape.dims[a->shape.rank - 1]}};
    for (int i = 0; i < a->shape.rank - 1; i++) folded.dims[0] *= a->shape.dims[i];
    /* Its shape rule reports the error. */
    if (folded.dims[1] != b->shape.dims[transpose_b ? 1 : 0]) return plain(a, b, false, transpose_b);
    strata_shape result = a->shape;
    result.dims[result.rank - 1] = b->shape.dims[transpose_b ? 0 : 1];
    return strata_reshape(plain(strata_reshape(a, folded), b, false, transpose_b), result);
}
