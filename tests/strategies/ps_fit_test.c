/* SPDX-License-Identifier: Apache-2.0
 *
 * strata_model_fit under parameter_server, with the models, options and callbacks that programs have: synchronous training has
 * the numbers of one device on the same batches. Every task is a process of its own, as is the training on one device. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/model/model.h"
#include "strata/strata.h"
#include "tests/support/ports.h"

enum { MOST_WORKERS = 3, MOST_SERVERS = 3, MOST_TASKS = 1 + MOST_WORKERS + MOST_SERVERS, MOST_VALUES = 4096, EXAMPLES = 96 };
static const char secret[] = "between all tasks";
static const char *const host[] = {"host"};

/* What the chief, or the one device, found. */
typedef struct result {
    int status;
    pid_t pid;
    char message[400];
    int64_t n_steps, callbacks, epoch_ends, first_step, spread, n_refused;
    /* The last one of the chief. */
    char notice[200];
    /* n_built: how often the own metric's graph was built in fit; n_buckets: of the task's gradient programs. */
    int n_buckets, n_values, n_losses, n_epochs, best_epoch, n_built;
    float values[MOST_VALUES], losses[100];
    double rates[100], norms[100];
    strata_metrics train[8], validation[8];
    /* The first metric besides loss and accuracy: of the validation data, of the training. */
    double more[8], labels[8];
} result;

typedef struct job {
    /* NULL: a model of two dense layers, for make_data's first input and target. */
    strata_status (*make_model)(strata_model **out_model, strata_error *err);
    /* NULL: make_data. */
    strata_status (*make_own_data)(const char *task, strata_dataset **out_dataset, strata_error *err);
    strata_compile_options compile;
    strata_fit_options fit;
    /* How many elements there are besides for validation; 0: none. */
    int validation;
    /* A checkpoint that training goes on from; one that is made after the fit. */
    const char *load, *save;
    strata_parameter_server_options servers;
    /* As in strata_strategy_options; not of the one device. */
    int64_t bytes_per_pack;
    strata_dtype compress;
    int n_workers, n_servers;
} job;

static result *results; /* [0] of parameter_server, [1] of one device */
static char cluster_text[512];

/* ---- the program of all tasks ---- */

static float number(int64_t i, int64_t salt) {
    return (float)(((uint64_t)i * 2654435761u + (uint64_t)salt * 40503u) % 1000) / 500 - 1;
}

/* Inputs "x" (n, 6), "z" (n, 3) and tokens "words" (n, 4) below 11; targets "y" (n, 1) and "kind" (n) below 3. */
static strata_status make_data(int64_t n, int64_t first, bool all, strata_dataset **out_dataset, strata_error *err) {
    strata_array x, z, words, y, kind;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, 6), &x, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, 3), &z, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n, 4), &words, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, 1), &y, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n), &kind, err));
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < 6; k++) ((float *)x.data)[i * 6 + k] = number(first + i, k);
        for (int k = 0; k < 3; k++) ((float *)z.data)[i * 3 + k] = number(first + i, 10 + k);
        for (int k = 0; k < 4; k++) ((int32_t *)words.data)[i * 4 + k] = (int32_t)((first + i) * (k + 3) % 11);
        ((float *)y.data)[i] = number(first + i, 0) * 2 - number(first + i, 3);
        ((int32_t *)kind.data)[i] = number(first + i, 10) > 0.3f ? 2 : number(first + i, 11) > 0;
    }
    const strata_data_column inputs[] = {
        {.name = "x", .array = &x}, {.name = "z", .array = &z}, {.name = "words", .array = &words}};
    const strata_data_column targets[] = {{.name = "y", .array = &y}, {.name = "kind", .array = &kind}};
    return all ? strata_dataset_from_columns(inputs, 3, targets, 2, out_dataset, err)
               : strata_dataset_take_arrays(&x, &y, 1, out_dataset, err); /* the process's end frees the rest */
}

static strata_status make_small(strata_model **out_model, strata_error *err) {
    STRATA_TRY(strata_model_create(STRATA_SHAPE(6), out_model, err));
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 8, .activation = "tanh"});
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 1});
    return STRATA_OK;
}

/* What a callback of the test does, on the chief. */
static strata_strategy *strategy_of_chief;
static strata_status (*callback)(const strata_progress *progress, strata_error *err);

/* How often this process has built the graph of its own metric. */
static int n_built;
/* The first process that begins with the rest of the validation data (REST) is killed. */
static bool ends_at_rest;
/* A callback kills a server; what was killed starts again. */
static bool kills_server, restarts;

static strata_status on_progress(const strata_progress *progress, void *user, strata_error *err) {
    result *r = user;
    if (progress->epoch_end) {
        if (progress->validation.n) r->more[r->epoch_ends] = progress->validation.more[0].value;
        if (progress->metrics.n) r->labels[r->epoch_ends] = progress->metrics.more[0].value;
        r->train[r->epoch_ends] = progress->metrics;
        r->validation[r->epoch_ends++] = progress->validation;
    } else if (r->callbacks < 100) {
        r->norms[r->callbacks] = progress->gradient_norm;
        r->rates[r->callbacks++] = progress->learning_rate;
    }
    return callback ? callback(progress, err) : STRATA_OK;
}

static strata_status keep_values(strata_model *model, result *r, strata_error *err) {
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        strata_array values;
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(model, i).shape, &values, err));
        STRATA_TRY(strata_model_get_parameter(model, i, &values, err));
        const int64_t n = strata_shape_elements(values.shape);
        if (r->n_values + n > MOST_VALUES) return strata_fail(err, STRATA_INTERNAL, "the test's model is too large");
        memcpy(r->values + r->n_values, values.data, (size_t)n * sizeof(float));
        r->n_values += (int)n;
        strata_array_finish(&values);
    }
    return STRATA_OK;
}

