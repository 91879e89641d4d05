/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of datasets: the table that a source or stage fills in, and the walk over it. Users see strata/dataset.h and
 * strata/pipeline.h.
 *
 * Reading order: dataset.c (the source in memory), pipeline.c (iterators, and what every stage shares), select.c (take, skip,
 * shard, filter, repeat), shuffle.c, batch.c, join.c (zip, interleave), cache.c, ring.c (map and prefetch: the only ones with
 * threads), generator.c, files.c, auto_shard.c (what one worker reads), batches.c (what fit, evaluate and predict read),
 * worker_batches.c (the same over workers). */
#ifndef STRATA_CORE_DATA_STAGE_H
#define STRATA_CORE_DATA_STAGE_H

#include <stdatomic.h>

#include "strata/pipeline.h"

enum { STRATA_MAX_PARENTS = 4 };

typedef struct strata_stage {
    const char *name;
    /* Of an iterator, zeroed before open. */
    size_t state_bytes;
    /* Prepares iterator->state; opens parents (strata_iterator_open_parents does it for all). (optional: opens the parents). */
    strata_status (*open)(strata_iterator *iterator, strata_error *err);
    strata_status (*next)(strata_iterator *iterator, strata_element *out_element, bool *out_more, strata_error *err);
    /* As n calls of next, without making the elements. (optional). */
    strata_status (*advance)(strata_iterator *iterator, int64_t n, strata_error *err);
    void (*close)(
        /* Frees what the state holds; parents are closed by the caller afterwards. (optional). */
        strata_iterator *iterator);
    /* Element `index` of the epoch on its own, from any thread; index is below the size. (optional, for what can). */
    strata_status (*at)(const strata_dataset *dataset, uint64_t seed, uint64_t epoch, int64_t index,
                        strata_element *out_element, strata_error *err);
    void (*destroy)(strata_dataset *dataset); /* frees what dataset->state holds. (optional) */
    /* Makes a copy of another dataset's state its own, when datasets are made anew for a worker. (optional: the bytes are
     * enough). */
    void (*renew)(strata_dataset *dataset);
    /* The same source over the files index, index + n, ... of its own. (optional: it has no files). */
    strata_status (*shard_files)(const strata_dataset *dataset, int64_t n, int64_t index, strata_dataset **out_dataset,
                                 strata_error *err);
} strata_stage;

struct strata_iterator {
    const strata_dataset *dataset;
    uint64_t seed, epoch;
    /* How many elements the iterator has returned. */
    int64_t position;
    strata_iterator *parents[STRATA_MAX_PARENTS];
    void *state;
    /* The status of the first failure. */
    strata_status status;
    strata_error error;
};

/* What every dataset has. */
struct strata_dataset {
    const strata_stage *stage;
    atomic_int references;
    strata_dataset *parents[STRATA_MAX_PARENTS];
    int n_parents;
    /* The stage's own; freed with the dataset. */
    void *state;
    size_t state_bytes;
    strata_element_spec spec;
    /* Elements, or a STRATA_SIZE_. */
    int64_t n;
    int64_t n_classes;
    /* Of integer features; 0 and -1: not known or none. */
    int64_t least_token, most_token;
    /* Where it came from; NULL: nothing to say. */
    char *source;
    char **class_names;
    int n_class_names;
    /* [n]: what each element was read from; NULL: not told. */
    char **element_names;
    /* In it and below: shuffles draw from streams of their own. */
    int n_shuffles;
    /* How many files the source reads; 0: it is not known, or there are no files. */
    int64_t n_files;

    bool has_labels;
    /* The shape of one example's features. */
    strata_shape element;
    /* The shape of one example's labels. */
    strata_shape label;

    /* The arrays of a source in memory, views or owned. labels.data NULL: there are no labels. */
    strata_array features, labels;
    /* What each example weighs, a view or owned; data NULL: there are no weights. */
    strata_array weights;
    int64_t element_size, label_size;
    /* Inputs and targets besides the first ones, of a source in memory: each the features of a table of its own. They are the
     * last n_more parts of the elements. */
    strata_dataset *more[STRATA_MAX_PARTS];
    int n_more;
    /* The dataset that owns the memory of which the arrays are views; retained. NULL: no other dataset owns it. */
    strata_dataset *whole;
    /* Of u8 features; of a stage: those below it that were kept as bytes, else 0. */
    float scale;
    /* [n_files] elements up to the end of each file; NULL: not from files. */
    int64_t *file_ends;
};

