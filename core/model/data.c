/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a dataset fits a model, and its labels as the loss takes them. */
#include <float.h>
#include <string.h>

#include "core/data/dataset.h"
#include "core/model/model.h"

size_t strata_model_element_bytes(const strata_model *model) {
    return (size_t)strata_shape_elements(model->input) * strata_dtype_bytes(model->input_dtype);
}

/* Where they travel to a device's own memory, bytes are a quarter of the numbers that the device makes of them. In the host's
 * memory they would be one more pass. */
bool strata_model_takes_bytes(const strata_model *model) {
    if (model->input_dtype != STRATA_DTYPE_F32) return false;
    for (int r = 0; r < model->strategy->n_replicas; r++) {
        const strata_device_info *info = strata_device_get_info(model->replicas[r].device);
        if (info->unified_memory || !(info->dtypes & 1u << STRATA_DTYPE_U8)) return false;
    }
    return true;
}

strata_status strata_model_check_compiled(const strata_model *model, const char *verb, strata_error *err) {
    if (model->trains) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s: the model is %s; call strata_model_compile first", verb,
                       model->strategy ? "built, without an optimizer and a loss" : "not compiled");
}

strata_status strata_model_check_built(const strata_model *model, const char *verb, strata_error *err) {
    if (model->strategy) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s: the model is not compiled; call strata_model_compile first", verb);
}

/* Pictures (H, W) are pictures (H, W, 1). */
static bool same_elements(strata_shape data, strata_shape model) {
    if (model.rank == 3 && data.rank == 2 && model.dims[2] == 1) model.rank = 2;
    return strata_shape_equal(data, model);
}

int64_t strata_model_n_classes(const strata_model *model) {
    if (model->loss->answers == STRATA_ANSWERS_CLASS || model->loss->answers == STRATA_ANSWERS_DISTRIBUTION)
        return model->output.dims[0];
    return model->loss->answers == STRATA_ANSWERS_BINARY ? 2 : 0;
}

/* One class an example, where the loss takes a share for each class: the class's is 1. */
static bool are_classes(const strata_model *model, const strata_dataset *dataset) {
    return model->loss->answers == STRATA_ANSWERS_DISTRIBUTION && strata_dataset_label_dtype(dataset) == STRATA_DTYPE_I32 &&
           strata_shape_elements(strata_dataset_label_shape(dataset)) == 1;
}

static strata_status check_labels(const strata_model *model, const strata_dataset *dataset, const char *verb,
                                  strata_error *err) {
    strata_dtype given = strata_dataset_label_dtype(dataset), wanted = strata_loss_label_dtype(model->loss);
    strata_shape shape = strata_dataset_label_shape(dataset),
                 wanted_shape = strata_loss_label_shape(model->loss, model->output);
    int64_t classes = strata_model_n_classes(model);
    if (given != wanted && given != STRATA_DTYPE_I32) /* integers are taken as numbers too */
        return strata_fail(err, STRATA_DATA, "%s: the labels are %s; %s takes %s", verb, strata_dtype_name(given),
                           model->loss->name, strata_dtype_name(wanted));
    if (model->loss->answers == STRATA_ANSWERS_NONE && strata_dataset_class_name(dataset, 0))
        return strata_fail(err, STRATA_DATA, "%s: the labels are words (\"%s\", ...); %s takes numbers", verb,
                           strata_dataset_class_name(dataset, 0), model->loss->name);
    if (!strata_shape_equal(shape, wanted_shape) && strata_shape_elements(shape) != 1)
        return strata_fail(err, STRATA_DATA, "%s: the labels are %s an example; %s takes %s for outputs of %s", verb,
                           strata_shape_text(shape).text, model->loss->name, strata_shape_text(wanted_shape).text,
                           strata_shape_text(model->output).text);
    if (strata_shape_elements(shape) != strata_shape_elements(wanted_shape) && !are_classes(model, dataset))
        return strata_fail(err, STRATA_DATA,
                           "%s: there is one label an example; the model has outputs of %s, and %s takes as many", verb,
                           strata_shape_text(model->output).text, model->loss->name);
    if (classes && strata_dataset_n_classes(dataset) > classes)
        return strata_fail(err, STRATA_DATA, "%s: the largest label is %lld; the model's classes are 0..%lld", verb,
                           (long long)strata_dataset_n_classes(dataset) - 1, (long long)classes - 1);
    return STRATA_OK;
}

