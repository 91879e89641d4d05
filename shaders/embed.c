/* SPDX-License-Identifier: Apache-2.0
 *
 * A tool of the build: writes the C file that holds all variants of one kernel.
 *   embed OUTPUT.c STEM NAME (VARIANT META OPENCL SPIRV FETCH WORDS)...
 * STEM is the name by which strata_shader_find finds the kernel ("cpu/matmul"); NAME is the same as a C identifier.
 * META is the kernel's file, preprocessed with STRATA_META: its text between STRATA_META_BEGIN and STRATA_META_END
 * becomes the variant's initializer. OPENCL, SPIRV, FETCH (SPIR-V that reads texel buffers) and WORDS (SPIR-V without 8-bit
 * storage) are files of code; "-" means that the build or the kernel has none. The code is compressed, SPIR-V after its
 * ids were converted to distances (ids.h). shaders.c unpacks it.
 * Not part of the library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if STRATA_WITH_XZ
#include <lzma.h>
#else
#include <zlib.h>
#endif

#include "ids.h"

static void die(const char *what, const char *path) {
    fprintf(stderr, "embed: %s %s\n", what, path);
    exit(1);
}

/* Reads the whole file and adds a NUL; the caller frees the memory. */
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

/* The code of all variants for one API, one after the other. */
typedef struct pack {
    unsigned char *data;
    size_t bytes;
} pack;

/* Adds the file to the pack, and returns where it begins. */
static size_t add_file(pack *pack, const char *path, size_t *out_bytes) {
    char *data = read_file(path, out_bytes);
    const size_t first = pack->bytes;
    pack->data = realloc(pack->data, first + *out_bytes);
    if (!pack->data) die("no memory for", path);
    memcpy(pack->data + first, data, *out_bytes);
    pack->bytes += *out_bytes;
    free(data);
    return first;
}

/* Compresses the pack in the format that shaders.c unpacks. */
static unsigned char *compress_pack(const pack *pack, size_t *out_bytes) {
#if STRATA_WITH_XZ
    const size_t most = lzma_stream_buffer_bound(pack->bytes);
    unsigned char *packed = malloc(most);
    size_t bytes = 0;
    if (!packed || lzma_easy_buffer_encode(9, LZMA_CHECK_CRC32, NULL, pack->data, pack->bytes, packed, &bytes, most) != LZMA_OK)
        die("liblzma cannot compress", "kernels");
#else
    uLongf bytes = compressBound((uLong)pack->bytes);
    unsigned char *packed = malloc(bytes);
    if (!packed || compress2(packed, &bytes, pack->data, (uLong)pack->bytes, 9) != Z_OK) die("zlib cannot compress", "kernels");
#endif
    *out_bytes = bytes;
    return packed;
}

static void write_pack(FILE *out, const char *name, const char *api, const pack *pack) {
    if (!pack->bytes) return;
    size_t bytes;
    unsigned char *packed = compress_pack(pack, &bytes);
    fprintf(out, "static const unsigned char %s_%s_packed[] = {", name, api);
    for (size_t i = 0; i < bytes; i++) fprintf(out, "%s%u,", i % 32 == 0 ? "\n    " : "", packed[i]);
    fprintf(out, "\n};\nstatic const strata_shader_pack %s_%s = {%s_%s_packed, %zu, %zu};\n", name, api, name, api, bytes,
            pack->bytes);
    free(packed);
}

/* The position of a variant's code in its pack. All 0: it has no code. */
typedef struct part {
    size_t first, bytes;
} part;

/* Adds the file at `path` to the pack; "-" adds nothing. unit is the number of bytes in a word of the code. A unit of 4
 * is SPIR-V, whose ids are converted. */
static part add_part(pack *pack, const char *path, size_t unit) {
    part added = {0};
    if (strcmp(path, "-") == 0) return added;
    added.first = add_file(pack, path, &added.bytes);
    if (added.bytes == 0 || added.bytes % unit != 0) die("not SPIR-V, or empty:", path);
    if (unit == sizeof(uint32_t) &&
        !strata_ids_convert((uint32_t *)(void *)(pack->data + added.first), added.bytes / unit, true))
        die("not SPIR-V:", path);
    return added;
}

static void write_part(FILE *out, const char *member, const char *name, const char *api, part part) {
    if (part.bytes) fprintf(out, ".%s = {&%s_%s, %zu, %zu, NULL},\n", member, name, api, part.first, part.bytes);
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
    if (argc < 10 || (argc - 4) % 6 != 0) die("usage: embed OUTPUT.c STEM NAME (VARIANT META OPENCL SPIRV FETCH WORDS)...", "");
    const char *path = argv[1], *stem = argv[2], *name = argv[3];
    const int n_variants = (argc - 4) / 6;
    FILE *out = fopen(path, "w");
    if (!out) die("cannot write", path);

    pack opencl = {0}, vulkan = {0};
    part(*parts)[4] = calloc((size_t)n_variants, sizeof *parts);
    if (!parts) die("no memory for", path);
    for (int i = 0; i < n_variants; i++) {
        char **variant = argv + 4 + 6 * i;
        parts[i][0] = add_part(&opencl, variant[2], 1);
        for (int k = 1; k < 4; k++) parts[i][k] = add_part(&vulkan, variant[2 + k], 4);
    }
    fprintf(out, "/* Generated from shaders/%s.kernel. */\n#include \"shaders/shaders.h\"\n\n", stem);
    write_pack(out, name, "opencl", &opencl);
    write_pack(out, name, "vulkan", &vulkan);
    fprintf(out, "\nextern const strata_shader strata_shaders_%s[];\nextern const size_t strata_n_shaders_%s;\n", name, name);
    fprintf(out, "const size_t strata_n_shaders_%s = %d;\nconst strata_shader strata_shaders_%s[] = {\n", name, n_variants,
            name);
    for (int i = 0; i < n_variants; i++) {
        char **variant = argv + 4 + 6 * i;
        fprintf(out, "{.stem = \"%s\", .variant = \"%s\",\n", stem, variant[0]);
        write_part(out, "opencl", name, "opencl", parts[i][0]);
        write_part(out, "spirv", name, "vulkan", parts[i][1]);
        write_part(out, "fetch", name, "vulkan", parts[i][2]);
        write_part(out, "in_words", name, "vulkan", parts[i][3]);
        write_meta(out, variant[1]);
        fputs("},\n", out);
    }
    fputs("};\n", out);
    free(parts);
    free(opencl.data);
    free(vulkan.data);
    if (fclose(out)) die("cannot write", path);
    return 0;
}
