/* SPDX-License-Identifier: Apache-2.0
 *
 * strata inspect: shows the contents of a model or data file. The format is recognized by the first bytes (by the name only if
 * a format has no signature). Each format is a row of `formats`, whose reader makes a list of parts; one function prints these
 * lists. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "own.h"
#include "strata/csv.h"
#include "strata/file.h"
#include "strata/formats.h"
#include "strata/preprocessing.h"

static const size_t MOST_BYTES = STRATA_BYTES_LIMIT(36);

typedef struct inspect_options {
    table_flags table;
    bool json;
} inspect_options;

static const option_row rows[] = {TABLE_OPTION_ROWS(inspect_options, table),
                                  {"json", NULL, "print one line of JSON", OPTION_FLAG, offsetof(inspect_options, json), 0, 0},
                                  {0}};

/* A tensor, array or column of a file, for printing. */
typedef struct part {
    const char *name, *dtype;
    strata_shape shape;
    int64_t bytes;
} part;

/* Prints the parts of a file, as text or JSON, as the reader of the format finds them. */
typedef struct listing {
    /* How a CSV is written. */
    table_flags table;
    bool json;
    int n_parts;
} listing;

static void begin(listing *list, const char *path, const char *format) {
    if (list->json) {
        printf("{\"file\":");
        print_json_string(path);
        printf(",\"format\":\"%s\",\"tensors\":[", format);
    } else {
        printf("%s: %s\n", path, format);
    }
}

static void add(listing *list, part p) {
    if (list->json) {
        printf("%s{\"name\":", list->n_parts ? "," : "");
        print_json_string(p.name);
        printf(",\"dtype\":\"%s\",\"shape\":", p.dtype);
        print_json_shape(p.shape);
        printf(",\"bytes\":%lld}", (long long)p.bytes);
    } else {
        printf("  %-32s %-6s %-20s %12lld bytes\n", p.name, p.dtype, strata_shape_text(p.shape).text, (long long)p.bytes);
    }
    list->n_parts++;
}

static void end(const listing *list) {
    if (list->json) printf("]}\n");
}

/* ---- the formats ---- */

static bool is_safetensors(const char *path, const unsigned char *head, size_t n) {
    (void)path;
    return n > 8 && head[8] == '{' && !head[7] && !head[6] && !head[5];
}

/* Prints the model's JSON and ends the output. */
static void print_model(const listing *list, const char *model) {
    if (list->json)
        printf("],\"model\":%s}\n", model);
    else
        printf("  model: %s\n", model);
}

static strata_status inspect_safetensors(const char *path, listing *list, strata_error *err) {
    strata_safetensors file = {0};
    STRATA_TRY(strata_safetensors_read(path, &file, err));
    const char *text = strata_safetensors_metadata(&file, "strata.model");
    strata_json model = {0};
    /* The model's text becomes part of the output's JSON, so it is checked first. */
    strata_status status = text ? strata_json_parse(path, text, strlen(text), strlen(text), &model, err) : STRATA_OK;
    if (!status) {
        begin(list, path, text ? "a Strata model (safetensors)" : "safetensors");
        for (size_t i = 0; i < file.n_tensors; i++) {
            const strata_safetensor *t = &file.tensors[i];
            add(list, (part){t->name, t->dtype_name, t->shape, (int64_t)t->n_bytes});
        }
        if (text)
            print_model(list, text);
        else
            end(list);
    }
    strata_json_finish(&model);
    strata_safetensors_finish(&file);
    return status;
}

static void add_array(listing *list, const char *name, const strata_array *array) {
    add(list, (part){name, strata_dtype_name(array->dtype), array->shape,
                     strata_shape_elements(array->shape) * (int64_t)strata_dtype_bytes(array->dtype)});
}

static strata_status list_array(const char *path, const char *format, strata_array *array, listing *list) {
    begin(list, path, format);
    add_array(list, "elements", array);
    end(list);
    strata_array_finish(array);
    return STRATA_OK;
}

static bool is_npy(const char *path, const unsigned char *head, size_t n) {
    (void)path;
    return n > 6 && !memcmp(head, "\x93NUMPY", 6);
}

