/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions with which readers of files describe the dataset that they made. The public header is strata/dataset.h. */
#ifndef STRATA_CORE_DATA_DATASET_H
#define STRATA_CORE_DATA_DATASET_H

#include "strata/dataset.h"

/* The end of a function that makes a dataset: gives it to the caller, or destroys it if status is a failure. Returns status. */
static inline strata_status strata_dataset_give(strata_status status, strata_dataset *dataset, strata_dataset **out_dataset) {
    if (status)
        strata_dataset_destroy(dataset);
    else
        *out_dataset = dataset;
    return status;
}
/* Sets the names of the classes; copied. The dataset then has at least n_names classes. */
STRATA_MUST_USE strata_status strata_dataset_set_class_names(strata_dataset *dataset, const char *const *names, int n_names,
                                                             strata_error *err);
/* Sets a name for each element, for example its file; [n], copied. For at most 2^31 - 1 elements. */
STRATA_MUST_USE strata_status strata_dataset_set_element_names(strata_dataset *dataset, const char *const *names,
                                                               strata_error *err);
/* Sets which elements are from which file: file f has the elements ends[f - 1] .. ends[f] - 1, where ends[-1] is 0. Copied. */
STRATA_MUST_USE strata_status strata_dataset_set_files(strata_dataset *dataset, const int64_t *ends, int64_t n_files,
                                                       strata_error *err);
/* Adds an input called `name` to a dataset of arrays with one input, which is then called `first`. The dataset takes the array
 * (n, ...), of a type that strata_dataset_take_arrays takes, and leaves it zeroed. Fails: INVALID for an array of another
 * length, which stays the caller's, or a name that is too long. */
STRATA_MUST_USE strata_status strata_dataset_take_input(strata_dataset *dataset, const char *first, const char *name,
                                                        strata_array *array, strata_error *err);
/* The factor by which the u8 features of its elements must be multiplied; 0: the features are not u8. */
float strata_dataset_byte_scale(const strata_dataset *dataset);
/* INVALID unless it is "train" or "test". */
STRATA_MUST_USE strata_status strata_split_check(const char *split, bool *out_train, strata_error *err);

/* Fails with DATA, naming the first wrong weight, unless all weights are at least 0 and finite. */
STRATA_MUST_USE strata_status strata_weights_check(const float *weights, int64_t n, strata_error *err);

#endif
