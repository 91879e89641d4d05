/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model under model_parallel does besides training: its parameters, files and checkpoints, fits with other options, and
 * errors. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/strategies/mesh_case.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

TestSuite(mesh_state, .init = test_folder_make, .fini = test_folder_remove);

/* ---- parameters, files and checkpoints ---- */

Test(mesh_state, parameters_are_read_and_set_whole) {
    for (int i = 0; i < N_MESHES; i++) {
        strata_strategy *strategy = mesh_strategy(&(mesh_setup){.mesh = mesh_names[i]});
        strata_model *model = mesh_model(&mesh_functional, strategy);
        for (int k = 0; k < strata_model_n_parameters(model); k++) {
            const strata_parameter parameter = strata_model_parameter(model, k);
            strata_array value = strata_test_random(STRATA_DTYPE_F32, parameter.shape, -1, 1, (uint64_t)k), got = {0};
            OK(strata_array_create(STRATA_DTYPE_F32, parameter.shape, &got, &mesh_error));
            OK(strata_model_set_parameter(model, k, &value, &mesh_error));
            OK(strata_model_get_parameter(model, k, &got, &mesh_error));
            const strata_test_result r = strata_test_same(&got, &value);
            cr_assert(r.ok, "%s: %s: %s", mesh_names[i], parameter.name, r.text);
            strata_array_finish(&value);
            strata_array_finish(&got);
        }
        bool equal = false;
        OK(strata_model_replicas_equal(model, &equal, &mesh_error));
        cr_assert(equal, "%s", mesh_names[i]);
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
    }
}

/* Compiles the model in the file under the setup, and looks at it. */
static mesh_outcome look_at_file(const char *path, const mesh_setup *s, const mesh_job *j, const mesh_data *d) {
    mesh_outcome out = {0};
    strata_model *model = NULL;
    strata_strategy *strategy = mesh_strategy(s);
    const strata_compile_options opts = {.optimizer = j->optimizer, .strategy = strategy};
    OK(strata_model_load(path, &model, &mesh_error));
    OK(strata_model_compile(model, NULL, &opts, &mesh_error));
    mesh_look(model, d, &out);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    return out;
}

Test(mesh_state, a_saved_model_loads_under_every_mesh_and_on_one_device) {
    const char *path = test_path("model.strata");
    const mesh_job *jobs[] = {&mesh_functional, &mesh_pictures};
    for (int i = 0; i < 2; i++) {
        mesh_data d = mesh_data_make(jobs[i], jobs[i]->n, 20);
        mesh_outcome saved = {0};
        strata_strategy *strategy = mesh_strategy(&(mesh_setup){.mesh = "data=2,stage=2,tensor=2"});
        strata_model *model = mesh_model(jobs[i], strategy);
        const strata_fit_options fit = mesh_fit_options(jobs[i]);
        OK(strata_model_fit(model, d.dataset, &fit, NULL, &mesh_error));
        mesh_look(model, &d, &saved);
        OK(strata_model_save(model, path, &mesh_error));
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
        for (int k = -1; k < N_MESHES; k++) {
            mesh_outcome loaded = look_at_file(path, &(mesh_setup){.mesh = k < 0 ? NULL : mesh_names[k]}, jobs[i], &d);
            const char *what = k < 0 ? "one device" : mesh_names[k];
            mesh_expect_numbers(&loaded.parameters, &saved.parameters, 0, what, "parameters");
            mesh_expect_numbers(&loaded.predictions, &saved.predictions, 1e-5, what, "predictions");
            mesh_expect_metrics(&loaded.evaluated, &saved.evaluated, 1e-5, what);
            cr_assert(loaded.equal, "%s", what);
            mesh_outcome_free(&loaded);
        }
        mesh_outcome_free(&saved);
        mesh_data_free(&d);
    }
}

static strata_status stop_at_10(const strata_progress *p, void *user, strata_error *error) {
    (void)user;
    (void)error;
    if (p->total_step >= 10) *p->stop_now = true;
    return STRATA_OK;
}

