/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a user's table: finding which character separates the cells, and whether the first line is a header. */
#include <stdio.h>

#include "core/data/format/csv.h"
#include "core/data/format/parquet.h"
#include "core/data/format/stream.h"
#include "core/data/prepare/preprocessing.h"

static const size_t MOST_BYTES = STRATA_BYTES_LIMIT(36);

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), length = strlen(end);
    return n >= length && !strcmp(text + n - length, end);
}

/* ---- files that are not tables ---- */

static strata_status check_text(const char *name, const unsigned char *bytes, size_t n, strata_error *err) {
    static const struct {
        const char *head;
        size_t n;
        const char *what;
    } formats[] = {{"\xD0\xCF\x11\xE0", 4, "an old spreadsheet or document; save it as CSV"},
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

/* ---- zip archives ---- */

static bool is_junk(const char *name) {
    return !strncmp(name, "__MACOSX/", 9) || ends_with(name, "/");
}

static bool is_table_name(const char *name) {
    static const char *const ends[] = {".csv", ".tsv", ".txt", ".data", ".tab"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i])) return true;
    return false;
}

static strata_status no_single_table(const strata_zip *zip, int n_tables, strata_error *err) {
    char names[256] = "";
    size_t used = 0;
    for (int i = 0; i < zip->n_members && used < sizeof names - 48; i++)
        if (!is_junk(zip->members[i].name))
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.40s", used ? ", " : "", zip->members[i].name);
    if (strata_zip_find(zip, "[Content_Types].xml"))
        return strata_fail(err, STRATA_DATA, "%s: is a spreadsheet or document (a zip archive of XML); save the table as CSV",
                           zip->name);
    return strata_fail(err, STRATA_DATA, "%s: is a zip archive of %s tables (%s); unpack it, and give the table's file",
                       zip->name, n_tables ? "several" : "no", names);
}

/* Replaces the bytes of a zip archive that has one table by the bytes of this table. */
static strata_status unzip(const char *name, unsigned char **bytes, size_t *n_bytes, strata_error *err) {
    STRATA_FINISHED(strata_zip) zip = {0};
    const strata_zip_member *table = NULL;
    const unsigned char *content = NULL;
    STRATA_FREED unsigned char *expanded = NULL;
    unsigned char *copy = NULL;
    int n_tables = 0, n_files = 0, last = 0;
    if (*n_bytes < 4 || memcmp(*bytes, "PK\3\4", 4)) return STRATA_OK;
    STRATA_TRY(strata_zip_open(name, *bytes, *n_bytes, &zip, err));
    for (int i = 0; i < zip.n_members; i++) {
        if (is_junk(zip.members[i].name)) continue;
        n_files++;
        last = i;
        if (is_table_name(zip.members[i].name)) n_tables++, table = &zip.members[i];
    }
    if (n_files == 1 && !n_tables && !ends_with(zip.members[last].name, ".npy")) n_tables = 1, table = &zip.members[last];
    if (n_tables != 1) return no_single_table(&zip, n_tables, err);
    STRATA_TRY(strata_zip_unpack(&zip, table, &content, &expanded));
    STRATA_TRY(STRATA_NEW(copy, table->size + 1, err, "%s: no host memory", name));
    memcpy(copy, content, table->size);
    *n_bytes = table->size;
    free(*bytes);
    *bytes = copy;
    return STRATA_OK;
}

/* ---- lines ---- */

static const char candidates[] = {',', ';', '\t', '|'};
enum { N_CANDIDATES = sizeof candidates, LINES = 20 };

/* Returns the end of the line that begins at `at`. *out_n: how often the line contains the separator, not counting quoted
 * cells. */
static const char *scan_line(const char *at, const char *end, char separator, char quote, int *out_n) {
    bool quoted = false;
    for (*out_n = 0; at < end && (quoted || *at != '\n'); at++) {
        if (quote && *at == quote) quoted = !quoted;
        *out_n += !quoted && *at == separator;
    }
    return at;
}

static bool is_number(const char *cell) {
    double value;
    return strata_cell_number(cell, strata_decimal_point, &value) || strata_cell_number(cell, strata_decimal_comma, &value);
}

enum { LONGEST_NUMBER = 63 };

/* Copies the text of a cell that may be a number. Returns false if it is too long for one. */
static bool copy_cell(const char *at, size_t n, char out[LONGEST_NUMBER + 1]) {
    if (n > LONGEST_NUMBER) return false;
    memcpy(out, at, n);
    out[n] = 0;
    return true;
}

