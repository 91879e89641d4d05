/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads options from JSON and writes them, by a table of the options. */
#include "core/base/option.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/json.h"

static strata_status read_numbers(const strata_json *object, const strata_option *option, strata_numbers *out,
                                  strata_error *err) {
    strata_json list, item;
    if (!strata_json_find(object, option->name, &list)) {
        if (!option->required) return STRATA_OK;
        return strata_json_get(object, option->name, &list, err);
    }
    STRATA_TRY(strata_json_expect(&list, STRATA_JSON_ARRAY, err));
    if (strata_json_length(&list) > STRATA_MAX_NUMBERS)
        return strata_json_fail(&list, err, STRATA_DATA, "has %lld numbers; at most %d", (long long)strata_json_length(&list),
                                STRATA_MAX_NUMBERS);
    out->n = 0;
    for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item))
        STRATA_TRY(strata_json_to_number(&item, option->least, option->most, &out->values[out->n++], err));
    return STRATA_OK;
}

/* Reads a list of n integers, or one integer that is used for all n. names: the names of the n entries, for
 * messages. */
static strata_status read_ints(const strata_json *object, const strata_option *option, int n, const char *names, int64_t *out,
                               strata_error *err) {
    strata_json value, item;
    const int64_t least = (int64_t)option->least, most = (int64_t)option->most;
    if (!option->required && !strata_json_find(object, option->name, &value)) return STRATA_OK;
    STRATA_TRY(strata_json_get(object, option->name, &value, err));
    if (strata_json_kind_of(&value) != STRATA_JSON_ARRAY) {
        STRATA_TRY(strata_json_to_int(&value, least, most, &out[0], err));
        for (int i = 1; i < n; i++) out[i] = out[0];
        return STRATA_OK;
    }
    if (strata_json_length(&value) != n)
        return strata_json_fail(&value, err, STRATA_DATA, "has %lld elements; it must be one number or [%s]",
                                (long long)strata_json_length(&value), names);
    for (bool more = strata_json_first(&value, &item); more; more = strata_json_next(&item))
        STRATA_TRY(strata_json_to_int(&item, least, most, out++, err));
    return STRATA_OK;
}

static strata_status read_shape(const strata_json *object, const strata_option *option, strata_shape *out, strata_error *err) {
    strata_json list, item;
    if (!option->required && !strata_json_find(object, option->name, &list)) return STRATA_OK;
    STRATA_TRY(strata_json_get(object, option->name, &list, err));
    STRATA_TRY(strata_json_expect(&list, STRATA_JSON_ARRAY, err));
    if (strata_json_length(&list) > STRATA_MAX_RANK)
        return strata_json_fail(&list, err, STRATA_DATA, "has %lld dimensions; at most %d",
                                (long long)strata_json_length(&list), STRATA_MAX_RANK);
    *out = (strata_shape){0};
    for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item))
        STRATA_TRY(strata_json_to_int(&item, (int64_t)option->least, (int64_t)option->most, &out->dims[out->rank++], err));
    return STRATA_OK;
}

