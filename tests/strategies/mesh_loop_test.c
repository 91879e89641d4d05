/* SPDX-License-Identifier: Apache-2.0
 *
 * Custom loops under model_parallel. Losses, norms of gradients, predictions and final parameters must be those of the same
 * loop on one device. */
#include <math.h>
#include <stdio.h>

#include "core/graph/variable.h"
#include "core/model/model.h"
#include "tests/strategies/mesh_case.h"

enum { LOSS = 0, SQUARES, PREDICTIONS, N_OUTPUTS, EPOCHS = 2 };

typedef struct loop {
    const mesh_job *job;
    strata_model *model;
    strata_distributed_optimizer *optimizer;
    strata_distributed_variable *total; /* of the losses */
} loop;

typedef struct outcome {
    mesh_numbers outputs[N_OUTPUTS], parameters;
    float total;
    double sent; /* bytes in a step */
    bool equal;
} outcome;

static int n_columns(const mesh_column *columns) {
    int n = 0;
    while (n < MOST_COLUMNS && columns[n].name) n++;
    return n;
}

static strata_tensor *loss_of(const loop *l, strata_replica_context *replica, strata_tensor *const *outputs,
                              strata_tensor *const *labels) {
    strata_tensor *losses = NULL;
    for (int i = 0; i < n_columns(l->job->targets); i++) {
        const char *name = l->job->targets[i].n_classes ? "sparse_categorical_crossentropy" : "mse";
        strata_tensor *own = strata_example_losses(name, NULL, outputs[i], labels[i]);
        losses = losses ? strata_add(losses, own) : own;
    }
    return strata_add(strata_replica_average_loss(replica, losses), strata_replica_penalty(replica, l->model));
}

static strata_status train_step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    const loop *l = user;
    const strata_variables variables = strata_model_variables(l->model);
    strata_tensor *outputs[MOST_COLUMNS], *squares = NULL;
    strata_model_apply_all(l->model, replica, inputs, outputs, true);
    strata_tensor *loss = loss_of(l, replica, outputs, inputs + n_columns(l->job->inputs));
    strata_tensor *const *gradients = strata_replica_gradients(replica, loss, variables);
    for (int i = 0; i < variables.n; i++) {
        strata_tensor *own = strata_reduce_sum(strata_square(gradients[i]), NULL, 0, false);
        squares = squares ? strata_add(squares, own) : own;
    }
    strata_optimizer_apply(replica, l->optimizer, gradients, variables);
    strata_replica_assign(replica, l->total, strata_add(strata_replica_read(replica, l->total), loss));
    strata_replica_return(replica, strata_replica_all_reduce(replica, loss, STRATA_REDUCE_SUM));
    strata_replica_return(replica, squares);
    strata_replica_return(replica, strata_replica_all_gather(replica, outputs[0], 0));
    return strata_graph_check(strata_replica_graph(replica), err);
}

/* What the model predicts after the training; nothing is updated. */
static strata_status predict(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    const loop *l = user;
    strata_tensor *outputs[MOST_COLUMNS];
    strata_model_apply_all(l->model, replica, inputs, outputs, false);
    strata_replica_return(replica, outputs[0]);
    return strata_graph_check(strata_replica_graph(replica), err);
}

/* ---- running it ---- */

static void append(mesh_numbers *to, const strata_array *value) {
    const int64_t n = strata_shape_elements(value->shape);
    to->values = realloc(to->values, (size_t)(to->n + n + 1) * sizeof *to->values);
    cr_assert_not_null(to->values);
    memcpy(to->values + to->n, value->data, (size_t)n * sizeof *to->values);
    to->n += n;
}

/* Rows [first, first + n) of an array. */
static strata_array rows_of(const strata_array *whole, int64_t first, int64_t n) {
    strata_shape shape = whole->shape;
    const size_t row = strata_array_bytes(whole) / (size_t)shape.dims[0];
    shape.dims[0] = n;
    return strata_array_view(whole->dtype, shape, (char *)whole->data + (size_t)first * row);
}

