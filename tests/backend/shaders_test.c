/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the table of embedded kernels without a device. Every row must be launchable as shaders/shaders.h says, and the
 * SPIR-V must not require more of a Vulkan device than its row declares. tests/conformance tests what the kernels compute. */
#include "shaders/shaders.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shaders/ids.h"

Test(shaders, every_kernel_is_found_by_its_stem_and_variant) {
    cr_assert_gt(strata_shader_count(), 100);
    for (size_t i = 0; i < strata_shader_count(); i++) {
        const strata_shader *shader = strata_shader_at(i);
        cr_expect_eq(strata_shader_find(shader->stem, shader->variant), shader, "%s %s", shader->stem, shader->variant);
    }
    cr_expect_null(strata_shader_at(strata_shader_count()));
    cr_expect_null(strata_shader_find("unary", "f99"));
    cr_expect_null(strata_shader_find("no such kernel", NULL));
    cr_expect_str_eq(strata_shader_find("unary", NULL)->variant, "f32");
}

Test(shaders, every_kernel_fits_the_launch_interface) {
    for (size_t i = 0; i < strata_shader_count(); i++) {
        const strata_shader *shader = strata_shader_at(i);
        cr_expect(shader->n_buffers >= 1 && shader->n_buffers <= STRATA_SHADER_MAX_BUFFERS, "%s", shader->stem);
        cr_expect(shader->n_words > shader->n_buffers && shader->n_words <= STRATA_SHADER_MAX_WORDS, "%s", shader->stem);
        cr_expect(shader->n_constants >= 1 && shader->n_constants <= STRATA_SHADER_MAX_CONSTANTS, "%s", shader->stem);
        cr_expect_str_eq(shader->constants[0].name, "LOCAL_X", "%s", shader->stem);
        for (int b = 0; b < shader->n_buffers; b++) {
            const char *offset = shader->words[b].name, *name = shader->buffers[b].name;
            cr_expect(strncmp(offset, name, strlen(name)) == 0 && strcmp(offset + strlen(name), "_offset") == 0, "%s: %s",
                      shader->stem, offset);
            cr_expect_eq(shader->words[b].type, STRATA_SHADER_UINT);
        }
        if (!shader->opencl.bytes) continue;
        void *source = NULL;
        cr_assert_eq(strata_shader_load(shader, &shader->opencl, &source, NULL), STRATA_OK, "%s", shader->stem);
        cr_expect_eq(strlen(source), shader->opencl.bytes);
        cr_expect_not_null(strstr(source, shader->opencl_entry), "%s", shader->stem);
        free(source);
    }
}

/* Returns the device features that a SPIR-V module's OpCapability instructions require, as STRATA_SHADER_NEEDS_*. Returns
 * ~0u for a capability that no row can declare. */
static unsigned needs_of(const uint32_t *words, size_t n_words) {
    enum { HEADER_WORDS = 5, OP_CAPABILITY = 17 };
    static const struct {
        uint32_t capability;
        unsigned needs;
    } known[] = {{1 /* Shader */, 0},
                 {4433 /* StorageBuffer16BitAccess */, STRATA_SHADER_NEEDS_16BIT_STORAGE},
                 {4448 /* StorageBuffer8BitAccess */, STRATA_SHADER_NEEDS_8BIT_STORAGE},
                 {11 /* Int64 */, STRATA_SHADER_NEEDS_INT64},
                 {6022 /* CooperativeMatrixKHR */, STRATA_SHADER_NEEDS_MATRIX_UNITS},
                 {5118 /* BFloat16CooperativeMatrixKHR */, STRATA_SHADER_NEEDS_MATRIX_UNITS},
                 {5116 /* BFloat16TypeKHR */, STRATA_SHADER_NEEDS_MATRIX_UNITS},
                 {9 /* Float16 */, STRATA_SHADER_NEEDS_MATRIX_UNITS},
                 {5345 /* VulkanMemoryModel */, STRATA_SHADER_NEEDS_MATRIX_UNITS},
                 {61 /* GroupNonUniform, which Vulkan 1.1 has */, 0},
                 {46 /* SampledBuffer */, 0},
                 {47 /* ImageBuffer */, 0}};
    unsigned needs = 0;
    for (size_t at = HEADER_WORDS; at < n_words && (words[at] & 0xffff) == OP_CAPABILITY; at += words[at] >> 16) {
        unsigned need = ~0u;
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            if (known[k].capability == words[at + 1]) need = known[k].needs;
        needs |= need;
    }
    return needs;
}

