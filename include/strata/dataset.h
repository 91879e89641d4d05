/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets: the data from which fit, evaluate and predict make batches. A dataset is a table of n elements; an element has
 * features and a label, and all elements have the same shapes. The elements of batch i in epoch e depend only on (seed, e, i),
 * so a position in a training is these three numbers. */
#ifndef STRATA_DATASET_H
#define STRATA_DATASET_H

#include "strata/csv.h"
#include "strata/numbers.h"
#include "strata/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_dataset strata_dataset;

/* A dataset of arrays in memory. features: (n, ...) of u8, f32, i32 or i64. labels: (n) or (n, ...) of u8, i32, i64 or f32;
 * NULL for prediction. Both are borrowed: they must outlive the dataset. u8 and f32 features become f32 in a batch, multiplied
 * by `scale` (0: 1; STRATA_ZERO: 0), which is 1/255 for pixels. i32 and i64 features are tokens: they become i32 and are not
 * scaled, so scale must be 0 or 1; DATA for a token that does not fit in an i32. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_arrays(const strata_array *features, const strata_array *labels,
                                                                    double scale, strata_dataset **out_dataset,
                                                                    strata_error *err);
/* Like from_arrays, but the dataset takes the arrays, even on failure, and zeroes the caller's structs. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_take_arrays(strata_array *features, strata_array *labels, double scale,
                                                                    strata_dataset **out_dataset, strata_error *err);
/* One of several inputs or targets: an array (n, ...) and the name of the model's input or output that it belongs to. */
typedef struct strata_data_column {
    /* 1 to 63 characters; copied. */
    const char *name;
    /* Of a type that strata_dataset_from_arrays takes. Borrowed: the memory must outlive the dataset. */
    const strata_array *array;
    /* The elements of an input of u8 or f32 are multiplied by it. 0: 1; STRATA_ZERO: 0. */
    double scale;
} strata_data_column;
/* A dataset for models with several inputs and outputs. Its elements have n_inputs inputs and n_targets targets (0: for
 * prediction). Weights, splits and stages work as on any dataset of arrays. The parts of an element are in the order first
 * input, first target, weight (if there are weights), other inputs, other targets.
 * Fails: INVALID for no input, arrays of different lengths n, two columns of one name, or more than 16 parts in all; DATA for
 * classes below 0. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_columns(const strata_data_column *inputs, int n_inputs,
                                                                     const strata_data_column *targets, int n_targets,
                                                                     strata_dataset **out_dataset, strata_error *err);
/* A dataset of n elements whose features (n, features...) and labels (n, labels...) are random f32, uniform in [0, 1). They
 * depend only on the seed. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_random(strata_shape features, strata_shape labels, int64_t n,
                                                               uint64_t seed, strata_dataset **out_dataset, strata_error *err);
/* Makes the dataset give its stages u8 features instead of f32, so that they move a quarter of the bytes. fit, evaluate and
 * predict convert the features to f32 and multiply them by `scale` after the last stage. The dataset must be one of arrays,
 * with u8 features and without stages: else INVALID. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_keep_bytes(strata_dataset *dataset, strata_error *err);
/* Sets the weight w_i of each example, (n) f32, which is copied; it must be finite and at least 0, else DATA. fit and evaluate
 * multiply the loss of an example by its weight: the loss of a batch of n examples is sum w_i loss_i / n, as with Keras'
 * sample_weight. (PyTorch divides by the sum of the weights instead.) Metrics other than the loss ignore weights. The dataset
 * must be one of arrays, with labels and without stages. The weight is then the third part of its elements. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_set_weights(strata_dataset *dataset, const strata_array *weights,
                                                                    strata_error *err);
STRATA_API bool strata_dataset_has_weights(const strata_dataset *dataset);
/* Zeros are the defaults. */
typedef struct strata_split_options {
    /* The seed of the random split. */
    uint64_t seed;
    /* Split without shuffling, as Keras' validation_split: *out_first has the first floor(n * (1 - fraction)) elements. */
    bool in_order;
} strata_split_options;
/* Splits a dataset of arrays at random, with its labels, weights and class names: *out_last gets round(n * fraction) elements
 * and *out_first the others. If labels are classes, each class is split in this proportion, as nearly as whole numbers allow,
 * so that both parts have all classes. The parts are copies; with in_order they share the dataset's memory and retain the
 * dataset. opts NULL: the defaults.
 * Fails: INVALID for a fraction that is not between 0 and 1 or leaves a part empty, and for a pipeline; use strata_dataset_take
 * and strata_dataset_skip there. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_split(strata_dataset *dataset, double fraction,
                                                              const strata_split_options *opts, strata_dataset **out_first,
                                                              strata_dataset **out_last, strata_error *err);
/* The MNIST classes 0..9 as f32 pixels in 0..1 of shape (28,28) with i32 labels. `split` is "train" or "test".
 *   folder  has the official IDX files, plain or .gz. NULL: the library generates 60,000 (train) or 10,000 (test) similar
 *   images
 *           from `seed` */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_mnist(const char *folder, const char *split, uint64_t seed,
                                                              strata_dataset **out_dataset, strata_error *err);
