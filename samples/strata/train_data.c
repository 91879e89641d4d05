/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the model, which the user names or which is made for the data, and the parts of the data. */
#include <stdlib.h>
#include <string.h>

#include "train.h"

/* ---- the model ---- */

/* Opens a sample or the user's own model. */
static int open_named(training *t) {
    const char *alone = t->options.model.kind ? "model" : t->options.model.from ? "from" : NULL;
    if (alone)
        return usage_error("--%s is for your own data, as in strata train DATA --%s %s; \"%s\" is not a file or folder of data",
                           alone, alone, t->options.model.kind ? t->options.model.kind : t->options.model.from, t->name);
    int code = open_model(t->name, false, &t->model);
    if (!code) code = check_ports(t->name, t->model, t->options.data.path);
    if (!code) code = apply_settings(&t->options.model.set, &t->model);
    if (!code) t->sample = sample_of_model(t->model, &t->options.data);
    return code;
}

/* Freezes the layers that --freeze names: training does not change them. */
static int freeze_layers(training *t) {
    strata_error err = {0};
    strata_status status = STRATA_OK;
    char *names = t->options.model.freeze ? strdup(t->options.model.freeze) : NULL, *rest = names;
    for (char *name = strsep(&rest, ","); name && !status; name = strsep(&rest, ","))
        status = strata_model_freeze(t->model, name, &err);
    free(names);
    return status ? report(FAILING_USAGE, status, &err) : EXIT_OK;
}

/* Opens the model of --from. Its preprocessing, if it has one, is applied to the data. */
static int open_from(training *t) {
    strata_error err = {0};
    if (t->options.model.kind || t->options.model.set.n)
        return usage_error("--%s makes a new model, and --from continues the training of one; give only one of them",
                           t->options.model.kind ? "model" : "set");
    strata_status status = load_trained(t->options.model.from, &t->model, &err);
    if (status) return report(FAILING_DATA, status, &err);
    const bool arrays = has_several_ports(t->model) && !strata_model_note(t->model, "preprocessing");
    t->sample = arrays ? sample_of_model(t->model, &t->options.data) : own_sample();
    const int code = recall_data(t->model, t->sample, &t->train);
    return code ? code : freeze_layers(t);
}

/* Opens the data, and then makes a model for them, unless there is --from. */
static int open_own_data(training *t) {
    if (t->options.data.path) return usage_error("%s and --data %s: give the data once", t->name, t->options.data.path);
    t->options.data.path = t->name;
    if (t->options.model.freeze && !t->options.model.from)
        return usage_error("--freeze is for layers of a trained model; name the model with --from");
    t->sample = own_sample();
    int code = t->options.model.from ? open_from(t) : EXIT_OK;
    if (!code) code = open_data(t->sample, &t->options.data, "train", &t->train);
    if (!code && !t->model)
        code = make_own_model(t->options.model.kind, t->train.preprocessing, strata_dataset_size(t->train.dataset), &t->model);
    return code ? code : apply_settings(&t->options.model.set, &t->model);
}

int open_what_is_trained(training *t) {
    return is_own_data(t->name) ? open_own_data(t) : open_named(t);
}

void choose_epochs_and_batch(training *t) {
    enum { EPOCHS = 5, BATCH = 64 };
    int64_t epochs = t->sample->epochs ? t->sample->epochs : EPOCHS, batch = t->sample->batch ? t->sample->batch : BATCH;
    if (t->train.dataset && t->train.preprocessing)
        own_defaults(t->train.preprocessing, strata_dataset_size(t->train.dataset), &epochs, &batch);
    if (!t->options.fit.epochs) t->options.fit.epochs = epochs;
    if (!t->options.fit.batch) t->options.fit.batch = batch;
}

/* ---- the parts of the data ---- */

char *use_own_validation(const char *name, train_options *o) {
    const char *path = is_own_data(name) ? name : o->data.path;
    char *found = path && !o->fit.validation && !(o->fit.validation_split > 0) ? find_validation(path) : NULL;
    if (found) o->fit.validation = found;
    return found;
}

