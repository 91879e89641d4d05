/* SPDX-License-Identifier: Apache-2.0
 *
 * Several threads iterate over one pipeline at the same time. The pipelines have threads of their own: a parallel map, a cache,
 * a shuffle and a prefetch. Some iterations stop before the end, and one map fails. All iterations that reach the end must get
 * the same elements. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "strata/strata.h"

enum { THREADS = 3, N = 200 };

static strata_dataset *dataset, *failing;

typedef struct walker {
    pthread_t thread;
    int32_t values[N];
    int n;
    bool wrong;
} walker;

static strata_status add_key(strata_element *element, void *user, strata_error *err) {
    (void)user, (void)err;
    *(int32_t *)element->parts[0].data += (int32_t)(strata_key_random(&element->key, 1) & 0xFFFF);
    return STRATA_OK;
}

static strata_status fail_at_50(strata_element *element, void *user, strata_error *err) {
    (void)user;
    return element->key.index == 50 ? strata_fail(err, STRATA_DATA, "fifty") : STRATA_OK;
}

/* Reads at most `most` elements and returns their number. */
static int walk(const strata_dataset *data, int32_t *values, int most, strata_status *out_status) {
    strata_iterator *it = NULL;
    strata_error err = {0};
    int n = 0;
    bool more = true;
    *out_status = strata_iterator_create(data, 2, 1, 0, &it, &err);
    while (!*out_status && more && n < most) {
        strata_element element;
        *out_status = strata_iterator_next(it, &element, &more, &err);
        if (!*out_status && more) values[n++] = *(int32_t *)element.parts[0].data;
        strata_element_finish(&element);
    }
    strata_iterator_destroy(it);
    return n;
}

static void *walk_all(void *user) {
    walker *w = user;
    strata_status status;
    int32_t some[N];
    w->wrong = walk(dataset, some, 17, &status) != 17 || status;
    w->n = walk(dataset, w->values, N, &status);
    w->wrong |= w->n != N || status;
    w->wrong |= walk(failing, some, N, &status) != 50 || status != STRATA_DATA;
    return NULL;
}

static strata_status make(strata_dataset **out, const strata_array *x, strata_map_function function, strata_error *err) {
    STRATA_TRY(strata_dataset_from_arrays(x, NULL, 0, out, err));
    STRATA_TRY(strata_dataset_map(out, function, NULL, &(strata_map_options){.threads = 3}, err));
    if (function == add_key) {
        STRATA_TRY(strata_dataset_cache(out, err));
        STRATA_TRY(strata_dataset_shuffle(out, &(strata_shuffle_options){.buffer = 20}, err));
    }
    return strata_dataset_prefetch(out, 3, err);
}

int main(void) {
    static walker walkers[THREADS];
    static int32_t numbers[N];
    strata_error err = {0};
    for (int i = 0; i < N; i++) numbers[i] = i;
    strata_array x = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(N), numbers);
    if (make(&dataset, &x, add_key, &err) || make(&failing, &x, fail_at_50, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    int n = 0, wrong = 0;
    while (n < THREADS && !pthread_create(&walkers[n].thread, NULL, walk_all, &walkers[n])) n++;
    for (int i = 0; i < n; i++) pthread_join(walkers[i].thread, NULL);
    for (int i = 0; i < n; i++)
        wrong += walkers[i].wrong || memcmp(walkers[i].values, walkers[0].values, sizeof walkers[0].values);
    strata_dataset_destroy(dataset);
    strata_dataset_destroy(failing);
    if (n < THREADS || wrong) fprintf(stderr, "%d threads ran, %d of them saw something else\n", n, wrong);
    return n < THREADS || wrong;
}
