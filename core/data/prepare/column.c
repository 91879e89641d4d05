/* SPDX-License-Identifier: Apache-2.0
 *
 * One column of a table: statistics of its cells, its words, and its features. */
#include <math.h>
#include <stdio.h>

#include "core/data/format/csv.h"
#include "core/data/prepare/preprocessing.h"
#include "core/data/text/tokenizer.h"

const char *const strata_column_kinds[] = {"number", "words", "date", "text"};

void strata_column_finish(strata_column *column) {
    free(column->name);
    free(column->words);
    free(column->rare);
    *column = (strata_column){0};
}

/* ---- counting kinds of cells ---- */

/* Adds a cell to the statistics. *first: the value of row 0. */
static void count_cell(const char *cell, int64_t row, strata_number_format format, strata_column_stats *stats, double *first) {
    const strata_number_format other = format.decimal == '.' ? strata_decimal_comma : strata_decimal_point;
    double value;
    bool has_time;
    if (strata_cell_number(cell, format, &value)) {
        stats->n_numbers++;
        stats->n_any++;
        stats->n_whole += value == floor(value);
        if (!row) *first = value;
        stats->counts_rows &= value == *first + (double)row;
        return;
    }
    stats->counts_rows = false;
    stats->n_any += strata_cell_number(cell, other, &value);
    for (int f = 0; f < STRATA_DATE_FORMATS; f++) {
        const bool like = strata_cell_is_like_date(cell, f);
        stats->n_like[f] += like;
        stats->n_dates[f] += like && strata_cell_date(cell, f, &value, &has_time);
    }
}

strata_status strata_column_examine(const strata_csv *csv, int index, strata_number_format format, strata_column_stats *out,
                                    strata_error *err) {
    const int64_t n = strata_csv_n_rows(csv);
    int64_t n_words = 0, n_cells = 0;
    double first = 0;
    *out = (strata_column_stats){.n_rows = n, .counts_rows = n > 2};
    for (int64_t row = 0; row < n; row++) {
        if (strata_csv_is_missing(csv, row, index))
            out->n_missing++, out->counts_rows = false;
        else
            count_cell(strata_csv_cell(csv, row, index), row, format, out, &first);
    }
    if (out->n_numbers + out->n_missing == n) return STRATA_OK;
    STRATA_FREED const char **cells = NULL;
    STRATA_TRY(STRATA_NEW(cells, n, err, "%s: no host memory", strata_csv_name(csv)));
    for (int64_t row = 0; row < n; row++) {
        const char *cell = strata_csv_cell(csv, row, index);
        if (strata_csv_is_missing(csv, row, index)) continue;
        n_words += strata_count_words(cell);
        cells[n_cells++] = cell;
    }
    qsort(cells, (size_t)n_cells, sizeof *cells, strata_by_bytes);
    for (int64_t i = 0; i < n_cells; i++) out->n_different += !i || strcmp(cells[i], cells[i - 1]);
    out->words_each = n_cells ? (double)n_words / (double)n_cells : 0;
    return STRATA_OK;
}

/* ---- words ---- */

typedef struct counted_word {
    const char *word;
    int64_t count;
    double value;
} counted_word;

static int by_count(const void *a, const void *b) {
    const counted_word *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count ? 1 : -1) : strcmp(x->word, y->word);
}
static int by_value(const void *a, const void *b) {
    const double x = ((const counted_word *)a)->value, y = ((const counted_word *)b)->value;
    return (x > y) - (x < y);
}

/* Writes the different words of n sorted cells to out, with their counts, and returns how many. If the words are numbers, those
 * of equal value are one word. */
static int64_t count_equal_words(const strata_column *column, const char *const *cells, int64_t n, counted_word *out) {
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i && !strcmp(cells[i], cells[i - 1])) {
            out[found - 1].count++;
            continue;
        }
        out[found] = (counted_word){.word = cells[i], .count = 1};
        if (column->numeric) strata_cell_number(cells[i], column->format, &out[found].value);
        found++;
    }
    if (!column->numeric) return found;
    int64_t merged = 0;
    qsort(out, (size_t)found, sizeof *out, by_value);
    for (int64_t i = 0; i < found; i++) {
        if (i && out[i].value == out[merged - 1].value)
            out[merged - 1].count += out[i].count;
        else
            out[merged++] = out[i];
    }
    return merged;
}

