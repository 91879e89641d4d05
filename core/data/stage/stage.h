/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of datasets: the table of functions that a source or stage fills in, and iterators. The public headers are
 * strata/dataset.h and strata/pipeline.h.
 *
 * Reading order: dataset.c (the source in memory), pipeline.c (iterators, and what every stage shares), select.c (take, skip,
 * shard, filter, repeat), shuffle.c, batch.c, join.c (zip, interleave), cache.c, ring.c (map and prefetch: the only ones with
 * threads), sources.c (generators and files), auto_shard.c (the data of one worker), batches.c (the batches for fit, evaluate
 * and predict), worker_batches.c (the same for several workers). */
#ifndef STRATA_CORE_DATA_STAGE_H
#define STRATA_CORE_DATA_STAGE_H

#include <stdatomic.h>

#include "core/base/alloc.h"
#include "strata/pipeline.h"

enum { STRATA_MAX_PARENTS = 4 };

STRATA_OWNER(strata_iterator)
STRATA_OWNER(strata_order)

/* A shape without its first axis, which it must have. */
static inline strata_shape strata_shape_inner(strata_shape shape) {
    strata_shape inner = {.rank = shape.rank - 1};
    memcpy(inner.dims, shape.dims + 1, (size_t)inner.rank * sizeof *shape.dims);
    return inner;
}
/* A shape with another axis before it. */
static inline strata_shape strata_shape_outer(int64_t n, strata_shape shape) {
    strata_shape outer = {.rank = shape.rank + 1, .dims = {n}};
    memcpy(outer.dims + 1, shape.dims, (size_t)shape.rank * sizeof *shape.dims);
    return outer;
}

/* The value of an element that is finished at the end of its block, which the caller takes. */
static inline strata_element strata_element_released(strata_element *element) {
    const strata_element taken = *element;
    *element = (strata_element){0};
    return taken;
}

typedef strata_status (*strata_next_function)(strata_iterator *iterator, strata_element *out_element, bool *out_more,
                                              strata_error *err);

typedef struct strata_stage {
    const char *name;
    /* The size of an iterator's state, which is zeroed before open. */
    size_t state_bytes;
    /* Prepares iterator->state and opens the parents, for which there is strata_iterator_open_parents. (optional: NULL
     * only opens the parents) */
    strata_status (*open)(strata_iterator *iterator, strata_error *err);
    strata_next_function next;
    /* (optional) Like n calls of next, without computing the elements. */
    strata_status (*advance)(strata_iterator *iterator, int64_t n, strata_error *err);
    /* (optional) Frees what the state owns; the caller closes the parents afterwards. */
    void (*close)(strata_iterator *iterator);
    /* (optional) Computes element `index` of the epoch, independently of other elements; called from any thread. */
    strata_status (*at)(const strata_dataset *dataset, uint64_t seed, uint64_t epoch, int64_t index,
                        strata_element *out_element, strata_error *err);
    void (*destroy)(strata_dataset *dataset); /* (optional) frees what dataset->state owns */
    /* (optional) Called after the bytes of another dataset's state were copied for the dataset of a worker: duplicates or
     * retains what the state owns. NULL: the bytes are sufficient. */
    void (*renew)(strata_dataset *dataset);
    /* (optional) Makes the same source with only its files index, index + n, ...; NULL: the source has no files. */
    strata_status (*shard_files)(const strata_dataset *dataset, int64_t n, int64_t index, strata_dataset **out_dataset,
                                 strata_error *err);
} strata_stage;

struct strata_iterator {
    const strata_dataset *dataset;
    uint64_t seed, epoch;
    /* How many elements the iterator has returned. */
    int64_t position;
    strata_iterator *parents[STRATA_MAX_PARENTS];
    /* The stage's own state, in the same memory. */
    void *state;
    /* The status of the first failure. */
    strata_status status;
    strata_error error;
};

/* The fields of every dataset, of a source in memory as well as of a stage. */
struct strata_dataset {
    const strata_stage *stage;
    atomic_int references;
    strata_dataset *parents[STRATA_MAX_PARENTS];
    int n_parents;
    /* The stage's own data, in the same memory. */
    void *state;
    size_t state_bytes;
    strata_element_spec spec;
    /* The number of elements, or one of STRATA_SIZE_... */
    int64_t n;
    int64_t n_classes;
    /* The smallest and largest integer feature; 0 and -1: not known, or there are no integer features. */
    int64_t least_token, most_token;
    /* The text of strata_dataset_source; NULL: none. */
    char *source;
    char **class_names;
    int n_class_names;
    /* [n] A name for each element; NULL: there are none. */
    char **element_names;
    /* The number of shuffles in this dataset and below; each uses a different stream of random numbers. */
    int n_shuffles;
    /* How many files the source reads; 0: it is not known, or there are no files. */
    int64_t n_files;

