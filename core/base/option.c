/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads options from JSON and writes them, by a table of the options. */
#include "core/base/option.h"

#include <math.h>
#include <stdlib.h>

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

/* Checks that the value is a list of at most `most` items. */
static strata_status check_list(const strata_json *list, int most, const char *items, strata_error *err) {
    STRATA_TRY(strata_json_expect(list, STRATA_JSON_ARRAY, err));
    if (strata_json_length(list) <= most) return STRATA_OK;
    return strata_json_fail(list, err, STRATA_DATA, "has %lld %s; at most %d", (long long)strata_json_length(list), items,
                            most);
}

static strata_status read_numbers(const strata_json *list, const strata_option *option, strata_numbers *out,
                                  strata_error *err) {
    strata_json item;
    STRATA_TRY(check_list(list, STRATA_MAX_NUMBERS, "numbers", err));
    out->n = 0;
    for (bool more = strata_json_first(list, &item); more; more = strata_json_next(&item))
        STRATA_TRY(strata_json_to_number(&item, option->least, option->most, &out->values[out->n++], err));
    return STRATA_OK;
}

static strata_status read_shape(const strata_json *list, const strata_option *option, strata_shape *out, strata_error *err) {
    strata_json item;
    STRATA_TRY(check_list(list, STRATA_MAX_RANK, "dimensions", err));
    *out = (strata_shape){0};
    for (bool more = strata_json_first(list, &item); more; more = strata_json_next(&item))
        STRATA_TRY(strata_json_to_int(&item, (int64_t)option->least, (int64_t)option->most, &out->dims[out->rank++], err));
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
            return read_numbers(&value, option, target, err);
        case STRATA_OPTION_SHAPE:
            return read_shape(&value, option, target, err);
        default:
            return read_ints(&value, option, target, err);
    }
}

strata_status strata_options_read(const strata_json *object, const strata_option *table, const char *const *also, size_t n_also,
                                  void *options, strata_error *err) {
    size_t n_known = n_also;
    STRATA_TRY(strata_json_expect(object, STRATA_JSON_OBJECT, err));
    for (const strata_option *option = table; option->name; option++) n_known++;
    const char **known = calloc(n_known + 1, sizeof *known);
    if (!known) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %zu options", n_known);
    for (size_t i = 0; i < n_known; i++) known[i] = i < n_also ? also[i] : table[i - n_also].name;
    const strata_status status = strata_json_check_keys(object, known, n_known, err);
    free(known);
    if (status) return status;
    for (const strata_option *option = table; option->name; option++) STRATA_TRY(read_option(object, option, options, err));
    return STRATA_OK;
}

/* ---- checking ---- */

/* A field that is not given consists of bytes 0; STRATA_ZERO has a sign. */
static bool is_given(const strata_option *option, const void *options) {
    const unsigned char *value = (const unsigned char *)options + option->offset;
    if (option->kind == STRATA_OPTION_NUMBERS) return ((const strata_numbers *)(const void *)value)->n != 0;
    if (option->kind == STRATA_OPTION_SHAPE) return ((const strata_shape *)(const void *)value)->rank != 0;
    for (size_t i = 0; i < kinds[option->kind].bytes; i++)
        if (value[i]) return true;
    return false;
}

static strata_status check_ints(const strata_option *option, const int64_t *values, int n, strata_error *err) {
    for (int i = 0; i < n; i++)
        if ((double)values[i] < option->least || (double)values[i] > option->most)
            return strata_fail(err, STRATA_INVALID, "%s is %lld; it must be %.0f..%.0f", option->name, (long long)values[i],
                               option->least, option->most);
    return STRATA_OK;
}

static strata_status check_number(const strata_option *option, double value, strata_error *err) {
    if (value >= option->least && value <= option->most) return STRATA_OK;
    if (isnan(value) && option->least == -HUGE_VAL && option->most == HUGE_VAL) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s is %g; it must be %g..%g", option->name, strata_number_shown(value),
                       option->least, option->most);
}

static strata_status check_option(const strata_option *option, const void *options, strata_error *err) {
    const void *value = (const char *)options + option->offset;
    const strata_numbers *numbers = value;
    const strata_shape *shape = value;
    switch (option->kind) {
        case STRATA_OPTION_NUMBER:
            return check_number(option, *(const double *)value, err);
        case STRATA_OPTION_NUMBERS:
            for (int i = 0; i < numbers->n && i < STRATA_MAX_NUMBERS; i++)
                STRATA_TRY(check_number(option, numbers->values[i], err));
            return STRATA_OK;
        case STRATA_OPTION_SHAPE:
            return check_ints(option, shape->dims, shape->rank, err);
        case STRATA_OPTION_BOOL:
            return STRATA_OK;
        case STRATA_OPTION_STRING:
        case STRATA_OPTION_ACTIVATION:
            return *(const char *const *)value ? STRATA_OK : strata_fail(err, STRATA_INVALID, "%s is missing", option->name);
        default:
            return check_ints(option, value, kinds[option->kind].n_ints, err);
    }
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

static void write_numbers(strata_json_writer *w, const strata_numbers *numbers) {
    strata_json_begin_array(w);
    for (int i = 0; i < numbers->n; i++) strata_json_write_any_number(w, numbers->values[i]);
    strata_json_end_array(w);
}

static void write_option(strata_json_writer *w, const strata_option *option, const void *options) {
    const void *value = (const char *)options + option->offset;
    if (!option->required && !is_given(option, options)) return;
    strata_json_key(w, option->name);
    switch (option->kind) {
        case STRATA_OPTION_NUMBER:
            strata_json_write_any_number(w, strata_number_shown(*(const double *)value));
            break;
        case STRATA_OPTION_BOOL:
            strata_json_write_bool(w, *(const bool *)value);
            break;
        case STRATA_OPTION_STRING:
        case STRATA_OPTION_ACTIVATION:
            strata_json_write_string(w, is_given(option, options) ? *(const char *const *)value : "");
            break;
        case STRATA_OPTION_NUMBERS:
            write_numbers(w, value);
            break;
        case STRATA_OPTION_SHAPE:
            strata_json_write_ints(w, ((const strata_shape *)value)->dims, ((const strata_shape *)value)->rank);
            break;
        default:
            if (kinds[option->kind].n_ints == 1)
                strata_json_write_int(w, *(const int64_t *)value);
            else
                strata_json_write_ints(w, value, kinds[option->kind].n_ints);
            break;
    }
}

void strata_options_write(strata_json_writer *writer, const strata_option *table, const void *options) {
    for (const strata_option *option = table; option->name; option++) write_option(writer, option, options);
}
