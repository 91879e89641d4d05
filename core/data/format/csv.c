/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV files are parsed in one pass over the file's bytes. Quotes are removed in place and the end of each cell is overwritten
 * by a NUL, so that a cell is a pointer into these bytes. */
#include "core/data/format/csv.h"

#include <stdio.h>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/data/format/stream.h"
#include "core/data/prepare/cell.h"

enum { MOST_COLUMNS = 16384 };

struct strata_csv {
    const char *name;
    /* The contents of the file. */
    char *bytes;
    /* [n_records][n_columns] Pointers into bytes, or for a header that the caller gave, into names. The header is record 0. */
    char **cells;
    /* [n_columns] The column names that the caller gave; NULL: the first record of the file is the header. */
    char **names;
    /* [n_records] The line in which each record begins, from 1. */
    int64_t *lines;
    int64_t n_records, records_capacity;
    int64_t n_cells, cells_capacity;
    int n_columns;
    strata_csv_dialect dialect;
    /* [dialect.n_na] The words of dialect.na; NULL: there are none. */
    char **na;
};

/* ---- parsing ---- */

typedef struct parser {
    strata_csv *csv;
    char separator;
    /* 0: there are no quotes. */
    char quote;
    char *at, *end;
    /* The line that contains `at`, from 1, and its first byte. Error messages count a column in bytes from there. */
    int64_t line;
    char *line_start;
    strata_error *err;
} parser;

static strata_status no_memory(const strata_csv *csv, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for its table", csv->name);
}

static strata_status fail_at(const parser *p, const char *at, const char *what) {
    return strata_fail(p->err, STRATA_DATA, "%s:%lld:%lld: %s", p->csv->name, (long long)p->line,
                       (long long)(at - p->line_start) + 1, what);
}

static strata_status add_cell(parser *p, char *cell) {
    if (!strata_make_room(&p->csv->cells, p->csv->n_cells, &p->csv->cells_capacity, sizeof *p->csv->cells))
        return no_memory(p->csv, p->err);
    p->csv->cells[p->csv->n_cells++] = cell;
    return STRATA_OK;
}

/* Checks the character at p->at and moves p->at past it. */
static strata_status skip_character(parser *p) {
    size_t length = strata_utf8_length(p->at, (size_t)(p->end - p->at));
    if (*p->at == 0) return fail_at(p, p->at, "a NUL; a CSV file is text (is it UTF-16? save it as UTF-8)");
    if (length == 0) {
        char what[96];
        snprintf(what, sizeof what, "byte 0x%02X is not valid UTF-8 (is it Latin-1? iconv -f L1 -t UTF-8)",
                 (unsigned char)*p->at);
        return fail_at(p, p->at, what);
    }
    bool ends_line = *p->at == '\n';
    p->at += length;
    if (ends_line) p->line++, p->line_start = p->at;
    return STRATA_OK;
}

/* Adds a quoted cell. The quotes are removed by moving its characters towards the beginning of the cell, so that the NUL at its
 * end overwrites a quote. */
static strata_status parse_quoted_cell(parser *p) {
    int64_t line = p->line, column = (int64_t)(p->at - p->line_start) + 1;
    char *out = ++p->at;
    STRATA_TRY(add_cell(p, out));
    while (p->at < p->end) {
        if (*p->at == p->quote) {
            if (p->at + 1 == p->end || p->at[1] != p->quote) {
                *out = 0;
                p->at++;
                return STRATA_OK;
            }
            p->at++;
        }
        char *from = p->at;
        STRATA_TRY(skip_character(p));
        memmove(out, from, (size_t)(p->at - from));
        out += p->at - from;
    }
    return strata_fail(p->err, STRATA_DATA, "%s:%lld:%lld: the quote that opens here is never closed", p->csv->name,
                       (long long)line, (long long)column);
}

