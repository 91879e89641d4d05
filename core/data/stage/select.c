/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages that choose among the elements of their parent, or repeat them, and do not change them: take, skip, shard, filter,
 * repeat. */

#include "core/data/stage/stage.h"

/* The stage has the parent's elements first, first + step, ..., at most `end` of them. */
typedef struct selection {
    int64_t first, step, end;
    bool required; /* an iteration without any element is an error */
} selection;

/* ---- take, skip and shard ---- */

static const selection *selection_of(const strata_dataset *dataset) {
    return dataset->state;
}

static strata_status select_open(strata_iterator *it, strata_error *err) {
    STRATA_TRY(strata_iterator_open_parents(it, it->epoch, err));
    return strata_iterator_advance(it->parents[0], selection_of(it->dataset)->first, err);
}

static strata_status select_next(strata_iterator *it, strata_element *out, bool *out_more, strata_error *err) {
    const selection *s = selection_of(it->dataset);
    if (it->position >= s->end) return STRATA_OK;
    if (it->position) STRATA_TRY(strata_iterator_advance(it->parents[0], s->step - 1, err));
    STRATA_TRY(strata_iterator_next(it->parents[0], out, out_more, err));
    if (*out_more || it->position || !s->required) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "shard_hint: part %lld of %lld has no element; there must be one for each worker",
                       (long long)s->first, (long long)s->step);
}

/* step - 1 elements are skipped before each element except the first. */
static strata_status select_advance(strata_iterator *it, int64_t n, strata_error *err) {
    const selection *s = selection_of(it->dataset);
    int64_t left = s->end - it->position, steps;
    if (n > left) n = left;
    if (n <= 0) return STRATA_OK;
    if (__builtin_mul_overflow(n, s->step, &steps)) steps = INT64_MAX;
    return strata_iterator_advance(it->parents[0], it->position ? steps : steps - (s->step - 1), err);
}

static strata_status select_at(const strata_dataset *dataset, uint64_t seed, uint64_t epoch, int64_t index, strata_element *out,
                               strata_error *err) {
    const selection *s = selection_of(dataset);
    return strata_dataset_at(dataset->parents[0], seed, epoch, s->first + index * s->step, out, err);
}

#define SELECTION(stage_name) \
    { .name = stage_name, .open = select_open, .next = select_next, .advance = select_advance, .at = select_at }
static const strata_stage take_stage = SELECTION("take"), skip_stage = SELECTION("skip"), shard_stage = SELECTION("shard");

static strata_status put_selection(const strata_stage *stage, strata_dataset **dataset, selection s, strata_error *err) {
    int64_t before = (*dataset)->n;
    STRATA_TRY(strata_stage_put(stage, dataset, &s, sizeof s, NULL, err));
    if (before >= 0) {
        int64_t left = before > s.first ? (before - s.first - 1) / s.step + 1 : 0;
        (*dataset)->n = left < s.end ? left : s.end;
    } else if (before == STRATA_SIZE_INFINITE && s.end < INT64_MAX) {
        (*dataset)->n = s.end;
    }
    return STRATA_OK;
}

strata_status strata_dataset_take(strata_dataset **dataset, int64_t n, strata_error *err) {
    if (n < 0) return strata_fail(err, STRATA_INVALID, "take: n is %lld; it must be at least 0", (long long)n);
    return put_selection(&take_stage, dataset, (selection){.step = 1, .end = n}, err);
}

strata_status strata_dataset_skip(strata_dataset **dataset, int64_t n, strata_error *err) {
    if (n < 0) return strata_fail(err, STRATA_INVALID, "skip: n is %lld; it must be at least 0", (long long)n);
    return put_selection(&skip_stage, dataset, (selection){.first = n, .step = 1, .end = INT64_MAX}, err);
}

strata_status strata_dataset_shard(strata_dataset **dataset, int64_t n, int64_t index, strata_error *err) {
    if (n < 1 || index < 0 || index >= n)
        return strata_fail(err, STRATA_INVALID, "shard: %lld of %lld; the index must be 0 to n - 1", (long long)index,
                           (long long)n);
    return put_selection(&shard_stage, dataset, (selection){.first = index, .step = n, .end = INT64_MAX}, err);
}

strata_status strata_dataset_shard_required(strata_dataset **dataset, int64_t n, int64_t index, strata_error *err) {
    return put_selection(&shard_stage, dataset, (selection){.first = index, .step = n, .end = INT64_MAX, .required = true},
                         err);
}

static strata_status hint_open(strata_iterator *it, strata_error *err) {
    (void)it;
    return strata_fail(err, STRATA_INVALID,
                       "shard_hint: it is not known which worker's part to read; iterate over the dataset that "
                       "strata_dataset_auto_shard returns with STRATA_SHARD_HINT, or set auto_shard in the options of fit");
}

