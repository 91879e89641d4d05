/* SPDX-License-Identifier: Apache-2.0
 *
 * Data for models with several inputs or outputs: an .npz archive whose arrays have the names of the model's inputs and
 * outputs, "left" say, or of their parts, "left_train" and "left_test". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "own.h"
#include "strata/dataset.h"
#include "strata/file.h"
#include "strata/formats.h"
#include "strata/text.h"

static const size_t MOST_BYTES = STRATA_BYTES_LIMIT(36);

bool has_several_ports(const strata_model *model) {
    return strata_model_n_inputs(model) > 1 || strata_model_n_outputs(model) > 1;
}

bool takes_table_with_texts(const strata_model *model) {
    if (strata_model_n_inputs(model) != 2 || strata_model_n_outputs(model) != 1) return false;
    const strata_model_port numbers = strata_model_input_port(model, 0), text = strata_model_input_port(model, 1);
    return !strcmp(numbers.name, "numbers") && numbers.dtype == STRATA_DTYPE_F32 && numbers.shape.rank == 1 &&
           !strcmp(text.name, "text") && text.dtype == STRATA_DTYPE_I32 && text.shape.rank == 1;
}

static void add_names(const strata_model *model, bool inputs, strata_text *text) {
    const int n = inputs ? strata_model_n_inputs(model) : strata_model_n_outputs(model);
    for (int i = 0; i < n; i++)
        strata_text_add(text, "%s%s", i ? ", " : "",
                        (inputs ? strata_model_input_port(model, i) : strata_model_output_port(model, i)).name);
}

int check_ports(const char *name, const strata_model *model, const char *data) {
    strata_text text = {0};
    char *names = NULL;
    if (!has_several_ports(model) || strata_model_note(model, "preprocessing")) return EXIT_OK;
    if (data && (is_npz(data) || (is_table(data) && takes_table_with_texts(model)))) return EXIT_OK;
    strata_text_add(&text, "inputs ");
    add_names(model, true, &text);
    strata_text_add(&text, " and outputs ");
    add_names(model, false, &text);
    if (strata_text_take(&text, &names, NULL, NULL)) names = NULL;
    const int code = usage_error(
        "%s: the model has the %s; its data are an .npz file with an array of each of these names (or NAME_train and "
        "NAME_test)%s",
        name, names ? names : "several inputs", takes_table_with_texts(model) ? ", or a table with a column of texts" : "");
    free(names);
    return code;
}

/* ---- the archive ---- */

typedef struct archive {
    const char *path;
    unsigned char *bytes;
    size_t n_bytes;
    /* "_train" or "_test" if the archive has separate arrays for the parts, else "". */
    const char *part;
} archive;

typedef struct search {
    const char *name;
    bool found;
    strata_text all;
} search;

static void compare_entry(const strata_npz_entry *entry, void *user) {
    search *s = user;
    if (!strcmp(entry->name, s->name)) s->found = true;
    strata_text_add(&s->all, "%s%s", s->all.n_bytes ? ", " : "", entry->name);
}

static strata_status has_array(const archive *a, const char *name, bool *out_found, strata_error *err) {
    search s = {.name = name};
    const strata_status status = strata_npz_list(a->path, a->bytes, a->n_bytes, compare_entry, &s, err);
    *out_found = s.found;
    strata_text_finish(&s.all);
    return status;
}

static strata_status missing_array(const archive *a, const char *name, const char *what, strata_error *err) {
    search s = {.name = name};
    (void)!strata_npz_list(a->path, a->bytes, a->n_bytes, compare_entry, &s, NULL);
    const strata_status status =
        strata_fail(err, STRATA_DATA, "%s: has no array \"%s\", which is an %s of the model; its arrays are %s", a->path, name,
                    what, s.all.bytes ? s.all.bytes : "none");
    strata_text_finish(&s.all);
    return status;
}

/* Reads an array; (n, 1) becomes (n). */
static strata_status read_array(const archive *a, const char *name, const char *what, strata_array *out, strata_error *err) {
    char full[160];
    bool found = false;
    if (snprintf(full, sizeof full, "%s%s", name, a->part) >= (int)sizeof full)
        return strata_fail(err, STRATA_INVALID, "%s: the name of %s %.60s is too long", a->path, what, name);
    STRATA_TRY(has_array(a, full, &found, err));
    if (!found) return missing_array(a, full, what, err);
    STRATA_TRY(strata_npz_parse(a->path, a->bytes, a->n_bytes, full, out, err));
    if (out->shape.rank == 2 && out->shape.dims[1] == 1 && what[0] == 'o') out->shape.rank = 1;
    return STRATA_OK;
}

