/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of a dataset over arrays: datasets over views of its memory. */
#include <math.h>
#include <string.h>

#include "core/data/dataset.h"
#include "core/data/stage/stage.h"

/* Elements [first, first + n) of an array of all of them. */
static strata_array view_rows(const strata_array *array, int64_t first, int64_t n) {
    strata_shape shape = array->shape;
    const size_t row = strata_array_bytes(array) / (size_t)shape.dims[0];
    shape.dims[0] = n;
    return strata_array_view(array->dtype, shape, (char *)array->data + (size_t)first * row);
}

/* The files that elements [first, first + n) came from. */
static strata_status name_files(const strata_dataset *whole, int64_t first, int64_t n, strata_dataset *part,
                                strata_error *err) {
    int64_t before = 0, end = 0;
    while (before < whole->n_files && whole->file_ends[before] <= first) before++;
    for (end = before; end < whole->n_files && whole->file_ends[end] < first + n;) end++;
    if (before == whole->n_files) return STRATA_OK;
    STRATA_TRY(strata_dataset_set_files(part, whole->file_ends + before, end + 1 - before, err));
    for (int64_t f = 0; f < part->n_files; f++) {
        part->file_ends[f] -= first;
        if (part->file_ends[f] > n) part->file_ends[f] = n;
    }
    return STRATA_OK;
}

static strata_status take_rows(strata_dataset *whole, int64_t first, int64_t n, strata_dataset **out_part, strata_error *err) {
    strata_array x = view_rows(&whole->features, first, n), y = {0};
    strata_dataset *part = NULL;
    if (whole->has_labels) y = view_rows(&whole->labels, first, n);
    STRATA_TRY(strata_dataset_take_arrays(&x, whole->has_labels ? &y : NULL, 0, &part, err));
    part->whole = strata_dataset_retain(whole);
    part->scale = whole->scale;
    part->spec = whole->spec;
    part->n_classes = whole->n_classes; /* also of those in the other part */
    if (whole->weights.data) part->weights = view_rows(&whole->weights, first, n);
    strata_status status = whole->source ? strata_dataset_set_source(part, whole->source, err) : STRATA_OK;
    if (!status && whole->n_class_names)
        status = strata_dataset_set_class_names(part, (const char *const *)whole->class_names, whole->n_class_names, err);
    if (!status) status = name_files(whole, first, n, part, err);
    if (status)
        strata_dataset_destroy(part);
    else
        *out_part = part;
    return status;
}

strata_status strata_dataset_split(strata_dataset *dataset, double fraction, strata_dataset **out_first,
                                   strata_dataset **out_last, strata_error *err) {
    strata_dataset *before = NULL;
    if (dataset->stage != &strata_stage_table)
        return strata_fail(
            err, STRATA_INVALID,
            "split: the dataset is %s; it must be arrays, without a stage over them (take and skip give parts of "
            "a pipeline)",
            dataset->stage->name);
    if (!(fraction > 0 && fraction < 1))
        return strata_fail(err, STRATA_INVALID, "split: the fraction is %g; it must be between 0 and 1", fraction);
    const int64_t n = dataset->n, first = (int64_t)floor((double)n * (1 - fraction));
    if (first < 1 || first >= n)
        return strata_fail(err, STRATA_INVALID, "split: %g of %lld elements leaves %lld and %lld; neither may be empty",
                           fraction, (long long)n, (long long)first, (long long)(n - first));
    STRATA_TRY(take_rows(dataset, 0, first, &before, err));
    strata_status status = take_rows(dataset, first, n - first, out_last, err);
    if (status)
        strata_dataset_destroy(before);
    else
        *out_first = before;
    return status;
}
