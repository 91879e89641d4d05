/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines: a dataset is a source (arrays, files, a generator) or a stage over other datasets, and fit, evaluate and predict
 * take any of them:
 *
 *     strata_dataset_cifar10("data", "train", &train, &err);                       a source: elements are an image and its
 *     label
 *     strata_dataset_shuffle(&train, NULL, &err);                                  each call puts a stage over what `train` was
 *     strata_dataset_map(&train, strata_augment_flip_crop, &crop, &(strata_map_options){.threads = 2}, &err);
 *     strata_dataset_batch(&train, 64, false, &err);
 *     strata_dataset_prefetch(&train, 2, &err);
 *
 * Stages mean what tf.data's of the same name mean. What a stage gives is a function of (seed, epoch, index): the same on every
 * run, and a position is these three numbers, from which strata_iterator_create goes on. A stage call that fails leaves the
 * dataset as it was.
 *
 * Threads: a dataset may be iterated any number of times at once; an iterator is for one thread. Threads that a stage runs
 * (map, prefetch) are as many as its options say, and are joined when the iterator is destroyed. Callbacks of a map with
 * threads > 1 run in several threads at once. */
#ifndef STRATA_PIPELINE_H
#define STRATA_PIPELINE_H

#include "strata/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { STRATA_MAX_PARTS = 16, STRATA_MAX_PART_NAME = 64 };
/* Sizes of datasets that are not numbers. */
enum { STRATA_SIZE_UNKNOWN = -1, STRATA_SIZE_INFINITE = -2 };

/* ---- elements ---- */

/* Where an element comes from: the run's seed, the epoch (each pass of a repeat is one), and its number in its source, which
 * shuffle, filter, take, skip, shard and map keep. So what a map draws for an element does not depend on the order, nor on the
 * number of workers. */
typedef struct strata_key {
    uint64_t seed, epoch;
    int64_t index;
} strata_key;

/* parts[0] is what the model sees; parts[1], where there is one, the label; parts[2], where it is one f32 an example, what the
 * example weighs (strata_dataset_set_weights); others are the program's own, unless the spec gives them a role. Each array is
 * owned by the element. */
typedef struct strata_element {
    strata_key key;
    int n_parts;
    strata_array parts[STRATA_MAX_PARTS];
} strata_element;
STRATA_API void strata_element_finish(strata_element *element); /* NULL and a zeroed element are fine; leaves it zeroed */

/* What a part of an element is for. */
typedef enum strata_part_role {
    /* What its place says: the first part is an input, the second a target, the third the weight if it is one f32 an example.
     * */
    STRATA_PART_BY_PLACE = 0,
    STRATA_PART_INPUT,  /* a model takes it                             */
    STRATA_PART_TARGET, /* what an output of the model is compared with */
    STRATA_PART_OTHER   /* the program's own                            */
} strata_part_role;

/* What every element of a dataset is. A dimension of -1 may differ from element to element. */
typedef struct strata_element_spec {
    int n_parts;
    struct {
        strata_dtype dtype;
        strata_shape shape;
    } parts[STRATA_MAX_PARTS];
    /* The first axis of each part counts examples. */
    bool is_batch;
    /* Of each part: its role, and its name, by which a model with several inputs or outputs finds it ("": it has none). The
     * first part is always an input, and the second a target unless its role is another. */
    strata_part_role roles[STRATA_MAX_PARTS];
    char names[STRATA_MAX_PARTS][STRATA_MAX_PART_NAME];
} strata_element_spec;
STRATA_API strata_element_spec strata_dataset_element_spec(const strata_dataset *dataset);

/* The draw-th random word of an element: a function of key and draw alone. */
STRATA_API uint32_t strata_key_random(const strata_key *key, uint32_t draw);

/* ---- walking ---- */
typedef struct strata_iterator strata_iterator;

/* At element `first` of the epoch; the dataset must outlive the iterator. Sources in memory and stages over them get there
 * without making what lies before. */
STRATA_API STRATA_MUST_USE strata_status strata_iterator_create(const strata_dataset *dataset, uint64_t seed, uint64_t epoch,
                                                                int64_t first, strata_iterator **out_iterator,
                                                                strata_error *err);
/* The next element, which the caller finishes; *out_more false at the end. After a failure every further call fails the same
 * way. */
STRATA_API STRATA_MUST_USE strata_status strata_iterator_next(strata_iterator *iterator, strata_element *out_element,
                                                              bool *out_more, strata_error *err);
STRATA_API void strata_iterator_destroy(strata_iterator *iterator); /* stops and joins its threads; NULL is fine */

/* Another owner of the dataset, for a source that two pipelines share: each owner calls strata_dataset_destroy. */
STRATA_API strata_dataset *strata_dataset_retain(strata_dataset *dataset);

/* ---- sources ---- */

/* Elements from a callback. `open` (NULL: state is user) makes the state of one iteration, `next` fills out_element's parts
 * (strata_array_create) or sets *out_end, `close` (may be NULL) ends it. For the order to be a function of (seed, epoch,
 * index), what they give must be one. size: how many there will be, or STRATA_SIZE_UNKNOWN. */
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

/* Elements of files: those of paths[0], then those of paths[1], ... `open` makes the dataset of one, whose elements are as
 * `spec` says, when the walk comes to it; so a file that a worker does not read is not opened. Paths are copied. An element's
 * number is that in its file + 2^32 * the file's number. */