Test(shaders, spirv_asks_for_no_more_than_its_row_says) {
    for (size_t i = 0; i < strata_shader_count(); i++) {
        const strata_shader *shader = strata_shader_at(i);
        if (!shader->spirv.bytes) continue;
        const strata_shader_code *codes[] = {&shader->spirv, &shader->fetch};
        unsigned needs = 0;
        for (int k = 0; k < 2; k++) {
            void *spirv = NULL;
            if (k == 1 && shader->needs & STRATA_SHADER_NEEDS_MATRIX_UNITS) continue;
            cr_assert_gt(codes[k]->bytes, 20);
            cr_assert_eq(strata_shader_load(shader, codes[k], &spirv, NULL), STRATA_OK, "%s", shader->stem);
            cr_expect_eq(((const uint32_t *)spirv)[0], 0x07230203);
            needs |= needs_of(spirv, codes[k]->bytes / 4);
            free(spirv);
        }
        cr_expect_eq(needs & ~shader->needs, 0, "%s %s: module %#x, row %#x", shader->stem, shader->variant, needs,
                     shader->needs);
        const bool has_bytes = shader->needs & STRATA_SHADER_NEEDS_8BIT_STORAGE;
        cr_expect_eq(shader->in_words.bytes > 0, has_bytes, "%s %s", shader->stem, shader->variant);
        if (!shader->in_words.bytes) continue;
        void *spirv = NULL;
        cr_assert_eq(strata_shader_load(shader, &shader->in_words, &spirv, NULL), STRATA_OK, "%s", shader->stem);
        needs = needs_of(spirv, shader->in_words.bytes / 4);
        cr_expect_eq(needs & ~(shader->needs & ~(unsigned)STRATA_SHADER_NEEDS_8BIT_STORAGE), 0,
                     "%s %s without 8-bit storage: %#x", shader->stem, shader->variant, needs);
        free(spirv);
    }
}

Test(shaders, damaged_or_missing_code_is_an_error) {
    const strata_shader *shader = strata_shader_at(0);
    const strata_shader_code none = {0};
    strata_error err;
    void *code = NULL;
    cr_expect_eq(strata_shader_load(shader, &none, &code, &err), STRATA_UNSUPPORTED);
    if (!shader->opencl.bytes) return;
    unsigned char *damaged = malloc(shader->opencl.pack->packed_bytes);
    memcpy(damaged, shader->opencl.pack->packed, shader->opencl.pack->packed_bytes);
    damaged[shader->opencl.pack->packed_bytes / 2] ^= 0x55;
    strata_shader_pack pack = *shader->opencl.pack;
    pack.packed = damaged;
    strata_shader_code broken = shader->opencl;
    broken.pack = &pack;
    cr_expect_eq(strata_shader_load(shader, &broken, &code, &err), STRATA_INTERNAL);
    cr_expect_not_null(strstr(err.message, "damaged"));
    free(damaged);
}

/* The library stores the ids of a module as differences between ids (shaders/ids.h). */
Test(shaders, ids_are_replaced_and_restored) {
    for (size_t i = 0; i < strata_shader_count(); i++) {
        const strata_shader *shader = strata_shader_at(i);
        const size_t bytes = shader->spirv.bytes;
        if (!bytes) continue;
        void *module = NULL;
        uint32_t *words = malloc(bytes);
        cr_assert_eq(strata_shader_load(shader, &shader->spirv, &module, NULL), STRATA_OK, "%s", shader->stem);
        memcpy(words, module, bytes);
        cr_expect(strata_ids_convert(words, bytes / 4, true));
        cr_expect_neq(memcmp(words, module, bytes), 0);
        cr_expect(strata_ids_convert(words, bytes / 4, false));
        cr_expect_eq(memcmp(words, module, bytes), 0, "%s %s", shader->stem, shader->variant);
        free(words);
        free(module);
    }
}

Test(shaders, what_is_no_module_is_not_converted) {
    uint32_t beyond[] = {0x07230203, 0, 0, 9, 0, 3u << 16 | 248, 1}, nothing[] = {0x07230203, 0, 0, 9, 0, 248, 1};
    cr_expect_not(strata_ids_convert(beyond, sizeof beyond / sizeof *beyond, false));
    cr_expect_not(strata_ids_convert(nothing, sizeof nothing / sizeof *nothing, false));
}