/* Trains under one setup, stops in the middle of an epoch, and goes on from the checkpoint under another. */
static mesh_outcome resume(const mesh_job *j, const mesh_setup *from, const mesh_setup *to) {
    const char *path = test_path("checkpoint.strata");
    mesh_outcome out = {0};
    strata_history history = {0};
    mesh_data d = mesh_data_make(j, j->n, 20);
    strata_fit_options fit = mesh_fit_options(j);
    strata_strategy *strategy = mesh_strategy(from);
    strata_model *model = mesh_model(j, strategy);
    fit.on_progress = stop_at_10;
    OK(strata_model_fit(model, d.dataset, &fit, &history, &mesh_error));
    cr_assert(history.stopped);
    cr_assert_gt(strata_model_epoch_steps(model), 0);
    OK(strata_model_save_checkpoint(model, history.n_epochs, path, &mesh_error));
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    fit.on_progress = NULL;
    strategy = mesh_strategy(to);
    model = mesh_model(j, strategy);
    OK(strata_model_load_checkpoint(model, path, &fit.first_epoch, &mesh_error));
    fit.first_step = strata_model_epoch_steps(model);
    OK(strata_model_fit(model, d.dataset, &fit, &history, &mesh_error));
    out.trained = history.epochs[history.n_epochs - 1];
    mesh_look(model, &d, &out);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    mesh_data_free(&d);
    return out;
}

static void expect_resumed_like(const mesh_job *j, const mesh_setup *from, const mesh_setup *to, const mesh_setup *whole,
                                double tolerance) {
    char what[128];
    snprintf(what, sizeof what, "from %s to %s", from->mesh ? from->mesh : "one device", to->mesh ? to->mesh : "one device");
    mesh_outcome wanted = mesh_run(j, whole), got = resume(j, from, to);
    mesh_expect_numbers(&got.parameters, &wanted.parameters, tolerance, what, "parameters");
    mesh_expect_metrics(&got.trained, &wanted.trained, tolerance, what);
    mesh_expect_metrics(&got.evaluated, &wanted.evaluated, tolerance, what);
    mesh_outcome_free(&wanted);
    mesh_outcome_free(&got);
}

Test(mesh_state, a_checkpoint_within_an_epoch_goes_on_under_any_mesh) {
    const mesh_setup one = {0}, pipeline = {.mesh = "stage=2", .microbatches = 4}, cube = {.mesh = "data=2,stage=2,tensor=2"},
                     parts = {.mesh = "tensor=3"};
    mesh_job j = mesh_functional, moving = mesh_pictures;
    j.n = moving.n = 64; /* 8 steps an epoch; the fit ends a few steps after the tenth */
    expect_resumed_like(&j, &pipeline, &pipeline, &pipeline, 0);
    expect_resumed_like(&j, &cube, &cube, &cube, 0);
    expect_resumed_like(&j, &parts, &parts, &parts, 0);
    expect_resumed_like(&j, &cube, &one, &one, 2e-5);
    expect_resumed_like(&j, &one, &cube, &one, 2e-5);
    expect_resumed_like(&j, &pipeline, &parts, &one, 2e-5);
    expect_resumed_like(&j, &parts, &cube, &one, 2e-5);
    expect_resumed_like(&moving, &pipeline, &pipeline, &pipeline, 0);
}

Test(mesh_state, a_checkpoint_of_what_data_divides_goes_on_under_any_mesh) {
    mesh_job j = mesh_wide;
    j.n = 64;
    for (int zero = 1; zero <= 3; zero++) {
        const mesh_setup one = {0}, divided = {.mesh = "data=2,tensor=2", .microbatches = 2, .zero = zero};
        expect_resumed_like(&j, &divided, &divided, &divided, 0);
        expect_resumed_like(&j, &divided, &one, &one, 2e-5);
        expect_resumed_like(&j, &one, &divided, &one, 2e-5);
    }
}

/* The parameters of the best epoch of a fit whose rate is so high that the last one is not it. */
static mesh_outcome train_with_validation(const mesh_job *j, const mesh_setup *s) {
    mesh_outcome out = {0};
    strata_history history = {0};
    mesh_data d = mesh_data_make(j, j->n, 20), other = mesh_data_make(j, 16, 40);
    strata_strategy *strategy = mesh_strategy(s);
    strata_model *model = mesh_model(j, strategy);
    strata_fit_options fit = mesh_fit_options(j);
    fit.validation = other.dataset;
    fit.restore_best = true;
    OK(strata_model_fit(model, d.dataset, &fit, &history, &mesh_error));
    out.trained = history.epochs[history.n_epochs - 1];
    mesh_look(model, &other, &out);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    mesh_data_free(&d);
    mesh_data_free(&other);
    return out;
}