/* Moves what belongs to the data as a whole from one part to the part that is opened next. */
static void move_common(sample_data *from, sample_data *to) {
    to->tokenizer = from->tokenizer;
    to->preprocessing = from->preprocessing;
    to->rest = from->rest;
    to->split = from->split;
    to->as_they_are = from->as_they_are;
    from->tokenizer = NULL;
    from->preprocessing = NULL;
    from->rest = NULL;
}

static int split_validation(training *t) {
    strata_error err = {0};
    strata_dataset *first = NULL;
    const strata_split_options opts = {.seed = (uint64_t)t->options.fit.seed};
    strata_status status =
        strata_dataset_split(t->train.dataset, t->options.fit.validation_split, &opts, &first, &t->validation.dataset, &err);
    if (status) return report(FAILING_USAGE, strata_fail_in(&err, status, "--validation-split"), &err);
    strata_dataset_destroy(t->train.dataset);
    t->train.dataset = first;
    return EXIT_OK;
}

static int open_validation(training *t) {
    data_options options = t->options.data;
    if (t->options.fit.validation_split > 0) return split_validation(t);
    if (!t->options.fit.validation) return EXIT_OK;
    options.path = t->options.fit.validation;
    if (is_npz(options.path)) options.labels = NULL; /* it has its own */
    t->validation.whole = t->validation.for_validation = true;
    strata_dataset *rest = t->train.rest; /* the part for testing, which is not for validation */
    t->train.rest = NULL;
    move_common(&t->train, &t->validation);
    const int code = open_data(t->sample, &options, "test", &t->validation);
    move_common(&t->validation, &t->train);
    t->train.rest = rest;
    return code;
}

static strata_flip_crop own_augment = {.flip = true, .padding = 2};

/* A tokenizer is made from the training texts, a preprocessing from own data; both are saved with the model. */
int open_all_data(training *t) {
    strata_error err = {0};
    describe_inputs(t->model, &t->train);
    describe_inputs(t->model, &t->validation);
    describe_inputs(t->model, &t->test);
    int code = t->train.dataset ? EXIT_OK : open_data(t->sample, &t->options.data, "train", &t->train);
    if (!code) code = open_validation(t);
    if (code) return code;
    move_common(&t->train, &t->test);
    code = open_data(t->sample, &t->options.data, "test", &t->test);
    if (!code) code = fit_model_to_data(t->sample, &t->train, &t->model);
    if (code) return code;
    strata_status status =
        t->test.preprocessing ? strata_model_set_preprocessing(t->model, t->test.preprocessing, &err) : STRATA_OK;
    if (!status && t->test.tokenizer) status = strata_model_set_tokenizer(t->model, t->test.tokenizer, &err);
    const strata_preprocessing *p = t->test.preprocessing;
    if (t->options.fit.augment && strata_dataset_element_shape(t->train.dataset).rank != 3)
        return usage_error("--augment flips and moves pictures, and %s has none", t->name);
    if (t->options.data.subwords && p && !strata_preprocessing_n_tokens(p))
        return usage_error("--subwords is for texts, and %s has none", t->name);
    strata_flip_crop *augment = t->options.fit.augment ? &own_augment : t->sample->augment;
    if (!status && augment) {
        status = strata_dataset_keep_bytes(t->train.dataset, &err);
        if (!status) status = strata_dataset_shuffle(&t->train.dataset, NULL, &err); /* fit does not shuffle a pipeline */
        if (!status) status = strata_dataset_map(&t->train.dataset, strata_augment_flip_crop, augment, NULL, &err);
    }
    if (status) return report(FAILING_DATA, status, &err);
    int64_t n = strata_dataset_size(t->train.dataset);
    if (t->batch > n && !t->options.reports.json && t->opened.chief)
        fprintf(stderr, "strata: the batch of %lld is larger than the training data, %lld examples\n", (long long)t->batch,
                (long long)n);
    return EXIT_OK;
}
