/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a training's data and options, which is stored in its checkpoints. A checkpoint that is continued with
 * other data would train a model that nobody described, and its epoch would go on at the wrong example. */
#include "core/model/training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/sha256.h"
#include "core/data/stage/stage.h"
#include "core/model/model.h"

/* As many examples as HASHED_BYTES have are hashed, and not fewer than LEAST_HASHED, evenly spaced over the data. Each fit does
 * this, so that it takes no longer than a few steps; all examples of small data are hashed. */
enum { HASHED_BYTES = 1 << 18, LEAST_HASHED = 32, MOST_DESCRIPTION = 1 << 16 };

/* The dataset in memory under a chain of stages; NULL: there is none. */
static const strata_dataset *source_of(const strata_dataset *dataset) {
    while (dataset->stage != &strata_stage_table && dataset->n_parents == 1) dataset = dataset->parents[0];
    return dataset->stage == &strata_stage_table && dataset->n > 0 ? dataset : NULL;
}

static strata_status hash_example(strata_sha256 *sha, const strata_dataset *data, const strata_order *order, int64_t index,
                                  strata_error *err) {
    const size_t features = 4 * (size_t)strata_shape_elements(data->element);
    const size_t labels = data->has_labels ? 4 * (size_t)strata_shape_elements(data->label) : 0;
    char *bytes = calloc(1, features + labels + 1);
    if (!bytes) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for an example");
    strata_dataset_fetch(data, order, index, 1, bytes, labels ? bytes + features : NULL);
    const strata_status status = strata_sha256_update(sha, bytes, features + labels, err);
    free(bytes);
    return status;
}

/* Hashes some examples, and the names of the classes. */
static strata_status hash_data(const strata_dataset *data, char out[STRATA_SHA256_TEXT_BYTES], strata_error *err) {
    const int64_t fit = HASHED_BYTES / (4 * (strata_shape_elements(data->element) + 1));
    const int64_t most = fit > LEAST_HASHED ? fit : LEAST_HASHED, n = data->n < most ? data->n : most;
    strata_sha256 sha = {0};
    strata_order *order = NULL;
    STRATA_TRY(strata_sha256_init(&sha, err));
    strata_status status = strata_order_create(data->n, false, 0, 0, &order, err);
    for (int64_t i = 0; i < n && !status; i++) {
        const int64_t index = n > 1 ? i * (data->n - 1) / (n - 1) : 0;
        status = hash_example(&sha, data, order, index, err);
        for (int k = 0; k < data->n_more && !status; k++) status = hash_example(&sha, data->more[k], order, index, err);
    }
    for (int i = 0; i < data->n_class_names && !status; i++)
        status = strata_sha256_update(&sha, data->class_names[i], strlen(data->class_names[i]) + 1, err);
    if (!status) status = strata_sha256_final(&sha, out, err);
    strata_order_destroy(order);
    strata_sha256_finish(&sha);
    return status;
}

static void write_int(strata_json_writer *w, const char *key, int64_t value) {
    strata_json_key(w, key);
    strata_json_write_int(w, value);
}

static void write_text(strata_json_writer *w, const char *key, const char *value) {
    strata_json_key(w, key);
    strata_json_write_string(w, value);
}

strata_status strata_training_describe(const strata_dataset *dataset, const strata_fit_options *opts, char **out_text,
                                       strata_error *err) {
    const strata_dataset *source = source_of(dataset);
    char data[STRATA_SHA256_TEXT_BYTES] = "", weights[STRATA_SHA256_TEXT_BYTES] = "";
    if (source) STRATA_TRY(hash_data(source, data, err));
    if (opts->class_weights)
        STRATA_TRY(
            strata_sha256_of(opts->class_weights, (size_t)opts->n_class_weights * sizeof *opts->class_weights, weights, err));
    data[source ? 12 : 0] = 0; /* 12 digits suffice for a message */
    weights[opts->class_weights ? 12 : 0] = 0;
    strata_json_writer w = {0};
    strata_json_begin_object(&w);
    write_int(&w, "examples", source ? source->n : -1);
    write_text(&w, "hash_of_examples", data);
    write_text(&w, "hash_of_class_weights", weights);
    write_text(&w, "shuffling", opts->no_shuffle ? "off" : "on");
    write_int(&w, "seed_of_shuffles", opts->no_shuffle ? 0 : (int64_t)opts->seed);
    write_int(&w, "steps_per_epoch", opts->steps_per_epoch);
    write_int(&w, "batch", opts->batch);
    strata_json_end_object(&w);
    return strata_json_take(&w, out_text, NULL, err);
}

int64_t strata_training_batch_before(const strata_model *model) {
    strata_json root = {0};
    int64_t batch = 0;
    const char *text = model->continued;
    if (text && !strata_json_parse("training", text, strlen(text), MOST_DESCRIPTION, &root, NULL))
        (void)!strata_json_get_int(&root, "batch", STRATA_JSON_OPTIONAL, 0, INT64_MAX, &batch, NULL);
    strata_json_finish(&root);
    return batch;
}

static const char *value_of(const strata_json *value, char out[32]) {
    const char *text = "";
    int64_t number = 0;
    if (!strata_json_to_int(value, INT64_MIN, INT64_MAX, &number, NULL))
        snprintf(out, 32, "%lld", (long long)number);
    else if (!strata_json_to_string(value, &text, NULL))
        snprintf(out, 32, "%.30s", text);
    else
        snprintf(out, 32, "?");
    return out;
}

/* Replaces the two "%s" of the text, if it has some, by the values. */
static void describe_change(const char *text, const char *was, const char *is, char *out, size_t room) {
    const char *first = strstr(text, "%s"), *second = first ? strstr(first + 2, "%s") : NULL;
    if (second)
        snprintf(out, room, "%.*s%s%.*s%s%s", (int)(first - text), text, was, (int)(second - first - 2), first + 2, is,
                 second + 2);
    else
        snprintf(out, room, "%s", text);
}

strata_status strata_training_compare(const char *before, const char *now, strata_error *err) {
    static const struct {
        const char *key, *text;
    } terms[] = {{"examples", "it had %s examples, and now there are %s"},
                 {"hash_of_examples", "its examples or the names of its classes were others"},
                 {"hash_of_class_weights", "its class weights were others"},
                 {"shuffling", "its shuffling was %s, and now it is %s"},
                 {"seed_of_shuffles", "the seed of its shuffles was %s, and now it is %s"},
                 {"steps_per_epoch", "an epoch could have %s steps, and now %s"}};
    static const char advice[] =
        "to begin again, give another checkpoint or remove this one; to train its model further on purpose, load it as a model "
        "(strata train --from)";
    strata_json a = {0}, b = {0}, x, y;
    strata_status status = strata_json_parse("training", before, strlen(before), MOST_DESCRIPTION, &a, err);
    if (!status) status = strata_json_parse("training", now, strlen(now), MOST_DESCRIPTION, &b, err);
    for (size_t i = 0; i < sizeof terms / sizeof *terms && !status; i++) {
        char difference[200], was[32], is[32];
        const char *key = terms[i].key;
        if (!strata_json_find(&a, key, &x) || !strata_json_find(&b, key, &y)) continue;
        if (!strata_json_difference(&x, &y, difference, sizeof difference)) continue;
        describe_change(terms[i].text, value_of(&x, was), value_of(&y, is), difference, sizeof difference);
        status = strata_fail(err, STRATA_DATA, "fit: the checkpoint is of a training with other data or options: %s; %s",
                             difference, advice);
    }
    strata_json_finish(&a);
    strata_json_finish(&b);
    return status;
}