bool strata_column_is_missing(const strata_column *column, const strata_csv *csv, int64_t row, int index) {
    if (column->only_blank && !strata_csv_get_dialect(csv)->na) return strata_cell_is_blank(strata_csv_cell(csv, row, index));
    return strata_csv_is_missing(csv, row, index);
}

strata_status strata_column_find_words(strata_column *column, const strata_csv *csv, int index, bool keep_missing, int most,
                                       int64_t *out_rare, strata_error *err) {
    const int64_t n = strata_csv_n_rows(csv);
    int64_t n_cells = 0;
    STRATA_FREED const char **cells = NULL;
    STRATA_FREED counted_word *words = NULL;
    *out_rare = 0;
    STRATA_TRY(STRATA_NEW(cells, n, err, "%s: no host memory", strata_csv_name(csv)));
    STRATA_TRY(STRATA_NEW(words, n, err, "%s: no host memory", strata_csv_name(csv)));
    for (int64_t row = 0; row < n; row++) {
        const bool missing = strata_column_is_missing(column, csv, row, index);
        if (!missing || keep_missing) cells[n_cells++] = missing ? "" : strata_csv_cell(csv, row, index);
    }
    qsort(cells, (size_t)n_cells, sizeof *cells, strata_by_bytes);
    const int64_t n_words = count_equal_words(column, cells, n_cells, words), kept = n_words < most ? n_words : most;
    qsort(words, (size_t)n_words, sizeof *words, by_count);
    qsort(words, (size_t)kept, sizeof *words, column->numeric ? by_value : strata_by_bytes);
    qsort(words + kept, (size_t)(n_words - kept), sizeof *words, column->numeric ? by_value : strata_by_bytes);
    for (int64_t i = 0; i < n_words; i++) {
        cells[i] = words[i].word;
        *out_rare += i < kept ? 0 : words[i].count;
    }
    STRATA_TRY(strata_names_copy(cells, (int)kept, &column->words, err));
    column->n_words = (int)kept;
    STRATA_TRY(strata_names_copy(cells + kept, (int)(n_words - kept), &column->rare, err));
    column->n_rare = (int)(n_words - kept);
    return STRATA_OK;
}

