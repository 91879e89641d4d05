/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows of a sparse parameter a batch uses, and a value for each of them. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_ROWS_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_ROWS_H

#include "core/model/model.h"

/* Rows of a sparse parameter: of all of them, how many are in the set, and in which place of it each is. */
typedef struct strata_ps_row_set {
    /* Of the parameter. */
    int64_t n_rows, row;
    /* [n_rows] -1: not in the set. */
    int32_t *places;
    /* [n] In the order in which they came. */
    int32_t *ids;
    int64_t n;
    /* (room, row) f32. Of gradients: their sums. */
    float *values;
    int64_t room;
} strata_ps_row_set;

/* An empty set of rows of the parameter; finish also after a failure. */
STRATA_MUST_USE strata_status strata_ps_row_set_make(strata_ps_row_set *set, const strata_parameter_spec *p, strata_error *err);
void strata_ps_row_set_finish(strata_ps_row_set *set);
void strata_ps_row_set_clear(strata_ps_row_set *set);
/* The row's place in the set, a new one where it was not in it. */
int64_t strata_ps_row_set_add(strata_ps_row_set *set, int32_t id);
/* Room for the values of n rows. */
STRATA_MUST_USE strata_status strata_ps_row_set_reserve(strata_ps_row_set *set, int64_t n, strata_error *err);

#endif
