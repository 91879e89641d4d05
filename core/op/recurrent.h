/* SPDX-License-Identifier: Apache-2.0
 *
 * LSTM (Hochreiter & Schmidhuber 1997, with forget gates) and GRU (Cho et al. 2014) over whole sequences, in f32. There
 * are N examples, T steps and U units. A is the activation, R the recurrent activation.
 *
 *   recurrent (z, matrix, bias [, mask]) -> states (N, T, P U): P planes of U for each step
 *     z (N, T, G U): the product of the step's input; matrix (U, G U); bias (G U); mask (N, T): 0 where a step is padding. A
 *     mask (N, T + U) has, after the T steps of an example, U factors k by which h' is multiplied in the products; otherwise k
 *     is 1.
 *     h' and c' are the h and c of the previous step, or 0. s = (k h') matrix + bias. Each of z, s and bias consists of G
 *     gates of U elements, with the indices 0 to G - 1.
 *     LSTM, G = 4, P = 6: i = R(z0 + s0), f = R(z1 + s1), g = A(z2 + s2), o = R(z3 + s3), c = f c' + i g, h = o A(c)
 *                         states h c i f g o
 *     GRU,  G = 3, P = 5: u = R(z0 + s0), r = R(z1 + s1), g = A(z2 + r s2), h = u h' + (1 - u) g; states h u r g s2
 *                         Here the reset gate is applied after the product, as in cuDNN. With reset_first, as in the paper, it
 *                         is applied before: q = r k h', g = A(z2 + q matrix2 + bias2); states h u r g q
 *     A step that is padding has h = h' and c = c'.
 *   recurrent_grad (states, matrix transposed, dy [, mask]) -> da (N, T, 4 U): the gradients of the arguments of A and R.
 *     dy is the gradient of the states; only its first plane, the gradient of h, is used. For an LSTM, da consists of the
 *     gradients of z0 + s0 .. z3 + s3. For a GRU, it consists of those of z0 + s0, z1 + s1, s2 and z2 + r s2; with
 *     reset_first, of those of z0 + s0, z1 + s1, the argument of A, and q.
 *
 * `reverse`: steps run from the last to the first; the order of values in memory is that of the sequence. Sums over units
 * are computed in ascending order, by fma. */
#ifndef STRATA_CORE_OP_RECURRENT_H
#define STRATA_CORE_OP_RECURRENT_H

#include "core/graph/graph.h"

typedef enum strata_recurrent_cell {
    STRATA_CELL_LSTM = 0,
    STRATA_CELL_GRU = 1,
    /* A GRU that applies its reset gate before the product. */
    STRATA_CELL_GRU_RESET_FIRST = 2
} strata_recurrent_cell;

typedef struct strata_recurrent_attrs {
    /* A strata_recurrent_cell. */
    int64_t cell;
    /* A and R, each a strata_epilogue_activation. */
    int64_t activation, recurrent_activation;
    /* 0 or 1. */
    int64_t reverse;
} strata_recurrent_attrs;

/* The sizes of a node of either op. */
typedef struct strata_recurrent_sizes {
    int64_t n, t, units, gates, planes;
    /* NULL: there is none. */
    const strata_tensor *mask;
    /* Whether the rows of the mask have factors after the steps, and the number of elements in a row of the mask. */
    bool drops;
    int64_t mask_row;
} strata_recurrent_sizes;
strata_recurrent_sizes strata_recurrent_sizes_of(const strata_tensor *node);

/* The number of gradients in da for each unit. */
enum { STRATA_RECURRENT_DA = 4 };

#endif
