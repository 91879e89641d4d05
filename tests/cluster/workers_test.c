/* SPDX-License-Identifier: Apache-2.0
 *
 * Strategies over several workers, each a thread with a host device or two: what each reads, and that they end together.
 * Numbers are those of the checklist of tf.distribute's semantics. */
#include "strategies/workers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "core/data/dataset.h"
#include "strata/strata.h"
#include "tests/cluster/ranks.h"
#include "tests/support/folder.h"

enum { MOST_ELEMENTS = 64, MOST_WORKERS = 6 };

#define RUN(world, function, user)                                                             \
    do {                                                                                       \
        const strata_test_result result = test_ranks("inproc", (world), NULL, function, user); \
        cr_assert(result.ok, "%s", result.text);                                               \
    } while (0)

/* n host devices in this worker. */
static strata_status open_strategy(strata_communicator *comm, int n, strata_strategy **out, strata_error *err) {
    strata_device *devices[2] = {NULL};
    for (int i = 0; i < n; i++) STRATA_TRY(strata_device_open("host", NULL, &devices[i], err));
    STRATA_TRY(strata_strategy_from_devices(devices, n, out, err));
    return strata_strategy_join(*out, comm, err);
}

/* ---- 30, 31, 32: what a worker reads ---- */

/* The dataset 0, 1, ... n - 1 in memory. */
static strata_dataset *numbers(int64_t n) {
    strata_dataset *dataset = NULL;
    strata_array x = {0};
    cr_assert_eq(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n), &x, NULL), STRATA_OK);
    for (int64_t i = 0; i < n; i++) ((float *)x.data)[i] = (float)i;
    cr_assert_eq(strata_dataset_take_arrays(&x, NULL, 0, &dataset, NULL), STRATA_OK);
    return dataset;
}

static atomic_int opened[10];

/* A "file" named by a digit d: 10 d, 10 d + 1, ... , d + 1 of them. */
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

/* What worker w of n walks over. */
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

/* Rows 0 to 5 in files of 1, 2 and 3; labels are ten times, weights half of the row's number. */
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
    cr_assert_eq(strata_dataset_set_files(dataset, ends, 3, &err), STRATA_OK, "%s", err.message);
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
                 STRATA_OK); /* fills the whole dataset's cache, which the workers' must not see */
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

/* ---- 31, 34: distributed batches ---- */

/* What all workers saw in each step. */
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

/* All workers made as many steps, in each of which their parts are as many as they were told. */
static void check_steps(const trail *t, int workers, int steps) {
    for (int w = 0; w < workers; w++) cr_assert_eq(t->n_steps[w], steps, "worker %d: %d steps", w, t->n_steps[w]);
    for (int s = 0; s < steps; s++) {
        int64_t n = 0;
        for (int w = 0; w < workers; w++) n += t->own[w][s];
        for (int w = 0; w < workers; w++) cr_assert_eq(t->totals[w][s], n);
    }
}

/* How often the workers saw the value. */
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

/* Of 7 files of 1 to 7 numbers, three workers have 12, 7 and 9. */
Test(auto_shard, uneven_shards_end_together) {
    static trail t;
    t = (trail){.policy = STRATA_SHARD_FILE, .make = files, .n = 7, .batch = 3};
    RUN(3, follow, &t);
    check_steps(&t, 3, 12);
    for (int f = 0; f < 7; f++)
        for (int i = 0; i <= f; i++) cr_assert_eq(times_seen(&t, 3, (float)(10 * f + i)), 1);
    for (int s = 9; s < 12; s++) cr_assert_eq(t.own[1][s], 0); /* without data, and still there */
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

/* 6 numbers, shards of 2, 2, 2, 0: worker 3 never has any. */
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

/* ---- fit ---- */

typedef struct fitting {
    strata_auto_shard policy;
    strata_dataset *dataset; /* one for all */
    int64_t n_steps[MOST_WORKERS];
    float losses[MOST_WORKERS][100];
    char sha[MOST_WORKERS][65];
    int64_t examples[MOST_WORKERS];
} fitting;

/* y = 2 x in files of 2, 4, 6, ... points. */
static strata_status open_points(const char *path, void *user, strata_dataset **out, strata_error *err) {
    const int n = 2 * (path[0] - '0') + 2;
    strata_array x = {0}, y = {0};
    (void)user;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, 1), &x, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n), &y, err));
    for (int i = 0; i < n; i++) {
        ((float *)x.data)[i] = (float)(i - n / 2) / 8;
        ((float *)y.data)[i] = 2 * ((float *)x.data)[i];
    }
    return strata_dataset_take_arrays(&x, &y, 0, out, err);
}

