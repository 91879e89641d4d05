/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of initializers: each row says which distribution the values have and how wide it is. */
#include <math.h>
#include <string.h>

#include "core/layer/layer.h"
#include "strata/philox.h"

typedef enum distribution { CONSTANT, UNIFORM, NORMAL, TRUNCATED_NORMAL, ORTHOGONAL, FORGET } distribution;

struct strata_initializer {
    const char *name;
    distribution distribution;
    /* CONSTANT: the value. NORMAL: the standard deviation. Else the variance, which is divided by the fan if `fan` is not
     * FAN_NONE. */
    double value;
    enum { FAN_NONE, FAN_IN, FAN_AVERAGE } fan;
};

/* A uniform distribution has the limits +-sqrt(3 variance). Glorot & Bengio 2010: variance 1 / fan_avg. He et al. 2015: 2
 * / fan_in. */
static const strata_initializer table[] = {
    {"zeros", CONSTANT, 0, FAN_NONE},
    {"ones", CONSTANT, 1, FAN_NONE},
    {"normal", NORMAL, 0.05, FAN_NONE},
    {"uniform", UNIFORM, 0.05 * 0.05 / 3, FAN_NONE},
    {"glorot_uniform", UNIFORM, 1, FAN_AVERAGE},
    {"glorot_normal", TRUNCATED_NORMAL, 1, FAN_AVERAGE},
    {"he_uniform", UNIFORM, 2, FAN_IN},
    {"he_normal", TRUNCATED_NORMAL, 2, FAN_IN},
    {"orthogonal", ORTHOGONAL, 1, FAN_NONE},
    /* The bias of an LSTM: 1 for the second of the four gates, 0 for the others. No other parameter may use it, so it is
     * not among the names. */
    {"unit_forget_bias", FORGET, 0, FAN_NONE},
};
enum { N_INITIALIZERS = sizeof table / sizeof *table, N_NAMES = N_INITIALIZERS - 1 };

const char *const strata_initializer_names[] = {"zeros",         "ones",       "normal",    "uniform",    "glorot_uniform",
                                                "glorot_normal", "he_uniform", "he_normal", "orthogonal", NULL};
_Static_assert(sizeof strata_initializer_names / sizeof *strata_initializer_names == N_NAMES + 1, "one name a row");

strata_status strata_initializer_find(const char *name, const strata_initializer **out_initializer, strata_error *err) {
    for (int i = 0; i < N_INITIALIZERS; i++)
        if (!strcmp(table[i].name, name)) {
            *out_initializer = &table[i];
            return STRATA_OK;
        }
    return strata_fail(
        err, STRATA_INVALID,
        "there is no initializer \"%s\"; there are: zeros, ones, normal, uniform, glorot_uniform, glorot_normal, "
        "he_uniform, he_normal, orthogonal",
        name);
}

const char *strata_initializer_name(const strata_initializer *initializer) {
    return initializer->name;
}

/* Computes four standard normal numbers from one block, by the Box-Muller method on two pairs of words. u is in (0, 1],
 * so that the logarithm is finite. */
static void normals(strata_philox_block block, double out[4]) {
    for (int i = 0; i < 4; i += 2) {
        double u = (block.words[i] + 1.0) / 4294967296.0, v = block.words[i + 1] / 4294967296.0;
        double radius = sqrt(-2 * log(u)), angle = 6.283185307179586 * v;
        out[i] = radius * cos(angle);
        out[i + 1] = radius * sin(angle);
    }
}

/* A standard normal number for element i, truncated to two standard deviations: the first such number of the element's
 * own sequence. */
static double truncated_normal(uint64_t seed, uint32_t stream, int64_t i) {
    /* The standard deviation of the truncated distribution. Dividing by it makes it 1 again. */
    const double spread = 0.87962566103423978;
    for (uint32_t attempt = 0;; attempt++) {
        strata_philox_block counter = {{(uint32_t)i, (uint32_t)((uint64_t)i >> 32), stream, attempt}};
        double drawn[4];
        normals(strata_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32)), drawn);
        for (int k = 0; k < 4; k++)
            if (fabs(drawn[k]) < 2) return drawn[k] / spread;
    }
}

static double draw(const strata_initializer *initializer, uint64_t seed, uint32_t stream, double variance, int64_t i) {
    if (initializer->distribution == CONSTANT) return initializer->value;
    if (initializer->distribution == TRUNCATED_NORMAL) return sqrt(variance) * truncated_normal(seed, stream, i);
    uint64_t block = (uint64_t)i / 4;
    strata_philox_block counter = {{(uint32_t)block, (uint32_t)(block >> 32), stream, 0}};
    strata_philox_block random = strata_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    if (initializer->distribution == UNIFORM) return sqrt(3 * variance) * (2 * ((random.words[i % 4] >> 8) / 16777216.0) - 1);
    double drawn[4];
    normals(random, drawn);
    return initializer->value * drawn[i % 4];
}

/* Makes the rows of x (rows, columns) orthogonal and of length 1, or its columns if there are fewer columns than rows. It
 * is the Gram-Schmidt method, applied twice because rounding errors are left after one pass. `step` is the distance from
 * one vector to the next, `stride` that between elements of a vector. */
static void make_orthonormal(float *x, int64_t rows, int64_t columns) {
    const bool wide = rows <= columns;
    const int64_t n = wide ? rows : columns, length = wide ? columns : rows, step = wide ? columns : 1,
                  stride = wide ? 1 : columns;
    for (int64_t i = 0; i < n; i++) {
        float *own = x + i * step;
        double squares = 0;
        for (int64_t pass = 0, j = 0; pass < 2; j++) {
            const float *other = x + j * step;
            double along = 0;
            if (j >= i) {
                pass++;
                j = -1;
                continue;
            }
            for (int64_t k = 0; k < length; k++) along += (double)own[k * stride] * (double)other[k * stride];
            for (int64_t k = 0; k < length; k++) own[k * stride] -= (float)(along * (double)other[k * stride]);
        }
        for (int64_t k = 0; k < length; k++) squares += (double)own[k * stride] * (double)own[k * stride];
        for (int64_t k = 0; k < length && squares > 0; k++) own[k * stride] /= (float)sqrt(squares);
    }
}

void strata_initializer_fill(const strata_initializer *initializer, uint64_t seed, uint32_t stream, int64_t fan_in,
                             int64_t fan_out, float *values, int64_t n) {
    double fan = initializer->fan == FAN_NONE ? 1
                 : initializer->fan == FAN_IN ? (double)fan_in
                                              : ((double)fan_in + (double)fan_out) / 2;
    double variance = initializer->value / (fan < 1 ? 1 : fan);
    for (int64_t i = 0; i < n; i++) values[i] = (float)draw(initializer, seed, stream, variance, i);
    if (initializer->distribution == ORTHOGONAL) make_orthonormal(values, fan_in, n / (fan_in < 1 ? 1 : fan_in));
    for (int64_t i = n / 4; initializer->distribution == FORGET && i < n / 4 * 2; i++) values[i] = 1;
}