/* CIFAR-10: f32 pixels in 0..1 of shape (32,32,3) (rows, columns, channels red green blue) with i32 labels 0..9. `split` is
 * "train" or "test".
 *   path  a folder with data_batch_*.bin (train) or test_batch*.bin (test), each plain, .gz or .xz; a folder that contains
 *         cifar-10-batches-bin/ or cifar-10-binary.tar.gz; or that tar itself. Some of the batch files may be missing;
 *         strata_dataset_source lists those that were read, in the order of their names.
 * Fails: UNAVAILABLE when there is no such file (the message lists the names that were tried); DATA, with file and place, for a
 * file that is not whole records of 3073 bytes, a label above 9, damaged compression; UNSUPPORTED for .xz in a build without
 * liblzma. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_cifar10(const char *path, const char *split,
                                                                strata_dataset **out_dataset, strata_error *err);
/* Numbers from the columns of a CSV file with a header (strata/csv.h), plain, .gz or .xz: features f32 (n, columns). The label
 * column gives i32 classes when all its cells are whole numbers from 0 or when they are words (opts->classes in that order, or
 * when NULL the words that occur, sorted by bytes), and f32 when they are other numbers; several label columns give numbers,
 * f32 (n, n_labels).
 * Fails: DATA with file, line and column name for a cell that is not a finite number; DATA for an unknown column name, with the
 * most similar one. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_csv(const char *path, const strata_csv_options *opts,
                                                            strata_dataset **out_dataset, strata_error *err);
/* The same from a table that is in memory; opts->dialect is ignored. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_csv(const strata_csv *csv, const strata_csv_options *opts,
                                                                 strata_dataset **out_dataset, strata_error *err);
/* A dataset from two arrays of a NumPy .npz file (savez or savez_compressed). features: the name of an array of u8 (divided by
 * 255), f32 or integers. labels: the name of an array with one label for each example; NULL: no labels. The message for an
 * unknown name has the most similar one. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_npz(const char *path, const char *features, const char *labels,
                                                            strata_dataset **out_dataset, strata_error *err);
/* A folder of pictures, <path>/<class>/, also in folders in it and behind links: f32 pixels in 0..1 of shape (rows, columns,
 * channels), channels 1 or 3 (0: 3), labels i32 in the order of the folders' names. The formats are PNG, JPEG, WebP, GIF, TIFF,
 * BMP, PBM, PGM and PPM. strata_dataset_source counts the files that were left out, such as hidden ones. All pictures must have
 * the size of the first; otherwise DATA names one that differs (strata/preprocessing.h can resize them). DATA for the folder of
 * a class without pictures. UNSUPPORTED for a format that the library was built without, or that it does not read. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_image_folder(const char *path, int channels,
                                                                     strata_dataset **out_dataset, strata_error *err);
/* One line about the source of the data, for example "data_batch_1.bin.xz, data_batch_2.bin.xz: 20000 of 50000 images"; ""
 * where there is none. Valid as long as the dataset. */