    /* The arrays of a source in memory, views or owned. labels.data NULL: there are no labels. */
    strata_array features, labels;
    /* The weight of each example, a view or owned; data NULL: there are no weights. */
    strata_array weights;
    int64_t element_size, label_size;
    /* Inputs and targets besides the first ones, of a source in memory: each the features of a table of its own. They are the
     * last n_more parts of the elements. */
    strata_dataset *more[STRATA_MAX_PARTS];
    int n_more;
    /* The dataset that owns the memory of which the arrays are views; retained. NULL: no other dataset owns it. */
    strata_dataset *whole;
    /* The factor of u8 features. For a stage: the factor of the source's features if they are still u8, else 0. */
    float scale;
    /* [n_files] The number of elements up to the end of each file; NULL: the elements are not from files. */
    int64_t *file_ends;
};

/* Creates a stage over n_parents datasets, which it takes on success; 0: a source. Its size, classes and names are those of the
 * first parent, and so is its spec if `spec` is NULL. state: what dataset->state begins as; NULL: zeros. */
STRATA_MUST_USE strata_status strata_stage_create(const strata_stage *stage, strata_dataset *const *parents, int n_parents,
                                                  const void *state, size_t state_bytes, const strata_element_spec *spec,
                                                  strata_dataset **out_dataset, strata_error *err);
/* Creates a stage over *dataset, and replaces *dataset by it. */
STRATA_MUST_USE strata_status strata_stage_put(const strata_stage *stage, strata_dataset **dataset, const void *state,
                                               size_t state_bytes, const strata_element_spec *spec, strata_error *err);
extern const strata_stage strata_stage_table, strata_stage_shard_hint;
/* dataset.c: the role of a part of an element; OTHER for parts that do not exist. */
strata_part_role strata_spec_role(const strata_element_spec *spec, int part);
/* auto_shard.c: replaces AUTO by the policy that it stands for with this dataset; returns other policies unchanged. */
strata_auto_shard strata_auto_shard_resolve(const strata_dataset *dataset, strata_auto_shard policy);
/* select.c: as strata_dataset_shard; an iteration that finds no element in the shard fails. */
STRATA_MUST_USE strata_status strata_dataset_shard_required(strata_dataset **dataset, int64_t n, int64_t index,
                                                            strata_error *err);
/* dataset.c: makes a dataset of n elements of the dataset of arrays `whole`, with its source and classes, also those that occur
 * only in other elements. take: makes an array of these elements from one of the whole. */
typedef strata_status (*strata_rows_function)(const strata_array *from, const void *user, strata_array *out, strata_error *err);
STRATA_MUST_USE strata_status strata_table_part(const strata_dataset *whole, int64_t n, strata_rows_function take,
                                                const void *user, strata_dataset **out_part, strata_error *err);
/* dataset.c: element `position` of the order. */
int64_t strata_order_index(const strata_order *order, int64_t position);
/* dataset.c: writes part `part` of elements order[first .. first + n) of a dataset of arrays, as strata_dataset_fetch writes
 * the first two parts. stored: an input has the dtype of its array and is not scaled. */
void strata_dataset_fetch_part(const strata_dataset *dataset, const strata_order *order, int64_t first, int64_t n, int part,
                               bool stored, void *out);
/* dataset.c: one more than the largest integer of a target; 0: it is not known, or the target is no integers. */
int64_t strata_dataset_part_classes(const strata_dataset *dataset, int part);
/* dataset.c: checks that the integers of an input of arrays are in 0 .. n - 1. Fails: DATA, with the first that is not. */
STRATA_MUST_USE strata_status strata_dataset_check_part_tokens(const strata_dataset *dataset, int part, int64_t n,
                                                               strata_error *err);
/* dataset.c: out[i] = source[i] * scale. */
void strata_bytes_to_f32(const uint8_t *source, float scale, int64_t n, float *out);

STRATA_MUST_USE strata_status strata_iterator_open_parents(strata_iterator *iterator, uint64_t epoch, strata_error *err);
STRATA_MUST_USE strata_status strata_iterator_advance(strata_iterator *iterator, int64_t n, strata_error *err);
/* The same by n calls of `next`, whose elements are discarded. */
STRATA_MUST_USE strata_status strata_iterator_discard(strata_iterator *iterator, strata_next_function next, int64_t n,
                                                      strata_error *err);
/* Whether strata_dataset_at can compute elements independently of each other. */
bool strata_dataset_has_at(const strata_dataset *dataset);
STRATA_MUST_USE strata_status strata_dataset_at(const strata_dataset *dataset, uint64_t seed, uint64_t epoch, int64_t index,
                                                strata_element *out_element, strata_error *err);
STRATA_MUST_USE strata_status strata_element_copy(const strata_element *element, strata_element *out_copy, strata_error *err);
/* Checks that the element has the parts of the spec. Fails: DATA, with the element's index. */
STRATA_MUST_USE strata_status strata_element_check(const strata_element *element, const strata_element_spec *spec,
                                                   const char *who, strata_error *err);
/* Adds the stage and the element to the message of a failure. */
strata_status strata_element_fail_in(strata_error *err, strata_status status, const char *who, const strata_key *key);
/* A number in 0 .. n - 1, from a random word. */
static inline int64_t strata_random_below(uint32_t word, int64_t n) {
    return (int64_t)(((uint64_t)word * (uint64_t)n) >> 32);
}

#endif
