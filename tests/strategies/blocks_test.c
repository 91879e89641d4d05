/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with more parameters than a device can bind as one buffer range. The parameters are then divided into several
 * blocks. The tests limit what devices report that they can bind, and compare the training with one without this limit. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/model.h"
#include "core/run/device.h"
#include "strata/strata.h"
#include "tests/strategies/strategies_case.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/names.h"

enum { FEATURES = 20, WORDS = 3, VOCABULARY = 300, CLASSES = 4, N = 48, BATCH = 16 };

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

TestSuite(blocks, .init = test_folder_make, .fini = test_folder_remove);

typedef struct plan {
    const char *strategy;
    /* The list ends with NULL. */
    const char *devices[4];
    strata_optimizer optimizer; /* name NULL: adam */
    strata_dtype precision;
    bool tokens, sparse, sharded, batch_norm;
    /* The largest range that the devices report, in bytes. 0: their own limit. */
    uint64_t bytes;
} plan;

typedef struct outcome {
    int n_blocks, n_parts;
    strata_metrics trained;
    char sha[65];
    int64_t n_values;
    float *values;
} outcome;

static bool there_is(const char *id) {
    strata_device *device = NULL;
    const strata_status status = strata_device_open(id, NULL, &device, &err);
    strata_device_close(device);
    return !status;
}

static strata_dataset *make_dataset(bool tokens, strata_array *x, strata_array *y) {
    strata_dataset *dataset = NULL;
    if (tokens)
        OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(N, WORDS), x, &err));
    else
        *x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(N, FEATURES), -1, 1, 11);
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(N), y, &err));
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < WORDS && tokens; k++) ((int32_t *)x->data)[i * WORDS + k] = (i * 71 + k * 37) % VOCABULARY;
        ((int32_t *)y->data)[i] = (i * 7 + i / 5) % CLASSES;
    }
    OK(strata_dataset_from_arrays(x, y, 0, &dataset, &err));
    return dataset;
}

static strata_model *make_model(const plan *p) {
    strata_model *model = NULL;
    OK(strata_model_create(p->tokens ? STRATA_SHAPE(WORDS) : STRATA_SHAPE(FEATURES), &model, &err));
    if (p->tokens) {
        OK(strata_model_set_input_dtype(model, STRATA_DTYPE_I32, &err));
        strata_model_add_embedding(model,
                                   (strata_embedding_options){.vocabulary = VOCABULARY, .units = 12, .sparse = p->sparse});
        strata_model_add_flatten(model, (strata_flatten_options){0});
    }
    strata_model_add_dense(model, (strata_dense_options){.units = 48, .activation = "tanh", .kernel_l2 = 1e-3});
    if (p->batch_norm) strata_model_add_batch_norm(model, (strata_batch_norm_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 60, .activation = "tanh"});
    strata_model_add_dense(model, (strata_dense_options){.units = CLASSES});
    return model;
}

static strata_strategy *make_strategy(const plan *p) {
    strata_strategy *strategy = test_strategy(p->strategy, p->devices, p->sharded);
    for (int i = 0; i < strategy->n_devices && p->bytes; i++) strategy->devices[i]->info.max_range_bytes = p->bytes;
    return strategy;
}

static strata_status compile(const plan *p, strata_model *model, strata_strategy *strategy) {
    const strata_compile_options opts = {.strategy = strategy, .optimizer = p->optimizer, .seed = 3, .precision = p->precision};
    return strata_model_compile(model, NULL, &opts, &err);
}

static outcome finish(strata_model *model) {
    outcome o = {.n_blocks = model->parameters.n_blocks, .n_parts = model->parameters.n_parts};
    bool equal = false;
    OK(strata_model_sha256(model, o.sha, &err));
    OK(strata_model_replicas_equal(model, &equal, &err));
    cr_assert(equal, "the replicas differ");
    o.n_values = strata_model_all_size(model);
    o.values = calloc((size_t)o.n_values, sizeof *o.values);
    OK(strata_model_read_all(model, o.values, &err));
    strata_model_destroy(model);
    return o;
}

