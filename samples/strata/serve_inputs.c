/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts the body of a request to the array that the model takes. Tables are read by the same reader as files, so the same
 * cells are accepted as by strata predict. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "own.h"
#include "picture.h"
#include "serve.h"
#include "strata/file.h"
#include "strata/formats.h"
#include "strata/json.h"
#include "strata/preprocessing.h"

enum { MOST_EXAMPLES = 1 << 20, MOST_WARNING_BYTES = 1 << 12 };

/* ---- numbers ---- */

/* Writes the numbers of a value, whose arrays must be nested as the shape's dimensions from `axis` on. exact: gets them in
 * double; NULL: that is not needed. */
static strata_status read_numbers(const strata_json *value, strata_shape shape, int axis, strata_array *out, double *exact,
                                  int64_t *at, strata_error *err) {
    if (axis == shape.rank) {
        double number = NAN;
        if (strata_json_kind_of(value) == STRATA_JSON_NULL && out->dtype == STRATA_DTYPE_F32) {
            /* null is a missing value */
        } else if (out->dtype == STRATA_DTYPE_I32) {
            int64_t token = 0;
            STRATA_TRY(strata_json_to_int(value, INT32_MIN, INT32_MAX, &token, err));
            number = (double)token;
        } else {
            STRATA_TRY(strata_json_to_number(value, -3.4e38, 3.4e38, &number, err));
        }
        if (exact) exact[*at] = number;
        strata_element_set(out->dtype, out->data, (*at)++, number);
        return STRATA_OK;
    }
    STRATA_TRY(strata_json_expect(value, STRATA_JSON_ARRAY, err));
    if (strata_json_length(value) != shape.dims[axis])
        return strata_json_fail(value, err, STRATA_DATA, "has %lld elements; the model takes %s for each example",
                                (long long)strata_json_length(value), strata_shape_text(shape).text);
    strata_json item;
    for (bool more = strata_json_first(value, &item); more; more = strata_json_next(&item))
        STRATA_TRY(read_numbers(&item, shape, axis + 1, out, exact, at, err));
    return STRATA_OK;
}

static strata_status fetch_all(const served_model *served, const strata_dataset *data, strata_array *out, strata_error *err);

static strata_status read_array(const served_model *served, const strata_json *list, strata_array *out, strata_error *err) {
    strata_shape element = served->element;
    strata_json first;
    /* With a preprocessing the request has the columns, of which there may be fewer than features: a column with missing values
     * becomes two features. */
    if (served->preprocessing && element.rank == 1 && strata_json_first(list, &first))
        element.dims[0] = strata_json_length(&first);
    strata_shape shape = {.rank = element.rank + 1, .dims = {strata_json_length(list)}};
    memcpy(shape.dims + 1, element.dims, sizeof(int64_t) * (size_t)element.rank);
    STRATA_TRY(strata_array_create(served->dtype, shape, out, err));
    int64_t at = 0;
    strata_json item;
    double *exact = NULL;
    if (served->preprocessing && !(exact = malloc((size_t)strata_shape_elements(shape) * sizeof *exact + 1)))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for the numbers of the request");
    strata_status status = STRATA_OK;
    for (bool more = strata_json_first(list, &item); more && !status; more = strata_json_next(&item))
        status = read_numbers(&item, element, 0, out, exact, &at, err);
    if (served->preprocessing && !status) {
        strata_array raw = *out;
        strata_dataset *data = NULL;
        *out = (strata_array){0};
        status = strata_preprocessing_apply_examples(
            served->preprocessing, &(strata_examples){.x = &raw, .exact_x = exact, .name = "arrays"}, &data, err);
        if (!status) status = fetch_all(served, data, out, err);
        strata_dataset_destroy(data);
        strata_array_finish(&raw);
    }
    free(exact);
    return status;
}