/* The length of the line end at p->at: LF, CR LF, or a CR that ends the file, where the LF is missing. 0: there is none. */
static size_t line_end_length(const parser *p) {
    if (p->at == p->end) return 0;
    if (*p->at == '\n') return 1;
    if (*p->at != '\r') return 0;
    return p->at + 1 == p->end ? 1 : p->at[1] == '\n' ? 2 : 0;
}

static bool at_end_of_cell(const parser *p) {
    return p->at == p->end || *p->at == p->separator || line_end_length(p);
}

static strata_status parse_unquoted_cell(parser *p) {
    STRATA_TRY(add_cell(p, p->at));
    while (!at_end_of_cell(p)) {
        if (p->quote && *p->at == p->quote)
            return fail_at(p, p->at, "a quote inside a cell that does not begin with one; double it and quote the cell");
        STRATA_TRY(skip_character(p));
    }
    return STRATA_OK;
}

/* Returns whether there was a line end at p->at. */
static bool skip_line_end(parser *p) {
    const size_t n = line_end_length(p);
    if (!n) return false;
    p->at += n;
    p->line++;
    p->line_start = p->at;
    return true;
}

/* Checks that a record that has n cells may have one more, which begins at p->at. */
static strata_status check_n_cells(const parser *p, int64_t n) {
    char what[128];
    int64_t most = p->csv->n_records ? p->csv->n_columns : MOST_COLUMNS;
    if (n < most) return STRATA_OK;
    snprintf(what, sizeof what,
             p->csv->names ? "cell %lld of a row; it must have %lld"
             : p->csv->n_records && most == 1
                 ? "cell %lld of a record; the header names %lld column (is the first line a title or a comment?)"
             : p->csv->n_records ? "cell %lld of a record; the header names %lld columns"
                                 : "column %lld; at most %lld are possible",
             (long long)n + 1, (long long)most);
    return fail_at(p, p->at, what);
}

static strata_status add_record(parser *p, int64_t line, int64_t n_cells) {
    strata_csv *csv = p->csv;
    if (!strata_make_room(&csv->lines, csv->n_records, &csv->records_capacity, sizeof *csv->lines))
        return no_memory(csv, p->err);
    csv->lines[csv->n_records++] = line;
    csv->n_columns = (int)n_cells;
    return STRATA_OK;
}

/* Adds a header that the caller gave. */
static strata_status add_header(parser *p, const char *const *columns, int n) {
    if (n < 1 || n > MOST_COLUMNS)
        return strata_fail(p->err, STRATA_INVALID, "csv: %d columns; there must be 1 to %d", n, MOST_COLUMNS);
    STRATA_TRY(strata_names_copy(columns, n, &p->csv->names, p->err));
    for (int i = 0; i < n; i++) STRATA_TRY(add_cell(p, p->csv->names[i]));
    return add_record(p, 0, n);
}

/* Parses a record and the line end after it. */
static strata_status parse_record(parser *p) {
    strata_csv *csv = p->csv;
    int64_t first = csv->n_cells, line = p->line;
    for (bool more = true; more;) {
        STRATA_TRY(check_n_cells(p, csv->n_cells - first));
        const char *quote = p->at; /* some programs write spaces before a quote: `a, "b"` */
        while (quote < p->end && *quote == ' ') quote++;
        if (p->quote && quote < p->end && *quote == p->quote && p->separator != ' ') p->at += quote - p->at;
        STRATA_TRY(p->quote && p->at < p->end && *p->at == p->quote ? parse_quoted_cell(p) : parse_unquoted_cell(p));
        if (!at_end_of_cell(p)) return fail_at(p, p->at, "text after a closing quote; a separator or a line end must follow");
        more = p->at < p->end && *p->at == p->separator;
        if (more) *p->at++ = 0;
    }
    int64_t n = csv->n_cells - first;
    if (csv->n_records && n != csv->n_columns) {
        char what[96];
        snprintf(what, sizeof what,
                 csv->names ? "the row ends after %lld cells; it must have %d"
                            : "the record ends after %lld cells; the header names %d columns",
                 (long long)n, csv->n_columns);
        return fail_at(p, p->at, what);
    }
    char *end = p->at;
    skip_line_end(p);
    *end = 0;
    return add_record(p, line, n);
}

