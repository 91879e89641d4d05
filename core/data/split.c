/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides a dataset of arrays: at random, or with each class divided in the same proportion, or in the order of the
 * examples. */
#include <math.h>

#include "core/data/dataset.h"
#include "core/data/prepare/preprocessing.h"
#include "core/data/stage/stage.h"

/* ---- which examples ---- */

/* A class: its number of elements, how many of them are in the last part, and the fraction that was lost by rounding that
 * number down. */
typedef struct share {
    int64_t n, last;
    double rest;
    int32_t class;
} share;

static int by_rest(const void *a, const void *b) {
    const share *x = a, *y = b;
    if (x->rest != y->rest) return x->rest < y->rest ? 1 : -1;
    return (x->class > y->class) - (x->class < y->class);
}
static int by_class(const void *a, const void *b) {
    return (((const share *)a)->class > ((const share *)b)->class) - (((const share *)a)->class < ((const share *)b)->class);
}

/* Assigns `fraction` of each class, rounded down, to the last part. Then the classes with the largest lost fractions get
 * one more element, until the part has n_last elements. */
static void divide(share *shares, int32_t n_classes, double fraction, int64_t n_last) {
    int64_t left = n_last;
    for (int32_t c = 0; c < n_classes; c++) {
        const double exact = (double)shares[c].n * fraction;
        shares[c].class = c;
        shares[c].last = (int64_t)floor(exact);
        shares[c].rest = exact - floor(exact);
        left -= shares[c].last;
    }
    qsort(shares, (size_t)n_classes, sizeof *shares, by_rest);
    /* each class keeps at least one training example, if possible */
    for (int round = 0; round < 2 && left > 0; round++)
        for (int32_t c = 0; c < n_classes && left > 0; c++)
            if (shares[c].last + 1 < shares[c].n || (round && shares[c].last < shares[c].n)) shares[c].last++, left--;
    qsort(shares, (size_t)n_classes, sizeof *shares, by_class);
}

static strata_status check_parts(int64_t n, double fraction, int64_t first, strata_error *err) {
    if (first >= 1 && first < n) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       "split: %g of %lld elements leaves %lld and %lld; neither may be empty. Give more elements, or another "
                       "share (--test-split, --validation-split)",
                       fraction, (long long)n, (long long)first, (long long)(n - first));
}

strata_status strata_split_order(const int32_t *classes, int64_t n, double fraction, uint64_t seed, int64_t *order,
                                 int64_t *out_first, strata_error *err) {
    STRATA_OWNED(strata_order) *shuffled = NULL;
    STRATA_FREED share *shares = NULL;
    const int64_t n_last = llround((double)n * fraction);
    int32_t n_classes = 1;
    *out_first = n - n_last;
    if (fraction != 0) STRATA_TRY(check_parts(n, fraction, *out_first, err));
    STRATA_TRY(strata_order_create(n, true, seed, UINT64_C(0x5b117), &shuffled, err));
    for (int64_t i = 0; i < n && classes; i++)
        if (classes[i] >= n_classes) n_classes = classes[i] + 1;
    STRATA_TRY(STRATA_NEW(shares, n_classes, err, "split: no host memory for %d classes", n_classes));
    for (int64_t i = 0; i < n; i++) shares[classes ? classes[i] : 0].n++;
    divide(shares, n_classes, fraction, n_last);
    int64_t first = 0, last = *out_first;
    for (int64_t i = 0; i < n; i++) {
        const int64_t element = strata_order_index(shuffled, i);
        share *own = &shares[classes ? classes[element] : 0];
        if (own->last > 0)
            own->last--, order[last++] = element;
        else
            order[first++] = element;
    }
    return STRATA_OK;
}

/* ---- parts ---- */

/* n elements: those from `first` on, or those in `order`. */
typedef struct selection {
    const int64_t *order;
    int64_t first, n;
} selection;

/* A view of consecutive elements, or a copy of those in an order. */
static strata_status select_rows(const strata_array *array, const void *user, strata_array *out, strata_error *err) {
    const selection *s = user;
    strata_shape shape = array->shape;
    const size_t row = strata_array_bytes(array) / (size_t)shape.dims[0];
    shape.dims[0] = s->n;
    if (!s->order) {
        *out = strata_array_view(array->dtype, shape, (char *)array->data + (size_t)s->first * row);
        return STRATA_OK;
    }
    STRATA_TRY(strata_array_create(array->dtype, shape, out, err));
    for (int64_t i = 0; i < s->n; i++)
        memcpy((char *)out->data + (size_t)i * row, (const char *)array->data + (size_t)s->order[i] * row, row);
    return STRATA_OK;
}

