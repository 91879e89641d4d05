/* SPDX-License-Identifier: Apache-2.0
 *
 * shuffle. If the parent's elements can be computed by index, a random order of all elements is made; that of the first shuffle
 * is the order in which fit shuffles arrays. Otherwise elements are read to a buffer. Each element that is returned is drawn
 * from it at random and replaced by the parent's next element. */
#include "core/data/stage/stage.h"
#include "strata/philox.h"

typedef struct shuffle {
    int64_t buffer; /* the size of the buffer, in elements; 0: the buffer contains all elements */
    bool same_each_epoch;
    int number; /* how many shuffles are below this one */
} shuffle;

typedef struct shuffling {
    strata_order *order; /* NULL: the buffer is used */
    strata_element *buffer;
    int64_t n_buffered, capacity;
    bool ended;      /* the parent has no more elements */
    int64_t n_drawn; /* how many random numbers were drawn */
    strata_philox_block random;
} shuffling;

/* The seed of this shuffle. That of the first shuffle is the iteration's seed. */
static uint64_t seed_of(const strata_iterator *it) {
    const shuffle *s = it->dataset->state;
    return it->seed + (uint64_t)s->number * UINT64_C(0x9E3779B97F4A7C15);
}

static uint64_t epoch_of(const strata_iterator *it) {
    const shuffle *s = it->dataset->state;
    return s->same_each_epoch ? 0 : it->epoch;
}

static bool is_ordered(const strata_dataset *dataset) {
    const shuffle *s = dataset->state;
    return strata_dataset_has_at(dataset->parents[0]) && (!s->buffer || s->buffer >= dataset->n) && dataset->n <= UINT32_MAX;
}

static strata_status shuffle_open(strata_iterator *it, strata_error *err) {
    if (!is_ordered(it->dataset)) return strata_iterator_open_parents(it, it->epoch, err);
    return strata_order_create(it->dataset->n, true, seed_of(it), epoch_of(it), &((shuffling *)it->state)->order, err);
}

static void shuffle_close(strata_iterator *it) {
    shuffling *s = it->state;
    for (int64_t i = 0; i < s->n_buffered; i++) strata_element_finish(&s->buffer[i]);
    free(s->buffer);
    strata_order_destroy(s->order);
}

/* ---- the buffer ---- */

static strata_status fill(strata_iterator *it, strata_error *err) {
    const shuffle *options = it->dataset->state;
    shuffling *s = it->state;
    while (!s->ended && (!options->buffer || s->n_buffered < options->buffer)) {
        bool more;
        if (!strata_make_room(&s->buffer, s->n_buffered, &s->capacity, sizeof *s->buffer))
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "shuffle: no host memory for more than %lld elements",
                               (long long)s->n_buffered);
        STRATA_TRY(strata_iterator_next(it->parents[0], &s->buffer[s->n_buffered], &more, err));
        s->n_buffered += more;
        s->ended = !more;
    }
    return STRATA_OK;
}

/* Draws the next number of the stream of (seed, epoch), in 0..n-1. */
static int64_t draw(strata_iterator *it, int64_t n) {
    shuffling *s = it->state;
    if (s->n_drawn % 4 == 0) {
        uint64_t seed = seed_of(it), epoch = epoch_of(it), block = (uint64_t)s->n_drawn / 4;
        strata_philox_block counter = {
            {(uint32_t)block, (uint32_t)epoch, (uint32_t)(epoch >> 32), 0x5eee0000u + (uint32_t)(block >> 32)}};
        s->random = strata_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    }
    return strata_random_below(s->random.words[s->n_drawn++ % 4], n);
}

static strata_status shuffle_next(strata_iterator *it, strata_element *out, bool *out_more, strata_error *err) {
    shuffling *s = it->state;
    if (s->order) {
        *out_more = it->position < it->dataset->n;
        if (!*out_more) return STRATA_OK;
        return strata_dataset_at(it->dataset->parents[0], it->seed, it->epoch, strata_order_index(s->order, it->position), out,
                                 err);
    }
    STRATA_TRY(fill(it, err));
    *out_more = s->n_buffered > 0;
    if (!s->n_buffered) return STRATA_OK;
    int64_t i = draw(it, s->n_buffered);
    *out = s->buffer[i];
    s->buffer[i] = s->buffer[--s->n_buffered];
    return STRATA_OK;
}

static strata_status shuffle_advance(strata_iterator *it, int64_t n, strata_error *err) {
    return ((const shuffling *)it->state)->order ? STRATA_OK : strata_iterator_discard(it, shuffle_next, n, err);
}

static const strata_stage shuffle_stage = {.name = "shuffle",
                                           .state_bytes = sizeof(shuffling),
                                           .open = shuffle_open,
                                           .next = shuffle_next,
                                           .advance = shuffle_advance,
                                           .close = shuffle_close};

strata_status strata_dataset_shuffle(strata_dataset **dataset, const strata_shuffle_options *opts, strata_error *err) {
    const strata_shuffle_options o = opts ? *opts : (strata_shuffle_options){0};
    if (o.buffer < 0)
        return strata_fail(err, STRATA_INVALID, "shuffle: buffer is %lld; it must be at least 1, or 0 for all",
                           (long long)o.buffer);
    if (!o.buffer && (*dataset)->n == STRATA_SIZE_INFINITE)
        return strata_fail(err, STRATA_INVALID, "shuffle: a dataset without end needs a buffer");
    const shuffle s = {o.buffer, o.same_each_epoch, (*dataset)->n_shuffles};
    STRATA_TRY(strata_stage_put(&shuffle_stage, dataset, &s, sizeof s, NULL, err));
    (*dataset)->n_shuffles++;
    return STRATA_OK;
}