/* name: the task; NULL: one device. */
static strata_status train(const job *j, const char *name, result *r, strata_error *err) {
    static const strata_communicator_options security = {
        .secret = secret, .secret_bytes = sizeof secret, .connect_seconds = 20};
    strata_parameter_server_options servers = j->servers;
    servers.cluster = cluster_text;
    servers.task = name;
    servers.communication = &security;
    const strata_strategy_options opts = {.devices = host,
                                          .n_devices = 1,
                                          .bytes_per_pack = name ? j->bytes_per_pack : 0,
                                          .compress = name ? j->compress : 0,
                                          .parameter_server = name ? &servers : NULL};
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_dataset *data = NULL, *validation = NULL;
    strata_history history = {0};
    strata_compile_options compile = j->compile;
    strata_fit_options fit = j->fit;
    STRATA_TRY(strata_strategy_create(name ? "parameter_server" : "one_device", &opts, &strategy, err));
    strategy_of_chief = strategy;
    STRATA_TRY((j->make_model ? j->make_model : make_small)(&model, err));
    compile.strategy = strategy;
    if (!j->make_model) compile.loss = "mse";
    if (!compile.seed) compile.seed = 3;
    STRATA_TRY(strata_model_compile(model, NULL, &compile, err));
    const bool all = strata_model_n_inputs(model) > 1;
    STRATA_TRY(j->make_own_data ? j->make_own_data(name, &data, err) : make_data(EXAMPLES, 0, all, &data, err));
    if (j->validation) STRATA_TRY(make_data(j->validation, 5000, all, &validation, err));
    fit.validation = validation;
    fit.on_progress = on_progress;
    fit.user = r;
    const bool leads = !name || !strcmp(name, "chief");
    int epochs = 0;
    if (j->load && leads) {
        STRATA_TRY(strata_model_load_checkpoint(model, j->load, &epochs, err));
        fit.first_epoch = epochs;
        fit.first_step = r->first_step = strata_model_epoch_steps(model);
        if (!epochs && !fit.first_step) return strata_fail(err, STRATA_DATA, "there is no checkpoint");
    }
    const int built = n_built;
    STRATA_TRY(strata_model_fit(model, data, &fit, &history, err));
    r->n_built = n_built - built;
    for (const strata_model_program *p = model->programs; p; p = p->next)
        if (p->kind == STRATA_PROGRAM_GRADIENTS) r->n_buckets = p->layout.n_buckets;
    if (j->save && leads) STRATA_TRY(strata_model_save_checkpoint(model, fit.epochs, j->save, err));
    r->n_steps = history.n_steps;
    r->n_losses = history.n_losses;
    r->n_epochs = history.n_epochs;
    r->best_epoch = history.best_epoch;
    memcpy(r->losses, history.losses, sizeof r->losses);
    return keep_values(model, r, err);
}

static void be(const job *j, const char *name, result *r) {
    strata_error err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    r->pid = getpid();
    r->status = train(j, name, r, &err);
    snprintf(r->message, sizeof r->message, "%.399s", err.message);
    _exit(0);
}

/* ---- jobs ---- */

static void write_cluster(int n_workers, int n_servers) {
    unsigned next = 0;
    size_t used = 0;
    const char *const begins[] = {"chief=", ";worker=", ";ps="};
    const int n[] = {1, n_workers, n_servers};
    for (int type = 0; type < 3; type++)
        for (int i = 0; i < n[type]; i++) {
            const uint16_t port = test_port(&next);
            if (!port) cr_skip_test("no sockets here");
            used += (size_t)snprintf(cluster_text + used, sizeof cluster_text - used, "%s127.0.0.1:%u", i ? "," : begins[type],
                                     port);
        }
}

enum { DIED = -1 };

/* Runs all tasks, and returns what the chief found. Each of the others must have ended as the chief did. */
static const result *run(const job *j) {
    static const char *const types[] = {"chief", "worker", "ps"};
    const int n[] = {1, j->n_workers ? j->n_workers : 2, j->n_servers ? j->n_servers : 2};
    char names[MOST_TASKS][24];
    int n_tasks = 0;
    write_cluster(n[1], n[2]);
    memset(results, 0, MOST_TASKS * sizeof *results);
    for (int type = 0; type < 3; type++)
        for (int i = 0; i < n[type]; i++) snprintf(names[n_tasks++], sizeof *names, type ? "%s:%d" : "%s", types[type], i);
    for (int t = 0; t < n_tasks; t++) {
        results[t].status = DIED;
        if (!fork()) be(j, names[t], &results[t]);
    }
    int how = 0;
    for (pid_t ended; (ended = wait(&how)) > 0;)
        for (int t = 0; t < n_tasks && restarts && WIFSIGNALED(how); t++)
            if (results[t].pid == ended && !fork()) be(j, names[t], &results[t]);
    for (int t = 1; t < n_tasks; t++)
        if (results[t].status != DIED || !(ends_at_rest || kills_server))
            cr_assert_eq(results[t].status, results[0].status, "%s: \"%s\", and the chief: \"%s\"", names[t],
                         results[t].message, results[0].message);
    return &results[0];
}

static const result *run_alone(const job *j) {
    result *r = &results[MOST_TASKS];
    memset(r, 0, sizeof *r);
    r->status = DIED;
    if (!fork()) be(j, NULL, r);
    while (wait(NULL) > 0) continue;
    return r;
}

