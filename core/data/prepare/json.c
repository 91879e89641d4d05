/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a preprocessing as JSON, and reading it. A model's file contains this text.
 *   {"kind": "table", "header": ["a", "kind"], "columns": [{"name": "a", "kind": "number", "mean": 3, "deviation": 2}],
 *    "labels": [{"name": "kind", "kind": "words", "words": ["ham", "spam"]}]} */
#include "core/base/json.h"

#include <float.h>

#include "core/data/format/csv.h"
#include "core/data/prepare/preprocessing.h"

static const char *const kinds[] = {"table", "texts", "pictures", "arrays"};
enum { N_KINDS = 4, MOST_BYTES = 256 << 20, MOST_COLUMNS = 1 << 20, MOST_WORDS = 1 << 20 };

/* ---- writing ---- */

static void write_names(strata_json_writer *w, const char *key, char *const *names, int n) {
    strata_json_begin_array_at(w, key);
    for (int i = 0; i < n; i++) strata_json_write_string(w, names[i]);
    strata_json_end_array(w);
}

static void write_flag(strata_json_writer *w, const char *key, bool value) {
    if (value) strata_json_write_bool(strata_json_key(w, key), true);
}

static void write_column(strata_json_writer *w, const strata_column *column) {
    strata_json_begin_object(w);
    strata_json_put_string(w, "name", column->name);
    strata_json_put_string(w, "kind", strata_column_kinds[column->kind]);
    if (column->kind == STRATA_COLUMN_NUMBER || column->kind == STRATA_COLUMN_DATE) {
        strata_json_write_double(strata_json_key(w, "mean"), column->mean);
        strata_json_write_double(strata_json_key(w, "deviation"), column->deviation);
    }
    if (column->kind == STRATA_COLUMN_DATE) strata_json_put_string(w, "format", strata_date_format_name(column->date_format));
    if (column->kind == STRATA_COLUMN_WORDS) write_names(w, "words", column->words, column->n_words);
    if (column->n_rare) write_names(w, "rare", column->rare, column->n_rare);
    write_flag(w, "has_time", column->has_time);
    write_flag(w, "has_missing", column->has_missing);
    write_flag(w, "numeric", column->numeric);
    write_flag(w, "only_blank", column->only_blank);
    strata_json_end_object(w);
}

/* Writes a character as a text of one character; 0: nothing. STRATA_CSV_NONE is "none". */
static void write_character(strata_json_writer *w, const char *key, char character) {
    const char text[2] = {character, 0};
    if (character) strata_json_put_string(w, key, character == STRATA_CSV_NONE ? "none" : text);
}

static void write_dialect(strata_json_writer *w, const strata_preprocessing *p) {
    const strata_csv_dialect *d = &p->dialect;
    strata_json_begin_object(strata_json_key(w, "dialect"));
    write_character(w, "separator", d->separator);
    write_character(w, "quote", d->quote);
    if (d->header) strata_json_write_bool(strata_json_key(w, "header"), d->header == STRATA_CSV_HEADER_YES);
    write_character(w, "decimal", d->decimal);
    write_character(w, "thousands", d->thousands);
    if (d->dates) strata_json_put_string(w, "dates", strata_date_orders[d->dates]);
    if (p->na) write_names(w, "na", p->na, d->n_na);
    strata_json_end_object(w);
}

static void write_columns(strata_json_writer *w, const char *key, const strata_column *columns, int n) {
    strata_json_begin_array_at(w, key);
    for (int i = 0; i < n; i++) write_column(w, &columns[i]);
    strata_json_end_array(w);
}

strata_status strata_preprocessing_to_json(const strata_preprocessing *p, char **out_text, strata_error *err) {
    strata_json_writer w = {0};
    strata_json_begin_object(&w);
    strata_json_put_string(&w, "kind", kinds[p->kind]);
    write_names(&w, "header", p->header, p->n_header);
    if (p->kind == STRATA_PREPROCESSING_TABLE || p->kind == STRATA_PREPROCESSING_TEXTS) write_dialect(&w, p);
    write_columns(&w, "columns", p->columns, p->n_columns);
    write_columns(&w, "labels", p->labels, p->n_labels);
    if (p->weight) strata_json_put_string(&w, "weight", p->weight);
    if (strata_preprocessing_has_texts(p)) strata_json_put_int(&w, "length", p->length);
    if (p->element.rank) strata_json_put_shape(&w, "element", p->element);
    strata_json_end_object(&w);
    return strata_json_take(&w, out_text, NULL, err);
}

/* ---- reading ---- */

