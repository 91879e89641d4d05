/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions with which readers of files describe the dataset that they made. The public header is strata/dataset.h. */
#ifndef STRATA_CORE_DATA_DATASET_H
#define STRATA_CORE_DATA_DATASET_H

#include "core/base/alloc.h"
#include "strata/dataset.h"

STRATA_OWNER(strata_dataset)

/* What a reader knows of the elements that it read. Zeros: nothing. */
typedef struct strata_dataset_facts {
    /* See strata_dataset_take_arrays. */
    double scale;
    /* See strata_dataset_set_weights. */
    const strata_array *weights;
    /* See strata_dataset_set_source. */
    const char *source;
    /* The names of the classes. The dataset then has at least n_class_names classes. */
    const char *const *class_names;
    int n_class_names;
    /* [n] A name for each element, for example its file. For at most 2^31 - 1 elements. */
    const char *const *element_names;
    /* File f has the elements file_ends[f - 1] .. file_ends[f] - 1, where file_ends[-1] is 0. */
    const int64_t *file_ends;
    int64_t n_files;
} strata_dataset_facts;
/* Sets the facts that are known, except for the scale; copied. */
STRATA_MUST_USE strata_status strata_dataset_set_facts(strata_dataset *dataset, const strata_dataset_facts *facts,
                                                       strata_error *err);
/* Makes a dataset with these facts, as strata_dataset_take_arrays. Labels without memory: there are none. */
STRATA_MUST_USE strata_status strata_dataset_take_known(strata_array *features, strata_array *labels,
                                                        const strata_dataset_facts *facts, strata_dataset **out_dataset,
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
