/* SPDX-License-Identifier: Apache-2.0
 *
 * The strategy tpu with two workers, each of which has its own board of cores. The cores of a board compute sums within
 * their programs, and the workers exchange the sums of the boards. The bits must be those of the strategy mirrored on host
 * devices of as many workers. */
#include <criterion/criterion.h>
#include <string.h>

#include "strata/strata.h"
#include "strategies/kinds.h"
#include "tests/cluster/ranks.h"
#include "tests/support/cores.h"

enum { CORES = 3, FEATURES = 5, N = 47, MOST_WORKERS = 2 };

typedef struct job {
    bool boards;
    int64_t batch, together;
    bool sharded, synchronized;
    strata_dtype wire;
    float x[N * FEATURES];
    int32_t y[N];
    /* Results of the training. */
    char sha[MOST_WORKERS][65];
    float losses[MOST_WORKERS][64];
    int n_losses, collectives[MOST_WORKERS];
} job;

static strata_status open_strategy(const job *j, strata_communicator *comm, test_cores **out_board, strata_strategy **out,
                                   strata_error *err) {
    strata_device *devices[CORES];
    const strata_strategy_options opts = {
        .communicator = comm,
        .compress = j->wire,
        .shard_optimizer = j->sharded ? STRATA_SHARD_OPTIMIZER_YES : STRATA_SHARD_OPTIMIZER_NO};
    if (j->boards) *out_board = test_cores_create(&(test_cores_options){.n = CORES});
    for (int i = 0; i < CORES; i++)
        STRATA_TRY(j->boards ? test_cores_open(*out_board, i, &devices[i], err)
                             : strata_device_open("host", NULL, &devices[i], err));
    return strata_strategy_of_devices(j->boards ? &strata_strategy_tpu : &strata_strategy_multi_worker_mirrored, devices, CORES,
                                      &opts, out, err);
}

static strata_test_result train(strata_communicator *comm, const void *user) {
    job *j = (job *)user;
    const int w = strata_communicator_rank(comm);
    strata_error err = {0};
    test_cores *board = NULL;
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_dataset *dataset = NULL;
    strata_history history = {0};
    bool equal = false;
    TEST_TRY(open_strategy(j, comm, &board, &strategy, &err));
    TEST_TRY(strata_model_create(STRATA_SHAPE(FEATURES), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 7, .activation = "relu"});
    strata_model_add_batch_norm(model, (strata_batch_norm_options){.synchronized = j->synchronized});
    strata_model_add_dense(model, (strata_dense_options){.units = 3});
    const strata_compile_options compile = {
        .optimizer = strata_adam_optimizer(0.02), .seed = (uint64_t)w, .strategy = strategy};
    TEST_TRY(strata_model_compile(model, NULL, &compile, &err));
    const strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, FEATURES), j->x),
                       y = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(N), j->y);
    TEST_TRY(strata_dataset_from_arrays(&x, &y, 0, &dataset, &err));
    const strata_fit_options opts = {.epochs = 2, .batch = j->batch, .seed = 1, .steps_per_execution = j->together};
    TEST_TRY(strata_model_fit(model, dataset, &opts, &history, &err));
    TEST_TRY(strata_model_replicas_equal(model, &equal, &err));
    TEST_TRY(strata_model_sha256(model, j->sha[w], &err));
    memcpy(j->losses[w], history.losses, (size_t)history.n_losses * sizeof *history.losses);
    if (!w) j->n_losses = history.n_losses;
    strata_history_finish(&history);
    strata_dataset_destroy(dataset);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    if (board) j->collectives[w] = test_cores_counters(board, CORES - 1).collectives;
    test_cores_destroy(board);
    return equal ? strata_test_ok() : strata_test_bad("the workers' parameters differ");
}

static void fill(job *j) {
    uint64_t state = 3;
    for (int i = 0; i < N * FEATURES; i++) j->x[i] = (float)(2 * strata_test_next_uniform(&state) - 1);
    for (int i = 0; i < N; i++) j->y[i] = j->x[i * FEATURES] > 0.2f ? 0 : j->x[i * FEATURES + 1] > 0 ? 1 : 2;
}

static void expect_as_mirrored(job what) {
    static job boards, hosts;
    fill(&what);
    boards = hosts = what;
    boards.boards = true;
    strata_test_result result = test_ranks("inproc", MOST_WORKERS, NULL, train, &boards);
    cr_assert(result.ok, "boards: %s", result.text);
    result = test_ranks("inproc", MOST_WORKERS, NULL, train, &hosts);
    cr_assert(result.ok, "hosts: %s", result.text);
    cr_assert_eq(boards.n_losses, hosts.n_losses);
    for (int w = 0; w < MOST_WORKERS; w++) {
        cr_assert_str_eq(boards.sha[w], hosts.sha[w]);
        cr_assert(!memcmp(boards.losses[w], hosts.losses[0], (size_t)hosts.n_losses * sizeof(float)), "worker %d", w);
        if (!what.sharded) cr_assert_gt(boards.collectives[w], 0, "the cores of worker %d added nothing up", w);
    }
}