static void run_epochs(const mesh_job *job, strata_function *function, const mesh_data *data, outcome *out) {
    strata_per_replica inputs[2 * MOST_COLUMNS], outputs[N_OUTPUTS] = {{0}};
    strata_array parts[2 * MOST_COLUMNS];
    for (int64_t i = 0; i < EPOCHS * job->n; i += job->batch) {
        const int64_t first = i % job->n, n = job->n - first < job->batch ? job->n - first : job->batch;
        for (int k = 0; k < data->n_arrays; k++) {
            parts[k] = rows_of(&data->arrays[k], first, n);
            inputs[k] = (strata_per_replica){.n = 1, .arrays = &parts[k]};
        }
        OK(strata_strategy_run(function, inputs, data->n_arrays, outputs, N_OUTPUTS, &mesh_error));
        for (int k = 0; k < N_OUTPUTS; k++) append(&out->outputs[k], &outputs[k].arrays[0]);
        if (n < job->batch) i -= job->batch - n;
    }
    for (int k = 0; k < N_OUTPUTS; k++) strata_per_replica_finish(&outputs[k]);
}

static void predict_all(const loop *l, strata_strategy *strategy, mesh_data *data, outcome *out) {
    strata_function *function = NULL;
    strata_per_replica inputs[MOST_COLUMNS], predictions = {0};
    const int n = n_columns(l->job->inputs);
    for (int i = 0; i < n; i++) inputs[i] = (strata_per_replica){.n = 1, .arrays = &data->arrays[i]};
    OK(strata_function_create(strategy, predict, (void *)l, &function, &mesh_error));
    OK(strata_strategy_run(function, inputs, n, &predictions, 1, &mesh_error));
    append(&out->outputs[PREDICTIONS], &predictions.arrays[0]);
    strata_per_replica_finish(&predictions);
}

static loop loop_create(const mesh_job *job, strata_strategy *strategy) {
    const strata_distributed_options summed = {STRATA_ON_READ, STRATA_AGGREGATION_SUM, NULL};
    loop l = {.job = job};
    OK(strata_model_from_json(job->model, strlen(job->model), "test", &l.model, &mesh_error));
    OK(strata_model_build(l.model, NULL, &(strata_compile_options){.strategy = strategy, .seed = 3}, &mesh_error));
    OK(strata_strategy_enter(strategy, &mesh_error));
    OK(strata_distributed_optimizer_create(&job->optimizer, &l.optimizer, &mesh_error));
    OK(strata_distributed_create("total", STRATA_DTYPE_F32, STRATA_SHAPE(), &summed, &l.total, &mesh_error));
    OK(strata_strategy_exit(strategy, &mesh_error));
    return l;
}

static outcome run(const mesh_job *job, const mesh_setup *setup) {
    outcome out = {.parameters = {0}};
    strata_function *function = NULL;
    strata_strategy *strategy = mesh_strategy(setup);
    mesh_data data = mesh_data_make(job, job->n, 20);
    loop l = loop_create(job, strategy);
    strata_array total = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(), &out.total);
    OK(strata_function_create(strategy, train_step, &l, &function, &mesh_error));
    run_epochs(job, function, &data, &out);
    predict_all(&l, strategy, &data, &out);
    OK(strata_distributed_get(l.total, &total, &mesh_error));
    out.sent = strata_function_communication(function).bytes_per_step;
    OK(strata_model_replicas_equal(l.model, &out.equal, &mesh_error));
    out.parameters = mesh_parameters(l.model);
    strata_strategy_destroy(strategy); /* with all that was made with it */
    mesh_data_free(&data);
    return out;
}

static void outcome_free(outcome *o) {
    for (int i = 0; i < N_OUTPUTS; i++) free(o->outputs[i].values);
    free(o->parameters.values);
}

/* ---- comparing it ---- */

static void expect_like_one(const mesh_job *job, const mesh_setup *setup) {
    static const char *const kinds[] = {"losses", "squares of gradients", "predictions"};
    char what[96];
    snprintf(what, sizeof what, "%s, ZeRO %d", setup->mesh, setup->zero);
    outcome one = run(job, &(mesh_setup){0}), got = run(job, setup);
    for (int i = 0; i < N_OUTPUTS; i++) mesh_expect_numbers(&got.outputs[i], &one.outputs[i], 1e-5, what, kinds[i]);
    mesh_expect_numbers(&got.parameters, &one.parameters, 1e-5, what, "parameters");
    cr_assert(mesh_near((double)got.total, (double)one.total, 1e-5), "%s: %.9g is not %.9g", what, (double)got.total,
              (double)one.total);
    /* Small layers are whole on every device unless a layout divides them. */
    if (setup->layout || strncmp(setup->mesh, "tensor", 6)) cr_assert_gt(got.sent, 0, "%s: nothing is sent", what);
    cr_assert(got.equal, "%s: copies of the parameters differ", what);
    outcome_free(&one);
    outcome_free(&got);
}

