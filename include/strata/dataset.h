/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets: where batches come from. A dataset is a table of n elements; an element has features of one shape and a label.
 * Which elements make batch i of epoch e is a function of (seed, e, i) alone, so a position is three numbers. */
#ifndef STRATA_DATASET_H
#define STRATA_DATASET_H

#include "strata/csv.h"
#include "strata/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_dataset strata_dataset;

/* features (n, ...) u8, f32, i32 or i64, labels (n) or (n, ...) u8, i32 or i64, or f32; both borrowed: they must outlive the
 * dataset. u8 and f32 features are f32 in a batch, multiplied by `scale` on their way: 1/255 for pixels; 0: 1. i32 and i64 ones
 * are tokens: i32 in a batch, and not scaled (scale 0 or 1); DATA for one that does not fit. labels may be NULL
 * (predicting). */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_arrays(const strata_array *features, const strata_array *labels,
                                                                    double scale, strata_dataset **out_dataset,
                                                                    strata_error *err);
/* As from_arrays, but the dataset takes the arrays, even on failure, and leaves them zeroed. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_take_arrays(strata_array *features, strata_array *labels, double scale,
                                                                    strata_dataset **out_dataset, strata_error *err);
/* One input or target of several: its name, which is that of the model's input or output, and its array, (n, ...). */
typedef struct strata_data_column {
    /* 1 to 63 characters; copied. */
    const char *name;
    /* Of the types that strata_dataset_from_arrays takes. Borrowed: the memory must outlive the dataset. */
    const strata_array *array;
    /* Of an input of u8 or f32: what its elements are multiplied by. 0: 1. */
    double scale;
} strata_data_column;
/* For models with several inputs and outputs, which take columns by their names: elements with n_inputs inputs and n_targets
 * targets (0: for prediction). Everything that works on a dataset of arrays works on this one: weights, splits, stages, whose
 * elements have the parts first input, first target, weight (if there are any), other inputs, other targets. Fails: INVALID for
 * no input, an array of another length, two columns of one name, or more than 16 parts in all; DATA for classes below 0. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_columns(const strata_data_column *inputs, int n_inputs,
                                                                     const strata_data_column *targets, int n_targets,
                                                                     strata_dataset **out_dataset, strata_error *err);
/* n elements of uniform random f32 in [0, 1): features (n, features...) and labels (n, labels...), the same for the same
 * seed. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_random(strata_shape features, strata_shape labels, int64_t n,
                                                               uint64_t seed, strata_dataset **out_dataset, strata_error *err);
/* Its elements come to stages as bytes, as the array has them, not as f32: a quarter of the memory to move. The features are
 * then u8; fit, evaluate and predict multiply them by `scale` behind the last stage. For a dataset of u8 features, of arrays,
 * before stages are put over it: else INVALID. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_keep_bytes(strata_dataset *dataset, strata_error *err);
/* What each example weighs, (n) f32, copied: at least 0 and finite, else DATA. Its loss counts so much in fit and in evaluate,
 * as Keras' sample_weight: a batch's loss is sum w_i loss_i / n, divided by the number of examples and not by the sum of
 * weights (as PyTorch's does with weights of classes); metrics besides the loss do not see it. For a dataset with labels, of
 * arrays, before
 * stages are put over it: its elements then have the weight as a third part. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_set_weights(strata_dataset *dataset, const strata_array *weights,
                                                                    strata_error *err);
STRATA_API bool strata_dataset_has_weights(const strata_dataset *dataset);
/* Zeros are the defaults. */
typedef struct strata_split_options {
    /* Which elements go where. */
    uint64_t seed;
    /* Take the elements as they lie, as Keras' validation_split does: *out_first has the floor(n * (1 - fraction)) first. */
    bool in_order;
} strata_split_options;
/* Divides arrays at random: *out_last has round(n * fraction) elements, *out_first the others, with their labels, weights and
 * names of classes. Where labels are classes, each class is divided so, as nearly as whole numbers allow, so that both parts
 * have all classes. The parts are copies; in_order they share the dataset's memory and retain it. opts NULL: the defaults.
 * Fails: INVALID for a fraction that is not between 0 and 1 or leaves one of them empty, and for a pipeline, of which
 * strata_dataset_take and strata_dataset_skip give parts. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_split(strata_dataset *dataset, double fraction,
                                                              const strata_split_options *opts, strata_dataset **out_first,
                                                              strata_dataset **out_last, strata_error *err);
/* The MNIST classes 0..9 as f32 pixels in 0..1 of shape (28,28) with i32 labels. `split` is "train" or "test".
 *   folder  with the official IDX files, plain or .gz; NULL: images that the program draws itself from `seed` (60,000 and
 *           10,000) */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_mnist(const char *folder, const char *split, uint64_t seed,
                                                              strata_dataset **out_dataset, strata_error *err);
