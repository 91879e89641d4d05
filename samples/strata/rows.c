/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables without a header: what the columns are, the model says. */
#include "rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/data/format/stream.h"

/* ---- the columns that a model takes ---- */

/* Zero-initialize; finish when done. */
typedef struct expected {
    char **names;
    int n;
} expected;

static void expected_finish(expected *columns) {
    strata_names_free(columns->names, columns->n);
}

/* Those that it learned from; of a model that was trained without a table: "number 1", ... */
static strata_status expect_columns(const strata_model *model, const csv_schema *schema, expected *out, strata_error *err) {
    enum { MOST = 16384, NAME_BYTES = 32 };
    const int64_t n = schema->n_columns ? schema->n_columns : strata_shape_elements(strata_model_input_shape(model));
    if (n < 1 || n > MOST) return strata_fail(err, STRATA_DATA, "the model takes %lld numbers: no row of a CSV", (long long)n);
    char(*made)[NAME_BYTES] = calloc((size_t)n, sizeof *made);
    const char **names = calloc((size_t)n, sizeof *names);
    strata_status status = STRATA_OK;
    if (!made || !names) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %lld columns", (long long)n);
    for (int64_t i = 0; i < n && !status; i++) {
        snprintf(made[i], NAME_BYTES, "number %lld", (long long)i + 1);
        names[i] = schema->n_columns ? schema->columns[i] : made[i];
    }
    if (!status) status = strata_names_copy(names, (int)n, &out->names, err);
    if (!status) out->n = (int)n;
    free(names);
    free(made);
    return status;
}

/* ---- the first line ---- */

/* A copy of the first line that is not empty, without its end. */
static char *first_line(const unsigned char *bytes, size_t n) {
    const char *text = (const char *)bytes;
    size_t begin = 0, end;
    while (begin < n && (text[begin] == '\n' || text[begin] == '\r')) begin++;
    for (end = begin; end < n && text[end] != '\n' && text[end] != '\r';) end++;
    return strndup(text + begin, end - begin);
}

static bool is_number(const char *cell) {
    char *rest = NULL;
    const double value = strtod(cell, &rest);
    (void)value;
    return rest != cell && !rest[strspn(rest, " \t")];
}

/* Whether all cells of the line are numbers, and how many; the line is cut at its commas. Names of columns that are numbers are
 * names, if the model knows them. */
static bool is_row(char *line, const csv_schema *schema, int *out_n) {
    int known = 0;
    char *rest = line;
    *out_n = 0;
    for (char *cell = strsep(&rest, ","); cell; cell = strsep(&rest, ",")) {
        if (!is_number(cell)) return false;
        ++*out_n;
        for (int i = 0; i < schema->n_columns; i++) known += !strcmp(schema->columns[i], cell);
    }
    return !known || known != schema->n_columns;
}

/* ---- tables ---- */

static strata_status wrong_width(const char *name, const char *what, int n, const expected *columns, strata_error *err) {
    char names[256] = "";
    size_t used = 0;
    for (int i = 0; i < columns->n && used < sizeof names - 40; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%.32s", i ? ", " : "", columns->names[i]);
    return strata_fail(err, STRATA_DATA, "%s: %s %d column%s; the model takes %d: %s", name, what, n, n == 1 ? "" : "s",
                       columns->n, columns->n > 8 ? "give a header, or as many" : names);
}

static strata_status parse(const char *name, const void *bytes, size_t n_bytes, const char *what, int n_cells,
                           const strata_model *model, const csv_schema *schema, strata_csv **out_csv, strata_error *err) {
    expected columns = {0};
    STRATA_TRY(expect_columns(model, schema, &columns, err));
    strata_status status =
        n_cells == columns.n
            ? strata_csv_parse_rows(name, bytes, n_bytes, 0, (const char *const *)columns.names, columns.n, out_csv, err)
            : wrong_width(name, what, n_cells, &columns, err);
    expected_finish(&columns);
    return status;
}

strata_status rows_parse(const char *name, const char *text, const strata_model *model, const csv_schema *schema,
                         strata_csv **out_csv, strata_error *err) {
    int n = 1;
    for (const char *at = text; *at; at++) n += *at == ',';
    return parse(name, text, strlen(text), "has", n, model, schema, out_csv, err);
}

strata_status rows_read(const char *path, const strata_model *model, const csv_schema *schema, strata_csv **out_csv,
                        strata_error *err) {
    unsigned char *bytes = NULL;
    size_t n_bytes = 0;
    int n = 0;
    STRATA_TRY(strata_stream_read_file(path, (size_t)1 << 36, &bytes, &n_bytes, err));
    char *line = first_line(bytes, n_bytes);
    strata_status status;
    if (!line)
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    else if (is_row(line, schema, &n))
        status =
            parse(path, bytes, n_bytes, "has no header, as its first line is numbers, and", n, model, schema, out_csv, err);
    else
        status = strata_csv_parse(path, bytes, n_bytes, 0, out_csv, err);
    free(line);
    free(bytes);
    return status;
}
