/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets of arrays in memory, the order of their elements, and copying the elements of a batch. */
#include "strata/dataset.h"

#include <float.h>
#include <stdio.h>

#include "core/base/text.h"
#include "core/data/dataset.h"
#include "core/data/format/stream.h"
#include "core/data/set/image_set.h"
#include "core/data/stage/stage.h"
#include "strata/philox.h"

struct strata_order {
    int64_t n;
    uint32_t *index; /* in the same memory; NULL: 0, 1, 2 ... */
};

/* ---- datasets ---- */

static bool is_index(strata_dtype dtype) {
    return dtype == STRATA_DTYPE_I32 || dtype == STRATA_DTYPE_I64;
}

/* Whether features and labels may have this type. */
static bool is_taken(strata_dtype dtype) {
    return dtype == STRATA_DTYPE_U8 || dtype == STRATA_DTYPE_F32 || is_index(dtype);
}

static strata_status check_arrays(const strata_array *features, const strata_array *labels, double scale, strata_error *err) {
    const strata_dtype dtype = features->dtype;
    if (features->shape.rank < 1 || !is_taken(dtype))
        return strata_fail(err, STRATA_INVALID, "dataset: features are %s %s; they must be u8, f32, i32 or i64 (n, ...)",
                           strata_dtype_name(dtype), strata_shape_text(features->shape).text);
    if (is_index(dtype) && strata_number_is_given(scale) && scale != 1)
        return strata_fail(err, STRATA_INVALID, "dataset: features are %s and scale is %g; integers are not scaled: give 1",
                           strata_dtype_name(dtype), strata_number_shown(scale));
    STRATA_TRY(strata_shape_check(features->shape, err));
    if (features->shape.dims[0] > UINT32_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED, "dataset: %lld elements; at most 2^32 - 1 are shuffled in memory",
                           (long long)features->shape.dims[0]);
    if (!labels) return STRATA_OK;
    STRATA_TRY(strata_shape_check(labels->shape, err));
    if (labels->shape.rank < 1 || labels->shape.dims[0] != features->shape.dims[0])
        return strata_fail(err, STRATA_INVALID, "dataset: features are %s, labels %s; there must be one label an element",
                           strata_shape_text(features->shape).text, strata_shape_text(labels->shape).text);
    if (is_taken(labels->dtype)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "dataset: labels are %s; they must be u8, i32, i64 or f32",
                       strata_dtype_name(labels->dtype));
}

/* Computes the largest integer label plus one. Fails with DATA for a label that is negative or does not fit an i32. */
static strata_status count_classes(strata_dataset *dataset, strata_error *err) {
    if (!strata_dataset_has_labels(dataset) || dataset->labels.dtype == STRATA_DTYPE_F32) return STRATA_OK;
    for (int64_t i = 0; i < dataset->n * dataset->label_size; i++) {
        double label = strata_element_get(dataset->labels.dtype, dataset->labels.data, i);
        if (label < 0 || label > INT32_MAX)
            return strata_fail(err, STRATA_DATA, "dataset: label %lld is %.0f; classes are 0..%d", (long long)i, label,
                               INT32_MAX);
        if ((int64_t)label >= dataset->n_classes) dataset->n_classes = (int64_t)label + 1;
    }
    return STRATA_OK;
}

static int64_t integer_feature(const strata_dataset *dataset, int64_t i) {
    return dataset->features.dtype == STRATA_DTYPE_I32 ? ((const int32_t *)dataset->features.data)[i]
                                                       : ((const int64_t *)dataset->features.data)[i];
}

/* Fails with DATA for the first integer feature that is not in least..most. */
static strata_status name_token(const strata_dataset *dataset, int64_t least, int64_t most, const char *whose,
                                strata_error *err) {
    for (int64_t i = 0; i < dataset->n * dataset->element_size; i++) {
        const int64_t token = integer_feature(dataset, i);
        if (token < least || token > most)
            return strata_fail(err, STRATA_DATA, "element %lld, position %lld: the token is %lld; %s are %lld..%lld",
                               (long long)(i / dataset->element_size), (long long)(i % dataset->element_size), (long long)token,
                               whose, (long long)least, (long long)most);
    }
    return STRATA_OK;
}

/* Computes the range of integer features. Fails with DATA for one that does not fit an i32. */
static strata_status find_token_range(strata_dataset *dataset, strata_error *err) {
    const int64_t n = is_index(dataset->features.dtype) ? dataset->n * dataset->element_size : 0;
    int64_t least = n ? INT64_MAX : 0, most = n ? INT64_MIN : -1;
    for (int64_t i = 0; i < n; i++) {
        const int64_t token = integer_feature(dataset, i);
        least = token < least ? token : least;
        most = token > most ? token : most;
    }
    dataset->least_token = least;
    dataset->most_token = most;
    if (least >= INT32_MIN && most <= INT32_MAX) return STRATA_OK;
    return name_token(dataset, INT32_MIN, INT32_MAX, "dataset: batches are i32, which", err);
}