/* Counts the cells of a line, and those that contain another candidate for the separator although they are no number. */
static void count_cells(const char *at, const char *end, char separator, char quote, int64_t *n_cells, int64_t *n_doubtful) {
    while (at <= end) {
        const char *stop = at;
        char cell[LONGEST_NUMBER + 1];
        bool quoted = false, any_quote = false, doubtful = false;
        for (; stop < end && (quoted || *stop != separator); stop++) {
            if (quote && *stop == quote) quoted = !quoted, any_quote = true;
            doubtful |= !quoted && *stop != '\0' && memchr(candidates, *stop, N_CANDIDATES);
        }
        ++*n_cells;
        *n_doubtful += doubtful && !any_quote && !(copy_cell(at, (size_t)(stop - at), cell) && is_number(cell));
        at = stop + 1;
    }
}

/* How well a separator divides the first lines. */
typedef struct division {
    /* How many separators the first line has, how many lines there are, and how many have as many separators as the first. */
    int n_separators, n_lines, n_equal;
    int64_t n_cells, n_doubtful;
} division;

static division divide(const char *text, size_t n_bytes, char separator, char quote) {
    division d = {.n_separators = -1};
    const char *at = text, *end = text + n_bytes;
    for (int line = 0, n = 0; line < LINES && at < end; line++) {
        const char *stop = scan_line(at, end, separator, quote, &n);
        const bool blank = stop == at || (stop == at + 1 && *at == '\r');
        if (!blank) {
            if (d.n_separators < 0) d.n_separators = n;
            d.n_lines++;
            d.n_equal += n == d.n_separators;
            count_cells(at, stop[-1] == '\r' ? stop - 1 : stop, separator, quote, &d.n_cells, &d.n_doubtful);
        }
        at = stop + 1;
    }
    return d;
}

/* Whether `a` is the better division: all lines are equal, or more of them than in b; fewer cells contain another candidate;
 * there are more cells. */
static bool is_better(const division *a, const division *b) {
    const int64_t equal = (int64_t)a->n_equal * b->n_lines - (int64_t)b->n_equal * a->n_lines;
    const int64_t doubtful = a->n_doubtful * b->n_cells - b->n_doubtful * a->n_cells;
    return equal ? equal > 0 : doubtful ? doubtful < 0 : a->n_separators > b->n_separators;
}

/* Whether each of the first lines is one number as the model's table was written, so that "3,5" is not two cells. */
static bool are_single_numbers(const char *text, size_t n_bytes, const strata_preprocessing *known) {
    const char *at = text, *end = text + n_bytes;
    const strata_number_format format = {known->dialect.decimal == ',' ? ',' : '.', known->dialect.thousands};
    char cell[LONGEST_NUMBER + 1];
    double value;
    int n = 0;
    for (int line = 0, unused = 0; line < LINES && at < end; line++) {
        const char *stop = scan_line(at, end, 0, 0, &unused);
        const size_t length = (size_t)(stop - at) - (stop > at && stop[-1] == '\r');
        if (!copy_cell(at, length, cell)) return false;
        if (length && !strata_cell_number(cell, format, &value)) return false;
        n += length > 0;
        at = stop + 1;
    }
    return n > 0;
}

static bool has_name(const strata_csv *csv, const char *name) {
    for (int i = 0; i < strata_csv_n_columns(csv); i++)
        if (!strcmp(strata_csv_column(csv, i), name)) return true;
    return false;
}

/* Whether the cell of the label in the first line, which has no names, is blank or a class of the model. A number can be
 * any. */
static bool has_label_of(const strata_csv *first, const strata_preprocessing *known) {
    int column = 0;
    while (column < known->n_header && strcmp(known->header[column], known->labels[0].name)) column++;
    if (column >= strata_csv_n_columns(first) || strata_preprocessing_n_classes(known) == 0) return true;
    const char *cell = strata_csv_column(first, column);
    return strata_cell_is_blank(cell) || strata_column_word(&known->labels[0], cell, NULL) >= 0;
}

/* Whether a separator that divides the first line into n cells makes a table for the model: n is the number of the model's
 * columns, or that of its whole table, if the first line has names, or if it has a label and the separator is that of the
 * table. */