static strata_test_result fit(strata_communicator *comm, const void *user) {
    fitting *f = (fitting *)user;
    const int w = strata_communicator_rank(comm);
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_history history = {0};
    bool equal = false;
    TEST_TRY(open_strategy(comm, 1, &strategy, &err));
    TEST_TRY(strata_model_create(STRATA_SHAPE(1), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    const strata_compile_options compile = {
        .optimizer = strata_sgd_optimizer(0.3, 0, false), .loss = "mse", .seed = (uint64_t)w, .strategy = strategy};
    TEST_TRY(strata_model_compile(model, NULL, &compile, &err));
    const strata_fit_options opts = {.epochs = 3, .batch = 6, .auto_shard = f->policy};
    TEST_TRY(strata_model_fit(model, f->dataset, &opts, &history, &err));
    TEST_TRY(strata_model_replicas_equal(model, &equal, &err));
    TEST_TRY(strata_model_sha256(model, f->sha[w], &err));
    if (!equal) return strata_test_bad("the workers' parameters differ");
    f->n_steps[w] = history.n_steps;
    f->examples[w] = history.epochs[2].examples;
    memcpy(f->losses[w], history.losses, sizeof history.losses);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    return strata_test_ok();
}

/* Files of 2, 4, 6, 8, 10 points over 3 workers: 10, 14, 6 of them; batches of 6 serve 3 steps. */
Test(auto_shard, fit_over_uneven_files_trains_all_points_and_ends_together) {
    static const char *const paths[] = {"0", "1", "2", "3", "4"};
    const strata_element_spec spec = {.n_parts = 2,
                                      .parts = {{STRATA_DTYPE_F32, STRATA_SHAPE(1)}, {STRATA_DTYPE_F32, STRATA_SHAPE()}}};
    static fitting f;
    f = (fitting){.policy = STRATA_SHARD_FILE};
    cr_assert_eq(strata_dataset_from_files(paths, 5, open_points, NULL, &spec, &f.dataset, NULL), STRATA_OK);
    RUN(3, fit, &f);
    for (int w = 0; w < 3; w++) {
        cr_assert_eq(f.n_steps[w], 3 * 8); /* 9 that a worker has, one of them without points */
        cr_assert_eq(f.examples[w], 30);
        cr_assert_str_eq(f.sha[w], f.sha[0]);
    }
    float first = 0, last = 0;
    for (int i = 0; i < 8; i++) first += f.losses[0][i], last += f.losses[0][16 + i];
    cr_assert_lt(last, first / 2, "%g became %g", (double)first, (double)last);
    strata_dataset_destroy(f.dataset);
}

Test(auto_shard, fit_with_data_has_the_losses_of_one_worker) {
    static fitting one, many;
    strata_error err = {0};
    strata_dataset *dataset = NULL;
    cr_assert_eq(open_points("9", NULL, &dataset, &err), STRATA_OK);
    one = many = (fitting){.policy = STRATA_SHARD_DATA, .dataset = dataset};
    RUN(1, fit, &one);
    RUN(3, fit, &many);
    cr_assert_eq(one.n_steps[0], 3 * 4);
    cr_assert_eq(many.n_steps[0], one.n_steps[0]);
    for (int i = 0; i < 12; i++)
        cr_assert_float_eq(many.losses[2][i], one.losses[0][i], 1e-5f * fabsf(one.losses[0][i]) + 1e-9f);
    strata_dataset_destroy(dataset);
}

/* ---- the sharded optimizer ---- */

typedef struct sharding {
    strata_shard_optimizer first, then; /* of the epochs before the checkpoint, and of those after it */
    strata_dtype wire;
    int replicas; /* of each worker */
    strata_dataset *dataset;
    const char *path; /* of a checkpoint */
    char sha[MOST_WORKERS][65];
} sharding;

static strata_status make_sharded(strata_communicator *comm, const sharding *s, strata_shard_optimizer choice,
                                  strata_strategy **out_strategy, strata_model **out_model, strata_error *err) {
    STRATA_TRY(open_strategy(comm, s->replicas, out_strategy, err));
    (*out_strategy)->shard_optimizer = choice;
    (*out_strategy)->workers.wire = s->wire;
    STRATA_TRY(strata_model_create(STRATA_SHAPE(1), out_model, err));
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 70, .activation = "tanh"});
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 1});
    const strata_compile_options compile = {
        .optimizer = strata_adam_optimizer(0.01), .loss = "mse", .seed = 7, .strategy = *out_strategy};
    return strata_model_compile(*out_model, NULL, &compile, err);
}