typedef strata_status (*strata_file_function)(const char *path, void *user, strata_dataset **out_dataset, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_files(const char *const *paths, int n_paths,
                                                                   strata_file_function open, void *user,
                                                                   const strata_element_spec *spec,
                                                                   strata_dataset **out_dataset, strata_error *err);

/* ---- stages: *dataset becomes the stage over what it was ---- */

typedef struct strata_shuffle_options {
    /* Each element is drawn from the next `buffer`; 0: from all (for sources in memory without holding any). */
    int64_t buffer;
    bool same_each_epoch;
} strata_shuffle_options;
STRATA_API STRATA_MUST_USE strata_status strata_dataset_shuffle(strata_dataset **dataset, const strata_shuffle_options *opts,
                                                                strata_error *err);
/* n elements on a new first axis; they must have the same shapes. The last may be shorter, unless drop_remainder. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_batch(strata_dataset **dataset, int64_t n, bool drop_remainder,
                                                              strata_error *err);
/* As batch, for elements of different lengths: dimensions that are -1 in shapes[part] grow to the longest of the batch, others
 * are as they say; what is missing is filled with pad[part]. shapes NULL: the element's own, where it varies -1. pad NULL: 0.
 * An element that is longer than a given dimension is DATA. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_padded_batch(strata_dataset **dataset, int64_t n, bool drop_remainder,
                                                                     const strata_shape *shapes, const double *pad,
                                                                     strata_error *err);
/* count times; 0: for ever. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_repeat(strata_dataset **dataset, int64_t count, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_dataset_take(strata_dataset **dataset, int64_t n, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_dataset_skip(strata_dataset **dataset, int64_t n, strata_error *err);
/* Elements index, index + n, index + 2 n ... */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_shard(strata_dataset **dataset, int64_t n, int64_t index,
                                                              strata_error *err);
/* The place where STRATA_SHARD_HINT (below) puts each worker's shard. Walking it before that is INVALID. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_shard_hint(strata_dataset **dataset, strata_error *err);

/* Changes the element in place: writes to its parts, or finishes one and puts another there. */
typedef strata_status (*strata_map_function)(strata_element *element, void *user, strata_error *err);
typedef struct strata_map_options {
    /* 0: none, the caller's own; at most 64. The order stays. */
    int threads;
    /* Of the result; NULL: as before. */
    const strata_element_spec *spec;
} strata_map_options;
/* A failure of the function is reported with the element's index, after all elements before it. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_map(strata_dataset **dataset, strata_map_function function, void *user,
                                                            const strata_map_options *opts, strata_error *err);
typedef strata_status (*strata_filter_function)(const strata_element *element, void *user, bool *out_keep, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_dataset_filter(strata_dataset **dataset, strata_filter_function function,
                                                               void *user, strata_error *err);
/* The first whole walk keeps its elements in memory; later ones, in any epoch, give these. What lies below is walked as epoch
 * 0. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_cache(strata_dataset **dataset, strata_error *err);
/* A thread keeps up to n elements ready. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_prefetch(strata_dataset **dataset, int64_t n, strata_error *err);
/* The parts of one element of each, side by side; ends with the shortest. Takes the datasets on success (and zeroes the
 * pointers). */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_zip(strata_dataset **datasets, int n_datasets,
                                                            strata_dataset **out_dataset, strata_error *err);
/* Makes a dataset of each element and takes block_length elements of each of cycle_length of them in turn. */
typedef strata_status (*strata_interleave_function)(const strata_element *element, void *user, strata_dataset **out_dataset,
                                                    strata_error *err);
typedef struct strata_interleave_options {
    /* 0: 1. */
    int cycle_length;
    /* 0: 1. */
    int64_t block_length;
    /* Of the elements of the datasets that are made. */
    strata_element_spec spec;
} strata_interleave_options;
STRATA_API STRATA_MUST_USE strata_status strata_dataset_interleave(strata_dataset **dataset,
                                                                   strata_interleave_function function, void *user,
                                                                   const strata_interleave_options *opts, strata_error *err);

/* ---- several workers ---- */

/* How the workers of a job divide a dataset, as in tf.data's auto-sharding. Of n workers, in every step of a global batch: */
typedef enum strata_auto_shard {
    STRATA_SHARD_DATA = 0, /* all read the same batches, and each computes its rows of every one: the numbers of one process */
    /* file i is read by worker i mod n; what the files' elements go through, shuffles too, comes after that */
    STRATA_SHARD_FILE,
    STRATA_SHARD_AUTO, /* FILE where the data come from files, else DATA */
    STRATA_SHARD_HINT, /* strata_dataset_shard_hint becomes strata_dataset_shard(n, worker); no part may be empty */
    STRATA_SHARD_OFF   /* each reads everything */
} strata_auto_shard;
/* With FILE, HINT and OFF a worker has batches of its own: one of G rows serves it n steps, in each of which it computes about
 * G / n rows, so that all workers together compute G. The workers end together: one whose data are used up computes nothing
 * until the last has done. */

/* What worker `worker` of n reads: a dataset of its own over the same sources; for DATA and OFF (and AUTO without files) the
 * same one, retained.
 * Sources with files: strata_dataset_from_files, strata_dataset_cifar10 (its batches), strata_dataset_image_folder (its
 * pictures).
 * Fails: INVALID for FILE without files or with fewer files than workers, for HINT without a hint, or with fewer elements than
 * workers. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_auto_shard(const strata_dataset *dataset, strata_auto_shard policy,
                                                                   int64_t n, int64_t worker, strata_dataset **out_dataset,
                                                                   strata_error *err);

/* ---- map functions ---- */

/* Pictures (rows, columns, channels) of any type: mirrored left to right in half of the cases (flip), and moved by up to
 * `padding` pixels in each direction, with zeros from beyond the edge. Drawn from the element's key. user: a
 * strata_flip_crop. */
typedef struct strata_flip_crop {
    bool flip;
    int padding;
} strata_flip_crop;
STRATA_API STRATA_MUST_USE strata_status strata_augment_flip_crop(strata_element *element, void *user, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