static void set_up(void) {
    results = mmap(NULL, (MOST_TASKS + 1) * sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(results != MAP_FAILED);
}

TestSuite(ps_fit, .init = set_up, .timeout = 60);

static void assert_near(double a, double b, const char *what, int i) {
    cr_assert_leq(fabs(a - b), 1e-5 * (1 + fabs(b)), "%s %d: %.8g, on one device %.8g", what, i, a, b);
}

/* Losses of the first steps and all parameters are those of one device. */
static const result *assert_as_alone(const job *j) {
    const result *alone = run_alone(j), *r = run(j);
    cr_assert_eq(alone->status, STRATA_OK, "%s", alone->message);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert(r->n_steps == alone->n_steps && r->n_losses == alone->n_losses && r->n_values == alone->n_values,
              "%lld steps, and %lld", (long long)r->n_steps, (long long)alone->n_steps);
    for (int i = 0; i < r->n_losses; i++) assert_near(r->losses[i], alone->losses[i], "loss", i);
    for (int i = 0; i < r->n_values; i++) assert_near(r->values[i], alone->values[i], "value", i);
    return r;
}

static double first_loss_of(const result *r) {
    double sum = 0;
    for (int i = 0; i < 3; i++) sum += r->losses[i] / 3;
    return sum;
}

static double last_loss_of(const result *r) {
    double sum = 0;
    for (int i = 0; i < 3; i++) sum += r->losses[r->n_losses - 1 - i] / 3;
    return sum;
}

static const strata_parameter_server_options together = {.pace = STRATA_PACE_SYNCHRONOUS};

/* ---- models ---- */

/* Three inputs, of which two go through one layer, and two outputs with losses of their own. */
static strata_status make_with_words(int64_t vocabulary, strata_model **out_model, strata_error *err) {
    STRATA_TRY(strata_model_create_functional(out_model, err));
    strata_model *m = *out_model;
    const strata_value *x = strata_model_input(m, "x", STRATA_SHAPE(6), STRATA_DTYPE_F32);
    const strata_value *z = strata_model_input(m, "z", STRATA_SHAPE(3), STRATA_DTYPE_F32);
    const strata_value *words = strata_model_input(m, "words", STRATA_SHAPE(4), STRATA_DTYPE_I32);
    strata_model_add_embedding(m, (strata_embedding_options){.vocabulary = vocabulary, .units = 4, .sparse = true});
    const strata_value *embedded = strata_layer_call(m, NULL, &words, 1);
    strata_model_add_flatten(m, (strata_flatten_options){0});
    const strata_value *flat = strata_layer_call(m, NULL, &embedded, 1);
    strata_model_add_dense(m, (strata_dense_options){.units = 6, .activation = "tanh"});
    const strata_value *wide = strata_layer_call(m, NULL, &z, 1);
    strata_model_add_dense(m, (strata_dense_options){.units = 5, .activation = "relu", .name = "shared"});
    const strata_value *sides[] = {strata_layer_call(m, "shared", &x, 1), strata_layer_call(m, "shared", &wide, 1), flat};
    strata_model_add_concat(m, (strata_concat_options){0});
    const strata_value *both = strata_layer_call(m, NULL, sides, 3);
    strata_model_add_dense(m, (strata_dense_options){.units = 1, .name = "y"});
    strata_model_output(m, strata_layer_call(m, NULL, &both, 1), (strata_output_options){.loss = "mse", .metrics = "mae"});
    strata_model_add_dense(m, (strata_dense_options){.units = 3, .name = "kind"});
    strata_model_output(m, strata_layer_call(m, NULL, &both, 1),
                        (strata_output_options){.loss = "sparse_categorical_crossentropy", .weight = 0.5});
    return STRATA_OK;
}

/* A batch has more words than the table has rows: its gradient is that of all rows. */
static strata_status make_functional(strata_model **out_model, strata_error *err) {
    return make_with_words(11, out_model, err);
}

/* A batch has fewer words than the table has rows: its gradient is that of the batch's own rows. */
static strata_status make_with_many_words(strata_model **out_model, strata_error *err) {
    return make_with_words(300, out_model, err);
}

Test(ps_fit, tables_with_more_rows_than_a_batch_has_words_train_as_on_one_device) {
    job j = {.make_model = make_with_many_words,
             .compile.optimizer = {.name = "adam", .learning_rate = 0.01},
             .fit = {.epochs = 3, .batch = 16},
             .servers = together};
    assert_as_alone(&j);
    j.servers.partitioner = "fixed:2";
    assert_as_alone(&j);
}

Test(ps_fit, several_inputs_and_outputs_train_as_on_one_device) {
    job j = {.make_model = make_functional,
             .compile.optimizer = {.name = "adam", .learning_rate = 0.01},
             .fit = {.epochs = 3, .batch = 16},
             .validation = 20,
             .servers = together};
    j.servers.partitioner = "fixed:2";
    const result *r = assert_as_alone(&j);
    cr_assert_eq(r->train[2].examples, EXAMPLES);
    cr_assert(last_loss_of(r) < first_loss_of(r));
    assert_near(r->validation[2].loss, results[MOST_TASKS].validation[2].loss, "validation loss", 2);
    cr_assert(r->train[2].n >= 4, "%d: loss and accuracy of two outputs, and mae", r->train[2].n);
}

Test(ps_fit, several_inputs_and_outputs_train_at_their_own_pace) {
    job j = {.make_model = make_functional,
             .compile.optimizer = {.name = "adam", .learning_rate = 0.02},
             .fit = {.epochs = 8, .batch = 8}};
    const result *r = run(&j);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_eq(r->n_steps, 8 * EXAMPLES / 8);
    cr_assert(last_loss_of(r) < 0.7 * first_loss_of(r), "%g after %g", last_loss_of(r), first_loss_of(r));
}

/* ---- buckets ---- */

/* The first worker's programs have buckets. */
static void assert_buckets(void) {
    cr_assert_gt(results[1].n_buckets, 1, "%d", results[1].n_buckets);
}

Test(ps_fit, gradients_in_buckets_train_as_on_one_device) {
    job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.01},
             .fit = {.epochs = 2, .batch = 16},
             .servers = together,
             .bytes_per_pack = 4};
    assert_as_alone(&j);
    assert_buckets();
    j.servers.partitioner = "fixed:2";
    assert_as_alone(&j);
    j.compile.optimizer.gradient_accumulation_steps = 2;
    assert_as_alone(&j);
}

Test(ps_fit, buckets_reach_the_copies_of_shards) {
    job j = {.compile.optimizer = {.name = "sgd", .momentum = 0.9, .learning_rate = 0.01},
             .fit = {.epochs = 2, .batch = 16},
             .servers = together,
             .bytes_per_pack = 4};
    j.servers.replicas = 1;
    assert_as_alone(&j);
    assert_buckets();
}

Test(ps_fit, buckets_travel_as_bf16_at_each_workers_pace) {
    job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.02},
             .fit = {.epochs = 6, .batch = 8},
             .bytes_per_pack = 4,
             .compress = STRATA_DTYPE_BF16};
    const result *r = run(&j);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_eq(r->n_steps, 6 * EXAMPLES / 8);
    cr_assert(last_loss_of(r) < 0.9 * first_loss_of(r), "%g after %g", last_loss_of(r), first_loss_of(r));
    assert_buckets();
}

/* ---- clipping ---- */

Test(ps_fit, gradients_of_synchronous_steps_are_clipped_as_on_one_device) {
    static const strata_optimizer optimizers[] = {{.name = "sgd", .learning_rate = 0.3, .clip_global_norm = 0.05},
                                                  {.name = "sgd", .learning_rate = 0.3, .clip_norm = 0.03},
                                                  {.name = "sgd", .learning_rate = 0.3, .clip_value = 0.01}};
    job plain = {.compile.optimizer = {.name = "sgd", .learning_rate = 0.3}, .fit = {.epochs = 1, .batch = 16}};
    const float unclipped = run_alone(&plain)->values[0];
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
        job j = {.compile.optimizer = optimizers[o], .fit = {.epochs = 2, .batch = 16}, .servers = together};
        if (!optimizers[o].clip_norm) j.servers.partitioner = "fixed:2";
        assert_as_alone(&j);
        j.fit.epochs = 1;
        cr_assert(fabsf(run_alone(&j)->values[0] - unclipped) > 1e-4f, "nothing was clipped");
    }
}

Test(ps_fit, the_norm_of_all_gradients_includes_rows_and_goes_to_copies) {
    job j = {.make_model = make_functional,
             .compile.optimizer = {.name = "sgd", .learning_rate = 0.3, .clip_global_norm = 0.1},
             .fit = {.epochs = 2, .batch = 16},
             .servers = {.pace = STRATA_PACE_SYNCHRONOUS, .replicas = 1, .partitioner = "fixed:3"},
             .n_workers = 3,
             .n_servers = 3};
    assert_as_alone(&j);
}

/* A worker alone that does not pull ahead makes the updates of one device. */
Test(ps_fit, at_its_own_pace_each_workers_gradients_are_clipped) {
    job j = {.compile = {.optimizer = {.name = "sgd", .learning_rate = 0.3, .clip_global_norm = 0.05}, .gradient_norm = true},
             .fit = {.epochs = 2, .batch = 16, .wait_each_step = true},
             .n_workers = 1};
    const result *r = assert_as_alone(&j);
    for (int i = 0; i < r->callbacks; i++) assert_near(r->norms[i], results[MOST_TASKS].norms[i], "norm", i);
    cr_assert_gt(r->norms[0], 0.05);
}

/* ---- learning rates ---- */

static strata_status halve_at_epochs(const strata_progress *p, strata_error *err) {
    if (!p->epoch_end) return STRATA_OK;
    return strata_model_set_learning_rate(p->model, strata_model_learning_rate(p->model) / 2, err);
}

