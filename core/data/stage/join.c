/* SPDX-License-Identifier: Apache-2.0
 *
 * zip and interleave. zip joins the parts of an element of each dataset to one element; interleave returns elements of several
 * datasets in turn. */
#include "core/data/stage/stage.h"

/* ---- zip ---- */

static strata_status zip_next(strata_iterator *it, strata_element *out, bool *out_more, strata_error *err) {
    STRATA_FINISHED(strata_element) all = {0};
    for (int i = 0; i < it->dataset->n_parents; i++) {
        strata_element one;
        STRATA_TRY(strata_iterator_next(it->parents[i], &one, out_more, err));
        if (!*out_more) return STRATA_OK;
        if (i == 0) all.key = one.key;
        for (int k = 0; k < one.n_parts; k++) all.parts[all.n_parts++] = one.parts[k];
    }
    *out = strata_element_released(&all);
    return STRATA_OK;
}

static strata_status zip_advance(strata_iterator *it, int64_t n, strata_error *err) {
    for (int i = 0; i < it->dataset->n_parents; i++) STRATA_TRY(strata_iterator_advance(it->parents[i], n, err));
    return STRATA_OK;
}

static const strata_stage zip_stage = {.name = "zip", .next = zip_next, .advance = zip_advance};

static int64_t shorter(int64_t a, int64_t b) {
    if (a == STRATA_SIZE_INFINITE) return b;
    if (b == STRATA_SIZE_INFINITE) return a;
    if (a < 0 || b < 0) return STRATA_SIZE_UNKNOWN;
    return a < b ? a : b;
}

strata_status strata_dataset_zip(strata_dataset **datasets, int n_datasets, strata_dataset **out_dataset, strata_error *err) {
    if (n_datasets < 1 || n_datasets > STRATA_MAX_PARENTS)
        return strata_fail(err, STRATA_INVALID, "zip: %d datasets; 1 to %d are possible", n_datasets, STRATA_MAX_PARENTS);
    strata_element_spec spec = {.is_batch = datasets[0]->spec.is_batch};
    int64_t n = datasets[0]->n;
    for (int i = 0; i < n_datasets; i++) {
        const strata_element_spec *one = &datasets[i]->spec;
        if (spec.n_parts + one->n_parts > STRATA_MAX_PARTS)
            return strata_fail(err, STRATA_INVALID, "zip: the datasets have more than %d parts in all", STRATA_MAX_PARTS);
        if (one->is_batch != spec.is_batch)
            return strata_fail(err, STRATA_INVALID, "zip: dataset %d is batched and another is not", i);
        for (int k = 0; k < one->n_parts; k++, spec.n_parts++) {
            spec.parts[spec.n_parts] = one->parts[k];
            /* A column with a name (strata_dataset_from_columns) keeps its role at any place; a part without one gets the
             * role of its new place. */
            spec.roles[spec.n_parts] = one->names[k][0] ? strata_spec_role(one, k) : one->roles[k];
            memcpy(spec.names[spec.n_parts], one->names[k], sizeof one->names[k]);
        }
        n = shorter(n, datasets[i]->n);
    }
    STRATA_TRY(strata_stage_create(&zip_stage, datasets, n_datasets, NULL, 0, &spec, out_dataset, err));
    (*out_dataset)->n = n;
    for (int i = 1; i < n_datasets; i++)
        if (datasets[i]->n_classes > (*out_dataset)->n_classes) (*out_dataset)->n_classes = datasets[i]->n_classes;
    memset(datasets, 0, (size_t)n_datasets * sizeof *datasets);
    return STRATA_OK;
}

/* ---- interleave ---- */

typedef struct interleave {
    strata_interleave_function function;
    void *user;
    int cycle_length;
    int64_t block_length;
} interleave;

typedef struct interleaving {
    struct {
        strata_dataset *dataset;
        strata_iterator *iterator;
    } * cycle; /* [cycle_length]; iterator NULL: no dataset is open here */
    int current, n_open;
    int64_t in_block; /* how many elements of the current block were returned */
    bool ended;       /* the parent has no more elements, so no further dataset is opened */
} interleaving;