static void expect_every_mesh_like_one(const mesh_job *job) {
    for (int i = 0; i < N_MESHES; i++) expect_like_one(job, &(mesh_setup){.mesh = mesh_names[i]});
}

Test(mesh_loop, dense_layers_train_as_on_one_device) {
    expect_every_mesh_like_one(&mesh_dense);
    expect_like_one(&mesh_dense, &(mesh_setup){.mesh = "data=2"});
}

Test(mesh_loop, parameters_in_parts_train_as_on_one_device) {
    static const char *const meshes[] = {"tensor=2", "tensor=3", "stage=2,tensor=2", "data=2,tensor=2"};
    static const char layout[] =
        "{\"dense(_[0-9]+)?/kernel\": [null, \"tensor\"], \"dense(_[0-9]+)?/bias\": [\"tensor\"], \"y/kernel\": [\"tensor\", "
        "null]}";
    for (int i = 0; i < 4; i++) expect_like_one(&mesh_dense, &(mesh_setup){.mesh = meshes[i], .layout = layout});
    for (int zero = 1; zero <= 3; zero++)
        expect_like_one(&mesh_wide, &(mesh_setup){.mesh = "data=2,tensor=2", .layout = layout, .zero = zero});
}

Test(mesh_loop, attention_and_embeddings_train_as_on_one_device) {
    expect_every_mesh_like_one(&mesh_attention);
}

Test(mesh_loop, a_sparse_embedding_trains_as_on_one_device) {
    mesh_job job = mesh_recurrent;
    job.model =
        "{\"input\": [5], \"input_dtype\": \"i32\", \"layers\": [{\"layer\": \"embedding\", \"vocabulary\": 12,"
        "\"units\": 8, \"sparse\": true}, {\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    expect_like_one(&job, &(mesh_setup){.mesh = "stage=2"});
    expect_like_one(&job, &(mesh_setup){.mesh = "data=2,tensor=2"});
}

Test(mesh_loop, two_inputs_two_outputs_and_a_tied_layer_train_as_on_one_device) {
    expect_every_mesh_like_one(&mesh_functional);
}

Test(mesh_loop, penalties_of_layers_are_added) {
    expect_like_one(&mesh_penalized, &(mesh_setup){.mesh = "stage=2"});
    expect_like_one(&mesh_penalized, &(mesh_setup){.mesh = "data=2,tensor=2"});
}

Test(mesh_loop, batch_norm_and_dropout_are_those_of_one_device) {
    mesh_job job = mesh_pictures;
    job.optimizer = strata_sgd_optimizer(0.1, 0.9, false);
    expect_every_mesh_like_one(&job);
    job.model =
        "{\"input\": [6, 6, 3], \"layers\": [{\"layer\": \"conv2d\", \"filters\": 4, \"kernel_size\": 3},"
        "{\"layer\": \"batch_norm\", \"synchronized\": true, \"activation\": \"relu\"}, {\"layer\": \"dropout\", \"rate\": "
        "0.25},"
        "{\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    expect_like_one(&job, &(mesh_setup){.mesh = "data=2"});
    expect_like_one(&job, &(mesh_setup){.mesh = "data=2,stage=2"});
}

Test(mesh_loop, a_batch_may_have_fewer_examples_than_the_axis_data) {
    mesh_job job = mesh_dense;
    job.n = 7;
    job.batch = 3;
    expect_like_one(&job, &(mesh_setup){.mesh = "data=2"});
    expect_like_one(&job, &(mesh_setup){.mesh = "data=2,stage=2"});
    expect_like_one(&job, &(mesh_setup){.mesh = "data=2,tensor=2"});
}

Test(mesh_loop, norms_and_parts_of_slots_are_those_of_one_device) {
    static const strata_optimizer optimizers[] = {{.name = "adam", .learning_rate = 0.003},
                                                  {.name = "adamw", .learning_rate = 0.003, .clip_global_norm = 0.1},
                                                  {.name = "lamb", .learning_rate = 0.01}};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        for (int zero = 0; zero <= 3; zero++) {
            mesh_job job = mesh_wide;
            job.optimizer = optimizers[i];
            expect_like_one(&job, &(mesh_setup){.mesh = "data=2,tensor=2", .zero = zero});
        }
}

