/* SPDX-License-Identifier: Apache-2.0
 *
 * Custom training loops with several workers: reductions, gathers and variables over the replicas of all workers. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/cluster/workers.h"

/* ---- the loop ---- */

enum { REPLICAS = 4 };

/* The outputs of each replica of all workers, and the values that each worker gets afterwards. */
typedef struct loop {
    int workers, devices; /* workers, and devices of each of them: REPLICAS in all */
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

/* The result of replica r is the sum of its own value and those of the replicas before it: 1, 1 + 2, 1 + 2 + 3, ... */
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

/* inputs: a number, and a tensor whose number of rows is the replica's number + 1 in the last run. */
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
    /* The loss of replica r is (r + 1) times the sum of the squares of all values, so dx = 2 x (1 + 2 + 3 + 4). */
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

/* All replicas but replica 0 get *user more rows. So shapes change between runs, but not on replica 0. */
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
    for (int more = 1; more >= 0; more--) { /* the second run has other shapes, except on replica 0 */
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

/* Runs with four replicas: as four workers with one each, and as two workers with two each. Both must give the same numbers. */
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

/* ---- workers that run different loops ---- */

typedef struct other_loop {
    const char *text; /* in the message on every worker; NULL: they do not fail */
    strata_optimizer optimizer;
    const char *loss;
    int64_t n_examples, batch;
    uint64_t data_seed, order_seed;
    /* Of the model's hidden layers, of an activation outside of it, and of the loss. 0: 2, 0.25, 0.5, 2. */
    int64_t units;
    double dropout, slope, factor;
} other_loop;

/* What the function of a worker uses. */
typedef struct other_parts {
    const other_loop *own;
    strata_model *model;
    strata_distributed_optimizer *optimizer;
} other_parts;

static strata_status other_step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    const other_parts *parts = user;
    const other_loop *own = parts->own;
    strata_tensor *predictions = strata_model_apply(parts->model, replica, inputs[0], true);
    predictions = strata_leaky_relu(predictions, own->slope > 0 ? own->slope : 0.5);
    strata_tensor *loss = strata_replica_average_loss(replica, strata_example_losses(own->loss, NULL, predictions, inputs[1]));
    loss = strata_mul(loss, strata_scalar(strata_replica_graph(replica), STRATA_DTYPE_F32, own->factor > 0 ? own->factor : 2));
    strata_optimizer_minimize(replica, parts->optimizer, loss, strata_model_variables(parts->model));
    strata_replica_return(replica, loss);
    return strata_graph_check(strata_replica_graph(replica), err);
}

static strata_status train_loop(strata_strategy *strategy, const other_loop *own, strata_error *err) {
    strata_model *model = NULL;
    strata_distributed_optimizer *optimizer = NULL;
    strata_dataset *dataset = NULL;
    strata_distributed_batches *batches = NULL;
    strata_function *function = NULL;
    strata_per_replica inputs[2] = {{0}};
    int64_t n = 0;
    double loss = 0;
    const strata_distributed_batches_options opts = {.global_batch = own->batch, .shuffle = true, .seed = own->order_seed};
    STRATA_TRY(strata_strategy_enter(strategy, err));
    STRATA_TRY(strata_model_create(STRATA_SHAPE(3), &model, err));
    strata_model_add_dense(model, (strata_dense_options){.units = own->units ? own->units : 2});
    strata_model_add_dropout(model, (strata_dropout_options){.rate = own->dropout > 0 ? own->dropout : 0.25});
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    STRATA_TRY(strata_model_build(model, NULL, &(strata_compile_options){.strategy = strategy}, err));
    STRATA_TRY(strata_distributed_optimizer_create(&own->optimizer, &optimizer, err));
    STRATA_TRY(strata_strategy_exit(strategy, err));
    STRATA_TRY(strata_dataset_random(STRATA_SHAPE(3), STRATA_SHAPE(1), own->n_examples, own->data_seed, &dataset, err));
    strata_status status = strata_distributed_batches_create(strategy, dataset, &opts, &batches, err);
    other_parts parts = {own, model, optimizer};
    if (!status) status = strata_function_create(strategy, other_step, &parts, &function, err);
    if (!status) status = strata_distributed_batches_next(batches, inputs, &n, err);
    if (!status) status = strata_strategy_run_scalar(function, inputs, 2, STRATA_REDUCE_SUM, &loss, err);
    strata_distributed_batches_destroy(batches);
    strata_dataset_destroy(dataset);
    return status;
}

static strata_test_result run_other_loop(strata_communicator *comm, const void *user) {
    static const other_loop same = {
        .optimizer = {.name = "adam", .learning_rate = 0.01}, .loss = "mse", .n_examples = 9, .batch = 4, .data_seed = 1};
    const other_loop *wrong = user, *own = strata_communicator_rank(comm) == 1 ? wrong : &same;
    strata_error err = {0}, why = {0};
    strata_strategy *strategy = NULL;
    TEST_TRY(open_strategy(comm, 1, &strategy, &err));
    const strata_status status = train_loop(strategy, own, &why);
    strata_strategy_destroy(strategy);
    if (!wrong->text) return status ? strata_test_bad("%s", why.message) : strata_test_ok();
    if (status == STRATA_INVALID && strstr(why.message, wrong->text)) return strata_test_ok();
    return strata_test_bad("\"%s\" is not in: %s %s", wrong->text, strata_status_name(status), why.message);
}

#define ADAM .optimizer = {.name = "adam", .learning_rate = 0.01}
Test(over_workers, a_custom_loop_that_differs_is_refused_on_every_worker) {
    static const other_loop rows[] = {
        {NULL, ADAM, .loss = "mse", .n_examples = 9, .batch = 4, .data_seed = 1},
        {"learning_rate is 0.1 on worker 1 and 0.01 on worker 0", .optimizer = {.name = "adam", .learning_rate = 0.1},
         .loss = "mse", .n_examples = 9, .batch = 4, .data_seed = 1},
        {"name is \"sgd\" on worker 1 and \"adam\" on worker 0", .optimizer = {.name = "sgd", .learning_rate = 0.01},
         .loss = "mse", .n_examples = 9, .batch = 4, .data_seed = 1},
        {"clip_norm is 1 on worker 1 and nothing on worker 0",
         .optimizer = {.name = "adam", .learning_rate = 0.01, .clip_norm = 1}, .loss = "mse", .n_examples = 9, .batch = 4,
         .data_seed = 1},
        {"of the function is", ADAM, .loss = "mae", .n_examples = 9, .batch = 4, .data_seed = 1},
        {"the number of examples of the distributed data is 8 on worker 1 and 9 on worker 0", ADAM, .loss = "mse",
         .n_examples = 8, .batch = 4, .data_seed = 1},
        {"the global batch is 3 on worker 1 and 4 on worker 0", ADAM, .loss = "mse", .n_examples = 9, .batch = 3,
         .data_seed = 1},
        {"the example 0 of the distributed data is (", ADAM, .loss = "mse", .n_examples = 9, .batch = 4, .data_seed = 2},
        {"the seed of the shuffles is 5 on worker 1 and 0 on worker 0", ADAM, .loss = "mse", .n_examples = 9, .batch = 4,
         .data_seed = 1, .order_seed = 5},
        {"layers[0].units is 3 on worker 1 and 2 on worker 0", ADAM, .loss = "mse", .n_examples = 9, .batch = 4, .data_seed = 1,
         .units = 3},
        {"layers[1].rate is 0.75 on worker 1 and 0.25 on worker 0", ADAM, .loss = "mse", .n_examples = 9, .batch = 4,
         .data_seed = 1, .dropout = 0.75},
        {"of the function is 0.125 on worker 1 and 0.5 on worker 0", ADAM, .loss = "mse", .n_examples = 9, .batch = 4,
         .data_seed = 1, .slope = 0.125},
        {"of the function is 3 on worker 1 and 2 on worker 0", ADAM, .loss = "mse", .n_examples = 9, .batch = 4, .data_seed = 1,
         .factor = 3},
    };
    /* Worker 0 has two examples of a batch, and the others have one. */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) RUN(3, run_other_loop, &rows[i]);
}
