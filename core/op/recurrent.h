/* SPDX-License-Identifier: Apache-2.0
 *
 * LSTM (Hochreiter & Schmidhuber 1997, with forget gates) and GRU (Cho et al. 2014) over whole sequences, in f32. N examples, T
 * steps, U units. A and R are the activation and the recurrent one.
 *
 *   recurrent (z, matrix, bias [, mask]) -> states (N, T, P U): P planes of U for each step
 *     z (N, T, G U): the product of the step's input; matrix (U, G U); bias (G U); mask (N, T): 0 where a step is padding. A
 *     mask (N, T + U) has, after the T steps of an example, U factors k by which h' is multiplied in the products; otherwise k
 *     is 1.
 *     With h' and c' those of the step before, or 0, and s = (k h') matrix + bias, each of z, s and bias in G gates of U:
 *     LSTM, G = 4, P = 6: i = R(z0 + s0), f = R(z1 + s1), g = A(z2 + s2), o = R(z3 + s3), c = f c' + i g, h = o A(c)
 *                         states h c i f g o
 *     GRU,  G = 3, P = 5: u = R(z0 + s0), r = R(z1 + s1), g = A(z2 + r s2), h = u h' + (1 - u) g; states h u r g s2
 *                         Here the reset gate is applied after the product, as in cuDNN. With reset_first, as in the paper, it
 *                         is applied before: q = r k h', g = A(z2 + q matrix2 + bias2); states h u r g q
 *     A step that is padding has h = h' and c = c'.
 *   recurrent_grad (states, matrix transposed, dy [, mask]) -> da (N, T, 4 U): the gradients of the arguments of A and R.
 *     dy is the states' gradient, of which only the first plane, h's, is used. LSTM: those of z0 + s0 .. z3 + s3. GRU: those of
 *     z0 + s0, z1 + s1, s2 and z2 + r s2; with reset_first those of z0 + s0, z1 + s1, the argument of A, and q.
 *
 * `reverse`: steps run from the last to the first; the order of values in memory is that of the sequence. Sums over units are
 * computed in ascending order, by fma. */
#ifndef STRATA_CORE_OP_RECURRENT_H
#define STRATA_CORE_OP_RECURRENT_H

#include "core/graph/graph.h"

typedef enum strata_recurrent_cell {
    STRATA_CELL_LSTM = 0,
    STRATA_CELL_GRU = 1,
    /* A GRU with reset_first. */
    STRATA_CELL_GRU_RESET_FIRST = 2
} strata_recurrent_cell;

typedef struct strata_recurrent_attrs {
    /* strata_recurrent_cell. */
    int64_t cell;
    /* A and R: strata_epilogue_activation. */
    int64_t activation, recurrent_activation;
    /* 0 or 1. */
    int64_t reverse;
} strata_recurrent_attrs;

/* The common sizes of both ops, from a valid node of either. */
typedef struct strata_recurrent_sizes {
    int64_t n, t, units, gates, planes;
    /* NULL: there is none. */
    const strata_tensor *mask;
    /* Whether the mask has factors behind its steps, and the elements of its rows. */
    bool drops;
    int64_t mask_row;
} strata_recurrent_sizes;
strata_recurrent_sizes strata_recurrent_sizes_of(const strata_tensor *node);

/* The gradients of a unit in da. */
enum { STRATA_RECURRENT_DA = 4 };

#endif
