/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds how the numbers of a table are written: whether "1,234" is 1234 or 1.234. This is decided once for all columns of a
 * table, since one program wrote it. */
#include <stdio.h>

#include "core/data/prepare/preprocessing.h"

/* What the cells of a column show. "1.5" is a number with a decimal point only, "1,5" with a decimal comma only; "1.234" and
 * "1,234" are two numbers each. */
typedef struct votes {
    int64_t n_cells, n_point, n_comma, n_any;
    /* Cells that are a number in one of the formats only, and the first rows with them. */
    int64_t n_only_point, n_only_comma, point_row, comma_row;
    /* Cells that are two different numbers, with a point and with a comma, and the first row with such a cell. */
    int64_t n_groups_point, n_groups_comma, doubtful_row;
    /* Numbers without point and comma; one of them has more than three digits. */
    int64_t n_plain;
    bool has_long;
} votes;

static void count_vote(const char *cell, int64_t row, votes *v) {
    double point, comma;
    const bool is_point = strata_cell_number(cell, strata_decimal_point, &point);
    v->n_cells++;
    if (!strata_cell_has_mark(cell)) {
        v->n_plain += is_point;
        v->has_long |= is_point && (point >= 1000 || point <= -1000);
        v->n_point += is_point, v->n_comma += is_point, v->n_any += is_point;
        return;
    }
    const bool is_comma = strata_cell_number(cell, strata_decimal_comma, &comma);
    v->n_point += is_point, v->n_comma += is_comma, v->n_any += is_point || is_comma;
    if (is_point && !is_comma && !v->n_only_point++) v->point_row = row;
    if (is_comma && !is_point && !v->n_only_comma++) v->comma_row = row;
    if (!is_point || !is_comma || point == comma) return;
    if (!v->n_groups_point && !v->n_groups_comma) v->doubtful_row = row;
    v->n_groups_point += strata_cell_has_groups(cell, '.');
    v->n_groups_comma += strata_cell_has_groups(cell, ',');
}

static votes count_votes(const strata_csv *csv, int index) {
    votes v = {0};
    for (int64_t row = 0; row < strata_csv_n_rows(csv); row++)
        if (!strata_csv_is_missing(csv, row, index)) count_vote(strata_csv_cell(csv, row, index), row, &v);
    return v;
}

/* The format with this decimal character. `asked`: the user may have said what is between thousands. */
static strata_number_format format_of(char decimal, const strata_csv_dialect *asked) {
    strata_number_format format = decimal == ',' ? strata_decimal_comma : strata_decimal_point;
    if (asked->thousands && asked->thousands != format.thousands) format.thousands = 0;
    return format;
}

/* The decimal character that the user gave, or that follows from that of thousands; 0: neither. */
static char asked_decimal(const strata_csv_dialect *asked) {
    if (asked->decimal) return asked->decimal;
    return asked->thousands == ',' ? '.' : asked->thousands == '.' ? ',' : 0;
}

/* A cell that speaks for one of the formats. index -1: there is none. */
typedef struct witness {
    int index;
    int64_t row;
} witness;

static void call_witness(witness *w, int index, int64_t row) {
    if (w->index < 0) *w = (witness){index, row};
}

static strata_status contradiction(const strata_csv *csv, witness point, witness comma, strata_error *err) {
    return strata_fail(err, STRATA_DATA,
                       "%s: numbers have a decimal point in line %lld, column \"%s\" (\"%.32s\"), and a decimal comma in line "
                       "%lld, column \"%s\" (\"%.32s\"). A table has one of them: correct the cells, or name the one "
                       "(--decimal . or --decimal ,), and columns with the other are read as words",
                       strata_csv_name(csv), (long long)strata_csv_line(csv, point.row), strata_csv_column(csv, point.index),
                       strata_csv_cell(csv, point.row, point.index), (long long)strata_csv_line(csv, comma.row),
                       strata_csv_column(csv, comma.index), strata_csv_cell(csv, comma.row, comma.index));
}

/* Decides from columns in which only the numbers from 1000 on have groups, then from the separator. */
static char guess_decimal(const strata_csv *csv, const int *indices, int n, const char **out_doubt) {
    const char separator = strata_csv_get_dialect(csv)->separator;
    int n_thousands_comma = 0, n_thousands_point = 0;
    int64_t n_points = 0, n_commas = 0;
    for (int i = 0; i < n; i++) {
        const votes v = count_votes(csv, indices[i]);
        if (v.n_any * 10 <= v.n_cells * 9 || (!v.n_groups_point && !v.n_groups_comma)) continue;
        /* Where ',' separates cells, numbers seldom have a decimal comma, so that a few such cells do not suffice. */
        const bool only_large = v.n_plain && !v.has_long, many = v.n_plain >= 3 && v.n_groups_point >= 3;
        n_thousands_comma += only_large && !v.n_groups_point;
        n_thousands_point += only_large && !v.n_groups_comma && (many || separator != ',');
        n_points += v.n_groups_point, n_commas += v.n_groups_comma;
        if (!*out_doubt) *out_doubt = strata_csv_cell(csv, v.doubtful_row, indices[i]);
    }
    if (!n_points && !n_commas) return 0;
    if (!n_thousands_comma != !n_thousands_point) {
        *out_doubt = NULL;
        return n_thousands_comma ? '.' : ',';
    }
    return separator == ';' && n_commas ? ',' : '.';
}

