/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/strategies/ps_job.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/model/model.h"
#include "tests/support/patience.h"
#include "tests/support/ports.h"

static const char secret[] = "between all tasks";
static const char *const host[] = {"host"};
static char cluster_text[512];

ps_result *ps_results;
struct ps_hooks ps_hooks;
const strata_parameter_server_options ps_together = {.pace = STRATA_PACE_SYNCHRONOUS};

/* ---- data and models ---- */

float ps_number(int64_t i, int64_t salt) {
    return (float)(((uint64_t)i * 2654435761u + (uint64_t)salt * 40503u) % 1000) / 500 - 1;
}

strata_status ps_make_data(int64_t n, int64_t first, bool all, strata_dataset **out_dataset, strata_error *err) {
    static strata_array x, z, words, y, kind; /* the end of the process frees those that the dataset does not own */
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, 6), &x, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, 3), &z, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n, 4), &words, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, 1), &y, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n), &kind, err));
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < 6; k++) ((float *)x.data)[i * 6 + k] = ps_number(first + i, k);
        for (int k = 0; k < 3; k++) ((float *)z.data)[i * 3 + k] = ps_number(first + i, 10 + k);
        for (int k = 0; k < 4; k++) ((int32_t *)words.data)[i * 4 + k] = (int32_t)((first + i) * (k + 3) % 11);
        ((float *)y.data)[i] = ps_number(first + i, 0) * 2 - ps_number(first + i, 3);
        ((int32_t *)kind.data)[i] = ps_number(first + i, 10) > 0.3f ? 2 : ps_number(first + i, 11) > 0;
    }
    const strata_data_column inputs[] = {
        {.name = "x", .array = &x}, {.name = "z", .array = &z}, {.name = "words", .array = &words}};
    const strata_data_column targets[] = {{.name = "y", .array = &y}, {.name = "kind", .array = &kind}};
    return all ? strata_dataset_from_columns(inputs, 3, targets, 2, out_dataset, err)
               : strata_dataset_take_arrays(&x, &y, 1, out_dataset, err);
}

static strata_status make_small(strata_model **out_model, strata_error *err) {
    STRATA_TRY(strata_model_create(STRATA_SHAPE(6), out_model, err));
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 8, .activation = "tanh"});
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 1});
    return STRATA_OK;
}

strata_status ps_make_with_words(int64_t vocabulary, strata_model **out_model, strata_error *err) {
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

strata_status ps_make_functional(strata_model **out_model, strata_error *err) {
    return ps_make_with_words(11, out_model, err);
}

/* ---- the program of all tasks ---- */

static strata_status on_progress(const strata_progress *progress, void *user, strata_error *err) {
    ps_result *r = user;
    if (progress->epoch_end) {
        if (progress->validation.n) r->more[r->epoch_ends] = progress->validation.more[0].value;
        if (progress->metrics.n) r->labels[r->epoch_ends] = progress->metrics.more[0].value;
        r->train[r->epoch_ends] = progress->metrics;
        r->validation[r->epoch_ends++] = progress->validation;
    } else if (r->callbacks < 100) {
        r->norms[r->callbacks] = progress->gradient_norm;
        r->rates[r->callbacks++] = progress->learning_rate;
    }
    return ps_hooks.callback ? ps_hooks.callback(progress, err) : STRATA_OK;
}

static strata_status keep_values(strata_model *model, ps_result *r, strata_error *err) {
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        strata_array values;
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(model, i).shape, &values, err));
        STRATA_TRY(strata_model_get_parameter(model, i, &values, err));
        const int64_t n = strata_shape_elements(values.shape);
        if (r->n_values + n > PS_MOST_VALUES) return strata_fail(err, STRATA_INTERNAL, "the test's model is too large");
        memcpy(r->values + r->n_values, values.data, (size_t)n * sizeof(float));
        r->n_values += (int)n;
        strata_array_finish(&values);
    }
    return STRATA_OK;
}

