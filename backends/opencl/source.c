/* SPDX-License-Identifier: Apache-2.0
 *
 * Several kernels in one OpenCL source. A compiler spends most of its time on the fixed cost of a program (headers, start-up):
 * PoCL 3.1 needs 200 ms of processor time for each program, and still 40 ms if the program is in its cache. So all kernels of a
 * piece are built as one program.
 *
 * The source of each kernel is complete by itself: its constants are macros, and different sources define functions of the same
 * names. So the macros are defined before each source and undefined after it, and further macros rename its functions to unique
 * names. */
#include <stdio.h>

#include "backends/opencl/opencl.h"
#include "core/base/ascii.h"

enum { MAX_FUNCTIONS = 48, NAME_BYTES = 48 };

typedef struct function_names {
    char names[MAX_FUNCTIONS][NAME_BYTES];
    int n;
} function_names;

static bool is_word(char c) {
    return strata_ascii_is_word(c) || c == '_';
}

/* The functions that the text defines: at the outermost level, the last word before a '(' is the name if a '{' follows. The
 * text has been preprocessed, so it has no comments, and no directives except #pragma. */
static void find_functions(const char *text, function_names *out) {
    const char *word = NULL, *name = NULL; /* the newest word; the newest one before a '(' */
    size_t word_bytes = 0, name_bytes = 0;
    int braces = 0, brackets = 0;
    out->n = 0;
    for (const char *c = text; *c; c++) {
        if (*c == '#') {
            while (c[1] && c[1] != '\n') c++;
        } else if (is_word(*c) && (c == text || !is_word(c[-1]))) {
            word = c;
            word_bytes = 1;
            while (is_word(c[1])) {
                c++;
                word_bytes++;
            }
        } else if (*c == '(') {
            if (braces == 0 && brackets++ == 0) {
                name = word;
                name_bytes = word_bytes;
            }
        } else if (*c == ')') {
            if (braces == 0) brackets--;
        } else if (*c == '{') {
            if (braces++ == 0 && name && name_bytes < NAME_BYTES && out->n < MAX_FUNCTIONS)
                snprintf(out->names[out->n++], NAME_BYTES, "%.*s", (int)name_bytes, name);
        } else if (*c == '}') {
            braces--;
            name = NULL;
        }
    }
}

/* Adds the source to the text, with `parameters` inserted after the '(' of the kernel function's definition. */
static void add_body(strata_text *text, const strata_shader *shader, const char *source, const char *parameters) {
    const char *at = source, *entry = NULL;
    const size_t name = strlen(shader->opencl_entry);
    while (parameters[0] && (at = strstr(at, shader->opencl_entry))) {
        if (at[name] == '(' && (at == source || !is_word(at[-1]))) entry = at + name + 1;
        at += name;
    }
    if (entry) strata_text_add_bytes(text, source, (size_t)(entry - source));
    strata_text_add(text, "%s", parameters);
    strata_text_add_bytes(text, entry ? entry : source, strlen(entry ? entry : source));
    strata_text_add(text, "\n");
}

strata_status strata_opencl_source_add(strata_text *text, const strata_kernel *kernel, const char *suffix,
                                       const char *parameters, char out_entry[64], strata_error *err) {
    const strata_shader *shader = kernel->shader;
    STRATA_FREED void *source = NULL;
    STRATA_TRY(strata_shader_load(shader, &shader->opencl, &source, err));
    function_names functions;
    find_functions(source, &functions);
    for (int i = 0; i < shader->n_constants; i++)
        strata_text_add(text, "#define %s %uu\n", shader->constants[i].name, kernel->constants[i]);
    for (int i = 0; i < functions.n; i++)
        strata_text_add(text, "#define %s %s%s\n", functions.names[i], functions.names[i], suffix);
    add_body(text, shader, source, parameters);
    for (int i = 0; i < functions.n; i++) strata_text_add(text, "#undef %s\n", functions.names[i]);
    for (int i = 0; i < shader->n_constants; i++) strata_text_add(text, "#undef %s\n", shader->constants[i].name);
    snprintf(out_entry, 64, "%s%s", shader->opencl_entry, suffix);
    return STRATA_OK;
}