/* Two epochs with one choice, a checkpoint, two more by a new model with the other choice. */
static strata_test_result fit_sharded(strata_communicator *comm, const void *user) {
    sharding *s = (sharding *)user;
    const int w = strata_communicator_rank(comm);
    strata_error err = {0};
    for (int half = 0; half < 2; half++) {
        strata_strategy *strategy = NULL;
        strata_model *model = NULL;
        bool equal = false;
        strata_fit_options opts = {.epochs = 2 + 2 * half, .batch = 9};
        TEST_TRY(make_sharded(comm, s, half ? s->then : s->first, &strategy, &model, &err));
        if (half) TEST_TRY(strata_model_load_checkpoint(model, s->path, &opts.first_epoch, &err));
        if (opts.first_epoch != 2 * half) return strata_test_bad("%d epochs are in the checkpoint", opts.first_epoch);
        TEST_TRY(strata_model_fit(model, s->dataset, &opts, NULL, &err));
        if (!half) TEST_TRY(strata_model_save_checkpoint(model, 2, w ? NULL : s->path, &err));
        TEST_TRY(strata_model_replicas_equal(model, &equal, &err));
        if (!equal) return strata_test_bad("the workers' parameters differ");
        TEST_TRY(strata_model_sha256(model, s->sha[w], &err));
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
    }
    return strata_test_ok();
}

static void expect_shards_over_workers(int n_workers, int replicas, strata_dtype wire) {
    static const strata_shard_optimizer choices[][2] = {{STRATA_SHARD_OPTIMIZER_NO, STRATA_SHARD_OPTIMIZER_NO},
                                                        {STRATA_SHARD_OPTIMIZER_YES, STRATA_SHARD_OPTIMIZER_YES},
                                                        {STRATA_SHARD_OPTIMIZER_NO, STRATA_SHARD_OPTIMIZER_YES},
                                                        {STRATA_SHARD_OPTIMIZER_YES, STRATA_SHARD_OPTIMIZER_NO}};
    static sharding s;
    char wanted[65] = "";
    strata_error err = {0};
    strata_dataset *dataset = NULL;
    cr_assert_eq(open_points("9", NULL, &dataset, &err), STRATA_OK);
    for (int i = 0; i < 4; i++) {
        s = (sharding){.first = choices[i][0],
                       .then = choices[i][1],
                       .wire = wire,
                       .replicas = replicas,
                       .dataset = dataset,
                       .path = test_path("workers.checkpoint")};
        RUN(n_workers, fit_sharded, &s);
        if (!i) memcpy(wanted, s.sha[0], sizeof wanted);
        for (int w = 0; w < n_workers; w++)
            cr_assert_str_eq(s.sha[w], wanted, "%d workers of %d replicas, run %d, worker %d", n_workers, replicas, i, w);
    }
    strata_dataset_destroy(dataset);
}

/* 256 elements of parameters: 6 replicas own 0 or 64 of them each. */
Test(over_workers, shards_have_the_bits_of_replicated_updates, .init = test_folder_make, .fini = test_folder_remove) {
    expect_shards_over_workers(3, 1, STRATA_DTYPE_F32);
    expect_shards_over_workers(3, 2, STRATA_DTYPE_F32);
    expect_shards_over_workers(2, 1, STRATA_DTYPE_BF16);
}

/* ---- workers that would train different things ---- */

typedef struct difference {
    const char *text; /* of the message, on every worker; NULL: none */
    strata_fit_options fit;
    double rate;
    const char *points;
} difference;