Test(mesh_loop, devices_of_several_kinds_train_as_one) {
    static const char *const mixed[] = {"host", "opencl:0", "vulkan:0", "host"};
    strata_device *devices[2] = {NULL};
    const bool there =
        !strata_device_open(mixed[1], NULL, &devices[0], NULL) && !strata_device_open(mixed[2], NULL, &devices[1], NULL);
    for (int i = 0; i < 2; i++) strata_device_close(devices[i]);
    if (!there) cr_skip_test("opencl:0 or vulkan:0 is not there");
    expect_like_one(&mesh_dense, &(mesh_setup){.mesh = "tensor=3", .devices = mixed});
    expect_like_one(&mesh_dense, &(mesh_setup){.mesh = "data=2,stage=2", .devices = mixed});
    expect_like_one(&mesh_wide, &(mesh_setup){.mesh = "data=2,tensor=2", .devices = mixed, .zero = 1});
}

/* ---- with the batches of a dataset, as fit ---- */

static void fit_by_hand(const mesh_job *job, const mesh_data *data, strata_strategy *strategy, loop *l) {
    const strata_distributed_batches_options opts = {.global_batch = job->batch, .shuffle = true, .seed = 5};
    strata_function *function = NULL;
    strata_distributed_batches *batches = NULL;
    strata_per_replica outputs[N_OUTPUTS * 3] = {{0}};
    OK(strata_function_create(strategy, train_step, l, &function, &mesh_error));
    OK(strata_distributed_batches_create(strategy, data->dataset, &opts, &batches, &mesh_error));
    for (int epoch = 0; epoch < job->epochs; epoch++) {
        OK(strata_distributed_batches_set_epoch(batches, (uint64_t)epoch, &mesh_error));
        for (int n = 3; n == 3;) OK(strata_strategy_run_batches(function, batches, 3, outputs, N_OUTPUTS, &n, &mesh_error));
    }
    for (int i = 0; i < N_OUTPUTS * 3; i++) strata_per_replica_finish(&outputs[i]);
}

Test(mesh_loop, a_loop_over_batches_trains_as_fit) {
    static const char *const meshes[] = {"data=2", "data=2,tensor=2", "stage=2"};
    for (int i = 0; i < 3; i++) {
        const mesh_setup setup = {.mesh = meshes[i]};
        mesh_outcome fitted = mesh_run(&mesh_dense, &setup);
        strata_strategy *strategy = mesh_strategy(&setup);
        mesh_data data = mesh_data_make(&mesh_dense, mesh_dense.n, 20);
        loop l = loop_create(&mesh_dense, strategy);
        fit_by_hand(&mesh_dense, &data, strategy, &l);
        mesh_numbers parameters = mesh_parameters(l.model);
        mesh_expect_numbers(&parameters, &fitted.parameters, 1e-5, meshes[i], "parameters");
        free(parameters.values);
        strata_strategy_destroy(strategy);
        mesh_outcome_free(&fitted);
        mesh_data_free(&data);
    }
}

/* ---- variables of one's own ---- */

typedef struct own_variables {
    strata_distributed_variable *w, *rows; /* (6, 1); (8, 6), which has as many rows as the batch */
} own_variables;

/* A step of gradient descent on the mean square of x w - y; the sum of the batches is stored. */
static strata_status descend(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    const own_variables *own = user;
    strata_tensor *w = strata_replica_read(replica, own->w), *rows = strata_replica_read(replica, own->rows);
    strata_tensor *errors = strata_sub(strata_matmul(inputs[0], w, false, false), inputs[1]);
    strata_tensor *loss = strata_reduce_mean(strata_square(errors), NULL, 0, false);
    strata_tensor *const *dw = strata_replica_gradients(replica, loss, (strata_variables){&own->w, 1});
    strata_tensor *sum = strata_replica_all_reduce(replica, dw[0], STRATA_REDUCE_SUM);
    strata_replica_update(replica, own->w, strata_sgd(w, NULL, sum, inputs[2], NULL, 0, false));
    strata_replica_assign(replica, own->rows, strata_add(rows, inputs[0]));
    strata_replica_return(replica, loss);
    return strata_graph_check(strata_replica_graph(replica), err);
}

