/* SPDX-License-Identifier: Apache-2.0
 *
 * map and prefetch: threads write elements to a ring of n cells, and the iterator reads the cells in order. A thread reads
 * element i of the parent, of which only one thread at a time can be in progress, calls the function on it while other threads
 * work on theirs, and writes the result to cell i mod n. prefetch is a map without a function, with one thread. A map without
 * threads does not use the ring.
 *
 * No wait is endless: a thread waits only for a free cell or for another thread that reads from the parent, and closing the
 * iterator ends both waits. The iterator waits only for a cell whose element a thread is computing. */
#include <pthread.h>

#include "core/data/stage/stage.h"

enum { MOST_THREADS = 64 };

typedef struct map {
    strata_map_function function; /* NULL: prefetch */
    void *user;
    int threads;
    int64_t n_cells;
} map;

typedef struct cell {
    bool ready, more;
    strata_element element;
    strata_status status;
    strata_error error;
} cell;

typedef struct ring {
    strata_iterator *iterator;
    const map *map;
    cell *cells; /* [n_cells]; NULL: the threads were not started yet */
    pthread_mutex_t lock;
    pthread_cond_t filled;     /* a cell became ready */
    pthread_cond_t freed;      /* a cell became free, or another thread may read from the parent */
    int64_t n_pulled, n_given; /* how many elements were read from the parent, and how many the iterator returned */
    bool pulling, ended, stop; /* a thread reads from the parent; there are no more elements; the iterator is closed */
    pthread_t threads[MOST_THREADS];
    int n_threads;
} ring;

/* Calls the function on an element; finishes it on failure. */
static strata_status apply(const strata_dataset *dataset, strata_element *element, strata_error *err) {
    const map *m = dataset->state;
    strata_key key = element->key;
    if (!m->function) return STRATA_OK;
    strata_status status = m->function(element, m->user, err);
    if (status) status = strata_element_fail_in(err, status, "map", &key);
    element->key = key;
    if (!status) status = strata_element_check(element, &dataset->spec, "map", err);
    if (status) strata_element_finish(element);
    return status;
}

/* ---- threads ---- */

/* Waits until there is a free cell and no other thread reads from the parent. Returns the index of the element that this thread
 * reads; false: there are no more elements, or the iterator is closed. */
static bool begin_pull(ring *r, int64_t *out_index) {
    pthread_mutex_lock(&r->lock);
    while (!r->stop && !r->ended && (r->pulling || r->n_pulled - r->n_given >= r->map->n_cells))
        pthread_cond_wait(&r->freed, &r->lock);
    bool go = !r->stop && !r->ended;
    if (go) r->pulling = true, *out_index = r->n_pulled++;
    pthread_mutex_unlock(&r->lock);
    return go;
}

static void end_pull(ring *r, bool last) {
    pthread_mutex_lock(&r->lock);
    r->pulling = false;
    if (last) r->ended = true;
    pthread_cond_broadcast(&r->freed);
    pthread_mutex_unlock(&r->lock);
}

static void *work(void *user) {
    ring *r = user;
    int64_t index;
    while (begin_pull(r, &index)) {
        cell *s = &r->cells[index % r->map->n_cells]; /* no other thread uses the cell until it is ready */
        s->status = strata_iterator_next(r->iterator->parents[0], &s->element, &s->more, &s->error);
        end_pull(r, s->status || !s->more);
        if (!s->status && s->more) s->status = apply(r->iterator->dataset, &s->element, &s->error);
        pthread_mutex_lock(&r->lock);
        if (s->status) r->ended = true;
        s->ready = true;
        pthread_cond_broadcast(&r->filled);
        if (s->status) pthread_cond_broadcast(&r->freed);
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

static strata_status begin(ring *r, strata_error *err) {
    STRATA_TRY(STRATA_NEW(r->cells, r->map->n_cells, err, "%s: no host memory for %lld cells",
                          r->iterator->dataset->stage->name, (long long)r->map->n_cells));
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->filled, NULL);
    pthread_cond_init(&r->freed, NULL);
    while (r->n_threads < r->map->threads && !pthread_create(&r->threads[r->n_threads], NULL, work, r)) r->n_threads++;
    if (r->n_threads) return STRATA_OK;
    return strata_fail(err, STRATA_UNAVAILABLE, "%s: the system cannot start a thread", r->iterator->dataset->stage->name);
}

static void ring_close(strata_iterator *it) {
    ring *r = it->state;
    if (!r->cells) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->freed);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_threads; i++) pthread_join(r->threads[i], NULL);
    for (int64_t i = 0; i < r->map->n_cells; i++) strata_element_finish(&r->cells[i].element);
    pthread_cond_destroy(&r->filled);
    pthread_cond_destroy(&r->freed);
    pthread_mutex_destroy(&r->lock);
    free(r->cells);
}

