/* SPDX-License-Identifier: Apache-2.0
 *
 * shuffle: over what can be indexed an order of all (the one that fit makes for arrays, when it is the first shuffle); else a
 * buffer from which each element is drawn and which the next one refills. */
#include <stdlib.h>

#include "core/base/philox.h"
#include "core/data/stage/stage.h"

typedef struct shuffle {
    int64_t buffer; /* 0: all */
    bool same_each_epoch;
    int number; /* of the shuffles below */
} shuffle;

typedef struct shuffling {
    strata_order *order; /* NULL: buffered */
    strata_element *buffer;
    int64_t held, capacity;
    bool ended; /* nothing more comes from below */
    int64_t drawn;
    strata_philox_block random;
} shuffling;

/* The seed of this shuffle: the iteration's own for the first. */
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
    for (int64_t i = 0; i < s->held; i++) strata_element_finish(&s->buffer[i]);
    free(s->buffer);
    strata_order_destroy(s->order);
}

/* ---- the buffer ---- */

static strata_status make_room(shuffling *s, strata_error *err) {
    if (s->held < s->capacity) return STRATA_OK;
    int64_t capacity = s->capacity ? 2 * s->capacity : 64;
    strata_element *larger = realloc(s->buffer, (size_t)capacity * sizeof *larger);
    if (!larger)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "shuffle: no host memory for %lld elements", (long long)capacity);
    s->buffer = larger;
    s->capacity = capacity;
    return STRATA_OK;
}

static strata_status fill(strata_iterator *it, strata_error *err) {
    const shuffle *options = it->dataset->state;
    shuffling *s = it->state;
    while (!s->ended && (!options->buffer || s->held < options->buffer)) {
        bool more;
        STRATA_TRY(make_room(s, err));
        STRATA_TRY(strata_iterator_next(it->parents[0], &s->buffer[s->held], &more, err));
        s->held += more;
        s->ended = !more;
    }
    return STRATA_OK;
}

/* One of 0..n-1, the next of the stream of (seed, epoch). */
static int64_t draw(strata_iterator *it, int64_t n) {
    shuffling *s = it->state;
    if (s->drawn % 4 == 0) {
        uint64_t seed = seed_of(it), epoch = epoch_of(it), block = (uint64_t)s->drawn / 4;
        strata_philox_block counter = {
            {(uint32_t)block, (uint32_t)epoch, (uint32_t)(epoch >> 32), 0x5eee0000u + (uint32_t)(block >> 32)}};
        s->random = strata_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    }
    return strata_random_below(s->random.words[s->drawn++ % 4], n);
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
    *out_more = s->held > 0;
    if (!s->held) return STRATA_OK;
    int64_t i = draw(it, s->held);
    *out = s->buffer[i];
    s->buffer[i] = s->buffer[--s->held];
    return STRATA_OK;
}

static strata_status shuffle_advance(strata_iterator *it, int64_t n, strata_error *err) {
    const shuffling *s = it->state;
    bool more = true;
    for (int64_t i = 0; !s->order && i < n && more; i++) {
        strata_element element = {0};
        STRATA_TRY(shuffle_next(it, &element, &more, err));
        strata_element_finish(&element);
    }
    return STRATA_OK;
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
    STRATA_TRY(strata_stage_put(&shuffle_stage, dataset, sizeof(shuffle), NULL, err));
    *(shuffle *)(*dataset)->state = (shuffle){o.buffer, o.same_each_epoch, (*dataset)->n_shuffles++};
    return STRATA_OK;
}