static mesh_numbers descend_on(const char *mesh) {
    enum { STEPS = 3, ROWS = 8, COLUMNS = 6 };
    mesh_numbers out = {0};
    own_variables own;
    float words[STRATA_STEP_WORDS] = {0.1F}, x[ROWS * COLUMNS], y[ROWS];
    strata_array arrays[3] = {strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, COLUMNS), x),
                              strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, 1), y),
                              strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS), words)};
    strata_per_replica inputs[3] = {{1, &arrays[0], 0, 0}, {1, &arrays[1], 0, 0}, {1, &arrays[2], 0, 0}}, loss = {0};
    const strata_distributed_options mean = {STRATA_ON_WRITE, STRATA_AGGREGATION_MEAN, NULL};
    strata_strategy *strategy = mesh_strategy(&(mesh_setup){.mesh = mesh});
    strata_function *function = NULL;
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)(i * 7 % 11) / 11;
    for (int i = 0; i < ROWS; i++) y[i] = (float)(i % 3);
    OK(strata_strategy_enter(strategy, &mesh_error));
    OK(strata_distributed_create("w", STRATA_DTYPE_F32, STRATA_SHAPE(COLUMNS, 1), &mean, &own.w, &mesh_error));
    OK(strata_distributed_create("rows", STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, COLUMNS), &mean, &own.rows, &mesh_error));
    OK(strata_strategy_exit(strategy, &mesh_error));
    OK(strata_function_create(strategy, descend, &own, &function, &mesh_error));
    for (int i = 0; i < STEPS; i++) OK(strata_strategy_run(function, inputs, 3, &loss, 1, &mesh_error));
    append(&out, &loss.arrays[0]);
    OK(strata_distributed_get(own.rows, &arrays[0], &mesh_error));
    append(&out, &arrays[0]);
    arrays[0] = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(COLUMNS, 1), x);
    for (int r = 0; r < strata_strategy_num_local_replicas(strategy); r++) {
        OK(strata_variable_get(strata_distributed_copy(own.w, r), &arrays[0], &mesh_error));
        if (!r) append(&out, &arrays[0]);
        cr_assert_arr_eq(x, out.values + out.n - COLUMNS, sizeof(float) * COLUMNS, "%s: copy %d differs", mesh, r);
    }
    strata_per_replica_finish(&loss);
    strata_strategy_destroy(strategy);
    return out;
}

Test(mesh_loop, variables_of_ones_own_are_those_of_one_device) {
    static const char *const meshes[] = {"data=2", "tensor=2", "stage=2", "data=2,stage=2"};
    mesh_numbers one = descend_on(NULL);
    for (int i = 0; i < 4; i++) {
        mesh_numbers got = descend_on(meshes[i]);
        mesh_expect_numbers(&got, &one, 1e-5, meshes[i], "numbers");
        free(got.values);
    }
    free(one.values);
}

/* ---- gradients that are kept ---- */

enum { MOST_KEPT = 16 };

typedef struct kept {
    loop l;
    strata_distributed_variable *gradients[MOST_KEPT];
} kept;

static strata_status keep_gradients(strata_replica_context *replica, strata_tensor *const *inputs, void *user,
                                    strata_error *err) {
    kept *k = user;
    const strata_variables variables = strata_model_variables(k->l.model);
    strata_tensor *outputs = strata_model_apply(k->l.model, replica, inputs[0], true);
    strata_tensor *const *gradients =
        strata_replica_gradients(replica, loss_of(&k->l, replica, &outputs, inputs + 1), variables);
    for (int i = 0; i < variables.n; i++) strata_replica_assign(replica, k->gradients[i], gradients[i]);
    return strata_graph_check(strata_replica_graph(replica), err);
}

/* The model is not applied, and the function has no input. */
static strata_status apply_kept(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    kept *k = user;
    const strata_variables variables = strata_model_variables(k->l.model);
    strata_tensor *gradients[MOST_KEPT];
    for (int i = 0; i < variables.n; i++) gradients[i] = strata_replica_read(replica, k->gradients[i]);
    strata_optimizer_apply(replica, k->l.optimizer, gradients, variables);
    (void)inputs;
    return strata_graph_check(strata_replica_graph(replica), err);
}

