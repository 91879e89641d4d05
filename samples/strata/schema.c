/* SPDX-License-Identifier: Apache-2.0
 *
 * A CSV's columns and classes between a training and what comes after it. */
#include "schema.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/text.h"

static const char note[] = "csv";
enum { MOST_BYTES = 64 << 20, MOST_NAMES = 1 << 20 };

/* ---- from a table ---- */

/* The features: those that opts name, else all columns but the label's and the weight's. */
static strata_status copy_columns(const strata_csv *csv, const strata_csv_options *opts, csv_schema *schema,
                                  strata_error *err) {
    const int n = strata_csv_n_columns(csv);
    int n_names = opts->features ? opts->n_features : 0;
    const char **others = opts->features ? NULL : calloc((size_t)n, sizeof *others);
    if (!opts->features && !others) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %d columns' names", n);
    for (int i = 0; others && i < n; i++) {
        const char *name = strata_csv_column(csv, i);
        bool feature = (!opts->label || strcmp(name, opts->label)) && (!opts->weight || strcmp(name, opts->weight));
        for (int k = 0; k < opts->n_labels; k++) feature &= strcmp(name, opts->labels[k]) != 0;
        if (feature) others[n_names++] = name;
    }
    strata_status status = strata_names_copy(others ? others : opts->features, n_names, &schema->columns, err);
    free(others);
    if (!status) schema->n_columns = n_names;
    return status;
}

static strata_status copy_classes(const strata_dataset *made, csv_schema *schema, strata_error *err) {
    int n = 0;
    while (strata_dataset_class_name(made, n)) n++;
    const char **words = calloc((size_t)n + 1, sizeof *words);
    if (!words) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %d classes' names", n);
    for (int i = 0; i < n; i++) words[i] = strata_dataset_class_name(made, i);
    strata_status status = strata_names_copy(words, n, &schema->classes, err);
    free(words);
    if (!status) schema->n_classes = n;
    return status;
}

/* The names as --label has them. */
static strata_status copy_labels(const strata_csv_options *opts, csv_schema *schema, strata_error *err) {
    strata_text text = {0};
    if (opts->label) strata_text_add(&text, "%s", opts->label);
    for (int i = 0; i < opts->n_labels; i++) strata_text_add(&text, "%s%s", i ? "," : "", opts->labels[i]);
    return opts->label || opts->n_labels ? strata_text_take(&text, &schema->label, NULL, err) : STRATA_OK;
}

strata_status schema_create(const strata_csv *csv, const strata_csv_options *opts, const strata_dataset *made,
                            csv_schema *out_schema, strata_error *err) {
    csv_schema schema = {0};
    strata_status status = copy_columns(csv, opts, &schema, err);
    if (!status) status = copy_classes(made, &schema, err);
    if (!status) status = copy_labels(opts, &schema, err);
    if (status)
        schema_finish(&schema);
    else
        *out_schema = schema;
    return status;
}

void schema_finish(csv_schema *schema) {
    strata_names_free(schema->columns, schema->n_columns);
    strata_names_free(schema->classes, schema->n_classes);
    free(schema->label);
    *schema = (csv_schema){0};
}

const char *schema_class_name(const csv_schema *schema, int64_t label) {
    return label >= 0 && label < schema->n_classes ? schema->classes[label] : NULL;
}

/* ---- as a model's note: {"columns": ["a", "b"], "label": "kind", "classes": ["ham", "spam"]} ---- */

static void write_names(strata_json_writer *writer, const char *key, char *const *names, int n) {
    strata_json_key(writer, key);
    strata_json_begin_array(writer);
    for (int i = 0; i < n; i++) strata_json_write_string(writer, names[i]);
    strata_json_end_array(writer);
}

strata_status schema_write(const csv_schema *schema, strata_model *model, strata_error *err) {
    strata_json_writer writer = {0};
    char *text = NULL;
    strata_json_begin_object(&writer);
    write_names(&writer, "columns", schema->columns, schema->n_columns);
    if (schema->label) strata_json_key(&writer, "label"), strata_json_write_string(&writer, schema->label);
    write_names(&writer, "classes", schema->classes, schema->n_classes);
    strata_json_end_object(&writer);
    STRATA_TRY(strata_json_take(&writer, &text, NULL, err));
    strata_status status = strata_model_set_note(model, note, schema->n_columns ? text : NULL, err);
    free(text);
    return status;
}

static strata_status read_names(const strata_json *root, const char *key, char ***out_names, int *out_n, strata_error *err) {
    strata_json list, item;
    STRATA_TRY(strata_json_get(root, key, &list, err));
    STRATA_TRY(strata_json_expect(&list, STRATA_JSON_ARRAY, err));
    const int64_t n = strata_json_length(&list);
    if (n > MOST_NAMES) return strata_json_fail(&list, err, STRATA_DATA, "%lld names are too many", (long long)n);
    const char **names = calloc((size_t)n + 1, sizeof *names);
    if (!names) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %lld names", (long long)n);
    strata_status status = STRATA_OK;
    int found = 0;
    for (bool more = strata_json_first(&list, &item); more && !status; more = strata_json_next(&item))
        status = strata_json_to_string(&item, &names[found++], err);
    if (!status) status = strata_names_copy(names, found, out_names, err);
    if (!status) *out_n = found;
    free(names);
    return status;
}

static strata_status read_schema(const strata_json *root, csv_schema *schema, strata_error *err) {
    const char *label = NULL;
    STRATA_TRY(strata_json_expect(root, STRATA_JSON_OBJECT, err));
    STRATA_TRY(read_names(root, "columns", &schema->columns, &schema->n_columns, err));
    STRATA_TRY(read_names(root, "classes", &schema->classes, &schema->n_classes, err));
    STRATA_TRY(strata_json_get_string(root, "label", STRATA_JSON_OPTIONAL, &label, err));
    if (label && !(schema->label = strdup(label)))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a column's name");
    return STRATA_OK;
}

strata_status schema_read(const strata_model *model, csv_schema *out_schema, strata_error *err) {
    const char *text = strata_model_note(model, note);
    strata_json root = {0};
    csv_schema schema = {0};
    if (!text) return STRATA_OK;
    STRATA_TRY(strata_json_parse("strata.csv", text, strlen(text), MOST_BYTES, &root, err));
    strata_status status = read_schema(&root, &schema, err);
    strata_json_finish(&root);
    if (status)
        schema_finish(&schema);
    else
        *out_schema = schema;
    return status;
}