/* Finds whether numbers of these columns have a fraction, and whether they have groups of digits. */
static void find_marks(const strata_csv *csv, const int *indices, int n, strata_number_format format,
                       strata_reading_facts *facts) {
    double value;
    for (int i = 0; i < n; i++)
        for (int64_t row = 0; row < strata_csv_n_rows(csv) && !(facts->has_fractions && facts->has_groups); row++) {
            const char *cell = strata_csv_cell(csv, row, indices[i]);
            const bool fraction = strchr(cell, format.decimal) != NULL,
                       groups = format.thousands && strchr(cell, format.thousands) != NULL;
            if ((fraction && !facts->has_fractions) || (groups && !facts->has_groups)) {
                if (!strata_cell_number(cell, format, &value)) continue;
                facts->has_fractions |= fraction;
                facts->has_groups |= groups;
            }
        }
}

strata_status strata_reading_find(const strata_csv *csv, const int *indices, int n, strata_table_reading *out,
                                  strata_reading_facts *facts, strata_error *err) {
    const strata_csv_dialect *asked = strata_csv_get_dialect(csv);
    char decimal = asked_decimal(asked);
    witness point = {-1, 0}, comma = {-1, 0};
    const char *cell = NULL;
    for (int i = 0; i < n && !decimal; i++) {
        const votes v = count_votes(csv, indices[i]);
        if (v.n_any * 10 <= v.n_cells * 9 || !(v.n_only_point || v.n_only_comma)) continue;
        if (v.n_point >= v.n_comma && v.n_only_point) call_witness(&point, indices[i], v.point_row);
        if (v.n_comma >= v.n_point && v.n_only_comma) call_witness(&comma, indices[i], v.comma_row);
    }
    if (!decimal && point.index >= 0 && comma.index >= 0) return contradiction(csv, point, comma, err);
    if (!decimal) decimal = point.index >= 0 ? '.' : comma.index >= 0 ? ',' : guess_decimal(csv, indices, n, &cell);
    *out = (strata_table_reading){format_of(decimal, asked), asked->dates};
    if (facts) *facts = (strata_reading_facts){.decided = decimal != 0, .doubt = cell};
    if (facts && decimal) find_marks(csv, indices, n, out->numbers, facts);
    return STRATA_OK;
}

/* Whether one of both tables is separated by semicolons, as is usual where numbers have a decimal comma. */
static bool are_separated_otherwise(const strata_preprocessing *p, const strata_csv *csv) {
    const char before = p->dialect.separator, now = strata_csv_get_dialect(csv)->separator;
    return before && now && strata_csv_n_columns(csv) > 1 && (before == ';') != (now == ';');
}

static strata_status doubt(const strata_preprocessing *p, const strata_csv *csv, int index, int64_t row, strata_error *err) {
    const char *cell = strata_csv_cell(csv, row, index);
    char before[96] = "a table without numbers of this form";
    double point = 0, comma = 0;
    strata_cell_number(cell, strata_decimal_point, &point);
    strata_cell_number(cell, strata_decimal_comma, &comma);
    if (p->dialect.decimal)
        snprintf(before, sizeof before, "a table with a decimal %s%s", p->dialect.decimal == ',' ? "comma" : "point",
                 are_separated_otherwise(p, csv) ? " and another separator of cells" : "");
    return strata_fail(err, STRATA_DATA,
                       "%s:%lld: column \"%s\" has the cell \"%.32s\", which is %.15g with a decimal point and %.15g with a "
                       "decimal comma; the model learned from %s. Say how this table is written (--decimal . or --decimal ,)",
                       strata_csv_name(csv), (long long)strata_csv_line(csv, row), strata_csv_column(csv, index), cell, point,
                       comma, before);
}

strata_status strata_reading_of_later(const strata_preprocessing *p, const strata_csv *csv, const int *indices, int n,
                                      strata_table_reading *out, strata_error *err) {
    const strata_csv_dialect *asked = strata_csv_get_dialect(csv);
    const char fraction = p->dialect.decimal, groups = p->dialect.thousands, before = asked_decimal(&p->dialect);
    char decimal = asked_decimal(asked);
    int64_t n_point = 0, n_comma = 0;
    int doubtful = -1;
    votes first = {0};
    for (int i = 0; i < n && !decimal; i++) {
        const votes v = count_votes(csv, indices[i]);
        const bool fits = !are_separated_otherwise(p, csv) && (!v.n_groups_point || fraction == '.' || groups == '.') &&
                          (!v.n_groups_comma || fraction == ',' || groups == ',');
        n_point += v.n_only_point, n_comma += v.n_only_comma;
        if ((v.n_groups_point || v.n_groups_comma) && !fits && doubtful < 0) doubtful = indices[i], first = v;
    }
    if (!decimal && (n_point > 0) != (n_comma > 0)) decimal = n_point ? '.' : ',';
    *out = (strata_table_reading){format_of(decimal ? decimal : before, asked), asked->dates};
    if (decimal || doubtful < 0) return STRATA_OK;
    if (n_point && n_comma) return STRATA_OK; /* the cell that does not fit is reported with its line */
    return doubt(p, csv, doubtful, first.doubtful_row, err);
}
