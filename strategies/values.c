/* SPDX-License-Identifier: Apache-2.0
 *
 * Per-replica values (each replica has its own): creating, reducing and gathering them. All of this is on the host. */
#include "core/op/element.h"
#include "core/run/fold.h"
#include "strategies/context.h"

strata_status strata_per_replica_create(int n, strata_per_replica *out_values, strata_error *err) {
    if (n < 1) return strata_fail(err, STRATA_INVALID, "values of %d replicas; there must be one", n);
    strata_array *arrays = calloc((size_t)n, sizeof *arrays);
    if (!arrays) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for the values of %d replicas", n);
    *out_values = (strata_per_replica){.n = n, .arrays = arrays};
    return STRATA_OK;
}

void strata_per_replica_finish(strata_per_replica *values) {
    if (!values) return;
    for (int r = 0; r < values->n; r++) strata_array_finish(&values->arrays[r]);
    free(values->arrays);
    *values = (strata_per_replica){0};
}

strata_status strata_strategy_distribute_values(strata_strategy *strategy, strata_value_function function, void *user,
                                                strata_per_replica *out_values, strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_strategy_distribute_values", "make values before the run", err));
    STRATA_TRY(strata_per_replica_create(strata_strategy_n_functions(strategy), out_values, err));
    for (int r = 0; r < out_values->n; r++) {
        const strata_value_context context = {strata_strategy_first_function(strategy) + r,
                                              strata_strategy_n_functions_in_sync(strategy)};
        strata_status status = function(&context, user, &out_values->arrays[r], err);
        if (!status) continue;
        strata_per_replica_finish(out_values);
        return strata_fail_in(err, status, "value of replica %d", r);
    }
    return STRATA_OK;
}

/* ---- of all workers ---- */

/* What a worker sends before each value, whose elements follow. The next one begins at a multiple of its size. */
typedef struct description {
    int64_t dtype, rank, dims[STRATA_MAX_RANK];
} description;

static size_t sent_bytes(const strata_array *value) {
    return (1 + (strata_array_bytes(value) + sizeof(description) - 1) / sizeof(description)) * sizeof(description);
}

static strata_array read_value(char *at) {
    description d;
    strata_shape shape = {0};
    memcpy(&d, at, sizeof d);
    shape.rank = (int)d.rank;
    memcpy(shape.dims, d.dims, sizeof shape.dims);
    return strata_array_view((strata_dtype)d.dtype, shape, at + sizeof d);
}

/* Sends this worker's values to the others. Returns those of all workers, of *out_bytes bytes. */
static strata_status exchange(const strata_workers *workers, const strata_per_replica *values, strata_memory *memory,
                              char **out_all, size_t *out_bytes, strata_error *err) {
    uint64_t own = 0, *each = strata_memory_take(memory, workers->n, sizeof *each);
    size_t *bytes = strata_memory_take(memory, workers->n, sizeof *bytes);
    for (int r = 0; r < values->n; r++) own += sent_bytes(&values->arrays[r]);
    char *mine = strata_memory_take(memory, (int64_t)own, 1), *at = mine;
    if (memory->failed) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %d values", values->n);
    for (int r = 0; r < values->n; at += sent_bytes(&values->arrays[r++])) {
        const strata_array *value = &values->arrays[r];
        description d = {.dtype = value->dtype, .rank = value->shape.rank};
        memcpy(d.dims, value->shape.dims, sizeof d.dims);
        memcpy(at, &d, sizeof d);
        if (strata_array_bytes(value)) memcpy(at + sizeof d, value->data, strata_array_bytes(value));
    }
    STRATA_TRY(strata_workers_gather(workers, &own, each, sizeof own, err));
    *out_bytes = 0;
    for (int w = 0; w < workers->n; w++) *out_bytes += bytes[w] = (size_t)each[w];
    *out_all = strata_memory_take(memory, (int64_t)*out_bytes, 1);
    if (!*out_all) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %zu bytes of all workers", *out_bytes);
    return workers->all_gather(workers, mine, *out_all, bytes, err);
}

