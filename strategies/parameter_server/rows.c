/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of rows: adding and finding a row take constant time. */
#include "strategies/parameter_server/rows.h"

strata_status strata_ps_row_set_make(strata_ps_row_set *set, const strata_parameter_spec *p, strata_error *err) {
    const int64_t rows = p->shape.dims[0];
    *set = (strata_ps_row_set){.n_rows = rows, .row = rows ? strata_shape_elements(p->shape) / rows : 0, .ascending = true};
    set->places = strata_memory_take(&set->memory, rows, sizeof *set->places);
    set->ids = strata_memory_take(&set->memory, rows + 1, sizeof *set->ids);
    set->marks = strata_memory_take(&set->memory, rows, sizeof *set->marks);
    if (set->memory.failed) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for rows of a sparse parameter");
    for (int64_t i = 0; i < rows; i++) set->places[i] = -1;
    return STRATA_OK;
}

void strata_ps_row_set_finish(strata_ps_row_set *set) {
    strata_memory_finish(&set->memory);
    free(set->values);
}

void strata_ps_row_set_clear(strata_ps_row_set *set) {
    for (int64_t i = 0; i < set->n; i++) set->places[set->ids[i]] = -1;
    set->n = 0;
    set->ascending = true;
}

int64_t strata_ps_row_set_add(strata_ps_row_set *set, int32_t id) {
    if (set->places[id] < 0) {
        set->ascending = set->ascending && (!set->n || id > set->ids[set->n - 1]);
        set->places[id] = (int32_t)set->n;
        set->ids[set->n++] = id;
    }
    return set->places[id];
}

/* Marks the rows first and then numbers them in their order. Neither loop has a branch that would be mispredicted. */
static void add_ascending(strata_ps_row_set *set, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if ((uint32_t)ids[i] < (uint64_t)set->n_rows) set->marks[ids[i]] = 1;
    int32_t count = 0;
    for (int64_t row = 0; row < set->n_rows; row++) {
        const int32_t used = set->marks[row];
        set->ids[count] = (int32_t)row; /* an entry after the used rows is overwritten later */
        set->places[row] = (count + 1) * used - 1;
        count += used;
    }
    memset(set->marks, 0, (size_t)set->n_rows);
    set->n = count;
}

void strata_ps_row_set_add_all(strata_ps_row_set *set, const int32_t *ids, int64_t n) {
    enum { ROWS_AN_ID = 4 }; /* iterating over a table with more rows would take longer than over the ids */
    if (!set->n && set->n_rows / ROWS_AN_ID <= n) {
        add_ascending(set, ids, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if ((uint32_t)ids[i] < (uint64_t)set->n_rows) strata_ps_row_set_add(set, ids[i]);
}

void strata_ps_row_set_copy(strata_ps_row_set *set, const strata_ps_row_set *from) {
    memcpy(set->places, from->places, (size_t)from->n_rows * sizeof *set->places);
    memcpy(set->ids, from->ids, (size_t)from->n * sizeof *set->ids);
    set->n = from->n;
    set->ascending = from->ascending;
}

strata_status strata_ps_row_set_reserve(strata_ps_row_set *set, int64_t n, strata_error *err) {
    if (n <= set->room) return STRATA_OK;
    float *grown = realloc(set->values, (size_t)(n * set->row + 1) * sizeof *grown);
    if (!grown) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for rows of a sparse parameter");
    set->values = grown;
    set->room = n;
    return STRATA_OK;
}
