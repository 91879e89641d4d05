/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers: Philox-4x32-10 in integer arithmetic (include/strata/philox.h), so that the bits are those of every other
 * device. StableHLO does not define the bits of its own generator. */
#include "backends/pjrt/lower.h"
#include "core/op/ops.h"

/* The low and the high word of a 64-bit number, and of the product of x (ui32) and a constant. */
static void split(hlo *h, hlo_value x, hlo_value *out_low, hlo_value *out_high) {
    *out_low = strata_hlo_convert(h, x, HLO_UI32);
    *out_high = strata_hlo_convert(h, strata_hlo_with(h, "shift_right_logical", x, 32), HLO_UI32);
}

static void multiply(hlo *h, hlo_value x, uint32_t factor, hlo_value *out_low, hlo_value *out_high) {
    split(h, strata_hlo_with(h, "multiply", strata_hlo_convert(h, x, HLO_UI64), factor), out_low, out_high);
}

static hlo_value word(hlo *h, hlo_value state, int64_t index) {
    return strata_hlo_reshape(h, strata_hlo_part(h, state, index, 1), STRATA_SHAPE());
}

/* The members of strata_random_sequence as values. */
typedef struct sequence {
    hlo_value key[2], step;
    /* ui64: the number of element 0 in the sequence. */
    hlo_value first;
} sequence;

static sequence sequence_of(hlo *h, const strata_tensor *node) {
    const hlo_value state = strata_hlo_bitcast(h, strata_pjrt_operand(h, node, 0), HLO_UI32);
    const int64_t n = strata_shape_elements(node->shape);
    const double row = node->shape.rank && node->shape.dims[0] ? (double)(n / node->shape.dims[0]) : 1;
    const hlo_value low = strata_hlo_convert(h, word(h, state, 4), HLO_UI64),
                    high = strata_hlo_convert(h, word(h, state, 5), HLO_UI64);
    const hlo_value rows = strata_hlo_binary(h, "or", strata_hlo_with(h, "shift_left", high, 32), low);
    return (sequence){.key = {word(h, state, 0), word(h, state, 1)},
                      .step = word(h, state, 2),
                      .first = strata_hlo_with(h, "multiply", rows, row)};
}

/* words[i]: word i of each block that contains elements of the node, beginning with the block of element 0. */
static void blocks(hlo *h, const strata_tensor *node, const sequence *s, hlo_value words[4]) {
    /* The number of blocks, whichever position the first element has in its block. */
    const strata_shape shape = STRATA_SHAPE((strata_shape_elements(node->shape) + 6) / 4);
    hlo_value key[] = {s->key[0], s->key[1]};
    split(h,
          strata_hlo_binary(h, "add", strata_hlo_iota(h, HLO_UI64, shape, 0),
                            strata_hlo_with(h, "shift_right_logical", s->first, 2)),
          &words[0], &words[1]);
    words[2] = strata_hlo_fill(h, HLO_UI32, shape, (double)strata_pjrt_int(node, "stream"));
    words[3] = strata_hlo_broadcast(h, s->step, shape);
    for (int round = 0; round < 10; round++) {
        hlo_value low[2], high[2];
        multiply(h, words[0], 0xD2511F53u, &low[0], &high[0]);
        multiply(h, words[2], 0xCD9E8D57u, &low[1], &high[1]);
        words[0] = strata_hlo_binary(h, "xor", strata_hlo_binary(h, "xor", high[1], words[1]), key[0]);
        words[2] = strata_hlo_binary(h, "xor", strata_hlo_binary(h, "xor", high[0], words[3]), key[1]);
        words[1] = low[1];
        words[3] = low[0];
        key[0] = strata_hlo_with(h, "add", key[0], 0x9E3779B9u);
        key[1] = strata_hlo_with(h, "add", key[1], 0xBB67AE85u);
    }
}

/* The upper 24 bits as a number in [0, 1). */
static hlo_value uniform(hlo *h, hlo_value x) {
    return strata_hlo_with(h, "multiply", strata_hlo_convert(h, strata_hlo_with(h, "shift_right_logical", x, 8), HLO_F32),
                           0x1p-24);
}

/* Puts the numbers of all blocks one after the other and returns those from element 0 on, in the shape. */
static hlo_value elements(hlo *h, const sequence *s, const hlo_value numbers[4], strata_shape shape) {
    const int64_t n_blocks = numbers[0].shape.dims[0];
    hlo_value columns[4];
    for (int i = 0; i < 4; i++) columns[i] = strata_hlo_reshape(h, numbers[i], STRATA_SHAPE(n_blocks, 1));
    const hlo_value flat = strata_hlo_reshape(h, strata_hlo_concat(h, columns, 4, 1), STRATA_SHAPE(4 * n_blocks));
    const hlo_value begin = strata_hlo_convert(h, strata_hlo_with(h, "and", s->first, 3), HLO_I32);
    return strata_hlo_reshape(h, strata_hlo_dynamic_part(h, flat, begin, strata_shape_elements(shape)), shape);
}

static hlo_value random_uniform(hlo *h, const strata_tensor *node) {
    if (!strata_shape_elements(node->shape)) return strata_hlo_fill(h, HLO_F32, node->shape, 0);
    const sequence s = sequence_of(h, node);
    hlo_value words[4];
    blocks(h, node, &s, words);
    return uniform(h, elements(h, &s, words, node->shape));
}

/* The Box-Muller transform of words (0, 1) and (2, 3) of each block. */
static hlo_value random_normal(hlo *h, const strata_tensor *node) {
    if (!strata_shape_elements(node->shape)) return strata_hlo_fill(h, HLO_F32, node->shape, 0);
    const sequence s = sequence_of(h, node);
    hlo_value words[4], numbers[4];
    blocks(h, node, &s, words);
    for (int i = 0; i < 4; i += 2) {
        const hlo_value logarithm = strata_hlo_unary(h, "log", strata_hlo_with(h, "add", uniform(h, words[i]), 0x1p-24));
        const hlo_value radius = strata_hlo_unary(h, "sqrt", strata_hlo_with(h, "multiply", logarithm, -2));
        const hlo_value angle = strata_hlo_with(h, "multiply", uniform(h, words[i + 1]), 6.283185307179586);
        numbers[i] = strata_hlo_binary(h, "multiply", radius, strata_hlo_unary(h, "cosine", angle));
        numbers[i + 1] = strata_hlo_binary(h, "multiply", radius, strata_hlo_unary(h, "sine", angle));
    }
    return elements(h, &s, numbers, node->shape);
}

const pjrt_row strata_pjrt_random[] = {PJRT_ROW(random_uniform), PJRT_ROW(random_normal), {0}};