strata_status strata_per_replica_collect(const strata_strategy *strategy, const strata_per_replica *values,
                                         strata_memory *memory, strata_per_replica *out, strata_error *err) {
    const bool has_workers = strata_strategy_has_workers(strategy) && !strata_strategy_has_mesh(strategy);
    char *all = NULL;
    size_t bytes = 0;
    int n = has_workers ? 0 : values->n;
    if (has_workers) STRATA_TRY(exchange(&strategy->workers, values, memory, &all, &bytes, err));
    for (size_t at = 0; at < bytes; n++) {
        const strata_array value = read_value(all + at);
        at += sent_bytes(&value);
    }
    *out = (strata_per_replica){.n = n, .arrays = strata_memory_take(memory, n, sizeof *out->arrays)};
    if (!out->arrays) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %d values", n);
    for (int r = 0; r < n; r++) {
        const strata_array *own = &values->arrays[r];
        out->arrays[r] = has_workers ? read_value(all) : strata_array_view(own->dtype, own->shape, own->data);
        if (has_workers) all += sent_bytes(&out->arrays[r]);
    }
    return STRATA_OK;
}

/* ---- reduce and gather ---- */

/* Converts an axis, which may count from the end, to one that counts from 0, for an array of this rank. */
static strata_status normal_axis(const char *call, int axis, int rank, int *out_axis, strata_error *err) {
    *out_axis = axis < 0 ? axis + rank : axis;
    if (*out_axis >= 0 && *out_axis < rank) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s: axis is %d; the values have %d axes", call, axis, rank);
}

/* Checks that all values have one dtype and, except in `axis` (-1: none), one shape. */
static strata_status check_alike(const char *call, const strata_per_replica *values, int axis, strata_error *err) {
    const strata_array *first = &values->arrays[0];
    for (int r = 1; r < values->n; r++) {
        strata_shape other = values->arrays[r].shape;
        const bool same_rank = other.rank == first->shape.rank;
        if (same_rank && axis >= 0) other.dims[axis] = first->shape.dims[axis];
        if (same_rank && strata_shape_equal(other, first->shape) && values->arrays[r].dtype == first->dtype) continue;
        return strata_fail(err, STRATA_INVALID, "%s: replica 0's value is %s %s, replica %d's %s %s; they must be equal%s",
                           call, strata_dtype_name(first->dtype), strata_shape_text(first->shape).text, r,
                           strata_dtype_name(values->arrays[r].dtype), strata_shape_text(values->arrays[r].shape).text,
                           axis >= 0 ? " in all other axes" : "");
    }
    return STRATA_OK;
}

static strata_status reduce_elements(const strata_per_replica *values, strata_reduction reduction, strata_array *out,
                                     strata_error *err) {
    const strata_array *first = &values->arrays[0];
    STRATA_FREED const void **operands = calloc((size_t)values->n, sizeof(*operands));
    if (!operands) return strata_fail(err, STRATA_OUT_OF_MEMORY, "reduce: no host memory for %d values", values->n);
    for (int r = 0; r < values->n; r++) operands[r] = values->arrays[r].data;
    STRATA_TRY(strata_array_create(first->dtype, first->shape, out, err));
    strata_fold(first->dtype, reduction, operands, values->n, strata_shape_elements(first->shape), &out->data, 1);
    return STRATA_OK;
}

/* Reduces over the axis and the replicas: f32 in double, integers as strata_fold does. */
static strata_status reduce_axis(const strata_per_replica *values, strata_reduction reduction, int axis, strata_array *out,
                                 strata_error *err) {
    const strata_shape shape = values->arrays[0].shape;
    const strata_dtype dtype = values->arrays[0].dtype;
    const bool f32 = dtype == STRATA_DTYPE_F32;
    strata_shape rest = {.rank = shape.rank - 1};
    int64_t outer = 1, inner = 1, count = 0;
    for (int i = 0, k = 0; i < shape.rank; i++) {
        if (i == axis) continue;
        rest.dims[k++] = shape.dims[i];
        *(i < axis ? &outer : &inner) *= shape.dims[i];
    }
    for (int r = 0; r < values->n; r++) count += values->arrays[r].shape.dims[axis];
    STRATA_TRY(strata_array_create(dtype, rest, out, err));
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0;
            uint64_t whole = 0; /* wraps */
            for (int r = 0; r < values->n; r++) {
                const void *data = values->arrays[r].data;
                const int64_t n = values->arrays[r].shape.dims[axis];
                for (int64_t k = 0, at = o * n * inner + i; k < n; k++, at += inner)
                    if (f32)
                        sum += (double)((const float *)data)[at];
                    else
                        whole += (uint64_t)strata_integer_get(dtype, data, at);
            }
            if (reduction == STRATA_REDUCE_MEAN) sum = count ? sum / (double)count : 0;
            if (f32)
                ((float *)out->data)[o * inner + i] = (float)sum;
            else
                strata_integer_set(dtype, out->data, o * inner + i, (int64_t)whole);
        }
    return STRATA_OK;
}

