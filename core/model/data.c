/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a dataset fits a model, and converts labels to the form that the loss needs. */
#include "core/model/data.h"

#include <float.h>

#include "core/base/text.h"
#include "core/data/dataset.h"
#include "core/data/stage/stage.h"
#include "core/model/build.h"
#include "core/model/loop.h"

size_t strata_input_bytes(const strata_input_spec *input) {
    return (size_t)strata_shape_elements(input->shape) * strata_dtype_bytes(input->dtype);
}

/* Whether the features are copied to the devices as u8 and converted there. On a device with its own memory this copies a
 * quarter of the bytes of f32. A CPU that is used through a driver converts large batches on all cores, and each core
 * then has its part in its cache; on the host, the thread that writes the batches would convert them on one core. On
 * other devices that use the host's memory, and for small batches, the conversion would only be an additional pass over
 * memory. */
bool strata_model_takes_bytes(const strata_model *model, int64_t batch) {
    const int64_t least_of_cpu = 1 << 20;
    if (model->n_inputs > 1 || model->inputs[0].dtype != STRATA_DTYPE_F32) return false;
    const int64_t bytes_of_example = (int64_t)strata_input_bytes(&model->inputs[0]);
    const bool large = bytes_of_example > 0 && batch >= (least_of_cpu + bytes_of_example - 1) / bytes_of_example;
    for (int r = 0; r < model->strategy->n_replicas; r++) {
        const strata_device_info *info = strata_device_get_info(model->replicas[r].device);
        const bool converts = !info->unified_memory || (large && info->device_class == STRATA_DEVICE_CPU);
        if (!converts || !(info->dtypes & 1u << STRATA_DTYPE_U8)) return false;
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

strata_status strata_model_check_report(const strata_model *model, const char *verb, const char *what, bool trains,
                                        int64_t *batch, strata_error *err) {
    enum { DEFAULT_BATCH = 32 };
    STRATA_TRY(trains ? strata_model_check_compiled(model, verb, err) : strata_model_check_built(model, verb, err));
    if (*batch < 0)
        return strata_fail(err, STRATA_INVALID, "%s: batch is %lld; it must be at least 1", what, (long long)*batch);
    if (!*batch) *batch = DEFAULT_BATCH;
    return STRATA_OK;
}

strata_status strata_model_check_readable(const strata_model *model, const char *verb, strata_error *err) {
    return model->loaded ? STRATA_OK : strata_model_check_built(model, verb, err);
}

/* Treats pictures (H, W) as pictures (H, W, 1). */
static bool same_elements(strata_shape data, strata_shape model) {
    if (model.rank == 3 && data.rank == 2 && model.dims[2] == 1) model.rank = 2;
    return strata_shape_equal(data, model);
}

/* Integer labels must be below this number; 0: the labels are numbers. */
static int64_t n_classes_of(const strata_output_spec *output) {
    const strata_answers answers = output->loss->answers;
    if (answers == STRATA_ANSWERS_CLASS || answers == STRATA_ANSWERS_DISTRIBUTION) return output->shape.dims[0];
    return answers == STRATA_ANSWERS_BINARY ? 2 : 0;
}

static strata_shape label_shape(const strata_output_spec *output) {
    return strata_loss_label_shape(output->loss, output->shape);
}

/* The shape of a part of the dataset's elements, of one example. */
static strata_shape part_shape(const strata_dataset *dataset, int part) {
    strata_shape shape = dataset->spec.parts[part].shape;
    if (!dataset->spec.is_batch) return shape;
    shape.rank--;
    memmove(shape.dims, shape.dims + 1, (size_t)shape.rank * sizeof *shape.dims);
    return shape;
}

static strata_dtype part_dtype(const strata_dataset *dataset, int part) {
    return dataset->spec.parts[part].dtype;
}

/* Whether the labels are one class for each example and must be converted to a probability for each class: 1 for the
 * class, 0 for the others. */
static bool are_classes(const strata_output_spec *output, const strata_dataset *dataset, int part) {
    return output->loss->answers == STRATA_ANSWERS_DISTRIBUTION && part_dtype(dataset, part) == STRATA_DTYPE_I32 &&
           strata_shape_elements(part_shape(dataset, part)) == 1;
}

static strata_status check_labels(const strata_output_spec *output, const strata_dataset *dataset, int part, const char *verb,
                                  strata_error *err) {
    const strata_dtype given = part_dtype(dataset, part), wanted = strata_loss_label_dtype(output->loss);
    const strata_shape shape = part_shape(dataset, part), wanted_shape = label_shape(output);
    const int64_t classes = n_classes_of(output);
    if (given != wanted && given != STRATA_DTYPE_I32) /* integers are accepted as numbers, too */
        return strata_fail(err, STRATA_DATA, "%s: the labels are %s; %s takes %s", verb, strata_dtype_name(given),
                           output->loss->name, strata_dtype_name(wanted));
    if (output->loss->answers == STRATA_ANSWERS_NONE && part == 1 && strata_dataset_class_name(dataset, 0))
        return strata_fail(err, STRATA_DATA, "%s: the labels are words (\"%s\", ...); %s takes numbers", verb,
                           strata_dataset_class_name(dataset, 0), output->loss->name);
    if (!strata_shape_equal(shape, wanted_shape) && strata_shape_elements(shape) != 1)
        return strata_fail(err, STRATA_DATA, "%s: the labels are %s an example; %s takes %s for outputs of %s", verb,
                           strata_shape_text(shape).text, output->loss->name, strata_shape_text(wanted_shape).text,
                           strata_shape_text(output->shape).text);
    if (strata_shape_elements(shape) != strata_shape_elements(wanted_shape) && !are_classes(output, dataset, part))
        return strata_fail(err, STRATA_DATA,
                           "%s: there is one label an example; the model has outputs of %s, and %s takes as many", verb,
                           strata_shape_text(output->shape).text, output->loss->name);
    const int64_t there = strata_dataset_part_classes(dataset, part);
    if (classes && there > classes)
        return strata_fail(err, STRATA_DATA, "%s: the largest label is %lld; the model's classes are 0..%lld", verb,
                           (long long)there - 1, (long long)classes - 1);
    return STRATA_OK;
}

static strata_status check_input(const strata_input_spec *input, const strata_dataset *dataset, int part, const char *verb,
                                 strata_error *err) {
    const strata_shape element = part_shape(dataset, part);
    strata_shape fixed = element;
    for (int i = 0; i < fixed.rank && i < input->shape.rank;
         i++) /* dimensions that a pipeline does not fix are checked for each batch */
        if (fixed.dims[i] < 0) fixed.dims[i] = input->shape.dims[i];
    if (!same_elements(fixed, input->shape))
        return strata_fail(err, STRATA_DATA, "%s: the data's elements are %s, the model takes %s", verb,
                           strata_shape_text(element).text, strata_shape_text(input->shape).text);
    const strata_dtype dtype = part_dtype(dataset, part);
    const bool bytes = input->dtype == STRATA_DTYPE_F32 && part == 0 && strata_dataset_byte_scale(dataset) != 0;
    if (dtype != input->dtype && !bytes)
        return strata_fail(
            err, STRATA_DATA,
            "%s: the data's features are %s, the model takes %s (its input_dtype); convert the data to %s before", verb,
            strata_dtype_name(dtype), strata_dtype_name(input->dtype), strata_dtype_name(input->dtype));
    if (!input->n_tokens) return STRATA_OK;
    const strata_status status = strata_dataset_check_part_tokens(dataset, part, input->n_tokens, err);
    return status ? strata_fail_in(err, status, "%s", verb) : STRATA_OK;
}

/* Finds the part with a role and a name. If the model and the data have only one part of the role, names are not compared. */
static strata_status find_part(const strata_dataset *dataset, strata_part_role role, bool only, const char *name,
                               const char *verb, int *out_part, strata_error *err) {
    const strata_element_spec *spec = &dataset->spec;
    const char *const what = role == STRATA_PART_INPUT ? "input" : "target";
    int n = 0, last = -1;
    *out_part = -1;
    for (int i = 0; i < spec->n_parts; i++) {
        if (strata_spec_role(spec, i) != role) continue;
        n++;
        last = i;
        if (!strcmp(spec->names[i], name)) *out_part = i;
    }
    if (*out_part < 0 && only && n == 1) *out_part = last;
    if (*out_part >= 0) return STRATA_OK;
    STRATA_FINISHED(strata_text) names = {0};
    for (int i = 0; i < spec->n_parts; i++)
        if (strata_spec_role(spec, i) == role)
            strata_text_add(&names, *spec->names[i] ? "%s\"%s\"" : "%sone without a name%s", names.bytes ? ", " : "",
                            spec->names[i]);
    return strata_fail(err, STRATA_DATA,
                       "%s: the data have no %s \"%s\"; there %s: %s (strata_dataset_from_columns names them)", verb, what,
                       name, n == 1 ? "is" : "are", names.bytes ? names.bytes : "none");
}

strata_status strata_model_check_dataset(const strata_model *model, const strata_dataset *dataset, bool labels,
                                         const char *verb, strata_model_feed *out_feed, strata_error *err) {
    *out_feed = (strata_model_feed){{0}, {0}};
    for (int i = 0; i < model->n_inputs; i++) {
        int *part = &out_feed->inputs[i];
        const char *name = strata_model_input_port(model, i).name;
        STRATA_TRY(find_part(dataset, STRATA_PART_INPUT, model->n_inputs == 1, name, verb, part, err));
        const strata_status status = check_input(&model->inputs[i], dataset, *part, verb, err);
        if (status) return model->n_inputs > 1 ? strata_fail_in(err, status, "input %s", name) : status;
    }
    if (!labels) return STRATA_OK;
    if (!strata_dataset_has_labels(dataset)) return strata_fail(err, STRATA_DATA, "%s: the data has no labels", verb);
    for (int i = 0; i < model->n_outputs; i++) {
        int *part = &out_feed->targets[i];
        const char *name = strata_output_name(model, i);
        STRATA_TRY(find_part(dataset, STRATA_PART_TARGET, model->n_outputs == 1, name, verb, part, err));
        const strata_status status = check_labels(&model->outputs[i], dataset, *part, verb, err);
        if (status) return model->n_outputs > 1 ? strata_fail_in(err, status, "output %s", name) : status;
    }
    return STRATA_OK;
}

void strata_model_batch_parts(const strata_model *model, const strata_dataset *dataset, const strata_model_feed *feed,
                              bool targets, strata_batches_options *opts) {
    opts->n_inputs = model->n_inputs;
    opts->n_targets = targets ? model->n_outputs : 0;
    for (int i = 0; i < model->n_inputs; i++)
        opts->inputs[i] = (strata_batch_part){feed->inputs[i], model->inputs[i].shape, model->inputs[i].n_tokens};
    for (int i = 0; i < opts->n_targets; i++) {
        const strata_output_spec *output = &model->outputs[i];
        const strata_shape one = are_classes(output, dataset, feed->targets[i]) ? STRATA_SHAPE() : label_shape(output);
        opts->targets[i] = (strata_batch_part){feed->targets[i], one, n_classes_of(output)};
    }
}

strata_status strata_model_check_class_weights(const strata_model *model, const double *class_weights, int n,
                                               strata_error *err) {
    const strata_output_spec *output = &model->outputs[0];
    if (model->n_outputs > 1)
        return strata_fail(
            err, STRATA_INVALID,
            "class weights: the model has %d outputs; give examples weights instead (strata_dataset_set_weights)",
            model->n_outputs);
    const int64_t size = strata_shape_elements(label_shape(output));
    const bool one_hot = output->loss->answers == STRATA_ANSWERS_DISTRIBUTION;
    const int64_t classes = one_hot ? size : n_classes_of(output);
    if (!classes || (!one_hot && size != 1))
        return strata_fail(err, STRATA_INVALID, "class weights: %s with outputs of %s has no one class an example",
                           output->loss->name, strata_shape_text(output->shape).text);
    if (n != classes)
        return strata_fail(err, STRATA_INVALID, "class weights: there are %d; the model has %lld classes", n,
                           (long long)classes);
    for (int i = 0; i < n; i++)
        if (!(class_weights[i] >= 0 && class_weights[i] <= FLT_MAX))
            return strata_fail(err, STRATA_INVALID, "class weights: that of class %d is %g; it must be at least 0 and finite",
                               i, class_weights[i]);
    return STRATA_OK;
}

/* The class of an example. Its labels are an integer, a probability for each class, or, for a binary output, 0 or 1. */
static int64_t class_of(const strata_output_spec *output, const void *labels, int64_t example) {
    if (strata_loss_label_dtype(output->loss) == STRATA_DTYPE_I32) return ((const int32_t *)labels)[example];
    const int64_t size = strata_shape_elements(label_shape(output));
    const float *own = (const float *)labels + example * size;
    int64_t best = 0;
    if (size == 1) return own[0] >= 0.5f;
    for (int64_t i = 1; i < size; i++)
        if (own[i] > own[best]) best = i;
    return best;
}

static void weigh_classes(const strata_output_spec *output, const double *class_weights, const void *labels, int64_t n,
                          float *weights) {
    for (int64_t i = 0; i < n; i++) weights[i] *= (float)class_weights[class_of(output, labels, i)];
}

size_t strata_label_bytes(const strata_output_spec *output) {
    return (size_t)strata_shape_elements(label_shape(output)) * strata_dtype_bytes(strata_loss_label_dtype(output->loss));
}

/* Converts classes to probabilities in place. This begins with the last example, since the probabilities of an example begin at
 * or after the position of its class. */
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

void strata_model_convert_labels(const strata_output_spec *output, const strata_dataset *dataset, int part, int64_t n,
                                 void *labels) {
    if (!labels || part_dtype(dataset, part) == strata_loss_label_dtype(output->loss)) return;
    if (are_classes(output, dataset, part)) {
        spread_classes(n, strata_shape_elements(label_shape(output)), labels);
        return;
    }
    int64_t numbers = n * strata_shape_elements(label_shape(output));
    for (int64_t i = 0; i < numbers; i++) {
        int32_t label;
        memcpy(&label, (char *)labels + i * 4, sizeof label);
        float number = (float)label;
        memcpy((char *)labels + i * 4, &number, sizeof number);
    }
}

void strata_model_write_examples(const strata_model *model, const strata_example_source *source, int64_t first, int64_t n,
                                 void *const *inputs, void *const *labels, float *weights) {
    strata_batches_write(source->batches, first, n, inputs, labels);
    for (int i = 0; labels && i < model->n_outputs; i++)
        strata_model_convert_labels(&model->outputs[i], source->dataset, source->feed->targets[i], n, labels[i]);
    if (!weights) return;
    strata_batches_write_weights(source->batches, first, n, weights);
    if (source->class_weights && labels && labels[0])
        weigh_classes(&model->outputs[0], source->class_weights, labels[0], n, weights);
}
