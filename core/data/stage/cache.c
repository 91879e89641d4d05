/* SPDX-License-Identifier: Apache-2.0
 *
 * cache: the dataset stores the elements of one complete iteration, and later iterations with the same seed return them again.
 * The stages below always iterate over epoch 0, whichever epoch is first, so that the elements of an iteration do not depend on
 * the iterations before it. */
#include <pthread.h>

#include "core/data/stage/stage.h"

typedef struct store {
    atomic_int references;
    uint64_t seed;
    strata_element *elements;
    int64_t n, capacity;
} store;

typedef struct cache {
    pthread_mutex_t lock;
    store *complete; /* the elements of a complete iteration; NULL: there was none yet */
} cache;

typedef struct caching {
    store *store;
    bool filling; /* this iteration adds the elements to the store */
} caching;

static void release(store *s) {
    if (!s || atomic_fetch_sub(&s->references, 1) > 1) return;
    for (int64_t i = 0; i < s->n; i++) strata_element_finish(&s->elements[i]);
    free(s->elements);
    free(s);
}

static strata_status cache_open(strata_iterator *it, strata_error *err) {
    cache *c = it->dataset->state;
    caching *state = it->state;
    pthread_mutex_lock(&c->lock);
    if (c->complete && c->complete->seed == it->seed) {
        state->store = c->complete;
        atomic_fetch_add(&c->complete->references, 1);
    }
    pthread_mutex_unlock(&c->lock);
    if (state->store) return STRATA_OK;
    STRATA_TRY(STRATA_NEW(state->store, 1, err, "cache: no host memory"));
    atomic_init(&state->store->references, 1);
    state->store->seed = it->seed;
    state->filling = true;
    return strata_iterator_open_parents(it, 0, err);
}

static void cache_close(strata_iterator *it) {
    release(((caching *)it->state)->store);
}

/* Stores a complete iteration in the dataset, for later iterations with its seed. */
static void publish(cache *c, caching *state) {
    pthread_mutex_lock(&c->lock);
    store *old = c->complete;
    c->complete = state->store;
    atomic_fetch_add(&state->store->references, 1);
    pthread_mutex_unlock(&c->lock);
    state->filling = false;
    release(old);
}

/* Adds the parent's next element to the store. */
static strata_status store_next(strata_iterator *it, bool *out_more, strata_error *err) {
    store *s = ((caching *)it->state)->store;
    if (!strata_make_room(&s->elements, s->n, &s->capacity, sizeof *s->elements))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "cache: no host memory for more than %lld elements", (long long)s->n);
    STRATA_TRY(strata_iterator_next(it->parents[0], &s->elements[s->n], out_more, err));
    s->n += *out_more;
    return STRATA_OK;
}

static strata_status cache_next(strata_iterator *it, strata_element *out, bool *out_more, strata_error *err) {
    caching *state = it->state;
    if (state->filling) {
        STRATA_TRY(store_next(it, out_more, err));
        if (!*out_more) publish(it->dataset->state, state);
    }
    *out_more = it->position < state->store->n;
    if (!*out_more) return STRATA_OK;
    STRATA_TRY(strata_element_copy(&state->store->elements[it->position], out, err));
    out->key.epoch = it->epoch;
    return STRATA_OK;
}

static strata_status cache_advance(strata_iterator *it, int64_t n, strata_error *err) {
    caching *state = it->state;
    for (int64_t i = 0; i < n && state->filling; i++) {
        bool more;
        STRATA_TRY(store_next(it, &more, err));
        if (!more) publish(it->dataset->state, state);
    }
    return STRATA_OK;
}

static void cache_destroy(strata_dataset *dataset) {
    cache *c = dataset->state;
    release(c->complete);
    pthread_mutex_destroy(&c->lock);
}

static void cache_renew(strata_dataset *dataset) {
    cache *c = dataset->state;
    c->complete = NULL;
    pthread_mutex_init(&c->lock, NULL);
}

static const strata_stage cache_stage = {.name = "cache",
                                         .state_bytes = sizeof(caching),
                                         .open = cache_open,
                                         .next = cache_next,
                                         .advance = cache_advance,
                                         .close = cache_close,
                                         .destroy = cache_destroy,
                                         .renew = cache_renew};

strata_status strata_dataset_cache(strata_dataset **dataset, strata_error *err) {
    if ((*dataset)->n == STRATA_SIZE_INFINITE)
        return strata_fail(err, STRATA_INVALID, "cache: a dataset without end cannot be stored; put take before cache");
    STRATA_TRY(strata_stage_put(&cache_stage, dataset, NULL, sizeof(cache), NULL, err));
    pthread_mutex_init(&((cache *)(*dataset)->state)->lock, NULL);
    return STRATA_OK;
}