static strata_status read_kind(const strata_json *object, const char *const *names, int *out, strata_error *err) {
    strata_json value;
    const char *text = NULL;
    STRATA_TRY(strata_json_get(object, "kind", &value, err));
    STRATA_TRY(strata_json_to_string(&value, &text, err));
    for (*out = 0; *out < N_KINDS; ++*out)
        if (!strcmp(text, names[*out])) return STRATA_OK;
    return strata_json_fail(&value, err, STRATA_DATA, "there is no kind \"%.40s\"", text);
}

static strata_status read_names(const strata_json *object, const char *key, char ***out_names, int *out_n, strata_error *err) {
    strata_json list, item;
    STRATA_TRY(strata_json_get_array(object, key, &list, err));
    const int64_t n = strata_json_length(&list);
    if (n > MOST_WORDS) return strata_json_fail(&list, err, STRATA_DATA, "%lld names are too many", (long long)n);
    STRATA_FREED const char **names = NULL;
    STRATA_TRY(STRATA_NEW(names, n, err, "no host memory for %lld names", (long long)n));
    *out_n = 0;
    for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item))
        STRATA_TRY(strata_json_to_string(&item, &names[(*out_n)++], err));
    return strata_names_copy(names, *out_n, out_names, err);
}

static strata_status copy_text(const strata_json *object, const char *key, strata_json_presence presence, char **out,
                               strata_error *err) {
    const char *text = NULL;
    STRATA_TRY(strata_json_get_string(object, key, presence, &text, err));
    if (text && !(*out = strdup(text))) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a name");
    return STRATA_OK;
}

static strata_status read_format(const strata_json *object, int *out, strata_error *err) {
    const char *text = NULL;
    STRATA_TRY(strata_json_get_string(object, "format", STRATA_JSON_REQUIRED, &text, err));
    for (*out = 0; *out < STRATA_DATE_FORMATS; ++*out)
        if (!strcmp(text, strata_date_format_name(*out))) return STRATA_OK;
    *out = 0;
    return strata_json_fail(object, err, STRATA_DATA, "there is no format of dates \"%.40s\"", text);
}

/* Words are found by binary search, so they must be sorted. */
static strata_status check_words(const strata_json *object, const strata_column *column, strata_error *err) {
    for (int i = 0; i < column->n_words + column->n_rare; i++) {
        const char *word = i < column->n_words ? column->words[i] : column->rare[i - column->n_words];
        if (strata_column_word(column, word, NULL) != (i < column->n_words ? i : column->n_words))
            return strata_json_fail(object, err, STRATA_DATA, "the words are not sorted: \"%.40s\" is in the wrong position",
                                    word);
    }
    return STRATA_OK;
}

static strata_status read_character(const strata_json *object, const char *key, char *out, strata_error *err) {
    const char *text = NULL;
    STRATA_TRY(strata_json_get_string(object, key, STRATA_JSON_OPTIONAL, &text, err));
    if (!text) return STRATA_OK;
    *out = strcmp(text, "none") ? *text : STRATA_CSV_NONE;
    return *out && (strlen(text) == 1 || *out == STRATA_CSV_NONE)
               ? STRATA_OK
               : strata_json_fail(object, err, STRATA_DATA, "\"%s\" is \"%.40s\"; it must be one character", key, text);
}

static strata_status read_dialect(const strata_json *root, strata_preprocessing *p, strata_error *err) {
    static const char *const known[] = {"separator", "quote", "header", "decimal", "thousands", "dates", "na"};
    strata_csv_dialect *d = &p->dialect;
    strata_json object, unused;
    const char *order = NULL;
    bool header = false;
    d->thousands = STRATA_CSV_NONE; /* before 0.2, models did not contain the dialect of their table */
    if (!strata_json_find(root, "dialect", &object)) return STRATA_OK;
    STRATA_TRY(strata_json_expect(&object, STRATA_JSON_OBJECT, err));
    STRATA_TRY(strata_json_check_keys(&object, known, sizeof known / sizeof *known, err));
    STRATA_TRY(read_character(&object, "separator", &d->separator, err));
    STRATA_TRY(read_character(&object, "quote", &d->quote, err));
    STRATA_TRY(read_character(&object, "decimal", &d->decimal, err));
    d->thousands = 0;
    STRATA_TRY(read_character(&object, "thousands", &d->thousands, err));
    STRATA_TRY(strata_json_get_bool(&object, "header", STRATA_JSON_OPTIONAL, &header, err));
    if (strata_json_find(&object, "header", &unused)) d->header = header ? STRATA_CSV_HEADER_YES : STRATA_CSV_HEADER_NO;
    STRATA_TRY(strata_json_get_string(&object, "dates", STRATA_JSON_OPTIONAL, &order, err));
    for (int i = 1; order && !d->dates; i++) {
        if (i > STRATA_DATE_YMD)
            return strata_json_fail(&object, err, STRATA_DATA, "there is no order of dates \"%.40s\"", order);
        if (!strcmp(order, strata_date_orders[i])) d->dates = (strata_date_order)i;
    }
    if (strata_json_find(&object, "na", &unused)) STRATA_TRY(read_names(&object, "na", &p->na, &d->n_na, err));
    d->na = (const char *const *)p->na;
    const strata_status status = strata_csv_check_dialect(d, err);
    return status ? strata_fail_in(err, STRATA_DATA, "dialect") : STRATA_OK;
}

