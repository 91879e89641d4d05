/* SPDX-License-Identifier: Apache-2.0
 *
 * Training on devices that lack ops. Missing ops are composed of others, or run on the host, and the losses must be those
 * of the host. Where neither is possible, the error must list the missing ops. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/fallback/fallback.h"
#include "tests/model/model_case.h"
#include "tests/support/check.h"
#include "tests/support/restricted.h"

enum { STEPS = 4 };

/* The ops of an accelerator with a matrix unit, a vector unit and a unit that copies data. It has no activations, losses
 * and optimizers. */
static const char *const few_ops[] = {"add",  "mul",    "div", "exp",   "log",    "sqrt",        "less",   "equal", "where",
                                      "cast", "matmul", "pad", "slice", "gather", "gather_grad", "assign", NULL};
static const char *const matmul_and_add[] = {"matmul", "add", NULL};

typedef struct sample_case {
    const char *name;
    strata_shape shape; /* with the batch axis */
    strata_dtype dtype;
    double low, high;
    int classes;
} sample_case;
static const sample_case mnist = {"mnist", {3, {8, 28, 28}}, STRATA_DTYPE_F32, 0, 1, 10};
static const sample_case cifar10 = {"cifar10", {4, {2, 32, 32, 3}}, STRATA_DTYPE_F32, 0, 1, 10};
static const sample_case imdb = {"imdb", {2, {4, 250}}, STRATA_DTYPE_I32, 0, 10000, 2};

static strata_model *read_sample(const sample_case *sample) {
    strata_error err = {0};
    char path[4096];
    const char *root = getenv("STRATA_SOURCE_DIR");
    strata_model *model = NULL;
    if (!root) cr_skip_test("STRATA_SOURCE_DIR is not set: samples/%s/model.json is not found", sample->name);
    snprintf(path, sizeof path, "%s/samples/%s/model.json", root, sample->name);
    OK(strata_model_read_json(path, &model, &err));
    return model;
}

/* Generates STEPS batches of examples. */
static strata_dataset *made_up(const sample_case *sample) {
    strata_error err = {0};
    strata_dataset *dataset = NULL;
    strata_shape shape = sample->shape;
    shape.dims[0] *= STEPS;
    strata_array x = strata_test_random(sample->dtype, shape, sample->low, sample->high, 7);
    const strata_dtype labels = sample->classes > 2 ? STRATA_DTYPE_I32 : STRATA_DTYPE_F32;
    strata_array y = strata_test_random(labels, STRATA_SHAPE(shape.dims[0]), 0, sample->classes, 8);
    for (int64_t i = 0; i < shape.dims[0]; i++)
        strata_element_set(labels, y.data, i, floor(strata_element_get(labels, y.data, i)));
    OK(strata_dataset_take_arrays(&x, &y, 0, &dataset, &err));
    return dataset;
}

/* The losses of the first steps, and the elements of the first parameter. */
typedef struct trained {
    float losses[STEPS];
    strata_array kernel;
} trained;

static trained train(strata_model *model, const sample_case *sample) {
    strata_error err = {0};
    trained t = {0};
    strata_history history = {0};
    strata_dataset *dataset = made_up(sample);
    const strata_parameter parameter = strata_model_parameter(model, 0);
    OK(strata_model_fit(model, dataset, &(strata_fit_options){.batch = sample->shape.dims[0], .seed = 3}, &history, &err));
    cr_assert_eq(history.n_losses, STEPS);
    memcpy(t.losses, history.losses, sizeof t.losses);
    OK(strata_array_create(STRATA_DTYPE_F32, parameter.shape, &t.kernel, &err));
    OK(strata_model_get_parameter(model, 0, &t.kernel, &err));
    strata_history_finish(&history);
    strata_dataset_destroy(dataset);
    return t;
}

static trained train_on(strata_device *device, const sample_case *sample) {
    strata_error err = {0};
    strata_model *model = read_sample(sample);
    OK(strata_model_compile(model, device, &(strata_compile_options){.seed = 5}, &err));
    const trained t = train(model, sample);
    strata_model_destroy(model);
    strata_device_close(device);
    return t;
}

static strata_device *open_host(void) {
    strata_error err = {0};
    strata_device *device = NULL;
    OK(strata_device_open("host", NULL, &device, &err));
    return device;
}

