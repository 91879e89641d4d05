/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines: a dataset is a source (arrays, files, a generator) or a stage over other datasets, and fit, evaluate and predict
 * take any of them:
 *     strata_dataset_cifar10("data", "train", &train, &err);     a source; its elements are an image and a label
 *     strata_dataset_shuffle(&train, NULL, &err);                each of these calls replaces `train` by a stage over it
 *     strata_dataset_map(&train, strata_augment_flip_crop, &crop, &(strata_map_options){.threads = 2}, &err);
 *     strata_dataset_batch(&train, 64, false, &err);
 *     strata_dataset_prefetch(&train, 2, &err);
 *
 * The stages have the names and the meaning of those in tf.data. The elements that a stage produces depend only on (seed,
 * epoch, index), so they are the same in every run, and strata_iterator_create can continue at any position, which is these
 * three numbers. If a call fails, it does not change the dataset.
 *
 * Threads: a dataset may be iterated any number of times at once; an iterator is for one thread. map and prefetch run threads
 * of their own, as many as their options say; destroying the iterator joins them. The function of a map with threads > 1 runs
 * in several threads at once. */
#ifndef STRATA_PIPELINE_H
#define STRATA_PIPELINE_H

#include "strata/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { STRATA_MAX_PARTS = 16, STRATA_MAX_PART_NAME = 64 };
/* What strata_dataset_size returns where it is not a number of elements. */
enum { STRATA_SIZE_UNKNOWN = -1, STRATA_SIZE_INFINITE = -2 };

/* ---- elements ---- */

/* The origin of an element: the seed of the run, the epoch (each pass of a repeat is one), and the element's index in its
 * source. shuffle, filter, take, skip, shard and map do not change the key. The random numbers of a map depend on the key
 * alone, so they do not depend on the order or on the number of workers. */
typedef struct strata_key {
    uint64_t seed, epoch;
    int64_t index;
} strata_key;

/* parts[0] is the model's input. parts[1], if there is one, is the label. parts[2], if it is one f32 for each example, is the
 * example's weight (strata_dataset_set_weights). Other parts are the program's own, unless the spec gives them a role. The
 * element owns the arrays. */
typedef struct strata_element {
    strata_key key;
    int n_parts;
    strata_array parts[STRATA_MAX_PARTS];
} strata_element;
STRATA_API void strata_element_finish(strata_element *element); /* NULL and a zeroed element are fine; leaves it zeroed */

/* What a part of an element is for. */
typedef enum strata_part_role {
    /* The role follows from the position, as strata_element says. */
    STRATA_PART_BY_PLACE = 0,
    STRATA_PART_INPUT,  /* a model takes it                             */
    STRATA_PART_TARGET, /* what an output of the model is compared with */
    STRATA_PART_OTHER   /* the program's own                            */
} strata_part_role;

/* The parts that every element of a dataset has. A dimension of -1 may differ from element to element. */
typedef struct strata_element_spec {
    int n_parts;
    struct {
        strata_dtype dtype;
        strata_shape shape;
    } parts[STRATA_MAX_PARTS];
    /* The first axis of each part counts examples. */
    bool is_batch;
    /* The role of each part, and its name, which a model with several inputs or outputs compares with their names ("": no
     * name). The first part is always an input; the second is a target unless its role says otherwise. */
    strata_part_role roles[STRATA_MAX_PARTS];
    char names[STRATA_MAX_PARTS][STRATA_MAX_PART_NAME];
} strata_element_spec;
STRATA_API strata_element_spec strata_dataset_element_spec(const strata_dataset *dataset);

/* The random number with the index `draw` of an element. It depends only on key and draw. */
STRATA_API uint32_t strata_key_random(const strata_key *key, uint32_t draw);

/* ---- iterating ---- */
typedef struct strata_iterator strata_iterator;

/* Begins at element `first` of the epoch. The dataset must outlive the iterator. Sources in memory, and stages over them, do
 * not compute the elements before `first`. */
STRATA_API STRATA_MUST_USE strata_status strata_iterator_create(const strata_dataset *dataset, uint64_t seed, uint64_t epoch,
                                                                int64_t first, strata_iterator **out_iterator,
                                                                strata_error *err);