static mesh_numbers train_kept(const char *mesh) {
    const strata_distributed_options summed = {STRATA_ON_WRITE, STRATA_AGGREGATION_SUM, NULL};
    strata_strategy *strategy = mesh_strategy(&(mesh_setup){.mesh = mesh});
    mesh_data data = mesh_data_make(&mesh_dense, 8, 20);
    kept k = {.l = loop_create(&mesh_dense, strategy)};
    const strata_variables variables = strata_model_variables(k.l.model);
    strata_function *compute = NULL, *apply = NULL;
    strata_per_replica inputs[2] = {{1, &data.arrays[0], 0, 0}, {1, &data.arrays[1], 0, 0}};
    cr_assert_leq(variables.n, MOST_KEPT);
    OK(strata_strategy_enter(strategy, &mesh_error));
    for (int i = 0; i < variables.n; i++)
        OK(strata_distributed_create("gradient", STRATA_DTYPE_F32, variables.items[i]->whole->shape, &summed, &k.gradients[i],
                                     &mesh_error));
    OK(strata_strategy_exit(strategy, &mesh_error));
    OK(strata_function_create(strategy, keep_gradients, &k, &compute, &mesh_error));
    OK(strata_function_create(strategy, apply_kept, &k, &apply, &mesh_error));
    for (int i = 0; i < 3; i++) {
        OK(strata_strategy_run(compute, inputs, 2, NULL, 0, &mesh_error));
        OK(strata_strategy_run(apply, NULL, 0, NULL, 0, &mesh_error));
    }
    mesh_numbers parameters = mesh_parameters(k.l.model);
    strata_strategy_destroy(strategy);
    mesh_data_free(&data);
    return parameters;
}

Test(mesh_loop, an_update_may_be_in_another_function_than_the_gradients) {
    static const char *const meshes[] = {"data=2,tensor=2", "stage=2"};
    mesh_numbers one = train_kept(NULL);
    for (int i = 0; i < 2; i++) {
        mesh_numbers got = train_kept(meshes[i]);
        mesh_expect_numbers(&got, &one, 1e-5, meshes[i], "parameters");
        free(got.values);
    }
    free(one.values);
}

/* ---- what a mesh does not have ---- */

static strata_status merge(strata_strategy *strategy, const strata_per_replica *values, strata_per_replica *results, void *user,
                           strata_error *err) {
    (void)strategy, (void)values, (void)results, (void)user;
    return strata_fail(err, STRATA_INTERNAL, "it is called");
}

/* user: a variable of one device; NULL: there is none. */
static strata_status merge_or_read(strata_replica_context *replica, strata_tensor *const *inputs, void *user,
                                   strata_error *err) {
    strata_graph *graph = strata_replica_graph(replica);
    strata_replica_return(
        replica, user ? strata_variable_read(graph, user) : strata_replica_merge_call(replica, merge, NULL, inputs[0]));
    return strata_graph_check(graph, err);
}

static void expect_refused(strata_strategy *strategy, void *user, const strata_per_replica *input, strata_status status,
                           const char *text) {
    strata_function *function = NULL;
    OK(strata_function_create(strategy, merge_or_read, user, &function, &mesh_error));
    FAILS(strata_strategy_run(function, input, 1, NULL, 0, &mesh_error), status, text);
}

Test(mesh_loop, what_needs_replicas_says_so) {
    strata_strategy *strategy = mesh_strategy(&(mesh_setup){.mesh = "stage=2", .microbatches = 2});
    strata_function *function = NULL;
    FAILS(strata_function_create(strategy, merge_or_read, NULL, &function, &mesh_error), STRATA_UNSUPPORTED,
          "microbatches is 2, but");
    strata_strategy_destroy(strategy);
    mesh_data data = mesh_data_make(&mesh_dense, 8, 20);
    strategy = mesh_strategy(&(mesh_setup){.mesh = "stage=2"});
    loop l = loop_create(&mesh_dense, strategy);
    strata_distributed_variable *first = strata_model_variables(l.model).items[0];
    strata_per_replica input = {1, &data.arrays[0], 0, 0}, values = {0};
    expect_refused(strategy, NULL, &input, STRATA_UNSUPPORTED, "merge_call");
    expect_refused(strategy, strata_distributed_copy(l.total, 1), &input, STRATA_INVALID, "strata_replica_read");
    FAILS(strata_distributed_get(first, &data.arrays[0], &mesh_error), STRATA_UNSUPPORTED, "strata_distributed_get");
    FAILS(strata_distributed_set(first, &data.arrays[0], &mesh_error), STRATA_UNSUPPORTED, "strata_distributed_set");
    OK(strata_per_replica_create(2, &values, &mesh_error));
    OK(strata_function_create(strategy, merge_or_read, NULL, &function, &mesh_error));
    FAILS(strata_strategy_run(function, &values, 1, NULL, 0, &mesh_error), STRATA_INVALID, "input 0 has 2 values");
    strata_per_replica_finish(&values);
    strata_strategy_destroy(strategy);
    mesh_data_free(&data);
}
