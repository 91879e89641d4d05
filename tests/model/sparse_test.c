/* SPDX-License-Identifier: Apache-2.0
 *
 * Sparse embeddings. Where a sparse update should equal a dense one, the results must be equal. Where it differs, it must
 * follow the rule of SparseAdam. Both must also hold under strategies and with accumulated gradients. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model_case.h"
#include "strata/strategy.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

enum { N = 20, LENGTH = 5, TOKENS = 23, UNITS = 3, CLASSES = 2, TABLE = TOKENS * UNITS };

/* Batch sizes. A batch of FEW texts has fewer words than a table has rows, and its gradient consists of the rows of these
 * words. A batch of MANY texts has more words, and its gradient has all rows. */
enum { FEW = 4, MANY = 7 };

static strata_error err;

TestSuite(sparse, .init = test_folder_make, .fini = test_folder_remove);

/* Texts with all words from `first` to first + n_words - 1, at most 20 different ones. Some words occur often. */
static strata_dataset *texts(int64_t n, int first, int n_words) {
    strata_dataset *dataset = NULL;
    strata_array x, y;
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n, LENGTH), &x, &err));
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n), &y, &err));
    for (int64_t i = 0; i < n * LENGTH; i++) ((int32_t *)x.data)[i] = (int32_t)(first + (i < N ? i : i * i) % n_words);
    for (int64_t i = 0; i < n; i++) ((int32_t *)y.data)[i] = (int32_t)(i * 5 / 3 % CLASSES);
    OK(strata_dataset_take_arrays(&x, &y, 0, &dataset, &err));
    return dataset;
}

/* A model with two tables that are added, followed by a dense layer. */
static strata_model *build(bool sparse) {
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(LENGTH), &model, &err));
    OK(strata_model_set_input_dtype(model, STRATA_DTYPE_I32, &err));
    strata_model_begin_residual(model, (strata_residual_options){.activation = "tanh"});
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = TOKENS, .units = UNITS, .sparse = sparse});
    strata_model_begin_shortcut(model);
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = TOKENS, .units = UNITS, .sparse = sparse});
    strata_model_end_residual(model);
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = CLASSES});
    return model;
}

typedef struct setting {
    bool sparse;
    strata_optimizer optimizer;
    strata_dtype precision;
    strata_device *device;
    strata_strategy *strategy;
} setting;

static strata_model *compiled(setting s) {
    strata_model *model = build(s.sparse);
    const strata_compile_options opts = {.optimizer = s.optimizer, .seed = 4, .precision = s.precision, .strategy = s.strategy};
    OK(strata_model_compile(model, s.strategy ? NULL : s.device, &opts, &err));
    return model;
}

static void fit(strata_model *model, strata_dataset *data, int64_t batch, int epochs) {
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = epochs, .batch = batch, .seed = 2}, NULL, &err));
}

static void get(strata_model *model, int parameter, float *values) {
    strata_array view = strata_array_view(STRATA_DTYPE_F32, strata_model_parameter(model, parameter).shape, values);
    OK(strata_model_get_parameter(model, parameter, &view, &err));
}

/* Returns the largest difference between the parameters of the two models. */
static double apart(strata_model *a, strata_model *b) {
    double most = 0;
    for (int i = 0; i < strata_model_n_parameters(a); i++) {
        float one[TABLE], other[TABLE];
        get(a, i, one);
        get(b, i, other);
        for (int64_t k = 0; k < strata_shape_elements(strata_model_parameter(a, i).shape); k++)
            most = fmax(most, fabs((double)one[k] - (double)other[k]));
    }
    return most;
}

/* ---- one device ---- */