/* Before 0.2, columns of numbers with a decimal comma had the flag "decimal_comma". */
static strata_status read_decimal_commas(const strata_json *root, strata_preprocessing *p, strata_error *err) {
    static const char *const lists[] = {"columns", "labels"};
    strata_json list, item;
    for (int i = 0; i < 2; i++) {
        STRATA_TRY(strata_json_get(root, lists[i], &list, err));
        for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item)) {
            bool comma = false;
            STRATA_TRY(strata_json_get_bool(&item, "decimal_comma", STRATA_JSON_OPTIONAL, &comma, err));
            if (comma) p->dialect.decimal = ',', p->dialect.thousands = '.';
        }
    }
    return STRATA_OK;
}

static strata_status read_column(const strata_json *object, const strata_csv_dialect *dialect, strata_column *column,
                                 strata_error *err) {
    static const char *const known[] = {"name", "kind",          "mean",     "deviation",   "format",  "words",
                                        "rare", "decimal_comma", "has_time", "has_missing", "numeric", "only_blank"};
    int kind = 0;
    bool comma = false;
    STRATA_TRY(strata_json_expect(object, STRATA_JSON_OBJECT, err));
    STRATA_TRY(strata_json_check_keys(object, known, sizeof known / sizeof *known, err));
    STRATA_TRY(copy_text(object, "name", STRATA_JSON_REQUIRED, &column->name, err));
    STRATA_TRY(read_kind(object, strata_column_kinds, &kind, err));
    column->kind = (strata_column_kind)kind;
    if (kind == STRATA_COLUMN_NUMBER || kind == STRATA_COLUMN_DATE) {
        STRATA_TRY(strata_json_get_number(object, "mean", STRATA_JSON_REQUIRED, -DBL_MAX, DBL_MAX, &column->mean, err));
        STRATA_TRY(
            strata_json_get_number(object, "deviation", STRATA_JSON_REQUIRED, DBL_MIN, DBL_MAX, &column->deviation, err));
    }
    if (kind == STRATA_COLUMN_DATE) STRATA_TRY(read_format(object, &column->date_format, err));
    STRATA_TRY(strata_json_get_bool(object, "decimal_comma", STRATA_JSON_OPTIONAL, &comma, err));
    column->format = comma || dialect->decimal == ',' ? strata_decimal_comma : strata_decimal_point;
    STRATA_TRY(strata_json_get_bool(object, "has_time", STRATA_JSON_OPTIONAL, &column->has_time, err));
    STRATA_TRY(strata_json_get_bool(object, "has_missing", STRATA_JSON_OPTIONAL, &column->has_missing, err));
    STRATA_TRY(strata_json_get_bool(object, "numeric", STRATA_JSON_OPTIONAL, &column->numeric, err));
    STRATA_TRY(strata_json_get_bool(object, "only_blank", STRATA_JSON_OPTIONAL, &column->only_blank, err));
    if (kind != STRATA_COLUMN_WORDS) return STRATA_OK;
    strata_json rare;
    STRATA_TRY(read_names(object, "words", &column->words, &column->n_words, err));
    if (strata_json_find(object, "rare", &rare)) STRATA_TRY(read_names(object, "rare", &column->rare, &column->n_rare, err));
    return check_words(object, column, err);
}

static strata_status read_columns(const strata_json *root, const char *key, const strata_csv_dialect *dialect,
                                  strata_column **out, int *out_n, strata_error *err) {
    strata_json list, item;
    STRATA_TRY(strata_json_get_array(root, key, &list, err));
    const int64_t n = strata_json_length(&list);
    if (n > MOST_COLUMNS) return strata_json_fail(&list, err, STRATA_DATA, "%lld columns are too many", (long long)n);
    STRATA_TRY(STRATA_NEW(*out, n, err, "no host memory for %lld columns", (long long)n));
    for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item))
        STRATA_TRY(read_column(&item, dialect, &(*out)[(*out_n)++], err));
    return STRATA_OK;
}

