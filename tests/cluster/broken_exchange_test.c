/* SPDX-License-Identifier: Apache-2.0
 *
 * Each exchange between workers fails in turn, on one of them: every broadcast, sum, all_gather, send and receive of a fit with
 * a sharded optimizer, validation and checkpoints, of loading a checkpoint, and of a custom loop. The call that makes the
 * exchange must fail with the exchange's error, and no worker may report success. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/cluster/workers.h"
#include "tests/support/folder.h"

#define BROKEN "this exchange was broken"

TestSuite(broken_exchange, .init = test_folder_make, .fini = test_folder_remove);

/* ---- workers whose exchange number `left` fails ---- */

/* The number of the run, for the names of folders. */
static atomic_int n_runs;
/* What the thread of a worker has in place of its strategy's functions. */
static _Thread_local struct {
    strata_workers sound;
    int64_t left;
    bool failed;
} own;

static bool breaks(strata_status *out_status, strata_error *err) {
    if (--own.left) return false;
    own.failed = true;
    *out_status = strata_fail(err, STRATA_PEER_LOST, BROKEN);
    strata_communicator_abort(own.sound.communicator, BROKEN); /* else the others would wait */
    return true;
}

static strata_status sum(const strata_workers *w, strata_dtype dtype, strata_dtype wire, const void *in, void *out, int64_t n,
                         strata_error *err) {
    strata_status status;
    return breaks(&status, err) ? status : own.sound.sum(w, dtype, wire, in, out, n, err);
}

static strata_status broadcast(const strata_workers *w, strata_dtype dtype, void *data, int64_t n, strata_error *err) {
    strata_status status;
    return breaks(&status, err) ? status : own.sound.broadcast(w, dtype, data, n, err);
}

static strata_status reduce_scatter(const strata_workers *w, strata_dtype dtype, strata_dtype wire, const void *in, void *out,
                                    const size_t *counts, strata_error *err) {
    strata_status status;
    return breaks(&status, err) ? status : own.sound.reduce_scatter(w, dtype, wire, in, out, counts, err);
}

static strata_status all_gather(const strata_workers *w, const void *in, void *out, const size_t *bytes, strata_error *err) {
    strata_status status;
    return breaks(&status, err) ? status : own.sound.all_gather(w, in, out, bytes, err);
}

static strata_status send(const strata_workers *w, int to, int64_t channel, const void *data, size_t bytes, strata_error *err) {
    strata_status status;
    return breaks(&status, err) ? status : own.sound.send(w, to, channel, data, bytes, err);
}

static strata_status receive(const strata_workers *w, int from, int64_t channel, void *data, size_t bytes, strata_error *err) {
    strata_status status;
    return breaks(&status, err) ? status : own.sound.receive(w, from, channel, data, bytes, err);
}

/* number: that of the exchange that fails, from 1; 0: none fails. */
static void break_exchange(strata_strategy *strategy, int64_t number) {
    strata_workers *w = &strategy->workers;
    own.sound = *w;
    own.left = number;
    own.failed = false;
    w->sum = sum;
    w->broadcast = broadcast;
    w->reduce_scatter = reduce_scatter;
    w->all_gather = all_gather;
    w->send = send;
    w->receive = receive;
}

/* ---- what the workers do ---- */

/* Makes its objects with the strategy, which is destroyed afterwards, and with them what belongs to it. */
typedef strata_status work(strata_strategy *strategy, strata_error *err);

typedef struct broken {
    work *work;
    int64_t number;
    int worker;
    /* The worker has come to the exchange. */
    bool reached;
} broken;

static strata_status make_points(int n, strata_dataset **out, strata_error *err) {
    return strata_dataset_random(STRATA_SHAPE(3), STRATA_SHAPE(1), n, 5, out, err);
}

static strata_status make_model(strata_strategy *strategy, strata_model **out, strata_error *err) {
    strategy->shard_optimizer = STRATA_SHARD_OPTIMIZER_YES;
    STRATA_TRY(strata_model_create(STRATA_SHAPE(3), out, err));
    strata_model_add_dense(*out, (strata_dense_options){.units = 70, .activation = "tanh"});
    strata_model_add_batch_norm(*out, (strata_batch_norm_options){.synchronized = true});
    strata_model_add_dense(*out, (strata_dense_options){.units = 1});
    const strata_compile_options opts = {
        .optimizer = strata_adam_optimizer(0.01), .loss = "mse", .metrics = "mae", .seed = 1, .strategy = strategy};
    return strata_model_compile(*out, NULL, &opts, err);
}