static double against_dense(strata_device *device, strata_optimizer optimizer, strata_dtype precision, int64_t batch,
                            bool *out_equal) {
    strata_dataset *data = texts(N, 2, 9);
    strata_model *sparse =
        compiled((setting){.sparse = true, .optimizer = optimizer, .precision = precision, .device = device});
    strata_model *dense = compiled((setting){.optimizer = optimizer, .precision = precision, .device = device});
    fit(sparse, data, batch, 2);
    fit(dense, data, batch, 2);
    const double most = apart(sparse, dense);
    *out_equal = !strcmp(case_sha(sparse), case_sha(dense));
    strata_model_destroy(sparse);
    strata_model_destroy(dense);
    strata_dataset_destroy(data);
    return most;
}

TEST_ON_HOST(sparse, sgd_and_adagrad_give_the_bits_of_dense_updates) {
    const strata_optimizer optimizers[] = {strata_sgd_optimizer(0.5, 0, false),
                                           {.name = "adagrad", .learning_rate = 0.1},
                                           {.name = "sgd", .learning_rate = 0.5, .clip_value = 0.01}};
    for (int i = 0; i < 3; i++)
        for (int64_t batch = FEW; batch <= MANY; batch += MANY - FEW) {
            bool equal;
            const double most = against_dense(device, optimizers[i], STRATA_DTYPE_F32, batch, &equal);
            cr_assert(equal, "%s, batch %d: up to %g apart", optimizers[i].name, (int)batch, most);
        }
}

TEST_ON_DEVICES(sparse, adagrad_gives_the_bits_of_dense_updates_on_each_device) {
    for (int64_t batch = FEW; batch <= MANY; batch += MANY - FEW) {
        bool equal;
        against_dense(device, (strata_optimizer){.name = "adagrad", .learning_rate = 0.1}, STRATA_DTYPE_F32, batch, &equal);
        cr_assert(equal, "batch %d", (int)batch);
    }
}

TEST_ON_HOST(sparse, the_norm_of_all_gradients_clips_as_in_dense_updates) {
    bool equal;
    cr_assert_lt(against_dense(device, (strata_optimizer){.name = "sgd", .learning_rate = 1, .clip_global_norm = 0.05},
                               STRATA_DTYPE_F32, 7, &equal),
                 1e-6);
}

TEST_ON_HOST(sparse, updates_in_f16_have_their_loss_scale) {
    bool equal;
    against_dense(device, strata_sgd_optimizer(0.5, 0, false), STRATA_DTYPE_F16, 7, &equal);
    cr_assert(equal);
}

/* ---- the rule of SparseAdam ---- */

/* The parameters before the step, and Adam's moments. */
typedef struct adam_table {
    double p[TABLE], m[TABLE], v[TABLE];
} adam_table;

/* Computes the gradients for `data` at the model's parameters. They are the change that plain SGD with rate 1 makes. */
static void gradients_at(strata_model *sgd, strata_model *model, strata_dataset *data, float out_gradients[2][TABLE]) {
    float before[2][TABLE], values[TABLE], after[TABLE];
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        get(model, i, i < 2 ? before[i] : values);
        strata_array view =
            strata_array_view(STRATA_DTYPE_F32, strata_model_parameter(model, i).shape, i < 2 ? before[i] : values);
        OK(strata_model_set_parameter(sgd, i, &view, &err));
    }
    fit(sgd, data, N, 1);
    for (int i = 0; i < 2; i++) {
        get(sgd, i, after);
        for (int k = 0; k < TABLE; k++) out_gradients[i][k] = before[i][k] - after[k];
    }
}

static void sparse_adam(adam_table *t, const float *g, int first, int n_words, int step, double rate, double decay) {
    const double correction = sqrt(1 - pow(0.999, step)) / (1 - pow(0.9, step));
    for (int k = first * UNITS; k < (first + n_words) * UNITS; k++) {
        t->m[k] += 0.1 * ((double)g[k] - t->m[k]);
        t->v[k] += 0.001 * ((double)g[k] * (double)g[k] - t->v[k]);
        t->p[k] -= rate * decay * t->p[k];
        t->p[k] -= rate * correction * t->m[k] / (sqrt(t->v[k]) + 1e-3);
    }
}