/* The index of the word in a sorted list; -1: it is not there. value: that of the word if the column is numeric. */
static int find_word(const strata_column *column, char *const *words, int n, const char *word, double value) {
    double other = 0;
    for (int low = 0, high = n; low < high;) {
        const int middle = (low + high) / 2;
        int order = column->numeric ? 0 : strcmp(word, words[middle]);
        if (column->numeric) {
            strata_cell_number(words[middle], column->format, &other);
            order = (value > other) - (value < other);
        }
        if (!order) return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

int strata_column_word(const strata_column *column, const char *word, const strata_number_format *format) {
    double value = 0;
    if (column->numeric && !strata_cell_number(word, format ? *format : column->format, &value)) return -1;
    const int found = find_word(column, column->words, column->n_words, word, value);
    return found < 0 && find_word(column, column->rare, column->n_rare, word, value) >= 0 ? column->n_words : found;
}

/* ---- numbers and dates ---- */

/* Parses a date in the column's format, or with the order that the user gave. A date that begins with its year is read in any
 * column, since it cannot be mistaken. */
static bool parse_date(const strata_column *column, strata_date_order order, const char *cell, double *out) {
    const int format = order ? strata_date_format_with_order(column->date_format, order) : column->date_format;
    bool has_time;
    if (strata_cell_date(cell, format, out, &has_time)) return true;
    for (int f = 0; f < STRATA_DATE_FORMATS; f++)
        if (strata_date_format_order(f) == STRATA_DATE_YMD && strata_cell_date(cell, f, out, &has_time)) return true;
    return false;
}

strata_status strata_column_value(const strata_column *column, const strata_csv *csv, const strata_table_reading *reading,
                                  int index, int64_t row, double *out, strata_error *err) {
    const char *cell = strata_csv_cell(csv, row, index);
    const bool date = column->kind == STRATA_COLUMN_DATE;
    const strata_number_format other = reading->numbers.decimal == '.' ? strata_decimal_comma : strata_decimal_point;
    char what[64] = "number", advice[96] = "";
    double value;
    *out = NAN;
    if (strata_csv_is_missing(csv, row, index)) return STRATA_OK;
    if (date ? parse_date(column, reading->dates, cell, out) : strata_cell_number(cell, reading->numbers, out))
        return STRATA_OK;
    if (date) snprintf(what, sizeof what, "date %s", strata_date_format_name(column->date_format));
    if (date && strata_cell_is_like_date(cell, column->date_format))
        snprintf(advice, sizeof advice, "there is no such day; ");
    else if (!date && strata_cell_number(cell, other, &value))
        snprintf(advice, sizeof advice, "the table is read with a decimal %s (--decimal %c reads this cell); ",
                 other.decimal == '.' ? "comma" : "point", other.decimal);
    return strata_fail(err, STRATA_DATA,
                       "%s:%lld: column \"%s\" has the cell \"%.64s\", which is not a %s as in the data that the model learns "
                       "from; %scorrect the cell, or leave it empty if the value is missing (--na lists words for that)",
                       strata_csv_name(csv), (long long)strata_csv_line(csv, row), strata_csv_column(csv, index), cell, what,
                       advice);
}

void strata_column_measure(strata_column *column, const double *values, int64_t n) {
    double sum = 0, squares = 0, largest = 0;
    int64_t found = 0;
    int exponent = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabs(values[i]) > largest) largest = fabs(values[i]);
    frexp(largest, &exponent);
    /* Values are divided by a power of two, so that sums and squares stay in the range of a double. This does not round
     * them. */
    const double unit = ldexp(1, exponent - 1);
    for (int64_t i = 0; i < n; i++)
        if (!isnan(values[i])) sum += values[i] / unit, found++;
    column->mean = found ? sum / (double)found * unit : 0;
    for (int64_t i = 0; i < n; i++) {
        const double away = (values[i] - column->mean) / unit;
        if (!isnan(away)) squares += away * away;
    }
    column->deviation = found ? sqrt(squares / (double)found) * unit : 0;
    /* If all values are equal, except for rounding, the deviation is set to 1, and the feature is about 0 in all rows. */
    if (!(column->deviation > 1e-12 * fabs(column->mean)) || !isfinite(column->deviation)) column->deviation = 1;
    column->has_missing = found < n;
}

int64_t strata_column_width(const strata_column *column) {
    if (column->kind == STRATA_COLUMN_WORDS) return column->n_words + (column->n_rare > 0);
    if (column->kind == STRATA_COLUMN_TEXT) return 0;
    return 1 + column->has_missing + (column->kind == STRATA_COLUMN_DATE ? 4 + 2 * column->has_time : 0);
}

/* Writes sine and cosine of the position in a cycle, for example of the day in a year. */
static float *encode_cycle(double value, double length, float *out) {
    const double turn = 2 * 3.14159265358979323846, angle = turn * (value / length - floor(value / length));
    *out++ = isnan(value) ? 0 : (float)sin(angle);
    *out++ = isnan(value) ? 0 : (float)cos(angle);
    return out;
}

void strata_column_encode_value(const strata_column *column, double value, float *out) {
    *out++ = isnan(value) ? 0 : (float)((value - column->mean) / column->deviation);
    if (column->has_missing) *out++ = isnan(value);
    if (column->kind != STRATA_COLUMN_DATE) return;
    out = encode_cycle(value, 365.2425, out);
    out = encode_cycle(value, 7, out);
    if (column->has_time) encode_cycle(value, 1, out);
}