Test(mesh_state, the_best_epoch_is_restored_as_on_one_device) {
    mesh_job j = mesh_dense;
    j.epochs = 5;
    j.optimizer = strata_sgd_optimizer(0.3, 0, false);
    mesh_outcome one = train_with_validation(&j, &(mesh_setup){0});
    static const mesh_setup setups[] = {{.mesh = "stage=2", .microbatches = 4}, {.mesh = "data=2,stage=2,tensor=2"}};
    for (int i = 0; i < 2; i++) {
        mesh_outcome got = train_with_validation(&j, &setups[i]);
        mesh_expect_numbers(&got.parameters, &one.parameters, 2e-5, setups[i].mesh, "parameters");
        mesh_expect_metrics(&got.evaluated, &one.evaluated, 2e-5, setups[i].mesh);
        cr_assert(got.equal);
        mesh_outcome_free(&got);
    }
    mesh_outcome_free(&one);
}

/* ---- the rest of a fit ---- */

typedef struct seen {
    double norms[MOST_LOSSES];
    int n;
} seen;

static strata_status note_norm(const strata_progress *p, void *user, strata_error *error) {
    seen *s = user;
    (void)error;
    if (!p->epoch_end && s->n < MOST_LOSSES) s->norms[s->n++] = p->gradient_norm;
    return STRATA_OK;
}

/* Fits twice, with norms, frozen parameters, a trace and checkpoints. */
static seen fit_twice(const mesh_setup *s, mesh_numbers *parameters) {
    seen norms = {0};
    mesh_job j = mesh_penalized;
    mesh_data d = mesh_data_make(&j, j.n, 20);
    strata_strategy *strategy = mesh_strategy(s);
    strata_model *model = NULL;
    const strata_compile_options opts = {.optimizer = j.optimizer, .seed = 3, .strategy = strategy, .gradient_norm = true};
    OK(strata_model_from_json(j.model, strlen(j.model), "test", &model, &mesh_error));
    OK(strata_model_freeze(model, "dense_1", &mesh_error));
    OK(strata_model_compile(model, NULL, &opts, &mesh_error));
    strata_fit_options fit = mesh_fit_options(&j);
    fit.on_progress = note_norm;
    fit.user = &norms;
    fit.trace = test_path("trace.json");
    fit.steps_per_execution = 1;
    OK(strata_model_fit(model, d.dataset, &fit, NULL, &mesh_error));
    OK(strata_model_set_learning_rate(model, 0.001, &mesh_error));
    fit.trace = NULL;
    fit.checkpoint = &(strata_checkpoint_options){.folder = test_path("checkpoints"), .every_steps = 4};
    OK(strata_model_fit(model, d.dataset, &fit, NULL, &mesh_error));
    *parameters = mesh_parameters(model);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    mesh_data_free(&d);
    return norms;
}

Test(mesh_state, norms_frozen_parameters_traces_and_second_fits_are_as_on_one_device) {
    static const mesh_setup setups[] = {{.mesh = "stage=2"},
                                        {.mesh = "stage=4", .microbatches = 4},
                                        {.mesh = "tensor=3"},
                                        {.mesh = "data=2,stage=2,tensor=2", .microbatches = 2}};
    mesh_numbers wanted, got;
    const seen one = fit_twice(&(mesh_setup){0}, &wanted);
    for (int i = 0; i < 4; i++) {
        test_folder_remove();
        test_folder_make();
        const seen here = fit_twice(&setups[i], &got);
        cr_assert_eq(here.n, one.n);
        for (int k = 0; k < one.n; k++)
            cr_assert(mesh_near(here.norms[k], one.norms[k], 1e-5), "%s: norm %d is %.9g, not %.9g", setups[i].mesh, k,
                      here.norms[k], one.norms[k]);
        mesh_expect_numbers(&got, &wanted, 2e-5, setups[i].mesh, "parameters");
        free(got.values);
    }
    free(wanted.values);
}

Test(mesh_state, a_loss_that_is_not_finite_says_so) {
    static const mesh_setup setups[] = {{.mesh = "stage=2"}, {.mesh = "stage=4", .microbatches = 4}, {.mesh = "tensor=2"}};
    mesh_job j = mesh_dense;
    j.model =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 11}, {\"layer\": \"dense\", \"units\": 9},"
        "{\"layer\": \"dense\", \"units\": 5}, {\"layer\": \"dense\", \"units\": 1, \"name\": \"y\"}], \"loss\": \"mse\"}";
    j.targets[0] = (mesh_column){.name = "y", .shape = {.rank = 1, .dims = {1}}};
    j.inputs[0].scale = 1e30;
    j.optimizer = strata_sgd_optimizer(0.1, 0, false);
    for (int i = 0; i < 3; i++) {
        mesh_data d = mesh_data_make(&j, j.n, 20);
        strata_strategy *strategy = mesh_strategy(&setups[i]);
        strata_model *model = mesh_model(&j, strategy);
        const strata_fit_options fit = mesh_fit_options(&j);
        FAILS(strata_model_fit(model, d.dataset, &fit, NULL, &mesh_error), STRATA_DATA, "not finite at epoch 1, step 1");
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
        mesh_data_free(&d);
    }
}