static strata_status read_option(const strata_json *object, const strata_option *option, void *options, strata_error *err) {
    strata_json_presence presence = option->required ? STRATA_JSON_REQUIRED : STRATA_JSON_OPTIONAL;
    void *target = (char *)options + option->offset;
    switch (option->kind) {
        case STRATA_OPTION_INT:
            return strata_json_get_int(object, option->name, presence, (int64_t)option->least, (int64_t)option->most, target,
                                       err);
        case STRATA_OPTION_PAIR:
            return read_ints(object, option, 2, "height, width", target, err);
        case STRATA_OPTION_BORDER_1D:
            return read_ints(object, option, 2, "before, after", target, err);
        case STRATA_OPTION_BORDER_2D:
            return read_ints(object, option, 4, "top, bottom, left, right", target, err);
        case STRATA_OPTION_NUMBER:
            return strata_json_get_number(object, option->name, presence, option->least, option->most, target, err);
        case STRATA_OPTION_BOOL:
            return strata_json_get_bool(object, option->name, presence, target, err);
        case STRATA_OPTION_STRING:
        case STRATA_OPTION_ACTIVATION:
            return strata_json_get_string(object, option->name, presence, target, err);
        case STRATA_OPTION_NUMBERS:
            return read_numbers(object, option, target, err);
        case STRATA_OPTION_SHAPE:
            return read_shape(object, option, target, err);
    }
    return STRATA_OK;
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

static void write_numbers(strata_json_writer *w, const strata_numbers *numbers) {
    strata_json_begin_array(w);
    for (int i = 0; i < numbers->n; i++) strata_json_write_any_number(w, numbers->values[i]);
    strata_json_end_array(w);
}

static void write_ints(strata_json_writer *w, const int64_t *values, int n) {
    strata_json_begin_array(w);
    for (int i = 0; i < n; i++) strata_json_write_int(w, values[i]);
    strata_json_end_array(w);
}

static bool one_is_given(const int64_t *values, int n) {
    for (int i = 0; i < n; i++)
        if (values[i]) return true;
    return false;
}

static bool is_given(const strata_option *option, const void *options) {
    const void *value = (const char *)options + option->offset;
    switch (option->kind) {
        case STRATA_OPTION_INT:
            return *(const int64_t *)value != 0;
        case STRATA_OPTION_PAIR:
        case STRATA_OPTION_BORDER_1D:
            return one_is_given(value, 2);
        case STRATA_OPTION_BORDER_2D:
            return one_is_given(value, 4);
        case STRATA_OPTION_NUMBER:
            return *(const double *)value != 0;
        case STRATA_OPTION_BOOL:
            return *(const bool *)value;
        case STRATA_OPTION_STRING:
        case STRATA_OPTION_ACTIVATION:
            return *(const char *const *)value != NULL;
        case STRATA_OPTION_NUMBERS:
            return ((const strata_numbers *)value)->n != 0;
        case STRATA_OPTION_SHAPE:
            return ((const strata_shape *)value)->rank != 0;
    }
    return false;
}

bool strata_option_is_text(strata_option_kind kind) {
    return kind == STRATA_OPTION_STRING || kind == STRATA_OPTION_ACTIVATION;
}

size_t strata_option_bytes(strata_option_kind kind) {
    static const size_t bytes[] = {
        [STRATA_OPTION_INT] = sizeof(int64_t),          [STRATA_OPTION_PAIR] = sizeof(int64_t[2]),
        [STRATA_OPTION_BORDER_1D] = sizeof(int64_t[2]), [STRATA_OPTION_BORDER_2D] = sizeof(int64_t[4]),
        [STRATA_OPTION_NUMBER] = sizeof(double),        [STRATA_OPTION_BOOL] = sizeof(bool),
        [STRATA_OPTION_STRING] = sizeof(char *),        [STRATA_OPTION_NUMBERS] = sizeof(strata_numbers),
        [STRATA_OPTION_SHAPE] = sizeof(strata_shape),   [STRATA_OPTION_ACTIVATION] = sizeof(char *)};
    return (unsigned)kind < sizeof bytes / sizeof *bytes ? bytes[kind] : 0;
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
    return strata_fail(err, STRATA_INVALID, "%s is %g; it must be %g..%g", option->name, value, option->least, option->most);
}

static strata_status check_option(const strata_option *option, const void *options, strata_error *err) {
    const void *value = (const char *)options + option->offset;
    const strata_numbers *numbers = value;
    const strata_shape *shape = value;
    switch (option->kind) {
        case STRATA_OPTION_INT:
            return check_ints(option, value, 1, err);
        case STRATA_OPTION_PAIR:
        case STRATA_OPTION_BORDER_1D:
            return check_ints(option, value, 2, err);
        case STRATA_OPTION_BORDER_2D:
            return check_ints(option, value, 4, err);
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
            break;
    }
    if (*(const char *const *)value) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s is missing", option->name);
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

static void write_option(strata_json_writer *w, const strata_option *option, const void *options) {
    const void *value = (const char *)options + option->offset;
    if (!option->required && !is_given(option, options)) return;
    strata_json_key(w, option->name);
    switch (option->kind) {
        case STRATA_OPTION_INT:
            strata_json_write_int(w, *(const int64_t *)value);
            break;
        case STRATA_OPTION_PAIR:
        case STRATA_OPTION_BORDER_1D:
            write_ints(w, value, 2);
            break;
        case STRATA_OPTION_BORDER_2D:
            write_ints(w, value, 4);
            break;
        case STRATA_OPTION_NUMBER:
            strata_json_write_any_number(w, *(const double *)value);
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
            write_ints(w, ((const strata_shape *)value)->dims, ((const strata_shape *)value)->rank);
            break;
    }
}

void strata_options_write(strata_json_writer *writer, const strata_option *table, const void *options) {
    for (const strata_option *option = table; option->name; option++) write_option(writer, option, options);
}