static strata_status change_at_steps(const strata_progress *p, strata_error *err) {
    return p->epoch_end ? STRATA_OK : strata_model_set_learning_rate(p->model, 0.02 / (double)(1 + p->total_step % 4), err);
}

/* As Keras' ReduceLROnPlateau with patience 0: a tenth where the loss has not fallen by 0.5. */
static strata_status reduce_on_plateau(const strata_progress *p, strata_error *err) {
    static double best = INFINITY;
    if (!p->epoch_end) return STRATA_OK;
    const bool better = p->validation.loss < best - 0.5;
    if (better) best = p->validation.loss;
    return better ? STRATA_OK : strata_model_set_learning_rate(p->model, 0.1 * strata_model_learning_rate(p->model), err);
}

Test(ps_fit, rates_that_callbacks_set_reach_the_servers) {
    static strata_status (*const callbacks[])(const strata_progress *, strata_error *) = {halve_at_epochs, reduce_on_plateau,
                                                                                          change_at_steps};
    for (int i = 0; i < 3; i++) {
        job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.02},
                 .fit = {.epochs = 4, .batch = 16, .wait_each_step = i == 2},
                 .validation = 20,
                 .servers = together};
        callback = callbacks[i];
        const result *r = assert_as_alone(&j);
        for (int k = 0; k < r->callbacks; k++)
            assert_near(r->rates[k], results[MOST_TASKS].rates[k], "the reported rate of step", k);
        cr_assert(r->rates[r->callbacks - 1] < 0.019, "it was never changed");
    }
    callback = NULL;
}

Test(ps_fit, schedules_count_the_servers_updates) {
    job j = {.compile.optimizer = {.name = "sgd", .learning_rate = 0.2, .schedule = {.name = "cosine", .steps = 10}},
             .fit = {.epochs = 2, .batch = 16},
             .servers = together};
    assert_as_alone(&j);
}

static strata_status set_within_an_epoch(const strata_progress *p, strata_error *err) {
    return p->epoch_end ? STRATA_OK : strata_model_set_learning_rate(p->model, 0, err);
}

Test(ps_fit, a_rate_set_within_an_epoch_is_that_of_later_batches) {
    job j = {.compile.optimizer = {.name = "sgd", .learning_rate = 0.2}, .fit = {.epochs = 3, .batch = 8}, .servers = together};
    callback = set_within_an_epoch;
    const result *r = run(&j);
    cr_assert_eq(r->status, STRATA_INVALID, "workers are at the next step already");
    cr_assert(strstr(r->message, "wait_each_step"), "%s", r->message);
    j.servers.pace = STRATA_PACE_ASYNCHRONOUS;
    r = run(&j);
    callback = NULL;
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_eq(r->rates[r->callbacks - 1], 0);
    /* Nothing is learned any more: the last epochs' losses are the same numbers. */
    const double second = r->train[1].loss, third = r->train[2].loss;
    assert_near(third, second, "the loss of an epoch without learning", 2);
}

/* ---- what programs register ---- */

static strata_tensor *build_wave(const void *options, strata_layer_context *context, strata_tensor *const *x, int n) {
    strata_graph *graph = strata_tensor_graph(x[n - 1]);
    strata_tensor *gain =
        strata_layer_parameter(context, graph, "gain", STRATA_SHAPE(strata_tensor_shape(x[0]).dims[1]), "ones", 0, 0);
    (void)options;
    return strata_mul(strata_sin(x[0]), gain);
}

/* Labels may be (B), outputs are (B, 1). */
static strata_tensor *error_of(strata_tensor *outputs, strata_tensor *labels) {
    return strata_sub(outputs, strata_reshape(labels, strata_tensor_shape(outputs)));
}

static strata_tensor *build_quartic(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels) {
    const int axis = 1;
    (void)opts;
    return strata_reduce_sum(strata_square(strata_square(error_of(outputs, labels))), &axis, 1, false);
}

/* The rest of the validation data, after whole batches: a batch that training does not have. */
enum { REST = 5 };

static strata_tensor *build_bias(strata_tensor *outputs, strata_tensor *labels) {
    n_built++;
    if (ends_at_rest && strata_tensor_shape(outputs).dims[0] == REST && results[MOST_TASKS].epoch_ends++ == 0) raise(SIGKILL);
    return strata_reshape(strata_reduce_sum(error_of(outputs, labels), NULL, 0, false), STRATA_SHAPE(1));
}

static strata_tensor *apply_cube(strata_tensor *x) {
    return strata_mul(x, strata_square(x));
}

static strata_status make_own(strata_model **out_model, strata_error *err) {
    static const char json[] =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 8, \"activation\": \"cube\"}, "
        "{\"layer\": \"wave\"}, {\"layer\": \"dense\", \"units\": 1}], \"loss\": \"quartic\", "
        "\"metrics\": [\"bias\"]}";
    strata_registry *registry = NULL;
    STRATA_TRY(strata_registry_create(&registry, err));
    STRATA_TRY(strata_layer_register(registry, &(strata_layer_definition){.name = "wave", .build = build_wave}, err));
    STRATA_TRY(strata_loss_register(registry, &(strata_loss_definition){.name = "quartic", .build = build_quartic}, err));
    STRATA_TRY(strata_metric_register(registry, &(strata_metric_definition){"bias", 1, build_bias, NULL}, err));
    STRATA_TRY(strata_activation_register(registry, "cube", apply_cube, err));
    const strata_status status = strata_model_from_json_with(registry, json, sizeof json - 1, "own", out_model, err);
    strata_registry_destroy(registry);
    return status;
}

Test(ps_fit, layers_losses_metrics_and_activations_of_ones_own_train) {
    job j = {.make_model = make_own,
             .compile.optimizer = {.name = "adam", .learning_rate = 0.01},
             .fit = {.epochs = 2, .batch = 16},
             .validation = 33,
             .servers = together};
    const result *r = assert_as_alone(&j);
    assert_near(r->more[1], results[MOST_TASKS].more[1], "the own metric of the validation data", 1);
    cr_assert_neq(r->more[1], 0);
}

/* ---- epochs: steps, callbacks, validation ---- */

Test(ps_fit, workers_evaluate_each_validation_example_once) {
    for (int i = 0; i < 2; i++) {
        job j = {.make_model = make_own,
                 .compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                 .fit = {.epochs = 2, .batch = 16},
                 .validation = 3 * 16 + REST,
                 .servers = together,
                 .n_workers = 3};
        ends_at_rest = false;
        const result *alone = run_alone(&j);
        const double losses[] = {alone->validation[0].loss, alone->validation[1].loss}, own = alone->more[1];
        results[MOST_TASKS].epoch_ends = 0;
        ends_at_rest = i == 1; /* a worker is lost with its batch, and another evaluates that */
        const result *r = run(&j);
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        cr_assert_eq(r->n_built, 0, "the chief has evaluated itself");
        cr_assert_eq(r->epoch_ends, 2);
        for (int e = 0; e < 2; e++) {
            cr_assert_eq(r->validation[e].examples, 3 * 16 + REST);
            assert_near(r->validation[e].loss, losses[e], "validation loss", e);
        }
        assert_near(r->more[1], own, "the own metric", 1);
        if (i == 1) cr_assert_geq(results[MOST_TASKS].epoch_ends, 2, "no worker was killed");
    }
    ends_at_rest = false;
}