static strata_device *with_fallback(strata_device *inner) {
    strata_error err = {0};
    strata_device *device = NULL;
    OK(strata_fallback_create(inner, &device, &err));
    return device;
}

static void expect_equal(trained *got, trained *want) {
    /* Adam changes a parameter by about its learning rate in the direction of its gradient, however small the gradient is.
     * Where the sign of a gradient depends on rounding, the parameters differ by twice the rate. This does not affect the
     * losses. */
    const strata_test_tolerance tolerance = {1e-4, 2.2e-3 * STEPS};
    for (int i = 0; i < STEPS; i++)
        cr_expect(fabsf(got->losses[i] - want->losses[i]) <= 1e-4f * fabsf(want->losses[i]), "step %d: loss %.9g, not %.9g", i,
                  (double)got->losses[i], (double)want->losses[i]);
    strata_test_result result = strata_test_compare(&got->kernel, &want->kernel, tolerance);
    cr_expect(result.ok, "%s", result.text);
    strata_array_finish(&got->kernel);
    strata_array_finish(&want->kernel);
}

static void trains_on_few_ops(const sample_case *sample) {
    const strata_test_restriction restriction = {few_ops, true, STRATA_SUPPORT_NO};
    trained want = train_on(open_host(), sample), got = train_on(strata_test_restricted_host(restriction), sample);
    expect_equal(&got, &want);
}

static void trains_with_the_hosts_help(const sample_case *sample) {
    const strata_test_restriction restriction = {matmul_and_add, true, STRATA_SUPPORT_NO};
    strata_device *device = with_fallback(strata_test_restricted_host(restriction));
    trained want = train_on(open_host(), sample), got = train_on(device, sample);
    expect_equal(&got, &want);
}

Test(placement, mnist_trains_by_compositions_alone) {
    trains_on_few_ops(&mnist);
}
Test(placement, cifar10_trains_by_compositions_alone) {
    trains_on_few_ops(&cifar10);
}
Test(placement, imdb_trains_by_compositions_alone) {
    trains_on_few_ops(&imdb);
}
Test(placement, mnist_trains_on_matmul_and_add_with_the_hosts_help) {
    trains_with_the_hosts_help(&mnist);
}
/* The device has its own memory, so values that the host needs are copied by the driver. */
Test(placement, mnist_trains_on_opencls_matmul_and_add_with_the_hosts_help) {
    strata_error err = {0};
    strata_device *inner = NULL;
    if (strata_device_open("opencl:0", &(strata_device_options){.no_tune = true}, &inner, &err))
        cr_skip_test("%s", err.message);
    strata_test_restrict(inner, (strata_test_restriction){matmul_and_add, true, STRATA_SUPPORT_NO});
    trained want = train_on(open_host(), &mnist), got = train_on(with_fallback(inner), &mnist);
    expect_equal(&got, &want);
}
Test(placement, cifar10_trains_on_matmul_and_add_with_the_hosts_help) {
    trains_with_the_hosts_help(&cifar10);
}
Test(placement, imdb_trains_on_matmul_and_add_with_the_hosts_help) {
    trains_with_the_hosts_help(&imdb);
}

Test(placement, without_the_hosts_help_it_is_an_error_that_lists_what_is_missing) {
    strata_error err = {0};
    strata_device *device = strata_test_restricted_host((strata_test_restriction){matmul_and_add, true, STRATA_SUPPORT_NO});
    strata_model *model = read_sample(&mnist);
    strata_dataset *dataset = made_up(&mnist);
    OK(strata_model_compile(model, device, NULL, &err));
    FAILS(strata_model_fit(model, dataset, &(strata_fit_options){.batch = 8}, NULL, &err), STRATA_UNSUPPORTED,
          "--allow-fallback");
    cr_expect_not_null(strstr(err.message, "host cannot run 8 of 17 nodes"), "%s", err.message);
    cr_expect_not_null(strstr(err.message, "relu f32 (8,128): the test took the op away"), "%s", err.message);
    cr_expect_not_null(strstr(err.message, "sparse_softmax_cross_entropy f32 (8)"), "%s", err.message);
    cr_expect_not_null(strstr(err.message, " more"), "%s", err.message);
    strata_dataset_destroy(dataset);
    strata_model_destroy(model);
    strata_device_close(device);
}