/* The learning rate that rank 0 sets is sent to all workers. */
static strata_status set_rate(const strata_progress *p, void *user, strata_error *err) {
    return p->epoch_end ? strata_model_set_learning_rate(user, 0.005, err) : STRATA_OK;
}

static strata_status fit(strata_strategy *strategy, strata_error *err) {
    char folder[300];
    snprintf(folder, sizeof folder, "%s%d", test_path("broken"), atomic_load(&n_runs));
    const strata_checkpoint_options checkpoint = {.folder = folder, .every_steps = 3};
    strata_model *model = NULL;
    strata_dataset *dataset = NULL, *validation = NULL;
    STRATA_TRY(make_points(4, &dataset, err));
    strata_status status = make_points(3, &validation, err);
    if (!status) status = make_model(strategy, &model, err);
    const strata_fit_options opts = {.epochs = 2,
                                     .batch = 4,
                                     .auto_shard = STRATA_SHARD_OFF,
                                     .validation = validation,
                                     .patience = 5,
                                     .restore_best = true,
                                     .on_progress = set_rate,
                                     .user = model,
                                     .trace = test_path("trace.json"),
                                     .checkpoint = &checkpoint};
    bool equal = false;
    if (!status) status = strata_model_fit(model, dataset, &opts, NULL, err);
    if (!status) status = strata_model_replicas_equal(model, &equal, err);
    strata_model_destroy(model);
    strata_dataset_destroy(dataset);
    strata_dataset_destroy(validation);
    return status;
}

static strata_status save_and_load(strata_strategy *strategy, strata_error *err) {
    const char *path = test_path("broken.checkpoint");
    strata_model *model = NULL;
    strata_dataset *dataset = NULL;
    strata_metrics metrics;
    int epochs = 0;
    STRATA_TRY(make_points(12, &dataset, err));
    strata_status status = make_model(strategy, &model, err);
    const bool first = strategy->workers.rank == 0;
    if (!status) status = strata_model_save_checkpoint(model, 1, first ? path : NULL, err);
    if (!status) status = strata_model_load_checkpoint(model, path, &epochs, err);
    const strata_fit_options opts = {.epochs = 2, .first_epoch = 1, .batch = 5};
    if (!status) status = strata_model_fit(model, dataset, &opts, NULL, err);
    if (!status) status = strata_model_evaluate(model, dataset, 4, &metrics, err);
    strata_model_destroy(model);
    strata_dataset_destroy(dataset);
    return status;
}

/* ---- a custom loop ---- */

static strata_status keep_values(strata_strategy *strategy, const strata_per_replica *values, strata_per_replica *results,
                                 void *user, strata_error *err) {
    (void)strategy, (void)user, (void)err;
    for (int r = 0; r < values->n; r++)
        memcpy(results->arrays[r].data, values->arrays[r].data, strata_array_bytes(&values->arrays[r]));
    return STRATA_OK;
}

static strata_status step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    (void)err;
    strata_tensor *sum_of_all = strata_replica_all_reduce(replica, inputs[0], STRATA_REDUCE_SUM);
    strata_replica_assign(replica, user, sum_of_all);
    strata_replica_return(replica, strata_replica_all_gather(replica, inputs[0], 0));
    strata_replica_return(replica, strata_replica_merge_call(replica, keep_values, NULL, sum_of_all));
    return STRATA_OK;
}

static strata_status one_value(const strata_value_context *context, void *user, strata_array *out, strata_error *err) {
    (void)user;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(1 + context->replica_id_in_sync_group), out, err));
    memset(out->data, 0, strata_array_bytes(out));
    return STRATA_OK;
}

