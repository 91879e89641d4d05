/* SPDX-License-Identifier: Apache-2.0
 *
 * What each of several workers reads. auto_shard divides files or batches among the workers, and all workers reach the end
 * of an epoch in the same step. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#include "core/data/dataset.h"
#include "tests/cluster/workers.h"

enum { MOST_ELEMENTS = 64 };

/* ---- the elements that a worker reads ---- */

/* A dataset of 0, 1, ... n - 1 in memory. */
static strata_dataset *numbers(int64_t n) {
    strata_dataset *dataset = NULL;
    strata_array x = {0};
    cr_assert_eq(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n), &x, NULL), STRATA_OK);
    for (int64_t i = 0; i < n; i++) ((float *)x.data)[i] = (float)i;
    cr_assert_eq(strata_dataset_take_arrays(&x, NULL, 0, &dataset, NULL), STRATA_OK);
    return dataset;
}

static atomic_int opened[10];

/* Opens a "file" whose name is a digit d. It contains the d + 1 numbers 10 d, 10 d + 1, ... */
static strata_status open_file(const char *path, void *user, strata_dataset **out, strata_error *err) {
    const int d = path[0] - '0';
    strata_array x = {0};
    (void)user;
    atomic_fetch_add(&opened[d], 1);
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(d + 1), &x, err));
    for (int i = 0; i <= d; i++) ((float *)x.data)[i] = (float)(10 * d + i);
    return strata_dataset_take_arrays(&x, NULL, 0, out, err);
}

