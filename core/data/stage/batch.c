/* SPDX-License-Identifier: Apache-2.0
 *
 * batch and padded_batch: several elements become one, with a new first axis. */
#include "core/data/stage/stage.h"

typedef struct batching {
    int64_t n;
    bool drop_remainder, padded;
    strata_shape shapes[STRATA_MAX_PARTS]; /* for padded; a dimension of -1 becomes that of the longest element */
    double pad[STRATA_MAX_PARTS];
} batching;

/* ---- one part of all elements ---- */

/* Finds the shape that part `part` of each element has in the batch. Fails: DATA for an element that does not fit. */
static strata_status common_shape(const batching *b, const strata_element *elements, int64_t n, int part, strata_shape *out,
                                  strata_error *err) {
    const strata_shape first = elements[0].parts[part].shape;
    *out = b->padded ? b->shapes[part] : first;
    for (int k = 0; k < out->rank; k++)
        if (out->dims[k] < 0) out->dims[k] = 0;
    for (int64_t i = 0; i < n; i++) {
        const strata_array *array = &elements[i].parts[part];
        bool same = array->dtype == elements[0].parts[part].dtype && array->shape.rank == out->rank;
        for (int k = 0; same && k < out->rank; k++) {
            int64_t dim = array->shape.dims[k];
            if (b->padded && b->shapes[part].dims[k] < 0 && dim > out->dims[k]) out->dims[k] = dim;
            same = b->padded ? dim <= out->dims[k] : dim == out->dims[k];
        }
        if (!same)
            return strata_fail(err, STRATA_DATA, "%s: part %d of element %lld is %s %s, %s %s; %s",
                               b->padded ? "padded_batch" : "batch", part, (long long)elements[i].key.index,
                               strata_dtype_name(array->dtype), strata_shape_text(array->shape).text,
                               b->padded ? "the batch's" : "the first of the batch",
                               strata_shape_text(b->padded ? b->shapes[part] : first).text,
                               b->padded ? "it must fit" : "use padded_batch for elements of different shapes");
    }
    return STRATA_OK;
}

/* Copies an array to the beginning of each axis of a larger array of shape `room`, one row of the last axis at a time. */
static void copy_to_corner(const strata_array *from, strata_shape room, char *out) {
    size_t bytes = strata_dtype_bytes(from->dtype);
    if (strata_shape_equal(from->shape, room)) {
        memcpy(out, from->data, strata_array_bytes(from));
        return;
    }
    int rank = from->shape.rank;
    int64_t row = from->shape.dims[rank - 1], n_rows = strata_array_bytes(from) ? strata_shape_elements(from->shape) / row : 0;
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t at = 0, stride = room.dims[rank - 1], left = r;
        for (int k = rank - 2; k >= 0; k--) {
            at += left % from->shape.dims[k] * stride;
            left /= from->shape.dims[k];
            stride *= room.dims[k];
        }
        memcpy(out + (size_t)at * bytes, (const char *)from->data + (size_t)(r * row) * bytes, (size_t)row * bytes);
    }
}

static strata_status stack(const batching *b, const strata_element *elements, int64_t n, int part, strata_array *out,
                           strata_error *err) {
    strata_shape each;
    STRATA_TRY(common_shape(b, elements, n, part, &each, err));
    if (each.rank == STRATA_MAX_RANK)
        return strata_fail(err, STRATA_UNSUPPORTED, "batch: elements of %d axes; at most %d can be batched", each.rank,
                           STRATA_MAX_RANK - 1);
    const strata_shape all = strata_shape_outer(n, each);
    STRATA_TRY(strata_array_create(elements[0].parts[part].dtype, all, out, err));
    size_t step = strata_array_bytes(out) / (size_t)n;
    if (b->padded && b->pad[part] != 0)
        for (int64_t i = 0, size = strata_shape_elements(all); i < size; i++)
            strata_element_set(out->dtype, out->data, i, b->pad[part]);
    for (int64_t i = 0; i < n; i++) copy_to_corner(&elements[i].parts[part], each, (char *)out->data + (size_t)i * step);
    return STRATA_OK;
}