static strata_status inspect_npy(const char *path, listing *list, strata_error *err) {
    strata_array array = {0};
    unsigned char *bytes = NULL;
    size_t n = 0, elements = 0;
    part stored = {.name = "elements"};
    STRATA_TRY(strata_stream_read_file(path, MOST_BYTES, &bytes, &n, err));
    strata_status status = strata_npy_parse(path, bytes, n, &array, err); /* reads all elements, so that damage is found */
    if (!status) status = strata_npy_describe(path, bytes, n, &stored.dtype, &stored.shape, &elements, err);
    strata_array_finish(&array);
    free(bytes);
    STRATA_TRY(status);
    stored.bytes = (int64_t)elements;
    begin(list, path, "npy");
    add(list, stored);
    end(list);
    return STRATA_OK;
}

static bool is_zip_of_arrays(const char *path, const unsigned char *head, size_t n) {
    (void)head;
    return n && is_npz(path);
}

static void add_entry(const strata_npz_entry *entry, void *user) {
    add(user, (part){entry->name, entry->type, entry->shape, (int64_t)entry->n_bytes});
}

static strata_status inspect_npz(const char *path, listing *list, strata_error *err) {
    unsigned char *bytes = NULL;
    size_t n = 0;
    STRATA_TRY(strata_file_read(path, MOST_BYTES, &bytes, &n, err));
    /* The whole archive is checked before anything is printed. */
    strata_status status = strata_npz_list(path, bytes, n, NULL, NULL, err);
    if (!status) {
        begin(list, path, "npz");
        status = strata_npz_list(path, bytes, n, add_entry, list, err);
        end(list);
    }
    free(bytes);
    return status;
}

static bool is_idx(const char *path, const unsigned char *head, size_t n) {
    (void)path;
    return n > 4 && !head[0] && !head[1] && head[2] >= 8 && head[2] <= 14;
}

static strata_status inspect_idx(const char *path, listing *list, strata_error *err) {
    strata_array array = {0};
    STRATA_TRY(strata_idx_read(path, &array, err));
    return list_array(path, "IDX", &array, list);
}

/* Whether the path ends in `end`, or in that and .gz or .xz. */
static bool is_called(const char *path, const char *end) {
    char gz[32], xz[32];
    snprintf(gz, sizeof gz, "%s.gz", end);
    snprintf(xz, sizeof xz, "%s.xz", end);
    return ends_with(path, end) || ends_with(path, gz) || ends_with(path, xz);
}

static bool is_cifar10(const char *path, const unsigned char *head, size_t n) {
    (void)head;
    return n && strstr(path, "_batch") && is_called(path, ".bin");
}

static strata_status inspect_cifar10(const char *path, listing *list, strata_error *err) {
    unsigned char *bytes = NULL;
    size_t n = 0;
    strata_array images = {0}, labels = {0};
    STRATA_TRY(strata_file_read(path, MOST_BYTES, &bytes, &n, err));
    strata_status status = strata_cifar10_parse(path, bytes, n, &images, &labels, err);
    free(bytes);
    STRATA_TRY(status);
    begin(list, path, "CIFAR-10 records");
    add_array(list, "images", &images);
    add_array(list, "labels", &labels);
    end(list);
    strata_array_finish(&images);
    strata_array_finish(&labels);
    return STRATA_OK;
}

static bool is_model_json(const char *path, const unsigned char *head, size_t n) {
    (void)head;
    return n && ends_with(path, ".json");
}

static strata_status inspect_model_json(const char *path, listing *list, strata_error *err) {
    strata_model *model = NULL;
    char *text = NULL;
    STRATA_TRY(strata_model_read_json(path, &model, err));
    strata_status status = strata_model_to_json(model, &text, err);
    if (!status) {
        begin(list, path, "a Strata model (JSON)");
        for (int i = 0; i < strata_model_n_parameters(model); i++) {
            const strata_parameter p = strata_model_parameter(model, i);
            add(list, (part){p.name, "f32", p.shape, 4 * strata_shape_elements(p.shape)});
        }
        print_model(list, text);
    }
    free(text);
    strata_model_destroy(model);
    return status;
}

static bool is_picture(const char *path, const unsigned char *head, size_t n) {
    (void)path;
    return strata_picture_matches(head, n);
}