Test(boards, two_of_them_have_the_bits_of_mirrored_workers, .timeout = 300) {
    expect_as_mirrored((job){.batch = 12});
    expect_as_mirrored((job){.batch = 12, .together = 7, .synchronized = true});
    expect_as_mirrored((job){.batch = 12, .wire = STRATA_DTYPE_BF16});
    expect_as_mirrored((job){.batch = 12, .sharded = true});
}

/* With batches of 5 the cores of the boards have 1, 1, 1 and 1, 1, 0 examples. With batches of 2 the second board has none. */
Test(boards, cores_and_boards_without_examples_give_nothing, .timeout = 300) {
    expect_as_mirrored((job){.batch = 5});
    expect_as_mirrored((job){.batch = 2});
}

/* ---- a custom training loop ---- */

typedef struct loop {
    bool boards;
    /* The outputs of replica 0 of each worker in each step. */
    float results[MOST_WORKERS][8][2];
    int n_steps, collectives[MOST_WORKERS];
} loop;

/* Computes sums over all replicas, of a sum over examples and of its square, and their mean, which the host computes over
 * the workers. */
static strata_status step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    (void)user, (void)err;
    strata_tensor *own = strata_reduce_sum(strata_exp(inputs[0]), NULL, 0, false);
    strata_tensor *sum = strata_replica_all_reduce(replica, own, STRATA_REDUCE_SUM);
    strata_tensor *mean = strata_replica_all_reduce(replica, strata_mul(own, sum), STRATA_REDUCE_MEAN);
    strata_replica_return(replica, sum);
    strata_replica_return(replica, mean);
    return STRATA_OK;
}

static strata_test_result run_loop(strata_communicator *comm, const void *user) {
    loop *l = (loop *)user;
    const int w = strata_communicator_rank(comm);
    const job j = {.boards = l->boards};
    strata_error err = {0};
    test_cores *board = NULL;
    strata_strategy *strategy = NULL;
    strata_dataset *dataset = NULL;
    strata_function *function = NULL;
    strata_distributed_batches *batches = NULL;
    strata_per_replica outputs[2 * 3] = {0};
    float numbers[25];
    for (int i = 0; i < 25; i++) numbers[i] = (float)i / 7 - 1;
    const strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(25), numbers);
    TEST_TRY(open_strategy(&j, comm, &board, &strategy, &err));
    TEST_TRY(strata_dataset_from_arrays(&x, NULL, 0, &dataset, &err));
    TEST_TRY(strata_function_create(strategy, step, NULL, &function, &err));
    const strata_distributed_batches_options opts = {.global_batch = 4};
    TEST_TRY(strata_distributed_batches_create(strategy, dataset, &opts, &batches, &err));
    int n_steps = 0;
    for (int n = 3; n == 3;) {
        TEST_TRY(strata_strategy_run_batches(function, batches, 3, outputs, 2, &n, &err));
        for (int s = 0; s < n; s++, n_steps++)
            for (int i = 0; i < 2; i++) l->results[w][n_steps][i] = *(const float *)outputs[2 * s + i].arrays[0].data;
    }
    if (!w) l->n_steps = n_steps;
    for (int i = 0; i < 6; i++) strata_per_replica_finish(&outputs[i]);
    strata_strategy_destroy(strategy);
    strata_dataset_destroy(dataset);
    if (board) l->collectives[w] = test_cores_counters(board, 0).collectives;
    test_cores_destroy(board);
    return strata_test_ok();
}

Test(boards, custom_loops_over_two_have_the_bits_of_hosts, .timeout = 300) {
    static loop boards = {.boards = true}, hosts;
    strata_test_result result = test_ranks("inproc", MOST_WORKERS, NULL, run_loop, &boards);
    cr_assert(result.ok, "boards: %s", result.text);
    result = test_ranks("inproc", MOST_WORKERS, NULL, run_loop, &hosts);
    cr_assert(result.ok, "hosts: %s", result.text);
    cr_assert_eq(boards.n_steps, 7);
    cr_assert(!memcmp(boards.results, hosts.results, sizeof hosts.results));
    for (int w = 0; w < MOST_WORKERS; w++) cr_assert_eq(boards.collectives[w], 7, "one sum a step is the cores'");
}
