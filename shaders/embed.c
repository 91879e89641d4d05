/* SPDX-License-Identifier: Apache-2.0
 *
 * A tool of the build: writes the C file that holds all variants of one kernel.
 *   embed OUTPUT.c STEM NAME (VARIANT META OPENCL SPIRV FETCH)...
 * STEM is what the kernel is looked up by ("cpu/matmul"), NAME the same as a C identifier. META is the kernel read with
 * STRATA_META: what lies between STRATA_META_BEGIN and STRATA_META_END becomes the initializer. OPENCL, SPIRV or FETCH (the
 * SPIR-V that reads texel buffers) is "-" where the build or the kernel has none. Not part of the library. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what, const char *path) {
    fprintf(stderr, "embed: %s %s\n", what, path);
    exit(1);
}

/* The whole file with a NUL after it; the caller frees it. */
static char *read_file(const char *path, size_t *out_bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) die("cannot open", path);
    if (fseek(file, 0, SEEK_END)) die("cannot read", path);
    const long size = ftell(file);
    if (size < 0 || fseek(file, 0, SEEK_SET)) die("cannot read", path);
    char *data = malloc((size_t)size + 1);
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size) die("cannot read", path);
    fclose(file);
    data[size] = 0;
    *out_bytes = (size_t)size;
    return data;
}

static void write_text(FILE *out, const char *stem, int index, const char *path) {
    size_t bytes;
    char *text = read_file(path, &bytes);
    fprintf(out, "static const char %s_opencl_%d[] =\n    \"", stem, index);
    for (size_t i = 0; i < bytes; i++) {
        const char c = text[i];
        if (c == '\n')
            fputs(i + 1 < bytes ? "\\n\"\n    \"" : "\\n", out);
        else if (c == '"' || c == '\\' || c == '?')
            fprintf(out, "\\%c", c);
        else
            fputc(c, out);
    }
    fputs("\";\n", out);
    free(text);
}

static void write_words(FILE *out, const char *stem, const char *what, int index, const char *path) {
    size_t bytes;
    char *data = read_file(path, &bytes);
    if (bytes % 4 != 0 || bytes == 0) die("not SPIR-V:", path);
    fprintf(out, "static const uint32_t %s_%s_%d[] = {", stem, what, index);
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t word;
        memcpy(&word, data + i, 4);
        fprintf(out, "%s0x%x,", i % 48 == 0 ? "\n    " : " ", (unsigned)word);
    }
    fputs("\n};\n", out);
    free(data);
}

/* Of the kernel's row. */
static void write_member(FILE *out, const char *stem, const char *what, int index) {
    fprintf(out, ".%s = %s_%s_%d, .%s_words = sizeof(%s_%s_%d) / 4,\n", what, stem, what, index, what, stem, what, index);
}

static void write_meta(FILE *out, const char *path) {
    size_t bytes;
    char *text = read_file(path, &bytes);
    char *begin = strstr(text, "STRATA_META_BEGIN");
    char *end = begin ? strstr(begin, "STRATA_META_END") : NULL;
    if (!end) die("no kernel interface (is dialect.h included?) in", path);
    *end = 0;
    fputs(begin + strlen("STRATA_META_BEGIN"), out);
    free(text);
}

int main(int argc, char **argv) {
    if (argc < 9 || (argc - 4) % 5 != 0) die("usage: embed OUTPUT.c STEM NAME (VARIANT META OPENCL SPIRV FETCH)...", "");
    const char *path = argv[1], *stem = argv[2], *name = argv[3];
    const int n_variants = (argc - 4) / 5;
    FILE *out = fopen(path, "w");
    if (!out) die("cannot write", path);

    fprintf(out, "/* Generated from shaders/%s.kernel. */\n#include \"shaders/shaders.h\"\n\n", stem);
    for (int i = 0; i < n_variants; i++) {
        char **variant = argv + 4 + 5 * i;
        if (strcmp(variant[2], "-") != 0) write_text(out, name, i, variant[2]);
        if (strcmp(variant[3], "-") != 0) write_words(out, name, "spirv", i, variant[3]);
        if (strcmp(variant[4], "-") != 0) write_words(out, name, "fetch", i, variant[4]);
    }
    fprintf(out, "\nextern const strata_shader strata_shaders_%s[];\nextern const size_t strata_n_shaders_%s;\n", name, name);
    fprintf(out, "const size_t strata_n_shaders_%s = %d;\nconst strata_shader strata_shaders_%s[] = {\n", name, n_variants,
            name);
    for (int i = 0; i < n_variants; i++) {
        char **variant = argv + 4 + 5 * i;
        fprintf(out, "{.stem = \"%s\", .variant = \"%s\",\n", stem, variant[0]);
        if (strcmp(variant[2], "-") != 0) fprintf(out, ".opencl_source = %s_opencl_%d,\n", name, i);
        if (strcmp(variant[3], "-") != 0) write_member(out, name, "spirv", i);
        if (strcmp(variant[4], "-") != 0) write_member(out, name, "fetch", i);
        write_meta(out, variant[1]);
        fputs("},\n", out);
    }
    fputs("};\n", out);
    if (fclose(out)) die("cannot write", path);
    return 0;
}