static strata_status run_function(strata_strategy *strategy, strata_distributed_variable *variable, strata_error *err) {
    strata_function *function = NULL;
    strata_per_replica input = {0}, outputs[2] = {{0}};
    strata_array total = {0}, all = {0};
    float number = 1;
    strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1), &number);
    STRATA_TRY(strata_distributed_set(variable, &value, err));
    STRATA_TRY(strata_function_create(strategy, step, variable, &function, err));
    float element = 2;
    strata_array inputs = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1), &element);
    const strata_per_replica shared = {.arrays = &inputs, .n = 1};
    strata_status status = strata_strategy_run(function, &shared, 1, outputs, 2, err);
    if (!status) status = strata_distributed_get(variable, &value, err);
    if (!status) status = strata_strategy_distribute_values(strategy, one_value, NULL, &input, err);
    if (!status) status = strata_strategy_gather(strategy, &input, 0, &all, err);
    if (!status) status = strata_strategy_reduce(strategy, &input, STRATA_REDUCE_MEAN, 0, &total, err);
    for (int i = 0; i < 2; i++) strata_per_replica_finish(&outputs[i]);
    strata_per_replica_finish(&input);
    strata_array_finish(&total);
    strata_array_finish(&all);
    return status;
}

static strata_status loop(strata_strategy *strategy, strata_error *err) {
    const strata_distributed_options options = {.synchronization = STRATA_ON_WRITE, .aggregation = STRATA_AGGREGATION_MEAN};
    const strata_distributed_batches_options opts = {.global_batch = 4, .shuffle = true, .auto_shard = STRATA_SHARD_OFF};
    strata_distributed_variable *variable = NULL;
    strata_dataset *dataset = NULL;
    strata_distributed_batches *batches = NULL;
    strata_per_replica parts[2] = {{0}};
    int64_t n = 0;
    STRATA_TRY(strata_strategy_enter(strategy, err));
    strata_status status = strata_distributed_create("v", STRATA_DTYPE_F32, STRATA_SHAPE(1), &options, &variable, err);
    const strata_status left = strata_strategy_exit(strategy, status ? NULL : err);
    if (!status) status = left;
    if (!status) status = make_points(6, &dataset, err);
    if (!status) status = strata_distributed_batches_create(strategy, dataset, &opts, &batches, err);
    do
        if (!status) status = strata_distributed_batches_next(batches, parts, &n, err);
    while (!status && n);
    strata_distributed_batches_destroy(batches);
    strata_dataset_destroy(dataset);
    return status ? status : run_function(strategy, variable, err);
}

/* ---- each exchange in turn ---- */

static strata_test_result do_work(strata_communicator *comm, const void *user) {
    broken *b = (broken *)user;
    strata_error err = {0}, why = {0};
    strata_strategy *strategy = NULL;
    const bool breaking = strata_communicator_rank(comm) == b->worker;
    TEST_TRY(open_strategy(comm, 1, &strategy, &err));
    break_exchange(strategy, breaking ? b->number : 0);
    strata_status status = b->work(strategy, &why);
    if (!status) status = strata_communicator_barrier(comm, &why); /* a worker that needs the other no more has no error else */
    strata_strategy_destroy(strategy);
    if (!breaking) return status ? strata_test_ok() : strata_test_bad("success beside a worker that failed");
    b->reached = own.failed;
    if (!own.failed) return status ? strata_test_bad("%s", why.message) : strata_test_bad("all exchanges are sound");
    if (!status) return strata_test_bad("exchange %lld failed, and success was reported", (long long)b->number);
    return strstr(why.message, BROKEN) ? strata_test_ok()
                                       : strata_test_bad("exchange %lld: %s", (long long)b->number, why.message);
}

/* Returns how many exchanges a worker makes. */
static int64_t break_each(work *work, int worker) {
    for (int64_t number = 1;; number++) {
        atomic_fetch_add(&n_runs, 1);
        broken b = {.work = work, .number = number, .worker = worker};
        const strata_test_result result = test_ranks("inproc", 2, NULL, do_work, &b);
        if (!b.reached) {
            cr_assert(strstr(result.text, "all exchanges are sound") || strstr(result.text, "success beside"), "%s",
                      result.text);
            return number - 1;
        }
        cr_assert(result.ok, "worker %d, exchange %d: %s", worker, (int)number, result.text);
        cr_assert_lt(number, 500);
    }
}

Test(broken_exchange, of_a_fit_is_an_error_on_all_workers) {
    for (int worker = 0; worker <= 1; worker++) cr_assert_gt(break_each(fit, worker), 40);
}

Test(broken_exchange, of_checkpoints_and_evaluation_is_an_error_on_all_workers) {
    for (int worker = 0; worker <= 1; worker++) cr_assert_gt(break_each(save_and_load, worker), 20);
}

Test(broken_exchange, of_a_custom_loop_is_an_error_on_all_workers) {
    for (int worker = 0; worker <= 1; worker++) cr_assert_gt(break_each(loop, worker), 15);
}