static bool makes_known_table(const char *text, size_t n_bytes, char separator, char quote, int n,
                              const strata_preprocessing *known) {
    const strata_csv_dialect dialect = {
        .separator = separator, .quote = quote ? quote : STRATA_CSV_NONE, .header = STRATA_CSV_HEADER_YES};
    STRATA_OWNED(strata_csv) *first = NULL;
    int unused;
    if (n == known->n_columns) return true;
    if (n != known->n_header || !known->n_columns) return false;
    const char *end = scan_line(text, text + n_bytes, separator, quote, &unused);
    if (strata_csv_parse_first("", text, (size_t)(end - text), &dialect, &first, NULL)) return false;
    const bool same = !known->dialect.separator || separator == known->dialect.separator;
    return has_name(first, known->columns[0].name) || (same && has_label_of(first, known));
}

static const char *name_of(char separator) {
    return separator == ',' ? "','" : separator == ';' ? "';'" : separator == '|' ? "'|'" : "tab";
}

/* Finds the separator that divides the first lines best. If `known` is given, a separator that makes a table for it comes
 * first. If none occurs in the first line, it is that of `known`, or ','; for a single column it is one that numbers do not
 * contain. Fails: DATA if two divide the lines equally well, and neither is that of `known`. */
static strata_status find_separator(const char *name, const char *text, size_t n_bytes, char quote,
                                    const strata_preprocessing *known, char *out, strata_error *err) {
    const char own = known ? known->dialect.separator : 0;
    char best = own ? own : ',', equal = 0;
    division most = {.n_separators = 0, .n_lines = 1, .n_equal = 0, .n_cells = 1};
    bool fits = known && known->n_columns == 1;
    const char single = best == ',' ? ';' : best;
    *out = single;
    if (fits && are_single_numbers(text, n_bytes, known)) return STRATA_OK;
    if (fits) best = single;
    for (size_t c = 0; c < N_CANDIDATES; c++) {
        const char candidate = candidates[c];
        const division d = divide(text, n_bytes, candidate, quote);
        if (d.n_separators < 1) continue;
        const bool makes = known && makes_known_table(text, n_bytes, candidate, quote, d.n_separators + 1, known);
        if (fits && !makes) continue;
        if ((makes && !fits) || is_better(&d, &most))
            most = d, best = candidate, equal = 0;
        else if (!is_better(&most, &d) && candidate == own)
            best = candidate, equal = 0;
        else if (!is_better(&most, &d) && best != own)
            equal = candidate;
        fits |= makes;
    }
    *out = best;
    if (!equal) return STRATA_OK;
    return strata_fail(err, STRATA_DATA,
                       "%s: %s and %s divide its lines equally well; name the character that separates its cells (--separator)",
                       name, name_of(best), name_of(equal));
}

/* If no line ends with a line feed, each CR becomes one: old Macs ended lines with CR, and some spreadsheets still do. Line
 * ends in quoted cells are characters of the cell. */
static void convert_line_ends(unsigned char *text, size_t n_bytes, char quote) {
    bool quoted = false;
    if (!n_bytes || !memchr(text, '\r', n_bytes)) return;
    for (size_t i = 0; i < n_bytes; i++) {
        quoted ^= quote && text[i] == (unsigned char)quote;
        if (!quoted && text[i] == '\n') return;
    }
    quoted = false;
    for (size_t i = 0; i < n_bytes; i++) {
        quoted ^= quote && text[i] == (unsigned char)quote;
        if (!quoted && text[i] == '\r') text[i] = '\n';
    }
}

/* ---- the first line ---- */

static bool is_date(const char *cell) {
    double days;
    bool has_time;
    for (int f = 0; f < STRATA_DATE_FORMATS; f++)
        if (strata_cell_date(cell, f, &days, &has_time)) return true;
    return false;
}

typedef enum cell_type { CELL_MISSING, CELL_NUMBER, CELL_DATE, CELL_WORD } cell_type;

static cell_type type_of(const strata_csv *csv, const char *cell) {
    if (strata_csv_marks_missing(csv, cell)) return CELL_MISSING;
    return is_number(cell) ? CELL_NUMBER : is_date(cell) ? CELL_DATE : CELL_WORD;
}

/* A column of the first lines, from which it is found whether its first cell is a name. */
typedef struct column_below {
    cell_type first;
    /* The type of all cells below that are not missing; CELL_WORD if they have several types, CELL_MISSING if there are
     * none. */
    cell_type type;
    /* All numbers below have a decimal point or comma. */
    bool all_marks;
    /* A cell below has the same text as the first one. */
    bool contains_first;
    /* The cells below repeat: there are at least four, and at most half of them differ; at least eight, and a quarter. */
    bool repeats, repeats_often;
} column_below;