strata_status strata_dataset_check_tokens(const strata_dataset *dataset, int64_t n_tokens, strata_error *err) {
    if (dataset->least_token >= 0 && dataset->most_token < n_tokens) return STRATA_OK;
    return name_token(dataset, 0, n_tokens - 1, "those the model knows", err);
}

strata_status strata_dataset_take_arrays(strata_array *features, strata_array *labels, double scale,
                                         strata_dataset **out_dataset, strata_error *err) {
    STRATA_FINISHED(strata_array) x = *features, y = labels ? *labels : (strata_array){0};
    STRATA_OWNED(strata_dataset) *dataset = NULL;
    *features = (strata_array){0};
    if (labels) *labels = (strata_array){0};
    STRATA_TRY(check_arrays(&x, labels ? &y : NULL, scale, err));
    STRATA_TRY(STRATA_NEW(dataset, 1, err, "dataset: no host memory"));
    atomic_init(&dataset->references, 1);
    dataset->stage = &strata_stage_table;
    dataset->features = x;
    dataset->labels = y;
    x.owned = y.owned = NULL;
    dataset->n = x.shape.dims[0];
    dataset->scale = (float)strata_number_or(scale, 1);
    dataset->spec = (strata_element_spec){
        .n_parts = labels ? 2 : 1,
        .parts = {{is_index(dataset->features.dtype) ? STRATA_DTYPE_I32 : STRATA_DTYPE_F32, strata_shape_inner(x.shape)}}};
    dataset->spec.parts[1].dtype = y.dtype == STRATA_DTYPE_F32 ? STRATA_DTYPE_F32 : STRATA_DTYPE_I32;
    if (labels) dataset->spec.parts[1].shape = strata_shape_inner(y.shape);
    dataset->element_size = strata_shape_elements(dataset->spec.parts[0].shape);
    dataset->label_size = strata_shape_elements(dataset->spec.parts[1].shape);
    STRATA_TRY(count_classes(dataset, err));
    STRATA_TRY(find_token_range(dataset, err));
    *out_dataset = strata_released(&dataset);
    return STRATA_OK;
}

strata_status strata_dataset_take_known(strata_array *features, strata_array *labels, const strata_dataset_facts *facts,
                                        strata_dataset **out_dataset, strata_error *err) {
    STRATA_OWNED(strata_dataset) *dataset = NULL;
    STRATA_TRY(strata_dataset_take_arrays(features, labels->data ? labels : NULL, facts->scale, &dataset, err));
    STRATA_TRY(strata_dataset_set_facts(dataset, facts, err));
    *out_dataset = strata_released(&dataset);
    return STRATA_OK;
}

strata_status strata_dataset_from_arrays(const strata_array *features, const strata_array *labels, double scale,
                                         strata_dataset **out_dataset, strata_error *err) {
    strata_array x = strata_array_view(features->dtype, features->shape, features->data), y = {0};
    if (labels) y = strata_array_view(labels->dtype, labels->shape, labels->data);
    return strata_dataset_take_arrays(&x, labels ? &y : NULL, scale, out_dataset, err);
}

strata_status strata_dataset_keep_bytes(strata_dataset *dataset, strata_error *err) {
    if (dataset->stage != &strata_stage_table || dataset->features.dtype != STRATA_DTYPE_U8)
        return strata_fail(err, STRATA_INVALID,
                           "keep_bytes: the dataset is %s of %s; it must be arrays of u8, without a stage over them",
                           dataset->stage->name, strata_dtype_name(dataset->spec.parts[0].dtype));
    if (dataset->scale == 0) return strata_fail(err, STRATA_INVALID, "keep_bytes: the dataset's scale is 0");
    dataset->spec.parts[0].dtype = STRATA_DTYPE_U8;
    return STRATA_OK;
}

strata_status strata_dataset_mnist(const char *folder, const char *split, uint64_t seed, strata_dataset **out_dataset,
                                   strata_error *err) {
    bool train;
    strata_image_set set = {0};
    STRATA_TRY(strata_split_check(split, &train, err));
    if (folder)
        STRATA_TRY(strata_mnist_load(folder, train ? STRATA_MNIST_TRAIN : STRATA_MNIST_TEST, &set, err));
    else
        STRATA_TRY(strata_digits_make(seed, train ? 0 : STRATA_DIGITS_TEST_FIRST, train ? 60000 : 10000, &set, err));
    return strata_dataset_take_arrays(&set.images, &set.labels, 1.0 / 255, out_dataset, err);
}

