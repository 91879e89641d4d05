/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads options from JSON and writes them, by a table of the options. */
#include "core/base/option.h"

#include <math.h>

#include "core/base/alloc.h"
#include "core/base/json.h"

bool strata_number_is_given(double value) {
    return value != 0 || signbit(value);
}

double strata_number_or(double value, double otherwise) {
    return strata_number_is_given(value) ? value : otherwise;
}

double strata_number_shown(double value) {
    return value == 0 ? 0 : value;
}

/* Kinds of options: the bytes of a field. For integers also how many there are, of which messages name the entries. */
static const struct {
    size_t bytes;
    int n_ints;
    const char *entries;
} kinds[] = {
    [STRATA_OPTION_INT] = {sizeof(int64_t), 1, ""},
    [STRATA_OPTION_PAIR] = {sizeof(int64_t[2]), 2, "height, width"},
    [STRATA_OPTION_BORDER_1D] = {sizeof(int64_t[2]), 2, "before, after"},
    [STRATA_OPTION_BORDER_2D] = {sizeof(int64_t[4]), 4, "top, bottom, left, right"},
    [STRATA_OPTION_NUMBER] = {sizeof(double), 0, NULL},
    [STRATA_OPTION_BOOL] = {sizeof(bool), 0, NULL},
    [STRATA_OPTION_STRING] = {sizeof(char *), 0, NULL},
    [STRATA_OPTION_NUMBERS] = {sizeof(strata_numbers), 0, NULL},
    [STRATA_OPTION_SHAPE] = {sizeof(strata_shape), 0, NULL},
    [STRATA_OPTION_ACTIVATION] = {sizeof(char *), 0, NULL},
    [STRATA_OPTION_COUNT] = {sizeof(int64_t), 1, ""},
};

bool strata_option_is_text(strata_option_kind kind) {
    return kind == STRATA_OPTION_STRING || kind == STRATA_OPTION_ACTIVATION;
}

size_t strata_option_bytes(strata_option_kind kind) {
    return (unsigned)kind < sizeof kinds / sizeof *kinds ? kinds[kind].bytes : 0;
}

/* ---- reading ---- */

/* Reads a list of numbers, or the dimensions of a shape. */
static strata_status read_list(const strata_json *list, const strata_option *option, void *out, strata_error *err) {
    strata_json item;
    strata_numbers *numbers = option->kind == STRATA_OPTION_NUMBERS ? out : NULL;
    strata_shape shape = {0};
    const int most = numbers ? STRATA_MAX_NUMBERS : STRATA_MAX_RANK;
    STRATA_TRY(strata_json_expect(list, STRATA_JSON_ARRAY, err));
    if (strata_json_length(list) > most)
        return strata_json_fail(list, err, STRATA_DATA, "has %lld %s; at most %d", (long long)strata_json_length(list),
                                numbers ? "numbers" : "dimensions", most);
    if (numbers) numbers->n = 0;
    for (bool more = strata_json_first(list, &item); more; more = strata_json_next(&item))
        STRATA_TRY(
            numbers ? strata_json_to_number(&item, option->least, option->most, &numbers->values[numbers->n++], err)
                    : strata_json_to_int(&item, (int64_t)option->least, (int64_t)option->most, &shape.dims[shape.rank++], err));
    if (!numbers) *(strata_shape *)out = shape;
    return STRATA_OK;
}

/* Reads a list of integers, or one integer that is used for all. */
static strata_status read_ints(const strata_json *value, const strata_option *option, int64_t *out, strata_error *err) {
    strata_json item;
    const int n = kinds[option->kind].n_ints;
    const int64_t least = (int64_t)option->least, most = (int64_t)option->most;
    if (n == 1 || strata_json_kind_of(value) != STRATA_JSON_ARRAY) {
        STRATA_TRY(strata_json_to_int(value, least, most, &out[0], err));
        for (int i = 1; i < n; i++) out[i] = out[0];
        if (option->kind != STRATA_OPTION_COUNT || *out) return STRATA_OK;
        return strata_json_fail(value, err, STRATA_DATA, "is 0; it must be %.0f..%.0f and not 0; leave it out for its default",
                                option->least, option->most);
    }
    if (strata_json_length(value) != n)
        return strata_json_fail(value, err, STRATA_DATA, "has %lld elements; it must be one number or [%s]",
                                (long long)strata_json_length(value), kinds[option->kind].entries);
    for (bool more = strata_json_first(value, &item); more; more = strata_json_next(&item))
        STRATA_TRY(strata_json_to_int(&item, least, most, out++, err));
    return STRATA_OK;
}

strata_status strata_option_read_number(const strata_json *object, const char *key, bool required, double least, double most,
                                        double *out, strata_error *err) {
    const strata_json_presence presence = required ? STRATA_JSON_REQUIRED : STRATA_JSON_OPTIONAL;
    strata_json found;
    STRATA_TRY(strata_json_get_number(object, key, presence, least, most, out, err));
    if (*out == 0 && strata_json_find(object, key, &found)) *out = STRATA_ZERO;
    return STRATA_OK;
}

