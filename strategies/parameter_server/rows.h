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
    /* [n] In the order in which they came, or in ascending order. */
    int32_t *ids;
    int64_t n;
    bool ascending;
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
/* Adds those of n ids that are rows of the parameter. Many ids come into an empty set in ascending order: neighbours are copied
 * together. */
void strata_ps_row_set_add_all(strata_ps_row_set *set, const int32_t *ids, int64_t n);
/* How many of the n ids from the first on are neighbours, each one more than the one before: their values can be copied
 * together. At least 1. */
static inline int64_t strata_ps_run(const int32_t *ids, int64_t n) {
    int64_t run = 1;
    while (run < n && ids[run] == ids[0] + run) run++;
    return run;
}
/* The rows of another set of the same parameter, without their values, become those of `set`, which is empty. */
void strata_ps_row_set_copy(strata_ps_row_set *set, const strata_ps_row_set *from);
/* Room for the values of n rows. */
STRATA_MUST_USE strata_status strata_ps_row_set_reserve(strata_ps_row_set *set, int64_t n, strata_error *err);

#endif
