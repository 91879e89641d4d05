/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds in a user's data which columns are features, the kind of each of them, and what the label is. */
#include "core/data/prepare/preprocessing.h"

#include <math.h>
#include <stdio.h>

#include "core/base/ascii.h"
#include "core/base/text.h"
#include "core/data/format/csv.h"
#include "core/data/stage/stage.h"

enum {
    /* The largest and the smallest limit for the words of a column that have a feature each: the most frequent ones. The others
     * share one feature. The limit is lower for tables with many rows, so that a column has at most MOST_VALUES values. */
    MOST_WORDS = 1024,
    LEAST_WORDS = 64,
    MOST_VALUES = 1 << 28,
    /* A column is text if its cells have at least this many words on average. WORDS_OF_ONLY_TEXT is the limit if all
     * other columns are left out. */
    WORDS_OF_TEXT = 8,
    WORDS_OF_ONLY_TEXT = 2,
    /* In a table with fewer rows, a column is not left out because its cells are all different or count the rows. A column
     * with fewer different words is not left out because its words differ in most rows. */
    LEAST_ROWS = 20,
    LEAST_DIFFERENT = 32,
    /* The report on a column that is left out shows its first cell if the cell has at most this many bytes. */
    LONGEST_EXAMPLE = 32,
    /* The report lists at most this many columns, and this many words of missing values. */
    MOST_LISTED = 16
};

void strata_preprocessing_destroy(strata_preprocessing *p) {
    if (!p) return;
    free(p->header);
    for (int i = 0; i < p->n_columns; i++) strata_column_finish(&p->columns[i]);
    for (int i = 0; i < p->n_labels; i++) strata_column_finish(&p->labels[i]);
    free(p->columns);
    free(p->labels);
    free(p->weight);
    free(p->na);
    strata_tokenizer_destroy(p->tokenizer);
    free(p->found);
    free(p);
}

/* ---- kinds of columns ---- */

/* A word of missing values, and how many cells have it. */
typedef struct marker_count {
    const char *word;
    int64_t n;
} marker_count;

/* What strata_preprocessing_found reports: how many columns of each kind and missing cells there are, and lines on the columns,
 * on words without a feature of their own, on what could be read otherwise and on columns that are left out. */
typedef struct findings {
    int64_t n_of_kind[4], n_missing, n_unlabelled;
    marker_count missing[MOST_LISTED], unlabelled[MOST_LISTED];
    strata_text columns, notes, left_out;
    int n_listed;
    /* A date column decided the order of dates that other columns leave open. FOUND: none did. */
    strata_date_order order;
    /* The order of all dates; several_orders: they have different ones. */
    strata_date_order used_order;
    bool several_orders;
} findings;

/* Counts the words of missing values in a column. */
static void count_markers(const strata_column *column, const strata_csv *csv, int index, marker_count *list) {
    for (int64_t row = 0; row < strata_csv_n_rows(csv); row++) {
        if (!strata_column_is_missing(column, csv, row, index)) continue;
        const char *cell = strata_csv_cell(csv, row, index), *word = strata_cell_is_blank(cell) ? "" : cell;
        int i = 0;
        while (i < MOST_LISTED - 1 && list[i].word && strcmp(list[i].word, word)) i++;
        if (!list[i].word) list[i].word = word;
        list[i].n++;
    }
}

static bool is_counter(const char *name, const strata_column_stats *stats) {
    static const char *const names[] = {"", "id", "index", "row", "no", "nr", "#", "number", "unnamed: 0"};
    const size_t length = strlen(name);
    if (!stats->counts_rows || stats->n_rows < LEAST_ROWS) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strata_ascii_same(name, names[i])) return true;
    return length > 2 && strata_ascii_same(name + length - 2, "id");
}

/* Whether the cells are dates in this format: more than half of them are, or all have its form. Other cells are then
 * mistakes. */
static bool are_dates(const strata_column_stats *stats, int f) {
    const int64_t n = stats->n_rows - stats->n_missing;
    return stats->n_dates[f] * 2 > n || (stats->n_dates[f] && stats->n_like[f] == n);
}

static bool are_dates_in_any(const strata_column_stats *stats) {
    for (int f = 0; f < STRATA_DATE_FORMATS; f++)
        if (are_dates(stats, f)) return true;
    return false;
}