/* The next element, which the caller finishes; *out_more false at the end. After a failure every further call fails the same
 * way. */
STRATA_API STRATA_MUST_USE strata_status strata_iterator_next(strata_iterator *iterator, strata_element *out_element,
                                                              bool *out_more, strata_error *err);
STRATA_API void strata_iterator_destroy(strata_iterator *iterator); /* stops and joins its threads; NULL is fine */

/* Adds an owner, for a source that two pipelines share. Each owner calls strata_dataset_destroy. */
STRATA_API strata_dataset *strata_dataset_retain(strata_dataset *dataset);

/* ---- sources ---- */

/* A source whose elements callbacks create. `open` creates the state of one iteration (NULL: the state is `user`). `next`
 * creates the parts of out_element with strata_array_create, or sets *out_end. `close` frees the state (may be NULL). The
 * elements must depend only on (seed, epoch, index). size: the number of elements, or STRATA_SIZE_UNKNOWN. */
typedef struct strata_generator {
    strata_element_spec spec;
    int64_t size;
    strata_status (*open)(void *user, uint64_t seed, uint64_t epoch, void **out_state, strata_error *err);
    strata_status (*next)(void *state, int64_t index, strata_element *out_element, bool *out_end, strata_error *err);
    void (*close)(void *state);
    void *user;
} strata_generator;
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_generator(const strata_generator *generator,
                                                                       strata_dataset **out_dataset, strata_error *err);

/* A source of all elements of paths[0], then those of paths[1], and so on. `open` creates the dataset of one file, with
 * elements as `spec` describes, when an iterator reaches the file; files that a worker does not read are not opened. The paths
 * are copied. The index of element e in file f is e + 2^32 f. */