static strata_status check_header(const strata_csv *csv, bool check_names, strata_error *err) {
    if (!csv->n_records) return strata_fail(err, STRATA_DATA, "%s: is empty; its first line must name the columns", csv->name);
    for (int i = 0; i < csv->n_columns && check_names; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(csv->cells[i], csv->cells[k]))
                return strata_fail(
                    err, STRATA_DATA, "%s: columns %d and %d are both named \"%s\"; %s", csv->name, k + 1, i + 1, csv->cells[i],
                    *csv->cells[i] ? "rename one of them" : "the first line must name all columns (is it a title?)");
    return STRATA_OK;
}

/* ---- the dialect ---- */

strata_status strata_csv_check_dialect(const strata_csv_dialect *d, strata_error *err) {
    const char quote = d->quote ? d->quote : '"';
    if (d->separator && (d->separator == quote || strchr("\n\r", d->separator)))
        return strata_fail(err, STRATA_INVALID, "csv: the separator cannot be %s",
                           d->separator == quote ? "the quote" : "a line end");
    if (d->quote && strchr("\n\r ", d->quote))
        return strata_fail(err, STRATA_INVALID, "csv: the quote cannot be a space or a line end");
    if (d->decimal && d->decimal != '.' && d->decimal != ',')
        return strata_fail(err, STRATA_INVALID, "csv: the decimal character is '%c'; it must be . or ,", d->decimal);
    if (d->thousands && d->thousands != STRATA_CSV_NONE && !strchr(",. '", d->thousands))
        return strata_fail(err, STRATA_INVALID,
                           "csv: the separator of thousands is '%c'; it must be , or . or a space or an apostrophe",
                           d->thousands);
    if (d->decimal && d->decimal == d->thousands)
        return strata_fail(err, STRATA_INVALID, "csv: '%c' cannot be both before the fraction and between thousands",
                           d->decimal);
    return STRATA_OK;
}

strata_status strata_csv_set_dialect(strata_csv *csv, const strata_csv_dialect *dialect, strata_error *err) {
    char **na = NULL;
    STRATA_TRY(strata_csv_check_dialect(dialect, err));
    static const char *const none[] = {""}; /* no words: only empty cells are missing */
    const int n = dialect->na && dialect->n_na < 1 ? 1 : dialect->n_na;
    if (dialect->na) STRATA_TRY(strata_names_copy(dialect->n_na < 1 ? none : dialect->na, n, &na, err));
    free(csv->na);
    csv->na = na;
    csv->dialect = *dialect;
    csv->dialect.n_na = na ? n : 0;
    csv->dialect.na = (const char *const *)na;
    return STRATA_OK;
}

const strata_csv_dialect *strata_csv_get_dialect(const strata_csv *csv) {
    return &csv->dialect;
}

bool strata_csv_marks_missing(const strata_csv *csv, const char *cell) {
    if (strata_cell_is_blank(cell)) return true;
    return csv->dialect.na ? strata_cell_is_listed(cell, csv->dialect.na, csv->dialect.n_na)
                           : strata_cell_is_usual_marker(cell);
}

bool strata_csv_is_missing(const strata_csv *csv, int64_t row, int column) {
    return strata_csv_marks_missing(csv, strata_csv_cell(csv, row, column));
}

/* ---- tables ---- */

/* Adds the names "column 1", "column 2", ... for as many columns as the first line has. */
static strata_status number_columns(parser *p) {
    parser ahead = *p;
    int n = 0;
    STRATA_FREED char(*texts)[24] = NULL;
    STRATA_FREED const char **names = NULL;
    for (bool more = true; more && n < MOST_COLUMNS; n++) {
        bool quoted = false;
        for (; ahead.at < ahead.end && (quoted || !at_end_of_cell(&ahead)); ahead.at++)
            if (p->quote && *ahead.at == p->quote) quoted = !quoted;
        more = ahead.at < ahead.end && *ahead.at == p->separator;
        ahead.at += more;
    }
    STRATA_TRY(STRATA_NEW(texts, n, p->err, "%s: no host memory for its table", p->csv->name));
    STRATA_TRY(STRATA_NEW(names, n, p->err, "%s: no host memory for its table", p->csv->name));
    for (int i = 0; i < n; i++) {
        snprintf(texts[i], sizeof texts[i], "column %d", i + 1);
        names[i] = texts[i];
    }
    return add_header(p, names, n);
}