/* Sets *out_shape to (n, element...) if the array has n elements of that shape: stored so, or as rows of numbers. */
static bool as_elements(strata_shape given, strata_shape element, strata_shape *out_shape) {
    int64_t size = strata_shape_elements(element), all = strata_shape_elements(given);
    if (element.rank == 3 && element.dims[2] == 1) { /* pictures (H, W) count as pictures (H, W, 1) */
        element.rank = 2;
        if (given.rank > 2 && given.dims[given.rank - 1] == 1) given.rank--;
    }
    bool one = strata_shape_equal(given, element), row = given.rank == 2 && given.dims[1] == size;
    bool many = given.rank == element.rank + 1 && all && all % size == 0 && given.dims[0] == all / size;
    for (int i = 0; many && i < element.rank; i++) many = given.dims[i + 1] == element.dims[i];
    *out_shape = (strata_shape){.rank = element.rank + 1, .dims = {all / size}};
    memcpy(out_shape->dims + 1, element.dims, (size_t)element.rank * sizeof(int64_t));
    return one || row || many;
}

static strata_status read_array(const char *path, strata_array *out_array, strata_error *err) {
    unsigned char head[6];
    size_t n;
    STRATA_TRY(strata_stream_peek_file(path, head, sizeof head, &n, err));
    if (n == sizeof head && !memcmp(head, "\x93NUMPY", sizeof head)) return strata_npy_read(path, out_array, err);
    if (n < 2 || (!head[0] && !head[1])) return strata_idx_read(path, out_array, err);
    return strata_fail(err, STRATA_DATA, "%s: begins with bytes %02X %02X, as neither .npy (93 4E) nor IDX (00 00) do", path,
                       head[0], head[1]);
}

strata_status strata_dataset_from_file(const char *path, strata_shape element, strata_dataset **out_dataset,
                                       strata_error *err) {
    STRATA_FINISHED(strata_array) array = {0};
    strata_shape shape;
    STRATA_TRY(strata_shape_check(element, err));
    if (element.rank == STRATA_MAX_RANK || strata_shape_elements(element) < 1)
        return strata_fail(err, STRATA_INVALID, "dataset: elements of %s; they need at least one number and at most %d axes",
                           strata_shape_text(element).text, STRATA_MAX_RANK - 1);
    STRATA_TRY(read_array(path, &array, err));
    if (!is_taken(array.dtype))
        return strata_fail(err, STRATA_DATA, "%s: elements are %s; u8 pixels, f32, or i32 or i64 tokens are taken", path,
                           strata_dtype_name(array.dtype));
    if (!as_elements(array.shape, element, &shape))
        return strata_fail(err, STRATA_DATA, "%s: its shape is %s; the model takes %s, or (n, ...) of them", path,
                           strata_shape_text(array.shape).text, strata_shape_text(element).text);
    array.shape = shape;
    return strata_dataset_take_arrays(&array, NULL, array.dtype == STRATA_DTYPE_U8 ? 1.0 / 255 : 1, out_dataset, err);
}

static void destroy_table(strata_dataset *dataset) {
    for (int i = 0; i < dataset->n_more; i++) strata_dataset_destroy(dataset->more[i]);
    strata_array_finish(&dataset->features);
    strata_array_finish(&dataset->labels);
    free(dataset->file_ends);
    strata_array_finish(&dataset->weights);
    strata_dataset_destroy(dataset->whole);
}

int64_t strata_dataset_size(const strata_dataset *dataset) {
    return dataset->n;
}
/* The shape of a part, without the axis of a batch. */
static strata_shape shape_of_part(const strata_dataset *dataset, int part) {
    const strata_shape shape = dataset->spec.parts[part].shape;
    return dataset->spec.is_batch ? strata_shape_inner(shape) : shape;
}
strata_shape strata_dataset_element_shape(const strata_dataset *dataset) {
    return shape_of_part(dataset, 0);
}
strata_dtype strata_dataset_feature_dtype(const strata_dataset *dataset) {
    return dataset->spec.parts[0].dtype;
}
float strata_dataset_byte_scale(const strata_dataset *dataset) {
    return dataset->spec.parts[0].dtype == STRATA_DTYPE_U8 ? dataset->scale : 0;
}
bool strata_dataset_has_labels(const strata_dataset *dataset) {
    return strata_spec_role(&dataset->spec, 1) == STRATA_PART_TARGET;
}
strata_dtype strata_dataset_label_dtype(const strata_dataset *dataset) {
    return strata_dataset_has_labels(dataset) ? dataset->spec.parts[1].dtype : STRATA_DTYPE_F32;
}
strata_shape strata_dataset_label_shape(const strata_dataset *dataset) {
    return strata_dataset_has_labels(dataset) ? shape_of_part(dataset, 1) : STRATA_SHAPE();
}
int64_t strata_dataset_n_classes(const strata_dataset *dataset) {
    return dataset->n_classes;
}