const strata_stage strata_stage_shard_hint = {.name = "shard_hint", .open = hint_open};

strata_status strata_dataset_shard_hint(strata_dataset **dataset, strata_error *err) {
    STRATA_TRY(strata_stage_put(&strata_stage_shard_hint, dataset, NULL, 0, NULL, err));
    (*dataset)->n = STRATA_SIZE_UNKNOWN;
    return STRATA_OK;
}

/* ---- filter ---- */

typedef struct filter {
    strata_filter_function function;
    void *user;
} filter;

static strata_status filter_next(strata_iterator *it, strata_element *out, bool *out_more, strata_error *err) {
    const filter *f = it->dataset->state;
    for (bool keep = false;;) {
        STRATA_TRY(strata_iterator_next(it->parents[0], out, out_more, err));
        if (!*out_more) return STRATA_OK;
        strata_status status = f->function(out, f->user, &keep, err);
        if (status) status = strata_element_fail_in(err, status, "filter", &out->key);
        if (!status && keep) return STRATA_OK;
        strata_element_finish(out);
        if (status) return status;
    }
}

static const strata_stage filter_stage = {.name = "filter", .next = filter_next};

strata_status strata_dataset_filter(strata_dataset **dataset, strata_filter_function function, void *user, strata_error *err) {
    if (!function) return strata_fail(err, STRATA_INVALID, "filter: needs a function");
    STRATA_TRY(strata_stage_put(&filter_stage, dataset, &(filter){function, user}, sizeof(filter), NULL, err));
    (*dataset)->n = STRATA_SIZE_UNKNOWN;
    return STRATA_OK;
}

/* ---- repeat: pass r of epoch e is the parent's epoch e * count + r, so that each pass is shuffled differently ---- */

typedef struct repetition {
    int64_t pass;
    bool gave; /* this pass has returned an element */
} repetition;

static uint64_t passes_of(const strata_dataset *dataset) {
    int64_t count = *(const int64_t *)dataset->state;
    return count ? (uint64_t)count : UINT64_C(1) << 32;
}

static strata_status repeat_begin(strata_iterator *it, int64_t pass, strata_error *err) {
    *(repetition *)it->state = (repetition){.pass = pass};
    return strata_iterator_open_parents(it, it->epoch * passes_of(it->dataset) + (uint64_t)pass, err);
}

static strata_status repeat_open(strata_iterator *it, strata_error *err) {
    return repeat_begin(it, 0, err);
}

static strata_status repeat_next(strata_iterator *it, strata_element *out, bool *out_more, strata_error *err) {
    repetition *r = it->state;
    for (;;) {
        STRATA_TRY(strata_iterator_next(it->parents[0], out, out_more, err));
        bool last = (uint64_t)r->pass + 1 >= passes_of(it->dataset);
        if (*out_more) r->gave = true;
        bool empty = !r->gave && *(const int64_t *)it->dataset->state == 0; /* an empty pass ends an endless repeat */
        if (*out_more || last || empty) return STRATA_OK;
        STRATA_TRY(repeat_begin(it, r->pass + 1, err));
    }
}

static strata_status repeat_advance(strata_iterator *it, int64_t n, strata_error *err) {
    int64_t size = it->dataset->parents[0]->n, position = it->position, target;
    if (__builtin_add_overflow(position, n, &target)) target = INT64_MAX;
    /* After the last element of a pass, `pass` is still the number of that pass, while position / size is the next one. */
    if (size > 0 && target / size != ((repetition *)it->state)->pass) {
        int64_t pass = target / size, last = (int64_t)passes_of(it->dataset) - 1;
        if (pass > last) pass = last;
        STRATA_TRY(repeat_begin(it, pass, err));
        position = pass * size;
        ((repetition *)it->state)->gave = target > position;
    }
    if (size > 0) return strata_iterator_advance(it->parents[0], target - position, err);
    return strata_iterator_discard(it, repeat_next, target - position, err);
}

static const strata_stage repeat_stage = {
    .name = "repeat", .state_bytes = sizeof(repetition), .open = repeat_open, .next = repeat_next, .advance = repeat_advance};

strata_status strata_dataset_repeat(strata_dataset **dataset, int64_t count, strata_error *err) {
    if (count < 0)
        return strata_fail(err, STRATA_INVALID, "repeat: count is %lld; it must be at least 1, or 0 for ever",
                           (long long)count);
    int64_t before = (*dataset)->n, n = before;
    if (count == 0) n = STRATA_SIZE_INFINITE;
    if (before == 0) n = 0;
    if (count > 0 && before > 0 && __builtin_mul_overflow(before, count, &n)) n = STRATA_SIZE_INFINITE;
    STRATA_TRY(strata_stage_put(&repeat_stage, dataset, &count, sizeof count, NULL, err));
    (*dataset)->n = n;
    return STRATA_OK;
}