/* CIFAR-10: f32 pixels in 0..1 of shape (32,32,3) (rows, columns, channels red green blue) with i32 labels 0..9. `split` is
 * "train" or "test".
 *   path  a folder with data_batch_*.bin (train) or test_batch*.bin (test), each plain, .gz or .xz; one that holds
 *         cifar-10-batches-bin/ or
 *         cifar-10-binary.tar.gz; or that tar itself. The batches that are there are taken, in the order of their names:
 *         strata_dataset_source says which.
 * Fails: UNAVAILABLE when there is none (says what was looked for); DATA, with file and place, for a file that is not whole
 * records of 3073 bytes, a label above 9, damaged compression; UNSUPPORTED for .xz in a build without liblzma. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_cifar10(const char *path, const char *split,
                                                                strata_dataset **out_dataset, strata_error *err);
/* Numbers from the columns of a CSV file with a header (strata/csv.h), plain, .gz or .xz: features f32 (n, columns). The label
 * column gives i32 classes when all its cells are whole numbers from 0 or when they are words (opts->classes in that order, or
 * when NULL the words that occur, sorted by bytes), and f32 when they are other numbers; several label columns give
 * numbers, f32 (n, n_labels). Fails: DATA with file, line and column
 * name for a cell that is no finite number; a wrong column name shows the nearest. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_csv(const char *path, const strata_csv_options *opts,
                                                            strata_dataset **out_dataset, strata_error *err);
/* The same of a table that was read; opts->separator means nothing here. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_csv(const strata_csv *csv, const strata_csv_options *opts,
                                                                 strata_dataset **out_dataset, strata_error *err);
/* Arrays of a NumPy .npz file (savez or savez_compressed): features u8 (divided by 255), f32, or integers; labels, one each, or
 * NULL for none. A wrong name shows the nearest. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_npz(const char *path, const char *features, const char *labels,
                                                            strata_dataset **out_dataset, strata_error *err);
/* A folder of pictures, <path>/<class>/<name>.png, .jpg, .jpeg, .webp, .pgm or .ppm: f32 pixels in 0..1 of shape (rows,
 * columns, channels), channels 1 or 3 (0: 3), labels i32 in the order of the folders' names. All must have the size of the
 * first; DATA names one that has not (strata/preprocessing.h brings them to one size). UNSUPPORTED for PNG, JPEG or WebP in a
 * build without its library. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_image_folder(const char *path, int channels,
                                                                     strata_dataset **out_dataset, strata_error *err);
/* One line of text on where the data came from ("data_batch_1.bin.xz, data_batch_2.bin.xz: 20000 of 50000 images"); "" when
 * there is nothing to say. Lives as long as the dataset. */
STRATA_API const char *strata_dataset_source(const strata_dataset *dataset);
/* The word for a class ("cat", "positive"), NULL when there is none. Lives as long as the dataset. */
STRATA_API const char *strata_dataset_class_name(const strata_dataset *dataset, int64_t label);
/* Features alone, from a .npy or IDX file (maybe .gz), told apart by their first bytes: elements of `element` shape, one or (n,
 * ...), u8 (which is divided by 255), f32, or i32 or i64 tokens. A file of rows of as many numbers is taken too. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_from_file(const char *path, strata_shape element,
                                                                  strata_dataset **out_dataset, strata_error *err);
STRATA_API void strata_dataset_destroy(strata_dataset *dataset); /* NULL is fine */

STRATA_API int64_t strata_dataset_size(const strata_dataset *dataset);
STRATA_API strata_shape strata_dataset_element_shape(const strata_dataset *dataset); /* of one element's features */
/* As the elements have them: i32 for features of i32 and i64, u8 where bytes are kept, else f32. */
STRATA_API strata_dtype strata_dataset_feature_dtype(const strata_dataset *dataset);
/* DATA, naming the first token that is wrong and its place, unless all integer features are in 0 .. n_tokens - 1. */
STRATA_API STRATA_MUST_USE strata_status strata_dataset_check_tokens(const strata_dataset *dataset, int64_t n_tokens,
                                                                     strata_error *err);
STRATA_API bool strata_dataset_has_labels(const strata_dataset *dataset);
/* As the batches have it: i32 for integer labels of any width, else f32. */
STRATA_API strata_dtype strata_dataset_label_dtype(const strata_dataset *dataset);
STRATA_API strata_shape strata_dataset_label_shape(const strata_dataset *dataset); /* of one element's: () for one label each */
/* One more than the largest label of an integer kind, 0 when there are none. */
STRATA_API int64_t strata_dataset_n_classes(const strata_dataset *dataset);

/* Writes elements order[first .. first + n) of the epoch's order, features (n, ...) and labels (n, ...), of the dtypes above,
 * to memory of the caller; labels may be NULL. The order is a shuffle keyed by (seed, epoch) when `shuffle`, else 0, 1, 2 ...
 * Thread: any number at a time. */
typedef struct strata_order strata_order;
STRATA_API STRATA_MUST_USE strata_status strata_order_create(int64_t n, bool shuffle, uint64_t seed, uint64_t epoch,
                                                             strata_order **out_order, strata_error *err);
STRATA_API void strata_order_destroy(strata_order *order);
STRATA_API void strata_dataset_fetch(const strata_dataset *dataset, const strata_order *order, int64_t first, int64_t n,
                                     void *out_features, void *out_labels);
/* The same of their weights, f32 (n); 1 where the dataset has none. */
STRATA_API void strata_dataset_fetch_weights(const strata_dataset *dataset, const strata_order *order, int64_t first, int64_t n,
                                             float *out_weights);

#ifdef __cplusplus
}
#endif
#endif
