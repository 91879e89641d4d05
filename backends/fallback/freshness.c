/* SPDX-License-Identifier: Apache-2.0
 *
 * The intervals of a buffer whose newest bytes are on only one side. A program that runs repeatedly produces the same
 * intervals, so nothing is allocated after its first runs. */
#include "backends/fallback/fallback.h"

/* Makes room for two more intervals. */
static strata_status reserve(fallback_freshness *f, strata_error *err) {
    if (strata_make_room(&f->intervals, f->n + 1, &f->capacity, sizeof *f->intervals)) return STRATA_OK;
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "fallback: no host memory for %d intervals", f->n);
}

static void insert(fallback_freshness *f, int at, fallback_interval interval) {
    memmove(&f->intervals[at + 1], &f->intervals[at], (size_t)(f->n - at) * sizeof *f->intervals);
    f->intervals[at] = interval;
    f->n++;
}

static void remove_at(fallback_freshness *f, int at) {
    f->n--;
    memmove(&f->intervals[at], &f->intervals[at + 1], (size_t)(f->n - at) * sizeof *f->intervals);
}

/* Removes begin .. end from all intervals; there must be room for one more interval. Returns the index where an interval that
 * starts at `begin` must be inserted. */
static int cut(fallback_freshness *f, int64_t begin, int64_t end) {
    int i = 0;
    while (i < f->n && f->intervals[i].end <= begin) i++;
    while (i < f->n && f->intervals[i].begin < end) {
        const fallback_interval old = f->intervals[i];
        const bool left = old.begin<begin, right = old.end> end;
        if (left && right) insert(f, i, (fallback_interval){old.begin, begin, old.newest});
        if (left) f->intervals[i++].end = begin;
        if (right) {
            f->intervals[i].begin = end;
            break;
        }
        if (!left) remove_at(f, i);
    }
    return i;
}

strata_status strata_fallback_written(fallback_freshness *f, int64_t begin, int64_t end, fallback_side on, strata_error *err) {
    if (begin >= end) return STRATA_OK;
    STRATA_TRY(reserve(f, err));
    const int at = cut(f, begin, end);
    fallback_interval *before = at > 0 ? &f->intervals[at - 1] : NULL, *after = at < f->n ? &f->intervals[at] : NULL;
    if (before && before->end == begin && before->newest == on) {
        before->end = end;
        if (after && after->begin == end && after->newest == on) {
            before->end = after->end;
            remove_at(f, at);
        }
    } else if (after && after->begin == end && after->newest == on) {
        after->begin = begin;
    } else {
        insert(f, at, (fallback_interval){begin, end, on});
    }
    return STRATA_OK;
}

strata_status strata_fallback_needed(fallback_freshness *f, int64_t begin, int64_t end, fallback_side on, fallback_copy *copy,
                                     void *user, strata_error *err) {
    if (begin >= end) return STRATA_OK;
    STRATA_TRY(reserve(f, err));
    for (int i = 0; i < f->n;) {
        const fallback_interval old = f->intervals[i];
        if (old.newest == on || old.end <= begin || old.begin >= end) {
            i++;
            continue;
        }
        const int64_t from = old.begin > begin ? old.begin : begin, to = old.end < end ? old.end : end;
        STRATA_TRY(copy(user, from, to, on, err));
        STRATA_TRY(reserve(f, err));
        i = cut(f, from, to);
    }
    return STRATA_OK;
}
