/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes each allocation of strategies fail in turn: training on two devices, custom loops, and the exchanges of workers. The
 * other worker is the test: it has the same values as this one. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/run/strategy.h"
#include "strata/strata.h"
#include "strategies/parameter_server/stock.h"
#include "tests/alloc/scenario.h"
#include "tests/alloc/shim.h"
#include "tests/support/folder.h"

TestSuite(alloc_strategies, .init = test_folder_make, .fini = test_folder_remove);

enum { WORKERS = 2, FEATURES = 3 };

/* ---- another worker with the same values ---- */

static int first_replicas[WORKERS + 1] = {0, 1, 2};

static strata_status twice(const strata_workers *w, strata_dtype dtype, strata_dtype wire, const void *in, void *out, int64_t n,
                           strata_error *err) {
    (void)w, (void)wire, (void)err;
    if (dtype == STRATA_DTYPE_I64) { /* lengths, to which each worker contributes its own; and whether they have changed */
        int64_t *lengths = out;
        for (int64_t i = 0; i + 1 < n; i += WORKERS) lengths[i + 1] = lengths[i];
        return STRATA_OK;
    }
    for (int64_t i = 0; i < n; i++) strata_element_set(dtype, out, i, WORKERS * strata_element_get(dtype, in, i));
    return STRATA_OK;
}

static strata_status stay(const strata_workers *w, strata_dtype dtype, void *data, int64_t n, strata_error *err) {
    (void)w, (void)dtype, (void)data, (void)n, (void)err;
    return STRATA_OK;
}

static strata_status scatter(const strata_workers *w, strata_dtype dtype, strata_dtype wire, const void *in, void *out,
                             const size_t *counts, strata_error *err) {
    return twice(w, dtype, wire, in, out, (int64_t)counts[0], err);
}

static strata_status gather(const strata_workers *w, const void *in, void *out, const size_t *bytes, strata_error *err) {
    (void)w, (void)err;
    char *at = out;
    for (int r = 0; r < WORKERS; at += bytes[r++]) memcpy(at, in, bytes[r] < bytes[0] ? bytes[r] : bytes[0]);
    return STRATA_OK;
}

static strata_status send(const strata_workers *w, int to, int64_t channel, const void *data, size_t bytes, strata_error *err) {
    (void)w, (void)to, (void)channel, (void)data, (void)bytes, (void)err;
    return STRATA_OK;
}

static strata_status receive(const strata_workers *w, int from, int64_t channel, void *data, size_t bytes, strata_error *err) {
    (void)w, (void)from, (void)channel, (void)err;
    memset(data, 0, bytes);
    return STRATA_OK;
}

static void at_step(const strata_workers *w, int64_t number) {
    (void)w, (void)number;
}

static uint64_t bytes_sent(const strata_workers *w) {
    (void)w;
    return 0;
}

static strata_status make_strategy(int devices, bool workers, strata_strategy **out, strata_error *err) {
    static const char *const hosts[] = {"host", "host"};
    const strata_strategy_options opts = {
        .devices = hosts, .n_devices = devices, .shard_optimizer = STRATA_SHARD_OPTIMIZER_YES};
    STRATA_TRY(strata_strategy_create("mirrored", &opts, out, err));
    if (workers)
        (*out)->workers = (strata_workers){.n = WORKERS,
                                           .n_replicas = WORKERS,
                                           .sum = twice,
                                           .broadcast = stay,
                                           .reduce_scatter = scatter,
                                           .all_gather = gather,
                                           .send = send,
                                           .receive = receive,
                                           .at_step = at_step,
                                           .bytes_sent = bytes_sent,
                                           .first_replicas = first_replicas};
    return STRATA_OK;
}

static void destroy_strategy(strata_strategy *strategy) {
    if (strategy) strategy->workers.first_replicas = NULL; /* they are the test's */
    strata_strategy_destroy(strategy);
}

/* ---- fit ---- */

static strata_status make_points(int n, strata_dataset **out, strata_error *err) {
    return strata_dataset_random(STRATA_SHAPE(FEATURES), STRATA_SHAPE(1), n, 5, out, err);
}