/* Reads one of several inputs. In each row of `out` its numbers begin at index `at`. */
static strata_status read_port(const strata_model_port *port, const strata_json *list, int64_t at, strata_array *out,
                               strata_error *err) {
    const int64_t own = strata_shape_elements(port->shape), n = out->shape.dims[0], width = out->shape.dims[1];
    strata_array array = {0};
    strata_json item;
    int64_t read = 0;
    STRATA_TRY(strata_json_expect(list, STRATA_JSON_ARRAY, err));
    if (strata_json_length(list) != n)
        return strata_json_fail(list, err, STRATA_DATA, "has %lld examples, the first input has %lld",
                                (long long)strata_json_length(list), (long long)n);
    STRATA_TRY(strata_array_create(port->dtype, STRATA_SHAPE(n, own), &array, err));
    strata_status status = STRATA_OK;
    for (bool more = strata_json_first(list, &item); more && !status; more = strata_json_next(&item))
        status = read_numbers(&item, port->shape, 0, &array, NULL, &read, err);
    for (int64_t i = 0; i < n && !status; i++)
        memcpy((float *)out->data + i * width + at, (const char *)array.data + 4 * i * own, (size_t)(4 * own));
    strata_array_finish(&array);
    return status;
}

/* Reads {"left": [...], "right": [...]}, which must have all inputs of the model and no others. */
static strata_status read_ports(const served_model *served, const strata_json *object, strata_array *out, strata_error *err) {
    const int n_inputs = strata_model_n_inputs(served->model);
    const char *names[MOST_ARRAYS];
    strata_json list;
    int64_t at = 0;
    for (int i = 0; i < n_inputs && i < MOST_ARRAYS; i++) names[i] = strata_model_input_port(served->model, i).name;
    STRATA_TRY(strata_json_check_keys(object, names, (size_t)n_inputs, err));
    for (int i = 0; i < n_inputs; i++) {
        const strata_model_port port = strata_model_input_port(served->model, i);
        STRATA_TRY(strata_json_get(object, port.name, &list, err));
        STRATA_TRY(strata_json_expect(&list, STRATA_JSON_ARRAY, err));
        if (i == 0) {
            const int64_t n = strata_json_length(&list);
            if (n < 1 || n > MOST_EXAMPLES)
                return strata_json_fail(&list, err, STRATA_DATA, "has %lld examples; 1 to %d are possible", (long long)n,
                                        MOST_EXAMPLES);
            STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, served->element.dims[0]), out, err));
        }
        STRATA_TRY(read_port(&port, &list, at, out, err));
        at += strata_shape_elements(port.shape);
    }
    return STRATA_OK;
}

/* ---- rows of a table ---- */

/* Whether the table that the model learned from has a decimal comma. */
static bool has_decimal_comma(const strata_preprocessing *p) {
    const strata_csv_dialect *dialect = strata_preprocessing_dialect(p);
    return dialect->decimal == ',' || (!dialect->decimal && dialect->thousands == '.');
}

/* Finds the model's column with this name. */
static bool find_column(const strata_preprocessing *p, const char *name, strata_column_info *out_column) {
    for (int i = 0; i < strata_preprocessing_n_columns(p); i++) {
        *out_column = strata_preprocessing_column(p, i);
        if (!strcmp(out_column->name, name)) return true;
    }
    return false;
}

/* The name of cell `index` of rows that are arrays of n cells: these are the columns of the model, or all columns of the table
 * that it learned from. NULL: the model has no table of n columns. */
static const char *name_of_cell(const strata_preprocessing *p, int64_t n, int64_t index) {
    return n == strata_preprocessing_n_columns(p)  ? strata_preprocessing_column(p, (int)index).name
           : n == strata_preprocessing_n_header(p) ? strata_preprocessing_header(p, (int)index)
                                                   : NULL;
}

static void add_quoted(strata_text *csv, const char *text) {
    strata_text_add(csv, "\"");
    for (; *text; text++) strata_text_add(csv, *text == '"' ? "\"\"" : "%c", *text);
    strata_text_add(csv, "\"");
}

static const char *find_word(const strata_column_info *column, const char *word) {
    for (int w = 0; w < column->n_words; w++)
        if (!strcasecmp(column->words[w], word)) return column->words[w];
    return NULL;
}

