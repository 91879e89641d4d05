/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions along axes, on the vector unit: sums, means, extremes, argmax, segments. Floats are summed in f32 lanes. The
 * order of a reduction depends only on the shape. */
#include "helpers.h"

/* x as (outer, n, inner): n is the product of the axes axis .. axis + n_axes - 1, which are reduced. */
typedef struct fold_sizes {
    int64_t outer, n, inner;
} fold_sizes;

static bool fold_sizes_of(const step *s, fold_sizes *f) {
    const array *x = s->in[0];
    const int64_t axis = attribute_int(s, "axis", 0), n_axes = attribute_int(s, "n_axes", 0);
    if (axis < 0 || n_axes < 0 || axis > x->rank || n_axes > x->rank - axis) return false;
    f->outer = product_of_dims(x, 0, (int)axis);
    f->n = product_of_dims(x, (int)axis, (int)(axis + n_axes));
    f->inner = product_of_dims(x, (int)(axis + n_axes), x->rank);
    return true;
}

static const char *reduce_refuse(const step *s) {
    fold_sizes f;
    if (!fold_sizes_of(s, &f)) return "its axes do not lie in its operand";
    if (s->in[0]->dtype != s->out->dtype || s->out->n != f.outer * f.inner) return "its result does not fit its operand";
    return NULL;
}

static const char *extreme_refuse(const step *s) {
    fold_sizes f;
    const char *why = reduce_refuse(s);
    if (why) return why;
    fold_sizes_of(s, &f);
    return f.n ? NULL : "there is no extreme of no elements";
}

static void operand_cost(const step *s, work *work) {
    work->vector_ops = (double)s->in[0]->n;
}

/* Sums columns. Rows are summed in runs of 64, so that only few numbers are added to an f32. `sums` and `run` have `inner`
 * elements. */
static void sum_columns(const float *x, int64_t n, int64_t inner, float *sums, float *run) {
    enum { RUN = 64 };
    for (int64_t j = 0; j < inner; j++) sums[j] = 0;
    for (int64_t i = 0; i < n;) {
        const int64_t end = i + RUN < n ? i + RUN : n;
        for (int64_t j = 0; j < inner; j++) run[j] = 0;
        for (; i < end; i++)
            for (int64_t j = 0; j < inner; j++) run[j] += x[i * inner + j];
        for (int64_t j = 0; j < inner; j++) sums[j] += run[j];
    }
}

static bool reduce_prepare(step *s, pool *pool) {
    fold_sizes f;
    (void)pool;
    if (fold_sizes_of(s, &f)) s->scratch_bytes = 2 * f.inner * (int64_t)sizeof(float);
    return true;
}

static void sum_wholes(const call *call, const fold_sizes *f) {
    const strata_plugin_dtype dtype = call->step->out->dtype;
    for (int64_t at = 0; at < f->outer * f->inner; at++) {
        const int64_t first = at / f->inner * f->n * f->inner + at % f->inner;
        uint64_t sum = 0;
        for (int64_t i = 0; i < f->n; i++) sum += (uint64_t)whole_get(dtype, call->in[0], first + i * f->inner);
        whole_set(dtype, call->out, at, (int64_t)sum);
    }
}

static void reduce_sum_run(const call *call) {
    const float *x = call->in[0];
    float *y = call->out, *run = call->scratch;
    fold_sizes f;
    if (!fold_sizes_of(call->step, &f)) return;
    if (!dtype_is_float(call->step->out->dtype)) {
        sum_wholes(call, &f);
        return;
    }
    for (int64_t o = 0; o < f.outer; o++) {
        if (f.inner == 1)
            y[o] = (float)sum_of(x + o * f.n, f.n);
        else
            sum_columns(x + o * f.n * f.inner, f.n, f.inner, y + o * f.inner, run);
    }
}

static void reduce_mean_run(const call *call) {
    fold_sizes f;
    float *y = call->out;
    if (!fold_sizes_of(call->step, &f)) return;
    reduce_sum_run(call);
    for (int64_t i = 0; i < call->step->out->n; i++) y[i] = f.n ? y[i] / (float)f.n : NAN;
}

static void extreme_run(const call *call, bool largest) {
    const strata_plugin_dtype dtype = call->step->out->dtype;
    fold_sizes f;
    if (!fold_sizes_of(call->step, &f)) return;
    for (int64_t o = 0; o < f.outer; o++) {
        for (int64_t j = 0; j < f.inner; j++) {
            const int64_t first = o * f.n * f.inner + j;
            if (dtype_is_float(dtype)) {
                const float *x = (const float *)call->in[0] + first;
                float best = x[0];
                for (int64_t i = 1; i < f.n; i++) {
                    const float v = x[i * f.inner];
                    if (v != v || (largest ? v > best : v < best)) best = best != best ? best : v;
                }
                ((float *)call->out)[o * f.inner + j] = best;
            } else {
                int64_t best = whole_get(dtype, call->in[0], first);
                for (int64_t i = 1; i < f.n; i++) {
                    const int64_t v = whole_get(dtype, call->in[0], first + i * f.inner);
                    if (largest ? v > best : v < best) best = v;
                }
                whole_set(dtype, call->out, o * f.inner + j, best);
            }
        }
    }
}