static column_below examine_below(const strata_csv *csv, int index) {
    enum { MOST = 32 };
    const char *different[MOST];
    const char *name = strata_csv_column(csv, index);
    column_below c = {.first = type_of(csv, name), .type = CELL_MISSING, .all_marks = true};
    int64_t n = 0;
    int n_different = 0;
    for (int64_t row = 0; row < strata_csv_n_rows(csv); row++) {
        const char *cell = strata_csv_cell(csv, row, index);
        const cell_type type = type_of(csv, cell);
        int i = 0;
        c.contains_first |= !strcmp(cell, name);
        if (type == CELL_MISSING) continue;
        n++;
        c.type = c.type == CELL_MISSING || c.type == type ? type : CELL_WORD;
        c.all_marks &= strata_cell_has_mark(cell);
        while (i < n_different && strcmp(cell, different[i])) i++;
        if (i == n_different && i < MOST) different[n_different++] = cell;
    }
    c.repeats = n >= 4 && n_different * 2 <= n && n_different < MOST;
    c.repeats_often = c.repeats && n >= 8 && n_different * 4 <= n;
    return c;
}

/* Whether the numbers of a line are whole and each is greater by 1 than the one before, as pandas names columns. row -1: the
 * first line. */
static bool counts_columns(const strata_csv *csv, int64_t row) {
    double before = 0, value = 0;
    int n = 0;
    for (int i = 0; i < strata_csv_n_columns(csv); i++) {
        const char *cell = row < 0 ? strata_csv_column(csv, i) : strata_csv_cell(csv, row, i);
        if (type_of(csv, cell) != CELL_NUMBER) continue;
        if (strata_cell_has_mark(cell) || !strata_cell_number(cell, strata_decimal_point, &value)) return false;
        if (n++ && value != before + 1) return false;
        before = value;
    }
    return n > 0;
}

/* What the columns show about the first line. */
typedef struct header_signs {
    /* Columns of which the first cell, or all cells below, are missing. */
    int n_silent;
    /* Columns whose first cell has another type than all cells below; numbers above numbers; dates above dates. */
    int n_other, n_numbers, n_dates;
    /* The first line has a word of missing values, which is hardly a name. */
    bool has_marker;
    /* Columns of words that repeat: the first cell is one of them; it is none of them. */
    int n_known_words, n_new_words;
    /* In one of the latter, the cells repeat often: an example would hardly have a word that no other has. */
    bool has_new_word;
    /* Columns of numbers: whole above numbers with a decimal point; not among the cells below; the last column is one whose
     * numbers repeat, and the first cell is none of them. */
    int n_whole_above, n_new_numbers;
    bool new_label;
} header_signs;

static header_signs find_signs(const strata_csv *csv) {
    header_signs s = {0};
    const int n = strata_csv_n_columns(csv);
    for (int i = 0; i < n; i++) {
        const column_below c = examine_below(csv, i);
        s.has_marker |= c.first == CELL_MISSING && !strata_cell_is_blank(strata_csv_column(csv, i));
        if (c.first == CELL_MISSING || c.type == CELL_MISSING) {
            s.n_silent++;
            continue;
        }
        if (c.type != CELL_WORD && c.first != c.type) s.n_other++;
        if (c.type == CELL_DATE && c.first == CELL_DATE) s.n_dates++;
        if (c.type == CELL_WORD && c.repeats) s.n_known_words += c.contains_first, s.n_new_words += !c.contains_first;
        s.has_new_word |= c.type == CELL_WORD && c.repeats_often && !c.contains_first;
        if (c.type != CELL_NUMBER || c.first != CELL_NUMBER) continue;
        s.n_numbers++;
        s.n_new_numbers += !c.contains_first;
        s.n_whole_above += c.all_marks && !strata_cell_has_mark(strata_csv_column(csv, i));
        if (i == n - 1) s.new_label = c.repeats && !c.contains_first;
    }
    return s;
}

/* Whether the first line has the names of the columns. */
static bool has_names(const strata_csv *csv) {
    if (strata_csv_n_rows(csv) < 1) return true;
    const header_signs s = find_signs(csv);
    if (s.n_other || s.n_dates || s.has_marker) return s.n_other > 0;
    if (s.n_known_words) return !s.n_numbers && s.n_known_words < strata_csv_n_columns(csv) - s.n_silent;
    if (!s.n_numbers || s.has_new_word) return true;
    if (s.n_new_words && s.n_whole_above == s.n_numbers) return true;
    if (!counts_columns(csv, -1) || counts_columns(csv, 0)) return false;
    return s.n_new_words || s.n_whole_above || s.new_label || (s.n_numbers > 2 && s.n_new_numbers * 2 > s.n_numbers);
}