static strata_status read_element(const strata_json *root, strata_shape *out, strata_error *err) {
    strata_json list, item;
    if (!strata_json_find(root, "element", &list)) return STRATA_OK;
    STRATA_TRY(strata_json_expect(&list, STRATA_JSON_ARRAY, err));
    for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item)) {
        if (out->rank == STRATA_MAX_RANK - 1) return strata_json_fail(&list, err, STRATA_DATA, "has too many axes");
        STRATA_TRY(strata_json_to_int(&item, 1, INT32_MAX, &out->dims[out->rank++], err));
    }
    return strata_shape_check(*out, err);
}

/* Checks that the preprocessing has what its kind needs. */
static strata_status check(const strata_json *root, const strata_preprocessing *p, strata_error *err) {
    const bool pictures = p->kind == STRATA_PREPROCESSING_PICTURES;
    if (p->n_labels < 1) return strata_json_fail(root, err, STRATA_DATA, "has no label");
    if (p->n_columns < 1 && !pictures) return strata_json_fail(root, err, STRATA_DATA, "has no column");
    if (pictures && (p->element.rank != 3 || (p->element.dims[2] != 1 && p->element.dims[2] != 3)))
        return strata_json_fail(root, err, STRATA_DATA, "pictures are %s; they must be (rows, columns, 1 or 3)",
                                strata_shape_text(p->element).text);
    if (p->kind == STRATA_PREPROCESSING_ARRAYS && p->element.rank < 1)
        return strata_json_fail(root, err, STRATA_DATA, "has no \"element\"");
    int64_t n_numbers = 0;
    for (int i = 0; i < p->n_columns; i++) n_numbers += strata_column_width(&p->columns[i]);
    if (p->kind == STRATA_PREPROCESSING_TABLE && !n_numbers)
        return strata_json_fail(root, err, STRATA_DATA, "is a table whose columns have no feature");
    for (int i = 0; i < p->n_columns && p->kind != STRATA_PREPROCESSING_TABLE; i++)
        if ((p->columns[i].kind == STRATA_COLUMN_TEXT) != (p->kind == STRATA_PREPROCESSING_TEXTS))
            return strata_json_fail(root, err, STRATA_DATA, "column \"%.40s\" is of a kind that %s do not have",
                                    p->columns[i].name, kinds[p->kind]);
    for (int i = 0; i < p->n_columns && p->kind == STRATA_PREPROCESSING_ARRAYS; i++)
        if (p->columns[i].kind != STRATA_COLUMN_NUMBER)
            return strata_json_fail(root, err, STRATA_DATA, "arrays have numbers only");
    for (int i = 0; i < p->n_labels; i++)
        if (p->labels[i].kind != STRATA_COLUMN_NUMBER && (p->labels[i].kind != STRATA_COLUMN_WORDS || p->n_labels > 1))
            return strata_json_fail(root, err, STRATA_DATA, "label \"%.40s\" is neither a number nor the only class",
                                    p->labels[i].name);
    return STRATA_OK;
}

static strata_status read_all(const strata_json *root, strata_preprocessing *p, strata_error *err) {
    static const char *const known[] = {"kind", "header", "dialect", "columns", "labels", "weight", "length", "element"};
    int kind = 0;
    STRATA_TRY(strata_json_expect(root, STRATA_JSON_OBJECT, err));
    STRATA_TRY(strata_json_check_keys(root, known, sizeof known / sizeof *known, err));
    STRATA_TRY(read_kind(root, kinds, &kind, err));
    p->kind = (strata_preprocessing_kind)kind;
    STRATA_TRY(read_names(root, "header", &p->header, &p->n_header, err));
    STRATA_TRY(read_dialect(root, p, err));
    STRATA_TRY(read_columns(root, "columns", &p->dialect, &p->columns, &p->n_columns, err));
    STRATA_TRY(read_columns(root, "labels", &p->dialect, &p->labels, &p->n_labels, err));
    STRATA_TRY(read_decimal_commas(root, p, err));
    STRATA_TRY(copy_text(root, "weight", STRATA_JSON_OPTIONAL, &p->weight, err));
    if (strata_preprocessing_has_texts(p))
        STRATA_TRY(strata_json_get_int(root, "length", STRATA_JSON_REQUIRED, 1, INT32_MAX, &p->length, err));
    STRATA_TRY(read_element(root, &p->element, err));
    p->measured = true;
    return check(root, p, err);
}

strata_status strata_preprocessing_from_json(const char *text, size_t n_bytes, const char *source,
                                             strata_preprocessing **out_preprocessing, strata_error *err) {
    STRATA_FINISHED(strata_json) root = {0};
    STRATA_OWNED(strata_preprocessing) *p = NULL;
    STRATA_TRY(strata_json_parse(source, text, n_bytes, MOST_BYTES, &root, err));
    STRATA_TRY(STRATA_NEW(p, 1, err, "%s: no host memory", source));
    STRATA_TRY(read_all(&root, p, err));
    *out_preprocessing = strata_released(&p);
    return STRATA_OK;
}
