/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads batches. Those of arrays are read in an order (strata_order), those of pipelines by an iterator. */
#include "core/data/batches.h"

#include "core/data/dataset.h"
#include "core/data/stage/stage.h"

struct strata_batches {
    strata_batches_options opts;
    const strata_dataset *dataset;
    /* only for arrays */
    strata_order *order; /* NULL: the dataset is a pipeline */
    int64_t first, n;
    /* only for a pipeline */
    strata_dataset *batched; /* the dataset, with a batch stage added if it has none */
    strata_iterator *iterator;
    strata_element element;
};

strata_status strata_batches_create(const strata_dataset *dataset, const strata_batches_options *opts,
                                    strata_batches **out_batches, strata_error *err) {
    STRATA_OWNED(strata_batches) *b = NULL;
    STRATA_TRY(STRATA_NEW(b, 1, err, "batches: no host memory"));
    *b = (strata_batches){.opts = *opts, .dataset = dataset, .first = opts->skip + opts->first * opts->batch};
    if (dataset->stage == &strata_stage_table) {
        STRATA_TRY(strata_order_create(dataset->n, opts->shuffle, opts->seed, opts->epoch, &b->order, err));
    } else {
        b->batched = strata_dataset_retain((strata_dataset *)dataset); /* only its reference count changes */
        if (opts->skip) STRATA_TRY(strata_dataset_skip(&b->batched, opts->skip, err));
        if (!dataset->spec.is_batch) STRATA_TRY(strata_dataset_batch(&b->batched, opts->batch, false, err));
        STRATA_TRY(strata_iterator_create(b->batched, opts->seed, opts->epoch, opts->first, &b->iterator, err));
    }
    *out_batches = strata_released(&b);
    return STRATA_OK;
}

float strata_batches_byte_scale(const strata_batches *batches) {
    const strata_batches *b = batches;
    if (!b->opts.bytes) return 0;
    if (b->order) return b->dataset->features.dtype == STRATA_DTYPE_U8 ? b->dataset->scale : 0;
    return strata_dataset_byte_scale(b->batched);
}

void strata_batches_destroy(strata_batches *batches) {
    if (!batches) return;
    strata_order_destroy(batches->order);
    strata_element_finish(&batches->element);
    strata_iterator_destroy(batches->iterator);
    strata_dataset_destroy(batches->batched);
    free(batches);
}

/* Checks that all elements of an i32 array are in 0 .. below - 1. */
static strata_status check_range(const strata_batches *b, const strata_batch_part *part, const char *what, strata_error *err) {
    const strata_array *array = &b->element.parts[part->part];
    const int32_t *values = array->data;
    if (array->dtype != STRATA_DTYPE_I32 || part->below == 0) return STRATA_OK;
    for (int64_t i = 0, size = strata_shape_elements(array->shape); i < size; i++)
        if (values[i] < 0 || values[i] >= part->below)
            return strata_fail(err, STRATA_DATA, "batch %lld, position %lld: the %s is %d; the model knows 0..%lld",
                               (long long)b->element.key.index, (long long)i, what, values[i], (long long)part->below - 1);
    return STRATA_OK;
}

static strata_status check_input(const strata_batches *b, const strata_batch_part *part, int64_t n, strata_error *err) {
    const strata_array *x = &b->element.parts[part->part];
    if (x->shape.rank < 1 || x->shape.dims[0] != n || !strata_shape_equal(strata_shape_inner(x->shape), part->shape))
        return strata_fail(err, STRATA_DATA, "batch %lld has shape %s; the model takes (n, ...) of %s",
                           (long long)b->element.key.index, strata_shape_text(x->shape).text,
                           strata_shape_text(part->shape).text);
    return check_range(b, part, "token", err);
}

static strata_status check_target(const strata_batches *b, const strata_batch_part *part, int64_t n, strata_error *err) {
    const strata_array *y = &b->element.parts[part->part];
    if (y->shape.rank < 1 || y->shape.dims[0] != n || strata_shape_elements(y->shape) != n * strata_shape_elements(part->shape))
        return strata_fail(err, STRATA_DATA, "batch %lld has %lld examples and labels %s; there must be one label an example",
                           (long long)b->element.key.index, (long long)n, strata_shape_text(y->shape).text);
    return check_range(b, part, "label", err);
}

