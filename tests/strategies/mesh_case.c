/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/strategies/mesh_case.h"

#include <math.h>
#include <stdlib.h>

#include "tests/support/check.h"

enum { MOST_DEVICES = 8 };

strata_error mesh_error;

const char *const mesh_names[N_MESHES] = {"stage=2",        "stage=4",         "tensor=2",         "tensor=3",
                                          "data=2,stage=2", "data=2,tensor=2", "stage=2,tensor=2", "data=2,stage=2,tensor=2"};

/* ---- what is trained ---- */

/* One dense layer after another. y: 4 classes. */
#define CLASSES \
    { .name = "y", .n_classes = 4 }
const mesh_job mesh_dense = {
    .model =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 11, \"activation\": \"relu\"},"
        "{\"layer\": \"dense\", \"units\": 9, \"activation\": \"tanh\"}, {\"layer\": \"layer_norm\"},"
        "{\"layer\": \"dense\", \"units\": 7, \"activation\": \"relu\"}, {\"layer\": \"dense\", "
        "\"units\": 4, \"name\": \"y\"}]}",
    .inputs = {{.name = "x", .shape = {.rank = 1, .dims = {6}}}},
    .optimizer = {.name = "adam", .learning_rate = 0.003},
    .targets = {CLASSES},
    .n = 40,
    .batch = 8,
    .epochs = 3};

const mesh_job mesh_pictures = {
    .model =
        "{\"input\": [6, 6, 3], \"layers\": [{\"layer\": \"conv2d\", \"filters\": 4, \"kernel_size\": 3, \"padding\": "
        "\"same\"},"
        "{\"layer\": \"batch_norm\", \"activation\": \"relu\"}, {\"layer\": \"max_pool2d\", \"size\": 2}, {\"layer\": "
        "\"dropout\", "
        "\"rate\": 0.25},"
        "{\"layer\": \"conv2d\", \"filters\": 6, \"kernel_size\": 3, \"activation\": \"relu\"},"
        "{\"layer\": \"batch_norm\"}, {\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}",
    .inputs = {{.name = "x", .shape = {.rank = 3, .dims = {6, 6, 3}}}},
    .optimizer = {.name = "adam", .learning_rate = 0.003},
    .targets = {CLASSES},
    .n = 32,
    .batch = 8,
    .epochs = 3};

const mesh_job mesh_recurrent = {
    .model = "{\"input\": [5], " TOKENS
             "{\"layer\": \"lstm\", \"units\": 6, \"return_sequences\": true},"
             "{\"layer\": \"gru\", \"units\": 5}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}",
    .inputs = {{.name = "x", .shape = {.rank = 1, .dims = {5}}, .n_classes = 12}},
    .optimizer = {.name = "adam", .learning_rate = 0.003},
    .targets = {CLASSES},
    .n = 32,
    .batch = 8,
    .epochs = 3};

const mesh_job mesh_attention = {
    .model = "{\"input\": [5], " TOKENS
             "{\"layer\": \"residual\", \"layers\": [{\"layer\": \"layer_norm\"},"
             "{\"layer\": \"multi_head_attention\", \"heads\": 4}, {\"layer\": \"dropout\", \"rate\": 0.1}]},"
             "{\"layer\": \"dense\", \"units\": 8, \"activation\": \"relu\"}, {\"layer\": \"global_average_pool\"},"
             "{\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}",
    .inputs = {{.name = "x", .shape = {.rank = 1, .dims = {5}}, .n_classes = 12}},
    .optimizer = {.name = "adam", .learning_rate = 0.003},
    .targets = {CLASSES},
    .n = 32,
    .batch = 8,
    .epochs = 3};

/* Two inputs, two outputs, a value that is added again some calls later, and a layer that is called at the beginning and near
 * the end. */
const mesh_job mesh_functional = {
    .model =
        "{\"inputs\": [{\"name\": \"left\", \"shape\": [6]}, {\"name\": \"right\", \"shape\": [6]}], \"layers\": ["
        "{\"layer\": \"dense\", \"name\": \"tied\", \"units\": 6, \"activation\": \"tanh\", \"inputs\": [\"left\"]},"
        "{\"layer\": \"dense\", \"name\": \"a\", \"units\": 6, \"activation\": \"relu\"},"
        "{\"layer\": \"dense\", \"name\": \"b\", \"units\": 6, \"inputs\": [\"right\"]},"
        "{\"layer\": \"multiply\", \"name\": \"c\", \"inputs\": [\"a\", \"b\"]},"
        "{\"layer\": \"dense\", \"name\": \"d\", \"units\": 6, \"activation\": \"relu\"},"
        "{\"layer\": \"add\", \"name\": \"e\", \"inputs\": [\"d\", \"tied\"]},"
        "{\"call\": \"tied\", \"name\": \"f\", \"inputs\": [\"e\"]},"
        "{\"layer\": \"dense\", \"name\": \"y\", \"units\": 4, \"inputs\": [\"f\"]},"
        "{\"layer\": \"dense\", \"name\": \"z\", \"units\": 2, \"inputs\": [\"a\"]}],"
        "\"outputs\": [{\"name\": \"y\", \"loss\": \"sparse_categorical_crossentropy\"},"
        "{\"name\": \"z\", \"loss\": \"mse\", \"weight\": 0.5}]}",
    .inputs = {{.name = "left", .shape = {.rank = 1, .dims = {6}}}, {.name = "right", .shape = {.rank = 1, .dims = {6}}}},
    .optimizer = {.name = "adam", .learning_rate = 0.003},
    .targets = {CLASSES, {.name = "z", .shape = {.rank = 1, .dims = {2}}}},
    .n = 32,
    .batch = 8,
    .epochs = 3};