/* Sets the files of a part: those of consecutive elements of the whole; or, if each element of the whole is a file, each of the
 * part's is one, too. */
static strata_status name_files(const strata_dataset *whole, selection s, strata_dataset *part, strata_error *err) {
    STRATA_FREED int64_t *ends = NULL;
    int64_t n = 0;
    if (s.order && whole->n_files != whole->n) return STRATA_OK;
    STRATA_TRY(STRATA_NEW(ends, s.order ? s.n : whole->n_files, err, "split: no host memory for the ends of its files"));
    if (s.order)
        for (; n < s.n; n++) ends[n] = n + 1;
    for (int64_t f = 0; f < whole->n_files && !s.order && (!n || ends[n - 1] < s.n); f++) {
        const int64_t end = whole->file_ends[f] - s.first;
        if (end > 0) ends[n++] = end < s.n ? end : s.n;
    }
    return strata_dataset_set_facts(part, &(strata_dataset_facts){.file_ends = ends, .n_files = n}, err);
}

/* Makes a part of consecutive elements, whose arrays are views of those of the whole, or of copies of those in an order. */
static strata_status make_part(strata_dataset *whole, selection s, strata_dataset **out_part, strata_error *err) {
    STRATA_OWNED(strata_dataset) *part = NULL;
    STRATA_TRY(strata_table_part(whole, s.n, select_rows, &s, &part, err));
    if (!s.order) part->whole = strata_dataset_retain(whole);
    if (whole->n_files) STRATA_TRY(name_files(whole, s, part, err));
    *out_part = strata_released(&part);
    return STRATA_OK;
}

/* Reads the labels if they are one class for each element. Otherwise *out is NULL. */
static strata_status read_classes(const strata_dataset *dataset, int32_t **out, strata_error *err) {
    enum { MOST_CLASSES = 1 << 20 };
    if (!strata_dataset_has_labels(dataset) || dataset->labels.dtype == STRATA_DTYPE_F32 || dataset->label_size != 1)
        return STRATA_OK;
    if (dataset->n_classes > MOST_CLASSES) return STRATA_OK;
    STRATA_TRY(STRATA_NEW(*out, dataset->n, err, "split: no host memory for %lld labels", (long long)dataset->n));
    for (int64_t i = 0; i < dataset->n; i++)
        (*out)[i] = (int32_t)strata_element_get(dataset->labels.dtype, dataset->labels.data, i);
    return STRATA_OK;
}

strata_status strata_dataset_split(strata_dataset *dataset, double fraction, const strata_split_options *opts,
                                   strata_dataset **out_first, strata_dataset **out_last, strata_error *err) {
    if (dataset->stage != &strata_stage_table)
        return strata_fail(
            err, STRATA_INVALID,
            "split: the dataset is %s; it must be arrays, without a stage over them (take and skip give parts of "
            "a pipeline)",
            dataset->stage->name);
    if (!(fraction > 0 && fraction < 1))
        return strata_fail(err, STRATA_INVALID, "split: the fraction is %g; it must be between 0 and 1", fraction);
    STRATA_FREED int32_t *classes = NULL;
    STRATA_FREED int64_t *order = NULL;
    STRATA_OWNED(strata_dataset) *part = NULL;
    int64_t first = (int64_t)floor((double)dataset->n * (1 - fraction));
    if (opts && opts->in_order) {
        STRATA_TRY(check_parts(dataset->n, fraction, first, err));
    } else {
        STRATA_TRY(STRATA_NEW(order, dataset->n, err, "split: no host memory for %lld elements", (long long)dataset->n));
        STRATA_TRY(read_classes(dataset, &classes, err));
        STRATA_TRY(strata_split_order(classes, dataset->n, fraction, opts ? opts->seed : 0, order, &first, err));
    }
    const int64_t begin = order ? 0 : first; /* of the last part, in its order or in the whole */
    STRATA_TRY(make_part(dataset, (selection){order, 0, first}, &part, err));
    STRATA_TRY(make_part(dataset, (selection){order ? order + first : NULL, begin, dataset->n - first}, out_last, err));
    *out_first = strata_released(&part);
    return STRATA_OK;
}