/* ---- the stage ---- */

static strata_status take_from_ring(ring *r, strata_element *out, bool *out_more, strata_error *err) {
    cell *s = &r->cells[r->n_given % r->map->n_cells];
    pthread_mutex_lock(&r->lock);
    while (!s->ready) pthread_cond_wait(&r->filled, &r->lock);
    cell taken = *s;
    if (taken.more && !taken.status) { /* the end and a failure remain in the cell and are returned again by the next call */
        *s = (cell){0};
        r->n_given++;
        pthread_cond_broadcast(&r->freed);
    }
    pthread_mutex_unlock(&r->lock);
    *out_more = taken.more && !taken.status;
    if (taken.status) return strata_fail(err, taken.status, "%s", taken.error.message);
    *out = taken.element;
    return STRATA_OK;
}

static strata_status ring_next(strata_iterator *it, strata_element *out, bool *out_more, strata_error *err) {
    ring *r = it->state;
    const map *m = it->dataset->state;
    if (!m->threads) {
        STRATA_TRY(strata_iterator_next(it->parents[0], out, out_more, err));
        return *out_more ? apply(it->dataset, out, err) : STRATA_OK;
    }
    if (!r->cells) { /* the threads read these fields, so they are set first */
        r->iterator = it;
        r->map = m;
        STRATA_TRY(begin(r, err));
    }
    return take_from_ring(r, out, out_more, err);
}

static strata_status ring_advance(strata_iterator *it, int64_t n, strata_error *err) {
    if (!((ring *)it->state)->cells) return strata_iterator_advance(it->parents[0], n, err);
    return strata_iterator_discard(it, ring_next, n, err);
}

static strata_status map_at(const strata_dataset *dataset, uint64_t seed, uint64_t epoch, int64_t index, strata_element *out,
                            strata_error *err) {
    STRATA_TRY(strata_dataset_at(dataset->parents[0], seed, epoch, index, out, err));
    return apply(dataset, out, err);
}

static const strata_stage map_stage = {
    .name = "map", .state_bytes = sizeof(ring), .next = ring_next, .advance = ring_advance, .close = ring_close, .at = map_at};
static const strata_stage prefetch_stage = {
    .name = "prefetch", .state_bytes = sizeof(ring), .next = ring_next, .advance = ring_advance, .close = ring_close};

strata_status strata_dataset_map(strata_dataset **dataset, strata_map_function function, void *user,
                                 const strata_map_options *opts, strata_error *err) {
    const strata_map_options o = opts ? *opts : (strata_map_options){0};
    if (!function) return strata_fail(err, STRATA_INVALID, "map: needs a function");
    if (o.threads < 0 || o.threads > MOST_THREADS)
        return strata_fail(err, STRATA_INVALID, "map: %d threads; 0 to %d are possible", o.threads, MOST_THREADS);
    const map m = {function, user, o.threads, 2 * o.threads};
    return strata_stage_put(&map_stage, dataset, &m, sizeof m, o.spec, err);
}

strata_status strata_dataset_prefetch(strata_dataset **dataset, int64_t n, strata_error *err) {
    const int64_t most = 1 << 20;
    if (n < 1 || n > most)
        return strata_fail(err, STRATA_INVALID, "prefetch: n is %lld; it must be 1..%lld", (long long)n, (long long)most);
    return strata_stage_put(&prefetch_stage, dataset, &(map){.threads = 1, .n_cells = n}, sizeof(map), NULL, err);
}