/* The word of the column that means true or false, such as TRUE, yes or 1, if it is the only word, or has the other one too;
 * column NULL: it is not known. */
static const char *word_of_truth(const strata_column_info *column, bool truth) {
    static const char *const words[][2] = {{"false", "true"}, {"no", "yes"}, {"0", "1"}, {"f", "t"}, {"n", "y"}, {"off", "on"}};
    if (column && (column->kind == STRATA_COLUMN_NUMBER || column->numeric)) return truth ? "1" : "0";
    for (size_t i = 0; column && column->kind == STRATA_COLUMN_WORDS && i < sizeof words / sizeof *words; i++)
        if (column->n_words == 1 || find_word(column, words[i][!truth]))
            if (find_word(column, words[i][truth])) return find_word(column, words[i][truth]);
    return words[0][truth];
}

/* Writes a number with as few digits as identify it, so that 0.1 is equal to the word "0.1" of a table. */
static void write_number(double number, bool decimal_comma, char out[32]) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, number);
        if (strtod(out, NULL) == number) break;
    }
    if (decimal_comma && strchr(out, '.')) *strchr(out, '.') = ',';
}

/* Adds a quoted cell of the column, in which quotes are doubled. null, a missing value, becomes an empty cell. column NULL: the
 * model does not use the cell. */
static strata_status add_cell(strata_text *csv, const strata_json *cell, const strata_column_info *column, strata_error *err) {
    const char *text = "";
    char digits[32];
    double number = 0;
    bool truth = false;
    switch (strata_json_kind_of(cell)) {
        case STRATA_JSON_NULL:
            break;
        case STRATA_JSON_NUMBER:
            STRATA_TRY(strata_json_to_number(cell, -1e308, 1e308, &number, err));
            write_number(number, column && column->format.decimal == ',', digits);
            text = digits;
            break;
        case STRATA_JSON_BOOL:
            STRATA_TRY(strata_json_to_bool(cell, &truth, err));
            text = word_of_truth(column, truth);
            break;
        case STRATA_JSON_STRING:
            STRATA_TRY(strata_json_to_string(cell, &text, err));
            break;
        default:
            if (column)
                return strata_json_fail(cell, err, STRATA_DATA,
                                        "must be a number, a text, true, false or null, and not a list or an object");
    }
    add_quoted(csv, text);
    return STRATA_OK;
}

/* Adds a row that is an array. */
static strata_status add_row(const strata_preprocessing *p, const strata_json *row, strata_text *csv, strata_error *err) {
    const int64_t n_cells = strata_json_length(row);
    strata_json cell;
    int64_t n = 0;
    for (bool more = strata_json_first(row, &cell); more; more = strata_json_next(&cell), n++) {
        const char *name = name_of_cell(p, n_cells, n);
        strata_column_info column;
        if (n) strata_text_add(csv, ",");
        STRATA_TRY(add_cell(csv, &cell, name && find_column(p, name, &column) ? &column : NULL, err));
    }
    return STRATA_OK;
}

/* Whether the table that the model learned from has this column. */
static bool is_in_table(const strata_preprocessing *p, const char *name) {
    strata_column_info column;
    for (int i = 0; i < strata_preprocessing_n_header(p); i++)
        if (!strcmp(strata_preprocessing_header(p, i), name)) return true;
    return find_column(p, name, &column);
}

/* The field of the row that is no column of the table and has a similar name; NULL: there is none. */
static const char *similar_field(const strata_preprocessing *p, const strata_json *row, const char *name) {
    strata_json cell;
    for (bool more = strata_json_first(row, &cell); more; more = strata_json_next(&cell))
        if (!is_in_table(p, cell.name) && strata_nearest_name(cell.name, &name, 1)) return cell.name;
    return NULL;
}