/* Whether the cells are read as dates in this format although none of them is one: they have its order, which the user gave,
 * and its form, and they are dates in another order. The first of them is then reported. */
static bool are_dates_of_other_order(const strata_column_stats *stats, int f, strata_date_order asked) {
    const bool all_like = stats->n_like[f] == stats->n_rows - stats->n_missing;
    return strata_date_format_order(f) == asked && all_like && are_dates_in_any(stats);
}

/* The format in which most cells are dates; -1: the column has no dates. asked: the order that the user gave, which dates that
 * begin with the year need not have, since they have one order only; preferred: that of other columns, if several formats fit
 * as well. *out_other: the other order that fits as well. */
static int date_format_of(const strata_column_stats *stats, strata_date_order asked, strata_date_order preferred,
                          strata_date_order *out_other) {
    int best = -1;
    *out_other = STRATA_DATE_FOUND;
    for (int f = 0; f < STRATA_DATE_FORMATS; f++) {
        const strata_date_order order = strata_date_format_order(f);
        if (asked && order != asked && order != STRATA_DATE_YMD) continue;
        if (!are_dates(stats, f) && !are_dates_of_other_order(stats, f, asked)) continue;
        if (best >= 0 && stats->n_dates[f] == stats->n_dates[best]) {
            *out_other = order;
            if (order != preferred) continue;
            *out_other = strata_date_format_order(best);
        } else if (best >= 0 && stats->n_dates[f] < stats->n_dates[best]) {
            continue;
        } else {
            *out_other = STRATA_DATE_FOUND;
        }
        best = f;
    }
    if (preferred && *out_other) *out_other = STRATA_DATE_FOUND;
    return best;
}

static bool is_text(const strata_column_stats *stats, double least_words) {
    if (are_dates_in_any(stats)) return false; /* "2024-01-31 12:00" has two words */
    return stats->words_each >= least_words && stats->n_different * 2 > stats->n_rows - stats->n_missing;
}

/* Whether more than nine of ten cells are numbers, so that another cell is probably a mistake. */
static bool are_mostly_numbers(const strata_column_stats *stats) {
    return stats->n_numbers * 10 > (stats->n_rows - stats->n_missing) * 9;
}

/* The reason for which a column is left out if the user did not name it; NULL: it is a feature. */
static const char *reason_to_leave_out(const char *name, const strata_column_stats *stats) {
    const int64_t n = stats->n_rows - stats->n_missing;
    if (!n) return "is empty";
    if (is_counter(name, stats)) return "counts the rows";
    if (are_mostly_numbers(stats) || are_dates_in_any(stats) || stats->n_rows < LEAST_ROWS) return NULL;
    return stats->n_different * 2 > n && stats->n_different > LEAST_DIFFERENT ? "has words that differ in most rows" : NULL;
}

/* Finds whether the dates have times, and fails at a cell that is no date. */
static strata_status find_times(strata_column *column, const strata_examples *examples, int index, strata_error *err) {
    double days;
    bool has_time = false;
    for (int64_t row = 0; row < strata_csv_n_rows(examples->csv); row++) {
        STRATA_TRY(strata_column_value(column, examples->csv, &examples->reading, index, row, &days, err));
        column->has_time |=
            strata_cell_date(strata_csv_cell(examples->csv, row, index), column->date_format, &days, &has_time) && has_time;
    }
    return STRATA_OK;
}

/* Fails with the message of the first cell that is no number. */
static strata_status report_non_number(const strata_examples *examples, int index, strata_error *err) {
    const strata_column as_number = {.kind = STRATA_COLUMN_NUMBER};
    double value;
    for (int64_t row = 0; row < strata_csv_n_rows(examples->csv); row++)
        STRATA_TRY(strata_column_value(&as_number, examples->csv, &examples->reading, index, row, &value, err));
    return STRATA_OK;
}

static int most_words(int64_t n_rows) {
    const int64_t most = MOST_VALUES / n_rows;
    return most < LEAST_WORDS ? LEAST_WORDS : most > MOST_WORDS ? MOST_WORDS : (int)most;
}

