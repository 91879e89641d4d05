/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks kernels up in the generated table, and unpacks their code. The table consists of one list for each stem, in a C
 * file that embed.c writes. The build generates shader_table.h, which has a row STEM(name) for each list. */
#include "shaders/shaders.h"

#include <stdlib.h>
#include <string.h>
#if STRATA_WITH_XZ
#include <lzma.h>
#else
#include <zlib.h>
#endif

#include "shaders/ids.h"

typedef struct stem_table {
    const strata_shader *shaders;
    const size_t *n_shaders;
} stem_table;

#define STEM(name)                                      \
    extern const strata_shader strata_shaders_##name[]; \
    extern const size_t strata_n_shaders_##name;
#include "shader_table.h"
#undef STEM

static const stem_table stems[] = {
#define STEM(name) {strata_shaders_##name, &strata_n_shaders_##name},
#include "shader_table.h"
#undef STEM
};

enum { N_STEMS = sizeof(stems) / sizeof(stems[0]) };

const strata_shader *strata_shader_find(const char *stem, const char *variant) {
    for (size_t s = 0; s < N_STEMS; s++) {
        if (strcmp(stems[s].shaders[0].stem, stem) != 0) continue;
        for (size_t i = 0; i < *stems[s].n_shaders; i++)
            if (!variant || strcmp(stems[s].shaders[i].variant, variant) == 0) return &stems[s].shaders[i];
        return NULL;
    }
    return NULL;
}

static bool unpack(const strata_shader_pack *pack, unsigned char *out) {
#if STRATA_WITH_XZ
    uint64_t most_memory = UINT64_MAX;
    size_t read = 0, written = 0;
    return lzma_stream_buffer_decode(&most_memory, 0, NULL, pack->packed, &read, pack->packed_bytes, out, &written,
                                     pack->bytes) == LZMA_OK &&
           written == pack->bytes;
#else
    uLongf written = (uLongf)pack->bytes;
    return uncompress(out, &written, pack->packed, (uLong)pack->packed_bytes) == Z_OK && written == pack->bytes;
#endif
}

static bool is_spirv(const unsigned char *code, size_t bytes) {
    const uint32_t magic = 0x07230203;
    return bytes > sizeof magic && !memcmp(code, &magic, sizeof magic);
}

strata_status strata_shader_load(const strata_shader *shader, const strata_shader_code *code, void **out_code,
                                 strata_error *err) {
    if (!code->bytes)
        return strata_fail(err, STRATA_UNSUPPORTED, "kernel %s (%s) is not in this build for this API", shader->stem,
                           shader->variant);
    unsigned char *all = malloc((code->pack ? code->pack->bytes : code->bytes) + 1);
    if (!all)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "kernel %s: no host memory for its code of %zu bytes", shader->stem,
                           code->bytes);
    bool whole = true;
    if (!code->pack) {
        memcpy(all, code->plain, code->bytes);
    } else {
        whole = unpack(code->pack, all);
        if (whole) memmove(all, all + code->first, code->bytes);
        whole = whole && (!is_spirv(all, code->bytes) || strata_ids_convert((uint32_t *)(void *)all, code->bytes / 4, false));
    }
    if (!whole) {
        free(all);
        return strata_fail(err, STRATA_INTERNAL, "kernel %s: its code in the library is damaged", shader->stem);
    }
    all[code->bytes] = 0;
    *out_code = all;
    return STRATA_OK;
}

strata_shader_binding strata_shader_binding_of(const strata_shader_buffer *buffer) {
    if (buffer->element_bytes > 4) return STRATA_SHADER_STORAGE;
    static const strata_shader_binding by_access[] = {[STRATA_SHADER_READ] = STRATA_SHADER_TEXELS,
                                                      [STRATA_SHADER_WRITE] = STRATA_SHADER_STORAGE,
                                                      [STRATA_SHADER_UPDATE] = STRATA_SHADER_STORAGE_TEXELS};
    return by_access[buffer->access];
}

size_t strata_shader_count(void) {
    size_t count = 0;
    for (size_t s = 0; s < N_STEMS; s++) count += *stems[s].n_shaders;
    return count;
}

const strata_shader *strata_shader_at(size_t index) {
    for (size_t s = 0; s < N_STEMS; s++) {
        if (index < *stems[s].n_shaders) return &stems[s].shaders[index];
        index -= *stems[s].n_shaders;
    }
    return NULL;
}