/* ---- the stage ---- */

static strata_status batch_next(strata_iterator *it, strata_element *out, bool *out_more, strata_error *err) {
    const batching *b = it->dataset->state;
    strata_status status = STRATA_OK;
    int64_t n = 0;
    STRATA_FREED strata_element *elements = NULL;
    STRATA_TRY(STRATA_NEW(elements, b->n, err, "batch: no host memory for %lld elements", (long long)b->n));
    for (bool more = true; more && n < b->n && !status; n += more && !status)
        status = strata_iterator_next(it->parents[0], &elements[n], &more, err);
    *out_more = !status && n && (n == b->n || !b->drop_remainder);
    if (*out_more) {
        *out = (strata_element){.key = {it->seed, it->epoch, it->position}, .n_parts = elements[0].n_parts};
        for (int i = 0; i < out->n_parts && !status; i++) status = stack(b, elements, n, i, &out->parts[i], err);
    }
    for (int64_t i = 0; i < n; i++) strata_element_finish(&elements[i]);
    if (status) strata_element_finish(out), *out_more = false;
    return status;
}

static strata_status batch_advance(strata_iterator *it, int64_t n, strata_error *err) {
    int64_t elements;
    if (__builtin_mul_overflow(n, ((const batching *)it->dataset->state)->n, &elements)) elements = INT64_MAX;
    return strata_iterator_advance(it->parents[0], elements, err);
}

static const strata_stage batch_stage = {.name = "batch", .next = batch_next, .advance = batch_advance};
static const strata_stage padded_stage = {.name = "padded_batch", .next = batch_next, .advance = batch_advance};

static strata_status put(const strata_stage *stage, strata_dataset **dataset, batching b, strata_error *err) {
    strata_element_spec spec = (*dataset)->spec;
    int64_t before = (*dataset)->n;
    const int64_t most = INT64_C(1) << 31;
    if (b.n < 1 || b.n > most)
        return strata_fail(err, STRATA_INVALID, "%s: n is %lld; it must be 1..2^31", stage->name, (long long)b.n);
    for (int i = 0; i < spec.n_parts; i++) {
        strata_shape shape = b.padded ? b.shapes[i] : spec.parts[i].shape;
        if (shape.rank == STRATA_MAX_RANK || (b.padded && shape.rank != spec.parts[i].shape.rank))
            return strata_fail(err, STRATA_INVALID,
                               "%s: part %d is %s and its padded shape %s; they need as many axes, at most %d", stage->name, i,
                               strata_shape_text(spec.parts[i].shape).text, strata_shape_text(shape).text, STRATA_MAX_RANK - 1);
        spec.parts[i].shape = strata_shape_outer(b.drop_remainder ? b.n : -1, shape);
    }
    spec.is_batch = true;
    STRATA_TRY(strata_stage_put(stage, dataset, &b, sizeof b, &spec, err));
    if (before >= 0) (*dataset)->n = b.drop_remainder ? before / b.n : (before + b.n - 1) / b.n;
    return STRATA_OK;
}

strata_status strata_dataset_batch(strata_dataset **dataset, int64_t n, bool drop_remainder, strata_error *err) {
    return put(&batch_stage, dataset, (batching){.n = n, .drop_remainder = drop_remainder}, err);
}

strata_status strata_dataset_padded_batch(strata_dataset **dataset, int64_t n, bool drop_remainder, const strata_shape *shapes,
                                          const double *pad, strata_error *err) {
    batching b = {.n = n, .drop_remainder = drop_remainder, .padded = true};
    for (int i = 0; i < (*dataset)->spec.n_parts; i++) {
        b.shapes[i] = shapes ? shapes[i] : (*dataset)->spec.parts[i].shape;
        b.pad[i] = pad ? pad[i] : 0;
    }
    return put(&padded_stage, dataset, b, err);
}