/* Worker 1 differs. */
static strata_test_result fit_otherwise(strata_communicator *comm, const void *user) {
    static const difference same = {.fit = {.epochs = 1, .batch = 6, .seed = 1}, .rate = 0.1, .points = "9"};
    const difference *wrong = user, *own = strata_communicator_rank(comm) == 1 ? wrong : &same;
    strata_error err = {0}, why = {0};
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_dataset *dataset = NULL;
    TEST_TRY(open_points(own->points, NULL, &dataset, &err));
    TEST_TRY(open_strategy(comm, 1, &strategy, &err));
    TEST_TRY(strata_model_create(STRATA_SHAPE(1), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    const strata_compile_options compile = {
        .optimizer = strata_sgd_optimizer(own->rate, 0, false), .loss = "mse", .strategy = strategy};
    strata_status status = strata_model_compile(model, NULL, &compile, &err);
    if (!status) status = strata_model_fit(model, dataset, &own->fit, NULL, &why);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    strata_dataset_destroy(dataset);
    if (!wrong->text) return status ? strata_test_bad("%s", why.message) : strata_test_ok();
    if (status == STRATA_INVALID && strstr(why.message, wrong->text)) return strata_test_ok();
    return strata_test_bad("\"%s\" is not in: %s %s", wrong->text, strata_status_name(status), why.message);
}

Test(over_workers, fit_tells_what_differs_on_every_worker) {
    static const difference rows[] = {
        {NULL, {.epochs = 1, .batch = 6, .seed = 1}, 0.1, "9"},
        {"the batch is 4 on worker 1 and 6 on worker 0", {.epochs = 1, .batch = 4, .seed = 1}, 0.1, "9"},
        {"the number of epochs is 2 on worker 1", {.epochs = 2, .batch = 6, .seed = 1}, 0.1, "9"},
        {"the seed of the shuffles is 2 on worker 1", {.epochs = 1, .batch = 6, .seed = 2}, 0.1, "9"},
        {"the shuffling is off on worker 1", {.epochs = 1, .batch = 6, .seed = 1, .no_shuffle = true}, 0.1, "9"},
        {"the auto_shard policy is OFF on worker 1 and DATA on worker 0",
         {.epochs = 1, .batch = 6, .seed = 1, .auto_shard = STRATA_SHARD_OFF},
         0.1,
         "9"},
        {"the number of examples is 18 on worker 1 and 20 on", {.epochs = 1, .batch = 6, .seed = 1}, 0.1, "8"},
        {"the learning rate is 0.5 on worker 1", {.epochs = 1, .batch = 6, .seed = 1}, 0.5, "9"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) RUN(3, fit_otherwise, &rows[i]);
}

/* ---- custom loops: 10, 11, 14, 15, 16, 17 over workers ---- */

enum { REPLICAS = 4 };

/* What came out on each replica of all workers, and what each worker then has. */
typedef struct loop {
    int workers, devices; /* of each worker: together REPLICAS */
    float reduced[REPLICAS], gathered[REPLICAS][16], merged[REPLICAS], gradient[REPLICAS][4], written[REPLICAS],
        first[REPLICAS], ids[REPLICAS];
    float sum[REPLICAS], mean[REPLICAS], rows[REPLICAS][16], seen[REPLICAS], chief[REPLICAS];
    int n_gathered[REPLICAS], n_rows[REPLICAS], merges[REPLICAS];
} loop;

typedef struct body {
    loop *out;
    int worker;
    strata_distributed_variable *mean, *first, *seen;
} body;

/* Replica r goes on with its value and those before it: 1, 1 + 2, 1 + 2 + 3, ... */
static strata_status prefix_sums(strata_strategy *strategy, const strata_per_replica *values, strata_per_replica *results,
                                 void *user, strata_error *err) {
    body *b = user;
    float sum = 0;
    (void)strategy;
    b->out->merges[b->worker]++;
    if (values->n != REPLICAS || results->n != REPLICAS) return strata_fail(err, STRATA_INTERNAL, "%d values", values->n);
    for (int r = 0; r < values->n; r++) *(float *)results->arrays[r].data = sum += *(const float *)values->arrays[r].data;
    return STRATA_OK;
}

/* inputs: one number, and as many rows as the replica's number + 1. */
static strata_status step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    body *b = user;
    (void)err;
    strata_tensor *id = strata_reshape(
        strata_scalar(strata_replica_graph(replica), STRATA_DTYPE_F32, (double)strata_replica_id(replica)), STRATA_SHAPE(1));
    strata_replica_assign(replica, b->mean, inputs[0]);
    strata_replica_assign(replica, b->first, inputs[0]);
    strata_replica_assign(replica, b->seen, strata_add(strata_replica_read(replica, b->seen), inputs[0]));
    strata_replica_return(replica, strata_replica_all_reduce(replica, inputs[0], STRATA_REDUCE_SUM));
    strata_tensor *all = strata_replica_all_gather(replica, inputs[1], 0), *gradient;
    strata_replica_return(replica, all);
    strata_replica_return(replica, strata_replica_merge_call(replica, prefix_sums, b, inputs[0]));
    strata_replica_return(replica, id);
    /* The loss of replica r is (r + 1) times the sum of squares of all values, so dx = 2 x (1 + 2 + 3 + 4). */
    strata_tensor *one = strata_scalar(strata_replica_graph(replica), STRATA_DTYPE_F32, 1);
    strata_tensor *loss = strata_reduce_sum(strata_mul(strata_square(all), strata_add(id, one)), NULL, 0, false);
    strata_gradients(loss, NULL, &inputs[1], 1, &gradient);
    strata_replica_return(replica, gradient);
    return STRATA_OK;
}

static strata_status make_variables(strata_strategy *strategy, body *b, strata_error *err) {
    const strata_distributed_options options[3] = {
        {.synchronization = STRATA_ON_WRITE, .aggregation = STRATA_AGGREGATION_MEAN},
        {.synchronization = STRATA_ON_WRITE, .aggregation = STRATA_AGGREGATION_ONLY_FIRST_REPLICA},
        {.synchronization = STRATA_ON_READ, .aggregation = STRATA_AGGREGATION_SUM}};
    strata_distributed_variable **variables[3] = {&b->mean, &b->first, &b->seen};
    STRATA_TRY(strata_strategy_enter(strategy, err));
    for (int i = 0; i < 3; i++)
        STRATA_TRY(strata_distributed_create("v", STRATA_DTYPE_F32, STRATA_SHAPE(1), &options[i], variables[i], err));
    return strata_strategy_exit(strategy, err);
}

static strata_status number_of(const strata_value_context *context, void *user, strata_array *out, strata_error *err) {
    (void)user;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(1), out, err));
    *(float *)out->data = (float)context->replica_id_in_sync_group + 1;
    return STRATA_OK;
}

