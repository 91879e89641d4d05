/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares what a device has computed with reference results. */
#include "core/run/compare.h"

#include <math.h>
#include <string.h>

#include "core/op/element.h"

static double value_of(const strata_tensor *tensor, const void *data, int64_t element) {
    return tensor->dtype == STRATA_DTYPE_F32 ? (double)((const float *)data)[element]
                                             : strata_element_get(tensor->dtype, data, element);
}

static int64_t count_of(const strata_tensor *tensor, const strata_sample *sample) {
    return sample->elements ? sample->n : strata_shape_elements(tensor->shape);
}

static int64_t element_of(const strata_sample *sample, int64_t i) {
    return sample->elements ? sample->elements[i] : i;
}

/* A loop that compilers vectorize: whether no float has the exponent of infinity and NaN. */
static bool are_finite(const uint32_t *bits, int64_t n) {
    const uint32_t exponent = 0x7f800000;
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++) any |= (bits[i] & exponent) == exponent;
    return !any;
}

bool strata_check_is_finite(const strata_tensor *tensor, const strata_sample *sample, const void *data) {
    if (!strata_dtype_is_float(tensor->dtype)) return true;
    if (tensor->dtype == STRATA_DTYPE_F32 && !sample->elements) return are_finite(data, strata_shape_elements(tensor->shape));
    for (int64_t i = 0; i < count_of(tensor, sample); i++)
        if (!isfinite(value_of(tensor, data, element_of(sample, i)))) return false;
    return true;
}

double strata_check_tolerance(strata_dtype dtype) {
    return dtype == STRATA_DTYPE_BF16 ? 4e-2 : dtype == STRATA_DTYPE_F16 ? 5e-3 : dtype == STRATA_DTYPE_F32 ? 3e-4 : 0;
}

static double distance(double got, double want) {
    if (got == want || (isnan(got) && isnan(want))) return 0;
    return isfinite(got) && isfinite(want) ? fabs(got - want) : INFINITY;
}

/* The largest absolute value, but at least 1e-30, so that small numbers that a device flushes to zero do not count as
 * errors. */
static double largest(const strata_tensor *tensor, const strata_sample *sample, const void *values) {
    double most = 1e-30;
    for (int64_t i = 0; i < count_of(tensor, sample); i++) {
        const double value = value_of(tensor, values, element_of(sample, i));
        if (isfinite(value)) most = fmax(most, fabs(value));
    }
    return most;
}

double strata_check_difference(const strata_tensor *tensor, const strata_sample *sample, const void *got, const void *want) {
    double most = 0;
    if (!sample->elements && !memcmp(got, want, (size_t)strata_tensor_bytes(tensor))) return 0;
    for (int64_t i = 0; i < count_of(tensor, sample); i++) {
        const int64_t e = element_of(sample, i);
        most = fmax(most, distance(value_of(tensor, got, e), value_of(tensor, want, e)));
    }
    return most > 0 ? most / largest(tensor, sample, want) : 0;
}

/* Differences of an element that are allowed in addition to each other: `rounding`, the tolerance times the tensor's
 * largest value, and ROOM times the root mean square of the changes that the moved operands cause. The last is
 * needed for a sum whose terms cancel each other: its result is mostly rounding error, and moved operands show how
 * large that is.
 *
 * An op that decides by a value that it has computed (a relu after a sum) may decide differently if the value is near
 * the threshold. So one of FEW elements may differ by more, up to twice the largest change that the moved operands
 * cause. */
void strata_check_count(strata_excess *excess, const strata_tensor *tensor, const strata_sample *sample, double tolerance,
                        double rounding, const void *got, const void *want, const void *moved) {
    enum { ROOM = 4 };
    const int64_t n = count_of(tensor, sample);
    const double most = largest(tensor, sample, want);
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t e = element_of(sample, i);
        const double d = distance(value_of(tensor, moved, e), value_of(tensor, want, e));
        if (!isfinite(d)) continue;
        squares += d * d;
        excess->most_moved = fmax(excess->most_moved, d / most);
    }
    const double room = rounding + tolerance * most + ROOM * sqrt(squares / (double)(n + !n));
    excess->n += n;
    for (int64_t i = 0; i < n; i++) {
        const int64_t e = element_of(sample, i);
        const double value = value_of(tensor, want, e), d = distance(value_of(tensor, got, e), value);
        excess->n_beyond += d > room;
        excess->n_moved += distance(value_of(tensor, moved, e), value) > room;
        excess->most = fmax(excess->most, d / most);
    }
}

bool strata_check_exceeds(const strata_excess *excess, int64_t allowed) {
    enum { FEW = 10000 };
    return excess->n_beyond > 1 + excess->n / FEW + allowed || (excess->n_beyond && excess->most > 2 * excess->most_moved);
}

bool strata_check_is_off(const strata_tensor *tensor, const strata_sample *sample, double tolerance, double rounding,
                         const void *got, const void *want, const void *moved) {
    strata_excess excess = {0};
    strata_check_count(&excess, tensor, sample, tolerance, rounding, got, want, moved);
    return strata_check_exceeds(&excess, 0);
}

void strata_check_move(const strata_tensor *tensor, double part, void *data, uint32_t random) {
    if (!strata_dtype_is_float(tensor->dtype)) return;
    for (int64_t e = 0; e < strata_shape_elements(tensor->shape); e++) {
        random = random * 1664525u + 1013904223u;
        const double by = part * ((double)(random >> 8) / (1 << 23) - 1);
        strata_element_set(tensor->dtype, data, e, strata_element_get(tensor->dtype, data, e) * (1 + by));
    }
}