const char *strata_dataset_source(const strata_dataset *dataset) {
    return dataset->source ? dataset->source : "";
}
const char *strata_dataset_class_name(const strata_dataset *dataset, int64_t label) {
    return label >= 0 && label < dataset->n_class_names ? dataset->class_names[label] : NULL;
}

/* ---- weights ---- */

bool strata_dataset_has_weights(const strata_dataset *dataset) {
    const strata_element_spec *spec = &dataset->spec;
    return spec->n_parts > 2 && strata_spec_role(spec, 2) == STRATA_PART_OTHER && spec->parts[2].dtype == STRATA_DTYPE_F32 &&
           spec->parts[2].shape.rank == (spec->is_batch ? 1 : 0);
}

strata_status strata_weights_check(const float *weights, int64_t n, strata_error *err) {
    for (int64_t i = 0; i < n; i++)
        if (!(weights[i] >= 0 && weights[i] <= FLT_MAX))
            return strata_fail(err, STRATA_DATA, "the weight of example %lld is %g; it must be at least 0 and finite",
                               (long long)i, (double)weights[i]);
    return STRATA_OK;
}

/* Inserts a part into the spec before part `at`. It has no name yet, and its role follows from its position. */
static void insert_part(strata_element_spec *spec, int at) {
    for (int i = spec->n_parts++; i > at; i--) {
        spec->parts[i] = spec->parts[i - 1];
        spec->roles[i] = spec->roles[i - 1];
        memcpy(spec->names[i], spec->names[i - 1], sizeof spec->names[i]);
    }
    spec->roles[at] = STRATA_PART_BY_PLACE;
    spec->names[at][0] = 0;
}

strata_status strata_dataset_set_weights(strata_dataset *dataset, const strata_array *weights, strata_error *err) {
    strata_array copy;
    if (dataset->stage != &strata_stage_table || !strata_dataset_has_labels(dataset))
        return strata_fail(err, STRATA_INVALID,
                           "weights: the dataset is %s; it must be arrays with labels, without a stage over them",
                           strata_dataset_has_labels(dataset) ? dataset->stage->name : "arrays without labels");
    if (weights->dtype != STRATA_DTYPE_F32 || !strata_shape_equal(weights->shape, STRATA_SHAPE(dataset->n)))
        return strata_fail(err, STRATA_INVALID, "weights are %s %s; they must be f32 (%lld), one an element",
                           strata_dtype_name(weights->dtype), strata_shape_text(weights->shape).text, (long long)dataset->n);
    if (!dataset->weights.data && dataset->spec.n_parts == STRATA_MAX_PARTS)
        return strata_fail(err, STRATA_INVALID, "weights: elements have %d parts already, which is the most", STRATA_MAX_PARTS);
    STRATA_TRY(strata_weights_check(weights->data, dataset->n, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, weights->shape, &copy, err));
    if (dataset->n) memcpy(copy.data, weights->data, (size_t)dataset->n * sizeof(float));
    if (!dataset->weights.data) insert_part(&dataset->spec, 2);
    strata_array_finish(&dataset->weights);
    dataset->weights = copy;
    dataset->spec.parts[2].dtype = STRATA_DTYPE_F32;
    dataset->spec.parts[2].shape = STRATA_SHAPE();
    return STRATA_OK;
}

void strata_dataset_fetch_weights(const strata_dataset *dataset, const strata_order *order, int64_t first, int64_t n,
                                  float *out_weights) {
    const float *weights = dataset->weights.data;
    for (int64_t i = 0; i < n; i++) out_weights[i] = weights ? weights[strata_order_index(order, first + i)] : 1;
}

/* ---- descriptions that readers set ---- */

strata_status strata_split_check(const char *split, bool *out_train, strata_error *err) {
    *out_train = !strcmp(split, "train");
    if (*out_train || !strcmp(split, "test")) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "dataset: there is no split \"%s\"; there are: train, test", split);
}

strata_status strata_dataset_set_source(strata_dataset *dataset, const char *source, strata_error *err) {
    char *copy = strdup(source);
    if (!copy) return strata_fail(err, STRATA_OUT_OF_MEMORY, "dataset: no host memory");
    free(dataset->source);
    dataset->source = copy;
    return STRATA_OK;
}