/* The column of the model of which the cell at this place of a line is a value: the cells are in the order of the model's
 * columns, or of its whole table, which may have columns that the model leaves out (NULL). */
static const strata_column *column_at(const strata_preprocessing *known, int n_cells, int index) {
    if (n_cells == known->n_columns) return &known->columns[index];
    for (int i = 0; i < known->n_columns; i++)
        if (!strcmp(known->columns[i].name, known->header[index])) return &known->columns[i];
    for (int i = 0; i < known->n_labels; i++)
        if (!strcmp(known->labels[i].name, known->header[index])) return &known->labels[i];
    return NULL;
}

/* Whether the cells of the first line are values of the model's columns. */
static bool has_values_of(const strata_csv *csv, const strata_preprocessing *known) {
    const int n = strata_csv_n_columns(csv);
    int n_certain = 0;
    if (n != known->n_columns && n != known->n_header) return false;
    for (int i = 0; i < n; i++) {
        const char *cell = strata_csv_column(csv, i);
        const strata_column *column = column_at(known, n, i);
        const cell_type type = type_of(csv, cell);
        if (type == CELL_MISSING || !column) continue;
        if (column->kind == STRATA_COLUMN_NUMBER && type != CELL_NUMBER) return false;
        if (column->kind == STRATA_COLUMN_DATE && type != CELL_DATE) return false;
        n_certain += column->kind == STRATA_COLUMN_NUMBER || column->kind == STRATA_COLUMN_DATE ||
                     (column->kind == STRATA_COLUMN_WORDS && strata_column_word(column, cell, NULL) >= 0);
    }
    return n_certain > 0;
}