/* Adds the column to the list of the report. */
static void list_column(const strata_column *column, findings *found) {
    if (found->n_listed++ >= MOST_LISTED) return;
    strata_text_add(&found->columns, "%s\"%s\" %s", found->n_listed > 1 ? ", " : "", column->name,
                    strata_column_kinds[column->kind]);
    if (column->kind == STRATA_COLUMN_DATE)
        strata_text_add(&found->columns, " %s%s", strata_date_format_name(column->date_format),
                        column->has_time ? " with time" : "");
    if (column->kind == STRATA_COLUMN_WORDS) strata_text_add(&found->columns, " (%d)", column->n_words + column->n_rare);
}

static strata_status find_date(strata_column *column, const strata_examples *examples, int index, strata_date_order other,
                               findings *found, strata_error *err) {
    const strata_date_order order = strata_date_format_order(column->date_format);
    column->kind = STRATA_COLUMN_DATE;
    found->several_orders |= found->used_order && found->used_order != order;
    found->used_order = order;
    if (other)
        strata_text_add(&found->notes, "\ncolumn \"%s\" is read as %s; all its dates could be %s, too (--dates %s)",
                        column->name, strata_date_format_name(column->date_format),
                        strata_date_format_name(strata_date_format_with_order(column->date_format, other)),
                        strata_date_orders[other]);
    return find_times(column, examples, index, err);
}

static strata_status find_words(strata_column *column, const strata_csv *csv, int index, findings *found, strata_error *err) {
    int64_t n_rare = 0;
    column->kind = STRATA_COLUMN_WORDS;
    STRATA_TRY(strata_column_find_words(column, csv, index, true, most_words(strata_csv_n_rows(csv)), &n_rare, err));
    if (column->n_rare)
        strata_text_add(&found->notes,
                        "\ncolumn \"%s\" has %d words: the %d most frequent have a feature each, the other %d, in %lld cells, "
                        "share one",
                        column->name, column->n_words + column->n_rare, column->n_words, column->n_rare, (long long)n_rare);
    return STRATA_OK;
}

static strata_status find_kind(strata_column *column, const strata_examples *examples, int index,
                               const strata_column_stats *stats, findings *found, strata_error *err) {
    const int64_t n = stats->n_rows - stats->n_missing;
    strata_date_order other;
    found->n_missing += stats->n_missing;
    count_markers(column, examples->csv, index, found->missing);
    column->format = examples->reading.numbers;
    if (stats->n_numbers == n) {
        column->kind = STRATA_COLUMN_NUMBER;
        return STRATA_OK;
    }
    const int format = date_format_of(stats, examples->reading.dates, found->order, &other);
    if (format >= 0) {
        column->date_format = format;
        return find_date(column, examples, index, other, found, err);
    }
    /* A cell that is a number only with the other decimal character is a mistake, too. */
    if (are_mostly_numbers(stats) || (stats->n_any == n && stats->n_numbers)) return report_non_number(examples, index, err);
    return find_words(column, examples->csv, index, found, err);
}

/* ---- choosing the columns ---- */

static strata_status copy_name(const char *name, char **out, strata_error *err) {
    *out = strdup(name);
    return *out ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", name);
}

/* The first cell of the column that is not missing; "": there is none. */
static const char *first_cell(const strata_csv *csv, int index) {
    for (int64_t row = 0; row < strata_csv_n_rows(csv); row++)
        if (!strata_csv_is_missing(csv, row, index)) return strata_csv_cell(csv, row, index);
    return "";
}

/* The last column that is not empty. If lines end with a separator, the column after it has neither a name nor cells. */
static int last_column(const strata_csv *csv) {
    int index = strata_csv_n_columns(csv) - 1;
    while (index > 0 && !*strata_csv_column(csv, index) && !*first_cell(csv, index)) index--;
    return index;
}

/* Finds the columns of the labels, without names the last one, and of the features. */
static strata_status choose_columns(strata_preprocessing *p, const strata_csv *csv, const strata_preprocessing_options *opts,
                                    strata_columns *columns, strata_error *err) {
    const char *last = strata_csv_column(csv, last_column(csv));
    const strata_column_names names = {.labels = opts->n_labels ? opts->labels : &last,
                                       .n_labels = opts->n_labels ? opts->n_labels : 1,
                                       .weight = opts->weight,
                                       .features = opts->features,
                                       .n_features = opts->n_features};
    STRATA_TRY(strata_columns_find(columns, csv, &names, err));
    STRATA_TRY(STRATA_NEW(p->labels, names.n_labels, err, "%s: no host memory", strata_csv_name(csv)));
    for (; p->n_labels < names.n_labels; p->n_labels++)
        STRATA_TRY(copy_name(names.labels[p->n_labels], &p->labels[p->n_labels].name, err));
    if (opts->weight) STRATA_TRY(copy_name(opts->weight, &p->weight, err));
    if (columns->n_features) return STRATA_OK;
    return strata_fail(err, STRATA_DATA,
                       "%s: has no column but the label \"%s\"; there is nothing to learn from. If other characters separate "
                       "its cells, name them (--separator)",
                       strata_csv_name(csv), p->labels[0].name);
}

