/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows of a sparse parameter a batch uses, and a value for each of them. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_ROWS_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_ROWS_H

#include "core/model/model.h"
#include "strategies/memory.h"

/* A set of rows of a sparse parameter: how many rows the parameter has, how many are in the set, and the position of each in
 * the set. */
typedef struct strata_ps_row_set {
    strata_memory memory;
    /* n_rows: rows of the parameter; row: elements of a row. */
    int64_t n_rows, row;
    /* [n_rows] -1: not in the set. */
    int32_t *places;
    /* [n_rows] Zeros, except while many rows are added at once. */
    unsigned char *marks;
    /* [n] In the order in which they were added, or in ascending order. */
    int32_t *ids;
    int64_t n;
    bool ascending;
    /* (room, row) f32. For gradients: their sums. */
    float *values;
    int64_t room;
} strata_ps_row_set;

/* Makes an empty set of rows of the parameter. strata_ps_row_set_finish must be called also after a failure. */
STRATA_MUST_USE strata_status strata_ps_row_set_make(strata_ps_row_set *set, const strata_parameter_spec *p, strata_error *err);
void strata_ps_row_set_finish(strata_ps_row_set *set);
void strata_ps_row_set_clear(strata_ps_row_set *set);
/* Returns the row's position in the set, and adds it if it is not in the set. */
int64_t strata_ps_row_set_add(strata_ps_row_set *set, int32_t id);
/* Adds those of n ids that are rows of the parameter. If many ids are added to an empty set, they are sorted in ascending
 * order, so that neighbouring rows can be copied together. */
void strata_ps_row_set_add_all(strata_ps_row_set *set, const int32_t *ids, int64_t n);
/* Sets the rows of `set`, which must be empty, to those of another set of the same parameter; values are not copied. */
void strata_ps_row_set_copy(strata_ps_row_set *set, const strata_ps_row_set *from);
/* Makes room for the values of n rows. */
STRATA_MUST_USE strata_status strata_ps_row_set_reserve(strata_ps_row_set *set, int64_t n, strata_error *err);

#endif