/* Trains two epochs. With `resume` another model trains the second one, from a checkpoint of the first. */
static outcome train(const plan *p, bool resume) {
    strata_array x, y;
    strata_dataset *dataset = make_dataset(p->tokens, &x, &y);
    strata_strategy *strategy = make_strategy(p);
    strata_model *model = make_model(p);
    strata_history history = {0};
    OK(compile(p, model, strategy));
    strata_fit_options fit = {.epochs = resume ? 1 : 2, .batch = BATCH, .seed = 5};
    OK(strata_model_fit(model, dataset, &fit, &history, &err));
    if (resume) {
        const char *path = test_path("blocks.checkpoint");
        strata_history_finish(&history);
        OK(strata_model_save_checkpoint(model, 1, path, &err));
        strata_model_destroy(model);
        model = make_model(p);
        OK(compile(p, model, strategy));
        OK(strata_model_load_checkpoint(model, path, &fit.first_epoch, &err));
        fit.epochs = 2;
        OK(strata_model_fit(model, dataset, &fit, &history, &err));
    }
    const strata_metrics trained = history.epochs[history.n_epochs - 1];
    outcome o = finish(model);
    o.trained = trained;
    strata_history_finish(&history);
    strata_dataset_destroy(dataset);
    strata_array_finish(&x);
    strata_array_finish(&y);
    strata_strategy_destroy(strategy);
    return o;
}

/* Compares the training with the limit to the one without. The bits must be equal if no parameter is split. */
static void expect_like_whole(plan p, uint64_t bytes, double tolerance) {
    const outcome whole = train(&p, false);
    p.bytes = bytes;
    for (int resume = 0; resume < 2; resume++) {
        const outcome blocks = train(&p, resume);
        double most = 0;
        cr_assert_eq(whole.n_blocks, 1);
        cr_assert_gt(blocks.n_blocks, 1);
        for (int64_t i = 0; i < whole.n_values; i++)
            most = fmax(most, fabs((double)whole.values[i] - (double)blocks.values[i]));
        cr_assert_leq(most, tolerance, "%s: parameters differ by %g", p.devices[0], most);
        if (tolerance == 0) cr_assert_eq(blocks.n_parts, whole.n_parts);
        if (tolerance == 0) cr_assert_str_eq(blocks.sha, whole.sha);
        if (tolerance > 0) cr_assert_gt(blocks.n_parts, whole.n_parts, "nothing was split");
        cr_assert_float_eq(blocks.trained.loss, whole.trained.loss, 1e-5);
        free(blocks.values);
    }
    free(whole.values);
}

/* The kernels have 960, 2880 and 240 elements. With WHOLE_KERNELS bytes each fits into a block, with SPLIT_KERNELS one does
 * not. */
enum { WHOLE_KERNELS = 14336, SPLIT_KERNELS = 8192 };

Test(blocks, train_with_the_bits_of_one_block) {
    const char *ids[] = {"host", "opencl:0", "vulkan:0"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        plan p = {.strategy = "one_device", .devices = {ids[i]}, .batch_norm = true};
        if (there_is(ids[i])) expect_like_whole(p, WHOLE_KERNELS, 0);
    }
}

Test(blocks, split_a_kernel_by_rows) {
    const char *ids[] = {"host", "opencl:0", "vulkan:0"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        plan p = {.strategy = "one_device", .devices = {ids[i]}};
        if (there_is(ids[i])) expect_like_whole(p, SPLIT_KERNELS, 1e-5);
    }
}

Test(blocks, train_with_every_optimizer_and_clipping) {
    for (int i = 0; i < TEST_OPTIMIZERS; i++) {
        const plan p = {.strategy = "one_device",
                        .devices = {"host"},
                        .optimizer = {.name = test_optimizers[i], .learning_rate = 0.01, .momentum = i ? 0 : 0.9}};
        expect_like_whole(p, WHOLE_KERNELS, 0);
    }
    plan p = {.strategy = "one_device", .devices = {"host"}, .optimizer = strata_adam_optimizer(0.01)};
    p.optimizer.clip_value = 1e-3;
    expect_like_whole(p, WHOLE_KERNELS, 0);
    p.optimizer.clip_value = 0;
    p.optimizer.clip_norm = 1e-2;
    expect_like_whole(p, WHOLE_KERNELS, 0);
    p.optimizer.clip_norm = 0;
    p.optimizer.clip_global_norm = 1e-2;
    expect_like_whole(p, SPLIT_KERNELS, 1e-5);
    p.optimizer.gradient_accumulation_steps = 2;
    expect_like_whole(p, SPLIT_KERNELS, 1e-5);
}