/* Finds which columns are text. If all other columns are left out, a column with fewer words in a cell is text, too.
 * *out_others: how many other columns are features. */
static void find_texts(const strata_csv *csv, const strata_preprocessing_options *opts, const int *indices,
                       const strata_column_stats *all_stats, int n, bool *out_texts, int *out_others) {
    *out_others = 0;
    for (int i = 0; i < n; i++)
        *out_others += !opts->texts && !is_text(&all_stats[i], WORDS_OF_ONLY_TEXT) &&
                       (opts->n_features || !reason_to_leave_out(strata_csv_column(csv, indices[i]), &all_stats[i]));
    const double least = *out_others ? WORDS_OF_TEXT : WORDS_OF_ONLY_TEXT;
    for (int i = 0; i < n; i++) out_texts[i] = opts->texts || is_text(&all_stats[i], least);
}

/* Adds a column, as text or as the kind that is found, or leaves it out. */
static strata_status find_column(strata_preprocessing *p, const strata_examples *examples,
                                 const strata_preprocessing_options *opts, int index, const strata_column_stats *stats,
                                 bool text, findings *found, strata_error *err) {
    const strata_csv *csv = examples->csv;
    const char *name = strata_csv_column(csv, index);
    const char *reason = opts->n_features || text ? NULL : reason_to_leave_out(name, stats);
    if (reason) {
        const char *first = first_cell(csv, index);
        strata_text_add(&found->left_out, "\nleft out \"%s\", which %s", name, reason);
        if (stats->n_different && strlen(first) <= LONGEST_EXAMPLE) strata_text_add(&found->left_out, " (\"%s\", ...)", first);
        return STRATA_OK;
    }
    strata_column *column = &p->columns[p->n_columns++];
    STRATA_TRY(copy_name(name, &column->name, err));
    if (text) {
        column->kind = STRATA_COLUMN_TEXT;
        found->n_missing += stats->n_missing;
        count_markers(column, csv, index, found->missing);
    } else {
        STRATA_TRY(find_kind(column, examples, index, stats, found, err));
    }
    found->n_of_kind[column->kind]++;
    list_column(column, found);
    return STRATA_OK;
}

/* The order of dates of the columns whose cells have one order only; FOUND: there are none, or they differ. */
static strata_date_order find_order(const strata_column_stats *all_stats, int n, strata_date_order asked) {
    strata_date_order order = STRATA_DATE_FOUND, other;
    for (int i = 0; i < n; i++) {
        const int format = date_format_of(&all_stats[i], asked, STRATA_DATE_FOUND, &other);
        const strata_date_order found = format < 0 ? STRATA_DATE_FOUND : strata_date_format_order(format);
        if (!found || other || found == STRATA_DATE_YMD) continue;
        if (order && order != found) return STRATA_DATE_FOUND;
        order = found;
    }
    return order;
}