/* name: the task; NULL: training on one device. */
static strata_status train(const ps_job *j, const char *name, ps_result *r, strata_error *err) {
    static const strata_communicator_options security = {.secret = secret,
                                                         .secret_bytes = sizeof secret,
                                                         .connect_seconds = TEST_PATIENCE,
                                                         .heartbeat_seconds = TEST_CALM_HEARTBEAT};
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
    ps_hooks.strategy = strategy;
    STRATA_TRY((j->make_model ? j->make_model : make_small)(&model, err));
    compile.strategy = strategy;
    if (!j->make_model) compile.loss = "mse";
    if (!compile.seed) compile.seed = 3;
    STRATA_TRY(strata_model_compile(model, NULL, &compile, err));
    const bool all = strata_model_n_inputs(model) > 1;
    STRATA_TRY(j->make_own_data ? j->make_own_data(name, &data, err) : ps_make_data(PS_EXAMPLES, 0, all, &data, err));
    if (j->validation) STRATA_TRY(ps_make_data(j->validation, 5000, all, &validation, err));
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
    const int built = ps_hooks.n_built;
    STRATA_TRY(strata_model_fit(model, data, &fit, &history, err));
    r->n_built = ps_hooks.n_built - built;
    for (const strata_model_program *p = model->programs; p; p = p->next)
        if (p->kind == STRATA_PROGRAM_GRADIENTS) r->n_buckets = p->layout.n_buckets;
    if (j->save && leads) STRATA_TRY(strata_model_save_checkpoint(model, fit.epochs, j->save, err));
    r->n_steps = history.n_steps;
    r->n_losses = history.n_losses;
    r->n_epochs = history.n_epochs;
    r->best_epoch = history.best_epoch;
    r->loss_scale = history.loss_scale;
    memcpy(r->losses, history.losses, sizeof r->losses);
    return keep_values(model, r, err);
}

static void be(const ps_job *j, const char *name, ps_result *r) {
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

const ps_result *ps_run(const ps_job *j) {
    static const char *const types[] = {"chief", "worker", "ps"};
    const int n[] = {1, j->n_workers ? j->n_workers : 2, j->n_servers ? j->n_servers : 2};
    char names[PS_MOST_TASKS][24];
    int n_tasks = 0;
    write_cluster(n[1], n[2]);
    memset(ps_results, 0, PS_MOST_TASKS * sizeof *ps_results);
    for (int type = 0; type < 3; type++)
        for (int i = 0; i < n[type]; i++) snprintf(names[n_tasks++], sizeof *names, type ? "%s:%d" : "%s", types[type], i);
    for (int t = 0; t < n_tasks; t++) {
        ps_results[t].status = DIED;
        if (!fork()) be(j, names[t], &ps_results[t]);
    }
    int how = 0;
    for (pid_t ended; (ended = wait(&how)) > 0;)
        for (int t = 0; t < n_tasks && ps_hooks.restarts && WIFSIGNALED(how); t++)
            if (ps_results[t].pid == ended && !fork()) be(j, names[t], &ps_results[t]);
    for (int t = 1; t < n_tasks; t++)
        if (ps_results[t].status != DIED || !(ps_hooks.ends_at_rest || ps_hooks.kills_server))
            cr_assert_eq(ps_results[t].status, ps_results[0].status, "%s: \"%s\", and the chief: \"%s\"", names[t],
                         ps_results[t].message, ps_results[0].message);
    return &ps_results[0];
}

const ps_result *ps_run_alone(const ps_job *j) {
    ps_result *r = &ps_results[PS_MOST_TASKS];
    memset(r, 0, sizeof *r);
    r->status = DIED;
    if (!fork()) be(j, NULL, r);
    while (wait(NULL) > 0) continue;
    return r;
}

int ps_most_buckets(void) {
    int most = 0;
    for (int t = 1; t < PS_MOST_TASKS; t++)
        if (ps_results[t].n_buckets > most) most = ps_results[t].n_buckets;
    return most;
}

void ps_set_up(void) {
    ps_results =
        mmap(NULL, (PS_MOST_TASKS + 1) * sizeof *ps_results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(ps_results != MAP_FAILED);
}

/* ---- results that a job must have ---- */

void ps_assert_near(double a, double b, const char *what, int i) {
    cr_assert_leq(fabs(a - b), 1e-5 * (1 + fabs(b)), "%s %d: %.8g, on one device %.8g", what, i, a, b);
}

const ps_result *ps_assert_as_alone(const ps_job *j) {
    const ps_result *alone = ps_run_alone(j), *r = ps_run(j);
    cr_assert_eq(alone->status, STRATA_OK, "%s", alone->message);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert(r->n_steps == alone->n_steps && r->n_losses == alone->n_losses && r->n_values == alone->n_values,
              "%lld steps, and %lld", (long long)r->n_steps, (long long)alone->n_steps);
    for (int i = 0; i < r->n_losses; i++) ps_assert_near(r->losses[i], alone->losses[i], "loss", i);
    for (int i = 0; i < r->n_values; i++) ps_assert_near(r->values[i], alone->values[i], "value", i);
    return r;
}

double ps_first_loss(const ps_result *r) {
    double sum = 0;
    for (int i = 0; i < 3; i++) sum += r->losses[i] / 3;
    return sum;
}

double ps_last_loss(const ps_result *r) {
    double sum = 0;
    for (int i = 0; i < 3; i++) sum += r->losses[r->n_losses - 1 - i] / 3;
    return sum;
}