/* `*user` more rows for everyone but replica 0, whose shapes then stay while the others' change. */
static strata_status rows_of(const strata_value_context *context, void *user, strata_array *out, strata_error *err) {
    const int r = context->replica_id_in_sync_group, n = r ? r + 1 + *(const int *)user : 1;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n), out, err));
    for (int i = 0; i < n; i++) ((float *)out->data)[i] = (float)(10 * r + i);
    return STRATA_OK;
}

static strata_test_result run_loop(strata_communicator *comm, const void *user) {
    loop *l = (loop *)user;
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    strata_function *function = NULL;
    strata_per_replica inputs[2] = {{0}}, outputs[5] = {{0}};
    strata_array sum = {0}, mean = {0}, rows = {0};
    const int w = strata_communicator_rank(comm), first = w * l->devices;
    body b = {.out = l, .worker = w};
    float number = (float)w + 7;
    strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1), &number);
    TEST_TRY(open_strategy(comm, l->devices, &strategy, &err));
    TEST_TRY(make_variables(strategy, &b, &err));
    TEST_TRY(strata_distributed_set(b.mean, &value, &err));
    TEST_TRY(strata_distributed_get(b.mean, &value, &err));
    l->chief[w] = number;
    number = 8;
    TEST_TRY(strata_distributed_set(b.seen, &value, &err));
    TEST_TRY(strata_function_create(strategy, step, &b, &function, &err));
    TEST_TRY(strata_strategy_distribute_values(strategy, number_of, NULL, &inputs[0], &err));
    for (int more = 1; more >= 0; more--) { /* again with other shapes, of the other replicas alone */
        strata_per_replica_finish(&inputs[1]);
        TEST_TRY(strata_strategy_distribute_values(strategy, rows_of, &more, &inputs[1], &err));
        TEST_TRY(strata_strategy_run(function, inputs, 2, outputs, 5, &err));
    }
    TEST_TRY(strata_strategy_reduce(strategy, &inputs[0], STRATA_REDUCE_SUM, STRATA_NO_AXIS, &sum, &err));
    TEST_TRY(strata_strategy_reduce(strategy, &inputs[1], STRATA_REDUCE_MEAN, 0, &mean, &err));
    TEST_TRY(strata_strategy_gather(strategy, &inputs[1], 0, &rows, &err));
    for (int r = 0; r < l->devices; r++) {
        const strata_array *gathered = &outputs[1].arrays[r];
        l->reduced[first + r] = *(float *)outputs[0].arrays[r].data;
        l->n_gathered[first + r] = (int)gathered->shape.dims[0];
        memcpy(l->gathered[first + r], gathered->data, strata_array_bytes(gathered));
        l->merged[first + r] = *(float *)outputs[2].arrays[r].data;
        l->ids[first + r] = *(float *)outputs[3].arrays[r].data;
        memcpy(l->gradient[first + r], outputs[4].arrays[r].data, strata_array_bytes(&outputs[4].arrays[r]));
    }
    l->sum[w] = *(float *)sum.data;
    l->mean[w] = *(float *)mean.data;
    l->n_rows[w] = (int)rows.shape.dims[0];
    memcpy(l->rows[w], rows.data, strata_array_bytes(&rows));
    TEST_TRY(strata_distributed_get(b.mean, &value, &err));
    l->written[w] = number;
    TEST_TRY(strata_distributed_get(b.first, &value, &err));
    l->first[w] = number;
    TEST_TRY(strata_distributed_get(b.seen, &value, &err));
    l->seen[w] = number;
    strata_array_finish(&sum);
    strata_array_finish(&mean);
    strata_array_finish(&rows);
    for (int i = 0; i < 2; i++) strata_per_replica_finish(&inputs[i]);
    for (int i = 0; i < 5; i++) strata_per_replica_finish(&outputs[i]);
    strata_function_destroy(function);
    strata_distributed_destroy(b.mean);
    strata_distributed_destroy(b.first);
    strata_distributed_destroy(b.seen);
    strata_strategy_destroy(strategy);
    return strata_test_ok();
}