static strata_status reduce(const strata_per_replica *values, strata_reduction reduction, int axis, strata_array *out,
                            strata_error *err) {
    if (values->n < 1) return strata_fail(err, STRATA_INVALID, "reduce: there are no values");
    const strata_dtype dtype = values->arrays[0].dtype;
    const bool number = dtype == STRATA_DTYPE_F32 || dtype == STRATA_DTYPE_I32 || dtype == STRATA_DTYPE_I64;
    if (!number || (reduction == STRATA_REDUCE_MEAN && dtype != STRATA_DTYPE_F32))
        return strata_fail(err, STRATA_INVALID, "reduce: %s of %s; SUM takes f32, i32 and i64, MEAN f32",
                           reduction == STRATA_REDUCE_MEAN ? "MEAN" : "SUM", strata_dtype_name(dtype));
    if (axis == STRATA_NO_AXIS) {
        STRATA_TRY(check_alike("reduce", values, -1, err));
        return reduce_elements(values, reduction, out, err);
    }
    STRATA_TRY(normal_axis("reduce", axis, values->arrays[0].shape.rank, &axis, err));
    STRATA_TRY(check_alike("reduce", values, axis, err));
    return reduce_axis(values, reduction, axis, out, err);
}

static strata_status gather(const strata_per_replica *values, int axis, strata_array *out, strata_error *err) {
    if (values->n < 1) return strata_fail(err, STRATA_INVALID, "gather: there are no values");
    strata_shape shape = values->arrays[0].shape;
    if (!shape.rank) return strata_fail(err, STRATA_INVALID, "gather: the values are scalars; they need an axis");
    STRATA_TRY(normal_axis("gather", axis, shape.rank, &axis, err));
    STRATA_TRY(check_alike("gather", values, axis, err));
    size_t inner = strata_dtype_bytes(values->arrays[0].dtype), outer = 1;
    for (int i = 0; i < axis; i++) outer *= (size_t)shape.dims[i];
    for (int i = axis + 1; i < shape.rank; i++) inner *= (size_t)shape.dims[i];
    shape.dims[axis] = 0;
    for (int r = 0; r < values->n; r++) shape.dims[axis] += values->arrays[r].shape.dims[axis];
    STRATA_TRY(strata_array_create(values->arrays[0].dtype, shape, out, err));
    char *to = out->data;
    for (size_t o = 0; o < outer; o++)
        for (int r = 0; r < values->n; r++) {
            const size_t bytes = (size_t)values->arrays[r].shape.dims[axis] * inner;
            if (bytes) memcpy(to, (const char *)values->arrays[r].data + o * bytes, bytes);
            to += bytes;
        }
    return STRATA_OK;
}

strata_status strata_strategy_reduce(strata_strategy *strategy, const strata_per_replica *values, strata_reduction reduction,
                                     int axis, strata_array *out, strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_strategy_reduce", "there strata_replica_all_reduce is the one", err));
    STRATA_FINISHED(strata_memory) memory = {0};
    strata_per_replica all = {0};
    STRATA_TRY(strata_per_replica_collect(strategy, values, &memory, &all, err));
    return reduce(&all, reduction, axis, out, err);
}

strata_status strata_strategy_gather(strata_strategy *strategy, const strata_per_replica *values, int axis, strata_array *out,
                                     strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_strategy_gather", "there strata_replica_all_gather is the one", err));
    STRATA_FINISHED(strata_memory) memory = {0};
    strata_per_replica all = {0};
    STRATA_TRY(strata_per_replica_collect(strategy, values, &memory, &all, err));
    return gather(&all, axis, out, err);
}

strata_status strata_strategy_reduce_scalar(strata_strategy *strategy, const strata_per_replica *values,
                                            strata_reduction reduction, double *out_value, strata_error *err) {
    STRATA_FINISHED(strata_array) sum = {0};
    STRATA_TRY(strata_strategy_reduce(strategy, values, reduction, STRATA_NO_AXIS, &sum, err));
    if (strata_shape_elements(sum.shape) != 1)
        return strata_fail(err, STRATA_INVALID, "reduce_scalar: the values are %s; they must have one element",
                           strata_shape_text(sum.shape).text);
    *out_value =
        sum.dtype == STRATA_DTYPE_F32 ? (double)*(const float *)sum.data : (double)strata_integer_get(sum.dtype, sum.data, 0);
    return STRATA_OK;
}
