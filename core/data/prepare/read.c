/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a user's table: finding which character separates the cells, and whether the first line is a header. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/data/format/csv.h"
#include "core/data/format/parquet.h"
#include "core/data/format/picture.h"
#include "core/data/format/stream.h"
#include "core/data/prepare/cell.h"
#include "core/data/prepare/preprocessing.h"

static const size_t MOST_BYTES = STRATA_BYTES_LIMIT(36);

/* ---- files that are not tables ---- */

static strata_status check_text(const char *name, const unsigned char *bytes, size_t n, strata_error *err) {
    static const struct {
        const char *head;
        size_t n;
        const char *what;
    } formats[] = {
        {"PK\3\4", 4,
         "a zip archive (a spreadsheet or .npz?); save a spreadsheet as CSV, or rename an archive of arrays to .npz"},
        {"\xD0\xCF\x11\xE0", 4, "an old spreadsheet or document; save it as CSV"},
        {STRATA_PARQUET_MAGIC, 4,
         "Parquet, which cannot be read from standard input or compressed; give the name of the uncompressed file"},
        {"%PDF", 4, "PDF; save the table as CSV"},
        {"\x93NUMPY", 6, "a NumPy array; rename it to .npy, and give its labels (--labels y.npy)"},
        {"SQLite", 6, "a database; save the table as CSV"},
        {"\x89HDF", 4, "HDF5; save the table as CSV or the arrays as .npz"}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (n >= formats[i].n && !memcmp(bytes, formats[i].head, formats[i].n))
            return strata_fail(err, STRATA_DATA, "%s: is %s", name, formats[i].what);
    if (strata_picture_matches(bytes, n))
        return strata_fail(err, STRATA_DATA,
                           "%s: is a picture; give the folder that contains a folder of pictures for each class", name);
    const unsigned char *nul = n ? memchr(bytes, 0, n < 4096 ? n : 4096) : NULL;
    if (nul)
        return strata_fail(err, STRATA_DATA,
                           "%s: is not text: its byte %zu is a NUL. Save the table as CSV in UTF-8 (is it UTF-16? "
                           "iconv -f UTF-16 -t UTF-8)",
                           name, (size_t)(nul - bytes));
    return STRATA_OK;
}

/* ---- lines ---- */

/* Returns the end of the line that begins at `at`. *out_n: how often the line contains the separator, not counting quoted
 * cells. */
static const char *scan_line(const char *at, const char *end, char separator, int *out_n) {
    bool quoted = false;
    for (*out_n = 0; at < end && (quoted || *at != '\n'); at++) {
        if (*at == '"') quoted = !quoted;
        *out_n += !quoted && *at == separator;
    }
    return at;
}

/* Finds the separator with which all of the first lines have the same number of cells; if several do, that with the most cells.
 * If none does, returns the first that occurs, so that the reader reports the first line with another number of cells. 0: none
 * occurs. */
static char find_separator(const char *text, size_t n_bytes) {
    static const char candidates[] = {',', ';', '\t', '|'};
    enum { LINES = 20 };
    char best = 0, first = 0;
    int most = 0;
    for (size_t c = 0; c < sizeof candidates; c++) {
        const char *at = text, *end = text + n_bytes;
        int n = 0, cells = -1;
        bool same = true;
        for (int line = 0; line < LINES && at < end; line++) {
            const char *stop = scan_line(at, end, candidates[c], &n);
            const bool blank = stop == at || (stop == at + 1 && *at == '\r');
            if (!blank && cells < 0) cells = n;
            if (!blank) same &= n == cells;
            at = stop + 1;
        }
        if (cells > 0 && !first) first = candidates[c];
        if (same && cells > most) most = cells, best = candidates[c];
    }
    return best ? best : first;
}

/* If the text has no line feed, each CR becomes one: old Macs ended lines with CR, and some spreadsheets still do. */
static void convert_line_ends(unsigned char *text, size_t n_bytes) {
    if (n_bytes && memchr(text, '\n', n_bytes)) return;
    for (size_t i = 0; i < n_bytes; i++)
        if (text[i] == '\r') text[i] = '\n';
}

/* ---- the first line ---- */

static bool is_number(const char *cell) {
    double value;
    return !strata_cell_is_missing(cell) && (strata_cell_number(cell, false, &value) || strata_cell_number(cell, true, &value));
}

/* Whether the first line is a row and not a header: some columns have numbers in both of the first two lines, and no column has
 * a number in the second line only. */
static bool begins_with_row(const strata_csv *csv) {
    bool numbers = false;
    if (strata_csv_n_rows(csv) < 1) return false;
    for (int i = 0; i < strata_csv_n_columns(csv); i++) {
        const bool above = is_number(strata_csv_column(csv, i)), below = is_number(strata_csv_cell(csv, 0, i));
        if (!above && below) return false;
        numbers |= above && below;
    }
    return numbers;
}

static bool has_column(const strata_preprocessing *known, const char *name) {
    for (int i = 0; i < known->n_columns; i++)
        if (!strcmp(known->columns[i].name, name)) return true;
    return false;
}

/* Whether the first line is a header: it has the name of a column of the model, or no numbers. */
static bool begins_with_names(const strata_csv *csv, const strata_preprocessing *known) {
    for (int i = 0; i < strata_csv_n_columns(csv); i++)
        if (has_column(known, strata_csv_column(csv, i))) return true;
    if (strata_csv_n_columns(csv) != known->n_header && strata_csv_n_columns(csv) != known->n_columns) {
        for (int i = 0; i < strata_csv_n_columns(csv); i++)
            if (is_number(strata_csv_column(csv, i))) return false;
        return true;
    }
    for (int i = 0; i < strata_csv_n_columns(csv); i++)
        if (is_number(strata_csv_column(csv, i))) return false;
    return strata_csv_n_rows(csv) > 0;
}

static strata_status wrong_width(const char *name, int n, const strata_preprocessing *known, strata_error *err) {
    char names[256] = "";
    size_t used = 0;
    for (int i = 0; i < known->n_columns && used < sizeof names - 40; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%.32s", i ? ", " : "", known->columns[i].name);
    return strata_fail(err, STRATA_DATA, "%s: has no header, and %d column%s; the model takes %d: %s", name, n,
                       n == 1 ? "" : "s", known->n_columns,
                       known->n_columns > 8 ? "give a header, or the same columns" : names);
}

/* Parses a table without a header. Its columns must be those of the model or those of the table that it was trained on, in the
 * same order. */
static strata_status parse_known_rows(const char *name, const void *bytes, size_t n_bytes, char separator, int n,
                                      const strata_preprocessing *known, strata_csv **out_csv, strata_error *err) {
    if (n != known->n_columns && n == known->n_header)
        return strata_csv_parse_rows(name, bytes, n_bytes, separator, (const char *const *)known->header, n, out_csv, err);
    if (n != known->n_columns) return wrong_width(name, n, known, err);
    const char **names = calloc((size_t)n, sizeof *names);
    if (!names) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", name);
    for (int i = 0; i < n; i++) names[i] = known->columns[i].name;
    strata_status status = strata_csv_parse_rows(name, bytes, n_bytes, separator, names, n, out_csv, err);
    free(names);
    return status;
}

static strata_status parse_numbered_rows(const char *name, const void *bytes, size_t n_bytes, char separator, int n,
                                         strata_csv **out_csv, strata_error *err) {
    char(*texts)[24] = calloc((size_t)n, sizeof *texts);
    const char **names = calloc((size_t)n, sizeof *names);
    strata_status status = STRATA_OK;
    if (!texts || !names) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", name);
    for (int i = 0; i < n && !status; i++) {
        snprintf(texts[i], sizeof texts[i], "column %d", i + 1);
        names[i] = texts[i];
    }
    if (!status) status = strata_csv_parse_rows(name, bytes, n_bytes, separator, names, n, out_csv, err);
    free(names);
    free(texts);
    return status;
}

/* ---- the whole table ---- */

/* Parses the first two lines that are not empty. The first of them is the header of the returned table. */
static strata_status parse_first_lines(const char *name, const char *text, size_t n_bytes, char separator, strata_csv **out_csv,
                                       strata_error *err) {
    const char *at = text, *end = text + n_bytes;
    int n, lines = 0;
    while (at < end && lines < 2) {
        const char *stop = scan_line(at, end, separator, &n);
        lines += stop > at && *at != '\r';
        at = stop < end ? stop + 1 : end;
    }
    return strata_csv_parse_first(name, text, (size_t)(at - text), separator, out_csv, err);
}

static strata_status parse_text(const char *name, unsigned char *bytes, size_t n_bytes, char separator,
                                const strata_preprocessing *known, strata_csv **out_csv, strata_error *err) {
    strata_csv *head = NULL;
    const size_t byte_order_mark = n_bytes >= 3 && !memcmp(bytes, "\xEF\xBB\xBF", 3) ? 3 : 0;
    const char *text = (const char *)bytes + byte_order_mark;
    STRATA_TRY(check_text(name, bytes, n_bytes, err));
    convert_line_ends(bytes, n_bytes);
    if (!separator) separator = find_separator(text, n_bytes - byte_order_mark);
    STRATA_TRY(parse_first_lines(name, text, n_bytes - byte_order_mark, separator, &head, err));
    const int n = strata_csv_n_columns(head);
    const bool names = known ? begins_with_names(head, known) : !begins_with_row(head);
    strata_csv_destroy(head);
    if (names) return strata_csv_parse(name, bytes, n_bytes, separator, out_csv, err);
    return known ? parse_known_rows(name, bytes, n_bytes, separator, n, known, out_csv, err)
                 : parse_numbered_rows(name, bytes, n_bytes, separator, n, out_csv, err);
}

strata_status strata_csv_parse_table(const char *name, const void *bytes, size_t n_bytes, char separator,
                                     const strata_preprocessing *known, strata_csv **out_csv, strata_error *err) {
    strata_stream *stream;
    unsigned char *text = NULL;
    size_t n = 0;
    STRATA_TRY(strata_stream_create(name, bytes, n_bytes, &stream, err));
    strata_status status = strata_stream_read_all(stream, MOST_BYTES, &text, &n, err);
    strata_stream_destroy(stream);
    if (!status) status = parse_text(name, text, n, separator, known, out_csv, err);
    free(text);
    return status;
}

static strata_status read_input(unsigned char **out_bytes, size_t *out_n, strata_error *err) {
    strata_text text = {0};
    char part[1 << 16];
    size_t n;
    while ((n = fread(part, 1, sizeof part, stdin)) > 0) strata_text_add_bytes(&text, part, n);
    if (ferror(stdin)) {
        strata_text_finish(&text);
        return strata_fail(err, STRATA_UNAVAILABLE, "standard input: cannot be read");
    }
    return strata_text_take(&text, (char **)out_bytes, out_n, err);
}

strata_status strata_csv_read_table(const char *path, char separator, const strata_preprocessing *known, strata_csv **out_csv,
                                    strata_error *err) {
    unsigned char *bytes = NULL;
    size_t n = 0;
    const bool input = !strcmp(path, "-");
    if (!input && strata_is_parquet(path)) return strata_csv_read_parquet(path, MOST_BYTES, out_csv, err);
    STRATA_TRY(input ? read_input(&bytes, &n, err) : strata_stream_read_file(path, MOST_BYTES, &bytes, &n, err));
    strata_status status = input ? strata_csv_parse_table("standard input", bytes, n, separator, known, out_csv, err)
                                 : parse_text(path, bytes, n, separator, known, out_csv, err);
    free(bytes);
    return status;
}