/* ---- errors ---- */

Test(mesh_state, a_mesh_that_cannot_be_is_an_error_of_create) {
    static const char *const hosts[] = {"host", "host", "host", "host"};
    static const int64_t split[] = {1, 2, 3, 4};
    static const struct {
        strata_strategy_options opts;
        strata_status status;
        const char *text;
    } cases[] = {{{.mesh = "stage=3"}, STRATA_INVALID, "mesh stage=3 is for 3 devices, but there are 4"},
                 {{.mesh = "data=2,row=2"}, STRATA_INVALID, "axis row"},
                 {{.mesh = "stage=0"}, STRATA_INVALID, "stage"},
                 {{.mesh = "stage"}, STRATA_INVALID, "mesh is \"stage\""},
                 {{.mesh = ""}, STRATA_INVALID, "mesh is \"\""},
                 {{.mesh = "stage=2,stage=2"}, STRATA_INVALID, "stage"},
                 {{.mesh = "stage=4", .microbatches = -1}, STRATA_INVALID, "microbatches is -1"},
                 {{.mesh = "stage=4", .microbatches = 1 << 30}, STRATA_INVALID, "microbatches is 1073741824"},
                 {{.mesh = "stage=4", .schedule = "1f1c"}, STRATA_INVALID, "1f1c"},
                 {{.mesh = "stage=4", .schedule = ""}, STRATA_INVALID, "schedule"},
                 {{.mesh = "stage=4", .microbatches = 4, .schedule = "interleaved:2"}, STRATA_UNSUPPORTED, "interleaved:2"},
                 {{.mesh = "stage=4", .parameter_device = "host"}, STRATA_INVALID, "no parameter device"},
                 {{.mesh = "stage=4", .compress = STRATA_DTYPE_F16}, STRATA_INVALID, "compress"},
                 {{.mesh = "stage=4", .every = 2}, STRATA_INVALID, "every"},
                 {{.mesh = "data=4", .zero = 4}, STRATA_INVALID, "zero is 4"},
                 {{.mesh = "stage=4", .split = split, .n_split = 4}, STRATA_INVALID, "split"},
                 {{.mesh = "stage=4", .auto_split = true}, STRATA_INVALID, "split"},
                 {{.mesh = "stage=4", .shard_optimizer = STRATA_SHARD_OPTIMIZER_YES}, STRATA_INVALID, "shard_optimizer"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_strategy *strategy = NULL;
        strata_strategy_options opts = cases[i].opts;
        opts.devices = hosts;
        opts.n_devices = 4;
        FAILS(strata_strategy_create("model_parallel", &opts, &strategy, &mesh_error), cases[i].status, cases[i].text);
        cr_assert_null(strategy);
    }
    static const strata_strategy_options others[] = {
        {.mesh = "data=1"}, {.microbatches = 2}, {.schedule = "gpipe"}, {.layout = "{}"}, {.zero = 1}};
    static const char *const options[] = {"mesh", "microbatches", "schedule", "layout", "zero"};
    for (int i = 0; i < 5; i++) {
        strata_strategy *strategy = NULL;
        strata_strategy_options opts = others[i];
        opts.devices = hosts;
        opts.n_devices = 2;
        FAILS(strata_strategy_create("mirrored", &opts, &strategy, &mesh_error), STRATA_INVALID, options[i]);
        FAILS(strata_strategy_create("local_sgd", &opts, &strategy, &mesh_error), STRATA_INVALID, options[i]);
        FAILS(strata_strategy_create("auto", &opts, &strategy, &mesh_error), STRATA_INVALID, options[i]);
        opts.n_devices = 1;
        FAILS(strata_strategy_create("one_device", &opts, &strategy, &mesh_error), STRATA_INVALID, options[i]);
        FAILS(strata_strategy_create("parameter_server", &opts, &strategy, &mesh_error), STRATA_INVALID, options[i]);
    }
}

static void expect_no_compile(const mesh_job *j, const mesh_setup *s, strata_status status, const char *text) {
    strata_strategy *strategy = mesh_strategy(s);
    strata_model *model = NULL;
    const strata_compile_options opts = {.strategy = strategy};
    OK(strata_model_from_json(j->model, strlen(j->model), "test", &model, &mesh_error));
    FAILS(strata_model_compile(model, NULL, &opts, &mesh_error), status, text);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}

Test(mesh_state, a_mesh_that_does_not_fit_the_model_is_an_error_of_compile) {
    expect_no_compile(&mesh_dense, &(mesh_setup){.mesh = "stage=6"}, STRATA_INVALID, "5 calls of layers for 6 stages");
    expect_no_compile(&mesh_dense, &(mesh_setup){.mesh = "tensor=2", .layout = "{\"dence/kernel\": [null, \"tensor\"]}"},
                      STRATA_INVALID, "dence/kernel");
    expect_no_compile(&mesh_dense, &(mesh_setup){.mesh = "tensor=2", .layout = "{\"y/kernel\": [null, \"rows\"]}"},
                      STRATA_INVALID, "rows");
    expect_no_compile(&mesh_dense, &(mesh_setup){.mesh = "tensor=2", .layout = "{\"y/kernel\": [null, null, \"tensor\"]}"},
                      STRATA_INVALID, "y/kernel");
    expect_no_compile(&mesh_dense, &(mesh_setup){.mesh = "tensor=2", .layout = "not JSON"}, STRATA_DATA, "layout");
}

/* The wide model, whose second and third layers begin these stages; below 0: none. */
static mesh_job with_stages(int second, int third, char model[512]) {
    mesh_job j = mesh_wide;
    char stages[2][24] = {"", ""};
    if (second >= 0) snprintf(stages[0], sizeof stages[0], ", \"stage\": %d", second);
    if (third >= 0) snprintf(stages[1], sizeof stages[1], ", \"stage\": %d", third);
    snprintf(model, 512,
             "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 181, \"activation\": \"relu\"},"
             "{\"layer\": \"dense\", \"units\": 19, \"activation\": \"tanh\"%s},"
             "{\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"%s}]}",
             stages[0], stages[1]);
    j.model = model;
    return j;
}