/* Replaces a list of n names, or of none, by a copy. */
static strata_status set_names(char ***list, const char *const *names, int64_t n, strata_error *err) {
    char **copy = NULL;
    if (n > INT32_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED, "dataset: %lld elements are too many for names", (long long)n);
    STRATA_TRY(strata_names_copy(names, (int)n, &copy, err));
    free(*list);
    *list = copy;
    return STRATA_OK;
}

strata_status strata_dataset_set_facts(strata_dataset *dataset, const strata_dataset_facts *facts, strata_error *err) {
    int64_t *ends = NULL;
    if (facts->weights) STRATA_TRY(strata_dataset_set_weights(dataset, facts->weights, err));
    if (facts->source) STRATA_TRY(strata_dataset_set_source(dataset, facts->source, err));
    if (facts->element_names) STRATA_TRY(set_names(&dataset->element_names, facts->element_names, dataset->n, err));
    if (facts->n_class_names) {
        STRATA_TRY(set_names(&dataset->class_names, facts->class_names, facts->n_class_names, err));
        dataset->n_class_names = facts->n_class_names;
        if (dataset->n_classes < facts->n_class_names) dataset->n_classes = facts->n_class_names;
    }
    if (!facts->n_files) return STRATA_OK;
    STRATA_TRY(STRATA_NEW(ends, facts->n_files, err, "dataset: no host memory for %lld files", (long long)facts->n_files));
    memcpy(ends, facts->file_ends, (size_t)facts->n_files * sizeof *ends);
    free(dataset->file_ends);
    dataset->file_ends = ends;
    dataset->n_files = facts->n_files;
    return STRATA_OK;
}

const char *strata_dataset_element_name(const strata_dataset *dataset, int64_t index) {
    return dataset->element_names && index >= 0 && index < dataset->n ? dataset->element_names[index] : NULL;
}

/* ---- order ---- */

/* Fisher-Yates shuffle: the element at position i, beginning with the last one, is swapped with that at a random position
 * 0..i. The random numbers are words of Philox with the key `seed`; every counter (number of the block, epoch) gives four
 * of them. A word is mapped to 0..i by a multiplication (Lemire 2019); its bias, below 2^-32 for each number, does not
 * matter for a shuffle. */
static void shuffle_indices(uint32_t *index, int64_t n, uint64_t seed, uint64_t epoch) {
    strata_philox_block random = {{0}};
    for (int64_t i = 0; i < n; i++) index[i] = (uint32_t)i;
    for (int64_t i = n - 1, drawn = 0; i > 0; i--, drawn++) {
        if (drawn % 4 == 0) {
            strata_philox_block counter = {{(uint32_t)(drawn / 4), (uint32_t)epoch, (uint32_t)(epoch >> 32), 0x5eedu}};
            random = strata_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
        }
        uint64_t j = (random.words[drawn % 4] * (uint64_t)(i + 1)) >> 32;
        uint32_t kept = index[i];
        index[i] = index[j];
        index[j] = kept;
    }
}

strata_status strata_order_create(int64_t n, bool shuffle, uint64_t seed, uint64_t epoch, strata_order **out_order,
                                  strata_error *err) {
    if (n < 0 || n > UINT32_MAX) return strata_fail(err, STRATA_INVALID, "order: n is %lld", (long long)n);
    strata_order *order = malloc(sizeof *order + (shuffle ? (size_t)n * sizeof *order->index : 0));
    if (!order) return strata_fail(err, STRATA_OUT_OF_MEMORY, "order: no host memory for %lld indices", (long long)n);
    *order = (strata_order){.n = n, .index = shuffle ? (uint32_t *)(order + 1) : NULL};
    if (shuffle) shuffle_indices(order->index, n, seed, epoch);
    *out_order = order;
    return STRATA_OK;
}

void strata_order_destroy(strata_order *order) {
    free(order);
}

int64_t strata_order_index(const strata_order *order, int64_t position) {
    return order->index ? order->index[position] : position;
}

/* ---- batches ---- */

/* Compiled for two vector widths. It must be fast, because a batch is converted while the device computes, and on a CPU
 * device the conversion takes one of the device's cores. */
static inline __attribute__((always_inline)) void convert_u8(const uint8_t *source, float scale, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = (float)source[i] * scale;
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void gather_u8_avx2(const uint8_t *source, float scale, int64_t n, float *out) {
    convert_u8(source, scale, n, out);
}
#endif
void strata_bytes_to_f32(const uint8_t *source, float scale, int64_t n, float *out) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        gather_u8_avx2(source, scale, n, out);
        return;
    }
#endif
    convert_u8(source, scale, n, out);
}