strata_status strata_model_check_dataset(const strata_model *model, const strata_dataset *dataset, bool labels,
                                         const char *verb, strata_error *err) {
    strata_shape element = strata_dataset_element_shape(dataset), fixed = element;
    for (int i = 0; i < fixed.rank && i < model->input.rank; i++) /* what a pipeline leaves open is seen batch by batch */
        if (fixed.dims[i] < 0) fixed.dims[i] = model->input.dims[i];
    if (!same_elements(fixed, model->input))
        return strata_fail(err, STRATA_DATA, "%s: the data's elements are %s, the model takes %s", verb,
                           strata_shape_text(element).text, strata_shape_text(model->input).text);
    strata_dtype dtype = strata_dataset_feature_dtype(dataset);
    const bool bytes = model->input_dtype == STRATA_DTYPE_F32 && strata_dataset_byte_scale(dataset) != 0;
    if (dtype != model->input_dtype && !bytes)
        return strata_fail(err, STRATA_DATA, "%s: the data's features are %s, the model takes %s (its input_dtype)", verb,
                           strata_dtype_name(dtype), strata_dtype_name(model->input_dtype));
    if (model->n_tokens) {
        strata_status status = strata_dataset_check_tokens(dataset, model->n_tokens, err);
        if (status) return strata_fail_in(err, status, "%s", verb);
    }
    if (!labels) return STRATA_OK;
    if (!strata_dataset_has_labels(dataset)) return strata_fail(err, STRATA_DATA, "%s: the data has no labels", verb);
    return check_labels(model, dataset, verb, err);
}

strata_status strata_model_check_class_weights(const strata_model *model, const double *class_weights, int n,
                                               strata_error *err) {
    const int64_t size = strata_model_label_size(model);
    const bool one_hot = model->loss->answers == STRATA_ANSWERS_DISTRIBUTION;
    const int64_t classes = one_hot ? size : strata_model_n_classes(model);
    if (!classes || (!one_hot && size != 1))
        return strata_fail(err, STRATA_INVALID, "class weights: %s with outputs of %s has no one class an example",
                           model->loss->name, strata_shape_text(model->output).text);
    if (n != classes)
        return strata_fail(err, STRATA_INVALID, "class weights: there are %d; the model has %lld classes", n,
                           (long long)classes);
    for (int i = 0; i < n; i++)
        if (!(class_weights[i] >= 0 && class_weights[i] <= FLT_MAX))
            return strata_fail(err, STRATA_INVALID, "class weights: that of class %d is %g; it must be at least 0 and finite",
                               i, class_weights[i]);
    return STRATA_OK;
}

/* Of an example's labels: integers, shares of all classes, or no and yes. */
static int64_t class_of(const strata_model *model, const void *labels, int64_t example) {
    if (strata_loss_label_dtype(model->loss) == STRATA_DTYPE_I32) return ((const int32_t *)labels)[example];
    const int64_t size = strata_model_label_size(model);
    const float *own = (const float *)labels + example * size;
    int64_t best = 0;
    if (size == 1) return own[0] >= 0.5f;
    for (int64_t i = 1; i < size; i++)
        if (own[i] > own[best]) best = i;
    return best;
}

void strata_model_weigh_classes(const strata_model *model, const double *class_weights, const void *labels, int64_t n,
                                float *weights) {
    for (int64_t i = 0; i < n; i++) weights[i] *= (float)class_weights[class_of(model, labels, i)];
}

int64_t strata_model_label_size(const strata_model *model) {
    return strata_shape_elements(strata_loss_label_shape(model->loss, model->output));
}

int64_t strata_model_given_label_size(const strata_model *model, const strata_dataset *dataset) {
    return are_classes(model, dataset) ? 1 : strata_model_label_size(model);
}

size_t strata_model_label_bytes(const strata_model *model) {
    return (size_t)strata_model_label_size(model) * strata_dtype_bytes(strata_loss_label_dtype(model->loss));
}

/* In place, from the last on: an example's shares begin at or behind where its class stands. */
static void spread_classes(int64_t n, int64_t classes, void *labels) {
    for (int64_t i = n - 1; i >= 0; i--) {
        int32_t label;
        memcpy(&label, (char *)labels + i * 4, sizeof label);
        for (int64_t c = 0; c < classes; c++) {
            const float share = c == label ? 1 : 0;
            memcpy((char *)labels + (i * classes + c) * 4, &share, sizeof share);
        }
    }
}

void strata_model_convert_labels(const strata_model *model, const strata_dataset *dataset, int64_t n, void *labels) {
    if (strata_dataset_label_dtype(dataset) == strata_loss_label_dtype(model->loss)) return;
    if (are_classes(model, dataset)) {
        spread_classes(n, strata_model_label_size(model), labels);
        return;
    }
    int64_t numbers = n * strata_shape_elements(strata_loss_label_shape(model->loss, model->output));
    for (int64_t i = 0; i < numbers; i++) {
        int32_t label;
        memcpy(&label, (char *)labels + i * 4, sizeof label);
        float number = (float)label;
        memcpy((char *)labels + i * 4, &number, sizeof number);
    }
}