/* Makes four steps with different words. The model must follow the rule of sparse_adam. */
static void follows_sparse_adam(setting s, double decay) {
    static const int first[] = {0, 4, 17, 3}, n_words[] = {6, 1, 6, 11};
    enum { STEPS = 4 };
    adam_table *tables = calloc(2, sizeof *tables);
    float g[2][TABLE], now[TABLE];
    strata_model *model = compiled(s);
    s.optimizer = strata_sgd_optimizer(1, 0, false);
    s.sparse = false;
    s.strategy = NULL;
    strata_model *sgd = compiled(s);
    for (int i = 0; i < 2; i++) {
        get(model, i, now);
        for (int k = 0; k < TABLE; k++) tables[i].p[k] = (double)now[k];
    }
    for (int step = 0; step < STEPS; step++) {
        strata_dataset *data = texts(N, first[step], n_words[step]);
        gradients_at(sgd, model, data, g);
        fit(model, data, N, 1);
        for (int i = 0; i < 2; i++) {
            sparse_adam(&tables[i], g[i], first[step], n_words[step], step + 1, 0.1, decay);
            get(model, i, now);
            for (int k = 0; k < TABLE; k++)
                cr_assert_float_eq((double)now[k], tables[i].p[k], 2e-5, "step %d, table %d, row %d: %g, not %g", step, i,
                                   k / UNITS, (double)now[k], tables[i].p[k]);
        }
        strata_dataset_destroy(data);
    }
    free(tables);
    strata_model_destroy(model);
    strata_model_destroy(sgd);
}

static const strata_optimizer adam = {.name = "adam", .learning_rate = 0.1, .epsilon = 1e-3};

TEST_ON_HOST(sparse, adam_leaves_rows_that_no_text_has) {
    follows_sparse_adam((setting){.sparse = true, .optimizer = adam, .device = device}, 0);
}

TEST_ON_HOST(sparse, adamw_decays_the_rows_that_it_updates) {
    follows_sparse_adam((setting){.sparse = true,
                                  .optimizer = {.name = "adamw", .learning_rate = 0.1, .epsilon = 1e-3, .weight_decay = 0.2},
                                  .device = device},
                        0.2);
}

/* ---- strategies, accumulation, checkpoints ---- */

static strata_strategy *hosts(int n) {
    strata_device *devices[3];
    strata_strategy *made = NULL;
    for (int i = 0; i < n; i++) OK(strata_device_open("host", NULL, &devices[i], &err));
    OK(strata_strategy_from_devices(devices, n, &made, &err));
    return made;
}

TEST_ON_HOST(sparse, adam_does_the_same_on_replicas) {
    strata_strategy *made = hosts(3);
    follows_sparse_adam((setting){.sparse = true, .optimizer = adam, .device = device, .strategy = made}, 0);
    strata_strategy_destroy(made);
}

TEST_ON_HOST(sparse, adam_does_the_same_on_a_parameter_device) {
    strata_strategy *made = NULL;
    const char *const devices[] = {"host"};
    OK(strata_strategy_create("central_storage", &(strata_strategy_options){.devices = devices, .n_devices = 1}, &made, &err));
    follows_sparse_adam((setting){.sparse = true, .optimizer = adam, .device = device, .strategy = made}, 0);
    strata_strategy_destroy(made);
}

/* Four batches of 5 texts must give the update of one batch of 20, for the words of all four. */
TEST_ON_HOST(sparse, rows_of_accumulated_batches_are_updated_together) {
    strata_optimizer accumulating = adam;
    accumulating.gradient_accumulation_steps = 4;
    strata_dataset *data[] = {texts(N, 0, 9), texts(N, 7, 3), texts(N, 5, 12)};
    for (int replicas = 1; replicas < 3; replicas++) {
        strata_strategy *made = replicas > 1 ? hosts(replicas) : NULL;
        strata_model *whole = compiled((setting){.sparse = true, .optimizer = adam, .device = device});
        strata_model *parts =
            compiled((setting){.sparse = true, .optimizer = accumulating, .device = device, .strategy = made});
        for (int i = 0; i < 3; i++) {
            fit(whole, data[i], N, 1);
            fit(parts, data[i], N / 4, 1);
        }
        cr_assert_lt(apart(whole, parts), 2e-5, "%d replicas: %g", replicas, apart(whole, parts));
        strata_model_destroy(whole);
        strata_model_destroy(parts);
        strata_strategy_destroy(made);
    }
    for (int i = 0; i < 3; i++) strata_dataset_destroy(data[i]);
}