/* With a composition no node is left for the host. An op without a composition runs on the host as a whole. */
Test(placement, the_places_say_who_runs_what) {
    strata_error err = {0};
    strata_device *device = strata_test_restricted_host((strata_test_restriction){matmul_and_add, true, STRATA_SUPPORT_NO});
    strata_device *host = open_host(),
                  *few = strata_test_restricted_host((strata_test_restriction){few_ops, true, STRATA_SUPPORT_NO});
    strata_device *others[] = {host, few};
    strata_model *model = read_sample(&mnist);
    strata_model_places places = {0};
    int n_relu = 0, n_matmul = 0;
    OK(strata_model_compile(model, device, NULL, &err));
    OK(strata_model_list_places(model, STRATA_PART_TRAINING, 8, 0, others, 2, &places, &err));
    cr_expect_eq(places.n_nodes, 17);
    cr_expect_eq(places.n_nowhere, 8);
    cr_expect_eq(places.n_host, 0);
    for (int i = 0; i < places.n_nodes; i++) {
        const strata_node_place *node = &places.nodes[i];
        if (!strcmp(node->op, "relu")) {
            n_relu++;
            cr_expect_eq(node->placed, STRATA_PLACED_NOWHERE);
            cr_expect_eq(node->others, 1, "the host runs relu, a device of few ops does not");
            cr_expect_str_eq(node->name, "dense");
            cr_expect_not_null(strstr(node->reason, "the test took the op away"));
        }
        if (strcmp(node->op, "matmul")) continue;
        n_matmul++;
        cr_expect_eq(node->placed, STRATA_PLACED_DEVICE);
        cr_expect_str_empty(node->reason);
    }
    cr_expect_eq(n_relu, 1);
    cr_expect_gt(n_matmul, 3, "sums of columns are products with ones");
    strata_model_places_finish(&places);
    FAILS(strata_model_list_places(model, STRATA_PART_TRAINING, 8, 1, NULL, 0, &places, &err), STRATA_INVALID, "replica is 1");
    FAILS(strata_model_list_places(model, STRATA_PART_TRAINING, -1, 0, NULL, 0, &places, &err), STRATA_INVALID, "batch is -1");
    strata_model_destroy(model);

    model = read_sample(&mnist);
    OK(strata_model_compile(model, few, NULL, &err));
    OK(strata_model_list_places(model, STRATA_PART_PREDICTION, 8, 0, NULL, 0, &places, &err));
    cr_expect_eq(places.n_nowhere, 0);
    for (int i = 0; i < places.n_nodes; i++) cr_expect_neq(strcmp(places.nodes[i].op, "relu"), 0);
    strata_model_places_finish(&places);
    strata_model_destroy(model);
    for (int i = 0; i < 2; i++) strata_device_close(others[i]);
    strata_device_close(device);
}

/* Two replicas. One has few ops, the other little more than products. Together they must train like one host device. */
Test(placement, devices_that_lack_ops_train_together) {
    static const strata_test_restriction restrictions[] = {{few_ops, true, STRATA_SUPPORT_NO},
                                                           {matmul_and_add, true, STRATA_SUPPORT_NO}};
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    const strata_device_options options = {.fallback_to_host = true};
    OK(strata_strategy_create(
        "mirrored",
        &(strata_strategy_options){.devices = (const char *[]){"host", "host"}, .n_devices = 2, .device_options = &options},
        &strategy, &err));
    for (int r = 0; r < 2; r++)
        strata_test_restrict(((fallback_device *)strata_strategy_device(strategy, r))->sides[FALLBACK_DEVICE], restrictions[r]);
    strata_model *model = read_sample(&mnist);
    OK(strata_model_compile(model, NULL, &(strata_compile_options){.seed = 5, .strategy = strategy}, &err));
    trained got = train(model, &mnist), want = train_on(open_host(), &mnist);
    expect_equal(&got, &want);
    cr_expect_eq(strata_device_get_counters(strata_strategy_device(strategy, 0)).host_nodes, 0);
    cr_expect_gt(strata_device_get_counters(strata_strategy_device(strategy, 1)).host_nodes, 0);
    cr_expect_gt(strata_device_get_counters(strata_strategy_device(strategy, 1)).copies, 0);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}