/* Makes a table without cells. Takes the bytes, even on failure. */
static strata_status create(const char *name, void *bytes, strata_csv **out_csv, strata_error *err) {
    STRATA_FREED void *taken = bytes;
    strata_csv *csv = calloc(1, sizeof *csv + strlen(name) + 1);
    if (!csv) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", name);
    csv->name = strcpy((char *)(csv + 1), name);
    csv->bytes = strata_released(&taken);
    *out_csv = csv;
    return STRATA_OK;
}

/* Parses the bytes, which a NUL follows, and owns them from then on. columns: the header, or NULL if the first record is
 * the header. check_names: two columns of the same name are an error. */
static strata_status parse_any(const char *name, unsigned char *bytes, size_t n_bytes, const strata_csv_dialect *dialect,
                               const char *const *columns, int n_columns, bool check_names, strata_csv **out_csv,
                               strata_error *err) {
    static const strata_csv_dialect usual = {0};
    STRATA_OWNED(strata_csv) *csv = NULL;
    STRATA_TRY(create(name, bytes, &csv, err));
    STRATA_TRY(strata_csv_set_dialect(csv, dialect ? dialect : &usual, err));
    strata_csv_dialect *d = &csv->dialect;
    if (!d->separator) d->separator = ',';
    if (!d->quote) d->quote = '"';
    if (!d->header || columns) d->header = columns ? STRATA_CSV_HEADER_NO : STRATA_CSV_HEADER_YES;
    const size_t byte_order_mark = n_bytes >= 3 && !memcmp(bytes, "\xEF\xBB\xBF", 3) ? 3 : 0;
    parser p = {.csv = csv,
                .separator = d->separator,
                .quote = d->quote == STRATA_CSV_NONE ? 0 : d->quote,
                .at = csv->bytes + byte_order_mark,
                .end = csv->bytes + n_bytes,
                .line = 1,
                .line_start = csv->bytes + byte_order_mark,
                .err = err};
    if (columns) STRATA_TRY(add_header(&p, columns, n_columns));
    while (p.at < p.end) {
        if (skip_line_end(&p)) continue;
        if (!csv->n_records && d->header == STRATA_CSV_HEADER_NO) STRATA_TRY(number_columns(&p));
        STRATA_TRY(parse_record(&p));
    }
    STRATA_TRY(check_header(csv, check_names, err));
    *out_csv = strata_released(&csv);
    return STRATA_OK;
}

strata_status strata_csv_parse_first(const char *name, const void *bytes, size_t n_bytes, const strata_csv_dialect *dialect,
                                     strata_csv **out_csv, strata_error *err) {
    unsigned char *copy = NULL;
    STRATA_TRY(STRATA_NEW(copy, n_bytes + 1, err, "%s: no host memory", name));
    memcpy(copy, bytes, n_bytes);
    return parse_any(name, copy, n_bytes, dialect, NULL, 0, false, out_csv, err);
}

strata_status strata_csv_read(const char *path, const strata_csv_dialect *dialect, strata_csv **out_csv, strata_error *err) {
    unsigned char *bytes;
    size_t n_bytes;
    STRATA_TRY(strata_stream_read_file(path, STRATA_BYTES_LIMIT(36), &bytes, &n_bytes, err));
    return parse_any(path, bytes, n_bytes, dialect, NULL, 0, true, out_csv, err);
}