/* Whether the first line is a header: it has the names of the model's columns, or no numbers. */
static bool begins_with_names(const strata_csv *csv, const strata_preprocessing *known) {
    int n_names = 0, n_words = 0;
    for (int i = 0; i < known->n_columns; i++) {
        const bool found = has_name(csv, known->columns[i].name);
        n_names += found;
        n_words += found && !is_number(known->columns[i].name);
    }
    if (n_names == known->n_columns || n_words) return true;
    if (has_values_of(csv, known)) return false;
    for (int i = 0; i < strata_csv_n_columns(csv); i++)
        if (is_number(strata_csv_column(csv, i))) return false;
    return (strata_csv_n_columns(csv) != known->n_header && strata_csv_n_columns(csv) != known->n_columns) ||
           strata_csv_n_rows(csv) > 0;
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
static strata_status parse_known_rows(const char *name, const void *bytes, size_t n_bytes, const strata_csv_dialect *dialect,
                                      int n, const strata_preprocessing *known, strata_csv **out_csv, strata_error *err) {
    if (n != known->n_columns && n == known->n_header)
        return strata_csv_parse_rows(name, bytes, n_bytes, dialect, (const char *const *)known->header, n, out_csv, err);
    if (n != known->n_columns) return wrong_width(name, n, known, err);
    STRATA_FREED const char **names = NULL;
    STRATA_TRY(STRATA_NEW(names, n, err, "%s: no host memory", name));
    for (int i = 0; i < n; i++) names[i] = known->columns[i].name;
    return strata_csv_parse_rows(name, bytes, n_bytes, dialect, names, n, out_csv, err);
}

/* ---- the whole table ---- */

/* Parses the first lines that are not empty. The first of them is the header of the returned table. */
static strata_status parse_first_lines(const char *name, const char *text, size_t n_bytes, const strata_csv_dialect *dialect,
                                       strata_csv **out_csv, strata_error *err) {
    enum { MOST_LINES = 200 };
    const char *at = text, *end = text + n_bytes;
    const char quote = dialect->quote == STRATA_CSV_NONE ? 0 : dialect->quote;
    strata_csv_dialect named = *dialect;
    int n, lines = 0;
    named.header = STRATA_CSV_HEADER_YES;
    while (at < end && lines < MOST_LINES) {
        const char *stop = scan_line(at, end, dialect->separator, quote, &n);
        lines += stop > at && *at != '\r';
        at = stop < end ? stop + 1 : end;
    }
    return strata_csv_parse_first(name, text, (size_t)(at - text), &named, out_csv, err);
}

/* The dialect that the user gave, with the words of missing values of the model's table unless there are others. */
static strata_csv_dialect dialect_of(const strata_csv_dialect *asked, const strata_preprocessing *known) {
    strata_csv_dialect d = asked ? *asked : (strata_csv_dialect){0};
    if (!d.na && known) d.na = known->dialect.na, d.n_na = known->dialect.n_na;
    return d;
}

/* Takes the bytes, which a NUL follows. */
static strata_status parse_text(const char *name, unsigned char *taken, size_t n_bytes, const strata_csv_dialect *asked,
                                const strata_preprocessing *known, strata_csv **out_csv, strata_error *err) {
    STRATA_FREED unsigned char *bytes = taken;
    STRATA_OWNED(strata_csv) *head = NULL;
    strata_csv_dialect d = dialect_of(asked, known);
    if (!d.quote) d.quote = '"';
    STRATA_TRY(strata_csv_check_dialect(&d, err));
    STRATA_TRY(unzip(name, &bytes, &n_bytes, err));
    STRATA_TRY(check_text(name, bytes, n_bytes, err));
    const size_t byte_order_mark = n_bytes >= 3 && !memcmp(bytes, "\xEF\xBB\xBF", 3) ? 3 : 0;
    const char *text = (const char *)bytes + byte_order_mark;
    const size_t n_text = n_bytes - byte_order_mark;
    const char quote = d.quote == STRATA_CSV_NONE ? 0 : d.quote;
    convert_line_ends(bytes, n_bytes, quote);
    if (!d.separator) STRATA_TRY(find_separator(name, text, n_text, quote, known, &d.separator, err));
    STRATA_TRY(parse_first_lines(name, text, n_text, &d, &head, err));
    const int n = strata_csv_n_columns(head);
    if (!d.header)
        d.header = (known ? begins_with_names(head, known) : has_names(head)) ? STRATA_CSV_HEADER_YES : STRATA_CSV_HEADER_NO;
    return d.header == STRATA_CSV_HEADER_NO && known ? parse_known_rows(name, bytes, n_bytes, &d, n, known, out_csv, err)
                                                     : strata_csv_parse(name, bytes, n_bytes, &d, out_csv, err);
}

strata_status strata_csv_parse_table(const char *name, const void *bytes, size_t n_bytes, const strata_csv_dialect *dialect,
                                     const strata_preprocessing *known, strata_csv **out_csv, strata_error *err) {
    unsigned char *text = NULL;
    size_t n = 0;
    STRATA_TRY(strata_stream_expand(name, bytes, n_bytes, MOST_BYTES, &text, &n, err));
    return parse_text(name, text, n, dialect, known, out_csv, err);
}

static strata_status read_input(unsigned char **out_bytes, size_t *out_n, strata_error *err) {
    STRATA_FINISHED(strata_text) text = {0};
    char part[1 << 16];
    size_t n;
    while ((n = fread(part, 1, sizeof part, stdin)) > 0) strata_text_add_bytes(&text, part, n);
    if (ferror(stdin)) return strata_fail(err, STRATA_UNAVAILABLE, "standard input: cannot be read");
    return strata_text_take(&text, (char **)out_bytes, out_n, err);
}

strata_status strata_csv_read_table(const char *path, const strata_csv_dialect *dialect, const strata_preprocessing *known,
                                    strata_csv **out_csv, strata_error *err) {
    unsigned char *bytes = NULL;
    size_t n = 0;
    if (!strcmp(path, "-")) {
        STRATA_TRY(read_input(&bytes, &n, err));
        STRATA_FREED unsigned char *input = bytes;
        return strata_csv_parse_table("standard input", input, n, dialect, known, out_csv, err);
    }
    if (strata_is_parquet(path)) {
        STRATA_OWNED(strata_csv) *csv = NULL;
        const strata_csv_dialect d = dialect_of(dialect, known);
        STRATA_TRY(strata_csv_read_parquet(path, MOST_BYTES, &csv, err));
        STRATA_TRY(strata_csv_set_dialect(csv, &d, err));
        *out_csv = strata_released(&csv);
        return STRATA_OK;
    }
    STRATA_TRY(strata_stream_read_file(path, MOST_BYTES, &bytes, &n, err));
    return parse_text(path, bytes, n, dialect, known, out_csv, err);
}
