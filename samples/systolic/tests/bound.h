/* SPDX-License-Identifier: Apache-2.0
 *
 * Bounds for the error of a product on the array: how far an element may be from the exact sum of a_k b_k over k. README.md of
 * the simulator derives the formulas. The sums are over the operands in f32, before the array rounds them. */
#ifndef SYSTOLIC_TESTS_BOUND_H
#define SYSTOLIC_TESTS_BOUND_H

#include <math.h>
#include <stdint.h>

/* Sums over the terms of one element of the result. */
typedef struct terms {
    /* sum a_k b_k, sum |a_k b_k| and sum (a_k b_k)^2. */
    double sum, size, squares;
} terms;

static inline void add_term(terms *t, double a, double b) {
    t->sum += a * b;
    t->size += fabs(a * b);
    t->squares += a * b * a * b;
}

/* The unit roundoff of round-to-nearest: half the distance between neighbouring numbers, relative to the smaller one. */
static const double BF16_UNIT = 0x1p-8, F32_UNIT = 0x1p-24;

/* How often a term may be rounded in f32: in a column of 128 of the array, and then in the accumulator, which adds the
 * columns' sums. */
static inline double roundings_of(int64_t depth) {
    const double column = depth < 128 ? (double)depth : 128;
    return depth > 0 ? column + ceil((double)depth / 128) - 2 : 0;
}

/* Higham's gamma_n: n roundings change a number by a factor within 1 - gamma_n and 1 + gamma_n. */
static inline double gamma_of(double n) {
    return n * F32_UNIT / (1 - n * F32_UNIT);
}

/* Holds for all operands, unless there is underflow. */
static inline double worst_bound(const terms *t, int64_t depth) {
    const double operands = (1 + BF16_UNIT) * (1 + BF16_UNIT);
    return (operands * (1 + gamma_of(roundings_of(depth))) - 1) * t->size;
}

/* probable_bound holds for all n elements together, except with a probability of 2 n exp(-lambda^2 / 2), if rounding errors
 * are independent and have mean zero. lambda_of is the lambda for a probability of 1e-9. */
static inline double lambda_of(double n) {
    return sqrt(2 * log(2 * n / 1e-9));
}
static inline double probable_bound(const terms *t, int64_t depth, double n) {
    const double lambda = lambda_of(n), u = BF16_UNIT;
    return lambda * sqrt(2.0) * u * sqrt(t->squares) + u * u * t->size +
           (1 + u) * (1 + u) * gamma_of(lambda * sqrt(roundings_of(depth))) * t->size;
}

#endif