static strata_dataset *files(int n) {
    static const char *const paths[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    const strata_element_spec spec = {.n_parts = 1, .parts = {{STRATA_DTYPE_F32, STRATA_SHAPE()}}};
    strata_dataset *dataset = NULL;
    cr_assert_eq(strata_dataset_from_files(paths, n, open_file, NULL, &spec, &dataset, NULL), STRATA_OK);
    return dataset;
}

typedef struct walk {
    int n;
    float values[MOST_ELEMENTS];
    int64_t indices[MOST_ELEMENTS];
} walk;

static strata_status walk_over(const strata_dataset *dataset, walk *out, strata_error *err) {
    strata_iterator *it = NULL;
    strata_element element;
    bool more = true;
    *out = (walk){0};
    STRATA_TRY(strata_iterator_create(dataset, 1, 0, 0, &it, err));
    strata_status status = STRATA_OK;
    while (!(status = strata_iterator_next(it, &element, &more, err)) && more && out->n < MOST_ELEMENTS) {
        out->indices[out->n] = element.key.index;
        out->values[out->n++] = *(float *)element.parts[0].data;
        strata_element_finish(&element);
    }
    strata_iterator_destroy(it);
    return status;
}

/* Iterates over what worker w of n reads. */
static walk shard_of(const strata_dataset *dataset, strata_auto_shard policy, int n, int w) {
    strata_dataset *own = NULL;
    strata_error err = {0};
    walk out;
    cr_assert_eq(strata_dataset_auto_shard(dataset, policy, n, w, &own, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(walk_over(own, &out, &err), STRATA_OK, "%s", err.message);
    strata_dataset_destroy(own);
    return out;
}

Test(auto_shard, file_i_goes_to_worker_i_mod_workers_and_the_others_are_not_opened) {
    strata_dataset *dataset = files(5);
    for (int n = 1; n <= 5; n++)
        for (int w = 0; w < n; w++) {
            for (int f = 0; f < 5; f++) atomic_store(&opened[f], 0);
            const walk own = shard_of(dataset, STRATA_SHARD_FILE, n, w);
            int expected = 0;
            for (int f = 0; f < 5; f++) {
                cr_assert_eq(atomic_load(&opened[f]), f % n == w);
                for (int i = 0; i <= f && f % n == w; i++) {
                    cr_assert_eq(own.values[expected], (float)(10 * f + i));
                    cr_assert_eq(own.indices[expected++], ((int64_t)f << 32) + i);
                }
            }
            cr_assert_eq(own.n, expected);
        }
    strata_dataset_destroy(dataset);
}

/* Files with 1, 2 and 3 of the rows 0 to 5. The label of a row is ten times its number, the weight half of it. */
Test(auto_shard, files_of_arrays_take_their_labels_and_weights_along) {
    const int64_t ends[3] = {1, 3, 6};
    const float wanted[2][4] = {{0, 3, 4, 5}, {1, 2}};
    strata_array x = {0}, y = {0}, weights = {0};
    strata_dataset *dataset = NULL, *own = NULL;
    strata_error err = {0};
    for (int i = 0; i < 3; i++)
        cr_assert_eq(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(6), (strata_array *[]){&x, &y, &weights}[i], &err), 0);
    for (int i = 0; i < 6; i++) {
        ((float *)x.data)[i] = (float)i;
        ((float *)y.data)[i] = (float)(10 * i);
        ((float *)weights.data)[i] = (float)i / 2;
    }
    cr_assert_eq(strata_dataset_take_arrays(&x, &y, 0, &dataset, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_dataset_set_weights(dataset, &weights, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_dataset_set_facts(dataset, &(strata_dataset_facts){.file_ends = ends, .n_files = 3}, &err), STRATA_OK,
                 "%s", err.message);
    for (int w = 0; w < 2; w++) {
        strata_iterator *it = NULL;
        strata_element element;
        bool more;
        cr_assert_eq(strata_dataset_auto_shard(dataset, STRATA_SHARD_FILE, 2, w, &own, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_dataset_size(own), w ? 2 : 4);
        cr_assert_eq(strata_iterator_create(own, 0, 0, 0, &it, &err), STRATA_OK);
        for (int i = 0; i < (w ? 2 : 4); i++) {
            cr_assert_eq(strata_iterator_next(it, &element, &more, &err), STRATA_OK);
            cr_assert_eq(element.n_parts, 3);
            cr_assert_eq(*(float *)element.parts[0].data, wanted[w][i]);
            cr_assert_eq(*(float *)element.parts[1].data, 10 * wanted[w][i]);
            cr_assert_eq(*(float *)element.parts[2].data, wanted[w][i] / 2);
            strata_element_finish(&element);
        }
        strata_iterator_destroy(it);
        strata_dataset_destroy(own);
    }
    strata_array_finish(&weights);
    strata_dataset_destroy(dataset);
}

static void refused(const strata_dataset *dataset, strata_auto_shard policy, int n, const char *text) {
    strata_dataset *own = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_dataset_auto_shard(dataset, policy, n, 0, &own, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, text), "%s", err.message);
}

Test(auto_shard, fewer_files_than_workers_are_refused_by_file_and_by_auto) {
    strata_dataset *dataset = files(5);
    refused(dataset, STRATA_SHARD_FILE, 6, "5 files among 6 workers");
    refused(dataset, STRATA_SHARD_AUTO, 6, "5 files among 6 workers");
    strata_dataset_destroy(dataset);
}

Test(auto_shard, file_without_a_source_of_files_is_refused_and_auto_falls_to_data) {
    strata_dataset *dataset = numbers(7);
    refused(dataset, STRATA_SHARD_FILE, 2, "needs a source that reads files");
    for (int w = 0; w < 2; w++) cr_assert_eq(shard_of(dataset, STRATA_SHARD_AUTO, 2, w).n, 7);
    strata_dataset_destroy(dataset);
}

Test(auto_shard, shuffles_maps_and_caches_come_after_the_division_by_files) {
    strata_dataset *dataset = files(5);
    strata_error err = {0};
    cr_assert_eq(strata_dataset_cache(&dataset, &err), STRATA_OK);
    cr_assert_eq(strata_dataset_shuffle(&dataset, NULL, &err), STRATA_OK);
    cr_assert_eq(strata_dataset_prefetch(&dataset, 2, &err), STRATA_OK);
    walk parts[2], all;
    cr_assert_eq(walk_over(dataset, &all, &err),
                 STRATA_OK); /* fills the cache of the whole dataset, which the workers' datasets must not use */
    cr_assert_eq(all.n, 15);
    for (int w = 0; w < 2; w++) {
        parts[w] = shard_of(dataset, STRATA_SHARD_AUTO, 2, w);
        for (int i = 0; i < parts[w].n; i++) cr_assert_eq((int)parts[w].values[i] / 10 % 2, w);
    }
    cr_assert_eq(parts[0].n, 1 + 3 + 5);
    cr_assert_eq(parts[1].n, 2 + 4);
    bool moved = false;
    for (int i = 1; i < parts[0].n; i++) moved |= parts[0].values[i] < parts[0].values[i - 1];
    cr_assert(moved);
    strata_dataset_destroy(dataset);
}

Test(auto_shard, off_gives_everything_to_everyone) {
    strata_dataset *sources[2] = {files(5), numbers(15)};
    for (int s = 0; s < 2; s++) {
        for (int w = 0; w < 3; w++) cr_assert_eq(shard_of(sources[s], STRATA_SHARD_OFF, 3, w).n, 15);
        strata_dataset_destroy(sources[s]);
    }
}

Test(auto_shard, a_hint_becomes_the_workers_shard_where_it_stands) {
    strata_dataset *dataset = numbers(7);
    strata_error err = {0};
    walk all;
    cr_assert_eq(strata_dataset_shard_hint(&dataset, &err), STRATA_OK);
    cr_assert_eq(strata_dataset_repeat(&dataset, 2, &err), STRATA_OK);
    cr_assert_eq(walk_over(dataset, &all, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "shard_hint"), "%s", err.message);
    for (int w = 0; w < 3; w++) {
        const walk own = shard_of(dataset, STRATA_SHARD_HINT, 3, w);
        cr_assert_eq(own.n, w == 0 ? 6 : 4);
        for (int i = 0; i < own.n; i++) cr_assert_eq((int)own.values[i] % 3, w);
    }
    cr_assert_eq(shard_of(dataset, STRATA_SHARD_HINT, 1, 0).n, 14);
    refused(dataset, STRATA_SHARD_HINT, 8, "7 elements for 8 workers");
    strata_dataset_destroy(dataset);
    dataset = numbers(7);
    refused(dataset, STRATA_SHARD_HINT, 2, "needs a strata_dataset_shard_hint");
    strata_dataset_destroy(dataset);
}

static strata_status keep_none(const strata_element *element, void *user, bool *out_keep, strata_error *err) {
    (void)user;
    (void)err;
    *out_keep = *(float *)element->parts[0].data < 1;
    return STRATA_OK;
}

Test(auto_shard, an_empty_part_of_a_hint_is_an_error_when_it_is_walked) {
    strata_dataset *dataset = numbers(7), *own = NULL;
    strata_error err = {0};
    walk out;
    cr_assert_eq(strata_dataset_filter(&dataset, keep_none, NULL, &err), STRATA_OK);
    cr_assert_eq(strata_dataset_shard_hint(&dataset, &err), STRATA_OK);
    cr_assert_eq(strata_dataset_auto_shard(dataset, STRATA_SHARD_HINT, 2, 1, &own, &err), STRATA_OK);
    cr_assert_eq(walk_over(own, &out, &err), STRATA_DATA);
    cr_assert_not_null(strstr(err.message, "part 1 of 2"), "%s", err.message);
    strata_dataset_destroy(own);
    strata_dataset_destroy(dataset);
}

/* ---- distributed batches ---- */

/* What all workers received in each step. */
typedef struct trail {
    strata_auto_shard policy;
    strata_dataset *(*make)(int n);
    int n, batch;
    int n_steps[MOST_WORKERS];
    int64_t totals[MOST_WORKERS][MOST_ELEMENTS];
    int own[MOST_WORKERS][MOST_ELEMENTS];
    float values[MOST_WORKERS][MOST_ELEMENTS][MOST_ELEMENTS];
} trail;

static strata_test_result follow(strata_communicator *comm, const void *user) {
    trail *t = (trail *)user;
    const int w = strata_communicator_rank(comm);
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    strata_dataset *dataset = t->make(t->n);
    strata_distributed_batches *batches = NULL;
    TEST_TRY(open_strategy(comm, 1, &strategy, &err));
    const strata_distributed_batches_options opts = {.global_batch = t->batch, .auto_shard = t->policy};
    TEST_TRY(strata_distributed_batches_create(strategy, dataset, &opts, &batches, &err));
    for (int64_t n;;) {
        strata_per_replica parts[2];
        TEST_TRY(strata_distributed_batches_next(batches, parts, &n, &err));
        if (!n || t->n_steps[w] == MOST_ELEMENTS) break;
        const strata_array *own = &parts[0].arrays[0];
        const int step = t->n_steps[w]++;
        t->totals[w][step] = n;
        t->own[w][step] = (int)own->shape.dims[0];
        memcpy(t->values[w][step], own->data, strata_array_bytes(own));
    }
    strata_distributed_batches_destroy(batches);
    strata_strategy_destroy(strategy);
    strata_dataset_destroy(dataset);
    return strata_test_ok();
}

static strata_dataset *numbers_of(int n) {
    return numbers(n);
}

/* Expects that all workers made `steps` steps, and that in each step the sizes of their parts add up to the reported total. */
static void check_steps(const trail *t, int workers, int steps) {
    for (int w = 0; w < workers; w++) cr_assert_eq(t->n_steps[w], steps, "worker %d: %d steps", w, t->n_steps[w]);
    for (int s = 0; s < steps; s++) {
        int64_t n = 0;
        for (int w = 0; w < workers; w++) n += t->own[w][s];
        for (int w = 0; w < workers; w++) cr_assert_eq(t->totals[w][s], n);
    }
}

/* Returns how often the workers received the value. */
static int times_seen(const trail *t, int workers, float value) {
    int n = 0;
    for (int w = 0; w < workers; w++)
        for (int s = 0; s < t->n_steps[w]; s++)
            for (int i = 0; i < t->own[w][s]; i++) n += t->values[w][s][i] == value;
    return n;
}

Test(auto_shard, data_divides_every_batch_so_that_each_element_is_seen_once) {
    for (int workers = 2; workers <= 4; workers++) {
        static trail t;
        t = (trail){.policy = STRATA_SHARD_DATA, .make = numbers_of, .n = 17, .batch = 7};
        RUN(workers, follow, &t);
        check_steps(&t, workers, 3);
        for (int s = 0; s < 2; s++) cr_assert_eq(t.totals[0][s], 7);
        cr_assert_eq(t.totals[0][2], 3);
        for (int i = 0; i < 17; i++) cr_assert_eq(times_seen(&t, workers, (float)i), 1);
    }
}

Test(auto_shard, off_lets_every_worker_see_each_element_in_batches_of_the_whole) {
    static trail t;
    t = (trail){.policy = STRATA_SHARD_OFF, .make = numbers_of, .n = 12, .batch = 6};
    RUN(3, follow, &t);
    check_steps(&t, 3, 6);
    for (int s = 0; s < 6; s++) cr_assert_eq(t.totals[0][s], 6);
    for (int i = 0; i < 12; i++) cr_assert_eq(times_seen(&t, 3, (float)i), 3);
}

/* 7 files have 1 to 7 numbers, so three workers have 12, 7 and 9. */
Test(auto_shard, uneven_shards_end_together) {
    static trail t;
    t = (trail){.policy = STRATA_SHARD_FILE, .make = files, .n = 7, .batch = 3};
    RUN(3, follow, &t);
    check_steps(&t, 3, 12);
    for (int f = 0; f < 7; f++)
        for (int i = 0; i <= f; i++) cr_assert_eq(times_seen(&t, 3, (float)(10 * f + i)), 1);
    for (int s = 9; s < 12; s++) cr_assert_eq(t.own[1][s], 0); /* worker 1 has no more data but takes part */
    cr_assert_eq(t.totals[0][11], 1);
}

static strata_status batches_of_two(const strata_input_context *context, void *user, strata_dataset **out, strata_error *err) {
    int64_t per_replica;
    (void)user;
    *out = files(3);
    STRATA_TRY(strata_input_context_per_replica_batch(context, 2 * context->num_replicas_in_sync, &per_replica, err));
    STRATA_TRY(strata_dataset_shard(out, context->num_input_pipelines, context->input_pipeline_id, err));
    return strata_dataset_batch(out, per_replica, false, err);
}

/* 6 numbers in shards of 2, 2, 2 and 0, so worker 3 never has any. */
static strata_test_result from_a_function(strata_communicator *comm, const void *user) {
    const int w = strata_communicator_rank(comm);
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    strata_distributed_batches *batches = NULL;
    strata_per_replica parts[2];
    int64_t n;
    (void)user;
    TEST_TRY(open_strategy(comm, 1, &strategy, &err));
    TEST_TRY(strata_distributed_batches_from_function(strategy, batches_of_two, NULL, 1, 0, &batches, &err));
    TEST_TRY(strata_distributed_batches_next(batches, parts, &n, &err));
    if (n != 6 || parts[0].arrays[0].shape.dims[0] != (w < 2 ? 2 : 1)) return strata_test_bad("%lld examples", (long long)n);
    TEST_TRY(strata_distributed_batches_next(batches, parts, &n, &err));
    if (n != 0) return strata_test_bad("%lld more", (long long)n);
    strata_distributed_batches_destroy(batches);
    strata_strategy_destroy(strategy);
    return strata_test_ok();
}

Test(auto_shard, a_function_makes_each_workers_input_and_all_end_together) {
    RUN(4, from_a_function, NULL);
}