Test(ps_fit, validation_decides_as_on_one_device) {
    job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.02},
             .fit = {.epochs = 40, .batch = 16, .patience = 2, .min_delta = 0.2, .restore_best = true},
             .validation = 20,
             .servers = together};
    const result *r = assert_as_alone(&j), *alone = &results[MOST_TASKS];
    cr_assert(r->n_epochs < 40 && r->n_epochs == alone->n_epochs && r->best_epoch == alone->best_epoch,
              "%d epochs, the best %d; alone %d, the best %d", r->n_epochs, r->best_epoch, alone->n_epochs, alone->best_epoch);
}

Test(ps_fit, an_epoch_has_its_steps_and_calls_back_after_each) {
    static const strata_pace paces[] = {STRATA_PACE_SYNCHRONOUS, STRATA_PACE_BOUNDED, STRATA_PACE_ASYNCHRONOUS};
    for (int p = 0; p < 3; p++) {
        job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                 .fit = {.epochs = 3, .batch = 16, .steps_per_epoch = 4},
                 .servers = {.pace = paces[p], .staleness = paces[p] == STRATA_PACE_BOUNDED ? 2 : 0}};
        const result *r = p ? run(&j) : assert_as_alone(&j);
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        cr_assert_eq(r->n_steps, 3 * 4);
        cr_assert_eq(r->callbacks, 3 * 4);
        cr_assert_eq(r->epoch_ends, 3);
        for (int e = 0; e < 3; e++) cr_assert_eq(r->train[e].examples, 4 * 16);
    }
}

static strata_status stop_in_second_epoch(const strata_progress *p, strata_error *err) {
    (void)err;
    if (p->epoch == 1) *p->stop = true;
    return STRATA_OK;
}

static strata_status fail_in_second_epoch(const strata_progress *p, strata_error *err) {
    return p->epoch == 1 && p->epoch_end ? strata_fail(err, STRATA_INTERRUPTED, "the callback has had enough") : STRATA_OK;
}

Test(ps_fit, callbacks_end_the_training_of_all_tasks) {
    job j = {.compile.optimizer = {.name = "adam"}, .fit = {.epochs = 9, .batch = 16}};
    callback = stop_in_second_epoch;
    const result *r = run(&j);
    cr_assert(r->status == STRATA_OK && r->n_epochs == 2 && r->n_steps == 12, "%s: %d", r->message, r->n_epochs);
    callback = fail_in_second_epoch;
    r = run(&j); /* all tasks end with its status */
    callback = NULL;
    cr_assert(r->status == STRATA_INTERRUPTED && strstr(r->message, "had enough"), "%s", r->message);
}

Test(ps_fit, steps_per_execution_changes_only_how_often_the_callback_is_called) {
    static const int64_t together_[] = {1, 2, 7};
    static float first[MOST_VALUES];
    for (int i = 0; i < 3; i++) {
        job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                 .fit = {.epochs = 2, .batch = 8, .steps_per_execution = together_[i]},
                 .servers = together};
        const result *r = run(&j);
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        cr_assert_eq(r->n_steps, 2 * 12);
        cr_assert_eq(r->callbacks, 2 * (12 / together_[i]));
        if (i)
            cr_assert_arr_eq(r->values, first, (size_t)r->n_values * sizeof(float));
        else
            memcpy(first, r->values, sizeof first);
    }
}

/* ---- gradients that are not finite ---- */

enum { WRONG_EXAMPLE = 40, PER_BATCH = 8, N_BATCHES = EXAMPLES / PER_BATCH };
/* What make_wrong_data writes, and where. */
static float wrong_value;
static enum place { TO_INPUT, TO_INPUTS, TO_TARGET } wrong_place;

/* make_data with one number in an example, or in all of its inputs, that makes its gradients not finite. */
static strata_status make_wrong_data(const char *task, strata_dataset **out_dataset, strata_error *err) {
    strata_array x, y;
    (void)task;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, 6), &x, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, 1), &y, err));
    float *inputs = x.data, *targets = y.data;
    for (int64_t i = 0; i < EXAMPLES; i++) {
        for (int k = 0; k < 6; k++) inputs[i * 6 + k] = number(i, k);
        targets[i] = number(i, 0) * 2 - number(i, 3);
    }
    for (int k = 0; k < 6 && wrong_place != TO_TARGET; k++)
        if (k == 2 || wrong_place == TO_INPUTS) inputs[WRONG_EXAMPLE * 6 + k] = wrong_value;
    if (wrong_place == TO_TARGET) targets[WRONG_EXAMPLE] = wrong_value;
    return strata_dataset_take_arrays(&x, &y, 1, out_dataset, err);
}

/* The chief keeps the last notice, and counts what was left out. */
static strata_status watch_notices(const strata_progress *p, strata_error *err) {
    const strata_parameter_server_totals totals = strata_strategy_parameter_server_totals(strategy_of_chief);
    result *r = &results[0];
    (void)err;
    if (!p->epoch_end) return STRATA_OK;
    r->n_refused = totals.refused;
    const strata_parameter_server_notice last = strata_strategy_parameter_server_notice(strategy_of_chief, totals.notices - 1);
    snprintf(r->notice, sizeof r->notice, "%.199s", last.text);
    return STRATA_OK;
}

/* The absolute value by a root: where x is 0 the value is finite, and its gradient is not. */
static strata_tensor *apply_root(strata_tensor *x) {
    return strata_sqrt(strata_square(x));
}

static strata_status make_rooted(strata_model **out_model, strata_error *err) {
    static const char json[] =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 8, \"no_bias\": true, \"activation\": \"root\"}, "
        "{\"layer\": \"dense\", \"units\": 1}], \"loss\": \"mse\"}";
    strata_registry *registry = NULL;
    STRATA_TRY(strata_registry_create(&registry, err));
    STRATA_TRY(strata_activation_register(registry, "root", apply_root, err));
    const strata_status status = strata_model_from_json_with(registry, json, sizeof json - 1, "rooted", out_model, err);
    strata_registry_destroy(registry);
    return status;
}

static const result *run_in_packs_with_wrong_data(float value, enum place place, strata_pace pace, int64_t bytes_per_pack) {
    job j = {.make_model = place == TO_INPUTS ? make_rooted : NULL,
             .make_own_data = make_wrong_data,
             .compile.optimizer = {.name = "sgd", .learning_rate = 0.05},
             .fit = {.epochs = 2, .batch = PER_BATCH},
             .servers.pace = pace,
             .bytes_per_pack = bytes_per_pack};
    wrong_value = value;
    wrong_place = place;
    callback = watch_notices;
    const result *r = run(&j);
    callback = NULL;
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_eq(r->n_refused, 2, "once an epoch, not %lld times", (long long)r->n_refused);
    cr_assert_not_null(strstr(r->notice, "the gradients of worker:"), "%s", r->notice);
    for (int i = 0; i < r->n_values; i++) cr_assert(isfinite(r->values[i]), "value %d is %g", i, (double)r->values[i]);
    return r;
}

