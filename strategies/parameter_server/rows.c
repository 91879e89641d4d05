/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of rows: adding a row and finding it cost the same, however many there are. */
#include "strategies/parameter_server/rows.h"

#include <stdlib.h>

strata_status strata_ps_row_set_make(strata_ps_row_set *set, const strata_parameter_spec *p, strata_error *err) {
    const int64_t rows = p->shape.dims[0];
    *set = (strata_ps_row_set){.n_rows = rows, .row = rows ? strata_shape_elements(p->shape) / rows : 0};
    set->places = malloc((size_t)(rows + 1) * sizeof *set->places);
    set->ids = malloc((size_t)(rows + 1) * sizeof *set->ids);
    if (!set->places || !set->ids)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for rows of a sparse parameter");
    for (int64_t i = 0; i < rows; i++) set->places[i] = -1;
    return STRATA_OK;
}

void strata_ps_row_set_finish(strata_ps_row_set *set) {
    free(set->places);
    free(set->ids);
    free(set->values);
}

void strata_ps_row_set_clear(strata_ps_row_set *set) {
    for (int64_t i = 0; i < set->n; i++) set->places[set->ids[i]] = -1;
    set->n = 0;
}

int64_t strata_ps_row_set_add(strata_ps_row_set *set, int32_t id) {
    if (set->places[id] < 0) {
        set->places[id] = (int32_t)set->n;
        set->ids[set->n++] = id;
    }
    return set->places[id];
}

strata_status strata_ps_row_set_reserve(strata_ps_row_set *set, int64_t n, strata_error *err) {
    if (n <= set->room) return STRATA_OK;
    float *grown = realloc(set->values, (size_t)(n * set->row + 1) * sizeof *grown);
    if (!grown) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for rows of a sparse parameter");
    set->values = grown;
    set->room = n;
    return STRATA_OK;
}