const mesh_job mesh_wide = {
    .model =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 181, \"activation\": \"relu\"},"
        "{\"layer\": \"dense\", \"units\": 19, \"activation\": \"tanh\"},"
        "{\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}",
    .inputs = {{.name = "x", .shape = {.rank = 1, .dims = {6}}}},
    .optimizer = {.name = "adam", .learning_rate = 0.003},
    .targets = {CLASSES},
    .n = 32,
    .batch = 8,
    .epochs = 3};

/* L2 penalties of several layers, which are at several stages. */
const mesh_job mesh_penalized = {
    .model =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 11, \"activation\": \"relu\", \"kernel_l2\": 0.02},"
        "{\"layer\": \"dense\", \"units\": 9, \"activation\": \"tanh\", \"kernel_l2\": 0.01},"
        "{\"layer\": \"dense\", \"units\": 7, \"activation\": \"relu\"},"
        "{\"layer\": \"dense\", \"units\": 4, \"name\": \"y\", \"kernel_l2\": 0.03}]}",
    .inputs = {{.name = "x", .shape = {.rank = 1, .dims = {6}}}},
    .optimizer = {.name = "adam", .learning_rate = 0.003},
    .targets = {CLASSES},
    .n = 40,
    .batch = 8,
    .epochs = 3};

/* ---- data ---- */

static int make_columns(mesh_data *d, const mesh_column *columns, int64_t n, uint64_t seed, strata_data_column *out) {
    int count = 0;
    for (; count < MOST_COLUMNS && columns[count].name; count++) {
        const mesh_column *c = &columns[count];
        strata_shape shape = {.rank = c->shape.rank + 1, .dims = {n}};
        memcpy(shape.dims + 1, c->shape.dims, (size_t)c->shape.rank * sizeof *shape.dims);
        strata_array *array = &d->arrays[d->n_arrays++];
        *array = c->n_classes
                     ? strata_test_random(STRATA_DTYPE_I32, shape, 0, (double)c->n_classes, seed + (uint64_t)d->n_arrays)
                     : strata_test_random(STRATA_DTYPE_F32, shape, -1, 1, seed + (uint64_t)d->n_arrays);
        out[count] = (strata_data_column){.name = c->name, .array = array, .scale = c->scale};
    }
    return count;
}

mesh_data mesh_data_make(const mesh_job *j, int64_t n, uint64_t seed) {
    mesh_data d = {0};
    strata_data_column inputs[MOST_COLUMNS], targets[MOST_COLUMNS];
    const int n_inputs = make_columns(&d, j->inputs, n, seed, inputs),
              n_targets = make_columns(&d, j->targets, n, seed, targets);
    OK(strata_dataset_from_columns(inputs, n_inputs, targets, n_targets, &d.dataset, &mesh_error));
    if (j->weighted) {
        strata_array weights = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(n), 0, 2, seed);
        OK(strata_dataset_set_weights(d.dataset, &weights, &mesh_error));
        strata_array_finish(&weights);
    }
    return d;
}

void mesh_data_free(mesh_data *d) {
    strata_dataset_destroy(d->dataset);
    for (int i = 0; i < d->n_arrays; i++) strata_array_finish(&d->arrays[i]);
}

/* ---- strategies ---- */

/* The product of the numbers in the text. */
static int devices_of(const char *mesh) {
    int n = 1;
    for (const char *at = mesh; at && (at = strchr(at, '=')); at++) n *= atoi(at + 1);
    return n;
}

static strata_status try_strategy(const mesh_setup *s, strata_strategy **out) {
    static const char *const hosts[MOST_DEVICES] = {"host", "host", "host", "host", "host", "host", "host", "host"};
    const strata_strategy_options opts = {.devices = s->devices ? s->devices : hosts,
                                          .n_devices = devices_of(s->mesh),
                                          .mesh = s->mesh,
                                          .microbatches = s->microbatches,
                                          .zero = s->zero,
                                          .schedule = s->schedule,
                                          .layout = s->layout};
    return strata_strategy_create(s->mesh ? "model_parallel" : "one_device", &opts, out, &mesh_error);
}

strata_strategy *mesh_strategy(const mesh_setup *s) {
    strata_strategy *strategy = NULL;
    OK(try_strategy(s, &strategy));
    return strategy;
}