STRATA_API const char *strata_dataset_source(const strata_dataset *dataset);
/* The name of a class ("cat", "positive"); NULL where it has none. Valid as long as the dataset. */
STRATA_API const char *strata_dataset_class_name(const strata_dataset *dataset, int64_t label);
/* A dataset without labels from a .npy or IDX file, plain or .gz; the first bytes determine the format. The file has one
 * element of shape `element` or several (n, ...), or n rows of as many numbers as an element has. Its type is u8 (divided by
 * 255), f32, or i32 or i64 for tokens. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_file(const char *path, strata_shape element,
                                                                  strata_dataset **out_dataset, strata_error *err);
STRATA_API void strata_dataset_destroy(strata_dataset *dataset); /* NULL is fine */

STRATA_API int64_t strata_dataset_size(const strata_dataset *dataset);
STRATA_API strata_shape strata_dataset_element_shape(const strata_dataset *dataset); /* of one element's features */
/* The dtype of the features in a batch: i32 for features of i32 and i64, u8 after strata_dataset_keep_bytes, else f32. */
STRATA_API strata_dtype strata_dataset_feature_dtype(const strata_dataset *dataset);
/* Checks that all integer features are in 0 .. n_tokens - 1. Fails: DATA, with the first wrong token and its position. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_check_tokens(const strata_dataset *dataset, int64_t n_tokens,
                                                                     strata_error *err);
STRATA_API bool strata_dataset_has_labels(const strata_dataset *dataset);
/* The dtype of the labels in a batch: i32 for integer labels of any width, else f32. */
STRATA_API strata_dtype strata_dataset_label_dtype(const strata_dataset *dataset);
STRATA_API strata_shape strata_dataset_label_shape(const strata_dataset *dataset); /* of one element: () for a single label */
/* The largest integer label plus 1; 0 where there are no integer labels. */
STRATA_API int64_t strata_dataset_n_classes(const strata_dataset *dataset);

/* The order of the elements in an epoch: a permutation of 0 .. n - 1 that depends on (seed, epoch) if `shuffle` is true, else
 * 0, 1, 2 ... strata_dataset_fetch writes the elements at the positions first .. first + n - 1 of the order to memory of the
 * caller: features (n, ...) and labels (n, ...), of the dtypes above; out_labels may be NULL.
 * Thread: any number at a time. */
typedef struct strata_order strata_order;
STRATA_API STRATA_MUST_USE strata_status strata_order_create(int64_t n, bool shuffle, uint64_t seed, uint64_t epoch,
                                                             strata_order **out_order, strata_error *err);
STRATA_API void strata_order_destroy(strata_order *order);
STRATA_API void strata_dataset_fetch(const strata_dataset *dataset, const strata_order *order, int64_t first, int64_t n,
                                     void *out_features, void *out_labels);
/* The same for the weights of the elements, f32 (n); 1 where the dataset has no weights. */
STRATA_API void strata_dataset_fetch_weights(const strata_dataset *dataset, const strata_order *order, int64_t first, int64_t n,
                                             float *out_weights);

/* A further input of elements that have several, as a dataset of its own that lives as long as the whole; index 0 is the second
 * input. NULL: there is no such input. */
STRATA_API const strata_dataset *strata_dataset_further(const strata_dataset *dataset, int index);
/* Sets the line that strata_dataset_source returns; copied. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_set_source(strata_dataset *dataset, const char *source,
                                                                   strata_error *err);
/* The name of an element; NULL: the elements have no names. It lives as long as the dataset. */
STRATA_API const char *strata_dataset_element_name(const strata_dataset *dataset, int64_t index);

#ifdef __cplusplus
}
#endif
#endif
