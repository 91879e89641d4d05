/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of embedded kernels, without a device: every row can be launched as shaders/shaders.h says, and SPIR-V asks a
 * Vulkan device for no more than its row says. What the kernels compute is tested by tests/conformance. */
#include "shaders/shaders.h"

#include <criterion/criterion.h>
#include <string.h>

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
        if (shader->opencl_source) cr_expect_not_null(strstr(shader->opencl_source, shader->opencl_entry), "%s", shader->stem);
    }
}

/* The device features that a SPIR-V module's OpCapability instructions ask for, as STRATA_SHADER_NEEDS_*; ~0u for one that no
 * row can express. */
static unsigned needs_of(const uint32_t *words, size_t n_words) {
    enum { HEADER_WORDS = 5, OP_CAPABILITY = 17 };
    static const struct {
        uint32_t capability;
        unsigned needs;
    } known[] = {{1 /* Shader */, 0},
                 {4433 /* StorageBuffer16BitAccess */, STRATA_SHADER_NEEDS_16BIT_STORAGE},
                 {4448 /* StorageBuffer8BitAccess */, STRATA_SHADER_NEEDS_8BIT_STORAGE},
                 {11 /* Int64 */, STRATA_SHADER_NEEDS_INT64},
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
        if (!shader->spirv) continue;
        cr_assert_gt(shader->spirv_words, 5);
        cr_expect_eq(shader->spirv[0], 0x07230203);
        cr_assert_gt(shader->fetch_words, 5);
        cr_expect_eq(shader->fetch[0], 0x07230203);
        unsigned needs = needs_of(shader->spirv, shader->spirv_words) | needs_of(shader->fetch, shader->fetch_words);
        cr_expect_eq(needs & ~shader->needs, 0, "%s %s: module %#x, row %#x", shader->stem, shader->variant, needs,
                     shader->needs);
    }
}