/* A stage over n_parents datasets, which it takes on success (0: a source); size, classes and names are those of the first.
 * `spec` NULL: of the first. */
STRATA_MUST_USE strata_status strata_stage_create(const strata_stage *stage, strata_dataset *const *parents, int n_parents,
                                                  size_t state_bytes, const strata_element_spec *spec,
                                                  strata_dataset **out_dataset, strata_error *err);
/* The same over *dataset, which it replaces. */
STRATA_MUST_USE strata_status strata_stage_put(const strata_stage *stage, strata_dataset **dataset, size_t state_bytes,
                                               const strata_element_spec *spec, strata_error *err);
extern const strata_stage strata_stage_table, strata_stage_shard_hint;
/* dataset.c: what a part of an element is for; OTHER behind the last one. */
strata_part_role strata_spec_role(const strata_element_spec *spec, int part);
/* auto_shard.c: what AUTO is for this dataset; other policies are themselves. */
strata_auto_shard strata_auto_shard_resolve(const strata_dataset *dataset, strata_auto_shard policy);
/* select.c: as strata_dataset_shard; an iteration that finds no element in the shard fails. */
STRATA_MUST_USE strata_status strata_dataset_shard_required(strata_dataset **dataset, int64_t n, int64_t index,
                                                            strata_error *err);
/* dataset.c: element `position` of the order. */
int64_t strata_order_index(const strata_order *order, int64_t position);
/* dataset.c: part `part` of elements order[first .. first + n) of arrays, as strata_dataset_fetch gives the first two. */
void strata_dataset_fetch_part(const strata_dataset *dataset, const strata_order *order, int64_t first, int64_t n, int part,
                               void *out);
/* dataset.c: one more than the largest integer of a target; 0: it is not known, or the target is no integers. */
int64_t strata_dataset_part_classes(const strata_dataset *dataset, int part);
/* dataset.c: DATA, naming the first that is wrong, where an input of arrays has integers that are not in 0 .. n - 1. */
STRATA_MUST_USE strata_status strata_dataset_check_part_tokens(const strata_dataset *dataset, int part, int64_t n,
                                                               strata_error *err);
/* dataset.c: out[i] = source[i] * scale. */
void strata_bytes_to_f32(const uint8_t *source, float scale, int64_t n, float *out);
/* dataset.c: as strata_dataset_fetch, but features are as the array has them: of its dtype, not scaled. */
void strata_dataset_fetch_stored(const strata_dataset *dataset, const strata_order *order, int64_t first, int64_t n,
                                 void *out_features, void *out_labels);

STRATA_MUST_USE strata_status strata_iterator_open_parents(strata_iterator *iterator, uint64_t epoch, strata_error *err);
STRATA_MUST_USE strata_status strata_iterator_advance(strata_iterator *iterator, int64_t n, strata_error *err);
/* Whether elements can be had on their own. */
bool strata_dataset_has_at(const strata_dataset *dataset);
STRATA_MUST_USE strata_status strata_dataset_at(const strata_dataset *dataset, uint64_t seed, uint64_t epoch, int64_t index,
                                                strata_element *out_element, strata_error *err);
STRATA_MUST_USE strata_status strata_element_copy(const strata_element *element, strata_element *out_copy, strata_error *err);
/* Whether the element is what the spec says: DATA with its index when not. */
STRATA_MUST_USE strata_status strata_element_check(const strata_element *element, const strata_element_spec *spec,
                                                   const char *who, strata_error *err);
/* Says in which stage and at which element a failure was. */
strata_status strata_element_fail_in(strata_error *err, strata_status status, const char *who, const strata_key *key);
/* 0..n-1, from a word. */
static inline int64_t strata_random_below(uint32_t word, int64_t n) {
    return (int64_t)(((uint64_t)word * (uint64_t)n) >> 32);
}

#endif