static strata_status check_element(const strata_batches *b, strata_error *err) {
    const strata_array *x = &b->element.parts[0];
    const int64_t n = x->shape.rank > 0 ? x->shape.dims[0] : 0;
    for (int i = 0; i < b->opts.n_inputs; i++) STRATA_TRY(check_input(b, &b->opts.inputs[i], n, err));
    for (int i = 0; i < b->opts.n_targets; i++) STRATA_TRY(check_target(b, &b->opts.targets[i], n, err));
    if (!strata_dataset_has_weights(b->dataset)) return STRATA_OK;
    const strata_array *weights = &b->element.parts[2];
    if (weights->shape.rank != 1 || weights->shape.dims[0] != n)
        return strata_fail(err, STRATA_DATA, "batch %lld has %lld examples and weights %s; there must be one an example",
                           (long long)b->element.key.index, (long long)n, strata_shape_text(weights->shape).text);
    strata_status status = strata_weights_check(weights->data, n, err);
    return status ? strata_fail_in(err, status, "batch %lld", (long long)b->element.key.index) : STRATA_OK;
}

strata_status strata_batches_next(strata_batches *batches, int64_t *out_n, strata_error *err) {
    strata_batches *b = batches;
    if (b->order) {
        b->first += b->n;
        int64_t left = b->dataset->n - b->first;
        *out_n = b->n = left < b->opts.batch ? left : b->opts.batch;
        return STRATA_OK;
    }
    bool more;
    strata_element_finish(&b->element);
    STRATA_TRY(strata_iterator_next(b->iterator, &b->element, &more, err));
    *out_n = 0;
    if (!more) return STRATA_OK;
    STRATA_TRY(check_element(b, err));
    *out_n = b->element.parts[0].shape.dims[0];
    if (*out_n) return STRATA_OK;
    /* Without this check the callers would take it for the end. */
    return strata_fail(err, STRATA_DATA, "batch %lld has no examples; each batch must have one at least",
                       (long long)b->element.key.index);
}

/* Copies rows [first, first + n) of a batch's part. */
static void copy_rows(const strata_array *part, int64_t first, int64_t n, void *out) {
    const size_t row = strata_array_bytes(part) / (size_t)part->shape.dims[0];
    memcpy(out, (const char *)part->data + (size_t)first * row, (size_t)n * row);
}

static void copy_input(const strata_batches *b, int64_t first, int64_t n, int part, void *out) {
    const strata_array *x = &b->element.parts[part];
    if (part != 0 || strata_dataset_byte_scale(b->batched) == 0 || b->opts.bytes) {
        copy_rows(x, first, n, out);
        return;
    }
    const int64_t row = strata_shape_elements(x->shape) / x->shape.dims[0];
    strata_bytes_to_f32((const uint8_t *)x->data + first * row, strata_dataset_byte_scale(b->batched), n * row, out);
}

void strata_batches_write(const strata_batches *batches, int64_t first, int64_t n, void *const *out_inputs,
                          void *const *out_targets) {
    const strata_batches *b = batches;
    const bool stored = b->order && strata_batches_byte_scale(b) != 0;
    for (int i = 0; i < b->opts.n_inputs; i++) {
        const int part = b->opts.inputs[i].part;
        if (out_inputs[i] && b->order)
            strata_dataset_fetch_part(b->dataset, b->order, b->first + first, n, part, stored && part == 0, out_inputs[i]);
        else if (out_inputs[i])
            copy_input(b, first, n, part, out_inputs[i]);
    }
    for (int i = 0; out_targets && i < b->opts.n_targets; i++) {
        const int part = b->opts.targets[i].part;
        if (out_targets[i] && b->order)
            strata_dataset_fetch_part(b->dataset, b->order, b->first + first, n, part, false, out_targets[i]);
        else if (out_targets[i])
            copy_rows(&b->element.parts[part], first, n, out_targets[i]);
    }
}

void strata_batches_write_weights(const strata_batches *batches, int64_t first, int64_t n, float *out_weights) {
    const strata_batches *b = batches;
    if (b->order)
        strata_dataset_fetch_weights(b->dataset, b->order, b->first + first, n, out_weights);
    else if (strata_dataset_has_weights(b->dataset))
        copy_rows(&b->element.parts[2], first, n, out_weights);
    else
        for (int64_t i = 0; i < n; i++) out_weights[i] = 1;
}

int64_t strata_batches_count(const strata_dataset *dataset, int64_t batch) {
    if (dataset->n < 0) return 0;
    return dataset->spec.is_batch ? dataset->n : (dataset->n + batch - 1) / batch;
}

strata_status strata_batches_check_size(const strata_dataset *dataset, const char *verb, strata_error *err) {
    if (dataset->n == 0) return strata_fail(err, STRATA_DATA, "%s: the data is empty", verb);
    if (dataset->n != STRATA_SIZE_INFINITE) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s: the data repeat without end; strata_dataset_take sets the size of an epoch",
                       verb);
}