/* Shuffled elements are far apart in memory. Prefetching them a few elements ahead halves the time to copy a batch. */
enum { PREFETCH_AHEAD = 4, PREFETCH_BYTES = 1024, CACHE_LINE = 64 };

static void prefetch_element(const strata_array *array, int64_t size, int64_t element) {
    const int64_t bytes = size * (int64_t)strata_dtype_bytes(array->dtype);
    const char *at = (const char *)array->data + element * bytes;
    for (int64_t i = 0; i < bytes && i < PREFETCH_BYTES; i += CACHE_LINE) __builtin_prefetch(at + i);
}

static void fetch_labels(const strata_dataset *dataset, int64_t element, int64_t i, void *out) {
    const strata_dtype kind = dataset->labels.dtype;
    for (int64_t k = 0; k < dataset->label_size; k++) {
        const int64_t from = element * dataset->label_size + k, to = i * dataset->label_size + k;
        if (kind == STRATA_DTYPE_F32)
            ((float *)out)[to] = ((const float *)dataset->labels.data)[from];
        else
            ((int32_t *)out)[to] = (int32_t)strata_element_get(kind, dataset->labels.data, from);
    }
}

/* stored: features are copied with the dtype of the array. */
static void fetch_features(const strata_dataset *dataset, int64_t element, int64_t i, bool stored, void *out) {
    const int64_t size = dataset->element_size;
    const strata_dtype from = dataset->features.dtype;
    const size_t bytes = (size_t)size * strata_dtype_bytes(from);
    const void *features = (const char *)dataset->features.data + (size_t)element * bytes;
    float *const floats = (float *)out + i * size;
    if (stored || from == STRATA_DTYPE_I32) {
        if (bytes) memcpy((char *)out + (size_t)i * bytes, features, bytes);
    } else if (from == STRATA_DTYPE_U8) {
        strata_bytes_to_f32(features, dataset->scale, size, floats);
    } else if (from == STRATA_DTYPE_F32) {
        for (int64_t k = 0; k < size; k++) floats[k] = ((const float *)features)[k] * dataset->scale;
    } else {
        for (int64_t k = 0; k < size; k++) ((int32_t *)out)[i * size + k] = (int32_t)((const int64_t *)features)[k];
    }
}

/* The table of an additional input or target; NULL: the part is the first input or target. */
static const strata_dataset *more_of(const strata_dataset *dataset, int part) {
    const int i = part - (dataset->spec.n_parts - dataset->n_more);
    return i >= 0 && i < dataset->n_more ? dataset->more[i] : NULL;
}

void strata_dataset_fetch_part(const strata_dataset *dataset, const strata_order *order, int64_t first, int64_t n, int part,
                               bool stored, void *out) {
    const strata_dataset *more = more_of(dataset, part);
    if (more) {
        strata_dataset_fetch_part(more, order, first, n, 0, stored, out);
        return;
    }
    if (part > 0 && !(part == 1 && strata_dataset_has_labels(dataset))) {
        strata_dataset_fetch_weights(dataset, order, first, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t element = strata_order_index(order, first + i), ahead = first + i + PREFETCH_AHEAD;
        if (order->index && ahead < order->n)
            prefetch_element(part ? &dataset->labels : &dataset->features, part ? dataset->label_size : dataset->element_size,
                             order->index[ahead]);
        if (part)
            fetch_labels(dataset, element, i, out);
        else
            fetch_features(dataset, element, i, stored, out);
    }
}

void strata_dataset_fetch(const strata_dataset *dataset, const strata_order *order, int64_t first, int64_t n,
                          void *out_features, void *out_labels) {
    if (out_features) strata_dataset_fetch_part(dataset, order, first, n, 0, false, out_features);
    if (out_labels && strata_dataset_has_labels(dataset))
        strata_dataset_fetch_part(dataset, order, first, n, 1, false, out_labels);
}

/* ---- several inputs and targets ---- */

strata_part_role strata_spec_role(const strata_element_spec *spec, int part) {
    if (part >= spec->n_parts) return STRATA_PART_OTHER;
    if (part == 0) return STRATA_PART_INPUT;
    if (spec->roles[part] != STRATA_PART_BY_PLACE) return spec->roles[part];
    return part == 1 ? STRATA_PART_TARGET : STRATA_PART_OTHER;
}

int64_t strata_dataset_part_classes(const strata_dataset *dataset, int part) {
    const strata_dataset *more = more_of(dataset, part);
    return more ? more->most_token + 1 : part == 1 ? dataset->n_classes : 0;
}

strata_status strata_dataset_check_part_tokens(const strata_dataset *dataset, int part, int64_t n, strata_error *err) {
    const strata_dataset *more = more_of(dataset, part);
    return more || part == 0 ? strata_dataset_check_tokens(more ? more : dataset, n, err) : STRATA_OK;
}

static strata_status check_column(const strata_dataset *dataset, const strata_data_column *column, const char *what,
                                  strata_error *err) {
    const strata_element_spec *spec = &dataset->spec;
    if (!column->name || !*column->name || strlen(column->name) >= STRATA_MAX_PART_NAME)
        return strata_fail(err, STRATA_INVALID, "dataset: an %s is called \"%.40s\"; names have 1 to %d characters", what,
                           column->name ? column->name : "", STRATA_MAX_PART_NAME - 1);
    if (!column->array) return strata_fail(err, STRATA_INVALID, "dataset: %s \"%s\" has no array", what, column->name);
    for (int i = 0; i < spec->n_parts; i++)
        if (!strcmp(spec->names[i], column->name))
            return strata_fail(err, STRATA_INVALID, "dataset: there are two columns called \"%s\"", column->name);
    if (spec->n_parts == STRATA_MAX_PARTS)
        return strata_fail(err, STRATA_INVALID, "dataset: \"%s\" is one column too many; there can be %d", column->name,
                           STRATA_MAX_PARTS);
    if (column->array->shape.rank > 0 && column->array->shape.dims[0] == dataset->n) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "dataset: %s \"%s\" is %s; the first input has %lld elements", what, column->name,
                       strata_shape_text(column->array->shape).text, (long long)dataset->n);
}