static strata_status find_columns(strata_preprocessing *p, const strata_examples *examples,
                                  const strata_preprocessing_options *opts, const int *indices, int n, findings *found,
                                  strata_error *err) {
    int n_others = 0;
    const strata_csv *csv = examples->csv;
    STRATA_FREED strata_column_stats *all_stats = NULL;
    STRATA_FREED bool *texts = NULL;
    STRATA_TRY(STRATA_NEW(p->columns, n, err, "%s: no host memory", examples->name));
    STRATA_TRY(STRATA_NEW(all_stats, n, err, "%s: no host memory", examples->name));
    STRATA_TRY(STRATA_NEW(texts, n, err, "%s: no host memory", examples->name));
    for (int i = 0; i < n; i++)
        STRATA_TRY(strata_column_examine(csv, indices[i], examples->reading.numbers, &all_stats[i], err));
    find_texts(csv, opts, indices, all_stats, n, texts, &n_others);
    found->order = find_order(all_stats, n, examples->reading.dates);
    for (int i = 0; i < n; i++) STRATA_TRY(find_column(p, examples, opts, indices[i], &all_stats[i], texts[i], found, err));
    if (!p->n_columns)
        return strata_fail(err, STRATA_DATA,
                           "%s: all columns are left out, so there is nothing to learn from:%s. Name the columns (--columns)",
                           strata_csv_name(csv), found->left_out.bytes ? found->left_out.bytes : "");
    if (found->n_of_kind[STRATA_COLUMN_TEXT] == p->n_columns) p->kind = STRATA_PREPROCESSING_TEXTS;
    p->length = opts->length;
    p->vocabulary = opts->vocabulary;
    p->subwords = opts->subwords;
    return STRATA_OK;
}

/* ---- the description for the user ---- */

/* Adds the description of the labels: how many classes there are, or which numbers are learned. */
static void add_labels(const strata_preprocessing *p, strata_text *text) {
    if (strata_preprocessing_n_classes(p)) {
        strata_text_add(text, ", %d classes", strata_preprocessing_n_classes(p));
        return;
    }
    for (int i = 0; i < p->n_labels; i++)
        strata_text_add(text, "%s \"%s\"",
                        i                 ? ","
                        : p->n_labels > 1 ? "; learns the numbers"
                                          : "; learns the number",
                        p->labels[i].name);
    if (p->labels[0].whole) strata_text_add(text, " (--learn classification learns its numbers as classes)");
}

/* Adds for example " (3 empty, 2 NA)". */
static void add_markers(const marker_count *list, strata_text *text) {
    if (!list[0].n) return;
    for (int i = 0; i < MOST_LISTED && list[i].n; i++) {
        const bool last = i == MOST_LISTED - 1;
        strata_text_add(text, "%s%lld %s", i ? ", " : " (", (long long)list[i].n,
                        last            ? "others"
                        : *list[i].word ? list[i].word
                                        : "empty");
    }
    strata_text_add(text, ")");
}

/* Adds an option with a character, in a form that a shell takes. */
static void add_option(const char *name, char character, strata_text *text) {
    if (!character) return;
    const char *word = character == STRATA_CSV_NONE ? "none" : character == '\t' ? "tab" : character == ' ' ? "space" : NULL;
    if (word)
        strata_text_add(text, " --%s %s", name, word);
    else
        strata_text_add(text,
                        strchr(",.:", character) ? " --%s %c"
                        : character == '\''      ? " --%s \"%c\""
                                                 : " --%s '%c'",
                        name, character);
}

/* Adds a line with the options of the command that read the table in the same way. */
static void add_dialect(const strata_preprocessing *p, strata_text *text) {
    const strata_csv_dialect *d = &p->dialect;
    strata_text_add(text, "\nread with");
    if (d->header) strata_text_add(text, " --header %s", d->header == STRATA_CSV_HEADER_YES ? "yes" : "no");
    add_option("separator", d->separator, text);
    add_option("quote", d->quote, text);
    add_option("decimal", d->decimal, text);
    add_option("thousands", d->thousands, text);
    if (d->dates) strata_text_add(text, " --dates %s", strata_date_orders[d->dates]);
    if (!p->na) strata_text_add(text, " --na 'NA,N/A,NaN,null,None,?,-,--'");
    for (int i = 0; i < d->n_na && p->na; i++) strata_text_add(text, "%s%s", i ? "," : " --na '", p->na[i]);
    if (p->na) strata_text_add(text, "'");
}

static void join(strata_text *text, strata_text *part, const char *head) {
    if (part->bytes) strata_text_add(text, "%s%s", head, part->bytes);
    text->failed |= part->failed;
}

static void findings_finish(findings *found) {
    strata_text_finish(&found->columns);
    strata_text_finish(&found->notes);
    strata_text_finish(&found->left_out);
}