typedef strata_status (*strata_file_function)(const char *path, void *user, strata_dataset **out_dataset, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_files(const char *const *paths, int n_paths,
                                                                   strata_file_function open, void *user,
                                                                   const strata_element_spec *spec,
                                                                   strata_dataset **out_dataset, strata_error *err);

/* ---- stages: each call replaces *dataset by a stage, which owns the former dataset ---- */

typedef struct strata_shuffle_options {
    /* Each element is chosen at random from the next `buffer` elements. 0: from all elements; for sources in memory this stores
     * indices only. */
    int64_t buffer;
    bool same_each_epoch;
} strata_shuffle_options;
STRATA_API STRATA_MUST_USE strata_status strata_dataset_shuffle(strata_dataset **dataset, const strata_shuffle_options *opts,
                                                                strata_error *err);
/* Joins n elements along a new first axis; they must have the same shapes. The last batch may be shorter; with drop_remainder
 * it is dropped then. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_batch(strata_dataset **dataset, int64_t n, bool drop_remainder,
                                                              strata_error *err);
/* Like batch, for elements of different lengths. shapes[part] is the shape to which the elements are padded with pad[part]; a
 * dimension of -1 becomes the largest in the batch. shapes NULL: the shapes of the spec. pad NULL: 0. DATA for an element that
 * is larger than a given dimension. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_padded_batch(strata_dataset **dataset, int64_t n, bool drop_remainder,
                                                                     const strata_shape *shapes, const double *pad,
                                                                     strata_error *err);
/* All elements `count` times; 0: without end. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_repeat(strata_dataset **dataset, int64_t count, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_dataset_take(strata_dataset **dataset, int64_t n, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_dataset_skip(strata_dataset **dataset, int64_t n, strata_error *err);
/* Elements index, index + n, index + 2 n ... */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_shard(strata_dataset **dataset, int64_t n, int64_t index,
                                                              strata_error *err);
/* Marks where STRATA_SHARD_HINT (below) inserts each worker's shard stage. Iterating over the dataset before that is INVALID.
 * */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_shard_hint(strata_dataset **dataset, strata_error *err);

/* Changes the element in place: it may write to the parts, or finish a part and assign a new array. */
typedef strata_status (*strata_map_function)(strata_element *element, void *user, strata_error *err);
typedef struct strata_map_options {
    /* How many threads call the function, at most 64; 0: the thread that iterates. The order of the elements does not change.
     * */
    int threads;
    /* The spec of the elements that the function returns; NULL: it does not change. */
    const strata_element_spec *spec;
} strata_map_options;
/* If the function fails, the iterator first returns all elements before, and then the failure, with the element's index. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_map(strata_dataset **dataset, strata_map_function function, void *user,
                                                            const strata_map_options *opts, strata_error *err);
typedef strata_status (*strata_filter_function)(const strata_element *element, void *user, bool *out_keep, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_dataset_filter(strata_dataset **dataset, strata_filter_function function,
                                                               void *user, strata_error *err);
/* The first complete iteration stores its elements in memory; later iterations, in any epoch, return the stored ones. The
 * stages below are iterated as epoch 0. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_cache(strata_dataset **dataset, strata_error *err);
/* A thread computes up to n elements ahead. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_prefetch(strata_dataset **dataset, int64_t n, strata_error *err);
/* Element i has the parts of element i of every dataset. It ends with the shortest dataset. Takes the datasets on success, and
 * zeroes the pointers. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_zip(strata_dataset **datasets, int n_datasets,
                                                            strata_dataset **out_dataset, strata_error *err);
/* The function makes a dataset from each element. The stage iterates over cycle_length of these datasets at a time and returns
 * block_length elements of each in turn. */
typedef strata_status (*strata_interleave_function)(const strata_element *element, void *user, strata_dataset **out_dataset,
                                                    strata_error *err);
typedef struct strata_interleave_options {
    /* 0: 1. */
    int cycle_length;
    /* 0: 1. */
    int64_t block_length;
    /* The spec of the elements of the datasets that the function makes. */
    strata_element_spec spec;
} strata_interleave_options;
STRATA_API STRATA_MUST_USE strata_status strata_dataset_interleave(strata_dataset **dataset,
                                                                   strata_interleave_function function, void *user,
                                                                   const strata_interleave_options *opts, strata_error *err);

/* ---- several workers ---- */

/* How n workers divide a dataset, as in tf.data's auto-sharding. */
typedef enum strata_auto_shard {
    /* All workers read the same batches, and each computes a part of the rows. Losses are those of one process. */
    STRATA_SHARD_DATA = 0,
    /* Worker i mod n reads file i. The stages over the files, shuffles too, see the worker's own files only. */
    STRATA_SHARD_FILE,
    STRATA_SHARD_AUTO, /* FILE where the source is files, else DATA */
    STRATA_SHARD_HINT, /* strata_dataset_shard_hint becomes strata_dataset_shard(n, worker); no part may be empty */
    STRATA_SHARD_OFF   /* each worker reads all data */
} strata_auto_shard;
/* With FILE, HINT and OFF each worker has batches of its own. For a global batch of G rows it uses about G / n rows of its
 * batch in each step, so a batch of G rows lasts n steps, and all workers together compute G rows in each step. A worker that
 * has used all its data takes part in the remaining steps of the epoch with 0 rows, until every worker has finished. */

/* Makes the dataset that worker `worker` of n reads: a new dataset over the same sources. For DATA and OFF, and for AUTO
 * without files, it is the same dataset, retained. Sources with files: strata_dataset_from_files, strata_dataset_cifar10 (its
 * batches), strata_dataset_image_folder (its pictures).
 * Fails: INVALID for FILE without files or with fewer files than workers, for HINT without a hint, or with fewer elements than
 * workers. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_auto_shard(const strata_dataset *dataset, strata_auto_shard policy,
                                                                   int64_t n, int64_t worker, strata_dataset **out_dataset,
                                                                   strata_error *err);

/* ---- map functions ---- */

/* Random augmentation of pictures (rows, columns, channels) of any type. flip: half of the pictures are mirrored left to right.
 * padding: a picture is moved by up to so many pixels in each direction, and zeros fill the border. The random numbers depend
 * on the element's key. user: a strata_flip_crop. */
typedef struct strata_flip_crop {
    bool flip;
    int padding;
} strata_flip_crop;
STRATA_API STRATA_MUST_USE strata_status strata_augment_flip_crop(strata_element *element, void *user, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