/* Adds a row that is an object: its cells of the model's columns, in their order. */
static strata_status add_named_row(const strata_preprocessing *p, const strata_json *row, strata_text *csv, strata_error *err) {
    strata_json cell;
    for (int i = 0; i < strata_preprocessing_n_columns(p); i++) {
        const strata_column_info column = strata_preprocessing_column(p, i);
        const char *name = column.name;
        if (i) strata_text_add(csv, ",");
        if (!strata_json_find(row, name, &cell)) {
            const char *similar = similar_field(p, row, name);
            return strata_json_fail(row, err, STRATA_DATA, "has no column \"%s\"%s%s%s; null stands for a missing value", name,
                                    similar ? "; is it \"" : "", similar ? similar : "", similar ? "\"?" : "");
        }
        STRATA_TRY(add_cell(csv, &cell, &column, err));
    }
    return STRATA_OK;
}

/* Adds a warning for each field of the rows that is no column of the table. */
static void warn_of_fields(const strata_preprocessing *p, const strata_json *row, strata_text *warnings) {
    strata_json cell;
    char line[300];
    for (bool more = strata_json_first(row, &cell); more; more = strata_json_next(&cell)) {
        if (is_in_table(p, cell.name)) continue;
        snprintf(line, sizeof line, "\"%.200s\" is no column of the training data and is not used", cell.name);
        for (char *c = line; *c; c++)
            if (*c == '\n') *c = ' ';
        if (warnings->n_bytes < MOST_WARNING_BYTES && (!warnings->bytes || !strstr(warnings->bytes, line)))
            strata_text_add(warnings, "%s\n", line);
    }
}

/* Writes the rows as CSV: all of them are objects, or all are arrays with as many cells as the first one. */
static strata_status write_rows(const strata_preprocessing *p, const strata_json *list, strata_text *csv, strata_text *warnings,
                                strata_error *err) {
    strata_json row, first;
    if (!strata_json_first(list, &first)) return STRATA_OK;
    const bool named = strata_json_kind_of(&first) == STRATA_JSON_OBJECT;
    const int64_t n_cells = strata_json_length(&first);
    STRATA_TRY(strata_json_expect(&first, named ? STRATA_JSON_OBJECT : STRATA_JSON_ARRAY, err));
    /* If no table has so many cells, there is no header, and the reader of the table reports the number of cells. */
    const int n_names = named ? strata_preprocessing_n_columns(p) : name_of_cell(p, n_cells, 0) ? (int)n_cells : 0;
    for (int i = 0; i < n_names; i++) {
        if (i) strata_text_add(csv, ",");
        add_quoted(csv, named ? strata_preprocessing_column(p, i).name : name_of_cell(p, n_cells, i));
    }
    if (n_names) strata_text_add(csv, "\n");
    for (bool more = strata_json_first(list, &row); more; more = strata_json_next(&row)) {
        STRATA_TRY(strata_json_expect(&row, named ? STRATA_JSON_OBJECT : STRATA_JSON_ARRAY, err));
        if (!named && strata_json_length(&row) != n_cells)
            return strata_json_fail(&row, err, STRATA_DATA, "has %lld cells, the first row has %lld",
                                    (long long)strata_json_length(&row), (long long)n_cells);
        STRATA_TRY(named ? add_named_row(p, &row, csv, err) : add_row(p, &row, csv, err));
        if (named) warn_of_fields(p, &row, warnings);
        strata_text_add(csv, "\n");
    }
    return STRATA_OK;
}

/* Appends to each example's numbers its tokens, which are stored as i32 and not converted. */
static strata_status append_tokens(const strata_dataset *tokens, const strata_order *order, strata_array *out,
                                   strata_error *err) {
    const int64_t n_tokens = strata_dataset_element_shape(tokens).dims[0];
    const int64_t n = out->shape.dims[0], width = out->shape.dims[1];
    strata_array wide = {0};
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, width + n_tokens), &wide, err));
    for (int64_t i = 0; i < n; i++) {
        float *row = (float *)wide.data + i * (width + n_tokens);
        memcpy(row, (const float *)out->data + i * width, (size_t)width * sizeof *row);
        strata_dataset_fetch(tokens, order, i, 1, row + width, NULL);
    }
    strata_array_finish(out);
    *out = wide;
    return STRATA_OK;
}