/* Appends the dataset `more`, which becomes a part with this name. `dataset` then owns `more`. */
static void append_part(strata_dataset *dataset, strata_dataset *more, bool target, const char *name) {
    const int part = dataset->spec.n_parts++;
    dataset->more[dataset->n_more++] = more;
    dataset->spec.parts[part] = more->spec.parts[0];
    dataset->spec.roles[part] = target ? STRATA_PART_TARGET : STRATA_PART_INPUT;
    strcpy(dataset->spec.names[part], name);
}

strata_status strata_dataset_take_input(strata_dataset *dataset, const char *first, const char *name, strata_array *array,
                                        strata_error *err) {
    strata_dataset *more = NULL;
    STRATA_TRY(check_column(dataset, &(strata_data_column){.name = name, .array = array}, "input", err));
    STRATA_TRY(strata_dataset_take_arrays(array, NULL, 0, &more, err));
    snprintf(dataset->spec.names[0], sizeof dataset->spec.names[0], "%s", first);
    append_part(dataset, more, false, name);
    return STRATA_OK;
}

/* Appends a column that is not the first input or the first target. */
static strata_status add_column(strata_dataset *dataset, const strata_data_column *column, bool target, strata_error *err) {
    const strata_array *given = column->array;
    STRATA_TRY(check_column(dataset, column, target ? "target" : "input", err));
    strata_array array = strata_array_view(given->dtype, given->shape, given->data);
    STRATA_OWNED(strata_dataset) *more = NULL;
    if (target && given->dtype == STRATA_DTYPE_U8) { /* classes must be integers; the u8 of an input would be pixels */
        STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, given->shape, &array, err));
        for (int64_t i = 0, n = strata_shape_elements(given->shape); i < n; i++)
            ((int32_t *)array.data)[i] = ((const uint8_t *)given->data)[i];
    }
    strata_status status = strata_dataset_take_arrays(&array, NULL, column->scale, &more, err);
    if (!status && target && more->least_token < 0) status = name_token(more, 0, INT32_MAX, "classes", err);
    if (status) return strata_fail_in(err, status, "column \"%s\"", column->name);
    append_part(dataset, strata_released(&more), target, column->name);
    return STRATA_OK;
}

strata_status strata_dataset_from_columns(const strata_data_column *inputs, int n_inputs, const strata_data_column *targets,
                                          int n_targets, strata_dataset **out_dataset, strata_error *err) {
    STRATA_OWNED(strata_dataset) *dataset = NULL;
    if (n_inputs < 1 || n_targets < 0 || !inputs[0].array)
        return strata_fail(err, STRATA_INVALID, "dataset: there are %d inputs; there must be one at least, with its array",
                           n_inputs);
    const strata_array *first = n_targets ? targets[0].array : NULL;
    if (n_targets && !first) return strata_fail(err, STRATA_INVALID, "dataset: target \"%s\" has no array", targets[0].name);
    STRATA_TRY(strata_dataset_from_arrays(inputs[0].array, first, inputs[0].scale, &dataset, err));
    const int n_parts = dataset->spec.n_parts;
    dataset->spec.n_parts = 0; /* a name must differ only from the names before it */
    for (int i = 0; i < n_parts; i++) {
        const strata_data_column *column = i ? &targets[0] : &inputs[0];
        STRATA_TRY(check_column(dataset, column, i ? "target" : "input", err));
        strcpy(dataset->spec.names[dataset->spec.n_parts++], column->name);
    }
    for (int i = 1; i < n_inputs; i++) STRATA_TRY(add_column(dataset, &inputs[i], false, err));
    for (int i = 1; i < n_targets; i++) STRATA_TRY(add_column(dataset, &targets[i], true, err));
    *out_dataset = strata_released(&dataset);
    return STRATA_OK;
}