Test(mesh_state, layers_name_the_stages_that_begin_with_them) {
    char model[512], *text = NULL;
    mesh_job j = with_stages(-1, 1, model);
    strata_strategy *strategy = mesh_strategy(&(mesh_setup){.mesh = "stage=2"});
    strata_model *made = mesh_model(&j, strategy);
    OK(strata_model_placement(made, 8, &text, &mesh_error));
    cr_assert_not_null(strstr(text, "dense_1/kernel f32 (181, 19), at coordinate 0 of stage"), "%s", text);
    cr_assert_not_null(strstr(text, "y/kernel f32 (19, 4), at coordinate 1 of stage"), "%s", text);
    free(text);
    OK(strata_model_to_json(made, &text, &mesh_error));
    cr_assert_not_null(strstr(text, "\"stage\""), "%s", text);
    free(text);
    strata_model_destroy(made);
    strata_strategy_destroy(strategy);
    j.n = 64;
    expect_resumed_like(&j, &(mesh_setup){.mesh = "stage=2"}, &(mesh_setup){0}, &(mesh_setup){0}, 2e-5);
    expect_no_compile(&j, &(mesh_setup){.mesh = "stage=3"}, STRATA_INVALID, "stages up to 1");
    j = with_stages(-1, 2, model);
    expect_no_compile(&j, &(mesh_setup){.mesh = "stage=2"}, STRATA_INVALID, "layer y is at stage 2");
    expect_no_compile(&j, &(mesh_setup){.mesh = "stage=3"}, STRATA_INVALID, "begins stage 2 after stage 0");
    j = with_stages(1, 0, model);
    expect_no_compile(&j, &(mesh_setup){.mesh = "stage=2"}, STRATA_INVALID, "begins stage 0 after stage 1");
}

Test(mesh_state, more_micro_batches_than_examples_are_an_error_of_fit) {
    mesh_data d = mesh_data_make(&mesh_dense, 8, 20);
    strata_strategy *strategy = mesh_strategy(&(mesh_setup){.mesh = "stage=2", .microbatches = 9});
    strata_model *model = mesh_model(&mesh_dense, strategy);
    const strata_fit_options fit = mesh_fit_options(&mesh_dense);
    FAILS(strata_model_fit(model, d.dataset, &fit, NULL, &mesh_error), STRATA_INVALID, "batch is 8, but");
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    mesh_data_free(&d);
}