/* Reads the features of all examples of a dataset. */
static strata_status fetch_all(const served_model *served, const strata_dataset *data, strata_array *out, strata_error *err) {
    const strata_shape element = strata_dataset_element_shape(data);
    strata_shape shape = {.rank = element.rank + 1, .dims = {strata_dataset_size(data)}};
    memcpy(shape.dims + 1, element.dims, sizeof(int64_t) * (size_t)element.rank);
    strata_order *order = NULL;
    STRATA_TRY(strata_array_create(strata_dataset_feature_dtype(data), shape, out, err));
    STRATA_TRY(strata_order_create(shape.dims[0], false, 0, 0, &order, err));
    strata_dataset_fetch(data, order, 0, shape.dims[0], out->data, NULL);
    const strata_dataset *tokens = strata_dataset_further(data, 0);
    strata_status status =
        served->several && tokens && !strata_dataset_further(data, 1) ? append_tokens(tokens, order, out, err) : STRATA_OK;
    strata_order_destroy(order);
    return status;
}

/* Replaces the line of the table in an error by the row of the request. */
static strata_status fail_in_row(const strata_csv *csv, strata_status status, strata_error *err) {
    static const char name[] = "rows:";
    char rest[STRATA_ERROR_MESSAGE_BYTES], *end = err->message;
    const long long line = strncmp(err->message, name, sizeof name - 1) ? 0 : strtoll(err->message + sizeof name - 1, &end, 10);
    snprintf(rest, sizeof rest, "%s", end);
    for (int64_t row = 0; line && row < strata_csv_n_rows(csv); row++)
        if (strata_csv_line(csv, row) == line) return strata_fail(err, status, "request: rows[%lld]%s", (long long)row, rest);
    return status;
}

static strata_status read_rows(const served_model *served, const strata_json *list, strata_array *out, strata_text *warnings,
                               strata_error *err) {
    strata_text text = {0};
    strata_csv *csv = NULL;
    strata_dataset *data = NULL;
    char *bytes = NULL;
    size_t n_bytes = 0;
    strata_status status = write_rows(served->preprocessing, list, &text, warnings, err);
    if (status)
        strata_text_finish(&text);
    else
        status = strata_text_take(&text, &bytes, &n_bytes, err);
    /* Strings are numbers only as the training table was written; JSON's numbers are written in this way above. */
    const char groups = strata_preprocessing_dialect(served->preprocessing)->thousands;
    const strata_csv_dialect dialect = {.separator = ',',
                                        .decimal = has_decimal_comma(served->preprocessing) ? ',' : '.',
                                        .thousands = groups ? groups : STRATA_CSV_NONE};
    if (!status) status = strata_csv_parse_table("rows", bytes, n_bytes, &dialect, served->preprocessing, &csv, err);
    strata_preprocessing_report report = {0};
    const strata_apply_options unlabelled = {.unlabelled = true, .report = &report};
    if (!status) {
        status = strata_preprocessing_apply_csv(served->preprocessing, csv, &unlabelled, &data, err);
        if (status) status = fail_in_row(csv, status, err);
    }
    if (!status && report.n_unknown) strata_text_add(warnings, "%s\n", describe_unknown(&report).text);
    if (!status) status = fetch_all(served, data, out, err);
    strata_dataset_destroy(data);
    strata_csv_destroy(csv);
    free(bytes);
    return status;
}

/* ---- texts ---- */

static strata_status read_texts(const served_model *served, const strata_json *list, strata_array *out, strata_error *err) {
    const int64_t length = served->element.dims[0];
    const strata_shape shape = STRATA_SHAPE(strata_json_length(list), length);
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, shape, out, err));
    strata_json item;
    char *at = out->data;
    for (bool more = strata_json_first(list, &item); more; more = strata_json_next(&item), at += (size_t)length * 4) {
        const char *text = NULL;
        strata_dataset *data = NULL;
        strata_order *order = NULL;
        STRATA_TRY(strata_json_to_string(&item, &text, err));
        STRATA_TRY(strata_dataset_from_text(text, served->tokenizer, length, &data, err));
        strata_status status = strata_order_create(1, false, 0, 0, &order, err);
        if (!status) strata_dataset_fetch(data, order, 0, 1, at, NULL);
        strata_order_destroy(order);
        strata_dataset_destroy(data);
        STRATA_TRY(status);
    }
    return STRATA_OK;
}