static strata_status read_option(const strata_json *object, const strata_option *option, void *options, strata_error *err) {
    void *target = (char *)options + option->offset;
    strata_json value;
    if (!option->required && !strata_json_find(object, option->name, &value)) return STRATA_OK;
    STRATA_TRY(strata_json_get(object, option->name, &value, err));
    switch (option->kind) {
        case STRATA_OPTION_NUMBER:
            return strata_option_read_number(object, option->name, option->required, option->least, option->most, target, err);
        case STRATA_OPTION_BOOL:
            return strata_json_to_bool(&value, target, err);
        case STRATA_OPTION_STRING:
        case STRATA_OPTION_ACTIVATION:
            return strata_json_to_string(&value, target, err);
        case STRATA_OPTION_NUMBERS:
        case STRATA_OPTION_SHAPE:
            return read_list(&value, option, target, err);
        default:
            return read_ints(&value, option, target, err);
    }
}

strata_status strata_options_read(const strata_json *object, const strata_option *table, const char *const *also, size_t n_also,
                                  void *options, strata_error *err) {
    size_t n_known = n_also;
    STRATA_TRY(strata_json_expect(object, STRATA_JSON_OBJECT, err));
    for (const strata_option *option = table; option->name; option++) n_known++;
    STRATA_FREED const char **known = NULL;
    STRATA_TRY(STRATA_NEW(known, n_known, err, "no host memory for %zu options", n_known));
    for (size_t i = 0; i < n_known; i++) known[i] = i < n_also ? also[i] : table[i - n_also].name;
    STRATA_TRY(strata_json_check_keys(object, known, n_known, err));
    for (const strata_option *option = table; option->name; option++) STRATA_TRY(read_option(object, option, options, err));
    return STRATA_OK;
}

/* ---- checking ---- */

/* The n integers or numbers of a field. `list`: they are written as a list. */
typedef struct values {
    const int64_t *ints;
    const double *numbers;
    int n;
    bool list;
} values;

static values values_of(const strata_option *option, const void *options) {
    const void *value = (const char *)options + option->offset;
    const strata_numbers *numbers = value;
    const strata_shape *shape = value;
    const int n_ints = kinds[option->kind].n_ints;
    if (option->kind == STRATA_OPTION_NUMBER) return (values){.numbers = value, .n = 1};
    if (option->kind == STRATA_OPTION_NUMBERS)
        return (values){
            .numbers = numbers->values, .n = numbers->n < STRATA_MAX_NUMBERS ? numbers->n : STRATA_MAX_NUMBERS, .list = true};
    if (option->kind == STRATA_OPTION_SHAPE) return (values){.ints = shape->dims, .n = shape->rank, .list = true};
    return (values){.ints = value, .n = n_ints, .list = n_ints > 1};
}

/* A field that is not given consists of bytes 0, or is an empty list; STRATA_ZERO has a sign. */
static bool is_given(const strata_option *option, const void *options) {
    const unsigned char *value = (const unsigned char *)options + option->offset;
    if (option->kind == STRATA_OPTION_NUMBERS || option->kind == STRATA_OPTION_SHAPE) return values_of(option, options).n != 0;
    for (size_t i = 0; i < kinds[option->kind].bytes; i++)
        if (value[i]) return true;
    return false;
}

static strata_status check_number(const strata_option *option, double value, strata_error *err) {
    if (value >= option->least && value <= option->most) return STRATA_OK;
    if (isnan(value) && option->least == -HUGE_VAL && option->most == HUGE_VAL) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s is %g; it must be %g..%g", option->name, strata_number_shown(value),
                       option->least, option->most);
}

static strata_status check_option(const strata_option *option, const void *options, strata_error *err) {
    const values v = values_of(option, options);
    if (strata_option_is_text(option->kind) && !is_given(option, options))
        return strata_fail(err, STRATA_INVALID, "%s is missing", option->name);
    for (int i = 0; i < v.n; i++) {
        if (v.numbers)
            STRATA_TRY(check_number(option, v.numbers[i], err));
        else if ((double)v.ints[i] < option->least || (double)v.ints[i] > option->most)
            return strata_fail(err, STRATA_INVALID, "%s is %lld; it must be %.0f..%.0f", option->name, (long long)v.ints[i],
                               option->least, option->most);
    }
    return STRATA_OK;
}

strata_status strata_options_check(const strata_option *table, const void *options, strata_error *err) {
    for (const strata_option *option = table; option->name; option++)
        if (option->required || is_given(option, options)) STRATA_TRY(check_option(option, options, err));
    return STRATA_OK;
}

bool strata_options_given(const strata_option *table, const void *options) {
    for (const strata_option *option = table; option->name; option++)
        if (is_given(option, options)) return true;
    return false;
}

/* ---- writing ---- */

static void write_option(strata_json_writer *w, const strata_option *option, const void *options) {
    const void *value = (const char *)options + option->offset;
    const values v = values_of(option, options);
    strata_json_key(w, option->name);
    if (option->kind == STRATA_OPTION_BOOL) strata_json_write_bool(w, *(const bool *)value);
    if (strata_option_is_text(option->kind))
        strata_json_write_string(w, is_given(option, options) ? *(const char *const *)value : "");
    if (v.list) strata_json_begin_array(w);
    for (int i = 0; i < v.n; i++) {
        if (v.numbers)
            strata_json_write_any_number(w, v.list ? v.numbers[i] : strata_number_shown(v.numbers[i]));
        else
            strata_json_write_int(w, v.ints[i]);
    }
    if (v.list) strata_json_end_array(w);
}

void strata_options_write(strata_json_writer *writer, const strata_option *table, const void *options) {
    for (const strata_option *option = table; option->name; option++)
        if (option->required || is_given(option, options)) write_option(writer, option, options);
}