/* A model that is only built has no optimizer; it can be compiled later, and keeps its parameters. */
Test(mesh_state, a_model_that_is_only_built_predicts) {
    const mesh_setup setups[] = {{0}, {.mesh = "stage=4", .microbatches = 2}, {.mesh = "data=2,stage=2,tensor=2"}};
    mesh_data d = mesh_data_make(&mesh_functional, 19, 20);
    mesh_outcome out[3] = {{0}};
    for (int i = 0; i < 3; i++) {
        strata_strategy *strategy = mesh_strategy(&setups[i]);
        strata_model *model = NULL;
        strata_array predictions[MOST_COLUMNS] = {{0}};
        const strata_compile_options opts = {.seed = 3, .strategy = strategy};
        OK(strata_model_from_json(mesh_functional.model, strlen(mesh_functional.model), "test", &model, &mesh_error));
        OK(strata_model_build(model, NULL, &opts, &mesh_error));
        OK(strata_model_predict_all(model, d.dataset, 8, predictions, &mesh_error));
        for (int k = 0; k < MOST_COLUMNS; k++) strata_array_finish(&predictions[k]);
        OK(strata_model_compile(model, NULL, &opts, &mesh_error));
        mesh_look(model, &d, &out[i]);
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
        mesh_expect_numbers(&out[i].parameters, &out[0].parameters, 0, "built", "parameters");
        mesh_expect_numbers(&out[i].predictions, &out[0].predictions, 1e-5, "built", "predictions");
    }
    for (int i = 0; i < 3; i++) mesh_outcome_free(&out[i]);
    mesh_data_free(&d);
}

/* What needs the whole model on one device says so. */
Test(mesh_state, what_needs_the_whole_model_says_so) {
    mesh_data d = mesh_data_make(&mesh_dense, 8, 20);
    strata_strategy *strategy = mesh_strategy(&(mesh_setup){.mesh = "stage=2,tensor=2"});
    strata_model *model = mesh_model(&mesh_dense, strategy);
    strata_model_summary summary = {0};
    strata_model_memory memory = {0};
    strata_status status = strata_model_summarize(model, 8, &summary, &mesh_error);
    cr_assert(!status || status == STRATA_UNSUPPORTED, "%s", mesh_error.message);
    strata_model_summary_finish(&summary);
    for (int part = STRATA_PART_TRAINING; part <= STRATA_PART_PREDICTION; part++) {
        status = strata_model_list_memory(model, (strata_model_part)part, 8, &memory, &mesh_error);
        cr_assert(!status || status == STRATA_UNSUPPORTED, "%s", mesh_error.message);
        if (!status) strata_model_memory_finish(&memory);
    }
    strata_fit_options fit = mesh_fit_options(&mesh_dense);
    fit.check_repeats = true;
    FAILS(strata_model_fit(model, d.dataset, &fit, NULL, &mesh_error), STRATA_UNSUPPORTED, "a part of the model only");
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    mesh_data_free(&d);
}

/* The comparison of random nodes with the reference before each step does not change the training. */
Test(mesh_state, a_mesh_is_checked_against_the_reference) {
    static const char *const devices[] = {"opencl:0.0", "opencl:0.1"};
    static const mesh_setup setups[] = {{.mesh = "stage=2", .devices = devices, .microbatches = 4},
                                        {.mesh = "tensor=2", .devices = devices}};
    strata_device *opened = NULL;
    if (strata_device_open("opencl:0.1", NULL, &opened, NULL)) cr_skip_test("opencl:0.1 is not there");
    strata_device_close(opened);
    mesh_job j = mesh_dense;
    j.epochs = 1;
    mesh_data d = mesh_data_make(&j, j.n, 20);
    for (int i = 0; i < 2; i++) {
        mesh_outcome wanted = mesh_run(&j, &setups[i]), got = {0};
        strata_strategy *strategy = mesh_strategy(&setups[i]);
        strata_model *model = mesh_model(&j, strategy);
        strata_fit_options fit = mesh_fit_options(&j);
        fit.check_every = 1;
        OK(strata_model_fit(model, d.dataset, &fit, NULL, &mesh_error));
        mesh_look(model, &d, &got);
        mesh_expect_numbers(&got.parameters, &wanted.parameters, 0, setups[i].mesh, "parameters");
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
        mesh_outcome_free(&wanted);
        mesh_outcome_free(&got);
    }
    mesh_data_free(&d);
}