/* ---- pictures, which are written to a temporary file, since the functions that read them read files ---- */

static strata_status read_picture(const served_model *served, const char *body, size_t n_bytes, strata_array *out,
                                  strata_error *err) {
    const char *folder = getenv("TMPDIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/strata-picture-XXXXXX", folder && *folder ? folder : "/tmp");
    int file = mkstemp(path);
    if (file < 0) return strata_fail(err, STRATA_UNAVAILABLE, "no temporary file for the picture in %s", path);
    close(file);
    strata_dataset *data = NULL;
    const strata_apply_options unlabelled = {.unlabelled = true};
    strata_status status = strata_file_write(path, body, n_bytes, err);
    if (!status && served->preprocessing) {
        status = strata_preprocessing_apply_pictures(served->preprocessing, path, &unlabelled, &data, err);
        if (!status) status = fetch_all(served, data, out, err);
    } else if (!status) {
        status = picture_read(path, served->element, false, out, err);
        out->shape.rank = served->element.rank + 1;
    }
    strata_dataset_destroy(data);
    unlink(path);
    /* The name of the temporary file is replaced in the message, since the client does not know it. */
    const char *at = status && err ? strstr(err->message, path) : NULL;
    if (at) {
        const strata_error whole = *err;
        return strata_fail(err, STRATA_DATA, "%.*sthe picture%s", (int)(at - err->message), whole.message,
                           whole.message + (at - err->message) + strlen(path));
    }
    return status;
}

/* ---- the body ---- */

strata_status read_inputs(const served_model *served, const char *body, size_t n_bytes, bool picture, strata_array *out,
                          strata_text *warnings, strata_error *err) {
    static const char *const known[] = {"inputs", "rows", "texts"};
    if (picture || strata_picture_matches(body, n_bytes)) return read_picture(served, body, n_bytes, out, err);
    const strata_preprocessing_kind kind =
        served->preprocessing ? strata_preprocessing_get_kind(served->preprocessing) : STRATA_PREPROCESSING_PICTURES;
    const char *wanted = kind == STRATA_PREPROCESSING_TABLE ? "rows" : served->tokenizer ? "texts" : "inputs";
    const bool table = kind == STRATA_PREPROCESSING_TABLE;
    strata_json root = {0}, list;
    STRATA_TRY(strata_json_parse("request", body, n_bytes, n_bytes, &root, err));
    strata_status status = strata_json_expect(&root, STRATA_JSON_OBJECT, err);
    if (!status) status = strata_json_check_keys(&root, known, sizeof known / sizeof *known, err);
    if (!status && !strata_json_find(&root, wanted, &list))
        status = strata_json_fail(&root, err, STRATA_DATA, "has no \"%s\", which this model needs", wanted);
    if (!status && served->several && !table) {
        status = strata_json_expect(&list, STRATA_JSON_OBJECT, err);
        if (!status) status = read_ports(served, &list, out, err);
        strata_json_finish(&root);
        if (status) strata_array_finish(out);
        return status;
    }
    if (!status) status = strata_json_expect(&list, STRATA_JSON_ARRAY, err);
    const int64_t n = status ? 0 : strata_json_length(&list);
    if (!status && (n < 1 || n > MOST_EXAMPLES))
        status =
            strata_json_fail(&list, err, STRATA_DATA, "has %lld examples; 1 to %d are possible", (long long)n, MOST_EXAMPLES);
    if (!status)
        status = table ? read_rows(served, &list, out, warnings, err)
                       : (served->tokenizer ? read_texts : read_array)(served, &list, out, err);
    strata_json_finish(&root);
    if (status) strata_array_finish(out);
    return status;
}