/* Four replicas, as four workers, or two with two each: the same numbers. */
static void loops(loop out[2]) {
    for (int i = 0; i < 2; i++) {
        out[i] = (loop){.workers = i ? 2 : 4, .devices = i ? 2 : 1};
        RUN(out[i].workers, run_loop, &out[i]);
    }
}

#define FOR_EACH_LOOP(l) \
    static loop both[2]; \
    loops(both);         \
    for (loop *l = both; l < both + 2; l++)

Test(over_workers, replicas_have_ids_of_their_own) {
    FOR_EACH_LOOP(l) for (int r = 0; r < REPLICAS; r++) cr_assert_eq(l->ids[r], (float)r);
}

Test(over_workers, all_reduce_and_reduce_add_up_all_replicas) {
    FOR_EACH_LOOP(l) {
        for (int r = 0; r < REPLICAS; r++) cr_assert_eq(l->reduced[r], 10);
        for (int w = 0; w < l->workers; w++) cr_assert_eq(l->sum[w], 10);
    }
}

Test(over_workers, reduce_over_an_axis_divides_by_the_true_count) {
    const float sum = 0 + (10 + 11) + (20 + 21 + 22) + (30 + 31 + 32 + 33);
    FOR_EACH_LOOP(l) for (int w = 0; w < l->workers; w++) cr_assert_float_eq(l->mean[w], sum / 10, 1e-5f);
}

Test(over_workers, all_gather_and_gather_put_uneven_values_end_to_end) {
    const float all[10] = {0, 10, 11, 20, 21, 22, 30, 31, 32, 33};
    FOR_EACH_LOOP(l) {
        for (int r = 0; r < REPLICAS; r++) {
            cr_assert_eq(l->n_gathered[r], 10);
            cr_assert_arr_eq(l->gathered[r], all, sizeof all);
        }
        for (int w = 0; w < l->workers; w++) {
            cr_assert_eq(l->n_rows[w], 10);
            cr_assert_arr_eq(l->rows[w], all, sizeof all);
        }
    }
}

Test(over_workers, the_gradient_of_all_gather_is_each_replicas_part_of_the_sum) {
    FOR_EACH_LOOP(l)
    for (int r = 0; r < REPLICAS; r++)
        for (int i = 0; i <= r; i++) cr_assert_eq(l->gradient[r][i], 20 * (float)(10 * r + i), "replica %d", r);
}

Test(over_workers, merge_call_sees_all_replicas_once_a_step_on_each_worker) {
    const float prefix[REPLICAS] = {1, 3, 6, 10};
    FOR_EACH_LOOP(l) {
        cr_assert_arr_eq(l->merged, prefix, sizeof prefix);
        for (int w = 0; w < l->workers; w++) cr_assert_eq(l->merges[w], 2);
    }
}

Test(over_workers, writes_are_aggregated_over_all_replicas) {
    FOR_EACH_LOOP(l) for (int w = 0; w < l->workers; w++) {
        cr_assert_eq(l->written[w], 2.5f);
        cr_assert_eq(l->first[w], 1);
    }
}

Test(over_workers, the_chiefs_value_wins_and_sums_are_read_over_all_replicas) {
    FOR_EACH_LOOP(l) for (int w = 0; w < l->workers; w++) {
        cr_assert_eq(l->chief[w], 7);
        cr_assert_eq(l->seen[w], 8 + 2 * 10);
    }
}