/* ---- as the source of a pipeline ---- */

static strata_status table_at(const strata_dataset *dataset, uint64_t seed, uint64_t epoch, int64_t index,
                              strata_element *out_element, strata_error *err) {
    const strata_order in_order = {.n = dataset->n};
    STRATA_FINISHED(strata_element) made = {.key = {seed, epoch, index}, .n_parts = dataset->spec.n_parts};
    for (int i = 0; i < made.n_parts; i++) {
        const strata_dtype dtype = dataset->spec.parts[i].dtype;
        STRATA_TRY(strata_array_create(dtype, dataset->spec.parts[i].shape, &made.parts[i], err));
        strata_dataset_fetch_part(dataset, &in_order, index, 1, i, dtype == STRATA_DTYPE_U8, made.parts[i].data);
    }
    *out_element = strata_element_released(&made);
    return STRATA_OK;
}

strata_status strata_table_part(const strata_dataset *whole, int64_t n, strata_rows_function take, const void *user,
                                strata_dataset **out_part, strata_error *err) {
    const strata_dataset_facts facts = {
        .source = whole->source, .class_names = (const char *const *)whole->class_names, .n_class_names = whole->n_class_names};
    STRATA_OWNED(strata_dataset) *part = NULL;
    STRATA_TRY(STRATA_NEW(part, 1, err, "dataset: no host memory"));
    *part = (strata_dataset){.stage = whole->stage,
                             .spec = whole->spec,
                             .n = n,
                             .n_classes = whole->n_classes,
                             .least_token = whole->least_token,
                             .most_token = whole->most_token,
                             .element_size = whole->element_size,
                             .label_size = whole->label_size,
                             .scale = whole->scale};
    atomic_init(&part->references, 1);
    STRATA_TRY(strata_dataset_set_facts(part, &facts, err));
    STRATA_TRY(take(&whole->features, user, &part->features, err));
    if (whole->labels.data) STRATA_TRY(take(&whole->labels, user, &part->labels, err));
    if (whole->weights.data) STRATA_TRY(take(&whole->weights, user, &part->weights, err));
    for (; part->n_more < whole->n_more; part->n_more++)
        STRATA_TRY(strata_table_part(whole->more[part->n_more], n, take, user, &part->more[part->n_more], err));
    *out_part = strata_released(&part);
    return STRATA_OK;
}

/* The files index, index + n, ... of a dataset. */
typedef struct file_share {
    const strata_dataset *dataset;
    int64_t n, index, n_rows;
} file_share;

/* Copies the rows of the files to one array. */
static strata_status rows_of_files(const strata_array *from, const void *user, strata_array *out, strata_error *err) {
    const file_share *share = user;
    const strata_dataset *dataset = share->dataset;
    strata_shape shape = from->shape;
    shape.dims[0] = share->n_rows;
    STRATA_TRY(strata_array_create(from->dtype, shape, out, err));
    const size_t row = dataset->n ? strata_array_bytes(from) / (size_t)dataset->n : 0;
    char *to = out->data;
    for (int64_t f = share->index; f < dataset->n_files; f += share->n) {
        const int64_t first = f ? dataset->file_ends[f - 1] : 0;
        const size_t bytes = (size_t)(dataset->file_ends[f] - first) * row;
        if (bytes) memcpy(to, (const char *)from->data + (size_t)first * row, bytes);
        to += bytes;
    }
    return STRATA_OK;
}

static strata_status table_shard_files(const strata_dataset *dataset, int64_t n, int64_t index, strata_dataset **out_dataset,
                                       strata_error *err) {
    file_share share = {dataset, n, index, 0};
    for (int64_t f = index; f < dataset->n_files; f += n)
        share.n_rows += dataset->file_ends[f] - (f ? dataset->file_ends[f - 1] : 0);
    return strata_table_part(dataset, share.n_rows, rows_of_files, &share, out_dataset, err);
}

const strata_stage strata_stage_table = {
    .name = "arrays", .at = table_at, .destroy = destroy_table, .shard_files = table_shard_files};

const strata_dataset *strata_dataset_further(const strata_dataset *dataset, int index) {
    return index < dataset->n_more ? dataset->more[index] : NULL;
}