strata_model *mesh_model(const mesh_job *j, strata_strategy *strategy) {
    strata_model *model = NULL;
    const strata_compile_options opts = {
        .optimizer = j->optimizer, .metrics = j->metrics, .seed = 3, .strategy = strategy, .precision = j->precision};
    OK(strata_model_from_json(j->model, strlen(j->model), "test", &model, &mesh_error));
    OK(strata_model_compile(model, NULL, &opts, &mesh_error));
    return model;
}

/* ---- runs and their results ---- */

static void append(mesh_numbers *to, const float *values, int64_t n) {
    to->values = realloc(to->values, (size_t)(to->n + n + 1) * sizeof *to->values);
    cr_assert_not_null(to->values);
    memcpy(to->values + to->n, values, (size_t)n * sizeof *values);
    to->n += n;
}

void mesh_outcome_free(mesh_outcome *o) {
    free(o->predictions.values);
    free(o->parameters.values);
}

mesh_numbers mesh_parameters(strata_model *model) {
    mesh_numbers all = {0};
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        strata_array value = {0};
        OK(strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(model, i).shape, &value, &mesh_error));
        OK(strata_model_get_parameter(model, i, &value, &mesh_error));
        append(&all, value.data, strata_shape_elements(value.shape));
        strata_array_finish(&value);
    }
    return all;
}

/* Evaluates, predicts and reads the parameters. */
void mesh_look(strata_model *model, const mesh_data *d, mesh_outcome *out) {
    const int64_t batch = 8;
    strata_array predictions[MOST_COLUMNS] = {{0}};
    OK(strata_model_evaluate(model, d->dataset, batch, &out->evaluated, &mesh_error));
    OK(strata_model_predict_all(model, d->dataset, batch, predictions, &mesh_error));
    for (int i = 0; i < strata_model_n_outputs(model); i++) {
        append(&out->predictions, predictions[i].data, strata_shape_elements(predictions[i].shape));
        strata_array_finish(&predictions[i]);
    }
    OK(strata_model_replicas_equal(model, &out->equal, &mesh_error));
    out->parameters = mesh_parameters(model);
}

strata_fit_options mesh_fit_options(const mesh_job *j) {
    static const double class_weights[] = {0.5, 2, 1, 1.5};
    return (strata_fit_options){
        .epochs = j->epochs,
        .batch = j->batch,
        .seed = 5,
        .wait_each_step = j->precision == STRATA_DTYPE_F16, /* so that the loss scale follows each step */
        .class_weights = j->weighted ? class_weights : NULL,
        .n_class_weights = j->weighted ? 4 : 0};
}

mesh_outcome mesh_run(const mesh_job *j, const mesh_setup *s) {
    mesh_outcome out = {0};
    strata_history history = {0};
    mesh_data d = mesh_data_make(j, j->n, 20);
    strata_strategy *strategy = mesh_strategy(s);
    strata_model *model = mesh_model(j, strategy);
    const strata_fit_options fit = mesh_fit_options(j);
    OK(strata_model_fit(model, d.dataset, &fit, &history, &mesh_error));
    out.n_losses = history.n_losses < MOST_LOSSES ? history.n_losses : MOST_LOSSES;
    memcpy(out.losses, history.losses, (size_t)out.n_losses * sizeof *out.losses);
    out.n_skipped = history.n_skipped;
    out.trained = history.epochs[history.n_epochs - 1];
    mesh_look(model, &d, &out);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    mesh_data_free(&d);
    return out;
}

bool mesh_near(double got, double wanted, double tolerance) {
    return got == wanted || fabs(got - wanted) <= tolerance * (fabs(wanted) + 1) || (isnan(got) && isnan(wanted));
}

void mesh_expect_numbers(const mesh_numbers *got, const mesh_numbers *wanted, double tolerance, const char *what,
                         const char *kind) {
    cr_assert_eq(got->n, wanted->n, "%s: %lld %s, not %lld", what, (long long)got->n, kind, (long long)wanted->n);
    for (int64_t i = 0; i < wanted->n; i++)
        cr_assert(mesh_near((double)got->values[i], (double)wanted->values[i], tolerance),
                  "%s: %s: number %lld is %.9g, not %.9g", what, kind, (long long)i, (double)got->values[i],
                  (double)wanted->values[i]);
}

void mesh_expect_metrics(const strata_metrics *got, const strata_metrics *wanted, double tolerance, const char *what) {
    cr_assert_eq(got->examples, wanted->examples, "%s", what);
    cr_assert(mesh_near(got->loss, wanted->loss, tolerance), "%s: loss %.9g, not %.9g", what, got->loss, wanted->loss);
    cr_assert_float_eq(got->accuracy, wanted->accuracy, 1e-6, "%s: accuracy %g, not %g", what, got->accuracy, wanted->accuracy);
    cr_assert_eq(got->n, wanted->n, "%s", what);
    for (int m = 0; m < wanted->n; m++)
        cr_assert(mesh_near(got->more[m].value, wanted->more[m].value, tolerance + 1e-6), "%s: metric %d is %g, not %g", what,
                  m, got->more[m].value, wanted->more[m].value);
}