static const result *run_with_wrong_data(float value, enum place place, strata_pace pace) {
    return run_in_packs_with_wrong_data(value, place, pace, 0);
}

Test(ps_fit, a_batch_with_nan_is_left_out_although_its_first_bucket_was_pushed) {
    const result *r = run_in_packs_with_wrong_data(NAN, TO_INPUT, STRATA_PACE_ASYNCHRONOUS, 4);
    cr_assert_gt(results[1].n_buckets, 1);
    cr_assert_eq(r->n_steps, 2 * (N_BATCHES - 1), "%lld updates", (long long)r->n_steps);
    run_in_packs_with_wrong_data(NAN, TO_INPUT, STRATA_PACE_SYNCHRONOUS, 4);
}

Test(ps_fit, a_batch_with_nan_is_left_out_counted_and_told) {
    const result *r = run_with_wrong_data(NAN, TO_INPUT, STRATA_PACE_ASYNCHRONOUS);
    cr_assert_not_null(strstr(r->notice, "are not finite (input "), "%s", r->notice);
    cr_assert_eq(r->train[1].examples, EXAMPLES - PER_BATCH, "the batch is not among the epoch's: %lld",
                 (long long)r->train[1].examples);
    cr_assert_eq(r->n_steps, 2 * (N_BATCHES - 1), "%lld updates", (long long)r->n_steps);
    cr_assert(r->train[1].loss < r->train[0].loss);
}

Test(ps_fit, the_message_names_a_target_that_is_not_finite) {
    const result *r = run_with_wrong_data(INFINITY, TO_TARGET, STRATA_PACE_ASYNCHRONOUS);
    cr_assert_not_null(strstr(r->notice, "are not finite (target "), "%s", r->notice);
}

Test(ps_fit, the_message_names_a_parameter_where_data_and_loss_are_finite) {
    const result *r = run_with_wrong_data(0, TO_INPUTS, STRATA_PACE_ASYNCHRONOUS);
    cr_assert_not_null(strstr(r->notice, "kernel) and were left out"), "%s", r->notice);
}

Test(ps_fit, the_message_names_a_loss_that_overflows) {
    const result *r = run_with_wrong_data(3e38f, TO_TARGET, STRATA_PACE_ASYNCHRONOUS);
    cr_assert_not_null(strstr(r->notice, "are not finite (the loss)"), "the data are finite: %s", r->notice);
}

Test(ps_fit, a_share_with_nan_is_left_out_of_a_synchronous_step) {
    const result *r = run_with_wrong_data(NAN, TO_INPUT, STRATA_PACE_SYNCHRONOUS);
    cr_assert_not_null(strstr(r->notice, "are not finite (input "), "%s", r->notice);
    cr_assert_eq(r->n_steps, 2 * N_BATCHES, "the other worker's share makes the step: %lld", (long long)r->n_steps);
    cr_assert_eq(r->train[1].examples, EXAMPLES - PER_BATCH / 2);
    cr_assert(r->train[1].loss < r->train[0].loss);
}

/* ---- which examples are seen, and when ---- */

static strata_tensor *build_label_sum(strata_tensor *outputs, strata_tensor *labels) {
    (void)outputs;
    return strata_reshape(strata_reduce_sum(labels, NULL, 0, false), STRATA_SHAPE(1));
}

/* With a metric that says which labels were seen. */
static strata_status make_counting(strata_model **out_model, strata_error *err) {
    static const char json[] =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 1}], \"loss\": \"mse\", "
        "\"metrics\": [\"label\"]}";
    strata_registry *registry = NULL;
    STRATA_TRY(strata_registry_create(&registry, err));
    STRATA_TRY(strata_metric_register(registry, &(strata_metric_definition){"label", 1, build_label_sum, NULL}, err));
    const strata_status status = strata_model_from_json_with(registry, json, sizeof json - 1, "counting", out_model, err);
    strata_registry_destroy(registry);
    return status;
}

static double mean_label(void) {
    double sum = 0;
    for (int64_t i = 0; i < EXAMPLES; i++) sum += (double)(number(i, 0) * 2 - number(i, 3));
    return sum / EXAMPLES;
}

Test(ps_fit, each_example_counts_once_an_epoch_at_every_pace) {
    static const strata_pace paces[] = {STRATA_PACE_SYNCHRONOUS, STRATA_PACE_BOUNDED, STRATA_PACE_ASYNCHRONOUS};
    for (int p = 0; p < 3; p++) {
        job j = {.make_model = make_counting,
                 .compile.optimizer = {.name = "sgd"},
                 .fit = {.epochs = 2, .batch = 7}, /* a rest of 5 */
                 .servers = {.pace = paces[p], .staleness = paces[p] == STRATA_PACE_BOUNDED ? 2 : 0},
                 .n_workers = 3};
        const result *r = run(&j);
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        for (int e = 0; e < 2; e++) {
            cr_assert_eq(r->train[e].examples, EXAMPLES);
            cr_assert_float_eq(r->labels[e], mean_label(), 1e-5, "pace %d, epoch %d: %g, not %g", p, e, r->labels[e],
                               mean_label());
        }
    }
}

/* A pipeline that does not say how long it is, and on worker:1 takes its time for each element. */
static bool is_slow;

static strata_status next_element(void *state, int64_t index, strata_element *out, bool *out_end, strata_error *err) {
    (void)state;
    if (is_slow) usleep(2000);
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(6), &out->parts[0], err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(1), &out->parts[1], err));
    for (int k = 0; k < 6; k++) ((float *)out->parts[0].data)[k] = number(index, k);
    *(float *)out->parts[1].data = number(index, 0) * 2 - number(index, 3);
    *out_end = false;
    return STRATA_OK;
}

static strata_status make_pipeline(const char *task, strata_dataset **out_dataset, strata_error *err) {
    const strata_generator endless = {
        .spec = {.n_parts = 2, .parts = {{STRATA_DTYPE_F32, STRATA_SHAPE(6)}, {STRATA_DTYPE_F32, STRATA_SHAPE(1)}}},
        .size = STRATA_SIZE_UNKNOWN,
        .next = next_element};
    is_slow = task && !strcmp(task, "worker:1");
    return strata_dataset_from_generator(&endless, out_dataset, err);
}

Test(ps_fit, a_pipeline_of_unknown_length_trains_so_many_steps_an_epoch) {
    job j = {.make_own_data = make_pipeline,
             .compile.optimizer = {.name = "adam", .learning_rate = 0.01},
             .fit = {.epochs = 2, .batch = 8, .steps_per_epoch = 5},
             .servers = together};
    const result *r = assert_as_alone(&j);
    cr_assert(r->n_steps == 10 && r->train[1].examples == 40);
    j.fit.steps_per_epoch = 0;
    r = run(&j);
    cr_assert(r->status == STRATA_INVALID && strstr(r->message, "give steps_per_epoch"), "%s", r->message);
}