static strata_status inspect_picture(const char *path, listing *list, strata_error *err) {
    unsigned char *bytes = NULL;
    size_t n = 0;
    strata_picture_size size = {0};
    STRATA_TRY(strata_stream_read_file(path, MOST_BYTES, &bytes, &n, err));
    strata_status status = strata_picture_measure(path, bytes, n, &size, err);
    free(bytes);
    STRATA_TRY(status);
    begin(list, path, "a picture (rows, columns, channels)");
    add(list, (part){"pixels", "u8", STRATA_SHAPE(size.rows, size.columns, size.channels), (int64_t)n});
    end(list);
    return STRATA_OK;
}

static bool is_parquet(const char *path, const unsigned char *head, size_t n) {
    (void)path;
    return n >= 4 && !memcmp(head, "PAR1", 4);
}

static bool is_csv(const char *path, const unsigned char *head, size_t n) {
    return n && (is_called(path, ".csv") || (n >= 4 && !memcmp(head, "PK\3\4", 4)));
}

/* Describes a column. Its type is number if all cells are numbers or missing. */
static part describe_column(const strata_csv *csv, const strata_table_reading *reading, int column) {
    part found = {strata_csv_column(csv, column), "number", STRATA_SHAPE(strata_csv_n_rows(csv)), 0};
    for (int64_t row = 0; row < strata_csv_n_rows(csv); row++) {
        const char *cell = strata_csv_cell(csv, row, column);
        double value;
        if (!strata_csv_is_missing(csv, row, column) && !strata_cell_number(cell, reading->numbers, &value))
            found.dtype = "text";
        found.bytes += (int64_t)strlen(cell);
    }
    return found;
}

static strata_status inspect_table(const char *path, listing *list, strata_error *err) {
    strata_csv *csv = NULL;
    STRATA_TRY(read_table(path, &list->table, NULL, &csv, err));
    const int n = strata_csv_n_columns(csv);
    strata_table_reading reading;
    int *all = calloc((size_t)n + 1, sizeof *all);
    strata_status status = all ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    for (int i = 0; i < n && !status; i++) all[i] = i;
    if (!status) status = strata_reading_find(csv, all, n, &reading, NULL, err);
    if (!status) {
        begin(list, path, strata_csv_get_dialect(csv)->separator ? "CSV" : "Parquet");
        for (int i = 0; i < n; i++) add(list, describe_column(csv, &reading, i));
        end(list);
    }
    free(all);
    strata_csv_destroy(csv);
    return status;
}

static const struct {
    const char *name;
    bool (*matches)(const char *path, const unsigned char *head, size_t n);
    strata_status (*inspect)(const char *path, listing *list, strata_error *err);
} formats[] = {{"npy", is_npy, inspect_npy},
               {"npz", is_zip_of_arrays, inspect_npz},
               {"safetensors", is_safetensors, inspect_safetensors},
               {"CIFAR-10", is_cifar10, inspect_cifar10},
               {"picture", is_picture, inspect_picture},
               {"CSV", is_csv, inspect_table},
               {"Parquet", is_parquet, inspect_table},
               {"model.json", is_model_json, inspect_model_json},
               {"IDX", is_idx, inspect_idx}};

static strata_status inspect(const char *path, listing *list, strata_error *err) {
    unsigned char head[64] = {0};
    size_t n = 0;
    STRATA_TRY(strata_stream_peek_file(path, head, sizeof head, &n, err));
    STRATA_TRY(check_converted(path, err)); /* a .keras is a zip archive */
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].matches(path, head, n)) return formats[i].inspect(path, list, err);
    if (foreign_model(path)) return strata_fail(err, STRATA_DATA, "%s: %s", path, foreign_model(path));
    return strata_fail(
        err, STRATA_DATA,
        "%s: begins like none of the formats that are known: safetensors, npy, npz, IDX, Parquet, " STRATA_PICTURE_FORMATS
        "; nor is it called .csv, .json or _batch_1.bin",
        path);
}

static int run(const command *command, int argc, char **argv) {
    inspect_options options = {0};
    const char *path = NULL;
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &options, &path, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    strata_error err = {0};
    strata_status status = inspect(path, &(listing){.table = options.table, .json = options.json}, &err);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

const command command_inspect = {.name = "inspect",
                                 .arguments = "FILE",
                                 .summary = "show the contents of a model or data file",
                                 .options = rows,
                                 .least_arguments = 1,
                                 .most_arguments = 1,
                                 .files = "r",
                                 .run = run};
