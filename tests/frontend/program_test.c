/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of jaxlib are read as jaxlib itself reads them (fixtures.py), and damaged ones give an error or a program. */
#include "core/frontend/pjrt/program.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/frontend/fixture.h"

static const char *const names[] = {
    "binary",   "cond",     "constants", "conv",   "convs",  "donated",        "dots",   "embedding", "gathers",    "half",
    "integers", "kinds",    "large",     "mlp",    "nested", "pool_gradients", "random", "reduce",    "reductions", "refused",
    "scan",     "scatters", "shapes",    "slices", "sort",   "tangent",        "unary",  "window",    "windows"};
/* Of a program of more than MAX_DAMAGED bytes, only some bytes are cut or changed. */
enum { N_PROGRAMS = sizeof names / sizeof names[0], MAX_DAMAGED = 1000 };

/* Whether a line is as wanted, where "*" stands for attributes that are not compared. */
static bool matches(const char *line, const char *wanted) {
    for (;;) {
        size_t n = strcspn(wanted, "*");
        if (strncmp(line, wanted, n) != 0) return false;
        line += n;
        wanted += n;
        if (!*wanted) return !*line;
        n = strcspn(++wanted, "*");
        while (*line && strncmp(line, wanted, n) != 0) line++;
    }
}

static const char *without_dialect(const char *line) {
    static const char *const dialects[] = {"stablehlo.", "func."};
    for (int i = 0; i < 2; i++)
        if (!strncmp(line, dialects[i], strlen(dialects[i]))) return line + strlen(dialects[i]);
    return line;
}

Test(program, operations_types_and_attributes_are_those_that_jaxlib_reads) {
    for (int i = 0; i < N_PROGRAMS; i++) {
        size_t n_bytes = 0, n_text = 0;
        unsigned char *bytes = read_fixture(names[i], ".mlir.bc", &n_bytes);
        char *wanted = (char *)read_fixture(names[i], ".txt", &n_text), *printed = NULL, *at = NULL, *wanted_at = NULL;
        strata_program *program = NULL;
        strata_error err = {0};
        cr_assert_eq(strata_program_read(bytes, n_bytes, &program, &err), STRATA_OK, "%s: %s", names[i], err.message);
        strata_text text = {0};
        strata_program_print(program, &text);
        cr_assert_eq(strata_text_take(&text, &printed, NULL, &err), STRATA_OK);
        char *line = strtok_r(printed, "\n", &at), *other = strtok_r(wanted, "\n", &wanted_at);
        for (; line && other; line = strtok_r(NULL, "\n", &at), other = strtok_r(NULL, "\n", &wanted_at)) {
            const char *plain = strncmp(line, "vhlo.", 5) ? line : line + 5;
            cr_assert(matches(plain, without_dialect(other)), "%s: %s, wanted %s", names[i], line, other);
        }
        cr_assert(!line && !other, "%s: another number of operations", names[i]);
        strata_program_destroy(program);
        free(printed);
        free(wanted);
        free(bytes);
    }
}

/* The input has memory of exactly its size, so that AddressSanitizer sees a read beyond it. */
static void read_copy(const unsigned char *bytes, size_t n_bytes, size_t changed, unsigned char value) {
    unsigned char *copy = malloc(n_bytes + !n_bytes);
    memcpy(copy, bytes, n_bytes);
    if (changed < n_bytes) copy[changed] ^= value;
    strata_program *program = NULL;
    strata_error err = {0};
    const strata_status status = strata_program_read(copy, n_bytes, &program, &err);
    cr_assert((status == STRATA_OK) == (program != NULL));
    cr_assert(!status || err.message[0]);
    strata_program_destroy(program);
    free(copy);
}

Test(program, a_cut_program_gives_a_program_or_an_error) {
    for (int i = 0; i < N_PROGRAMS; i++) {
        size_t n_bytes = 0;
        unsigned char *bytes = read_fixture(names[i], ".mlir.bc", &n_bytes);
        for (size_t n = 0; n < n_bytes; n += 1 + n_bytes / MAX_DAMAGED) read_copy(bytes, n, SIZE_MAX, 0);
        free(bytes);
    }
}

Test(program, a_changed_byte_gives_a_program_or_an_error) {
    static const unsigned char values[] = {0x01, 0x02, 0x10, 0x80, 0xFF};
    for (int i = 0; i < N_PROGRAMS; i++) {
        size_t n_bytes = 0;
        unsigned char *bytes = read_fixture(names[i], ".mlir.bc", &n_bytes);
        for (size_t n = 0; n < n_bytes; n += 1 + n_bytes / MAX_DAMAGED)
            for (size_t k = 0; k < sizeof values; k++) read_copy(bytes, n_bytes, n, values[k]);
        free(bytes);
    }
}

Test(program, what_is_no_bytecode_is_an_error_that_says_so) {
    strata_program *program = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_program_read("module {}", 9, &program, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "4D 4C EF 52"), "%s", err.message);
}