static void reduce_max_run(const call *call) {
    extreme_run(call, true);
}

static void reduce_min_run(const call *call) {
    extreme_run(call, false);
}

/* ---- indices of the largest elements; NaN is larger than all numbers, and of equal elements the first counts ---- */

/* Whether element b is larger than element a. Floats are f32 here. */
static bool is_above(strata_plugin_dtype dtype, const void *x, int64_t b, int64_t a) {
    if (!dtype_is_float(dtype)) return whole_get(dtype, x, b) > whole_get(dtype, x, a);
    const float v = ((const float *)x)[b], most = ((const float *)x)[a];
    return most == most && (v > most || v != v);
}

static const char *argmax_refuse(const step *s) {
    const int axis = axis_of(s, s->in[0], "axis");
    if (axis < 0 || s->in[0]->dims[axis] < 1) return "it has no such axis, or one without elements";
    const bool fits = s->out->dtype == STRATA_PLUGIN_I32 && s->out->n * s->in[0]->dims[axis] == s->in[0]->n;
    return fits ? NULL : "its result does not fit";
}

static void argmax_run(const call *call) {
    const array *x = call->step->in[0];
    const int axis = axis_of(call->step, x, "axis");
    const int64_t n = x->dims[axis], inner = product_of_dims(x, axis + 1, x->rank);
    for (int64_t at = 0; at < call->step->out->n; at++) {
        const int64_t first = at / inner * n * inner + at % inner;
        int64_t best = 0;
        for (int64_t i = 1; i < n; i++)
            if (is_above(x->dtype, call->in[0], first + i * inner, first + best * inner)) best = i;
        ((int32_t *)call->out)[at] = (int32_t)best;
    }
}

/* top_k: the indices of the k largest elements of each row, the largest first. */
static const char *top_k_refuse(const step *s) {
    const int64_t k = attribute_int(s, "k", 0);
    if (s->in[0]->rank < 1 || k < 1 || k > last_dim(s->in[0])) return "its rows have no k elements";
    const bool fits = s->out->dtype == STRATA_PLUGIN_I32 && s->out->n == rows_of(s->in[0]) * k;
    return fits ? NULL : "its result does not fit";
}

static void top_k_cost(const step *s, work *work) {
    work->vector_ops = (double)s->in[0]->n * (double)attribute_int(s, "k", 1);
}

static void top_k_run(const call *call) {
    const array *x = call->step->in[0];
    const int64_t k = attribute_int(call->step, "k", 1), n = last_dim(x), rows = rows_of(x);
    for (int64_t r = 0; r < rows; r++) {
        int32_t *best = (int32_t *)call->out + r * k;
        for (int64_t i = 0, found = 0; i < n; i++) {
            int64_t at = found; /* the position of i among the elements that were found */
            while (at > 0 && is_above(x->dtype, call->in[0], r * n + i, r * n + best[at - 1])) at--;
            if (at == k) continue;
            if (found < k) found++;
            for (int64_t j = found - 1; j > at; j--) best[j] = best[j - 1];
            best[at] = (int32_t)i;
        }
    }
}

/* first_index: y[r] = 1 + the index of the first r in x; 0 if x does not contain r. */
static const char *first_index_refuse(const step *s) {
    return s->out->dtype == STRATA_PLUGIN_I32 && s->out->rank == 1 ? NULL : "its result does not fit";
}

static void first_index_run(const call *call) {
    const array *x = call->step->in[0];
    const int64_t n = call->step->out->n;
    int32_t *y = call->out;
    for (int64_t r = 0; r < n; r++) y[r] = 0;
    for (int64_t i = x->n - 1; i >= 0; i--) {
        const int64_t r = whole_get(x->dtype, call->in[0], i);
        if (r >= 0 && r < n) y[r] = (int32_t)(i + 1);
    }
}

/* ---- segment_sum: sums of consecutive elements; segment s ends at ends[s] ---- */

static const char *segment_sum_refuse(const step *s) {
    return s->in[1]->dtype != STRATA_PLUGIN_I32 || s->out->n != s->in[1]->n || s->out->dtype != STRATA_PLUGIN_F32
               ? "its ends do not fit its result"
               : NULL;
}

static void segment_sum_run(const call *call) {
    const int64_t n = call->step->in[0]->n;
    const int32_t *ends = call->in[1];
    for (int64_t s = 0; s < call->step->out->n; s++) {
        const int64_t first = s && ends[s - 1] > 0 ? ends[s - 1] : 0, end = ends[s] < n ? ends[s] : n;
        ((float *)call->out)[s] = end > first ? (float)sum_of((const float *)call->in[0] + first, end - first) : 0;
    }
}