static strata_status fit_with(strata_strategy *strategy, const char *checkpoint, strata_error *err) {
    strata_model *model = NULL;
    strata_dataset *dataset = NULL;
    strata_optimizer optimizer = strata_adam_optimizer(0.01);
    int epochs = 0;
    STRATA_TRY(make_points(7, &dataset, err));
    strata_status status = strata_model_create(STRATA_SHAPE(FEATURES), &model, err);
    if (!status) {
        strata_model_add_dense(model, (strata_dense_options){.units = 2});
        strata_model_add_batch_norm(model, (strata_batch_norm_options){.synchronized = true});
        strata_model_add_dense(model, (strata_dense_options){.units = 1});
    }
    optimizer.gradient_accumulation_steps = checkpoint ? 1 : 2;
    const strata_compile_options compile = {.optimizer = optimizer, .loss = "mse", .strategy = strategy};
    const strata_fit_options fit = {.batch = 4, .auto_shard = checkpoint ? STRATA_SHARD_OFF : STRATA_SHARD_AUTO};
    if (!status) status = strata_model_compile(model, NULL, &compile, err);
    if (!status) status = strata_model_fit(model, dataset, &fit, NULL, err);
    if (!status && checkpoint) status = strata_model_save_checkpoint(model, 1, checkpoint, err);
    if (!status && checkpoint) status = strata_model_load_checkpoint(model, checkpoint, &epochs, err);
    strata_model_destroy(model);
    strata_dataset_destroy(dataset);
    return status;
}

static strata_status mirrored_scenario(strata_error *err) {
    strata_strategy *strategy = NULL;
    strata_status status = make_strategy(2, false, &strategy, err);
    if (!status) status = fit_with(strategy, NULL, err);
    destroy_strategy(strategy);
    return status;
}

static strata_status workers_scenario(strata_error *err) {
    strata_strategy *strategy = NULL;
    strata_status status = make_strategy(1, true, &strategy, err);
    if (!status) status = fit_with(strategy, test_path("workers.checkpoint"), err);
    destroy_strategy(strategy);
    return status;
}

Test(alloc_strategies, fit_on_two_devices) {
    fail_each_allocation("mirrored", mirrored_scenario, 1, 1, 100000);
}

Test(alloc_strategies, fit_with_workers) {
    fail_each_allocation("workers", workers_scenario, 1, 1, 100000);
}

/* The first pieces of memory that a step takes after it was divided, for itself and for its first part. */
Test(alloc_strategies, the_parts_of_a_step) {
    enum { PIECES = 3 };
    strata_error err = {0};
    cr_assert_eq(mirrored_scenario(&err), STRATA_OK, "%s", err.message); /* libraries keep memory until the process ends */
    for (int k = 1; k <= PIECES; k++) {
        const int64_t before = shim_live();
        shim_fail_after_partition(k);
        const strata_status status = mirrored_scenario(&err);
        const bool failed = shim_failed();
        shim_fail_after_partition(0);
        cr_assert(failed && status == STRATA_OUT_OF_MEMORY, "piece %d: %s \"%s\"", k, strata_status_name(status), err.message);
        cr_assert_eq(shim_live(), before, "piece %d: %d blocks leak", k, (int)(shim_live() - before));
    }
}

/* ---- a custom loop ---- */

static strata_status merge(strata_strategy *strategy, const strata_per_replica *values, strata_per_replica *results, void *user,
                           strata_error *err) {
    (void)strategy, (void)user, (void)err;
    for (int r = 0; r < results->n; r++)
        memcpy(results->arrays[r].data, values->arrays[r].data, strata_array_bytes(&results->arrays[r]));
    return STRATA_OK;
}

typedef struct parts {
    strata_distributed_variable *variable;
    strata_model *model;
    strata_distributed_optimizer *optimizer;
    bool merges;
} parts;