static strata_status describe(strata_preprocessing *p, findings *found, strata_error *err) {
    static const char *const kinds[][2] = {
        {"number", "numbers"}, {"column of words", "columns of words"}, {"date", "dates"}, {"text", "texts"}};
    strata_text text = {0};
    for (int k = 0; k < 4; k++) {
        const int64_t n = found->n_of_kind[k];
        if (n) strata_text_add(&text, "%s%lld %s", text.n_bytes ? ", " : "", (long long)n, kinds[k][n > 1]);
    }
    strata_text_add(&text, ", %lld missing", (long long)found->n_missing);
    add_markers(found->missing, &text);
    add_labels(p, &text);
    if (found->n_unlabelled) {
        strata_text_add(&text, ", %lld row%s without a label left out", (long long)found->n_unlabelled,
                        found->n_unlabelled == 1 ? "" : "s");
        add_markers(found->unlabelled, &text);
    }
    if (found->n_listed) {
        join(&text, &found->columns, "\ncolumns: ");
        if (found->n_listed > MOST_LISTED) strata_text_add(&text, ", and %d more", found->n_listed - MOST_LISTED);
        add_dialect(p, &text);
    }
    join(&text, &found->notes, "");
    join(&text, &found->left_out, "");
    return strata_text_take(&text, &p->found, NULL, err);
}

static strata_status copy_header(strata_preprocessing *p, const strata_csv *csv, strata_error *err) {
    const int n = strata_csv_n_columns(csv);
    STRATA_FREED const char **names = NULL;
    STRATA_TRY(STRATA_NEW(names, n, err, "%s: no host memory", strata_csv_name(csv)));
    for (int i = 0; i < n; i++) names[i] = strata_csv_column(csv, i);
    STRATA_TRY(strata_names_copy(names, n, &p->header, err));
    p->n_header = n;
    return STRATA_OK;
}

/* Stores how the table was read. */
static strata_status set_dialect(strata_preprocessing *p, const strata_examples *examples, const strata_reading_facts *facts,
                                 const findings *found, strata_error *err) {
    const strata_csv_dialect *asked = strata_csv_get_dialect(examples->csv);
    p->dialect = *asked;
    p->dialect.na = NULL;
    p->dialect.n_na = 0;
    if (asked->na) STRATA_TRY(strata_names_copy(asked->na, asked->n_na, &p->na, err));
    if (p->na) p->dialect.na = (const char *const *)p->na, p->dialect.n_na = asked->n_na;
    if (!asked->decimal) p->dialect.decimal = facts->has_fractions ? examples->reading.numbers.decimal : 0;
    if (facts->decided && !asked->thousands)
        p->dialect.thousands = facts->has_groups ? examples->reading.numbers.thousands : STRATA_CSV_NONE;
    if (!asked->dates && !found->several_orders) p->dialect.dates = found->used_order;
    return STRATA_OK;
}

static void count_unlabelled(const strata_preprocessing *p, const strata_csv *csv, const int *labels, findings *found) {
    for (int64_t row = 0; row < strata_csv_n_rows(csv); row++) {
        bool missing = false;
        for (int i = 0; i < p->n_labels; i++) missing |= strata_column_is_missing(&p->labels[i], csv, row, labels[i]);
        found->n_unlabelled += missing;
    }
    for (int i = 0; i < p->n_labels; i++) count_markers(&p->labels[i], csv, labels[i], found->unlabelled);
}

static void note_doubt(const strata_examples *examples, const char *cell, findings *found) {
    const bool point = examples->reading.numbers.decimal == '.';
    double value = 0;
    if (!cell || !strata_cell_number(cell, point ? strata_decimal_comma : strata_decimal_point, &value)) return;
    strata_text_add(&found->notes, "\nnumbers such as \"%s\" are read with a decimal %s (--decimal %c makes it %.15g)", cell,
                    point ? "point" : "comma", point ? ',' : '.', value);
}

