/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as JSON: an error with its place, or a tree that, written and read again, is written the same. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_value(strata_json_writer *writer, const strata_json *value);

static void write_items(strata_json_writer *writer, const strata_json *list, bool with_keys) {
    strata_json item;
    for (bool more = strata_json_first(list, &item); more; more = strata_json_next(&item)) {
        if (with_keys) strata_json_key(writer, item.name);
        write_value(writer, &item);
    }
}

static void write_value(strata_json_writer *writer, const strata_json *value) {
    double number = 0;
    bool flag = false;
    const char *string = NULL;
    if (!strata_json_to_number(value, -INFINITY, INFINITY, &number, NULL)) {
        strata_json_write_number(writer, number);
    } else if (!strata_json_to_bool(value, &flag, NULL)) {
        strata_json_write_bool(writer, flag);
    } else if (!strata_json_to_string(value, &string, NULL)) {
        strata_json_write_string(writer, string);
    } else if (strata_json_kind_of(value) == STRATA_JSON_OBJECT) {
        strata_json_begin_object(writer);
        write_items(writer, value, true);
        strata_json_end_object(writer);
    } else if (strata_json_kind_of(value) == STRATA_JSON_ARRAY) {
        strata_json_begin_array(writer);
        write_items(writer, value, false);
        strata_json_end_array(writer);
    } else {
        strata_json_write_null(writer);
    }
}

static char *written(const strata_json *root, size_t *out_n_bytes) {
    strata_json_writer writer = {0};
    char *text = NULL;
    write_value(&writer, root);
    return strata_json_take(&writer, &text, out_n_bytes, NULL) ? NULL : text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const size_t limit = 1 << 20;
    strata_json root, again;
    strata_error err = {0};
    strata_status status = strata_json_parse("input", data, size, limit, &root, &err);
    if (status) {
        if ((status != STRATA_DATA && status != STRATA_OUT_OF_MEMORY) || strncmp(err.message, "input:", 6) != 0) abort();
        return 0;
    }
    size_t n_first = 0, n_second = 0;
    char *first = written(&root, &n_first);
    if (!first || strata_json_parse("again", first, n_first, SIZE_MAX, &again, &err)) abort();
    char *second = written(&again, &n_second);
    if (!second || n_first != n_second || memcmp(first, second, n_first) != 0) abort();
    free(first);
    free(second);
    strata_json_finish(&root);
    strata_json_finish(&again);
    return 0;
}