Test(blocks, train_in_f16_with_its_loss_scale) {
    const plan p = {.strategy = "one_device", .devices = {"host"}, .precision = STRATA_DTYPE_F16};
    expect_like_whole(p, WHOLE_KERNELS, 0);
}

Test(blocks, train_under_the_strategies_of_one_machine) {
    plan p = {.strategy = "mirrored", .devices = {"host", "host"}, .batch_norm = true};
    expect_like_whole(p, WHOLE_KERNELS, 0);
    expect_like_whole(p, SPLIT_KERNELS, 1e-5);
    p.sharded = true;
    expect_like_whole(p, WHOLE_KERNELS, 0);
    p.sharded = false;
    p.strategy = "central_storage";
    expect_like_whole(p, WHOLE_KERNELS, 0);
}

/* The table has 3,600 elements. Its gradient also contains a count for each row. */
Test(blocks, split_tables_of_embeddings) {
    plan p = {.strategy = "one_device", .devices = {"host"}, .tokens = true};
    expect_like_whole(p, 12000, 1e-5);
    p.sparse = true;
    expect_like_whole(p, 12000, 1e-5);
    p.strategy = "mirrored";
    p.devices[1] = "host";
    expect_like_whole(p, 12000, 1e-5);
}

static void expect_refused(plan p, const char *text) {
    strata_strategy *strategy = make_strategy(&p);
    strata_model *model = make_model(&p);
    cr_assert_eq(compile(&p, model, strategy), STRATA_UNSUPPORTED);
    cr_assert_not_null(strstr(err.message, text), "\"%s\" lacks \"%s\"", err.message, text);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}

Test(blocks, what_cannot_be_split_is_named) {
    plan p = {.strategy = "one_device", .devices = {"host"}, .bytes = SPLIT_KERNELS, .optimizer = {.name = "lamb"}};
    expect_refused(p, "dense_1/kernel (48,60) is larger than the devices bind");
    p.optimizer = strata_adam_optimizer(0.01);
    p.optimizer.clip_norm = 1;
    expect_refused(p, "clip_norm takes the norm");
    p.optimizer.clip_norm = 0;
    p.bytes = 2048;
    expect_refused(p, "its rows are too long");
    strata_model *model = NULL;
    strata_strategy *strategy = NULL;
    p.bytes = 1 << 12;
    strategy = make_strategy(&p);
    OK(strata_model_create(STRATA_SHAPE(9, 9, 16), &model, &err));
    strata_model_add_conv2d(model, (strata_conv2d_options){.filters = 16, .kernel_size = {3, 3}});
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    cr_assert_eq(compile(&p, model, strategy), STRATA_UNSUPPORTED);
    cr_assert_not_null(strstr(err.message, "conv2d/kernel (3,3,16,16) needs 9216 bytes"), "%s", err.message);
    cr_assert_not_null(strstr(err.message, "its layer cannot compute with parts of it"), "%s", err.message);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}

Test(blocks, parameters_are_set_and_given_whole) {
    plan p = {.strategy = "mirrored", .devices = {"host", "host"}, .bytes = SPLIT_KERNELS, .sharded = true};
    strata_strategy *strategy = make_strategy(&p);
    strata_model *model = make_model(&p);
    OK(compile(&p, model, strategy));
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        const strata_shape shape = strata_model_parameter(model, i).shape;
        strata_array set = strata_test_random(STRATA_DTYPE_F32, shape, -1, 1, 40 + (unsigned)i), got;
        OK(strata_array_create(STRATA_DTYPE_F32, shape, &got, &err));
        OK(strata_model_set_parameter(model, i, &set, &err));
        OK(strata_model_get_parameter(model, i, &got, &err));
        cr_assert_eq(memcmp(set.data, got.data, strata_array_bytes(&set)), 0, "parameter %d", i);
        strata_array_finish(&set);
        strata_array_finish(&got);
    }
    cr_assert_gt(model->parameters.n_parts, 6);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}