static strata_status step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    const parts *p = user;
    strata_tensor *y = strata_model_apply(p->model, replica, inputs[0], true);
    strata_tensor *loss = strata_replica_average_loss(replica, strata_example_losses("mse", NULL, y, inputs[1]));
    strata_optimizer_minimize(replica, p->optimizer, loss, strata_model_variables(p->model));
    strata_tensor *sum = strata_replica_all_reduce(replica, loss, STRATA_REDUCE_SUM);
    strata_replica_assign(replica, p->variable, sum);
    strata_replica_return(replica, strata_replica_all_gather(replica, inputs[1], 0));
    strata_replica_return(replica, p->merges ? strata_replica_merge_call(replica, merge, NULL, sum) : sum);
    return strata_graph_check(strata_replica_graph(replica), err);
}

static strata_status one_row(const strata_value_context *context, void *user, strata_array *out, strata_error *err) {
    (void)context, (void)user;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(1), out, err));
    memset(out->data, 0, strata_array_bytes(out));
    return STRATA_OK;
}

static strata_status run_loop(strata_strategy *strategy, parts *p, strata_error *err) {
    strata_dataset *dataset = NULL;
    strata_distributed_batches *batches = NULL;
    strata_function *function = NULL;
    strata_per_replica inputs[2] = {{0}}, outputs[2] = {{0}}, rows = {0};
    strata_array all = {0}, mean = {0};
    float number = 1;
    strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(), &number);
    int64_t n = 0;
    STRATA_TRY(make_points(4, &dataset, err));
    const strata_distributed_batches_options opts = {.global_batch = 2};
    strata_status status = strata_distributed_batches_create(strategy, dataset, &opts, &batches, err);
    if (!status) status = strata_function_create(strategy, step, p, &function, err);
    if (!status) status = strata_distributed_batches_next(batches, inputs, &n, err);
    if (!status) status = strata_strategy_run(function, inputs, 2, outputs, 2, err);
    if (!status) status = strata_distributed_set(p->variable, &value, err);
    if (!status) status = strata_distributed_get(p->variable, &value, err);
    if (!status) status = strata_strategy_distribute_values(strategy, one_row, NULL, &rows, err);
    if (!status) status = strata_strategy_gather(strategy, &rows, 0, &all, err);
    if (!status) status = strata_strategy_reduce(strategy, &rows, STRATA_REDUCE_MEAN, 0, &mean, err);
    for (int i = 0; i < 2; i++) strata_per_replica_finish(&outputs[i]);
    strata_per_replica_finish(&rows);
    strata_array_finish(&all);
    strata_array_finish(&mean);
    strata_distributed_batches_destroy(batches);
    strata_dataset_destroy(dataset);
    return status;
}

/* devices 0: a mesh of two devices. */
static strata_status loop(int devices, bool workers, strata_error *err) {
    static const char *const hosts[] = {"host", "host"};
    const strata_strategy_options mesh = {.devices = hosts, .n_devices = 2, .mesh = "data=2"};
    strata_strategy *strategy = NULL;
    const strata_optimizer adam = strata_adam_optimizer(0.01);
    const strata_distributed_options mean = {.synchronization = STRATA_ON_WRITE, .aggregation = STRATA_AGGREGATION_MEAN};
    parts p = {.merges = devices > 0};
    STRATA_TRY(devices ? make_strategy(devices, workers, &strategy, err)
                       : strata_strategy_create("model_parallel", &mesh, &strategy, err));
    strata_status status = strata_strategy_enter(strategy, err);
    if (!status) status = strata_distributed_create("v", STRATA_DTYPE_F32, STRATA_SHAPE(), &mean, &p.variable, err);
    if (!status) status = strata_model_create(STRATA_SHAPE(FEATURES), &p.model, err);
    if (!status) {
        strata_model_add_dense(p.model, (strata_dense_options){.units = 1});
        status = strata_model_build(p.model, NULL, &(strata_compile_options){.strategy = strategy}, err);
    }
    if (!status) status = strata_distributed_optimizer_create(&adam, &p.optimizer, err);
    const strata_status left = strata_strategy_exit(strategy, status ? NULL : err);
    if (!status) status = left;
    if (!status) status = run_loop(strategy, &p, err);
    strata_model_destroy(p.model);
    destroy_strategy(strategy);
    return status;
}

