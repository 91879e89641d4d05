/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows for LSTM and GRU over sequences. */
#include "tests/conformance/case.h"

#define BUILD(name) static strata_tensor *build_##name(strata_tensor *const *x, const int64_t *p, strata_dtype dtype)

/* Factors (N, U) with the elements 0, 0.5, 1, 1.5, 0, ... */
static strata_tensor *factors_of(strata_tensor *z, strata_tensor *matrix) {
    const int64_t n = strata_tensor_shape(z).dims[0], u = strata_tensor_shape(matrix).dims[0];
    float numbers[1024];
    for (int64_t i = 0; i < n * u; i++) numbers[i] = (float)(i % 4) / 2;
    const strata_array array = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n, u), numbers);
    return strata_constant(strata_tensor_graph(z), &array);
}

/* p: GRU or LSTM, the two activations, reverse, last, reset_first, with factors or without. */
static strata_tensor *recurrent(strata_tensor *const *x, strata_tensor *mask, const int64_t *p) {
    const strata_recurrent_options opts = {.activation = (strata_recurrent_activation)p[1],
                                           .recurrent_activation = (strata_recurrent_activation)p[2],
                                           .reverse = p[3] != 0,
                                           .last = p[4] != 0,
                                           .reset_first = p[5] != 0,
                                           .factors = p[6] ? factors_of(x[0], x[1]) : NULL};
    return (p[0] ? strata_gru : strata_lstm)(x[0], x[1], x[2], mask, opts);
}
BUILD(plain) {
    (void)dtype;
    return recurrent(x, NULL, p);
}
BUILD(masked) {
    (void)dtype;
    return recurrent(x, x[3], p);
}
/* The gradients of all operands, joined to one tensor so that all are compared. x[4] is dy. */
static strata_tensor *gradients(strata_tensor *const *x, strata_tensor *mask, const int64_t *p) {
    strata_tensor *dx[3], *parts[3];
    strata_gradients(recurrent(x, mask, p), x[4], x, 3, dx);
    for (int i = 0; i < 3; i++)
        parts[i] = strata_reshape(dx[i], STRATA_SHAPE(strata_shape_elements(strata_tensor_shape(dx[i]))));
    return strata_concat(parts, 3, 0);
}
BUILD(plain_grad) {
    (void)dtype;
    return gradients(x, NULL, p);
}
BUILD(masked_grad) {
    (void)dtype;
    return gradients(x, x[3], p);
}

#define GATED(gates, n, t, u)                                              \
    {3, {n, t, gates * (u)}}, {2, {u, gates * (u)}}, {1, {gates * (u)}}, { \
        2, {                                                               \
            n, t                                                           \
        }                                                                  \
    }
#define LSTM(n, t, u, ...) \
    { .shapes = {GATED(4, n, t, u), {3, {n, t, u}}}, .p = {0, __VA_ARGS__}, .terms = 256 }
#define GRU(n, t, u, ...) \
    { .shapes = {GATED(3, n, t, u), {3, {n, t, u}}}, .p = {1, __VA_ARGS__}, .terms = 256 }
/* Instances: every size 1; odd sizes; more examples than one work-item computes; whole vectors of 16 units and a rest;
 * other activations; no examples; no steps. The two instances without steps have different numbers of units. With equal
 * ones the output of one would be a copy of the other's, and Oclgrind reports that the copied memory is uninitialised,
 * although it was filled. */
static const case_instance instances[] = {
    LSTM(1, 1, 1, 0),
    LSTM(3, 5, 7, 0),
    LSTM(9, 4, 35, 0, 0, 1),
    LSTM(2, 3, 16, STRATA_RECURRENT_RELU, STRATA_RECURRENT_LINEAR),
    LSTM(5, 33, 24, 0),
    LSTM(0, 3, 2, 0),
    GRU(1, 1, 1, 0),
    GRU(3, 5, 7, 0),
    GRU(9, 4, 35, 0, 0, 1),
    GRU(2, 3, 16, 0),
    GRU(2, 0, 2, 0),
    GRU(1, 1, 1, 0, 0, 0, 0, 1),
    GRU(3, 5, 7, 0, 0, 0, 0, 1),
    GRU(9, 4, 35, 0, 0, 1, 0, 1),
    GRU(2, 0, 3, 0, 0, 0, 0, 1),
    GRU(5, 3, 16, 0, 0, 0, 0, 1, 1),
    GRU(3, 5, 7, 0, 0, 0, 0, 0, 1),
    LSTM(9, 4, 35, 0, 0, 1, 0, 0, 1),
};

#define SMALL(low, high) \
    { CASE_UNIFORM, low, high, 0, false }
#define OPERANDS \
    { SMALL(-1, 1), SMALL(-0.5, 0.5), SMALL(-0.5, 0.5), {CASE_WHOLE, 0, 1.99, 0, false}, SMALL(-1, 1) }
#define ROW(name, kind, builder, n)                                                                                    \
    {                                                                                                                  \
        .op = name, .variant = kind, .build = build_##builder, .dtypes = 1u << STRATA_DTYPE_F32, .operands = OPERANDS, \
        .n_operands = n, .instances = CASE_INSTANCES(instances)                                                        \
    }
static const op_row recurrent_rows[] = {
    ROW("recurrent", "", plain, 3),
    ROW("recurrent", "masked", masked, 4),
    ROW("recurrent_grad", "", plain_grad, 5),
    ROW("recurrent_grad", "masked", masked_grad, 5),
};
const op_table case_recurrent = CASE_TABLE("recurrent", recurrent_rows);
