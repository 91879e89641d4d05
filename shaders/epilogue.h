/* SPDX-License-Identifier: Apache-2.0
 *
 * The epilogue, which is applied to each element of a product before it is stored. matmul.kernel describes the
 * constants BIAS, ACTIVATION and AUX. `at` is the element's index in c and aux, which share their layout. */
#define EPILOGUE(v, n, at)                             \
    if (BIAS != 0u) v = v + LOAD(T, bias, n);          \
    if (ACTIVATION == 1u) v = RELU(v);                 \
    if (ACTIVATION == 2u) v = TANH(v);                 \
    if (ACTIVATION == 3u) v = SIGMOID(v);              \
    if (AUX != 0u) {                                   \
        const float other = LOAD(T, aux, at);          \
        if (AUX == 1u) v = other > 0.0f ? v : 0.0f;    \
        if (AUX == 2u) v = v * (1.0f - other * other); \
        if (AUX == 3u) v = v * other * (1.0f - other); \
        if (AUX == 4u) v = v + other;                  \
    }