static strata_status loop_scenario(strata_error *err) {
    return loop(2, false, err);
}

static strata_status loop_of_workers_scenario(strata_error *err) {
    return loop(1, true, err);
}

Test(alloc_strategies, a_custom_loop_on_two_devices) {
    fail_each_allocation("loop", loop_scenario, 1, 1, 100000);
}

static strata_status loop_on_a_mesh_scenario(strata_error *err) {
    return loop(0, false, err);
}

Test(alloc_strategies, a_custom_loop_on_a_mesh) {
    fail_each_allocation("loop on a mesh", loop_on_a_mesh_scenario, 1, 1, 100000);
}

Test(alloc_strategies, a_custom_loop_of_workers) {
    fail_each_allocation("loop of workers", loop_of_workers_scenario, 1, 1, 100000);
}

/* ---- a parameter server ---- */

/* Pushes gradients of 0 for both shares of a step, ends the step, and reads the values. */
static strata_status use_store(strata_ps_stock *store, const strata_ps_plan *plan, int n_shares, strata_error *err) {
    static float values[1000], zeros[1000];
    strata_ps_close close = {.scale = 1, .rate = -1, .square = -1, .counted = {3}};
    int64_t staleness = 0, t = 0, version = 0;
    if (strata_ps_plan_elements(plan, 0) > 1000) return strata_fail(err, STRATA_INTERNAL, "the test's model is too large");
    STRATA_TRY(strata_ps_stock_set(store, zeros, 0, 0, err));
    for (int share = 0; share < 2; share++) {
        const strata_ps_unit unit = {.index = n_shares ? 0 : share, .share = n_shares ? share : 0};
        const strata_ps_gradients gradients = {.unit = unit, .rate = -1, .dense = zeros, .states = zeros};
        STRATA_TRY(strata_ps_stock_push(store, &gradients, &staleness, err));
    }
    if (n_shares) STRATA_TRY(strata_ps_stock_square(store, &close, &close.square, err));
    if (n_shares) STRATA_TRY(strata_ps_stock_close(store, &close, err));
    STRATA_TRY(strata_ps_stock_pull(store, NULL, false, values, &version, err));
    return strata_ps_stock_get(store, values, &t, err);
}

static strata_status serve(int n_shares, strata_error *err) {
    const strata_partitioner whole = {0};
    const strata_compile_options compile = {.optimizer = strata_adam_optimizer(0.01), .loss = "mse"};
    strata_device *device = NULL;
    strata_model *model = NULL;
    strata_ps_plan plan = {0};
    strata_ps_stock *store = NULL;
    STRATA_TRY(strata_device_open("host", NULL, &device, err));
    strata_status status = strata_model_create(STRATA_SHAPE(FEATURES), &model, err);
    if (!status) {
        strata_model_add_dense(model, (strata_dense_options){.units = 2});
        strata_model_add_batch_norm(model, (strata_batch_norm_options){0});
        strata_model_add_dense(model, (strata_dense_options){.units = 1});
        status = strata_model_compile(model, device, &compile, err);
    }
    if (!status) status = strata_ps_plan_make(model, &whole, 1, &plan, err);
    const strata_ps_stock_options opts = {.n_shares = n_shares, .staleness = n_shares ? 0 : 3};
    if (!status) status = strata_ps_stock_create(model, &plan, 0, device, &opts, &store, err);
    if (!status) status = use_store(store, &plan, n_shares, err);
    strata_ps_stock_destroy(store);
    strata_ps_plan_finish(&plan);
    strata_model_destroy(model);
    strata_device_close(device);
    return status;
}

static strata_status synchronous_scenario(strata_error *err) {
    return serve(2, err);
}

static strata_status asynchronous_scenario(strata_error *err) {
    return serve(0, err);
}

Test(alloc_strategies, a_parameter_server) {
    fail_each_allocation("synchronous server", synchronous_scenario, 1, 1, 100000);
    fail_each_allocation("asynchronous server", asynchronous_scenario, 1, 1, 100000);
}