strata_status strata_preprocessing_from_csv(const strata_csv *csv, const strata_preprocessing_options *opts,
                                            strata_preprocessing **out_preprocessing, strata_error *err) {
    const strata_preprocessing_options defaults = {0};
    strata_reading_facts facts;
    strata_examples examples = {.csv = csv, .name = strata_csv_name(csv)};
    STRATA_FINISHED(findings) found = {0};
    STRATA_FINISHED(strata_columns) columns = {0};
    STRATA_OWNED(strata_preprocessing) *p = NULL;
    if (!opts) opts = &defaults;
    if (strata_csv_n_rows(csv) < 1) return strata_fail(err, STRATA_DATA, "%s: has a header and no rows", examples.name);
    STRATA_TRY(STRATA_NEW(p, 1, err, "%s: no host memory", examples.name));
    STRATA_TRY(copy_header(p, csv, err));
    STRATA_TRY(choose_columns(p, csv, opts, &columns, err));
    STRATA_TRY(strata_reading_find(csv, columns.features, columns.n_all, &examples.reading, &facts, err));
    STRATA_TRY(strata_labels_find(p, &examples, columns.labels, opts->task, err));
    STRATA_TRY(find_columns(p, &examples, opts, columns.features, columns.n_features, &found, err));
    if (strata_preprocessing_has_texts(p) && !strata_preprocessing_n_classes(p) && p->n_labels > 1)
        return strata_fail(err, STRATA_INVALID, "csv: %d labels; texts have one", p->n_labels);
    count_unlabelled(p, csv, columns.labels, &found);
    note_doubt(&examples, facts.doubt, &found);
    STRATA_TRY(set_dialect(p, &examples, &facts, &found, err));
    STRATA_TRY(describe(p, &found, err));
    *out_preprocessing = strata_released(&p);
    return STRATA_OK;
}

/* ---- arrays ---- */

static strata_status check_arrays(const strata_array *x, const strata_array *y, strata_error *err) {
    if (x->shape.rank < 2 || x->shape.dims[0] < 1 || strata_shape_elements(x->shape) < 1)
        return strata_fail(err, STRATA_DATA,
                           "the features are %s %s; they must be (examples, numbers), or (examples, rows, "
                           "columns) and more",
                           strata_dtype_name(x->dtype), strata_shape_text(x->shape).text);
    if (y &&
        (y->shape.rank < 1 || y->shape.rank > 2 || y->shape.dims[0] != x->shape.dims[0] || strata_shape_elements(y->shape) < 1))
        return strata_fail(err, STRATA_DATA,
                           "the features are %s, the labels %s; there must be one label, or one row of "
                           "labels, for each example",
                           strata_shape_text(x->shape).text, strata_shape_text(y->shape).text);
    const int64_t n_labels = y ? strata_shape_elements(y->shape) : 0;
    for (int64_t i = 0; i < n_labels; i++) {
        const double label = strata_element_get(y->dtype, y->data, i);
        if (isinf(label))
            return strata_fail(err, STRATA_DATA, "label %lld is %g; a label is a finite number, or NaN if it is missing",
                               (long long)i, label);
    }
    return STRATA_OK;
}

/* Makes n columns of numbers, called "number 1", "number 2", ... if `what` is "number"; a single one is called `what`. */
static strata_status name_columns(const char *what, int64_t n, strata_column **out, int *out_n, strata_error *err) {
    char name[48];
    enum { MOST = 1 << 20 };
    if (n > MOST) return strata_fail(err, STRATA_DATA, "an example has %lld numbers in a row; at most %d", (long long)n, MOST);
    STRATA_TRY(STRATA_NEW(*out, n, err, "%s: no host memory", what));
    for (; *out_n < n; ++*out_n) {
        snprintf(name, sizeof name, n > 1 ? "%s %d" : "%s", what, *out_n + 1);
        STRATA_TRY(copy_name(name, &(*out)[*out_n].name, err));
        (*out)[*out_n].kind = STRATA_COLUMN_NUMBER;
    }
    return STRATA_OK;
}

static strata_status find_in_arrays(strata_preprocessing *p, const strata_examples *examples, strata_task task,
                                    strata_error *err) {
    const strata_array *x = examples->x, *y = examples->y;
    STRATA_FINISHED(findings) found = {0};
    STRATA_TRY(check_arrays(x, y, err));
    p->kind = STRATA_PREPROCESSING_ARRAYS;
    p->element = strata_shape_inner(x->shape);
    STRATA_TRY(name_columns("number", p->element.rank == 1 ? p->element.dims[0] : 1, &p->columns, &p->n_columns, err));
    STRATA_TRY(name_columns("label", y->shape.rank == 2 ? y->shape.dims[1] : 1, &p->labels, &p->n_labels, err));
    STRATA_TRY(strata_labels_find(p, examples, NULL, task, err));
    const int64_t n = strata_shape_elements(x->shape);
    for (int64_t i = 0; i < n; i++) found.n_missing += isnan(strata_element_get(x->dtype, x->data, i));
    found.n_of_kind[STRATA_COLUMN_NUMBER] = n / x->shape.dims[0];
    return describe(p, &found, err);
}