TEST_ON_HOST(sparse, training_goes_on_from_a_checkpoint) {
    const char *path = test_path("sparse.checkpoint");
    int epochs = 0;
    strata_dataset *one = texts(N, 0, 9), *other = texts(N, 5, 12);
    const setting s = {.sparse = true, .optimizer = adam, .device = device};
    strata_model *straight = compiled(s), *resumed = compiled(s);
    fit(straight, one, 7, 1);
    OK(strata_model_save_checkpoint(straight, 1, path, &err));
    OK(strata_model_load_checkpoint(resumed, path, &epochs, &err));
    fit(straight, other, 7, 1);
    fit(resumed, other, 7, 1);
    cr_assert_str_eq(case_sha(straight), case_sha(resumed));
    strata_model_destroy(straight);
    strata_model_destroy(resumed);
    strata_dataset_destroy(one);
    strata_dataset_destroy(other);
}

/* ---- models without dense parameters, and errors ---- */

/* The model has only a table, so nothing is left for the dense update. */
TEST_ON_HOST(sparse, a_table_can_be_all_that_is_trained) {
    strata_model *models[2];
    strata_dataset *data = texts(N, 0, 9);
    for (int i = 0; i < 2; i++) {
        OK(strata_model_create(STRATA_SHAPE(LENGTH), &models[i], &err));
        OK(strata_model_set_input_dtype(models[i], STRATA_DTYPE_I32, &err));
        strata_model_add_embedding(models[i], (strata_embedding_options){.vocabulary = TOKENS, .units = CLASSES, .sparse = i});
        strata_model_add_global_average_pool(models[i], (strata_global_average_pool_options){0});
        const strata_compile_options opts = {.optimizer = {.name = "adagrad"}, .seed = 4};
        OK(strata_model_compile(models[i], device, &opts, &err));
        fit(models[i], data, 7, 2);
    }
    cr_assert_str_eq(case_sha(models[0]), case_sha(models[1]));
    for (int i = 0; i < 2; i++) strata_model_destroy(models[i]);
    strata_dataset_destroy(data);
}

Test(sparse, is_said_in_json) {
    strata_model *model = build(true), *read = NULL;
    char *text = NULL, *again = NULL;
    OK(strata_model_to_json(model, &text, &err));
    cr_assert_not_null(strstr(text, "\"sparse\":true"), "%s", text);
    OK(strata_model_from_json(text, strlen(text), "model", &read, &err));
    OK(strata_model_to_json(read, &again, &err));
    cr_assert_str_eq(text, again);
    free(text);
    free(again);
    strata_model_destroy(model);
    strata_model_destroy(read);
}

TEST_ON_HOST(sparse, refuses_what_needs_whole_tables) {
    static const struct {
        strata_optimizer optimizer;
        const char *text;
    } refused[] = {{{.name = "lamb"}, "lamb needs the norms of whole parameters; take another optimizer, or leave out sparse"},
                   {{.name = "lars"}, "residual/embedding/embeddings is sparse, and lars"},
                   {{.name = "adam", .clip_norm = 1}, "use clip_global_norm or clip_value, or leave out sparse"}};
    for (int i = 0; i < 3; i++) {
        strata_model *model = build(true);
        const strata_compile_options opts = {.optimizer = refused[i].optimizer};
        FAILS(strata_model_compile(model, device, &opts, &err), STRATA_INVALID, refused[i].text);
        strata_model_destroy(model);
    }
}