static strata_status watch_spread(const strata_progress *p, strata_error *err) {
    const int64_t spread = strata_strategy_parameter_server_totals(strategy_of_chief).spread;
    (void)p, (void)err;
    if (spread > results[0].spread) results[0].spread = spread;
    return STRATA_OK;
}

static strata_status make_endless(const char *task, strata_dataset **out_dataset, strata_error *err) {
    (void)task;
    STRATA_TRY(make_data(EXAMPLES, 0, false, out_dataset, err));
    STRATA_TRY(strata_dataset_shuffle(out_dataset, NULL, err));
    return strata_dataset_repeat(out_dataset, 0, err);
}

/* As TensorFlow's programs do it: the data are repeated for ever, and steps_per_epoch says what an epoch is. */
Test(ps_fit, data_that_repeat_for_ever_train_so_many_steps_an_epoch) {
    job j = {.make_own_data = make_endless,
             .compile.optimizer = {.name = "adam", .learning_rate = 0.01},
             .fit = {.epochs = 2, .batch = 20, .steps_per_epoch = 7}, /* more than the data have */
             .servers = together};
    const result *r = assert_as_alone(&j);
    cr_assert(r->n_steps == 14 && r->train[1].examples == 140, "%lld", (long long)r->train[1].examples);
    j.servers.pace = STRATA_PACE_ASYNCHRONOUS;
    r = run(&j);
    cr_assert(r->status == STRATA_OK && r->n_steps == 14 && r->train[1].examples == 140, "%s", r->message);
}

/* worker:1 takes 20 ms for a batch, the others much less. */
Test(ps_fit, nobody_is_further_ahead_of_a_slow_worker_than_the_bound) {
    static const int64_t bounds[] = {1, 3, 0};
    for (int i = 0; i < 3; i++) {
        job j = {.make_own_data = make_pipeline,
                 .compile.optimizer = {.name = "sgd"},
                 .fit = {.epochs = 1, .batch = 10, .steps_per_epoch = 60, .no_shuffle = true},
                 .servers = {.pace = bounds[i] ? STRATA_PACE_BOUNDED : STRATA_PACE_ASYNCHRONOUS, .staleness = bounds[i]},
                 .n_workers = 3};
        callback = watch_spread;
        const result *r = run(&j);
        callback = NULL;
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        cr_assert_eq(r->n_steps, 60);
        if (bounds[i])
            cr_assert_leq(r->spread, bounds[i] + 1, "%lld steps", (long long)r->spread); /* one that is finished now */
        else
            cr_assert_gt(r->spread, 4, "%lld steps", (long long)r->spread);
    }
}

/* ---- checkpoints ---- */

static char folder[64];
/* Where a callback fails, as if the job were killed there: at this step of this epoch, or the first that is later; step 0: at
 * its end. */
static int end_epoch;
static int64_t end_step;

static strata_status fail_there(const strata_progress *p, strata_error *err) {
    const bool there = p->epoch == end_epoch && (end_step ? !p->epoch_end && p->step >= end_step : p->epoch_end);
    return there ? strata_fail(err, STRATA_INTERRUPTED, "the job is killed") : STRATA_OK;
}