strata_status strata_preprocessing_from_examples(const strata_examples *examples, const strata_preprocessing_options *opts,
                                                 strata_preprocessing **out_preprocessing, strata_error *err) {
    STRATA_OWNED(strata_preprocessing) *p = NULL;
    STRATA_TRY(STRATA_NEW(p, 1, err, "preprocessing: no host memory"));
    STRATA_TRY(find_in_arrays(p, examples, opts ? opts->task : STRATA_TASK_AUTO, err));
    *out_preprocessing = strata_released(&p);
    return STRATA_OK;
}

strata_status strata_preprocessing_from_arrays(const strata_array *features, const strata_array *labels,
                                               const strata_preprocessing_options *opts,
                                               strata_preprocessing **out_preprocessing, strata_error *err) {
    const strata_examples examples = {.x = features, .y = labels, .name = "arrays"};
    return strata_preprocessing_from_examples(&examples, opts, out_preprocessing, err);
}

/* ---- the public functions that return a value ---- */

bool strata_preprocessing_has_texts(const strata_preprocessing *p) {
    for (int i = 0; i < p->n_columns; i++)
        if (p->columns[i].kind == STRATA_COLUMN_TEXT) return true;
    return false;
}

int strata_preprocessing_n_columns(const strata_preprocessing *p) {
    return p->n_columns;
}

static strata_column_info info_of(const strata_column *c) {
    return (strata_column_info){.name = c->name,
                                .kind = c->kind,
                                .words = (const char *const *)c->words,
                                .rare = (const char *const *)c->rare,
                                .n_words = c->n_words,
                                .n_rare = c->n_rare,
                                .numeric = c->numeric,
                                .format = c->format,
                                .mean = c->mean,
                                .deviation = c->deviation,
                                .has_missing = c->has_missing,
                                .has_time = c->has_time};
}

strata_column_info strata_preprocessing_column(const strata_preprocessing *p, int index) {
    return info_of(&p->columns[index]);
}

strata_column_info strata_preprocessing_label_column(const strata_preprocessing *p, int index) {
    return info_of(&p->labels[index]);
}

int strata_preprocessing_n_header(const strata_preprocessing *p) {
    return p->n_header;
}

const char *strata_preprocessing_header(const strata_preprocessing *p, int index) {
    return p->header[index];
}

const strata_csv_dialect *strata_preprocessing_dialect(const strata_preprocessing *p) {
    return &p->dialect;
}

strata_preprocessing_kind strata_preprocessing_get_kind(const strata_preprocessing *p) {
    return p->kind;
}
strata_shape strata_preprocessing_element(const strata_preprocessing *p) {
    int64_t width = 0;
    if (p->kind == STRATA_PREPROCESSING_PICTURES || p->element.rank > 1) return p->element;
    if (p->kind == STRATA_PREPROCESSING_TEXTS) return STRATA_SHAPE(p->length);
    for (int i = 0; i < p->n_columns; i++) width += strata_column_width(&p->columns[i]);
    return STRATA_SHAPE(width);
}
int strata_preprocessing_n_classes(const strata_preprocessing *p) {
    return p->n_labels == 1 && p->labels[0].kind == STRATA_COLUMN_WORDS ? p->labels[0].n_words : 0;
}
const char *strata_preprocessing_class_name(const strata_preprocessing *p, int64_t index) {
    return index >= 0 && index < strata_preprocessing_n_classes(p) ? p->labels[0].words[index] : NULL;
}
int strata_preprocessing_n_labels(const strata_preprocessing *p) {
    return p->n_labels;
}
const char *strata_preprocessing_label(const strata_preprocessing *p, int index) {
    return p->labels[index].name;
}
int64_t strata_preprocessing_n_tokens(const strata_preprocessing *p) {
    return strata_preprocessing_has_texts(p) ? p->length : 0;
}
int64_t strata_preprocessing_vocabulary(const strata_preprocessing *p) {
    return p->tokenizer ? strata_tokenizer_size(p->tokenizer) : 0;
}
const char *strata_preprocessing_found(const strata_preprocessing *p) {
    return p->found ? p->found : "";
}