/* Reads the arrays of the model's inputs and outputs into data->arrays, and makes a dataset of them. */
static strata_status read_columns(const archive *a, const strata_model *model, bool labelled, sample_data *data,
                                  strata_dataset **out, strata_error *err) {
    strata_data_column columns[MOST_ARRAYS];
    const int n_inputs = strata_model_n_inputs(model), n_outputs = labelled ? strata_model_n_outputs(model) : 0;
    if (n_inputs + n_outputs > MOST_ARRAYS)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: the model has more than %d inputs and outputs", a->path, MOST_ARRAYS);
    for (int i = 0; i < n_inputs + n_outputs; i++) {
        const bool input = i < n_inputs;
        strata_array *array = &data->arrays[i];
        columns[i].name = (input ? strata_model_input_port(model, i) : strata_model_output_port(model, i - n_inputs)).name;
        STRATA_TRY(read_array(a, columns[i].name, input ? "input" : "output", array, err));
        columns[i].array = array;
        columns[i].scale = input && array->dtype == STRATA_DTYPE_U8 ? 1.0 / 255 : 0;
    }
    const strata_status status = strata_dataset_from_columns(columns, n_inputs, columns + n_inputs, n_outputs, out, err);
    return status ? strata_fail_in(err, status, "%s", a->path) : STRATA_OK;
}

static void finish_arrays(sample_data *data) {
    for (int i = 0; i < MOST_ARRAYS; i++) strata_array_finish(&data->arrays[i]);
}

/* Sets the dataset's source, for example "left, right -> same: 80 train / 20 test, shuffled, seed 0". */
static strata_status describe(const strata_model *model, const data_options *options, sample_data *data, strata_error *err) {
    strata_text text = {0};
    char *line = NULL;
    add_names(model, true, &text);
    strata_text_add(&text, " -> ");
    add_names(model, false, &text);
    strata_text_add(&text, ": %lld train", (long long)strata_dataset_size(data->dataset));
    if (data->rest)
        strata_text_add(&text, " / %lld test, shuffled, seed %lld", (long long)strata_dataset_size(data->rest),
                        (long long)options->seed);
    STRATA_TRY(strata_text_take(&text, &line, NULL, err));
    const strata_status status = strata_dataset_set_source(data->dataset, line, err);
    free(line);
    return status;
}

static strata_status open_archive(archive *a, const data_options *options, bool train, bool labelled, sample_data *data,
                                  strata_error *err) {
    char name[160];
    bool apart = false;
    STRATA_TRY(strata_file_read(a->path, MOST_BYTES, &a->bytes, &a->n_bytes, err));
    snprintf(name, sizeof name, "%.140s%s", strata_model_input_port(data->model, 0).name, train ? "_train" : "_test");
    STRATA_TRY(has_array(a, name, &apart, err));
    a->part = !apart ? "" : train ? "_train" : "_test";
    strata_dataset *whole = NULL;
    STRATA_TRY(read_columns(a, data->model, labelled, data, &whole, err));
    data->dataset = whole;
    if (!train) return STRATA_OK;
    if (!apart && test_fraction(options) > 0) {
        STRATA_TRY(split_dataset(options, whole, data, err)); /* takes `whole` */
        finish_arrays(data);
    }
    return describe(data->model, options, data, err);
}

int open_named_arrays(const data_options *options, const char *split, bool labelled, sample_data *data) {
    strata_error err = {0};
    const bool train = !strcmp(split, "train");
    archive a = {.path = options->path, .part = ""};
    if (!train && data->rest) {
        data->dataset = data->rest;
        data->rest = NULL;
        return EXIT_OK;
    }
    if (!train && options->no_test) return EXIT_OK;
    const strata_status status = open_archive(&a, options, train, labelled, data, &err);
    free(a.bytes);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

int open_columns(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    (void)sample;
    return open_named_arrays(options, split, true, data);
}