strata_status strata_csv_parse_rows(const char *name, const void *bytes, size_t n_bytes, const strata_csv_dialect *dialect,
                                    const char *const *columns, int n_columns, strata_csv **out_csv, strata_error *err) {
    unsigned char *copy = NULL;
    size_t n = 0;
    STRATA_TRY(strata_stream_expand(name, bytes, n_bytes, STRATA_BYTES_LIMIT(36), &copy, &n, err));
    return parse_any(name, copy, n, dialect, columns, n_columns, true, out_csv, err);
}

strata_status strata_csv_parse(const char *name, const void *bytes, size_t n_bytes, const strata_csv_dialect *dialect,
                               strata_csv **out_csv, strata_error *err) {
    return strata_csv_parse_rows(name, bytes, n_bytes, dialect, NULL, 0, out_csv, err);
}

static strata_status take_row(parser *p, int n_columns) {
    strata_csv *csv = p->csv;
    for (int i = 0; i < n_columns; i++, p->at += strlen(p->at) + 1) {
        if (!strata_utf8_valid(p->at))
            return strata_fail(p->err, STRATA_DATA, "%s: column \"%.100s\" has in row %lld bytes that are not valid UTF-8",
                               csv->name, csv->n_records ? csv->cells[i] : "?", (long long)csv->n_records);
        STRATA_TRY(add_cell(p, p->at));
    }
    return add_record(p, csv->n_records, n_columns);
}

strata_status strata_csv_take_cells(const char *name, char *cells, size_t n_bytes, int n_columns, strata_csv **out_csv,
                                    strata_error *err) {
    STRATA_OWNED(strata_csv) *csv = NULL;
    STRATA_TRY(create(name, cells, &csv, err));
    parser p = {.csv = csv, .at = cells, .end = cells + n_bytes, .err = err};
    if (n_columns > MOST_COLUMNS)
        return strata_fail(err, STRATA_DATA, "%s: has %d columns; at most %d are possible", name, n_columns, MOST_COLUMNS);
    while (p.at < p.end) STRATA_TRY(take_row(&p, n_columns));
    STRATA_TRY(check_header(csv, true, err));
    *out_csv = strata_released(&csv);
    return STRATA_OK;
}

void strata_csv_destroy(strata_csv *csv) {
    if (!csv) return;
    free(csv->bytes);
    free(csv->cells);
    free(csv->names);
    free(csv->na);
    free(csv->lines);
    free(csv);
}

/* ---- the cells ---- */

int64_t strata_csv_n_rows(const strata_csv *csv) {
    return csv->n_records - 1;
}
int strata_csv_n_columns(const strata_csv *csv) {
    return csv->n_columns;
}
const char *strata_csv_column(const strata_csv *csv, int column) {
    return csv->cells[column];
}
const char *strata_csv_name(const strata_csv *csv) {
    return csv->name;
}
const char *strata_csv_cell(const strata_csv *csv, int64_t row, int column) {
    return csv->cells[(row + 1) * csv->n_columns + column];
}
int64_t strata_csv_line(const strata_csv *csv, int64_t row) {
    return csv->lines[row + 1];
}

strata_status strata_csv_find(const strata_csv *csv, const char *column, int *out_column, strata_error *err) {
    for (int i = 0; i < csv->n_columns; i++)
        if (!strcmp(csv->cells[i], column)) {
            *out_column = i;
            return STRATA_OK;
        }
    const char *nearest = strata_nearest_name(column, (const char *const *)csv->cells, (size_t)csv->n_columns);
    if (nearest)
        return strata_fail(err, STRATA_DATA, "%s: has no column \"%s\"; did you mean \"%s\"?", csv->name, column, nearest);
    char names[512] = "";
    size_t n = 0;
    for (int i = 0; i < csv->n_columns && n < sizeof names - 40; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%.32s", i ? ", " : "", csv->cells[i]);
    return strata_fail(err, STRATA_DATA, "%s: has no column \"%s\"; it has: %.*s", csv->name, column,
                       (int)(n < sizeof names ? n : sizeof names - 1), names);
}
