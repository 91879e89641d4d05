/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads files of golden numbers. golden.h describes their format. */
#include "tests/support/golden.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/locale.h"
#include "core/op/element.h"

enum { MAX_FILE_BYTES = 16 << 20 };

typedef struct row {
    char name[64];
    strata_array array;
} row;

struct strata_golden {
    char op[64];
    row *rows;
    int n_rows;
};

static void give_up(const strata_golden *golden, const char *what, const char *text) {
    cr_assert_fail("tests/op/golden/%s.txt: %s \"%.80s\"; python3 tests/op/golden/make.py %s makes the file", golden->op, what,
                   text, golden->op);
    abort(); /* not reached, since the line above ends the test */
}

/* Returns the next word of *text and advances *text behind it. Returns NULL at the end of the line. */
static char *next_word(char **text) {
    char *word = *text + strspn(*text, " ");
    if (!*word) return NULL;
    char *end = word + strcspn(word, " ");
    *text = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

static strata_shape parse_shape(const strata_golden *golden, const char *word) {
    strata_shape shape = {0};
    if (strcmp(word, "()") == 0) return shape;
    const char *at = word;
    for (;;) {
        char *end;
        long long dim = strtoll(at, &end, 10);
        if (end == at || dim < 0 || shape.rank == STRATA_MAX_RANK) give_up(golden, "not a shape:", word);
        shape.dims[shape.rank++] = dim;
        if (!*end) return shape;
        if (*end != 'x') give_up(golden, "not a shape:", word);
        at = end + 1;
    }
}

/* Integers are not parsed as double, which cannot represent every i64. */
static void parse_value(const strata_golden *golden, strata_array *array, int64_t index, const char *word) {
    char *end;
    if (!word) give_up(golden, "too few values for", strata_shape_text(array->shape).text);
    if (strata_dtype_is_float(array->dtype))
        strata_element_set(array->dtype, array->data, index, strata_scan_number(word, &end));
    else
        strata_integer_set(array->dtype, array->data, index, strtoll(word, &end, 10));
    if (*end) give_up(golden, "not a number:", word);
}

static void parse_line(strata_golden *golden, char *line) {
    row *r = &golden->rows[golden->n_rows];
    char *name = next_word(&line), *dtype_name = next_word(&line), *shape_text = next_word(&line);
    strata_dtype dtype;
    strata_error err;
    if (!shape_text || strlen(name) >= sizeof r->name) give_up(golden, "a line is malformed:", name ? name : "");
    if (strata_dtype_parse(dtype_name, &dtype, &err)) give_up(golden, err.message, dtype_name);
    snprintf(r->name, sizeof r->name, "%s", name);
    if (strata_array_create(dtype, parse_shape(golden, shape_text), &r->array, &err)) give_up(golden, err.message, name);
    golden->n_rows++;
    for (int64_t i = 0; i < strata_shape_elements(r->array.shape); i++) parse_value(golden, &r->array, i, next_word(&line));
    if (next_word(&line)) give_up(golden, "too many values in", name);
}

strata_golden *strata_golden_load(const char *op) {
    strata_golden *golden = calloc(1, sizeof *golden);
    if (!golden) abort();
    snprintf(golden->op, sizeof golden->op, "%s", op);
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/op/golden/%s.txt", STRATA_TEST_SOURCE_DIR, op);
    unsigned char *bytes;
    size_t n_bytes, n_lines = 1;
    strata_error err;
    if (strata_file_read(path, MAX_FILE_BYTES, &bytes, &n_bytes, &err)) give_up(golden, err.message, path);
    for (size_t i = 0; i < n_bytes; i++) n_lines += bytes[i] == '\n';
    golden->rows = calloc(n_lines, sizeof *golden->rows);
    if (!golden->rows) abort();
    for (char *line = (char *)bytes, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = '\0';
        if (*line && *line != '#') parse_line(golden, line);
    }
    free(bytes);
    return golden;
}

const strata_array *strata_golden_get(const strata_golden *golden, const char *name) {
    for (int i = 0; i < golden->n_rows; i++)
        if (strcmp(golden->rows[i].name, name) == 0) return &golden->rows[i].array;
    give_up(golden, "there is no array", name);
    return NULL;
}

void strata_golden_destroy(strata_golden *golden) {
    if (!golden) return;
    for (int i = 0; i < golden->n_rows; i++) strata_array_finish(&golden->rows[i].array);
    free(golden->rows);
    free(golden);
}
