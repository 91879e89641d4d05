/* SPDX-License-Identifier: Apache-2.0
 *
 * random_uniform and random_normal: element e of stream s at a step depends only on (seed, step, s, e), by Philox-4x32-10.
 * shaders/README.md defines which word of which counter an element uses; dropout.c draws from the same sequences. */
#include "core/op/random.h"

#include "core/op/define.h"

extern const strata_op strata_op_random_uniform, strata_op_random_normal;

/* ---- shared with dropout ---- */

strata_status strata_check_random(const strata_tensor *state, int64_t stream, strata_error *err) {
    STRATA_TRY(strata_check_dtype(state, "state", 1u << STRATA_DTYPE_I32, err));
    if (!strata_shape_equal(state->shape, STRATA_SHAPE(STRATA_RNG_WORDS)))
        return strata_fail(err, STRATA_INVALID, "state is %s; it must be (%d)", strata_shape_text(state->shape).text,
                           STRATA_RNG_WORDS);
    if (stream >= 0 && stream <= UINT32_MAX) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "stream is %" PRId64 "; it must be 0 to 2^32 - 1", stream);
}

/* Four neighbouring elements use one Philox counter. Its first two words are e / 4, then come stream and step; the seed
 * is the key. */
/* The number of elements for one index of the leading axis. */
static uint64_t row_of(strata_shape shape) {
    return shape.rank && shape.dims[0] ? (uint64_t)(strata_shape_elements(shape) / shape.dims[0]) : 1;
}

strata_random_sequence strata_random_sequence_of(const int32_t *state, int64_t stream, strata_shape shape) {
    const uint32_t *words = (const uint32_t *)state;
    return (strata_random_sequence){
        .key = {words[0], words[1]},
        .step = words[2],
        .stream = (uint32_t)stream,
        .first = ((uint64_t)words[5] << 32 | words[4]) * row_of(shape),
    };
}

/* Computes the four words that contain the element's word, which is words[element % 4]. `element` is numbered in the
 * whole tensor. */
static strata_philox_block random_quad(const strata_random_sequence *sequence, uint64_t element) {
    uint64_t quad = element / 4;
    strata_philox_block counter = {{(uint32_t)quad, (uint32_t)(quad >> 32), sequence->stream, sequence->step}};
    return strata_philox(counter, sequence->key[0], sequence->key[1]);
}

double strata_random_uniform_at(const strata_random_sequence *sequence, int64_t index) {
    uint64_t element = sequence->first + (uint64_t)index;
    return strata_uniform_from_word(random_quad(sequence, element).words[element % 4]);
}

strata_status strata_random_grid(strata_launch *launch, strata_shape shape, int64_t stream, strata_error *err) {
    const int64_t n = strata_shape_elements(shape);
    STRATA_TRY(strata_launch_flat(launch, n, err));
    STRATA_LAUNCH_INTS(launch, stream, (int64_t)row_of(shape)); /* a row has at most n elements, which fits */
    /* At most this many groups of four contain the n elements, wherever the first element lies in its group. */
    launch->global[0] = n ? (n + 6) / 4 : 0;
    return STRATA_OK;
}

strata_tensor *strata_random_state_part(const strata_node_part *part, strata_tensor *state) {
    int32_t words[STRATA_RNG_WORDS] = {0};
    const strata_array array = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(STRATA_RNG_WORDS), words);
    if (part->shape.rank == 0 || part->begin[0] == 0) return state;
    words[4] = (int32_t)part->begin[0];
    return strata_add(state, strata_constant(part->graph, &array));
}

/* ---- the two ops ---- */

typedef struct random_attrs {
    int64_t stream;
    strata_shape shape;
} random_attrs;

static strata_status shape(strata_tensor *node, strata_error *err) {
    const random_attrs *attrs = node->attrs;
    STRATA_TRY(strata_shape_check(attrs->shape, err));
    node->dtype = STRATA_DTYPE_F32;
    node->shape = attrs->shape;
    return strata_check_random(node->inputs[0], attrs->stream, err);
}

/* Box-Muller method: from each pair of a block's words, (0, 1) and (2, 3), follow a radius and an angle, and from these
 * two normal numbers. */
static double normal_at(const strata_random_sequence *sequence, int64_t index) {
    const double two_pi = 6.283185307179586476925;
    uint64_t element = sequence->first + (uint64_t)index;
    const strata_philox_block quad = random_quad(sequence, element);
    const uint32_t *pair = quad.words + element % 4 / 2 * 2;
    double radius = sqrt(-2 * log(strata_uniform_from_word(pair[0]) + 0x1p-24));
    double angle = two_pi * strata_uniform_from_word(pair[1]);
    return radius * (element % 2 ? sin(angle) : cos(angle));
}

static void reference(strata_op_call *call) {
    const random_attrs *attrs = call->node->attrs;
    const strata_random_sequence sequence = strata_random_sequence_of(call->inputs[0], attrs->stream, attrs->shape);
    const bool uniform = call->node->op == &strata_op_random_uniform;
    for (int64_t i = 0; i < strata_shape_elements(attrs->shape); i++)
        ((float *)call->output)[i] = (float)(uniform ? strata_random_uniform_at : normal_at)(&sequence, i);
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const random_attrs *attrs = node->attrs;
    strata_launch launch = strata_launch_of(node, node->op->name, "f32");
    STRATA_TRY(strata_random_grid(&launch, attrs->shape, attrs->stream, err));
    return strata_lowering_add(lowering, &launch, err);
}

#define RANDOM(which)                                                                                  \
    const strata_op strata_op_random_##which = {                                                       \
        .name = "random_" #which,                                                                      \
        .n_inputs = 1,                                                                                 \
        .attrs_bytes = sizeof(random_attrs),                                                           \
        .attrs = {{"stream", STRATA_ATTR_INT, offsetof(random_attrs, stream)},                         \
                  {"shape", STRATA_ATTR_SHAPE, offsetof(random_attrs, shape)}},                        \
        .shape = shape,                                                                                \
        .reference = reference,                                                                        \
        .lower = lower,                                                                                \
    };                                                                                                 \
    strata_tensor *strata_random_##which(strata_tensor *state, uint32_t stream, strata_shape wanted) { \
        random_attrs attrs = {.stream = stream, .shape = wanted};                                      \
        return strata_node(NULL, &strata_op_random_##which, 1, &state, &attrs);                        \
    }
RANDOM(uniform)
RANDOM(normal)