static strata_status interleave_open(strata_iterator *it, strata_error *err) {
    const interleave *options = it->dataset->state;
    interleaving *s = it->state;
    STRATA_TRY(
        STRATA_NEW(s->cycle, options->cycle_length, err, "interleave: no host memory for %d datasets", options->cycle_length));
    return strata_iterator_open_parents(it, it->epoch, err);
}

static void close_current(interleaving *s, int index) {
    strata_iterator_destroy(s->cycle[index].iterator);
    strata_dataset_destroy(s->cycle[index].dataset);
    s->cycle[index].iterator = NULL;
    s->cycle[index].dataset = NULL;
}

static void interleave_close(strata_iterator *it) {
    const interleave *options = it->dataset->state;
    interleaving *s = it->state;
    for (int i = 0; s->cycle && i < options->cycle_length; i++) close_current(s, i);
    free(s->cycle);
}

static void move_on(const interleave *options, interleaving *s) {
    s->in_block = 0;
    s->current = (s->current + 1) % options->cycle_length;
}

/* Opens the dataset of the parent's next element at the current position of the cycle. */
static strata_status open_current(strata_iterator *it, strata_error *err) {
    const interleave *options = it->dataset->state;
    interleaving *s = it->state;
    STRATA_FINISHED(strata_element) element = {0};
    bool more;
    STRATA_TRY(strata_iterator_next(it->parents[0], &element, &more, err));
    s->ended = !more;
    if (!more) return STRATA_OK;
    const strata_status status = options->function(&element, options->user, &s->cycle[s->current].dataset, err);
    if (status) return strata_element_fail_in(err, status, "interleave", &element.key);
    s->n_open++;
    return strata_iterator_create(s->cycle[s->current].dataset, it->seed, it->epoch, 0, &s->cycle[s->current].iterator, err);
}

static strata_status interleave_next(strata_iterator *it, strata_element *out, bool *out_more, strata_error *err) {
    const interleave *options = it->dataset->state;
    interleaving *s = it->state;
    while (!s->ended || s->n_open) {
        strata_iterator *current = s->cycle[s->current].iterator;
        if (!current) {
            if (s->ended)
                move_on(options, s);
            else
                STRATA_TRY(open_current(it, err));
            continue;
        }
        STRATA_TRY(strata_iterator_next(current, out, out_more, err));
        if (*out_more) {
            if (++s->in_block == options->block_length) move_on(options, s);
            strata_status status = strata_element_check(out, &it->dataset->spec, "interleave", err);
            out->key = (strata_key){it->seed, it->epoch, it->position};
            if (status) strata_element_finish(out);
            return status;
        }
        close_current(s, s->current);
        s->n_open--;
        move_on(options, s);
    }
    return STRATA_OK;
}

static const strata_stage interleave_stage = {.name = "interleave",
                                              .state_bytes = sizeof(interleaving),
                                              .open = interleave_open,
                                              .next = interleave_next,
                                              .close = interleave_close};

strata_status strata_dataset_interleave(strata_dataset **dataset, strata_interleave_function function, void *user,
                                        const strata_interleave_options *opts, strata_error *err) {
    enum { LONGEST_CYCLE = 1 << 16 };
    if (!function || !opts)
        return strata_fail(err, STRATA_INVALID, "interleave: needs a function and options with the spec of the elements");
    interleave s = {function, user, opts->cycle_length ? opts->cycle_length : 1, opts->block_length ? opts->block_length : 1};
    if (s.cycle_length < 1 || s.cycle_length > LONGEST_CYCLE || s.block_length < 1)
        return strata_fail(err, STRATA_INVALID,
                           "interleave: cycle_length %d and block_length %lld; they must be 1..%d and at least 1",
                           s.cycle_length, (long long)s.block_length, LONGEST_CYCLE);
    STRATA_TRY(strata_stage_put(&interleave_stage, dataset, &s, sizeof s, &opts->spec, err));
    (*dataset)->n = STRATA_SIZE_UNKNOWN;
    return STRATA_OK;
}
