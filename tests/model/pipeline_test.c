/* SPDX-License-Identifier: Apache-2.0
 *
 * Models trained on pipelines: the bits are those of training on arrays, however the batches are made; and batches that do
 * not fit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model_case.h"

static strata_error err;

static const char *trained(strata_device *device, const strata_dataset *data, strata_fit_options opts) {
    strata_model *model = case_model(device, strata_adam_optimizer(0.01), 1);
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    const char *sha = case_sha(model);
    strata_model_destroy(model);
    return sha;
}

TEST_ON_DEVICES(pipeline, fit_gives_the_bits_of_the_arrays) {
    strata_fit_options opts = {.epochs = 2, .batch = 16, .seed = 9};
    strata_dataset *data = case_dataset(50);
    const char *arrays = trained(device, data, opts);
    OK(strata_dataset_shuffle(&data, NULL, &err));
    OK(strata_dataset_prefetch(&data, 4, &err));
    cr_assert_str_eq(trained(device, data, opts), arrays, "batched by fit");
    OK(strata_dataset_batch(&data, 16, false, &err));
    opts.batch = 5;
    cr_assert_str_eq(trained(device, data, opts), arrays, "batched by the pipeline");
    strata_dataset_destroy(data);
}

static strata_status keep_all(const strata_element *element, void *user, bool *out_keep, strata_error *e) {
    (void)element, (void)user, (void)e;
    *out_keep = true;
    return STRATA_OK;
}

TEST_ON_HOST(pipeline, evaluate_and_predict_take_unknown_sizes) {
    strata_dataset *data = case_dataset(50);
    strata_model *model = case_model(device, strata_adam_optimizer(0.01), 1);
    strata_metrics arrays, pipeline;
    strata_array wanted = {0}, got = {0};
    OK(strata_model_evaluate(model, data, 16, &arrays, &err));
    OK(strata_model_predict(model, data, 16, &wanted, &err));
    OK(strata_dataset_filter(&data, keep_all, NULL, &err));
    cr_assert_eq(strata_dataset_size(data), STRATA_SIZE_UNKNOWN);
    OK(strata_model_evaluate(model, data, 16, &pipeline, &err));
    OK(strata_model_predict(model, data, 16, &got, &err));
    cr_assert(arrays.loss == pipeline.loss && arrays.accuracy == pipeline.accuracy && pipeline.examples == 50);
    cr_assert(strata_shape_equal(got.shape, wanted.shape) && !memcmp(got.data, wanted.data, strata_array_bytes(&got)));
    strata_history history = {0};
    OK(strata_model_fit(model, data, &(strata_fit_options){.batch = 16}, &history, &err));
    cr_assert_eq(history.n_steps, 4);
    strata_history_finish(&history);
    strata_array_finish(&wanted);
    strata_array_finish(&got);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

static strata_status spoil(strata_element *element, void *user, strata_error *e) {
    (void)e;
    if (element->key.index != 37) return STRATA_OK;
    if (*(int *)user)
        ((int32_t *)element->parts[1].data)[0] = CASE_CLASSES;
    else
        ((float *)element->parts[0].data)[1] = NAN;
    return STRATA_OK;
}

static strata_status fail(strata_element *element, void *user, strata_error *e) {
    (void)user;
    return element->key.index == 37 ? strata_fail(e, STRATA_DATA, "unreadable") : STRATA_OK;
}

/* Batches of 4, 0 and 4 examples. */
static strata_status next_batch(void *state, int64_t index, strata_element *out, bool *out_end, strata_error *e) {
    (void)state;
    *out_end = index == 3;
    if (*out_end) return STRATA_OK;
    const int64_t n = index == 1 ? 0 : 4;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, 2, 3), &out->parts[0], e));
    return strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n), &out->parts[1], e);
}

TEST_ON_HOST(pipeline, a_batch_without_examples_is_not_the_end) {
    strata_model *model = case_model(device, strata_adam_optimizer(0.01), 1);
    strata_dataset *data = NULL;
    strata_array predictions = {0};
    const strata_generator generator = {
        .spec = {.n_parts = 2,
                 .is_batch = true,
                 .parts = {{STRATA_DTYPE_F32, STRATA_SHAPE(-1, 2, 3)}, {STRATA_DTYPE_I32, STRATA_SHAPE(-1)}}},
        .size = 3,
        .next = next_batch};
    OK(strata_dataset_from_generator(&generator, &data, &err));
    FAILS(strata_model_fit(model, data, &(strata_fit_options){.epochs = 1}, NULL, &err), STRATA_DATA,
          "batch 1 has no examples");
    FAILS(strata_model_evaluate(model, data, 0, &(strata_metrics){0}, &err), STRATA_DATA, "batch 1 has no examples");
    FAILS(strata_model_predict(model, data, 0, &predictions, &err), STRATA_DATA, "batch 1 has no examples");
    strata_dataset_destroy(data);
    strata_model_destroy(model);
}

TEST_ON_HOST(pipeline, what_is_wrong_in_a_batch_is_named) {
    int label = 1, feature = 0;
    const strata_fit_options opts = {.batch = 16};
    strata_model *model = case_model(device, strata_adam_optimizer(0.01), 1);
    strata_dataset *data = case_dataset(50), *source = strata_dataset_retain(data);
    OK(strata_dataset_map(&data, spoil, &label, NULL, &err));
    FAILS(strata_model_fit(model, data, &opts, NULL, &err), STRATA_DATA,
          "batch 2, position 5: the label is 3; the model knows 0..2");
    strata_dataset_destroy(data);
    OK(strata_dataset_map((data = strata_dataset_retain(source), &data), spoil, &feature, NULL, &err));
    FAILS(strata_model_fit(model, data, &opts, NULL, &err), STRATA_DATA, "epoch 1, step 3");
    strata_dataset_destroy(data);
    OK(strata_dataset_map((data = strata_dataset_retain(source), &data), fail, NULL, &(strata_map_options){.threads = 2},
                          &err));
    FAILS(strata_model_fit(model, data, &opts, NULL, &err), STRATA_DATA, "map: element 37, epoch 0: unreadable");
    FAILS(strata_model_evaluate(model, data, 0, &(strata_metrics){0}, &err), STRATA_DATA,
          "map: element 37, epoch 0: unreadable");
    strata_dataset_destroy(data);
    OK(strata_dataset_repeat((data = strata_dataset_retain(source), &data), 0, &err));
    FAILS(strata_model_fit(model, data, &opts, NULL, &err), STRATA_INVALID, "strata_dataset_take sets the size of an epoch");
    OK(strata_dataset_take(&data, 70, &err));
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    OK(strata_dataset_take(&data, 0, &err));
    FAILS(strata_model_fit(model, data, &opts, NULL, &err), STRATA_DATA, "the data is empty");
    strata_dataset_destroy(data);
    strata_dataset_destroy(source);
    strata_model_destroy(model);
}
