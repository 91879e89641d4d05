/* SPDX-License-Identifier: Apache-2.0
 *
 * The building blocks of collectives: an algorithm computes the fold (a sum or another reduction) of all ranks' inputs on every
 * rank; a move copies bytes between ranks. */
#ifndef STRATA_CLUSTER_COLLECTIVE_ALGORITHM_H
#define STRATA_CLUSTER_COLLECTIVE_ALGORITHM_H

#include "cluster/communicator.h"

/* out[0 .. count) = the fold of every rank's in[0 .. count), on every rank. in may be out. */
typedef struct strata_algorithm {
    const char *name;
    strata_status (*all_reduce)(const strata_operation *op, strata_error *err);
} strata_algorithm;

#define ALGORITHM(name) strata_status strata_##name(const strata_operation *op, strata_error *err);
#include "cluster/collective/algorithms.def"

extern const strata_algorithm strata_algorithms[]; /* in the order of strata_algorithm_names */
extern const uint32_t strata_n_algorithms;
/* Finds the row of that name; -1 for NULL. For an unknown name it fails with INVALID and lists the names. */
STRATA_MUST_USE strata_status strata_algorithm_find(const char *name, int *out_row, strata_error *err);
/* Chooses the row for n_bytes: the algorithm that the options force, else that of the user's table, else the one that is
 * fastest according to built-in measurements and predictions. */
int strata_algorithm_choose(const strata_communicator *comm, size_t n_bytes);

/* A range of elements whose sum one rank owns. */
typedef struct strata_slice {
    size_t first, count;
} strata_slice;
/* Rank r's slice of the elements. Without `counts` all slices have the same size, except that the first ones may have one
 * element more; with `counts` rank r's slice has counts[r] elements. */
strata_slice strata_slice_of(const strata_operation *op, int rank);

/* Each rank computes the fold of its slice of all ranks' `in`, and sends it to every rank (at its place in `out`) or to the
 * root, or keeps it (`out` is then the slice). This is done in segments: while one is folded, the next one is transferred. */
typedef enum strata_recipients { STRATA_TO_ALL, STRATA_TO_ROOT, STRATA_TO_NONE } strata_recipients;
STRATA_MUST_USE strata_status strata_fold_slices(const strata_operation *op, strata_recipients recipients, strata_error *err);

/* The bytes that are sent to one rank, or received from it. */
typedef struct strata_span {
    const void *data;
    size_t bytes;
    /* Whether there is a message. A message may have 0 bytes. */
    bool used;
} strata_span;

/* Spans for sending to each rank and, behind them, for receiving from each, [2 world], none of which is used. They are
 * valid until the next call. */
strata_span *strata_new_spans(strata_communicator *comm);
/* Sends to_all (unless NULL) to each other rank and to_each[r] to rank r, and receives from_each[r] from rank r. An array
 * that is NULL means that there are no such messages. This rank's own entries are ignored. */
STRATA_MUST_USE strata_status strata_move(const strata_operation *op, const strata_span *to_all, const strata_span *to_each,
                                          const strata_span *from_each, strata_error *err);
/* Sends `data` to one neighbour and receives from the other neighbour. */
STRATA_MUST_USE strata_status strata_shift(const strata_operation *op, int to, const void *data, size_t n_bytes, int from,
                                           void *out, size_t out_bytes, strata_error *err);

/* Calls the transport's round and counts the bytes. */
STRATA_MUST_USE strata_status strata_operation_round(const strata_operation *op, int n_sends, int n_receives,
                                                     strata_error *err);

#endif