static void make_folder(void) {
    set_up();
    snprintf(folder, sizeof folder, "/tmp/strata-ps-fit-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void remove_folder(void) {
    char command[128];
    callback = NULL;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(ps_checkpoint, .init = make_folder, .fini = remove_folder, .timeout = 60);

/* How many files of the newest checkpoint have this ending; -1: there is no checkpoint. */
static int count_files(const char *pattern) {
    char command[256];
    int n = -1;
    snprintf(command, sizeof command, "ls -d %s/step-* | tail -n 1 | xargs -I X sh -c 'ls X/%s 2>/dev/null | wc -l'", folder,
             pattern);
    FILE *out = popen(command, "r");
    if (out && fscanf(out, "%d", &n) != 1) n = -1;
    if (out) pclose(out);
    return n;
}

static const strata_optimizer adam = {.name = "adam", .learning_rate = 0.01};

/* All of it under one strategy, and half of it each under two, have the same numbers. step: of the second epoch, after which
 * the checkpoint is made; 0: behind that epoch. */
static void assert_goes_on(bool servers_first, bool servers_then, int n_servers, int64_t step) {
    const strata_checkpoint_options checkpoint = {.folder = folder, .every_steps = step ? 6 + step : 0};
    job whole = {.make_model = make_functional,
                 .compile.optimizer = adam,
                 .fit = {.epochs = 4, .batch = 16},
                 .servers = {.pace = STRATA_PACE_SYNCHRONOUS, .partitioner = "fixed:3"},
                 .n_servers = 3};
    job half = whole;
    static result unbroken;
    callback = NULL;
    unbroken = *run_alone(&whole);
    end_epoch = step ? 1 : 2;
    end_step = step + 1;
    callback = fail_there;
    half.fit.checkpoint = &checkpoint;
    const result *r = servers_first ? run(&half) : run_alone(&half);
    cr_assert_eq(r->status, STRATA_INTERRUPTED, "%s", r->message);
    cr_assert_eq(count_files("manifest.json"), 1);
    cr_assert_eq(count_files("ps-*"), servers_first ? 3 : 0, "each server writes its part");
    callback = NULL;
    half.load = folder;
    half.fit.checkpoint = NULL;
    half.servers.partitioner = "fixed:2";
    half.n_servers = n_servers;
    half.n_workers = 3;
    r = servers_then ? run(&half) : run_alone(&half);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_geq(r->first_step, step);
    cr_assert_eq(r->n_steps, (step ? 3 : 2) * 6 - r->first_step);
    cr_assert_eq(r->train[0].examples, EXAMPLES, "the epoch's metrics are those of all its steps");
    for (int i = 0; i < r->n_values; i++) assert_near(r->values[i], unbroken.values[i], "value", i);
    assert_near(r->train[r->n_epochs - 1].loss, unbroken.train[3].loss, "the last epoch's loss", 3);
}

Test(ps_checkpoint, what_servers_wrote_goes_on_with_other_servers) {
    assert_goes_on(true, true, 2, 0);
}

Test(ps_checkpoint, what_servers_wrote_goes_on_on_one_device) {
    assert_goes_on(true, false, 0, 0);
}

Test(ps_checkpoint, what_one_device_wrote_goes_on_with_servers) {
    assert_goes_on(false, true, 2, 0);
}

Test(ps_checkpoint, one_of_a_step_within_an_epoch_goes_on_there) {
    assert_goes_on(true, true, 1, 3);
}

Test(ps_checkpoint, one_of_a_step_goes_on_on_one_device) {
    assert_goes_on(true, false, 0, 4);
}

/* Of workers at their own pace, too, a checkpoint has the first steps of the epoch and nothing else, and the training that it
 * is made of goes on. */
Test(ps_checkpoint, at_their_own_pace_a_checkpoint_is_a_cut_between_steps) {
    const strata_checkpoint_options checkpoint = {.folder = folder, .every_steps = EXAMPLES / 4 + 5};
    job j = {.compile.optimizer = adam, .fit = {.epochs = 3, .batch = 4, .checkpoint = &checkpoint}, .n_workers = 3};
    end_epoch = 1;
    end_step = 0;
    callback = fail_there;
    const result *r = run(&j);
    callback = NULL;
    cr_assert_eq(r->status, STRATA_INTERRUPTED, "%s", r->message);
    cr_assert(r->callbacks == 2 * EXAMPLES / 4 && r->epoch_ends == 2, "training went on");
    cr_assert_eq(r->train[1].examples, EXAMPLES);
    cr_assert_eq(count_files("ps-*"), 2);
    j.load = folder;
    j.fit.checkpoint = NULL;
    for (int alone = 0; alone < 2; alone++) {
        r = alone ? run_alone(&j) : run(&j);
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        cr_assert_geq(r->first_step, 5);
        cr_assert_eq(r->n_steps, 2 * EXAMPLES / 4 - r->first_step);
        cr_assert_eq(r->train[0].examples, EXAMPLES, "each example of the epoch was seen once");
    }
}

/* The first server is lost just before the checkpoint is made: its copy writes its part. */
static strata_status kill_and_fail(const strata_progress *p, strata_error *err) {
    if (p->epoch == 1 && p->epoch_end) kill(results[1 + 2].pid, SIGKILL);
    return fail_there(p, err);
}

Test(ps_checkpoint, with_replicas_a_lost_server_is_no_hole_in_it) {
    const strata_checkpoint_options checkpoint = {.folder = folder};
    job whole = {.compile.optimizer = adam,
                 .fit = {.epochs = 4, .batch = 16},
                 .servers = {.pace = STRATA_PACE_SYNCHRONOUS, .replicas = 1}};
    job half = whole;
    static result unbroken;
    unbroken = *run_alone(&whole);
    half.fit.checkpoint = &checkpoint;
    callback = kill_and_fail;
    kills_server = true;
    end_epoch = 2;
    end_step = 1;
    const result *r = run(&half);
    callback = NULL;
    kills_server = false;
    cr_assert_eq(r->status, STRATA_INTERRUPTED, "%s", r->message);
    cr_assert_eq(count_files("ps-*"), 2);
    half.load = folder;
    half.fit.checkpoint = NULL;
    r = run_alone(&half);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_eq(r->n_epochs, 2);
    for (int i = 0; i < r->n_values; i++) assert_near(r->values[i], unbroken.values[i], "value", i);
}

static strata_status save_file_and_stop(const strata_progress *p, strata_error *err) {
    if (p->epoch != 1 || p->epoch_end || p->step != 2) return STRATA_OK;
    *p->stop_now = true;
    return strata_model_save_checkpoint(p->model, 1, folder, err);
}

/* A file, too, may be saved within an epoch: the chief's model gets what the servers have. */
Test(ps_checkpoint, a_file_of_a_step_goes_on_there) {
    job j = {.compile.optimizer = adam, .fit = {.epochs = 3, .batch = 16}, .servers = together};
    static result unbroken;
    unbroken = *run_alone(&j);
    strcat(folder, ".file");
    callback = save_file_and_stop;
    const result *r = run(&j);
    callback = NULL;
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    j.load = folder;
    r = run_alone(&j);
    remove(folder);
    folder[strlen(folder) - strlen(".file")] = '\0';
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_geq(r->first_step, 2);
    for (int i = 0; i < r->n_values; i++) assert_near(r->values[i], unbroken.values[i], "value", i);
}

Test(ps_checkpoint, a_damaged_one_is_passed_over_for_the_one_before) {
    const strata_checkpoint_options checkpoint = {.folder = folder, .keep = 2};
    job j = {.compile.optimizer = adam, .fit = {.epochs = 3, .batch = 16, .checkpoint = &checkpoint}, .servers = together};
    char command[256];
    const result *r = run(&j);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    snprintf(command, sizeof command,
             "test \"$(ls -A %s | grep -v lock | tr '\\n' ' ')\" = 'step-000000000012 step-000000000018 '", folder);
    cr_assert_eq(system(command), 0, "the newest two stay, and nothing else");
    j.load = folder;
    j.fit.epochs = 4;
    j.fit.checkpoint = NULL;
    for (int damaged = 0; damaged < 3; damaged++) {
        r = run_alone(&j);
        cr_assert_eq(r->status, damaged < 2 ? STRATA_OK : STRATA_DATA, "%s", r->message);
        if (damaged < 2) cr_assert_eq(r->n_epochs, 1 + damaged);
        if (damaged == 2) cr_assert(strstr(r->message, "ps-1.safetensors"), "%s", r->message);
        snprintf(command, sizeof command,
                 "printf x | dd of=%s/step-0000000000%d/ps-1.safetensors bs=1 seek=300 conv=notrunc 2>/dev/null", folder,
                 damaged ? 12 : 18);
        cr_assert_eq(system(command), 0);
    }
}

static bool is_killed;

static strata_status save_file_then_kill(const strata_progress *p, strata_error *err) {
    if (p->epoch != 1 || p->epoch_end) return STRATA_OK;
    if (p->step == 2) return strata_model_save_checkpoint(p->model, 1, folder, err);
    if (p->step == 5 && !is_killed) is_killed = !kill(results[1 + 2].pid, SIGKILL);
    return STRATA_OK;
}

/* The chief's model stands where the file was saved, so steps are repeated from there, and not from the epoch's begin. */
Test(ps_checkpoint, after_a_servers_loss_steps_are_repeated_from_what_was_saved) {
    job j = {.compile.optimizer = adam, .fit = {.epochs = 3, .batch = 16}, .servers = together};
    static result unbroken;
    unbroken = *run_alone(&j);
    strcat(folder, ".file");
    callback = save_file_then_kill;
    kills_server = restarts = true;
    const result *r = run(&j);
    callback = NULL;
    kills_server = restarts = false;
    remove(folder);
    folder[strlen(folder) - strlen(".file")] = '\0';
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_eq(r->n_steps, 18);
    cr_assert_eq(r->train[1].examples, EXAMPLES);
    for (int i = 0; i < r->n_values; i++) assert_near(r->values[i], unbroken.values[i], "value", i);
    assert_near(r->train[1].loss, unbroken.train[1].loss, "the epoch's loss", 1);
}

static strata_status save_nowhere(const strata_progress *p, strata_error *err) {
    return p->epoch_end ? strata_model_save_checkpoint(p->model, 1, "/dev/null/there", err) : STRATA_OK;
}

Test(ps_checkpoint, a_file_that_cannot_be_is_an_error_of_the_callback) {
    job j = {.compile.optimizer = adam, .fit = {.epochs = 1, .batch = 16}};
    callback = save_nowhere;
    const result *r = run(&j);
    cr_assert_eq(r->status, STRATA_UNAVAILABLE, "%d %s", r->status, r->message);
    cr_assert(strstr(r->message, "/dev/null/there"), "%s", r->message);
}
