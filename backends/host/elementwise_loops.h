/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of elementwise.c, which includes this file once for each instruction set. TARGET is the attribute of the
 * functions, NAMED(f) makes their names. The file defines the tables NAMED(unary_rows), NAMED(binary_rows) and
 * NAMED(compare_rows), and the loop NAMED(choose). */
#define UNARY_NUMBER(code, name, expression)                                        \
    TARGET static void NAMED(unary_##name)(const float *xs, float *ys, int64_t n) { \
        for (int64_t i = 0; i < n; i++) {                                           \
            float x = xs[i];                                                        \
            ys[i] = (expression);                                                   \
        }                                                                           \
    }
#define UNARY_FLOAT UNARY_NUMBER
#define BINARY_NUMBER(code, name, expression)                                                         \
    TARGET static void NAMED(binary_##name)(const float *as, const float *bs, float *ys, int64_t n) { \
        for (int64_t i = 0; i < n; i++) {                                                             \
            float a = as[i], b = bs[i];                                                               \
            ys[i] = (expression);                                                                     \
        }                                                                                             \
    }                                                                                                 \
    TARGET static void NAMED(binary_scalar_##name)(const float *as, float b, float *ys, int64_t n) {  \
        for (int64_t i = 0; i < n; i++) {                                                             \
            float a = as[i];                                                                          \
            ys[i] = (expression);                                                                     \
        }                                                                                             \
    }
#define BINARY_FLOAT BINARY_NUMBER
#define COMPARE(code, name, expression)                                                                  \
    TARGET static void NAMED(compare_##name)(const float *as, const float *bs, uint8_t *ys, int64_t n) { \
        for (int64_t i = 0; i < n; i++) {                                                                \
            float a = as[i], b = bs[i];                                                                  \
            ys[i] = (expression);                                                                        \
        }                                                                                                \
    }
#include "core/op/elementwise.def"

TARGET static void NAMED(choose)(const uint8_t *conditions, const float *as, const float *bs, float *ys, int64_t n) {
    for (int64_t i = 0; i < n; i++) ys[i] = conditions[i] ? as[i] : bs[i];
}

#define UNARY_NUMBER(code, name, expression) {&strata_op_##name, NAMED(unary_##name)},
#define UNARY_FLOAT                          UNARY_NUMBER
static const unary_row NAMED(unary_rows)[] = {
#include "core/op/elementwise.def"
};
#define BINARY_NUMBER(code, name, expression) {&strata_op_##name, NAMED(binary_##name), NAMED(binary_scalar_##name)},
#define BINARY_FLOAT                          BINARY_NUMBER
static const binary_row NAMED(binary_rows)[] = {
#include "core/op/elementwise.def"
};

#define COMPARE(code, name, expression) {&strata_op_##name, NAMED(compare_##name)},
static const compare_row NAMED(compare_rows)[] = {
#include "core/op/elementwise.def"
};

#undef TARGET
#undef NAMED
